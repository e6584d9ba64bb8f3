"""Provide the verbs of the command line and of Python, one function each."""
