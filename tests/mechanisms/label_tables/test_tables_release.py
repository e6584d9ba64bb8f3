"""Releases of noisy tables: totality, checks, answers, attacks, and what the ledger lets stand beside them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from privsql.dp_random import SUBSTITUTION
from privsql.mechanisms.label_tables.answers import MeasuredCount, noise_reach
from privsql.model.estimates import Estimate
from support.commands import composed, refused, run, specification, succeeded, write
from support.loops import slow_but

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = """
SELECT CAST(20 + i * 7 % 30 AS INTEGER) AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
  CASE WHEN i = 5 THEN {five} WHEN i % 17 = 0 THEN NULL WHEN i % 3 = 0 THEN 'flu'
    ELSE ['cold', 'flu', 'gout'][1 + i % 3] END AS disease, i AS nr, ['pill', 'drop'][1:1 + i % 2] AS items
FROM range({n}) t(i)
"""
COLUMNS = 'quasi_identifiers = ["age", "sex"]\nsensitive = ["disease"]'
TABLES = 'kind = "randomize"\nalgorithm = "tables"\nepsilon = {}\nvalues = ["cold", "flu", "gout"]'
BUCKETS = 'kind = "bucketize"\nthreshold = "0.9"'
CELLS = 'kind = "contingency"\nepsilon = 1\nallow_empty = true\ndomains = {sex = ["F", "M"], disease = ["flu", "cold"]}'


def wanted(folder: Path, mechanism: str, name: str, columns: str = COLUMNS, five: str = "'flu'", n: int = 600) -> Path:
    """A specification and its source."""
    write(folder / "people.parquet", PEOPLE.format(five=five, n=n))
    release = f'name = "ill"\nto = "{name}.duckdb"'
    source = 'file = "people.parquet"\nid = "nr"'
    return specification(
        folder, source=source, columns=columns, release=release, mechanism=mechanism, name=f"{name}.toml"
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with its specification."""
    folder = tmp_path_factory.mktemp("tables")
    succeeded("publish", wanted(folder, TABLES.format(20), "ill"), "--seed", 1)
    return folder


def answer(release: Path, sql: str) -> list[dict[str, Any]]:
    return list(succeeded("query", release, sql, "--json").json["rows"])


@pytest.mark.slow
def test_a_release_passes_its_checks_and_answers(made: Path) -> None:
    release, spec = made / "ill.duckdb", made / "ill.toml"
    done = succeeded("verify", release, "--source", spec, "--json").json
    assert all(one["ok"] for one in done["checks"])
    assert {"quasi-identifiers are those of the source", "weights and draws are fitted to the tables"} <= {
        one["name"] for one in done["checks"]
    }
    assert answer(release, "SELECT COUNT(*) FROM ill WHERE sex = 'F'")[0]["estimate"] == 200
    (row,) = answer(release, "SELECT COUNT(*) FROM ill WHERE disease = 'flu' AND sex = 'F'")
    assert row["low"] <= 188 <= row["high"]
    groups = answer(release, "SELECT sex, disease, COUNT(*) AS n FROM ill GROUP BY sex, disease")
    assert sum(one["n"] for one in groups) == pytest.approx(600, abs=0.1)
    assert {one["disease"] for one in groups} == {"cold", "flu", "gout", "other", None}
    mean = answer(release, "SELECT AVG(age) AS mean FROM ill WHERE disease = 'flu'")[0]
    ((truth,),) = duckdb.sql(f"SELECT avg(age) FROM '{made / 'people.parquet'}' WHERE disease = 'flu'").fetchall()
    assert mean["mean_low"] <= truth <= mean["mean_high"]
    with duckdb.connect(str(release), read_only=True) as db:
        ((weight,),) = db.sql("SELECT SUM(weight) FROM ill_weighted WHERE disease = 'flu' AND sex = 'F'").fetchall()
    assert weight == pytest.approx(row["estimate"], rel=1e-4)


