"""(k,e)-anonymous releases from the command line: types, checks, damage, answers with certain bounds."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.engine.sqlfiles import Field
from privsql.mechanisms.permute import answers
from privsql.mechanisms.permute.answers import ChosenValues, MatchingRecords
from privsql.mechanisms.permute.parameters import parse_extent
from privsql.mechanisms.permute.scale import find_scale, on_axis
from support.commands import refused, rows, run, specification, succeeded, write
from support.firm import COLUMNS, asked
from support.loops import each
from support.tampering import fact, failed, parameter, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def truth(firm: Path, sql: str) -> Any:
    """The only value of a query over the source, ``{t}``."""
    with duckdb.connect() as db:
        return db.execute(sql.format(t=f"read_parquet('{firm / 'people.parquet'}')")).fetchall()[0][0]


def answer(release: Path, sql: str, *flags: str) -> dict[str, Any]:
    """The only row of an answer."""
    (row,) = succeeded("query", release, sql, "--json", *flags).json["rows"]
    return dict(row)


# Publishing and checking ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_release_is_what_it_should_be(firm: Path) -> None:
    release = firm / "ill.duckdb"
    done = succeeded("publish", asked(firm), "--seed", 1, "--to", firm / "again.duckdb", "--json").json
    assert done["mechanism"] == "permute"
    assert done["published"] == 600
    assert done["held_back"] == 0
    assert succeeded("verify", release, "--source", asked(firm), "--json").json["ok"]
    groups = rows(release, "SELECT count(DISTINCT salary), max(salary) - min(salary) FROM st GROUP BY bid")
    assert len(groups) == done["groups"]
    assert min(values for values, _ in groups) >= 4
    assert min(width for _, width in groups) >= 30
    assert sum(width for _, width in groups) == int(done["error"]) == done["loss"]
    for table in ("qit", "st", "privsql_values"):
        assert rows(release, f"FROM {table}") == rows(firm / "again.duckdb", f"FROM {table}")


def test_the_view_is_the_shuffled_single_table(firm: Path) -> None:
    release, file = firm / "ill.duckdb", firm / "people.parquet"
    for columns in ("salary", "age, sex"):
        own = rows(release, f"SELECT {columns} FROM ill_weighted ORDER BY ALL")
        assert own == rows(release, f"SELECT {columns} FROM read_parquet('{file}') ORDER BY ALL")
    assert rows(release, "SELECT sum(weight) FROM ill_weighted") == [(600.0,)]
    columns = "age, sex, salary"
    both = f"SELECT {columns} FROM ill_weighted INTERSECT ALL SELECT {columns} FROM '{file}'"
    assert rows(release, f"SELECT count(*) FROM ({both})")[0][0] < 300


@pytest.mark.slow
def test_other_seeds_shuffle_otherwise_within_the_same_groups(firm: Path) -> None:
    other = firm / "other.duckdb"
    succeeded("publish", asked(firm), "--seed", 2, "--to", other)
    assert rows(other, "FROM st") == rows(firm / "ill.duckdb", "FROM st")
    pairs = [rows(path, "SELECT age, sex, bid FROM qit") for path in (other, firm / "ill.duckdb")]
    assert pairs[0] == pairs[1]
    assert rows(other, "SELECT code FROM qit") != rows(firm / "ill.duckdb", "SELECT code FROM qit")


@pytest.mark.slow
@each(
    ("value", "e", "error"),
    [
        ("i - 300", "40", None),
        ("(i - 60)::TINYINT", "10", None),
        ("(i::HUGEINT * 30000000000000000 - 9000000000000000000)::BIGINT", "1000000000000000000", None),
        ("(18446744073709551615 - i * 1000)::UBIGINT", "5000", None),
        ("(i / 100)::DECIMAL(9,2)", "0.75", None),
        ("(i::HUGEINT * 10000000000000000000000000000)::DECIMAL(36,2)", '"3e29"', None),
        ("(i / 7)::DOUBLE", "0.5", None),
        ("(i / 7)::FLOAT", "0.5", None),
        ("DATE '2020-01-01' + i::INTEGER", '"30 days"', "days"),
        ("TIMESTAMP '2020-01-01' + i * INTERVAL 1 HOUR", '"1 day 12 hours"', "seconds"),
        ("(TIMESTAMP '2020-01-01' + i * INTERVAL 1 HOUR)::TIMESTAMPTZ", '"36 hours"', "seconds"),
        ("(TIMESTAMP '2020-01-01' + i * INTERVAL 1 MINUTE)::TIMESTAMP_S", '"600 seconds"', "seconds"),
        ("(TIMESTAMP '2020-01-01' + i * INTERVAL 1 MINUTE)::TIMESTAMP_MS", '"10 minutes"', "seconds"),
        ("(TIMESTAMP '2020-01-01' + i * INTERVAL 1 MINUTE)::TIMESTAMP_NS", '"10 minutes"', "seconds"),
    ],
    few=2,
)
def test_every_kind_of_axis(value: str, e: str, error: str | None, tmp_path: Path) -> None:
    spread = "FROM range(120) t(i)" if "TINY" in value else "FROM range(600) t(i)"
    write(tmp_path / "people.parquet", f"SELECT i % 9 AS age, 'f' AS sex, {value} AS salary {spread}")
    spec = asked(tmp_path, f"k = 3\ne = {e}")
    done = succeeded("publish", spec, "--json").json
    assert done["groups"] > 2
    assert error is None or done["error"].endswith(error)
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json["ok"]
    assert succeeded("query", tmp_path / "ill.duckdb", "SELECT COUNT(*) FROM ill WHERE age = 3", "--json").json["rows"]
    if error in ("days", "seconds"):
        refused(run("query", tmp_path / "ill.duckdb", "SELECT AVG(salary) FROM ill"), 2, "AVG(salary)", "not a number")


@pytest.mark.slow
def test_groups_of_doubles_are_checked_to_the_last_bit(tmp_path: Path) -> None:
    """0.3 - 0.2 in doubles is a little less than 0.1, and SQL's rounded difference does not show it."""
    values = "[0.2, 0.3, 7.2, 7.30000000000000071]"
    write(
        tmp_path / "people.parquet",
        f"SELECT i AS age, 'f' AS sex, {values}[i + 1]::DOUBLE AS salary FROM range(4) t(i)",
    )
    done = succeeded("publish", asked(tmp_path, "k = 1\ne = 0.1"), "--json").json
    assert done["groups"] == 1
    release = tmp_path / "ill.duckdb"
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE qit SET bid = CASE WHEN age < 2 THEN 0 ELSE 1 END, code = age")
        db.execute("UPDATE st SET bid = CASE WHEN salary < 1 THEN 0 ELSE 1 END")
    assert "every group has k sensitive values over a range of e" in failed(run("verify", release, "--json"))


