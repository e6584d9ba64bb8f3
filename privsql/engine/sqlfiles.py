"""Read the files of ``sql/``. Each file is one SELECT in DuckDB's dialect, with placeholders (holes) for its parts.

Holes are filled in the syntax tree, never in the text. No other module reads these files. Files outside ``sql/duckdb/``
must be portable (mean the same on every engine): after filling, every kind of node must be in an allowlist. The module
also holds what these queries share: the columns of a table by their roles, and SQL that writes values as texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache, reduce
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.files import unused_name
from privsql.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# Portable -------------------------------------------------------------------------------------------------------------
# The SQL that means the same on every engine: an allowlist of kinds of nodes, and the clauses that they may not have.
#
# sqlglot silently translates some other nodes wrongly. So files of ``sql/`` outside ``sql/duckdb/`` have no others, and
# engines other than DuckDB check a query again once its holes are filled.

_NODES = """
    Add Alias And Between Boolean Case Cast Coalesce Column Count CTE DataType DataTypeParam DenseRank Distinct Div EQ
    Except Exists From GT GTE Greatest Group Having Identifier If In Is Join LT LTE Lag Least Limit Literal Max Min
    Mod Mul NEQ Neg Not Null NullSafeEQ NullSafeNEQ Or Order Ordered Paren Parameter Placeholder RowNumber Select Sqrt
    Star Sub Subquery Sum Table TableAlias Translate Tuple Union Var Where Window With
"""
PORTABLE = frozenset(_NODES.split())
WITHIN = PORTABLE | {"Filter", "Interval", "Values"}  # nodes that may stand inside a scalar expression
BEYOND = (exp.Rand, exp.Uuid, exp.ReadCSV, exp.ReadParquet, exp.UDTF, exp.GenerateSeries)
BY_PLACE = (exp.RowNumber, exp.Lag)  # window functions that need an ORDER BY to be well defined


def list_nodes(tree: exp.Expr) -> list[exp.Expr]:
    """Return all nodes of a syntax tree, parents before children. sqlglot's own ``walk`` takes twice as long."""
    nodes = [tree]
    for node in nodes:  # the loop also visits the nodes that it adds
        for value in node.args.values():
            if isinstance(value, list):
                nodes += [one for one in value if isinstance(one, exp.Expr)]
            elif isinstance(value, exp.Expr):
                nodes.append(value)
    return nodes


