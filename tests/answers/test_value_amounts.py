"""SUM and AVG of a sensitive number, from the counts of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import privsql
from privsql.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

NUMBER, PLACES = 12_000, 10
MOST = 6
OFF: dict[str, Any] = {"ledger": {"off": True}}
LISTED = {"values": [str(i) for i in range(MOST + 1)]}
KINDS: dict[str, dict[str, Any]] = {
    "bucketize": {"threshold": 0.5, "set": OFF},
    "up": {
        "mechanism": "randomize", "algorithm": "up",
        "set": {"mechanism": {"rho1": "0.35", "rho2": "0.8"}, **OFF},
    },
    "tables": {"mechanism": "randomize", "algorithm": "tables", "epsilon": 1.5, "set": {"mechanism": LISTED, **OFF}},
}  # fmt: skip


@pytest.fixture(scope="module")
def people() -> pa.Table:
    """People whose number of children differs by place; one in twenty is NULL."""
    rng = np.random.default_rng(5)
    place = rng.integers(0, PLACES, NUMBER)
    kids = rng.poisson(1 + 0.15 * place).clip(0, MOST)
    columns = {"age": rng.integers(18, 90, NUMBER), "place": [f"p{i}" for i in place], "person": np.arange(NUMBER)}
    return pa.table({**columns, "kids": pa.array(kids, mask=rng.random(NUMBER) < 0.05)})


def publish(people: pa.Table, to: Path, kind: str, seed: int = 1) -> privsql.Published:
    how = KINDS[kind]
    more = {**how["set"], "columns": {"nulls": {"kids": "value"}}, "source": {"person": "person"}}
    keywords = {**how, "set": more}
    return privsql.publish(
        people, sensitive="kids", qi=["age", "place"], to=to, seed=seed, replace=True, allow_useless=True, **keywords
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_the_truth(people: pa.Table, tmp_path: Path, kind: str) -> None:
    """Of 60 intervals of 95 % at least 52 hold: fewer happen once in 400 times."""
    place, kids = np.array(people["place"].to_pylist()), people["kids"].to_numpy()
    held, errors = 0, []
    for seed in (1, 2, 3):
        made = publish(people, tmp_path / "a.duckdb", kind, seed)
        for function, add in (("AVG", np.nanmean), ("SUM", np.nansum)):
            answer = privsql.query(made, f"SELECT place, {function}(kids) FROM data GROUP BY place")
            for name, estimate, error, low, high, *_ in answer.rows:
                true = float(add(kids[place == name]))
                held += low <= true <= high
                errors.append(abs(estimate - true) / true)
                assert error > 0
    assert held >= 52
    assert np.mean(errors) < 0.12


@pytest.mark.slow
def test_a_mean_is_the_sum_by_the_number_of_those_that_have_it(people: pa.Table, tmp_path: Path) -> None:
    made = publish(people, tmp_path / "a.duckdb", "tables")
    sql = "SELECT AVG(kids), SUM(kids) / COUNT(kids) FROM data WHERE place = 'p3'"
    mean, *_, other = [one for one in privsql.query(made, sql).rows[0] if one is not None][:5]
    assert mean == pytest.approx(other, rel=0.05)
    assert privsql.query(made, "SELECT AVG(kids) FROM data WHERE kids IN (2)").rows[0][0] == 2
    assert privsql.query(made, "SELECT AVG(kids) FROM data WHERE age > 200").rows[0][0] is None


@pytest.mark.slow
def test_nobody_knows_the_numbers_of_values_that_are_not_listed(people: pa.Table, tmp_path: Path) -> None:
    few = {"mechanism": {"values": ["0", "1", "2"]}, **OFF}
    made = privsql.publish(
        people,
        sensitive="kids",
        qi=["age", "place"],
        to=tmp_path / "a.duckdb",
        seed=1,
        **KINDS["tables"] | {"set": few},
    )
    for condition in ("", " WHERE kids < 3", " WHERE kids IN (1, 5)"):
        with pytest.raises(UsageError, match=r"values that are not listed, .* WHERE kids IN \(\.\.\)"):
            privsql.query(made, f"SELECT AVG(kids) FROM data{condition}")
    assert 1 < privsql.query(made, "SELECT AVG(kids) FROM data WHERE kids IN (1, 2)").rows[0][0] < 2


def test_other_sums_are_refused_by_name(people: pa.Table, tmp_path: Path) -> None:
    made = publish(people, tmp_path / "a.duckdb", "bucketize")
    for sql in ("SELECT AVG(kids + 1) FROM data", "SELECT SUM(kids * age) FROM data", "SELECT MEDIAN(kids) FROM data"):
        with pytest.raises(UsageError):
            privsql.query(made, sql)
    with pytest.raises(UsageError, match=r"AVG needs another estimator: .*linear"):
        privsql.query(made, "SELECT AVG(kids) FROM data", estimator="baseline")


@pytest.mark.slow
def test_persons_are_counted_where_each_has_one_record(people: pa.Table, tmp_path: Path) -> None:
    made = publish(people, tmp_path / "a.duckdb", "bucketize")
    sql = "SELECT place, COUNT({}) FROM data WHERE kids > 1 GROUP BY place"
    assert privsql.query(made, sql.format("DISTINCT person")).rows == privsql.query(made, sql.format("*")).rows
    without = privsql.publish(
        people, sensitive="kids", qi=["age"], to=tmp_path / "b.duckdb", seed=1, threshold=0.6,
        set={"columns": {"nulls": {"kids": "value"}}, **OFF},
    )  # fmt: skip
    with pytest.raises(UsageError, match="column 'person' is not in the release"):
        privsql.query(without, sql.format("DISTINCT person").replace("place", "age"))
