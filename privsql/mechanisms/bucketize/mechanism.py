"""Bucketization as a mechanism: plan over counts, publish through SQL, and the checks of a release.

A mechanism is this set of functions; ``privsql.api`` knows no more of it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.errors import UsageError
from privsql.mechanisms.bucketize.layout import arrange
from privsql.mechanisms.bucketize.model import Plan, Problem
from privsql.mechanisms.bucketize.search import find
from privsql.mechanisms.bucketize.thresholds import thresholds
from privsql.sqlfiles import Holes, column, fill, named, table, temp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    from numpy.typing import NDArray

    from privsql.database import Database, Domain
    from privsql.mechanisms.bucketize.layout import Bids
    from privsql.mechanisms.bucketize.model import Ints
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.noise import Key
    from privsql.roles import Roles

SQL = ("core/", "bucketize/", "verify/")
RESERVED = {
    "quasi_identifiers": {"bid", "weight"},
    "sensitive": {"bid", "count", "weight", "numerator", "denominator"},
}
SLOTS = pa.schema([("pos", pa.int64()), ("bid", pa.int32())])
COMPOSITION = pa.schema([("bid", pa.int32()), ("code", pa.int32()), ("records", pa.int32())])
BATCH = 2**20  # rows that are handed over at a time, so that nothing of n rows is copied
TABLES = ("qit", "st", "privsql_thresholds")


def plan(db: Database, domain: Domain, asked: Bucketize) -> tuple[Plan, tuple[Fraction, ...]]:
    """Search; raises ``InfeasibleError`` where nothing valid exists and ``UsageError`` for a wrong threshold."""
    values = thresholds(db, domain, asked.threshold) if domain.counts else ()
    problem = Problem(
        counts=np.array(domain.counts, dtype=np.int64),
        thresholds=values,
        smallest=asked.min_bucket_size,
        largest=asked.max_bucket_size,
        labels=tuple(domain.labels),
    )
    return find(problem, asked.algorithm, prune=asked.prune, seconds=asked.proof_seconds), values


def publish(db: Database, domain: Domain, asked: Bucketize, key: Key, name: str) -> dict[str, Any]:
    """Make ``qit``, ``st``, ``privsql_thresholds`` and the weighted view in database ``release``; returns the facts."""
    _no_collisions(domain, name)
    found, values = plan(db, domain, asked)
    noise = key.stream("bucketize", found.setting.items, tuple(domain.counts), tuple(domain.labels))
    counts = np.array(domain.counts, dtype=np.int64)
    roles = domain.roles
    with ThreadPoolExecutor(1) as beside:  # numpy and the engine use different cores
        drawn = beside.submit(arrange, found, asked.composition, noise)
        domain.sort()
        bids = drawn.result()
        counted = beside.submit(composition, bids, counts)
        db.put("slots", slots(bids))
        assigned = db.matched(temp("records"), temp("slots")).subquery()
        holes: Holes = {"assigned": assigned, "qi": roles.qi_out("r"), "qi_order": roles.qi("r")}
        db.make("qit", fill("bucketize/qit", holes), into="release", title="Assigning records to buckets")
        db.drop("slots", "records")
        db.put("composition", counted.result())
    holes = {"composition": temp("composition"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("st", fill("bucketize/st", holes), into="release", title="Writing the sensitive table")
    db.put("fractions", _fractions(values))
    holes = {"fractions": temp("fractions"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("privsql_thresholds", fill("bucketize/thresholds", holes), into="release")
    db.drop("composition", "fractions")
    return summary(found) | {"layout": asked.composition}


def view(roles: Roles, facts: dict[str, Any]) -> exp.Query:
    """The weighted view over QIT and ST."""
    holes: Holes = {
        "qit": table("qit"),
        "st": table("st"),
        "qi": [named(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "sa": [named(column(f.name, "st"), f.name) for f in roles.sensitive],
        "size": size_of_bucket(facts["setting"], column("bid", "st")),
    }
    return fill("bucketize/weighted", holes)


def size_of_bucket(setting: dict[str, int], bid: exp.Expr) -> exp.Expr:
    """|g| from the bucket's number: buckets are numbered by size, so a CASE over the sizes replaces a join."""
    sizes = [(int(size), int(buckets)) for size, buckets in setting.items()]
    ends = np.cumsum([buckets for _, buckets in sizes]).tolist()
    case = exp.Case()
    for (size, _), end in zip(sizes[:-1], ends[:-1], strict=True):
        case = case.when(exp.LT(this=bid.copy(), expression=exp.Literal.number(end)), exp.Literal.number(size))
    last = exp.Literal.number(sizes[-1][0])
    return case.else_(last) if len(sizes) > 1 else last


def summary(found: Plan) -> dict[str, Any]:
    """The facts of a plan for manifest and output."""
    return {
        "loss": found.loss,
        "mse": found.mse,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "proof": found.proof,
        "setting": {str(size): buckets for size, buckets in found.setting.items},
    }


def composition(bids: Bids, counts: Ints) -> pa.Table:
    """(bid, code, records): how often each value stands in each bucket, in that order."""
    bits = max(1, (len(counts) - 1).bit_length())
    width = np.uint32 if int(bids.max(initial=0)).bit_length() + bits <= 32 else np.uint64
    keys: NDArray[Any] = bids.astype(width)
    np.left_shift(keys, width(bits), out=keys)
    start = 0
    for code, records in enumerate(counts.tolist()):
        part = keys[start : start + records]
        np.bitwise_or(part, width(code), out=part)
        start += records
    keys.sort()
    return pa.Table.from_batches(_counted(keys, bits), schema=COMPOSITION)


def _counted(keys: NDArray[Any], bits: int) -> Iterator[pa.RecordBatch]:
    """Run lengths of sorted keys, a batch at a time; a run that crosses the end of a batch waits for the next."""
    begin, n = 0, len(keys)
    mask = (1 << bits) - 1
    while begin < n:
        end = min(n, begin + BATCH)
        end = n if end == n else int(np.searchsorted(keys, keys[end - 1], side="right"))
        part = keys[begin:end]
        starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=bool), part[1:] != part[:-1])))
        records = np.diff(np.append(starts, len(part))).astype(np.int32)
        first = part[starts]
        columns = [(first >> bits).astype(np.int32), (first & mask).astype(np.int32), records]
        yield pa.record_batch(columns, schema=COMPOSITION)
        begin = end


def slots(bids: Bids) -> pa.RecordBatchReader:
    """(pos, bid) for every position, as a stream."""

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(bids), BATCH):
            part = bids[begin : begin + BATCH]
            yield pa.record_batch([np.arange(begin, begin + len(part)), part], schema=SLOTS)

    return pa.RecordBatchReader.from_batches(SLOTS, batches())


def _fractions(values: tuple[Fraction, ...]) -> pa.Table:
    return pa.table(
        {
            "code": np.arange(len(values)),
            "numerator": [str(value.numerator) for value in values],
            "denominator": [str(value.denominator) for value in values],
        }
    )


def _no_collisions(domain: Domain, name: str) -> None:
    for role, reserved in RESERVED.items():
        for field in getattr(domain.roles, role):
            if field.name.lower() in reserved:
                raise UsageError(
                    f"column {field.name!r} would collide with a column of the release; rename it in source.query"
                )
    if name.lower() in {*TABLES, "privsql_manifest"}:
        raise UsageError(f"release.name {name!r} is the name of a table of the release; choose another")
