"""Compile an analyst's SQL into questions, or refuse it with a message that names the unsupported part.

``parse_query`` reads queries over tables, ``parse_set_query`` over item sets; ``split_union`` and ``split_items`` come
before them. The text becomes a syntax tree (``grammar``), the tree one SELECT over the release with resolved names
(``sources``), and that SELECT a ``Statement``: questions, and expressions over their answers (``question``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.sql.grammar import (
    AGGREGATES,
    BOUNDS,
    COMPARISONS,
    CONNECTIVES,
    CONSTANTS,
    EQUALITY,
    SETS,
    STATISTICS,
    WINDOWED,
    as_written,
    check_kinds,
    find_aggregates,
    forget_positions,
    has_aggregates,
    is_count,
    is_literal_number,
    null_if_nobody,
    order_items,
    output_position,
    parse_query_text,
    parse_select,
    read_clause,
    read_limits,
    refuse_bad_text,
    refuse_others,
    shorten_sql,
    unwrap_order,
)
from privsql.answers.sql.question import (
    AGGREGATE_NODES,
    WINDOWS,
    AggregateCall,
    Group,
    Kind,
    Lookups,
    Measure,
    Output,
    Scope,
    Side,
    Statement,
    is_number,
    sides_of,
    split_condition,
)
from privsql.answers.sql.sources import MAIN_SCHEMAS, JoinedTables, QueryReader, list_grouped
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Roles, all_of, column, is_null
from privsql.errors import UsageError, suggest_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

# Tables ---------------------------------------------------------------------------------------------------------------
# A query is SELECT expressions FROM release [[LEFT] JOIN lookup ON ..] [WHERE ..] [GROUP BY expressions] [HAVING ..]
# [ORDER BY ..] [LIMIT ..]. An expression of pure functions over quasi-identifiers is a quasi-identifier itself, one
# over sensitive columns a sensitive column. The condition may be any Boolean combination of such; it is split into
# parts on one side alone and a rest over named terms (q_0.., s_0..), one per largest one-sided part, so that each side
# can be summed up by itself. Expressions around aggregate functions and groups are evaluated on their answers.

MOST_ASKED = 64  # aggregate functions in one query; each is a question of its own
MOST_TOGETHER = 256  # aggregate functions times grouping sets
MOST_SETS = 64  # grouping sets in one query, as many as CUBE of six columns has
ONE, TWO = map(exp.Literal.number, (1, 2))


PERSON = "person"  # stands for the column of persons, which no release has


def count_persons(sql: str, roles: Roles) -> str:
    """Replace COUNT(DISTINCT person) by COUNT(*) if each record is one person and no column is called ``person``.

    Raises:
        UsageError: The query seems to name the column that identifies persons, which no release holds.
    """
    names = {fold_name(field.name) for field in roles.columns}
    if "distinct" not in fold_name(sql) or PERSON in names:
        return sql
    tree = parse_query_text(sql)
    found, alone = False, len(list(tree.find_all(exp.Table))) == 1 and not tree.find(exp.Subquery)
    for node in list(tree.find_all(exp.Count)):
        counted = node.this.expressions if isinstance(node.this, exp.Distinct) else []
        if len(counted) == 1 and isinstance(counted[0], exp.Column) and fold_name(counted[0].name) == PERSON:
            node.replace(exp.Count(this=exp.Star(), big_int=True))
            found = True
        elif alone and len(counted) == 1 and isinstance(counted[0], exp.Column):
            name = counted[0].name
            if fold_name(name) not in names and not suggest_name(name, names):
                instead = "COUNT(DISTINCT person) counts persons, and each record is one"
                raise UsageError(f"column {name!r} is not in the release; {instead}")
    return tree.sql(DIALECT) if found else sql


def parse_query(
    sql: str, roles: Roles, release: str, lookups: Lookups | None = None, measures: Collection[str] = ()
) -> Statement:
    """Take a query apart into questions (one for each aggregate function) and expressions over their answers.

    >>> from privsql.engine.sqlfiles import Field, Roles
    >>> roles = Roles((Field("age", "INTEGER"),), (Field("wage", "INTEGER"),))
    >>> query = parse_query("SELECT COUNT(*) FROM t WHERE age > 30 AND wage < 9", roles, "t").questions[0]
    >>> [part.sql() for part in query.filters["qi"]], [part.sql() for part in query.filters["sa"]]
    (['"age" > 30'], ['"wage" < 9'])

    The conditions are split: "qi" has those on quasi-identifiers, "sa" those on sensitive columns.

    Args:
        sql: The text of one SELECT.
        roles: The columns of the release.
        release: The name of the release in FROM.
        lookups: The tables that may be joined to the release; None if there are none.
        measures: Those of ``sum``, ``avg``, ``min`` and ``max`` of a sensitive column that the release can answer.

    Raises:
        UsageError: The query is not supported.
    """
    with refuse_bad_text(sql):
        tree, joined = QueryReader(release, roles, lookups).read_query(parse_select(sql))
        forget_positions(tree)
        return _StatementReader(tree, joined, roles, measures).read_statement()


class _StatementReader:
    """A reader of a query whose columns already have unique names.

    In the statement that it returns, groups are called g_0, g_1, .., aggregate functions a_0, a_1, .. and window
    functions a_1000, .. Outputs, HAVING and ORDER BY become expressions over these names. The parameter ``check`` is a
    function that raises an error for a condition of FILTER that is not permitted.
    """

    def __init__(
        self,
        tree: exp.Select,
        joined: JoinedTables,
        roles: Roles,
        measures: Collection[str] = (),
        check: Callable[[str, exp.Expr], None] = check_kinds,
    ) -> None:
        self._tree, self._sides, self._lookups = tree, joined.sides, tuple(joined.lookups)
        self._types = {field.name: field.type for field in roles.columns}
        self._aggregates = _AggregateReader(joined.sides, self._types, measures, check)
        self._groups: dict[exp.Expr, int] = {}
        self._windows: list[exp.Window] = []

    def read_statement(self) -> Statement:
        """Return the query as questions (one for each aggregate function) and expressions over their answers."""
        tree, where = self._tree, read_clause(self._tree, "where")
        if not tree.args.get("group") and not has_aggregates(tree):
            return self._read_preview(where)
        self._group_by_constants()
        sets = self._read_grouping_sets()
        outputs = tuple(self._read_outputs())
        having, distinct = read_clause(tree, "having"), tree.args.get("distinct")
        over = self._over_answer(having, "HAVING") if having is not None else None
        order: list[exp.Ordered] = []
        for item in order_items(tree):
            by_all = isinstance(item.this, exp.Var) and item.this.name.upper() == "ALL"
            keys = [one.expression for one in outputs] if by_all else [self._over_answer(item.this, "ORDER BY")]
            if any(key.find(exp.Column) is None for key in keys):
                raise UsageError(f"ORDER BY {as_written(item.this)}: a constant sorts nothing")
            order += [exp.Ordered(**{**item.args, "this": key.copy()}) for key in keys]
        unique: tuple[exp.Expr, ...] | None = None
        if distinct is not None:
            on = distinct.args.get("on")
            unique = tuple(one.expression for one in outputs)
            if on is not None:  # the groups of a query over a result
                unique = tuple(self._over_answer(one, "DISTINCT ON") for one in on.expressions)
        qualify = read_clause(tree, "qualify")
        chosen = self._over_answer(qualify, "QUALIFY") if qualify is not None else None
        limits, calls = read_limits(tree), tuple(self._aggregates.asked)
        if len(calls) > MOST_ASKED or len(calls) * len(sets) > MOST_TOGETHER:
            raise UsageError(
                f"at most {MOST_ASKED} aggregate functions are supported, and {MOST_TOGETHER} over grouping sets"
            )
        for part in dict.fromkeys((where, *(one.among for one in calls))):  # refused where they can't be split
            split_condition(part.copy() if part is not None else None, self._sides)
        return Statement(
            Scope(tuple(map(self._make_group, self._groups)), where, self._lookups, self._sides),
            sets,
            calls,
            outputs,
            over,
            tuple(order),
            limits["limit"],
            limits["offset"],
            windows=tuple(self._windows),
            qualify=chosen,
            unique=unique,
        )

    def _read_preview(self, where: exp.Expr | None) -> Statement:
        """Return the statement of a SELECT without aggregates: it lists some records without their sensitive values."""
        limits, keys = read_limits(self._tree), order_items(self._tree)
        if self._tree.find(exp.Window):
            raise UsageError(
                "window functions over records are not supported; GROUP BY columns first, and use COUNT(*)"
            )
        unmet = where is not None and where.find(exp.Column) is None
        if limits["limit"] is None and not unmet:
            instead = "count them with COUNT(*) .. GROUP BY, or see some with LIMIT 100"
            raise UsageError(f"records can't be listed here;  {instead}")
        for part in [*([where] if where is not None else []), *keys]:
            if "sa" in sides_of(part, self._sides):
                raise UsageError(f"{as_written(part)} is not available for single records; use COUNT(*) .. GROUP BY")
        roots = [(item.alias, item.unalias()) for item in self._tree.expressions]
        outputs = tuple(Output(alias, root, as_written(root)) for alias, root in roots)
        scope = Scope((), where, self._lookups, self._sides)
        return Statement(scope, (), (), outputs, None, tuple(keys), limits["limit"], limits["offset"], previews=True)

    def _group_by_constants(self) -> None:
        """Group also by columns that are constant in each group, and drop ANY_VALUE, MIN and the like around them.

        An example is the population of a region, in a joined table that is grouped by region.
        """
        clause = self._tree.args.get("group")
        items = [one.unnest() for one in clause.expressions] if clause is not None else []
        grouped = {one.name for one in items if isinstance(one, exp.Column)}
        known = set(grouped)
        for lookup in self._lookups:
            if all(ours in grouped or lookup.inner_name(theirs) in grouped for theirs, ours in lookup.keys):
                known |= {lookup.inner_name(name) for name in lookup.columns}
        if clause is None or clause.args.get("all") or clause.find(*SETS) or known == grouped:
            return
        for node in list(self._tree.find_all(*CONSTANTS, exp.Min, exp.Max)):
            names = {item.name for item in node.find_all(exp.Column)}
            plain = not any(value for key, value in node.args.items() if key not in ("this", "big_int"))
            if not names or not names <= known or not plain or isinstance(node.parent, exp.Filter | exp.Window):
                continue
            constant = node.this.copy()
            if constant not in items:
                items.append(constant)
                clause.append("expressions", exp.paren(constant.copy()))
            node.replace(exp.paren(constant))

    def _make_group(self, expression: exp.Expr) -> Group:
        sides = sides_of(expression, self._sides)
        if len(sides) != 1:
            why = "quasi-identifiers and sensitive columns together are" if sides else "a constant is"
            raise UsageError(f"GROUP BY {as_written(expression)}: {why} not supported")
        return Group(next(iter(sides)), expression, self._types.get(expression.name, "VARCHAR"))

    def _read_grouping_sets(self) -> tuple[tuple[int, ...], ...]:
        """Collect the expressions of GROUP BY, and return each grouping set as the numbers of its expressions."""
        clause = self._tree.args.get("group")
        if clause is None:
            return ((),)
        items = clause.expressions
        if clause.args.get("all"):
            items = list_grouped(self._tree)
        sets: list[tuple[exp.Expr, ...]] = [()]
        for item in items:
            sets = [left + right for left in sets for right in _list_sets(item)]
            if len(sets) > MOST_SETS:
                raise UsageError(f"GROUP BY asks for more than {MOST_SETS} grouping sets")
        for expression in itertools.chain(*sets):
            self._groups.setdefault(expression.unnest(), len(self._groups))
            self._make_group(expression.unnest())
        return tuple(tuple(dict.fromkeys(self._groups[one.unnest()] for one in chosen)) for chosen in sets)

    def _read_outputs(self) -> Iterator[Output]:
        names = set()
        for item in self._tree.expressions:
            title = fold_name(item.output_name)
            if title and title in names:
                raise UsageError(f"two columns of the answer are called {item.output_name!r}; give one an alias")
            names.add(title)
            root, bound = item.unalias(), ""
            if isinstance(root, exp.Anonymous) and root.name.lower() in BOUNDS:
                bound, root = root.name.lower(), root.expressions[0]
            written = f"{bound}({as_written(root)})" if bound else as_written(root)
            output = Output(item.alias, self._over_answer(root, "SELECT"), written, bound)
            if bound and not output.aggregate_numbers:
                raise UsageError(f"{output.written} has no bounds; write it of an aggregate function, as low(COUNT(*))")
            yield output

    def _over_answer(self, root: exp.Expr, clause: str) -> exp.Expr:
        """Rewrite an expression of a clause over the answer's columns: groups ``g_0``, .. and functions ``a_0``, .."""
        kinds = {type(group) for group in self._groups}

        def rename(node: exp.Expr) -> exp.Expr:
            if type(node) in kinds and node in self._groups:
                return column(f"g_{self._groups[node]}")
            if isinstance(node, (exp.Filter, *AGGREGATES)):
                return self._aggregates.read_call(node)
            if isinstance(node, exp.Window):
                return self._name_window(node, clause)
            if isinstance(node, exp.Grouping | exp.GroupingId):  # a bit says that a row is over all values of a group
                total: exp.Expr | None = None
                for item in node.expressions:
                    if item.unnest() not in self._groups:
                        raise UsageError(f"{as_written(node)}: {as_written(item)} must be in GROUP BY")
                    bit = column(f"k_{self._groups[item.unnest()]}")
                    doubled = exp.Mul(this=exp.paren(total), expression=TWO) if total is not None else None
                    total = bit if doubled is None else exp.Add(this=doubled, expression=bit)
                return exp.paren(total) if total is not None else exp.Literal.number(0)
            if isinstance(node, exp.Anonymous) and node.name.lower() in BOUNDS:
                inner = self._over_answer(node.expressions[0], clause).unnest()
                if not isinstance(inner, exp.Column) or not inner.name.startswith("a_"):
                    works = "write it of an aggregate function, as low(COUNT(*))"
                    raise UsageError(f"{as_written(node)} has no bounds; {works}")
                return column(f"{node.name.lower()[0]}_{inner.name[2:]}")
            if isinstance(node, exp.Column):
                where = "; use WHERE" if clause == "HAVING" else ""
                raise UsageError(
                    f"{clause} {as_written(root)}: column {node.name!r} must be in GROUP BY, or in COUNT or SUM{where}"
                )
            return node

        return root.copy().transform(rename)

    def _name_window(self, node: exp.Window, clause: str) -> exp.Expr:
        """Return the column (a_1000, ..) that stands for a window function over the rows of the answer."""
        known = {"this", "partition_by", "order", "spec", "over"}
        plain = all(key in known for key, value in node.args.items() if value)
        inner = [one for one in node.find_all(exp.Window) if one is not node]
        if not plain or inner or not isinstance(node.this, WINDOWED) or clause not in ("SELECT", "ORDER BY", "QUALIFY"):
            works = "SUM, AVG, MIN, MAX, LAG, LEAD, RANK and ROW_NUMBER OVER work in SELECT"
            raise UsageError(f"{clause}: {shorten_sql(node)} is not supported; {works}")
        window = node.copy()
        parts = [*window.this.iter_expressions(), *(window.args.get("partition_by") or ())]
        for part in (*parts, *(item.this for item in order_items(window))):
            part.replace(self._over_answer(part, clause))
        if window not in self._windows:
            self._windows.append(window)
        return column(f"a_{WINDOWS + self._windows.index(window)}")


