"""Write permuted records, and measure what adversaries guess of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.attacks import adversaries, suite
from privsql.attacks.scene import CHUNK, AttackView, Block, Finding, Floats, Ints, ReleaseView, count_levels
from privsql.attacks.suite import Adversary, AttackContext
from privsql.engine.database import Relations, require_ordered
from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import Holes, alias_as, all_rows, column, fill, table, temp_table
from privsql.errors import GuaranteeError, UsageError
from privsql.mechanisms.permute.answers import Contents, group_channel, read_contents
from privsql.mechanisms.permute.checks import unfine_groups_query
from privsql.mechanisms.permute.grouping import find_scale, on_axis
from privsql.mechanisms.permute.parameters import Permute, parse_extent
from privsql.mechanisms.private import RankAssignment, RecordParts, Segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from privsql.answers.channel import Channel
    from privsql.keyed_random import Key, Shuffler
    from privsql.model.records import Records

# Assignment -----------------------------------------------------------------------------------------------------------

DEALT = pa.schema([("pos", pa.int64()), ("bid", pa.int32()), ("code", pa.int32())])
TABLE = 2**26  # numbers beyond which groups x values are not counted in one table


def write_records(db: Relations, source: Records, groups: Ints, ranks: Ints, noise: Shuffler) -> None:
    """QIT, from the groups (n,) of all records in canonical order, below 0: held back, and the values of the others."""
    codes = np.full(len(groups), -1, dtype=np.int32)
    is_published = groups >= 0
    codes[is_published] = shuffle_within_groups(groups[is_published], ranks, noise)
    grouped = None if source.packed is None else source.packed.stream_groups(groups.astype(np.int32), codes)
    if grouped is not None:
        db.register_arrow("positions", grouped)
        _write_qit(db, source, all_rows(temp_table("positions")), is_sorted=True)
    else:
        source.sort_records()
        db.register_arrow("positions", stream_assignment(groups, codes))
        _write_qit(db, source, require_ordered(db).with_bid_and_code(temp_table("records"), temp_table("positions")))
    db.drop("positions")
    source.drop_relations()


def write_ranked(db: Relations, source: Records, groups: Ints, ranks: Ints, key: Key) -> None:
    """Write QIT in the portable order: by rank, the records of a group take its values one after the other.

    The group follows from the value in a first release, from the record in later ones, whose records have names.
    """
    published = np.flatnonzero(groups >= 0)
    sizes = np.bincount(groups[published])
    if source.history.releases:
        of, by = pa.table({"part": groups[published], "pos": published}), "pos"
    else:
        ends = np.cumsum(source.counts)
        of, by = pa.table({"part": groups[ends - 1], "code": np.arange(len(ends))}), "code"
    dealing = RankAssignment(db, source, key, RecordParts(sizes, by, of))
    contents = tabulate_contents(groups[published], ranks)
    part, code, records = (contents[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
    ends = np.cumsum(records)
    first = ends[np.searchsorted(part, part)] - records[np.searchsorted(part, part)]  # of all records, of its group
    segments = Segments(part, ends - records - first, ends - first, code, step=0)
    dealt = dealing.query_assigned(segments, [*source.roles.qi_columns("r"), column("part", "r")])
    renamed = [alias_as(exp.cast(column("part"), "INTEGER"), "bid"), alias_as(column("number"), "code")]
    _write_qit(db, source, exp.select(*source.roles.qi_columns(), *renamed).from_(dealt.subquery("dealt")))
    dealing.drop_relations()


def _write_qit(db: Relations, source: Records, dealt: exp.Query, *, is_sorted: bool = False) -> None:
    roles = source.roles
    holes: Holes = {"dealt": dealt.subquery(), "qi": roles.qi_out("r"), "qi_order": roles.qi_columns("r")}
    holes |= roles.by_qi.alias_holes("bid", "code")
    query = fill("permute/qit", holes)
    if is_sorted:
        query.set("order", None)
    db.create_table("qit", query, into="release", title="Shuffling within groups")


def tabulate_contents(groups: Ints, codes: Ints) -> pa.Table:
    """(bid, code, records) by group and code, from the group and the value of every record (n,)."""
    values = int(codes.max(initial=-1)) + 1
    cells = groups * values + codes
    if (int(groups.max(initial=-1)) + 1) * values <= TABLE:
        counted = np.bincount(cells)
        result = np.flatnonzero(counted)
        records = counted[result]
    else:
        result, records = np.unique(cells, return_counts=True)
    columns = {"bid": result // values, "code": result % values, "records": records}
    return pa.table({name: column.astype(np.int32) for name, column in columns.items()})


def shuffle_within_groups(groups: Ints, codes: Ints, noise: Shuffler) -> NDArray[np.int32]:
    """The values (n,) in uniformly random order within every group (thesis, Definition 4)."""
    rising = bool((groups[1:] >= groups[:-1]).all())
    order = slice(None) if rising else np.argsort(groups, kind="stable")
    dealt = codes.astype(np.int32)
    run, begin = dealt[order], 0
    for end in np.cumsum(np.bincount(groups)).tolist():
        noise.shuffle(run[begin:end])
        begin = end
    dealt[order] = run
    return dealt


def stream_assignment(groups: Ints, codes: NDArray[np.int32]) -> pa.RecordBatchReader:
    """(pos, bid, code) for every position, as a stream."""

    def make_batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(groups), BATCH):
            part = groups[begin : begin + BATCH]
            columns = [np.arange(begin, begin + len(part)), part.astype(np.int32), codes[begin : begin + BATCH]]
            yield pa.record_batch(columns, schema=DEALT)

    return pa.RecordBatchReader.from_batches(DEALT, make_batches())


# The adversaries' view ------------------------------------------------------------------------------------------------


class PermutedView(AttackView):
    """QIT and ST. No belief in a single value is bounded: (k,e) is about how many and how far apart values are."""

    records, part, independent = "qit", "bid", False
    stated = ("records",)

    @cached_property
    def group_contents(self) -> Contents:
        """Return what every group holds; ``GuaranteeError`` if the tables do not agree on it."""
        held = read_contents(self.db, self.roles, self.given.database)
        stated = self.read_values(["records"])["records"].to_numpy()
        if not np.array_equal(held.value_totals, stated) or held.groups <= self.record_parts.max(initial=0):
            raise GuaranteeError("QIT, ST and the list of values do not agree; verify the release")
        return held

    @cached_property
    def unfine_groups(self) -> Ints:
        """Groups that are not (k,e)-anonymous."""
        listed = exp.select(*self.roles.by_sa.select_columns("bid", "count"), *self.roles.sa_in())
        st = listed.from_(table("st", self.given.database)).subquery("st")
        rows = self.db.rows(unfine_groups_query(st, self.roles, Permute.model_validate(self.given.manifest.parameters)))
        return np.array([int(row[0]) for row in rows], dtype=np.int64)

    @cached_property
    def channel(self) -> Channel:
        """How many records of every group meet a question."""
        return group_channel(self.group_contents)

    def observe_levels(self, level: Ints) -> Floats:
        """Records of every group with each level."""
        return count_levels(level, self.record_parts, self.group_contents.groups)

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,)."""
        records = self.group_contents.value_totals.astype(np.float64)
        return np.asarray(records / records.sum())

    @property
    def bounds(self) -> Floats:
        """None is promised."""
        return np.ones(self.group_contents.values)

    def excess_share(self) -> float:
        """Share of the records in groups that are not (k,e)-anonymous."""
        return float(np.isin(self.record_parts, self.unfine_groups).mean())

    def blocks(self) -> Iterator[Block]:
        """Yield each group as a block: its records, its different values, and the priors c_g(x)/|g|."""
        held = self.group_contents
        order = np.argsort(self.record_parts, kind="stable")
        counts = np.bincount(self.record_parts, minlength=held.groups)
        ends = np.cumsum(counts)
        listed = np.searchsorted(held.group, np.arange(held.groups + 1))
        for g in range(held.groups):
            group_rows = slice(int(listed[g]), int(listed[g + 1]))
            share = held.records[group_rows] / held.records[group_rows].sum()
            members = order[ends[g] - counts[g] : ends[g]]
            step = max(1, CHUNK // max(1, len(share)))
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                yield Block(rows[None, :], held.code[group_rows][None, :], share[None, None, :])


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
EXACT_KNOWS = "the person's quasi-identifiers; guesses the most common value of the group"
NEAR = "guess within a distance"
NEAR_KNOWS = "the person's quasi-identifiers; guesses the range of values that most of the group lies in"
TOO_LARGE = "too many groups and values to be learnt from"


def attack_poor_groups(scene: PermutedView) -> list[Finding]:
    """The promise itself: share of the groups that are not (k,e)-anonymous."""
    number, held = scene.group_contents.groups, len(scene.unfine_groups)
    notes = (f"{held:,} groups are not (k,e)-anonymous",) if held else ()
    return [Finding(POOR, POOR_KNOWS, promised=True, attacked=number, unit="groups", above=held / number, notes=notes)]


def attack_exact_value(scene: PermutedView) -> list[Finding]:
    """Belief in the commonest value of the group of every record; how many values are certain, or above 1/2."""
    tally = scene.make_tally()
    for block in scene.blocks():
        tally.add_block(block, np.broadcast_to(block.prior, block.shape))
    held = scene.group_contents
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, held.records)
    sizes = held.group_sizes
    certain, likely = (int(sizes[chosen].sum()) for chosen in (most == sizes, 2 * most > sizes))
    notes = (f"{certain:,} records' values are certain, {likely:,} are believed beyond 1/2",)
    return [Finding(EXACT, EXACT_KNOWS, promised=False, baseline=scene.baseline, notes=notes, **tally.finding_fields())]


