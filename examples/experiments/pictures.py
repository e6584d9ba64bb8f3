"""Pictures of results in the papers' axes, with the papers' own values marked beside them; drawn by altair."""

from __future__ import annotations

from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from experiments.slim import slim

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from experiments.common import Experiment

COLOURS = ["#1f6f8b", "#d98c5f", "#6a9a3b", "#8a5aa8", "#b0413e", "#5f6b7a", "#c2a02b", "#3b7dd8"]
WIDTH, HEIGHT, RESOLUTION = 270, 200, 110
LETTERS = 12  # pixels; a page shows two panels beside each other without making them smaller
LONGEST = 45  # characters of a line of a title, above one panel
PADDING = {"left": 15, "right": 45, "top": 5, "bottom": 5}  # a reader's letters may be wider than ours
SCALES = {"linear": {"type": "linear"}, "log": {"type": "log"}, "log2": {"type": "log", "base": 2}}
STAND_IN = "generated data in place of the paper's"


def write(one: Experiment, rows: pa.Table, to: Path) -> None:
    """Write NAME.svg and NAME.png."""
    picture = drawn(one, rows.to_pylist())
    svg = StringIO()
    picture.save(svg, format="svg")
    (to / f"{one.name}.svg").write_text(slim(svg.getvalue(), f"{', '.join(one.places)}: {one.title}"), encoding="utf-8")
    picture.save(str(to / f"{one.name}.png"), ppi=RESOLUTION)


def drawn(one: Experiment, rows: list[dict[str, Any]]) -> Any:
    """A chart with a panel for each that the results have."""
    import altair as alt

    shown = [row for row in rows if row["y"] is not None or row["paper"] is not None]
    series = list(dict.fromkeys(row["series"] for row in rows))
    panels = list(dict.fromkeys(row["panel"] for row in shown))
    charts = [_panel(one, [row for row in shown if row["panel"] == panel], series, panel) for panel in panels]
    told = wrap(f"{', '.join(one.places)}: {one.title}", LONGEST * min(2, len(charts)))
    title = alt.Title(told, subtitle=subtitle(one, rows), anchor="start")
    both = alt.concat(*charts, columns=2, align="all").resolve_scale(color="shared")
    both = both.properties(title=title, padding=PADDING).configure_view(stroke=None)
    letters = {"labelFontSize": LETTERS, "titleFontSize": LETTERS}
    both = both.configure_axis(gridOpacity=0.4, **letters)
    both = both.configure_title(fontSize=LETTERS + 1, subtitleFontSize=LETTERS)
    legend = {"orient": "bottom", "direction": "vertical", "columns": 2, "columnPadding": 30, "labelLimit": 0}
    return both.configure_legend(**legend, **letters)


def subtitle(one: Experiment, rows: list[dict[str, Any]]) -> list[str]:
    """What it was measured on, and what the marks mean."""
    said = list(dict.fromkeys(row["data"] for row in rows if row["data"]))
    lines = [*said[:2], *([f"and {len(said) - 2} more"] if len(said) > 2 else [])]
    if any(row["stand_in"] for row in rows):
        lines.append(STAND_IN)
    if any(row["paper"] is not None for row in rows):
        lines.append("diamonds: the paper's own values")
    return lines + ([one.axes.bound] if one.axes.bound else [])


def _panel(one: Experiment, rows: list[dict[str, Any]], series: list[str], panel: str) -> Any:
    import altair as alt

    axes = one.axes
    colour = alt.Color("series:N", title=None, sort=series)
    colour = colour.scale(domain=series, range=[COLOURS[at % len(COLOURS)] for at in range(len(series))])
    if len(series) == 1:
        colour = colour.legend(None)
    base = alt.Chart(alt.InlineData(values=rows), width=WIDTH, height=HEIGHT)
    base = base.properties(title=alt.Title(panel, anchor="start", fontSize=LETTERS)) if panel else base
    x = _across(axes, rows)

    logarithmic = axes.y_scale == "log"
    whole = {} if logarithmic else {"zero": axes.mark == "bar" or axes.percent}

    def up(field: str) -> Any:
        shape = alt.Y(f"{field}:Q", title=axes.y).scale(**_scale(axes.y_scale), **whole)
        return shape.axis(format="%") if axes.percent else shape

    ours = base.transform_filter("isValid(datum.y)")
    offset = {"xOffset": alt.XOffset("series:N", sort=series)} if axes.mark == "bar" and len(series) > 1 else {}
    marks = {
        "line": lambda: ours.mark_line(point=True),
        "bar": ours.mark_bar,
        "points": lambda: ours.mark_circle(size=10, opacity=0.5),
    }
    if axes.dashed:
        broken = alt.condition(
            alt.FieldOneOfPredicate("series", list(axes.dashed)), alt.value([2, 6]), alt.value([1, 0])
        )
        offset = {**offset, "strokeDash": broken}
    foot = {"y2": alt.Y2Datum(1)} if axes.mark == "bar" and logarithmic else {}
    layers = [marks[axes.mark]().encode(x, up("y"), colour, **offset, **foot)]
    if any(row["low"] is not None for row in rows):
        bounds = base.transform_filter("isValid(datum.low)").mark_rule(opacity=0.6)
        layers.append(bounds.encode(x, up("low"), alt.Y2("high"), colour, **offset))
    if any(row["paper"] is not None for row in rows):
        ground = {"fill": "white", "opacity": 1} if axes.mark == "bar" else {}  # seen on a bar of its colour, too
        theirs = base.transform_filter("isValid(datum.paper)")
        theirs = theirs.mark_point(shape="diamond", size=90, strokeWidth=2, **ground)
        layers.append(theirs.encode(x, up("paper"), colour, **offset))
    if axes.mark == "points":
        layers.append(_diagonal(rows, x, up))
    return alt.layer(*layers)


def _across(axes: Any, rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    if axes.x_scale == "names":
        names = list(dict.fromkeys(row["label"] or f"{row['x']:g}" for row in sorted(rows, key=lambda row: row["x"])))
        for row in rows:
            row["label"] = row["label"] or f"{row['x']:g}"
        flat = sum(map(len, names)) * LETTERS * 0.6 < WIDTH
        return alt.X("label:N", sort=names, title=axes.x).axis(labelAngle=0 if flat else -30)
    values = sorted({row["x"] for row in rows})
    found = alt.X("x:Q", title=axes.x).scale(**_scale(axes.x_scale), nice=False, zero=False, padding=8)
    few = {"values": values, "format": ",~r", "labelSeparation": 4, "labelOverlap": "greedy"}
    return found.axis(**few) if len(values) <= 9 else found


def _diagonal(rows: list[dict[str, Any]], x: Any, up: Any) -> Any:
    """Where estimates would be right."""
    import altair as alt

    found = [row["x"] for row in rows if row["y"] is not None]
    ends = [{"x": end, "y": end} for end in (min(found, default=0), max(found, default=1))]
    return alt.Chart(alt.InlineData(values=ends)).mark_line(color="black", strokeWidth=0.8).encode(x, up("y"))


def _scale(name: str) -> dict[str, Any]:
    return SCALES.get(name, {"type": name})
