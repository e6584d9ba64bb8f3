"""Whose records these are where source.person names persons: what is promised of them must hold for all releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.commands import composed, refused, run, succeeded
from support.loops import rest_slow
from support.office import Office

if TYPE_CHECKING:
    from pathlib import Path

BUCKETIZE = 'kind = "bucketize"\nthreshold = 0.5\nalgorithm = "one-size"'
PERMUTE = 'kind = "permute"\nk = 3\ne = 2'
# The last column is the person.
VISITS = "INSERT INTO people SELECT {0} + i, 20 + i % 3, 'f', 80 + (i * 5 + {0}) % 31, i FROM range({1}, {2}) t(i)"


def hospital(folder: Path, mechanism: str) -> Office:
    """Persons 1 to 6, one visit of each, published once."""
    made = Office(folder, mechanism)
    made.sql("ALTER TABLE people ADD person INTEGER")
    made.sql(VISITS.format(0, 1, 7))
    return made


def source(ids: str = "id", persons: str = 'person = "Person"\npersons = "one"', where: str = "TRUE") -> str:
    """The visits of some, with records named by ``ids``."""
    query = f"SELECT * FROM people WHERE {where}"
    return f'database = "office.duckdb"\nquery = "{query}"\nid = "{ids}"\n{persons}'


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow([PERMUTE, BUCKETIZE]))
@pytest.mark.parametrize("ids", rest_slow([["id", "id"], ["person", "id"], ["id", "person"]]))
def test_other_visits_of_the_same_persons_are_no_others(mechanism: str, ids: list[str], tmp_path: Path) -> None:
    """Else a person is in two releases by two records, and both lists of values together tell more than either."""
    office = hospital(tmp_path, mechanism)
    office.publish(source=source(ids[0], where="id < 100"))
    office.sql(VISITS.format(100, 1, 7))
    refused(run(*office.arguments(source=source(ids[1], where="id > 100"))), 1, "option allow_composition")
    assert not office.made[-1].exists()


@pytest.mark.slow
def test_where_ids_are_those_of_persons_others_are_told_by_them(tmp_path: Path) -> None:
    office = hospital(tmp_path, BUCKETIZE)
    office.publish(source=source("person"))
    office.sql(VISITS.format(100, 7, 13))
    succeeded(*office.arguments(source=source("PERSON", where="id > 100")))
    assert [entry["composes"] for entry in office.entries()] == ["no earlier release of these people"] * 2
    refused(run(*office.arguments(source=source("id", where="id > 107"))), 1, "some of its persons are here")
    refused(run(*office.arguments(source=source("id", "", "id > 107"))), 1, "names records, not persons")


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("ids", ["id", "person"])
def test_a_table_grows_by_new_persons_and_by_new_records_of_old_ones(ids: str, tmp_path: Path) -> None:
    """A further record of a person takes the place of none that was published; whose record has gone is refused."""
    office = hospital(tmp_path, PERMUTE)
    office.publish(source=source(ids))
    office.sql(VISITS.format(0, 7, 13))
    told = office.publish(source=source(ids))
    assert (told["records"], told["published"]) == (12, 12)
    both = ["--against", office.made[0], "--source", office.spec(source=source(ids))]
    assert succeeded("verify", office.made[1], *both, "--json").json["ok"]
    for visit in (100, 200, 300):  # of most of them a hash would take another one
        office.sql(VISITS.format(visit, 1, 13))
    shown = office.groups(2)
    office.publish(source=source(ids))
    assert set(office.groups(3)) == set(shown)
    with_all = ["--against", *office.made[:2], "--source", office.spec(source=source(ids))]
    assert succeeded("verify", office.made[2], *with_all, "--json").json["ok"]
    verified = succeeded("verify", office.made[2], "--source", office.spec(source=source(ids)), "--json").json
    assert not any("not checked" in note for note in verified["notes"])
    office.sql("UPDATE people SET salary = salary + 40 WHERE id < 7")
    refused(run(*office.arguments(source=source(ids))), 1, "may not change", "persons = 'one'")
    office.sql("UPDATE people SET salary = salary - 40 WHERE id < 7")
    first = "QUALIFY row_number() OVER (PARTITION BY person ORDER BY id) = 1"
    succeeded(*office.arguments(source=source(ids, 'person = "person"', where=f"TRUE {first}")))
    assert office.entries()[-1]["composes"].startswith("every Boolean combination")


@pytest.mark.slow
def test_who_was_promised_something_is_not_published_by_records_alone(tmp_path: Path) -> None:
    """A grown table may hold further records of those persons; a chain would say nothing of that."""
    office = hospital(tmp_path, PERMUTE)
    office.publish(source=source())
    office.sql(VISITS.format(100, 1, 7))
    again = office.arguments(source=source(persons=""))
    refused(run(*again), 1, "one record of each person", "source.person")
    succeeded(*again, "--allow-composition")
    assert "one record of each person" in composed(office.made[-1])[0]


@pytest.mark.slow
@pytest.mark.parametrize("persons", rest_slow(['person = "person"\npersons = "one"', 'person = "person"']))
def test_the_same_persons_under_new_ids_and_another_name_are_noticed(persons: str, tmp_path: Path) -> None:
    """Their records have other ids and other values in each of the tables; persons are no mere numbers."""
    office = hospital(tmp_path, BUCKETIZE)
    office.sql("ALTER TABLE people ALTER person TYPE VARCHAR USING md5(person::VARCHAR)")
    office.publish(source=source("id", persons))
    columns = "id + 500 AS id, age + 1 AS age, gender, salary + 50 AS salary, person"
    office.sql(f"CREATE TABLE later AS SELECT {columns} FROM people")
    later = f'database = "office.duckdb"\ntable = "later"\nid = "id"\n{persons}'
    refused(run(*office.arguments(source=later)), 1, "release 1", "another population", "some of its persons are here")
    others = 'database = "office.duckdb"\nquery = "SELECT * REPLACE (reverse(person) AS person) FROM later"'
    succeeded(*office.arguments(source=f'{others}\nid = "id"\n{persons}\npopulation = "others"'))
