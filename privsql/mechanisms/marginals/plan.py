"""Choose marginals of a table, measure them with noise, and publish weighted rows that fit them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import ceil, floor, isfinite, isqrt, prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Holes, Roles, alias_as, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.exact import as_fraction, fraction_text
from privsql.mechanisms.base import Proposal
from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.dp.mechanism import RECORD, find_law, total_budget, write_release_table
from privsql.mechanisms.dp.noisy_tables import (
    LeastSquares,
    NoisyTable,
    budget_weight,
    divide_budget,
    flat_cells,
    measure_table,
    sum_cells,
)
from privsql.mechanisms.dp.tables import CLIQUES, MARGINALS, NOISY_TABLES, read_noisy_tables
from privsql.mechanisms.marginals.domains import ADDED, UNITS, round_bins
from privsql.mechanisms.marginals.parameters import NOISE, Contingency, is_number
from privsql.model.tables import SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from privsql.dp_random import NoiseLaw, TableNoise
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Field
    from privsql.mechanisms.base import ProfiledSource
    from privsql.mechanisms.dp.noisy_tables import Clique, Ints, Reals
    from privsql.mechanisms.marginals.domains import ContingencyColumn
    from privsql.model.manifest import Manifest
    from privsql.model.records import Profile, Records

# Cliques --------------------------------------------------------------------------------------------------------------
# Which tables are measured, and for how much: a public rule of what was asked for, the domains and the noisy total.
#
# A hundredth of the budget counts all records. The columns by themselves take 3 sqrt(u), between an eighth and two
# thirds, where u is what the noise of their tables would come to beside the records if they had all of it. Of the
# rest the declared workload takes 7/10, if there is one, and the pairs of columns what remains; tables share in
# proportion to the square root of their cells. Where the noise of all pairs would come to more than a quarter of the
# records (the mean over pairs of the noise of a table, beside the noisy total), or to more cells than are allowed, only
# some tables are measured: in rounds, each of which first chooses the pair or triple that the tables so far tell least
# of, of those that it can pay for. Of triples there are at most as many as of pairs to choose from, those with the
# fewest cells, none with more than the largest pair. The unit is what would pay for 3 d sqrt(1/4 / ratio) pairs. A part
# of it is spent on each choice; a pair with its choice takes as many units as the square root of its cells beside that
# of the median pair, between a half and 5/4, a triple half as many again, and the last one all that is left. (Tried on
# census tables and made ones.)
# Where sums are measured they take a fifth of the budget first, in equal parts for the measured columns: of each the
# total, that by every column, and that by the workload, which share as tables of counts do.

TOTAL, WORKLOAD = Fraction(1, 100), Fraction(7, 10)
SINGLES = Fraction(1, 8), Fraction(2, 3)  # of the budget, at least and at most
STEEP, ROUNDS = Fraction(3), Fraction(3)
CHOOSING = Fraction(1, 8), Fraction(1, 20)  # of a unit of epsilon, and of rho, whose choices are cheaper
PRICES, TRIPLE = (Fraction(1, 2), Fraction(5, 4)), Fraction(3, 2)  # of a unit, at least and at most; of three columns
AMONG = 60  # columns with the fewest values, among which triples are looked for
WORTH = Fraction(1, 2)  # of the mean noise of a count: what a cell has to exceed to count for its pair
DIGITS = 10**4  # to which roots are rounded down
SUMMED = Fraction(1, 5)  # of the budget, where sums are measured
Due = tuple["Clique", Fraction, Fraction | None]  # columns, epsilon, what choosing them spent


@dataclass(frozen=True)
class Rounds:
    """Tables among which some are chosen, one after the other, until the budget ``left`` does not pay for another one.

    ``cells``: of each table; ``room``: how many cells all chosen ones may have; ``unit``: the price of the median pair;
    ``choosing``: the part of it that each choice spends.
    """

    cells: Mapping[Clique, int]
    room: int
    left: Fraction
    unit: Fraction
    choosing: Fraction

    @property
    def choice(self) -> Fraction:
        """Return what each choice spends."""
        return self.unit * self.choosing

    @cached_property
    def prices(self) -> Mapping[Clique, Fraction]:
        """Return the price of choosing and measuring each table, unless it is the last one."""
        weights = {one: budget_weight(cells) for one, cells in self.cells.items()}
        pairs = sorted(weight for one, weight in weights.items() if len(one) == 2)
        median, (least, most) = pairs[len(pairs) // 2], PRICES
        units = {one: min(max(Fraction(weight, median), least), most) for one, weight in weights.items()}
        return {one: self.unit * number * (TRIPLE if len(one) > 2 else 1) for one, number in units.items()}

    def affordable_tables(self, chosen: Sequence[Clique]) -> list[Clique]:
        """Return the tables that may be chosen next."""
        left = self.left - sum((self.prices[one] for one in chosen), start=Fraction(0))
        room = self.room - sum(self.cells[one] for one in chosen)
        others = self.cells.keys() - set(chosen)
        return [one for one in self.cells if one in others and self.cells[one] <= room and self.prices[one] <= left]

    def due_tables(self, chosen: Sequence[Clique]) -> list[Due]:
        """Return what the chosen tables spend; ``ValueError`` for some that could not be chosen in this order."""
        if any(one not in self.affordable_tables(chosen[:k]) for k, one in enumerate(chosen)):
            raise ValueError("a table is unknown, was chosen twice, or costs more than was left")
        prices = [self.prices[one] for one in chosen]
        if prices and not self.affordable_tables(chosen):
            prices[-1] += self.left - sum(prices)
        return [(one, price - self.choice, self.choice) for one, price in zip(chosen, prices, strict=True)]


@dataclass(frozen=True)
class Rule:
    """The rule of a specification over columns with ``sizes`` values and ``names``; ``advice``: a coarser domain."""

    params: Contingency
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    advice: str = ""

    @property
    def law(self) -> NoiseLaw:
        """The law of the noise."""
        return find_law(self.params)

    @property
    def counts_budget(self) -> Fraction:
        """Return what all counts and choices spend: all but what sums do."""
        return total_budget(self.params) * (1 - SUMMED if self.params.measures else 1)

    def due_sums(self) -> list[tuple[int, Clique, Fraction]]:
        """Return the tables of sums: the measured column, the columns of the table, and what it spends."""
        cliques: list[Clique] = [(), *((i,) for i in range(len(self.sizes))), *self.workload_cliques]
        measured = [place for place, name in enumerate(self.names) if self.params.is_measured(name)]
        each = total_budget(self.params) * SUMMED / max(1, len(measured))
        parts = divide_budget(each, [budget_weight(self.count_cells(one)) for one in cliques])
        return [(place, *one) for place in measured for one in zip(cliques, parts, strict=True)]

    @cached_property
    def workload_cliques(self) -> list[Clique]:
        """The declared cliques, each once, in order."""
        places = {fold_name(name): place for place, name in enumerate(self.names)}
        return sorted({tuple(sorted(places[fold_name(name)] for name in one)) for one in self.params.workload})

    @cached_property
    def candidate_pairs(self) -> list[Clique]:
        """All pairs of columns but the declared ones."""
        return [one for one in combinations(range(len(self.sizes)), 2) if one not in self.workload_cliques]

    @property
    def candidate_triples(self) -> list[Clique]:
        """At most as many sets of three columns as there are pairs, those with the fewest cells, but the declared ones;
        none with more cells than the largest pair.
        """
        small = sorted(sorted(range(len(self.sizes)), key=lambda i: (self.sizes[i], i))[:AMONG])
        most = max(map(self.count_cells, self.candidate_pairs), default=0)
        cells: dict[Clique, int] = {one: self.count_cells(one) for one in combinations(small, 3)}
        fitting = [one for one, number in cells.items() if number <= most and one not in self.workload_cliques]
        return sorted(fitting, key=lambda one: (cells[one], one))[: len(self.candidate_pairs)]

    def count_cells(self, clique: Clique) -> int:
        """Return the number of cells of a clique's table."""
        return prod(self.sizes[i] for i in clique)

    def first_table(self) -> list[Due]:
        """The count of all records; nothing where there is one column, whose table tells it."""
        return [((), TOTAL * self.counts_budget, None)] if len(self.sizes) > 1 else []

    def fixed_tables(self, records: Fraction) -> list[Due]:
        """Return what is measured next, whatever it tells: the columns, and the workload; ``records``: noisy.

        Raises ``UsageError`` where these have more cells than are allowed.
        """
        columns: list[Clique] = [(i,) for i in range(len(self.sizes))]
        workload, budget = self.workload_cliques, self.counts_budget
        if sum(map(self.count_cells, [*columns, *workload])) > self.params.max_cells:
            raise UsageError(
                f"the columns and the workload have {sum(map(self.count_cells, [*columns, *workload])):,} cells, "
                f"more than mechanism.max_cells = {self.params.max_cells:,}; take fewer values or wider "
                f"bins{self.advice}, or raise it"
            )
        alone = budget * self._columns_share(records) if len(columns) > 1 else budget
        most = (budget * (1 - TOTAL) - alone) * (WORKLOAD if self.candidate_pairs else 1)
        parts = divide_budget(most, [budget_weight(self.count_cells(one)) for one in workload]) if workload else []
        each = divide_budget(alone, [budget_weight(number) for number in self.sizes])
        due = [*zip(columns, each, strict=True), *zip(workload, parts, strict=True)]
        return [(clique, spent, None) for clique, spent in due]

    def _columns_share(self, records: Fraction) -> Fraction:
        """The columns' share of the budget."""
        number = len(self.sizes)
        noise = Fraction(sum(self.sizes), number) * self.law.mean_noise(self.counts_budget / number)
        return min(max(STEEP * _square_root(noise / max(records, Fraction(1))), SINGLES[0]), SINGLES[1])

    def remaining_tables(self, fixed: Sequence[NoisyTable]) -> list[Due] | Rounds:
        """The pairs, or how some tables are chosen; ``fixed``: what ``fixed`` asked for, measured."""
        left = self.counts_budget - sum((one.budget for one in fixed), start=Fraction(0))
        if not self.candidate_pairs:
            return []
        cells = [self.count_cells(one) for one in self.candidate_pairs]
        due = divide_budget(left, [budget_weight(number) for number in cells])
        room = self.params.max_cells - sum(one.counts.size for one in fixed)
        noise = sum((n * self.law.mean_noise(one) for n, one in zip(cells, due, strict=True)), start=Fraction(0))
        ratio = noise / len(cells) / self.noisy_total(fixed)
        chosen = self.params.pairs == "chosen" or (self.params.pairs == "auto" and ratio > NOISE)
        if sum(cells) <= room and not chosen:
            return [(clique, spent, None) for clique, spent in zip(self.candidate_pairs, due, strict=True)]
        return self._plan_rounds(left, ratio, room)

    def _plan_rounds(self, left: Fraction, ratio: Fraction, room: int) -> Rounds:
        cells = sorted(map(self.count_cells, self.candidate_pairs))
        most = max(1, room // cells[len(cells) // 2])  # that at least half of the pairs leave room for
        number = min(count_rounds(len(self.sizes), ratio), len(self.candidate_pairs), most)
        candidates = [*self.candidate_pairs, *self.candidate_triples]
        fitting = {one: self.count_cells(one) for one in candidates if self.count_cells(one) * number <= room}
        pairs = sum(len(one) == 2 for one in fitting)
        if not pairs:
            raise UsageError(
                f"no pair of columns has as few as {room // number:,} cells, as "
                f"mechanism.max_cells = {self.params.max_cells:,} leaves for each; take fewer values or wider "
                f"bins{self.advice}, or raise it"
            )
        return Rounds(fitting, room, left, left / min(number, pairs), CHOOSING[self.law.concentrated])

    @property
    def column_noise(self) -> Fraction:
        """Return what the noise of a column's own table comes to at least, on average over the columns: public."""
        return self.mean_noise((clique, spent) for clique, spent, _ in self.fixed_tables(Fraction(1)))

    def mean_noise(self, spent: Iterable[tuple[Clique, Fraction]]) -> Fraction:
        """Return the noise of the columns' own tables in records, on average over the columns: public."""
        parts = [self.count_cells(clique) * self.law.mean_noise(one) for clique, one in spent if len(clique) == 1]
        return sum(parts, start=Fraction(0)) / len(parts)

    def noisy_total(self, fixed: Sequence[NoisyTable]) -> Fraction:
        """The noisy number of records: the mean of what the columns sum up to, at least 1."""
        sums = [int(one.counts.sum()) for one in fixed if len(one.columns) == 1]
        return max(Fraction(sum(sums), len(sums)), Fraction(1))

    def due_tables(self, tables: Sequence[NoisyTable]) -> list[Due]:
        """Return what should have been measured: the choices are the release's, all else follows from the rule."""
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
    """The count of all records, if it was measured."""
    return Fraction(int(tables[0].counts.sum())) if tables and not tables[0].columns else Fraction(1)


def count_rounds(columns: int, ratio: Fraction) -> int:
    """Return the number of pairs that the budget of pairs is divided by: 3 d sqrt(1/4 / ratio), at least one."""
    return max(1, floor(ROUNDS * columns * _square_root(NOISE / ratio)))


def _square_root(number: Fraction) -> Fraction:
    """The square root, rounded down to whole ten-thousandths: the same on every machine."""
    return Fraction(isqrt(floor(number * DIGITS**2)), DIGITS)


# Measuring ------------------------------------------------------------------------------------------------------------
# The private part: true tables are counted here, and leave with noise.
#
# Every table of one record more or less differs in one cell by one, so noise of scale 1/e spends e, and all tables and
# choices together spend epsilon. A choice looks at how many records lie otherwise than the published tables make
# likely: the L1 distance of a true table from the model's, whose cells are rounded, so that scores are whole numbers
# and one record changes each by 1 at most, some up and some down: the choice spends twice what one between counts
# would.


def measure_marginals(codes: Ints, records: Ints, rule: Rule, noise: TableNoise) -> list[NoisyTable]:
    """All tables of a source: ``codes`` (n, d) of its different cells, ``records`` (n,) of each.

    epsilon- or (epsilon, delta)-differentially private for one record added or removed.
    """

    def count_exactly(clique: Clique) -> Ints:
        return sum_cells(codes, records, clique, rule.sizes).astype(np.int64)

    def measure(clique: Clique, spent: Fraction, choice: Fraction | None = None) -> NoisyTable:
        return measure_table(clique, count_exactly(clique), spent, noise, choice, rule.law)

    tables = [measure(*one) for one in rule.first_table()]
    tables += [measure(*one) for one in rule.fixed_tables(counted_total(tables))]
    rest = rule.remaining_tables(tables)
    if not isinstance(rest, Rounds):
        return tables + [measure(*one) for one in rest]
    counts = {clique: count_exactly(clique) for clique in rest.cells}
    chosen: list[Clique] = []
    while affordable := rest.affordable_tables(chosen):
        model = Model(tables, rule.sizes, mixed=False)
        chosen.append(_choose_worst_table(model, {one: counts[one] for one in affordable}, rest, rule.law, noise))
        tables.append(measure(*rest.due_tables(chosen)[-1]))
    return tables


def _choose_worst_table(
    model: Model, counts: dict[Clique, Ints], rounds: Rounds, law: NoiseLaw, noise: TableNoise
) -> Clique:
    """The table with most records beyond ``WORTH`` of a count's noise, beside the root of its price, chosen privately.

    A table of many cells is so worth its noise if few of them hold most records, as where a column follows from others.
    """
    cliques, scores = list(counts), []
    for one in cliques:
        far = np.abs(counts[one] - np.rint(model.fitted_table(one)).astype(np.int64))
        least = floor(WORTH * law.mean_noise(rounds.prices[one] - rounds.choice))
        part = _square_root(rounds.unit * PRICES[0] / rounds.prices[one])  # 1 at most: one record moves a score by 1
        scores.append(int(np.maximum(far - least, 0).sum()) * part.numerator // part.denominator)
    return cliques[noise.choose_best(np.array(scores, dtype=np.int64), rounds.choice, monotonic=False)]


# Sums -----------------------------------------------------------------------------------------------------------------
# Tables of sums of measured columns, and back. A record adds what its value lies above the first edge of the bins, in
# ``UNITS`` of the distance to the last edge, to one cell of each table: at most ``UNITS``, which noise is scaled by.

SUMS = "privsql_sums"


@dataclass(frozen=True)
class SummedTable:
    """The noisy sums of a measured column, at place ``measure``, by other columns: in ``UNITS``, not in records."""

    measure: int
    table: NoisyTable


def measure_sums(codes: Ints, records: Ints, units: Ints, rule: Rule, noise: TableNoise) -> list[SummedTable]:
    """All tables of sums; ``units``: (n, measured columns) of a record of each of the n different cells."""
    law, measured = replace(rule.law, moved=UNITS), list(dict.fromkeys(place for place, _, _ in rule.due_sums()))
    result = []
    for place, clique, spent in rule.due_sums():
        amounts = records * units[:, measured.index(place)]
        exact = sum_cells(codes, amounts, clique, rule.sizes).astype(np.int64)
        result.append(SummedTable(place, measure_table(clique, exact, spent, noise, law=law)))
    return result


def write_sums(db: Relations, sums: Sequence[SummedTable], names: Sequence[str]) -> None:
    """``privsql_sums``: by ``number`` the ``measure`` and the ``columns`` of a table, what it spent, its noise,
    and its ``sums``, row by row over the columns.
    """
    tables = [one.table for one in sums]
    arrays = {
        "number": pa.array(range(len(sums)), pa.int32()),
        "measure": pa.array([names[one.measure] for one in sums], pa.string()),
        "columns": pa.array([[names[i] for i in one.columns] for one in tables], pa.list_(pa.string())),
        "budget": pa.array([fraction_text(one.budget) for one in tables], pa.string()),
        "scale": pa.array([one.law.scale(one.budget) for one in tables], pa.float64()),
        "sums": pa.array([one.counts.reshape(-1).tolist() for one in tables], pa.list_(pa.int64())),
    }
    write_release_table(db, SUMS, pa.table(arrays))


def read_sums(rows: pa.Table, rule: Rule) -> list[SummedTable]:
    """The tables of sums; ``ValueError`` unless these are due, with every cell and the scale of the budget."""
    due, law, listed = rule.due_sums(), replace(rule.law, moved=UNITS), rows.to_pylist()
    stated = [(row["number"], row["measure"], row["columns"], row["budget"], row["scale"]) for row in listed]
    expected = [
        (number, rule.names[place], [rule.names[i] for i in clique], fraction_text(spent), law.scale(spent))
        for number, (place, clique, spent) in enumerate(due)
    ]
    if stated != expected:
        raise ValueError("the tables of sums are not those that are due")
    result = []
    for row, (place, clique, spent) in zip(listed, due, strict=True):
        if len(row["sums"]) != rule.count_cells(clique) or None in row["sums"]:
            raise ValueError("sums of cells are missing")
        cells = np.array(row["sums"], dtype=np.int64).reshape([rule.sizes[i] for i in clique])
        result.append(SummedTable(place, NoisyTable(clique, spent, cells, None, law)))
    return result


# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a release of marginals and its view: columns, and what the answers need of them.

DOMAINS, ROWS = "privsql_domains", "privsql_rows"


TABLES = {
    **NOISY_TABLES,
    DOMAINS: ReleaseTable(("place INTEGER", "code INTEGER", "value VARCHAR", "share DOUBLE")),
    ROWS: ReleaseTable((SENSITIVE, "weight DOUBLE")),
    SUMS: ReleaseTable(
        (
            *("number INTEGER", "measure VARCHAR", "columns VARCHAR[]", "budget VARCHAR", "scale DOUBLE"),
            "sums BIGINT[]",
        )
    ),
}


def marginal_view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are about the estimates."""
    columns: list[exp.Expr] = [column(field.name) for field in manifest.sensitive]
    weight = manifest.roles.by_sa.as_column("weight")
    return fill("contingency/synthetic", {"rows": table(ROWS), "columns": columns, "weight": weight})


def domains_table(columns: Sequence[ContingencyColumn]) -> pa.Table:
    """``privsql_domains``: the values of every column (by its ``place``), or what stands for its bins, by ``code``."""
    points = [(place, *(one.code, one.value, one.share)) for place, own in enumerate(columns) for one in own.points]
    names, types = ("place", "code", "value", "share"), (pa.int32(), pa.int32(), pa.string(), pa.float64())
    arrays = [pa.array([row[k] for row in points], kind) for k, kind in enumerate(types)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def write_rows(
    db: Relations, fields: Sequence[Field], columns: Sequence[ContingencyColumn], weighted_codes: tuple[Ints, Reals]
) -> None:
    """``privsql_rows``: rows of codes with weights, in the columns' own types; of a bin a value in its middle."""
    codes, weights = weighted_codes
    texts = {}
    for place, each_column in enumerate(columns):
        points = each_column.points
        middle = [[one.value for one in points if one.code == code] for code in range(len(each_column))]
        texts[f"s{place}"] = pa.array([each[len(each) // 2] for each in middle], pa.string()).take(
            pa.array(codes[:, place])
        )
    weighted_rows = pa.table({**texts, "weight": pa.array(weights, pa.float64())})
    roles = Roles((), tuple(fields))
    order: list[exp.Expr] = [one.this for one in roles.sa_typed("g")]
    holes: Holes = {"given": temp_table("given"), "columns": roles.sa_typed("g"), "order": order}
    query = fill("contingency/rows", {**holes, **roles.by_sa.alias_holes("weight")})
    write_release_table(db, ROWS, weighted_rows, query, title="Writing the rows")


def read_domains(rows: pa.Table, number: int) -> tuple[int, ...]:
    """How many values each column has; ``ValueError`` unless the table counts them up for ``number`` columns."""
    place, code = (rows[name].to_numpy() for name in ("place", "code"))
    if rows["share"].null_count or not len(rows):
        raise ValueError("a value is missing")
    sizes = [int(code[place == k].max(initial=-1)) + 1 for k in range(number)]
    different = {(int(p), int(c)) for p, c in zip(place, code, strict=True)}
    if min(sizes) < 1 or different != {(k, c) for k in range(number) for c in range(sizes[k])}:
        raise ValueError("the values of a column are not numbered 0, 1, ..")
    total = np.bincount(place, weights=rows["share"].to_numpy())
    if not np.allclose(total, sizes):
        raise ValueError("the shares of a value do not add up")
    return tuple(sizes)


@dataclass(frozen=True)
class PublishedMarginals:
    """A release read from its tables: its rule, domains, noisy tables and sums."""

    ORDERS: ClassVar = {
        DOMAINS: ("place", "code"), CLIQUES: ("clique",), MARGINALS: ("clique", "cell"), SUMS: ("number",)
    }  # fmt: skip
    rule: Rule
    domains: pa.Table
    tables: list[NoisyTable]
    sums: list[SummedTable]

    @staticmethod
    def read(params: Contingency, fields: Sequence[Field], rows: Mapping[str, pa.Table]) -> PublishedMarginals:
        """A release from the rows of its tables by name, each in its order; ``ValueError`` for other tables."""
        names = tuple(field.name for field in fields)
        rule = Rule(params, names, read_domains(rows[DOMAINS], len(names)))
        tables = read_noisy_tables(rows[CLIQUES], rows[MARGINALS], names, rule.sizes, rule.law)
        return PublishedMarginals(rule, rows[DOMAINS], tables, read_sums(rows[SUMS], rule))

    @cached_property
    def model(self) -> Model:
        """Fitted to the tables."""
        return Model(self.tables, self.rule.sizes)

    @cached_property
    def amounts(self) -> dict[str, LeastSquares]:
        """The least-squares estimates of all sums of each measured column, by its name."""
        by_place = {one.measure: [each.table for each in self.sums if each.measure == one.measure] for one in self.sums}
        return {self.rule.names[place]: LeastSquares(tables, self.rule.sizes) for place, tables in by_place.items()}


def codes_of(db: Relations, manifest: Manifest, rows: exp.Table, domains: exp.Table) -> Ints:
    """The codes of all ``rows``(s0..), (R, d); -1 for a value that is in no domain."""
    columns = list(zip(manifest.roles.sa_keys, manifest.sensitive, strict=True))
    texts = db.arrow(exp.select(*(_canonical_text(column(key), one.type, key) for key, one in columns)).from_(rows))
    result = np.full((len(texts), len(manifest.sensitive)), -1, dtype=np.int64)
    for place, (key, field) in enumerate(columns):
        listed = [column("code"), _canonical_text(column("value"), field.type, "value")]
        points = db.arrow(
            fill("contingency/points", {"domains": domains, "columns": listed, "place": exp.Literal.number(place)})
        )
        points = points.take(pa.array(np.arange(len(points))[::-1]))  # of two that are NULL the last one is meant
        at = pc.index_in(texts[key].combine_chunks(), value_set=points["value"].combine_chunks())
        known = np.asarray(pc.is_valid(at))
        result[known, place] = points["code"].to_numpy()[np.asarray(at.fill_null(0))[known]]
    return result


def _canonical_text(value: exp.Expr, kind: str, name: str) -> exp.Expr:
    """A value of a type as its text, whichever of its texts it was given as."""
    return alias_as(exp.cast(exp.cast(value, exp.DataType.build(kind, dialect=DIALECT)), "VARCHAR"), name)


# Proposal -------------------------------------------------------------------------------------------------------------
# What ``init`` proposes: the values that occur, and bins over the range of numbers with many.
#
# Bins are as fine as the records allow: the noise of the columns' own tables is to come to half of the records at most,
# where ``publish`` refuses what is all noise. What can't be had so is left out, the columns with most values first.

GRAINS = ((60, 20), (30, 10), (15, 5))  # different numbers from which on they are proposed in bins; about so many
ENOUGH = Fraction(1, 2)  # of the records: what the noise may come to
PUBLIC = "Better than 'data' are public lists of values: those that occur are not protected."
RANGE = "Bins with data = true span what the data holds, which is not protected: write down edges that everybody knows."
FEW = (
    "Note: for so few records, tables of so many columns and values would be noise, so bins are wide or columns left "
    "out; a larger epsilon or fewer columns leave more of them."
)


@dataclass(frozen=True)
class ProposedDomain:
    """The proposal for a column: the values that occur, or bins; and how many there are."""

    name: str
    number: int
    bins: dict[str, str] | None = None

    @property
    def as_specification(self) -> Any:
        """As a specification has it."""
        return "data" if self.bins is None else {"bins": self.bins, "data": True}


def propose_marginals(db: Relations, source: ProfiledSource) -> Proposal:
    """An epsilon of 1, the values that occur as the domains, and bins marked as the data's where these are many.

    Where the noise of the columns' tables would be too much for the records, bins are wider and columns left out.
    """
    records = source.records()
    ends = _read_ends(db, records)
    finest, *coarser = (_propose_domains(source.columns, ends, many, number) for many, number in GRAINS)
    result = next((one for one in (finest, *coarser) if _has_little_noise(one, records.records)), coarser[-1])
    remaining = _drop_until_useful(result, records.records)
    remarks = [RECORD, PUBLIC]
    remarks += [RANGE] if any(one.bins for one in remaining) else []
    gone = [one for one in result if one not in remaining]
    remarks += [f"left out: {one.name}, of {one.number} values" for one in gone]
    remarks += [FEW] if remaining != finest else []
    return Proposal(_proposed_parameters(remaining), tuple(remarks), tuple(one.name for one in gone))


def _proposed_parameters(domains: list[ProposedDomain]) -> dict[str, Any]:
    return {"kind": "contingency", "epsilon": "1", "domains": {one.name: one.as_specification for one in domains}}


def _has_little_noise(domains: list[ProposedDomain], records: int) -> bool:
    """Return whether the noise of the columns' own tables is little enough."""
    names, sizes = tuple(one.name for one in domains), tuple(one.number + ADDED for one in domains)
    return (
        Rule(Contingency.model_validate(_proposed_parameters(domains)), names, sizes).column_noise <= ENOUGH * records
    )


def _drop_until_useful(domains: list[ProposedDomain], records: int) -> list[ProposedDomain]:
    """Drop columns, those with most values first, until noise is small; at least one column remains."""
    remaining = list(domains)
    while len(remaining) > 1 and not _has_little_noise(remaining, records):
        remaining.remove(max(reversed(remaining), key=lambda one: one.number))
    return remaining


def _read_ends(db: Relations, records: Records) -> dict[str, tuple[Fraction, Fraction]]:
    """The smallest and the largest number of every column of numbers; not of one that holds infinity, or NaN."""
    fields = [
        (field, key)
        for field, key in zip(records.roles.sensitive, records.roles.sa_keys, strict=True)
        if is_number(field.type)
    ]
    ends = {}
    for field, key in fields:
        ((low, high),) = db.rows(fill("contingency/ends", {"value": column(key), "domain": temp_table("domain")}))
        if low is not None and isfinite(low) and isfinite(high):
            ends[field.name] = (as_fraction(str(low)), as_fraction(str(high)))
    return ends


def _propose_domains(
    columns: Sequence[Profile], ends: Mapping[str, tuple[Fraction, Fraction]], many: int, number: int
) -> list[ProposedDomain]:
    return [
        _propose_bins(one, ends[one.name], number)
        if one.name in ends and one.different > many
        else ProposedDomain(one.name, one.different)
        for one in columns
    ]


def _propose_bins(of: Profile, ends: tuple[Fraction, Fraction], number: int) -> ProposedDomain:
    """Bins of a round width that hold the numbers from the first to the last, about so many."""
    bins, different = round_bins(*ends, number, of.type)
    return ProposedDomain(of.name, different, bins)


# Rows -----------------------------------------------------------------------------------------------------------------
# Rows with weights that give about a release's estimates, for any SQL tool: made of the published tables alone.

MOST = 100_000  # rows
STEPS, FIT = 200, 8  # tables that weights are fitted to, all in all, and each of them
FARTHEST = 10.0  # times that a weight changes in one step
DECIMALS = 6  # of a weight: what machines compute alike


def synthesize_rows(model: Model, draw: np.random.Generator) -> tuple[Ints, Reals]:
    """Codes of R different rows, (R, d), in order, and their weights.

    Rows are drawn from the model; then weights are fitted to all measured tables in turn (raking), and to the
    single columns.
    """
    number = ceil(min(model.total, MOST))
    codes, times = np.unique(model.draw_records(number, draw), axis=0, return_counts=True)
    weights: Reals = times.astype(np.float64) * (model.total / max(number, 1))
    tables = model.believed_tables
    for _ in range(min(FIT, max(1, STEPS // len(tables)))):
        for clique, wanted in tables.items():
            flat = flat_cells(codes, clique, model.sizes)
            now = np.bincount(flat, weights=weights, minlength=wanted.size)
            scale = np.divide(wanted.reshape(-1), now, out=np.ones(wanted.size), where=now > 0)
            weights = weights * np.clip(scale, 1 / FARTHEST, FARTHEST)[flat]
    whole = float(weights.sum()) if len(weights) else 1.0
    return codes, np.asarray(np.round(weights * (model.total / whole), DECIMALS), dtype=np.float64)


def show_codes(columns: Sequence[ContingencyColumn], codes: Ints, weights: Reals) -> tuple[Ints, Reals]:
    """Return rows as they are published, each once: in a column of no text, values that are not listed are NULL."""
    sizes = np.array([len(one) for one in columns])
    hidden = np.array([one.field.type != "VARCHAR" for one in columns]) & (codes == sizes - ADDED)
    shown, place = np.unique(codes + hidden, axis=0, return_inverse=True)
    return shown, np.bincount(place.reshape(-1), weights, len(shown)).astype(np.float64)


def mean_total_variation(model: Model, codes: Ints, weights: Reals) -> float:
    """Mean total variation between the rows' tables of measured columns, or else of single ones, and the model's."""
    far = []
    for clique in [*model.known_tables] or [(i,) for i in range(len(model.sizes))]:
        difference = sum_cells(codes, weights, clique, model.sizes) - model.fitted_table(clique)
        far.append(float(np.abs(difference).sum()) / 2 / max(model.total, 1.0))
    return sum(far) / len(far)
