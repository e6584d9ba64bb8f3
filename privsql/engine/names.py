"""Names of columns and texts of values, as people and SQL engines compare and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UPPER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def label(parts: Sequence[object]) -> str:
    """Text of a sensitive value for messages and thresholds: as SQL prints it, in brackets where it is compound."""
    shown = ["NULL" if part is None else str(part) for part in parts]
    return shown[0] if len(shown) == 1 else "[" + ", ".join(shown) + "]"


def beside(name: str, others: Iterable[str]) -> str:
    """The name of a column of privsql's own beside others, to which it gives way: an underscore for each that has it.

    >>> beside("code", ["age"]), beside("code", ["Code", "code_"])
    ('code', 'code__')
    """
    taken = {fold(other) for other in others}
    while fold(name) in taken:
        name += "_"
    return name


def fold(name: str) -> str:
    """A name for comparison: SQL engines take ASCII letters in either case for the same, and no others."""
    return name.translate(UPPER)
