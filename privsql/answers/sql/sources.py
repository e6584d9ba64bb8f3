"""Read an analyst's SELECT as one count query: derived tables, joins and subqueries are written out.

``FROM (SELECT ..) AS t``, WITH and joined subqueries that pass rows on are merged with the query around them. That a
lookup's column equals one of the release is a key of it, wherever the query says so, and DISTINCT is GROUP BY.
Subqueries over the analyst's own tables and over the release alone are answered before the query, and stand in it as
constants.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.sql.names import (
    CLAUSES,
    MAIN_SCHEMAS,
    MOST,
    SETS,
    JoinedTables,
    Lookups,
    NameResolver,
    QueryTable,
    check_clauses,
    find_aggregates,
    find_outermost,
    has_aggregates,
    is_column_equality,
    is_star,
    refuse_others,
    split_conjuncts,
)
from privsql.answers.sql.question import WINDOWED, Lookup, Side, as_written, in_order, list_items, shorten_sql
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Roles, column, list_nodes
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MOST_VALUES = 10_000  # that a subquery may give
PARTS = ("expressions", "where", "group", "having", "qualify", "order")
BEYOND_ROWS = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "sample")
LOOKUP_CLAUSES = {"expressions", "from_", "where", "distinct", "group", "having", "order", "limit"}
MOST_NODES = 20_000  # of the queries that WITH names, once they are written out


@dataclass
class QueryReader:
    """Reads queries to one release, in place: its name and columns, and the tables that may be joined to it.

    ``check`` refuses what may not stand in the clauses of a query over rows.
    """

    release: str
    roles: Roles
    lookups: Lookups | None
    check: Callable[[exp.Select], None] = check_clauses

    def read_query(self, select: exp.Select) -> tuple[exp.Select, JoinedTables]:
        """Return a query with its names resolved, and what it joins; ``UsageError`` for what is not supported."""
        write_out_queries(select)
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
            raise UsageError(f"there is no table {written!r} here; count with COUNT(*) FROM {self.release}")
        self._read_rows(select, names)
        if not names.joined.reads_release:
            raise UsageError(f"the query must read FROM {self.release}; FROM {self.release} JOIN .. ON .. works")
        where = names.joined.take_keys(select.args["where"].this if select.args.get("where") else None)
        select.set("where", exp.Where(this=where) if where is not None else None)
        for lookup in names.joined.lookups:
            if not lookup.keys:
                raise _explain_join(select, lookup.alias)
        return in_order(select, self.roles.orders), names.joined

    def _start_names(self) -> NameResolver:
        """Return the resolver of a query that reads no table yet."""
        sides: dict[str, Side] = dict.fromkeys((field.name for field in self.roles.quasi_identifiers), "qi")
        sides |= dict.fromkeys((field.name for field in self.roles.sensitive), "sa")
        return NameResolver(JoinedTables(sides))

    # Tables ---

    def _read_rows(self, select: exp.Select, names: NameResolver) -> None:
        """Resolve the names of a query over rows, whose tables are added to ``names``."""
        refuse_others(select, CLAUSES)
        for join in list(select.args.get("joins") or ()):
            if isinstance(join.this, exp.Subquery) and not _passes_rows(join.this.this):
                self._join_answered(select, join, join.this.this)
        sources = _list_sources(select)
        if not isinstance(sources[0] if sources else None, exp.From):
            raise UsageError(f"the query must read FROM {self.release}; count with COUNT(*) FROM {self.release}")
        for source in sources:
            names.refuse_alias(source.this.alias_or_name)
            if source.args.get("side") == "LEFT":
                self._join_unmatched(source, names)
            else:
                added = self._find_source(source, names.joined)
                names.joined.conditions += names.add_table(added, source)
        names.expand_stars(select)
        _group_distinct(select)
        self.check(select)
        names.resolve_names(select)

    def _find_source(self, source: exp.Expr, joined: JoinedTables) -> QueryTable:
        """Return a table in FROM or JOIN: a query over rows, the release, or a table of the analyst's own."""
        target, works = source.this, f"count with COUNT(*) FROM {self.release}"
        _check_join(source)
        if isinstance(target, exp.Subquery) and isinstance(target.this, exp.Select):
            return self._derive_table(target, target.this, joined)
        if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
            raise UsageError(f"{shorten_sql(target)} is not supported in FROM; {works}")
        refuse_others(target, {"this", "alias", "db", "catalog"})
        if target.alias_column_names:
            raise UsageError(f"{as_written(target)} is not supported; rename columns with AS in SELECT")
        if self._is_release(target) and not joined.reads_release:
            joined.reads_release = True
            return QueryTable(target.alias_or_name, {one.name: column(one.name) for one in self.roles.columns})
        called = tuple(part.name for part in target.parts)
        if self.lookups is None:
            raise UsageError(f"JOIN: there is no lookup table {'.'.join(called)!r}; attach the file that has it")
        table, names = self.lookups.find_table(called)
        return joined.add_lookup(Lookup(table, called, target.alias_or_name, (), names))

    def _derive_table(self, target: exp.Subquery, select: exp.Select, joined: JoinedTables) -> QueryTable:
        """Return a query over rows as a table of the query around it, for which its conditions hold as well."""
        if target.alias_column_names:
            raise UsageError("renaming columns in FROM is not supported; write AS behind each column inside")
        self._answer_subqueries(select)
        self._read_rows(select, NameResolver(joined, is_derived=True))
        if select.args.get("where") is not None:
            joined.conditions.append(select.args["where"].this)
        columns = {item.alias_or_name or item.output_name: item.unalias() for item in select.expressions}
        return QueryTable(target.alias_or_name, columns, target.alias_or_name or "the subquery")

    def _join_unmatched(self, join: exp.Expr, names: NameResolver) -> None:
        """Add a table that is joined on its keys alone, and keep the records that it has no row for."""
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
        """Put the rows of an answered query in WHERE, which is joined on its groups: the largest ones, for tools."""
        on, alias = join.args.get("on"), join.this.alias_or_name
        parts = list(split_conjuncts(on)) if on is not None else []
        names = [fold_name(item.alias_or_name or item.output_name) for item in inner.expressions]
        outside = [one for clause in PARTS for one in _columns_of(select.args.get(clause))]
        used = any(fold_name(one.table) == fold_name(alias) for one in outside)
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
        either = [exp.and_(*(_equals(key.copy(), row[at]) for key, at in keys)) for row in rows]
        _add_condition(select, exp.paren(exp.or_(*either)) if either else exp.false())
        select.set("joins", [one for one in select.args["joins"] if one is not join])

    # Subqueries in expressions ---

    def _answer_subqueries(self, select: exp.Select) -> None:
        """Put constants in place of subqueries in expressions, or FILTER."""
        self._fold_scalars(select)
        for clause in PARTS:
            for node in _find_subqueries(select.args.get(clause)):
                if isinstance(node, exp.Exists):
                    node.replace(self._answer_exists(node))
                elif isinstance(node, exp.In):
                    rows, _ = self._read_subquery(node.args["query"].unnest())
                    values = list(dict.fromkeys(row[0] for row in rows))
                    node.replace(_is_among(node.this.copy(), values))
                elif isinstance(node, exp.Subquery):
                    node.replace(self._answer_scalar(node))

    def _fold_scalars(self, select: exp.Select) -> None:
        """Turn subqueries that are aggregates of the release into FILTER, in a query that has no groups."""
        clause, where = select.args.get("from_"), select.args.get("where")
        found = [node for node in _find_subqueries(select.expressions) if isinstance(node, exp.Subquery)]
        windows = any(item.find(exp.Window) for item in select.expressions)
        beyond = ("group", "having", "distinct", "joins", "qualify")
        if not found or windows or any(select.args.get(key) for key in beyond):
            return
        if clause is not None and (not self._is_release(clause.this) or _find_subqueries(where)):
            return
        calls = find_aggregates(*select.expressions)
        if clause is not None and all(node.find_ancestor(exp.Subquery) for node in calls):
            return  # one row of each record
        folded = [self._fold_scalar(node) for node in found]
        if None in folded:
            return
        if where is not None:
            for node in find_aggregates(*select.expressions):
                if not node.find_ancestor(exp.Subquery):
                    node.replace(_filtered(node, where.this))
            select.set("where", None)
        for node, one in zip(found, folded, strict=True):
            node.replace(one or node)
        if clause is None:
            select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(self.release, quoted=True))))

    def _fold_scalar(self, node: exp.Subquery) -> exp.Expr | None:
        """Return a subquery of one aggregate of the release with its condition in FILTER; None for any other."""
        inner, names = node.this.copy(), self._start_names()
        others = [key for key, value in inner.args.items() if value and key not in ("expressions", "from_", "where")]
        if others or not isinstance(inner, exp.Select) or not self._reads_release(inner) or _find_counts(inner):
            return None
        self._answer_subqueries(inner)
        self._read_rows(inner, names)
        root, where = exp.paren(inner.expressions[0].unalias()), inner.args.get("where")
        calls = find_aggregates(root)
        if len(inner.expressions) != 1 or names.joined.lookups or not calls or root.find(exp.Window):
            return None
        conditions = [*names.joined.conditions, *([where.this] if where is not None else [])]
        for one in calls if conditions else ():
            one.replace(_filtered(one, exp.and_(*conditions)))
        return root

    def _read_subquery(self, query: exp.Expr) -> tuple[list[tuple[Any, ...]], bool]:
        """Return the rows of a subquery, and whether they are exact: of the analyst's own tables, or of the release.

        Those of the release have no errors and bounds: as HAVING and LIMIT go by estimates.
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

    def _answer_scalar(self, node: exp.Subquery) -> exp.Expr:
        """Return the constant that a subquery of one row and column is, if the release holds it exactly."""
        rows, exact = self._read_subquery(node.this)
        if not exact:
            raise UsageError(
                f"{shorten_sql(node)} is an estimate and can't be used as a constant; write an aggregate with FILTER"
            )
        if len(rows) != 1 or len(rows[0]) != 1:
            raise UsageError(f"{shorten_sql(node)} has {len(rows)} rows; a subquery here must give one value")
        return as_constant(rows[0][0])

    def _answer_exists(self, node: exp.Exists) -> exp.Expr:
        """Return EXISTS over a table of the analyst's own as membership of the column that it is compared with."""
        inner, where = node.this, node.this.args.get("where") if isinstance(node.this, exp.Select) else None
        sources = _list_sources(inner) if isinstance(inner, exp.Select) else []
        if len(sources) != 1 or self._is_release(sources[0].this) or where is None:
            form = "write it over one table of your own, whose column equals one outside"
            raise UsageError(f"{shorten_sql(node)} is not supported; {form}")
        lookup = self._find_source(exp.Join(this=sources[0].this.copy()), JoinedTables({}))
        keys, rest = [], []
        for part in split_conjuncts(where.this):
            columns = list(part.find_all(exp.Column))
            inside = [fold_name(one.table) in ("", fold_name(lookup.alias)) and fold_name(one.name) in lookup.folded
                      for one in columns]  # fmt: skip
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


