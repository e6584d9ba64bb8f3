"""The likelihood ratio of a randomized release and its source: no false alarm, and what it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pytest

from privsql.mechanisms.perturb.checks import LikelihoodRatio, likelihood_ratio
from privsql.mechanisms.perturb.tables import PublicParameters
from support.commands import run, specification, succeeded, write
from support.hospital import SICK, wanted
from support.loops import rest_slow
from support.tampering import failed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CHECK = "values go with quasi-identifiers as in the source"
VALUES, GAMMA = 5, np.array([6.0, 12.0])


def public(records: int) -> PublicParameters:
    """Two sub-tables: all values, and all but the last one."""
    return PublicParameters(
        records=np.array([records, records]),
        gamma=GAMMA,
        rho1=np.array([0.5, 0.5]),
        sub_tables=np.array([0] * VALUES + [1] * (VALUES - 1)),
        code=np.array([*range(VALUES), *range(VALUES - 1)]),
        protected=np.ones(VALUES, dtype=bool),
        totals=np.ones(2 * VALUES - 1),
    )


def drawn(stated: PublicParameters, seed: int, retention: float = 1.0, *, shuffled: bool = False) -> LikelihoodRatio:
    """Published values of records whose values are as frequent as 5:4:3:2:1, ``retention`` times as often retained."""
    dice, n = np.random.default_rng(seed), int(stated.records[0])
    parts = [_part(stated, j, n, dice, retention, shuffled=shuffled) for j in range(2)]
    table, own, seen = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    cells, counts = np.unique(np.stack([table, own, seen]), axis=1, return_counts=True)
    return likelihood_ratio(stated, *cells, counts)


def _part(
    stated: PublicParameters, j: int, n: int, dice: np.random.Generator, retention: float, *, shuffled: bool
) -> tuple[NDArray[np.int64], ...]:
    m = int(stated.domain_sizes[j])
    own = dice.choice(m, n, p=np.arange(m, 0, -1) / (m * (m + 1) / 2))
    p = min(1.0, float(stated.retention[j]) * retention)
    seen = np.where(dice.random(n) < p, own, dice.integers(m, size=n))
    return np.full(n, j), dice.permutation(own) if shuffled else own, seen


def test_true_draws_are_never_refused_and_a_large_table_is_conclusive() -> None:
    found = [drawn(public(400), seed) for seed in range(300)]  # a false alarm in 300: less than 3e-4
    assert all(one.holds for one in found)
    assert all(one.is_conclusive for one in found)
    apart = np.array([(one.statistic - one.stated.mean) / one.stated.variance**0.5 for one in found])
    assert abs(apart.mean()) < 4.5 / len(found) ** 0.5  # false alarm 1e-5
    assert 0.8 < apart.std() < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("change", ["shuffled", "more retained", "less retained", "all retained"])
def test_other_channels_are_found(change: str) -> None:
    times = {"more retained": 1.3, "less retained": 0.7, "all retained": 9.0}.get(change, 1.0)
    found = [drawn(public(4000), seed, times, shuffled=change == "shuffled") for seed in range(20)]
    assert not any(one.holds for one in found)
    assert all(one.detectable_change < 0.3 for one in found)


def test_few_records_are_inconclusive_and_say_so() -> None:
    found = drawn(public(5), 1)
    assert found.holds
    assert not found.is_conclusive
    assert str(found).startswith("inconclusive")
    empty = np.zeros(0, dtype=np.int64)
    assert str(likelihood_ratio(public(5), empty, empty, empty, empty)).startswith("inconclusive")


def test_a_value_that_its_sub_table_does_not_have_is_found() -> None:
    one = np.array([1])
    found = likelihood_ratio(public(5), one, one * (VALUES - 1), one * 0, one)
    assert found.strangers == 1
    assert not found.holds


# Releases ---


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", rest_slow(["up", "pp"]))
def test_a_shuffled_column_is_found_and_the_source_passes(tmp_path: Path, algorithm: str) -> None:
    n = 4200
    write(tmp_path / "people.parquet", f"SELECT * REPLACE (row_number() OVER () AS zip) FROM ({SICK.format(n=n)})")
    spec = specification(tmp_path, mechanism=wanted(algorithm))
    succeeded("publish", spec, "--seed", 1)
    shown = succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json
    compared = next(check["compared"] for check in shown["checks"] if CHECK in check["name"])
    assert compared.startswith("4,200 records")
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE t AS SELECT * FROM '{tmp_path / 'people.parquet'}'")
        db.execute("CREATE TABLE u AS SELECT disease, row_number() OVER (ORDER BY hash(zip)) AS zip FROM t")
        db.execute(
            f"COPY (SELECT t.age, t.sex, t.zip, u.disease FROM t JOIN u USING (zip)) TO '{tmp_path / 'people.parquet'}'"
        )
    found = failed(run("verify", tmp_path / "ill.duckdb", "--source", spec, "--json"))
    assert any(CHECK in name for name in found)
