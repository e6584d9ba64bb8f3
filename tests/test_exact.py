"""privsql.exact: numbers stay what was written, and nothing inexact gets in."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.exact import MAX_DENOMINATOR, Linear, as_fraction, fraction_text, parse_linear
from privsql.mechanisms.bucketize.model import BucketProblem, floor_thresholds
from privsql.mechanisms.bucketize.parameters import Bucketize, Threshold
from support.effort import share
from support.loops import each

EXACTLY = settings(max_examples=share(300), deadline=None, derandomize=True)
finite = st.builds(lambda twos, fives: 2**twos * 5**fives, st.integers(0, 18), st.integers(0, 18))
denominators = st.one_of(
    st.integers(1, 10**6), st.integers(1, MAX_DENOMINATOR), finite, st.integers(0, 59).map((2).__pow__)
)
rationals = st.builds(Fraction, st.integers(-(10**24), 10**24), denominators)
decimals = st.builds(lambda digits, places: Fraction(digits, 10**places), st.integers(0, 10**9), st.integers(0, 9))


def floors(value: str, size: int) -> int:
    """F_iS by the package."""
    return int(floor_thresholds((as_fraction(value),), np.array([size], dtype=np.int64))[0, 0])


def test_floor_of_058_times_50_is_29() -> None:
    """In doubles it is 28."""
    assert floor(0.58 * 50) == 28
    assert floor(as_fraction("0.58") * 50) == 29
    assert floors("0.58", 50) == 29


def test_ceiling_of_the_reciprocal_of_a_49th_is_49() -> None:
    """In doubles it is 50; 49 must be a usable size."""
    assert ceil(1 / (1 / 49)) == 50
    assert ceil(1 / as_fraction("1/49")) == 49
    assert floors("1/49", 49) == 1
    problem = BucketProblem(np.full(49, 3, dtype=np.int64), (as_fraction("1/49"),) * 49)
    assert problem.sizes.tolist() == [49]


@EXACTLY
@given(st.integers(1, 10**18), st.integers(1, 10**18), st.integers(1, 10_000))
def test_staircases_are_exact_floors(numerator: int, denominator: int, size: int) -> None:
    """Also where products leave 64 bits."""
    value = Fraction(min(numerator, denominator), max(numerator, denominator))
    found = int(floor_thresholds((value,), np.array([size], dtype=np.int64))[0, 0])
    assert Fraction(found, size) <= value < Fraction(found + 1, size)


@pytest.mark.parametrize("denominator", [2**63 - 1, 2**63, 2**63 + 1, 2**90])
def test_staircases_beyond_64_bits(denominator: int) -> None:
    """A numerator or a denominator of more than 63 bits is no overflow."""
    values = (Fraction(denominator - 1, denominator), Fraction(1, denominator), Fraction(1, 2))
    found = floor_thresholds(values, np.array([2, 50], dtype=np.int64))
    assert found.tolist() == [[1, 49], [0, 0], [1, 25]]


@each(
    ("given_text", "expected"),
    [
        ("0.02", Fraction(1, 50)),
        ("1/50", Fraction(1, 50)),
        ("2e-2", Fraction(1, 50)),
        (" 0.58 ", Fraction(29, 50)),
        ("1", Fraction(1)),
        ("-0.5", Fraction(-1, 2)),
        ("0.000000000000000001", Fraction(1, 10**18)),
        (3, Fraction(3)),
        (Decimal("0.58"), Fraction(29, 50)),
        (Fraction(1, 3), Fraction(1, 3)),
        (np.int64(7), Fraction(7)),
    ],
)
def test_fraction_reads_what_was_written(given_text: object, expected: Fraction) -> None:
    """Decimals, fractions, exponents, and exact types."""
    assert as_fraction(given_text) == expected


@each(
    "wrong",
    [
        0.02,
        1.0,
        float("nan"),
        float("inf"),
        np.float64(0.5),
        True,
        None,
        [1],
        1j,
        b"0.5",
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("-Infinity"),
        "nan",
        "NaN",
        "inf",
        "-Infinity",
        "",
        " ",
        "0,5",
        "1/0",
        "1//2",
        "1/2/3",
        "0x10",
        "half",
        "1.2.3",
        "1 000",
        "0.1/0.2",
        "0.0000000000000000001",
        "1/1000000000000000001",
    ],
)
def test_fraction_refuses(wrong: object) -> None:
    """Floats were rounded already; the rest is no number or has too many digits."""
    with pytest.raises(ValueError, match=r"."):
        as_fraction(wrong)


@EXACTLY
@given(st.text(max_size=12))
def test_fraction_raises_nothing_but_valueerror(garbage: str) -> None:
    """Any text is a number or a ValueError."""
    try:
        value = as_fraction(garbage)
    except ValueError:
        return
    assert isinstance(value, Fraction)
    assert value.denominator <= MAX_DENOMINATOR


@EXACTLY
@given(rationals)
def test_text_is_exact(value: Fraction) -> None:
    """fraction(text(x)) == x for every rational with a denominator that is accepted."""
    assert as_fraction(fraction_text(value)) == value


@each(
    "value",
    [
        Fraction(1, 2**59),
        Fraction(3, 2**45),
        Fraction(5**17 + 1, 2**58),
        Fraction(10**38 + 1, 10**18),
        Fraction(8 * 1234567, 2**40) + Fraction(1, 50),
    ],
)
def test_text_keeps_all_digits_of_long_decimals(value: Fraction) -> None:
    """More than 28 significant digits: Decimal's default context would round them away."""
    assert Fraction(fraction_text(value)) == value


