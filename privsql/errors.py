"""The few ways in which privsql can fail, each with the exit code of the command line.

A message is one line that names the column, value or bound concerned and what would work instead.
"""

from __future__ import annotations


class PrivsqlError(Exception):
    """Base of all errors that privsql raises on purpose."""

    exit_code = 4

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class GuaranteeError(PrivsqlError):
    """A check or a guarantee fails."""

    exit_code = 1


class UsageError(PrivsqlError):
    """The request is not understood: bad usage, bad specification, unsupported query."""

    exit_code = 2


class InfeasibleError(PrivsqlError):
    """No result exists that meets the request.

    ``details`` holds the certificate (for example the violated Hall set) for ``--json``.
    """

    exit_code = 3

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.details = details or {}


class EngineError(PrivsqlError):
    """The database engine or a file gives trouble."""

    exit_code = 4


class LateError(EngineError):
    """The engine has not ended within the time that it was given."""
