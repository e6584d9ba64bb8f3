"""privsql.answers.evaluate_select: errors and bounds of expressions, by hand, by brute force, and on a release."""

from __future__ import annotations

import itertools
import math
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
import sqlglot
from sqlglot import exp

import privsql as api
from privsql.answers import arithmetic
from privsql.answers.arithmetic import AggregateEstimate
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTS = {0: AggregateEstimate(40.0, 3.0, 35.0, 47.0), 1: AggregateEstimate(90.0, 4.0, 82.0, 97.0)}


def tree(text: str) -> exp.Expr:
    """An expression over a_0 and a_1."""
    return sqlglot.parse_one(text, dialect="duckdb")


def found(text: str, parts: dict[int, AggregateEstimate], r: float | None) -> tuple[float, ...]:
    """Value, error and bounds."""
    expression = tree(text)
    value, _ = arithmetic.compute_slopes(expression, {j: one.estimate for j, one in parts.items()})
    used = {int(item.name[2:]) for item in expression.find_all(exp.Column)}
    own = {j: one for j, one in parts.items() if j in used}
    figures = arithmetic.combine_figures(expression, value, own, lambda *_: r)
    return tuple(math.nan if one is None else one for one in figures)


@pytest.mark.parametrize(
    ("text", "r", "expected"),
    [
        ("a_0 * 2 + 1", None, (81, 6, 71, 95)),
        ("-a_0 / 4", None, (-10, 0.75, -11.75, -8.75)),
        ("a_0 + a_1", 0.0, (130, 5, 130 - math.hypot(5, 8), 130 + math.hypot(7, 7))),
        ("a_0 + a_1", None, (130, 7, 117, 144)),
        ("a_1 - a_0", 1.0, (50, 1, 90 - 8 - (40 - 5), 90 + 7 - (40 + 7))),  # both below their estimates, or both above
        ("a_0 + a_1", -1.0, (130, 1, 130 + 7 - 8, 130 + 7 - 5)),
        ("a_1 - a_0", None, (50, 7, 35, 62)),
        ("ROUND(100.0 * a_0 / 80, 1)", None, (50, 3.75, 43.75, 58.75)),
        ("a_0 - a_0", 1.0, (0, 0, 0, 0)),
        ("CAST(a_0 AS DOUBLE) / NULLIF(a_0, 0)", 1.0, (1, 0, 1, 1)),
    ],
)
def test_by_hand(text: str, r: float | None, expected: tuple[float, ...]) -> None:
    """Slopes, signs, lopsided bounds; what is not known of a correlation is the worst."""
    assert found(text, PARTS, r) == pytest.approx(expected)


def test_who_is_missing_could_count_in_one_figure_and_not_in_the_other() -> None:
    """Six of them: however the noise of two counts cancels, their difference reaches six further on either side."""
    parts = {
        0: AggregateEstimate(40.0, 3.0, 35.0, 45.0 + 6, missing=6),
        1: AggregateEstimate(90.0, 3.0, 85.0, 95.0 + 6, missing=6),
    }
    assert found("a_1 - a_0", parts, 1.0) == pytest.approx((50, 0, 44, 56))
    sure = {
        j: AggregateEstimate(one.estimate, None, one.low, one.high, certain=True, missing=6) for j, one in parts.items()
    }
    assert found("a_1 - a_0", sure, 1.0)[2:] == (85 - 51, 101 - 35)


def test_a_ratio_by_simulation() -> None:
    """The delta method against draws of two figures that vary together."""
    rng, r = np.random.default_rng(3), 0.6
    drawn = rng.multivariate_normal([40, 90], [[9, r * 12], [r * 12, 16]], 200_000)
    _, error, low, high = found("a_0 / a_1", {
        j: AggregateEstimate(mean, s, mean - 2 * s, mean + 2 * s) for j, mean, s in ((0, 40.0, 3.0), (1, 90.0, 4.0))
    }, r)  # fmt: skip
    ratio = drawn[:, 0] / drawn[:, 1]
    assert error == pytest.approx(ratio.std(), rel=0.02)
    assert ((low <= ratio) & (ratio <= high)).mean() == pytest.approx(0.9545, abs=0.01)


