"""The report on a release: its facts, their tables and charts, and the HTML page that shows them."""

from __future__ import annotations

import json
import math
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from privsql import plot
from privsql.engine.files import private
from privsql.errors import EngineError, UsageError
from privsql.exact import readable_text
from privsql.figures import format_estimate, format_exact, format_figure, format_share, is_number
from privsql.markup import Html, clean_text, printable_text
from privsql.model.parameters import Wording
from privsql.outcomes import JsonObject, Outcome, Part, Table
from privsql.pages import rendering
from privsql.pages.rendering import draw_figure, shorten_text, typeset_relations
from privsql.plot import ESTIMATORS, band_label
from privsql.releases.statements import CLASS_SIZES
from privsql.system import PAGES, PICTURES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.attacks.scene import Finding
    from privsql.mechanisms.base import Curve
    from privsql.model.checks import CheckResult, VerifiedBound
    from privsql.model.explanations import ReleasePromises, Structure
    from privsql.model.manifest import Manifest
    from privsql.pages.columns import ColumnNote
    from privsql.releases.statements import ReleaseSummary

# Facts ----------------------------------------------------------------------------------------------------------------
# The facts of a report on a release, and on its source if that is known.


@dataclass(frozen=True)
class UsageSnippets(JsonObject):
    """Lines that a reader can copy to query a release.

    Attributes:
        form: How the release is stored: "file", "folder" or "schema".
        file: The name of the release in these lines.
        shell: A command for the shell.
        python: A call in Python.
        sql: SQL for DuckDB without privsql.
    """

    form: str
    file: str
    shell: str
    python: str
    sql: str


@dataclass(frozen=True)
class ExpectedAccuracy(JsonObject):
    """How precise a release's answers of one size are, judged without the source.

    The size of an answer is its count; sizes are divided into ranges.

    Attributes:
        low: The smallest count of this range.
        high: The end of this range; None if it has no end.
        answers: The number of typical questions with such an answer.
        error: The expected error of the median answer; None if it is not known.
        half_width: Half the length of its interval. If bounds are certain and no error is known, it is the distance to
            the farther bound.
        bounds: The same half length for the estimator ``baseline``, the formula in the literature; None if its answers
            have no bounds, or if the answers themselves are made by it.
        estimate: The median answer.
    """

    low: float
    high: float | None
    answers: int
    error: float | None
    half_width: float
    bounds: float | None
    estimate: float


@dataclass(frozen=True)
class TruthComparison:
    """A comparison of a release's answers with the true answers of its source.

    Attributes:
        scores: The errors of each estimator's answers, by its name, in the form in which ``evaluate`` prints them.
        pairs: Some single answers, as (true, estimate, low, high) of privsql's own estimator.
        confidence: The confidence of the intervals.
    """

    scores: Mapping[str, dict[str, Any]]
    pairs: tuple[tuple[float, float, float | None, float | None], ...]
    confidence: float

    def as_json(self) -> dict[str, Any]:
        """Return the scores, the confidence and the pairs as an object for JSON."""
        names = ("true", "estimate", "low", "high")
        pairs = [dict(zip(names, one, strict=True)) for one in self.pairs]
        return {**self.scores, "confidence": self.confidence, "pairs": pairs}


