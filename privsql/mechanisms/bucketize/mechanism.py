"""Bucketization as a ``Mechanism``: plans, previews, proposals, answers and explanations."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError
from sqlglot import exp

from privsql.answers import answer, estimate
from privsql.answers.accuracy import by_questions
from privsql.answers.channel import LARGE, own_share, quality, relative_error
from privsql.answers.learned_prior import can_teach, learned_weights
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement
from privsql.attacks import adversaries, suite
from privsql.attacks.suite import Suite
from privsql.engine.files import label
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, same, table, temp
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import linear, text
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import attacks, beliefs, fakes
from privsql.mechanisms.bucketize.attacks import Buckets
from privsql.mechanisms.bucketize.beliefs import tables, view
from privsql.mechanisms.bucketize.checks import SQL, checks, group_bounds, long_checks, read, source_checks
from privsql.mechanisms.bucketize.estimator import (
    BASELINE_FORMULA,
    CHANNEL_FORMULA,
    baseline_statement,
    channel_statement,
    directions,
    estimate_baseline,
    expected_records,
    got_through,
    observe,
    read_channel,
    sample,
    seen,
    split_certain,
)
from privsql.mechanisms.bucketize.fakes import lists
from privsql.mechanisms.bucketize.feasibility import Dealt, implied
from privsql.mechanisms.bucketize.informative import arrange
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.publish import publish, reserve, stated_fakes, summary
from privsql.mechanisms.bucketize.search import ALGORITHMS, find, search
from privsql.mechanisms.contract import Alone, Alternative, Alternatives, Measure, Mechanism, Proposal, Table
from privsql.model.manifest import LEARNT, SEVERAL, Promised, Structure, Words
from privsql.model.manifest import structure as part

if TYPE_CHECKING:
    import pyarrow as pa

    from privsql.answers.channel import Channel
    from privsql.answers.learned_prior import Taught
    from privsql.attacks.suite import Learnt
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.estimator import Through
    from privsql.mechanisms.bucketize.layout import Runs
    from privsql.mechanisms.bucketize.model import Plan, Problem
    from privsql.mechanisms.contract import Figure, Profiled
    from privsql.model.manifest import Estimate, Manifest
    from privsql.model.records import Records

# Answers --------------------------------------------------------------------------------------------------------------
# Which way a question to a bucketized release is answered: exactly, by the papers' formula, or through the channel.


class Answers(answer.Answers):
    """An open release that answers count queries; its channel is read once."""

    certain = frozenset({"baseline"})
    records = "qit"
    measures = frozenset()

    @cached_property
    def channel(self) -> Channel:
        """The release's channel."""
        return self._through.channel

    @cached_property
    def _through(self) -> Through:
        return read_channel(self._db, self._facts)

    @cached_property
    def _expected(self) -> pa.Table:
        return expected_records(self._db, self._roles, self._facts, self._through)

    @cached_property
    def _taught(self) -> Taught | None:
        """The prior that the release teaches, if any; of fakes that are taken off what is seen, none is learnt."""
        if any(self._through.less.values()) or not can_teach(self.channel, self._manifest.published_records):
            return None
        return learned_weights(self.channel, sample(self._db, self._roles, self._facts["setting"], self._through))

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        if query.is_exact:
            return exact_statement(query, table("qit")), EXACT
        if estimator == "baseline":
            return baseline_statement(query, self._roles, self._facts), BASELINE_FORMULA
        return channel_statement(query, self._roles, self._facts), CHANNEL_FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            return exact_answer(self._db, query, table("qit"))
        if estimator == "baseline":
            if self._facts.get("fake_values"):
                self._db.put("expected", self._expected)
            return estimate_baseline(self._db, query, self._roles, self._facts)
        asked = replace(split_certain(self._db, query, self._roles, self._through), taught=self._taught)
        seen = observe(asked, self._roles, self._facts, self._through)
        return estimate.estimate_rows(asked, seen, confidence)


# Previews -------------------------------------------------------------------------------------------------------------
# What a plan lets foresee of its release: loss and beliefs from counts, and what gets through from a trial layout.

MOST = 1_000_000  # records of which a plan draws a layout bucket by bucket


