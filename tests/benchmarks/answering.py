"""Whatever answers, beside a source: measured by the classes of questions of ``privsql evaluate``.

Run as a module it is one measurement in a process of its own, so that memory is its own; it prints JSON.

    python -m tests.benchmarks.answering own SPEC.toml QUERIES              publish, then evaluate
    python -m tests.benchmarks.answering rows SPEC.toml QUERIES ROWS        rows that a peer made
    python -m tests.benchmarks.answering noise SPEC.toml QUERIES HOW        noise alone
"""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

import privsql
from privsql.answers.accuracy import EvaluationContext, Workload
from privsql.engine.database import Options, Reporter
from privsql.engine.files import temporary_folder
from privsql.engine.open import open_engine
from privsql.mechanisms.dp.noisy_tables import sum_cells
from privsql.mechanisms.marginals import domains as of_tables
from privsql.mechanisms.marginals.evaluation import evaluate_tables
from privsql.mechanisms.views.evaluation import evaluate_sets
from privsql.mechanisms.views.item_sets import WeightedSets, read_sets
from privsql.model.estimates import Estimate
from privsql.releases.opened import Release
from privsql.source.records import prepare_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.source.spec import Spec

ALL = 10**9  # cells
ONE = ("reconstructed",)


@dataclass(frozen=True)
class Said:
    """An answer: values by row, the last ones estimates, and half-widths of their intervals where there are any."""

    rows: list[tuple[Any, ...]]
    widths: list[tuple[float, ...]] | None = None

    def by_group(self) -> dict[tuple[Any, ...], tuple[Any, Any, Any]]:
        """Estimate, low and high of every group."""
        return {row[:-1]: self._bounded(row[-1], i, 0) for i, row in enumerate(self.rows)}

    def _bounded(self, value: float, row: int, at: int) -> tuple[float, float | None, float | None]:
        if self.widths is None:
            return value, None, None
        width = float(self.widths[row][at])
        return value, max(value - width, 0.0), value + width


@dataclass(frozen=True)
class Beside:
    """A source in an engine."""

    spec: Spec
    db: Any
    source: Any

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [field.name for field in self.source.roles.sensitive]

    def measured(self, answers: Any, answer: Callable[[str, str], Any], queries: int) -> dict[str, Any]:
        """Figures by class of whatever answers."""
        asked = Workload(queries=queries, cells=ALL)
        truth = lambda sql: {tuple(row[:-1]): float(row[-1]) for row in self.db.run_select(sql)}  # noqa: E731
        shape: Any = (
            self.db,
            self.source,
            self.spec.name,
            answers,
            asked,
            0.95,
            answer,
            truth,
            Reporter(),
        )
        evaluate = evaluate_sets if self.source.roles.hold_sets else evaluate_tables
        return dict(evaluate(EvaluationContext(*shape)).as_json()["reconstructed"])

    def distances(self, ways: int, distance: Callable[[Sequence[str]], float]) -> float:
        """Mean total variation of all tables by so many columns."""
        return float(np.mean([distance(columns) for columns in combinations(self.columns, ways)]))

    def apart(self, relation: str, weight: str, columns: Sequence[str]) -> float:
        """Total variation between the source's table by some columns and that of weighted rows."""
        by = ", ".join(f'"{one}"' for one in columns)
        met = " AND ".join(f'a."{one}" IS NOT DISTINCT FROM b."{one}"' for one in columns)
        sql = (
            f"SELECT sum(abs(coalesce(a.n, 0) - coalesce(b.n, 0))) / 2 / {self.source.records} FROM "
            f"(SELECT {by}, count(*) AS n FROM {self.spec.name} GROUP BY ALL) AS a FULL JOIN "
            f"(SELECT {by}, sum({weight}) AS n FROM {relation} GROUP BY ALL) AS b ON {met}"
        )
        return float(self.db.run_select(sql)[0][0])


@contextmanager
def beside(spec: Spec) -> Iterator[Beside]:
    """The source under the release's name."""
    with temporary_folder() as folder, open_engine(folder, Options()) as db:
        source = prepare_records(db, spec)
        source.sort_records()
        source.expose_as(spec.name)
        yield Beside(spec, db, source)


class Answers:
    """Says what there is to be asked of."""

    estimators = ONE
    in_bins: frozenset[str] = frozenset()


