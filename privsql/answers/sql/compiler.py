"""Parse an analyst's SQL into questions, for tables, item sets and UNION ALL; refuse by name what is not understood."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

from privsql.answers.sql.aggregates import WINDOWS, Aggregates, Output, Scope, Statement
from privsql.answers.sql.names import (
    MAIN_SCHEMAS,
    JoinedTables,
    Lookups,
    find_aggregates,
    has_aggregates,
    is_count,
    output_position,
    parse_query_text,
    parse_select,
    read_limits,
    refuse_bad_text,
    refuse_others,
    sides_of,
)
from privsql.answers.sql.question import (
    AGGREGATES,
    BOUNDS,
    COMPARISONS,
    CONNECTIVES,
    WINDOWED,
    Group,
    as_written,
    check_kinds,
    forget_positions,
    shorten_sql,
)
from privsql.answers.sql.sources import QueryReader
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Roles, column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    Tree = TypeVar("Tree", bound=exp.Expr)

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

    >>> from privsql.engine.sqlfiles import Field, Roles
    >>> roles = Roles((Field("age", "INTEGER"),), (Field("job", "VARCHAR"),))
    >>> query = parse_query("SELECT COUNT(*) FROM t WHERE age > 30 AND job = 1", roles, "t").questions[0]
    >>> [part.sql() for part in query.filters["qi"]], [part.sql() for part in query.filters["sa"]]
    (['"age" > 30'], ['"job" = 1'])
    """
    with refuse_bad_text(sql):
        tree, joined = QueryReader(release, roles, lookups).read_query(parse_select(sql))
        forget_positions(tree)
        return _StatementReader(tree, joined, roles, measures).read_statement()


