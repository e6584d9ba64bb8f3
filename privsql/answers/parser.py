"""Parse an analyst's SQL into questions, for tables and for item sets; refuse by name what is not understood."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.aggregates import AggregateCall, Aggregates, Output, Scope, Statement
from privsql.answers.names import (
    CLAUSES,
    MOST,
    NameResolver,
    QueryTable,
    check_clauses,
    find_aggregates,
    from_last,
    is_count,
    parse_select,
    read_limits,
    refuse_bad_text,
    refuse_others,
    sides_of,
)
from privsql.answers.question import (
    AGGREGATES,
    COMPARISONS,
    CONNECTIVES,
    Group,
    Measure,
    as_written,
    check_kinds,
    forget_positions,
    shorten_sql,
)
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from privsql.answers.names import Lookups
    from privsql.engine.roles import Roles

    Resolver = Callable[[exp.Select], tuple[exp.Select, NameResolver]]
    Queries = Mapping[str, tuple[exp.Select, Any]]

# Nested SELECTs -------------------------------------------------------------------------------------------------------
# A SELECT over the result of a count query, as one count query.
#
# ``WITH t AS (SELECT .. COUNT(*) AS n ..) SELECT a, 100 * n FROM t WHERE n > 5`` asks the same as the inner query with
# the outer columns in place of its own, and the outer condition in its HAVING. A query that sums the rows of a result,
# or filters after LIMIT, is no count query and refused.

LATER = ("limit", "offset")


def resolve_nested(
    select: exp.Select, resolve: Resolver, known: Queries | None = None
) -> tuple[exp.Select, NameResolver]:
    """Resolve the names of a query by ``resolve``, and merge a SELECT over a result with it.

    ``known``: the queries that WITH has named before, each with those that it may read itself.
    """
    queries: dict[str, Any] = dict(known or {})
    clause = select.args.get("with_")
    for one in clause.expressions if isinstance(clause, exp.With) else ():
        queries[fold_name(one.alias)] = (_read_cte(one), dict(queries))
    select.set("with_", None)
    source = select.args["from_"].this if select.args.get("from_") else None
    inner = (source.this, queries) if isinstance(source, exp.Subquery) else None
    if isinstance(source, exp.Table) and not source.db:
        inner = queries.get(fold_name(source.name))
    if inner is None or source is None or not isinstance(inner[0], exp.Select):
        return resolve(select)
    _refuse_groups(select)
    refuse_others(select, {"expressions", "from_", "where", "order", *LATER})
    refuse_others(source, {"this", "alias"})
    if source.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    tree, names = resolve_nested(inner[0].copy(), resolve, inner[1])
    return _merge_outer(select, source.alias_or_name, tree), names


def _read_cte(one: exp.CTE) -> exp.Select:
    """Return the query that WITH gives a name."""
    recursive = isinstance(one.parent, exp.With) and one.parent.args.get("recursive")
    if recursive or not isinstance(one.this, exp.Select) or one.args["alias"].columns:
        raise UsageError("WITH: count queries can stand there, neither recursive nor with other names of columns")
    return one.this


def _refuse_groups(select: exp.Select) -> None:
    """Raise ``UsageError`` for what adds up rows of a result, which is no count query."""
    calls = [node for item in select.expressions for node in find_aggregates(item)]
    if select.args.get("group") or calls:
        what = "GROUP BY" if select.args.get("group") else shorten_sql(calls[0])
        raise UsageError(f"{what} over a result is not supported; ask for COUNT(*) by fewer columns in place of it")


def _merge_outer(outer: exp.Select, alias: str, inner: exp.Select) -> exp.Select:
    """Outer columns over inner ones, in the inner query, whose names are resolved."""
    if any(inner.args.get(key) for key in LATER):
        raise UsageError("LIMIT inside a subquery is not supported; put it at the end")
    results = {item.output_name: item.unalias() for item in inner.expressions if item.output_name}
    outer.set("from_", None)
    _expand_star(outer, list(results), len(inner.expressions))
    for clause, items in _list_clauses(outer).items():
        for item in items:
            check_kinds(f"{clause} over a result", item)
    outer = NameResolver(QueryTable(alias, {fold_name(name): name for name in results}), {}).resolve_names(outer)
    columns = list(outer.find_all(exp.Column))
    sizes = {name: sum(1 for _ in item.walk()) for name, item in results.items()}
    if sum(sizes[item.name] for item in columns) > MOST:  # each level could double what is below
        raise UsageError("the query is too large once its subqueries are written out")
    for item in columns:
        item.replace(exp.paren(results[item.name].copy(), copy=False))
    having = [part.this for part in (inner.args.get("having"), outer.args.get("where")) if part is not None]
    inner.set("expressions", outer.expressions)
    inner.set("having", exp.Having(this=exp.and_(*having)) if having else None)
    for key in ("order", *LATER):
        inner.set(key, outer.args.get(key) or inner.args.get(key))
    return inner


def _expand_star(outer: exp.Select, names: list[str], number: int) -> None:
    """Columns in place of *, each under its name."""
    if len(outer.expressions) == 1 and isinstance(outer.expressions[0], exp.Star):
        star = outer.expressions[0]
        if any(star.args.values()) or len(names) < number:
            raise UsageError(f"{shorten_sql(star)} over a result needs names of its own for all columns of that")
        outer.set("expressions", [column(name) for name in names])
    named = [exp.alias_(i, i.name, quoted=True) if isinstance(i, exp.Column) else i for i in outer.expressions]
    outer.set("expressions", named)


def _list_clauses(outer: exp.Select) -> dict[str, list[exp.Expr]]:
    """Return what may stand in each clause of a query over a result, to be checked."""
    where, order = outer.args.get("where"), outer.args.get("order")
    keys = [item.this for item in order.expressions] if order else []
    return {
        "SELECT": [item.unalias() for item in outer.expressions],
        "WHERE": [where.this] if where else [],
        "ORDER BY": [key for key in keys if not isinstance(key, exp.Var)],
    }


# Tables ---------------------------------------------------------------------------------------------------------------
# Read an analyst's SQL as questions, or refuse it by name. Nothing that is not understood is ever answered.
#
# A query is SELECT expressions FROM release [[LEFT] JOIN lookup ON ..] [WHERE ..] [GROUP BY expressions] [HAVING ..]
# [ORDER BY ..] [LIMIT ..]. An expression of pure functions over quasi-identifiers is a quasi-identifier itself, one
# over sensitive columns a sensitive column. The condition may be any Boolean combination of such; it is split into
# parts on one side alone and a rest over named terms (q_0.., s_0..), one per largest one-sided part, so that each side
# can be summed up by itself. Expressions around aggregate functions and groups are evaluated on their answers.

MOST_ASKED = 64  # aggregate functions of one query: each is a question of its own
MOST_TOGETHER = 256  # of those, over all grouping sets
MOST_SETS = 64  # grouping sets of one query: CUBE of six columns
Sets = list[tuple[exp.Expr, ...]]


def parse_query(
    sql: str, roles: Roles, release: str, lookups: Lookups | None = None, measures: Collection[str] = ()
) -> Statement:
    """Take a query apart; ``UsageError`` names what is not supported.

    ``lookups``: the tables that may be joined to the release; ``measures``: which of sum,
    avg, min and max of a sensitive column the release can tell.

    >>> from privsql.engine.roles import Field, Roles
    >>> roles = Roles((Field("age", "INTEGER"),), (Field("job", "VARCHAR"),))
    >>> query = parse_query("SELECT COUNT(*) FROM t WHERE age > 30 AND job = 1", roles, "t").questions[0]
    >>> [part.sql() for part in query.filters["qi"]], [part.sql() for part in query.filters["sa"]]
    (['"age" > 30'], ['"job" = 1'])
    """
    with refuse_bad_text(sql):
        tree, names = resolve_nested(
            parse_select(sql), lambda select: _resolve_select(from_last(select), roles, release, lookups)
        )
        forget_positions(tree)
        return _QueryReader(tree, names, roles, measures).read_statement()


def _resolve_select(
    select: exp.Select, roles: Roles, release: str, lookups: Lookups | None
) -> tuple[exp.Select, NameResolver]:
    """Return a count query with its names resolved, and what they mean."""
    refuse_others(select, CLAUSES)
    names = NameResolver.from_select(select, roles, release, lookups)
    check_clauses(select)
    return names.resolve_names(select), names


class _QueryReader:
    """What a query asks; ``tree`` has its names resolved."""

    def __init__(self, tree: exp.Select, names: NameResolver, roles: Roles, measures: Collection[str]) -> None:
        self._tree, self._names = tree, names
        self._types = {field.name: field.type for field in (*roles.quasi_identifiers, *roles.sensitive)}
        self._aggregates = Aggregates(names.sides, self._types, measures)
        self._groups: dict[exp.Expr, int] = {}
        self._sets = self._grouping_sets()

    def read_statement(self) -> Statement:
        """Return all of it."""
        where, having = self._tree.args.get("where"), self._tree.args.get("having")
        outputs = tuple(self._read_outputs())
        over = self._over_answer(having.this, "HAVING") if having else None
        order = tuple(self._read_order(outputs))
        groups = tuple(self._make_group(expression) for expression in self._groups)
        statement = Statement(
            Scope(groups, where.this if where else None, self._names.joined, self._names.sides),
            self._sets,
            tuple(self._aggregates.asked),
            outputs,
            over,
            order,
            **read_limits(self._tree),
        )
        if len(statement.calls) > MOST_ASKED or len(statement.calls) * len(statement.sets) > MOST_TOGETHER:
            raise UsageError(
                f"more than {MOST_ASKED} aggregate functions are not supported, nor {MOST_TOGETHER} over grouping sets"
            )
        return statement.require_splittable()

    def _make_group(self, expression: exp.Expr) -> Group:
        sides = sides_of(expression, self._names.sides)
        if len(sides) != 1:
            why = "quasi-identifiers and sensitive columns together are" if sides else "a constant is"
            raise UsageError(f"GROUP BY {as_written(expression)}: {why} not supported")
        return Group(next(iter(sides)), expression, self._types.get(expression.name, "VARCHAR"))

    # GROUP BY ---

    def _grouping_sets(self) -> tuple[tuple[int, ...], ...]:
        """Return the grouping sets, by the numbers of their groups."""
        clause = self._tree.args.get("group")
        if clause is None:
            return ((),)
        items = clause.expressions
        if clause.args.get("all"):
            items = [item.unalias() for item in self._tree.expressions]
            items = [item for item in items if not list(find_aggregates(item))]
            items = [item for item in items if any(item.find_all(exp.Column))] or items
        sets: Sets = [()]
        for item in items:
            sets = [left + right for left in sets for right in _list_sets(item)]
            if len(sets) > MOST_SETS:
                raise UsageError(f"GROUP BY asks for more than {MOST_SETS} grouping sets")
        return tuple(tuple(dict.fromkeys(self._rank_group(expression) for expression in one)) for one in sets)

    def _rank_group(self, expression: exp.Expr) -> int:
        rank = self._groups.setdefault(expression.unnest(), len(self._groups))
        self._make_group(expression.unnest())
        return rank

    # What is made of the answers ---

    def _read_outputs(self) -> Iterator[Output]:
        names = set()
        for item in self._tree.expressions:
            title = fold_name(item.output_name)
            if title and title in names:
                raise UsageError(f"two columns of the answer are called {item.output_name!r}; give one an alias")
            names.add(title)
            yield Output(item.alias, self._over_answer(item.unalias(), "SELECT"), as_written(item.unalias()))

    def _over_answer(self, root: exp.Expr, clause: str) -> exp.Expr:
        """Return an expression with groups and aggregate functions as columns of the answer."""
        kinds = {type(group) for group in self._groups}

        def rename(node: exp.Expr) -> exp.Expr:
            if type(node) in kinds and node in self._groups:
                return column(f"g_{self._groups[node]}")
            if isinstance(node, (exp.Filter, *AGGREGATES)):
                return self._aggregates.as_expression(node, lambda number: column(f"a_{number}"))
            if isinstance(node, exp.Column):
                where = "; use WHERE" if clause == "HAVING" else ""
                raise UsageError(
                    f"{clause} {as_written(root)}: column {node.name!r} must stand in GROUP BY, or in COUNT or "
                    f"SUM{where}"
                )
            return node

        return root.copy().transform(rename)

    def _read_order(self, outputs: Sequence[Output]) -> Iterator[exp.Ordered]:
        """ORDER BY over the answer's columns."""
        clause = self._tree.args.get("order")
        for item in clause.expressions if clause else ():
            keys = [self._over_answer(item.this, "ORDER BY")]
            if isinstance(item.this, exp.Var) and item.this.name.upper() == "ALL":
                keys = [output.expression for output in outputs]
            for key in keys:
                if not any(key.find_all(exp.Column)):
                    raise UsageError(f"ORDER BY {as_written(item.this)}: by a constant nothing is sorted")
                yield exp.Ordered(**{**item.args, "this": key.copy()})


