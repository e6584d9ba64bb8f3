"""Serve the web page of ``serve``: its forms, the SQL that they stand for, and who may ask questions."""
