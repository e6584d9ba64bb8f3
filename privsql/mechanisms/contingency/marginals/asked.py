"""What a question asks of the published tables: the cells of some columns that meet it, by group.

Conditions on one column alone are asked of its values; what columns have together (a condition over several, groups)
is asked of their values side by side, by the engine. A value of a bin stands for its share of the bin's records.
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
from privsql.mechanisms.contingency.marginals.tables import DOMAINS
from privsql.mechanisms.noisytables.figures import Sums
from privsql.model.estimate import same_nan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.engine.roles import Field
    from privsql.mechanisms.noisytables.measured import Clique, Ints, Reals

TOGETHER = 3_000_000  # values side by side that the engine looks at
CELLS, CLASSED = 200_000, 40_000  # of a table; beyond, values that nothing tells apart are taken together, to so many
MOST = 10_000_000  # cells of any table
NINE = 9  # digits of a share: ten tenths are one
LITTLE = 10.0**-NINE  # the share of a bin of which nothing is seen to meet a condition, though something may


@dataclass(frozen=True)
class Known:
    """The columns of a release: ``fields``, how many values each has (``sizes``) and how many stand for these
    (``points``), and which are in bins whose values are not all there (``coarse``).
    """

    fields: tuple[Field, ...]
    sizes: tuple[int, ...]
    points: tuple[int, ...]
    coarse: frozenset[int]

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
        rows = db.rows(self.statement()) or self._unseen()
        keys: dict[tuple[Any, ...], int] = {} if self.groups else {(): 0}
        group = [keys.setdefault(tuple(same_nan(one) for one in row[wide:-1]), len(keys)) for row in rows]
        codes = {place: np.array([row[k] for row in rows], dtype=np.int64) for k, place in enumerate(self.together)}
        weight = np.array([round(row[-1], NINE) for row in rows], dtype=np.float64)
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
            found[code] = round(met, NINE)
        return found if found.any() or place not in self.known.coarse else found + LITTLE

    def _unseen(self) -> list[tuple[int, float]]:
        """The bins of the one column that is looked at, where its condition meets no value that stands for one of them.

        Records that meet it may lie in any bin, between these values: how many is open, and not 0.
        """
        if self.groups or not self.known.coarse.issuperset(self.together) or len(self.together) > 1:
            return []
        return [(code, LITTLE) for code in range(self.known.sizes[self.together[0]])]

    def _met(self, columns: Clique, conditions: Sequence[exp.Expr], groups: Sequence[exp.Expr]) -> exp.Query:
        codes: list[exp.Expr] = [column(f"c_{place}") for place in columns]
        inside = [self.known.inside(one) for one in groups]
        share: exp.Expr = column(f"share_{columns[0]}")
        for place in columns[1:]:
            share = exp.Mul(this=share, expression=column(f"share_{place}"))
        holes: Holes = {
            "points": self._points(columns),
            "codes": codes,
            "terms": [named(one.copy(), f"g_{k}") for k, one in enumerate(inside)],
            "keys": inside,
            "share": share,
            "condition": every([self.known.inside(one) for one in conditions]),
        }
        return fill("contingency/asked", holes)

    def _points(self, columns: Clique) -> exp.Expr:
        """The values of some columns side by side."""
        parts = [self._values(place).subquery(f"p_{place}") for place in columns]
        whole = exp.select(exp.Star()).from_(parts[0])
        for part in parts[1:]:
            whole = whole.join(part, join_type="cross")
        return whole.subquery("points")

    def _values(self, place: int) -> exp.Query:
        kind = exp.DataType.build(self.known.fields[place].type, dialect=DIALECT)
        columns: list[exp.Expr] = [
            named(column("code"), f"c_{place}"),
            named(exp.cast(column("value"), kind), f"s{place}"),
            named(column("share"), f"share_{place}"),
        ]
        holes: Holes = {
            "domains": table(DOMAINS, self.database),
            "columns": columns,
            "place": exp.Literal.number(place),
        }
        return fill("contingency/points", holes)


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
