"""Assign records to buckets and publish the tables of a bucketized release."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, table, temp
from privsql.mechanisms.bucketize import beliefs, fakes
from privsql.mechanisms.bucketize.estimator import directions, listed_values, through
from privsql.mechanisms.bucketize.fake_chances import times_listed
from privsql.mechanisms.bucketize.informative import arrange
from privsql.mechanisms.bucketize.layout import Singles, of_entries
from privsql.mechanisms.bucketize.search import search, spread
from privsql.mechanisms.private import Dealing, Parts
from privsql.model.records import changed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.bucketize.layout import Layout, Runs
    from privsql.mechanisms.bucketize.model import Bids, Ints, Plan, Problem
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.records import Records

# Assignment -----------------------------------------------------------------------------------------------------------
# Records and values as they are written: streams in which every record gets its bucket, and every bucket its list.
#
# The places of a layout are in uniformly random order within each value, whatever the records are. So the j-th record
# of a value takes the j-th of its places, and the order in which records come can't matter; but with a key that may
# serve again it must be the same order whenever the table is (``Records.coded``): two releases of one table by one key
# that differ by the order of rows would tell more together than each of them.

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


# Publishing -----------------------------------------------------------------------------------------------------------
# From a plan to the tables of a release: places are drawn, records and values written through SQL.

PAIR, RECORD, LISTED, VALUE = 150, 5, 24, 1000  # bytes that are taken beside the engine for each of them


@dataclass(frozen=True)
class Dealt:
    """Where records lie, what their buckets list, and which fakes are listed beside them."""

    layout: Layout
    runs: Runs
    hidden: fakes.Hidden | None


@dataclass(frozen=True)
class Listing:
    """What the buckets list, and how values meet in them."""

    runs: Runs
    meetings: pa.Table


def publish(db: Relations, source: Records, asked: Bucketize, key: Key) -> dict[str, Any]:
    """Make ``qit``, ``st``, ``privsql_values`` and ``privsql_channel`` in database ``release``; returns the facts."""
    found, problem = search(db, source, asked)
    together = (tuple((one.members, str(one.threshold)) for one in problem.bounds),) if problem.bounds else ()
    noise = key.stream("bucketize", found.setting.items, tuple(source.counts), tuple(source.labels), *together)
    roles = source.roles
    facts = (
        summary(found, problem, sum(source.counts))
        | {"layout": asked.composition}
        | stated_fakes(found, problem, asked)
    )
    made = dealt(found, problem, asked, noise)
    reserve(db, made.runs)
    values = names(db, roles)
    with ThreadPoolExecutor(1) as beside:  # numpy and the engine use different cores
        counted = beside.submit(_listed, db, roles, made, values)
        if source.order == "portable":
            write_ranked(db, source, made.layout, key)
        else:
            bids = spread(made.layout.places(noise), problem.counts, np.array(source.counts, dtype=np.int64), noise)
            write_records(db, source, bids, ordered=not key.fresh)
        listing = counted.result()
    fake: tuple[Ints, Ints] = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    if made.hidden is not None:
        codes, more = _admissible(db, roles, asked, (found, made.hidden, listing), noise)
        facts |= {**more, "certainty": facts["certainty"] | more["certainty"]}
        listing = _beside(listing, made.hidden, codes, found, asked.fake_values)
        fake = made.hidden.fake_bids, codes
        if db.keeps_order:
            write_values(db, roles, listing.runs, values)
    if not db.keeps_order:
        write_counted(db, roles, fake)
    _write_channel(db, roles, listing, problem)
    facts |= directions(listing.meetings, facts)
    db.view("published", exp.select(*roles.sa_in(), *roles.by_sa.read("bid", "count")).from_(table("st", "release")))
    facts |= beliefs.measured(db, temp("published"), temp("domain"), facts, roles).as_facts()
    if beliefs.reaches_certainty(facts) and not beliefs.allows_certainty(asked):
        excused = beliefs.allowed_values(asked, problem.labels, problem.thresholds)
        values = beliefs.list_values(roles, table("privsql_values", "release"))
        beliefs.refuse_certainty(beliefs.count_certain(db, temp("published"), values, facts["setting"], roles, excused))
    return facts


def dealt(found: Plan, problem: Problem, asked: Bucketize, noise: Shuffler) -> Dealt:
    """Draw the buckets of all records, and the fakes."""
    hidden: fakes.Hidden | None = None
    if asked.fake_values:
        hidden = fakes.hide_values(found, problem.counts, asked.fake_values, asked.composition, noise)
        layout: Layout = Singles(hidden.bids, problem.counts)
    else:
        layout = arrange(found, asked.composition, noise, problem.trees)
    return Dealt(layout, layout.runs(found.setting), hidden)


def reserve(db: Relations, runs: Runs) -> None:
    """Leave memory to what is done beside the engine; ``EngineError`` if the limit is less than that takes."""
    pairs, records = runs.most_meetings, int(runs.listed.sum())
    told = sum(one.codes.size for one in runs.classes)  # of runs; as many as records where each bucket is its own
    size = PAIR * pairs + RECORD * records + LISTED * told + VALUE * runs.values
    db.reserve(size, f"a release of {runs.values:,} values, of which up to {pairs:,} pairs meet,")


def _listed(db: Relations, roles: Roles, made: Dealt, values: pa.Table) -> Listing:
    """What the buckets list without fakes, and ST, if that is all."""
    if made.hidden is None and db.keeps_order:
        write_values(db, roles, made.runs, values)
    return Listing(made.runs, made.runs.meetings())


def _write_channel(db: Relations, roles: Roles, listing: Listing, problem: Problem) -> None:
    """The values and the channel."""
    db.put("fractions", _fractions(listing.runs, problem))
    holes: Holes = {"fractions": temp("fractions"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.names("code", "records", "numerator", "denominator")
    db.make("privsql_values", fill("bucketize/values", holes), into="release")
    db.put("meetings", listing.meetings)
    db.make("privsql_channel", fill("bucketize/channel", {"meetings": temp("meetings")}), into="release")
    db.drop("fractions", "meetings")


def _beside(real: Listing, hidden: fakes.Hidden, codes: Ints, found: Plan, sigma: int) -> Listing:
    """What buckets list with fakes ``codes``."""
    bids, values = real.runs.pairs
    every = np.concatenate((bids, hidden.fake_bids)), np.concatenate((values, codes))
    runs = of_entries(*every, real.runs.values, found.setting.items, sigma)
    return Listing(runs, runs.meetings())


def _admissible(
    db: Relations,
    roles: Roles,
    asked: Bucketize,
    made: tuple[Plan, fakes.Hidden, Listing],
    noise: Shuffler,
) -> tuple[Ints, dict[str, Any]]:
    """The fakes, exchanged where negative associations exclude them, and what is stated of them."""
    found, hidden, real = made
    if not asked.exclude_negative:
        anywhere = fakes.round_up(hidden.highest)
        return hidden.fake_codes, {"weak_fakes": 0, "certainty": {"anywhere": anywhere}}
    setting = {str(size): buckets for size, buckets in found.setting.items}
    plainly = through(listed_values(real.meetings, setting), {})
    db.put("composition", real.runs.table().read_all())
    known = fakes.find_excluded(db, roles, setting, plainly.channel)
    db.drop("composition")
    after = fakes.avoid_excluded(real.runs, hidden.fake_bids, hidden.fake_codes, known, noise)
    fakes.refuse_weak(after.weak, asked.no_admissible_fake)
    return after.codes, {"weak_fakes": after.weak, "excluded_real": after.certain, "certainty": {}}


def summary(found: Plan, problem: Problem, records: int) -> dict[str, Any]:
    """The facts of a plan for manifest and output; ``records`` of the source."""
    left_out = records - problem.records
    return {
        "loss": found.loss,
        "mse": found.mse,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "proof": found.proof,
        "setting": {str(size): buckets for size, buckets in found.setting.items},
        **({"left_out": left_out} if left_out else {}),
        **({"bounds": [one.as_fact() for one in problem.bounds]} if problem.bounds else {}),
    }


def stated_fakes(found: Plan, problem: Problem, asked: Bucketize) -> dict[str, Any]:
    """What is stated of the fakes before they are drawn."""
    if not asked.fake_values:
        return {}
    times = times_listed(problem.counts, found.setting.items, asked.fake_values).sum(axis=1)
    return fakes.certainty_facts(problem.counts, times, problem.labels, found.setting, asked.fake_values)


def _fractions(runs: Runs, problem: Problem) -> pa.Table:
    values = problem.thresholds
    return pa.table(
        {
            "code": np.arange(len(values)),
            "records": runs.listed,
            "numerator": [str(value.numerator) for value in values],
            "denominator": [str(value.denominator) for value in values],
        }
    )
