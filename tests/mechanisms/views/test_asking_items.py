"""Evaluation of item sets by class of question: which are drawn, and what is made of answers."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from math import ceil, exp, log
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import privsql
from privsql.answers.accuracy import Workload
from privsql.dp_random import SeededNoise
from privsql.engine.database import Reporter
from privsql.keyed_random import seed_key
from privsql.mechanisms.diffpart.answers import bound_errors
from privsql.mechanisms.diffpart.growth import PartitionedRecords, grow_tree
from privsql.mechanisms.diffpart.plan import Usefulness, bound_noise, items_taxonomy
from privsql.mechanisms.diffpart.tree import leaf_values, make_sets_rule
from privsql.mechanisms.views.evaluation import by_length, draw_queries, top_items
from privsql.mechanisms.views.item_sets import WeightedSets
from privsql.mechanisms.views.parameters import SetValued
from support.shop import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def held(records: Sequence[Sequence[int]], items: int) -> WeightedSets:
    """The different sets, empty ones among them, with their numbers of records."""
    counted = sorted(Counter(tuple(sorted(one)) for one in records).items())
    starts = np.cumsum([0, *(len(one) for one, _ in counted)]).astype(np.int64)
    codes = np.array([code for one, _ in counted for code in one], dtype=np.int64)
    return WeightedSets(starts, codes, np.array([number for _, number in counted], dtype=np.float64), items)


RECORDS = [[], [0], [0, 1], [0, 1], [1, 2, 3], [4, 5, 6, 7], [0, 9]]


def drawn(number: int) -> dict[str, list[tuple[int, ...]]]:
    return draw_queries(held(RECORDS, 10), number, seed_key(3).random_generator("test", 1))


def test_items_of_records_are_held_by_one() -> None:
    found = drawn(40)
    assert list(found) == ["item", "pair", "rec1", "rec2", "rec3", "rec4"]
    assert found["item"] == [(code,) for code in range(10)]  # all there are
    for size in (1, 2, 3, 4):
        assert len(found[f"rec{size}"]) == 40
        possible = {
            one for record in RECORDS if len(record) >= size for one in itertools.combinations(sorted(record), size)
        }
        assert set(found[f"rec{size}"]) <= possible
    assert set(found["rec4"]) == {(4, 5, 6, 7)}
    assert all(len(set(one)) == 2 and list(one) == sorted(one) for one in found["pair"])
    assert len({one[0] for one in drawn(3)["item"]}) == 3


def test_records_are_drawn_as_often_as_they_are_there() -> None:
    """Items of [0, 1], which two of the five records with two items have: 4 standard deviations around 2/5."""
    found = Counter(drawn(2000)["rec2"])[(0, 1)]
    assert abs(found - 800) < 4 * (2000 * 0.4 * 0.6) ** 0.5


def test_a_class_of_which_there_is_none_is_left_out() -> None:
    found = draw_queries(held([[], [0]], 1), 5, seed_key(3).random_generator("test", 1))
    assert found == {"item": [(0,)], "rec1": [(0,)] * 5}
    assert list(draw_queries(held([[]], 2), 5, seed_key(3).random_generator("test", 1))) == ["item", "pair"]


SAMPLE = [[0, 1, 2, 3], [1, 3], [1], [0, 1], [1], [0], [0, 1, 2, 3], [1, 2, 3]]  # Chen et al. 2011, Table 1


@pytest.mark.parametrize(("c", "threshold"), [(None, 38), (1, 17)])
def test_usefulness_of_the_paper_s_example(c: int | None, threshold: int) -> None:
    """B = 1, three inner nodes: the root's expansion spends 1/6, so does each of at most three (Theorem 4.1)."""
    options = {"c1": c, "c2": c} if c else {"tau": "1/100", "tau_sets": "1/100"}
    params = SetValued(algorithm="diffpart", epsilon=1, universe={"items": list("abcd")}, fan_out=2, **options)
    taxonomy = items_taxonomy(4, params)
    found = bound_noise(make_sets_rule(params, taxonomy), taxonomy)
    assert found.budget == Fraction(1, 6)
    height_two = ceil(2**0.5 * 2 * 6) if c else ceil(6 * log(3 / (Fraction(1, 300) * (1 + exp(-1 / 6)))))
    assert found.threshold == threshold == height_two
    # I2 is held by five of the six sets: 5 (6 ln(12/0.05) + t)
    kept = held([[1]], 4)
    classes = {"item": [(0,), (1,)], "all": [(0, 1, 2, 3)], "none": []}
    one = ceil(6 * log(12 / 0.05)) + threshold
    assert bound_errors(held(SAMPLE, 4), kept, found, classes, 0.05) == {"item": 5 * one, "all": one, "none": 0}


