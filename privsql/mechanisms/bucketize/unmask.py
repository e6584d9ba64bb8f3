"""Seeing through fake values: what the listed values of a release say of the real ones, on average.

In a bucket of size g a value that is not real is listed with probability kappa = sigma/(m - g), two of them together
with kappa_2 = sigma (sigma - 1)/((m - g)(m - g - 1)). With l the listed and c the real indicator of a value,

    c^ = (l - kappa)/(1 - kappa)     has E[c^ | c] = c,     and sum_x c^ = g.

Over the B buckets of one size: N^_x = sum c^_x (SPEC: E[listed] = N + (B - N) kappa, inverted), and for two values
E[sum c^_i c^_x] = G_ix + delta (B - N_i - N_x + G_ix), delta = (kappa_2 - kappa^2)/(1 - kappa)^2, as c^_i c^_x has mean
delta where neither is real and c_i c_x else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.channel import Floats, Matrix


@dataclass(frozen=True)
class Listed:
    """Buckets of one ``size``: ``buckets`` of them, ``pairs`` (m, m) how often two values are listed together, and the
    ``fakes`` in each.
    """

    size: int
    buckets: int
    pairs: Matrix
    fakes: int

    @property
    def values(self) -> int:
        """M."""
        return int(self.pairs.shape[0])

    @property
    def kappa(self) -> float:
        """Probability that a value that is not real is listed."""
        return self.fakes / (self.values - self.size) if self.fakes else 0.0

    @property
    def delta(self) -> float:
        """Mean of c^_i c^_x where neither value is real."""
        if not self.fakes:
            return 0.0
        others = self.values - self.size
        both = self.fakes * (self.fakes - 1) / (others * (others - 1)) if others > 1 else 0.0
        return (both - self.kappa**2) / (1 - self.kappa) ** 2

    @cached_property
    def records(self) -> Floats:
        """N^ (m,), within 0 and the times that a value is listed; exact where nothing is fake."""
        if not self.fakes:
            return np.asarray(self.pairs.sum(axis=1) / self.size)
        listed = self.most
        return np.clip((listed - self.kappa * self.buckets) / (1 - self.kappa), 0, listed)

    @property
    def most(self) -> Floats:
        """Records that each value has at most (m,)."""
        return np.asarray(self.pairs.diagonal()) if self.fakes else self.records

    @property
    def variance(self) -> Floats:
        """Var N^ (m,)."""
        return np.asarray((self.buckets - self.records) * self.kappa / (1 - self.kappa))

    @cached_property
    def products(self) -> Floats:
        """Sum of c^ c^T over the buckets (m, m)."""
        listed = np.diag(self.pairs)
        cross = self.pairs - self.kappa * (listed[:, None] + listed) + self.kappa**2 * self.buckets
        return np.asarray(cross / (1 - self.kappa) ** 2)

    @property
    def meetings(self) -> Floats:
        """G^ (m, m): how often two real values meet."""
        if not self.fakes:
            return np.asarray(self.pairs)
        neither = self.buckets - self.records[:, None] - self.records
        found = ((self.products - self.delta * neither) / (1 + self.delta)).clip(0)
        found[np.diag_indices(len(found))] = self.records
        return np.asarray(found)


def channel(classes: Sequence[Listed]) -> Channel:
    """The channel of c^/g: M from the real meetings, the noise's moment from c^ itself, which is noisier.

    A value that is in none of the buckets (of a sample) would be seen as itself.
    """
    moment = sum(listed.meetings / listed.size for listed in classes)
    records = sum(listed.records for listed in classes)
    rows = np.asarray(moment).sum(axis=1)
    noise = sum(listed.products / listed.size for listed in classes)
    absent = np.diag((rows == 0).astype(np.float64))
    mean = (np.asarray(moment) + absent) / np.where(rows == 0, 1.0, rows)[:, None]
    return Channel(mean, np.asarray(noise), np.maximum(np.asarray(records), 1e-6))
