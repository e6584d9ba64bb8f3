"""Permutation of numbers within groups: (k,e)-anonymity, also of growing tables."""
