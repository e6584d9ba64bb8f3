"""The weighted view of a contingency table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import column, fill, table

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.model.manifest import Manifest


def view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the consistent estimates, pruned records included."""
    own = [column(field.name, "cells") for field in manifest.sensitive]
    return fill("contingency/weighted", {"cells": table("privsql_cells"), "columns": own})
