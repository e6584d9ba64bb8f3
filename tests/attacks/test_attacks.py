"""Adversaries: the formulas, leaks that were planted, releases that are clean, noisy counts, and the command.

Every random choice has a fixed seed. The row-order test accuses a clean release with a probability of at most 1e-6; all
other findings of a fault are exact. Simulations are compared within 5 standard errors (false alarms: 6e-7 each).
"""

from __future__ import annotations

import json
import shutil
from itertools import permutations
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.attacks import adversaries, differential, suite
from privsql.attacks.scene import OUTSIDE, PROMISED, Block, Finding, ReleaseView, Tally, Truth
from privsql.dp_random import laplace
from privsql.engine.database import Reporter
from privsql.errors import GuaranteeError, UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import attacks
from privsql.mechanisms.bucketize.attacks import BucketAttackView
from privsql.mechanisms.registry import get_default_mechanism
from privsql.releases.opened import open_release
from privsql.source.spec import load
from privsql.source.targets import Target
from privsql.verbs import attack as adversary
from privsql.verbs.attack import Attacked, _draw_noise
from support.commands import refused, rows, run, specification, succeeded
from support.loops import each, rest_slow
from support.tampering import rewrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


DISEASES = np.array(["angina", "asthma", "cold", "flu", "gout", "HIV", "measles", "ulcer"])
PEOPLE = 4000
EIGHTH = 'threshold = "1/5"'
UP = 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/5"\nrho2 = "1/2"'
SEEDS = range(1, 9)
FINDING = {
    "adversary", "knows", "promised", "attacked", "unit", "mean", "highest", "above", "twice", "baseline", "right",
    "true_mean", "true_above", "leaks", "applies", "calibrated", "notes", "curve", "values", "gain", "exceeded",
    "standing",
}  # fmt: skip


def people(folder: Path, *, tied: bool = False) -> Path:
    """Invented people; ``tied``: the disease goes with the job, else with nothing. ``person`` is a number of each."""
    noise = np.random.default_rng(7)
    disease = noise.integers(0, len(DISEASES), PEOPLE)
    job = (disease + (noise.random(PEOPLE) < 0.1) * noise.integers(0, 8, PEOPLE)) % 8
    age = noise.integers(18, 80, PEOPLE)
    columns = {
        "person": np.arange(PEOPLE),
        "age": age,
        "sex": np.where(noise.random(PEOPLE) < 0.5, "F", "M"),
        "job": job if tied else noise.permutation(job),
        "again": job,
        "copy": DISEASES[disease],
        "disease": DISEASES[disease],
    }
    pq.write_table(pa.table(columns), folder / "people.parquet")
    return folder / "people.parquet"


def made(folder: Path, *, qi: str = '"age", "sex", "job"', seed: int = 1, mechanism: str = EIGHTH) -> Path:
    """A release of the people in ``folder``."""
    columns = f'quasi_identifiers = [{qi}]\nsensitive = "disease"'
    spec = specification(folder, columns=columns, mechanism=mechanism)
    succeeded("publish", spec, "--seed", seed, "--replace", "--allow-useless")
    return folder / "ill.duckdb"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People whose disease goes with nothing, and a clean release."""
    folder = tmp_path_factory.mktemp("plain")
    people(folder)
    made(folder)
    return folder


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People whose disease goes with the job, and a clean release."""
    folder = tmp_path_factory.mktemp("tied")
    people(folder, tied=True)
    made(folder)
    return folder


def attacked(release: Path, *more: object, code: int = 0) -> dict[str, dict[str, Any]]:
    """The findings of the command by adversary; its exit code must be ``code``."""
    done = run("attack", release, "--json", *more)
    assert done.code == code, done.err + done.out
    assert done.json["ok"] is (code == 0)
    return {one["adversary"]: one for one in done.json["adversaries"]}


def broken(found: dict[str, dict[str, Any]]) -> set[str]:
    """The adversaries that broke a promise."""
    return {name for name, one in found.items() if one["exceeded"]}


# The formulas of section 6 ---


@each(("size", "known", "fakes"), [(4, 0, 1), (4, 3, 1), (4, 3, 0), (8, 3, 2), (5, 4, 3)])
def test_certainty_after_corruption_is_that_of_a_simulation(size: int, known: int, fakes: int) -> None:
    """A record that is left has a listed value that is left; a value that is left is real."""
    noise, games = np.random.default_rng(5), 40_000
    listed = noise.permuted(np.tile(np.arange(size + fakes), (games, 1)), axis=1)  # the first ones are real
    left, values = listed[:, known:size], listed[:, known:]
    guess = np.take_along_axis(values, noise.integers(0, values.shape[1], (games, 1)), axis=1)
    hit = float((left[:, :1] == guess).mean())
    genuine = float((left == guess).any(axis=1).mean())
    assert hit == pytest.approx(1 / (size - known + fakes), abs=5 * 0.5 / games**0.5)
    assert genuine == pytest.approx(attacks.real(size, known, fakes), abs=5 * 0.5 / games**0.5)


@pytest.mark.parametrize("fakes", [0, 1, 2, 5])
def test_all_but_one_corrupted_leaves_one_in_one_plus_sigma(fakes: int) -> None:
    assert attacks.real(9, 8, fakes) == 1 / (1 + fakes)


