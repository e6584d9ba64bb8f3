"""Fake values: how they are drawn, what an estimate makes of them, and how a release with them is checked."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.releases.opened import read_manifest
from support.commands import refused, rows, run, succeeded
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path


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
        "many": "fake_values = 10", "odd": "fake_values = 2\nmin_bucket_size = 6\nmax_bucket_size = 7",
    }.items():  # fmt: skip
        (folder / f"{name}.toml").write_text(
            '[source]\nfile = "ward.parquet"\n[columns]\nquasi_identifiers = ["age", "sex"]\nsensitive = "illness"\n'
            f'[release]\nname = "ward"\nto = "{name}.duckdb"\n[mechanism]\nthreshold = "1/4"\n{extra}\n'
        )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["two", "picky", "weaker"]))
def test_a_release_with_fakes_is_verified(ward: Path, name: str) -> None:
    facts = json.loads(
        succeeded("publish", ward / f"{name}.toml", "--seed", "1", "--replace", "--nobody-has-it", "--json").out
    )
    succeeded("verify", ward / f"{name}.duckdb")
    succeeded("verify", ward / f"{name}.duckdb", "--source", ward / f"{name}.toml")
    manifest = read_manifest(ward / f"{name}.duckdb")
    sigma = manifest.parameters["fake_values"]
    assert manifest.facts["fake_values"] == sigma
    assert facts["weak_fakes"] == manifest.facts["weak_fakes"]
    with duckdb.connect(str(ward / f"{name}.duckdb"), read_only=True) as db:
        sizes = db.execute(
            "SELECT DISTINCT s.n - q.n FROM (SELECT bid, count(*) n FROM qit GROUP BY bid) q "
            'JOIN (SELECT bid, sum("count") n FROM st GROUP BY bid) s USING (bid)'
        ).fetchall()
        assert sizes == [(sigma,)]
        assert db.execute("SELECT sum(weight) FROM ward_weighted").fetchone()[0] == pytest.approx(4000)


@pytest.mark.soak(part="coverage")
def test_bounds_are_certain_and_intervals_cover_with_fakes(ward: Path) -> None:
    for name in ("two", "plain"):
        succeeded(
            "publish", ward / f"{name}.toml", "--seed", "2", "--replace", "--nobody-has-it", "--allow-composition"
        )
    found = {}
    for name in ("plain", "two"):
        spec = privsql.load(ward / f"{name}.toml")
        scores = privsql.evaluate(ward / f"{name}.duckdb", spec, privsql.Workload(queries=200)).scores
        found[name] = {estimator: score.summary() for estimator, score in scores.items()}
        assert found[name]["baseline"]["coverage"] == 1
        assert found[name]["linear"]["coverage"] >= 0.9
    errors = [found[name]["linear"]["mean_relative_error"] for name in ("plain", "two")]
    assert errors[0] < errors[1] < 3 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    rest_slow(
        [
            'UPDATE st SET "count" = 2 WHERE bid = 3 AND illness = (SELECT min(illness) FROM st WHERE bid = 3)',
            "DELETE FROM st WHERE bid = 3 AND illness = (SELECT min(illness) FROM st WHERE bid = 3)",
            "UPDATE privsql_values SET records = records + 1 WHERE code = 2",
            "UPDATE privsql_manifest SET value = replace(value, '\"fake_values\": 2', '\"fake_values\": 1')",
            "UPDATE privsql_manifest SET value = replace(value, '\"fake_values\": 2', '\"fake_values\": 0')",
        ],
        2,
    ),
)
def test_tampering_with_fakes_is_found(ward: Path, tmp_path: Path, change: str) -> None:
    succeeded("publish", ward / "two.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    with duckdb.connect(str(tmp_path / "r.duckdb")) as db:
        db.execute(change)
    assert run("verify", tmp_path / "r.duckdb").code in (1, 2)


@pytest.mark.slow
def test_an_invented_value_is_found_against_the_source(ward: Path, tmp_path: Path) -> None:
    """A real value changed for one that nobody of the bucket can have: more unexplained values than fakes."""
    succeeded("publish", ward / "two.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    with duckdb.connect(str(tmp_path / "r.duckdb")) as db:
        db.execute("UPDATE qit SET age = 0 WHERE bid < 50")
        db.execute("UPDATE st SET illness = illness WHERE bid < 50")
    assert run("verify", tmp_path / "r.duckdb", "--source", ward / "two.toml").code == 1


def test_requests_that_make_no_sense_are_refused(ward: Path) -> None:
    refused(run("publish", ward / "many.toml"), 3, "fake values", "lower fake_values")
    spec = (ward / "two.toml").read_text()
    (ward / "rule.toml").write_text(spec.replace('"1/4"', '"2*f + 0.1"'))
    refused(run("publish", ward / "rule.toml"), 2, "constant threshold")
    (ward / "alone.toml").write_text(spec.replace("fake_values = 2", "exclude_negative = true"))
    refused(run("publish", ward / "alone.toml"), 2, "fake_values")


# What a publisher states of them ---


def facts_of(release: Path) -> dict[str, Any]:
    return json.loads(rows(release, "SELECT value FROM privsql_manifest WHERE key = 'facts'")[0][0])


def claiming(release: Path, **facts: Any) -> None:
    """Rewrites facts of the manifest; None takes one out."""
    told = {name: value for name, value in (facts_of(release) | facts).items() if value is not None}
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE privsql_manifest SET value = ? WHERE key = 'facts'", [json.dumps(told)])


@pytest.mark.slow
def test_the_manifest_states_how_certain_each_value_is(ward: Path, tmp_path: Path) -> None:
    """Real counts are the source's, and the shares are those of the lists."""
    succeeded("publish", ward / "two.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    facts = facts_of(tmp_path / "r.duckdb")
    source = Counter(pq.read_table(ward / "ward.parquet")["illness"].to_pylist())
    listed = dict(rows(tmp_path / "r.duckdb", "SELECT illness, count(*) FROM st GROUP BY ALL"))
    assert facts["real"] == [source[x] for x in sorted(source)]
    shares = [Fraction(source[x], listed[x]) for x in sorted(source)]
    assert (Fraction(facts["certainty"]["lowest"]), Fraction(facts["certainty"]["highest"])) == (
        min(shares),
        max(shares),
    )
    assert Fraction(facts["certainty"]["mean"]) == Fraction(4, 6)
    assert float(max(shares)) == pytest.approx(4 / 6, abs=0.002)
    assert max(shares) <= facts["certainty"]["anywhere"] < 4 / 6 + 0.01


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("nothing said", dict.fromkeys(("real", "certainty"))),
    ("a fact that there is not", {"fake_law": "uniform"}),
    ("nothing real", {"real": [0] * 12}),
    ("too few values", {"real": [4000]}),
    ("no list", {"real": None}),
    ("more even", {"certainty": {"mean": "2/3", "lowest": "2/3", "highest": "2/3", "anywhere": 0.6667}}),
    ("no number", {"certainty": {"mean": "1/0", "lowest": "x", "highest": "nan", "anywhere": 0.6667}}),
    ("uneven all the same", {"uneven": {"0": "1/2"}}),
    ("no bucket", {"setting": {"4": 1}}),
    ("numbers of another kind", {"fake_values": 1}),
    ("too many to be so", {"fake_values": 10**9}),
    ("many of many", {"real": [2**53] * 12}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "facts"), rest_slow(HOSTILE, 5))
