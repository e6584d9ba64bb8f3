"""A thesis on incremental (k,e)-anonymity, chapter 3: its worked figures, and a table of salaries that grows."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql
from experiments.common import Axes, Point, experiment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from experiments.bench import Bench

OPENING = """\
The thesis works out one table over three releases and measures nothing. Here a table of incomes
(American Community Survey of 2015, California) also grows over twenty.

*Anew* groups the whole table each time. *Reapply-last* is the thesis' algorithm against the last release,
*reapply-all* against all, *exact* the same in a sweep. *Nested*, privsql's default, unites groups of the last release.
A *breach* is what is left of a group without one of another release, or what both share, if that is not
(k,e)-anonymous. An *atom* is a set of records that no release tells apart."""
NOT_HERE = {
    "Figures 3.1 to 3.3": "release 0 of the first experiment",
    "Figure 3.8": "brute force, in `tests/mechanisms/permute`",
    "Figure 3.9": "pseudo-code of reapply-last",
}
WORKED = ((82, 84, 85, 88, 89, 90, 91), (80, 81, 83), (94, 95, 96))  # salaries in thousands; what each release adds
ANEW, FIRST = "anew", "exact"  # the first release is the same by all algorithms
ALGORITHMS = (ANEW, "reapply-last", "exact", "nested")
K, E = 5, 5000
RELEASES = 20
MOST_REAPPLIED = 400  # records that reapply-all takes
SETTINGS = f"k = {K}, e = {E:,}"
RECORDS = 100_000
OVER = f"{RECORDS:,} records in {RELEASES} batches of equal size, in random order, {SETTINGS}"


def released(
    bench: Bench, batches: list[pa.Table], algorithm: str, limits: tuple[int, int]
) -> Iterator[privsql.Published]:
    """The releases of a table to which one batch after another is added; ``limits``: k and e.

    Everybody's quasi-identifier is different: the adversary knows who is in which group. *Anew* forgets: each of its
    releases has a ledger of its own.
    """
    k, e = limits
    place = bench.releases / f"{algorithm}-{next(bench.numbers)}"
    place.mkdir()
    for number in range(len(batches)):
        with ledger(place / f"ledger{number if algorithm == ANEW else ''}.duckdb"):
            yield privsql.publish(
                pa.concat_tables(batches[: number + 1]),
                id="person_id",
                qi="who",
                sensitive="salary",
                to=place / f"{number}.duckdb",
                seed=bench.seed,
                set={
                    "mechanism": {
                        "kind": "permute",
                        "algorithm": FIRST if algorithm == ANEW else algorithm,
                        "k": k,
                        "e": e,
                    },
                    "source": {"population": "payroll"},
                    "release": {"name": "pay"},
                },
            )


@contextmanager
def ledger(file: Path) -> Iterator[None]:
    """Keep what is published in a ledger of its own: the user's should know nothing of trials."""
    own = os.environ.get("PRIVSQL_LEDGER")
    os.environ["PRIVSQL_LEDGER"] = str(file)
    try:
        yield
    finally:
        del os.environ["PRIVSQL_LEDGER"]
        if own is not None:
            os.environ["PRIVSQL_LEDGER"] = own


def staff(people: list[int], salaries: list[int]) -> pa.Table:
    """A table of persons and salaries."""
    return pa.table({"person_id": people, "who": [f"person {one}" for one in people], "salary": salaries})


@experiment(
    name="incremental-worked",
    table=False,
    paper_name="incremental",
    places=("Figures 3.2 to 3.7", "3.10", "3.11"),
    title="three releases, worked",
    says="(3, 2000)-anonymity. Grouped anew, release 1 gives away {84, 85}, {80, 81} and 82. "
    "Reapply-last breaches against release 0 in release 2.",
    differs="The same groups and pieces. Grouped anew, release 1 gives away three pieces more, of the groups a and d.",
    parameters="k = 3, e = 2000",
    data=(),
    axes=Axes("release", "error, or pieces", mark="bar", x_scale="names"),
    over={"algorithm": (ANEW, "reapply-last", "reapply-all", "exact", "nested")},
    small={"algorithm": ("reapply-last",)},
)
def worked(bench: Bench, algorithm: str) -> Iterator[Point]:
    """Error and breaches of each release."""
    batches = [staff(list(new), [1000 * one for one in new]) for new in WORKED]
    made: list[privsql.Published] = []
    for number, release in enumerate(released(bench, batches, algorithm, (3, 2000))):
        checks = privsql.verify(release, against=made).checks if made else []
        made.append(release)
        yield Point(algorithm, number, float(release.facts["error"]), "error")
        yield Point(algorithm, number, sum(check.violations for check in checks), "breaches")


