"""What all other records teach of a record, without a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from privsql.attacks.population import guess_from_others
from privsql.engine.database import Options
from privsql.engine.open import open_engine
from privsql.engine.sqlfiles import Field, Roles

if TYPE_CHECKING:
    from pathlib import Path

ROLES = Roles((Field("ward", "BIGINT"),), (Field("ill", "VARCHAR"),))


def guessed(folder: Path, ward: list[int | None], ill: list[str]) -> float | None:
    """The share that is guessed right."""
    with open_engine(folder, Options()) as db:
        db.register_arrow("records", pa.table({"q0": pa.array(ward, pa.int64()), "s0": ill}))
        return guess_from_others(db, ROLES)


def test_what_a_column_determines_is_guessed_right(tmp_path: Path) -> None:
    """Of every ward (NULL is one) 9 in 10 have its own illness: these are guessed right, and the others wrong."""
    wards = (None, 1, 2)
    ward = [w for w in wards for _ in range(100)]
    ill = [f"v{k}" if i % 10 else f"v{(k + 1) % 3}" for k in range(3) for i in range(100)]
    assert guessed(tmp_path, ward, ill) == 0.9


def test_a_record_teaches_nothing_of_itself(tmp_path: Path) -> None:
    """A column that names every record would tell its own value; all other records tell nothing of it.

    5,000 coins: guesses from others are right for half of them, within 5 standard deviations.
    """
    coins = np.random.default_rng(5).integers(0, 2, 5_000)
    share = guessed(tmp_path, list(range(5_000)), [f"v{one}" for one in coins.tolist()])
    assert share == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(5_000))


def test_one_value_leaves_nothing_to_guess(tmp_path: Path) -> None:
    assert guessed(tmp_path, [1, 2], ["v", "v"]) is None
