"""Pictures of what was measured, drawn by altair and written by vl-convert: the extra ``privsql[plot]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from privsql.errors import EngineError
from privsql.extras import PICTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from altair import Chart, HConcatChart, LayerChart


class PlottedScore(Protocol):
    """Answers of one estimator beside the true ones."""

    @property
    def truth(self) -> Sequence[float]:
        """What is true."""

    @property
    def estimate(self) -> Sequence[float]:
        """What was answered."""

    def summary(self) -> dict[str, Any]:
        """Errors, and by band of true answers in ``bands``."""


class PlottedAttack(Protocol):
    """What adversaries found: adversary, promised, mean, highest, right, baseline, unit, curve of each."""

    @property
    def findings(self) -> Sequence[Any]:
        """One each."""


class PlottedInference(Protocol):
    """What noisy counts tell, by size of the question."""

    @property
    def rows(self) -> Sequence[Any]:
        """x, mean, deviation, simulated_mean, simulated_deviation of each size."""

    @property
    def queried_row(self) -> Any:
        """The row of the question."""

    @property
    def epsilon(self) -> float:
        """What each count spends."""


Content = TypeVar("Content")
INKS = {  # of every picture; a page has the same under these names, and others for a dark ground
    "first": "#1f6f8b",
    "second": "#b8571b",
    "third": "#6b4fa0",
    "still": "#8a949e",
    "text": "#18222c",
    "quiet": "#55616d",
    "line": "#d4dbe2",
    "ground": "#ffffff",
}
BLUE, ORANGE, GREY, BLACK = (INKS[name] for name in ("first", "second", "still", "text"))
COLOURS = {"baseline": GREY, "reconstructed": BLUE}
PROMISES = {"promised to resist": BLUE, "not promised": ORANGE}
RESOLUTION = 150  # dots per inch
LINEAR = 10  # up to here an axis that shows 0 is about linear, and logarithmic beyond
HALF, WHOLE, HEIGHT = 400, 560, 300  # pixels


def save_picture(draw: Callable[[Content], Any], content: Content, to: Path | None) -> None:
    """Draw with a function of this module, if a picture is wanted: a PNG or an SVG, by the ending of ``to``.

    Raises ``EngineError`` if it can't be written.
    """
    if to is None:
        return
    picture = draw_picture(draw, content)
    try:
        picture.save(str(to), format=to.suffix[1:].lower(), ppi=RESOLUTION)
    except OSError as error:
        raise EngineError(f"{to}: {error.strerror}") from error


def draw_picture(draw: Callable[[Content], Any], content: Content) -> Any:
    """The picture itself, which a notebook shows and whose ``save`` writes it; ``EngineError`` without altair."""
    PICTURES.require_installed()
    return style_chart(draw(content))


def style_chart(chart: Any, size: int = 10) -> Any:
    """A chart in the inks of all pictures, without a frame; ``size``: of its letters, in pixels."""
    text, quiet, line = INKS["text"], INKS["quiet"], INKS["line"]
    chart = chart.configure_view(stroke=None).configure_title(color=text, subtitleColor=quiet)
    chart = chart.configure_axis(
        grid=False,
        labelColor=quiet,
        titleColor=text,
        domainColor=GREY,
        tickColor=GREY,
        gridColor=line,
        labelFontSize=size,
        titleFontSize=size + 1,
    )
    return chart.configure_legend(labelColor=text, titleColor=text, labelFontSize=size, titleFontSize=size + 1)


def draw_evaluation(scores: Mapping[str, PlottedScore]) -> HConcatChart:
    """Errors by size of the true answer, and estimated against true answers, of each estimator."""
    import altair as alt  # noqa: PLC0415 (takes long to import, and is seldom needed)

    colour = alt.Color("estimator:N").scale(**make_palette({name: COLOURS.get(name, BLACK) for name in scores}))
    errors = [
        {"estimator": name, "answer": band_label(band), "error": band["mean_relative_error"]}
        for name, score in scores.items()
        for band in _measured_bands(score)
    ]
    bars = make_chart(errors, HALF, "Error by size of the true answer").mark_bar()
    bars = bars.encode(_band_axis(errors), _error_axis().stack(None), colour.title(None), xOffset="estimator:N")
    pairs: list[dict[str, Any]] = [
        {"estimator": name, "true": float(true), "estimate": float(estimate)}
        for name, score in scores.items()
        for true, estimate in zip(score.truth, score.estimate, strict=True)
    ]
    wide = {"type": "symlog", "constant": LINEAR}
    sides = alt.X("true:Q", title="true answer").scale(**wide), alt.Y("estimate:Q").scale(**wide)
    points = make_chart(pairs, HALF, "Estimated against true").mark_circle(size=8, opacity=0.5).encode(*sides, colour)
    largest = max((pair["true"] for pair in pairs), default=1.0)
    ends = [{"true": end, "estimate": end} for end in (0.0, largest)]
    return bars | (points + make_chart(ends).mark_line(color=BLACK, strokeWidth=0.8).encode(*sides))


def draw_comparison(releases: Mapping[str, Mapping[str, PlottedScore]]) -> Chart:
    """Error by size of the true answer for several releases: reconstructed in full lines, baseline dashed."""
    import altair as alt  # noqa: PLC0415 (takes long to import, and is seldom needed)

    rows = [
        {
            "release": name,
            "estimator": estimator,
            "low": band["low"],
            "answer": band_label(band),
            "error": band["mean_relative_error"],
        }
        for name, scores in releases.items()
        for estimator, score in scores.items()
        for band in _measured_bands(score)
    ]
    rows.sort(key=lambda row: row["low"])
    dashes = alt.StrokeDash("estimator:N").scale(domain=["reconstructed", "baseline"], range=[[1, 0], [5, 4]])
    colour = alt.Color("release:N").scale(scheme="tableau10", domain=list(releases))
    lines = make_chart(rows, WHOLE, "Error by size of the true answer").mark_line(point=True)
    return lines.encode(_band_axis(rows), _error_axis(), colour, dashes, detail="estimator:N")


def draw_attacks(attacked: PlottedAttack) -> HConcatChart:
    """Certainty of every adversary's best guess, and certainty by known records: theory and measurement."""
    import altair as alt  # noqa: PLC0415 (takes long to import, and is seldom needed)

    findings = [one for one in attacked.findings if one.mean is not None and one.unit != "columns"]
    rows = [
        {
            "adversary": one.adversary,
            "promise": "promised to resist" if one.promised else "not promised",
            "mean": one.mean,
            "highest": one.highest or 0,
            "right": one.right,
        }
        for one in findings
    ]
    title = alt.Title("What adversaries believe", subtitle="bar: mean; line: highest; circle: right; dotted: guessing")
    base = make_chart(rows, HALF, title)
    place = alt.Y("adversary:N", sort=[row["adversary"] for row in rows], title=None).axis(labelLimit=0)

    def along(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title="probability of the best guess").scale(domain=[0, 1])

    colour = alt.Color("promise:N", title=None).scale(**make_palette(PROMISES)).legend(orient="bottom")
    bars = base.mark_bar().encode(along("mean"), place, colour)
    bars += base.mark_tick(color=BLACK).encode(along("highest"), place)
    bars += (
        base.mark_point(color=BLACK, fill=INKS["ground"])
        .encode(along("right"), place)
        .transform_filter("isValid(datum.right)")
    )
    baseline = [{"guessing": one.baseline} for one in findings if one.baseline][:1]
    bars += make_chart(baseline).mark_rule(strokeDash=[2, 2]).encode(along("guessing"))
    points = next((one.curve for one in attacked.findings if one.curve), ())
    return alt.hconcat(bars, _draw_corruption(points)).resolve_scale(color="independent")


