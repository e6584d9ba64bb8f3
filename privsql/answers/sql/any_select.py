"""Decide whether a SELECT may run on completed tables, and find out which of its columns are estimates.

A SELECT is read from the syntax tree of DuckDB's ``json_serialize_sql``. Whatever this module does not know is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from privsql.answers.sql.sources import MAIN_SCHEMAS
from privsql.engine.files import fold_name
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.engine.database import LockedSession

Tree = dict[str, Any]

# Functions ------------------------------------------------------------------------------------------------------------
# A function may be called if, by the engine's own list, its result depends on its arguments alone. Nor may its result
# be much longer than its arguments, because the engine's memory limit does not count the texts of a row.

NOT_PLAIN = {  # functions that the list calls constant, but that depend on time or tell of the engine
    "current_localtime", "current_localtimestamp", "reservoir_quantile", "version", "json_serialize_sql",
    "json_serialize_plan", "json_deserialize_sql", "get_type", "invoke", "cast_to_type",
}  # fmt: skip
CLOCKS = {  # names that mean a function if no column has them
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_catalog",
    "current_schema", "current_role", "current_user", "session_user", "user",
}  # fmt: skip
FIXED = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*|BIGNUM|DATE|TIME.*|INTERVAL|UUID|BIT_COUNT"
)
KEEPING = {  # functions of texts and lists whose values are no longer than their arguments
    "lower", "upper", "lcase", "ucase", "trim", "ltrim", "rtrim", "substr", "substring", "left", "right", "reverse",
    "regexp_extract", "string_split", "str_split", "string_to_array", "split", "split_part", "string_split_regex",
    "regexp_split_to_array", "str_split_regex", "list_extract", "list_element", "array_extract", "element_at",
    "struct_extract", "list_slice", "array_slice", "list_sort", "list_distinct", "strip_accents", "nfc_normalize",
    "md5", "sha1", "sha256", "dayname", "monthname", "strftime", "chr", "greatest", "least", "constant_or_null", "if",
    "nullif", "date_trunc", "datetrunc", "time_bucket", "timezone", "-", "*", "/", "//", "%", "&", "|", "~", "xor",
    "<<", ">>", "abs", "@", "round", "trunc", "ceil", "floor", "list_sum", "list_avg", "list_min", "list_max",
    "list_count", "multiply", "subtract", "divide", "mod", "ceiling", "round_even", "roundbankers",
}  # fmt: skip
JOINING = {  # functions whose values are as long as all of their arguments together
    "||", "concat", "concat_ws", "list_value", "list_pack", "list_concat", "list_cat", "array_concat", "array_cat",
    "struct_pack", "row", "map", "+", "add",
}  # fmt: skip
SUMS = {"+", "add"}  # add numbers, but join lists
REPLACING = {"replace", "regexp_replace", "translate"}
GATHERING = {  # aggregate functions whose values are as long as all rows together
    "list", "array_agg", "string_agg", "group_concat", "listagg", "histogram", "histogram_exact", "bitstring_agg",
    "lttb",
}  # fmt: skip
LONGEST_QUERY = 50_000  # characters
MOST_NODES = 20_000  # of an expression, after the aliases in it are replaced by their expressions
MOST_TABLES = 100  # that a query reads if its WITH queries are written out
LONGEST_VALUE = 2**17  # characters of a computed value, if no value of the release is longer than SHORT
SHORT = 64
TYPES = {
    "BOOLEAN", "BOOL", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "NUMERIC", "VARCHAR", "TEXT", "STRING",
    "CHAR", "DATE", "TIME", "TIMESTAMP", "DATETIME", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "INT1",
    "INT2", "INT4", "INT8", "FLOAT4", "FLOAT8", "LONG", "SHORT",
}  # fmt: skip


@dataclass(frozen=True)
class EngineFunctions:
    """The functions that the engine offers.

    Attributes:
        kinds: The kinds (scalar, aggregate, macro, ..) of each function, by name.
        plain: The functions whose result depends on their arguments alone.
        fixed: The functions that return a type of fixed length, so no long text.
        bodies: The SQL texts that each macro stands for.
    """

    kinds: Mapping[str, frozenset[str]]
    plain: frozenset[str]
    fixed: frozenset[str]
    bodies: Mapping[str, Sequence[str]]

    @staticmethod
    @lru_cache(maxsize=1)
    def read(rows: tuple[tuple[str, str, str, str, str], ...]) -> EngineFunctions:
        """Read the engine's list of functions, given as rows (name, kind, stability, returned type, body)."""
        kinds: dict[str, set[str]] = {}
        bodies: dict[str, list[str]] = {}
        other, long = set(NOT_PLAIN), set()
        for name, kind, stability, returned, body in rows:
            kinds.setdefault(name, set()).add(kind)
            if kind == "macro":
                bodies.setdefault(name, []).append(body)
            elif stability != "CONSISTENT" or name.startswith("__"):
                other.add(name)
            if kind == "scalar" and (name in SUMS or not FIXED.fullmatch(returned)):
                long.add(name)
        return EngineFunctions(
            {name: frozenset(some) for name, some in kinds.items()},
            frozenset(kinds.keys() - other),
            frozenset(kinds.keys() - long),
            bodies,
        )

    def is_aggregate(self, name: str) -> bool:
        """Return whether a name is that of an aggregate function, or of a macro that stands for one."""
        return "aggregate" in self.kinds.get(name, ()) or name in ("weighted_avg", "wavg", "geomean", "geometric_mean")


