"""The groups of the next release of a growing table, by any of the algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.permute.exact import exact
from privsql.mechanisms.permute.history import labels
from privsql.mechanisms.permute.nested import nested
from privsql.mechanisms.permute.reapply import MOST, reapply
from privsql.mechanisms.permute.restraint import Arrivals, Spans
from privsql.mechanisms.permute.sweep import static

if TYPE_CHECKING:
    from privsql.mechanisms.permute.axis import Ints
    from privsql.mechanisms.permute.history import History
    from privsql.mechanisms.permute.parameters import Algorithm


def release(history: History, algorithm: Algorithm) -> Ints:
    """Group of every record (n,) in the next release, or -1 for new records that are held back.

    The records lie in an order of ``arranged``. New records that are not fine as a whole are held back, whatever the
    algorithm: the difference of the whole releases would show them. So are they where ``exact`` or a reapplying
    algorithm finds no partition. The groups of the last release then remain, as they do if nothing is new. The first
    release is the static optimum; raises ``InfeasibleError`` if there is none, ``UsageError`` where an algorithm
    can't serve.
    """
    fresh = history.is_new
    if not len(history.groups):
        return _first(history)
    if not history.axis.fine(history.ranks[fresh]):
        return np.asarray(history.groups[-1])
    if algorithm == "nested":
        return _nested(history, fresh)
    starts = _segments(history, algorithm)
    return history.groups[-1] if starts is None else labels(starts, len(history.ranks))


def _first(history: History) -> Ints:
    starts = static(history.axis)
    if starts is None:
        raise InfeasibleError("all records together do not have k distinct sensitive values with max - min >= e")
    return np.asarray(labels(starts, len(history.axis.units))[history.ranks])


def _segments(history: History, algorithm: Algorithm) -> list[int] | None:
    if algorithm == "reapply-all":
        if len(history.ranks) > MOST:
            raise UsageError(
                f"algorithm 'reapply-all' compares everything with everything and is for at most {MOST} "
                f"records, not {len(history.ranks)}; 'exact' finds the same"
            )
        return reapply(history)
    try:
        return exact(history.last(1) if algorithm == "reapply-last" else history)
    except ValueError as error:
        raise UsageError(f"algorithm {algorithm!r}: {error}; use 'nested'") from error


def _nested(history: History, fresh: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ints:
    last, ranks = history.groups[-1], history.ranks
    number = int(last.max()) + 1
    low, high = np.full(number, len(history.axis.units)), np.full(number, -1)
    np.minimum.at(low, last[~fresh], ranks[~fresh])
    np.maximum.at(high, last[~fresh], ranks[~fresh])
    values, records = np.unique(ranks[fresh], return_counts=True)
    found = nested(
        history.axis, Spans(low, high, np.bincount(last[~fresh], minlength=number)), Arrivals(values, records)
    )
    group = np.empty(len(ranks), dtype=np.int64)
    group[~fresh] = found.old[last[~fresh]]
    group[fresh] = found.new[np.searchsorted(values, ranks[fresh])]
    return group