def stub(size: int, fakes: int, buckets: int = 50) -> Any:
    """Buckets of one size with distinct values, as the corrupting adversary sees them."""
    noise = np.random.default_rng(3)
    codes = np.argsort(noise.random((buckets, 20)), axis=1)[:, : size + fakes]
    members = np.arange(buckets * size).reshape(buckets, size)
    given = SimpleNamespace(noise=np.random.default_rng(1))
    return SimpleNamespace(
        size_classes=[(members, codes)],
        fake_count=fakes,
        bounds=np.full(20, 1 / size),
        baseline=1 / 20,
        given=given,
        real_ratio=np.ones(20),
        truth=None,
        channel=SimpleNamespace(records=np.bincount(codes.ravel(), minlength=20) * size / (size + fakes)),
        value_labels=[str(x) for x in range(20)],
    )


@pytest.mark.parametrize("fakes", [0, 1, 3])
def test_the_corrupting_adversary_meets_the_formula_on_distinct_values(fakes: int) -> None:
    found = attacks.attack_by_corruption(SimpleNamespace(scene=stub(6, fakes)))  # type: ignore[arg-type]
    assert [p["measured"] for p in found[-1].curve] == pytest.approx([1 / (6 - q + fakes) for q in range(6)])
    assert [p["theory"] for p in found[-1].curve] == pytest.approx([1 / (6 - q + fakes) for q in range(6)])
    assert len(found) == 1
    assert found[0].mean == pytest.approx(1 / (5 + fakes))
    assert found[0].above == float(fakes < 1)
    assert f"{1 / (1 + fakes):.1%} sure on average if all others are known" in found[0].notes
    real = pytest.approx(6 / (6 + fakes))
    assert all(one["theory"] == real and one["stated"] == real for one in found[-1].values)
    assert bool(found[-1].values) == bool(fakes)
    assert not any(one.promised or one.exceeded for one in found)


@pytest.mark.slow
def test_measured_corruption_never_exceeds_the_worst_case(plain: Path) -> None:
    """Values that stand several times in a bucket."""
    curve = attacked(made_elsewhere(plain, 'threshold = "1/2"\nmin_bucket_size = 6'))["corruption"]["curve"]
    assert all(point["measured"] <= point["theory"] + 1e-12 for point in curve)
    assert curve[0]["measured"] == pytest.approx(curve[0]["theory"])


def made_elsewhere(folder: Path, mechanism: str) -> Path:
    """A release of the same people by another mechanism, beside the first."""
    columns = 'quasi_identifiers = ["age", "sex", "job"]\nsensitive = "disease"'
    release = 'name = "ill"\nto = "other.duckdb"'
    spec = specification(folder, columns=columns, mechanism=mechanism, release=release, name="other.toml")
    succeeded("publish", spec, "--seed", 1, "--replace", "--allow-useless")
    return folder / "other.duckdb"


# Beliefs ---


def block(likely: list[list[float]], spare: int = 0) -> np.ndarray[Any, Any]:
    """Posterior of one bucket's slots."""
    weights = np.array([likely])
    slots = weights.shape[2]
    made_ = Block(
        np.arange(weights.shape[1])[None],
        np.arange(slots)[None],
        np.full((1, 1, slots), 1 / slots),
        exclusive=True,
        spare=spare,
    )
    return np.asarray(made_.update_beliefs(weights)[0])


def test_without_knowledge_every_slot_is_as_likely() -> None:
    assert block([[1, 1, 1]] * 3) == pytest.approx(np.full((3, 3), 1 / 3))
    assert block([[1, 1, 1]] * 2, spare=1) == pytest.approx(np.full((2, 3), 1 / 3), abs=1e-3)


def test_a_slot_belongs_to_one_record() -> None:
    """One record is sure of the first slot, so the others share the rest."""
    found = block([[1e9, 1, 1], [1, 1, 1], [1, 1, 1]])
    assert found.sum(axis=0) == pytest.approx(np.ones(3), abs=0.03)
    assert found.sum(axis=1) == pytest.approx(np.ones(3))
    assert found[1:, 0] == pytest.approx(np.zeros(2), abs=0.03)
    assert found[1:, 1:] == pytest.approx(np.full((2, 2), 0.5), abs=0.03)


@each(("spare", "error"), [(0, 0.02), (1, 0.02), (2, 0.03)])
@each("spread", [0.5, 1, 2])
def test_beliefs_are_near_the_sum_over_all_assignments(spread: float, spare: int, error: float) -> None:
    """Six slots; every assignment of records to slots weighs as much as the product of its likelihoods."""
    noise, slots = np.random.default_rng(2), 6
    likely = np.exp(noise.normal(0, spread, (100, slots - spare, slots)))
    every = np.array(list(permutations(range(slots), slots - spare)))
    weights = np.prod(likely[:, np.arange(slots - spare), every], axis=2)
    weights /= weights.sum(axis=1, keepdims=True)
    exact = np.stack([(weights[:, :, None, None] * (every[:, :, None] == np.arange(slots))).sum(axis=1)])[0]
    rows_ = np.arange(100 * (slots - spare)).reshape(100, -1)
    codes = np.tile(np.arange(slots), (100, 1))
    made_ = Block(rows_, codes, np.full((100, 1, slots), 1 / slots), exclusive=True, spare=spare)
    found = made_.update_beliefs(likely)
    assert np.abs(found - exact).mean() < error
    assert found.max(axis=2).mean() == pytest.approx(exact.max(axis=2).mean(), rel=0.06)
    assert (found.argmax(axis=2) == exact.argmax(axis=2)).mean() > 0.95


