"""Fake sensitive values against adversaries who know the values of others in a bucket (Wang et al., section 6).

Each bucket's ST lists |g| + sigma distinct values, sigma of them fake. What is to be listed is laid out first, as often
as ``lists`` says, and only then is drawn which of it is fake: by dependent rounding (``rounding``), so that

    every bucket has exactly |g| real values and sigma fakes, and every value x exactly its o_x records, while
    each listed value is real with probability |g|/(|g| + sigma) times r_x,   r_x = o_x / sum_j L_xj S_j/(S_j + sigma),

given all lists: r_x is 1 up to the rounding of L_x (and is stated where it can't be). So nothing that is seen of the
lists tells a fake from a real value, not which buckets list a value, nor whether neighbours list it, nor what else they
list. (Fakes drawn beside buckets that are laid out already are given away by that: a frequent value is nearly always
real, a rare one fake, and a value that runs through neighbouring buckets real.) Probabilities differ a little between
buckets where rounding left values of different r_x together, as the sums of a bucket are exact, too.

After q records of a bucket are known, |g| - q + sigma listed values remain, sigma of them fake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize.fakes.chances import Entries
from privsql.mechanisms.bucketize.fakes.lists import times_listed
from privsql.mechanisms.bucketize.fakes.rounding import ONE, rounded, weights
from privsql.mechanisms.bucketize.layout.arrange import placed
from privsql.mechanisms.bucketize.model import Plan, Setting

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.fakes.chances import Floats
    from privsql.mechanisms.bucketize.model import Bids, Ints
    from privsql.noise import Shuffler

TRIES, OWN = 10, 2  # lists that leave no exact choice of fakes are laid out anew, at last as mixes best
LAW = "balanced"  # how fakes are drawn; releases that state no law have fakes uniform over the values not in the bucket


@dataclass(frozen=True)
class Hidden:
    """``bids`` (n,): for each value in turn the buckets of its records in uniformly random order; ``fake_bids``,
    ``fake_codes`` (sigma B,): the fakes; ``highest``: the largest probability of a listed value to be real.
    """

    bids: Bids
    fake_bids: Ints
    fake_codes: Ints
    highest: float


def lists(plan: Plan, counts: Ints, sigma: int) -> Plan:
    """What is to be listed, as a plan of its own: buckets of |g| + sigma values, and how often each is in them."""
    setting = Setting.of({size + sigma: buckets for size, buckets in plan.setting.items})
    return Plan(plan.algorithm, setting, times_listed(counts, plan.setting.items, sigma))


def hidden(plan: Plan, counts: Ints, sigma: int, layout: str, noise: Shuffler) -> Hidden:
    """Lists of |g| + sigma values for the buckets of ``plan``, and which of these are fake.

    Raises ``InfeasibleError`` where no choice of fakes leaves every bucket and every value what it must have, which can
    only be in tiny tables.
    """
    listed = lists(plan, counts, sigma)
    codes = np.repeat(np.arange(len(counts)), listed.allocation.sum(axis=1))
    for attempt in range(TRIES):
        tried = layout if attempt < OWN else "blocks"
        bids = _renumbered(placed(listed, tried, noise), plan.setting, noise)
        found = _fakes(bids, codes, counts, plan.setting, sigma, noise)
        if found is not None:
            fake, highest = found
            return Hidden(bids[~fake], bids[fake].astype(np.int64), codes[fake], highest)
    raise InfeasibleError(
        f"{sigma} fake values in each of {sum(plan.setting.buckets)} buckets leave no choice which are fake; "
        "ask for fewer fakes (fake_values), or publish more records"
    )


def _renumbered(bids: Bids, setting: Setting, noise: Shuffler) -> Bids:
    """Buckets of one size in random order, whatever the layout."""
    numbers, first = [], 0
    for buckets in setting.buckets:
        numbers.append(first + noise.permutation(buckets))
        first += buckets
    return np.concatenate(numbers).astype(bids.dtype)[bids]


def _fakes(
    bids: Bids, codes: Ints, counts: Ints, setting: Setting, sigma: int, noise: Shuffler
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.bool_]], float] | None:
    """Which entries (E,) are fake, and the largest probability of one to be real; None if no choice is exact."""
    order = noise.permutation(len(bids))
    order = order[np.argsort(bids[order], kind="stable")]
    buckets = sum(setting.buckets)
    entries = Entries(bids[order].astype(np.int64), codes[order], (buckets, len(counts)))
    real = np.repeat([size / (size + sigma) for size in setting.sizes], setting.buckets)[entries.rows]
    of_rows = np.full(buckets, sigma, dtype=np.int64)
    of_kinds = np.bincount(codes, minlength=len(counts)) - counts
    chances = weights(entries, _chances(entries, real, counts), of_rows, of_kinds)
    if chances is None:
        return None
    fake = np.empty(len(bids), dtype=bool)
    fake[order] = rounded(entries, chances, noise)
    return fake, 1 - int(chances.min()) / ONE


def _chances(entries: Entries, real: Floats, counts: Ints) -> Floats:
    """The chance of every entry to be fake, 1 - r_x S/(S + sigma), before rows are right."""
    covered = entries.sums(real)[1]
    ratio = counts / np.maximum(covered, np.finfo(float).tiny)
    return np.asarray((1 - real * ratio[entries.kinds]).clip(0, 1))
