"""People with an income: numbers in bins, a declared table of three columns, and a release of marginals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = (
    "SELECT CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex, CAST(15 + i * 7 % 60 AS INTEGER) AS age, "
    "CAST((i * i) % 11 AS INTEGER) AS job, 1000.0 * (i % 37) AS income FROM range(12000) t(i)"
)
ASKED = (
    'kind = "contingency"\nepsilon = 2\nworkload = [["sex", "age", "job"]]\n[mechanism.domains]\nsex = ["F", "M"]\n'
    "age = { bins = { from = 15, to = 75, by = 5 } }\njob = { query = 'SELECT i FROM range(11) t(i)' }\n"
    "income = { bins = [0, 10000, 20000, 50000] }"
)
COLUMNS = 'categories = ["sex", "age", "job", "income"]'


def spec(folder: Path, mechanism: str = ASKED, columns: str = COLUMNS) -> Path:
    given = {"source": 'file = "people.parquet"', "release": 'name = "people"\nto = "people.duckdb"'}
    return specification(folder, columns=columns, mechanism=mechanism, **given)


def made(folder: Path) -> Path:
    """A source in the folder, its specification, and a release made with a seed."""
    write(folder / "people.parquet", PEOPLE)
    succeeded("publish", spec(folder), "--seed", 5)
    return folder
