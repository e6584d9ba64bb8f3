"""How good a release of a contingency table is: what analysts ask of it, by class, whatever algorithm made it.

``eq1``, ``eq2``, ``eq3``: as many columns have the values of a random record. ``range``: one or two ordered columns lie
between two values that hold 1 to 50 % of the records. ``groups``: one column has a random record's value, counted by
another. And whole tables: the counts by any one, two, .. columns, with their total variation. Of columns in wide bins
only ranges are asked. The release answers the SQL that the source is asked; what another estimator than the default one
refuses is left out of its figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers.accuracy import Evaluated, by_class, by_questions
from privsql.answers.scores import Put, Score
from privsql.answers.workload import count_query, equals, sampled
from privsql.engine.progress import counted
from privsql.engine.sqlfiles import DIALECT, column, fill, named, table, temp
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.answers.accuracy import Measuring
    from privsql.engine.roles import Field

TOGETHER = 32  # counts that one statement asks for
SPREAD = (0.01, 0.5)  # share of the records between the ends of a range
WIDEST = 3  # columns of an equality
ORDERED = ("INT", "FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIME")  # parts of the types that have a range
Group = tuple[Any, ...]


@dataclass(frozen=True)
class Column:
    """A column of the source: its field, its values in order, and the records of each (n_i,)."""

    field: Field
    values: list[Any]
    records: np.ndarray[Any, np.dtype[np.int64]]

    def equals(self, value: object) -> exp.Expr:
        """Having one value."""
        return equals(column(self.field.name), value, self.field.type)

    @cached_property
    def is_ordered(self) -> bool:
        """Whether it makes sense to ask for a range of it."""
        return len(self.values) > 2 and any(part in self.field.type for part in ORDERED)

    def between(self, draw: np.random.Generator) -> exp.Expr:
        """Lying between two values, which hold a random share of its records; NULL comes last."""
        known = [value is not None for value in self.values]
        ends = np.cumsum(self.records[known])
        share = draw.uniform(*SPREAD)
        first = draw.uniform(0, 1 - share)
        places = [int(np.searchsorted(ends, part * ends[-1])) for part in (first, first + share)]
        low, high = (self.equals(self.values[place]).expression for place in places)
        return exp.Between(this=column(self.field.name), low=low, high=high)


def evaluate(given: Measuring) -> Evaluated:
    """Questions by class and whole tables, or the queries of a file, or random sets of values."""
    asked = given.workload
    if asked.file is not None or asked.kind != "equality":
        return by_questions(given)
    found = Classes(given)
    scores, extras = {}, {}
    counts, tables = found.scores(), found.tables()
    for estimator in given.estimators:
        scores[estimator] = Score()
        for one in counts[estimator].values():
            scores[estimator].extend(one)
        extras[estimator] = by_class(counts[estimator], given.records.records) | {"tables": tables[estimator]}
    return Evaluated(scores, {}, given.confidence, extras)


class Classes:
    """The questions of an evaluation, drawn by its seed, and both sides' answers."""

    def __init__(self, given: Measuring) -> None:
        self._given, self._draw = given, given.workload.noise
        self._number = given.workload.each
        roles = given.records.roles
        self._columns = [self._column(*pair) for pair in zip(roles.sensitive, roles.sa_keys, strict=True)]
        names = [one.field.name for one in self._columns]
        self._valued = [i for i, name in enumerate(names) if name not in given.answers.in_bins]

    def _column(self, field: Field, key: str) -> Column:
        rows = self._given.db.rows(fill("core/frequencies", {"domain": temp("domain"), "column": column(key)}))
        return Column(field, [row[0] for row in rows], np.array([row[1] for row in rows], dtype=np.int64))

    # Counts ---

    def scores(self) -> dict[str, dict[str, Score]]:
        """By estimator and class."""
        found: dict[str, dict[str, Score]] = {name: {} for name in self._given.estimators}
        asked = self._conditions()
        for name, conditions in asked.items():
            self._given.report.step(f"Asking for {name}")
            for estimator, score in self._counted(name, conditions).items():
                found[estimator][name] = score
        if len(self._valued) > 1:
            self._given.report.step("Asking for groups")
            for estimator, score in self._grouped().items():
                found[estimator]["groups"] = score
        return found

    def _conditions(self) -> dict[str, list[exp.Expr]]:
        """Predicates by class, as many of each as there are queries to be asked."""
        found: dict[str, list[exp.Expr]] = {}
        for width in range(1, min(WIDEST, len(self._valued)) + 1):
            found[f"eq{width}"] = [self._like(row, width) for row in self._drawn(self._number)]
        ordered = [one for one in self._columns if one.is_ordered]
        if ordered:
            found["range"] = [self._within(ordered) for _ in range(self._number)]
        return found

    def _like(self, row: Sequence[Any], width: int) -> exp.Expr:
        chosen = sorted(self._draw.choice(self._valued, width, replace=False).tolist())
        return exp.and_(*(self._columns[i].equals(row[i]) for i in chosen))

    def _within(self, ordered: Sequence[Column]) -> exp.Expr:
        width = int(self._draw.integers(1, min(2, len(ordered)) + 1))
        chosen = sorted(self._draw.choice(len(ordered), width, replace=False).tolist())
        return exp.and_(*(ordered[i].between(self._draw) for i in chosen))

    def _drawn(self, number: int) -> Iterator[Sequence[Any]]:
        records, db = self._given.records, self._given.db
        if not records.records:
            return
        rows = sampled(db, records.roles.sa("r"), records.records, number, self._draw)
        for _, row in zip(range(number), rows, strict=False):
            yield row

    def _counted(self, name: str, conditions: Sequence[exp.Expr]) -> dict[str, Score]:
        """The counts of records that meet each; several in a statement, and equal ones asked once."""
        given, texts = self._given, [condition.sql(dialect=DIALECT) for condition in conditions]
        different = dict(zip(texts, conditions, strict=True))
        truth: dict[str, float] = {}
        said: dict[str, dict[str, Any]] = {name: {} for name in given.estimators}
        for start in range(0, len(different), TOGETHER):
            names = list(different)[start : start + TOGETHER]
            sql = _together(given.name, [different[text] for text in names])
            truth |= dict(zip(names, map(float, given.rows(sql)[0]), strict=True))
            for estimator in said:
                said[estimator] |= self._answered({text: different[text] for text in names}, estimator)
            given.report.update(100 * len(truth) / len(different))
        scores = {estimator: Score() for estimator in said}
        for text in (text for text in texts if given.workload.wants(truth[text])):
            put = Put(count_query(given.name, different[text], []), (), name)
            for estimator, known in said.items():
                if text in known:
                    estimate, _, low, high = known[text]
                    scores[estimator].add(truth[text], (estimate, low, high), put)
        return scores

    def _answered(self, conditions: dict[str, exp.Expr], estimator: str) -> dict[str, Any]:
        """The figures of the counts that an estimator gives."""
        try:
            answer = self._given.answer(_together(self._given.name, list(conditions.values())), estimator)
        except UsageError:
            if estimator == self._given.answers.estimators[0]:
                raise
            texts = list(conditions)
            halves = (texts[: len(texts) // 2], texts[len(texts) // 2 :]) if len(texts) > 1 else ()
            parts = (self._answered({text: conditions[text] for text in half}, estimator) for half in halves)
            return {text: figures for part in parts for text, figures in part.items()}
        return {text: one.of(answer.rows[0]) for text, one in zip(conditions, answer.figures, strict=True)}

    def _grouped(self) -> dict[str, Score]:
        """Counts by one column among the records that have a value in another, until enough groups are known."""
        found = {name: Score() for name in self._given.estimators}
        asked = 0
        for row in self._drawn(self._number):
            among, by = self._draw.choice(self._valued, 2, replace=False).tolist()
            for estimator, (score, _) in self._table([by], self._columns[among].equals(row[among])).items():
                found[estimator].extend(score)
            asked = len(found[next(iter(found))].truth)
            self._given.report.update(100 * min(1.0, asked / self._number))
            if asked >= self._number:
                break
        return found

    # Tables ---

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """By estimator, for tables by one, two, .. columns: their total variation, and figures of their cells.

        Total variation: half of the sum of |estimate - truth| over all cells, as a share of the records.
        """
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self._given.estimators}
        for ways in range(1, min(self._given.workload.ways, len(self._valued)) + 1):
            self._given.report.step(f"Comparing tables by {ways} columns")
            for estimator, summary in self._by(ways).items():
                found[estimator].append(summary)
        return found

    def _by(self, ways: int) -> dict[str, dict[str, Any]]:
        every = list(combinations(self._valued, ways))
        chosen = self._affordable(every)
        records = self._given.records.records
        cells = {name: Score() for name in self._given.estimators}
        distances: dict[str, list[float]] = {name: [] for name in cells}
        for columns in counted(self._given.report, chosen, len(chosen)):
            for estimator, (score, distance) in self._table(columns, None).items():
                cells[estimator].extend(score)
                distances[estimator].append(distance / max(1, records))
        return {
            name: {
                "ways": ways,
                "tables": len(distances[name]),
                "of": len(every),
                "total_variation": float(np.mean(distances[name])) if distances[name] else None,
                "largest": max(distances[name], default=None),
                **{"cells" if key == "queries" else key: value for key, value in cells[name].figures(records).items()},
            }
            for name in cells
        }

    def _affordable(self, every: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Tables in random order up to as many cells as the queries are worth, one at least."""
        most, cells = self._given.workload.affordable, 0
        chosen: list[Sequence[int]] = []
        for place in self._draw.permutation(len(every)).tolist():
            cells += prod(len(self._columns[i].values) for i in every[place])
            if chosen and cells > most:
                break
            chosen.append(every[place])
        return chosen

    def _table(self, columns: Sequence[int], condition: exp.Expr | None) -> dict[str, tuple[Score, float]]:
        """By estimator that answers, the cells of a table and half of the sum of all their errors; of a cell that an
        answer leaves out it says 0, and no bounds.
        """
        given = self._given
        sql = count_query(given.name, condition, [column(self._columns[i].field.name) for i in columns])
        truth, found = given.truth(sql), {}
        for estimator in given.estimators:
            try:
                known, score = given.answer(sql, estimator).by_group(), Score()
            except UsageError:
                if estimator == given.answers.estimators[0]:
                    raise
                continue
            apart = 0.0
            for group in dict.fromkeys((*truth, *known)):
                true, figures = truth.get(group, 0.0), known.get(group, (0.0, None, None))
                apart += abs(float(figures[0] or 0.0) - true)
                if given.workload.wants(true):
                    score.add(true, figures, Put(sql, group, "groups"))
            found[estimator] = (score, apart / 2)
        return found


def _together(name: str, conditions: Sequence[exp.Expr]) -> str:
    """Text of one statement that counts the records that meet each condition."""
    counts = [
        named(exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=one.copy())), f"q_{i}")
        for i, one in enumerate(conditions)
    ]
    return exp.select(*counts).from_(table(name)).sql(dialect=DIALECT)
