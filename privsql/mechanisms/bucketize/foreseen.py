"""What a plan lets foresee of its release: loss and beliefs from counts, and what gets through from a trial layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.channel import own_share
from privsql.answers.reconstruct import LARGE
from privsql.engine.names import label
from privsql.engine.sqlfiles import fill, temp
from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize import certain
from privsql.mechanisms.bucketize.fakes.law import lists
from privsql.mechanisms.bucketize.layout.arrange import arrange
from privsql.mechanisms.bucketize.planning.implied import Dealt, implied
from privsql.mechanisms.bucketize.planning.request import search
from privsql.mechanisms.bucketize.planning.search import find
from privsql.mechanisms.bucketize.publishing import reserve, stated_fakes, summary
from privsql.mechanisms.bucketize.reconstruct import got_through, seen
from privsql.noise import seed_key

if TYPE_CHECKING:
    from privsql.answers.channel import Channel
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.layout.runs import Runs
    from privsql.mechanisms.bucketize.model import Plan, Problem
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.records import Records

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
