"""Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify."""

from privsql._version import __version__
from privsql.api import Release, evaluate, inspect, plan, publish, query, verify
from privsql.spec import build, load

open = Release  # noqa: A001  # privsql.open(path).sql("SELECT ...")

__all__ = [
    "Release",
    "__version__",
    "build",
    "evaluate",
    "inspect",
    "load",
    "open",
    "plan",
    "publish",
    "query",
    "verify",
]
