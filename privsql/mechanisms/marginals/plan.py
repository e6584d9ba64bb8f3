"""Decide by a public rule which marginals are measured, and for how much."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import floor, isqrt, prod
from typing import TYPE_CHECKING

from privsql.engine.files import fold_name
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.noisy_tables import Clique, Nested, NoisyTable, budget_weight, divide_budget
from privsql.mechanisms.dp.parameters import find_law, total_budget
from privsql.mechanisms.marginals.domains import ContingencyColumn, nest_columns, propose_coarser, read_columns
from privsql.mechanisms.marginals.parameters import Contingency, MarginalPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from privsql.dp_random import NoiseLaw
    from privsql.engine.database import Relations
    from privsql.model.records import Records

# Cliques --------------------------------------------------------------------------------------------------------------
# Which tables are measured, and for how much: a public rule of what was asked for, the domains and the noisy total.
#
# A hundredth of the budget counts all records. The columns by themselves take 3 sqrt(u), between an eighth and two
# thirds, where u is what the noise of their tables would come to beside the records if they had all of it. Of the
# rest the declared workload takes 7/10, if there is one, and the pairs of columns what remains; tables share in
# proportion to the square root of their cells.
#
# The more noise there is, the fewer tables are worth their budget: about k = 3/2 d / sqrt(ratio) pairs, where ratio is
# what the noise of a pair's table would come to beside the noisy total if all pairs were measured, on average over
# them. Where k is less than 4/5 of the pairs, or these have more cells than are allowed, only some tables are measured:
# in rounds, each of which first chooses the pair or triple that the tables so far tell least of, of those that it can
# pay for. Of triples there are at most as many as of pairs to choose from, those with the fewest cells, none with more
# than the largest pair. The unit is what would pay for k pairs. A part of it is spent on each choice; a pair with its
# choice takes as many units as the square root of its cells beside that of the median pair, between a half and 5/4, a
# triple half as many again, and the last one all that is left. (Tried on census tables and made ones of 4 to 60
# columns: rounds whose unit begins small and doubles where a table moved the model less than its noise, as those of AIM
# do, had errors 10 to 40 % larger, since what a small unit measured is lost where noise is pure.)
# Where sums are measured they take a fifth of the budget first, in equal parts for the measured columns: of each the
# total, that by every column, and that by the workload, which share as tables of counts do.

TOTAL, WORKLOAD = Fraction(1, 100), Fraction(7, 10)
SINGLES = Fraction(1, 8), Fraction(2, 3)  # of the budget, at least and at most
STEEP, ROUNDS, NEARLY_ALL = Fraction(3), Fraction(3, 2), Fraction(4, 5)
CHOOSING = Fraction(1, 8), Fraction(1, 20)  # of a unit of epsilon, and of rho, whose choices are cheaper
PRICES, TRIPLE = (Fraction(1, 2), Fraction(5, 4)), Fraction(3, 2)  # of a unit, at least and at most; of three columns
AMONG = 60  # columns with the fewest values, among which triples are looked for
DIGITS = 10**4  # to which roots are rounded down
SUMMED = Fraction(1, 5)  # of the budget, where sums are measured
Due = tuple["Clique", Fraction, Fraction | None]  # columns, epsilon, what choosing them spent


@dataclass(frozen=True)
class Rounds:
    """The rounds in which tables are chosen one by one, until the budget ``left`` does not pay for another one.

    Attributes:
        cells: The number of cells of each candidate.
        room: The most cells that all chosen tables may have together.
        left: The budget of all rounds.
        unit: The price of choosing and measuring the median pair.
        choosing: The part of a unit that each choice spends.
    """

    cells: Mapping[Clique, int]
    room: int
    left: Fraction
    unit: Fraction
    choosing: Fraction

    @property
    def choice(self) -> Fraction:
        """Return the budget that each choice spends."""
        return self.unit * self.choosing

    @cached_property
    def prices(self) -> Mapping[Clique, Fraction]:
        """Return the price of choosing and measuring each candidate; the last table chosen may cost more."""
        weights = {one: budget_weight(cells) for one, cells in self.cells.items()}
        pairs = sorted(weight for one, weight in weights.items() if len(one) == 2)
        median, (least, most) = pairs[len(pairs) // 2], PRICES
        units = {one: min(max(Fraction(weight, median), least), most) for one, weight in weights.items()}
        return {one: self.unit * number * (TRIPLE if len(one) > 2 else 1) for one, number in units.items()}

    def affordable_tables(self, chosen: Sequence[Clique]) -> list[Clique]:
        """Return the candidates that may be chosen next, given those that were chosen before."""
        left = self.left - sum((self.prices[one] for one in chosen), start=Fraction(0))
        room = self.room - sum(self.cells[one] for one in chosen)
        others = self.cells.keys() - set(chosen)
        return [one for one in self.cells if one in others and self.cells[one] <= room and self.prices[one] <= left]

    def due_tables(self, chosen: Sequence[Clique]) -> list[Due]:
        """Return the budgets that the chosen tables must have spent.

        The last table takes what is left if nothing else could be paid for after it.

        Raises:
            ValueError: The tables can't have been chosen in this order.
        """
        if any(one not in self.affordable_tables(chosen[:k]) for k, one in enumerate(chosen)):
            raise ValueError("a table is unknown, was chosen twice, or costs more than was left")
        prices = [self.prices[one] for one in chosen]
        if prices and not self.affordable_tables(chosen):
            prices[-1] += self.left - sum(prices)
        return [(one, price - self.choice, self.choice) for one, price in zip(chosen, prices, strict=True)]


@dataclass(frozen=True)
class Rule:
    """The public rule that decides which tables are measured, and with which budget.

    Attributes:
        params: The parameters of the specification.
        names: The names of the columns.
        sizes: The number of values of every column.
        advice: A proposal for a coarser domain, used in error messages.
        nested: The columns that determine others.
    """

    params: Contingency
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    advice: str = ""
    nested: tuple[Nested, ...] = ()

    @cached_property
    def law(self) -> NoiseLaw:
        """Return the law of the noise."""
        return find_law(self.params)

    @property
    def counts_budget(self) -> Fraction:
        """Return the budget of all counts and choices, which is what the sums of measured columns leave."""
        return total_budget(self.params) * (1 - SUMMED if self.params.measures else 1)

    def due_sums(self) -> list[tuple[int, Clique, Fraction]]:
        """Return the tables of sums to be measured: the measured column, the columns of the table, and the budget."""
        cliques = [(), *self.single_columns, *self.workload_cliques]
        measured = [place for place, name in enumerate(self.names) if self.params.is_measured(name)]
        each = self._share_budget(total_budget(self.params) * SUMMED / max(1, len(measured)), cliques)
        return [(place, clique, spent) for place in measured for clique, spent, _ in each]

    def _share_budget(self, total: Fraction, cliques: Sequence[Clique]) -> list[Due]:
        """Divide a budget among tables in proportion to the square root of their numbers of cells."""
        parts = divide_budget(total, [budget_weight(self.count_cells(one)) for one in cliques])
        return [(clique, spent, None) for clique, spent in zip(cliques, parts, strict=True)]

    @property
    def single_columns(self) -> list[Clique]:
        """Return a clique for each single column."""
        return [(i,) for i in range(len(self.sizes))]

    @cached_property
    def workload_cliques(self) -> list[Clique]:
        """Return the sets of columns that the workload declares, sorted and without repetition."""
        places = {fold_name(name): place for place, name in enumerate(self.names)}
        return sorted({tuple(sorted(places[fold_name(name)] for name in one)) for one in self.params.workload})

    @cached_property
    def candidate_pairs(self) -> list[Clique]:
        """Return the pairs of columns that may be measured.

        Declared pairs and pairs in which one column determines the other are left out.
        """
        known = {*self.workload_cliques, *(one.pair for one in self.nested)}
        return [one for one in combinations(range(len(self.sizes)), 2) if one not in known]

    @property
    def candidate_triples(self) -> list[Clique]:
        """Return the sets of three columns that may be chosen, those with the fewest cells first.

        There are at most as many as candidate pairs, and none has more cells than the largest pair. Declared sets, and
        sets in which one column determines another, are left out.
        """
        small = sorted(sorted(range(len(self.sizes)), key=lambda i: (self.sizes[i], i))[:AMONG])
        most = max(map(self.count_cells, self.candidate_pairs), default=0)
        pairs = [set(one.pair) for one in self.nested]
        threes = [one for one in combinations(small, 3) if not any(pair <= set(one) for pair in pairs)]
        cells: dict[Clique, int] = {one: self.count_cells(one) for one in threes}
        fitting = [one for one, number in cells.items() if number <= most and one not in self.workload_cliques]
        return sorted(fitting, key=lambda one: (cells[one], one))[: len(self.candidate_pairs)]

    def count_cells(self, clique: Clique) -> int:
        """Return the number of cells of a clique's table."""
        return prod(self.sizes[i] for i in clique)

    def first_table(self) -> list[Due]:
        """Return the count of all records, which is measured first.

        The list is empty for a single column, whose own table tells the total.
        """
        return [((), TOTAL * self.counts_budget, None)] if len(self.sizes) > 1 else []

    def fixed_tables(self, records: Fraction) -> list[Due]:
        """Return the tables that are measured next in any case: every single column, and the workload.

        Args:
            records: The noisy number of records; 1 if it is not known.

        Raises:
            UsageError: These tables have more cells than are allowed.
        """
        budget, number = self.counts_budget, len(self.sizes)
        cells = sum(map(self.count_cells, [*self.single_columns, *self.workload_cliques]))
        if cells > self.params.max_cells:
            raise UsageError(
                f"the columns and the workload have {cells:,} cells, more than "
                f"mechanism.max_cells = {self.params.max_cells:,}; take fewer values or wider "
                f"bins{self.advice}, or raise it"
            )
        alone = budget
        if number > 1:
            noise = Fraction(sum(self.sizes), number) * self.law.mean_noise(budget / number)
            alone *= min(max(STEEP * square_root(noise / max(records, Fraction(1))), SINGLES[0]), SINGLES[1])
        for_workload = (budget * (1 - TOTAL) - alone) * (WORKLOAD if self.candidate_pairs else 1)
        workload = self._share_budget(for_workload, self.workload_cliques)
        return self._share_budget(alone, self.single_columns) + workload

    def remaining_tables(self, fixed: Sequence[NoisyTable]) -> list[Due] | Rounds:
        """Return the pairs to be measured, or the rounds in which some pairs and triples are chosen.

        Args:
            fixed: The tables that were measured before.

        Raises:
            UsageError: No pair is small enough for the cells that are left.
        """
        pairs = self.candidate_pairs
        if not pairs:
            return []
        left = self.counts_budget - sum((one.budget for one in fixed), start=Fraction(0))
        room = self.params.max_cells - sum(one.counts.size for one in fixed)
        cells, due = [self.count_cells(one) for one in pairs], self._share_budget(left, pairs)
        noise = sum(
            (n * self.law.mean_noise(one) for n, (_, one, _) in zip(cells, due, strict=True)), start=Fraction(0)
        )
        ratio = noise / len(pairs) / self.noisy_total(fixed)
        number = count_rounds(len(self.sizes), ratio)
        few = number < NEARLY_ALL * len(pairs)
        if sum(cells) <= room and not (self.params.pairs == "chosen" or (self.params.pairs == "auto" and few)):
            return due
        most = max(1, room // sorted(cells)[len(cells) // 2])  # that at least half of the pairs leave room for
        number = min(number, len(pairs), most)
        candidates = [*pairs, *self.candidate_triples]
        fitting = {one: self.count_cells(one) for one in candidates if self.count_cells(one) * number <= room}
        fitting_pairs = sum(len(one) == 2 for one in fitting)
        if not fitting_pairs:
            raise UsageError(
                f"no pair of columns has as few as {room // number:,} cells, as "
                f"mechanism.max_cells = {self.params.max_cells:,} leaves for each; take fewer values or wider "
                f"bins{self.advice}, or raise it"
            )
        return Rounds(fitting, room, left, left / min(number, fitting_pairs), CHOOSING[self.law.concentrated])

    @property
    def column_noise(self) -> Fraction:
        """Return the mean total noise of a single column's table in records, for the budgets planned with one record.

        It depends on public figures only. More records leave the single columns less budget, and so more noise.
        """
        return self.mean_noise((clique, spent) for clique, spent, _ in self.fixed_tables(Fraction(1)))

    def mean_noise(self, spent: Iterable[tuple[Clique, Fraction]]) -> Fraction:
        """Return the total noise of a single column's table in records, on average over the columns.

        It depends on public figures only.

        Args:
            spent: The columns and the budget of each table; tables over several columns are ignored.
        """
        parts = [self.count_cells(clique) * self.law.mean_noise(one) for clique, one in spent if len(clique) == 1]
        return sum(parts, start=Fraction(0)) / len(parts)

    def noisy_total(self, fixed: Sequence[NoisyTable]) -> Fraction:
        """Return the noisy number of records: the mean of the sums of all single-column tables, at least 1."""
        sums = [int(one.counts.sum()) for one in fixed if len(one.columns) == 1]
        return max(Fraction(sum(sums), len(sums)), Fraction(1))

    def due_tables(self, tables: Sequence[NoisyTable]) -> list[Due]:
        """Return the tables that the rule requires, given those that a release holds.

        Only the choices and the noisy total are taken from the release.

        Raises:
            ValueError: The choices are impossible, or the rounds ended too early.
        """
        first = self.first_table()
        fixed = [*first, *self.fixed_tables(counted_total(tables[: len(first)]))]
        rest = self.remaining_tables(tables[: len(fixed)])
        if not isinstance(rest, Rounds):
            return [*fixed, *rest]
        chosen = [one.columns for one in tables[len(fixed) :]]
        due = rest.due_tables(chosen)
        if rest.affordable_tables(chosen):
            raise ValueError("the rounds ended too early")
        return [*fixed, *due]


def counted_total(tables: Sequence[NoisyTable]) -> Fraction:
    """Return the noisy count of all records; 1 if it was not measured."""
    return Fraction(int(tables[0].counts.sum())) if tables and not tables[0].columns else Fraction(1)


def count_rounds(columns: int, ratio: Fraction) -> int:
    """Return the number of pairs that are worth their budget: 3/2 d / sqrt(ratio), at least one."""
    return max(1, floor(ROUNDS * columns * square_root(1 / ratio)))


def square_root(number: Fraction) -> Fraction:
    """Return the square root rounded down to a multiple of 1/10,000, so that it is the same on every machine."""
    return Fraction(isqrt(floor(number * DIGITS**2)), DIGITS)


def plan_marginals(db: Relations, source: Records, params: Contingency) -> MarginalPlan:
    """Plan the tables, cells and budgets from the specification and its domains; no record is read."""
    rule = make_rule(read_columns(db, source, params), params)
    columns = len(rule.sizes)
    fixed = rule.fixed_tables(Fraction(1))
    alone, declared = (
        sum((spent for _, spent, _ in due), start=Fraction(0)) for due in (fixed[:columns], fixed[columns:])
    )
    return MarginalPlan(
        epsilon=fraction_text(params.epsilon),
        values=sum(rule.sizes),
        columns=columns,
        workload=len(rule.workload_cliques),
        pairs=len(rule.candidate_pairs),
        cells=sum(map(rule.count_cells, [*(clique for clique, _, _ in fixed), *rule.candidate_pairs])),
        columns_budget=fraction_text(alone),
        workload_budget=fraction_text(declared),
        noise_of_columns=float(rule.column_noise),
        law="Gaussian" if rule.law.concentrated else "Laplace",
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
    )


def make_rule(columns: Sequence[ContingencyColumn], params: Contingency) -> Rule:
    """Return the rule of a specification, with the advice to coarsen the column with most values."""
    largest = max(columns, key=len)
    line = propose_coarser(largest, params.domain(largest.field.name))
    advice = f" (such as {line} in [mechanism.domains])" if line else ""
    names = tuple(one.field.name for one in columns)
    return Rule(params, names, tuple(map(len, columns)), advice, nest_columns(columns))
