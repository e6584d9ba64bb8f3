"""The linear estimator: counts as sums of weights, in any SQL tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privsql
from privsql.answers.channel import JITTER, TINY
from privsql.mechanisms.bucketize import answers
from privsql.mechanisms.bucketize.estimator import (
    TYPICAL_SHARE,
    TYPICAL_STRENGTH,
    LinearEstimator,
    ListedPairs,
    choose_weighting,
    make_linear_estimator,
)
from privsql.model.estimates import same_nan
from support.commands import by_keys, rows, run, succeeded
from support.loops import slow_but
from support.tampering import changed, failed, with_facts

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]

SHOWN = "the linear estimator follows from the channel"
QUERIES = (
    "SELECT COUNT(*) FROM people WHERE age > 2 AND ill = 3",
    "SELECT COUNT(*) FROM people WHERE age > 2 AND age < 1 AND ill = 3",
    "SELECT age, sex, COUNT(*) FROM people WHERE ill < 4 GROUP BY age, sex",
    "SELECT age, ill, COUNT(*) FROM people WHERE sex = 1 GROUP BY age, ill",
    "SELECT COUNT(*) FROM people WHERE ill = 2 OR (age = 3 AND ill = 5)",
)


def estimator_of(lists: NDArray[np.int64]) -> LinearEstimator:
    """The estimator of buckets (b, m): how often each of them lists each value."""
    parts = []
    sizes = lists.sum(axis=1)
    for size in np.unique(sizes).tolist():
        some = lists[sizes == size]
        pairs = some.T @ some
        first, second = np.nonzero(np.triu(pairs))
        parts.append((np.full(len(first), size), first, second, pairs[first, second]))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    channel = pa.table(dict(zip(("size", "first", "second", "pairs"), columns, strict=True)))
    return make_linear_estimator(ListedPairs.read(channel, np.unique(sizes).tolist()).moment)


def random_lists(seed: int, values: int, buckets: int, size: int) -> NDArray[np.int64]:
    """Buckets of two sizes that list every value."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(values, 2.0))
    lists = np.array([rng.multinomial(size + i % 2, chances) for i in range(buckets)])
    lists[np.arange(values) % buckets, np.arange(values)] += 1
    return lists


def weigh_by_algebra(lists: NDArray[np.int64]) -> Reals:
    """W by matrix algebra, as the module's formula has it."""
    sizes, records = lists.sum(axis=1), lists.sum(axis=0)
    total = records.sum()
    shares = records / total
    seen = lists / sizes[:, None]
    moment = seen.T @ (sizes[:, None] * seen)
    mean = moment / records[:, None]
    spread = shares**1.5 * (shares**2).sum() / (shares**1.5).sum() * TYPICAL_STRENGTH**2
    typical = TYPICAL_SHARE * total
    prior = np.diag(spread + shares / typical)
    noise = (1 - TYPICAL_SHARE) / typical * (moment / total - mean.T @ np.diag(shares) @ mean)
    system = mean.T @ prior @ mean + noise
    system += (JITTER * np.trace(system) / len(system) + TINY**0.5) * np.eye(len(system))
    gain = np.linalg.solve(system, mean.T @ prior)
    gain += (1 - gain.sum(axis=1))[:, None] * shares
    return np.asarray(shares + gain - shares @ gain)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 30), st.integers(1, 6))
def test_weights_add_up_and_are_those_of_the_formula(seed: int, values: int, buckets: int, size: int) -> None:
    lists = random_lists(seed, values, buckets, size)
    found = estimator_of(lists)
    sizes = lists.sum(axis=1)
    by_bucket = lists / sizes[:, None] @ found.weights  # (b, m), of each of its records
    assert np.abs(by_bucket.sum(axis=1) - 1).max() < 1e-9
    assert np.abs(sizes @ by_bucket - lists.sum(axis=0)).max() < 1e-9 * lists.sum()
    added = np.repeat(by_bucket, sizes, axis=0)  # (n, m), by every record
    true = np.eye(values)[np.concatenate([np.repeat(np.arange(values), row) for row in lists])]
    variances = np.maximum(added.var(axis=0), (added - true).var(axis=0))
    np.testing.assert_allclose(found.deviations, np.sqrt(variances) * (1 + 1e-6 * np.arange(values)), atol=1e-6)
    np.testing.assert_allclose(found.weights, weigh_by_algebra(lists), atol=1e-4)


def test_a_release_holds_the_matrix_where_it_is_small_beside_the_records() -> None:
    assert choose_weighting([(4, 1)], 128) == "linear"
    assert choose_weighting([(4, 1)], 129) == "share"
    assert choose_weighting([(4, 33_282)], 129) == "linear"  # 8 records for each of 129^2 weights
    assert choose_weighting([(4, 33_281)], 129) == "share"
    assert choose_weighting([(4, 10**8)], 1000) == "linear"
    assert choose_weighting([(4, 10**8)], 1001) == "share"


