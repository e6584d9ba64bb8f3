"""Translate a question about a contingency table into weighted sums over the cells of published tables."""

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
from privsql.mechanisms.dp.noisy_tables import CellSums, Clique, Reals
from privsql.mechanisms.marginals.domains import ADDED, Point, as_sql_number
from privsql.mechanisms.marginals.tables import DOMAINS
from privsql.model.bins import is_whole_type, number_range
from privsql.model.estimates import same_nan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.sql.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.unlisted import UnlistedColumn

# Parts ----------------------------------------------------------------------------------------------------------------
# A comparison such as ``age < 30`` cuts the bin that holds 30 into two parts, of which one meets it.
#
# For whole numbers and decimals, the share of a part is its number of values divided by that of the bin. For other
# numbers it is the part's length divided by the bin's. As many records may have exactly the number at the cut, that
# number is a part by itself, with next to no length.

LITTLE = 1e-9  # share of a bin that a single number has, or a part of unknown size
RISING = (exp.Paren, exp.Neg, exp.Floor, exp.Ceil, exp.Round)
OF_TWO = (exp.Add, exp.Sub, exp.Mul)
DIVIDED = (exp.Div, exp.IntDiv)
NUMBERS = (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE)
Cut = tuple[Fraction, bool]  # a number, and whether the cut lies behind it (else before it)


def type_step(kind: str) -> Fraction | None:
    """Return the distance between neighbouring values of a column type: 1 for INTEGER, 1/100 for DECIMAL(9, 2).

    The result is None for types such as DOUBLE, in which a third value lies between any two.
    """
    if is_whole_type(kind):
        return Fraction(1)
    return Fraction(1, 10 ** number_range(kind)[2]) if kind.startswith("DECIMAL") else None


def read_cuts(field: Field, expressions: Iterable[exp.Expr]) -> tuple[set[Cut], list[exp.Expr]]:
    """Find where a question's conditions divide the values of a column of numbers, and how else it uses the column.

    Args:
        field: The name and type of the column.
        expressions: The SQL conditions and groups of a question.

    Returns:
        The cuts: numbers before or behind which a comparison divides the column, such as before 30 for ``age < 30``.
        Then, for every other use of the column, the largest expression around it that rises or falls with it
        everywhere, such as ``age // 10``.
    """
    cuts: set[Cut] = set()
    others: list[exp.Expr] = []
    for root in expressions:
        for node in root.find_all(exp.Column):
            if fold_name(node.name) == fold_name(field.name):
                found = _comparison_cuts(node, field.type)
                if found is None:
                    others.append(_enclosing_monotone(node))
                cuts |= found or set()
    return cuts, others


def _comparison_cuts(node: exp.Expr, kind: str) -> set[Cut] | None:
    """Return before or behind which numbers the comparison of a column divides its values: before 30 for ``age < 30``.

    The result is empty for a test for NULL, and None if the column is not compared with constants.

    Args:
        node: The node of the SQL expression that names the column.
        kind: The type of the column.
    """
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    around = node.parent
    if isinstance(around, exp.Is) and isinstance(around.expression, exp.Null):
        return set()
    if isinstance(around, exp.Between) and around.this is node:
        ends = [(read_constant(around.args[name], kind), last) for name, last in (("low", False), ("high", True))]
    elif isinstance(around, (*FIRST, *LAST)):
        turned = around.expression is node
        compared = TURNED[type(around)] if turned else type(around)
        ends = [(read_constant(around.this if turned else around.expression, kind), compared in LAST)]
    else:
        return None
    return None if any(end is None for end, _ in ends) else {(Fraction(str(end)), last) for end, last in ends}


def _enclosing_monotone(node: exp.Expr) -> exp.Expr:
    """Return the largest expression around a column that only rises or only falls with it, such as ``age // 10``.

    If such an expression is equal at both ends of a bin, all records of the bin have that result.

    Args:
        node: The column, as a node of the SQL expression.
    """
    while (around := node.parent) is not None:
        if any(child.find(exp.Column) for child in around.iter_expressions() if child is not node):
            break
        if isinstance(around, exp.Cast):
            if around.to.this not in NUMBERS:
                break
        elif not (isinstance(around, (*RISING, *OF_TWO)) or (isinstance(around, DIVIDED) and around.this is node)):
            break
        node = around
    return node


