"""Print results for people: tables of releases, answers, evaluations and attacks. Nothing is computed here."""

from __future__ import annotations

import csv
import os
import re
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from privsql import plot
from privsql.exact import readable_text
from privsql.figures import format_figure
from privsql.system import open_descriptor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from privsql.answers.accuracy import Evaluated
    from privsql.answers.answer import Answer
    from privsql.mechanisms.base import Alternatives
    from privsql.pages.rendering import Report
    from privsql.releases.ledger.book import LedgerEntry
    from privsql.releases.statements import ReleaseSummary
    from privsql.verbs.attack import Attacked, CountInference
    from privsql.verbs.evaluate import Candidate, Comparison
    from privsql.verbs.ledger import LedgerListing
    from privsql.verbs.publish import FittedModel, Published
    from privsql.verbs.verify import Verified

# Releases and answers -------------------------------------------------------------------------------------------------
# Tables of releases, answers and the ledger.

FIRST = 8  # bounds that a person is shown
MOST_ROWS = 40  # of the table of a plan
STYLES = {"promised": "green", "beyond the promise": "yellow", "left out": "bold red"}  # of a summary's lines
WIDE = 140  # columns of a table that is written to a file
CONTROLS = {*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\t"), ord("\n")}
ESCAPED = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in CONTROLS}
KEYWORD = re.compile(r"\b(\w+)=(?:True\b|\.\.)")  # of Python, as errors name it: replace=True, to=..


def escape_controls(text: object) -> str:
    """Escape control characters, so that a stranger's release can't steer the terminal."""
    return str(text).translate(ESCAPED)


def spell_keywords(message: str) -> str:
    """Return an error, which names keywords of Python, with flags of the command line.

    >>> spell_keywords("release.duckdb exists; give replace=True, or name another file with to=..")
    'release.duckdb exists; give --replace, or name another file with --to'
    """
    return KEYWORD.sub(lambda keyword: "--" + keyword[1].replace("_", "-"), message)


@cache
def get_console() -> Console:
    """Return where results go. Rich is imported when there is something to print."""
    return _make_console()


def _make_console(**settings: Any) -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        """A console whose reader may go."""

        def on_broken_pipe(self) -> None:
            """Report it to the caller; by default the process would end here, as if a check had failed."""
            raise BrokenPipeError

    return PipeConsole(markup=False, emoji=False, **settings)


def get_wide_console() -> Console:
    """Return the console, or one that is wide enough where no terminal says how wide it is."""
    return get_console() if get_console().is_terminal else _make_console(file=get_console().file, width=WIDE)


def make_table(*names: str, right: Iterable[str] = (), lines: bool = False) -> Table:
    """Return an empty table; ``right``: names of further columns, whose cells stand at the right."""
    from rich import box
    from rich.table import Table

    new_table = Table(box=box.SIMPLE_HEAD, show_lines=lines)
    for name in names:
        new_table.add_column(escape_controls(name))
    for name in right:
        new_table.add_column(escape_controls(name), justify="right")
    return new_table


def make_pairs(rows: Iterable[tuple[str, object]]) -> Table:
    """Return a table of names and what they stand for, without lines."""
    from rich.table import Table

    new_table = Table(box=None, show_header=False)
    new_table.add_column(style="bold")
    new_table.add_column(overflow="fold")
    for name, value in rows:
        add_row(new_table, name, value)
    return new_table


def add_row(target: Table, *cells: object) -> None:
    """Add a row to a table."""
    target.add_row(*(_format_cell(value) for value in cells))


def _print_rows(target: Table, rows: Sequence[Sequence[object]], most: int | None = None) -> None:
    """Print a table with at most ``most`` rows, and how many are left out."""
    for row in rows[:most]:
        add_row(target, *row)
    get_console().print(target)
    if most is not None and len(rows) > most:
        print_line(f"and {len(rows) - most:,} more (--json lists all)")


def print_line(text: str) -> None:
    """Print a line as it is: neither coloured nor broken."""
    get_console().print(escape_controls(text), highlight=False, soft_wrap=True)


def print_summary(summary: ReleaseSummary) -> None:
    """Print the lines on a release: green where a guarantee covers them, yellow beyond it, red for records left out."""
    from rich.text import Text

    rows = make_pairs(())
    for one in summary.lines.values():
        rows.add_row(escape_controls(one.title), Text(escape_controls(one.text), STYLES.get(one.standing, "")))
    get_console().print(rows)


