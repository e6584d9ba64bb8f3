"""Spark's relations give what DuckDB's do, or say in a line why not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from privsql.engine.database import Options
from privsql.engine.open import open_scratch
from privsql.engine.open import open_spark as opened
from privsql.engine.sqlfiles import (
    DIALECT,
    Field,
    all_rows,
    canonical_value,
    comparable_text,
    injective_texts,
    temp_table,
)
from privsql.errors import EngineError, PrivsqlError, UsageError
from support import engines
from support.engines import tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.spark import SparkRelations

pytestmark = [
    pytest.mark.slow,  # Java takes seconds to start
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that pyspark leaves open
]
MIXED = """
    SELECT 12345678901234567890123456789::HUGEINT AS h, 200::UTINYINT AS u, 18446744073709551615::UBIGINT AS w, -7 AS i,
      TIMESTAMP '2020-02-29 12:34:56.789' AS t, TIMESTAMPTZ '2020-02-29 12:34:56+02' AS z, 1.50::DECIMAL(10, 3) AS d,
      [1, 2] AS l, 'it''s \\ "ä"' AS s, DATE '0999-12-31' AS y, TRUE AS b, 0.1::DOUBLE AS f
    UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""
KINDS = [
    "DECIMAL(38,0)", "SMALLINT", "DECIMAL(20,0)", "INTEGER", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DECIMAL(10,3)",
    "INTEGER[]", "VARCHAR", "DATE", "BOOLEAN", "DOUBLE",
]  # fmt: skip


def mixed() -> pa.Table:
    """A row with a value of every type, and one without any."""
    with open_scratch() as duck:
        return duck.arrow(tree(MIXED))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SparkRelations]:
    with engines.spark(tmp_path) as made:
        yield made


def test_what_is_put_or_made_is_what_comes_back(db: SparkRelations) -> None:
    given = mixed()
    db.register_arrow("given", given)
    db.create_table("made", all_rows(temp_table("given")))
    db.create_view("seen", all_rows(temp_table("made")))
    names = given.column_names
    assert db.list_fields(temp_table("seen")) == [Field(*pair) for pair in zip(names, KINDS, strict=True)]
    expected = [tuple(row[name] for name in names) for row in given.to_pylist()]
    for name in ("given", "made", "seen"):
        assert sorted(db.rows(all_rows(temp_table(name))), key=str) == sorted(expected, key=str)
    assert db.arrow(all_rows(temp_table("made"))).num_rows == 2
    db.register_arrow("none", given.slice(0, 0))
    db.create_table("none_made", all_rows(temp_table("none")))
    assert db.rows(all_rows(temp_table("none_made"))) == []
    assert db.list_fields(temp_table("none_made")) == db.list_fields(temp_table("given"))


def test_a_stream_comes_and_goes_in_its_order(db: SparkRelations) -> None:
    table = pa.table({"i": [(7 * i) % 1000 for i in range(1000)]})
    db.register_arrow("given", table.to_reader(100))
    with db.stream_batches(tree('SELECT i FROM temp."privsql_given" ORDER BY i'), 64) as rows:
        batches = list(rows)
    assert [value for batch in batches for value in batch["i"].to_pylist()] == list(range(1000))
    assert max(batch.num_rows for batch in batches) <= 64


def test_what_is_dropped_leaves_nothing(db: SparkRelations, tmp_path: Path) -> None:
    for number in (1, 2):  # the second one reads the first, and takes its place
        before = [exp.select("i").from_(temp_table("made")).union(tree("SELECT 2 AS i"), distinct=False)]
        db.create_table("made", before[0] if number == 2 else tree("SELECT 1 AS i"))
    assert sorted(db.rows(all_rows(temp_table("made")))) == [(1,), (2,)]
    with db.open_sibling() as other:
        other.create_table("made", tree("SELECT 3 AS i"))
        assert other.rows(all_rows(temp_table("made"))) == [(3,)]
    assert len(db.rows(all_rows(temp_table("made")))) == 2
    db.drop("made", "never")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="cannot be found"):
        db.rows(all_rows(temp_table("made")))


