"""Serve the local page of ``serve``: forms, the SQL that they stand for, and who may ask."""
