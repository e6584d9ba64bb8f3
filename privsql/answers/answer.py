"""Define the answer to a query, and the base class of the objects that answer queries to an open release.

Each figure of an answer states how far it can be relied on. Tables, JSON, CSV and Python show the same columns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from privsql import markup
from privsql.answers.amounts import ADDED, ADDED_FORMULA, add_values, count_by_value
from privsql.answers.sql import compiler
from privsql.answers.sql.cuts import find_coded_ends, refuse_cuts
from privsql.answers.sql.grammar import COMPARISONS, EQUALITY, as_written
from privsql.answers.sql.question import (
    EXACT,
    AggregateCall,
    CountQuery,
    Explained,
    Statement,
    exact_answer,
    exact_statement,
    is_number,
)
from privsql.engine.sqlfiles import Holes, Roles, column, fill, render_sql, table
from privsql.errors import EngineError, UsageError, closest
from privsql.figures import format_estimate, format_key
from privsql.figures import is_number as is_figure
from privsql.model.estimates import BASELINE, BEST, CERTAIN, find_weakest
from privsql.outcomes import Outcome, Part, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from privsql.answers.channel import Channel
    from privsql.answers.sql.question import Lookups
    from privsql.engine.database import Relations
    from privsql.model.arrays import ReleaseArrays
    from privsql.model.bins import Bins
    from privsql.model.estimates import Estimate, RestsOn
    from privsql.model.manifest import Manifest

# Answer ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """An estimated column of an answer: an aggregate function, or arithmetic on several of them.

    Attributes:
        name: The name of its column.
        at: The index of the column of the estimate; ``std_error``, ``low`` and ``high`` are the next three columns.
        rests_on: How far its bounds can be relied on: ``exact``, ``certain``, ``interval`` or ``point`` (no bounds).
        touching: The number of records that the release leaves out and that could meet the conditions of the query.
        if_any: The same as ``rests_on``, on condition that at least one record meets the conditions of the query.
        covers_missing: Whether the bounds hold for the whole source, including the records that the release leaves out.
    """

    name: str
    at: int
    rests_on: RestsOn
    touching: int
    if_any: RestsOn = "interval"
    covers_missing: bool = True

    def read_row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return (estimate, standard error, low, high) of this column from a row of the answer."""
        return row[self.at : self.at + 4]

    def explain(self, confidence: float) -> str:
        """Return a phrase that tells a user what low and high mean.

        Args:
            confidence: The confidence of the intervals, between 0 and 1.
        """
        if self.rests_on == "exact":
            return "exact: the release holds the true answer"
        if self.rests_on == "certain":
            return "low and high are certain: the true answer lies between them"
        if self.rests_on != self.if_any and self.if_any in CERTAIN:
            return "low and high bound the true answer if any record meets the question; else it is NULL"
        if self.rests_on == "point":
            return "an estimate without an interval"
        return f"low and high: {confidence:.0%} interval"


