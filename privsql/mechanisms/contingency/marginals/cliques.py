"""Which tables are measured, and for how much: a public rule of what was asked for, the domains and the noisy total.

An eighth of epsilon goes to the columns by themselves. Of the rest the declared workload takes 7/10, if there is one,
and the pairs of columns what remains; tables share in proportion to the square root of their cells. Where the noise of
all pairs would come to more than a quarter of the records (the mean over pairs of cells/epsilon, beside the noisy
total), or to more cells than are allowed, only some pairs are measured: in rounds, of which each spends 15/100 of its
part on choosing the pair that the tables so far tell least of, and the rest on measuring it. There are
d (1/4 / ratio)^(1/4) rounds: as many as columns where the noise just begins to be too much, fewer where it is more.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from privsql.engine.names import fold
from privsql.errors import UsageError
from privsql.mechanisms.noisytables.measured import divided, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.contingency.parameters import Contingency
    from privsql.mechanisms.noisytables.measured import Clique, Measured

SINGLES, WORKLOAD, CHOOSING = Fraction(1, 8), Fraction(7, 10), Fraction(15, 100)
NOISE = Fraction(1, 4)  # of the records, on average over the pairs: more than that, and pairs are chosen
Due = tuple["Clique", Fraction, Fraction | None]  # columns, epsilon, what choosing them spent


@dataclass(frozen=True)
class Rounds:
    """The pairs among which ``number`` are chosen, one after the other; what choosing and measuring one spends."""

    candidates: tuple[Clique, ...]
    number: int
    choosing: Fraction
    measuring: Fraction


@dataclass(frozen=True)
class Rule:
    """What a specification asks for over columns with ``sizes`` values, called ``names``."""

    asked: Contingency
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def workload(self) -> list[Clique]:
        """The declared cliques, each once, in order."""
        places = {fold(name): place for place, name in enumerate(self.names)}
        return sorted({tuple(sorted(places[fold(name)] for name in one)) for one in self.asked.workload})

    @property
    def pairs(self) -> list[Clique]:
        """All pairs of columns but the declared ones."""
        return [one for one in combinations(range(len(self.sizes)), 2) if one not in self.workload]

    def cells(self, clique: Clique) -> int:
        """Of its table."""
        return prod(self.sizes[i] for i in clique)

    def fixed(self) -> list[Due]:
        """What is measured first, whatever it tells: the columns, and the workload.

        Raises ``UsageError`` where these have more cells than are allowed.
        """
        columns: list[Clique] = [(i,) for i in range(len(self.sizes))]
        workload, epsilon = self.workload, self.asked.epsilon
        if sum(map(self.cells, [*columns, *workload])) > self.asked.max_cells:
            raise UsageError(
                f"the columns and the workload have {sum(map(self.cells, [*columns, *workload])):,} cells, more than "
                f"max_cells = {self.asked.max_cells:,}; take fewer values or wider bins, or raise it"
            )
        alone = epsilon * SINGLES if len(columns) > 1 else epsilon
        most = (epsilon - alone) * (WORKLOAD if self.pairs else 1)
        parts = divided(most, [share(self.cells(one)) for one in workload]) if workload else []
        due = [*zip(columns, divided(alone, [1] * len(columns)), strict=True), *zip(workload, parts, strict=True)]
        return [(clique, spent, None) for clique, spent in due]

    def rest(self, fixed: Sequence[Measured]) -> list[Due] | Rounds:
        """The pairs, or how some of them are chosen; ``fixed``: what ``fixed`` asked for, measured."""
        left = self.asked.epsilon - sum((one.epsilon for one in fixed), start=Fraction(0))
        if not self.pairs:
            return []
        cells = [self.cells(one) for one in self.pairs]
        due = divided(left, [share(number) for number in cells])
        room = self.asked.max_cells - sum(one.counts.size for one in fixed)
        noise = sum((number / own for number, own in zip(cells, due, strict=True)), start=Fraction(0))
        ratio = noise / len(cells) / self.total(fixed)
        chosen = self.asked.pairs == "chosen" or (self.asked.pairs == "auto" and ratio > NOISE)
        if sum(cells) <= room and not chosen:
            return [(clique, spent, None) for clique, spent in zip(self.pairs, due, strict=True)]
        return self._rounds(left, ratio, room)

    def _rounds(self, left: Fraction, ratio: Fraction, room: int) -> Rounds:
        cells = sorted(map(self.cells, self.pairs))
        most = max(1, room // cells[len(cells) // 2])  # that at least half of the pairs leave room for
        number = min(max(1, _fourth_root(len(self.sizes) ** 4 * NOISE / ratio)), len(self.pairs), most)
        fitting = tuple(one for one in self.pairs if self.cells(one) * number <= room)
        if not fitting:
            raise UsageError(
                f"no pair of columns has as few as {room // number:,} cells, as max_cells = {self.asked.max_cells:,} "
                "leaves for each; take fewer values or wider bins, or raise it"
            )
        number = min(number, len(fitting))
        return Rounds(fitting, number, left / number * CHOOSING, left / number * (1 - CHOOSING))

    @property
    def alone(self) -> Fraction:
        """What the noise of a column's own table comes to, in records, on average over the columns: public."""
        parts = [self.cells(clique) / spent for clique, spent, _ in self.fixed() if len(clique) == 1]
        return sum(parts, start=Fraction(0)) / len(parts)

    def noise(self, fixed: Sequence[Measured]) -> Fraction:
        """What the noise of the columns' own tables comes to beside the noisy total, on average over the columns."""
        parts = [one.counts.size / one.epsilon for one in fixed if len(one.columns) == 1]
        return sum(parts, start=Fraction(0)) / len(parts) / self.total(fixed)

    def total(self, fixed: Sequence[Measured]) -> Fraction:
        """The noisy number of records: the mean of what the columns sum up to, at least 1."""
        sums = [int(one.counts.sum()) for one in fixed if len(one.columns) == 1]
        return max(Fraction(sum(sums), len(sums)), Fraction(1))

    def due(self, tables: Sequence[Measured]) -> list[Due]:
        """What should have been measured: the choices are the release's, all else follows from the rule."""
        fixed = self.fixed()
        rest = self.rest(tables[: len(fixed)])
        if not isinstance(rest, Rounds):
            return [*fixed, *rest]
        chosen = [one.columns for one in tables[len(fixed) :]]
        if len(set(chosen)) < len(chosen) or not set(chosen) <= set(rest.candidates):
            raise ValueError("a pair was chosen twice, or is none")
        return [*fixed, *((one, rest.measuring, rest.choosing) for one in (chosen + [()] * rest.number)[: rest.number])]


def _fourth_root(number: Fraction) -> int:
    """The largest whole number whose fourth power is not above ``number``."""
    found = 0
    while (found + 1) ** 4 <= number:
        found += 1
    return found
