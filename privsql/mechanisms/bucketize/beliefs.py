"""How far beliefs go: for each value of each single sensitive column, the largest share of a bucket that has it.

For a value v of a column: max over buckets g of (sum of count(g, x) over the x with v in that column)/|g|, in exact
fractions. Of several sensitive columns the combination is what thresholds bound; a single one of them can go further.
Where listed values may be fake, these are upper bounds: whatever is fake, no more than |g| of the listed are real.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, named, same, temp
from privsql.exact import text
from privsql.mechanisms.bucketize.groups.bounds import put_members, stated_bounds
from privsql.mechanisms.bucketize.tables import size_of_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles

HALF = Fraction(1, 2)
SHOWN = 4  # sensitive columns whose highest belief a person is shown


@dataclass(frozen=True)
class Sure:
    """Records of whom some value is certain (belief 1), and believed with more than 1/2."""

    certain: int = 0
    above_half: int = 0

    def as_json(self) -> dict[str, Any]:
        """Both numbers."""
        return {"certain": self.certain, "above_half": self.above_half}


@dataclass(frozen=True)
class Beliefs:
    """``overall``: the highest belief in a whole sensitive value; ``sure``: records, in any single column.

    By the name of every single sensitive column, ``columns``: the highest belief in each of its values, as text, and
    ``sure_of``. ``bounded``: the highest belief in each set of values that has a bound, by its name.
    """

    overall: Fraction
    sure: Sure
    columns: dict[str, dict[str, Fraction]]
    sure_of: dict[str, Sure] = field(default_factory=dict)
    bounded: dict[str, Fraction] = field(default_factory=dict)

    def as_facts(self) -> dict[str, Any]:
        """``highest_belief`` and ``certain``; fractions as exact texts."""
        highest = {name: {value: text(most) for value, most in of.items()} for name, of in self.columns.items()}
        sure = {name: found.as_json() for name, found in self.sure_of.items()}
        bounded = {"bounded": {name: text(most) for name, most in self.bounded.items()}} if self.bounded else {}
        return {
            "highest_belief": {"overall": text(self.overall), "components": highest, **bounded},
            "certain": self.sure.as_json() | {"components": sure},
        }


def measured(db: Relations, st: exp.Table, values: exp.Table, facts: dict[str, Any], roles: Roles) -> Beliefs:
    """What the sensitive table ``st`` (bid, s0.., count) of a release says; ``values`` (code, s0..)."""
    size = size_of_bucket(facts["setting"], column("bid", "h"))
    listed = exp.select("bid", *roles.sa(), named(column("count"), "held")).from_(st).subquery()
    tallies = {key: _held(db, st, key) if len(roles.sensitive) > 1 else listed for key in roles.sa_keys}
    columns, sure_of, parts, peaks = {}, {}, [], []
    for (key, held), own in zip(tallies.items(), roles.sensitive, strict=True):
        columns[own.name] = _highest(db, held, key, size)
        peaks = _peaks(db, held, size)
        sure_of[own.name] = _sure(peaks)
        parts.append(exp.select("bid", "held").from_(held))
    if len(parts) > 1:
        peaks = _peaks(db, listed, size)
    overall = max(_share(records, most) for records, most, _ in peaks)
    sure = (
        _sure(_peaks(db, exp.union(*parts, distinct=False).subquery(), size)) if len(parts) > 1 else sure_of[own.name]
    )
    db.drop(*(f"held_{key}" for key in tallies))
    bounded: dict[str, Fraction] = {}
    for one, most in zip(stated_bounds(facts), of_sets(db, st, values, facts, roles), strict=True):
        bounded[one.name] = max(bounded.get(one.name, most), most)  # NULL and a text may be called the same
    return Beliefs(overall, sure, columns, sure_of, bounded)


def together(st: exp.Table, values: exp.Table, members: exp.Table, roles: Roles) -> exp.Expr:
    """How many of each bucket's values belong to each set of ``members`` (bound, code)."""
    holes: Holes = {"st": st, "values": values, "members": members, "same_value": same("st", "v", roles.sa_keys)}
    return fill("bucketize/together", holes).subquery()


