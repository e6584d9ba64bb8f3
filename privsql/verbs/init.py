"""``init``: look at a source and propose a specification that can be published."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from pydantic import ValidationError

from privsql.engine.files import is_files, scheme
from privsql.engine.folders import temporary
from privsql.engine.open import tables
from privsql.engine.progress import Options
from privsql.errors import UsageError
from privsql.mechanisms.contract import Profiled
from privsql.mechanisms.registry import DEFAULT, of
from privsql.source.places import Source
from privsql.source.profile import choose
from privsql.source.spec import Columns
from privsql.source.table import mount, prepare
from privsql.verbs.room import workshop_in

if TYPE_CHECKING:
    from privsql.mechanisms.contract import Proposal
    from privsql.source.profile import Chosen


def init(
    path: Path | str,
    *,
    table: str | None = None,
    sensitive: str | None = None,
    kind: str = DEFAULT,
    base: Path | None = None,
    options: Options | None = None,
) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and feasible parameters.

    ``base``: the folder where the specification will lie, from which its paths are taken; else they are absolute.
    Raises ``UsageError`` if no columns can have the roles that the mechanism needs, ``EngineError`` for files that
    can't be read, ``InfeasibleError`` where nothing can be published.
    """
    mechanism, options, name = of(kind), options or Options(), os.fspath(path)
    files = table is None and is_files(name)
    if not files and table is None:
        table = _only_table(Path(name))
    source = _source({"file": name} if files else {"database": name, "table": table})
    given = {("file" if files else "database"): _written(name, base), **({} if files else {"table": table})}
    with temporary() as folder:
        with workshop_in(folder, options) as db:
            mount(db, source)
            try:
                chosen = choose(db, mechanism, sensitive)
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from error
        with workshop_in(folder, options) as db:
            columns = Columns.model_validate(chosen.columns)
            proposed = mechanism.propose(db, Profiled(chosen.profiles, lambda: prepare(db, source, columns)))
    return _document(given, chosen, proposed)


def _source(given: dict[str, Any]) -> Source:
    try:
        return Source.model_validate(given)
    except ValidationError as error:
        raise UsageError(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from error


def _written(name: str, base: Path | None) -> str:
    """A path as a specification in folder ``base`` has it."""
    if scheme(name):
        return name
    place = Path(name).absolute()
    return (place if base is None else Path(os.path.relpath(place, base))).as_posix()


def _document(source: dict[str, Any], chosen: Chosen, proposed: Proposal) -> str:
    document = tomlkit.document()
    first = "Proposed by privsql init. Check the roles: what could be known of a person is a quasi-identifier."
    head = (first, "", *chosen.remarks) if chosen.remarks else ("Proposed by privsql init.",)
    for line in (*head, *proposed.remarks):
        document.add(tomlkit.comment(line))
    document["source"] = {**source, **({"id": chosen.id} if chosen.id else {})}
    document["columns"] = chosen.columns
    document["mechanism"] = proposed.parameters
    return tomlkit.dumps(document)


def _only_table(path: Path) -> str:
    names = tables(path)
    if len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'no table'}; choose one with --table")
    return names[0]
