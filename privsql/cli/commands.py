"""Define the commands: publish, query, serve, evaluate and attack releases, verify them, list the ledger, report."""

from __future__ import annotations

import json
import sys
from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import privsql as api
from privsql import plot as pictures
from privsql.cli import printing
from privsql.cli.app import (
    SOURCE,
    CommandOutcome,
    Confidence,
    Json,
    KeyFile,
    LedgerFile,
    MechanismKind,
    ReleaseFile,
    Sensitive,
    Settings,
    Verbose,
    app,
    load_source,
    print_result,
    register_command,
    tell,
)
from privsql.engine.database import Options
from privsql.errors import UsageError
from privsql.mechanisms.registry import PROMISES
from privsql.system import PICTURES

# Publishing -----------------------------------------------------------------------------------------------------------
# ``publish``, ``plan`` and ``init``: from a table to a specification, and on to a release.


@register_command(
    epilog="privsql publish spec.toml\n"
    "privsql publish people.parquet --sensitive disease --qi age,sex,zip --algorithm two-size "
    "--threshold '8*f + 0.02' --to release.duckdb",
)
def publish(
    specification: Any,
    options: Options,
    key_file: Annotated[Path | None, typer.Option(help="File of a key that repeats the release.")] = None,
    seed: Annotated[int | None, typer.Option(help="For tests only: a public seed; the release says so.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing release.")] = False,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Replace an existing release only by the same again.")
    ] = False,
    nobody_has_it: Annotated[
        bool, typer.Option("--nobody-has-it", help="With --replace: nobody has received the old one.")
    ] = False,
    allow_composition: Annotated[
        bool, typer.Option("--allow-composition", help="Publish people again that no guarantee covers.")
    ] = False,
    allow_useless: Annotated[
        bool, typer.Option("--allow-useless", help="Publish although counts of 500 are off by more than 20%.")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="List the SQL steps that ran, with rows and time.")] = False,
    verbose: Verbose = False,
) -> CommandOutcome:
    """Publish a release. It exists only once every check has passed; a crash leaves the old one or none."""
    how: dict[str, Any] = {"key_file": key_file, "seed": seed, "replace": replace, "repeat": repeat}
    how |= {"nobody_has_it": nobody_has_it, "allow_composition": allow_composition, "allow_useless": allow_useless}
    how["trace"] = trace
    done = api.publish(specification, **how, options=options)
    return tell(done, verbose=verbose)


def _require_picture_ending(to: Path | None) -> Path | None:
    """Check the file that option ``--plot`` names, and return it; None if the option is not given.

    Raises:
        UsageError: The ending of the file is neither ``.png`` nor ``.svg``.
    """
    if to is not None and to.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--plot {to}: the ending must be .png or .svg")
    if to is not None:
        PICTURES.require_installed()
    return to


Plot = Annotated[Path | None, typer.Option(callback=_require_picture_ending, help="Write a picture: PNG or SVG.")]


@register_command(epilog="privsql plan spec.toml --algorithms\nprivsql plan spec.toml --curve --plot curve.svg")
def plan(
    specification: Any,
    options: Options,
    algorithms: Annotated[
        bool, typer.Option("--algorithms", help="Compare all algorithms: loss, beliefs and predicted errors.")
    ] = False,
    curve: Annotated[
        bool, typer.Option("--curve", help="Compare the threshold with multiples of it: predicted error and belief.")
    ] = False,
    plot: Plot = None,
    changed: Annotated[
        Path | None,
        typer.Option(help="Write the ids of records that were deleted or changed since the last release; mode 0600."),
    ] = None,
    verbose: Verbose = False,
) -> CommandOutcome:
    """Predict a release, and write nothing. Shows buckets, how sure attackers can be, how precise answers will be."""
    if changed is not None and (algorithms or curve):
        raise UsageError("--changed can't be combined with --algorithms or --curve")
    if plot is not None and not curve:
        raise UsageError("--plot draws the curve; add --curve")
    if curve:
        rows = api.curve(specification, options=options)
        pictures.save_picture(pictures.chart_curve, rows.points, plot)
        return tell(rows)
    if algorithms:
        return tell(api.algorithms(specification, options=options))
    result = api.plan(specification, options=options)
    if changed is not None:
        printing.write_changes(changed, result.changes)
    return tell(result, verbose=verbose)


