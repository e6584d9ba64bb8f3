"""Delta and Iceberg tables at a fixed version, which their own libraries read as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import privsql
from support.commands import by_keys, write
from support.mixed import DIGESTS, PEOPLE, digest
from support.parts import tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

pytestmark = pytest.mark.slow
REQUEST: dict[str, Any] = {
    "qi": ["age", "sex", "seen", "at", "part", "odd"],
    "sensitive": "disease",
    "threshold": "1/6",
    "release.name": "r",
    "release.order": "portable",
    "format": "parquet",
    "seed": 7,
    "ledger.off": True,
}  # what ``DIGESTS`` has as "optimal"


def read_delta(folder: Path, people: pa.Table) -> Callable[[], Any]:
    """Return a function that reads version 1 of a table: its records, of which version 0 lacks some and 2 has more."""
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(folder, people.slice(0, 500))
    deltalake.write_deltalake(folder, people.slice(500), mode="append")
    deltalake.write_deltalake(folder, people.slice(0, 90), mode="append")
    assert deltalake.DeltaTable(folder).to_pyarrow_table().num_rows == people.num_rows + 90
    return lambda: deltalake.DeltaTable(folder, version=1).to_pyarrow_table()


def read_iceberg(folder: Path, people: pa.Table) -> Callable[[], Any]:
    """Return a function that reads a snapshot of a table whose catalog is a SQLite file; its rows come as a stream."""
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("clinic")
    table = catalog.create_table("clinic.people", people.schema)
    table.append(people.slice(0, 500))
    table.append(people.slice(500))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.delete("disease = 'v1'")
    table.append(people.slice(0, 90))
    catalog.close()
    assert table.scan().to_arrow().num_rows < people.num_rows
    return lambda: table.scan(snapshot_id=snapshot.snapshot_id).to_arrow_batch_reader()


@pytest.mark.parametrize("reads", [read_delta, read_iceberg])
def test_a_table_at_a_version_is_released_as_its_records(tmp_path: Path, reads: Callable[..., Any]) -> None:
    """The digest of the same records from a file; rows that came, or went, later change nothing."""
    read = reads(tmp_path / "lake", pq.read_table(write(tmp_path / "people.parquet", PEOPLE)))
    assert privsql.publish(read(), to=tmp_path / "r", **by_keys(REQUEST)).facts["records"] == 1200
    shown = {name: [tuple(map(repr, row)) for row in rows] for name, rows in tables(tmp_path / "r").items()}
    assert digest(shown) == DIGESTS["optimal"]
    assert privsql.verify(tmp_path / "r", read()).ok
