"""From what a publisher asks for to records ready to be published, whatever their shape is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from privsql.mechanisms.contract import Budget, Sets
from privsql.mechanisms.registry import of
from privsql.source.naming import known_by, require_ids
from privsql.source.preparing import prepare
from privsql.source.sets import prepare_sets

if TYPE_CHECKING:
    from privsql.engine.database import Warehouse
    from privsql.model.records import Records
    from privsql.source.spec import Spec


def prepared(db: Warehouse, spec: Spec, *, for_ledger: bool = False) -> Records:
    """The source, mounted and counted; ``for_ledger``: with the names by which a ledger knows records and persons.

    Raises ``UsageError`` for columns that are unknown or can't be published, and NULL where it is refused;
    ``EngineError`` for files that can't be read.
    """
    mechanism = of(spec.mechanism.kind)
    if isinstance(mechanism.shape, Sets):
        sets = prepare_sets(db, spec.source, spec.columns, mechanism.shape.universe(spec.mechanism))
        return replace(sets, known_by=known_by(db, spec.source)) if for_ledger else sets
    found = replace(prepare(db, spec.source, spec.columns), order=spec.order)
    if not for_ledger:
        return found
    names = known_by(db, spec.source)
    has_ids = "id" in names and not isinstance(mechanism.composition, Budget)
    if has_ids:
        require_ids(db, spec.source, names["id"], found.keep)
    return replace(found, known_by=names, has_ids=has_ids)
