"""What experiments work with: tables, real or generated, specifications over them, and a folder for releases."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import privsql
from experiments import data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from experiments.data import Table

SMALL = 3000  # records of a table where a run has to be short


@dataclass
class Used:
    """The tables that a step has opened."""

    tables: list[Table] = field(default_factory=list)

    def says(self) -> dict[str, Any]:
        """Columns of results."""
        told = dict.fromkeys(table.says for table in self.tables)
        return {"data": "; ".join(told), "stand_in": any(table.stand_in for table in self.tables)}


@dataclass
class Bench:
    """``real``: the folder of real tables, if any; ``made``: that of generated ones and samples; ``releases``.

    ``most_queries`` of a point and ``most_runs``: how many a run can afford; None: as many as the paper has.
    """

    real: Path | None
    made: Path
    releases: Path
    small: bool = False
    seed: int = 1
    most_queries: int | None = None
    most_runs: int | None = None
    used: Used = field(default_factory=Used)
    numbers: Iterator[int] = field(default_factory=count)

    def table(self, name: str, records: int | None = None) -> Table:
        """A table of ``data.TABLES``, or a sample of so many records of it (with repetition beyond its size)."""
        size = records if not self.small else min(records or SMALL, SMALL)
        found = data.table(name, self.real, self.made, size, self.seed)
        self.used.tables.append(found)
        return found

    def queries(self, paper: int, small: int) -> int:
        """How many queries a point takes: the paper's number, or fewer where a run has to be short."""
        return small if self.small else min(paper, self.most_queries or paper)

    def seeds(self, paper: int) -> range:
        """A seed for each of so many runs."""
        return range(self.seed, self.seed + (1 if self.small else min(paper, self.most_runs or paper)))

    def fit(self, release: privsql.Published) -> Path | None:
        """Fit the model of a bucketized release; return its file, None if it can't have one."""
        if release.facts["mechanism"] == "bucketize":
            with suppress(privsql.InfeasibleError):
                return privsql.fit(release).stored
        return None

    def watch(self) -> Used:
        """Count from here which tables are opened."""
        self.used = Used()
        return self.used

    def settings(self, tables: Sequence[str]) -> str:
        """What results depend on, besides their steps."""
        real = {name: data.real_size(name, self.real) for name in tables}
        limits = {"queries": self.most_queries, "runs": self.most_runs}
        known = {"small": self.small, "seed": self.seed, "real": real, "privsql": privsql.__version__}
        return json.dumps(known | {name: most for name, most in limits.items() if most is not None})

    def spec(
        self, table: Table, mechanism: Mapping[str, Any], columns: Mapping[str, Any], name: str = "people"
    ) -> privsql.Spec:
        """A specification over a table, for a release of its own. No ledger: none of these leaves the house."""
        to = self.releases / f"{next(self.numbers)}.duckdb"
        return privsql.build(
            {
                "source": {"file": str(table.path)},
                "columns": dict(columns),
                "release": {"name": name, "to": str(to)},
                "mechanism": dict(mechanism),
                "ledger": {"off": True},
            }
        )
