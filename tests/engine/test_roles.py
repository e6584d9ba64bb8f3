"""Columns by role: how those of two tables differ is said in words."""

from __future__ import annotations

import pytest

from privsql.engine.sqlfiles import Field, Roles

AGE, ZIP, ILL = Field("age", "INTEGER"), Field("zip", "VARCHAR"), Field("ill", "VARCHAR")
OWN = Roles((AGE, ZIP), (ILL,))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Roles((AGE, ZIP), (ILL,)), ""),
        (Roles((Field("age", "BIGINT"), ZIP), (ILL,)), "column 'age' is INTEGER, not BIGINT"),
        (Roles((AGE,), (ILL,)), "column 'zip' is not among the other's"),
        (Roles((AGE, ZIP, Field("sex", "VARCHAR")), (ILL,)), "column 'sex' is missing"),
        (Roles((ZIP, AGE), (ILL,)), "columns have other roles, or stand in another order"),
        (Roles((AGE, ILL), (ZIP,)), "columns have other roles, or stand in another order"),
    ],
)
def test_how_columns_differ_is_said(other: Roles, words: str) -> None:
    assert OWN.explain_difference(other) == words
    assert (words == "") == (other == OWN)
