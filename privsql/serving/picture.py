"""An answer as a picture: estimates with their intervals, by one or two groups. The extra ``privsql[plot]``."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from privsql.pages.rendering import style

if TYPE_CHECKING:
    from privsql.answers.answer import Answer

FEW, MANY = 40, 400  # rows: of groups that have names, and of numbers or dates along an axis
COLOURS = 6  # groups that colours tell apart
WIDTH, HEIGHT, ROW = 520, 260, 22  # pixels
LONGEST = 40  # characters of a name
INK, QUIET, LINE, FIRST = (f"var(--{name})" for name in ("text", "quiet", "line", "first"))
SEVERAL = ["var(--first)", "var(--second)", "var(--third)", "var(--good)", "var(--bad)", "var(--quiet)"]
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif'


def drawable(answer: Answer) -> bool:
    """Whether a picture can be drawn of an answer, and is installed."""
    groups = _groups(answer)
    if any(find_spec(name) is None for name in ("altair", "vl_convert")) or len(groups) not in (1, 2):
        return False
    if not 2 <= len(answer.rows) <= (MANY if _along(answer, groups) else FEW):
        return False
    return len(groups) == 1 or len({row[groups[1]] for row in answer.rows}) <= COLOURS


def drawn(answer: Answer) -> str:
    """The picture as SVG that follows the scheme of whoever looks at it."""
    import vl_convert  # noqa: PLC0415 (takes long to import, and is seldom needed)

    svg = str(vl_convert.vegalite_to_svg(_chart(answer)))
    return svg.replace(">", f"><style>{colours()}</style>", 1)


def colours() -> str:
    """The colours of the stylesheet, light and dark."""
    return style().split("* {", 1)[0].strip()


def policy() -> str:
    """The content security policy of a picture."""
    digest = base64.b64encode(hashlib.sha256(colours().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"


def _groups(answer: Answer) -> list[int]:
    """The places of the columns that are no figures."""
    inside = {one.at + k for one in answer.figures for k in range(4)}
    return [at for at in range(len(answer.columns)) if at not in inside]


def _along(answer: Answer, groups: list[int]) -> bool:
    """Whether the first group is of numbers or dates, enough of them for an axis."""
    found = [row[groups[0]] for row in answer.rows if row[groups[0]] is not None]
    return len(set(found)) > 12 and all(
        isinstance(one, int | float | dt.date) and not isinstance(one, bool) for one in found
    )


def _chart(answer: Answer) -> dict[str, Any]:
    """The picture as Vega-Lite."""
    import altair as alt  # noqa: PLC0415

    groups, figure = _groups(answer), answer.figures[0]
    along = _along(answer, groups)
    base = alt.Chart(alt.InlineData(values=[_row(answer, row, groups, along=along) for row in answer.rows]))
    title = answer.columns[figure.at]
    colour = (
        alt.Color("other:N", title=_short(answer.columns[groups[1]])).scale(range=SEVERAL)
        if len(groups) == 2
        else alt.value(FIRST)
    )
    if along:
        moments = any(isinstance(row[groups[0]], dt.date) for row in answer.rows)
        place = alt.X("group:T" if moments else "group:Q", title=_short(answer.columns[groups[0]])).scale(
            zero=False, nice=False, padding=6
        )
        made = base.mark_rule(opacity=0.5).encode(place, alt.Y("low:Q", title=title), alt.Y2("high:Q"), color=colour)
        made += base.mark_point(filled=True, size=22).encode(place, alt.Y("estimate:Q"), color=colour)
        made = made.properties(width=WIDTH, height=HEIGHT)
    else:
        place = alt.Y("group:N", sort=None, title=_short(answer.columns[groups[0]])).axis(labelLimit=220)
        offset = {"yOffset": alt.YOffset("other:N", sort=None)} if len(groups) == 2 else {}
        side = alt.X("low:Q", title=title), alt.X2("high:Q")
        made = base.mark_rule(strokeWidth=3, opacity=0.5).encode(place, *side, color=colour, **offset)
        made += base.mark_point(filled=True, size=45).encode(place, alt.X("estimate:Q"), color=colour, **offset)
        made = made.properties(width=WIDTH, height=alt.Step(ROW))
    return dict(_dressed(made).to_dict())


def _dressed(made: Any) -> Any:
    text = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": 12,
        "titleFontSize": 12,
    }
    axis = {**text, "domainColor": QUIET, "tickColor": QUIET, "gridColor": LINE}
    made = made.configure(background="transparent", font=FONT, padding=6).configure_view(stroke=None)
    return made.configure_axis(**axis, titleFontWeight="normal").configure_legend(**text, titleFontWeight="normal")


def _row(answer: Answer, row: tuple[Any, ...], groups: list[int], *, along: bool) -> dict[str, Any]:
    estimate, _, low, high = answer.figures[0].of(row)
    first = row[groups[0]]
    found = {"group": _value(first) if along else _short(first), "estimate": _number(estimate)}
    found |= {"low": _number(low), "high": _number(high)}
    return found | ({"other": _short(row[groups[1]])} if len(groups) == 2 else {})


def _value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _short(value: object) -> str:
    text = "NULL" if value is None else "".join(one if one.isprintable() else "\ufffd" for one in str(value))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "\u2026"
