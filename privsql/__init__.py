"""Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from privsql._version import __version__

if TYPE_CHECKING:
    from privsql.adversary import attack, differential
    from privsql.api import Release, Workload, evaluate, inspect, plan, publish, query, verify
    from privsql.api import Release as open  # noqa: A004, N813
    from privsql.comparison import compare
    from privsql.spec import build, load

__all__ = [
    "Release",
    "Workload",
    "__version__",
    "attack",
    "build",
    "compare",
    "differential",
    "evaluate",
    "inspect",
    "load",
    "open",
    "plan",
    "publish",
    "query",
    "verify",
]

_HOMES = {
    "attack": "adversary",
    "build": "spec",
    "compare": "comparison",
    "differential": "adversary",
    "load": "spec",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: the command line and its interruption should not wait for all of it."""
    if name not in __all__:
        raise AttributeError(f"module 'privsql' has no attribute {name!r}")
    home = import_module(f"privsql.{_HOMES.get(name, 'api')}")
    return getattr(home, "Release" if name == "open" else name)