def foreign_nodes(tree: exp.Expr, known: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of those parts of a query that not every engine understands.

    Args:
        tree: The query.
        known: Further kinds of nodes and functions that are allowed, with functions in lower case.

    >>> import sqlglot
    >>> sorted(foreign_nodes(sqlglot.parse_one("SELECT hash(a), b // 2 FROM t POSITIONAL JOIN u", dialect="duckdb")))
    ['Anonymous', 'IntDiv', 'POSITIONAL JOIN']
    """
    kinds = set()
    for node in list_nodes(tree):
        kind = type(node).__name__
        name = node.name.lower() if isinstance(node, exp.Anonymous) else kind
        if kind not in PORTABLE and name not in known:
            kinds.add(kind)
        kinds.update(_foreign_arguments(node))
    return kinds


def unfit_nodes(filling: exp.Expr) -> set[str]:
    """Return what forbids an expression to fill a placeholder of a portable file: the kinds of its unfit nodes.

    The result is empty if the expression may fill it. Files of ``sql/`` outside ``sql/duckdb/`` are portable: they mean
    the same on every engine. Any scalar expression may fill their placeholders, even if some engine lacks its
    functions. An engine other than DuckDB checks the complete query again.
    """
    kinds = set()
    for node in list_nodes(filling):
        kind = type(node).__name__
        if kind not in WITHIN and (isinstance(node, BEYOND) or not isinstance(node, exp.Condition)):
            kinds.add(kind)
        kinds.update(_foreign_arguments(node))
    return kinds


def unordered_windows(tree: exp.Expr) -> set[str]:
    """Return the window functions of a query that have no ORDER BY, and so depend on the stored order of rows.

    Only an engine that keeps the order of stored rows can run them.
    """
    return {
        f"{type(node.this).__name__} without ORDER BY"
        for node in tree.find_all(exp.Window)
        if isinstance(node.this, BY_PLACE) and not node.args.get("order")
    }


def one_select(query: str, dialect: str) -> str:
    """Return the text of a publisher's query without a semicolon at its end.

    Args:
        query: The query.
        dialect: The SQL dialect of the query, by its name in sqlglot.

    Raises:
        UsageError: The text is not exactly one SELECT.
    """
    try:
        statements = sqlglot.parse(query, dialect=dialect)
    except SqlglotError as error:
        raise UsageError(f"query: {str(error).splitlines()[0]}") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UsageError("query: must be one SELECT")
    return query.strip().rstrip(";")


def _foreign_arguments(node: exp.Expr) -> Iterator[str]:
    """Yield the clauses of a node that not every engine understands in the same way, such as DISTINCT ON."""
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
# The only reader of ``sql/``: one file is one SELECT in DuckDB's dialect, with holes to fill in its syntax tree.
#
# The hole ``__name__`` stands for a table, a condition, a list of expressions, or a name after AS. Nodes of the syntax
# tree replace it, so that names are always quoted. ``$name`` is a parameter, whose value the engine binds. A file may
# use only portable SQL; only DuckDB runs those in ``sql/duckdb/``.

DIALECT = "duckdb"
PREFIX = "privsql_"
SIDE_BY_SIDE = 100  # conditions that are joined in one chain
Hole = exp.Expr | Sequence[exp.Expr]
Holes = dict[str, Hole]


@lru_cache(maxsize=1)
def sql_folder() -> Traversable:
    """Return the ``sql`` folder, which lies inside the installed package or beside it in a checkout."""
    packaged = files("privsql") / "sql"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parent.parent.parent
    if (checkout / "pyproject.toml").is_file():
        return checkout / "sql"
    raise FileNotFoundError("the SQL files of privsql are not installed")


FILE = "file"  # the key under which a filled tree keeps the name of its file


@lru_cache(maxsize=256)
def text(name: str) -> str:
    """Return the text of the file ``sql/NAME.sql``."""
    return sql_folder().joinpath(*f"{name}.sql".split("/")).read_text(encoding="utf-8")


def parse_file(name: str) -> exp.Select | exp.Query:
    """Return the syntax tree of the file ``sql/NAME.sql``; its placeholders, called holes, are not filled.

    Raises:
        ValueError: The file is not one portable SELECT.
    """
    return _parse_content(name, text(name))


@lru_cache(maxsize=256)
def _parse_content(name: str, content: str) -> exp.Select | exp.Query:
    """Return the syntax tree of a file's text. Trees are cached, because a command reads a file of ``sql/`` often."""
    statements = sqlglot.parse(content, dialect=DIALECT)
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise ValueError(f"sql/{name}.sql is not one SELECT")
    foreign = set() if name.startswith("duckdb/") else foreign_nodes(statements[0]) | unordered_windows(statements[0])
    if foreign:
        raise ValueError(f"sql/{name}.sql is outside the portable subset: {', '.join(sorted(foreign))}")
    for node in statements[0].walk():  # most of a copy's time goes into comments and positions
        node.comments = node._meta = None
    return statements[0]


def fill(name: str, holes: Mapping[str, Hole]) -> exp.Query:
    """Return the query of a file of ``sql/``, with every hole (placeholder) filled.

    A hole that takes a list must stand where SQL has a list (SELECT, GROUP BY, ORDER BY); the list may be empty.
    Fillings are checked for portability as well.

    Args:
        name: The path of the file in ``sql/``, without its ending.
        holes: The filling of each hole, by the name of the hole without its underscores.

    Raises:
        ValueError: A hole is not filled, or the file has no such hole.
    """
    tree = parse_file(name).copy()
    for hole, filling in () if name.startswith("duckdb/") else holes.items():
        foreign = set().union(*map(unfit_nodes, [filling] if isinstance(filling, exp.Expr) else filling))
        if foreign:
            wrong = ", ".join(sorted(foreign))
            raise ValueError(f"sql/{name}.sql: hole {hole} is filled with what is outside the portable subset: {wrong}")
    unused = set(holes)
    nodes = list_nodes(tree)  # listing takes longer than the work on the nodes
    for node in nodes:
        if isinstance(node, exp.Table | exp.Column) and (key := _hole_key(node.name, name, holes)) is not None:
            unused.discard(key)
            _fill_hole(tree, node, holes[key])
    for node in nodes:
        if isinstance(node, exp.Alias) and (key := _hole_key(node.alias, name, holes)) is not None:
            unused.discard(key)
            node.set("alias", cast("exp.Identifier", holes[key]).copy())
    for clause in [node for node in nodes if isinstance(node, exp.Group | exp.Order)]:
        if not clause.expressions and clause.parent is not None:
            clause.parent.set("group" if isinstance(clause, exp.Group) else "order", None)
    if unused:
        raise ValueError(f"sql/{name}.sql has no holes {sorted(unused)}")
    tree.meta[FILE] = name
    return tree


def find_file(tree: exp.Expr) -> str:
    """Return the name of the file of ``sql/`` that a query was made from; empty if there is none.

    If the query was made from several files, it is the outermost one.
    """
    return next((str(node.meta[FILE]) for node in tree.walk() if FILE in node.meta), "")


def list_holes(name: str) -> set[str]:
    """Return the names of the holes (placeholders) in a file of ``sql/`` for tables, conditions and expressions."""
    names = (node.name for node in parse_file(name).find_all(exp.Table, exp.Column))
    return {one.strip("_") for one in names if one.startswith("__") and one.endswith("__")}


def _hole_key(hole: str, name: str, holes: Mapping[str, Hole]) -> str | None:
    """Return the name of a hole (placeholder) without its underscores; None if ``hole`` is the name of something else.

    Args:
        hole: The name in the file, such as ``__table__``.
        name: The file, for the message.
        holes: The fillings.

    Raises:
        ValueError: ``holes`` has no filling for the hole.
    """
    if not (hole.startswith("__") and hole.endswith("__")):
        return None
    key = hole.strip("_")
    if key not in holes:
        raise ValueError(f"sql/{name}.sql: hole {hole} is not filled")
    return key


def _fill_hole(tree: exp.Expr, node: exp.Expr, filling: Hole) -> None:
    if isinstance(filling, exp.Expr):
        is_free = filling.parent is None and isinstance(filling, exp.Subquery | exp.Query)
        replacement = filling if is_free else filling.copy()
        if isinstance(node, exp.Table) and node.args.get("alias"):
            replacement.set("alias", node.args["alias"].copy())
        inside = isinstance(node.parent, exp.Binary | exp.Unary) and not isinstance(node.parent, exp.Paren)
        binds_weaker = inside and isinstance(replacement, exp.Binary | exp.Not)
        node.replace(exp.paren(replacement, copy=False) if binds_weaker else replacement)
        return
    place = node.parent if isinstance(node.parent, exp.Ordered) else node
    parent, items = place.parent or tree, [item.copy() for item in filling]
    if place is not node:
        wrapped = [place.copy() for _ in items]
        for one, item in zip(wrapped, items, strict=True):
            one.set("this", item)
        items = wrapped
    position = next(i for i, sibling in enumerate(parent.expressions) if sibling is place)
    parent.set("expressions", [*parent.expressions[:position], *items, *parent.expressions[position + 1 :]])


def render_sql(tree: exp.Expr) -> str:
    """Return the DuckDB SQL text of a syntax tree, on several lines.

    The tree is not copied first, because the copy would take most of the time.
    """
    return tree.sql(dialect=DIALECT, pretty=True, comments=False, copy=False)


def plain_sql(query: exp.Expr, *, pretty: bool = False) -> str:
    """Return the DuckDB SQL text of a query for people, with quotes only around names that need them.

    >>> plain_sql(exp.select(column("age"), column("if"), column("Age")))
    'SELECT age, "if", "Age"'
    """
    query = query.copy()
    for one in query.find_all(exp.Identifier):
        one.set("quoted", not _is_plain(one.name))
    return query.sql(dialect=DIALECT, pretty=pretty)


@lru_cache(maxsize=1024)
def _is_plain(name: str) -> bool:
    """Return whether a name needs no quotes: one word in lower case that is no keyword of SQL."""
    tokens = sqlglot.tokenize(name, dialect=DIALECT) if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else []
    # IF is taken for a function.
    return len(tokens) == 1 and tokens[0].token_type == sqlglot.TokenType.VAR and name != "if"


# Small builders for hole fillings ---


def quoted_identifier(name: str) -> exp.Identifier:
    """Return a name as an SQL identifier in double quotes."""
    return exp.to_identifier(name, quoted=True)


def column(name: str, table: str | None = None) -> exp.Column:
    """Return a reference to a column, with the name in double quotes."""
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def alias_as(expression: exp.Expr, name: str) -> exp.Expr:
    """Return the SQL expression ``expression AS "name"``."""
    return exp.alias_(expression, exp.to_identifier(name, quoted=True), copy=expression.parent is not None)


def table(name: str, database: str | None = None, schema: str | None = None) -> exp.Table:
    """Return a reference to a table, with its names in double quotes."""
    return exp.table_(quoted_identifier(name), schema or None, database or None, quoted=True)


def temp_table(name: str) -> exp.Table:
    """Return a reference to a temporary table of privsql; a prefix keeps its name apart from the publisher's tables."""
    return table(PREFIX + name, "temp")


def qualify_tables(query: exp.Expr, database: str) -> exp.Expr:
    """Return the query with ``database`` added to every table that names no database.

    >>> qualify_tables(sqlglot.parse_one("WITH q AS (SELECT * FROM st) SELECT * FROM q, temp_table.t"), "release").sql()
    'WITH q AS (SELECT * FROM "release"."main".st) SELECT * FROM q, temp_table.t'
    """
    changed = query.copy()
    nodes = [one for one in list_nodes(changed) if isinstance(one, exp.CTE | exp.Table)]
    known = {one.alias for one in nodes if isinstance(one, exp.CTE)}
    for one in nodes:
        is_bare = isinstance(one, exp.Table) and isinstance(one.this, exp.Identifier) and not (one.db or one.catalog)
        if is_bare and one.name not in known:
            one.set("db", exp.to_identifier("main", quoted=True))
            one.set("catalog", exp.to_identifier(database, quoted=True))
    return changed


def all_rows(source: exp.Table | exp.Subquery) -> exp.Select:
    """Return the query ``SELECT * FROM source``."""
    return exp.select(exp.Star()).from_(source)


def union_all(queries: Sequence[exp.Query]) -> exp.Query:
    """Return the query for the rows of all queries, one query after another, with duplicates (UNION ALL)."""
    return reduce(lambda whole, part: exp.union(whole, part, distinct=False, copy=False), queries)


def write_intervals(
    records: int | None, skew: float, *, weight: exp.Expr, variance: exp.Expr, number: exp.Expr, alike: exp.Expr
) -> dict[str, exp.Expr]:
    """Return the SQL expressions of a release's functions n, low and high, by the function's name.

    From rows of the release's weighted view, ``n`` estimates a count of source records, and ``low`` and ``high`` bound
    it. The expressions combine sums over these rows, which the engine's own aggregate functions compute.

    Args:
        records: The number of records in the release, if the counted ones are drawn from them without replacement; None
            if the errors of records are independent.
        skew: How much the variance of a count grows with each record that it counts.
        weight: The sum of the weights of the rows; NULL if there is no row.
        variance: The sum of the variances of the rows.
        number: The number of the rows.
        alike: Whether all these rows have the same variance.
    """
    left: exp.Expr = exp.Literal.number(1)
    if records is not None:
        holes: Holes = {"alike": alike, "number": number, "records": exp.Literal.number(records)}
        left = fill("clients/left", {"sums": table("sums"), **holes}).expressions[0].this
    holes = {"weight": weight, "variance": variance, "left": left, "skew": exp.Literal.number(skew)}
    holes |= {"sums": table("sums")}
    return {one.alias: one.this for one in fill("clients/interval", holes).expressions}


def all_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Return the condition that holds if all ``conditions`` do; TRUE if there are none."""
    return _join_evenly(exp.and_, conditions) if conditions else exp.true()


def any_of(conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Return the condition that holds if one of ``conditions`` does; FALSE if there are none."""
    return _join_evenly(exp.or_, conditions) if conditions else exp.false()


def _join_evenly(join: Callable[..., exp.Expr], conditions: Sequence[exp.Expr]) -> exp.Expr:
    """Join conditions by ``join`` in a balanced tree.

    A chain of a thousand conditions would be nested too deeply for an engine.
    """
    if len(conditions) <= SIDE_BY_SIDE:
        return join(*conditions)
    middle = len(conditions) // 2
    return join(_join_evenly(join, conditions[:middle]), _join_evenly(join, conditions[middle:]))


def same_columns(left: str, right: str, columns: Sequence[str]) -> exp.Expr:
    """Return the condition that tables ``left`` and ``right`` have equal values in these columns; NULL equals NULL."""
    return all_of([exp.NullSafeEQ(this=column(name, left), expression=column(name, right)) for name in columns])


def is_null(expression: exp.Expr) -> exp.Expr:
    """Return the SQL condition ``expression IS NULL``."""
    return exp.Is(this=expression, expression=exp.null())


# Roles ----------------------------------------------------------------------------------------------------------------
# The columns of a table by role, and the internal names under which SQL sees them.
#
# Internally, quasi-identifiers are q0, q1, .. and sensitive columns s0, s1, and so on. So a publisher's name can't
# collide with ``bid``, ``count`` or a keyword, and needs no quotes. Published tables have the publisher's names again.

FLOATS = ("FLOAT", "DOUBLE")
SCALAR = re.compile(
    r"U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|BOOLEAN|VARCHAR|DATE|TIME|"
    r"TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?|UUID"
)
CASTS = {  # the type to publish in place of one that can't be published
    "TIME_NS": "TIME", "TIMESTAMPTZ_NS": "TIMESTAMPTZ", "HUGEINT": "DECIMAL(38,0)", "UHUGEINT": "DECIMAL(38,0)",
    "numeric": "DECIMAL(18,2)",
}  # fmt: skip
NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL|DATE$|TIMESTAMP")
WHOLE_TEXT = re.compile(r"0|-?[1-9][0-9]{0,17}")
NUMBER_TEXT = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,15})?")


