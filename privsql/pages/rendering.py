"""Pages of HTML out of the templates of this package: everything that is filled in is escaped, cleaned and cut.

No script, no request to anywhere: the policy of a page forbids both, and lets in the one stylesheet by its digest.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any

from privsql._version import __version__
from privsql.extras import PAGES
from privsql.markup import SPACE, Html, cleaned

LONGEST = 600  # characters of one value, wherever it stands
SHORT = 60  # of a name or a value within a sentence or a cell


def page(template: str, **facts: Any) -> str:
    """A template of ``pages/templates`` filled with facts, complete or a part of a page.

    ``EngineError`` without Jinja2; a fact that the template names and that is not given is jinja2's ``UndefinedError``.
    """
    PAGES.need()
    return str(_environment().get_template(template).render(facts))


@lru_cache(maxsize=1)
def style() -> str:
    """The one stylesheet, as it stands within a page."""
    return (files("privsql.pages") / "templates" / "style.css").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def style_source() -> str:
    """What a content security policy calls the stylesheet: ``'sha256-..'`` of its text between the tags."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()}'"


def policy() -> str:
    """The content security policy of a page that stands alone: its own style and pictures, and nothing else."""
    return f"default-src 'none'; style-src {style_source()}; img-src data:; base-uri 'none'; form-action 'none'"


def short(value: object, width: int = SHORT) -> Html:
    """A name or a value of somebody's data: cut, and of a direction of its own."""
    text = cleaned(str(value), width)
    return Html(f"<bdi>{text}</bdi>")


def code(text: object) -> Html:
    """Lines that a reader copies: whole, their ends and tabs kept. What else can't be printed is replaced."""
    return Html("".join(one if one in "\n\t" else cleaned(one, 1) for one in str(text)))


def exact(text: object) -> Html:
    """A text as a field or an address holds it: escaped, and nothing else is done to it."""
    return Html(escape(str(text)))


@lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2  # noqa: PLC0415 (an extra)

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("privsql.pages", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_final,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shapes = {"short": short, "code": code, "exact": exact, "figure": figure, "share": share}
    made.filters |= {**shapes, "capitalized": _capitalized, "relations": relations}
    made.globals |= {"style": lambda: Html(style()), "policy": policy, "version": __version__}
    return made


def _final(value: object) -> object:
    """What is written of a value: HTML as it is, any other text cleaned and cut."""
    if value is None or hasattr(value, "__html__"):
        return value
    return cleaned(str(value), LONGEST)


def _capitalized(text: str) -> str:
    """With a capital first letter, and the others as they are."""
    return text[:1].upper() + text[1:]


def relations(text: str) -> str:
    """With signs that people write for what programs do."""
    return text.replace("<=", "\N{LESS-THAN OR EQUAL TO}").replace(">=", "\N{GREATER-THAN OR EQUAL TO}")


def figure(value: float | None, digits: int = 3) -> str:
    """A number for people: whole ones in full, others to so many digits that matter; a dash for none.

    >>> figure(12345), figure(0.0123456), figure(1234.56), figure(None)
    ('12,345', '0.0123', '1,235', '–')
    """
    if value is None:
        return "\u2013"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10 ** (digits - 1) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def share(value: float | None) -> str:
    """A share or a probability in percent.

    >>> [share(one).replace(SPACE, " ") for one in (0.125, 1, 0.00012, None)]
    ['12.5 %', '100 %', '0.012 %', '–']
    """
    if value is None:
        return "\u2013"
    percent = 100 * float(value)
    shown = f"{percent:.1f}".removesuffix(".0") if percent >= 1 or not percent else f"{percent:.2g}"
    return f"{shown}{SPACE}%"
