"""Rounded quasi-identifiers: which questions keep bins whole, and what bounds sums and means have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import privsql
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBER = 3000
BINS = {
    "age": {"top": 90},
    "income": {"round": 1000, "bottom": 5000, "top": 100000},
    "wage": {"round": 25},
    "bmi": {"round": 0.5},
    "day": "month",
}


@pytest.fixture(scope="module")
def people() -> pa.Table:
    rng = np.random.default_rng(1)
    income = np.exp(rng.normal(10, 0.7, NUMBER))
    columns = {
        "age": rng.integers(18, 100, NUMBER),
        "income": income,
        "wage": (income / 10).astype(np.int64),
        "bmi": rng.normal(27, 5, NUMBER).round(1),
        "day": np.datetime64("2022-01-01") + rng.integers(0, 800, NUMBER),
        "ill": rng.choice(["no", "flu", "hiv", "x"], NUMBER, p=[0.4, 0.3, 0.1, 0.2]),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def release(people: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[privsql.Release]:
    """A release of the people, open."""
    to = tmp_path_factory.mktemp("rounded") / "people.duckdb"
    made = privsql.publish(
        people,
        sensitive="ill",
        qi=[*BINS],
        threshold=0.6,
        to=to,
        seed=1,
        set={"ledger": {"off": True}, "columns": {"bins": BINS}},
    )
    assert privsql.verify(to, made.spec).ok
    with privsql.open(to) as opened:
        yield opened


def months(people: pa.Table) -> np.ndarray:
    """The months since 1970 of each day."""
    return np.asarray(people["day"].to_numpy().astype("datetime64[M]").astype(int))


@pytest.mark.parametrize(("name", "half"), [("wage", 12.5), ("bmi", 0.25)])
def test_bounds_of_means_hold(people: pa.Table, release: privsql.Release, name: str, half: float) -> None:
    true = float(np.mean(people[name].to_numpy()))
    (estimate, error, low, high), *_ = release.query(f"SELECT AVG({name}) FROM data").rows
    assert error is None
    assert (low, high) == (pytest.approx(estimate - half), pytest.approx(estimate + half))
    assert low <= true <= high
    assert abs(estimate - true) < half / 10
    (total, _, low, high), *_ = release.query(f"SELECT SUM({name}) FROM data").rows
    assert low <= true * NUMBER <= high
    assert total == pytest.approx(estimate * NUMBER)


def test_nothing_bounds_what_was_cut(release: privsql.Release) -> None:
    answer = release.query("SELECT AVG(age), MIN(age), MAX(age), AVG(income) FROM data")
    first = dict(zip(answer.columns, answer.rows[0], strict=True))
    ends = {name: one for name, one in first.items() if name.endswith(("low", "high"))}
    assert [one is None for one in ends.values()] == [False, True, False, False, False, True, True, True]
    assert any("numbers cut at 90" in note for note in answer.notes)


def test_estimates_of_rounded_numbers_have_wider_intervals(people: pa.Table, release: privsql.Release) -> None:
    wage, ill = people["wage"].to_numpy(), np.array(people["ill"].to_pylist())
    (estimate, error, low, high), *_ = release.query("SELECT AVG(wage) FROM data WHERE ill = 'flu'").rows
    assert low <= wage[ill == "flu"].mean() <= high
    assert high - estimate > 1.9 * error + 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("income >= 49500", lambda t: t["income"].to_numpy() >= 49500),
        ("wage >= 1013", lambda t: t["wage"].to_numpy() >= 1013),
        ("wage > 1012", lambda t: t["wage"].to_numpy() >= 1013),
        ("bmi < 25.25", lambda t: t["bmi"].to_numpy() < 25.25),
        ("age >= 90", lambda t: t["age"].to_numpy() >= 90),
        ("age BETWEEN 20 AND 29", lambda t: (t["age"].to_numpy() >= 20) & (t["age"].to_numpy() < 30)),
        ("quarter(day) = 2", lambda t: months(t) // 3 % 4 == 1),
        ("date_trunc('month', day) = '2022-03-01'", lambda t: months(t) == 626),
        ("extract(year FROM day) = 2023", lambda t: months(t) // 12 == 53),
        ("strftime(day, '%Y-%m') = '2022-03'", lambda t: months(t) == 626),
    ],
)  # fmt: skip
def test_whole_bins_are_counted_exactly(
    people: pa.Table, release: privsql.Release, condition: str, holds: object
) -> None:
    assert callable(holds)
    rows = release.query(f"SELECT COUNT(*) FROM data WHERE {condition}").rows
    assert rows[0][0] == int(holds(people).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    [
        "COUNT(*) FROM data WHERE income >= 50000",
        "COUNT(*) FROM data WHERE income > 49500",  # no double is the next one
        "COUNT(*) FROM data WHERE income < 5000",
        "COUNT(*) FROM data WHERE age > 90",
        "COUNT(*) FROM data WHERE wage >= 1012",
        "COUNT(DISTINCT wage) FROM data",
        "STDDEV(wage) FROM data",
        "COUNT(*) FROM data WHERE dayofweek(day) = 2",
        "COUNT(*) FROM data WHERE date_trunc('week', day) = '2022-01-03'",
        "COUNT(*) FROM data WHERE strftime(day, '%d') = '01'",
    ],
)
def test_questions_that_cut_a_bin_are_refused(release: privsql.Release, question: str) -> None:
    with pytest.raises(UsageError, match="is in"):
        release.query(f"SELECT {question}")


def test_weighted_means_of_rounded_numbers_have_no_bounds(release: privsql.Release) -> None:
    """How far an expression of rounded numbers lies from that of the source is not known."""
    answer = release.query("SELECT SUM(wage * age) / SUM(age) AS mean FROM data")
    assert answer.rows[0][0] > 0
    assert answer.rows[0][-1] is None
    with pytest.raises(UsageError, match="is in"):
        release.query("SELECT SUM(CASE WHEN wage > 1000 THEN wage END) FROM data")


@pytest.mark.slow
def test_weighted_sums_say_what_they_are_worth(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    weights = rng.lognormal(4, 1, NUMBER)
    age, ill = rng.integers(18, 80, NUMBER), rng.choice(["a", "b", "c"], NUMBER)
    table = pa.table({"age": age, "wgt": weights, "ill": ill})
    to = tmp_path / "a.duckdb"
    privsql.publish(
        table, sensitive="ill", qi=["age", "wgt"], threshold=0.6, to=to, seed=1, set={"ledger": {"off": True}}
    )
    for condition, chosen in (("", age > 0), (" WHERE age > 40 AND ill = 'a'", age > 40)):
        (note,) = privsql.query(to, f"SELECT SUM(wgt) FROM data{condition}").notes
        worth = weights[chosen].sum() ** 2 / np.square(weights[chosen]).sum()
        assert note == f"wgt weighs records: weighted sums are worth those of {worth:,.0f} of {chosen.sum():,} records"
    assert not privsql.query(to, "SELECT SUM(age) FROM data").notes


def test_what_no_cut_end_touches_is_exact(people: pa.Table, release: privsql.Release) -> None:
    """The cut part decides neither a median below it, nor figures of the numbers inside, nor groups below the top."""
    age = people["age"].to_numpy()
    inside = age[age < 90]
    asked = "MEDIAN(age), AVG(age) FILTER (WHERE age < 90), STDDEV(age) FILTER (WHERE age < 90)"
    answer = release.query(f"SELECT {asked} FROM data")
    assert answer.rests_on == "exact"
    expected = [np.median(age), inside.mean(), inside.std(ddof=1)]
    assert [answer.rows[0][one.at] for one in answer.figures] == pytest.approx(expected)
    high = release.query("SELECT MEDIAN(age) FROM data WHERE age >= 85").rows[0]
    assert high[2:] == (90, None)
    spread = release.query("SELECT STDDEV(age) FROM data")
    assert spread.rests_on == "point"
    assert "with FILTER (WHERE age < 90) it has bounds" in spread.notes[0]


@pytest.mark.parametrize("term", ["age // 10", "floor(age / 10)", "CAST(age // 10 * 10 AS BIGINT)", "age - 1"])
def test_groups_of_a_cut_column_are_exact_below_its_end(people: pa.Table, release: privsql.Release, term: str) -> None:
    answer = release.query(f"SELECT {term} AS g, COUNT(*) AS n FROM data GROUP BY 1 ORDER BY 1")
    made = {"age // 10": lambda a: a // 10, "floor(age / 10)": lambda a: a // 10, "age - 1": lambda a: a - 1}
    groups = made.get(term, lambda a: a // 10 * 10)(np.minimum(people["age"].to_numpy(), 90))
    expected = dict(zip(*np.unique(groups, return_counts=True), strict=True))
    assert {row[0]: row[1] for row in answer.rows} == expected
    assert any("holds all that is higher, too: age is cut at 90" in note for note in answer.notes)


@pytest.mark.parametrize("term", ["age % 10", "-age", "age * age", "wage // 100", "age // 10 + wage"])
def test_groups_that_mix_what_is_cut_are_refused(release: privsql.Release, term: str) -> None:
    with pytest.raises(UsageError, match="is in"):
        release.query(f"SELECT {term} AS g, COUNT(*) FROM data GROUP BY 1")
