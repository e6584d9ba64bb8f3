"""A release that Spark makes: the same as DuckDB's by the same key, verified where it lies, or not there at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import privsql
from privsql.engine.database import Options
from privsql.engine.files import ROOM
from privsql.errors import PrivsqlError, UsageError
from privsql.keyed_random import seed_key
from support import engines
from support.commands import refused, run, specification, succeeded, write
from support.mixed import COARSER, DIGESTS, MECHANISMS, PEOPLE, QI, digest
from support.parts import tables

pytestmark = [
    pytest.mark.slow,  # Java takes seconds to start
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that pyspark leaves open
]
REPEATED = pytest.mark.soak(part="spark")
SEARCHED = {"anatomy", "informative", "left out"}  # buckets of another search, dealt by the same relations
OFF = "[ledger]\noff = true"


@pytest.fixture(autouse=True)
def _java() -> None:
    if reason := engines.without_spark():
        pytest.skip(reason)
    engines.java()


def asked(folder: Path, engine: str, kind: str, to: str, source: str = "") -> Path:
    """A specification of one mechanism, for one engine."""
    sensitive, mechanism = MECHANISMS[kind]
    return specification(
        folder,
        source=source or f'file = "people.parquet"\nengine = "{engine}"',
        columns=f'{QI}\nsensitive = "{sensitive}"',
        release=f'name = "r"\nto = "{to}"\nformat = "parquet"\norder = "portable"',
        mechanism=f"{mechanism}\n{OFF}",
        name=f"{to}.toml",
    )


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[REPEATED] if kind in SEARCHED else []) for kind in MECHANISMS]
)
def test_the_same_release_on_both_engines(tmp_path: Path, kind: str) -> None:
    """NULLs, duplicates, text beyond ASCII, dates, decimals, timestamps; rows in the same order."""
    write(tmp_path / "people.parquet", PEOPLE)
    made = {}
    for engine in ("duckdb", "spark"):
        succeeded("publish", asked(tmp_path, engine, kind, engine), "--seed", 7)
        made[engine] = tables(tmp_path / engine)
    assert made["spark"] == made["duckdb"]
    shown = {name: [tuple(map(repr, row)) for row in rows] for name, rows in made["spark"].items()}
    assert kind not in DIGESTS or digest(shown) == DIGESTS[kind]
    succeeded("verify", tmp_path / "spark")


def test_bins_and_groups_on_both_engines(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE)
    made = {}
    for engine in ("duckdb", "spark"):
        spec = asked(tmp_path, engine, "multi-size", engine)
        spec.write_text(spec.read_text("utf-8").replace("[release]", f"{COARSER}\n[release]"), "utf-8")
        succeeded("publish", spec, "--seed", 7)
        made[engine] = tables(tmp_path / engine)
    assert made["spark"] == made["duckdb"]
    succeeded("verify", tmp_path / "spark", "--source", spec)
    assert {row[0] for row in made["spark"]["qit"]} == set(range(10, 80, 10))


def test_every_verb_works_on_what_lies_in_spark(tmp_path: Path) -> None:
    """A folder of Parquet files, a table of the session's, a query: counted, published, verified, asked, attacked."""
    (tmp_path / "people").mkdir()
    for part in range(3):
        write(tmp_path / "people" / f"part-{part}.parquet", f"SELECT * FROM ({PEOPLE}) WHERE salary % 3 = {part}")
    spec = asked(tmp_path, "spark", "multi-size", "r", 'file = "people"\nengine = "spark"')
    planned = succeeded("plan", spec, "--json").json
    published = succeeded("publish", spec, "--json").json
    assert planned["setting"] == published["setting"]
    assert published["records"] == 1200
    release = tmp_path / "r"
    assert succeeded("verify", release, "--source", spec, "--json").json["ok"]
    found = succeeded("query", release, "SELECT COUNT(*) AS n FROM r WHERE disease = 'v1'", "--json").json
    assert found["rows"][0]["n"] == pytest.approx(100, abs=20)
    succeeded("evaluate", release, "--source", spec, "--json")
    succeeded("attack", release, "--source", spec, "--json")
    db = engines.session()
    db.read.parquet(str(tmp_path / "people")).createOrReplaceTempView("people")
    for number, there in enumerate(("table = 'people'", "query = 'SELECT * FROM people WHERE salary % 2 = 0'")):
        spec = asked(tmp_path, "spark", "multi-size", f"t{number}", f"spark = {{ {there} }}")
        options = Options(session=db)
        privsql.publish(privsql.load(spec), options=options)
        assert privsql.verify(tmp_path / f"t{number}", privsql.load(spec), options=options).ok
    spec = asked(
        tmp_path, "spark", "multi-size", "q", 'file = "people"\nengine = "spark"\nquery = "SELECT * FROM source"'
    )
    assert privsql.plan(privsql.load(spec), options=options).facts["records"] == 1200
    db.range(1).createTempView("source")
    with pytest.raises(UsageError, match="has a table 'source'"):
        privsql.plan(privsql.load(spec), options=options)
    assert {view.name for view in db.catalog.listTables() if view.isTemporary} == {"people", "source"}


