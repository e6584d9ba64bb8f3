"""What a person sees of an evaluation: error and coverage by size of the answer and by class of question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql import plot
from privsql.cli.printing import add, out, say, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from privsql.verbs.evaluate import Evaluated

FIGURES = ("asked", "mean error", "coverage", "half-width")
ERROR = "mean error is |estimate - truth| / max(truth, 0.1 % of the records), half-width in records"


def evaluated(found: Evaluated) -> None:
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
