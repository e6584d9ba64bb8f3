"""What a person sees: tables for results. Nothing is computed here."""

from __future__ import annotations

import csv
from typing import IO, TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from privsql.cli import plot
from privsql.errors import EngineError, UsageError
from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from privsql.answers.answer import Answer
    from privsql.attacks.finding import Finding
    from privsql.model.manifest import Manifest
    from privsql.releases.ledger import Entry
    from privsql.verbs.attack import Attacked, Differential
    from privsql.verbs.compare import Candidate
    from privsql.verbs.evaluate import Evaluated
    from privsql.verbs.publish import Published
    from privsql.verbs.verify import Verified


WIDE = 140  # columns of a table that is written to a file
INFERRED = """\
Y/X of two counts with Laplace noise of scale {scale:g} (epsilon {epsilon:g} each, OpenDP, {draws:,} draws)
theory: mean (y/x)(1 + 2b^2/x^2), variance (2b^2/x^2)(1 + (y/x)^2), valid for x far above b
disclosed: nine in ten noisy answers come within 0.05 of y/x; differential privacy hides whether a person is in the
table, not what holds of people like that person"""
LEGEND = """\
mean, highest: probability of the adversary's best guess, over what is attacked; above bound: share for which the
probability of some value exceeds its promised bound; gain: mean over the chance of guessing the commonest value
kept, BROKEN: the mechanism promises to resist this adversary; not promised: nothing guarantees resistance to it, and
the figures say how far it gets; not applicable: it finds nothing to attack in a release of this kind"""


def published(out: Console, done: Published) -> None:
    """A release that was written, or a plan."""
    facts = done.facts
    table = _plain()
    table.add_row("mechanism", f"{facts['mechanism']}, {facts['algorithm']}")
    if facts["published"] is not None:
        table.add_row("records", f"{facts['published']:,} published, {facts['suppressed']:,} suppressed")
    _figures(table, facts["mechanism"], facts)
    if done.checks:
        table.add_row("checks", f"{len(done.checks)} passed")
    table.add_row("time", f"{done.seconds:.2f} s")
    out.print(table)
    if done.release:
        out.print(f"wrote {done.release}", highlight=False, soft_wrap=True)


def _figures(table: Table, kind: str, facts: dict[str, Any]) -> None:
    for name, text in of(kind).figures(facts):
        table.add_row(name, text)


def verified(out: Console, release: Path, found: Verified) -> None:
    """The outcome of every check."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("check")
    table.add_column("holds")
    table.add_column("offending rows")
    for check in found.checks:
        table.add_row(check.name, "yes" if check.ok else f"NO ({check.violations})", "\n".join(check.offending))
    out.print(table)
    for note in found.notes:
        out.print(f"note: {note}", highlight=False, soft_wrap=True)
    verdict = "verified" if found.ok else "NOT verified"
    out.print(f"{release}: {verdict}", highlight=False, soft_wrap=True)


def answered(out: Console, answer: Answer, *, explain: bool) -> None:
    """The rows of an answer."""
    if explain:
        out.print(answer.sql, highlight=False, soft_wrap=True)
        out.print(answer.formula, highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD)
    for name in answer.columns:
        table.add_column(name, justify="right")
    for row in answer.rows:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)
    out.print(answer.interval, highlight=False, soft_wrap=True)


def csv_rows(file: IO[str], answer: Answer) -> None:
    """The rows of an answer as CSV."""
    writer = csv.writer(file)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)


def evaluated(out: Console, found: Evaluated) -> None:
    """Error and coverage of both estimators, by band."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("estimator", "true answer", "queries", "mean error", "median error", "coverage"):
        table.add_column(name, justify="right")
    for name, score in found.scores.items():
        summary = score.summary()
        for band in (*summary["bands"], summary):
            shown = "all" if band is summary else plot.band_label(band)
            errors = (
                "-" if band[key] is None else f"{band[key]:.3f}"
                for key in ("mean_relative_error", "median_relative_error")
            )
            covered = "-" if band["coverage"] is None else f"{band['coverage']:.1%}"
            table.add_row(name, shown, f"{band['queries']:,}", *errors, covered)
        table.add_section()
    out.print(table)
    if found.extras:
        _by_length(out, found)
    certain = "" if found.extras else "; baseline's bounds are certain"
    out.print(f"coverage is that of the {found.confidence:.0%} intervals{certain}", highlight=False)


