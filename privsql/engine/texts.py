"""Texts of values that are the same on every engine, so that a hash of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.roles import FLOATS, Field
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BETWEEN = "\x1f"  # between texts that stand side by side
DIGITS, BITS = 15, 60  # of a hash, in hexadecimal and in bits: what fits into an integer of 64 bits
NULL = "-"  # which is the text of no number, date or truth value; a text is preceded by its length
ZONED = "TIMESTAMP WITH TIME ZONE"


def injective(fields: Mapping[str, Field], table: str, *, everywhere: bool) -> list[exp.Expr]:
    """Texts of the columns of ``table``, by their names inside; records that differ have different lists of them.

    ``everywhere``: the same on every engine; ``UsageError`` for doubles, whose texts engines do not share.
    """
    for field in fields.values():
        if everywhere and field.type in FLOATS:
            raise UsageError(
                f"column {field.name!r} is {field.type}, whose text is not the same on every engine; order = "
                "'portable' needs it cast to DECIMAL in source.query"
            )
    return [injective_text(column(name, table), field.type) for name, field in fields.items()]


def beside_each_other(texts: Sequence[exp.Expr]) -> exp.Expr:
    """One text of several, none of which is NULL."""
    return exp.Anonymous(this="concat_ws", expressions=[exp.Literal.string(BETWEEN), *texts])


def first(text: exp.Expr, characters: int) -> exp.Expr:
    """The beginning of a text."""
    return exp.Substring(this=text, start=exp.Literal.number(1), length=exp.Literal.number(characters))


def injective_text(value: exp.Expr, kind: str) -> exp.Expr:
    """Text of a value of a type; values that differ have different ones, NULL and an empty text among them."""
    written: exp.Expr = exp.cast(value, "VARCHAR")
    if kind == ZONED:  # sessions are in UTC
        written = exp.cast(exp.cast(value, "TIMESTAMP"), "VARCHAR")
    if kind == "VARCHAR":
        length = exp.cast(exp.Length(this=value.copy()), "VARCHAR")
        written = exp.DPipe(this=exp.DPipe(this=length, expression=exp.Literal.string(":")), expression=value.copy())
    return exp.Coalesce(this=written, expressions=[exp.Literal.string(NULL)])
