"""An analyst's SQL read as a count query, or refused by name. Nothing that is not understood is ever answered.

A query is  SELECT [columns,] COUNT(*) FROM release [JOIN lookup ON ..] [WHERE ..] [GROUP BY columns] [HAVING ..]
[ORDER BY ..] [LIMIT ..], with SUM or AVG of a numeric quasi-identifier in place of COUNT(*) if wanted.
The condition may be any Boolean combination of comparisons; each comparison is about quasi-identifiers or about
sensitive columns, never both. It is split into parts on one side alone and a rest over named terms (q_0.., s_0..), one
per largest one-sided part, so that each side can be summed up by itself.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.answers.question import COUNT, CountQuery, Group, Lookup, Measure, Side
from privsql.engine.roles import fold
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError
from privsql.model.estimate import FIGURES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from privsql.engine.roles import Roles

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren)
CONDITION = (
    *CONNECTIVES, *COMPARISONS, exp.In, exp.Between, exp.Is, exp.Like, exp.ILike, exp.Escape, exp.Column,
    exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Cast, exp.DataType,
    exp.DataTypeParam,
)  # fmt: skip
HAVING = (
    *CONNECTIVES,
    *COMPARISONS,
    exp.Between,
    exp.Literal,
    exp.Neg,
    exp.Column,
    exp.Identifier,
    exp.Count,
    exp.Star,
)
NUMERIC = "TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL"
CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset"}
NAMES = {
    "with_": "WITH", "distinct": "DISTINCT", "qualify": "QUALIFY", "windows": "WINDOW",
    "sample": "USING SAMPLE", "laterals": "LATERAL", "pivots": "PIVOT", "into": "INTO",
}  # fmt: skip


MEASURES: dict[type[exp.Expr], Literal["sum", "avg", "min", "max"]] = {
    exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"
}  # fmt: skip


class Lookups(Protocol):
    """The tables that may be joined to the release."""

    def find(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Where the table lies that a query calls by ``names``, and its columns; ``UsageError`` if there is none."""


def read(
    sql: str, roles: Roles, release: str, lookups: Lookups | None = None, measures: Collection[str] = ()
) -> CountQuery:
    """Take a query apart; ``UsageError`` names what is not supported.

    ``lookups``: the tables that may be joined to the release; ``measures``: which of sum,
    avg, min and max of a sensitive column the release can tell.

    >>> from privsql.engine.roles import Field, Roles
    >>> roles = Roles((Field("age", "INTEGER"),), (Field("job", "VARCHAR"),))
    >>> query = read("SELECT COUNT(*) FROM t WHERE age > 30 AND job = 1", roles, "t")
    >>> [part.sql() for part in query.filters["qi"]], [part.sql() for part in query.filters["sa"]]
    (['"age" > 30'], ['"job" = 1'])
    """
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the query is not valid Unicode text") from error
    try:
        reader = _Reader(roles, release, lookups, measures)
        return _read(parsed(sql), reader)
    except RecursionError as error:
        raise UsageError("the query is nested too deeply") from error


def _read(select: exp.Select, reader: _Reader) -> CountQuery:
    reader.source(select)
    joined = reader.joins(select.args.get("joins") or [])
    groups, shown, measure = reader.outputs(select)
    filters, terms, predicate = reader.condition(select.args.get("where"))
    names = {fold(name): group for group, name in shown}
    return CountQuery(
        groups=groups,
        filters=filters,
        terms=terms,
        predicate=predicate,
        shown=shown,
        measure=measure,
        lookups=joined,
        having=reader.having(select.args.get("having"), names),
        order=tuple(reader.ordering(select.args.get("order"), shown, groups)),
        limit=_integer(select.args.get("limit"), "LIMIT"),
        offset=_integer(select.args.get("offset"), "OFFSET"),
    )


