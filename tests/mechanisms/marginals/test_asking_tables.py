"""Evaluation of contingency tables by class of question, on answers that are known beforehand and on a release."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from privsql.answers.accuracy import EvaluationContext, Workload
from privsql.cli.printing import print_parts
from privsql.engine.database import Options, Reporter
from privsql.engine.open import open_engine
from privsql.errors import UsageError
from privsql.mechanisms.marginals.evaluation import QuestionClasses, evaluate_tables
from privsql.source.records import prepare_records
from privsql.source.spec import load
from support.commands import refused, run, succeeded, write
from support.town import PEOPLE, spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OFF = 90  # what the answers below add to the truth, with bounds OFF around them
RECORDS = 9000


@dataclass(frozen=True)
class Biased:
    """The source's own answer, OFF more in every group."""

    rows: list[tuple[Any, ...]]

    def by_group(self) -> dict[tuple[Any, ...], tuple[Any, Any, Any]]:
        """Estimate, low and high of every group."""
        return {row[:-1]: (row[-1] + OFF, row[-1], row[-1] + 2 * OFF) for row in self.rows}


class Answers:
    estimators: tuple[str, ...] = ("reconstructed",)
    in_bins: frozenset[str] = frozenset()


class Both:
    estimators = ("reconstructed", "baseline")
    in_bins: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """How to measure answers that are the truth and OFF more; a list of all that was asked comes with it."""
    folder = tmp_path_factory.mktemp("town")
    write(folder / "people.parquet", PEOPLE)
    with open_engine(folder, Options()) as db:
        source = prepare_records(db, load(spec(folder)))
        source.sort_records()
        source.expose_as("people")
        asked: list[str] = []

        def answer(sql: str, _estimator: str) -> Any:
            asked.append(sql)
            return Biased(db.run_select(sql))

        def measuring(**workload: Any) -> tuple[Any, list[str]]:
            asked.clear()
            truth = lambda sql: {tuple(row[:-1]): float(row[-1]) for row in db.run_select(sql)}  # noqa: E731
            shape: Any = (
                db,
                source,
                "people",
                Answers(),
                Workload(**workload),
                0.95,
                answer,
                truth,
                Reporter(),
            )
            return EvaluationContext(*shape), asked

        yield measuring


def test_figures_are_those_of_answers_that_are_known(given: Any) -> None:
    measuring, asked = given(queries=50, ways=3)
    found = evaluate_tables(measuring).as_json()["reconstructed"]
    assert [one["class"] for one in found["questions"]] == ["eq1", "eq2", "eq3", "range", "groups"]
    counts = {one["class"]: one for one in found["questions"]}
    assert [counts[name]["queries"] for name in ("eq1", "eq2", "eq3", "range")] == [50] * 4
    assert 50 <= counts["groups"]["queries"] < 50 + 11
    assert {one["coverage"] for one in counts.values()} == {1.0}
    assert {one["half_width"] for one in counts.values()} == {OFF}
    assert sum(one["queries"] for one in found["shares"]) == sum(one["queries"] for one in counts.values())
    assert found["queries"] == sum(one["queries"] for one in counts.values())
    assert asked[0].count("FILTER") <= 17  # the values that there are: no count is asked for twice


def test_tables_by_one_to_three_columns_add_up(given: Any) -> None:
    """Total variation of answers that are off by OFF in every cell that there is; errors by brute force."""
    measuring, _ = given(queries=50, ways=3)
    tables = evaluate_tables(measuring).as_json()["reconstructed"]["tables"]
    assert [(one["ways"], one["tables"], one["of"]) for one in tables] == [(1, 3, 3), (2, 3, 3), (3, 1, 1)]
    with duckdb.connect() as db:
        for one in tables:
            sizes = [
                [row[0] for row in db.execute(f"SELECT count(*) FROM ({PEOPLE}) GROUP BY {', '.join(by)}").fetchall()]
                for by in itertools.combinations(["sex", "region", "job"], one["ways"])
            ]
            every = [size for table in sizes for size in table]
            assert one["cells"] == len(every)
            assert one["total_variation"] == pytest.approx(sum(OFF * len(t) / 2 / RECORDS for t in sizes) / len(sizes))
            assert one["largest"] == pytest.approx(max(OFF * len(t) / 2 / RECORDS for t in sizes))
            assert one["mean_error"] == pytest.approx(sum(OFF / max(size, 9) for size in every) / len(every))
            assert (one["coverage"], one["half_width"]) == (1, OFF)


