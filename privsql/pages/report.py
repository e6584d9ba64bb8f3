"""Build the page of a report from facts of a release: tables and pictures in, HTML out."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql import plot
from privsql.engine.files import private
from privsql.errors import EngineError, UsageError
from privsql.extras import PAGES, PICTURES
from privsql.markup import Html, clean_text, format_figure, format_share, is_number, printable_text
from privsql.pages import rendering
from privsql.pages.rendering import shorten_text, typeset_relations
from privsql.plot import ESTIMATORS, band_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.scene import Finding
    from privsql.model.manifest import CheckResult, Structure, VerifiedBound
    from privsql.pages.rendering import ExpectedAccuracy, Report, TruthComparison, VerifiedFacts

# Tables and pictures of a release -------------------------------------------------------------------------------------
# What a page shows of a release whose checks hold: rows of its tables, and pictures beside them.

MOST_SHOWN_ROWS = 200  # rows of a table
DRAWN = 30  # bars of a picture
SMALL, SEVERAL = 50, 5  # records of an answer that is worth a sentence, and how many answers such a size has
OURS, THEIRS = ESTIMATORS.values()
Row = list[object]
Bound = tuple[str, float, float, float | None]  # value, bound, highest, share


@dataclass(frozen=True)
class Picture:
    """A picture and what it shows, in words."""

    svg: Html
    said: str


@dataclass(frozen=True)
class PageContents:
    """Rows and pictures, by the part of the page in which they stand; pictures are None where they would tell nothing.

    ``typical``: what of an answer's size and error is said in a sentence; ``measured``: rows beside the truth.
    """

    bounds: list[Row]
    more_bounds: int
    alike: str
    bounds_picture: Picture | None
    parts: list[tuple[Structure, list[Row], Picture | None]]
    adversaries: list[Row]
    adversaries_picture: Picture | None
    sizes: list[Row]
    sizes_picture: Picture | None
    typical: list[ExpectedAccuracy]
    measured: list[Row]
    measured_picture: Picture | None
    intervals_picture: Picture | None
    pairs: list[Row]

    @staticmethod
    def from_facts(learnt: VerifiedFacts, published: int | None) -> PageContents:
        """All of it; ``published``: how many records are, where that is stated."""
        compared, known = learnt.compared, learnt.compared is not None
        stated = published if any(one.records is not None for one in learnt.bounds) else None
        return PageContents(
            [_bound_row(one, stated) for one in learnt.bounds[:MOST_SHOWN_ROWS]],
            max(0, len(learnt.bounds) - MOST_SHOWN_ROWS),
            _describe_equal_bounds(learnt.bounds),
            _bounds_picture(learnt.bounds, stated),
            [
                (part, _structure_rows(part), _structure_picture(part, number))
                for number, part in enumerate(learnt.structure)
            ],
            [_adversary_row(one, known=known) for one in learnt.findings],
            _adversaries_picture(learnt.findings, known=known),
            [_size_row(one, theirs=any(two.bounds is not None for two in learnt.foreseen)) for one in learnt.foreseen],
            _sizes_picture(learnt.foreseen),
            _choose_typical(learnt.foreseen),
            _measured_rows(compared) if compared else [],
            _errors_picture(compared) if compared else None,
            _intervals_picture(compared) if compared and compared.pairs else None,
            [[format_figure(one) for one in row] for row in compared.pairs] if compared else [],
        )


# What is promised ---


def _bound_row(one: VerifiedBound, published: int | None) -> Row:
    """What of, the bound, what is reached, and the share of the records where any is stated."""
    shape = _format_probability if one.belief else lambda text: shorten_text(typeset_relations(text))
    row: Row = [shorten_text(one.value), shape(one.bound), shape(one.found)]
    return row if published is None else [*row, format_share(_records_share(one, published))]


def _format_probability(text: str) -> Html | str:
    """A probability in percent, with the fraction where that says more; anything else as it is."""
    probability = _parse_probability(text)
    if probability is None:
        return shorten_text(typeset_relations(text))
    return f"{format_share(float(probability))} ({text})" if "/" in text else format_share(float(probability))


def _parse_probability(text: str) -> Fraction | None:
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
    return number if 0 <= number <= 1 else None


def _records_share(one: VerifiedBound, published: int | None) -> float | None:
    return one.records / published if one.records is not None and published else None


def _describe_equal_bounds(bounds: Sequence[VerifiedBound]) -> str:
    """What is to be said at once of bounds that are the same for all; empty where they differ, or there is one."""
    if len(bounds) < 2 or len({(one.bound, one.found) for one in bounds}) > 1 or not bounds[0].belief:
        return ""
    bound, reached = (printable_text(_as_percent(text), 60) for text in (bounds[0].bound, bounds[0].found))
    return f"All {len(bounds):,} have the same bound, {bound}; {reached} is reached."


def _as_percent(text: str) -> str:
    probability = _parse_probability(text)
    return text if probability is None else format_share(float(probability))


def _bounds_picture(bounds: Sequence[VerifiedBound], published: int | None) -> Picture | None:
    """Bounds beside what is reached, of those that are probabilities."""
    rows = [(one, _parse_probability(one.bound), _parse_probability(one.found)) for one in bounds if one.belief]
    known = [
        (one.value, float(bound), float(reached), _records_share(one, published))
        for one, bound, reached in rows
        if bound is not None and reached is not None
    ]
    known, which = _choose_drawn(known)
    if len({one[1:3] for one in known}) < 2:  # all alike: the table says it
        return None
    caption = f"Orange: the bound; blue: the highest probability that the release leads to{which}."
    nearest = max(known, key=lambda one: one[2] - one[1])
    room = nearest[1] - nearest[2]
    used = "some value uses its bound up" if room <= 1e-12 else f"the nearest stays {100 * room:.2g} points below it"
    chart = plot.chart_bounds(known)
    return Picture(
        rendering.draw_svg(chart, "bounds", "Bounds, and what is reached", caption), f"{caption} Of these, {used}."
    )


def _choose_drawn(known: list[Bound]) -> tuple[list[Bound], str]:
    """Those that a picture can show, and which these are: all, those of groups of values alone, or the nearest ones."""
    if len(known) <= plot.FEW or all(one[3] for one in known):
        return known, ""
    groups = [one for one in known if one[3] is None]
    if 1 < len(groups) <= DRAWN and len(groups) < len(known):
        return groups, "; of columns and groups of values, not of single values"
    nearest = sorted(known, key=lambda one: one[2] - one[1], reverse=True)[:DRAWN]
    return nearest, f"; the {DRAWN} that are nearest to their bounds" if len(known) > DRAWN else ""


# What it is made of ---


def _structure_rows(part: Structure) -> list[Row]:
    return [[shorten_text(row[0]), *(_format_cell(one) for one in row[1:])] for row in part.rows]


def _format_cell(value: Any) -> object:
    if is_number(value):
        return format_figure(value, 4)
    probability = _parse_probability(value) if isinstance(value, str) and "/" in value else None
    return shorten_text(value) if probability is None else f"{format_figure(float(probability))} ({value})"


def _structure_picture(part: Structure, number: int) -> Picture | None:
    if part.drawn is None or len(part.rows) < 2:
        return None
    caption = f"{part.head[part.drawn].capitalize()} by {part.head[0]}."
    rows = [(str(row[0]), float(row[part.drawn])) for row in part.rows]
    chart = plot.chart_structure(rows, (part.head[0], part.head[part.drawn]))
    return Picture(rendering.draw_svg(chart, f"part{number}", part.title, caption), caption)


# Who could learn what ---


def _adversary_row(one: Finding, *, known: bool) -> Row:
    """Who it is and what it knows, what became of the promise, how sure it is, and how often right."""
    knows = "; ".join((f"knows {one.knows}", *one.notes))
    who = Html(f'<strong>{shorten_text(one.adversary)}</strong><br><span class="quiet">{clean_text(knows, 300)}</span>')
    figures = [
        format_share(one.mean),
        format_share(one.highest if one.mean is not None else None),
        *([format_share(one.right)] if known else []),
        format_share(one.baseline),
    ]
    return [who, one.outcome, *figures]


def _adversaries_picture(all_findings: Sequence[Finding], *, known: bool) -> Picture | None:
    findings = [one for one in all_findings if one.applies and one.mean is not None and one.unit != "columns"]
    if not findings:
        return None
    marks = "Bar: how sure on average; stroke: of the record that is surest"
    circle = (
        "; circle: how many best guesses are right" if known and any(one.right is not None for one in findings) else ""
    )
    dotted = "; dashed: by guessing alone" if any(one.baseline for one in findings) else ""
    caption = f"{marks}{circle}{dotted}."
    surest = max(findings, key=lambda one: one.mean or 0)
    name = printable_text(surest.adversary, 60)
    more = f" The surest on average is \u201c{name}\u201d, with {format_share(surest.mean)}."
    chart = plot.chart_adversaries(findings)
    return Picture(
        rendering.draw_svg(chart, "who", "How sure adversaries are of their best guess", caption), caption + more
    )


# How good answers are ---


def _size_row(one: ExpectedAccuracy, *, theirs: bool) -> Row:
    """``theirs``: whether the literature's formula has ends at all."""
    relative = one.error / one.estimate if one.error is not None and one.estimate else None
    figures = [format_figure(one.error), format_share(relative), format_figure(one.half_width)]
    return [band_label(vars(one)), f"{one.answers:,}", *figures, *([format_figure(one.bounds)] if theirs else [])]