def test_two_records_are_exact() -> None:
    assert block([[3, 1], [1, 1]]) == pytest.approx(np.array([[0.75, 0.25], [0.25, 0.75]]), abs=1e-3)


def test_fakes_take_what_no_record_takes() -> None:
    found = block([[8, 4, 1, 1], [8, 4, 1, 1]], spare=2)
    assert found.sum(axis=1) == pytest.approx(np.ones(2))
    assert (found.sum(axis=0) <= 1 + 1e-3).all()
    assert found[0, 0] > found[0, 1] > found[0, 2]


def test_a_value_that_is_listed_twice_has_the_slots_of_both() -> None:
    made_ = Block(np.arange(3)[None], np.array([[5, 5, 7]]), np.full((1, 1, 3), 1 / 3), exclusive=True)
    tally = Tally(np.full(8, 0.5))
    tally.add_block(made_, np.broadcast_to(made_.prior, made_.shape))
    found = tally.finding_fields()
    assert found["mean"] == found["highest"] == pytest.approx(2 / 3)
    assert found["above"] == 1


def test_a_belief_at_its_bound_does_not_exceed_it() -> None:
    made_ = Block(np.arange(3)[None], np.arange(3)[None], np.full((1, 1, 3), 1 / 3), exclusive=True)
    tally = Tally(np.full(3, 1 / 3))
    tally.add_block(made_, np.broadcast_to(made_.prior, made_.shape))
    assert tally.finding_fields()["above"] == 0


def test_the_truth_is_shared_by_records_with_the_same_quasi_identifiers() -> None:
    """Key 0: value 0 three times, value 1 once, of 4 and 2 records in all; key 1 is not in the source."""
    truth = Truth(np.array([0, 1]), np.array([0, 1]), np.array([3, 1]), np.array([4, 2, 1]))
    made_ = Block(np.arange(2)[None], np.array([[0, 1]]), np.full((1, 1, 2), 1 / 2), exclusive=True)
    assert truth.true_probability(made_)[0, 0] == pytest.approx([0.6, 0.4])
    assert truth.true_probability(made_)[0, 1] == pytest.approx([0, 0])


# Clean releases are not accused ---


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("seed", rest_slow(SEEDS))
def test_a_clean_release_is_not_accused(tied: Path, tmp_path: Path, seed: int) -> None:
    """Even where much can be learnt. Over all seeds, a false alarm has a probability of at most 8e-6."""
    shutil.copy(tied / "people.parquet", tmp_path)
    release = made(tmp_path, seed=seed)
    assert broken(attacked(release)) == set()
    assert broken(attacked(release, "--source", tmp_path / "spec.toml")) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    rest_slow(
        [
            UP,
            UP.replace("up", "pp"),
            'algorithm = "anatomy"\nthreshold = "1/5"',
            'threshold = "1/5"\nlayout = "round-robin"',
            'threshold = "2*f + 0.05"',
        ],
        2,
    ),
)
def test_no_mechanism_is_accused(tied: Path, tmp_path: Path, mechanism: str) -> None:
    shutil.copy(tied / "people.parquet", tmp_path)
    release = made(tmp_path, mechanism=mechanism)
    assert broken(attacked(release, "--source", tmp_path / "spec.toml")) == set()


@pytest.mark.parametrize("combinations", rest_slow([1, 2, 3, 4], 2))
def test_the_truth_of_others_is_learnt_from_few_combinations(tmp_path: Path, combinations: int) -> None:
    """All combinations of few may come into one half; of one alone nobody else is there to learn from."""
    pq.write_table(
        pa.table({"age": [i % combinations for i in range(300)], "disease": [f"d{i % 7}" for i in range(300)]}),
        tmp_path / "people.parquet",
    )
    spec = specification(
        tmp_path, columns='quasi_identifiers = ["age"]\nsensitive = "disease"', mechanism='threshold = "1/3"'
    )
    succeeded("publish", spec)
    (notes,) = [
        one["notes"]
        for one in attacked(tmp_path / "ill.duckdb", "--source", spec).values()
        if "a model of all columns, fitted to the release" in one["notes"]
    ]
    assert sum("true table" in note for note in notes) == (combinations > 1)


@pytest.mark.soak(part="long")
def test_nulls_compound_values_and_parquet(tmp_path: Path) -> None:
    with duckdb.connect() as db:
        db.execute(
            f"COPY (SELECT CASE WHEN i % 5 > 0 THEN i % 40 END AS age, i % 7 AS zip, i % 4 AS a, "
            f"CASE WHEN i % 3 > 0 THEN 'x' END AS b FROM range(600) t(i)) TO '{tmp_path}/people.parquet'"
        )
    columns = 'quasi_identifiers = ["age", "zip"]\nsensitive = ["a", "b"]\nnulls = { b = "value" }'
    for mechanism in (EIGHTH, UP):
        spec = specification(tmp_path, columns=columns, mechanism=mechanism)
        for form, to in (("parquet", tmp_path / "ill"), ("duckdb", tmp_path / "ill.duckdb")):
            succeeded("publish", spec, "--seed", 1, "--format", form, "--to", to, "--replace", "--allow-composition")
        folder, file = (attacked(path, "--source", spec) for path in (tmp_path / "ill", tmp_path / "ill.duckdb"))
        assert folder == file
        assert broken(file) == set()
        assert file["linkage"]["attacked"] == 600