def test_measured_cells_have_the_interval_of_their_noise(made: Path) -> None:
    """Sex and all values of it are measured, once more where no pair was; OR is no sum of cells of one table."""
    release = made / "ill.duckdb"
    rows = answer(release, "SELECT disease, COUNT(*) AS n FROM ill WHERE sex = 'F' GROUP BY disease")
    with duckdb.connect(str(release), read_only=True) as db:
        listed = db.sql("SELECT disease FROM privsql_values ORDER BY code").fetchall()
        query = "SELECT clique, budget FROM privsql_cliques WHERE columns = ['sex'] ORDER BY clique"
        cliques = db.sql(query).fetchall()
        counts = [
            db.sql(f"SELECT count FROM privsql_marginals WHERE clique = {one} ORDER BY cell").fetchall()
            for one, _ in cliques
        ]
    budgets = tuple(Fraction(budget) for _, budget in cliques)
    precision = [1 / SUBSTITUTION.variance(one) for one in budgets]
    reach = noise_reach(budgets, 1, 0.95)
    for row in rows:
        place = listed.index((row["disease"],))
        mean = sum(p * one[place][0] for p, one in zip(precision, counts, strict=True)) / sum(precision)
        low, high = max(0, math.ceil(mean - reach - 1e-4)), max(0, math.floor(mean + reach + 1e-4))
        assert row["n_low"] == pytest.approx(min(low, row["n"]), abs=1e-6)
        assert row["n_high"] == pytest.approx(max(min(high, 200), row["n"]), abs=1e-6)
    (joined,) = answer(release, "SELECT COUNT(*) FROM ill WHERE sex = 'F' OR disease = 'flu'")
    assert joined["low"] < joined["high"]


