"""The Typer app: how commands start and end, and the options that follow from the specification's models."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from functools import cache
from inspect import Parameter, Signature
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from privsql._version import __version__
from privsql.cli.printing import escape_controls
from privsql.engine.progress import Options, open_reporter
from privsql.errors import EngineError, InfeasibleError, PrivsqlError
from privsql.mechanisms.registry import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.source.keywords import Flag
    from privsql.source.spec import Spec

# App ------------------------------------------------------------------------------------------------------------------
# The Typer app: how it starts, what its verbs have in common, and how each of them ends.

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


class VerbGroup(TyperGroup):
    """The verbs. Whatever goes wrong in one, or in reading its flags, is one line on stderr and an exit code."""

    def main(self, args: Sequence[str] | None = None, *_: object, **__: object) -> NoReturn:
        """Run the verb that the arguments name, and exit."""
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        as_json = "--json" in arguments  # reading them takes them out
        _prepare_streams()
        self._main_shell_completion({}, PROGRAM)  # ends the process where a shell asks what could come next
        try:
            code = self._run_verb(arguments)
        except BrokenPipeError:
            code = _discard_output()
        except (typer.TyperException, PrivsqlError, OSError) as error:
            code = _report_failure(error, as_json=as_json)
        sys.exit(code)

    def get_params(self, ctx: Any) -> list[Any]:
        """``--help`` and its like, with a default: Typer imports pydantic to make sure that none is no bool."""
        params = list(super().get_params(ctx))
        for option in params:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return params

    def _run_verb(self, args: list[str]) -> int:
        code = 0
        try:
            with self.make_context(PROGRAM, args) as context:
                self.invoke(context)
        except typer.Exit as done:
            code = done.exit_code
        sys.stdout.flush()
        return code


app = typer.Typer(
    cls=VerbGroup,
    help="Publish a table with a sensitive column out of a warehouse, with a privacy bound that anyone can verify.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
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
def options_with_progress(memory_limit: str | None = None, threads: int | None = None) -> Iterator[Options]:
    """Options with a progress bar."""
    with open_reporter() as report:
        yield Options(memory_limit, threads, report)


KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="With persons = 'one' in the source: the key of the release, if it is not the ledger's.",
        show_default=False,
    ),
]


def load_source(path: Path) -> Spec | Path:
    """What ``--source`` names: a specification, or files alone, whose columns have the roles that a release states."""
    from privsql import load  # noqa: PLC0415 (the models of all mechanisms)
    from privsql.engine.files import is_files  # noqa: PLC0415

    return path if is_files(str(path)) else load(path)


def print_result(as_json: bool, as_object: Callable[[], dict[str, Any]], print_for_people: Callable[[], None]) -> None:
    """Print what a verb found: its object of ``--json``, or what ``print_for_people`` prints.

    A reader who has gone changes nothing of what was found, nor of the exit code.
    """
    try:
        if as_json:
            _print_json(as_object())
        else:
            print_for_people()
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def warn(text: str) -> None:
    """One line on stderr; where nobody can read it, it is not worth failing for."""
    with suppress(OSError):
        print(f"privsql: {escape_controls(text)}", file=sys.stderr)


def _prepare_streams() -> None:
    """Streams that take any text: closed ones are nowhere, and what another encoding lacks is written out."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (while the process lasts)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _print_json(result: dict[str, Any]) -> None:
    import json  # noqa: PLC0415 (only where it is asked for)

    print(json.dumps(result, ensure_ascii=(sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")))


def _report_failure(error: typer.TyperException | PrivsqlError | OSError, *, as_json: bool) -> int:
    """Say what went wrong; its exit code."""
    if isinstance(error, OSError):
        error = EngineError(f"{error.filename or 'standard output'}: {error.strerror}")
    text, details = str(error), error.details if isinstance(error, InfeasibleError) else {}
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        text = " ".join(error.format_message().split()) + (f" (see {context.command_path} --help)" if context else "")
    try:
        if as_json:
            _print_json({"error": text, "exit_code": error.exit_code, **details})
        sys.stdout.flush()
    except OSError:
        _discard_output()
    warn(text)
    return error.exit_code


def _discard_output() -> int:
    """Forget what stdout has not taken, or the interpreter would fail on it when it ends; the exit code for that."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0


# Flags ----------------------------------------------------------------------------------------------------------------
# Options of a command that follow from the models of a specification; Typer makes them when they are needed.

FLAGS_KEY = "privsql.flags"  # where a context keeps what was given
METAVARS = {"names": "COLUMN,..", "pairs": "COLUMN=VALUE", "one": "VALUE"}
PANELS = {"source": "Source and columns", "columns": "Source and columns", "release": "Release", "ledger": "Ledger"}
TYPES: dict[str, Any] = {"switch": bool | None, "pairs": list[str] | None}


class SpecCommand(TyperCommand):
    """A command that takes a specification, or the flags that make one, beside its own options."""

    sections: ClassVar[tuple[str, ...]] = ("source", "columns", "mechanism", "release", "ledger")

    def _model_options(self) -> list[Any]:
        return _make_options(self.sections, tuple(PACKAGES))

    def get_params(self, ctx: Any) -> list[Any]:
        """Those of the models first."""
        return [*self._model_options(), *super().get_params(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the options under the titles of what they belong to."""
        titled: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for param in self.get_params(ctx):
            title = "Arguments" if param.param_type_name == "argument" else param.rich_help_panel or "Options"
            titled.setdefault(title, []).append(param.get_help_record(ctx))
        for title, records in titled.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, which finds what was given of its flags in ``given``."""
        ctx.meta[FLAGS_KEY] = {option.name: ctx.params.pop(option.name, None) for option in self._model_options()}
        return super().invoke(ctx)


class PlanCommand(SpecCommand):
    """The same for a command that writes no release."""

    sections = ("source", "columns", "mechanism", "ledger")


def read_specification(ctx: typer.Context, source: str) -> Spec:
    """What a command is asked for."""
    from privsql.source import keywords  # noqa: PLC0415 (the models of all mechanisms)

    return keywords.spec_from_flags(source, ctx.meta[FLAGS_KEY])


@cache
def _make_options(sections: tuple[str, ...], kinds: tuple[str, ...]) -> list[Any]:
    """The options of some sections and all mechanisms, as Typer makes them of the parameters of a function."""
    from privsql.source import keywords  # noqa: PLC0415

    def nothing() -> None: ...

    chosen = [flag for section in sections for flag in keywords.list_flags().values() if flag.section == section]
    nothing.__signature__ = Signature([_make_parameter(flag, kinds) for flag in chosen])  # type: ignore[attr-defined]
    maker = typer.Typer(add_completion=False)
    maker.command()(nothing)
    return typer.main.get_command(maker).params


def _make_parameter(flag: Flag, kinds: tuple[str, ...]) -> Parameter:
    spelled = flag.spellings
    if flag.form == "switch":
        spelled = tuple(f"{name}/--no-{name.removeprefix('--')}" for name in spelled)
    option = typer.Option(
        *spelled, help=flag.help, metavar=METAVARS.get(flag.form), rich_help_panel=_panel_title(flag, kinds)
    )
    kind = TYPES.get(flag.form, str | None)
    return Parameter(flag.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _panel_title(flag: Flag, kinds: tuple[str, ...]) -> str:
    """Under which title ``--help`` lists a flag."""
    if flag.section != "mechanism":
        return PANELS[flag.section]
    return "Mechanism" if len(flag.fields) == len(kinds) else f"Mechanism, --kind {' or '.join(flag.fields)}"