def frequent(out: Console, found: Sequence[tuple[list[str], float]]) -> None:
    """Item sets with their supports."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("items")
    table.add_column("records", justify="right")
    for items, support in found:
        table.add_row(", ".join(items), _cell(support))
    out.print(table)


def _by_length(out: Console, found: Evaluated) -> None:
    """Error by length of the query, and the utility of the most frequent item sets."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("estimator", "length up to", "queries", "mean error", "coverage"):
        table.add_column(name, justify="right")
    for name, extra in found.extras.items():
        for one in extra["classes"]:
            share, error = f"{one['length_share']:.0%} of the longest", f"{one['mean_relative_error']:.3f}"
            table.add_row(name, share, f"{one['queries']:,}", error, f"{one['coverage']:.1%}")
        table.add_section()
    out.print(table)
    for name, extra in found.extras.items():
        tops = ", ".join(f"top {number}: {utility:.3f}" for number, utility in extra["top"].items())
        out.print(f"frequent item sets, {name}: {tops}", highlight=False, soft_wrap=True)


def compared(out: Console, found: Sequence[Candidate]) -> None:
    """One table of several releases: what they promise, and error by size of the true answer."""
    labels = _labels(found)
    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    for name in ("spec", "posterior", "estimator"):
        table.add_column(name)
    for name in (*labels, "covered", "published", "retained", "seconds"):
        table.add_column(name, justify="right")
    for one in found:
        facts = one.published.facts
        summaries = [score.summary() for score in one.evaluated.scores.values()]
        errors = (_lines(_error(summary, label) for summary in summaries) for label in labels)
        table.add_row(
            f"{one.name}\n{facts['mechanism']}, {facts['algorithm']}",
            one.promise.replace(" if ", "\nif "),
            _lines(one.evaluated.scores),
            *errors,
            _lines(f"{summary['coverage']:.1%}" for summary in summaries),
            "-" if facts["records"] is None else f"{facts['published'] / max(1, facts['records']):.1%}",
            f"{facts['retention']:.1%}" if "retention" in facts else "-",
            f"{one.published.seconds:.1f}",
        )
    _wide(out).print(table)
    out.print("mean relative error by size of the true answer; covered: true answers within the bounds", soft_wrap=True)


def attacked(out: Console, found: Attacked) -> None:
    """One row per adversary: those that the mechanism promises to resist, those outside the promise, the others."""
    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    table.add_column("adversary")
    table.add_column("what it knows", ratio=1)
    for name in ("attacked", "mean", "highest", "above bound", "gain", *(("right",) if found.source else ())):
        table.add_column(name, justify="right")
    table.add_column("promise")
    for one in found.findings:
        figures = [_share(figure) for figure in (one.mean, one.highest, one.above)]
        gain = "-" if one.gain is None else f"{one.gain:.1f}x"
        right = [_share(one.right)] if found.source else []
        number = f"{one.attacked:,}\n{one.unit}" if one.applies else "-"
        knows = _lines((one.knows, *(f"({note})" for note in one.notes)))
        table.add_row(one.adversary, knows, number, *figures, gain, *right, _promise(one))
    _wide(out).print(table)
    out.print(LEGEND, highlight=False, soft_wrap=True)
    out.print(found.verdict, highlight=False)


def _share(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.1%}"


def _promise(one: Finding) -> str:
    """Where an adversary stands to the promise, in words."""
    if not one.applies:
        return "not applicable"
    if not one.promised:
        return "not promised" if not one.leaks else "not promised; found"
    return "BROKEN" if one.exceeded else "kept"


