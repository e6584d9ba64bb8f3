"""What a report is written from: facts of a release, and of its source where that was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql.markup import line, page, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from privsql.attacks.finding import Finding
    from privsql.markup import Html
    from privsql.model.checks import Promised, Result
    from privsql.model.manifest import Manifest
    from privsql.model.told import Structure, Words


@dataclass(frozen=True)
class Ways:
    """How the release is asked: lines to copy, each of which runs where a ``form`` (file, folder, schema) called
    ``file`` lies.

    ``shell``: by the command line; ``python``; ``sql``: without privsql, in DuckDB itself.
    """

    form: str
    file: str
    shell: str
    python: str
    sql: str

    def as_json(self) -> dict[str, str]:
        """form, file, shell, python, sql."""
        return dict(vars(self))


@dataclass(frozen=True)
class Foreseen:
    """Answers of one size, as the release alone tells: how many, and of typical ones the expected error of privsql's
    estimate and half the length of its interval, and half the distance of the bounds of the literature's formula.
    """

    low: float
    high: float | None
    answers: int
    error: float | None
    half_width: float | None
    bounds: float | None
    estimate: float

    def as_json(self) -> dict[str, Any]:
        """The same."""
        return dict(vars(self))


@dataclass(frozen=True)
class Compared:
    """Answers beside the true ones: ``scores`` by estimator, as ``evaluate`` sums them up, and some of them singly.

    ``pairs``: (true, estimate, low, high) of privsql's own estimates.
    """

    scores: Mapping[str, dict[str, Any]]
    pairs: tuple[tuple[float, float, float | None, float | None], ...]
    confidence: float

    def as_json(self) -> dict[str, Any]:
        """The scores, the confidence, and the pairs."""
        names = ("true", "estimate", "low", "high")
        pairs = [dict(zip(names, one, strict=True)) for one in self.pairs]
        return {**self.scores, "confidence": self.confidence, "pairs": pairs}


@dataclass(frozen=True)
class Learnt:
    """What is known of a release whose checks hold.

    ``lines``: what it says of itself, name by name; ``promise``: the bound in a few words; ``compared``: None without
    the source. ``certain``: whether the ends that the literature's formula gives hold the true answer for sure.
    """

    promise: str
    words: Words
    bounds: tuple[Promised, ...]
    structure: tuple[Structure, ...]
    findings: tuple[Finding, ...]
    verdict: str
    advice: tuple[str, ...]
    lines: tuple[tuple[str, object], ...]
    foreseen: tuple[Foreseen, ...]
    certain: bool
    ways: Ways
    compared: Compared | None = None

    def _parts(self) -> list[Html]:
        """What a notebook shows of it: bounds, adversaries, answers by size."""
        bounds = [(one.value, one.bound, one.found) for one in self.bounds]
        findings = [(one.adversary, one.kept, _percent(one.mean), _percent(one.highest)) for one in self.findings]
        sizes = [(f"from {one.low:,}", one.answers, one.error, one.half_width) for one in self.foreseen]
        tables = (
            (("bound of", "bound", "reached"), bounds),
            (("adversary", "promise", "sure on average", "at most"), findings),
            (("size of the answer", "answers", "expected error", "half of the interval"), sizes),
        )
        said = [line(f"promised: {self.promise}"), line(self.verdict)]
        return said + [table(head, rows, len(rows)) for head, rows in tables if rows]

    def as_json(self) -> dict[str, Any]:
        """By name."""
        return {
            "promise": self.promise,
            **self.words.as_json(),
            "bounds": [one.as_json() for one in self.bounds],
            "structure": [one.as_json() for one in self.structure],
            "adversaries": [one.as_json() for one in self.findings],
            "verdict": self.verdict,
            "expected": [one.as_json() for one in self.foreseen],
            "certain_bounds": self.certain,
            "ways": self.ways.as_json(),
            **({"measured": self.compared.as_json()} if self.compared else {}),
        }


@dataclass(frozen=True)
class Report:
    """All that a page says. ``internal``: made with the source, so that it shows what no release does.

    ``digests``: SHA-256 of the release's files; ``learnt``: None where a check does not hold: nothing is then said of
    what the release promises, and nothing of its tables is shown.
    """

    manifest: Manifest
    checks: tuple[Result, ...]
    notes: tuple[str, ...]
    digests: Mapping[str, str]
    internal: bool
    learnt: Learnt | None

    @property
    def verified(self) -> bool:
        """Whether every check holds."""
        return all(one.ok for one in self.checks)

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The adversaries that the release promises to resist and does not."""
        return tuple(one for one in self.learnt.findings if one.exceeded) if self.learnt else ()

    @property
    def ok(self) -> bool:
        """Whether every check holds and every promise that was measured is kept."""
        return self.verified and not self.broken

    def _repr_html_(self) -> str:
        """What a notebook shows: what the page says, in short."""
        failed = [one for one in self.checks if not one.ok]
        kind = "INTERNAL, shows true counts" if self.internal else "report"
        outcome = f"NOT verified, {len(failed)} of {len(self.checks)} checks do not hold" if failed else "verified"
        rows = [(one.name, "; ".join(one.offending)) for one in failed]
        parts = [table(("check that does not hold", ""), rows, len(rows))] if rows else []
        parts += self.learnt._parts() if self.learnt is not None else []  # noqa: SLF001 (of this module)
        notes = [line(f"note: {one}") for one in self.notes]
        return page(f"{kind}: {self.manifest.name}, {outcome}", *parts, *notes)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        return {
            "kind": "internal" if self.internal else "release",
            "name": self.manifest.name,
            "mechanism": self.manifest.mechanism,
            "algorithm": self.manifest.algorithm,
            "ok": self.ok,
            "verified": self.verified,
            "checks": [one.as_json() for one in self.checks],
            "notes": list(self.notes),
            "digests": dict(self.digests),
            "parameters": self.manifest.parameters,
            "versions": {"privsql": self.manifest.privsql, "duckdb": self.manifest.duckdb},
            **(self.learnt.as_json() if self.learnt else {}),
        }


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"
