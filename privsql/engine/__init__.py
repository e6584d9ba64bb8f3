"""Databases that privsql runs in."""
