"""Quasi-identifiers and sensitive values of a source compared together with a release: never a false alarm."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.mechanisms.bucketize import joint as joints
from privsql.mechanisms.bucketize.joint import (
    MarginRows,
    MarginSums,
    SourceSums,
    is_by_value,
    take_known,
    tighten_bounds,
)
from privsql.model.arrays import largest_transport
from support.commands import PEOPLE, run, specification, succeeded, write
from support.effort import share
from support.loops import rest_slow
from support.tampering import failed

if TYPE_CHECKING:
    from pathlib import Path

CHECK = "the buckets fit the source's records"
Record = tuple[int, int, int]  # quasi-identifiers, value, bucket
Pairs = list[tuple[int, int]]


def sums_of(source: Pairs, rows: Pairs, listed: Pairs) -> dict[str, MarginSums]:
    """The three kinds of sums of a source (q, x), of a release's rows (q, g) and of what its buckets list (g, x)."""
    counts = [Counter(source), Counter(rows), Counter(listed)]
    places = [{key: place for place, key in enumerate(sorted(one))} for one in counts]
    triples = [
        (places[0][q, x], places[1][q, g], places[2][g, x])
        for (q, x), (p, g) in itertools.product(counts[0], counts[1])
        if p == q and (g, x) in counts[2]
    ]
    met = np.array(triples, dtype=np.int64).reshape(-1, 3)
    n = [np.array([one[key] for key in sorted(one)], dtype=np.int64) for one in counts]
    return {name: MarginSums(met[:, k], n[k], n[k]) for k, name in enumerate(joints.KINDS)}


def possible(source: Pairs, rows: Pairs, listed: Pairs) -> bool:
    """Whether the rows can be given the source's values so that every bucket lists what it lists; tries all ways."""
    mine = Counter(source)
    for values in set(itertools.permutations([x for _, x in source])):
        if Counter((q, x) for (q, _), x in zip(rows, values, strict=True)) == mine and Counter(
            (g, x) for (_, g), x in zip(rows, values, strict=True)
        ) == Counter(listed):
            return True
    return False


RECORDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6)


def shuffle_values(records: list[Record], dice: object) -> tuple[Pairs, Pairs, Pairs]:
    """Return (q, x) of a source with shuffled values, and (q, g) and (g, x) of the release of these records."""
    rows, listed = [(q, g) for q, _, g in records], [(g, x) for _, x, g in records]
    values = [x for _, x, _ in records]
    dice.shuffle(values)  # type: ignore[attr-defined]
    source = [(q, x) for (q, _), x in zip(rows, values, strict=True)]
    return source, rows, listed


@given(RECORDS)
@settings(max_examples=share(300))
def test_a_true_release_is_never_refused(records: list[Record]) -> None:
    source = [(q, x) for q, x, _ in records]
    found = tighten_bounds(sums_of(source, [(q, g) for q, _, g in records], [(g, x) for _, x, g in records]))
    assert not found.wrong
    assert int(found.low.sum()) <= len(records)


@given(RECORDS, st.randoms(use_true_random=False))
@settings(max_examples=share(300))
def test_what_is_refused_is_impossible_and_one_row_of_each_kind_is_decided(records: list[Record], dice: object) -> None:
    source, rows, listed = shuffle_values(records, dice)
    refused = bool(tighten_bounds(sums_of(source, rows, listed)).wrong)
    feasible = possible(source, rows, listed)
    assert not (refused and feasible)
    if len({q for q, _ in rows}) == len(rows):
        assert refused != feasible


def margins_of(source: Pairs, rows: Pairs, listed: Pairs) -> dict[str, MarginRows]:
    """The rows of the three kinds of sums."""
    found = {}
    for name, pairs in zip(joints.KINDS, (source, rows, listed), strict=True):
        counts = Counter(pairs)
        first, second = np.array(sorted(counts), dtype=np.int64).T
        n = np.array([counts[key] for key in sorted(counts)], dtype=np.int64)
        found[name] = MarginRows(first, second, n, n)
    return found