def of_sets(db: Relations, st: exp.Table, values: exp.Table, facts: dict[str, Any], roles: Roles) -> list[Fraction]:
    """The highest belief in every set of values with a bound, in the order of ``facts``."""
    stated = stated_bounds(facts)
    if not stated:
        return []
    put_members(db, "sets", stated)
    size, number = size_of_bucket(facts["setting"], column("bid", "h")), column("bound", "h")
    holes: Holes = {"held": together(st, values, temp("sets"), roles), "key": number, "label": number, "size": size}
    found = [Fraction(0)] * len(stated)
    for bound, records, most in db.rows(fill("bucketize/highest", holes)):
        found[bound] = max(found[bound], _share(records, most))
    db.drop("sets")
    return found


def _held(db: Relations, st: exp.Table, key: str) -> exp.Expr:
    """How many of each bucket's values agree in one of several columns."""
    db.make(f"held_{key}", fill("bucketize/held", {"st": st, "sa": [column(key)]}))
    return temp(f"held_{key}")


def _highest(db: Relations, held: exp.Expr, key: str, size: exp.Expr) -> dict[str, Fraction]:
    """The highest belief in every value of a column, by its text."""
    label = exp.cast(column(key, "h"), "VARCHAR")
    holes: Holes = {"held": held, "key": column(key, "h"), "label": label, "size": size}
    found: dict[str, Fraction] = {}
    for value, records, most in sorted(db.rows(fill("bucketize/highest", holes)), key=str):
        shown = "NULL" if value is None else str(value)
        found[shown] = max(found.get(shown, Fraction(0)), _share(records, most))
    return found


def _peaks(db: Relations, held: exp.Expr, size: exp.Expr) -> list[tuple[int, int, int]]:
    """(size, most, buckets)."""
    rows = db.rows(fill("bucketize/peaks", {"held": held, "size": size}))
    return [(int(records), int(most), int(buckets)) for records, most, buckets in rows]


def _share(size: int, most: int) -> Fraction:
    return min(Fraction(1), Fraction(int(most), int(size)))


def _sure(peaks: Iterable[tuple[int, int, int]]) -> Sure:
    known = [(_share(size, most), size * buckets) for size, most, buckets in peaks]
    return Sure(sum(n for share, n in known if share == 1), sum(n for share, n in known if share > HALF))


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for a person: the highest belief, where it is, and whose value is known too well."""
    if not facts.get("highest_belief"):
        return []
    overall, columns = facts["highest_belief"]["overall"], facts["highest_belief"]["components"]
    tops = [(name, *max(of.items(), key=lambda item: Fraction(item[1]))) for name, of in columns.items()]
    shown = [f"{most} ({name}: {value})" for name, value, most in tops[:SHOWN]]
    mean = facts.get("mean_belief")
    whole = [f"{overall} (together)"] if len(tops) > 1 else []
    return [
        ("highest belief", ", ".join([*shown, *whole])),
        *_bounded(facts),
        ("certain", f"{facts['certain']['certain']:,} records; {facts['certain']['above_half']:,} above 1/2"),
        *([("mean belief", f"{mean:.3f}  (of all records, in their own value)")] if mean is not None else []),
    ]


def _bounded(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The sets of values with a bound that is nearly reached, and how many more there are."""
    highest = facts["highest_belief"].get("bounded", {})
    stated = [one for one in stated_bounds(facts) if one.name in highest]
    if not stated:
        return []
    nearest = sorted(stated, key=lambda one: -Fraction(highest[one.name]) / one.threshold)
    shown = [f"{one.name} {highest[one.name]} (at most {text(one.threshold)})" for one in nearest[:SHOWN]]
    return [("bounded", ", ".join(shown) + (f", and {len(nearest) - SHOWN} more" if len(nearest) > SHOWN else ""))]
