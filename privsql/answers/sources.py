"""The tables of a query: the release, and lookups that are joined to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from privsql.answers.conditions import conjuncts
from privsql.answers.functions import text
from privsql.answers.question import Lookup
from privsql.answers.statement import refuse_others
from privsql.engine.names import fold
from privsql.errors import UsageError


class Lookups(Protocol):
    """The tables that may be joined to the release."""

    def find(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Where the table lies that a query calls by ``names``, and its columns; ``UsageError`` if there is none."""


@dataclass(frozen=True)
class Source:
    """A table of the query: its alias, its columns by folded name, and what it is besides if it is a lookup."""

    alias: str
    columns: dict[str, str]
    lookup: Lookup | None = None

    def inside(self, name: str) -> str:
        """What a column is called beside those of the other tables."""
        own = self.columns[name]
        return own if self.lookup is None else self.lookup.inside(own)


def release(select: exp.Select, name: str) -> str:
    """The alias of the release in the query."""
    clause = select.args.get("from_")
    relation = clause.this if clause else None
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        raise UsageError(f"the query must read FROM {name}")
    refuse_others(relation, {"this", "alias"})
    if relation.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    if fold(relation.name) != fold(name):
        raise UsageError(f"there is no table {relation.name!r} here; the query must read FROM {name}")
    return relation.alias_or_name


def lookup(join: exp.Join, lookups: Lookups | None) -> Source:
    """The lookup of an inner join on equal columns."""
    target, plain = join.this, join.side in ("", "LEFT") and not join.method and join.kind in ("", "INNER", "OUTER")
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier) or not plain:
        raise UsageError(f"{text(join)} is not supported; join attached tables with JOIN .. ON or LEFT JOIN .. ON")
    refuse_others(join, {"this", "on", "using", "kind", "side"})
    if target.alias_column_names or any(
        v for key, v in target.args.items() if key not in ("this", "alias", "db", "catalog")
    ):
        raise UsageError(f"{text(target)} is not supported in JOIN")
    on, using = join.args.get("on"), join.args.get("using")
    if on is None and not using:
        raise UsageError(f"JOIN {target.alias_or_name}: ON or USING with quasi-identifiers is needed")
    for part in conjuncts(on) if on is not None else ():
        if not (isinstance(part, exp.EQ) and all(isinstance(side, exp.Column) for side in part.iter_expressions())):
            raise UsageError(f"JOIN ON {text(part)} is not supported; use equality of columns")
    names, alias = tuple(part.name for part in target.parts), target.alias_or_name
    if lookups is None:
        raise UsageError(f"JOIN: there is no lookup table {'.'.join(names)!r}; attach it with --attach")
    table, columns = lookups.find(names)
    return Source(
        alias, {fold(own): own for own in columns}, Lookup(table, names, alias, (), columns, kept=join.side == "LEFT")
    )
