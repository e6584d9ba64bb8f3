"""Decide by a public rule which marginals are counted, and with which budget."""

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
# The tables and their budgets follow from the parameters, the domains and the noisy number of records.
#
# A hundredth of the budget counts all records. The single columns take the share 3 sqrt(u), but at least 1/8 and at
# most 2/3. Here u is the noise of their tables, as a share of the records, if they had all of the budget. If a workload
# is declared, it takes 7/10 of the rest. The pairs of columns take what remains. Tables share in proportion to the
# square root of their numbers of cells.
#
# With more noise, fewer tables are worth their budget: about k = 3/2 d / sqrt(ratio) pairs of d columns. Here ratio is
# the noise in a pair's table, on average, as a share of the noisy total, if all pairs were counted. If k is less than
# 4/5 of the pairs, or if all pairs together have too many cells, only some tables are counted. They are chosen in
# rounds. Each round chooses the pair or triple that the tables so far predict worst, among those that it can pay for.
# The candidate triples are those with the fewest cells: at most as many as pairs, and none larger than the largest
# pair.
#
# The unit is the budget that would pay for k pairs, divided by k. Each choice spends a part of it. A pair and its
# choice cost the square root of its cells, relative to that of the median pair, but between 1/2 and 5/4 of a unit. A
# triple costs half as much again, and the last table takes all that is left.
#
# We tried rounds as in AIM on census tables and synthetic ones of 4 to 60 columns: their unit begins small, and doubles
# where a table moved the model less than its noise. Errors were 10 to 40 % larger, because the budget of small units is
# lost under pure noise.
#
# If sums are measured, they take a fifth of the budget first, in equal parts for the measured columns. Each measured
# column is summed over all records, by every column, and by the workload. These tables share as those of counts do.

TOTAL, WORKLOAD = Fraction(1, 100), Fraction(7, 10)
SINGLES = Fraction(1, 8), Fraction(2, 3)  # least and largest share of the budget for single columns
STEEP, ROUNDS, NEARLY_ALL = Fraction(3), Fraction(3, 2), Fraction(4, 5)
CHOOSING = Fraction(1, 8), Fraction(1, 20)  # share of a unit that a choice spends, in epsilon and in rho
PRICES, TRIPLE = (
    (Fraction(1, 2), Fraction(5, 4)),
    Fraction(3, 2),
)  # least and largest price of a pair in units; factor for triples
AMONG = 60  # triples are searched among so many columns with the fewest values
DIGITS = 10**4  # roots are rounded down to multiples of 1/DIGITS
SUMMED = Fraction(1, 5)  # share of the budget for sums, if columns are measured
Due = tuple["Clique", Fraction, Fraction | None]  # columns, budget of their counts, budget of choosing them


