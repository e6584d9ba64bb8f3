"""Measure how good the answers of a release are.

Queries of a workload are put to the release and to its source. Errors and coverage are summarized by size of the
answer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from privsql import plot
from privsql.answers.channel import LARGE, Floats, measure_quality
from privsql.engine.database import OrderedRelations, Reporter, report_steps
from privsql.engine.sqlfiles import DIALECT, Holes, Roles, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.figures import format_percent
from privsql.keyed_random import seed_key
from privsql.outcomes import Outcome, Part, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from privsql.answers.answer import Answer, Answers
    from privsql.model.estimates import Number
    from privsql.model.records import Records

# Scores ---------------------------------------------------------------------------------------------------------------

BANDS = (0, 1, 50, 200, 1000, 5000, float("inf"))  # ends of bands of true answers
SANITY = 0.001  # share of the records; relative errors of smaller true answers are relative to this
SHARES = (0, 0.0001, 0.001, 0.01, 0.1, float("inf"))  # ends of bands of true answers as shares of the records


class QuestionKey(NamedTuple):
    """The identity of one answer in an evaluation.

    Attributes:
        question: The SQL of the query.
        group: The values of GROUP BY to which the answer belongs.
        of: The class of the query, such as the number of columns in it; empty if queries have no classes.
    """

    question: str = ""
    group: tuple[Any, ...] = ()
    of: str = ""


UNNAMED = QuestionKey()


Band = dict[str, str | int | float | None]  # figures of some answers, by name


@dataclass
class Score:
    """All answers of one estimator in an evaluation; the lists have one entry for each query and group.

    Attributes:
        truth: The true answers.
        estimate: The estimates.
        low: The lower bounds; NaN for a missing one.
        high: The upper bounds; NaN for a missing one.
        put: The query and group of each entry.
    """

    truth: list[float] = field(default_factory=list)
    estimate: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    put: list[QuestionKey] = field(default_factory=list)

    def add(
        self, truth: float, figures: tuple[Number | None, Number | None, Number | None], put: QuestionKey = UNNAMED
    ) -> None:
        """Add the answer to one query and group.

        Args:
            truth: The true answer.
            figures: The estimate, low and high. None for the estimate counts as 0, None for a bound as missing.
            put: The query and group.
        """
        estimate, low, high = figures
        self.put.append(put)
        self.truth.append(truth)
        self.estimate.append(0.0 if estimate is None else float(estimate))
        self.low.append(np.nan if low is None else float(low))
        self.high.append(np.nan if high is None else float(high))

    def extend(self, other: Score) -> None:
        """Append all answers of another score to this one."""
        for one in fields(self):
            getattr(self, one.name).extend(getattr(other, one.name))

    def summarize_band(self, records: float, low: float = -np.inf, high: float = np.inf) -> Band:
        """Summarize the answers whose true value lies in [low, high).

        Args:
            records: The number of all records of the source.
            low: The least true value.
            high: The end of the true values, not included.

        Returns:
            ``queries``, the number of answers; ``mean_error``, the mean of |estimate - truth| / max(truth, 0.1 % of the
            records); ``coverage``, the share of intervals that hold the truth; ``half_width``, the mean of (high - low)
            / 2. A figure is None if there are no answers, or none with both bounds.
        """
        truth, estimate, least, most = self._select_band(low, high)
        bounded = ~np.isnan(least) & ~np.isnan(most)
        errors = np.abs(estimate - truth) / np.maximum(truth, max(SANITY * records, np.finfo(float).tiny))
        return {
            "queries": len(truth),
            "mean_error": float(errors.mean()) if len(truth) else None,
            "coverage": _measure_coverage(truth, least, most),
            "half_width": float(((most - least) / 2)[bounded].mean()) if bounded.any() else None,
        }

    def _select_band(self, low: float, high: float) -> Iterator[Floats]:
        """Yield four arrays for the answers whose true value lies in [low, high): truths, estimates, lows, highs."""
        truth = np.array(self.truth)
        inside = (truth >= low) & (truth < high)
        return (np.array(part)[inside] for part in (self.truth, self.estimate, self.low, self.high))

    @property
    def largest_error(self) -> float:
        """Return the largest |estimate - truth|; 0 if there are no answers."""
        return float(np.abs(np.array(self.estimate) - np.array(self.truth)).max(initial=0))

    def pair_answers(self) -> list[tuple[QuestionKey, float, dict[str, float | None]]]:
        """Return each entry as (query and group, truth, answer).

        The answer is a dictionary of ``estimate``, ``low`` and ``high``; None stands for a missing bound.
        """
        answers: list[dict[str, float | None]] = []
        for estimate, *ends in zip(self.estimate, self.low, self.high, strict=True):
            low, high = (None if np.isnan(end) else end for end in ends)
            answers.append({"estimate": estimate, "low": low, "high": high})
        return list(zip(self.put, self.truth, answers, strict=True))

    def by_share(self, records: float) -> list[Band]:
        """Summarize the answers in bands by the share of all ``records`` that the true answer counts.

        Empty bands are omitted.
        """
        bands: list[Band] = [
            {
                "low": low,
                "high": None if np.isinf(high) else high,
                **self.summarize_band(records, low * records, high * records),
            }
            for low, high in pairwise(SHARES)
        ]
        return [band for band in bands if band["queries"]]

    def summary(self) -> dict[str, Any]:
        """Return relative errors and coverage of all answers, and of bands by size of the true answer, for ``--json``.

        Answers whose true value is 0 have no relative error.
        """
        every = self._relative_band(-np.inf, np.inf)
        bands = [self._relative_band(low, high) | {"low": low, "high": high} for low, high in pairwise(BANDS)]
        some = [band for band in bands if band["queries"]]
        return {**every, "bands": [band | {"high": None if np.isinf(band["high"]) else band["high"]} for band in some]}

    def _relative_band(self, low: float, high: float) -> dict[str, Any]:
        truth, estimate, least, most = self._select_band(low, high)
        known = truth != 0
        errors = np.abs(estimate - truth)[known] / np.abs(truth[known])
        return {
            "queries": len(truth),
            "mean_relative_error": float(errors.mean()) if len(errors) else None,
            "median_relative_error": float(np.median(errors)) if len(errors) else None,
            "coverage": _measure_coverage(truth, least, most),
        }


def _measure_coverage(truth: Floats, low: Floats, high: Floats) -> float | None:
    """Return the share of intervals that hold the truth; None if there is no interval."""
    bounded = ~np.isnan(low) & ~np.isnan(high)
    covered = (low <= truth + 1e-9) & (truth <= high + 1e-9)
    return float(covered[bounded].mean()) if bounded.any() else None


def join_scores(scores: Iterable[Score]) -> Score:
    """Return one score with the answers of several."""
    result = Score()
    for one in scores:
        result.extend(one)
    return result


# Workload -------------------------------------------------------------------------------------------------------------

LEAST_SHARE = 0.002  # a condition on quasi-identifiers must select more of the records than this
QUERIES, OF_EACH = 1200, 300
KINDS = ("equality", "random", "ranges")
CELLS = 40  # for each query, of all tables with the same number of columns
TRIES = 200  # conditions drawn for one that selects enough


@dataclass(frozen=True)
class Question:
    """A query of a workload.

    Attributes:
        sql: Its text.
        groups: The groups whose answers are compared; None for all groups that the release or the source has.
    """

    sql: str
    groups: tuple[tuple[Any, ...], ...] | None = None


@dataclass(frozen=True)
class Workload:
    """The choice of the queries that an evaluation asks.

    Differentially private tables and item sets are evaluated by classes of queries in place of ``equality``. A class is
    a form of condition, such as equality on two columns or containment of three items.

    Attributes:
        kind: The form of the conditions. ``equality``: quasi-identifiers equal the values of a random record.
            ``random``: columns are among random values. ``ranges``: as ``equality``, with a range of the sensitive
            column.
        queries: The number of queries, or the largest number in each class; None for the default number.
        attributes: The number of quasi-identifiers in the condition of a ``random`` query.
        selectivity: The expected share of the records that a ``random`` query selects.
        seed: The seed of the generator that draws the queries.
        file: A file of SQL whose queries are asked instead; None to draw queries.
        ways: For private tables, the largest number of columns in a GROUP BY.
        cells: For private tables, the largest number of groups to compare in all queries that group by the same number
            of columns; None for ``CELLS`` (40) times the number of queries in a class.
        true_answers: The least and the greatest true answer, both included, of queries that are scored; None for no
            limit.
        estimators: The estimators to evaluate; None for all.
    """

    kind: str = "equality"
    queries: int | None = None
    attributes: int = 3
    selectivity: float = 0.05
    seed: int = 1
    file: Path | None = None
    ways: int = 2
    cells: int | None = None
    true_answers: tuple[float | None, float | None] | None = None
    estimators: tuple[str, ...] | None = None

    def is_wanted(self, truth: float) -> bool:
        """Return whether a query with this true answer is scored."""
        low, high = self.true_answers or (None, None)
        return (low is None or low <= truth) and (high is None or truth <= high)

    @property
    def query_count(self) -> int:
        """Return the number of queries to draw."""
        return QUERIES if self.queries is None else self.queries

    @property
    def per_class(self) -> int:
        """Return the largest number of queries in each class (form of condition), for private tables and item sets."""
        return OF_EACH if self.queries is None else self.queries

    @property
    def max_cells(self) -> int:
        """Return the largest number of groups to compare in all queries that group by the same number of columns."""
        return CELLS * self.per_class if self.cells is None else self.cells

    @property
    def query_generator(self) -> np.random.Generator:
        """Return the generator that draws the queries."""
        return seed_key(self.seed).random_generator("workload", self.kind)


def draw_workload(db: OrderedRelations, roles: Roles, name: str, workload: Workload) -> tuple[Iterable[Question], int]:
    """Draw the queries of a workload from the source.

    Args:
        db: The engine, which has the source as ``records``, and its sensitive values with their numbers of records as
            ``domain``.
        roles: The columns of the source.
        name: The name of the release, for the FROM of the queries.
        workload: Which queries to draw.

    Returns:
        The queries, and how many there are.

    Raises:
        UsageError: The kind of workload is unknown, or does not suit the columns.
    """
    if workload.file is not None:
        file_questions = from_file(workload.file)
        return file_questions, len(file_questions)
    if not roles.quasi_identifiers and workload.kind != "random":
        raise UsageError(f"workload {workload.kind!r} needs quasi-identifiers; take the workload random, or a file")
    if workload.kind == "random":
        return draw_random(db, roles, name, workload), workload.query_count
    if workload.kind == "ranges":
        if len(roles.sensitive) != 1:
            raise UsageError("workload 'ranges' needs one sensitive column")
        return draw_ranges(db, roles, name, workload.query_count, workload.query_generator), workload.query_count
    if workload.kind != "equality":
        raise UsageError(f"workload {workload.kind!r} is neither 'equality', 'random', 'ranges' nor a file")
    conditions = max(1, workload.query_count // 4)
    return draw_equality(db, roles, name, conditions, workload.query_generator), conditions


def draw_equality(
    db: OrderedRelations, roles: Roles, name: str, conditions: int, noise: np.random.Generator
) -> Iterator[Question]:
    """Yield queries that group by sensitive columns, with equalities on 1 to 3 quasi-identifiers as condition.

    A condition takes its values from a random record. It is drawn again if it selects no more than 0.2 % of the records
    (``LEAST_SHARE``). Four random groups of each query are compared with the source. The workload is that of the paper
    on small domain randomization (Chaytor and Wang 2010, appendix 10.9).

    Args:
        db: The engine, which has the source as ``records``, and its sensitive values with their numbers of records as
            ``domain``.
        roles: The columns of the source.
        name: The name of the release.
        conditions: The number of queries to draw, each with a condition of its own.
        noise: The generator that draws them.
    """
    values = db.rows(fill("core/values", {"domain": temp_table("domain"), "columns": roles.sa_columns()}))
    sensitive_columns = [column(f.name) for f in roles.sensitive]
    for condition in _draw_conditions(db, roles, conditions, noise):
        groups = tuple(tuple(values[i]) for i in noise.choice(len(values), min(4, len(values)), replace=False))
        yield Question(count_query(name, condition, sensitive_columns), groups)


def draw_ranges(
    db: OrderedRelations, roles: Roles, name: str, queries: int, noise: np.random.Generator
) -> Iterator[Question]:
    """Yield counts with equalities on 1 to 3 quasi-identifiers and a range of the sensitive column as conditions.

    The range holds 1 to 50 % of the records.

    Args:
        db: The engine, which has the source as ``records``, and its sensitive values with their numbers of records as
            ``domain``.
        roles: The columns of the source, of which one is sensitive and has an order.
        name: The name of the release.
        queries: The number of queries.
        noise: The generator that draws them.
    """
    key, field = column(roles.sa_keys[0]), roles.sensitive[0]
    rows = db.rows(fill("core/values", {"domain": temp_table("domain"), "columns": [key, column("records")]}))
    ends = np.cumsum([row[-1] for row in rows])
    for condition in _draw_conditions(db, roles, queries, noise):
        share = noise.uniform(0.01, 0.5)
        first = noise.uniform(0, 1 - share)
        low, high = (rows[int(np.searchsorted(ends, part * ends[-1]))][0] for part in (first, first + share))
        least, most = (make_equality(column(field.name), end, field.type) for end in (low, high))
        between = exp.Between(this=column(field.name), low=least.expression, high=most.expression)
        yield Question(count_query(name, exp.and_(condition, between), []))


def _draw_conditions(db: OrderedRelations, roles: Roles, number: int, noise: np.random.Generator) -> Iterator[exp.Expr]:
    """Yield random conditions for queries: equality of 1 to 3 quasi-identifiers with the values of a random record.

    Args:
        db: The engine, which has the source as ``records``.
        roles: The columns of the source.
        number: The number of conditions.
        noise: The generator that draws them.

    Raises:
        UsageError: Too few conditions select more than 0.2 % of the records (``LEAST_SHARE``).
    """
    records = int(db.rows(fill("core/size", {"table": temp_table("records")}))[0][0])
    for row in sample_rows(db, roles.qi_columns("r"), records, number * TRIES, noise):
        chosen = noise.choice(len(roles.quasi_identifiers), noise.integers(1, min(3, len(row)) + 1), replace=False)
        kinds = [field.type for field in roles.quasi_identifiers]
        inner = exp.and_(*(make_equality(column(roles.qi_keys[i]), row[i], kinds[i]) for i in chosen))
        selected = int(db.rows(fill("core/matching", {"table": temp_table("records"), "filter": inner}))[0][0])
        if selected <= LEAST_SHARE * records:
            continue
        fields = [(i, field) for i, field in enumerate(roles.quasi_identifiers) if i in chosen]
        yield exp.and_(*(make_equality(column(field.name), row[i], field.type) for i, field in fields))
        number -= 1
        if not number:
            return
    raise UsageError(f"too few conditions select more than {LEAST_SHARE:.1%} of the records; take the workload random")


def draw_random(db: OrderedRelations, roles: Roles, name: str, workload: Workload) -> Iterator[Question]:
    """Yield counts whose conditions are expected to select a given share of the records.

    The workload is that of the paper on Anatomy (Xiao and Tao 2006, section 6). A condition names q random
    quasi-identifiers and all c sensitive columns. To select the share s of the records, each of these columns must be
    among ceil(|A| s^(1/(q+c))) random values out of its domain A.

    Args:
        db: The engine, which has the source as ``records``.
        roles: The columns of the source.
        name: The name of the release, for the FROM of the queries.
        workload: The number of queries, q, s and the seed.
    """
    noise = workload.query_generator
    domains: dict[str, list[Any]] = {}
    for key, f in zip((*roles.qi_keys, *roles.sa_keys), roles.columns, strict=True):
        domain = exp.select(column(key)).distinct().from_(temp_table("records")).subquery("values")
        rows = db.rows(fill("core/values", {"domain": domain, "columns": [column(key)]}))
        domains[f.name] = [row[0] for row in rows]
    qd = min(workload.attributes, len(roles.quasi_identifiers))
    part = workload.selectivity ** (1 / (qd + len(roles.sensitive)))
    for _ in range(workload.query_count):
        chosen = [roles.quasi_identifiers[i] for i in noise.choice(len(roles.quasi_identifiers), qd, replace=False)]
        conditions = []
        for each_field in (*chosen, *roles.sensitive):
            values = domains[each_field.name]
            selected = noise.choice(len(values), ceil(len(values) * part), replace=False)
            conditions.append(make_membership(column(each_field.name), [values[i] for i in selected], each_field.type))
        yield Question(count_query(name, exp.and_(*conditions), []))


def from_file(path: Path) -> list[Question]:
    """Return the queries of a file of SQL, which are separated by semicolons.

    Raises:
        UsageError: The file can't be read, or is not SQL.
    """
    try:
        statements = sqlglot.parse(path.read_text(encoding="utf-8"), dialect=DIALECT)
    except OSError as error:
        why = f"{error.strerror}; a workload is equality, random, ranges, or a file of SQL"
        raise UsageError(f"{path}: {why}") from error
    except sqlglot.errors.SqlglotError as error:
        raise UsageError(f"{path}: {str(error).splitlines()[0]}") from error
    return [Question(statement.sql(dialect=DIALECT)) for statement in statements if statement is not None]


def sample_rows(
    db: OrderedRelations, columns: Sequence[exp.Expr], records: int, number: int, noise: np.random.Generator
) -> Iterator[Sequence[Any]]:
    """Yield columns of random records, drawn with replacement.

    Args:
        db: The engine, which has the source as ``records``.
        columns: Expressions over the alias ``r`` of the records.
        records: The number of all records.
        number: The number of rows to draw, rounded up to whole thousands.
        noise: The generator that draws them.
    """
    size = 1000
    for _ in range(0, number, size):
        drawn = noise.integers(0, records, size)
        db.register_arrow("drawn", pa.table({"rank": np.arange(size), "pos": drawn}))
        holes: Holes = {
            "records": temp_table("records"),
            "drawn": temp_table("drawn"),
            "columns": columns,
            "position": db.row_number("r"),
        }
        rows = db.rows(fill("core/drawn", holes))
        db.drop("drawn")
        yield from rows


def count_query(name: str, condition: exp.Expr | None, groups: Sequence[exp.Expr]) -> str:
    """Return the SQL text of a count query.

    Args:
        name: The name of the release in FROM.
        condition: The condition of WHERE; None if there is none.
        groups: The columns of GROUP BY, which are also selected; empty for no GROUP BY.
    """
    query = exp.select(*groups, exp.Count(this=exp.Star())).from_(table(name))
    query = query if condition is None else query.where(condition)
    return (query.group_by(*groups) if groups else query).sql(dialect=DIALECT)


def make_membership(left: exp.Expr, values: Sequence[object], kind: str) -> exp.Expr:
    """Return the condition that ``left`` is one of some values; NULL may be among them.

    Args:
        left: An expression.
        values: The values.
        kind: Their SQL type.
    """
    known = [make_equality(left, value, kind).expression for value in values if value is not None]
    parts: list[exp.Expr] = [exp.In(this=left.copy(), expressions=known)] if known else []
    return exp.or_(*parts, *(make_equality(left.copy(), None, kind) for value in values if value is None))


def make_equality(left: exp.Expr, value: object, kind: str) -> exp.Expr:
    """Return the condition ``left = value``, the value cast to the SQL type ``kind``; ``left IS NULL`` for None."""
    if value is None:
        return exp.Is(this=left, expression=exp.null())
    literal = exp.Literal.string("true" if value is True else "false" if value is False else str(value))
    return exp.EQ(this=left, expression=exp.cast(literal, exp.DataType.build(kind, dialect=DIALECT)))


# Accuracy -------------------------------------------------------------------------------------------------------------

AnyQuestion = TypeVar("AnyQuestion")
TrueAnswers = dict[tuple[Any, ...], float]


@dataclass(frozen=True)
class Evaluated(Outcome):
    """The outcome of ``evaluate``.

    Attributes:
        scores: The answers of each estimator, the most precise estimator first.
        channel: Figures by ``channel.measure_quality`` that say how much the release reveals of counts of sensitive
            values; empty if unknown.
        confidence: The confidence of the intervals.
        extras: For each estimator, further figures that only private tables and item sets have, such as errors by class
            of query. They are shown with its scores.
    """

    title = "Answers beside those of the source"

    scores: dict[str, Score]
    channel: dict[str, float]
    confidence: float
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """Return the name of the most precise estimator that was evaluated."""
        return next(iter(self.scores))

    def points(self) -> list[dict[str, Any]]:
        """Return one dictionary for each query and group, with its true answer and the answers of the estimators.

        Its keys are ``question`` (the SQL), ``group`` (texts of the values), ``class`` if queries have classes,
        ``truth``, and the name of each estimator. An estimator's answer has ``estimate``, ``low`` and ``high``, None
        for a missing bound. An estimator that refuses the query is left out.
        """
        by_question: dict[tuple[QuestionKey, int], dict[str, Any]] = {}
        for name, score in self.scores.items():
            times: dict[QuestionKey, int] = defaultdict(int)
            for put, truth, answer in score.pair_answers():
                times[put] += 1  # a question that was drawn twice gives two points
                if (put, times[put]) not in by_question:
                    group = [None if value is None else str(value) for value in put.group]
                    described = {"question": put.question, "group": group, "class": put.of}
                    asked = {key: one for key, one in described.items() if one or key == "question"}
                    by_question[put, times[put]] = asked | {"truth": truth}
                by_question[put, times[put]][name] = answer
        return list(by_question.values())

    def plot(self) -> Any:
        """Return an altair chart: errors by size of the true answer, and estimates against true answers."""
        return plot.draw_picture(plot.draw_evaluation, self.scores)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield the table of errors and coverage of each estimator, by size of the answer.

        If queries have classes, the table is by class instead.
        """
        hold = f"{self.confidence:.0%} intervals"
        if any(self.extras.values()):
            for name, extra in self.extras.items():
                yield from _show_classes(name, extra)
            yield f"{ERROR}; coverage is that of the {hold}"
            if any(extra.get("useful") for extra in self.extras.values()):
                yield f"bound: no question of a class errs by more, with probability {self.confidence:.0%}; {USEFUL}"
            return
        rows = []
        for name, score in self.scores.items():
            summary = score.summary()
            for band in (*summary["bands"], summary):
                label = "all" if band is summary else plot.band_label(band)
                errors = (_format_error(band[key]) for key in ("mean_relative_error", "median_relative_error"))
                rows.append((name, label, f"{band['queries']:,}", *errors, format_percent(band["coverage"])))
        columns = ("estimator", "true answer", "queries", "mean error", "median error", "coverage")
        yield Table(columns, rows, range(1, len(columns)))
        coverage = f"coverage: share of {hold} that hold the truth; baseline's bounds are certain"
        yield f"errors: |estimate - truth| / truth; {coverage}"

    def as_json(self) -> dict[str, Any]:
        """Return the evaluation as the object that ``--json`` prints."""
        summaries = {name: score.summary() | self.extras.get(name, {}) for name, score in self.scores.items()}
        return {**summaries, "channel": self.channel, "confidence": self.confidence}


