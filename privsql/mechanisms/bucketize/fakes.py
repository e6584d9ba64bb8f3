"""Add fake values to buckets: decide what is listed, which of it is fake, and how certain the real values are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.channel import LARGE, Channel, observe_counts, reconstruct
from privsql.answers.learned_prior import code_column, comparable_columns
from privsql.engine.sqlfiles import Roles, alias_as, table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize.fake_law import Entries, Floats, scale_chances, times_listed
from privsql.mechanisms.bucketize.layout import BucketRuns, make_layout
from privsql.mechanisms.bucketize.model import Bids, BucketProblem, Ints, Plan, Setting
from privsql.mechanisms.bucketize.parameters import CertaintyFacts, FakeFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.group_flows import Flags

    Find = Callable[[BucketProblem], Plan]

# Plans that hide values evenly ----------------------------------------------------------------------------------------
# Fakes hide all values evenly if every listed value is real with the same probability, so that none is more certain
# than another. This is possible if no value is too frequent.
#
# ``times_listed`` says how often value x is to be listed, L_x. With b_j buckets of S_j records and sigma fakes each,
# fractional L_x exist if and only if for every k the k most frequent values have at most
# sum_j min(S_j + sigma, k) b_j S_j/(S_j + sigma) records (Gale; all values have the same room, so the most frequent
# ones are the tightest).

MOST_NAMED = 8  # values that a message names
TRIED = 8  # so many sizes and numbers of fakes are tried for an offer in an error message


def list_names(names: Sequence[str]) -> str:
    """Return the first ``MOST_NAMED`` names as text, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def find_too_frequent(counts: Ints, setting: Setting, sigma: int) -> list[int]:
    """Return the values that are too frequent to be hidden: fakes can't make all values equally uncertain.

    Args:
        counts: The number of records of each value (m,).
        setting: The bucket sizes and the number of buckets of each.
        sigma: The number of fake values in every bucket.
    """
    order = np.argsort(-counts, kind="stable")
    room = [(size + sigma, Fraction(buckets * size, size + sigma)) for size, buckets in setting.items]
    each = sum(space for _, space in room)
    frequent = [value for value, count in enumerate(counts.tolist()) if count > each]
    if frequent:
        return frequent
    total = 0
    for k, value in enumerate(order.tolist(), start=1):
        total += int(counts[value])
        if total > sum(min(listed, k) * space for listed, space in room):
            return [int(other) for other in order[:k]]
    return []


def find_even_plan(problem: BucketProblem, sigma: int, find: Find) -> Plan:
    """Return a plan in which fakes can hide all values evenly: each listed value is equally likely to be real.

    Plans are tried with ever smaller largest buckets, because in a bucket of S records no value may have more than
    1/(S + sigma) of all records.

    Args:
        problem: The counts and bounds.
        sigma: The number of fake values in every bucket.
        find: Returns a plan for a problem.

    Raises:
        InfeasibleError: No plan was found, or some values are too frequent. The error names these values, and settings
            that would work.
    """
    plan, frequent = _try_sizes(problem, sigma, find)
    if not frequent:
        return plan

    def can_hide(other: BucketProblem, fakes: int) -> bool:
        try:
            return not _try_sizes(other, fakes, find)[1]
        except InfeasibleError:
            return False

    def with_buckets_of(size: int) -> BucketProblem:
        bounds = (Fraction(1, size),) * len(problem.counts)
        smallest, largest = min(problem.smallest, size), min(problem.largest, 2 * size - 1)
        return replace(problem, thresholds=bounds, smallest=smallest, largest=largest)

    smallest, listed = int(problem.sizes[0]), problem.records // int(problem.counts.max())
    few, small = range(min(sigma - 1, listed - smallest), 0, -1), range(min(smallest - 1, listed - sigma), 1, -1)
    fewer = next((number for number in few[:TRIED] if can_hide(problem, number)), None)
    size = next((one for one in small[:TRIED] if can_hide(with_buckets_of(one), sigma)), None)
    shares = {problem.label(i): Fraction(int(problem.counts[i]), problem.records) for i in frequent}
    names = list_names([f"{label} ({float(share):.3g})" for label, share in shares.items()])
    offers = ["mechanism.uneven_fakes = 'state', which publishes how much more certain they are"]
    details: dict[str, object] = {"too_frequent": {label: str(share) for label, share in shares.items()}}
    if size:
        offers.insert(0, f"buckets of {size} records or more (threshold = '1/{size}')")
    if fewer:
        offers.insert(0, f"fake_values = {fewer}")
        details["largest_fake_values"] = fewer
    raise InfeasibleError(
        f"fake_values = {sigma} in buckets of {smallest} or more hides a value evenly only if it has at most "
        f"1/{smallest + sigma} of the records; more frequent: {names}; what works: {' or '.join(offers)}",
        details | ({"largest_bucket": size} if size else {}),
    )


