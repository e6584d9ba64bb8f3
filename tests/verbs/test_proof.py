"""A release is proved by publishing it again from its source and its key."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from privsql.releases.ledger.repeat import AGAIN, SAME_RECORDS
from support.commands import PEOPLE, run, specification, succeeded, write
from support.tampering import changed, failed

if TYPE_CHECKING:
    from pathlib import Path

N = 4000
# 40 quasi-identifiers and 12 values: no test of frequencies tells which value is whose.
CROWD = f"""SELECT i % 40 AS age, i // 40 % 2 AS sex, 1 AS zip, 'ill ' || (i * 7919 // 160) % 12 AS disease
FROM range({N}) t(i)"""
LAWS = {
    "buckets": 'algorithm = "two-size"\nthreshold = "2*f + 0.1"',
    "fakes": "threshold = 0.5\nmax_bucket_size = 2\nfake_values = 1",
    "left out": 'threshold = 0.09\nexcess = "suppress"\nabsence = "unobservable"',
    "pp": 'kind = "randomize"\nalgorithm = "pp"\nrho1 = "1/5"\nrho2 = "1/2"',
    "up": 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/5"\nrho2 = "1/2"',
    "permute": 'kind = "permute"\nk = 2\ne = 10',
}


def made(folder: Path, law: str, *, rows: str = CROWD, **sections: str) -> Path:
    """A specification whose release is published."""
    write(folder / "people.parquet", rows)
    if law == "permute":
        sections["columns"] = 'quasi_identifiers = ["sex", "disease"]\nsensitive = "age"'
    return specification(folder, mechanism=LAWS[law], **sections)


def verified(folder: Path, spec: Path, *flags: object, release: str = "ill.duckdb") -> dict[str, object]:
    return succeeded("verify", folder / release, "--source", spec, "--json", *flags).json


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_the_ledgers_key_gives_the_same_tables_again(tmp_path: Path, law: str) -> None:
    spec = made(tmp_path, law)
    succeeded("publish", spec)
    shown = verified(tmp_path, spec)
    assert shown["proved"] is True
    assert AGAIN in [one["name"] for one in shown["checks"]]
    write(tmp_path / "people.parquet", f"SELECT * FROM ({CROWD}) ORDER BY hash(age, disease), sex")  # in another order
    assert verified(tmp_path, spec)["proved"] is True


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_source_with_other_values_is_found(tmp_path: Path, law: str) -> None:
    spec = made(tmp_path, law)
    succeeded("publish", spec)
    moved = "age" if law == "permute" else "disease"
    next_one = f"coalesce(lead({moved}) OVER (ORDER BY i), first({moved}) OVER (ORDER BY i))"
    numbered = f"SELECT *, row_number() OVER () AS i FROM ({CROWD})"
    write(tmp_path / "people.parquet", f"SELECT * EXCLUDE i REPLACE ({next_one} AS {moved}) FROM ({numbered})")
    assert AGAIN in failed(run("verify", tmp_path / "ill.duckdb", "--source", spec, "--json"))


@pytest.mark.slow
@pytest.mark.parametrize("law", ["pp", "buckets"])
def test_a_release_with_shuffled_values_fails_though_every_frequency_is_right(tmp_path: Path, law: str) -> None:
    spec = made(tmp_path, law)
    succeeded("publish", spec)
    what = (
        """CREATE TABLE t AS SELECT p.* REPLACE (q.disease AS disease)
        FROM (SELECT *, row_number() OVER (PARTITION BY sub_table ORDER BY rowid) AS i FROM perturbed) p
        JOIN (SELECT sub_table, disease, row_number() OVER (PARTITION BY sub_table ORDER BY hash(rowid)) AS i
              FROM perturbed) q USING (sub_table, i);
        DELETE FROM perturbed;
        INSERT INTO perturbed SELECT * EXCLUDE i FROM t ORDER BY sub_table, age, sex, zip, disease; DROP TABLE t"""
        if law == "pp"
        else """CREATE TABLE t AS SELECT p.* REPLACE (q.bid AS bid)
        FROM (SELECT *, row_number() OVER (ORDER BY rowid) AS i FROM qit) p
        JOIN (SELECT bid, row_number() OVER (ORDER BY hash(rowid)) AS i FROM qit) q USING (i);
        DELETE FROM qit; INSERT INTO qit SELECT * EXCLUDE i FROM t ORDER BY bid, age, sex, zip; DROP TABLE t"""
    )
    (tmp_path / "other").mkdir()
    other = changed(tmp_path / "ill.duckdb", tmp_path / "other", what)
    found = failed(run("verify", other, "--source", spec, "--json"))
    risk = {"stated facts follow from the tables"} if law == "pp" else set()  # a forger can state another figure
    assert found.keys() - risk == {AGAIN}


@pytest.mark.slow
def test_a_key_file_proves_a_release_without_a_ledger(tmp_path: Path) -> None:
    spec = made(tmp_path, "buckets")
    with spec.open("a") as file:
        file.write("[ledger]\noff = true\n")
    succeeded("publish", spec, "--key-file", tmp_path / "key")
    assert verified(tmp_path, spec, "--key-file", tmp_path / "key")["proved"] is True
    shown = verified(tmp_path, spec)
    assert shown["proved"] is False
    assert "no key file was given" in str(shown["notes"])
    (tmp_path / "other").write_text("ab" * 32 + "\n")
    (tmp_path / "other").chmod(0o600)
    shown = verified(tmp_path, spec, "--key-file", tmp_path / "other")
    assert shown["proved"] is False
    assert "gives other tables" in str(shown["notes"])


@pytest.mark.slow
def test_a_key_file_proves_a_release_of_the_ledger(tmp_path: Path) -> None:
    spec = made(tmp_path, "pp")
    succeeded("publish", spec, "--key-file", tmp_path / "key")
    assert verified(tmp_path, spec, "--key-file", tmp_path / "key")["proved"] is True
    assert verified(tmp_path, spec)["proved"] is False


@pytest.mark.slow
def test_without_its_key_the_records_are_compared_with_the_ledgers(tmp_path: Path) -> None:
    spec = made(tmp_path, "buckets")
    succeeded("publish", spec, "--seed", 1)
    shown = verified(tmp_path, spec)
    assert shown["proved"] is False
    assert SAME_RECORDS in [one["name"] for one in shown["checks"]]
    swapped = "CASE i WHEN 0 THEN 'ill 1' WHEN 1 THEN 'ill 0' ELSE 'ill ' || (i * 7919 // 160) % 12 END AS disease"
    write(tmp_path / "people.parquet", CROWD.replace("'ill ' || (i * 7919 // 160) % 12 AS disease", swapped))
    assert failed(run("verify", tmp_path / "ill.duckdb", "--source", spec, "--json")).keys() == {SAME_RECORDS}


@pytest.mark.slow
def test_copies_folders_and_withdrawn_releases_are_proved(tmp_path: Path) -> None:
    spec = made(tmp_path, "buckets", release='name = "ill"\nto = "ill"\nformat = "parquet"\norder = "portable"')
    succeeded("publish", spec)
    assert verified(tmp_path, spec, release="ill")["proved"] is True
    succeeded("verify", tmp_path / "ill", "--copy-to", tmp_path / "copy")
    assert verified(tmp_path, spec, release="copy")["proved"] is True
    succeeded("ledger", "withdraw", 1)
    assert verified(tmp_path, spec, release="ill")["proved"] is True


@pytest.mark.slow
def test_a_later_release_of_a_chain_is_proved_with_the_groups_of_earlier_ones(tmp_path: Path) -> None:
    rows = PEOPLE.format(n=300).replace("SELECT CAST", "SELECT i AS id, CAST", 1)
    spec = made(
        tmp_path,
        "permute",
        rows=rows,
        source='file = "people.parquet"\nid = "id"\npopulation = "crowd"',
    )
    succeeded("publish", spec)
    shutil.copy(tmp_path / "ill.duckdb", tmp_path / "first.duckdb")
    write(tmp_path / "people.parquet", rows.replace("range(300)", "range(500)"))
    succeeded("publish", spec, "--replace")
    assert verified(tmp_path, spec)["proved"] is True
    write(tmp_path / "people.parquet", rows)
    assert verified(tmp_path, spec, release="first.duckdb")["proved"] is True


@pytest.mark.slow
def test_a_ledger_that_cannot_be_read_leaves_the_release_unproved(tmp_path: Path) -> None:
    spec = made(tmp_path, "buckets")
    with spec.open("a") as file:
        file.write('[ledger]\ndatabase = "own.duckdb"\n')
    succeeded("publish", spec)
    assert verified(tmp_path, spec)["proved"] is True
    (tmp_path / "own.duckdb").write_text("no ledger")
    shown = verified(tmp_path, spec)
    assert shown["proved"] is False
    assert "the ledger can't be read" in str(shown["notes"])
    assert run("verify", tmp_path / "ill.duckdb", "--source", spec, "--ledger", tmp_path / "own.duckdb").code == 4
