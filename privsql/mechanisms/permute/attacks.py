"""Write permuted records, and measure what adversaries guess of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.attacks import adversaries, suite
from privsql.attacks.scene import CHUNK, Block, Finding, Scene
from privsql.attacks.suite import Adversary
from privsql.engine.database import numbered
from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import Holes, column, fill, named, table, temp
from privsql.errors import GuaranteeError, UsageError
from privsql.mechanisms.permute.answers import Contents, read_contents, through
from privsql.mechanisms.permute.checks import read, unfine
from privsql.mechanisms.permute.grouping import on_axis, scale
from privsql.mechanisms.permute.parameters import extent
from privsql.mechanisms.private import Dealing, Parts, Segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from privsql.answers.channel import Channel
    from privsql.attacks.scene import Floats, Ints, ReleaseView
    from privsql.attacks.suite import Learnt
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.permute.parameters import Extent
    from privsql.model.records import Records

# Assignment -----------------------------------------------------------------------------------------------------------
# From the group of every record to what is published: the contents of the groups, and a shuffle within each.

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


# The adversaries' view ------------------------------------------------------------------------------------------------
# A (k,e)-anonymous release as an adversary sees it: groups of records beside lists of values.


class Permuted(Scene):
    """QIT and ST. No belief in a single value is bounded: (k,e) is about how many and how far apart values are."""

    records, part, independent = "qit", "bid", False
    stated = ("records",)

    @cached_property
    def contents(self) -> Contents:
        """What every group holds; ``GuaranteeError`` if the tables do not agree on it."""
        held = read_contents(self.db, self.roles, self.given.database)
        stated = self.values(["records"])["records"].to_numpy()
        if not np.array_equal(held.totals, stated) or held.groups <= self.parts.max(initial=0):
            raise GuaranteeError("QIT, ST and the list of values do not agree; verify the release")
        return held

    @cached_property
    def unfine(self) -> Ints:
        """Groups that are not (k,e)-anonymous."""
        listed = exp.select(*self.roles.by_sa.read("bid", "count"), *self.roles.sa_in())
        st = listed.from_(table("st", self.given.database)).subquery("st")
        rows = self.db.rows(unfine(st, self.roles, read(self.given.manifest)))
        return np.array([int(row[0]) for row in rows], dtype=np.int64)

    @cached_property
    def channel(self) -> Channel:
        """How many records of every group meet a question."""
        return through(self.contents)

    def seen(self, level: Ints) -> Floats:
        """Records of every group with each level."""
        groups, levels = self.contents.groups, int(level.max()) + 1
        counted = np.bincount(level * groups + self.parts, minlength=levels * groups)
        return counted.reshape(levels, groups).astype(np.float64)

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,)."""
        records = self.contents.totals.astype(np.float64)
        return np.asarray(records / records.sum())

    @property
    def bounds(self) -> Floats:
        """None is promised."""
        return np.ones(self.contents.values)

    def excess(self) -> float:
        """Share of the records in groups that are not (k,e)-anonymous."""
        return float(np.isin(self.parts, self.unfine).mean())

    def ordered(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """QIT and ST."""
        listed = exp.select(named(self.roles.by_sa.column("bid"), "part"), *self.roles.sa_in())
        self.db.view("a_listed", listed.from_(table("st", self.given.database)))
        own = {self.records: (temp("a_records"), ["part", *self.roles.qi_keys])}
        return own | {"st": (temp("a_listed"), ["part", *self.roles.sa_keys])}

    @property
    def numbered(self) -> list[Ints]:
        """None: groups are numbered along the axis."""
        return []

    @property
    def paired(self) -> bool:
        """A group's list of values is shorter than its list of records."""
        return False

    def blocks(self) -> Iterator[Block]:
        """Records of one group beside its distinct values; prior c_g(x)/|g|."""
        held = self.contents
        order = np.argsort(self.parts, kind="stable")
        counts = np.bincount(self.parts, minlength=held.groups)
        ends = np.cumsum(counts)
        listed = np.searchsorted(held.group, np.arange(held.groups + 1))
        for g in range(held.groups):
            own = slice(int(listed[g]), int(listed[g + 1]))
            share = held.records[own] / held.records[own].sum()
            members = order[ends[g] - counts[g] : ends[g]]
            step = max(1, CHUNK // max(1, len(share)))
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                yield Block(rows[None, :], held.code[own][None, :], share[None, None, :])


# Guesses --------------------------------------------------------------------------------------------------------------
# What (k,e)-anonymity promises, and how good guesses are all the same.
#
# Every group has at least k distinct values over a range of at least e: that is looked for, group by group. It bounds
# neither the belief in a single value nor that in a range of values: with c_g(x) of |g| records of a group having x,
# the best exact guess is right with max_x c_g(x)/|g|, and the best guess to within a distance d with max_y sum_{|x - y|
# <= d} c_g(x)/|g|.

POOR = "groups with few or near values"
POOR_KNOWS = "the person's quasi-identifiers; looks for groups with fewer than k values, or a range below e"
EXACT = "best exact guess"
EXACT_KNOWS = "the person's quasi-identifiers; guesses the commonest value of the group"
NEAR = "guess within a distance"
NEAR_KNOWS = "the person's quasi-identifiers; guesses the range of values that most of the group lies in"
TOO_LARGE = "too many groups and values to be learnt from"


def poor(scene: Permuted) -> list[Finding]:
    """The promise itself: share of the groups that are not (k,e)-anonymous."""
    number, held = scene.contents.groups, len(scene.unfine)
    notes = (f"{held:,} groups are not (k,e)-anonymous",) if held else ()
    return [Finding(POOR, POOR_KNOWS, promised=True, attacked=number, unit="groups", above=held / number, notes=notes)]


def exact(scene: Permuted) -> list[Finding]:
    """Belief in the commonest value of the group of every record; how many values are certain, or above 1/2."""
    tally = scene.tally()
    for block in scene.blocks():
        tally.add(block, np.broadcast_to(block.prior, block.shape))
    held = scene.contents
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, held.records)
    sizes = held.sizes
    certain, likely = (int(sizes[chosen].sum()) for chosen in (most == sizes, 2 * most > sizes))
    notes = (f"{certain:,} records' values are certain, {likely:,} are believed beyond 1/2",)
    return [Finding(EXACT, EXACT_KNOWS, promised=False, baseline=scene.baseline, notes=notes, **tally.figures())]


def near(view: ReleaseView, scene: Permuted) -> list[Finding]:
    """Belief that a record's value lies within the distance of the best guess; by default e."""
    asked = read(view.manifest)
    distance = asked.e if view.within is None else _distance(view.within)
    found = scale(view.manifest.sensitive, distance)
    field = view.manifest.sensitive[0].name
    units, width, _ = on_axis(scene.all("privsql_values").sort_by("code")[field].combine_chunks(), found, distance)
    held, sizes = scene.contents, scene.contents.sizes
    best = covered(held, reached(units, 2 * width))
    everyone = np.cumsum(held.totals)
    reach = reached(units, 2 * width)
    alone = max(int(everyone[high] - (everyone[low - 1] if low else 0)) for low, high in enumerate(reach))
    return [
        Finding(
            f"{NEAR} of {distance}",
            NEAR_KNOWS,
            promised=False,
            attacked=int(sizes.sum()),
            mean=float(best.sum() / sizes.sum()),
            highest=float((best / sizes).max()),
            baseline=alone / int(sizes.sum()),
        )
    ]


def _distance(given: str) -> Extent:
    try:
        return extent(given)
    except ValueError as error:
        raise UsageError(f"--within: {error}") from error


def reached(units: list[int], width: int) -> list[int]:
    """For each of the rising values the last one that is at most ``width`` above it.

    >>> reached([0, 3, 4, 9], 4)
    [2, 2, 2, 3]
    """
    found, last = [], 0
    for low in units:
        while last + 1 < len(units) and units[last + 1] - low <= width:
            last += 1
        found.append(last)
    return found


def covered(held: Contents, reach: list[int]) -> Ints:
    """Records of every group in the window of values that holds most of them (B,)."""
    key = held.group * held.values + held.code  # ascends: contents lie by group and code
    last = np.searchsorted(key, held.group * held.values + np.array(reach)[held.code], side="right")
    running = np.append(0, np.cumsum(held.records))
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, running[last] - running[: len(key)])
    return most


