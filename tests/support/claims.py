"""What an answer calls exact or certain, beside the rows of an engine that holds the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.answers.answer import Answer, Figure

CLOSE = 1e-6
Key = tuple[Any, ...]


def wrong_claims(
    answer: Answer, one: Figure, true: Mapping[Key, Sequence[Any]], width: int, *, counts: bool
) -> Iterator[str]:
    """What a figure says that can't be; ``true``: by group, the first ``width`` columns, values one of which is true.

    ``counts``: of a group that is not there it is 0.
    """
    for row, may_be_empty in zip(answer.rows, answer.may_be_empty, strict=True):
        (estimate, error, low, high), key = one.read_row(row), row[:width]
        exists, truths = key in true, true.get(key, [0 if counts else None])
        text = f"{one.name} of {key}: {estimate} +- {error} in [{low}, {high}], {one.rests_on}, truth {truths}"
        held = any(is_within(truth, low, high) for truth in truths)
        if not (is_within(estimate, low, high) or None in (estimate, low, high) or _is_no_number(estimate)):
            yield f"outside of its bounds: {text}"
        same = any(truth == estimate or str(truth) == str(estimate) for truth in truths)
        same = same or (estimate is None and any(truth != truth for truth in truths))  # NaN: 0/0 is the share of nobody
        if one.rests_on == "exact" and not (exists and (same or held)):
            yield f"not exact: {text}"
        if one.rests_on == "certain" and not (estimate is None or None in (low, high) or held):
            yield f"not certain: {text}"
        if one.rests_on in ("exact", "certain") and not (exists or may_be_empty):
            yield f"there is no such group: {text}"
        near = same or any(is_within(truth, estimate, estimate) for truth in truths)
        if error == 0 and estimate is not None and not near:
            yield f"there is an error: {text}"


def _is_no_number(value: Any) -> bool:
    return isinstance(value, str | bool) or hasattr(value, "year")


def is_within(value: Any, low: Any, high: Any) -> bool:
    """Whether bounds hold a value, a number but for rounding."""
    if None in (value, low, high):
        return False
    if any(map(_is_no_number, (value, low, high))):
        return bool(low <= value <= high)
    return float(low) - CLOSE <= float(value) <= float(high) + CLOSE
