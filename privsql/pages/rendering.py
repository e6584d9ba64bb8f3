"""Render pages from templates, and charts as SVG. Every inserted text is escaped, cleaned and shortened."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from privsql import plot
from privsql.figures import format_figure, format_share
from privsql.markup import Html, clean_text, html_table, printable_text
from privsql.outcomes import Table
from privsql.system import PAGES, __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

# Rendering ------------------------------------------------------------------------------------------------------------
# Pages of HTML from the templates of this package: every value is escaped, cleaned and cut.
#
# The policy of a page forbids scripts and requests, and allows the one stylesheet by its digest.

LONGEST = 600  # most characters of one value
SHORT = 60  # most characters of a name or value within a sentence or a cell


def render_page(template: str, **facts: Any) -> str:
    """Fill a template of ``pages/templates`` with values, and return the page or part of a page.

    Raises:
        EngineError: Jinja2 is not installed.
        jinja2.UndefinedError: The template names a value that is not given.
    """
    PAGES.require_installed()
    return str(_make_environment().get_template(template).render(facts))


@lru_cache(maxsize=1)
def read_stylesheet() -> str:
    """Return the text of the only stylesheet, which is copied into every page."""
    return (files("privsql.pages") / "templates" / "style.css").read_text(encoding="utf-8")


@lru_cache(maxsize=4)
def style_source(style: str | None = None) -> str:
    """Return the term ``'sha256-..'`` by which a page's content security policy allows a stylesheet.

    Args:
        style: The text of the stylesheet; None for that of all pages.
    """
    digest = hashlib.sha256((read_stylesheet() if style is None else style).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page_policy() -> str:
    """Return the content security policy of a page, which allows its own style and pictures and nothing else."""
    return f"default-src 'none'; style-src {style_source()}; img-src data:; base-uri 'none'; form-action 'none'"


def shorten_text(value: object, width: int = SHORT) -> Html:
    """Return a name or value as HTML: cut to ``width`` characters, and with a writing direction of its own."""
    return Html(f"<bdi>{clean_text(str(value), width)}</bdi>")


def as_code(text: object) -> Html:
    """Return lines that a reader can copy as HTML, with line ends and tabs; other unprintable characters are marked."""
    return Html("".join(one if one in "\n\t" else clean_text(one, 1) for one in str(text)))


@lru_cache(maxsize=1)
def _make_environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("privsql.pages", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "short": shorten_text,
        "code": as_code,
        "exact": lambda text: Html(escape(str(text))),
        "figure": format_figure,
    }
    environment.filters |= {"share": format_share, "relations": typeset_relations}
    environment.filters["capitalized"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["cut"] = lambda text: printable_text(text, SHORT)
    environment.globals |= {"style": lambda: Html(read_stylesheet()), "policy": page_policy, "version": __version__}
    environment.globals |= {"table": page_table, "Table": Table}
    return environment


def _finalize_value(value: object) -> object:
    """Return HTML unchanged, and any other value as HTML: escaped, cut, and with unprintable characters marked.

    Templates pass every value that they insert through this function.
    """
    if value is None or hasattr(value, "__html__"):
        return value
    return clean_text(str(value), LONGEST)


def typeset_relations(text: str) -> str:
    """Replace operators in a text by mathematical signs, such as <= by ≤."""
    return text.replace("<=", "\N{LESS-THAN OR EQUAL TO}").replace(">=", "\N{GREATER-THAN OR EQUAL TO}")


def page_table(table: Table) -> Html:
    """Return a table as HTML, in a box that scrolls if the table is wide. Screen readers read its title."""
    rows = html_table(table.columns, table.rows, table.numeric, most=len(table.rows), width=LONGEST, labelled=True)
    label = clean_text(table.title, SHORT)
    return Html(f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">{rows}</div>')


# Charts as SVG --------------------------------------------------------------------------------------------------------
# A chart as SVG within a page: shapes and text alone, in the page's colours, light or dark.
#
# The SVG of vl-convert is rebuilt from known elements and attributes, without styles, scripts and links.

NAMESPACE = "{http://www.w3.org/2000/svg}"
SHAPES = {"g", "path", "line", "rect", "circle", "text", "defs", "clipPath"}
SAFE_ATTRIBUTES = {
    "d", "x", "y", "x2", "y2", "cx", "cy", "r", "width", "height", "transform", "opacity", "stroke-width",
    "stroke-dasharray", "stroke-opacity", "fill-opacity", "stroke-linecap", "stroke-miterlimit", "text-anchor",
    "font-weight",
}  # fmt: skip
COLOURED = ("fill", "stroke")  # attributes that become classes of the stylesheet: fill-first, stroke-text, ..
NAMES = {colour: name for name, colour in plot.INKS.items()}
PLAIN = {"none", "transparent"}
SIZE, NARROWER = 13, 0.88  # size of letters in pixels, and the factor for those shown, as a reader's font may be wider
LARGER = 1.25  # factor by which a chart is enlarged where there is room
NOTHING = ("", "M0,0h0v0h0Z")  # invisible paths


def draw_svg(chart: Any, key: str, title: str, description: str) -> Html:
    """Return a chart as SVG with a title and a description.

    Args:
        chart: The chart.
        key: The prefix of all its ids, which no other chart on the page has.
        title: The title.
        description: The description.

    Raises:
        ValueError: The chart has a colour that is not in ``plot.INKS``.
    """
    buffer = io.StringIO()
    plot.style_chart(chart, SIZE).properties(background="transparent").save(buffer, format="svg")
    root = ET.fromstring(buffer.getvalue())  # noqa: S314 (written by vl-convert)
    inside = "".join(part for one in root for part in _svg_parts(one, key))
    names = f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(description)}</desc>'
    box, width = escape(root.attrib["viewBox"]), round(float(root.attrib["width"]) * LARGER)
    labelled = f'role="img" aria-labelledby="{key}-t" aria-describedby="{key}-d"'
    return Html(f'<svg viewBox="{box}" width="{width}" {labelled}>{names}{inside}</svg>')


def draw_figure(chart: Any, key: str, title: str, caption: str, more: str = "") -> Html:
    """Return a chart with its caption below.

    Args:
        chart: The chart.
        key: The prefix of all its ids, which no other chart on the page has.
        title: The title.
        caption: The caption, which is also the description for screen readers.
        more: A text that follows the caption.
    """
    words = clean_text(f"{caption} {more}".strip(), LONGEST)
    return Html(f"<figure>{draw_svg(chart, key, title, caption)}<figcaption>{words}</figcaption></figure>")


def _svg_parts(one: ET.Element, key: str) -> Iterator[str]:
    """Yield the SVG text of an element and of everything inside it, without unknown elements.

    Args:
        one: The element.
        key: The prefix of all ids, so that those of two charts on a page differ.
    """
    name = one.tag.removeprefix(NAMESPACE)
    hidden = one.get("display") == "none" or (name == "path" and one.get("d") in NOTHING)
    if name not in SHAPES or hidden:
        return
    inside = escape(one.text or "", quote=False) + "".join(part for child in one for part in _svg_parts(child, key))
    if not inside and name in ("g", "text", "defs"):
        return
    attributes = " ".join(_svg_attributes(one, key))
    yield f"<{name}{' ' * bool(attributes)}{attributes}>{inside}</{name}>"


def _svg_attributes(one: ET.Element, key: str) -> Iterator[str]:
    inks = {name: _ink_name(one.get(name)) for name in COLOURED}
    classes = " ".join(f"{name}-{ink}" for name, ink in inks.items() if ink)
    if classes:
        yield f'class="{classes}"'
    for name, value in one.attrib.items():
        if name in COLOURED and not inks[name]:
            yield f'{name}="{escape(value)}"'
        elif name == "clip-path":
            yield f'clip-path="url(#{key}-{_join_digits(value)})"'
        elif name == "id":
            yield f'id="{key}-{_join_digits(value)}"'
        elif name == "font-size":
            yield f'font-size="{float(value.removesuffix("px")) * NARROWER:.1f}"'
        elif name in SAFE_ATTRIBUTES and not (name == "opacity" and value == "1"):
            yield f'{name}="{escape(_round_numbers(value))}"'


def _ink_name(value: str | None) -> str | None:
    """Return the name in ``plot.INKS`` of a colour, by which the stylesheet colours a part of a chart.

    The result is None for no colour. Any other colour is an error.
    """
    if value is None or value in PLAIN:
        return None
    if value.lower() not in NAMES:
        raise ValueError(f"{value} is no ink of plot.INKS")
    return NAMES[value.lower()]


def _join_digits(value: str) -> str:
    return "".join(re.findall(r"\d+", value))


def _round_numbers(value: str) -> str:
    """Round all numbers in a text to two decimals, because nobody sees a hundredth of a pixel.

    >>> _round_numbers("translate(7.1666667,-12.0)")
    'translate(7.17,-12)'
    """
    return re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