# Parts of a query -----------------------------------------------------------------------------------------------------


def write_out_queries(tree: exp.Select) -> None:
    """Put the queries that WITH names in place of their names; ``UsageError`` for those that are too large together."""
    for select in list(tree.find_all(exp.Select))[::-1]:  # the innermost first
        table = select.args["from_"].this if select.args.get("from_") is not None else None
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
    """Put queries in place of the tables of their names."""
    size = 0
    for table in list(root.find_all(exp.Table)) if queries else ():
        query = queries.get(fold_name(table.name)) if isinstance(table.this, exp.Identifier) and not table.db else None
        if query is not None:
            size += len(list_nodes(query))
            if size > MOST_NODES:
                raise UsageError("the query is too large once its subqueries are written out; split it")
            alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
            table.replace(exp.Subquery(this=query.copy(), alias=alias))


def _add_condition(select: exp.Select, condition: exp.Expr) -> None:
    """Put a condition before those of WHERE."""
    where = select.args.get("where")
    select.set("where", exp.Where(this=exp.and_(condition, *([where.this] if where else []))))


def _list_sources(select: exp.Expr) -> list[exp.Expr]:
    """Return FROM and the joins of a query, the table of each under ``this``."""
    clause = select.args.get("from_")
    return [*([clause] if clause is not None else []), *(select.args.get("joins") or [])]


