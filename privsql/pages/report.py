"""Build the page of a report from facts of a release: tables and pictures in, HTML out."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.engine.files import private
from privsql.errors import EngineError, UsageError
from privsql.extras import PAGES, PICTURES
from privsql.markup import Html, cleaned, is_number, plain
from privsql.pages import rendering
from privsql.pages.rendering import OURS, THEIRS, figure, relations, share, short
from privsql.plot import band_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.scene import Finding
    from privsql.model.manifest import Promised, Result, Structure
    from privsql.pages.rendering import Compared, Foreseen, Learnt, Report

# Tables and pictures of a release -------------------------------------------------------------------------------------
# What a page shows of a release whose checks hold: rows of its tables, and pictures beside them.

MOST_SHOWN_ROWS = 200  # rows of a table
DRAWN = 30  # bars of a picture
SMALL, SEVERAL = 50, 5  # records of an answer that is worth a sentence, and how many answers such a size has
NAMES = {"reconstructed": OURS, "baseline": THEIRS}
Row = list[object]
Bound = tuple[str, float, float, float | None]  # value, bound, highest, share


@dataclass(frozen=True)
class Picture:
    """A picture and what it shows, in words."""

    svg: Html
    said: str


@dataclass(frozen=True)
class Shown:
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
    typical: list[Foreseen]
    measured: list[Row]
    measured_picture: Picture | None
    intervals_picture: Picture | None
    pairs: list[Row]

    @staticmethod
    def of(learnt: Learnt, published: int | None) -> Shown:
        """All of it; ``published``: how many records are, where that is stated."""
        compared, known = learnt.compared, learnt.compared is not None
        stated = published if any(one.records is not None for one in learnt.bounds) else None
        return Shown(
            [_bound(one, stated) for one in learnt.bounds[:MOST_SHOWN_ROWS]],
            max(0, len(learnt.bounds) - MOST_SHOWN_ROWS),
            _alike(learnt.bounds),
            _bounds(learnt.bounds, stated),
            [(part, _rows(part), _part(part, number)) for number, part in enumerate(learnt.structure)],
            [_adversary(one, known=known) for one in learnt.findings],
            _adversaries(learnt.findings, known=known),
            [_size(one, theirs=any(two.bounds is not None for two in learnt.foreseen)) for one in learnt.foreseen],
            _sizes(learnt.foreseen),
            _typical(learnt.foreseen),
            _measured(compared) if compared else [],
            _errors(compared) if compared else None,
            _intervals(compared) if compared and compared.pairs else None,
            [[figure(one) for one in row] for row in compared.pairs] if compared else [],
        )


# What is promised ---


def _bound(one: Promised, published: int | None) -> Row:
    """What of, the bound, what is reached, and the share of the records where any is stated."""
    shape = _probability if one.belief else lambda text: short(relations(text))
    own: Row = [short(one.value), shape(one.bound), shape(one.found)]
    return own if published is None else [*own, share(_share(one, published))]


def _probability(text: str) -> Html | str:
    """A probability in percent, with the fraction where that says more; anything else as it is."""
    found = _number(text)
    if found is None:
        return short(relations(text))
    return f"{share(float(found))} ({text})" if "/" in text else share(float(found))


def _number(text: str) -> Fraction | None:
    try:
        found = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
    return found if 0 <= found <= 1 else None


def _share(one: Promised, published: int | None) -> float | None:
    return one.records / published if one.records is not None and published else None


def _alike(given: Sequence[Promised]) -> str:
    """What is to be said at once of bounds that are the same for all; empty where they differ, or there is one."""
    if len(given) < 2 or len({(one.bound, one.found) for one in given}) > 1 or not given[0].belief:
        return ""
    bound, found = (plain(_percent(text), 60) for text in (given[0].bound, given[0].found))
    return f"All {len(given):,} have the same bound, {bound}; {found} is reached."


def _percent(text: str) -> str:
    found = _number(text)
    return text if found is None else share(float(found))


def _bounds(given: Sequence[Promised], published: int | None) -> Picture | None:
    """Bounds beside what is reached, of those that are probabilities."""
    rows = [(one, _number(one.bound), _number(one.found)) for one in given if one.belief]
    known = [
        (one.value, float(bound), float(found), _share(one, published))
        for one, bound, found in rows
        if bound is not None and found is not None
    ]
    known, which = _drawn(known)
    if len({one[1:3] for one in known}) < 2:  # all alike: the table says it
        return None
    said = f"Orange: the bound; blue: the highest probability that the release leads to{which}."
    nearest = max(known, key=lambda one: one[2] - one[1])
    room = nearest[1] - nearest[2]
    used = "some value uses its bound up" if room <= 1e-12 else f"the nearest stays {100 * room:.2g} points below it"
    chart = rendering.bounds(known)
    return Picture(
        rendering.draw_svg(chart, "bounds", "Bounds, and what is reached", said), f"{said} Of these, {used}."
    )


def _drawn(known: list[Bound]) -> tuple[list[Bound], str]:
    """Those that a picture can show, and which these are: all, those of groups of values alone, or the nearest ones."""
    if len(known) <= rendering.FEW or all(one[3] for one in known):
        return known, ""
    groups = [one for one in known if one[3] is None]
    if 1 < len(groups) <= DRAWN and len(groups) < len(known):
        return groups, "; of columns and groups of values, not of single values"
    nearest = sorted(known, key=lambda one: one[2] - one[1], reverse=True)[:DRAWN]
    return nearest, f"; the {DRAWN} that are nearest to their bounds" if len(known) > DRAWN else ""


# What it is made of ---


def _rows(part: Structure) -> list[Row]:
    return [[short(row[0]), *(_cell(one) for one in row[1:])] for row in part.rows]


def _cell(value: Any) -> object:
    if is_number(value):
        return figure(value, 4)
    found = _number(value) if isinstance(value, str) and "/" in value else None
    return short(value) if found is None else f"{figure(float(found))} ({value})"


def _part(part: Structure, number: int) -> Picture | None:
    if part.drawn is None or len(part.rows) < 2:
        return None
    said = f"{part.head[part.drawn].capitalize()} by {part.head[0]}."
    return Picture(rendering.draw_svg(rendering.structure(part), f"part{number}", part.title, said), said)


# Who could learn what ---


def _adversary(one: Finding, *, known: bool) -> Row:
    """Who it is and what it knows, what became of the promise, how sure it is, and how often right."""
    knows = "; ".join((f"knows {one.knows}", *one.notes))
    who = Html(f'<strong>{short(one.adversary)}</strong><br><span class="quiet">{cleaned(knows, 300)}</span>')
    figures = [
        share(one.mean),
        share(one.highest if one.mean is not None else None),
        *([share(one.right)] if known else []),
        share(one.baseline),
    ]
    return [who, one.kept, *figures]


def _adversaries(given: Sequence[Finding], *, known: bool) -> Picture | None:
    findings = [one for one in given if one.applies and one.mean is not None and one.unit != "columns"]
    if not findings:
        return None
    marks = "Bar: how sure on average; stroke: of the record that is surest"
    circle = (
        "; circle: how many best guesses are right" if known and any(one.right is not None for one in findings) else ""
    )
    dotted = "; dashed: by guessing alone" if any(one.baseline for one in findings) else ""
    said = f"{marks}{circle}{dotted}."
    surest = max(findings, key=lambda one: one.mean or 0)
    more = f" The surest on average is \u201c{plain(surest.adversary, 60)}\u201d, with {share(surest.mean)}."
    chart = rendering.adversaries(findings)
    return Picture(rendering.draw_svg(chart, "who", "How sure adversaries are of their best guess", said), said + more)


# How good answers are ---


def _from(low: float) -> str:
    """A range of answers within a picture."""
    return f"{low:,.0f}+"


def _size(one: Foreseen, *, theirs: bool) -> Row:
    """``theirs``: whether the literature's formula has ends at all."""
    relative = one.error / one.estimate if one.error is not None and one.estimate else None
    figures = [figure(one.error), share(relative), figure(one.half_width)]
    return [band_label(vars(one)), f"{one.answers:,}", *figures, *([figure(one.bounds)] if theirs else [])]


