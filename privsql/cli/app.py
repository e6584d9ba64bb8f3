"""Define the Typer app: how a command reads its options, prints its outcome or error, and sets the exit code."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from privsql.cli.printing import escape_controls, print_parts
from privsql.engine.database import SILENT, Options, open_reporter
from privsql.errors import EngineError, InfeasibleError, PrivsqlError
from privsql.mechanisms.registry import KINDS
from privsql.system import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from privsql.outcomes import Outcome, Part
# App ------------------------------------------------------------------------------------------------------------------
# The Typer app: how it starts, the options that its commands share, and how each command ends.

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ReleaseFile = Annotated[
    str,
    typer.Argument(
        metavar="RELEASE", help="A release: a DuckDB file, a folder of Parquet files, or a schema (DATABASE::SCHEMA)."
    ),
]
Memory = Annotated[str | None, typer.Option("--memory-limit", help="Memory of the engine, such as 2GB.")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of the engine.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print all details as well.")]
Confidence = Annotated[float, typer.Option(help="Confidence of the intervals.")]

PROGRAM = "privsql"
PERSONS = {  # the people who use each command; --help groups commands by them
    "Publisher": ("init", "plan", "publish", "evaluate", "ledger"),
    "Reviewer": ("verify", "attack", "report"),
    "Analyst": ("query", "fit", "export", "test", "serve"),
}


class VerbGroup(TyperGroup):
    """The group of all commands, which prints any error as one line on stderr and sets the exit code."""

    def main(self, args: Sequence[str] | None = None, *_: object, **__: object) -> NoReturn:
        """Run the command that the arguments name, and exit."""
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        as_json = "--json" in arguments  # the parser removes arguments from the list
        _prepare_streams()
        self._main_shell_completion({}, PROGRAM)  # the process ends here if a shell asks for completions
        try:
            code = self._run_verb(arguments)
        except BrokenPipeError:
            code = _discard_output()
        except (typer.TyperException, PrivsqlError, OSError) as error:
            code = _report_failure(error, as_json=as_json)
        sys.exit(code)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of ``privsql`` itself, such as ``--version``.

        Each flag gets a default. For a flag without a default, Typer would import pydantic, which takes time.
        """
        params = list(super().get_params(ctx))
        for option in params:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return params

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands into the help, under headings for the people who need them."""
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
    # Messages write --allow_composition, which therefore works like --allow-composition.
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
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


# The options of the keys of a specification, by their keyword in Python.

SOURCE = "a DuckDB or SQLite file, Parquet or CSV files ('data/*.csv.gz', a folder), or an address."
SpecOrSource = Annotated[str, typer.Argument(metavar="SPEC.toml|SOURCE", help=f"A specification, or {SOURCE}")]
Sensitive = Annotated[
    str | None, typer.Option(metavar="COLUMN,..", help="Sensitive column, or several; init takes one.")
]
MechanismKind = Annotated[str | None, typer.Option(metavar="KIND", help=", ".join(KINDS))]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other key, such as columns.nulls.zip=suppress."),
]
LedgerFile = Annotated[str | None, typer.Option("--ledger", metavar="FILE", help="The ledger, if not the user's.")]
KEYS: dict[str, Any] = {
    "sensitive": Sensitive,
    "qi": Annotated[str | None, typer.Option(metavar="COLUMN,..", help="Columns that an attacker may know.")],
    "bins": Annotated[list[str] | None, typer.Option(metavar="COLUMN=WIDTH", help="Bins of a column; repeatable.")],
    "mechanism": MechanismKind,
    "algorithm": Annotated[str | None, typer.Option(metavar="NAME", help="Algorithm of the mechanism.")],
    "threshold": Annotated[str | None, typer.Option(metavar="RULE", help="Highest belief in a value: '8*f + 0.02'.")],
    "epsilon": Annotated[str | None, typer.Option(metavar="NUMBER", help="Privacy budget.")],
    "delta": Annotated[str | None, typer.Option(metavar="NUMBER", help="Delta of the privacy budget.")],
    "k": Annotated[str | None, typer.Option(metavar="NUMBER", help="Fewest different values in a group.")],
    "e": Annotated[str | None, typer.Option(metavar="RANGE", help="Smallest range of a group: '30 days'.")],
    "id": Annotated[str | None, typer.Option(metavar="COLUMN", help="Unique record id, for the ledger.")],
    "person": Annotated[str | None, typer.Option(metavar="COLUMN", help="Persons, who may have several records.")],
    "persons": Annotated[str | None, typer.Option(metavar="WHAT", help="Their records: refuse, one, some, count.")],
    "to": Annotated[str | None, typer.Option(metavar="PATH", help="File or folder of the release.")],
    "format": Annotated[str | None, typer.Option(metavar="NAME", help="duckdb (a file) or parquet (a folder).")],
    "ledger": LedgerFile,
    "set": Settings,
}


def _make_optional(name: str, hint: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)


@dataclass(frozen=True)
class CommandOutcome:
    """What a command returns: the object for ``--json``, the text for people, the exit code, and warnings."""

    as_json: Callable[[], dict[str, Any]]
    print_for_people: Callable[[], None]
    exit_code: int = 0
    warnings: Sequence[str] = ()


def tell(
    outcome: Outcome, *, verbose: bool = False, more: Mapping[str, Any] | None = None, notes: Iterable[Part] = ()
) -> CommandOutcome:
    """Return what a command prints for the outcome of the public function that it called.

    Args:
        outcome: The outcome.
        verbose: Whether the text for people shows all details.
        more: Entries that the object for ``--json`` has in addition to those of the outcome.
        notes: Lines at the end of the text for people.
    """
    return CommandOutcome(
        lambda: {**outcome.as_json(), **(more or {})},
        lambda: print_parts([*outcome.show(verbose=verbose), *notes]),
        outcome.exit_code,
        outcome.warnings,
    )


def register_command(
    *, epilog: str = "", group: typer.Typer = app, name: str | None = None
) -> Callable[[Callable[..., CommandOutcome | None]], Callable[..., None]]:
    """Return a decorator that makes a function a command, with ``--json`` and options for its parameters.

    A function with a parameter ``options`` gets ``--memory-limit`` and ``--threads``. One with ``specification`` gets
    an argument for the specification or source, and an option for each of its keys. One with ``as_json`` receives the
    value of ``--json``. The outcome is printed once the progress bar is gone.

    Args:
        epilog: Examples for the help, one per line.
        group: The app that the command belongs to.
        name: The name of the command; None for that of the function.
    """

    def decorate(function: Callable[..., CommandOutcome | None]) -> Callable[..., None]:
        listed = signature(function, eval_str=True).parameters
        runs = {"memory_limit": Memory, "threads": Threads} if "options" in listed else {}
        keys = KEYS if "specification" in listed else {}
        place = [Parameter("source", Parameter.KEYWORD_ONLY, annotation=SpecOrSource)] if keys else []
        optional = [_make_optional(key, hint) for key, hint in {**keys, **runs}.items()]
        as_object = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json)

        def run_command(**values: Any) -> None:
            as_json = values["as_json"] if "as_json" in listed else values.pop("as_json")
            with open_reporter() if runs else nullcontext(SILENT) as report:
                if keys:
                    from privsql.source.keywords import spec_from_options

                    given = {key: values.pop(key) for key in keys}
                    values["specification"] = spec_from_options(values.pop("source"), given)
                if runs:
                    values["options"] = Options(values.pop("memory_limit"), values.pop("threads"), report)
                outcome = function(**values)
            if outcome is not None:
                for warning in outcome.warnings:
                    warn(f"warning: {warning}")
                print_result(as_json, outcome.as_json, outcome.print_for_people)
                raise typer.Exit(outcome.exit_code)

        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in listed.values()]
        own = [one for one in parameters if one.name not in ("specification", "options", "as_json")]
        shown = [*place, *optional[: len(keys)], *own, *optional[len(keys) :], as_object]
        run_command.__signature__ = Signature(shown)  # type: ignore[attr-defined]
        run_command.__name__, run_command.__doc__ = function.__name__, function.__doc__
        examples = epilog.splitlines()
        heading = "Example:" if len(examples) == 1 else "Examples:"
        group.command(name, epilog="\n\n    ".join([heading, *examples]) if examples else None)(run_command)
        return run_command

    return decorate


KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="File with the key of the release, if it is not the ledger's.",
        show_default=False,
    ),
]


def load_source(path: Path | None) -> Any:
    """Return what option ``--source`` names: the path if it is that of data files, else the specification in the file.

    The result is None if the option is not given.
    """
    if path is None:
        return None
    from privsql import load
    from privsql.engine.files import is_files

    return path if is_files(str(path)) else load(path)


def print_result(as_json: bool, as_object: Callable[[], dict[str, Any]], print_for_people: Callable[[], None]) -> None:
    """Print a result as JSON or for people. If the reader closes the pipe, the exit code stays the same.

    Args:
        as_json: Whether to print JSON.
        as_object: Returns the object to print as JSON.
        print_for_people: Prints the result for people.
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
    """Print one line on stderr; nothing happens if stderr can't be written."""
    with suppress(OSError):
        print(f"privsql: {escape_controls(text)}", file=sys.stderr)


