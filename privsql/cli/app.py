"""The Typer app: how commands start and end, and the options that follow from the specification's models."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from privsql.cli.printing import escape_controls, print_parts, spell_keywords
from privsql.engine.database import SILENT, Options, open_reporter
from privsql.errors import EngineError, InfeasibleError, PrivsqlError, name_choices
from privsql.mechanisms.registry import KINDS
from privsql.system import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from privsql.outcomes import Outcome, Part
    from privsql.source.keywords import Flag
    from privsql.source.spec import Spec

# App ------------------------------------------------------------------------------------------------------------------
# The Typer app: how it starts, the options that its commands share, and how each command ends.

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ReleaseFile = Annotated[
    str,
    typer.Argument(
        metavar="RELEASE", help="A release: a DuckDB file, a folder of Parquet files, or a schema (DATABASE::SCHEMA)."
    ),
]
Memory = Annotated[
    str | None, typer.Option("--memory-limit", help="Memory of the engine, such as 2GB; then it uses disks.")
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of the engine.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print all details as well.")]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]

PROGRAM = "privsql"
PERSONS = {  # whom a command is for; --help groups them so
    "Publisher": ("init", "plan", "publish", "evaluate", "ledger"),
    "Reviewer": ("verify", "attack", "report"),
    "Analyst": ("query", "fit", "export", "test", "serve"),
}


class VerbGroup(TyperGroup):
    """The commands. Any error, also in reading flags, is one line on stderr and an exit code."""

    def main(self, args: Sequence[str] | None = None, *_: object, **__: object) -> NoReturn:
        """Run the command that the arguments name, and exit."""
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        as_json = "--json" in arguments  # reading them takes them out
        _prepare_streams()
        self._main_shell_completion({}, PROGRAM)  # ends the process where a shell asks for completions
        try:
            code = self._run_verb(arguments)
        except BrokenPipeError:
            code = _discard_output()
        except (typer.TyperException, PrivsqlError, OSError) as error:
            by_flags = isinstance(error, PrivsqlError) and not any(one.lower().endswith(".toml") for one in arguments)
            code = _report_failure(error, as_json=as_json, by_flags=by_flags)
        sys.exit(code)

    def get_params(self, ctx: Any) -> list[Any]:
        """Give ``--help`` and its like a default, because without one Typer imports pydantic."""
        params = list(super().get_params(ctx))
        for option in params:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return params

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by the person who needs them."""
        for person, names in PERSONS.items():
            room = formatter.width - 6 - max(map(len, names))
            with formatter.section(person):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(room)) for name in names])

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


@dataclass(frozen=True)
class CommandOutcome:
    """The result of a command: its object of ``--json``, how people see it, the exit code, and warnings."""

    as_json: Callable[[], dict[str, Any]]
    print_for_people: Callable[[], None]
    exit_code: int = 0
    warnings: Sequence[str] = ()


def tell(
    outcome: Outcome, *, verbose: bool = False, more: Mapping[str, Any] | None = None, notes: Iterable[Part] = ()
) -> CommandOutcome:
    """Return what a command says of an outcome, with ``more`` in the object of ``--json`` and ``notes`` at the end."""
    return CommandOutcome(
        lambda: {**outcome.as_json(), **(more or {})},
        lambda: print_parts([*outcome.show(verbose=verbose), *notes]),
        outcome.exit_code,
        outcome.warnings,
    )


