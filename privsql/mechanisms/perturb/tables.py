"""The tables of a perturbed release, its view with weights, and its public parameters as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import Channel, Floats, Observation, reconstruct
from privsql.answers.estimate import project_within
from privsql.engine.sqlfiles import Holes, alias_as, all_rows, column, fill, same_columns, table
from privsql.errors import EngineError
from privsql.model.arrays import bounded_zeros
from privsql.model.tables import QUASI, SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    import pyarrow as pa

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

# Tables ---------------------------------------------------------------------------------------------------------------

FRACTIONS = ("rho1_numerator", "rho1_denominator", "gamma_numerator", "gamma_denominator")
TABLES = {
    "perturbed": ReleaseTable((QUASI, SENSITIVE, "sub_table INTEGER")),
    "privsql_subtables": ReleaseTable(
        ("sub_table INTEGER", "records BIGINT", "size INTEGER", *(f"{name} DECIMAL(38,0)" for name in FRACTIONS))
    ),
    "privsql_domains": ReleaseTable(("cell INTEGER", "sub_table INTEGER", "code INTEGER")),
    "privsql_values": ReleaseTable(("code INTEGER", SENSITIVE, "protected BOOLEAN")),
}


def weighted_view(manifest: Manifest) -> exp.Query:
    """Return the view of every record with each value it may have, with a weight that corrects for the perturbation.

    Sums of weights are the unbiased estimates of counts by the papers' equation 7. The view has their variances, too.
    """
    roles = manifest.roles
    holes: Holes = {
        "perturbed": table("perturbed"),
        "subtables": table("privsql_subtables"),
        "domains": table("privsql_domains"),
        "values": table("privsql_values"),
        "qi": [alias_as(column(f.name, "perturbed"), f.name) for f in roles.quasi_identifiers],
        "sa": [alias_as(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "same_value": same_columns("perturbed", "listed", [f.name for f in roles.sensitive]),
        "perturbed_part": roles.by_all.as_column("sub_table", "perturbed"),
        "listed_code": roles.by_sa.as_column("code", "listed"),
        **roles.by_all.alias_holes("weight", "variance"),
    }
    return fill("randomize/weighted", holes)


# Public parameters ----------------------------------------------------------------------------------------------------
# Cell (j, x) is value x of sub-table j. The release shows the number of records of every cell (j, y), but not which
# value they had. Of the o_i records with value i, c_ij are in sub-table j, chosen at random. There a record becomes y
# with probability P_j(i, y). So the channel is
#
#     M[i, (j, y)] = c_ij/o_i P_j(i, y),
#
# the perturbation matrices of all sub-tables side by side. Each record adds one unit vector, so S = diag(M^T o). The
# counts c are not published. They are estimated for each sub-table from all its records, with a flat prior.

Ints = NDArray[np.int64]
WHOLE = 1e-6  # rounding error of the product of rho1 and records, which is a whole number
SUBTABLES, DOMAINS, VALUES = table("privsql_subtables"), table("privsql_domains"), table("privsql_values")


@dataclass(frozen=True)
class PublicParameters:
    """The public parameters of k sub-tables and m values, and the number of published records of each cell.

    A sub-table is a part of the records whose false values are drawn from the part's own values. A cell is a pair of a
    sub-table and one of its values.

    Attributes:
        records: The number of records of each sub-table (k,).
        gamma: The amplification of each sub-table: how many times likelier a record keeps its value than it gets any
            given other one (k,).
        rho1: The highest frequency of a protected value in each sub-table (k,).
        sub_tables: The sub-table of each cell (cells,).
        code: The value of each cell (cells,).
        protected: Whether each value is protected (m,).
        totals: The number of published records of each cell (cells,).
    """

    records: Ints
    gamma: Floats
    rho1: Floats
    sub_tables: Ints
    code: Ints
    protected: NDArray[np.bool_]
    totals: Floats

    def with_totals(self, rows: pa.Table) -> PublicParameters:
        """Return the same parameters with the number of published records of each cell from a query.

        Args:
            rows: Rows with the number of a cell (``place``) and its number of records (``pairs``); cells without
                records may be missing.
        """
        totals = np.bincount(rows["place"].to_numpy(), rows["pairs"].to_numpy(), minlength=len(self.sub_tables))
        return replace(self, totals=totals.astype(np.float64))

    @cached_property
    def domain_sizes(self) -> Ints:
        """Return the number of values of each sub-table (k,)."""
        return np.bincount(self.sub_tables, minlength=len(self.records))

    @property
    def retention(self) -> Floats:
        """Return for each sub-table the probability p that a value is retained, and not drawn anew (k,)."""
        return np.asarray((self.gamma - 1) / (self.domain_sizes - 1 + self.gamma))

    @property
    def replacement(self) -> Floats:
        """Return for each sub-table the probability q that a record gets any given other value (k,)."""
        return np.asarray(1 / (self.domain_sizes - 1 + self.gamma))

    @cached_property
    def most_records(self) -> Floats:
        """Return the largest true number of records that each cell (a value of a sub-table) can have (cells,).

        For a protected value it is rho1 times the records of the sub-table; else it is what the other values leave
        over.
        """
        ceiling = np.floor(self.rho1 * self.records + WHOLE)[self.sub_tables]
        others = (self.records - self.domain_sizes + 1)[self.sub_tables]
        return np.asarray(np.where(self.protected[self.code], np.minimum(ceiling, others), others).astype(np.float64))

    @cached_property
    def least_records(self) -> Floats:
        """Return the smallest true number of records that each cell (a value of a sub-table) can have (cells,).

        It is what the other values of the sub-table leave over if they have as many records as they can. It is at least
        1, because a sub-table states only values that it has.
        """
        held = np.bincount(self.sub_tables, self.most_records)[self.sub_tables] - self.most_records
        return np.maximum(self.records[self.sub_tables] - held, 1)

    def by_value(self, cells: Floats) -> Floats:
        """Return for each value the sum over its cells, of which it has one in each sub-table that contains it (m,).

        Args:
            cells: What is summed, by cell (cells,).
        """
        return np.asarray(np.bincount(self.code, cells, minlength=len(self.protected)))

    def perturbation_matrix(self, j: int) -> Floats:
        """Return the probabilities that each true value (row) of sub-table j is published as each value (column).

        They are ``replacement[j]`` everywhere, plus ``retention[j]`` on the diagonal.
        """
        size = int(self.domain_sizes[j])
        return np.asarray(np.eye(size) * self.retention[j] + self.replacement[j])

    @cached_property
    def estimated(self) -> tuple[Floats, Floats]:
        """Return (the estimated true number of records of each cell (cells,), their standard errors (cells,)).

        A cell is a value of a sub-table. A standard error is at most half of the range in which the true number must
        lie.
        """
        values, errors = np.zeros(len(self.sub_tables)), np.zeros(len(self.sub_tables))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.sub_tables == j)
            matrix, total = self.perturbation_matrix(j), np.array([float(self.records[j])])
            flat = np.full(len(cells), total[0] / len(cells))
            channel = Channel(matrix, np.diag(flat @ matrix), flat)
            observed = Observation(self.totals[cells][None], total, total, total, np.ones(1))
            result = reconstruct(channel, observed, np.eye(len(cells)))
            values[cells] = project_within(result.values, total, self.most_records[cells][None], flat)[0]
            errors[cells] = result.std_error[0]
        return np.maximum(values, self.least_records), np.minimum(errors, (self.most_records - self.least_records) / 2)

    @cached_property
    def channel(self) -> Channel:
        """Return the linear channel, by which true counts of values are inferred from published counts of cells.

        It gives the expected number of records in each cell (published value and sub-table) for true counts of values.
        """
        counts = np.maximum(self.estimated[0], 1e-6)
        records = self.by_value(counts)
        mean = bounded_zeros(len(records), len(counts))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.sub_tables == j)
            share = counts[cells] / records[self.code[cells]]
            mean[np.ix_(self.code[cells], cells)] = share[:, None] * self.perturbation_matrix(j)
        return Channel(mean, np.diag(records @ mean), records)


def read_public(
    db: Relations, subtables: exp.Table = SUBTABLES, domains: exp.Table = DOMAINS, values: exp.Table = VALUES
) -> PublicParameters:
    """Read the public parameters of a release from three relations, without numbers of published records (all 0).

    Args:
        db: The engine.
        subtables: The sub-tables with their parameters.
        domains: The cells: pairs of a sub-table and one of its values.
        values: The values, each with whether it is protected.

    Raises:
        EngineError: The relations are damaged: numbers are missing, out of range or inconsistent.
    """
    stated, listed, coded = (
        db.rows(all_rows(one).order_by(exp.Literal.number(1))) for one in (subtables, domains, values)
    )
    _require_valid(all(None not in row for rows in (stated, listed) for row in rows), "an entry is NULL")
    for what, rows in (("sub-tables", stated), ("cells", listed), ("values", coded)):
        _require_valid([row[0] for row in rows] == list(range(len(rows))), f"{what} are not numbered 0, 1, ..")
    _require_valid(all(0 <= sub_table < len(stated) for _, sub_table, _ in listed), "a cell is in no sub-table")
    _require_valid({sub_table for _, sub_table, _ in listed} == set(range(len(stated))), "a sub-table has no cells")
    _require_valid(all(0 <= code < len(coded) for _, _, code in listed), "a cell has no value")
    _require_valid(len({row[1:] for row in listed}) == len(listed), "a sub-table has a value twice")
    _require_valid(all(row[-1] is not None for row in coded), "a value is neither protected nor not")
    _require_valid(all(row[1] > 0 and row[4] > 0 and row[6] > 0 for row in stated), "a number is not positive")
    gamma = [float(Fraction(int(row[5]), int(row[6]))) for row in stated]
    rho1 = [float(Fraction(int(row[3]), int(row[4]))) for row in stated]
    _require_valid(all(value > 1 for value in gamma), "a gamma is not above 1")
    _require_valid(all(0 < value < 1 for value in rho1), "a rho1 is not between 0 and 1")
    cells = np.array(listed, dtype=np.int64)
    return PublicParameters(
        records=np.array([row[1] for row in stated], dtype=np.int64),
        gamma=np.array(gamma),
        rho1=np.array(rho1),
        sub_tables=cells[:, 1],
        code=cells[:, 2],
        protected=np.array([bool(row[-1]) for row in coded]),
        totals=np.zeros(len(cells)),
    )


def _require_valid(holds: bool, wrong: str) -> None:
    if not holds:
        raise EngineError(f"the release's parameters are damaged: {wrong}")
