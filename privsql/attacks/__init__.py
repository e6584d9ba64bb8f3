"""Adversaries: what each could learn from a release, measured on the release itself."""
