"""Differentially private contingency tables."""