def plan(db: Relations, source: Records, asked: Bucketize) -> dict[str, Any]:
    """The facts of the plan, with the seconds of a processor that the search took; raises as ``search``."""
    facts, _, problem = foreseen(db, source, asked)
    return facts | _remarks(facts, problem, asked)


def foreseen(db: Relations, source: Records, asked: Bucketize) -> tuple[dict[str, Any], Channel | None, Problem]:
    """The facts, the channel of a trial layout if that is drawn, and the problem that is solved."""
    found, problem = search(db, source, asked)
    even = asked.composition in ("blocks", "round-robin")
    dealt = Dealt(found, problem, even=even, fakes=bool(asked.fake_values))
    facts = summary(found, problem, sum(source.counts)) | stated_fakes(found, problem, asked)
    facts |= {"search_seconds": round(found.seconds, 6)} | implied(dealt, _texts(db, source.roles)).as_facts()
    runs = _drawn(found, problem, asked)
    if runs is not None:
        reserve(db, runs)
    channel = _seen(runs, found, problem, asked)
    facts |= got_through(channel) if channel is not None else {}
    return facts | _not_allowed(facts, problem, asked), channel, problem


def _drawn(found: Plan, problem: Problem, asked: Bucketize) -> Runs | None:
    """What buckets list by a layout of this plan, drawn for that; None where drawing one takes long."""
    if problem.records > MOST and (asked.composition == "largest-first" or len(problem.trees) > 1):
        return None
    laid = lists(found, problem.counts, asked.fake_values) if asked.fake_values else found
    return arrange(laid, asked.composition, seed_key(1).stream("plan"), problem.trees).runs(laid.setting)


def _seen(runs: Runs | None, found: Plan, problem: Problem, asked: Bucketize) -> Channel | None:
    """The channel of such a layout; None where there is none, or values are very many."""
    if runs is None or runs.values > LARGE:
        return None
    facts = summary(found, problem, problem.records) | stated_fakes(found, problem, asked)
    return seen(runs.meetings(asked.fake_values), facts)


def _remarks(facts: dict[str, Any], problem: Problem, asked: Bucketize) -> dict[str, Any]:
    """What to know of ``informative`` before it is published."""
    if asked.algorithm != "informative":
        return {}
    if len(set(problem.thresholds)) == 1:
        return {"remarks": ["thresholds are the same for every value: nothing is to be gained from 'informative'"]}
    plainly = asked.model_copy(update={"algorithm": "two-size", "layout": None})
    try:
        other = find(problem, "two-size")
        less = _seen(_drawn(other, problem, plainly), other, problem, plainly)
    except InfeasibleError:
        return {}
    if less is None or "mean_belief" not in facts:
        return {}
    means = f"mean belief {facts['mean_belief']:.3f}, {own_share(less):.3f} with 'two-size'"
    return {"remarks": [f"it uses thresholds up: {means}"]}


def _not_allowed(facts: dict[str, Any], problem: Problem, asked: Bucketize) -> dict[str, Any]:
    """The values that publishing would refuse, as they would be certain, of plans that have some."""
    columns = facts["highest_belief"]["components"]
    excused = {problem.label(code) for code in beliefs.allowed_values(asked, problem.labels, problem.thresholds)}
    names = [
        value if len(columns) == 1 else f"{name}: {value}"
        for name, of in columns.items()
        for value, most in of.items()
        if most == "1" and value not in excused
    ]
    return {"not_allowed": names} if names and not beliefs.allows_certainty(asked) else {}


def _texts(db: Relations, roles: Roles) -> dict[str, list[str]]:
    """Of each sensitive column the text of every value, in the order of the domain."""
    labels = [exp.cast(item, "VARCHAR") for item in roles.sa()]
    rows = db.rows(fill("core/domain_labels", {"domain": temp("domain"), "labels": labels}))
    names = enumerate(field.name for field in roles.sensitive)
    return {name: [label([row[k]]) for row in rows] for k, name in names}


# Alternatives ---------------------------------------------------------------------------------------------------------
# The algorithms of bucketization beside each other: what they cost by the papers' loss, and what they tell.

