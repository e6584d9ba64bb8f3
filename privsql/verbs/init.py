"""``init``: look at a source and propose a specification that can be published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomlkit

from privsql.engine.database import FILE_KINDS
from privsql.engine.folders import temporary
from privsql.engine.open import scratch
from privsql.engine.progress import Options
from privsql.errors import EngineError, UsageError
from privsql.mechanisms.contract import Profiled
from privsql.mechanisms.registry import DEFAULT, of
from privsql.source.places import Source
from privsql.source.profile import choose
from privsql.source.spec import Columns
from privsql.source.table import mount, prepare
from privsql.verbs.room import workshop_in

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.mechanisms.contract import Proposal
    from privsql.source.profile import Chosen


def init(
    path: Path,
    *,
    table: str | None = None,
    sensitive: str | None = None,
    kind: str = DEFAULT,
    options: Options | None = None,
) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and feasible parameters.

    Raises ``UsageError`` if no columns can have the roles that the mechanism needs, ``EngineError`` for files that
    can't be read, ``InfeasibleError`` where nothing can be published.
    """
    mechanism, options = of(kind), options or Options()
    if table is None and path.suffix.lower() not in FILE_KINDS:
        table = _only_table(path)
    given: dict[str, Any] = {"database": str(path), "table": table} if table else {"file": str(path)}
    source = Source.model_validate(given)
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
    if not path.is_file():
        raise EngineError(f"{path}: no such file")
    with scratch() as db:
        db.attach(path, "warehouse", read_only=True)
        names = [name if schema == "main" else f"{schema}.{name}" for _, schema, name, _ in db.listed("warehouse")]
    if len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'no table'}; choose one with --table")
    return names[0]
