"""Audits of the differentially private programs: what the outputs of their runs prove about epsilon.

Half of the runs have one record more, or another value. An adversary looks at the first half of each side, chooses
the event that tells the two apart best, and is measured on the second half: the lower bound on
log(P(event | with) / P(event | without)), by Clopper and Pearson, must stay below epsilon, at a false alarm of 10^-6.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from mechanisms.diffpart import test_columns as cells
from mechanisms.diffpart import test_sets as sets
from mechanisms.marginals.test_marginals import rule as marginal_rule
from mechanisms.views import test_views as chosen_sets
from privsql.dp_random import OpenDPNoise
from privsql.mechanisms.diffpart.growth import grow_tree
from privsql.mechanisms.diffpart.tree import make_columns_rule
from privsql.mechanisms.label_tables.publish import measure_tables
from privsql.mechanisms.label_tables.rule import PublicCodes, TablesRule
from privsql.mechanisms.marginals.publish import measure_marginals
from privsql.mechanisms.views.publish import measure_views
from support.enumeration import FALSE_ALARM
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Program = Callable[[bool, Any, np.random.Generator], list[int]]

RUNS = [pytest.param(1_000, marks=pytest.mark.slow), pytest.param(20_000, marks=pytest.mark.soak(part="audits"))]
STEPS = 12  # events: a figure is at least 1, 2, .., so many


class Careless(OpenDPNoise):
    """Noise as if each count might spend several times its budget."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def add_noise(self, counts: Any, epsilon: Fraction) -> Any:
        return super().add_noise(counts, self.times * epsilon)


def baskets(with_one: bool, noise: Any, rng: np.random.Generator) -> list[int]:
    """Item sets: the target's leaf, the node above it, and both."""
    taxonomy = sets.by_fan_out(4, 2)
    request = sets.asked(1, fan_out=2, c1="0.5", c2="0.5")
    records = [*[{0, 1}] * (9 + with_one), {2}]
    tree = sets.grown(records, taxonomy, request, noise, rng)
    leaf = {items: int(tree.size[row]) for row, items in sets.sets_of(tree, taxonomy).items()}.get(frozenset([0, 1]), 0)
    above = int(tree.size[(tree.parent == 0) & (tree.branch == 1)].sum())
    return [leaf, above, leaf + above]


def people(with_one: bool, noise: Any, rng: np.random.Generator) -> list[int]:
    """Contingency: the leaves, all that is counted on the way to them, and how many parts there are."""
    records = [*[(0, 0)] * (3 + with_one), (1, 0)]
    rule = make_columns_rule(cells.asked(1, tau=1, tau_cells=1))
    tree = grow_tree(cells.table(records, cells.TINY), cells.TINY, rule, noise, rng)
    leaves = int(tree.size[tree.leaf].sum())
    return [leaves, int(tree.size.sum()), len(tree.size) // 2]


def views(with_one: bool, noise: Any, rng: np.random.Generator) -> list[int]:
    """Item sets by views: records of the target's length, those with its item, and both with its cell of a view."""
    records = [*[{0, 1}] * (3 + with_one), {2}]
    request = sets.asked(1, algorithm="views")
    found = measure_views(chosen_sets.sets(records, 22), request, [], noise, rng)
    assert found.counts is not None
    lengths = sum(int(one.counts[2]) for one in found.counts.lengths)
    held = int(found.counts.whole[:2].sum() + found.counts.cut[:2].sum())
    place = found.codes.tolist().index(0) if 0 in found.codes else None
    cell = 0 if place is None else int(np.moveaxis(found.tables[-1].counts, place, 0)[1].sum())
    return [lengths, held, lengths + held + cell]


def marginals(with_one: bool, noise: Any, _: np.random.Generator) -> list[int]:
    """Marginals of two columns: the target's cell of their pair, its cells of all tables, and all records."""
    records = np.array([*[(0, 0)] * (3 + with_one), (1, 0)])
    tables = measure_marginals(
        records, np.ones(len(records), dtype=np.int64), marginal_rule((2, 2), pairs="all"), noise
    )
    own = [int(one.counts.reshape(-1)[0]) for one in tables]
    return [own[-1], sum(own) // 2, int(tables[-1].counts.sum())]


def values(with_one: bool, noise: Any, _: np.random.Generator) -> list[int]:
    """Noisy tables of values: the target has the other one; its cell of a column, of a pair, and how many there are."""
    codes = PublicCodes.from_columns({"a": np.array([0, 1]), "b": np.array([0, 0])}, np.array([4, 1]))
    often = [3 + with_one, 1 - with_one, 1]
    entries = np.repeat([0, 0, 1], often), np.repeat([0, 1, 1], often)
    tables, _ = measure_tables(*entries, TablesRule(Fraction(1), 2, codes), noise)
    own = [int(one.counts[0]) - int(one.counts[1]) for one in tables]
    return [own[0], sum(own) // 2, STEPS * (len(tables) == 3)]


def proven(program: Program, noise: Any, runs: int) -> float:
    """The lower bound on epsilon that so many runs prove."""
    rng = np.random.default_rng(6)
    without, with_one = (_events(program, present, noise, rng, runs // 2) for present in (False, True))
    half = runs // 4
    chosen = _bound(with_one[:half].sum(axis=0), without[:half].sum(axis=0), half, 0.01)
    best = np.unravel_index(int(chosen.argmax()), chosen.shape)
    return float(_bound(*(seen[half:, *best].sum() for seen in (with_one, without)), half, FALSE_ALARM))


def _bound(hits: Any, misses: Any, runs: int, alarm: float) -> Any:
    """By Clopper and Pearson, for ``hits`` and ``misses`` of so many runs with and without the record."""
    low = stats.beta.ppf(alarm, np.maximum(hits, 1), runs - hits + 1) * (hits > 0)
    high = np.nan_to_num(stats.beta.ppf(1 - alarm, misses + 1, runs - misses), nan=1.0)  # nan: all of them
    return np.log(np.maximum(low, 1e-12) / high)


def _events(program: Program, present: bool, noise: Any, rng: np.random.Generator, runs: int) -> NDArray[np.bool_]:
    """(runs, figures, STEPS): whether each figure is at least 1, 2, .."""
    figures = np.array([program(present, noise, rng) for _ in range(runs)])
    return figures[:, :, None] >= np.arange(1, STEPS + 1)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("program", [baskets, views, people, marginals, values])
def test_membership_attacks_on_the_program_stay_below_epsilon(program: Program, runs: int) -> None:
    """Epsilon is 1."""
    assert proven(program, OpenDPNoise(), runs) < 1


LEAKS = [(baskets, 1_000, 6), (views, 4_000, 6), (people, 1_000, 6), (marginals, 1_000, 6), (values, 1_000, 24)]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "runs", "times"), rest_slow(LEAKS, soak="audits"))
def test_the_audit_would_find_a_leak(program: Program, runs: int, times: int) -> None:
    """Where several times the budget is spent; few runs prove it."""
    assert proven(program, Careless(times), runs) > 1
