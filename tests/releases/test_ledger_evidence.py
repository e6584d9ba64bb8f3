"""The rule on who is the same, as a table of cases, and how seldom chance alone would do what it takes for evidence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import column, temp_table
from privsql.keyed_random import seed_key
from privsql.model.hashing import SECRET, hash_columns, query_hashes, scatter_bits, secret_word
from privsql.releases.ledger import evidence
from privsql.releases.ledger.evidence import (
    CommonNames,
    CommonRecords,
    Evidence,
    RecordSketch,
    TableSample,
    judge_evidence,
)
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

FINE, FEWER = TableSample(400, 395, (390, 5, 0, 0)), TableSample(399, 394, (389, 5, 0, 0))
COARSE = TableSample(400, 8, (0, 0, 0, 0))
NOTHING = TableSample(0, 0, (0, 0, 0, 0))
UNLIKE = TableSample(19, 19, (19, 0, 0, 0))


def ids(common: int, names: int = 2_000, **more: bool) -> tuple[CommonNames, ...]:
    """So many ids in common."""
    return (CommonNames("ids", common, names, **more),)


def counters(common: int) -> tuple[CommonNames, ...]:
    """So many numbers 1, 2, .. in common."""
    return ids(common, 200, are_counters=True)


COPY = CommonRecords(FINE, FINE, 395, are_equal=True)
PERSON = CommonNames("persons", 1, 300)

# The cases of before, with those that the rule of populations changes marked, and new ones.
CASES = {
    "no id in common, other records": (Evidence(names=ids(0), records=CommonRecords(FINE, FINE, 3)), ""),
    "no id in common, the same records": (Evidence(names=ids(0), records=COPY), "records are equal"),
    "numbers alone": (Evidence(names=counters(200)), ""),
    "numbers, few records, equal ones": (
        Evidence(names=counters(200), records=CommonRecords(FEWER, FINE, 394)),
        "records are equal",
    ),
    "numbers of this population": (Evidence(same_population=True, names=counters(200)), "ids are here"),
    "other people of this population": (Evidence(same_population=True, named=True, names=ids(0)), ""),
    "this population without ids": (Evidence(same_population=True), "without source.id"),
    "this population, ids of records and persons promised": (
        Evidence(same_population=True, named=True, names=ids(0, tells=False)),
        "names records, not persons",
    ),
    "another population without ids": (Evidence(records=CommonRecords(FINE, FINE, 10)), ""),
    "a copy less one record": (Evidence(records=CommonRecords(FEWER, FINE, 394)), "records are equal"),
    "a part of it among others": (Evidence(records=CommonRecords(FINE, FINE, 130)), "records are equal"),
    "a copy of a few kinds of records": (
        Evidence(records=CommonRecords(COARSE, COARSE, 8, are_equal=True)),
        "records are equal",
    ),
    "two tables of the same few kinds": (Evidence(records=CommonRecords(COARSE, COARSE, 8)), ""),
    "nothing published": (
        Evidence(records=CommonRecords(NOTHING, NOTHING, are_equal=True)),
        "",
    ),
    # Changed: one common id of another population is stated; it was refused.
    "one id in common, in another population": (Evidence(names=ids(1)), "few"),
    "new ids of one of the persons": (Evidence(names=(*ids(0, tells=False), PERSON)), "few"),
    "numbers in one of both alone": (Evidence(names=ids(3)), "ids are here"),
    # Changed: no column is compared along numbers, so that these pass whatever agrees.
    "numbers, one column agrees": (Evidence(names=counters(200), records=CommonRecords(FINE, FINE, 10)), ""),
    # Changed: tables of other columns are not compared.
    "other columns": (Evidence(), ""),
    # New.
    "new records of this population, like old ones": (Evidence(same_population=True, names=ids(0), records=COPY), ""),
    "one id in common, in this population": (Evidence(same_population=True, names=ids(1)), "ids are here"),
    "one person in common, in this population": (
        Evidence(same_population=True, names=(*ids(0, tells=False), PERSON)),
        "persons are here",
    ),
    "two ids in common": (Evidence(names=ids(2, 3)), "few"),
    "three ids in common, of 3,000": (Evidence(names=ids(3, 3_000)), "few"),
    "three ids in common, of 2,999": (Evidence(names=ids(3, 2_999)), "ids are here"),
    "one id in common, and the same records": (Evidence(names=ids(1), records=COPY), "records are equal"),
    "one id in common, beside a budget": (Evidence(spends=True, names=ids(1)), "ids are here"),
    "one person in common, beside a budget": (Evidence(spends=True, names=(PERSON,)), "persons are here"),
    "numbers alone, beside a budget": (Evidence(spends=True, names=counters(200)), ""),
    "a copy of 19 records": (
        Evidence(records=CommonRecords(UNLIKE, UNLIKE, 19, are_equal=True)),
        "records are equal",
    ),
    "19 records among others": (Evidence(records=CommonRecords(UNLIKE, FINE, 19)), "records are equal"),
    "records that stand twice there": (
        Evidence(records=CommonRecords(FINE, TableSample(800, 395, (0, 390, 0, 0)), 395)),
        "records are equal",
    ),
    "records that stand twice here": (
        Evidence(records=CommonRecords(TableSample(800, 395, (0, 390, 0, 0)), FINE, 395)),
        "records are equal",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    found, why = CASES[case]
    verdict = judge_evidence(found)
    assert verdict.is_same == (why not in ("", "few"))
    assert bool(verdict.few) == (why == "few")
    assert why == "few" or why in verdict.why
    assert verdict.assumed == (found.same_population and "may be here again" in verdict.why)


# Chance ---------------------------------------------------------------------------------------------------------------

POPULATIONS: dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]] = {
    "uniform": lambda rng, n: rng.integers(0, 2000, n),
    "zipf": lambda rng, n: np.minimum(rng.zipf(1.3, n), 10**6),
    "coarse": lambda rng, n: rng.integers(0, 12, n),
    "nearly all different": lambda rng, n: rng.integers(0, 10**7, n),
    "two values": lambda rng, n: rng.integers(0, 2, n),
    "products": lambda rng, n: rng.integers(0, 54_000, n),
    "skewed products": lambda rng, n: np.ravel_multi_index(
        [np.minimum(rng.geometric(2 / kinds, n) - 1, kinds - 1) for kinds in (30, 30, 60)], (30, 30, 60)
    ),
}


def sketch(values: NDArray[np.int64]) -> RecordSketch:
    """Of records that are alike if their numbers are, in several parts."""
    return RecordSketch.collect((part, None) for part in np.array_split(scatter_bits(values.astype(np.uint64)), 5))


def compared(one: RecordSketch, other: RecordSketch) -> bool:
    """Whether two tables pass for the same people by their records."""
    common = len(np.intersect1d(one.hashes, other.hashes))
    sides = one.sample_below(other.summary.limit), other.sample_below(one.summary.limit)
    return CommonRecords(*sides, common, are_equal=one.summary == other.summary).exceed_chance


def same(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """The same of two arrays, whichever came first."""
    found = compared(sketch(one), sketch(other))
    assert compared(sketch(other), sketch(one)) == found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
def test_samples_of_one_population_are_no_copies(population: str) -> None:
    """The bound is one false alarm in a million; here are 300 pairs of samples."""
    rng = np.random.default_rng(11)
    for most in (20, 400, 2_000) * 100:
        one, two = (POPULATIONS[population](rng, int(rng.integers(15, most))) for _ in range(2))
        assert not same(two, one) or np.array_equal(np.sort(one), np.sort(two))  # which is a copy, whoever made it


@pytest.mark.parametrize("records", [5_000, 10_000])
@pytest.mark.parametrize("population", ["products", "skewed products"])
def test_disjoint_samples_of_54000_possible_records_are_no_copies(population: str, records: int) -> None:
    """Of their unique records 7.7 and 12.8 % were common by chance, which a rule of shares would refuse."""
    rng = np.random.default_rng(12)
    for _ in range(20):
        one, two = POPULATIONS[population](rng, 2 * records).reshape(2, -1)
        values, counts = np.unique(one, return_counts=True)
        assert np.isin(values[counts == 1], two).mean() > 0.05
        assert not same(one, two)
        assert not same(one[: records // 7], two)


@pytest.mark.parametrize("population", rest_slow(["uniform", "zipf", "nearly all different", "skewed products"]))
def test_copies_with_changes_are_found(population: str) -> None:
    rng = np.random.default_rng(13)
    for _ in range(50):
        one = POPULATIONS[population](rng, 800)
        two = one.copy()
        two[:40] = POPULATIONS[population](rng, 40)
        assert same(two, one)
        assert same(two[100:], one)


@pytest.mark.parametrize("population", rest_slow(["uniform", "zipf", "nearly all different", "skewed products"]))
def test_a_doubled_table_is_found(population: str) -> None:
    """No record of the larger table is unlike all others, so that by its own estimate chance explains everything."""
    rng = np.random.default_rng(14)
    for _ in range(20):
        one = POPULATIONS[population](rng, 800)
        twice = np.repeat(one, 2)
        assert same(twice, one)
        assert same(twice, one[:700])
        assert same(twice, np.repeat(one[:700], 2))
        assert same(np.repeat(one, 3), twice)
        assert same(np.concatenate([one, one[:600]]), one)
        assert not same(twice, np.repeat(POPULATIONS[population](rng, 800), 2))


def test_a_part_of_a_table_is_found_or_not() -> None:
    """What the page says: of 400 unlike records a third is found, and of 54,000 kinds a twentieth of 10,000 is not."""
    rng = np.random.default_rng(15)
    one, two = rng.integers(0, 10**9, (2, 400))
    assert same(one, np.concatenate([one[:133], two[133:]]))
    one, two = rng.integers(0, 54_000, (2, 10_000))
    assert not same(one, np.concatenate([one[:500], two[500:]]))
    assert same(one, np.concatenate([one[:2_000], two[2_000:]]))


# Sketches -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [2**20, 50, 5000])
def test_an_engine_takes_the_same_sketch(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """All of the hashes, the smallest of many, and all of few that many records share."""
    monkeypatch.setattr(evidence, "MOST", most)
    key, values = seed_key(3), [(column("a"), "BIGINT"), (column("b"), "VARCHAR")]
    with open_scratch() as db:
        texts = [None if i % 7 == 0 else f"x{i % 13}" for i in range(5000)]
        db.register_arrow("source", pa.table({"a": [i * i % 41 for i in range(5000)], "b": texts}))
        read = (temp_table("source"), column("a").neq(exp.Literal.number(5)))
        here = RecordSketch.collect((part, None) for part in hash_columns(db, values, *read, key))
        db.register_arrow(SECRET, secret_word(key))
        there = RecordSketch.collect_there(db, query_hashes(db, values, *read))
    assert there.summary == here.summary
    assert there.as_table() == here.as_table()


def test_a_sketch_holds_all_records_or_the_smallest_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(9).integers(0, 3_000, 5_000)
    whole = sketch(values)
    assert dict(zip(whole.hashes.tolist(), whole.records.tolist(), strict=True)) == Counter(
        (scatter_bits(values.astype(np.uint64)) >> np.uint64(1)).tolist()
    )
    monkeypatch.setattr(evidence, "MOST", 200)
    sampled = sketch(values)
    assert (sampled.hashes.tolist(), sampled.summary.limit) == (whole.hashes[:200].tolist(), whole.hashes[200])
    assert sampled.records.tolist() == whole.records[:200].tolist()
    assert (sampled.summary.records, sampled.summary.fingerprint) == (5_000, whole.summary.fingerprint)
    assert whole.sample_below(sampled.summary.limit) == sampled.sample_below(whole.summary.limit)


def test_records_that_stand_equally_often_are_a_set() -> None:
    values = np.arange(50)
    thrice = sketch(np.repeat(values, 3))
    assert (thrice.records.tolist(), thrice.summary.records) == ([1] * 50, 150)
    assert sorted(sketch(np.append(np.repeat(values, 4), [0, 0])).records.tolist()) == [2] * 49 + [3]


def test_sketches_find_what_is_common_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of 20,000 records and sketches of 2,000: a fifth in common is found, and no disjoint samples are."""
    monkeypatch.setattr(evidence, "MOST", 2_000)
    rng = np.random.default_rng(10)
    for domain in (50, 10**4, 10**5, 10**7):
        one, two, three = rng.integers(0, domain, (3, 20_000))
        assert not same(one, two)
        assert not same(one[:500], two)
        assert same(one, one)
        if domain >= 10**5:
            assert same(one, np.concatenate([one[:4_000], three[4_000:]]))
            assert same(one, one[:900])
