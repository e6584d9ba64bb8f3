"""Randomized releases through the command line: published, planned, verified, asked, evaluated, damaged."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from support.commands import (
    MANIFEST,
    Outcome,
    fetched,
    left_over,
    manifest,
    refused,
    rows,
    run,
    specification,
    succeeded,
    tables,
    warehouse,
    write,
)
from support.hospital import SICK, N, wanted
from support.loops import each, rest_slow
from support.tampering import fact, parameter, rewrite, stating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FACTS = {"subtables", "groups", "bound", "bound_up", "retention", "retention_up", "skew", "optimal"}
CONTENTS = "holds the stated tables"
POSTERIORS = "posteriors within rho2"
HELD = "sub-tables hold the stated"
LISTED = "domains hold the listed values"
BELONG = "perturbed values belong"
POSSIBLE = "frequencies are possible"
CLAIMS = "bound, retention"
CONDITIONS = (
    "disease = 'd1'", "sex = 'F' AND disease = 'd0'", "disease IN ('d0', 'd3', 'd9') AND age < 40", "disease <> 'd2'",
    "zip BETWEEN 2 AND 5 AND disease = 'd6'", "disease IS NULL", "sex = 'X' AND disease = 'd1'",
    "sex = 'F' OR disease = 'd1'", "NOT (sex = 'F' AND disease IN ('d4', 'd5'))", "disease LIKE 'd%' AND zip = 3",
)  # fmt: skip


@pytest.fixture
def place(hospital: Path, tmp_path: Path) -> Path:
    """A folder with a source and the specification pp.toml of it."""
    shutil.copy(hospital / "people.parquet", tmp_path)
    specification(tmp_path, release='name = "ill"\nto = "ill.duckdb"', mechanism=wanted(), name="pp.toml")
    return tmp_path


@pytest.fixture(scope="module")
def truth(hospital: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The source as table ill."""
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE ill AS FROM '{hospital / 'people.parquet'}'")
        yield db


def answers(release: Path, sql: str, *flags: object) -> list[dict[str, Any]]:
    """Rows of an answer."""
    found: list[dict[str, Any]] = succeeded("query", release, sql, *flags, "--json").json["rows"]
    return found


# What every command does ---


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", rest_slow(["up", "pp"]))
def test_publish_states_what_it_made(hospital: Path, algorithm: str) -> None:
    release = hospital / f"{algorithm}.duckdb"
    stated = manifest(release)
    assert (stated["mechanism"], stated["algorithm"]) == ("randomize", algorithm)
    assert stated["facts"].keys() == FACTS
    assert stated["facts"]["bound"] <= stated["facts"]["bound_up"]
    assert rows(release, "SELECT count(*), count(DISTINCT sub_table) FROM perturbed") == [
        (N, stated["facts"]["subtables"])
    ]
    if algorithm == "up":
        assert rows(release, "FROM privsql_subtables") == [(0, N, 10, 2, 7, 5, 1)]
        assert stated["facts"]["bound"] == stated["facts"]["bound_up"]
    else:
        assert stated["facts"]["subtables"] > 1
        assert stated["facts"]["retention"] > stated["facts"]["retention_up"]
    assert rows(release, "SELECT disease, protected FROM privsql_values") == [(f"d{i}", True) for i in range(10)]
    for path in (release, hospital / "pp.toml"):
        assert "secret" not in path.read_bytes().decode("latin1")


@pytest.mark.slow
@each("release", ["up.duckdb", "pp.duckdb", "folder"], few=2)
@each("with_source", [False, True])
def test_verify(hospital: Path, release: str, with_source: bool) -> None:
    source = ["--source", hospital / ("up.toml" if release.startswith("up") else "pp.toml")] if with_source else []
    shown = succeeded("verify", hospital / release, *source, "--json").json
    assert shown["ok"]
    assert any("seed" in note for note in shown["notes"])
    names = {check["name"] for check in shown["checks"]}
    assert any("posteriors within rho2" in name for name in names)
    assert with_source == any("agree with the stated matrices" in name for name in names)
    assert "verified" in succeeded("verify", hospital / release).out


@pytest.mark.slow
def test_verify_against_another_specification_names_the_difference(hospital: Path) -> None:
    found = failed(run("verify", hospital / "pp.duckdb", "--source", hospital / "up.toml", "--json"))
    assert found["parameters are those of the specification"] == ["algorithm: stated pp, asked for up"]


@pytest.mark.slow
def test_plan_writes_nothing_and_says_what_publish_does(place: Path) -> None:
    before = sorted(place.iterdir())
    planned = succeeded("plan", place / "pp.toml", "--json").json
    assert sorted(place.iterdir()) == before
    published = succeeded("publish", place / "pp.toml", "--json").json
    for key in (*FACTS, "mechanism", "algorithm", "records", "published", "suppressed"):
        assert planned[key] == published[key], key
    assert planned["release"] is None
    assert published["release"] == str(place / "ill.duckdb")
    assert all(check["ok"] for check in published["checks"])
    assert left_over(place) == []
    assert "retention" in succeeded("plan", place / "pp.toml").out


@pytest.mark.slow
def test_verify_shows_the_manifest(hospital: Path) -> None:
    for release in ("up.duckdb", "pp.duckdb", "folder"):
        shown = succeeded("verify", hospital / release, "--verbose").out
        assert all(word in shown for word in ("randomize", "rho1 = ", "rho2 = ", "retention", "disease"))
        assert succeeded("verify", hospital / release, "--json").json["manifest"]["facts"].keys() == FACTS


