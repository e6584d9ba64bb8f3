"""The tables of a release of permuted groups, its view with weights, and the contents of its groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, alias_as, column, fill, same_columns, table
from privsql.model.tables import QUASI, SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.model.manifest import Manifest

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

TABLES = {
    "qit": ReleaseTable((QUASI, "bid INTEGER", "code INTEGER")),
    "st": ReleaseTable(("bid INTEGER", SENSITIVE, "count INTEGER")),
    "privsql_values": ReleaseTable(("code INTEGER", SENSITIVE, "records BIGINT")),
}


def weighted_view(manifest: Manifest) -> exp.Query:
    """Return the view of every record's quasi-identifiers with the sensitive value that the shuffle gave it."""
    roles = manifest.roles
    holes: Holes = {
        "qit": table("qit"),
        "values": table("privsql_values"),
        "qi": [alias_as(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "sa": [alias_as(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "qit_code": roles.by_qi.as_column("code", "qit"),
        "listed_code": roles.by_sa.as_column("code", "listed"),
        **roles.by_all.alias_holes("weight"),
    }
    return fill("permute/shuffled", holes)


@dataclass(frozen=True)
class Contents:
    """The sensitive table as arrays: each row says how many records of a group have a value.

    Attributes:
        group: The group of each row, rising.
        code: The value of each row, rising within a group.
        records: The number of the group's records with this value.
        groups: The number of groups, B.
        values: The number of values, m.
    """

    group: Ints
    code: Ints
    records: Ints
    groups: int
    values: int

    @property
    def group_sizes(self) -> Ints:
        """Return the number of records of each group (B,)."""
        return np.bincount(self.group, self.records, minlength=self.groups).astype(np.int64)

    @property
    def value_totals(self) -> Ints:
        """Return the number of records with each value (m,)."""
        return np.bincount(self.code, self.records, minlength=self.values).astype(np.int64)

    @property
    def sparse_table(self) -> scipy.sparse.csr_array:
        """Return the number of records by group and value, as a sparse matrix (B, m)."""
        return scipy.sparse.csr_array(
            (self.records.astype(np.float64), (self.group, self.code)), shape=(self.groups, self.values)
        )


def read_contents(db: Relations, roles: Roles, database: str | None) -> Contents:
    """Read the contents of a release's groups; ``database`` has its tables, or the current database if None."""
    by_sa = roles.by_sa
    st = exp.select(*by_sa.select_columns("bid", "count"), *roles.sa_in()).from_(table("st", database)).subquery("st")
    listed = exp.select(*by_sa.select_columns("code"), *roles.sa_in()).from_(table("privsql_values", database))
    holes: Holes = {"st": st, "values": listed.subquery("v"), "same_value": same_columns("st", "v", roles.sa_keys)}
    rows = db.arrow(fill("permute/contents", holes))
    group, code, records = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
    return Contents(group, code, records, int(group.max()) + 1, int(code.max()) + 1)
