"""The commands: publish, query, serve, evaluate and attack releases, verify them, keep the ledger, write reports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import privsql as api
from privsql import plot as pictures
from privsql.calls import as_names, as_range
from privsql.cli import printing
from privsql.cli.app import (
    Confidence,
    Json,
    KeyFile,
    Memory,
    PlanCommand,
    ReleaseFile,
    SpecCommand,
    Threads,
    app,
    load_source,
    options_with_progress,
    print_result,
    read_specification,
    warn,
)
from privsql.errors import InfeasibleError, UsageError
from privsql.extras import PICTURES
from privsql.mechanisms.registry import DEFAULT as REGISTRY_DEFAULT
from privsql.mechanisms.registry import PACKAGES

if TYPE_CHECKING:
    from privsql.keyed_random import Key

# Publishing -----------------------------------------------------------------------------------------------------------
# ``publish``, ``plan``, ``init`` and ``schema``: from a table to a specification, and on to a release.

SOURCE = "a DuckDB or SQLite file, Parquet or CSV files ('data/*.csv.gz', a folder), or an address."
SpecOrSource = Annotated[str, typer.Argument(metavar="SPEC.toml|SOURCE", help=f"A specification, or {SOURCE}")]


@app.command(
    cls=SpecCommand,
    epilog="Examples:\n\n    privsql publish spec.toml\n\n"
    "    privsql publish people.parquet --sensitive disease --qi age,sex,zip --mechanism two-size "
    "--threshold '8*f + 0.02' --to release.duckdb",
)
def publish(
    ctx: typer.Context,
    source: SpecOrSource,
    key_file: Annotated[
        Path | None, typer.Option(help="Secret key to repeat this release; made, mode 0600, if not there.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For tests only: a public seed; the release says so.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a release that is there.")] = False,
    allow_composition: Annotated[
        bool,
        typer.Option("--allow-composition", help="Publish the same subjects again where no guarantee covers it."),
    ] = False,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Publish a release. It exists only once every check has passed; a crash leaves the old one or none."""
    spec, key = read_specification(ctx, source), _release_key(key_file, seed)
    with options_with_progress(memory_limit, threads) as options:
        done = api.publish(spec, key=key, replace=replace, allow_composition=allow_composition, options=options)
    for warning in done.warnings:
        warn(f"warning: {warning}")
    print_result(as_json, done.as_json, lambda: printing.print_published(done))


def _release_key(file: Path | None, seed: int | None) -> Key | None:
    """The key of a release, if its publisher names one."""
    from privsql import keyed_random  # noqa: PLC0415 (takes long to import)

    if file and seed is not None:
        raise UsageError("give --key-file or --seed, not both")
    return keyed_random.key_file(file) if file else keyed_random.seed_key(seed) if seed is not None else None


