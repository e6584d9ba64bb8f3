"""Sums and means of columns with public bounds: the private part by enumeration, releases and answers."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mechanisms.dp.test_concentrated import Gaussian, divergence
from mechanisms.marginals.test_marginals import rule
from privsql.dp_random import concentrated_rho
from privsql.engine.sqlfiles import Field
from privsql.mechanisms.marginals import domains, publish
from privsql.mechanisms.marginals.domains import ContingencyColumn
from privsql.mechanisms.marginals.plan import SUMMED
from privsql.mechanisms.marginals.publish import measure_sums
from support.census import PEOPLE, spec
from support.commands import fetched, refused, rows, run, succeeded, write
from support.enumeration import Enumeration, worst_ratio
from support.loops import each
from support.tampering import changed, not_verified, parameter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The private part -----------------------------------------------------------------------------------------------------

BINS = {"measures": ["pay"], "domains": {"sex": "data", "pay": {"bins": [0, 10]}}}
Person = tuple[int, int]  # sex, and the pay in two units


def law_of(people: Sequence[Person], noise: Enumeration, /, **asked: Any) -> dict[Any, float]:
    """Exact distribution of all sums; clamping the noise is a post-processing."""
    of, found = rule((2, 2), ("sex", "pay"), **BINS | asked), defaultdict[Any, float](float)
    codes = np.array([(sex, 0) for sex, _ in people], dtype=np.int64).reshape(-1, 2)
    units, each_one = np.array([[pay] for _, pay in people], dtype=np.int64), np.ones(len(people), dtype=np.int64)
    for sums, chance in noise.runs(lambda: measure_sums(codes, each_one, units.reshape(-1, 1), of, noise)):
        found[tuple(tuple(one.table.counts.reshape(-1).tolist()) for one in sums)] += chance
    assert math.isclose(sum(found.values()), 1)
    return found


@pytest.fixture
def two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "UNITS", 2)


@pytest.mark.usefixtures("two_units")
@each("more", list(itertools.product((0, 1), (1, 2))))
def test_no_sums_are_more_likely_than_their_share_of_epsilon(more: Person) -> None:
    most = math.exp(5 * SUMMED)
    worst = worst_ratio(
        law_of([(0, 0)], Enumeration(2), epsilon="5"), law_of([(0, 0), more], Enumeration(2), epsilon="5")
    )
    assert worst <= most * (1 + 1e-9)
    assert (worst > most * 0.99) == (more[1] == 2)  # who has all of the range spends all


@pytest.mark.usefixtures("two_units")
def test_gaussian_sums_spend_their_share_of_rho() -> None:
    asked = {"epsilon": "5", "delta": "1e-5", "noise": "gaussian"}
    rho = float(concentrated_rho(Fraction(5), Fraction(1, 10**5)) * SUMMED)
    before, after = (law_of(people, Gaussian(2), **asked) for people in ([(1, 1)], [(1, 1), (0, 2)]))
    parts = [divergence(after, before, alpha) / (alpha * rho) for alpha in (1.01, 2, 8)]
    assert 0.3 < max(parts) <= 1 + 1e-9


def test_values_are_clamped_and_what_is_no_number_is_nothing() -> None:
    column = ContingencyColumn(
        Field("pay", "DOUBLE"), None, (), (Fraction(-10), Fraction(0), Fraction(30)), measured=True
    )
    texts = pa.array(["-inf", "-10.5", "-10", "0", "29.99", "30", "1e300", "nan", None])
    assert domains.clamp_to_units(texts, column).tolist() == [
        *(0, 0, 0, 250_000, 999_750), *(1_000_000, 1_000_000, 0, 0)
    ]  # fmt: skip
    assert domains.encode_values(texts, column).tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 3]


def test_shares_of_sums_and_counts_are_the_budget() -> None:
    known = {"sex": "data", "pay": {"bins": [0, 10]}, "job": {"bins": [0, 1]}}
    asked: dict[str, Any] = {"epsilon": "1/3", "max_records": 2, "workload": [["sex", "job"]]}
    of = rule((3, 2, 2), [*known], **asked, measures=["pay", "JOB"], domains=known)
    due = of.due_sums()
    assert [(place, clique) for place, clique, _ in due[:5]] == [(1, ()), (1, (0,)), (1, (1,)), (1, (2,)), (1, (0, 2))]
    assert len(due) == 10
    assert sum(spent for _, _, spent in due) + of.counts_budget == Fraction(1, 6)


# Releases -------------------------------------------------------------------------------------------------------------

ASKED = (
    'kind = "contingency"\nepsilon = 4\nworkload = [["sex", "job"]]\nmeasures = ["income", "age"]\n'
    '[mechanism.domains]\nsex = ["F", "M"]\nage = { bins = { from = 15, to = 75, by = 5 } }\n'
    "job = { query = 'SELECT i FROM range(11) t(i)' }\n"
    "income = { bins = [0, 10000, 20000, 30000] }"
)
SOURCE = PEOPLE.replace("1000.0 * (i % 37)", "CASE WHEN i % 9 > 0 THEN 1000.0 * (i % 37) END")
CLAMPED = f"(SELECT * REPLACE (CASE WHEN income > 30000 THEN 30000 ELSE income END AS income) FROM ({SOURCE}))"


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with sums of income, clamped to 30,000, and of age."""
    folder = tmp_path_factory.mktemp("paid")
    write(folder / "people.parquet", SOURCE)
    succeeded("publish", spec(folder, ASKED), "--seed", 7)
    return folder