def parsed(sql: str) -> exp.Select:
    """The one SELECT that the text is, with known clauses alone; ``UsageError`` for anything else."""
    try:
        with _quiet():
            statements = [s for s in sqlglot.parse(sql, dialect=DIALECT) if s is not None]
    except SqlglotError as error:
        raise UsageError(f"the query can't be parsed: {str(error).splitlines()[0]}") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        kind = (
            "several statements"
            if len(statements) > 1
            else type(statements[0]).__name__.upper()
            if statements
            else "nothing"
        )
        raise UsageError(f"only one SELECT can be answered, not {kind}")
    select = statements[0]
    for clause, value in select.args.items():
        if value and clause not in CLAUSES:
            raise UsageError(f"{NAMES.get(clause, clause.strip('_').upper())} is not supported")
    return select


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the parser's own warnings: what it can't read is refused here."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def source(select: exp.Select, release: str) -> str:
    """The alias of the release in the query."""
    clause = select.args.get("from_")
    relation = clause.this if clause else None
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        raise UsageError(f"the query must read FROM {release}")
    extra = [key for key, value in relation.args.items() if value and key not in ("this", "alias")]
    if extra:
        raise UsageError(f"{NAMES.get(extra[0], extra[0].strip('_').upper())} is not supported")
    if relation.args.get("alias") and relation.args["alias"].args.get("columns"):
        raise UsageError("renaming columns in FROM is not supported")
    if fold(relation.name) != fold(release):
        raise UsageError(f"there is no table {relation.name!r} here; the query must read FROM {release}")
    return relation.alias or relation.name


def _integer(clause: exp.Expr | None, name: str) -> int | None:
    if clause is None:
        return None
    value = clause.expression
    extra = [key for key, arg in clause.args.items() if arg and key != "expression"]
    number = isinstance(value, exp.Literal) and not value.is_string and value.this.isdigit() and len(value.this) < 19
    if extra or not number:
        raise UsageError(f"{name} must be a whole number")
    return int(value.this)


