"""The names of a query as DuckDB understands them: tables, columns, aliases and positions.

A column comes before an alias, except in ORDER BY, and in HAVING where the query does not group by the column; ASCII
letters are the same in either case. sqlglot's ``qualify_columns`` resolves all this. What does not exist, or could be
several columns, is refused before, by the name that was written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.schema import MappingSchema

from privsql.answers.conditions import conjuncts
from privsql.answers.question import Lookup
from privsql.answers.statement import grouped, refuse_others, text
from privsql.engine.names import fold
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from privsql.answers.question import Side
    from privsql.engine.roles import Roles

UNNAMED = "COUNT(*)"  # the alias of what has none: once folded, no name of a query has capital letters


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


class Names:
    """The tables that a query reads, the release first, and what its names mean.

    ``sides``: of every column, under its name inside.
    """

    def __init__(self, select: exp.Select, roles: Roles, release: str, lookups: Lookups | None) -> None:
        self.sides: dict[str, Side] = dict.fromkeys((field.name for field in roles.quasi_identifiers), "qi")
        self.sides |= dict.fromkeys((field.name for field in roles.sensitive), "sa")
        self._release = Source(_release(select, release), {fold(name): name for name in self.sides})
        self._sources = {fold(self._release.alias): self._release}
        self._shared: dict[str, Source] = {}  # the first of the tables whose columns USING makes one
        for join in select.args.get("joins") or ():
            self._add(_lookup(join, lookups))

    def _add(self, source: Source) -> None:
        if fold(source.alias) in self._sources:
            raise UsageError(f"JOIN: two tables are called {source.alias!r}; give one an alias")
        taken = {fold(name) for name in self.sides}
        for inside in map(source.inside, source.columns):
            if fold(inside) in taken:
                raise UsageError(f"JOIN: {inside!r} could be two columns; give {source.alias} another alias")
            self.sides[inside] = "qi"
        self._sources[fold(source.alias)] = source

    # What is refused ---

    def check(self, select: exp.Select) -> None:
        """``UsageError`` for a name that means nothing, or could mean several things."""
        sources = [self._release]
        for join in select.args.get("joins") or ():
            source = self._sources[fold(join.alias_or_name)]
            for key in join.args.get("using") or ():
                self._share(key.name, sources, source)
            sources.append(source)
            for item in _columns(join):
                self._known(item, sources)
        named = {fold(item.alias): item.this for item in select.expressions if isinstance(item, exp.Alias)}
        columns = {name for name, item in named.items() if isinstance(item, exp.Column)} - set(self._sources)
        for clause, aliases in {"expressions": (), "where": columns, "group": columns, "having": named}.items():
            for item in _columns(select.args.get(clause)):
                self._known(item, sources, aliases)
        outputs = {fold(item.output_name) for item in select.expressions}
        for item in _columns(select.args.get("order")):
            if item.table or fold(item.name) not in outputs:
                self._known(item, sources)

    def _known(self, item: exp.Column, sources: Sequence[Source], aliases: Collection[str] = ()) -> None:
        name, prefix = fold(item.name), fold(item.table)
        own = next((source for source in sources if fold(source.alias) == prefix), None)
        if item.args.get("db") or (prefix and own is None):
            raise UsageError(f"column {text(item)!r} is not of {self._release.alias}")
        found = self._holding(name, sources) if own is None else [own] * (name in own.columns)
        if len(found) > 1:
            raise UsageError(f"column {item.name!r} is in several tables; write table.{item.name}")
        if not found and (own or name not in aliases):
            raise _unknown(item.name, own or self._release)

    def _share(self, key: str, sources: Sequence[Source], source: Source) -> None:
        """Take note of what USING makes one column."""
        self._known(exp.column(key), sources)
        if fold(key) not in source.columns:
            raise _unknown(key, source)
        self._shared[fold(key)] = self._holding(fold(key), sources)[0]

    def _holding(self, name: str, sources: Sequence[Source]) -> list[Source]:
        """The tables that have a column; what USING made one column is the first one's."""
        return [self._shared[name]] if name in self._shared else [own for own in sources if name in own.columns]

    # What is meant ---

    def resolved(self, select: exp.Select) -> exp.Select:
        """The query with columns under their names inside, in place of positions and aliases, too."""
        tree = normalize_identifiers(select.copy(), dialect=DIALECT)
        where = tree.args.get("where") or exp.Where(this=exp.true())
        condition = exp.paren(where.this, copy=False)
        columns = _columns(condition)
        # sqlglot walks from each column up to the query, too far where it stands in a long chain of conditions.
        where.set("this", exp.Tuple(expressions=[item.copy() for item in columns]))
        for item in _columns(tree.args.get("having")):  # a column that the query groups by comes before an alias
            holding = self._holding(fold(item.name), list(self._sources.values()))
            if not item.table and len(holding) == 1 and fold(item.name) in grouped(select):
                item.set("table", exp.to_identifier(fold(holding[0].alias), quoted=True))
        self._qualify(tree)
        for item, found in zip(columns, where.this.expressions, strict=True):
            item.replace(found.unnest())
        where.set("this", condition.this)
        outputs = {item.alias: item.this for item in tree.expressions}
        for item in _columns(tree.args.get("order")):
            if not item.table and item.name in outputs:
                item.replace(outputs[item.name].copy())
        for item in _columns(tree):
            item.replace(column(self._inside(item)))
        return tree

    def _qualify(self, tree: exp.Select) -> None:
        """Name the table of every column; only ORDER BY still has aliases."""
        for table in tree.find_all(exp.Table):
            table.set("this", exp.to_identifier(table.alias_or_name, quoted=True))
            for part in ("alias", "db", "catalog"):
                table.set(part, None)
        for item in tree.expressions:
            if not item.output_name:
                item.replace(exp.alias_(item.copy(), UNNAMED, quoted=True))
        known: dict[str, object] = {alias: dict.fromkeys(own.columns, "") for alias, own in self._sources.items()}
        try:
            qualify_columns(tree, MappingSchema(known, dialect=DIALECT, normalize=False), expand_stars=False)
        except SqlglotError as error:
            raise UsageError(f"the names of the query are not understood: {str(error).splitlines()[0]}") from error
        for shared in list(tree.find_all(exp.Coalesce)):
            shared.replace(shared.this)  # of equal columns, DuckDB takes the first

    def _inside(self, item: exp.Column) -> str:
        source = self._sources.get(item.table)
        if source is None or item.name not in source.columns:
            raise UsageError(f"column {item.name!r} is not understood; write table.{item.name}")
        return source.inside(item.name)

    def called(self, name: str) -> str | None:
        """The column that an unqualified name means, under its name inside; None for several and none."""
        found = self._holding(fold(name), list(self._sources.values()))
        return found[0].inside(fold(name)) if len(found) == 1 else None

    def joined(self, tree: exp.Select) -> tuple[Lookup, ...]:
        """The lookups of a resolved query: inner joins on equal quasi-identifiers."""
        found = []
        for join in tree.args.get("joins") or ():
            source = self._sources[join.alias_or_name]
            if source.lookup is not None:
                keys = tuple(self._key(part, source) for part in conjuncts(join.args["on"]))
                found.append(replace(source.lookup, keys=keys))
        return tuple(found)

    def _key(self, part: exp.Expr, source: Source) -> tuple[str, str]:
        """The lookup's column, and the release's that equals it."""
        theirs = {source.inside(name): own for name, own in source.columns.items()}
        ours = [name for name, side in self.sides.items() if side == "qi" and name in self._release.columns.values()]
        for one, other in ((part.this.name, part.expression.name), (part.expression.name, part.this.name)):
            if one in theirs and other in ours:
                return theirs[one], other
        raise UsageError(f"JOIN {source.alias}: join a column of it with a quasi-identifier of the release")


