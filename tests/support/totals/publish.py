"""Make the table of totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import column, temp_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.model.records import Records


def write_totals(db: Relations, source: Records, totals: Sequence[int]) -> None:
    """Make table ``totals`` of a release, with so many records of every value of the domain."""
    roles = source.roles
    db.register_arrow("given", pa.table({"code": range(len(totals)), "records": totals}))
    number = exp.cast(column("records", "g"), "BIGINT").as_(roles.by_sa.column_name("records"))
    rows = exp.select(*roles.sa_out("d"), number).from_(temp_table("domain").as_("d"))
    rows = rows.join(temp_table("given").as_("g"), on=column("code", "d").eq(column("code", "g")))
    db.create_table("totals", rows.order_by(column("code", "d")), into="release")
    db.drop("given")
