"""``evaluate``, ``compare``, ``attack`` and ``infer``: how good a release is, and how safe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import privsql as api
from privsql import plot as pictures
from privsql.calls import ends, names
from privsql.cli import printing_evaluated
from privsql.cli import printing_measures as printing
from privsql.cli.app import Confidence, Json, KeyFile, Memory, ReleaseFile, Threads, app, running, sourced, tell
from privsql.errors import InfeasibleError, UsageError
from privsql.extras import PICTURES


def _picture(to: Path | None) -> Path | None:
    """The file of a picture; ``UsageError`` unless its ending is that of a PNG or an SVG."""
    if to is not None and to.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--plot {to}: the ending must be .png or .svg")
    if to is not None:
        PICTURES.need()
    return to


WorkloadKind = Annotated[str, typer.Option("--workload", help="equality, random, ranges, or a file of SQL.")]
Queries = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default="1200, or 300 of each class",
        help="How many queries; of private tables and item sets, which are asked by class, at most of each class.",
    ),
]
Ways = Annotated[int, typer.Option(min=1, help="Private tables: columns of the largest tables that are compared.")]
Attributes = Annotated[int, typer.Option(min=1, help="random: quasi-identifiers per query.")]
Selectivity = Annotated[float, typer.Option(min=0, max=1, help="random: expected share of the records.")]
TrueAnswers = Annotated[
    str | None,
    typer.Option(
        metavar="LEAST:MOST", help="Count only questions whose true answer lies there: 100:5000, 100:, :5000."
    ),
]
Estimators = Annotated[
    str | None, typer.Option(metavar="NAME,..", help="Ask these alone: reconstructed, baseline; by default all.")
]
Points = Annotated[
    bool, typer.Option("--points", help="With --json: every question with its true answer and each estimator's.")
]
Plot = Annotated[Path | None, typer.Option(callback=_picture, help="Write a picture: PNG or SVG.")]
Source = Annotated[Path, typer.Option("--source", metavar="SPEC.toml", help="Specification that names the source.")]
TrueSource = Annotated[
    Path, typer.Option("--source", metavar="SPEC.toml|FILE", help="The source, by its specification or its file alone.")
]
Epsilon = Annotated[float, typer.Option(help="Privacy budget of each of the two counts.")]
KINDS = ("equality", "random", "ranges")


def _workload(kind: str, true_answers: str | None, estimators: str | None, drawn: dict[str, Any]) -> api.Workload:
    file = None if kind in KINDS else Path(kind)
    named = None if estimators is None else names(estimators, "--estimators")
    between = None if true_answers is None else ends(true_answers, "--true-answers")
    return api.Workload(kind, file=file, true_answers=between, estimators=named, **drawn)


def _pointed(found: api.Evaluated, points: bool) -> dict[str, Any]:
    """What there is with ``--points`` besides."""
    return {"points": found.points()} if points else {}


def _only_json(points: bool, as_json: bool) -> None:
    if points and not as_json:
        raise UsageError("--points goes with --json")


@app.command(epilog="Example:\n\n    privsql evaluate occ_release.duckdb --source spec.toml --plot error.png")
def evaluate(
    release: ReleaseFile,
    source: TrueSource,
    workload: WorkloadKind = "equality",
    queries: Queries = None,
    attributes: Attributes = 3,
    selectivity: Selectivity = 0.05,
    seed: Annotated[int, typer.Option(help="Which queries are drawn.")] = 1,
    ways: Ways = 2,
    true_answers: TrueAnswers = None,
    estimators: Estimators = None,
    confidence: Confidence = 0.95,
    key_file: KeyFile = None,
    points: Points = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Compare a release's answers with its source: error and coverage, by size of the true answer and by question."""
    _only_json(points, as_json)
    drawn = {"queries": queries, "attributes": attributes, "selectivity": selectivity, "seed": seed, "ways": ways}
    asked = _workload(workload, true_answers, estimators, drawn)
    with running() as options:
        found = api.evaluate(release, sourced(source), asked, confidence=confidence, key_file=key_file, options=options)
        pictures.drawn(pictures.evaluation, found.scores, plot)
    tell(as_json, lambda: found.as_json() | _pointed(found, points), lambda: printing_evaluated.evaluated(found))