def _if_small(one: Adversary[Permuted]) -> Adversary[Permuted]:
    """The adversary, who learns from the channel only where that can be held."""

    def attack(learnt: Learnt[Permuted]) -> list[Finding]:
        if learnt.scene.contents.is_small:
            return one.attack(learnt)
        return [Finding(one.name, one.knows, one.promised, applies=False, notes=(TOO_LARGE,))]

    return Adversary(one.name, one.knows, one.promised, attack)


def _on_scene(attack: Callable[[Permuted], list[Finding]]) -> Callable[[Learnt[Permuted]], list[Finding]]:
    return lambda learnt: attack(learnt.scene)


def _near(learnt: Learnt[Permuted]) -> list[Finding]:
    return near(learnt.view, learnt.scene)


ADVERSARIES: tuple[Adversary[Permuted], ...] = (
    Adversary(POOR, POOR_KNOWS, promised=True, attack=_on_scene(poor)),
    adversaries.ORDER_ADVERSARY,
    adversaries.IDENTIFIERS_ADVERSARY,
    adversaries.absence_adversary(lambda _: None),
    Adversary(EXACT, EXACT_KNOWS, promised=False, attack=_on_scene(exact)),
    Adversary(NEAR, NEAR_KNOWS, promised=False, attack=_near),
    _if_small(suite.LEARNING_ADVERSARY),
    _if_small(adversaries.GIVING),
)
