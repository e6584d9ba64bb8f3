"""Describe the result of a command once, as lines, tables and a JSON object.

Terminals, notebooks and pages render the same description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

from privsql import markup
from privsql.exact import fraction_text


@dataclass(frozen=True)
class Cell:
    """A highlighted cell of a table.

    Attributes:
        text: The text of the cell.
        standing: Why it is highlighted, such as "promised", "left out" or "best"; pages choose its colour by that.
    """

    text: str
    standing: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """A table for people.

    Attributes:
        columns: The names of the columns. Without names, each row is a pair of a name and its value.
        rows: The cells: texts, numbers, or None for an empty cell.
        numeric: The positions of the columns of numbers, which are aligned to the right.
        title: What the table is about, if the text around it does not say so.
        most: How many rows are shown at most; None means the default of the place that shows it.
        wide: Whether the table may need more than 80 characters.
        ruled: Whether lines separate the rows.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    numeric: Collection[int] = ()
    title: str = ""
    most: int | None = None
    wide: bool = False
    ruled: bool = False

    def as_html(self) -> markup.Html:
        """Return the table as HTML for a notebook."""
        most = markup.ROWS if self.most is None else self.most
        width = markup.WIDTH if self.columns else markup.WIDE
        rows = [[_as_lines(one, width) for one in row] for row in self.rows[:most]]
        numeric, number = self.numeric or None, len(self.rows)
        return markup.html_table(self.columns, rows, numeric, number=number, most=most, width=width)


def _as_lines(value: object, width: int) -> object:
    """Return a text of several lines as HTML, each escaped and cut to ``width`` characters; any other cell as it is."""
    if not isinstance(value, str) or "\n" not in value or isinstance(value, markup.Html):
        return value
    return markup.Html("<br>".join(markup.clean_text(line, width) for line in value.splitlines()))


Part = str | Table  # what an outcome shows: lines and tables


def pairs(rows: Iterable[tuple[str, object]]) -> Table:
    """Return a table without a head, whose rows are pairs of a name and its value."""
    return Table((), list(rows))


def notebook_page(title: object, parts: Iterable[Part]) -> str:
    """Return the HTML that a notebook shows: a title above lines and tables."""
    rendered: list[str] = []
    for part in parts:
        rendered += [part.as_html()] if isinstance(part, Table) else part.splitlines()
    return markup.html_page(title, *rendered)


class JsonObject:
    """The base class of dataclasses that ``--json`` prints as objects.

    ``json_keys`` lists the fields that are printed; ``*`` stands for all.
    """

    json_keys: ClassVar[tuple[str, ...]] = ("*",)
    """The keys of the object, in order; "*" stands for all fields.

    "key=path" takes the value from a path of attributes. "key?" is left out if its value is empty. "key*" puts the
    entries of its value into the object itself.
    """

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints, with the keys that ``json_keys`` lists."""
        found: dict[str, Any] = {}
        for key in self.json_keys:
            name, _, path = key.rstrip("?*").partition("=")
            value = _as_plain(attrgetter(path or name)(self) if name else vars(self))
            if key.endswith("*"):
                found |= value or {}
            elif not key.endswith("?") or (value is not None and value not in ("", [], {})):
                found[name] = value
        return found


def _as_plain(value: Any) -> Any:
    """Return a value made of dictionaries, lists, texts and numbers, which JSON can hold."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _as_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(one) for one in value]
    if isinstance(value, Fraction):
        return fraction_text(value)
    return str(value) if isinstance(value, Path) else value


class Outcome(JsonObject, ABC):
    """The result of a command, which the command line, ``--json`` and notebooks can show."""

    warnings: Sequence[str] = ()  # warnings for the reader, which the command line writes to stderr

    @property
    def title(self) -> str:
        """Return the title that a notebook shows above the result."""
        return ""

    @property
    def ok(self) -> bool:
        """Return whether every check passed; True where nothing was checked."""
        return True

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command that shows the result: 0 if everything is fine, else 1."""
        return 0 if self.ok else 1

    @abstractmethod
    def show(self, *, verbose: bool = False) -> Iterable[Part]:
        """Return lines and tables for people, with further details if ``verbose``."""

    def _repr_html_(self) -> str:
        return notebook_page(self.title, [*self.show(verbose=True), *(f"warning: {one}" for one in self.warnings)])
