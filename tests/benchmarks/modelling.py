"""The model of a whole release beside what it replaces, and its intervals, on releases of the real tables.

Estimators are arrays of weights (record, value); an answer is their sum. ``model``; ``linear``, the weights of
``NAME_weighted``; ``formula``, count/|g|; ``independence``, the shares of the values; ``ideal``, the model with
parameters fitted to the true labels, below which no fit can come.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

import privsql
from privsql.answers.answer import DRAWS
from privsql.answers.bucket_model import fit_bucket_model, list_weights
from privsql.answers.bucket_posteriors import prepare_release
from privsql.answers.channel import Observation
from privsql.answers.completed import MISFIT_OF_MOMENTS
from privsql.answers.softmax import combine_rows
from privsql.engine.sqlfiles import all_rows, table
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize.answers import LEAST_VARIANCE, combine_counts, read_release_arrays
from privsql.mechanisms.bucketize.estimator import make_channel, make_linear_estimator
from privsql.mechanisms.bucketize.parameters import BucketizeFacts
from privsql.model.arrays import ReleaseArrays
from privsql.model.estimates import Estimate
from privsql.releases.opened import open_release
from tests.benchmarks import accuracy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from privsql.answers.bucket_model import Beliefs, BucketModel
    from privsql.answers.channel import Channel, LinearEstimator

    Array = NDArray[Any]

FORMULA = {"threshold": "8*f + 0.02", "algorithm": "informative"}
RELEASES: list[tuple[str, dict[str, str]]] = [
    *(("acs_occ", made) for made in ({"threshold": "1/4"}, {"threshold": "1/8"}, FORMULA)),
    *(("acs_edu", made) for made in ({"threshold": "1/4"}, {"threshold": "1/3"}, FORMULA)),
]
FORMER = {  # relative errors of 50-200, 200-1,000 and 1,000-5,000 by the estimator question by question, which is gone
    "acs_occ 1/4": (0.153, 0.062, 0.023),
    "acs_occ 1/8": (0.229, 0.102, 0.038),
    "acs_occ 8*f + 0.02 informative": (0.203, 0.097, 0.031),
    "acs_edu 1/4": (0.183, 0.091, 0.033),
}
BANDS = ((1, 50), (50, 200), (200, 1_000), (1_000, 5_000), (5_000, np.inf))
DIGEST = "0123456789abcdef" * 4  # a fixed seed


@dataclass(frozen=True)
class Question:
    """Who is meant, in the source and in the release, which ``values`` (K,), and the column that is summed."""

    kind: str
    source: Array
    release: Array
    values: Array
    amount: str | None = None


@dataclass(frozen=True)
class World:
    """A release with its source: ``columns`` (n,) each and ``labels`` (n,), codes of values."""

    target: Any
    arrays: ReleaseArrays
    columns: dict[str, Array]
    labels: Array
    channel: Channel
    estimator: LinearEstimator
    is_linear: bool

    def count_linearly(self, one: Question) -> Estimate:
        """The linear estimate of a count."""
        (at,) = np.nonzero(one.release)
        arrays, total, share = self.arrays, np.array([float(len(at))]), len(at) / len(self.arrays.bucket)
        listed = scipy.sparse.csr_array(
            (arrays.listed_count / arrays.sizes[arrays.listed_bucket], (arrays.listed_bucket, arrays.listed_value)),
            shape=(len(arrays.sizes), len(arrays.values)),
        )
        observed = (np.bincount(arrays.bucket[at], minlength=len(arrays.sizes)) @ listed)[None]
        observation = Observation(observed, total, total, total, np.array([share * (1 - share)]))
        found = self.estimator.estimate_sets(self.channel, observation, one.values[:, None])
        return Estimate((), float((found.values @ one.values)[0]), float(found.std_error[0, 0]), None, None)

    def questions(self, rng: np.random.Generator, number: int) -> Iterator[Question]:
        """Equality, ranges and lists of values, OR, SUM with AVG; ``number`` conditions each."""
        values, names = len(self.arrays.values), list(self.columns)
        ends = np.cumsum(np.bincount(self.labels, minlength=values)) / len(self.labels)
        for i in range(number):
            members = self.equal(rng, names)
            if i % 5 == 0:
                yield from (Question("equality", *members, one) for one in np.eye(values))
            share = rng.uniform(0.01, 0.5)
            low = rng.uniform(0, 1 - share)
            yield Question("range of values", *members, ((ends >= low) & (ends <= low + share)).astype(float))
            yield Question("list of values", *members, (rng.random(values) < rng.uniform(0.05, 0.6)).astype(float))
            yield Question("sum", *self.equal(rng, names[1:]), np.eye(values)[rng.integers(values)], names[0])
            chosen = {
                name: rng.permutation(np.unique(self.columns[name])) for name in rng.choice(names, 3, replace=False)
            }
            some = {name: levels[: -(-len(levels) // 2)] for name, levels in chosen.items()}
            either = [
                np.logical_and.reduce([np.isin(columns[name], levels) for name, levels in some.items()])
                for columns in (self.columns, self.arrays.columns)
            ]
            yield Question("or", *either, (rng.random(values) < 0.5).astype(float))

    def equal(self, rng: np.random.Generator, names: list[str]) -> tuple[Array, Array]:
        """Members of a condition on 1 to 3 columns that more than 0.2 % of the records meet."""
        while True:
            row = rng.integers(len(self.labels))
            chosen = rng.choice(names, rng.integers(1, min(3, len(names)) + 1), replace=False)
            source, release = (
                np.logical_and.reduce([columns[name] == self.columns[name][row] for name in chosen])
                for columns in (self.columns, self.arrays.columns)
            )
            if source.mean() > accuracy.LEAST:
                return source, release


def open_world(data: tuple[Path, list[str], str], mechanism: dict[str, Any], folder: Path, key: int) -> World:
    """Publish a table (file, quasi-identifiers, sensitive column) and read both."""
    file, names, sensitive = data
    source, columns = accuracy.numbered(file, names, sensitive, folder)
    spec = accuracy.specification(folder, source, names, mechanism)
    privsql.publish(spec, key=seed_key(key), replace=True, nobody_has_it=True, allow_useless=True)
    with open_release(spec.target) as (db, release):
        arrays = read_release_arrays(db, release.manifest.roles, release.database)
        facts = BucketizeFacts.model_validate(release.manifest.facts)
        channel = make_channel(db.arrow(all_rows(table("privsql_channel"))), facts).channel
        linear = make_linear_estimator(channel.moment, facts.real)
    labels = np.searchsorted(np.array(arrays.values, dtype=np.int64), columns.pop("sensitive"))
    return World(spec.target, arrays, columns, labels, channel, linear, facts.weighting == "linear")


def dense(arrays: ReleaseArrays, weights: tuple[Array, Array, Array]) -> Array:
    """Weights as (n, K)."""
    record, value, weight = weights
    found = np.zeros((len(arrays.bucket), len(arrays.values)), dtype=np.float32)
    found[record, value] = weight
    return found


def estimators(world: World, model: BucketModel) -> Iterator[tuple[str, Array]]:
    """Every estimator's weights (n, K), one at a time."""
    arrays = world.arrays
    beliefs = model.find_beliefs()
    yield "model", dense(arrays, (beliefs.record, beliefs.value, beliefs.weight))
    shape = (len(arrays.sizes), len(arrays.values))
    at = (arrays.listed_count / arrays.sizes[arrays.listed_bucket], (arrays.listed_bucket, arrays.listed_value))
    shares = scipy.sparse.csr_array(at, shape=shape).toarray().astype(np.float32)
    yield "formula", shares[arrays.bucket]
    if world.is_linear:
        yield "linear", (shares @ world.estimator.weights.astype(np.float32))[arrays.bucket]
    overall = np.exp(arrays.log_shares).astype(np.float32)
    yield "independence", np.broadcast_to(overall, (len(arrays.bucket), len(overall)))
    yield "ideal", dense(arrays, ideal_weights(world))


