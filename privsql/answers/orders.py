"""Columns whose type has an order of its own (ENUM): the release publishes them as text, and says how values lie.

They are sorted, grouped and compared with each other in that order, as in the source. With constants the engine
compares them as text, there and here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.functions import COMPARISONS, ORDERED, WRITTEN, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENUM = exp.DataType.Type.ENUM
PREDICATES = (*COMPARISONS, exp.Between, exp.In, exp.Is, exp.Like, exp.ILike)


def in_order(tree: exp.Select, orders: Mapping[str, Sequence[str]]) -> exp.Select:
    """The query with columns that have an order as values of such a type, wherever that matters."""
    for item in list(tree.find_all(exp.Column)) if orders else ():
        if item.name in orders and not _as_text(item):
            labels = [exp.Literal.string(one) for one in orders[item.name]]
            made = exp.cast(item.copy(), exp.DataType(this=ENUM, expressions=labels))
            made.meta.update({ORDERED: True, WRITTEN: text(item)})
            item.replace(made)
    return tree


def plain(expression: exp.Expr | None) -> exp.Expr | None:
    """The column behind its order; any other expression as it is."""
    ordered = isinstance(expression, exp.Cast) and expression.to.this == ENUM
    return expression.this if ordered and isinstance(expression, exp.Cast) else expression


def _as_text(item: exp.Column) -> bool:
    """Whether it is a record's own that is compared with constants."""
    node = item.find_ancestor(*PREDICATES)
    if node is None or item.find_ancestor(exp.Where) is None:
        return False
    return all(other.name == item.name for other in node.find_all(exp.Column))
