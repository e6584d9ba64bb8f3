"""DiffPart: noisy trees of partitions of item sets, or of the records of a table (Chen et al. 2011)."""
