"""Publish permuted groups: shuffle sensitive values within groups, and write the tables of a release."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, alias_as, column, fill, temp_table
from privsql.mechanisms.assignment import RankAssignment, RecordParts, Segments, assign_records
from privsql.mechanisms.permute.plan import find_optimum, group_records, measure_axis, state_release

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.permute.grouping import Ints
    from privsql.mechanisms.permute.parameters import Permute, PermuteFacts
    from privsql.model.records import Records


def publish_release(db: Relations, source: Records, params: Permute, key: Key) -> PermuteFacts:
    """Write tables ``qit``, ``st`` and ``privsql_values`` into database ``release``, and return the facts."""
    measured = measure_axis(db, source, params.k, params.e)
    find_optimum(measured, source, params)  # raises an error if no groups satisfy (k,e)
    codes, groups = group_records(db, measured, source, params)
    roles, counts = source.roles, source.counts
    published = np.flatnonzero(groups >= 0)
    if len(published) == len(codes):
        values, ranks, records = np.arange(len(counts)), codes, np.array(counts, dtype=np.int64)
    else:
        values, ranks, records = np.unique(codes[published], return_inverse=True, return_counts=True)
    if source.order == "portable":
        write_ranked(db, source, groups, ranks, key)
    else:
        noise = key.random_generator("permute", int(groups.max()) + 1, tuple(counts), tuple(source.labels))
        write_records(db, source, groups, ranks, noise)
    source.history.groups = groups
    db.register_arrow("composition", tabulate_contents(groups[published], codes[published]))
    holes: Holes = {"composition": temp_table("composition"), "domain": temp_table("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.alias_holes("bid", "count")
    db.create_table("st", fill("core/st", holes), into="release", title="Writing the sensitive table")
    db.register_arrow("published", pa.table({"code": values, "rank": np.arange(len(values)), "records": records}))
    listed: Holes = {"published": temp_table("published"), "domain": temp_table("domain"), "sa": roles.sa_out("d")}
    listed |= roles.by_sa.alias_holes("code", "records")
    db.create_table("privsql_values", fill("permute/values", listed), into="release")
    db.drop("composition", "published")
    return state_release(measured, codes, groups)


def write_records(db: Relations, source: Records, groups: Ints, ranks: Ints, noise: Shuffler) -> None:
    """Write QIT with shuffled values: each group's sensitive values, in random order, are given to its records.

    Records come in canonical order (sorted by their contents), so that the order of the source reveals nothing.

    Args:
        db: The engine that holds the source and the release.
        source: The records.
        groups: The group of every record (n,); negative if it is held back.
        ranks: The rank of the value of every record that is published.
        noise: The random numbers.
    """
    codes = np.full(len(groups), -1, dtype=np.int32)
    is_published = groups >= 0
    codes[is_published] = shuffle_within_groups(groups[is_published], ranks, noise)
    assigned, is_sorted = assign_records(db, source, groups.astype(np.int32), codes)
    _write_qit(db, source, assigned, is_sorted=is_sorted)
    db.drop("positions")
    source.drop_relations()


def write_ranked(db: Relations, source: Records, groups: Ints, ranks: Ints, key: Key) -> None:
    """Write QIT with shuffled values in an order by keyed hashes of the records, which is the same on every engine.

    The records of a group are sorted by their hashes. The group's values, rising, are given to them in this order. In a
    first release, a record's group is found by its value; in later ones by its position among the records.

    Args:
        db: The engine that holds the source and the release.
        source: The records.
        groups: The group of every record (n,); negative if it is held back.
        ranks: The rank of the value of every record that is published.
        key: The secret key of the hashes.
    """
    published = np.flatnonzero(groups >= 0)
    if source.history.releases:
        of, by = pa.table({"part": groups[published], "pos": published}), "pos"
    else:
        ends = np.cumsum(source.counts)
        of, by = pa.table({"part": groups[ends - 1], "code": np.arange(len(ends))}), "code"
    dealing = RankAssignment(db, source, key, RecordParts(np.bincount(groups[published]), by, of))
    contents = tabulate_contents(groups[published], ranks)
    part, code, records = (contents[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
    ends = np.cumsum(records)
    first = (ends - records)[np.searchsorted(part, part)]  # the position of the group's first record
    segments = Segments(part, ends - records - first, ends - first, code, step=0)
    dealt = dealing.query_assigned(segments, [*source.roles.qi_columns("r"), column("part", "r")])
    renamed = [alias_as(exp.cast(column("part"), "INTEGER"), "bid"), alias_as(column("number"), "code")]
    rows = exp.select(*source.roles.qi_columns(), *renamed).from_(dealt.subquery("dealt"))
    _write_qit(db, source, rows, is_sorted=False)
    dealing.drop_relations()


def _write_qit(db: Relations, source: Records, dealt: exp.Query, *, is_sorted: bool) -> None:
    roles = source.roles
    holes: Holes = {"dealt": dealt.subquery(), "qi": roles.qi_out("r"), "qi_order": roles.qi_columns("r")}
    holes |= roles.by_qi.alias_holes("bid", "code")
    query = fill("permute/qit", holes)
    if is_sorted:
        query.set("order", None)
    db.create_table("qit", query, into="release", title="Shuffling within groups")


def tabulate_contents(groups: Ints, codes: Ints) -> pa.Table:
    """Count the records of each group with each value, as a table (bid, code, records).

    Args:
        groups: The group of every record (n,).
        codes: The value of every record (n,).
    """
    values = int(codes.max(initial=-1)) + 1
    cells, records = np.unique(groups * values + codes, return_counts=True)
    columns = {"bid": cells // values, "code": cells % values, "records": records}
    return pa.table({name: column.astype(np.int32) for name, column in columns.items()})


def shuffle_within_groups(groups: Ints, codes: Ints, noise: Shuffler) -> NDArray[np.int32]:
    """Return the sensitive values (n,), put into uniformly random order within every group.

    This is the shuffle of the thesis on incremental (k,e)-anonymity (Definition 4).
    """
    order = np.argsort(groups, kind="stable")
    dealt = codes.astype(np.int32)
    run = dealt[order]
    for begin, end in pairwise([0, *np.cumsum(np.bincount(groups)).tolist()]):
        noise.shuffle(run[begin:end])
    dealt[order] = run
    return dealt
