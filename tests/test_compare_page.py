"""The other ways that docs/compare.md measures: each keeps its promise, and answers without bias."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from support.places import ROOT
from tests.benchmarks import compare, numbers

TABLE = (3_000, 8)  # records, values


def make_table() -> tuple[np.ndarray, np.ndarray]:
    """Return ranks of three quasi-identifiers (n, 3), and values (n,) that go with the first."""
    draw, (records, values) = np.random.default_rng(1), TABLE
    ranks = np.stack([draw.integers(0, size, records) for size in (20, 3, 6)], axis=1)
    return ranks, (ranks[:, 0] // 3 + draw.integers(0, values, records)) % values


def test_every_box_of_mondrian_is_diverse_and_no_value_is_lost() -> None:
    ranks, codes = make_table()
    boxes = compare.cut_diverse(ranks, codes, 4)
    counts = np.zeros((int(boxes.max()) + 1, TABLE[1]), dtype=np.int64)
    np.add.at(counts, (boxes, codes), 1)
    assert len(counts) > TABLE[0] / 100
    assert (4 * counts.max(axis=1) <= counts.sum(axis=1)).all()
    everybody = numbers.find_shares(numbers.find_boxes(ranks, boxes), ())
    assert (everybody @ counts).tolist() == np.bincount(codes).tolist()


def test_boxes_of_one_value_answer_it_exactly() -> None:
    ranks, codes = make_table()
    boxes = ranks[:, 1]
    share = numbers.find_shares(numbers.find_boxes(ranks, boxes), ((1, 2),))
    assert share.tolist() == [0, 0, 1]
    half = numbers.find_shares(numbers.find_boxes(ranks, np.zeros(len(codes), dtype=np.int64)), ((1, 2), (2, 0)))
    assert half.tolist() == pytest.approx([1 / 18])


@pytest.mark.parametrize("way", ["unary", "subset"])
def test_reports_are_unbiased_and_as_precise_as_their_papers_say(way: str) -> None:
    """z of 60 independent means; wrong one time in 10,000 (a chi-square of 60 beyond 110.6)."""
    records, values, epsilon, runs = 20_000, 12, 1.0, 60
    codes = np.arange(records) % values
    everybody = np.ones(records, dtype=bool)
    answers = [
        compare.answer_by_reports(way, codes, values, epsilon, np.random.default_rng(seed))({}, everybody)[0]
        for seed in range(runs)
    ]
    odds, size = math.exp(epsilon), round(values / (math.exp(epsilon) + 1))
    p, q = 0.5, 1 / (odds + 1)
    if way == "subset":
        p = size * odds / (size * odds + values - size)
        q = p * (size - 1) / (values - 1) + (1 - p) * size / (values - 1)
    true = int((codes == 0).sum())
    variance = (true * p * (1 - p) + (records - true) * q * (1 - q)) / (p - q) ** 2
    z = (np.array(answers) - true) / math.sqrt(variance)
    assert 26 < (z**2).sum() < 110.6


def test_no_more_items_of_a_record_are_counted_than_the_cap() -> None:
    """The noise of 100 counts at epsilon 1 is less than 60 for a cap of 2 but one time in 10^10."""
    starts, codes = np.arange(0, 50_001, 5), np.tile(np.arange(5), 10_000)
    counts = compare.count_capped(starts, codes, 100, 2, np.random.default_rng(1))
    assert counts[:5].sum() == pytest.approx(20_000, abs=300)
    assert counts[:5] == pytest.approx(np.full(5, 4_000), abs=400)
    assert (counts[5:] < 60).all()


def test_the_page_names_all_ways_that_are_measured() -> None:
    text = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    for name in (*compare.SAME_BELIEF, *compare.SAME_EPSILON):
        assert f"| {name} |" in text, name
    assert compare.show_error(0.0312) == "0.031"
    assert compare.show_error(None) == "-"


@pytest.mark.slow
def test_the_command_of_the_page_starts() -> None:
    command = [sys.executable, "-m", "tests.benchmarks", "compare", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--only" in done.stdout