def _check_join(source: exp.Expr) -> None:
    """Raise ``UsageError`` for a join that is none on columns."""
    if isinstance(source, exp.Join):
        plain = source.kind in ("", "INNER", "OUTER", "CROSS") and source.side in ("", "LEFT") and not source.method
        if not plain:
            works = "join attached tables with JOIN .. ON or LEFT JOIN .. ON"
            raise UsageError(f"{as_written(source)} is not supported; {works}")
        refuse_others(source, {"this", "on", "using", "kind", "side"})


def _explain_join(select: exp.Expr | None, alias: str) -> UsageError:
    """Return why a lookup can't be joined as a query says."""
    joins = (select.args.get("joins") if select is not None else None) or ()
    join = next((one for one in joins if fold_name(one.this.alias_or_name) == fold_name(alias)), exp.Join())
    on = join.args.get("on")
    for part in split_conjuncts(on) if on is not None else ():
        if not is_column_equality(part):
            return UsageError(f"JOIN ON {as_written(part)} is not supported; use equality of columns")
    if on is not None or join.args.get("using"):
        return UsageError(f"JOIN {alias}: join a column of it with a quasi-identifier of the release")
    return UsageError(f"JOIN {alias}: ON or USING with quasi-identifiers is needed")


def _find_counts(select: exp.Select) -> exp.Select | None:
    """Return the count query that a query reads; None where it reads rows."""
    source = select.args["from_"].this if select.args.get("from_") is not None else None
    inner = source.this if isinstance(source, exp.Subquery) else None
    return inner if isinstance(inner, exp.Select) and not _passes_rows(inner) else None


