"""``attack`` measures what adversaries learn from a release; ``infer`` what two noisy counts tell of a person."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql import dp_random, keyed_random, markup, plot
from privsql.answers import answer
from privsql.answers.parser import parse_query
from privsql.attacks import suite
from privsql.attacks.scene import ReleaseView
from privsql.attacks.suite import Several
from privsql.calls import as_path, as_paths, number, whole
from privsql.engine.progress import running
from privsql.engine.sqlfiles import DIALECT, render, table
from privsql.errors import UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.contract import Table
from privsql.mechanisms.registry import of
from privsql.releases.ledger.book import path_of
from privsql.releases.ledger.keeping import chosen_for
from privsql.releases.ledger.publication import Wish
from privsql.releases.opened import explained, opened, together
from privsql.source.keywords import spec_from_manifest, specified
from privsql.source.table import coarser, prepare
from privsql.verbs.session import beside, same_persons, workroom

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal
    from fractions import Fraction
    from pathlib import Path
    from typing import Unpack

    from privsql.attacks.scene import Finding, Floats
    from privsql.attacks.suite import Inference
    from privsql.calls import PathLike
    from privsql.engine.progress import Options, Running
    from privsql.source.keywords import Given
    from privsql.source.spec import Spec

# Attack ---------------------------------------------------------------------------------------------------------------
# ``attack``: what each adversary could learn from a release, measured.


@dataclass(frozen=True)
class Attacked:
    """The findings of all adversaries; ``source``: whether beliefs were compared with the truth."""

    findings: list[Finding]
    source: bool
    seconds: float

    @property
    def measured(self) -> list[Finding]:
        """The findings of those who had something to attack."""
        return [one for one in self.findings if one.applies and one.attacked]

    @property
    def promised(self) -> list[Finding]:
        """The findings of those whom the mechanism promises to resist."""
        return [one for one in self.findings if one.promised]

    @property
    def ok(self) -> bool:
        """Whether something was measured, and no promise is broken."""
        return bool(self.measured) and not any(one.exceeded for one in self.findings)

    @property
    def verdict(self) -> str:
        """The outcome in words. That every promise holds is only said where every promise was measured."""
        if not self.measured:
            return "NOTHING WAS MEASURED: no adversary of this mechanism had anything to attack"
        broken = [one for one in self.promised if one.exceeded]
        measured = [one for one in self.promised if one in self.measured]
        counts = f"{len(self.promised)} promised, {len(measured)} measured, {len(measured) - len(broken)} kept"
        if broken:
            return f"A PROMISE IS BROKEN ({counts})"
        if len(measured) < len(self.promised) or not measured:
            return f"no promise is broken, but not every one was measured ({counts})"
        return f"every promise holds ({counts})"

    @property
    def exit_code(self) -> int:
        """0; 1 for a broken promise; 3 where nothing was measured."""
        return 0 if self.ok else 1 if self.measured else 3

    def plot(self) -> Any:
        """A picture, of altair: certainty of every adversary's best guess, and by known records."""
        return plot.shown(plot.attacks, self)

    def _repr_html_(self) -> str:
        """What a notebook shows: one row per adversary."""
        head = ("adversary", "what it knows", "attacked", "mean", "highest", "above bound", "right", "promise")
        rows = (
            (
                one.adversary,
                one.knows,
                f"{one.attacked:,} {one.unit}" if one.applies else None,
                *map(_percent, (one.mean, one.highest, one.above, one.right)),
                one.kept,
            )
            for one in self.findings
        )
        return markup.page(self.verdict, markup.table(head, rows, len(self.findings)))

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        rows = [one.as_json() for one in self.findings]
        head = {"ok": self.ok, "source": self.source, "measured": len(self.measured), "verdict": self.verdict}
        return {**head, "adversaries": rows, "seconds": round(self.seconds, 3)}


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def attack(
    release: PathLike,
    source: Given | None = None,
    *,
    against: Sequence[PathLike] | PathLike = (),
    seed: int = 1,
    within: str | None = None,
    key_file: PathLike | None = None,
    **how: Unpack[Running],
) -> Attacked:
    """Attack a release with every adversary that its mechanism names; ``against``: other releases of the people.

    With its source (as of ``verify``), what is believed is compared with what is true. ``seed``: which records a
    corrupting adversary knows; ``within``: how near a guess of a number or date has to come; ``key_file``: as of
    ``verify``. Raises
    ``GuaranteeError`` if the file does not hold what a release holds.
    """
    path, others = as_path(release, "release"), as_paths(against, "against")
    clock, drawn = time.monotonic(), keyed_random.seed_key(whole(seed, "seed", None)).stream("attack")
    own = as_path(key_file, "key_file") if key_file is not None else None
    near = str(within) if within is not None else None
    with running(how, attack) as options:
        with opened(path) as (db, manifest), explained(path):
            suite = of(manifest.mechanism).adversaries
            findings = suite.run(ReleaseView(db, manifest, drawn, within=near)) if source is None else []
        if source is not None:
            spec = spec_from_manifest(source, manifest)
            with beside(path, spec, manifest, options, key_file=own) as (room, records), explained(path):
                same_persons(manifest, records)
                findings = suite.run(ReleaseView(room, manifest, drawn, "release", source=True, within=near))
        for other in others:
            findings += _together((path, other))
    return Attacked(findings, source is not None, time.monotonic() - clock)