# What a statement may name --------------------------------------------------------------------------------------------

CLASSES = {
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR",
    "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW",
}  # fmt: skip
NODES = {
    "SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "EMPTY", "BASE_TABLE", "SUBQUERY", "JOIN", "EXPRESSION_LIST",
    "PIVOT", "ORDER_MODIFIER", "LIMIT_MODIFIER", "DISTINCT_MODIFIER", "ORDER_DEFAULT", "ASCENDING", "DESCENDING",
}  # fmt: skip
REFUSED = {
    "RECURSIVE_CTE_NODE": "recursion", "TABLE_FUNCTION": "a table function", "SHOW_REF": "DESCRIBE",
    "LAMBDA": "a lambda function", "PARAMETER": "a parameter", "LIMIT_PERCENT_MODIFIER": "LIMIT in percent",
}  # fmt: skip


def walk(tree: Any) -> Iterator[Tree]:
    """Yield every node of a syntax tree, each before the nodes inside it."""
    rest = [tree]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            yield one
            rest += reversed(list(one.values()))
        elif isinstance(one, list):
            rest += reversed(one)


def count_tables(node: Any, around: Mapping[str, int]) -> int:
    """Return how many tables a query reads if every WITH query is written out, as the engine may do.

    A short query can so read very many tables; it is refused before it runs.

    Args:
        node: The query.
        around: For each WITH name of an outer query, by name in lower case, the number of tables that it reads.
    """
    named, total = dict(around), 0
    for one in node["cte_map"]["map"]:
        named[fold_name(one["key"])] = count_tables(one["value"]["query_node"], named)
    rest = [value for key, value in node.items() if key != "cte_map"]
    while rest:
        one = rest.pop()
        if isinstance(one, list):
            rest += one
        elif isinstance(one, dict) and "cte_map" in one:
            total += count_tables(one, named)
        elif isinstance(one, dict):
            rest += one.values()
            total += named.get(fold_name(one["table_name"]), 1) if one.get("type") == "BASE_TABLE" else 0
    return total


def _refuse_expansion(select: Tree) -> None:
    """Refuse a SELECT that becomes too large when the engine replaces column aliases by their expressions.

    Raises:
        UsageError: It becomes too large.
    """
    sizes: dict[str, int] = {}
    for item in select["select_list"]:
        size = 0
        for one in walk(item):
            path: Sequence[str] = one["column_names"] if one.get("class") == "COLUMN_REF" else []
            size += 1 + (sizes.get(fold_name(path[0]), 0) if len(path) == 1 else 0)
        if size > MOST_NODES:
            raise UsageError("the query is too large once the names of its columns are written out; split it")
        if item["alias"]:
            sizes[fold_name(item["alias"])] = size


