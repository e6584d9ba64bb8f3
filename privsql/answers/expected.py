"""The error that is to be expected of answers, from a release's channel alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

from privsql.answers.channel import TINY

if TYPE_CHECKING:
    from privsql.answers.channel import Channel


def relative_error(channel: Channel, share: float, count: float, strength: float = 0.6) -> float | None:
    """E|estimate - n|/n of a question that selects ``share`` of the records and finds n = ``count`` of some value.

    With mean mu_i = T f_i, prior variance P_i and posterior variance k_i P_i of the count of value i, an estimate given
    n is normal with mean n - k_i (n - mu_i) and variance (1 - k_i) k_i P_i. The mean over the values, weighted by how
    likely each is to have n; None where none is (beyond three standard deviations).
    """
    records = float(channel.records.sum())
    total, drive = share * records, (strength * share * records) ** 2
    eigenvalues, vectors = channel.default.basis(1 - share)
    prior = drive * channel.spread + total * channel.shares
    told = (((channel.mean @ vectors) * prior[:, None]) ** 2 / (1 + drive / total * eigenvalues)).sum(axis=1) / total
    left = (1 - told / prior).clip(0, 1)
    away = count - total * channel.shares
    logs = -(away**2 / prior + np.log(prior)) / 2
    if (np.abs(away) / np.sqrt(prior)).min() > 3:
        return None
    weights = np.exp(logs - logs.max())
    spread = np.sqrt(np.maximum((1 - left) * left * prior, TINY))
    short = left * away / spread
    errors = spread * (np.sqrt(2 / np.pi) * np.exp(-(short**2) / 2) + short * scipy.special.erf(short / np.sqrt(2)))
    return float((weights @ errors) / weights.sum() / count)