def _list_sets(item: exp.Expr) -> list[tuple[exp.Expr, ...]]:
    """Return the grouping sets that one item of GROUP BY means, such as those of a ROLLUP."""

    def read_unit(part: exp.Expr) -> tuple[exp.Expr, ...]:
        return tuple(part.expressions) if isinstance(part, exp.Tuple) else (part.unnest(),)

    if isinstance(item, exp.GroupingSets):
        return [one for part in item.expressions for one in _list_sets(part)]
    if not isinstance(item, exp.Rollup | exp.Cube):
        return [read_unit(item)]
    units = list(map(read_unit, item.expressions))
    once = {expression for unit in units for expression in unit}
    if len(once) < sum(map(len, units)):
        raise UsageError(f"GROUP BY {as_written(item)}: the same expression twice is not supported")
    if isinstance(item, exp.Cube) and 2 ** len(units) > MOST_SETS:
        return [()] * (MOST_SETS + 1)  # more than are allowed
    sizes = range(len(units), -1, -1)
    chosen = (one for n in sizes for one in itertools.combinations(units, n))
    if isinstance(item, exp.Rollup):
        chosen = (tuple(units[:n]) for n in sizes)
    return [tuple(itertools.chain(*one)) for one in chosen]


# Aggregate functions --------------------------------------------------------------------------------------------------
# Aggregate functions of a query: the question of each, and its records.
#
# COUNT(x), COUNT_IF and FILTER are counts under one more condition. So are sums and means of CASE WHEN c THEN k ELSE 0
# END and of a condition as a number, since a release can answer counts where c is about sensitive columns.

