"""Bucketization with a threshold per sensitive value: F'-privacy."""
