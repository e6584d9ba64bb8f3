"""Refuse questions that divide a bin, since a release shows whole bins only.

A published value of a column in bins stands for its whole bin. A condition is answered if all values of each bin meet
it, or none: a comparison with constants at which bins begin (``age <= 44`` is ``age < 45`` for whole numbers), equality
with a published value, and ``IS NULL``. For a column whose values are published in named groups, only equality with
such names is answered.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.sql.grammar import EQUALITY, as_written
from privsql.engine.sqlfiles import DIALECT, Field
from privsql.errors import UsageError
from privsql.model.bins import DOUBLE, MONTHS, Bins, number_range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.sql.question import Statement

FIRST = (exp.LT, exp.GTE)  # their constant is the first value of one of the two ranges
LAST = (exp.LTE, exp.GT)  # their constant is the last value of one of the two ranges
CALENDAR: dict[type[exp.Expr], str] = {exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month"}
TRUNCATED = MONTHS | {"decade": 120, "century": 1200}  # months between the values that date_trunc can return
YEARLY, MONTHLY = {"%Y", "%y", "%%"}, {"%m", "%b", "%B"}  # signs of a date's text
MOMENTS = {  # of a cast; DuckDB's TIMESTAMP is one without a time zone
    exp.DType.DATE: "DATE", exp.DType.TIMESTAMP: "TIMESTAMP", exp.DType.TIMESTAMPNTZ: "TIMESTAMP"
}  # fmt: skip
NUMBER = re.compile(r"[0-9]{1,40}(\.[0-9]{0,40})?")
SIGNED = re.compile(f"-?{NUMBER.pattern}")
NEAR = ("sum", "avg", "min", "max", "median")  # functions that rounding changes by at most half a step for each number
ARITHMETIC = (exp.Column, exp.Identifier, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren)
RISING = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Floor, exp.Ceil, exp.Round, exp.Cast)
TURNED = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE}


def refuse_cuts(
    statement: Statement, bins: Mapping[str, Bins], groups: Mapping[str, Sequence[str]], columns: Sequence[Field]
) -> Statement:
    """Return the statement unchanged if it uses only whole bins and whole groups of values.

    Args:
        statement: The query.
        bins: The bins of columns, by name.
        groups: The names of the groups of values, by name of the column.
        columns: The quasi-identifiers.

    Raises:
        UsageError: It asks for a part of a bin or group. The message names the column.
    """
    if not bins and not groups:
        return statement
    for lookup in statement.scope.lookups:
        for _, key in lookup.keys:
            if key in bins:
                why = f"column {key!r} is in {bins[key]}, and no row of the table covers a bin"
                raise UsageError(f"JOIN {lookup.alias}: {why}")
    for one in statement.calls:
        measured = one.measure.operand
        for item in measured.find_all(exp.Column) if measured is not None else ():
            rounded = item.name in bins and bins[item.name].rounds
            single = one.measure.kind in NEAR and measured is item
            near = rounded and (single or (one.measure.kind in ("sum", "avg") and _is_arithmetic(measured)))
            near = near or (one.measure.kind == "statistic" and item.name in bins and bins[item.name].only_cuts)
            if (item.name in bins and not near) or item.name in groups:
                raise _make_refusal(item.name, one.written, bins.get(item.name))

    groups_of_ends = find_coded_ends(statement, bins)
    terms = {f"g_{i}": group.term for i, group in enumerate(statement.scope.groups) if i not in groups_of_ends}

    def write_out(root: exp.Expr) -> exp.Expr:
        """Replace the names of groups (``g_0``, ..) in an expression by the expressions of GROUP BY, to check these.

        Groups by a column that is only cut at its ends keep their names if they are answered with a warning
        (``find_coded_ends``).
        """
        return root.copy().transform(
            lambda node: terms[node.name].copy() if isinstance(node, exp.Column) and node.name in terms else node
        )

    results = [*(one.expression for one in statement.outputs), *(one.this for one in statement.order)]
    results += [*statement.windows, *(statement.unique or ())]
    results += [statement.qualify] if statement.qualify is not None else []
    parts = [(one, False) for one in (statement.scope.where, *(one.among for one in statement.calls))]
    parts += [(write_out(one), True) for one in (*terms.values(), *results)]
    parts += [(write_out(statement.having), False)] if statement.having is not None else []
    kinds = {field.name: field.type for field in columns}
    for root, may_stand_alone in parts:
        for item in root.find_all(exp.Column) if root is not None else ():
            node: exp.Expr = item
            while node is not root and isinstance(node.parent, exp.Paren):
                node = node.parent
            node = node if node is root or node.parent is None else node.parent  # the expression around the column
            is_null = isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)
            if is_null or (node.unnest() is item and may_stand_alone):
                continue
            if item.name in bins and not _keeps_bins_whole(item, node, bins[item.name], kinds[item.name]):
                raise _make_refusal(item.name, as_written(node), bins[item.name])
            if item.name in groups and not _names_groups(item, node, groups[item.name]):
                known = ", ".join(groups[item.name])
                raise UsageError(f"{as_written(node)}: column {item.name!r} holds groups of values: {known}")
    return statement


def find_coded_ends(statement: Statement, bins: Mapping[str, Bins]) -> dict[int, str]:
    """Return the GROUP BY expressions over a column cut at its ends that are not refused, but answered with a warning.

    In a cut column, numbers beyond an end are published as that end, and all others as they are. Such an expression has
    only this column and never falls as it grows (``age // 10``). So the groups are as in the source, but the group of
    an end holds all values beyond it.

    Returns:
        The number of the group -> the name of the column.
    """
    found = {}
    for i, group in enumerate(statement.scope.groups):
        names = {item.name for item in group.term.find_all(exp.Column)}
        name = next(iter(names), "")
        if len(names) == 1 and name in bins and bins[name].only_cuts and _never_falls(group.term):
            found[i] = name
    return found


def _never_falls(root: exp.Expr) -> bool:
    """Return whether an expression of one column never decreases when the column increases."""
    node = root.unnest()
    while not isinstance(node, exp.Column):
        kept = {"this", "expression", "decimals", "to", "typed", "safe"}
        if not isinstance(node, RISING) or any(value for key, value in node.args.items() if key not in kept):
            return False
        if isinstance(node, exp.Cast) and node.to.this not in exp.DataType.NUMERIC_TYPES:
            return False
        factor = node.args.get("expression")
        if factor is not None and not (isinstance(factor, exp.Literal) and NUMBER.fullmatch(factor.name)):
            return False
        node = node.this.unnest()
    return node is not root.unnest()


def _is_arithmetic(root: exp.Expr | None) -> bool:
    """Return whether an expression only adds, subtracts, multiplies and divides columns and numbers."""
    return root is not None and all(isinstance(node, ARITHMETIC) for node in root.walk())


def _make_refusal(name: str, written: str, bins: Bins | None) -> UsageError:
    what = f"in {bins}; compare it with values at which a bin begins" if bins else "in groups of values"
    if bins and bins.round is not None:
        what = f"in {bins}; compare it by < or >= with the middle between two, such as {float(15 * bins.half):g}"
    if bins and bins.prefix is not None:
        what = f"in {bins}; compare it with at most {bins.prefix} characters, as = '..' or LIKE '..%'"
    return UsageError(f"{written}: column {name!r} is {what}, or group by it")


def _keeps_bins_whole(item: exp.Column, node: exp.Expr, bins: Bins, kind: str) -> bool:
    """Return whether a comparison or a calendar function of a column treats all values of a bin alike.

    Args:
        item: The column.
        node: The expression directly around it.
        bins: The bins of the column.
        kind: The SQL type of the column.
    """

    def is_label(constant: exp.Expr) -> bool:
        value = read_constant(constant, kind)
        return value is not None and bins.holds(value)

    if bins.prefix is not None:
        return _keeps_prefixes_whole(item, node, bins.prefix)
    months = _count_months(node)
    if months:
        return bins.unit is not None and months % MONTHS[bins.unit] == 0
    if isinstance(node, exp.Between):
        low, high = (read_constant(node.args[key], kind) for key in ("low", "high"))
        inside = _begins_bin(bins, low, kind, last=False) and _begins_bin(bins, high, kind, last=True)
        return node.this.unnest() is item and inside
    if isinstance(node, exp.In):
        is_operand = node.this.unnest() is item and not node.args.get("query") and bool(node.expressions)
        return is_operand and all(map(is_label, node.expressions))
    if not isinstance(node, (*EQUALITY, *FIRST, *LAST)):
        return False
    turned = node.expression.unnest() is item
    constant = node.this if turned else node.expression
    if isinstance(node, EQUALITY):
        return is_label(constant)
    operator = TURNED[type(node)] if turned else type(node)
    return _begins_bin(bins, read_constant(constant, kind), kind, last=operator in LAST)


def _count_months(node: exp.Expr) -> int:
    """Return over how many months a function of a date keeps its value, such as 3 for the quarter.

    These months are counted from the first of January. Return 0 for any other function.
    """
    if isinstance(node, tuple(CALENDAR)):
        return MONTHS[CALENDAR[type(node)]]
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc):
        return TRUNCATED.get(node.text("unit").lower(), 0)
    if isinstance(node, exp.Extract):
        return TRUNCATED.get(node.name.lower(), 0)
    if isinstance(node, exp.LastDay | exp.Monthname):
        return 0 if node.args.get("unit") else 1
    if isinstance(node, exp.TimeToStr) and isinstance(node.args.get("format"), exp.Literal):
        signs = set(re.findall("%.?", node.text("format")))
        return 12 if signs <= YEARLY else 1 if signs <= YEARLY | MONTHLY else 0
    return 0


def _keeps_prefixes_whole(item: exp.Column, node: exp.Expr, length: int) -> bool:
    """Return whether a comparison, such as LIKE, can be answered if only the first characters of texts are published.

    Args:
        item: The column.
        node: The comparison.
        length: The number of characters that are published.
    """
    if isinstance(node, exp.In):
        compared = [] if node.args.get("query") else node.expressions
    elif isinstance(node, EQUALITY):
        compared = [node.expression if node.this.unnest() is item else node.this]
    elif isinstance(node, exp.Like | exp.StartsWith) and node.this.unnest() is item:
        text = node.expression.name
        start = text.removesuffix("%") if isinstance(node, exp.Like) else text
        wild = isinstance(node, exp.Like) and (not text.endswith("%") or set("%_") & set(start))
        return isinstance(node.expression, exp.Literal) and not wild and len(start) <= length
    else:
        return False
    texts = [one.this if isinstance(one, exp.Cast) and one.to.this == exp.DType.TEXT else one for one in compared]
    return bool(texts) and all(
        isinstance(one, exp.Literal) and one.is_string and len(one.name) <= length for one in texts
    )


def _begins_bin(bins: Bins, value: Decimal | date | None, kind: str, *, last: bool) -> bool:
    """Return whether a bin begins at a value, so that a comparison with the value splits no bin.

    Args:
        bins: The bins of the column.
        value: The value; the result is False for None.
        kind: The SQL type of the column.
        last: Whether to look at the next possible value instead, so that ``value`` would be the last before the bin.
    """
    if value is None:
        return False
    if isinstance(value, Decimal) and kind == DOUBLE:  # a double has no next value, so only < and >= can divide at it
        return not last and ((bool(bins.edges) and value <= bins.edges[0]) or bins.begins_at(value))
    if isinstance(value, Decimal):
        step = Fraction(1, 10 ** number_range(kind)[2])
        steps = Fraction(value) / step
        first = (math.floor(steps) + 1 if last else math.ceil(steps)) * step
        if bins.rounds:
            return bins.round_number(first) != bins.round_number(first - step)
        return (bool(bins.edges) and first <= Fraction(bins.edges[0])) or bins.begins_at(first)
    later = timedelta(microseconds=1) if isinstance(value, datetime) else timedelta(days=1)
    try:
        return bins.begins_at(value + later if last else value)
    except OverflowError:  # the last value of the type
        return False


def read_constant(node: exp.Expr, kind: str) -> Decimal | date | None:
    """Return the value of a constant in the type of a column; None if it is no constant or no value of that type."""
    node = node.unnest()
    if kind in ("DATE", "TIMESTAMP"):
        written = kind
        if isinstance(node, exp.Cast) and node.to.this in MOMENTS:
            written, node = MOMENTS[node.to.this], node.this
        if written != kind and kind == "DATE":
            return None
        if not isinstance(node, exp.Literal) or not node.is_string:
            return None
        try:
            moment = date.fromisoformat(node.name) if written == "DATE" else datetime.fromisoformat(node.name)
        except ValueError:
            return None
        if kind == "TIMESTAMP" and not isinstance(moment, datetime):  # a day as a moment is its midnight
            return datetime(moment.year, moment.month, moment.day)
        return None if getattr(moment, "tzinfo", None) else moment
    if isinstance(node, exp.Cast) and node.to == exp.DataType.build(kind, dialect=DIALECT):
        return Decimal(node.this.name) if SIGNED.fullmatch(node.this.name) else None  # a value as it is published
    negative = isinstance(node, exp.Neg)
    node = node.this.unnest() if negative else node
    if not isinstance(node, exp.Literal) or node.is_string or not NUMBER.fullmatch(node.name):
        return None  # what the engine would round, or read as a double
    return Decimal(f"-{node.name}" if negative else node.name)


def _names_groups(item: exp.Column, node: exp.Expr, groups: Sequence[str]) -> bool:
    """Return whether a column published in groups of values is compared only with names of groups, by equality.

    Args:
        item: The column.
        node: The expression directly around it.
        groups: The names of its groups.
    """
    if isinstance(node, exp.In):
        compared = node.expressions
    elif isinstance(node, EQUALITY):
        compared = [node.expression if node.this.unnest() is item else node.this]
    else:
        return False
    plain = [one.unnest() for one in compared]
    texts = [one.this if isinstance(one, exp.Cast) and one.to.this == exp.DType.TEXT else one for one in plain]
    return not node.args.get("query") and all(
        isinstance(one, exp.Literal) and one.is_string and one.name in groups for one in texts
    )
