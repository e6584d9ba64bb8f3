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

from privsql.answers.names import (
    CLAUSES,
    MAIN_SCHEMAS,
    JoinedTables,
    Lookups,
    NameResolver,
    QueryTable,
    check_clauses,
    find_aggregates,
    from_last,
    group_items,
    is_column_equality,
    is_star,
    read_limits,
    refuse_others,
    split_conjuncts,
)
from privsql.answers.question import Lookup, as_written, check_kinds, in_order, list_items, shorten_sql
from privsql.answers.results import merge_outer
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Roles, column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.answers.question import Side


MOST_VALUES = 10_000  # that a subquery may give
PARTS = ("expressions", "where", "group", "having", "qualify", "order")
BEYOND_ROWS = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "sample")
LOOKUP_CLAUSES = {"expressions", "from_", "where", "distinct", "group", "having", "order", "limit"}
Queries = dict[str, tuple[exp.Select, Any]]  # what WITH has named: a query, and those that it may read itself


@dataclass
class QueryReader:
    """Reads queries to one release, in place: its name and columns, and the tables that may be joined to it.

    ``check`` refuses what may not stand in the clauses of a query over rows.
    """

    release: str
    roles: Roles
    lookups: Lookups | None
    check: Callable[[exp.Select], None] = check_clauses

    def read_query(self, select: exp.Select, known: Queries) -> tuple[exp.Select, JoinedTables]:
        """Return a query with its names resolved, and what it joins; ``UsageError`` for what is not supported.

        ``known``: what WITH named outside of it.
        """
        known = self._open_query(select, known)
        inner = _find_counts(select, known)
        if inner is not None:
            tree, joined = self.read_query(inner[0].copy(), inner[1])
            return merge_outer(select, tree), joined
        names, first = self._start_names(), select.find(exp.Table)
        if first is not None and not self._reads_release(select, known):
            written = ".".join(part.name for part in first.parts)
            raise UsageError(f"there is no table {written!r} here; count with COUNT(*) FROM {self.release}")
        self._read_rows(select, known, names)
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

    def _open_query(self, select: exp.Select, known: Queries) -> Queries:
        """Take off WITH, and put constants in place of subqueries in expressions; return the queries by name."""
        known = _name_queries(select, known)
        from_last(select)
        self._fold_scalars(select, known)
        self._answer_subqueries(select, known)
        return known

    # Tables ---

    def _read_rows(self, select: exp.Select, known: Queries, names: NameResolver) -> None:
        """Resolve the names of a query over rows, whose tables are added to ``names``."""
        refuse_others(select, CLAUSES)
        for join in list(select.args.get("joins") or ()):
            inner = _find_query(join.this, known)
            if inner is not None and not _passes_rows(*inner):
                self._join_answered(select, join, *inner)
        sources = _list_sources(select)
        if not isinstance(sources[0] if sources else None, exp.From):
            raise UsageError(f"the query must read FROM {self.release}; count with COUNT(*) FROM {self.release}")
        for source in sources:
            names.refuse_alias(source.this.alias_or_name)
            if source.args.get("side") == "LEFT":
                self._join_unmatched(source, known, names)
            else:
                added = self._find_source(source, known, names.joined)
                names.joined.conditions += names.add_table(added, source)
        names.expand_stars(select)
        _group_distinct(select)
        self.check(select)
        names.resolve_names(select)

    def _find_source(self, source: exp.Expr, known: Queries, joined: JoinedTables) -> QueryTable:
        """Return a table in FROM or JOIN: a query over rows, the release, or a table of the analyst's own."""
        target, inner, works = source.this, _find_query(source.this, known), f"count with COUNT(*) FROM {self.release}"
        _check_join(source)
        if inner is not None:
            return self._derive_table(target, *inner, joined)
        if not isinstance(target, exp.Table) or not isinstance(target.this, exp.Identifier):
            raise UsageError(f"{shorten_sql(target)} is not supported in FROM; {works}")
        refuse_others(target, {"this", "alias", "db", "catalog"})
        if target.alias_column_names:
            raise UsageError(f"{as_written(target)} is not supported; rename columns with AS in SELECT")
        if self._is_release(target) and not joined.reads_release:
            joined.reads_release = True
            columns = (*self.roles.quasi_identifiers, *self.roles.sensitive)
            return QueryTable(target.alias_or_name, {field.name: column(field.name) for field in columns})
        called = tuple(part.name for part in target.parts)
        if self.lookups is None:
            raise UsageError(f"JOIN: there is no lookup table {'.'.join(called)!r}; attach the file that has it")
        table, names = self.lookups.find_table(called)
        return joined.add_lookup(Lookup(table, called, target.alias_or_name, (), names))

    def _derive_table(self, target: exp.Expr, query: exp.Select, known: Queries, joined: JoinedTables) -> QueryTable:
        """Return a query over rows as a table of the query around it, for which its conditions hold as well."""
        if target.args.get("alias") is not None and target.alias_column_names:
            raise UsageError("renaming columns in FROM is not supported; write AS behind each column inside")
        select = query.copy()
        self._read_rows(select, self._open_query(select, known), NameResolver(joined, is_derived=True))
        if select.args.get("where") is not None:
            joined.conditions.append(select.args["where"].this)
        columns = {item.alias_or_name or item.output_name: item.unalias() for item in select.expressions}
        return QueryTable(target.alias_or_name, columns, target.alias_or_name or "the subquery")

    def _join_unmatched(self, join: exp.Expr, known: Queries, names: NameResolver) -> None:
        """Add a table that is joined on its keys alone, and keep the records that it has no row for."""
        joined, alias = names.joined, join.this.alias_or_name
        if not joined.reads_release:
            written = f"{names.tables[0].alias} LEFT JOIN {self.release}"
            raise UsageError(f"{written} is not supported; write FROM {self.release} first")
        before = len(joined.lookups), len(joined.conditions)
        added = self._find_source(join, known, joined)
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

    def _reads_release(self, query: exp.Expr, known: Queries) -> bool:
        """Return whether a query reads the release, or a query that WITH names."""
        return any(self._is_release(one) or fold_name(one.name) in known for one in query.find_all(exp.Table))

    def _join_answered(self, select: exp.Select, join: exp.Join, inner: exp.Select, known: Queries) -> None:
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
        rows, keys = self._answer(inner, known), []
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

    def _answer_subqueries(self, select: exp.Select, known: Queries) -> None:
        """Put constants in place of subqueries in expressions."""
        for clause in PARTS:
            for node in _find_subqueries(select.args.get(clause)):
                if isinstance(node, exp.Exists):
                    node.replace(self._answer_exists(node, known))
                elif isinstance(node, exp.In):
                    rows = self._rows_of(node.args["query"].unnest(), known)
                    values = list(dict.fromkeys(row[0] for row in rows))
                    node.replace(_is_among(node.this.copy(), values))
                else:
                    node.replace(self._answer_scalar(node, known))

    def _fold_scalars(self, select: exp.Select, known: Queries) -> None:
        """Turn subqueries that are aggregates of the release into FILTER, in a query that has no groups."""
        clause, where = select.args.get("from_"), select.args.get("where")
        found = [node for node in _find_subqueries(select.expressions) if isinstance(node, exp.Subquery)]
        windows = any(item.find(exp.Window) for item in select.expressions)
        beyond = ("group", "having", "distinct", "joins", "qualify")
        if not found or windows or any(select.args.get(key) for key in beyond):
            return
        if clause is not None and (not self._is_release(clause.this) or _find_subqueries(where)):
            return
        calls = [node for item in select.expressions for node in find_aggregates(item)]
        if clause is not None and all(node.find_ancestor(exp.Subquery) for node in calls):
            return  # one row of each record
        folded = [self._fold_scalar(node, known) for node in found]
        if None in folded:
            return
        if where is not None:
            for node in [one for item in select.expressions for one in find_aggregates(item)]:
                if not node.find_ancestor(exp.Subquery):
                    node.replace(_filtered(node, where.this))
            select.set("where", None)
        for node, one in zip(found, folded, strict=True):
            node.replace(one or node)
        if clause is None:
            select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(self.release, quoted=True))))

    def _fold_scalar(self, node: exp.Subquery, known: Queries) -> exp.Expr | None:
        """Return a subquery of one aggregate of the release with its condition in FILTER; None for any other."""
        inner, names = node.this.copy(), self._start_names()
        others = [key for key, value in inner.args.items() if value and key not in ("expressions", "from_", "where")]
        if others or not isinstance(inner, exp.Select) or not self._reads_release(inner, known):
            return None
        if _find_counts(inner, known) is not None:
            return None
        self._read_rows(inner, self._open_query(inner, known), names)
        root, where = exp.paren(inner.expressions[0].unalias()), inner.args.get("where")
        calls = list(find_aggregates(root))
        if len(inner.expressions) != 1 or names.joined.lookups or not calls or root.find(exp.Window):
            return None
        conditions = [*names.joined.conditions, *([where.this] if where is not None else [])]
        for one in calls if conditions else ():
            one.replace(_filtered(one, exp.and_(*conditions)))
        return root

    def _rows_of(self, query: exp.Expr, known: Queries) -> list[tuple[Any, ...]]:
        """Return the rows of a subquery: of the analyst's own tables, or of the release."""
        if not isinstance(query, exp.Select):
            raise UsageError(f"{shorten_sql(query)} is not supported; write one SELECT in the subquery")
        tables = list(query.find_all(exp.Table))
        if not tables or self._reads_release(query, known):
            return self._answer(query, known)
        for clause, value in query.args.items():
            if value and clause not in LOOKUP_CLAUSES:
                raise UsageError(f"{shorten_sql(query)}: such a subquery is not supported; read one table of your own")
        sources = _list_sources(query)
        plain = len(sources) == 1 and isinstance(sources[0].this, exp.Table) and len(tables) == 1
        if not plain or not isinstance(tables[0].this, exp.Identifier):
            raise UsageError(f"{shorten_sql(query)}: such a subquery is not supported; read one table of your own")
        read_limits(query)
        parts = [item.unalias() for item in query.expressions if not is_star(item)]
        parts += [query.args[one].this for one in ("where", "having") if query.args.get(one)]
        parts += [item.this for item in (query.args["order"].expressions if query.args.get("order") else ())]
        for part in (*parts, *group_items(query)):
            check_kinds("subquery", part, aggregates=True)
        if self.lookups is None:
            raise UsageError(f"there is no table {tables[0].name!r} here; attach the file that has it")
        return self._limited(self.lookups.read_rows(query.copy()), query)

    def _answer(self, query: exp.Select, known: Queries) -> list[tuple[Any, ...]]:
        """Return the rows of a query to the release, without errors and bounds: as HAVING and LIMIT go by estimates."""
        return self._limited(self._ask(query, known)[0], query)

    def _ask(self, query: exp.Select, known: Queries) -> tuple[list[tuple[Any, ...]], bool]:
        if self.lookups is None:
            raise UsageError(f"{shorten_sql(query)}: a subquery is not supported here; run it alone")
        return self.lookups.answer_query(_with_queries(query, known))

    @staticmethod
    def _limited(rows: list[tuple[Any, ...]], query: exp.Select) -> list[tuple[Any, ...]]:
        if len(rows) > MOST_VALUES:
            raise UsageError(f"{shorten_sql(query)} has more than {MOST_VALUES:,} rows; join the table in place of it")
        return rows

    def _answer_scalar(self, node: exp.Subquery, known: Queries) -> exp.Expr:
        """Return the constant that a subquery of one row and column is, if the release holds it exactly."""
        inner = node.this
        reads = isinstance(inner, exp.Select) and self._reads_release(inner, known)
        rows, exact = self._ask(inner, known) if reads else (self._rows_of(inner, known), True)
        if not exact:
            raise UsageError(
                f"{shorten_sql(node)} is an estimate and can't be used as a constant; write an aggregate with FILTER"
            )
        if len(rows) != 1 or len(rows[0]) != 1:
            raise UsageError(f"{shorten_sql(node)} has {len(rows)} rows; a subquery here must give one value")
        return as_constant(rows[0][0])

    def _answer_exists(self, node: exp.Exists, known: Queries) -> exp.Expr:
        """Return EXISTS over a table of the analyst's own as membership of the column that it is compared with."""
        inner, where = node.this, node.this.args.get("where") if isinstance(node.this, exp.Select) else None
        sources = _list_sources(inner) if isinstance(inner, exp.Select) else []
        if len(sources) != 1 or self._is_release(sources[0].this) or where is None:
            form = "write it over one table of your own, whose column equals one outside"
            raise UsageError(f"{shorten_sql(node)} is not supported; {form}")
        lookup = self._find_source(exp.Join(this=sources[0].this.copy()), {}, JoinedTables({}))
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
        values = [row[0] for row in self._rows_of(query, known)]
        return exp.Coalesce(this=exp.paren(_is_among(ours.copy(), values)), expressions=[exp.false()])