def cut_bins(kind: str, edges: Sequence[Fraction], cuts: Iterable[Cut]) -> list[Point]:
    """Divide each bin that a question cuts into parts; return for each part one of its values and its share of the bin.

    For types such as DOUBLE, the number at a cut is a part by itself, with next to no share (``LITTLE``).

    Args:
        kind: The type of the column.
        edges: The edges of the column's bins.
        cuts: The cuts that ``read_cuts`` found; those outside of the bins are ignored.
    """
    by_code: dict[int, set[Cut]] = {}
    for cut in cuts:
        code = bisect_right(edges, cut[0]) - 1
        if 0 <= code < len(edges) - 1:
            by_code.setdefault(code, set()).add(cut)
    step, result = type_step(kind), list[Point]()
    for code, inside in sorted(by_code.items()):
        low, high = edges[code], edges[code + 1]
        if step is None:  # shares by length, for the middle of each part and for the numbers at the cuts
            numbers = sorted({value for value, last in inside if value > low or last})
            rest = 1 - LITTLE * len(numbers)
            parts = [
                (repr(float((one + other) / 2)), rest * float((other - one) / (high - low)))
                for one, other in pairwise(sorted({low, *numbers, high}))
            ]
            parts += [(repr(float(value)), LITTLE) for value in numbers]
        else:  # shares by the number of values, for the first value of each part
            first, end = ceil(low / step), ceil(high / step)
            places = {floor(value / step) + 1 if last else ceil(value / step) for value, last in inside}
            bounds = [first, *sorted(place for place in places if first < place < end), end]
            parts = [
                (as_sql_number(one * step), float(Fraction(other - one, end - first)))
                for one, other in pairwise(bounds)
            ]
        result += [Point(code, value, share) for value, share in parts] if len(parts) > 1 else []
    return result


def ends_of(kind: str, edges: Sequence[Fraction]) -> list[Point]:
    """Return the first and the last value of every bin, to test whether an expression is constant within it.

    A monotone expression is constant if it is equal at both. Each value is a point (a value that stands for a share of
    its bin's records). The share is next to 0 (``LITTLE``), as a single number is a small part of a bin.

    Args:
        kind: The type of the column.
        edges: The edges of the column's bins.
    """
    step, result = type_step(kind), list[Point]()
    for code, (low, high) in enumerate(pairwise(edges)):
        if step is not None:
            first, last = (as_sql_number(place * step) for place in (ceil(low / step), ceil(high / step) - 1))
        else:
            before = np.nextafter(np.float32(high), np.float32(-inf)) if kind == "FLOAT" else nextafter(high, -inf)
            first, last = as_sql_number(low), repr(float(before))
        result += [Point(code, first, LITTLE), Point(code, last, LITTLE)]
    return result


# Questions ------------------------------------------------------------------------------------------------------------
# A question becomes sums over the cells that meet it, one for each group.
#
# A condition on one column is evaluated for each of its values. A condition over several columns, and groups, are
# evaluated by the engine for all combinations of their values. Each published value of a bin stands for a share of the
# bin's records. A bin that is cut is replaced by its parts (``cut_bins``).

TOGETHER = 3_000_000  # combinations of values that the engine evaluates
CELLS, CLASSED = 200_000, 40_000  # a table of more than CELLS cells is merged to about CLASSED
MOST = 10_000_000  # most cells of any table
TINY = 1e-11  # rounding error of a share: ten tenths may add up to 0.99..9


@dataclass(frozen=True)
class KnownColumns:
    """What a question's translation into sums over cells needs to know of the columns; each is named by its position.

    Attributes:
        fields: The name and type of every column.
        sizes: The number of values or bins of every column, including the ones for unlisted values and for NULL.
        points: The number of published values of every column; a bin has several.
        edges: By column, the edges of its bins. Only columns whose bins hold more values than are published are here.
        unlisted: By column, the value that stands in for unlisted ones in questions, and whether some records have
            unlisted values. Columns that list all values of their type are missing.
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
        """Return the positions of the columns that an expression names."""
        return frozenset(self._places[fold_name(one.name)] for one in expression.find_all(exp.Column))

    def with_internal_names(self, expression: exp.Expr) -> exp.Expr:
        """Return a copy of a SQL expression with columns named s0, s1, .. by position, as in the release's tables."""
        return expression.copy().transform(
            lambda node: column(f"s{self._places[fold_name(node.name)]}") if isinstance(node, exp.Column) else node
        )