KINDS: dict[type[exp.Expr], Kind] = {node: kind for kind, node in AGGREGATE_NODES.items()}
TRUTHS = (*COMPARISONS, *CONNECTIVES, exp.In, exp.Between, exp.Is, exp.Like, exp.ILike)


@dataclass(frozen=True)
class _CountedCase:
    """An expression CASE WHEN condition THEN value [ELSE 0] END.

    Attributes:
        condition: The condition.
        value: The value.
        or_zero: Whether all other records have 0; otherwise they have NULL.
    """

    condition: exp.Expr
    value: exp.Expr
    or_zero: bool


class _AggregateReader:
    """A reader of the aggregate functions in a query; equal functions are asked for only once.

    Attributes:
        asked: The functions that must be asked for; number k is column ``a_k`` of the answer.
    """

    def __init__(
        self,
        sides: Mapping[str, Side],
        types: Mapping[str, str],
        measures: Collection[str],
        check: Callable[[str, exp.Expr], None],
    ) -> None:
        self._sides, self._types, self._told, self._check = sides, types, measures, check
        self.asked: list[AggregateCall] = []
        self._seen: dict[tuple[str, exp.Expr | None, exp.Expr | None, Fraction], int] = {}

    def read_call(self, node: exp.Expr) -> exp.Expr:
        """Return an aggregate function, with its FILTER, as an expression over the columns ``a_k`` of the answer."""
        among: exp.Expr | None = None
        if isinstance(node, exp.Filter):
            among, node = node.expression.this, node.this
            self._check("FILTER", among)
        written = as_written(node)

        def ask(measure: Measure, *more: exp.Expr) -> exp.Expr:
            """Ask for an aggregate function of the records that also meet the conditions ``more``.

            Returns:
                The column ``a_k`` that stands for it in expressions over the answer.
            """
            conditions = [part for part in (among, *more) if part is not None]
            condition = all_of(conditions) if conditions else None
            key = (measure.kind, measure.operand, condition, measure.share)
            if key not in self._seen:
                self._seen[key] = len(self.asked)
                self.asked.append(AggregateCall(measure, condition, written))
            return column(f"a_{self._seen[key]}")

        if isinstance(node, STATISTICS):
            return ask(self._make_statistic(node))
        if isinstance(node, CONSTANTS):
            works = "it works for a column of a joined table whose keys are in GROUP BY; else take MIN or MAX"
            raise UsageError(f"{written} may be any of several values; {works}")
        if not isinstance(node, AGGREGATES) or any(
            value for key, value in node.args.items() if key not in ("this", "big_int")
        ):
            raise UsageError(f"{written} is not supported; COUNT, SUM, AVG, MIN, MAX and MEDIAN of one column work")
        argument = node.this
        if argument is None:
            raise UsageError(f"{written} is not supported; write COUNT(*)")
        if isinstance(argument, exp.Distinct) and not isinstance(node, exp.Count):
            raise UsageError(f"{written} is not supported; COUNT(DISTINCT ..) is")
        for item in argument.expressions if isinstance(argument, exp.Distinct) else [argument]:
            if not isinstance(item, exp.Star):
                check_kinds(written, item)
        branch = _match_branch(node)
        if branch is not None and "sa" in sides_of(branch.condition, self._sides):
            return self._read_branch(node, branch, among)
        if isinstance(node, exp.CountIf):  # over NULL alone it is NULL, unlike COUNT
            return _weigh(node, _CountedCase(argument, ONE, or_zero=False), ask)
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1 or argument.args.get("on"):
                raise UsageError(f"{written} is not supported; count the different values of one column")
            return ask(self._make_measure("distinct", written, argument.expressions[0]))
        if isinstance(node, exp.Count):
            if isinstance(argument, exp.Null):
                return exp.Mul(this=ask(Measure()), expression=exp.Literal.number(0))
            if isinstance(argument, exp.Star | exp.Literal | exp.Boolean):
                return ask(Measure())
            return ask(Measure(), exp.not_(is_null(exp.paren(argument))))
        if argument.find(exp.Column) is None:  # a constant, so the number of records decides
            number = ask(Measure())
            value: exp.Expr = exp.paren(argument.copy())
            if isinstance(node, exp.Sum):
                value = number if argument == ONE else exp.Mul(this=number, expression=value)
            elif isinstance(node, exp.Avg | exp.Median):
                value = exp.cast(value, "DOUBLE")
            return null_if_nobody(number.copy(), value)
        weighed = _match_weighed(argument) if isinstance(node, exp.Sum | exp.Avg) else None
        if weighed is not None and "sa" in sides_of(weighed.condition, self._sides):
            return _weigh(node, weighed, ask)
        return ask(self._make_measure(KINDS[type(node)], written, argument))

    def _read_branch(self, node: exp.Expr, branch: _CountedCase, among: exp.Expr | None) -> exp.Expr:
        """Rewrite an aggregate function of CASE WHEN c THEN x [ELSE 0] END with FILTER (WHERE c).

        Args:
            node: The aggregate function.
            branch: The CASE inside it.
            among: The condition of its own FILTER; None if there is none.
        """
        inner = node.copy()
        holder = inner.this.expressions[0] if isinstance(inner.this, exp.Distinct) else inner.this
        holder.replace(branch.value.copy())
        met = exp.paren(branch.condition.copy()) if among is None else exp.and_(among, branch.condition)
        figure = self.read_call(exp.Filter(this=inner, expression=exp.Where(this=met)))
        if not branch.or_zero:
            return figure
        # of nobody it is NULL, and of records that do not meet the condition 0
        everyone: exp.Expr = exp.Count(this=exp.Star(), big_int=True)
        if among is not None:
            everyone = exp.Filter(this=everyone, expression=exp.Where(this=among))
        return null_if_nobody(self.read_call(everyone), exp.Coalesce(this=figure, expressions=[exp.Literal.number(0)]))

    def _make_statistic(self, node: exp.Expr) -> Measure:
        """Return the ``Measure`` that stands for a statistic, such as a standard deviation, in a question.

        A release answers it exactly or not at all, so its columns must be quasi-identifiers.
        """
        if isinstance(node, exp.WithinGroup):  # as a function of two arguments, of which each engine has one
            (ordered,), share = node.expression.expressions, node.this.this
            if ordered.args.get("desc") and is_literal_number(share):
                share = exp.Literal.number(str(1 - Decimal(share.name)))
            node = type(node.this)(this=ordered.this, expression=share)
        written = as_written(node)
        for part in node.iter_expressions():
            check_kinds(written, part, aggregates=True)
        share = node.args.get("expression")
        if isinstance(node, exp.PercentileCont) and sides_of(node, self._sides) == {"sa"} and is_literal_number(share):
            written = as_written(exp.Median(this=node.this))
            return replace(self._make_measure("median", written, node.this), share=Fraction(share.name))
        if sides_of(node, self._sides) != {"qi"}:
            instead = "GROUP BY the column and COUNT(*)"
            raise UsageError(f"{written} is only available for quasi-identifiers; {instead}")
        return Measure("statistic", node)

    def _make_measure(self, kind: Kind, written: str, argument: exp.Expr) -> Measure:
        """Return the ``Measure`` that stands for SUM, AVG and the like in a question.

        Args:
            kind: The function.
            written: Its text in the query.
            argument: Its argument.

        Raises:
            UsageError: The argument mixes quasi-identifiers and sensitive columns, or the release can't answer the
                function.
        """
        operand = argument.unnest()
        sides = sides_of(operand, self._sides)
        if len(sides) == 2:
            raise UsageError(f"{written}: quasi-identifiers and sensitive columns together are not supported")
        known = self._types.get(operand.name, "DOUBLE") if isinstance(unwrap_order(operand), exp.Column) else "DOUBLE"
        if sides == {"sa"}:
            if not isinstance(operand, exp.Column) or kind not in self._told:
                why = "MIN, MAX, MEDIAN and the like need a quasi-identifier"
                instead = "GROUP BY the sensitive column and COUNT(*)"
                if kind == "distinct":
                    why = "different values of a sensitive column are not counted here"
                if kind in ("sum", "avg"):
                    why = "SUM and AVG are for quasi-identifiers, measures, and a sensitive column alone"
                    instead = "count the records of its values"
                raise UsageError(f"{written}: {why}; {instead}")
            if not is_number(known):
                instead = "count the records of a range of it"
                raise UsageError(f"{written}: {operand.name} is {known}, not a number; {instead}")
            return Measure(kind, operand, "sa")
        if kind in ("sum", "avg") and not is_number(known):
            raise UsageError(f"{written}: {operand.name} is {known}, not a number")
        return Measure(kind, operand)