@given(RECORDS, st.randoms(use_true_random=False))
@settings(max_examples=share(300))
def test_what_single_values_and_buckets_tell_is_taken_out(records: list[Record], dice: object) -> None:
    """The rest is possible exactly if all is; a contradiction takes nothing out."""
    source, rows, listed = shuffle_values(records, dice)
    margins = margins_of(source, rows, listed)
    sums = SourceSums.collect([(margins["own"], margins["lying"])], place=True, left_out=False)
    due = take_known(margins["listed"], sums.known)
    single = {q for q, _ in rows if 1 in (len({x for p, x in source if p == q}), len({g for p, g in rows if p == q}))}
    if due is None:
        assert single
        assert not possible(source, rows, listed)
        return
    others = [pair for pair in source if pair[0] not in single]
    assert len(sums.known) == len(records) - len(others)
    left = [pair for pair in rows if pair[0] not in single]
    parts = zip(due.first.tolist(), due.second.tolist(), due.most.tolist(), strict=True)
    assert possible(others, left, [(g, x) for g, x, n in parts for _ in range(n)]) == possible(source, rows, listed)


@given(st.lists(RECORDS, min_size=1, max_size=3))
@settings(max_examples=share(100))
def test_parts_of_a_source_are_counted_as_the_whole_is(parts: list[list[Record]]) -> None:
    """Parts number their q from 0."""
    whole, each, first = [], [], 0
    for records in parts:
        own, lying, _ = margins_of(*zip(*(((q, x), (q, g), (g, x)) for q, x, g in records), strict=True)).values()
        each.append((own, lying))
        whole += [(q + first, x, g) for q, x, g in records]
        first += max(q for q, *_ in records) + 1
    margins = margins_of(*zip(*(((q, x), (q, g), (g, x)) for q, x, g in whole), strict=True))
    for left_out in (False, True):
        joined = SourceSums.collect(each, place=True, left_out=left_out)
        expected = SourceSums.collect([(margins["own"], margins["lying"])], place=True, left_out=left_out)
        assert joined.known.tolist() == expected.known.tolist()
        assert joined.had.tolist() == expected.had.tolist()
        for one, other in ((joined.own, expected.own), (joined.lying, expected.lying)):
            assert [column.tolist() for column in vars(one).values()] == [
                column.tolist() for column in vars(other).values()
            ]


