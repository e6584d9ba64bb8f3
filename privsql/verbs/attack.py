"""``attack`` measures what adversaries learn from a release; ``infer`` what two noisy counts tell of a person."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql import dp_random, markup, plot
from privsql.answers import answer
from privsql.answers.parser import parse_query
from privsql.attacks import suite
from privsql.attacks.scene import ReleaseView
from privsql.attacks.suite import ReleaseSeries
from privsql.calls import as_exact_number, as_optional_path, as_paths, as_whole_number
from privsql.engine.progress import options_from
from privsql.engine.sqlfiles import DIALECT, render_sql, table
from privsql.errors import UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.contract import TableShape
from privsql.releases.ledger.book import path_of
from privsql.releases.ledger.composition import make_choice
from privsql.releases.ledger.publication import PublicationRequest
from privsql.releases.opened import explain_failures, open_release, open_releases
from privsql.source.keywords import as_spec, spec_from_manifest
from privsql.source.places import Target, as_target
from privsql.source.table import describe_coarsening, prepare_table
from privsql.verbs.verify import open_release_with_source, open_session, require_same_persons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal
    from fractions import Fraction
    from typing import Unpack

    from privsql.attacks.scene import Finding, Floats
    from privsql.attacks.suite import Inference
    from privsql.calls import PathLike
    from privsql.engine.progress import Options, RunKeywords
    from privsql.source.keywords import SpecLike
    from privsql.source.spec import Spec

# Attack ---------------------------------------------------------------------------------------------------------------
# ``attack``: measure what each adversary could learn from a release.


@dataclass(frozen=True)
class Attacked:
    """The findings of all adversaries; ``source``: whether beliefs were compared with the truth."""

    findings: list[Finding]
    source: bool
    seconds: float

    @property
    def measured(self) -> list[Finding]:
        """Return the findings of adversaries that had something to attack."""
        return [one for one in self.findings if one.applies and one.attacked]

    @property
    def promised(self) -> list[Finding]:
        """Return the findings of adversaries that the mechanism promises to resist."""
        return [one for one in self.findings if one.promised]

    @property
    def ok(self) -> bool:
        """Return whether something was measured, and no promise is broken."""
        return bool(self.measured) and not any(one.exceeded for one in self.findings)

    @property
    def verdict(self) -> str:
        """Return the outcome in words; "every promise holds" only if every promise was measured."""
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
        """Return a picture, of altair: certainty of every adversary's best guess, and by known records."""
        return plot.draw_picture(plot.draw_attacks, self)

    def _repr_html_(self) -> str:
        head = ("adversary", "what it knows", "attacked", "mean", "highest", "above bound", "right", "promise")
        rows = [
            (
                one.adversary,
                one.knows,
                f"{one.attacked:,} {one.unit}" if one.applies else None,
                *map(markup.format_share, (one.mean, one.highest, one.above, one.right)),
                one.outcome,
            )
            for one in self.findings
        ]
        return markup.html_page(self.verdict, markup.html_table(head, rows))

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        rows = [one.as_json() for one in self.findings]
        head = {"ok": self.ok, "source": self.source, "measured": len(self.measured), "verdict": self.verdict}
        return {**head, "adversaries": rows, "seconds": round(self.seconds, 3)}


def attack(
    release: PathLike,
    source: SpecLike | None = None,
    *,
    against: Sequence[PathLike] | PathLike = (),
    seed: int = 1,
    within: str | None = None,
    key_file: PathLike | None = None,
    **how: Unpack[RunKeywords],
) -> Attacked:
    """Attack a release with every adversary that its mechanism names; ``against``: other releases of the people.

    With its source (as of ``verify``), what is believed is compared with what is true. ``seed``: which records a
    corrupting adversary knows; ``within``: how near a guess of a number or date has to come; ``key_file``: as of
    ``verify``. Raises ``GuaranteeError`` if the file does not hold what its manifest states.
    """
    target, others = as_target(release), [Target.parse(one) for one in as_paths(against, "against")]
    clock, drawn = time.monotonic(), seed_key(as_whole_number(seed, "seed", None)).random_generator("attack")
    key_path = as_optional_path(key_file, "key_file")
    near = str(within) if within is not None else None
    with options_from(how, attack) as options:
        with open_release(target) as (db, attached), explain_failures(target):
            manifest, adversaries = attached.manifest, attached.mechanism.adversaries
            findings = adversaries.run_attacks(ReleaseView(db, manifest, drawn, within=near)) if source is None else []
        if source is not None:
            spec = spec_from_manifest(source, manifest)
            with (
                open_release_with_source(target, spec, manifest, options, key_file=key_path) as (beside, records),
                explain_failures(target),
            ):
                require_same_persons(manifest, records)
                view = ReleaseView(beside.db, manifest, drawn, beside.database, source=True, within=near)
                findings = adversaries.run_attacks(view)
        for other in others:
            findings += _combine_releases((target, other))
    return Attacked(findings, source is not None, time.monotonic() - clock)


