"""Releases in the portable order: every keyed mechanism, verified, the same whatever order the source lies in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import support.firm
from support.commands import refused, rows, run, specification, succeeded, tables, write
from support.loops import each, rest_slow
from support.mixed import DIGESTS, MECHANISMS, PEOPLE, QI, digest

if TYPE_CHECKING:
    from pathlib import Path


def asked(folder: Path, kind: str, to: str, ledger: str = "off = true") -> Path:
    """A specification of one mechanism in the portable order."""
    sensitive, mechanism = MECHANISMS[kind]
    return specification(
        folder,
        columns=f'{QI}\nsensitive = "{sensitive}"',
        release=f'name = "r"\nto = "{to}.duckdb"\norder = "portable"',
        mechanism=f"{mechanism}\n[ledger]\n{ledger}",
    )


@pytest.mark.soak(part="long")
@each("kind", MECHANISMS, few=1)
def test_the_same_release_whatever_order_the_source_lies_in(tmp_path: Path, kind: str) -> None:
    """It passes every check, with the source too, and holds the records that it says."""
    found = []
    for to, order in (("a", ""), ("b", "ORDER BY hash(salary, age), seen")):
        write(tmp_path / "people.parquet", f"SELECT * FROM ({PEOPLE}) {order}")
        spec = asked(tmp_path, kind, to)
        succeeded("publish", spec, "--seed", 7)
        succeeded("verify", tmp_path / f"{to}.duckdb", "--source", spec)
        found.append(tables(tmp_path / f"{to}.duckdb"))
    assert found[0] == found[1]
    succeeded("publish", spec, "--seed", 8, "--replace")
    first = "perturbed" if kind == "randomize" else "qit"
    assert found[0][first] != tables(tmp_path / "b.duckdb")[first]


@pytest.mark.parametrize("kind", rest_slow(DIGESTS))
def test_default_algorithms_make_the_release_that_every_engine_makes(tmp_path: Path, kind: str) -> None:
    """Spark and Postgres are compared with the same digests where they are tested."""
    write(tmp_path / "people.parquet", PEOPLE)
    succeeded("publish", asked(tmp_path, kind, "r"), "--seed", 7)
    assert digest(tables(tmp_path / "r.duckdb")) == DIGESTS[kind]


@pytest.mark.soak(part="long")
def test_one_key_on_two_tables_with_the_same_counts(tmp_path: Path) -> None:
    """Neither in the engine's own order nor in the portable one are they laid out alike: one record's age differs."""
    for order in ("stream", "portable"):
        found = []
        for to, age in (("a", "age"), ("b", "CASE WHEN salary = 0 THEN age + 1 ELSE age END AS age")):
            write(tmp_path / "people.parquet", f"SELECT {age}, disease, salary FROM ({PEOPLE})")
            spec = specification(
                tmp_path,
                columns='quasi_identifiers = ["age", "salary"]\nsensitive = "disease"',
                release=f'name = "r"\nto = "{to}.duckdb"\norder = "{order}"',
                mechanism='threshold = "1/6"\n[ledger]\noff = true',
            )
            succeeded("publish", spec, "--seed", 7, "--replace")
            found.append(tables(tmp_path / f"{to}.duckdb"))
        assert found[0]["st"] != found[1]["st"]
        assert len(set(found[0]["qit"]) & set(found[1]["qit"])) < len(found[0]["qit"]) / 10


@pytest.mark.slow
def test_groups_of_a_growing_table_are_those_of_its_records(tmp_path: Path) -> None:
    """A record lies in the group that the ledger knows: the second release refines the first, and verify agrees."""
    for name, people in (("first", 300), ("second", 420)):
        write(tmp_path / "people.parquet", support.firm.PEOPLE.format(n=people))
        spec = support.firm.asked(
            tmp_path,
            'k = 3\ne = 20\nalgorithm = "nested"\n[ledger]\ndatabase = "ledger.duckdb"',
            source='file = "people.parquet"\nid = "id"',
            release=f'name = "{name}"\nto = "{name}.duckdb"\norder = "portable"',
        )
        succeeded("publish", spec)
        succeeded("verify", tmp_path / f"{name}.duckdb", "--source", spec)
    succeeded("ledger", spec)
    again = run("publish", spec, "--to", tmp_path / "again.duckdb")
    assert again.code == 0, again.err
    assert rows(tmp_path / "again.duckdb", "FROM qit") == rows(tmp_path / "second.duckdb", "FROM qit")


@pytest.mark.slow
def test_the_ledger_tells_orders_apart(tmp_path: Path) -> None:
    """The same request in another order is another release of the same people, which no guarantee covers."""
    write(tmp_path / "people.parquet", PEOPLE)
    succeeded("publish", asked(tmp_path, "multi-size", "a", ledger='database = "ledger.duckdb"'))
    succeeded("publish", asked(tmp_path, "multi-size", "b", ledger='database = "ledger.duckdb"'))
    assert tables(tmp_path / "a.duckdb") == tables(tmp_path / "b.duckdb")
    spec = asked(tmp_path, "multi-size", "c", ledger='database = "ledger.duckdb"')
    spec.write_text(spec.read_text().replace('"portable"', '"stream"'))
    refused(run("publish", spec), 1, "no guarantee covers both")


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ('order = "sorted"', "release.order: 'sorted' is not one of 'stream' or 'portable'"),
        ('order = "portable"', "release.order: a differentially private release places no records; leave it out"),
    ],
)
def test_orders_that_are_none(tmp_path: Path, release: str, words: str) -> None:
    write(tmp_path / "people.parquet", PEOPLE)
    spec = specification(
        tmp_path,
        columns='categories = ["sex"]',
        release=release,
        mechanism='kind = "contingency"\nepsilon = 1\ndomains = { sex = ["M"] }',
    )
    refused(run("plan", spec), 2, words)
