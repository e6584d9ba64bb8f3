"""Error and coverage of bucketized releases: real tables, and made ones of weak, mixed and nearly determining columns.

Four workloads, each asked of the release and of its source: ``equality`` (1 to 3 columns take the values of a random
record, more than 0.2 % of the records, every sensitive value), ``ranges`` (the same, a run of sensitive values with 1
to 50 % of the records), ``or`` (the papers': three columns and the sensitive one each take one of ceil(|A| s^(1/4))
values, s = 5 %) and ``group by`` (two columns, one sensitive value). What is certain is left out of the coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import scipy

import privsql
from privsql.keyed_random import seed_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

BANDS = (0, 1, 50, 200, 1000, 5000, np.inf)
LEAST, ATTRIBUTES = 0.002, 3
ASKED, MOST = 0.93, 0.99  # of the intervals at 95 % shall cover
RULES = ("1/3", "1/5", "1/7")  # of the made tables, where they can be met


@dataclass
class Scores:
    """Every answer: condition, truth, estimate, low, high and what the literature's formula says."""

    rows: list[tuple[float, ...]] = field(default_factory=list)

    def bands(self) -> Iterator[list[object]]:
        """From, to, answers, relative error, the formula's, coverage, its conditions, and how surely it is wrong.

        The last is the p-value of a t-test, each condition one observation, against the nearer end of 93 to 99 %.
        """
        found = np.array(self.rows)
        for low, high in pairwise(BANDS):
            condition, truth, estimate, least, most, formula = found[(found[:, 1] >= low) & (found[:, 1] < high)].T
            if not len(truth):
                continue
            errors = [
                float((np.abs(part - truth) / truth).mean()) if low else float("nan") for part in (estimate, formula)
            ]
            open_ = most > least
            covered = ((least <= truth + 1e-9) & (truth <= most + 1e-9))[open_]
            yield [low, high, len(truth), *errors, *_tested(covered, condition[open_])]

    @property
    def against_formula(self) -> float:
        """Mean absolute error as a share of that of the literature's formula."""
        _, truth, estimate, _, _, formula = np.array(self.rows).T
        return float(np.abs(estimate - truth).sum() / np.abs(formula - truth).sum())

    @property
    def coverage(self) -> float:
        """Of all intervals."""
        _, truth, _, least, most, _ = np.array(self.rows).T
        covered = (least <= truth + 1e-9) & (truth <= most + 1e-9)
        return float(covered[most > least].mean())


def _tested(covered: NDArray[np.bool_], condition: NDArray[np.float64]) -> list[object]:
    if not len(covered):
        return [float("nan"), 0, float("nan")]
    _, member = np.unique(condition, return_inverse=True)
    size = np.bincount(member)
    share, number = covered.mean(), len(size)
    end = min(max(share, ASKED), MOST)
    if number < 3 or end == share:
        return [float(share), number, 1.0]
    # A ratio of sums over conditions, linearised.
    gaps = np.bincount(member, covered - share) / size.mean()
    error = max(gaps.std(ddof=1), np.sqrt(end * (1 - end))) / np.sqrt(number)
    return [float(share), number, float(2 * scipy.stats.t.sf(abs(share - end) / error, number - 1))]


@dataclass
class World:
    """A release beside its source, whose columns are whole numbers: ``columns`` (n,) each, ``sensitive`` (n,)."""

    release: privsql.Release
    columns: dict[str, NDArray[np.int64]]
    sensitive: NDArray[np.int64]

    def __post_init__(self) -> None:
        self.values = np.unique(self.sensitive)
        self.names = list(self.columns)

    def count(self, members: NDArray[np.bool_], asked: NDArray[np.bool_]) -> int:
        """Records of some set that have one of the values asked for."""
        return int(np.isin(self.sensitive[members], self.values[asked]).sum())

    def answers(self, sql: str) -> Iterator[tuple[tuple[Any, ...], float, float, float, float]]:
        """Group, estimate, low, high, the formula's estimate."""
        formula = {row[:-4]: row[-4] for row in self.release.query(sql, estimator="baseline").rows}
        for row in self.release.query(sql).rows:
            yield row[:-4], row[-4], row[-2], row[-1], formula.get(row[:-4], 0.0)


