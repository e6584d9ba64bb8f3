"""The Typer app: how it starts, what its verbs have in common, and how each of them ends."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from privsql._version import __version__
from privsql.cli.printing import visible
from privsql.engine.progress import Options, reporter
from privsql.errors import EngineError, InfeasibleError, PrivsqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.source.spec import Spec

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ReleaseFile = Annotated[
    Path, typer.Argument(metavar="RELEASE", help="A release: a DuckDB file or a folder of Parquet files.")
]
Memory = Annotated[
    str | None,
    typer.Option("--memory-limit", help="How much memory may be taken, such as 2GB; the engine spills."),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="The engine's threads.")]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]

PROGRAM = "privsql"


class Verbs(TyperGroup):
    """The verbs. Whatever goes wrong in one, or in reading its flags, is one line on stderr and an exit code."""

    def main(self, args: Sequence[str] | None = None, *_: object, **__: object) -> NoReturn:
        """Run the verb that the arguments name, and exit."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        as_json = "--json" in given  # reading them takes them out
        _streams()
        self._main_shell_completion({}, PROGRAM)  # ends the process where a shell asks what could come next
        try:
            code = self._run(given)
        except BrokenPipeError:
            code = _unread()
        except (typer.TyperException, PrivsqlError, OSError) as error:
            code = _failed(error, as_json=as_json)
        sys.exit(code)

    def get_params(self, ctx: Any) -> list[Any]:
        """``--help`` and its like, with a default: Typer imports pydantic to make sure that none is no bool."""
        found = list(super().get_params(ctx))
        for option in found:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return found

    def _run(self, given: list[str]) -> int:
        code = 0
        try:
            with self.make_context(PROGRAM, given) as context:
                self.invoke(context)
        except typer.Exit as done:
            code = done.exit_code
        sys.stdout.flush()
        return code


app = typer.Typer(
    cls=Verbs,
    help="Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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


@contextmanager
def running(memory_limit: str | None = None, threads: int | None = None) -> Iterator[Options]:
    """Options with a progress bar."""
    with reporter() as report:
        yield Options(memory_limit, threads, report)


KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="With --source and persons = 'one': the key of the release, if it is not the ledger's.",
        show_default=False,
    ),
]


def sourced(given: Path) -> Spec | Path:
    """What ``--source`` names: a specification, or files alone, whose columns have the roles that a release states."""
    from privsql import load  # noqa: PLC0415 (the models of all mechanisms)
    from privsql.engine.files import is_files  # noqa: PLC0415

    return given if is_files(str(given)) else load(given)


def tell(as_json: bool, found: Callable[[], dict[str, Any]], people: Callable[[], None]) -> None:
    """Print what a verb found: its object of ``--json``, or what ``people`` prints.

    A reader who has gone changes nothing of what was found, nor of the exit code.
    """
    try:
        if as_json:
            _put(found())
        else:
            people()
        sys.stdout.flush()
    except BrokenPipeError:
        _unread()


def warn(text: str) -> None:
    """One line on stderr; where nobody can read it, it is not worth failing for."""
    with suppress(OSError):
        print(f"privsql: {visible(text)}", file=sys.stderr)


def _streams() -> None:
    """Streams that take any text: closed ones are nowhere, and what another encoding lacks is written out."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (while the process lasts)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _put(shown: dict[str, Any]) -> None:
    import json  # noqa: PLC0415 (only where it is asked for)

    print(json.dumps(shown, ensure_ascii=(sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")))


def _failed(error: typer.TyperException | PrivsqlError | OSError, *, as_json: bool) -> int:
    """Say what went wrong; its exit code."""
    if isinstance(error, OSError):
        error = EngineError(f"{error.filename or 'standard output'}: {error.strerror}")
    text, details = str(error), error.details if isinstance(error, InfeasibleError) else {}
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        text = " ".join(error.format_message().split()) + (f" (see {context.command_path} --help)" if context else "")
    try:
        if as_json:
            _put({"error": text, "exit_code": error.exit_code, **details})
        sys.stdout.flush()
    except OSError:
        _unread()
    warn(text)
    return error.exit_code


def _unread() -> int:
    """Forget what stdout has not taken, or the interpreter would fail on it when it ends; the exit code for that."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0
