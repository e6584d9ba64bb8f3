"""Measure how good the answers of a release are: workloads of queries, true answers, errors and coverage by size."""

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

BANDS = (0, 1, 50, 200, 1000, 5000, float("inf"))  # true answers from .. up to, not including
SANITY = 0.001  # share of the records below which a true answer counts as that
SHARES = (0, 0.0001, 0.001, 0.01, 0.1, float("inf"))  # true answers by share of the records, from .. up to


class QuestionKey(NamedTuple):
    """What identifies one answer of an evaluation: the SQL, the group of the answer, and the question's class."""

    question: str = ""
    group: tuple[Any, ...] = ()
    of: str = ""


UNNAMED = QuestionKey()


Band = dict[str, str | int | float | None]  # figures of some answers, by name


@dataclass
class Score:
    """The true answers, estimates and bounds of one estimator, with one entry for each query and group.

    ``put`` holds the question of each entry.
    """

    truth: list[float] = field(default_factory=list)
    estimate: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    put: list[QuestionKey] = field(default_factory=list)

    def add(
        self, truth: float, figures: tuple[Number | None, Number | None, Number | None], put: QuestionKey = UNNAMED
    ) -> None:
        """Add one answer: the truth, and (estimate, low, high), where None stands for a missing bound."""
        estimate, low, high = figures
        self.put.append(put)
        self.truth.append(truth)
        self.estimate.append(0.0 if estimate is None else float(estimate))
        self.low.append(np.nan if low is None else float(low))
        self.high.append(np.nan if high is None else float(high))

    def extend(self, other: Score) -> None:
        """Add all answers of another score."""
        for one in fields(self):
            getattr(self, one.name).extend(getattr(other, one.name))

    def summarize_band(self, records: float, low: float = -np.inf, high: float = np.inf) -> Band:
        """Return number, mean error, coverage and half-width of the answers whose truth lies in [low, high).

        The error is |estimate - truth| / max(truth, SANITY * records); the half-width is the mean of (high - low)/2, in
        records. A figure is None if there are no answers, or none with bounds.
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
        """Yield truth, estimates, lows and highs of the answers whose truth lies in [low, high)."""
        truth = np.array(self.truth)
        inside = (truth >= low) & (truth < high)
        return (np.array(part)[inside] for part in (self.truth, self.estimate, self.low, self.high))

    @property
    def largest_error(self) -> float:
        """Return the largest |estimate - truth|; 0 if there are no answers."""
        return float(np.abs(np.array(self.estimate) - np.array(self.truth)).max(initial=0))

    def pair_answers(self) -> list[tuple[QuestionKey, float, dict[str, float | None]]]:
        """Return the question, truth and answer (estimate, low, high) of each entry; None for a missing bound."""
        answers: list[dict[str, float | None]] = []
        for estimate, *ends in zip(self.estimate, self.low, self.high, strict=True):
            low, high = (None if np.isnan(end) else end for end in ends)
            answers.append({"estimate": estimate, "low": low, "high": high})
        return list(zip(self.put, self.truth, answers, strict=True))

    def by_share(self, records: float) -> list[Band]:
        """Return the figures by share of the records that the true answer has, without empty bands."""
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
        """Return the figures of ``--json``; true answers of 0 are left out of relative errors."""
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
    """Return the share of intervals that hold the truth; None where there is none."""
    bounded = ~np.isnan(low) & ~np.isnan(high)
    covered = (low <= truth + 1e-9) & (truth <= high + 1e-9)
    return float(covered[bounded].mean()) if bounded.any() else None


def join_scores(scores: Iterable[Score]) -> Score:
    """Return all answers of several scores as one."""
    result = Score()
    for one in scores:
        result.extend(one)
    return result


# Workload -------------------------------------------------------------------------------------------------------------

LEAST_SHARE = 0.002  # a condition on quasi-identifiers must select more of the records than this
QUERIES, OF_EACH = 1200, 300
KINDS = ("equality", "random", "ranges")
CELLS = 40  # of the tables by as many columns, for every query
TRIES = 200  # conditions drawn for one that selects enough


@dataclass(frozen=True)
class Question:
    """A query, and the groups of its answer that are compared; None for all groups that release or source have."""

    sql: str
    groups: tuple[tuple[Any, ...], ...] | None = None


@dataclass(frozen=True)
class Workload:
    """The questions of an evaluation.

    Differentially private tables and item sets have classes of questions of their own in place of ``equality``.

    Attributes:
        kind: ``equality``, ``random`` or ``ranges``, the form of the predicates.
        queries: How many queries there are, or at most how many of each class; None for the number of a first look.
        attributes: How many quasi-identifiers a ``random`` query restricts.
        selectivity: The expected share of the records that a ``random`` query selects.
        seed: The seed of the generator that draws the queries.
        file: A file of SQL whose queries are asked instead.
        ways: For private tables, the most columns of a GROUP BY.
        cells: The most cells that the tables by so many columns have together; None for ``CELLS`` for each query.
        true_answers: The least and the greatest true answer, both included, of questions that count; None for no limit.
        estimators: The estimators that are asked; None for all.
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
        """Return whether a question with that true answer counts."""
        low, high = self.true_answers or (None, None)
        return (low is None or low <= truth) and (high is None or truth <= high)

    @property
    def query_count(self) -> int:
        """Return how many queries there are to be."""
        return QUERIES if self.queries is None else self.queries

    @property
    def per_class(self) -> int:
        """Return how many there are to be of each class, where there are classes."""
        return OF_EACH if self.queries is None else self.queries

    @property
    def max_cells(self) -> int:
        """Return how many cells tables may have together."""
        return CELLS * self.per_class if self.cells is None else self.cells

    @property
    def query_generator(self) -> np.random.Generator:
        """Return the generator that draws the queries."""
        return seed_key(self.seed).random_generator("workload", self.kind)


