"""The rule on who is the same, as a table of cases, and how seldom chance alone would do what it takes for evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import exp as e_to
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import column, temp_table
from privsql.keyed_random import seed_key
from privsql.model.packing import SECRET, hash_columns, query_hashes, scatter_bits, secret_word
from privsql.releases.ledger import evidence
from privsql.releases.ledger.evidence import (
    Agreement,
    CommonNames,
    CommonRecords,
    EqualColumns,
    Evidence,
    RecordSketch,
    RecordSummary,
    judge_evidence,
    log_chance,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

FINE, OTHER_FINE, FEWER = (
    RecordSummary(400, 390, 5, "1"),
    RecordSummary(400, 390, 5, "2"),
    RecordSummary(399, 389, 5, "3"),
)
COARSE, OTHER_COARSE = RecordSummary(400, 0, 0, "4"), RecordSummary(400, 0, 0, "5")
AGES = Agreement("age", 200, 9, 8.4)
SEXES = Agreement("sex", 200, 200, 100.0)
CONSTANT = Agreement("country", 200, 200, 200.0)
NEARLY = Agreement("member", 200, 200, 198.0)
SALARIES = Agreement("salary", 8, 8, 1.0)
SPACES = ("admissions", "patients")


def numbers(*columns: Agreement, **more: Any) -> CommonNames:
    """Ids 1, 2, .. that are in both."""
    return CommonNames("ids", 200, numbering=True, columns=columns, **more)


def records(ours: RecordSummary, theirs: RecordSummary, equal: int) -> tuple[CommonRecords, ...]:
    """So many equal pairs."""
    return (CommonRecords(ours, theirs, equal, equal, equal),)


CASES = {
    "one id in common, whatever the values are": (Evidence(names=(CommonNames("ids", 1),)), "ids are here"),
    "no id in common, other records": (
        Evidence(names=(CommonNames("ids", 0),), records=records(FINE, OTHER_FINE, 3)),
        "",
    ),
    "no id in common, the same records": (
        Evidence(names=(CommonNames("ids", 0),), records=records(FINE, FINE, 400)),
        "records are equal",
    ),
    "new ids of the same persons": (
        Evidence(names=(CommonNames("ids", 0, tells=False), CommonNames("persons", 1))),
        "persons are here",
    ),
    "numbers alone": (Evidence(names=(numbers(),)), ""),
    "numbers, other values": (Evidence(names=(numbers(AGES, CONSTANT, NEARLY),)), ""),
    "numbers, one column agrees": (Evidence(names=(numbers(AGES, SEXES),)), "sex agrees"),
    "numbers, few records that can't tell": (Evidence(names=(numbers(SALARIES),)), ""),
    "numbers, few records, equal ones": (
        Evidence(names=(numbers(SALARIES),), records=records(FEWER, FINE, 399)),
        "records are equal",
    ),
    "numbers in one of both alone": (Evidence(names=(CommonNames("ids", 3),)), "ids are here"),
    "numbers of this source": (Evidence(same_source=True, names=(numbers(AGES),)), "ids are here"),
    "numbers of one stated space": (
        Evidence(names=(numbers(AGES, spaces=("admissions", "admissions")),)),
        "ids are here",
    ),
    "one space stated, the other not": (
        Evidence(names=(numbers(SEXES, spaces=("admissions", None)),)),
        "source.id_space",
    ),
    "ids of different stated spaces": (Evidence(names=(CommonNames("ids", 200, spaces=SPACES),)), ""),
    "different stated spaces, the same records": (
        Evidence(names=(CommonNames("ids", 200, spaces=SPACES),), records=records(FINE, FINE, 400)),
        "records are equal",
    ),
    "different stated spaces of this source": (
        Evidence(same_source=True, named=True, names=(CommonNames("ids", 0, spaces=SPACES),)),
        "its people may be here again",
    ),
    "other people of this source": (Evidence(same_source=True, named=True, names=(CommonNames("ids", 0),)), ""),
    "this source without ids": (Evidence(same_source=True), "without source.id"),
    "this source, ids of records and persons promised": (
        Evidence(same_source=True, named=True, names=(CommonNames("ids", 0, tells=False),)),
        "names records, not persons",
    ),
    "another source without ids": (Evidence(records=records(FINE, OTHER_FINE, 10)), ""),
    "a copy less one record": (Evidence(records=records(FEWER, FINE, 399)), "records are equal"),
    "a part of it among others": (Evidence(records=records(FINE, OTHER_FINE, 130)), "records are equal"),
    "a copy of a few kinds of records": (Evidence(records=records(COARSE, COARSE, 400)), "records are equal"),
    "two tables of the same few kinds": (Evidence(records=records(COARSE, OTHER_COARSE, 400)), ""),
    "nothing published": (Evidence(records=records(RecordSummary(0, 0, 0, "0"), RecordSummary(0, 0, 0, "0"), 0)), ""),
    "columns missing, one with the same values": (
        Evidence(missing=True, columns=(EqualColumns("a", "age", -90.0),), compared=9),
        "column 'a' holds the values of its column 'age'",
    ),
    "columns missing, a coarse one with the same values": (
        Evidence(missing=True, columns=(EqualColumns("g", "sex", -4.0),), compared=9),
        "",
    ),
    "no column missing, so that records decide": (
        Evidence(records=records(FINE, OTHER_FINE, 3), columns=(EqualColumns("age", "age", -90.0),)),
        "",
    ),
    "columns in another order": (
        Evidence(records=(*records(FINE, OTHER_FINE, 0), *records(FINE, FINE, 400)), compared=4),
        "records are equal",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_cases(case: str) -> None:
    evidence, why = CASES[case]
    verdict = judge_evidence(evidence)
    assert verdict.is_same == bool(why)
    assert why in verdict.why
    assert verdict.assumed == (evidence.same_source and verdict.is_same and "may be here again" in verdict.why)


# Chance ---------------------------------------------------------------------------------------------------------------

POPULATIONS: dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]] = {
    "two values": lambda rng, n: rng.integers(0, 2, n),
    "nearly constant": lambda rng, n: (rng.random(n) < 0.01).astype(np.int64),
    "ten values": lambda rng, n: rng.integers(0, 10, n),
    "zipf": lambda rng, n: np.minimum(rng.zipf(1.5, n), 10**4),
    "nearly all different": lambda rng, n: rng.integers(0, 10**6, n),
}


def agreement(one: NDArray[np.int64], two: NDArray[np.int64]) -> Agreement:
    """How two columns agree place by place."""
    theirs, ours = Counter(one.tolist()), Counter(two.tolist())
    products = sum(count * ours[value] for value, count in theirs.items())
    return Agreement("x", len(one), int((one == two).sum()), products / len(one))


@pytest.mark.parametrize("population", POPULATIONS)
def test_samples_with_ids_from_1_on_do_not_agree_beyond_chance(population: str) -> None:
    """Disjoint samples of one population; the bound promises one false alarm in a million, here are 1,000 pairs."""
    rng = np.random.default_rng(3)
    for n in rng.integers(2, 400, 1000):
        one, two = POPULATIONS[population](rng, 2 * int(n)).reshape(2, -1)
        assert not judge_evidence(Evidence(names=(numbers(agreement(one, two)),))).is_same


@pytest.mark.parametrize("population", POPULATIONS)
def test_the_bound_on_agreement_holds(population: str) -> None:
    """Of random pairings at most the stated share has so many equal values."""
    rng = np.random.default_rng(4)
    one, two = POPULATIONS[population](rng, 40).reshape(2, -1)
    found = [agreement(one, rng.permutation(two)) for _ in range(2000)]
    for equal in {pairing.equal for pairing in found}:
        bound = e_to(Agreement("x", 20, equal, found[0].expected).log_chance)
        assert np.mean([pairing.equal >= equal for pairing in found]) <= bound + 0.03


@pytest.mark.parametrize(
    ("values", "n", "noticed"), [(2, 200, True), (2, 60, False), (90, 30, True), (10**6, 12, True), (10**6, 8, False)]
)
def test_the_same_column_along_ids_is_noticed(values: int, n: int, noticed: bool) -> None:
    column = np.arange(n) * 7919 % values
    assert judge_evidence(Evidence(names=(numbers(agreement(column, column)),))).is_same == noticed


def test_half_of_a_column_is_enough() -> None:
    rng = np.random.default_rng(5)
    one, two = rng.integers(0, 50, (2, 300))
    two[:60] = one[:60]
    assert judge_evidence(Evidence(names=(numbers(agreement(one, two)),))).is_same


def histogram(values: NDArray[np.int64]) -> dict[int, int]:
    """How many values occur so many times."""
    return dict(Counter(Counter(values.tolist()).values()))


def equal(one: NDArray[np.int64], two: NDArray[np.int64]) -> bool:
    """Whether two tables of one column, which has another name in each, pass for the same people."""
    if Counter(one.tolist()) != Counter(two.tolist()):
        return False
    return judge_evidence(Evidence(missing=True, columns=(EqualColumns("x", "y", log_chance(histogram(one))),))).is_same


@pytest.mark.parametrize("population", POPULATIONS)
def test_disjoint_samples_of_one_population_have_no_improbable_histogram_in_common(population: str) -> None:
    """At most one false alarm in 1,000, also where both samples are halves of a population; here are 3,000 pairs."""
    rng, alarms = np.random.default_rng(6), 0
    for n in rng.integers(2, 300, 3000):
        one, two = POPULATIONS[population](rng, 2 * int(n)).reshape(2, -1)
        alarms += equal(one, two)
    for n in rng.integers(2, 60, 1000):  # of a population of pairs of equal records
        one, two = rng.permutation(np.repeat(POPULATIONS[population](rng, int(n)), 2)).reshape(2, -1)
        alarms += equal(one, two)
    assert alarms <= 4


def test_a_renamed_column_is_noticed() -> None:
    ages = np.random.default_rng(7).integers(18, 90, 200)
    assert equal(ages, np.random.default_rng(8).permutation(ages))
    assert not equal(ages % 2, ages % 2)


# Sketches -------------------------------------------------------------------------------------------------------------


def sketch(values: NDArray[np.int64]) -> RecordSketch:
    """Of records that are alike if their numbers are, in several parts."""
    hashes = scatter_bits(values.astype(np.uint64))
    return RecordSketch.collect([(part, None) for part in np.array_split(hashes, 5)], len(values))


@pytest.mark.parametrize(("exact", "sample"), [(2**20, 2**16), (100, 50), (100, 5000)])
def test_an_engine_takes_the_same_sketch(monkeypatch: pytest.MonkeyPatch, exact: int, sample: int) -> None:
    """All of the hashes, the smallest of many, and all of few that many records share."""
    monkeypatch.setattr(evidence, "EXACT", exact)
    monkeypatch.setattr(evidence, "SAMPLE", sample)
    key, values = seed_key(3), [(column("a"), "BIGINT"), (column("b"), "VARCHAR")]
    with open_scratch() as db:
        texts = [None if i % 7 == 0 else f"x{i % 13}" for i in range(5000)]
        db.register_arrow("source", pa.table({"a": [i * i % 41 for i in range(5000)], "b": texts}))
        read = (temp_table("source"), column("a").neq(exp.Literal.number(5)))
        here = RecordSketch.collect(((part, None) for part in hash_columns(db, values, *read, key)), 5000)
        db.register_arrow(SECRET, secret_word(key))
        there = RecordSketch.collect_there(db, query_hashes(db, values, *read))
    assert there.summary == here.summary
    assert there.as_table() == here.as_table()


def compared(one: RecordSketch, other: RecordSketch) -> bool:
    """Whether two tables pass for the same people by their records."""
    ours, theirs = (a.summarize_below(b.summary.limit) for a, b in ((one, other), (other, one)))
    times = dict(zip(other.hashes.tolist(), other.records.tolist(), strict=True))
    pairs = [(mine, times[h]) for h, mine in zip(one.hashes.tolist(), one.records.tolist(), strict=True) if h in times]
    met = sum(b for _, b in pairs), sum(a for a, _ in pairs), sum(map(min, pairs))
    return judge_evidence(Evidence(records=(CommonRecords(ours, theirs, *met),))).is_same


def test_a_sketch_holds_all_records_or_the_smallest_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(9).integers(0, 3_000, 5_000)
    whole = sketch(values)
    assert dict(zip(whole.hashes.tolist(), whole.records.tolist(), strict=True)) == Counter(
        (scatter_bits(values.astype(np.uint64)) >> np.uint64(1)).tolist()
    )
    monkeypatch.setattr(evidence, "EXACT", 1_000)
    monkeypatch.setattr(evidence, "SAMPLE", 200)
    sampled = sketch(values)
    assert (sampled.hashes.tolist(), sampled.summary.limit) == (whole.hashes[:200].tolist(), whole.hashes[200])
    assert sampled.records.tolist() == whole.records[:200].tolist()
    assert (sampled.summary.records, sampled.summary.fingerprint) == (5_000, whole.summary.fingerprint)
    assert whole.summarize_below(sampled.summary.limit) == replace(sampled.summary, records=int(sampled.records.sum()))


def test_sketches_find_what_is_common_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of 20,000 records and sketches of 2,000: a fifth in common is found, and no disjoint samples are."""
    monkeypatch.setattr(evidence, "EXACT", 1_000)
    monkeypatch.setattr(evidence, "SAMPLE", 2_000)
    rng = np.random.default_rng(10)
    for domain in (50, 10**4, 10**5, 10**7):
        one, two, three = rng.integers(0, domain, (3, 20_000))
        assert not compared(sketch(one), sketch(two))
        assert not compared(sketch(one[:500]), sketch(two))
        assert compared(sketch(one), sketch(one))
        if domain >= 10**5:
            assert compared(sketch(one), sketch(np.concatenate([one[:4_000], three[4_000:]])))
            assert compared(sketch(one), sketch(one[:900]))