@dataclass(frozen=True)
class VerifiedFacts(JsonObject):
    """What a report says of a release all of whose checks hold.

    Attributes:
        summary: The summary of the release.
        promise: The bound that it promises, in a few words.
        words: What it promises and does not promise, in sentences.
        bounds: The bounds of values, with the beliefs that are reached.
        structure: The parts of the release as tables.
        findings: What adversaries found in it.
        verdict: One sentence on the findings.
        advice: How to lower what adversaries learn.
        lines: The (name, value) lines of the manifest.
        foreseen: How precise answers are, by their size.
        certain: Whether the bounds of the estimator ``baseline``, the formula in the literature, always hold the true
            answer.
        ways: Lines to copy that query the release.
        columns: What reviewers should know of each column.
        compared: The comparison with the true answers; None without the source.
        population: The share of values that can be guessed from all other records of the source, without the release;
            None without the source.
        in_small_cells: The number of records of the source in small cells; None without the source. The records of a
            cell have equal quasi-identifiers and sensitive value; it is small if it has fewer than 11 records.
        curve: What a release of the same source would promise, and how precise it would be, with other thresholds
            (bounds on beliefs); None without the source.
    """

    json_keys = (
        "summary", "promise", "words*", "bounds", "structure", "adversaries=findings", "verdict", "expected=foreseen",
        "certain_bounds=certain", "ways", "columns", "population?", "in_small_cells?", "measured=compared?", "curve*",
    )  # fmt: skip

    summary: ReleaseSummary
    promise: str
    words: ReleasePromises
    bounds: tuple[VerifiedBound, ...]
    structure: tuple[Structure, ...]
    findings: tuple[Finding, ...]
    verdict: str
    advice: tuple[str, ...]
    lines: tuple[tuple[str, object], ...]
    foreseen: tuple[ExpectedAccuracy, ...]
    certain: bool
    ways: UsageSnippets
    columns: tuple[ColumnNote, ...] = ()
    compared: TruthComparison | None = None
    population: float | None = None
    in_small_cells: int | None = None
    curve: Curve | None = None