def test_private_releases_of_what_lies_in_spark(tmp_path: Path) -> None:
    """Counts are made here, from what is brought: the same checks, and the same noise by a seed."""
    write(tmp_path / "people.parquet", PEOPLE)
    found = []
    for engine in ("duckdb", "spark"):
        spec = specification(
            tmp_path,
            source=f'file = "people.parquet"\nengine = "{engine}"',
            columns='categories = ["disease", "odd"]',
            release=f'name = "r"\nto = "{engine}.duckdb"\nformat = "duckdb"',
            mechanism=f'kind = "contingency"\nepsilon = 1\ndomains = {{ disease = "data", odd = "data" }}\n{OFF}',
        )
        succeeded("publish", spec, "--seed", 3)
        succeeded("verify", tmp_path / f"{engine}.duckdb", "--source", spec)
        found.append(succeeded("query", tmp_path / f"{engine}.duckdb", "SELECT COUNT(*) FROM r WHERE odd").out)
    assert found[0] == found[1]


def test_a_release_of_spark_as_one_file(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE)
    spec = asked(tmp_path, "spark", "permute", "r")
    succeeded("publish", spec, "--seed", 7, "--format", "duckdb", "--to", tmp_path / "r.duckdb")
    succeeded("verify", tmp_path / "r.duckdb", "--source", spec)


def test_the_ledger_knows_what_spark_has_published(tmp_path: Path) -> None:
    """The same people again, from Spark and from the file by DuckDB: one source, and no guarantee for both."""
    write(tmp_path / "people.parquet", PEOPLE)
    for engine, code in (("spark", 0), ("duckdb", 1)):
        spec = asked(tmp_path, engine, "multi-size", engine)
        spec.write_text(spec.read_text().replace(OFF, '[ledger]\ndatabase = "ledger.duckdb"'))
        done = run("publish", spec, "--key-file", tmp_path / f"key{engine}")
        assert done.code == code, done.err
    assert "no guarantee covers both" in done.err


