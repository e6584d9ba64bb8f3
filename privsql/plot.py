"""Pictures of an evaluation: error by band, and estimated against true answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql.scores import BANDS

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.scores import Score

COLOURS = {"baseline": "#b0b0b0", "reconstructed": "#1f6f8b"}


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


def band_label(band: dict[str, Any]) -> str:
    """The range of true answers of a band."""
    return f"{band['low']:,}+" if band["high"] is None else f"{band['low']:,}-{band['high']:,}"