@pytest.mark.slow
@each(
    ("salary", "mechanism", "code", "words"),
    [
        ("CASE WHEN i > 1 THEN i END", "k = 3\ne = 5", 2, ["salary", "NULL in 2 records", "suppress"]),
        ("'x' || i", "k = 3\ne = 5", 2, ["'salary' is VARCHAR", "cast it in source.query"]),
        ("i % 2 = 0", "k = 1\ne = 0", 2, ["'salary' is BOOLEAN"]),
        ("i", 'k = 3\ne = "30 days"', 2, ["'30 days'", "'salary' is BIGINT", "a number in its unit"]),
        ("DATE '2020-01-01' + i::INTEGER", "k = 3\ne = 30", 2, ["e = 30", "DATE", 'e = "30 days"']),
        (
            "(CASE WHEN i = 3 THEN 'nan' ELSE i::VARCHAR END)::DOUBLE",
            "k = 3\ne = 5",
            2,
            ["'salary' holds NaN or infinity"],
        ),
        ("CASE WHEN i = 3 THEN 'infinity' ELSE '2020-01-01' END::DATE", 'k = 1\ne = "1 day"', 2, ["holds infinity"]),
        (
            "CASE WHEN i = 3 THEN '-infinity' ELSE '2020-01-01' END::TIMESTAMP",
            'k = 1\ne = "1 day"',
            2,
            ["holds infinity"],
        ),
        ("i % 3", "k = 4\ne = 1", 3, ["'salary' has 3 distinct values over a range of 2", "k = 4", "mechanism.k to 3"]),
        ("i % 3", "k = 2\ne = 2.5", 3, ["e = 2.5", "mechanism.e to 2"]),
        ("i", "k = 0\ne = 1", 2, ["mechanism", "k"]),
        ("i", "k = 3", 2, ["e: is missing"]),
        ("i", 'k = 3\ne = 1\nalgorithm = "best"', 2, ["algorithm", "best"]),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(
    salary: str, mechanism: str, code: int, words: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "people.parquet", f"SELECT i % 9 AS age, 'f' AS sex, {salary} AS salary FROM range(40) t(i)")
    refused(run("publish", asked(tmp_path, mechanism)), code, *words)
    assert not (tmp_path / "ill.duckdb").exists()


@pytest.mark.slow
def test_null_may_be_suppressed_but_is_no_number(tmp_path: Path) -> None:
    write(
        tmp_path / "people.parquet",
        "SELECT i % 9 AS age, 'f' AS sex, CASE WHEN i > 4 THEN i END AS salary FROM range(40) t(i)",
    )
    spec = asked(tmp_path, columns=f'{COLUMNS}\nnulls = {{ salary = "suppress" }}')
    assert succeeded("publish", spec, "--json").json["suppressed"] == 5
    value = asked(tmp_path, columns=f'{COLUMNS}\nnulls = {{ salary = "value" }}', release='name = "x"\nto = "x.duckdb"')
    refused(run("plan", value), 2, "NULL is not a number", "nulls.salary")


def test_one_sensitive_column_only(firm: Path) -> None:
    columns = 'quasi_identifiers = ["age"]\nsensitive = ["salary", "debt"]'
    spec = asked(firm, columns=columns, name="two.toml", release='name = "two"\nto = "two.duckdb"')
    refused(run("publish", spec), 2, "salary, debt", "one sensitive column")


DAMAGE: dict[str, tuple[list[Any], str]] = {
    "two groups merged in st": (["UPDATE st SET bid = 1 WHERE bid = 0"], "agree on every group"),
    "a group that is too narrow": (
        ["DELETE FROM st WHERE bid = 0 AND salary > (SELECT min(salary) FROM st)"],
        "k sensitive values over a range of e",
    ),
    "another k": ([parameter("k", 400)], "k sensitive values over a range of e"),
    "another e": ([parameter("e", "400")], "k sensitive values over a range of e"),
    "a value dealt to another group": (
        ["UPDATE qit SET code = (SELECT max(code) FROM qit) WHERE rowid = 0"],
        "gives every group its values",
    ),
    "records exchanged": (["CREATE OR REPLACE TABLE qit AS FROM qit ORDER BY age"], "QIT rows lie in canonical order"),
    "another error": ([fact("error", lambda error: str(int(error) - 1))], "groups and error are as stated"),
    "another number of groups": ([fact("groups", lambda groups: groups + 1)], "groups and error are as stated"),
    "values renumbered": (["UPDATE privsql_values SET code = code + 1"], "values and their numbers of records"),
    "a table more": (["CREATE TABLE who AS SELECT 1 AS id"], "holds the stated tables"),
}


@pytest.mark.slow
@each("damage", DAMAGE, few=4, soak="damage")
def test_damage_is_found(damage: str, firm: Path, tmp_path: Path) -> None:
    changes, check = DAMAGE[damage]
    release = tmp_path / "ill.duckdb"
    release.write_bytes((firm / "ill.duckdb").read_bytes())
    with duckdb.connect(str(release)) as db:
        for change in changes:
            change(db) if callable(change) else db.execute(change)
    assert any(check in name for name in failed(run("verify", release, "--json")))


@pytest.mark.slow
def test_records_in_other_groups_are_found_against_the_source(firm: Path, tmp_path: Path) -> None:
    release = tmp_path / "ill.duckdb"
    release.write_bytes((firm / "ill.duckdb").read_bytes())
    with duckdb.connect(str(release)) as db:
        first = db.execute("SELECT age, sex FROM qit WHERE bid = 0").fetchall()[0]
        other = db.execute("SELECT age, sex FROM qit WHERE bid = 1 AND (age, sex) <> (?, ?)", first).fetchall()[0]
        case = (
            "WHEN rowid = (SELECT min(rowid) FROM qit WHERE bid = 0 AND age = {a[0]} AND sex = '{a[1]}') THEN {b} "
            "WHEN rowid = (SELECT min(rowid) FROM qit WHERE bid = 1 AND age = {c[0]} AND sex = '{c[1]}') THEN {d} ELSE"
        )
        ages = case.format(a=first, b=other[0], c=other, d=first[0])
        sexes = case.format(a=first, b=f"'{other[1]}'", c=other, d=f"'{first[1]}'")
        swapped = f"SELECT CASE {ages} age END AS age, CASE {sexes} sex END AS sex, bid, code"
        db.execute(f"CREATE OR REPLACE TABLE qit AS FROM ({swapped} FROM qit) ORDER BY bid, age, sex, code")
    rewrite(release)
    wrong = failed(run("verify", release, "--source", asked(firm), "--json"))
    assert list(wrong) == ["records are in the groups of their values"]
    assert succeeded("verify", release, "--json").json["ok"]


@pytest.mark.slow
def test_parquet_and_manifest_and_plan(firm: Path) -> None:
    done = succeeded("publish", asked(firm), "--format", "parquet", "--to", firm / "folder", "--json").json
    assert succeeded("verify", firm / "folder", "--json").json["ok"]
    assert answer(firm / "folder", "SELECT COUNT(*) FROM ill WHERE salary > 100")["estimate"] > 0
    planned = succeeded("plan", asked(firm), "--json").json
    assert {key: planned[key] for key in ("groups", "error", "loss")} == {
        key: done[key] for key in ("groups", "error", "loss")
    }
    assert sum(one["records"] for one in planned["by_group"]) == planned["published"]
    assert "by_group" not in done
    stated = succeeded("verify", firm / "folder", "--json").json["manifest"]
    assert stated["parameters"] == {"kind": "permute", "algorithm": "nested", "k": 4, "e": "30"}
    assert "groups" in succeeded("verify", firm / "folder", "--verbose").out


def test_a_plan_shows_the_summation_error_by_group(tmp_path: Path) -> None:
    """D0 of the thesis, Figure 3.2: {82, 84, 85} and {88..91}, 3 each."""
    write(tmp_path / "people.parquet", "SELECT 'f' AS sex, unnest([82, 84, 85, 88, 89, 90, 91]) AS salary")
    columns = 'quasi_identifiers = ["sex"]\nsensitive = "salary"'
    spec = specification(tmp_path, columns=columns, mechanism='kind = "permute"\nk = 3\ne = 2')
    printed = " ".join(succeeded("plan", spec).out.split())
    assert "values records max - min" in printed
    assert "82 to 85 3 3 88 to 91 4 3" in printed


def test_init_proposes_what_can_be_published(firm: Path, tmp_path: Path) -> None:
    proposed = succeeded("init", firm / "people.parquet", "--sensitive", "salary", "--accept").out
    spec = tmp_path / "spec.toml"
    spec.write_text(proposed.replace('id = "id"\n', ""), encoding="utf-8")
    assert 'kind = "permute"' in proposed
    assert succeeded("plan", spec, "--json").json["groups"] >= 1


@pytest.mark.slow
@each(
    ("value", "e", "groups"),
    [
        ("exp(10 + i % 997 / 500)", "half of the median", 4),  # wide: the level is hidden
        ("60000 + i * 7919 % 20011", "1/16 of the median", 4),  # half of the median exceeds the range
        ("DATE '2020-01-01' + CAST(i * 7919 % 3001 AS INTEGER)", "half of the range of the middle half", 3),
    ],
)
def test_the_range_that_init_proposes_leaves_groups_that_tell_values_apart(
    value: str, e: str, groups: int, tmp_path: Path
) -> None:
    write(tmp_path / "people.parquet", f"SELECT i % 47 AS age, i % 2 AS sex, {value} AS pay FROM range(4000) t(i)")
    text = succeeded(
        "init", tmp_path / "people.parquet", "--sensitive", "pay", "--mechanism", "permute", "--accept"
    ).out
    assert f", {e}, and 5 values" in text
    spec = tmp_path / "spec.toml"
    spec.write_text(text, encoding="utf-8")
    assert succeeded("plan", spec, "--json").json["groups"] >= groups
    succeeded("publish", spec, "--set", "ledger.off=true", "--replace", "--to", tmp_path / "pay.duckdb")
    number = "datediff('day', DATE '2020-01-01', pay)" if "DATE" in value else "pay"
    listed = rows(tmp_path / "pay.duckdb", f"SELECT bid, CAST({number} AS DOUBLE), count FROM st")
    group, values, records = (np.array(part) for part in zip(*listed, strict=True))
    centred = values - np.average(values, weights=records)
    sums = np.bincount(group, centred * records)
    kept = (sums**2 / np.bincount(group, records)).sum() / (records @ centred**2)
    assert kept >= 0.9
    assert f"Groups hide {1 - kept:.1%} of the variance" in text


# Answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each("sex", ["f", "m"], few=8)
@each(("low", "high"), [(0, 300), (-200, 50), (100, 101), (300, 5000)])
def test_counts_with_ranges_lie_within_their_bounds(firm: Path, sex: str, low: int, high: int) -> None:
    where = f"sex = '{sex}' AND age < 50 AND salary BETWEEN {low} AND {high}"
    found = answer(firm / "ill.duckdb", f"SELECT COUNT(*) FROM ill WHERE {where}")
    true = truth(firm, f"SELECT count(*) FROM {{t}} WHERE {where}")
    assert found["low"] <= found["estimate"] <= found["high"]
    assert found["low"] <= true <= found["high"]


@pytest.mark.slow
def test_ranges_of_whole_groups_are_answered_exactly(firm: Path) -> None:
    release = firm / "ill.duckdb"
    (low, high) = rows(release, "SELECT min(salary), max(salary) FROM st WHERE bid IN (1, 2)")[0]
    where = f"sex = 'f' AND salary BETWEEN {low} AND {high}"
    found = answer(release, f"SELECT COUNT(*) FROM ill WHERE {where}")
    assert found["estimate"] == pytest.approx(truth(firm, f"SELECT count(*) FROM {{t}} WHERE {where}"))
    assert found["low"] == found["high"]


@pytest.mark.soak(part="long")
@each("kind", ["SUM", "AVG", "MIN", "MAX"], few=8)
@each("where", ["age < 40", "sex = 'f' AND salary > 100", "age = 27", "salary BETWEEN -50 AND 60"])
def test_amounts_of_the_sensitive_column_lie_within_certain_bounds(firm: Path, kind: str, where: str) -> None:
    found = answer(firm / "ill.duckdb", f"SELECT {kind}(salary) FROM ill WHERE {where}")
    true = truth(firm, f"SELECT {kind}(salary) FROM {{t}} WHERE {where}")
    assert found["low"] - 1e-9 <= found["estimate"] <= found["high"] + 1e-9
    assert found["low"] - 1e-9 <= true <= found["high"] + 1e-9


@pytest.mark.slow
def test_amounts_by_group_and_of_quasi_identifiers(firm: Path) -> None:
    release = firm / "ill.duckdb"
    shown = succeeded("query", release, "SELECT sex, AVG(salary) FROM ill GROUP BY sex ORDER BY sex", "--json").json[
        "rows"
    ]
    assert [row["sex"] for row in shown] == ["f", "m"]
    for row in shown:
        true = truth(firm, f"SELECT avg(salary) FROM {{t}} WHERE sex = '{row['sex']}'")
        assert row["low"] <= true <= row["high"]
    everyone = answer(release, "SELECT SUM(salary) FROM ill")
    assert everyone["estimate"] == everyone["low"] == everyone["high"] == truth(firm, "SELECT sum(salary) FROM {t}")
    own = answer(release, "SELECT AVG(age) FROM ill WHERE salary > 200")
    assert own["low"] < truth(firm, "SELECT avg(age) FROM {t} WHERE salary > 200") < own["high"]
    assert "low and high are certain" in succeeded("query", release, "SELECT MAX(salary) FROM ill WHERE age = 27").out
    assert answer(release, "SELECT SUM(salary) FROM ill WHERE age > 500")["estimate"] is None


@pytest.mark.slow
@each(
    ("sql", "words"),
    [
        ("SELECT MIN(age) FROM ill WHERE salary > 3", ["MIN(age)", "no sensitive column"]),
        ("SELECT SUM(salary) FROM ill WHERE age > 30 OR salary > 3", ["SUM(salary)", "mixes"]),
        ("SELECT salary, AVG(salary) FROM ill GROUP BY salary", ["AVG(salary)", "grouped by salary"]),
        ("SELECT SKEWNESS(salary) FROM ill", ["SKEWNESS"]),
        ("SELECT SUM(sex) FROM ill WHERE salary > 3", ["sex is VARCHAR"]),
        ("SELECT SUM(salary), salary FROM ill", ["salary", "GROUP BY"]),
        ("SELECT SUM(DISTINCT salary) FROM ill", ["SUM(DISTINCT salary)"]),
        ("SELECT SUM(age) FROM ill WHERE salary > 3 --x", []),
    ],
)
def test_what_is_not_supported_is_refused_by_name(firm: Path, sql: str, words: list[str]) -> None:
    if words:
        refused(run("query", firm / "ill.duckdb", sql), 2, *words)
    else:
        succeeded("query", firm / "ill.duckdb", sql)


@pytest.mark.slow
def test_another_mechanism_adds_up_the_counts_of_sensitive_values(firm: Path) -> None:
    spec = specification(
        firm,
        columns=COLUMNS + "\ncategorical = true",
        mechanism="threshold = 0.5",
        name="b.toml",
        release='name = "b"\nto = "b.duckdb"',
    )
    succeeded("publish", spec, "--seed", 1)
    succeeded("query", firm / "b.duckdb", "SELECT SUM(salary) FROM b")
    refused(
        run("query", firm / "b.duckdb", "SELECT SUM(salary + 1) FROM b"), 2, "SUM and AVG are for quasi-identifiers"
    )


@pytest.mark.soak(part="coverage")
def test_evaluate_covers(firm: Path) -> None:
    shown = succeeded(
        "evaluate", firm / "ill.duckdb", "--source", asked(firm), "--workload", "random", "--queries", 40, "--json"
    ).json
    assert shown["baseline"]["coverage"] == 1


# Amounts against every choice -----------------------------------------------------------------------------------------

groups = st.lists(st.lists(st.integers(-3, 4), min_size=1, max_size=4), min_size=1, max_size=3)


@pytest.mark.parametrize("values", [["0.1", "0.2", "0.7"], ["9007199254740993", "9007199254740995", "3"]])
def test_certain_sums_hold_what_doubles_round(values: list[str]) -> None:
    """Tenths, and whole numbers beyond 2^53, of which all records are asked for: the bounds are not the rounded sum."""
    records = np.array([1000, 77, 3])
    of = np.array(sorted(map(float, values)))
    held = ChosenValues(np.zeros(3, dtype=np.int64), np.arange(3), records, of, np.array([records.sum()]))
    met = MatchingRecords(1, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.array([records.sum()]))
    true = sum(Fraction(value) * int(number) for value, number in zip(sorted(values, key=float), records, strict=True))
    _, low, high = (part[0] for part in answers.estimate_sum(held, met))
    assert Fraction(low) <= true <= Fraction(high)
    assert 0 < high - low < 1e-12 * high
    assert answers.rounding_slack(replace(held, values=np.array([1.0, 2.0, 3.0]))) == 0


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(groups, st.data())
def test_amounts_are_bounded_by_all_choices_and_reach_them(groups: list[list[int]], data: st.DataObject) -> None:
    values = sorted({value for group in groups for value in group})
    chosen = data.draw(st.sets(st.sampled_from(values), min_size=1))
    numbers = [data.draw(st.integers(0, len(group))) for group in groups]
    held, met = arrays(groups, values, chosen, numbers)
    choices = [
        [value for part in picked for value in part if value in chosen]
        for picked in itertools.product(
            *(itertools.combinations(group, number) for group, number in zip(groups, numbers, strict=True))
        )
    ]
    filled = [choice for choice in choices if choice]
    assert answers.possible_records(held, met)[0] == 0 if not filled else answers.possible_records(held, met)[0] > 0
    if not filled:
        return
    kinds: dict[str, tuple[Callable[[list[int]], Any], list[list[int]]]] = {
        "estimate_sum": (sum, choices), "estimate_mean": (lambda c: Fraction(sum(c), len(c)), filled),
        "estimate_minimum": (min, filled),
        "estimate_maximum": (max, filled),
    }  # fmt: skip
    for name, (measure, over) in kinds.items():
        estimate, low, high = (part[0] for part in getattr(answers, name)(held, met))
        exact = [float(measure(choice)) for choice in over]
        assert low == pytest.approx(min(exact))
        assert high >= max(exact) - 1e-9
        assert low - 1e-9 <= estimate <= high + 1e-9
        if len(filled) == len(choices):
            assert high == pytest.approx(max(exact))
        if name == "estimate_sum":
            assert (low == high) or not answers.are_settled(held, met)[0]
            assert estimate == pytest.approx(sum(exact) / len(exact))


@settings(max_examples=60, deadline=None)
@given(groups, st.data(), st.sampled_from([Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(0), Fraction(1)]))
def test_quantiles_are_bounded_by_all_choices_and_reach_them(
    groups: list[list[int]], data: st.DataObject, share: Fraction
) -> None:
    """The bounds are the least and the largest of the two values between which SQL interpolates."""
    values = sorted({value for group in groups for value in group})
    chosen = data.draw(st.sets(st.sampled_from(values), min_size=1))
    numbers = [data.draw(st.integers(0, len(group))) for group in groups]
    held, met = arrays(groups, values, chosen, numbers)
    picks = itertools.product(*(itertools.combinations(group, n) for group, n in zip(groups, numbers, strict=True)))
    choices = [sorted(value for part in picked for value in part if value in chosen) for picked in picks]
    places = [(choice, (len(choice) - 1) * share) for choice in choices if choice]
    if not places:
        return
    estimate, low, high = (part[0] for part in answers.estimate_quantile(held, met, share))
    assert low == min(choice[math.floor(place)] for choice, place in places)
    assert high == max(choice[math.ceil(place)] for choice, place in places)
    assert low <= estimate <= high


def arrays(
    groups: list[list[int]], values: list[int], chosen: set[int], numbers: list[int]
) -> tuple[ChosenValues, MatchingRecords]:
    """Groups as the module takes them."""
    cells = sorted({(g, values.index(v)) for g, group in enumerate(groups) for v in group if v in chosen})
    held = ChosenValues(
        np.array([g for g, _ in cells], dtype=np.int64),
        np.array([rank for _, rank in cells], dtype=np.int64),
        np.array([groups[g].count(values[rank]) for g, rank in cells], dtype=np.int64),
        np.array(values, dtype=np.float64),
        np.array([len(group) for group in groups], dtype=np.int64),
    )
    at = [g for g, number in enumerate(numbers) if number]
    met = MatchingRecords(
        1, np.zeros(len(at), np.int64), np.array(at, np.int64), np.array([numbers[g] for g in at], np.int64)
    )
    return held, met


def test_widths_are_shown_in_the_columns_unit() -> None:
    assert find_scale([Field("day", "DATE")], parse_extent("30 days")).format_width(Fraction(86400 * 45)) == "45 days"
    assert find_scale([Field("pay", "DECIMAL(9,2)")], parse_extent("0.5")).format_width(Fraction(3, 2)) == "1.5"
    hour, half = parse_extent("1 hour"), parse_extent("3/2")
    moments = pa.array([0], pa.timestamp("us"))
    assert on_axis(moments, find_scale([Field("at", "TIMESTAMP")], hour), hour)[1] == 3600 * 10**6
    assert on_axis(pa.array([7]), find_scale([Field("age", "INTEGER")], half), half)[1] == 2


def test_the_first_lines_say_how_well_values_are_known(firm: Path) -> None:
    """Of a plan and of a release, by the groups of the release."""
    contents = rows(firm / "ill.duckdb", "SELECT bid, salary, count FROM st")
    groups = {bid: [value for other, value, _ in contents if other == bid] for bid, *_ in contents}
    ends = {bid: (min(values), max(values)) for bid, values in groups.items()}
    records = sum(count for *_, count in contents)
    near = sum(count for bid, _, count in contents if ends[bid][1] - ends[bid][0] <= 0.1 * max(ends[bid][0], 0))
    said = f"the values of {near / records:.0%} of the records are known to within 10 %"
    for command in (["plan", asked(firm)], ["publish", asked(firm), "--seed", 1, "--to", firm / "told.duckdb"]):
        lines = succeeded(*command, "--json").json["summary"]
        assert said in json.dumps(lines)
