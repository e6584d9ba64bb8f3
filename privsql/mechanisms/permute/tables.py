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
    roles = manifest.roles
    sensitive = [(f.name, f.type) for f in roles.sensitive]
    return {
        "qit": [*((f.name, f.type) for f in roles.quasi_identifiers), ("bid", "INTEGER"), ("code", "INTEGER")],
        "st": [("bid", "INTEGER"), *sensitive, ("count", "INTEGER")],
        "privsql_values": [("code", "INTEGER"), *sensitive, ("records", "BIGINT")],
    }


def view(manifest: Manifest) -> exp.Query:
    """Every record's quasi-identifiers beside the sensitive value that the shuffle deals to it."""
    roles = manifest.roles
    holes: Holes = {
        "qit": table("qit"),
        "values": table("privsql_values"),
        "qi": [named(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "sa": [named(column(f.name, "listed"), f.name) for f in roles.sensitive],
    }
    return fill("permute/shuffled", holes)