def infer_type(texts: Iterable[str]) -> str:
    """Return the narrowest SQL type that holds all of these texts exactly as written.

    A number with a leading zero, such as a code, is a text.

    >>> infer_type(["1", "2.5"]), infer_type(["01", "02"]), infer_type(["2020-01-31"]), infer_type([])
    ('DOUBLE', 'VARCHAR', 'DATE', 'VARCHAR')
    """
    known = set(texts)
    if not known:
        return "VARCHAR"
    for kind, pattern in (("BIGINT", WHOLE_TEXT), ("DOUBLE", NUMBER_TEXT)):
        if all(map(pattern.fullmatch, known)):
            return kind
    if known <= {"true", "false"}:
        return "BOOLEAN"
    for kind, parse, length in (("DATE", date.fromisoformat, 10), ("TIMESTAMP", datetime.fromisoformat, 19)):
        with suppress(ValueError):
            if all(len(text) == length and parse(text) and text[4] == "-" for text in known):
                return kind
    return "VARCHAR"


@dataclass(frozen=True)
class Field:
    """A column: its name and type.

    Types have the names of standard SQL in DuckDB's spelling, also in manifests; other engines translate their types to
    them. A type without such a name keeps the engine's name. A column can be published if its type is in ``SCALAR`` or
    is a list of such a type.
    """

    name: str
    type: str

    @property
    def is_scalar(self) -> bool:
        """Return True if the type is in ``SCALAR``: a number, text, date, time, BOOLEAN or UUID."""
        return SCALAR.fullmatch(self.type) is not None

    @property
    def is_number(self) -> bool:
        """Return True if the column holds numbers, or points in time, which privsql treats like numbers."""
        return NUMBER.match(self.type) is not None and not self.type.endswith("]")

    @property
    def is_list(self) -> bool:
        """Return True if the type is a list of a type in ``SCALAR``."""
        return self.type.endswith("[]") and SCALAR.fullmatch(self.type[:-2]) is not None

    def suggest_cast(self) -> str:
        """Return the advice, for an error message, on how to cast a column whose type can't be published."""
        name = exp.to_identifier(self.name).sql(dialect=DIALECT)
        return f"cast it in source.query: CAST({name} AS {CASTS.get(self.type, 'VARCHAR')}) AS {name}"

    @property
    def is_published(self) -> bool:
        """Return True if a release may have a column of this type."""
        return self.is_scalar or self.is_list


