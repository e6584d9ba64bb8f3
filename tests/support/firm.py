"""People with salaries: a table for (k,e)-anonymity, and a release of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = """
SELECT i AS id, 20 + i * 7 % 50 AS age, ['f', 'm'][i % 2 + 1] AS sex,
  (i * i * 31 % 977 + CASE WHEN i % 2 = 0 THEN 200 ELSE 0 END - 150) AS salary, i % 60 * i % 41 AS debt
FROM range({n}) t(i)
"""
COLUMNS = 'quasi_identifiers = ["age", "sex"]\nsensitive = "salary"'


def asked(folder: Path, mechanism: str = "k = 4\ne = 30", **parts: str) -> Path:
    """A specification of (k,e)-anonymity."""
    given = {"columns": COLUMNS} | parts
    return specification(folder, mechanism=f'kind = "permute"\n{mechanism}', **given)


def made(folder: Path) -> Path:
    """A source in the folder, its specification and a release."""
    write(folder / "people.parquet", PEOPLE.format(n=600))
    succeeded("publish", asked(folder), "--seed", 1)
    return folder
