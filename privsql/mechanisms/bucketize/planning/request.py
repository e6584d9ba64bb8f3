"""From what a specification asks for to the plan and the problem that it solves."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.bucketize.fakes import certainty
from privsql.mechanisms.bucketize.fakes.even import even
from privsql.mechanisms.bucketize.fakes.lists import times_listed
from privsql.mechanisms.bucketize.model import Plan, Problem
from privsql.mechanisms.bucketize.planning.search import find
from privsql.mechanisms.bucketize.planning.suppress import kept, refuse_observed
from privsql.mechanisms.bucketize.thresholds import bounds_of, thresholds

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.records import Records


def search(db: Relations, domain: Records, asked: Bucketize) -> tuple[Plan, Problem]:
    """The setting and what it is for; raises ``InfeasibleError``, and ``UsageError`` for a wrong threshold."""
    values = thresholds(db, domain, asked.threshold) if domain.counts else ()
    counts = np.array(domain.counts, dtype=np.int64)
    left = kept(counts, values[0]) if asked.excess == "suppress" and values else counts
    if asked.absence == "observable" and values:
        refuse_observed(counts, left, domain.labels, values[0])
    problem = Problem(
        counts=left,
        thresholds=values,
        smallest=asked.min_bucket_size,
        largest=_largest(asked, len(counts)),
        labels=tuple(domain.labels),
        bounds=bounds_of(db, domain, asked) if domain.counts else (),
    )
    if len(problem.trees) > 1 and asked.composition != "blocks":
        raise UsageError(f"mechanism.layout: {asked.composition!r} does not keep groups that cross; take 'blocks'")

    def plan_of(problem: Problem) -> Plan:
        return find(problem, asked.algorithm, prune=asked.prune, seconds=asked.proof_seconds)

    if not asked.fake_values or asked.uneven_fakes == "state":
        return plan_of(problem), problem
    found = even(problem, asked.fake_values, plan_of)
    listed_ = times_listed(problem.counts, found.setting.items, asked.fake_values).sum(axis=1)
    certainty.refuse_certain(problem.counts, listed_, problem.labels)
    return found, problem


def _largest(asked: Bucketize, values: int) -> int:
    """The largest bucket that may be used: with fakes each value at most once."""
    if not asked.fake_values or asked.threshold.default is None:
        return asked.max_bucket_size
    twice = ceil(2 / asked.threshold.default.intercept)  # from this size on a value may stand twice
    largest = min(asked.max_bucket_size, twice - 1, values - asked.fake_values)
    smallest = max(asked.min_bucket_size, ceil(1 / asked.threshold.default.intercept))
    if largest < smallest:
        raise InfeasibleError(
            f"with {asked.fake_values} fake values and each value at most once, buckets can hold {max(0, largest)} "
            f"records, fewer than the {smallest} that are asked for; ask for fewer fakes",
            {"largest_bucket": largest},
        )
    return largest
