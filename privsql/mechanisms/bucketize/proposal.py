"""Propose thresholds for the values of a column, and predict the error of counts from them in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Any

from privsql.errors import InfeasibleError, UsageError, suggest_name
from privsql.exact import fraction_text, parse_linear
from privsql.mechanisms.base import ASKED, FEW_ASKED, Proposal
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.plan import plan_buckets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.base import ProfiledSource
    from privsql.model.records import Records

# Precision ------------------------------------------------------------------------------------------------------------
# Buckets either hold a value with the share h of its threshold or not at all. The linear estimator then counts t
# records of a value of frequency f with the variance N (1 - h) f / (h - f), where N = t / f records are asked.

GROUP = 1000  # records of the group of which the error of a share is told
TWO_SIDED = 1.96  # standard errors


def predict_count_error(frequency: float, threshold: float, records: int = ASKED) -> float:
    """Return the relative standard error of a count of so many records that have a value.

    The formula is sqrt((1 - h) (1 - f) / ((h - f) t)). It holds for questions that select few of all records, about
    as often with the value as without.

    Args:
        frequency: The share f of the value in the whole table.
        threshold: The highest belief h in it, above f.
        records: The true count t.
    """
    if threshold >= 1:
        return 0.0
    if threshold <= frequency:
        return float("inf")
    return sqrt((1 - threshold) * (1 - frequency) / ((threshold - frequency) * records))


def predict_share_error(frequency: float, threshold: float, records: int = GROUP) -> float:
    """Return the half-width of the 95 % interval of a value's share in a group: 1.96 sqrt(p (1 - p) / (N (o - 1))).

    Here o = odds(h) / odds(f), and the group has the value as often as the table.
    """
    if threshold >= 1:
        return 0.0
    odds = threshold * (1 - frequency) / ((1 - threshold) * frequency)
    return TWO_SIDED * sqrt(frequency * (1 - frequency) / (records * (odds - 1))) if odds > 1 else float("inf")


def find_useful_threshold(frequency: Fraction) -> Fraction:
    """Return the lowest threshold at which a count of 500 has a relative error of 10 %: (1 + 4 f) / (6 - f)."""
    return (1 + 4 * frequency) / (6 - frequency)


# Thresholds -----------------------------------------------------------------------------------------------------------

STEPS = (Fraction(1, 4), Fraction(1, 3), Fraction(1, 2))
MOST_FREE = Fraction(1, 4)  # frequency above which a harmless value is not protected
HOPELESS = "no threshold up to 1/2 keeps counts of {} useful, which {} of the records have"
RULES = ("2*f + 0.02", "4*f + 0.02", "1.5*f + 0.05", "f + 0.1", "f + 0.05", "f + 0.02")  # where no step will do
MOST_SHOWN = 4


@dataclass(frozen=True)
class Protection:
    """Thresholds by value (exact; 1: not protected), and the bound on all protected values together."""

    thresholds: dict[str, Fraction]
    union: Fraction | None


def choose_protection(
    labels: Sequence[str], counts: Sequence[int], harmless: Sequence[str] = (), protect: Sequence[str] = ()
) -> Protection:
    """Return the threshold of each value, by the precision that it leaves.

    The most frequent value is not protected if it is harmless and has more than a quarter of the records. Each other
    value has the lowest of 1/4, 1/3 and 1/2 at which a count of 500 is within 10 %. What is free may stand in each
    bucket as often as it likes, so the protected values are bounded together as well.

    Args:
        labels: The texts of the values.
        counts: The records of each.
        harmless: The values that harm nobody.
        protect: The values to protect where the publisher names them; all others are free.

    Raises:
        InfeasibleError: No step is useful for a protected value, or for all of them together.
    """
    if strange := [label for label in protect if label not in labels]:
        raise UsageError(
            f"protect: {strange[0]!r} is no value of the sensitive column{suggest_name(strange[0], labels)}"
        )
    total = sum(counts)
    shares = {label: Fraction(count, total) for label, count in zip(labels, counts, strict=True)}
    top = max(shares, key=lambda label: shares[label])
    free = [label for label in labels if label not in protect] if protect else []
    if not protect and top in harmless and shares[top] > MOST_FREE and len(shares) > 1:
        free = [top]
    thresholds = {label: Fraction(1) if label in free else _lowest_step(label, shares[label]) for label in labels}
    protected = [label for label in labels if label not in free]
    union = None
    if free and len(protected) > 1:
        share = sum((shares[label] for label in protected), start=Fraction(0))
        union = next((step for step in STEPS if step > share), None)
        if union is None:
            raise InfeasibleError(
                f"the protected values together have {float(share):.0%} of the records, and no bound up to 1/2 holds"
            )
    return Protection(thresholds, union)


def _lowest_step(label: str, share: Fraction) -> Fraction:
    needed = find_useful_threshold(share)
    step = next((step for step in STEPS if step >= needed), None)
    if step is None:
        raise InfeasibleError(HOPELESS.format(repr(label), f"{float(share):.0%}"))
    return step


# Proposal -------------------------------------------------------------------------------------------------------------


def propose_parameters(db: Relations, source: ProfiledSource) -> Proposal:
    """Propose a threshold for each value; where no step will do, the first rule in the frequency that can be met.

    Raises:
        InfeasibleError: No threshold below certainty can be met.
    """
    records = source.records()
    try:
        chosen = choose_protection(records.labels, records.counts, source.harmless, source.protect)
        parameters = _as_parameters(records.labels, chosen)
        if _can_be_met(db, records, parameters):
            return _describe(records, parameters, chosen, source.of_a)
        raise InfeasibleError("no buckets keep useful thresholds")
    except InfeasibleError as error:
        if not source.any_rule:
            raise
        reason = str(error)
    share = max(Fraction(count, sum(records.counts)) for count in records.counts)
    bounds = {rule: max(Fraction(1, 2), parse_linear(rule).threshold_at(share)) for rule in RULES}
    for rule in sorted(RULES, key=lambda rule: bounds[rule]):  # those that bound the highest belief by 1/2 come first
        bound = bounds[rule]
        parameters = {"kind": "bucketize", "threshold": rule, **({"allow_certain": True} if bound >= 1 else {})}
        if _can_be_met(db, records, parameters):
            limits = [parse_linear(rule).threshold_at(Fraction(count, sum(records.counts))) for count in records.counts]
            fallback = Protection(dict(zip(records.labels, limits, strict=True)), None)
            proposal = _describe(records, parameters, fallback, source.of_a)
            return replace(proposal, remarks=(f"{reason}; the rule {rule} is the next best.",))
    raise InfeasibleError("no threshold below certainty can be met; there are too few values or records")


def _as_parameters(labels: Sequence[str], chosen: Protection) -> dict[str, Any]:
    """Return the table ``[mechanism]``: the commonest threshold as the default, the others by value."""
    limits = chosen.thresholds
    bound = [limits[label] for label in labels if limits[label] < 1]
    default = max(set(bound), key=bound.count)
    others = {label: fraction_text(limits[label]) for label in labels if limits[label] != default}
    threshold: Any = {"default": fraction_text(default), **others} if others else fraction_text(default)
    parameters: dict[str, Any] = {"kind": "bucketize", "threshold": threshold}
    if chosen.union is not None:
        protected = [label for label in labels if limits[label] < 1]
        parameters["groups"] = {"protected": {"threshold": fraction_text(chosen.union), "values": protected}}
    return parameters


def _can_be_met(db: Relations, records: Records, parameters: dict[str, Any]) -> bool:
    algorithm = "multi-size" if "groups" in parameters else "two-size"
    try:
        plan_buckets(db, records, Bucketize.model_validate({**parameters, "algorithm": algorithm}), proving=False)
    except InfeasibleError:
        return False
    return True


def _describe(records: Records, parameters: dict[str, Any], chosen: Protection, of_a: str) -> Proposal:
    """Return the proposal with its promise and precision in words for a privacy officer."""
    total = sum(records.counts)
    shares = {label: count / total for label, count in zip(records.labels, records.counts, strict=True)}
    protected = [label for label, limit in chosen.thresholds.items() if limit < 1]
    worst = max(protected, key=lambda label: predict_count_error(shares[label], float(chosen.thresholds[label])))
    highest = max((chosen.thresholds[label] for label in protected), default=Fraction(1))
    names = ", ".join(repr(label) for label in protected[:MOST_SHOWN])
    values = names if len(protected) <= MOST_SHOWN else f"any of {len(protected)} values"
    promise = [
        f"Nobody can be more than {float(highest):.0%} sure that {of_a} has {values} by looking it up in the release."
    ]
    if len(protected) < len(shares):
        free = [label for label in shares if label not in protected]
        promise.append("Not protected: " + ", ".join(f"{label!r} ({shares[label]:.0%})" for label in free[:MOST_SHOWN]))
    if chosen.union is not None:
        promise.append(f"That it has one of these can be believed with {float(chosen.union):.0%} at most.")
    f, h = shares[worst], float(chosen.thresholds[worst])
    error, few, share = predict_count_error(f, h), predict_count_error(f, h, FEW_ASKED), predict_share_error(f, h)
    promise.append(
        f"Precision without fit, worst protected value {worst!r}: a count of {ASKED} is off by about {error:.0%}, one "
        f"of {FEW_ASKED} by {few:.0%}; a share in a group of {GROUP:,} by {100 * share:.1f} points (95 %)."
    )
    return Proposal(parameters, tuple(promise), error=round(error, 4))
