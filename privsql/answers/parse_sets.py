"""An analyst's SQL over item sets read as a count query, or refused by name.

A query is  SELECT COUNT(*) FROM release [WHERE ..], with several counts FILTER (WHERE ..) and arithmetic of them if
wanted; a condition is any Boolean combination of list_contains(items, x), list_has_all(items, [..]),
list_has_any(items, [..]) and comparisons of len(items) with numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.asked import Asked, Output, Scope, Statement
from privsql.answers.functions import COMPARISONS, CONNECTIVES, check, short
from privsql.answers.names import Names
from privsql.answers.question import Measure
from privsql.answers.statement import aggregates, is_count, parsed, reading
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.engine.roles import Roles

ITEMS = "items"  # the list under its internal name
ALLOWED = "COUNT(*), FROM and WHERE"
ONLY = "over items COUNT(*) can be asked, with FILTER (WHERE ..), and arithmetic of it"
MOST_ASKED = 64  # counts of one query: each is a question of its own
FUNCTIONS = "list_contains, list_has_all, list_has_any, len"
CONSTANT = (exp.Literal, exp.Neg, exp.Cast, exp.DataType, exp.Boolean, exp.Null)
NAMED = {"list_has_all", "array_has_all"}  # sqlglot has no node of its own for them


def read(sql: str, roles: Roles, release: str) -> Statement:
    """Take a query apart; ``UsageError`` names what is not supported.

    >>> from privsql.engine.roles import Field, Roles
    >>> roles = Roles((), (Field("pages", "INTEGER[]"),))
    >>> query = read("SELECT COUNT(*) FROM t WHERE list_contains(pages, 7) AND len(pages) > 2", roles, "t")
    >>> [part.sql(dialect="duckdb") for part in query.questions[0].filters["sa"]]
    ['ARRAY_CONTAINS("items", 7)', 'LENGTH("items") > 2']
    """
    with reading(sql):
        select = parsed(sql)
        for clause, value in select.args.items():
            if value and clause not in ("expressions", "from_", "where"):
                raise UsageError(f"{clause.strip('_').upper()} is not supported; a query over items has {ALLOWED}")
        names = Names.of(select, roles, release, None)
        where, own = select.args.get("where"), roles.sensitive[0].name
        conditions = [where.this] if where else []
        for node in [node for item in select.expressions for node in aggregates(item)]:
            if not is_count(node.this if isinstance(node, exp.Filter) else node):
                raise UsageError(f"{short(node)}: {ONLY}")
            conditions += [node.expression.this] if isinstance(node, exp.Filter) else []
        for condition in conditions:
            _check(condition, own)
        tree = names.resolved(select)
        for item in list(tree.find_all(exp.Column)):
            item.replace(column(ITEMS))
        return _statement(tree)


def _statement(tree: exp.Select) -> Statement:
    """What a query asks, its columns being the list under its internal name."""
    counts: dict[exp.Expr | None, int] = {}

    def rename(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Filter | exp.Count):
            return node
        among = node.expression.this if isinstance(node, exp.Filter) else None
        return column(f"a_{counts.setdefault(among, len(counts))}")

    outputs = []
    for item in tree.expressions:
        made = Output(item.alias, item.unalias().copy().transform(rename), short(item.unalias()))
        if not made.aggregates or any(made.expression.find_all(exp.Star)):
            raise UsageError(f"{made.written}: {ONLY}")
        check(made.written, made.expression)
        outputs.append(made)
    if len(counts) > MOST_ASKED:
        raise UsageError(f"more than {MOST_ASKED} counts in one query are not supported")
    where = tree.args.get("where")
    scope = Scope(where=where.this if where else exp.true(), sides={ITEMS: "sa"})
    return Statement(scope, ((),), tuple(Asked(Measure(), among, "COUNT(*)") for among in counts), tuple(outputs))


def _check(node: exp.Expr, own: str) -> None:
    """``UsageError`` for a condition that is not supported."""
    if isinstance(node, CONNECTIVES):
        for part in node.iter_expressions():
            _check(part, own)
    elif isinstance(node, (*COMPARISONS, exp.Between)):
        _check_number(node, own)
    elif not isinstance(node, exp.Boolean):
        _check_items(node, own)


def _check_number(node: exp.Expr, own: str) -> None:
    """A comparison of the number of items with constants."""
    lengths = [side for side in node.iter_expressions() if isinstance(side, exp.Length | exp.ArraySize)]
    if len(lengths) != 1:
        raise UsageError(f"WHERE: {short(node)} is not supported; compare len({own}) with a number")
    _is_column(lengths[0].this, node, own)
    for side in node.iter_expressions():
        if side is not lengths[0]:
            _constant(side, node)


def _check_items(node: exp.Expr, own: str) -> None:
    """Whether an item is in the list, or any or all of several."""
    if isinstance(node, exp.ArrayContains | exp.ArrayContainsAll | exp.ArrayOverlaps):
        parts: list[exp.Expr] = [node.this, node.expression]
    elif isinstance(node, exp.Anonymous) and node.name.lower() in NAMED and len(node.expressions) == 2:
        parts = node.expressions
    else:
        raise UsageError(f"WHERE: {short(node)} is not supported; conditions are on {FUNCTIONS}")
    _is_column(parts[0], node, own)
    single = isinstance(node, exp.ArrayContains)
    if not single and not isinstance(parts[1], exp.Array):
        raise UsageError(f"WHERE: {short(node)} is not supported; list the items: [a, b]")
    for constant in [parts[1]] if single else parts[1].expressions:
        _constant(constant, node)


def _is_column(node: exp.Expr, inside: exp.Expr, own: str) -> None:
    if not isinstance(node, exp.Column):
        raise UsageError(f"WHERE: {short(inside)} is not supported; its first argument must be {own}")


def _constant(node: exp.Expr, inside: exp.Expr) -> None:
    for part in node.walk():
        if not isinstance(part, CONSTANT):
            raise UsageError(f"WHERE: {short(inside)} is not supported; {short(part)} is not a constant")
