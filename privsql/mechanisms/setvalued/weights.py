"""The weight of an item set in the release's own view, which has the items under the publisher's name for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import column, named

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.model.manifest import Manifest


def weight_of(manifest: Manifest) -> exp.Expr:
    """The column, under another name where the items are called so."""
    own, called = column("weight", "sets"), manifest.roles.by_sa.called("weight")
    return own if called == "weight" else named(own, called)