@app.command(epilog="Example:\n\n    privsql compare pp.toml up.toml anatomy.toml --plot compare.png")
def compare(
    specs: Annotated[list[Path], typer.Argument(metavar="SPEC.toml...", help="Specifications of one table.")],
    workload: WorkloadKind = "equality",
    queries: Queries = None,
    attributes: Attributes = 3,
    selectivity: Selectivity = 0.05,
    seed: Annotated[int, typer.Option(help="Which queries are drawn, and the releases.")] = 1,
    true_answers: TrueAnswers = None,
    estimators: Estimators = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE",
            help="Take every specification with each of these values, too: threshold=1/4,1/8; repeatable.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep there what is finished, true answers too; go on from what is there."),
    ] = None,
    confidence: Confidence = 0.95,
    points: Points = False,
    plot: Plot = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Publish a table in several ways, into a temporary folder, and measure each with the same queries."""
    _only_json(points, as_json)
    drawn = {"queries": queries, "attributes": attributes, "selectivity": selectivity, "seed": seed}
    asked = _workload(workload, true_answers, estimators, drawn)
    given = [(path.stem, api.load(path)) for path in specs]
    with running(memory_limit, threads) as options:
        found = api.compare(
            given, asked, confidence=confidence, seed=seed, grid=grid or None, resume=resume, options=options
        )
        pictures.drawn(pictures.comparison, {one.name: one.evaluated.scores for one in found}, plot)
    tell(as_json, lambda: found.as_json(points=points), lambda: printing.compared(found))
    if not found:
        raise typer.Exit(InfeasibleError.exit_code)


@app.command(epilog="Example:\n\n    privsql attack occ_release.duckdb --source spec.toml --plot attacks.png")
def attack(
    given: Annotated[list[str], typer.Argument(metavar="RELEASE", help="A release.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            metavar="SPEC.toml|FILE",
            help="The source, by its specification or its file alone: compare beliefs with the truth.",
        ),
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="RELEASE", help="Another release of the same people; repeatable.")
    ] = None,
    differential: Annotated[
        bool, typer.Option("--differential", hidden=True, help="The former name of privsql infer.")
    ] = False,
    epsilon: Annotated[float, typer.Option(hidden=True, help="With --differential.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Which records a corrupting adversary knows.")] = 1,
    within: Annotated[
        str | None, typer.Option(metavar="DISTANCE", help="How near a guess has to come; by default e of (k,e).")
    ] = None,
    key_file: KeyFile = None,
    plot: Plot = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure what adversaries could learn from a release. Exit code 1 if one breaks what the mechanism promises."""
    if differential and (source is None or len(given) != 2):
        raise UsageError("--differential needs --source and two conditions: who is meant, and what is sensitive")
    if not differential and len(given) != 1:
        raise UsageError(f"{given[1]}: one release is attacked at a time; two conditions go with privsql infer")
    with running(memory_limit, threads) as options:
        if differential and source is not None:
            _infer(source, *given, epsilon=epsilon, plot=plot, as_json=as_json, options=options)
            return
        spec = sourced(source) if source else None
        found = api.attack(
            Path(given[0]), spec, against=against or (), seed=seed, within=within, key_file=key_file, options=options
        )
        pictures.drawn(pictures.attacks, found, plot)
    tell(as_json, found.as_json, lambda: printing.attacked(found))
    raise typer.Exit(found.exit_code)


@app.command(
    epilog='Example:\n\n    privsql infer --source spec.toml --epsilon 0.1 "age > 60 AND sex = 1" "disease = \'flu\'"'
)
def infer(
    condition: Annotated[str, typer.Argument(metavar="CONDITION", help="SQL over quasi-identifiers: who is meant.")],
    sensitive: Annotated[str, typer.Argument(metavar="SENSITIVE", help="SQL that is asked of those who meet it.")],
    source: Source,
    epsilon: Epsilon = 0.1,
    seed: Annotated[
        int | None, typer.Option(help="Repeat a simulation; else OpenDP draws afresh.", show_default=False)
    ] = None,
    plot: Plot = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """What two differentially private counts of a source still tell of the people who meet a condition."""
    with running(memory_limit, threads) as options:
        asked = {"epsilon": epsilon, "seed": seed, "options": options}
        _infer(source, condition, sensitive, plot=plot, as_json=as_json, **asked)


def _infer(source: Path, *conditions: str, plot: Path | None, as_json: bool, **asked: Any) -> None:
    condition, sensitive = conditions
    found = api.infer(api.load(source), condition, sensitive, **asked)
    pictures.drawn(pictures.inference, found, plot)
    tell(as_json, found.as_json, lambda: printing.inferred(found))
