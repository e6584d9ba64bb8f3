"""What the tables of a bucketized release tell of it, after ``checks`` has named them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.engine.names import label
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, same, temp
from privsql.exact import text
from privsql.mechanisms.bucketize import beliefs
from privsql.mechanisms.bucketize.groups import checks as groupchecks
from privsql.mechanisms.bucketize.reconstruct import directions
from privsql.model.checks import Promised

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest


def measured(db: Relations, manifest: Manifest) -> dict[str, Any]:
    """How far beliefs go, from ST, and what gets through."""
    found = beliefs.measured(db, temp("v_st"), temp("v_values"), manifest.facts, manifest.roles).as_facts()
    return found | directions(db.arrow(all_rows(temp("v_channel"))), manifest.facts)


def bounds(db: Relations, manifest: Manifest) -> list[Promised]:
    """Every group's bound, then every value's threshold, and the largest share of a bucket that has it."""
    keys = manifest.roles.sa_keys
    holes: Holes = {
        "st": temp("v_kinds"),
        "sizes": temp("v_sizes"),
        "values": temp("v_values"),
        "sa": manifest.roles.sa("st"),
        "labels": [named(exp.cast(column(key, "v"), "VARCHAR"), key) for key in keys],
        "same_value": same("v", "w", keys),
    }
    found: dict[int, Promised] = {}
    listed = db.arrow(all_rows(temp("v_values"))) if not manifest.facts.get("fake_values") else None  # fakes count, too
    records = (
        {} if listed is None else dict(zip(*(listed[name].to_pylist() for name in ("code", "records")), strict=True))
    )
    most: dict[int, Fraction] = {}
    for code, *shown, top, bottom, size, held in db.rows(fill("verify/bounds", holes)):
        most[code] = max(most.get(code, Fraction(0)), min(Fraction(1), Fraction(int(held), int(size))))
        found[code] = Promised(label(shown), text(Fraction(int(top), int(bottom))), text(most[code]), records.get(code))
    return [*groupchecks.promised(db, manifest), *found.values()]
