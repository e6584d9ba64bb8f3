"""Answer queries from noisy marginals, with their exact errors."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, floor, inf, nextafter, prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.estimate import count_intervals, student_quantile
from privsql.answers.sql.cuts import FIRST, LAST, TURNED, read_constant, refuse_cuts
from privsql.answers.sql.question import Measure
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Holes, alias_as, all_of, all_rows, column, fill, is_null, table
from privsql.errors import UsageError
from privsql.mechanisms.dp import mechanism as private
from privsql.mechanisms.dp.mechanism import refuse_damaged
from privsql.mechanisms.dp.noisy_tables import CellSums
from privsql.mechanisms.dp.tables import SumEstimator
from privsql.mechanisms.dp.unlisted import SURE, ListedAnswers, UnlistedColumn, read_question
from privsql.mechanisms.marginals.domains import ADDED, UNITS, Point, as_sql_number
from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts, is_whole
from privsql.mechanisms.marginals.plan import DOMAINS, ROWS, PublishedMarginals
from privsql.model.arrays import round_copies
from privsql.model.bins import Bins, number_range
from privsql.model.estimates import Estimate, same_nan
from privsql.model.universes import NO_BINS, find_unlisted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.sql.question import CountQuery, Lookups, Statement
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Field
    from privsql.mechanisms.dp.noisy_tables import Clique, Ints, Reals
    from privsql.model.estimates import RestsOn
    from privsql.model.manifest import Manifest

# Parts ----------------------------------------------------------------------------------------------------------------
# The parts of bins that a question tells apart, each with its share of the bin.
#
# A comparison with a number cuts the bin in which that lies. Of whole numbers and decimals a part's share is that of
# the values in it, of others that of its length; there the number itself may be what many records have, so it is a part
# of next to no length by itself.

LITTLE = 1e-9  # the share of a bin that one number has, or of which nothing is known
RISING = (exp.Paren, exp.Neg, exp.Floor, exp.Ceil, exp.Round)
OF_TWO = (exp.Add, exp.Sub, exp.Mul)
DIVIDED = (exp.Div, exp.IntDiv)
NUMBERS = (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE)
Cut = tuple[Fraction, bool]  # a number, and whether it is the last one of what comes before the cut


def type_step(kind: str) -> Fraction | None:
    """Return how far the values of a type lie from each other; None where there is always one between them."""
    if is_whole(kind):
        return Fraction(1)
    return Fraction(1, 10 ** number_range(kind)[2]) if kind.startswith("DECIMAL") else None


def read_cuts(field: Field, expressions: Iterable[exp.Expr]) -> tuple[set[Cut], list[exp.Expr]]:
    """Return where comparisons with numbers cut a column, and the largest arithmetic around all its other uses."""
    cuts: set[Cut] = set()
    others: list[exp.Expr] = []
    for root in expressions:
        for node in root.find_all(exp.Column):
            if fold_name(node.name) == fold_name(field.name):
                result = _comparison_cuts(_outside_parentheses(node), field.type)
                if result is None:
                    others.append(_enclosing_monotone(node))
                cuts |= result or set()
    return cuts, others


def _outside_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return node


def _comparison_cuts(node: exp.Expr, kind: str) -> set[Cut] | None:
    """The cuts of a comparison of a column with constants, or with NULL; None for another use."""
    around = node.parent
    if isinstance(around, exp.Is) and isinstance(around.expression, exp.Null):
        return set()
    if isinstance(around, exp.Between) and around.this is node:
        ends = [read_constant(around.args[name], kind) for name in ("low", "high")]
        pairs = [(end, last) for end, last in zip(ends, (False, True), strict=True) if end is not None]
    elif isinstance(around, (*FIRST, *LAST)):
        turned = around.expression is node
        value = read_constant(around.this if turned else around.expression, kind)
        kind_of = TURNED[type(around)] if turned else type(around)
        pairs, ends = ([(value, kind_of in LAST)] if value is not None else []), [value]
    else:
        return None
    return None if None in ends else {(Fraction(str(value)), last) for value, last in pairs}


def _enclosing_monotone(node: exp.Expr) -> exp.Expr:
    """The largest expression around a column that never falls, or never rises, as the column does."""
    while (around := node.parent) is not None and _is_monotone(around, node):
        node = around
    return node


def _is_monotone(around: exp.Expr, node: exp.Expr) -> bool:
    if any(child.find(exp.Column) for child in around.iter_expressions() if child is not node):
        return False
    if isinstance(around, exp.Cast):
        return around.to.this in NUMBERS
    return isinstance(around, (*RISING, *OF_TWO)) or (isinstance(around, DIVIDED) and around.this is node)


def cut_bins(kind: str, edges: Sequence[Fraction], cuts: Iterable[Cut]) -> list[Point]:
    """Return the parts of all bins that are cut, one value of each with its share of the bin."""
    by_code: dict[int, set[Cut]] = {}
    for cut in cuts:
        code = bisect_right(edges, cut[0]) - 1
        if 0 <= code < len(edges) - 1:
            by_code.setdefault(code, set()).add(cut)
    spacing = type_step(kind)
    result: list[Point] = []
    for code, inside in sorted(by_code.items()):
        ends = edges[code], edges[code + 1]
        parts = _of_length(*ends, inside) if spacing is None else _of_values(*ends, inside, spacing)
        result += [Point(code, value, share) for value, share in parts] if len(parts) > 1 else []
    return result


def _of_values(low: Fraction, high: Fraction, cuts: Iterable[Cut], spacing: Fraction) -> list[tuple[str, float]]:
    """Parts by the number of values in them, each with its first value."""
    first, end = ceil(low / spacing), ceil(high / spacing)
    places = {floor(value / spacing) + 1 if last else ceil(value / spacing) for value, last in cuts}
    bounds = [first, *sorted(place for place in places if first < place < end), end]
    return [
        (as_sql_number(one * spacing), float(Fraction(other - one, end - first))) for one, other in pairwise(bounds)
    ]


def _of_length(low: Fraction, high: Fraction, cuts: Iterable[Cut]) -> list[tuple[str, float]]:
    """Return the parts between cuts, each as its middle and its share of the length, and the numbers at the cuts."""
    numbers = sorted({value for value, last in cuts if value > low or last})
    bounds = sorted({low, *numbers, high})
    rest = 1 - LITTLE * len(numbers)
    parts = [
        (repr(float((one + other) / 2)), rest * float((other - one) / (high - low))) for one, other in pairwise(bounds)
    ]
    return [*parts, *((repr(float(value)), LITTLE) for value in numbers)]


def ends_of(kind: str, edges: Sequence[Fraction]) -> list[Point]:
    """Return the first and the last value of every bin."""
    spacing = type_step(kind)
    result = []
    for code, (low, high) in enumerate(pairwise(edges)):
        last = nextafter(float(high), -inf) if spacing is None else None
        if kind == "FLOAT":
            last = float(np.nextafter(np.float32(high), np.float32(-inf)))
        last_value = repr(last) if spacing is None else as_sql_number((ceil(high / spacing) - 1) * spacing)
        first = as_sql_number(low if spacing is None else ceil(low / spacing) * spacing)
        result += [Point(code, first, LITTLE), Point(code, last_value, LITTLE)]
    return result


# Questions ------------------------------------------------------------------------------------------------------------
# What a question asks of the published tables: the cells of some columns that meet it, by group.
#
# Conditions on one column alone are asked of its values; what columns have together (a condition over several, groups)
# is asked of their values side by side, by the engine. A value of a bin stands for its share of the bin's records; a
# bin that is cut has the parts that the question tells apart (``parts``).

TOGETHER = 3_000_000  # values side by side that the engine looks at
CELLS, CLASSED = 200_000, 40_000  # of a table; beyond, values that nothing tells apart are taken together, to so many
MOST = 10_000_000  # cells of any table
TINY = 1e-11  # of a share: ten tenths are one


@dataclass(frozen=True)
class KnownColumns:
    """The columns of a release: ``fields``, how many values each has (``sizes``) and how many stand for these
    (``points``), the ``edges`` of those in bins whose values are not all there, and what stands for the values that are
    ``unlisted``.
    """

    fields: tuple[Field, ...]
    sizes: tuple[int, ...]
    points: tuple[int, ...]
    edges: Mapping[int, tuple[Fraction, ...]]
    unlisted: Mapping[int, UnlistedColumn]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {fold_name(field.name): place for place, field in enumerate(self.fields)}

    def column_places(self, expression: exp.Expr) -> frozenset[int]:
        """The columns that an expression names."""
        return frozenset(self._places[fold_name(one.name)] for one in expression.find_all(exp.Column))

    def with_internal_names(self, expression: exp.Expr) -> exp.Expr:
        """The expression over s0, s1, .. in place of the columns."""
        return expression.copy().transform(
            lambda node: column(f"s{self._places[fold_name(node.name)]}") if isinstance(node, exp.Column) else node
        )


@dataclass(frozen=True)
class MarginalQuestion:
    """A question's parts: ``together``: the columns that are looked at side by side, with their ``conditions`` and
    ``groups``; ``alone``: conditions by column, of all others.
    """

    known: KnownColumns
    together: Clique
    conditions: tuple[exp.Expr, ...]
    groups: tuple[exp.Expr, ...]
    alone: dict[int, list[exp.Expr]]
    database: str | None

    def statement(self) -> exp.Query:
        """The SQL over the columns that are looked at side by side."""
        return self._matching_query(self.together, self.conditions, self.groups)

    def read_sums(self, db: Relations) -> tuple[list[tuple[Any, ...]], CellSums]:
        """The groups, and the sums that are asked for."""
        wide = len(self.together)
        rows = self._read_cells(db, self.together, self.conditions, self.groups)
        keys: dict[tuple[Any, ...], int] = {} if self.groups else {(): 0}
        group = [keys.setdefault(tuple(same_nan(one) for one in row[wide:-1]), len(keys)) for row in rows]
        codes = {place: np.array([row[k] for row in rows], dtype=np.int64) for k, place in enumerate(self.together)}
        weight = _round_shares(np.array([row[-1] for row in rows], dtype=np.float64))
        shares = {place: self._read_shares(db, place) for place in sorted(self.alone)}
        return list(keys), self._make_sums(codes, np.array(group, dtype=np.int64), weight, shares, len(keys))

    def _make_sums(
        self, codes: dict[int, Ints], group: Ints, weight: Reals, shares: dict[int, Reals], number: int
    ) -> CellSums:
        columns = tuple(sorted({*self.together, *shares}))
        classes = self._merge_values(columns, shares) if prod(self.known.sizes[i] for i in columns) > CELLS else {}
        shape = tuple(classes[i].shape[1] if i in classes else self.known.sizes[i] for i in columns)
        if prod(shape) > MOST:
            raise UsageError(f"the query covers a table of {prod(shape):,} cells; use fewer columns")
        for place, share in shares.items():
            met = np.flatnonzero(share)
            codes = {one: np.repeat(own, len(met)) for one, own in codes.items()}
            codes[place] = np.tile(met, len(group))
            weight = np.repeat(weight, len(met)) * np.tile(share[met], len(group))
            group = np.repeat(group, len(met))
        cell = np.ravel_multi_index(tuple(codes[i] for i in columns), shape) if len(group) else group
        return CellSums(columns, cell, group, weight, number, classes)

    def _merge_values(self, columns: Clique, shares: dict[int, Reals]) -> dict[int, Reals]:
        """Values that the question does not tell apart, taken together as far as a table of ``CLASSED`` cells needs it.

        A column keeps its first values that are met, and those that are not, by themselves; ``shares`` are by class
        afterwards.
        """
        sizes = {i: self.known.sizes[i] for i in columns}
        limit = max(sizes.values())
        while limit > 2 and prod(min(size, limit) if i in shares else size for i, size in sizes.items()) > CLASSED:
            limit -= 1
        result = {}
        for place, share in shares.items():
            if len(share) > limit:
                which, different = _taken_together(share, limit)
                result[place] = np.eye(len(different))[which]
                shares[place] = different
        return result

    def _read_shares(self, db: Relations, place: int) -> Reals:
        """How much of each value of a column meets the conditions on it alone."""
        result = np.zeros(self.known.sizes[place])
        for code, met in self._read_cells(db, (place,), self.alone[place], ()):
            result[code] = met
        return _round_shares(result)

    def _read_cells(
        self, db: Relations, columns: Clique, conditions: Sequence[exp.Expr], groups: Sequence[exp.Expr]
    ) -> list[tuple[Any, ...]]:
        """The cells of some columns that are met, with their groups and how much of each is.

        No cell that a bin's inside may change is met as a whole, or not at all; ``UsageError`` where it may change
        groups.
        """
        rows = db.rows(self._matching_query(columns, conditions, groups))
        result = [self._uneven_bins(db, place, (*conditions, *groups)) for place in columns]
        uneven = [place for place, uneven_bins in zip(columns, result, strict=True) if uneven_bins.any()]
        if not uneven:
            return rows
        if groups:
            name = self.known.fields[uneven[0]].name
            raise UsageError(f"{name} is published in bins; group by an expression that is constant in each bin")
        shape = [self.known.sizes[place] for place in columns]
        met, doubted = np.zeros(shape), np.zeros(shape, dtype=bool)
        for row in rows:
            met[row[:-1]] = row[-1]
        for axis, uneven_bins in enumerate(result):
            doubted |= np.expand_dims(uneven_bins, tuple(k for k in range(len(shape)) if k != axis))
        met = np.where(doubted, met.clip(LITTLE, 1 - LITTLE), met)
        return [(*map(int, cell), float(met[tuple(cell)])) for cell in np.argwhere(met > 0)]

    def _uneven_bins(self, db: Relations, place: int, expressions: Sequence[exp.Expr]) -> NDArray[np.bool_]:
        """The bins of a column in which arithmetic has several values, or may have (m,).

        What rises or falls with the column is looked at where a bin begins and ends.
        """
        result = np.zeros(self.known.sizes[place], dtype=bool)
        if place not in self.known.edges:
            return result
        field, edges = self.known.fields[place], self.known.edges[place]
        for one in read_cuts(field, expressions)[1]:
            if isinstance(one, exp.Column):
                result[: len(edges) - 1] = True
                continue
            ends = self._column_values(place, ends_of(field.type, edges)).subquery(f"p_{place}")
            values: dict[int, set[Any]] = {}
            for code, value, _ in db.rows(self._matching_points(ends, (place,), (), (one,))):
                values.setdefault(code, set()).add(value)
            result[[code for code, own in values.items() if len(own) > 1 and code < len(edges) - 1]] = True
        return result

    def _matching_query(self, columns: Clique, conditions: Sequence[exp.Expr], groups: Sequence[exp.Expr]) -> exp.Query:
        return self._matching_points(self._cross_points(columns), columns, conditions, groups)

    def _matching_points(
        self, points: exp.Expr, columns: Sequence[int], conditions: Sequence[exp.Expr], groups: Sequence[exp.Expr]
    ) -> exp.Query:
        codes: list[exp.Expr] = [column(f"c_{place}") for place in columns]
        inside = [self.known.with_internal_names(one) for one in groups]
        share: exp.Expr = column(f"share_{columns[0]}")
        for place in columns[1:]:
            share = exp.Mul(this=share, expression=column(f"share_{place}"))
        holes: Holes = {
            "points": points,
            "codes": codes,
            "terms": [alias_as(one.copy(), f"g_{k}") for k, one in enumerate(inside)],
            "keys": inside,
            "share": share,
            "condition": all_of([self.known.with_internal_names(one) for one in conditions]),
        }
        return fill("contingency/asked", holes)

    def _cross_points(self, columns: Clique) -> exp.Expr:
        """The values of some columns side by side."""
        parts = [self._column_values(place, self._bin_parts(place)).subquery(f"p_{place}") for place in columns]
        whole = exp.select(exp.Star()).from_(parts[0])
        for part in parts[1:]:
            whole = whole.join(part, join_type="cross")
        return whole.subquery("points")

    def _bin_parts(self, place: int) -> list[Point]:
        """Return what stands for the bins of a column that the question cuts."""
        if place not in self.known.edges:
            return []
        field, expressions = self.known.fields[place], (*self.conditions, *self.groups, *self.alone.get(place, ()))
        return cut_bins(field.type, self.known.edges[place], read_cuts(field, expressions)[0])

    def _column_values(self, place: int, parts: Sequence[Point]) -> exp.Query:
        kind = exp.DataType.build(self.known.fields[place].type, dialect=DIALECT)
        value: exp.Expr = exp.cast(column("value"), kind)
        if place in self.known.unlisted:
            other = exp.Literal.number(self.known.sizes[place] - ADDED)
            value = self.known.unlisted[place].name_value(value, column("code").eq(other))
        columns: list[exp.Expr] = [
            alias_as(column("code"), f"c_{place}"),
            alias_as(value, f"s{place}"),
            alias_as(column("share"), f"share_{place}"),
        ]
        holes: Holes = {
            "domains": self._with_parts(place, parts) if parts else table(DOMAINS, self.database),
            "columns": columns,
            "place": exp.Literal.number(place),
        }
        return fill("contingency/points", holes)

    def _with_parts(self, place: int, parts: Sequence[Point]) -> exp.Expr:
        """The published values, with parts in place of the bins that are cut."""
        rows = [(one.code, one.value, exp.cast(exp.Literal.number(repr(one.share)), "DOUBLE")) for one in parts]
        holes: Holes = {
            "domains": table(DOMAINS, self.database),
            "parts": exp.select("*").from_(exp.values(rows, "v", ["code", "value", "share"])).subquery(),
            "place": exp.Literal.number(place),
            "codes": [exp.Literal.number(code) for code in sorted({one.code for one in parts})],
        }
        return fill("contingency/cut", holes).subquery("domains")


def _round_shares(shares: Reals) -> Reals:
    """Shares that are whole but for rounding are whole."""
    return np.where(np.abs(shares - 1) < TINY, 1.0, shares)


def _taken_together(share: Reals, limit: int) -> tuple[Ints, Reals]:
    """Classes (n,) of values with equal shares, about ``limit`` of them in all, and the share of each class."""
    different = np.unique(share)
    which = np.zeros(len(share), dtype=np.int64)
    result: list[float] = []
    for one in different.tolist():
        members = np.flatnonzero(share == one)
        number = max(1, min(len(members), limit * len(members) // len(share)))
        which[members] = len(result) + np.arange(len(members)) * number // len(members)
        result += [one] * number
    return which, np.array(result)


def refuse_joins(query: CountQuery) -> None:
    """``UsageError`` for a question that joins tables of the analyst's."""
    if query.lookups:
        raise UsageError("JOIN is not supported for a contingency table; name the values in WHERE")


