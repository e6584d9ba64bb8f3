"""A chart as SVG within a page: shapes and text alone, in the page's own colours, so that it follows its scheme.

What altair and vl-convert write is taken apart and put together again from known elements and attributes: no style, no
script, no link, whatever the texts in it are.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from privsql import plot
from privsql.markup import Html

if TYPE_CHECKING:
    from collections.abc import Iterator

SPACE = "{http://www.w3.org/2000/svg}"
SHAPES = {"g", "path", "line", "rect", "circle", "text", "defs", "clipPath"}
KEPT = {
    "d", "x", "y", "x2", "y2", "cx", "cy", "r", "width", "height", "transform", "opacity", "stroke-width",
    "stroke-dasharray", "stroke-opacity", "fill-opacity", "stroke-linecap", "stroke-miterlimit", "text-anchor",
    "font-weight",
}  # fmt: skip
COLOURED = ("fill", "stroke")  # by classes of the stylesheet: fill-first, stroke-text, ..
NAMES = {colour: name for name, colour in plot.INKS.items()}
PLAIN = {"none", "transparent"}
SIZE, NARROWER = 13, 0.88  # of letters: laid out in pixels, and what is shown, as a reader's font may be wider
LARGER = 1.25  # than it is drawn, where there is room
NOTHING = ("", "M0,0h0v0h0Z")  # paths that show nothing


def drawn(chart: Any, key: str, title: str, said: str) -> Html:
    """A chart with a name and what it shows in words; ``key`` tells its parts from those of others on the page.

    ``ValueError`` for a colour that is none of ``plot.INKS``.
    """
    made = io.StringIO()
    plot.styled(chart, SIZE).properties(background="transparent").save(made, format="svg")
    root = ET.fromstring(made.getvalue())  # noqa: S314 (written by vl-convert)
    inside = "".join(part for one in root for part in _parts(one, key))
    names = f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(said)}</desc>'
    box, width = escape(root.attrib["viewBox"]), round(float(root.attrib["width"]) * LARGER)
    labelled = f'role="img" aria-labelledby="{key}-t" aria-describedby="{key}-d"'
    return Html(f'<svg viewBox="{box}" width="{width}" {labelled}>{names}{inside}</svg>')


def _parts(one: ET.Element, key: str) -> Iterator[str]:
    """An element and what is in it, as text."""
    name = one.tag.removeprefix(SPACE)
    hidden = one.get("display") == "none" or (name == "path" and one.get("d") in NOTHING)
    if name not in SHAPES or hidden:
        return
    inside = escape(one.text or "", quote=False) + "".join(part for child in one for part in _parts(child, key))
    if not inside and name in ("g", "text", "defs"):
        return
    attributes = " ".join(_attributes(one, key))
    yield f"<{name}{' ' * bool(attributes)}{attributes}>{inside}</{name}>"


def _attributes(one: ET.Element, key: str) -> Iterator[str]:
    inks = {name: _ink(one.get(name)) for name in COLOURED}
    classes = " ".join(f"{name}-{ink}" for name, ink in inks.items() if ink)
    if classes:
        yield f'class="{classes}"'
    for name, value in one.attrib.items():
        if name in COLOURED and not inks[name]:
            yield f'{name}="{escape(value)}"'
        elif name == "clip-path":
            yield f'clip-path="url(#{key}-{_digits(value)})"'
        elif name == "id":
            yield f'id="{key}-{_digits(value)}"'
        elif name == "font-size":
            yield f'font-size="{float(value.removesuffix("px")) * NARROWER:.1f}"'
        elif name in KEPT and not (name == "opacity" and value == "1"):
            yield f'{name}="{escape(_rounded(value))}"'


def _ink(value: str | None) -> str | None:
    """The name of an ink; None for none."""
    if value is None or value in PLAIN:
        return None
    if value.lower() not in NAMES:
        raise ValueError(f"{value} is no ink of plot.INKS")
    return NAMES[value.lower()]


def _digits(value: str) -> str:
    return "".join(re.findall(r"\d+", value))


def _rounded(value: str) -> str:
    """Numbers with at most two decimals: a hundredth of a pixel is not seen.

    >>> _rounded("translate(7.1666667,-12.0)")
    'translate(7.17,-12)'
    """
    return re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
