"""Columns that determine others by a public taxonomy: what is measured, answered, checked and refused."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from pydantic import ValidationError

from privsql.dp_random import table_noise_for
from privsql.keyed_random import seed_key
from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.dp.noisy_tables import CellSums, Nested, drop_parents, sum_cells
from privsql.mechanisms.marginals.parameters import Contingency
from privsql.mechanisms.marginals.plan import Rule
from privsql.mechanisms.marginals.publish import measure_marginals
from support.commands import refused, run, specification, succeeded, write
from support.loops import each
from support.tampering import changed, not_verified

if TYPE_CHECKING:
    from pathlib import Path

STATES, AREAS, JOBS = 6, 60, 8
ABOVE = np.sort(np.random.default_rng(1).integers(0, STATES, AREAS))
PEOPLE = f"""
SELECT i AS nr, 'a' || lpad((i * 7919 % {AREAS})::VARCHAR, 2, '0') AS area,
       's' || ((i * 7919 % {AREAS}) // 10)::VARCHAR AS state, 'j' || ((i // 7 + i * 7919 % {AREAS}) % {JOBS}) AS job
FROM range(20000) AS t(i)
UNION ALL SELECT 20000, 'a00', 's5', 'j0'
UNION ALL SELECT 20001 + i, NULL, 's1', 'j1' FROM range(3000) AS t(i)
"""
CODES = f"SELECT ''a'' || lpad(i::VARCHAR, 2, ''0''), ''s'' || i // 10 FROM range({AREAS}) AS t(i)".replace("''", "'")


def asked(taxonomy: str = CODES, parent: str = "state", more: str = "") -> str:
    """The domains of the people's columns."""
    return f"""
kind = "contingency"
epsilon = 2
{more}
[mechanism.domains]
area = {{ taxonomy = "{taxonomy}", parent = "{parent}" }}
state = ["s0", "s1", "s2", "s3", "s4", "s5"]
job = ["j0", "j1", "j2", "j3", "j4", "j5", "j6", "j7"]
"""


def spec(folder: Path, mechanism: str, name: str = "people") -> Path:
    return specification(
        folder,
        source='file = "people.parquet"\nid = "nr"',
        columns='categories = ["state", "area", "job"]',
        release=f'name = "people"\nto = "{name}.duckdb"',
        mechanism=mechanism,
        name=f"{name}.toml",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of people."""
    folder = tmp_path_factory.mktemp("nested")
    write(folder / "people.parquet", PEOPLE)
    return folder


@pytest.fixture(scope="module")
def place(folder: Path) -> Path:
    """A release of people by area, which tells the state, beside their table."""
    succeeded("publish", spec(folder, asked()), "--seed", 2)
    return folder


def query(place: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = succeeded("query", place / "people.duckdb", sql, "--json").json["rows"]
    return found


@pytest.mark.slow
def test_no_table_of_both_columns_is_measured(place: Path) -> None:
    with duckdb.connect(str(place / "people.duckdb"), read_only=True) as db:
        measured = [set(one) for (one,) in db.sql("SELECT columns FROM privsql_cliques").fetchall()]
    assert {"area", "job"} in measured
    assert not any({"area", "state"} <= one for one in measured)
    assert succeeded("verify", place / "people.duckdb", "--source", place / "people.toml", "--json").json["ok"]


@pytest.mark.slow
def test_both_columns_are_answered_as_the_one_that_determines(place: Path) -> None:
    both = query(place, "SELECT COUNT(*) FROM people WHERE area = 'a23' AND state = 's2'")[0]
    alone = query(place, "SELECT COUNT(*) FROM people WHERE area = 'a23'")[0]
    assert both["estimate"] == pytest.approx(alone["estimate"])
    assert both["low"] <= 333 <= both["high"] < both["low"] + 60
    (none,) = query(place, "SELECT COUNT(*) FROM people WHERE area = 'a23' AND state = 's3'")
    assert none["estimate"] == 0
    assert none["high"] < 1
    groups = {row["state"]: row for row in query(place, "SELECT state, COUNT(*) FROM people GROUP BY state")}
    assert groups["s1"]["low"] <= 6333 <= groups["s1"]["high"]
    unknown = query(place, "SELECT COUNT(*) FROM people WHERE area IS NULL AND state = 's1'")[0]
    assert unknown["low"] <= 3000 <= unknown["high"]


@pytest.mark.slow
def test_rows_of_the_release_agree_with_the_taxonomy(place: Path) -> None:
    with duckdb.connect(str(place / "people.duckdb"), read_only=True) as db:
        sql = "SELECT count(*) FROM privsql_rows WHERE area LIKE 'a%' AND 's' || area[2]::INTEGER <> state"
        assert db.sql(sql).fetchall() == [(0,)]


@pytest.mark.slow
@each(
    "change",
    [
        "UPDATE privsql_domains SET parent = NULL WHERE value = 'a07'",
        "UPDATE privsql_domains SET parent = 6 WHERE value = 'a07'",
        "UPDATE privsql_domains SET parent = 0 WHERE value = 'j0'",
    ],
)
def test_damage_is_found(place: Path, tmp_path: Path, change: str) -> None:
    not_verified(changed(place / "people.duckdb", tmp_path, change))


@each(
    ("words", "mechanism"),
    [
        ("needs a taxonomy", asked().replace(f'taxonomy = "{CODES}"', 'items = ["a00"]')),
        ("column with listed values", asked(parent="country")),
        ("below itself", asked(parent="area")),
        ("does not belong to", asked(more='algorithm = "diffpart"')),
        ("follows from", asked(more='workload = [["area", "state", "job"]]')),
        ("'s0' above a value, which is no value of job", asked(parent="job")),
    ],
)
def test_what_is_no_hierarchy_is_refused(folder: Path, words: str, mechanism: str) -> None:
    refused(run("plan", spec(folder, mechanism, "other")), 2, words)


def test_a_chain_of_parents_may_not_end_in_itself() -> None:
    domains = {one: {"taxonomy": "SELECT 1, 2", "parent": other} for one, other in (("a", "b"), ("b", "a"))}
    with pytest.raises(ValidationError, match="below itself"):
        Contingency.model_validate({"epsilon": 1, "domains": domains})


def test_sums_over_both_are_sums_over_one() -> None:
    """Of all cells of both columns and a third: those of listed values lose the parent, the others keep it."""
    nested, sizes, draw = Nested(0, 1, np.array([0, 0, 1])), (3, 5, 2), np.random.default_rng(0)
    records = np.array([(p, c, x) for p in range(3) for c in range(5) for x in range(2) if c > 2 or p == c // 2])
    weight = draw.random(len(records))
    whole = CellSums((0, 1, 2), np.arange(30), np.arange(30) % 7, draw.random(30), 7)
    direct = whole.sum_table(sum_cells(records, weight, (0, 1, 2), sizes))
    first, second = drop_parents(whole, [nested], sizes)
    assert (first.columns, second.columns) == ((1, 2), (0, 1, 2))
    parts = [one.sum_table(sum_cells(records, weight, one.columns, sizes)) for one in (first, second)]
    listed = records[:, 1] < 3
    first_table = sum_cells(records[listed], weight[listed], first.columns, sizes)
    assert np.allclose(parts[0], first.sum_table(first_table))
    assert np.allclose(sum(parts), direct)


@pytest.mark.slow
def test_pairs_err_less_if_a_taxonomy_is_known() -> None:
    draw = np.random.default_rng(3)
    area = draw.integers(0, AREAS, 20_000)
    job = (ABOVE[area] * 3 + area // 7 + draw.integers(0, 4, 20_000)) % JOBS
    codes = np.stack([ABOVE[area], area, job, draw.integers(0, 2, 20_000)], axis=1)
    cells, records = np.unique(codes, axis=0, return_counts=True)
    sizes, names, errors = (STATES + 2, AREAS + 2, JOBS + 2, 4), tuple("abcd"), []
    pairs = {pair: sum_cells(cells, records, pair, sizes) for pair in itertools.combinations(range(4), 2)}
    for nested in ((), (Nested(0, 1, ABOVE),)):
        params = Contingency.model_validate({"epsilon": Fraction(1, 2), "domains": dict.fromkeys(names, "data")})
        found = 0.0
        for seed in range(5):
            rule = Rule(params, names, sizes, nested=nested)
            tables = measure_marginals(cells, records, rule, table_noise_for(seed_key(seed), rule.law))
            model = Model(tables, sizes, nested, mixed=False)
            found += sum(float(np.abs(model.fitted_table(one) - exact).sum()) for one, exact in pairs.items())
        errors.append(found)
    assert errors[1] < 0.8 * errors[0]
