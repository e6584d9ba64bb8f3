"""The command line: flags -> one call of the library -> printing and exit code. No logic lives here."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import privsql as api
from privsql import noise
from privsql._version import __version__
from privsql.cli import plot as pictures
from privsql.cli import show
from privsql.engine.progress import reporter
from privsql.errors import InfeasibleError, PrivsqlError, UsageError
from privsql.source import spec as specs

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(
    help="Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
out = Console(markup=False, emoji=False)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
SourceSpec = Annotated[
    Path | None,
    typer.Option("--source", metavar="SPEC.toml", help="Check against the source that this specification names."),
]
ReleaseFile = Annotated[
    Path, typer.Argument(metavar="RELEASE", help="A release: a DuckDB file or a folder of Parquet files.")
]
Sensitive = Annotated[
    str | None, typer.Option(help="Sensitive column(s), separated by commas (without a specification).")
]
Quasi = Annotated[
    str | None, typer.Option("--qi", help="Quasi-identifiers, separated by commas (without a specification).")
]
Table = Annotated[str | None, typer.Option(help="Table or view of a DuckDB source.")]
Query = Annotated[str | None, typer.Option("--query", help="A SELECT over the source in place of a table.")]
Name = Annotated[str | None, typer.Option(help="Name of the release and its view.")]
Mechanism = Annotated[str | None, typer.Option(help="anatomy, one-size, two-size, multi-size or optimal.")]
Threshold = Annotated[str | None, typer.Option(help="A constant, or linear in the frequency f: '8*f + 0.02'.")]
Nulls = Annotated[list[str] | None, typer.Option(help="NULL policy, COLUMN=value, suppress or refuse; repeatable.")]
Smallest = Annotated[int | None, typer.Option("--min-bucket-size", help="Smallest bucket size.")]
Largest = Annotated[int | None, typer.Option("--max-bucket-size", help="Largest bucket size.")]
Memory = Annotated[
    str | None,
    typer.Option("--memory-limit", help="The engine's memory limit, such as 2GB; beyond it spills."),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="The engine's threads.")]
WorkloadKind = Annotated[str, typer.Option("--workload", help="equality, random, ranges, or a file of SQL.")]
Queries = Annotated[int, typer.Option(min=1, help="How many queries.")]
Attributes = Annotated[int, typer.Option(min=1, help="random: quasi-identifiers per query.")]
Selectivity = Annotated[float, typer.Option(min=0, max=1, help="random: expected share of the records.")]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]
Plot = Annotated[Path | None, typer.Option(help="Write a picture: PNG or SVG.")]


@contextmanager
def _running(as_json: bool, memory_limit: str | None = None, threads: int | None = None) -> Iterator[api.Options]:
    """Options with a progress bar; errors become one line on stderr and an exit code."""
    try:
        with reporter() as report:
            yield api.Options(memory_limit, threads, report)
    except PrivsqlError as error:
        if as_json:
            details = error.details if isinstance(error, InfeasibleError) else {}
            _json({"error": str(error), "exit_code": error.exit_code, **details})
        print(f"privsql: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        print("privsql: interrupted; nothing was written", file=sys.stderr)
        raise typer.Exit(130) from error


def _json(shown: dict[str, Any]) -> None:
    print(json.dumps(shown, ensure_ascii=False))


def _workload(kind: str, queries: int, attributes: int, selectivity: float, seed: int) -> api.Workload:
    known = kind in ("equality", "random", "ranges")
    return api.Workload(kind, queries, attributes, selectivity, seed, None if known else Path(kind))


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _spec(source: Path, flags: dict[str, Any]) -> specs.Spec:
    """The specification: a TOML file, or a source with flags."""
    if source.suffix.lower() == ".toml":
        wrong = [name for name, value in flags.items() if value not in (None, []) and name not in ("to", "format")]
        if wrong:
            raise UsageError(f"--{wrong[0].replace('_', '-')} does not go with a specification file; write it there")
        return specs.load(source)
    raw = specs.from_flags(source, flags)
    return specs.build(raw)


@app.command(
    epilog="Examples:\n\n    privsql publish spec.toml\n\n"
    "    privsql publish people.parquet --sensitive disease --qi age,sex,zip --mechanism two-size "
    "--threshold '8*f + 0.02' --to release.duckdb"
)
def publish(
    source: Annotated[
        Path,
        typer.Argument(metavar="SPEC.toml|SOURCE", help="A specification, or a DuckDB, Parquet or CSV file."),
    ],
    to: Annotated[Path | None, typer.Option(help="Where the release goes.")] = None,
    sensitive: Sensitive = None,
    qi: Quasi = None,
    table: Table = None,
    query: Query = None,
    name: Name = None,
    mechanism: Mechanism = None,
    threshold: Threshold = None,
    nulls: Nulls = None,
    min_bucket_size: Smallest = None,
    max_bucket_size: Largest = None,
    form: Annotated[str | None, typer.Option("--format", help="duckdb (one file) or parquet (a folder).")] = None,
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
    flags = {
        "sensitive": _split(sensitive), "qi": _split(qi), "table": table, "query": query, "name": name,
        "mechanism": mechanism, "threshold": threshold, "nulls": nulls, "min_bucket_size": min_bucket_size,
        "max_bucket_size": max_bucket_size, "to": to, "format": form,
    }  # fmt: skip
    with _running(as_json, memory_limit, threads) as options:
        spec = specs.redirected(_spec(source, flags), to, form)
        if key_file and seed is not None:
            raise UsageError("give --key-file or --seed, not both")
        key = noise.key_file(key_file) if key_file else noise.seed_key(seed) if seed is not None else None
        done = api.publish(spec, key=key, replace=replace, allow_composition=allow_composition, options=options)
    for warning in done.warnings:
        print(f"privsql: warning: {warning}", file=sys.stderr)
    _json(done.as_json()) if as_json else show.published(out, done)


@app.command(epilog="Example:\n\n    privsql plan spec.toml --json")
def plan(
    source: Annotated[
        Path,
        typer.Argument(metavar="SPEC.toml|SOURCE", help="A specification, or a DuckDB, Parquet or CSV file."),
    ],
    sensitive: Sensitive = None,
    qi: Quasi = None,
    table: Table = None,
    query: Query = None,
    mechanism: Mechanism = None,
    threshold: Threshold = None,
    nulls: Nulls = None,
    min_bucket_size: Smallest = None,
    max_bucket_size: Largest = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Dry run: feasibility, setting, loss and its certified lower bound. Nothing is written."""
    flags = {
        "sensitive": _split(sensitive), "qi": _split(qi), "table": table, "query": query, "mechanism": mechanism,
        "threshold": threshold, "nulls": nulls, "min_bucket_size": min_bucket_size, "max_bucket_size": max_bucket_size,
    }  # fmt: skip
    with _running(as_json, memory_limit, threads) as options:
        found = api.plan(_spec(source, flags), options=options)
    _json(found.as_json()) if as_json else show.published(out, found)


