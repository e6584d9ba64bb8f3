"""Values that a question names and that do not occur in a release, with the one that was probably meant."""

from __future__ import annotations

import difflib
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.aggregates import is_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.answers.asked import Statement
    from privsql.answers.base import Answers
    from privsql.engine.roles import Roles

MOST = 10_000  # values of a column that are looked through
COMPARED = 2_000  # of those that are compared letter by letter
EQUALITY = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
OF_ITEMS = (exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous)


def find_unknown(asked: Statement, answers: Answers, roles: Roles) -> tuple[str, ...]:
    """Return a sentence for each value that a column or item is compared with and that the release does not have."""
    roots = [asked.scope.where, *(one.among for one in asked.asked)]
    pairs = [pair for root in dict.fromkeys(roots) if root is not None for pair in _compared(root)]
    return tuple(filter(None, (_hint(name, value, answers, roles) for name, value in dict.fromkeys(pairs))))


def _compared(root: exp.Expr) -> Iterator[tuple[str, exp.Literal]]:
    """Yield the columns that are compared for equality with constants, and those; items under an empty name."""
    for node in root.find_all(*EQUALITY, exp.In, *OF_ITEMS):
        if isinstance(node, OF_ITEMS):
            yield from (("", one) for one in node.find_all(exp.Literal) if one.is_string)
            continue
        sides = [node.this, *node.expressions] if isinstance(node, exp.In) else [node.this, node.expression]
        plain = [side.unnest() for side in sides]
        names = [side.name for side in plain if isinstance(side, exp.Column)]
        if len(names) == 1:
            yield from ((names[0], side) for side in plain if isinstance(side, exp.Literal))


def _hint(name: str, value: exp.Literal, answers: Answers, roles: Roles) -> str:
    """Say that a column, or item, has no such value; empty where it has, or that is not known."""
    if not name:
        return "" if value.name in answers.labels else _say(value, answers.labels)
    fields = {field.name: field.type for field in (*roles.quasi_identifiers, *roles.sensitive)}
    kind, sensitive = fields.get(name, ""), any(field.name == name for field in roles.sensitive)
    counts = is_number(kind) and kind != "BOOLEAN"
    if name in answers.in_bins or not (kind.startswith(("VARCHAR", "ENUM")) or (counts and sensitive)):
        return ""
    listed = [one for one in answers.shown(name, MOST + 1) if one is not None]
    if not listed or len(listed) > MOST:
        return ""
    if counts:
        known = {_number(one) for one in listed}
        return "" if value.is_string or _number(value.name) in known | {None} else _say(value, (), name)
    return _say(value, listed, name) if value.is_string and value.name not in listed else ""


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _say(value: exp.Literal, listed: Sequence[str], name: str = "") -> str:
    where = f"{name} has no such value" if name else "no such item"
    meant = closest(value.name, listed)
    quoted = "" if meant is None else "; did you mean '" + meant.replace("'", "''") + "'?"
    return f"{where}: {value.sql()}{quoted}"


def closest(value: str, listed: Sequence[str]) -> str | None:
    """Return the listed text that is most like a value; None where none is alike.

    >>> closest("sales", ["Craft-repair", "Sales"]), closest("Craft repair", ["Craft-repair"]), closest("x", ["Sales"])
    ('Sales', 'Craft-repair', None)
    """
    folded = {one.strip().casefold(): one for one in reversed(listed)}
    alike = [value.strip().casefold()]
    if alike[0] not in folded and len(folded) <= COMPARED:
        alike = difflib.get_close_matches(alike[0], folded, n=1)
    return folded.get(alike[0]) if alike else None
