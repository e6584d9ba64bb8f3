"""What of SQL means the same on every engine: an allowlist of node kinds, and what some of them may not say.

sqlglot translates some others silently wrong, so nothing else stands in the files of ``sql/`` outside ``sql/duckdb/``,
and an engine other than DuckDB looks at a tree again once its holes are filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NODES = """
    Add Alias And Between Boolean Case Cast Coalesce Column Count CTE DataType DataTypeParam DenseRank Distinct Div EQ
    Except Exists From GT GTE Greatest Group Having Identifier If In Is Join LT LTE Lag Least Limit Literal Max Min
    Mod Mul NEQ Neg Not Null NullSafeEQ NullSafeNEQ Or Order Ordered Paren Parameter Placeholder RowNumber Select Star
    Sub Subquery Sum Table TableAlias Tuple Union Var Where Window With
"""
PORTABLE = frozenset(_NODES.split())
WITHIN = PORTABLE | {"Filter", "Interval", "Values"}  # what a scalar expression is made of that is none itself
BEYOND = (exp.Rand, exp.Uuid, exp.ReadCSV, exp.ReadParquet, exp.UDTF, exp.GenerateSeries)
BY_PLACE = (exp.RowNumber, exp.Lag)  # window functions that say nothing where no order is named


def alien(tree: exp.Expr, known: frozenset[str] = frozenset()) -> set[str]:
    """What of a tree is outside the portable subset, but for ``known`` kinds and names of functions, in small letters.

    >>> import sqlglot
    >>> sorted(alien(sqlglot.parse_one("SELECT hash(a), b // 2 FROM t POSITIONAL JOIN u", dialect="duckdb")))
    ['Anonymous', 'IntDiv', 'POSITIONAL JOIN']
    """
    found = set()
    for node in tree.walk():
        kind = type(node).__name__
        name = node.name.lower() if isinstance(node, exp.Anonymous) else kind
        if kind not in PORTABLE and name not in known:
            found.add(kind)
        found.update(_foreign(node))
    return found


def unfit(filling: exp.Expr) -> set[str]:
    """What may not even fill a hole of a portable file: all that says which rows there are, and is outside the subset.

    Scalar expressions may: those of an analyst, and what an engine has for texts and digests. They mean what the engine
    at hand takes them for; another one is given the whole tree to look at again.
    """
    found = set()
    for node in filling.walk():
        kind = type(node).__name__
        if kind not in WITHIN and (isinstance(node, BEYOND) or not isinstance(node, exp.Condition)):
            found.add(kind)
        found.update(_foreign(node))
    return found


def unordered(tree: exp.Expr) -> set[str]:
    """Windows that number or compare rows as they lie: what only an engine can answer that keeps their order."""
    return {
        f"{type(node.this).__name__} without ORDER BY"
        for node in tree.find_all(exp.Window)
        if isinstance(node.this, BY_PLACE) and not node.args.get("order")
    }


def one_select(query: str, dialect: str) -> str:
    """The text of a publisher's query, if it is exactly one SELECT of a dialect; ``UsageError`` for anything else."""
    try:
        statements = sqlglot.parse(query, dialect=dialect)
    except SqlglotError as error:
        raise UsageError(f"query: {str(error).splitlines()[0]}") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UsageError("query: must be one SELECT")
    return query.strip().rstrip(";")


def _foreign(node: exp.Expr) -> Iterator[str]:
    """Arguments of portable nodes that other engines do not know, or read otherwise."""
    match node:
        case exp.Join() if (
            node.method or node.kind not in ("", "INNER", "CROSS") or node.side not in ("", "LEFT", "FULL")
        ):
            yield f"{node.method or node.kind or node.side} JOIN"
        case exp.Group() if any(value for key, value in node.args.items() if key != "expressions"):
            yield "GROUP BY with more than expressions"
        case exp.Ordered() if (
            isinstance(node.this, exp.Column) and node.name.upper() == "ALL" and not node.this.this.quoted
        ):
            yield "ORDER BY ALL"
        case exp.Distinct() if node.args.get("on"):
            yield "DISTINCT ON"
        case exp.SetOperation() if node.args.get("by_name"):
            yield "UNION BY NAME"
