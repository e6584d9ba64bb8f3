"""Records and values as they are written: streams in which every record gets its bucket, and every bucket its list.

The places of a layout are in uniformly random order within each value, whatever the records are. So the j-th record of
a value takes the j-th of its places, and the order in which records come can't matter; but with a key that may serve
again it must be the same order whenever the table is (``Records.coded``): two releases of one table by one key that
differ by the order of rows would tell more together than each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.positions import BATCH
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, temp
from privsql.mechanisms.dealing import Dealing, Parts
from privsql.model.records import changed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.layout.pieces import Layout
    from privsql.mechanisms.bucketize.layout.runs import Runs
    from privsql.mechanisms.bucketize.model import Bids, Ints
    from privsql.model.records import Records
    from privsql.noise import Key

BID = pa.field("bid", pa.int32())


def write_records(db: Relations, source: Records, bids: Bids, *, ordered: bool) -> None:
    """QIT; ``bids`` (n,): for each value in turn, the places of its records, negative for those that are left out.

    ``ordered``: records in canonical order. Raises ``GuaranteeError`` unless the records are those that were counted.
    """
    with db.beside() as writer, db.streamed(source.coded(ordered=ordered), BATCH) as coded:
        given = Given(coded, bids, np.array(source.counts, dtype=np.int64))
        writer.put("assigned", given.stream())
        _write(writer, source.roles, temp("assigned"))
    given.check()
    source.history.groups = bids


def write_ranked(db: Relations, source: Records, layout: Layout, key: Key) -> None:
    """QIT in the portable order: the records' ranks take the places of a layout (``mechanisms.dealing``).

    An engine in which rows have no order keeps relation ``assigned``(q0.., code, bid), for ``write_counted``.
    """
    roles = source.roles
    dealing = Dealing(db, source, key, Parts(np.array(source.counts, dtype=np.int64)))
    if source.has_ids:
        source.history.groups = dealing.numbers(dealing.dealt(layout.segments(), [column("pos", "r")]))
    values = [] if db.keeps_order else [named(exp.cast(column("part", "r"), "INTEGER"), "code")]
    dealt = dealing.dealt(layout.segments(), [*roles.qi("r"), *values]).subquery("dealt")
    assigned = exp.select("*", named(column("number"), "bid")).from_(dealt)
    if db.keeps_order:
        _write(db, roles, assigned.subquery())
    else:
        db.make("assigned", assigned, title="Assigning records to buckets")
        _write(db, roles, temp("assigned"))
    dealing.done()


def write_counted(db: Relations, roles: Roles, fakes: tuple[Ints, Ints]) -> None:
    """ST from relation ``assigned`` and the buckets and values of fakes, by counting."""
    db.put("fakes", pa.table({name: one.astype(np.int32) for name, one in zip(("bid", "code"), fakes, strict=True)}))
    composed = fill("bucketize/composed", {"assigned": temp("assigned"), "fakes": temp("fakes")})
    holes: Holes = {"composition": composed.subquery(), "domain": temp("domain"), "sa": roles.sa_typed("d")}
    holes |= roles.by_sa.names("bid", "count")
    db.make("st", fill("core/st", holes), into="release", title="Writing the sensitive table")
    db.drop("assigned", "fakes")


def _write(db: Relations, roles: Roles, assigned: exp.Expr) -> None:
    holes: Holes = {"assigned": assigned, "qi": roles.qi_typed("r"), "qi_order": roles.qi("r")}
    holes |= roles.by_qi.names("bid")
    db.make("qit", fill("bucketize/qit", holes), into="release", title="Assigning records to buckets")


def names(db: Relations, roles: Roles) -> pa.Table:
    """The sensitive values (s0..) by code."""
    return db.arrow(all_rows(temp("domain")).order_by("code")).select(list(roles.sa_keys))


def write_values(db: Relations, roles: Roles, runs: Runs, values: pa.Table) -> None:
    """ST, in its order; ``values`` (s0..) by code. In a session of its own, so that it can go beside the records."""
    with db.beside() as writer:
        writer.put("listed", listed(runs, values))
        holes: Holes = {"listed": temp("listed"), "sa": roles.sa_typed("l"), **roles.by_sa.names("bid", "count")}
        writer.make("st", fill("duckdb/st", holes), into="release")


class Given:
    """The records of a stream (q0.., code) with the bucket of each in place of its value."""

    def __init__(self, coded: pa.RecordBatchReader, bids: Bids, counts: Ints) -> None:
        self._coded, self._bids = coded, bids
        self._ends = np.cumsum(counts)
        self._next = self._ends - counts  # of each value, the first of the places that are free

    def stream(self) -> pa.RecordBatchReader:
        """(q0.., bid), in the order of the records."""
        schema = pa.schema([*list(self._coded.schema)[:-1], BID])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def check(self) -> None:
        """``GuaranteeError`` unless every place is taken."""
        if (self._next != self._ends).any():
            raise changed()

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self._coded:
            *columns, codes = batch.columns
            yield pa.RecordBatch.from_arrays([*columns, pa.array(self._taken(codes.to_numpy()))], schema=schema)

    def _taken(self, codes: NDArray[np.int32]) -> Bids:
        """The next places of these values."""
        number = np.bincount(codes, minlength=len(self._ends))
        if (self._next + number > self._ends).any():
            raise changed()
        small = codes.astype(np.uint16) if len(self._ends) <= 2**16 else codes  # of which numpy sorts digits
        order = np.argsort(small, kind="stable")
        ahead = self._next - np.cumsum(number) + number
        found = np.empty(len(codes), dtype=np.int32)
        found[order] = self._bids[np.arange(len(codes)) + np.repeat(ahead, number)]
        self._next += number
        return found


def listed(runs: Runs, values: pa.Table) -> pa.RecordBatchReader:
    """(bid, s0.., records), in that order; ``values`` (s0..) by code."""
    words = [values[name].combine_chunks() for name in values.column_names]
    fields = [
        pa.field(name, pa.dictionary(pa.int32(), column.type))
        for name, column in zip(values.column_names, words, strict=True)
    ]
    schema = pa.schema([BID, *fields, pa.field("records", pa.int32())])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in runs.table():
            bid, code, records = batch.columns
            named = [pa.DictionaryArray.from_arrays(code, column) for column in words]
            yield pa.RecordBatch.from_arrays([bid, *named, records], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