def test_a_share_whose_error_is_that_of_the_whole_is_known_well() -> None:
    """A group that is lopsided and hardly known, of which a quarter is asked for: the quarter is known."""
    parts = {0: AggregateEstimate(25.0, 20.0, 0.0, 100.0), 1: AggregateEstimate(100.0, 80.0, 0.0, 400.0)}
    assert found("100.0 * a_0 / a_1", parts, 1.0) == pytest.approx((25, 0, 25, 25), abs=1e-6)
    wide = found("100.0 * a_0 / a_1", parts, 0.9)
    assert 0 < wide[2] < 25 < wide[3] < 60


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("a_0 / a_1", (0, 1)),
        ("100.0 * a_0 / NULLIF(a_1, 0)", (0, 100)),
        ("1 - a_0 / a_1", (0, 1)),
        ("a_1 / a_0", None),
        ("a_0 / (a_1 + 1)", None),
        ("a_0 - a_1", None),
        ("a_0 / a_1 * (1 - a_0 / a_1)", None),
        ("2 * a_0", None),
    ],
)
def test_what_is_a_share_stays_among_shares(text: str, limits: tuple[float, float] | None) -> None:
    """Of a quotient that names a part and its whole once; of others the range is not known."""
    assert arithmetic.share_range(tree(text), (0, 1)) == (limits if limits is None else pytest.approx(limits))
    assert arithmetic.share_range(tree(text), (1, 0)) is None or text == "a_1 / a_0"
    ends = arithmetic.combine_figures(
        tree(text),
        0.5,
        {0: AggregateEstimate(1.0, 9.0, 0.0, 20.0), 1: AggregateEstimate(2.0, 9.0, 0.0, 30.0)},
        lambda *_: 0.0,
        (0, 1),
    )
    if limits is not None:
        assert limits[0] <= (ends[2] or 0.0) <= (ends[0] or 0.0) <= (ends[3] or 0.0) <= limits[1]
        assert 0 < (ends[1] or 0.0) <= (limits[1] - limits[0]) / 2


def test_a_share_at_the_end_of_its_range_has_an_interval() -> None:
    """Part and whole are estimated alike and vary together, but one is known better: [1, 1] stood beside an error."""
    parts = {0: AggregateEstimate(30.0, 16.0, 30.0, 62.0), 1: AggregateEstimate(30.0, 2.0, 0.0, 34.0)}
    value, error, low, high = arithmetic.combine_figures(tree("a_0 / a_1"), 1.0, parts, lambda *_: 1.0, (0, 1))
    assert (value, high) == (1, 1)
    assert low is not None
    assert error is not None
    assert 0 <= low <= 1 - error
    assert 0 < error <= 0.5


def test_a_share_whose_estimate_is_beyond_its_range_is_moved_there() -> None:
    """1.012 with an error of 7 is no share."""
    parts = {0: AggregateEstimate(2.024, 9.0, 0.0, 20.0), 1: AggregateEstimate(2.0, 9.0, 0.0, 30.0)}
    figures = arithmetic.combine_figures(tree("100 * a_0 / a_1"), 101.2, parts, lambda *_: 0.0, (0, 1))
    assert figures == pytest.approx((100, 50, 0, 100))


def test_certain_bounds_of_a_share_lie_among_shares() -> None:
    """A part of 3 to 9 of a whole of 5 to 12 that has the part in it."""
    parts = {
        j: AggregateEstimate(mean, None, *ends, certain=True) for j, mean, ends in ((0, 6, (3, 9)), (1, 8, (5, 12)))
    }
    assert arithmetic.combine_figures(tree("a_0 / a_1"), 0.75, parts, lambda *_: None) == (0.75, None, 0.25, 1.8)
    figures = arithmetic.combine_figures(tree("a_0 / a_1"), 0.75, parts, lambda *_: None, (0, 1))
    assert figures == (0.75, None, 0.25, 1.0)


@pytest.mark.parametrize("text", ["a_0 * a_1", "a_0 - a_1 * 2", "a_0 / a_1", "a_1 / (a_0 - 40)", "-(a_0 + a_1) * 0.5"])
def test_certain_bounds_by_brute_force(text: str) -> None:
    """All values within the ranges; a divisor that can be 0 leaves no bound."""
    expression = tree(text)
    low, high = arithmetic.compute_range(expression, {0: (35.0, 47.0), 1: (82.0, 97.0)})
    grid = itertools.product(np.linspace(35, 47, 25), np.linspace(82, 97, 16))
    values = [arithmetic.compute_slopes(expression, {0: a, 1: b})[0] for a, b in grid]
    assert low <= min(v for v in values if not math.isnan(v))
    assert high >= max(v for v in values if not math.isnan(v))
    if "40" not in text:
        assert (low, high) == pytest.approx((min(values), max(values)))


