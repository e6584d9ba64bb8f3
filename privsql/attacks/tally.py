"""From beliefs about records, a block at a time, to the figures of a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from privsql.attacks.block import Block, Floats, Ints

ROUNDING = 1e-9  # relative: beliefs in doubles that are at a bound do not exceed it


@dataclass(frozen=True)
class Truth:
    """How many of the source's records with the same quasi-identifiers have each value.

    ``keys`` (n,): the number of a record's quasi-identifiers; ``cells``: sorted key * ``values`` + code of the
    combinations that occur, ``records`` how often, ``totals`` (values,) over all combinations. A released record can be
    matched with the source through its quasi-identifiers alone: where several records share them, it may be each of
    these, with the probability that the publisher's random choice put that one here; every figure of the truth is the
    expectation over that. A fake value that another of them has may be taken for this one's, which shifts the figures a
    little.
    """

    keys: Ints
    cells: Ints
    records: Ints
    totals: Ints

    @property
    def values(self) -> int:
        """Number of sensitive values, m."""
        return len(self.totals)

    def of(self, block: Block) -> Floats:
        """Probability that a slot's value is the record's true one (b, r, t); a value's slots share it."""
        wanted = self.keys[block.rows][:, :, None] * self.values + block.codes[:, None, :]
        at = np.searchsorted(self.cells, wanted).clip(max=max(0, len(self.cells) - 1))
        found = np.where(self.cells[at] == wanted, self.records[at], 0) if len(self.cells) else np.zeros(wanted.shape)
        shared = found * block.prior / np.maximum(self.totals, 1)[block.codes][:, None, :]
        total = shared.sum(axis=2, keepdims=True)
        return np.asarray(np.divide(shared, total, out=np.zeros_like(shared), where=total > 0))


class Tally:
    """Sums over records of what was believed of them."""

    def __init__(self, bounds: Floats, truth: Truth | None = None) -> None:
        """``bounds`` (m,): the promised bound of every value, 1 where there is none."""
        self._bounds, self._truth = bounds * (1 + ROUNDING), truth
        self.records, self.matched = 0, 0.0
        self._sums = dict.fromkeys(("mean", "above", "twice", "right", "true_mean", "true_above"), 0.0)
        self._highest = 0.0

    def add(self, block: Block, slots: Floats) -> None:
        """Count a block with its posterior (b, r, t)."""
        believed = block.of_values(slots)
        bounds = self._bounds[block.codes][:, None, :]
        over = believed > bounds
        best = believed.max(axis=2)
        self.records += best.size
        self._sums["mean"] += float(best.sum())
        self._sums["above"] += float(over.any(axis=2).sum())
        self._sums["twice"] += float((believed > 2 * bounds).any(axis=2).sum())
        self._highest = max(self._highest, float(best.max(initial=0)))
        if self._truth is not None:
            self._compare(block, believed, over, self._truth.of(block))

    def _compare(self, block: Block, believed: Floats, over: Any, true: Floats) -> None:
        first = believed.argmax(axis=2)
        guess = np.take_along_axis(np.broadcast_to(block.codes[:, None, :], believed.shape), first[:, :, None], axis=2)
        self.matched += float(true.sum())
        self._sums["right"] += float(true[block.codes[:, None, :] == guess].sum())
        self._sums["true_mean"] += float((true * believed).sum())
        self._sums["true_above"] += float(true[over].sum())

    def figures(self) -> dict[str, Any]:
        """The fields of a finding."""
        found: dict[str, Any] = {"attacked": self.records, "highest": self._highest}
        found |= {name: self._sums[name] / max(1, self.records) for name in ("mean", "above", "twice")}
        if self._truth is not None:
            found |= {name: self._sums[name] / max(1.0, self.matched) for name in ("right", "true_mean", "true_above")}
        return found