class _StatementReader:
    """A query taken apart; ``tree`` has its names resolved; ``check``: refuses what may not stand in FILTER."""

    def __init__(
        self,
        tree: exp.Select,
        joined: JoinedTables,
        roles: Roles,
        measures: Collection[str] = (),
        check: Callable[[str, exp.Expr], None] = check_kinds,
    ) -> None:
        self._tree, self._sides, self._lookups = tree, joined.sides, tuple(joined.lookups)
        self._types = {field.name: field.type for field in roles.columns}
        self._aggregates = Aggregates(joined.sides, self._types, measures, check)
        self._groups: dict[exp.Expr, int] = {}
        self._windows: list[exp.Window] = []
        self._sets = self._grouping_sets()

    def read_statement(self) -> Statement:
        """Return all of it."""
        where, having = self._tree.args.get("where"), self._tree.args.get("having")
        if not self._tree.args.get("group") and not has_aggregates(self._tree):
            return self._read_preview(where.this if where else None)
        outputs = tuple(self._read_outputs())
        over = self._over_answer(having.this, "HAVING") if having else None
        order, unique = tuple(self._read_order(outputs)), self._read_unique(outputs)
        qualify = self._tree.args.get("qualify")
        chosen = self._over_answer(qualify.this, "QUALIFY") if qualify else None
        groups, limits = tuple(self._make_group(one) for one in self._groups), read_limits(self._tree)
        statement = Statement(
            Scope(groups, where.this if where else None, self._lookups, self._sides),
            self._sets,
            tuple(self._aggregates.asked),
            outputs,
            over,
            order,
            limits["limit"],
            limits["offset"],
            windows=tuple(self._windows),
            qualify=chosen,
            unique=unique,
        )
        if len(statement.calls) > MOST_ASKED or len(statement.calls) * len(statement.sets) > MOST_TOGETHER:
            raise UsageError(
                f"at most {MOST_ASKED} aggregate functions are supported, and {MOST_TOGETHER} over grouping sets"
            )
        return statement.require_splittable()

    def _read_preview(self, where: exp.Expr | None) -> Statement:
        """Return a SELECT of columns alone: some records, without their sensitive values."""
        sides, limits = self._sides, read_limits(self._tree)
        if self._tree.find(exp.Window):
            raise UsageError(
                "window functions over records are not supported; GROUP BY columns first, and use COUNT(*)"
            )
        unmet = where is not None and not any(where.find_all(exp.Column))
        if limits["limit"] is None and not unmet:
            instead = "count them with COUNT(*) .. GROUP BY, or see some with LIMIT 100"
            raise UsageError(f"records can't be listed here;  {instead}")
        order = self._tree.args.get("order")
        for part in [*([where] if where is not None else []), *(order.expressions if order else [])]:
            if "sa" in sides_of(part, sides):
                raise UsageError(f"{as_written(part)} is not available for single records; use COUNT(*) .. GROUP BY")
        items = [(item.alias, item.unalias()) for item in self._tree.expressions]
        outputs = tuple(Output(alias, root, as_written(root)) for alias, root in items)
        scope = Scope((), where, self._lookups, sides)
        keys = tuple(order.expressions) if order else ()
        return Statement(scope, (), (), outputs, None, keys, limits["limit"], limits["offset"], previews=True)

    def _make_group(self, expression: exp.Expr) -> Group:
        sides = sides_of(expression, self._sides)
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
            items = [item for item in items if not find_aggregates(item)]
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
            root, bound = item.unalias(), ""
            if isinstance(root, exp.Anonymous) and root.name.lower() in BOUNDS:
                bound, root = root.name.lower(), root.expressions[0]
            written = f"{bound}({as_written(root)})" if bound else as_written(root)
            output = Output(item.alias, self._over_answer(root, "SELECT"), written, bound)
            if bound and not output.aggregate_numbers:
                raise UsageError(f"{output.written} has no bounds; write it of an aggregate function, as low(COUNT(*))")
            yield output

    def _read_unique(self, outputs: Sequence[Output]) -> tuple[exp.Expr, ...] | None:
        """Return what no two rows have in common: the outputs of DISTINCT, or the groups of a query over a result."""
        clause = self._tree.args.get("distinct")
        if clause is None:
            return None
        if clause.args.get("on") is None:
            return tuple(one.expression for one in outputs)
        return tuple(self._over_answer(one, "DISTINCT ON") for one in clause.args["on"].expressions)

    def _over_answer(self, root: exp.Expr, clause: str) -> exp.Expr:
        """Return an expression with groups and aggregate functions as columns of the answer."""
        kinds = {type(group) for group in self._groups}

        def rename(node: exp.Expr) -> exp.Expr:
            if type(node) in kinds and node in self._groups:
                return column(f"g_{self._groups[node]}")
            if isinstance(node, (exp.Filter, *AGGREGATES)):
                return self._aggregates.as_expression(node, lambda number: column(f"a_{number}"))
            if isinstance(node, exp.Window):
                return self._name_window(node, clause)
            if isinstance(node, exp.Grouping | exp.GroupingId):
                return self._name_grouping(node)
            if isinstance(node, exp.Anonymous) and node.name.lower() in BOUNDS:
                return self._name_bound(node, clause)
            if isinstance(node, exp.Column):
                where = "; use WHERE" if clause == "HAVING" else ""
                raise UsageError(
                    f"{clause} {as_written(root)}: column {node.name!r} must be in GROUP BY, or in COUNT or SUM{where}"
                )
            return node

        return root.copy().transform(rename)

    def _name_window(self, node: exp.Window, clause: str) -> exp.Expr:
        """Return the column of a window function over the rows of the answer."""
        known = {"this", "partition_by", "order", "spec", "over"}
        plain = all(key in known for key, value in node.args.items() if value)
        inner = [one for one in node.find_all(exp.Window) if one is not node]
        if not plain or inner or not isinstance(node.this, WINDOWED) or clause not in ("SELECT", "ORDER BY", "QUALIFY"):
            works = "SUM, AVG, MIN, MAX, LAG, LEAD, RANK and ROW_NUMBER OVER work in SELECT"
            raise UsageError(f"{clause}: {shorten_sql(node)} is not supported; {works}")
        window = node.copy()
        for part in [one for child in window.iter_expressions() for one in _list_window_parts(child)]:
            part.replace(self._over_answer(part, clause))
        if window not in self._windows:
            self._windows.append(window)
        return column(f"a_{WINDOWS + self._windows.index(window)}")

    def _name_grouping(self, node: exp.Expr) -> exp.Expr:
        """Return GROUPING(..) as a number of which each bit says whether a row is over all values of a group."""
        total: exp.Expr | None = None
        for item in node.expressions:
            if item.unnest() not in self._groups:
                raise UsageError(f"{as_written(node)}: {as_written(item)} must be in GROUP BY")
            bit = column(f"k_{self._groups[item.unnest()]}")
            doubled = exp.Mul(this=exp.paren(total), expression=TWO) if total is not None else None
            total = bit if doubled is None else exp.Add(this=doubled, expression=bit)
        return exp.paren(total) if total is not None else exp.Literal.number(0)

    def _name_bound(self, node: exp.Anonymous, clause: str) -> exp.Expr:
        """Return the column of the low, high or standard error of an aggregate function."""
        inner = self._over_answer(node.expressions[0], clause).unnest()
        if not isinstance(inner, exp.Column) or not inner.name.startswith("a_"):
            raise UsageError(f"{as_written(node)} has no bounds; write it of an aggregate function, as low(COUNT(*))")
        return column(f"{node.name.lower()[0]}_{inner.name[2:]}")

    def _read_order(self, outputs: Sequence[Output]) -> Iterator[exp.Ordered]:
        """ORDER BY over the answer's columns."""
        clause = self._tree.args.get("order")
        for item in clause.expressions if clause else ():
            keys = [self._over_answer(item.this, "ORDER BY")]
            if isinstance(item.this, exp.Var) and item.this.name.upper() == "ALL":
                keys = [output.expression for output in outputs]
            for key in keys:
                if not any(key.find_all(exp.Column)):
                    raise UsageError(f"ORDER BY {as_written(item.this)}: a constant sorts nothing")
                yield exp.Ordered(**{**item.args, "this": key.copy()})


