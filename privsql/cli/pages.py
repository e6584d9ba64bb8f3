"""``report``: a release as a page for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import privsql as api
from privsql.cli import printing
from privsql.cli.app import Json, KeyFile, Memory, ReleaseFile, Threads, app, running, sourced, tell


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
    with running(memory_limit, threads) as options:
        spec = sourced(source) if source else None
        found = api.report(release, spec, to=to, key_file=key_file, options=options)
    tell(as_json, lambda: {"page": str(to), **found.as_json()}, lambda: printing.reported(to, found))
    raise typer.Exit(0 if found.ok else 1)