class Admission:
    """The decision whether a SELECT may run: it may name only certain tables and call only certain functions."""

    def __init__(self, db: LockedSession, release: str, columns: Sequence[str]) -> None:
        self._release = fold_name(release)
        self._columns = {fold_name(name) for name in columns}
        self.functions = EngineFunctions.read(tuple(db.list_functions()))
        self.lookups: dict[tuple[str, ...], None] = {}
        self.own: list[Tree] = []  # nodes that read the release
        self._growth, self._longest = 1, SHORT
        self._gathers = self._lists = False

    def refuse_long(self, sql: str) -> None:
        """Refuse a text that is too long for a query that a person writes.

        Raises:
            UsageError: The text is too long.
        """
        if len(sql) > LONGEST_QUERY:
            raise UsageError(f"the query has more than {LONGEST_QUERY:,} characters; split it")

    def examine(self, tree: Tree) -> None:
        """Refuse a query that may not run.

        Args:
            tree: The syntax tree of the query.

        Raises:
            UsageError: It may not run. The message says why.
        """
        if count_tables(tree["statements"][0]["node"], {}) > MOST_TABLES:
            raise UsageError(f"the query reads more than {MOST_TABLES} tables once its WITH queries are written out")
        with_names = [one["key"] for node in walk(tree) if "cte_map" in node for one in node["cte_map"]["map"]]
        known = {fold_name(name) for name in with_names}
        nodes = list(walk(tree))
        calls = [node for node in nodes if node.get("class") == "FUNCTION"]
        self._lists = any(fold_name(one["function_name"]) in LISTS | GATHERING for one in calls)
        self._lists = self._lists or any(node.get("type") == "ARRAY_CONSTRUCTOR" for node in nodes)
        inner = {id(part) for one in calls for part in list_arguments(one) if _joins_alike(one, part)}
        for node in nodes:
            if "select_list" in node:
                _refuse_expansion(node)
            kind = node.get("class") or (node.get("type") if isinstance(node.get("type"), str) else None)
            if kind is None:
                if node.get("sample_size") is not None:
                    raise UsageError("a sample can't be answered: it is another one each time")
                continue
            if kind not in (CLASSES if "class" in node else NODES):
                what = REFUSED.get(kind, kind.replace("_", " "))
                raise UsageError(f"{what} is not supported; a query reads {self._release} by SELECT alone")
            if kind == "BASE_TABLE":
                self._examine_table(node, known)
            elif kind in ("FUNCTION", "WINDOW"):
                self._examine_call(node, kind, joined=id(node) in inner)
            elif kind == "TYPE":
                self._examine_type(node)
            elif node.get("type") == "ARRAY_CONSTRUCTOR":
                self._growth = min(self._growth * max(1, len(node["children"])), LONGEST_VALUE + 1)
            elif kind == "CONSTANT":
                self._longest = max(self._longest, len(str(node["literal"].get("text", ""))))
            elif kind == "COLUMN_REF":
                self._refuse_clock(node)
        if self._growth * self._longest > LONGEST_VALUE or (self._gathers and self._growth > 1):
            raise UsageError("the query makes texts or lists that are too long; join fewer of them")

    def _examine_table(self, node: Tree, known: set[str]) -> None:
        path = tuple(part for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part)
        folded = tuple(map(fold_name, path))
        if node.get("at_clause"):
            raise UsageError("AT is not supported")
        if len(path) == 1 and folded[0] in known:
            return
        if folded[-1] == self._release and len(path) < 3 and folded[0] in (self._release, *MAIN_SCHEMAS):
            self.own.append(node)
        else:
            self.lookups[path] = None

    def _examine_type(self, node: Tree) -> None:
        plain = all(one.get("class") == "CONSTANT" for one in node["children"])
        if node["type_name"].upper() not in TYPES or node.get("schema") or not plain:
            raise UsageError(f"the type {node['type_name']} is not supported")

    def _examine_call(self, node: Tree, kind: str, *, joined: bool) -> None:
        name, functions = fold_name(node["function_name"]), self.functions
        kinds = functions.kinds.get(name, frozenset())
        arguments = list_arguments(node)
        if node.get("schema") or node.get("catalog") or not kinds & {"scalar", "aggregate", "window", "macro"}:
            raise UsageError(f"there is no function {node['function_name']} here")
        if name not in functions.plain or (name == "age" and len(arguments) == 1):
            raise UsageError(f"{name}() is not supported: it depends on chance, on time or on the engine")
        if "macro" in kinds and name not in KEEPING:
            self._examine_bodies(name)
            return
        if name in GATHERING:
            self._gathers = True
            if kind == "WINDOW":
                raise UsageError(f"{name}() OVER is not supported: it makes lists that are too long")
        if name in functions.fixed or name in KEEPING or (name in SUMS and not self._lists):
            return
        if name in JOINING:
            self._growth *= max(1, len(arguments) - joined)
        elif name in REPLACING and all(one["class"] == "CONSTANT" for one in arguments[2:3]):
            self._growth *= 1 + sum(len(str(one["literal"].get("text", ""))) for one in arguments[2:3])
        else:
            raise UsageError(f"{name}() is not supported: it can make texts or lists of any length")
        self._growth = min(self._growth, LONGEST_VALUE + 1)

    def _refuse_clock(self, node: Tree) -> None:
        name = fold_name(node["column_names"][0]) if len(node["column_names"]) == 1 else ""
        if name in CLOCKS and name not in self._columns:
            raise UsageError(f"{name} is not supported: it is another one each time")

    def _examine_bodies(self, name: str) -> None:
        """Refuse one of the engine's own macros if the SQL that it stands for may not run."""
        for body in self.functions.bodies[name]:
            for node in walk(json.loads(body)):
                if node.get("type") in ("BASE_TABLE", "TABLE_FUNCTION"):
                    raise UsageError(f"{name}() is not supported: it tells of the engine")
                if node.get("class") == "FUNCTION":
                    self._examine_call(node, "FUNCTION", joined=False)
                elif node.get("class") == "COLUMN_REF":
                    self._refuse_clock(node)