def _together(paths: tuple[Path, Path]) -> list[Finding]:
    """What two releases tell, by the adversaries that combine releases of both mechanisms."""
    with together(paths) as (db, manifests), explained(*paths):
        first, second = (of(manifest.mechanism).adversaries.combining for manifest in manifests)
        combining = [adversary for adversary in first if adversary in second]
        if not combining:
            kinds = " and ".join(dict.fromkeys(manifest.mechanism for manifest in manifests))
            raise UsageError(f"--against: no adversary combines releases made by {kinds}")
        several = Several(db, manifests, ("r0", "r1"), [one.name for one in paths])
        return [found for adversary in combining for found in adversary(several)]


# Infer ----------------------------------------------------------------------------------------------------------------
# ``infer``: what two noisy counts of the source still tell of the people in it.

DRAWS = 20_000


@dataclass(frozen=True)
class Inferred:
    """Theorem 2 beside its simulation: the query that was asked, among queries of other sizes with the same ratio."""

    rows: list[Inference]
    epsilon: float
    condition: str
    sensitive: str
    draws: int

    @property
    def asked(self) -> Inference:
        """The row of the query."""
        return next(row for row in self.rows if row.asked)

    def plot(self) -> Any:
        """A picture, of altair: noisy ratios over the size of the query, simulated and in theory."""
        return plot.shown(plot.inference, self)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        head = {"epsilon": self.epsilon, "condition": self.condition, "sensitive_condition": self.sensitive}
        return {**head, "draws": self.draws, "sizes": [row.as_json() for row in self.rows]}


def infer(
    source: Given,
    condition: str,
    sensitive: str,
    *,
    epsilon: float | Fraction | Decimal | str = 0.1,
    draws: int = DRAWS,
    seed: int | None = None,
    **how: Unpack[Running],
) -> Inferred:
    """What an adversary infers from two differentially private counts of the source, each answered with ``epsilon``.

    ``source``: its specification; ``condition``: SQL over quasi-identifiers; ``sensitive``: SQL that is asked of those
    who meet it. ``seed`` repeats a simulation, with Laplace noise in doubles; without one the noise is OpenDP's, and
    drawn afresh. Raises ``UsageError`` for conditions that are not supported or that nobody meets.
    """
    each = number(epsilon, "--epsilon")
    if each <= 0:
        raise UsageError(f"--epsilon {epsilon} must be above 0")
    chosen = None if seed is None else whole(seed, "seed", None)
    with running(how, infer) as options:
        spec, number_of = specified(source), whole(draws, "draws")
        x, y = _counted(spec, condition, sensitive, options)
    scale = 1 / float(each)
    noise = _noise(scale, number_of, chosen)
    return Inferred(suite.infer_counts(x, y, scale, noise), float(each), condition, sensitive, number_of)


def _noise(scale: float, draws: int, seed: int | None) -> tuple[Floats, Floats]:
    """Laplace noise of both counts, (draws,) each."""
    if seed is None:
        return dp_random.laplace(scale, draws), dp_random.laplace(scale, draws)
    key = seed_key(seed)
    first, second = (key.stream("infer", count).laplace(0.0, scale, draws) for count in ("x", "y"))
    return first, second


def _counted(spec: Spec, condition: str, sensitive: str, options: Options) -> tuple[int, int]:
    """How many records meet a condition, and how many of them the sensitive one, too."""
    if not isinstance(of(spec.mechanism.kind).shape, Table):
        raise UsageError("the conditions of differential inference are on quasi-identifiers; there are none")
    with workroom(options) as db:
        choice = chosen_for(db, Wish(spec, path_of(spec)), publishing=False)
        source = prepare(db, spec.source, spec.columns, choice=choice)
        source.sort()
        source.named(spec.name)
        asked = [_count(spec.name, part) for part in ([condition], [condition, sensitive])]
        own = source.roles.quasi_identifiers
        coarse = coarser(own, spec.columns)
        for sql in asked:
            answer.refuse_cuts(parse_query(sql, source.roles, spec.name), coarse["bins"], coarse["groups"], own)
        x, y = (int(db.ask(sql)[0][0]) for sql in asked)
    if not x:
        raise UsageError(f"no record meets {condition!r}; choose a condition that some meet")
    return x, y


def _count(name: str, conditions: list[str]) -> str:
    """COUNT(*) of the records that meet all conditions, as text."""
    parts = []
    for text in conditions:
        try:
            parts.append(exp.paren(sqlglot.parse_one(text, dialect=DIALECT, into=exp.Condition)))
        except SqlglotError as error:
            raise UsageError(f"condition {text!r} can't be parsed: {str(error).splitlines()[0]}") from error
    counted = exp.select(exp.Count(this=exp.Star())).from_(table(name))
    return render(counted.where(*parts))
