"""A publisher's table in a Postgres server: counted and read there, the same release as of the same table in DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support import postgres
from support.commands import refused, rows, run, specification, succeeded, tables, write
from support.mixed import COARSER, DIGESTS, MECHANISMS, PEOPLE, QI, digest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # a server starts
SECRET = "sesame"  # noqa: S105


@pytest.fixture(autouse=True)
def _people(tmp_path: Path) -> None:
    """The same table in the server, whose rows lie in another order, and in a file."""
    postgres.stored("people", f"SELECT * FROM ({PEOPLE}) ORDER BY hash(salary, age), seen")
    write(tmp_path / "people.parquet", PEOPLE)


def there(relation: str = 'table = "public.people"') -> str:
    """``[source]`` for the server; the password is not asked for."""
    uri = postgres.address().replace("privsql@", f"privsql:{SECRET}@")
    return f"postgres = {{ uri = '{uri}', {relation} }}"


def asked(
    folder: Path, kind: str, to: str, source: str = "", order: str = "stream", ledger: str = "off = true"
) -> Path:
    """A specification of one mechanism, for the server or the file."""
    sensitive, mechanism = MECHANISMS[kind]
    return specification(
        folder,
        source=source or 'file = "people.parquet"',
        columns=f'{QI}\nsensitive = "{sensitive}"',
        release=f'name = "r"\nto = "{to}.duckdb"\norder = "{order}"',
        mechanism=f"{mechanism}\n[ledger]\n{ledger}",
        name=f"{to}.toml",
    )


@pytest.mark.parametrize("order", ["stream", "portable"])
@pytest.mark.parametrize("kind", MECHANISMS)
def test_the_same_release_as_of_a_file(tmp_path: Path, kind: str, order: str) -> None:
    """NULLs, duplicates, text beyond ASCII, dates, decimals, timestamps, by a key that is kept."""
    found = []
    for to, source in (("here", ""), ("there", there())):
        spec = asked(tmp_path, kind, to, source, order)
        planned = succeeded("plan", spec, "--json").json
        assert succeeded("publish", spec, "--seed", 7, "--json").json["records"] == planned["records"]
        succeeded("verify", tmp_path / f"{to}.duckdb", "--source", spec)
        found.append(tables(tmp_path / f"{to}.duckdb"))
    assert found[0] == found[1]
    assert order == "stream" or kind not in DIGESTS or digest(found[1]) == DIGESTS[kind]


@pytest.mark.parametrize("order", ["stream", "portable"])
def test_bins_and_groups_are_those_of_a_file(tmp_path: Path, order: str) -> None:
    found = []
    for to, source in (("here", ""), ("there", there())):
        spec = asked(tmp_path, "multi-size", to, source, order)
        spec.write_text(spec.read_text("utf-8").replace("[release]", f"{COARSER}\n[release]"), "utf-8")
        succeeded("publish", spec, "--seed", 7)
        succeeded("verify", tmp_path / f"{to}.duckdb", "--source", spec)
        found.append(tables(tmp_path / f"{to}.duckdb"))
    assert found[0] == found[1]
    assert {row[0] for row in rows(tmp_path / "there.duckdb", "SELECT age FROM qit")} == set(range(10, 80, 10))


def test_a_query_of_the_publishers_and_a_ledger(tmp_path: Path) -> None:
    """In the server's SQL; the second release of these people is refused, wherever the first one's were."""
    query = there(
        "query = 'SELECT *, salary::numeric(9, 2) AS pay, md5(disease)::uuid AS mark FROM people WHERE age > 20'"
    )
    spec = asked(tmp_path, "multi-size", "first", query, ledger='database = "l.duckdb"')
    spec.write_text(spec.read_text("utf-8").replace('"odd"]', '"odd", "pay", "mark"]'), "utf-8")
    succeeded("publish", spec)
    assert [row[1] for row in rows(tmp_path / "first.duckdb", "DESCRIBE qit")][-3:-1] == ["DECIMAL(9,2)", "UUID"]
    again = asked(tmp_path, "multi-size", "second", there(), ledger='database = "l.duckdb"')
    refused(run("publish", again), 1, "release 1")


def test_what_is_secret_stays_so(tmp_path: Path) -> None:
    """Neither a release, nor a ledger, nor what a command says holds the password."""
    spec = asked(tmp_path, "multi-size", "r", there(), ledger='database = "l.duckdb"')
    done = [succeeded("publish", spec, "--json"), run("verify", tmp_path / "r.duckdb", "--json")]
    assert all(SECRET not in one.out + one.err for one in done)
    for file in ("r.duckdb", "l.duckdb"):
        assert SECRET.encode() not in (tmp_path / file).read_bytes()
    for uri in (
        f"postgresql://x:{SECRET}@localhost:1/db",
        f"host=localhost password={SECRET} bogus=1",
        f"{SECRET} {SECRET}",
        f"postgresql://x:{SECRET}%zz@/db",
        postgres.address().replace("privsql@", f"nobody:{SECRET}@"),
    ):
        wrong = asked(tmp_path, "multi-size", "w", f"postgres = {{ uri = '{uri}', table = 'people' }}")
        done = run("publish", wrong)
        refused(done, 4, "privsql: Postgres: ")
        assert SECRET not in done.err
    for text in (
        f"postgres = '{SECRET}'",
        f"postgres = {{ uri = '{SECRET}' }}",
        f"postgres = {{ uri = ['{SECRET}'] }}",
    ):
        done = run("publish", asked(tmp_path, "multi-size", "w", text))
        refused(done, 2, "source.postgres")
        assert SECRET not in done.err


def test_nothing_is_written_there_and_what_is_wrong_is_said(tmp_path: Path) -> None:
    for relation, said in (
        ("table = 'nowhere'", "nowhere"),
        ("query = 'SELECT 1; SELECT 2'", "one SELECT"),
        ("query = 'WITH x AS (DELETE FROM people RETURNING *) SELECT * FROM x'", ""),
        ("query = 'SELECT *, 1::numeric AS part2 FROM people'", "numeric, which can't be published; cast it"),
        ("query = 'SELECT *, 1 / (salary - salary) AS broken FROM people'", "division by zero"),
        ("table = 'people', query = 'SELECT 1'", "either table or query"),
    ):
        spec = asked(tmp_path, "multi-size", "r", there(relation))
        if "part2" in relation:
            spec.write_text(spec.read_text("utf-8").replace('"odd"]', '"odd", "part2"]'), "utf-8")
        elif "broken" in relation:  # while records come over
            spec.write_text(spec.read_text("utf-8").replace('"odd"]', '"odd", "broken"]'), "utf-8")
        done = run("publish", spec)
        assert (done.crash, done.code in (2, 4)) == (None, True), done
        assert said in done.err
        assert len(done.err.strip().splitlines()) == 1
    kept = succeeded("plan", asked(tmp_path, "multi-size", "r", there()), "--json").json
    assert kept["records"] == 1200


def test_init_proposes_for_a_table_of_the_server(tmp_path: Path) -> None:
    """What it writes can be planned; a password is never written."""
    spec = tmp_path / "spec.toml"
    asked = ["--set", "source.table=people", "--sensitive", "disease", "--accept"]
    succeeded("init", postgres.address(), *asked, "--output", spec)
    assert succeeded("plan", spec, "--json").json["records"] == 1200
    assert 'table = "people"' in spec.read_text("utf-8")
    queried = succeeded(
        "init", postgres.address(), "--set", "source.query=SELECT * FROM people WHERE age > 20", *asked[2:]
    )
    assert "WHERE age > 20" in queried.out
    refused(run("init", postgres.address(), "--sensitive", "disease"), 2, "needs one source.table, or a source.query")
    secret = postgres.address().replace("privsql@", f"privsql:{SECRET}@")
    done = run("init", secret, *asked)
    refused(done, 2, "the address holds a password", "PGPASSWORD")
    assert SECRET not in done.err


def test_a_stream_of_adbc_has_the_digits_of_numeric() -> None:
    from adbc_driver_postgresql import dbapi

    from privsql.source.places import as_frame

    with dbapi.connect(postgres.address()) as there, there.cursor() as cursor:
        cursor.execute("SELECT part, salary / 7.0 AS open FROM people")
        frame = as_frame(cursor.fetch_record_batch())
    assert str(frame.table.schema.field("part").type) == "decimal128(9, 2)"
    assert "numeric without digits" in frame.left_out["open"]


def test_a_job_that_publishes_into_the_server_may_run_twice(tmp_path: Path) -> None:
    """The same release again while a table reads it; another one, or a view that depends on it, stops the job."""
    from adbc_driver_postgresql import dbapi

    def rows_of(statement: str) -> list[Any]:
        with dbapi.connect(postgres.address(), autocommit=True) as there, there.cursor() as cursor:
            cursor.execute(statement)
            return [repr(row) for row in cursor.fetchall()] if statement.startswith("SELECT") else []

    place = ["--to", postgres.address(), "--set", "release.schema=twice", "--repeat"]
    spec = asked(tmp_path, "optimal", "r", there(), ledger='database = "l.duckdb"')
    made = []
    for _ in range(2):
        succeeded("publish", spec, *place)
        rows_of("DROP TABLE IF EXISTS readers")
        rows_of("CREATE TABLE readers AS SELECT disease, count(*) FROM twice.st GROUP BY disease")
        made.append(sorted(rows_of("SELECT * FROM twice.qit")))
    assert made[0] == made[1] != []
    spec.write_text(spec.read_text("utf-8").replace('"1/6"', '"1/5"'), "utf-8")
    refused(run("publish", spec, *place), 1, "no guarantee covers both")
    spec.write_text(spec.read_text("utf-8").replace('"1/5"', '"1/6"'), "utf-8")
    rows_of("CREATE VIEW reader AS SELECT disease FROM twice.st")
    refused(run("publish", spec, *place), 4, "depend")
    assert sorted(rows_of("SELECT * FROM twice.qit")) == made[0]


@pytest.mark.parametrize("odd", ["NULL", "'2020-01-01'", "'infinity'", "'-infinity'", "'294276-12-31'"])
def test_no_moment_decides_anything_of_a_private_release(tmp_path: Path, odd: str) -> None:
    """Those that are refused elsewhere are NULL, and no message shows one."""
    postgres.stored("days", "SELECT TIMESTAMP '2020-01-01' AS day, unnest(['HIV+', '1']) AS code")
    made = postgres.ServerTables()
    made.server.run_statement(f"UPDATE days SET day = {odd}::timestamp WHERE code = '1'")
    made.close()
    domains = 'domains = { day = ["2020-01-01 00:00:00"] }\nallow_empty = true'
    mechanism = f'kind = "contingency"\nepsilon = 1\n{domains}\n[ledger]\noff = true'
    columns, release = 'categories = ["day"]', 'name = "r"\nto = "days.duckdb"'
    source = there('table = "public.days"')
    spec = specification(tmp_path, source=source, columns=columns, release=release, mechanism=mechanism)
    done = succeeded("publish", spec, "--seed", 1)
    assert not done.err
    fails = there('query = "SELECT day FROM days WHERE code::int > 0"')
    done = run("publish", specification(tmp_path, source=fails, columns=columns, release=release, mechanism=mechanism))
    assert done.code == 2
    assert "HIV" not in done.out + done.err
