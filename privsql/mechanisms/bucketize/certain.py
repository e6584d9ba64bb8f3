"""Values that a release makes certain (belief 1), which its publisher must have allowed.

A rule such as ``2*f + 0.02`` is 1 for a value of half of the records, and a threshold below 1 on a compound value lets
one of its columns be the same in a whole bucket. Who writes a threshold as 1, as a constant, for a value or by a query,
has said so; for all others there is ``allow_certain``. Fake values leave no listed value certain by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.names import label
from privsql.engine.sqlfiles import Holes, column, fill, named, same, temp
from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize.tables import size_of_bucket

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.parameters import Bucketize

SHOWN = 5  # values that a message names


def free(asked: Bucketize) -> bool:
    """Whether nothing has to be allowed: it is, fakes hide what is listed, or every threshold is written as 1."""
    rule = asked.threshold.default
    return asked.allow_certain or asked.fake_values > 0 or (asked.threshold.is_constant and str(rule) == "1")


def written(asked: Bucketize, labels: Sequence[str], thresholds: Sequence[Fraction]) -> list[int]:
    """Codes of the values whose threshold the publisher wrote as 1, value by value."""
    given = asked.threshold
    return [
        code
        for code, (name, value) in enumerate(zip(labels, thresholds, strict=True))
        if value == 1 and (given.query is not None or given.values.get(name) == 1)
    ]


def certain(
    db: Relations, st: exp.Table, values: exp.Expr, setting: dict[str, int], roles: Roles, excused: Sequence[int]
) -> dict[str, int]:
    """By value, of how many records it is certain; ``values``: (code, s0..), ``excused``: codes that may be.

    Values of several sensitive columns stand behind the column's name.
    """
    db.put("c_excused", pa.table({"code": np.array(excused, dtype=np.int32)}))
    filled: Holes = {
        "st": st,
        "values": values,
        "excused": temp("c_excused"),
        "same_value": same("st", "v", roles.sa_keys),
        "size": size_of_bucket(setting, column("bid", "st")),
    }
    db.make("c_filled", fill("bucketize/filled", filled))
    found, alone = {}, exp.select("bid", *roles.sa(), named(column("count"), "held")).from_(st)
    for key, field in zip(roles.sa_keys, roles.sensitive, strict=True):
        holes: Holes = {
            "held": (
                fill("bucketize/held", {"st": st, "sa": [column(key)]}) if len(roles.sensitive) > 1 else alone
            ).subquery(),
            "filled": temp("c_filled"),
            "key": column(key, "h"),
            "label": exp.cast(column(key, "h"), "VARCHAR"),
            "size": size_of_bucket(setting, column("bid", "h")),
        }
        for value, records in sorted(db.rows(fill("bucketize/certain", holes)), key=str):
            name = label([value]) if len(roles.sensitive) == 1 else f"{field.name}: {label([value])}"
            found[name] = int(records)
    db.drop("c_excused", "c_filled")
    return found


def reached(facts: Mapping[str, Any]) -> bool:
    """Whether the stated beliefs reach 1 anywhere."""
    return any("1" in of.values() for of in facts["highest_belief"]["components"].values())


def listed(roles: Roles, table: exp.Table) -> exp.Expr:
    """(code, s0..) of a release's values."""
    return exp.select(*roles.by_sa.read("code"), *roles.sa_in()).from_(table).subquery()


def refuse(found: Mapping[str, int]) -> None:
    """``InfeasibleError`` if a value is certain: names it, and says of how many people."""
    if found:
        raise InfeasibleError(said(found), {"certain": dict(found)})


def said(found: Mapping[str, int]) -> str:
    """The same in words."""
    shown = [f"{name} ({number:,} people)" for name, number in list(found.items())[:SHOWN]]
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return (
        f"certain, whoever looks: {', '.join(shown)}{more}; what works is a threshold below 1, larger buckets, for "
        "one of several columns a bound of its own ([mechanism.components]), a threshold that is written as 1, or "
        "--allow-certain (allow_certain = true), which says that it is meant"
    )