# Planted leaks are found ---


def changed(folder: Path, to: Path, change: Callable[[duckdb.DuckDBPyConnection], None]) -> Path:
    """A copy of the release with a leak."""
    release = to / "ill.duckdb"
    shutil.copy(folder / "ill.duckdb", release)
    with duckdb.connect(str(release)) as db:
        change(db)
    rewrite(release)
    return release


def replaced(db: duckdb.DuckDBPyConnection, table: str, query: str) -> None:
    """The table with other rows, or the same in another order."""
    db.execute(f"CREATE TABLE other AS {query}")
    db.execute(f"DELETE FROM {table}")
    db.execute(f"INSERT INTO {table} SELECT * FROM other")
    db.execute("DROP TABLE other")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "order_"), rest_slow([("qit", "bid, sex DESC, age"), ("qit", "age, bid"), ("st", "bid, disease DESC")])
)
def test_rows_in_another_order_are_found(plain: Path, tmp_path: Path, table: str, order_: str) -> None:
    release = changed(plain, tmp_path, lambda db: replaced(db, table, f"SELECT * FROM {table} ORDER BY {order_}"))
    found = attacked(release, code=1)
    assert broken(found) == {"row order"}
    assert f"rows of {table} lie out of canonical order" in found["row order"]["notes"][0]


@pytest.mark.soak(part="coverage")
def test_rows_that_lie_like_their_values_are_measured(plain: Path, tmp_path: Path) -> None:
    """QIT in the order of the values that ST lists: with the source, the pairing is right far more often."""

    def leak(db: duckdb.DuckDBPyConnection) -> None:
        db.execute(f"CREATE TEMP TABLE people AS SELECT * FROM read_parquet('{plain / 'people.parquet'}')")
        shuffled = "SELECT *, row_number() OVER (ORDER BY sha256(CAST(person AS VARCHAR))) AS pick FROM people"
        db.execute(
            "CREATE TEMP TABLE seats AS SELECT *, row_number() OVER (PARTITION BY disease ORDER BY bid) AS k FROM st"
        )
        db.execute(
            "CREATE TEMP TABLE taken AS SELECT *, row_number() OVER (PARTITION BY disease ORDER BY pick) AS k "
            f"FROM ({shuffled})"
        )
        seated = "SELECT age, sex, job, bid FROM seats JOIN taken USING (disease, k) ORDER BY bid, disease"
        replaced(db, "qit", seated)

    honest = attacked(plain / "ill.duckdb", "--source", plain / "spec.toml")["row order"]
    assert honest["right"] == pytest.approx(honest["baseline"], abs=0.05)
    found = attacked(changed(plain, tmp_path, leak), "--source", plain / "spec.toml", code=1)["row order"]
    assert found["leaks"]
    assert found["right"] > 2 * honest["right"]


@pytest.mark.slow
def test_buckets_that_are_numbered_like_the_source_are_found(plain: Path, tmp_path: Path) -> None:
    """The youngest in the first buckets; rows in canonical order."""

    def leak(db: duckdb.DuckDBPyConnection) -> None:
        ranked = "SELECT *, row_number() OVER (ORDER BY age) AS k FROM qit"
        seats = "SELECT bid, row_number() OVER (ORDER BY bid) AS k FROM qit"
        joined = f"SELECT p.age, p.sex, p.job, s.bid FROM ({ranked}) p JOIN ({seats}) s USING (k)"
        replaced(db, "qit", f"{joined} ORDER BY s.bid, p.age, p.sex, p.job")

    found = attacked(changed(plain, tmp_path, leak), code=1)
    assert broken(found) == {"row order"}
    assert "age runs with the bucket numbers" in found["row order"]["notes"][0]


@pytest.mark.slow
def test_identifiers_left_in_are_found(plain: Path, tmp_path: Path) -> None:
    shutil.copy(plain / "people.parquet", tmp_path)
    found = attacked(made(tmp_path, qi='"person", "age"'), code=1)
    assert broken(found) == {"identifiers left in"}
    assert found["identifiers left in"]["notes"] == ["person: 100.0% of the records have a value of their own"]


@pytest.mark.slow
@pytest.mark.parametrize("source", rest_slow([False, True]))
def test_a_column_that_gives_the_value_away_is_found(plain: Path, tmp_path: Path, source: bool) -> None:
    """Which value goes with it is learnt, so this lies outside the promise; it is said all the same."""
    shutil.copy(plain / "people.parquet", tmp_path)
    release = made(tmp_path, qi='"age", "copy"')
    found = attacked(release, *(["--source", tmp_path / "spec.toml"] if source else []))
    one = found["columns that give the value away"]
    assert one["leaks"]
    assert not one["promised"]
    assert one["notes"][0].startswith("copy determines the sensitive value for ")
    assert found["learning"]["mean"] > 0.9
    assert one["right"] == (1 if source else None)


