"""One record of each person: who knows how it was chosen, but not the key, learns nothing of which one it is."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import privsql
from privsql.attacks import adversaries
from privsql.keyed_random import Key
from support.commands import write

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.attacks.scene import Finding

PERSONS, VALUES, LISTED = 3000, 25, 5  # a bucket of five different values: the threshold is .2


def simulated(times: int, *, keyed: bool) -> Finding:
    """Persons with so many records each, of whom the one with the smallest hash lies in a bucket with four others."""
    rng = np.random.default_rng(times)
    values = rng.integers(0, VALUES, (PERSONS, times))
    public = rng.random((PERSONS, VALUES))
    hashes = rng.random(values.shape) if keyed else np.take_along_axis(public, values, axis=1)
    taken = np.take_along_axis(values, hashes.argmin(axis=1)[:, None], axis=1)
    others = rng.random(public.shape).argsort(axis=1)
    rest = others[others != taken].reshape(PERSONS, -1)[:, : LISTED - 1]
    codes = np.concatenate([taken, rest], axis=1)
    pos, prior = np.repeat(np.arange(PERSONS), LISTED), np.full(codes.size, 1 / LISTED)
    known = np.take_along_axis(public, codes, axis=1).ravel()
    posterior = adversaries.weigh_by_hash(pos, prior, known, np.full(codes.size, times))
    return adversaries.make_choice_finding(pos, prior, posterior, (codes == taken).ravel())


@pytest.mark.parametrize(("times", "right"), [(2, 0.34), (5, 0.57), (20, 0.88)])
def test_a_hash_that_anybody_can_compute_tells_the_value_and_a_keyed_one_does_not(times: int, right: float) -> None:
    """The threshold is .2; six standard deviations of 3,000 guesses are .05."""
    open_, secret = simulated(times, keyed=False), simulated(times, keyed=True)
    assert open_.right == pytest.approx(right, abs=0.05)
    assert open_.exceeded
    assert open_.outcome == "BROKEN"
    assert secret.right == pytest.approx(0.2, abs=0.05)
    assert not secret.exceeded


@pytest.mark.parametrize("times", [1, 2, 3])
def test_whatever_the_number_of_records_the_posterior_is_the_bucket_s(times: int) -> None:
    """All tables of two persons, all orders of the hashes: the belief in a listed value is its share of the bucket."""
    keyed: dict[tuple[str, ...], dict[str, Fraction]] = {}
    public: dict[tuple[str, ...], dict[str, Fraction]] = {}
    for values in product("xyz", repeat=times):
        orders = list(permutations(range(times)))
        for other, order in product("xyz", orders):
            taken = values[min(range(times), key=order.__getitem__)]
            _count(keyed, taken, other)
            _count(public, min(values), other)  # as if x had the smallest of all hashes, and z the largest
    for bucket, counts in keyed.items():
        share = {value: Fraction(bucket.count(value), 2) for value in bucket}
        assert {value: number / sum(counts.values()) for value, number in counts.items()} == share
    believed = public["x", "z"]["x"] / sum(public["x", "z"].values())
    assert believed == Fraction(3**times - 2**times, 3**times - 2**times + 1)  # more than 1/2, if there are several
    assert adversaries.weigh_by_hash(
        np.zeros(2, int), np.full(2, 0.5), np.array([0.2, 0.8]), np.full(2, times)
    ) == pytest.approx([4 ** (times - 1) / (4 ** (times - 1) + 1), 1 / (4 ** (times - 1) + 1)])


def _count(found: dict[tuple[str, ...], dict[str, Fraction]], taken: str, other: str) -> None:
    counts = found.setdefault(tuple(sorted((taken, other))), {})
    counts[taken] = counts.get(taken, Fraction(0)) + 1


def attacked(folder: Path) -> Finding:
    """The adversary against a release of one record each of 150 persons with eight each."""
    write(
        folder / "v.parquet",
        "SELECT i % 150 AS who, i % 150 AS age, 'd' || hash(i) % 20 AS ill FROM range(1200) t(i)",
    )
    spec = privsql.build(
        {
            "source": {"file": str(folder / "v.parquet"), "person": "who", "persons": "one"},
            "columns": {"quasi_identifiers": ["age"], "sensitive": "ill"},
            "mechanism": {"threshold": "1/4", "algorithm": "one-size"},
            "release": {"to": str(folder / "r.duckdb")},
        }
    )
    privsql.publish(spec)
    found = privsql.attack(folder / "r.duckdb", spec)
    return next(one for one in found.findings if one.adversary == adversaries.CHOICE_ADVERSARY.name)


@pytest.mark.slow
def test_a_release_is_attacked_by_who_knows_how_records_are_chosen(tmp_path: Path) -> None:
    found = attacked(tmp_path)
    assert (found.attacked, found.exceeded, found.promised) == (150, False, True)
    assert found.right == pytest.approx(found.mean, abs=0.2)


@pytest.mark.slow
def test_a_release_that_was_made_without_a_key_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Key, "word", lambda *_, **__: pa.table({"word": [""]}))
        found = attacked(tmp_path)
    assert found.exceeded
    assert found.right is not None
    assert found.right > 0.5