def contents(folder: Path) -> list[bytes]:
    """What the files in a folder hold, however deep."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def test_what_java_shuffles_is_private() -> None:
    """Blocks of the records lie in a folder that nobody else can enter, and that is swept after a kill."""
    place = engines.session().sparkContext.getConf().get("spark.local.dir")
    assert place is not None
    assert Path(place).stat().st_mode & 0o777 == 0o700
    assert Path(place).name.startswith(ROOM)
    assert any(path.name.startswith("blockmgr") for path in Path(place).iterdir())
    assert engines.session().conf.get("spark.sql.warehouse.dir") == f"file:{place}/warehouse"


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    """A value that overflows half way, doubles, an unknown table, a stream's order, a folder that is not there."""
    write(tmp_path / "people.parquet", f"SELECT *, CAST(salary AS DOUBLE) AS wage FROM ({PEOPLE})")
    spec = asked(tmp_path, "spark", "multi-size", "r")
    for old, new, code, words in (
        ('"odd"]', '"wage"]', 2, "column 'wage' is DOUBLE"),
        ('order = "portable"', 'order = "stream"', 2, "release.order"),
        ('file = "people.parquet"\nengine = "spark"', "spark = { table = 'lake.nobody' }", 2, "lake"),
        ("people.parquet", "nothing.parquet", 4, "no such file"),
        (
            'engine = "spark"',
            'engine = "spark"\nquery = "SELECT *, CAST(salary * 9999999 AS INT) AS x FROM source"',
            2,
            "overflow",
        ),
        ('engine = "spark"', 'engine = "spark"\nid = "salary"', 2, "without id"),
    ):
        broken = tmp_path / "broken.toml"
        broken.write_text(spec.read_text().replace(old, new), encoding="utf-8")
        refused(run("publish", broken), code, words)
    assert {path.name for path in tmp_path.iterdir()} == {"people.parquet", "r.toml", "broken.toml"}


def test_the_key_is_in_no_plan_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of every statement, event logs, blocks and spilled tables hold neither the key nor what it hashes with.

    Spilled tables do hold the records: nothing of them is compressed here. Blocks are encrypted, since a broadcast one
    lies on disk where memory is short.
    """
    from privsql.engine import spark

    write(tmp_path / "people.parquet", PEOPLE)
    key, seen, words = seed_key(7), [], []
    real, forget = spark.SparkRelations._frame, spark.SparkRelations._forget
    blocks = Path(engines.session().sparkContext.getConf().get("spark.local.dir") or "")
    spilled: list[bytes] = []

    def kept(self: Any, folder: Path | None) -> None:
        spilled.extend(contents(folder) if folder else [])
        forget(self, folder)

    def frame(self: Any, *given: Any) -> Any:
        made = real(self, *given)
        seen.append(made._jdf.queryExecution().toString())
        return made

    monkeypatch.setattr(spark.SparkRelations, "_frame", frame)
    monkeypatch.setattr(spark.SparkRelations, "_forget", kept)
    told = type(key).word
    monkeypatch.setattr(type(key), "word", lambda self, *p: words.append(table := told(self, *p)) or table)
    spec = privsql.load(asked(tmp_path, "spark", "randomize", "r"))
    privsql.publish(spec, key=key)
    secrets = {key.secret.hex(), *(table["word"][0].as_py() for table in words)}
    assert len(secrets) == 3
    assert len(seen) > 10
    files = {
        "events": contents(Path(engines.EVENTS.name)),
        "blocks": contents(blocks),
        "spilled": spilled,
        "release": contents(tmp_path),
    }
    assert any(b"SparkListenerSQLExecutionStart" in text for text in files["events"])
    assert any("é".encode() in text for text in files["spilled"])
    assert any(files["blocks"])
    assert engines.session().sparkContext.getConf().get("spark.io.encryption.enabled") == "true"
    for secret in secrets:
        assert not any(secret in plan for plan in seen)
        assert [name for name, texts in files.items() if any(secret.encode() in text for text in texts)] == []


def test_a_run_that_is_killed_leaves_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every table that Spark writes: nothing stands at the target, and the next publication sweeps the rest."""
    from privsql.engine import spark

    write(tmp_path / "people.parquet", PEOPLE)
    spec = privsql.load(asked(tmp_path, "spark", "permute", "r"))
    real, left = spark.only_parts, [2]

    def failing(folder: Path) -> None:
        real(folder)
        left[0] -= 1
        if not left[0]:
            raise PrivsqlError("stopped")

    monkeypatch.setattr(spark, "only_parts", failing)
    with pytest.raises(PrivsqlError, match="stopped"):
        privsql.publish(spec)
    assert {path.name for path in tmp_path.iterdir()} == {"people.parquet", "r.toml"}
    monkeypatch.setattr(spark, "only_parts", real)
    privsql.publish(spec)
    assert privsql.verify(spec.target).ok