def print_release(done: Published, *, verbose: bool) -> None:
    """Print a plan, or a release that was written: its summary first, with ``verbose`` all that it states."""
    if done.summary is not None:
        print_summary(done.summary)
    get_console().print(make_pairs(done.list_lines(verbose=verbose)))
    head, *rows = (done.stated.tabulate() if verbose or done.release is None else []) or [()]
    if rows:
        _print_rows(make_table(right=map(str, head)), rows, MOST_ROWS)
    if done.release:
        print_line(f"wrote {done.target}")


def print_verified(release: str, outcome: Verified, *, verbose: bool) -> None:
    """Print the summary and the checks that do not hold; with ``verbose`` every check, figure and bound."""
    from privsql.releases.statements import describe_manifest

    if outcome.recomputed:
        print_summary(outcome.recomputed.summary)
    listed = [
        (
            one.name,
            "yes" if one.ok else f"NO ({one.violations})",
            "\n".join(filter(None, (*one.offending, one.compared))),
        )
        for one in outcome.checks
        if verbose or not one.ok
    ]
    if listed:
        _print_rows(make_table("check", "holds", "details"), listed)
    if outcome.recomputed and verbose:
        get_console().print(make_pairs(describe_manifest(outcome.manifest)))
        bounds = [(one.value, one.bound, readable_text(one.found)) for one in outcome.recomputed.bounds]
        _print_rows(make_table("verified of", right=("bound", "found")), bounds, FIRST)
    words = "; ".join(f"{name} {text!r}" for name, text in outcome.manifest.words.items())
    print_line(f"the publisher's own words: {words}")
    others = outcome.recomputed.summary.lines["others"].text if outcome.recomputed else ""
    for note in outcome.notes:
        if note not in others:
            print_line(f"note: {note}")
    held = sum(check.ok for check in outcome.checks)
    counted = f"{held} of {len(outcome.checks)} checks hold{'' if verbose else ' (--verbose lists them)'}"
    print_line(f"{release}: {'verified' if outcome.ok else 'NOT verified'}; {counted}")
    if outcome.copy is not None:
        print_line(f"wrote {outcome.copy}: a copy from its tables alone")


def print_report_outcome(to: Path, report: Report) -> None:
    """Print which page was written, which checks do not hold, and which promises are broken."""
    kind = "internal: it shows true counts" if report.internal else "it may be handed out with the release"
    failed = [one for one in report.checks if not one.ok]
    for one in failed:
        print_line(f"does not hold: {one.name}")
    for adversary in report.broken:
        print_line(f"A PROMISE IS BROKEN: {adversary.adversary}: {'; '.join(adversary.notes) or 'see the page'}")
    print_line(f"wrote {to}: {'the release is NOT verified, and the page says so' if failed else f'verified; {kind}'}")


def print_answer(answer: Answer, hints: Sequence[str] = (), *, explain: bool) -> None:
    """Print the rows of an answer, with its notes and more ``hints``."""
    if explain:
        print_line(answer.sql)
        print_line(answer.formula)
    marks = answer.empty_marks
    cells = [answer.format_row(row) for row in answer.rows]
    names, cells = _join_intervals(answer, cells) if len(answer.figures) > 1 else (list(answer.columns), cells)
    rows = make_table(right=[*names, *(["may be empty"] if marks else [])])
    for number, row in enumerate(cells):
        add_row(rows, *row, *marks[number : number + 1])
    (get_wide_console() if len(answer.figures) > 1 else get_console()).print(rows)
    print_line(answer.interval)
    if not answer.certain:
        print_line(f"estimator: {answer.estimator}")
    for note in (*answer.notes, *hints):
        print_line(f"note: {note}")


