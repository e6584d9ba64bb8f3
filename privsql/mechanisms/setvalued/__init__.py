"""Differentially private releases of item sets."""
