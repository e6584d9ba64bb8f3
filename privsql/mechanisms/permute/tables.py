"""The tables of a (k,e)-anonymous release: their columns, and the shuffled single table as a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import Holes, column, fill, named, table

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.mechanisms.contract import Columns
    from privsql.model.manifest import Manifest


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    roles, own = manifest.roles, manifest.roles.by_sa
    sensitive = [(f.name, f.type) for f in roles.sensitive]
    return {
        "qit": [
            *((f.name, f.type) for f in roles.quasi_identifiers),
            *roles.by_qi.typed(("bid", "INTEGER"), ("code", "INTEGER")),
        ],
        "st": [*own.typed(("bid", "INTEGER")), *sensitive, *own.typed(("count", "INTEGER"))],
        "privsql_values": [*own.typed(("code", "INTEGER")), *sensitive, *own.typed(("records", "BIGINT"))],
    }


def view(manifest: Manifest) -> exp.Query:
    """Every record's quasi-identifiers beside the sensitive value that the shuffle deals to it."""
    roles = manifest.roles
    holes: Holes = {
        "qit": table("qit"),
        "values": table("privsql_values"),
        "qi": [named(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "sa": [named(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "qit_code": roles.by_qi.column("code", "qit"),
        "listed_code": roles.by_sa.column("code", "listed"),
        **roles.by_all.names("weight"),
    }
    return fill("permute/shuffled", holes)
