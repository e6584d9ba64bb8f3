"""Add fake values to buckets: how many of each, where, and how certain they leave the real ones."""

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
# A plan lets fakes hide all values evenly if no value is too frequent.
#
# L_x of ``times_listed`` exist in fractions if and only if the k most frequent values have, for every k, at most
# sum_j min(S_j + sigma, k) b_j S_j/(S_j + sigma) records (Gale: all values have the same room, so the most frequent
# ones are the tightest).

MOST_NAMED = 8  # values that a message names
TRIED = 8  # sizes, or numbers of fakes, that are tried before nothing is offered


def list_names(names: Sequence[str]) -> str:
    """Return the first few names of values as text, with the number of those that are left out."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def find_too_frequent(counts: Ints, setting: Setting, sigma: int) -> list[int]:
    """Return the values that are too frequent for ``sigma`` fakes in every bucket to hide all values evenly."""
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
    """Return a plan that hides all values evenly among ``sigma`` fake values in every bucket.

    Plans are tried by falling size of the largest bucket, because smaller buckets ask less: no value may have more than
    1/(S + sigma) of the records.

    Args:
        problem: The counts and bounds.
        sigma: The number of fake values in every bucket.
        find: Returns a plan for a problem.

    Raises:
        InfeasibleError: ``find`` finds no plan, or values are too frequent. The error names these, and the most fakes
            and the largest buckets among those tried that hide all values.
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
    """Return the first plan that hides all values evenly, with an empty list.

    If there is none, return the last plan tried with the values that are too frequent for it.
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
# Dependent rounding: a random choice of entries with exact chances, exactly so many in every row and of every kind.
#
# An entry is a place in a row (bucket) with a kind (value). Each entry e has a chance w_e / 2^BITS, w_e an integer,
# that sum to an integer over every row and over every kind. ``choose_entries`` takes some such that
#
#     P(e is chosen) = w_e / 2^BITS exactly,  and every row and every kind has as many as its chances sum to, always.
#
# From the lowest bit up, the weights that are odd in that bit are moved by one bit, half of them up and half down in
# every row and of every kind: there is an even number of them in each. They are paired within rows; two pairs of the
# same two kinds move oppositely, by a fair coin; what is left, at most one pair of any two kinds, forms closed trails
# through the kinds, each walked in the one or in the other direction by a fair coin. Up is as likely as down for every
# entry at every bit, whatever happened before, so chances are kept. (Gandhi, Khuller, Parthasarathy, Srinivasan 2006
# round along paths one after the other; halving is for arrays, as Alon 2003 halves regular bipartite graphs.)

BITS = 24
ONE = 1 << BITS
ENOUGH = 1e-5  # how far off a sum may be that integers make good
MARGIN = ONE >> 10  # from 0 and from 2^BITS, of entries that take what rounding leaves open


def make_weights(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Ints | None:
    """Round chances (E,) to integers w (E,) between 0 and 2^BITS, with exact sums.

    Each w is near its chance times 2^BITS. The sums over rows and kinds are ``of_rows`` and ``of_kinds`` times 2^BITS.
    Where all or none of a kind is chosen, its entries are fixed. The result is None if no such integers are nearby.
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
    """Return integers near ``chances`` times 2^BITS whose sums over rows and kinds are exact.

    What rounding leaves open in a row is spread over the row's entries. What it leaves open of a kind is moved to
    another kind, along a tree of kinds that often share a row, and is spread over all shared rows. If one entry took
    all of it, that entry would be less certain to be fake than any chance says.
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
    """Return a tree of kinds as (kind, its parent, entries of the kind, entries of the parent), leaves first.

    The entries of the two stand beside each other in a row. Entries whose chance is nearly 0 or 1 are left out where
    two kinds have others.
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
    """Choose entries (E,), each with its chance; each row and each kind gets as many as its chances sum to.

    The order of a row's entries, whatever it is, decides who is paired with whom: give them in random order.
    """
    left, number = weights.copy(), entries.shape[1]
    for bit in range(BITS):
        odd = np.flatnonzero((left >> bit) & 1)
        if not len(odd):
            continue
        one, two = entries.kinds[odd[0::2]], entries.kinds[odd[1::2]]
        # Of each pair one rises, so that every kind rises as often as it falls.
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
    """Draw for each pair whether its first kind rises, by walking closed trails.

    Every kind has an even number of ends of pairs, and these are joined two by two at random. Going from an end to the
    other end of its pair, and on to the end joined with that one, permutes the ends. The cycles of this permutation
    come in twos: one of ends that rise, one of ends that fall.
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
# Fake sensitive values against adversaries who know the values of others in a bucket (Wang et al., section 6).
#
# Each bucket's ST lists |g| + sigma distinct values, sigma of them fake. What is to be listed is laid out first, as
# often as ``times_listed`` says, and only then is drawn which of it is fake, by dependent rounding, so that
#
#   every bucket has exactly |g| real values and sigma fakes, and every value x exactly its o_x records, while
#   each listed value is real with probability |g|/(|g| + sigma) times r_x,   r_x = o_x / sum_j L_xj S_j/(S_j + sigma),
#
# given all lists: r_x is 1 up to the rounding of L_x (and is stated where it can't be). So nothing that is seen of the
# lists tells a fake from a real value, not which buckets list a value, nor whether neighbours list it, nor what else
# they list. (Fakes drawn beside buckets that are laid out already are given away by that: a frequent value is nearly
# always real, a rare one fake, and a value that runs through neighbouring buckets real.) Probabilities differ a little
# between buckets where rounding left values of different r_x together, as the sums of a bucket are exact, too.
#
# After q records of a bucket are known, |g| - q + sigma listed values remain, sigma of them fake.

TRIES, LAYOUT_TRIES = 10, 2  # lists that leave no exact choice of fakes are laid out anew, at last as mixes best


@dataclass(frozen=True)
class HiddenValues:
    """The values that buckets list, and which of them are fake.

    Attributes:
        bids: For each value in turn the buckets of its records, in uniformly random order (n,).
        fake_bids: The buckets of the fakes (sigma B,).
        fake_codes: The values of the fakes (sigma B,).
        highest: The largest probability that a listed value is real, exactly.
    """

    bids: Bids
    fake_bids: Ints
    fake_codes: Ints
    highest: Fraction


def plan_lists(plan: Plan, counts: Ints, sigma: int) -> Plan:
    """Return the plan of the listed values: its buckets have |g| + sigma values, its allocation counts listings."""
    setting = Setting.from_counts({size + sigma: buckets for size, buckets in plan.setting.items})
    return Plan(plan.algorithm, setting, times_listed(counts, plan.setting.items, sigma))


def hide_values(plan: Plan, counts: Ints, sigma: int, layout: str, noise: Shuffler) -> HiddenValues:
    """Draw lists of |g| + sigma values for the buckets of a plan, and which of the listed values are fake.

    Raises:
        InfeasibleError: No choice of fakes gives every bucket and every value its number of fakes (in tiny tables
            only).
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
    """Draw which listed values are fake.

    Args:
        bids: The bucket of each listed value (E,).
        codes: The value (E,).
        counts: The records of each value (m,).
        setting: The setting of the records.
        sigma: The number of fake values in every bucket.
        noise: What draws.

    Returns:
        Whether each is fake (E,), and the largest probability that one is real. None if no choice has exact chances.
    """
    order = noise.permutation(len(bids))
    order = order[np.argsort(bids[order], kind="stable")]
    buckets = sum(setting.buckets)
    entries = Entries(bids[order].astype(np.int64), codes[order], (buckets, len(counts)))
    real = np.repeat([size / (size + sigma) for size in setting.sizes], setting.buckets)[entries.rows]
    of_rows = np.full(buckets, sigma, dtype=np.int64)
    of_kinds = np.bincount(codes, minlength=len(counts)) - counts
    ratio = counts / np.maximum(entries.sum_amounts(real)[1], np.finfo(float).tiny)
    near = np.asarray((1 - real * ratio[entries.kinds]).clip(0, 1))  # 1 - r_x S/(S + sigma), before rows are right
    chances = make_weights(entries, near, of_rows, of_kinds)
    if chances is None:
        return None
    fake = np.empty(len(bids), dtype=bool)
    fake[order] = choose_entries(entries, chances, noise)
    return fake, 1 - Fraction(int(chances.min()), ONE)


