"""Questions about a release from what it says of itself, as trees: typical ones, and one to show how it is asked."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from privsql.engine.sqlfiles import DIALECT, column, named, table
from privsql.errors import UsageError
from privsql.mechanisms.contract import Categories, Sets, Table
from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.engine.roles import Field
    from privsql.releases.opened import Release

COLUMNS, LOOKED = 3, 20  # by which is grouped; of the release's columns, that are looked at for them
FEW = 60  # different values of such a column at most
ROWS = 3_000  # of an answer at most
SETS, RANKED = 40, 800  # that are asked for, out of the most frequent ones
QUARTERS = (0.25, 0.5, 0.75)
KEYWORDS = frozenset(DuckDB.Tokenizer.KEYWORDS)
Rows = list[tuple[Any, ...]]


def questions(release: Release) -> Iterator[exp.Select]:
    """Typical questions: how many records have each value, in the groups by one column, and by two.

    What the release can't be asked for is left out.
    """
    shape = of(release.manifest.mechanism).shape
    if isinstance(shape, Sets):
        yield from _of_sets(release)
        return
    roles, shown = release.manifest.roles, frozenset(release.answers.in_bins)
    if isinstance(shape, Categories):
        names = [field.name for field in roles.sensitive if field.name not in shown][:LOOKED]
        chosen = _few(release, names)
        values: list[exp.Expr] = []
    else:
        chosen = _few(release, [field.name for field in roles.quasi_identifiers][:LOOKED])
        values = _values(release, shape)
    for names_ in dict.fromkeys((*((name,) for name in chosen[:COLUMNS]), tuple(chosen[:2]))):
        yield counted(release, [*(column(name) for name in names_), *values])


def _values(release: Release, shape: Table | Categories[Any]) -> list[exp.Expr]:
    """By what of the sensitive columns is grouped: their values, or quarters of the records where these are numbers."""
    fields = release.manifest.roles.sensitive
    if not (isinstance(shape, Table) and shape.numeric):
        return [column(field.name) for field in fields]
    own = fields[0]
    ends = quantiles(release, own)
    case = exp.Case()
    for number, end in enumerate(dict.fromkeys(ends)):
        case = case.when(exp.LT(this=column(own.name), expression=literal(end, own)), exp.Literal.number(number))
    return [case.else_(exp.Literal.number(len(ends)))] if case.args.get("ifs") else [column(own.name)]


def quantiles(release: Release, own: Field, shares: Sequence[float] = QUARTERS) -> list[Any]:
    """Values of a column of numbers below which such shares of the records lie, about."""
    rows = [row for row in asked(release, counted(release, [column(own.name)])) if None not in row[:2]]
    rows.sort(key=lambda row: row[0])
    found: list[Any] = []
    total, running = sum(row[1] for row in rows), 0.0
    for value, records, *_ in rows:
        running += records
        if len(found) < len(shares) and running > shares[len(found)] * total:
            found.append(value)
    return found


def _few(release: Release, names: Sequence[str]) -> list[str]:
    """The columns that have at least two values, and few of them, those with fewest first."""
    found = []
    for name in names:
        with suppress(UsageError):
            number = len(asked(release, counted(release, [column(name)])))
            if 1 < number <= FEW:
                found.append((number, name))
    return [name for _, name in sorted(found, key=lambda one: one[0])]


def _of_sets(release: Release) -> Iterator[exp.Select]:
    """How many records hold sets of items: frequent ones and, ever further apart, less frequent ones."""
    own = release.manifest.roles.sensitive[0]
    found = release.answers.frequent(RANKED, "reconstructed")
    for rank in sorted({round(len(found) ** (k / SETS)) - 1 for k in range(SETS + 1)}) if found else []:
        items, _ = found[rank]
        yield counted(release, [], holding(own, items)) if items else counted(release, [])


def holding(own: Field, items: Sequence[str]) -> exp.Expr:
    """The condition that a list holds some items, given as texts."""
    listed = exp.Array(expressions=[literal(item, own, own.type.removesuffix("[]")) for item in items])
    return exp.Anonymous(this="list_has_all", expressions=[column(own.name), listed])


def counted(release: Release, groups: Sequence[exp.Expr], condition: exp.Expr | None = None) -> exp.Select:
    """COUNT(*) AS n of the release, by groups; these come first."""
    number = named(exp.Count(this=exp.Star()), "n")
    query = exp.select(*(one.copy() for one in groups), number).from_(table(release.manifest.name))
    query = query if condition is None else query.where(condition)
    return query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query


def asked(release: Release, query: exp.Select, estimator: str = "reconstructed") -> Rows:
    """The rows of an answer: groups, estimate, standard error, low, high."""
    return release.query(written(query, plainly=False), estimator=estimator).rows


def literal(value: object, field: Field, kind: str | None = None) -> exp.Expr:
    """A value as a constant of a column."""
    own = kind or field.type
    if own == "VARCHAR":
        return exp.Literal.string(str(value))
    text = str(value)
    if text.removeprefix("-").isdecimal() and text.isascii():
        number = exp.Literal.number(text.removeprefix("-"))
        return exp.Neg(this=number) if text.startswith("-") else number
    return exp.cast(exp.Literal.string(text), exp.DataType.build(own, dialect=DIALECT))


def written(query: exp.Expr, *, plainly: bool = True) -> str:
    """The SQL of a query; ``plainly``: names that need no quotes have none."""
    if plainly:
        query = query.copy()
        for one in query.find_all(exp.Identifier):
            own = str(one.this)
            if own.isascii() and own.isidentifier() and own == own.lower() and own.upper() not in KEYWORDS:
                one.set("quoted", False)  # noqa: FBT003 (sqlglot's own)
    return query.sql(dialect=DIALECT)