@register_command(
    epilog="privsql init people.parquet --sensitive disease > spec.toml\nprivsql init --schema > spec.schema.json"
)
def init(
    options: Options,
    source: Annotated[str | None, typer.Argument(metavar="SOURCE", help=f"A{SOURCE[1:]}", show_default=False)] = None,
    sensitive: Sensitive = None,
    mechanism: MechanismKind = None,
    set: Settings = None,  # noqa: A002
    protect: Annotated[
        str | None, typer.Option(metavar="VALUE,..", help="Sensitive values to protect; all others are free.")
    ] = None,
    promise: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"What to promise: {', '.join(PROMISES)}. [default: what suits]")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Leave out the columns that are asked about, and confirm the values.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Name every column, with the reason for its role.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the specification to this file; its paths are relative to that folder.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of specifications, for editors, and read no source.")
    ] = False,
) -> CommandOutcome:
    """Propose a specification for a source. Shows roles, a promise, how precise answers will be, and what to decide."""
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; remove it, or choose another path")
    base = output.absolute().parent if output is not None else None
    if schema and source is None:  # an editor asks for the schema, which needs no engine
        from privsql.source.spec import schema as specification_schema

        text = specification_schema()
    else:
        from privsql.source.keywords import nest_settings

        keys: dict[str, Any] = {"sensitive": sensitive, "mechanism": mechanism, "set": nest_settings(set or ())}
        keys |= {"protect": protect.split(",") if protect else (), "promise": promise}
        keys |= {"accept": accept, "explain": explain}
        text = api.init(source, **keys, base=base, schema=schema, options=options)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    shown = text if output is None else f"written: {output}\n"
    return CommandOutcome(lambda: json.loads(text) if schema else {"spec": text}, lambda: print(shown, end=""))


# Querying -------------------------------------------------------------------------------------------------------------
# ``query``, ``test``, ``fit`` and ``export``: what an analyst reads in a release.

Attached = Annotated[
    list[Path] | None, typer.Option(help="A DuckDB, Parquet or CSV file whose tables may be joined; repeatable.")
]
Fitted = Annotated[
    bool,
    typer.Option(
        "--fit/--no-fit",
        help="Fit a model first to a release that has none, where that takes 15 seconds at most.",
    ),
]
SourceOption = typer.Option(
    "--source", metavar="SPEC.toml|FILE", help="The source: its specification, or its file alone."
)
Against = Annotated[
    list[str] | None, typer.Option(metavar="RELEASE", help="Another release of the same people; repeatable.")
]
OptionalSource = Annotated[Path | None, SourceOption]


@register_command(
    epilog="privsql query occ_release.duckdb "
    '"SELECT sex, COUNT(*) FROM occ WHERE age BETWEEN 30 AND 40 AND occupation = 31 GROUP BY sex"\n'
    "privsql query baskets_release.duckdb --itemsets 20"
)
def query(
    release: ReleaseFile,
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL",
            help="SELECT [columns,] COUNT(*) FROM <release> [WHERE ..] [GROUP BY ..] ..",
            show_default=False,
        ),
    ] = None,
    itemsets: Annotated[
        int | None, typer.Option(min=1, help="In place of SQL: list so many of the most frequent item sets.")
    ] = None,
    confidence: Confidence = 0.95,
    estimator: Annotated[
        str,
        typer.Option(
            help="model (see privsql fit), linear, reconstructed or baseline (the papers' formula, certain bounds); by "
            "default the most precise one that there is."
        ),
    ] = "best",
    attach: Attached = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print the SQL that runs and the formula.")] = False,
    fit: Fitted = True,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Json = False,
) -> CommandOutcome:
    """Answer a query with estimates and intervals. A query that is not supported fails with the reason."""
    if as_json and as_csv:
        raise UsageError("give --json or --csv, not both")
    if sql is None or itemsets is not None:
        if as_csv or explain:
            raise UsageError("--csv and --explain need SQL")
        frequent = api.query(release, sql, itemsets=itemsets, estimator=estimator)  # type: ignore[call-overload]
        return tell(frequent)
    with api.open(release, attach or (), fit=fit) as opened:
        answer = opened.query(sql, confidence=confidence, estimator=estimator)
        hints = () if answer.certain else opened.answers.explain_improvement(answer.estimator)
    if as_csv:
        return CommandOutcome(answer.as_json, lambda: printing.write_csv(sys.stdout, answer))
    explained = {"sql": answer.sql, "formula": answer.formula} if explain else {}
    return tell(answer, verbose=explain, more=explained, notes=[f"note: {hint}" for hint in hints])


