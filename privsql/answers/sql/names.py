"""Parse SQL into one SELECT, split its conditions by side of the release, and resolve its names as DuckDB does."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.answers.sql.question import (
    AGGREGATES,
    CONNECTIVES,
    Lookup,
    as_written,
    check_kinds,
    forget_positions,
    keep_text,
    list_items,
)
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError, suggest_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from privsql.answers.sql.question import Side

MAIN_SCHEMAS = ("main", "public")  # what tools write before the name of a release

# Conditions -----------------------------------------------------------------------------------------------------------

Filters = dict["Side", list[exp.Expr]]
Terms = dict["Side", list[tuple[str, exp.Expr]]]


def split_conjuncts(root: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that ``root`` joins by AND."""
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, exp.And):
            rest += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            rest.append(node.this)
        else:
            yield node


def common_conjuncts(root: exp.Expr) -> list[exp.Expr]:
    """Return the conditions that every branch of a disjunction has."""
    branches, rest = [], [root.unnest()]
    while rest:
        node = rest.pop().unnest()
        if isinstance(node, exp.Or):
            rest += [node.expression, node.this]
        else:
            branches.append(list(split_conjuncts(node)))
    if len(branches) < 2:
        return []
    return [part for part in branches[0] if all(part in other for other in branches[1:])]


def is_column_equality(part: exp.Expr) -> bool:
    """Return whether a condition says that two columns are equal."""
    return isinstance(part, exp.EQ) and all(isinstance(side, exp.Column) for side in part.iter_expressions())


def split_condition(root: exp.Expr | None, sides: Mapping[str, Side]) -> tuple[Filters, Terms, exp.Expr | None]:
    """Filters, terms and predicate of a condition, as ``CountQuery`` has them; ``sides``: of each column, by name."""
    filters: Filters = {"qi": [], "sa": []}
    terms: Terms = {"qi": [], "sa": []}
    rest = []
    about = _sides_by_part(root, sides) if root is not None else {}
    for part in split_conjuncts(root) if root is not None else ():
        if len(about[id(part)]) == 2:
            rest.append(_over_terms(part, about, terms))
        else:
            filters[_single_side(about[id(part)])].append(part)
    return filters, terms, exp.and_(*rest) if rest else None


def _sides_by_part(root: exp.Expr, sides: Mapping[str, Side]) -> dict[int, set[Side]]:
    """Return the sides that each part of a condition is about, by the part's identity."""
    by_part: dict[int, set[Side]] = {}
    for node in reversed(list(root.walk(bfs=True))):
        node_sides: set[Side] = {sides[node.name]} if isinstance(node, exp.Column) else set()
        by_part[id(node)] = node_sides.union(*(by_part[id(child)] for child in node.iter_expressions()))
    return by_part


def _over_terms(part: exp.Expr, about: dict[int, set[Side]], terms: Terms) -> exp.Expr:
    """Return the part with its largest one-sided parts replaced by named terms, in place."""
    if len(about[id(part)]) < 2:
        side = _single_side(about[id(part)])
        name = f"{side[0]}_{len(terms[side])}"
        terms[side].append((name, part.copy()))
        return column(name)
    if not isinstance(part, CONNECTIVES):
        raise UsageError(f"{as_written(part)}: comparing a quasi-identifier with a sensitive column is not supported")
    for key in ("this", "expression"):
        if part.args.get(key) is not None:
            part.set(key, _over_terms(part.args[key], about, terms))
    return part


def sides_of(root: exp.Expr, sides: Mapping[str, Side]) -> set[Side]:
    """Return the sides that an expression is about; none for a constant."""
    return {sides[item.name] for item in root.find_all(exp.Column)}


def _single_side(sides: set[Side]) -> Side:
    """Return the side of a condition on one side; constants count as quasi-identifiers."""
    return next(iter(sides), "qi")


# Statement ------------------------------------------------------------------------------------------------------------