def test_the_most_frequent_combinations_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 + 2 * 2 are within 5, 3 * 2 more are not: a bucket of 2 meets no combination with more than 2 values."""
    monkeypatch.setattr(joints, "MOST", 5)
    n = np.array([3, 1, 1, 1])
    own = MarginRows(np.array([0, 1, 2, 2]), np.array([4, 4, 4, 5]), n, n)
    lying = MarginRows(np.array([0, 0, 0, 1, 2, 2]), np.arange(6), *[np.ones(6, np.int64)] * 2)
    joined, places = joints._join_frequent(own, lying, 2)
    assert joined.first.tolist() == [1, 2, 2, joints.TOGETHER]
    assert (joined.second.tolist(), joined.least.tolist()) == ([4, 4, 5, 4], [1, 1, 1, 3])
    assert sorted(places.second[places.first == joints.TOGETHER].tolist()) == [0, 1, 2]
    monkeypatch.setattr(joints, "MOST", 11)
    assert joints._join_frequent(own, lying, 2) == (own, lying)


def test_each_combination_is_looked_at_by_what_is_less() -> None:
    """One with a value more than its buckets list is looked at by their lists, all others by their own values."""
    n = np.ones(9, dtype=np.int64)
    own = MarginRows(np.array([0, 0, 0, 1, joints.FAKES]), np.array([0, 1, 2, 0, 0]), n[:5], n[:5])
    lying = MarginRows(
        np.array([0, 1, 1, joints.FAKES, 0, 2]), np.array([0, 0, 1, 1, joints.LEFT_OUT, 3]), n[:6], n[:6]
    )
    listed = MarginRows(np.array([0, 0, 1, joints.LEFT_OUT]), np.array([0, 1, 0, 0]), n[:4], n[:4])
    found = is_by_value({"own": own, "lying": lying, "listed": listed})
    assert found.tolist() == [False, True, True, True, False, True]


def test_a_flow_counts_what_can_go_from_one_kind_of_sums_to_another() -> None:
    ways, one = (np.array([0, 0, 1, 2]), np.array([0, 1, 2, 2])), np.ones(3, dtype=np.int64)
    assert largest_transport(one, one, ways, np.ones(4, dtype=np.int64)) == 2
    assert largest_transport(one, 2 * one, ways, np.ones(4, dtype=np.int64)) == 3
    nothing = np.zeros(0, dtype=np.int64)
    assert largest_transport(nothing, one, (nothing, nothing), nothing) == 0


# Releases ---


def shuffled(source: Path, to: Path) -> Path:
    """The table with its sensitive column in another order: as many of each value, with other people."""
    return write(
        to,
        f"""SELECT a.* EXCLUDE (disease, i), b.disease
        FROM (SELECT *, row_number() OVER () AS i FROM '{source}') a
        JOIN (SELECT disease, row_number() OVER (ORDER BY hash(j)) AS i
              FROM (SELECT disease, row_number() OVER () AS j FROM '{source}')) b USING (i)""",
    )


LAWS = {
    "plain": 'algorithm = "two-size"\nthreshold = "2*f + 0.1"',
    "fakes": "threshold = 0.5\nmax_bucket_size = 2\nfake_values = 1",
    "both": 'threshold = 0.25\nfake_values = 1\nuneven_fakes = "state"\nexcess = "suppress"\nabsence = "unobservable"',
    "suppressed": 'threshold = 0.25\nexcess = "suppress"\nabsence = "unobservable"',
}


@pytest.mark.slow
@pytest.mark.parametrize("law", rest_slow(LAWS))
def test_a_shuffled_column_is_found_and_the_source_passes(tmp_path: Path, law: str) -> None:
    people = write(
        tmp_path / "people.parquet",
        f"SELECT CASE WHEN age % 9 = 0 THEN NULL ELSE age END AS age, sex, zip, disease FROM ({PEOPLE.format(n=600)})",
    )
    spec = specification(tmp_path, mechanism=LAWS[law])
    succeeded("publish", spec, "--seed", 1)
    shown = succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json
    compared = next(check["compared"] for check in shown["checks"] if CHECK in check["name"])
    assert " of 600 records have one possible place" in compared
    other = shuffled(people, tmp_path / "other.parquet")
    changed = specification(tmp_path, source=f'file = "{other.name}"', mechanism=LAWS[law], name="other.toml")
    found = failed(run("verify", tmp_path / "ill.duckdb", "--source", changed, "--json"))
    assert [name for name in found if CHECK in name]


@pytest.mark.slow
def test_two_people_who_swap_values_are_found(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    spec = specification(tmp_path)
    succeeded("publish", spec, "--seed", 1)
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE t AS SELECT *, row_number() OVER () AS i FROM '{tmp_path / 'people.parquet'}'")
        (first, second) = db.execute(
            "SELECT min(i) FILTER (disease = 'HIV'), min(i) FILTER (disease = 'flu') FROM t"
        ).fetchall()[0]
        db.execute(
            f"UPDATE t SET disease = CASE i WHEN {first} THEN 'flu' ELSE 'HIV' END WHERE i IN ({first}, {second})"
        )
        db.execute(f"COPY (SELECT * EXCLUDE i FROM t) TO '{tmp_path / 'people.parquet'}'")
    found = failed(run("verify", tmp_path / "ill.duckdb", "--source", spec, "--json"))
    assert [name for name in found if CHECK in name]


@pytest.mark.slow
def test_quasi_identifiers_that_tell_nothing_refuse_nothing_and_that_is_said(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    spec = specification(tmp_path, columns='quasi_identifiers = ["sex"]\nsensitive = "disease"')
    succeeded("publish", spec, "--seed", 1)
    shown = succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json
    compared = next(check["compared"] for check in shown["checks"] if CHECK in check["name"])
    assert "by bounds and flows" in compared


@pytest.mark.slow
def test_the_most_frequent_quasi_identifiers_count_as_one_where_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joints, "MOST", 150)
    people = write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    columns = 'quasi_identifiers = ["age", "sex"]\nsensitive = "disease"'
    spec = specification(tmp_path, columns=columns)
    succeeded("publish", spec, "--seed", 1)
    shown = succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json
    compared = next(check["compared"] for check in shown["checks"] if CHECK in check["name"])
    assert "counted as one" in compared
    changed = specification(
        tmp_path, columns=columns, source=f'file = "{shuffled(people, tmp_path / "o.parquet").name}"', name="o.toml"
    )
    assert any(CHECK in name for name in failed(run("verify", tmp_path / "ill.duckdb", "--source", changed, "--json")))
