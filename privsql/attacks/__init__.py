"""Adversaries: how much each could learn from a release, measured on the release itself."""
