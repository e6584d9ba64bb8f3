"""The paper's tables, their roles and its parameters."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from experiments.data import Table

TABLES = ("acs_occ", "acs_edu", "like_occ", "like_edu")
SENSITIVE = {name: "occupation" if name.endswith("occ") else "education" for name in TABLES}
PANELS = {
    "acs_occ": "OCC",
    "acs_edu": "EDU",
    "like_occ": "OCC, generated in the paper's range",
    "like_edu": "EDU, generated in the paper's range",
}
QUASI = ("age", "sex", "education", "marital", "race", "work_class", "birthplace")
ALGORITHMS = {"one-size": "OneSize", "two-size": "TwoSize", "multi-size": "MultiSize", "optimal": "Optimal"}
THETAS = (2, 4, 8, 16, 32)
PLUS = Fraction(1, 50)
NEEDED = "needed by F'-privacy"


def frequencies(table: Table, column: str) -> list[tuple[object, int]]:
    """The values of a column with their numbers of records, most frequent first."""
    counted = pc.value_counts(pq.read_table(table.path, columns=[column])[column].combine_chunks())
    pairs = [(one["values"], int(one["counts"])) for one in counted.to_pylist()]
    return sorted(pairs, key=lambda pair: (-pair[1], str(pair[0])))


def columns(name: str, table: Table) -> dict[str, Any]:
    """Roles: all columns that the paper has, one of them sensitive."""
    there, sensitive = pq.read_schema(table.path).names, SENSITIVE[name]
    quasi = [column for column in (*QUASI, "occupation") if column in there and column != sensitive]
    return {"quasi_identifiers": quasi, "sensitive": sensitive}


def mechanism(theta: int, algorithm: str, **more: object) -> dict[str, Any]:
    """The paper's parameters: f' = min(1, theta f + 0.02), and sizes from min ceil(1/f'), which may be 1, to 50."""
    threshold = {"threshold": f"{theta}*f + 0.02", "min_bucket_size": 1, "max_bucket_size": 50, "allow_certain": True}
    return {"algorithm": algorithm, **threshold, **more}
