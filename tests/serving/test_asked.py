"""Addresses: what stands in them, and what is no address of this page."""

from __future__ import annotations

import pytest

from privsql.errors import UsageError
from privsql.serving.form import COUNT, FormMeasure, ReleaseForm, join_parameters, parse_parameters, read_question
from support.loops import each


def test_what_says_nothing_is_left_out() -> None:
    assert parse_parameters(b"") == []
    assert parse_parameters(b"c0=&c1=+&c2=a+b&c2=%C3%A9&by=") == [("c2", "a b"), ("c2", "\u00e9")]


def test_lines_of_a_field_end_as_they_are_written() -> None:
    assert parse_parameters(b"sql=SELECT%0D%0A1") == [("sql", "SELECT\n1")]


@each("query", [b"c0=%ff", b"c0=%C3", b"c0=\xc3\xa9", b"c0=%00", b"%00=1", b"&".join([b"a=1"] * 2_000)], few=6)
def test_nonsense_is_one_line(query: bytes) -> None:
    with pytest.raises(UsageError, match="the address"):
        parse_parameters(query)


def test_an_estimator_that_there_is_not_is_one_line() -> None:
    form = ReleaseForm("people", (), (FormMeasure(COUNT, "How many records"),), estimators=("linear", "baseline"))
    assert read_question([("estimator", "baseline")], form).estimator == "baseline"
    assert read_question([("sql", "x"), ("estimator", "baseline")], form).estimator == "baseline"
    with pytest.raises(UsageError, match="best or one of linear, baseline, not 'bets'"):
        read_question([("estimator", "bets")], form)


@each("value", ["a b", "50%", "a&b=c", "\u00e9\u4e2d", "%zz", "+", "a\nb", "#?/"], few=9)
def test_addresses_come_back(value: str) -> None:
    pairs = [("c0", value), ("c0", "x")]
    assert parse_parameters(join_parameters(pairs).encode("ascii")) == pairs