@each(
    ("value", "shown"),
    [
        (Fraction(1, 50), "0.02"),
        (Fraction(1, 3), "1/3"),
        (Fraction(2), "2"),
        (Fraction(0), "0"),
        (Fraction(-1, 4), "-0.25"),
        (Fraction(-2, 7), "-2/7"),
        (Fraction(1, 10**18), "0.000000000000000001"),
        (Fraction(10**20), "100000000000000000000"),
    ],
)
def test_text_is_short(value: Fraction, shown: str) -> None:
    """A decimal where there is one, never an exponent, else p/q."""
    assert fraction_text(value) == shown


EIGHT = Linear(Fraction(8), Fraction(1, 50))


@each(
    "expression",
    [
        "8*f + 0.02",
        "8*f+0.02",
        "  8 * f + 0.02\n",
        "f*8 + 0.02",
        "0.02 + 8*f",
        "0.02 + f*8",
        "0.02 - -8*f",
        "-(-8*f) + 1/50",
        "-(-8*f - 0.02)",
        "2*(4*f + 0.01)",
        "(4*f + 0.01)*2",
        "(16*f + 0.04)/2",
        "f/(1/8) + 2e-2",
        "7*f + f + 0.02",
        "9*f - f + 0.03 - 0.01",
        "(2 + 6)*f + 0.1/5",
        "--8*f + 0.02",
        "2*2*2*f + 0.2*0.1",
        "8*f + 0.02 + 0*f",
    ],
)
def test_linear_reads_variants(expression: str) -> None:
    """Order, unary minus, division, parentheses."""
    assert parse_linear(expression) == EIGHT


@each(
    ("expression", "expected"),
    [
        ("0.25", Linear(Fraction(0), Fraction(1, 4))),
        ("1/4", Linear(Fraction(0), Fraction(1, 4))),
        ("f", Linear(Fraction(1), Fraction(0))),
        ("-f", Linear(Fraction(-1), Fraction(0))),
        ("f/3", Linear(Fraction(1, 3), Fraction(0))),
        ("0.58", Linear(Fraction(0), Fraction(29, 50))),
        ("1 - f", Linear(Fraction(-1), Fraction(1))),
        ("0*f + 0.1", Linear(Fraction(0), Fraction(1, 10))),
        (1, Linear(Fraction(0), Fraction(1))),
        (Decimal("0.58"), Linear(Fraction(0), Fraction(29, 50))),
        (Fraction(1, 49), Linear(Fraction(0), Fraction(1, 49))),
    ],
)
def test_linear_reads_constants_and_slopes(expression: object, expected: Linear) -> None:
    """A number alone is a constant rule."""
    assert parse_linear(expression) == expected


@each(
    "wrong",
    [
        "f*f",
        "f/f",
        "1/f",
        "(f + 1)*(f - 1)",
        "f**2",
        "2**3",
        "f // 2",
        "f % 2",
        "1/0",
        "f/(1 - 1)",
        "8*g + 0.02",
        "F",
        "8f + 0.02",
        "8*f + ",
        "",
        "()",
        "min(1, 8*f)",
        "f if f else 1",
        "f < 1",
        "[f]",
        "'0.5'",
        "f.real",
        "__import__('os')",
        "lambda: f",
        "True",
        "None",
        "...",
        "nan",
        "inf",
        "1j",
        "0x10*f",
        "8*f; 1",
        "8*f, 1",
        "\0",
        "0.0000000000000000001",
        0.02,
        float("nan"),
        float("inf"),
        True,
        None,
        ["8*f"],
    ],
)
def test_linear_refuses(wrong: object) -> None:
    """Not linear in f, no expression, or a float."""
    with pytest.raises(ValueError, match=r"."):
        parse_linear(wrong)