@dataclass(frozen=True)
class Answer(Outcome):
    """The answer to a query: columns and rows in the order of the query, with bounds and warnings.

    Each estimate takes four columns: the estimate itself, its standard error, low and high.

    Attributes:
        columns: The names of all columns.
        rows: The rows, with a value for each column.
        figures: The estimated columns.
        confidence: The confidence of the intervals, between 0 and 1.
        estimator: The name of the estimator.
        explained: The SQL statements that read the release, each with its formula in words.
        missing: The number of records of the source that the release leaves out; None if it does not state that.
        source_records: The number of all records of the source; None if the release does not state that.
        may_be_empty: For each row, whether there may be no record that one of its estimates counts or aggregates.
        hints: Sentences about values in the query that the release does not have.
        without_figures: How far an answer without estimated columns can be relied on.
        rows_rest_on: How reliable the choice of rows is, which HAVING, or ORDER BY with LIMIT, makes from estimates.
        draws_at: The index of the column that says in how many completed tables (copies of the release in which each
            record has one drawn sensitive value) the row occurs; None if there is none.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    figures: tuple[Figure, ...]
    confidence: float
    estimator: str
    explained: tuple[Explained, ...]
    missing: int | None = None
    source_records: int | None = None
    may_be_empty: tuple[bool, ...] = ()
    hints: tuple[str, ...] = ()
    without_figures: RestsOn = "exact"
    rows_rest_on: RestsOn = "exact"
    draws_at: int | None = None

    @cached_property
    def sql(self) -> str:
        """Return the SQL statements that were run on the release, separated by semicolons."""
        return ";\n".join(dict.fromkeys(_write_statement(one) for one, _ in self.explained))

    @property
    def formula(self) -> str:
        """Return in words how the figures follow from the rows that the SQL reads, one line for each statement."""
        return "\n".join(dict.fromkeys(formula for _, formula in self.explained))

    @property
    def rests_on(self) -> RestsOn:
        """Return the least reliable kind of bound (``exact``, ``certain``, ..) that the answer has."""
        if not self.figures:
            chosen = any(self.may_be_empty) or self.rows_rest_on != "exact"
            return "point" if chosen else self.without_figures
        return find_weakest((*(one.rests_on for one in self.figures), self.rows_rest_on))

    @property
    def certain(self) -> bool:
        """Return whether the true answer certainly lies between low and high, in every estimated column."""
        return self.rests_on in CERTAIN

    @property
    def interval(self) -> str:
        """Return a sentence that says what low and high mean; one line for each estimated column if they differ."""
        meanings = {one.name: one.explain(self.confidence) for one in self.figures}
        if len(set(meanings.values())) == 1:
            return next(iter(meanings.values()))
        return "\n".join(f"{name}: {meaning}" for name, meaning in meanings.items())

    @property
    def notes(self) -> list[str]:
        """Return the warnings that are shown below the answer."""
        notes, rows, empty = list(self.hints), len(self.rows), sum(self.may_be_empty)
        if self.rows_rest_on != "exact":
            notes.append("which rows are shown is itself an estimate")
        if empty:
            which, whose = ("the answer", "its") if rows == 1 else (f"{empty:,} of {rows:,} rows", "their")
            notes.append(f"{which} may be empty: the bounds of {whose} number of records reach below 1")
        intervals = [one for one in self.figures if one.rests_on != "point"]
        read = ([one.read_row(row) for one in intervals] for row in self.rows)
        bare = sum(any(figure[0] is not None and figure[2:] == (None, None) for figure in row) for row in read)
        if bare and self.rests_on != "point":
            notes.append(f"{bare:,} rows have no interval: no published count is about them")
        if self.missing and self.source_records:
            share = self.missing / self.source_records
            effects: dict[str, str] = {}
            for one in self.figures:
                at_most = "high counts" if one.rests_on != "point" else "the question could meet"
                some = f"{at_most} {one.touching:,} of them, the estimate none"
                some = some if one.covers_missing else "the figures are of the others"
                effects[one.name] = some if one.touching else "none of them can meet the question"
            if len(set(effects.values())) != 1:
                effects = {name: f"{name}: {effect}" for name, effect in effects.items()}
            left = f"{self.missing:,} records of the source ({share:.1%}) are not in the release"
            notes.append("; ".join(dict.fromkeys((left, *effects.values()))))
        return notes

    @property
    def empty_marks(self) -> list[str]:
        """Return "yes" for each row whose group may be empty, and an empty text for each other row.

        The list is empty if all rows are alike in this.
        """
        alike = len(set(self.may_be_empty)) < 2
        return [] if alike else ["yes" if one else "" for one in self.may_be_empty]

    def by_group(self) -> dict[tuple[Any, ...], tuple[Any, Any, Any]]:
        """Return (estimate, low, high) for each group; keys are the values of the grouping columns.

        Raises:
            UsageError: The answer does not have exactly one estimated column.
        """
        if len(self.figures) != 1:
            raise UsageError("ask for one COUNT, SUM or AVG")
        one = self.figures[0]
        keys = [at for at in self.group_places if at != self.draws_at]
        return {tuple(row[at] for at in keys): (row[one.at], *one.read_row(row)[2:]) for row in self.rows}

    def frame(self) -> pd.DataFrame:
        """Return the answer as a pandas DataFrame, with the warnings in ``attrs["notes"]``."""
        import pandas as pd

        frame = pd.DataFrame(self.rows, columns=pd.Index(self.columns))
        frame.attrs["notes"] = self.notes
        return frame

    def arrow(self) -> pa.Table:
        """Return the answer as an Arrow table; a column whose values have no common type becomes text."""
        import pyarrow as pa

        by_column = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.columns)
        return pa.Table.from_arrays([_as_array(column) for column in by_column], names=list(self.columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the answer as an Arrow stream, so that ``polars.DataFrame(answer)`` and DuckDB can read it."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def polars(self) -> pl.DataFrame:
        """Return the answer as a Polars DataFrame.

        Raises:
            EngineError: Polars is not installed.
        """
        try:
            import polars as pl
        except ImportError as error:
            raise EngineError("polars is not installed; run: pip install polars") from error
        return pl.DataFrame(self)

    @cached_property
    def plain_columns(self) -> tuple[int, ...]:
        """Return the indices of the columns that the query itself asks for, without standard errors and bounds."""
        beyond = {one.at + part for one in self.figures for part in (1, 2, 3)} | {self.draws_at}
        return tuple(at for at in range(len(self.columns)) if at not in beyond)

    @property
    def plain_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows with only the columns that the query itself asks for, without standard errors and bounds."""
        return [tuple(row[at] for at in self.plain_columns) for row in self.rows]

    def format_row(self, row: Sequence[Any]) -> list[object]:
        """Return the texts of a row for people.

        Figures have as many digits as their standard errors justify; other values are shown as they are.
        """
        cells = [format_key(value) for value in row]
        for one in self.figures:
            cells[one.at : one.at + 4] = format_estimate(*row[one.at : one.at + 4])
        return cells

    @property
    def group_places(self) -> list[int]:
        """Return the indices of the columns without estimates, errors or bounds, such as those of GROUP BY."""
        inside = {one.at + part for one in self.figures for part in range(4)}
        return [at for at in range(len(self.columns)) if at not in inside]

    def as_table(self, most: int = markup.ROWS) -> markup.Html:
        """Return the first rows as an HTML table, with a bar for each interval.

        Args:
            most: The number of rows that are shown at most.
        """
        rows, marks, groups = self.rows[:most], self.empty_marks, set(self.group_places)
        ends = {
            one.at + 3: markup.range_of_figures(one.read_row(row)[part] for row in rows for part in (0, 2, 3))
            for one in self.figures
        }
        head: list[object] = []
        for at, name in enumerate(self.columns):
            head += [name, "interval"] if at in ends else [name]
        table: list[list[object]] = []
        for row in rows:
            cells: list[object] = []
            texts = self.format_row(row)
            for at, (value, text) in enumerate(zip(row, texts, strict=True)):
                cells.append(markup.Html(markup.NULL) if value is None and at in groups else text)
                if at in ends:
                    read_out = texts[at - 1], texts[at - 3], text
                    cells.append(markup.html_bar((row[at - 1], row[at - 3], value), ends[at], read_out))
            table.append([*cells, *marks[len(table) : len(table) + 1]])
        head += ["may be empty"] if marks else []
        columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
        numbers = [at for at, column in enumerate(columns) if column and all(map(is_figure, column))]
        numeric = [at + sum(end < at for end in ends) for at in numbers]
        return markup.html_table(head, table, numeric, number=len(self.rows), most=most)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield the parts to print: the table of rows, the meaning of low and high, and the warnings.

        With ``verbose`` the SQL that was run and the formula come first.
        """
        if verbose:
            yield self.sql
            yield self.formula
        marks, joined = self.empty_marks, self.figures if len(self.figures) > 1 else ()
        ends = {one.at + 1 for one in joined}  # "low to high" stands in the place of the standard error
        hidden = {one.at + part for one in joined for part in (2, 3)}
        shown = [at for at in range(len(self.columns)) if at not in hidden]
        columns = ["low to high" if at in ends else self.columns[at] for at in shown]
        rows = []
        for number, row in enumerate(map(self.format_row, self.rows)):
            cells = [f"{_or_dash(row[at + 1])} to {_or_dash(row[at + 2])}" if at in ends else row[at] for at in shown]
            rows.append([*cells, *marks[number : number + 1]])
        columns += ["may be empty"] if marks else []
        yield Table(columns, rows, range(len(columns)), wide=True)
        if self.figures:
            yield self.interval
        if not self.certain:
            yield f"estimator: {self.estimator}"
        yield from (f"note: {note}" for note in self.notes)

    def _repr_html_(self) -> str:
        title = f"{len(self.rows):,} row{'s' * (len(self.rows) != 1)}"
        return markup.html_page(title, self.as_table(), *self.interval.splitlines(), *self.notes)

    def as_json(self) -> dict[str, Any]:
        """Return the answer as the object that ``--json`` prints."""
        groups = self.group_places
        places = [(name, at, at not in groups) for at, name in enumerate(self.columns)]
        rows = [{name: _as_json_value(row[at], is_figure=figure) for name, at, figure in places} for row in self.rows]
        for row, is_empty in zip(rows, self.may_be_empty, strict=False):
            row.update({"may_be_empty": True} if is_empty else {})
        figures = []
        for one in self.figures:
            confidence = None if one.rests_on == "point" else self.confidence
            figures.append({
                "name": one.name,
                "rests_on": one.rests_on,
                "confidence": 1.0 if one.rests_on in CERTAIN else confidence,
                "reason": one.explain(self.confidence),
                "not_in_release": one.touching,
            })  # fmt: skip
        return {
            "rows": rows,
            "confidence": 1.0 if self.certain else self.confidence,
            "estimator": self.estimator,
            "rests_on": self.rests_on,
            "missing": self.missing,
            "figures": figures,
            "notes": self.notes,
        }


def _write_statement(statement: exp.Query | str | Callable[[], exp.Query]) -> str:
    """Return the SQL text of a statement; call it first if it is a function that makes the statement."""
    if isinstance(statement, str):
        return statement
    return render_sql(statement() if callable(statement) else statement)


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _as_array(values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    for kind in (None, pa.uint64()):  # without a type, Arrow tries signed integers only
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError):
            continue
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _as_json_value(value: object, *, is_figure: bool) -> object:
    """Return a value that JSON can hold.

    Dates, infinities and other values without a JSON type become texts. Decimals do too, except figures that a double
    holds exactly.
    """
    if is_figure and isinstance(value, Decimal) and Decimal(repr(float(value))) == value:
        return float(value)
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if value is None or (isinstance(value, bool | int | float | str) and finite) else str(value)


# Open releases --------------------------------------------------------------------------------------------------------

LINEAR, RECONSTRUCTED = "linear", "reconstructed"  # privsql's estimators, beside MODEL
ESTIMATORS = (RECONSTRUCTED, BASELINE)  # the default of mechanisms


MODEL_VERSION = 4  # raised by every change that gives the same release another model
DRAWS = 20  # the number of completed tables
DRAWN_COLUMNS = tuple(f"drawn_{draw}" for draw in range(DRAWS))


@dataclass(frozen=True)
class AttachedModel:
    """The tables of a model that predicts each record's sensitive value, in a database attached beside the release.

    Sensitive values are numbered by codes.

    Attributes:
        weights: The probability that each record has each value that its bucket lists. Its columns are record, bid (the
            bucket), code and weight.
        completed: The codes of the values that were drawn for each record: a column ``record``, and one of
            ``DRAWN_COLUMNS`` for each completed table (a copy of the release with one drawn value for each record).
        records: The name of a temporary relation: QIT with a further column that numbers the records.
        record: The name of that column.
    """

    weights: exp.Table
    completed: exp.Table
    records: str
    record: str


class Answers(ABC):
    """An open release that answers queries; each mechanism has a subclass.

    It reads what it needs from the release once and keeps it.

    Attributes:
        model: The model that was fitted to the release and predicts each record's sensitive value; None if there is
            none.
        modelled: Whether such a model can be fitted to releases of this class.
        draws_tables: Whether completed tables (copies of the release in which each record has one drawn sensitive
            value) can be drawn from such a release without a fitted model.
        certain: The names of the estimators whose bounds hold with certainty.
        records: The name of the published table whose rows are records, or stand for several records.
        values: The name of the table that lists the possible values of the sensitive columns.
        measures: Those of ``sum``, ``avg``, ``min`` and ``max`` of the sensitive column that such releases bound with
            certainty.
        counts_values: Whether sums and means of a sensitive column are computed from counts of its values
            (``answers.amounts``).
    """

    model: AttachedModel | None = None
    modelled: ClassVar[bool] = False
    draws_tables: ClassVar[bool] = False
    certain: ClassVar[frozenset[str]]
    records: ClassVar[str]
    values: ClassVar[str] = "privsql_values"
    measures: frozenset[str]
    counts_values: ClassVar[bool] = False

    def __init__(self, db: Relations, manifest: Manifest) -> None:
        self._db, self._manifest, self._roles = db, manifest, manifest.roles
        self._known: dict[str, list[str | None]] = {}

    @property
    def can_complete(self) -> bool:
        """Return whether completed tables can answer queries.

        These are copies of the release in which each record has one drawn sensitive value. A fitted model draws them,
        or, with some mechanisms, the release alone suffices.
        """
        return self.model is not None

    def complete_tables(self) -> AttachedModel:
        """Return the model whose completed tables (with one drawn sensitive value for each record) answer queries.

        Raises:
            UsageError: No model is attached.
        """
        if self.model is None:
            raise UsageError("no model has drawn completed tables of this release")
        return self.model

    @property
    def algorithm(self) -> str:
        """Return the name of the algorithm that made the release."""
        return self._manifest.algorithm

    @property
    def estimators(self) -> tuple[str, ...]:
        """Return the names of the available estimators, the most precise one first."""
        return ESTIMATORS

    @property
    def in_bins(self) -> frozenset[str]:
        """Return the names of the columns that are published in bins, without their single values."""
        return frozenset()

    @property
    def item_labels(self) -> tuple[str, ...]:
        """Return the texts of the items that a record can hold; an empty tuple if records hold no items."""
        return ()

    def count_items(self, labels: Sequence[str], estimator: str, confidence: float) -> list[Estimate] | None:
        """Estimate for each of some items how many records hold it, all in one step.

        Args:
            labels: The texts of the items.
            estimator: The name of the estimator.
            confidence: The confidence of the intervals, between 0 and 1.

        Returns:
            One estimate for each item; None if this mechanism needs a separate query for each item.
        """
        return None

    def list_values(self, name: str, most: int) -> list[str | None]:
        """Return the texts of a column's values in the release, in the order of its type; None stands for NULL.

        For a column in bins, the values are the lower ends of the bins.

        Args:
            name: The column.
            most: The largest number of values to return.
        """
        of_records = any(field.name == name for field in self._roles.quasi_identifiers)
        place = table(self.records if of_records else self.values)
        holes: Holes = {"records": place, "column": column(name), "most": exp.Literal.number(most)}
        return [row[0] for row in self._db.rows(fill("query/shown", holes))]

    def list_known(self, name: str) -> list[str | None]:
        """Return the texts of a column's values in the release, None for NULL, and keep them for the next call.

        At most ``MOST`` + 1 values are returned. More than ``MOST`` tell the caller that the list is not complete.
        """
        if name not in self._known:
            self._known[name] = self.list_values(name, MOST + 1)
        return self._known[name]

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Parse an analyst's SQL.

        Args:
            sql: The query.
            lookups: The analyst's own tables, which the query may join to the release.

        Raises:
            UsageError: The query is not supported.
        """
        stated = self._manifest
        told = self.measures | (ADDED if self.counts_values else frozenset())
        parsed = compiler.parse_query(sql, self._roles, stated.name, lookups, told)
        refuse_texts(parsed, self._roles)
        return refuse_cuts(parsed, stated.bins, stated.groups, stated.quasi_identifiers)

    @property
    @abstractmethod
    def channel(self) -> Channel | None:
        """Return how true counts become published values on average (``answers.channel``).

        The result is None if this is not a linear function for this mechanism.
        """

    @abstractmethod
    def make_statement(self, query: CountQuery, estimator: str) -> Explained:
        """Return the SQL that reads the release for an estimate, and in words how the estimate is computed.

        Raises:
            UsageError: The estimator can't answer the question.
        """

    @abstractmethod
    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Estimate the answer to a question.

        Returns:
            One row for each group that may be non-empty; a single row if there is no GROUP BY.
        """

    def explain_query(self, query: CountQuery, estimator: str) -> Explained:
        """Return the SQL that reads the release to answer a question, and in words how the answer is computed."""
        if self.holds_exactly(query):
            return exact_statement(query, table(self.records)), EXACT
        if self.adds_values(query):
            statement, formula = self.make_statement(count_by_value(query), estimator)
            return statement, f"{ADDED_FORMULA}; {formula}"
        return self.make_statement(query, estimator)

    def answer_query(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Return the rows of an answer: exact if the release holds the true answer, otherwise estimated."""
        if self.holds_exactly(query):
            return exact_answer(self._db, query, table(self.records))
        if self.adds_values(query):
            self.require_numbers(query, estimator)
            return add_values(query, lambda one: self.answer_query(one, estimator, confidence), confidence)
        return self.answer(query, estimator, confidence)

    def adds_values(self, query: CountQuery) -> bool:
        """Return whether the answer is a sum or mean of a sensitive column, computed from the counts of its values."""
        return self.counts_values and query.measure.side == "sa" and query.measure.kind in ADDED

    def require_numbers(self, query: CountQuery, estimator: str) -> None:
        """Raise ``UsageError`` if this estimator can't give a sum or mean of a sensitive column.

        Such a sum is computed from counts of values with standard errors, which some estimators do not have.
        """
        if estimator == BASELINE or estimator in self.certain:
            others = ", ".join(one for one in self.estimators if one != BASELINE and one not in self.certain)
            raise UsageError(f"{query.measure.kind.upper()} needs another estimator: {others}")

    def holds_exactly(self, query: CountQuery) -> bool:
        """Return whether the release holds the true answer: the question is about quasi-identifiers alone."""
        return query.is_exact and bool(self._roles.quasi_identifiers)

    def comparison_columns(self, conditions: Sequence[exp.Expr]) -> tuple[str, ...]:
        """Return the columns of the table from which two counts must be estimated to know their errors' correlation.

        The error of arithmetic on the counts, such as a quotient, depends on this correlation. It can be computed only
        if both are estimated from the same noisy table. Mechanisms without noisy tables return no columns.

        Args:
            conditions: The conditions of both counts.
        """
        return ()

    def rests_on(self, query: CountQuery, estimator: str) -> RestsOn:
        """Return how reliable the bounds of an answer by this estimator are: ``exact``, ``certain`` or ``interval``."""
        if self.holds_exactly(query):
            return "exact"
        told = query.measure.side == "sa" and not self.adds_values(query)
        return "certain" if estimator in self.certain or told else "interval"

    def choose_estimator(self, estimator: str) -> str:
        """Return the name of the estimator that a user asks for; ``best`` means the first one of ``estimators``.

        Raises:
            UsageError: The release has no estimator of that name.
        """
        if estimator == BEST:
            return self.estimators[0]
        self.require_estimator(estimator)
        return estimator

    def read_arrays(self, database: str) -> ReleaseArrays:
        """Read the release as arrays of its records, buckets and listed values, to fit a model to them.

        Args:
            database: The name of the attached database that holds the release.

        Raises:
            UsageError: No model can be fitted to releases of this mechanism.
        """
        raise UsageError(f"releases of {self._manifest.mechanism} need no fitted model; query them as they are")

    def predict_fit(self) -> float | None:
        """Return how many CPU seconds it would take to fit a model that predicts each record's sensitive value.

        The result is None if no such model can be fitted to releases of this mechanism, or if the release has one.
        """
        return None

    def explain_improvement(self, estimator: str) -> tuple[str, ...]:
        """Return sentences that say how to get a more precise answer than by this estimator; none if it is the best."""
        return ()

    def require_estimator(self, estimator: str) -> None:
        """Raise ``UsageError`` if the release does not offer this estimator."""
        if estimator not in self.estimators:
            raise UsageError(f"estimator {estimator!r} is not one of {', '.join((BEST, *self.estimators))}")

    def list_frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """Return the ``top`` most frequent item sets, each as the list of its items with its estimated count.

        Raises:
            UsageError: Records of this mechanism hold no items.
        """
        raise UsageError(
            f"the release holds no item sets; it is made by {self._manifest.mechanism}: count with 'privsql query'"
        )

    def make_synthetic(self) -> pa.Table:
        """Return synthetic records whose counts are close to the estimates of the release.

        Raises:
            UsageError: This mechanism makes no synthetic records.
        """
        made_by = f"{self._manifest.mechanism}, {self._manifest.algorithm}"
        raise UsageError(f"only differentially private releases give synthetic records; this one is made by {made_by}")


