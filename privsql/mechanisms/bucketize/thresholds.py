"""Thresholds per sensitive value, and per set of values: from a rule over frequencies, with exceptions, or a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, named, same, temp
from privsql.errors import UsageError
from privsql.exact import fraction
from privsql.mechanisms.bucketize.groups.bounds import Bound, Part, bounds, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.groups.rules import Threshold
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.records import Records

EXACT_TYPES = ("DECIMAL", "VARCHAR", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
MAX_BITS = 126  # counts times denominators are compared as HUGEINT


def thresholds(db: Relations, domain: Records, asked: Threshold) -> tuple[Fraction, ...]:
    """f'_i (m,) in (0, 1]; ``UsageError`` names the value whose threshold is missing or wrong."""
    try:
        given = queried(db, asked.query, temp("domain"), domain.roles.sa_keys, domain.labels) if asked.query else None
        found = given or asked.of(domain.labels, domain.counts)
    except ValueError as error:
        raise UsageError(f"mechanism.threshold: {error}") from error
    largest = max(domain.counts)
    for label, value in zip(domain.labels, found, strict=True):
        refuse_long(value, largest, f"mechanism.threshold: too many digits for value {label}")
    return found


def bounds_of(db: Relations, domain: Records, asked: Bucketize) -> tuple[Bound, ...]:
    """The bounds on components and groups; ``UsageError`` names what is wrong with one."""
    if not asked.is_bounding:
        return ()

    def query(part: Part, given: str) -> tuple[Fraction, ...]:
        holes: Holes = {"domain": temp("domain"), "key": column(part.key, "d")}
        parts = fill("bucketize/parts", holes).subquery("parts")
        own = exp.select(named(column("part"), "code"), "s0").distinct().from_(parts).subquery()
        return queried(db, given, own, ("s0",), part.labels)

    found = bounds(asked, values_of(db, temp("domain"), domain.roles, domain.counts), query)
    for one in found:
        refuse_long(one.threshold, sum(domain.counts), f"mechanism: too many digits for the bound of {one.name}")
    return found


def refuse_long(value: Fraction, records: int, what: str) -> None:
    """``UsageError`` for a fraction that can't be compared in SQL with so many records."""
    if value.denominator.bit_length() + records.bit_length() > MAX_BITS:
        raise UsageError(f"{what}; round the rule's numbers")


def queried(
    db: Relations, query: str, domain: exp.Expr, keys: Sequence[str], labels: Sequence[str]
) -> tuple[Fraction, ...]:
    """The thresholds that the publisher's query yields, matched in SQL to ``domain``(code, s0..); or ``ValueError``."""
    db.own("given_thresholds", query)
    fields = db.fields(temp("given_thresholds"))
    if len(fields) != len(keys) + 1:
        raise ValueError(
            f"the query yields {len(fields)} columns; it must yield {len(keys)} for the value and one more"
        )
    if fields[-1].type.split("(")[0] not in EXACT_TYPES:
        raise ValueError(f"the query's column {fields[-1].name!r} is {fields[-1].type}; cast it to DECIMAL or VARCHAR")
    renamed = [named(column(field.name), key) for field, key in zip(fields, (*keys, "threshold"), strict=True)]
    db.make("threshold_rows", exp.select(*renamed).from_(temp("given_thresholds")))
    holes: Holes = {"domain": domain, "given": temp("threshold_rows"), "same_value": same("d", "t", keys)}
    rows = db.rows(fill("bucketize/queried_thresholds", holes))
    db.drop("given_thresholds", "threshold_rows")
    return tuple(_exact(label, row) for label, row in zip(labels, rows, strict=True))


def _exact(label: str, row: tuple[object, ...]) -> Fraction:
    _, times, given = row
    if times != 1 or given is None:
        raise ValueError(f"the query yields {times} thresholds for value {label}; it must yield one")
    value = fraction(given)
    if not 0 < value <= 1:
        raise ValueError(f"threshold {given} of value {label} lies outside (0, 1]")
    return value
