"""Values that rooms hand to each other: parameters, records, manifests, checks, estimates."""
