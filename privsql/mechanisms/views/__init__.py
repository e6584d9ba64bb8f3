"""Noisy views of item sets, and what all differentially private releases of item sets share."""
