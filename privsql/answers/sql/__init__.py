"""Compile an analyst's SQL into questions of counts, or refuse it by name."""