@dataclass(frozen=True)
class Report(Outcome):
    """A report on a release, which a page shows.

    Attributes:
        manifest: The manifest of the release.
        checks: The results of its checks.
        notes: Further remarks for people.
        digests: The SHA-256 of the release's files.
        internal: Whether the page was made with the source, and so shows true counts.
        learnt: The facts of the release. None if a check fails; the page then shows neither promises nor tables.
        page: Where the page was written; None if it was not.
    """

    json_keys = (
        "page?", "kind", "name=manifest.name", "mechanism=manifest.mechanism", "algorithm=manifest.algorithm", "ok",
        "verified", "checks", "notes", "digests", "parameters=manifest.parameters", "versions", "learnt*",
    )  # fmt: skip

    manifest: Manifest
    checks: tuple[CheckResult, ...]
    notes: tuple[str, ...]
    digests: Mapping[str, str]
    internal: bool
    learnt: VerifiedFacts | None
    page: Path | None = None

    @property
    def kind(self) -> str:
        """Return "internal" if the page shows true counts, else "release"."""
        return "internal" if self.internal else "release"

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of privsql and DuckDB that made the release."""
        return {"privsql": self.manifest.privsql, "duckdb": self.manifest.duckdb}

    @property
    def verified(self) -> bool:
        """Return whether every check holds."""
        return all(one.ok for one in self.checks)

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Return the findings of adversaries who learn more than the release promises that they can."""
        return tuple(one for one in self.learnt.findings if one.exceeded) if self.learnt else ()

    @property
    def ok(self) -> bool:
        """Return whether every check holds and no measured promise is broken."""
        return self.verified and not self.broken

    @property
    def title(self) -> str:
        """Return the title that a notebook shows above the report."""
        failed = sum(not one.ok for one in self.checks)
        kind = "INTERNAL, shows true counts" if self.internal else "report"
        outcome = f"NOT verified, {failed} of {len(self.checks)} checks do not hold" if failed else "verified"
        return f"{kind}: {self.manifest.name}, {outcome}"

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield for people the checks that fail, the promises that are broken, and where the page was written.

        With ``verbose``, also yield bounds, adversaries, and the precision of answers by size.
        """
        yield from (f"does not hold: {one.name}" for one in self.checks if not one.ok)
        for adversary in self.broken:
            yield f"A PROMISE IS BROKEN: {adversary.adversary}: {'; '.join(adversary.notes) or 'see the page'}"
        if verbose and self.learnt is not None:
            yield from self.learnt.summary.show()
            yield self.learnt.verdict
            tables = list_tables(self.learnt, self.manifest.published)
            yield from (tables[name] for name in ("bounds", "adversaries", "sizes"))
        yield from (f"note: {one}" for one in self.notes if verbose)
        if self.page is not None:
            kind = "internal: it shows true counts" if self.internal else "it may be handed out with the release"
            fate = f"verified; {kind}" if self.verified else "the release is NOT verified, and the page says so"
            yield f"wrote {self.page}: {fate}"


# What a signer reads first -------------------------------------------------------------------------------------------
# Sentences and facts for the person who approves a release.

BLANK = "to be filled in"
FIELDS: tuple[Wording, ...] = get_args(Wording)
ATTACKERS = {  # by adversary, a few words on what it does; others are called by their names
    "linkage": "finds the record",
    "homogeneity": "looks for buckets of one value",
    "row order": "reads the order of rows",
    "corruption": "knows a neighbour's value",
    "records of one person": "knows a person's records",
    "negative association": "rules values out",
    "learning": "trains on the release",
    "absence": "asks who is in the table",
    "membership": "asks who is in the table",
    "choice of records": "asks which record was chosen",
}


def list_reached(learnt: VerifiedFacts) -> list[tuple[Finding, float]]:
    """Return what each adversary found, with its certainty; the most certain comes first.

    Adversaries that attack whole columns instead of records are left out. The certainty is how often the adversary is
    right. If that is not known, it is the adversary's mean belief.
    """
    shares = [(one, one.mean if one.right is None else one.right) for one in learnt.findings if one.applies]
    reached = [(one, share) for one, share in shares if share is not None and one.unit != "columns"]
    return sorted(reached, key=lambda row: row[1], reverse=True)


def state_headline(report: Report) -> str:
    """Return a sentence on how often the best adversary is right, or on the promise if no adversary guesses values."""
    if report.learnt is None:
        return ""
    who = "people" if report.manifest.has_single_persons else "records"
    best = next(((one, share) for one, share in list_reached(report.learnt) if one.unit == "records"), None)
    if best is None:
        promise = report.learnt.summary.lines["promise"].text
        return f"{promise[:1].upper()}{promise[1:]}."
    one, share = best
    attacker = f"The best known attacker ({ATTACKERS.get(one.adversary, one.adversary)})"
    if not report.internal:
        text = f"{attacker} is {format_share(share)} sure of its guess, on average"
    elif one.right is None:
        text = f"{attacker} can expect to be right for {format_share(share)} of {who}"
    else:
        text = f"{attacker} is right for {format_share(share)} of {who}"
    guess = format_share(one.baseline)
    return f"{text}." if one.baseline is None else f"{text}; a guess without the release is right for {guess}."


def state_conclusion(report: Report) -> str:
    """Return one line for the person who signs a verified release: what is accepted, and what is still missing."""
    if report.learnt is None:
        return ""
    if report.broken:
        return "Do not sign: a promise is broken."
    manifest, promise = report.manifest, report.learnt.summary.lines["promise"]
    reached, headline = promise.figures.get("reached"), state_headline(report).removesuffix(".")
    parts = [f"{headline[:1].lower()}{headline[1:]}"]
    if not headline.endswith(promise.text[1:]):
        bound = None if reached is None else f"at most {format_share(reached)} sure of any record, as promised"
        parts.insert(0, bound or promise.text)
    if manifest.records and manifest.suppressed:
        parts.append(f"{format_share(manifest.suppressed / manifest.records)} of the source's records are left out")
    blank = sum(name not in manifest.wording for name in FIELDS)
    missing = f" First fill in {blank} of the {len(FIELDS)} fields below." if blank else ""
    return f"Who signs accepts this: {'; '.join(parts)}.{missing}"


def list_fields(manifest: Manifest) -> list[tuple[str, str]]:
    """Return pairs (title, text) of the publisher's own texts, such as the purpose and the recipient of the release.

    Whoever approves the release reads them. A missing text is shown as "to be filled in".
    """
    return [(name.replace("_", " "), manifest.wording.get(name, BLANK)) for name in FIELDS]


def count_people(manifest: Manifest) -> list[tuple[str, str]]:
    """Return pairs (title, text) of the numbers of records, persons and omitted records that the release states."""
    hidden, persons = "not stated, as the noise hides it", manifest.persons
    records = hidden if manifest.published is None else format_figure(manifest.published)
    if persons is None:
        people = "not declared: one may have several records"
    elif manifest.has_single_persons:
        people = "one record each"
    elif persons.several is not None:
        people = f"{persons.several:,} have several records, up to {persons.most:,}"
    else:
        people = f"up to {persons.most:,} records each"
    left_out = hidden
    if manifest.records is not None and manifest.suppressed is not None:
        share = format_share(manifest.suppressed / max(1, manifest.records))
        left_out = f"{manifest.suppressed:,} of {manifest.records:,} ({share})" if manifest.suppressed else "none"
    return [("records", records), ("persons", people), ("records left out", left_out)]


def tabulate_classes(learnt: VerifiedFacts) -> Table:
    """Return a table of how many records share their quasi-identifiers with how many others.

    It has no rows if the release publishes no records.
    """
    figures = learnt.summary.lines["unique"].figures
    records, rows = figures.get("records"), []
    for least, most in CLASS_SIZES if records else ():
        number = figures.get(f"in_classes_from_{least}") or 0
        size = f"{least}" if least == most else f"{least} to {most}" if most < math.inf else f"{least} or more"
        rows.append((size, f"{number:,}", format_share(number / (records or 1))))
    return Table(("records in the class", "records", "share"), rows, (1, 2), "Classes of equal quasi-identifiers")


def tabulate_columns(notes: Sequence[ColumnNote]) -> Table:
    """Return a table of the columns with their kinds of identifiers; identifiers and sensitive columns come first."""
    rows = [
        (
            shorten_text(one.name),
            one.role,
            one.kind or "none",
            one.published + "; sensitive by its name" * one.sensitive,
        )
        for one in sorted(notes, key=lambda one: not (one.kind or one.sensitive))
    ]
    return Table(("column", "role", "identifier (HIPAA)", "as published"), rows, (), "Columns and identifiers")


# Tables and pictures of a release -------------------------------------------------------------------------------------
# The tables and charts of a release whose checks hold.

MOST_SHOWN_ROWS = 200  # most rows of a table
DRAWN = 30  # most bars of a chart
SMALL, SEVERAL = 50, 5  # least count of an answer that gets a sentence, and least number of answers of its size
OURS = ESTIMATORS["reconstructed"]
Row = list[object]
Bound = tuple[str, float, float, float | None]  # value, bound, highest belief, share of the records


def list_tables(learnt: VerifiedFacts, published: int | None) -> dict[str, Table]:
    """Return the tables of a page by their names in its template. A table with nothing to show has no rows.

    Args:
        learnt: The facts of the release.
        published: The number of published records; None if it is not stated.
    """
    compared, known = learnt.compared, learnt.compared is not None
    stated = published if any(one.records is not None for one in learnt.bounds) else None
    theirs = any(one.bounds is not None for one in learnt.foreseen)
    bounds = ["value", "bound", "reached", *([] if stated is None else ["share of the records"])]
    guesses = ["guesses that are right"] if known else []
    adversaries = ["adversary", "outcome", "sure of its guess, on average", "at most", *guesses, "by guessing alone"]
    farther = any(one.error is None for one in learnt.foreseen[:1])
    sizes = ["size of the answer, records", "answers", "expected error", "expected error / answer"]
    sizes += ["distance of the farther certain bound" if farther else "half of the 95 % interval"]
    sizes += [f"half of the literature's {'bounds' if learnt.certain else 'interval'}"] if theirs else []
    measured = ["estimator", "true answer, records", "answers", "mean error", "median error", "within its interval"]
    thresholds = ["threshold", "highest belief, promised", "belief of the learning attacker, predicted"]
    thresholds += ["error of a count of 200 to 1,000, predicted", "refused"]
    shown = [_bound_row(one, stated) for one in learnt.bounds[:MOST_SHOWN_ROWS]]
    findings = [_adversary_row(one, known=known) for one in learnt.findings]
    foreseen = [_size_row(one, theirs=theirs) for one in learnt.foreseen]
    pairs = [_pair_row(*one) for one in compared.pairs] if compared else []
    return {
        "bounds": Table(bounds, shown, range(1, 4), "Bounds that were verified"),
        "adversaries": Table(adversaries, findings, range(2, 6), "Adversaries"),
        "sizes": Table(sizes, foreseen, range(1, 6), "Answers by size, from the release alone"),
        "measured": Table(measured, _measured_rows(compared), range(2, 6), "Errors beside the true answers"),
        "pairs": Table(("true answer", "estimate", "low", "high"), pairs, range(4), "Some answers singly"),
        "curve": Table(thresholds, _curve_rows(learnt.curve), range(1, 4), "Other thresholds"),
    }


def shape_contents(learnt: VerifiedFacts, published: int | None) -> dict[str, object]:
    """Return the tables and charts of a page by their names in its template. A chart with nothing to show is empty.

    Args:
        learnt: The facts of the release.
        published: The number of published records; None if it is not stated.
    """
    compared = learnt.compared
    stated = published if any(one.records is not None for one in learnt.bounds) else None
    return {
        **list_tables(learnt, published),
        "more_bounds": max(0, len(learnt.bounds) - MOST_SHOWN_ROWS),
        "alike": _describe_equal_bounds(learnt.bounds),
        "bounds_chart": _draw_bounds(learnt.bounds, stated),
        "parts": [
            (part, _tabulate_structure(part), _draw_structure(part, k)) for k, part in enumerate(learnt.structure)
        ],
        "reached_chart": _draw_reached(learnt),
        "classes": tabulate_classes(learnt),
        "small_values": [one.records for one in learnt.bounds if one.records is not None and not one.group],
        "columns": tabulate_columns(learnt.columns),
        "sizes_chart": _draw_sizes(learnt.foreseen),
        "typical": _choose_typical(learnt.foreseen),
        "measured_chart": _draw_errors(compared) if compared else "",
        "intervals_chart": _draw_intervals(compared) if compared and compared.pairs else "",
        "curve_chart": _draw_curve(learnt.curve),
    }


# What is promised ---


def _bound_row(one: VerifiedBound, published: int | None) -> Row:
    """Return a table row: a value, its bound, the highest belief in it, and the share of records that have it.

    The share is left out if the number of published records is None.
    """
    shape = _format_probability if one.belief else lambda text: shorten_text(typeset_relations(readable_text(text)))
    reached = ["none: not protected", None] if one.belief and not one.protects else map(shape, (one.bound, one.found))
    row: Row = [shorten_text(one.value), *reached]
    return row if published is None else [*row, format_share(_records_share(one, published))]


def _format_probability(text: str) -> Html | str:
    """Return a probability in percent, followed by its exact fraction if that says more; other texts are unchanged."""
    probability = _parse_probability(text)
    if probability is None:
        return shorten_text(typeset_relations(text))
    return format_share(probability) + (f" ({text})" if "/" in text else "")


def _parse_probability(text: str) -> float | None:
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
    return float(number) if 0 <= number <= 1 else None


def _records_share(one: VerifiedBound, published: int | None) -> float | None:
    return one.records / published if one.records is not None and published else None


def _describe_equal_bounds(bounds: Sequence[VerifiedBound]) -> str:
    """Return a sentence if several bounds are all equal; otherwise an empty text."""
    if len(bounds) < 2 or len({(one.bound, one.found) for one in bounds}) > 1 or not bounds[0].protects:
        return ""
    known = ((text, _parse_probability(text)) for text in (bounds[0].bound, bounds[0].found))
    bound, reached = (printable_text(text if share is None else format_share(share), 60) for text, share in known)
    return f"All {len(bounds):,} have the same bound, {bound}; {reached} is reached."


def _draw_bounds(bounds: Sequence[VerifiedBound], published: int | None) -> str:
    """Return a chart of the bounds of protected values and the highest beliefs in them."""
    known = [
        (one.value, bound, reached, _records_share(one, published))
        for one in bounds
        if one.protects
        and (bound := _parse_probability(one.bound)) is not None
        and (reached := _parse_probability(one.found)) is not None
    ]
    known, which = _choose_drawn(known)
    if len({one[1:3] for one in known}) < 2:  # all are equal: a table shows that
        return ""
    caption = f"Orange: the bound; blue: the highest probability that the release leads to{which}."
    room = min(bound - reached for _, bound, reached, _ in known)
    used = "some value reaches its bound" if room <= 1e-12 else f"the nearest stays {100 * room:.2g} points below it"
    return draw_figure(
        plot.chart_bounds(known), "bounds", "Bounds, and the highest values", caption, f"Of these, {used}."
    )


def _choose_drawn(known: list[Bound]) -> tuple[list[Bound], str]:
    """Choose the bounds that a chart has room for.

    Returns:
        The bounds, and words that say which these are. The words are empty if these are all bounds; otherwise they say
        that only bounds of groups are shown, or those that are most nearly reached.
    """
    if len(known) <= plot.FEW or all(one[3] for one in known):
        return known, ""
    groups = [one for one in known if one[3] is None]
    if 1 < len(groups) <= DRAWN and len(groups) < len(known):
        return groups, "; of columns and groups of values, not of single values"
    nearest = sorted(known, key=lambda one: one[2] - one[1], reverse=True)[:DRAWN]
    return nearest, f"; the {DRAWN} that are nearest to their bounds" if len(known) > DRAWN else ""


# What the release is made of ---


def _tabulate_structure(part: Structure) -> Table:
    rows = [[shorten_text(row[0]), *map(_format_cell, row[1:])] for row in part.rows]
    return Table(part.head, rows, range(1, len(part.head)), part.title)


def _format_cell(value: Any) -> object:
    if is_number(value):
        return format_figure(value, 4)
    probability = _parse_probability(value) if isinstance(value, str) and "/" in value else None
    return shorten_text(value) if probability is None else f"{format_figure(probability)} ({value})"


def _draw_structure(part: Structure, number: int) -> str:
    if part.drawn is None or len(part.rows) < 2:
        return ""
    name, title = part.head[0], part.head[part.drawn]
    chart = plot.chart_structure([(str(row[0]), float(row[part.drawn])) for row in part.rows], (name, title))
    return draw_figure(chart, f"part{number}", part.title, f"{title.capitalize()} by {name}.")


# What adversaries learn ---


def _adversary_row(one: Finding, *, known: bool) -> Row:
    """Return a table row: an adversary, its knowledge, whether a promise holds, its certainty, and right guesses.

    Args:
        one: What the adversary found.
        known: Whether the source is known, so that the table has a column for the share of right guesses.
    """
    knows = "; ".join((f"knows {one.knows}", *one.notes))
    who = Html(f'<strong>{shorten_text(one.adversary)}</strong><br><span class="quiet">{clean_text(knows, 300)}</span>')
    highest = one.highest if one.mean is not None else None
    shares = (one.mean, highest, *([one.right] if known else []), one.baseline)
    return [who, one.outcome, *map(format_share, shares)]


def _draw_reached(learnt: VerifiedFacts) -> str:
    """Return a chart of each adversary's certainty, beside the promise and guesses made without the release."""
    promise, reached = learnt.summary.lines["promise"].figures.get("reached"), list_reached(learnt)
    known = any(one.right is not None for one, _ in reached)
    if not reached:
        return ""
    promised, about, beyond, alone = plot.REACHED
    rows = [("promised: at most", promised, float(promise))] if promise is not None else []
    for one, share in reached:
        name = ATTACKERS.get(one.adversary, one.adversary) + "*" * (known and one.right is None)
        rows.append((name, about if one.promised else beyond, share))
    rows += [("knows all others, no release", alone, learnt.population)] if learnt.population is not None else []
    guess = next(((one.unit, one.baseline) for one, _ in reached if one.baseline), None)
    if guess is not None:
        rows.append(("guesses the commonest value" if guess[0] == "records" else "even odds", alone, guess[1]))
    measure = "how many best guesses are right" if known else "how sure of the best guess, on average"
    caption = f"What each known attacker reaches beside what is promised. Bars: {measure}."
    caption += " The promise is about the surest guess on any record." if promise is not None else ""
    caption += " *: expected, not compared with the truth." if any(name.endswith("*") for name, *_ in rows) else ""
    return draw_figure(plot.chart_reached(rows), "who", "What attackers reach, and what is promised", caption)


