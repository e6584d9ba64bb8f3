"""Check a permuted release, what it breaches together with earlier ones, and what adversaries guess of it."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.attacks import adversaries, suite
from privsql.attacks.scene import CHUNK, AttackView, Block, Finding, Floats, Ints, count_levels
from privsql.attacks.suite import Adversary, AttackContext
from privsql.engine.sqlfiles import Holes, Roles, column, fill, same_columns, table, temp_table
from privsql.errors import GuaranteeError, UsageError
from privsql.mechanisms.permute.answers import Contents, group_channel, read_contents
from privsql.mechanisms.permute.grouping import FLOATS, find_scale, narrow_condition, on_axis, width_expression
from privsql.mechanisms.permute.parameters import Permute, PermuteFacts, parse_extent
from privsql.model.checks import Check, VerifiedBound, in_order, run_checks
from privsql.model.tables import QUASI, SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.answers.channel import Channel
    from privsql.attacks.suite import ReleaseSeries
    from privsql.engine.database import Relations
    from privsql.mechanisms.base import LedgerRelease
    from privsql.model.checks import CheckedRelease
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# Checks ---------------------------------------------------------------------------------------------------------------
# The checks of a (k,e)-anonymous release. They share nothing with the search: only the published tables, the manifest's
# claims, SQL, and exact numbers.


TABLES = {
    "qit": ReleaseTable((QUASI, "bid INTEGER", "code INTEGER")),
    "st": ReleaseTable(("bid INTEGER", SENSITIVE, "count INTEGER")),
    "privsql_values": ReleaseTable(("code INTEGER", SENSITIVE, "records BIGINT")),
}


def release_checks(release: CheckedRelease[Permute, PermuteFacts]) -> list[Check]:
    """Return the checks that need the release alone."""
    roles, query = release.roles, release.fill_query
    st, qit, values, sizes = map(release.view, ("st", "qit", "values", "sizes"))
    release.db.create_table("v_sizes", query("verify/bucket_sizes", fakes=exp.Literal.number(0)))
    return release.list_checks(
        {
            "every group has k sensitive values over a range of e": unfine_groups_query(st, roles, release.params),
            "values and their numbers of records agree with ST": query("verify/values_true"),
            "the values' rows lie in order": in_order(values, ["code", "records"], strict=True),
            "counts are positive": query("verify/counts_positive"),
            "QIT and ST agree on every group": query("verify/sizes_agree"),
            "groups are numbered": query("verify/numbered", table=sizes, number=column("bid")),
            "the shuffle gives every group its values of ST": query("verify/dealt_true", same_value="st v"),
            "QIT rows lie in canonical order": in_order(qit, ["bid", *roles.qi_keys, "code"], strict=False),
            "ST rows lie in canonical order, once each": in_order(st, ["bid", *roles.sa_keys], strict=True),
            "groups and error are as stated": _wrong_claims,
        }
    )


def unfine_groups_query(st: exp.Expr, roles: Roles, params: Permute) -> exp.Query:
    """Groups of ``st``(bid, s0, count) that are not (k,e)-anonymous."""
    return fill("verify/groups_fine", {"st": st, "value": column(roles.sa_keys[0]), **_fineness_holes(roles, params)})


def _fineness_holes(roles: Roles, params: Permute) -> Holes:
    ends = narrow_condition(roles.sensitive[0], params.e, exp.column("low"), exp.column("high"))
    return {"k": exp.Literal.number(params.k), "narrow": exp.paren(ends)}


def _wrong_claims(release: CheckedRelease[Permute, PermuteFacts]) -> list[str]:
    """Return facts that differ from those recomputed from ST."""
    manifest, stated = release.manifest, release.facts
    widths, _ = _read_group_ranges(release)
    sizes = dict(release.db.rows(exp.select("bid", "size").from_(release.view("sizes"))))
    whole = sum(widths.values(), Fraction(0))
    records = sum(sizes.values())
    mean = sum((widths[bid] * size for bid, size in sizes.items()), Fraction(0)) / records
    result = {
        "loss": float(whole),
        "error": find_scale(manifest.sensitive, release.params.e).format_width(whole),
        "groups": len(widths),
        "smallest": min(sizes.values()),
        "largest": max(sizes.values()),
        "mean_width": float(mean),
    }
    held, left = stated.held_back, stated.left_out  # nobody else is left out
    others = [] if held == left <= (manifest.suppressed or 0) else [f"held back: {held}, left out: {left}"]
    return [*release.compare_facts(result), *release.compare_records(records), *others]


def _read_group_ranges(release: CheckedRelease[Permute, PermuteFacts]) -> tuple[dict[int, Fraction], int]:
    """Return the exact range of every group, and the fewest different values of one."""
    field = release.manifest.sensitive[0]
    width = width_expression(field, exp.column("low"), exp.column("high"))
    query = release.fill_query("verify/groups_wide", value=column(release.roles.sa_keys[0]), width=width)
    rows = release.db.rows(query)
    fewest = min((int(row[-1]) for row in rows), default=0)
    if field.type in FLOATS:
        return {bid: Fraction(high) - Fraction(low) for bid, low, high, *_ in rows}, fewest
    step = find_scale([field], release.params.e).sql_step
    return {bid: Fraction(result) * step for bid, _, _, result, _ in rows}, fewest


def measured_bounds(release: CheckedRelease[Permute, PermuteFacts]) -> list[VerifiedBound]:
    """Return the different values and the range of the groups that have least of them."""
    params = release.params
    widths, fewest = _read_group_ranges(release)
    scale = find_scale(release.manifest.sensitive, params.e)
    narrowest = scale.format_width(min(widths.values(), default=Fraction(0)))
    return [
        VerifiedBound("different values in every group", f">= {params.k}", str(fewest), belief=False),
        VerifiedBound("range of every group", f">= {params.e}", narrowest, belief=False),
    ]


def source_checks(release: CheckedRelease[Permute, PermuteFacts], source: Records) -> list[Check]:
    """Return the checks against the source, relation ``records``; who is held back is not in the release."""
    roles, held = release.roles, release.facts.held_back
    source.sort_records()
    in_groups = release.fill_query(
        "verify/groups_true",
        records=temp_table("records"),
        value=roles.sa_columns(),
        qi_records=roles.qi_columns("r"),
        same_value="r sole",
        same_qi="expected found",
    )
    return release.list_checks(
        {
            "sensitive values are the source's": release.compare_values(column("count"), fewer=bool(held)),
            "quasi-identifiers are the source's": release.compare_people(source, "qit", fewer=bool(held)),
            **({} if held else {"records are in the groups of their values": in_groups}),
        }
    )


# Several releases together --------------------------------------------------------------------------------------------
# What several (k,e)-anonymous releases tell together: Definition 5 pair by pair, and every Boolean combination.
#
# Two views. The adversary's: from the published files alone, groups are matched by multisets of quasi-identifiers and
# sensitive values. The records': the publisher's ledger tells who is where, so nothing is guessed.

DIFFERENCES = "difference of releases"
DIFFERENCES_KNOW = "another release of the same people; subtracts and intersects groups whose members it can match"


def require_comparable(names: Sequence[str], manifests: Sequence[Manifest]) -> None:
    """Raise ``UsageError`` unless all releases are (k,e)-anonymous over the same columns."""
    first = manifests[0]
    for name, manifest in zip(names, manifests, strict=True):
        if manifest.mechanism != first.mechanism:
            raise UsageError(f"against: {name} is made by {manifest.mechanism}, the other release by {first.mechanism}")
        if manifest.roles != first.roles:
            raise UsageError(
                f"{name} has other columns than {names[0]}: {manifest.roles.explain_difference(first.roles)}"
            )


def check_pairs(db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
    """Return the checks of the adversary's view of every pair; release i is attached as database ``r<i>``."""
    for i, manifest in enumerate(manifests):
        for name in ("qit", "st"):
            rows = TABLES[name].select_inside(manifest.roles, table(name, f"r{i}"))
            db.create_view(f"{name}{i}", rows)
    result = []
    for first, second in combinations(range(len(names)), 2):
        result += _pair_of_files(db, manifests[second], names, (first, second))
    return result


