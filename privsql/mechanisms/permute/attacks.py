"""The adversaries of permuted groups, and the scene that they attack."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.answers.channel import POWER, Channel
from privsql.attacks import adversaries, suite
from privsql.attacks.scene import CHUNK, AttackView, Block, Finding, Floats, Ints, count_levels
from privsql.attacks.suite import Adversary, AttackContext
from privsql.engine.sqlfiles import table
from privsql.errors import GuaranteeError, UsageError
from privsql.mechanisms.permute.checks import check_pairs, unfine_groups_query
from privsql.mechanisms.permute.parameters import Permute, parse_extent
from privsql.mechanisms.permute.scale import find_scale, on_axis
from privsql.mechanisms.permute.tables import Contents, read_contents
from privsql.model.checks import run_checks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.attacks.suite import ReleaseSeries

# The scene ------------------------------------------------------------------------------------------------------------

LARGE = 2**24  # the channel's matrix holds no more numbers
MOST_GROUPS = 2000  # with more groups nothing of groups^3 operations is done


class GroupChannel(Channel):
    """The channel from values to groups.

    Its prior lets the shares of whole groups deviate, by the same powers as ``Channel`` uses for values. Within a group
    the deviations are proportional to the values' records. Neighbouring values deviate together, so a group's records
    are shared out as in the papers' formula.
    """

    @cached_property
    def prior_shape(self) -> Floats:
        """Return the variance of the prior up to a factor (m,): f_i sum_g M_ig s_g^0.5 F.

        The s_g are the shares of the groups, and F = sum s^2 / sum s^1.5.
        """
        groups = self.shares @ self.mean
        shape = self.shares * (self.mean @ groups ** (POWER - 1))
        return np.asarray(shape * ((groups**2).sum() / shape.sum()))


class PermutedView(AttackView):
    """The tables QIT and ST of a permuted release, as adversaries see them.

    No belief in a single value is bounded; (k,e) only says how many values a group has, and how far apart they are.
    """

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
        """Return the groups that are not (k,e)-anonymous."""
        listed = exp.select(*self.roles.by_sa.select_columns("bid", "count"), *self.roles.sa_in())
        st = listed.from_(table("st", self.given.database)).subquery("st")
        rows = self.db.rows(unfine_groups_query(st, self.roles, Permute.model_validate(self.given.manifest.parameters)))
        return np.array([int(row[0]) for row in rows], dtype=np.int64)

    @property
    def is_small(self) -> bool:
        """Return whether the channel's matrix can be held."""
        held = self.group_contents
        return held.groups * held.values <= LARGE and held.groups <= MOST_GROUPS

    @cached_property
    def channel(self) -> Channel:
        """Return the channel that shows how many records of every group meet a question, if it ``is_small``.

        M_ig is the share of value i that lies in group g.
        """
        held = self.group_contents
        mean = held.sparse_table.toarray().T / np.maximum(held.value_totals, 1)[:, None]
        return GroupChannel(mean, np.diag(held.group_sizes.astype(np.float64)), held.value_totals.astype(np.float64))

    def observe_levels(self, level: Ints) -> Floats:
        """Count the records of every group with each level (levels, B)."""
        return count_levels(level, self.record_parts, self.group_contents.groups)

    @cached_property
    def shares(self) -> Floats:
        """Return the frequencies of the values (m,)."""
        records = self.group_contents.value_totals.astype(np.float64)
        return np.asarray(records / records.sum())

    @property
    def bounds(self) -> Floats:
        """Return 1 for every value: no bound is promised."""
        return np.ones(self.group_contents.values)

    def excess_share(self) -> float:
        """Return the share of the records in groups that are not (k,e)-anonymous."""
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
# (k,e)-anonymity promises that every group has at least k distinct values over a range of at least e: that is looked
# for, group by group. It bounds neither the belief in a single value nor that in a range of values. With c_g(x) of |g|
# records of a group having x, the best exact guess is right with max_x c_g(x)/|g|, and the best guess to within a
# distance d with max_y sum_{|x - y| <= d} c_g(x)/|g|.

