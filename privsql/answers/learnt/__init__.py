"""What a release teaches about the questions that are put to it: how values deviate together, and how strongly."""
