"""Noisy tables of sensitive values by public quasi-identifiers: label differential privacy."""