# How good answers are ---


def _size_row(one: ExpectedAccuracy, *, theirs: bool) -> Row:
    """Return the table row for answers of one size.

    Args:
        one: The expected accuracy.
        theirs: Whether the table has a column for the bounds of the literature's formula (estimator ``baseline``).
    """
    relative = one.error / one.estimate if one.error is not None and one.estimate else None
    figures = [format_figure(one.error, 2), _format_error(relative), format_figure(one.half_width, 2)]
    return [band_label(vars(one)), f"{one.answers:,}", *figures, *([format_figure(one.bounds, 2)] if theirs else [])]


def _choose_typical(sizes: Sequence[ExpectedAccuracy]) -> list[ExpectedAccuracy]:
    """Return a small and a large size of answers for one sentence each; fewer if there are no two such sizes."""
    known = [one for one in sizes if one.estimate >= SMALL and one.answers >= SEVERAL and one.error is not None]
    return known[:1] + known[-1:] if len(known) > 1 else known


def _draw_sizes(sizes: Sequence[ExpectedAccuracy]) -> str:
    """Return a chart of the relative errors of counts by their size."""
    most, rows = any(one.error is None for one in sizes), []
    for one in sizes:
        error = one.half_width if most else one.error
        if one.estimate and error:
            share = error / one.estimate
            figure = f"{format_figure(error, 2)} ({_format_error(share)})"
            rows.append((f"{band_label(vars(one))} records", share, figure))
    if not rows:
        return ""
    far = "is off at most" if most else "is off on average"
    caption = f"How far a count of each size {far}: in records, and as a share of the count. A full bar is the count."
    return draw_figure(plot.chart_count_errors(rows), "sizes", "Error of counts by size", caption)


