"""Attack permuted groups: the view of a release that adversaries attack, and their guesses."""

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

LARGE = 2**24  # the largest number of entries of the channel's matrix
MOST_GROUPS = 2000  # the most groups with which computations of groups^3 steps are made


class GroupChannel(Channel):
    """The linear channel of a permuted release: how many records with each value are expected in each group.

    Attackers invert it, to infer counts of values from counts of groups. The prior says what they expect before: a set
    of records may have more of some groups, and then it has more of all values in these groups, in proportion to their
    records. That suits groups of near values.
    """

    @cached_property
    def prior_shape(self) -> Floats:
        """Return how uncertain the count of each value in a set of records is before anything is observed (m,).

        Estimates of these counts start from it. It is their prior variance, up to a common factor: f_i F sum_g M_ig
        sqrt(s_g). Here f_i is the share of value i in all records, and M_ig the share of its records that are in group
        g. s_g is the share of all records in group g, and F = sum_g s_g^2 / sum_g s_g^1.5.
        """
        groups = self.shares @ self.mean
        shape = self.shares * (self.mean @ groups ** (POWER - 1))
        return np.asarray(shape * ((groups**2).sum() / shape.sum()))


class PermutedView(AttackView):
    """The tables QIT and ST of a permuted release, as arrays for adversaries; B groups and m values.

    The release promises no bound on the belief in a single value, only (k,e) for each group.
    """

    records, part, independent = "qit", "bid", False
    stated = ("records",)

    @cached_property
    def group_contents(self) -> Contents:
        """Return which values each group holds, and how often.

        Raises:
            GuaranteeError: The tables of the release disagree.
        """
        held = read_contents(self.db, self.roles, self.given.database)
        stated = self.read_values(["records"])["records"].to_numpy()
        if not np.array_equal(held.value_totals, stated) or held.groups <= self.record_parts.max(initial=0):
            raise GuaranteeError("QIT, ST and the list of values do not agree; verify the release")
        return held

    @cached_property
    def unfine_groups(self) -> Ints:
        """Return the numbers of the groups that are not (k,e)-anonymous."""
        listed = exp.select(*self.roles.by_sa.select_columns("bid", "count"), *self.roles.sa_in())
        st = listed.from_(table("st", self.given.database)).subquery("st")
        rows = self.db.rows(unfine_groups_query(st, self.roles, Permute.model_validate(self.given.manifest.parameters)))
        return np.array([int(row[0]) for row in rows], dtype=np.int64)

    @property
    def is_small(self) -> bool:
        """Return whether groups and values are few enough for a ``channel``, a matrix over groups and values.

        Attackers who learn values from the counts of groups need it.
        """
        held = self.group_contents
        return held.groups * held.values <= LARGE and held.groups <= MOST_GROUPS

    @cached_property
    def channel(self) -> Channel:
        """Return the linear channel, by which an attacker infers how many of some records have each value.

        It gives the expected number of these records in each group from the counts of their values. It can be computed
        only if ``is_small``.
        """
        held = self.group_contents
        mean = held.sparse_table.toarray().T / np.maximum(held.value_totals, 1)[:, None]
        return GroupChannel(mean, np.diag(held.group_sizes.astype(np.float64)), held.value_totals.astype(np.float64))

    def observe_levels(self, level: Ints) -> Floats:
        """Count the records of every group by level of a quasi-identifier (levels, B).

        A level is the rank of a value in its column. An attacker learns from these counts how values depend on the
        column.

        Args:
            level: The level of each record, 0, 1, .. (n,).
        """
        return count_levels(level, self.record_parts, self.group_contents.groups)

    @cached_property
    def shares(self) -> Floats:
        """Return the share of all records with each value (m,)."""
        records = self.group_contents.value_totals.astype(np.float64)
        return np.asarray(records / records.sum())

    @property
    def bounds(self) -> Floats:
        """Return a bound of 1 for the belief in each value (m,), because the release promises no lower one."""
        return np.ones(self.group_contents.values)

    def excess_share(self) -> float:
        """Return the share of the records in groups that are not (k,e)-anonymous, from 0 to 1."""
        return float(np.isin(self.record_parts, self.unfine_groups).mean())

    def blocks(self) -> Iterator[Block]:
        """Yield all records in blocks that are attacked together: each group, or parts of it if it is large.

        A block has the records, the different values of their group, and the share of each value as the prior belief.
        """
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
# (k,e)-anonymity promises that every group has at least k distinct values over a range of at least e. One adversary
# checks this group by group. The promise bounds neither the belief in a single value nor in a range of values. If
# c_g(x) of the |g| records of a group have value x, the best exact guess is right with probability max_x c_g(x)/|g|.
# The best guess to within a distance d is right with probability max_y sum_{|x - y| <= d} c_g(x)/|g|.

POOR = "groups with few or near values"
POOR_KNOWS = "the record's quasi-identifiers; looks for groups with fewer than k values, or a range below e"
EXACT = "best exact guess"
EXACT_KNOWS = "the record's quasi-identifiers; guesses the most common value of the group"
NEAR = "guess within a distance"
NEAR_KNOWS = "the record's quasi-identifiers; guesses the range of values that most of the group lies in"
TOO_LARGE = "too many groups and values to be learnt from"


def attack_poor_groups(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Measure the share of the groups that are not (k,e)-anonymous; it is 0 in a sound release."""
    scene = learnt.scene
    number, held = scene.group_contents.groups, len(scene.unfine_groups)
    notes = (f"{held:,} groups are not (k,e)-anonymous",) if held else ()
    return [Finding(attacked=number, unit="groups", above=held / number, notes=notes)]


def attack_exact_value(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Measure the belief in the most common value of every record's group, and how often it is certain or above 1/2."""
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
    """Measure the belief that a record's value lies within a distance (by default e) of the best guess."""
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
    """Return for each value the position of the last value that is at most ``width`` above it.

    Together they form the windows in which a guess may lie.

    Args:
        units: The values, rising.
        width: The width of a window.

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
    """Return for each group the most records that have values within one window, a range of fixed width (B,).

    A guess in the middle of the fullest window is right, within half its width, for most records.

    Args:
        held: The contents of the groups.
        reach: For each value, the last value of the window that starts with it, as ``farthest_within`` gives it.
    """
    key = held.group * held.values + held.code  # rises, because contents are sorted by group and code
    last = np.searchsorted(key, held.group * held.values + np.array(reach)[held.code], side="right")
    running = np.append(0, np.cumsum(held.records))
    most = np.zeros(held.groups, dtype=np.int64)
    np.maximum.at(most, held.group, running[last] - running[: len(key)])
    return most


def with_channel(adversary: Adversary[AttackView]) -> Adversary[PermutedView]:
    """Make an adversary skip releases with too many groups and values to learn from.

    The adversary needs the channel (the matrix that gives expected counts of groups from counts of values), which would
    be too large.
    """

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
    """Look in pairs of releases of a growing table for groups whose difference or intersection breaks (k,e)-anonymity.

    An attacker can compute both (thesis on incremental (k,e)-anonymity, Definition 5). The published files suffice.
    """
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