@register_command(
    name="test",
    epilog="privsql test occ_release.duckdb counts.test\nprivsql test occ_release.duckdb counts.test --record",
)
def run_tests(
    release: ReleaseFile,
    files: Annotated[list[Path], typer.Argument(metavar="FILE..", help="Queries with their expected answers.")],
    record: Annotated[bool, typer.Option("--record", help="Write the answers into the files.")] = False,
    attach: Attached = None,
) -> CommandOutcome:
    """Compare a release's answers with expected ones in files. The exit code is 1 if one differs."""
    return tell(api.test(release, files, record=record, attach=attach or ()))


@register_command(epilog="privsql fit occ_release.duckdb")
def fit(
    release: ReleaseFile,
    options: Options,
    to: Annotated[Path | None, typer.Option(help="Also write the model's parameters to a file.")] = None,
    parameters: Annotated[
        Path | None, typer.Option("--from", help="Load such a file instead of fitting.", show_default=False)
    ] = None,
) -> CommandOutcome:
    """Fit a model to a release, for more precise answers.

    The model is stored in your cache, where query, serve, evaluate and report find it. It about halves the errors.
    """
    return tell(api.fit(release, to=to, parameters=parameters, options=options))


@register_command(
    epilog="privsql export people_release.duckdb --completed draws.parquet\n"
    "privsql export counts.duckdb --synthetic rows.parquet"
)
def export(
    release: ReleaseFile,
    synthetic: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Parquet file of synthetic records that give about the same counts. The release must be "
            "differentially private.",
        ),
    ] = None,
    completed: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Parquet or DuckDB file, or schema (DATABASE::SCHEMA), of the completed tables that the model of "
            "'privsql fit' drew, one below the other.",
        ),
    ] = None,
    draw: Annotated[
        int | None, typer.Option(min=1, help="Of --completed one table alone, under the source's name and columns.")
    ] = None,
) -> CommandOutcome:
    """Write records that a release stands for, for tools that read rows."""
    return tell(api.export(release, synthetic=synthetic, completed=completed, draw=draw))


# Serving --------------------------------------------------------------------------------------------------------------
# ``serve``: a page on which to query releases.


@register_command(epilog="privsql serve occ_release.duckdb --open")
def serve(
    releases: Annotated[
        list[str],
        typer.Argument(metavar="RELEASE...", help="Releases: DuckDB files, folders of Parquet files, or schemas."),
    ],
    options: Options,
    host: Annotated[
        str, typer.Option(help="Address to listen at; one that other machines reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 is a free one.")] = 8317,
    token: Annotated[bool, typer.Option("--token", help="Require a token on this machine, too.")] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name by which browsers call this machine; repeatable.")
    ] = None,
    attach: Attached = None,
    timeout: Annotated[int, typer.Option(min=1, max=3_600, help="Seconds that a question may take.")] = 30,
    rows: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Largest answer, in rows, or in figures if a row has several.")
    ] = 20_000,
    at_once: Annotated[int, typer.Option(min=1, max=64, help="Questions that are answered at once; others wait.")] = 2,
    verify: Annotated[bool, typer.Option("--verify", help="Verify every release before it is served.")] = False,
    fit: Fitted = True,
    open: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,  # noqa: A002
    as_json: Json = False,
) -> None:
    """Serve a web page for queries without SQL. Answers are those of privsql query."""

    def started(address: str) -> None:
        names = [_label_place(one) for one in releases]
        line = f"serving {', '.join(names)} at {address} (Ctrl-C ends it)"
        print_result(as_json, lambda: {"address": address, "releases": names}, lambda: printing.print_line(line))

    limits: dict[str, Any] = {"timeout": timeout, "rows": rows, "at_once": at_once}
    access: dict[str, Any] = {"host": host, "port": port, "token": token, "allow_host": allow_host or ()}
    ways: dict[str, Any] = {"attach": attach or (), "verify": verify, "open": open, "fit": fit}
    api.serve(releases, **access, **ways, **limits, started=started, options=options)


