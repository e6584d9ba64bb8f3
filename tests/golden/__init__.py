"""Small releases under fixed seeds, and what they answer; ``test_golden`` compares them with stored digests."""
