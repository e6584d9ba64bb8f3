"""A table that grows, and its releases: the thesis' example."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import duckdb

from support.commands import specification, succeeded

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "(1, 21, 'm', 82), (2, 23, 'm', 84), (3, 52, 'm', 85), (4, 27, 'f', 88), (5, 53, 'm', 89), (6, 37, 'm', 90), "
SALARIES = (f"{FIRST} (7, 49, 'f', 91)", "(8, 29, 'f', 81), (9, 30, 'f', 80), (10, 23, 'm', 83)",
            "(11, 40, 'm', 96), (12, 50, 'm', 95), (13, 32, 'f', 94)")  # fmt: skip
OWN = '[ledger]\ndatabase = "own.db"'
COLUMNS = 'quasi_identifiers = ["age", "gender"]\nsensitive = "salary"'


class Office:
    """A warehouse whose table grows, and its releases."""

    def __init__(self, folder: Path, mechanism: str = 'kind = "permute"\nk = 3\ne = 2', ledger: str = "") -> None:
        self.folder, self.mechanism, self.ledger = folder, mechanism, ledger
        self.sql("CREATE TABLE people (id INTEGER, age INTEGER, gender VARCHAR, salary INTEGER)")
        self.made: list[Path] = []

    def sql(self, statement: str) -> None:
        """One statement on the source."""
        with duckdb.connect(str(self.folder / "office.duckdb")) as db:
            db.execute(statement)

    def hire(self, people: str) -> None:
        """Add records."""
        self.sql(f"INSERT INTO people VALUES {people}")

    def spec(self, **parts: str) -> Path:
        """The specification."""
        given = {"source": 'database = "office.duckdb"\ntable = "people"\nid = "id"', "columns": COLUMNS}
        given |= {"release": 'name = "pay"', "mechanism": f"{self.mechanism}\n{self.ledger}"} | parts
        return specification(self.folder, **given)

    def arguments(self, *flags: object, **parts: str) -> list[object]:
        """A command that publishes the next release."""
        self.made.append(self.folder / f"pay{len(self.made)}.duckdb")
        return ["publish", self.spec(**parts), "--to", self.made[-1], *flags]

    def publish(self, *flags: object, **parts: str) -> dict[str, Any]:
        """Publish the next release."""
        return dict(succeeded(*self.arguments(*flags, **parts), "--json").json)

    def entries(self) -> list[dict[str, Any]]:
        """What the ledger lists."""
        return list(succeeded("ledger", self.spec(), "--json").json["releases"])

    def groups(self, number: int) -> dict[int, int]:
        """The group of every record of a release, from the ledger."""
        place = self.folder / "own.db" if "own.db" in self.ledger else os.environ["PRIVSQL_LEDGER"]
        with duckdb.connect(str(place), read_only=True) as db:
            found = db.execute(f"SELECT CAST(id AS INTEGER), bid FROM subjects WHERE number = {number}").fetchall()
        return dict(found)


def grown(folder: Path, algorithm: str) -> Office:
    """The thesis' three releases, in a ledger of their own, so that several tests may read it."""
    made = Office(folder, f'kind = "permute"\nk = 3\ne = 2\nalgorithm = "{algorithm}"', OWN)
    for people in SALARIES:
        made.hire(people)
        made.publish()
    return made
