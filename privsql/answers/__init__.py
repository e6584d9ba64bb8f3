"""Analysts' queries: reading the SQL, estimating the answer from a release, measuring how good answers are."""