@pytest.mark.parametrize("deep", ["-" * 5000 + "f", "(" * 500 + "f" + ")" * 500, "f" + "+0" * 5000])
def test_linear_refuses_or_reads_deep_nesting(deep: str) -> None:
    """A very deep expression is read or refused with ValueError; it does not crash the parser."""
    with contextlib.suppress(ValueError):
        assert parse_linear(deep).slope in {-1, 1}


@EXACTLY
@given(st.text(alphabet="f0123456789.+-*/() e", max_size=14))
def test_linear_raises_nothing_but_valueerror(garbage: str) -> None:
    """Any text is a rule or a ValueError."""
    try:
        rule = parse_linear(garbage)
    except ValueError:
        return
    assert isinstance(rule.slope, Fraction)
    assert isinstance(rule.intercept, Fraction)


@EXACTLY
@given(decimals, decimals, st.booleans())
def test_linear_text_round_trip(slope: Fraction, intercept: Fraction, negative: bool) -> None:
    """The text of a rule, as a manifest states it, reads back as the same rule."""
    rule = Linear(slope, -intercept if negative else intercept)
    assert parse_linear(str(rule)) == rule


@each("expression", ["1/3*f - 1/7", "-f/3 + 0.5", "2/7", "f", "-0.5*f", "8*f + 0.02"])
def test_linear_text_round_trip_of_expressions(expression: str) -> None:
    """Also with fractions that have no decimal, negative slopes, no intercept."""
    assert parse_linear(str(parse_linear(expression))) == parse_linear(expression)


def test_linear_text_round_trip_of_products() -> None:
    """Products may have more than 18 digits: then the rule is refused at once or its text can be read."""
    try:
        rule = parse_linear("0.0000000001*0.0000000001*f + 0.5")
    except ValueError:
        return
    assert parse_linear(str(rule)) == rule


def test_linear_at_is_exact_and_capped() -> None:
    """Example 4.20: f' = 2 f + 0.05; never above 1, and what is <= 0 is left to the caller."""
    rule = parse_linear("2*f + 0.05")
    assert [rule.threshold_at(Fraction(o, 50)) for o in (1, 6, 9)] == [
        Fraction(9, 100),
        Fraction(29, 100),
        Fraction(41, 100),
    ]
    assert rule.threshold_at(Fraction(1)) == 1
    assert parse_linear("f - 0.5").threshold_at(Fraction(1, 4)) == Fraction(-1, 4)


def test_threshold_rules_exceptions_and_range() -> None:
    """Threshold.of: the rule, exceptions by label, and refusal of what is not in (0, 1]."""
    rule = Threshold.model_validate({"default": "2*f + 0.05", "b": "1/49"})
    assert rule.thresholds_for(["a", "b"], [1, 49]) == (Fraction(9, 100), Fraction(1, 49))
    assert Threshold.model_validate("8*f + 0.02").thresholds_for(["a"], [10]) == (Fraction(1),)
    with pytest.raises(ValueError, match="above 0"):
        Threshold.model_validate("f - 0.5").thresholds_for(["a", "b"], [1, 3])
    with pytest.raises(ValueError, match="'c'"):
        Threshold.model_validate({"default": "0.5", "c": "0.1"}).thresholds_for(["a", "b"], [1, 3])


@each("wrong", ["0", "-0.5", "1.5", 0.5, "nan", "f*f"])
def test_threshold_exceptions_are_refused(wrong: object) -> None:
    """An exception must be an exact number in (0, 1]."""
    with pytest.raises(ValueError, match=r"."):
        Threshold.model_validate({"default": "0.5", "values": {"a": wrong}})


@each("wrong", [0.5, float("nan"), "f*f", None, [0.5]])
def test_threshold_rules_are_refused(wrong: object) -> None:
    """A float, a nonlinear rule or nothing is no rule."""
    with pytest.raises(ValueError, match=r"."):
        Bucketize.model_validate({"threshold": wrong})


def test_parameters_survive_json() -> None:
    """What a manifest states reads back as the same request."""
    asked = Bucketize.model_validate({"threshold": {"default": "8*f + 1/3", "a": "1/49", "b": "0.58"}})
    assert Bucketize.model_validate_json(asked.model_dump_json()) == asked
