"""The tables of a release, read by Spark: for questions about more than one machine can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.spark.dialect import INSIDE
from privsql.engine.spark.relations import SparkRelations
from privsql.engine.spark.session import given, translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession


class SparkRelease(SparkRelations):
    """Relations beside them; what a tree names without a database are they. What is made stays in Spark's memory."""

    def __init__(self, session: SparkSession, tables: Mapping[str, Sequence[Path]]) -> None:
        """``tables``: their Parquet files, which the session's workers must see."""
        super().__init__(session, None)
        self.tables = frozenset(tables)
        with translated():
            for name, parts in tables.items():
                self._name(f"{INSIDE}{name}", session.read.parquet(*map(str, parts)), None)


def released(session: object, tables: Mapping[str, Sequence[Path]]) -> SparkRelease:
    """The tables of a release in a session that is given."""
    return SparkRelease(given(session), tables)
