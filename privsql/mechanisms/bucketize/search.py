"""Find bucket settings in closed form: of one or two sizes, of splits of these, Anatomy's, and an informative one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.group_flows import allocate_values
from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


# Two sizes ------------------------------------------------------------------------------------------------------------
# The best setting with one or two bucket sizes has a closed form (paper, sections 4.1, 4.2 and 5.1).
#
# Let there be n records, o_i of them with value i, of which a bucket of size S may hold F_iS. For sizes S1 < S2 the
# list Gamma(S1, S2) has all (b1, b2) with S1 b1 + S2 b2 = n: (b1 - t d1, b2 + t d2) for t = 0, 1, .. (Lemma 5.21). The
# Loss rises with t (Lemma 5.24). Theorem 4.17 becomes bounds on t:
#
# * PC for value i, F_i1 b1 + F_i2 b2 >= o_i, is linear in t: a lower bound, an upper bound or a constant;
# * FC for size S, sum_i min(F_iS b, o_i) >= S b, is a cap on b that depends on S alone, because the difference of the
#   two sides is concave in b and 0 at b = 0.
#
# So the first valid pair has a closed form, and takes O(pairs * m) integer operations, whatever n is. If sets of values
# are bounded, further conditions of the same form are added when they are broken (``best_two_size``).

FAR = np.int64(2**62)


@dataclass(frozen=True)
class Gammas:
    """All ways to put n records into buckets of two sizes S1 < S2, for P pairs of sizes.

    For each pair, the numbers of buckets (b1, b2) with S1 b1 + S2 b2 = n form a list. Its entry t is (b1 - t d1, b2 + t
    d2). All arrays have shape (P,).

    Attributes:
        first: The position of S1 in the problem's sizes.
        second: The position of S2.
        b1: The number of buckets of size S1 in the first entry of a list.
        b2: The number of buckets of size S2 in the first entry.
        d1: By how much b1 falls from entry to entry.
        d2: By how much b2 rises from entry to entry.
        last: The last position t in the list.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    b1: Ints
    b2: Ints
    d1: Ints
    d2: Ints
    last: Ints


