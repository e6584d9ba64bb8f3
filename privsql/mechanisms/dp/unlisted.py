"""Answer questions about columns with public lists of values, of which some records hold unlisted values.

One stand-in value represents all unlisted values in a question. A condition that holds for the stand-in need not hold
for other unlisted values. If it may differ, the answer is an interval between the count without such records and the
count with all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.sql.grammar import ENUM
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, any_of, column
from privsql.mechanisms.dp.answers import PrivateAnswers
from privsql.model.estimates import Estimate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from privsql.answers.sql.question import CountQuery
    from privsql.engine.sqlfiles import Field

SURE = 2.0  # a count above so many standard deviations of noise says that there are records
OPEN = "t_open"  # the name of the condition that a record has an unlisted value
EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)


@dataclass(frozen=True)
class UnlistedColumn:
    """A column in which some records may have values outside its public list.

    Attributes:
        field: The name and type of the column.
        labels: The texts of the listed values.
        stand_in: The text of one unlisted value that represents all of them in questions.
        occurs: Whether the noisy count suggests that some records have unlisted values.
        may_be_null: Whether NULL is one of the unlisted values.
    """

    field: Field
    labels: Collection[str | None]
    stand_in: str
    occurs: bool
    may_be_null: bool = False

    @property
    def is_text(self) -> bool:
        """Return whether the column is a text column.

        Unlisted values are published as one text (``stand_in``) in a text column, and as NULL in other columns.
        """
        return self.field.type == "VARCHAR"

    @property
    def value(self) -> exp.Expr:
        """Return as a SQL constant of the column's type the value that stands in for all unlisted ones."""
        return exp.cast(exp.Literal.string(self.stand_in), exp.DataType.build(self.field.type, dialect=DIALECT))

    @property
    def is_met(self) -> exp.Expr:
        """Return the SQL condition that a record has an unlisted value (one value stands in for all of these).

        The condition is written as a range, because columns in bins accept ranges only.
        """
        return exp.Between(this=column(self.field.name), low=self.value, high=self.value)

    def name_value(self, held: exp.Expr, is_unlisted: exp.Expr) -> exp.Expr:
        """Return the SQL of a column in which one value (``stand_in``) replaces all unlisted values for conditions.

        Args:
            held: The column as it is published, with NULL for unlisted values unless it is text.
            is_unlisted: The condition that a record has an unlisted value.
        """
        return held if self.is_text else exp.Case().when(is_unlisted, self.value).else_(held)

    def find_in(self, expression: exp.Expr) -> list[exp.Expr]:
        """Return the nodes of a SQL expression that name the column."""
        return list(filter(self._is_it, expression.find_all(exp.Column)))

    def is_decided(self, expression: exp.Expr) -> bool:
        """Return whether a SQL expression has the same result for all unlisted values of the column.

        If so, the result for one value that stands in for them is certain, and the answer needs no wider interval.
        """
        return all(map(self._decides, self.find_in(expression)))

    def as_null(self, expression: exp.Expr) -> exp.Expr:
        """Return a copy of a SQL expression that treats unlisted values as NULL, for the case that they are NULL."""
        return expression.copy().transform(
            lambda node: exp.Nullif(this=node, expression=self.value) if self._is_it(node) else node
        )

    def _is_it(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and fold_name(node.name) == fold_name(self.field.name)

    def _decides(self, node: exp.Expr) -> bool:
        """Return whether one use of the column in SQL has the same result for all unlisted values.

        That is so if the column is only compared with listed values, or tested for NULL.

        Args:
            node: The node of the SQL expression that names the column.
        """
        around = node.parent
        while around is not None and self._hands_on(node, around):
            node, around = around, around.parent
        match around:
            case exp.Is():
                return isinstance(around.expression, exp.Null)
            case exp.Case():
                return around.this is node and all(self._is_label(one.this) for one in around.args["ifs"])
            case exp.In():
                listed = around.this is node and not around.args.get("query")
                return listed and all(map(self._is_label, around.expressions))
            case _ if isinstance(around, EQUALITIES):
                return self._is_label(around.expression if around.this is node else around.this)
        return False

    def _hands_on(self, node: exp.Expr, around: exp.Expr) -> bool:
        """Return whether a SQL expression, such as COALESCE, only passes on (or ignores) the value of one of its parts.

        If so, what the surrounding SQL does with the expression decides how the part is used.

        Args:
            node: The part.
            around: The expression directly around it.
        """
        match around:
            case exp.Paren() | exp.Coalesce():
                return True
            case exp.Nullif():
                return around.this is node and self._is_label(around.expression)
            case exp.If() | exp.Case():
                return around.this is not node
            case exp.Cast():
                return bool(around.to.this == ENUM)  # a cast to the column's own ENUM only orders its values
        return False

    def _is_label(self, node: exp.Expr) -> bool:
        """Return whether a SQL node is the constant NULL, a listed value, or the text in place of unlisted values."""
        node = node.unnest()
        sign, node = ("-", node.this) if isinstance(node, exp.Neg) else ("", node)
        node = node.this if isinstance(node, exp.Cast) else node
        if not isinstance(node, exp.Literal | exp.Boolean):
            return isinstance(node, exp.Null)
        text = str(node.this).lower() if isinstance(node, exp.Boolean) else node.name
        return f"{sign}{text}" in self.labels or (self.is_text and text == self.stand_in)


class ListedAnswers(PrivateAnswers):
    """An open private release in which every column has a public list of values; it answers with intervals."""

    @property
    @abstractmethod
    def unlisted(self) -> Sequence[UnlistedColumn]:
        """Return the columns that may have values outside their public lists."""

    @abstractmethod
    def answer_reading(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Estimate a question as if all unlisted values were equal to one stand-in value.

        ``answer`` calls it for each way to read the question, and joins the intervals.
        """

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Estimate a question, one row per group.

        If unlisted values occur and the question does not say whether it selects them, intervals cover both readings:
        with these records and without them.
        """
        reading = read_question(query, self.unlisted)
        rows = self.answer_reading(reading.query, estimator, confidence)
        if not reading.in_doubt and any(one.estimate for one in rows):
            return rows
        others = [self.answer_reading(one, estimator, confidence) for one in reading.others]
        return join_readings(query, rows, others)


@dataclass(frozen=True)
class Reading:
    """A question about columns with unlisted values, and the other ways to read it.

    Attributes:
        query: The question as it is answered first, with one value in place of all unlisted values.
        others: The same question without the records that it may or may not select, and with all of them.
        in_doubt: Whether the noisy counts suggest that some records have such unlisted values.
    """

    query: CountQuery
    others: tuple[CountQuery, ...]
    in_doubt: bool


def read_question(query: CountQuery, columns: Sequence[UnlistedColumn]) -> Reading:
    """Find all readings of a question about columns that may have unlisted values.

    A condition may hold for some unlisted values and not for others. Other readings leave out all records with such
    values, or count all of them. Where the value may be NULL, one more reading takes it as NULL.
    """
    filters, terms = query.filters["sa"], query.terms["sa"]
    conditions = [*filters, *(expression for _, expression in terms)]
    keys = [group.term for group in query.groups if group.side == "sa"]
    open_ = [one for one in columns if not all(map(one.is_decided, conditions))]
    doubtful = [one for one in columns if one in open_ or (not one.is_text and any(map(one.find_in, keys)))]
    null_too = [one for one in columns if one.may_be_null and any(map(one.find_in, [*conditions, *keys]))]
    groups = []
    for group in query.groups:  # show unlisted values as they are published: NULL in columns that are no text
        for one in columns:
            if not one.is_text and one.find_in(group.term) and not one.is_decided(group.term):
                group = replace(group, term=exp.Case().when(one.is_met, exp.null()).else_(group.term.copy()))
        groups.append(group)
    first, others = replace(query, groups=tuple(groups)), []
    if doubtful:  # one reading leaves out the records with unlisted values
        held: list[exp.Expr] = [exp.not_(exp.Coalesce(this=one.is_met, expressions=[exp.false()])) for one in doubtful]
        others.append(replace(first, filters=query.filters | {"sa": [*filters, *held]}))
    if open_:  # another reading counts all of them, as they may meet the condition
        met: list[exp.Expr] = [
            exp.or_(part.copy(), *(one.is_met for one in open_ if not one.is_decided(part))) for part in filters
        ]
        unclear = [one.is_met for one in open_ if not all(one.is_decided(part) for _, part in terms)]
        with_all = replace(first, filters=query.filters | {"sa": met})
        if unclear and query.predicate is not None:
            with_term = query.terms | {"sa": [*terms, (OPEN, any_of(unclear))]}
            with_all = replace(with_all, terms=with_term, predicate=exp.or_(query.predicate.copy(), column(OPEN)))
        others.append(with_all)
    others += [
        replace(
            query,
            filters=query.filters | {"sa": [one.as_null(part) for part in filters]},
            terms=query.terms | {"sa": [(name, one.as_null(part)) for name, part in terms]},
            groups=tuple(replace(group, term=one.as_null(group.term)) for group in query.groups),
        )
        for one in null_too
    ]
    return Reading(first, tuple(others), any(one.occurs for one in (*doubtful, *null_too)))


def join_readings(query: CountQuery, first: Sequence[Estimate], others: Sequence[Sequence[Estimate]]) -> list[Estimate]:
    """Join the answers to all readings of a question: the first one's rows, with intervals that cover those of all.

    A reading treats unlisted values in one way, such as leaving out all records that have one. A row whose interval was
    widened loses its standard error.

    Args:
        query: The question.
        first: The answer's rows in the first reading.
        others: The answer's rows in each other reading.
    """
    known = [{one.group: one for one in rows} for rows in (first, *others)]
    nothing, result = query.measure.empty_figures, []
    for group in dict.fromkeys(one.group for rows in (first, *others) for one in rows):
        row, *more = (rows.get(group) or Estimate(group, *nothing) for rows in known)
        ends = [(one.low, one.high) for one in (row, *more) if one.low is not None and one.high is not None]
        if ends:
            low, high = min(low for low, _ in ends), max(high for _, high in ends)
            if nothing[0] is not None and len(ends) < len(known):
                low = nothing[0]
            if (low, high) != (row.low, row.high):
                row = replace(row, std_error=None, low=low, high=high)
        result.append(row)
    return result
