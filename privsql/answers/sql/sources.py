"""Rewrite an analyst's SELECT as one count query over the release: resolve names, and merge subqueries and joins.

``FROM (SELECT ..) AS t``, WITH and joined subqueries that return plain rows are merged with the query around them. If
the query says anywhere that a column of the analyst's own table equals a quasi-identifier, both become a key of the
join. DISTINCT becomes GROUP BY. Subqueries over the analyst's own tables or over the release alone are answered first
and replaced by constants.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.sql.grammar import (
    AGGREGATES,
    CLAUSES,
    SETS,
    WINDOWED,
    as_written,
    check_clauses,
    find_aggregates,
    find_outermost,
    group_items,
    has_aggregates,
    in_order,
    is_star,
    keep_text,
    list_items,
    null_if_nobody,
    order_items,
    output_position,
    read_clause,
    refuse_others,
    set_condition,
    shorten_sql,
)
from privsql.answers.sql.question import Lookup, Lookups, Side, split_parts
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Roles, column, list_nodes
from privsql.errors import UsageError, suggest_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

MAIN_SCHEMAS = ("main", "public")  # schemas that tools write before the name of a release
MOST = 2_000  # nodes that aliases and subqueries may add to an expression
MOST_NODES = 20_000  # of all WITH queries together, written out
MOST_VALUES = 10_000  # that a subquery may return
TOO_LARGE = "the query is too large once its {} written out; split it"

# Tables ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryTable:
    """A table that a query names in FROM or JOIN.

    Attributes:
        alias: The name by which the query calls it.
        columns: For each column, by name, the expression over columns of the release or of the analyst's tables that
            gives its value.
        label: The name of the table in messages.
    """

    alias: str
    columns: Mapping[str, exp.Expr]
    label: str = "the release"

    @cached_property
    def folded(self) -> dict[str, exp.Expr]:
        """Return the columns with ASCII letters of one case in their names, since SQL names match in either case."""
        return {fold_name(name): one for name, one in self.columns.items()}

    def explain_missing(self, name: str) -> UsageError:
        """Return the error to raise for a column that the table lacks."""
        near = suggest_name(name, self.columns) or ";"
        return UsageError(f"column {name!r} is not in {self.label}{near} it has {', '.join(self.columns)}")


@dataclass
class JoinedTables:
    """All tables that a query and its derived tables join; each column gets a name that is unique among them.

    Attributes:
        sides: Whether each column is sensitive ("sa") or can be a condition on quasi-identifiers ("qi"), by its name.
            Columns of the analyst's tables are "qi".
        lookups: The analyst's own tables.
        conditions: The conditions of joins, and those in WHERE of derived tables. They are later joined by AND with the
            query's WHERE.
        reads_release: Whether the release is among the tables.
    """

    sides: dict[str, Side]
    lookups: list[Lookup] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)
    reads_release: bool = False

    def add_lookup(self, lookup: Lookup) -> QueryTable:
        """Add a table of the analyst to the query, and return it with the unique name of each of its columns.

        Raises:
            UsageError: One of its columns would have the same unique name as another column.
        """
        columns = {name: column(lookup.inner_name(name)) for name in lookup.columns}
        taken = {fold_name(name) for name in self.sides}
        for one in columns.values():
            if fold_name(one.name) in taken:
                raise UsageError(f"JOIN: {one.name!r} could be two columns; give {lookup.alias} another alias")
        self.sides |= dict.fromkeys((one.name for one in columns.values()), "qi")
        self.lookups.append(lookup)
        return QueryTable(lookup.alias, columns, lookup.alias)

    def find_key(self, lookup: Lookup, part: exp.Expr) -> tuple[str, str] | None:
        """Return (column of the table, quasi-identifier) if a condition says that these are equal; None otherwise.

        Args:
            lookup: The analyst's table.
            part: The condition.
        """
        if not _is_column_equality(part):
            return None
        names = (part.this.name, part.expression.name)
        theirs = {lookup.inner_name(name): name for name in lookup.columns}
        others = {one.inner_name(name) for one in self.lookups for name in one.columns}
        for one, other in (names, names[::-1]):
            if one in theirs and other not in others and self.sides[other] == "qi":
                return theirs[one], other
        return None

    def take_keys(self, where: exp.Expr | None) -> exp.Expr | None:
        """Find the conditions by which the analyst's tables are joined to the release, and return all other ones.

        Such a condition says that a column of the analyst's table equals a quasi-identifier. It is stored in
        ``lookups`` as a key of the join.

        Args:
            where: The condition of WHERE, which is examined together with the conditions of ON; None if there is none.

        Returns:
            The conditions that are not keys, joined by AND; None if there is none.
        """
        if not self.lookups and not self.conditions:
            return where
        rest = [part for one in (*self.conditions, where) for part in split_parts(one)]
        parts = list(rest)
        for part in rest:  # a condition that stands in every branch of an OR holds by itself
            first, *others = [list(split_parts(one)) for one in split_parts(part, exp.Or)]
            parts += [one for one in first if others and all(one in other for other in others)]
        for at, lookup in enumerate(self.lookups):
            if lookup.keys:
                continue
            keys = {id(part): key for part in parts if (key := self.find_key(lookup, part)) is not None}
            self.lookups[at] = replace(lookup, keys=tuple(dict.fromkeys(keys.values())))
            rest = [part for part in rest if id(part) not in keys]
        return exp.and_(*rest) if rest else None


def _is_column_equality(part: exp.Expr) -> bool:
    return isinstance(part, exp.EQ) and all(isinstance(side, exp.Column) for side in part.iter_expressions())


# Names ----------------------------------------------------------------------------------------------------------------
# The names of a query as DuckDB understands them: columns, aliases and positions.
#
# A column comes before an alias, except where ORDER BY names an alias alone, and in HAVING where the query does not
# group by the column. ASCII letters match in either case. Unknown and ambiguous names are refused.

INSIDE = "inside"  # marks columns that were resolved


class NameResolver:
    """A resolver of the names in one SELECT.

    Args:
        joined: All tables of the query, to which new ones are added.
        tables: The tables that this SELECT reads.
        is_derived: Whether the SELECT is a derived table; aliases may then be used in its select list, too.
    """

    def __init__(self, joined: JoinedTables, tables: Sequence[QueryTable] = (), *, is_derived: bool = False) -> None:
        self.joined, self.tables, self._is_derived = joined, list(tables), is_derived
        self._shared: dict[str, QueryTable] = {}  # for columns of USING, the first table that has them

    def add_table(self, table: QueryTable, join: exp.Expr) -> list[exp.Expr]:
        """Add a table that is joined, and return the conditions of ON and USING, with their names resolved.

        Args:
            table: The table.
            join: The join in the query.
        """
        parts: list[exp.Expr] = []
        for key in join.args.get("using") or ():
            owner, name = self._find_table(exp.column(key.name)), fold_name(key.name)
            if owner is None or name not in table.folded:
                raise (self.tables[0] if owner is None else table).explain_missing(key.name)
            self._shared[name] = owner
            parts.append(exp.EQ(this=table.folded[name].copy(), expression=owner.folded[name].copy()))
        self.tables.append(table)
        if join.args.get("on") is not None:
            holder = exp.Where(this=join.args["on"].copy())
            self._bind_names(holder, {})
            parts += split_parts(holder.this)
        return parts

    def expand_stars(self, select: exp.Select) -> None:
        """Replace ``*`` and ``table.*`` by the columns that they stand for, in place."""
        expanded: list[exp.Expr] = []
        for item in select.expressions:
            prefix = fold_name(item.table) if isinstance(item, exp.Column) else ""
            tables = [one for one in self.tables if is_star(item) and prefix in ("", fold_name(one.alias))]
            columns = {name: column(name, one.alias) for one in tables for name in one.columns}
            expanded += [exp.alias_(one, name, quoted=True) for name, one in columns.items()] or [item]
        select.set("expressions", expanded)

    def resolve_names(self, tree: exp.Select) -> None:
        """Replace names, aliases and positions by the unique names of their columns, in place.

        A position is a number in GROUP BY or ORDER BY that means a column of the result.
        """
        for clause in ("expressions", "group", "having", "order"):  # messages quote the items of these clauses
            items = list_items(tree.args.get(clause))
            quoted = [item.unalias() for item in items]
            if clause != "expressions":
                quoted = [
                    one.this if isinstance(one, exp.Ordered) else one for item in items for one in item.expressions
                ]
            for one in (*quoted, *(call for item in items for call in item.find_all(exp.Filter, *AGGREGATES))):
                keep_text(one)
        grouped = {fold_name(item.name) for item in group_items(tree) if isinstance(item, exp.Column)}
        tables = {fold_name(table.alias) for table in self.tables}  # a table's name means all of its columns
        named: dict[str, exp.Expr] = {}
        plain: dict[str, exp.Expr] = {}
        for item in list(tree.expressions):
            self._bind_names(item, plain if self._is_derived else {})
            if isinstance(item, exp.Alias):
                named[fold_name(item.alias)] = item.this
                plain = {name: one for name, one in named.items() if name not in tables}
        outputs = [item.unalias() for item in tree.expressions]
        rows = {name: item for name, item in plain.items() if not find_aggregates(item)}
        self._bind_names(tree.args.get("where"), rows)
        self._bind_items(tree.args.get("group"), outputs, rows)
        having, groups = tree.args.get("having"), tree.args.get("group")
        columns = {item.name for item in groups.find_all(exp.Column)} if groups else set()
        for item in having.find_all(exp.Column) if having else ():
            name = fold_name(item.name)
            if item.table or name in grouped or name not in plain:
                continue
            self._find_table(item)  # raises an error if several tables have such a column
            if any(one.folded[name].name in columns for one in self.tables if name in one.folded):
                raise UsageError(f"HAVING {item.name} is a column that the query groups by; use another alias")
        self._bind_names(having, plain, plain.keys() - grouped)
        self._bind_names(tree.args.get("qualify"), named)
        for item in order_items(tree):
            alone = isinstance(item.this, exp.Column) and not item.this.table and fold_name(item.this.name) in named
            self._bind_items(item, outputs, named, named if alone else ())

    def _bind_items(
        self,
        clause: exp.Expr | None,
        outputs: Sequence[exp.Expr],
        aliases: Mapping[str, exp.Expr],
        first: Collection[str] = (),
    ) -> None:
        """Resolve the names in GROUP BY, or in an item of ORDER BY; a number there means an output by its position.

        Args:
            clause: The clause, which changes in place; None if there is none.
            outputs: The select list.
            aliases: The expressions that aliases stand for, by name in lower case.
            first: The aliases that take precedence over columns of the same name.
        """
        for item in list(clause.iter_expressions()) if clause is not None else ():
            place = output_position(item, len(outputs))
            if place is not None:
                if find_aggregates(outputs[place]) and not isinstance(clause, exp.Ordered):
                    raise UsageError(f"GROUP BY {as_written(item)}: {as_written(outputs[place])} is not a group")
                item.replace(outputs[place].copy())
            elif isinstance(item, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
                self._bind_items(item, outputs, aliases, first)
        self._bind_names(clause, aliases, first)

    def _bind_names(self, root: exp.Expr | None, aliases: Mapping[str, exp.Expr], first: Collection[str] = ()) -> None:
        """Replace the columns and aliases in an expression by what they stand for.

        Args:
            root: The expression, which changes in place.
            aliases: The expressions that aliases stand for, by name in lower case.
            first: The aliases that take precedence over columns of the same name.
        """
        added = 0
        for item in list(root.find_all(exp.Column)) if root is not None else ():
            if item.meta.get(INSIDE):
                continue
            name = fold_name(item.name)
            table = None if not item.table and name in first else self._find_table(item)
            if table is None and (item.table or name not in aliases):
                raise self.tables[0].explain_missing(item.name)
            meant = (table.folded if table is not None else aliases)[name]
            is_plain = table is not None and isinstance(meant, exp.Column)
            inner = meant.copy() if is_plain else exp.paren(meant)  # parentheses keep a number from being a position
            added += 0 if is_plain else sum(1 for _ in meant.walk())
            for one in inner.find_all(exp.Column):
                one.meta[INSIDE] = True
            if table is not None:
                inner.meta.update(item.meta)
                if isinstance(item.parent, exp.Select) and fold_name(inner.output_name) != name:
                    inner = exp.alias_(inner, item.name, quoted=True, copy=False)
            item.replace(inner)
        if added > MOST:
            raise UsageError(TOO_LARGE.format("aliases and subqueries are"))

    def _find_table(self, item: exp.Column) -> QueryTable | None:
        """Return the table that has a column; None if no table has it and the query names no table.

        Raises:
            UsageError: The named table lacks the column, or several tables have it.
        """
        name, prefix = fold_name(item.name), fold_name(item.table)
        owner = next((table for table in self.tables if fold_name(table.alias) == prefix), None)
        if fold_name(item.db) not in ("", *MAIN_SCHEMAS) or (prefix and owner is None):
            raise UsageError(f"column {as_written(item)!r} is not of {self.tables[0].alias}")
        if owner is not None:
            if name not in owner.folded:
                raise owner.explain_missing(item.name)
            return owner
        if name in self._shared:
            return self._shared[name]
        owners = [table for table in self.tables if name in table.folded]
        if len(owners) > 1:
            raise UsageError(f"column {item.name!r} is in several tables; write table.{item.name}")
        return owners[0] if owners else None


# Queries --------------------------------------------------------------------------------------------------------------

PARTS = ("expressions", "where", "group", "having", "qualify", "order")
BEYOND_ROWS = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "sample")
LOOKUP_CLAUSES = {"expressions", "from_", "where", "distinct", "group", "having", "order", "limit"}


@dataclass
class QueryReader:
    """A reader of the queries to one release. It changes the queries in place.

    Attributes:
        release: The name of the release.
        roles: The columns of the release.
        lookups: The analyst's tables that may be joined to it; None if there are none.
        check: A function that raises an error for a query with an unsupported clause.
    """

    release: str
    roles: Roles
    lookups: Lookups | None
    check: Callable[[exp.Select], None] = check_clauses

    def read_query(self, select: exp.Select) -> tuple[exp.Select, JoinedTables]:
        """Return a query with its names resolved, and the tables that it joins.

        Raises:
            UsageError: The query is not supported.
        """
        _write_out_queries(select)
        return self._read_query(select)

    def _read_query(self, select: exp.Select) -> tuple[exp.Select, JoinedTables]:
        self._answer_subqueries(select)
        inner = _find_counts(select)
        if inner is not None:
            tree, joined = self._read_query(inner)
            return merge_outer(select, tree), joined
        names, first = self._start_names(), select.find(exp.Table)
        if first is not None and not self._reads_release(select):
            written = ".".join(part.name for part in first.parts)
            near = suggest_name(written, [self.release]) or ";"
            raise UsageError(f"there is no table {written!r} here{near} count with COUNT(*) FROM {self.release}")
        self._read_rows(select, names)
        if not names.joined.reads_release:
            raise UsageError(f"the query must read FROM {self.release}; FROM {self.release} JOIN .. ON .. works")
        where = names.joined.take_keys(read_clause(select, "where"))
        select.set("where", exp.Where(this=where) if where is not None else None)
        for lookup in names.joined.lookups:
            if not lookup.keys:
                raise _explain_join(select, lookup.alias)
        return in_order(select, self.roles.orders), names.joined

    def _start_names(self) -> NameResolver:
        sides: dict[str, Side] = dict.fromkeys((field.name for field in self.roles.quasi_identifiers), "qi")
        sides |= dict.fromkeys((field.name for field in self.roles.sensitive), "sa")
        return NameResolver(JoinedTables(sides))

    def _read_rows(self, select: exp.Select, names: NameResolver) -> None:
        """Resolve the names of a query whose FROM and JOIN give single records, and add its tables to ``names``.

        Joined queries that count by group are answered first. DISTINCT over columns becomes GROUP BY.
        """
        refuse_others(select, CLAUSES)
        for join in list(select.args.get("joins") or ()):
            if isinstance(join.this, exp.Subquery) and not _passes_rows(join.this.this):
                self._join_answered(select, join, join.this.this)
        sources = _list_sources(select)
        if not isinstance(sources[0] if sources else None, exp.From):
            raise UsageError(f"the query must read FROM {self.release}; count with COUNT(*) FROM {self.release}")
        for source in sources:
            alias = source.this.alias_or_name
            if any(fold_name(alias) == fold_name(other.alias) for other in names.tables):
                raise UsageError(f"JOIN: two tables are called {alias!r}; give one an alias")
            if source.args.get("side") == "LEFT":
                self._join_unmatched(source, names)
            else:
                added = self._find_source(source, names.joined)
                names.joined.conditions += names.add_table(added, source)
        names.expand_stars(select)
        distinct = select.args.get("distinct")
        if distinct is not None and not (distinct.args.get("on") or select.args.get("group")):
            items = [item.unalias() for item in select.expressions]
            if not find_aggregates(*items):  # DISTINCT over columns is GROUP BY
                varying = [item.copy() for item in dict.fromkeys(items) if any(item.find_all(exp.Column))]
                select.set("distinct", None)
                select.set("group", exp.Group(expressions=[exp.paren(item, copy=False) for item in varying]))
        self.check(select)
        names.resolve_names(select)

    def _find_source(self, source: exp.Expr, joined: JoinedTables) -> QueryTable:
        """Return the table that FROM or JOIN names: a derived table, the release, or a table of the analyst."""
        target = source.this
        if isinstance(source, exp.Join):
            if source.kind not in ("", "INNER", "OUTER", "CROSS") or source.side not in ("", "LEFT") or source.method:
                works = "join attached tables with JOIN .. ON or LEFT JOIN .. ON"
                raise UsageError(f"{as_written(source)} is not supported; {works}")
            refuse_others(source, {"this", "on", "using", "kind", "side"})
        if isinstance(target, exp.Subquery) and isinstance(target.this, exp.Select):
            if target.alias_column_names:
                raise UsageError("renaming columns in FROM is not supported; write AS behind each column inside")
            inner = target.this
            self._answer_subqueries(inner)
            self._read_rows(inner, NameResolver(joined, is_derived=True))
            where = read_clause(inner, "where")
            joined.conditions += [where] if where is not None else []
            columns = {item.alias_or_name or item.output_name: item.unalias() for item in inner.expressions}
            return QueryTable(target.alias_or_name, columns, target.alias_or_name or "the subquery")
        if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
            works = f"count with COUNT(*) FROM {self.release}"
            raise UsageError(f"{shorten_sql(target)} is not supported in FROM; {works}")
        refuse_others(target, {"this", "alias", "db", "catalog"})
        if target.alias_column_names:
            raise UsageError(f"{as_written(target)} is not supported; rename columns with AS in SELECT")
        if self._is_release(target) and not joined.reads_release:
            joined.reads_release = True
            return QueryTable(target.alias_or_name, {one.name: column(one.name) for one in self.roles.columns})
        called = tuple(part.name for part in target.parts)
        if self.lookups is None:
            written = ".".join(called)
            near = suggest_name(written, [self.release]) or ";"
            if self._is_release(target):
                raise self._refuse_itself()
            raise UsageError(f"JOIN: there is no lookup table {written!r}{near} attach the file that has it")
        if self._is_release(target):
            raise self._refuse_itself()
        table, names = self.lookups.find_table(called)
        return joined.add_lookup(Lookup(table, called, target.alias_or_name, (), names))

    def _refuse_itself(self) -> UsageError:
        """Return the error for joining the release with itself, since nobody knows which records would pair up."""
        instead = "GROUP BY the columns that pair records, and take COUNT(*) * (COUNT(*) - 1) / 2 for pairs"
        return UsageError(f"JOIN: {self.release} is the release itself, whose records are not paired; {instead}")

    def _join_unmatched(self, join: exp.Expr, names: NameResolver) -> None:
        """Add a table of the analyst that is joined by LEFT JOIN, so that records without a match remain.

        Raises:
            UsageError: The condition of the join is not only equality of keys.
        """
        joined, alias = names.joined, join.this.alias_or_name
        if not joined.reads_release:
            written = f"{names.tables[0].alias} LEFT JOIN {self.release}"
            raise UsageError(f"{written} is not supported; write FROM {self.release} first")
        before = len(joined.lookups), len(joined.conditions)
        added = self._find_source(join, joined)
        plain = all(isinstance(one, exp.Column) for one in added.columns.values())
        if (len(joined.lookups) - 1, len(joined.conditions)) != before or not plain:
            raise UsageError(f"JOIN {alias}: such a subquery is not supported; join the table and use WHERE")
        keys = [joined.find_key(joined.lookups[-1], part) for part in names.add_table(added, join)]
        if not keys or None in keys:
            raise _explain_join(join.parent, alias)
        joined.lookups[-1] = replace(joined.lookups[-1], keys=tuple(filter(None, keys)), keeps_unmatched=True)

    def _is_release(self, table: exp.Expr) -> bool:
        if not isinstance(table, exp.Table) or fold_name(table.name) != fold_name(self.release):
            return False
        return fold_name(table.db) in ("", *MAIN_SCHEMAS)

    def _reads_release(self, query: exp.Expr) -> bool:
        return any(map(self._is_release, query.find_all(exp.Table)))

    def _join_answered(self, select: exp.Select, join: exp.Join, inner: exp.Select) -> None:
        """Answer a joined query that counts by group, and restrict WHERE to the groups in its answer.

        Tools write such joins to restrict a query to the largest groups.

        Args:
            select: The query around it, which changes in place.
            join: The join.
            inner: The query that is joined.

        Raises:
            UsageError: The query uses other columns of the joined query, or the join is not by equality.
        """
        alias = join.this.alias_or_name
        parts = list(split_parts(join.args.get("on")))
        names = [fold_name(item.alias_or_name or item.output_name) for item in inner.expressions]
        items = [item for clause in PARTS for item in list_items(select.args.get(clause))]
        outside = find_outermost(items, lambda node: isinstance(node, exp.Column | exp.Query))
        used = any(isinstance(one, exp.Column) and not isinstance(one.this, exp.Star)
                   and fold_name(one.table) == fold_name(alias) for one in outside)  # fmt: skip
        if join.side or used or not parts or not all(isinstance(part, exp.EQ) for part in parts):
            raise UsageError(
                f"JOIN {alias}: a join with a count query is not supported; run the two queries separately"
            )
        (rows, _), keys = self._read_subquery(inner), list[tuple[exp.Expr, int]]()
        for part in parts:
            sides = [part.this, part.expression]
            theirs = [s for s in sides if isinstance(s, exp.Column) and fold_name(s.name) in names
                      and fold_name(s.table) in ("", fold_name(alias))]  # fmt: skip
            theirs = [s for s in theirs if s.table] or theirs[-1:]
            if len(theirs) != 1:
                raise UsageError(f"JOIN {alias} ON {shorten_sql(part)} is not supported; use IN (SELECT ..)")
            keys.append((next(s for s in sides if s is not theirs[0]), names.index(fold_name(theirs[0].name))))
        if len({tuple(row[at] for _, at in keys) for row in rows}) < len(rows):
            raise UsageError(f"JOIN {alias}: several of its rows share a key; join on all columns of its GROUP BY")
        either = [exp.and_(*(exp.false() if row[at] is None
                             else exp.EQ(this=exp.paren(key.copy()), expression=as_constant(row[at]))
                             for key, at in keys)) for row in rows]  # fmt: skip
        condition = exp.paren(exp.or_(*either)) if either else exp.false()
        set_condition(select, "where", condition, read_clause(select, "where"))
        select.set("joins", [one for one in select.args["joins"] if one is not join])

    # Subqueries in expressions ---

    def _answer_subqueries(self, select: exp.Select) -> None:
        """Replace subqueries in expressions by their answers as constants, or by aggregate functions with FILTER."""
        self._fold_scalars(select)
        for clause in PARTS:
            for node in _find_subqueries(select.args.get(clause)):
                if isinstance(node, exp.Exists):
                    node.replace(self._answer_exists(node))
                    continue
                rows, exact = self._read_subquery(
                    node.args["query"].unnest() if isinstance(node, exp.In) else node.this
                )
                if isinstance(node, exp.In):
                    node.replace(_is_among(node.this.copy(), list(dict.fromkeys(row[0] for row in rows))))
                    continue
                written = shorten_sql(node)
                if not exact:
                    instead = "write an aggregate with FILTER"
                    raise UsageError(f"{written} is an estimate and can't be used as a constant; {instead}")
                if len(rows) != 1 or len(rows[0]) != 1:
                    raise UsageError(f"{written} has {len(rows)} rows; a subquery here must give one value")
                node.replace(as_constant(rows[0][0]))

    def _fold_scalars(self, select: exp.Select) -> None:
        """Replace scalar subqueries that aggregate the release by aggregate functions with FILTER, in place.

        ``(SELECT COUNT(*) FROM t WHERE age > 60)`` becomes ``COUNT(*) FILTER (WHERE age > 60)``. This needs a query
        without GROUP BY.
        """
        source, where = read_clause(select, "from_"), read_clause(select, "where")
        found = [node for node in _find_subqueries(select.expressions) if isinstance(node, exp.Subquery)]
        windows = any(item.find(exp.Window) for item in select.expressions)
        beyond = ("group", "having", "distinct", "joins", "qualify")
        if not found or windows or any(select.args.get(key) for key in beyond):
            return
        if source is not None and (not self._is_release(source) or _find_subqueries(where)):
            return
        calls = [node for node in find_aggregates(*select.expressions) if not node.find_ancestor(exp.Subquery)]
        if source is not None and not calls:
            return  # one row of each record
        folded = [self._fold_scalar(node) for node in found]
        if None in folded:
            return
        if where is not None:
            for node in calls:
                node.replace(_add_filter(node, where))
            select.set("where", None)
        for node, one in zip(found, folded, strict=True):
            node.replace(one or node)
        if source is None:
            select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(self.release, quoted=True))))

    def _fold_scalar(self, node: exp.Subquery) -> exp.Expr | None:
        """Return an aggregate function with FILTER that gives the same value as a scalar subquery; None if none does.

        For ``(SELECT COUNT(*) FROM t WHERE age > 60)`` it is ``COUNT(*) FILTER (WHERE age > 60)``.
        """
        inner, names = node.this.copy(), self._start_names()
        others = [key for key, value in inner.args.items() if value and key not in ("expressions", "from_", "where")]
        if others or not isinstance(inner, exp.Select) or not self._reads_release(inner) or _find_counts(inner):
            return None
        self._answer_subqueries(inner)
        self._read_rows(inner, names)
        root, where = exp.paren(inner.expressions[0].unalias()), read_clause(inner, "where")
        calls = find_aggregates(root)
        if len(inner.expressions) != 1 or names.joined.lookups or not calls or root.find(exp.Window):
            return None
        conditions = [*names.joined.conditions, *([where] if where is not None else [])]
        for one in calls if conditions else ():
            one.replace(_add_filter(one, exp.and_(*conditions)))
        return root

    def _read_subquery(self, query: exp.Expr) -> tuple[list[tuple[Any, ...]], bool]:
        """Answer a subquery over the analyst's own tables or over the release.

        Returns:
            The rows, without standard errors and bounds, and whether they are exact.
        """
        if not isinstance(query, exp.Select):
            raise UsageError(f"{shorten_sql(query)} is not supported; write one SELECT in the subquery")
        if self.lookups is None:
            raise UsageError(f"{shorten_sql(query)}: a subquery is not supported here; run it alone")
        tables, sources = list(query.find_all(exp.Table)), _list_sources(query)
        if not tables or self._reads_release(query):
            rows, exact = self.lookups.answer_query(query)
        else:
            plain = len(sources) == 1 and sources[0].this is tables[0] and isinstance(tables[0].this, exp.Identifier)
            if len(tables) > 1 or not plain or any(query.args[one] for one in query.args.keys() - LOOKUP_CLAUSES):
                alone = "such a subquery is not supported; read one table of your own"
                raise UsageError(f"{shorten_sql(query)}: {alone}")
            check_clauses(query, " in a subquery")
            rows, exact = self.lookups.read_rows(query.copy()), True
        if len(rows) > MOST_VALUES:
            raise UsageError(f"{shorten_sql(query)} has more than {MOST_VALUES:,} rows; join the table in place of it")
        return rows, exact

    def _answer_exists(self, node: exp.Exists) -> exp.Expr:
        """Rewrite EXISTS over a table of the analyst as IN with a list of that table's values.

        Raises:
            UsageError: EXISTS has another form than comparing one column for equality.
        """
        inner = node.this
        sources = _list_sources(inner) if isinstance(inner, exp.Select) else []
        if len(sources) != 1 or self._is_release(sources[0].this) or read_clause(inner, "where") is None:
            form = "write it over one table of your own, whose column equals one outside"
            raise UsageError(f"{shorten_sql(node)} is not supported; {form}")
        lookup = self._find_source(exp.Join(this=sources[0].this.copy()), JoinedTables({}))
        keys, rest = [], []
        for part in split_parts(read_clause(inner, "where")):
            inside = [fold_name(one.table) in ("", fold_name(lookup.alias)) and fold_name(one.name) in lookup.folded
                      for one in part.find_all(exp.Column)]  # fmt: skip
            if all(inside):
                rest.append(part)
            elif isinstance(part, exp.EQ) and sorted(inside) == [False, True]:
                ours = part.this if inside == [False, True] else part.expression
                keys.append((ours, part.expression if ours is part.this else part.this))
            else:
                raise UsageError(f"EXISTS .. {shorten_sql(part)} is not supported; compare columns by equality")
        if len(keys) != 1 or not isinstance(keys[0][1], exp.Column):
            raise UsageError(f"{shorten_sql(node)}: one equality with a column of the query around it is needed")
        ours, theirs = keys[0]
        query = exp.Select(expressions=[theirs.copy()], from_=inner.args["from_"].copy(), distinct=exp.Distinct())
        query = query.where(*(part.copy() for part in rest), exp.Is(this=theirs.copy(), expression=exp.null()).not_())
        values = [row[0] for row in self._read_subquery(query)[0]]
        return exp.Coalesce(this=exp.paren(_is_among(ours.copy(), values)), expressions=[exp.false()])


def _write_out_queries(tree: exp.Select) -> None:
    """Replace the names that WITH defines by their queries, in place.

    Raises:
        UsageError: The query becomes too large.
    """
    for select in list(tree.find_all(exp.Select))[::-1]:  # the innermost first
        table = read_clause(select, "from_")
        if isinstance(table, exp.Table) and table.args.get("joins"):
            select.set("joins", [*table.args["joins"], *(select.args.get("joins") or [])])
            table.set("joins", None)
        clause, queries = select.args.get("with_") or exp.With(expressions=[]), dict[str, exp.Select]()
        for one in clause.expressions:
            if clause.args.get("recursive") or not isinstance(one.this, exp.Select) or one.args["alias"].columns:
                raise UsageError("WITH: only a SELECT works, neither recursive nor with a list of column names")
            _replace_tables(one.this, queries)
            queries[fold_name(one.alias)] = one.this
        select.set("with_", None)
        _replace_tables(select, queries)


def _replace_tables(root: exp.Expr, queries: Mapping[str, exp.Select]) -> None:
    """Replace tables by the queries of the same names, in place."""
    size = 0
    for table in list(root.find_all(exp.Table)) if queries else ():
        query = queries.get(fold_name(table.name)) if isinstance(table.this, exp.Identifier) and not table.db else None
        if query is not None:
            size += len(list_nodes(query))
            if size > MOST_NODES:
                raise UsageError(TOO_LARGE.format("subqueries are"))
            alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
            table.replace(exp.Subquery(this=query.copy(), alias=alias))


def _list_sources(select: exp.Expr) -> list[exp.Expr]:
    """Return the FROM and JOIN nodes of a query's syntax tree; in each, ``this`` is the table that it names."""
    clause = select.args.get("from_")
    return [*([clause] if clause is not None else []), *(select.args.get("joins") or [])]


