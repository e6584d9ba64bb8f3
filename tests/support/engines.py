"""Engines beside DuckDB for tests: one Java for all of them, and words for where there is none."""

from __future__ import annotations

import functools
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from privsql.engine.progress import Options

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from privsql.engine.spark.relations import SparkRelations
    from support.elsewhere import Elsewhere

ENGINES = ("duckdb", "spark")
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than a few rows do
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.shuffle.compress": "false",
}


def without_spark() -> str:
    """Why there is no Spark here; empty where there is."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed"
    return "" if shutil.which("java") else "Java is not installed"


@functools.cache
def java() -> None:
    """Start Java, small."""
    from privsql.engine.spark.session import started

    started(Options(threads=2), SMALL)


@functools.cache
def elsewhere(engine: str) -> Elsewhere | None:
    """What makes relations of SQL tests in an engine beside DuckDB, one for the whole run."""
    if engine == "duckdb":
        return None
    from support.elsewhere import Elsewhere

    return Elsewhere(spark(None))


def spark(spill: Path | None) -> SparkRelations:
    """Relations of Spark's, which the test closes; skipped with a word where there is none."""
    if reason := without_spark():
        pytest.skip(reason)
    from privsql.engine.spark.warehouse import opened

    java()
    return opened(spill, Options(), None, None)


def session() -> SparkSession:
    """A session of somebody's own, as privsql demands it."""
    from privsql.engine.spark.session import started

    java()
    return started(Options(threads=2))
