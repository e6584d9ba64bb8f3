"""Parse SQL into one SELECT, split its conditions by side of the release, and resolve its names as DuckDB does."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.answers.question import (
    AGGREGATES,
    CONNECTIVES,
    Lookup,
    as_written,
    check_kinds,
    forget_positions,
    in_order,
    keep_text,
    list_items,
)
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Roles, column
from privsql.errors import UsageError, suggest_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.answers.question import Side

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
    return f"{what}, behind {near!r} (line {found.get('line')}, column {found.get('col')})"


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
    _check_depth(statements[0])
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


def _check_depth(root: exp.Expr) -> None:
    rest = [(root, 0)]
    while rest:
        node, depth = rest.pop()
        if depth > DEEPEST:
            raise UsageError("the query is nested too deeply")
        chain = type(node) if isinstance(node, CHAINS) else None
        rest += [(child, depth + (type(child) is not chain)) for child in node.iter_expressions()]


def refuse_others(node: exp.Expr, known: set[str]) -> None:
    """Raise ``UsageError`` for a clause that is not known."""
    for clause, value in node.args.items():
        if value and clause not in known:
            instead = "a query has WHERE, GROUP BY, HAVING, QUALIFY, ORDER BY and LIMIT"
            raise UsageError(f"{WRITTEN.get(clause, clause.strip('_').upper())} is not supported; {instead}")


def from_last(select: exp.Select) -> exp.Select:
    """FROM t JOIN .. SELECT .. as SELECT .. FROM t JOIN .., where the joins are the query's and not the table's."""
    clause = select.args.get("from_")
    if clause and isinstance(clause.this, exp.Table) and clause.this.args.get("joins"):
        select.set("joins", [*clause.this.args["joins"], *(select.args.get("joins") or [])])
        clause.this.set("joins", None)
    return select


# The clauses of a count query ---


def check_clauses(select: exp.Select) -> None:
    """Raise ``UsageError`` for what is not supported in a clause."""
    read_limits(select)
    for item in select.expressions:
        check_kinds("SELECT", item.unalias(), aggregates=True)
    for name, several in (("where", False), ("having", True), ("qualify", True)):
        clause = select.args.get(name)
        if clause:
            check_kinds(name.upper(), clause.this, aggregates=several)
    for item in group_items(select):
        check_kinds("GROUP BY", item)
    order = select.args.get("order")
    for item in order.expressions if order else ():
        if item.args.get("with_fill"):
            raise UsageError("ORDER BY .. WITH FILL is not supported")
        if not isinstance(item.this, exp.Var):  # ORDER BY ALL
            check_kinds("ORDER BY", item.this, aggregates=True)


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


def find_aggregates(root: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the outermost aggregate functions in an expression, each with its FILTER."""
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, (exp.Filter, *AGGREGATES)):
            yield node
        else:
            rest += list(node.iter_expressions())[::-1]


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
    """A table of the query: its alias, its columns by folded name, and what it is besides if it is a lookup."""

    alias: str
    columns: dict[str, str]
    lookup: Lookup | None = None

    def inner_name(self, name: str) -> str:
        """Return the name of a column that is unique among those of all tables."""
        written = self.columns[name]
        return written if self.lookup is None else self.lookup.inner_name(written)


def release_alias(select: exp.Select, name: str) -> str:
    """Return the alias of the release in the query."""
    clause = select.args.get("from_")
    relation = clause.this if clause else None
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        raise UsageError(f"the query must read FROM {name}; count with COUNT(*) FROM {name}")
    refuse_others(relation, {"this", "alias", "db", "catalog"})
    if relation.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    if relation.db or fold_name(relation.name) != fold_name(name):
        written = ".".join(part.name for part in relation.parts)
        raise UsageError(f"there is no table {written!r} here; count with COUNT(*) FROM {name}")
    return relation.alias_or_name