def _list_sets(item: exp.Expr) -> Sets:
    """Return the grouping sets of an item of GROUP BY."""
    parts = item.expressions
    if isinstance(item, exp.GroupingSets):
        return [one for part in parts for one in _list_sets(part)]
    if isinstance(item, exp.Rollup | exp.Cube):
        units = [_list_unit(part) for part in parts]
        once = {expression for unit in units for expression in unit}
        if len(once) < sum(map(len, units)):
            raise UsageError(f"GROUP BY {as_written(item)}: the same expression twice is not supported")
        chosen = (
            [range(n) for n in range(len(units), -1, -1)]
            if isinstance(item, exp.Rollup)
            else [one for n in range(len(units), -1, -1) for one in itertools.combinations(range(len(units)), n)]
            if 2 ** len(units) <= MOST_SETS
            else [()] * (MOST_SETS + 1)
        )
        return [tuple(expression for i in one for expression in units[i]) for one in chosen]
    return [_list_unit(item)]


def _list_unit(item: exp.Expr) -> tuple[exp.Expr, ...]:
    return tuple(item.expressions) if isinstance(item, exp.Tuple) else (item.unnest(),)


# Item sets ------------------------------------------------------------------------------------------------------------
# Read an analyst's SQL over item sets as a count query, or refuse it by name.
#
# A query is SELECT COUNT(*) FROM release [WHERE ..], with several counts FILTER (WHERE ..) and arithmetic of them if
# wanted; a condition is any Boolean combination of list_contains(items, x), list_has_all(items, [..]),
# list_has_any(items, [..]) and comparisons of len(items) with numbers.

