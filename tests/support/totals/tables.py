"""What a release of totals holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import alias_as, column
from privsql.model.tables import SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from privsql.model.manifest import Manifest

TABLES = {"totals": ReleaseTable((SENSITIVE, "records BIGINT"))}


def weigh_totals(manifest: Manifest) -> exp.Query:
    """Return the values with their totals as weights."""
    names = manifest.roles.by_sa
    weight = alias_as(names.as_column("records"), names.column_name("weight"))
    return exp.select(*(column(field.name) for field in manifest.sensitive), weight).from_("totals")
