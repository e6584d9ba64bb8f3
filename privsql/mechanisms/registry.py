"""The mechanisms by the name that a specification's ``kind`` gives them, each loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.mechanisms.contract import Mechanism
    from privsql.model.parameters import Parameters

PACKAGES = {
    "bucketize": "privsql.mechanisms.bucketize",
    "randomize": "privsql.mechanisms.randomize",
    "permute": "privsql.mechanisms.permute",
    "setvalued": "privsql.mechanisms.setvalued",
    "contingency": "privsql.mechanisms.contingency",
}
DEFAULT = next(iter(PACKAGES))  # where a specification names none


def of(kind: str) -> Mechanism[Any]:
    """The mechanism; ``UsageError`` for a kind that this version of privsql does not know."""
    found: Mechanism[Any] = _module(kind, "mechanism").MECHANISM
    if found.kind != kind or found.parameters is not parameters(kind):
        raise TypeError(f"{PACKAGES[kind]} is registered as {kind!r} and calls itself {found.kind!r}")
    return found


def parameters(kind: str) -> type[Parameters]:
    """What a publisher asks of the mechanism, without the mechanism itself."""
    found: type[Parameters] = _module(kind, "parameters").PARAMETERS
    return found


def _module(kind: str, name: str) -> Any:
    if kind not in PACKAGES:
        raise UsageError(f"mechanism {kind!r} is not one of {', '.join(PACKAGES)}")
    return import_module(f"{PACKAGES[kind]}.{name}")
