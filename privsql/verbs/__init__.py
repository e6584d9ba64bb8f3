"""The verbs of the command line and of Python: a module for each."""
