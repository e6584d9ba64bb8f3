"""The SQL of a chosen question, and its answer as a page, as CSV, and as commands to copy."""

from __future__ import annotations

import csv
import io
import re
import shlex
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import TokenType, exp

from privsql import markup
from privsql.answers.answer import BEST
from privsql.engine.roles import FLOATS
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import UsageError
from privsql.serving.form import CONFIDENCE, COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.answers.answer import Answer
    from privsql.serving.form import ColumnCondition, FormColumn, FormQuestion, ReleaseForm
    from privsql.serving.guard import ReleasePool

# Answers on a page ----------------------------------------------------------------------------------------------------
# An answer as a headline, as commands that give the same answer, and as CSV.

ROWS = 500  # that a page shows; downloads have all
FORMULA = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")  # what a formula of a spreadsheet begins with; wide, too


def make_headline(answer: Answer) -> tuple[str, str] | None:
    """Return one row's one figure in words, and its interval; None for any other answer."""
    if len(answer.rows) != 1 or len(answer.figures) != 1:
        return None
    estimate, error, low, high = answer.figures[0].read_row(answer.rows[0])
    if estimate is None:
        return "No answer", "no record meets the question, or nothing can be told of those that do"
    number = str(markup.html_cell(_round_figure(estimate)))
    if error == 0 and low == high:
        return number, "exactly"
    if any(answer.may_be_empty) and low == high:
        return number, "if any record meets the question, which is not certain"
    if low is None or high is None:
        return f"about {number}", "an estimate without an interval"
    ends = f"between {markup.html_cell(_round_figure(low))} and {markup.html_cell(_round_figure(high))}"
    sure = "certainly" if answer.certain else f"{100 * answer.confidence:.10g} % sure:"
    return f"about {number}", f"{sure} {ends}"


def _round_figure(value: Any) -> Any:
    """Return a figure as a person says it: a whole number where it is large."""
    return round(value) if isinstance(value, float) and abs(value) >= 100 else value


# The same elsewhere ---


def shell_snippet(served: ReleasePool, sql: str, confidence: float, estimator: str = BEST) -> str:
    """Return the command that gives the same answer, for a file that lies in the folder where it runs."""
    how = [] if confidence == CONFIDENCE else ["--confidence", f"{confidence!r}"]
    how += [] if estimator == BEST else ["--estimator", estimator]
    arguments = [served.path.name, sql]
    if any(one.startswith("-") for one in arguments):  # a comment, say, which would be taken for an option
        return shlex.join(["privsql", "query", *how, "--", *arguments])
    return shlex.join(["privsql", "query", *arguments, *how])


def python_snippet(served: ReleasePool, sql: str, confidence: float, estimator: str = BEST) -> str:
    """Return the call in Python that gives the same answer."""
    how = "" if confidence == CONFIDENCE else f", confidence={confidence!r}"
    how += "" if estimator == BEST else f", estimator={estimator!r}"
    return f"import privsql\n\nprivsql.query({served.path.name!r}, {sql!r}{how}).frame()"


def as_csv(answer: Answer) -> str:
    """Return the rows as CSV. A text that a spreadsheet would take for a formula has an apostrophe before it."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(_escape_formulas(answer.columns))
    writer.writerows(_escape_formulas(row) for row in answer.rows)
    return file.getvalue()


def _escape_formulas(cells: Sequence[object]) -> list[object]:
    return [f"'{one}" if isinstance(one, str) and one.startswith(FORMULA) else one for one in cells]


# SQL ------------------------------------------------------------------------------------------------------------------
# The SQL of a question, which ``privsql query`` answers as well.

NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CALLS = {"if"}  # words that the parser takes for calls, which are no keywords
ENDLESS = {"nan", "inf", "-inf"}
AGGREGATES: dict[str, type[exp.AggFunc]] = {"avg": exp.Avg, "sum": exp.Sum}
MOMENTS: dict[str, Callable[[str], object]] = {"DATE": date.fromisoformat, "TIME": time.fromisoformat}
TRUTHS = {"true": exp.true, "false": exp.false}


def build_statement(question: FormQuestion, form: ReleaseForm) -> exp.Select:
    """Return the query of a question that was chosen; ``UsageError`` for a value that its column can't have."""
    groups = [_quote_column(form.columns[number].name) for number in question.groups]
    query = exp.select(*groups, _measure_expression(question.measure, form)).from_(
        exp.Table(this=_quote_identifier(form.name))
    )
    conditions = _item_conditions(question, form) if form.items is not None else _column_conditions(question, form)
    if conditions:
        query = query.where(*conditions)
    for group in groups:
        query = query.group_by(group.copy()).order_by(group.copy())
    return query


def query_text(query: exp.Select, *, lines: bool = True) -> str:
    """Return a query as it is shown, or (without ``lines``) on one line, for a shell."""
    return query.sql(dialect=DIALECT, pretty=lines, comments=False)


def _quote_column(name: str) -> exp.Column:
    """Return a column, quoted where it has to be."""
    return exp.column(_quote_identifier(name))


def _quote_identifier(name: str) -> exp.Identifier:
    """Return a name, quoted unless it is one word without another meaning."""
    tokens = sqlglot.tokenize(name, dialect=DIALECT) if PLAIN.fullmatch(name) else []
    plain = len(tokens) == 1 and tokens[0].token_type == TokenType.VAR and name.lower() not in CALLS
    return exp.to_identifier(name, quoted=not plain)


def _measure_expression(key: str, form: ReleaseForm) -> exp.Expr:
    if key == COUNT:
        return exp.Count(this=exp.Star())
    kind, _, number = key.partition(".")
    return AGGREGATES[kind](this=_quote_column(form.find_column(number).name))


