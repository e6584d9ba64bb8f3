"""``serve``: a page to ask releases at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import privsql as api
from privsql.cli import printing
from privsql.cli.app import Json, Memory, Threads, app, running, tell


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
        tell(
            as_json,
            lambda: {"address": address, "releases": names},
            lambda: printing.say(f"serving {', '.join(names)} at {address} (Ctrl-C ends it)"),
        )

    with running(memory_limit, threads) as options:
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