ITEMS = "items"  # the list under its internal name
ALLOWED = "COUNT(*), FROM and WHERE"
ONLY = "over items COUNT(*) can be asked, with FILTER (WHERE ..), and arithmetic of it"
FUNCTIONS = "list_contains, list_has_all, list_has_any, len"
CONSTANT = (exp.Literal, exp.Neg, exp.Cast, exp.DataType, exp.Boolean, exp.Null)
NAMED = {"list_has_all", "array_has_all"}  # sqlglot has no node of its own for them


def parse_set_query(sql: str, roles: Roles, release: str) -> Statement:
    """Take a query apart; ``UsageError`` names what is not supported.

    >>> from privsql.engine.roles import Field, Roles
    >>> roles = Roles((), (Field("pages", "INTEGER[]"),))
    >>> query = parse_set_query("SELECT COUNT(*) FROM t WHERE list_contains(pages, 7) AND len(pages) > 2", roles, "t")
    >>> [part.sql(dialect="duckdb") for part in query.questions[0].filters["sa"]]
    ['ARRAY_CONTAINS("items", 7)', 'LENGTH("items") > 2']
    """
    with refuse_bad_text(sql):
        select = parse_select(sql)
        for clause, value in select.args.items():
            if value and clause not in ("expressions", "from_", "where"):
                raise UsageError(f"{clause.strip('_').upper()} is not supported; a query over items has {ALLOWED}")
        names = NameResolver.from_select(select, roles, release, None)
        where, name = select.args.get("where"), roles.sensitive[0].name
        conditions = [where.this] if where else []
        for node in [node for item in select.expressions for node in find_aggregates(item)]:
            if not is_count(node.this if isinstance(node, exp.Filter) else node):
                raise UsageError(f"{shorten_sql(node)}: {ONLY}")
            conditions += [node.expression.this] if isinstance(node, exp.Filter) else []
        for condition in conditions:
            _check_condition(condition, name)
        tree = names.resolve_names(select)
        for item in list(tree.find_all(exp.Column)):
            item.replace(column(ITEMS))
        return _make_statement(tree)