def _pair_of_files(db: Relations, manifest: Manifest, names: Sequence[str], pair: tuple[int, int]) -> list[Check]:
    roles, (first, second) = manifest.roles, pair
    both = f"{names[first]} and {names[second]}"
    tables: Holes = {"first_st": temp_table(f"st{first}"), "second_st": temp_table(f"st{second}")}
    holes: Holes = {
        "first": temp_table(f"qit{first}"),
        "second": temp_table(f"qit{second}"),
        "qi": roles.qi_columns(),
        "same_qi": same_columns("x", "y", roles.qi_keys),
        "same_value": same_columns("x", "y", roles.sa_keys),
    }
    db.create_table(f"shared_{first}_{second}", fill("against/shared", holes | tables))
    shared = temp_table(f"shared_{first}_{second}")
    tables |= {"value": roles.sa_columns("s")[0]}
    tables |= _fineness_holes(roles, Permute.model_validate(manifest.parameters))
    pairs = fill("against/overlapping", {"shared": shared}).subquery()
    differences = fill("against/differences", {"pairs": pairs, **tables})
    remainders = fill("against/remainders", {"shared": shared, **tables})
    return [
        Check(f"adversary's view of {both}: no breach by difference or intersection", differences, _describe_matching),
        Check(f"adversary's view of {both}: no breach by subtracting earlier groups", remainders, _describe_matching),
    ]


