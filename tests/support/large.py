"""A table of 40,000 records whose sensitive value goes with their columns, and questions of every size about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

RECORDS, VALUES = 40_000, 40
CONDITIONS = [
    *(f"zip BETWEEN {at} AND {at + width}" for width in (0, 1, 24) for at in range(0, 500, 25)),
    *(f"region = {at}" for at in range(12)), *(f"age BETWEEN {at} AND {at + 9}" for at in range(20, 90, 10)),
    *(f"zip = {at} AND sex = 'f'" for at in range(0, 500, 25)), *(f"age < {at}" for at in (25, 40, 54, 70, 88)),
    "sex = 'f'", "sex = 'm'", "zip < 400",
]  # fmt: skip
PUBLISHED: dict[str, Any] = {
    "sensitive": "disease", "qi": ["sex", "age", "region", "zip"], "release.name": "people", "ledger.off": True,
}  # fmt: skip


def make_people(seed: int) -> pa.Table:
    """Records whose value goes with sex, age and region: odds differ by a factor of about 1.5."""
    rng = np.random.default_rng(seed)
    sex, age, region = rng.integers(0, 2, RECORDS), rng.integers(18, 90, RECORDS), rng.integers(0, 12, RECORDS)
    odds = -np.log(np.arange(VALUES) + 3.0) + (sex - 0.5)[:, None] * rng.normal(0, 0.4, VALUES)
    odds += ((age - 54) / 21)[:, None] * rng.normal(0, 0.4, VALUES) + rng.normal(0, 0.4, (12, VALUES))[region]
    ill = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
    columns = {"sex": np.where(sex, "m", "f"), "age": age, "region": region, "zip": rng.integers(0, 500, RECORDS)}
    return pa.table({**columns, "disease": np.char.add("d", ill.astype(str))})