def register_command(
    *, epilog: str = "", group: typer.Typer = app, name: str | None = None, cls: type[TyperCommand] | None = None
) -> Callable[[Callable[..., CommandOutcome | None]], Callable[..., None]]:
    """Make a command of a function, with ``--json``, and ``--memory-limit`` and ``--threads`` if it takes ``options``.

    The outcome is printed once the progress bar is gone. A function with a parameter ``as_json`` finds the flag there.
    ``epilog``: examples, one a line.
    """

    def decorate(function: Callable[..., CommandOutcome | None]) -> Callable[..., None]:
        listed = signature(function, eval_str=True).parameters
        runs = {"memory_limit": Memory, "threads": Threads} if "options" in listed else {}
        shared = [Parameter(key, Parameter.KEYWORD_ONLY, default=None, annotation=hint) for key, hint in runs.items()]
        shared.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))

        def run_command(**values: Any) -> None:
            as_json = values["as_json"] if "as_json" in listed else values.pop("as_json")
            with open_reporter() if runs else nullcontext(SILENT) as report:
                if runs:
                    values["options"] = Options(values.pop("memory_limit"), values.pop("threads"), report)
                outcome = function(**values)
            if outcome is not None:
                for warning in outcome.warnings:
                    warn(f"warning: {warning}")
                print_result(as_json, outcome.as_json, outcome.print_for_people)
                raise typer.Exit(outcome.exit_code)

        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in listed.values()]
        first = [one for one in parameters if one.name not in ("options", "as_json")]
        run_command.__signature__ = Signature([*first, *shared])  # type: ignore[attr-defined]
        run_command.__name__, run_command.__doc__ = function.__name__, function.__doc__
        examples = epilog.splitlines()
        heading = "Example:" if len(examples) == 1 else "Examples:"
        group.command(name, cls=cls, epilog="\n\n    ".join([heading, *examples]) if examples else None)(run_command)
        return run_command

    return decorate


KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="With persons = 'one' in the source: file with the key of the release, if it is not the ledger's.",
        show_default=False,
    ),
]


def load_source(path: Path | None) -> Any:
    """Return the specification that ``--source`` names, or the path of files, which have no specification."""
    if path is None:
        return None
    from privsql import load
    from privsql.engine.files import is_files

    return path if is_files(str(path)) else load(path)


def print_result(as_json: bool, as_object: Callable[[], dict[str, Any]], print_for_people: Callable[[], None]) -> None:
    """Print a result as JSON or for people; a closed pipe does not change the exit code."""
    try:
        if as_json:
            _print_json(as_object())
        else:
            print_for_people()
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def warn(text: str) -> None:
    """Print one line on stderr, if that can be written."""
    with suppress(OSError):
        print(f"privsql: {escape_controls(text)}", file=sys.stderr)


def _prepare_streams() -> None:
    """Make streams take any text: open closed ones to nowhere, and escape what an encoding lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (while the process lasts)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _print_json(result: dict[str, Any]) -> None:
    import json

    print(json.dumps(result, ensure_ascii=(sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")))


def _report_failure(error: typer.TyperException | PrivsqlError | OSError, *, as_json: bool, by_flags: bool) -> int:
    """Print an error and return its exit code; ``by_flags``: keys of specifications are spelled as flags."""
    if isinstance(error, OSError):
        error = EngineError(f"{error.filename or 'standard output'}: {error.strerror}")
    text, details = spell_keywords(str(error)), error.details if isinstance(error, InfeasibleError) else {}
    if by_flags and (keywords := sys.modules.get("privsql.source.keywords")):
        text = keywords.spell_as_flags(text)
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
    """Discard what stdout has not taken, since the interpreter would fail on it at its end; return the exit code."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0


# Flags ----------------------------------------------------------------------------------------------------------------
# Options of a command that are made from the models of a specification when they are needed.

FLAGS_KEY = "privsql.flags"  # where a context holds the values of flags
METAVARS = {"names": "COLUMN,..", "pairs": "COLUMN=VALUE", "one": "VALUE"}
PANELS = {"source": "Source and columns", "columns": "Source and columns", "release": "Release", "ledger": "Ledger"}
TYPES: dict[str, Any] = {"switch": bool | None, "pairs": list[str] | None}
MECHANISM, OF_KIND = "Mechanism", "Mechanism, --kind "  # titles
ALL_KEY = "privsql.all"  # where a context holds that the help lists every option
COMMON = {  # by ``--help``; the others by ``--help-all``
    "table", "query", "id", "person", "persons", "quasi_identifiers", "sensitive", "items", "categories", "bins",
    "kind", "algorithm", "threshold", "rho1", "rho2", "k", "e", "epsilon", "universe", "domains", "max_learning",
    "name", "to", "format", "ledger_database", "ledger_off",
}  # fmt: skip