LISTS = {name for name in KEEPING | JOINING if "list" in name or "array" in name or "split" in name or name == "split"}


def list_arguments(call: Tree) -> list[Tree]:
    """Return the arguments of a function call."""
    return [one["expression"] for one in call["arguments"]]


def _joins_alike(call: Tree, argument: Tree) -> bool:
    """Return whether a call of ``||`` or ``+`` has a call of the same operator as its argument.

    The result of such a chain is only as long as its parts together, so its calls do not multiply the length of texts.
    """
    names = [one.get("function_name") for one in (call, argument)]
    return names in (["||", "||"], ["+", "+"])


# Columns --------------------------------------------------------------------------------------------------------------
# What the columns of an answer are computed from. A key is a value of records; rows of different completed tables are
# matched by keys. Every other column is a figure, which is computed by an aggregate or window function.

Mark = Literal["figure", "count", "moment", "choice", "nested"]
Marks = frozenset[Mark]
KEY: Marks = frozenset()
DIRECT: Marks = frozenset(("count", "choice"))  # lost in whatever is computed from the function's value
MOMENTS = {
    "avg", "mean", "favg", "sum", "fsum", "sumkahan", "kahan_sum", "sum_no_overflow", "corr", "covar_pop", "covar_samp",
    "regr_avgx", "regr_avgy", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "stddev",
    "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "sem", "skewness", "kurtosis", "kurtosis_pop",
    "weighted_avg", "wavg", "geomean", "geometric_mean", "product",
}  # fmt: skip
CHOICES = {
    "mode", "first", "last", "any_value", "arbitrary", "arg_max", "argmax", "max_by", "arg_min", "argmin", "min_by",
    "arg_max_null", "arg_min_null", "approx_top_k", "bool_and", "bool_or",
}  # fmt: skip
LINEAR = {  # functions of estimates that add no bias
    "sum", "fsum", "avg", "mean", "count", "count_star", "any_value", "first", "lag", "lead", "first_value",
    "last_value", "nth_value", "weighted_avg", "wavg",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a query.

    Attributes:
        name: Its name.
        marks: Whether an aggregate or window function computes it ("figure"), and of what kind, such as "count". Empty
            for values of single records.
        is_key: Whether rows of different completed tables are matched by it. False if the query computes it from
            several rows or from estimates.
        is_named: Whether it has an alias, or is a plain column.
    """

    name: str
    marks: Marks
    is_key: bool
    is_named: bool = True


@dataclass
class Source:
    """A table in FROM.

    Marks say whether an aggregate or window function computes a column ("figure"), and of what kind, such as "count".

    Attributes:
        alias: The name by which the query calls it.
        columns: The marks of each column that is known by name, in lower case; none for values of single records.
        others: The marks of all columns whose names are not known, such as those behind a ``*``.
    """

    alias: str
    columns: dict[str, Marks] = field(default_factory=dict)
    others: Marks = KEY


class Lineage:
    """An analysis of what the columns of a SELECT over completed tables are computed from.

    In a completed table, each record of the release has one drawn sensitive value. Rows of different tables are matched
    by columns that are values of records. Columns that aggregate or window functions compute are combined to estimates.
    """

    def __init__(self, functions: EngineFunctions) -> None:
        self._functions = functions
        self._known: dict[int, Marks] = {}  # by identity of an expression, which a query may use several times
        self.has_top = False  # whether an estimate decides which rows remain

    def read_query(
        self, node: Tree, around: Mapping[str, Source] | None = None, outer: Sequence[Source] = ()
    ) -> list[Column | Source]:
        """Return the columns of a query in their order, each with what it is computed from.

        A ``Source`` in the result stands for ``*``, all columns of a table, of which only some may be known.

        Args:
            node: The query.
            around: The queries that an outer WITH names, by name in lower case.
            outer: The tables of the queries around it.
        """
        named = dict(around or {})
        for one in node["cte_map"]["map"]:
            columns = self.read_query(one["value"]["query_node"], named, outer)
            named[fold_name(one["key"])] = self._as_source(one["key"], columns, one["value"].get("aliases", ()))
        if node["type"] == "SET_OPERATION_NODE":
            return self._read_union([self.read_query(one, named, outer) for one in node["children"]], node)
        if node["type"] != "SELECT_NODE":
            raise UsageError(f"{node['type']} is not supported")
        sources = self._read_from(node["from_table"], named, outer)
        scope = [*sources, *outer]
        where = node.get("where_clause")
        of_estimates = where is not None and "figure" in self._marks(where, scope, named)
        grouped = bool(node["group_expressions"]) or node["aggregate_handling"] == "FORCE_AGGREGATES"
        grouped = grouped or any(one["type"] == "DISTINCT_MODIFIER" for one in node["modifiers"])
        aliases, computed = Source(""), set[str]()
        found: list[Column | Source] = []
        for item in node["select_list"]:
            if item["class"] == "STAR" and not item["columns"]:
                found += [one for one in sources if item.get("relation_name", "") in ("", one.alias)]
                continue
            marks = self._marks(item, [*scope, aliases], named)
            if of_estimates and "figure" in marks:
                marks |= {"nested"}
            own = any(self._computes(one) or _names(one, computed, sources) for one in walk_own(item))
            name = item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else "")
            computed |= {fold_name(item["alias"])} if own and item["alias"] else set()
            aliases.columns.setdefault(fold_name(name), marks)
            is_key = not own if grouped else "figure" not in marks
            found.append(Column(name, marks, is_key, bool(item["alias"]) or item["class"] == "COLUMN_REF"))
        self._look_for_top(node, [*scope, aliases], named)
        return found

    def _look_for_top(self, node: Tree, scope: Sequence[Source], named: Mapping[str, Source]) -> None:
        """Set ``has_top`` if an estimate decides which rows remain, by ORDER BY with LIMIT or by QUALIFY.

        Args:
            node: The query.
            scope: The tables whose columns it may name.
            named: The queries that WITH names.
        """
        kinds = {one["type"]: one for one in node["modifiers"]}
        orders = kinds["ORDER_MODIFIER"]["orders"] if {"ORDER_MODIFIER", "LIMIT_MODIFIER"} <= kinds.keys() else []
        items = node.get("select_list", [])
        expressions = []
        for one in orders:
            place = find_position(one["expression"], len(items))
            expressions.append(one["expression"] if place is None else items[place])
        if node.get("qualify"):
            expressions.append(node["qualify"])
        self.has_top = self.has_top or any("figure" in self._marks(one, scope, named) for one in expressions)

    def _read_union(self, parts: Sequence[list[Column | Source]], node: Tree) -> list[Column | Source]:
        if any(isinstance(one, Source) for part in parts for one in part) or len({len(part) for part in parts}) > 1:
            raise UsageError("UNION: name the columns of each part")
        joined: list[Column | Source] = []
        for columns in zip(*parts, strict=True):
            plain = [one for one in columns if isinstance(one, Column)]
            marks = KEY.union(*(one.marks for one in plain))
            is_key = all(one.is_key for one in plain)
            joined.append(Column(plain[0].name, marks, is_key, plain[0].is_named))
        self._look_for_top(node, [self._as_source("", joined)], {})
        return joined

    def _as_source(self, alias: str, columns: Sequence[Column | Source], aliases: Sequence[str] = ()) -> Source:
        """Return the result of a query as a table.

        Args:
            alias: The name of the table.
            columns: The columns of the query.
            aliases: New names for the first columns.
        """
        made = Source(alias)
        for at, one in enumerate(columns):
            if isinstance(one, Column):
                name = aliases[at] if at < len(aliases) else one.name
                made.columns.setdefault(fold_name(name), one.marks)
            else:
                made.columns |= {name: marks for name, marks in one.columns.items() if name not in made.columns}
                made.others |= one.others
                if aliases:  # which columns they rename is unknown here
                    made.others |= KEY.union(*one.columns.values())
        return made

    def _read_from(self, node: Tree, named: Mapping[str, Source], outer: Sequence[Source]) -> list[Source]:
        kind = node["type"]
        if kind == "JOIN":
            left = self._read_from(node["left"], named, outer)
            return [*left, *self._read_from(node["right"], named, [*left, *outer])]
        if kind == "BASE_TABLE":
            name = node["table_name"]
            known = named.get(fold_name(name)) if not node["schema_name"] else None
            alias = node["alias"] or name
            if known is None:
                return [Source(alias)]
            renamed = dict(zip(map(fold_name, node["column_name_alias"]), known.columns.values(), strict=False))
            return [Source(alias, known.columns | renamed, known.others)]
        if kind == "SUBQUERY":
            columns = self.read_query(node["subquery"]["node"], named, outer)
            return [self._as_source(node["alias"], columns, node["column_name_alias"])]
        if kind == "PIVOT":
            sources = self._read_from(node["source"], named, outer)
            inner = [marks for one in sources for marks in (one.others, *one.columns.values())]
            marks = KEY.union(*(self._marks(one, sources, named) for one in node["aggregates"]), *inner)
            kept = {fold_name(name): KEY for name in (*node["groups"], *node["unpivot_names"])}
            kept |= {fold_name(name): KEY for one in node["pivots"] for name in one.get("unpivot_names", ())}
            return [Source(node["alias"], kept, marks)]
        return [Source(node.get("alias", ""))]  # VALUES, or nothing

    def _computes(self, node: Tree) -> bool:
        """Return whether a node is an aggregate function, a window function or a subquery, so no value of a record."""
        kind: str = node["class"]
        if kind == "FUNCTION":
            return self._functions.is_aggregate(fold_name(node["function_name"]))
        return kind == "WINDOW" or (kind == "SUBQUERY" and bool(node["subquery_type"] == "SCALAR"))

    def _marks(self, node: Tree, scope: Sequence[Source], named: Mapping[str, Source]) -> Marks:
        """Return the marks of an expression: whether it is computed by an aggregate function, and of what kind.

        The result is kept for each node.
        """
        if id(node) not in self._known:
            self._known[id(node)] = self._find_marks(node, scope, named)
        return self._known[id(node)]

    def _find_marks(self, node: Tree, scope: Sequence[Source], named: Mapping[str, Source]) -> Marks:
        kind = node["class"]
        if kind == "COLUMN_REF":
            return _find_column(node["column_names"], scope)
        if kind == "SUBQUERY":
            columns = self.read_query(node["subquery"]["node"], named, scope)
            inner = KEY.union(*(one.marks if isinstance(one, Column) else one.others for one in columns))
            child = self._marks(node["child"], scope, named) if node.get("child") else KEY
            return inner | child if node["subquery_type"] == "SCALAR" else (inner | child) - DIRECT
        parts = [self._marks(one, scope, named) for one in inner_expressions(node)]
        inside: Marks = KEY.union(*parts)
        if kind == "CAST":
            return inside
        name = fold_name(node["function_name"]) if kind in ("FUNCTION", "WINDOW") else ""
        if not name or not self._computes(node):
            return inside - DIRECT
        found: set[Mark] = {"figure", *(inside - DIRECT)}
        found |= {"count"} if name in ("count", "count_star", "count_if", "countif") and kind == "FUNCTION" else set()
        found |= {"moment"} if name in MOMENTS else set()
        found |= {"choice"} if name in CHOICES else set()
        found |= {"nested"} if "figure" in inside and name not in LINEAR else set()
        return frozenset(found)


def _names(node: Tree, computed: set[str], sources: Sequence[Source]) -> bool:
    """Return whether a node names a computed column by its alias.

    Args:
        node: The node.
        computed: The aliases of computed columns.
        sources: The tables in FROM; a column of that name in one of them comes first.
    """
    path: Sequence[str] = node["column_names"] if node["class"] == "COLUMN_REF" else []
    name = fold_name(path[0]) if len(path) == 1 else ""
    return name in computed and not any(name in one.columns for one in sources)


def inner_expressions(node: Tree) -> Iterator[Tree]:
    """Yield the expressions directly inside an expression."""
    rest: list[Any] = list(node.values())
    while rest:
        one = rest.pop(0)
        if isinstance(one, list):
            rest = [*one, *rest]
        elif isinstance(one, dict):
            if "class" in one:
                yield one
            else:
                rest = [*one.values(), *rest]


def walk_own(node: Tree) -> Iterator[Tree]:
    """Yield an expression and all expressions inside it, except those inside a subquery."""
    yield node
    if node["class"] != "SUBQUERY":
        for one in inner_expressions(node):
            yield from walk_own(one)


def _find_column(path: Sequence[str], scope: Sequence[Source]) -> Marks:
    """Return the marks of a column: whether an aggregate or window function computes it, and of what kind.

    They are those of the first table that is known to have the column. Otherwise they are those of the columns whose
    names are not known.

    Args:
        path: The parts of the column's name, such as the table and the column.
        scope: The tables that may have it.
    """
    name = fold_name(path[-1])
    owners = [one for one in scope if len(path) < 2 or fold_name(one.alias) == fold_name(path[-2])]
    for one in owners:
        if name in one.columns:
            return one.columns[name]
    return KEY.union(*(one.others for one in owners))


def find_position(node: Tree, outputs: int) -> int | None:
    """Return the index of the output that ORDER BY names by its position, such as 0 for ``ORDER BY 1``.

    None otherwise.
    """
    text = str(node["literal"].get("text", "")) if node["class"] == "CONSTANT" else ""
    return int(text) - 1 if text.isdecimal() and 0 < int(text) <= outputs else None