WIDE = """
SELECT CAST(greatest(18, least(90, round(50 + 14 * z + 8 * sqrt(-2 * ln(u)) * cos(2 * pi() * v)))) AS INTEGER) AS age,
  CAST(floor(exp(1.5 + 0.4 * z) * (0.5 + v)) AS INTEGER) AS visits, w, nr, {columns}
FROM (
  SELECT i AS nr, sqrt(-2 * ln(h(i, 1))) * cos(2 * pi() * h(i, 2)) AS z, h(i, 3) AS u, h(i, 4) AS v, h(i, 5) AS w
  FROM range({n}) t(i)
)
"""
ILLS = """
SELECT * EXCLUDE w, CASE WHEN w < rare THEN 'rare' WHEN w < rare + common THEN 'cancer'
    WHEN w < rare + common + 0.3 THEN 'flu' WHEN w < rare + common + 0.5 THEN 'gout' ELSE 'cold' END AS disease
FROM (
  SELECT *, 0.02 * (1 + ln(1 + visits)) / 2.5 AS rare, 0.1 / (1 + exp(-(age - 58) / 6)) AS common FROM wide
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 13])
def test_sums_and_means_by_a_value_hold_over_releases(columns: int, tmp_path: Path) -> None:
    """Two numbers of which rare values depend, beside 1 or 13 other columns; the intervals of three releases."""
    names = [f"c{at}" for at in range(columns)]
    others = ", ".join(
        f"CAST(floor(h(nr, {10 + at}) * {2 + at % 4}) AS INTEGER) AS {name}" for at, name in enumerate(names)
    )
    listed = 'values = ["cold", "flu", "gout", "cancer", "rare"]'
    mechanism = TABLES.format("1.386294").replace('values = ["cold", "flu", "gout"]', listed)
    roles = f'quasi_identifiers = {["age", "visits", *names]}\nsensitive = ["disease"]'.replace("'", '"')
    figures = "AVG(age) AS a, AVG(visits) AS v, SUM(age) AS sa, SUM(visits) AS sv"
    asked, hits, cancer = f"SELECT disease, {figures} FROM {{}} GROUP BY disease", [], []
    for seed in range(3):
        place = tmp_path / str(seed)
        place.mkdir()
        with duckdb.connect() as db:
            db.execute(f"CREATE MACRO h(i, k) AS (hash(i, k, {seed}) % 1000003 + 1) / 1000004.0")
            db.execute(f"CREATE TABLE wide AS {WIDE.format(n=6000, columns=others)}")
            db.execute(f"CREATE TABLE people AS {ILLS}")
            db.execute(f"COPY people TO '{place / 'people.parquet'}'")
            truth = {row[0]: row[1:] for row in db.sql(asked.format("people")).fetchall()}
        spec = specification(place, source='file = "people.parquet"\nid = "nr"', columns=roles, mechanism=mechanism)
        succeeded("publish", spec, "--seed", seed)
        for row in answer(place / "ill.duckdb", asked.format("ill")):
            for name, true in zip(("a", "v", "sa", "sv"), truth.get(row["disease"], ()), strict=False):
                hits.append(row[f"{name}_low"] <= true <= row[f"{name}_high"])
                cancer += hits[-1:] if row["disease"] == "cancer" else []
    assert len(hits) == 3 * 5 * 4
    assert sum(hits) >= 0.93 * len(hits)
    assert sum(cancer) >= 0.8 * len(cancer)


@pytest.mark.slow
@pytest.mark.parametrize("stated", ["1", "", "plague", "NULL", "inf", "a\x00b"])
def test_no_value_decides_whether_or_with_which_types_a_table_is_published(stated: str, tmp_path: Path) -> None:
    """A file without types, in which one value is no number; and a table of that person alone."""
    for n in (40, 1):
        lines = [f"{20 + i % 7},{'MF'[i % 2]},{stated if i == 0 else 1 + i % 2}" for i in range(n)]
        (tmp_path / "people.csv").write_text("\n".join(["age,sex,disease", *lines]), encoding="utf-8")
        mechanism = TABLES.format(1).replace('["cold", "flu", "gout"]', '["1", "2"]')
        spec = specification(tmp_path, source='file = "people.csv"', columns=COLUMNS, mechanism=mechanism)
        done = succeeded("publish", spec, "--seed", 1, "--replace", "--set", "ledger.off=true")
        assert not done.err
        with duckdb.connect(str(tmp_path / "ill.duckdb"), read_only=True) as db:
            assert db.sql("SELECT typeof(disease) FROM privsql_values").fetchall() == [("BIGINT",)] * 4
            assert db.sql("SELECT count(*) FROM qit").fetchall() == [(n,)]


def test_an_empty_table_is_refused_in_one_line(tmp_path: Path) -> None:
    for verb in ("plan", "publish"):
        refused(run(verb, wanted(tmp_path, TABLES.format(1), "ill", n=0)), 3, "the source has no records to publish")


@pytest.mark.parametrize(
    ("columns", "mechanism", "why"),
    [
        (f'{COLUMNS}\nnulls = {{disease = "suppress"}}', TABLES.format(1), "would reveal its value"),
        (f'{COLUMNS}\nnulls = {{disease = "refuse"}}', TABLES.format(1), "would reveal its value"),
        ('quasi_identifiers = ["age"]\nsensitive = ["disease", "sex"]', TABLES.format(1), "one sensitive column"),
        ('quasi_identifiers = ["sex"]\nsensitive = ["age"]', TABLES.format(1), "no value of column 'age'"),
        (COLUMNS, 'kind = "randomize"\nalgorithm = "tables"\nepsilon = 1', "public list"),
    ],
)
def test_what_could_depend_on_a_value_is_refused(columns: str, mechanism: str, why: str, tmp_path: Path) -> None:
    refused(run("plan", wanted(tmp_path, mechanism, "ill", columns)), 2, why)


def test_a_plan_translates_odds_and_warns(tmp_path: Path) -> None:
    shares = "frequencies = {cold = 0.24, flu = 0.24, gout = 0.24, other = 0.24}"
    values = 'kind = "randomize"\nalgorithm = "tables"\nvalues = ["cold", "flu", "gout"]'
    spec = wanted(tmp_path, f'{values}\nthreshold = "1/4"\n{shares}', "ill")
    facts = succeeded("plan", spec, "--json").json
    assert facts["reached"]["flu"] == [0.24, pytest.approx(0.25, abs=1e-5)]
    assert float(facts["scale"]) > 100
    shown, told = (" ".join(succeeded("plan", spec, *more).out.split()) for more in ((), ("--verbose",)))
    assert "from 0.24 to at most 0.25" in shown
    assert "nobody who knows everything else can move" not in shown
    assert "nobody who knows everything else can move" in told
    assert "from 0.24 to more than 0.25" in told


TAMPERED = {
    "epsilon": "UPDATE privsql_cliques SET budget = '100', scale = 0.01 WHERE clique = 0",
    "scale": "UPDATE privsql_cliques SET scale = scale / 2 WHERE clique = 0",
    "a cell": "DELETE FROM privsql_marginals WHERE cell = 0 AND clique = 0",
    "weights": "UPDATE privsql_weights SET weight = 1 - weight",
    "shifted weights": "UPDATE privsql_weights SET weight = CASE WHEN code = 0 THEN 1 ELSE 0 END",
    "a draw": "UPDATE privsql_effects SET effect = effect + 3 * (code - 1) WHERE draw = 7 AND feature = 0",
    "a missing effect": "DELETE FROM privsql_effects WHERE draw = 7 AND feature = 0 AND code = 0",
    "an effect that is no number": "UPDATE privsql_effects SET effect = 'nan' WHERE draw = 7 AND feature = 0",
    "a value": "UPDATE privsql_values SET disease = 'plague' WHERE code = 0",
    "a number": "UPDATE qit SET combination = 0",
    "facts": "UPDATE privsql_manifest SET value = replace(value, '\"chosen\": ', '\"chosen\": 1') WHERE key = 'facts'",
}


@pytest.mark.parametrize("damage", slow_but(TAMPERED, "epsilon", "a value"))
def test_damage_is_found(damage: str, made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes((made / "ill.duckdb").read_bytes())
    with duckdb.connect(str(copy)) as db:
        db.execute(TAMPERED[damage])
    assert run("verify", copy).code in (1, 4)


@pytest.mark.slow
def test_other_people_are_found_by_their_quasi_identifiers(made: Path, tmp_path: Path) -> None:
    other = wanted(tmp_path, TABLES.format(20), "ill", n=599)
    done = run("verify", made / "ill.duckdb", "--source", other, "--json")
    assert "quasi-identifiers are those of the source" in [one["name"] for one in done.json["checks"] if not one["ok"]]


@pytest.mark.slow
def test_attacks_tell_what_is_promised_and_what_is_not(made: Path) -> None:
    release, spec = made / "ill.duckdb", made / "ill.toml"
    found = succeeded("attack", release, "--source", spec, "--against", release, "--json").json["adversaries"]
    informed, learner, without, together = found
    assert without["attacked"] == pytest.approx(60, abs=25)
    assert 0.2 < without["right"] <= 1
    assert (informed["adversary"], informed["exceeded"]) == ("informed", False)
    assert informed["highest"] == pytest.approx(1, abs=1e-8)
    assert 0.3 < learner["right"] <= 1
    assert together["highest"] >= informed["highest"]


# The ledger -----------------------------------------------------------------------------------------------------------


NULLS = f'{COLUMNS}\nnulls = {{disease = "value"}}'
ODDS = 'kind = "randomize"\nrho1 = "0.6"\nrho2 = "0.95"\nalgorithm = "{}"'
UNBOUNDED = {  # mechanisms beside which no epsilon bounds a value, and their columns
    "bucketize": (BUCKETS, NULLS),
    "up": (ODDS.format("up"), NULLS),
    "pp": (ODDS.format("pp"), NULLS),
    "permute": ('kind = "permute"\nk = 2\ne = 2', 'quasi_identifiers = ["sex"]\nsensitive = ["age"]'),
}


@pytest.mark.slow
@pytest.mark.parametrize("other", UNBOUNDED)
@pytest.mark.parametrize("tables_first", [True, False])
def test_nothing_lets_exact_frequencies_stand_beside_a_value_s_budget(
    other: str, tables_first: bool, tmp_path: Path
) -> None:
    both = [(TABLES.format(1), COLUMNS), UNBOUNDED[other]]
    (first, columns), (second, second_columns) = both if tables_first else both[::-1]
    succeeded("publish", wanted(tmp_path, first, "one", columns))
    for flags in ([], ["--allow-composition"]):
        done = run("publish", wanted(tmp_path, second, "two", second_columns), *flags)
        refused(done, 1, "no epsilon bounds what is learnt of a value, and nothing allows that", "ledger withdraw 1")
        assert not (tmp_path / "two.duckdb").exists()


AGES = TABLES.format(1).replace('["cold", "flu", "gout"]', '["20", "21"]')
EXPOSING = 'quasi_identifiers = ["sex", "Disease"]\nsensitive = ["age"]'


@pytest.mark.slow
@pytest.mark.parametrize("exposed_first", [True, False])
def test_no_release_publishes_what_another_one_protects(exposed_first: bool, tmp_path: Path) -> None:
    """What is sensitive in one release is a quasi-identifier of the other one."""
    both = [(AGES, EXPOSING), (TABLES.format(1), COLUMNS)]
    (first, columns), (second, second_columns) = both if exposed_first else both[::-1]
    succeeded("publish", wanted(tmp_path, first, "one", columns))
    again = wanted(tmp_path, second, "two", second_columns)
    for flags in ([], ["--allow-composition"]):
        refused(run("publish", again, *flags), 1, "as it is, the other one protects its values", "ledger withdraw 1")
    succeeded("ledger", "withdraw", tmp_path / "one.duckdb")
    assert "all together 2" in succeeded("publish", again, "--json").json["ledger"]["composes"]


SETS = 'kind = "setvalued"\nepsilon = 1\nuniverse = ["pill", "drop"]'
PRESENCE = {"contingency": (CELLS, 'categories = ["sex", "disease"]'), "item sets": (SETS, 'items = "items"')}


@pytest.mark.slow
@pytest.mark.parametrize("other", PRESENCE)
@pytest.mark.parametrize("tables_first", [True, False])
def test_presence_beside_a_value_is_allowed_and_both_releases_say_so(
    other: str, tables_first: bool, tmp_path: Path
) -> None:
    both = [(TABLES.format(1), COLUMNS), PRESENCE[other]]
    (first, columns), (second, second_columns) = both if tables_first else both[::-1]
    succeeded("publish", wanted(tmp_path, first, "one", columns))
    again = wanted(tmp_path, second, "two", second_columns)
    refused(run("publish", again), 1, "twice the epsilon", "presence is no longer promised", "option allow_composition")
    succeeded("publish", again, "--allow-composition")
    assert "twice the epsilon" in " ".join(composed(tmp_path / "two.duckdb"))


@pytest.mark.slow
def test_values_epsilons_add_up_and_presence_counts_twice(tmp_path: Path) -> None:
    cells = 'categories = ["sex", "disease"]'
    succeeded("publish", wanted(tmp_path, TABLES.format(1), "one"))
    second = succeeded("publish", wanted(tmp_path, TABLES.format("0.5"), "two"), "--json").json
    assert second["ledger"]["spent"] == "1.5"
    third = wanted(tmp_path, CELLS, "three", cells)
    refused(run("publish", third), 1, "presence is no longer promised", "option allow_composition")
    done = succeeded("publish", third, "--allow-composition", "--json").json
    assert done["ledger"]["spent"] == "1"
    assert "twice the epsilon" in " ".join(composed(tmp_path / "three.duckdb"))
    capped = f"{TABLES.format(1)}\n[ledger]\nepsilon = 4"
    refused(run("publish", wanted(tmp_path, capped, "four"), "--allow-composition"), 3, "0.5 is left of the budget 4")


@pytest.mark.slow
def test_no_order_of_presence_and_values_gets_more_than_the_cap(tmp_path: Path) -> None:
    """Presence after a value counts twice for that value's budget, as it does before it."""
    cells = 'categories = ["sex", "disease"]'
    succeeded("publish", wanted(tmp_path, f"{TABLES.format(1)}\n[ledger]\nepsilon = 2", "one"))
    second = wanted(tmp_path, CELLS, "two", cells)
    refused(
        run("publish", second, "--allow-composition"),
        3,
        "epsilon 2 (presence counts twice",
        "1 is left of the budget 2",
    )
    half = wanted(tmp_path, CELLS.replace("epsilon = 1", "epsilon = 0.5"), "two", cells)
    succeeded("publish", half, "--allow-composition")
    refused(run("publish", half, "--replace", "--allow-composition"), 3, "0 is left of the budget 2")