def _explain_join(select: exp.Expr | None, alias: str) -> UsageError:
    """Return the error that says why the analyst's table ``alias`` can't be joined as the query does."""
    joins = (select.args.get("joins") if select is not None else None) or ()
    join = next((one for one in joins if fold_name(one.this.alias_or_name) == fold_name(alias)), exp.Join())
    for part in split_parts(join.args.get("on")):
        if not _is_column_equality(part):
            return UsageError(f"JOIN ON {as_written(part)} is not supported; use equality of columns")
    if join.args.get("on") is not None or join.args.get("using"):
        return UsageError(f"JOIN {alias}: join a column of it with a quasi-identifier of the release")
    return UsageError(f"JOIN {alias}: ON or USING with quasi-identifiers is needed")


def _find_counts(select: exp.Select) -> exp.Select | None:
    """Return the derived table in FROM if it counts by group; the query around it then reads counts, not records.

    None if FROM has a table, or a derived table of single records.
    """
    source = read_clause(select, "from_")
    inner = source.this if isinstance(source, exp.Subquery) else None
    return inner if isinstance(inner, exp.Select) and not _passes_rows(inner) else None


def _passes_rows(select: exp.Expr) -> bool:
    """Return whether a query keeps single records: it has no groups, aggregate functions or limits.

    If so, it can be merged with the query around it.
    """
    sources = _list_sources(select)
    if not sources or any(select.args.get(clause) for clause in BEYOND_ROWS):
        return False
    if any(item.find(exp.AggFunc, exp.Window) for item in select.expressions):
        return False
    return not isinstance(sources[0].this, exp.Subquery) or _passes_rows(sources[0].this.this)