def _pair_row(true: float, estimate: float, low: float | None, high: float | None) -> Row:
    figures = format_estimate(estimate, None, low, high)
    return [format_exact(true), *(format_figure(None) if one is None else one for one in (figures[0], *figures[2:]))]


def _measured_rows(compared: TruthComparison | None) -> list[Row]:
    rows: list[Row] = []
    for name, score in compared.scores.items() if compared else ():
        for band in (*score["bands"], {**score, "low": None}):
            label = "all" if band["low"] is None else band_label(band)
            errors = [_format_error(band[key]) for key in ("mean_relative_error", "median_relative_error")]
            figures = [*errors, format_share(band["coverage"])]
            rows.append([ESTIMATORS.get(name, name), label, f"{band['queries']:,}", *figures])
    return rows


def _format_error(share: float | None) -> str:
    """Return an error as a percentage of the answer, or in words if it is larger than the answer."""
    return "more than the answer" if share is not None and share > 1 else format_share(share)


def _draw_errors(compared: TruthComparison) -> str:
    rows = [
        {"low": band["low"], "name": ESTIMATORS.get(name, name), "error": band["mean_relative_error"]}
        for name, score in compared.scores.items()
        for band in score["bands"]
        if band["mean_relative_error"]
    ]
    if len({row["low"] for row in rows}) < 2:
        return ""
    caption = "Mean error of answers beside the true ones, as a share of these; the lower, the better."
    lines: dict[str, list[object]] = {}
    for row in rows:
        lines.setdefault(row["name"], []).append((row["low"], row["error"]))
    same = len(lines) > 1 and len({tuple(line) for line in lines.values()}) == 1
    more = "All estimators give the same answers, so there is one line." if same else ""
    chart = plot.chart_errors(rows, plot.ERROR)
    return draw_figure(chart, "errors", "Error by size of the true answer", caption, more)