def test_sets_that_nobody_has_count_for_the_bound() -> None:
    """The kept {a, c} and {b, c} add to what covers c; seven sets that nobody has are more than the six others."""
    strange = [[0, 2], [1, 2], [0, 3], [2, 3], [2], [3], [0, 2, 3]]
    kept, useful = held([*strange, [1]], 4), Usefulness(Fraction(1), 3)
    found = bound_errors(held(SAMPLE, 4), kept, useful, {"c": [(2,)], "a and c": [(0, 2), (0, 2)]}, 0.05)
    one = ceil(log(14 / 0.05)) + 3
    assert found == {"c": 7 * one, "a and c": 3 * one}


@pytest.mark.slow
def test_errors_stay_within_the_bound_and_would_not_within_a_tenth(tmp_path: Path) -> None:
    """Noise in one direction: 200 releases of one set; the largest error of the answer, beside the bound."""
    params = SetValued(algorithm="diffpart", epsilon="1/2", universe={"items": ["a", "b"]}, fan_out=2, c1=1, c2=1)
    taxonomy = items_taxonomy(2, params)
    rule = make_sets_rule(params, taxonomy)
    records = PartitionedRecords.generalize(
        np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.array([90]), taxonomy
    )
    errors = []
    for seed in range(200):
        draw = np.random.default_rng(seed)
        tree = grow_tree(records, taxonomy, rule, SeededNoise(draw), seed_key(seed).random_generator("test", 1))
        which, values = leaf_values(tree, taxonomy)
        errors.append(abs(int(tree.size[tree.leaves][which[values == 0]].sum()) - 90))
    useful = bound_noise(rule, taxonomy)
    assert useful.budget == Fraction(1, 2)
    assert np.mean(np.array(errors) > useful.bound_error(1, 2, 0.05)) <= 0.05
    assert np.mean(np.array(errors) > useful.bound_error(1, 2, 0.05) / 10) > 0.05


def test_lengths_are_up_to_a_share_of_the_longest() -> None:
    found = by_length(10, 300, 12, seed_key(3).random_generator("test", 1))
    assert [max(map(len, asked)) for _, asked in found] == [2, 4, 6, 8, 10]
    assert all(len(set(one)) == len(one) for _, asked in found for one in asked)


class Known:
    """Answers that are known: ``estimates`` by item."""

    def __init__(self, estimates: Sequence[float | None]) -> None:
        self._estimates = estimates

    def containing(self, codes: Sequence[int], _estimator: str, _confidence: float) -> Any:
        """The number of records that contain an item."""
        return SimpleNamespace(estimate=self._estimates[codes[0]])


def found_items(estimates: Sequence[float | None]) -> dict[str, Any]:
    true = held([[code] for code in range(60) for _ in range(60 - code)], 60)  # item 0 has 60 records, 59 has one
    given: Any = SimpleNamespace(
        report=Reporter(), confidence=0.95, workload=Workload(), records=SimpleNamespace(records=1830)
    )
    sets: Any = Known(estimates)
    return top_items(given, sets, true, "reconstructed")


