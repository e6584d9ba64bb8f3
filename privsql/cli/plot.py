"""Pictures of an evaluation: error by band, and estimated against true answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from privsql.answers.accuracy import Score
    from privsql.verbs.attack import Attacked
    from privsql.verbs.infer import Inferred

Found = TypeVar("Found")
COLOURS = {"baseline": "#b0b0b0", "reconstructed": "#1f6f8b"}


def drawn(draw: Callable[[Found, Path], None], found: Found, to: Path | None) -> None:
    """Draw with a function of this module, if a picture is wanted; ``EngineError`` if it can't be written."""
    if to is None:
        return
    try:
        draw(found, to)
    except OSError as error:
        raise EngineError(f"{to}: {error.strerror}") from error


def evaluation(scores: dict[str, Score], to: Path) -> None:
    """Write a PNG or SVG, by the ending of ``to``."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (takes long to import, and is seldom needed)

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    bars, points = figure.subplots(1, 2)
    for place, (name, found) in enumerate(scores.items()):
        bands = [band for band in found.summary()["bands"] if band["mean_relative_error"] is not None]
        positions = [i + 0.4 * place for i in range(len(bands))]
        bars.bar(positions, [b["mean_relative_error"] for b in bands], 0.4, label=name, color=COLOURS.get(name))
        bars.set_xticks([i + 0.2 for i in range(len(bands))], [band_label(band) for band in bands])
        points.scatter(found.truth, found.estimate, s=6, alpha=0.5, label=name, color=COLOURS.get(name))
    bars.set(xlabel="true answer", ylabel="mean relative error", title="Error by size of the true answer")
    bars.set_yscale("log")
    largest = max((max(found.truth, default=1) for found in scores.values()), default=1)
    points.plot([1, largest], [1, largest], color="black", linewidth=0.8)
    points.set(xlabel="true answer", ylabel="estimate", title="Estimated against true")
    points.set_xscale("symlog", linthresh=10)
    points.set_yscale("symlog", linthresh=10)
    for axes in (bars, points):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(to, dpi=150)


def comparison(found: dict[str, dict[str, Score]], to: Path) -> None:
    """Error by size of the true answer for several releases: reconstructed in full lines, baseline dashed."""
    from matplotlib import colormaps  # noqa: PLC0415 (takes long to import, and is seldom needed)
    from matplotlib.figure import Figure  # noqa: PLC0415

    from privsql.answers.accuracy import BANDS  # noqa: PLC0415

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    colours = colormaps["tab10"]
    labels: dict[int, str] = {}
    for place, (name, scores) in enumerate(found.items()):
        for estimator, score in scores.items():
            bands = [band for band in score.summary()["bands"] if band["mean_relative_error"] is not None]
            labels |= {band["low"]: band_label(band) for band in bands}
            style = "-" if estimator == "reconstructed" else "--"
            known = f"{name}, {estimator}"
            lows, errors = [b["low"] for b in bands], [b["mean_relative_error"] for b in bands]
            places = [BANDS.index(low) for low in lows]
            axes.plot(places, errors, style, marker="o", label=known, color=colours(place))
    ticks = sorted(labels)
    axes.set_xticks([BANDS.index(low) for low in ticks], [labels[low] for low in ticks])
    axes.set(xlabel="true answer", ylabel="mean relative error", title="Error by size of the true answer")
    axes.set_yscale("log")
    axes.legend(frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(to, dpi=150)


def attacks(found: Attacked, to: Path) -> None:
    """Certainty of every adversary's best guess, and certainty by known records: theory and measurement."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (takes long to import, and is seldom needed)

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    bars, curve = figure.subplots(1, 2, width_ratios=(3, 2))
    rows = [one for one in found.findings if one.mean is not None and one.unit != "columns"][::-1]
    for place, one in enumerate(rows):
        bars.barh(place, one.mean or 0, color="#1f6f8b" if one.promised else "#d98c5f")
        bars.plot([one.highest or 0], [place], "|", color="black")
        if one.right is not None:
            bars.plot([one.right], [place], "o", color="white", markeredgecolor="black", markersize=5)
    bars.set_yticks(range(len(rows)), [one.adversary for one in rows])
    baseline = next((one.baseline for one in rows if one.baseline), None)
    if baseline is not None:
        bars.axvline(baseline, color="black", linewidth=0.8, linestyle=":")
    bars.set(xlabel="probability of the best guess", xlim=(0, 1.02))
    bars.set_title("blue: resistance promised; orange: not; | highest; o right; .. guessing", fontsize="small")
    points = next((one.curve for one in found.findings if one.curve), ())
    for name, style in (("theory", "-"), ("measured", "o")):
        curve.plot([p["known"] for p in points], [p[name] for p in points], style, label=name, markersize=4)
    curve.set(xlabel="records known in a bucket", ylabel="probability of the best guess", title="Corruption")
    curve.legend(frameon=False)
    _save(figure, (bars, curve), to)


def inference(found: Inferred, to: Path) -> None:
    """Noisy ratios over the size of the query: the mean and two standard deviations, simulated, and in theory."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (takes long to import, and is seldom needed)

    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.subplots()
    sizes, ratio = [row.x for row in found.rows], found.asked.ratio
    means, spread = [row.simulated_mean for row in found.rows], [2 * row.simulated_deviation for row in found.rows]
    axes.errorbar(sizes, means, spread, fmt="o", markersize=4, color="#1f6f8b", label="simulated, two deviations")
    for sign, label in ((1, "theory, two deviations"), (-1, None)):
        axes.plot(
            sizes, [row.mean + sign * 2 * row.deviation for row in found.rows], "--", color="#d98c5f", label=label
        )
    axes.axhline(ratio, color="black", linewidth=0.8, label="y/x")
    axes.axvline(found.asked.x, color="#b0b0b0", linewidth=0.8, linestyle=":", label="asked")
    axes.set_xscale("log")
    axes.set(xlabel="records that meet the condition, x", ylabel="Y/X", ylim=(ratio - 1, ratio + 1))
    axes.set_title(f"What noisy counts tell, epsilon = {found.epsilon:g}")
    axes.legend(frameon=False, fontsize="small")
    _save(figure, (axes,), to)


def _save(figure: Figure, parts: Iterable[Axes], to: Path) -> None:
    for axes in parts:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(to, dpi=150)


def band_label(band: dict[str, Any]) -> str:
    """The range of true answers of a band."""
    return f"{band['low']:,}+" if band["high"] is None else f"{band['low']:,}-{band['high']:,}"
