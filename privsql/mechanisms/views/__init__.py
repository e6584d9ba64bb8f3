"""Noisy views of item sets, and what all differentially private releases of item sets share.

A noisy view is a table with noisy counts of the records that have some of a few items and lack the others.
"""