def draw_condition(
    columns: dict[str, NDArray[np.int64]], rng: np.random.Generator, names: list[str]
) -> tuple[dict[str, int], NDArray[np.bool_]]:
    """Equality on some columns with the values of a random record, as values by column and as records."""
    records = len(columns[names[0]])
    while True:
        row, number = rng.integers(records), rng.integers(1, min(ATTRIBUTES, len(names)) + 1)
        chosen = {name: int(columns[name][row]) for name in rng.choice(names, number, replace=False).tolist()}
        members = np.logical_and.reduce([columns[name] == value for name, value in chosen.items()])
        if members.mean() > LEAST:
            return chosen, members


def write_condition(chosen: dict[str, int]) -> str:
    """Return the condition as SQL."""
    return " AND ".join(f"{name} = {value}" for name, value in chosen.items())


def condition(world: World, rng: np.random.Generator, names: list[str]) -> tuple[str, NDArray[np.bool_]]:
    """Equality on some columns with the values of a random record, as SQL and as records."""
    chosen, members = draw_condition(world.columns, rng, names)
    return write_condition(chosen), members


def equality(world: World, rng: np.random.Generator, number: int, names: list[str] | None = None) -> Scores:
    """Every sensitive value of each condition."""
    scores = Scores()
    for i in range(number):
        where, members = condition(world, rng, names or world.names)
        truth = dict(zip(*np.unique(world.sensitive[members], return_counts=True), strict=True))
        sql = f"SELECT sensitive, COUNT(*) FROM r WHERE {where} GROUP BY sensitive"
        for (value,), *figures in world.answers(sql):
            scores.rows.append((i, float(truth.get(value, 0)), *figures))
    return scores


def ranges(world: World, rng: np.random.Generator, number: int, names: list[str] | None = None) -> Scores:
    """One run of values of each condition."""
    scores, ends = Scores(), np.cumsum(np.unique(world.sensitive, return_counts=True)[1])
    for i in range(number):
        where, members = condition(world, rng, names or world.names)
        share = rng.uniform(0.01, 0.5)
        first = rng.uniform(0, 1 - share)
        low, high = (int(np.searchsorted(ends, part * ends[-1])) for part in (first, first + share))
        asked = (np.arange(len(world.values)) >= low) & (np.arange(len(world.values)) <= high)
        between = f"sensitive BETWEEN {world.values[low]} AND {world.values[high]}"
        ((_, *figures),) = world.answers(f"SELECT COUNT(*) FROM r WHERE {where} AND {between}")
        scores.rows.append((i, world.count(members, asked), *figures))
    return scores


def alternatives(world: World, rng: np.random.Generator, number: int, share: float = 0.05) -> Scores:
    """The papers' workload."""
    scores, qd = Scores(), min(3, len(world.names))
    part = share ** (1 / (qd + 1))
    for i in range(number):
        members, parts = np.ones(len(world.sensitive), dtype=bool), []
        for name in rng.choice(world.names, qd, replace=False).tolist():
            domain = np.unique(world.columns[name])
            kept = rng.choice(domain, math.ceil(len(domain) * part), replace=False)
            members &= np.isin(world.columns[name], kept)
            parts.append(f"{name} IN ({', '.join(map(str, kept.tolist()))})")
        asked = np.zeros(len(world.values), dtype=bool)
        asked[rng.choice(len(asked), math.ceil(len(asked) * part), replace=False)] = True
        parts.append(f"sensitive IN ({', '.join(map(str, world.values[asked].tolist()))})")
        ((_, *figures),) = world.answers(f"SELECT COUNT(*) FROM r WHERE {' AND '.join(parts)}")
        scores.rows.append((i, world.count(members, asked), *figures))
    return scores


def tables(world: World, rng: np.random.Generator, number: int) -> Scores:
    """Two columns, one value; every cell that the release has."""
    scores = Scores()
    for i in range(number):
        first, second = rng.choice(world.names, 2, replace=False).tolist()
        value = int(rng.choice(world.values))
        own = world.sensitive == value
        cells = zip(world.columns[first][own].tolist(), world.columns[second][own].tolist(), strict=True)
        truth: dict[tuple[int, int], int] = {}
        for cell in cells:
            truth[cell] = truth.get(cell, 0) + 1
        sql = f"SELECT {first}, {second}, COUNT(*) FROM r WHERE sensitive = {value} GROUP BY {first}, {second}"
        for cell, *figures in world.answers(sql):
            scores.rows.append((i, float(truth.get(cell, 0)), *figures))
    return scores