def _passes_rows(select: exp.Expr) -> bool:
    """Return whether a query passes rows on, neither grouped nor limited."""
    sources = _list_sources(select)
    if not sources or any(select.args.get(clause) for clause in BEYOND_ROWS):
        return False
    if any(True for item in select.expressions for _ in item.find_all(exp.AggFunc, exp.Window)):
        return False
    return not isinstance(sources[0].this, exp.Subquery) or _passes_rows(sources[0].this.this)


def _group_distinct(select: exp.Select) -> None:
    """Turn DISTINCT over columns into GROUP BY."""
    clause = select.args.get("distinct")
    if clause is None or clause.args.get("on") or select.args.get("group"):
        return
    if not find_aggregates(*select.expressions):
        select.set("distinct", None)
        items = [item.unalias() for item in select.expressions]
        varying = [item.copy() for item in dict.fromkeys(items) if any(item.find_all(exp.Column))]
        select.set("group", exp.Group(expressions=[exp.paren(item, copy=False) for item in varying]))


def _columns_of(clause: exp.Expr | Sequence[exp.Expr] | None) -> list[exp.Column]:
    """Return the columns of a clause, but for those of subqueries."""
    outermost = find_outermost(list_items(clause), lambda node: isinstance(node, exp.Column | exp.Query))
    return [one for one in outermost if isinstance(one, exp.Column) and not isinstance(one.this, exp.Star)]