def _find_subqueries(clause: exp.Expr | Sequence[exp.Expr] | None) -> list[exp.Expr]:
    """Return the outermost EXISTS, IN and scalar subqueries of a clause."""

    def is_subquery(node: exp.Expr) -> bool:
        return isinstance(node, exp.Exists | exp.Subquery) or (
            isinstance(node, exp.In) and bool(node.args.get("query"))
        )

    return list(find_outermost(list_items(clause), is_subquery))


def _add_filter(node: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return an aggregate function restricted to the records that also meet ``condition``."""
    if isinstance(node, exp.Filter):
        return exp.Filter(this=node.this.copy(), expression=exp.Where(this=exp.and_(condition, node.expression.this)))
    return exp.Filter(this=node.copy(), expression=exp.Where(this=condition.copy()))


# Results of a count query ---------------------------------------------------------------------------------------------
# A SELECT over the result of a count query, as one count query.
#
# ``WITH t AS (SELECT .. COUNT(*) AS n ..) SELECT a, 100 * n FROM t WHERE n > 5`` asks the same as the inner query with
# the outer columns in place of its own, and the outer condition in its HAVING.

LATER = ("limit", "offset")


def list_grouped(select: exp.Select) -> list[exp.Expr]:
    """Return the expressions by which GROUP BY ALL groups.

    These are the outputs that contain a column and no aggregate function; if there are none, all outputs without
    aggregate functions.
    """
    items = [item for item in (one.unalias() for one in select.expressions) if not find_aggregates(item)]
    return [item for item in items if item.find(exp.Column)] or items


def expand_group_all(select: exp.Select) -> None:
    """Replace GROUP BY ALL by a list of the expressions by which it groups, in place.

    An outer query that drops columns would otherwise change what ALL means.
    """
    group = select.args.get("group")
    if group is not None and group.args.get("all"):
        items = [item.copy() for item in list_grouped(select)]
        select.set("group", exp.Group(expressions=items) if items else None)


def merge_outer(outer: exp.Select, inner: exp.Select) -> exp.Select:
    """Merge a query with the inner query whose result it reads; both become one query.

    Args:
        outer: The outer query.
        inner: The inner query, with resolved names.

    Raises:
        UsageError: The outer query is not supported.
    """
    if any(inner.args.get(key) for key in LATER):
        raise UsageError("LIMIT inside a subquery is not supported; put it at the end")
    expand_group_all(inner)
    results = {item.output_name: item.unalias() for item in inner.expressions if item.output_name}
    source, clauses = outer.args["from_"].this, ("where", "group", "having", "qualify", "order", "distinct", *LATER)
    refuse_others(outer, {"expressions", "from_", *clauses})
    refuse_others(source, {"this", "alias"})
    if source.args.get("alias") is not None and source.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    names = NameResolver(JoinedTables({}), [QueryTable(source.alias_or_name, {one: column(one) for one in results})])
    star = next(filter(is_star, outer.expressions), None)
    if star is not None and len(results) < len(inner.expressions):
        raise UsageError(f"{shorten_sql(star)} over a subquery needs a name for each of its columns; add AS")
    names.expand_stars(outer)
    check_clauses(outer, " over a result")
    items = [exp.alias_(one, one.name, quoted=True) if isinstance(one, exp.Column) else one
             for one in outer.expressions]  # fmt: skip
    outer.set("expressions", items)
    outer.set("from_", None)
    names.resolve_names(outer)

    parts = [*outer.expressions, *(outer.args[key] for key in ("having", "order") if outer.args.get(key))]
    calls = find_aggregates(*parts)
    coarser = _sum_results(outer, inner, results, calls)
    if not coarser:
        _spread_aggregates(outer, calls)
    windows = outer.find(exp.Window) is not None
    columns = list(outer.find_all(exp.Column))
    sizes = {name: sum(1 for _ in item.walk()) for name, item in results.items()}
    if sum(sizes[item.name] for item in columns) > MOST:  # with every level the size could double
        raise UsageError(TOO_LARGE.format("subqueries are"))
    for item in columns:
        item.replace(exp.paren(results[item.name].copy(), copy=False))

    where = read_clause(outer, "where")
    if coarser:
        inner.set("group", outer.args.get("group"))
        set_condition(inner, "where", read_clause(inner, "where"), where)
        inner.set("having", outer.args.get("having"))
    else:  # the outer condition comes before the window functions, or behind those of the inner query
        chosen = any(inner.args.get(key) for key in ("distinct", "qualify"))
        late = chosen or any(item.find(exp.Window) for item in inner.expressions)
        nested = any(one.this.find(exp.Window) for one in outer.find_all(exp.Window))
        if nested or (windows and (chosen or (late and where is not None))):
            raise UsageError("window functions over window functions are not supported; ask for the inner ones alone")
        set_condition(inner, "having", read_clause(inner, "having"), None if late else where)
        behind = (read_clause(one, "qualify") for one in (inner, outer))
        set_condition(inner, "qualify", *behind, where if late else None)
        inner.set("distinct", outer.args.get("distinct") or inner.args.get("distinct"))
    inner.set("expressions", outer.expressions)
    for key in ("order", *LATER):
        inner.set(key, outer.args.get(key) or inner.args.get(key))
    if not inner.args.get("group") and not has_aggregates(inner):
        raise UsageError("the query uses no count of its subquery; run the subquery alone")
    return inner


def _sum_results(
    outer: exp.Select, inner: exp.Select, results: Mapping[str, exp.Expr], calls: Sequence[exp.Expr]
) -> bool:
    """Rewrite sums over the groups of an inner query as counts and sums by the outer query's groups, in place.

    For example, the inner query has COUNT(*) AS n by age and sex, and the outer query has SUM(n) by sex. This is
    COUNT(*) by sex. So SUM(n) becomes ``n``, which the caller then replaces by COUNT(*).

    Args:
        outer: The outer query.
        inner: The inner query.
        results: The expressions of the inner query, by name.
        calls: The aggregate functions of the outer query.

    Returns:
        Whether all of them could be rewritten; if not, nothing has changed.
    """
    group, outer_group = inner.args.get("group"), outer.args.get("group")
    beyond = any(inner.args.get(key) for key in ("having", "qualify", "distinct", "order"))
    if not calls or group is None or beyond or outer.args.get("qualify") or outer.find(exp.Window):
        return False
    if any(one is not None and (one.find(*SETS) or one.args.get("all")) for one in (group, outer_group)):
        return False
    summed = [node.this.unnest() if isinstance(node, exp.Sum) else None for node in calls]
    inside = [results[one.name] if isinstance(one, exp.Column) else None for one in summed]
    if not all(isinstance(one, exp.Sum | exp.Count) and not one.find(exp.Distinct) for one in inside):
        return False
    where = outer.args.get("where")
    if where is not None and any(find_aggregates(results[one.name]) for one in where.find_all(exp.Column)):
        return False
    for node, name, one in zip(calls, summed, inside, strict=True):
        total: exp.Expr = name if name is not None else node
        if isinstance(one, exp.Count) and outer_group is None:  # the sum over no groups is NULL
            total = null_if_nobody(exp.Count(this=exp.Star(), big_int=True), total)
        node.replace(exp.paren(total, copy=False))
    return True


def _spread_aggregates(outer: exp.Select, calls: Sequence[exp.Expr]) -> None:
    """Replace aggregate functions over the result of a count query by window functions over its rows, in place.

    So one query gives both the counts and what is computed from them. DISTINCT ON keeps one row for each outer group.

    Raises:
        UsageError: An aggregate function or a GROUP BY can't be replaced.
    """
    group, having = outer.args.get("group"), read_clause(outer, "having")
    calls = [node for node in calls if not node.find_ancestor(exp.Window)]
    if not calls and group is None:
        return
    keys = list(group.expressions) if group is not None else []
    if group is not None and (group.args.get("all") or any(one.find(*SETS) for one in keys)):
        raise UsageError("GROUP BY over a result must list columns; ROLLUP and the like work in the count query itself")
    for node in calls:
        if not isinstance(node, WINDOWED) or node.find(exp.Distinct):
            raise UsageError(f"{shorten_sql(node)} over a result is not supported; SUM, AVG, MIN, MAX and COUNT(*) are")
        node.replace(exp.Window(this=node.copy(), partition_by=[key.copy() for key in keys]))
    outer.set("distinct", exp.Distinct(on=exp.Tuple(expressions=[key.copy() for key in keys])))
    outer.set("qualify", exp.Qualify(this=having) if having is not None else outer.args.get("qualify"))
    outer.set("having", None)
    outer.set("group", None)


# Constants ------------------------------------------------------------------------------------------------------------

MOMENTS = {dt.datetime: "TIMESTAMP", dt.date: "DATE", dt.time: "TIME"}


def as_constant(value: object) -> exp.Expr:
    """Return a Python value as an SQL constant."""
    if value is None or isinstance(value, int | Decimal):
        return exp.convert(value)
    if isinstance(value, float):
        return exp.cast(exp.convert(value), "DOUBLE")
    kind = MOMENTS.get(type(value))
    text = exp.convert(str(value))
    return exp.cast(text, kind, dialect=DIALECT) if kind else text


def _is_among(left: exp.Expr, values: Sequence[object]) -> exp.Expr:
    """Return the condition ``left IN (values)``; false if there are no values."""
    return exp.In(this=left, expressions=[as_constant(one) for one in values]) if values else exp.false()
