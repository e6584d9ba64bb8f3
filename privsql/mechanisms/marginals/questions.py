"""Find the cells of published tables that a question asks for."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, floor, inf, nextafter, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers.sql.cuts import FIRST, LAST, TURNED, read_constant
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Field, Holes, alias_as, all_of, column, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.dp.noisy_tables import CellSums, Clique, Ints, Reals
from privsql.mechanisms.marginals.domains import ADDED, Point, as_sql_number
from privsql.mechanisms.marginals.parameters import is_whole
from privsql.mechanisms.marginals.tables import DOMAINS
from privsql.model.bins import number_range
from privsql.model.estimates import same_nan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.sql.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.unlisted import UnlistedColumn

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
