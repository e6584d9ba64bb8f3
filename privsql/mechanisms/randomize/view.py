"""The weighted view of a randomized release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import Holes, column, fill, named, same, table

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.model.manifest import Manifest


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
    }
    return fill("randomize/weighted", holes)
