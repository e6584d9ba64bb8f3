"""Constants as measures, decimals, and figures of groups that may not exist: known answers of small releases."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

import privsql as api
from privsql.errors import closest
from support.commands import refused, run, specification, succeeded, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# 30 records; of each of ages 20 to 26 there are some of every job
PEOPLE = """
SELECT CAST(20 + i % 7 AS INTEGER) AS age, ['f', 'm'][i % 2 + 1] AS sex, CAST(10 + i * 1.25 AS DECIMAL(8, 2)) AS pay,
  ['Sales', 'Exec', 'Craft'][i * 5 % 3 + 1] AS job, CAST(i * 3.5 AS DECIMAL(8, 2)) AS income
FROM range(30) t(i)
"""
KNOWN = 'quasi_identifiers = ["age", "sex", "pay"]\nsensitive = '
DOMAINS = """
[mechanism.domains]
sex = ["f", "m"]
job = ["Sales", "Exec", "Craft"]"""
RELEASES = {
    "bucketize": (f'{KNOWN}"job"', 'threshold = "1/2"'),
    "permute": (f'{KNOWN}"income"', 'kind = "permute"\nk = 3\ne = 5'),
    "marginals": (
        'categories = ["sex", "job"]',
        'kind = "contingency"\nalgorithm = "marginals"\nepsilon = 5' + DOMAINS,
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of each kind."""
    found = tmp_path_factory.mktemp("measures")
    write(found / "people.parquet", PEOPLE)
    for name, (columns, mechanism) in RELEASES.items():
        release = f'name = "t"\nto = "{name}.duckdb"'
        spec = specification(found, columns=columns, mechanism=mechanism, release=release, name=f"{name}.toml")
        succeeded("publish", spec, "--seed", 1, "--set", "ledger.off=true")
    return found


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest, folder: Path) -> Iterator[api.Release]:
    """Each of them, open."""
    with closing(api.open(folder / f"{request.param}.duckdb")) as found:
        yield found


@pytest.fixture(scope="module")
def bucketized(folder: Path) -> Iterator[api.Release]:
    """The bucketized one, open."""
    with closing(api.open(folder / "bucketize.duckdb")) as found:
        yield found


def test_constants_as_measures(release: api.Release) -> None:
    """7, 2 n, 0 and 1 for those who are there; SUM(1) has the bounds of COUNT(*)."""
    condition = "income > 20" if release.manifest.mechanism == "permute" else "job <> 'Sales'"
    figures = "AVG(7) AS a, SUM(2) AS b, SUM(0) AS c, AVG(1) AS d, SUM(1) AS e, COUNT(*) AS n"
    (row,) = release.query(f"SELECT {figures} FROM t WHERE {condition}").rows
    seven, twice, none, one, each, number = (row[4 * i : 4 * i + 4] for i in range(6))
    assert [part[0] for part in (seven, none, one)] == [7, 0, 1]
    assert (seven[2:], none[2:], one[2:]) == ((7, 7), (0, 0), (1, 1))
    assert number[0] > 10
    assert each == pytest.approx(number)
    assert twice == pytest.approx([2 * part for part in number])


@pytest.mark.parametrize(
    ("measure", "value"),
    [("SUM(2 * 3)", 180), ("SUM(-1)", -30), ("SUM(1.5)", 45), ("COUNT(7)", 30), ("COUNT(2 * 3)", 30),
     ("COUNT(NULL)", 0), ("SUM(NULL)", None), ("AVG(NULL)", None), ("MIN(3)", 3), ("AVG(7)", 7),
     ("SUM(1) + COUNT(*)", 60)],
)  # fmt: skip
def test_constants_of_everyone(release: api.Release, measure: str, value: float | None) -> None:
    """As the engine has them of the source, nearly where there is noise."""
    answer = release.query(f"SELECT {measure} FROM t")
    ((estimate, *_),) = answer.rows
    assert estimate == (value if value is None else pytest.approx(value, rel=0.1))
    assert (answer.rests_on == "exact") == (release.manifest.mechanism != "contingency" or measure == "COUNT(NULL)")


def test_nobody_has_no_mean(release: api.Release) -> None:
    """A value that does not occur: a count of 0, and NULL for a constant's mean."""
    if release.manifest.mechanism == "permute":
        return
    count = release.query("SELECT COUNT(*) FROM t WHERE job = 'none'")
    mean = release.query("SELECT AVG(7) FROM t WHERE job = 'none'")
    if release.manifest.mechanism == "contingency":  # a record may have another value than those that are stated
        assert count.rows[0][0] == pytest.approx(0, abs=0.01)
        assert count.rests_on == "interval"
        assert all(mean.may_be_empty) or mean.rows == [(None, None, None, None)]  # as the noise has it
        return
    assert count.rows == [(0, 0.0, 0, 0)]
    assert mean.rows == [(None, None, None, None)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT age, AVG(age) FROM t WHERE job = 'Sales' AND pay < 13 GROUP BY age",
        "SELECT AVG(age) FROM t WHERE age = 20 AND pay = 10 AND job = 'Sales'",
        "SELECT SUM(age - 20) FROM t WHERE age = 20 AND pay = 10 AND job = 'Sales'",
        "SELECT AVG(7) FROM t WHERE age = 20 AND pay = 10 AND job = 'Sales'",
        "SELECT 2 * AVG(age) + 1 FROM t WHERE age = 20 AND pay = 10 AND job = 'Sales'",
    ],
)
def test_what_may_be_of_nobody_is_not_exact(bucketized: api.Release, sql: str) -> None:
    """One record at most may have the value: its mean is known, but not that it is there."""
    answer = bucketized.query(sql)
    assert answer.rests_on == "interval"
    assert all(answer.may_be_empty)
    assert all(row["may_be_empty"] and row["std_error"] is None for row in answer.as_json()["rows"])
    assert any("may be empty" in note for note in answer.notes)
    assert "if any record meets the question" in answer.interval


