"""Layouts: which values meet in which bucket."""
