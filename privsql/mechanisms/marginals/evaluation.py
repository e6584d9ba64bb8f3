"""Measure how good a release of a contingency table is, by any algorithm."""

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
# How good a release of a contingency table is: what analysts ask of it, by class, whatever algorithm made it.
#
# ``eq1``, ``eq2``, ``eq3``: as many columns have the values of a random record. ``range``: one or two ordered columns
# lie between two values that hold 1 to 50 % of the records. ``groups``: one column has a random record's value, counted
# by another. And whole tables: the counts by any one, two, .. columns, with their total variation. Of columns in wide
# bins only ranges are asked. The release answers the SQL that the source is asked; what another estimator than the
# default one refuses is left out of its figures.

SPREAD = (0.01, 0.5)  # share of the records between the ends of a range
WIDEST = 3  # columns of an equality
ORDERED = ("INT", "FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIME")  # parts of the types that have a range


@dataclass(frozen=True)
class QuestionColumn:
    """A column of the source.

    Attributes:
        field: Its name and type.
        values: Its distinct values in ascending order; NULL comes last.
        records: The number of records with each value.
    """

    field: Field
    values: list[Any]
    records: np.ndarray[Any, np.dtype[np.int64]]

    def equals(self, value: object) -> exp.Expr:
        """Return the condition that the column has the given value."""
        return accuracy.make_equality(column(self.field.name), value, self.field.type)

    @cached_property
    def is_ordered(self) -> bool:
        """Return whether it makes sense to ask for a range of the column's values."""
        return len(self.values) > 2 and any(part in self.field.type for part in ORDERED)

    def draw_range(self, draw: np.random.Generator) -> exp.Expr:
        """Draw the condition that the column lies in a range that holds a random share of its records."""
        ends = np.cumsum(self.records[[value is not None for value in self.values]])  # NULL comes last
        share = draw.uniform(*SPREAD)
        first = draw.uniform(0, 1 - share)
        places = [int(np.searchsorted(ends, part * ends[-1])) for part in (first, first + share)]
        low, high = (self.equals(self.values[place]).expression for place in places)
        return exp.Between(this=column(self.field.name), low=low, high=high)


def evaluate_tables(context: EvaluationContext) -> accuracy.Evaluated:
    """Compare the answers of a release with those of its source, by class of questions and for whole tables.

    Workloads from a file, and workloads of random sets of values, are scored question by question instead.
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
    """The questions of an evaluation, drawn by its seed, and the answers of the release and of the source."""

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
        """Draw the conditions of each class, by the name of the class.

        Class ``eqN`` has equalities on N columns with the values of a random record, and class ``range`` has ranges.
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
        """Return the scores of every estimator by class of questions."""
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
        """Score counts by one column among records with a value in another column, until enough groups are scored."""
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
        """Compare whole tables over one, two, .. columns with the source.

        Tables are taken in random order, at least one, until they have ``workload.max_cells`` cells. The total
        variation of a table is half of the sum of |estimate - truth| over its cells, as a share of the records.

        Returns:
            For each estimator, one summary per number of columns: the total variation, and figures of the cells.
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
        """Score the cells of a table, and add up half of all their errors.

        A cell that an answer leaves out is answered by 0, without bounds.

        Args:
            columns: The columns of the table; none for a single count.
            condition: Which records are counted; None for all records.
            name: The name of the class of questions.

        Returns:
            The score and the distance, by estimator. Estimators that can't answer are missing.
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
