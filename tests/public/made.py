"""Small made tables with known truths, cases of releases of them, and a shelf that publishes each case once.

Tables are written by SQL from the digits of MD5, so they are the same on every machine and with every library.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import portalocker

from public.surface import MANIFEST, PYTHON

if TYPE_CHECKING:
    from pathlib import Path

NAME = "register"  # what every release calls itself

# u(i, salt): a number in [0, 1) that looks random; d(..): the first of some texts whose cumulated share exceeds it
CHANCE = "CREATE MACRO u(i, salt) AS CAST('0x' || left(md5(salt || ':' || i), 8) AS UBIGINT) / 4294967296.0"

# 600 records, each with its own (age, sex, district); a man's disease differs from a woman's, an old one's from a young
PATIENTS = """
SELECT CAST(20 + i % 40 AS INTEGER) AS age, CASE WHEN i // 40 % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
  CAST(100 + i // 80 AS INTEGER) AS district,
  CASE WHEN v < .20 THEN 'flu' WHEN v < .38 THEN 'cold' WHEN v < .53 THEN 'asthma' WHEN v < .66 THEN 'ulcer'
    WHEN v < .77 THEN 'angina' WHEN v < .87 THEN 'gout' WHEN v < .95 THEN 'HIV' ELSE 'lupus' END AS disease,
  CASE WHEN u(i, 'stage') < .45 THEN 'I' WHEN u(i, 'stage') < .8 THEN 'II' ELSE 'III' END AS stage
FROM (
  SELECT i, pow(u(i, 'disease'), CASE WHEN i // 40 % 2 = 0 THEN .8 ELSE 1.3 END + i % 40 / 100) AS v
  FROM range(600) t(i)
)
"""
# Each person has one to three visits, with the same (age, sex) and different diseases
VISITS = f"""
WITH patients AS ({PATIENTS})
SELECT district * 100000 + age * 100 + CASE sex WHEN 'F' THEN 0 ELSE 1 END AS person, age, sex, district,
  ['flu', 'cold', 'asthma', 'ulcer', 'angina', 'gout'][
    1 + CAST(floor(6 * u(age * 7 + district * 311 + n, sex)) AS INTEGER)
  ] AS disease, n
FROM patients, range(3) t(n) WHERE n <= (age * 7 + district) % 3 AND district < 103
"""
# Example 1 of the small-domain paper, ten times: 120, 80, 60, 50, 40, 30, 10, 10, 10, 10 records of ten values
ILLS = """
SELECT CAST(20 + i % 42 AS INTEGER) AS age, CAST(i // 42 % 5 AS INTEGER) AS ward,
  CASE WHEN i < 210 THEN 'F' ELSE 'M' END AS sex,
  'd' || CASE WHEN k < 12 THEN 0 WHEN k < 20 THEN 1 WHEN k < 26 THEN 2 WHEN k < 31 THEN 3 WHEN k < 35 THEN 4
    WHEN k < 38 THEN 5 ELSE k - 32 END AS disease
FROM (SELECT i, (i + i // 42 * 5) % 42 AS k FROM range(420) t(i))
"""
# Example 4.20 of the inferential paper: 50 records, eight values once, four 6 times, two 9 times
FIFTY = """
SELECT CAST(30 + i % 10 AS INTEGER) AS age, CAST(i // 10 AS INTEGER) AS district,
  'x' || CASE WHEN i < 8 THEN i + 1 WHEN i < 32 THEN 9 + (i - 8) // 6 ELSE 13 + (i - 32) // 9 END AS disease
FROM range(50) t(i)
"""
# 400 records with a salary that grows with the age; each has its own (age, sex, district)
STAFF = """
SELECT i AS id, CAST(20 + i % 40 AS INTEGER) AS age, CASE WHEN i // 40 % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
  CAST(1 + i // 80 AS INTEGER) AS district,
  CAST(1000 + 10 * floor(i % 40 + 150 * u(i, 'pay') + 50 * pow(u(i, 'more'), 4)) AS INTEGER) AS pay
FROM range(400) t(i)
"""
# 2,000 baskets of six goods; bread goes with ale, and figs with dates; some are empty
BASKETS = """
SELECT i AS id, list_filter([
    CASE WHEN u(i, 'ale') < .5 THEN 'ale' END,
    CASE WHEN u(i, 'bread') < CASE WHEN u(i, 'ale') < .5 THEN .7 ELSE .2 END THEN 'bread' END,
    CASE WHEN u(i, 'cheese') < .3 THEN 'cheese' END, CASE WHEN u(i, 'dates') < .2 THEN 'dates' END,
    CASE WHEN u(i, 'figs') < CASE WHEN u(i, 'dates') < .2 THEN .6 ELSE .1 END THEN 'figs' END,
    CASE WHEN u(i, 'gin') < .05 THEN 'gin' END
  ], lambda good: good IS NOT NULL) AS goods
FROM range(2000) t(i)
"""
# 3,000 records of four columns: the job goes with the sex, the region with nothing, the income with the job
SURVEY = """
SELECT CASE WHEN u(i, 'sex') < .55 THEN 'F' ELSE 'M' END AS sex,
  ['north', 'south', 'east', 'west'][1 + CAST(floor(4 * pow(u(i, 'region'), 1.4)) AS INTEGER)] AS region,
  CAST(floor(5 * pow(u(i, 'job'), CASE WHEN u(i, 'sex') < .55 THEN .7 ELSE 1.5 END)) AS INTEGER) AS job,
  CAST(floor(100 * (10 * u(i, 'income') + 4 * pow(u(i, 'job'), 2))) AS INTEGER) AS income, i // 2 AS person
FROM range(3000) t(i)
"""
TABLES = {
    "patients": PATIENTS, "visits": VISITS, "ills": ILLS, "fifty": FIFTY, "staff": STAFF, "baskets": BASKETS,
    "survey": SURVEY,
}  # fmt: skip


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    """Return an engine for sources; it holds no release."""
    db = duckdb.connect(config={"threads": 1})
    db.execute(CHANCE)
    return db


@cache
def _make_table(name: str) -> str:
    """Make a table once in the engine, and return its name."""
    _engine().execute(f"CREATE TABLE {name} AS {TABLES[name]}")
    return name


def ask_source(case: Case, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the records of a case's source, which it calls by the name of the release."""
    return _engine().execute(f"WITH {NAME} AS (FROM {_make_table(case.table)}) {sql}").fetchall()


def write_source(name: str, folder: Path) -> Path:
    """Write a table as Parquet into a folder, if it is not there."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        _engine().execute(f"COPY {_make_table(name)} TO '{path}'")
    return path


def ask_release(release: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the tables of a release, by DuckDB alone."""
    with duckdb.connect(str(release), read_only=True) as db:
        return db.execute(sql).fetchall()


def read_tables(release: Path) -> dict[str, list[str]]:
    """Return every table of a release but its manifest, rows in their stored order."""
    with duckdb.connect(str(release), read_only=True) as db:
        names = db.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        return {name: list(map(repr, db.execute(f'FROM "{name}"').fetchall())) for (name,) in names if name != MANIFEST}


# Cases ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """A release to make: its table, and the sections of its specification."""

    name: str
    table: str
    columns: dict[str, Any]
    mechanism: dict[str, Any]
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """Return the seed of the release, which no case with another name has."""
        return zlib.crc32(self.name.encode())

    def spec(self, folder: Path, to: str | None = None) -> dict[str, Any]:
        """Return the specification; its source is written into the folder if it is not there."""
        return {
            "source": {"file": str(write_source(self.table, folder)), **self.source},
            "columns": self.columns,
            "mechanism": self.mechanism,
            "release": {"name": NAME, "to": str(folder / (to or f"{self.name}.duckdb"))},
            "ledger": {"off": True},
        }

    @property
    def sensitive(self) -> list[str]:
        """Return the names of the sensitive columns."""
        names = self.columns["sensitive"]
        return [names] if isinstance(names, str) else list(names)

    @property
    def quasi_identifiers(self) -> str:
        """Return the names of the quasi-identifiers for a SELECT."""
        return ", ".join(self.columns["quasi_identifiers"])


@dataclass(frozen=True)
class Made:
    """A published case: its specification, its file, and what ``publish`` printed."""

    case: Case
    spec: dict[str, Any]
    release: Path
    facts: dict[str, Any]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the release's own tables."""
        return ask_release(self.release, sql)

    def truth(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the source."""
        return ask_source(self.case, sql)

    def counted(self, table: str, columns: str) -> Counter[tuple[Any, ...]]:
        """Return how many rows of a table of the release have which values."""
        return Counter(self.rows(f"SELECT {columns} FROM {table}"))

    def true_counts(self, columns: str) -> Counter[tuple[Any, ...]]:
        """Return how many records of the source have which values."""
        return Counter(self.truth(f"SELECT {columns} FROM {NAME}"))


@dataclass(frozen=True)
class Shelf:
    """A folder that all workers of a run share; each case is published there once and then only read."""

    folder: Path

    def get(self, case: Case) -> Made:
        """Return a case, published by whichever worker asks first."""
        facts = self.folder / f"{case.name}.json"
        with portalocker.Lock(self.folder / f"{case.name}.lock", timeout=300):
            spec = case.spec(self.folder)
            if not facts.exists():
                done = PYTHON.publish(spec, seed=case.seed)
                assert done.code == 0, done.facts
                facts.write_text(json.dumps(done.facts), "utf-8")
        return Made(case, spec, self.folder / f"{case.name}.duckdb", json.loads(facts.read_text("utf-8")))
