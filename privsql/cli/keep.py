"""``verify`` and ``ledger``: what becomes of releases that are out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import privsql as api
from privsql.cli import printing
from privsql.cli.app import Json, ReleaseFile, app, running, tell
from privsql.errors import UsageError


@app.command(epilog="Example:\n\n    privsql verify occ_release.duckdb --source spec.toml")
def verify(
    release: ReleaseFile,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[RELEASE]...", help="With --against: more of them.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--source", metavar="SPEC.toml", help="Check against the source that this specification names."),
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(metavar="RELEASE...", help="Earlier releases of the same subjects.")
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
    with running() as options:
        found = api.verify(release, api.load(source) if source else None, against=others, options=options)
    tell(as_json, found.as_json, lambda: printing.verified(release, found))
    raise typer.Exit(0 if found.ok else 1)


@app.command(epilog="Example:\n\n    privsql ledger spec.toml")
def ledger(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Specification of the source.")],
    as_json: Json = False,
) -> None:
    """List the releases of a source and what they compose to, from the publisher's private ledger."""
    entries = api.ledger(api.load(spec))
    tell(as_json, lambda: {"releases": [entry.as_json() for entry in entries]}, lambda: printing.ledger(entries))