def _typical(given: Sequence[Foreseen]) -> list[Foreseen]:
    """A small answer and a large one."""
    known = [one for one in given if one.estimate >= SMALL and one.answers >= SEVERAL and one.error is not None]
    return known[:1] + known[-1:] if len(known) > 1 else known


def _sizes(given: Sequence[Foreseen]) -> Picture | None:
    """Half of the interval beside half of the literature's bounds, relative to the answer."""
    rows = []
    for one in given:
        for name, half in ((OURS, one.half_width), (THEIRS, one.bounds)):
            if half and one.estimate:
                rows.append((_from(one.low), name, half / one.estimate))
    if len({size for size, _, _ in rows}) < 2:
        return None
    said = "How far the interval reaches to either side, as a share of the answer; the lower, the better."
    chart = rendering.errors(rows, "half of the interval / answer")
    return Picture(rendering.draw_svg(chart, "sizes", "Length of intervals by size of the answer", said), said)


def _measured(compared: Compared) -> list[Row]:
    rows: list[Row] = []
    for name, score in compared.scores.items():
        for band in (*score["bands"], {**score, "low": None}):
            label = "all" if band["low"] is None else band_label(band)
            errors = [share(band[key]) for key in ("mean_relative_error", "median_relative_error", "coverage")]
            rows.append([NAMES.get(name, name), label, f"{band['queries']:,}", *errors])
    return rows