def test_what_is_stated_of_fakes_is_checked(ward: Path, tmp_path: Path, name: str, facts: dict[str, Any]) -> None:
    succeeded("publish", ward / "two.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    claiming(tmp_path / "r.duckdb", **facts)
    done = run("verify", tmp_path / "r.duckdb")
    assert done.crash is None, f"{name}: {done.crash!r}"
    assert done.code == (4 if name == "a fact that there is not" else 1), done.out


@pytest.mark.slow
def test_real_counts_that_are_the_sources_in_another_order_are_found(ward: Path, tmp_path: Path) -> None:
    """Two values' counts exchanged: the lists follow from the counts."""
    succeeded("publish", ward / "two.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    real = facts_of(tmp_path / "r.duckdb")["real"]
    low, high = int(np.argmin(real)), int(np.argmax(real))
    real[low], real[high] = real[high], real[low]
    claiming(tmp_path / "r.duckdb", real=real)
    done = run("verify", tmp_path / "r.duckdb")
    assert done.code == 1
    checks = json.loads(run("verify", tmp_path / "r.duckdb", "--json").out)["checks"]
    assert "each value is listed as often as the law of the fakes says" in {c["name"] for c in checks if not c["ok"]}


@pytest.mark.slow
def test_a_certainty_in_one_bucket_that_is_too_low_is_found(ward: Path, tmp_path: Path) -> None:
    succeeded("publish", ward / "odd.toml", "--seed", "1", "--to", tmp_path / "r.duckdb")
    said = facts_of(tmp_path / "r.duckdb")["certainty"]
    claiming(tmp_path / "r.duckdb", certainty=said | {"anywhere": said["anywhere"] - 0.001})
    assert run("verify", tmp_path / "r.duckdb").code == 1


# Tables that leave little to hide among ---


def small(folder: Path, query: str, mechanism: str) -> Path:
    """A table of a query with columns a and x, and how it is to be published."""
    with duckdb.connect() as db:
        db.execute(f"COPY ({query}) TO '{folder / 't.parquet'}'")
    (folder / "t.toml").write_text(
        '[source]\nfile = "t.parquet"\n[columns]\nquasi_identifiers = ["a"]\nsensitive = "x"\n'
        f'[release]\nname = "t"\nto = "t.duckdb"\n[mechanism]\n{mechanism}\n'
    )
    return folder / "t.toml"


FREQUENT = "SELECT range AS a, CASE WHEN range < 200 THEN 0 ELSE 1 + range % 20 END AS x FROM range(1000)"


@pytest.mark.slow
def test_a_value_that_is_too_frequent_is_refused_and_what_is_offered_works(tmp_path: Path) -> None:
    """A fifth of the records: 1,000 are not dealt to buckets of 3, so with two fakes buckets of 2 are offered."""
    spec = small(tmp_path, FREQUENT, 'threshold = "1/4"\nfake_values = 2')
    refused(run("publish", spec), 3, "1/6 of the records", "0 (0.2)", "threshold = '1/2'", "fake_values = 1", "state")
    for mechanism in ('threshold = "1/2"\nfake_values = 2', 'threshold = "1/4"\nfake_values = 1'):
        succeeded("publish", small(tmp_path, FREQUENT, mechanism), "--replace", "--nobody-has-it", "--seed", 1)
        succeeded("verify", tmp_path / "t.duckdb", "--source", spec)
        assert "uneven" not in facts_of(tmp_path / "t.duckdb")


@pytest.mark.slow
def test_how_certain_a_frequent_value_is_can_be_stated(tmp_path: Path) -> None:
    """It is listed in all 250 buckets, and real in 200."""
    spec = small(tmp_path, FREQUENT, 'threshold = "1/4"\nfake_values = 2\nuneven_fakes = "state"')
    said = succeeded("publish", spec, "--seed", 1, "--verbose")
    assert "too frequent real: 0.8000 of what is listed of 0" in " ".join(said.out.split())
    facts = facts_of(tmp_path / "t.duckdb")
    assert {name: Fraction(value) for name, value in facts["uneven"].items()} == {"0": Fraction(4, 5)}
    succeeded("verify", tmp_path / "t.duckdb", "--source", spec)
    for wrong in ({"uneven": {"0": "2/3"}}, {"uneven": None}):
        claiming(tmp_path / "t.duckdb", **(facts | {"uneven": None} | wrong))
        assert run("verify", tmp_path / "t.duckdb").code == 1


@pytest.mark.parametrize(
    ("query", "mechanism", "code"),
    rest_slow([
        ("SELECT range AS a, range % 2 AS x FROM range(100)", 'threshold = "1/2"\nfake_values = 1', 3),
        ("SELECT range AS a, 7 AS x FROM range(100)", 'threshold = "1/2"\nfake_values = 1', 3),
        ("SELECT range AS a, 7 AS x FROM range(0)", 'threshold = "1/2"\nfake_values = 1', 3),
        ("SELECT range AS a, range % 6 AS x FROM range(100)", 'threshold = "1/2"\nfake_values = 7', 3),
        ("SELECT range AS a, range % 5 AS x FROM range(100)", 'threshold = "1/3"\nfake_values = 1', 0),
        ("SELECT range AS a, range % 5 AS x FROM range(5)", 'threshold = "1/2"\nfake_values = 1', 3),
        ("SELECT range AS a, range % 40 AS x FROM range(40)", 'threshold = "1/4"\nfake_values = 2', 3),
        ("SELECT range AS a, range % 30 AS x FROM range(997)", ('algorithm = "multi-size"\nthreshold = "1/4"\n'
         "fake_values = 3\nmax_bucket_size = 7"), 0),
        ("SELECT range AS a, range % 30 AS x FROM range(997)", ('algorithm = "two-size"\nthreshold = "1/4"\n'
         'fake_values = 3\nlayout = "round-robin"'), 0),
        ("SELECT range AS a, range % 30 AS x FROM range(997)", ('algorithm = "anatomy"\nthreshold = "1/4"\n'
         "fake_values = 3"), 0),
    ]),
)  # fmt: skip
def test_tables_that_leave_little_to_hide_among(tmp_path: Path, query: str, mechanism: str, code: int) -> None:
    """Published and verified, or refused in one line."""
    spec = small(tmp_path, query, mechanism)
    done = run("publish", spec, "--seed", 1)
    if code:
        refused(done, code)
        return
    assert done.code == 0, done.err + done.out
    succeeded("verify", tmp_path / "t.duckdb", "--source", spec)
