"""``publish``, ``plan``, ``init`` and ``schema``: from a table to a specification, and on to a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import privsql as api
from privsql.cli import printing, printing_measures
from privsql.cli.app import Json, Memory, Threads, app, running, tell, warn
from privsql.cli.flags import Planned, Specified, specification
from privsql.errors import UsageError
from privsql.mechanisms.registry import DEFAULT, PACKAGES

if TYPE_CHECKING:
    from privsql.noise import Key

SOURCE = "a DuckDB or SQLite file, Parquet or CSV files ('data/*.csv.gz', a folder), or an address."
Given = Annotated[str, typer.Argument(metavar="SPEC.toml|SOURCE", help=f"A specification, or {SOURCE}")]


@app.command(
    cls=Specified,
    epilog="Examples:\n\n    privsql publish spec.toml\n\n"
    "    privsql publish people.parquet --sensitive disease --qi age,sex,zip --mechanism two-size "
    "--threshold '8*f + 0.02' --to release.duckdb",
)
def publish(
    ctx: typer.Context,
    source: Given,
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
    spec, key = specification(ctx, source), _key(key_file, seed)
    with running(memory_limit, threads) as options:
        done = api.publish(spec, key=key, replace=replace, allow_composition=allow_composition, options=options)
    for warning in done.warnings:
        warn(f"warning: {warning}")
    tell(as_json, done.as_json, lambda: printing.published(done))


def _key(file: Path | None, seed: int | None) -> Key | None:
    """The key of a release, if its publisher names one."""
    from privsql import noise  # noqa: PLC0415 (takes long to import)

    if file and seed is not None:
        raise UsageError("give --key-file or --seed, not both")
    return noise.key_file(file) if file else noise.seed_key(seed) if seed is not None else None


@app.command(
    cls=Planned, epilog="Examples:\n\n    privsql plan spec.toml --json\n\n    privsql plan spec.toml --algorithms"
)
def plan(
    ctx: typer.Context,
    source: Given,
    algorithms: Annotated[
        bool, typer.Option("--algorithms", help="Compare all algorithms: what each would cost, and tell.")
    ] = False,
    memory_limit: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Dry run: feasibility, setting, loss and its certified lower bound. Nothing is written."""
    spec = specification(ctx, source)
    with running(memory_limit, threads) as options:
        if algorithms:
            beside = api.algorithms(spec, options=options)
            tell(as_json, beside.as_json, lambda: printing_measures.algorithms(beside))
            return
        found = api.plan(spec, options=options)
    tell(as_json, found.as_json, lambda: printing.published(found))


@app.command(epilog="Example:\n\n    privsql init people.parquet --sensitive disease > spec.toml")
def init(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=f"A{SOURCE[1:]}")],
    table: Annotated[str | None, typer.Option(help="Table or view of a database file.")] = None,
    sensitive: Annotated[str | None, typer.Option(help="The sensitive column, if its name does not tell.")] = None,
    categorical: Annotated[
        bool, typer.Option("--categorical", help="Sensitive numbers are codes of categories.")
    ] = False,
    kind: Annotated[str, typer.Option(help=f"The mechanism: {', '.join(PACKAGES)}.")] = DEFAULT,
    output: Annotated[
        Path | None, typer.Option(help="Where the specification goes; its paths are relative to that place.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at a source and propose a specification on stdout: roles, domain sizes, a feasible threshold."""
    if output is not None and output.exists():
        raise UsageError(f"{output} exists; remove it, or give another place")
    base = output.absolute().parent if output is not None else None
    with running() as options:
        toml = api.init(
            source, table=table, sensitive=sensitive, categorical=categorical, kind=kind, base=base, options=options
        )
    if output is not None:
        output.write_text(toml, encoding="utf-8")
    tell(as_json, lambda: {"spec": toml}, lambda: print(toml if output is None else f"written: {output}\n", end=""))


@app.command(epilog="Example:\n\n    privsql schema > spec.schema.json")
def schema(_as_json: Json = False) -> None:
    """Print the JSON Schema of a specification, for editors; it is JSON with and without --json."""
    print(api.schema(), end="")
