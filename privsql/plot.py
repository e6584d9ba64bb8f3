"""Draw charts of measurements and releases, for pages and picture files.

The charts need the packages altair and vl-convert, which the extra ``privsql[plot]`` installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from privsql.errors import EngineError
from privsql.figures import format_share
from privsql.markup import distinct_labels
from privsql.system import PICTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from altair import Chart, HConcatChart, LayerChart, VConcatChart


class PlottedScore(Protocol):
    """The answers of one estimator to several questions, with the true answers, as charts need them.

    ``truth`` and ``estimate`` have one answer for each question. ``summary`` returns the errors; its entry ``bands``
    has them by size of the true answer.
    """

    @property
    def truth(self) -> Sequence[float]: ...

    @property
    def estimate(self) -> Sequence[float]: ...

    def summary(self) -> dict[str, Any]: ...


Content = TypeVar("Content")
Pair = tuple[str, float, float, float | None, float | None]  # estimator, true answer, estimate, low, high
INKS = {  # colours of all charts; a page has them under these names, and others for a dark background
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
ESTIMATORS = {  # labels of estimators by their names
    "model": "privsql's model",
    "linear": "privsql's linear estimator",
    "reconstructed": "privsql's estimate",
    "baseline": "literature's formula",
}
COLOURS = dict(zip(ESTIMATORS.values(), (BLUE, INKS["third"], BLUE, ORANGE), strict=True))
REACHED = {
    "what is promised": INKS["third"],
    "attackers that the promise is about": BLUE,
    "attackers beyond the promise": ORANGE,
    "without the release": GREY,
}
PROMISES = {"promised to resist": BLUE, "not promised": ORANGE}
RESOLUTION = 150  # dots per inch
PADDING = {
    "left": 20,
    "right": 20,
    "top": 5,
    "bottom": 5,
}  # margins of a file, as its reader's letters may be wider than ours
BARS = 130  # pixels of bars with labels at both sides, so narrow that a telephone shows them, too
NARROW, HALF, WIDE, WHOLE, HEIGHT, ROW = (
    270,
    400,
    480,
    560,
    300,
    22,
)  # pixels: four widths, a height, and the height of a row of bars
LABEL, FEW, LOW = (
    24,
    60,
    16,
)  # characters of a label, most values with a bar each, and pixels of a row if there are many
DENSE = 20  # with so many values or more, rows are lower
PERCENT = ".3~%"
ERROR = "mean error / true answer"


def save_picture(draw: Callable[[Content], Any], content: Content, to: Path | None) -> None:
    """Draw a chart with a function of this module, and write it to a PNG or SVG file.

    Args:
        draw: The function that draws the chart.
        content: What the function draws.
        to: The file; if it is None, nothing is drawn.

    Raises:
        EngineError: The file can't be written.
    """
    if to is None:
        return
    picture = draw_picture(draw, content)
    try:
        picture.save(str(to), format=to.suffix[1:].lower(), ppi=RESOLUTION)
    except OSError as error:
        raise EngineError(f"{to}: {error.strerror}") from error


def draw_picture(draw: Callable[[Content], Any], content: Content) -> Any:
    """Return the chart of ``content``: a notebook shows it, and its method ``save`` writes it to a file.

    Raises:
        EngineError: altair is not installed.
    """
    PICTURES.require_installed()
    return style_chart(draw(content), 12).properties(padding=PADDING)


def style_chart(chart: Any, size: int = 10) -> Any:
    """Return a chart in privsql's common style, without a frame and with letters of ``size`` pixels."""
    text, quiet, line = INKS["text"], INKS["quiet"], INKS["line"]
    chart = chart.configure_view(stroke=None).configure_title(color=text, subtitleColor=quiet, anchor="start")
    letters = {"titleColor": text, "labelFontSize": size, "titleFontSize": size + 1}
    lines = {"grid": False, "domainColor": GREY, "tickColor": GREY, "gridColor": line}
    axes = chart.configure_axis(labelColor=quiet, **lines, **letters)
    return axes.configure_legend(labelColor=text, columnPadding=2 * size, **letters)


# Charts of measurements -----------------------------------------------------------------------------------------------