def _choose_typical(sizes: Sequence[ExpectedAccuracy]) -> list[ExpectedAccuracy]:
    """A small answer and a large one."""
    known = [one for one in sizes if one.estimate >= SMALL and one.answers >= SEVERAL and one.error is not None]
    return known[:1] + known[-1:] if len(known) > 1 else known


def _sizes_picture(sizes: Sequence[ExpectedAccuracy]) -> Picture | None:
    """Draw half of the interval beside half of the literature's bounds, relative to the answer."""
    rows = [
        {"low": one.low, "name": name, "error": half / one.estimate}
        for one in sizes
        for name, half in ((OURS, one.half_width), (THEIRS, one.bounds))
        if half and one.estimate
    ]
    if len({row["low"] for row in rows}) < 2:
        return None
    caption = "How far the interval reaches to either side, as a share of the answer; the lower, the better."
    chart = plot.chart_errors(rows, "half of the interval / answer")
    return Picture(rendering.draw_svg(chart, "sizes", "Length of intervals by size of the answer", caption), caption)


def _measured_rows(compared: TruthComparison) -> list[Row]:
    rows: list[Row] = []
    for name, score in compared.scores.items():
        for band in (*score["bands"], {**score, "low": None}):
            label = "all" if band["low"] is None else band_label(band)
            errors = [format_share(band[key]) for key in ("mean_relative_error", "median_relative_error", "coverage")]
            rows.append([ESTIMATORS.get(name, name), label, f"{band['queries']:,}", *errors])
    return rows


