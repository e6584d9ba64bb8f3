"""``Relations`` of ``privsql.engine.database`` over a session of Spark.

What is made is stored: a folder of Parquet in the spill folder where the workers see it, else in their own memory and
on their disks. A plan that is read twice would be computed twice. Rows of a stored table have no order; whoever wants
one asks for it.
"""

from __future__ import annotations

import itertools
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from sqlglot import exp

from privsql.engine.apart import RelationsApart, whole
from privsql.engine.portable import one_select
from privsql.engine.progress import Options, Silent
from privsql.engine.roles import Field
from privsql.engine.spark import dialect
from privsql.engine.spark.session import translated
from privsql.engine.sqlfiles import all_rows
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class SparkRelations(RelationsApart):
    """What was made in one session; ``spill``: a folder that the workers see, or None."""

    engine = dialect.ENGINE
    tables: Collection[str] = ()  # those of a release that are meant where no database is named

    def __init__(self, session: SparkSession, spill: Path | None, options: Options | None = None) -> None:
        super().__init__()
        self.session = session
        self._spill, self._options = spill, options or Options()
        self._report = self._options.report or Silent()
        self._folders = itertools.count()
        self._made: dict[str, Path | None] = {}  # names, and the folders in which they lie

    def close(self) -> None:
        """Forget all that was made; the session goes on."""
        self.drop(*reversed(self._made))

    # Reading ---

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""
        with translated():
            return self._frame(query, values).toArrow()

    @contextmanager
    def streamed(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query, so many at a time and in its order; in memory where there is no spill folder."""
        with translated():
            frame = self._frame(query)
            if self._spill is None:
                folder, reader = None, frame.toArrow().to_reader(rows)
            else:
                folder = self._written(frame, self._spill)
                reader = _read(folder, frame.limit(0).toArrow().schema, rows)
        try:
            yield reader
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def beside(self) -> Iterator[SparkRelations]:
        """Relations of their own in the same session."""
        other = SparkRelations(self.session, self._spill, self._options)
        try:
            yield other
        finally:
            other.close()

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        with translated():
            schema = self._frame(all_rows(source) if isinstance(source, exp.Table) else source).schema
        return [Field(field.name, dialect.type_name(field.dataType)) for field in schema]

    # Making ---

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as a temporary table."""
        self._only_own(name, into)
        if title:
            self._report.step(title)
        with translated():
            self._store(name, self._frame(query))

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in Spark's SQL, as a temporary table."""
        with translated():
            self._store(name, self.session.sql(one_select(query, dialect.SPARK)))

    def view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a temporary view."""
        self._only_own(name, into)
        with translated():
            self._name(name, self._frame(query), None)

    def put(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable under ``name``; a stream is read at once."""
        table = dialect.readable(whole(data))
        with translated():
            frame = self.session.createDataFrame(table, schema=from_arrow_schema(table.schema))
            self._name(name, frame, None)

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""
        for name in names:
            if name in self._made:
                with suppress(UsageError), translated():
                    if self._spill is None:
                        self.session.table(self._own(name)).unpersist()
                    self.session.catalog.dropTempView(self._own(name))
                self._forget(self._made.pop(name))

    def _store(self, name: str, frame: DataFrame) -> None:
        if self._spill is None:
            self._name(name, frame.persist(), None)  # what is made is the same however often: contents decide
            return
        folder = self._written(frame, self._spill)
        self._name(name, self.session.read.schema(frame.schema).parquet(str(folder)), folder)

    def _written(self, frame: DataFrame, spill: Path) -> Path:
        """The folder to which the rows were written: its files lie in their order."""
        folder = spill / f"spark-{self.number}-{next(self._folders)}"
        frame.write.parquet(str(folder))
        return folder

    def _name(self, name: str, frame: DataFrame, folder: Path | None) -> None:
        before = self._made.get(name)
        frame.createOrReplaceTempView(self._own(name))
        self._made[name] = folder
        self._forget(before)

    def _forget(self, folder: Path | None) -> None:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _frame(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> DataFrame:
        return self.session.sql(dialect.render(query, self._own, self.tables), args=dict(values) if values else None)


def _read(folder: Path, schema: pa.Schema, rows: int) -> pa.RecordBatchReader:
    """The rows of a written folder: Spark numbers its files in the order of the query."""

    def batches() -> Iterator[pa.RecordBatch]:
        for path in sorted(folder.glob("part-*.parquet")):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(rows):
                    yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())