def _curve_rows(curve: Curve | None) -> list[Row]:
    """Return a table row for each threshold: the highest belief and predicted errors, or why it can't be met."""
    rows: list[Row] = []
    for one in curve.rows if curve else ():
        figures = [format_share(one.figures.get(measure.key)) for measure in (curve.measures if curve else ())]
        rows.append([one.algorithm, *figures, one.refused or ""])
    return rows


def _draw_curve(curve: Curve | None) -> str:
    """Return a chart of predicted figures by threshold; empty if less than two thresholds can be met."""
    rows = curve.points if curve else []
    if len(rows) < 2:
        return ""
    caption = "Blue: promised. Orange and purple: predicted from the source, without publishing."
    return draw_figure(plot.chart_curve(rows), "curve", "Other thresholds", caption)


def _draw_intervals(compared: TruthComparison) -> str:
    inside = [low <= true <= high for true, _, low, high in compared.pairs if low is not None and high is not None]
    caption = (
        f"{len(compared.pairs)} of the questions: the estimate with its interval over the true answer. On the dashed "
        f"line both are the same. Of {len(inside)} intervals that are shown {sum(inside)} hold the true answer."
    )
    chart = plot.chart_estimates([(OURS, *pair) for pair in compared.pairs])
    return draw_figure(chart, "truth", "Estimates over true answers", caption)


