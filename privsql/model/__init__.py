"""Values that packages exchange: parameters, records, manifests, checks, estimates."""