# Measuring ------------------------------------------------------------------------------------------------------------
# ``evaluate`` and ``attack``: how good a release is, and how safe.


WorkloadKind = Annotated[str, typer.Option("--workload", help="equality, random, ranges, or a file of SQL.")]
Queries = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default="1200, or 300 of each class",
        help="Number of queries; of differentially private releases, the most of each class.",
    ),
]
Attributes = Annotated[int, typer.Option(min=1, help="With --workload random: quasi-identifiers per query.")]
Selectivity = Annotated[float, typer.Option(min=0, max=1, help="With --workload random: expected share of records.")]
TrueAnswers = Annotated[
    str | None,
    typer.Option(
        metavar="LEAST:MOST", help="Only questions whose true answer is in this range: 100:5000, 100:, :5000."
    ),
]
Estimators = Annotated[
    str | None, typer.Option(metavar="NAME,..", help="Only model, linear, reconstructed or baseline; by default all.")
]
Points = Annotated[
    bool, typer.Option("--points", help="With --json: every question with its true answer and each estimator's.")
]


@register_command(
    epilog="privsql evaluate occ_release.duckdb --source spec.toml --plot error.png\n"
    "privsql evaluate pp.toml up.toml anatomy.toml --plot compare.png"
)
def evaluate(
    release: Annotated[
        list[str],
        typer.Argument(
            metavar="RELEASE|SPEC.toml...",
            help="A release; or specifications of one table, each of which is published into a temporary folder.",
        ),
    ],
    options: Options,
    source: OptionalSource = None,
    workload: WorkloadKind = "equality",
    queries: Queries = None,
    attributes: Attributes = 3,
    selectivity: Selectivity = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of the random queries, and of releases by specifications.")] = 1,
    ways: Annotated[int, typer.Option(min=1, help="Tables of counts: most columns of a table that is compared.")] = 2,
    true_answers: TrueAnswers = None,
    estimators: Estimators = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE",
            help="Publish every specification with each of these values: threshold=1/4,1/8; repeatable.",
        ),
    ] = None,
    confidence: Confidence = 0.95,
    key_file: KeyFile = None,
    points: Points = False,
    plot: Plot = None,
    as_json: Json = False,
) -> CommandOutcome:
    """Compare answers with those of the source. Shows errors and coverage by size of the answer or by question.

    Give one release and --source, or several specifications of one table.
    """
    if points and not as_json:
        raise UsageError("--points needs --json")
    drawn: dict[str, Any] = {"queries": queries, "attributes": attributes, "selectivity": selectivity, "seed": seed}
    chosen: dict[str, Any] = {"ways": ways, "true_answers": true_answers, "estimators": estimators}
    how = drawn | chosen | {"grid": grid or None, "confidence": confidence, "key_file": key_file, "options": options}
    if all(one.lower().endswith(".toml") for one in release):
        if source is not None:
            raise UsageError("--source is of a release; a specification names its own")
        specs = [(Path(one).stem, api.load(one)) for one in release]
        comparison = api.evaluate(specs, workload=workload, **how)
        pictures.save_picture(pictures.draw_comparison, {one.name: one.evaluated.scores for one in comparison}, plot)
        return tell(comparison, more=comparison.as_json(points=True) if points else None)
    if len(release) > 1:
        raise UsageError("evaluate takes one release, or specifications, whose names end in .toml")
    evaluated: Any = api.evaluate(release[0], load_source(source), workload, **how)
    pictures.save_picture(pictures.draw_evaluation, evaluated.scores, plot)
    return tell(evaluated, more={"points": evaluated.points()} if points else None)


