"""Settings of bucket sizes by brute force."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def every_setting(n: int, sizes: Sequence[int]) -> Iterator[dict[int, int]]:
    """All ways to write n as a sum of the sizes, as {size: number of buckets}."""
    if not sizes:
        if n == 0:
            yield {}
        return
    for number in range(n // sizes[0] + 1):
        for rest in every_setting(n - number * sizes[0], sizes[1:]):
            yield ({sizes[0]: number} | rest) if number else rest


def loss_of(setting: dict[int, int]) -> int:
    """Equation 6, for {size: number of buckets}."""
    return sum(b * (size - 1) ** 2 for size, b in setting.items())
