"""What differentially private trees of partitions share: budgets, consistent sizes, what was pruned, checks."""