@pytest.mark.slow
def test_a_seed_repeats_the_release_and_another_does_not(place: Path) -> None:
    made = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        succeeded("publish", place / "pp.toml", "--seed", seed, "--to", place / f"{name}.duckdb", "--allow-composition")
        made.append(tables(place / f"{name}.duckdb"))
    assert made[0] == made[1]
    assert made[0]["perturbed"] != made[2]["perturbed"]
    assert {name: made[0][name] for name in made[0] if name != "perturbed"} == {
        name: made[2][name] for name in made[2] if name != "perturbed"
    }


@pytest.mark.slow
def test_the_order_of_the_source_leaves_no_trace(place: Path) -> None:
    write(
        place / "shuffled.parquet", f"SELECT * FROM '{place / 'people.parquet'}' ORDER BY zip, hash(age), disease DESC"
    )
    specification(
        place,
        source=f'file = "shuffled.parquet"\npopulation = "{place.name}/people"',
        release='name = "ill"',
        mechanism=wanted(),
        name="other.toml",
    )
    succeeded("publish", place / "pp.toml", "--seed", 5, "--to", place / "a.duckdb")
    succeeded("publish", place / "other.toml", "--seed", 5, "--to", place / "b.duckdb")
    assert tables(place / "a.duckdb") == tables(place / "b.duckdb")


@pytest.mark.slow
def test_a_key_file_repeats_the_release_and_is_not_in_it(place: Path) -> None:
    for name in ("a", "b"):
        succeeded("publish", place / "pp.toml", "--key-file", place / "key", "--to", place / f"{name}.duckdb")
    assert tables(place / "a.duckdb") == tables(place / "b.duckdb")
    secret = (place / "key").read_text().strip()
    content = (place / "a.duckdb").read_bytes()
    assert secret.encode() not in content
    assert bytes.fromhex(secret) not in content
    assert manifest(place / "a.duckdb")["randomness"] == "key-file"


@pytest.mark.slow
def test_one_key_gives_other_choices_for_another_amplification(place: Path) -> None:
    """Same counts, same rho2, one sub-table, but fewer values protected: who is retained must not be the same draw."""
    table = "CREATE TABLE t AS SELECT CAST(i AS INTEGER) AS age, 'd' || (i * 7 % 10 // 4) AS d FROM range(4000) t(i)"
    warehouse(place / "w.duckdb", table)  # 40, 40, 20 %
    kept = []
    for rho1 in ("2/5", "1/5"):
        specification(
            place, source='database = "w.duckdb"\ntable = "t"', columns='quasi_identifiers = ["age"]\nsensitive = "d"',
            release=f'name = "r"\nto = "{rho1[0]}.duckdb"', mechanism=wanted("up", rho1, "1/2"), name="s.toml",
        )  # fmt: skip
        succeeded("publish", place / "s.toml", "--seed", 1, "--allow-composition")
        with duckdb.connect(str(place / "w.duckdb"), read_only=True) as db:
            db.execute(f"ATTACH '{place / rho1[0]}.duckdb' AS r (READ_ONLY)")
            kept.append(
                {
                    age
                    for (age,) in db.execute(
                        "SELECT age FROM t JOIN r.perturbed p USING (age) WHERE t.d = p.d"
                    ).fetchall()
                }
            )
    # Independent: |A and B| is binomial around |A| |B| / n, 6 standard deviations (false alarm 2e-9).
    n, expected = 4000, len(kept[0]) * len(kept[1]) / 4000
    assert abs(len(kept[0] & kept[1]) - expected) < 6 * math.sqrt(n) / 2


@pytest.mark.slow
def test_a_release_is_replaced_only_if_asked(place: Path) -> None:
    succeeded("publish", place / "pp.toml")
    refused(run("publish", place / "pp.toml"), 2, "exists", "option replace")
    succeeded("publish", place / "pp.toml", "--replace")


# Sources and columns ---


@pytest.mark.soak(part="long")
def test_a_table_and_a_query_of_a_database(place: Path) -> None:
    warehouse(place / "w.duckdb", f"CREATE TABLE people AS {SICK.format(n=2100)}")
    for number, source in enumerate(('table = "people"', 'query = "SELECT * FROM people WHERE zip < 9"')):
        spec = specification(
            place,
            source=f'database = "w.duckdb"\n{source}',
            mechanism=wanted(),
            release=f'name = "r"\nto = "{number}.duckdb"',
        )
        succeeded("publish", spec, "--allow-composition")
        succeeded("verify", place / f"{number}.duckdb", "--source", spec)
    assert rows(place / "0.duckdb", "SELECT count(*) FROM perturbed") == [(2100,)]


@pytest.mark.slow
def test_two_sensitive_columns_are_one_value(place: Path) -> None:
    sql = f"SELECT age, zip, sex, disease FROM ({SICK.format(n=4200)})"
    write(place / "two.parquet", sql)
    spec = specification(
        place,
        source='file = "two.parquet"',
        columns='quasi_identifiers = ["age", "zip"]\nsensitive = ["sex", "disease"]',
        mechanism=wanted("pp", "1/5", "1/2"),
        release='name = "two"\nto = "two.duckdb"',
    )
    succeeded("publish", spec, "--seed", 2)
    succeeded("verify", place / "two.duckdb", "--source", spec)
    real = set(fetched(f"SELECT DISTINCT sex, disease FROM ({sql})"))
    assert set(rows(place / "two.duckdb", "SELECT DISTINCT sex, disease FROM perturbed")) <= real
    assert set(rows(place / "two.duckdb", "SELECT sex, disease FROM privsql_values")) == real
    (both,) = answers(place / "two.duckdb", "SELECT COUNT(*) FROM two WHERE sex = 'F' AND disease = 'd0'")
    (one,) = answers(place / "two.duckdb", "SELECT COUNT(*) FROM two WHERE sex = 'F'")
    true = fetched(f"SELECT count(*) FILTER (disease = 'd0'), count(*) FROM ({sql}) WHERE sex = 'F'")[0]
    assert both["low"] <= true[0] <= both["high"]
    assert one["low"] <= true[1] <= one["high"]


