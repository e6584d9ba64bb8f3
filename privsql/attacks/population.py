"""Measure what the other records of a source teach about a record, without any release.

Whoever knows the true statistics of everybody else can guess a sensitive value from them, whether or not the record is
in the table. No release can promise less, so reports show this figure beside the attackers of a release.
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

ATTACKED = 20_000  # most records whose value is guessed; they are evenly spaced
LARGEST = 2**23  # most numbers of an array; a column that would need more identifies records, and is left out


def guess_from_others(db: Relations, roles: Roles) -> float | None:
    """Return the share of records whose sensitive value can be guessed right from all other records of the source.

    The guess is naive Bayes from the true counts without the record itself. It multiplies the frequency of a value by
    p(x | v)/f_x for each quasi-identifier: the share of value x among the records with the same v, over its share among
    all. If the most frequent value is right more often, it is guessed instead.

    Args:
        db: Holds relation ``records`` of the source, with sensitive columns s0.. and quasi-identifiers q0..
        roles: The columns of the release.

    Returns:
        The share; None if there are fewer than two records or values.
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
    """Return how much one known column speaks for each sensitive value of a record, for naive Bayes (r, m).

    It is log p(x | v)/f_x for r records and m sensitive values x, where v is the record's value in the column and f_x
    the share of x among all records.

    Args:
        counts: For each record, how many records with the same v have each sensitive value (r, m).
        own: The sensitive value of each record, which is not counted itself (r,).
        shares: f, the share of the records with each sensitive value (m,).
    """
    others = counts.astype(np.float64)
    others[np.arange(len(own)), own] -= 1
    expected = (others.sum(axis=1, keepdims=True) + PSEUDO) * shares
    return np.asarray(np.log((others + PSEUDO * shares) / expected))


def _read_codes(db: Relations, keys: Sequence[str]) -> Ints:
    """Number the combinations of values of some columns from 0 on; return the number for each record in order (n,)."""
    rows = db.arrow(exp.select(*map(column, keys)).from_(temp_table("records")))
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for one in rows.columns:
        encoded = one.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        codes = np.unique(codes * (int(encoded.max(initial=0)) + 1) + encoded, return_inverse=True)[1].reshape(-1)
    return codes
