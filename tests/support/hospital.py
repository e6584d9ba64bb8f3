"""Patients whose disease goes with their sex: a table for randomization, and releases of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support import ledgers
from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

# Ten diseases as frequent as in the papers' example, {12, 8, 6, 5, 4, 3, 1, 1, 1, 1} of 42; sex goes with them.
SICK = """
SELECT CAST(20 + (i // 42 * 7 + k * 3) % 50 AS INTEGER) AS age,
  CASE WHEN (i // 42 + k) % 5 < 2 + k % 2 THEN 'F' ELSE 'M' END AS sex, CAST((i // 42 * 31 + k) % 10 AS INTEGER) AS zip,
  'd' || CASE WHEN k < 12 THEN 0 WHEN k < 20 THEN 1 WHEN k < 26 THEN 2 WHEN k < 31 THEN 3 WHEN k < 35 THEN 4
    WHEN k < 38 THEN 5 ELSE k - 32 END AS disease
FROM (SELECT i, i % 42 AS k FROM range({n}) t(i))
"""
N = 8400


def wanted(algorithm: str = "pp", rho1: str = "1/3", rho2: str = "2/3") -> str:
    """The table [mechanism]."""
    return f'kind = "randomize"\nalgorithm = "{algorithm}"\nrho1 = "{rho1}"\nrho2 = "{rho2}"'


def made(folder: Path) -> Path:
    """A source in the folder and releases of it: up, pp, and pp as a folder of Parquet files."""
    write(folder / "people.parquet", SICK.format(n=N))
    for algorithm in ("up", "pp"):
        release = f'name = "ill"\nto = "{algorithm}.duckdb"'
        spec = specification(folder, release=release, mechanism=wanted(algorithm), name=f"{algorithm}.toml")
        with ledgers.own():  # they are read apart from each other
            succeeded("publish", spec, "--seed", 1)
    with ledgers.own():
        succeeded("publish", folder / "pp.toml", "--seed", 1, "--format", "parquet", "--to", folder / "folder")
    return folder
