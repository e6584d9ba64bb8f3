"""How a release is asked, in lines to copy: in a shell, in Python, and in DuckDB without privsql."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import column, every, is_null, named, table
from privsql.mechanisms.contract import Sets, Table
from privsql.mechanisms.registry import of
from privsql.pages.facts import Ways
from privsql.source.address import address
from privsql.verbs.reporting.asking import asked, counted, holding, literal, quantiles, written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.engine.roles import Field
    from privsql.releases.opened import Release
    from privsql.releases.stored import Stored

FILE, FOLDER, SCHEMA = "release.duckdb", "release", "released"  # how the release is called in the lines
LEGIBLE = 100  # characters of a value
QUOTING = frozenset('"$`\\!')  # what a double-quoted text of a shell changes


def ways(release: Release, found: Stored) -> Ways:
    """The lines for one question, which the release can be asked."""
    name, form = FILE, "file"
    if found.is_folder:
        name, form = FOLDER, "folder"
    elif found.schema is not None:
        name, form = str(address(Path(FILE), SCHEMA)), "schema"
    groups, condition = _question(release)
    query = written(counted(release, groups, condition))
    quoted = shlex.quote(query) if QUOTING & set(query) else f'"{query}"'
    python = f"import privsql\n\nrelease = privsql.open({name!r})\nrelease.sql({query!r})"
    return Ways(form, name, f"privsql query {name} {quoted}", python, _plain(release, groups, condition, form))


def _question(release: Release) -> tuple[list[exp.Expr], exp.Expr | None]:
    """How many records have the most frequent value, or the larger half of numbers, by a column; or frequent items."""
    roles, mechanism = release.manifest.roles, of(release.manifest.mechanism)
    if isinstance(mechanism.shape, Sets):
        frequent = release.answers.frequent(20, "reconstructed")
        found = next((items for items, _ in frequent if items and _legible(items)), None)
        return [], holding(roles.sensitive[0], found) if found else None
    fields = roles.sensitive if roles.quasi_identifiers else roles.sensitive[:1]
    others = roles.quasi_identifiers or roles.sensitive[1:]
    legible = [field.name for field in others if _legible([field.name])]
    few: list[exp.Expr] = [column(name) for name in legible[:1]]
    if (
        isinstance(mechanism.shape, Table)
        and mechanism.shape.numeric
        and (middle := quantiles(release, fields[0], [0.5]))
    ):
        return few, exp.GTE(this=column(fields[0].name), expression=literal(middle[0], fields[0]))
    rows = asked(release, counted(release, [column(field.name) for field in fields]))
    shown = (row for row in rows if _legible(row[: len(fields)]))
    most = max(shown, key=lambda row: row[len(fields)] or 0, default=None)
    if most is None:
        return few, None
    own = [_equals(column(field.name), value, field) for field, value in zip(fields, most, strict=False)]
    return few, every(own)


def _legible(values: Iterable[object]) -> bool:
    """Whether values can be copied from a page, on which what can't be printed is replaced."""
    return all(str(one).isprintable() and len(str(one)) <= LEGIBLE for one in values)


def _equals(left: exp.Expr, value: object, field: Field) -> exp.Expr:
    return is_null(left) if value is None else exp.EQ(this=left, expression=literal(value, field))


def _plain(release: Release, groups: list[exp.Expr], condition: exp.Expr | None, form: str) -> str:
    """The same for DuckDB itself: the release's view has a weight; files of a folder are put together to it first."""
    manifest = release.manifest
    mechanism = of(manifest.mechanism)
    weight = exp.Sum(this=column(manifest.roles.by_all.called("weight")))
    query = exp.select(*(one.copy() for one in groups), named(weight, "n"))
    query = query.from_(table(manifest.name, schema=SCHEMA if form == "schema" else None))
    query = query if condition is None else query.where(condition.copy())
    query = query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query
    if form != "folder":
        return written(query) + ";"
    view = mechanism.view(manifest)
    read = sorted({one.name for one in view.find_all(exp.Table)})
    made = [_view(one, exp.select("*").from_(_file(one))) for one in read]
    return "\n".join(written(one) + ";" for one in (*made, _view(manifest.name, view), query))


def _file(name: str) -> exp.Expr:
    return exp.Anonymous(this="read_parquet", expressions=[exp.Literal.string(f"{FOLDER}/{name}.parquet")])


def _view(name: str, query: exp.Query) -> exp.Create:
    return exp.Create(this=table(name), kind="VIEW", expression=query)
