"""An analyst's attached files: they change no answer, read no other file, never run without bound."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from privsql.engine.duck import container
from privsql.releases import opened
from support.commands import refused, run, succeeded, warehouse, write
from support.shelf import release_of
from support.statements import noted

if TYPE_CHECKING:
    from pathlib import Path

COUNT = "SELECT COUNT(*) FROM people WHERE disease = 'flu' AND age < 50"
SEXES = "SELECT * FROM (VALUES ('f', 'woman'), ('m', 'man')) AS v(sex, word)"
JOINED = "SELECT COUNT(*) FROM people JOIN {name} ON people.sex = {alias}.sex WHERE word = 'man' AND disease = 'flu'"
DIRECT = "SELECT COUNT(*) FROM people WHERE sex = 'm' AND disease = 'flu'"
OWN = ["qit", "st", "privsql_values", "privsql_channel", "privsql_manifest", "privsql_found", "privsql_records",
       "perturbed", "privsql_subtables", "privsql_domains", "privsql_sets", "privsql_universe",
       "privsql_tree", "privsql_taxonomy", "people", "l0", "q", "s", "sums", "found", "duckdb_tables"]  # fmt: skip


@pytest.fixture(scope="module")
def release(shelf: Path) -> Path:
    """A bucketized release."""
    return release_of(shelf, "bucketize")


def answer(release: Path, sql: str, *attached: Path) -> list[Any]:
    """The rows of an answer."""
    flags = [part for path in attached for part in ("--attach", path)]
    return list(succeeded("query", release, sql, *flags, "--json").json["rows"])


def joined(name: str) -> str:
    """A query that joins a table by a name."""
    return JOINED.format(name=name, alias=name.rsplit(".", maxsplit=1)[-1])


# Names ---


@pytest.mark.slow
def test_no_name_of_an_attached_table_changes_an_answer(shelf: Path, tmp_path: Path) -> None:
    """As tables, as views, and as macros that stand for functions."""
    columns = "0 AS bid, 'flu' AS disease, 100000 AS count, 0 AS code, 1 AS size, 0 AS first, 0 AS second, 9 AS pairs"
    statements = [f'CREATE {("TABLE", "VIEW")[i % 2]} "{name}" AS SELECT {columns}' for i, name in enumerate(OWN)]
    macros = [f"CREATE MACRO {name}(x) AS 0" for name in ("count", "sum", "min", "max", "greatest", "coalesce")]
    tables = ["CREATE MACRO duckdb_tables() AS TABLE SELECT 1", "CREATE MACRO read_parquet(x) AS TABLE SELECT 1"]
    hostile = warehouse(tmp_path / "mine.duckdb", *statements, *macros, *tables)
    files = [hostile, *(write(tmp_path / f"{name}.parquet", f"SELECT {columns}") for name in OWN[:4])]
    for name in ("bucketize", "fakes", "randomize", "permute", "contingency"):
        path = release_of(shelf, name)
        sql = "SELECT sex, COUNT(*) FROM people WHERE age < 50 GROUP BY sex"
        if name == "contingency":
            sql = "SELECT sex, COUNT(*) FROM people WHERE disease = 'flu' GROUP BY sex"
        if name in ("bucketize", "fakes", "randomize"):
            sql = COUNT
        assert answer(path, sql, *files) == answer(path, sql), name


@pytest.mark.soak(part="long")
def test_a_joined_table_may_be_called_like_one_of_the_release(release: Path, tmp_path: Path) -> None:
    """What is joined is the analyst's, what is counted is the release's; people itself is taken."""
    direct = answer(release, DIRECT)
    for name in OWN:
        path = tmp_path / f"{name}.duckdb"
        warehouse(path, f'CREATE TABLE "{name}" AS {SEXES}')
        if name == "people":
            refused(run("query", release, joined(name), "--attach", path), 2, "people")
        else:
            assert answer(release, joined(name), path) == direct, name
        path.unlink()


@pytest.mark.slow
def test_an_alias_may_be_any(release: Path, tmp_path: Path) -> None:
    path = warehouse(tmp_path / "lookup.duckdb", f"CREATE TABLE words AS {SEXES}")
    direct = answer(release, DIRECT)
    for alias in ("w", "st", "sums", "s", "lookups", "release", "temp", "memory", "privsql_values"):
        sql = JOINED.format(name=f"words AS {alias}", alias=alias)
        assert answer(release, sql, path) == direct, alias


@pytest.mark.soak(part="long")
def test_schemas_and_files_are_addressable(release: Path, tmp_path: Path) -> None:
    other = SEXES.replace("man", "person").replace("woperson", "man")  # words the other way round
    shop = warehouse(
        tmp_path / "shop.duckdb",
        "CREATE SCHEMA sales",
        f"CREATE TABLE sales.words AS {SEXES}",
        f"CREATE TABLE sales.sexes AS {SEXES}",
        f"CREATE TABLE words AS {other}",
        'CREATE TABLE "odd.name" AS SELECT 1 AS a',
    )
    office = warehouse(tmp_path / "office.duckdb", f"CREATE TABLE sexes AS {SEXES}", f"CREATE TABLE words AS {SEXES}")
    direct = answer(release, DIRECT)
    women = answer(release, DIRECT.replace("'m'", "'f'"))
    for name, expected in (
        ("sales.words", direct), ("shop.sales.words", direct), ("words", women), ("main.words", women),
        ("shop.words", women), ("SHOP.Sales.WORDS", direct), ("shop.main.words", women),
    ):  # fmt: skip
        assert answer(release, joined(name), shop) == expected, name
    for name in ("office.words", "office.main.words", "sexes", "sales.words"):
        assert answer(release, joined(name), shop, office) == direct, name
    refused(run("query", release, joined("words"), "--attach", shop, "--attach", office), 2, "shop", "office")
    refused(run("query", release, joined("main.words"), "--attach", shop, "--attach", office), 2, "shop", "office")
    for name in (
        "sexes",
        "nowhere.words",
        "shop.nowhere.words",
        "x.shop.sales.words",
        "release.main.qit",
        "temp.words",
    ):
        done = run("query", release, joined(name), "--attach", shop)
        refused(done, 2, "not supported in FROM" if name.startswith("x.") else "JOIN")


@pytest.mark.soak(part="long")
def test_names_of_the_session_are_no_files(release: Path, tmp_path: Path) -> None:
    """A file called like a database of the session is reached by its tables' names."""
    for stem in ("release", "memory", "temp", "system", "lookups"):
        path = warehouse(tmp_path / f"{stem}.duckdb", f"CREATE TABLE words AS {SEXES}")
        assert answer(release, joined("words"), path) == answer(release, DIRECT)
        refused(run("query", release, joined(f"{stem}.main.words"), "--attach", path), 2, stem)


