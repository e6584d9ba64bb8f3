"""Bucketization as a mechanism (``privsql.mechanism``): plan over counts, publish through SQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize.answers import Answers
from privsql.mechanisms.bucketize.arrays import Composition
from privsql.mechanisms.bucketize.checks import SQL, checks, long_checks, read, source_checks, tables
from privsql.mechanisms.bucketize.layout import arrange
from privsql.mechanisms.bucketize.model import Plan, Problem
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.search import find
from privsql.mechanisms.bucketize.suppress import kept, spread
from privsql.mechanisms.bucketize.thresholds import thresholds
from privsql.mechanisms.bucketize.view import view
from privsql.slots import slots
from privsql.sqlfiles import Holes, fill, temp

if TYPE_CHECKING:
    from privsql.database import Database, Domain
    from privsql.mechanisms.bucketize.layout import Bids
    from privsql.mechanisms.bucketize.model import Ints, Setting
    from privsql.noise import Key
    from privsql.release import Manifest

RESERVED = {
    "quasi_identifiers": {"bid", "weight"},
    "sensitive": {"bid", "count", "weight", "code", "records", "numerator", "denominator"},
}
TABLES: tuple[str, ...] = ("qit", "st", "privsql_values", "privsql_channel")
SLOPES = (2, 4, 8, 16, 32)

__all__ = [
    "RESERVED", "SQL", "TABLES", "answers", "checks", "figures", "long_checks", "plan", "promise", "propose",
    "publish", "read", "source_checks", "tables", "view",
]  # fmt: skip


def plan(db: Database, source: Domain, asked: Bucketize) -> dict[str, Any]:
    """The facts of the plan; raises as ``search``."""
    found, problem = search(db, source, asked)
    return _summary(found, source, problem)


def search(db: Database, domain: Domain, asked: Bucketize) -> tuple[Plan, Problem]:
    """The setting and what it is for; raises ``InfeasibleError``, and ``UsageError`` for a wrong threshold."""
    values = thresholds(db, domain, asked.threshold) if domain.counts else ()
    counts = np.array(domain.counts, dtype=np.int64)
    problem = Problem(
        counts=kept(counts, values[0]) if asked.excess == "suppress" and values else counts,
        thresholds=values,
        smallest=asked.min_bucket_size,
        largest=asked.max_bucket_size,
        labels=tuple(domain.labels),
    )
    return find(problem, asked.algorithm, prune=asked.prune, seconds=asked.proof_seconds), problem


def publish(db: Database, source: Domain, asked: Bucketize, key: Key) -> dict[str, Any]:
    """Make ``qit``, ``st``, ``privsql_values`` and ``privsql_channel`` in database ``release``; returns the facts."""
    found, problem = search(db, source, asked)
    noise = key.stream("bucketize", found.setting.items, tuple(source.counts), tuple(source.labels))
    counts = np.array(source.counts, dtype=np.int64)
    roles = source.roles
    with ThreadPoolExecutor(1) as beside:  # numpy and the engine use different cores
        drawn = beside.submit(arrange, found, asked.composition, noise)
        source.sort()
        bids = drawn.result()
        counted = beside.submit(_counted, bids, problem.counts, found.setting)
        db.put("slots", slots(spread(bids, problem.counts, counts, noise)))
        assigned = db.matched(temp("records"), temp("slots")).subquery()
        holes: Holes = {"assigned": assigned, "qi": roles.qi_out("r"), "qi_order": roles.qi("r")}
        db.make("qit", fill("bucketize/qit", holes), into="release", title="Assigning records to buckets")
        db.drop("slots", "records")
        composition, meetings = counted.result()
    db.put("composition", composition)
    holes = {"composition": temp("composition"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("st", fill("bucketize/st", holes), into="release", title="Writing the sensitive table")
    db.put("fractions", _fractions(problem))
    holes = {"fractions": temp("fractions"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("privsql_values", fill("bucketize/values", holes), into="release")
    db.put("meetings", meetings)
    db.make("privsql_channel", fill("bucketize/channel", {"meetings": temp("meetings")}), into="release")
    db.drop("composition", "fractions", "meetings")
    return _summary(found, source, problem) | {"layout": asked.composition}


def _summary(found: Plan, source: Domain, problem: Problem) -> dict[str, Any]:
    """The facts of a plan for manifest and output."""
    left_out = sum(source.counts) - problem.records
    return {
        "loss": found.loss,
        "mse": found.mse,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "proof": found.proof,
        "setting": {str(size): buckets for size, buckets in found.setting.items},
        **({"left_out": left_out} if left_out else {}),
    }


def _counted(bids: Bids, counts: Ints, setting: Setting) -> tuple[pa.Table, pa.Table]:
    composition = Composition(bids, counts)
    return composition.table, composition.meetings(setting)


def _fractions(problem: Problem) -> pa.Table:
    values = problem.thresholds
    return pa.table(
        {
            "code": np.arange(len(values)),
            "records": problem.counts,
            "numerator": [str(value.numerator) for value in values],
            "denominator": [str(value.denominator) for value in values],
        }
    )


def propose(db: Database, source: Domain) -> dict[str, Any]:
    """The first threshold of 2f, 4f, .. + 0.02 that two sizes can meet."""
    for slope in SLOPES:
        rule = f"{slope}*f + 0.02"
        try:
            search(db, source, Bucketize.model_validate({"algorithm": "two-size", "threshold": rule}))
        except InfeasibleError:
            continue
        break
    return {"kind": "bucketize", "algorithm": "optimal", "threshold": rule}


def answers(db: Database, manifest: Manifest) -> Answers:
    """The release, open in ``db``, as one that answers."""
    return Answers(db, manifest.roles, manifest.facts)


def promise(asked: Bucketize) -> str:
    """F'-privacy."""
    given = asked.threshold
    exceptions = f", {len(given.values)} values less or more" if given.values else ""
    return f"<= {given.default or 'as queried'}{exceptions}"


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Buckets, loss and its bound."""
    buckets = "  ".join(f"{number:,} x {size}" for size, number in facts["setting"].items())
    layout = [("layout", facts["layout"])] if "layout" in facts else []
    return [
        ("buckets", f"{buckets}  (number x size)"),
        ("loss", f"{facts['loss']:,}  (MSE {facts['mse']:.4g})"),
        ("lower bound", f"{facts['lower_bound']:,}  (gap {facts['gap']:.2%})"),
        *layout,
    ]
