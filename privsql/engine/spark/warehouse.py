"""A publisher's source in Spark, and the tables of a release as Spark writes them: folders of Parquet, in order."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from privsql.engine.apart import tuples
from privsql.engine.portable import one_select
from privsql.engine.spark.dialect import INSIDE, RELEASE, SPARK
from privsql.engine.spark.relations import SparkRelations
from privsql.engine.spark.session import connected, given, is_local, started, translated
from privsql.engine.sqlfiles import all_rows, temp
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp

    from privsql.engine.database import Origin
    from privsql.engine.progress import Options

PLAIN = "UTF8_BINARY"  # the collation of bytes
FIRST = "part-00000.parquet"
WRITTEN = {"compression": "zstd"}


class SparkWarehouse(SparkRelations):
    """Relations beside a publisher's table."""

    def __init__(self, session: SparkSession, here: Path, options: Options | None = None) -> None:
        """``here``: a folder for what is brought to this machine, and what is stored where workers see it."""
        super().__init__(session, here if is_local(session) else None, options)
        self._here = here
        self._release: Path | None = None
        self._shown: list[str] = []  # names that stand in the session itself

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as ``name``; a query is Spark's SQL, and is stored."""
        with translated():
            if origin.path is not None:
                if not origin.path.exists():
                    raise EngineError(f"{origin.path}: no such file")
                self._name("file", self.session.read.parquet(str(origin.path)), None)
            if origin.query is not None:
                text = one_select(origin.query, SPARK)
                if origin.path is not None:
                    self._called_source()
                self._store(name, self.session.sql(text))
            elif origin.relation is not None:
                self._name(name, self.session.table(origin.relation), None)
            else:
                self._name(name, self.session.table(self._own("file")), None)

    def _called_source(self) -> None:
        """Let a query call the file ``source``; ``UsageError`` where the session knows something else by that name."""
        if self.session.catalog.tableExists("source"):
            raise UsageError("the session of Spark has a table 'source' of its own, which the query could mean")
        self.session.table(self._own("file")).createTempView("source")
        self._shown.append("source")

    def close(self) -> None:
        """Forget all that was made, and all names that were given."""
        for name in self._shown:
            with translated():
                self.session.catalog.dropTempView(name)
        self._shown.clear()
        super().close()

    def collated(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """By column of a relation the collation that it has, if that is not the bytes' own."""
        with translated():
            schema = self._frame(all_rows(source)).schema
        found = {field.name: getattr(field.dataType, "collation", PLAIN) for field in schema}
        return {name: found[name] for name in columns if found.get(name, PLAIN) != PLAIN}

    def publish_as(self, name: str, query: exp.Expr) -> None:
        """Make a query readable by ``ask``."""
        with translated():
            self._frame(query).createTempView(name)
            self._shown.append(name)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a SELECT of the publisher's own, in Spark's SQL."""
        with translated():
            return tuples(self.session.sql(one_select(sql, SPARK)).toArrow())

    # A release ---

    def released(self, folder: Path) -> None:
        """What is made in database ``release`` becomes a folder of Parquet files in ``folder``."""
        self._release = folder

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as a temporary table, or as a table of the release, rows in its order."""
        if into != RELEASE or self._release is None:
            super().make(name, query, into=into, title=title)
            return
        if title:
            self._report.step(title)
        target = self._release / f"{name}.parquet"
        with translated():
            frame = self._frame(query)
            if self._spill is None:
                frame = frame.persist()
            self._parts(frame, target)
            if self._spill is not None:
                frame = self.session.read.schema(frame.schema).parquet(str(target))
            self._name(f"{INSIDE}{name}", frame, None)

    def written(self, name: str) -> list[Path]:
        """The rows of a relation as Parquet files in the folder of this machine's."""
        folder = self._here / f"brought-{name}"
        with translated():
            self._parts(self._frame(all_rows(temp(name))), folder)
        return sorted(folder.iterdir())

    def _parts(self, frame: DataFrame, folder: Path) -> None:
        """Write rows, in their order, as a folder of Parquet files of this machine's.

        Where workers do not see it, the rows come over as Arrow, all at once.
        """
        if self._spill is not None:
            frame.write.options(**WRITTEN).parquet(str(folder))
            only_parts(folder)
            return
        folder.mkdir()
        rows = frame.toArrow().replace_schema_metadata(None)
        pq.write_table(rows, folder / FIRST, store_schema=False, **WRITTEN)


def only_parts(folder: Path) -> None:
    """Leave nothing in a written folder but its parts, under names that say their order and nothing else."""
    parts = sorted(folder.glob("part-*.parquet"))
    for entry in folder.iterdir():
        if entry not in parts:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for number, part in enumerate(parts):
        part.rename(folder / f"part-{number:05}.parquet")


@contextmanager
def opened(spill: Path, options: Options, session: object | None, remote: str | None) -> Iterator[SparkWarehouse]:
    """A warehouse in a session that is given, at an address, or of this machine's own."""
    with (
        connected(remote) if remote and session is None else nullcontext(session) as there,
        SparkWarehouse(started(options) if there is None else given(there), spill, options) as made,
    ):
        yield made