def ideal_weights(world: World) -> tuple[Array, Array, Array]:
    """Weights of the model whose parameters are fitted to the labels of the source."""
    arrays = world.arrays
    columns = {name: column.astype(arrays.columns[name].dtype) for name, column in world.columns.items()}
    model = fit_labels(columns, world.labels, arrays.values)
    prepared = prepare_release(arrays, model.features)
    probabilities = prepared.design.probabilities(model.theta.astype(float), arrays.log_shares)
    return list_weights(prepared.likelihood.find_posteriors(probabilities, settled=True))


def fit_labels(columns: dict[str, Array], labels: Array, values: list[str | None]) -> BucketModel:
    """The model of labelled records: each is alone in a bucket that lists its value."""
    alone = np.arange(len(labels))
    return fit_bucket_model(ReleaseArrays(columns, alone, alone, labels, np.ones_like(alone), values), DIGEST)


def cost(arrays: ReleaseArrays) -> tuple[BucketModel, Beliefs, list[object]]:
    """The model and its beliefs; seconds of processor time, peak memory in MB, the attacker's belief."""
    begin = time.process_time()
    model = fit_bucket_model(arrays, DIGEST)
    beliefs = model.find_beliefs()
    took = time.process_time() - begin
    return model, beliefs, [took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, beliefs.best_guess]