def simulate(questions: int, seed: int) -> tuple[Reals, Reals, Reals, Reals]:
    """Truth, estimates, the literature's formula and standard errors of counts in a table of 12,000 records."""
    rng = np.random.default_rng(seed)
    values, buckets, size = 10, 3000, 4
    lists = np.zeros((buckets, values), dtype=np.int64)
    order = np.argsort(rng.random((buckets, values)), axis=1)[:, :size]
    np.put_along_axis(lists, order, 1, axis=1)
    holds = order.ravel()  # the value of each record; records of a value take its places in random order
    place = np.repeat(np.arange(buckets), size)
    linear = estimator_of(lists)
    by_record = (lists / size)[place]
    weights = by_record @ linear.weights
    truth, found, literature, errors = [], [], [], []
    for _ in range(questions):
        tilt = rng.dirichlet(np.full(values, 3.0)) * 1.2
        chosen = rng.random(len(holds)) < np.minimum(tilt[holds], 1)
        truth.append(np.bincount(holds[chosen], minlength=values))
        found.append(weights[chosen].sum(axis=0))
        literature.append(by_record[chosen].sum(axis=0))
        errors.append(linear.deviations * np.sqrt(chosen.sum() * (1 - chosen.mean())))
    return tuple(np.array(one, dtype=np.float64) for one in (truth, found, literature, errors))  # type: ignore[return-value]


def test_values_that_the_lists_do_not_tell_apart_have_deviations_that_differ() -> None:
    """Every bucket lists each value once, so an estimate is n/m, and the truth alone varies."""
    found = estimator_of(np.ones((30, 4), dtype=np.int64))
    np.testing.assert_allclose(found.weights, 0.25, atol=1e-6)
    np.testing.assert_allclose(found.deviations, np.sqrt(0.25 * 0.75), rtol=1e-5)
    assert (np.diff(found.deviations) > 0).all()


def test_sums_of_weights_are_near_the_truth_and_standard_errors_say_how_near() -> None:
    """400 counts of one seed; the standard deviation of z over them lies within .15 of its mean by five of its own."""
    truth, found, literature, errors = simulate(40, 1)
    z = (found - truth) / errors
    assert 0.75 < np.sqrt((z**2).mean()) < 1.15
    assert np.abs(found - truth).mean() < 0.5 * np.abs(literature - truth).mean()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of 600 records with NULL on both sides and columns that are called as privsql's own."""
    folder = tmp_path_factory.mktemp("linear")
    sql = """SELECT CASE WHEN i % 7 = 0 THEN NULL ELSE i % 13 END AS weight,
      CASE WHEN i % 6 = 0 THEN NULL ELSE 'job ' || i % 6 END AS job, i // 60 % 2 = 0 AS deviation
      FROM range(600) AS r(i)"""
    with duckdb.connect() as db:
        db.execute(f"COPY ({sql}) TO '{folder / 'people.parquet'}'")
    flags = (
        "--sensitive",
        "job,deviation",
        "--qi",
        "weight",
        "--threshold",
        "1/4",
        "--seed",
        "3",
        "--set",
        "ledger.off=true",
    )
    flags += ("--set", "columns.nulls.job=value", "--set", "mechanism.allow_certain=true")
    succeeded("publish", folder / "people.parquet", *flags, "--to", folder / "jobs.duckdb")
    return folder


def test_intervals_say_where_a_release_says_nothing(tmp_path: Path) -> None:
    """Half have each of two values, and every bucket holds both: who has which can't be known, however they differ."""
    ill = np.tile(["a", "b"], 300)
    people = pa.table({"sex": (ill == "a").astype(int), "ward": np.arange(600) % 3, "ill": ill})
    mechanism = {"kind": "bucketize", "threshold": "1/2"}
    released = privsql.publish(
        people,
        qi=["sex", "ward"],
        sensitive="ill",
        to=tmp_path / "r.duckdb",
        seed=1,
        set={"mechanism": mechanism, "release": {"name": "people"}, "ledger": {"off": True}},
    )
    assert released.stated.sizes == [(2, 300)]
    with privsql.open(tmp_path / "r.duckdb") as release:
        found = release.query("SELECT sex, ill, COUNT(*) FROM people GROUP BY sex, ill").rows
    for sex, value, *_, low, high in found:
        assert low <= (300 if (sex == 1) == (value == "a") else 0) <= high


