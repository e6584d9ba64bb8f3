"""Randomized values with known retention probabilities: restricted (rho1, rho2)-privacy."""