def attack_near_value(view: ReleaseView, scene: PermutedView) -> list[Finding]:
    """Belief that a record's value lies within the distance of the best guess; by default e."""
    params = Permute.model_validate(view.manifest.parameters)
    try:
        distance = params.e if view.within is None else parse_extent(view.within)
    except ValueError as error:
        raise UsageError(f"within: {error}") from error
    listed = scene.read_table("privsql_values").sort_by("code")[view.manifest.sensitive[0].name].combine_chunks()
    units, width, _ = on_axis(listed, find_scale(view.manifest.sensitive, distance), distance)
    held, sizes = scene.group_contents, scene.group_contents.group_sizes
    reach = farthest_within(units, 2 * width)
    best = fullest_windows(held, reach)
    everyone = np.cumsum(held.value_totals)
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


def farthest_within(units: list[int], width: int) -> list[int]:
    """For each of the rising values the last one that is at most ``width`` above it.

    >>> farthest_within([0, 3, 4, 9], 4)
    [2, 2, 2, 3]
    """
    result, last = [], 0
    for low in units:
        while last + 1 < len(units) and units[last + 1] - low <= width:
            last += 1
        result.append(last)
    return result


def fullest_windows(held: Contents, reach: list[int]) -> Ints:
    """Records of every group in the window of values that holds most of them (B,)."""
    key = held.group * held.values + held.code  # ascends: contents lie by group and code
    last = np.searchsorted(key, held.group * held.values + np.array(reach)[held.code], side="right")
    running = np.append(0, np.cumsum(held.records))
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, running[last] - running[: len(key)])
    return most


def _if_small(one: Adversary[PermutedView]) -> Adversary[PermutedView]:
    """The adversary, who learns from the channel only where that can be held."""

    def attack(learnt: AttackContext[PermutedView]) -> list[Finding]:
        if learnt.scene.group_contents.is_small:
            return one.attack(learnt)
        return [Finding(one.name, one.knows, one.promised, applies=False, notes=(TOO_LARGE,))]

    return Adversary(one.name, one.knows, one.promised, attack)


ADVERSARIES: tuple[Adversary[PermutedView], ...] = (
    Adversary(POOR, POOR_KNOWS, promised=True, attack=lambda learnt: attack_poor_groups(learnt.scene)),
    adversaries.ORDER_ADVERSARY,
    adversaries.IDENTIFIERS_ADVERSARY,
    adversaries.absence_adversary(lambda _: None),
    Adversary(EXACT, EXACT_KNOWS, promised=False, attack=lambda learnt: attack_exact_value(learnt.scene)),
    Adversary(NEAR, NEAR_KNOWS, promised=False, attack=lambda learnt: attack_near_value(learnt.view, learnt.scene)),
    _if_small(suite.LEARNING_ADVERSARY),
    _if_small(adversaries.DETERMINATION_ADVERSARY),
)