def split_question(query: CountQuery, known: KnownColumns, database: str | None) -> MarginalQuestion:
    """A question's parts; ``UsageError`` for what tables with bins, or of so many values, can't tell."""
    conditions = [*query.filters["qi"], *query.filters["sa"]]
    groups = tuple(group.expression for group in query.groups)
    for one in [*conditions, *groups]:
        _is_answered_by_bins(one, known)
    several = [known.column_places(one) for one in (*conditions, *groups)]
    together = frozenset().union(*map(known.column_places, groups), *(own for own in several if len(own) > 1))
    alone = [own for own in several if len(own) == 1]
    together = together or (min(alone, key=sorted) if alone else frozenset([0]))
    if prod(known.points[i] for i in together) > TOGETHER:
        raise UsageError("the query combines too many values; use fewer columns")
    inside = tuple(one for one in conditions if known.column_places(one) <= together)
    others: dict[int, list[exp.Expr]] = {}
    for one in conditions:
        if not known.column_places(one) <= together:
            (place,) = known.column_places(one)
            others.setdefault(place, []).append(one)
    for place in (
        frozenset().union(*(known.column_places(column(name)) for name in query.comparison_columns)) - together
    ):
        others.setdefault(place, [])
    return MarginalQuestion(known, tuple(sorted(together)), inside, groups, others, database)