def read_lookup(join: exp.Join, lookups: Lookups | None) -> QueryTable:
    """Return the lookup of an inner join on equal columns."""
    target, plain = join.this, join.side in ("", "LEFT") and not join.method and join.kind in ("", "INNER", "OUTER")
    if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier) or not plain:
        raise UsageError(
            f"{as_written(join)} is not supported; join attached tables with JOIN .. ON or LEFT JOIN .. ON"
        )
    refuse_others(join, {"this", "on", "using", "kind", "side"})
    others = [value for key, value in target.args.items() if key not in ("this", "alias", "db", "catalog")]
    if target.alias_column_names or any(others):
        raise UsageError(f"{as_written(target)} is not supported in JOIN")
    on, using = join.args.get("on"), join.args.get("using")
    if on is None and not using:
        raise UsageError(f"JOIN {target.alias_or_name}: ON or USING with quasi-identifiers is needed")
    for part in split_conjuncts(on) if on is not None else ():
        if not (isinstance(part, exp.EQ) and all(isinstance(side, exp.Column) for side in part.iter_expressions())):
            raise UsageError(f"JOIN ON {as_written(part)} is not supported; use equality of columns")
    names, alias = tuple(part.name for part in target.parts), target.alias_or_name
    if lookups is None:
        raise UsageError(f"JOIN: there is no lookup table {'.'.join(names)!r}; attach the file that has it")
    table, columns = lookups.find_table(names)
    lookup = Lookup(table, names, alias, (), columns, keeps_unmatched=join.side == "LEFT")
    return QueryTable(alias, {fold_name(title): title for title in columns}, lookup)


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
    """The tables that a query reads, the release first, and what its names mean.

    ``sides``: of every column, under its name inside.
    """

    def __init__(
        self,
        release_table: QueryTable,
        sides: Mapping[str, Side],
        lookups: Sequence[tuple[exp.Join, QueryTable]] = (),
        orders: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.sides, self._orders = dict(sides), orders or {}
        self._release, self._sources = release_table, [release_table]
        self._shared: dict[str, QueryTable] = {}  # the first of the tables whose columns USING makes one
        self.joined = tuple(self._join_table(*one) for one in lookups)

    @classmethod
    def from_select(cls, select: exp.Select, roles: Roles, name: str, lookups: Lookups | None) -> NameResolver:
        """Return the resolver of a query to the release ``name``."""
        sides: dict[str, Side] = dict.fromkeys((field.name for field in roles.quasi_identifiers), "qi")
        sides |= dict.fromkeys((field.name for field in roles.sensitive), "sa")
        release_table = QueryTable(release_alias(select, name), {fold_name(column): column for column in sides})
        joined = [(join, read_lookup(join, lookups)) for join in select.args.get("joins") or ()]
        return cls(release_table, sides, joined, roles.orders)

    # Tables ---

    def _join_table(self, join: exp.Join, source: QueryTable) -> Lookup:
        if any(fold_name(source.alias) == fold_name(other.alias) for other in self._sources):
            raise UsageError(f"JOIN: two tables are called {source.alias!r}; give one an alias")
        taken = {fold_name(name) for name in self.sides}
        for inside in map(source.inner_name, source.columns):
            if fold_name(inside) in taken:
                raise UsageError(f"JOIN: {inside!r} could be two columns; give {source.alias} another alias")
        keys = [self._share_key(key.name, source) for key in join.args.get("using") or ()]
        self._sources.append(source)
        self.sides |= dict.fromkeys(map(source.inner_name, source.columns), "qi")
        on = join.args.get("on")
        keys += [self._match_key(part, source) for part in split_conjuncts(on)] if on is not None else []
        assert source.lookup is not None  # noqa: S101 (``lookup`` gives one)
        return replace(source.lookup, keys=tuple(keys))

    def _share_key(self, key: str, source: QueryTable) -> tuple[str, str]:
        """Take note of what USING makes one column: the lookup's column, and the release's."""
        owner = self._find_table(exp.column(key))
        if owner is None:
            raise _unknown_column(key, self._release)
        if fold_name(key) not in source.columns:
            raise _unknown_column(key, source)
        self._shared[fold_name(key)] = owner
        return self._require_key((source.columns[fold_name(key)], owner.inner_name(fold_name(key))), source)

    def _match_key(self, part: exp.Expr, source: QueryTable) -> tuple[str, str]:
        """Return the lookup's column, and the release's that equals it."""
        columns = [item for item in part.iter_expressions() if isinstance(item, exp.Column)]
        owners = [(self._find_table(item), fold_name(item.name)) for item in columns]
        for item, (owner, _) in zip(columns, owners, strict=True):
            if owner is None:
                raise _unknown_column(item.name, self._release)
        for (one, theirs), (other, ours) in (owners, owners[::-1]):
            if one is source and other is not None:
                return self._require_key((source.columns[theirs], other.inner_name(ours)), source)
        return self._require_key(None, source)

    def _require_key(self, pair: tuple[str, str] | None, source: QueryTable) -> tuple[str, str]:
        release_columns = self._release.columns.values()
        if pair is None or pair[1] not in release_columns or self.sides[pair[1]] != "qi":
            raise UsageError(f"JOIN {source.alias}: join a column of it with a quasi-identifier of the release")
        return pair

    # Names ---

    def resolve_names(self, select: exp.Select) -> exp.Select:
        """Return the query with columns under their names inside, in place of positions and aliases, too."""
        tree = select.copy()
        for clause in ("expressions", "group", "having", "order"):
            for item in _list_quotable(tree.args.get(clause)):
                keep_text(item)
        for item in tree.expressions:
            self._bind_names(item, ClauseAliases({}))
        outputs = [item.unalias() for item in tree.expressions]
        named = {fold_name(item.alias): item.this for item in tree.expressions if isinstance(item, exp.Alias)}
        tables = {fold_name(source.alias) for source in self._sources}  # a table's name means all of its columns
        rows = {name: item for name, item in named.items() if name not in tables and not list(find_aggregates(item))}
        self._bind_names(tree.args.get("where"), ClauseAliases(rows))
        self._bind_items(tree.args.get("group"), outputs, ClauseAliases(rows))
        self._bind_having(tree, {k: item for k, item in named.items() if k not in tables}, list_group_names(select))
        self._bind_names(tree.args.get("qualify"), ClauseAliases(named))
        order = tree.args.get("order")
        for item in order.expressions if order else ():
            alone = isinstance(item.this, exp.Column) and not item.this.table and fold_name(item.this.name) in named
            self._bind_items(item, outputs, ClauseAliases(named, frozenset(named) if alone else frozenset()))
        return in_order(tree, self._orders)

    def _bind_having(self, tree: exp.Select, named: Mapping[str, exp.Expr], written: set[str]) -> None:
        """HAVING; ``written``: the names that stand in GROUP BY, which are columns there."""
        clause, groups = tree.args.get("having"), tree.args.get("group")
        columns = {item.name for item in groups.find_all(exp.Column)} if groups else set()
        for item in clause.find_all(exp.Column) if clause else ():
            name = fold_name(item.name)
            if item.table or name in written or name not in named:
                continue
            self._find_table(item)  # refused where several tables have such a column
            if any(source.inner_name(name) in columns for source in self._sources if name in source.columns):
                raise UsageError(f"HAVING {item.name} is a column that the query groups by; use another alias")
        self._bind_names(clause, ClauseAliases(named, frozenset(named) - written))

    def _bind_items(self, clause: exp.Expr | None, outputs: Sequence[exp.Expr], aliases: ClauseAliases) -> None:
        """GROUP BY, or an item of ORDER BY, which may name outputs by their positions."""
        for item in list(clause.iter_expressions()) if clause is not None else ():
            place = output_position(item, len(outputs))
            if place is not None:
                if list(find_aggregates(outputs[place])) and not isinstance(clause, exp.Ordered):
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
            first = not item.table and fold_name(item.name) in aliases.before
            source = None if first else self._find_table(item)
            if source is not None:
                item.replace(_inner_column(source.inner_name(fold_name(item.name)), item))
            elif not item.table and fold_name(item.name) in aliases.named:
                meant = aliases.named[fold_name(item.name)].copy()
                added += sum(1 for _ in meant.walk())
                item.replace(exp.paren(meant, copy=False))
            else:
                raise _unknown_column(item.name, self._release)
        if added > MOST:
            raise UsageError("the query is too large once its aliases are written out")

    def _find_table(self, item: exp.Column) -> QueryTable | None:
        """Return the table that has a column; ``UsageError`` where the named table lacks it, or several have it."""
        name, prefix = fold_name(item.name), fold_name(item.table)
        owner = next((source for source in self._sources if fold_name(source.alias) == prefix), None)
        if item.args.get("db") or (prefix and owner is None):
            raise UsageError(f"column {as_written(item)!r} is not of {self._release.alias}")
        if owner is not None:
            if name not in owner.columns:
                raise _unknown_column(item.name, owner)
            return owner
        if name in self._shared:
            return self._shared[name]
        owners = [source for source in self._sources if name in source.columns]
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


def _inner_column(name: str, written: exp.Column) -> exp.Column:
    """Return a column under its name inside, marked as such: it is not looked up again."""
    inner = column(name)
    inner.meta.update(written.meta)
    inner.meta[INSIDE] = True
    return inner


def _unknown_column(name: str, source: QueryTable) -> UsageError:
    place = source.alias if source.lookup else "the release"
    near = suggest_name(name, source.columns.values()) or ";"
    return UsageError(f"column {name!r} is not in {place}{near} it has {', '.join(source.columns.values())}")