@dataclass(frozen=True)
class ReservedColumns:
    """The names of the columns that privsql adds to a published table, such as ``bid`` and ``count``.

    If the publisher has a column of that name, the added column gets another name in the table (``unused_name``), such
    as ``bid_``. Queries inside privsql keep the original name. ``fields`` are the publisher's columns of the table.
    """

    fields: tuple[Field, ...]

    def column_name(self, name: str) -> str:
        """Return the name that privsql's added column ``name`` has in the published table."""
        return unused_name(name, (field.name for field in self.fields))

    def as_column(self, name: str, table: str | None = None) -> exp.Column:
        """Return an SQL reference to an added column, under the name that it has in the published table.

        Args:
            name: The name inside privsql, such as ``bid``.
            table: The table or alias to put before the name.
        """
        return column(self.column_name(name), table)

    def select_columns(self, *names: str) -> list[exp.Expr]:
        """Return added columns of the published table, each renamed to its name inside privsql: "bid_" AS "bid", .."""
        return [alias_as(self.as_column(name), name) for name in names]

    def alias_holes(self, *names: str) -> dict[str, exp.Identifier]:
        """Return the names that added columns get in the published table, to fill the placeholders of a query.

        A file of ``sql/`` that makes the table says ``AS __bid__``. The placeholder becomes ``bid``, or another name
        such as ``bid_`` if the publisher has a column ``bid``.

        Args:
            names: The names inside privsql, such as ``bid``.

        Returns:
            The published name of each column, by its name inside privsql.
        """
        return {name: quoted_identifier(self.column_name(name)) for name in names}