@app.command(
    cls=PlanCommand, epilog="Examples:\n\n    privsql plan spec.toml --json\n\n    privsql plan spec.toml --algorithms"
)
def plan(
    ctx: typer.Context,
    source: SpecOrSource,
    algorithms: Annotated[
        bool, typer.Option("--algorithms", help="Compare all algorithms: what each would cost, and tell.")
    ] = False,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Dry run: feasibility, setting, loss and its certified lower bound. Nothing is written."""
    spec = read_specification(ctx, source)
    with options_with_progress(memory_limit, threads) as options:
        if algorithms:
            alternatives = api.algorithms(spec, options=options)
            print_result(as_json, alternatives.as_json, lambda: printing.print_algorithms(alternatives))
            return
        result = api.plan(spec, options=options)
    print_result(as_json, result.as_json, lambda: printing.print_published(result))


@app.command(epilog="Example:\n\n    privsql init people.parquet --sensitive disease > spec.toml")
def init(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=f"A{SOURCE[1:]}")],
    table: Annotated[str | None, typer.Option(help="Table or view of a database file.")] = None,
    sensitive: Annotated[str | None, typer.Option(help="The sensitive column, if its name does not tell.")] = None,
    categorical: Annotated[
        bool, typer.Option("--categorical", help="Sensitive numbers are codes of categories.")
    ] = False,
    kind: Annotated[str, typer.Option(help=f"The mechanism: {', '.join(PACKAGES)}.")] = REGISTRY_DEFAULT,
    output: Annotated[
        Path | None, typer.Option(help="Where the specification goes; its paths are relative to that place.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at a source and propose a specification on stdout: roles, domain sizes, a feasible threshold."""
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; remove it, or give another place")
    base = output.absolute().parent if output is not None else None
    with options_with_progress() as options:
        toml = api.init(
            source, table=table, sensitive=sensitive, categorical=categorical, kind=kind, base=base, options=options
        )
    if output is not None:
        output.write_text(toml, encoding="utf-8")
    print_result(
        as_json, lambda: {"spec": toml}, lambda: print(toml if output is None else f"written: {output}\n", end="")
    )


@app.command(epilog="Example:\n\n    privsql schema > spec.schema.json")
def schema(_as_json: Json = False) -> None:
    """Print the JSON Schema of a specification, for editors; it is JSON with and without --json."""
    print(api.schema(), end="")


# Querying -------------------------------------------------------------------------------------------------------------
# ``query``, ``itemsets``, ``synthesize`` and ``inspect``: what an analyst asks of a release.


@app.command(
    epilog="Example:\n\n    privsql query occ_release.duckdb "
    '"SELECT sex, COUNT(*) FROM occ WHERE age BETWEEN 30 AND 40 AND occupation = 31 GROUP BY sex"'
)
def query(
    release: ReleaseFile,
    sql: Annotated[
        str,
        typer.Argument(metavar="SQL", help="SELECT [columns,] COUNT(*) FROM <release> [WHERE ..] [GROUP BY ..] .."),
    ],
    confidence: Confidence = 0.95,
    estimator: Annotated[
        str,
        typer.Option(help="reconstructed (through the channel), or baseline (the papers' formula, certain bounds)."),
    ] = "reconstructed",
    attach: Annotated[
        list[Path] | None, typer.Option(help="A DuckDB, Parquet or CSV file whose tables may be joined; repeatable.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print the SQL that runs and the formula.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Answer a count query with estimates and intervals. What is not supported is refused, never answered wrongly."""
    if as_json and as_csv:
        raise UsageError("give --json or --csv, not both")
    answer = api.query(release, sql, confidence=confidence, estimator=estimator, attach=attach or ())
    explained = {"sql": answer.sql, "formula": answer.formula} if explain else {}
    print_result(
        as_json,
        lambda: answer.as_json() | explained,
        lambda: printing.write_csv(sys.stdout, answer) if as_csv else printing.print_answer(answer, explain=explain),
    )


@app.command(epilog="Example:\n\n    privsql inspect occ_release.duckdb")
def inspect(release: ReleaseFile, as_json: Json = False) -> None:
    """Show what a release says of itself."""
    manifest = api.inspect(release)
    print_result(as_json, lambda: manifest.model_dump(mode="json"), lambda: printing.print_manifest(manifest))


@app.command(epilog="Example:\n\n    privsql itemsets baskets_release.duckdb --top 20")
def itemsets(
    release: ReleaseFile,
    top: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    estimator: Annotated[
        str, typer.Option(help="reconstructed, or baseline (published counts alone).")
    ] = "reconstructed",
    synthetic: Annotated[
        Path | None, typer.Option(help="Write synthetic (record, item) rows as well: a Parquet file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The most frequent item sets of a set-valued release, with their estimated numbers of records."""
    frequent = api.itemsets(release, top=top, estimator=estimator)
    if synthetic is not None:
        api.synthesize(release, synthetic)
    rows = [{"items": items, "records": support} for items, support in frequent]
    print_result(as_json, lambda: {"itemsets": rows, "estimator": estimator}, lambda: printing.print_itemsets(frequent))


@app.command(epilog="Example:\n\n    privsql synthesize counts.duckdb rows.parquet")
def synthesize(
    release: ReleaseFile,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The Parquet file that is written.")],
    as_json: Json = False,
) -> None:
    """Write synthetic records that give about the estimates of a differentially private release."""
    number = api.synthesize(release, to)
    print_result(
        as_json,
        lambda: {"file": str(to), "rows": number},
        lambda: printing.print_line(f"wrote {number:,} rows to {to}"),
    )


# Serving --------------------------------------------------------------------------------------------------------------
# ``serve``: a page to ask releases at.


@app.command(epilog="Example:\n\n    privsql serve occ_release.duckdb --open")
def serve(
    releases: Annotated[
        list[Path], typer.Argument(metavar="RELEASE...", help="Releases: DuckDB files or folders of Parquet files.")
    ],
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen at. Whoever asks at another one than this machine's own needs a token."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 is a free one.")] = 8317,
    token: Annotated[bool, typer.Option("--token", help="Ask for a token on this machine, too.")] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name by which browsers call this machine; repeatable.")
    ] = None,
    attach: Annotated[
        list[Path] | None, typer.Option(help="A DuckDB, Parquet or CSV file whose tables may be joined; repeatable.")
    ] = None,
    timeout: Annotated[int, typer.Option(min=1, max=3_600, help="Seconds that a question may take.")] = 30,
    rows: Annotated[
        int,
        typer.Option(min=1, max=1_000_000, help="Rows that an answer may have, or figures where each row has several."),
    ] = 20_000,
    at_once: Annotated[int, typer.Option(min=1, max=64, help="Questions that are answered at once; others wait.")] = 2,
    verify: Annotated[bool, typer.Option("--verify", help="Verify every release before it is served.")] = False,
    open: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,  # noqa: A002
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """A page in the browser to ask releases at, for people who write no SQL. Every answer is that of privsql query."""

    def started(address: str) -> None:
        names = [str(path) for path in releases]
        print_result(
            as_json,
            lambda: {"address": address, "releases": names},
            lambda: printing.print_line(f"serving {', '.join(names)} at {address} (Ctrl-C ends it)"),
        )

    with options_with_progress(memory_limit, threads) as options:
        api.serve(
            releases,
            host=host,
            port=port,
            token=token,
            allow_host=allow_host or (),
            attach=attach or (),
            timeout=timeout,
            rows=rows,
            at_once=at_once,
            verify=verify,
            open=open,
            started=started,
            options=options,
        )


# Measuring ------------------------------------------------------------------------------------------------------------
# ``evaluate``, ``compare``, ``attack`` and ``infer``: how good a release is, and how safe.


def _require_picture_ending(to: Path | None) -> Path | None:
    """The file of a picture; ``UsageError`` unless its ending is that of a PNG or an SVG."""
    if to is not None and to.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--plot {to}: the ending must be .png or .svg")
    if to is not None:
        PICTURES.require_installed()
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
Plot = Annotated[Path | None, typer.Option(callback=_require_picture_ending, help="Write a picture: PNG or SVG.")]
Source = Annotated[Path, typer.Option("--source", metavar="SPEC.toml", help="Specification that names the source.")]
TrueSource = Annotated[
    Path, typer.Option("--source", metavar="SPEC.toml|FILE", help="The source, by its specification or its file alone.")
]
Epsilon = Annotated[float, typer.Option(help="Privacy budget of each of the two counts.")]
KINDS = ("equality", "random", "ranges")


def _make_workload(kind: str, true_answers: str | None, estimators: str | None, drawn: dict[str, Any]) -> api.Workload:
    file = None if kind in KINDS else Path(kind)
    named = None if estimators is None else as_names(estimators, "--estimators")
    between = None if true_answers is None else as_range(true_answers, "--true-answers")
    return api.Workload(kind, file=file, true_answers=between, estimators=named, **drawn)


def _points_json(evaluated: api.Evaluated, points: bool) -> dict[str, Any]:
    """What there is with ``--points`` besides."""
    return {"points": evaluated.points()} if points else {}


def _require_json(points: bool, as_json: bool) -> None:
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
    _require_json(points, as_json)
    drawn = {"queries": queries, "attributes": attributes, "selectivity": selectivity, "seed": seed, "ways": ways}
    questions = _make_workload(workload, true_answers, estimators, drawn)
    with options_with_progress() as options:
        evaluated = api.evaluate(
            release, load_source(source), questions, confidence=confidence, key_file=key_file, options=options
        )
        pictures.save_picture(pictures.draw_evaluation, evaluated.scores, plot)
    print_result(
        as_json,
        lambda: evaluated.as_json() | _points_json(evaluated, points),
        lambda: printing.print_evaluation(evaluated),
    )


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
    confidence: Confidence = 0.95,
    key_file: KeyFile = None,
    points: Points = False,
    plot: Plot = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Publish a table in several ways, into a temporary folder, and measure each with the same queries."""
    _require_json(points, as_json)
    drawn = {"queries": queries, "attributes": attributes, "selectivity": selectivity, "seed": seed}
    questions = _make_workload(workload, true_answers, estimators, drawn)
    named_specs = [(path.stem, api.load(path)) for path in specs]
    with options_with_progress(memory_limit, threads) as options:
        comparison = api.compare(
            named_specs,
            questions,
            confidence=confidence,
            seed=seed,
            grid=grid or None,
            key_file=key_file,
            options=options,
        )
        pictures.save_picture(pictures.draw_comparison, {one.name: one.evaluated.scores for one in comparison}, plot)
    print_result(as_json, lambda: comparison.as_json(points=points), lambda: printing.print_comparison(comparison))
    if not comparison:
        raise typer.Exit(InfeasibleError.exit_code)


@app.command(epilog="Example:\n\n    privsql attack occ_release.duckdb --source spec.toml --plot attacks.png")
def attack(
    arguments: Annotated[list[str], typer.Argument(metavar="RELEASE", help="A release.")],
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
    if differential and (source is None or len(arguments) != 2):
        raise UsageError("--differential needs --source and two conditions: who is meant, and what is sensitive")
    if not differential and len(arguments) != 1:
        raise UsageError(f"{arguments[1]}: one release is attacked at a time; two conditions go with privsql infer")
    with options_with_progress(memory_limit, threads) as options:
        if differential and source is not None:
            _run_inference(source, *arguments, epsilon=epsilon, plot=plot, as_json=as_json, options=options)
            return
        spec = load_source(source) if source else None
        attacked = api.attack(
            Path(arguments[0]),
            spec,
            against=against or (),
            seed=seed,
            within=within,
            key_file=key_file,
            options=options,
        )
        pictures.save_picture(pictures.draw_attacks, attacked, plot)
    print_result(as_json, attacked.as_json, lambda: printing.print_attack(attacked))
    raise typer.Exit(attacked.exit_code)


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
    with options_with_progress(memory_limit, threads) as options:
        settings = {"epsilon": epsilon, "seed": seed, "options": options}
        _run_inference(source, condition, sensitive, plot=plot, as_json=as_json, **settings)


def _run_inference(source: Path, *conditions: str, plot: Path | None, as_json: bool, **settings: Any) -> None:
    condition, sensitive = conditions
    inference = api.infer(api.load(source), condition, sensitive, **settings)
    pictures.save_picture(pictures.draw_inference, inference, plot)
    print_result(as_json, inference.as_json, lambda: printing.print_inference(inference))


# Verifying, and the ledger --------------------------------------------------------------------------------------------
# ``verify`` and ``ledger``: what becomes of releases that are out.

DEFAULT = "list"


class LedgerGroup(TyperGroup):
    """What can be done with a ledger; who names nothing else wants it listed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``privsql ledger SPEC.toml`` is ``privsql ledger list SPEC.toml``."""
        first = next((one for one in args if not one.startswith("-")), None)
        if first not in self.commands and "--help" not in args:
            args = [DEFAULT, *args]
        return list(super().parse_args(ctx, args))


@app.command(epilog="Example:\n\n    privsql verify occ_release.duckdb --source spec.toml")
def verify(
    release: ReleaseFile,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[RELEASE]...", help="With --against: more of them.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--source", metavar="SPEC.toml|FILE", help="Check against the source: its specification, or its file alone."
        ),
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="RELEASE...", help="Earlier releases of the same subjects.")
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(metavar="LEDGER", help="The ledger, if not that of the specification.", show_default=False),
    ] = None,
    key_file: KeyFile = None,
    copy_to: Annotated[
        Path | None,
        typer.Option(
            "--copy-to", metavar="FILE", help="Write a clean copy from the release's tables alone.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a release independently: from its file alone, and against the source if a specification names it.

    With --against, also what it and other releases of the same subjects tell together, and with --source of which
    records.
    """
    if more and not against:
        raise UsageError(f"{more[0]}: one release is verified at a time; give others after --against")
    others = [*(against or ()), *(more or ())]
    with options_with_progress() as options:
        spec = load_source(source) if source else None
        outcome = api.verify(
            release, spec, against=others, database=database, key_file=key_file, copy_to=copy_to, options=options
        )
    print_result(as_json, outcome.as_json, lambda: printing.print_verified(release, outcome))
    raise typer.Exit(0 if outcome.ok else 1)


ledgers = typer.Typer(
    cls=LedgerGroup,
    help="What the publisher's private ledger holds: releases, what they compose to, and budgets.",
    rich_markup_mode=None,
    epilog="Examples:\n\n    privsql ledger spec.toml\n\n    privsql ledger withdraw trial.duckdb\n\n"
    "    privsql ledger cap spec.toml 3",
)
app.add_typer(ledgers, name="ledger")
Place = Annotated[
    Path | None, typer.Option(metavar="LEDGER", help="The ledger, if it is not the user's own.", show_default=False)
]


@ledgers.command("list")
def ledger(
    spec: Annotated[
        Path | None, typer.Argument(metavar="[SPEC.toml]", help="Specification of the source; by default, all sources.")
    ] = None,
    database: Place = None,
    as_json: Json = False,
) -> None:
    """List the releases of a source and what they compose to (the default)."""
    listing = api.ledger(api.load(spec) if spec else None, database=database)
    print_result(as_json, listing.as_json, lambda: printing.print_ledger(listing))


@ledgers.command()
def withdraw(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="A release, or its number in the ledger.")],
    database: Place = None,
    as_json: Json = False,
) -> None:
    """Record that a release never left the house. It frees what the release used, except a budget."""
    entry = api.withdraw(release, database=database)
    print_result(
        as_json,
        lambda: {"withdrawn": entry.number, "name": entry.name, "target": entry.target},
        lambda: printing.print_line(f"withdrew {entry.label}, {entry.target}"),
    )


@ledgers.command()
def cap(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Specification of the source.")],
    epsilon: Annotated[str, typer.Argument(metavar="EPSILON", help="The new cap, a decimal or a fraction.")],
    database: Place = None,
    as_json: Json = False,
) -> None:
    """Set the most that all differentially private releases of a source may spend together, and record it."""
    source_spec = api.load(spec)
    listing = api.cap(source_spec, epsilon, database=database)
    least = source_spec.ledger.epsilon if source_spec.ledger is not None else None
    if least is not None and listing.cap is not None and least < listing.cap:
        warn(f"warning: ledger.epsilon = {least} in {spec} lowers it again at the next release; change it there, too")
    print_result(as_json, listing.as_json, lambda: printing.print_budget(listing))


# Reports --------------------------------------------------------------------------------------------------------------
# ``report``: a release as a page for people.


@app.command(
    epilog="Examples:\n\n    privsql report occ_release.duckdb --to occ.html\n\n"
    "    privsql report occ_release.duckdb --source spec.toml --to internal.html"
)
def report(
    release: ReleaseFile,
    to: Annotated[Path, typer.Option(metavar="PAGE.html", help="The page that is written; one that is there goes.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            metavar="SPEC.toml|FILE",
            help="The source, by its specification or its file alone: an internal page, with true counts.",
        ),
    ] = None,
    key_file: KeyFile = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Write a page on a release: what it promises, who could learn what, how good its answers are, how to ask it.

    From the release alone the page may be handed out with it. With --source it is internal. Exit code 1 if a check does
    not hold or an adversary breaks a promise, which the page then says.
    """
    with options_with_progress(memory_limit, threads) as options:
        spec = load_source(source) if source else None
        outcome = api.report(release, spec, to=to, key_file=key_file, options=options)
    print_result(
        as_json, lambda: {"page": str(to), **outcome.as_json()}, lambda: printing.print_report_outcome(to, outcome)
    )
    raise typer.Exit(0 if outcome.ok else 1)
