"""Check that a release can have come from its source: quasi-identifiers and sensitive values compared together.

With n(q, x) records of the source by quasi-identifiers q and value x, c(q, g) rows of bucket g that have q, and
l(g, x) values that it lists, there must be whole numbers y(q, x, g) >= 0, how many records with q and x lie in g:

    sum_g y = n(q, x),    sum_x y = c(q, g),    sum_q y = l(g, x).

Fake values are those of one more q, which has as many rows in every bucket as that has fakes; records that are left
out lie in one more bucket. Whether such y exist is a three-way transportation problem, which is hard in general;
compared is what must hold, in whole numbers. Bounds on every y follow from the sums and from each other until they
stand still (where q stands in one bucket, or has one value, they give y at once), and no sum may become impossible.
Where that leaves little open, the slices of every q, every x and every g must be feasible transports by themselves:
maximum flows.

A release whose quasi-identifiers say little about single records can have come from many tables, and from a shuffled
one too; what was compared says for how many records the release and the source together leave one value only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, fill, temp_table
from privsql.model.arrays import largest_transport
from privsql.model.hashing import BATCH
from privsql.model.packing import count_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Hole
    from privsql.model.checks import CheckedRelease
    from privsql.model.records import Records

    Release = CheckedRelease[Any, Any]

Ints = NDArray[np.int64]

MOST = 10_000_000  # (q, x, g) that are looked at; the most frequent q beyond that count as one
OPEN = 1_000_000  # of them that may be open for flows to be looked for
ROUNDS = 30  # of tightening; more would tell more
PROGRESS = 0.01  # share of what is open that a round must settle for another one
TOGETHER, FAKES, LEFT_OUT = -2, -1, -1  # the q that count as one, the q of fakes, the bucket of records left out
AT_ONCE = 2**17  # records that are counted at a time, few enough for a cache
SHIFT = 32  # bits of a value beside a bucket
LARGEST = 2**31 - 1  # that a flow can hold
KINDS = ("own", "lying", "listed")  # (q, x), (q, g), (g, x)
FIRST = ("by_value", "by_bucket")  # what is joined first: the first two kinds, or the last two


@dataclass(frozen=True)
class MarginRows:
    """One kind of sums: two numbers (k,), such as q and x, and between what (k,) each sum lies."""

    first: Ints
    second: Ints
    least: Ints
    most: Ints

    @staticmethod
    def join(parts: Iterable[MarginRows]) -> MarginRows:
        """Return the rows of parts, one after the other."""
        columns = zip(*((one.first, one.second, one.least, one.most) for one in parts), strict=True)
        return MarginRows(*map(np.concatenate, columns))

    def choose_rows(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> MarginRows:
        """Return the rows of a mask (k,), or in another order."""
        if chosen.dtype == np.bool_ and chosen.all():
            return self
        return MarginRows(*(part[chosen] for part in (self.first, self.second, self.least, self.most)))

    @property
    def kinds(self) -> int:
        """Return how many first numbers there are, from 0 on."""
        return int(self.first.max(initial=-1)) + 1


NO_ROWS = MarginRows(*[np.zeros(0, dtype=np.int64)] * 4)


@dataclass(frozen=True)
class MarginSums:
    """Sums of one kind: to which of them each y belongs (T,), and between what each lies (k,)."""

    place: Ints
    least: Ints
    most: Ints

    def add_up(self, y: Ints) -> Ints:
        """Return the sums of y (k,) over its sets; exact, as they are far below 2^53."""
        return np.bincount(self.place, y, minlength=len(self.least)).astype(np.int64)


def compare_jointly(release: Release, source: Records, *, fakes: int, left_out: bool) -> tuple[list[str], str]:
    """Compare a release with the source's records: sums that can't be, and in words what was compared."""
    rows, known, records = _count_margins(release, source, fakes=fakes, left_out=left_out)
    met = _find_meetings(release.db, rows)
    sums = {name: MarginSums(met[name].to_numpy().astype(np.int64), one.least, one.most) for name, one in rows.items()}
    bounds = tighten_bounds(sums)
    known += int(bounds.low[rows["own"].first[sums["own"].place] != FAKES].sum())
    how = "compared by bounds and flows" if bounds.flows else "compared by bounds"
    sentence = f"{known:,} of {records:,} records have one possible place; {bounds.left:,} choices are open ({how})"
    if (rows["own"].first == TOGETHER).any():
        sentence += "; the most frequent quasi-identifiers counted as one"
    return _explain_wrong(rows, bounds.wrong, [name for name, *_ in release.list_values()]), sentence


# The three kinds of sums ---


@dataclass(frozen=True)
class SourceSums:
    """(q, x) and (q, g) of the q that have several values and lie in several buckets.

    ``known`` (r,) ascending: bucket and value of every other record, as ``join_numbers`` writes them; ``had`` (m,): the
    records of each value.
    """

    own: MarginRows
    lying: MarginRows
    known: Ints
    had: Ints

    @staticmethod
    def collect(parts: Iterable[tuple[MarginRows, MarginRows]], *, place: bool, left_out: bool) -> SourceSums:
        """Collect (q, x) and (q, g), parts of which number their q from 0; ``place``: find what is known."""
        own, lying, known, had, first = [NO_ROWS], [NO_ROWS], [NO_ROWS.first], NO_ROWS.first, 0
        for by_value, by_bucket in parts:
            counts = np.bincount(by_value.second, by_value.least, len(had)).astype(np.int64)
            counts[: len(had)] += had
            had = counts
            both = by_value, MarginRows.join((by_bucket, _missing_rows(by_value, by_bucket))) if left_out else by_bucket
            open_ = np.ones(max(one.kinds for one in both), np.bool_)
            if place:
                records, open_ = _place_single(*both)
                known.append(records)
            numbers = np.cumsum(open_) - 1 + first
            for rows, found in zip(both, (own, lying), strict=True):
                chosen = rows.choose_rows(open_[rows.first])
                found.append(replace(chosen, first=numbers[chosen.first]))
            first += int(open_.sum())
        placed = np.concatenate(known)
        placed.sort()
        return SourceSums(MarginRows.join(own), MarginRows.join(lying), placed, had)


def join_numbers(buckets: Ints, values: Ints) -> Ints:
    """Return a bucket and a value as one number."""
    return (buckets - LEFT_OUT) << SHIFT | values


def take_known(listed: MarginRows, known: Ints) -> MarginRows | None:
    """Return what buckets list, in their order, beside known buckets and values (r,) ascending; None where these
    contradict it.
    """
    keys = join_numbers(listed.first, listed.second)
    placed = np.diff(np.searchsorted(known, keys, side="right"), prepend=0)
    if (placed > listed.most).any() or not np.array_equal(np.repeat(keys, placed), known):
        return None
    rest = replace(listed, least=np.maximum(listed.least - placed, 0), most=listed.most - placed)
    return rest.choose_rows(rest.most > 0)


def _read_listed(release: Release) -> MarginRows:
    """Read the buckets and values of ST in their order, a batch at a time."""
    listed = release.fill_query("verify/bucket_values", same_value="st v")
    with release.db.stream_batches(listed, BATCH) as batches:
        parts = [[numbers.to_numpy().astype(np.int64) for numbers in batch.columns] for batch in batches]
    bid, code, n = map(np.concatenate, zip([NO_ROWS.first] * 3, *parts, strict=True))
    keys = join_numbers(bid, code)
    rows = MarginRows(bid, code, n, n)
    return rows.choose_rows(np.argsort(keys)) if (keys[1:] < keys[:-1]).any() else rows


def _count_margins(
    release: Release, source: Records, *, fakes: int, left_out: bool
) -> tuple[dict[str, MarginRows], int, int]:
    """Count the sums of the records whose place is not known, and how many records there are of others, and in all.

    Known is where the sums leave one place, unless these places contradict a sum.
    """
    stated = _read_listed(release)
    for place in (True, False):
        sums = SourceSums.collect(_read_parts(release, source), place=place, left_out=left_out)
        due, fake = _add_fakes_and_left_out(stated, sums.had, fakes=fakes, left_out=left_out)
        listed = take_known(due, sums.known) if place else due
        if listed is not None:
            break
    own, lying = _join_frequent(sums.own, sums.lying, max(map(int, release.manifest.facts["setting"])))
    rows = {"own": MarginRows.join((own, fake[0])), "lying": MarginRows.join((lying, fake[1])), "listed": listed or due}
    return rows, len(sums.known), int(sums.had.sum())


def _read_parts(release: Release, source: Records) -> Iterator[tuple[MarginRows, MarginRows]]:
    """Yield (q, x) and (q, g) of some q at a time, numbered from 0: among integers, where these hold them."""
    rows = exp.select(*release.roles.qi_columns(), "bid").from_(release.view("qit"))
    lying = source.packed.pair_rows(release.db, rows) if source.packed is not None else None
    if source.packed is None or lying is None:
        yield _count_in_sql(release, source)
        return
    own, room = source.packed.pairs, source.packed.room
    ends = np.unique(own[AT_ONCE::AT_ONCE] >> np.uint64(room)) << np.uint64(room)
    for pairs, placed in zip(*(np.split(one, np.searchsorted(one, ends)) for one in (own, lying)), strict=True):
        (q, code, n), (p, bid, m) = (count_pairs(one, room) for one in (pairs, placed))
        is_first = np.append(True, q[1:] != q[:-1])[: len(q)]
        kinds = q[is_first]
        at = np.searchsorted(kinds, p)
        is_known = np.append(kinds, -1)[at] == p
        yield MarginRows(np.cumsum(is_first) - 1, code, n, n), MarginRows(at, bid, m, m).choose_rows(is_known)


def _count_in_sql(release: Release, source: Records) -> tuple[MarginRows, MarginRows]:
    """Count (q, x) and (q, g) of any columns."""
    source.sort_records()
    reads: dict[str, Hole] = {"records": temp_table("records"), "combinations": temp_table("j_kinds")}
    release.db.create_table("j_kinds", release.fill_query("verify/combinations", records=reads["records"]))
    own = release.fill_query("verify/combination_values", **reads, same_qi="r k", same_value="r v")
    lying = release.fill_query("verify/combination_buckets", combinations=reads["combinations"], same_qi="q k")
    counted = []
    for query in (own, lying):
        first, second, n = (numbers.to_numpy().astype(np.int64) for numbers in release.db.arrow(query).columns)
        counted.append(MarginRows(first, second, n, n))
    release.db.drop("j_kinds")
    return counted[0], counted[1]


def _join_frequent(by_value: MarginRows, by_bucket: MarginRows, size: int) -> tuple[MarginRows, MarginRows]:
    """Count the most frequent q, beyond ``MOST`` of (q, x, g), as one.

    A q of n records lies in n buckets at most, in each of which it meets as many values as that bucket holds (``size``
    at most), and no more than n.
    """
    n = np.bincount(by_value.first, by_value.least).astype(np.int64)
    order = np.argsort(n, kind="stable")
    frequent = np.zeros(len(n), dtype=np.bool_)
    frequent[order[np.cumsum((n * np.minimum(n, size))[order]) > MOST]] = True
    if not frequent.any():
        return by_value, by_bucket

    def join(rows: MarginRows) -> MarginRows:
        joined = rows.choose_rows(frequent[rows.first])
        seconds, place = np.unique(joined.second, return_inverse=True)
        sums = np.bincount(place, joined.least).astype(np.int64)
        together = MarginRows(np.full(len(seconds), TOGETHER), seconds, sums, sums)
        return MarginRows.join((rows.choose_rows(~frequent[rows.first]), together))

    return join(by_value), join(by_bucket)


def _place_single(by_value: MarginRows, by_bucket: MarginRows) -> tuple[Ints, NDArray[np.bool_]]:
    """Return bucket and value of the records of each q with one value or one bucket, and a mask of the other q."""
    kinds = max(by_value.kinds, by_bucket.kinds)
    n, m = (np.bincount(one.first, one.least, kinds) for one in (by_value, by_bucket))
    has_value, has_bucket = (np.bincount(one.first, minlength=kinds) == 1 for one in (by_value, by_bucket))
    single = (n == m) & (has_value | has_bucket)
    value, bucket = np.zeros(kinds, dtype=np.int64), np.zeros(kinds, dtype=np.int64)
    value[by_value.first], bucket[by_bucket.first] = by_value.second, by_bucket.second
    here, there = (
        by_bucket.choose_rows((single & has_value)[by_bucket.first]),
        by_value.choose_rows((single & ~has_value)[by_value.first]),
    )
    keys = join_numbers(here.second, value[here.first]), join_numbers(bucket[there.first], there.second)
    return np.repeat(np.concatenate(keys), np.concatenate((here.least, there.least))), ~single


def _find_meetings(db: Relations, rows: dict[str, MarginRows]) -> pa.Table:
    """The (q, x, g) that there can be: by each kind the row to which they belong."""
    numbers = {"own": ("qid", "code"), "lying": ("qid", "bid"), "listed": ("bid", "code")}
    tables = {
        name: pa.table([np.arange(len(one.first)), one.first, one.second], names=["place", *numbers[name]])
        for name, one in rows.items()
    }
    tables["lying"] = tables["lying"].append_column("by_value", pa.array(is_by_value(rows)))
    for name, one in tables.items():
        db.register_arrow(f"j_{name}", one)
    of: Holes = {name: temp_table(f"j_{name}") for name in (*KINDS, *FIRST)}
    for name in FIRST:
        reads = {hole: of[hole] for hole in ("lying", "own" if name == "by_value" else "listed")}
        db.create_table(f"j_{name}", fill(f"verify/meetings_{name}", reads))
    met = db.arrow(fill("verify/meetings", {name: one for name, one in of.items() if name != "lying"}))
    db.drop(*(f"j_{name}" for name in of))
    return met


def is_by_value(rows: dict[str, MarginRows]) -> NDArray[np.bool_]:
    """Return for every (q, g) whether q has fewer values times buckets than its buckets list values (k,)."""
    source_rows, lying, listed = (rows[name] for name in KINDS)
    least = min(TOGETHER, LEFT_OUT)  # the smallest number of a q and of a bucket
    lists = np.bincount(listed.first - least, minlength=int(lying.second.max(initial=least)) - least + 1)
    q = lying.first - least
    kinds = int(max(q.max(initial=0), (source_rows.first - least).max(initial=0))) + 1
    values, buckets = np.bincount(source_rows.first - least, minlength=kinds), np.bincount(q, minlength=kinds)
    listed_values = np.bincount(q, lists[lying.second - least], minlength=kinds)
    return np.asarray((values * buckets <= listed_values)[q])


def _add_fakes_and_left_out(
    listed: MarginRows, had: Ints, *, fakes: int, left_out: bool
) -> tuple[MarginRows, tuple[MarginRows, MarginRows]]:
    """Return what is listed with the bucket of records left out, and (q, x) and (q, g) of the q of the fakes.

    ``had`` (m,): the source's records of each value.
    """
    fake = NO_ROWS, NO_ROWS
    if not fakes and not left_out:
        return listed, fake
    buckets = np.unique(listed.first)
    codes = np.arange(max(len(had), int(listed.second.max(initial=-1)) + 1))
    times = np.bincount(listed.second, listed.most, len(codes)).astype(np.int64)
    had = np.append(had, np.zeros(len(codes) - len(had), np.int64))
    if fakes:
        least, most = (np.maximum(times - had, 0), times) if left_out else (times - had, times - had)
        each = np.full(len(buckets), fakes)
        fake = (
            MarginRows(np.full(len(codes), FAKES), codes, least, most),
            MarginRows(np.full(len(buckets), FAKES), buckets, each, each),
        )
    if left_out:
        least, most = (np.maximum(had - times, 0), had) if fakes else (had - times, had - times)
        listed = MarginRows.join((MarginRows(np.full(len(codes), LEFT_OUT), codes, least, most), listed))
    return listed, fake


def _missing_rows(by_value: MarginRows, by_bucket: MarginRows) -> MarginRows:
    """Return as (q, g) the records that the release has fewer of, in the bucket of records left out."""
    kinds = max(by_value.kinds, by_bucket.kinds)
    n, m = (np.bincount(one.first, one.least, kinds).astype(np.int64) for one in (by_value, by_bucket))
    q = np.flatnonzero(n > m)
    return MarginRows(q, np.full(len(q), LEFT_OUT), (n - m)[q], (n - m)[q])


# What follows from them ---


@dataclass(frozen=True)
class TightenedBounds:
    """``wrong``: by kind the sums that can't be; ``low`` (T,): what every y is at least; ``left``: those that are open.

    ``flows``: whether flows were looked for.
    """

    wrong: dict[str, Ints]
    low: Ints
    left: int
    flows: bool


def tighten_bounds(sums: dict[str, MarginSums]) -> TightenedBounds:
    """Bounds on every y, tightened until they stand still, and flows where few y stay open."""
    high = np.min([one.most[one.place] for one in sums.values()], axis=0, initial=np.iinfo(np.int64).max)
    low, least = np.zeros_like(high), np.zeros_like(high)
    still = np.arange(len(high))  # the y that are open
    for _ in range(ROUNDS):
        before = int((high - low).sum())
        for name, one in sums.items():
            fewest, most = one.add_up(low), one.add_up(high)
            wrong = np.flatnonzero((most < one.least) | (fewest > one.most))
            if len(wrong):
                return TightenedBounds({name: wrong}, least, len(still), flows=False)
            raised = np.maximum(low, (one.least - most)[one.place] + high)
            low, high = raised, np.minimum(high, (one.most - fewest)[one.place] + low)
            wrong = np.unique(one.place[low > high])
            if len(wrong):
                return TightenedBounds({name: wrong}, least, len(still), flows=False)
        least[still] = low
        sums, low, high, still = _drop_known(sums, low, high, still)
        if int((high - low).sum()) >= (1 - PROGRESS) * before:
            break
    slices, looked = _infeasible_slices(sums, low, high)
    return TightenedBounds(slices, least, len(still), flows=looked)


def _drop_known(
    sums: dict[str, MarginSums], low: Ints, high: Ints, still: Ints
) -> tuple[dict[str, MarginSums], Ints, Ints, Ints]:
    """Without the y that are known: the sums are those of the others."""
    free = low < high
    rest = {}
    for name, one in sums.items():
        known = one.add_up(np.where(free, 0, low))
        rest[name] = MarginSums(one.place[free], one.least - known, one.most - known)
    return rest, low[free], high[free], still[free]


def _infeasible_slices(sums: dict[str, MarginSums], low: Ints, high: Ints) -> tuple[dict[str, Ints], bool]:
    """Kinds of slices that are no feasible transport; none where too much is open, or sums are not known exactly."""
    if not len(low):
        return {}, True
    if len(low) > OPEN or any((one.least != one.most).any() for one in sums.values()):
        return {}, False
    due = {name: replace(one, least=one.least - one.add_up(low)) for name, one in sums.items()}
    for first, second in combinations(KINDS, 2):
        total = int(due[first].least.sum())
        if total > LARGEST:
            return {}, False
        ways = due[first].place, due[second].place
        if largest_transport(due[first].least, due[second].least, ways, high - low) < total:
            return {first: np.arange(0)}, True
    return {}, True


# In words ---


def _explain_wrong(rows: dict[str, MarginRows], wrong: dict[str, Ints], values: list[str]) -> list[str]:
    lines = []
    for name, places in wrong.items():
        one = rows[name]
        if not len(places):
            lines.append("no assignment of the source's values to buckets gives these buckets (by a flow)")
        for first, second, n in zip(one.first[places], one.second[places], one.most[places], strict=True):
            if name == "lying":
                lines.append(f"bucket {second}: {n} of its records can't have the values that it lists")
            elif name == "own":
                lines.append(f"value {values[second]}: {n} records of the source can't lie in buckets that list it")
            else:
                lines.append(f"bucket {first}: its records can't have {values[second]} {n} times")
    return lines