@pytest.mark.slow
def test_homogeneous_buckets_are_found(plain: Path, tmp_path: Path) -> None:
    """Everybody in bucket 0 has the same."""

    def leak(db: duckdb.DuckDBPyConnection) -> None:
        alone = "SELECT bid, min(disease), CAST(sum(count) AS INTEGER) FROM st WHERE bid = 0 GROUP BY bid"
        replaced(db, "st", f"{alone} UNION ALL (SELECT * FROM st WHERE bid > 0 ORDER BY bid, disease)")

    found = attacked(changed(plain, tmp_path, leak), code=1)
    assert broken(found) == {"homogeneity", "linkage"}
    assert found["homogeneity"]["highest"] == found["linkage"]["highest"] == 1
    assert found["homogeneity"]["notes"] == ["1 buckets hold a single value"]
    assert found["homogeneity"]["above"] == pytest.approx(1 / found["homogeneity"]["attacked"])


@pytest.mark.slow
def test_a_value_just_above_its_bound_is_found(plain: Path, tmp_path: Path) -> None:
    """Thresholds that a double can't tell from what the buckets use: 1/5 less a very little."""

    def leak(db: duckdb.DuckDBPyConnection) -> None:
        db.execute("UPDATE privsql_values SET numerator = 19999999999999999999, denominator = 100000000000000000000")

    found = attacked(changed(plain, tmp_path, leak), code=1)
    assert broken(found) == {"homogeneity", "linkage"}


class Watcher(Reporter):
    """Writes down what a progress bar would show."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.percents: list[float] = []

    def start_step(self, title: str) -> None:
        self.steps.append(title)

    def update(self, percent: float) -> None:
        self.percents.append(percent)


@pytest.mark.slow
def test_who_watches_sees_how_many_adversaries_are_done(plain: Path) -> None:
    bar = Watcher()
    privsql.attack(plain / "ill.duckdb", options=privsql.Options(report=bar))
    assert bar.steps[-1] == "Attacking the release"
    number = len(get_default_mechanism("bucketize").adversaries())
    assert bar.percents == pytest.approx([100 * done / number for done in range(number + 1)])


@pytest.mark.slow
def test_too_much_kept_is_found(plain: Path, tmp_path: Path) -> None:
    """A sub-table whose stated amplification allows more than rho2."""
    shutil.copy(plain / "people.parquet", tmp_path)
    made(tmp_path, mechanism=UP)
    release = tmp_path / "ill.duckdb"
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE privsql_subtables SET gamma_numerator = gamma_numerator * 2")
    found = attacked(release, code=1)
    assert broken(found) == {"linkage"}
    assert found["linkage"]["above"] == 1


@pytest.mark.slow
def test_what_is_no_release_is_not_attacked(plain: Path, tmp_path: Path) -> None:
    release = changed(plain, tmp_path, lambda db: db.execute("CREATE TABLE raw AS SELECT 1 AS a") and None)
    refused(run("attack", release), 1, "raw", "verify")
    lost = changed(plain, tmp_path, lambda db: db.execute("DELETE FROM qit WHERE bid = 3") and None)
    refused(run("attack", lost), 1, "QIT and ST", "verify")


# What is learnt ---


def scene(db: Any, manifest: Any) -> BucketAttackView:
    """The release as its adversaries see it."""
    return BucketAttackView(ReleaseView(db, manifest, seed_key(1).random_generator("test")))


@pytest.mark.slow
def test_nothing_is_learnt_where_nothing_can_be(plain: Path) -> None:
    """The best guess is right as often as the linking adversary's: 1/5, within 5 standard errors."""
    found = attacked(plain / "ill.duckdb", "--source", plain / "spec.toml")
    for name in ("learning", "negative association"):
        assert found[name]["right"] == pytest.approx(found["linkage"]["right"], abs=5 * 0.4 / PEOPLE**0.5)


@pytest.mark.slow
def test_many_columns_are_learnt_together_as_one_by_one(tied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_release(Target.parse(tied / "ill.duckdb")) as (db, attached):
        seen = scene(db, attached.manifest)
        alone = suite.learn_association(seen, errors=False)
        monkeypatch.setattr(suite, "SEPARATE", 2)
        together = suite.learn_association(seen, errors=False)
    assert len(together) == len(alone) == 3
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.level, other.level)
        assert np.array_equal(one.totals, other.totals)
        assert np.abs(one.counts - other.counts).sum() < 0.02 * one.counts.sum()
        assert np.allclose(other.counts.sum(axis=1), one.totals)


@pytest.mark.slow
def test_what_can_be_learnt_is(tied: Path) -> None:
    """The job tells nine in ten diseases; the release hides that in buckets of five, and gives it away all the same."""
    found = attacked(tied / "ill.duckdb", "--source", tied / "spec.toml")
    one = found["learning"]
    assert one["right"] > 0.8
    assert one["true_above"] > 0.8
    assert one["twice"] > 0.8
    assert one["mean"] == pytest.approx(one["right"], abs=0.1)
    (ceiling,) = [note for note in one["notes"] if "true table" in note]
    assert 100 * one["right"] - 5 < int(ceiling.removesuffix("%").split()[-1]) <= 100
    assert not one["promised"]
    assert one["standing"] == OUTSIDE
    assert found["linkage"]["standing"] == PROMISED
    assert found["linkage"]["right"] == pytest.approx(0.2, abs=5 * 0.4 / PEOPLE**0.5)


