"""Noisy marginals of tables, and what all differentially private contingency tables share."""
