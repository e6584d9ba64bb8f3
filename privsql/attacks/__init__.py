"""Adversaries: how much each of them can learn from a release, measured on the release itself."""