@pytest.mark.soak(part="long")
def test_null_is_a_value_of_either_role(place: Path) -> None:
    sql = f"""
SELECT CASE WHEN zip <> 3 THEN age END AS age, sex, zip,
  CASE WHEN disease <> 'd1' THEN disease END AS disease
FROM ({SICK.format(n=4200)})"""
    write(place / "nulls.parquet", sql)
    columns = 'quasi_identifiers = ["age", "sex", "zip"]\nsensitive = "disease"'
    for policy, published in (("value", 4200), ("suppress", 3400)):
        release = place / f"{policy}.duckdb"
        spec = specification(
            place, source='file = "nulls.parquet"', columns=f'{columns}\nnulls = {{ disease = "{policy}" }}',
            mechanism=wanted(), release=f'name = "n"\nto = "{policy}.duckdb"',
        )  # fmt: skip
        succeeded("publish", spec, "--seed", 3, "--allow-composition")
        succeeded("verify", release, "--source", spec)
        assert rows(release, "SELECT count(*) FROM perturbed") == [(published,)]
        assert rows(release, "SELECT count(*) FROM privsql_values WHERE disease IS NULL") == [(int(policy == "value"),)]
        (exact,) = answers(release, "SELECT COUNT(*) FROM n WHERE age IS NULL")
        assert exact["estimate"] == rows(release, "SELECT count(*) FROM perturbed WHERE age IS NULL")[0][0] > 0
        (missing,) = answers(release, "SELECT COUNT(*) FROM n WHERE disease IS NULL AND sex = 'F'")
        true = fetched(f"SELECT count(*) FROM ({sql}) WHERE disease IS NULL AND sex = 'F'")[0][0]
        assert (missing["low"] <= true <= missing["high"]) if policy == "value" else missing["estimate"] == 0
    spec = specification(place, source='file = "nulls.parquet"', mechanism=wanted())
    refused(run("publish", spec), 2, "'disease' is NULL in 800 records", "suppress")


@pytest.mark.slow
@each(
    ("quasi", "sensitive"),
    [("größe", 'naïve "x"; --'), ("n", "s0"), ("set", "place"), ("q", "c"), ("t", "pairs"), ("cell", "cell2"),
     ("s0", "q0"), ("gamma", "listed"), ("perturbed", "subtables"), ("records", "size"), ("code", "step"),
     ("protected", "bid"), ("select", "from"), ("disease", "v"), ("g_0", "stated")], few=2,
)  # fmt: skip
def test_columns_may_be_called_anything(tmp_path: Path, quasi: str, sensitive: str) -> None:
    named = [json.dumps(name, ensure_ascii=False) for name in (quasi, sensitive)]
    quoted = ['"' + name.replace('"', '""') + '"' for name in (quasi, sensitive)]
    with duckdb.connect() as db:
        db.execute(
            f"CREATE TABLE t AS SELECT sex AS {quoted[0]}, zip, disease AS {quoted[1]} FROM ({SICK.format(n=2100)})"
        )
        db.execute(f"COPY t TO '{tmp_path / 'odd.parquet'}'")
        true = db.execute(f"SELECT count(*) FROM t WHERE {quoted[0]} = 'F' AND {quoted[1]} = 'd0'").fetchall()[0][0]
    spec = specification(
        tmp_path, source='file = "odd.parquet"',
        columns=f'quasi_identifiers = [{named[0]}, "zip"]\nsensitive = {named[1]}',
        mechanism=wanted(), release='name = "odd"\nto = "odd.duckdb"',
    )  # fmt: skip
    succeeded("publish", spec, "--seed", 4, "--replace")
    succeeded("verify", tmp_path / "odd.duckdb", "--source", spec)
    condition = f"{quoted[0]} = 'F' AND {quoted[1]} = 'd0'"
    (found,) = answers(tmp_path / "odd.duckdb", f"SELECT COUNT(*) FROM odd WHERE {condition}")
    assert found["low"] <= true <= found["high"]
    grouped = answers(
        tmp_path / "odd.duckdb", f"SELECT {quoted[0]}, {quoted[1]}, COUNT(*) FROM odd GROUP BY {quoted[0]}, {quoted[1]}"
    )
    assert sum(row["estimate"] for row in grouped) == pytest.approx(2100, rel=1e-6)
    view = dict(
        rows(
            tmp_path / "odd.duckdb",
            f"SELECT {quoted[0]}, sum(weight) FROM odd_weighted WHERE {quoted[1]} = 'd0' GROUP BY 1",
        )
    )
    baseline = answers(
        tmp_path / "odd.duckdb", f"SELECT {quoted[0]}, COUNT(*) FROM odd WHERE {quoted[1]} = 'd0' GROUP BY {quoted[0]}",
        "--estimator", "baseline",
    )  # fmt: skip
    assert {row[quasi]: row["estimate"] for row in baseline} == pytest.approx(view)


