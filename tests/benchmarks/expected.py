"""The error that ``plan --algorithms`` expects of answers, beside that of answers to questions of the kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import privsql
from privsql.answers.channel import relative_error
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize.preview import QUESTIONS
from tests.benchmarks.accuracy import World, condition, numbered, specification

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

NEAR = 1.25  # counts and shares that are so near to what is asked for


def beside(
    table: tuple[Path, list[str], str], mechanism: dict[str, Any], folder: Path, conditions: int
) -> Iterator[list[object]]:
    """Count, share, expected error, measured error, and of how many answers; ``table`` as in ``accuracy.real``."""
    data, names, sensitive = table
    source, columns = numbered(data, names, sensitive, folder)
    spec = specification(folder, source, names, mechanism)
    privsql.publish(spec, key=seed_key(1))
    with privsql.open(spec.target) as release:
        world = World(release, columns, columns.pop("sensitive"))
        channel = release.answers.channel
        for share in sorted({share for _, _, share in QUESTIONS}):
            pairs = np.array(list(_answers(world, share, conditions)))
            for count in (count for _, count, own in QUESTIONS if own == share):
                truth, estimate = pairs[(pairs[:, 0] >= count / NEAR) & (pairs[:, 0] <= count * NEAR)].T
                error = float((np.abs(estimate - truth) / truth).mean()) if len(truth) else float("nan")
                yield [count, share, relative_error(channel, share, count), error, len(truth)]


def _answers(world: World, share: float, conditions: int) -> Iterator[tuple[float, float]]:
    """Truth and estimate of every value, for different conditions that select about a share of the records."""
    rng, asked, tries = np.random.default_rng(1), set[str](), 0
    while len(asked) < conditions and tries < 500 * conditions:
        where, members = condition(world, rng, world.names)
        tries += 1
        if where in asked or not share / NEAR <= members.mean() <= share * NEAR:
            continue
        asked.add(where)
        truth = _counts(world, members)
        for (value,), estimate, *_ in world.answers(
            f"SELECT sensitive, COUNT(*) FROM r WHERE {where} GROUP BY sensitive"
        ):
            yield truth.get(value, 0.0), estimate


def _counts(world: World, members: NDArray[np.bool_]) -> dict[Any, float]:
    return dict(zip(*np.unique(world.sensitive[members], return_counts=True), strict=True))
