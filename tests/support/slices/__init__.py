"""A mechanism that no release of privsql knows: see ``support.thin``."""
