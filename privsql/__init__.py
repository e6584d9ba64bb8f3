"""Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify."""

from privsql._version import __version__
from privsql.api import inspect, plan, publish, query, verify
from privsql.spec import build, load

__all__ = ["__version__", "build", "inspect", "load", "plan", "publish", "query", "verify"]