CLAUSES = {
    "expressions", "from_", "joins", "where", "group", "having", "qualify", "order", "limit", "offset", "distinct",
}  # fmt: skip
WRITTEN = {
    "with_": "WITH", "distinct": "DISTINCT", "qualify": "QUALIFY", "windows": "WINDOW",
    "sample": "USING SAMPLE", "laterals": "LATERAL", "pivots": "PIVOT", "into": "INTO",
}  # fmt: skip
SETS = (exp.GroupingSets, exp.Rollup, exp.Cube)
STUMBLES = (AttributeError, LookupError, TypeError, ValueError)  # what the parser ends in on some texts: SHOW alone
DEEPEST = 200  # expressions inside each other: Python's stack ends near 300 when they are written as SQL
CHAINS = (exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul)  # are written without going deeper


@contextmanager
def refuse_bad_text(sql: str) -> Iterator[None]:
    """Raise ``UsageError`` for what is no text, or too much of it."""
    if not isinstance(sql, str):
        raise UsageError(f"the query must be text, not {type(sql).__name__}")
    try:
        sql.encode()
        yield
    except UnicodeEncodeError as error:
        raise UsageError("the query is not valid Unicode text") from error
    except RecursionError as error:
        raise UsageError("the query is nested too deeply") from error


def parse_select(sql: str) -> exp.Select:
    """Return the one SELECT that the text is; ``UsageError`` for anything else."""
    tree = parse_query_text(sql)
    if not isinstance(tree, exp.Select):
        raise UsageError(f"only one SELECT can be answered, not {type(tree).__name__.upper()}")
    return tree


def _explain_syntax(error: SqlglotError) -> str:
    """Return what is wrong with a text of SQL and where, in words of SQL."""
    found: dict[str, Any] = next(iter(getattr(error, "errors", None) or []), {})
    if not found:
        return str(error).splitlines()[0]
    what = str(found.get("description", "")).rstrip(".")
    what = "something is missing" if "Required keyword" in what else what
    near = f"{found.get('start_context', '')}{found.get('highlight', '')}"[-40:].strip()
    return f"{what}, after {near!r} (line {found.get('line')}, column {found.get('col')})"


def parse_query_text(sql: str) -> exp.Expr:
    """Return the one SELECT, or UNION of such, that the text is; ``UsageError`` for anything else."""
    with refuse_bad_text(sql):
        return _parse_text(sql).copy()


@lru_cache(maxsize=64)
def _parse_text(sql: str) -> exp.Expr:
    """Return ``parse_query_text``, once for each text: every answer reads its query twice."""
    try:
        with _silence_parser():
            statements = [s for s in sqlglot.parse(sql, dialect=DIALECT) if s is not None]
    except SqlglotError as error:
        raise UsageError(f"the query can't be parsed: {_explain_syntax(error)}") from error
    except STUMBLES as error:
        raise UsageError("the query can't be parsed") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Select | exp.Union):
        kinds = [type(statement).__name__.upper() for statement in statements] or ["nothing"]
        written = kinds[0] if len(kinds) == 1 else "several statements"
        raise UsageError(f"only one SELECT can be answered, not {written}")
    rest = [(statements[0], 0)]
    while rest:
        node, depth = rest.pop()
        if depth > DEEPEST:
            raise UsageError("the query is nested too deeply")
        chain = type(node) if isinstance(node, CHAINS) else None
        rest += [(child, depth + (type(child) is not chain)) for child in node.iter_expressions()]
    forget_positions(statements[0])  # where in the text its parts stand
    return statements[0]