def errors(world: World, model: BucketModel, number: int, seed: int) -> Iterator[list[object]]:
    """Estimator, from, to, answers, mean relative error, of equality."""
    rng, values = np.random.default_rng(seed), len(world.arrays.values)
    asked = [world.equal(rng, list(world.columns)) for _ in range(number)]
    truth = np.concatenate([np.bincount(world.labels[source], minlength=values) for source, _ in asked])
    for name, weights in estimators(world, model):
        found = np.concatenate([weights[release].sum(axis=0, dtype=float) for _, release in asked])
        for low, high in BANDS:
            inside = (truth >= low) & (truth < high)
            if inside.any():
                error = np.abs(found - truth)[inside] / truth[inside]
                yield [name, low, high, int(inside.sum()), float(error.mean())]


def intervals(world: World, beliefs: Beliefs, number: int, seed: int) -> Iterator[tuple[str, float, float, float]]:
    """Kind, true records, relative error and z, in half-widths of a 95 % interval, of answers as releases give them."""
    arrays, reach = world.arrays, float(scipy.stats.t.ppf(0.975, DRAWS - 1))
    weights, shape = (
        dense(arrays, (beliefs.record, beliefs.value, beliefs.weight)),
        (len(arrays.bucket), len(arrays.values)),
    )
    tables = np.zeros((DRAWS, shape[0]), dtype=np.int64)
    for completed, drawn in zip(tables, beliefs.drawn.T, strict=True):
        completed[beliefs.record[drawn]] = beliefs.value[drawn]
    share = (1 + 1 / DRAWS) / (DRAWS - 1)
    for one in world.questions(np.random.default_rng(seed), number):
        (at,) = np.nonzero(one.release)
        inside, drawn = weights[at] @ one.values, one.values[tables[:, at]]
        truth, count = float(one.values[world.labels[one.source]].sum()), float(inside.sum())
        counts, open_ = drawn.sum(axis=1), float((inside * (1 - inside)).sum())
        rows = {one.kind: (truth, count, counts, 1.0, open_)}
        if one.amount is not None:
            amount = arrays.columns[one.amount][at]
            true = float(world.columns[one.amount][one.source] @ one.values[world.labels[one.source]])
            totals, misfit = drawn @ amount, MISFIT_OF_MOMENTS**0.5
            rows = {"sum": (true, float(totals.mean()), totals, misfit, 0.0)}
            if truth and counts.all():
                means = totals / counts
                rows["avg"] = (true / truth, float(means.mean()), means, misfit, 0.0)
        for kind, (true, estimate, answers, misfit, within) in rows.items():
            least = min(1.0, LEAST_VARIANCE / max(open_, LEAST_VARIANCE)) * within
            error = misfit * max(share * float(((answers - answers.mean()) ** 2).sum()), least) ** 0.5
            if one.amount is None:
                model, linear = (np.array([estimate]), np.array([error**2])), [world.count_linearly(one)]
                (estimate,), (variance,) = (part.tolist() for part in combine_counts([()], *model, linear))
                error = variance**0.5
            if error > 1e-6 * max(1, abs(estimate)):
                yield kind, truth, abs(estimate - true) / max(abs(true), 1e-9), (estimate - true) / (reach * error)


