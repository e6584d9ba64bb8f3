"""Print results for people: tables of releases, answers, evaluations and attacks. Nothing is computed here."""

from __future__ import annotations

import csv
from decimal import Decimal
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from privsql import plot
from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from privsql.answers.answer import Answer
    from privsql.mechanisms.contract import Alternatives
    from privsql.model.manifest import Manifest, Promised
    from privsql.pages.rendering import Report
    from privsql.verbs.attack import Attacked, Inferred
    from privsql.verbs.compare import Candidate, Compared, Evaluated
    from privsql.verbs.init import Listed
    from privsql.verbs.publish import Published
    from privsql.verbs.verify import Verified

# Releases and answers -------------------------------------------------------------------------------------------------
# What a person sees: tables for results. Nothing is computed here.

FIRST = 8  # bounds that a person is shown
WIDE = 140  # columns of a table that is written to a file
CONTROLS = {*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\t"), ord("\n")}
ESCAPED = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in CONTROLS}


def visible(text: object) -> str:
    """A text with its control characters written out: what a stranger's release holds does not steer the terminal."""
    return str(text).translate(ESCAPED)


@cache
def out() -> Console:
    """Where results go. Rich is imported when there is something to print."""
    return _console()


def _console(**settings: Any) -> Console:
    from rich.console import Console  # noqa: PLC0415

    class Output(Console):
        """A console whose reader may go."""

        def on_broken_pipe(self) -> None:
            """Say so to whoever prints; by default the process would end here, as if a check had failed."""
            raise BrokenPipeError

    return Output(markup=False, emoji=False, **settings)


def wide() -> Console:
    """The console, or one that is wide enough where no terminal says how wide it is."""
    return out() if out().is_terminal else _console(file=out().file, width=WIDE)


