"""Noisy tables of values beside bucketize, up, pp and marginals at equal promises, by one list of questions each.

The promise is a threshold; the epsilon of tables follows from it and the frequencies of the public census table. ``up``
and ``pp`` get the odds that bound the most frequent value at the same threshold. Marginals protect presence, of which a
value's odds take twice the epsilon: they get half.
"""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

import privsql
from privsql.keyed_random import seed_key
from privsql.mechanisms.label_tables.parameters import reach_of
from privsql.mechanisms.perturb.parameters import Randomize
from tests.benchmarks import accuracy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Table = tuple[Path, list[str], str]  # file, quasi-identifiers, sensitive column

PROMISES = [*(("acs_occ", rule) for rule in ("1/8", "1/4", "8*f + 0.02")), ("acs_edu", "8*f + 0.02")]
BANDS = ((50, 200), (200, 1_000), (1_000, 5_000))
FEW = 20  # values of the columns of three-way tables
METHODS = ("tables", "bucketize, linear", "bucketize, model", "up", "pp", "marginals")


def ways(rule: str, columns: dict[str, Any]) -> tuple[Fraction, dict[str, dict[str, Any]]]:
    """Epsilon, and the mechanism of each method."""
    values, counts = np.unique(columns["sensitive"], return_counts=True)
    shares = {str(value): str(Fraction(int(n), int(counts.sum()))) for value, n in zip(values, counts, strict=True)}
    tables = {"algorithm": "tables", "values": list(shares), "threshold": rule, "frequencies": shares}
    epsilon = Randomize.model_validate(tables).spent_epsilon
    most = Fraction(int(counts.max()), int(counts.sum()))
    odds = {"kind": "randomize", "rho1": str(most), "rho2": f"{reach_of(most, epsilon):.6f}"}
    buckets = {"threshold": rule, **({"algorithm": "informative"} if "f" in rule else {})}
    domains = {name: np.unique(column).tolist() for name, column in columns.items()}
    return epsilon, {
        "tables": {"kind": "randomize", **tables},
        "bucketize, linear": buckets,
        "bucketize, model": buckets,
        "up": {**odds, "algorithm": "up"},
        "pp": {**odds, "algorithm": "pp"},
        "marginals": {"kind": "contingency", "epsilon": str(epsilon / 2), "domains": domains, "allow_empty": True},
    }


def specification(folder: Path, source: Path, names: list[str], mechanism: dict[str, Any]) -> privsql.Spec:
    """What is published; marginals have no sensitive column."""
    if mechanism.get("kind") != "contingency":
        return accuracy.specification(folder, source, names, mechanism)
    columns = {"categories": [*names, "sensitive"]}
    release = {"name": "r", "to": str(folder / "r.duckdb")}
    stated = {"source": {"file": str(source)}, "columns": columns, "release": release, "mechanism": mechanism}
    return privsql.build({**stated, "ledger": {"off": True}})


def compare(
    data: Table, rule: str, folder: Path, conditions: int, key: int, methods: Sequence[str]
) -> Iterator[list[object]]:
    """Method, epsilon, relative error by band, total variation of tables of two and three columns, seconds."""
    source, columns = accuracy.numbered(*data, folder)
    epsilon, mechanisms = ways(rule, columns)
    for method in methods:
        spec = specification(folder, source, data[1], mechanisms[method])
        begin = time.process_time()
        privsql.publish(spec, key=seed_key(key), replace=True, nobody_has_it=True, allow_useless=True)
        published = time.process_time() - begin
        if method.endswith("model"):
            privsql.fit(spec.target)
        estimator = {"bucketize, model": "model", "bucketize, linear": "linear"}.get(method, "best")
        with privsql.open(spec.target) as release:
            asking = Asking(release, estimator, {name: columns[name] for name in data[1]}, columns["sensitive"])
            errors = asking.errors(np.random.default_rng(key), conditions)
            distances = [asking.distance(number) for number in (1, 2)]
        yield [method, float(epsilon), *errors, *distances, published]


class Asking:
    """An open release beside its source."""

    def __init__(
        self, release: privsql.Release, estimator: str, columns: dict[str, Any], sensitive: NDArray[np.int64]
    ) -> None:
        self.release, self.estimator = release, estimator
        self.world = accuracy.World(release, columns, sensitive)

    def counts(self, groups: Sequence[str], where: str = "") -> dict[tuple[Any, ...], float]:
        """The estimate of every group."""
        keys = ", ".join([*groups, "sensitive"])
        rows = self.release.query(f"SELECT {keys}, COUNT(*) FROM r {where} GROUP BY {keys}", estimator=self.estimator)
        return {tuple(row[:-4]): float(row[-4]) for row in rows.rows}

    def errors(self, rng: np.random.Generator, conditions: int) -> list[float]:
        """Mean relative error by band of every value of so many conditions."""
        found = []
        for _ in range(conditions):
            where, members = accuracy.condition(self.world, rng, self.world.names)
            answers = self.counts([], f"WHERE {where}")
            truth = zip(*np.unique(self.world.sensitive[members], return_counts=True), strict=True)
            found += [(float(n), answers.get((value,), 0.0)) for value, n in truth]
        true, estimate = np.array(found).T
        inside = [(true >= low) & (true < high) for low, high in BANDS]
        return [float((np.abs(estimate - true) / true)[one].mean()) for one in inside]

    def distance(self, number: int) -> float:
        """Mean total variation of the tables of so many columns with the sensitive one."""
        columns, found = self.world.columns, []
        short = [name for name in columns if len(np.unique(columns[name])) <= FEW]
        for chosen in combinations(list(columns) if number == 1 else short, number):
            table = np.stack([*(columns[name] for name in chosen), self.world.sensitive], axis=1)
            cells, true = np.unique(table, axis=0, return_counts=True)
            answers = self.counts(chosen)
            apart = sum(
                abs(answers.pop(tuple(cell), 0.0) - n) for cell, n in zip(cells.tolist(), true.tolist(), strict=True)
            )
            found.append((apart + sum(map(abs, answers.values()))) / 2 / len(table))
        return float(np.mean(found))
