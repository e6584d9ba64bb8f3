"""Bucketization as a mechanism (``privsql.mechanisms.contract``): plan over counts, publish through SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers.accuracy import by_questions
from privsql.answers.reconstruct import LARGE
from privsql.attacks import absence, identifiers, intersection, learning, linkage, negative, order
from privsql.attacks.suite import Suite
from privsql.engine.names import label
from privsql.engine.sqlfiles import fill, temp
from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize import beliefs, certain, corruption, homogeneity
from privsql.mechanisms.bucketize.answers import Answers
from privsql.mechanisms.bucketize.checks import SQL, checks, long_checks, read, source_checks
from privsql.mechanisms.bucketize.fakes import certainty
from privsql.mechanisms.bucketize.fakes.law import lists
from privsql.mechanisms.bucketize.layout.arrange import arrange
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.planning.implied import Dealt, implied
from privsql.mechanisms.bucketize.planning.request import search
from privsql.mechanisms.bucketize.planning.search import find
from privsql.mechanisms.bucketize.proposal import propose
from privsql.mechanisms.bucketize.publishing import publish, reserve, stated_fakes, summary
from privsql.mechanisms.bucketize.reconstruct import directions
from privsql.mechanisms.bucketize.scene import Buckets
from privsql.mechanisms.bucketize.tables import tables, view
from privsql.mechanisms.bucketize.told import bounds, measured
from privsql.mechanisms.contract import Alone, Mechanism, Table
from privsql.noise import seed_key

if TYPE_CHECKING:
    from privsql.attacks.suite import Learnt
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.layout.runs import Runs
    from privsql.mechanisms.bucketize.model import Plan, Problem
    from privsql.model.records import Records


MOST = 1_000_000  # records of which a plan draws a layout bucket by bucket


def plan(db: Relations, source: Records, asked: Bucketize) -> dict[str, Any]:
    """The facts of the plan; raises as ``search``."""
    found, problem = search(db, source, asked)
    dealt = Dealt(found, problem, even=asked.composition in ("blocks", "round-robin"), fakes=bool(asked.fake_values))
    facts = summary(found, problem, sum(source.counts)) | stated_fakes(found, problem, asked)
    facts |= implied(dealt, _texts(db, source.roles)).as_facts()
    runs = _drawn(found, problem, asked)
    if runs is not None:
        reserve(db, runs)
    facts |= _seen(found, problem, asked, runs)
    return facts | _not_allowed(facts, problem, asked) | _remarks(facts, problem, asked)


def _remarks(facts: dict[str, Any], problem: Problem, asked: Bucketize) -> dict[str, Any]:
    """What to know of ``informative`` before it is published."""
    if asked.algorithm != "informative":
        return {}
    if len(set(problem.thresholds)) == 1:
        return {"remarks": ["thresholds are the same for every value: nothing is to be gained from 'informative'"]}
    plainly = asked.model_copy(update={"algorithm": "two-size", "layout": None})
    try:
        other = find(problem, "two-size")
        less = _seen(other, problem, plainly, _drawn(other, problem, plainly))
    except InfeasibleError:
        return {}
    if not {"mean_belief"} <= facts.keys() & less.keys():
        return {}
    means = (facts["mean_belief"], less["mean_belief"])
    return {"remarks": ["it uses thresholds up: mean belief {:.3f}, {:.3f} with 'two-size'".format(*means)]}


def _drawn(found: Plan, problem: Problem, asked: Bucketize) -> Runs | None:
    """What buckets would list by a layout drawn for that; None where drawing one takes long."""
    if problem.records > MOST and (asked.composition == "largest-first" or len(problem.trees) > 1):
        return None
    laid = lists(found, problem.counts, asked.fake_values) if asked.fake_values else found
    return arrange(laid, asked.composition, seed_key(1).stream("plan"), problem.trees).runs(laid.setting)


def _seen(found: Plan, problem: Problem, asked: Bucketize, runs: Runs | None) -> dict[str, Any]:
    """What gets through a release of this plan, in which buckets list ``runs``."""
    if runs is None or runs.values > LARGE:
        return {}
    facts = summary(found, problem, problem.records) | stated_fakes(found, problem, asked)
    return directions(runs.meetings(asked.fake_values), facts)


def _not_allowed(facts: dict[str, Any], problem: Problem, asked: Bucketize) -> dict[str, Any]:
    """The values that publishing would refuse, as they would be certain, of plans that have some."""
    columns = facts["highest_belief"]["components"]
    excused = {problem.label(code) for code in certain.written(asked, problem.labels, problem.thresholds)}
    names = [
        value if len(columns) == 1 else f"{name}: {value}"
        for name, of in columns.items()
        for value, most in of.items()
        if most == "1" and value not in excused
    ]
    return {"not_allowed": names} if names and not certain.free(asked) else {}


def _texts(db: Relations, roles: Roles) -> dict[str, list[str]]:
    """Of each sensitive column the text of every value, in the order of the domain."""
    labels = [exp.cast(item, "VARCHAR") for item in roles.sa()]
    rows = db.rows(fill("core/domain_labels", {"domain": temp("domain"), "labels": labels}))
    names = enumerate(field.name for field in roles.sensitive)
    return {name: [label([row[k]]) for row in rows] for k, name in names}


def _belief_in_missing(learnt: Learnt[Buckets]) -> float | None:
    """Who is left out has one of the values that are as frequent as they may be: the most frequent ones."""
    if not learnt.view.manifest.facts.get("left_out"):
        return None
    records = learnt.scene.channel.records.round().astype(np.int64)
    return 1 / int((records == records.max()).sum())


def promise(asked: Bucketize) -> str:
    """F'-privacy."""
    given = asked.threshold
    exceptions = f", {len(given.values)} values less or more" if given.values else ""
    absent = ", of those who are there" if asked.absence == "unobservable" else ""
    own = [f"; {name} {rule.default or 'as queried'}" for name, rule in asked.components.items()]
    own += [f"; {name} {group.threshold}" for name, group in asked.groups.items()]
    return f"<= {given.default or 'as queried'}{exceptions}{''.join(own)}{absent}"


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Buckets, loss and its bound."""
    buckets = "  ".join(f"{number:,} x {size}" for size, number in facts["setting"].items())
    layout = [("layout", facts["layout"])] if "layout" in facts else []
    return [
        ("buckets", f"{buckets}  (number x size)"),
        ("loss", f"{facts['loss']:,}  (MSE {facts['mse']:.4g})"),
        ("lower bound", f"{facts['lower_bound']:,}  (gap {facts['gap']:.2%})"),
        *layout,
        *_through(facts.get("channel")),
        *beliefs.figures(facts),
        *(("mind", remark) for remark in facts.get("remarks", ())),
        *([("refused", f"as certain: {', '.join(facts['not_allowed'])}")] if facts.get("not_allowed") else []),
        *certainty.figures(facts),
    ]


def _through(directions: dict[str, float] | None) -> list[tuple[str, str]]:
    if not directions:
        return []
    shown = ", ".join(f"{name} {value:.3g}" for name, value in directions.items())
    return [("channel", f"{shown}  (singular values: what gets through of a direction, of 1)")]


MECHANISM = Mechanism(
    parameters=Bucketize,
    shape=Table(numeric=False),
    composition=Alone(),
    sql=SQL,
    reserved={
        "quasi_identifiers": frozenset(["bid", "weight"]),
        "sensitive": frozenset(["bid", "code", "count", "denominator", "numerator", "records", "weight"]),
    },
    relations=("qit", "st", "privsql_values", "privsql_channel"),
    read=read,
    plan=plan,
    publish=publish,
    tables=tables,
    view=view,
    checks=checks,
    long_checks=long_checks,
    measured=measured,
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=by_questions,
    adversaries=Suite(
        scene=Buckets,
        adversaries=(
            linkage.ADVERSARY,
            homogeneity.ADVERSARY,
            order.ADVERSARY,
            identifiers.ADVERSARY,
            corruption.ADVERSARY,
            absence.adversary(_belief_in_missing),
            negative.ADVERSARY,
            learning.ADVERSARY,
            learning.AGAIN,
            identifiers.GIVING,
        ),
        combining=(intersection.attack,),
        quick=Buckets,
    ),
    promise=promise,
    advice=(
        "larger buckets (a lower threshold, or a larger min_bucket_size): more values for everyone to hide among",
        "fake values (fake_values, with a constant threshold): a belief must be shared with values that are not there",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    propose=propose,
    warnings=lambda _: [],
    figures=figures,
)