class SpecCommand(TyperCommand):
    """A command that takes a specification, or the flags that make one, besides its own options."""

    sections: ClassVar[tuple[str, ...]] = ("source", "columns", "mechanism", "release", "ledger")

    def _model_options(self) -> list[Any]:
        return _make_options(self.sections, tuple(KINDS))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the models, then those of the command."""
        *options, help_option = super().get_params(ctx)
        return [*self._model_options(), *options, *_make_params(_take_help), help_option]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the options by section of a specification: all by mechanism, or the common ones in fewer lines."""
        titled: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        whole = ctx.meta.get(ALL_KEY)
        rare = set() if whole else {option.name for option in self._model_options()} - COMMON
        for param in [one for one in self.get_params(ctx) if one.name not in rare]:
            title = "Arguments" if param.param_type_name == "argument" else param.rich_help_panel or "Options"
            name, text = param.get_help_record(ctx)
            if not whole and title.startswith(OF_KIND):
                kinds, title = title.removeprefix(OF_KIND), MECHANISM
                text = text if text.startswith(f"{kinds.split()[0]}: ") else f"{kinds}: {text[0].lower()}{text[1:]}"
            titled.setdefault(title, []).append((name, text))
        for title, records in titled.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        """Run the command with the values of the models' flags in the context."""
        ctx.meta[FLAGS_KEY] = {option.name: ctx.params.pop(option.name, None) for option in self._model_options()}
        return super().invoke(ctx)


class PlanCommand(SpecCommand):
    """A command that takes a specification and writes no release."""

    sections = ("source", "columns", "mechanism", "ledger")


def read_specification(ctx: typer.Context, source: str) -> Spec:
    """Return the specification in a file, or of a source and flags."""
    from privsql.source import keywords

    return keywords.spec_from_flags(source, ctx.meta[FLAGS_KEY])


@cache
def _make_options(sections: tuple[str, ...], kinds: tuple[str, ...]) -> list[Any]:
    """Return the options of some sections and all mechanisms, as Typer makes them from a function's parameters."""
    from privsql.source import keywords

    def nothing() -> None: ...

    chosen = [flag for section in sections for flag in keywords.list_flags().values() if flag.section == section]
    nothing.__signature__ = Signature([_make_parameter(flag, kinds) for flag in chosen])  # type: ignore[attr-defined]
    return _make_params(nothing)


@cache
def _make_params(function: Callable[..., None]) -> list[Any]:
    """Return the options that Typer makes from a function's parameters, once for each function."""
    maker = typer.Typer(add_completion=False)
    maker.command()(function)
    return typer.main.get_command(maker).params


def _print_all(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL_KEY] = True
        print(ctx.get_help())
        raise typer.Exit


def _take_help(
    help_all: Annotated[
        bool,
        typer.Option("--help-all", is_eager=True, expose_value=False, callback=_print_all, help="Show every option."),
    ] = False,
) -> None: ...


def _make_parameter(flag: Flag, kinds: tuple[str, ...]) -> Parameter:
    spelled = flag.spelling
    if flag.form == "switch":
        spelled = f"{spelled}/--no-{spelled.removeprefix('--')}"
    option = typer.Option(
        spelled, help=flag.help, metavar=METAVARS.get(flag.form), rich_help_panel=_panel_title(flag, kinds)
    )
    kind = TYPES.get(flag.form, str | None)
    return Parameter(flag.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _panel_title(flag: Flag, kinds: tuple[str, ...]) -> str:
    """Return the title under which ``--help`` lists a flag."""
    if flag.section != "mechanism":
        return PANELS[flag.section]
    return MECHANISM if len(flag.fields) == len(kinds) else f"{OF_KIND}{name_choices(flag.fields)}"
