"""Questions at random about real tables: beside a sensitive column, of categories alone, and of item sets.

Tables with a sensitive column: ``single`` (1 to 3 columns and the sensitive one take one value each), ``several`` (each
one of several), ``ranges`` (BETWEEN on both sides), ``by columns`` (GROUP BY one or two quasi-identifiers, one
sensitive value or range), ``by values`` (GROUP BY the sensitive column, or bands of it), ``sum`` and ``avg`` of a
quasi-identifier and ``share`` (100.0 * COUNT(*) FILTER (..) / COUNT(*), by a column). Of categories the same without
the sensitive column, its sums and means. Of item sets, all of whose items are those of random records: ``item``,
``several`` (two to four), ``any`` of them, some and ``not`` another, the ``length`` of a set, and ``share``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SUMMED = "age"
LEAST = 200  # records that a condition selects at least
ORDERED = ("age", "education")  # columns of which a range makes sense


@dataclass(frozen=True)
class Question:
    """A query; ``records``: an aggregate function that counts those behind its figure."""

    kind: str
    groups: str
    figure: str
    where: str
    records: str = "COUNT(*)"

    def sql(self, *more: str) -> str:
        """As SQL; ``more`` is selected besides."""
        groups = [self.groups] if self.groups else []
        last = f" GROUP BY {self.groups}" if groups else ""
        return f"SELECT {', '.join([*groups, f'{self.figure} AS x', *more])} FROM r WHERE {self.where}{last}"


class Asker(Protocol):
    """What asks."""

    kinds: ClassVar[tuple[str, ...]]

    def question(self, kind: str) -> Question:
        """One of a kind."""


def share(group: str, where: str, asked: str) -> Question:
    """How many percent of some records meet a condition."""
    count = f"COUNT(*) FILTER (WHERE {asked})"
    return Question("share", group, f"100.0 * {count} / COUNT(*)", where, count)


class BesideSensitive:
    """Of ``columns`` (n,) each, and the ``sensitive`` one (n,), all whole numbers."""

    kinds = ("single", "several", "ranges", "by columns", "by values", "sum", "avg", "share")

    def __init__(self, seed: int, columns: dict[str, Ints], sensitive: Ints) -> None:
        self._rng, self._columns, self._sensitive = np.random.default_rng(seed), columns, sensitive
        self._sorted = np.sort(sensitive)
        self._many = len(np.unique(sensitive)) > 1000
        self._names = list(columns)

    def question(self, kind: str) -> Question:
        """One of a kind."""
        own = self._where(spread=kind in ("several", "ranges"))
        if kind in ("single", "several", "ranges"):
            asked = {"single": self._value, "several": self._values, "ranges": self._range}[kind]()
            return Question(kind, "", "COUNT(*)", f"{own} AND {asked}")
        asked = self._range() if self._many or self._rng.random() < 0.5 else self._value()
        if kind == "by columns":
            names = [name for name in self._names if name != "birthplace"]
            chosen = self._rng.choice(names, int(self._rng.integers(1, 3)), replace=False).tolist()
            return Question(kind, ", ".join(chosen), "COUNT(*)", asked)
        if kind == "by values":
            band = int(self._rng.choice([5_000, 10_000, 20_000])) if self._many else 1
            return Question(kind, f"sensitive // {band}" if self._many else "sensitive", "COUNT(*)", own)
        if kind == "share":
            group = str(self._rng.choice([name for name in self._names if name not in ("birthplace", "age")]))
            return share(group, own, asked)
        return Question(kind, "", f"{kind.upper()}({SUMMED})", f"{own} AND {asked}")

    def _where(self, *, spread: bool) -> str:
        """Equality on 1 to 3 columns with the values of a random record, or several values, or runs of them."""
        while True:
            row = int(self._rng.integers(len(self._sensitive)))
            number = int(self._rng.integers(1, 4))
            chosen = self._rng.choice(self._names, number, replace=False).tolist()
            parts, members = [], np.ones(len(self._sensitive), dtype=bool)
            for name in chosen:
                column = self._columns[name]
                low = high = int(column[row])
                if spread:
                    low, high = sorted((low, int(column[int(self._rng.integers(len(column)))])))
                members &= (column >= low) & (column <= high)
                parts.append(f"{name} BETWEEN {low} AND {high}" if spread else f"{name} = {low}")
            if members.sum() >= LEAST:
                return " AND ".join(parts)

    def _value(self) -> str:
        return f"sensitive = {int(self._rng.choice(self._sensitive))}"

    def _values(self) -> str:
        number = int(self._rng.integers(2, 7))
        chosen = sorted({int(value) for value in self._rng.choice(self._sensitive, number)})
        return f"sensitive IN ({', '.join(map(str, chosen))})"

    def _range(self) -> str:
        part = float(np.exp(self._rng.uniform(math.log(0.01), math.log(0.5))))
        first = self._rng.uniform(0, 1 - part)
        low, high = (int(self._sorted[int(end * (len(self._sorted) - 1))]) for end in (first, first + part))
        return f"sensitive BETWEEN {low} AND {high}"


class Categories:
    """Of ``columns`` (n,) each, all whole numbers."""

    kinds = ("single", "several", "ranges", "by columns", "share")

    def __init__(self, seed: int, columns: dict[str, Ints]) -> None:
        self._rng, self._columns, self._names = np.random.default_rng(seed), columns, list(columns)
        self._records = len(next(iter(columns.values())))

    def question(self, kind: str) -> Question:
        """One of a kind."""
        if kind in ("single", "several"):
            chosen = self._chosen(self._names, 3)
            where = " AND ".join(self._one(name) if kind == "single" else self._several(name) for name in chosen)
            return Question(kind, "", "COUNT(*)", where)
        if kind == "ranges":
            chosen = [self._range(name) for name in self._chosen(ORDERED, 2)]
            others = [name for name in self._names if name not in ORDERED]
            chosen += [self._one(name) for name in self._chosen(others, 2)[: int(self._rng.integers(0, 2))]]
            return Question(kind, "", "COUNT(*)", " AND ".join(chosen))
        small = [name for name in self._names if name not in ("birthplace", "age")]
        if kind == "by columns":
            groups = self._chosen(small, 2)
            others = [name for name in self._names if name not in groups]
            return Question(kind, ", ".join(groups), "COUNT(*)", self._one(self._chosen(others, 1)[0]))
        group, among, counted = self._rng.choice(small, 3, replace=False).tolist()
        return share(group, self._one(among), self._one(counted))

    def _chosen(self, names: tuple[str, ...] | list[str], most: int) -> list[str]:
        number = int(self._rng.integers(1, most + 1))
        return [str(name) for name in self._rng.choice(names, number, replace=False)]

    def _drawn(self, name: str, number: int) -> list[int]:
        column = self._columns[name]
        return sorted({int(column[int(row)]) for row in self._rng.integers(self._records, size=number)})

    def _one(self, name: str) -> str:
        return f"{name} = {self._drawn(name, 1)[0]}"

    def _several(self, name: str) -> str:
        return f"{name} IN ({', '.join(map(str, self._drawn(name, int(self._rng.integers(2, 6)))))})"

    def _range(self, name: str) -> str:
        values = self._drawn(name, 2)
        return f"{name} BETWEEN {values[0]} AND {values[-1]}"


class ItemSets:
    """Of records' sets of items, ``items`` (t,) of all of them behind each other, which ``starts`` (n + 1,)."""

    kinds = ("item", "several", "any", "not", "length", "share")

    def __init__(self, seed: int, column: str, items: Ints, starts: Ints) -> None:
        self._rng, self._column = np.random.default_rng(seed), column
        self._items, self._starts = items, starts
        self._long = [np.flatnonzero(np.diff(starts) >= size) for size in range(5)]

    def question(self, kind: str) -> Question:
        """One of a kind."""
        if kind == "item":
            return Question(kind, "", "COUNT(*)", self._all(self._of_one(1)))
        if kind == "length":
            size = int(np.diff(self._starts)[int(self._rng.integers(len(self._starts) - 1))])
            how = str(self._rng.choice(["=", ">", "<="]))
            return Question(kind, "", "COUNT(*)", f"len({self._column}) {how} {size} AND {self._all(self._of_one(1))}")
        several = self._of_one(int(self._rng.integers(2, 5)))
        if kind == "several":
            return Question(kind, "", "COUNT(*)", self._all(several))
        if kind == "any":
            listed = ", ".join(map(str, several))
            return Question(kind, "", "COUNT(*)", f"list_has_any({self._column}, [{listed}])")
        if kind == "not":
            return Question(kind, "", "COUNT(*)", f"{self._all(several[:-1])} AND NOT {self._all(several[-1:])}")
        return share("", self._all(several[:1]), self._all(several[1:]))

    def _of_one(self, size: int) -> list[int]:
        """So many items of a random record."""
        row = int(self._rng.choice(self._long[size]))
        own = self._items[self._starts[row] : self._starts[row + 1]]
        return [int(item) for item in self._rng.choice(own, size, replace=False)]

    def _all(self, items: list[int]) -> str:
        return " AND ".join(f"list_contains({self._column}, {item})" for item in items)