@pytest.mark.slow
@each(
    ("role", "name"),
    [("qi", "sub_table"), ("qi", "WEIGHT"), ("sa", "Code"), ("sa", "protected"), ("sa", "sub_table")],
    few=1,
)
def test_columns_may_be_called_like_those_of_the_release(place: Path, role: str, name: str) -> None:
    quasi, sensitive = (name, "disease") if role == "qi" else ("sex", name)
    write(place / "odd.parquet", f'SELECT sex AS "{quasi}", disease AS "{sensitive}" FROM ({SICK.format(n=420)})')
    spec = specification(
        place, source='file = "odd.parquet"', columns=f'quasi_identifiers = ["{quasi}"]\nsensitive = "{sensitive}"',
        release='name = "odd"\nto = "odd.duckdb"', mechanism=wanted(),
    )  # fmt: skip
    release = place / f"{role}_{name}.duckdb"
    succeeded("publish", spec, "--to", release, "--allow-composition")
    succeeded("verify", release, "--source", spec)
    spec = specification(place, release='name = "perturbed"\nto = "x.duckdb"', mechanism=wanted())
    refused(run("publish", spec), 2, "'perturbed' is the name of a table")


# Requests that can't be met ---


@pytest.mark.slow
@each(
    ("mechanism", "code", "words"),
    [
        (wanted(rho1="1/50"), 3, ("no sensitive value", "rho1 = 1/50", "d6", "choose rho1 >= 1/42")),
        (wanted(rho1="2/3", rho2="2/3"), 2, ("rho1", "below rho2")),
        (wanted(rho1="3/4"), 2, ("rho1 3/4", "below rho2 2/3")),
        (wanted(rho2="1"), 2, ("rho2 = 1", "below 1")),
        (wanted(rho1="0"), 2, ("rho1", "outside (0, 1]")),
        (wanted() + '\ndelta = "1"', 2, ("delta = 1", "0.05")),
        (wanted("down"), 2, ("algorithm", "'up'", "'pp'")),
        (wanted() + '\nthreshold = "1/2"', 2, ("threshold",)),
        ('kind = "randomize"\nrho1 = "1/3"', 2, ("rho2",)),
        ('kind = "randomise"\nrho1 = "1/3"\nrho2 = "2/3"', 2, ("randomize",)),
    ],
)
def test_requests_that_cant_be_met_say_what_would_work(
    place: Path, mechanism: str, code: int, words: tuple[str, ...]
) -> None:
    spec = specification(place, mechanism=mechanism)
    for command in ("plan", "publish"):
        refused(run(command, spec), code, *words)
    assert not (place / "ill.duckdb").exists()
    assert left_over(place) == []


@pytest.mark.slow
def test_infeasibility_as_json(place: Path) -> None:
    done = run("publish", specification(place, mechanism=wanted(rho1="1/50")), "--json")
    assert done.code == 3
    assert done.json["nearest_rho1"] == "1/42"
    succeeded("publish", specification(place, mechanism=wanted(rho1="1/42")))


@pytest.mark.slow
def test_one_sensitive_value_can_not_be_perturbed(place: Path) -> None:
    write(place / "one.parquet", "SELECT 'x' AS disease, CAST(i AS INTEGER) AS age FROM range(9) t(i)")
    columns = 'quasi_identifiers = ["age"]\nsensitive = "disease"'
    spec = specification(place, source='file = "one.parquet"', columns=columns, mechanism=wanted())
    refused(run("publish", spec), 3, "at least 2 sensitive values")


@pytest.mark.soak(part="long")
@pytest.mark.parametrize(
    "rho2", rest_slow(["0.333456789012345678", "0.6666666666666667", "0.300000001", "0.99999999999"])
)
@pytest.mark.parametrize("algorithm", ["up", "pp"])
def test_bounds_of_many_digits_are_published(place: Path, algorithm: str, rho2: str) -> None:
    spec = specification(place, mechanism=wanted(algorithm, "0.3", rho2))
    succeeded("publish", spec, "--seed", 1)
    succeeded("verify", place / "ill.duckdb", "--source", spec)


@pytest.mark.soak(part="long")
def test_few_records_and_two_values(place: Path) -> None:
    write(
        place / "few.parquet",
        "SELECT CASE WHEN i < 3 THEN 'a' ELSE 'b' END AS d, CAST(i AS INTEGER) AS age FROM range(5) t(i)",
    )
    columns = 'quasi_identifiers = ["age"]\nsensitive = "d"'
    for algorithm in ("up", "pp"):
        spec = specification(
            place, source='file = "few.parquet"', columns=columns, mechanism=wanted(algorithm, "2/5", "1/2"),
            release=f'name = "few"\nto = "{algorithm}.duckdb"',
        )  # fmt: skip
        succeeded("publish", spec, "--seed", 1, "--allow-composition")
        succeeded("verify", place / f"{algorithm}.duckdb", "--source", spec)
        (found,) = answers(place / f"{algorithm}.duckdb", "SELECT COUNT(*) FROM few WHERE d = 'a'")
        assert 0 <= found["low"] <= found["estimate"] <= found["high"] <= 5


# Questions ---


@pytest.mark.slow
@each("release", ["up.duckdb", "pp.duckdb", "folder"], few=10)
@each("condition", CONDITIONS)
def test_the_baseline_is_the_view(hospital: Path, release: str, condition: str) -> None:
    """Equation 7, to 1e-9: the release's own view in any tool says the same. A folder has the tables alone."""
    view = hospital / ("up.duckdb" if release.startswith("up") else "pp.duckdb")
    (weight,) = rows(view, f"SELECT coalesce(sum(weight), 0) FROM ill_weighted WHERE {condition}")[0]
    (found,) = answers(hospital / release, f"SELECT COUNT(*) FROM ill WHERE {condition}", "--estimator", "baseline")
    assert found["estimate"] == pytest.approx(weight, rel=1e-9, abs=1e-6)
    assert found["low"] <= found["estimate"] <= found["high"]


