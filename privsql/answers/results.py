"""Queries over the result of a count query as one count query, and UNION ALL as several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.names import (
    MAIN_SCHEMAS,
    MOST,
    SETS,
    JoinedTables,
    NameResolver,
    QueryTable,
    check_clauses,
    find_aggregates,
    has_aggregates,
    is_count,
    is_star,
    output_position,
    parse_query_text,
    parse_select,
    read_limits,
    refuse_others,
)
from privsql.answers.question import BOUNDS, WINDOWED, shorten_sql
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Results of a count query ---------------------------------------------------------------------------------------------
# A SELECT over the result of a count query, as one count query.
#
# ``WITH t AS (SELECT .. COUNT(*) AS n ..) SELECT a, 100 * n FROM t WHERE n > 5`` asks the same as the inner query with
# the outer columns in place of its own, and the outer condition in its HAVING.

LATER = ("limit", "offset")


def merge_outer(outer: exp.Select, inner: exp.Select) -> exp.Select:
    """Return a query over the result of another one in that, whose names are resolved."""
    if any(inner.args.get(key) for key in LATER):
        raise UsageError("LIMIT inside a subquery is not supported; put it at the end")
    results = {item.output_name: item.unalias() for item in inner.expressions if item.output_name}
    _resolve_outer(outer, list(results), named=len(results) == len(inner.expressions))
    coarser = _sum_results(outer, inner, results)
    if not coarser:
        _spread_aggregates(outer)
    windows = outer.find(exp.Window) is not None
    columns = list(outer.find_all(exp.Column))
    sizes = {name: sum(1 for _ in item.walk()) for name, item in results.items()}
    if sum(sizes[item.name] for item in columns) > MOST:  # each level could double what is below
        raise UsageError("the query is too large once its subqueries are written out; split it")
    for item in columns:
        item.replace(exp.paren(results[item.name].copy(), copy=False))
    where = outer.args.get("where")
    if coarser:
        inner.set("group", outer.args.get("group"))
        parts = [one.this for one in (inner.args.get("where"), where) if one is not None]
        inner.set("where", exp.Where(this=exp.and_(*parts)) if parts else None)
        inner.set("having", outer.args.get("having"))
    else:
        _merge_filters(outer, inner, windows=windows)
    inner.set("expressions", outer.expressions)
    for key in ("order", *LATER):
        inner.set(key, outer.args.get(key) or inner.args.get(key))
    if not inner.args.get("group") and not has_aggregates(inner):
        raise UsageError("the query uses no count of its subquery; run the subquery alone")
    return inner


def _resolve_outer(outer: exp.Select, results: list[str], *, named: bool) -> None:
    """Resolve the names of a query over ``results``, in place; ``named``: whether these are all columns."""
    source, clauses = outer.args["from_"].this, ("where", "group", "having", "qualify", "order", "distinct", *LATER)
    refuse_others(outer, {"expressions", "from_", *clauses})
    refuse_others(source, {"this", "alias"})
    if source.args.get("alias") is not None and source.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    names = NameResolver(JoinedTables({}), [QueryTable(source.alias_or_name, {one: column(one) for one in results})])
    star = next(filter(is_star, outer.expressions), None)
    if star is not None and not named:
        raise UsageError(f"{shorten_sql(star)} over a subquery needs a name for each of its columns; add AS")
    names.expand_stars(outer)
    check_clauses(outer, " over a result")
    items = [
        exp.alias_(one, one.name, quoted=True) if isinstance(one, exp.Column) else one for one in outer.expressions
    ]
    outer.set("expressions", items)
    outer.set("from_", None)
    names.resolve_names(outer)


def _merge_filters(outer: exp.Select, inner: exp.Select, *, windows: bool) -> None:
    """Put the conditions of a query over a result where they belong: before the window functions, or behind them.

    ``windows``: whether the query has window functions of its own.
    """
    where, late = outer.args.get("where"), any(item.find(exp.Window) for item in inner.expressions)
    late = late or inner.args.get("distinct") is not None or inner.args.get("qualify") is not None
    nested = any(one.this.find(exp.Window) for one in outer.find_all(exp.Window))
    chosen_late = where is not None if late else False
    beyond = chosen_late or any(inner.args.get(key) for key in ("distinct", "qualify"))
    if nested or (beyond and windows):
        raise UsageError("window functions over window functions are not supported; ask for the inner ones alone")
    early = [] if late else [where]
    having = [part.this for part in (inner.args.get("having"), *early) if part is not None]
    inner.set("having", exp.Having(this=exp.and_(*having)) if having else None)
    rest = [inner.args.get("qualify"), outer.args.get("qualify"), *([where] if late else [])]
    qualify = [part.this for part in rest if part is not None]
    inner.set("qualify", exp.Qualify(this=exp.and_(*qualify)) if qualify else None)
    inner.set("distinct", outer.args.get("distinct") or inner.args.get("distinct"))


def _sum_results(outer: exp.Select, inner: exp.Select, results: Mapping[str, exp.Expr]) -> bool:
    """Turn sums of counts and sums into those of fewer groups, in place, where a query asks for no others."""
    parts = [*outer.expressions, *(outer.args[key] for key in ("having", "order") if outer.args.get(key))]
    calls = find_aggregates(*parts)
    group = inner.args.get("group")
    plain = group is not None and not group.find(*SETS) and not group.args.get("all")
    beyond = any(inner.args.get(key) for key in ("having", "qualify", "distinct", "order"))
    if not calls or not plain or beyond or outer.args.get("qualify") or outer.find(exp.Window):
        return False
    outer_group = outer.args.get("group")
    if outer_group is not None and (outer_group.find(*SETS) or outer_group.args.get("all")):
        return False
    summed = [node.this.unnest() if isinstance(node, exp.Sum) else None for node in calls]
    inside = [results[one.name] if isinstance(one, exp.Column) else None for one in summed]
    if not all(isinstance(one, exp.Sum | exp.Count) and not one.find(exp.Distinct) for one in inside):
        return False
    where = outer.args.get("where")
    if where is not None and any(find_aggregates(results[one.name]) for one in where.find_all(exp.Column)):
        return False
    for node, one in zip(calls, inside, strict=True):
        total: exp.Expr = one.copy() if one is not None else node
        if isinstance(one, exp.Count) and outer_group is None:  # of no group the sum is NULL
            number = exp.Count(this=exp.Star(), big_int=True)
            nobody = exp.EQ(this=number, expression=exp.Literal.number(0))
            total = exp.Case(ifs=[exp.If(this=nobody, true=exp.null())], default=total)
        node.replace(exp.paren(total, copy=False))
    return True


def _spread_aggregates(outer: exp.Select) -> None:
    """Turn aggregate functions over a result into window functions, in place; one row of each group remains."""
    group, having = outer.args.get("group"), outer.args.get("having")
    parts = [*outer.expressions, *(outer.args[key] for key in ("having", "order") if outer.args.get(key))]
    calls = [node for node in find_aggregates(*parts) if not node.find_ancestor(exp.Window)]
    if not calls and group is None:
        return
    keys = list(group.expressions) if group is not None else []
    if group is not None and (group.args.get("all") or any(one.find(*SETS) for one in keys)):
        raise UsageError("GROUP BY over a result must list columns; ROLLUP and the like work in the count query itself")
    for node in calls:
        if not isinstance(node, WINDOWED) or node.find(exp.Distinct):
            raise UsageError(f"{shorten_sql(node)} over a result is not supported; SUM, AVG, MIN, MAX and COUNT(*) are")
        node.replace(exp.Window(this=node.copy(), partition_by=[key.copy() for key in keys]))
    outer.set("distinct", exp.Distinct(on=exp.Tuple(expressions=[key.copy() for key in keys])))
    outer.set("qualify", exp.Qualify(this=having.this) if having is not None else outer.args.get("qualify"))
    outer.set("having", None)
    outer.set("group", None)


# UNION ALL ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnionParts:
    """The queries that UNION ALL joins, and what is made of their rows: (place, descending) pairs, LIMIT, OFFSET."""

    queries: tuple[str, ...]
    order: tuple[tuple[int, bool], ...] = ()
    limit: int | None = None
    offset: int = 0


def split_union(sql: str) -> UnionParts:
    """Return the parts of UNION ALL; a query by itself is one."""
    tree = parse_query_text(sql)
    if not isinstance(tree, exp.Union):
        return UnionParts((sql,))
    queries, rest = list[str](), list[exp.Expr]([tree])
    clause = tree.args.get("with_")
    while rest:
        node = rest.pop()
        if isinstance(node, exp.Union):
            if node.args.get("distinct"):
                raise UsageError("UNION is not supported; write UNION ALL, which keeps every row")
            rest += [node.expression, node.this]
        elif isinstance(node, exp.Subquery) and not node.alias:
            rest.append(node.this)
        else:
            if clause is not None and isinstance(node, exp.Select):
                node.set("with_", clause.copy())
            queries.append(node.sql(DIALECT))
    first = parse_select(queries[0])
    limits = read_limits(tree)
    return UnionParts(tuple(queries), tuple(_union_order(tree, first)), limits["limit"], limits["offset"] or 0)


def _union_order(tree: exp.Query, first: exp.Select) -> Iterator[tuple[int, bool]]:
    """Yield the columns by which rows of UNION ALL are sorted, with whether the largest comes first."""
    names = [fold_name(item.output_name) for item in first.expressions]
    order = tree.args.get("order")
    for item in order.expressions if order else ():
        place = output_position(item.this, len(names))
        if place is None and isinstance(item.this, exp.Column) and fold_name(item.this.name) in names:
            place = names.index(fold_name(item.this.name))
        if place is None:
            raise UsageError(f"ORDER BY {shorten_sql(item.this)} is not supported over UNION ALL; name a column")
        yield place, bool(item.args.get("desc"))


# Groups of items ------------------------------------------------------------------------------------------------------

FORM = "unnest({}) AS item and COUNT(*) by GROUP BY item, with WHERE on records, ORDER BY and LIMIT, work"


@dataclass(frozen=True)
class ItemGroups:
    """A count of records by item: whether the item comes first, the condition on records, and ORDER BY and LIMIT."""

    item_first: bool
    where: exp.Expr | None
    rows: UnionParts


def split_items(sql: str, release: str, items: str) -> ItemGroups | None:
    """Return a query that counts the records of each item; None for one that does not unnest any."""
    tree = parse_query_text(sql)
    if not isinstance(tree, exp.Select) or not tree.find(exp.Explode, exp.Unnest):
        return None
    works = FORM.format(items)
    refuse_others(tree, {"expressions", "from_", "joins", "where", "group", "order", "limit", "offset"})
    name, where = _find_unnested(tree, release, items, works)
    places = [at for at, item in enumerate(tree.expressions) if _is_item(item.unalias(), name, items)]
    counts = [at for at, item in enumerate(tree.expressions) if is_count(item.unalias())]
    group = tree.args.get("group")
    keys = group.expressions if group else []
    by_item = len(keys) == 1 and places and (
        _is_item(keys[0], name, items) or output_position(keys[0], len(tree.expressions)) == places[0]
    )  # fmt: skip
    by_item = by_item and not (where is not None and any(_is_item(one, name, "") for one in where.find_all(exp.Column)))
    if len(tree.expressions) != 2 or len(places) != 1 or len(counts) != 1 or not by_item:
        raise UsageError(f"{shorten_sql(tree)}: a list of items has one COUNT(*) by item; {works}")
    limits, order = read_limits(tree), tuple(_union_order(tree, tree))
    return ItemGroups(places[0] == 0, where, UnionParts((), order, limits["limit"], limits["offset"] or 0))


def _find_unnested(tree: exp.Select, release: str, items: str, works: str) -> tuple[str, exp.Expr | None]:
    """Return the name of the items in a query, and the condition on records."""
    source, joins = tree.args["from_"].this if tree.args.get("from_") else None, tree.args.get("joins") or []
    where = tree.args.get("where")
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select) and not joins and where is None:
        inner = source.this
        refuse_others(inner, {"expressions", "from_", "where"})
        source, where = inner.args["from_"].this if inner.args.get("from_") else None, inner.args.get("where")
        names = [one.alias for one in inner.expressions if _is_item(one.unalias(), "", items)]
        names = names if len(inner.expressions) == 1 else []
    elif joins:
        unnested = joins[0].this if len(joins) == 1 and isinstance(joins[0].this, exp.Unnest) else None
        held = unnested is not None and [one.name for one in unnested.expressions] == [items]
        names = list(unnested.alias_column_names) if held and unnested is not None else []
    else:
        names = [one.alias for one in tree.expressions if _is_item(one.unalias(), "", items)]
    plain = isinstance(source, exp.Table) and fold_name(source.name) == fold_name(release)
    if len(names) != 1 or not names[0] or not plain:
        raise UsageError(f"{shorten_sql(tree)} is not supported for item sets; {works}")
    return names[0], where.this if where else None


def _is_item(node: exp.Expr, name: str, items: str) -> bool:
    """Return whether an expression is an item of a record: unnest(items), or a column of that name."""
    if isinstance(node, exp.Explode):
        return isinstance(node.this, exp.Column) and fold_name(node.this.name) == fold_name(items)
    return bool(name) and isinstance(node, exp.Column) and fold_name(node.name) == fold_name(name)


def as_described(sql: str, release: str) -> str:
    """Return a query as an engine can describe it, which knows no schema of tools and no function of bounds."""
    if not any(word in fold_name(sql) for word in (*MAIN_SCHEMAS, *BOUNDS)):
        return sql
    tree = parse_select(sql)
    for one in list(tree.find_all(exp.Table, exp.Column, exp.Anonymous)):
        if isinstance(one, exp.Anonymous):
            if one.name.lower() in BOUNDS and len(one.expressions) == 1:
                one.replace(exp.cast(one.expressions[0], "DOUBLE"))
            continue
        named = isinstance(one, exp.Column) or fold_name(one.name) == fold_name(release)
        if named and fold_name(one.args["db"].name if one.args.get("db") else "") in MAIN_SCHEMAS:
            one.set("db", None)
            one.set("catalog", None)
    return tree.sql(DIALECT)