def _join_intervals(answer: Answer, cells: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    """Return names and cells where each of several figures takes two columns: its value, and "low to high"."""
    ends = {one.at + 1 for one in answer.figures}
    hidden = {one.at + part for one in answer.figures for part in (2, 3)}
    shown = [at for at in range(len(answer.columns)) if at not in hidden]
    return ["low to high" if at in ends else answer.columns[at] for at in shown], [
        [" to ".join(map(_format_cell, row[at + 1 : at + 3])) if at in ends else row[at] for at in shown]
        for row in cells
    ]


def print_fit(fitted: FittedModel) -> None:
    """Print where a model is stored, and what it says of records."""
    part = "" if fitted.fitted_share == 1 else f", fitted to {fitted.fitted_share:.0%} of these, which memory holds"
    lines = {
        "attacker": f"the model's best guess of a record's value is right in about {fitted.belief:.0%} of cases; "
        "anyone who has the release can fit it",
        "model": f"of {fitted.records:,} records{part}, {fitted.seconds:,.1f} s",
        "stored": str(fitted.stored) if fitted.stored else "no; the cache is switched off",
        "parameters": str(fitted.to) if fitted.to else None,
        "drawn rows": str(fitted.rows) if fitted.rows else None,
    }
    get_console().print(make_pairs((name, text) for name, text in lines.items() if text is not None))


def write_changes(path: Path, changes: Sequence[tuple[str, str]]) -> None:
    """Write ids and fates as CSV to a new file that its owner alone can read; raises ``OSError``."""
    descriptor = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "fate"), *changes])


def write_csv(file: IO[str], answer: Answer) -> None:
    """Write the rows of an answer as CSV."""
    writer = csv.writer(file)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)


def print_itemsets(itemsets: Sequence[tuple[list[str], float]]) -> None:
    """Print item sets with their supports."""
    _print_rows(make_table("items", right=["records"]), [(", ".join(items), support) for items, support in itemsets])


def print_ledger(listing: LedgerListing) -> None:
    """Print the releases of a population within 80 columns, and what they compose to."""
    rows = [
        (one.number, one.made[:10], one.name, one.mechanism, _format(one.records, ","), _format(one.fresh, ","))
        for one in listing
    ]
    _print_rows(make_table("release", "made", "name", "mechanism", right=("records", "new")), rows)
    for entry in listing:
        print_line(f"{entry.number}: {entry.composes}{'; withdrawn' if entry.withdrawn else ''}")
    if listing.spent or listing.cap is not None:
        print_budget(listing)


def print_entry(entry: LedgerEntry) -> None:
    """Print all that the ledger says of one release to people."""
    facts = entry.as_json() | {"population": ", ".join(entry.population), "spec": None}
    rows = ((name.replace("_", " "), value) for name, value in facts.items() if value not in (None, "", False, {}))
    get_console().print(make_pairs(rows))


def print_budget(listing: LedgerListing) -> None:
    """Print the budget of a population: what is spent, and the cap."""
    from privsql.verbs.publish import describe_cap

    facts = listing.as_json()
    print_line(f"epsilon: {facts['spent']} spent, {describe_cap(facts['cap'], facts['delta'])}")


def _format(figure: float | None, form: str = ".1%") -> str:
    return "-" if figure is None else format(figure, form)


def _format_cell(value: object) -> str:
    if value is None:
        return "-"
    return format_figure(value) if isinstance(value, float) else escape_controls(value)


# Evaluations ----------------------------------------------------------------------------------------------------------
# Tables of an evaluation: error and coverage by size of the answer and by class of question.

FIGURES = ("asked", "mean error", "coverage", "half-width")
ERROR = "mean error is |estimate - truth| / max(truth, 0.1 % of the records), half-width in records"
USEFUL = "it adds up noise as if all of it went one way (Chen et al. 2011, theorem 4.2)"


def print_evaluation(evaluated: Evaluated) -> None:
    """Error and coverage of both estimators, by band; where questions have classes, by these."""
    if any(evaluated.extras.values()):
        for name, extra in evaluated.extras.items():
            _print_by_class(name, extra)
        print_line(f"{ERROR}; coverage is that of the {evaluated.confidence:.0%} intervals")
        if any(extra.get("useful") for extra in evaluated.extras.values()):
            print_line(
                f"bound: no question of a class errs by more, with probability {evaluated.confidence:.0%}; {USEFUL}"
            )
        return
    rows = make_table(right=("estimator", "true answer", "queries", "mean error", "median error", "coverage"))
    for name, score in evaluated.scores.items():
        summary = score.summary()
        for band in (*summary["bands"], summary):
            label = "all" if band is summary else plot.band_label(band)
            errors = (_format(band[key], ".3f") for key in ("mean_relative_error", "median_relative_error"))
            add_row(rows, name, label, f"{band['queries']:,}", *errors, _format(band["coverage"]))
        rows.add_section()
    get_console().print(rows)
    hold = f"coverage: share of {evaluated.confidence:.0%} intervals that hold the truth; baseline's bounds are certain"
    print_line(f"errors: |estimate - truth| / truth; {hold}")


