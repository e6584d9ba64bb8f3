"""Bins are exact for every type that can have them, and only whole bins are answered: against plain arithmetic."""

from __future__ import annotations

import itertools
import math
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from pydantic import ValidationError

from privsql.answers.sql.compiler import parse_query
from privsql.answers.sql.cuts import refuse_cuts
from privsql.engine.sqlfiles import DIALECT, Field, Roles, column
from privsql.errors import UsageError
from privsql.model.bins import Bins, fits_type, number_range
from privsql.source.table import in_bins

KINDS = [
    "TINYINT",
    "UTINYINT",
    "INTEGER",
    "UINTEGER",
    "BIGINT",
    "UBIGINT",
    "DECIMAL(4,2)",
    "DECIMAL(18,6)",
    "DECIMAL(34,10)",
]
WIDTHS = [("1", "0"), ("5", "0"), ("5", "18"), ("7", "-3"), ("100", "99"), ("0.25", "0.01"), ("2.5", "1.25")]
MOMENTS = ["2020-01-01", "2020-02-29", "2020-03-31", "2020-12-31", "1969-12-31", "0001-01-01", "9999-12-31"]


def read_as(kind: str, bins: Bins, values: list[Any]) -> list[tuple[Any, Any]]:
    """The bin of each value, and whether it has none, as DuckDB has them."""
    coarse = in_bins(Field("x", kind), column("x"), bins)
    misfit = "FALSE" if coarse.misfit is None else coarse.misfit.sql(dialect=DIALECT)
    case = f"CASE WHEN {misfit} THEN NULL ELSE {coarse.value.sql(dialect=DIALECT)} END"
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE t(x {kind})")
        db.executemany("INSERT INTO t VALUES (?)", [[None if one is None else str(one)] for one in values])
        described = db.execute(f"DESCRIBE SELECT {case} AS y FROM t").fetchall()[0][1]
        assert described == kind
        return db.execute(f"SELECT {case}, coalesce({misfit}, FALSE) FROM t").fetchall()


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("kind", KINDS)
def test_bins_of_one_width_are_exact(kind: str) -> None:
    least, most, scale = number_range(kind)
    step = Fraction(1, 10**scale)
    near = [Fraction(n) for n in (-101, -18, -8, -7, -5, -1, 0, 1, 4, 5, 17, 18, 23, 99)]
    exact = [least, least + step, most, most - step, most // 3 * step + 0, *near, *(n + step for n in near)]
    values = sorted({one for one in exact if least <= one <= most and (one / step).denominator == 1})
    asked = [Bins.model_validate({"width": width, "origin": origin}) for width, origin in WIDTHS]
    fitting = [one for one in asked if fits_type(one, kind)]
    assert fitting
    for bins in fitting:
        width, origin = Fraction(bins.width or 0), Fraction(bins.origin)
        shown = [str(Decimal(one.numerator) / 1) if one.denominator == 1 else _decimal(one, scale) for one in values]
        for value, (found, outside) in zip(values, read_as(kind, bins, shown), strict=True):
            begin = origin + math.floor((value - origin) / width) * width
            assert outside == (begin < least), (bins, value)
            assert outside or Fraction(found) == begin, (bins, value)
            assert outside or bins.begins_at(Decimal(found))


def _decimal(value: Fraction, scale: int) -> str:
    digits = str(abs(int(value * 10**scale))).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def test_null_has_no_bin_and_minus_zero_is_zero() -> None:
    for bins in (Bins(width=Decimal(5)), Bins(edges=(Decimal(-5), Decimal(0)))):
        assert read_as("DECIMAL(4,2)", bins, [None, "-0.00", "-0.01"]) == [(None, False), (0, False), (-5, False)]


def test_edges() -> None:
    bins = Bins.model_validate({"edges": [0, 18, 65]})
    found = read_as("INTEGER", bins, [-1, 0, 17, 18, 64, 65, 2**31 - 1, None])
    assert found == [(None, True), *((n, False) for n in (0, 0, 18, 18, 65, 65)), (None, False)]


@pytest.mark.parametrize("unit", ["month", "quarter", "year"])
def test_dates_and_timestamps(unit: str) -> None:
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    for kind, made in (("DATE", date.fromisoformat), ("TIMESTAMP", datetime.fromisoformat)):
        values = MOMENTS + ([f"{one} 23:59:59.999999" for one in MOMENTS] if kind == "TIMESTAMP" else [])
        bins = Bins.model_validate(unit)
        for value, (found, _) in zip(map(made, values), read_as(kind, bins, values), strict=True):
            assert found == type(found)(value.year, (value.month - 1) // months * months + 1, 1)
            assert bins.begins_at(found)
            assert bins.begins_at(value) == (value == found)


@pytest.mark.parametrize(
    ("bins", "kind"),
    [
        ("month", "DOUBLE"), (5, "FLOAT"), ({"round": 5}, "FLOAT"), ({"round": 5}, "VARCHAR"),
        ({"top": 300}, "TINYINT"),
        (5, "VARCHAR"), (5, "DATE"), (5, "BOOLEAN"), (5, "DECIMAL(38,2)"),
        (200, "TINYINT"),
        (Decimal("0.5"), "INTEGER"), (Decimal("0.001"), "DECIMAL(9,2)"), ({"width": 5, "origin": -1}, "UINTEGER"),
        ({"edges": [0, 300]}, "UTINYINT"), ("month", "INTEGER"), ("year", "TIMESTAMP WITH TIME ZONE"), ("year", "TIME"),
    ],
)  # fmt: skip
def test_types_that_can_not_have_them(bins: Any, kind: str) -> None:
    asked = Bins.model_validate(bins)
    assert not fits_type(asked, kind)
    with pytest.raises(UsageError, match="column 'x' is"):
        in_bins(Field("x", kind), column("x"), asked)


@pytest.mark.parametrize(
    "bins",
    [0, -5, "week", True, {}, {"width": 5, "edges": [1]}, {"edges": []}, {"edges": [1, 1]}, {"edges": [2, 1]},
     {"origin": 5}, {"unit": "year", "origin": 1}, "NaN", "inf", "1e99", {"width": 5, "more": 1},
     {"edges": list(range(1001))}, {"round": 0}, {"round": 5, "width": 5}, {"top": 5, "bottom": 5},
     {"top": 5, "edges": [1]}],
)  # fmt: skip
def test_bins_that_are_none(bins: Any) -> None:
    with pytest.raises(ValidationError):
        Bins.model_validate(bins)


@pytest.mark.parametrize("text", ["week", "1/3", "", "nan"])
def test_a_text_that_is_no_width_says_what_there_is(text: str) -> None:
    with pytest.raises(ValidationError, match="is not a width; give a decimal, edges such as"):
        Bins.model_validate(text)
    assert Bins.model_validate("2.5") == Bins(width=Decimal("2.5"))


ROUNDED = [
    {"round": 5},
    {"round": "2.5"},
    {"round": "0.25", "top": 20},
    {"round": 7, "bottom": -3, "top": 18},
    {"top": 17},
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TINYINT", "INTEGER", "DECIMAL(4,2)", "DOUBLE"])
def test_rounded_numbers_are_the_nearest_multiples(kind: str) -> None:
    for asked in ROUNDED:
        bins = Bins.model_validate(asked)
        if not fits_type(bins, kind):
            continue
        texts = ["-12", "-8", "-3", "0", "2", "3", "17", "18", "19", "96"]
        texts += ["-0.13", "0.12", "0.13", "1.25", "2.49", "2.5", "3.75"] if kind in ("DECIMAL(4,2)", "DOUBLE") else []
        for text, (found, outside) in zip(texts, read_as(kind, bins, texts), strict=True):
            value = Fraction(text)
            cut = min(value, Fraction(bins.top)) if bins.top is not None else value
            cut = max(cut, Fraction(bins.bottom)) if bins.bottom is not None else cut
            step = Fraction(bins.round or 0)
            expected = math.floor((cut + step / 2) / step) * step if step else cut
            assert not outside
            assert Fraction(str(found)) == expected, (bins, text)
            assert bins.holds(expected)
            assert read_as(kind, bins, [str(found)])[0][0] == found  # ``verify`` rounds what was rounded


def test_a_number_that_its_type_can_not_round_is_none() -> None:
    assert read_as("TINYINT", Bins.model_validate({"round": 10}), [124, 125, -125, -126]) == [
        (120, False), (None, True), (-120, False), (None, True)
    ]  # fmt: skip


def test_doubles_at_which_a_bin_begins_stand_for_themselves() -> None:
    for width in ("0.1", "0.3", "1000", "1e-3", "7"):
        bins = Bins.model_validate({"width": width})
        with duckdb.connect() as db:
            coarse = in_bins(Field("x", "DOUBLE"), column("x"), bins).value.sql(dialect=DIALECT)
            made = f"SELECT (i * 37 % 9973) * {width}::DOUBLE / 3 AS x FROM range(-5000, 5000) t(i)"
            again = f"SELECT {coarse} AS y FROM (SELECT {coarse} AS x FROM ({made}))"
            once = f"SELECT {coarse} AS x FROM ({made})"
            wrong = f"SELECT count(*) FROM ({again}) AS a POSITIONAL JOIN ({once}) AS b WHERE y <> x"
            assert db.execute(wrong).fetchall() == [(0,)]
            assert db.execute(
                f"SELECT bool_and({coarse} <= x + 1e-9 AND x < {coarse} + {width} + 1e-9) FROM ({made})"
            ).fetchone() == (True,)


# Questions ---

BINS = {
    "INTEGER": [{"width": 5}, {"width": 4, "origin": 2}, {"edges": [-4, 0, 6]}, {"width": 1}],
    "DECIMAL(4,1)": [{"width": "2.5"}, {"edges": ["-4", "0.5", "6"]}],
}
OPERATORS = {
    "<": lambda x, c: x < c, "<=": lambda x, c: x <= c, ">": lambda x, c: x > c, ">=": lambda x, c: x >= c
}  # fmt: skip


def is_answered(kind: str, bins: Bins, condition: str) -> bool:
    """Whether a question under a condition is answered."""
    field = Field("x", kind)
    asked = parse_query(f"SELECT COUNT(*) FROM t WHERE {condition}", Roles((field,), (Field("s", "VARCHAR"),)), "t")
    try:
        refuse_cuts(asked, {"x": bins}, {}, [field])
    except UsageError:
        return False
    return True


@pytest.mark.slow
def test_a_comparison_is_answered_just_where_every_bin_meets_it_as_a_whole_or_not() -> None:
    met = 0
    for kind, asked in BINS.items():
        scale = number_range(kind)[2]
        values = [Fraction(n, 10**scale) for n in range(-4 * 10**scale, 30 * 10**scale)]
        for bins in map(Bins.model_validate, asked):
            whole = [[*own] for _, own in itertools.groupby(values, key=lambda x, bins=bins: _begin(bins, x))]
            whole = whole if bins.edges else whole[:-1]  # of the last one not all values are there
            for (sign, holds), tenth in itertools.product(OPERATORS.items(), range(-20, 80, 5)):
                bound = Fraction(tenth, 10)
                cut = any(len({holds(value, bound) for value in own}) > 1 for own in whole)
                written = f"-{_decimal(-bound, 1)}" if bound < 0 else _decimal(bound, 1)
                turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[sign]
                for condition in (
                    f"x {sign} {written}",
                    f"{written} {turned} x",
                    f"NOT (s = 'a' OR (x) {sign} {written})",
                ):
                    assert is_answered(kind, bins, condition) != cut, (kind, bins, condition)
                met += not cut
    assert met > 50


def _begin(bins: Bins, value: Fraction) -> Fraction:
    if bins.edges:
        return max(Fraction(edge) for edge in bins.edges if edge <= value)
    return Fraction(bins.origin) + (value - Fraction(bins.origin)) // Fraction(bins.width or 0) * Fraction(
        bins.width or 0
    )


@pytest.mark.parametrize(
    ("condition", "fine"),
    [
        ("x = 5", True), ("x = 6", False), ("x <> 5", True), ("x IN (0, 5)", True), ("x IN (0, 6)", False),
        ("x BETWEEN 5 AND 9", True), ("x BETWEEN 5 AND 10", False), ("x NOT BETWEEN 5 AND 14", True),
        ("x IS NULL", True), ("x IS NOT NULL", True), ("x IS NOT DISTINCT FROM 5", True), ("x IS TRUE", False),
        ("x", False), ("x + 0 >= 5", False), ("abs(x) = 5", False), ("x >= '5'", False), ("x >= 5e0", False),
        ("CASE WHEN x >= 5 THEN TRUE ELSE FALSE END", True), ("CASE WHEN x >= 6 THEN TRUE END", False),
        ("x % 2 = 0", False), ("coalesce(x, 5) = 5", False), ("x = x", False),
        ("x >= NULL", False), ("x = 5 OR x = 7", False),
    ],
)  # fmt: skip
def test_other_conditions(condition: str, *, fine: bool) -> None:
    assert is_answered("INTEGER", Bins(width=Decimal(5)), condition) == fine


@pytest.mark.parametrize(
    ("unit", "condition", "fine"),
    [
        ("month", "x >= '2020-05-01'", True), ("month", "x <= '2020-05-31'", True),
        ("month", "x <= '2020-05-30'", False),
        ("month", "x < DATE '2020-05-01'", True), ("month", "x > DATE '2020-05-01'", False),
        ("quarter", "x >= '2020-05-01'", False),
        ("quarter", "x >= '2020-04-01'", True), ("year", "x BETWEEN '2020-01-01' AND '2021-12-31'", True),
        ("year", "year(x) = 2020", True), ("month", "month(x) IN (5, 7)", True), ("quarter", "month(x) = 5", False),
        ("month", "quarter(x) = 1", True), ("year", "quarter(x) = 1", False), ("month", "day(x) = 1", False),
        ("month", "x >= TIMESTAMP '2020-05-01 12:00:00'", False), ("month", "x <= '9999-12-31'", False),
    ],
)  # fmt: skip
def test_conditions_on_dates(unit: str, condition: str, *, fine: bool) -> None:
    assert is_answered("DATE", Bins.model_validate(unit), condition) == fine


@pytest.mark.parametrize(
    ("condition", "fine"),
    [
        ("x = TIMESTAMP '2020-05-01 00:00:00'", True), ("x = CAST('2020-05-01' AS TIMESTAMP)", True),
        ("x = DATE '2020-05-01'", True), ("x IN (TIMESTAMP '2020-05-01', TIMESTAMP '2020-06-01')", True),
        ("x = TIMESTAMP '2020-05-01 00:00:01'", False), ("x >= TIMESTAMP '2020-05-01'", True),
        ("x < TIMESTAMP '2020-06-01'", True), ("x <= TIMESTAMP '2020-06-01'", False), ("x <= '2020-05-31'", False),
        ("x <= TIMESTAMP '2020-05-31 23:59:59.999999'", True), ("x <= DATE '2020-05-31'", False),
        ("x <= CAST('2020-05-31 23:59:59.999999' AS DATE)", False),  # a day, whatever stands behind it
        ("x >= TIMESTAMPTZ '2020-05-01'", False), ("x >= CAST('2020-05-01' AS TIMESTAMP_S)", False),
        ("x BETWEEN TIMESTAMP '2020-05-01' AND TIMESTAMP '2020-06-30 23:59:59.999999'", True),
    ],
)  # fmt: skip
def test_conditions_on_moments(condition: str, *, fine: bool) -> None:
    assert is_answered("TIMESTAMP", Bins(unit="month"), condition) == fine


@pytest.mark.parametrize(
    ("sql", "fine"),
    [
        ("SELECT x, COUNT(*) FROM t GROUP BY x ORDER BY x DESC", True),
        ("SELECT x, COUNT(*) FROM t GROUP BY x HAVING x >= 5", True),
        ("SELECT x, COUNT(*) FROM t GROUP BY x HAVING x > 5", False),
        ("SELECT x + 1, COUNT(*) FROM t GROUP BY x", False),
        ("SELECT x // 10, COUNT(*) FROM t GROUP BY 1", False),
        ("SELECT CASE WHEN x < 10 THEN 'young' END AS age, COUNT(*) FROM t GROUP BY 1", True),
        ("SELECT COUNT(x) FROM t", True),
        ("SELECT COUNT(DISTINCT x) FROM t", False),
        ("SELECT SUM(x) FROM t", False),
        ("SELECT AVG(CASE WHEN x >= 6 THEN 1 ELSE 0 END) FROM t", False),
        ("SELECT COUNT(*) FILTER (WHERE x >= 6) FROM t", False),
        ("SELECT g, COUNT(*) FROM t WHERE g = 'FR' OR g IN ('FR', 'rest') OR g IS NULL GROUP BY g", True),
        ("SELECT COUNT(*) FROM t WHERE g = 'Paris'", False),
        ("SELECT COUNT(*) FROM t WHERE g LIKE 'F%'", False),
        ("SELECT COUNT(*) FROM t WHERE g >= 'FR'", False),
        ("SELECT MIN(g) FROM t", False),
    ],
)
def test_groups_and_aggregates(sql: str, *, fine: bool) -> None:
    fields = (Field("x", "INTEGER"), Field("g", "VARCHAR"))
    asked = parse_query(sql, Roles(fields, (Field("s", "VARCHAR"),)), "t")
    try:
        refuse_cuts(asked, {"x": Bins(width=Decimal(5))}, {"g": ["FR", "rest"]}, fields)
    except UsageError:
        assert not fine
    else:
        assert fine