def _find_subqueries(clause: exp.Expr | Sequence[exp.Expr] | None) -> list[exp.Expr]:
    """Return EXISTS, IN and scalar subqueries of a clause, the outermost of each."""

    def is_subquery(node: exp.Expr) -> bool:
        return isinstance(node, exp.Exists | exp.Subquery) or (
            isinstance(node, exp.In) and bool(node.args.get("query"))
        )

    return list(find_outermost(list_items(clause), is_subquery))


def _filtered(node: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return an aggregate function over the records that meet one more condition."""
    if isinstance(node, exp.Filter):
        return exp.Filter(this=node.this.copy(), expression=exp.Where(this=exp.and_(condition, node.expression.this)))
    return exp.Filter(this=node.copy(), expression=exp.Where(this=condition.copy()))


# Results of a count query ---------------------------------------------------------------------------------------------
# A SELECT over the result of a count query, as one count query.
#
# ``WITH t AS (SELECT .. COUNT(*) AS n ..) SELECT a, 100 * n FROM t WHERE n > 5`` asks the same as the inner query with
# the outer columns in place of its own, and the outer condition in its HAVING.

LATER = ("limit", "offset")


def merge_outer(outer: exp.Select, inner: exp.Select) -> exp.Select:
    """Return a query over the result of another one in that, whose names are resolved."""
    if any(inner.args.get(key) for key in LATER):
        raise UsageError("LIMIT inside a subquery is not supported; put it at the end")
    results = {item.output_name: item.unalias() for item in inner.expressions if item.output_name}
    _resolve_outer(outer, list(results), named=len(results) == len(inner.expressions))
    coarser = _sum_results(outer, inner, results)
    if not coarser:
        _spread_aggregates(outer)
    windows = outer.find(exp.Window) is not None
    columns = list(outer.find_all(exp.Column))
    sizes = {name: sum(1 for _ in item.walk()) for name, item in results.items()}
    if sum(sizes[item.name] for item in columns) > MOST:  # each level could double what is below
        raise UsageError("the query is too large once its subqueries are written out; split it")
    for item in columns:
        item.replace(exp.paren(results[item.name].copy(), copy=False))
    where = outer.args.get("where")
    if coarser:
        inner.set("group", outer.args.get("group"))
        parts = [one.this for one in (inner.args.get("where"), where) if one is not None]
        inner.set("where", exp.Where(this=exp.and_(*parts)) if parts else None)
        inner.set("having", outer.args.get("having"))
    else:
        _merge_filters(outer, inner, windows=windows)
    inner.set("expressions", outer.expressions)
    for key in ("order", *LATER):
        inner.set(key, outer.args.get(key) or inner.args.get(key))
    if not inner.args.get("group") and not has_aggregates(inner):
        raise UsageError("the query uses no count of its subquery; run the subquery alone")
    return inner


def _resolve_outer(outer: exp.Select, results: list[str], *, named: bool) -> None:
    """Resolve the names of a query over ``results``, in place; ``named``: whether these are all columns."""
    source, clauses = outer.args["from_"].this, ("where", "group", "having", "qualify", "order", "distinct", *LATER)
    refuse_others(outer, {"expressions", "from_", *clauses})
    refuse_others(source, {"this", "alias"})
    if source.args.get("alias") is not None and source.alias_column_names:
        raise UsageError("renaming columns in FROM is not supported")
    names = NameResolver(JoinedTables({}), [QueryTable(source.alias_or_name, {one: column(one) for one in results})])
    star = next(filter(is_star, outer.expressions), None)
    if star is not None and not named:
        raise UsageError(f"{shorten_sql(star)} over a subquery needs a name for each of its columns; add AS")
    names.expand_stars(outer)
    check_clauses(outer, " over a result")
    items = [
        exp.alias_(one, one.name, quoted=True) if isinstance(one, exp.Column) else one for one in outer.expressions
    ]
    outer.set("expressions", items)
    outer.set("from_", None)
    names.resolve_names(outer)


def _merge_filters(outer: exp.Select, inner: exp.Select, *, windows: bool) -> None:
    """Put the conditions of a query over a result where they belong: before the window functions, or behind them.

    ``windows``: whether the query has window functions of its own.
    """
    where, late = outer.args.get("where"), any(item.find(exp.Window) for item in inner.expressions)
    late = late or inner.args.get("distinct") is not None or inner.args.get("qualify") is not None
    nested = any(one.this.find(exp.Window) for one in outer.find_all(exp.Window))
    chosen_late = where is not None if late else False
    beyond = chosen_late or any(inner.args.get(key) for key in ("distinct", "qualify"))
    if nested or (beyond and windows):
        raise UsageError("window functions over window functions are not supported; ask for the inner ones alone")
    early = [] if late else [where]
    having = [part.this for part in (inner.args.get("having"), *early) if part is not None]
    inner.set("having", exp.Having(this=exp.and_(*having)) if having else None)
    rest = [inner.args.get("qualify"), outer.args.get("qualify"), *([where] if late else [])]
    qualify = [part.this for part in rest if part is not None]
    inner.set("qualify", exp.Qualify(this=exp.and_(*qualify)) if qualify else None)
    inner.set("distinct", outer.args.get("distinct") or inner.args.get("distinct"))


def _sum_results(outer: exp.Select, inner: exp.Select, results: Mapping[str, exp.Expr]) -> bool:
    """Turn sums of counts and sums into those of fewer groups, in place, where a query asks for no others.

    ``SUM(n)`` becomes ``n``, whose name still stands for the inner aggregate.
    """
    parts = [*outer.expressions, *(outer.args[key] for key in ("having", "order") if outer.args.get(key))]
    calls = find_aggregates(*parts)
    group = inner.args.get("group")
    plain = group is not None and not group.find(*SETS) and not group.args.get("all")
    beyond = any(inner.args.get(key) for key in ("having", "qualify", "distinct", "order"))
    if not calls or not plain or beyond or outer.args.get("qualify") or outer.find(exp.Window):
        return False
    outer_group = outer.args.get("group")
    if outer_group is not None and (outer_group.find(*SETS) or outer_group.args.get("all")):
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
        if isinstance(one, exp.Count) and outer_group is None:  # of no group the sum is NULL
            number = exp.Count(this=exp.Star(), big_int=True)
            nobody = exp.EQ(this=number, expression=exp.Literal.number(0))
            total = exp.Case(ifs=[exp.If(this=nobody, true=exp.null())], default=total)
        node.replace(exp.paren(total, copy=False))
    return True


def _spread_aggregates(outer: exp.Select) -> None:
    """Turn aggregate functions over a result into window functions, in place; one row of each group remains."""
    group, having = outer.args.get("group"), outer.args.get("having")
    parts = [*outer.expressions, *(outer.args[key] for key in ("having", "order") if outer.args.get(key))]
    calls = [node for node in find_aggregates(*parts) if not node.find_ancestor(exp.Window)]
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
    outer.set("qualify", exp.Qualify(this=having.this) if having is not None else outer.args.get("qualify"))
    outer.set("having", None)
    outer.set("group", None)


# Constants ------------------------------------------------------------------------------------------------------------

MOMENTS = {dt.datetime: "TIMESTAMP", dt.date: "DATE", dt.time: "TIME"}


def as_constant(value: object) -> exp.Expr:
    """Return a value as SQL."""
    if value is None or isinstance(value, int | Decimal):
        return exp.convert(value)
    if isinstance(value, float):
        return exp.cast(exp.convert(value), "DOUBLE")
    kind = MOMENTS.get(type(value))
    text = exp.convert(str(value))
    return exp.cast(text, kind, dialect=DIALECT) if kind else text


def _equals(left: exp.Expr, value: object) -> exp.Expr:
    return exp.false() if value is None else exp.EQ(this=exp.paren(left), expression=as_constant(value))


def _is_among(left: exp.Expr, values: Sequence[object]) -> exp.Expr:
    """Return ``left IN (..)``; of no values it is false."""
    return exp.In(this=left, expressions=[as_constant(one) for one in values]) if values else exp.false()