def draw_workload(db: OrderedRelations, roles: Roles, name: str, workload: Workload) -> tuple[Iterable[Question], int]:
    """Return the queries of a workload over the source, which lies in ``db`` as ``records`` and ``domain``; how many.

    Raises ``UsageError`` for a workload that is unknown or that such columns can't have.
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
    """Yield equality on 1-3 quasi-identifiers with the values of a random record, and four sensitive values.

    After Small Domain, 10.9. Conditions that select no more than ``LEAST_SHARE`` of the records are drawn again.
    ``db`` holds the source as ``records`` and ``domain``.
    """
    values = db.rows(fill("core/values", {"domain": temp_table("domain"), "columns": roles.sa_columns()}))
    sensitive_columns = [column(f.name) for f in roles.sensitive]
    for condition in _draw_conditions(db, roles, conditions, noise):
        groups = tuple(tuple(values[i]) for i in noise.choice(len(values), min(4, len(values)), replace=False))
        yield Question(count_query(name, condition, sensitive_columns), groups)


def draw_ranges(
    db: OrderedRelations, roles: Roles, name: str, queries: int, noise: np.random.Generator
) -> Iterator[Question]:
    """Yield equality on 1-3 quasi-identifiers, and a range of sensitive values that holds 1 to 50 % of the records.

    ``db`` holds the source as ``records`` and ``domain``; there is one sensitive column, which has an order.
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
    """Yield equality on 1-3 quasi-identifiers with a record's values; ``UsageError`` if too few select enough."""
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
    """Yield predicates of an expected selectivity s (Anatomy, section 6).

    Each names qd quasi-identifiers and all sensitive columns, and restricts each of these to ceil(|A| s^(1/(qd+1)))
    random values of its domain A.
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
    """Return the queries of a file of SQL, separated by semicolons."""
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
    """Yield ``columns`` (of ``r``) of random records, drawn with replacement; ``records``: how many there are."""
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
    """Return the text of a count query over the release ``name``."""
    query = exp.select(*groups, exp.Count(this=exp.Star())).from_(table(name))
    query = query if condition is None else query.where(condition)
    return (query.group_by(*groups) if groups else query).sql(dialect=DIALECT)


def make_membership(left: exp.Expr, values: Sequence[object], kind: str) -> exp.Expr:
    """Return the condition that ``left`` is one of some values, NULL among them, as a flat list."""
    known = [make_equality(left, value, kind).expression for value in values if value is not None]
    parts: list[exp.Expr] = [exp.In(this=left.copy(), expressions=known)] if known else []
    return exp.or_(*parts, *(make_equality(left.copy(), None, kind) for value in values if value is None))


def make_equality(left: exp.Expr, value: object, kind: str) -> exp.Expr:
    """Return ``left = value`` with the value as a constant of its type; IS NULL for NULL."""
    if value is None:
        return exp.Is(this=left, expression=exp.null())
    literal = exp.Literal.string("true" if value is True else "false" if value is False else str(value))
    return exp.EQ(this=left, expression=exp.cast(literal, exp.DataType.build(kind, dialect=DIALECT)))


# Accuracy -------------------------------------------------------------------------------------------------------------

AnyQuestion = TypeVar("AnyQuestion")
TrueAnswers = dict[tuple[Any, ...], float]


@dataclass(frozen=True)
class Evaluated(Outcome):
    """The outcome of ``evaluate``: scores by estimator, the most precise one first, and the quality of the channel.

    ``extras`` holds, by estimator, further figures of some kinds of releases; in JSON they stand beside the score's
    own.
    """

    title = "Answers beside those of the source"

    scores: dict[str, Score]
    channel: dict[str, float]
    confidence: float
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """Return the most precise estimator of those that were asked."""
        return next(iter(self.scores))

    def points(self) -> list[dict[str, Any]]:
        """Return every question with its true answer, and what each estimator says: estimate, low and high.

        ``question``: SQL; ``group``: of its answer, as text; ``class``: of the question, where there are classes. An
        estimator that refuses a question is left out of its point, a bound that it does not have is None.
        """
        by_question: dict[tuple[QuestionKey, int], dict[str, Any]] = {}
        for name, score in self.scores.items():
            times: dict[QuestionKey, int] = defaultdict(int)
            for put, truth, answer in score.pair_answers():
                times[put] += 1  # a question that was drawn twice is two points
                if (put, times[put]) not in by_question:
                    group = [None if value is None else str(value) for value in put.group]
                    described = {"question": put.question, "group": group, "class": put.of}
                    asked = {key: one for key, one in described.items() if one or key == "question"}
                    by_question[put, times[put]] = asked | {"truth": truth}
                by_question[put, times[put]][name] = answer
        return list(by_question.values())

    def plot(self) -> Any:
        """Return an altair chart of errors by size of the true answer, and of estimated against true answers."""
        return plot.draw_picture(plot.draw_evaluation, self.scores)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield error and coverage of each estimator, by size of the answer; where questions have classes, by these."""
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
        """Return the object of ``--json``."""
        summaries = {name: score.summary() | self.extras.get(name, {}) for name, score in self.scores.items()}
        return {**summaries, "channel": self.channel, "confidence": self.confidence}


