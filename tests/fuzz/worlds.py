"""Releases to be asked, each beside an engine that holds its source.

In worlds that are ``true`` nothing is hidden (threshold 1, retention next to 1, groups of one value, a large epsilon; a
contingency table always hides how many records have other values than those of its domains):
their answers are the source's. The others are as they would be published.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

import privsql as api
from fuzz.queries import Column
from support import firm, ledgers, shop
from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from collections.abc import Callable

TYPED = """
SELECT CAST(17 + i * 7 % 43 AS INTEGER) AS age, ['f', 'm', NULL, 'Ab c'][i % 4 + 1] AS sex,
  DATE '2019-11-25' + CAST(i * 5 % 90 AS INTEGER) AS day, CASE WHEN i % 5 = 0 THEN NULL ELSE i % 11 END AS hours,
  ['flu', 'cold', 'Gout', 'none'][i * 3 % 7 % 4 + 1] AS ill
FROM range(420) t(i)
"""
PAID = """
SELECT 20 + i * 7 % 50 AS age, ['f', 'm'][i % 2 + 1] AS sex, i * i * 31 % 17 * 50 - 100 AS salary FROM range(300) t(i)
"""
SEX = Column("sex", "text", ("'f'", "'m'", "'F'", "'M'", "'Ab c'"))
AGE = Column("age", "int", ("18", "25", "31", "44", "60"))
BANDS = "SELECT CAST(i AS INTEGER) AS years, i // 7 AS band FROM range(60) t(i)"
JOINED = AGE
TYPES = (
    AGE,
    SEX,
    Column("day", "date", ("DATE '2019-12-01'", "DATE '2020-01-20'", "DATE '2020-02-03'")),
    Column("hours", "int", ("0", "3", "7")),
    Column("ill", "text", ("'flu'", "'cold'", "'Gout'"), sensitive=True),
)
WARD = (
    AGE,
    SEX,
    Column("zip", "int", ("10", "50", "90")),
    Column("disease", "text", ("'flu'", "'cold'", "'HIV'", "'ulcer'"), sensitive=True),
)
HOSPITAL = (
    *WARD[:2],
    Column("zip", "int", ("1", "5", "9")),
    Column("disease", "text", ("'d0'", "'d1'", "'d3'", "'d9'"), sensitive=True),
)
FIRM = (AGE, SEX, Column("salary", "int", ("-100", "0", "250", "700"), sensitive=True))
TOWN = (
    Column("sex", "text", ("'F'", "'M'"), sensitive=True),
    Column("region", "text", ("'north'", "'west'", "'east'"), sensitive=True),
    Column("job", "int", ("0", "3", "5", "9"), sensitive=True),
)
SHOP = (Column("goods", "set", ("'ale'", "'bread'", "'dates'", "'figs'"), sensitive=True),)
ROLES = 'quasi_identifiers = [{}]\nsensitive = "{}"'


@dataclass(frozen=True)
class World:
    """An open release, an engine with its source under the same name, and what can be asked."""

    name: str
    table: str
    columns: tuple[Column, ...]
    release: api.Release
    engine: duckdb.DuckDBPyConnection
    true: bool

    @property
    def sums(self) -> bool:
        """Whether quasi-identifiers can be added up."""
        return any(not column.sensitive for column in self.columns)

    def close(self) -> None:
        """Close both."""
        self.release.close()
        self.engine.close()


def opened(name: str, table: str, columns: tuple[Column, ...], release: Path, *, true: bool) -> World:
    """A release, beside the source in its folder, with a lookup of ages that may be joined to it."""
    engine = duckdb.connect()
    source = release.parent / ("shop.parquet" if table == "shop" else "people.parquet")
    engine.execute(f"CREATE TABLE {table} AS FROM '{source}'")
    with TemporaryDirectory() as folder:
        bands = write(Path(folder) / "bands.parquet", BANDS)
        engine.execute(f"CREATE TABLE bands AS FROM '{bands}'")
        asked = api.open(release, attach=[bands])
        if JOINED in columns:
            asked.query(f"SELECT COUNT(*) FROM {table} JOIN bands ON {table}.age = bands.years")  # it is copied once
    return World(name, table, columns, asked, engine, true)


def _published(folder: Path, source: str, columns: str, mechanism: str, table: str) -> Path:
    file = "shop.parquet" if table == "shop" else "people.parquet"
    write(folder / file, source)
    release = f'name = "{table}"\nto = "{table}.duckdb"'
    spec = specification(folder, source=f'file = "{file}"', columns=columns, release=release, mechanism=mechanism)
    with ledgers.own():
        succeeded("publish", spec, "--seed", 1)
    return folder / f"{table}.duckdb"


def _typed(folder: Path) -> World:
    """Bucketized, threshold 1."""
    roles = ROLES.format('"age", "sex", "day", "hours"', "ill")
    path = _published(folder, TYPED, roles, 'threshold = "1"\nmin_bucket_size = 1', "t")
    return opened("bucketize", "t", TYPES, path, true=True)


def _retained(folder: Path) -> World:
    """Randomized, a retention next to 1."""
    roles = ROLES.format('"age", "sex", "day", "hours"', "ill")
    mechanism = 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/3"\nrho2 = "99999999999/100000000000"'
    return opened("randomize", "t", TYPES, _published(folder, TYPED, roles, mechanism, "t"), true=True)


def _alone(folder: Path) -> World:
    """Groups of one value."""
    path = _published(folder, PAID, firm.COLUMNS, 'kind = "permute"\nk = 1\ne = 0', "ill")
    return opened("permute", "ill", FIRM, path, true=True)


def _stocked(folder: Path) -> World:
    """Item sets with hardly any noise."""
    asked = shop.VIEWS.replace("epsilon = 2", "epsilon = 100")
    return opened(
        "setvalued", "shop", SHOP, _published(folder, shop.LISTS, 'items = "goods"', asked, "shop"), true=True
    )


TRUE: dict[str, Callable[[Path], World]] = {
    "bucketize": _typed, "randomize": _retained, "permute": _alone, "setvalued": _stocked
}  # fmt: skip
REAL: dict[str, tuple[str, str, tuple[Column, ...], str]] = {
    "bucketize": ("ward", "ill", WARD, "ill.duckdb"),
    "randomize": ("hospital", "ill", HOSPITAL, "pp.duckdb"),
    "permute": ("firm", "ill", FIRM, "ill.duckdb"),
    "contingency": ("town", "people", TOWN, "people.duckdb"),
    "setvalued": ("shop", "shop", SHOP, "shop.duckdb"),
}
