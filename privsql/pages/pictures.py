"""The pictures of a report, as charts of altair: narrow, so that they can be read on a telephone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql.markup import distinct
from privsql.plot import BLACK, BLUE, GREY, INKS, ORANGE, PROMISES, chart, palette

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.finding import Finding
    from privsql.model.told import Structure
    from privsql.pages.facts import Compared

WIDTH, ROW = 270, 22  # pixels of a plot, and of a row of bars
LABEL = 24  # characters of a label
FEW = 14  # values that have a bar each
OURS, THEIRS = "privsql's estimate", "literature's formula"
ESTIMATORS = {OURS: BLUE, THEIRS: ORANGE}


def bounds(rows: Sequence[tuple[str, float, float, float | None]]) -> Any:
    """What may be believed and what can be: (value, bound, highest, share) each; by share where values are many."""
    import altair as alt  # noqa: PLC0415 (takes long to import, and is seldom needed)

    labels = distinct([value for value, *_ in rows], LABEL)
    given = [
        {"value": label, "bound": bound, "highest": highest, "share": share}
        for label, (_, bound, highest, share) in zip(labels, rows, strict=True)
    ]
    if len(given) > FEW and all(one["share"] for one in given):
        base = chart(given).properties(width=WIDTH, height=200)
        x = alt.X("share:Q", title="share of the records that have the value").axis(format=".1~%", tickCount=5)
        y = {"title": "probability", "axis": alt.Axis(format=".3~%", tickCount=5)}
        ticks = base.mark_tick(color=ORANGE, thickness=2, size=14, orient="horizontal")
        dots = base.mark_circle(color=BLUE, opacity=1, size=30)
        return ticks.encode(x, alt.Y("bound:Q", **y).scale(zero=True)) + dots.encode(x, alt.Y("highest:Q", **y))
    names = [one["value"] for one in given]
    base = chart(given).properties(width=WIDTH, height={"step": ROW})
    y = alt.Y("value:N", sort=names, title=None).axis(labelLimit=0)
    axis = {"title": "probability", "axis": alt.Axis(format=".3~%", tickCount=5)}
    bars = base.mark_bar(color=BLUE).encode(alt.X("highest:Q", **axis).scale(zero=True), y)
    return bars + base.mark_tick(color=ORANGE, thickness=3).encode(alt.X("bound:Q", **axis), y)


def structure(part: Structure) -> Any:
    """The drawn column of a part as bars."""
    import altair as alt  # noqa: PLC0415

    at = part.drawn or 0
    labels = distinct([str(row[0]) for row in part.rows], LABEL)
    given = [{"name": name, "number": float(row[at])} for name, row in zip(labels, part.rows, strict=True)]
    base = chart(given).properties(width=WIDTH, height={"step": ROW})
    y = alt.Y("name:N", sort=None, title=part.head[0]).axis(labelLimit=0)
    number = alt.X("number:Q", title=part.head[at]).axis(format="~s", tickCount=5, tickMinStep=1)
    return base.mark_bar(color=BLUE).encode(number, y)


def adversaries(findings: Sequence[Finding]) -> Any:
    """How sure each adversary is of its best guess; the highest, and how many are right, if that is known."""
    import altair as alt  # noqa: PLC0415

    given = [
        {
            "adversary": label,
            "promise": "promised to resist" if one.promised else "not promised",
            "mean": one.mean,
            "highest": one.highest or 0,
            "right": one.right,
        }
        for label, one in zip(distinct([one.adversary for one in findings], 30), findings, strict=True)
    ]
    base = chart(given).properties(width=220, height={"step": ROW})
    y = alt.Y("adversary:N", sort=[one["adversary"] for one in given], title=None).axis(labelLimit=0)
    axis = {"title": "probability of the best guess", "axis": alt.Axis(format="%", tickCount=5)}
    whole = alt.Scale(domain=[0, 1])
    colour = alt.Color("promise:N", title=None).scale(**palette(PROMISES)).legend(orient="top", labelLimit=0)
    made = base.mark_bar().encode(alt.X("mean:Q", scale=whole, **axis), y, colour)
    made += base.mark_tick(color=BLACK, thickness=2).encode(alt.X("highest:Q", **axis), y)
    if any(one["right"] is not None for one in given):
        points = base.mark_point(color=BLACK, fill=INKS["ground"], opacity=1, size=40)
        made += points.encode(alt.X("right:Q", **axis), y).transform_filter("isValid(datum.right)")
    guessing = next((one.baseline for one in findings if one.baseline), None)
    if guessing is not None:
        rule = chart([{"guessing": guessing}]).mark_rule(color=BLACK, strokeDash=[3, 3])
        made += rule.encode(alt.X("guessing:Q", **axis))
    return made


def errors(rows: Sequence[tuple[str, str, float]], title: str) -> Any:
    """Error by size of the answer: (size, estimator, relative error) each."""
    import altair as alt  # noqa: PLC0415

    given = [{"size": size, "estimator": name, "error": error} for size, name, error in rows if error > 0]
    base = chart(given).properties(width=WIDTH + 60, height=200)
    order = list(dict.fromkeys(size for size, _, _ in rows))
    x = alt.X("size:N", sort=order, title="size of the answer, records").axis(labelAngle=0, labelLimit=0)
    y = alt.Y("error:Q", title=title).scale(type="log", nice=True).axis(format=".3~%", tickCount=5)
    names = {name: ESTIMATORS[name] for name in ESTIMATORS if any(one["estimator"] == name for one in given)}
    colour = alt.Color("estimator:N", title=None).scale(**palette(names)).legend(orient="top", labelLimit=0)
    return base.mark_line(point=alt.OverlayMarkDef(size=50, opacity=1), strokeWidth=2).encode(x, y, colour)


def intervals(compared: Compared) -> Any:
    """True answers, estimates with their intervals, and the line on which they would be equal."""
    import altair as alt  # noqa: PLC0415

    given = [
        {"true": true, "estimate": max(0.0, estimate), "low": low, "high": high}
        for true, estimate, low, high in compared.pairs
    ]
    wide = {"type": "symlog", "constant": 10}
    base = chart(given).properties(width=WIDTH + 40, height=260)
    ends = [end for one in compared.pairs for end in one if end is not None]
    most = max(ends, default=1.0) or 1.0
    ticks = [0, *(10**k for k in range(1, len(f"{int(most)}")))] if most >= 10 else [0, most]
    scale = alt.Scale(**wide, domain=[0, most])
    x = alt.X("true:Q", title="true answer", scale=scale).axis(values=ticks, format=",.0f")
    side = {"title": "estimate, with its interval", "scale": scale, "axis": alt.Axis(values=ticks, format=",.0f")}
    line = chart([{"true": end, "estimate": end} for end in (0.0, most)])
    line = line.mark_line(color=GREY, strokeDash=[4, 3]).encode(x, alt.Y("estimate:Q", **side))
    known = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    rules = known.mark_rule(color=BLUE, clip=True).encode(x, alt.Y("low:Q", **side), alt.Y2("high:Q"))
    return line + rules + base.mark_circle(color=BLUE, opacity=1, size=24).encode(x, alt.Y("estimate:Q", **side))
