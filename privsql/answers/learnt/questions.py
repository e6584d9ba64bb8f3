"""Questions that are put to a release to learn from: conditions like an analyst's, and every value of every column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.channel import Observation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privsql.answers.channel import Channel, Floats
    from privsql.answers.learnt.sample import Sample

NUMBER = 250  # conditions
ATTRIBUTES = 3  # of a condition, at most
SHARE = 0.002  # of the records that a condition must select
FEWEST = 8  # records that any set must have
TRIES = 20  # conditions drawn for one that selects enough
GROUPS = 150  # values of a column, at most
LEVELS = np.array([0.1, 0.4, 0.7, 0.9, 1.0])  # of noise
MANY = 300  # values beyond which there is one level


def conditions(sample: Sample, channel: Channel, noise: np.random.Generator) -> Observation:
    """Equality on 1 to 3 columns with the values of a random record."""
    return _observation(sample, channel, *sample.seen(_drawn(sample, noise)))


def values(sample: Sample, channel: Channel, column: str, noise: np.random.Generator) -> Observation:
    """The records of each value of a column; of many values some, in proportion to their records."""
    records = np.bincount(sample.columns[column]) if sample.records else np.zeros(0, dtype=np.int64)
    enough = np.flatnonzero(records >= FEWEST)
    if len(enough) > GROUPS:
        chances = records[enough] / records[enough].sum()
        enough = np.sort(noise.choice(enough, GROUPS, replace=False, p=chances))
    return _observation(sample, channel, *sample.by_value(column, enough))


def _drawn(sample: Sample, noise: np.random.Generator) -> list[NDArray[np.intp]]:
    """The records of each condition that was drawn, once: asked again it tells nothing more.

    Where columns and values are few the same conditions are drawn over and over. What one of them says of the strengths
    would count as often, until chance was taken for certainty.
    """
    found: list[NDArray[np.intp]] = []
    columns = list(sample.columns.values())
    if not columns or not sample.records:
        return found
    least = max(SHARE * sample.records, FEWEST - 1)
    for row in noise.integers(0, sample.records, NUMBER * TRIES).tolist():
        number = int(noise.integers(1, min(ATTRIBUTES, len(columns)) + 1))
        chosen = noise.choice(len(columns), number, replace=False).tolist()
        members = np.flatnonzero(columns[chosen[0]] == columns[chosen[0]][row])
        for i in chosen[1:]:
            members = members[columns[i][members] == columns[i][row]]
        if len(members) > least:
            found.append(members)
            if len(found) == NUMBER:
                break
    return list({members.tobytes(): members for members in found}.values())


def _observation(sample: Sample, channel: Channel, observed: Floats, total: Floats) -> Observation:
    """Of so many records among all those of the channel.

    The level of the noise is rounded up to one of a few, which share their eigenproblems.
    """
    share = np.minimum(total / channel.records.sum(), 1)
    levels = LEVELS if len(channel.records) <= MANY and not sample.independent else LEVELS[-1:]
    level = levels[np.searchsorted(levels, 1 - share - 1e-9)]
    return Observation(observed, total, total, total, share * level)