@dataclass(frozen=True)
class MarginalQuestion:
    """A question about a contingency table, split so that conditions on single columns are evaluated by themselves.

    Attributes:
        known: The columns of the release.
        together: The positions of the columns that must be looked at in combination, because they are grouped by or one
            condition names several of them.
        conditions: The SQL conditions on the columns ``together``, which the engine evaluates for all combinations of
            their values.
        groups: The SQL expressions of GROUP BY, which are over the columns ``together``.
        alone: For each other column, the conditions on it.
        database: The database of the release; None for the current one.
    """

    known: KnownColumns
    together: Clique
    conditions: tuple[exp.Expr, ...]
    groups: tuple[exp.Expr, ...]
    alone: dict[int, list[exp.Expr]]
    database: str | None

    def statement(self) -> exp.Query:
        """Return the SQL that finds the combinations of values that meet the conditions on the columns ``together``."""
        return self._match_points(self.together, self.conditions, self.groups)

    def read_sums(self, db: Relations) -> tuple[list[tuple[Any, ...]], CellSums]:
        """Return the groups of the answer, and which cells of a table add up to the number of records of each group.

        One table of counts over several columns answers the whole question.

        Args:
            db: The engine in which the release is open.

        Raises:
            UsageError: The table has too many cells, or records of one bin may belong to several groups.
        """
        wide, known = len(self.together), self.known
        rows = self._read_cells(db, self.together, self.conditions, self.groups)
        keys: dict[tuple[Any, ...], int] = {} if self.groups else {(): 0}
        of_group = [keys.setdefault(tuple(same_nan(one) for one in row[wide:-1]), len(keys)) for row in rows]
        group = np.array(of_group, dtype=np.int64)
        codes = {place: np.array([row[k] for row in rows], dtype=np.int64) for k, place in enumerate(self.together)}
        weight = _round_shares(np.array([row[-1] for row in rows], dtype=np.float64))
        shares = {}
        for place in sorted(self.alone):
            share = np.zeros(known.sizes[place])
            for code, met in self._read_cells(db, (place,), self.alone[place], ()):
                share[code] = met
            shares[place] = _round_shares(share)
        columns = tuple(sorted({*self.together, *shares}))
        large = prod(known.sizes[i] for i in columns) > CELLS
        classes = merge_values({i: known.sizes[i] for i in columns}, shares) if large else {}
        shape = tuple(classes[i].shape[1] if i in classes else known.sizes[i] for i in columns)
        if prod(shape) > MOST:
            raise UsageError(f"the query covers a table of {prod(shape):,} cells; use fewer columns")
        for place, share in shares.items():
            met = np.flatnonzero(share)
            codes = {one: np.repeat(own, len(met)) for one, own in codes.items()}
            codes[place] = np.tile(met, len(group))
            weight = np.repeat(weight, len(met)) * np.tile(share[met], len(group))
            group = np.repeat(group, len(met))
        cell = np.ravel_multi_index(tuple(codes[i] for i in columns), shape) if len(group) else group
        return list(keys), CellSums(columns, cell, group, weight, len(keys), classes)

    def _read_cells(
        self, db: Relations, columns: Clique, conditions: Sequence[exp.Expr], groups: Sequence[exp.Expr]
    ) -> list[tuple[Any, ...]]:
        """Return a row for each cell of a table in which records can meet the conditions.

        A row holds the codes of the cell, its groups, and the share of its records that meet the conditions. If only
        some values of a bin may meet them, that share lies strictly between 0 and 1.

        Raises:
            UsageError: Values of one bin may belong to several groups.
        """
        rows = db.rows(self._match_points(columns, conditions, groups))
        uneven = [self._find_uneven_bins(db, place, (*conditions, *groups)) for place in columns]
        places = [place for place, bins in zip(columns, uneven, strict=True) if bins.any()]
        if not places:
            return rows
        if groups:
            name = self.known.fields[places[0]].name
            raise UsageError(f"{name} is published in bins; group by an expression that is constant in each bin")
        shape = [self.known.sizes[place] for place in columns]
        met, doubted = np.zeros(shape), np.zeros(shape, dtype=bool)
        for row in rows:
            met[row[:-1]] = row[-1]
        for axis, bins in enumerate(uneven):
            doubted |= np.expand_dims(bins, tuple(k for k in range(len(shape)) if k != axis))
        met = np.where(doubted, met.clip(LITTLE, 1 - LITTLE), met)
        return [(*map(int, cell), float(met[tuple(cell)])) for cell in np.argwhere(met > 0)]

    def _find_uneven_bins(self, db: Relations, place: int, expressions: Sequence[exp.Expr]) -> NDArray[np.bool_]:
        """Return for each bin of a column whether an expression may have several results within it (bins,).

        An expression that is monotone in the column is evaluated at the first and the last value of each bin.
        """
        result = np.zeros(self.known.sizes[place], dtype=bool)
        if place not in self.known.edges:
            return result
        field, edges = self.known.fields[place], self.known.edges[place]
        for one in read_cuts(field, expressions)[1]:
            if isinstance(one, exp.Column):
                result[: len(edges) - 1] = True
                continue
            ends = self._list_values(place, ends_of(field.type, edges)).subquery(f"p_{place}")
            values: dict[int, set[Any]] = {}
            for code, value, _ in db.rows(self._match_points((place,), (), (one,), ends)):
                values.setdefault(code, set()).add(value)
            result[[code for code, own in values.items() if len(own) > 1 and code < len(edges) - 1]] = True
        return result

    def _match_points(
        self,
        columns: Clique,
        conditions: Sequence[exp.Expr],
        groups: Sequence[exp.Expr],
        points: exp.Expr | None = None,
    ) -> exp.Query:
        """Return the SQL that finds the cells of a table that meet conditions, with the share of their records.

        Args:
            columns: The positions of the columns of the table.
            conditions: The conditions, all of which must hold. If a part of a bin meets them, the share is below 1.
            groups: The expressions of GROUP BY.
            points: The relation of combinations of values to search; None for all combinations of published values.
        """
        if points is None:
            first, *others = (self._list_values(one, self._cut_bins(one)).subquery(f"p_{one}") for one in columns)
            whole = exp.select(exp.Star()).from_(first)
            for part in others:
                whole = whole.join(part, join_type="cross")
            points = whole.subquery("points")
        share: exp.Expr = column(f"share_{columns[0]}")
        for place in columns[1:]:
            share = exp.Mul(this=share, expression=column(f"share_{place}"))
        keys = [self.known.with_internal_names(one) for one in groups]
        holes: Holes = {
            "points": points,
            "codes": [column(f"c_{place}") for place in columns],
            "terms": [alias_as(one.copy(), f"g_{k}") for k, one in enumerate(keys)],
            "keys": keys,
            "share": share,
            "condition": all_of([self.known.with_internal_names(one) for one in conditions]),
        }
        return fill("contingency/asked", holes)

    def _cut_bins(self, place: int) -> list[Point]:
        """Return the parts into which a question cuts a column's bins; none for a column without bins."""
        if place not in self.known.edges:
            return []
        field, expressions = self.known.fields[place], (*self.conditions, *self.groups, *self.alone.get(place, ()))
        return cut_bins(field.type, self.known.edges[place], read_cuts(field, expressions)[0])

    def _list_values(self, place: int, parts: Sequence[Point]) -> exp.Query:
        """Return the SQL that lists the published values of a column, on which conditions are evaluated.

        Each value comes with its code and the share of the code's records that it stands for.

        Args:
            place: The position of the column.
            parts: The parts of the bins that the question cuts; they replace the published values of these bins.
        """
        known, number = self.known, exp.Literal.number
        value: exp.Expr = exp.cast(column("value"), exp.DataType.build(known.fields[place].type, dialect=DIALECT))
        if place in known.unlisted:
            is_unlisted = column("code").eq(number(known.sizes[place] - ADDED))
            value = known.unlisted[place].name_value(value, is_unlisted)
        domains: exp.Expr = table(DOMAINS, self.database)
        if parts:
            rows = [(one.code, one.value, exp.cast(number(repr(one.share)), "DOUBLE")) for one in parts]
            cut: Holes = {
                "domains": domains,
                "parts": exp.select("*").from_(exp.values(rows, "v", ["code", "value", "share"])).subquery(),
                "place": number(place),
                "codes": [number(code) for code in sorted({one.code for one in parts})],
            }
            domains = fill("contingency/cut", cut).subquery("domains")
        named = {f"c_{place}": column("code"), f"s{place}": value, f"share_{place}": column("share")}
        columns = [alias_as(one, name) for name, one in named.items()]
        return fill("contingency/points", {"domains": domains, "columns": columns, "place": number(place)})


