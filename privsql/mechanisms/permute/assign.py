"""From the group of every record to what is published: the contents of the groups, and a shuffle within each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.database import numbered
from privsql.engine.positions import BATCH
from privsql.engine.sqlfiles import Holes, column, fill, named, temp
from privsql.mechanisms.dealing import Dealing, Parts, Segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.mechanisms.permute.axis import Ints
    from privsql.model.records import Records
    from privsql.noise import Key, Shuffler

DEALT = pa.schema([("pos", pa.int64()), ("bid", pa.int32()), ("code", pa.int32())])
TABLE = 2**26  # numbers beyond which groups x values are not counted in one table


def write_records(db: Relations, source: Records, groups: Ints, ranks: Ints, noise: Shuffler) -> None:
    """QIT, from the groups (n,) of all records in canonical order, below 0: held back, and the values of the others."""
    source.sort()
    codes = np.full(len(groups), -1, dtype=np.int32)
    shown = groups >= 0
    codes[shown] = shuffled(groups[shown], ranks, noise)
    db.put("positions", dealt(groups, codes))
    _write(db, source, numbered(db).dealt(temp("records"), temp("positions")))
    db.drop("positions")


def write_ranked(db: Relations, source: Records, groups: Ints, ranks: Ints, key: Key) -> None:
    """The same in the portable order: the records' ranks in their groups take these groups' values one after the other.

    The group follows from the value in a first release, from the record in later ones, whose records have names.
    """
    shown = np.flatnonzero(groups >= 0)
    sizes = np.bincount(groups[shown])
    if source.history.releases:
        of, by = pa.table({"part": groups[shown], "pos": shown}), "pos"
    else:
        ends = np.cumsum(source.counts)
        of, by = pa.table({"part": groups[ends - 1], "code": np.arange(len(ends))}), "code"
    dealing = Dealing(db, source, key, Parts(sizes, by, of))
    dealt = dealing.dealt(_segments(contents(groups[shown], ranks)), [*source.roles.qi("r"), column("part", "r")])
    renamed = [named(exp.cast(column("part"), "INTEGER"), "bid"), named(column("number"), "code")]
    _write(db, source, exp.select(*source.roles.qi(), *renamed).from_(dealt.subquery("dealt")))
    dealing.done()


def _segments(contents: pa.Table) -> Segments:
    """The values of the ranks of every group, from ``contents``."""
    part, code, records = (contents[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
    ends = np.cumsum(records)
    first = ends[np.searchsorted(part, part)] - records[np.searchsorted(part, part)]  # of all records, of its group
    return Segments(part, ends - records - first, ends - first, code, step=0)


def _write(db: Relations, source: Records, dealt: exp.Query) -> None:
    roles = source.roles
    holes: Holes = {"dealt": dealt.subquery(), "qi": roles.qi_out("r"), "qi_order": roles.qi("r")}
    holes |= roles.by_qi.names("bid", "code")
    db.make("qit", fill("permute/qit", holes), into="release", title="Shuffling within groups")


def contents(groups: Ints, codes: Ints) -> pa.Table:
    """(bid, code, records) by group and code, from the group and the value of every record (n,)."""
    values = int(codes.max(initial=-1)) + 1
    cells = groups * values + codes
    if (int(groups.max(initial=-1)) + 1) * values <= TABLE:
        counted = np.bincount(cells)
        found = np.flatnonzero(counted)
        records = counted[found]
    else:
        found, records = np.unique(cells, return_counts=True)
    columns = {"bid": found // values, "code": found % values, "records": records}
    return pa.table({name: column.astype(np.int32) for name, column in columns.items()})


def shuffled(groups: Ints, codes: Ints, noise: Shuffler) -> NDArray[np.int32]:
    """The values (n,) in uniformly random order within every group (thesis, Definition 4)."""
    dealt = codes.astype(np.int32)
    rising = bool((groups[1:] >= groups[:-1]).all())
    order = None if rising else np.argsort(groups, kind="stable")
    run = dealt if order is None else dealt[order]
    ends = np.cumsum(np.bincount(groups)).tolist()
    begin = 0
    for end in ends:
        noise.shuffle(run[begin:end])
        begin = end
    if order is not None:
        dealt[order] = run
    return dealt


def dealt(groups: Ints, codes: NDArray[np.int32]) -> pa.RecordBatchReader:
    """(pos, bid, code) for every position, as a stream."""

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(groups), BATCH):
            part = groups[begin : begin + BATCH]
            columns = [np.arange(begin, begin + len(part)), part.astype(np.int32), codes[begin : begin + BATCH]]
            yield pa.record_batch(columns, schema=DEALT)

    return pa.RecordBatchReader.from_batches(DEALT, batches())
