"""How much of what takes long is done: all of it where slow tests are wanted, a part of it otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_WANTED = {"slow": True}


def configure(config: pytest.Config) -> None:
    """From the marks that a run selects."""
    _WANTED["slow"] = "not slow" not in config.option.markexpr or "or not slow" in config.option.markexpr


def share(number: int) -> int:
    """How many examples hypothesis makes of a property worth ``number`` of them: a fifteenth or more."""
    return number if _WANTED["slow"] else max(number // 15, min(number, 12))