def growing(bench: Bench) -> list[pa.Table]:
    """Batches of incomes in random order."""
    source = pq.read_table(bench.table("acs_occ", RECORDS).path, columns=["person_id", "income"])
    order = np.random.default_rng(bench.seed).permutation(len(source))
    people, incomes = (source[name].to_numpy()[order] for name in ("person_id", "income"))
    parts = np.array_split(np.arange(len(order)), 3 if bench.small else RELEASES)
    return [staff(people[part].tolist(), incomes[part].tolist()) for part in parts]


@experiment(
    name="incremental-error",
    paper_name="incremental",
    places=("Section 3.3.2",),
    title="error over twenty releases",
    says="No error is measured.",
    differs="Nested costs hardly more than exact in the sum, but its groups only ever grow together, so "
    "they are wider and fewer.",
    parameters=OVER,
    data=("acs_occ",),
    axes=Axes("release", "sum, mean or number"),
    over={"algorithm": ALGORITHMS},
    small={"algorithm": (ANEW, "nested")},
)
def error(bench: Bench, algorithm: str) -> Iterator[Point]:
    """The sum of the groups' ranges, the mean range around a record, and how many groups there are."""
    for number, release in enumerate(released(bench, growing(bench), algorithm, (K, E))):
        facts = release.facts
        yield Point(algorithm, number, facts["loss"] / 1e6, "error: sum of max - min, millions")
        yield Point(algorithm, number, facts["mean_width"], "max - min of a record's group, mean")
        yield Point(algorithm, number, facts["groups"], "groups")


@experiment(
    name="incremental-breaches",
    paper_name="incremental",
    places=("Definition 5", "section 3.3.2"),
    title="breaches over twenty releases",
    says="A release that is checked against the last one only may breach against an older one.",
    differs="Reapply-last breaches against older releases. Exact has no breach of two groups, which is "
    "all that it promises; three groups and more single out records. Nested has neither.",
    parameters=f"{OVER}; counted by record, from the published files",
    data=("acs_occ",),
    axes=Axes("release", "number", y_scale="symlog"),
    over={"algorithm": ALGORITHMS},
    small={"algorithm": (ANEW, "nested")},
)
def breaches(bench: Bench, algorithm: str) -> Iterator[Point]:
    """Pieces that are not fine beside each earlier release, and records in atoms of all releases that are not."""
    batches = growing(bench)
    with duckdb.connect() as db:
        known = Known(db, K, E)
        for number, release in enumerate(released(bench, batches, algorithm, (K, E))):
            known.add(release, number, pa.concat_tables(batches))
            found = sum(known.pieces(earlier, number) for earlier in range(number))
            yield Point(algorithm, number, found, "breaches: pieces of two groups")
            yield Point(algorithm, number, known.exposed(number), "records in atoms that are not (k,e)-anonymous")


PIECES = """
WITH joined AS (
  SELECT coalesce(x.salary, y.salary) AS salary, x.bid AS a, y.bid AS b
  FROM {earlier} AS x FULL JOIN {later} AS y ON x.who = y.who
), pairs AS (
  SELECT DISTINCT a, b FROM joined WHERE a IS NOT NULL AND b IS NOT NULL
), pieces AS (
  SELECT 'both' AS kind, a, b, salary FROM joined WHERE a IS NOT NULL AND b IS NOT NULL
  UNION ALL
  SELECT 'earlier', p.a, p.b, salary FROM pairs AS p JOIN joined AS j ON j.a = p.a AND j.b IS DISTINCT FROM p.b
  UNION ALL
  SELECT 'later', p.a, p.b, salary FROM pairs AS p JOIN joined AS j ON j.b = p.b AND j.a IS DISTINCT FROM p.a
)
SELECT count(*) FROM (
  SELECT kind FROM pieces GROUP BY kind, a, b HAVING count(DISTINCT salary) < {k} OR max(salary) - min(salary) < {e}
)
"""
ATOMS = """
CREATE OR REPLACE TABLE atoms AS
SELECT who, salary, dense_rank() OVER (ORDER BY atom NULLS FIRST, bid) AS atom
FROM {release} LEFT JOIN (SELECT who, atom FROM atoms) USING (who)
"""
EXPOSED = """
SELECT coalesce(sum(records), 0)::BIGINT FROM (
  SELECT count(*) AS records FROM atoms
  GROUP BY atom HAVING count(DISTINCT salary) < {k} OR max(salary) - min(salary) < {e}
)
"""


