"""The tables of a randomized release: their columns, and its weighted view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import Holes, column, fill, named, same, table

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.mechanisms.contract import Columns
    from privsql.model.manifest import Manifest

FRACTIONS = ("rho1_numerator", "rho1_denominator", "gamma_numerator", "gamma_denominator")


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    roles, own = manifest.roles, manifest.roles.by_sa
    sensitive = [(f.name, f.type) for f in roles.sensitive]
    quasi = [(f.name, f.type) for f in roles.quasi_identifiers]
    return {
        "perturbed": [*quasi, *sensitive, *roles.by_all.typed(("sub_table", "INTEGER"))],
        "privsql_subtables": [
            ("sub_table", "INTEGER"),
            ("records", "BIGINT"),
            ("size", "INTEGER"),
            *((name, "DECIMAL(38,0)") for name in FRACTIONS),
        ],
        "privsql_domains": [("cell", "INTEGER"), ("sub_table", "INTEGER"), ("code", "INTEGER")],
        "privsql_values": [*own.typed(("code", "INTEGER")), *sensitive, *own.typed(("protected", "BOOLEAN"))],
    }


def view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the estimates of equation 7."""
    roles = manifest.roles
    holes: Holes = {
        "perturbed": table("perturbed"),
        "subtables": table("privsql_subtables"),
        "domains": table("privsql_domains"),
        "values": table("privsql_values"),
        "qi": [named(column(f.name, "perturbed"), f.name) for f in roles.quasi_identifiers],
        "sa": [named(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "same_value": same("perturbed", "listed", [f.name for f in roles.sensitive]),
        "perturbed_part": roles.by_all.column("sub_table", "perturbed"),
        "listed_code": roles.by_sa.column("code", "listed"),
        **roles.by_all.names("weight"),
    }
    return fill("randomize/weighted", holes)
