"""Domains of many values: first characters of texts, and what a refusal and ``init`` propose."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from privsql.engine.sqlfiles import Field
from privsql.mechanisms.marginals.domains import ContingencyColumn, propose_coarser
from privsql.mechanisms.marginals.parameters import Values
from support.commands import fetched, refused, run, specification, succeeded, write
from support.loops import each
from support.tampering import changed, not_verified

if TYPE_CHECKING:
    from pathlib import Path

PLACES = "SELECT i % 2 AS sex, lpad((i * 7 % 10000)::VARCHAR, 5, '0') AS zip, i * 7 % 10000 AS code FROM range({}) t(i)"
CODES = "{ query = \"SELECT lpad(i::VARCHAR, 5, '0') FROM range(10000) t(i)\"%s }"


def column(kind: str, labels: list[str | None], edges: tuple[int, ...] = ()) -> ContingencyColumn:
    return ContingencyColumn(Field("x", kind), None, tuple(labels), tuple(map(Fraction, edges)))


@each(
    ("one", "domain", "proposed"),
    [
        (column("INTEGER", [str(i) for i in range(5, 905)]), None, "x = { bins = { from = 0, to = 950, by = 50 } }"),
        (column("DOUBLE", ["inf", "nan", *(str(i / 100) for i in range(100))]), None,
         "x = { bins = { from = 0, to = 1, by = 0.05 } }"),
        (column("INTEGER", [], tuple(range(0, 3001, 10))), None, "x = { bins = { from = 0, to = 3200, by = 200 } }"),
        (column("VARCHAR", [f"{i:03}" for i in range(900)]), Values(items=("a",)), "x = { items = [..], prefix = 2 }"),
        (column("VARCHAR", [f"{i:03}" for i in range(21)]), Values(data=True), "x = { data = true, prefix = 2 }"),
        (column("VARCHAR", [f"{i:03}" for i in range(19)]), Values(data=True), ""),
        (column("DOUBLE", ["nan"] * 30 + ["1"]), None, ""),
        (column("DATE", [f"2020-01-{i:02}" for i in range(1, 30)]), Values(data=True), ""),
        (column("VARCHAR", [chr(500 + i) for i in range(900)]), Values(data=True), ""),
    ],
)  # fmt: skip
def test_what_is_proposed_follows_from_the_domain(one: ContingencyColumn, domain: Values | None, proposed: str) -> None:
    assert propose_coarser(one, domain) == proposed


def spec(folder: Path, columns: str, domains: str, more: str = "") -> Path:
    return specification(
        folder, source='file = "places.parquet"', columns=f"categories = {columns}",
        mechanism=f'kind = "contingency"\nepsilon = 1\n{more}\n[mechanism.domains]\n{domains}\n[ledger]\noff = true',
        release='name = "places"\nto = "places.duckdb"',
    )  # fmt: skip


@pytest.mark.slow
def test_a_refusal_proposes_a_domain_that_is_published_then(tmp_path: Path) -> None:
    write(tmp_path / "places.parquet", PLACES.format(300))
    sex = 'sex = ["0", "1"]\n'
    refused(run("publish", spec(tmp_path, '["sex", "zip"]', f"{sex}zip = {CODES % ''}")), 3, "noise", "prefix = 2 }")
    write(tmp_path / "places.parquet", PLACES.format(9000))
    succeeded("publish", spec(tmp_path, '["sex", "zip"]', f"{sex}zip = {CODES % ', prefix = 2'}"))
    release = tmp_path / "places.duckdb"
    succeeded("verify", release, "--source", tmp_path / "spec.toml")
    shown = succeeded("query", release, "SELECT zip, COUNT(*) AS n FROM places GROUP BY zip", "--json").json["rows"]
    truth = dict(fetched(f"SELECT left(zip, 2), count(*) FROM ({PLACES.format(9000)}) GROUP BY 1"))
    assert {row["zip"] for row in shown} == {*truth, "other", None}
    assert all(abs(row["n"] - truth.get(row["zip"], 0)) < 60 for row in shown)
    for condition in ("zip = '03123'", "zip LIKE '031%'", "left(zip, 3) = '031'", "zip < '05'"):
        refused(run("query", release, f"SELECT COUNT(*) FROM places WHERE {condition}"), 2, "first 2 characters")
    not_verified(changed(release, tmp_path.parent, "UPDATE privsql_domains SET value = 'xx' WHERE value = '03'"))


@pytest.mark.slow
def test_too_many_cells_and_init_propose_one_too(tmp_path: Path) -> None:
    write(tmp_path / "places.parquet", PLACES.format(20_000))
    many = spec(tmp_path, '["zip", "code"]', f'zip = {CODES % ""}\ncode = "data"')
    refused(run("publish", many), 2, "max_cells", "prefix = 2 }")
    proposed = succeeded("init", tmp_path / "places.parquet", "--mechanism", "contingency").out
    assert "zip = { data = true, prefix = 2 }" in proposed
    assert "code = { bins = { from = .., to = .., by = .. } }" in proposed


@each(
    ("domains", "words"),
    [
        ("zip = { bins = [0, 1], prefix = 1 }", ["prefix", "bins"]),
        ('zip = { taxonomy = "SELECT 1, 2", prefix = 1 }', ["prefix", "taxonomy"]),
        ("zip = { data = true, prefix = 0 }", ["prefix"]),
    ],
)
def test_a_prefix_is_of_listed_texts(tmp_path: Path, domains: str, words: list[str]) -> None:
    refused(run("plan", spec(tmp_path, '["zip"]', domains)), 2, *words)


@pytest.mark.slow
@each("mechanism", ["contingency", "setvalued"])
def test_a_refusal_guesses_no_number_of_records(tmp_path: Path, mechanism: str) -> None:
    write(tmp_path / "places.parquet", "SELECT i % 2 AS sex, ['a', 'b'][1:1 + i % 2] AS goods FROM range(300) t(i)")
    sets = 'items = "goods"', 'kind = "setvalued"\nepsilon = "1/1000"\nuniverse = ["a", "b", "c", "d", "e"]'
    cells = 'categories = ["sex"]', 'kind = "contingency"\nepsilon = "1/1000"\ndomains = { sex = ["0", "1"] }'
    columns, asked = sets if mechanism == "setvalued" else cells
    release = 'name = "places"\nto = "places.duckdb"'
    given = specification(
        tmp_path, source='file = "places.parquet"', columns=columns, mechanism=f"{asked}\n[ledger]\noff = true",
        release=release,
    )  # fmt: skip
    for seed in range(20):
        done = run("publish", given, "--seed", seed, "--replace")
        if done.code:
            refused(done, 3, "for the records that there are")
            return
    raise AssertionError


def test_texts_are_encoded_by_their_first_characters() -> None:
    from privsql.mechanisms.marginals.domains import encode_values

    one = ContingencyColumn(Field("x", "VARCHAR"), None, ("äb", "c", "other", None), prefix=2)
    texts = pa.array(["äbc", "äb", "ä", "c", "cd", None, "other"])
    assert encode_values(texts, one).tolist() == [0, 0, 2, 1, 2, 3, 2]
