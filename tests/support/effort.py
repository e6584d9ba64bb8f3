"""How much of what takes long is done: all of it in ``tests.soak``, a part of it otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_PART = {"of": 1, "least": 8}  # one example of so many is tried, and so many at least


def configure(config: pytest.Config) -> None:
    """From the marks that a run selects."""
    wanted = config.option.markexpr
    _PART["of"] = 1 if "soak(" in wanted else 30 if "not slow" in wanted else 5
    _PART["least"] = 5 if "not slow" in wanted else 8


def share(number: int) -> int:
    """How many examples hypothesis makes of a property worth ``number`` of them: all, a fifth, or a thirtieth."""
    return max(number // _PART["of"], min(number, _PART["least"]))
