"""Propose thresholds for the values of a sensitive column, as low as useful counts allow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from privsql.errors import InfeasibleError, UsageError, suggest_name
from privsql.exact import fraction_text, parse_linear
from privsql.mechanisms.base import Proposal
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.plan import plan_buckets
from privsql.mechanisms.bucketize.precision import find_useful_threshold, foresee_precision
from privsql.mechanisms.bucketize.preview import preview_release
from privsql.model.checks import VerifiedBound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.base import ProfiledSource
    from privsql.model.records import Records

# Thresholds -----------------------------------------------------------------------------------------------------------

STEPS = (Fraction(1, 4), Fraction(1, 3), Fraction(1, 2))
MOST_FREE = Fraction(1, 4)  # a more frequent harmless value is not protected
HOPELESS = "no threshold up to 1/2 keeps counts of {} useful, which {} of the records have"
RULES = ("2*f + 0.02", "4*f + 0.02", "1.5*f + 0.05", "f + 0.1", "f + 0.05", "f + 0.02")  # if no step is useful
MOST_SHOWN = 4


@dataclass(frozen=True)
class Protection:
    """The thresholds that privsql proposes to a publisher.

    Attributes:
        thresholds: The threshold of each value, by its text; 1 if the value is not protected.
        union: The bound on all protected values together; None if there is none.
    """

    thresholds: dict[str, Fraction]
    union: Fraction | None


def choose_protection(
    labels: Sequence[str], counts: Sequence[int], harmless: Sequence[str] = (), protect: Sequence[str] = ()
) -> Protection:
    """Choose the threshold of each value: the lowest of 1/4, 1/3 and 1/2 at which a count of 500 is within 10 %.

    The most frequent value is not protected if it is harmless and more than a quarter of the records have it. If some
    values are not protected, those that are protected get a bound on all of them together as well.

    Args:
        labels: The values as text.
        counts: The number of records of each value.
        harmless: The values that harm nobody if they become known.
        protect: The values to protect, if the publisher names them; then all others are not protected.

    Raises:
        InfeasibleError: No threshold up to 1/2 keeps counts useful for a protected value, or for all together.
        UsageError: ``protect`` names a value that does not exist.
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
    """Propose a threshold for each value at which counts stay useful, as parameters of a specification.

    If there is none, the proposal is a rule that computes thresholds from the values' frequencies f, such as ``2*f +
    0.02``. It is the strictest rule of a list for which buckets can be planned.

    Raises:
        InfeasibleError: No threshold below certainty has a plan; or no useful one has, if rules are not allowed.
    """
    records = source.records()
    try:
        chosen = choose_protection(records.labels, records.counts, source.harmless, source.protect)
        parameters = _as_parameters(records.labels, chosen)
        if _can_be_met(db, records, parameters):
            return _describe(db, records, parameters, chosen, source.of_a)
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
            proposal = _describe(db, records, parameters, fallback, source.of_a)
            return replace(proposal, remarks=(f"{reason}; the rule {rule} is the next best.",))
    raise InfeasibleError("no threshold below certainty can be met; there are too few values or records")


def _as_parameters(labels: Sequence[str], chosen: Protection) -> dict[str, Any]:
    """Return proposed thresholds as the table ``[mechanism]`` of a specification.

    The most common threshold becomes the default.

    Args:
        labels: The values as text.
        chosen: The proposed threshold of each value, and the bound on all protected values together.
    """
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


def _describe(db: Relations, records: Records, parameters: dict[str, Any], chosen: Protection, of_a: str) -> Proposal:
    """Return the proposal: parameters, their promise in sentences for a privacy officer, and the predicted errors.

    Args:
        db: The engine that holds the source's values.
        records: The records of the source.
        parameters: The proposed table ``[mechanism]`` of a specification.
        chosen: The thresholds that the parameters imply.
        of_a: What the promise speaks of: "a person" or "a record".
    """
    total = sum(records.counts)
    shares = {label: count / total for label, count in zip(records.labels, records.counts, strict=True)}
    protected = [label for label, limit in chosen.thresholds.items() if limit < 1]
    sure: list[str] = []
    for limit in sorted({chosen.thresholds[label] for label in protected}):
        alike = [label for label in protected if chosen.thresholds[label] == limit]
        names = " or ".join(map(repr, alike))
        values = names if len(alike) <= MOST_SHOWN else f"a particular one of {len(alike)} values"
        sure.append(f"more than {float(limit):.0%} sure that {'it' if sure else of_a} has {values}")
    if chosen.union is not None:
        sure.append(f"more than {float(chosen.union):.0%} sure that it has any of these {len(protected)}")
    promise = [f"Nobody can be {', or '.join(sure)}, by looking it up in the release."]
    if len(protected) < len(shares):
        free = [label for label in shares if label not in protected]
        promise.append("Not protected: " + ", ".join(f"{label!r} ({shares[label]:.0%})" for label in free[:MOST_SHOWN]))
    params = Bucketize.model_validate(parameters)
    bounds = [VerifiedBound(*one) for one in preview_release(db, records, params, proving=False).facts.list_bounds()]
    return Proposal(parameters, tuple(promise), foresee_precision(params, bounds))