def _round_shares(shares: Reals) -> Reals:
    """Set shares of records that a question selects to 1 if they differ from it by rounding errors only.

    So bins that are selected as a whole are recognized as whole.
    """
    return np.where(np.abs(shares - 1) < TINY, 1.0, shares)


def merge_values(sizes: Mapping[int, int], shares: dict[int, Reals]) -> dict[int, Reals]:
    """Merge values of a column that a question treats alike, so that a large table gets fewer cells.

    Values are merged if the question selects the same share of their records, and only until the table has at most
    ``CLASSED`` cells.

    Args:
        sizes: The number of values of each of the table's columns.
        shares: By column, the share of each value's records that the question selects. For merged columns it is
            replaced by the share for each class of values.

    Returns:
        By merged column, a matrix (values, classes) that is 1 where a value is in a class.
    """
    limit = max(sizes.values())
    while limit > 2 and prod(min(size, limit) if i in shares else size for i, size in sizes.items()) > CLASSED:
        limit -= 1
    result = {}
    for place, share in shares.items():
        if len(share) <= limit:
            continue
        which, of_classes = np.zeros(len(share), dtype=np.int64), list[float]()
        for one in np.unique(share).tolist():
            members = np.flatnonzero(share == one)
            number = max(1, min(len(members), limit * len(members) // len(share)))
            which[members] = len(of_classes) + np.arange(len(members)) * number // len(members)
            of_classes += [one] * number
        result[place], shares[place] = np.eye(len(of_classes))[which], np.array(of_classes)
    return result


def refuse_joins(query: CountQuery) -> None:
    """Raise ``UsageError`` if a question joins a table of the analyst, because contingency tables can't be joined."""
    if query.lookups:
        raise UsageError("JOIN is not supported for a contingency table; name the values in WHERE")


def split_question(query: CountQuery, known: KnownColumns, database: str | None) -> MarginalQuestion:
    """Split a question into a part over several columns, and conditions on single other columns.

    The conditions on a single column are then evaluated for its values only, not for combinations of values.

    Raises:
        UsageError: The question compares a column in bins with single values, or has too many combinations of values
            (``TOGETHER``).
    """
    conditions = [*query.filters["qi"], *query.filters["sa"]]
    groups = tuple(group.expression for group in query.groups)
    for one in [*conditions, *groups]:
        for node in one.find_all(exp.Column):
            alone = node is one or isinstance(node.parent, exp.EQ | exp.NEQ | exp.In | exp.NullSafeEQ)
            if alone and known.column_places(node) & known.edges.keys():
                raise UsageError(
                    f"{node.name} is published in bins; filter or group by ranges of it, not by single values"
                )
    several = [known.column_places(one) for one in (*conditions, *groups)]
    together = frozenset().union(*map(known.column_places, groups), *(own for own in several if len(own) > 1))
    single = [own for own in several if len(own) == 1]
    together = together or (min(single, key=sorted) if single else frozenset([0]))
    if prod(known.points[i] for i in together) > TOGETHER:
        raise UsageError("the query combines too many values; use fewer columns")
    compared = frozenset().union(*(known.column_places(column(name)) for name in query.comparison_columns))
    others: dict[int, list[exp.Expr]] = {}
    for one in conditions:
        if not known.column_places(one) <= together:
            (place,) = known.column_places(one)
            others.setdefault(place, []).append(one)
    for place in compared - together:
        others.setdefault(place, [])
    inside = tuple(one for one in conditions if known.column_places(one) <= together)
    return MarginalQuestion(known, tuple(sorted(together)), inside, groups, others, database)