def _is_answered_by_bins(expression: exp.Expr, known: KnownColumns) -> None:
    """``UsageError`` where single values are asked for of a column that is published in bins of many."""
    for node in expression.find_all(exp.Column):
        alone = node is expression or isinstance(node.parent, exp.EQ | exp.NEQ | exp.In | exp.NullSafeEQ)
        if alone and known.column_places(node) & known.edges.keys():
            raise UsageError(f"{node.name} is published in bins; filter or group by ranges of it, not by single values")


# Answers --------------------------------------------------------------------------------------------------------------
# Answers from marginals: the model that fits all noisy tables, or their least-squares estimate alone.

BASELINE = (
    "estimate = sum over the cells that meet the condition of the least-squares estimate from all noisy tables; "
    "unbiased, with an exact variance, where one table has all columns of the question, else without an interval"
)
FORMULA = (
    "estimate = sum over the cells that meet the condition of the table of largest entropy that agrees with the noisy "
    "tables: combined by least squares, shrunk towards what smaller tables make likely, non-negative"
)
SUMMED = (
    "sum = lower end * number of values + the least-squares estimate, from noisy sums, of what values lie above it; "
    "mean = sum / number of values; values are clamped to the ends of the column's bins, and NULL is none"
)
DEGREES = 8.0  # of freedom of an interval that rests on the model: how much to doubt is itself estimated
NOISE_DEGREES = 20.0  # of an interval of few counts with Laplace noise: about as wide as noise of one count needs it