@pytest.mark.parametrize("sql", ["SELECT age, AVG(age) FROM t GROUP BY age", "SELECT AVG(age) FROM t WHERE age = 20"])
def test_what_the_release_holds_is_exact(bucketized: api.Release, sql: str) -> None:
    """Where only quasi-identifiers are asked for, somebody is there."""
    answer = bucketized.query(sql)
    assert answer.rests_on == "exact"
    assert not any(answer.may_be_empty)


@pytest.mark.slow
def test_extremes_of_the_sensitive_column_are_certain_of_somebody_only(folder: Path) -> None:
    """(k,e)-anonymity: rows that may be empty are marked, in print and in JSON."""
    sql = "SELECT age, MIN(income), SUM(income) FROM t WHERE income > 99 GROUP BY age"
    answer = api.query(folder / "permute.duckdb", sql)
    assert any(answer.may_be_empty)
    assert answer.rests_on == "interval"
    whole = api.query(folder / "permute.duckdb", "SELECT age, MIN(income), SUM(income) FROM t GROUP BY age")
    assert (whole.rests_on, any(whole.may_be_empty)) == ("certain", False)
    some = succeeded("query", folder / "permute.duckdb", sql.replace("99", "60")).out
    assert ("may be empty" in some) == any(api.query(folder / "permute.duckdb", sql.replace("99", "60")).may_be_empty)


@pytest.mark.slow
def test_decimals_stay_decimals(folder: Path) -> None:
    """Of quasi-identifiers and of the sensitive column, in Python, in print and as numbers in JSON."""
    ((low, _, _, _, total, *_),) = api.query(
        folder / "bucketize.duckdb", "SELECT MIN(pay) AS a, SUM(pay) AS b FROM t"
    ).rows
    assert (str(low), str(total)) == ("10.00", "843.75")
    ((value, *_),) = api.query(folder / "permute.duckdb", "SELECT MIN(income) FROM t WHERE age = 22").rows
    assert isinstance(value, Decimal)
    assert value.as_tuple().exponent == -2
    printed = succeeded("query", folder / "bucketize.duckdb", "SELECT MIN(pay) + 2.50 FROM t WHERE age = 20")
    assert "12.50" in printed.out
    (row,) = succeeded("query", folder / "bucketize.duckdb", "SELECT MIN(pay) FROM t", "--json").json["rows"]
    assert row["estimate"] == 10


HINTS = {
    "bucketize": [("job = 'sales'", "Sales"), ("'exek' = job", "Exec"), ("sex IN ('F', 'm')", "f"), ("job <> 'x'", "")],
    "permute": [("income = 3.6", "")],
    "marginals": [("job = 'craft '", "Craft")],
}


@pytest.mark.parametrize(
    ("name", "condition", "meant"),
    [
        pytest.param(name, *one, marks=[pytest.mark.slow] * (one != some[0]))
        for name, some in HINTS.items()
        for one in some
    ],
)
def test_values_that_do_not_occur(folder: Path, name: str, condition: str, meant: str) -> None:
    """Are named, with the one that was probably meant, in print and in JSON."""
    sql = f"SELECT COUNT(*) FROM t WHERE {condition}"
    (hint,) = api.query(folder / f"{name}.duckdb", sql).hints
    assert "has no such value" in hint
    assert ("did you mean" in hint) == bool(meant)
    assert not meant or hint.endswith(f"did you mean '{meant}'?")
    assert f"note: {hint}" in succeeded("query", folder / f"{name}.duckdb", sql).out
    assert hint in succeeded("query", folder / f"{name}.duckdb", sql, "--json").json["notes"]


@pytest.mark.parametrize("condition", ["job = 'Sales'", "upper(job) = 'sales'", "age = 99", "pay = 1", "job LIKE 'x'"])
def test_values_that_occur_get_no_hint(bucketized: api.Release, condition: str) -> None:
    """Nor do numbers that an analyst may ask for, and what is more than a comparison."""
    assert not bucketized.query(f"SELECT COUNT(*) FROM t WHERE {condition}").hints


def test_items_that_a_public_universe_lacks_are_refused(shop: Path) -> None:
    """They were dropped, so that nothing is known of them."""
    with pytest.raises(api.UsageError, match=r"'Ale' is not in the universe .* did you mean 'ale'"):
        api.query(shop / "shop.duckdb", "SELECT COUNT(*) FROM shop WHERE list_contains(goods, 'Ale')")


def test_sums_of_decimals_are_of_one_type_in_all_groups(bucketized: api.Release) -> None:
    """Some of them are certain, others not."""
    answer = bucketized.query("SELECT pay, SUM(pay) AS z FROM t WHERE job = 'Sales' GROUP BY pay")
    assert len({type(row[1]) for row in answer.rows if row[1] is not None}) == 1
    assert len(answer.frame()) == len(answer.rows)


def test_the_nearest_text() -> None:
    """By letters in any case, then by spelling."""
    assert closest("SALES", ["sale", "Sales"]) == "Sales"
    assert closest("nothing like it", ["Sales"]) is None


def test_items_can_only_be_counted(folder: Path) -> None:
    """A noisy table answers counts; other measures are refused by name."""
    refused(run("query", folder / "marginals.duckdb", "SELECT COUNT(DISTINCT 7) FROM t"), 2, "COUNT(*)")