def inferred(out: Console, found: Differential) -> None:
    """Theorem 2 beside its simulation, by size of the query."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("x", "y", "y/x", "mean, theory", "simulated", "sd, theory", "simulated", "within 0.05", "disclosed"):
        table.add_column(name, justify="right")
    for row in found.rows:
        sizes = (f"{row.x:,.0f}{' *' if row.asked else ''}", f"{row.y:,.0f}", f"{row.ratio:.3f}")
        means = (
            f"{row.mean:.4f}",
            f"{row.simulated_mean:.4f}",
            f"{row.deviation:.4f}",
            f"{row.simulated_deviation:.4f}",
        )
        table.add_row(*sizes, *means, f"{row.near:.1%}", "yes" if row.discloses else "no")
    _wide(out).print(table)
    asked = f"x: {found.condition};  y: of these {found.sensitive};  * asked, the others have the same y/x"
    out.print(asked, highlight=False, soft_wrap=True)
    text = INFERRED.format(scale=1 / found.epsilon, epsilon=found.epsilon, draws=found.draws)
    out.print(text, highlight=False, soft_wrap=True)


def _lines(cells: Iterable[str]) -> str:
    return "\n".join(cells)


def _error(summary: dict[str, Any], label: str) -> str:
    """Mean relative error of a band, or of all."""
    bands = {plot.band_label(band): band for band in summary["bands"]} | {"all": summary}
    error = bands.get(label, {}).get("mean_relative_error")
    return "-" if error is None else f"{error:.3f}"


def _labels(found: Sequence[Candidate]) -> list[str]:
    """The bands of true answers that have an error, in order, and all of them."""
    scores = [score for one in found for score in one.evaluated.scores.values()]
    bands = [band for score in scores for band in score.summary()["bands"] if band["mean_relative_error"] is not None]
    return [*dict.fromkeys(plot.band_label(band) for band in sorted(bands, key=lambda band: band["low"])), "all"]


def ledger(out: Console, entries: Sequence[Entry]) -> None:
    """The releases of a source, and what they compose to."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("release", "made", "name", "mechanism", "records", "new", "held back", "key"):
        table.add_column(name)
    for entry in entries:
        made = f"{entry.mechanism}, {entry.algorithm}"
        numbers = (entry.records, entry.fresh, entry.held_back)
        counts = ("-" if number is None else f"{number:,}" for number in numbers)
        table.add_row(str(entry.number), entry.made, entry.name, made, *counts, entry.key)
    out.print(table)
    for entry in entries:
        out.print(f"{entry.number}: {entry.composes}", highlight=False, soft_wrap=True)


def plotted(draw: Callable[[Any, Path], None], found: Any, to: Path) -> None:
    """A picture, drawn by a function of ``privsql.cli.plot``."""
    if to.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--plot {to}: the ending must be .png or .svg")
    try:
        draw(found, to)
    except OSError as error:
        raise EngineError(f"{to}: {error.strerror}") from error


def inspected(out: Console, manifest: Manifest) -> None:
    """A manifest."""
    table = _plain()
    table.add_row("name", manifest.name)
    table.add_row("mechanism", f"{manifest.mechanism}, {manifest.algorithm}")
    table.add_row("asked for", ", ".join(f"{key} = {asked}" for key, asked in _asked(manifest)))
    if manifest.quasi_identifiers:
        table.add_row("quasi-identifiers", ", ".join(f"{f.name} ({f.type})" for f in manifest.quasi_identifiers))
    table.add_row(
        "items" if manifest.roles.hold_sets else "sensitive" if manifest.quasi_identifiers else "columns",
        ", ".join(f"{f.name} ({f.type})" for f in manifest.sensitive),
    )
    if manifest.records is not None:
        counts = f"{manifest.published:,} published, {manifest.suppressed:,} suppressed"
        table.add_row("records", f"{manifest.records:,}; {counts}")
    _figures(table, manifest.mechanism, manifest.facts)
    table.add_row("randomness", manifest.randomness)
    table.add_row("made by", f"privsql {manifest.privsql}, DuckDB {manifest.duckdb}")
    out.print(table)


def _asked(manifest: Manifest) -> list[tuple[str, object]]:
    return [(key, asked) for key, asked in manifest.parameters.items() if key not in ("kind", "algorithm")]


def _wide(out: Console) -> Console:
    """The console, or one that is wide enough where no terminal says how wide it is."""
    return out if out.is_terminal else Console(file=out.file, width=WIDE, markup=False, emoji=False)


def _plain() -> Table:
    table = Table(box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