def _try_sizes(problem: BucketProblem, sigma: int, find: Find) -> tuple[Plan, list[int]]:
    """Search for a plan in which no value is too frequent for fakes to hide, with ever smaller largest buckets.

    Returns:
        (the plan, an empty list). If there is none, (the last plan tried, the values that are too frequent for it).
    """
    plan = find(problem)
    while most := find_too_frequent(problem.counts, plan.setting, sigma):
        smaller = plan.setting.sizes[-1] - 1
        if problem.counts.max() * (int(problem.sizes[0]) + sigma) > problem.records or smaller < problem.sizes[0]:
            return plan, most
        try:
            plan = find(replace(problem, largest=smaller))
        except InfeasibleError:
            return plan, most
    return plan, []


# Rounding -------------------------------------------------------------------------------------------------------------
# Dependent rounding: choose entries at random with exact chances, and a fixed number of them in every row and kind.
#
# An entry is a listed value: a place in a row (bucket) with a kind (value). Entry e has the chance w_e / 2^BITS, where
# w_e is an integer. In every row and in every kind the chances sum to an integer. ``choose_entries`` guarantees
#
#     P(e is chosen) = w_e / 2^BITS exactly, and each row and each kind always has as many as its chances sum to.
#
# Bits are made 0 one after the other, from the lowest up. Each row and each kind has an even number of weights that are
# odd in the current bit. Half of these weights rise by this bit and half fall, in every row and in every kind. To this
# end they are paired within rows. Two pairs of the same two kinds move in opposite directions, by a fair coin. At most
# one pair of any two kinds is left. These pairs form closed walks through the kinds, and a fair coin decides in which
# direction each is walked. Up is as likely as down for every entry at every bit, whatever happened before. So chances
# are kept. (Gandhi, Khuller, Parthasarathy, Srinivasan 2006 round along one path after the other. Halving suits arrays;
# Alon 2003 halves regular bipartite graphs in this way.)

BITS = 24
ONE = 1 << BITS
ENOUGH = 1e-5  # sums of chances may be off by so much; rounding to integers then makes them exact
MARGIN = ONE >> 10  # entries with weights this near to 0 or 2^BITS do not take what rounding leaves over


