"""The command line: it turns options into a call of one verb, prints the outcome, and sets the exit code.

No logic lives here. ``app`` is what runs; the modules that are imported here add their commands, in the order of
``--help``.
"""

# ruff: isort: off
from privsql.cli import app, commands

__all__ = ["app", "commands"]
