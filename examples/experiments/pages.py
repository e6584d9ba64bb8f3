"""A page for every paper: what it says, what we get, why where that differs, with pictures and figures."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from experiments import PAPERS, common

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from experiments.common import Experiment

FEW = 60  # rows of the longest table that a page shows
OF_A_PANEL = 3  # rows up to which a page shows all of a panel


def write(paper: str, results: Path, to: Path) -> None:
    """Write ``PAPER.md`` and its pictures; an experiment without results keeps the section that it has there."""
    to.mkdir(parents=True, exist_ok=True)
    found = [one for one in common.everything().values() if one.paper_name == paper]
    parts = [opening(paper)]
    for one in found:
        file = results / f"{one.name}.parquet"
        if not file.exists():
            parts.append(_old_section(to / f"{paper}.md", heading(one)))
            continue
        table = pq.read_table(file)
        shutil.copy(results / f"{one.name}.svg", to)
        rows, settings = table.to_pylist(), json.loads((table.schema.metadata or {}).get(b"settings", b"{}"))
        parts.append("\n\n".join([heading(one), *texts(one, rows, settings), *_table(one, rows)]))
    (to / f"{paper}.md").write_text("\n\n".join([*parts, *closing(paper)]) + "\n", encoding="utf-8")


def _old_section(page: Path, title: str) -> str:
    """A section of a page, without the next one."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if f"{title}\n" not in text:
        raise SystemExit(f"{page} has no section {title!r}: its experiment must have run")
    return text[text.index(f"{title}\n") :].split("\n\n## ")[0].strip()


def opening(paper: str) -> str:
    """The page's title and what its module says at first."""
    return f"# {PAPERS[paper]}\n\n{common.module(paper).OPENING}"


def heading(one: Experiment) -> str:
    """The title of an experiment's section."""
    return f"## {', '.join(one.places)}: {one.title}"


def closing(paper: str) -> list[str]:
    """What has no experiment, and why."""
    left = common.module(paper).NOT_HERE
    lines = "\n".join(f"- {place}: {why}" for place, why in left.items())
    return [f"## Without an experiment\n\n{lines}"] if left else []


def texts(one: Experiment, rows: list[dict[str, Any]], settings: Mapping[str, Any]) -> Iterator[str]:
    """The paragraphs of a section."""
    yield f"**The paper.** {one.says} **Here.** {one.differs}"
    yield f"![{one.places[0]}]({one.name}.svg)"
    generated = "In part on generated tables" if any(row["stand_in"] for row in rows) else ""
    limits = ", ".join(f"{settings[name]:,} {name}" for name in ("queries", "runs") if name in settings)
    limits = f"Measured with at most {limits} of these" if limits and one.counted else ""
    yield f"{'. '.join(filter(None, [f'`{one.name}`: {one.parameters}', limits, generated]))}."


def _table(one: Experiment, rows: list[dict[str, Any]]) -> list[str]:
    """The figures: a line for each panel and x, a column for each series; the paper's own in brackets."""
    series = list(dict.fromkeys(row["series"] for row in rows))
    lines: dict[tuple[str, float, str], dict[str, str]] = {}
    for row in rows:
        at = (row["panel"] or "", row["x"], row["label"] or shown(row["x"]))
        lines.setdefault(at, {})[row["series"]] = _cell(row, percent=one.axes.percent)
    if not one.table or len(lines) > FEW:
        return []
    panels = any(panel for panel, *_ in lines)
    head = [*([""] if panels else []), one.axes.x, *(series if len(series) > 1 else [one.axes.y])]
    made = [_line(head), _line(["---"] * (len(head) - len(series)) + ["---:"] * len(series))]
    for panel in dict.fromkeys(panel for panel, *_ in lines):
        of = sorted((at for at in lines if at[0] == panel), key=lambda at: at[1])
        for number, at in enumerate(_choose_rows(of)):
            cells = [lines[at].get(name, "") for name in series]
            made.append(_line([*([panel if number == 0 else ""] if panels else []), at[2], *cells]))
    return ["\n".join(made)]


def _choose_rows(rows: list[tuple[str, float, str]]) -> list[tuple[str, float, str]]:
    """Choose the rows of a panel that a page shows: the first and the last of many."""
    return rows if len(rows) <= OF_A_PANEL else [rows[0], rows[-1]]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _cell(row: Mapping[str, Any], *, percent: bool) -> str:
    own = row["note"] or "-" if row["y"] is None else shown(row["y"], percent=percent)
    if row["paper"] is None:
        return own
    return f"{'' if row['y'] is None else own} ({shown(row['paper'], percent=percent)})".strip()


def shown(figure: float, *, percent: bool = False) -> str:
    """A figure as a page shows it: three digits, or all of a whole number."""
    if percent:
        return f"{100 * figure:.3g} %"
    whole = float(figure).is_integer() or abs(figure) >= 1000
    return f"{figure:,.0f}" if whole else f"{figure:.3g}"