@app.command(epilog="Example:\n\n    privsql verify occ_release.duckdb --source spec.toml")
def verify(
    release: ReleaseFile,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[RELEASE]...", help="With --against: more of them.")
    ] = None,
    source: SourceSpec = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="RELEASE...", help="Earlier releases of the same subjects.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a release independently: from its file alone, and against the source if a specification names it.

    With --against, also what it and other releases of the same subjects tell together, and with --source of which
    records.
    """
    with _running(as_json) as options:
        if more and not against:
            raise UsageError(f"{more[0]}: one release is verified at a time; give others after --against")
        others = [*(against or ()), *(more or ())]
        found = api.verify(release, specs.load(source) if source else None, against=others, options=options)
    _json(found.as_json()) if as_json else show.verified(out, release, found)
    raise typer.Exit(0 if found.ok else 1)


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
    with _running(as_json):
        if as_json and as_csv:
            raise UsageError("give --json or --csv, not both")
        answer = api.query(release, sql, confidence=confidence, estimator=estimator, attach=attach or ())
    if as_json:
        _json(answer.as_json() | ({"sql": answer.sql, "formula": answer.formula} if explain else {}))
    elif as_csv:
        show.csv_rows(sys.stdout, answer)
    else:
        show.answered(out, answer, explain=explain)


@app.command(epilog="Example:\n\n    privsql evaluate occ_release.duckdb --source spec.toml --plot error.png")
def evaluate(
    release: ReleaseFile,
    source: Annotated[Path, typer.Option("--source", metavar="SPEC.toml", help="Specification that names the source.")],
    workload: WorkloadKind = "equality",
    queries: Queries = 1200,
    attributes: Attributes = 3,
    selectivity: Selectivity = 0.05,
    seed: Annotated[int, typer.Option(help="Which queries are drawn.")] = 1,
    confidence: Confidence = 0.95,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Compare a release's answers with its source: relative error and coverage, by size of the true answer."""
    with _running(as_json) as options:
        asked = _workload(workload, queries, attributes, selectivity, seed)
        found = api.evaluate(release, specs.load(source), asked, confidence=confidence, options=options)
        if plot is not None:
            show.plotted(pictures.evaluation, found.scores, plot)
    _json(found.as_json()) if as_json else show.evaluated(out, found)


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
    with _running(as_json):
        found = api.itemsets(release, top=top, estimator=estimator)
        if synthetic is not None:
            api.synthesize(release, synthetic)
    if as_json:
        _json({"itemsets": [{"items": items, "records": support} for items, support in found], "estimator": estimator})
    else:
        show.frequent(out, found)


