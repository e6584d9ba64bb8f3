"""The publisher's ledger: growing tables, repeats, composition, and what several releases tell together."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from privsql.mechanisms.permute.grouping import make_axis
from privsql.releases.ledger.book import default_path, key_of
from support.breaches import find_closure_breaches, find_pairwise_breaches
from support.commands import refused, rows, run, succeeded
from support.loops import rest_slow
from support.office import COLUMNS, SALARIES, Office
from support.tampering import failed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALONE = "no earlier release of these people"  # what the ledger says of a first release


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """An office with the thesis' D0."""
    made = Office(tmp_path)
    made.hire(SALARIES[0])
    return made


def groups_of(release: Path) -> list[tuple[int, ...]]:
    """Salaries of every group of a release."""
    return [
        tuple(row[0]) for row in rows(release, "SELECT list(salary ORDER BY salary) FROM st GROUP BY bid ORDER BY bid")
    ]


# Growing --------------------------------------------------------------------------------------------------------------


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("algorithm", rest_slow(["nested", "exact", "reapply-all"]))
def test_known_answers_of_the_growing_table(algorithm: str, grown: Callable[[str], Office]) -> None:
    office = grown(algorithm)
    assert groups_of(office.made[0]) == [(82, 84, 85), (88, 89, 90, 91)]
    assert groups_of(office.made[1]) == [(80, 81, 82, 83, 84, 85), (88, 89, 90, 91)]
    assert groups_of(office.made[2]) == [(80, 81, 82, 83, 84, 85), (88, 89, 90, 91), (94, 95, 96)]
    for release in office.made:
        assert succeeded("verify", release, "--json").json["ok"]
    done = succeeded("verify", office.made[2], "--against", *office.made[:2], "--source", office.spec(), "--json").json
    assert done["ok"]
    assert len([check for check in done["checks"] if "adversary" in check["name"]]) == 6
    assert any(check["name"] == "records of releases 1, 2, 3: no breach by any combination" for check in done["checks"])


@pytest.mark.soak(part="long")
def test_planted_breaches_of_reapplying_to_the_last_release_are_found(grown: Callable[[str], Office]) -> None:
    office = grown("reapply-last")
    assert groups_of(office.made[2])[:2] == [(80, 81, 82), (83, 84, 85)]
    verify = ["verify", office.made[2], "--against", *office.made[:2], "--json"]
    seen = failed(run(*verify))
    shown = "breach=earlier minus later, earlier_group=0, later_group=0"
    assert any(shown in row for found in seen.values() for row in found)
    named = failed(run(*verify, "--source", office.spec()))
    assert (
        "earlier_group=0, later_group=0, records=1, values=1, low=82, high=82, id=1"
        in named["records of releases 1 and 3: no breach by intersection"]
    )
    assert any("id=10" in row for row in named["records of releases 1 and 3: no breach by later minus earlier"])
    assert "records of releases 1, 2, 3: no breach by any combination" in named
    assert "records of releases 1 and 2: no breach by intersection" not in named
    assert "the last release only" in office.entries()[-1]["composes"]


