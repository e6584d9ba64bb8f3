"""Thresholds per sensitive value: from a rule over frequencies, with exceptions, or from a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import column, fill, named, same, temp
from privsql.errors import UsageError
from privsql.exact import fraction

if TYPE_CHECKING:
    from fractions import Fraction

    from privsql.engine.database import Domain, Relations
    from privsql.mechanisms.bucketize.parameters import Threshold

EXACT_TYPES = ("DECIMAL", "VARCHAR", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
MAX_BITS = 126  # counts times denominators are compared as HUGEINT


def thresholds(db: Relations, domain: Domain, asked: Threshold) -> tuple[Fraction, ...]:
    """f'_i (m,) in (0, 1]; ``UsageError`` names the value whose threshold is missing or wrong."""
    try:
        found = _queried(db, domain, asked.query) if asked.query else asked.of(domain.labels, domain.counts)
    except ValueError as error:
        raise UsageError(f"mechanism.threshold: {error}") from error
    most = max(domain.counts).bit_length()
    for label, value in zip(domain.labels, found, strict=True):
        if value.denominator.bit_length() + most > MAX_BITS:
            raise UsageError(f"mechanism.threshold: too many digits for value {label}; round the rule's numbers")
    return found


def _queried(db: Relations, domain: Domain, query: str) -> tuple[Fraction, ...]:
    """The thresholds that the publisher's query yields, matched to the domain in SQL."""
    db.own("given_thresholds", query)
    fields = db.fields(temp("given_thresholds"))
    keys = domain.roles.sa_keys
    if len(fields) != len(keys) + 1:
        raise ValueError(
            f"the query yields {len(fields)} columns; it must yield {len(keys)} for the value and one more"
        )
    if fields[-1].type.split("(")[0] not in EXACT_TYPES:
        raise ValueError(f"the query's column {fields[-1].name!r} is {fields[-1].type}; cast it to DECIMAL or VARCHAR")
    renamed = [named(column(field.name), key) for field, key in zip(fields, (*keys, "threshold"), strict=True)]
    db.make("threshold_rows", exp.select(*renamed).from_(temp("given_thresholds")))
    holes = {"domain": temp("domain"), "given": temp("threshold_rows"), "same_value": same("d", "t", keys)}
    rows = db.rows(fill("bucketize/queried_thresholds", holes))
    db.drop("given_thresholds", "threshold_rows")
    return tuple(_exact(label, row) for label, row in zip(domain.labels, rows, strict=True))


def _exact(label: str, row: tuple[object, ...]) -> Fraction:
    _, times, given = row
    if times != 1 or given is None:
        raise ValueError(f"the query yields {times} thresholds for value {label}; it must yield one")
    value = fraction(given)
    if not 0 < value <= 1:
        raise ValueError(f"threshold {given} of value {label} lies outside (0, 1]")
    return value
