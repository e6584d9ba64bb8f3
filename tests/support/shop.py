"""Baskets of goods: a table of item sets, and a release of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["ale", "bread", "cheese", "dates", "eggs", "figs", "ginger"]
# 6,000 baskets over 7 items: the k-th item is in every (k+2)nd basket, staggered; 200 are empty
LISTS = (
    "SELECT i AS id, list_filter(list_transform([{names}], lambda n, k: CASE WHEN (i + k) % (k + 1) = 0 THEN n END), "
    "lambda n: n IS NOT NULL) AS goods FROM range(5800) t(i) UNION ALL SELECT 5800 + i, [] FROM range(200) t(i)"
).format(names=", ".join(f"'{name}'" for name in NAMES))
UNIVERSE = json.dumps(NAMES)
VIEWS = f'kind = "setvalued"\nepsilon = 2\nuniverse = {UNIVERSE}'
TREE = 'algorithm = "diffpart"\nfan_out = 4'
ASKED = f"{VIEWS}\n{TREE}"


def spec(folder: Path, *, columns: str = 'items = "goods"', mechanism: str = ASKED, **parts: str) -> Path:
    """A specification of a set-valued release ``shop.duckdb``."""
    given = {"source": 'file = "shop.parquet"', "release": 'name = "shop"\nto = "shop.duckdb"'} | parts
    return specification(folder, columns=columns, mechanism=mechanism, **given)


def made(folder: Path) -> Path:
    """A source in the folder, its specification, and a release made with a seed."""
    write(folder / "shop.parquet", LISTS)
    succeeded("publish", spec(folder), "--seed", 7)
    return folder