def draw_evaluation(scores: Mapping[str, PlottedScore]) -> HConcatChart:
    """Return two charts that compare estimators: errors by size of the true answer, and estimates over true answers."""
    alt = load_altair()
    errors = [row for name, score in scores.items() for row in _list_errors(ESTIMATORS.get(name, name), score)]
    pairs: list[Pair] = [
        (ESTIMATORS.get(name, name), float(true), float(estimate), None, None)
        for name, score in scores.items()
        for true, estimate in zip(score.truth, score.estimate, strict=True)
    ]
    return alt.hconcat(
        chart_errors(errors, ERROR, HALF).properties(title="Error by size of the true answer"),
        chart_estimates(pairs, HALF).properties(title="Estimates over true answers"),
    )


def draw_comparison(releases: Mapping[str, Mapping[str, PlottedScore]]) -> Chart:
    """Return a chart of the errors of several releases by size of the true answer.

    Each release has its own colour, and each estimator its own dashes.

    Args:
        releases: By the name of a release, the scores of its estimators by their names.
    """
    alt = load_altair()
    rows = [
        row | {"estimator": ESTIMATORS.get(estimator, estimator)}
        for release, scores in releases.items()
        for estimator, score in scores.items()
        for row in _list_errors(release, score)
    ]
    dashes = alt.StrokeDash("estimator:N", title=None)
    lines = chart_errors(rows, ERROR, WHOLE).properties(title="Error by size of the true answer")
    return lines.encode(dashes.scale(domain=list(ESTIMATORS.values()), range=[[1, 0], [5, 4]]), detail="estimator:N")


def _list_errors(name: str, score: PlottedScore) -> list[dict[str, Any]]:
    """Return the relative errors of one estimator by size of the true answer, as rows for ``chart_errors``.

    Sizes of answers whose error is 0 or unknown are left out, because a logarithmic axis can't show 0.
    """
    bands = (band for band in score.summary()["bands"] if band["mean_relative_error"])
    return [{"low": band["low"], "name": name, "error": band["mean_relative_error"]} for band in bands]


def chart_errors(rows: Iterable[dict[str, Any]], title: str, width: int = NARROW + 60) -> Chart:
    """Return a chart of relative errors by size of the true answer, with one line for each name.

    Args:
        rows: Dictionaries with the keys low (the least answer of a range of sizes), name and error.
        title: The title of the axis of errors.
        width: The width in pixels.
    """
    alt = load_altair()
    positive = sorted((row for row in rows if row["error"] > 0), key=lambda row: row["low"])
    data = [row | {"size": f"{row['low']:,.0f}+"} for row in positive]
    names = list(dict.fromkeys(row["name"] for row in data))
    known = set(names) <= set(COLOURS)
    scale = make_palette({name: COLOURS[name] for name in names}) if known else {"scheme": "tableau10", "domain": names}
    x = alt.X("size:N", sort=None, title="size of the answer, records").axis(labelAngle=0, labelLimit=0)
    y = alt.Y("error:Q", title=title).scale(type="log", nice=True).axis(format=PERCENT, tickCount=5)
    colour = alt.Color("name:N", title=None).scale(**scale).legend(orient="top", labelLimit=0)
    points = alt.OverlayMarkDef(size=50, opacity=1)
    return make_chart(data, width, 200).mark_line(point=points, strokeWidth=2).encode(x, y, colour)


def chart_estimates(pairs: Sequence[Pair], width: int = NARROW + 40) -> LayerChart:
    """Return a chart of estimates with their intervals over true answers, and the diagonal of equal ones."""
    alt = load_altair()
    fields = ("name", "true", "estimate", "low", "high")
    data = [dict(zip(fields, pair, strict=True)) | {"estimate": max(0.0, pair[2])} for pair in pairs]
    most = max((end for pair in pairs for end in pair[1:] if end is not None), default=1.0) or 1.0
    ticks = [0, *(10**k for k in range(1, len(f"{int(most)}")))] if most >= 10 else [0, most]
    scale = alt.Scale(type="symlog", constant=10, domain=[0, most])
    axis = alt.Axis(values=ticks, format=",.0f")
    x = alt.X("true:Q", title="true answer", scale=scale, axis=axis)
    side = {"title": "estimate, with its interval" if data and pairs[0][3] is not None else "estimate", "scale": scale}
    names = list(dict.fromkeys(pair[0] for pair in pairs))
    colour = alt.Color("name:N", title=None, legend=alt.Legend(orient="top") if len(names) > 1 else None)
    colour = colour.scale(**make_palette({name: COLOURS.get(name, BLACK) for name in names}))
    base = make_chart(data, width, 260)
    line = make_chart([{"true": end, "estimate": end} for end in (0.0, most)])
    line = line.mark_line(color=GREY, strokeDash=[4, 3]).encode(x, alt.Y("estimate:Q", axis=axis, **side))
    known = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    rules = known.mark_rule(clip=True).encode(x, alt.Y("low:Q", axis=axis, **side), alt.Y2("high:Q"), colour)
    dots = base.mark_circle(opacity=1 if len(names) == 1 else 0.6, size=24)
    return line + rules + dots.encode(x, alt.Y("estimate:Q", axis=axis, **side), colour)


