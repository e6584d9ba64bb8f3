"""Bucketization as a mechanism (``privsql.mechanisms.contract``): plan over counts, publish through SQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers.accuracy import by_questions
from privsql.attacks import absence, identifiers, intersection, learning, linkage, negative, order
from privsql.attacks.suite import Suite
from privsql.engine.names import label
from privsql.engine.positions import positions
from privsql.engine.sqlfiles import Holes, column, fill, table, temp
from privsql.mechanisms.bucketize import beliefs, certain, corruption, homogeneity
from privsql.mechanisms.bucketize.answers import Answers
from privsql.mechanisms.bucketize.arrays import Composition
from privsql.mechanisms.bucketize.checks import SQL, bounds, checks, long_checks, measured, read, source_checks
from privsql.mechanisms.bucketize.fakes import certainty, exclusion
from privsql.mechanisms.bucketize.fakes import law as fakes
from privsql.mechanisms.bucketize.fakes.lists import times_listed
from privsql.mechanisms.bucketize.layout import arrange
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.planning.implied import Dealt, implied
from privsql.mechanisms.bucketize.planning.request import search
from privsql.mechanisms.bucketize.planning.suppress import spread
from privsql.mechanisms.bucketize.proposal import propose
from privsql.mechanisms.bucketize.reconstruct import listed
from privsql.mechanisms.bucketize.scene import Buckets
from privsql.mechanisms.bucketize.tables import tables, view
from privsql.mechanisms.bucketize.through import through
from privsql.mechanisms.contract import Alone, Mechanism, Table

if TYPE_CHECKING:
    from privsql.attacks.suite import Learnt
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.layout import Bids
    from privsql.mechanisms.bucketize.model import Ints, Plan, Problem, Setting
    from privsql.model.records import Records
    from privsql.noise import Key, Shuffler


def plan(db: Relations, source: Records, asked: Bucketize) -> dict[str, Any]:
    """The facts of the plan; raises as ``search``."""
    found, problem = search(db, source, asked)
    dealt = Dealt(found, problem, even=asked.composition != "largest-first", fakes=bool(asked.fake_values))
    facts = _summary(found, source, problem) | _stated(found, problem, asked)
    facts |= implied(dealt, _texts(db, source.roles)).as_facts()
    return facts | _not_allowed(facts, problem, asked)


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


def publish(db: Relations, source: Records, asked: Bucketize, key: Key) -> dict[str, Any]:
    """Make ``qit``, ``st``, ``privsql_values`` and ``privsql_channel`` in database ``release``; returns the facts."""
    found, problem = search(db, source, asked)
    together = (tuple((one.members, str(one.threshold)) for one in problem.bounds),) if problem.bounds else ()
    noise = key.stream("bucketize", found.setting.items, tuple(source.counts), tuple(source.labels), *together)
    counts = np.array(source.counts, dtype=np.int64)
    roles = source.roles
    with ThreadPoolExecutor(1) as beside:  # numpy and the engine use different cores
        drawn = beside.submit(_laid, found, problem, asked, noise)
        source.sort()
        bids, hidden = drawn.result()
        counted = beside.submit(_counted, bids, problem.counts, found.setting)
        db.put("positions", positions(spread(bids, problem.counts, counts, noise)))
        assigned = db.matched(temp("records"), temp("positions")).subquery()
        holes: Holes = {"assigned": assigned, "qi": roles.qi_out("r"), "qi_order": roles.qi("r")}
        db.make("qit", fill("bucketize/qit", holes), into="release", title="Assigning records to buckets")
        db.drop("positions")
        source.history.groups = bids
        source.done()
        composition, meetings = counted.result()
    db.put("composition", composition.table)
    facts = _summary(found, source, problem) | {"layout": asked.composition}
    if hidden is not None:
        facts |= _stated(found, problem, asked)
        codes, more = _admissible(db, source, asked, (found, composition, hidden), noise)
        facts |= {**more, "certainty": facts["certainty"] | more["certainty"]}
        composition = composition.beside(hidden.fake_bids, codes)
        meetings = composition.meetings(found.setting, asked.fake_values)
        db.put("composition", composition.table)
    holes = {"composition": temp("composition"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("st", fill("core/st", holes), into="release", title="Writing the sensitive table")
    db.put("fractions", _fractions(composition, problem))
    holes = {"fractions": temp("fractions"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    db.make("privsql_values", fill("bucketize/values", holes), into="release")
    db.put("meetings", meetings)
    db.make("privsql_channel", fill("bucketize/channel", {"meetings": temp("meetings")}), into="release")
    db.drop("composition", "fractions", "meetings")
    db.view("published", exp.select(*roles.sa_in(), column("bid"), column("count")).from_(table("st", "release")))
    facts |= beliefs.measured(db, temp("published"), temp("domain"), facts, roles).as_facts()
    if certain.reached(facts) and not certain.free(asked):
        excused = certain.written(asked, problem.labels, problem.thresholds)
        values = certain.listed(roles, table("privsql_values", "release"))
        certain.refuse(certain.certain(db, temp("published"), values, facts["setting"], roles, excused))
    return facts


def _summary(found: Plan, source: Records, problem: Problem) -> dict[str, Any]:
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
        **({"bounds": [one.as_fact() for one in problem.bounds]} if problem.bounds else {}),
    }


def _counted(bids: Bids, counts: Ints, setting: Setting) -> tuple[Composition, pa.Table]:
    composition = Composition(bids, counts)
    composition.table  # noqa: B018 (made here, beside the engine)
    return composition, composition.meetings(setting)


def _laid(found: Plan, problem: Problem, asked: Bucketize, noise: Shuffler) -> tuple[Bids, fakes.Hidden | None]:
    """Buckets of all records, value by value, and the fakes beside them."""
    if not asked.fake_values:
        return arrange(found, asked.composition, noise, problem.trees), None
    hidden = fakes.hidden(found, problem.counts, asked.fake_values, asked.composition, noise)
    return hidden.bids, hidden


def _stated(found: Plan, problem: Problem, asked: Bucketize) -> dict[str, Any]:
    """What is stated of the fakes before they are drawn."""
    if not asked.fake_values:
        return {}
    times = times_listed(problem.counts, found.setting.items, asked.fake_values).sum(axis=1)
    return certainty.stated(problem.counts, times, problem.labels, found.setting, asked.fake_values)


def _admissible(
    db: Relations,
    source: Records,
    asked: Bucketize,
    laid: tuple[Plan, Composition, fakes.Hidden],
    noise: Shuffler,
) -> tuple[Ints, dict[str, Any]]:
    """The fakes, exchanged where negative associations exclude them, and what is stated of them."""
    found, real, hidden = laid
    if not asked.exclude_negative:
        anywhere = certainty.rounded_up(hidden.highest)
        return hidden.fake_codes, {"weak_fakes": 0, "certainty": {"anywhere": anywhere}}
    setting = {str(size): buckets for size, buckets in found.setting.items}
    plainly = through(listed(real.meetings(found.setting), setting), {})
    known = exclusion.excluded(db, source.roles, setting, plainly.channel)
    made = exclusion.avoided(real, hidden.fake_bids, hidden.fake_codes, known, noise)
    exclusion.refuse_weak(made.weak, asked.no_admissible_fake)
    return made.codes, {"weak_fakes": made.weak, "excluded_real": made.certain, "certainty": {}}


def _fractions(composition: Composition, problem: Problem) -> pa.Table:
    values = problem.thresholds
    return pa.table(
        {
            "code": np.arange(len(values)),
            "records": composition.listed,
            "numerator": [str(value.numerator) for value in values],
            "denominator": [str(value.denominator) for value in values],
        }
    )


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
        *beliefs.figures(facts),
        *([("refused", f"as certain: {', '.join(facts['not_allowed'])}")] if facts.get("not_allowed") else []),
        *certainty.figures(facts),
    ]


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
