"""What a question asks of the published tables: the cells of some columns that meet it, by group.

Conditions on one column alone are asked of its values; what columns have together (a condition over several, groups)
is asked of their values side by side, by the engine. A value of a bin stands for its share of the bin's records; a bin
that is cut has the parts that the question tells apart (``parts``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.names import fold
from privsql.engine.sqlfiles import DIALECT, Holes, column, every, fill, named, table
from privsql.errors import UsageError
from privsql.mechanisms.contingency.marginals.parts import LITTLE, cut_bins, ends_of, read_cuts
from privsql.mechanisms.contingency.marginals.tables import DOMAINS
from privsql.mechanisms.noisytables.figures import Sums
from privsql.model.estimate import same_nan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from privsql.answers.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.engine.roles import Field
    from privsql.mechanisms.contingency.domains import Point
    from privsql.mechanisms.noisytables.measured import Clique, Ints, Reals

TOGETHER = 3_000_000  # values side by side that the engine looks at
CELLS, CLASSED = 200_000, 40_000  # of a table; beyond, values that nothing tells apart are taken together, to so many
MOST = 10_000_000  # cells of any table
TINY = 1e-11  # of a share: ten tenths are one


@dataclass(frozen=True)
class Known:
    """The columns of a release: ``fields``, how many values each has (``sizes``) and how many stand for these
    (``points``), and the ``edges`` of those in bins whose values are not all there (``coarse``).
    """

    fields: tuple[Field, ...]
    sizes: tuple[int, ...]
    points: tuple[int, ...]
    edges: Mapping[int, tuple[Fraction, ...]]

    @property
    def coarse(self) -> frozenset[int]:
        """The columns in bins whose values are not all there."""
        return frozenset(self.edges)

    def places(self, expression: exp.Expr) -> frozenset[int]:
        """The columns that an expression names."""
        known = {fold(field.name): place for place, field in enumerate(self.fields)}
        return frozenset(known[fold(one.name)] for one in expression.find_all(exp.Column))

    def inside(self, expression: exp.Expr) -> exp.Expr:
        """The expression over s0, s1, .. in place of the columns."""
        known = {fold(field.name): f"s{place}" for place, field in enumerate(self.fields)}
        return expression.copy().transform(
            lambda node: column(known[fold(node.name)]) if isinstance(node, exp.Column) else node
        )


@dataclass(frozen=True)
class Asked:
    """A question's parts: ``together``: the columns that are looked at side by side, with their ``conditions`` and
    ``groups``; ``alone``: conditions by column, of all others.
    """

    known: Known
    together: Clique
    conditions: tuple[exp.Expr, ...]
    groups: tuple[exp.Expr, ...]
    alone: dict[int, list[exp.Expr]]
    database: str | None

    def statement(self) -> exp.Query:
        """The SQL over the columns that are looked at side by side."""
        return self._met(self.together, self.conditions, self.groups)

    def answers(self, db: Relations) -> tuple[list[tuple[Any, ...]], Sums]:
        """The groups, and the sums that are asked for."""
        wide = len(self.together)
        rows = self._doubted(db, db.rows(self.statement()))
        keys: dict[tuple[Any, ...], int] = {} if self.groups else {(): 0}
        group = [keys.setdefault(tuple(same_nan(one) for one in row[wide:-1]), len(keys)) for row in rows]
        codes = {place: np.array([row[k] for row in rows], dtype=np.int64) for k, place in enumerate(self.together)}
        weight = _rounded(np.array([row[-1] for row in rows], dtype=np.float64))
        shares = {place: self._shares(db, place) for place in sorted(self.alone)}
        return list(keys), self._sums(codes, np.array(group, dtype=np.int64), weight, shares, len(keys))

    def _sums(self, codes: dict[int, Ints], group: Ints, weight: Reals, shares: dict[int, Reals], number: int) -> Sums:
        columns = tuple(sorted({*self.together, *shares}))
        classes = self._classes(columns, shares) if prod(self.known.sizes[i] for i in columns) > CELLS else {}
        shape = tuple(classes[i].shape[1] if i in classes else self.known.sizes[i] for i in columns)
        if prod(shape) > MOST:
            raise UsageError(f"the question is about a table of {prod(shape):,} cells; ask for fewer columns at once")
        for place, share in shares.items():
            met = np.flatnonzero(share)
            codes = {one: np.repeat(own, len(met)) for one, own in codes.items()}
            codes[place] = np.tile(met, len(group))
            weight = np.repeat(weight, len(met)) * np.tile(share[met], len(group))
            group = np.repeat(group, len(met))
        cell = np.ravel_multi_index(tuple(codes[i] for i in columns), shape) if len(group) else group
        return Sums(columns, cell, group, weight, number, classes)

    def _classes(self, columns: Clique, shares: dict[int, Reals]) -> dict[int, Reals]:
        """Values that the question does not tell apart, taken together as far as a table of ``CLASSED`` cells needs it.

        A column keeps its first values that are met, and those that are not, by themselves; ``shares`` are by class
        afterwards.
        """
        sizes = {i: self.known.sizes[i] for i in columns}
        limit = max(sizes.values())
        while limit > 2 and prod(min(size, limit) if i in shares else size for i, size in sizes.items()) > CLASSED:
            limit -= 1
        found = {}
        for place, share in shares.items():
            if len(share) > limit:
                which, different = _taken_together(share, limit)
                found[place] = np.eye(len(different))[which]
                shares[place] = different
        return found

    def _shares(self, db: Relations, place: int) -> Reals:
        """How much of each value of a column meets the conditions on it alone."""
        found = np.zeros(self.known.sizes[place])
        for code, met in db.rows(self._met((place,), tuple(self.alone[place]), ())):
            found[code] = met
        if not found.any():
            found[-1] = LITTLE  # who meets it, if anybody does, has a value that no domain lists
        doubted = self._uneven(db, place, self.alone[place])
        return _rounded(np.where(doubted, found.clip(LITTLE, 1 - LITTLE), found))

    def _doubted(self, db: Relations, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The rows, where no cell that a bin's inside may change is met as a whole, or not at all.

        ``UsageError`` where it may change groups.
        """
        found = [self._uneven(db, place, (*self.conditions, *self.groups)) for place in self.together]
        if not rows and not self.groups:
            rows = [(*(self.known.sizes[place] - 1 for place in self.together), LITTLE)]
        uneven = [place for place, own in zip(self.together, found, strict=True) if own.any()]
        if not uneven:
            return rows
        if self.groups:
            name = self.known.fields[uneven[0]].name
            raise UsageError(f"{name} is published in bins; group by what every bin has one value of, or not by it")
        shape = [self.known.sizes[place] for place in self.together]
        met, doubted = np.zeros(shape), np.zeros(shape, dtype=bool)
        for row in rows:
            met[row[:-1]] = row[-1]
        for axis, own in enumerate(found):
            doubted |= np.expand_dims(own, tuple(k for k in range(len(shape)) if k != axis))
        met = np.where(doubted, met.clip(LITTLE, 1 - LITTLE), met)
        return [(*map(int, cell), float(met[tuple(cell)])) for cell in np.argwhere(met > 0)]

    def _uneven(self, db: Relations, place: int, expressions: Sequence[exp.Expr]) -> NDArray[np.bool_]:
        """The bins of a column in which arithmetic has several values, or may have (m,).

        What rises or falls with the column is looked at where a bin begins and ends.
        """
        found = np.zeros(self.known.sizes[place], dtype=bool)
        if place not in self.known.coarse:
            return found
        field, edges = self.known.fields[place], self.known.edges[place]
        for one in read_cuts(field, expressions)[1]:
            if isinstance(one, exp.Column):
                found[:-1] = True
                continue
            ends = self._values(place, ends_of(field.type, edges)).subquery(f"p_{place}")
            values: dict[int, set[Any]] = {}
            for code, value, _ in db.rows(self._among(ends, (place,), (), (one,))):
                values.setdefault(code, set()).add(value)
            found[[code for code, own in values.items() if len(own) > 1 and code < len(edges) - 1]] = True
        return found

    def _met(self, columns: Clique, conditions: Sequence[exp.Expr], groups: Sequence[exp.Expr]) -> exp.Query:
        return self._among(self._points(columns), columns, conditions, groups)

    def _among(
        self, points: exp.Expr, columns: Sequence[int], conditions: Sequence[exp.Expr], groups: Sequence[exp.Expr]
    ) -> exp.Query:
        codes: list[exp.Expr] = [column(f"c_{place}") for place in columns]
        inside = [self.known.inside(one) for one in groups]
        share: exp.Expr = column(f"share_{columns[0]}")
        for place in columns[1:]:
            share = exp.Mul(this=share, expression=column(f"share_{place}"))
        holes: Holes = {
            "points": points,
            "codes": codes,
            "terms": [named(one.copy(), f"g_{k}") for k, one in enumerate(inside)],
            "keys": inside,
            "share": share,
            "condition": every([self.known.inside(one) for one in conditions]),
        }
        return fill("contingency/asked", holes)

    def _points(self, columns: Clique) -> exp.Expr:
        """The values of some columns side by side."""
        parts = [self._values(place, self._parts(place)).subquery(f"p_{place}") for place in columns]
        whole = exp.select(exp.Star()).from_(parts[0])
        for part in parts[1:]:
            whole = whole.join(part, join_type="cross")
        return whole.subquery("points")

    def _parts(self, place: int) -> list[Point]:
        """What stands for the bins of a column that the question cuts."""
        if place not in self.known.coarse:
            return []
        field, expressions = self.known.fields[place], (*self.conditions, *self.groups, *self.alone.get(place, ()))
        return cut_bins(field.type, self.known.edges[place], read_cuts(field, expressions)[0])

    def _values(self, place: int, parts: Sequence[Point]) -> exp.Query:
        kind = exp.DataType.build(self.known.fields[place].type, dialect=DIALECT)
        columns: list[exp.Expr] = [
            named(column("code"), f"c_{place}"),
            named(exp.cast(column("value"), kind), f"s{place}"),
            named(column("share"), f"share_{place}"),
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


def _rounded(shares: Reals) -> Reals:
    """Shares that are whole but for rounding are whole."""
    return np.where(np.abs(shares - 1) < TINY, 1.0, shares)


def _taken_together(share: Reals, limit: int) -> tuple[Ints, Reals]:
    """Classes (n,) of values with equal shares, about ``limit`` of them in all, and the share of each class."""
    different = np.unique(share)
    which = np.zeros(len(share), dtype=np.int64)
    found: list[float] = []
    for one in different.tolist():
        own = np.flatnonzero(share == one)
        number = max(1, min(len(own), limit * len(own) // len(share)))
        which[own] = len(found) + np.arange(len(own)) * number // len(own)
        found += [one] * number
    return which, np.array(found)


def taken_apart(query: CountQuery, known: Known, database: str | None) -> Asked:
    """A question's parts; ``UsageError`` for what tables with bins, or of so many values, can't tell."""
    conditions = [*query.filters["qi"], *query.filters["sa"]]
    groups = tuple(group.expression for group in query.groups)
    for one in [*conditions, *groups]:
        _told_by_bins(one, known)
    several = [known.places(one) for one in (*conditions, *groups)]
    together = frozenset().union(*map(known.places, groups), *(own for own in several if len(own) > 1))
    alone = [own for own in several if len(own) == 1]
    together = together or (min(alone, key=sorted) if alone else frozenset([0]))
    if prod(known.points[i] for i in together) > TOGETHER:
        raise UsageError("the question looks at too many values side by side; ask for fewer columns at once")
    inside = tuple(one for one in conditions if known.places(one) <= together)
    others: dict[int, list[exp.Expr]] = {}
    for one in conditions:
        if not known.places(one) <= together:
            (place,) = known.places(one)
            others.setdefault(place, []).append(one)
    for place in frozenset().union(*(known.places(column(name)) for name in query.beside)) - together:
        others.setdefault(place, [])
    return Asked(known, tuple(sorted(together)), inside, groups, others, database)


def _told_by_bins(expression: exp.Expr, known: Known) -> None:
    """``UsageError`` where single values are asked for of a column that is published in bins of many."""
    for node in expression.find_all(exp.Column):
        alone = node is expression or isinstance(node.parent, exp.EQ | exp.NEQ | exp.In | exp.NullSafeEQ)
        if alone and known.places(node) & known.coarse:
            raise UsageError(f"{node.name} is published in bins; ask for a range of it, or group by one, not by value")