POOR = "groups with few or near values"
POOR_KNOWS = "the record's quasi-identifiers; looks for groups with fewer than k values, or a range below e"
EXACT = "best exact guess"
EXACT_KNOWS = "the record's quasi-identifiers; guesses the most common value of the group"
NEAR = "guess within a distance"
NEAR_KNOWS = "the record's quasi-identifiers; guesses the range of values that most of the group lies in"
TOO_LARGE = "too many groups and values to be learnt from"


def attack_poor_groups(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Find the share of the groups that are not (k,e)-anonymous; in a sound release there is none."""
    scene = learnt.scene
    number, held = scene.group_contents.groups, len(scene.unfine_groups)
    notes = (f"{held:,} groups are not (k,e)-anonymous",) if held else ()
    return [Finding(attacked=number, unit="groups", above=held / number, notes=notes)]


def attack_exact_value(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Find the belief in the commonest value of every record's group, and how often it is certain or above 1/2."""
    scene = learnt.scene
    tally = scene.make_tally()
    for block in scene.blocks():
        tally.add_block(block, np.broadcast_to(block.prior, block.shape))
    held = scene.group_contents
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, held.records)
    sizes = held.group_sizes
    certain, likely = (int(sizes[chosen].sum()) for chosen in (most == sizes, 2 * most > sizes))
    reached = f"{certain:,} records' values are certain, {likely:,} are believed beyond 1/2"
    notes = (reached if likely else "no record's value is believed beyond 1/2",)
    return [Finding(baseline=scene.baseline, notes=notes, **tally.finding_fields())]


def attack_near_value(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Find the belief that a record's value lies within a distance of the best guess; the distance is e by default."""
    view, scene = learnt.view, learnt.scene
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
            attacked=int(sizes.sum()),
            mean=float(best.sum() / sizes.sum()),
            highest=float((best / sizes).max()),
            baseline=alone / int(sizes.sum()),
        )
    ]


def farthest_within(units: list[int], width: int) -> list[int]:
    """Return for each of the rising values the last one that is at most ``width`` above it.

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
    """Return for each group the number of records in the window of values that holds most of them (B,)."""
    key = held.group * held.values + held.code  # ascends: contents lie by group and code
    last = np.searchsorted(key, held.group * held.values + np.array(reach)[held.code], side="right")
    running = np.append(0, np.cumsum(held.records))
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, running[last] - running[: len(key)])
    return most


def with_channel(adversary: Adversary[AttackView]) -> Adversary[PermutedView]:
    """Return an adversary who learns from the channel, or does not apply where the channel is too large."""

    def attack(learnt: AttackContext[PermutedView]) -> list[Finding]:
        return adversary.attack(learnt) if learnt.scene.is_small else [Finding(applies=False, notes=(TOO_LARGE,))]

    return Adversary(adversary.name, adversary.knows, adversary.promised, attack)


ADVERSARIES: tuple[Adversary[PermutedView], ...] = (
    Adversary(POOR, POOR_KNOWS, promised=True, attack=attack_poor_groups),
    adversaries.ORDER_ADVERSARY,
    adversaries.IDENTIFIERS_ADVERSARY,
    adversaries.ABSENCE_ADVERSARY,
    Adversary(EXACT, EXACT_KNOWS, promised=False, attack=attack_exact_value),
    Adversary(NEAR, NEAR_KNOWS, promised=False, attack=attack_near_value),
    with_channel(suite.LEARNING_ADVERSARY),
    with_channel(adversaries.DETERMINATION_ADVERSARY),
)


# Several releases together --------------------------------------------------------------------------------------------

DIFFERENCES = "difference of releases"
DIFFERENCES_KNOW = "another release of the same people; subtracts and intersects groups whose members it can match"


def attack_together(releases: ReleaseSeries) -> list[Finding]:
    """Find differences and intersections of groups of two releases (Definition 5), from the published files alone."""
    checks = run_checks(releases.db, check_pairs(releases.db, releases.names, releases.manifests))
    failed = [check for check in checks if not check.ok]
    return [
        Finding(
            DIFFERENCES,
            DIFFERENCES_KNOW,
            promised=releases.manifests[0].algorithm == "nested",
            attacked=len(checks),
            unit="ways to combine",
            leaks=bool(failed),
            notes=tuple(check.name.replace("no breach", f"{check.violations} breaches") for check in failed),
        )
    ]