ASKED = [(f"error_{count}_at_{share}", count, share) for share, count in product((0.01, 0.05), (100, 500, 2000))]
MEASURES = (
    Measure("loss", "loss", ",.0f"),
    Measure("information", "information used, tr M / sum f'", ".2f", lowest=False),
    Measure("second", "channel, second singular value", ".3f", lowest=False),
    Measure("median", "channel, median", ".3f", lowest=False),
    Measure("smallest", "channel, smallest", ".3f", lowest=False),
    Measure("highest_belief", "highest belief, at most"),
    Measure("mean_belief", "mean belief"),
    *(Measure(key, f"error of a count of {count:,} in {share:.0%}", ".1%") for key, count, share in ASKED),
)


def algorithms(db: Relations, source: Records, asked: Bucketize) -> Alternatives:
    """All of them for the specification ``asked``, whose layout and search hold for its own algorithm alone.

    ``tr M / sum f'``: how much of the beliefs that thresholds allow is used (``planning.informative``); errors are what
    ``relative_error`` expects of a question that selects a share of the records.
    """
    rows = [_row(db, source, asked, name) for name in ALGORITHMS]
    return Alternatives(MEASURES, rows, _advice(rows, asked.algorithm))


def _row(db: Relations, source: Records, asked: Bucketize, name: str) -> Alternative:
    given: dict[str, Any] = asked.model_dump(mode="json", exclude_none=True) | {"algorithm": name}
    if name != asked.algorithm:
        given = {key: value for key, value in given.items() if key not in ("layout", "prune")}
    try:
        facts, channel, problem = foreseen(db, source, Bucketize.model_validate(given))
    except ValidationError as error:
        return Alternative(name, {}, str(error.errors()[0]["msg"]).removeprefix("Value error, "))
    except (InfeasibleError, UsageError) as error:
        return Alternative(name, {}, str(error))
    if "not_allowed" in facts:
        return Alternative(name, {}, f"makes values certain: {', '.join(facts['not_allowed'])}")
    return Alternative(name, _figures(facts, channel, problem))


def _figures(facts: dict[str, Any], channel: Channel | None, problem: Problem) -> dict[str, Figure]:
    figures: dict[str, Figure] = {
        "loss": facts["loss"],
        "highest_belief": float(Fraction(facts["highest_belief"]["overall"])),
    }
    if channel is None:
        return figures
    allowed = float(sum(problem.thresholds))
    figures |= {"mean_belief": facts["mean_belief"], "information": float(np.trace(channel.mean)) / allowed}
    if len(channel.records) > LARGE:
        return figures
    through: dict[str, Figure] = facts["channel"]
    return figures | through | {key: relative_error(channel, share, count) for key, count, share in ASKED}


def _advice(rows: list[Alternative], asked: str) -> str:
    """The algorithm with the least error, the geometric mean of what is foreseen, beside what is asked for."""
    errors = {row.algorithm: error for row in rows if (error := _error(row.figures)) is not None}
    if not errors:
        return "nothing is foreseen of errors here"
    best = min(errors, key=lambda name: errors[name])
    if asked not in errors or best == asked:
        return f"least error: {best}" + (", which is asked for" if best == asked else "")
    beliefs = {row.algorithm: row.figures["mean_belief"] for row in rows if row.algorithm in (best, asked)}
    return (
        f"least error: {best}, {errors[best] / errors[asked]:.2f} times that of {asked}; "
        f"mean belief is {beliefs[best]:.3f} with it and {beliefs[asked]:.3f} with {asked}"
    )


def _error(figures: dict[str, Figure]) -> float | None:
    """Which of them are foreseen depends on the values' frequencies alone, so they are the same of all algorithms."""
    known = [error for key, *_ in ASKED if (error := figures.get(key))]
    return float(np.exp(np.mean(np.log(known)))) if known else None


# Proposal -------------------------------------------------------------------------------------------------------------
# What ``init`` proposes for a table: the first rule that can be met and lets no belief reach above 1/2.
#
# Of the algorithms it proposes the one with the least loss, unless ``informative`` leaves clearly less open of a count:
# the bound is what is promised, and what it allows should not be wasted. A remark says what beliefs are with either.

