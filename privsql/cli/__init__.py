"""The command line: it calls the public function of a command, prints the outcome, and sets the exit code.

No logic lives here. ``app`` is the Typer app that runs. Importing module ``commands`` adds the commands to it.
"""

# ruff: isort: off
from privsql.cli import app, commands

__all__ = ["app", "commands"]