@pytest.mark.slow
@each("release", ["up.duckdb", "pp.duckdb", "folder"], few=1)
@each("estimator", ["reconstructed", "baseline"])
def test_intervals_cover_the_truth(
    hospital: Path, truth: duckdb.DuckDBPyConnection, release: str, estimator: str
) -> None:
    """At 99.99 % each of 10 conditions; with a fixed seed it holds or it does not."""
    for condition in CONDITIONS:
        (true,) = truth.execute(f"SELECT count(*) FROM ill WHERE {condition}").fetchall()[0]
        sql = f"SELECT COUNT(*) FROM ill WHERE {condition}"
        (found,) = answers(hospital / release, sql, "--estimator", estimator, "--confidence", 0.9999)
        room = 1e-9 * N  # sums of doubles
        assert found["low"] - room <= true <= found["high"] + room, (condition, true, found)
        assert found["std_error"] is not None


@pytest.mark.slow
@pytest.mark.parametrize("release", rest_slow(["up.duckdb", "pp.duckdb", "folder"]))
def test_what_only_asks_about_quasi_identifiers_is_exact(
    hospital: Path, truth: duckdb.DuckDBPyConnection, release: str
) -> None:
    for sql in (
        "SELECT sex, COUNT(*) FROM ill WHERE age < 30 GROUP BY sex",
        "SELECT zip, COUNT(*) FROM ill GROUP BY zip",
    ):
        expected = {row[0]: row[1] for row in truth.execute(sql).fetchall()}
        found = answers(hospital / release, sql)
        assert {next(iter(row.values())): row["estimate"] for row in found} == expected
        assert all(row["low"] == row["estimate"] == row["high"] for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("release", rest_slow(["up.duckdb", "pp.duckdb"]))
def test_groups_of_both_sides_add_up(hospital: Path, truth: duckdb.DuckDBPyConnection, release: str) -> None:
    found = answers(
        hospital / release,
        "SELECT sex, disease, COUNT(*) FROM ill WHERE zip < 5 GROUP BY sex, disease",
        "--confidence",
        0.9999,
    )
    true = {
        row[:2]: row[2]
        for row in truth.execute("SELECT sex, disease, count(*) FROM ill WHERE zip < 5 GROUP BY ALL").fetchall()
    }
    assert {(row["sex"], row["disease"]) for row in found} == true.keys()
    for row in found:
        assert row["low"] <= true[row["sex"], row["disease"]] <= row["high"], row
    for sex in ("F", "M"):
        total = sum(count for key, count in true.items() if key[0] == sex)
        assert sum(row["estimate"] for row in found if row["sex"] == sex) == pytest.approx(total, rel=1e-6)
    view = rows(hospital / release, "SELECT sex, disease, sum(weight) FROM ill_weighted WHERE zip < 5 GROUP BY ALL")
    baseline = answers(
        hospital / release,
        "SELECT sex, disease, COUNT(*) FROM ill WHERE zip < 5 GROUP BY sex, disease",
        "--estimator",
        "baseline",
    )
    assert {(row["sex"], row["disease"]): row["estimate"] for row in baseline} == pytest.approx(
        {row[:2]: row[2] for row in view}
    )


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("release", ["up.duckdb", "pp.duckdb"])
def test_sums_and_averages_of_a_quasi_identifier(
    hospital: Path, truth: duckdb.DuckDBPyConnection, release: str
) -> None:
    for condition in ("disease = 'd0'", "sex = 'F' AND disease IN ('d1', 'd2')"):
        for measure in ("SUM(age)", "AVG(age)"):
            sql = f"SELECT {measure} FROM ill WHERE {condition}"
            (found,) = answers(hospital / release, sql, "--confidence", 0.9999)
            assert found["low"] <= truth.execute(sql).fetchall()[0][0] <= found["high"], (sql, found)
    sql = "SELECT sex, AVG(age) FROM ill GROUP BY sex"
    assert {row["sex"]: row["estimate"] for row in answers(hospital / release, sql)} == pytest.approx(
        dict(truth.execute(sql).fetchall())
    )
    refused(
        run("query", hospital / release, "SELECT SUM(age) FROM ill WHERE disease = 'd0'", "--estimator", "baseline"),
        2,
        "reconstructed",
    )
    refused(run("query", hospital / release, "SELECT SUM(disease) FROM ill"), 2)


@pytest.mark.slow
@each("name", ["region", "sub_table", "s0", "cell", "n", "code"], few=2)
def test_a_lookup_of_the_analysts_own(
    hospital: Path, truth: duckdb.DuckDBPyConnection, tmp_path: Path, name: str
) -> None:
    """Whatever its columns are called."""
    write(
        tmp_path / "areas.parquet",
        f"SELECT CAST(i AS INTEGER) AS zip, CASE WHEN i < 4 THEN 'N' ELSE 'S' END AS {name} FROM range(10) t(i)",
    )
    truth.execute(f"CREATE OR REPLACE TABLE areas AS FROM '{tmp_path / 'areas.parquet'}'")
    sql = f"SELECT COUNT(*) FROM ill JOIN areas ON ill.zip = areas.zip WHERE areas.{name} = 'N' AND ill.disease = 'd1'"
    (true,) = truth.execute(sql).fetchall()[0]
    for estimator in ("reconstructed", "baseline"):
        (found,) = answers(
            hospital / "pp.duckdb",
            sql,
            "--attach",
            tmp_path / "areas.parquet",
            "--estimator",
            estimator,
            "--confidence",
            0.9999,
        )
        assert found["low"] <= true <= found["high"]
    joined = "FROM ill JOIN areas ON ill.zip = areas.zip WHERE ill.disease = 'd1'"
    by = f"SELECT areas.{name}, COUNT(*) {joined} GROUP BY areas.{name}"
    assert len(answers(hospital / "pp.duckdb", by, "--attach", tmp_path / "areas.parquet")) == 2


@pytest.mark.slow
def test_what_a_release_does_not_hold_is_not_answered(hospital: Path) -> None:
    for sql in (
        "SELECT COUNT(*) FROM ill WHERE sub_table = 0", "SELECT weight, COUNT(*) FROM ill GROUP BY weight",
        "SELECT COUNT(*) FROM perturbed", "SELECT disease FROM ill", "SELECT COUNT(DISTINCT disease) FROM ill",
    ):  # fmt: skip
        refused(run("query", hospital / "pp.duckdb", sql), 2)
    refused(
        run("query", hospital / "pp.duckdb", "SELECT COUNT(*) FROM ill WHERE disease = 'd0'", "--estimator", "eq7"),
        2,
        "reconstructed, baseline",
    )


@pytest.mark.slow
def test_explain_shows_the_statement_and_the_formula(hospital: Path) -> None:
    sql = "SELECT COUNT(*) FROM ill WHERE disease = 'd0' AND sex = 'F'"
    shown = succeeded("query", hospital / "pp.duckdb", sql, "--explain", "--estimator", "baseline", "--json").json
    assert "perturbed" in shown["sql"]
    assert "equation 7" in shown["formula"]
    assert "M^T n" in succeeded("query", hospital / "pp.duckdb", sql, "--explain", "--json").json["formula"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", rest_slow(["up", "pp"]))
def test_evaluate(hospital: Path, algorithm: str) -> None:
    shown = succeeded(
        "evaluate",
        hospital / f"{algorithm}.duckdb",
        "--source",
        hospital / f"{algorithm}.toml",
        "--queries",
        60,
        "--json",
    ).json
    assert {"reconstructed", "baseline", "channel"} <= shown.keys()
    assert 0 <= shown["channel"]["left"] <= 1


# Damage ---


def changed(hospital: Path, folder: Path, *changes: Any) -> Path:
    """A copy of the release pp.duckdb with changes."""
    release = folder / "ill.duckdb"
    shutil.copy(hospital / "pp.duckdb", release)
    with duckdb.connect(str(release)) as db:
        for change in changes:
            change(db) if callable(change) else db.execute(change)
    rewrite(release)
    return release


def failed(done: Outcome) -> dict[str, list[str]]:
    """The checks that failed, with the offending rows that are shown."""
    shown = done.json
    assert done.code == 1, done.err + done.out
    assert shown["ok"] is False
    return {check["name"]: check.get("offending", []) for check in shown["checks"] if not check["ok"]}


def without(key: str) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """A fact that is missing."""
    return stating("facts", lambda facts: {name: value for name, value in facts.items() if name != key})


ALONE: dict[str, tuple[Any, str]] = {
    "gamma doubled": ("UPDATE privsql_subtables SET gamma_numerator = gamma_numerator * 2", POSTERIORS),
    "gamma a little larger": (
        (
            "UPDATE privsql_subtables SET gamma_numerator = gamma_numerator * 10**9 + 1, "
            "gamma_denominator = gamma_denominator * 10**9"
        ),
        POSTERIORS,
    ),
    "gamma smaller": ("UPDATE privsql_subtables SET gamma_denominator = gamma_denominator + 1", CLAIMS),
    "gamma one": ("UPDATE privsql_subtables SET gamma_denominator = gamma_numerator", POSTERIORS),
    "gamma without a denominator": ("UPDATE privsql_subtables SET gamma_denominator = 0", POSTERIORS),
    "gamma missing": ("UPDATE privsql_subtables SET gamma_numerator = NULL", POSTERIORS),
    "gamma negative": ("UPDATE privsql_subtables SET gamma_numerator = -gamma_numerator", POSTERIORS),
    "rho1 smaller": ("UPDATE privsql_subtables SET rho1_numerator = 1, rho1_denominator = 100", POSSIBLE),
    "rho1 no count": ("UPDATE privsql_subtables SET rho1_numerator = 1, rho1_denominator = 7919", POSTERIORS),
    "rho1 zero": ("UPDATE privsql_subtables SET rho1_numerator = 0", POSTERIORS),
    "rho1 above one": ("UPDATE privsql_subtables SET rho1_numerator = rho1_denominator * 2", POSTERIORS),
    "a record more": ("UPDATE privsql_subtables SET records = records + 1", HELD),
    "no records": ("UPDATE privsql_subtables SET records = 0 WHERE sub_table = 0", HELD),
    "records negative": ("UPDATE privsql_subtables SET records = -records", HELD),
    "records missing": ("UPDATE privsql_subtables SET records = NULL", POSTERIORS),
    "a larger domain": ("UPDATE privsql_subtables SET size = size + 1", HELD),
    "another number of a sub-table": (
        "UPDATE privsql_subtables SET sub_table = 7 WHERE sub_table = 0",
        "numbered in order",
    ),
    "a sub-table without a number": ("UPDATE privsql_subtables SET sub_table = NULL WHERE sub_table = 0", POSTERIORS),
    "a sub-table less": ("DELETE FROM privsql_subtables WHERE sub_table = 1", HELD),
    "no sub-tables": ("DELETE FROM privsql_subtables", HELD),
    "a sub-table twice": ("INSERT INTO privsql_subtables FROM privsql_subtables WHERE sub_table = 0", "lie in order"),
    "another number of a cell": ("UPDATE privsql_domains SET cell = 99 WHERE cell = 0", "cells are numbered"),
    "a cell of a large number": (
        "UPDATE privsql_domains SET cell = 1000000 WHERE cell = 0",
        "refer to rows of the release",
    ),
    "a negative cell": ("UPDATE privsql_domains SET cell = -1 WHERE cell = 0", "cells are numbered"),
    "a cell without a number": ("UPDATE privsql_domains SET cell = NULL WHERE cell = 0", "cells are numbered"),
    "a code that is none": ("UPDATE privsql_domains SET code = 999 WHERE cell = 0", LISTED),
    "a negative code": ("UPDATE privsql_domains SET code = -1 WHERE cell = 0", LISTED),
    "a code that is missing": ("UPDATE privsql_domains SET code = NULL WHERE cell = 0", LISTED),
    "a cell of no sub-table": ("UPDATE privsql_domains SET sub_table = 55 WHERE cell = 0", HELD),
    "a cell without a sub-table": ("UPDATE privsql_domains SET sub_table = NULL WHERE cell = 0", HELD),
    "a cell less": ("DELETE FROM privsql_domains WHERE cell = 1", BELONG),
    "no cells": ("DELETE FROM privsql_domains", BELONG),
    "a cell more": ("INSERT INTO privsql_domains VALUES (99, 1, 0)", HELD),
    "a cell twice": ("INSERT INTO privsql_domains FROM privsql_domains WHERE cell = 0", "domains' rows lie in order"),
    "protection unknown": ("UPDATE privsql_values SET protected = NULL WHERE code = 0", LISTED),
    "nobody protected": ("UPDATE privsql_values SET protected = FALSE", HELD),
    "another code of a value": ("UPDATE privsql_values SET code = 77 WHERE code = 0", "values are numbered"),
    "a value without a code": ("UPDATE privsql_values SET code = NULL WHERE code = 0", "values are numbered"),
    "another value": ("UPDATE privsql_values SET disease = 'zz' WHERE code = 0", BELONG),
    "a value less": ("DELETE FROM privsql_values WHERE code = 0", LISTED),
    "a value less at the end": ("DELETE FROM privsql_values WHERE code = 9", LISTED),
    "no values": ("DELETE FROM privsql_values", LISTED),
    "values in another order": (
        "CREATE OR REPLACE TABLE privsql_values AS FROM privsql_values ORDER BY code DESC",
        "values' rows lie in order",
    ),
    "a perturbed value outside the domain": ("UPDATE perturbed SET disease = 'd9' WHERE rowid = 0", BELONG),
    "a perturbed value of nobody": ("UPDATE perturbed SET disease = 'zz' WHERE rowid = 0", BELONG),
    "a perturbed value that is missing": ("UPDATE perturbed SET disease = NULL WHERE rowid = 0", BELONG),
    "a record in another sub-table": ("UPDATE perturbed SET sub_table = 1 WHERE rowid = 0", HELD),
    "a record in no sub-table": ("UPDATE perturbed SET sub_table = 9 WHERE rowid = 0", HELD),
    "a record without a sub-table": ("UPDATE perturbed SET sub_table = NULL WHERE rowid = 0", HELD),
    "a record less": ("DELETE FROM perturbed WHERE rowid = 0", HELD),
    "no record": ("DELETE FROM perturbed", HELD),
    "records in another order": (
        "CREATE OR REPLACE TABLE perturbed AS FROM perturbed ORDER BY age",
        "perturbed rows lie in",
    ),
    "one value for nearly all": ("UPDATE perturbed SET disease = 'd0' WHERE sub_table = 0 AND age > 22", POSSIBLE),
    "a table more": ("CREATE TABLE extra AS SELECT 1 AS a", CONTENTS),
    "a table less": ("DROP TABLE privsql_values", CONTENTS),
    "a column more": ("ALTER TABLE perturbed ADD COLUMN truth VARCHAR", CONTENTS),
    "a column of another type": ("ALTER TABLE privsql_subtables ALTER gamma_numerator TYPE BIGINT", CONTENTS),
    "another view": ("CREATE OR REPLACE VIEW ill AS SELECT *, 1.0 AS weight FROM perturbed", CONTENTS),
    "a smaller rho2": (parameter("rho2", "0.5"), POSTERIORS),
    "another algorithm": (parameter("algorithm", "up"), CLAIMS),
    "another delta": (parameter("delta", "0.01"), CLAIMS),
    "a smaller bound": (fact("bound", lambda bound: bound * 0.9), CLAIMS),
    "an infinite bound": (fact("bound", lambda _: math.inf), CLAIMS),
    "a bound beyond the whole table's": (fact("bound_up", lambda bound: bound * 0.5), CLAIMS),
    "a larger retention": (fact("retention", lambda kept: kept * 1.1), CLAIMS),
    "more sub-tables": (fact("subtables", lambda k: k + 1), CLAIMS),
    "fewer groups than sub-tables": (fact("groups", lambda _: 1), CLAIMS),
    "more records": (stating("records", lambda n: n + 1), CLAIMS),
    "more published": (stating("published", lambda n: n + 1), CLAIMS),
}
NONE_AT_ALL: dict[str, Any] = {
    "a bound that is text": fact("bound", lambda _: "2"),
    "sub-tables with a fraction": fact("subtables", lambda _: 2.5),
    "no sub-tables": fact("subtables", lambda _: 0),
    "optimal as text": fact("optimal", lambda _: "yes"),
    "a bound that is none": fact("bound", lambda _: None),
    "a bound that is not a number": fact("bound", lambda _: math.nan),
    "no bound": without("bound"),
    "no bound of the whole table": without("bound_up"),
    "no retention of the whole table": without("retention_up"),
    "a bound of the whole table that is none": fact("bound_up", lambda _: None),
    "a retention of the whole table that is none": fact("retention_up", lambda _: None),
    "facts that are a list": stating("facts", lambda _: []),
    "a fact more": stating("facts", lambda facts: facts | {"theta": 3}),
    "rho1 as a double": parameter("rho1", 0.3),
    "rho1 above rho2": parameter("rho1", "0.7"),
    "rho2 one": parameter("rho2", "1"),
    "an unknown parameter": parameter("threshold", "1/2"),
    "another kind": parameter("kind", "bucketize"),
    "another mechanism": stating("mechanism", lambda _: "bucketize"),
    "an unknown mechanism": stating("mechanism", lambda _: "shuffle"),
}
AGAINST: dict[str, tuple[Any, str]] = {
    "a value not protected": ("UPDATE privsql_values SET protected = FALSE WHERE code = 0", "who is protected"),
    "a larger rho2": (parameter("rho2", "0.9"), "parameters are those"),
    "a larger rho1": (parameter("rho1", "0.6"), "parameters are those"),
    "an age": ("UPDATE perturbed SET age = age + 1 WHERE rowid = 30", "quasi-identifiers are the source's"),
    "another bound of the whole table": (fact("bound_up", lambda bound: bound * 2), "bound"),
    "another retention of the whole table": (fact("retention_up", lambda kept: kept * 2), "retention"),
    "two values that changed places": (
        "UPDATE perturbed SET disease = CASE disease WHEN 'd0' THEN 'd2' WHEN 'd2' THEN 'd0' ELSE disease END",
        "agree with the stated matrices",
    ),
}


@pytest.mark.slow
@each("damage", ALONE, few=5, soak="damage")
def test_verify_names_what_was_changed(hospital: Path, tmp_path: Path, damage: str) -> None:
    """From the release alone and against the source; a question is answered or refused, and never a traceback."""
    change, word = ALONE[damage]
    release = changed(hospital, tmp_path, change)
    for source in ([], ["--source", hospital / "pp.toml"]):
        done = run("verify", release, *source, "--json")
        assert done.crash is None, repr(done.crash)
        assert done.code in {1, 4}
        if done.code == 1:
            assert any(word in name for name in failed(done)), done.out
        else:
            refused(done, 4)


@pytest.mark.slow
@each("damage", ALONE, few=6, soak="damage")
def test_a_changed_release_is_asked_without_a_traceback(hospital: Path, tmp_path: Path, damage: str) -> None:
    release = changed(hospital, tmp_path, ALONE[damage][0])
    for estimator in ("reconstructed", "baseline"):
        done = run(
            "query",
            release,
            "SELECT COUNT(*) FROM ill WHERE disease = 'd1' AND sex = 'F'",
            "--estimator",
            estimator,
            "--json",
        )
        assert done.crash is None, repr(done.crash)
        assert done.code in (0, 1, 2, 4), done.err
        assert done.code or all(math.isfinite(row["estimate"]) for row in done.json["rows"])


@pytest.mark.slow
@each("damage", NONE_AT_ALL, few=6, soak="damage")
def test_a_manifest_that_states_no_partition_is_no_release(hospital: Path, tmp_path: Path, damage: str) -> None:
    release = changed(hospital, tmp_path, NONE_AT_ALL[damage])
    for command in (
        ["verify", release],
        ["query", release, "SELECT COUNT(*) FROM ill WHERE disease = 'd1'"],
    ):
        refused(run(*command), 4)


@pytest.mark.slow
@each("damage", AGAINST, few=2, soak="damage")
def test_verify_against_the_source_names_what_was_changed(hospital: Path, tmp_path: Path, damage: str) -> None:
    change, word = AGAINST[damage]
    release = changed(hospital, tmp_path, change)
    found = failed(run("verify", release, "--source", hospital / "pp.toml", "--json"))
    assert any(word in name for name in found), found


@pytest.mark.slow
def test_a_folder_with_a_stranger_or_without_a_table_is_found(hospital: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(hospital / "folder", folder)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(
        ("perturbed", "privsql_subtables", "privsql_domains", "privsql_values", "views", MANIFEST)
    )
    shutil.copy(folder / "perturbed.parquet", folder / "truth.parquet")
    assert any("folder holds" in name or CONTENTS in name for name in failed(run("verify", folder, "--json")))
    (folder / "truth.parquet").unlink()
    (folder / "privsql_domains.parquet").unlink()
    done = run("verify", folder, "--json")
    assert done.crash is None
    assert done.code in (1, 2)


@pytest.mark.slow
def test_records_that_were_not_perturbed_are_found(hospital: Path, tmp_path: Path) -> None:
    """The whole table's release with the true values in place of the perturbed ones: too many and too few."""
    release = tmp_path / "up.duckdb"
    shutil.copy(hospital / "up.duckdb", release)
    with duckdb.connect(str(release)) as db:
        db.execute(
            "CREATE TABLE raw AS SELECT age, sex, zip, disease, CAST(0 AS INTEGER) AS sub_table "
            f"FROM '{hospital / 'people.parquet'}'"
        )
        db.execute("DELETE FROM perturbed")
        db.execute(
            "INSERT INTO perturbed FROM raw ORDER BY age NULLS LAST, sex NULLS LAST, zip NULLS LAST, disease NULLS LAST"
        )
        db.execute("DROP TABLE raw")
    rewrite(release)
    assert any(POSSIBLE in name for name in failed(run("verify", release, "--json")))
    found = failed(run("verify", release, "--source", hospital / "up.toml", "--json"))
    assert any("agree with the stated matrices" in name for name in found), found