def table(*names: str, right: Iterable[str] = (), lines: bool = False) -> Table:
    """An empty table; ``right``: names of further columns, whose cells stand at the right."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=box.SIMPLE_HEAD, show_lines=lines)
    for name in names:
        made.add_column(visible(name))
    for name in right:
        made.add_column(visible(name), justify="right")
    return made


def pairs(rows: Iterable[tuple[str, object]]) -> Table:
    """A table of names and what they stand for, without lines."""
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=None, show_header=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, found in rows:
        add(made, name, found)
    return made


def add(made: Table, *cells: object) -> None:
    """A row of a table."""
    made.add_row(*(_cell(value) for value in cells))


def say(text: str) -> None:
    """A line as it is: neither coloured nor broken."""
    out().print(visible(text), highlight=False, soft_wrap=True)


def published(done: Published) -> None:
    """A release that was written, or a plan."""
    out().print(pairs(done.lines))
    if done.release:
        say(f"wrote {done.release}")


def verified(release: Path, found: Verified) -> None:
    """The outcome of every check."""
    made = table("check", "holds", "offending rows")
    for check in found.checks:
        add(
            made,
            check.name,
            "yes" if check.ok else f"NO ({check.violations})",
            "\n".join(filter(None, (*check.offending, check.compared))),
        )
    out().print(made)
    if found.told:
        out().print(pairs(of(found.manifest.mechanism).figures(found.manifest.described(found.told.facts))))
        _bounds(found.told.bounds)
    for note in found.notes:
        say(f"note: {note}")
    say(f"{release}: {'verified' if found.ok else 'NOT verified'}")
    if found.copy is not None:
        say(f"wrote {found.copy}: a copy from its tables alone")


def reported(to: Path, found: Report) -> None:
    """Which page was written, of what kind, which checks do not hold, and which promises are broken."""
    kind = "internal: it shows true counts" if found.internal else "it may be handed out with the release"
    failed = [one for one in found.checks if not one.ok]
    for one in failed:
        say(f"does not hold: {one.name}")
    for adversary in found.broken:
        say(f"A PROMISE IS BROKEN: {adversary.adversary}: {'; '.join(adversary.notes) or 'see the page'}")
    say(f"wrote {to}: {'the release is NOT verified, and the page says so' if failed else f'verified; {kind}'}")


def _bounds(bounds: Sequence[Promised]) -> None:
    """What was verified, value by value."""
    made = table("verified of", right=("bound", "found"))
    for one in bounds[:FIRST]:
        add(made, one.value, one.bound, one.found)
    out().print(made)
    if len(bounds) > FIRST:
        say(f"and {len(bounds) - FIRST:,} more (--json lists all)")


def answered(answer: Answer, *, explain: bool) -> None:
    """The rows of an answer."""
    if explain:
        say(answer.sql)
        say(answer.formula)
    marks = answer.marks
    made = table(right=[*answer.columns, *(["may be empty"] if marks else [])])
    places = {at for one in answer.figures for at in range(one.at, one.at + 4)}
    for number, row in enumerate(answer.rows):
        add(
            made,
            *(_figure(value) if at in places else value for at, value in enumerate(row)),
            *marks[number : number + 1],
        )
    (wide() if len(answer.figures) > 1 else out()).print(made)
    say(answer.interval)
    for note in answer.notes:
        say(f"note: {note}")


def csv_rows(file: IO[str], answer: Answer) -> None:
    """The rows of an answer as CSV."""
    writer = csv.writer(file)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)


def frequent(found: Sequence[tuple[list[str], float]]) -> None:
    """Item sets with their supports."""
    made = table("items", right=["records"])
    for items, support in found:
        add(made, ", ".join(items), support)
    out().print(made)


def ledger(found: Listed) -> None:
    """The releases of a source, and what they compose to."""
    made = table("release", "made", "name", "mechanism", "records", "new", "held back", "key")
    for entry in found:
        numbers = (entry.records, entry.fresh, entry.held_back)
        counts = (None if number is None else f"{number:,}" for number in numbers)
        add(made, entry.number, entry.made, entry.name, f"{entry.mechanism}, {entry.algorithm}", *counts, entry.key)
    out().print(made)
    for entry in found:
        say(f"{entry.number}: {entry.composes}{'; withdrawn' if entry.withdrawn else ''}")
    if found.spent or found.cap is not None:
        budget(found)


def budget(found: Listed) -> None:
    """What a source has spent, and may."""
    from privsql.verbs.publish import capped  # noqa: PLC0415 (who asks for help does not wait for it)

    shown = found.as_json()
    say(f"epsilon: {shown['spent']} spent, {capped(shown['cap'])}")


def inspected(manifest: Manifest) -> None:
    """A manifest."""
    from privsql.releases.statements import lines  # noqa: PLC0415

    out().print(pairs(lines(manifest)))


def _figure(value: object) -> object:
    """A whole number, or a decimal, as one is read; whatever else a figure is as any cell."""
    return f"{value:,}" if isinstance(value, int | Decimal) and not isinstance(value, bool) else value


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else visible(value)


# Evaluations ----------------------------------------------------------------------------------------------------------
# What a person sees of an evaluation: error and coverage by size of the answer and by class of question.

FIGURES = ("asked", "mean error", "coverage", "half-width")
ERROR = "mean error is |estimate - truth| / max(truth, 0.1 % of the records), half-width in records"


def print_evaluation(found: Evaluated) -> None:
    """Error and coverage of both estimators, by band; where questions have classes, by these."""
    if any(found.extras.values()):
        for name, extra in found.extras.items():
            _by_class(name, extra)
        say(f"{ERROR}; coverage is that of the {found.confidence:.0%} intervals")
        return
    made = table(right=("estimator", "true answer", "queries", "mean error", "median error", "coverage"))
    for name, score in found.scores.items():
        summary = score.summary()
        for band in (*summary["bands"], summary):
            shown = "all" if band is summary else plot.band_label(band)
            errors = (
                "-" if band[key] is None else f"{band[key]:.3f}"
                for key in ("mean_relative_error", "median_relative_error")
            )
            add(made, name, shown, f"{band['queries']:,}", *errors, covered(band))
        made.add_section()
    out().print(made)
    say(f"coverage is that of the {found.confidence:.0%} intervals; baseline's bounds are certain")


def _by_class(estimator: str, extra: Mapping[str, Any]) -> None:
    """One estimator: questions by class, the same by share of the records, tables, and what is most frequent."""
    made = table(estimator, right=FIGURES)
    for section in (_questions(extra), _shares(extra), _tables(extra)):
        for label, figures in section:
            asked = figures.get("queries", figures.get("cells"))
            error = figures.get("mean_error", figures.get("mean_relative_error"))
            shown = "-" if error is None else f"{error:.3f}"
            add(made, label, f"{asked:,}", shown, covered(figures), _width(figures))
        made.add_section()
    out().print(made)
    for one in (one for one in extra.get("tables", []) if one["tables"]):
        of = f"{one['tables']} of {one['of']}" if one["tables"] < one["of"] else f"all {one['of']}"
        say(
            f"total variation of {of} tables by {one['ways']}: "
            f"mean {one['total_variation']:.3f}, largest {one['largest']:.3f}"
        )
    if "top_items" in extra:
        precision = ", ".join(f"top {number}: {one['precision']:.0%}" for number, one in extra["top_items"].items())
        tops = ", ".join(f"top {number}: {utility:.3f}" for number, utility in extra["top"].items())
        if precision:
            say(f"most frequent items found: {precision}")
        say(f"frequent item sets, utility: {tops}")


def _questions(extra: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in extra.get("questions", []):
        yield one["class"], one
    for one in extra.get("classes", []):
        yield f"up to {one['length_share']:.0%} of the longest", one


def _shares(extra: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in extra.get("shares", []):
        low, high = (f"{100 * (end or 0):g} %" for end in (one["low"], one["high"]))
        yield f"{low} or more" if one["high"] is None else f"{low} to {high} of the records", one


def _tables(extra: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in extra.get("tables", []):
        yield f"cells of tables by {one['ways']}", one


def _width(figures: Mapping[str, Any]) -> str:
    """Mean half-width of the intervals."""
    return "-" if figures["half_width"] is None else f"{figures['half_width']:,.0f}"


def covered(summary: Mapping[str, Any]) -> str:
    """How often the truth lies within the bounds; where no answer has any, nothing."""
    return "-" if summary["coverage"] is None else f"{summary['coverage']:.1%}"


# Measures -------------------------------------------------------------------------------------------------------------
# What a person sees of measurements: errors, comparisons, adversaries. Nothing is computed here.

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


def print_algorithms(found: Alternatives) -> None:
    """All algorithms of a mechanism, the best of each figure in bold."""
    kept = [row for row in found.rows if row.refused is None]
    made = table("", right=[row.algorithm for row in kept])
    for measure in found.measures:
        best, shown = found.best(measure), [row.figures.get(measure.key) for row in kept]
        if any(figure is not None for figure in shown):
            made.add_row(
                measure.title, *(_measured_figure(figure, measure.form, bold=figure == best) for figure in shown)
            )
    wide().print(made)
    for row in found.rows:
        if row.refused is not None:
            say(f"{row.algorithm}: {row.refused}")
    say(found.advice)


def _measured_figure(figure: float | None, form: str, *, bold: bool) -> Text:
    from rich.text import Text  # noqa: PLC0415 (as all of it, when there is something to print)

    text = "-" if figure is None else format(figure, form)
    return Text(text, style="bold" if bold and figure is not None else "")


def print_comparison(found: Compared) -> None:
    """One table of several releases: what they promise, and error by size of the true answer."""
    labels = _labels(found)
    figures = (*labels, "covered", "published", "retained", "seconds")
    made = table("spec", "posterior", "estimator", right=figures, lines=True)
    for one in found:
        facts = one.published.facts
        summaries = [score.summary() for score in one.evaluated.scores.values()]
        errors = (_lines(_error(summary, label) for summary in summaries) for label in labels)
        add(
            made,
            f"{one.name}\n{facts['mechanism']}, {facts['algorithm']}",
            one.promise.replace(" if ", "\nif "),
            _lines(one.evaluated.scores),
            *errors,
            _lines(covered(summary) for summary in summaries),
            "-" if facts["records"] is None else f"{facts['published'] / max(1, facts['records']):.1%}",
            f"{facts['retention']:.1%}" if "retention" in facts else "-",
            f"{one.published.seconds:.1f}",
        )
    if found:
        wide().print(made)
    for refused in found.refused:
        say(f"{refused.name}: {refused.reason}")
    if found:
        say("mean relative error by size of the true answer; covered: true answers within the bounds")


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


def print_attack(found: Attacked) -> None:
    """One row per adversary: those that the mechanism promises to resist, those outside the promise, the others."""
    figured = ("attacked", "mean", "highest", "above bound", "gain", *(("right",) if found.source else ()))
    made = table("adversary", "what it knows", right=figured, lines=True)
    made.columns[1].ratio = 1
    made.add_column("promise")
    for one in found.findings:
        figures = [_share(figure) for figure in (one.mean, one.highest, one.above)]
        gain = "-" if one.gain is None else f"{one.gain:.1f}x"
        right = [_share(one.right)] if found.source else []
        number = f"{one.attacked:,}\n{one.unit}" if one.applies else "-"
        knows = _lines((one.knows, *(f"({note})" for note in one.notes)))
        add(made, one.adversary, knows, number, *figures, gain, *right, one.kept)
    wide().print(made)
    say(LEGEND)
    say(found.verdict)


def _share(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.1%}"


def print_inference(found: Inferred) -> None:
    """Theorem 2 beside its simulation, by size of the query."""
    theory = ("mean, theory", "simulated", "sd, theory", "simulated")
    made = table(right=("x", "y", "y/x", *theory, "within 0.05", "disclosed"))
    for row in found.rows:
        sizes = (f"{row.x:,.0f}{' *' if row.asked else ''}", f"{row.y:,.0f}", f"{row.ratio:.3f}")
        means = (
            f"{row.mean:.4f}",
            f"{row.simulated_mean:.4f}",
            f"{row.deviation:.4f}",
            f"{row.simulated_deviation:.4f}",
        )
        add(made, *sizes, *means, f"{row.near:.1%}", "yes" if row.discloses else "no")
    wide().print(made)
    asked = f"x: {found.condition};  y: of these {found.sensitive};  * asked, the others have the same y/x"
    say(asked)
    text = INFERRED.format(scale=1 / found.epsilon, epsilon=found.epsilon, draws=found.draws)
    say(text)


def _lines(cells: Iterable[str]) -> str:
    return "\n".join(cells)