def _print_by_class(estimator: str, extra: Mapping[str, Any]) -> None:
    """Print the figures of one estimator: questions by class and by share, tables, and most frequent items."""
    rows = make_table(estimator, right=FIGURES)
    for section in _list_sections(extra):
        for label, figures in section:
            queries = figures.get("queries", figures.get("cells"))
            error = figures.get("mean_error", figures.get("mean_relative_error"))
            width = _format(figures["half_width"], ",.0f")
            add_row(rows, label, f"{queries:,}", _format(error, ".3f"), _format(figures["coverage"]), width)
        rows.add_section()
    get_console().print(rows)
    for one in (one for one in extra.get("tables", []) if one["tables"]):
        of = f"{one['tables']} of {one['of']}" if one["tables"] < one["of"] else f"all {one['of']}"
        print_line(
            f"total variation of {of} tables by {one['ways']}: "
            f"mean {one['total_variation']:.3f}, largest {one['largest']:.3f}"
        )
    if extra.get("useful"):
        _print_usefulness(extra["useful"])
    if "top_items" in extra:
        precision = ", ".join(f"top {number}: {one['precision']:.0%}" for number, one in extra["top_items"].items())
        tops = ", ".join(f"top {number}: {utility:.3f}" for number, utility in extra["top"].items())
        if precision:
            print_line(f"most frequent items found: {precision}")
        print_line(f"frequent item sets, utility: {tops}")


def _print_usefulness(classes: Sequence[Mapping[str, Any]]) -> None:
    """Print the bound of Chen et al. 2011, Theorem 4.2, beside the largest measured error, by class of question."""
    rows = make_table("usefulness, in records", right=["largest error", "bound"])
    for one in classes:
        name = one["class"] if one["class"].isidentifier() else f"up to {float(one['class']):.0%} of the longest"
        rows.add_row(name, f"{one['largest_error']:,.0f}", f"{one['epsilon']:,}")
    get_console().print(rows)


def _list_sections(extra: Mapping[str, Any]) -> list[list[tuple[str, Mapping[str, Any]]]]:
    """Return (label, figures) of questions by class, of questions by share of the records, and of tables."""
    classes = [(one["class"], one) for one in extra.get("questions", [])]
    lengths = [(f"up to {one['length_share']:.0%} of the longest", one) for one in extra.get("classes", [])]
    tables = [(f"cells of tables by {one['ways']}", one) for one in extra.get("tables", [])]
    return [[*classes, *lengths], [(_label_share(one), one) for one in extra.get("shares", [])], tables]


def _label_share(band: Mapping[str, Any]) -> str:
    low, high = (f"{100 * (end or 0):g} %" for end in (band["low"], band["high"]))
    return f"{low} or more" if band["high"] is None else f"{low} to {high} of the records"


# Measures -------------------------------------------------------------------------------------------------------------
# Tables of measurements: algorithms, comparisons, adversaries.

INFERRED = """\
Y/X of two counts with Laplace noise of scale {scale:g} (epsilon {epsilon:g} each, OpenDP, {draws:,} draws)
theory: mean (y/x)(1 + 2b^2/x^2), variance (2b^2/x^2)(1 + (y/x)^2), valid for x far above b
disclosed: nine in ten noisy answers come within 0.05 of y/x; differential privacy hides whether a record is in the
table, not what holds of records like it"""
LEGEND = """\
mean, highest: how sure the adversary is of its best guess, on average and at most; above bound: share of what is
attacked for which it is surer of some value than promised; gain: mean divided by the share of the most common value
kept, BROKEN: the mechanism promises to resist this adversary; not promised: it does not, and the figures show how far
the adversary gets; not applicable: a release of this kind has nothing that it could attack"""


def print_algorithms(alternatives: Alternatives) -> None:
    """Print all algorithms of a mechanism, the best of each figure in bold."""
    feasible = [row for row in alternatives.rows if row.refused is None]
    rows = make_table("", right=[row.algorithm for row in feasible])
    for measure in alternatives.measures:
        best, row_figures = alternatives.choose_best(measure), [row.figures.get(measure.key) for row in feasible]
        if any(figure is not None for figure in row_figures):
            rows.add_row(
                measure.title, *(_measured_figure(figure, measure.form, bold=figure == best) for figure in row_figures)
            )
    get_wide_console().print(rows)
    for row in alternatives.rows:
        if row.refused is not None:
            print_line(f"{row.algorithm}: {spell_keywords(row.refused)}")
    print_line(alternatives.advice)