def _draw_corruption(points: Sequence[dict[str, Any]]) -> LayerChart:
    """What knowing others in a bucket tells, in theory and as it was measured."""
    import altair as alt  # noqa: PLC0415

    base = make_chart(points, HALF * 2 // 3, "Corruption")
    base = base.encode(alt.X("known:Q", title="records known in a bucket").axis(tickMinStep=1))
    side = "probability of the best guess"
    colour = (
        alt.Color("name:N", title=None)
        .scale(**make_palette({"theory": ORANGE, "measured": BLUE}))
        .legend(orient="bottom")
    )
    line = base.mark_line().encode(alt.Y("theory:Q", title=side), colour).transform_calculate(name="'theory'")
    dots = base.mark_circle().encode(alt.Y("measured:Q", title=side), colour).transform_calculate(name="'measured'")
    return line + dots


def draw_inference(inferred: PlottedInference) -> LayerChart:
    """Noisy ratios over the size of the query: the mean and two standard deviations, simulated, and in theory."""
    import altair as alt  # noqa: PLC0415 (takes long to import, and is seldom needed)

    ratio = inferred.queried_row.ratio
    rows = [
        {
            "x": row.x,
            "mean": row.simulated_mean,
            "low": row.simulated_mean - 2 * row.simulated_deviation,
            "high": row.simulated_mean + 2 * row.simulated_deviation,
            "from": row.mean - 2 * row.deviation,
            "to": row.mean + 2 * row.deviation,
        }
        for row in inferred.rows
    ]
    title = alt.Title(
        f"What noisy counts tell, epsilon = {inferred.epsilon:g}",
        subtitle="blue: simulated, two deviations; orange: in theory; black: y/x; dotted: asked",
    )
    base = make_chart(rows, WHOLE, title).encode(
        alt.X("x:Q", title="records that meet the condition, x").scale(type="log", nice=False, padding=10)
    )

    def up(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="Y/X").scale(domain=[ratio - 1, ratio + 1])

    spread = base.mark_rule(color=BLUE, clip=True).encode(up("low"), alt.Y2("high"))
    means = base.mark_circle(color=BLUE, clip=True).encode(up("mean"))
    lines = [base.mark_line(color=ORANGE, strokeDash=[5, 4], clip=True).encode(up(end)) for end in ("from", "to")]
    truth = make_chart([{"mean": ratio}]).mark_rule(color=BLACK).encode(up("mean"))
    question = make_chart([{"x": inferred.queried_row.x}]).mark_rule(color=GREY, strokeDash=[2, 2]).encode(alt.X("x:Q"))
    return alt.layer(spread, means, *lines, truth, question)


def make_chart(rows: Sequence[dict[str, Any]], width: int | None = None, title: Any = None) -> Chart:
    """A chart over rows that it holds itself."""
    import altair as alt  # noqa: PLC0415

    plain = alt.Chart(alt.InlineData(values=list(rows)))
    return plain if width is None else plain.properties(width=width, height=HEIGHT, title=title)


def make_palette(colours: dict[str, str]) -> dict[str, list[str]]:
    return {"domain": list(colours), "range": list(colours.values())}


def _measured_bands(score: PlottedScore) -> list[dict[str, Any]]:
    """The bands with an error that a logarithm has."""
    return [band for band in score.summary()["bands"] if band["mean_relative_error"]]


def _band_axis(rows: Iterable[dict[str, Any]]) -> Any:
    """The axis of true answers, in the order of the rows."""
    import altair as alt  # noqa: PLC0415

    order = list(dict.fromkeys(row["answer"] for row in rows))
    return alt.X("answer:N", sort=order, title="true answer").axis(labelAngle=0)


def _error_axis() -> Any:
    import altair as alt  # noqa: PLC0415

    return alt.Y("error:Q", title="mean relative error").scale(type="log")


def band_label(band: dict[str, Any]) -> str:
    """The range of true answers of a band."""
    return f"{band['low']:,}+" if band["high"] is None else f"{band['low']:,}-{band['high']:,}"