# Parts of a query -----------------------------------------------------------------------------------------------------


def _name_queries(select: exp.Select, known: Queries) -> Queries:
    """Return the queries that WITH names, each with those that it may read itself, and take WITH off."""
    queries, clause = dict(known), select.args.get("with_")
    for one in clause.expressions if isinstance(clause, exp.With) else ():
        recursive = isinstance(one.parent, exp.With) and one.parent.args.get("recursive")
        if recursive or not isinstance(one.this, exp.Select) or one.args["alias"].columns:
            raise UsageError("WITH: only a SELECT works, neither recursive nor with a list of column names")
        queries[fold_name(one.alias)] = (one.this, dict(queries))
    select.set("with_", None)
    return queries


def _with_queries(query: exp.Select, known: Queries) -> exp.Select:
    """Return a copy of a query with the queries by name that it may read."""
    query = query.copy()
    own = query.args.get("with_")
    named = [(name, one) for name, (one, _) in known.items()]
    if named:
        added = [exp.CTE(this=one.copy(), alias=exp.TableAlias(this=exp.to_identifier(name))) for name, one in named]
        query.set("with_", exp.With(expressions=[*added, *(own.expressions if own else [])]))
    return query


def _add_condition(select: exp.Select, condition: exp.Expr) -> None:
    """Put a condition before those of WHERE."""
    where = select.args.get("where")
    select.set("where", exp.Where(this=exp.and_(condition, *([where.this] if where else []))))