ERROR = "mean error is |estimate - truth| / max(truth, 0.1 % of the records), half-width in records"
USEFUL = "it adds up noise as if all of it went one way (Chen et al. 2011, theorem 4.2)"


def _show_classes(estimator: str, extra: Mapping[str, Any]) -> Iterator[Part]:
    """Yield what is shown of one estimator for private tables and item sets, as far as ``extra`` has it.

    These are errors by class of query and by size of the answer, the distance of estimated tables from the source's,
    and how many of the most frequent items were found.
    """
    labelled = [
        *((one["class"], one) for one in extra.get("questions", [])),
        *((f"up to {one['length_share']:.0%} of the longest", one) for one in extra.get("classes", [])),
        *((_label_share(one), one) for one in extra.get("shares", [])),
        *((f"cells of tables by {one['ways']}", one) for one in extra.get("tables", [])),
    ]
    rows = [
        (
            label,
            f"{figures.get('queries', figures.get('cells')):,}",
            _format_error(figures.get("mean_error", figures.get("mean_relative_error"))),
            format_percent(figures["coverage"]),
            None if figures["half_width"] is None else f"{figures['half_width']:,.0f}",
        )
        for label, figures in labelled
    ]
    yield Table((estimator, "asked", "mean error", "coverage", "half-width"), rows, range(1, 5))
    for one in extra.get("tables", []):
        if one["tables"]:
            of = f"{one['tables']} of {one['of']}" if one["tables"] < one["of"] else f"all {one['of']}"
            distance = f"mean {one['total_variation']:.3f}, largest {one['largest']:.3f}"
            yield f"total variation of {of} tables by {one['ways']}: {distance}"
    if extra.get("useful"):
        useful = [
            (
                one["class"] if one["class"].isidentifier() else f"up to {float(one['class']):.0%} of the longest",
                f"{one['largest_error']:,.0f}",
                f"{one['epsilon']:,}",
            )
            for one in extra["useful"]
        ]
        yield Table(("usefulness, in records", "largest error", "bound"), useful, (1, 2))
    if "top_items" in extra:
        precision = ", ".join(f"top {number}: {one['precision']:.0%}" for number, one in extra["top_items"].items())
        if precision:
            yield f"most frequent items found: {precision}"
        tops = ", ".join(f"top {number}: {utility:.3f}" for number, utility in extra["top"].items())
        yield f"frequent item sets, utility: {tops}"