def _match_branch(node: exp.Expr) -> _CountedCase | None:
    """Return the CASE if a node is an aggregate function of CASE WHEN c THEN x [ELSE 0] END; None for anything else.

    A sum with ELSE 0 and a constant x is left to ``_match_weighed``.
    """
    inner = node.this
    if isinstance(inner, exp.Distinct):
        inner = inner.expressions[0] if len(inner.expressions) == 1 else None
    case = inner.unnest() if isinstance(inner, exp.Expr) else None
    if not isinstance(case, exp.Case) or case.this is not None or len(case.args["ifs"]) != 1:
        return None
    branch, default = case.args["ifs"][0], case.args.get("default")
    value = branch.args["true"]
    if default is None or isinstance(default, exp.Null):
        return _CountedCase(branch.this, value, or_zero=False)
    is_zero = is_literal_number(default) and not float(default.name)
    weighs = is_zero and isinstance(node, exp.Sum) and not is_literal_number(value)
    return _CountedCase(branch.this, value, or_zero=True) if weighs else None


def _match_weighed(root: exp.Expr) -> _CountedCase | None:
    """Return an expression as a CASE if it is a number k where a condition holds, and 0 elsewhere; None for others.

    Its sum is k times a count. A condition cast to a number is such an expression, too.
    """
    root = root.unnest()
    if isinstance(root, exp.Cast) and isinstance(root.this.unnest(), TRUTHS):
        return _CountedCase(root.this, ONE, or_zero=False)
    if isinstance(root, exp.If):
        root = exp.Case(ifs=[exp.If(this=root.this, true=root.args["true"])], default=root.args.get("false"))
    if not isinstance(root, exp.Case) or root.this is not None or len(root.args["ifs"]) != 1:
        return None
    branch, default = root.args["ifs"][0], root.args.get("default")
    if not is_literal_number(branch.args["true"]) or not is_literal_number(default) or float(default.name):
        return None
    return _CountedCase(branch.this, branch.args["true"], or_zero=True)