def test_few_queries_ask_for_few_tables(given: Any) -> None:
    tables = evaluate_tables(given(queries=1)[0]).as_json()["reconstructed"]["tables"]
    assert [one["tables"] < one["of"] for one in tables] == [False, True]  # 40 cells: 2 + 4 + 11, not 8 + 22 + 44


@pytest.mark.slow
def test_questions_are_a_records_values_and_ranges_that_hold_some(given: Any) -> None:
    measuring, _ = given(queries=200)
    for name, conditions in QuestionClasses(measuring).draw_conditions().items():
        assert len(conditions) == 200
        texts = [condition.sql(dialect="duckdb") for condition in conditions]
        columns = [[one for one in ("sex", "region", "job") if f'"{one}"' in text] for text in texts]
        assert {len(one) for one in columns} == ({1} if name == "range" else {int(name[-1])})
        counts = [measuring.db.run_select(f"SELECT count(*) FROM people WHERE {text}")[0][0] for text in set(texts)]
        assert min(counts) > 0
        assert all("BETWEEN" in text for text in texts) == (name == "range")
    assert columns == [["job"]] * 200  # the one that has an order


@pytest.mark.slow
def test_a_seed_repeats_its_questions(given: Any) -> None:
    measuring, asked = given(queries=20)
    evaluate_tables(measuring)
    first = list(asked)
    evaluate_tables(given(queries=20)[0])
    assert asked == first
    evaluate_tables(given(queries=20, seed=2)[0])
    assert asked != first


@pytest.mark.slow
def test_what_another_estimator_refuses_is_left_out_of_its_figures(given: Any) -> None:
    """It refuses whatever is asked of the job; what the default one refuses is an error."""
    measuring, _ = given(queries=40)
    refusing = replace(measuring, answers=Both(), answer=partial(_refuse, measuring.answer, "baseline"))
    found = evaluate_tables(refusing).as_json()
    asked = {one["class"]: one["queries"] for one in found["reconstructed"]["questions"]}
    left = {one["class"]: one["queries"] for one in found["baseline"]["questions"]}
    assert asked["eq1"] > left["eq1"] > 0
    assert (asked["eq3"], left["eq3"], left["range"]) == (40, 0, 0)
    assert [one["tables"] for one in found["baseline"]["tables"]] == [2, 1]
    print_parts(evaluate_tables(refusing).show())
    wrong = replace(refusing, answer=partial(_refuse, measuring.answer, "reconstructed"))
    with pytest.raises(UsageError, match="job"):
        evaluate_tables(wrong)


def _refuse(answer: Any, who: str, sql: str, estimator: str) -> Any:
    if who == estimator and '"job"' in sql:
        raise UsageError("not of the job")
    return answer(sql, estimator)


def test_a_person_sees_classes_shares_and_tables(given: Any, capsys: pytest.CaptureFixture[str]) -> None:
    print_parts(evaluate_tables(given(queries=10)[0]).show())
    shown = capsys.readouterr()
    words = (
        "eq3",
        "groups",
        "cells of tables by 2",
        "0.1 % to 1 %",
        "total variation of all 3 tables by 1",
        "half-width",
    )
    assert [word for word in words if word not in shown.out + shown.err] == []


@pytest.mark.slow
def test_a_release_is_evaluated_by_class(town: Path) -> None:
    flags = ("--source", town / "spec.toml", "--queries", 3)
    shown = succeeded("evaluate", town / "people.duckdb", *flags, "--json").json
    for name in ("reconstructed", "baseline"):
        assert {"queries", "mean_relative_error", "median_relative_error", "coverage", "bands"} < set(shown[name])
        assert [one["class"] for one in shown[name]["questions"]] == ["eq1", "eq2", "eq3", "range", "groups"]
        assert [one["ways"] for one in shown[name]["tables"]] == [1, 2]
    assert shown["reconstructed"]["tables"][0]["total_variation"] < 0.05
    assert shown["baseline"] == shown["reconstructed"]  # DiffPart has one sum
    refused(run("evaluate", town / "people.duckdb", *flags, "--workload", "ranges"), 2, "quasi-identifiers")
