"""The errors of counts that a closed form predicts, and releases that it calls useless."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import privsql
from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize.precision import find_useful_threshold, predict_count_error, predict_share_error
from support.commands import refused, run

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = 30_000
SHARES = {"no": 0.6, "flu": 0.2, "cold": 0.1, "hiv": 0.05, "gout": 0.05}
OFF: dict[str, Any] = {"ledger": {"off": True}}
UP = {"mechanism": {"rho1": 0.3, "rho2": 0.6}, **OFF}
TABLES = {"mechanism": "randomize", "algorithm": "tables", "set": {"mechanism": {"values": [*SHARES]}, **OFF}}


@pytest.fixture(scope="module")
def people() -> pa.Table:
    rng = np.random.default_rng(3)
    columns = {
        "age": rng.integers(18, 90, NUMBER),
        "region": rng.choice([f"r{i}" for i in range(15)], NUMBER),
        "ill": rng.choice([*SHARES], NUMBER, p=[*SHARES.values()]),
    }
    return pa.table(columns)


def make_plan(people: pa.Table, **how: Any) -> privsql.Published:
    return privsql.plan(people, sensitive="ill", qi=["age", "region"], **{"set": OFF, **how})


@pytest.mark.parametrize("frequency", [0.01, 0.1, 0.3])
def test_the_useful_threshold_has_an_error_of_a_tenth(frequency: float) -> None:
    threshold = float(find_useful_threshold(Fraction(frequency)))
    assert predict_count_error(frequency, threshold) == pytest.approx(0.1)
    assert predict_count_error(frequency, 1) == predict_share_error(frequency, 1) == 0
    assert predict_count_error(frequency, frequency) == predict_share_error(frequency, frequency) == float("inf")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"threshold": {"default": "2*f + 0.02", "no": 1}},
        {"threshold": "1.5*f + 0.05"},
        {"threshold": "0.7"},
        {"threshold": "0.65", "algorithm": "one-size"},
    ],
    ids=["informative", "all", "optimal", "one-size"],
)
def test_counts_err_as_is_predicted(people: pa.Table, tmp_path: Path, how: dict[str, Any]) -> None:
    """The mean square of 30 counts is within a factor of 1.5 of the prediction, whose value is the worst."""
    foreseen = make_plan(people, **how).summary
    assert foreseen is not None
    line, rows = foreseen.lines["error"], people.to_pylist()
    worst = line.text.split("'")[1]
    errors = []
    for seed in (1, 2):
        privsql.publish(
            people,
            sensitive="ill",
            qi=["age", "region"],
            to=tmp_path / f"{seed}.duckdb",
            seed=seed,
            allow_useless=True,
            set=OFF,
            **how,
        )
        sql = f"SELECT region, COUNT(*) FROM data WHERE ill = '{worst}' GROUP BY region"
        for region, count, *_ in privsql.query(tmp_path / f"{seed}.duckdb", sql, estimator="linear").rows:
            true = sum(row["region"] == region and row["ill"] == worst for row in rows)
            errors.append((count - true) ** 2 / true / 500)
    error = line.figures["error"]
    assert error is not None
    assert error / 1.5 <= np.mean(errors) ** 0.5 <= error * 1.5


@pytest.mark.slow
def test_a_useless_release_is_called_so_and_needs_a_flag(people: pa.Table, tmp_path: Path) -> None:
    how: dict[str, Any] = {"threshold": {"default": "1.1*f", "no": 1}}
    foreseen = make_plan(people, **how).summary
    assert foreseen is not None
    assert foreseen.lines["error"].standing == "useless"
    with pytest.raises(
        InfeasibleError, match=r"USELESS: .* would do\. To publish it all the same, give option allow_useless"
    ):
        privsql.publish(people, sensitive="ill", qi=["age", "region"], to=tmp_path / "a.duckdb", set=OFF, **how)
    assert not [*tmp_path.iterdir()]
    made = privsql.publish(
        people, sensitive="ill", qi=["age", "region"], to=tmp_path / "a.duckdb", set=OFF, allow_useless=True, **how
    )
    assert made.summary is not None
    assert made.summary.lines["error"].standing == "useless"
    assert privsql.verify(made).ok


@pytest.mark.slow
def test_poor_counts_of_rare_values_alone_make_no_release_useless(people: pa.Table) -> None:
    """The line names the worst value; the most frequent protected one decides."""
    foreseen = make_plan(people, threshold={"default": "4*f", "no": 1, "gout": "0.055"}).summary
    assert foreseen is not None
    line = foreseen.lines["error"]
    assert line.standing == "measured"
    assert line.text.startswith("without fit, of 'gout'")
    assert line.figures["error"] is not None
    assert line.figures["error"] > 0.2


@pytest.mark.slow
def test_the_command_line_ends_in_one_line(people: pa.Table, tmp_path: Path) -> None:
    parquet.write_table(people, tmp_path / "people.parquet")
    asked = [
        "publish",
        tmp_path / "people.parquet",
        "--sensitive",
        "ill",
        "--qi",
        "age,region",
        "--set",
        "mechanism.threshold.default=1.1*f",
    ]
    asked += ["--set", "mechanism.threshold.no=1", "--to", tmp_path / "a.duckdb", "--set", "ledger.off=true"]
    refused(run(*asked), 3, "USELESS", "would do", "option allow_useless")
    assert run(*asked, "--allow-useless").code == 0


def test_noisy_tables_are_judged_by_public_figures(people: pa.Table, tmp_path: Path) -> None:
    """Values of other records change nothing, and nothing is spent on what is refused."""
    texts = []
    for table in (people, people.set_column(2, "ill", pa.array(["flu"] * NUMBER))):
        summary = make_plan(table, **TABLES, epsilon=0.05).summary
        assert summary is not None
        assert summary.lines["error"].standing == "useless"
        texts.append(summary.lines["error"].text)
    assert texts[0] == texts[1]
    with pytest.raises(InfeasibleError, match=r"An epsilon of .* would do"):
        privsql.publish(people, sensitive="ill", qi=["age", "region"], to=tmp_path / "a.duckdb", epsilon=0.05, **TABLES)


def test_no_line_says_that_precision_was_not_measured(people: pa.Table, tmp_path: Path) -> None:
    made = privsql.publish(people, sensitive="ill", qi=["age"], to=tmp_path / "a.duckdb", threshold=0.7, set=OFF)
    assert made.summary is not None
    assert made.summary.lines["error"].text.startswith("without fit, of ")
    other = privsql.plan(people, sensitive="ill", qi=["age"], mechanism="randomize", set=UP)
    assert other.summary is not None
    assert "'privsql evaluate' measures it" in other.summary.lines["error"].text