def _prepare_streams() -> None:
    """Make stdin, stdout and stderr usable: reopen closed ones, and escape characters that their encoding lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (open until the process ends)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _print_json(result: dict[str, Any]) -> None:
    import json

    print(json.dumps(result, ensure_ascii=(sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")))


def _report_failure(error: typer.TyperException | PrivsqlError | OSError, *, as_json: bool) -> int:
    """Print an error for people or as JSON, and return its exit code."""
    if isinstance(error, OSError):
        error = EngineError(f"{error.filename or 'standard output'}: {error.strerror}")
    text, details = str(error), error.details if isinstance(error, InfeasibleError) else {}
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        text = _suggest_setting(error) or " ".join(error.format_message().split())
        text += f" (see {context.command_path} --help)" if context else ""
    try:
        if as_json:
            _print_json({"error": text, "exit_code": error.exit_code, **details})
        sys.stdout.flush()
    except OSError:
        _discard_output()
    warn(text)
    return error.exit_code


def _suggest_setting(error: typer.TyperException) -> str:
    """Return the advice to write ``--set KEY=VALUE`` if an unknown option is spelled like a key; otherwise empty."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None or "set" not in {param.name for param in context.command.params}:
        return ""
    from privsql.source.keywords import suggest_setting

    return suggest_setting(option)


def _discard_output() -> int:
    """Discard the output that stdout has not accepted, and return the exit code.

    Otherwise the interpreter would try to write it on exit, and fail.
    """
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0
