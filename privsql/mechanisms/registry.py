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


def get_mechanism(kind: str) -> Mechanism[Any]:
    """The mechanism; ``UsageError`` for a kind that this version of privsql does not know."""
    mechanism: Mechanism[Any] = _load_module(kind, "mechanism").MECHANISM
    if mechanism.kind != kind or mechanism.parameters is not get_parameters(kind):
        raise TypeError(f"{PACKAGES[kind]} is registered as {kind!r} and calls itself {mechanism.kind!r}")
    return mechanism


def get_parameters(kind: str) -> type[Parameters]:
    """Return what a publisher asks of the mechanism, without the mechanism itself."""
    parameters_type: type[Parameters] = _load_module(kind, "parameters").PARAMETERS
    return parameters_type


def _load_module(kind: str, name: str) -> Any:
    if kind not in PACKAGES:
        raise UsageError(f"mechanism {kind!r} is not one of {', '.join(PACKAGES)}")
    return import_module(f"{PACKAGES[kind]}.{name}")