@pytest.mark.slow
@pytest.mark.parametrize("values", [3, 10])
def test_intervals_of_few_values_hold_as_often_as_they_say(tmp_path: Path, values: int) -> None:
    """93 to 99.5 % of 2,000 counts and more; with Student's quantile of the values less one nearly all of three did."""
    held = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        codes = {name: rng.integers(0, levels, 6_000) for name, levels in (("a", 2), ("b", 5), ("c", 30))}
        odds = sum(rng.normal(size=(len(np.unique(one)), values))[one] for one in codes.values())
        ill = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
        privsql.publish(
            pa.table({**codes, "ill": ill}),
            qi=["a", "b", "c"],
            sensitive="ill",
            to=tmp_path / "r.duckdb",
            replace=True,
            seed=seed,
            allow_useless=True,
            set={
                "mechanism": {"kind": "bucketize", "threshold": f"{np.bincount(ill).max() / 6_000 + 0.1:.3f}"},
                "columns": {"categorical": True},
                "release": {"name": "people"},
                "ledger": {"off": True},
            },
        )
        with privsql.open(tmp_path / "r.duckdb") as release:
            for keys in (["a"], ["b"], ["c"], ["a", "b"], ["a", "c"], ["b", "c"]):
                cells, true = np.unique(np.stack([*(codes[key] for key in keys), ill]), axis=1, return_counts=True)
                truth = dict(zip(map(tuple, cells.T.tolist()), true.tolist(), strict=True))
                listed = ", ".join([*keys, "ill"])
                rows = release.query(f"SELECT {listed}, COUNT(*) FROM people GROUP BY {listed}").rows
                held += [row[-2] <= truth.get(row[:-4], 0) <= row[-1] for row in rows]
    assert len(held) > 2_000
    assert 0.93 < np.mean(held) < 0.995


@pytest.mark.slow
def test_a_large_group_is_not_moved_for_the_sake_of_small_ones(tmp_path: Path) -> None:
    """Counts of 1,000 small groups, none below 0, are too many together; the large group keeps its precise counts."""
    rng = np.random.default_rng(2)
    town = np.where(rng.random(24_000) < 0.5, 0, rng.integers(1, 1_001, 24_000))
    shares = rng.dirichlet(np.full(4, 2.0), 1_001)
    ill = (shares[town].cumsum(axis=1) < rng.random((24_000, 1))).sum(axis=1)
    privsql.publish(
        pa.table({"town": town, "ill": ill}),
        qi=["town"],
        sensitive="ill",
        to=tmp_path / "r.duckdb",
        seed=1,
        allow_useless=True,
        set={
            "mechanism": {"kind": "bucketize", "threshold": "0.4", "algorithm": "two-size"},
            "columns": {"categorical": True},
            "release": {"name": "people"},
            "ledger": {"off": True},
        },
    )
    with privsql.open(tmp_path / "r.duckdb") as release:
        found = release.query("SELECT town, ill, COUNT(*) FROM people GROUP BY town, ill").rows
    far = [(row[2] - (ill[town == 0] == row[1]).sum()) / row[3] for row in found if row[0] == 0]
    assert len(far) == 4
    assert np.abs(far).max() < 3
    assert np.mean(np.square(far)) < 2


@pytest.mark.slow
def test_any_sql_tool_counts_by_weights(jobs: Path) -> None:
    release = jobs / "jobs.duckdb"
    ((total,),) = rows(release, "SELECT sum(weight_) FROM people_weighted")
    assert total == pytest.approx(600)
    sql = """SELECT job, deviation, sum(weight_) - any_value(records) FROM people_weighted
      JOIN privsql_values USING (job, deviation) GROUP BY ALL"""
    assert all(abs(off) < 1e-6 for *_, off in rows(release, sql))
    ((null,),) = rows(release, "SELECT sum(weight_) FROM people_weighted WHERE job IS NULL")
    assert null == pytest.approx(100)
    sql = """SELECT sum(weight_), count(DISTINCT (job, deviation)) FROM people_weighted WHERE weight = 5"""
    ((of_group, values),) = rows(release, sql)
    ((records,),) = rows(release, "SELECT count(*) FROM qit WHERE weight = 5")
    assert (of_group, values) == (pytest.approx(records), 12)
    named = rows(release, "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal")
    assert {name for name, _ in named} == {"people_weighted", "people_pairs"}
    assert all(comment.startswith("count with SUM(weight)") for _, comment in named)


@pytest.mark.slow
def test_a_release_without_the_matrix_counts_by_shares(tmp_path: Path) -> None:
    sql = "SELECT i % 5 AS age, 'v' || i % 130 AS code FROM range(1040) AS r(i)"
    with duckdb.connect() as db:
        db.execute(f"COPY ({sql}) TO '{tmp_path / 'people.parquet'}'")
    flags = ("--sensitive", "code", "--qi", "age", "--threshold", "1/4", "--seed", "3", "--set", "ledger.off=true")
    succeeded("publish", tmp_path / "people.parquet", *flags, "--to", tmp_path / "r.duckdb")
    succeeded("verify", tmp_path / "r.duckdb")
    found = rows(tmp_path / "r.duckdb", "SELECT count(*), sum(weight), count(DISTINCT weight) FROM people_weighted")
    assert found == [(4160, pytest.approx(1040), 1)]