def _errors(compared: Compared) -> Picture | None:
    rows = [
        (_from(band["low"]), NAMES.get(name, name), band["mean_relative_error"], band["low"])
        for name, score in compared.scores.items()
        for band in score["bands"]
        if band["mean_relative_error"]
    ]
    rows.sort(key=lambda row: row[3])
    if len({row[0] for row in rows}) < 2:
        return None
    said = "Mean error of answers beside the true ones, as a share of these; the lower, the better."
    by_name = [[row[2] for row in rows if row[1] == name] for name in (OURS, THEIRS)]
    said += " Both estimators give the same, so that one line is seen." if by_name[0] == by_name[1] else ""
    chart = rendering.errors([row[:3] for row in rows], "mean error / true answer")
    return Picture(rendering.draw_svg(chart, "errors", "Error by size of the true answer", said), said)


def _intervals(compared: Compared) -> Picture:
    inside = [low <= true <= high for true, _, low, high in compared.pairs if low is not None and high is not None]
    said = (
        f"{len(compared.pairs)} of the questions: the estimate with its interval over the true answer. On the dashed "
        f"line both are the same. Of {len(inside)} intervals that are shown {sum(inside)} hold the true answer."
    )
    return Picture(
        rendering.draw_svg(rendering.intervals(compared), "truth", "Estimates over true answers", said), said
    )


# Report ---------------------------------------------------------------------------------------------------------------
# The page of a report: facts in, HTML out. What stands in it of a release is escaped, cleaned and cut.

ENDINGS = (".html", ".htm")
MOST_TABLE_ROWS = 100  # rows of a table
WIDE = 400  # characters of a cell


def ready(target: Path) -> None:
    """``UsageError`` for what is no name of a page, ``EngineError`` without what draws one: better known at once."""
    if target.suffix.lower() not in ENDINGS:
        raise UsageError(f"--to {target}: a page ends in .html")
    PAGES.need()
    PICTURES.need()


def write(report: Report, target: Path) -> None:
    """The page as a file, whole or not at all; an internal one is for its owner alone. ``EngineError`` if it can't be.

    A page that is there is replaced.
    """
    text = html(report)
    made: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            made = Path(file.name)
            file.write(text)
        if not report.internal:
            made.chmod(private.spare(0o666))
        made.replace(target)
    except OSError as error:
        if made is not None:
            with suppress(OSError):
                made.unlink()
        raise EngineError(f"{target}: can't be written: {error.strerror}") from error


def html(report: Report) -> str:
    """The page as text; ``EngineError`` where what makes it is not installed."""
    manifest = report.manifest
    return rendering.page(
        "report.html",
        report=report,
        manifest=manifest,
        title=_title(report),
        failed=[one for one in report.checks if not one.ok],
        failed_rows=[(one.name, plain("; ".join(one.offending), WIDE)) for one in report.checks if not one.ok],
        checks=[(_check(one), "yes" if one.ok else f"NO ({one.violations:,})") for one in report.checks],
        parameters=[(rendering.short(name), _text(value)) for name, value in manifest.parameters.items()][
            :MOST_TABLE_ROWS
        ],
        files=[(rendering.short(name), digest) for name, digest in report.digests.items()][:MOST_TABLE_ROWS],
        lines=[(name, plain(str(value), WIDE)) for name, value in _lines(report)],
        learnt=report.learnt,
        shown=None if report.learnt is None else Shown.of(report.learnt, manifest.published),
    )


def _title(report: Report) -> str:
    kind = "INTERNAL, shows true counts" if report.internal else "Report on a release"
    return f"{'' if report.verified else 'NOT VERIFIED: '}{kind}: {plain(report.manifest.name, rendering.SHORT)}"


def _check(one: Result) -> Html:
    """A check, and what it compared where it says so."""
    compared = f'<br><span class="quiet">{cleaned(one.compared, WIDE)}</span>' if one.compared else ""
    return Html(cleaned(one.name, WIDE) + compared)


def _lines(report: Report) -> list[tuple[str, object]]:
    """What the release says of itself, without its parameters, which have a table of their own."""
    return [one for one in report.learnt.lines if one[0] != "asked for"] if report.learnt else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
