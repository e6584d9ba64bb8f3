"""Engines beside DuckDB for tests: one Java for all of them, and words for where there is none."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlglot
from sqlglot import exp

from privsql.engine.database import Options
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import EngineError, PrivsqlError, UsageError
from support import postgres as server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privsql.engine.database import Relations
    from privsql.engine.spark import SparkRelations
    from support.elsewhere import Elsewhere

ENGINES = ("duckdb", "spark", "postgres")
FRUGAL = {  # what compiles best takes longer to compile than tests run; in 48 MB Spark's code soon finds no place
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
}
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than a few rows do
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.sql.parquet.compression.codec": "uncompressed",
    "spark.cleaner.referenceTracking": "false",  # what is shuffled stays, for a test to look into
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
REFUSED = [
    ("SELECT hash(1)", EngineError, "portable subset: Anonymous"),
    ("SELECT row_number() OVER () FROM (SELECT 1) AS t", EngineError, "RowNumber without ORDER BY"),
    ("SELECT nothing", UsageError, "nothing"),
]  # SQL, the class of the error and what its line says, on every engine beside DuckDB
EVENTS = tempfile.TemporaryDirectory(prefix="privsql-events-")


def without_spark() -> str:
    """Why there is no Spark here; empty where there is."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed"
    return "" if shutil.which("java") else "Java is not installed"


@functools.cache
def java() -> None:
    """Start Java, small."""
    from privsql.engine.spark import start_session

    for name, value in FRUGAL.items():
        os.environ.setdefault(name, value)
    start_session(Options(threads=2), SMALL | {"spark.eventLog.dir": Path(EVENTS.name).as_uri()})


@functools.cache
def elsewhere(engine: str) -> Elsewhere | None:
    """What makes relations of SQL tests in an engine beside DuckDB, one for the whole run."""
    if engine == "duckdb":
        return None
    from support.elsewhere import Elsewhere

    made = spark(None) if engine == "spark" else server.ServerTables()
    atexit.register(made.close)  # before the server ends
    return Elsewhere(made)


def spark(spill: Path | None) -> SparkRelations:
    """Relations of Spark's, which the test closes; skipped with a word where there is none."""
    if reason := without_spark():
        pytest.skip(reason)
    from privsql.engine.spark import SparkWarehouse

    return SparkWarehouse(shared_session(), spill, Options())


def tree(sql: str) -> exp.Query:
    """A query as a tree."""
    found = sqlglot.parse_one(sql, dialect=DIALECT)
    assert isinstance(found, exp.Query)
    return found


def one_line(db: Relations | server.ServerTables, sql: str, error: type[PrivsqlError], said: str) -> str:
    """The one line by which an engine refuses a query."""
    with pytest.raises(error, match=said) as caught:
        db.rows(tree(sql))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def session() -> SparkSession:
    """A session of somebody's own, as privsql demands it."""
    from privsql.engine.spark import start_session

    java()
    return start_session(Options(threads=2))


@functools.cache
def shared_session() -> SparkSession:
    """One session for tests that change none of its settings."""
    return session()


def home() -> Path:
    """Where Spark is installed, as pyspark brings it."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
