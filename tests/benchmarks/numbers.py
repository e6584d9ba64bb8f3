"""Numbers by groups of near values and by cells, beside k-anonymity and one noisy sum: errors of means and counts."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import duckdb
import numpy as np
from numpy.typing import NDArray

from privsql.mechanisms.permute.cells import cut_cells, find_fine
from privsql.mechanisms.permute.grouping import make_axis, static_optimum
from privsql.mechanisms.permute.incremental import label_records
from privsql.mechanisms.permute.parameters import CELL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

K = 5
EPSILON, CLIPPED = 1.0, 0.999  # of one noisy sum; values above this quantile are cut
ASKED, PAIRS = 100, 60  # records of a question at least; questions of each pair of columns
COUNTED = (200, 1000)  # records of a count
CENSUS = (
    ("education", "sex"),
    ("education", "race", "sex"),
    ("age", "education", "sex"),
    ("age", "education", "sex", "marital", "race", "work_class"),
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Conditions = tuple[tuple[int, int], ...]  # column and rank of a value


def tables(data: Path | None) -> Iterator[tuple[str, Ints, Ints]]:
    """Yield names, quasi-identifiers as ranks (n, d) and values (n,) of three made tables, and of incomes."""
    rng = np.random.default_rng(0)

    def ranks(*columns: int, records: int) -> Ints:
        return np.stack([rng.integers(0, values, records) for values in columns], axis=1)

    codes = ranks(30, 28, records=26_426)
    wages = 10 + 0.04 * codes[:, 1] + 0.3 * rng.normal(size=30)[codes[:, 0]] + 0.9 * rng.normal(size=len(codes))
    yield "wages: team 30, year 28", codes, np.exp(wages).round().astype(np.int64)
    codes = np.hstack([rng.binomial(7, 0.4, (50_000, 1)), ranks(16, 2, records=50_000)])
    wages = 9.8 + 0.18 * codes[:, 0] + 0.1 * rng.normal(size=16)[codes[:, 1]] + 0.15 * codes[:, 2]
    made = np.exp(wages + 0.5 * rng.normal(size=50_000))
    yield "wages: education 8, region 16, sex 2", codes, (made.round(-1)).astype(np.int64)
    weight = np.exp(rng.normal(-0.4, 0.58, 54_000)).clip(0.2, 5).round(2)
    codes = np.hstack([np.unique(weight, return_inverse=True)[1][:, None], ranks(5, 7, 8, records=54_000)])
    level = 0.03 * codes[:, 1] - 0.06 * codes[:, 2] + 0.1 * codes[:, 3] + 0.1 * rng.normal(size=54_000)
    prices = (3900 * weight**1.68 * np.exp(level)).round().astype(np.int64)
    yield "prices: weight, cut 5, colour 7, clarity 8", codes, prices
    if data is None:
        return
    for columns in CENSUS:
        dense = ", ".join(f"dense_rank() OVER (ORDER BY {name} NULLS LAST) - 1 AS {name}" for name in columns)
        found = duckdb.sql(f"SELECT {dense}, income FROM '{data}' WHERE income > 0 ORDER BY ALL").fetchnumpy()
        codes = np.stack([found[name].astype(np.int64) for name in columns], axis=1)
        yield f"incomes: {', '.join(columns)}", codes, found["income"].astype(np.int64)


def measured(data: Path | None) -> Iterator[list[object]]:
    """Yield rows: table, way, groups, and of means and of counts the median and the root mean square of the errors."""
    for name, codes, values in tables(data):
        asked = list(_questions(codes))
        low, middle, high = (float(part) for part in np.quantile(values, (0.25, 0.5, 0.75)))
        units, rank = np.unique(values, return_inverse=True)
        cells = cut_cells(codes, CELL * K)
        for e in (int(middle / 2), int((high - low) / 10)):
            axis = make_axis(units.tolist(), K, e)
            near = label_records(static_optimum(axis) or [0], len(units))[rank]
            yield [name, f"near, e = {e:,}", int(near.max()) + 1, *_errors(asked, values, near)]
            failed = int((~find_fine(axis, cells, rank)).sum())
            way = f"cells, e = {e:,}" + (f": {failed:,} fail" if failed else "")
            yield [name, way, int(cells.max()) + 1, *_errors(asked, values, cells)]
        yield [name, "k-anonymity", *_blurred(asked, codes, values)]
        top = float(np.quantile(values, CLIPPED))
        noisy = [
            np.hypot(np.minimum(own, top).mean() - own.mean(), np.sqrt(2) * top / EPSILON / len(own)) / own.mean()
            for own in (values[met] for _, met in asked)
        ]
        yield [name, f"noisy sum, epsilon = {EPSILON:g}", None, *_summary(noisy), *[None] * 3]


def _questions(codes: Ints) -> Iterator[tuple[Conditions, NDArray[np.bool_]]]:
    """Yield conditions on one column, and some of those on two, with the records that meet them."""
    rng = np.random.default_rng(1)
    for columns in [*combinations(range(codes.shape[1]), 1), *combinations(range(codes.shape[1]), 2)]:
        kinds, at, records = np.unique(codes[:, columns], axis=0, return_inverse=True, return_counts=True)
        enough = np.flatnonzero(records >= ASKED)
        chosen = rng.permutation(enough)[:PAIRS] if len(columns) > 1 else enough
        for kind in chosen.tolist():
            yield tuple(zip(columns, kinds[kind].tolist(), strict=True)), at.ravel() == kind


def _errors(asked: list[tuple[Conditions, NDArray[np.bool_]]], values: Ints, groups: Ints) -> list[float | None]:
    """Return errors of means, and errors and the half-width of the certain bounds of counts with a random range."""
    sizes = np.bincount(groups)
    expected = (np.bincount(groups, values) / sizes)[groups]
    means = [(expected[met].mean() - values[met].mean()) / values[met].mean() for _, met in asked]
    counts, halves = [], []
    for _, met, inside, true in _ask_counts(asked, values):
        chosen, own = (np.bincount(groups[part], minlength=len(sizes)) for part in (inside, met))
        counts.append(float((own * chosen / sizes).sum()) / true - 1)
        width = np.minimum(own, chosen) - np.maximum(0, own + chosen - sizes)
        halves.append(float(width.sum()) / 2 / true)
    return [*_summary(means), *_summary(counts), float(np.median(halves)) if halves else None]


def _ask_counts(
    asked: list[tuple[Conditions, NDArray[np.bool_]]], values: Ints
) -> Iterator[tuple[Conditions, NDArray[np.bool_], NDArray[np.bool_], int]]:
    """Yield conditions with the records that meet them, those in a random range of values, and how many are both."""
    rng = np.random.default_rng(2)
    for conditions, met in asked:
        for _ in range(2):
            low, high = np.sort(rng.choice(values, 2))
            inside = (values >= low) & (values <= high)
            true = int((inside & met).sum())
            if COUNTED[0] <= true <= COUNTED[1]:
                yield conditions, met, inside, true


def _blurred(asked: list[tuple[Conditions, NDArray[np.bool_]]], codes: Ints, values: Ints) -> list[float | None]:
    """Return cells and errors of Mondrian: exact values, and ranges of quasi-identifiers that records fill evenly."""
    cells = cut_cells(codes, K)
    records, sums, boxes = np.bincount(cells), np.bincount(cells, values), find_boxes(codes, cells)
    errors = []
    for conditions, met in asked:
        share = find_shares(boxes, conditions)
        true = float(values[met].mean())
        errors.append(float(share @ sums / (share @ records)) / true - 1)
    counts = [
        float(find_shares(boxes, conditions) @ np.bincount(cells[inside], minlength=len(records))) / true - 1
        for conditions, _, inside, true in _ask_counts(asked, values)
    ]
    return [len(records), *_summary(errors), *_summary(counts), None]


def find_boxes(codes: Ints, cells: Ints) -> tuple[Ints, Ints]:
    """Return the lowest and the highest rank of every quasi-identifier in every cell, (cells, d) each."""
    number = int(cells.max()) + 1
    low, high = np.full((number, codes.shape[1]), np.iinfo(np.int64).max), np.full((number, codes.shape[1]), -1)
    np.minimum.at(low, cells, codes)
    np.maximum.at(high, cells, codes)
    return low, high


def find_shares(boxes: tuple[Ints, Ints], conditions: Conditions) -> Floats:
    """Return what part of every cell's records meets the conditions, if they lie evenly in its ranges (cells,)."""
    low, high = boxes
    share = np.ones(len(low))
    for column, rank in conditions:
        holds = (low[:, column] <= rank) & (rank <= high[:, column])
        share *= holds / (high[:, column] - low[:, column] + 1)
    return share


def _summary(errors: list[float]) -> tuple[float | None, float | None]:
    """Return the median of their magnitudes, and their root mean square."""
    if not errors:
        return None, None
    return float(np.median(np.abs(errors))), float(np.sqrt(np.mean(np.square(errors))))
