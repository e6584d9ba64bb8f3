"""Options of a command that follow from the models of a specification; Typer makes them when they are needed."""

from __future__ import annotations

from functools import cache
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from privsql.mechanisms.registry import PACKAGES

if TYPE_CHECKING:
    from privsql.source.flags import Flag
    from privsql.source.spec import Spec

KEPT = "privsql.flags"  # where a context keeps what was given
METAVARS = {"names": "COLUMN,..", "pairs": "COLUMN=VALUE", "one": "VALUE"}
PANELS = {"source": "Source and columns", "columns": "Source and columns", "release": "Release", "ledger": "Ledger"}
TYPES: dict[str, Any] = {"switch": bool | None, "pairs": list[str] | None}


class Specified(TyperCommand):
    """A command that takes a specification, or the flags that make one, beside its own options."""

    sections: ClassVar[tuple[str, ...]] = ("source", "columns", "mechanism", "release", "ledger")

    def _options(self) -> list[Any]:
        return _options(self.sections, tuple(PACKAGES))

    def get_params(self, ctx: Any) -> list[Any]:
        """Those of the models first."""
        return [*self._options(), *super().get_params(ctx)]

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
        ctx.meta[KEPT] = {option.name: ctx.params.pop(option.name, None) for option in self._options()}
        return super().invoke(ctx)


class Planned(Specified):
    """The same for a command that writes no release."""

    sections = ("source", "columns", "mechanism", "ledger")


def specification(ctx: typer.Context, source: str) -> Spec:
    """What a command is asked for."""
    from privsql.source import flags  # noqa: PLC0415 (the models of all mechanisms)

    return flags.asked(source, ctx.meta[KEPT])


@cache
def _options(sections: tuple[str, ...], kinds: tuple[str, ...]) -> list[Any]:
    """The options of some sections and all mechanisms, as Typer makes them of the parameters of a function."""
    from privsql.source import flags  # noqa: PLC0415

    def nothing() -> None: ...

    chosen = [flag for section in sections for flag in flags.flags().values() if flag.section == section]
    nothing.__signature__ = Signature([_parameter(flag, kinds) for flag in chosen])  # type: ignore[attr-defined]
    maker = typer.Typer(add_completion=False)
    maker.command()(nothing)
    return typer.main.get_command(maker).params


def _parameter(flag: Flag, kinds: tuple[str, ...]) -> Parameter:
    spelled = flag.spelled
    if flag.form == "switch":
        spelled = tuple(f"{name}/--no-{name.removeprefix('--')}" for name in spelled)
    option = typer.Option(
        *spelled, help=flag.help, metavar=METAVARS.get(flag.form), rich_help_panel=_panel(flag, kinds)
    )
    kind = TYPES.get(flag.form, str | None)
    return Parameter(flag.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _panel(flag: Flag, kinds: tuple[str, ...]) -> str:
    """Under which title ``--help`` lists a flag."""
    if flag.section != "mechanism":
        return PANELS[flag.section]
    return "Mechanism" if len(flag.fields) == len(kinds) else f"Mechanism, --kind {' or '.join(flag.fields)}"