def specification(folder: Path, source: Path, names: list[str], mechanism: dict[str, Any]) -> privsql.Spec:
    """What is published; the sensitive column is called so."""
    return privsql.build(
        {
            "source": {"file": str(source)},
            "columns": {"quasi_identifiers": names, "sensitive": "sensitive"},
            "release": {"name": "r", "to": str(folder / "r.duckdb")},
            "mechanism": mechanism,
            "ledger": {"off": True},
        }
    )


def numbered(data: Path, names: list[str], sensitive: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A table of whole numbers, NULL as -1, as a file and as arrays."""
    chosen = [f"coalesce(CAST({name} AS BIGINT), -1) AS {name}" for name in names]
    query = f"SELECT {', '.join(chosen)}, CAST({sensitive} AS BIGINT) AS sensitive FROM read_parquet('{data}')"
    target = folder / f"{data.stem}.parquet"
    with duckdb.connect() as db:
        db.execute(f"COPY ({query}) TO '{target}'")
        return target, db.execute(f"FROM '{target}'").fetchnumpy()


def real(
    table: tuple[Path, list[str], str], mechanism: dict[str, Any], folder: Path, keys: int, conditions: int
) -> dict[str, Scores]:
    """All four workloads, over releases by several keys; ``table``: file, quasi-identifiers, sensitive column."""
    data, names, sensitive = table
    source, columns = numbered(data, names, sensitive, folder)
    own = columns.pop("sensitive")
    found = {name: Scores() for name in ("equality", "ranges", "or", "group by")}
    for key in range(1, keys + 1):
        spec = specification(folder, source, names, mechanism)
        privsql.publish(spec, key=seed_key(key), replace=True, nobody_has_it=True, allow_useless=True)
        rng = np.random.default_rng(key)
        with privsql.open(spec.target) as release:
            world = World(release, columns, own)
            asked = (
                equality(world, rng, conditions),
                ranges(world, rng, 2 * conditions),
                alternatives(world, rng, 2 * conditions),
                tables(world, rng, max(1, conditions // 10)),
            )
        for name, scores in zip(found, asked, strict=True):
            found[name].rows += [(1e6 * key + row[0], *row[1:]) for row in scores.rows]
    return found


def made(seed: int) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """2,000 to 6,000 records of 8 to 20 values, and columns that go with them.

    ``free`` says nothing, ``weak`` and ``feeble`` little (log-odds of deviation 0.1), ``mixed`` some (0.6); ``strong``
    is a function of the value in nine of ten records.
    """
    rng = np.random.default_rng([2026, seed])
    records, values = int(rng.integers(2000, 6001)), int(rng.integers(8, 21))
    own = rng.choice(values, records, p=rng.dirichlet(np.full(values, 6.0)))

    def going(levels: int, strength: float) -> NDArray[np.int64]:
        odds = rng.dirichlet(np.full(levels, 5.0)) * np.exp(strength * rng.standard_normal((values, levels)))
        ends = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)[own]
        return np.asarray((rng.random(records)[:, None] > ends).sum(axis=1).clip(max=levels - 1))

    levels = int(rng.integers(4, 9))
    home = rng.permutation(np.arange(values) % levels)[own]
    strong = np.where(rng.random(records) < 0.1, rng.integers(0, levels, records), home)
    columns = {"weak": going(6, 0.1), "feeble": going(15, 0.1), "mixed": going(8, 0.6), "strong": strong}
    return {**columns, "free": rng.integers(0, 10, records)}, own


def small(seed: int, rule: str, mechanism: dict[str, Any], folder: Path, conditions: int = 12) -> dict[str, Scores]:
    """One made table: every kind of column alone, and all of them; empty where the threshold can't be met."""
    columns, own = made(seed)
    source = folder / "made.parquet"
    with duckdb.connect() as db:
        db.register("made", pa.table({**columns, "sensitive": own}))
        db.execute(f"COPY made TO '{source}'")
    spec = specification(folder, source, list(columns), {"threshold": rule, **mechanism})
    try:
        privsql.publish(spec, key=seed_key(seed), replace=True, nobody_has_it=True, allow_useless=True)
    except privsql.PrivsqlError:
        return {}
    rng, found = np.random.default_rng(seed), {}
    with privsql.open(spec.target) as release:
        world = World(release, columns, own)
        for name in [*columns, None]:
            asked = [name] if name is not None else list(columns)
            found[name or "all"] = equality(world, rng, conditions if name else 3 * conditions, asked)
            found[name or "all"].rows += ranges(world, rng, conditions, asked).rows
    return found
