"""Bucketization as a ``Mechanism``: what it guarantees, in words, and the bounds of a release."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers.accuracy import by_questions
from privsql.attacks import adversaries
from privsql.attacks.suite import AttackContext, Suite
from privsql.engine.sqlfiles import alias_as, column
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize import attacks
from privsql.mechanisms.bucketize.answers import BucketizedAnswers
from privsql.mechanisms.bucketize.attacks import BucketAttackView
from privsql.mechanisms.bucketize.beliefs import TABLES, make_views
from privsql.mechanisms.bucketize.checks import (
    SQL,
    list_sensitive,
    long_checks,
    make_checks,
    promise_group_bounds,
    source_checks,
)
from privsql.mechanisms.bucketize.estimator import channel_facts, make_channel
from privsql.mechanisms.bucketize.parameters import BeliefFacts, Bucketize, BucketizeFacts
from privsql.mechanisms.bucketize.preview import compare_algorithms, make_plan_facts, predict_curve, propose_parameters
from privsql.mechanisms.bucketize.publish import publish
from privsql.mechanisms.contract import TableShape, TabularMechanism
from privsql.model.manifest import (
    LEARNT,
    SEVERAL,
    CheckedRelease,
    Manifest,
    ReleasePromises,
    Structure,
    VerifiedBound,
    make_structure,
)

if TYPE_CHECKING:
    from privsql.engine.database import Relations

# Explanations ---------------------------------------------------------------------------------------------------------

METHOD = (
    "Records lie in buckets. The release shows which records and which sensitive values a bucket has, but not which "
    "record has which value: every order within the bucket is equally likely."
)
BOUND = (
    "An attacker who knows everyone in the table, everything published of them and how the release was made can be "
    "at most as sure of a value of anyone as the bound of that value says."
)
KNOWN = "An attacker who knows sensitive values of others in the same bucket can exclude these."
PRESENT = "The release does not hide who is in the table."


def explain_guarantee(params: Bucketize) -> ReleasePromises:
    """F'-privacy, in sentences."""
    absent = ("The bounds are for those who are in the release; who was left out is assumed to be unknown.",)
    groups = ("If a group of values has a bound of its own, that bounds the belief that a person has any of them.",)
    fakes = (f"Every bucket also lists {params.fake_values} values that nobody in it has, and does not mark them.",)
    one_by_one = "The belief in one of several values can be the sum of their bounds, except in groups with a bound."
    promised = (
        METHOD,
        BOUND,
        *(groups if params.is_bounding else ()),
        *(fakes if params.fake_values else ()),
        *(absent if params.absence == "unobservable" else ()),
    )
    return ReleasePromises(promised, (KNOWN, LEARNT, SEVERAL, one_by_one, PRESENT))


def describe_structure(_: Relations, manifest: Manifest) -> list[Structure]:
    """Buckets by size, as ``make_checks`` compared them with the tables."""
    setting = sorted(BucketizeFacts.model_validate(manifest.facts).sizes)
    rows: list[tuple[Any, ...]] = [(f"{size:,} records", number, size * number) for size, number in setting]
    buckets, records = sum(number for _, number in setting), sum(size * number for size, number in setting)
    many = f"{buckets:,} buckets" if buckets != 1 else "one bucket"
    sentence = f"{records:,} records lie in {many}. The fewer records a bucket has, the better are answers."
    return [make_structure("Buckets by size", sentence, ("size of bucket", "buckets", "records"), rows, 2)]


# Measured facts -------------------------------------------------------------------------------------------------------


def measure_release(release: CheckedRelease[Bucketize, BucketizeFacts]) -> BeliefFacts:
    """Return how far beliefs go, from ST, and what gets through."""
    channel = make_channel(release.read_view("channel"), release.facts).channel
    return BeliefFacts.join_parts(list_sensitive(release).measure_beliefs(), channel_facts(channel))


def list_bounds(release: CheckedRelease[Bucketize, BucketizeFacts]) -> list[VerifiedBound]:
    """Return every group's bound, then every value's threshold, and the largest share of a bucket that has it."""
    listed = release.fill_query("verify/bucket_values", st=release.view("kinds"), same_value="st v").subquery()
    held = exp.select("bid", "code", alias_as(column("n"), "held")).from_(listed).subquery()
    most = list_sensitive(release).find_highest(held, column("code", "h"))
    rows, hidden = release.list_values("numerator", "denominator", "records"), release.facts.fake_values
    promised = [
        VerifiedBound(
            name,
            fraction_text(Fraction(int(top), int(bottom))),
            fraction_text(most[str(code)]),
            None if hidden else records,  # which fakes leave open
        )
        for code, (name, top, bottom, records) in enumerate(rows)
    ]
    return [*promise_group_bounds(release), *promised]


# The mechanism --------------------------------------------------------------------------------------------------------


def _belief_in_missing(learnt: AttackContext[BucketAttackView]) -> float | None:
    """Who is left out has one of the values that are as frequent as they may be: the most frequent ones."""
    if not learnt.view.manifest.facts.get("left_out"):
        return None
    records = learnt.scene.channel.records.round().astype(np.int64)
    return 1 / int((records == records.max()).sum())


def describe_bound(params: Bucketize) -> str:
    """F'-privacy."""
    threshold = params.threshold
    exceptions = f", {len(threshold.values)} values less or more" if threshold.values else ""
    absent = ", of those who are there" if params.absence == "unobservable" else ""
    set_bounds = [f"; {name} {rule.default or 'as queried'}" for name, rule in params.components.items()]
    set_bounds += [f"; {name} {group.threshold}" for name, group in params.groups.items()]
    return f"<= {threshold.default or 'as queried'}{exceptions}{''.join(set_bounds)}{absent}"


MECHANISM = TabularMechanism(
    parameters=Bucketize,
    facts=BucketizeFacts,
    shape=TableShape(numeric=False, most_numbers=500),
    sql=SQL,
    plan=make_plan_facts,
    algorithms=compare_algorithms,
    publish=publish,
    layout=TABLES,
    views=make_views,
    checks=make_checks,
    long_checks=long_checks,
    measured=measure_release,
    bounds=list_bounds,
    source_checks=source_checks,
    answers=BucketizedAnswers,
    evaluate=by_questions,
    adversaries=Suite(
        scene=BucketAttackView,
        adversaries=(
            adversaries.LINKAGE_ADVERSARY,
            attacks.HOMOGENEITY_ADVERSARY,
            adversaries.ORDER_ADVERSARY,
            adversaries.IDENTIFIERS_ADVERSARY,
            attacks.CORRUPTION_ADVERSARY,
            adversaries.absence_adversary(_belief_in_missing),
            adversaries.NEGATIVE_ADVERSARY,
            attacks.LEARNING_ADVERSARY,
            adversaries.DETERMINATION_ADVERSARY,
        ),
        combining=(adversaries.attack_by_intersection,),
        learning=attacks.measure_learning,
    ),
    promise=describe_bound,
    words=explain_guarantee,
    structure=describe_structure,
    advice=(
        "larger buckets, by a lower threshold or a larger min_bucket_size",
        "fake values (fake_values, with a constant threshold)",
        "fewer or coarser quasi-identifiers, such as age in bands, or regions for places",
    ),
    propose=propose_parameters,
    curve=predict_curve,
)
