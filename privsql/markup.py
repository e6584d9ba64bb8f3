"""Render tables, interval bars and pages as HTML for notebooks, reports and the pages of ``serve``.

Every text passes through ``clean_text`` once, which escapes it, cuts it, and marks characters that can't be printed.
The HTML has no script and no colours of its own: a notebook's cell takes the colour of the text around it, and a page
has a stylesheet.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from privsql.figures import SPACE, format_figure, is_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

ROWS, COLUMNS, WIDTH = 30, 20, 60  # the most rows and columns of a table, and characters of a cell
WIDE = 160  # most characters of a title, or of a cell beside a name
LINE = 600  # most characters of a line
ROW_SIZE = 1_000  # if rows have more characters of HTML on average, some are left out
NULL = "<i>NULL</i>"  # no text of a cell gives this HTML
STYLE = (
    "<style>.privsql table{border-collapse:collapse}.privsql th,.privsql td{text-align:left;padding:2px 8px;"
    "vertical-align:top}.privsql tbody th{font-weight:normal}.privsql .n{text-align:right;font-variant-numeric:"
    "tabular-nums}.privsql .bar{width:120px;height:1em}.privsql .reach{opacity:.45}.privsql p{margin:4px 8px;"
    "opacity:.8}</style>"
)


class Html(str):
    """Finished HTML, which no template escapes again."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def html_cell(value: object, width: int = WIDTH) -> Html:
    """Return a value as HTML, cut to ``width`` characters; None becomes a dash."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("-")
    return clean_text(format_figure(value) if is_number(value) else str(value), width)


def clean_text(text: str, width: int) -> Html:
    """Return a text as HTML: escaped, cut to ``width`` characters, with a mark for each unprintable character."""
    return Html(escape(printable_text(text, width)))


def printable_text(text: str, width: int) -> str:
    """Return a text cut to ``width`` characters, with a mark for each unprintable character; it is not escaped."""
    short = text if len(text) <= width else text[: width - 1] + "\u2026"
    return "".join(one if one.isprintable() or one == SPACE else "\ufffd" for one in short)


def distinct_labels(texts: Sequence[str], width: int) -> list[str]:
    """Cut texts to ``width`` characters but keep them different, because a chart merges equal labels.

    Unprintable characters are replaced by a mark.

    >>> distinct_labels(["heart, left", "heart, right", "lung"], 8)
    ['heart, \u2026', 'hea\u2026 (2)', 'lung']
    """
    labels: list[str] = []
    taken: set[str] = set()
    for text in texts:
        label, number = printable_text(text, width), 1
        while label in taken:
            number += 1
            end = f" ({number})"
            label = printable_text(text, max(2, width - len(end))) + end
        taken.add(label)
        labels.append(label)
    return labels


def html_table(
    head: Sequence[object],
    rows: Sequence[Sequence[object]],
    numeric: Collection[int] | None = None,
    *,
    number: int | None = None,
    most: int = ROWS,
    width: int = WIDTH,
    labelled: bool = False,
) -> Html:
    """Return a table with at most ``most`` rows and a line that counts the rest; an empty text if there are no rows.

    Args:
        head: The names of the columns.
        rows: The rows.
        numeric: The positions of the columns of numbers. None finds the columns that hold nothing but numbers.
        number: How many rows there are in all; None means as many as are given.
        most: How many rows are shown at most.
        width: The largest number of characters in a cell.
        labelled: Whether every cell names its column, for narrow pages that show cells below each other.
    """
    shown = rows[:most]
    if numeric is None:
        columns = [[row[at] for row in shown if row[at] is not None] for at in range(len(shown[0]) if shown else 0)]
        numeric = [at for at, values in enumerate(columns) if values and all(map(is_number, values))]
    marks = [" class=n" * (at in numeric) for at in range(COLUMNS)]
    names = [*head, *[""] * (COLUMNS - len(head))] if labelled else [""] * COLUMNS
    labels = [f' data-label="{clean_text(str(name), WIDTH)}"' if name else "" for name in names]
    lines: list[str] = []
    while len(lines) < len(shown) and sum(map(len, lines)) <= most * ROW_SIZE:
        cells = [html_cell(one, width) for one in shown[len(lines)][:COLUMNS]]
        first = f"<td{marks[0]}>{cells[0]}</td>" if marks[0] else f'<th scope="row">{cells[0]}</th>'
        inside = zip(marks[1:], cells[1:], labels[1:], strict=False)
        others = (f"<td{mark}{label}>{cell}</td>" for mark, cell, label in inside)
        lines.append(f"<tr>{first}{''.join(others)}</tr>")
    named = (f'<th scope="col"{mark}>{html_cell(one)}</th>' for mark, one in zip(marks, head, strict=False))
    top = f"<thead><tr>{''.join(named)}</tr></thead>" if any(head) else ""
    left = ((len(rows) if number is None else number) - len(lines), "rows"), (len(head) - COLUMNS, "columns")
    notes = " and ".join(f"{count:,} more {what}" for count, what in left if count > 0)
    note = f"<p>\u2026 and {notes}</p>" if notes else ""
    return Html(f"<table>{top}<tbody>{''.join(lines)}</tbody></table>{note}" if lines else "")


def html_bar(figure: tuple[object, object, object], ends: tuple[float, float], texts: Sequence[object] = ()) -> Html:
    """Return a bar that shows an interval as a stroke and its estimate as a mark.

    Args:
        figure: The interval: low, estimate, high.
        ends: The numbers at the left and the right end of the bar.
        texts: Low, estimate and high as a screen reader says them.
    """
    low, estimate, high = (percent_along(one, ends) for one in figure)
    texts = texts or figure
    drawn, interval = "", ", without an interval"
    if low is not None and high is not None:
        drawn += f'<rect class="reach" x="{low:.2f}" y="4" width="{max(high - low, 0.5):.2f}" height="2"/>'
        interval = f", from {html_cell(texts[0])} to {html_cell(texts[2])}"
    if estimate is not None:
        drawn += f'<rect class="mark" x="{min(max(estimate - 0.75, 0), 98.5):.2f}" y="1" width="1.5" height="8"/>'
    attributes = 'class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" fill="currentColor"'
    return Html(f'<svg {attributes} aria-label="{html_cell(texts[1])}{interval}">{drawn}</svg>')


def percent_along(value: object, ends: tuple[float, float]) -> float | None:
    """Return the position of a number between two ends, in percent; None if the value is no number."""
    figure = _as_finite(value)
    if figure is None or not ends[1] > ends[0]:
        return None
    return min(100.0, max(0.0, 100 * (figure - ends[0]) / (ends[1] - ends[0])))


def range_of_figures(figures: Iterable[object]) -> tuple[float, float]:
    """Return two ends for bars that show these figures: the smaller of 0 and the least figure, and the largest one."""
    known = [0.0, *(figure for value in figures if (figure := _as_finite(value)) is not None)]
    return min(known), max(known)


def _as_finite(value: object) -> float | None:
    try:
        figure = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return figure if math.isfinite(figure) else None


def html_page(title: object, *parts: str) -> str:
    """Return the HTML of a notebook's cell: a title above tables and lines.

    Args:
        title: The title.
        parts: The HTML of each table or line.
    """
    blocks = (part if isinstance(part, Html) else f"<p>{clean_text(part, LINE)}</p>" for part in parts)
    return f'<div class="privsql">{STYLE}<p><b>{html_cell(title, WIDE)}</b></p>{"".join(blocks)}</div>'
