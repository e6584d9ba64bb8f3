"""Which rows an answer has may be an estimate, and refusals name the question that was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import privsql
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBER = 600


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[privsql.Release]:
    """A release of persons, of whom one record each is published."""
    people = pa.table({
        "patient": [i // 2 for i in range(NUMBER)],
        "region": [f"r{i % 3}" for i in range(NUMBER)],
        "ill": [f"d{i * i % 11 % 7}" for i in range(NUMBER)],
    })  # fmt: skip
    folder = tmp_path_factory.mktemp("choice")
    (folder / "regions.csv").write_text("region,place\nr0,a\nr1,b\n")
    keys = {"ledger": {"off": True}, "source": {"person": "patient", "persons": "one", "population": "town"}}
    privsql.publish(
        people, sensitive="ill", qi=["region"], threshold=0.5, to=folder / "r.duckdb", seed=1, set=keys
    )  # fmt: skip
    with privsql.open(folder / "r.duckdb", [folder / "regions.csv"]) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "rests_on"),
    [
        ("SELECT region FROM town GROUP BY region ORDER BY COUNT(*) DESC LIMIT 2", "exact"),
        ("SELECT region FROM town WHERE ill = 'd1' GROUP BY region ORDER BY COUNT(*) DESC LIMIT 2", "point"),
        ("SELECT region FROM town GROUP BY region ORDER BY COUNT(*) FILTER (WHERE ill = 'd1') LIMIT 2", "point"),
        ("SELECT region FROM town GROUP BY region HAVING COUNT(*) FILTER (WHERE ill = 'd1') > 3", "point"),
        ("SELECT region, COUNT(*) FROM town GROUP BY 1 HAVING COUNT(*) FILTER (WHERE ill = 'd1') > 3", "interval"),
    ],
)
def test_names_that_an_estimate_chose_are_not_exact(release: privsql.Release, question: str, rests_on: str) -> None:
    answer = release.query(question)
    assert answer.rests_on == rests_on
    assert ("which rows are shown is itself an estimate" in answer.notes) == (rests_on != "exact")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("SELECT COUNT(DISTINCT patient) FROM town", "COUNT(DISTINCT person) counts persons"),
        ("SELECT COUNT(DISTINCT regin) FROM town", "did you mean 'region'?"),
        ("SELECT COUNT(*) FROM towm", "there is no table 'towm' here, did you mean 'town'?"),
        ("SELECT COUNT(*) FROM town JOIN region ON town.region = region.region", "did you mean 'regions'?"),
    ],
)
def test_refusals_name_what_was_probably_meant(release: privsql.Release, question: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        release.query(question)


def test_persons_are_counted_as_the_refusal_says(release: privsql.Release) -> None:
    assert release.query("SELECT COUNT(DISTINCT person) FROM town").rows[0][0] == NUMBER // 2


def test_different_sensitive_values_have_a_message_of_their_own(tmp_path: Path) -> None:
    people = pa.table({"age": [i % 20 for i in range(NUMBER)], "wage": [i * 37 % 701 for i in range(NUMBER)]})
    to = tmp_path / "wages.duckdb"
    keys = {"ledger": {"off": True}, "mechanism": {"kind": "permute", "k": 5, "e": 20}}
    privsql.publish(people, sensitive="wage", qi=["age"], to=to, seed=1, set=keys)
    with pytest.raises(UsageError, match="different values of a sensitive column are not counted here"):
        privsql.query(to, "SELECT COUNT(DISTINCT wage) FROM data")
