"""Bucketization as a mechanism: plan over counts, publish through SQL, and the checks of a release.

A mechanism is this set of functions; ``privsql.api`` knows no more of it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.errors import UsageError
from privsql.mechanisms.bucketize.arrays import Composition, slots
from privsql.mechanisms.bucketize.layout import arrange
from privsql.mechanisms.bucketize.model import Plan, Problem
from privsql.mechanisms.bucketize.search import find
from privsql.mechanisms.bucketize.thresholds import thresholds
from privsql.roles import fold
from privsql.sqlfiles import Holes, fill, temp

if TYPE_CHECKING:
    from fractions import Fraction

    from privsql.database import Database, Domain
    from privsql.mechanisms.bucketize.layout import Bids
    from privsql.mechanisms.bucketize.model import Ints, Setting
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.noise import Key
    from privsql.roles import Roles

RESERVED = {
    "quasi_identifiers": {"bid", "weight"},
    "sensitive": {"bid", "count", "weight", "code", "records", "numerator", "denominator"},
}
TABLES = ("qit", "st", "privsql_values", "privsql_channel")


def plan(db: Database, domain: Domain, asked: Bucketize) -> tuple[Plan, tuple[Fraction, ...]]:
    """Search; raises ``InfeasibleError`` where nothing valid exists and ``UsageError`` for a wrong threshold."""
    values = thresholds(db, domain, asked.threshold) if domain.counts else ()
    problem = Problem(
        counts=np.array(domain.counts, dtype=np.int64),
        thresholds=values,
        smallest=asked.min_bucket_size,
        largest=asked.max_bucket_size,
        labels=tuple(domain.labels),
    )
    return find(problem, asked.algorithm, prune=asked.prune, seconds=asked.proof_seconds), values


def publish(db: Database, domain: Domain, asked: Bucketize, key: Key) -> dict[str, Any]:
    """Make ``qit``, ``st``, ``privsql_values`` and ``privsql_channel`` in database ``release``; returns the facts."""
    found, values = plan(db, domain, asked)
    noise = key.stream("bucketize", found.setting.items, tuple(domain.counts), tuple(domain.labels))
    counts = np.array(domain.counts, dtype=np.int64)
    roles = domain.roles
    with ThreadPoolExecutor(1) as beside:  # numpy and the engine use different cores
        drawn = beside.submit(arrange, found, asked.composition, noise)
        domain.sort()
        bids = drawn.result()
        counted = beside.submit(_counted, bids, counts, found.setting)
        db.put("slots", slots(bids))
        assigned = db.matched(temp("records"), temp("slots")).subquery()
        holes: Holes = {"assigned": assigned, "qi": roles.qi_out("r"), "qi_order": roles.qi("r")}
        db.make("qit", fill("bucketize/qit", holes), into="release", title="Assigning records to buckets")
        db.drop("slots", "records")
        composition, meetings = counted.result()
    db.put("composition", composition)
    holes = {"composition": temp("composition"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("st", fill("bucketize/st", holes), into="release", title="Writing the sensitive table")
    db.put("fractions", _fractions(values))
    holes = {"fractions": temp("fractions"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("privsql_values", fill("bucketize/values", holes), into="release")
    db.put("meetings", meetings)
    db.make("privsql_channel", fill("bucketize/channel", {"meetings": temp("meetings")}), into="release")
    db.drop("composition", "fractions", "meetings")
    return summary(found) | {"layout": asked.composition}


def summary(found: Plan) -> dict[str, Any]:
    """The facts of a plan for manifest and output."""
    return {
        "loss": found.loss,
        "mse": found.mse,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "proof": found.proof,
        "setting": {str(size): buckets for size, buckets in found.setting.items},
    }


def _counted(bids: Bids, counts: Ints, setting: Setting) -> tuple[pa.Table, pa.Table]:
    composition = Composition(bids, counts)
    return composition.table, composition.meetings(setting)


def _fractions(values: tuple[Fraction, ...]) -> pa.Table:
    return pa.table(
        {
            "code": np.arange(len(values)),
            "numerator": [str(value.numerator) for value in values],
            "denominator": [str(value.denominator) for value in values],
        }
    )


def refuse_collisions(roles: Roles, name: str) -> None:
    """``UsageError`` if a column or the release is called like something that a release holds."""
    for role, reserved in RESERVED.items():
        for field in getattr(roles, role):
            if fold(field.name) in reserved:
                raise UsageError(
                    f"column {field.name!r} would collide with a column of the release; rename it in source.query"
                )
    if fold(name) in {*TABLES, "privsql_manifest"}:
        raise UsageError(f"release.name {name!r} is the name of a table of the release; choose another")
