"""The names of a query as DuckDB understands them: columns, aliases and positions.

A column comes before an alias, except where ORDER BY names an alias alone, and in HAVING where the query does not group
by the column; ASCII letters are the same in either case. What does not exist, or could be several columns, is refused
by the name that was written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.conditions import conjuncts
from privsql.answers.functions import AGGREGATES, keep_text, text
from privsql.answers.orders import in_order
from privsql.answers.sources import Source, lookup, release
from privsql.answers.statement import aggregates, grouped, position
from privsql.engine.names import fold
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.question import Lookup, Side
    from privsql.answers.sources import Lookups
    from privsql.engine.roles import Roles

MOST = 2_000  # nodes that aliases may add to an expression


@dataclass(frozen=True)
class Aliased:
    """What names a clause may use besides columns: aliases before columns, after them, and what is an alias first."""

    named: Mapping[str, exp.Expr]
    before: frozenset[str] = frozenset()


class Names:
    """The tables that a query reads, the release first, and what its names mean.

    ``sides``: of every column, under its name inside.
    """

    def __init__(
        self,
        own: Source,
        sides: Mapping[str, Side],
        lookups: Sequence[tuple[exp.Join, Source]] = (),
        orders: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.sides, self._orders = dict(sides), orders or {}
        self._release, self._sources = own, [own]
        self._shared: dict[str, Source] = {}  # the first of the tables whose columns USING makes one
        self.joined = tuple(self._join(*one) for one in lookups)

    @classmethod
    def of(cls, select: exp.Select, roles: Roles, name: str, lookups: Lookups | None) -> Names:
        """Those of a query to the release ``name``."""
        sides: dict[str, Side] = dict.fromkeys((field.name for field in roles.quasi_identifiers), "qi")
        sides |= dict.fromkeys((field.name for field in roles.sensitive), "sa")
        own = Source(release(select, name), {fold(column): column for column in sides})
        joined = [(join, lookup(join, lookups)) for join in select.args.get("joins") or ()]
        return cls(own, sides, joined, roles.orders)

    # Tables ---

    def _join(self, join: exp.Join, source: Source) -> Lookup:
        if any(fold(source.alias) == fold(own.alias) for own in self._sources):
            raise UsageError(f"JOIN: two tables are called {source.alias!r}; give one an alias")
        taken = {fold(name) for name in self.sides}
        for inside in map(source.inside, source.columns):
            if fold(inside) in taken:
                raise UsageError(f"JOIN: {inside!r} could be two columns; give {source.alias} another alias")
        keys = [self._share(key.name, source) for key in join.args.get("using") or ()]
        self._sources.append(source)
        self.sides |= dict.fromkeys(map(source.inside, source.columns), "qi")
        on = join.args.get("on")
        keys += [self._key(part, source) for part in conjuncts(on)] if on is not None else []
        assert source.lookup is not None  # noqa: S101 (``lookup`` gives one)
        return replace(source.lookup, keys=tuple(keys))

    def _share(self, key: str, source: Source) -> tuple[str, str]:
        """Take note of what USING makes one column: the lookup's column, and the release's."""
        own = self._source(exp.column(key))
        if own is None:
            raise _unknown(key, self._release)
        if fold(key) not in source.columns:
            raise _unknown(key, source)
        self._shared[fold(key)] = own
        return self._equal((source.columns[fold(key)], own.inside(fold(key))), source)

    def _key(self, part: exp.Expr, source: Source) -> tuple[str, str]:
        """The lookup's column, and the release's that equals it."""
        columns = [item for item in part.iter_expressions() if isinstance(item, exp.Column)]
        found = [(self._source(item), fold(item.name)) for item in columns]
        for item, (own, _) in zip(columns, found, strict=True):
            if own is None:
                raise _unknown(item.name, self._release)
        for (one, theirs), (other, ours) in (found, found[::-1]):
            if one is source and other is not None:
                return self._equal((source.columns[theirs], other.inside(ours)), source)
        return self._equal(None, source)

    def _equal(self, pair: tuple[str, str] | None, source: Source) -> tuple[str, str]:
        own = self._release.columns.values()
        if pair is None or pair[1] not in own or self.sides[pair[1]] != "qi":
            raise UsageError(f"JOIN {source.alias}: join a column of it with a quasi-identifier of the release")
        return pair

    # Names ---

    def resolved(self, select: exp.Select) -> exp.Select:
        """The query with columns under their names inside, in place of positions and aliases, too."""
        tree = select.copy()
        for clause in ("expressions", "group", "having", "order"):
            for item in _roots(tree.args.get(clause)):
                keep_text(item)
        for item in tree.expressions:
            self._bind(item, Aliased({}))
        outputs = [item.unalias() for item in tree.expressions]
        named = {fold(item.alias): item.this for item in tree.expressions if isinstance(item, exp.Alias)}
        tables = {fold(source.alias) for source in self._sources}  # a table's name means all of its columns
        rows = {name: item for name, item in named.items() if name not in tables and not list(aggregates(item))}
        self._bind(tree.args.get("where"), Aliased(rows))
        self._bind_items(tree.args.get("group"), outputs, Aliased(rows))
        self._bind_having(tree, {k: item for k, item in named.items() if k not in tables}, grouped(select))
        order = tree.args.get("order")
        for item in order.expressions if order else ():
            alone = isinstance(item.this, exp.Column) and not item.this.table and fold(item.this.name) in named
            self._bind_items(item, outputs, Aliased(named, frozenset(named) if alone else frozenset()))
        return in_order(tree, self._orders)

    def _bind_having(self, tree: exp.Select, named: Mapping[str, exp.Expr], written: set[str]) -> None:
        """HAVING; ``written``: the names that stand in GROUP BY, which are columns there."""
        clause, groups = tree.args.get("having"), tree.args.get("group")
        columns = {item.name for item in groups.find_all(exp.Column)} if groups else set()
        for item in clause.find_all(exp.Column) if clause else ():
            name = fold(item.name)
            if item.table or name in written or name not in named:
                continue
            self._source(item)  # refused where several tables have such a column
            if any(source.inside(name) in columns for source in self._sources if name in source.columns):
                raise UsageError(f"HAVING {item.name} is a column that the query groups by; use another alias")
        self._bind(clause, Aliased(named, frozenset(named) - written))

    def _bind_items(self, clause: exp.Expr | None, outputs: Sequence[exp.Expr], aliases: Aliased) -> None:
        """GROUP BY, or an item of ORDER BY, which may name outputs by their positions."""
        for item in list(clause.iter_expressions()) if clause is not None else ():
            place = position(item, len(outputs))
            if place is not None:
                if list(aggregates(outputs[place])) and not isinstance(clause, exp.Ordered):
                    raise UsageError(f"GROUP BY {text(item)}: {text(outputs[place])} is no group")
                item.replace(outputs[place].copy())
            elif isinstance(item, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
                self._bind_items(item, outputs, aliases)
        if clause is not None:
            self._bind(clause, aliases)

    def _bind(self, root: exp.Expr | None, aliases: Aliased) -> None:
        """Put the columns of an expression under their names inside, and what an alias stands for in its place."""
        added = 0
        for item in list(root.find_all(exp.Column)) if root is not None else ():
            if item.meta.get(INSIDE):
                continue
            first = not item.table and fold(item.name) in aliases.before
            source = None if first else self._source(item)
            if source is not None:
                item.replace(_inside(source.inside(fold(item.name)), item))
            elif not item.table and fold(item.name) in aliases.named:
                meant = aliases.named[fold(item.name)].copy()
                added += sum(1 for _ in meant.walk())
                item.replace(exp.paren(meant, copy=False))
            else:
                raise _unknown(item.name, self._release)
        if added > MOST:
            raise UsageError("the query is too large once its aliases are written out")

    def _source(self, item: exp.Column) -> Source | None:
        """The table that has a column; ``UsageError`` where a table is named that has not, and where several have."""
        name, prefix = fold(item.name), fold(item.table)
        own = next((source for source in self._sources if fold(source.alias) == prefix), None)
        if item.args.get("db") or (prefix and own is None):
            raise UsageError(f"column {text(item)!r} is not of {self._release.alias}")
        if own is not None:
            if name not in own.columns:
                raise _unknown(item.name, own)
            return own
        if name in self._shared:
            return self._shared[name]
        found = [source for source in self._sources if name in source.columns]
        if len(found) > 1:
            raise UsageError(f"column {item.name!r} is in several tables; write table.{item.name}")
        return found[0] if found else None


def _roots(clause: exp.Expr | list[exp.Expr] | None) -> list[exp.Expr]:
    """What messages may quote of a clause: its items, and the aggregate functions in them."""
    items = clause if isinstance(clause, list) else [clause] if clause is not None else []
    plain = [one for item in items for one in ([item.unalias()] if isinstance(clause, list) else item.expressions)]
    found = [one.this if isinstance(one, exp.Ordered) else one for one in plain]
    return [*found, *(one for item in items for one in item.find_all(exp.Filter, *AGGREGATES))]


INSIDE = "inside"


def _inside(name: str, written: exp.Column) -> exp.Column:
    """A column under its name inside, marked as such: it is not looked up again."""
    found = column(name)
    found.meta.update(written.meta)
    found.meta[INSIDE] = True
    return found


def _unknown(name: str, source: Source) -> UsageError:
    place = source.alias if source.lookup else "the release"
    return UsageError(f"column {name!r} is not in {place}; it has {', '.join(source.columns.values())}")