@pytest.mark.slow
def test_exact_is_safe_in_pairs_and_not_in_every_combination(tmp_path: Path) -> None:
    """A batch that is fine as a whole may still be split between groups so that two earlier groups leave one record."""
    office = Office(tmp_path, 'kind = "permute"\nk = 3\ne = 2\nalgorithm = "exact"')
    office.hire("(1, 1, 'f', 1), (2, 2, 'f', 2), (3, 3, 'f', 3), (4, 4, 'f', 7), (5, 5, 'f', 8), (6, 6, 'f', 9)")
    office.publish()
    office.hire("(7, 7, 'm', 5), (8, 8, 'm', 41), (9, 9, 'm', 42), (10, 10, 'm', 44)")
    office.publish()
    assert groups_of(office.made[1]) == [(1, 2, 3, 5, 7, 8, 9), (41, 42, 44)]
    wrong = failed(run("verify", office.made[1], "--against", office.made[0], "--source", office.spec(), "--json"))
    assert wrong["records of releases 1, 2: no breach by any combination"] == [
        "records=1, values=1, low=5, high=5, id=7"
    ]
    remains = next(rows for name, rows in wrong.items() if "subtracting" in name)
    assert remains == ["later_group=0, taken=2, records=1, values=1, low=5, high=5"]
    assert len(wrong) == 2


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("seed", range(4))
def test_sql_finds_what_the_reference_finds(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    office = Office(tmp_path, 'kind = "permute"\nk = 2\ne = 3\nalgorithm = "reapply-last"')
    number = 0
    for _ in range(4):
        people = []
        for _ in range(int(rng.integers(4, 12))):
            number += 1
            people.append(f"({number}, {number}, 'f', {rng.integers(0, 40)})")
        office.hire(", ".join(people))
        office.publish()
    values = dict(rows_of(office, "SELECT id, salary FROM people"))
    units, ranks = np.unique([values[i + 1] for i in range(number)], return_inverse=True)
    releases = np.full((4, number), -1)
    for release in range(4):
        for record, group in office.groups(release + 1).items():
            releases[release, record - 1] = group
    scale = make_axis(units.tolist(), 2, 3)
    expected = {
        (b.releases[0] + 1, b.releases[1] + 1, b.kind, i + 1)
        for b in find_pairwise_breaches(scale, ranks, releases)
        for i in b.records
    }
    done = run("verify", office.made[3], "--against", *office.made[:3], "--source", office.spec(), "--json").json
    found = {check["name"]: check["violations"] for check in done["checks"] if check["name"].startswith("records of")}
    for first in range(1, 4):
        for second in range(first + 1, 5):
            for kind in ("earlier minus later", "later minus earlier"):
                wanted = {e for e in expected if e[:3] == (first, second, kind)}
                assert (found[f"records of releases {first} and {second}: no breach by {kind}"] > 0) == bool(wanted)
            wanted = {e for e in expected if e[:3] == (first, second, "intersection")}
            assert found[f"records of releases {first} and {second}: no breach by intersection"] == len(wanted)
    atoms = find_closure_breaches(scale, ranks, releases)
    assert found["records of releases 1, 2, 3, 4: no breach by any combination"] == sum(map(len, atoms))


def rows_of(office: Office, sql: str) -> list[tuple[Any, ...]]:
    """Rows of the source."""
    with duckdb.connect(str(office.folder / "office.duckdb"), read_only=True) as db:
        return db.execute(sql).fetchall()


@pytest.mark.soak(part="long")
def test_new_records_are_held_back_counted_and_released_later(office: Office) -> None:
    office.publish()
    office.hire("(11, 40, 'm', 96)")
    planned = succeeded("plan", office.spec(), "--json").json
    held = office.publish()
    assert {key: planned[key] for key in ("published", "held_back", "error", "groups")} == {
        key: held[key] for key in ("published", "held_back", "error", "groups")
    }
    assert len(office.entries()) == 2
    assert (held["published"], held["held_back"], held["records"]) == (7, 1, 8)
    assert groups_of(office.made[1]) == groups_of(office.made[0])
    for table in ("qit", "st", "privsql_values"):
        assert "96" not in str(rows(office.made[1], f"FROM {table}"))
    assert succeeded("verify", office.made[1], "--source", office.spec(), "--json").json["ok"]
    assert "1 new records" in succeeded("verify", office.made[1], "--verbose").out
    office.hire("(12, 50, 'm', 95), (13, 32, 'f', 94)")
    assert office.publish()["held_back"] == 0
    assert groups_of(office.made[2])[-1] == (94, 95, 96)
    assert [(entry["records"], entry["fresh"], entry["held_back"]) for entry in office.entries()] == [
        (7, 7, 0),
        (7, 0, 1),
        (10, 3, 0),
    ]


@pytest.mark.slow
def test_a_repeat_gives_the_same_release(office: Office) -> None:
    office.publish()
    office.publish()
    for table in ("qit", "st", "privsql_values", "pay_weighted"):
        assert rows(office.made[0], f"FROM {table}") == rows(office.made[1], f"FROM {table}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "words"),
    rest_slow(
        [
            ("UPDATE people SET salary = 99 WHERE id = 3", ["1 changed", "new records alone"]),
            ("UPDATE people SET age = NULL WHERE id = 3", ["1 changed"]),
            ("DELETE FROM people WHERE id IN (4, 5)", ["2 deleted"]),
            ("UPDATE people SET salary = salary + 1", ["7 changed"]),
        ]
    ),
)
def test_what_may_only_grow_may_not_change(office: Office, statement: str, words: list[str]) -> None:
    office.publish()
    office.sql(statement)
    refused(
        run(*office.arguments()), 1, "records of earlier releases may not change", *words, "option allow_composition"
    )
    assert not office.made[-1].exists()
    assert len(office.entries()) == 1


@pytest.mark.slow
def test_new_records_alone_are_published_after_a_deletion(office: Office) -> None:
    """What a refusal calls safe is taken, and the refusal names no id."""
    office.publish()
    office.sql("DELETE FROM people WHERE id = 4")
    office.hire("(901, 30, 'F', 10), (902, 31, 'M', 20), (903, 32, 'F', 30), (904, 33, 'M', 40)")
    done = run(*office.arguments())
    refused(done, 1, "1 deleted", "new records alone", "source.query")
    assert "id 4" not in done.err
    plan = ["plan", office.spec(), "--changed"]
    assert "'4'" not in succeeded(*plan, office.folder / "changed.csv").out
    assert (office.folder / "changed.csv").read_text(encoding="utf-8").split() == ["id,fate", "4,deleted"]
    assert (office.folder / "changed.csv").stat().st_mode & 0o777 == 0o600
    refused(run(*plan, office.folder / "changed.csv"), 4, "exists")
    refused(run(*plan, office.folder / "more.csv", "--algorithms"), 2, "--changed")
    query = 'database = "office.duckdb"\nquery = "SELECT * FROM people WHERE id > 900"\nid = "id"'
    assert office.publish(source=query)["published"] == 4


@pytest.mark.slow
def test_one_release_of_the_ledger_is_shown(office: Office) -> None:
    office.publish()
    shown = succeeded("ledger", "show", 1, "--json").json
    assert (shown["number"], shown["name"], shown["composes"]) == (1, "pay", ALONE)
    assert ALONE in succeeded("ledger", "show", 1).out
    refused(run("ledger", "show", 2), 2, "release 2 is not in the ledger", '"privsql ledger" lists them')
    assert max(map(len, succeeded("ledger").out.splitlines())) <= 80


@pytest.mark.slow
def test_composition_is_refused_or_recorded(office: Office) -> None:
    office.publish()
    refused(run(*office.arguments(mechanism='kind = "permute"\nk = 2\ne = 2')), 1, "no guarantee covers both")
    bucketized = {"mechanism": 'kind = "bucketize"\nthreshold = 0.5'}
    refused(run(*office.arguments(**bucketized)), 1, "release 1 (pay, permute)", "option allow_composition")
    office.publish("--allow-composition", **bucketized)
    notes = succeeded("verify", office.made[-1], "--json").json["notes"]
    assert any("composition allowed by the publisher" in note for note in notes)
    assert "composition allowed" in succeeded("verify", office.made[-1]).out.replace("\n", " ")
    last = office.entries()[-1]
    assert (last["mechanism"], last["allowed"], last["number"]) == ("bucketize", True, 2)
    assert not office.groups(2)  # nothing follows its records
    # From then on nothing covers what is there, not even a release that nested would cover.
    office.hire(SALARIES[1])
    refused(run(*office.arguments()), 1, "no guarantee covers both")


@pytest.mark.slow
def test_other_mechanisms_keep_a_ledger_if_asked(tmp_path: Path) -> None:
    office = Office(tmp_path, 'kind = "bucketize"\nthreshold = 0.5', ledger='[ledger]\ndatabase = "own.db"')
    office.hire(SALARIES[0])
    office.publish()
    office.publish()
    assert rows(office.made[0], "FROM qit") == rows(office.made[1], "FROM qit")
    assert [entry["composes"] for entry in office.entries()] == [ALONE, "a repeat of an earlier release"]
    refused(run(*office.arguments("--seed", 3)), 1, "no guarantee covers both")
    office.hire(SALARIES[1])
    refused(run(*office.arguments()), 1, "no guarantee covers both")
    assert (tmp_path / "own.db").exists()
    assert not (tmp_path / "office.ledger.duckdb").exists()


@pytest.mark.slow
def test_whatever_is_published_stands_in_the_ledger(tmp_path: Path) -> None:
    office = Office(tmp_path, 'kind = "bucketize"\nthreshold = 0.5')
    office.hire(SALARIES[0])
    refused(run("ledger", office.spec()), 2, "there is no ledger yet")
    office.publish()
    nameless = {"source": 'database = "office.duckdb"\ntable = "people"'}
    assert [
        entry["mechanism"] for entry in succeeded("ledger", office.spec(**nameless), "--json").json["releases"]
    ] == ["bucketize"]
    refused(
        run(*office.arguments(mechanism='kind = "permute"\nk = 3\ne = 2', **nameless)), 1, "release 1 (pay, bucketize)"
    )
    assert not list(tmp_path.glob("*ledger*"))


@pytest.mark.slow
def test_other_subjects_are_another_story(office: Office) -> None:
    office.publish()
    office.sql("CREATE TABLE cars AS SELECT id + 100 AS id, age + 40 AS age, gender, salary * 9 AS salary FROM people")
    cars = {"source": 'database = "office.duckdb"\ntable = "cars"\nid = "id"'}
    assert office.publish(mechanism='kind = "permute"\nk = 2\ne = 1', **cars)["held_back"] == 0
    assert [entry["composes"] for entry in succeeded("ledger", "--json").json["releases"]] == [ALONE] * 2
    assert len(office.entries()) == 1


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE people SET id = 1 WHERE id = 2", ["'id' has 1 values that stand more than once"]),
        ("UPDATE people SET id = NULL WHERE id < 3", ["'id' is NULL in 2 records"]),
        ("ALTER TABLE people RENAME id TO nr", ["column 'id' is not in the source", "nr"]),
    ],
)
def test_records_need_one_name_each(office: Office, statement: str, words: list[str]) -> None:
    office.sql(statement)
    refused(run(*office.arguments()), 2, "source.id", *words)