def _weigh(node: exp.Expr, case: _CountedCase, ask: Callable[..., exp.Expr]) -> exp.Expr:
    """Rewrite SUM or AVG of ``CASE WHEN condition THEN k ELSE 0 END``, for a number k, by counts of records.

    Args:
        node: The SUM or AVG.
        case: The condition and k.
        ask: A function that asks for an aggregate function of the records that meet further conditions. It returns the
            column ``a_k`` that stands for the answer.

    Returns:
        The expression, which is NULL if there are no records.
    """
    # IS NOT NULL, in connectives: both sides of a release may be in it
    known = [] if case.or_zero else [exp.or_(case.condition, exp.not_(case.condition))]
    met, everyone = ask(Measure(), case.condition), ask(Measure(), *known)
    if float(case.value.name) != 1:
        met = exp.Mul(this=met, expression=case.value.copy())
    if isinstance(node, exp.Avg):
        divisor = exp.Nullif(this=everyone, expression=exp.Literal.number(0))
        return exp.paren(exp.Div(this=met, expression=divisor, typed=False, safe=False))
    return null_if_nobody(everyone, met)


# Item sets ------------------------------------------------------------------------------------------------------------
# Read an analyst's SQL over item sets as a count query, or refuse it by name.
#
# A query is SELECT COUNT(*) FROM release [WHERE ..], with several counts FILTER (WHERE ..) and arithmetic of them if
# wanted; a condition is any Boolean combination of list_contains(items, x), list_has_all(items, [..]),
# list_has_any(items, [..]) and comparisons of len(items) with numbers.

