"""What a release teaches about quasi-identifiers and sensitive values: the knowledge of the learning adversaries.

For every value v of a quasi-identifier, the counts n(v, x) of its records per sensitive value are reconstructed through
the release's channel, as for an honest question. p(x | v)/f_x is the likelihood of x that one column gives; a naive
Bayes model multiplies the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.channel import Observation
from privsql.answers.interval import within
from privsql.answers.reconstruct import reconstruct

if TYPE_CHECKING:
    from privsql.answers.channel import Channel
    from privsql.attacks.block import Block, Floats, Ints
    from privsql.attacks.scene import Scene

# A value v of a quasi-identifier and x are negatively associated if n(v, x) + SURE standard errors < RARE n_v f_x.
RARE = 0.1
SURE = 2.0
PSEUDO = 5.0  # records with the overall frequencies that are added to those of every value of a quasi-identifier


@dataclass(frozen=True)
class Column:
    """``level`` (n,); ``counts``, ``errors`` (V, m): n(v, x) and its standard error; ``totals`` (V,)."""

    level: Ints
    counts: Floats
    errors: Floats
    totals: Floats


def learned(scene: Scene, *, errors: bool = True) -> list[Column]:
    """Every quasi-identifier's association with the sensitive values; ``errors``: with standard errors."""
    return [_column(scene, scene.channel, level, errors=errors) for level in scene.levels]


def _column(scene: Scene, channel: Channel, level: Ints, *, errors: bool) -> Column:
    seen = scene.seen(level)
    totals, m = seen.sum(axis=1), len(channel.records)
    share = totals / channel.records.sum()
    weight = share if scene.independent else share * (1 - share)
    asked = np.eye(m) if errors else np.zeros((m, 1))
    found = reconstruct(channel, Observation(seen, totals, totals, totals, weight.clip(0)), asked)
    caps = np.minimum(channel.records, totals[:, None])
    counts = within(found.values, totals, caps, channel.spread + channel.shares)
    return Column(level, counts, found.std_error, totals)


def ratios(columns: list[Column], shares: Floats) -> list[Floats]:
    """Logarithm of p(x | v)/f_x for every column (V, m), with ``PSEUDO`` records of the overall frequencies added."""
    floor = np.maximum(shares, 1e-12)
    return [np.log((c.counts + PSEUDO * floor) / ((c.totals[:, None] + PSEUDO) * floor)) for c in columns]


def likelihood(columns: list[Column], logs: list[Floats], block: Block) -> Floats:
    """Naive Bayes: the product of the columns' ratios for every record and slot (b, r, t), scaled per record."""
    total = np.zeros(block.shape)
    for one, ratio in zip(columns, logs, strict=True):
        total += ratio[one.level[block.rows][:, :, None], block.codes[:, None, :]]
    return np.asarray(np.exp(total - total.max(axis=2, keepdims=True)))