class Rows:
    """Item sets of synthetic rows with a column of 0 and 1 for each item."""

    estimators = ONE

    def __init__(self, path: Path, labels: tuple[str, ...]):
        self.item_labels, table = labels, pq.read_table(path)
        held = np.stack([table[f"i{code}"].to_numpy() == 1 for code in range(len(labels))], axis=1)
        found, number = np.unique(held, axis=0, return_counts=True)
        starts = np.concatenate(([0], np.cumsum(found.sum(axis=1))))
        self._sets = WeightedSets(starts, np.nonzero(found)[1].astype(np.int64), number.astype(np.float64), len(labels))

    def containing(self, codes: Sequence[int], _estimator: str, _confidence: float) -> Estimate:
        """So many of the rows contain them; there is no interval."""
        return Estimate((), float(self._sets.weights[self._sets.sets_with_all(codes)].sum()), None, None, None)

    def list_frequent(self, top: int, _estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets of the rows."""
        return [([self.item_labels[code] for code in chosen], size) for chosen, size in self._sets.top_sets(top)]


def own(spec: Spec, queries: int) -> dict[str, Any]:
    """Publish and evaluate."""
    begun = time.process_time()
    privsql.publish(spec, replace=True, nobody_has_it=True)
    found: dict[str, Any] = {"seconds": time.process_time() - begun}
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    asked = Workload(queries=queries, cells=ALL, estimators=ONE)
    found |= privsql.evaluate(spec.target, spec, asked).as_json()["reconstructed"]
    if "tables" in found and len(spec.columns.categories) > 2:
        with beside(spec) as place:
            found["tv3"] = _by_three(spec, place)
    return found


def _by_three(spec: Spec, place: Beside) -> float:
    """Total variation of all tables by three columns: of the model of marginals, or of the view's rows."""
    if spec.mechanism.algorithm == "marginals":  # type: ignore[attr-defined]
        columns = of_tables.read_columns(place.db, place.source, spec.mechanism)  # type: ignore[arg-type]
        codes, records, _ = of_tables.read_coded_cells(place.db, place.source, columns)
        with Release(spec.target) as release:
            model = release.answers.sum_estimator.model  # type: ignore[attr-defined]
            far = [
                np.abs(model.fitted_table(one) - sum_cells(codes, records, one, model.sizes)).sum()
                for one in combinations(range(len(columns)), 3)
            ]
        return float(np.mean(far)) / 2 / place.source.records
    with duckdb.connect(str(spec.target), read_only=True) as release:
        weights = release.sql(f"SELECT * FROM {spec.name}_weighted").to_arrow_table()
    place.db.register_arrow("weighted", weights)
    weight = "weight" if "weight" in weights.column_names else "1"
    return place.distances(3, lambda columns: place.apart("temp.privsql_weighted", weight, columns))


def rows(spec: Spec, queries: int, path: str) -> dict[str, Any]:
    """Evaluate a peer's synthetic rows."""
    with beside(spec) as place:
        if place.source.roles.hold_sets:
            return place.measured(Rows(Path(path), tuple(place.source.labels)), _nothing, queries)
        with duckdb.connect() as db:
            db.execute(f"CREATE TABLE {spec.name} AS SELECT * FROM '{path}'")
            found = place.measured(Answers(), lambda sql, _: Said(db.execute(sql).fetchall()), queries)
            place.db.register_arrow("synthetic", db.table(spec.name).to_arrow_table())
        return found | {"tv3": place.distances(3, lambda columns: place.apart("temp.privsql_synthetic", "1", columns))}


def noise(spec: Spec, queries: int, how: str) -> dict[str, Any]:
    """Evaluate noise on every count of a kind."""
    from tests.benchmarks.noise import Sets, Tables

    epsilon = float(spec.mechanism.epsilon)  # type: ignore[attr-defined]
    with beside(spec) as place:
        if place.source.roles.hold_sets:
            made = Sets(read_sets(place.source), tuple(place.source.labels), how, epsilon)
            return place.measured(made, _nothing, queries)
        tables = Tables(place.db.run_select, spec.name, place.columns, how, epsilon)
        found = place.measured(Answers(), tables.answer, queries)
        return found | {"tv3": place.distances(3, lambda columns: tables.distance(columns, place.source.records))}


def _nothing(sql: str, estimator: str) -> Any:
    raise AssertionError((sql, estimator))


def main(kind: str, spec: str, queries: str, *more: str) -> None:
    """One measurement, as JSON."""
    print(json.dumps({"own": own, "rows": rows, "noise": noise}[kind](privsql.load(Path(spec)), int(queries), *more)))


if __name__ == "__main__":
    main(*sys.argv[1:])
