"""Specifications, and the publisher's records that they describe."""