def make_gammas(problem: BucketProblem) -> Gammas:
    """List for each pair of usable sizes S1 < S2 all ways to put all n records into buckets of these sizes (eq. 7-10).

    Pairs of sizes without a solution are left out.
    """
    sizes, n = problem.sizes, problem.records
    first, second = np.triu_indices(len(sizes), 1)
    small, large = sizes[first], sizes[second]
    divisor = np.gcd(small, large)
    d1, d2 = large // divisor, small // divisor
    pairs = zip(d1.tolist(), d2.tolist(), strict=True)
    inverse = np.array([pow(a, -1, b) if b > 1 else 0 for a, b in pairs], dtype=np.int64)
    b2 = ((n // divisor) % d2 * inverse) % d2
    rest = n - b2 * large
    some = (n % divisor == 0) & (rest >= 0)
    b1 = rest // small
    arrays = (a[some] for a in (first, second, b1, b2, d1, d2, b1 // d1))
    return Gammas(*arrays)


def find_frontier(problem: BucketProblem) -> tuple[Ints, Ints]:
    """Select the values that suffice to test whether given numbers of buckets have room for every value's records.

    Where a value with a low threshold has room, so has each value with a higher threshold and fewer records. So the
    latter need no test.

    Returns:
        (the number of records of each of these values, their most records in one bucket of each usable size (values,
        sizes)).
    """
    order = problem.by_threshold
    counts = problem.counts[order]
    record = np.maximum.accumulate(np.concatenate(([0], counts[:-1])))
    chosen = order[counts > record]
    return problem.counts[chosen], problem.capacity[chosen]


def fill_caps(problem: BucketProblem) -> Ints:
    """Return for each usable size the largest number of buckets that can be filled within the thresholds (sizes,).

    A search for numbers of buckets needs to try no larger ones. Let F_iS be the most records of value i in a bucket of
    size S, and o_i its records. The result for S is the largest b with sum_i min(F_iS b, o_i) >= S b. Newton's method
    from the right finds it exactly in few steps, as the difference is concave in b.
    """
    caps, counts = np.zeros_like(problem.sizes), problem.counts
    for j, size in enumerate(problem.sizes.tolist()):
        capacity, buckets = problem.capacity[:, j], problem.records // size
        while True:
            filled = capacity * buckets
            short = filled < counts
            if int(np.where(short, filled, counts).sum()) >= size * buckets:
                break
            buckets = int(counts[~short].sum()) // (size - int(capacity[short].sum()))
        caps[j] = buckets
    return caps


def best_one_size(problem: BucketProblem) -> Setting | None:
    """Return the bucket setting (sizes, and numbers of buckets) with one size only, the smallest that is valid.

    The result is None if no size is valid.

    Let n be the number of records, and F_iS the most records of value i in a bucket of size S. S is valid if it divides
    n, and no value has more than F_iS n/S records (Lemma 4.13). Bounded sets of values have the same condition.
    """
    divisors = (size for size in problem.sizes.tolist() if problem.records % size == 0)
    settings = (Setting.from_counts({size: problem.records // size}) for size in divisors)
    return next((one for one in settings if not allocate_values(problem, one).unplaced), None)


def best_two_size(problem: BucketProblem) -> Setting | None:
    """Return the valid bucket setting (one or two sizes, and numbers of buckets) with the least Loss, or None.

    The Loss is the sum of (size - 1)^2 over all buckets. If sets of values are bounded, the search adds conditions as
    it goes. It takes the cheapest setting under the conditions found so far. If that is invalid, it breaks a further
    condition, which is added for all pairs of sizes. So every setting tried is a lower bound, and the first valid one
    is the best.
    """
    if len(problem.sizes) == 1:
        return best_one_size(problem)
    lists, caps = make_gammas(problem), fill_caps(problem)
    low = np.maximum(0, -((caps[lists.first] - lists.b1) // lists.d1))
    high = np.minimum(lists.last, (caps[lists.second] - lists.b2) // lists.d2)
    counts, capacity = find_frontier(problem)
    needed = [(capacity, capacity, counts)]
    for tree in problem.trees:
        room = problem.bound_floors(tree.bounds, problem.sizes)
        needed.append((room, room, tree.sum_sets(problem.counts)))
    while True:
        for first, second, needs in needed:
            for lower, upper in _bound_positions(first, second, needs, lists):
                low, high = np.maximum(low, lower), np.minimum(high, upper)
        valid = np.flatnonzero(low <= high)
        if not len(valid):
            return None
        s1, s2 = problem.sizes[lists.first[valid]], problem.sizes[lists.second[valid]]
        b1 = lists.b1[valid] - low[valid] * lists.d1[valid]
        b2 = lists.b2[valid] + low[valid] * lists.d2[valid]
        k = int(np.argmin(b1 * (s1 - 1) ** 2 + b2 * (s2 - 1) ** 2))
        best = Setting.from_counts({int(s1[k]): int(b1[k]), int(s2[k]): int(b2[k])})
        flow = allocate_values(problem, best) if problem.trees else None
        if flow is None or not flow.unplaced:
            return best
        if flow.cut is not None:
            rows, need = np.stack([flow.cut.first, flow.cut.second]), flow.cut.need
        else:
            rows, need = np.stack([problem.room_for(flow.blocked)] * 2), int(problem.counts[flow.blocked].sum())
        needed = [(rows, rows[::-1], np.full(2, need))]  # either size may be the first


def _bound_positions(first: Ints, second: Ints, needs: Ints, lists: Gammas) -> Iterator[tuple[Ints, Ints]]:
    """Translate conditions on numbers of buckets into bounds on the position t in each list of ``lists``.

    A list has all ways to put the records into b1 buckets of size S1 and b2 of size S2, and b1 falls with t. A
    condition is first[S1] b1 + second[S2] b2 >= need. That a value has room for all its records has this form.

    Args:
        first: The coefficients of b1, by condition and size (r, K).
        second: The coefficients of b2 (r, K).
        needs: The right-hand sides (r,).
        lists: For each pair of sizes, all ways to put the records into buckets of these sizes.

    Yields:
        (lower bound of t, upper bound of t) for each pair (P,), from 64 conditions at a time to save memory.
    """
    for start in range(0, len(needs), 64):
        part = slice(start, start + 64)
        f1, f2 = first[part][:, lists.first], second[part][:, lists.second]
        slack = f1 * lists.b1 + f2 * lists.b2 - needs[part, None]
        slope = f2 * lists.d2 - f1 * lists.d1
        bound = slack // np.where(slope == 0, 1, -slope)  # floor(slack / -slope)
        # slope > 0: t >= ceil(-slack / slope) = -floor(slack / slope); slope < 0: t <= floor(slack / -slope)
        lower = np.where(slope > 0, -(slack // np.where(slope > 0, slope, 1)), 0)
        upper = np.where(slope < 0, bound, np.where((slope == 0) & (slack < 0), -1, FAR))
        yield lower.max(axis=0, initial=0), upper.min(axis=0, initial=FAR)


# Anatomy and splits ---------------------------------------------------------------------------------------------------


def smallest_diversity(problem: BucketProblem) -> int:
    """Return the smallest l for which buckets with at most 1/l of each value keep every value's threshold.

    It is at least the smallest bucket size.
    """
    return max(problem.smallest, *(-(-f.denominator // f.numerator) for f in problem.thresholds))


def anatomy_setting(problem: BucketProblem) -> Setting | None:
    """Return the bucket sizes of Anatomy (Xiao & Tao, VLDB 2006): n records in floor(n/l) buckets of nearly equal size.

    Here l is the smallest diversity that keeps all thresholds: a value has at most 1/l of a bucket. The result is None
    if some value has more than n/l records, or a bucket would exceed the largest size.
    """
    l_diversity, n = smallest_diversity(problem), problem.records
    buckets = n // l_diversity
    if buckets == 0 or int(problem.counts.max()) > buckets:
        return None
    size, larger = divmod(n, buckets)
    if size + (larger > 0) > max(problem.largest, problem.smallest):
        return None
    return Setting.from_counts({size: buckets - larger, size + 1: larger})


def partition_records(problem: BucketProblem, setting: Setting) -> Ints:
    """Decide how many records of each value go to the buckets of each of two sizes (paper, section 4.3).

    The smaller size first gets as many records of each value as fit. The excess moves to the larger size, values with
    the lowest thresholds first; the paper leaves this order open. If sets of values are bounded, the result is any
    division that keeps the bounds.

    Args:
        problem: The records and the threshold of each of m values.
        setting: The two bucket sizes, with the number of buckets of each.

    Returns:
        The records by value and size (m, 2).
    """
    if problem.trees:
        return allocate_values(problem, setting).allocation
    (size1, b1), (size2, b2) = setting.items
    limits = problem.capacity_for([size1, size2]) * np.array([b1, b2], dtype=np.int64)
    first = np.minimum(limits[:, 0], problem.counts)
    room = np.minimum(limits[:, 1], problem.counts) - (problem.counts - first)
    order = problem.by_threshold
    free = np.minimum(room, first)[order]
    moved = np.clip(int(first.sum()) - size1 * b1 - (np.cumsum(free) - free), 0, free)
    first[order] -= moved
    return np.stack([first, problem.counts - first], axis=1)


def multi_size(problem: BucketProblem) -> Setting | None:
    """Return a bucket setting of several sizes, found by splitting the records again and again (paper, Algorithm 2).

    The records are first split between the two sizes that ``best_two_size`` finds. Each part is split again in this way
    while that lowers the Loss, the sum of (size - 1)^2 over all buckets. Thresholds stay those of the whole table. The
    result is None if the first split fails.
    """
    first_split = best_two_size(problem)
    if first_split is None:
        return None
    total: Counter[int] = Counter()
    parts = [(problem, first_split)]
    while parts:
        part, setting = parts.pop()
        if len(setting.items) == 1:
            split = best_two_size(part)
            if split is None or split.loss >= setting.loss:
                total.update(dict(setting.items))
                continue
            setting = split
        columns = partition_records(part, setting) if len(setting.items) == 2 else part.counts[:, None]
        parts += [(replace(part, counts=columns[:, j]), Setting((item,))) for j, item in enumerate(setting.items)]
    return Setting.from_counts(total)


# Informative ----------------------------------------------------------------------------------------------------------
# The setting that tells analysts most if thresholds vary with the frequency f: nearly one size, as large as possible.
#
# In a bucket of size S the belief in value i is at most F_iS/S. The trace of the channel M sums these beliefs:
#
#     tr M = sum_i E[count(g, i)/|g| | record of i]  <=  sum_i max_S F_iS/S.
#
# The loss of the papers, sum (|g| - 1)^2, rewards small buckets instead. Then only few values fit into each size, and M
# is nearly singular. Here the n records lie in B buckets of sizes S = floor(n/B) and S + 1. B is ceil(n/T) for the
# largest usable size T for which sum_S b_S sum_i F_iS is within a fiftieth of the best. Layout ``lumps`` then reaches
# the bound, except for values that are cut at the ends of blocks. If thresholds are constants, floor(f'S)/S is as large
# for small S, and nothing is gained.
#
# With a threshold near 1, whole buckets would hold one value, which tells hardly more than if half of them did. So a
# threshold is used up to 3/4, or up to half way from the value's frequency to 1 if that is more. It is used in full if
# no setting is valid otherwise.
#
# With two sizes a setting is valid if and only if there are y_i records of each value for the b_1 buckets of the first:
#
#     max(0, o_i - F_i2 b_2) <= y_i <= min(o_i, F_i1 b_1),   sum_i y_i = S_1 b_1,
#
# This holds if no lower end exceeds its upper end, the lower ends sum to S_1 b_1 at most, and the upper ends at least.

ENOUGH = Fraction(3, 4)  # higher thresholds are used up to this value
NEARLY = 50  # sizes within a fiftieth of the best count as equally good


def find_informative(problem: BucketProblem) -> Setting | None:
    """Return the valid bucket sizes for layout ``lumps``, as large as possible; None if none are valid.

    In that layout, a bucket lists a value as often as its threshold allows, or hardly ever. With large buckets beliefs
    come nearest to the thresholds, so answers are most precise.
    """
    for wanted in (_restrain_thresholds(problem), problem):
        valid = next((one for one in _list_candidates(wanted) if _first_size_ranges(wanted, one) is not None), None)
        if valid is not None:
            return valid
    return None


def count_unplaced(problem: BucketProblem) -> int | None:
    """Return how many records at least find no bucket within the thresholds, for messages on infeasible thresholds.

    Only buckets of one size, or of two sizes that differ by 1, are tried (``_list_candidates``). The result is None if
    the allowed sizes permit no such buckets.
    """
    return min((allocate_values(problem, one).unplaced for one in _list_candidates(problem)), default=None)


def divide_informative(problem: BucketProblem, setting: Setting) -> tuple[Ints, Ints]:
    """Decide how many records of each value go to the buckets of each size, for algorithm ``informative``.

    The smaller size gets about the same share of every value's records, within what thresholds allow.

    Args:
        problem: The records and the threshold of each of m values.
        setting: The k bucket sizes, one or two, with the number of buckets of each. It is valid.

    Returns:
        (the records by value and size, the most records of each value in one bucket of each size), both (m, k).
    """
    wanted = _restrain_thresholds(problem)
    ranges = _first_size_ranges(wanted, setting)
    if ranges is None:
        wanted = problem
        ranges = _first_size_ranges(problem, setting)
    most, counts = wanted.capacity_for(setting.sizes), problem.counts
    if ranges is None or len(setting.items) == 1:
        return counts[:, None], most
    aim, low, high = setting.sizes[0] * setting.buckets[0], 0, problem.records + 1

    def share_at(times: int) -> Ints:
        return np.clip(counts * times // problem.records, *ranges)

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if int(share_at(middle).sum()) <= aim else (low, middle)
    first = share_at(low)
    rising = np.flatnonzero(share_at(high) > first)
    first[rising[: aim - int(first.sum())]] += 1
    return np.stack([first, counts - first], axis=1), most


def _restrain_thresholds(problem: BucketProblem) -> BucketProblem:
    """Lower very high thresholds, so that algorithm ``informative`` does not fill whole buckets with one value.

    It lets buckets list values as often as thresholds allow. Analysts hardly learn more if a value fills a whole bucket
    than if it fills half of one. A threshold becomes at most max(``ENOUGH``, (1 + f)/2), where f is the frequency of
    the value.
    """
    frequencies = (Fraction(int(records), max(1, problem.records)) for records in problem.counts)
    enough = (max(ENOUGH, (1 + share) / 2) for share in frequencies)
    return replace(problem, thresholds=tuple(map(min, problem.thresholds, enough)))


def _list_candidates(problem: BucketProblem) -> list[Setting]:
    """Return settings whose buckets have one size, or two sizes that differ by 1; the most informative ones come first.

    A setting says how many buckets there are of each size. For each usable size S, it has as few buckets as can hold
    all records with at most S in each. Its information is the sum, over buckets and values, of the most records of a
    value that thresholds allow in a bucket. Sums are compared in steps of a fiftieth of the best one (``NEARLY``). If
    they are equal, larger buckets come first.
    """
    n, usable = problem.records, problem.sizes
    held = dict(zip(usable.tolist(), problem.capacity.sum(axis=0).tolist(), strict=True))
    each = (
        Setting.from_counts({n // b: b - n % b, n // b + 1: n % b}) for b in sorted({-(-n // size) for size in held})
    )
    settings = [one for one in each if all(size in held for size in one.sizes)]
    information = [sum(buckets * held[size] for size, buckets in one.items) for one in settings]
    best = max(information, default=0)
    order = sorted(range(len(settings)), key=lambda k: (best - information[k]) * NEARLY // max(1, best))
    return [settings[k] for k in order]


def _first_size_ranges(problem: BucketProblem, setting: Setting) -> tuple[Ints, Ints] | None:
    """Return (the least, the most) records of each of m values that the buckets of the smaller size can get (m,).

    The rest of a value must fit into the buckets of the larger size. The result is None if no division of the records
    keeps the thresholds and fills all buckets.

    Args:
        problem: The records and the threshold of each value.
        setting: The one or two bucket sizes, with the number of buckets of each.
    """
    room = problem.capacity_for(setting.sizes) * np.array(setting.buckets, dtype=np.int64)
    low = (problem.counts - room[:, 1:].sum(axis=1)).clip(0)
    high = np.minimum(problem.counts, room[:, 0])
    first = setting.sizes[0] * setting.buckets[0]
    return (low, high) if (low <= high).all() and low.sum() <= first <= high.sum() else None