# Hints ----------------------------------------------------------------------------------------------------------------

MOST = 10_000  # values of a column that are compared with those in a query
OF_ITEMS = (exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous)


def find_unknown(statement: Statement, answers: Answers, roles: Roles) -> tuple[str, ...]:
    """Return a sentence for each value in the query that its column, or the list of items, does not contain.

    Args:
        statement: The query.
        answers: The open release, which knows the values.
        roles: The columns of the release.
    """
    compared: dict[tuple[str, exp.Literal], None] = {}  # keys (column, value); an empty column for items
    conditions = [statement.scope.where, *(one.among for one in statement.calls)]
    for root in dict.fromkeys(one for one in conditions if one is not None):
        for node in root.find_all(*EQUALITY, exp.In, *OF_ITEMS):
            if isinstance(node, OF_ITEMS):
                compared |= {("", one): None for one in node.find_all(exp.Literal) if one.is_string}
                continue
            sides = [node.this, *(node.expressions if isinstance(node, exp.In) else [node.expression])]
            plain = [side.unnest() for side in sides]
            names = [side.name for side in plain if isinstance(side, exp.Column)]
            if len(names) == 1:
                compared |= {(names[0], side): None for side in plain if isinstance(side, exp.Literal)}
    return tuple(filter(None, (_hint_unknown(name, value, answers, roles) for name, value in compared)))


