"""Rewrite an analyst's SELECT over rows of the release into one count query: derived tables, joins and subqueries.

``FROM (SELECT ..) AS t``, WITH and joined subqueries that pass rows on are merged with the query around them. Comma
joins become JOIN .. ON, the release comes first, and DISTINCT is GROUP BY. Subqueries over the analyst's own tables and
over the release alone are answered before the query, and stand in it as constants.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.names import MOST, Lookups, find_aggregates, from_last, group_items, read_limits, split_conjuncts
from privsql.answers.question import check_kinds, list_items, shorten_sql
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


MAIN_SCHEMAS = ("main", "public")  # what tools write before the name of a release
MOST_VALUES = 10_000  # that a subquery may give
CLAUSES = ("expressions", "where", "group", "having", "qualify", "order")
BEYOND_ROWS = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "sample")
LOOKUP_CLAUSES = {"expressions", "from_", "where", "distinct", "group", "having", "order", "limit"}
Queries = dict[str, tuple[exp.Select, Any]]  # what WITH has named: a query, and those that it may read itself


@dataclass(frozen=True)
class SourceTable:
    """A table in FROM or JOIN: its alias, and its columns as they are written."""

    alias: str
    columns: tuple[str, ...]


@dataclass
class Rewriter:
    """Rewrites queries to one release: its name and columns, and the tables that may be joined to it."""

    release: str
    columns: Sequence[str]
    lookups: Lookups | None

    def rewrite(self, select: exp.Select, known: Queries) -> exp.Select:
        """Return a query over rows in its form, in place; one over the result of another keeps that in FROM.

        ``known``: what WITH named outside of it. Raises ``UsageError``.
        """
        known = _name_queries(select, known)
        select = from_last(select)
        self._strip_schemas(select)
        self._fold_scalars(select, known)
        self._answer_subqueries(select, known)
        for source in _list_sources(select):
            inner = _find_query(source.this, known)
            if inner is None:
                continue
            if not _passes_rows(*inner):
                if isinstance(source, exp.Join):
                    self._join_answered(select, source, *inner)
                else:
                    source.set("this", _as_subquery(inner, source.this))
                continue
            self._merge(select, source, self.rewrite(inner[0].copy(), inner[1]))
        if not isinstance(select.args["from_"].this if select.args.get("from_") else None, exp.Subquery):
            self._pool_joins(select)
            self._expand_stars(select)
            _group_distinct(select)
        return select

    # Names ---

    def _strip_schemas(self, select: exp.Select) -> None:
        """Take schema and database off the release's name, and off those of columns."""
        for source in _list_sources(select):
            table = source.this
            if isinstance(table, exp.Table) and self._is_release(table) and fold_name(table.db) in MAIN_SCHEMAS:
                table.set("db", None)
                table.set("catalog", None)
        for item in (one for clause in (*CLAUSES, "joins") for one in _columns_of(select.args.get(clause))):
            if fold_name(item.db) in MAIN_SCHEMAS:
                item.set("db", None)
                item.set("catalog", None)

    def _is_release(self, table: exp.Expr) -> bool:
        return isinstance(table, exp.Table) and fold_name(table.name) == fold_name(self.release)

    def _reads_release(self, query: exp.Expr, known: Queries) -> bool:
        """Return whether a query reads the release, or a query that WITH names."""
        return any(self._is_release(one) or fold_name(one.name) in known for one in query.find_all(exp.Table))

    def _describe(self, source: exp.Expr) -> SourceTable:
        """Return a table's alias and columns."""
        table = source.this
        if isinstance(table, exp.Subquery) or not isinstance(table.this, exp.Identifier):
            raise UsageError(f"{shorten_sql(table)} is not supported in FROM; write FROM {self.release}")
        if self._is_release(table) and not table.db:
            return SourceTable(table.alias_or_name, tuple(self.columns))
        if self.lookups is None:
            instead = f"count with COUNT(*) FROM {self.release}"
            raise UsageError(f"JOIN: there is no table {table.name!r} here; {instead}")
        _, columns = self.lookups.find_table(tuple(part.name for part in table.parts))
        return SourceTable(table.alias_or_name, columns)

    def _owner(self, item: exp.Column, tables: Iterable[SourceTable]) -> SourceTable | None:
        """Return the first table that a column can be of."""
        prefix, name = fold_name(item.table), fold_name(item.name)
        for table in tables:
            if (not prefix or fold_name(table.alias) == prefix) and name in map(fold_name, table.columns):
                return table
        return None

    # Derived tables ---

    def _merge(self, select: exp.Select, source: exp.Expr, inner: exp.Select) -> None:
        """Put a query over rows in place of a derived table."""
        alias, joins = source.this.alias_or_name, inner.args.get("joins") or []
        if source.this.args.get("alias") is not None and source.this.alias_column_names:
            raise UsageError("renaming columns in FROM is not supported; write AS behind each column inside")
        outputs = self._name_outputs(inner)
        where = inner.args.get("where")
        source.set("this", inner.args["from_"].this)
        if not isinstance(source, exp.Join):
            select.set("joins", [*joins, *(select.args.get("joins") or [])])
        elif joins or (where is not None and source.side):
            raise UsageError(f"JOIN {alias}: such a subquery is not supported; join the table and use WHERE")
        self._replace_columns(select, alias, outputs)
        if where is not None:
            _add_condition(select, where.this)

    def _name_outputs(self, inner: exp.Select) -> dict[str, exp.Expr]:
        """Return what a query over rows passes on, by name, over columns with their table's alias."""
        tables = [self._describe(one) for one in _list_sources(inner)]
        outputs: dict[str, exp.Expr] = {}
        for item in inner.expressions:
            if _is_star(item):
                prefix = fold_name(item.table) if isinstance(item, exp.Column) else ""
                named = [one for one in tables if not prefix or fold_name(one.alias) == prefix]
                outputs |= {name: column(name, one.alias) for one in named for name in one.columns}
                continue
            expression = item.unalias().copy()
            name = item.alias_or_name or item.output_name
            outputs[name] = self._qualify(expression, tables, outputs)
        for node, key in [(inner.args.get("where"), "this"), *((join, "on") for join in inner.args.get("joins") or [])]:
            if node is not None and node.args.get(key) is not None:
                node.set(key, self._qualify(node.args[key], tables, outputs))
        return outputs

    def _expand_stars(self, select: exp.Select) -> None:
        """Put columns in place of ``*`` in a query over rows."""
        if any(map(_is_star, select.expressions)) and _list_sources(select):
            outputs = self._name_outputs(select)
            select.set("expressions", [exp.alias_(one.copy(), name, quoted=True) for name, one in outputs.items()])

    def _qualify(self, root: exp.Expr, tables: Sequence[SourceTable], earlier: Mapping[str, exp.Expr]) -> exp.Expr:
        """Return an expression whose columns name their table; an alias stands for its expression."""
        folded = {fold_name(name): one for name, one in earlier.items()}

        def resolve(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            owner = self._owner(node, tables)
            if owner is not None:
                return column(node.name, owner.alias)
            alias = folded.get(fold_name(node.name)) if not node.table else None
            return node if alias is None else _in_place(alias)

        return root.transform(resolve)

    def _replace_columns(self, select: exp.Select, alias: str, outputs: Mapping[str, exp.Expr]) -> None:
        """Put what a derived table passes on in place of its columns."""
        folded = {fold_name(name): one for name, one in outputs.items()}
        select.set("expressions", [one for item in select.expressions for one in _expand(item, alias, outputs)])
        named = {fold_name(item.alias) for item in select.expressions if isinstance(item, exp.Alias)}
        grouped = {fold_name(one.name) for one in _columns_of(select.args.get("group"))}
        added = 0
        for clause in (*CLAUSES, "joins"):
            for item in _columns_of(select.args.get(clause)):
                name = fold_name(item.name)
                if name not in folded or (item.table and fold_name(item.table) != fold_name(alias)):
                    continue
                is_alias = not item.table and name in named
                if is_alias and (
                    (clause == "having" and name not in grouped)
                    or (clause == "order" and isinstance(item.parent, exp.Ordered))
                ):
                    continue
                added += sum(1 for _ in folded[name].walk())
                if isinstance(item.parent, exp.Select):  # an item of the select list keeps its name
                    item.replace(exp.alias_(_in_place(folded[name]), item.name, quoted=True))
                else:
                    item.replace(_in_place(folded[name]))
        if added > MOST:
            raise UsageError("the query is too large once its subqueries are written out; split it")

    # Joins ---

    def _pool_joins(self, select: exp.Select) -> None:
        """Bring inner joins into the form FROM release JOIN lookup ON equal columns, with all else in WHERE."""
        joins, clause = select.args.get("joins") or [], select.args.get("from_")
        if clause is None or not joins:
            return
        using = [bool(join.args.get("using")) for join in joins]
        inner = not any(using) and all(not join.side and join.kind in ("", "INNER", "CROSS") for join in joins)
        equal = [join.args.get("on") is not None and _is_equality(join.args["on"]) for join in joins]
        regular = self._is_release(clause.this) and all(map(max, using, equal))  # either of the two
        if regular or any(join.method for join in joins):
            return
        if not inner:
            if not self._is_release(clause.this):
                first = f"write FROM {self.release} first"
                raise UsageError(f"{clause.this.name} LEFT JOIN {self.release} is not supported; {first}")
            return
        tables = {id(one): self._describe(one) for one in _list_sources(select)}
        base = next((one for one in _list_sources(select) if self._is_release(one.this)), None)
        if base is None:
            raise UsageError(f"the query must read FROM {self.release}; FROM {self.release} JOIN .. ON .. works")
        where = select.args.get("where")
        conditions = [join.args["on"] for join in joins if join.args.get("on") is not None]
        pool = [part for one in [*conditions, *([where.this] if where else [])] for part in split_conjuncts(one)]
        pool += [part for one in pool for part in _common_conjuncts(one)]
        others = [one for one in _list_sources(select) if one is not base]
        made = []
        for one in others:
            keys = [part for part in pool if self._links(part, tables[id(one)], tables[id(base)], tables.values())]
            if not keys:
                name, other = tables[id(one)].alias, one.args.get("on")
                if other is not None:
                    raise UsageError(f"JOIN ON {shorten_sql(other)} is not supported; use equality of columns")
                raise UsageError(f"JOIN {name}: ON or USING with quasi-identifiers is needed; write JOIN {name} ON ..")
            pool = [part for part in pool if all(part is not key for key in keys)]
            made.append(exp.Join(this=one.this.copy(), on=exp.and_(*(key.copy() for key in keys))))
        select.set("from_", exp.From(this=base.this.copy()))
        select.set("joins", made)
        select.set("where", exp.Where(this=exp.and_(*(part.copy() for part in pool))) if pool else None)

    def _links(self, part: exp.Expr, lookup: SourceTable, release: SourceTable, tables: Iterable[SourceTable]) -> bool:
        """Return whether a condition says that a column of a lookup equals one of the release."""
        if not (isinstance(part, exp.EQ) and all(isinstance(one, exp.Column) for one in (part.this, part.expression))):
            return False
        owners = [self._owner(one, tables) for one in (part.this, part.expression)]
        return owners in ([lookup, release], [release, lookup])

    def _join_answered(self, select: exp.Select, join: exp.Join, inner: exp.Select, known: Queries) -> None:
        """Put the rows of an answered query in WHERE, which is joined on its groups: the largest ones, for tools."""
        on, alias = join.args.get("on"), join.this.alias_or_name
        parts = list(split_conjuncts(on)) if on is not None else []
        names = [fold_name(item.alias_or_name or item.output_name) for item in inner.expressions]
        outside = [one for clause in CLAUSES for one in _columns_of(select.args.get(clause))]
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
        for clause in CLAUSES:
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
        if not isinstance(node.this, exp.Select) or not node.this.args.get("from_"):
            return None
        inner = self.rewrite(node.this.copy(), known)
        others = [key for key, value in inner.args.items() if value and key not in ("expressions", "from_", "where")]
        if others or len(inner.expressions) != 1 or not self._is_release(inner.args["from_"].this):
            return None
        item, where = inner.expressions[0].unalias(), inner.args.get("where")
        calls = list(find_aggregates(item))
        if not calls or item.find(exp.Window):
            return None
        root = exp.paren(item)
        for one in [*find_aggregates(root)]:
            if where is not None:
                one.replace(_filtered(one, where.this))
        for one in root.find_all(exp.Column):
            one.set("table", None)
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
        parts = [item.unalias() for item in query.expressions if not _is_star(item)]
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
        self._strip_schemas(inner)
        lookup = self._describe(sources[0])
        keys, rest = [], []
        for part in split_conjuncts(where.this):
            columns = list(part.find_all(exp.Column))
            inside = [self._owner(one, [lookup]) is not None for one in columns]
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


def _find_query(source: exp.Expr, known: Queries) -> tuple[exp.Select, Queries] | None:
    """Return the query that a source is, with those that it may read."""
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        return source.this, known
    if isinstance(source, exp.Table) and not source.db and isinstance(source.this, exp.Identifier):
        return known.get(fold_name(source.name))
    return None


def _as_subquery(inner: tuple[exp.Select, Queries], source: exp.Expr) -> exp.Subquery:
    """Return a query that FROM names as a subquery that needs no WITH around it."""
    alias = exp.TableAlias(this=exp.to_identifier(source.alias_or_name)) if source.alias_or_name else None
    return exp.Subquery(this=_with_queries(*inner), alias=source.args.get("alias") or alias)


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
    counts = any(list(find_aggregates(item)) for item in select.expressions)
    if not counts and not any(map(_is_star, select.expressions)):
        select.set("distinct", None)
        items = [item.unalias() for item in select.expressions]
        varying = [item.copy() for item in dict.fromkeys(items) if any(item.find_all(exp.Column))]
        select.set("group", exp.Group(expressions=[exp.paren(item, copy=False) for item in varying]))


def _is_star(item: exp.Expr) -> bool:
    """Return whether an item of the select list is ``*`` or ``table.*``."""
    star = item.this if isinstance(item, exp.Column) else item
    return isinstance(star, exp.Star) and not any(star.args.values())


def _expand(item: exp.Expr, alias: str, outputs: Mapping[str, exp.Expr]) -> Iterator[exp.Expr]:
    """Yield an item of the select list, or the columns of a derived table in place of ``*``."""
    if not _is_star(item) or (isinstance(item, exp.Column) and fold_name(item.table) != fold_name(alias)):
        yield item
        return
    for name in outputs:
        yield exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


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


def _in_place(expression: exp.Expr) -> exp.Expr:
    """Return a copy that can stand anywhere: a number that stands for a column is no position."""
    return expression.copy() if isinstance(expression, exp.Column) else exp.paren(expression)


def _is_equality(root: exp.Expr) -> bool:
    return all(
        isinstance(part, exp.EQ) and isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Column)
        for part in split_conjuncts(root)
    )


def _common_conjuncts(root: exp.Expr) -> list[exp.Expr]:
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
    return [part.copy() for part in branches[0] if all(part in other for other in branches[1:])]


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