ERROR = "mean error is |estimate - truth| / max(truth, 0.1 % of the records), half-width in records"
USEFUL = "it adds up noise as if all of it went one way (Chen et al. 2011, theorem 4.2)"


def _show_classes(estimator: str, extra: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the figures of one estimator: questions by class and by share, tables, and most frequent items."""
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
    """A release beside its source, whose ``records`` are in ``db``, also under the release's name.

    ``answer`` returns the answers of the release to a query by estimator, ``truth`` those of the source by group.
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
        """Return the estimators of the release that are evaluated; raise ``UsageError`` for an unknown one."""
        known, wanted = self.answers.estimators, self.workload.estimators
        for name in wanted or ():
            self.answers.require_estimator(name)
        return tuple(name for name in known if wanted is None or name in wanted)


def score_classes(
    context: EvaluationContext,
    classes: Mapping[str, Sequence[AnyQuestion]],
    ask: Callable[[AnyQuestion, str], Mapping[str, Score]],
) -> dict[str, dict[str, Score]]:
    """Return the scores of questions by estimator and class.

    ``ask`` returns the scores of one question; equal questions of a class are asked once.
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
    """Return the figures of one estimator by class of question, and of all of these by share of the records."""
    classes: list[Band] = [{"class": name, **one.summarize_band(records)} for name, one in scores.items()]
    return {"questions": classes, "shares": join_scores(scores.values()).by_share(records)}


def by_questions(context: EvaluationContext) -> Evaluated:
    """Evaluate the answers of every estimator to a workload of queries.

    A query is not put to the release if no group of it has a true answer that the workload wants.
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