# Certainty ------------------------------------------------------------------------------------------------------------
# How certain it is that a listed value is real, as a release with fakes states it: exactly, value by value.
#
# ``real`` = o_x: with how often ST lists the value, L_x, its certainty o_x/L_x, whatever is fake. ``certainty``: the
# ``mean`` over all that is listed, which is S/(S + sigma) where there is one size, the ``lowest`` and the ``highest``
# of a value and, published, ``anywhere``: the highest of a value in a single bucket, rounded up.
# ``uneven``: the certainty of the values that are too frequent for fakes to hide them as well as others.


def certainty_facts(problem: BucketProblem, setting: Setting, sigma: int) -> FakeFacts:
    """Return the facts on how certain listed values are, for a plan with ``sigma`` fake values in every bucket."""
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
# Fakes that associations exclude for nobody in the bucket (Wang et al., section 6).
#
# Negative associations are learnt as an adversary would from the release without fakes: value x is excluded for z where
# the reconstructed share of x among the records with z lies, with some standard errors to spare, far below the overall
# share of x (``mark_excluded``). Who strikes such values off a person's list then strikes off no fakes.
#
# Fakes that are excluded are exchanged between buckets, which leaves how often each value is listed and real as it is.
# But nothing is hidden twice: a listed value that is excluded for somebody in its bucket can then only be real,
# somebody else's, for who knows that fakes were chosen so; and the other listed values are fake the more often.