CHANGES: dict[str, tuple[Any, str]] = {
    "a weight": ("UPDATE privsql_estimator SET weight = weight + 1e-6 WHERE listed = 1 AND value = 2", SHOWN),
    "no weight": ("UPDATE privsql_estimator SET weight = NULL WHERE listed = 1 AND value = 2", SHOWN),
    "no value": ("UPDATE privsql_estimator SET listed = NULL WHERE listed = 1 AND value = 2", SHOWN),
    "a weight twice": ("UPDATE privsql_estimator SET value = 3 WHERE listed = 1 AND value = 2", SHOWN),
    "a weight less": ("DELETE FROM privsql_estimator WHERE listed = 1 AND value = 2", SHOWN),
    "a deviation": ("UPDATE privsql_values SET deviation_ = deviation_ * 1.01 WHERE code = 4", SHOWN),
    "the order": (
        """CREATE OR REPLACE TABLE privsql_estimator AS FROM privsql_estimator ORDER BY listed, value""",
        "the estimator's rows lie in order, once each",
    ),
    "another view": (with_facts(weighting="share"), "holds the stated tables and no other table, view or metadata"),
    "a comment": (
        "COMMENT ON VIEW people_pairs IS 'Ann has the flu'",
        "holds the stated tables and no other table, view or metadata",
    ),
}


@pytest.mark.parametrize("change", slow_but(CHANGES, "a weight", "the order"))
def test_a_changed_estimator_is_refused(jobs: Path, tmp_path: Path, change: str) -> None:
    sql, check = CHANGES[change]
    done = run("verify", changed(jobs / "jobs.duckdb", tmp_path, sql), "--json")
    assert done.code == 1, done.out
    assert check in failed(done)


@pytest.mark.slow
@pytest.mark.parametrize("fakes", [0, 2])
def test_sums_over_stored_lists_are_those_of_the_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: int
) -> None:
    rng = np.random.default_rng(4)
    drawn = {"age": rng.integers(0, 6, 600), "sex": rng.integers(0, 2, 600), "ill": rng.integers(0, 9, 600)}
    people = pa.table(drawn).set_column(0, "age", pa.array([one or None for one in drawn["age"].tolist()]))
    columns: dict[str, Any] = {"sensitive": "ill", "qi": ["age", "sex"], "threshold": "1/4"}
    to = tmp_path / "r.duckdb"
    privsql.publish(
        people,
        to=to,
        seed=1,
        **by_keys({**columns, "mechanism.fake_values": fakes, "release.name": "people", "ledger.off": True}),
    )
    found, read_lists, read = [], [], answers.read_lists
    monkeypatch.setattr(answers, "read_lists", lambda *args: read_lists.append(args) or read(*args))
    for most in (answers.MOST_LISTED, -1):
        monkeypatch.setattr(answers, "MOST_LISTED", most)
        with privsql.open(to) as release:
            found.append([release.query(text).rows for text in QUERIES])
    assert len(read_lists) == 1
    for stored, queried in zip(*found, strict=True):
        assert len(stored) == len(queried)
        for row, other in zip(stored, queried, strict=True):
            assert row == pytest.approx(other, abs=1e-9)


@pytest.mark.parametrize("kinds", [2, 60])
def test_sets_of_records_are_those_of_equal_values(kinds: int) -> None:
    """NULL, NaN and 0.0 = -0.0 are values like others, also where few of all combinations are met."""
    rng = np.random.default_rng([7, kinds])
    numbers = rng.choice([0.0, -0.0, np.nan, *range(1, kinds)], 400).tolist()
    texts = [f"v{one}" if one else None for one in rng.integers(0, kinds, 400).tolist()]
    near, far = rng.integers(-3, 3, 400).tolist(), rng.choice([-(2**62), 0, 2**62], 400).tolist()
    columns = [numbers, texts, [True, False] * 200, near, far]
    rows = pa.table({f"g_{i}": one for i, one in enumerate(columns)})
    rows = rows.set_column(1, "g_1", pa.array(texts).dictionary_encode())
    ranks, keys = answers.number_sets(rows, rows.column_names)
    expected = [tuple(map(same_nan, one)) for one in zip(*columns, strict=True)]
    assert [keys[rank] for rank in ranks.tolist()] == expected
    assert len(keys) == len(set(expected))


def test_no_records_make_no_set() -> None:
    ranks, keys = answers.number_sets(pa.table({"g_0": pa.array([], pa.int32())}), ["g_0"])
    assert (len(ranks), keys) == (0, [])
