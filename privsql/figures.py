"""Format numbers for people: an estimate gets as many digits as its error justifies, an exact number all of them."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TypeGuard

DASH = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"
HELD = 15  # significant digits that every double holds reliably
POINT = 4  # significant digits of an estimate without a known error
LARGEST, MOST = 1e21, 12  # larger numbers, or numbers with more decimals, are written with an exponent


def is_number(value: object) -> TypeGuard[int | float | Decimal]:
    """Return True for a value that is shown as a number; True and False are not numbers here."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def format_estimate(estimate: object, error: object, low: object, high: object) -> list[object]:
    """Return an estimate, its standard error and its bounds low and high as texts.

    Two significant digits of the standard error decide how many digits all four have. Without a standard error, a
    quarter of the distance between the bounds takes its place. Such bounds are certain, so low is rounded down and high
    is rounded up. An estimate with neither has four significant digits. Exact numbers are shown in full, and a value
    that is no number is returned as it is.

    >>> format_estimate(180.73, 16.31, 149.0, 214.0), format_estimate(0.0793, 0.0061, 0.0671, 0.0915)
    (['181', '16', '149', '214'], ['0.0793', '0.0061', '0.0671', '0.0915'])
    >>> format_estimate(123456.7, 1630.2, 120261, 126653), format_estimate(2000, 0.0, 2000, 2000)
    (['123,500', '1,600', '120,300', '126,700'], ['2,000', '0', '2,000', '2,000'])
    >>> format_estimate(2000.2744, None, 2000.22777, 2000.31881), format_estimate(-0.004, 0.25, -0.5, 0.49)
    (['2,000.274', None, '2,000.227', '2,000.319'], ['0.00', '0.25', '-0.50', '0.49'])
    """
    figures = [estimate, error, low, high]
    if not is_number(estimate) or not math.isfinite(estimate):
        return [format_exact(one) for one in figures]
    bounded = is_number(low) and is_number(high) and math.isfinite(low) and math.isfinite(high)
    if is_number(error) and error > 0:
        decimals = _count_decimals(float(error))
        return [_round_to(one, decimals) for one in figures]
    if error == 0 or (bounded and low == high):
        return [format_exact(one) for one in figures]
    if not (is_number(low) and is_number(high) and bounded):
        return [format_figure(one, POINT) if is_number(one) else one for one in figures]
    decimals = max(_count_decimals((float(high) - float(low)) / 4), 0)
    ends = _round_to(low, decimals, ROUND_FLOOR), _round_to(high, decimals, ROUND_CEILING)
    return [_round_to(estimate, decimals), error, *ends]


def _count_decimals(error: float) -> int:
    """Return how many decimals show two significant digits of an error; -1 stands for tens, -2 for hundreds.

    >>> [_count_decimals(one) for one in (16.31, 0.0996, 1630.0)]
    [0, 2, -2]
    """
    return 1 - int(f"{error:.1e}".partition("e")[2])


def _round_to(value: object, decimals: int, rounding: str = ROUND_HALF_EVEN) -> object:
    """Return a number as text with ``decimals`` digits after the point.

    A value that is no number, or is not finite, is returned as it is.
    """
    if not is_number(value) or not math.isfinite(value):
        return format_exact(value)
    if abs(float(value)) >= LARGEST or decimals > MOST:
        return f"{float(value):.{POINT}g}"
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-decimals), rounding)
    return _drop_sign(f"{rounded:,.{max(decimals, 0)}f}")


def _drop_sign(text: str) -> str:
    """Return the text of a number without the minus sign if the number is zero."""
    return text.removeprefix("-") if not text.strip("-0.,") else text


def format_exact(value: object) -> object:
    """Return an exact number as text in full; a double is shown with all digits that it holds reliably.

    Any other value is returned as it is.

    >>> format_exact(9007199254740993), format_exact(2000.8790963445092), format_exact(Decimal("12.50"))
    ('9,007,199,254,740,993', '2,000.87909634451', '12.50')
    """
    if not is_number(value):
        return value
    if not math.isfinite(value):
        return str(value)
    return _drop_sign(f"{value:,.{HELD}g}" if isinstance(value, float) else f"{value:,}")


def format_key(value: object) -> object:
    """Return a value that names a group as it is, with a number as plain text.

    A year gets no thousands separator, and a double keeps all its digits.

    >>> format_key(2023), format_key(21.55), format_key(None)
    ('2023', '21.55', None)
    """
    return value if value is None else str(value)


def format_figure(value: float | Decimal | None, digits: int = 3) -> str:
    """Return a number without a known error as text, or a dash for None.

    Whole numbers are shown in full. Other numbers have ``digits`` significant digits, but at least all digits before
    the point.

    >>> format_figure(12345), format_figure(0.0123456), format_figure(1234.56), format_figure(None)
    ('12,345', '0.0123', '1,235', '–')
    """
    if value is None:
        return DASH
    if not math.isfinite(value):
        return str(value)
    size = abs(float(value))
    if float(value).is_integer() and size < 1e15:
        return f"{int(value):,}"
    if 10 ** (digits - 1) <= size < 1e15:
        return _drop_sign(f"{value:,.0f}")
    return f"{value:.{digits}g}"


def format_percent(value: float | None) -> str | None:
    """Return a share in percent with one decimal, as tables have it; None for None.

    >>> format_percent(0.1234), format_percent(None)
    ('12.3%', None)
    """
    return None if value is None else f"{value:.1%}"


def format_share(value: float | None) -> str:
    """Return a share or a probability in percent.

    >>> [format_share(one).replace(SPACE, " ") for one in (0.125, 1, 0.00012, None)]
    ['12.5 %', '100 %', '0.012 %', '–']
    """
    if value is None:
        return DASH
    percent = 100 * float(value)
    digits = f"{percent:.1f}".removesuffix(".0") if percent >= 1 or not percent else f"{percent:.2g}"
    return f"{digits}{SPACE}%"