def make_weights(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Ints | None:
    """Turn the chances of listed values to be fake into integers w between 0 and 2^BITS, with exact sums.

    ``choose_entries`` can then draw the fakes with exactly these chances. A chance is w / 2^BITS. If all or none of a
    value's entries are fake, their chances are exactly 1 or 0.

    Args:
        entries: The listed values, E entries of rows (buckets) and kinds (values).
        chances: About the chance of each entry to be fake (E,).
        of_rows: The number of fakes in each bucket; the chances in a bucket sum to it.
        of_kinds: How often each value is fake; the chances of a value's entries sum to it.

    Returns:
        The integers (E,); None if no integers near the chances have these sums.
    """
    lengths = entries.lengths[1]
    integers = np.where((of_kinds == lengths)[entries.kinds], ONE, 0)
    free = np.flatnonzero(((of_kinds > 0) & (of_kinds < lengths))[entries.kinds])
    rest = of_rows - entries.sum_amounts(integers)[0].astype(np.int64) // ONE
    part = Entries(entries.rows[free], entries.kinds[free], entries.shape)
    if ((rest < 0) | (rest > part.lengths[0])).any() or ((of_kinds < 0) | (of_kinds > lengths)).any():
        return None
    if len(free):
        of_free = np.where(of_kinds < lengths, of_kinds, 0)
        near = scale_chances(part, chances[free], rest, of_free)
        if np.abs(part.sum_amounts(near)[1] - of_free).max() > ENOUGH:
            return None
        integers[free] = _round_exactly(part, near, rest, of_free)
    over_rows, over_kinds = entries.sum_amounts(integers)
    exact = (over_rows == of_rows * ONE).all() and (over_kinds == of_kinds * ONE).all()
    return integers if exact and (integers >= 0).all() and (integers <= ONE).all() else None


def _round_exactly(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Ints:
    """Round ``chances`` times 2^BITS to integers whose sums over buckets and over values are exact.

    The chances are those of listed values to be fake. What rounding leaves over in a bucket is spread over the bucket's
    entries. What it leaves over of a value is moved to another value, and spread over all buckets that list both. If
    one entry took all of it, that entry would be more certain to be real than the chances say.

    Args:
        entries: The listed values, E entries of rows (buckets) and kinds (values).
        chances: The chance of each entry to be fake (E,).
        of_rows: The number of fakes in each bucket, which is the exact sum of its chances.
        of_kinds: How often each value is fake, which is the exact sum of its chances.
    """
    integers = np.floor(chances * ONE).astype(np.int64)
    lengths = entries.lengths[0]
    place = np.arange(len(integers)) - (np.cumsum(lengths) - lengths)[entries.rows]
    each, more = np.divmod(of_rows * ONE - entries.sum_amounts(integers)[0].astype(np.int64), np.maximum(lengths, 1))
    integers += each[entries.rows] + (place < more[entries.rows])
    left = of_kinds * ONE - entries.sum_amounts(integers)[1].astype(np.int64)
    for kind, other, ends, others in _spanning_tree(entries, integers):
        portion, rest = divmod(int(left[kind]), len(ends))
        moved = portion + (np.arange(len(ends)) < rest)
        integers[ends] += moved
        integers[others] -= moved
        left[other] += left[kind]
        left[kind] = 0
    return integers


def _spanning_tree(entries: Entries, integers: Ints) -> list[tuple[int, int, Ints, Ints]]:
    """Return a tree of values, along whose edges rounding errors are moved until the sum of each value is exact.

    An edge joins two values that often stand in the same bucket, so that the sums of buckets stay as they are. Entries
    (listed values) whose chance to be fake is near 0 or 1 are used only if there are no others.

    Args:
        entries: The listed values, as (bucket, value) pairs.
        integers: The rounded chance of each entry to be fake, times 2^BITS (E,).

    Returns:
        The edges as (value, its parent in the tree, entries of the value, entries of the parent), from the leaves to
        the root. The k-th entries of both values stand in the same bucket.
    """
    number, loose = entries.shape[1], (integers >= MARGIN) & (integers <= ONE - MARGIN)
    neighbours = np.flatnonzero(entries.rows[1:] == entries.rows[:-1])
    low, high = (order(entries.kinds[neighbours], entries.kinds[neighbours + 1]) for order in (np.minimum, np.maximum))
    keys, place = np.unique(low * number + high, return_inverse=True)
    wide = loose[neighbours] & loose[neighbours + 1]
    often = np.bincount(place, wide, len(keys))
    wide |= often[place] == 0
    neighbours, place = neighbours[wide], place[wide]
    pairs = np.split(neighbours[np.argsort(place, kind="stable")], np.cumsum(np.bincount(place))[:-1])
    graph = scipy.sparse.csr_array((1 / (1 + often), np.divmod(keys, number)), shape=(number, number))
    tree = scipy.sparse.csgraph.minimum_spanning_tree(graph)
    _, component = scipy.sparse.csgraph.connected_components(tree, directed=False)
    edges = []
    for root in np.unique(component, return_index=True)[1].tolist():
        order, parents = scipy.sparse.csgraph.breadth_first_order(tree, root, directed=False)
        for kind in order[:0:-1].tolist():
            other = int(parents[kind])
            key = np.searchsorted(keys, min(kind, other) * number + max(kind, other))
            at = pairs[key]
            is_first = entries.kinds[at] == kind
            edges.append((kind, other, np.where(is_first, at, at + 1), np.where(is_first, at + 1, at)))
    return edges


def choose_entries(entries: Entries, weights: Ints, noise: Shuffler) -> Flags:
    """Choose listed values at random, each with its exact chance; every bucket and every value gets its exact number.

    Args:
        entries: E listed values. Entries that follow each other in a bucket are rounded in opposite directions, so
            their order should be random.
        weights: The chance of each entry times 2^BITS (E,). They sum to whole numbers of entries in each bucket and
            value.
        noise: The random numbers.

    Returns:
        Whether each entry is chosen (E,).
    """
    left, number = weights.copy(), entries.shape[1]
    for bit in range(BITS):
        odd = np.flatnonzero((left >> bit) & 1)
        if not len(odd):
            continue
        one, two = entries.kinds[odd[0::2]], entries.kinds[odd[1::2]]
        # One entry of each pair rises and the other falls, so that every kind rises as often as it falls.
        turned = one > two
        keys = np.where(turned, two * number + one, one * number + two)
        order = noise.permutation(len(keys))
        order = order[np.argsort(keys[order], kind="stable")]
        keys = keys[order]
        starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=bool), keys[1:] != keys[:-1])))
        lengths = np.diff(np.append(starts, len(keys)))
        second = (np.arange(len(keys)) - np.repeat(starts, lengths)) % 2 == 1
        sorted_rises = noise.integers(0, 2, len(keys)).astype(bool)
        sorted_rises[second] = ~sorted_rises[np.flatnonzero(second) - 1]
        alone = (starts + lengths - 1)[lengths % 2 == 1]
        if len(alone):
            sorted_rises[alone] = _walk_trails(keys[alone] // number, keys[alone] % number, noise)
        rises = np.empty_like(sorted_rises)
        rises[order] = sorted_rises
        step = np.where(rises ^ turned, 1 << bit, -1 << bit)
        left[odd[0::2]] += step
        left[odd[1::2]] -= step
    return np.asarray(left == ONE)


def _walk_trails(one: Ints, two: Ints, noise: Shuffler) -> Flags:
    """Draw for each pair of listed values (entries) which one's chance to be fake rises; the other one's falls.

    This is a step of rounding chances to 0 or 1, which must not change how often a value is fake. So the chances of a
    value must rise in as many of its pairs as they fall; the number of its pairs is even. The pairs of each value are
    joined two by two at random, which gives closed walks from value to value. A fair coin decides the direction of each
    walk. In each pair a walk goes from one value to the other: the chance of the first rises, that of the second falls.

    Args:
        one: The value of the first entry of each pair.
        two: The value of the second entry of each pair.
        noise: The random numbers.

    Returns:
        Whether the chance of each pair's first entry rises.
    """
    kinds = np.stack((one, two), axis=1).ravel()
    order = noise.permutation(len(kinds))
    order = order[np.argsort(kinds[order], kind="stable")]
    joined = np.empty(len(kinds), dtype=np.int64)
    joined[order[0::2]], joined[order[1::2]] = order[1::2], order[0::2]
    across = np.arange(len(kinds)) ^ 1
    follow = scipy.sparse.csr_array((np.ones(len(kinds)), joined[across], np.arange(len(kinds) + 1)))
    number, cycle = scipy.sparse.csgraph.connected_components(follow)
    coins = noise.integers(0, 2, number).astype(bool)
    other = cycle[across]
    return np.asarray(np.where(cycle < other, coins[cycle], ~coins[other]))[0::2]


# Law ------------------------------------------------------------------------------------------------------------------
# Fake sensitive values protect against adversaries who know the values of others in a bucket (Wang et al., section 6).
#
# In ST, bucket g lists |g| + sigma distinct values, sigma of them fake. First the lists are laid out, each value as
# often as ``times_listed`` says. Only then it is drawn which listed values are fake, by dependent rounding. So
#
#   every bucket has exactly |g| real values and sigma fakes, and every value x is real exactly o_x times, while
#   each listed value is real with probability |g|/(|g| + sigma) times r_x,   r_x = o_x / sum_j L_xj S_j/(S_j + sigma),
#
# given all lists. L_xj is how often the b_j buckets of size S_j list x. The factor r_x is 1 up to the rounding of L_x;
# where it can't be 1, it is stated. So nothing in the lists tells a fake from a real value: not which buckets list a
# value, nor what else they or their neighbours list. (If fakes were added to buckets that are laid out already, the
# lists would give them away: a frequent value would nearly always be real, and a rare one fake.) Probabilities differ
# a little between buckets, because the sums of each bucket are exact, too.
#
# Once q records of a bucket are known, |g| - q + sigma listed values remain, sigma of them fake.

TRIES, LAYOUT_TRIES = 10, 2  # attempts to lay out lists and draw fakes; all but the first two use layout ``blocks``


@dataclass(frozen=True)
class HiddenValues:
    """Which bucket lists which values, and which of these are fake: B buckets with sigma fakes each.

    Attributes:
        bids: The bucket of every record, value by value; within a value in uniformly random order (n,).
        fake_bids: The bucket of each fake (sigma B,).
        fake_codes: The value of each fake (sigma B,).
        highest: The largest probability of a listed value to be real, exactly.
    """

    bids: Bids
    fake_bids: Ints
    fake_codes: Ints
    highest: Fraction


def plan_lists(plan: Plan, counts: Ints, sigma: int) -> Plan:
    """Plan what buckets list: treat fake values like records of larger buckets.

    The result has bucket sizes that include ``sigma`` fakes. It says how often each value is listed in all buckets of
    each size.

    Args:
        plan: The plan for the records alone: the number of buckets of each size, and the records of each value by size.
        counts: The number of records of each value (m,).
        sigma: The number of fake values in every bucket.
    """
    setting = Setting.from_counts({size + sigma: buckets for size, buckets in plan.setting.items})
    return Plan(plan.algorithm, setting, times_listed(counts, plan.setting.items, sigma))


def hide_values(plan: Plan, counts: Ints, sigma: int, layout: str, noise: Shuffler) -> HiddenValues:
    """Draw which bucket lists which values, and which of the listed values are fake.

    Args:
        plan: How many buckets there are of each size, and how many records of each value go to each size.
        counts: The number of records of each value (m,).
        sigma: The number of fake values in every bucket.
        layout: The name of the way in which records are dealt to buckets, such as ``blocks``.
        noise: The random numbers.

    Raises:
        InfeasibleError: Every attempt failed to give each bucket and each value its number of fakes, as can happen in
            tiny tables.
    """
    listed = plan_lists(plan, counts, sigma)
    codes = np.repeat(np.arange(len(counts)), listed.allocation.sum(axis=1))
    for attempt in range(TRIES):
        tried = layout if attempt < LAYOUT_TRIES else "blocks"
        bids = make_layout(listed, tried, noise).draw_places(noise)
        numbers, first = [], 0  # buckets of one size lie in random order, whatever the layout
        for buckets in plan.setting.buckets:
            numbers.append(first + noise.permutation(buckets))
            first += buckets
        bids = np.concatenate(numbers).astype(bids.dtype)[bids]
        drawn = _draw_fakes(bids, codes, counts, plan.setting, sigma, noise)
        if drawn is not None:
            fake, highest = drawn
            return HiddenValues(bids[~fake], bids[fake].astype(np.int64), codes[fake], highest)
    raise InfeasibleError(
        f"{sigma} fake values in each of {sum(plan.setting.buckets)} buckets leave no doubt which are fake;  "
        "lower fake_values, or publish more records"
    )


def _draw_fakes(
    bids: Bids, codes: Ints, counts: Ints, setting: Setting, sigma: int, noise: Shuffler
) -> tuple[Flags, Fraction] | None:
    """Draw which listed values are fake: ``sigma`` in each bucket; each value is real once for each of its records.

    In a bucket of S records, each listed value is fake with a probability of about sigma/(S + sigma).

    Args:
        bids: The bucket of each listed value (E,).
        codes: The value itself (E,).
        counts: The records of each value (m,).
        setting: The bucket sizes, without fakes, and the number of buckets of each.
        sigma: The number of fake values in every bucket.
        noise: The random numbers.

    Returns:
        (whether each listed value is fake (E,), the largest probability of one to be real). None if no such
        probabilities give each bucket and each value its number of fakes.
    """
    order = noise.permutation(len(bids))
    order = order[np.argsort(bids[order], kind="stable")]
    buckets = sum(setting.buckets)
    entries = Entries(bids[order].astype(np.int64), codes[order], (buckets, len(counts)))
    real = np.repeat([size / (size + sigma) for size in setting.sizes], setting.buckets)[entries.rows]
    of_rows = np.full(buckets, sigma, dtype=np.int64)
    of_kinds = np.bincount(codes, minlength=len(counts)) - counts
    ratio = counts / np.maximum(entries.sum_amounts(real)[1], np.finfo(float).tiny)
    near = np.asarray((1 - real * ratio[entries.kinds]).clip(0, 1))  # 1 - r_x S/(S + sigma), about
    chances = make_weights(entries, near, of_rows, of_kinds)
    if chances is None:
        return None
    fake = np.empty(len(bids), dtype=bool)
    fake[order] = choose_entries(entries, chances, noise)
    return fake, 1 - Fraction(int(chances.min()), ONE)


# Certainty ------------------------------------------------------------------------------------------------------------
# A release with fakes states exactly, value by value, how probable it is that a listed value is real (its certainty).
#
# ``real`` states how many records have each value, o_x. ST lists value x L_x times, so its certainty is o_x/L_x.
# ``certainty`` states the ``mean`` over all listed values (S/(S + sigma) if there is one bucket size), and the
# ``lowest`` and the ``highest`` certainty of a value. A published release adds ``anywhere``: the highest certainty of a
# value in a single bucket, rounded up. ``uneven`` states the certainty of values that are too frequent for fakes to
# hide them.


def certainty_facts(problem: BucketProblem, setting: Setting, sigma: int) -> FakeFacts:
    """Return the facts on how likely each listed value is to be real, for ``sigma`` fakes in every bucket."""
    counts = problem.counts
    listed = times_listed(counts, setting.items, sigma).sum(axis=1)
    each = {x: Fraction(int(counts[x]), int(listed[x])) for x in np.flatnonzero(listed).tolist()}
    of_values = [each[x] for x in each if counts[x]]
    return FakeFacts(
        fake_values=sigma,
        real=counts.tolist(),
        certainty=CertaintyFacts(
            mean=fraction_text(Fraction(problem.records, int(listed.sum()))),
            lowest=fraction_text(min(of_values)),
            highest=fraction_text(max(of_values)),
        ),
        uneven={problem.label(x): fraction_text(each[x]) for x in find_too_frequent(counts, setting, sigma)},
    )


# Exclusion ------------------------------------------------------------------------------------------------------------
# Take only fakes that associations exclude for nobody in the bucket (Wang et al., section 6).
#
# Negative associations are learnt as an adversary would learn them from the release without fakes. Value x is excluded
# for level z of a quasi-identifier if the reconstructed share of x among records with z is far below the overall share
# of x, by several standard errors (``mark_excluded``). An attacker who strikes excluded values off a person's list then
# strikes off no fakes.
#
# Fakes that are excluded are exchanged between buckets. This does not change how often each value is listed and real.
# But it has a price: an attacker who knows of the exchange concludes that a value which is excluded for somebody in its
# bucket is real, and belongs to somebody else. The other listed values are then fake more often.

SWEEPS, PATIENCE = 2000, 200  # rounds of exchanges: at most, and in a row without fewer excluded fakes


@dataclass(frozen=True)
class ExchangedFakes:
    """The fake values after buckets have exchanged some, so that an attacker can rule out fewer of them.

    A value is excluded for a record if the release shows it to be rare among records that agree with it in a
    quasi-identifier.

    Attributes:
        codes: The new value of each fake; its bucket is as before.
        weak: The number of fakes that are still excluded for some record of their bucket.
        certain: The number of real listed values that are excluded for some record of their bucket.
    """

    codes: Ints
    weak: int
    certain: int


def avoid_excluded(real: BucketRuns, bids: Ints, codes: Ints, excluded: Ints, noise: Shuffler) -> ExchangedFakes:
    """Exchange fake values between buckets until an attacker can exclude none of them, or no exchange helps any more.

    A fake is excluded if the release shows it to be rare among records that agree with some record of the bucket in a
    quasi-identifier. In each round, buckets are matched two by two at random, and each gives the other one of its
    fakes, if possible an excluded one. The exchange is made if no bucket would list a value twice, and no more fakes
    would be excluded.

    Args:
        real: The real values that buckets list.
        bids: The bucket of each fake.
        codes: The value of each fake.
        excluded: The pairs (bucket, value) where the value is excluded for some record of the bucket, as rows.
        noise: The random numbers.
    """
    order = np.argsort(bids, kind="stable")
    held, barred = (_BucketValues(real.values, *pairs) for pairs in (real.listed_pairs, excluded.T))
    buckets = bids[order].reshape(int(bids.max(initial=-1)) + 1, -1)[:, 0]
    listed, vain = codes[order].reshape(len(buckets), -1), 0
    weak = barred.has_pairs(buckets[:, None], listed)
    left, half = int(weak.sum()), len(buckets) // 2
    for _ in range(SWEEPS):
        if not left or vain == PATIENCE:
            break
        drawn, some = noise.permutation(len(buckets)), np.asarray(weak.any(axis=1))
        one, two = drawn[:half], drawn[half : 2 * half]
        either_weak = some[one] | some[two]
        one, two = one[either_weak], two[either_weak]
        first, second = (_pick_columns(weak[rows], noise) for rows in (one, two))
        first_codes, second_codes = listed[one, first], listed[two, second]
        free = ~(held.has_pairs(buckets[one], second_codes) | (listed[one] == second_codes[:, None]).any(axis=1))
        free &= ~(held.has_pairs(buckets[two], first_codes) | (listed[two] == first_codes[:, None]).any(axis=1))
        there, here = barred.has_pairs(buckets[one], second_codes), barred.has_pairs(buckets[two], first_codes)
        done = free & (there.astype(int) + here <= weak[one, first].astype(int) + weak[two, second])
        one, first, two, second = one[done], first[done], two[done], second[done]
        listed[one, first], listed[two, second] = second_codes[done], first_codes[done]
        weak[one, first], weak[two, second] = there[done], here[done]
        before, left = left, int(weak.sum())
        vain = 0 if left < before else vain + 1
    exchanged = np.empty_like(codes)
    exchanged[order] = listed.ravel()
    return ExchangedFakes(exchanged, left, int(barred.has_pairs(*real.listed_pairs).sum()))


def _pick_columns(weak: Flags, noise: Shuffler) -> Ints:
    """Draw for each bucket which of its fakes to exchange: one that an attacker can exclude if there is any.

    Args:
        weak: Whether an attacker can exclude each fake for some record of its bucket (buckets, sigma).
        noise: The random numbers.

    Returns:
        The position of the drawn fake among those of its bucket (buckets,).
    """
    order = noise.integers(0, 2**30, weak.size).reshape(weak.shape)
    return np.asarray((order + weak * 2**30).argmax(axis=1))


class _BucketValues:
    """A set of (bucket, value) pairs, for quick look-up."""

    def __init__(self, values: int, bids: Ints, codes: Ints) -> None:
        self._values, self._keys = values, np.unique(bids * values + codes)

    def has_pairs(self, bids: Ints, codes: Ints) -> Flags:
        """Return for each pair of a bucket and a value whether it is in the set."""
        wanted = bids * self._values + codes
        if not len(self._keys):
            return np.zeros(len(wanted), dtype=bool)
        return np.asarray(self._keys[np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)] == wanted)