def refuse_texts(statement: Statement, roles: Roles) -> None:
    """Refuse a query that compares a numeric column with a text that is not a number.

    Raises:
        UsageError: There is such a comparison; the message names its column.
    """
    kinds = {field.name: field.type for field in roles.columns}
    for root in (statement.scope.where, *(one.among for one in statement.calls)):
        for node in root.find_all(*COMPARISONS, exp.In, exp.Between) if root is not None else ():
            parts = [one.unnest() for one in node.iter_expressions()]
            names = [one.name for one in parts if isinstance(one, exp.Column) and is_number(kinds.get(one.name, ""))]
            texts = [one.name for one in parts if isinstance(one, exp.Literal) and one.is_string]
            wrong = next((text for text in texts if _parse_number(text) is None), None)
            if names and wrong is not None and kinds[names[0]] != "BOOLEAN":
                raise UsageError(
                    f"{as_written(node)}: column {names[0]!r} is {kinds[names[0]]}, and {wrong!r} is no number"
                )


def explain_rounding(
    statement: Statement, bins: Mapping[str, Bins], opened: Sequence[tuple[AggregateCall, str]], db: Relations
) -> tuple[str, ...]:
    """Return a warning for each rounded or cut column that the query aggregates or groups by.

    In a cut column, numbers beyond an end are published as that end.

    Args:
        statement: The query.
        bins: How columns are rounded or cut, by name of the column.
        opened: The aggregate functions that have no bound on one side because their column is cut, each with the name
            of that column.
        db: The engine, which computes to which group the end of a cut column belongs.
    """
    rounded = {name: how for one in statement.calls for name, how in one.measure.list_rounded(bins).items()}
    ends = {name: _name_inside(name, bins[name]) for _, name in opened}
    notes = []
    for name, how in rounded.items():
        inside = ends.get(name or "")
        if inside or not how.only_cuts:
            notes.append(f"{name} is of published values: {how}" + (f"; {inside}" if inside else ""))
    for i, name in find_coded_ends(statement, bins).items():
        term, how = statement.scope.groups[i].term, bins[name]
        for end, word in ((how.bottom, "lower"), (how.top, "higher")):
            if end is not None:
                group = f"{as_written(term)} = {format_key(_evaluate_at(db, term, end))}"
                notes.append(f"{group} holds all that is {word}, too: {name} is cut at {end:f}")
    return tuple(notes)