def _make_statement(tree: exp.Select) -> Statement:
    """Return the statement of a query whose columns are the list under its internal name."""
    counts: dict[exp.Expr | None, int] = {}

    def rename(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Filter | exp.Count):
            return node
        among = node.expression.this if isinstance(node, exp.Filter) else None
        return column(f"a_{counts.setdefault(among, len(counts))}")

    outputs = []
    for item in tree.expressions:
        output = Output(item.alias, item.unalias().copy().transform(rename), shorten_sql(item.unalias()))
        if not output.aggregate_numbers or any(output.expression.find_all(exp.Star)):
            raise UsageError(f"{output.written}: {ONLY}")
        check_kinds(output.written, output.expression)
        outputs.append(output)
    if len(counts) > MOST_ASKED:
        raise UsageError(f"more than {MOST_ASKED} counts in one query are not supported")
    where = tree.args.get("where")
    scope = Scope(where=where.this if where else exp.true(), sides={ITEMS: "sa"})
    calls = tuple(AggregateCall(Measure(), among, "COUNT(*)") for among in counts)
    return Statement(scope, ((),), calls, tuple(outputs))


def _check_condition(node: exp.Expr, name: str) -> None:
    """Raise ``UsageError`` for a condition that is not supported."""
    if isinstance(node, CONNECTIVES):
        for part in node.iter_expressions():
            _check_condition(part, name)
    elif isinstance(node, (*COMPARISONS, exp.Between)):
        _check_number(node, name)
    elif not isinstance(node, exp.Boolean):
        _check_items(node, name)


