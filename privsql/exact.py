"""Exact numbers: decimals and fractions as they were written, never as doubles.

Every privacy decision compares a count with threshold x size. In doubles ``floor(0.58 * 50)`` is 28 and
``ceil(1 / (1 / 49))`` is 50, each of them a wrong decision; here 0.58 is 29/50.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational

# SQL multiplies numerators and denominators with counts as HUGEINT; 18 digits leave room for that.
MAX_DIGITS = 18
MAX_EXPONENT_DIGITS = 2  # longer exponents are refused: 1e-999999999 would have a billion digits
MAX_DENOMINATOR = 10**MAX_DIGITS
MAX_NUMERATOR = 10**38


def as_fraction(number: object) -> Fraction:
    """Read a number as the exact rational that was written.

    Args:
        number: An ``int``, ``Decimal``, ``Fraction``, or a text such as ``"0.02"``, ``"1/50"`` and ``"2e-2"``.

    Raises:
        ValueError: It is a ``float`` (whose decimal is already lost), infinite, or anything else.
    """
    try:
        if isinstance(number, bool) or not isinstance(number, str | Rational | Decimal):
            raise TypeError
        mantissa, e, exponent = str(number).lower().rpartition("e")
        if e and mantissa and len(exponent.lstrip("+-")) > MAX_EXPONENT_DIGITS:
            raise ValueError("the exponent is too large")
        value = Fraction(number)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise ValueError(f"{number!r} is not an exact number; write a decimal or a fraction such as 1/50") from error
    if value.denominator > MAX_DENOMINATOR:
        raise ValueError(f"{number} has more than 18 digits after the point")
    if abs(value.numerator) > MAX_NUMERATOR:
        raise ValueError(f"{str(number)[:60]} has more digits than are kept exactly; write a shorter number")
    return value


def fraction_text(value: Fraction) -> str:
    """Return the shortest exact text of a rational: a decimal if it has one, else ``p/q``.

    >>> fraction_text(Fraction(1, 50)), fraction_text(Fraction(1, 3)), fraction_text(Fraction(2))
    ('0.02', '1/3', '2')
    """
    digits, rest = 0, value.denominator
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest //= prime
            power += 1
        digits = max(digits, power)
    return str(value) if rest != 1 or digits > MAX_DIGITS else decimal_text(value, digits)


def decimal_text(value: Fraction, digits: int) -> str:
    """Return a rational as a decimal with ``digits`` digits after the point, which must be enough to write it exactly.

    >>> decimal_text(Fraction(-1, 50), 2)
    '-0.02'
    """
    scaled = str(abs(value.numerator) * 10**digits // value.denominator).rjust(digits + 1, "0")
    text = f"{scaled[:-digits]}.{scaled[-digits:]}" if digits else scaled
    return f"-{text}" if value < 0 else text


LONG_FRACTION = re.compile(r"[0-9]+/[0-9]{7,}")


def readable_text(exact: str) -> str:
    """Rewrite an exact text for people: a fraction with a large denominator becomes a rounded decimal.

    Sums of doubles have such denominators.

    >>> readable_text("1452410879826985/562949953421312 seconds"), readable_text("1/3")
    ('2.58 seconds', '1/3')
    """
    return LONG_FRACTION.sub(lambda found: f"{float(Fraction(found[0])):.6g}", exact)


@dataclass(frozen=True)
class Linear:
    """A rule for thresholds: f' = min(1, slope * f + intercept) for a value whose share of the records is f.

    Attributes:
        slope: The factor of f.
        intercept: The threshold for f = 0.
    """

    slope: Fraction
    intercept: Fraction

    def threshold_at(self, frequency: Fraction) -> Fraction:
        """Return the threshold f' of a value whose share of the records is f.

        It may be zero or negative, which the caller must refuse.
        """
        return min(Fraction(1), self.slope * frequency + self.intercept)

    def __str__(self) -> str:
        if self.slope == 0:
            return fraction_text(self.intercept)
        sign = "-" if self.intercept < 0 else "+"
        tail = f" {sign} {fraction_text(abs(self.intercept))}" if self.intercept else ""
        return f"{fraction_text(self.slope)}*f{tail}"


def parse_linear(expression: object) -> Linear:
    """Read a rule for thresholds: a constant, or an expression linear in ``f`` such as ``"8*f + 0.02"`` or ``"1/4"``.

    Raises:
        ValueError: The expression is not linear; the message quotes the part that is not understood.
    """
    if not isinstance(expression, str):
        return Linear(Fraction(0), as_fraction(expression))
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        rule = _evaluate_node(tree.body, expression.strip())
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"threshold {expression[:60]!r} is not an expression such as '8*f + 0.02'") from error
    return Linear(as_fraction(rule.slope), as_fraction(rule.intercept))


def _evaluate_node(node: ast.expr, source: str) -> Linear:
    match node:
        case ast.Name(id="f"):
            return Linear(Fraction(1), Fraction(0))
        case ast.Constant(value=int() | float()):
            # Read the text and not node.value, because Python has read 0.02 as a double.
            return Linear(Fraction(0), as_fraction(ast.get_source_segment(source, node) or ""))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _evaluate_node(operand, source)
            return Linear(-inner.slope, -inner.intercept)
        case ast.BinOp(left=left, op=operator, right=right):
            return _combine_operands(_evaluate_node(left, source), operator, _evaluate_node(right, source), source)
    raise ValueError(f"threshold {source!r}: only numbers, f, + - * / are allowed")


def _combine_operands(left: Linear, operator: ast.operator, right: Linear, source: str) -> Linear:
    match operator:
        case ast.Add():
            return Linear(left.slope + right.slope, left.intercept + right.intercept)
        case ast.Sub():
            return Linear(left.slope - right.slope, left.intercept - right.intercept)
        case ast.Mult() if left.slope == 0 or right.slope == 0:
            scale, line = (left.intercept, right) if left.slope == 0 else (right.intercept, left)
            return Linear(scale * line.slope, scale * line.intercept)
        case ast.Div() if right.slope == 0 and right.intercept != 0:
            return Linear(left.slope / right.intercept, left.intercept / right.intercept)
    raise ValueError(f"threshold {source!r} is not linear in f")
