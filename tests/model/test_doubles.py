"""Numbers of Arrow as doubles, and types of other engines: what does not fit is rounded, or refused in one line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsql.engine.remote import widen_types
from privsql.errors import EngineError
from privsql.model.arrays import as_doubles


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**53 + 1, None, -(2**63)], pa.int64()),
        ([2**64 - 1, 0, None], pa.uint64()),
        ([Decimal(2**100), None, Decimal(1)], pa.decimal128(38, 0)),
        ([Decimal("1.25"), None, Decimal("-3.10")], pa.decimal128(10, 2)),
        ([1.5, float("inf"), None], pa.float32()),
        (["170141183460469231731687303715884105727", "-inf", None], pa.string()),
        ([None, None], pa.int32()),
    ],
)
def test_any_number_is_a_double(values: list[Any], kind: pa.DataType) -> None:
    """The one next to it, in one array and in several; NULL is what was asked for."""
    array = pa.array(values, kind)
    expected = [np.nan if value is None else float(value) for value in values]
    for one in (array, pa.chunked_array([array[:1], array[1:]])):
        np.testing.assert_array_equal(as_doubles(one), expected)
        np.testing.assert_array_equal(
            as_doubles(one, null=0.0), [0.0 if value is None else float(value) for value in values]
        )


def test_times_that_no_other_engine_has_are_refused_by_name() -> None:
    """Nanoseconds that are whole microseconds are taken, others are not; nor are seconds beyond the microseconds."""
    whole = pa.table({"at": pa.array([1_000], pa.timestamp("ns"))})
    assert widen_types(whole)["at"].to_pylist() == [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]
    for value, unit in ((1_001, "ns"), (2**60, "s")):
        with pytest.raises(EngineError, match="column 'at' holds times") as refusal:
            widen_types(pa.table({"n": [1], "at": pa.array([value], pa.timestamp(unit))}))
        assert len(str(refusal.value).splitlines()) == 1
