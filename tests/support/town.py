"""People with jobs: a table of categories, and a release of its counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

# 9,000 records; job depends on sex and region; 'west' is rare
PEOPLE = (
    "SELECT CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex, "
    "CASE WHEN i % 100 = 7 THEN 'west' WHEN i % 5 < 2 THEN 'north' WHEN i % 5 = 2 THEN 'south' ELSE 'east' END "
    "AS region, CAST((i * i) % 11 AS INTEGER) AS job FROM range(9000) t(i)"
)
TREE = (
    "SELECT * FROM (VALUES ('north', 'up'), ('south', 'up'), ('east', 'side'), ('west', 'side'), "
    "('up', 'any'), ('side', 'any')) t(value, parent)"
)
COLUMNS = 'categories = ["sex", "region", "job"]'
ASKED = (
    'kind = "contingency"\nalgorithm = "diffpart"\n'
    'epsilon = {epsilon}\nfan_out = 4\n[mechanism.domains]\nsex = ["F", "M"]\n'
    f'region = {{{{ taxonomy = "{TREE}" }}}}\njob = {{{{ query = "SELECT i FROM range(11) t(i)" }}}}'
)


def spec(folder: Path, *, columns: str = COLUMNS, mechanism: str = ASKED.format(epsilon=1), **parts: str) -> Path:
    given = {"source": 'file = "people.parquet"', "release": 'name = "people"\nto = "people.duckdb"'} | parts
    return specification(folder, columns=columns, mechanism=mechanism, **given)


def made(folder: Path) -> Path:
    """A source in the folder, its specification, and a release made with a seed."""
    write(folder / "people.parquet", PEOPLE)
    succeeded("publish", spec(folder), "--seed", 7)
    return folder
