"""An analyst's SQL read as a count query, or refused by name. Nothing that is not understood is ever answered.

A query is  SELECT [columns,] COUNT(*) FROM release [JOIN lookup ON ..] [WHERE ..] [GROUP BY columns] [HAVING ..]
[ORDER BY ..] [LIMIT ..], with SUM or AVG of a numeric quasi-identifier in place of COUNT(*) if wanted.
The condition may be any Boolean combination of comparisons; each comparison is about quasi-identifiers or about
sensitive columns, never both. It is split into parts on one side alone and a rest over named terms (q_0.., s_0..), one
per largest one-sided part, so that each side can be summed up by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers import statement
from privsql.answers.conditions import split
from privsql.answers.names import Names
from privsql.answers.question import COUNT, CountQuery, Group, Measure
from privsql.answers.statement import MEASURES, is_measure, text
from privsql.engine.names import fold
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from privsql.answers.names import Lookups
    from privsql.engine.roles import Roles

NUMERIC = "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL"


def read(
    sql: str, roles: Roles, release: str, lookups: Lookups | None = None, measures: Collection[str] = ()
) -> CountQuery:
    """Take a query apart; ``UsageError`` names what is not supported.

    ``lookups``: the tables that may be joined to the release; ``measures``: which of sum,
    avg, min and max of a sensitive column the release can tell.

    >>> from privsql.engine.roles import Field, Roles
    >>> roles = Roles((Field("age", "INTEGER"),), (Field("job", "VARCHAR"),))
    >>> query = read("SELECT COUNT(*) FROM t WHERE age > 30 AND job = 1", roles, "t")
    >>> [part.sql() for part in query.filters["qi"]], [part.sql() for part in query.filters["sa"]]
    (['"age" > 30'], ['"job" = 1'])
    """
    with statement.reading(sql):
        select = statement.parsed(sql)
        names = Names(select, roles, release, lookups)
        statement.check(select)
        names.check(select)
        return _Reader(select, names, roles, measures).query()


class _Reader:
    """What a query asks; ``select`` is as it was written, for messages, and ``tree`` has its names resolved."""

    def __init__(self, select: exp.Select, names: Names, roles: Roles, told: Collection[str]) -> None:
        self._select, self._names, self._told = select, names, told
        self._tree = names.resolved(select)
        self._types = {field.name: field.type for field in (*roles.quasi_identifiers, *roles.sensitive)}
        items = [item.this for item in self._tree.expressions]
        self._outputs = list(zip(items, statement.titles(select), strict=True))
        self._measured = next(item for item in items if is_measure(item))
        self._groups = self._grouped()

    def query(self) -> CountQuery:
        """All of it."""
        where = self._tree.args.get("where")
        filters, terms, predicate = split(where.this if where else None, self._names.sides)
        asked = CountQuery(
            groups=tuple(self._groups.values()),
            filters=filters,
            terms=terms,
            predicate=predicate,
            shown=tuple(self._shown()),
            measure=self._measure(),
            lookups=self._names.joined(self._tree),
            having=self._having(),
            order=tuple(self._order()),
            **statement.limits(self._select),
        )
        return asked if asked.is_exact else asked.told_apart()

    def _both(self, clause: str) -> Iterator[tuple[exp.Expr, exp.Expr]]:
        """The items of a clause as written and resolved."""
        if self._select.args.get(clause):
            yield from zip(self._select.args[clause].expressions, self._tree.args[clause].expressions, strict=True)

    def _measure(self) -> Measure:
        """COUNT(*), or SUM, AVG and the like of a numeric column."""
        kind, name = MEASURES[type(self._measured)], self._measured.this.name
        if kind == "count":
            return Measure()
        written = text(next(item.unalias() for item in self._select.expressions if is_measure(item.unalias())))
        side, known = self._names.sides[name], self._types.get(name, "")
        if side == "qi" and kind in ("min", "max"):
            raise UsageError(f"{written} is not supported; select columns and COUNT(*)")
        if not known or (side == "sa" and kind not in self._told):
            raise UsageError(f"{written}: only quasi-identifiers of the release can be added up")
        if known.split("(")[0] not in NUMERIC.split():
            raise UsageError(f"{written}: {name} is {known}, not a number")
        return Measure(kind, name, side)

    def _grouped(self) -> dict[str, Group]:
        """The columns of GROUP BY by name, called as the answer calls them; g_0, .. where it does not show them."""
        shown = {item.name: name for item, name in self._outputs if isinstance(item, exp.Column)}
        found: dict[str, Group] = {}
        for written, item in self._both("group"):
            if not isinstance(item, exp.Column):
                raise statement.not_grouped(written)
            output, known = shown.get(item.name, f"g_{len(found)}"), self._types.get(item.name, "VARCHAR")
            found.setdefault(item.name, Group(self._names.sides[item.name], item.name, output, known))
        return found

    def _shown(self) -> Iterator[tuple[Group | None, str]]:
        """The answer's columns in order: a group, or None for what is measured, and the name."""
        for item, name in self._outputs:
            if item is not self._measured and item.name not in self._groups:
                raise UsageError(f"column {item.name!r} must stand in GROUP BY")
            yield None if item is self._measured else self._groups[item.name], name

    def _having(self) -> exp.Expr | None:
        """HAVING over the answer's count and groups."""
        places = {name: f"g_{i}" for i, name in enumerate(self._groups)}
        written, clause = self._select.args.get("having"), self._tree.args.get("having")
        for item in written.find_all(exp.Column) if written else ():
            if self._names.called(item.name) in self._groups and fold(item.name) not in statement.grouped(self._select):
                raise UsageError(f"HAVING {item.name} is a column that the query groups by; use another alias")

        def rename(node: exp.Expr) -> exp.Expr:
            if node == self._measured:
                return column(COUNT)
            if isinstance(node, exp.Column) and node.name in places:
                return column(places[node.name])
            if isinstance(node, exp.Column | exp.AggFunc | exp.Star):
                raise UsageError(f"HAVING {text(node)} is not what the query asks for")
            return node

        return clause.this.transform(rename) if clause else None

    def _order(self) -> Iterator[exp.Ordered]:
        """ORDER BY over the answer's columns."""
        places = {name: f"g_{i}" for i, name in enumerate(self._groups)}
        for written, item in self._both("order"):
            key = COUNT if item.this == self._measured else places.get(item.this.name)
            if key is None:
                raise statement.not_ordered(written.this)
            yield exp.Ordered(**{**item.args, "this": column(key)})
