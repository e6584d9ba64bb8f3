"""The parts of bins that a question tells apart, each with its share of the bin.

A comparison with a number cuts the bin in which that lies. Of whole numbers and decimals a part's share is that of the
values in it, of others that of its length; there the number itself may be what many records have, so it is a part of
next to no length by itself.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, inf, nextafter
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.answers.cuts import FIRST, LAST, TURNED, constant
from privsql.engine.names import fold
from privsql.mechanisms.contingency.domains import Point, decimal
from privsql.mechanisms.contingency.parameters import is_whole
from privsql.model.bins import spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from privsql.engine.roles import Field

LITTLE = 1e-9  # the share of a bin that one number has, or of which nothing is known
RISING = (exp.Paren, exp.Neg, exp.Floor, exp.Ceil, exp.Round)
OF_TWO = (exp.Add, exp.Sub, exp.Mul)
DIVIDED = (exp.Div, exp.IntDiv)
NUMBERS = (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE)
Cut = tuple[Fraction, bool]  # a number, and whether it is the last one of what comes before the cut


def step(kind: str) -> Fraction | None:
    """Return how far the values of a type lie from each other; None where there is always one between them."""
    if is_whole(kind):
        return Fraction(1)
    return Fraction(1, 10 ** spread(kind)[2]) if kind.startswith("DECIMAL") else None


def read_cuts(field: Field, expressions: Iterable[exp.Expr]) -> tuple[set[Cut], list[exp.Expr]]:
    """Return where comparisons with numbers cut a column, and the largest arithmetic around all its other uses."""
    cuts: set[Cut] = set()
    others: list[exp.Expr] = []
    for root in expressions:
        for node in root.find_all(exp.Column):
            if fold(node.name) == fold(field.name):
                found = _compared(_outside_parentheses(node), field.type)
                if found is None:
                    others.append(_arithmetic(node))
                cuts |= found or set()
    return cuts, others


def _outside_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return node


def _compared(node: exp.Expr, kind: str) -> set[Cut] | None:
    """The cuts of a comparison of a column with constants, or with NULL; None for another use."""
    around = node.parent
    if isinstance(around, exp.Is) and isinstance(around.expression, exp.Null):
        return set()
    if isinstance(around, exp.Between) and around.this is node:
        ends = [constant(around.args[name], kind) for name in ("low", "high")]
        pairs = [(end, last) for end, last in zip(ends, (False, True), strict=True) if end is not None]
    elif isinstance(around, (*FIRST, *LAST)):
        turned = around.expression is node
        value = constant(around.this if turned else around.expression, kind)
        kind_of = TURNED[type(around)] if turned else type(around)
        pairs, ends = ([(value, kind_of in LAST)] if value is not None else []), [value]
    else:
        return None
    return None if None in ends else {(Fraction(str(value)), last) for value, last in pairs}


def _arithmetic(node: exp.Expr) -> exp.Expr:
    """The largest expression around a column that never falls, or never rises, as the column does."""
    while (around := node.parent) is not None and _is_monotone(around, node):
        node = around
    return node


def _is_monotone(around: exp.Expr, node: exp.Expr) -> bool:
    if any(child.find(exp.Column) for child in around.iter_expressions() if child is not node):
        return False
    if isinstance(around, exp.Cast):
        return around.to.this in NUMBERS
    return isinstance(around, (*RISING, *OF_TWO)) or (isinstance(around, DIVIDED) and around.this is node)


def cut_bins(kind: str, edges: Sequence[Fraction], cuts: Iterable[Cut]) -> list[Point]:
    """Return the parts of all bins that are cut, one value of each with its share of the bin."""
    by_code: dict[int, set[Cut]] = {}
    for cut in cuts:
        code = int(np.searchsorted(np.array([float(edge) for edge in edges]), float(cut[0]), side="right")) - 1
        for near in (code - 1, code, code + 1):  # floats may be off by one
            if 0 <= near < len(edges) - 1 and edges[near] <= cut[0] < edges[near + 1]:
                by_code.setdefault(near, set()).add(cut)
    apart = step(kind)
    found: list[Point] = []
    for code, inside in sorted(by_code.items()):
        ends = edges[code], edges[code + 1]
        parts = _of_length(*ends, inside) if apart is None else _of_values(*ends, inside, apart)
        found += [Point(code, value, share) for value, share in parts] if len(parts) > 1 else []
    return found


def _of_values(low: Fraction, high: Fraction, cuts: Iterable[Cut], apart: Fraction) -> list[tuple[str, float]]:
    """Parts by the number of values in them, each with its first value."""
    first, end = ceil(low / apart), ceil(high / apart)
    places = {floor(value / apart) + 1 if last else ceil(value / apart) for value, last in cuts}
    bounds = [first, *sorted(place for place in places if first < place < end), end]
    return [(decimal(one * apart), float(Fraction(other - one, end - first))) for one, other in pairwise(bounds)]


def _of_length(low: Fraction, high: Fraction, cuts: Iterable[Cut]) -> list[tuple[str, float]]:
    """Parts by their length, each with a value in its middle, and the numbers at the cuts."""
    numbers = sorted({value for value, last in cuts if value > low or last})
    bounds = sorted({low, *numbers, high})
    rest = 1 - LITTLE * len(numbers)
    parts = [
        (repr(float((one + other) / 2)), rest * float((other - one) / (high - low))) for one, other in pairwise(bounds)
    ]
    return [*parts, *((repr(float(value)), LITTLE) for value in numbers)]


def ends_of(kind: str, edges: Sequence[Fraction]) -> list[Point]:
    """Return the first and the last value of every bin."""
    apart = step(kind)
    found = []
    for code, (low, high) in enumerate(pairwise(edges)):
        last = nextafter(float(high), -inf) if apart is None else None
        if kind == "FLOAT":
            last = float(np.nextafter(np.float32(high), np.float32(-inf)))
        shown = repr(last) if apart is None else decimal((ceil(high / apart) - 1) * apart)
        first = decimal(low if apart is None else ceil(low / apart) * apart)
        found += [Point(code, first, LITTLE), Point(code, shown, LITTLE)]
    return found
