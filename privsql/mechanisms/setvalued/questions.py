"""How good a release of item sets is: counting queries by length, and its frequent item sets (paper, section 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.accuracy import Evaluated, Score, by_questions
from privsql.engine.sqlfiles import all_rows, fill, temp
from privsql.errors import UsageError
from privsql.mechanisms.setvalued.diffpart.answers import Answers
from privsql.mechanisms.setvalued.holdings import Holdings, utility
from privsql.noise import seed_key

if TYPE_CHECKING:
    from privsql.answers.accuracy import Measuring
    from privsql.model.estimate import Estimate
    from privsql.model.records import Records

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # classes of queries: lengths up to this share of the longest record
SANITY = 0.001  # share of the records below which a true answer counts as that
TOPS = (20, 50, 100)
Asked = tuple[int, ...]


def classes(longest: int, queries: int, items: int, draw: np.random.Generator) -> list[tuple[float, list[Asked]]]:
    """Queries by class: lengths uniform in 1 .. share * longest, items uniform without repetition."""
    found = []
    for share in SHARES:
        most = min(max(1, int(share * longest + 1e-9)), items)
        lengths = draw.integers(1, most + 1, queries).tolist()
        asked = [tuple(sorted(draw.choice(items, length, replace=False).tolist())) for length in lengths]
        found.append((share, asked))
    return found


def by_class(share: float, truth: list[float], answers: list[Estimate], records: float) -> dict[str, Any]:
    """Mean relative error |est - true|/max(true, SANITY * records) of a class, and how often the interval held."""
    true = np.array(truth)
    figures = ([getattr(one, name) for one in answers] for name in ("estimate", "low", "high"))
    estimate, low, high = (np.array(given, dtype=np.float64) for given in figures)
    bounded = ~np.isnan(low) & ~np.isnan(high)
    errors = np.abs(estimate - true) / np.maximum(true, SANITY * records)
    return {
        "length_share": share,
        "queries": len(truth),
        "mean_relative_error": float(errors.mean()),
        "coverage": float(((low <= true + 1e-9) & (true <= high + 1e-9))[bounded].mean()) if bounded.any() else None,
    }


def tops(source: Holdings, release: Holdings) -> dict[str, float]:
    """Utility of the release's frequent item sets, by how many are asked for."""
    true, found = source.top(max(TOPS)), release.top(max(TOPS))
    return {str(number): utility(true, found, number) for number in TOPS}


def evaluate(given: Measuring) -> Evaluated:
    """Counting queries over random items by length, and the most frequent item sets; or a file of queries."""
    asked, sets = given.workload, given.answers
    if asked.file is not None:
        return by_questions(given)
    if asked.kind != "equality":
        raise UsageError(f"workload {asked.kind!r}: a release of item sets takes a file, or queries by length")
    if not isinstance(sets, Answers):
        raise TypeError(type(sets).__name__)
    if sets.labels != tuple(given.records.labels):
        raise UsageError("the specification's universe is not that of the release")
    true = holdings(given.records)
    draw = seed_key(asked.seed).stream("workload", "items")
    queries = classes(true.longest, max(1, asked.queries // len(SHARES)), true.items, draw)
    truth = {share: [float(true.weights[true.holding(q)].sum()) for q in questions] for share, questions in queries}
    scores: dict[str, Score] = {}
    extras: dict[str, dict[str, Any]] = {}
    for name, held in (("baseline", sets.counted), ("reconstructed", sets.holdings)):
        scores[name], found = Score(), []
        for share, questions in queries:
            answers = [sets.containing(question, name, given.confidence) for question in questions]
            for one, value in zip(answers, truth[share], strict=True):
                scores[name].add(value, (one.estimate, one.low, one.high))
            found.append(by_class(share, truth[share], answers, given.records.records))
        extras[name] = {"classes": found, "top": tops(true, held)}
    return Evaluated(scores, {}, given.confidence, extras)


def holdings(source: Records) -> Holdings:
    """The source's sets and how many records have each."""
    contents = source.db.arrow(all_rows(temp("contents")))
    weights = source.db.arrow(fill("setvalued/weights", {"baskets": temp("baskets")}))["records"].to_numpy()
    starts = np.searchsorted(contents["basket"].to_numpy(), np.arange(len(weights) + 1))
    codes = contents["code"].to_numpy().astype(np.int64)
    return Holdings(starts, codes, weights.astype(np.float64), len(source.labels))
