"""What ``report`` asks a release: questions of its own, and how people ask."""