@contextmanager
def _silence_parser() -> Iterator[None]:
    """Without the parser's own warnings: what it can't read is refused here."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def refuse_others(node: exp.Expr, known: set[str]) -> None:
    """Raise ``UsageError`` for a clause that is not known."""
    for clause, value in node.args.items():
        if value and clause not in known:
            instead = "a query has WHERE, GROUP BY, HAVING, QUALIFY, ORDER BY and LIMIT"
            raise UsageError(f"{WRITTEN.get(clause, clause.strip('_').upper())} is not supported; {instead}")


# The clauses of a count query ---


def check_clauses(select: exp.Select, place: str = "") -> None:
    """Raise ``UsageError`` for what is not supported in a clause; ``place``: how messages call it besides its name."""
    read_limits(select)
    order = select.args.get("order")
    clauses = [(name, select.args.get(name)) for name in ("where", "having", "qualify")]
    parts = [("SELECT", item.unalias()) for item in select.expressions if not is_star(item)]
    parts += [(name.upper(), clause.this) for name, clause in clauses if clause is not None]
    parts += [("GROUP BY", item) for item in group_items(select)]
    for item in order.expressions if order else ():
        if item.args.get("with_fill"):
            raise UsageError("ORDER BY .. WITH FILL is not supported")
        parts += [] if isinstance(item.this, exp.Var) else [("ORDER BY", item.this)]  # ORDER BY ALL
    for name, part in parts:
        check_kinds(f"{name}{place}", part, aggregates=name not in ("WHERE", "GROUP BY"))


def group_items(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the items of GROUP BY, also inside GROUPING SETS, ROLLUP and CUBE; ``UsageError`` for other forms."""
    clause = select.args.get("group")
    for key, value in clause.args.items() if clause else ():
        if value and key not in ("expressions", "all"):
            raise UsageError(f"GROUP BY {key.replace('_', ' ').upper()} is not supported")
    rest = list(clause.expressions)[::-1] if clause else []
    while rest:
        item = rest.pop()
        if isinstance(item, (*SETS, exp.Tuple, exp.Paren)):
            rest += list(item.iter_expressions())[::-1]
        else:
            yield item


def find_outermost(roots: Iterable[exp.Expr], matches: Callable[[exp.Expr], bool]) -> Iterator[exp.Expr]:
    """Return the parts of expressions that match and are in no other that does, in their order."""
    return (node for root in roots for node in root.walk(bfs=False, prune=matches) if matches(node))


def find_aggregates(*roots: exp.Expr) -> list[exp.Expr]:
    """Return the outermost aggregate functions in expressions, each with its FILTER."""
    return list(find_outermost(roots, lambda node: isinstance(node, (exp.Filter, *AGGREGATES))))


def has_aggregates(select: exp.Select) -> bool:
    """Return whether a query without groups is one of aggregate functions, window functions aside: it has one row."""
    clauses = (select.args.get(name) for name in ("having", "qualify", "order"))
    for root in (*select.expressions, *(one for one in clauses if one is not None)):
        for node in root.find_all(*AGGREGATES):
            holder = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
            if not isinstance(holder, exp.Window) or node.arg_key != "this":
                return True
    return False


def list_group_names(select: exp.Select) -> set[str]:
    """Return the names that stand in GROUP BY, in small letters."""
    return {fold_name(item.name) for item in group_items(select) if isinstance(item, exp.Column)}


def output_position(item: exp.Expr, number: int) -> int | None:
    """Return the place of the output that a position names, from 0; None for what is no position."""
    if not isinstance(item, exp.Literal) or item.is_string:
        return None
    place = whole_number(item)
    if place is None or not 1 <= place <= number:
        raise UsageError(f"position {item.this} is not in the select list")
    return place - 1


def read_limits(select: exp.Query) -> dict[str, int | None]:
    """Return the numbers of LIMIT and OFFSET, in small letters."""
    numbers = {}
    for name in ("limit", "offset"):
        clause = select.args.get(name)
        number = clause.args.get("count" if isinstance(clause, exp.Fetch) else "expression") if clause else None
        numbers[name] = whole_number(number) if number is not None else None
        known = ("count", "direction") if isinstance(clause, exp.Fetch) else ("expression",)
        others = clause and any(value for key, value in clause.args.items() if key not in known and not _is_only(value))
        if clause and (numbers[name] is None or others):
            raise UsageError(f"{name.upper()} must be a whole number")
    return numbers


def _is_only(option: object) -> bool:
    """Return whether options of FETCH say no more than ROWS ONLY."""
    return isinstance(option, exp.LimitOptions) and not option.args.get("with_ties") and not option.args.get("percent")


def whole_number(item: exp.Expr) -> int | None:
    """Return the value of a literal that is a whole number of at most 18 digits."""
    digits = item.this if isinstance(item, exp.Literal) and not item.is_string else ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def is_count(item: exp.Expr) -> bool:
    """Return whether it is COUNT(*)."""
    plain = isinstance(item, exp.Count) and isinstance(item.this, exp.Star) and not item.expressions
    return plain and not any(item.this.args.values())


