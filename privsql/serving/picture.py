"""An answer as a picture: estimates with their intervals, by one or two groups. The extra ``privsql[plot]``."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from typing import TYPE_CHECKING, Any

from privsql.extras import PICTURES
from privsql.markup import distinct, plain
from privsql.pages.rendering import style
from privsql.plot import BLUE, INKS, chart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.answers.answer import Answer

FEW, MANY = 40, 400  # rows: of groups that have names, and of numbers or dates along an axis
AXIS = 12  # numbers or dates from which on they lie along an axis
SEVERAL = [INKS[name] for name in ("first", "second", "third", "still")]  # groups that colours tell apart
WIDTH, HEIGHT, ROW = 320, 200, 22  # pixels
LABEL = 24  # characters of a label
NAME = "The answer as a picture"
SAID = "Estimates as dots, their intervals as lines; the table has the numbers."
HEADER = '<svg xmlns="http://www.w3.org/2000/svg"'
INKED = re.compile(r"^\.fill-.*$", re.MULTILINE)  # lines of the stylesheet
LETTERS = 'text { font-family: "Liberation Sans", Arial, Helvetica, sans-serif; }'  # by which it is laid out
Row = tuple[Any, ...]
Labels = dict[str | None, str]


def drawable(answer: Answer) -> bool:
    """Whether a picture can be drawn of an answer, and what draws it is installed."""
    groups = _groups(answer)
    if not PICTURES.there or len(groups) not in (1, 2):
        return False
    if not 2 <= len(answer.rows) <= (MANY if _along(answer, groups) else FEW):
        return False
    return len(groups) == 1 or len({row[groups[1]] for row in answer.rows}) <= len(SEVERAL)


def drawn(answer: Answer) -> str:
    """The picture as SVG, a document of its own, that follows the scheme of whoever looks at it."""
    from privsql.pages import svg  # noqa: PLC0415 (what it is drawn by takes long to import, and is seldom needed)

    made = str(svg.drawn(_chart(answer), "picture", NAME, SAID))
    return made.replace("<svg", HEADER, 1).replace("><title", f"><style>{_colours()}</style><title", 1)


def policy() -> str:
    """The content security policy of a picture: its own style and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_colours().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"


def _colours() -> str:
    """What the stylesheet says of pictures: colours, light and dark, the classes that take them, and letters."""
    roots, rest = style().split("* {", 1)
    return "\n".join([roots.strip(), *INKED.findall(rest), LETTERS])


def _groups(answer: Answer) -> list[int]:
    """The places of the columns that are no figures."""
    inside = {one.at + k for one in answer.figures for k in range(4)}
    return [at for at in range(len(answer.columns)) if at not in inside]


def _along(answer: Answer, groups: list[int]) -> bool:
    """Whether the first group is of numbers or dates, enough of them for an axis."""
    found = {row[groups[0]] for row in answer.rows} - {None}
    return len(found) > AXIS and all(isinstance(one, int | float | dt.date) for one in found)


def _chart(answer: Answer) -> Any:
    import altair as alt  # noqa: PLC0415

    groups, figure = _groups(answer), answer.figures[0]
    along = _along(answer, groups)
    called = [_called(row[at] for row in answer.rows) for at in groups]
    base = chart([_row(answer, row, groups, called, along=along) for row in answer.rows])
    colour: Any = alt.value(BLUE)
    if len(groups) == 2:
        named = alt.Color("other:N", title=_named(answer, groups[1]), sort=None)
        colour = named.scale(range=SEVERAL).legend(orient="top", labelLimit=0, symbolOpacity=1)
    number, name = answer.columns[figure.at], _named(answer, groups[0])
    if along:
        moments = any(isinstance(row[groups[0]], dt.date) for row in answer.rows)
        place = alt.X("group:T" if moments else "group:Q", title=name).scale(zero=False, nice=False, padding=6)
        ends = {"y": alt.Y("low:Q", title=number).axis(format=",~r", tickCount=5), "y2": alt.Y2("high:Q")}
        middle, size = {"y": alt.Y("estimate:Q")}, {"width": WIDTH, "height": HEIGHT}
    else:
        place = alt.Y("group:N", sort=None, title=name).axis(labelLimit=0)
        ends = {"x": alt.X("low:Q", title=number).axis(format=",~r", tickCount=5), "x2": alt.X2("high:Q")}
        middle, size = {"x": alt.X("estimate:Q")}, {"width": WIDTH, "height": alt.Step(ROW)}
    offset = {"yOffset": alt.YOffset("other:N", sort=None)} if len(groups) == 2 and not along else {}
    lines = base.mark_rule(strokeWidth=2, opacity=0.55).encode(place, color=colour, **ends, **offset)
    dots = base.mark_circle(size=26, opacity=1).encode(place, color=colour, **middle, **offset)
    return (lines + dots).properties(**size)


def _row(answer: Answer, row: Row, groups: list[int], called: list[Labels], *, along: bool) -> dict[str, Any]:
    estimate, _, low, high = (None if one is None else float(one) for one in answer.figures[0].of(row))
    first = row[groups[0]]
    place = (first.isoformat() if isinstance(first, dt.date) else first) if along else called[0][_text(first)]
    found = {"group": place, "estimate": estimate, "low": low, "high": high}
    return found | ({"other": called[1][_text(row[groups[1]])]} if len(groups) == 2 else {})


def _named(answer: Answer, at: int) -> str:
    return plain(answer.columns[at], LABEL)


def _called(values: Iterable[Any]) -> Labels:
    """A label for each value of a group by its text, no two alike."""
    found = list(dict.fromkeys(_text(one) for one in values))
    return dict(zip(found, distinct(["NULL" if one is None else one for one in found], LABEL), strict=True))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
