"""What a person sees of measurements: errors, comparisons, adversaries. Nothing is computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql import plot
from privsql.cli.printing import add, say, table, wide
from privsql.cli.printing_evaluated import covered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.text import Text

    from privsql.mechanisms.alternatives import Alternatives
    from privsql.verbs.attack import Attacked
    from privsql.verbs.compare import Candidate, Compared
    from privsql.verbs.infer import Inferred

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


def algorithms(found: Alternatives) -> None:
    """All algorithms of a mechanism, the best of each figure in bold."""
    kept = [row for row in found.rows if row.refused is None]
    made = table("", right=[row.algorithm for row in kept])
    for measure in found.measures:
        best, shown = found.best(measure), [row.figures.get(measure.key) for row in kept]
        if any(figure is not None for figure in shown):
            made.add_row(measure.title, *(_figure(figure, measure.form, bold=figure == best) for figure in shown))
    wide().print(made)
    for row in found.rows:
        if row.refused is not None:
            say(f"{row.algorithm}: {row.refused}")
    say(found.advice)


def _figure(figure: float | None, form: str, *, bold: bool) -> Text:
    from rich.text import Text  # noqa: PLC0415 (as all of it, when there is something to print)

    text = "-" if figure is None else format(figure, form)
    return Text(text, style="bold" if bold and figure is not None else "")


def compared(found: Compared) -> None:
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


def attacked(found: Attacked) -> None:
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


def inferred(found: Inferred) -> None:
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
