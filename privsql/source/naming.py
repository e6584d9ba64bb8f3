"""Names by which the ledger knows records and persons again: ids, and those of persons, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.names import fold
from privsql.engine.roles import canonical, comparable
from privsql.engine.sqlfiles import column, fill, is_null, temp
from privsql.errors import UsageError
from privsql.source.columns import missing
from privsql.source.table import read_as

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.source.places import Source


def known_by(db: Relations, source: Source) -> dict[str, exp.Expr]:
    """The texts that name a record (``id``) and its person (``person``), as expressions over relation ``source``.

    NULL stays NULL. ``UsageError`` for columns that the source has not.
    """
    available = {fold(field.name): field for field in db.fields(temp("source"))}
    found: dict[str, exp.Expr] = {}
    for key, name in (("id", source.id), ("person", source.person)):
        if name is None:
            continue
        field = available.get(fold(name))
        if field is None:
            raise UsageError(f"source.{key}: {missing(name, (one.name for one in available.values()))}")
        kind = read_as(field.type)
        text = comparable(canonical(column(field.name), kind), kind)
        found[key] = exp.Case().when(exp.not_(is_null(column(field.name))), text)
    return found


def require_ids(db: Relations, source: Source, name: exp.Expr, keep: exp.Expr) -> None:
    """``UsageError`` unless every record that is kept has an id of its own."""
    nulls, twice = db.rows(fill("ledger/unnamed", {"source": temp("source"), "id": name, "keep": keep}))[0]
    if nulls or twice:
        wrong = f"is NULL in {nulls} records" if nulls else f"has {twice} values that stand more than once"
        raise UsageError(f"source.id: column {source.id!r} {wrong}; a ledger needs one name for every record")