@pytest.mark.soak(part="long")
def test_columns_that_say_the_same_are_not_believed_twice(tied: Path, tmp_path: Path) -> None:
    """With the job in two columns, beliefs stay as near the truth as with it in one."""
    shutil.copy(tied / "people.parquet", tmp_path)
    once, twice = (
        attacked(made(tmp_path, qi=qi, mechanism=f"{EIGHTH}\n[ledger]\noff = true"), "--source", tmp_path / "spec.toml")
        for qi in ('"job", "age"', '"job", "again", "age"')
    )
    once, twice = once["learning"], twice["learning"]
    assert twice["mean"] == pytest.approx(twice["right"], abs=0.1)
    assert twice["right"] == pytest.approx(once["right"], abs=0.03)


@pytest.mark.slow
def test_learning_from_perturbed_values(tied: Path, tmp_path: Path) -> None:
    shutil.copy(tied / "people.parquet", tmp_path)
    found = attacked(made(tmp_path, mechanism=UP), "--source", tmp_path / "spec.toml")
    assert found["linkage"]["above"] == 0
    assert found["linkage"]["highest"] <= 0.5 * (1 + 1e-9)
    assert found["learning"]["right"] > found["linkage"]["right"] + 0.2


@pytest.mark.slow
def test_who_lacks_a_value_is_learnt(tied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine in ten of a job have one disease, so the job excludes the others, for who is soon sure."""
    monkeypatch.setattr(adversaries, "RARE", 0.5)
    monkeypatch.setattr(adversaries, "SURE", 0.5)
    with open_release(Target.parse(tied / "ill.duckdb")) as (db, opened):
        manifest = opened.manifest
        seen = scene(db, manifest)
        columns = suite.learn_association(seen)
        rules = [adversaries.mark_excluded(one, seen.shares) for one in columns]
        assert rules[2].sum() > 30  # of 8 times 7
        assert not rules[2][np.arange(8), columns[2].counts.argmax(axis=1)].any()
        learnt = SimpleNamespace(scene=seen, associations=columns)
        (found,) = adversaries.attack_by_negative(learnt)  # type: ignore[arg-type]
        assert found.mean is not None
        assert found.mean > 0.3


def test_learnt_counts_are_the_true_ones(tied: Path) -> None:
    """Reconstructed counts of job and disease, within 5 standard errors; one round keeps every column's totals."""
    truth = pq.read_table(tied / "people.parquet").to_pandas().groupby(["job", "disease"]).size().unstack(fill_value=0)
    with open_release(Target.parse(tied / "ill.duckdb")) as (db, opened):
        manifest = opened.manifest
        seen = scene(db, manifest)
        columns = suite.learn_association(seen)
        names = [name for (name,) in db.rows(seen_order())]
        assert (np.abs(columns[2].counts - truth[names].to_numpy()) <= 5 * columns[2].errors + 1).all()
        after = suite.learn_beliefs(seen, columns)
        for one, other in zip(columns, after, strict=True):
            assert other.counts.sum(axis=1) == pytest.approx(one.totals, rel=1e-6)


def seen_order() -> Any:
    """The diseases in the order of their codes."""
    from sqlglot import exp

    return exp.select("disease").from_("privsql_values").order_by("code")


def test_row_order_asks_only_layouts_that_draw_bucket_numbers(plain: Path) -> None:
    with open_release(Target.parse(plain / "ill.duckdb")) as (db, opened):
        manifest = opened.manifest
        told = manifest.model_copy(update={"facts": manifest.facts | {"layout": "round-robin"}})
        seen = scene(db, told)
        assert adversaries._find_running(seen) == []
        seen.close()
        seen = scene(db, manifest)
        assert abs(adversaries._order_deviate(seen, np.arange(PEOPLE))) > 20


# Fake values ---


@pytest.fixture(scope="module")
def faked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tied people, in buckets of three with two fakes."""
    folder = tmp_path_factory.mktemp("faked")
    people(folder, tied=True)
    made(folder, mechanism='threshold = "1/3"\nfake_values = 2\nmax_bucket_size = 4')
    return folder


@pytest.mark.slow
def test_fakes_lower_what_is_linked_and_corrupted(faked: Path) -> None:
    found = attacked(faked / "ill.duckdb", "--source", faked / "spec.toml")
    assert broken(found) == set()
    sizes = rows(
        faked / "ill.duckdb", "SELECT n, count(*) FROM (SELECT count(*) AS n FROM qit GROUP BY bid) GROUP BY n"
    )
    linked = sum(n * buckets / (n + 2) for n, buckets in sizes) / PEOPLE
    near = 0.002  # times that values are listed are integers, so some are a little more certain than others
    last = found["corruption"]
    assert found["linkage"]["mean"] == pytest.approx(linked, rel=near)
    assert last["curve"][-1]["measured"] == pytest.approx(1 / 3, rel=near)
    for point in last["curve"]:
        assert point["measured"] == pytest.approx(point["theory"], rel=near)
    for one in last["values"]:
        assert one["stated"] == pytest.approx(one["theory"], rel=near)
        assert one["source"] == pytest.approx(one["stated"])


@pytest.mark.slow
def test_learning_sees_through_fakes_in_part(faked: Path, tied: Path, tmp_path: Path) -> None:
    """Beliefs are shared with what is not there: fewer best guesses are right than without fakes."""
    shutil.copy(tied / "people.parquet", tmp_path)
    made(tmp_path, mechanism='threshold = "1/3"\nmax_bucket_size = 4')
    bare, hidden = (
        attacked(folder / "ill.duckdb", "--source", folder / "spec.toml")["learning"] for folder in (tmp_path, faked)
    )
    assert hidden["right"] < bare["right"]
    assert hidden["right"] > 0.6


def test_the_deviate_of_bucket_numbers_is_a_standard_normal_one() -> None:
    """Mean and variance over 2,000 random numberings, within 5 standard errors."""
    noise = np.random.default_rng(4)
    level = noise.integers(0, 60, 300) ** 2
    found = []
    for _ in range(2000):
        members = noise.permutation(300)
        numbered = [members[:120].reshape(40, 3), members[120:].reshape(36, 5)]
        found.append(adversaries._order_deviate(SimpleNamespace(numbered_groups=numbered), level))  # type: ignore[arg-type]
    assert np.mean(found) == pytest.approx(0, abs=5 / 2000**0.5)
    assert np.var(found) == pytest.approx(1, abs=5 * (2 / 2000) ** 0.5)


def test_nothing_measured_is_no_success() -> None:
    idle = Finding("a", "b", promised=True, applies=False)
    for findings in ([], [idle], [Finding("a", "b", promised=True, attacked=0)]):
        found = Attacked(findings, source=False, seconds=0.0)
        assert (found.ok, found.exit_code) == (False, 3)
        assert "NOTHING WAS MEASURED" in found.verdict
        assert found.as_json()["measured"] == 0


def test_every_promise_holds_only_if_every_one_was_measured() -> None:
    measured = Finding("a", "b", promised=True, attacked=5)
    idle = Finding("c", "d", promised=True, applies=False)
    assert Attacked([measured], source=False, seconds=0.0).verdict.startswith("every promise holds (1 promised")
    some = Attacked([measured, idle], source=False, seconds=0.0)
    assert (some.ok, some.exit_code) == (True, 0)
    assert "not every one was measured (2 promised, 1 measured, 1 kept)" in some.verdict
    broken = Attacked([measured, Finding("e", "f", promised=True, attacked=1, leaks=True)], source=False, seconds=0.0)
    assert (broken.ok, broken.exit_code) == (False, 1)
    assert "A PROMISE IS BROKEN (2 promised, 2 measured, 1 kept)" in broken.verdict
    open_ended = Attacked([Finding("a", "b", promised=False, attacked=5)], source=False, seconds=0.0)
    assert "every promise holds" not in open_ended.verdict


def test_a_promise_is_broken_by_those_it_was_made_against() -> None:
    assert Finding("a", "b", promised=True, above=0.1).exceeded
    assert Finding("a", "b", promised=True, leaks=True).exceeded
    assert not Finding("a", "b", promised=False, above=1.0, leaks=True).exceeded
    assert not Finding("a", "b", promised=True, above=0.0).exceeded


# Noisy counts ---


def test_theorem_two() -> None:
    assert differential.expected_ratio(100, 100, 10) == pytest.approx(1.02)
    assert differential.expected_ratio(1000, 1000, 10) == pytest.approx(1.0002)
    assert differential.expected_ratio(1000, 400, 10) == pytest.approx(0.4 * 1.0002)
    assert differential.ratio_variance(100, 50, 10) == pytest.approx(2 * 100 / 10_000 * 1.25)


@pytest.mark.slow
def test_theorem_two_is_what_opendp_gives() -> None:
    """20,000 draws, 5 standard errors, from x = 20 b on, where what the theorem leaves out is small beside these."""
    drawn = laplace(10, 20_000), laplace(10, 20_000)
    assert np.abs(drawn[0]).mean() == pytest.approx(10, abs=5 * 10 / 20_000**0.5)
    for row in differential.infer_counts(1000, 400, 10, *drawn):
        assert row.ratio == pytest.approx(0.4)
        if row.x >= 200:
            assert row.simulated_mean == pytest.approx(row.mean, abs=5 * row.deviation / 20_000**0.5 + row.x**-2)
            assert row.simulated_deviation == pytest.approx(row.deviation, rel=0.1)
            assert row.dropped == 0
    shown = {row.x: row for row in differential.infer_counts(1000, 400, 10, *drawn)}
    assert shown[1000].asked
    assert not shown[100].discloses
    assert shown[1000].discloses


def test_a_seed_repeats_noisy_counts_and_needs_no_opendp(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise has the mean size and the spread of Laplace noise of scale 10 (5 standard errors of 20,000 draws)."""
    monkeypatch.setattr("privsql.dp_random.laplace", None)
    first, second = _draw_noise(10, 20_000, 3)
    for noise in (first, second):
        assert np.abs(noise).mean() == pytest.approx(10, abs=5 * 10 / 20_000**0.5)
        assert noise.mean() == pytest.approx(0, abs=5 * 200**0.5 / 20_000**0.5)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / 20_000**0.5
    command = ["attack", "--source", plain / "spec.toml", "--differential", "sex = 'F'", "disease = 'flu'", "--json"]
    told = [succeeded(*command, "--seed", seed).out for seed in (3, 3, 4)]
    assert told[0] == told[1] != told[2]


@pytest.mark.slow
def test_noisy_counts_of_a_source(plain: Path, tmp_path: Path) -> None:
    done = succeeded(
        "attack", "--epsilon", 0.5, "--source", plain / "spec.toml", "--plot", tmp_path / "d.svg",
        "--json", "--differential", "age > 40 OR sex = 'F'", "disease = 'flu'",
    )  # fmt: skip
    with duckdb.connect() as db:
        source = f"read_parquet('{plain / 'people.parquet'}')"
        where = "(age > 40 OR sex = 'F')"
        row = db.execute(f"SELECT count(*), count(*) FILTER (disease = 'flu') FROM {source} WHERE {where}").fetchone()
    (asked,) = [one for one in done.json["sizes"] if one["asked"]]
    assert (asked["x"], asked["y"]) == row
    assert done.json["epsilon"] == 0.5
    assert asked["mean"] == pytest.approx(differential.expected_ratio(*row, 2))
    assert asked["discloses"]
    assert (tmp_path / "d.svg").stat().st_size > 1000


@pytest.mark.slow
def test_noisy_counts_as_a_table(plain: Path) -> None:
    shown = succeeded("attack", "--source", plain / "spec.toml", "--differential", "age > 40", "disease = 'flu'").out
    assert "disclosed" in shown
    assert "scale 10" in shown


@each(
    ("arguments", "words"),
    [
        (["--differential", "age > 40", "disease = 'flu'"], ["option source"]),
        (["--source", "SPEC", "--differential", "age > 40"], ["--differential", "2 arguments"]),
        (["RELEASE", "--source", "SPEC", "--differential", "age > 40", "disease = 'flu'"], ["no release"]),
        (["RELEASE", "--epsilon", "1"], ["option differential"]),
        ([], ["a release, or option differential"]),
        (["--source", "SPEC", "--differential", "age > 400", "disease = 'flu'"], ["no record meets"]),
        (["--source", "SPEC", "--epsilon", "0", "--differential", "age > 40", "disease = 'flu'"], ["epsilon"]),
        (["--source", "SPEC", "--differential", "height > 40", "disease = 'flu'"], ["height"]),
        (["--source", "SPEC", "--differential", "age > (", "disease = 'flu'"], ["age > ("]),
        (["--source", "SPEC", "--differential", "age > 40", "random() < 1"], ["not supported"]),
    ],
)
def test_what_is_asked_wrongly(plain: Path, arguments: list[str], words: list[str]) -> None:
    places = {"SPEC": plain / "spec.toml", "RELEASE": plain / "ill.duckdb"}
    refused(run("attack", *(places.get(part, part) for part in arguments)), 2, *words)


# The command and the library ---


@pytest.mark.soak(part="long")
def test_the_table_says_who_is_promised_what(tied: Path, tmp_path: Path) -> None:
    done = succeeded("attack", tied / "ill.duckdb", "--source", tied / "spec.toml", "--plot", tmp_path / "a.png")
    for words in ("linkage", "kept", "not promised", "learning", "every promise holds"):
        assert words in done.out
    assert "BROKEN" not in done.out.replace("kept, BROKEN", "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_table_says_what_is_broken(plain: Path, tmp_path: Path) -> None:
    shutil.copy(plain / "people.parquet", tmp_path)
    shown = run("attack", made(tmp_path, qi='"person"', mechanism=UP))
    assert shown.code == 1
    assert "A PROMISE IS BROKEN" in shown.out


@pytest.mark.slow
def test_keys_of_the_contract(plain: Path) -> None:
    done = succeeded("attack", plain / "ill.duckdb", "--json").json
    assert set(done) == {"ok", "source", "measured", "verdict", "adversaries", "seconds", "summary"}
    assert all(set(one) == FINDING for one in done["adversaries"])
    assert json.dumps(done["adversaries"])


@pytest.mark.slow
def test_the_same_attack_finds_the_same(plain: Path) -> None:
    assert attacked(plain / "ill.duckdb") == attacked(plain / "ill.duckdb")


@pytest.mark.slow
def test_a_picture_without_a_curve(plain: Path, tmp_path: Path) -> None:
    shutil.copy(plain / "people.parquet", tmp_path)
    succeeded("attack", made(tmp_path, mechanism=UP), "--plot", tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 1000


def test_a_source_of_another_kind(plain: Path) -> None:
    other = specification(
        plain, columns='quasi_identifiers = ["age"]\nsensitive = "disease"', name="strange.toml", mechanism=EIGHTH
    )
    refused(run("attack", plain / "ill.duckdb", "--source", other), 2, "columns")


@pytest.mark.slow
def test_the_library(plain: Path) -> None:
    found = privsql.attack(plain / "ill.duckdb")
    assert found.ok
    assert not found.source
    with pytest.raises(UsageError, match="epsilon"):
        privsql.attack(None, load(plain / "spec.toml"), differential=("age > 40", "disease = 'flu'"), epsilon=-1)
    assert adversary.attack is privsql.attack


@pytest.mark.slow
def test_perturbed_values_outside_their_domain_are_not_attacked(plain: Path, tmp_path: Path) -> None:
    shutil.copy(plain / "people.parquet", tmp_path)
    release = made(tmp_path, mechanism=UP)
    with duckdb.connect(str(release)) as db:
        db.execute("DELETE FROM privsql_domains WHERE cell = 7")
    with pytest.raises(GuaranteeError, match="domains"):
        privsql.attack(release)


@pytest.mark.slow
def test_of_a_large_release_a_sample_is_learnt_and_all_is_attacked(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made of the sample lies beside what is made of all records."""
    monkeypatch.setattr(attacks, "LEARNING_SAMPLE", 2_500)
    found = {one.adversary: one.attacked for one in privsql.attack(plain / "ill.duckdb").findings if one.applies}
    assert found["linkage"] == PEOPLE
    assert 2_000 < found["learning"] < 3_000
