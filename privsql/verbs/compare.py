"""Several specifications for one table, published and measured with one workload: a comparison on equal terms."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql.engine.folders import temporary
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.registry import of
from privsql.noise import seed_key, system_key
from privsql.source.spec import Ledger, redirected
from privsql.verbs.evaluate import evaluate
from privsql.verbs.publish import publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.progress import Options
    from privsql.source.spec import Spec
    from privsql.verbs.evaluate import Evaluated, Workload
    from privsql.verbs.publish import Published


@dataclass(frozen=True)
class Candidate:
    """A specification with what became of it: the release's facts, its scores, and the seconds of each."""

    name: str
    spec: Spec
    published: Published
    evaluated: Evaluated
    seconds: float

    @property
    def promise(self) -> str:
        """The bound on the posterior, in words."""
        return of(self.spec.mechanism.kind).promise(self.spec.mechanism)

    def as_json(self) -> dict[str, Any]:
        """An entry of ``--json``."""
        return {
            "spec": self.name,
            "promise": self.promise,
            **{key: value for key, value in self.published.as_json().items() if key not in ("release", "checks")},
            "evaluation": self.evaluated.as_json(),
            "evaluation_seconds": round(self.seconds, 3),
        }


def compare(
    specs: Sequence[tuple[str, Spec]],
    workload: Workload | None = None,
    *,
    confidence: float = 0.95,
    seed: int | None = None,
    options: Options | None = None,
) -> list[Candidate]:
    """Publish every (name, specification) into a temporary folder and evaluate it against the source.

    The specifications differ in their mechanisms alone: source and columns must be the same, so that the same queries
    are asked of each. ``seed`` repeats the releases. Raises ``UsageError`` and what publishing raises, naming the
    specification.
    """
    _comparable(specs)
    found = []
    with temporary() as folder:
        for number, (name, spec) in enumerate(specs):
            own = redirected(spec, folder / f"{number}.duckdb", "duckdb")
            own = own.model_copy(update={"release": own.release.model_copy(update={"name": specs[0][1].name})})
            own = own.model_copy(update={"ledger": Ledger(off=True)})  # trials are no releases: no ledger knows of them
            key = system_key() if seed is None else seed_key(seed)
            try:
                published = publish(own, key=key, options=options)
            except (UsageError, InfeasibleError) as error:
                error.args = (f"{name}: {error}", *error.args[1:])
                raise
            clock = time.monotonic()
            evaluated = evaluate(own.target, own, workload, confidence=confidence, options=options)
            found.append(Candidate(name, spec, published, evaluated, time.monotonic() - clock))
    return found


def _comparable(specs: Sequence[tuple[str, Spec]]) -> None:
    if not specs:
        raise UsageError("give at least one specification")
    first = specs[0][1]
    for name, spec in specs[1:]:
        for part in ("source", "columns"):
            if getattr(spec, part) != getattr(first, part):
                raise UsageError(f"{name}: its [{part}] is not that of {specs[0][0]}; compare needs one table")