class MarginalAnswers(ListedAnswers):
    """An open release that answers count queries over its columns; its model is fitted once."""

    records = values = ROWS
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    @property
    def in_bins(self) -> frozenset[str]:
        """The columns that are published in bins of more values than stand for them."""
        coarse = (self.known_columns.fields[place].name for place in self.known_columns.edges)
        return frozenset((*coarse, *self._prefixes))

    @cached_property
    def _prefixes(self) -> dict[str, Bins]:
        """The columns of which first characters are published."""
        known = {one.name: self._params.domain(one.name) for one in self._manifest.sensitive}
        return {name: Bins(prefix=one.prefix) for name, one in known.items() if one is not None and one.prefix}

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Take the analyst's SQL apart; ``UsageError`` for what is no count, or of more than the first characters."""
        return refuse_cuts(super().parse_sql(sql, lookups), self._prefixes, {}, self._manifest.sensitive)

    def __init__(self, db: Relations, manifest: Manifest, database: str | None = None) -> None:
        super().__init__(db, manifest, database)
        self.measures = frozenset(("sum", "avg") if self.measured_columns else ())

    @cached_property
    def _params(self) -> Contingency:
        return Contingency.model_validate(self._manifest.parameters)

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Return the columns whose sums are published."""
        return tuple(one.name for one in self._manifest.sensitive if self._params.is_measured(one.name))

    def rests_on(self, query: CountQuery, estimator: str) -> RestsOn:
        """Return that every figure has an interval, sums too."""
        return "interval"

    @cached_property
    def published_marginals(self) -> PublishedMarginals:
        """The tables of the release."""
        rows = {name: self._read_table(name, *keys) for name, keys in PublishedMarginals.ORDERS.items()}
        with refuse_damaged():
            return PublishedMarginals.read(self._params, self._manifest.sensitive, rows)

    @cached_property
    def known_columns(self) -> KnownColumns:
        """The columns of the release."""
        params, fields, published = self._params, self._manifest.sensitive, self.published_marginals
        points = np.bincount(published.domains["place"].to_numpy(), minlength=len(fields))
        edges = {
            place: params.bin_edges(field.name)
            for place, field in enumerate(fields)
            if params.is_coarse(field.name, field.type)
        }
        unlisted = {place: one for place in range(len(fields)) if (one := self._find_unlisted(place, place in edges))}
        return KnownColumns(tuple(fields), published.rule.sizes, tuple(points.tolist()), edges, unlisted)

    def _find_unlisted(self, place: int, in_bins: bool) -> UnlistedColumn | None:
        """Return what stands for the values of a column that are not listed; None where all are."""
        field, other = self._manifest.sensitive[place], self.published_marginals.rule.sizes[place] - ADDED
        labels = [] if in_bins else [text for text in self._list_labels(place, other) if text is not None]
        ends = self._params.bin_edges(field.name)
        stand_in = find_unlisted(field.type, labels, (ends[0], ends[-1]) if ends else NO_BINS)
        (alone,) = (one for one in self.published_marginals.tables if one.columns == (place,))
        occurs = alone.counts[other] > SURE * alone.variance**0.5
        return None if stand_in is None else UnlistedColumn(field, labels, stand_in, bool(occurs))

    def _list_labels(self, place: int, codes: int) -> list[str | None]:
        """Return the texts of the first values of a column, by their codes."""
        domains = self.published_marginals.domains
        return [*domains.filter((pc.field("place") == place) & (pc.field("code") < codes))["value"].to_pylist()]

    @property
    def unlisted(self) -> list[UnlistedColumn]:
        """Return what stands for the values that are not listed."""
        return [*self.known_columns.unlisted.values()]

    def list_values(self, name: str, most: int) -> list[str | None]:
        """Texts of all values that a column can have; none of one in bins of many, of which no single one is told."""
        place = self.published_marginals.rule.names.index(name)
        if place in self.known_columns.edges:
            return []
        return [*dict.fromkeys(self._list_labels(place, self.known_columns.sizes[place]))][:most]

    @cached_property
    def sum_estimator(self) -> SumEstimator:
        """The model of the release."""
        with refuse_damaged():
            errors = MarginalFacts.model_validate(self._manifest.facts).errors
            return SumEstimator(self.published_marginals.model, errors)

    def _split_question(self, query: CountQuery) -> MarginalQuestion:
        refuse_joins(query)
        return split_question(query, self.known_columns, self._database)

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        formula = self.formulas[estimator] if query.measure.kind == "count" else SUMMED
        return self._split_question(read_question(query, self.unlisted).query).statement(), formula

    def answer_reading(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that a value of the columns can have."""
        if query.measure.kind != "count":
            return self._answer_amounts(query, confidence)
        groups, sums = self._split_question(query).read_sums(self._db)
        degrees = self._degrees_of_freedom(sums.columns, estimator)
        rows = _make_estimates(groups, *self._estimate_sums(sums, estimator), confidence, degrees)
        if sums.is_whole:
            return rows
        low, high = (
            _make_estimates(groups, *self._estimate_sums(sums.round_weights(up=up), estimator), confidence, degrees)
            for up in (False, True)
        )  # all that lies within a bin that is cut may be on either side of the cut
        return [
            replace(row, std_error=None, low=least.low, high=most.high)
            for row, least, most in zip(rows, low, high, strict=True)
        ]

    def _degrees_of_freedom(self, columns: Clique, estimator: str) -> float:
        if len(columns) > 1:
            return np.inf if estimator == "baseline" else DEGREES
        return np.inf if private.find_law(self._params).concentrated else NOISE_DEGREES

    # Sums and means ---

    def _answer_amounts(self, query: CountQuery, confidence: float) -> list[Estimate]:
        """The rows of a sum or mean: lower N + S, or lower + S / N, of N values whose excess over ``lower`` is S.

        The errors of S and N are independent. ``UsageError`` for what no table of sums tells without a model.
        """
        name = str(query.measure.column)
        groups, sums = self._split_question(query).read_sums(self._db)
        squares = self.published_marginals.amounts[name]
        if sums.classes or not sums.is_whole:
            raise UsageError(f"SUM and AVG of {name} are of listed values and whole bins; no part of a bin is added up")
        if not squares.is_measured(sums.columns):
            listed = ", ".join(repr(self._manifest.sensitive[i].name) for i in sums.columns)
            raise UsageError(
                f"SUM and AVG of {name} are measured by single columns and by the workload; ask by one column, or "
                f"publish with [{listed}] in mechanism.workload"
            )
        none = [is_null(column(name)), *(one.is_met for one in self.unlisted if one.field.name == name)]
        known = {**query.filters, "sa": [*query.filters["sa"], *map(exp.not_, none)]}
        counted = replace(query, measure=Measure(), filters=known)
        keys, counts = self._split_question(counted).read_sums(self._db)
        numbers = dict(zip(keys, zip(*self.sum_estimator.estimate_sums(counts), strict=True), strict=True))
        amounts = zip(sums.sum_table(squares.estimate_table(sums.columns)), squares.sum_variances(sums), strict=True)
        ends = [float(edge) for edge in self._params.bin_edges(name)]
        scale, result = (ends[-1] - ends[0]) / UNITS, []
        for group, (amount, variance) in zip(groups, amounts, strict=True):
            excess = Uncertain(max(amount, 0.0) * scale, variance * scale**2)
            number = Uncertain(*numbers.get(group, (0.0, 0.0)))
            make = estimate_sum if query.measure.kind == "sum" else estimate_mean
            result.append(make(group, excess, number, (ends[0], ends[-1]), confidence))
        return result

    def comparison_columns(self, conditions: Sequence[exp.Expr]) -> tuple[str, ...]:
        """Errors of different tables are drawn and bounded in ways of their own."""
        places = frozenset().union(*map(self.known_columns.column_places, conditions))
        return tuple(sorted(self.known_columns.fields[place].name for place in places))

    def make_synthetic(self) -> pa.Table:
        """The release's synthetic rows, each as often as it weighs."""
        rows = self._db.arrow(all_rows(table(ROWS, self._database)))
        weight = self._roles.by_sa.column_name("weight")
        whose = np.repeat(np.arange(len(rows)), round_copies(rows[weight].to_numpy()))
        return rows.drop_columns(weight).take(pa.array(whose))

    def _estimate_sums(self, sums: CellSums, estimator: str) -> tuple[Reals, Reals]:
        """Sums and the variances of their errors, which are infinite where least squares do not tell them."""
        if estimator != "baseline":
            return self.sum_estimator.estimate_sums(sums)
        squares = self.sum_estimator.model.squares
        if sums.classes or np.prod([self.known_columns.sizes[i] for i in sums.columns]) > CELLS:
            raise UsageError("the baseline is not available for so many values; use fewer columns")
        return sums.sum_table(squares.estimate_table(sums.columns)), squares.sum_variances(sums)