# Conditions ---


def _column_conditions(question: FormQuestion, form: ReleaseForm) -> list[exp.Expr]:
    return [_condition_on(form.columns[number], condition) for number, condition in sorted(question.conditions.items())]


def _condition_on(column: FormColumn, condition: ColumnCondition) -> exp.Expr:
    name = _quote_column(column.name)
    null = exp.Is(this=name.copy(), expression=exp.null())
    met = _equals_any(name, [_value_literal(one, column) for one in condition.values]) or _within_range(
        name, column, condition
    )
    if met is None:
        return null if condition.nulls == "only" else exp.not_(null)
    if condition.nulls == "too":
        return exp.paren(exp.or_(met, null))
    return exp.and_(met, exp.not_(null)) if condition.nulls == "not" else met


def _equals_any(name: exp.Expr, values: Sequence[exp.Expr]) -> exp.Expr | None:
    if not values:
        return None
    return exp.EQ(this=name.copy(), expression=values[0]) if len(values) == 1 else name.copy().isin(*values)


def _within_range(name: exp.Expr, column: FormColumn, condition: ColumnCondition) -> exp.Expr | None:
    """Return the condition of a range with both ends; a day of a column of timestamps has all of its hours."""
    low, high = (_value_literal(end, column) if end else None for end in (condition.low, condition.high))
    after = _day_after(condition.high) if column.type.startswith("TIMESTAMP") else None
    if low is not None and high is not None and _is_turned(condition.low, after or condition.high, column):
        raise UsageError(f"{column.name}: the range {condition.low} to {condition.high} is empty; swap its ends")
    if after is None:
        return _between_ends(name, low, high)
    before = exp.LT(this=name.copy(), expression=_value_literal(after, column))
    return before if low is None else exp.and_(exp.GTE(this=name, expression=low), before)


def _is_turned(low: str, high: str, column: FormColumn) -> bool:
    """Return True for a range that ends before it begins, which would be answered by an exact 0."""
    value: Callable[[str], Any] = (
        Decimal if column.kind == "number" else MOMENTS.get(column.type, datetime.fromisoformat)
    )
    try:
        return bool(value(low) > value(high))
    except (ValueError, ArithmeticError, TypeError):  # what the engine alone can read
        return False


def _day_after(end: str) -> str | None:
    """Return the day after a day; None for what is none, and for the last one that there is."""
    try:
        return (date.fromisoformat(end) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None


def _between_ends(name: exp.Expr, low: exp.Expr | None, high: exp.Expr | None) -> exp.Expr | None:
    if low is not None and high is not None:
        return exp.EQ(this=name, expression=low) if low == high else exp.Between(this=name, low=low, high=high)
    if low is not None:
        return exp.GTE(this=name, expression=low)
    return exp.LTE(this=name, expression=high) if high is not None else None


def _item_conditions(question: FormQuestion, form: ReleaseForm) -> list[exp.Expr]:
    (column,) = form.columns
    name = _quote_column(column.name)

    def has(function: str, chosen: tuple[str, ...]) -> exp.Expr:
        if len(chosen) == 1:
            return exp.Anonymous(this="list_contains", expressions=[name.copy(), _item_literal(chosen[0], form)])
        listed = exp.Array(expressions=[_item_literal(one, form) for one in chosen])
        return exp.Anonymous(this=function, expressions=[name.copy(), listed])

    conditions = [has("list_has_all", question.items["all"])] if question.items.get("all") else []
    conditions += [has("list_has_any", question.items["any"])] if question.items.get("any") else []
    conditions += [exp.not_(has("list_has_any", question.items["none"]))] if question.items.get("none") else []
    ends = (_length_literal(end) if end else None for end in (question.length.low, question.length.high))
    length = _between_ends(exp.Anonymous(this="len", expressions=[name.copy()]), *ends)
    return conditions + ([length] if length is not None else [])


def _item_literal(value: str, form: ReleaseForm) -> exp.Expr:
    (column,) = form.columns
    if value not in (form.items or ()):
        raise UsageError(f"{column.name}: there is no item {value!r}")
    return _value_literal(value, column)


def _length_literal(value: str) -> exp.Expr:
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise UsageError(f"the number of items: {value!r} is not a whole number")
    return exp.Literal.number(value)


# Values ---


def _value_literal(value: str, column: FormColumn) -> exp.Expr:
    """Return a value as SQL has it; ``UsageError`` if the column can't have it."""
    if column.type == "VARCHAR":
        return exp.Literal.string(value)
    value = value.strip()
    if column.kind == "truth" and value.lower() in TRUTHS:
        return TRUTHS[value.lower()]()
    if column.kind == "number" and NUMBER.fullmatch(value):
        return exp.Neg(this=exp.Literal.number(value[1:])) if value[0] == "-" else exp.Literal.number(value.lstrip("+"))
    of_type = exp.cast(exp.Literal.string(value), exp.DataType.build(column.type, dialect=DIALECT))
    if column.kind == "number" and column.type in FLOATS and value in ENDLESS:
        return of_type
    if column.kind in ("moment", "other") and _is_moment(value, column):
        return of_type
    raise UsageError(f"{column.name}: {value!r} is not a {_describe_kind(column)}")


def _is_moment(value: str, column: FormColumn) -> bool:
    if column.kind == "other":
        return True  # the engine knows
    try:
        MOMENTS.get(column.type, datetime.fromisoformat)(value)
    except ValueError:
        return value in column.values
    return True


def _describe_kind(column: FormColumn) -> str:
    return {"number": "number", "moment": "date or time", "truth": "truth value"}.get(column.kind, column.type)
