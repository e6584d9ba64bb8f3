"""A SELECT over the result of a count query, as one count query.

``WITH t AS (SELECT .. COUNT(*) AS n ..) SELECT a, 100 * n FROM t WHERE n > 5`` asks the same as the inner query with
the outer columns in place of its own, and the outer condition in its HAVING. What adds up rows of a result, or takes
the first of them before others are left out, is no count query and refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers import statement
from privsql.answers.functions import check, short
from privsql.answers.names import MOST, Names
from privsql.answers.sources import Source
from privsql.engine.names import fold
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Own = Callable[[exp.Select], tuple[exp.Select, Names]]
    Queries = Mapping[str, tuple[exp.Select, Any]]

LATER = ("limit", "offset")


def resolved(select: exp.Select, own: Own, known: Queries | None = None) -> tuple[exp.Select, Names]:
    """The query with its names resolved by ``own``, and what they mean; a SELECT over a result as one with it.

    ``known``: the queries that WITH has named before, each with those that it may read itself.
    """
    queries: dict[str, Any] = dict(known or {})
    clause = select.args.get("with_")
    for one in clause.expressions if isinstance(clause, exp.With) else ():
        queries[fold(one.alias)] = (_named(one), dict(queries))
    select.set("with_", None)
    source = select.args["from_"].this if select.args.get("from_") else None
    inner = (source.this, queries) if isinstance(source, exp.Subquery) else None
    if isinstance(source, exp.Table) and not source.db:
        inner = queries.get(fold(source.name))
    if inner is None or source is None or not isinstance(inner[0], exp.Select):
        return own(select)
    _refuse_groups(select)
    statement.refuse_others(select, {"expressions", "from_", "where", "order", *LATER})
    statement.refuse_others(source, {"this", "alias"})
    if source.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    tree, names = resolved(inner[0].copy(), own, inner[1])
    return _joined(select, source.alias_or_name, tree), names


def _named(one: exp.CTE) -> exp.Select:
    """The query that WITH gives a name."""
    recursive = isinstance(one.parent, exp.With) and one.parent.args.get("recursive")
    if recursive or not isinstance(one.this, exp.Select) or one.args["alias"].columns:
        raise UsageError("WITH: count queries can stand there, neither recursive nor with other names of columns")
    return one.this


def _refuse_groups(select: exp.Select) -> None:
    """``UsageError`` for what adds up rows of a result, which is no count query."""
    asked = [node for item in select.expressions for node in statement.aggregates(item)]
    if select.args.get("group") or asked:
        what = "GROUP BY" if select.args.get("group") else short(asked[0])
        raise UsageError(f"{what} over a result is not supported; ask for COUNT(*) by fewer columns in place of it")


def _joined(outer: exp.Select, alias: str, inner: exp.Select) -> exp.Select:
    """Outer columns over inner ones, in the inner query, whose names are resolved."""
    if any(inner.args.get(key) for key in LATER):
        raise UsageError("LIMIT inside a subquery is not supported; put it at the end")
    given = {item.output_name: item.unalias() for item in inner.expressions if item.output_name}
    outer.set("from_", None)
    _unfold(outer, list(given), len(inner.expressions))
    for clause, items in _clauses(outer).items():
        for item in items:
            check(f"{clause} over a result", item)
    outer = Names(Source(alias, {fold(name): name for name in given}), {}).resolved(outer)
    columns = list(outer.find_all(exp.Column))
    sizes = {name: sum(1 for _ in item.walk()) for name, item in given.items()}
    if sum(sizes[item.name] for item in columns) > MOST:  # each level could double what is below
        raise UsageError("the query is too large once its subqueries are written out")
    for item in columns:
        item.replace(exp.paren(given[item.name].copy(), copy=False))
    having = [part.this for part in (inner.args.get("having"), outer.args.get("where")) if part is not None]
    inner.set("expressions", outer.expressions)
    inner.set("having", exp.Having(this=exp.and_(*having)) if having else None)
    for key in ("order", *LATER):
        inner.set(key, outer.args.get(key) or inner.args.get(key))
    return inner


def _unfold(outer: exp.Select, names: list[str], number: int) -> None:
    """Columns in place of *, each under its name."""
    if len(outer.expressions) == 1 and isinstance(outer.expressions[0], exp.Star):
        star = outer.expressions[0]
        if any(star.args.values()) or len(names) < number:
            raise UsageError(f"{short(star)} over a result needs names of its own for all columns of that")
        outer.set("expressions", [column(name) for name in names])
    named = [exp.alias_(i, i.name, quoted=True) if isinstance(i, exp.Column) else i for i in outer.expressions]
    outer.set("expressions", named)


def _clauses(outer: exp.Select) -> dict[str, list[exp.Expr]]:
    """What may stand in each clause of a query over a result, to be checked."""
    where, order = outer.args.get("where"), outer.args.get("order")
    keys = [item.this for item in order.expressions] if order else []
    return {
        "SELECT": [item.unalias() for item in outer.expressions],
        "WHERE": [where.this] if where else [],
        "ORDER BY": [key for key in keys if not isinstance(key, exp.Var)],
    }
