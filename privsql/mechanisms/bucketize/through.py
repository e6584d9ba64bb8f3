"""How records are seen through what their buckets list, by the law of the fakes.

**Balanced** (``fakes``): given all lists, a record of value i is in each of the L_i buckets that list i with nearly
the same probability, as each of these entries is real with r_i S/(S + sigma) and o_i of them are: an entry that is
fake is a slot that stays empty. So what a set of records sees needs no correction. With w_g(x) = 1/(S + sigma) where
g lists x, and e = sum of w over the records of Q, n of them by value,

    E[e] = M^T n,   M_ix = A_ix / sum_y A_iy,   A = sum_j S_j/(S_j + sigma)^2 G_j,

    G_j = how often two values are listed together in buckets of size S_j,

    sum_i o_i E[w w^T | i] = sum_g S_g w_g w_g^T = A   (each bucket has S real values),

and the sum of e over all records is known, as in the release without fakes: Cov[e] has the weight |Q|/N (1 - |Q|/N).
With sigma = 0 this is that release. o_i is stated.

**Uniform** over the values that are not in the bucket, in releases that state no law: ``unmask``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from privsql.answers.channel import Channel
from privsql.errors import EngineError
from privsql.mechanisms.bucketize.fakes.law import LAW
from privsql.mechanisms.bucketize.unmask import channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.channel import Floats
    from privsql.mechanisms.bucketize.unmask import Listed

FEWEST = 1e-6  # records of a value that is listed and has none


@dataclass(frozen=True)
class Through:
    """``channel``; by size of bucket, what every listed value adds to e, and what every record takes off each value;
    ``most`` (m,): records that each value has at most; ``uncertain`` (m,): variance of the channel's records where
    these are estimates; ``ratio`` (m,): r, how much more often than others a listed value is real.
    """

    channel: Channel
    scale: dict[int, float]
    less: dict[int, float]
    most: Floats
    uncertain: Floats | None
    ratio: Floats


def through(classes: Sequence[Listed], facts: dict[str, Any], listed: Floats | None = None) -> Through:
    """By the law that a release's ``facts`` state. ``listed`` (m,): how often each value is listed in the whole
    release, where ``classes`` are but some of its buckets.
    """
    if facts.get("fake_values", 0) and facts.get("fake_law") != LAW:
        return _uniform(classes)
    own = np.sum([one.pairs.diagonal() for one in classes], axis=0)
    matrix = reduce(add, [one.pairs * (one.size / (one.size + one.fakes) ** 2) for one in classes])
    covered = np.asarray(matrix.sum(axis=1))
    records = covered
    if "real" in facts:
        if len(facts["real"]) != len(own):
            raise EngineError("the release is damaged: it does not state how often each of its values is real")
        records = np.array(facts["real"], dtype=np.float64) * own / np.maximum(own if listed is None else listed, 1)
    absent = scipy.sparse.diags_array(
        (covered == 0).astype(np.float64)
    )  # in none of a sample's buckets: seen as itself
    mean = scipy.sparse.diags_array(1 / np.where(covered == 0, 1.0, covered)) @ (matrix + absent)
    return Through(
        Channel(mean, matrix, np.maximum(records, FEWEST)),
        {one.size: 1 / (one.size + one.fakes) for one in classes},
        {one.size: 0.0 for one in classes},
        records,
        None,
        records / np.maximum(covered, FEWEST),
    )


def _uniform(classes: Sequence[Listed]) -> Through:
    return Through(
        channel(classes),
        {one.size: 1 / (one.size * (1 - one.kappa)) for one in classes},
        {one.size: one.kappa / (1 - one.kappa) / one.size for one in classes},
        np.sum([one.most for one in classes], axis=0),
        np.sum([one.variance for one in classes], axis=0),
        np.ones(classes[0].values),
    )
