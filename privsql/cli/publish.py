"""``publish``, ``plan``, ``init`` and ``schema``: from a table to a specification, and on to a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import privsql as api
from privsql import noise
from privsql.cli import printing
from privsql.cli.app import Json, Memory, Threads, app, running, tell, warn
from privsql.errors import UsageError
from privsql.source import spec as specs

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
    with running(memory_limit, threads) as options:
        spec = specs.redirected(_spec(source, flags), to, form)
        if key_file and seed is not None:
            raise UsageError("give --key-file or --seed, not both")
        key = noise.key_file(key_file) if key_file else noise.seed_key(seed) if seed is not None else None
        done = api.publish(spec, key=key, replace=replace, allow_composition=allow_composition, options=options)
    for warning in done.warnings:
        warn(f"warning: {warning}")
    tell(as_json, done.as_json, lambda: printing.published(done))


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
    with running(memory_limit, threads) as options:
        found = api.plan(_spec(source, flags), options=options)
    tell(as_json, found.as_json, lambda: printing.published(found))


@app.command(epilog="Example:\n\n    privsql init people.parquet --sensitive disease > spec.toml")
def init(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A DuckDB, Parquet or CSV file.")],
    table: Table = None,
    sensitive: Annotated[str | None, typer.Option(help="The sensitive column, if its name does not tell.")] = None,
    kind: Annotated[str, typer.Option(help="The mechanism: bucketize, randomize, ..")] = "bucketize",
    as_json: Json = False,
) -> None:
    """Look at a source and propose a specification on stdout: roles, domain sizes, a feasible threshold."""
    with running() as options:
        toml = api.init(source, table=table, sensitive=sensitive, kind=kind, options=options)
    tell(as_json, lambda: {"spec": toml}, lambda: print(toml, end=""))


@app.command(epilog="Example:\n\n    privsql schema > spec.schema.json")
def schema() -> None:
    """Print the JSON Schema of a specification, for editors."""
    print(api.schema(), end="")
