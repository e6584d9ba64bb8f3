"""A release that Spark makes: the same as DuckDB's by the same key, verified where it lies, or not there at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

import privsql
from privsql.engine.database import Options, Origin
from privsql.engine.files import ROOM
from privsql.engine.open import open_spark
from privsql.engine.sqlfiles import temp_table
from privsql.errors import PrivsqlError, UsageError
from privsql.keyed_random import seed_key
from support import engines
from support.commands import by_keys, refused, run, specification, succeeded, write
from support.mixed import COARSER, DIGESTS, MECHANISMS, PEOPLE, QI, digest
from support.parts import tables

pytestmark = [
    pytest.mark.slow,  # Java takes seconds to start
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that pyspark leaves open
]
REPEATED = pytest.mark.soak(part="spark")
SEARCHED = {"anatomy", "informative", "left out"}  # buckets of another search, dealt by the same relations
COMPARED = {"multi-size", "randomize"}  # of a DataFrame, and where the key is looked for
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
    "kind", [pytest.param(kind, marks=[REPEATED] if kind in SEARCHED | COMPARED else []) for kind in MECHANISMS]
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
    succeeded("evaluate", release, "--source", spec, "--queries", 50, "--json")
    succeeded("attack", release, "--source", spec, "--json")
    db = engines.session()
    db.read.parquet(str(tmp_path / "people")).createOrReplaceTempView("people")
    options = Options(session=db)
    spec = asked(tmp_path, "spark", "permute", "table", "spark = { table = 'people' }")
    assert privsql.plan(privsql.load(spec), options=options).facts["records"] == 1200
    half = "SELECT * FROM people WHERE salary % 2 = 0"
    spec = asked(tmp_path, "spark", "permute", "half", f"spark = {{ query = '{half}' }}")
    privsql.publish(privsql.load(spec), options=options)
    assert privsql.verify(tmp_path / "half", privsql.load(spec), options=options).ok
    spec = asked(
        tmp_path, "spark", "multi-size", "q", 'file = "people"\nengine = "spark"\nquery = "SELECT * FROM source"'
    )
    assert privsql.plan(privsql.load(spec), options=options).facts["records"] == 1200
    db.range(1).createTempView("source")
    with pytest.raises(UsageError, match="has a table 'source'"):
        privsql.plan(privsql.load(spec), options=options)
    assert {view.name for view in db.catalog.listTables() if view.isTemporary} == {"people", "source"}


def test_init_proposes_what_spark_reads(tmp_path: Path) -> None:
    """From a file, the proposal for DuckDB beside the engine; from a query in Spark's SQL, one that can be planned."""
    people = write(tmp_path / "people.parquet", f"SELECT age, sex, odd, disease FROM ({PEOPLE})")
    flags = ["init", people, "--sensitive", "disease", "--accept"]
    here, there = (succeeded(*flags, *more).out for more in ([], ["--set", "source.engine=spark"]))
    assert there.replace('engine = "spark"\n', "") == here
    query = "SELECT * FROM source WHERE array_size(array(age)) = 1 AND age > 30"
    spec = tmp_path / "specs" / "people.toml"
    spec.parent.mkdir()
    succeeded(*flags, "--set", "source.engine=spark", "--set", f"source.query={query}", "--output", spec)
    text = spec.read_text(encoding="utf-8")
    assert 'file = "../people.parquet"' in text
    assert 0 < succeeded("plan", spec, "--json").json["records"] < 1200
    refused(run(*flags, "--set", f"source.query={query}"), 2, "query: ")  # DuckDB's SQL


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


def test_the_ledger_knows_what_spark_has_published(tmp_path: Path) -> None:
    """The same people again, from Spark into one file and from theirs by DuckDB: no guarantee covers both."""
    write(tmp_path / "people.parquet", PEOPLE)
    for engine, code in (("spark", 0), ("duckdb", 1)):
        spec = asked(tmp_path, engine, "permute", engine)
        spec.write_text(spec.read_text().replace(OFF, '[ledger]\ndatabase = "ledger.duckdb"'))
        to = ["--format", "duckdb", "--to", tmp_path / f"{engine}.duckdb"]
        done = run("publish", spec, *to, "--key-file", tmp_path / f"key{engine}")
        assert done.code == code, done.err
    assert "no guarantee covers both" in done.err
    succeeded("verify", tmp_path / "spark.duckdb", "--source", tmp_path / "spark.toml")