def _describe_matching() -> str:
    """Return what the adversary's view compares."""
    return "groups whose members can be matched, each with each"


def check_records(
    db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest
) -> list[Check]:
    """Return the checks of the records' view of every pair and of all; ``known``: (id, value) of all records."""
    db.create_view("known", known)
    fine = _fineness_holes(manifest.roles, Permute.model_validate(manifest.parameters))
    result = []
    for first, second in combinations(releases, 2):
        result += _pair_checks(db, first, second, fine)
    first, *others = releases
    db.create_table("atoms0", exp.select(column("id"), column("bid").as_("atom")).from_(first.members))
    for i, more in enumerate(others):
        refined = fill("against/refined", {"atoms": temp_table(f"atoms{i}"), "members": more.members})
        db.create_table(f"atoms{i + 1}", refined)
        db.drop(f"atoms{i}")
    atoms: Holes = {"atoms": temp_table(f"atoms{len(others)}"), "known": temp_table("known"), **fine}
    numbers = ", ".join(str(one.number) for one in releases)
    name = f"records of releases {numbers}: no breach by any combination"
    return [*result, Check(name, fill("against/atoms", atoms), lambda: "all records that the ledger knows")]


def _pair_checks(db: Relations, first: LedgerRelease, second: LedgerRelease, fine: Holes) -> list[Check]:
    name = f"joined_{first.number}_{second.number}"
    holes: Holes = {"first": first.members, "second": second.members, "known": temp_table("known")}
    db.create_table(name, fill("against/joined", holes))
    joined: Holes = {"joined": temp_table(name), **fine}
    breach, a, b = f"records of releases {first.number} and {second.number}: no breach by", column("a"), column("b")
    return [
        Check(f"{breach} intersection", fill("against/meetings", joined)),
        Check(f"{breach} earlier minus later", fill("against/leavings", {**joined, "own": a, "other": b})),
        Check(f"{breach} later minus earlier", fill("against/leavings", {**joined, "own": b, "other": a})),
    ]


def attack_together(releases: ReleaseSeries) -> list[Finding]:
    """Differences and intersections of groups (Definition 5), as an adversary finds them in the files."""
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
POOR_KNOWS = "the record's quasi-identifiers; looks for groups with fewer than k values, or a range below e"
EXACT = "best exact guess"
EXACT_KNOWS = "the record's quasi-identifiers; guesses the most common value of the group"
NEAR = "guess within a distance"
NEAR_KNOWS = "the record's quasi-identifiers; guesses the range of values that most of the group lies in"
TOO_LARGE = "too many groups and values to be learnt from"


def attack_poor_groups(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Find the share of the groups that are not (k,e)-anonymous, which is the promise itself."""
    scene = learnt.scene
    number, held = scene.group_contents.groups, len(scene.unfine_groups)
    notes = (f"{held:,} groups are not (k,e)-anonymous",) if held else ()
    return [Finding(attacked=number, unit="groups", above=held / number, notes=notes)]


def attack_exact_value(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Find the belief in the commonest value of every record's group, and how many values are certain, or above 1/2."""
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
    """Find the belief that a record's value lies within the distance of the best guess; by default e."""
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


NO_LEARNING = Finding(applies=False, notes=(TOO_LARGE,))


def attack_by_learning(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Learn from the channel as the shared adversary does, where the channel can be held."""
    return suite.attack_by_learning(learnt) if learnt.scene.group_contents.is_small else [NO_LEARNING]


def attack_by_determination(learnt: AttackContext[PermutedView]) -> list[Finding]:
    """Look for columns that give the value away, where the channel that tells it can be held."""
    return adversaries.attack_by_determination(learnt) if learnt.scene.group_contents.is_small else [NO_LEARNING]


ADVERSARIES: tuple[Adversary[PermutedView], ...] = (
    Adversary(POOR, POOR_KNOWS, promised=True, attack=attack_poor_groups),
    adversaries.ORDER_ADVERSARY,
    adversaries.IDENTIFIERS_ADVERSARY,
    adversaries.ABSENCE_ADVERSARY,
    Adversary(EXACT, EXACT_KNOWS, promised=False, attack=attack_exact_value),
    Adversary(NEAR, NEAR_KNOWS, promised=False, attack=attack_near_value),
    Adversary(suite.LEARNING, suite.LEARNING_KNOWS, promised=False, attack=attack_by_learning),
    Adversary(
        adversaries.DETERMINATION_ADVERSARY.name,
        adversaries.DETERMINATION_ADVERSARY.knows,
        promised=False,
        attack=attack_by_determination,
    ),
)
