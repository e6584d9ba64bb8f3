"""Print the outcomes of commands for people: lines unchanged, tables with rich. Nothing is computed here."""

from __future__ import annotations

import csv
import os
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from privsql.figures import format_figure
from privsql.outcomes import Cell, Table
from privsql.system import open_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import Console, JustifyMethod
    from rich.table import Table as RichTable
    from rich.text import Text

    from privsql.answers.answer import Answer
    from privsql.outcomes import Part

STYLES = {
    "promised": "green",
    "beyond the promise": "yellow",
    "left out": "bold red",
    "useless": "bold red",
    "best": "bold",
}  # by importance
WIDE = 140  # columns of a wide table with long cells that is written to a file
UNBOUNDED = 100_000
LONGEST, SHORTEST = 44, 12  # characters of a heading in a wide table
CONTROLS = {*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\t"), ord("\n")}
ESCAPED = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in CONTROLS}


def escape_controls(text: object) -> str:
    """Return a text with its control characters escaped, so that a stranger's release can't steer the terminal."""
    return str(text).translate(ESCAPED)


@cache
def get_console() -> Console:
    """Return rich's console for results. Rich is imported only when there is something to print."""
    return _make_console()


def _make_console(**settings: Any) -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        """A console that lets the caller see that the reader has closed the pipe."""

        def on_broken_pipe(self) -> None:
            """Raise ``BrokenPipeError`` for the caller. Rich would end the process here, as if a check had failed."""
            raise BrokenPipeError

    return PipeConsole(markup=False, emoji=False, **settings)


def print_parts(parts: Iterable[Part]) -> None:
    """Print the lines and tables of an outcome."""
    for part in parts:
        if isinstance(part, Table):
            print_table(part)
        else:
            print_line(part)


def print_line(text: str) -> None:
    """Print a line unchanged, without colours or line breaks."""
    get_console().print(escape_controls(text), highlight=False, soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table. A terminal that is too narrow for it gets shorter headings."""
    from rich.measure import Measurement

    console = get_console()
    natural = Measurement.get(console, console.options.update(max_width=UNBOUNDED), _draw(table, LONGEST)).maximum
    if table.wide and not console.is_terminal:
        width = WIDE if table.ruled else max(natural, console.width)
        console = _make_console(file=console.file, width=width)
    longest = LONGEST
    while longest > SHORTEST and table.wide and not table.ruled and natural > console.width:
        longest -= 4
        drawn = _draw(table, longest)
        natural = Measurement.get(console, console.options.update(max_width=UNBOUNDED), drawn).maximum
    console.print(_draw(table, longest))
    if table.most is not None and len(table.rows) > table.most:
        print_line(f"and {len(table.rows) - table.most:,} more (--json lists all)")


def _draw(table: Table, longest: int) -> RichTable:
    """Return a table for rich's console, with headings of at most ``longest`` characters."""
    from rich import box
    from rich.table import Table as RichTable

    drawn = RichTable(box=box.SIMPLE_HEAD if table.columns else None, show_lines=table.ruled)
    if table.columns:
        for at, name in enumerate(table.columns):
            heading = shorten_heading(escape_controls(name), longest) if table.wide and not table.ruled else name
            justify: JustifyMethod = "right" if at in table.numeric else "left"
            drawn.add_column(escape_controls(heading), justify=justify, overflow="fold")
    else:
        drawn.show_header = False
        drawn.add_column(style="bold")
        drawn.add_column(overflow="fold")
    for row in table.rows[: table.most]:
        drawn.add_row(*map(_format_cell, row))
    return drawn


def shorten_heading(name: str, most: int) -> str:
    """Return a heading of at most ``most`` characters: its beginning and its end, which tells it from others.

    >>> shorten_heading("estimate_of_patients_with_flu", 16), shorten_heading("sex", 16)
    ('estim.._with_flu', 'sex')
    """
    if len(name) <= most:
        return name
    kept = most - 2
    return f"{name[: kept * 2 // 5]}..{name[-(kept - kept * 2 // 5) :]}"


def _format_cell(value: object) -> str | Text:
    if isinstance(value, Cell):
        from rich.text import Text

        return Text(escape_controls(value), STYLES.get(value.standing, ""))
    if value is None:
        return "-"
    return format_figure(value) if isinstance(value, float) else escape_controls(value)


def write_changes(path: Path, changes: Sequence[tuple[str, str]]) -> None:
    """Write ids of changed records as CSV to a new file that only its owner can read.

    Args:
        path: The file.
        changes: Pairs (id, "deleted" or "changed").

    Raises:
        OSError: The file exists or can't be written.
    """
    descriptor = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "fate"), *changes])


def write_csv(file: IO[str], answer: Answer) -> None:
    """Write the rows of an answer as CSV."""
    writer = csv.writer(file)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)