def draw_attacks(attacked: Any) -> VConcatChart:
    """Return charts of how certain adversaries are of their best guess, and how that grows with known records."""
    alt = load_altair()
    findings = [one for one in attacked.findings if one.mean is not None and one.unit != "columns"]
    means = "bar: on average; line: at most; circle: how often it is right; dashed: the most common value"
    title = alt.Title("How sure an attacker is of a record's value", subtitle=means)
    curves = [one.curve for one in attacked.findings if one.curve]
    charts = chart_adversaries(findings, WIDE).properties(title=title), *map(_draw_corruption, curves[:1])
    return alt.vconcat(*charts).resolve_scale(color="independent")


def chart_adversaries(findings: Sequence[Any], width: int) -> LayerChart:
    """Return a chart of the certainty of each adversary's best guess, on average and at most.

    If it is known, the share of right guesses is shown as well.
    """
    alt = load_altair()
    data = [
        {
            "adversary": label,
            "promise": "promised to resist" if one.promised else "not promised",
            "mean": one.mean,
            "highest": one.highest,
            "right": one.right,
        }
        for label, one in zip(distinct_labels([one.adversary for one in findings], 30), findings, strict=True)
    ]
    base = make_chart(data, width, {"step": ROW})
    y = alt.Y("adversary:N", sort=[one["adversary"] for one in data], title=None).axis(labelLimit=0)
    axis = {"title": "how sure of its best guess", "axis": alt.Axis(format="%", tickCount=5)}
    colour = alt.Color("promise:N", title=None).scale(**make_palette(PROMISES)).legend(orient="top", labelLimit=0)
    layers = base.mark_bar().encode(alt.X("mean:Q", scale=alt.Scale(domain=[0, 1]), **axis), y, colour)
    ends = base.mark_tick(color=BLACK, thickness=2).encode(alt.X("highest:Q", **axis), y)
    layers += ends.transform_filter("isValid(datum.highest)")
    if any(one["right"] is not None for one in data):
        points = base.mark_point(color=BLACK, fill=INKS["ground"], opacity=1, size=40)
        layers += points.encode(alt.X("right:Q", **axis), y).transform_filter("isValid(datum.right)")
    guessing = next((one.baseline for one in findings if one.baseline), None)
    if guessing is not None:
        rule = make_chart([{"guessing": guessing}]).mark_rule(color=BLACK, strokeDash=[3, 3])
        layers += rule.encode(alt.X("guessing:Q", **axis))
    return layers


