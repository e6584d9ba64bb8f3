"""``init``: look at a source and propose a specification that can be published."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from pydantic import ValidationError

from privsql.calls import as_path
from privsql.engine.files import is_files, scheme
from privsql.engine.folders import temporary
from privsql.engine.open import tables
from privsql.engine.progress import Silent, running
from privsql.engine.sqlfiles import temp
from privsql.errors import UsageError
from privsql.mechanisms.contract import Budget, Profiled
from privsql.mechanisms.registry import DEFAULT, of
from privsql.source.columns import Columns
from privsql.source.frames import frame, is_table
from privsql.source.persons import mount
from privsql.source.places import Source
from privsql.source.preparing import prepare
from privsql.source.profile import choose
from privsql.verbs.room import workshop_in

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Unpack

    from tomlkit.items import Table

    from privsql.calls import PathLike
    from privsql.engine.progress import Options, Running
    from privsql.mechanisms.contract import Mechanism, Proposal
    from privsql.source.given import ArrowStream
    from privsql.source.profile import Chosen


def init(
    source: PathLike | ArrowStream,
    *,
    table: str | None = None,
    sensitive: str | None = None,
    categorical: bool = False,
    kind: str = DEFAULT,
    base: PathLike | None = None,
    **how: Unpack[Running],
) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and feasible parameters.

    ``source``: a file, or a table in Python, which the text can't name: ``privsql.load(path, source=table)`` reads it
    once it is saved. ``categorical``: sensitive numbers are codes of categories. ``base``: the folder where the
    specification will lie, from which its paths are taken; else they are absolute. Raises ``UsageError`` if no columns
    can have the roles that the mechanism needs, or the sensitive values are no categories, ``EngineError`` for files
    that can't be read, ``InfeasibleError`` where nothing can be published.
    """
    wanted = of(kind), sensitive, categorical
    with running(how, init) as options:
        if is_table(source):
            return _proposed("the table", Source(frame=frame(source)), {}, wanted, options)
        if not isinstance(source, str | os.PathLike):
            raise UsageError(f"{type(source).__name__} is neither a path nor a table")
        name = os.fspath(source)
        files = table is None and is_files(name)
        if not files and table is None:
            table = _only_table(Path(name))
        place = _written(name, as_path(base, "base") if base is not None else None)
        given = {("file" if files else "database"): place, **({} if files else {"table": table})}
        found = _source({"file": name} if files else {"database": name, "table": table})
        return _proposed(name, found, given, wanted, options)


def _proposed(
    called: str,
    source: Source,
    given: dict[str, Any],
    wanted: tuple[Mechanism[Any], str | None, bool],
    options: Options,
) -> str:
    mechanism, sensitive, categorical = wanted
    with temporary() as folder:
        with workshop_in(folder, options) as db:
            mount(db, source)
            try:
                chosen = choose(db, temp("source"), mechanism, (sensitive, categorical), options.report or Silent())
            except UsageError as error:
                raise UsageError(f"{called}: {error}") from error
        with workshop_in(folder, options) as db:
            columns = Columns.model_validate(chosen.columns)
            proposed = mechanism.propose(db, Profiled(chosen.profiles, lambda: prepare(db, source, columns)))
    return _document(given, chosen, proposed, reduced=isinstance(mechanism.composition, Budget))


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


def _document(source: dict[str, Any], chosen: Chosen, proposed: Proposal, *, reduced: bool) -> str:
    """The text; ``reduced``: of persons with several records only one can be published, so there is no choice."""
    document = tomlkit.document()
    first = "Proposed by privsql init. Check the roles: what could be known of a person is a quasi-identifier."
    head = (first, "", *chosen.remarks) if chosen.remarks else ("Proposed by privsql init.",)
    for line in (*head, *proposed.remarks):
        document.add(tomlkit.comment(line))
    if place := _describe_source(source, chosen, reduced=reduced):
        document["source"] = place
    document["columns"] = _without(chosen.columns, proposed.left_out)
    document["mechanism"] = proposed.parameters
    return tomlkit.dumps(document)


def _describe_source(source: dict[str, Any], chosen: Chosen, *, reduced: bool) -> Table:
    """Return the table ``[source]``; what becomes of persons with several records is left open, or the only choice."""
    found = tomlkit.table()
    found.update({**source, **({"id": chosen.id} if chosen.id else {})})
    if chosen.person is not None:
        found["person"] = chosen.person
        if reduced:
            found["persons"] = "one"
        else:
            found.add(tomlkit.comment("Some persons have several records. Choose one of each, or all with 'count':"))
            found.add(tomlkit.comment('persons = "one"'))
    return found


def _without(columns: dict[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """The roles of columns, without some of them: wherever they are named, and what would then hold nothing."""
    if not left_out:
        return columns
    kept: dict[str, Any] = {}
    for role, named in columns.items():
        if isinstance(named, dict):
            kept[role] = {name: how for name, how in named.items() if name not in left_out}
        else:
            kept[role] = [name for name in named if name not in left_out] if isinstance(named, list) else named
    return {role: named for role, named in kept.items() if named}


def _only_table(path: Path) -> str:
    names = tables(path)
    if len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'no table'}; choose one with --table")
    return names[0]
