"""Fake values: how they are drawn, what an estimate makes of them, and how a release with them is checked."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2

import privsql
from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize import fakes
from privsql.mechanisms.bucketize.arrays import Composition
from privsql.mechanisms.bucketize.model import Setting
from privsql.mechanisms.bucketize.suppress import kept, spread
from privsql.mechanisms.bucketize.unmask import Listed, channel
from privsql.noise import seed_key
from support.commands import refused, run, succeeded
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

NONE = np.empty((0, 2), dtype=np.int64)
FALSE_ALARM = 1e-6


def composition(buckets: list[list[int]], values: int) -> tuple[Composition, Setting]:
    """Buckets of one size by the codes that they hold."""
    pairs = sorted((code, bid) for bid, codes in enumerate(buckets) for code in codes)
    counts = np.bincount([code for code, _ in pairs], minlength=values)
    bids = np.array([bid for _, bid in pairs], dtype=np.int32)
    return Composition(bids, counts), Setting.of({len(buckets[0]): len(buckets)})


def listed(made: Composition) -> dict[int, list[int]]:
    """The codes of every bucket; each must stand once."""
    assert set(made.table["records"].to_pylist()) == {1}
    found: dict[int, list[int]] = {}
    for bid, code in zip(made.table["bid"].to_pylist(), made.table["code"].to_pylist(), strict=True):
        found.setdefault(bid, []).append(code)
    return found


def test_every_bucket_gets_its_fakes_from_the_values_it_lacks() -> None:
    buckets = [[0, 1, 2], [2, 3, 4], [0, 4, 6]] * 40
    real, setting = composition(buckets, 7)
    made, weak = fakes.drawn(real, setting, 2, NONE, seed_key(1).stream("fakes"))
    assert weak == 0
    for bid, codes in listed(made).items():
        assert len(codes) == 5
        assert set(buckets[bid]) < set(codes)
    assert made.listed.sum() == 5 * len(buckets)


def test_fakes_are_uniform() -> None:
    """Chi-square over all pairs of the four values that are not in the bucket; false alarm 1e-6."""
    buckets = [[1, 3]] * 6000
    real, setting = composition(buckets, 6)
    made, _ = fakes.drawn(real, setting, 2, NONE, seed_key(2).stream("fakes"))
    pairs = [tuple(sorted(set(codes) - {1, 3})) for codes in listed(made).values()]
    expected = 6000 / 6
    counts = [pairs.count(pair) for pair in itertools.combinations([0, 2, 4, 5], 2)]
    assert sum((count - expected) ** 2 / expected for count in counts) < chi2.isf(FALSE_ALARM, 5)


def test_excluded_values_are_fakes_only_where_nothing_else_is_left() -> None:
    real, setting = composition([[0, 1], [1, 2], [0, 2]] * 30, 5)
    known = np.array([[bid, code] for bid in range(0, 90, 3) for code in (2, 3)] + [[1, code] for code in (0, 3, 4)])
    made, weak = fakes.drawn(real, setting, 1, known, seed_key(3).stream("fakes"))
    assert weak == 1  # bucket 1 has no other value
    for bid, codes in listed(made).items():
        if bid % 3 == 0:
            assert codes == [0, 1, 4]
    with pytest.raises(InfeasibleError, match="1 fake values would be excluded"):
        fakes.refuse_weak(weak, "refuse")
    fakes.refuse_weak(weak, "weaker")


@pytest.mark.parametrize(("values", "size", "sigma"), [(4, 2, 1), (5, 2, 2), (6, 3, 2), (5, 3, 1)])
def test_unmasking_is_right_on_average_over_all_fakes(values: int, size: int, sigma: int) -> None:
    """Enumerates every way to draw the fakes of three buckets: records and meetings have the true means."""
    rng = np.random.default_rng(values * size)
    buckets = [sorted(rng.choice(values, size, replace=False).tolist()) for _ in range(3)]
    choices = [list(itertools.combinations(sorted(set(range(values)) - set(real)), sigma)) for real in buckets]
    records, products, outcomes = np.zeros(values), np.zeros((values, values)), 0
    for drawn in itertools.product(*choices):
        seen = np.zeros((3, values))
        for row, (real, added) in enumerate(zip(buckets, drawn, strict=True)):
            seen[row, [*real, *added]] = 1
        one = Listed(size, 3, seen.T @ seen, sigma)
        records += (np.diag(one.pairs) - one.kappa * 3) / (1 - one.kappa)
        products += one.products
        outcomes += 1
    true = np.zeros((3, values))
    for row, real in enumerate(buckets):
        true[row, real] = 1
    assert records / outcomes == pytest.approx(true.sum(axis=0))
    neither = (1 - true).T @ (1 - true)
    away = ~np.eye(values, dtype=bool)
    expected = true.T @ true + Listed(size, 3, np.eye(values), sigma).delta * neither
    assert (products / outcomes)[away] == pytest.approx(expected[away])


def test_the_mean_of_the_listed_buckets_is_that_of_the_specification() -> None:
    """E[listed] = N + (B - N) sigma/(m - g)."""
    one = Listed(3, 10, np.diag([7.0] * 8), 2)
    assert one.kappa == pytest.approx(2 / 5)
    assert one.records == pytest.approx([(7 - 10 * 0.4) / 0.6] * 8)


def test_certainty_after_corruption() -> None:
    """q known records leave |g| - q + sigma values: (|g| - q)/(|g| - q + sigma) real; 1/(1 + sigma) at q = |g| - 1."""
    rng = seed_key(4).stream("corruption")
    size, sigma, buckets = 4, 2, 5000
    real, setting = composition([sorted(rng.choice(9, size, replace=False).tolist()) for _ in range(buckets)], 9)
    made, _ = fakes.drawn(real, setting, sigma, NONE, rng)
    truly = [set(codes) for codes in listed(real).values()]
    for q in (0, 1, 3):
        hits = 0
        for codes, own in zip(listed(made).values(), truly, strict=True):
            known = set(rng.permutation(sorted(own))[:q].tolist())
            hits += int(rng.permutation(sorted(set(codes) - known))[0]) in own
        theory = (size - q) / (size - q + sigma)
        assert abs(hits / buckets - theory) < 5 * np.sqrt(theory * (1 - theory) / buckets)


# Leaving out what is too frequent ---


def test_as_few_records_as_possible_are_left_out() -> None:
    for counts in itertools.product(range(1, 7), repeat=3):
        found = kept(np.array(counts), Fraction(1, 2))
        candidates = [
            sum(trial) for trial in itertools.product(*(range(c + 1) for c in counts)) if 2 * max(trial) <= sum(trial)
        ]
        assert int(found.sum()) == max(candidates)
        assert 2 * found.max() <= found.sum()
    assert kept(np.array([3, 4]), Fraction(1, 3)).tolist() == [3, 4]


def test_records_are_left_out_at_random() -> None:
    """Each of 5 records of a value is left out 2 times in 5; false alarm 1e-6."""
    noise = seed_key(5).stream("spread")
    counts, left = np.array([5, 2]), np.array([3, 2])
    out = np.zeros(7)
    for _ in range(3000):
        bids = spread(np.array([7, 8, 9, 1, 2], dtype=np.int32), left, counts, noise)
        assert sorted(bids.tolist()) == [-1, -1, 1, 2, 7, 8, 9]
        out += bids < 0
    assert out[5:].tolist() == [0, 0]
    statistic = ((out[:5] - 1200) ** 2).sum() / (3000 * 0.4 * 0.6) * 4 / 5
    assert statistic < chi2.isf(FALSE_ALARM, 4)


# From the command line ---


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,000 records whose illness depends on age, and specifications with and without fakes."""
    folder = tmp_path_factory.mktemp("fakes")
    rng = np.random.default_rng(7)
    age = rng.integers(0, 8, 4000)
    illness = (age // 2 * 3 + rng.integers(0, 9, 4000)) % 12
    people = pa.table({"age": age, "sex": rng.integers(0, 2, 4000), "illness": illness})
    pq.write_table(people, folder / "ward.parquet")
    for name, extra in {
        "plain": "", "two": "fake_values = 2", "picky": "fake_values = 1\nexclude_negative = true",
        "weaker": 'fake_values = 3\nexclude_negative = true\nno_admissible_fake = "weaker"',
        "many": "fake_values = 10",
    }.items():  # fmt: skip
        (folder / f"{name}.toml").write_text(
            '[source]\nfile = "ward.parquet"\n[columns]\nquasi_identifiers = ["age", "sex"]\nsensitive = "illness"\n'
            f'[release]\nname = "ward"\nto = "{name}.duckdb"\n[mechanism]\nthreshold = "1/4"\n{extra}\n'
        )
    return folder


@pytest.mark.parametrize("name", rest_slow(["two", "picky", "weaker"]))
def test_a_release_with_fakes_is_verified(ward: Path, name: str) -> None:
    facts = json.loads(succeeded("publish", ward / f"{name}.toml", "--seed", "1", "--replace", "--json").out)
    succeeded("verify", ward / f"{name}.duckdb")
    succeeded("verify", ward / f"{name}.duckdb", "--source", ward / f"{name}.toml")
    manifest = privsql.inspect(ward / f"{name}.duckdb")
    sigma = manifest.parameters["fake_values"]
    assert manifest.facts["fake_values"] == sigma
    assert facts["weak_fakes"] == manifest.facts["weak_fakes"]
    with duckdb.connect(str(ward / f"{name}.duckdb"), read_only=True) as db:
        sizes = db.execute(
            "SELECT DISTINCT s.n - q.n FROM (SELECT bid, count(*) n FROM qit GROUP BY bid) q "
            'JOIN (SELECT bid, sum("count") n FROM st GROUP BY bid) s USING (bid)'
        ).fetchall()
        assert sizes == [(sigma,)]
        assert db.execute("SELECT sum(weight) FROM ward").fetchone()[0] == pytest.approx(4000)


@pytest.mark.slow
def test_bounds_are_certain_and_intervals_cover_with_fakes(ward: Path) -> None:
    succeeded("publish", ward / "two.toml", "--seed", "2", "--replace")
    succeeded("publish", ward / "plain.toml", "--seed", "2", "--replace")
    found = {}
    for name in ("plain", "two"):
        spec = privsql.load(ward / f"{name}.toml")
        scores = privsql.evaluate(ward / f"{name}.duckdb", spec, privsql.Workload(queries=200)).scores
        found[name] = {estimator: score.summary() for estimator, score in scores.items()}
        assert found[name]["baseline"]["coverage"] == 1
        assert found[name]["reconstructed"]["coverage"] >= 0.9
    errors = [found[name]["reconstructed"]["mean_relative_error"] for name in ("plain", "two")]
    assert errors[0] < errors[1] < 3 * errors[0]


@pytest.mark.parametrize(
    "change",
    rest_slow(
        [
            'UPDATE st SET "count" = 2 WHERE bid = 3 AND illness = (SELECT min(illness) FROM st WHERE bid = 3)',
            "DELETE FROM st WHERE bid = 3 AND illness = (SELECT min(illness) FROM st WHERE bid = 3)",
            "UPDATE privsql_values SET records = records + 1 WHERE code = 2",
            "UPDATE privsql_manifest SET value = replace(value, '\"fake_values\": 2', '\"fake_values\": 1')",
        ],
        2,
    ),
)
def test_tampering_with_fakes_is_found(ward: Path, tmp_path: Path, change: str) -> None:
    succeeded("publish", ward / "two.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    with duckdb.connect(str(tmp_path / "r.duckdb")) as db:
        db.execute(change)
    assert run("verify", tmp_path / "r.duckdb").code in (1, 2)


def test_an_invented_value_is_found_against_the_source(ward: Path, tmp_path: Path) -> None:
    """A real value changed for one that nobody of the bucket can have: more unexplained values than fakes."""
    succeeded("publish", ward / "two.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    with duckdb.connect(str(tmp_path / "r.duckdb")) as db:
        db.execute("UPDATE qit SET age = 0 WHERE bid < 50")
        db.execute("UPDATE st SET illness = illness WHERE bid < 50")
    assert run("verify", tmp_path / "r.duckdb", "--source", ward / "two.toml").code == 1


def test_requests_that_make_no_sense_are_refused(ward: Path) -> None:
    refused(run("publish", ward / "many.toml"), 3, "fake values", "fewer fakes")
    spec = (ward / "two.toml").read_text()
    (ward / "rule.toml").write_text(spec.replace('"1/4"', '"2*f + 0.1"'))
    refused(run("publish", ward / "rule.toml"), 2, "constant threshold")
    (ward / "alone.toml").write_text(spec.replace("fake_values = 2", "exclude_negative = true"))
    refused(run("publish", ward / "alone.toml"), 2, "fake_values")


def test_without_fakes_the_channel_is_that_of_the_buckets() -> None:
    """Also where a value stands more than once in a bucket: records are row sums over sizes, not times listed."""
    pairs = np.array([[4.0, 2.0], [2.0, 1.0]])  # one bucket of size 3: a, a, b
    one = Listed(3, 1, pairs, 0)
    assert one.records == pytest.approx([2, 1])
    assert one.most == pytest.approx([2, 1])
    assert channel([one]).mean == pytest.approx(np.array([[2 / 3, 1 / 3], [2 / 3, 1 / 3]]))
    assert channel([one]).moment == pytest.approx(pairs / 3)
