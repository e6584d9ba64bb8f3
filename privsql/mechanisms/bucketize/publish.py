"""Assign records to buckets, and write the tables of a bucketized release."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import Holes, Roles, alias_as, all_rows, column, fill, table, temp_table
from privsql.mechanisms.assignment import RankAssignment, RecordParts
from privsql.mechanisms.bucketize import beliefs
from privsql.mechanisms.bucketize.bounds import allowed_values
from privsql.mechanisms.bucketize.estimator import (
    ListedPairs,
    channel_facts,
    estimator_table,
    find_linear_estimator,
    make_channel,
)
from privsql.mechanisms.bucketize.layout import BucketRuns, Pieces, make_layout, place_singly, runs_from_entries
from privsql.mechanisms.bucketize.model import Bids, BucketProblem, Ints, StoredPlan
from privsql.mechanisms.bucketize.parameters import (
    BeliefFacts,
    BucketFacts,
    Bucketize,
    BucketizeFacts,
    CertaintyFacts,
    FakeFacts,
)
from privsql.mechanisms.bucketize.plan import plan_buckets, plan_facts, spread_left_out
from privsql.mechanisms.dp.tables import write_release_table
from privsql.model.hashing import source_changed_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.bucketize import fakes
    from privsql.model.records import Records

# Assignment -----------------------------------------------------------------------------------------------------------
# Records and listed values are written as streams.
#
# A layout gives the places of each value in uniformly random order, whatever the records are. The j-th record of a
# value takes the j-th of these places, so the order of records does not matter within one release. But a key may be
# used again. Then records must come in the same order (``coded_records``): two releases of one table with one key that
# differed only by the order of rows would tell more together than each of them.

BID = pa.field("bid", pa.int32())


def write_records(db: Relations, source: Records, bids: Bids, *, ordered: bool) -> None:
    """Write QIT, given the bucket of every record.

    Args:
        db: The engine that holds the source and the release.
        source: The source.
        bids: The buckets of the records, value by value (n,); negative for records that are left out.
        ordered: Whether the records of a value take its buckets in the order of their quasi-identifiers; else in any
            order. It matters if the key that draws the buckets is used again.

    Raises:
        GuaranteeError: The source has changed since its records were counted.
    """
    source.history.groups = bids
    if source.packed is not None:
        grouped = source.packed.stream_groups(bids)
        if grouped is not None:
            db.register_arrow("assigned", grouped)
            _write_qit(db, source.roles, temp_table("assigned"), is_sorted=True)
            db.drop("assigned")
            source.drop_relations()
            return
    with db.open_sibling() as writer, db.stream_batches(source.coded_records(ordered=ordered), BATCH) as coded:
        assigned_records = AssignedRecords(coded, bids, np.array(source.counts, dtype=np.int64))
        writer.register_arrow("assigned", assigned_records.as_stream())
        _write_qit(writer, source.roles, temp_table("assigned"))
    assigned_records.require_all_placed()


def write_ranked(db: Relations, source: Records, layout: Pieces, key: Key) -> None:
    """Write QIT by SQL alone, so that every engine puts the same records into the same buckets.

    The records of each value are ranked by keyed hashes. ``layout``, the planned buckets of each value's records, gives
    the bucket of each rank. An engine whose rows have no order keeps relation ``assigned`` (q0.., code, bid), from
    which ``write_counted`` makes ST.
    """
    roles = source.roles
    assignment = RankAssignment(db, source, key, RecordParts(np.array(source.counts, dtype=np.int64)))
    segments = layout.make_segments()
    assignment.store_numbers(segments)
    codes = [] if db.keeps_order else [alias_as(exp.cast(column("part", "r"), "INTEGER"), "code")]
    numbered = assignment.query_assigned(segments, [*roles.qi_columns("r"), *codes]).subquery("dealt")
    assigned = exp.select("*", alias_as(column("number"), "bid")).from_(numbered)
    if db.keeps_order:
        _write_qit(db, roles, assigned.subquery())
    else:
        db.create_table("assigned", assigned, title="Assigning records to buckets")
        _write_qit(db, roles, temp_table("assigned"))
    assignment.drop_relations()


def write_counted(db: Relations, roles: Roles, fake_bids: Ints, fake_codes: Ints) -> None:
    """Write ST by counting, in SQL, the records and the fakes of each value in each bucket.

    It is used for engines whose rows have no order. Relation ``assigned`` (q0.., code, bid) has the bucket of each
    record. Fakes are values that a bucket lists but that belong to none of its records.

    Args:
        db: The engine that holds ``assigned``.
        roles: The columns by role.
        fake_bids: The bucket of each fake value.
        fake_codes: The code of each fake value.
    """
    db.register_arrow("fakes", pa.table({"bid": fake_bids.astype(np.int32), "code": fake_codes.astype(np.int32)}))
    composed = fill("bucketize/composed", {"assigned": temp_table("assigned"), "fakes": temp_table("fakes")})
    holes: Holes = {"composition": composed.subquery(), "domain": temp_table("domain"), "sa": roles.sa_typed("d")}
    holes |= roles.by_sa.alias_holes("bid", "count")
    db.create_table("st", fill("core/st", holes), into="release", title="Writing the sensitive table")
    db.drop("assigned", "fakes")


def _write_qit(db: Relations, roles: Roles, assigned: exp.Expr, *, is_sorted: bool = False) -> None:
    holes: Holes = {"assigned": assigned, "qi": roles.qi_typed("r"), "qi_order": roles.qi_columns("r")}
    holes |= roles.by_qi.alias_holes("bid")
    query = fill("bucketize/qit", holes)
    if is_sorted:
        query.set("order", None)
    db.create_table("qit", query, into="release", title="Assigning records to buckets")


def write_values(db: Relations, roles: Roles, runs: BucketRuns, values: pa.Table) -> None:
    """Write ST from arrays, sorted by bucket and value, in a second session of the engine.

    So QIT can be written at the same time.

    Args:
        db: The engine.
        roles: The columns by role.
        runs: What each bucket lists.
        values: The columns of the sensitive values (s0..), by code.
    """
    with db.open_sibling() as writer:
        writer.register_arrow("listed", stream_listed(runs, values))
        holes: Holes = {"listed": temp_table("listed"), "sa": roles.sa_typed("l")}
        holes |= roles.by_sa.alias_holes("bid", "count")
        writer.create_table("st", fill("duckdb/st", holes), into="release")


class AssignedRecords:
    """A stream of the source's records, in which the code of each sensitive value is replaced by the record's bucket.

    The stream is written as QIT: columns (q0.., code) become (q0.., bid). The buckets of each value's records were
    drawn beforehand, and the j-th record of a value takes the j-th of them.
    """

    def __init__(self, coded: pa.RecordBatchReader, bids: Bids, counts: Ints) -> None:
        self._coded, self._bids = coded, bids
        self._ends = np.cumsum(counts)
        self._next = self._ends - counts  # the first free place of each value

    def as_stream(self) -> pa.RecordBatchReader:
        """Return the stream (q0.., bid), in the order of the records."""
        schema = pa.schema([*list(self._coded.schema)[:-1], BID])
        batches = (
            pa.RecordBatch.from_arrays([*columns, pa.array(self._take_places(codes.to_numpy()))], schema=schema)
            for *columns, codes in (batch.columns for batch in self._coded)
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def require_all_placed(self) -> None:
        """Raise ``GuaranteeError`` if the stream, at its end, had fewer records of a value than were counted before."""
        if (self._next != self._ends).any():
            raise source_changed_error()

    def _take_places(self, codes: NDArray[np.int32]) -> Bids:
        """Return the buckets of the next records of the stream: each takes the next free place of its value.

        Args:
            codes: The codes of the records' sensitive values.

        Raises:
            GuaranteeError: There are more records of a value than were counted.
        """
        number = np.bincount(codes, minlength=len(self._ends))
        if (self._next + number > self._ends).any():
            raise source_changed_error()
        small = codes.astype(np.uint16) if len(self._ends) <= 2**16 else codes  # numpy uses a radix sort for 16 bits
        order = np.argsort(small, kind="stable")
        ahead = self._next - np.cumsum(number) + number
        places = np.empty(len(codes), dtype=np.int32)
        places[order] = self._bids[np.arange(len(codes)) + np.repeat(ahead, number)]
        self._next += number
        return places


def stream_listed(runs: BucketRuns, values: pa.Table) -> pa.RecordBatchReader:
    """Return the rows of ST as a stream (bid, s0.., records), by bucket and value.

    Args:
        runs: What each bucket lists.
        values: The columns of the sensitive values (s0..), by code.
    """
    words = {name: values[name].combine_chunks() for name in values.column_names}
    fields = [pa.field(name, pa.dictionary(pa.int32(), texts.type)) for name, texts in words.items()]
    schema = pa.schema([BID, *fields, pa.field("records", pa.int32())])

    def make_batches() -> Iterator[pa.RecordBatch]:
        for batch in runs.as_stream():
            bid, code, records = batch.columns
            named = [pa.DictionaryArray.from_arrays(code, texts) for texts in words.values()]
            yield pa.RecordBatch.from_arrays([bid, *named, records], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, make_batches())


# Publishing -----------------------------------------------------------------------------------------------------------

PAIR, RECORD, LISTED, VALUE = 150, 13, 24, 1000  # bytes outside the engine for each of these
DIGITS = 10**4  # the stated probability that a listed value is real is rounded up to a multiple of 1/DIGITS


def publish(db: Relations, source: Records, params: Bucketize, key: Key) -> BucketizeFacts:
    """Write the tables of a release into database ``release``, and return its facts."""
    from privsql.mechanisms.bucketize import fakes

    plan, problem = plan_buckets(db, source, params, source.history.setting)
    source.history.setting = StoredPlan.from_plan(plan, problem).model_dump(mode="json")
    together = (tuple((one.members, str(one.threshold)) for one in problem.bounds),) if problem.bounds else ()
    noise = key.random_generator("bucketize", plan.setting.items, tuple(source.counts), tuple(source.labels), *together)
    roles, setting = source.roles, plan.setting.items
    facts = plan_facts(plan, problem, params, sum(source.counts))

    # Lay out the listed values. With fakes, draw which of them are fake.
    hidden: fakes.HiddenValues | None = None
    if params.fake_values:
        hidden = fakes.hide_values(plan, problem.counts, params.fake_values, params.effective_layout, noise)
        layout = place_singly(hidden.bids, problem.counts)
    else:
        layout = make_layout(plan, params.effective_layout, noise, problem.trees)
    runs = layout.list_runs(plan.setting)
    reserve_memory(db, runs)
    values = db.arrow(all_rows(temp_table("domain")).order_by("code")).select(list(roles.sa_keys))  # (s0..) by code

    def write_lists(listed: BucketRuns, *, whole: bool) -> pa.Table:
        """Count how often values share a bucket in these lists; if they are the ``whole`` lists, write ST as well."""
        if whole and db.keeps_order:
            write_values(db, roles, listed, values)
        return listed.count_meetings()

    with ThreadPoolExecutor(1) as executor:  # numpy and the engine use different cores
        counted = executor.submit(write_lists, runs, whole=hidden is None)
        if source.order == "portable":
            write_ranked(db, source, layout, key)
        else:
            counts = np.array(source.counts, dtype=np.int64)
            bids = spread_left_out(layout.draw_places(noise), problem.counts, counts, noise)
            write_records(db, source, bids, ordered=not key.fresh)
        meetings = counted.result()
    fake_bids = fake_codes = np.zeros(0, dtype=np.int64)
    if hidden is not None:
        fake_bids = hidden.fake_bids
        fake_codes, more = _admit_fakes(db, roles, params, facts, hidden, runs, meetings, noise)
        facts = BucketFacts.join_parts(facts, more)
        bids_of_real, codes_of_real = runs.listed_pairs
        every, codes = np.concatenate((bids_of_real, fake_bids)), np.concatenate((codes_of_real, fake_codes))
        runs = runs_from_entries(every, codes, runs.values, setting, params.fake_values)
        meetings = write_lists(runs, whole=True)
    if not db.keeps_order:
        write_counted(db, roles, fake_bids, fake_codes)

    # Write what follows from ST, and refuse values that are certain without permission.
    through = _write_channel(db, roles, runs, meetings, problem, facts)
    listed_columns = [*roles.sa_in(), *roles.by_sa.select_columns("bid", "count")]
    db.create_view("published", exp.select(*listed_columns).from_(table("st", "release")))
    st = beliefs.SensitiveTable(db, roles, facts, temp_table("published"), temp_table("domain"))
    stated = BucketizeFacts.join_parts(facts, through, st.measure_beliefs(), layout=params.effective_layout)
    excused = allowed_values(params, problem.labels, problem.thresholds)
    if stated.reaches_certainty and excused is not None:
        beliefs.refuse_certainty(st.count_certain(excused))
    return stated


def reserve_memory(db: Relations, runs: BucketRuns) -> None:
    """Limit the engine's memory so that enough is left for the arrays that publishing makes in Python.

    Raises:
        EngineError: The engine's memory limit is below what these arrays need.
    """
    pairs, records = runs.most_meetings, int(runs.listed_counts.sum())
    run_values = sum(one.codes.size for one in runs.classes)
    size = PAIR * pairs + RECORD * records + LISTED * run_values + VALUE * runs.values
    db.reserve_memory(size, f"a release of {runs.values:,} values, of which up to {pairs:,} pairs meet,")


def _write_channel(
    db: Relations, roles: Roles, runs: BucketRuns, meetings: pa.Table, problem: BucketProblem, facts: BucketFacts
) -> BeliefFacts:
    """Write the three tables from which answers are estimated, and return the facts that follow from them.

    They hold the values, how often two values share a bucket, and linear weights. A weight says how much a value in a
    record's bucket adds to the estimated count of a value. The table of weights is empty if the view ``weighted`` uses
    the values' shares of buckets instead. The facts are the mean belief in true values, and the singular values of the
    channel (the matrix from true to listed values).
    """
    channel, given, thresholds = make_channel(meetings, facts).channel, temp_table("given"), problem.thresholds
    estimator = find_linear_estimator(channel, facts)
    weights = fill("bucketize/estimator", {"weights": given})
    write_release_table(db, "privsql_estimator", estimator_table(estimator), weights)
    fractions = {
        "code": np.arange(len(thresholds)),
        "records": runs.listed_counts,
        "numerator": [str(value.numerator) for value in thresholds],
        "denominator": [str(value.denominator) for value in thresholds],
        "deviation": pa.array(estimator.deviations if estimator else [None] * len(thresholds), pa.float64()),
    }
    holes: Holes = {"fractions": given, "domain": temp_table("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.alias_holes("code", "records", "numerator", "denominator", "deviation")
    write_release_table(db, "privsql_values", pa.table(fractions), fill("bucketize/values", holes))
    write_release_table(db, "privsql_channel", meetings, fill("bucketize/channel", {"meetings": given}))
    return channel_facts(channel)


def _admit_fakes(
    db: Relations,
    roles: Roles,
    params: Bucketize,
    facts: BucketFacts,
    hidden: fakes.HiddenValues,
    runs: BucketRuns,
    meetings: pa.Table,
    noise: Shuffler,
) -> tuple[Ints, FakeFacts]:
    """Return the codes of the fakes (listed values that belong to no record of their bucket), and the facts on them.

    If the parameters ask for it, buckets first exchange fakes that an attacker can exclude for some record of the
    bucket. The attacker sees that such a value is rare among similar records.

    Args:
        db: The engine that holds table ``qit`` of the release.
        roles: The columns by role.
        params: The parameters.
        facts: The facts of the plan.
        hidden: The fakes as they were drawn.
        runs: The real values that each bucket lists.
        meetings: How often two real values share a bucket.
        noise: The random numbers.
    """
    from privsql.mechanisms.bucketize import fakes

    if not params.exclude_negative and facts.certainty is not None:  # fakes are as they were drawn
        certainty = CertaintyFacts.join_parts(facts.certainty, anywhere=ceil(hidden.highest * DIGITS) / DIGITS)
        return hidden.fake_codes, FakeFacts(weak_fakes=0, certainty=certainty)
    plainly = ListedPairs.read(meetings, [size for size, _ in facts.sizes]).make_channel(None)
    known = fakes.find_excluded(db, roles, runs, plainly.channel)
    after = fakes.avoid_excluded(runs, hidden.fake_bids, hidden.fake_codes, known, noise)
    fakes.refuse_weak(after.weak, params.no_admissible_fake)
    return after.codes, FakeFacts(weak_fakes=after.weak, excluded_real=after.certain)