def test_a_dataframe_stays_in_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the size of the table is fetched, and the release is that of a file with these rows."""
    people = write(tmp_path / "people.parquet", PEOPLE)
    frame = engines.session().read.parquet(str(people))
    fetched = []
    real = type(frame).toArrow

    def watched(self: Any) -> Any:
        fetched.append(real(self).num_rows)
        return real(self)

    def pulled(*_: object) -> None:
        raise AssertionError("all rows came over")

    monkeypatch.setattr(type(frame), "toArrow", watched)
    for name in ("__arrow_c_stream__", "toPandas", "collect"):
        monkeypatch.setattr(type(frame), name, pulled, raising=False)
    names = ["age", "sex", "seen", "at", "part", "odd"]
    how: Any = {"qi": names, "sensitive": "disease", "threshold": "2*f + 0.1", "algorithm": "multi-size"}
    how |= {"release.name": "r", "release.order": "portable", "format": "parquet", "seed": 7}
    ledger = {"source.population": "people", "ledger": tmp_path / "there.ledger"}
    privsql.publish(frame, to=tmp_path / "there", **by_keys({**ledger, **how}))
    privsql.publish(people, to=tmp_path / "here", ledger=tmp_path / "here.ledger", **by_keys(how))
    assert tables(tmp_path / "there") == tables(tmp_path / "here")
    assert max(fetched) < 1200 / 4
    assert privsql.verify(tmp_path / "there", frame).ok
    how |= {"source.query": "SELECT * FROM source WHERE age > 30", "ledger.off": True}
    assert (
        privsql.plan(frame, **by_keys({name: one for name, one in how.items() if name != "seed"})).facts["records"]
        < 1200
    )
    assert not [one for one in engines.session().catalog.listTables() if one.isTemporary]


def test_tables_of_spark_that_are_refused(tmp_path: Path) -> None:
    session = engines.session()
    twice = session.sql("SELECT 1 AS a, 2 AS A")
    streaming = session.readStream.format("rate").load()
    for frame, why in ((twice, "differ only in case"), (streaming, "has no end")):
        with pytest.raises(UsageError, match=why):
            privsql.publish(frame, to=tmp_path / "r", sensitive="a", qi=["A"], threshold=0.5)
    frame = type("DataFrame", (), {"__module__": "pyspark.pandas.frame", "__arrow_c_stream__": None})()
    with pytest.raises(UsageError, match="to_spark"):
        privsql.plan(frame, sensitive="a", qi=["b"], threshold=0.5)


def test_ids_of_what_lies_in_spark(tmp_path: Path) -> None:
    """They are names: the ledger knows the people again, whatever their values are, and permute follows nobody."""
    named = "'x' || md5(CAST(row_number() OVER () AS VARCHAR)) AS id"
    write(tmp_path / "people.parquet", f"SELECT {named}, * FROM ({PEOPLE})")
    write(tmp_path / "older.parquet", f"SELECT * REPLACE (age + 1 AS age) FROM '{tmp_path}/people.parquet'")
    for name, engine, code in (("people", "spark", 0), ("older", "duckdb", 1), ("older", "spark", 1)):
        source = f'file = "{name}.parquet"\nengine = "{engine}"\nid = "id"'
        spec = asked(tmp_path, engine, "multi-size", f"{name}-{engine}", source)
        spec.write_text(spec.read_text().replace(OFF, '[ledger]\ndatabase = "ledger.duckdb"'))
        done = run("publish", spec)
        assert done.code == code, done.err
        assert code == 0 or "ids are here" in done.err
    spec = asked(tmp_path, "spark", "permute", "p", 'file = "people.parquet"\nengine = "spark"\nid = "id"')
    refused(run("publish", spec), 2, "source.id")
    spec = asked(tmp_path, "spark", "multi-size", "q", 'file = "people.parquet"\nengine = "spark"\nid = "sex"')
    spec.write_text(spec.read_text().replace(OFF, '[ledger]\ndatabase = "ledger.duckdb"'))
    refused(run("publish", spec), 2, "needs a unique id")


def test_files_that_change_meanwhile_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privsql.engine import spark

    (tmp_path / "people").mkdir()
    for part in range(2):
        write(tmp_path / "people" / f"part-{part}.parquet", f"SELECT * FROM ({PEOPLE}) WHERE salary % 2 = {part}")
    real = spark.SparkWarehouse.set_release_folder

    def meanwhile(self: Any, folder: Path) -> None:
        real(self, folder)
        os.utime(tmp_path / "people" / "part-1.parquet")

    monkeypatch.setattr(spark.SparkWarehouse, "set_release_folder", meanwhile)
    spec = asked(tmp_path, "spark", "permute", "r", 'file = "people"\nengine = "spark"')
    refused(run("publish", spec), 1, "part-1.parquet changed while it was read")
    assert not (tmp_path / "r").exists()


def test_tables_are_read_once(tmp_path: Path) -> None:
    """What becomes of a table after it was mounted decides nothing."""
    people = write(tmp_path / "people.parquet", PEOPLE)
    session = engines.session()
    session.read.parquet(str(people)).createOrReplaceTempView("people")
    with open_spark(tmp_path / "spill", Options(session=session)) as there:
        there.mount("source", Origin("spark", relation="people"))
        session.range(3).createOrReplaceTempView("people")
        people.unlink()
        assert there.rows(exp.select("count(*)").from_(temp_table("source"))) == [(1200,)]
        there.require_unchanged()


def test_what_one_machine_does_not_take_is_an_error_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privsql.engine import spark

    write(tmp_path / "people.parquet", PEOPLE)
    succeeded("publish", asked(tmp_path, "duckdb", "permute", "r"), "--seed", 7)
    spec = asked(tmp_path, "spark", "permute", "there")
    private = specification(
        tmp_path,
        source='file = "people.parquet"\nengine = "spark"',
        columns='categories = ["disease", "odd"]',
        mechanism=f'kind = "contingency"\nepsilon = 1\ndomains = {{ disease = "data", odd = "data" }}\n{OFF}',
        name="private.toml",
    )
    monkeypatch.setattr(spark, "ONE_MACHINE", 1000)
    verbs = [(verb, tmp_path / "r", "--source", spec) for verb in ("verify", "attack", "evaluate")]
    for arguments in (*verbs, ("publish", private)):
        refused(run(*arguments), 4, "has 1,200 rows, and this copies them to one machine, which works for")


def test_workers_that_do_not_see_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made stays with them; the tables come over, if they are small."""
    from privsql.engine import spark

    write(tmp_path / "people.parquet", PEOPLE)
    for engine in ("duckdb", "spark"):
        succeeded("publish", asked(tmp_path, engine, "randomize", engine), "--seed", 7)
        monkeypatch.setattr(spark, "shares_files", lambda *_: False)
    assert tables(tmp_path / "spark") == tables(tmp_path / "duckdb")
    monkeypatch.setattr(spark, "FETCHED", 1000)
    spec = asked(tmp_path, "spark", "randomize", "more")
    refused(run("publish", spec), 4, "1,200 rows, and its workers do not see")
    assert not (tmp_path / "more").exists()


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
    for engine in ("duckdb", "spark"):
        privsql.publish(privsql.load(asked(tmp_path, engine, "randomize", engine)), key=key)
    assert tables(tmp_path / "spark") == tables(tmp_path / "duckdb")
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
    succeeded("publish", asked(tmp_path, "duckdb", "permute", "r"))
    assert privsql.verify(spec.target).ok