SWEEPS, PATIENCE = 2000, 200  # exchanges between all buckets, two by two: at most, and in vain


@dataclass(frozen=True)
class ExchangedFakes:
    """The fake values after all exchanges.

    Attributes:
        codes: The value of each fake (N,); its bucket has not changed.
        weak: The number of fakes that are still excluded.
        certain: The number of real listed values that are excluded for some record of their bucket.
    """

    codes: Ints
    weak: int
    certain: int


def avoid_excluded(real: BucketRuns, bids: Ints, codes: Ints, excluded: Ints, noise: Shuffler) -> ExchangedFakes:
    """Exchange fake values between buckets until none of them is excluded, or no exchange helps.

    In every sweep, buckets are matched two by two at random. A fake of each is exchanged, an excluded one if there is
    any. This is done if neither bucket lists the other's fake, and if no more fakes are excluded after than before.

    Args:
        real: The lists of real values.
        bids: The bucket of each fake (N,).
        codes: The value of each fake (N,).
        excluded: The pairs of a bucket and a value that are excluded (e, 2).
        noise: What draws.
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
    """Draw a column of each row, a marked one if the row has any."""
    order = noise.integers(0, 2**30, weak.size).reshape(weak.shape)
    return np.asarray((order + weak * 2**30).argmax(axis=1))


class _BucketValues:
    """A set of pairs of a bucket and a value, for quick look-up."""

    def __init__(self, values: int, bids: Ints, codes: Ints) -> None:
        self._values, self._keys = values, np.unique(bids * values + codes)

    def has_pairs(self, bids: Ints, codes: Ints) -> Flags:
        """Return which of the pairs are in the set."""
        wanted = bids * self._values + codes
        if not len(self._keys):
            return np.zeros(len(wanted), dtype=bool)
        return np.asarray(self._keys[np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)] == wanted)


def refuse_weak(weak: int, policy: str) -> None:
    """Raise ``InfeasibleError`` if some fakes can be excluded and the policy is to refuse them."""
    if weak and policy == "refuse":
        raise InfeasibleError(
            f"{weak} fake values would be excluded by negative associations: their buckets have too few others; "
            "set mechanism.no_admissible_fake = 'weaker' to publish them anyway, or lower fake_values",
            {"weak_fakes": weak},
        )


def find_excluded(db: Relations, roles: Roles, real: BucketRuns, channel: Channel) -> Ints:
    """Return the pairs of a bucket and a value that negative associations exclude for some record of the bucket (e, 2).

    Args:
        db: Where ``qit`` of database ``release`` is.
        roles: The columns.
        real: The lists of the buckets without fakes.
        channel: The channel of the buckets without fakes.
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
