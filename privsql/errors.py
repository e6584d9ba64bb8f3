"""The few ways in which privsql can fail, each with the exit code of the command line.

A message is one line that names the column, value or bound concerned and what would work instead.
"""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False  # not imported from typing, which takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


HIDDEN = "a value can't be read or converted; it is not shown, since it may be a record's; TRY_CAST(..) makes it NULL"


class PrivsqlError(Exception):
    """The base class of all errors that privsql raises on purpose."""

    exit_code = 4

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@contextmanager
def hide_values(hidden: bool) -> Iterator[None]:
    """Replace the message of an error of the database engine by a fixed text, because it may quote a value.

    An error counts as the engine's if privsql raised it from another error. Nothing is replaced if ``hidden`` is false.
    """
    try:
        yield
    except PrivsqlError as error:
        raise type(error)(HIDDEN) if hidden and error.__cause__ is not None else error from error.__cause__


COMPARED = 2_000  # most texts that are compared letter by letter


def closest(value: str, listed: Sequence[str]) -> str | None:
    """Return the listed text that is spelled most like a value; None if no text is similar.

    >>> closest("sales", ["Craft-repair", "Sales"]), closest("Craft repair", ["Craft-repair"]), closest("x", ["Sales"])
    ('Sales', 'Craft-repair', None)
    """
    import difflib

    folded = {one.strip().casefold(): one for one in reversed(listed)}
    alike = [value.strip().casefold()]
    if alike[0] not in folded and len(folded) <= COMPARED:
        alike = difflib.get_close_matches(alike[0], folded, n=1)
    return folded.get(alike[0]) if alike else None


def name_choices(choices: Iterable[str]) -> str:
    """Join names for a sentence, with "or" before the last one.

    >>> name_choices(["up", "pp", "tables"])
    'up, pp or tables'
    """
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def suggest_name(wrong: str, known: Iterable[str]) -> str:
    """Return the question "did you mean ..?" with the most similar known name; empty if no name is similar.

    >>> suggest_name("desease", ["age", "disease"])
    ", did you mean 'disease'?"
    """
    near = closest(wrong, [*known])
    return f", did you mean {near!r}?" if near else ""


def suggest_file(path: Path) -> str:
    """Return the advice to append to an error about a path that leads to no file.

    It names a file of the same folder with a similar name, says that the folder is missing, or asks to check the path.
    """
    try:
        names = {one.stem: one.name for one in path.parent.iterdir()}
    except OSError:
        return f"; there is no folder {path.parent}"
    near = closest(path.stem, [*names])
    return f", did you mean {names[near]!r}?" if near else "; check the path"


class GuaranteeError(PrivsqlError):
    """The error for a check that fails, or a guarantee that does not hold."""

    exit_code = 1


class UsageError(PrivsqlError):
    """The error for a request that can't be carried out: wrong usage, a wrong specification, an unsupported query."""

    exit_code = 2


class InfeasibleError(PrivsqlError):
    """The error for a request that no result can meet, such as a bound that the records do not allow.

    ``details`` holds the reason for ``--json``, such as the values that can't be distributed (a violated Hall set).
    """

    exit_code = 3

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.details = details or {}


class EngineError(PrivsqlError):
    """The error for trouble with the database engine, a file, or a missing package."""

    exit_code = 4


class LateError(EngineError):
    """The error of an engine that did not finish within its time limit, or was told to stop."""