ITEMS = "items"  # the list under its internal name
ALLOWED = "COUNT(*), FROM and WHERE"
ONLY = "item sets answer COUNT(*), with FILTER (WHERE ..), and arithmetic of counts"
FUNCTIONS = "list_contains, list_has_all, list_has_any, len"
CONSTANT = (exp.Literal, exp.Neg, exp.Cast, exp.DataType, exp.Boolean, exp.Null)
NAMED = {"list_has_all", "array_has_all"}  # functions for which sqlglot has no node type


def parse_set_query(sql: str, roles: Roles, release: str) -> Statement:
    """Take a query over item sets apart into questions (one for each count) and expressions over their answers.

    The column of items is called ``items`` in the result.

    >>> from privsql.engine.sqlfiles import Field, Roles
    >>> roles = Roles((), (Field("pages", "INTEGER[]"),))
    >>> query = parse_set_query("SELECT COUNT(*) FROM t WHERE list_contains(pages, 7) AND len(pages) > 2", roles, "t")
    >>> [part.sql(dialect="duckdb") for part in query.questions[0].filters["sa"]]
    ['ARRAY_CONTAINS("items", 7)', 'LENGTH("items") > 2']

    Args:
        sql: The text of one SELECT.
        roles: The columns of the release.
        release: The name of the release in FROM.

    Raises:
        UsageError: The query is not supported.
    """
    with refuse_bad_text(sql):
        name = roles.sensitive[0].name
        reader = QueryReader(release, roles, None, lambda select: _check_item_clauses(select, name))
        tree, _ = reader.read_query(parse_select(sql))
        for item in list(tree.find_all(exp.Column)):
            item.replace(column(ITEMS))
        joined = JoinedTables({ITEMS: "sa"})
        return _StatementReader(tree, joined, roles, check=lambda *_: None).read_statement()  # conditions are checked


def _check_item_clauses(select: exp.Select, name: str) -> None:
    """Refuse a query over item sets that has an unsupported clause.

    Args:
        select: The query.
        name: The name of the column that holds the items.

    Raises:
        UsageError: There is such a clause.
    """
    for clause, value in select.args.items():
        if value and clause not in ("expressions", "from_", "where", "order", "limit", "offset"):
            counted = f"; to count each item, join unnest({name}) AS u(item) and group by item"
            word = clause.strip("_").upper()
            raise UsageError(f"{word} is not supported; a query over items has {ALLOWED}{counted * (word == 'GROUP')}")
    calls = find_aggregates(*select.expressions)
    for node in calls:
        if not is_count(node.this if isinstance(node, exp.Filter) else node):
            raise UsageError(f"{shorten_sql(node)}: {ONLY}")
    filters = [node.expression.this for node in calls if isinstance(node, exp.Filter)]
    for condition in (read_clause(select, "where"), *filters):
        if condition is not None:
            _check_condition(condition, name)
    for item in select.expressions:
        root, written = item.unalias(), shorten_sql(item.unalias())
        rest = root.copy().transform(lambda node: ONE if isinstance(node, exp.Filter | exp.Count) else node)
        if not find_aggregates(root) or any(rest.find_all(exp.Star, exp.Column)):
            raise UsageError(f"{written}: {ONLY}")
        check_kinds(written, rest)


