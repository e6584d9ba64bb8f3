"""A release that is replaced counts as received: what covers no second release refuses it, and the new one says so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from support.commands import FLAGS, PEOPLE, manifest, refused, run, specification, succeeded, write
from support.office import SALARIES, Office

if TYPE_CHECKING:
    from pathlib import Path

CELLS = 'kind = "contingency"\nepsilon = 1\nallow_empty = true\ndomains = { sex = ["F", "M"] }'


@pytest.fixture
def job(tmp_path: Path) -> list[object]:
    """A nightly job over a table, whose release is there."""
    write(tmp_path / "people.parquet", PEOPLE.format(n=200))
    command = ["publish", tmp_path / "people.parquet", *FLAGS, "--to", tmp_path / "people.duckdb"]
    succeeded(*command)
    return [*command, "--replace"]


def words() -> str:
    """What a release says of one of today that it replaces."""
    return f"replaces a release of {datetime.now(UTC).date()}, which may have been received"


@pytest.mark.slow
def test_a_nightly_job_does_not_forget_what_it_replaces(job: list[object], tmp_path: Path) -> None:
    """Two releases of the same people said that there was no other; who kept the first knew more than either allows."""
    release = tmp_path / "people.duckdb"
    before = release.read_bytes()
    refused(run(*job, "--seed", 5), 1, "release 1", "no guarantee covers both", "option nobody_has_it withdraws it")
    assert release.read_bytes() == before
    done = succeeded(*job, "--seed", 5, "--allow-composition")
    assert "release 1, which it replaces, counts as received" in " ".join(done.out.split())
    assert [one["relation"] for one in manifest(release)["beside"]] == ["replaced"]
    for verbose in ([], ["--verbose"]):
        assert words() in " ".join(succeeded("verify", *verbose, release).out.split())
    succeeded("report", release, "--to", tmp_path / "report.html")
    assert words() in " ".join((tmp_path / "report.html").read_text(encoding="utf-8").split())
    assert [one["withdrawn"] for one in succeeded("ledger", "--json").json["releases"]] == [False, False]


def test_what_nobody_has_is_withdrawn(job: list[object], tmp_path: Path) -> None:
    done = succeeded(*job, "--seed", 5, "--nobody-has-it", "--json").json
    assert done["ledger"]["withdrawn"] == 1
    assert manifest(tmp_path / "people.duckdb")["composition"] == []
    assert "beside" not in manifest(tmp_path / "people.duckdb")
    refused(
        run(*job[:-1], "--nobody-has-it"),
        2,
        "option nobody_has_it is about the release that is replaced",
        "give option replace",
    )


@pytest.mark.slow
def test_the_same_again_replaces_nothing_else(job: list[object], tmp_path: Path) -> None:
    """Who has one of the two has the other: the ledger keeps the last one, and no release says anything of it."""
    for flag in ("--repeat", "--replace"):
        succeeded(*job[:-1], flag)
        assert "beside" not in manifest(tmp_path / "people.duckdb")
    listed = succeeded("ledger", "--json").json["releases"]
    assert [one["withdrawn"] for one in listed] == [True, True, False]


@pytest.mark.slow
def test_a_release_that_no_ledger_knows_is_replaced_with_a_word(job: list[object], tmp_path: Path) -> None:
    release = tmp_path / "people.duckdb"
    succeeded(*job, "--set", "ledger.off=true")
    assert manifest(release)["beside"] == [{"made": None, "relation": "replaced"}]
    assert "replaces a release that no ledger dates" in " ".join(succeeded("verify", release).out.split())
    succeeded(*job, "--set", "ledger.off=true", "--nobody-has-it")
    assert "beside" not in manifest(release)


@pytest.mark.slow
def test_a_table_that_grows_keeps_the_chain_of_what_it_replaced(tmp_path: Path) -> None:
    office = Office(tmp_path)
    asked = office.spec(release='name = "pay"\nto = "pay.duckdb"')
    for people, flags in zip(SALARIES[:2], ([], ["--replace"]), strict=True):
        office.hire(people)
        succeeded("publish", asked, *flags)
    assert [one["withdrawn"] for one in office.entries()] == [False, False]
    assert office.entries()[1]["composes"].startswith("every Boolean combination")
    assert manifest(tmp_path / "pay.duckdb")["beside"][0]["relation"] == "replaced"


@pytest.mark.slow
def test_a_private_release_says_what_it_replaces(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=200))
    path = specification(tmp_path, columns='categories = ["sex"]', release='to = "r.duckdb"', mechanism=CELLS)
    succeeded("publish", path)
    assert succeeded("publish", path, "--replace", "--json").json["ledger"]["spent"] == "2"
    assert manifest(tmp_path / "r.duckdb")["beside"][0]["relation"] == "replaced"
    succeeded("verify", tmp_path / "r.duckdb", "--source", path)


@pytest.mark.slow
def test_exact_counts_over_a_private_release_are_refused(tmp_path: Path) -> None:
    """A replaced release is judged like any other: its budget protects something that these counts do not."""
    write(tmp_path / "people.parquet", PEOPLE.format(n=200))
    path = specification(tmp_path, columns='categories = ["sex"]', release='to = "r.duckdb"', mechanism=CELLS)
    succeeded("publish", path)
    over = ["publish", tmp_path / "people.parquet", *FLAGS, "--to", tmp_path / "r.duckdb", "--replace"]
    refused(run(*over), 1, "exact counts of records", "option allow_composition")
    succeeded(*over, "--nobody-has-it")