def _label_share(band: Mapping[str, Any]) -> str:
    low, high = (f"{100 * (end or 0):g} %" for end in (band["low"], band["high"]))
    return f"{low} or more" if band["high"] is None else f"{low} to {high} of the records"


def _format_error(error: float | None) -> str | None:
    return None if error is None else f"{error:.3f}"


@dataclass(frozen=True)
class EvaluationContext:
    """A release beside its source, with all that an evaluation needs.

    Attributes:
        db: The engine, which has the source as ``records`` and under the name of the release.
        records: The source.
        name: The name of the release.
        answers: The open release.
        workload: The queries to ask.
        confidence: The confidence of the intervals.
        answer: Returns the release's answer to a query by an estimator.
        truth: Returns the source's answer to a query, by group.
        report: Shows progress.
    """

    db: OrderedRelations
    records: Records
    name: str
    answers: Answers
    workload: Workload
    confidence: float
    answer: Callable[[str, str], Answer]
    truth: Callable[[str], TrueAnswers]
    report: Reporter

    @property
    def estimators(self) -> tuple[str, ...]:
        """Return the names of the estimators to evaluate.

        Raises:
            UsageError: The workload names an estimator that the release does not offer.
        """
        known, wanted = self.answers.estimators, self.workload.estimators
        for name in wanted or ():
            self.answers.require_estimator(name)
        return tuple(name for name in known if wanted is None or name in wanted)


