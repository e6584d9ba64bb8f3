"""What Python's verbs take for a specification: a TOML path, plain data, a ``Spec``, or a source with keywords.

Keywords are called as the flags of the command line are, with underscores, and take values of Python's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from privsql.calls import PathLike, known
from privsql.engine.files import shown
from privsql.engine.progress import RUNNING
from privsql.errors import UsageError
from privsql.mechanisms.contract import Categories
from privsql.mechanisms.registry import PACKAGES, of
from privsql.source.flags import KIND, Way, adjusted, flags, plain
from privsql.source.frames import frame, is_table
from privsql.source.reading import build, load
from privsql.source.spec import Spec

if TYPE_CHECKING:
    from privsql.model.manifest import Manifest
    from privsql.source.flags import Flag


class ArrowStream(Protocol):
    """A table of any library that speaks Arrow: of pandas, Polars, DuckDB, PyArrow, .."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Its rows."""


Given = PathLike | Mapping[str, Any] | Spec | ArrowStream
SHORT, LONG = "qi", "quasi_identifiers"  # two names of one keyword
MECHANISM = "mechanism"  # a keyword: a kind, an algorithm, or the table of that name


def _value(flag: Flag, value: Any, kind: str) -> Any:  # noqa: ARG001 (a way to read has three)
    return [value] if flag.form == "names" and isinstance(value, str) else value


PYTHON = Way(lambda flag: flag.name, _value, "a specification")


def specified(given: Given, keywords: Mapping[str, Any] | None = None, *, verb: str = "a specification") -> Spec:
    """The specification that is meant.

    A TOML path, plain data and a ``Spec`` are whole, but for where the release goes; any other path and a table are a
    source, of which ``keywords`` say the rest. Raises ``UsageError`` for keywords that are unknown, missing or of
    another mechanism.
    """
    asked = _keywords(keywords or {}, verb)
    if isinstance(given, Spec):
        return adjusted(given, asked, PYTHON)
    if isinstance(given, Mapping):
        return adjusted(build(given), asked, PYTHON)
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        whole = name.lower().endswith(".toml")
        return adjusted(load(name), asked, PYTHON) if whole else build(plain(name, shown(name), asked, PYTHON))
    return build(plain(frame(given), "the table", asked, PYTHON), origin="the table")


def apart(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords of a specification, and those of how a verb runs; ``options`` of a CSV file are a table."""
    rest = {name: value for name, value in given.items() if name in RUNNING and not isinstance(value, Mapping)}
    return {name: value for name, value in given.items() if name not in rest}, rest


def beside(given: Given, manifest: Manifest) -> Spec:
    """The specification of a release's source: as given, or of a table alone what the release states of its columns."""
    source: object = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if isinstance(source, str):
        if source.lower().endswith(".toml"):
            return specified(source)
    elif is_table(source):
        source = frame(source)
    else:
        return specified(given)
    asked = {**manifest.parameters, "kind": manifest.mechanism, "algorithm": manifest.algorithm}
    columns: dict[str, Any] = {**_columns(manifest), "nulls": manifest.nulls, "bins": manifest.bins}
    if manifest.groups:
        name = next(iter(manifest.groups))
        raise UsageError(
            f"column {name!r} holds groups, and which values they are of the release does not say; give levels"
        )
    if manifest.persons is not None and manifest.persons.rule == "one":
        raise UsageError(
            "the release holds one record of each person, and which column names persons it does not say; give the "
            "specification, with source.person"
        )
    raw = {"columns": columns, "mechanism": asked, "release": {"name": manifest.name}}
    return build(raw, source=source, origin="the source of the release")


def _columns(manifest: Manifest) -> dict[str, Any]:
    """The roles that a release states."""
    named = [one.name for one in manifest.sensitive]
    if manifest.roles.hold_sets:
        return {"items": named[0]}
    if isinstance(of(manifest.mechanism).shape, Categories):
        return {"categories": named}
    quasi = [one.name for one in manifest.quasi_identifiers]
    return {"quasi_identifiers": quasi, "sensitive": named, "categorical": True}  # as they were published


def _keywords(given: Mapping[str, Any], verb: str) -> dict[str, Any]:
    """The keywords by the names of their flags, without ``mechanism``."""
    asked = {name: value for name, value in given.items() if value is not None}
    known(asked, {*flags(), MECHANISM, SHORT}, verb)
    if SHORT in asked:
        if LONG in asked:
            raise UsageError(f"{SHORT} and {LONG} are one keyword; give one of them")
        asked[LONG] = asked.pop(SHORT)
    meant = asked.pop(MECHANISM, None)
    if meant is None:
        return asked
    if isinstance(meant, str):
        meant = {KIND if meant in PACKAGES else "algorithm": meant}
    if not isinstance(meant, Mapping):
        raise UsageError(f"mechanism: {type(meant).__name__} is neither a name nor a table of keys and values")
    names = {flag.key: name for name, flag in flags().items() if flag.section == MECHANISM}
    known(meant, names, "mechanism")
    own = {names[key]: value for key, value in meant.items()}
    twice = next((name for name in own if name in asked), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice, once in mechanism")
    return asked | own
