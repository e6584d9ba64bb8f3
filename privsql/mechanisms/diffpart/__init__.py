"""DiffPart: noisy trees of partitions of item sets, or of tables."""