def _errors_picture(compared: TruthComparison) -> Picture | None:
    rows = [
        {"low": band["low"], "name": ESTIMATORS.get(name, name), "error": band["mean_relative_error"]}
        for name, score in compared.scores.items()
        for band in score["bands"]
        if band["mean_relative_error"]
    ]
    if len({row["low"] for row in rows}) < 2:
        return None
    caption = "Mean error of answers beside the true ones, as a share of these; the lower, the better."
    by_name = [sorted((row["low"], row["error"]) for row in rows if row["name"] == name) for name in (OURS, THEIRS)]
    caption += " Both estimators give the same, so that one line is seen." if by_name[0] == by_name[1] else ""
    chart = plot.chart_errors(rows, plot.ERROR)
    return Picture(rendering.draw_svg(chart, "errors", "Error by size of the true answer", caption), caption)


def _intervals_picture(compared: TruthComparison) -> Picture:
    inside = [low <= true <= high for true, _, low, high in compared.pairs if low is not None and high is not None]
    caption = (
        f"{len(compared.pairs)} of the questions: the estimate with its interval over the true answer. On the dashed "
        f"line both are the same. Of {len(inside)} intervals that are shown {sum(inside)} hold the true answer."
    )
    chart = plot.chart_estimates([(OURS, *pair) for pair in compared.pairs])
    return Picture(rendering.draw_svg(chart, "truth", "Estimates over true answers", caption), caption)


# Report ---------------------------------------------------------------------------------------------------------------
# The page of a report: facts in, HTML out. What stands in it of a release is escaped, cleaned and cut.

ENDINGS = (".html", ".htm")
MOST_TABLE_ROWS = 100  # rows of a table
WIDE = 400  # characters of a cell


def require_page_target(target: Path) -> None:
    """``UsageError`` for what is no name of a page, ``EngineError`` without what draws one: better known at once."""
    if target.suffix.lower() not in ENDINGS:
        raise UsageError(f"--to {target}: a page ends in .html")
    PAGES.require_installed()
    PICTURES.require_installed()


def write_page(report: Report, target: Path) -> None:
    """The page as a file, whole or not at all; an internal one is for its owner alone. ``EngineError`` if it can't be.

    A page that is there is replaced.
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
        raise EngineError(f"{target}: can't be written: {error.strerror}") from error


def render_report(report: Report) -> str:
    """The page as text; ``EngineError`` where what makes it is not installed."""
    manifest = report.manifest
    return rendering.render_page(
        "report.html",
        report=report,
        manifest=manifest,
        title=_page_title(report),
        failed=[one for one in report.checks if not one.ok],
        failed_rows=[(one.name, printable_text("; ".join(one.offending), WIDE)) for one in report.checks if not one.ok],
        checks=[(_check_cell(one), "yes" if one.ok else f"NO ({one.violations:,})") for one in report.checks],
        parameters=[(rendering.shorten_text(name), _as_text(value)) for name, value in manifest.parameters.items()][
            :MOST_TABLE_ROWS
        ],
        files=[(rendering.shorten_text(name), digest) for name, digest in report.digests.items()][:MOST_TABLE_ROWS],
        lines=[(name, printable_text(str(value), WIDE)) for name, value in _manifest_lines(report)],
        learnt=report.learnt,
        shown=None if report.learnt is None else PageContents.from_facts(report.learnt, manifest.published),
    )


def _page_title(report: Report) -> str:
    kind = "INTERNAL, shows true counts" if report.internal else "Report on a release"
    return (
        f"{'' if report.verified else 'NOT VERIFIED: '}{kind}: {printable_text(report.manifest.name, rendering.SHORT)}"
    )


def _check_cell(one: CheckResult) -> Html:
    """A check, and what it compared where it says so."""
    compared = f'<br><span class="quiet">{clean_text(one.compared, WIDE)}</span>' if one.compared else ""
    return Html(clean_text(one.name, WIDE) + compared)


def _manifest_lines(report: Report) -> list[tuple[str, object]]:
    """What the release says of itself, without its parameters, which have a table of their own."""
    return [one for one in report.learnt.lines if one[0] != "asked for"] if report.learnt else []


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