CLEARLY = 0.9
RULES = (  # proposed, the first that can be met; what varies with f comes first, then what leaves less room
    "2*f + 0.02", "4*f + 0.02", "8*f + 0.02", "16*f + 0.02", "32*f + 0.02", "1.5*f + 0.05", "f + 0.1",
    "f + 0.05", "f + 0.02",
)  # fmt: skip


def propose(db: Relations, source: Profiled) -> Proposal:
    """The first rule of ``RULES`` that two sizes can meet and that bounds every belief by 1/2.

    Where there is none, the rule that bounds the highest belief lowest, with a remark that says which value it is.
    """
    records = source.records()
    share = Fraction(max(records.counts), sum(records.counts)) if records.counts else Fraction(0)
    feasible = [rule for rule in RULES if _can_be_met(db, records, rule)]
    if not feasible:
        raise InfeasibleError("no threshold below certainty can be met; there are too few values or records")
    modest = [rule for rule in feasible if linear(rule).at(share) <= Fraction(1, 2)]
    chosen = modest[0] if modest else min(feasible, key=lambda rule: linear(rule).at(share))
    remarks = () if modest else (_immodest(records, chosen, share),)
    known = {"allow_certain": True} if linear(chosen).at(share) == 1 else {}
    algorithm, why = _algorithm(db, records, {"threshold": chosen, **known})
    return Proposal({"kind": "bucketize", "algorithm": algorithm, "threshold": chosen, **known}, (*remarks, *why))