def _draw_corruption(points: Sequence[dict[str, Any]]) -> LayerChart:
    """Return a chart of how certain an adversary is who knows the values of other records in a bucket.

    Args:
        points: Dictionaries with the keys known (the number of known records), theory and measured (the certainty).
    """
    alt = load_altair()
    base = make_chart(points, WIDE, HEIGHT // 2).properties(title="Corruption: an attacker who knows other values")
    base = base.encode(alt.X("known:Q", title="other records of the bucket that are known").axis(tickMinStep=1))
    side: dict[str, Any] = {"title": "how sure", "axis": alt.Axis(format="%", tickCount=5)}
    palette = make_palette({"theory": ORANGE, "measured": BLUE})
    colour = alt.Color("name:N", title=None).legend(orient="bottom").scale(**palette)
    line = base.mark_line().encode(alt.Y("theory:Q", **side), colour).transform_calculate(name="'theory'")
    dots = base.mark_circle().encode(alt.Y("measured:Q", **side), colour).transform_calculate(name="'measured'")
    return line + dots


def draw_inference(inferred: Any) -> LayerChart:
    """Return a chart of how well an attacker infers a share from two noisy counts.

    Of x records that meet a condition, y have a sensitive value. The attacker takes the ratio of the noisy counts for
    the share y/x. The chart shows its mean and two standard deviations by x, as simulated and in theory.

    Args:
        inferred: What ``privsql attack --differential`` returns.
    """
    alt = load_altair()
    ratio = inferred.queried_row.ratio
    rows = []
    for row in inferred.rows:
        simulated, deviation = row.simulated_mean, 2 * row.simulated_deviation
        theory = {"from": row.mean - 2 * row.deviation, "to": row.mean + 2 * row.deviation}
        rows.append(
            {"x": row.x, "mean": simulated, "low": simulated - deviation, "high": simulated + deviation} | theory
        )
    title = alt.Title(
        f"What noisy counts tell, epsilon = {inferred.epsilon:g}",
        subtitle="blue: simulated, two deviations; orange: in theory; black: y/x; dotted: asked",
    )
    x = alt.X("x:Q", title="records that meet the condition, x").scale(type="log", nice=False, padding=10)
    base = make_chart(rows, WHOLE).properties(title=title).encode(x)

    def up(field: str) -> Any:
        return alt.Y(f"{field}:Q", title="Y/X").scale(domain=[ratio - 1, ratio + 1])

    spread = base.mark_rule(color=BLUE, clip=True).encode(up("low"), alt.Y2("high"))
    means = base.mark_circle(color=BLUE, clip=True).encode(up("mean"))
    lines = [base.mark_line(color=ORANGE, strokeDash=[5, 4], clip=True).encode(up(end)) for end in ("from", "to")]
    truth = make_chart([{"mean": ratio}]).mark_rule(color=BLACK).encode(up("mean"))
    question = make_chart([{"x": inferred.queried_row.x}]).mark_rule(color=GREY, strokeDash=[2, 2]).encode(alt.X("x:Q"))
    return alt.layer(spread, means, *lines, truth, question)


# Charts of a release --------------------------------------------------------------------------------------------------


def chart_reached(rows: Sequence[tuple[str, str, float]]) -> LayerChart:
    """Return a chart of probabilities as labelled bars.

    Args:
        rows: Tuples of a name, the kind of the bar (a key of ``REACHED``, which decides its colour), and a probability.
    """
    labels = distinct_labels([name for name, *_ in rows], 34)
    bars = [
        {"name": label, "kind": kind, "length": share, "text": format_share(share)}
        for label, (_, kind, share) in zip(labels, rows, strict=True)
    ]
    return _draw_labelled_bars(bars, REACHED, max(share for *_, share in rows) or 1.0)


def chart_count_errors(rows: Sequence[tuple[str, float, str]]) -> LayerChart:
    """Return a chart of the relative errors of counts as labelled bars, cut at 100 %.

    Args:
        rows: Tuples of the size of a count, its error as a share of the count, and the error as text.
    """
    bars = [{"name": size, "kind": "", "length": min(error, 1.0), "text": text} for size, error, text in rows]
    return _draw_labelled_bars(bars, {"": BLUE}, 1.0)


def _draw_labelled_bars(bars: Sequence[dict[str, Any]], kinds: dict[str, str], longest: float) -> LayerChart:
    """Return a chart of horizontal bars, each followed by its text.

    Args:
        bars: Dictionaries with the keys name, kind, length and text.
        kinds: The colour of each kind of bar.
        longest: The length at the right end of the scale, which begins at 0.
    """
    alt = load_altair()
    base = make_chart(bars, BARS, {"step": ROW})
    y = alt.Y("name:N", sort=[one["name"] for one in bars], title=None)
    y = y.axis(labelLimit=0, labelOverlap=False, ticks=False, domain=False)
    x = alt.X("length:Q", axis=None, scale=alt.Scale(domain=[0, longest]))
    used = {kind: colour for kind, colour in kinds.items() if any(one["kind"] == kind for one in bars)}
    legend = alt.Legend(orient="top", columns=1, labelLimit=0, title=None) if len(used) > 1 else None
    colour = alt.Color("kind:N", legend=legend).scale(**make_palette(used))
    texts = base.mark_text(align="left", dx=4, color=BLACK, fontSize=13).encode(x, y, alt.Text("text:N"))
    return base.mark_bar().encode(x, y, colour) + texts


def chart_bounds(rows: Sequence[tuple[str, float, float, float | None]]) -> LayerChart:
    """Return a chart of the promised bound of each value and the highest belief in it.

    If there are many values, they are placed by their share of the records.

    Args:
        rows: Tuples of a value, its bound, the highest belief, and its share of the records; None if that is not known.
    """
    alt = load_altair()
    rows = sorted(rows, key=lambda row: row[2], reverse=True)
    labels = distinct_labels([value for value, *_ in rows], LABEL)
    data = [
        {"value": label, "bound": bound, "highest": highest, "share": share}
        for label, (_, bound, highest, share) in zip(labels, rows, strict=True)
    ]
    if len(data) > FEW and all(one["share"] for one in data):
        base = make_chart(data, NARROW, 200)
        x = alt.X("share:Q", title="share of the records that have the value").axis(format=".1~%", tickCount=5)
        y = {"title": "probability", "axis": alt.Axis(format=PERCENT, tickCount=5)}
        ticks = base.mark_tick(color=ORANGE, thickness=2, size=14, orient="horizontal")
        dots = base.mark_circle(color=BLUE, opacity=1, size=30)
        return ticks.encode(x, alt.Y("bound:Q", **y).scale(zero=True)) + dots.encode(x, alt.Y("highest:Q", **y))
    names = [one["value"] for one in data]
    base = make_chart(data, NARROW, {"step": ROW if len(data) < DENSE else LOW})
    y = alt.Y("value:N", sort=names, title=None).axis(labelLimit=0, labelOverlap=False)
    axis = {"title": "probability", "axis": alt.Axis(format=PERCENT, tickCount=5)}
    bars = base.mark_bar(color=BLUE).encode(alt.X("highest:Q", **axis).scale(zero=True), y)
    return bars + base.mark_tick(color=ORANGE, thickness=3).encode(alt.X("bound:Q", **axis), y)


def chart_curve(rows: Sequence[tuple[str, Mapping[str, float | None]]]) -> LayerChart:
    """Return a chart that compares thresholds (bounds on beliefs) by what they promise, and how precise counts are.

    Args:
        rows: Pairs of a threshold and its figures, None for an unknown one. ``highest_belief`` is how sure an attacker
            can be at most who finds a record; ``learning_belief`` is how sure one is who trains a model on the release.
            ``count_error`` is the relative error of a count.
    """
    alt = load_altair()
    names = {
        "highest_belief": "attacker who finds a record (promised)",
        "learning_belief": "attacker who trains on the release",
        "count_error": "error of a count",
    }
    data = [
        {"threshold": threshold, "name": name, "figure": figure}
        for threshold, figures in rows
        for key, name in names.items()
        if (figure := figures.get(key)) is not None
    ]
    colours = alt.Scale(domain=list(names.values()), range=[BLUE, ORANGE, INKS["third"]])
    legend = alt.Legend(title=None, orient="top", columns=1, labelLimit=0)
    base = make_chart(data, NARROW + 60, 220).encode(
        alt.X("threshold:N", sort=None, title="threshold").axis(labelAngle=-40, labelLimit=0, labelOverlap=False),
        alt.Y("figure:Q", title="probability, or error / answer").axis(format=PERCENT, tickCount=5).scale(zero=True),
        alt.Color("name:N", scale=colours, legend=legend),
    )
    return base.mark_line() + base.mark_circle(size=40, opacity=1)


def chart_structure(rows: Sequence[tuple[str, float]], head: tuple[str, str]) -> Chart:
    """Return a chart with a bar for each number.

    Args:
        rows: Pairs of a name and a number.
        head: The titles of names and of numbers.
    """
    alt = load_altair()
    labels = distinct_labels([name for name, _ in rows], LABEL)
    data = [{"name": label, "number": number} for label, (_, number) in zip(labels, rows, strict=True)]
    y = alt.Y("name:N", sort=None, title=head[0]).axis(labelLimit=0)
    number = alt.X("number:Q", title=head[1]).axis(format="~s", tickCount=5, tickMinStep=1)
    return make_chart(data, NARROW, {"step": ROW}).mark_bar(color=BLUE).encode(number, y)


def load_altair() -> Any:
    """Import and return altair on first use, because the import takes long and few commands need it."""
    import altair as alt

    return alt


def make_chart(rows: Sequence[dict[str, Any]], width: int | None = None, height: Any = HEIGHT) -> Chart:
    """Return an empty chart that contains these rows as its data."""
    alt = load_altair()
    plain = alt.Chart(alt.InlineData(values=list(rows)))
    return plain if width is None else plain.properties(width=width, height=height)


def make_palette(colours: dict[str, str]) -> dict[str, list[str]]:
    """Return a colour scale in which each name has the given colour."""
    return {"domain": list(colours), "range": list(colours.values())}


def band_label(band: dict[str, Any]) -> str:
    """Return the range of true answers that a row of errors covers, as text such as "100-1,000" or "1,000+"."""
    return f"{band['low']:,}+" if band["high"] is None else f"{band['low']:,}-{band['high']:,}"
