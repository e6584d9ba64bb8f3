"""A mechanism that no release of privsql knows: the number of records with each value, exactly or with noise."""