@dataclass
class Known:
    """Tables ``release0``, ``release1``, ..(who, salary, bid): who is in which group of which release, as it is."""

    db: duckdb.DuckDBPyConnection
    k: int
    e: int

    def __post_init__(self) -> None:
        """Nobody is in an atom yet."""
        self.db.execute("CREATE TABLE atoms (who VARCHAR, salary BIGINT, atom BIGINT)")

    def add(self, release: privsql.Published, number: int, source: pa.Table) -> None:
        """Read the groups that a release has published."""
        self.db.register("source", source)
        self.db.execute(f"ATTACH '{release.release}' AS published (READ_ONLY)")
        groups = "SELECT who, source.salary, bid FROM published.qit JOIN source USING (who)"
        self.db.execute(f"CREATE TABLE release{number} AS {groups}")
        self.db.execute("DETACH published")

    def pieces(self, earlier: int, later: int) -> int:
        """Pieces of two releases that are not empty and not (k,e)-anonymous."""
        return self._counted(PIECES.format(earlier=f"release{earlier}", later=f"release{later}", k=self.k, e=self.e))

    def exposed(self, number: int) -> int:
        """Records in atoms of all releases up to this one that are not (k,e)-anonymous; each release is given once."""
        self.db.execute(ATOMS.format(release=f"release{number}"))
        return self._counted(EXPOSED.format(k=self.k, e=self.e))

    def _counted(self, sql: str) -> int:
        ((found,),) = self.db.execute(sql).fetchall()
        return int(found)


@experiment(
    name="incremental-time",
    table=False,
    paper_name="incremental",
    places=("Section 3.3.1", "Figure 3.9"),
    title="time by number of records",
    says="Reapplying against all releases takes O(m n^3) and is not for the long run.",
    differs="Exact finds reapply-all's error in a sweep. Earlier releases of nested differ, so its error "
    "may lie below exact's.",
    parameters=f"The last of four releases, a fourth of the records each, {SETTINGS}; from table to checked release",
    data=("acs_occ",),
    axes=Axes("records", "seconds, or error", x_scale="log", y_scale="log"),
    over={"records": (100, 200, 400, 4_000, 40_000, 200_000), "algorithm": ("reapply-all", "exact", "nested")},
    small={"records": (100,), "algorithm": ("exact",)},
)
def seconds(bench: Bench, records: int, algorithm: str) -> Iterator[Point]:
    """Seconds and error of the last release."""
    if algorithm == "reapply-all" and records > MOST_REAPPLIED:
        for panel in ("seconds", "error"):
            yield Point(algorithm, records, None, panel, note=f"is for at most {MOST_REAPPLIED} records")
        return
    source = pq.read_table(bench.table("acs_occ").path, columns=["person_id", "income"])
    chosen = np.random.default_rng(bench.seed).permutation(len(source))[:records]
    people, incomes = (source[name].to_numpy()[chosen] for name in ("person_id", "income"))
    batches = [staff(people[part].tolist(), incomes[part].tolist()) for part in np.array_split(np.arange(records), 4)]
    begin, took, last = time.perf_counter(), 0.0, 0.0
    for release in released(bench, batches, algorithm, (K, E)):
        took, begin = time.perf_counter() - begin, time.perf_counter()
        last = release.facts["loss"]
    yield Point(algorithm, records, took, "seconds")
    yield Point(algorithm, records, last, "error")
