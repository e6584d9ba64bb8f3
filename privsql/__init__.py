"""Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify."""

from __future__ import annotations

from privsql._version import __version__

TYPE_CHECKING = False  # as of typing, which takes longer to import than all that stands here; Ctrl-C is not heard yet
if TYPE_CHECKING:
    from typing import Any

    from privsql.answers.accuracy import Evaluated
    from privsql.answers.answer import Answer
    from privsql.engine.progress import Options
    from privsql.errors import EngineError, GuaranteeError, InfeasibleError, PrivsqlError, UsageError
    from privsql.releases.opened import Release, inspect, query
    from privsql.releases.opened import Release as open  # noqa: A004, N813
    from privsql.source.reading import build, load
    from privsql.source.spec import Spec, schema
    from privsql.verbs.algorithms import algorithms
    from privsql.verbs.attack import Attacked, attack
    from privsql.verbs.compare import compare
    from privsql.verbs.evaluate import Workload, evaluate
    from privsql.verbs.infer import infer
    from privsql.verbs.infer import infer as differential
    from privsql.verbs.init import init
    from privsql.verbs.itemsets import itemsets, synthesize
    from privsql.verbs.ledger import cap, ledger, withdraw
    from privsql.verbs.publish import plan, publish
    from privsql.verbs.published import Published
    from privsql.verbs.report import Report, report
    from privsql.verbs.serve import serve
    from privsql.verbs.verify import Verified, verify

__all__ = [
    "Answer", "Attacked", "EngineError", "Evaluated", "GuaranteeError", "InfeasibleError", "Options", "PrivsqlError",
    "Published", "Release", "Report", "Spec", "UsageError", "Verified", "Workload", "__version__", "algorithms",
    "attack", "build", "cap", "compare", "differential", "evaluate", "infer", "init", "inspect", "itemsets", "ledger",
    "load", "open", "plan", "publish", "query", "report", "schema", "serve", "synthesize", "verify", "withdraw",
]  # fmt: skip

_HOMES = {
    "answers.accuracy": ("Evaluated",),
    "answers.answer": ("Answer",),
    "engine.progress": ("Options",),
    "errors": ("EngineError", "GuaranteeError", "InfeasibleError", "PrivsqlError", "UsageError"),
    "releases.opened": ("Release", "inspect", "query"),
    "source.reading": ("build", "load"),
    "source.spec": ("Spec", "schema"),
    "verbs.algorithms": ("algorithms",),
    "verbs.attack": ("Attacked", "attack"),
    "verbs.compare": ("compare",),
    "verbs.evaluate": ("Workload", "evaluate"),
    "verbs.infer": ("infer",),
    "verbs.init": ("init",),
    "verbs.itemsets": ("itemsets", "synthesize"),
    "verbs.ledger": ("cap", "ledger", "withdraw"),
    "verbs.publish": ("plan", "publish"),
    "verbs.published": ("Published",),
    "verbs.report": ("Report", "report"),
    "verbs.serve": ("serve",),
    "verbs.verify": ("Verified", "verify"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ALIASES = {"open": "Release", "differential": "infer"}


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: the command line and its interruption should not wait for all of it."""
    from importlib import import_module  # noqa: PLC0415

    real = _ALIASES.get(name, name)
    if real not in _HOME:
        raise AttributeError(f"module 'privsql' has no attribute {name!r}")
    return getattr(import_module(f"privsql.{_HOME[real]}"), real)