def _columns(clause: exp.Expr | list[exp.Expr] | None) -> list[exp.Column]:
    roots = clause if isinstance(clause, list) else [clause] if clause is not None else []
    return [item for root in roots for item in root.find_all(exp.Column)]


def _unknown(name: str, source: Source) -> UsageError:
    place = source.alias if source.lookup else "the release"
    return UsageError(f"column {name!r} is not in {place}; it has {', '.join(source.columns.values())}")


def _release(select: exp.Select, release: str) -> str:
    """The alias of the release in the query."""
    clause = select.args.get("from_")
    relation = clause.this if clause else None
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        raise UsageError(f"the query must read FROM {release}")
    refuse_others(relation, {"this", "alias"})
    if relation.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    if fold(relation.name) != fold(release):
        raise UsageError(f"there is no table {relation.name!r} here; the query must read FROM {release}")
    return relation.alias_or_name


def _lookup(join: exp.Join, lookups: Lookups | None) -> Source:
    """The lookup of an inner join on equal columns."""
    target, plain = join.this, not join.side and not join.method and join.kind in ("", "INNER")
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier) or not plain:
        raise UsageError(f"{text(join)} is not supported; join attached tables with JOIN .. ON")
    refuse_others(join, {"this", "on", "using", "kind"})
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
    name, columns = lookups.find(names)
    return Source(alias, {fold(own): own for own in columns}, Lookup(name, names, alias, (), columns))
