"""Relative error of counts (Figure 5), and by the number of attributes."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import scipy

import privsql
from experiments.common import Axes, Point, experiment
from experiments.inferential.tables import ALGORITHMS, PANELS, THETAS, columns, mechanism
from privsql.answers.estimate import project_within

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from experiments.bench import Bench
    from experiments.counting import Array


@experiment(
    name="inferential-error",
    table=False,
    paper_name="inferential",
    places=("Figure 5",),
    title="relative error of counts",
    says="The largest error is slightly over 10 % (OCC) and at most 10 % (EDU).",
    differs="At most 12.4 % (OCC) and 16.8 % (EDU): the survey has one attribute less. The model errs "
    "least everywhere.",
    parameters="Queries over 1 to 7 random attributes, of an expected selectivity of 1 %, with true answers above 0",
    data=("acs_occ", "acs_edu"),
    axes=Axes("privacy coefficient θ", "mean relative error", x_scale="log2", percent=True),
    over={"table": ("acs_occ", "acs_edu"), "theta": THETAS, "algorithm": ("two-size", "multi-size", "optimal")},
    small={"table": ("acs_occ",), "theta": (8,), "algorithm": ("two-size",)},
    counted=True,
)
def error(bench: Bench, table: str, theta: int, algorithm: str) -> Iterator[Point]:
    """The mean of |act - est|/act by estimator."""
    found, panel = bench.table(table), PANELS[table]
    spec = bench.spec(found, mechanism(theta, algorithm), columns(table, found))
    errors = relative_errors(bench, spec, found.path)
    for estimator, shown in ESTIMATORS.items():
        every = [one for by in errors.values() for one in by.get(estimator, [])]
        if not every:
            continue
        yield Point(ALGORITHMS[algorithm], theta, float(np.mean(every)), f"{panel}, {shown}", note=spread(every))


ESTIMATORS = {"baseline": "the paper's formula", "linear": "linear estimator", "model": "model"}
QUERIES = 5000  # of a point


def relative_errors(bench: Bench, spec: privsql.Spec, path: Path) -> dict[int, dict[str, list[float]]]:
    """Publish, and return |act - est|/act by number of attributes and estimator, of as many queries of each number."""
    found: dict[int, dict[str, list[float]]] = {}
    every = range(1, len(spec.columns.quasi_identifiers) + 1)
    each = ceil(bench.queries(QUERIES, 2 * len(every)) / len(every))
    model = bench.fit(privsql.publish(spec, seed=bench.seed))
    sums, draw = ReleaseSums(spec, path, model), np.random.default_rng(bench.seed)
    for attributes in every[::3] if bench.small else every:
        asked = [sums.draw_query(attributes, draw) for _ in range(each)]
        answers = [(sums.count_records(one), sums.estimate_counts(one)) for one in asked]
        for one, (_, estimates) in list(zip(asked, answers, strict=True))[:COMPARED]:
            sums.compare_answers(one, estimates)
        known = [(truth, estimates) for truth, estimates in answers if truth]
        found[attributes] = {
            name: [abs(estimates[name] - truth) / truth for truth, estimates in known]
            for name in ESTIMATORS
            if all(name in estimates for _, estimates in known)
        }
    return found


Query = dict[str, list[int]]  # what each column of a query may be
SELECTIVITY = 0.01  # expected, of a query
NOTHING = -1  # stands for NULL
COMPARED = 2  # queries of each number of attributes that privsql answers as well


class ReleaseSums:
    """The weights by which the estimators answer, so that thousands of queries are sums of arrays."""

    def __init__(self, spec: privsql.Spec, path: Path, model: Path | None) -> None:
        self.release, (self.sensitive,) = privsql.open(spec.target), spec.columns.sensitive
        self.columns = [*spec.columns.quasi_identifiers, self.sensitive]
        with duckdb.connect() as db:
            db.execute(f"ATTACH '{spec.target}' AS release (READ_ONLY)")
            self.source = _read_codes(db, f"SELECT {', '.join(self.columns)} FROM '{path}'")
            self.published = _read_codes(db, "SELECT * FROM release.qit")
            values = db.execute(f"SELECT {self.sensitive} FROM release.privsql_values ORDER BY code").fetchnumpy()
            self.values = values[self.sensitive]
            listed = db.execute(LISTED.format(sensitive=self.sensitive)).fetchnumpy()
            self.counts = np.zeros((int(self.published["bid"].max()) + 1, len(self.values)))
            self.counts[listed["bid"], listed["code"]] = listed["count"]
            pairs = db.execute("SELECT listed, value, weight FROM release.privsql_estimator").fetchnumpy()
            self.linear = np.zeros((len(self.values),) * 2)
            self.linear[pairs["listed"], pairs["value"]] = pairs["weight"]
            shape = len(self.published["bid"]), len(self.values)
            self.weights = None if model is None else _read_model(db, model, shape)
        self.sizes, self.records = self.counts.sum(axis=1), self.counts.sum(axis=0)
        self.domains = {name: np.unique(column[column != NOTHING]) for name, column in self.source.items()}

    def draw_query(self, attributes: int, draw: np.random.Generator) -> Query:
        """Return ceil(|A| s^(1/(qd+1))) random values of some attributes and of the sensitive one (Anatomy, 6)."""
        part = SELECTIVITY ** (1 / (attributes + 1))
        chosen = [*draw.choice(self.columns[:-1], attributes, replace=False).tolist(), self.sensitive]
        domains = {name: self.domains[name] for name in chosen}
        return {
            name: draw.choice(domain, ceil(len(domain) * part), replace=False).tolist()
            for name, domain in domains.items()
        }

    def count_records(self, query: Query) -> int:
        """Return the true answer."""
        return int(self._match(self.source, query, list(query)).sum())

    def estimate_counts(self, query: Query) -> dict[str, float]:
        """Return the answer of each estimator."""
        inside = self._match(self.published, query, [name for name in query if name != self.sensitive])
        members = np.bincount(self.published["bid"][inside], minlength=len(self.sizes))
        wanted = np.isin(self.values, query[self.sensitive]).astype(float)
        matching = self.counts @ wanted
        least = np.maximum(members + matching - self.sizes, 0).sum()
        most = np.minimum(members, matching).sum()
        share = members / np.maximum(self.sizes, 1)
        listed = (share @ self.counts @ self.linear)[None]
        total, caps = np.array([listed.sum()]), np.minimum(self.records, listed.sum())[None]
        counts = project_within(listed, total, caps, self.records / self.records.sum())
        found = {"baseline": share @ matching, "linear": (counts @ wanted).sum()}
        if self.weights is not None:
            found["model"] = (self.weights @ wanted)[inside].sum()
        return {name: float(min(max(answer, least), most)) for name, answer in found.items()}

    def compare_answers(self, query: Query, estimates: dict[str, float]) -> None:
        """Raise unless privsql gives the same answers in SQL, up to a tenth of their standard errors."""
        conditions = " AND ".join(f"{name} IN ({', '.join(map(str, values))})" for name, values in query.items())
        for name, estimate in estimates.items():
            (row,) = self.release.query(f"SELECT COUNT(*) FROM people WHERE {conditions}", estimator=name).rows
            if abs(row[0] - estimate) > max(1e-3 * abs(estimate), 0.1 * (row[1] or 0)):
                raise SystemExit(f"{name}: privsql answers {row[0]}, the sum of weights is {estimate}")

    def _match(self, columns: dict[str, Array], query: Query, names: list[str]) -> Array:
        inside = np.ones(len(columns[names[0]]), dtype=bool)
        for name in names:
            lookup = np.zeros(int(self.domains[name].max()) + 2, dtype=bool)  # the last is that of NULL
            lookup[query[name]] = True
            inside &= lookup[columns[name]]
        return inside


LISTED = """
SELECT bid, code, count FROM release.st
JOIN release.privsql_values AS v ON st.{sensitive} IS NOT DISTINCT FROM v.{sensitive}
"""


def _read_codes(db: duckdb.DuckDBPyConnection, query: str) -> dict[str, Array]:
    """Return the columns of a query, all of codes from 0 on."""
    return {
        name: np.ma.filled(column.astype(np.int64), NOTHING) for name, column in db.execute(query).fetchnumpy().items()
    }


def _read_model(db: duckdb.DuckDBPyConnection, model: Path, shape: tuple[int, int]) -> Any:
    """Return the weights of a fitted model (records, values)."""
    db.execute(f"ATTACH '{model}' AS model (READ_ONLY)")
    rows = db.execute("SELECT record, code, weight FROM model.weights").fetchnumpy()
    return scipy.sparse.csr_array((rows["weight"], (rows["record"], rows["code"])), shape)


def spread(errors: list[float]) -> str:
    """What else there is to say of errors."""
    return f"{len(errors)} queries, median {np.median(errors):.3g}"


@experiment(
    name="inferential-dimensions",
    table=False,
    paper_name="inferential",
    places=("Section 7.2.2",),
    title="relative error by the number of attributes in a query",
    says="Not shown.",
    differs="With more attributes each is restricted to most of its values, so answers grow and errors fall.",
    parameters="θ = 8, TwoSize, queries as in Figure 5",
    data=("acs_occ", "acs_edu"),
    axes=Axes("attributes in the query, qd", "mean relative error", percent=True, bound="lines: two standard errors"),
    over={"table": ("acs_occ", "acs_edu")},
    small={"table": ("acs_occ",)},
    counted=True,
)
def dimensions(bench: Bench, table: str) -> Iterator[Point]:
    """The same, by qd."""
    found = bench.table(table)
    spec = bench.spec(found, mechanism(8, "two-size"), columns(table, found))
    for number, by in relative_errors(bench, spec, found.path).items():
        for estimator, shown in ESTIMATORS.items():
            errors = by.get(estimator, [])
            if not errors:
                yield Point(shown, number, None, PANELS[table], note="every true answer was 0")
                continue
            mean, off = float(np.mean(errors)), 2 * float(np.std(errors)) / len(errors) ** 0.5
            yield Point(shown, number, mean, PANELS[table], low=mean - off, high=mean + off, note=spread(errors))
