"""What notebooks show: tables of HTML, small and escaped. Every text goes through ``html_cell``, and nothing else does.

No script, no colour of its own: what is drawn takes the colour of the text around it, so that it can be read on a
light ground and on a dark one.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROWS, COLUMNS, WIDTH = 30, 20, 60  # that are shown, and characters of a cell
WIDE = 160  # characters of a cell beside a name
SPACE = "\N{NO-BREAK SPACE}"
SIZE = 30_000  # characters of a table from which on rows are left out
STYLE = (
    "<style>.privsql table{border-collapse:collapse}.privsql th,.privsql td{text-align:left;padding:2px 8px;"
    "vertical-align:top}.privsql td.n{text-align:right;font-variant-numeric:tabular-nums}.privsql .bar{position:"
    "relative;width:120px;height:1em}.privsql .bar i{position:absolute;top:.4em;height:.2em;background:currentColor;"
    "opacity:.45}.privsql .bar b{position:absolute;top:.1em;width:2px;height:.8em;background:currentColor}"
    ".privsql p{margin:4px 8px;opacity:.8}</style>"
)


class Html(str):
    """HTML that was made here."""

    __slots__ = ()

    def __html__(self) -> str:
        """What a template takes as it is."""
        return str(self)


def html_cell(value: object, width: int = WIDTH) -> Html:
    """A value as HTML: escaped, and cut where it is long."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("-")
    if isinstance(value, float):
        text = f"{value:,.1f}" if math.isfinite(value) else str(value)
    else:
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return clean_text(text, width)


def clean_text(text: str, width: int) -> Html:
    """A text, escaped: cut where it is long, and with a mark for each character that can't be printed."""
    return Html(escape(printable_text(text, width)))


def printable_text(text: str, width: int) -> str:
    """The same, not escaped: for what escapes it itself."""
    short = text if len(text) <= width else text[: width - 1] + "\u2026"
    return "".join(one if one.isprintable() or one == SPACE else "\ufffd" for one in short)


def distinct_labels(texts: Sequence[str], width: int) -> list[str]:
    """Several texts, cut as ``printable_text`` does, and no two alike: labels of a picture, where what is alike is one.

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


def html_table(head: Sequence[object], rows: Iterable[Sequence[object]], number: int | None = None) -> Html:
    """A table; ``number``: of rows that there are. What is left out is said."""
    columns = len(head)
    parts = ["<tr>", *(f"<th>{html_cell(one)}</th>" for one in head[:COLUMNS]), "</tr>"] if any(head) else []
    size = shown_rows = 0
    left = False
    for row in rows:
        if shown_rows == ROWS or size > SIZE:
            left = True
            break
        line = "<tr>" + "".join(_table_cell(one) for one in row[:COLUMNS]) + "</tr>"
        parts.append(line)
        size, shown_rows = size + len(line), shown_rows + 1
    notes = [f"{number - shown_rows:,} more rows" if number is not None else "more rows"] if left else []
    notes += [f"{columns - COLUMNS:,} more columns"] if columns > COLUMNS else []
    note = f"<p>\u2026 and {' and '.join(notes)}</p>" if notes else ""
    return Html(f"<table>{''.join(parts)}</table>{note}")


def is_number(value: object) -> bool:
    """Whether a value is shown as a number; what is true or false is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table_cell(value: object) -> str:
    return f"<td{' class=n' * is_number(value)}>{html_cell(value)}</td>"


def html_pairs(rows: Sequence[tuple[str, object]]) -> Html:
    """Names and what they stand for."""
    return html_table(
        (), [(Html(f"<b>{html_cell(name)}</b>"), html_cell(value, WIDE)) for name, value in rows], len(rows)
    )


def html_line(text: object) -> Html:
    """A line of text, which may be long."""
    parts = [html_cell(str(text)[at : at + WIDTH]) for at in range(0, min(len(str(text)), 10 * WIDTH), WIDTH)]
    return Html(f"<p>{''.join(parts)}</p>")


def html_bar(figure: tuple[object, object, object], ends: tuple[float, float]) -> Html:
    """An interval (low, estimate, high) on a line from one end to the other: a stroke, and a mark for the estimate."""
    low, estimate, high = (percent_along(one, ends) for one in figure)
    drawn = ""
    if low is not None and high is not None:
        drawn += f'<i style="left:{low:.1f}%;width:{max(high - low, 0.5):.1f}%"></i>'
    if estimate is not None:
        drawn += f'<b style="left:{estimate:.1f}%"></b>'
    return Html(f'<div class="bar">{drawn}</div>')


def percent_along(value: object, ends: tuple[float, float]) -> float | None:
    """Where a figure lies, in percent; None where there is none."""
    try:
        figure = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(figure) or not ends[1] > ends[0]:
        return None
    return min(100.0, max(0.0, 100 * (figure - ends[0]) / (ends[1] - ends[0])))


def range_of_figures(figures: Iterable[object]) -> tuple[float, float]:
    """From 0, or the least figure if that is below, to the largest."""
    known = [0.0]
    for value in figures:
        try:
            figure = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(figure):
            known.append(figure)
    return min(known), max(known)


def html_page(title: object, *parts: Html) -> str:
    """What a notebook shows of one thing."""
    return f'<div class="privsql">{STYLE}<p><b>{html_cell(title, WIDE)}</b></p>{"".join(parts)}</div>'