class _Reader:
    """Resolves columns of one query against the release's roles."""

    def __init__(self, roles: Roles, release: str, lookups: Lookups | None, measures: Collection[str]) -> None:
        self._alias = self._release = release
        self._told = measures
        self._lookups = lookups
        self._joined: dict[str, Lookup] = {}
        self._types = {f.name: f.type for f in roles.quasi_identifiers}
        self._kinds = self._types | {f.name: f.type for f in roles.sensitive}
        fields: list[tuple[Side, str]] = [("qi", f.name) for f in roles.quasi_identifiers]
        fields += [("sa", f.name) for f in roles.sensitive]
        self._columns = {fold(name): (side, name) for side, name in fields}
        self._measured: exp.Expr = exp.null()

    def source(self, select: exp.Select) -> None:
        """Take the alias of the release in the query."""
        self._alias = source(select, self._release)

    # Joins ---

    def joins(self, clauses: Sequence[exp.Join]) -> tuple[Lookup, ...]:
        """Inner joins with lookups on equal quasi-identifiers."""
        for clause in clauses:
            self._join(clause)
        return tuple(self._joined.values())

    def _join(self, clause: exp.Join) -> None:
        target, kind = clause.this, f"{clause.side} {clause.method} {clause.kind}".split()
        if (
            not isinstance(target, exp.Table)
            or not isinstance(target.this, exp.Identifier)
            or kind not in ([], ["INNER"])
        ):
            raise UsageError(f"{clause.sql(dialect=DIALECT)} is not supported; join attached tables with JOIN .. ON")
        if [key for key, value in target.args.items() if value and key not in ("this", "alias", "db", "catalog")]:
            raise UsageError(f"{target.sql(dialect=DIALECT)} is not supported in JOIN")
        names, alias = tuple(part.name for part in target.parts), target.alias or target.name
        if fold(alias) in (*self._joined, fold(self._alias)):
            raise UsageError(f"JOIN: two tables are called {alias!r}; give one an alias")
        if self._lookups is None or names == (self._release,):
            raise UsageError(f"JOIN: there is no lookup table {'.'.join(names)!r}; attach it with --attach")
        name, columns = self._lookups.find(names)
        self._joined[fold(alias)] = Lookup(name, names, alias, (), columns)
        self._joined[fold(alias)] = Lookup(name, names, alias, self._join_keys(clause, alias), columns)

    def _join_keys(self, clause: exp.Join, alias: str) -> tuple[tuple[str, str], ...]:
        lookup = self._joined[fold(alias)]
        pairs = [
            (exp.column(key.name, alias), exp.column(key.name, self._alias)) for key in clause.args.get("using") or ()
        ]
        on = clause.args.get("on")
        for part in _conjuncts(on) if on is not None else ():
            if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
                raise UsageError(f"JOIN ON {part.sql(dialect=DIALECT)} is not supported; use equality of columns")
            pairs.append((part.this, part.expression))
        keys = []
        for one, other in pairs:
            sides = {name: self.resolve(item) for name, item in (("one", one), ("other", other))}
            theirs = [n for n, (_, c) in sides.items() if c in {lookup.inside(name) for name in lookup.columns}]
            ours = [n for n, (side, c) in sides.items() if side == "qi" and c in self._types]
            if len(theirs) != 1 or len(ours) != 1:
                raise UsageError(f"JOIN {alias}: join a column of {alias} with a quasi-identifier of the release")
            keys.append((sides[theirs[0]][1].removeprefix(f"{alias}."), sides[ours[0]][1]))
        if not keys:
            raise UsageError(f"JOIN {alias}: ON or USING with quasi-identifiers is needed")
        return tuple(keys)

    # Output columns ---

    def outputs(self, select: exp.Select) -> tuple[tuple[Group, ...], tuple[tuple[Group | None, str], ...], Measure]:
        """The groups, the answer's columns in order, and what is measured."""
        found: list[tuple[exp.Expr, str]] = []
        measures = []
        for item in select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            measure = self._measure(inner)
            if measure is not None:
                measures.append(measure)
            elif not isinstance(inner, exp.Column):
                raise UsageError(f"{inner.sql(dialect=DIALECT)} is not supported; select columns and COUNT(*)")
            found.append((inner, item.alias or (measure.kind if measure else inner.name)))
        if len(measures) != 1:
            raise UsageError(f"select COUNT(*) once, not {len(measures)} times; SUM and AVG are asked one at a time")
        self._measured = next(inner for inner, _ in found if self._measure(inner))
        groups = tuple(self._groups(select.args.get("group"), found))
        shown: list[tuple[Group | None, str]] = []
        for inner, name in found:
            shown.append((None if inner is self._measured else self._grouped(inner, groups), name))
        listed = {id(group) for group, _ in shown if group is not None}
        groups = tuple(g if id(g) in listed else replace(g, output=f"g_{i}") for i, g in enumerate(groups))
        taken = [fold(name) for _, name in shown]
        for (group, _), name in zip(shown, taken, strict=True):
            if taken.count(name) > 1 or (group is not None and name in FIGURES):
                raise UsageError(f"two columns of the answer are called {name!r}; give one an alias")
        return groups, tuple(shown), measures[0]

    def _measure(self, item: exp.Expr) -> Measure | None:
        """COUNT(*), or SUM, AVG and the like of a numeric column; None for anything else."""
        if _is_count(item):
            return Measure()
        kind = MEASURES.get(type(item))
        if kind is None or not isinstance(item.this, exp.Column) or len([x for x in item.args.values() if x]) > 1:
            return None
        side, name = self.resolve(item.this)
        if side == "qi" and kind in ("min", "max"):
            return None
        if (side == "sa" and kind not in self._told) or name not in self._kinds:
            raise UsageError(f"{item.sql(dialect=DIALECT)}: only quasi-identifiers of the release can be added up")
        if self._kinds[name].split("(")[0] not in NUMERIC.split():
            raise UsageError(f"{item.sql(dialect=DIALECT)}: {name} is {self._kinds[name]}, not a number")
        return Measure(kind, name, side)

    def _groups(self, clause: exp.Group | None, found: Sequence[tuple[exp.Expr, str]]) -> Iterator[Group]:
        if clause is None:
            return
        for key, value in clause.args.items():
            if value and key != "expressions":
                raise UsageError(f"GROUP BY {key.replace('_', ' ').upper()} is not supported")
        outputs = {inner.sql(): name for inner, name in found}
        aliases = {fold(name): inner for inner, name in found}
        for item in clause.expressions:
            target = _ordinal(item, [inner for inner, _ in found]) or item
            if isinstance(target, exp.Column) and not target.table and fold(target.name) not in self._columns:
                target = aliases.get(fold(target.name), target)
            if not isinstance(target, exp.Column):
                raise UsageError(f"GROUP BY {item.sql(dialect=DIALECT)} is not supported; group by columns")
            side, name = self.resolve(target)
            yield Group(side, name, outputs.get(target.sql(), name), self._kinds.get(name, "VARCHAR"))

    def _grouped(self, item: exp.Expr, groups: Sequence[Group]) -> Group:
        _, name = self.resolve(item)
        for group in groups:
            if group.column == name:
                return group
        raise UsageError(f"column {name!r} must stand in GROUP BY")

    def resolve(self, item: exp.Expr) -> tuple[Side, str]:
        """Side and true name of a column."""
        if not isinstance(item, exp.Column):
            raise UsageError(f"{item.sql(dialect=DIALECT)} is not a column")
        if not item.table and any(item.name == x.inside(c) for x in self._joined.values() for c in x.columns):
            return "qi", item.name  # resolved already
        if item.args.get("db"):
            raise UsageError(f"column {item.sql(dialect=DIALECT)!r} is not of {self._alias}")
        name, prefix = fold(item.name), fold(item.table)
        lookups = [lookup for alias, lookup in self._joined.items() if prefix in ("", alias)]
        theirs = [(x, c) for x in lookups for c in x.columns if fold(c) == name]
        ours = prefix in ("", fold(self._alias)) and name in self._columns
        if len(theirs) + ours > 1:
            raise UsageError(f"column {item.name!r} is in several tables; write table.{item.name}")
        if theirs:
            return "qi", theirs[0][0].inside(theirs[0][1])
        if prefix not in ("", fold(self._alias), *self._joined):
            raise UsageError(f"column {item.sql(dialect=DIALECT)!r} is not of {self._alias}")
        if not ours:
            known = ", ".join(name for _, name in self._columns.values())
            raise UsageError(f"column {item.name!r} is not in the release; it has {known}")
        return self._columns[fold(item.name)]

    # Condition ---

    def condition(
        self, clause: exp.Where | None
    ) -> tuple[dict[Side, list[exp.Expr]], dict[Side, list[tuple[str, exp.Expr]]], exp.Expr | None]:
        """Filters, terms and predicate of the WHERE clause."""
        filters: dict[Side, list[exp.Expr]] = {"qi": [], "sa": []}
        terms: dict[Side, list[tuple[str, exp.Expr]]] = {"qi": [], "sa": []}
        if clause is None:
            return filters, terms, None
        _only(clause.this, CONDITION, "WHERE")
        root = self._qualified(clause.this)
        sides = self._sides(root)
        rest = []
        for part in _conjuncts(root):
            if len(sides[id(part)]) == 2:
                rest.append(self._over_terms(part, sides, terms))
            else:
                filters[_one(sides[id(part)])].append(part)
        return filters, terms, exp.and_(*rest) if rest else None

    def _qualified(self, root: exp.Expr) -> exp.Expr:
        """The condition with its columns under their true names, quoted."""

        def rename(node: exp.Expr) -> exp.Expr:
            return column(self.resolve(node)[1]) if isinstance(node, exp.Column) else node

        return root.copy().transform(rename)

    def _sides(self, root: exp.Expr) -> dict[int, set[Side]]:
        """The sides that each part of a condition is about, by the part's identity."""
        found: dict[int, set[Side]] = {}
        for node in reversed(list(root.walk(bfs=True))):
            own: set[Side] = {self.resolve(node)[0]} if isinstance(node, exp.Column) else set()
            found[id(node)] = own.union(*(found[id(child)] for child in node.iter_expressions()))
        return found

    def _over_terms(
        self, part: exp.Expr, sides: dict[int, set[Side]], terms: dict[Side, list[tuple[str, exp.Expr]]]
    ) -> exp.Expr:
        """The part with its largest one-sided parts replaced by named terms, in place."""
        if len(sides[id(part)]) < 2:
            side = _one(sides[id(part)])
            name = f"{side[0]}_{len(terms[side])}"
            terms[side].append((name, part.copy()))
            return column(name)
        if not isinstance(part, CONNECTIVES):
            text = part.sql(dialect=DIALECT)
            raise UsageError(f"{text}: comparing a quasi-identifier with a sensitive column is not supported")
        for key in ("this", "expression"):
            if part.args.get(key) is not None:
                part.set(key, self._over_terms(part.args[key], sides, terms))
        return part

    # After the count ---

    def having(self, clause: exp.Having | None, names: dict[str, Group | None]) -> exp.Expr | None:
        """HAVING over the answer's count."""
        if clause is None:
            return None
        _only(clause.this, HAVING, "HAVING")

        def rename(node: exp.Expr) -> exp.Expr:
            if node == self._measured:
                return column(COUNT)
            if isinstance(node, exp.Column):
                if node.table or names.get(fold(node.name), node) is not None:
                    raise UsageError(f"HAVING {node.sql(dialect=DIALECT)}: only COUNT(*) can stand there; use WHERE")
                return column(COUNT)
            if isinstance(node, exp.AggFunc | exp.Star):
                raise UsageError(f"HAVING {node.sql(dialect=DIALECT)} is not what the query asks for")
            return node

        renamed: exp.Expr = clause.this.copy().transform(rename)
        return renamed

    def ordering(
        self, clause: exp.Order | None, shown: Sequence[tuple[Group | None, str]], groups: Sequence[Group]
    ) -> Iterator[exp.Ordered]:
        """ORDER BY over the answer's columns."""
        for item in clause.expressions if clause else ():
            if item.args.get("with_fill"):
                raise UsageError("ORDER BY .. WITH FILL is not supported")
            chosen = _ordinal(item.this, [name for _, name in shown])
            target = next((s for s in shown if s[1] == chosen), None) or self._output(item.this, shown, groups)
            ordered = item.copy()
            place = None if target[0] is None else [g.column for g in groups].index(target[0].column)
            ordered.set("this", column(COUNT if place is None else f"g_{place}"))
            yield ordered

    def _output(
        self, item: exp.Expr, shown: Sequence[tuple[Group | None, str]], groups: Sequence[Group]
    ) -> tuple[Group | None, str]:
        if item == self._measured:
            return None, COUNT
        if isinstance(item, exp.Column):
            if not item.table:
                for group, name in shown:
                    if fold(name) == fold(item.name):
                        return group, name
            _, name = self.resolve(item)
            for group in groups:
                if group.column == name:
                    return group, group.output
        raise UsageError(
            f"ORDER BY {item.sql(dialect=DIALECT)} is not supported; order by columns of the answer or COUNT(*)"
        )