@dataclass(frozen=True)
class Roles:
    """The quasi-identifiers and sensitive columns of a table, in the order of the specification.

    ``orders`` maps a column to its labels in order, if its type defines an order of its own (such as ENUM).
    """

    quasi_identifiers: tuple[Field, ...]
    sensitive: tuple[Field, ...]
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, hash=False)

    def explain_difference(self, other: Roles) -> str:
        """Return how these columns first differ from those of another table; empty if they are equal.

        >>> Roles((Field("age", "INTEGER"),), ()).explain_difference(Roles((Field("age", "BIGINT"),), ()))
        "column 'age' is INTEGER, not BIGINT"
        """
        types = {one.name: one.type for one in other.columns}
        for one in self.columns:
            if one.name not in types:
                return f"column {one.name!r} is not among the other's"
            if one.type != types[one.name]:
                return f"column {one.name!r} is {one.type}, not {types[one.name]}"
        lost = next((name for name in types if name not in {one.name for one in self.columns}), None)
        if lost is not None:
            return f"column {lost!r} is missing"
        return "" if self == other else "columns have other roles, or stand in another order"

    @property
    def columns(self) -> tuple[Field, ...]:
        """Return all columns: the quasi-identifiers, then the sensitive columns."""
        return (*self.quasi_identifiers, *self.sensitive)

    @property
    def hold_sets(self) -> bool:
        """Return True if the table has one column of item sets instead of quasi-identifiers and sensitive columns."""
        return any(field.is_list for field in self.sensitive)

    @property
    def by_qi(self) -> ReservedColumns:
        """Return how privsql names the columns that it adds to a table with the quasi-identifiers only, as in a QIT.

        An added column, such as ``bid``, is renamed if the publisher's columns of the table have its name.
        """
        return ReservedColumns(self.quasi_identifiers)

    @property
    def by_sa(self) -> ReservedColumns:
        """Return how privsql names the columns that it adds to a table with the sensitive columns only, as in an ST.

        An added column, such as ``bid``, is renamed if the publisher's columns of the table have its name.
        """
        return ReservedColumns(self.sensitive)

    @property
    def by_all(self) -> ReservedColumns:
        """Return how privsql names the columns that it adds to a table with quasi-identifiers and sensitive columns.

        An added column, such as ``bid``, is renamed if the publisher's columns of the table have its name.
        """
        return ReservedColumns(self.columns)

    @property
    def qi_keys(self) -> tuple[str, ...]:
        """Return the internal names of the quasi-identifiers: q0, q1, .."""
        return tuple(f"q{i}" for i in range(len(self.quasi_identifiers)))

    @property
    def sa_keys(self) -> tuple[str, ...]:
        """Return the internal names of the sensitive columns: s0, s1, .."""
        return tuple(f"s{i}" for i in range(len(self.sensitive)))

    def qi_columns(self, table: str | None = None) -> list[exp.Expr]:
        """Return references to the quasi-identifiers by their internal names: q0, q1, .."""
        return [column(key, table) for key in self.qi_keys]

    def sa_columns(self, table: str | None = None) -> list[exp.Expr]:
        """Return references to the sensitive columns by their internal names: s0, s1, .."""
        return [column(key, table) for key in self.sa_keys]

    def qi_out(self, table: str | None = None) -> list[exp.Expr]:
        """Return the quasi-identifiers, renamed from internal to published names: q0 AS "age", .."""
        return [alias_as(column(k, table), f.name) for k, f in zip(self.qi_keys, self.quasi_identifiers, strict=True)]

    def sa_out(self, table: str | None = None) -> list[exp.Expr]:
        """Return the sensitive columns, renamed from internal to published names: s0 AS "occupation", .."""
        return [alias_as(column(k, table), f.name) for k, f in zip(self.sa_keys, self.sensitive, strict=True)]

    def qi_typed(self, table: str | None = None) -> list[exp.Expr]:
        """Return the quasi-identifiers, cast to their types and under published names: CAST(q0 AS UUID) AS "id", .."""
        return [cast_as(column(k, table), f) for k, f in zip(self.qi_keys, self.quasi_identifiers, strict=True)]

    def sa_typed(self, table: str | None = None) -> list[exp.Expr]:
        """Return the sensitive columns, cast to their types and under published names: CAST(s0 AS DATE) AS "day", .."""
        return [cast_as(column(k, table), f) for k, f in zip(self.sa_keys, self.sensitive, strict=True)]

    def qi_in(self) -> list[exp.Expr]:
        """Return the quasi-identifiers, renamed from published to internal names: "age" AS q0, .."""
        return [alias_as(column(f.name), k) for k, f in zip(self.qi_keys, self.quasi_identifiers, strict=True)]

    def sa_in(self) -> list[exp.Expr]:
        """Return the sensitive columns, renamed from published to internal names: "occupation" AS s0, .."""
        return [alias_as(column(f.name), k) for k, f in zip(self.sa_keys, self.sensitive, strict=True)]


