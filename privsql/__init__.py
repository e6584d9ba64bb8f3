"""Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify."""

from __future__ import annotations

from privsql.system import __version__

TYPE_CHECKING = False  # not imported from typing, which is slow: Ctrl-C is not handled until then
if TYPE_CHECKING:
    from typing import Any

    from privsql.answers.accuracy import Evaluated, Workload
    from privsql.answers.answer import Answer
    from privsql.engine.database import Options
    from privsql.errors import EngineError, GuaranteeError, InfeasibleError, PrivsqlError, UsageError
    from privsql.pages.report import Report
    from privsql.releases.opened import Release
    from privsql.source.spec import Spec, build, load
    from privsql.verbs.alternatives import algorithms, curve
    from privsql.verbs.attack import Attacked, attack, summarize
    from privsql.verbs.evaluate import evaluate
    from privsql.verbs.export import export
    from privsql.verbs.fit import FittedModel, fit
    from privsql.verbs.init import init
    from privsql.verbs.ledger import cap, ledger, withdraw
    from privsql.verbs.publish import Published, plan, publish
    from privsql.verbs.query import query
    from privsql.verbs.report import report
    from privsql.verbs.serve import serve
    from privsql.verbs.test import run_tests as test
    from privsql.verbs.verify import Verified, verify

__all__ = [
    "Answer", "Attacked", "EngineError", "Evaluated", "FittedModel", "GuaranteeError", "InfeasibleError",
    "Options", "PrivsqlError", "Published", "Release", "Report", "Spec", "UsageError", "Verified", "Workload",
    "__version__", "algorithms", "attack", "build", "cap", "curve", "evaluate", "export", "fit", "init",
    "ledger", "load", "open", "plan", "publish", "query", "report", "serve", "summarize", "test", "verify", "withdraw",
]  # fmt: skip

_HOMES = {
    "answers.accuracy": ("Evaluated", "Workload"),
    "answers.answer": ("Answer",),
    "engine.database": ("Options",),
    "errors": ("EngineError", "GuaranteeError", "InfeasibleError", "PrivsqlError", "UsageError"),
    "pages.report": ("Report",),
    "releases.opened": ("Release",),
    "source.spec": ("Spec", "build", "load"),
    "verbs.attack": ("Attacked", "attack", "summarize"),
    "verbs.alternatives": ("algorithms", "curve"),
    "verbs.evaluate": ("evaluate",),
    "verbs.export": ("export",),
    "verbs.init": ("init",),
    "verbs.ledger": ("cap", "ledger", "withdraw"),
    "verbs.fit": ("FittedModel", "fit"),
    "verbs.publish": ("Published", "plan", "publish"),
    "verbs.query": ("query",),
    "verbs.report": ("report",),
    "verbs.serve": ("serve",),
    "verbs.test": ("run_tests",),
    "verbs.verify": ("Verified", "verify"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ALIASES = {"open": "Release", "test": "run_tests"}


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command line starts without importing all modules."""
    from importlib import import_module

    real = _ALIASES.get(name, name)
    if real not in _HOME:
        raise AttributeError(f"module 'privsql' has no attribute {name!r}")
    return getattr(import_module(f"privsql.{_HOME[real]}"), real)
