"""What a session was told before, so that it need not be asked again: a few results, the oldest ones forgotten."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    Told = TypeVar("Told", bound=Sized)

MOST = 100_000  # rows that a session keeps in all; a result of more than a tenth of them is not kept


class Memory:
    """Results by what was asked; nobody may change them."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._found: OrderedDict[tuple[str, str], Sized] = OrderedDict()

    def get(self, key: tuple[str, str], ask: Callable[[], Told]) -> Told:
        """What ``ask`` gives for a kind of question and its text."""
        if key in self._found:
            self._found.move_to_end(key)
            return cast("Told", self._found[key])
        found = ask()
        if _size(found) <= self._most // 10:
            self._found[key] = found
            self._held += _size(found)
        while self._held > self._most:
            _, oldest = self._found.popitem(last=False)
            self._held -= _size(oldest)
        return found


def _size(found: Sized) -> int:
    """Its rows, and a few for itself."""
    return len(found) + 10