@pytest.mark.slow
@pytest.mark.parametrize("tables_first", [True, False])
def test_a_delta_stands_beside_no_value_s_budget(tables_first: bool, tmp_path: Path) -> None:
    cells = f'{CELLS}\ndelta = "1e-9"\nnoise = "gaussian"', 'categories = ["sex", "disease"]'
    (first, columns), (second, others) = [(TABLES.format(1), COLUMNS), cells][:: 1 if tables_first else -1]
    succeeded("publish", wanted(tmp_path, first, "one", columns))
    again = wanted(tmp_path, second, "two", others)
    refused(run("publish", again, "--allow-composition"), 1, "leave out delta", "ledger withdraw 1")
    succeeded("ledger", "withdraw", 1)
    succeeded("publish", again, "--allow-composition")


@pytest.mark.slow
@pytest.mark.parametrize("order", [(CELLS, BUCKETS), (BUCKETS, CELLS)])
def test_presence_beside_exact_counts_is_said(order: tuple[str, str], tmp_path: Path) -> None:
    columns = {CELLS: 'categories = ["sex", "disease"]', BUCKETS: f'{COLUMNS}\nnulls = {{disease = "value"}}'}
    succeeded("publish", wanted(tmp_path, order[0], "one", columns[order[0]]))
    second = wanted(tmp_path, order[1], "two", columns[order[1]])
    refused(run("publish", second), 1, "exact counts of records", "option allow_composition")
    succeeded("publish", second, "--allow-composition")
    assert "exact counts of records" in " ".join(composed(tmp_path / "two.duckdb"))