# Sources --------------------------------------------------------------------------------------------------------------


class Lookups(Protocol):
    """The tables that may be joined to the release."""

    def find_table(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Return where the table lies that a query calls by ``names``, and its columns; ``UsageError`` for none."""

    def read_rows(self, query: exp.Select) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT over these tables, at most 10,001."""

    def answer_query(self, query: exp.Select) -> tuple[list[tuple[Any, ...]], bool]:
        """Return the rows of a query to the release, without errors and bounds, and whether they are exact."""


@dataclass(frozen=True)
class QueryTable:
    """A table of the query: its alias, what its columns are, by name, and what messages call it."""

    alias: str
    columns: Mapping[str, exp.Expr]
    label: str = "the release"

    @cached_property
    def folded(self) -> dict[str, exp.Expr]:
        """Return what its columns are, by folded name."""
        return {fold_name(name): one for name, one in self.columns.items()}


@dataclass
class JoinedTables:
    """The tables that a query and the derived tables in it join, by names of columns that are unique among all.

    ``sides``: of every column; ``lookups``; ``conditions`` of joins and derived tables, which all records meet;
    ``reads_release``: whether it is among the tables.
    """

    sides: dict[str, Side]
    lookups: list[Lookup] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)
    reads_release: bool = False

    def add_lookup(self, lookup: Lookup) -> QueryTable:
        """Return a table of the analyst's own as one of the query."""
        columns = {name: column(lookup.inner_name(name)) for name in lookup.columns}
        taken = {fold_name(name) for name in self.sides}
        for one in columns.values():
            if fold_name(one.name) in taken:
                raise UsageError(f"JOIN: {one.name!r} could be two columns; give {lookup.alias} another alias")
        self.sides |= dict.fromkeys((one.name for one in columns.values()), "qi")
        self.lookups.append(lookup)
        return QueryTable(lookup.alias, columns, lookup.alias)

    def find_key(self, lookup: Lookup, part: exp.Expr) -> tuple[str, str] | None:
        """Return the lookup's column and the quasi-identifier of the release that a condition says are equal."""
        if not is_column_equality(part):
            return None
        names = (part.this.name, part.expression.name)
        theirs = {lookup.inner_name(name): name for name in lookup.columns}
        others = {one.inner_name(name) for one in self.lookups for name in one.columns}
        for one, other in (names, names[::-1]):
            if one in theirs and other not in others and self.sides[other] == "qi":
                return theirs[one], other
        return None

    def take_keys(self, where: exp.Expr | None) -> exp.Expr | None:
        """Give each lookup its keys out of all conditions; return the others."""
        if not self.lookups and not self.conditions:
            return where
        known = [*self.conditions, *([where] if where is not None else [])]
        rest = [part for one in known for part in split_conjuncts(one)]
        parts = [*rest, *(common for part in rest for common in common_conjuncts(part))]
        for at, lookup in enumerate(self.lookups):
            if lookup.keys:
                continue
            keys = {id(part): key for part in parts if (key := self.find_key(lookup, part)) is not None}
            self.lookups[at] = replace(lookup, keys=tuple(dict.fromkeys(keys.values())))
            rest = [part for part in rest if id(part) not in keys]
        return exp.and_(*(part.copy() for part in rest)) if rest else None


# Names ----------------------------------------------------------------------------------------------------------------
# The names of a query as DuckDB understands them: columns, aliases and positions.
#
# A column comes before an alias, except where ORDER BY names an alias alone, and in HAVING where the query does not
# group by the column. ASCII letters match in either case. Unknown and ambiguous names are refused.

MOST = 2_000  # nodes that aliases may add to an expression


@dataclass(frozen=True)
class ClauseAliases:
    """Names that a clause may use besides columns: aliases before columns, after them, and what is an alias first."""

    named: Mapping[str, exp.Expr]
    before: frozenset[str] = frozenset()