def cast_as(value: exp.Expr, field: Field) -> exp.Expr:
    """Return the SQL expression ``CAST(value AS type) AS "name"`` for the type and name of a column."""
    return alias_as(exp.cast(value, exp.DataType.build(field.type, dialect=DIALECT)), field.name)


def canonical_value(value: exp.Expr, kind: str) -> exp.Expr:
    """Return an SQL expression for a value in its published form; equal values have exactly the same form.

    Equal values in different forms could reveal the order of the source, and so a record's sensitive value. A text is
    encoded and decoded again, because a collation of the source merges values and has its own order. A double has two
    zeros and many NaN, which become one zero and one NaN.
    """
    if kind == "VARCHAR":
        encoded = exp.Anonymous(this="encode", expressions=[exp.cast(value, "VARCHAR")])
        return exp.Anonymous(this="decode", expressions=[encoded])
    if kind not in FLOATS:
        return value
    zero, nan = (exp.cast(exp.Literal.string(text), kind) for text in ("0", "nan"))
    return exp.Case().when(value.eq(zero), zero.copy()).when(value.eq(nan), nan.copy()).else_(value.copy())


def comparable_text(value: exp.Expr, kind: str) -> exp.Expr:
    """Return an SQL expression for a text that is the same for equal values of different types.

    So 1, 1.0 and '1' have one text, and so have a date and its midnight. By this text the ledger recognizes records
    that come from another file or table. NULL becomes the empty text.
    """
    text: exp.Expr = exp.cast(value, "VARCHAR")
    if kind == "VARCHAR":
        text = canonical_value(value, kind)
    elif kind in FLOATS or kind.startswith("DECIMAL"):
        text = _replace_pattern(_replace_pattern(text, "([.][0-9]*[1-9])0+$", "\\1"), "[.]0+$", "")
    elif kind.startswith("TIMESTAMP"):
        text = _replace_pattern(text, " 00:00:00([+]00)?$", "")
    return exp.Coalesce(this=text, expressions=[exp.Literal.string("")])