def _list_sources(select: exp.Select) -> list[exp.Expr]:
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


def _find_counts(select: exp.Select, known: Queries) -> tuple[exp.Select, Queries] | None:
    """Return the count query that a query reads, with those that it may read itself; None where it reads rows."""
    clause = select.args.get("from_")
    inner = _find_query(clause.this, known) if clause is not None else None
    return None if inner is None or _passes_rows(*inner) else inner


def _find_query(source: exp.Expr, known: Queries) -> tuple[exp.Select, Queries] | None:
    """Return the query that a source is, with those that it may read."""
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        return source.this, known
    if isinstance(source, exp.Table) and not source.db and isinstance(source.this, exp.Identifier):
        return known.get(fold_name(source.name))
    return None


def _passes_rows(select: exp.Select, known: Queries) -> bool:
    """Return whether a query passes rows on, neither grouped nor limited."""
    if any(select.args.get(clause) for clause in BEYOND_ROWS):
        return False
    if any(True for item in select.expressions for _ in item.find_all(exp.AggFunc, exp.Window)):
        return False
    sources = _list_sources(select)
    queries = _name_queries(select.copy(), known)
    inner = _find_query(sources[0].this, queries) if sources else None
    return bool(sources) and (inner is None or _passes_rows(*inner))


def _group_distinct(select: exp.Select) -> None:
    """Turn DISTINCT over columns into GROUP BY."""
    clause = select.args.get("distinct")
    if clause is None or clause.args.get("on") or select.args.get("group"):
        return
    if not any(list(find_aggregates(item)) for item in select.expressions):
        select.set("distinct", None)
        items = [item.unalias() for item in select.expressions]
        varying = [item.copy() for item in dict.fromkeys(items) if any(item.find_all(exp.Column))]
        select.set("group", exp.Group(expressions=[exp.paren(item, copy=False) for item in varying]))