class NameResolver:
    """Resolves the names of a query over ``tables``; of a derived one aliases are known in the select list, too."""

    def __init__(self, joined: JoinedTables, tables: Sequence[QueryTable] = (), *, is_derived: bool = False) -> None:
        self.joined, self.tables, self._is_derived = joined, list(tables), is_derived
        self._shared: dict[str, QueryTable] = {}  # the first of the tables whose columns USING makes one

    def refuse_alias(self, alias: str) -> None:
        """Raise ``UsageError`` for an alias that a table has already."""
        if any(fold_name(alias) == fold_name(other.alias) for other in self.tables):
            raise UsageError(f"JOIN: two tables are called {alias!r}; give one an alias")

    def add_table(self, table: QueryTable, join: exp.Expr) -> list[exp.Expr]:
        """Add a table; return the conditions by which it is joined."""
        parts = [self._share_key(key.name, table) for key in join.args.get("using") or ()]
        self.tables.append(table)
        if join.args.get("on") is not None:
            holder = exp.Where(this=join.args["on"].copy())
            self._bind_names(holder, ClauseAliases({}))
            parts += split_conjuncts(holder.this)
        return parts

    def _share_key(self, key: str, table: QueryTable) -> exp.Expr:
        """Return the equality of the columns that USING makes one."""
        owner, name = self._find_table(exp.column(key)), fold_name(key)
        if owner is None:
            raise _unknown_column(key, self.tables[0])
        if name not in table.folded:
            raise _unknown_column(key, table)
        self._shared[name] = owner
        return exp.EQ(this=table.folded[name].copy(), expression=owner.folded[name].copy())

    def expand_stars(self, select: exp.Select) -> None:
        """Put columns in place of ``*`` and ``table.*``, in place."""
        expanded: list[exp.Expr] = []
        for item in select.expressions:
            prefix = fold_name(item.table) if isinstance(item, exp.Column) else ""
            tables = [one for one in self.tables if is_star(item) and prefix in ("", fold_name(one.alias))]
            columns = {name: column(name, one.alias) for one in tables for name in one.columns}
            expanded += [exp.alias_(one, name, quoted=True) for name, one in columns.items()] or [item]
        select.set("expressions", expanded)

    def resolve_names(self, tree: exp.Select) -> exp.Select:
        """Put columns under their names inside, in place of positions and aliases, too; return the query."""
        for clause in ("expressions", "group", "having", "order"):
            for item in _list_quotable(tree.args.get(clause)):
                keep_text(item)
        grouped = list_group_names(tree)
        tables = {fold_name(table.alias) for table in self.tables}  # a table's name means all of its columns
        named: dict[str, exp.Expr] = {}
        plain: dict[str, exp.Expr] = {}
        for item in list(tree.expressions):
            self._bind_names(item, ClauseAliases(plain if self._is_derived else {}))
            if isinstance(item, exp.Alias):
                named[fold_name(item.alias)] = item.this
                plain = {name: one for name, one in named.items() if name not in tables}
        outputs = [item.unalias() for item in tree.expressions]
        rows = {name: item for name, item in plain.items() if not find_aggregates(item)}
        self._bind_names(tree.args.get("where"), ClauseAliases(rows))
        self._bind_items(tree.args.get("group"), outputs, ClauseAliases(rows))
        self._bind_having(tree, plain, grouped)
        self._bind_names(tree.args.get("qualify"), ClauseAliases(named))
        order = tree.args.get("order")
        for item in order.expressions if order else ():
            alone = isinstance(item.this, exp.Column) and not item.this.table and fold_name(item.this.name) in named
            self._bind_items(item, outputs, ClauseAliases(named, frozenset(named) if alone else frozenset()))
        return tree

    def _bind_having(self, tree: exp.Select, named: Mapping[str, exp.Expr], written: set[str]) -> None:
        """HAVING; ``written``: the names that stand in GROUP BY, which are columns there."""
        clause, groups = tree.args.get("having"), tree.args.get("group")
        columns = {item.name for item in groups.find_all(exp.Column)} if groups else set()
        for item in clause.find_all(exp.Column) if clause else ():
            name = fold_name(item.name)
            if item.table or name in written or name not in named:
                continue
            self._find_table(item)  # refused where several tables have such a column
            if any(one.folded[name].name in columns for one in self.tables if name in one.folded):
                raise UsageError(f"HAVING {item.name} is a column that the query groups by; use another alias")
        self._bind_names(clause, ClauseAliases(named, frozenset(named) - written))

    def _bind_items(self, clause: exp.Expr | None, outputs: Sequence[exp.Expr], aliases: ClauseAliases) -> None:
        """GROUP BY, or an item of ORDER BY, which may name outputs by their positions."""
        for item in list(clause.iter_expressions()) if clause is not None else ():
            place = output_position(item, len(outputs))
            if place is not None:
                if find_aggregates(outputs[place]) and not isinstance(clause, exp.Ordered):
                    raise UsageError(f"GROUP BY {as_written(item)}: {as_written(outputs[place])} is not a group")
                item.replace(outputs[place].copy())
            elif isinstance(item, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
                self._bind_items(item, outputs, aliases)
        if clause is not None:
            self._bind_names(clause, aliases)

    def _bind_names(self, root: exp.Expr | None, aliases: ClauseAliases) -> None:
        """Put the columns of an expression under their names inside, and what an alias stands for in its place."""
        added = 0
        for item in list(root.find_all(exp.Column)) if root is not None else ():
            if item.meta.get(INSIDE):
                continue
            name = fold_name(item.name)
            table = None if not item.table and name in aliases.before else self._find_table(item)
            if table is None and (item.table or name not in aliases.named):
                raise _unknown_column(item.name, self.tables[0])
            meant = (table.folded if table is not None else aliases.named)[name]
            if table is None or not isinstance(meant, exp.Column):
                added += sum(1 for _ in meant.walk())
            item.replace(_stand_for(meant, item, is_column=table is not None))
        if added > MOST:
            raise UsageError("the query is too large once its aliases and subqueries are written out; split it")

    def _find_table(self, item: exp.Column) -> QueryTable | None:
        """Return the table that has a column; ``UsageError`` where the named table lacks it, or several have it."""
        name, prefix = fold_name(item.name), fold_name(item.table)
        owner = next((table for table in self.tables if fold_name(table.alias) == prefix), None)
        if fold_name(item.db) not in ("", *MAIN_SCHEMAS) or (prefix and owner is None):
            raise UsageError(f"column {as_written(item)!r} is not of {self.tables[0].alias}")
        if owner is not None:
            if name not in owner.folded:
                raise _unknown_column(item.name, owner)
            return owner
        if name in self._shared:
            return self._shared[name]
        owners = [table for table in self.tables if name in table.folded]
        if len(owners) > 1:
            raise UsageError(f"column {item.name!r} is in several tables; write table.{item.name}")
        return owners[0] if owners else None


def _list_quotable(clause: exp.Expr | list[exp.Expr] | None) -> list[exp.Expr]:
    """Return what messages may quote of a clause: its items, and the aggregate functions in them."""
    items = list_items(clause)
    plain = [one for item in items for one in ([item.unalias()] if isinstance(clause, list) else item.expressions)]
    roots = [one.this if isinstance(one, exp.Ordered) else one for one in plain]
    return [*roots, *(one for item in items for one in item.find_all(exp.Filter, *AGGREGATES))]


INSIDE = "inside"


def _stand_for(meant: exp.Expr, written: exp.Column, *, is_column: bool) -> exp.Expr:
    """Return what a name means, in its place: its columns are not looked up again, and a number in it is no position.

    ``is_column``: of a table. An item of the select list keeps the name of one.
    """
    inner = meant.copy() if is_column and isinstance(meant, exp.Column) else exp.paren(meant)
    for one in inner.find_all(exp.Column):
        one.meta[INSIDE] = True
    if not is_column:
        return inner
    inner.meta.update(written.meta)
    if isinstance(written.parent, exp.Select) and fold_name(inner.output_name) != fold_name(written.name):
        return exp.alias_(inner, written.name, quoted=True, copy=False)
    return inner


def is_star(item: exp.Expr) -> bool:
    """Return whether an item of the select list is ``*`` or ``table.*``."""
    star = item.this if isinstance(item, exp.Column) else item
    return isinstance(star, exp.Star) and not any(star.args.values())


def _unknown_column(name: str, table: QueryTable) -> UsageError:
    near = suggest_name(name, table.columns) or ";"
    return UsageError(f"column {name!r} is not in {table.label}{near} it has {', '.join(table.columns)}")
