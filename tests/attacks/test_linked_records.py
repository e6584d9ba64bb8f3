"""The adversary who knows which records belong to one person: by hand, and by brute force on a release."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy

from privsql.mechanisms.bucketize.attacks import multiply_buckets
from support.commands import fetched, rows, run, specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

NAME = "records of one person"
# Every record is alone with its quasi-identifiers but for the last two. Nine in ten persons have one disease only.
VISITS = """
SELECT i % 150 AS patient, CAST(20 + least(i, 358) % 60 AS INTEGER) AS age,
  CAST(least(i, 358) // 60 AS INTEGER) AS ward,
  'd' || CASE WHEN i % 10 > 0 THEN (i % 150) * 7 // 3 % 8 ELSE i // 10 % 8 END AS disease FROM range(360) t(i)
"""


def asked(folder: Path, persons: str) -> Path:
    """A specification of a release whose records are of persons."""
    write(folder / "visits.parquet", VISITS)
    return specification(
        folder,
        source=f'file = "visits.parquet"\n{persons}',
        columns='quasi_identifiers = ["age", "ward"]\nsensitive = "disease"',
        mechanism='threshold = "1/4"\n[ledger]\noff = true',
    )


def test_beliefs_are_those_that_follow_by_hand() -> None:
    """Values a to e of frequencies 0.4, 0.2, 0.2, 0.1, 0.1."""
    listed = scipy.sparse.csr_array([[1, 1, 1, 1, 0], [1, 1, 0, 1, 1], [2, 1, 1, 0, 0], [0, 0, 0, 0, 2]])
    shares = np.array([0.4, 0.2, 0.2, 0.1, 0.1])
    person, bucket = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3]), np.array([0, 1, 2, 2, 0, 3, 0, 1, 2])
    found = multiply_buckets(listed, shares, np.ones(5), person, bucket)
    by_hand = [
        [1 / 7, 2 / 7, 0, 4 / 7, 0],  # buckets 0 and 1 share a, b, d: 1/0.4, 1/0.2, 1/0.1
        [1, 0, 0, 0, 0],  # two records in bucket 2: only a is listed twice
        [1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 2],  # buckets 0 and 3 share nothing, so the records differ
        [1 / 3, 2 / 3, 0, 0, 0],  # buckets 0, 1 and 2 share a, b: 2/0.4^2, 1/0.2^2
    ]
    assert found == pytest.approx(np.array(by_hand), abs=1e-12)
    real = np.array([1.0, 1.0, 1.0, 0.5, 1.0])  # d is real half as often as the others
    (first, *_) = multiply_buckets(listed, shares, real, person, bucket)
    assert first == pytest.approx(np.array([1 / 4, 1 / 2, 0, 1 / 4, 0]), abs=1e-12)  # 2.5, 5 and 10/4


@pytest.mark.slow
def test_a_release_gives_what_brute_force_gives(tmp_path: Path) -> None:
    """From its tables in fractions, for all persons of whom several records are alone with their quasi-identifiers."""
    spec = asked(tmp_path, 'person = "patient"\npersons = "count"')
    succeeded("publish", spec, "--seed", 3)
    release = tmp_path / "ill.duckdb"
    counts: dict[int, dict[str, int]] = {}
    for bid, disease, count in rows(release, "SELECT bid, disease, count FROM st"):
        counts.setdefault(bid, {})[disease] = count
    total = {value: sum(of.get(value, 0) for of in counts.values()) for of in counts.values() for value in of}
    share = {value: Fraction(number, sum(total.values())) for value, number in total.items()}
    placed = {(age, ward): bid for age, ward, bid in rows(release, "SELECT age, ward, bid FROM qit")}
    owned: dict[int, list[tuple[int, str]]] = {}
    listed = f"SELECT * FROM ({VISITS}) QUALIFY count(*) OVER (PARTITION BY age, ward) = 1"
    for patient, age, ward, disease in fetched(listed):
        owned.setdefault(patient, []).append((placed[age, ward], disease))
    beliefs, right, above = [], [], 0
    for held in (held for held in owned.values() if len(held) > 1):
        places = [bid for bid, _ in held]
        weights = {
            value: prod(
                (counts[bid].get(value, 0) - places[:number].count(bid) for number, bid in enumerate(places)),
                start=share[value] ** (1 - len(held)),
            )
            for value in share
        }
        if not any(weights.values()):
            weights = {
                value: sum(Fraction(counts[bid].get(value, 0), sum(counts[bid].values())) for bid in places)
                for value in share
            }
        best = max(weights.values())
        guesses = [value for value, weight in weights.items() if weight == best]
        beliefs.append(best / sum(weights.values()))
        above += beliefs[-1] > Fraction(1, 4)
        right.append([sum(disease == guess for _, disease in held) / len(held) for guess in guesses])
    done = run("attack", release, "--source", spec, "--json")
    assert done.code == 0, done.err
    (found,) = [one for one in done.json["adversaries"] if one["adversary"] == NAME]
    assert (found["attacked"], found["unit"], found["promised"]) == (len(beliefs), "persons", False)
    assert found["mean"] == pytest.approx(float(sum(beliefs) / len(beliefs)))
    assert found["highest"] == pytest.approx(float(max(beliefs)))
    assert found["above"] == pytest.approx(above / len(beliefs))
    assert sum(map(min, right)) / len(right) - 1e-9 <= found["right"] <= sum(map(max, right)) / len(right) + 1e-9
    assert found["above"] > 0.2
    assert any("2 records each" in note for note in found["notes"])
    assert "takes them to have the same sensitive value" in found["knows"]


@pytest.mark.slow
def test_it_needs_a_source_that_names_persons_and_persons_with_several_records(tmp_path: Path) -> None:
    """A release does not name persons; where each has one record there is nothing to multiply."""
    release, key = tmp_path / "ill.duckdb", tmp_path / "key"
    spec = asked(tmp_path, 'person = "patient"\npersons = "one"')
    succeeded("publish", spec, "--key-file", key)
    for more in ((), ("--source", spec, "--key-file", key)):
        assert NAME not in [
            one["adversary"] for one in succeeded("attack", release, *more, "--json").json["adversaries"]
        ]
    spec = asked(tmp_path, "")
    succeeded("publish", spec, "--seed", 3, "--replace")
    for more in ((), ("--source", spec)):
        shown = succeeded("attack", release, *more, "--json").json["adversaries"]
        (found,) = [one for one in shown if one["adversary"] == NAME]
        assert (found["attacked"], found["mean"]) == (0, None)
        assert "source.person" in found["notes"][0]
    named = asked(tmp_path, 'person = "patient"\npersons = "count"')  # whoever attacks knows persons from elsewhere
    shown = succeeded("attack", release, "--source", named, "--json").json["adversaries"]
    assert [one["attacked"] > 100 for one in shown if one["adversary"] == NAME] == [True]