def _algorithm(db: Relations, records: Records, rule: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """``optimal``, or ``informative`` where it leaves less than ``CLEARLY`` of that open; and what to know of it."""
    if len(records.counts) > LARGE:
        return "optimal", ()
    found = {}
    for name in ("optimal", "informative"):
        try:
            facts, channel, _ = foreseen(db, records, Bucketize.model_validate({"algorithm": name, **rule}))
        except InfeasibleError:
            return "optimal", ()
        if channel is None or "not_allowed" in facts:
            return "optimal", ()
        found[name] = quality(channel)["left"], facts["mean_belief"]
    (left, belief), (less, more) = found["optimal"], found["informative"]
    if less > CLEARLY * left:
        return "optimal", ()
    open_, beliefs = f"{less:.0%} of what is unknown of a count, {left:.0%} with 'optimal'", f"{more:.3f}, {belief:.3f}"
    return "informative", (
        f"'informative' uses thresholds up: it leaves open {open_}; the mean belief is {beliefs} with 'optimal'.",
        "privsql plan --algorithms compares all algorithms.",
    )


def _can_be_met(db: Relations, records: Records, rule: str) -> bool:
    try:
        search(db, records, Bucketize.model_validate({"algorithm": "two-size", "threshold": rule}))
    except InfeasibleError:
        return False
    return True


def _immodest(records: Records, rule: str, share: Fraction) -> str:
    worst = records.labels[int(np.argmax(records.counts))]
    bound = min(Fraction(1), linear(rule).at(share))
    return (
        f"Mind: {worst} is the value of {float(share):.1%} of the records, so no release can keep the belief in it at "
        f"1/2; this one lets it reach {float(bound):.1%}."
    )


# Explanations ---------------------------------------------------------------------------------------------------------
# A bucketized release for people: what it promises in sentences, and its buckets.

MADE = (
    "Records are put together in buckets. Of every bucket it is published which records are in it and which sensitive "
    "values they have, but not which record has which value: within the bucket every order is equally likely."
)
BOUND = (
    "Somebody who knows everybody in the table, all that is published of them and how the release was made can believe "
    "of nobody that they have a value with a probability above the bound of that value."
)
KNOWN = "Against people who know the sensitive values of others in the same bucket."
PRESENT = "That somebody is in the table at all is not hidden."


def explain_guarantee(asked: Bucketize) -> Words:
    """F'-privacy, in sentences."""
    absent = ("The bounds are for those who are in the release; who was left out is assumed to be unknown.",)
    groups = ("Where a group of values has a bound of its own, it holds for the sum of the beliefs in them.",)
    fakes = (f"Every bucket lists {asked.fake_values} values besides that nobody in it has, not marked as such.",)
    one_by_one = "For beliefs in one of several values together: they add up, but for groups with bounds of their own."
    promised = (
        MADE,
        BOUND,
        *(groups if asked.is_bounding else ()),
        *(fakes if asked.fake_values else ()),
        *(absent if asked.absence == "unobservable" else ()),
    )
    return Words(promised, (KNOWN, LEARNT, SEVERAL, one_by_one, PRESENT))


def describe_structure(_: Relations, manifest: Manifest) -> list[Structure]:
    """Buckets by size, as ``checks`` compared them with the tables."""
    setting = sorted((int(size), int(number)) for size, number in manifest.facts["setting"].items())
    rows: list[tuple[Any, ...]] = [(f"{size:,} records", number, size * number) for size, number in setting]
    buckets, records = sum(number for _, number in setting), sum(size * number for size, number in setting)
    many = f"{buckets:,} buckets" if buckets != 1 else "one bucket"
    said = f"{records:,} records lie in {many}. The fewer records a bucket has, the better are answers."
    return [part("Buckets by size", said, ("size of bucket", "buckets", "records"), rows, 2)]


# Measured facts -------------------------------------------------------------------------------------------------------
# What the tables of a bucketized release tell of it, after ``checks`` has named them.


def measured(db: Relations, manifest: Manifest) -> dict[str, Any]:
    """How far beliefs go, from ST, and what gets through."""
    found = beliefs.measured(db, temp("v_st"), temp("v_values"), manifest.facts, manifest.roles).as_facts()
    return found | directions(db.arrow(all_rows(temp("v_channel"))), manifest.facts)


def bounds(db: Relations, manifest: Manifest) -> list[Promised]:
    """Every group's bound, then every value's threshold, and the largest share of a bucket that has it."""
    keys = manifest.roles.sa_keys
    holes: Holes = {
        "st": temp("v_kinds"),
        "sizes": temp("v_sizes"),
        "values": temp("v_values"),
        "sa": manifest.roles.sa("st"),
        "labels": [named(exp.cast(column(key, "v"), "VARCHAR"), key) for key in keys],
        "same_value": same("v", "w", keys),
    }
    found: dict[int, Promised] = {}
    listed = db.arrow(all_rows(temp("v_values"))) if not manifest.facts.get("fake_values") else None  # fakes count, too
    records = (
        {} if listed is None else dict(zip(*(listed[name].to_pylist() for name in ("code", "records")), strict=True))
    )
    most: dict[int, Fraction] = {}
    for code, *shown, top, bottom, size, held in db.rows(fill("verify/bounds", holes)):
        most[code] = max(most.get(code, Fraction(0)), min(Fraction(1), Fraction(int(held), int(size))))
        found[code] = Promised(label(shown), text(Fraction(int(top), int(bottom))), text(most[code]), records.get(code))
    return [*group_bounds(db, manifest), *found.values()]


# The mechanism --------------------------------------------------------------------------------------------------------
# Bucketization as a mechanism (``privsql.mechanisms.contract``): plan over counts, publish through SQL.


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
        *fakes.certainty_figures(facts),
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
            adversaries.LINKAGE_ADVERSARY,
            attacks.HOMOGENEITY_ADVERSARY,
            adversaries.ORDER_ADVERSARY,
            adversaries.IDENTIFIERS_ADVERSARY,
            attacks.CORRUPTION_ADVERSARY,
            adversaries.absence_adversary(_belief_in_missing),
            adversaries.NEGATIVE_ADVERSARY,
            suite.LEARNING_ADVERSARY,
            suite.AGAIN,
            adversaries.GIVING,
        ),
        combining=(adversaries.attack_by_intersection,),
        quick=Buckets,
    ),
    promise=promise,
    words=explain_guarantee,
    structure=describe_structure,
    advice=(
        "larger buckets (a lower threshold, or a larger min_bucket_size): more values for everyone to hide among",
        "fake values (fake_values, with a constant threshold): a belief must be shared with values that are not there",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    propose=propose,
    warnings=lambda _: [],
    figures=figures,
)