@pytest.mark.slow
def test_the_ledger_is_private_and_not_in_the_release(office: Office) -> None:
    office.publish()
    ledger = default_path()
    for path in (ledger, key_of(ledger)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = key_of(ledger).read_text().strip()
    shown = str(rows(office.made[0], "FROM privsql_manifest")) + str(office.entries())
    assert secret not in shown
    assert "person" not in shown
    assert office.entries()[0]["key"].startswith("key-file:")
    assert {path.name for path in office.folder.iterdir()} == {"office.duckdb", "spec.toml", "pay0.duckdb"}
    assert "release" in succeeded("ledger", office.spec()).out


@pytest.mark.slow
def test_a_failed_release_leaves_the_ledger_as_it_was(office: Office) -> None:
    office.publish()
    refused(run("publish", office.spec(), "--to", office.made[0]), 2, "option replace")
    office.hire(SALARIES[1])
    folder = office.folder / "missing" / "x.duckdb"
    refused(run("publish", office.spec(), "--to", folder), 4, "missing")
    assert len(office.entries()) == 1


@pytest.mark.soak(part="long")
def test_against_compares_only_what_is_alike(office: Office, tmp_path: Path) -> None:
    office.publish()
    other = {"release": 'name = "x"', "columns": COLUMNS.replace('"age", ', "")}
    office.publish("--allow-composition", **other)
    refused(run("verify", office.made[0], "--against", office.made[1]), 2, "other columns")
    office.publish("--allow-composition", mechanism='kind = "bucketize"\nthreshold = 0.5')
    refused(run("verify", office.made[0], "--against", office.made[2]), 2, "made by bucketize")
    refused(run("verify", office.made[0], "--against", tmp_path / "none.duckdb"), 4, "no such release")
    refused(run("verify", office.made[0], office.made[1]), 2, "verify takes one release")
    office.publish("--allow-composition", "--format", "parquet", "--seed", 5)
    strange = tmp_path / "copy"
    strange.write_bytes(office.made[0].read_bytes())
    succeeded("verify", office.made[0], "--against", strange, "--source", office.spec())
    with duckdb.connect(str(strange)) as db:
        db.execute("CHECKPOINT")
        db.execute("CREATE TABLE x AS SELECT 1")
        db.execute("DROP TABLE x")
    refused(run("verify", office.made[0], "--against", strange, "--source", office.spec()), 2, "is not in the ledger")