@register_command(
    epilog="privsql attack occ_release.duckdb --source spec.toml --plot attacks.png\n"
    "privsql attack --source spec.toml --differential 'age > 60 AND sex = 1' \"disease = 'flu'\" --epsilon 0.1"
)
def attack(
    options: Options,
    release: Annotated[
        str | None, typer.Argument(metavar="RELEASE", help="A release; none with --differential.", show_default=False)
    ] = None,
    source: OptionalSource = None,
    against: Against = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the choice of records that an adversary knows, by default 1; with --differential, to repeat "
            "a simulation.",
            show_default=False,
        ),
    ] = None,
    within: Annotated[
        str | None, typer.Option(metavar="DISTANCE", help="Distance that a right guess may be off; by default e.")
    ] = None,
    key_file: KeyFile = None,
    differential: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="CONDITION SENSITIVE",
            help="Attack two noisy counts of the source: of the records that meet a condition on quasi-identifiers, "
            "and of those among them that meet one on sensitive columns.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="With --differential: privacy budget of each count. [default: 0.1]")
    ] = None,
    plot: Plot = None,
) -> CommandOutcome:
    """Measure what adversaries could learn from a release. With --source, compare their beliefs with the truth.

    The exit code is 1 if an adversary breaks a promise of the mechanism.
    """
    whom: dict[str, Any] = {"release": release, "source": load_source(source), "against": against or ()}
    counts: dict[str, Any] = {"differential": differential, "epsilon": epsilon, "seed": seed}
    outcome: Any = api.attack(**whom, **counts, within=within, key_file=key_file, options=options)
    if differential is not None:
        pictures.save_picture(pictures.draw_inference, outcome, plot)
        return tell(outcome)
    pictures.save_picture(pictures.draw_attacks, outcome, plot)
    summary = api.summarize(release or "", findings=outcome.findings, options=options) if outcome.ok else None
    return tell(dataclass_replace(outcome, summary=summary))


# Verifying, and the ledger --------------------------------------------------------------------------------------------
# ``verify`` and ``ledger``: checks of published releases, and the record of them.

DEFAULT = "list"


class LedgerGroup(TyperGroup):
    """The group of the commands on a ledger. If no command is named, it is ``list``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; ``privsql ledger SPEC.toml`` becomes ``privsql ledger list SPEC.toml``."""
        first = next((one for one in args if not one.startswith("-")), None)
        if first not in self.commands and "--help" not in args:
            args = [DEFAULT, *args]
        return list(super().parse_args(ctx, args))


@register_command(epilog="privsql verify occ_release.duckdb --source spec.toml")
def verify(
    release: ReleaseFile,
    options: Options,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[RELEASE]...", help="More releases for --against.")
    ] = None,
    source: OptionalSource = None,
    against: Against = None,
    ledger: LedgerFile = None,
    key_file: KeyFile = None,
    copy_to: Annotated[
        Path | None,
        typer.Option(
            "--copy-to", metavar="FILE", help="Write a clean copy from the release's tables alone.", show_default=False
        ),
    ] = None,
    verbose: Verbose = False,
) -> CommandOutcome:
    """Check a release from its file alone, or against its source.

    With --source and the key of the release, from the ledger or --key-file, it publishes again and compares tables.
    With --against, it also checks what this and other releases of the same people reveal together. With --source and
    --against, it names the records that they reveal.
    """
    if more and not against:
        raise UsageError(f"{_label_place(more[0])}: verify takes one release; list others after --against")
    keys: dict[str, Any] = {"ledger": ledger, "key_file": key_file, "copy_to": copy_to, "options": options}
    spec = load_source(source)
    outcome = api.verify(release, spec, against=[*(against or ()), *(more or ())], **keys)
    return tell(outcome, verbose=verbose)