UUID_TEXT = "-?".join(f"([0-9a-f]{{{digits}}})" for digits in (8, 4, 4, 4, 12))
NAME_FORMS = {f"^[{{]?{UUID_TEXT}[}}]?$": "\\1\\2\\3\\4\\5", "^[+]?0*([0-9]+)([.]0*)?$": "\\1"}


def normal_name(name: exp.Expr) -> exp.Expr:
    """Return an SQL expression for the form in which names of records and persons are compared.

    Case and leading zeros do not matter: 1, 001 and 1.0 are one name, and so are A-1 and a-1.
    """
    text: exp.Expr = exp.Lower(this=exp.Trim(this=name))
    for pattern, replacement in NAME_FORMS.items():
        text = _replace_pattern(text, pattern, replacement)
    return text


def _replace_pattern(text: exp.Expr, pattern: str, replacement: str) -> exp.Expr:
    return exp.Anonymous(this="regexp_replace", expressions=[text, *map(exp.Literal.string, (pattern, replacement))])


# Texts ----------------------------------------------------------------------------------------------------------------
# Texts of values that are the same on every engine, so that their hashes are the same, too.

BETWEEN = "\x1f"  # the separator of joined texts
DIGITS, BITS = 15, 60  # a hash's hexadecimal digits and bits, which fit into 64 bits
NULL = "-"  # no number, date or truth value has this text; texts begin with their length
ZONED = "TIMESTAMP WITH TIME ZONE"