def _combine_releases(targets: tuple[Target, Target]) -> list[Finding]:
    """Run the adversaries that combine releases of both mechanisms."""
    with open_releases(targets) as (db, releases), explain_failures(*targets):
        manifests = [one.manifest for one in releases]
        first, second = (one.mechanism.adversaries.combining for one in releases)
        combining = [adversary for adversary in first if adversary in second]
        if not combining:
            kinds = " and ".join(dict.fromkeys(manifest.mechanism for manifest in manifests))
            raise UsageError(f"--against: no adversary combines releases made by {kinds}")
        several = ReleaseSeries(db, manifests, ("r0", "r1"), [one.path.name for one in targets])
        return [finding for adversary in combining for finding in adversary(several)]


# Infer ----------------------------------------------------------------------------------------------------------------
# ``infer``: measure what two noisy counts of the source still reveal of the people in it.

DRAWS = 20_000


@dataclass(frozen=True)
class CountInference:
    """Theorem 2 beside its simulation: the query that was asked, among queries of other sizes with the same ratio."""

    rows: list[Inference]
    epsilon: float
    condition: str
    sensitive: str
    draws: int

    @property
    def queried_row(self) -> Inference:
        """Return the row of the query."""
        return next(row for row in self.rows if row.asked)

    def plot(self) -> Any:
        """Return a picture, of altair: noisy ratios over the size of the query, simulated and in theory."""
        return plot.draw_picture(plot.draw_inference, self)

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        head = {"epsilon": self.epsilon, "condition": self.condition, "sensitive_condition": self.sensitive}
        return {**head, "draws": self.draws, "sizes": [row.as_json() for row in self.rows]}


def infer(
    source: SpecLike,
    condition: str,
    sensitive: str,
    *,
    epsilon: float | Fraction | Decimal | str = 0.1,
    draws: int = DRAWS,
    seed: int | None = None,
    **how: Unpack[RunKeywords],
) -> CountInference:
    """Infer from two differentially private counts of the source, each answered with ``epsilon``.

    ``source``: its specification; ``condition``: SQL over quasi-identifiers; ``sensitive``: SQL that is asked of those
    who meet it. ``seed`` repeats a simulation, with Laplace noise in doubles; without one the noise is OpenDP's, and
    drawn afresh. Raises ``UsageError`` for conditions that are not supported or that nobody meets.
    """
    each = as_exact_number(epsilon, "--epsilon")
    if each <= 0:
        raise UsageError(f"--epsilon {epsilon} must be above 0")
    chosen = None if seed is None else as_whole_number(seed, "seed", None)
    with options_from(how, infer) as options:
        spec, number_of = as_spec(source), as_whole_number(draws, "draws")
        x, y = _count_matches(spec, condition, sensitive, options)
    scale = 1 / float(each)
    noise = _draw_noise(scale, number_of, chosen)
    return CountInference(suite.infer_counts(x, y, scale, noise), float(each), condition, sensitive, number_of)


def _draw_noise(scale: float, draws: int, seed: int | None) -> tuple[Floats, Floats]:
    """Laplace noise of both counts, (draws,) each."""
    if seed is None:
        return dp_random.laplace(scale, draws), dp_random.laplace(scale, draws)
    key = seed_key(seed)
    first, second = (key.random_generator("infer", count).laplace(0.0, scale, draws) for count in ("x", "y"))
    return first, second


def _count_matches(spec: Spec, condition: str, sensitive: str, options: Options) -> tuple[int, int]:
    """Return how many records meet a condition, and how many of them the sensitive one, too."""
    if not isinstance(spec.implementation.shape, TableShape):
        raise UsageError("the conditions of differential inference are on quasi-identifiers; there are none")
    with open_session(options) as db:
        choice = make_choice(db, PublicationRequest(spec, path_of(spec)), publishing=False)
        source = prepare_table(db, spec.source, spec.columns, choice=choice)
        source.sort_records()
        source.expose_as(spec.name)
        queries = [_count_query(spec.name, part) for part in ([condition], [condition, sensitive])]
        quasi_identifiers = source.roles.quasi_identifiers
        coarse = describe_coarsening(quasi_identifiers, spec.columns)
        for statement in (parse_query(sql, source.roles, spec.name) for sql in queries):
            answer.refuse_cuts(statement, coarse["bins"], coarse["groups"], quasi_identifiers)
        x, y = (int(db.run_select(sql)[0][0]) for sql in queries)
    if not x:
        raise UsageError(f"no record meets {condition!r}; choose a condition that some meet")
    return x, y


def _count_query(name: str, conditions: list[str]) -> str:
    """COUNT(*) of the records that meet all conditions, as text."""
    parts = []
    for text in conditions:
        try:
            parts.append(exp.paren(sqlglot.parse_one(text, dialect=DIALECT, into=exp.Condition)))
        except SqlglotError as error:
            raise UsageError(f"condition {text!r} can't be parsed: {str(error).splitlines()[0]}") from error
    counted = exp.select(exp.Count(this=exp.Star())).from_(table(name))
    return render_sql(counted.where(*parts))
