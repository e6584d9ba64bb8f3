"""``query``, ``itemsets``, ``synthesize`` and ``inspect``: what an analyst asks of a release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import privsql as api
from privsql.cli import printing
from privsql.cli.app import Confidence, Json, ReleaseFile, app, tell
from privsql.errors import UsageError


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
    tell(
        as_json,
        lambda: answer.as_json() | explained,
        lambda: printing.csv_rows(sys.stdout, answer) if as_csv else printing.answered(answer, explain=explain),
    )


@app.command(epilog="Example:\n\n    privsql inspect occ_release.duckdb")
def inspect(release: ReleaseFile, as_json: Json = False) -> None:
    """Show what a release says of itself."""
    manifest = api.inspect(release)
    tell(as_json, lambda: manifest.model_dump(mode="json"), lambda: printing.inspected(manifest))


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
    found = api.itemsets(release, top=top, estimator=estimator)
    if synthetic is not None:
        api.synthesize(release, synthetic)
    rows = [{"items": items, "records": support} for items, support in found]
    tell(as_json, lambda: {"itemsets": rows, "estimator": estimator}, lambda: printing.frequent(found))


@app.command(epilog="Example:\n\n    privsql synthesize counts.duckdb rows.parquet")
def synthesize(
    release: ReleaseFile,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The Parquet file that is written.")],
    as_json: Json = False,
) -> None:
    """Write synthetic records that give about the estimates of a differentially private release."""
    number = api.synthesize(release, to)
    tell(as_json, lambda: {"file": str(to), "rows": number}, lambda: printing.say(f"wrote {number:,} rows to {to}"))