def injective_texts(fields: Mapping[str, Field], table: str) -> list[exp.Expr]:
    """Return SQL expressions for the texts of the columns of ``table``, by which its records are hashed.

    Different records have different texts, and the texts are the same on every engine.

    Args:
        fields: The columns by their internal names.
        table: The name or alias of the table.

    Raises:
        UsageError: A column holds doubles, whose texts differ between engines.
    """
    for each_field in fields.values():
        if each_field.type in FLOATS:
            raise UsageError(
                f"column {each_field.name!r} is {each_field.type}, whose text is not the same on every engine; order = "
                "'portable' needs it cast to DECIMAL in source.query"
            )
    return [injective_text(column(name, table), each_field.type) for name, each_field in fields.items()]


def concat_texts(texts: Sequence[exp.Expr]) -> exp.Expr:
    """Return an SQL expression that joins texts with a separator; none of them may be NULL."""
    return exp.Anonymous(this="concat_ws", expressions=[exp.Literal.string(BETWEEN), *texts])


def first_characters(text: exp.Expr, characters: int) -> exp.Expr:
    """Return an SQL expression for the first ``characters`` characters of a text."""
    return exp.Substring(this=text, start=exp.Literal.number(1), length=exp.Literal.number(characters))


def injective_text(value: exp.Expr, kind: str) -> exp.Expr:
    """Return an SQL expression for a text of a value, by which the value is hashed.

    Different values of one type, and NULL, have different texts.
    """
    written: exp.Expr = exp.cast(value, "VARCHAR")
    if kind == ZONED:  # sessions are in UTC
        written = exp.cast(exp.cast(value, "TIMESTAMP"), "VARCHAR")
    if kind == "VARCHAR":
        length = exp.cast(exp.Length(this=value.copy()), "VARCHAR")
        written = exp.DPipe(this=exp.DPipe(this=length, expression=exp.Literal.string(":")), expression=value.copy())
    return exp.Coalesce(this=written, expressions=[exp.Literal.string(NULL)])
