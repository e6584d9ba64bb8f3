"""The only reader of ``sql/``: one file is one SELECT in DuckDB's dialect, with holes filled on the syntax tree.

Files outside ``sql/duckdb/`` hold only portable nodes, which are checked against an allowlist after filling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.resources.abc import Traversable

# Portable -------------------------------------------------------------------------------------------------------------
# What of SQL means the same on every engine: an allowlist of node kinds, and what some of them may not say.
#
# sqlglot translates some others silently wrong, so nothing else stands in the files of ``sql/`` outside
# ``sql/duckdb/``, and an engine other than DuckDB looks at a tree again once its holes are filled.

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


def foreign_nodes(tree: exp.Expr, known: frozenset[str] = frozenset()) -> set[str]:
    """Return the parts of a tree outside the portable subset, except ``known`` kinds and functions, in lower case.

    >>> import sqlglot
    >>> sorted(foreign_nodes(sqlglot.parse_one("SELECT hash(a), b // 2 FROM t POSITIONAL JOIN u", dialect="duckdb")))
    ['Anonymous', 'IntDiv', 'POSITIONAL JOIN']
    """
    kinds = set()
    for node in tree.walk():
        kind = type(node).__name__
        name = node.name.lower() if isinstance(node, exp.Anonymous) else kind
        if kind not in PORTABLE and name not in known:
            kinds.add(kind)
        kinds.update(_foreign_arguments(node))
    return kinds


def unfit_nodes(filling: exp.Expr) -> set[str]:
    """Return what may not even fill a hole of a portable file: clauses that choose rows, outside the subset.

    Scalar expressions may: those of an analyst, and what an engine has for texts and digests. They mean what the engine
    at hand takes them for; another one is given the whole tree to look at again.
    """
    kinds = set()
    for node in filling.walk():
        kind = type(node).__name__
        if kind not in WITHIN and (isinstance(node, BEYOND) or not isinstance(node, exp.Condition)):
            kinds.add(kind)
        kinds.update(_foreign_arguments(node))
    return kinds


def unordered_windows(tree: exp.Expr) -> set[str]:
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


def _foreign_arguments(node: exp.Expr) -> Iterator[str]:
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


# Sqlfiles -------------------------------------------------------------------------------------------------------------
# The only reader of ``sql/``: one file = one SELECT in DuckDB's dialect, with holes filled on the syntax tree.
#
# ``__name__`` holds a table, a predicate or a list of expressions, or behind AS a name, and is replaced by tree nodes,
# so that a name is always quoted and never pasted; ``$name`` holds a value and is bound by the engine. A file may use
# only what ``privsql.engine.sqlfiles`` knows; ``sql/duckdb/`` is DuckDB's alone.

DIALECT = "duckdb"
PREFIX = "privsql_"
SIDE_BY_SIDE = 100  # conditions that are joined in a row
Hole = exp.Expr | Sequence[exp.Expr]
Holes = dict[str, Hole]


@lru_cache(maxsize=1)
def sql_folder() -> Traversable:
    """The ``sql`` folder: inside the installed package, or beside it in a checkout."""
    packaged = files("privsql") / "sql"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parent.parent.parent
    if (checkout / "pyproject.toml").is_file():
        return checkout / "sql"
    raise FileNotFoundError("the SQL files of privsql are not installed")


@lru_cache(maxsize=256)
def text(name: str) -> str:
    """The text of ``sql/<name>.sql``."""
    return sql_folder().joinpath(*f"{name}.sql".split("/")).read_text(encoding="utf-8")


def list_sql_files() -> list[str]:
    """All files, as ``folder/name`` without the ending, sorted."""
    paths = []
    for part in sql_folder().iterdir():
        if part.is_dir():
            paths += [f"{part.name}/{file.name[:-4]}" for file in part.iterdir() if file.name.endswith(".sql")]
    return sorted(paths)


def sql_digests(prefixes: Sequence[str]) -> dict[str, str]:
    """SHA-256 of every file whose name starts with one of ``prefixes``."""
    return {
        name: hashlib.sha256(text(name).encode()).hexdigest()
        for name in list_sql_files()
        if name.startswith(tuple(prefixes))
    }


def parse_file(name: str) -> exp.Select | exp.Query:
    """The syntax tree of a file; raises ``ValueError`` if it is not one portable SELECT."""
    return _parse_content(name, text(name))


@lru_cache(maxsize=256)
def _parse_content(name: str, content: str) -> exp.Select | exp.Query:
    """``parse_file``, once per file: every query fills several."""
    statements = sqlglot.parse(content, dialect=DIALECT)
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise ValueError(f"sql/{name}.sql is not one SELECT")
    foreign = set() if _is_duckdbs(name) else foreign_nodes(statements[0]) | unordered_windows(statements[0])
    if foreign:
        raise ValueError(f"sql/{name}.sql is outside the portable subset: {', '.join(sorted(foreign))}")
    for node in statements[0].walk():  # comments, and positions in the text, are most of what a copy costs
        node.comments = node._meta = None  # noqa: SLF001 (there is no public way to forget positions)
    return statements[0]


def _is_duckdbs(name: str) -> bool:
    return name.startswith(f"{DIALECT}/")


def fill(name: str, holes: Mapping[str, Hole]) -> exp.Query:
    """The tree of a file with every hole filled; an unknown or unfilled hole is a ``ValueError``.

    A list hole stands where a list may stand (SELECT, GROUP BY, ORDER BY) and may be empty. What fills a hole of a
    portable file is looked at as well: ``privsql.engine.sqlfiles.unfit``.
    """
    tree = parse_file(name).copy()
    if not _is_duckdbs(name):
        _require_portable(name, holes)
    unused = set(holes)
    nodes = list(tree.walk())  # once: walking takes longer than all that is done on the way
    for node in nodes:
        key = _hole_key(node.name, name, holes) if isinstance(node, exp.Table | exp.Column) else None
        if key is not None:
            unused.discard(key)
            _fill_hole(tree, node, holes[key])
    unused -= _fill_aliases([node for node in nodes if isinstance(node, exp.Alias)], name, holes)
    for clause in [node for node in nodes if isinstance(node, exp.Group | exp.Order)]:
        if not clause.expressions and clause.parent is not None:
            clause.parent.set("group" if isinstance(clause, exp.Group) else "order", None)
    if unused:
        raise ValueError(f"sql/{name}.sql has no holes {sorted(unused)}")
    return tree


def list_holes(name: str) -> set[str]:
    """Return the names of the holes of a file that hold tables, predicates and expressions."""
    names = (node.name for node in parse_file(name).find_all(exp.Table, exp.Column))
    return {one.strip("_") for one in names if one.startswith("__") and one.endswith("__")}


def _fill_aliases(outputs: Sequence[exp.Alias], name: str, holes: Mapping[str, Hole]) -> set[str]:
    """Fill the holes behind AS; returns which these were."""
    filled = set()
    for node in outputs:
        key = _hole_key(node.alias, name, holes)
        if key is not None:
            node.set("alias", cast("exp.Identifier", holes[key]).copy())
            filled.add(key)
    return filled


def _hole_key(hole: str, name: str, holes: Mapping[str, Hole]) -> str | None:
    """Return the name of a hole of a file; None for what is none, ``ValueError`` if nothing fills it."""
    if not (hole.startswith("__") and hole.endswith("__")):
        return None
    key = hole.strip("_")
    if key not in holes:
        raise ValueError(f"sql/{name}.sql: hole {hole} is not filled")
    return key


def _require_portable(name: str, holes: Mapping[str, Hole]) -> None:
    for key, filling in holes.items():
        foreign = set().union(*map(unfit_nodes, [filling] if isinstance(filling, exp.Expr) else filling))
        if foreign:
            wrong = ", ".join(sorted(foreign))
            raise ValueError(f"sql/{name}.sql: hole {key} is filled with what is outside the portable subset: {wrong}")


def _fill_hole(tree: exp.Expr, node: exp.Expr, filling: Hole) -> None:
    if isinstance(filling, exp.Expr):
        is_free = filling.parent is None and isinstance(filling, exp.Subquery | exp.Query)
        replacement = filling if is_free else filling.copy()
        if isinstance(node, exp.Table) and node.args.get("alias"):
            replacement.set("alias", node.args["alias"].copy())
        node.replace(exp.paren(replacement, copy=False) if _binds_weaker(node, replacement) else replacement)
        return
    place = node.parent if isinstance(node.parent, exp.Ordered) else node
    parent = place.parent or tree
    siblings = parent.expressions
    items = []
    for item in filling:
        wrapped = place.copy() if place is not node else item.copy()
        if place is not node:
            wrapped.set("this", item.copy())
        items.append(wrapped)
    position = next(i for i, sibling in enumerate(siblings) if sibling is place)
    parent.set("expressions", [*siblings[:position], *items, *siblings[position + 1 :]])


def _binds_weaker(node: exp.Expr, replacement: exp.Expr) -> bool:
    inside = isinstance(node.parent, exp.Binary | exp.Unary) and not isinstance(node.parent, exp.Paren)
    return inside and isinstance(replacement, exp.Binary | exp.Not)


def render_sql(tree: exp.Expr) -> str:
    """DuckDB SQL of a tree, on several lines. No tree is copied for it, which would take longer than the rest."""
    return tree.sql(dialect=DIALECT, pretty=True, comments=False, copy=False)


# Small builders for hole fillings ---


def quoted_identifier(name: str) -> exp.Identifier:
    """A quoted name."""
    return exp.to_identifier(name, quoted=True)


def column(name: str, table: str | None = None) -> exp.Column:
    """A quoted column."""
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def alias_as(expression: exp.Expr, name: str) -> exp.Expr:
    """``expression AS "name"``."""
    shared = expression.parent is not None
    return exp.alias_(expression, exp.to_identifier(name, quoted=True), copy=shared)


def table(name: str, database: str | None = None, schema: str | None = None) -> exp.Table:
    """A quoted table."""
    parts = {"this": exp.to_identifier(name, quoted=True)}
    if schema:
        parts["db"] = exp.to_identifier(schema, quoted=True)
    if database:
        parts["catalog"] = exp.to_identifier(database, quoted=True)
    return exp.Table(**parts)


def temp_table(name: str) -> exp.Table:
    """A temporary relation of privsql's own; the prefix keeps it apart from tables of the publisher's."""
    return table(PREFIX + name, "temp")


def qualify_tables(query: exp.Expr, database: str) -> exp.Expr:
    """The query with every table that names no database taken from ``database``.

    >>> qualify_tables(sqlglot.parse_one("WITH q AS (SELECT * FROM st) SELECT * FROM q, temp_table.t"), "release").sql()
    'WITH q AS (SELECT * FROM "release"."main".st) SELECT * FROM q, temp_table.t'
    """
    changed = query.copy()
    nodes = list(changed.find_all(exp.CTE, exp.Table))
    known = {one.alias for one in nodes if isinstance(one, exp.CTE)}
    for one in nodes:
        is_bare = isinstance(one, exp.Table) and isinstance(one.this, exp.Identifier) and not (one.db or one.catalog)
        if is_bare and one.name not in known:
            one.set("db", exp.to_identifier("main", quoted=True))
            one.set("catalog", exp.to_identifier(database, quoted=True))
    return changed


def all_rows(source: exp.Table) -> exp.Select:
    """Every row of a table."""
    return exp.select(exp.Star()).from_(source)


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """The conjunction of conditions; TRUE for none."""
    return _join_evenly(exp.and_, conditions) if conditions else exp.true()


def any_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """The disjunction of conditions; FALSE for none."""
    return _join_evenly(exp.or_, conditions) if conditions else exp.false()


def _join_evenly(join: Callable[..., exp.Expr], conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Join many conditions in the middle, so that those of a thousand columns lie no deeper than engines go."""
    if len(conditions) <= SIDE_BY_SIDE:
        return join(*conditions)
    middle = len(conditions) // 2
    return join(_join_evenly(join, conditions[:middle]), _join_evenly(join, conditions[middle:]))


def same_columns(left: str, right: str, columns: Sequence[str]) -> exp.Expr:
    """NULL-safe equality of the same columns of two tables."""
    return all_of([exp.NullSafeEQ(this=column(name, left), expression=column(name, right)) for name in columns])


def is_null(expression: exp.Expr) -> exp.Expr:
    """IS NULL."""
    return exp.Is(this=expression, expression=exp.null())