# Files ---


@pytest.mark.slow
def test_a_view_reads_no_file(release: Path, tmp_path: Path) -> None:
    """Whatever function it calls: it is evaluated after the lock."""
    secret = tmp_path / "secret.csv"
    secret.write_text("sex,word\nm,the secret\n", encoding="utf-8")
    reads = [
        f"SELECT 'm' AS sex, content AS word FROM read_text('{secret}')",
        f"SELECT 'm' AS sex, content::VARCHAR AS word FROM read_blob('{secret}')",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT 'm' AS sex, file AS word FROM glob('{tmp_path}/*')",
    ]
    path = warehouse(tmp_path / "views.duckdb", *(f"CREATE VIEW v{i} AS {sql}" for i, sql in enumerate(reads)))
    for i in range(len(reads)):
        sql = f"SELECT word, COUNT(*) FROM people JOIN v{i} USING (sex) GROUP BY word"
        done = run("query", release, sql, "--attach", path)
        refused(done, 4, "views.duckdb")
        assert "the secret" not in done.out + done.err
        assert "secret.csv" not in done.out
    assert answer(release, COUNT, path) == answer(release, COUNT)


@pytest.mark.slow
def test_a_view_over_tables_is_as_good_as_a_table(release: Path, tmp_path: Path) -> None:
    path = warehouse(tmp_path / "views.duckdb", f"CREATE TABLE t AS {SEXES}", "CREATE VIEW words AS SELECT * FROM t")
    assert answer(release, joined("words"), path) == answer(release, DIRECT)