def _label_place(release: str) -> str:
    """Return where a release lies, as messages show it: a path or an address without its password."""
    from privsql.source.targets import as_target

    return str(as_target(release))


ledgers = typer.Typer(
    cls=LedgerGroup,
    help="List or change the publisher's private ledger of releases.",
    rich_markup_mode=None,
    epilog="Examples:\n\n    privsql ledger spec.toml\n\n    privsql ledger show 3\n\n"
    "    privsql ledger withdraw trial.duckdb\n\n"
    "    privsql ledger cap spec.toml 3",
)
app.add_typer(ledgers, name="ledger")


@register_command(group=ledgers, name="list")
def ledger(
    spec: Annotated[
        Path | None, typer.Argument(metavar="[SPEC.toml]", help="Whose population is listed; by default, all are.")
    ] = None,
    ledger: LedgerFile = None,
) -> CommandOutcome:
    """List releases and what they guarantee together (default)."""
    return tell(api.ledger(api.load(spec) if spec else None, ledger=ledger))


@register_command(group=ledgers)
def show(
    number: Annotated[int, typer.Argument(metavar="N", help="Number of a release in the list.")],
    ledger: LedgerFile = None,
) -> CommandOutcome:
    """Show all that the ledger holds of one release."""
    return tell(api.ledger(ledger=ledger).find_release(number))


@register_command(group=ledgers)
def withdraw(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="A release, or its number in the ledger.")],
    ledger: LedgerFile = None,
) -> CommandOutcome:
    """Mark a release as never distributed. Its records can then be published again; a spent budget stays spent."""
    entry = api.withdraw(release, ledger=ledger)
    return CommandOutcome(
        lambda: {"withdrawn": entry.number, "name": entry.name, "target": entry.target},
        lambda: printing.print_line(f"withdrew {entry.label}, {entry.target}"),
    )


@register_command(group=ledgers)
def cap(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC.toml|POPULATION", help="A specification, or the name of a population.")
    ],
    epsilon: Annotated[str, typer.Argument(metavar="EPSILON", help="The new cap, a decimal or a fraction.")],
    delta: Annotated[
        str | None, typer.Option(help="The delta of the cap, if not that of the releases.", show_default=False)
    ] = None,
    ledger: LedgerFile = None,
) -> CommandOutcome:
    """Cap the privacy budget of a population, and record it."""
    listing = api.cap(spec, epsilon, delta=delta, ledger=ledger)
    stated = api.load(spec).ledger if spec.lower().endswith(".toml") else None
    least = stated.epsilon if stated is not None else None
    lowers = least is not None and listing.cap is not None and least < listing.cap
    warning = f"ledger.epsilon = {least} in {spec} lowers it again at the next release; change it there, too"
    warnings = [*listing.warnings, *([warning] if lowers else [])]
    return CommandOutcome(listing.as_json, lambda: printing.print_line(listing.budget_line), warnings=warnings)


# Reports --------------------------------------------------------------------------------------------------------------
# ``report``: a release as a page for people.


@register_command(
    epilog="privsql report occ_release.duckdb --to occ.html\n"
    "privsql report occ_release.duckdb --source spec.toml --to internal.html"
)
def report(
    release: ReleaseFile,
    to: Annotated[Path, typer.Option(metavar="PAGE.html", help="The page to write; an existing one is replaced.")],
    options: Options,
    source: OptionalSource = None,
    key_file: KeyFile = None,
) -> CommandOutcome:
    """Write a page about a release, for its receiver or a reviewer.

    A page from the release alone may be handed out with it. A page with --source is internal. The exit code is 1 if a
    check does not hold or an adversary breaks a promise; the page says so, too.
    """
    return tell(api.report(release, load_source(source), to=to, key_file=key_file, options=options))
