"""The optimum by Definition 5 against all m earlier releases, as one sweep in about O(m n)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.mechanisms.permute.sweep import traced
from privsql.mechanisms.permute.windows import windows

if TYPE_CHECKING:
    from privsql.mechanisms.permute.history import History

BLOCK = 64


class Least:
    """Minimum over any range of numbers that are appended one by one; prefixes cost one step, others a few slices."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.prefixes: list[int] = []
        self.blocks: list[int] = []
        self.large: list[int] = []

    def append(self, value: int) -> None:
        """Add a number at the end."""
        self.values.append(value)
        self.prefixes.append(min(value, self.prefixes[-1]) if self.prefixes else value)
        if not len(self.values) % BLOCK:
            self.blocks.append(min(self.values[-BLOCK:]))
            if not len(self.blocks) % BLOCK:
                self.large.append(min(self.blocks[-BLOCK:]))

    def over(self, first: int, last: int) -> int:
        """The least of numbers ``first..last``; the range is not empty."""
        if first == 0:
            return self.prefixes[last]
        a, b = -(-first // BLOCK), (last + 1) // BLOCK
        if a >= b:
            return min(self.values[first : last + 1])
        parts = self.values[first : a * BLOCK] + self.values[b * BLOCK : last + 1]
        c, d = -(-a // BLOCK), b // BLOCK
        if c >= d:
            return min(parts + self.blocks[a:b])
        return min(parts + self.blocks[a : c * BLOCK] + self.large[c:d] + self.blocks[d * BLOCK : b])


def exact(history: History) -> list[int] | None:
    """Left ends of the segments of least sum (max - min), then most groups, without a breach; None if there is none.

    The same as ``reapply`` against all releases: every segment is fine, and with every group of every earlier release
    both differences and the intersection are empty or fine. The optimum is that of the given order of equal values.
    Raises ``ValueError`` if groups of an earlier release are no intervals of its records.
    """
    allowed = windows(history)
    units = history.axis.units
    n = len(history.ranks)
    scale, zero = n + 1, units[0] if units else 0
    infinite = (units[-1] - zero + 2) * scale if units else 0
    hopeless = 2 * infinite * scale
    # A candidate is (cost before j - u_j) and j in one integer, so that the minimum brings its argument.
    values = [(units[rank] - zero) * scale for rank in history.ranks.tolist()]
    levels = [Least() for _ in range(len(history.groups) + 1)]
    pieces = list(zip(allowed.levels.tolist(), allowed.first.tolist(), allowed.last.tolist(), strict=True))
    at = allowed.at.tolist()
    cost, back = 0, []
    for i, (value, level) in enumerate(zip(values, allowed.level.tolist(), strict=True)):
        levels[level].append((cost - value) * scale + i if cost < infinite else hopeless)
        found = [levels[which].over(first, last) for which, first, last in pieces[at[i] : at[i + 1]]]
        least, left = divmod(min(found, default=hopeless), scale)
        cost = min(least + value - 1, infinite)
        back.append(left if cost < infinite else -1)
    return traced(back)