def refuse_weak(weak: int, policy: str) -> None:
    """Refuse fake values that an attacker can exclude for some record of their bucket, unless the policy allows them.

    Args:
        weak: The number of fake values that an attacker can exclude.
        policy: The parameter ``no_admissible_fake``.

    Raises:
        InfeasibleError: There are such values, and the policy is ``refuse``.
    """
    if weak and policy == "refuse":
        raise InfeasibleError(
            f"{weak} fake values would be excluded by negative associations: their buckets have too few others; "
            "set mechanism.no_admissible_fake = 'weaker' to publish them anyway, or lower fake_values",
            {"weak_fakes": weak},
        )


def find_excluded(db: Relations, roles: Roles, real: BucketRuns, channel: Channel) -> Ints:
    """Find the values that an attacker can exclude for some record of a bucket.

    The release shows that they are rare among records that agree with this record in a quasi-identifier.

    Args:
        db: The engine that holds table ``qit`` of the release.
        roles: The columns by role.
        real: What buckets list without fakes.
        channel: How often values share buckets without fakes, as a linear channel from true to listed values.

    Returns:
        The pairs (bucket, value), as rows of an array.

    Raises:
        UsageError: There are too many sensitive values.
    """
    from privsql.attacks.adversaries import mark_excluded
    from privsql.attacks.suite import Association

    if len(channel.records) > LARGE:
        raise UsageError(f"exclude_negative looks at every value of every column; it takes at most {LARGE} values")
    bids, codes = real.listed_pairs
    sizes, parts = np.bincount(bids), [np.empty((0, 2), dtype=np.int64)]
    lists = scipy.sparse.csr_array((1 / sizes[bids], (bids, codes)), shape=(len(sizes), real.values))
    for field, item in zip(roles.quasi_identifiers, comparable_columns(roles), strict=True):
        bid = alias_as(roles.by_qi.as_column("bid"), "bid")
        rows = db.arrow(exp.select(bid, item).from_(table("qit", "release")))
        levels, level = np.unique(code_column(rows[item.alias], field), return_inverse=True)
        shape = (len(levels), len(sizes))
        members = scipy.sparse.csr_array((np.ones(len(level)), (level, rows["bid"].to_numpy())), shape=shape)
        observed, totals = (members @ lists).toarray(), np.bincount(level).astype(np.float64)
        question = observe_counts(observed, totals, float(channel.records.sum()))
        counts = reconstruct(channel, question, np.eye(real.values))
        association = Association(level, counts.values, counts.std_error, totals)
        excluded = scipy.sparse.csr_array(mark_excluded(association, channel.shares).astype(np.int8))
        parts.append(np.stack((members.T @ excluded).tocoo().coords, axis=1))
    return np.unique(np.concatenate(parts), axis=0)
