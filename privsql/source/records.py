"""From what a publisher asks for to records ready to be published, whatever their shape is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import column, fill, temp
from privsql.mechanisms.contract import Budget, Sets, Table
from privsql.mechanisms.registry import of
from privsql.source.naming import known_by, require_ids
from privsql.source.preparing import prepare
from privsql.source.profile import refuse_uncategorical
from privsql.source.sets import prepare_sets

if TYPE_CHECKING:
    from privsql.engine.database import Warehouse
    from privsql.engine.roles import Field
    from privsql.model.records import Records
    from privsql.source.persons import Choice
    from privsql.source.spec import Spec
    from privsql.source.table import TableRecords


def prepared(db: Warehouse, spec: Spec, *, for_ledger: bool = False, choice: Choice | None = None) -> Records:
    """The source, mounted and counted; ``for_ledger``: with the names by which a ledger knows records and persons.

    ``choice``: by which one record of each person is taken (None: by a fresh key).
    Raises ``UsageError`` for columns that are unknown or can't be published, and NULL where it is refused;
    ``EngineError`` for files that can't be read.
    """
    mechanism = of(spec.mechanism.kind)
    if isinstance(mechanism.shape, Sets):
        sets = prepare_sets(db, spec.source, spec.columns, mechanism.shape.universe(spec.mechanism), choice)
        return replace(sets, known_by=known_by(db, spec.source)) if for_ledger else sets
    found = replace(prepare(db, spec.source, spec.columns, choice), order=spec.order)
    if isinstance(mechanism.shape, Table):
        size = len(found.counts), found.records
        refuse_uncategorical(mechanism, _count_values(found), size, categorical=spec.columns.categorical)
    if not for_ledger:
        return found
    names = known_by(db, spec.source)
    has_ids = "id" in names and not isinstance(mechanism.composition, Budget)
    if has_ids:
        require_ids(db, spec.source, names["id"], found.keep)
    return replace(found, known_by=names, has_ids=has_ids)


def _count_values(records: TableRecords) -> dict[Field, int]:
    """Return how many different values each sensitive column has."""
    sensitive, keys = records.roles.sensitive, records.roles.sa_keys
    if len(sensitive) == 1:
        return {sensitive[0]: len(records.counts)}
    counted = [fill("core/profile", {"source": temp("domain"), "column": column(key)}) for key in keys]
    return {field: int(records.db.rows(one)[0][2]) for field, one in zip(sensitive, counted, strict=True)}
