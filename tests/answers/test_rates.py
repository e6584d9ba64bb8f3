"""Questions that are ordinary: rates by population, running sums, texts that are replaced, and what a release holds."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import privsql
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBER = 900
POPULATION = {"r0": 1000, "r1": 500, "r2": 40}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[privsql.Release]:
    """A release without a model, and a table of populations."""
    people = pa.table({
        "region": [f"r{i % 3}" for i in range(NUMBER)],
        "age": [i * 7 % 60 for i in range(NUMBER)],
        "severity": [i * 5 % 4 for i in range(NUMBER)],
        "ill": [f"d{i * i % 11 % 5}" for i in range(NUMBER)],
    })  # fmt: skip
    folder = tmp_path_factory.mktemp("rates")
    lines = "".join(f"{region},{size}\n" for region, size in POPULATION.items())
    (folder / "towns.csv").write_text("region,population\n" + lines)
    keys = {"ledger": {"off": True}, "release": {"name": "town"}}
    qi = ["region", "age", "severity"]
    privsql.publish(people, sensitive="ill", qi=qi, threshold=0.6, to=folder / "r.duckdb", seed=1, set=keys)
    with privsql.open(folder / "r.duckdb", [folder / "towns.csv"], fit=False) as opened:
        yield opened


JOINED = "FROM town JOIN towns USING (region) WHERE ill = 'd1'"


@pytest.mark.parametrize("size", ["ANY_VALUE(population)", "FIRST(population)", "MAX(population)", "MIN(population)"])
def test_rates_by_population_have_the_intervals_of_their_counts(release: privsql.Release, size: str) -> None:
    counts = release.query(f"SELECT region, COUNT(*) {JOINED} GROUP BY region").rows
    rates = release.query(f"SELECT region, COUNT(*) / {size} AS rate {JOINED} GROUP BY region")
    assert rates.rests_on == "interval"
    for (region, *count), (same, *rate) in zip(counts, rates.rows, strict=True):
        assert region == same
        assert rate == pytest.approx([one / POPULATION[region] for one in count])


@pytest.mark.parametrize(
    "question",
    [
        f"SELECT region, population, 100.0 * COUNT(*) / population AS rate {JOINED} GROUP BY region, population",
        f"SELECT towns.region, 100.0 * COUNT(*) / ANY_VALUE(population) AS rate {JOINED} GROUP BY towns.region",
    ],
)
def test_a_group_is_a_constant_of_its_row(release: privsql.Release, question: str) -> None:
    counts = {row[0]: row[1:] for row in release.query(f"SELECT region, COUNT(*) {JOINED} GROUP BY region").rows}
    for region, *rest in release.query(question).rows:
        expected = [100 * one / POPULATION[region] for one in counts[region]]
        assert rest[-4:] == pytest.approx(expected)


def test_any_value_of_several_is_refused(release: privsql.Release) -> None:
    for question in (f"SELECT ANY_VALUE(population) {JOINED}", f"SELECT age, FIRST(population) {JOINED} GROUP BY age"):
        with pytest.raises(UsageError, match="whose keys are in GROUP BY"):
            release.query(question)
    exact = "SELECT age, MAX(population) FROM town JOIN towns USING (region) GROUP BY age"
    assert release.query(exact).rests_on == "exact"


def test_a_running_sum_over_with_has_the_bounds_that_it_has_without(release: privsql.Release) -> None:
    inner = "SELECT age // 10 AS g, COUNT(*) AS n FROM town WHERE ill = 'd1' GROUP BY 1"
    over = release.query(f"WITH t AS ({inner}) SELECT g, SUM(n) OVER (ORDER BY g) AS total FROM t ORDER BY g")
    plain = "SUM(COUNT(*)) OVER (ORDER BY age // 10) AS total"
    alone = release.query(f"SELECT age // 10 AS g, {plain} FROM town WHERE ill = 'd1' GROUP BY 1 ORDER BY g")
    assert over.rows == alone.rows
    assert None not in [row[3] for row in over.rows] + [row[4] for row in over.rows]


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ("replace(region, 'r', 'no ') = 'no 1'", 1 / 3),
        ("lpad(region, 4, '0') = '00r1'", 1 / 3),
        ("rpad(region, 3, '!') = 'r1!'", 1 / 3),
        ("DATE '2020-01-01' < CURRENT_DATE", 1),
    ],
)
def test_texts_are_replaced_and_padded(release: privsql.Release, condition: str, share: float) -> None:
    assert release.query(f"SELECT COUNT(*) FROM town WHERE {condition}").rows[0][0] == pytest.approx(NUMBER * share)


def test_the_day_of_the_question_is_a_constant(release: privsql.Release) -> None:
    before = dt.datetime.now(dt.UTC).date()
    (day, number, *_), *_ = release.query("SELECT CURRENT_DATE AS today, COUNT(*) FROM town").rows
    assert before <= day <= dt.datetime.now(dt.UTC).date()
    assert number == NUMBER


@pytest.mark.parametrize(
    "long",
    ["replace(replace(region, 'r', 'rr'), 'r', 'rr')", "lpad(region, 1000000, '0')", "replace(region, 'r', region)"],
)
def test_no_text_grows_long(release: privsql.Release, long: str) -> None:
    with pytest.raises(UsageError, match="constants of at most 100 characters"):
        release.query(f"SELECT COUNT(*) FROM town WHERE {long} = 'x'")


@pytest.mark.parametrize("condition", ["severity = 'fatal'", "severity IN (1, 'fatal')", "'fatal' < severity"])
def test_a_number_compared_with_a_word_names_the_column(release: privsql.Release, condition: str) -> None:
    with pytest.raises(UsageError, match="column 'severity' is BIGINT, and 'fatal' is no number"):
        release.query(f"SELECT COUNT(*) FROM town WHERE {condition}")
    assert release.query("SELECT COUNT(*) FROM town WHERE severity = '2'").rows[0][0] == NUMBER / 4


@pytest.mark.parametrize("statement", ["DESCRIBE town", "describe main.town;", "SHOW COLUMNS FROM town", 'DESC "town"'])
def test_a_release_is_described(release: privsql.Release, statement: str) -> None:
    answer = release.query(statement)
    assert answer.columns == ("column_name", "column_type", "role")
    assert answer.rows[0] == ("region", "VARCHAR", "quasi-identifier")
    assert answer.rows[-1] == ("ill", "VARCHAR", "sensitive")


def test_tables_are_listed(release: privsql.Release) -> None:
    assert release.query("SHOW TABLES").rows == [("town",), ("towns",)]
    with pytest.raises(UsageError, match=re.escape("there is no table 'towm' here, did you mean 'town'?")):
        release.query("DESCRIBE towm")