# Report ---------------------------------------------------------------------------------------------------------------
# The page of a report, as HTML made from its facts.

ENDINGS = (".html", ".htm")
MOST_TABLE_ROWS = 100  # most rows of a table
WIDE = 400  # most characters of a cell


def require_page_target(target: Path) -> None:
    """Refuse a page that could not be drawn or written, before any work is done.

    Raises:
        UsageError: The name of the page is not valid.
        EngineError: The optional packages that draw pages are not installed.
    """
    if target.suffix.lower() not in ENDINGS:
        raise UsageError(f"{target}: the name of a page ends in .html")
    PAGES.require_installed()
    PICTURES.require_installed()


def write_page(report: Report, target: Path) -> None:
    """Write the page of a report as a file, completely or not at all; an existing page is replaced.

    Only its owner can read an internal page.
    """
    text = render_report(report)
    draft: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            draft = Path(file.name)
            file.write(text)
        if not report.internal:
            draft.chmod(private.spare_rights(0o666))
        draft.replace(target)
    except OSError as error:
        if draft is not None:
            with suppress(OSError):
                draft.unlink()
        raise EngineError(f"{target}: can't be written: {error.strerror}; choose another file") from error


def render_report(report: Report) -> str:
    """Return the page of a report as HTML.

    Raises:
        EngineError: The optional packages that draw pages are not installed.
    """
    manifest, learnt = report.manifest, report.learnt
    title = "INTERNAL, shows true counts" if report.internal else "Report on a release"
    title = f"{'' if report.verified else 'NOT VERIFIED: '}{title}: {printable_text(manifest.name, rendering.SHORT)}"
    columns = 3 if any(one.compared for one in report.checks) else 2
    checks = [
        (printable_text(one.name, WIDE), "yes" if one.ok else f"NO ({one.violations:,})", one.compared)[:columns]
        for one in report.checks
    ]
    failed = [(one.name, printable_text("; ".join(one.offending), WIDE)) for one in report.checks if not one.ok]
    parameters = [(rendering.shorten_text(name), _as_text(value)) for name, value in manifest.parameters.items()]
    files = [(rendering.shorten_text(name), digest) for name, digest in report.digests.items()]
    lines = [(name, printable_text(str(value), WIDE)) for name, value in (learnt.lines if learnt else ())]
    named = ("name", "value")
    return rendering.render_page(
        "report.html",
        report=report,
        manifest=manifest,
        title=title,
        failed=Table(("check", "offending"), failed, title="Checks that do not hold"),
        checks=Table(("check", "holds", "compared")[:columns], checks, title="Checks"),
        parameters=Table(named, parameters[:MOST_TABLE_ROWS], title="Parameters"),
        files=Table(("file", "SHA-256"), files[:MOST_TABLE_ROWS], title="Digests"),
        lines=Table(named, lines, title="The release"),
        learnt=learnt,
        headline=state_headline(report),
        conclusion=state_conclusion(report),
        fields=list_fields(manifest),
        people=count_people(manifest),
        shown=shape_contents(learnt, manifest.published) if learnt else None,
    )


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