@app.command(epilog="Example:\n\n    privsql compare pp.toml up.toml anatomy.toml --plot compare.png")
def compare(
    specs_: Annotated[list[Path], typer.Argument(metavar="SPEC.toml...", help="Specifications of one table.")],
    workload: WorkloadKind = "equality",
    queries: Queries = 1200,
    attributes: Attributes = 3,
    selectivity: Selectivity = 0.05,
    seed: Annotated[int, typer.Option(help="Which queries are drawn, and the releases.")] = 1,
    confidence: Confidence = 0.95,
    plot: Plot = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Publish a table in several ways, into a temporary folder, and measure each with the same queries."""
    with _running(as_json, memory_limit, threads) as options:
        asked = _workload(workload, queries, attributes, selectivity, seed)
        given = [(path.stem, specs.load(path)) for path in specs_]
        found = api.compare(given, asked, confidence=confidence, seed=seed, options=options)
        if plot is not None:
            show.plotted(pictures.comparison, {one.name: one.evaluated.scores for one in found}, plot)
    _json({"specs": [one.as_json() for one in found]}) if as_json else show.compared(out, found)


@app.command(
    epilog="Examples:\n\n    privsql attack occ_release.duckdb --source spec.toml --plot attacks.png\n\n"
    '    privsql attack --differential --epsilon 0.1 --source spec.toml "age > 60 AND sex = 1" "disease = \'flu\'"'
)
def attack(
    given: Annotated[
        list[str],
        typer.Argument(metavar="RELEASE | CONDITION SENSITIVE", help="A release; with --differential two conditions."),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--source", metavar="SPEC.toml", help="Specification of the source: compare beliefs with the truth."
        ),
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="RELEASE", help="Another release of the same people; repeatable.")
    ] = None,
    differential: Annotated[
        bool, typer.Option("--differential", help="What two differentially private counts of the source still tell.")
    ] = False,
    epsilon: Annotated[float, typer.Option(help="Privacy budget of each of the two counts.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Which records a corrupting adversary knows.")] = 1,
    plot: Plot = None,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Measure what adversaries could learn from a release. Exit code 1 if one breaks what the mechanism promises."""
    with _running(as_json, memory_limit, threads) as options:
        spec = specs.load(source) if source else None
        if differential:
            if spec is None or len(given) != 2:
                raise UsageError(
                    "--differential needs --source and two conditions: who is meant, and what is sensitive"
                )
            inferred = api.differential(spec, *given, epsilon=epsilon, options=options)
            if plot is not None:
                show.plotted(pictures.inference, inferred, plot)
            _json(inferred.as_json()) if as_json else show.inferred(out, inferred)
            return
        if len(given) != 1:
            raise UsageError("give one release; two conditions go with --differential")
        found = api.attack(Path(given[0]), spec, against=against or (), seed=seed, options=options)
        if plot is not None:
            show.plotted(pictures.attacks, found, plot)
    _json(found.as_json()) if as_json else show.attacked(out, found)
    raise typer.Exit(found.exit_code)


@app.command(epilog="Example:\n\n    privsql inspect occ_release.duckdb")
def inspect(release: ReleaseFile, as_json: Json = False) -> None:
    """Show what a release says of itself."""
    with _running(as_json):
        manifest = api.inspect(release)
    _json(manifest.model_dump(mode="json")) if as_json else show.inspected(out, manifest)


@app.command(epilog="Example:\n\n    privsql init people.parquet --sensitive disease > spec.toml")
def init(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A DuckDB, Parquet or CSV file.")],
    table: Table = None,
    sensitive: Annotated[str | None, typer.Option(help="The sensitive column, if its name does not tell.")] = None,
    kind: Annotated[str, typer.Option(help="The mechanism: bucketize, randomize, ..")] = "bucketize",
    as_json: Json = False,
) -> None:
    """Look at a source and propose a specification on stdout: roles, domain sizes, a feasible threshold."""
    with _running(as_json) as options:
        toml = api.init(source, table=table, sensitive=sensitive, kind=kind, options=options)
    _json({"spec": toml}) if as_json else print(toml, end="")


@app.command(epilog="Example:\n\n    privsql ledger spec.toml")
def ledger(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Specification of the source.")],
    as_json: Json = False,
) -> None:
    """List the releases of a source and what they compose to, from the publisher's private ledger."""
    with _running(as_json):
        entries = api.ledger(specs.load(spec))
    _json({"releases": [entry.as_json() for entry in entries]}) if as_json else show.ledger(out, entries)


@app.command(epilog="Example:\n\n    privsql schema > spec.schema.json")
def schema() -> None:
    """Print the JSON Schema of a specification, for editors."""
    print(specs.schema(), end="")


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify."""