def test_without_a_folder_that_the_workers_see(tmp_path: Path) -> None:
    if reason := engines.without_spark():
        pytest.skip(reason)
    from privsql.engine.spark import SparkRelations

    with engines.spark(tmp_path) as local, SparkRelations(local.session, None) as db:
        db.create_table("made", tree("SELECT 2 AS i UNION ALL SELECT 1 AS i"))
        with db.stream_batches(tree('SELECT i FROM temp."privsql_made" ORDER BY i'), 1) as rows:
            assert [batch["i"].to_pylist() for batch in rows] == [[1], [2]]
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_missing_are_an_error(db: SparkRelations, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a worker has written into a folder of its own."""
    from privsql.engine import spark

    monkeypatch.setattr(spark, "is_local", lambda session: False)
    for number, query in enumerate(("SELECT 1 AS i UNION ALL SELECT 2 ORDER BY i", "SELECT 1 AS i WHERE FALSE")):
        db.create_table(f"made{number}", tree(query))
        assert len(db.rows(all_rows(temp_table(f"made{number}")))) == 2 - 2 * number
    monkeypatch.setattr(spark, "count_written", lambda folder: 0)
    with pytest.raises(EngineError, match="some of Spark's workers do not see this folder"):
        db.create_table("lost", tree("SELECT 1 AS i"))


def test_values_are_bound(db: SparkRelations) -> None:
    assert db.rows(tree("SELECT $some AS a, $other AS b"), {"some": 3, "other": "it's"}) == [(3, "it's")]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT CAST(3 AS HUGEINT) * CAST(4 AS HUGEINT)", [(Decimal(12),)]),
        ("SELECT dense_rank() OVER () - 1 FROM (SELECT 1 AS i UNION ALL SELECT 2) AS t", [(0,), (0,)]),
        ("SELECT i FROM (SELECT 1 AS i UNION ALL SELECT NULL) AS t ORDER BY i", [(1,), (None,)]),
        ("SELECT i FROM (SELECT 1 AS i UNION ALL SELECT NULL) AS t ORDER BY i DESC", [(1,), (None,)]),
        ("SELECT CAST(DATE '2020-01-02' AS TIMESTAMP)", [(dt.datetime(2020, 1, 2),)]),
        ("SELECT 7 / 2", [(3.5,)]),
        ("SELECT NULL IS NOT DISTINCT FROM NULL, least(1, NULL), greatest(NULL, 2)", [(True, 1, 2)]),
    ],
)
def test_a_tree_means_the_same(db: SparkRelations, sql: str, expected: list[Any]) -> None:
    with open_scratch() as duck:
        assert [tuple(map(_plain, row)) for row in duck.rows(tree(sql))] == expected
    assert db.rows(tree(sql)) == expected


def _plain(value: Any) -> Any:
    return Decimal(value) if isinstance(value, int) and value == 12 else value


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        *engines.REFUSED,
        ("SELECT 7 // 2", EngineError, "portable subset: IntDiv"),
        ("SELECT CAST('x' AS UUID)", EngineError, "no type UUID"),
        ("SELECT concat('x')", EngineError, "portable subset: Concat"),
        ("SELECT CAST('x' AS INTEGER)", UsageError, "cannot be cast"),
        ("SELECT CAST(2147483647 AS INTEGER) + CAST(1 AS INTEGER)", UsageError, "overflow"),
    ],
)
def test_what_goes_wrong_is_one_line(db: SparkRelations, sql: str, error: type[PrivsqlError], said: str) -> None:
    assert "SQLSTATE" not in engines.one_line(db, sql, error, said)


def test_an_error_of_python_in_a_worker_is_named() -> None:
    """And not only that there was one."""
    if reason := engines.without_spark():
        pytest.skip(reason)
    from pyspark.errors import PySparkException

    from privsql.engine.spark import translate_spark_errors

    text = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\nKeyError: 'a'"
    with pytest.raises(EngineError, match="from the Python worker: KeyError: 'a'"), translate_spark_errors():
        raise PySparkException(text)


def test_a_product_that_overflows_is_an_error_and_not_null(db: SparkRelations) -> None:
    """It would be no row of a check."""
    large = pa.table({"a": pa.array([Decimal(10) ** 37], pa.decimal128(38))})
    db.register_arrow("large", large)
    with pytest.raises(UsageError, match="cannot be represented"):
        db.rows(tree('SELECT CAST(a AS HUGEINT) * CAST(a AS HUGEINT) > 1 FROM temp."privsql_large"'))


@pytest.mark.parametrize("kind", ["digest", "hashed"])
def test_hashes_are_those_of_duckdb(db: SparkRelations, kind: str) -> None:
    texts = [["", ""], ["a", "b"], ["ab", ""], ["ä\\' \n", "\x1f"], ["1.5", "2020-01-01"]]
    constants = [[exp.Literal.string(part) for part in text] for text in texts]
    with open_scratch() as duck:
        expected = duck.rows(exp.select(*map(getattr(duck, kind), constants)))
    made = [exp.alias_(one, f"d{i}") for i, one in enumerate(map(getattr(db, kind), constants))]
    assert db.rows(exp.select(*made)) == expected


def test_texts_of_records_are_those_of_duckdb(db: SparkRelations) -> None:
    """So that one key hashes a record alike on both."""
    with open_scratch() as duck:
        duck.register_arrow("given", mixed().drop_columns(["u", "w", "l", "f"]))
        fields = {field.name: field for field in duck.list_fields(temp_table("given"))}
        texts = injective_texts(fields, "g")
        named = [exp.alias_(text, f"t{i}") for i, text in enumerate(texts)]
        query = exp.select(*named).from_(temp_table("given").as_("g"))
        expected = duck.rows(query)
        db.register_arrow("given", duck.arrow(all_rows(temp_table("given"))))
    assert sorted(db.rows(query)) == sorted(expected)


def test_canonical_and_comparable_values_are_those_of_duckdb(db: SparkRelations) -> None:
    given = [
        ("'a '", "VARCHAR"), ("-0.0", "DOUBLE"), ("'nan'", "DOUBLE"), ("1.500", "DECIMAL(10,3)"),
        ("2", "DECIMAL(4,1)"),
        ("'2020-01-01'", "TIMESTAMP"), ("'2020-01-01 01:00:00'", "TIMESTAMP"), ("NULL", "DATE"), ("17", "BIGINT"),
    ]  # fmt: skip
    wanted = []
    for i, (text, kind) in enumerate(given):
        value = sqlglot.parse_one(f"CAST({text} AS {kind})", dialect=DIALECT)
        known = canonical_value(value, kind) if kind != "DOUBLE" else exp.cast(canonical_value(value, kind), "VARCHAR")
        wanted += [exp.alias_(known, f"k{i}"), exp.alias_(comparable_text(canonical_value(value, kind), kind), f"c{i}")]
    with open_scratch() as duck:
        expected = [str(value).lower() for value in duck.rows(exp.select(*wanted))[0]]
    assert [str(value).lower() for value in db.rows(exp.select(*wanted))[0]] == expected


def test_a_select_of_the_publishers_own(db: SparkRelations) -> None:
    db.create_from_sql("own", " SELECT array_size(array(1, 2)) AS n; ")
    assert db.rows(all_rows(temp_table("own"))) == [(2,)]
    for bad in ("DROP TABLE t", "SELECT 1; SELECT 2", "SELEC", "CREATE TABLE t AS SELECT 1 AS a"):
        with pytest.raises(UsageError, match="query: "):
            db.create_from_sql("bad", bad)


def test_types_that_spark_lacks_are_named(db: SparkRelations) -> None:
    with pytest.raises(EngineError, match="'at'"):
        db.register_arrow("given", pa.table({"at": pa.array([dt.time(1)], pa.time64("us"))}))
    with pytest.raises(EngineError, match="can't be made in 'release'"):
        db.create_table("made", tree("SELECT 1"), into="release")


# Sessions -------------------------------------------------------------------------------------------------------------


def test_a_session_that_is_given_must_be_one_to_trust(db: SparkRelations, tmp_path: Path) -> None:
    session = db.session.newSession()
    session.range(3).createOrReplaceTempView("mine")
    for name, wrong, right in (
        ("spark.sql.ansi.enabled", "false", "true"),
        ("spark.sql.session.timeZone", "Europe/Berlin", "UTC"),
    ):
        session.conf.set(name, wrong)
        with pytest.raises(UsageError, match=f"{name} = {wrong}"), opened(tmp_path, Options(session=session)):
            pass
        session.conf.set(name, right)
    with opened(tmp_path, Options(session=session)) as given:
        given.create_from_sql("own", "SELECT count(*) AS n FROM mine")
        assert given.rows(all_rows(temp_table("own"))) == [(3,)]
        assert len(session.catalog.listTables()) == 2
    assert [one.name for one in session.catalog.listTables()] == ["mine"]
    with pytest.raises(UsageError, match="str is not a Spark session"), opened(tmp_path, Options(session="x")):
        pass


def test_ansi_mode_is_tried_out(db: SparkRelations, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the settings say."""
    from privsql.engine import spark as sessions

    lax = db.session.newSession()
    lax.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(EngineError, match="ANSI mode is off"):
        sessions.require_ansi_mode(lax)


def test_without_pyspark_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "privsql.engine.spark_release", None)  # the first that is loaded
    with pytest.raises(EngineError, match=r"install 'privsql\[spark\]'"), opened(tmp_path, Options()):
        pass
