"""Plan noisy tables from the specification and the quasi-identifiers, which are public."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.dp_random import SUBSTITUTION
from privsql.engine.sqlfiles import DIALECT, Holes, canonical_value, column, fill, temp_table
from privsql.errors import InfeasibleError, PrivsqlError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.label_tables.parameters import TYPICAL, TablesPlan, reach_of
from privsql.mechanisms.label_tables.rule import make_rule
from privsql.mechanisms.label_tables.tables import people_query, read_codes, tabulate_values

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.mechanisms.perturb.parameters import Randomize
    from privsql.model.records import Records


def require_values(db: Relations, roles: Roles, params: Randomize) -> None:
    """Raise ``UsageError`` if a listed value is not written as SQL prints it in the type of the sensitive column."""
    kind = exp.DataType.build(roles.sensitive[0].type, dialect=DIALECT)
    db.register_arrow("given", tabulate_values(roles, params))
    printed = exp.cast(canonical_value(exp.cast(column("s0"), kind), roles.sensitive[0].type), "VARCHAR")
    try:
        rows = db.rows(exp.select(column("s0"), printed).from_(temp_table("given")).order_by("code"))
    except PrivsqlError as error:
        name = roles.sensitive[0].name
        raise UsageError(f"values: one is no value of column {name!r}, {roles.sensitive[0].type}: {error}") from error
    finally:
        db.drop("given")
    wrong = next((text for text, again in rows if text != again), None)
    if wrong is not None:
        raise UsageError(f"values: {wrong!r} is not how SQL prints a value of type {roles.sensitive[0].type}")


def combine_records(db: Relations, source: Records) -> None:
    """Create relation ``combined``: all records, with numbered combinations of quasi-identifiers.

    Raises:
        InfeasibleError: There are no records.
    """
    if not source.records:
        raise InfeasibleError("the source has no records to publish")
    roles = source.roles
    order = [exp.Ordered(this=one, nulls_first=False) for one in roles.qi_columns("r")]
    coded = source.coded_records(ordered=False).subquery("r")
    holes: Holes = {"coded": coded, "keys": roles.qi_columns("r"), "order": order}
    db.create_table("combined", fill("randomize/combined", holes), title="Combining quasi-identifiers")


def plan_tables(db: Relations, source: Records, params: Randomize) -> TablesPlan:
    """Return how many tables and counts a release would have, its noise and its promise. No sensitive value is read."""
    require_values(db, source.roles, params)
    combine_records(db, source)
    rule = make_rule(params, read_codes(db, source.roles, people_query(source.roles).subquery("p")))
    db.drop("combined")
    _, budget, _ = rule.first_tables()[0]
    shares = params.declared_shares or {f"{float(f):.0%}": f for f in TYPICAL}
    return TablesPlan(
        epsilon=fraction_text(rule.epsilon),
        values=len(params.values),
        null_is_value=params.null_is_value,
        columns=rule.columns,
        cells=sum(rule.cell_counts[: rule.columns]),
        pairs=len(rule.codes.tables) - rule.columns,
        rounds=rule.rounds,
        scale=SUBSTITUTION.scale(budget),
        reached={name: (float(f), reach_of(f, rule.epsilon)) for name, f in shares.items()},
        threshold=None if params.threshold is None else str(params.threshold),
    )
