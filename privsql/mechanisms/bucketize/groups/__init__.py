"""Bounds for sets of values: what is asked for, whether it can be met, how values are dealt so that it is, checks."""
