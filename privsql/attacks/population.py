"""Measure what the other records of a source teach of a record, without any release.

Whoever knows the true statistics of everybody else guesses a sensitive value by them, whether the record is in the
table or not. No release can promise less than that, so reports show it beside the attackers of a release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.attacks.suite import PSEUDO
from privsql.engine.sqlfiles import column, temp_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.scene import Floats, Ints
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles

ATTACKED = 20_000  # records that are guessed at most, evenly spaced
LARGEST = 2**23  # numbers of an array; a column whose table of values has more names records, and is left out


def guess_from_others(db: Relations, roles: Roles) -> float | None:
    """Return the share of records whose sensitive value is guessed right from all other records.

    The guess is naive Bayes, as of the attacker who learns from a release (``multiply_ratios``), from the true counts
    of the source without the record itself; or the most frequent value, where that is right more often.

    Args:
        db: Holds relation ``records`` of the source (s0.., q0..).
        roles: The columns of the release.

    Returns:
        The share; None where there are fewer than two records or values.
    """
    values = _read_codes(db, roles.sa_keys)
    m, n = int(values.max(initial=-1)) + 1, len(values)
    if min(n, m) < 2:
        return None
    chosen = np.arange(0, n, -(-n // min(ATTACKED, LARGEST // m)))
    own, totals = values[chosen], np.bincount(values, minlength=m).astype(np.float64)
    scores = np.tile(np.log(totals), (len(chosen), 1))
    for key in roles.qi_keys:
        levels = _read_codes(db, [key])
        number = int(levels.max()) + 1
        if number * m <= LARGEST:
            counts = np.bincount(levels * m + values, minlength=number * m).reshape(number, m)
            scores += _log_ratios(counts[levels[chosen]], own, totals / n)
    return max(float((scores.argmax(axis=1) == own).mean()), float(totals.max() / n))


def _log_ratios(counts: Ints, own: Ints, shares: Floats) -> Floats:
    """Return log p(x | v)/f_x from the counts (r, m) of records with the level of each, without the record itself."""
    others = counts.astype(np.float64)
    others[np.arange(len(own)), own] -= 1
    expected = (others.sum(axis=1, keepdims=True) + PSEUDO) * shares
    return np.asarray(np.log((others + PSEUDO * shares) / expected))


def _read_codes(db: Relations, keys: Sequence[str]) -> Ints:
    """Return a number from 0 on for the values of columns together, for every record in order (n,)."""
    rows = db.arrow(exp.select(*map(column, keys)).from_(temp_table("records")))
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for one in rows.columns:
        encoded = one.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        codes = np.unique(codes * (int(encoded.max(initial=0)) + 1) + encoded, return_inverse=True)[1].reshape(-1)
    return codes
