"""Bucketization as a mechanism (``privsql.mechanisms.contract``): plan over counts, publish through SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.accuracy import by_questions
from privsql.attacks import absence, identifiers, intersection, learning, linkage, negative, order
from privsql.attacks.suite import Suite
from privsql.mechanisms.bucketize import beliefs, corruption, homogeneity, said
from privsql.mechanisms.bucketize.alternatives import algorithms
from privsql.mechanisms.bucketize.answers import Answers
from privsql.mechanisms.bucketize.checks import SQL, checks, long_checks, read, source_checks
from privsql.mechanisms.bucketize.fakes import certainty
from privsql.mechanisms.bucketize.foreseen import plan
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.proposal import propose
from privsql.mechanisms.bucketize.publishing import publish
from privsql.mechanisms.bucketize.scene import Buckets
from privsql.mechanisms.bucketize.tables import tables, view
from privsql.mechanisms.bucketize.told import bounds, measured
from privsql.mechanisms.contract import Alone, Mechanism, Table

if TYPE_CHECKING:
    from privsql.attacks.suite import Learnt


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
    buckets = ", ".join(f"{number:,} x {size}" for size, number in facts["setting"].items())
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
    shape=Table(numeric=False, most_numbers=500),
    composition=Alone(),
    sql=SQL,
    relations=("qit", "st", "privsql_values", "privsql_channel"),
    read=read,
    plan=plan,
    algorithms=algorithms,
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
    words=said.words,
    structure=said.structure,
    advice=(
        "larger buckets (a lower threshold, or a larger min_bucket_size): more values for everyone to hide among",
        "fake values (fake_values, with a constant threshold): a belief must be shared with values that are not there",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    propose=propose,
    warnings=lambda _: [],
    figures=figures,
)
