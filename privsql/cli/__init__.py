"""The command line: flags -> one verb of the library -> printing and an exit code. No logic lives here.

``app`` is what runs; the modules named here add their verbs to it, in the order in which ``--help`` lists them.
"""

# ruff: isort: off
from privsql.cli import app, commands

__all__ = ["app", "commands"]
