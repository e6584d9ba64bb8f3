"""The weighted view of a release of item sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import column, fill, named, table

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.model.manifest import Manifest


def view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the consistent estimates, pruned records included."""
    own = named(column("items", "sets"), manifest.sensitive[0].name)
    return fill("setvalued/weighted", {"sets": table("privsql_sets"), "items": [own]})