@pytest.mark.parametrize("text", ["a_0 // 2", "ABS(a_0)", "GREATEST(a_0, 1)", "a_0 || 'x'", "ROUND(1, a_0)"])
def test_what_has_no_known_error_is_refused(text: str) -> None:
    """By name."""
    with pytest.raises(UsageError, match="no interval is known of"):
        arithmetic.check_arithmetic(tree(text), text)


@pytest.fixture(scope="module")
def ill(ward: Path) -> Iterator[api.Release]:
    """A release with noise."""
    with closing(api.open(ward / "ill.duckdb")) as release:
        yield release


@pytest.mark.parametrize(
    ("arithmetic", "plain"),
    [
        ("COUNT(*) - COUNT(*) FILTER (WHERE disease = 'flu')", "COUNT(*) FILTER (WHERE disease <> 'flu')"),
        (
            "COUNT(*) FILTER (WHERE disease = 'flu') + COUNT(*) FILTER (WHERE disease = 'cold')",
            "COUNT(*) FILTER (WHERE disease IN ('flu', 'cold'))",
        ),
        (
            "COUNT(*) FILTER (WHERE disease <> 'HIV') - COUNT(*) FILTER (WHERE disease > 'c')",
            "-1 * COUNT(*) FILTER (WHERE disease = 'HIV') + COUNT(*) FILTER (WHERE disease <= 'c')",
        ),
        ("2 * COUNT(*) FILTER (WHERE disease = 'flu')", "COUNT(*) FILTER (WHERE disease = 'flu') * 4 / 2"),
    ],
)
def test_figures_of_one_posterior_vary_together(ill: api.Release, arithmetic: str, plain: str) -> None:
    """The same number written otherwise has the same error: that of the whole, not of independent parts."""
    answer = ill.query(f"SELECT {arithmetic} AS a, {plain} AS b FROM ill WHERE age < 40")
    (row,) = answer.rows
    one, other = (figure.read_row(row) for figure in answer.figures)
    assert one[0] == pytest.approx(other[0], abs=0.5)
    assert one[1] == pytest.approx(other[1], rel=1e-6, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("age < 30 AND disease <> 'HIV'", "disease <> 'HIV'"),
        ("disease = 'flu' AND (sex = 'F' AND age < 30)", "age < 30 AND disease = 'flu'"),
        ("disease = 'flu'", "disease = 'flu' OR disease = 'cold'"),
        ("disease = 'flu' AND age < 50", "(age < 50 OR zip = 3) AND (disease = 'flu' OR disease = 'cold')"),
        ("disease = 'flu'", "TRUE"),
    ],
)
def test_shares_of_nested_conditions_lie_between_0_and_1(ill: api.Release, part: str, whole: str) -> None:
    """In every group, however small; of a group without anybody the share is NULL, and 1 - share likewise."""
    counts = [f"COUNT(*) FILTER (WHERE {one})" for one in (part, whole)]
    answer = ill.query(
        f"SELECT zip, 1.0 * {counts[0]} / {counts[1]} AS a, 1 - {counts[0]} / {counts[1]} AS b FROM ill GROUP BY zip"
    )
    seen = 0
    for row in answer.rows:
        for figure in answer.figures:
            estimate, error, low, high = figure.read_row(row)
            if estimate is None:
                assert (error, low, high) == (None, None, None)
                continue
            seen += 1
            assert 0 <= low <= estimate <= high <= 1, row
            assert error is None or error <= 0.5
            assert not error or high > low, row
    assert seen > len(answer.rows) / 2


def test_what_is_divided_by_an_estimate_of_nobody_is_null(ill: api.Release) -> None:
    """Neither NaN nor infinity, in SELECT, ORDER BY and windows; what is held exactly is as the engine says."""
    nobody = "COUNT(*) FILTER (WHERE disease = 'flu' AND age < 0)"
    for sql in (
        f"SELECT zip, {nobody} / {nobody} FROM ill GROUP BY zip",
        f"SELECT zip, COUNT(*) / (1.0 * {nobody}) FROM ill GROUP BY zip ORDER BY COUNT(*) / {nobody} DESC",
        f"SELECT zip, SUM({nobody} / {nobody}) OVER () FROM ill GROUP BY zip",
        f"SELECT zip, AVG(x / x) FROM (SELECT zip, sex, {nobody} AS x FROM ill GROUP BY 1, 2) GROUP BY 1",
    ):
        assert {row[1:] for row in ill.query(sql).rows} == {(None, None, None, None)}, sql
    (row,) = ill.query("SELECT 0.0 * COUNT(*) / COUNT(*) FROM ill WHERE age < 0").rows
    assert math.isnan(row[0])
