"""Figures of answers: error with a least truth, coverage and width of intervals, by share of the records."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

from privsql.answers.accuracy import Evaluated, QuestionKey, Score, Workload, by_class, make_equality, make_membership
from privsql.engine.sqlfiles import DIALECT, column


def scored(*answers: tuple[float, float, float | None, float | None]) -> Score:
    """Answers as (truth, estimate, low, high)."""
    made = Score()
    for truth, *figures in answers:
        made.add(truth, tuple(figures))
    return made


def test_errors_are_shares_of_the_truth_or_of_a_thousandth_of_the_records() -> None:
    found = scored((1000, 900, 800, 1000), (0, 5, 0, 4), (100, 100, None, None)).summarize_band(10_000)
    assert found["queries"] == 3
    assert found["mean_error"] == pytest.approx((0.1 + 5 / 10 + 0) / 3)
    assert found["coverage"] == 1.0  # [0, 4] holds 0, and what has no bounds is not asked
    assert found["half_width"] == pytest.approx((100 + 2) / 2)
    assert scored((0, 0, 1, 2)).summarize_band(0) == {
        "queries": 1,
        "mean_error": 0.0,
        "coverage": 0.0,
        "half_width": 0.5,
    }


def test_nothing_is_said_of_answers_that_there_are_not() -> None:
    nothing = {"queries": 0, "mean_error": None, "coverage": None, "half_width": None}
    assert Score().summarize_band(100) == nothing
    assert Score().by_share(100) == []
    assert scored((5, 5, None, None)).summarize_band(100) == nothing | {"queries": 1, "mean_error": 0.0}


def test_bands_are_shares_of_the_records_and_hold_every_answer_once() -> None:
    truths = (0, 0.5, 1, 9, 10, 99, 100, 999, 1000, 10_000)  # of 10,000 records
    found = scored(*((truth, truth, truth, truth) for truth in truths)).by_share(10_000)
    assert [(one["low"], one["high"], one["queries"]) for one in found] == [
        (0, 0.0001, 2),
        (0.0001, 0.001, 2),
        (0.001, 0.01, 2),
        (0.01, 0.1, 2),
        (0.1, None, 2),
    ]
    assert all(one["coverage"] == 1 and one["mean_error"] == 0 for one in found)


def test_classes_stand_beside_all_of_them_by_share() -> None:
    first, second = scored((10, 12, 9, 13)), scored((5, 5, 6, 7), (50, 0, None, None))
    found = by_class({"a": first, "b": second}, 100)
    assert [(one["class"], one["queries"], one["coverage"]) for one in found["questions"]] == [("a", 1, 1), ("b", 2, 0)]
    assert [(one["low"], one["queries"]) for one in found["shares"]] == [(0.01, 1), (0.1, 2)]
    assert found["shares"][1]["mean_error"] == pytest.approx((0.2 + 1) / 2)


def test_points_hold_what_every_estimator_says_of_a_question() -> None:
    """A question that is drawn twice is two points; an estimator that refuses one is left out of it."""
    first, second, third = QuestionKey("a"), QuestionKey("b", ("x", None)), QuestionKey("c", (), "eq1")
    one, other = Score(), Score()
    for put, truth in ((first, 1.0), (first, 1.0), (second, 2.0), (third, 0.0)):
        one.add(truth, (truth + 1, None, truth + 2), put)
    for put, truth in ((first, 1.0), (first, 1.0), (third, 0.0)):
        other.add(truth, (truth, truth, truth), put)
    points = Evaluated({"reconstructed": one, "baseline": other}, {}, 0.95).points()
    assert [(point["question"], point["truth"]) for point in points] == [("a", 1), ("a", 1), ("b", 2), ("c", 0)]
    assert points[0]["reconstructed"] == {"estimate": 2.0, "low": None, "high": 3.0}
    assert points[1]["baseline"] == {"estimate": 1.0, "low": 1.0, "high": 1.0}
    assert (points[2]["group"], "baseline" in points[2], "class" in points[2]) == (["x", None], False, False)
    assert (points[3]["class"], "group" in points[3]) == ("eq1", False)


def test_a_workload_wants_true_answers_between_its_ends() -> None:
    for ends, wanted in (
        (None, "0 5 9"),
        ((5, None), "5 9"),
        ((None, 5), "0 5"),
        ((5, 5), "5"),
        ((6, 8), ""),
    ):
        asked = Workload(true_answers=ends)
        assert [str(truth) for truth in (0, 5, 9) if asked.is_wanted(truth)] == wanted.split()


def test_a_value_among_others_may_be_null() -> None:
    """As many ORs would say it, on the engine."""
    x, rows = column("x"), "(VALUES (NULL), ('1'), ('2'), ('3'), ('it''s')) v(x)"
    for chosen in ([1, 3], [None], [None, 3], [None, 1, 3], ["it's"]):
        kind = "VARCHAR" if "it's" in chosen else "INTEGER"
        with duckdb.connect() as db:
            db.execute(f"CREATE TABLE t AS SELECT TRY_CAST(x AS {kind}) AS x FROM {rows}")
            flat, nested = (
                db.execute(f"SELECT count(*) FROM t WHERE {one.sql(dialect=DIALECT)}").fetchall()
                for one in (
                    make_membership(x, chosen, kind),
                    exp.or_(*(make_equality(x, value, kind) for value in chosen)),
                )
            )
            assert flat == nested != [(0,)]