def _measured_figure(figure: float | None, form: str, *, bold: bool) -> Text:
    from rich.text import Text

    return Text(_format(figure, form), style="bold" if bold and figure is not None else "")


def print_comparison(comparison: Comparison) -> None:
    """Print what several releases promise, and their errors by size of the true answer."""
    labels = _band_labels(comparison)
    figures = (*labels, "covered", "published", "retained", "seconds")
    rows = make_table("spec", "posterior", "estimator", right=figures, lines=True)
    for one in comparison:
        facts = one.published.facts
        summaries = [score.summary() for score in one.evaluated.scores.values()]
        errors = ("\n".join(_format_error(summary, label) for summary in summaries) for label in labels)
        add_row(
            rows,
            f"{one.name}\n{facts['mechanism']}, {facts['algorithm']}",
            one.promise.replace(" if ", "\nif "),
            "\n".join(one.evaluated.scores),
            *errors,
            "\n".join(_format(summary["coverage"]) for summary in summaries),
            _format(None if facts["records"] is None else facts["published"] / max(1, facts["records"])),
            _format(facts.get("retention")),
            f"{one.published.seconds:.1f}",
        )
    if comparison:
        get_wide_console().print(rows)
    for refused in comparison.refused:
        print_line(f"{refused.name}: {spell_keywords(refused.reason)}")
    if comparison:
        print_line("mean relative error by size of the true answer; covered: true answers within the bounds")


def _format_error(summary: dict[str, Any], label: str) -> str:
    """Mean relative error of a band, or of all."""
    bands = {plot.band_label(band): band for band in summary["bands"]} | {"all": summary}
    return _format(bands.get(label, {}).get("mean_relative_error"), ".3f")


def _band_labels(candidates: Sequence[Candidate]) -> list[str]:
    """Return the bands of true answers that have an error, in order, and all of them."""
    scores = [score for one in candidates for score in one.evaluated.scores.values()]
    bands = [band for score in scores for band in score.summary()["bands"] if band["mean_relative_error"] is not None]
    return [*dict.fromkeys(plot.band_label(band) for band in sorted(bands, key=lambda band: band["low"])), "all"]


def print_attack(outcome: Attacked, summary: ReleaseSummary | None) -> None:
    """Print the summary unless a promise is broken, and one row per adversary with its promise."""
    if summary is not None:
        print_summary(summary)
    figured = ("attacked", "mean", "highest", "above bound", "gain", *(("right",) if outcome.source else ()))
    rows = make_table("adversary", "what it knows", right=figured, lines=True)
    rows.columns[1].ratio = 1
    rows.add_column("promise")
    for one in outcome.findings:
        figures = [_format(figure) for figure in (one.mean, one.highest, one.above)]
        gain = None if one.gain is None else f"{one.gain:.1f}x"
        right = [_format(one.right)] if outcome.source else []
        number = f"{one.attacked:,}\n{one.unit.removesuffix('s') if one.attacked == 1 else one.unit}"
        knows = "\n".join((one.knows, *(f"({note})" for note in one.notes)))
        add_row(rows, one.adversary, knows, number if one.applies else None, *figures, gain, *right, one.outcome)
    get_wide_console().print(rows)
    print_line(LEGEND)
    print_line(outcome.verdict)


def print_inference(inference: CountInference) -> None:
    """Theorem 2 beside its simulation, by size of the query."""
    theory = ("mean, theory", "simulated", "sd, theory", "simulated")
    rows = make_table(right=("x", "y", "y/x", *theory, "within 0.05", "disclosed"))
    for row in inference.rows:
        sizes = (f"{row.x:,.0f}{' *' if row.asked else ''}", f"{row.y:,.0f}", f"{row.ratio:.3f}")
        means = (f"{one:.4f}" for one in (row.mean, row.simulated_mean, row.deviation, row.simulated_deviation))
        add_row(rows, *sizes, *means, f"{row.near:.1%}", "yes" if row.discloses else "no")
    get_wide_console().print(rows)
    conditions = f"x: {inference.condition};  y: of these {inference.sensitive}"
    print_line(f"{conditions};  * your question, other rows have the same y/x")
    print_line(INFERRED.format(scale=1 / inference.epsilon, epsilon=inference.epsilon, draws=inference.draws))