def test_only_what_a_query_names_is_read(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views that fail, take for ever or read files, and huge tables, cost nothing where nobody asks for them."""
    path = warehouse(
        tmp_path / "more.duckdb",
        f"CREATE TABLE words AS {SEXES}",
        "CREATE VIEW wrong AS SELECT error('evaluated') AS sex",
        "CREATE VIEW endless AS SELECT count(*) AS sex FROM range(10000000000000)",
        "CREATE VIEW wide AS SELECT range AS sex FROM range(1000000000000)",
        "CREATE TYPE mood AS ENUM ('x')",
        "CREATE SCHEMA attic",
        "CREATE TABLE attic.unnamed AS SELECT 1 AS a",
    )
    seen = noted(monkeypatch)
    with privsql.open(release, [path]) as opened:
        opened.sql(COUNT)
        read = [sql for sql in seen if "attached0" in sql]
        assert [sql.split()[0] for sql in read if "duckdb_" not in sql.lower()] == ["ATTACH"]
        opened.sql(joined("words"))
        read = [sql for sql in seen if '"attached0"' in sql and "CREATE TABLE" in sql]
        assert len(read) == 1
        opened.sql(joined("words"))
        assert [sql for sql in seen if '"attached0"' in sql and "CREATE TABLE" in sql] == read


@pytest.mark.slow
def test_what_never_ends_is_ended(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "SECONDS", 0.5)
    doubled = [f"CREATE VIEW v{i} AS SELECT sex FROM v{i - 1}" for i in range(1, 26)]
    doubled += [f"CREATE OR REPLACE VIEW v{i} AS SELECT x.sex FROM v{i - 1} x, v{i - 1} y" for i in range(25, 0, -1)]
    path = warehouse(
        tmp_path / "long.duckdb",
        "CREATE VIEW endless AS SELECT count(*)::VARCHAR AS sex FROM range(10000000000000)",
        "CREATE TABLE t AS SELECT 'm' AS sex",
        "CREATE VIEW v0 AS SELECT sex FROM t",
        *doubled,
    )
    for name in ("endless", "v25"):
        sql = f"SELECT COUNT(*) FROM people JOIN {name} USING (sex)"
        refused(run("query", release, sql, "--attach", path), 4, name, "0.5 s")


@pytest.mark.slow
def test_what_is_too_long_is_refused(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "ROWS", 1000)
    path = warehouse(
        tmp_path / "wide.duckdb",
        "CREATE VIEW endless AS SELECT range::VARCHAR AS sex FROM range(100000000000)",
        "CREATE TABLE most AS SELECT range::VARCHAR AS sex FROM range(1000)",
    )
    csv = write(tmp_path / "many.csv", "SELECT range AS sex FROM range(1001)")
    for name, file in (("endless", path), ("many", csv)):
        sql = f"SELECT COUNT(*) FROM people JOIN {name} USING (sex)"
        refused(run("query", release, sql, "--attach", file), 2, name, "1,000 rows")
    assert answer(release, "SELECT COUNT(*) FROM people JOIN most USING (sex)", path)[0]["estimate"] == 0


@pytest.mark.slow
def test_any_database_can_be_attached(release: Path, tmp_path: Path) -> None:
    """With tables outside main, with nothing at all, with names that need quotes."""
    for name, statements in {
        "outside": ["CREATE SCHEMA sales", f"CREATE TABLE sales.words AS {SEXES}"],
        "empty": [],
        "it's [1]": [f"CREATE TABLE words AS {SEXES}"],
    }.items():
        path = warehouse(tmp_path / f"{name}.duckdb", *statements)
        assert answer(release, COUNT, path) == answer(release, COUNT), name
    assert answer(release, joined("sales.words"), tmp_path / "outside.duckdb") == answer(release, DIRECT)
    quoted = JOINED.format(name='"it\'s [1]".words', alias="words")
    assert answer(release, quoted, tmp_path / "it's [1].duckdb") == answer(release, DIRECT)


@pytest.mark.slow
def test_what_is_no_lookup(release: Path, tmp_path: Path) -> None:
    text, damaged = tmp_path / "text.duckdb", tmp_path / "damaged.parquet"
    text.write_text("not a database", encoding="utf-8")
    damaged.write_bytes(b"PAR1 no")
    refused(run("query", release, COUNT, "--attach", text), 4, "text.duckdb")
    refused(run("query", release, COUNT, "--attach", tmp_path / "nowhere.csv"), 4, "nowhere.csv")
    refused(run("query", release, COUNT, "--attach", tmp_path), 4, str(tmp_path))
    refused(
        run("query", release, "SELECT COUNT(*) FROM people JOIN damaged USING (sex)", "--attach", damaged), 4, "damaged"
    )
    with duckdb.connect(str(tmp_path / "open.duckdb")) as db:
        db.execute(f"CREATE TABLE words AS {SEXES}")
    held = tmp_path / "open.duckdb"
    assert answer(release, joined("words"), held) == answer(release, DIRECT)


def test_a_packed_lookup_is_called_as_its_table_is(release: Path, tmp_path: Path) -> None:
    """``words.csv.gz`` is ``words``, as ``words.csv`` would be."""
    plain = write(tmp_path / "words.csv", SEXES)
    packed = tmp_path / "packed" / "words.csv.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert answer(release, joined("words"), packed) == answer(release, DIRECT)