def _check_number(node: exp.Expr, name: str) -> None:
    """Check a comparison of the number of items with constants."""
    lengths = [side for side in node.iter_expressions() if isinstance(side, exp.Length | exp.ArraySize)]
    if len(lengths) != 1:
        raise UsageError(f"WHERE: {shorten_sql(node)} is not supported; compare len({name}) with a number")
    _require_column(lengths[0].this, node, name)
    for side in node.iter_expressions():
        if side is not lengths[0]:
            _require_constant(side, node)


def _check_items(node: exp.Expr, name: str) -> None:
    """Check that an item, or any or all of several, is sought in the list."""
    if isinstance(node, exp.ArrayContains | exp.ArrayContainsAll | exp.ArrayOverlaps):
        parts: list[exp.Expr] = [node.this, node.expression]
    elif isinstance(node, exp.Anonymous) and node.name.lower() in NAMED and len(node.expressions) == 2:
        parts = node.expressions
    else:
        raise UsageError(f"WHERE: {shorten_sql(node)} is not supported; conditions are on {FUNCTIONS}")
    _require_column(parts[0], node, name)
    single = isinstance(node, exp.ArrayContains)
    if not single and not isinstance(parts[1], exp.Array):
        raise UsageError(f"WHERE: {shorten_sql(node)} is not supported; list the items: [a, b]")
    for constant in [parts[1]] if single else parts[1].expressions:
        _require_constant(constant, node)


def _require_column(node: exp.Expr, inside: exp.Expr, name: str) -> None:
    if not isinstance(node, exp.Column):
        raise UsageError(f"WHERE: {shorten_sql(inside)} is not supported; its first argument must be {name}")


def _require_constant(node: exp.Expr, inside: exp.Expr) -> None:
    for part in node.walk():
        if not isinstance(part, CONSTANT):
            raise UsageError(f"WHERE: {shorten_sql(inside)} is not supported; {shorten_sql(part)} is not a constant")
