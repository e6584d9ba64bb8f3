"""Records as arrays: what each inner node of the taxonomy generalizes of each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy


@dataclass(frozen=True)
class Baskets:
    """Records as item codes: those of record r are ``codes[starts[r]:starts[r+1]]``, ascending, each once.

    ``weights`` (R,): how many records are the same as r (equal records may also lie apart). Records without items are
    counted in ``empty`` and are not among the R.
    """

    starts: Ints
    codes: Ints
    weights: Ints
    empty: int = 0

    def __len__(self) -> int:
        return len(self.weights)


@dataclass(frozen=True)
class Generalized:
    """For each record its inner nodes in the order of expansion, and which of a node's children it has (a bit mask).

    The nodes of record r are at ``starts[r]..starts[r+1]``. All records of a partition have been expanded at the same
    nodes, so a record's next one is the entry after its last.
    """

    starts: Ints
    masks: Ints


def generalize(baskets: Baskets, taxonomy: Taxonomy) -> Generalized:
    """Masks of all inner nodes of all records: O(sum of record lengths * height of the taxonomy)."""
    records = np.repeat(np.arange(len(baskets), dtype=np.int64), np.diff(baskets.starts))
    nodes, bits = taxonomy.item_parent[baskets.codes], taxonomy.item_bit[baskets.codes]
    keys, masks = [], []
    while len(nodes) and nodes[0] >= 0:
        runs = np.flatnonzero((np.diff(records, prepend=-1) != 0) | (np.diff(nodes, prepend=-1) != 0))
        records, nodes, combined = records[runs], nodes[runs], np.bitwise_or.reduceat(np.int64(1) << bits, runs)
        keys.append(records * taxonomy.nodes + nodes)
        masks.append(combined)
        nodes, bits = taxonomy.parent[nodes], taxonomy.bit[nodes]
    key = np.concatenate([np.empty(0, dtype=np.int64), *keys])
    order = np.argsort(key, kind="stable")
    number = np.bincount(key // taxonomy.nodes, minlength=len(baskets))
    return Generalized(np.concatenate(([0], np.cumsum(number))), np.concatenate([key[:0], *masks])[order])