@dataclass(frozen=True)
class Uncertain:
    """A figure and the variance of its error."""

    mean: float
    variance: float


def estimate_sum(
    group: tuple[Any, ...], excess: Uncertain, number: Uncertain, ends: tuple[float, float], confidence: float
) -> Estimate:
    """A sum of ``number`` values, whose ``excess`` over the first of the ``ends`` is known; normal errors."""
    low, high = ends
    value = low * number.mean + excess.mean
    error = math.sqrt(excess.variance + low**2 * number.variance)
    reach = float(student_quantile((1 - confidence) / 2, np.inf)) * error
    least, most = (0.0 if low >= 0 else -np.inf), (0.0 if high <= 0 else np.inf)
    return Estimate(group, min(value, most), error, max(value - reach, least), min(value + reach, most))


def estimate_mean(
    group: tuple[Any, ...], excess: Uncertain, number: Uncertain, ends: tuple[float, float], confidence: float
) -> Estimate:
    """A mean by the delta method; where there may be no value, anything between the ``ends``, say their middle."""
    low, high = ends
    quantile = float(student_quantile((1 - confidence) / 2, np.inf))
    if number.mean - quantile * math.sqrt(number.variance) < 1:
        return Estimate(group, (low + high) / 2, None, low, high)
    mean = min(low + excess.mean / number.mean, high)
    error = math.sqrt(excess.variance + (mean - low) ** 2 * number.variance) / number.mean
    return Estimate(group, mean, error, max(mean - quantile * error, low), min(mean + quantile * error, high))


def _make_estimates(
    groups: Sequence[tuple[Any, ...]], values: Reals, variances: Reals, confidence: float, degrees: float
) -> list[Estimate]:
    """Estimates of groups with their intervals; without one where the variance is infinite."""
    errors = np.sqrt(np.where(np.isfinite(variances), variances, 0.0))
    low, high = count_intervals(values, errors, confidence, degrees)
    columns = values, errors, np.minimum(low, values), np.maximum(high, np.maximum(values, 0.0)), np.isfinite(variances)
    return [
        Estimate(group, value, *figures) if known else Estimate(group, value, None, None, None)
        for group, value, *figures, known in zip(groups, *(one.tolist() for one in columns), strict=True)
    ]
