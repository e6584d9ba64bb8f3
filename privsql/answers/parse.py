"""An analyst's SQL read as questions, or refused by name. Nothing that is not understood is ever answered.

A query is  SELECT expressions FROM release [[LEFT] JOIN lookup ON ..] [WHERE ..] [GROUP BY expressions] [HAVING ..]
[ORDER BY ..] [LIMIT ..]. An expression of pure functions over quasi-identifiers is a quasi-identifier itself, one over
sensitive columns a sensitive column. The condition may be any Boolean combination of such; it is split into parts on
one side alone and a rest over named terms (q_0.., s_0..), one per largest one-sided part, so that each side can be
summed up by itself. What stands around aggregate functions and groups is evaluated on their answers.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers import nested, statement
from privsql.answers.aggregates import Aggregates
from privsql.answers.asked import Output, Scope, Statement
from privsql.answers.conditions import sides_of
from privsql.answers.functions import AGGREGATES, forget, text
from privsql.answers.names import Names
from privsql.answers.question import Group
from privsql.engine.names import fold
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from privsql.answers.sources import Lookups
    from privsql.engine.roles import Roles

MOST_ASKED = 64  # aggregate functions of one query: each is a question of its own
MOST_TOGETHER = 256  # of those, over all grouping sets
MOST_SETS = 64  # grouping sets of one query: CUBE of six columns
Sets = list[tuple[exp.Expr, ...]]


def read(
    sql: str, roles: Roles, release: str, lookups: Lookups | None = None, measures: Collection[str] = ()
) -> Statement:
    """Take a query apart; ``UsageError`` names what is not supported.

    ``lookups``: the tables that may be joined to the release; ``measures``: which of sum,
    avg, min and max of a sensitive column the release can tell.

    >>> from privsql.engine.roles import Field, Roles
    >>> roles = Roles((Field("age", "INTEGER"),), (Field("job", "VARCHAR"),))
    >>> query = read("SELECT COUNT(*) FROM t WHERE age > 30 AND job = 1", roles, "t").questions[0]
    >>> [part.sql() for part in query.filters["qi"]], [part.sql() for part in query.filters["sa"]]
    (['"age" > 30'], ['"job" = 1'])
    """
    with statement.reading(sql):
        tree, names = nested.resolved(
            statement.parsed(sql), lambda select: _understood(statement.from_last(select), roles, release, lookups)
        )
        forget(tree)
        return _Reader(tree, names, roles, measures).statement()


def _understood(select: exp.Select, roles: Roles, release: str, lookups: Lookups | None) -> tuple[exp.Select, Names]:
    """A count query with its names resolved, and what they mean."""
    statement.refuse_others(select, statement.CLAUSES)
    names = Names.of(select, roles, release, lookups)
    statement.check(select)
    return names.resolved(select), names


class _Reader:
    """What a query asks; ``tree`` has its names resolved."""

    def __init__(self, tree: exp.Select, names: Names, roles: Roles, told: Collection[str]) -> None:
        self._tree, self._names = tree, names
        self._types = {field.name: field.type for field in (*roles.quasi_identifiers, *roles.sensitive)}
        self._aggregates = Aggregates(names.sides, self._types, told)
        self._groups: dict[exp.Expr, int] = {}
        self._sets = self._grouped()

    def statement(self) -> Statement:
        """All of it."""
        where, having = self._tree.args.get("where"), self._tree.args.get("having")
        outputs = tuple(self._outputs())
        over = self._over(having.this, "HAVING") if having else None
        order = tuple(self._order(outputs))
        groups = tuple(self._group(own) for own in self._groups)
        asked = Statement(
            Scope(groups, where.this if where else None, self._names.joined, self._names.sides),
            self._sets,
            tuple(self._aggregates.asked),
            outputs,
            over,
            order,
            **statement.limits(self._tree),
        )
        if len(asked.asked) > MOST_ASKED or len(asked.asked) * len(asked.sets) > MOST_TOGETHER:
            raise UsageError(
                f"more than {MOST_ASKED} aggregate functions are not supported, nor {MOST_TOGETHER} over grouping sets"
            )
        return asked.checked()

    def _group(self, own: exp.Expr) -> Group:
        sides = sides_of(own, self._names.sides)
        if len(sides) != 1:
            why = "quasi-identifiers and sensitive columns together are" if sides else "a constant is"
            raise UsageError(f"GROUP BY {text(own)}: {why} not supported")
        return Group(next(iter(sides)), own, self._types.get(own.name, "VARCHAR"))

    # GROUP BY ---

    def _grouped(self) -> tuple[tuple[int, ...], ...]:
        """The grouping sets, by the numbers of their groups."""
        clause = self._tree.args.get("group")
        if clause is None:
            return ((),)
        items = clause.expressions
        if clause.args.get("all"):
            items = [item.unalias() for item in self._tree.expressions]
            items = [item for item in items if not list(statement.aggregates(item))]
            items = [item for item in items if any(item.find_all(exp.Column))] or items
        sets: Sets = [()]
        for item in items:
            sets = [left + right for left in sets for right in _sets(item)]
            if len(sets) > MOST_SETS:
                raise UsageError(f"GROUP BY asks for more than {MOST_SETS} grouping sets")
        return tuple(tuple(dict.fromkeys(self._rank(own) for own in one)) for one in sets)

    def _rank(self, own: exp.Expr) -> int:
        found = self._groups.setdefault(own.unnest(), len(self._groups))
        self._group(own.unnest())
        return found

    # What is made of the answers ---

    def _outputs(self) -> Iterator[Output]:
        names = set()
        for item in self._tree.expressions:
            title = fold(item.output_name)
            if title and title in names:
                raise UsageError(f"two columns of the answer are called {item.output_name!r}; give one an alias")
            names.add(title)
            yield Output(item.alias, self._over(item.unalias(), "SELECT"), text(item.unalias()))

    def _over(self, root: exp.Expr, clause: str) -> exp.Expr:
        """An expression with groups and aggregate functions as columns of the answer."""
        kinds = {type(own) for own in self._groups}

        def rename(node: exp.Expr) -> exp.Expr:
            if type(node) in kinds and node in self._groups:
                return column(f"g_{self._groups[node]}")
            if isinstance(node, (exp.Filter, *AGGREGATES)):
                return self._aggregates.expression(node, lambda number: column(f"a_{number}"))
            if isinstance(node, exp.Column):
                where = "; use WHERE" if clause == "HAVING" else ""
                raise UsageError(
                    f"{clause} {text(root)}: column {node.name!r} must stand in GROUP BY, or in COUNT or SUM{where}"
                )
            return node

        return root.copy().transform(rename)

    def _order(self, outputs: Sequence[Output]) -> Iterator[exp.Ordered]:
        """ORDER BY over the answer's columns."""
        clause = self._tree.args.get("order")
        for item in clause.expressions if clause else ():
            keys = [self._over(item.this, "ORDER BY")]
            if isinstance(item.this, exp.Var) and item.this.name.upper() == "ALL":
                keys = [output.expression for output in outputs]
            for key in keys:
                if not any(key.find_all(exp.Column)):
                    raise UsageError(f"ORDER BY {text(item.this)}: by a constant nothing is sorted")
                yield exp.Ordered(**{**item.args, "this": key.copy()})


def _sets(item: exp.Expr) -> Sets:
    """The grouping sets of an item of GROUP BY."""
    parts = item.expressions
    if isinstance(item, exp.GroupingSets):
        return [one for part in parts for one in _sets(part)]
    if isinstance(item, exp.Rollup | exp.Cube):
        units = [_unit(part) for part in parts]
        once = {own for unit in units for own in unit}
        if len(once) < sum(map(len, units)):
            raise UsageError(f"GROUP BY {text(item)}: the same expression twice is not supported")
        chosen = (
            [range(n) for n in range(len(units), -1, -1)]
            if isinstance(item, exp.Rollup)
            else [one for n in range(len(units), -1, -1) for one in itertools.combinations(range(len(units)), n)]
            if 2 ** len(units) <= MOST_SETS
            else [()] * (MOST_SETS + 1)
        )
        return [tuple(own for i in one for own in units[i]) for one in chosen]
    return [_unit(item)]


def _unit(item: exp.Expr) -> tuple[exp.Expr, ...]:
    return tuple(item.expressions) if isinstance(item, exp.Tuple) else (item.unnest(),)