def _check_condition(node: exp.Expr, name: str) -> None:
    """Refuse a condition on records that is not supported.

    Args:
        node: The condition.
        name: The name of the column that holds the items.

    Raises:
        UsageError: It is not supported.
    """

    def refuse(why: str) -> UsageError:
        return UsageError(f"WHERE: {shorten_sql(node)} is not supported; {why}")

    if isinstance(node, CONNECTIVES):
        for part in node.iter_expressions():
            _check_condition(part, name)
        return
    if isinstance(node, exp.Boolean):
        return
    if isinstance(node, (*COMPARISONS, exp.Between)):
        lengths = [side for side in node.iter_expressions() if isinstance(side, exp.Length | exp.ArraySize)]
        if len(lengths) != 1:
            raise refuse(_advise_on_items(node, name))
        held, constants = lengths[0].this, [side for side in node.iter_expressions() if side is not lengths[0]]
    else:
        if isinstance(node, exp.ArrayContains | exp.ArrayContainsAll | exp.ArrayOverlaps):
            held, sought = node.this, node.expression
        elif isinstance(node, exp.Anonymous) and node.name.lower() in NAMED and len(node.expressions) == 2:
            held, sought = node.expressions
        else:
            raise refuse(_advise_on_items(node, name))
        single = isinstance(node, exp.ArrayContains)
        constants = [sought] if single else sought.expressions
        if isinstance(held, exp.Column) and not single and not isinstance(sought, exp.Array):
            raise refuse("list the items: [a, b]")
    if not isinstance(held, exp.Column):
        raise refuse(f"its first argument must be {name}")
    for inner in (inner for constant in constants for inner in constant.walk()):
        if not isinstance(inner, CONSTANT):
            raise refuse(f"{shorten_sql(inner)} is not a constant")


def _advise_on_items(node: exp.Expr, name: str) -> str:
    """Return advice on what to write in place of an unsupported condition on item sets.

    Args:
        node: The condition.
        name: The name of the column that holds the items.
    """
    others = [item.name for item in node.find_all(exp.Column) if fold_name(item.name) != fold_name(name)]
    if others:
        return f"there is no column {others[0]!r}, only the items of each record, {name}; conditions are on {FUNCTIONS}"
    texts = [one.sql(DIALECT) for one in node.find_all(exp.Literal) if one.is_string]
    if isinstance(node, exp.NEQ):
        return f"write NOT list_contains({name}, {(*texts, '..')[0]})"
    if texts and isinstance(node, (*EQUALITY, exp.In)):
        several = f"list_has_any({name}, [{', '.join(texts)}])"
        written = f"list_contains({name}, {texts[0]})" if len(texts) == 1 else several
        return f"{name} is the list of a record's items: write {written}"
    return f"conditions are on {FUNCTIONS}, such as len({name}) > 2"


# UNION ALL ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnionParts:
    """A query as the parts of UNION ALL, with the clauses that apply to all rows.

    Attributes:
        queries: The texts of the parts.
        order: The columns by which all rows are sorted, as pairs (index of the column, whether it is descending).
        limit: The largest number of rows; None for all.
        offset: The number of rows to skip.
    """

    queries: tuple[str, ...]
    order: tuple[tuple[int, bool], ...] = ()
    limit: int | None = None
    offset: int = 0


def split_union(sql: str) -> UnionParts:
    """Split a query at UNION ALL; a query without it is a single part.

    Raises:
        UsageError: The query can't be parsed, or has another set operation.
    """
    tree = parse_query_text(sql)
    if not isinstance(tree, exp.Union):
        return UnionParts((sql,))
    queries, rest = list[str](), list[exp.Expr]([tree])
    clause = tree.args.get("with_")
    while rest:
        node = rest.pop()
        if isinstance(node, exp.Union):
            if node.args.get("distinct"):
                raise UsageError("UNION is not supported; write UNION ALL, which keeps every row")
            rest += [node.expression, node.this]
        elif isinstance(node, exp.Subquery) and not node.alias:
            rest.append(node.this)
        else:
            if clause is not None and isinstance(node, exp.Select):
                node.set("with_", clause.copy())
            queries.append(node.sql(DIALECT))
    return _read_union(tuple(queries), tree, parse_select(queries[0]))


def _read_union(queries: tuple[str, ...], tree: exp.Query, first: exp.Select) -> UnionParts:
    """Return a UNION with its ORDER BY, LIMIT and OFFSET.

    Args:
        queries: The texts of the parts.
        tree: The whole query.
        first: The first part, whose columns ORDER BY names.
    """
    names, order = [fold_name(item.output_name) for item in first.expressions], []
    for item in order_items(tree):
        place = output_position(item.this, len(names))
        if place is None and isinstance(item.this, exp.Column) and fold_name(item.this.name) in names:
            place = names.index(fold_name(item.this.name))
        if place is None:
            raise UsageError(f"ORDER BY {shorten_sql(item.this)} is not supported over UNION ALL; name a column")
        order.append((place, bool(item.args.get("desc"))))
    limits = read_limits(tree)
    return UnionParts(queries, tuple(order), limits["limit"], limits["offset"] or 0)


# Groups of items ------------------------------------------------------------------------------------------------------

FORM = "unnest({}) AS item and COUNT(*) by GROUP BY item, with WHERE on records, ORDER BY and LIMIT, work"


@dataclass(frozen=True)
class ItemGroups:
    """A query that counts, for each item, the records that hold it.

    Attributes:
        item_first: Whether the item stands before the count in the select list.
        where: The condition on records; None if there is none.
        among: The texts of the items to list; None for all.
        rows: The ORDER BY, LIMIT and OFFSET; its ``queries`` are empty.
    """

    item_first: bool
    where: exp.Expr | None
    among: frozenset[str] | None
    rows: UnionParts


