"""``verify`` and ``ledger``: what becomes of releases that are out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

import privsql as api
from privsql.cli import printing
from privsql.cli.app import Json, KeyFile, ReleaseFile, app, running, sourced, tell, warn
from privsql.errors import UsageError

if TYPE_CHECKING:
    from typing import Any

DEFAULT = "list"


class Ledgers(TyperGroup):
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
    with running() as options:
        spec = sourced(source) if source else None
        found = api.verify(
            release, spec, against=others, database=database, key_file=key_file, copy_to=copy_to, options=options
        )
    tell(as_json, found.as_json, lambda: printing.verified(release, found))
    raise typer.Exit(0 if found.ok else 1)


ledgers = typer.Typer(
    cls=Ledgers,
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
    found = api.ledger(api.load(spec) if spec else None, database=database)
    tell(as_json, found.as_json, lambda: printing.ledger(found))


@ledgers.command()
def withdraw(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="A release, or its number in the ledger.")],
    database: Place = None,
    as_json: Json = False,
) -> None:
    """Record that a release never left the house. It frees what the release used, except a budget."""
    entry = api.withdraw(release, database=database)
    tell(
        as_json,
        lambda: {"withdrawn": entry.number, "name": entry.name, "target": entry.target},
        lambda: printing.say(f"withdrew {entry.shown}, {entry.target}"),
    )


@ledgers.command()
def cap(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Specification of the source.")],
    epsilon: Annotated[str, typer.Argument(metavar="EPSILON", help="The new cap, a decimal or a fraction.")],
    database: Place = None,
    as_json: Json = False,
) -> None:
    """Set the most that all differentially private releases of a source may spend together, and record it."""
    asked = api.load(spec)
    found = api.cap(asked, epsilon, database=database)
    least = asked.ledger.epsilon if asked.ledger is not None else None
    if least is not None and found.cap is not None and least < found.cap:
        warn(f"warning: ledger.epsilon = {least} in {spec} lowers it again at the next release; change it there, too")
    tell(as_json, found.as_json, lambda: printing.budget(found))
