"""A person with several records: refused, one record of each, or all of them, and the release says what that means."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import privsql
from support.commands import fetched, manifest, refused, rows, run, specification, succeeded, tables, write
from support.loops import each, rest_slow
from support.tampering import changed, not_verified, parameter, stating

if TYPE_CHECKING:
    from pathlib import Path

VISITS = """
SELECT i % 400 AS patient, CAST(20 + i % 11 AS INTEGER) AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
  'd' || (i * i + i // 7) % 5 AS disease, CAST(i * 37 % 90 AS INTEGER) AS pay, i AS visit FROM range(900) t(i)
"""
MECHANISMS = {
    "bucketize": ("disease", 'threshold = "0.6"'),
    "randomize": ("disease", 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/2"\nrho2 = "3/4"'),
    "permute": ("pay", 'kind = "permute"\nk = 3\ne = "5"'),
    "marginals": ("", 'kind = "contingency"\nepsilon = "20"\ndomains = { age = "data", disease = "data" }'),
}
CATEGORIES = 'categories = ["age", "disease"]'
OFF = "\n[ledger]\noff = true"


def asked(folder: Path, kind: str, persons: str = "", file: str = "visits.parquet", to: str = "ill") -> Path:
    """A specification of a mechanism."""
    sensitive, mechanism = MECHANISMS[kind]
    columns = f'quasi_identifiers = ["age", "sex"]\nsensitive = "{sensitive}"'
    return specification(
        folder, source=f'file = "{file}"\n{persons}', columns=columns if sensitive else CATEGORIES,
        mechanism=mechanism + OFF, release=f'name = "ill"\nto = "{to}.duckdb"', name=f"{to}.toml",
    )  # fmt: skip


@pytest.mark.slow
@each("kind", [kind for kind in MECHANISMS if kind != "marginals"], few=1)
def test_they_are_refused_unless_something_is_said_of_them(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "visits.parquet", VISITS)
    for persons in ('person = "patient"', 'person = "Patient"\npersons = "refuse"'):
        spec = asked(tmp_path, kind, persons)
        for command in ("plan", "publish"):
            done = run(command, spec)
            refused(done, 2, "400 of 400 persons have several records, up to 3", "'one'", "'count'")
            assert "patient" not in done.err.lower()
    write(tmp_path / "visits.parquet", f"SELECT * FROM ({VISITS}) WHERE visit < 400")
    succeeded("publish", spec)
    assert manifest(tmp_path / "ill.duckdb")["persons"] == {"rule": "refuse", "several": None, "most": None}
    succeeded("verify", tmp_path / "ill.duckdb", "--source", spec)


@pytest.mark.slow
@each("kind", list(MECHANISMS), few=1)
def test_one_record_of_each_whatever_the_order_of_the_rows(tmp_path: Path, kind: str) -> None:
    found = []
    for to, order in (("up", "visit"), ("down", "hash(visit)")):
        write(tmp_path / f"{to}.parquet", f"SELECT * FROM ({VISITS}) ORDER BY {order}")
        spec = asked(tmp_path, kind, 'person = "patient"\npersons = "one"', f"{to}.parquet", to)
        succeeded("publish", spec, "--seed", 3)
        succeeded("verify", tmp_path / f"{to}.duckdb", "--source", spec)
        found.append(tables(tmp_path / f"{to}.duckdb"))
    assert found[0] == found[1]
    told = manifest(tmp_path / "up.duckdb")
    assert told["persons"]["rule"] == "one"
    assert told["published"] == (None if kind == "marginals" else 400)
    assert "patient" not in str(rows(tmp_path / "up.duckdb", "FROM privsql_manifest"))
    other = asked(tmp_path, kind, 'person = "visit"\npersons = "one"', "up.parquet", "other")
    assert run("verify", tmp_path / "up.duckdb", "--source", other).code == (
        0 if kind == "marginals" else 1
    )  # tells nothing


@pytest.fixture(scope="module")
def two_of_each(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Marginals of at most two of the two or three records of each person."""
    folder = tmp_path_factory.mktemp("two")
    write(folder / "visits.parquet", VISITS)
    spec = asked(folder, "marginals", 'person = "patient"\npersons = "some"')
    text = (
        spec.read_text("utf-8").replace("epsilon", "max_records = 2\nepsilon").replace(OFF, "\n[ledger]\nepsilon = 30")
    )
    spec.write_text(text, "utf-8")
    succeeded("publish", spec)
    return folder


@pytest.mark.slow
def test_two_records_of_each_share_the_budget_of_a_person(two_of_each: Path) -> None:
    release, spec = two_of_each / "ill.duckdb", two_of_each / "ill.toml"
    stated = manifest(release)
    assert (stated["persons"]["rule"], stated["persons"]["most"]) == ("some", 2)
    assert stated["parameters"]["max_records"] == 2
    assert abs(stated["facts"]["estimated_records"] - 800) < 8  # of 900
    spent = [Fraction(one) for (one,) in rows(release, "SELECT budget FROM privsql_cliques")]
    assert sum(spent) == 10  # epsilon is 20
    bounds = succeeded("verify", release, "--source", spec, "--json").json["bounds"]
    assert [(one["value"], one["bound"]) for one in bounds] == [
        ("one person, of at most 2 records, added or removed: epsilon", "20")
    ]
    for verb in (["plan"], ["verify", "--verbose"]):
        assert "2 records" in " ".join(succeeded(*verb, spec if verb == ["plan"] else release).out.split())
    (finding,) = succeeded("attack", release, "--json").json["adversaries"]
    assert (finding["unit"], finding["above"]) == ("persons", 0.0)
    succeeded("publish", spec, "--to", two_of_each / "once.duckdb")  # with a ledger of this test's own
    refused(run("publish", spec, "--to", two_of_each / "again.duckdb"), 3, "epsilon 20", "10 is left")


@pytest.mark.slow
@each("algorithm", ["views", "basic", "diffpart"], few=1)
def test_item_sets_of_two_records_of_each(tmp_path: Path, algorithm: str) -> None:
    lists = "SELECT i % 300 AS patient, ['a', CASE WHEN i % 2 = 0 THEN 'b' END] AS goods FROM range(900) t(i)"
    write(tmp_path / "visits.parquet", lists)
    mechanism = f'kind = "setvalued"\nalgorithm = "{algorithm}"\nmax_records = 2\nepsilon = 20\nuniverse = ["a", "b"]'
    spec = specification(
        tmp_path, source='file = "visits.parquet"\nperson = "patient"\npersons = "some"', columns='items = "goods"',
        mechanism=mechanism + OFF, release='name = "shop"\nto = "shop.duckdb"', name="shop.toml",
    )  # fmt: skip
    succeeded("publish", spec)
    release = tmp_path / "shop.duckdb"
    succeeded("verify", release, "--source", spec)
    assert abs(manifest(release)["facts"]["estimated_records"] - 600) < 8  # of 900
    (finding,) = succeeded("attack", release, "--json").json["adversaries"]
    assert finding["above"] == 0.0
    (tmp_path / "other").mkdir()
    not_verified(changed(release, tmp_path / "other", parameter("max_records", 1)))


@pytest.mark.slow
@each(
    ("words", "change"),
    [
        ("spend epsilon", parameter("max_records", 3)),
        ("facts are those", stating("persons", lambda one: one | {"most": 3})),
        ("facts are those", stating("persons", lambda one: one | {"rule": "one", "most": None})),
    ],
)
def test_another_number_of_records_is_found(two_of_each: Path, tmp_path: Path, words: str, change: Any) -> None:
    done = not_verified(changed(two_of_each / "ill.duckdb", tmp_path, change))
    assert words in done.out + done.err


@each(
    ("persons", "more", "words"),
    [
        ('person = "patient"\npersons = "one"', "max_records = 2", "persons = 'some'"),
        ("", "max_records = 2", "source.person"),
        ('person = "patient"\npersons = "some"', "", "mechanism.max_records"),
        ('person = "patient"\npersons = "some"', "max_records = 0", "max_records"),
    ],
)
def test_persons_and_the_number_of_records_have_to_fit(tmp_path: Path, persons: str, more: str, words: str) -> None:
    spec = asked(tmp_path, "marginals", persons)
    spec.write_text(spec.read_text("utf-8").replace("epsilon", f"{more}\nepsilon"), "utf-8")
    refused(run("plan", spec), 2, words)


@pytest.mark.slow
def test_no_value_is_preferred_and_each_person_keeps_a_record_of_their_own(tmp_path: Path) -> None:
    """Persons with two records, one of each disease: half of them keep either (6 standard deviations)."""
    people = (
        "SELECT i % 4000 AS patient, 20 + i % 4000 % 7 AS age, 'F' AS sex, 'd' || i // 4000 AS disease "
        "FROM range(8000) t(i)"
    )
    write(tmp_path / "visits.parquet", people)
    spec = asked(tmp_path, "bucketize", 'person = "patient"\npersons = "one"')
    spec.write_text(spec.read_text("utf-8").replace('"0.6"', '"1"'), "utf-8")
    succeeded("publish", spec, "--set", "mechanism.allow_certain=true")
    counted = dict(rows(tmp_path / "ill.duckdb", "SELECT disease, sum(count) FROM st GROUP BY 1"))
    assert abs(int(counted["d0"]) - 2000) < 6 * 1000**0.5
    ages = "SELECT age, count(*) FROM {} GROUP BY 1 ORDER BY 1"
    assert rows(tmp_path / "ill.duckdb", ages.format("qit")) == fetched(ages.format(f"({people}) WHERE disease = 'd0'"))


@pytest.mark.slow
def test_a_record_that_is_published_is_taken_where_there_is_one(tmp_path: Path) -> None:
    write(
        tmp_path / "visits.parquet",
        VISITS.replace("'d' || ", "CASE WHEN i >= 400 THEN 'd' || ").replace("% 5 AS", "% 5 END AS"),
    )
    spec = asked(tmp_path, "bucketize", 'person = "patient"\npersons = "one"')
    spec.write_text(
        spec.read_text("utf-8").replace('"disease"', '"disease"\nnulls = { disease = "suppress" }'), "utf-8"
    )
    told = succeeded("publish", spec, "--json").json
    assert (told["records"], told["published"], told["suppressed"]) == (400, 400, 0)


@pytest.mark.slow
@each("kind", ["bucketize", "randomize", "permute"], few=1)
def test_all_records_are_published_and_the_release_says_what_that_means(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "visits.parquet", VISITS)
    spec = asked(tmp_path, kind, 'person = "patient"\npersons = "count"')
    told = succeeded("publish", spec, "--json").json
    said = "several records may belong to one person: 400 persons have several records, up to 3. Every bound is that of"
    assert any(said in one for one in told["warnings"])
    assert manifest(tmp_path / "ill.duckdb")["persons"] == {"rule": "count", "several": 400, "most": 3}
    assert "up to 3" in succeeded("verify", tmp_path / "ill.duckdb", "--verbose").out
    succeeded("verify", tmp_path / "ill.duckdb", "--source", spec)
    for other in ("", 'person = "visit"\npersons = "count"'):
        assert run("verify", tmp_path / "ill.duckdb", "--source", asked(tmp_path, kind, other, to="other")).code == 1


@each(
    ("persons", "words"),
    [
        ('persons = "one"', ("persons needs person",)),
        ('person = "nobody"', ("source.person", "not in the source")),
        ('person = "age"', ("never published",)),
        ('person = "odd"', ("source.person is NULL in 90 records",)),
        ('person = "odd"\npersons = "one"', ("source.person is NULL in 90 records",)),
        ('person = "patient"\npersons = "first"', ("'first'",)),
    ],
)
def test_what_is_refused(tmp_path: Path, persons: str, words: tuple[str, ...]) -> None:
    write(tmp_path / "visits.parquet", f"SELECT *, CASE WHEN visit % 10 > 0 THEN visit END AS odd FROM ({VISITS})")
    refused(run("publish", asked(tmp_path, "bucketize", persons)), 2, *words)


@pytest.mark.slow
@pytest.mark.parametrize("kind", rest_slow(["permute", "bucketize", "marginals"]))
def test_a_release_of_one_record_each_is_compared_with_no_table_of_all_of_them(tmp_path: Path, kind: str) -> None:
    """Else true answers, and what is believed, would be compared with those of another table."""
    table = pq.read_table(write(tmp_path / "visits.parquet", VISITS))
    succeeded("publish", asked(tmp_path, kind, 'person = "patient"\npersons = "one"'))
    release, all_of_them = tmp_path / "ill.duckdb", privsql.load(asked(tmp_path, kind, to="all"))
    for verb in (privsql.verify, privsql.evaluate, privsql.attack):
        with pytest.raises(
            privsql.UsageError, match=r"one record of each person and does not name the column .* source\.person"
        ):
            verb(release, table)
    for verb in (privsql.evaluate, privsql.attack):
        with pytest.raises(privsql.UsageError, match="the release holds one record of each person, and the source"):
            verb(release, all_of_them)
    assert not privsql.verify(release, all_of_them) or kind == "marginals"


def test_a_private_release_covers_one_record_of_each(tmp_path: Path) -> None:
    write(tmp_path / "visits.parquet", VISITS)
    refused(run("publish", asked(tmp_path, "marginals", 'person = "patient"\npersons = "count"')), 2, "'one'")


@pytest.mark.slow
@each("algorithm", ["views", "diffpart"], few=1)
def test_item_sets(tmp_path: Path, algorithm: str) -> None:
    write(
        tmp_path / "b.parquet",
        "SELECT i % 300 AS who, ['a', chr(98 + CAST(i % 5 AS INTEGER))] AS goods FROM range(600) t(i)",
    )

    def spec(persons: str) -> Path:
        return specification(
            tmp_path, source=f'file = "b.parquet"\nperson = "who"\n{persons}', columns='items = "goods"',
            mechanism=f'kind = "setvalued"\nalgorithm = "{algorithm}"\nepsilon = "9"\nuniverse = "data"{OFF}',
        )  # fmt: skip

    refused(run("publish", spec("")), 2, "persons = 'one'")
    succeeded("publish", spec('persons = "one"'), "--seed", 1)
    release = tmp_path / "ill.duckdb"
    succeeded("verify", release, "--source", spec('persons = "one"'))
    found = succeeded("query", release, "SELECT COUNT(*) FROM ill WHERE list_contains(goods, 'a')", "--json").json
    assert abs(found["rows"][0]["estimate"] - 300) < 20


def test_a_table_in_place_of_the_file_is_of_the_same_persons(tmp_path: Path) -> None:
    """What the specification says of persons holds for whatever it is read from."""
    table = pq.read_table(write(tmp_path / "visits.parquet", VISITS))
    spec = privsql.load(asked(tmp_path, "bucketize", 'person = "patient"'), source=table)
    with pytest.raises(privsql.UsageError, match="400 persons have several records"):
        privsql.plan(spec)
    spec = privsql.load(asked(tmp_path, "bucketize", 'person = "patient"\npersons = "one"'), source=table)
    assert privsql.plan(spec).facts["records"] == 400


FIRST = 'person = "patient"\npersons = "first"\norder = "visit"'


@pytest.mark.slow
@each("kind", ["bucketize", "marginals"], few=1)
def test_the_first_record_of_each_is_published(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "visits.parquet", VISITS)
    spec, release = asked(tmp_path, kind, FIRST), tmp_path / "ill.duckdb"
    succeeded("publish", spec)
    stated = manifest(release)["persons"]
    assert (stated["rule"], stated["order"]) == ("first", "visit")
    done = succeeded("verify", release, "--source", spec)
    assert "the first of each by visit was taken" in " ".join(done.out.split())
    if kind == "bucketize":
        first = f"SELECT age, sex, count(*) FROM ({VISITS}) WHERE visit < 400 GROUP BY ALL ORDER BY ALL"
        assert rows(release, "SELECT age, sex, count(*) FROM qit GROUP BY ALL ORDER BY ALL") == fetched(first)


@pytest.mark.slow
def test_no_sensitive_value_decides_which_record_is_the_first(tmp_path: Path) -> None:
    """The quasi-identifiers of noisy tables stay the same whatever values the records have, with ties in the order."""
    seen = []
    for disease in ("disease", "'d' || (4 - CAST(substr(disease, 2) AS INTEGER))", "'d1'", "CAST(NULL AS VARCHAR)"):
        values = f"SELECT * REPLACE ({disease} AS disease, visit // 450 AS visit) FROM ({VISITS}) ORDER BY visit"
        write(tmp_path / "visits.parquet", values)
        mechanism = 'kind = "randomize"\nalgorithm = "tables"\nepsilon = 3\nvalues = ["d0", "d1", "d2", "d3", "d4"]'
        columns = 'quasi_identifiers = ["age", "sex"]\nsensitive = "disease"'
        spec = specification(
            tmp_path, source=f'file = "visits.parquet"\n{FIRST}', columns=columns, mechanism=mechanism + OFF,
            release='name = "ill"\nto = "ill.duckdb"', name="ill.toml",
        )  # fmt: skip
        succeeded("publish", spec, "--seed", 4, "--replace")
        succeeded("verify", tmp_path / "ill.duckdb", "--source", spec)
        seen.append(rows(tmp_path / "ill.duckdb", "SELECT age, sex FROM qit ORDER BY ALL"))
    assert all(one == seen[0] for one in seen)
    assert len(seen[0]) == 400


def test_an_order_that_tells_of_a_value_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "visits.parquet", VISITS)
    first = FIRST.replace('"visit"', '"Disease"')
    refused(run("plan", asked(tmp_path, "bucketize", first)), 2, "source.order", "'Disease' is sensitive")
    refused(run("plan", asked(tmp_path, "bucketize", FIRST.replace('"visit"', '"vist"'))), 2, "source.order", "visit")
    refused(run("plan", asked(tmp_path, "bucketize", 'person = "patient"\npersons = "first"')), 2, "needs order")
    refused(run("plan", asked(tmp_path, "bucketize", 'person = "patient"\norder = "visit"')), 2, "persons = 'first'")