@pytest.mark.slow
def test_sums_and_means_lie_in_their_intervals(paid: Path) -> None:
    """Of 80 figures at 95 % at least 70 do; and most intervals are narrow."""
    inside, reach = [], []
    for measure, wide in (("income", 30_000), ("age", 60)):
        for by in ("sex", "job", "sex, job"):
            for kind in ("AVG", "SUM"):
                sql = f"SELECT {by}, {kind}({measure}) FROM {{}} GROUP BY {by}"
                truth = {row[:-1]: float(row[-1]) for row in fetched(sql.format(CLAMPED))}
                shown = succeeded("query", paid / "people.duckdb", sql.format("people"), "--json").json["rows"]
                found = {tuple(row[name] for name in by.split(", ")): row for row in shown}
                names = [name for name in shown[0] if name.endswith(("_low", "_high"))] or ["low", "high"]
                low, high = sorted(names, key=lambda name: name.endswith("high"))
                inside += [found[key][low] <= value <= found[key][high] for key, value in truth.items()]
                reach += [(found[key][high] - found[key][low]) / wide for key in truth if kind == "AVG"]
    assert len(inside) == 2 * 2 * (2 + 6 + 12)
    assert sum(inside) >= 70
    assert np.median(reach) < 0.2


@pytest.mark.slow
def test_verify_counts_sums_among_what_is_spent(paid: Path, tmp_path: Path) -> None:
    release = paid / "people.duckdb"
    succeeded("verify", release, "--source", paid / "spec.toml")
    tables = rows(release, "SELECT budget FROM privsql_sums UNION ALL SELECT budget FROM privsql_cliques")
    assert sum(Fraction(one) for (one,) in tables) == 4
    (finding,) = succeeded("attack", release, "--json").json["adversaries"]
    assert finding["above"] == 0.0
    assert finding["highest"] == pytest.approx(1 / (1 + math.exp(-4)))
    for number, change in enumerate(
        (
            "UPDATE privsql_sums SET scale = scale / 2 WHERE number = 1",
            "UPDATE privsql_sums SET budget = '1' WHERE number = 1",
            "UPDATE privsql_sums SET sums = sums[2:] WHERE number = 1",
            "UPDATE privsql_sums SET measure = 'age'",
            "DELETE FROM privsql_sums WHERE number = 3",
            parameter("measures", ["income"]),
        )
    ):
        (tmp_path / str(number)).mkdir()
        not_verified(changed(release, tmp_path / str(number), change))


@pytest.mark.slow
@each(
    ("query", "words"),
    [
        ("SELECT AVG(income) FROM people WHERE sex = 'F' AND age < 30", ["'sex', 'age'", "workload"]),
        ("SELECT SUM(income) FROM people WHERE age < 33", ["part of a bin"]),
        ("SELECT SUM(job) FROM people", ["SUM and AVG are of age, income"]),
        ("SELECT MAX(income) FROM people", ["MAX(income)"]),
        ("SELECT SUM(income + 1) FROM people", ["SUM(income + 1)"]),
    ],
)
def test_what_is_not_measured_is_refused_by_name(paid: Path, query: str, words: list[str]) -> None:
    refused(run("query", paid / "people.duckdb", query), 2, *words)


@pytest.mark.slow
def test_folders_hold_sums_and_reports_say_what_was_clamped(paid: Path, tmp_path: Path) -> None:
    succeeded("publish", paid / "spec.toml", "--seed", 7, "--to", tmp_path / "parts", "--format", "parquet")
    sql = "SELECT SUM(income) FROM people"
    one, other = (succeeded("query", to, sql, "--json").json for to in (paid / "people.duckdb", tmp_path / "parts"))
    assert one["rows"] == other["rows"]
    succeeded("report", paid / "people.duckdb", "--to", tmp_path / "r.html")
    assert "income to [0, 30000]" in (tmp_path / "r.html").read_text(encoding="utf-8")


@each(
    ("mechanism", "words"),
    [
        (ASKED.replace('measures = ["income", "age"]', 'measures = ["job"]'), ["'job' needs bins"]),
        (ASKED.replace('measures = ["income", "age"]', 'measures = ["age", "AGE"]'), ["appears twice"]),
        (ASKED.replace('measures = ["income", "age"]', 'measures = ["pay"]'), ["'pay' needs bins"]),
    ],
)
def test_a_measure_needs_public_ends(tmp_path: Path, mechanism: str, words: list[str]) -> None:
    refused(run("plan", spec(tmp_path, mechanism)), 2, *words)