def split_items(sql: str, release: str, items: str) -> ItemGroups | None:
    """Read a query that uses UNNEST to count the records of each item; return None for any other query.

    Args:
        sql: The query.
        release: The name of the release.
        items: The name of the column that holds the items.
    """
    tree = parse_query_text(sql)
    if not isinstance(tree, exp.Select) or not tree.find(exp.Explode, exp.Unnest):
        return None
    works = FORM.format(items)
    refuse_others(tree, {"expressions", "from_", "joins", "where", "group", "order", "limit", "offset"})
    name, where = _find_unnested(tree, release, items, works)
    places = [at for at, item in enumerate(tree.expressions) if _is_item(item.unalias(), name, items)]
    counts = [at for at, item in enumerate(tree.expressions) if is_count(item.unalias())]
    keys = tree.args["group"].expressions if tree.args.get("group") else []
    among, where = _split_listed(where, name, items)
    on_items = where is not None and any(_is_item(one, name, "") for one in where.find_all(exp.Column))
    if (
        len(tree.expressions) != 2
        or [len(places), len(counts), len(keys)] != [1, 1, 1]
        or not (_is_item(keys[0], name, items) or output_position(keys[0], 2) == places[0])
        or on_items
    ):
        raise UsageError(f"{shorten_sql(tree)}: a list of items has one COUNT(*) by item; {works}")
    return ItemGroups(places[0] == 0, where, among, _read_union((), tree, tree))


def _split_listed(where: exp.Expr | None, name: str, items: str) -> tuple[frozenset[str] | None, exp.Expr | None]:
    """Split a condition into a list of items and a condition on records.

    Args:
        where: The condition; None if there is none.
        name: The name by which the query calls an item.
        items: The name of the column that holds the items.

    Returns:
        The items, None for all of them; and the rest of the condition, None if nothing remains.
    """
    parts = [] if where is None else list(where.flatten()) if isinstance(where, exp.And) else [where]
    listed, rest = None, []
    for part in parts:
        if isinstance(part, exp.In) and part.this.args.get("table") and _is_item(part.this, name, items):
            texts = frozenset(one.sql(DIALECT) if isinstance(one, exp.Neg) else one.name for one in part.expressions)
            listed = texts if listed is None else listed & texts
        else:
            rest.append(part)
    return listed, exp.and_(*rest) if rest else None


def _find_unnested(tree: exp.Select, release: str, items: str, works: str) -> tuple[str, exp.Expr | None]:
    """Find the UNNEST in a query that counts records by item, such as ``SELECT unnest(items), COUNT(*) ..``.

    Args:
        tree: The query.
        release: The name of the release.
        items: The name of the column that holds the items.
        works: What would work instead, for messages.

    Returns:
        The name by which the query calls an item, and the condition on records; None if there is none.
    """
    source, where, joins = read_clause(tree, "from_"), read_clause(tree, "where"), tree.args.get("joins")
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select) and not joins and where is None:
        inner = source.this
        refuse_others(inner, {"expressions", "from_", "where"})
        source, where = read_clause(inner, "from_"), read_clause(inner, "where")
        names = [one.alias for one in inner.expressions if _is_item(one.unalias(), "", items)]
        names = names if len(inner.expressions) == 1 else []
    elif joins:
        unnested = joins[0].this if len(joins) == 1 and isinstance(joins[0].this, exp.Unnest) else None
        held = unnested is not None and [one.name for one in unnested.expressions] == [items]
        names = list(unnested.alias_column_names) if held and unnested is not None else []
    else:
        names = [one.alias for one in tree.expressions if _is_item(one.unalias(), "", items)]
    plain = isinstance(source, exp.Table) and fold_name(source.name) == fold_name(release)
    if len(names) != 1 or not names[0] or not plain:
        raise UsageError(f"{shorten_sql(tree)} is not supported for item sets; {works}")
    return names[0], where


def _is_item(node: exp.Expr, name: str, items: str) -> bool:
    """Return whether an expression is one item of a record: ``unnest(items)``, or a column called ``name``."""
    if isinstance(node, exp.Explode):
        return isinstance(node.this, exp.Column) and fold_name(node.this.name) == fold_name(items)
    return bool(name) and isinstance(node, exp.Column) and fold_name(node.name) == fold_name(name)


def as_described(sql: str, release: str) -> str:
    """Rewrite a query so that the engine can describe the columns of its result.

    Two things that the engine does not know are removed: the schema names that tools write before the release's name,
    and privsql's functions for bounds, such as ``low(..)``. Their arguments remain, cast to DOUBLE.
    """
    if not any(word in fold_name(sql) for word in (*MAIN_SCHEMAS, *BOUNDS)):
        return sql
    tree = parse_select(sql)
    for one in list(tree.find_all(exp.Table, exp.Column, exp.Anonymous)):
        if isinstance(one, exp.Anonymous):
            if one.name.lower() in BOUNDS and len(one.expressions) == 1:
                one.replace(exp.cast(one.expressions[0], "DOUBLE"))
            continue
        named = isinstance(one, exp.Column) or fold_name(one.name) == fold_name(release)
        if named and fold_name(one.args["db"].name if one.args.get("db") else "") in MAIN_SCHEMAS:
            one.set("db", None)
            one.set("catalog", None)
    return tree.sql(DIALECT)
