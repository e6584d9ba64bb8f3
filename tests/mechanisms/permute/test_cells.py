"""Cells of quasi-identifiers: what a cut tells by itself, found by all tables, and the cut that tells nothing."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.mechanisms.permute.cells import cut_cells, find_fine, mean_error
from privsql.mechanisms.permute.grouping import make_axis
from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Rule = Callable[[Sequence[int], Sequence[int], int, int], "list[tuple[int, ...]] | None"]


def is_fine(values: Sequence[int], k: int, e: int) -> bool:
    """Return whether values are at least k different ones over a range of e."""
    return len(set(values)) >= k and max(values) - min(values) >= e


def split(kinds: Sequence[int], may_cut: Callable[[Sequence[int]], bool]) -> list[tuple[int, ...]]:
    """Halve the records of one quasi-identifier, again and again, where both halves may be cut off."""
    done, pending = [], [sorted(range(len(kinds)), key=lambda i: kinds[i])]
    while pending:
        cell = pending.pop()
        cuts = [
            at for at in range(1, len(cell))
            if kinds[cell[at - 1]] != kinds[cell[at]] and may_cut(cell[:at]) and may_cut(cell[at:])
        ]  # fmt: skip
        if not cuts:
            done.append(tuple(cell))
            continue
        at = min(cuts, key=lambda at: abs(2 * at - len(cell)))
        pending += [cell[:at], cell[at:]]
    return done


def stop_where_a_half_fails(kinds: Sequence[int], values: Sequence[int], k: int, e: int) -> list[tuple[int, ...]]:
    """Cut as Mondrian does for (k, e): not where a half would fail."""
    return split(kinds, lambda half: is_fine([values[i] for i in half], k, e))


def raise_the_size(kinds: Sequence[int], values: Sequence[int], k: int, e: int) -> list[tuple[int, ...]] | None:
    """Cut with one smallest size for all cells, which rises until every cell is fine."""
    for size in range(k, len(kinds) + 1):
        cells = split(kinds, lambda half, size=size: len(half) >= size)  # type: ignore[misc]
        if all(is_fine([values[i] for i in cell], k, e) for cell in cells):
            return cells
    return None


def look_at_no_value(kinds: Sequence[int], values: Sequence[int], k: int, e: int) -> list[tuple[int, ...]] | None:
    """Cut as privsql does, with a smallest size of k; None if it refuses."""
    cells = cut_cells(np.array(kinds)[:, None], k)
    units, ranks = np.unique(values, return_inverse=True)
    if not find_fine(make_axis(units.tolist(), k, e), cells, ranks).all():
        return None
    return [tuple(np.flatnonzero(cells == cell).tolist()) for cell in range(int(cells.max()) + 1)]


def beliefs(rule: Rule, kinds: Sequence[int], values: Sequence[int], k: int, e: int) -> list[tuple[Fraction, Fraction]]:
    """Return pairs of a value's share in a cell and of the belief in it, over all releases, records and values.

    The belief is that of an attacker who knows the rule and the quasi-identifiers: of all tables with these values that
    give the release, the share in which the record has the value.
    """
    tables = defaultdict(list)
    for table in set(permutations(values)):
        cells = rule(kinds, table, k, e)
        if cells is not None:
            tables[tuple((cell, tuple(sorted(table[i] for i in cell))) for cell in cells)].append(table)
    return [
        (Fraction(held.count(value), len(held)), Fraction(sum(one[i] == value for one in given), len(given)))
        for release, given in tables.items()
        for cell, held in release
        for value in set(held)
        for i in cell
    ]


@pytest.mark.parametrize("rule", [stop_where_a_half_fails, raise_the_size])
def test_a_cut_that_looks_at_values_tells_them(rule: Rule) -> None:
    """Cells of 3 and 5 with three high values; and a pair with four others, which would be the pair of equal values."""
    three_and_five = beliefs(rule, (0, 0, 0, 1, 1, 1, 1, 1), (1, 1, 1, 0, 0, 0, 0, 0), 2, 0)
    assert {(Fraction(3, 8), Fraction(1, 11)), (Fraction(3, 8), Fraction(6, 11))} <= set(three_and_five)
    pair = beliefs(rule, (0, 0, 1, 1, 1, 1), (9, 9, 1, 2, 3, 4), 2, 0)
    assert (Fraction(1, 3), Fraction(1)) in pair


@st.composite
def small_tables(draw: st.DrawFn) -> tuple[list[int], list[int], int, int]:
    """Draw up to seven records with one quasi-identifier, k and e."""
    records = draw(st.integers(2, 7))
    kinds = draw(st.lists(st.integers(0, 3), min_size=records, max_size=records))
    values = draw(st.lists(st.sampled_from([0, 1, 2, 5]), min_size=records, max_size=records))
    return kinds, values, draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 3]))


@settings(max_examples=40, deadline=None)
@given(small_tables())
def test_the_cut_of_privsql_tells_no_more_than_the_contents_of_cells(
    table: tuple[list[int], list[int], int, int],
) -> None:
    assert all(share == belief for share, belief in beliefs(look_at_no_value, *table))


def test_whoever_knows_of_a_refused_attempt_knows_more() -> None:
    """The refusal itself tells: with one group after it, the value of the pair is certain."""
    kinds, values = (0, 0, 1, 1, 1, 1), (9, 9, 1, 2, 3, 4)

    def one_group_if_refused(*given: object) -> list[tuple[int, ...]]:
        return look_at_no_value(*given) or [tuple(range(6))]  # type: ignore[arg-type]

    assert (Fraction(1, 3), Fraction(1)) in beliefs(one_group_if_refused, kinds, values, 2, 0)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 60), st.integers(1, 3), st.integers(1, 9))
def test_cells_are_large_enough_and_hold_equal_records_together(
    data: st.DataObject, records: int, columns: int, smallest: int
) -> None:
    row = st.lists(st.integers(0, data.draw(st.integers(0, 6))), min_size=columns, max_size=columns)
    codes = np.array(data.draw(st.lists(row, min_size=records, max_size=records)), dtype=np.int64)
    codes = codes.reshape(records, columns)
    cells = cut_cells(codes, smallest)
    sizes = np.bincount(cells)
    assert records == 0 or sizes.min() >= min(records, smallest)
    assert len({(*row, cell) for row, cell in zip(codes.tolist(), cells.tolist(), strict=True)}) == len(
        {tuple(row) for row in codes.tolist()}
    )
    order = np.random.default_rng(records).permutation(records)
    assert cut_cells(codes[order], smallest).tolist() == cells[order].tolist()  # the order, which is that of values
    kinds, number = np.unique(codes, axis=0, return_counts=True)
    if records and (number >= smallest).all():
        assert len(sizes) == len(kinds)


def test_plan_measures_both_groupings_and_names_the_better_one(tmp_path: Path) -> None:
    """Cells are exact by a column of few values; where one of them fails, groups of near values are left."""
    source = "SELECT i % {kinds} AS team, 100 * (i % {kinds}) + i * 7919 % 1009 AS pay FROM range(3000) t(i)"
    columns = 'quasi_identifiers = ["team"]\nsensitive = "pay"'
    for kinds in (2, 20):
        write(tmp_path / "people.parquet", source.format(kinds=kinds))
        spec = specification(tmp_path, mechanism='kind = "permute"\nk = 4\ne = 300', columns=columns)
        shown = succeeded("plan", spec, "--algorithms", "--json").json
        errors = {row["algorithm"]: row["error"] for row in shown["algorithms"]}
        assert errors["cells"] == 0 < errors["nested"]
        assert shown["advice"] == "least error of means by quasi-identifiers: cells"
    alike = "SELECT i % 2 AS team, CASE i % 2 WHEN 0 THEN 7 ELSE i END AS pay FROM range(400) t(i)"
    write(tmp_path / "people.parquet", alike)
    shown = succeeded("plan", spec, "--algorithms", "--json").json
    assert "1 of 2 cells have fewer than 4 values" in shown["algorithms"][1]["refused"]
    assert shown["advice"].endswith("nested")


def test_whole_columns_are_no_cells_where_none_can_be_cut() -> None:
    """Without quasi-identifiers there is one cell."""
    assert cut_cells(np.zeros((5, 0), dtype=np.int64), 2).tolist() == [0] * 5


def test_the_error_of_means_is_that_of_all_questions() -> None:
    """By one value of a column, and by one of each of two, of at least a hundred records."""
    rng = np.random.default_rng(3)
    codes = np.stack([rng.integers(0, 2, 900), rng.integers(0, 3, 900), rng.integers(0, 40, 900)], axis=1)
    values, groups = rng.normal(size=900) + codes[:, 0], rng.integers(0, 7, 900)
    means = np.array([values[groups == g].mean() for g in range(7)])[groups]
    wrong = []
    for columns in [*combinations(range(3), 1), *combinations(range(3), 2)]:
        for chosen in np.unique(codes[:, columns], axis=0):
            met = (codes[:, columns] == chosen).all(axis=1)
            if met.sum() >= 100:
                wrong.append(means[met].mean() - values[met].mean())
    assert mean_error(codes, values, groups) == pytest.approx(np.sqrt(np.mean(np.square(wrong))) / values.std())
    assert mean_error(codes[:, :2], values, codes[:, 0] * 3 + codes[:, 1]) == 0
    assert mean_error(codes[:, 2:], values, groups) is None
