"""Bucketization: every sensitive value has a threshold for the belief in it (F'-privacy)."""