def _columns_of(clause: exp.Expr | Sequence[exp.Expr] | None) -> list[exp.Column]:
    """Return the columns of a clause, but for those of subqueries."""
    found, rest = [], list_items(clause)
    while rest:
        node = rest.pop()
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            found.append(node)
        elif not isinstance(node, exp.Query):
            rest += list(node.iter_expressions())
    return found


def _find_subqueries(clause: exp.Expr | Sequence[exp.Expr] | None) -> list[exp.Exists | exp.In | exp.Subquery]:
    """Return EXISTS, IN and scalar subqueries of a clause, the outermost of each."""
    found, rest = [], list_items(clause)
    while rest:
        node = rest.pop()
        if isinstance(node, exp.Exists | exp.Subquery) or (isinstance(node, exp.In) and node.args.get("query")):
            found.append(node)
        else:
            rest += list(node.iter_expressions())
    return found


def _filtered(node: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return an aggregate function over the records that meet one more condition."""
    if isinstance(node, exp.Filter):
        return exp.Filter(this=node.this.copy(), expression=exp.Where(this=exp.and_(condition, node.expression.this)))
    return exp.Filter(this=node.copy(), expression=exp.Where(this=condition.copy()))


# Constants ------------------------------------------------------------------------------------------------------------

MOMENTS = {dt.datetime: "TIMESTAMP", dt.date: "DATE", dt.time: "TIME"}


def as_constant(value: object) -> exp.Expr:
    """Return a value as SQL."""
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, int | float | Decimal):
        text = str(abs(value))
        number: exp.Expr = exp.Literal.number(text)
        number = exp.cast(number, "DOUBLE") if isinstance(value, float) else number
        return exp.Neg(this=number) if value < 0 else number
    kind = MOMENTS.get(type(value))
    text_ = exp.Literal.string(str(value))
    return exp.cast(text_, kind, dialect=DIALECT) if kind else text_


def _equals(left: exp.Expr, value: object) -> exp.Expr:
    return exp.false() if value is None else exp.EQ(this=exp.paren(left), expression=as_constant(value))


def _is_among(left: exp.Expr, values: Sequence[object]) -> exp.Expr:
    """Return ``left IN (..)``; of no values it is false."""
    return exp.In(this=left, expressions=[as_constant(one) for one in values]) if values else exp.false()