ONE, TWO = map(exp.Literal.number, (1, 2))


def _list_window_parts(child: exp.Expr) -> list[exp.Expr]:
    """Return the expressions in a part of OVER: the function's arguments, PARTITION BY, or the keys of ORDER BY."""
    if isinstance(child, exp.WindowSpec | exp.Identifier):
        return []
    if isinstance(child, exp.Order):
        return [item.this for item in child.expressions]
    return list(child.iter_expressions()) if isinstance(child, WINDOWED) else [child]


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
ONLY = "item sets answer COUNT(*), with FILTER (WHERE ..), and arithmetic of counts"
FUNCTIONS = "list_contains, list_has_all, list_has_any, len"
CONSTANT = (exp.Literal, exp.Neg, exp.Cast, exp.DataType, exp.Boolean, exp.Null)
NAMED = {"list_has_all", "array_has_all"}  # sqlglot has no node of its own for them


def parse_set_query(sql: str, roles: Roles, release: str) -> Statement:
    """Take a query apart; ``UsageError`` names what is not supported.

    >>> from privsql.engine.sqlfiles import Field, Roles
    >>> roles = Roles((), (Field("pages", "INTEGER[]"),))
    >>> query = parse_set_query("SELECT COUNT(*) FROM t WHERE list_contains(pages, 7) AND len(pages) > 2", roles, "t")
    >>> [part.sql(dialect="duckdb") for part in query.questions[0].filters["sa"]]
    ['ARRAY_CONTAINS("items", 7)', 'LENGTH("items") > 2']
    """
    with refuse_bad_text(sql):
        name = roles.sensitive[0].name
        reader = QueryReader(release, roles, None, lambda select: _check_item_clauses(select, name))
        tree, _ = reader.read_query(parse_select(sql))
        for item in list(tree.find_all(exp.Column)):
            item.replace(column(ITEMS))
        joined = JoinedTables({ITEMS: "sa"})
        return _StatementReader(tree, joined, roles, check=lambda *_: None).read_statement()  # conditions are checked


def _check_item_clauses(select: exp.Select, name: str) -> None:
    """Raise ``UsageError`` for what is not supported in a query over items."""
    for clause, value in select.args.items():
        if value and clause not in ("expressions", "from_", "where", "order", "limit", "offset"):
            raise UsageError(f"{clause.strip('_').upper()} is not supported; a query over items has {ALLOWED}")
    where = select.args.get("where")
    conditions = [where.this] if where else []
    for node in find_aggregates(*select.expressions):
        if not is_count(node.this if isinstance(node, exp.Filter) else node):
            raise UsageError(f"{shorten_sql(node)}: {ONLY}")
        conditions += [node.expression.this] if isinstance(node, exp.Filter) else []
    for condition in conditions:
        _check_condition(condition, name)
    for item in select.expressions:
        root, written = item.unalias(), shorten_sql(item.unalias())
        rest = root.copy().transform(lambda node: ONE if isinstance(node, exp.Filter | exp.Count) else node)
        if not find_aggregates(root) or any(rest.find_all(exp.Star, exp.Column)):
            raise UsageError(f"{written}: {ONLY}")
        check_kinds(written, rest)


def _check_condition(node: exp.Expr, name: str) -> None:
    """Raise ``UsageError`` for a condition that is not supported."""
    if isinstance(node, CONNECTIVES):
        for part in node.iter_expressions():
            _check_condition(part, name)
    elif isinstance(node, (*COMPARISONS, exp.Between)):
        lengths = [side for side in node.iter_expressions() if isinstance(side, exp.Length | exp.ArraySize)]
        if len(lengths) != 1:
            raise UsageError(f"WHERE: {shorten_sql(node)} is not supported; compare len({name}) with a number")
        _require_column(lengths[0].this, node, name)
        for side in node.iter_expressions():
            if side is not lengths[0]:
                _require_constant(side, node)
    elif not isinstance(node, exp.Boolean):
        _check_items(node, name)


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
