"""Corruption: who already knows the values of q records in a bucket strikes them off its list.

With distinct values and sigma fakes (Wang et al., section 6), |g| - q + sigma values remain of which sigma are fake:
the certainty that a given remaining record has a given remaining value is 1/(|g| - q + sigma), that a remaining value
is real (|g| - q)/(|g| - q + sigma). A value listed c times may keep all c: c/(|g| - q + sigma) is then the worst case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.attacks.finding import Finding
from privsql.attacks.suite import Adversary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.attacks.block import Floats, Ints
    from privsql.attacks.suite import Learnt
    from privsql.mechanisms.bucketize.scene import Buckets

NAME = "corruption"
KNOWS = "the sensitive values of some records in the person's bucket, from elsewhere"
KNOWN = (1, 2, 3)


def certainty(size: int, known: int, fakes: int = 0, times: int = 1) -> float:
    """Largest probability of a value listed ``times`` for a record left: min(1, c/(|g| - q + sigma)).

    >>> certainty(4, 3), certainty(4, 3, fakes=1)
    (1.0, 0.5)
    """
    return min(1.0, times / (size - known + fakes))


def real(size: int, known: int, fakes: int) -> float:
    """Probability that a value left on the list is real: (|g| - q)/(|g| - q + sigma).

    >>> real(4, 3, 1)
    0.5
    """
    return (size - known) / (size - known + fakes)


def attack(scene: Buckets) -> list[Finding]:
    """One finding for each q of ``KNOWN``, and one for all records but one, with the curve over all q."""
    most = max(rows.shape[1] for rows, _ in scene.classes)
    curve = tuple(_point(scene, q) for q in range(most))
    rows = [_finding(scene, f"{q} known", q) for q in KNOWN if q < most - 1]
    return [*rows, _finding(scene, "all but one known", None, curve)]


def _finding(scene: Buckets, name: str, known: int | None, curve: tuple[dict[str, float], ...] = ()) -> Finding:
    values = _values(scene) if scene.fakes and known is None else ()
    tops, above, attacked = [], 0, 0
    for top, over, left in _measured(scene, known):
        tops.append(np.repeat(top, left))
        above += int(over.sum()) * left
        attacked += len(top) * left
    every = np.concatenate(tops) if tops else np.zeros(1)
    knows = "the sensitive values of all other records" if known is None else f"the sensitive values of {known} record"
    return Finding(
        f"{NAME}, {name}",
        f"{knows}{'s' if known and known > 1 else ''} in the person's bucket, from elsewhere",
        promised=False,
        attacked=attacked,
        mean=float(every.mean()),
        highest=float(every.max()),
        above=above / max(1, attacked),
        baseline=scene.baseline,
        notes=_notes(scene.fakes, values) if known is None and scene.fakes else (),
        curve=curve,
        values=values,
    )


def _values(scene: Buckets) -> tuple[dict[str, Any], ...]:
    """By value, the probability that it is real where it is listed and nobody is known: ``theory`` |g|/(|g| + sigma),
    ``stated`` by the release (or estimated, of releases that state no law), and its share by the ``source``'s records.
    """
    m = len(scene.bounds)
    listed, theory = np.zeros(m), np.zeros(m)
    for rows, codes in scene.classes:
        times = np.bincount(codes.ravel(), minlength=m)
        listed += times
        theory += times * real(rows.shape[1], 0, scene.fakes)
    truth, stated = scene.truth, scene.channel.records
    return tuple(
        {
            "value": scene.labels[x],
            "listed": int(listed[x]),
            "theory": theory[x] / listed[x],
            "stated": stated[x] / listed[x],
            **({} if truth is None else {"source": min(1.0, truth.totals[x] / scene.times[x])}),
        }
        for x in np.flatnonzero(listed).tolist()
    )


def _notes(fakes: int, values: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    """Each kind of figure from the least to the most certain value."""
    kinds = {name: [float(one[name]) for one in values] for name in ("theory", "stated", "source") if name in values[0]}
    spans = ", ".join(f"{name} {min(of):.3f} to {max(of):.3f}" for name, of in kinds.items())
    return (
        f"fakes leave {real(2, 1, fakes):.0%} certainty that the last value is real",
        f"a listed value is real, by value: {spans}",
    )


def _measured(scene: Buckets, known: int | None) -> Iterator[tuple[Floats, Ints, int]]:
    """Per size class: the best guess's certainty in every bucket, whether a bound is exceeded, and records left.

    Which q records are known is drawn: every assignment of records to slots is equally likely, so what they take off
    the list is a uniformly random choice of its real values, and the truth is not needed. With fakes, any listed
    values are as likely to be the real ones, up to how much more often than others they are (``scene.ratio``).
    """
    for rows, codes in scene.classes:
        size = rows.shape[1]
        q = size - 1 if known is None else known
        if q >= size:
            continue
        order = scene.given.noise.permuted(np.broadcast_to(np.arange(codes.shape[1]), codes.shape), axis=1)
        left = np.take_along_axis(codes, order, axis=1)[:, q:]
        ratio = scene.ratio[left]
        believed = _times(left) * ratio / ratio.sum(axis=1, keepdims=True)
        over = (believed > scene.bounds[left] * (1 + 1e-9)).any(axis=1)
        yield believed.max(axis=1), over.astype(np.int64), size - q


def _times(codes: Ints) -> Ints:
    """How often each slot's value stands in its row (b, t): sorted runs, so that large buckets stay cheap."""
    ordered = np.sort(codes, axis=1)
    new = np.ones(ordered.shape, dtype=bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = np.cumsum(new.ravel()) - 1
    lengths = np.bincount(run)
    times = lengths[run].reshape(codes.shape)
    found = np.empty_like(times)
    np.put_along_axis(found, np.argsort(codes, axis=1, kind="stable"), times, axis=1)
    return np.asarray(found)


def _point(scene: Buckets, known: int) -> dict[str, float]:
    """Mean certainty over the records left, measured and by the formula's worst case."""
    measured = theory = 0.0
    records = 0
    for (rows, codes), (top, _, left) in zip(_alive(scene, known), _measured(scene, known), strict=True):
        worst = _times(codes).max(axis=1) / (rows.shape[1] - known + scene.fakes)
        measured += float(top.sum()) * left
        theory += float(np.minimum(worst, 1).sum()) * left
        records += len(top) * left
    return {"known": known, "theory": theory / max(1, records), "measured": measured / max(1, records)}


def _alive(scene: Buckets, known: int) -> list[tuple[Ints, Ints]]:
    return [(rows, codes) for rows, codes in scene.classes if rows.shape[1] > known]


def _attack(learnt: Learnt[Buckets]) -> list[Finding]:
    return attack(learnt.scene)


ADVERSARY = Adversary(NAME, KNOWS, promised=False, attack=_attack)
