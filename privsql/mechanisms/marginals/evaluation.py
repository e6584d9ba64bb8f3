"""Measure how close the answers of a contingency-table release are to those of its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers import accuracy
from privsql.engine.database import report_steps
from privsql.engine.sqlfiles import Field, Holes, column, fill, temp_table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.answers.accuracy import EvaluationContext

# Questions ------------------------------------------------------------------------------------------------------------
# A release is scored by random questions of several classes, whatever algorithm made it.
#
# ``eq1``, ``eq2``, ``eq3``: one, two or three columns have the values of a random record. ``range``: one or two ordered
# columns lie between two values that hold 1 to 50 % of the records. ``groups``: records with a random record's value in
# one column are counted by another column. In addition, whole tables over one, two, .. columns are compared by their
# total variation. Columns in wide bins get questions of class ``range`` only. Release and source answer the same SQL.
# If an estimator other than the default one refuses a question, the question does not count for that estimator.

SPREAD = (0.01, 0.5)  # share of the records between the ends of a range
WIDEST = 3  # most columns in a question of class eqN
ORDERED = (
    "INT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "DATE",
    "TIME",
)  # types whose columns get questions of class range have such names


@dataclass(frozen=True)
class QuestionColumn:
    """A column of the source about which test questions are drawn.

    Attributes:
        field: The name and type of the column.
        values: The distinct values of the column in ascending order; NULL comes last.
        records: The number of records with each value.
    """

    field: Field
    values: list[Any]
    records: np.ndarray[Any, np.dtype[np.int64]]

    def equals(self, value: object) -> exp.Expr:
        """Return the SQL condition that the column has the given value; NULL is a value, too."""
        return accuracy.make_equality(column(self.field.name), value, self.field.type)

    @cached_property
    def is_ordered(self) -> bool:
        """Return whether ranges of the column are asked for: it holds numbers or times, and more than two values."""
        return len(self.values) > 2 and any(part in self.field.type for part in ORDERED)

    def draw_range(self, draw: np.random.Generator) -> exp.Expr:
        """Draw a random SQL condition ``column BETWEEN low AND high``, which about 1 to 50 % of the records meet."""
        ends = np.cumsum(self.records[[value is not None for value in self.values]])  # NULL comes last
        share = draw.uniform(*SPREAD)
        first = draw.uniform(0, 1 - share)
        places = [int(np.searchsorted(ends, part * ends[-1])) for part in (first, first + share)]
        low, high = (self.equals(self.values[place]).expression for place in places)
        return exp.Between(this=column(self.field.name), low=low, high=high)


def evaluate_tables(context: EvaluationContext) -> accuracy.Evaluated:
    """Compare the answers of a release with those of its source, for random questions and for whole tables.

    Random questions are scored by class (see ``QuestionClasses.draw_conditions``). If the evaluation names a file of
    questions, or asks for random sets of values, each of these questions is scored instead.
    """
    workload = context.workload
    if workload.file is not None or workload.kind != "equality":
        return accuracy.by_questions(context)
    questions, records = QuestionClasses(context), context.records.records
    counts, tables = questions.score_classes(), questions.compare_tables()
    scores = {name: accuracy.join_scores(counts[name].values()) for name in context.estimators}
    extras = {name: accuracy.by_class(counts[name], records) | {"tables": tables[name]} for name in context.estimators}
    return accuracy.Evaluated(scores, {}, context.confidence, extras)


class QuestionClasses:
    """Draws the random questions of one evaluation, and scores a release's answers to them against its source."""

    def __init__(self, context: EvaluationContext) -> None:
        self._given, self._draw = context, context.workload.query_generator
        self._number, self._columns = context.workload.per_class, list[QuestionColumn]()
        roles = context.records.roles
        for field, key in zip(roles.sensitive, roles.sa_keys, strict=True):
            holes: Holes = {"domain": temp_table("domain"), "column": column(key)}
            rows = context.db.rows(fill("core/frequencies", holes))
            records = np.array([row[1] for row in rows], dtype=np.int64)
            self._columns.append(QuestionColumn(field, [row[0] for row in rows], records))
        in_bins = context.answers.in_bins
        self._valued = [i for i, one in enumerate(self._columns) if one.field.name not in in_bins]

    def _sample_rows(self) -> Iterator[Sequence[Any]]:
        records = self._given.records
        if not records.records:
            return
        columns = records.roles.sa_columns("r")
        rows = accuracy.sample_rows(self._given.db, columns, records.records, self._number, self._draw)
        for _, row in zip(range(self._number), rows, strict=False):
            yield row

    def draw_conditions(self) -> dict[str, list[exp.Expr]]:
        """Draw random SQL conditions for each class of questions, and return them by the name of the class.

        In class ``eqN``, N columns equal the values of a random record. In class ``range``, one or two columns lie in a
        random range.
        """
        conditions: dict[str, list[exp.Expr]] = {}
        for width in range(1, min(WIDEST, len(self._valued)) + 1):
            conditions[f"eq{width}"] = []
            for row in self._sample_rows():
                chosen = sorted(self._draw.choice(self._valued, width, replace=False).tolist())
                conditions[f"eq{width}"].append(exp.and_(*(self._columns[i].equals(row[i]) for i in chosen)))
        ordered = [one for one in self._columns if one.is_ordered]
        for _ in range(self._number if ordered else 0):
            width = int(self._draw.integers(1, min(2, len(ordered)) + 1))
            chosen = sorted(self._draw.choice(len(ordered), width, replace=False).tolist())
            drawn = exp.and_(*(ordered[i].draw_range(self._draw) for i in chosen))
            conditions.setdefault("range", []).append(drawn)
        return conditions

    def score_classes(self) -> dict[str, dict[str, accuracy.Score]]:
        """Return how well each estimator answers each class of questions: the scores by estimator, then by class."""
        result = accuracy.score_classes(
            self._given,
            self.draw_conditions(),
            lambda condition, name: {of: score for of, (score, _) in self._score_table([], condition, name).items()},
        )
        if len(self._valued) > 1:
            self._given.report.start_step("Asking for groups")
            for estimator, score in self._score_groups().items():
                result[estimator]["groups"] = score
        return result

    def _score_groups(self) -> dict[str, accuracy.Score]:
        """Score questions that count records by one column, among the records with a given value in another column.

        Each group is scored as one answer. Questions are drawn until there are as many groups as single questions of
        any other class. The result has the score of each estimator.
        """
        result = {name: accuracy.Score() for name in self._given.estimators}
        for row in self._sample_rows():
            among, by = self._draw.choice(self._valued, 2, replace=False).tolist()
            for estimator, (score, _) in self._score_table([by], self._columns[among].equals(row[among])).items():
                result[estimator].extend(score)
            answered = len(result[next(iter(result))].truth)
            self._given.report.update(100 * min(1.0, answered / self._number))
            if answered >= self._number:
                break
        return result

    def compare_tables(self) -> dict[str, list[dict[str, Any]]]:
        """Compare the release's tables over one, two, .. columns with the same tables of the source.

        For each number of columns, tables are drawn until they have ``workload.max_cells`` cells together; at least one
        is drawn. The total variation of a table is half of the sum of |estimate - truth| over its cells, divided by the
        number of records.

        Returns:
            For each estimator, one summary per number of columns. It has the mean and the largest total variation, and
            the errors of the cells.
        """
        records, report = self._given.records.records, self._given.report
        result: dict[str, list[dict[str, Any]]] = {name: [] for name in self._given.estimators}
        for ways in range(1, min(self._given.workload.ways, len(self._valued)) + 1):
            report.start_step(f"Comparing tables by {ways} columns")
            every, chosen, cells = list(combinations(self._valued, ways)), list[tuple[int, ...]](), 0
            for place in self._draw.permutation(len(every)).tolist():
                cells += prod(len(self._columns[i].values) for i in every[place])
                if chosen and cells > self._given.workload.max_cells:
                    break
                chosen.append(every[place])
            scored = [self._score_table(one, None) for one in report_steps(report, chosen, len(chosen))]
            for estimator, summaries in result.items():
                answered = [one[estimator] for one in scored if estimator in one]
                distances = [distance / max(1, records) for _, distance in answered]
                figures = accuracy.join_scores(score for score, _ in answered).summarize_band(records)
                summary = {
                    "ways": ways,
                    "of": len(every),
                    "tables": len(distances),
                    "total_variation": float(np.mean(distances)) if distances else None,
                    "largest": max(distances, default=None),
                    "cells": figures.pop("queries"),
                }
                summaries.append({**summary, **figures})
        return result

    def _score_table(
        self, columns: Sequence[int], condition: exp.Expr | None, name: str = "groups"
    ) -> dict[str, tuple[accuracy.Score, float]]:
        """Score the cells of one table, and add up their errors.

        A cell that is missing in an answer counts as an estimate of 0 without an interval.

        Args:
            columns: The positions of the table's columns; none for a single count.
            condition: The condition that counted records meet; None for all records.
            name: The class of questions to which the cells are attributed.

        Returns:
            For each estimator, the score of the cells and half of the sum of their absolute errors. Estimators that
            can't answer are missing.
        """
        context = self._given
        sql = accuracy.count_query(context.name, condition, [column(self._columns[i].field.name) for i in columns])
        truth, result = context.truth(sql), {}
        for estimator in context.estimators:
            try:
                known, score = context.answer(sql, estimator).by_group(), accuracy.Score()
            except UsageError:
                if estimator == context.answers.estimators[0]:
                    raise
                continue
            difference = 0.0
            for group in dict.fromkeys((*truth, *known)):
                true, figures = truth.get(group, 0.0), known.get(group, (0.0, None, None))
                difference += abs(float(figures[0] or 0.0) - true)
                if context.workload.is_wanted(true):
                    score.add(true, figures, accuracy.QuestionKey(sql, group, name))
            result[estimator] = (score, difference / 2)
        return result