@pytest.mark.parametrize(("estimate", "error"), [(1240.0, 3.0), (1244.0, 5.0), (1236.0, 5.0)])
def test_an_error_is_that_of_the_estimate_and_not_of_the_noisy_count_beside_it(estimate: float, error: float) -> None:
    measured = MeasuredCount(1240.0, 3000.0, 1, 9.0, (Fraction(1),))
    found = measured.set_interval(Estimate((), estimate, 7.0, estimate - 14, estimate + 14), 0.95)
    assert found.std_error == pytest.approx(error)
    assert found.low <= min(estimate, 1240) <= max(estimate, 1240) <= found.high


def test_the_error_of_a_small_group_is_no_larger_than_the_group() -> None:
    """The truth is one of 0 to 20, so an estimate of 8 is off by 12 at most, whatever the noise."""
    found = MeasuredCount(140.0, 20.0, 1, 110.0**2, (Fraction(1, 100),)).set_interval(
        Estimate((), 8.0, 7.0, 0.0, 20.0), 0.95
    )
    assert (found.std_error, found.low, found.high) == (12.0, 0.0, 20.0)


# Completed tables -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_select_is_answered_by_completed_tables(made: Path) -> None:
    release, people = made / "ill.duckdb", made / "people.parquet"
    (row,) = answer(release, "SELECT MEDIAN(age) AS m, QUANTILE_CONT(age, 0.9) AS q FROM ill WHERE disease = 'flu'")
    ((median, high),) = duckdb.sql(
        f"SELECT median(age), quantile_cont(age, 0.9) FROM '{people}' WHERE disease = 'flu'"
    ).fetchall()
    assert row["m_low"] <= median <= row["m_high"]
    assert row["q_low"] <= high <= row["q_high"]
    parts = [f"(SELECT COUNT(*) FROM ill WHERE disease = '{name}')" for name in ("flu", "gout")]
    (ratio,) = answer(release, f"SELECT {' / '.join(parts)} AS r")
    ((truth,),) = duckdb.sql(
        f"SELECT count(*) FILTER (disease = 'flu') / count(*) FILTER (disease = 'gout') FROM '{people}'"
    ).fetchall()
    assert ratio["r"] == pytest.approx(truth, rel=0.1)
    assert answer(release, "SELECT MEDIAN(age) AS m FROM ill WHERE disease = 'flu'") == answer(
        release, "SELECT MEDIAN(age) AS m FROM ill WHERE disease = 'flu'"
    )


def test_values_outside_the_list_have_no_completed_tables(tmp_path: Path) -> None:
    spec = wanted(tmp_path, TABLES.format(20).replace('"flu", ', ""), "ill")
    succeeded("publish", spec, "--seed", 1)
    done = run("query", tmp_path / "ill.duckdb", "SELECT MEDIAN(age) FROM ill WHERE disease = 'cold'")
    refused(done, 2, "MEDIAN")
