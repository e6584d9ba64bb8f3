"""Item sets with weights, kept as bits, and how to read them from a source."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsql.engine.sqlfiles import all_rows, fill, temp_table
from privsql.model.arrays import round_copies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.dp.noisy_tables import Ints
    from privsql.model.records import Records

# Holdings -------------------------------------------------------------------------------------------------------------
# Item sets as bits, which tell quickly which sets hold given items, and which combinations of items weigh most.

Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class WeightedSets:
    """N item sets with weights, such as the different item sets of a source and their numbers of records.

    Attributes:
        codes: The codes of all sets, one set after the other: set s has ``codes[starts[s]:starts[s+1]]``.
        starts: Where each set begins, and the end of the last one (N + 1,).
        weights: The weight of each set (N,).
        items: The number of items in the universe.
    """

    starts: Ints
    codes: Ints
    weights: Reals
    items: int

    @staticmethod
    def from_lists(lists: pa.ChunkedArray, weights: pa.ChunkedArray, items: pa.Array) -> WeightedSets:
        """Make weighted sets from lists of items.

        Args:
            lists: The items of each set.
            weights: The weight of each set.
            items: All items of the universe; the code of an item is its position.

        Raises:
            ValueError: A list has an unknown item, or an item twice.
        """
        values = lists.combine_chunks()
        codes = pc.index_in(values.flatten(), value_set=items)
        if codes.null_count or values.null_count or weights.null_count:
            raise ValueError("a set holds an item that is not in the universe or was not measured, or has no weight")
        starts = np.concatenate(([0], np.cumsum(pc.list_value_length(values).to_numpy().astype(np.int64))))
        numbers = weights.to_numpy().astype(np.float64)
        result = WeightedSets(starts, codes.to_numpy().astype(np.int64), numbers, len(items))
        if len(np.unique(result.owners * result.items + result.codes)) < len(codes):
            raise ValueError("a set holds an item twice")
        return result

    @property
    def longest_set(self) -> int:
        """Return the number of items of the largest set."""
        return int(np.diff(self.starts).max(initial=0))

    def list_sets(self) -> list[tuple[int, ...]]:
        """Return the codes of each set, ascending within the set."""
        codes = self.codes.tolist()
        return [tuple(sorted(codes[start:end])) for start, end in pairwise(self.starts.tolist())]

    @cached_property
    def owners(self) -> Ints:
        """Return for each entry of ``codes`` the index of the set to which it belongs."""
        return np.repeat(np.arange(len(self.weights), dtype=np.int64), np.diff(self.starts))

    @cached_property
    def item_weights(self) -> Reals:
        """Return for each item the total weight of the sets that hold it (items,)."""
        return self._sum_by_item(self.codes >= 0)

    @cached_property
    def _sets_by_item(self) -> NDArray[np.uint8]:
        """Return for each item which of the N sets hold it, as bits packed into bytes (items, N/8)."""
        result = np.zeros((self.items, (len(self.weights) + 7) // 8), dtype=np.uint8)
        owner = self.owners
        np.bitwise_or.at(result, (self.codes, owner >> 3), (128 >> (owner & 7)).astype(np.uint8))
        return result

    def sets_with_all(self, codes: Sequence[int]) -> Flags:
        """Return for each of the N sets whether it holds all of the given items (N,)."""
        packed = np.bitwise_and.reduce(self._sets_by_item[list(codes)], axis=0)
        return np.unpackbits(packed, count=len(self.weights)).astype(bool)

    def count_patterns(self, chosen: Ints) -> Ints:
        """Return the total weight of the sets with each pattern of k items: which of the items a set holds.

        The result has k axes of length 2; index 1 on an axis means that a set holds that item.

        Args:
            chosen: The codes of the k items.
        """
        place = np.full(self.items, -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        item_places = place[self.codes]
        inside = item_places >= 0
        bits = np.left_shift(np.int64(1), len(chosen) - 1 - item_places[inside])
        pattern = np.bincount(self.owners[inside], weights=bits, minlength=len(self.weights)).astype(np.int64)
        return np.bincount(pattern, self.weights, 1 << len(chosen)).astype(np.int64).reshape((2,) * len(chosen))

    def top_sets(self, number: int) -> list[tuple[tuple[int, ...], float]]:
        """Return the combinations of items that are contained in sets of the largest total weight.

        The search is best-first: a combination is extended by later items. With positive weights no extension weighs
        more than what it extends, so the result is exact. Negative weights, from noise, may put a combination somewhat
        later.

        Args:
            number: How many combinations are returned.

        Returns:
            The codes of each combination with its weight, heaviest first; ties by size and then by codes.
        """
        alone = enumerate(self.item_weights.tolist())
        queue: list[tuple[float, int, tuple[int, ...]]] = [
            (-weight, 1, (code,)) for code, weight in alone if weight > 0
        ]
        heapq.heapify(queue)
        result: list[tuple[tuple[int, ...], float]] = []
        while queue and len(result) < number:
            weight, size, chosen = heapq.heappop(queue)
            result.append((chosen, -weight))
            inside = self.sets_with_all(chosen)[self.owners] & (self.codes > chosen[-1])
            weights = self._sum_by_item(inside)
            for code in np.flatnonzero(weights > 0).tolist():
                heapq.heappush(queue, (-float(weights[code]), size + 1, (*chosen, code)))
        return result

    def _sum_by_item(self, inside: Flags) -> Reals:
        """Return for each item the total weight of the sets that hold it, after some items of some sets are ignored.

        Args:
            inside: For each entry of ``codes`` (an item of a set), whether it counts.

        Returns:
            The weights (items,).
        """
        weights = self.weights[self.owners[inside]]
        return np.bincount(self.codes[inside], weights, self.items).astype(np.float64)


def read_sets(source: Records) -> WeightedSets:
    """Return the different item sets of a source, weighted by their numbers of records."""
    source.sort_records()
    contents = source.db.arrow(all_rows(temp_table("contents")))
    weights = source.db.arrow(fill("setvalued/weights", {"baskets": temp_table("baskets")}))["records"].to_numpy()
    starts = np.searchsorted(contents["basket"].to_numpy(), np.arange(len(weights) + 1))
    codes = contents["code"].to_numpy().astype(np.int64)
    return WeightedSets(starts, codes, weights.astype(np.float64), len(source.labels))


def repeat_sets(lists: pa.ChunkedArray, weights: pa.ChunkedArray) -> pa.Table:
    """Return each set as often as its weight says, as rows (record, item) in order; empty sets have no row."""
    copies = np.repeat(np.arange(len(lists)), round_copies(weights.to_numpy()))
    repeated = lists.combine_chunks().take(pa.array(copies))
    return pa.table({"record": repeated.value_parent_indices().cast(pa.int64()), "item": repeated.flatten()})