def show_intervals(found: Sequence[tuple[str, float, float, float]]) -> Iterator[list[object]]:
    """Kind ("counts" are all but sums and means), from, to, answers, mean relative error, coverage of 95 %."""
    kinds = {kind: [row[1:] for row in found if row[0] == kind] for kind in dict.fromkeys(row[0] for row in found)}
    kinds = {"counts": [row[1:] for row in found if row[0] not in ("sum", "avg")]} | kinds
    for kind, rows in kinds.items():
        behind, error, z = np.array(rows).reshape(-1, 3).T
        for low, high in BANDS:
            part = (behind >= low) & (behind < high)
            if part.any():
                yield [kind, low, high, int(part.sum()), float(error[part].mean()), float((np.abs(z[part]) < 1).mean())]


def learning(world: World, model: BucketModel, seed: int) -> Iterator[list[object]]:
    """Labels of one half of the records that a classifier is taught, its accuracy and mean AUC by value on the other.

    A softmax is taught true labels, labels that the model drew, and for comparison those dealt at random within
    buckets; the other half has its true labels.
    """
    rng, arrays = np.random.default_rng(seed), world.arrays
    values, order = len(arrays.values), np.lexsort((rng.random(len(arrays.bucket)), arrays.bucket))
    listed = np.repeat(arrays.listed_value, arrays.listed_count)[
        np.argsort(np.repeat(arrays.listed_bucket, arrays.listed_count), kind="stable")
    ]
    shuffled = np.empty(len(order), dtype=np.int64)
    shuffled[order] = listed
    half = rng.random(len(world.labels)) < 0.5
    raw = {name: column.astype(arrays.columns[name].dtype) for name, column in world.columns.items()}
    test = {name: column[~half] for name, column in raw.items()}
    kinds = {
        "raw": (raw, world.labels),
        "drawn": (arrays.columns, first_table(model.find_beliefs())),
        "dealt": (arrays.columns, shuffled),
    }
    for name, (columns, labels) in kinds.items():
        taught = {one: column[half] for one, column in columns.items()}
        probabilities = classify(taught, labels[half], test, arrays.log_shares)
        right = probabilities.argmax(axis=1) == world.labels[~half]
        yield [name, float(right.mean()), find_auc(probabilities, world.labels[~half], values)]


def first_table(beliefs: Beliefs) -> Array:
    """Return the values (n,) of a completed table."""
    return beliefs.value[beliefs.drawn[:, 0]]


def classify(taught: dict[str, Array], labels: Array, asked: dict[str, Array], offset: Array) -> Array:
    """Probabilities of values (n, K) for some records, by a softmax of labelled ones."""
    model = fit_labels(taught, labels, [None] * len(offset))
    first, member, sizes = combine_rows(list(asked.values()))
    design = model.features.make_design({name: column[first] for name, column in asked.items()}, sizes)
    return design.probabilities(model.theta.astype(float), offset)[member]


def find_auc(probabilities: Array, labels: Array, values: int) -> float:
    """Mean over the values of the probability that one who has it is ranked above one who has not."""
    found = []
    for value in range(values):
        rank, own = scipy.stats.rankdata(probabilities[:, value]), labels == value
        number = own.sum()
        if 0 < number < len(own):
            found.append((rank[own].sum() - number * (number + 1) / 2) / (number * (len(own) - number)))
    return float(np.mean(found))