@dataclass(frozen=True)
class Rounds:
    """The rounds in which tables are chosen one by one, until the budget does not pay for another one.

    A candidate is a table over two or three columns, named by their positions. Its price is the budget for choosing it
    by a private choice (of the best noisy score) and for counting it.

    Attributes:
        cells: The number of cells of each candidate.
        room: The most cells that all chosen tables may have together.
        left: The budget of all rounds.
        unit: The price of the candidate pair with the median number of cells; other prices are multiples of it.
        choosing: The share of ``unit`` that each choice spends.
    """

    cells: Mapping[Clique, int]
    room: int
    left: Fraction
    unit: Fraction
    choosing: Fraction

    @property
    def choice(self) -> Fraction:
        """Return the budget that one choice among the candidates spends."""
        return self.unit * self.choosing

    @cached_property
    def prices(self) -> Mapping[Clique, Fraction]:
        """Return by candidate the budget for choosing and counting it; the last chosen table may get more."""
        weights = {one: budget_weight(cells) for one, cells in self.cells.items()}
        pairs = sorted(weight for one, weight in weights.items() if len(one) == 2)
        median, (least, most) = pairs[len(pairs) // 2], PRICES
        units = {one: min(max(Fraction(weight, median), least), most) for one, weight in weights.items()}
        return {one: self.unit * number * (TRIPLE if len(one) > 2 else 1) for one, number in units.items()}

    def affordable_tables(self, chosen: Sequence[Clique]) -> list[Clique]:
        """Return the candidates that the budget and the number of cells still allow after the tables ``chosen``."""
        left = self.left - sum((self.prices[one] for one in chosen), start=Fraction(0))
        room = self.room - sum(self.cells[one] for one in chosen)
        others = self.cells.keys() - set(chosen)
        return [one for one in self.cells if one in others and self.cells[one] <= room and self.prices[one] <= left]

    def due_tables(self, chosen: Sequence[Clique]) -> list[Due]:
        """Return for each chosen table its columns, the budget of its counts, and the budget of choosing it.

        If no other table can be afforded after them, the last one gets all that is left.

        Raises:
            ValueError: A table is no candidate, was chosen twice, or was not affordable when it was chosen.
        """
        if any(one not in self.affordable_tables(chosen[:k]) for k, one in enumerate(chosen)):
            raise ValueError("a table is unknown, was chosen twice, or costs more than was left")
        prices = [self.prices[one] for one in chosen]
        if prices and not self.affordable_tables(chosen):
            prices[-1] += self.left - sum(prices)
        return [(one, price - self.choice, self.choice) for one, price in zip(chosen, prices, strict=True)]


@dataclass(frozen=True)
class Rule:
    """The public rule that decides which tables are counted, and with which budget.

    It depends on the parameters, the domains and published noisy counts only. A table is named by the positions of its
    columns, ascending (a clique).

    Attributes:
        params: The parameters of the specification.
        names: The names of the columns.
        sizes: The number of values or bins of every column.
        advice: A text for error messages that proposes a coarser domain; it may be empty.
        nested: The columns whose values determine those of another column.
    """

    params: Contingency
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    advice: str = ""
    nested: tuple[Nested, ...] = ()

    @cached_property
    def law(self) -> NoiseLaw:
        """Return the law of the noise: Laplace or Gaussian."""
        return find_law(self.params)

    @property
    def counts_budget(self) -> Fraction:
        """Return the budget of noisy counts and of private choices of tables: all but the share of noisy sums."""
        return total_budget(self.params) * (1 - SUMMED if self.params.measures else 1)

    def due_sums(self) -> list[tuple[int, Clique, Fraction]]:
        """Return the tables of noisy sums that a release must have.

        Each is given by the position of the column that is added up, the positions of the columns that form its cells,
        and the budget.
        """
        cliques = [(), *self.single_columns, *self.workload_cliques]
        measured = [place for place, name in enumerate(self.names) if self.params.is_measured(name)]
        each = self._share_budget(total_budget(self.params) * SUMMED / max(1, len(measured)), cliques)
        return [(place, clique, spent) for place in measured for clique, spent, _ in each]

    def _share_budget(self, total: Fraction, cliques: Sequence[Clique]) -> list[Due]:
        """Divide a budget among tables in proportion to the square roots of their numbers of cells."""
        parts = divide_budget(total, [budget_weight(self.count_cells(one)) for one in cliques])
        return [(clique, spent, None) for clique, spent in zip(cliques, parts, strict=True)]

    @property
    def single_columns(self) -> list[Clique]:
        """Return the single columns as sets of one position each, (0,), (1,), .., by which their tables are named."""
        return [(i,) for i in range(len(self.sizes))]

    @cached_property
    def workload_cliques(self) -> list[Clique]:
        """Return the sets of columns that the workload names, as sorted positions and without repetition."""
        places = {fold_name(name): place for place, name in enumerate(self.names)}
        return sorted({tuple(sorted(places[fold_name(name)] for name in one)) for one in self.params.workload})

    @cached_property
    def candidate_pairs(self) -> list[Clique]:
        """Return the pairs of columns whose tables may be counted.

        Pairs that the workload names are left out, because their tables are counted anyway. So are pairs in which one
        column determines the other.
        """
        known = {*self.workload_cliques, *(one.pair for one in self.nested)}
        return [one for one in combinations(range(len(self.sizes)), 2) if one not in known]

    @property
    def candidate_triples(self) -> list[Clique]:
        """Return the sets of three columns whose tables may be chosen, those with the fewest cells first.

        There are at most as many of them as candidate pairs, and none has more cells than the largest pair. Sets that
        the workload names are left out, and sets in which one column determines another.
        """
        small = sorted(sorted(range(len(self.sizes)), key=lambda i: (self.sizes[i], i))[:AMONG])
        most = max(map(self.count_cells, self.candidate_pairs), default=0)
        pairs = [set(one.pair) for one in self.nested]
        threes = [one for one in combinations(small, 3) if not any(pair <= set(one) for pair in pairs)]
        cells: dict[Clique, int] = {one: self.count_cells(one) for one in threes}
        fitting = [one for one, number in cells.items() if number <= most and one not in self.workload_cliques]
        return sorted(fitting, key=lambda one: (cells[one], one))[: len(self.candidate_pairs)]

    def count_cells(self, clique: Clique) -> int:
        """Return the number of cells of the table over a set of columns."""
        return prod(self.sizes[i] for i in clique)

    def first_table(self) -> list[Due]:
        """Return the table that is counted first, with its budget: the number of all records.

        The list is empty for a release of a single column, whose own table gives that number.
        """
        return [((), TOTAL * self.counts_budget, None)] if len(self.sizes) > 1 else []

    def fixed_tables(self, records: Fraction) -> list[Due]:
        """Return the tables that every release has, whatever its data: each single column, and the workload's.

        The number of all records, which is counted before them, is not among them (see ``first_table``).

        Args:
            records: The noisy number of records, on which the share of the budget for single columns depends; 1 if it
                is not known.

        Returns:
            The columns of each table, with its budget.

        Raises:
            UsageError: These tables have more than ``max_cells`` cells.
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
        """Return the pairs of columns to be counted, or the rounds in which pairs and triples are chosen.

        All pairs are counted, each with a budget, if their noise is small enough and they do not have too many cells.
        Else rounds choose some of them, and of the triples.

        Args:
            fixed: The noisy tables that were counted before: of all records, single columns and the workload.

        Raises:
            UsageError: Every pair has more cells than ``max_cells`` leaves for a table.
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
        most = max(1, room // sorted(cells)[len(cells) // 2])  # tables for which half of the pairs are small enough
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
        """Return the sum of absolute noise in a single column's table, in records, on average over the columns.

        Before any record is read, it tells whether the source has enough records for the budget. The more records there
        are, the smaller is the share of the budget for single columns, and the larger their noise. As the number is not
        known here, the share for one record is assumed, so the result is the least noise.
        """
        return self.mean_noise((clique, spent) for clique, spent, _ in self.fixed_tables(Fraction(1)))

    def mean_noise(self, spent: Iterable[tuple[Clique, Fraction]]) -> Fraction:
        """Return the sum of absolute noise in a single column's table, in records, on average over the columns.

        Args:
            spent: The columns and the budget of each table; tables over several columns are ignored.
        """
        parts = [self.count_cells(clique) * self.law.mean_noise(one) for clique, one in spent if len(clique) == 1]
        return sum(parts, start=Fraction(0)) / len(parts)

    def noisy_total(self, fixed: Sequence[NoisyTable]) -> Fraction:
        """Return the noisy number of records, at least 1: the mean of the sums of all single-column tables.

        Args:
            fixed: The noisy tables that were counted so far.
        """
        sums = [int(one.counts.sum()) for one in fixed if len(one.columns) == 1]
        return max(Fraction(sum(sums), len(sums)), Fraction(1))

    def due_tables(self, tables: Sequence[NoisyTable]) -> list[Due]:
        """Return the tables that the rule requires of a release, in order, with their budgets.

        Args:
            tables: The noisy tables that the release holds. Only the choices and the noisy total are taken from them.

        Raises:
            ValueError: The release can't have chosen its tables in this way, or it stopped choosing too early.
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
    """Return the noisy number of all records, which the first table counts.

    The result is 1 if there is no such table: a release of a single column has none.
    """
    return Fraction(int(tables[0].counts.sum())) if tables and not tables[0].columns else Fraction(1)


def count_rounds(columns: int, ratio: Fraction) -> int:
    """Return how many pairs of columns are worth their budget: 3/2 ``columns`` / sqrt(``ratio``), at least one.

    Args:
        columns: The number of columns.
        ratio: The sum of absolute noise in a pair's table, as a share of the records: the average over all pairs, if
            all of them were counted.
    """
    return max(1, floor(ROUNDS * columns * square_root(1 / ratio)))


def square_root(number: Fraction) -> Fraction:
    """Return a square root, rounded down to a multiple of 1/10,000 so that all machines compute the same."""
    return Fraction(isqrt(floor(number * DIGITS**2)), DIGITS)


def plan_marginals(db: Relations, source: Records, params: Contingency) -> MarginalPlan:
    """Plan tables, cells and budgets from the specification and its domains; no record is read."""
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
    """Return the rule that decides which tables a specification counts, and with which budget.

    For error messages, it holds a proposal of coarser values for the column that has most of them.
    """
    largest = max(columns, key=len)
    line = propose_coarser(largest, params.domain(largest.field.name))
    advice = f" (such as {line} in [mechanism.domains])" if line else ""
    names = tuple(one.field.name for one in columns)
    return Rule(params, names, tuple(map(len, columns)), advice, nest_columns(columns))