def _one(sides: set[Side]) -> Side:
    """The side of a condition on one side; constants count as quasi-identifiers."""
    return next(iter(sides), "qi")


def _is_count(item: exp.Expr) -> bool:
    plain = isinstance(item, exp.Count) and isinstance(item.this, exp.Star) and not item.expressions
    return plain and not any(item.this.args.values())


def whole_count(select: exp.Select) -> str:
    """The output name of a query that selects COUNT(*) and nothing else."""
    item = select.expressions[0]
    if len(select.expressions) > 1 or not _is_count(item.this if isinstance(item, exp.Alias) else item):
        raise UsageError("select COUNT(*) and nothing else")
    return item.alias or COUNT


def _ordinal(item: exp.Expr, choices: Sequence[Any]) -> Any:
    if not isinstance(item, exp.Literal) or item.is_string:
        return None
    if not item.this.isdigit() or len(item.this) > 9 or not 1 <= int(item.this) <= len(choices):
        raise UsageError(f"position {item.this} is not in the select list")
    return choices[int(item.this) - 1]


def _only(root: exp.Expr, allowed: tuple[type[exp.Expr], ...], clause: str) -> None:
    for node in root.walk():
        if not isinstance(node, allowed) or type(node) not in allowed:
            shown = node.sql(dialect=DIALECT)
            raise UsageError(f"{clause}: {shown if len(shown) < 60 else type(node).__name__} is not supported")
        if isinstance(node, exp.Cast) and any(node.find_all(exp.Column)):
            raise UsageError(f"{clause}: {node.sql(dialect=DIALECT)}: only constants can be cast")


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    elif isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    else:
        yield node
