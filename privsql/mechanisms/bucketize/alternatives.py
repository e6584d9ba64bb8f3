"""The algorithms of bucketization beside each other: what they cost by the papers' loss, and what they tell."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from privsql.answers.expected import relative_error
from privsql.answers.reconstruct import LARGE
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.alternatives import Alternative, Alternatives, Measure
from privsql.mechanisms.bucketize.foreseen import foreseen
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.planning.search import ALGORITHMS

if TYPE_CHECKING:
    from privsql.answers.channel import Channel
    from privsql.engine.database import Relations
    from privsql.mechanisms.alternatives import Figure
    from privsql.mechanisms.bucketize.model import Problem
    from privsql.model.records import Records

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