def _evaluate_at(db: Relations, term: exp.Expr, value: Decimal) -> object:
    """Return what a GROUP BY expression over one column gives where the column is ``value``, for a warning."""
    number = exp.Literal.number(format(value, "f"))
    return db.rows(exp.select(term.copy().transform(lambda node: number if isinstance(node, exp.Column) else node)))[0][
        0
    ]


def _name_inside(name: str, bins: Bins) -> str:
    """Return a hint how to aggregate only the numbers between the ends at which a column was cut.

    The text is empty if the column is also rounded.
    """
    parts = [f"{name} > {bins.bottom:f}"] if bins.bottom is not None else []
    parts += [f"{name} < {bins.top:f}"] if bins.top is not None else []
    return f"with FILTER (WHERE {' AND '.join(parts)}) it has bounds on both sides" if bins.only_cuts else ""


def _hint_unknown(name: str, value: exp.Literal, answers: Answers, roles: Roles) -> str:
    """Return a hint for the analyst if a value in the query does not occur in its column.

    The text is empty if the value occurs, or if that can't be decided.

    Args:
        name: The column; empty to look for ``value`` among the items that records hold.
        value: The value.
        answers: The open release.
        roles: The columns of the release.
    """
    if not name:
        return "" if value.name in answers.item_labels else _phrase_hint(value, answers.item_labels)
    fields = {field.name: field.type for field in roles.columns}
    kind, sensitive = fields.get(name, ""), any(field.name == name for field in roles.sensitive)
    counts = is_number(kind) and kind != "BOOLEAN"
    if name in answers.in_bins or not (kind.startswith(("VARCHAR", "ENUM")) or (counts and sensitive)):
        return ""
    listed = [one for one in answers.list_known(name) if one is not None]
    if not listed or len(listed) > MOST:
        return ""
    if counts:
        known = {_parse_number(one) for one in listed}
        return "" if value.is_string or _parse_number(value.name) in known | {None} else _phrase_hint(value, (), name)
    return _phrase_hint(value, listed, name) if value.is_string and value.name not in listed else ""


def _parse_number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _phrase_hint(value: exp.Literal, listed: Sequence[str], name: str = "") -> str:
    where = f"{name} has no such value" if name else "no such item"
    meant = closest(value.name, listed)
    quoted = "" if meant is None else "; did you mean '" + meant.replace("'", "''") + "'?"
    return f"{where}: {value.sql()}{quoted}"
