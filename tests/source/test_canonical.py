"""What compares equal is published the same: the order of rows tells nothing, whatever type a column has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pytest

from support.commands import specification, succeeded, warehouse
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = 800
SIZE = 8
MECHANISMS = {
    "bucketize": f'threshold = "1/{SIZE}"\nmin_bucket_size = {SIZE}\nmax_bucket_size = {SIZE}\nalgorithm = "one-size"',
    "randomize": 'kind = "randomize"\nalgorithm = "up"\nrho1 = "0.2"\nrho2 = "0.5"',
    "permute": 'kind = "permute"\nk = 4\ne = 3',
}
# Two ways to write each of two values of a type, that compare equal where the type allows that.
WAYS = {
    "DOUBLE": ("0.0::DOUBLE", "'-0.0'::DOUBLE", "'nan'::DOUBLE", "'-nan'::DOUBLE"),
    "FLOAT": ("0.0::FLOAT", "'-0.0'::FLOAT", "'nan'::FLOAT", "'-nan'::FLOAT"),
    "DECIMAL(9,2)": ("1::DECIMAL(9,2)", "1.00::DECIMAL(9,2)", "'2'::DECIMAL(9,2)", "2.000::DECIMAL(9,2)"),
    "VARCHAR COLLATE NOCASE": ("'a'", "'A'", "'b'", "'B'"),
    "TIMESTAMP WITH TIME ZONE": (
        "'2020-01-01 12:00:00+00'::TIMESTAMPTZ", "'2020-01-01 13:00:00+01'::TIMESTAMPTZ",
        "'2021-01-01 12:00:00+00'::TIMESTAMPTZ", "'2021-01-01 07:00:00-05'::TIMESTAMPTZ",
    ),
    "BOOLEAN": ("true", "1::BOOLEAN", "false", "0::BOOLEAN"),
}  # fmt: skip


def published(folder: Path, kind: str, mechanism: str) -> Path:
    """People whose value decides which way their attribute is written: the order would tell it."""
    one, other, two, two_other = WAYS[kind]
    warehouse(
        folder / "w.duckdb",
        f"CREATE TABLE people (attribute {kind}, disease INTEGER)",
        f"""INSERT INTO people SELECT CASE
              WHEN i % 2 = 0 THEN CASE WHEN i // 2 % {SIZE} < {SIZE // 2} THEN {one} ELSE {other} END
              ELSE CASE WHEN i // 2 % {SIZE} < {SIZE // 2} THEN {two_other} ELSE {two} END END,
            i // 2 % {SIZE} FROM range({PEOPLE}) t(i)""",
    )
    columns = 'quasi_identifiers = ["attribute"]\nsensitive = "disease"'
    spec = specification(
        folder, source='database = "w.duckdb"\ntable = "people"', columns=columns, mechanism=MECHANISMS[mechanism]
    )
    succeeded("publish", spec, "--seed", 3)
    succeeded("verify", folder / "ill.duckdb", "--source", spec)
    return folder / "ill.duckdb"


def bits(value: object) -> object:
    """What tells two stored values apart."""
    if not isinstance(value, float):
        return value
    return np.float64(value).tobytes() if math.isnan(value) else (value, math.copysign(1, value))


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow(MECHANISMS))
@pytest.mark.parametrize("kind", rest_slow([kind for kind in WAYS if "COLLATE" not in kind]))
def test_equal_values_are_published_alike(tmp_path: Path, kind: str, mechanism: str) -> None:
    table = "perturbed" if mechanism == "randomize" else "qit"
    with duckdb.connect(str(published(tmp_path, kind, mechanism)), read_only=True) as db:
        stored = [bits(value) for (value,) in db.execute(f"SELECT attribute FROM {table}").fetchall()]
    assert len(set(map(str, stored))) <= 2, set(map(str, stored))


@pytest.mark.slow
def test_a_collation_merges_nothing_and_orders_nothing(tmp_path: Path) -> None:
    """'a' and 'A' are different text: they are published as they are, in an order of their own."""
    with duckdb.connect(str(published(tmp_path, "VARCHAR COLLATE NOCASE", "bucketize")), read_only=True) as db:
        rows = db.execute("SELECT bid, attribute FROM qit").fetchall()
    assert {value for _, value in rows} == {"a", "A", "b", "B"}
    assert rows == sorted(rows)