def test_precision_counts_the_items_that_are_found() -> None:
    perfect = found_items([60 - code for code in range(60)])
    assert perfect == {"20": {"precision": 1, "mean_error": 0}, "50": {"precision": 1, "mean_error": 0}}
    reverse = found_items([code + 1 for code in range(60)])
    assert [one["precision"] for one in reverse.values()] == [0, 0.8]
    half = found_items([60 - code if code < 10 else None for code in range(60)])
    assert half["20"]["precision"] >= 0.5
    assert half["20"]["mean_error"] == pytest.approx(0.5)


def test_nothing_known_finds_no_more_than_chance() -> None:
    """All estimates are equal: the order of the codes, in which the true best come first, tells nothing."""
    assert found_items([7.0] * 60)["20"]["precision"] < 0.8


@pytest.mark.slow
def test_what_contains_items_is_what_sql_says(shop: Path) -> None:
    """No back door: evaluation asks for no more than an analyst can."""
    with privsql.open(shop / "shop.duckdb") as release:
        for codes in ([0], [1, 2], [0, 3, 5], [6]):
            items = ", ".join(f"'{NAMES[code]}'" for code in codes)
            sql = f"SELECT COUNT(*) FROM shop WHERE list_has_all(goods, [{items}])"
            for estimator in ("reconstructed", "baseline"):
                ((_, *figures),) = release.query(sql, estimator=estimator).by_group().items()
                answers: Any = release.answers
                one = answers.containing(codes, estimator, 0.95)
                assert figures[0] == pytest.approx((one.estimate, one.low, one.high))


def test_singles_are_the_items_weights() -> None:
    assert held(RECORDS, 10).item_weights.tolist() == [4, 3, 1, 1, 1, 1, 1, 1, 0, 1]


UNNESTED = "SELECT unnest(goods) AS item, COUNT(*) AS n FROM shop"


@pytest.mark.slow
def test_groups_of_items_are_the_counts_of_each(shop: Path) -> None:
    """In three forms of SQL, sorted and cut; with the bounds of a count by itself."""
    with privsql.open(shop / "shop.duckdb") as opened:
        top = opened.query(f"{UNNESTED} GROUP BY item ORDER BY n DESC, item LIMIT 3")
        assert top.columns == ("item", "n", "n_std_error", "n_low", "n_high")
        alone = [(row[0], *opened.query(f"SELECT COUNT(*) FROM shop WHERE list_contains(goods, '{row[0]}')").rows[0])
                 for row in opened.query(f"{UNNESTED} GROUP BY 1").rows]  # fmt: skip
        assert {one[0] for one in alone} == set(opened.answers.item_labels)
        assert top.rows == sorted(alone, key=lambda row: (-row[1], row[0]))[:3]
        derived = "SELECT item, COUNT(*) AS n FROM (SELECT unnest(goods) AS item FROM main.shop) AS x GROUP BY item"
        joined = "SELECT u.item, COUNT(*) AS n FROM shop CROSS JOIN UNNEST(goods) AS u(item) GROUP BY u.item"
        for other in (joined, derived.replace("main.", "")):
            assert opened.query(f"{other} ORDER BY n DESC, 1 LIMIT 3").rows == top.rows
        among = opened.query(f"{UNNESTED} WHERE list_contains(goods, '{top.rows[0][0]}') GROUP BY item ORDER BY 2 DESC")
        assert among.rows[0][0] == top.rows[0][0]
        assert (
            opened.query("SELECT COUNT(*) FROM main.shop LIMIT 5").rows
            == opened.query("SELECT COUNT(*) FROM shop").rows
        )


@pytest.mark.parametrize(
    "rest",
    ["", "GROUP BY item HAVING n > 2", "GROUP BY goods", "WHERE item = 'ale' GROUP BY item", "GROUP BY ROLLUP (item)"],
)
def test_other_groups_of_items_are_refused(shop: Path, rest: str) -> None:
    with pytest.raises(privsql.UsageError, match="; "):
        privsql.query(shop / "shop.duckdb", f"{UNNESTED} {rest}")
