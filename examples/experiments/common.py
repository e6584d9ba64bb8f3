"""What an experiment is, and how its points become tidy rows that a run which was stopped goes on from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from experiments import PAPERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from experiments.bench import Bench

SCHEMA = pa.schema(
    {
        "experiment": pa.string(),
        "step": pa.string(),  # the arguments that the row was measured with
        "panel": pa.string(),  # of a figure with several: (a), (b), ..
        "series": pa.string(),
        "x": pa.float64(),
        "label": pa.string(),  # what stands at x, where the axis has names
        "y": pa.float64(),  # NULL: could not be had, and ``note`` says why, or only the paper has it
        "low": pa.float64(),
        "high": pa.float64(),
        "paper": pa.float64(),  # the paper's own value there, where its text gives one
        "data": pa.string(),
        "stand_in": pa.bool_(),  # whether any of the data is generated in place of what the paper had
        "seed": pa.int64(),
        "note": pa.string(),
    }
)
PAPER = "paper"  # step of the rows that only the paper has


@dataclass(frozen=True)
class Point:
    """One figure that was measured: ``y`` at ``x``, with bounds where it has some."""

    series: str
    x: float
    y: float | None
    panel: str = ""
    label: str | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Axes:
    """The axes of a picture. Scales: linear, log, log2 or names; ``mark``: line, bar, points, or area of bounds."""

    x: str
    y: str
    x_scale: str = "linear"
    y_scale: str = "linear"
    mark: str = "line"
    percent: bool = False  # whether y is a share, shown in per cent
    bound: str = ""  # what low and high are, where they are drawn
    dashed: tuple[str, ...] = ()  # series whose lines are broken


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper. ``steps`` are independent of each other, and each is measured by ``measure``.

    ``says``: what the paper says; ``differs``: what we get, and why where it is not the same. ``paper``: values that
    its text gives, by (panel, series, x). ``over`` and ``small``: the arguments of ``measure`` and their values, in
    full and where a run has to be short.
    """

    name: str
    paper_name: str
    places: tuple[str, ...]
    title: str
    says: str
    differs: str
    parameters: str
    data: tuple[str, ...]
    axes: Axes
    measure: Callable[..., Iterator[Point]]
    over: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    small: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    paper: Mapping[tuple[str, str, float], float] = field(default_factory=dict)
    table: bool = True  # whether the page shows the figures, too
    counted: bool = False  # whether its points are means over queries or runs, of which a run may take fewer

    def steps(self, *, small: bool) -> list[dict[str, Any]]:
        """The arguments of every step."""
        grid = {**self.over, **(self.small if small else {})}
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(**facts: Any) -> Callable[[Callable[..., Iterator[Point]]], Callable[..., Iterator[Point]]]:
    """Register a function ``(bench, **arguments of a step) -> points`` as the experiment that the facts describe."""

    def register(measure: Callable[..., Iterator[Point]]) -> Callable[..., Iterator[Point]]:
        made = Experiment(measure=measure, **facts)
        if made.name in EXPERIMENTS:
            raise ValueError(f"two experiments are called {made.name}")
        EXPERIMENTS[made.name] = made
        return measure

    return register


def everything() -> dict[str, Experiment]:
    """The experiments of every paper, in their order."""
    for paper in PAPERS:
        module(paper)
    return EXPERIMENTS


def module(paper: str) -> ModuleType:
    """The module of a paper."""
    return import_module(f"experiments.{paper}")


def said(arguments: Mapping[str, Any]) -> str:
    """The name of a step."""
    return ", ".join(f"{key}={value}" for key, value in arguments.items()) or "all"


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names; a paper's name stands for all of its, and ``all`` for all."""
    found = everything()
    known = {*found, *PAPERS, "all"}
    if strange := [name for name in names if name not in known]:
        raise SystemExit(f"{strange[0]} is none of {', '.join(sorted(known))}")
    return [one for one in found.values() if {one.name, one.paper_name, "all"} & {*names}]


def run(one: Experiment, bench: Bench, to: Path, *, fresh: bool, say: Callable[[str], None]) -> pa.Table:
    """Measure what is missing of an experiment and return all of its rows; they are written after every step."""
    file, settings = to / f"{one.name}.parquet", bench.settings(one.data)
    rows = [] if fresh else kept(file, settings)
    done = {row["step"] for row in rows}
    steps = one.steps(small=bench.small)
    for number, arguments in enumerate(steps, 1):
        step = said(arguments)
        if step in done:
            continue
        say(f"{one.name} {number}/{len(steps)}: {step}")
        used = bench.watch()
        points = list(one.measure(bench, **arguments))
        about = {"experiment": one.name, "step": step, "seed": bench.seed, **used.says()}
        rows += [{**asdict(point), **about, "paper": _paper(one, point)} for point in points]
        write(file, rows + _only_papers(one, rows), settings)
    return pq.read_table(file)


def kept(file: Path, settings: str) -> list[dict[str, Any]]:
    """The rows of an earlier run with the same settings."""
    if not file.exists():
        return []
    found = pq.read_table(file)
    if (found.schema.metadata or {}).get(b"settings") != settings.encode() or found.schema.names != SCHEMA.names:
        return []
    return [row for row in found.to_pylist() if row["step"] != PAPER]


def write(file: Path, rows: list[dict[str, Any]], settings: str) -> None:
    """Write rows; a run that is stopped leaves the old file or the new one."""
    made = pa.Table.from_pylist(rows, SCHEMA).replace_schema_metadata({"settings": settings})
    part = file.with_suffix(".part")
    pq.write_table(made, part)
    part.replace(file)


def _paper(one: Experiment, point: Point) -> float | None:
    return one.paper.get((point.panel, point.series, point.x))


def _only_papers(one: Experiment, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Values of the paper where we have none."""
    had = {(row["panel"], row["series"], row["x"]) for row in rows}
    return [
        {"experiment": one.name, "step": PAPER, "panel": panel, "series": series, "x": x, "paper": value, "note": ""}
        for (panel, series, x), value in one.paper.items()
        if (panel, series, x) not in had
    ]