def score_classes(
    context: EvaluationContext,
    classes: Mapping[str, Sequence[AnyQuestion]],
    ask: Callable[[AnyQuestion, str], Mapping[str, Score]],
) -> dict[str, dict[str, Score]]:
    """Return the scores of all queries, by estimator and then by class of query (such as ``eq2`` or ``range``).

    Args:
        context: The release and its source.
        classes: The queries of each class. A query that occurs twice is asked once, and its score counts twice.
        ask: Returns the scores of one query by estimator, given the query and the name of its class.
    """
    result: dict[str, dict[str, Score]] = {name: {of: Score() for of in classes} for name in context.estimators}
    for of, questions in classes.items():
        context.report.start_step(f"Asking for {of}")
        known: dict[AnyQuestion, Mapping[str, Score]] = {}
        for one in report_steps(context.report, questions, len(questions)):
            known[one] = known[one] if one in known else ask(one, of)
            for name, score in known[one].items():
                result[name][of].extend(score)
    return result


def by_class(scores: Mapping[str, Score], records: float) -> dict[str, list[Band]]:
    """Summarize the errors of one estimator by class of query, and by the share of the records that an answer counts.

    Args:
        scores: The scores of the estimator in each class.
        records: The number of all records of the source.
    """
    classes: list[Band] = [{"class": name, **one.summarize_band(records)} for name, one in scores.items()]
    return {"questions": classes, "shares": join_scores(scores.values()).by_share(records)}


def by_questions(context: EvaluationContext) -> Evaluated:
    """Evaluate the answers of every estimator to the queries of the workload.

    A workload scores only groups whose true count lies within its limits. A query without such a group is left out.
    """
    drawn, number = draw_workload(context.db, context.records.roles, context.name, context.workload)
    scores, wanted = {name: Score() for name in context.estimators}, context.workload.is_wanted
    context.report.start_step("Answering the workload")
    for question in report_steps(context.report, drawn, number):
        true = context.truth(question.sql)
        if question.groups is not None and not any(wanted(true.get(group, 0.0)) for group in question.groups):
            continue
        for estimator, score in scores.items():
            known = context.answer(question.sql, estimator).by_group()
            for group in dict.fromkeys((*true, *known)) if question.groups is None else question.groups:
                truth = true.get(group, 0.0)
                if wanted(truth):
                    score.add(truth, known.get(group, (0.0, 0.0, 0.0)), QuestionKey(question.sql, group))
    channel = context.answers.channel if context.records.roles.quasi_identifiers else None
    channel_quality = measure_quality(channel) if channel is not None and len(channel.records) <= LARGE else {}
    return Evaluated(scores, channel_quality, context.confidence)
