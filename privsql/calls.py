"""What callers in Python hand over: paths, numbers, keywords. What is wrong with them is one line, never a traceback.

A number may be a float: it means the decimal that it prints, exactly (0.1 is 1/10).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.errors import UsageError
from privsql.exact import fraction

if TYPE_CHECKING:
    from collections.abc import Callable

PathLike = str | os.PathLike[str]


def as_path(given: PathLike, what: str = "path") -> Path:
    """A path, written as a text or as any object that stands for one; ``UsageError`` for anything else.

    ``~`` is the home folder, as it is in a specification.
    """
    try:
        return at_home(Path(given))
    except TypeError as error:
        raise UsageError(f"{what}: {type(given).__name__} is no path; give a text or a pathlib.Path") from error


def at_home(path: Path) -> Path:
    """A path in which ``~`` is the home folder, if there is one."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def as_paths(given: Iterable[PathLike] | PathLike | None, what: str = "path") -> list[Path]:
    """Several paths; one may stand alone. ``UsageError`` for anything else, such as a table, whose columns are none."""
    if given is None:
        return []
    table = isinstance(given, Mapping) or hasattr(given, "__arrow_c_stream__")
    if table or not isinstance(given, Iterable | str | os.PathLike):
        raise UsageError(
            f"{what}: {type(given).__name__} is no path; give a text or a pathlib.Path, or several in a list"
        )
    return [as_path(one, what) for one in ((given,) if isinstance(given, str | os.PathLike) else given)]


def printed(given: Any) -> Any:
    """A float as the decimal that it prints, and numpy's whole numbers as Python's; anything else as it is.

    >>> printed(0.1), printed(3)
    (Decimal('0.1'), 3)
    """
    if isinstance(given, int | Fraction | Decimal):
        return given
    if isinstance(given, Integral):
        return int(given)
    return Decimal(str(given)) if isinstance(given, Real) else given


def exactly(given: Any, where: str = "specification") -> Any:
    """Plain data with every float as the decimal that it prints.

    Arrays, indexes and sets, in their texts' order, become lists, and whole numbers that are keys texts. Raises
    ``UsageError``, naming the key, for floats that are no numbers.
    """
    if isinstance(given, Mapping):
        return {_key(key): exactly(value, str(key)) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(exactly(value, where) for value in given) if type(given) in (list, tuple) else given
    if isinstance(given, set | frozenset):
        return exactly(sorted(given, key=str), where)  # else the next process has another order, and another release
    number = printed(given)
    if isinstance(number, Decimal) and not number.is_finite():
        raise UsageError(f"{where}: {number} is not a number; write a decimal or a fraction such as 1/50")
    if number is given and hasattr(given, "tolist") and not hasattr(given, "__arrow_c_stream__"):
        return exactly(given.tolist(), where)
    return number


def _key(given: Any) -> Any:
    """A key; a whole number, which a value may be, is its text."""
    whole = isinstance(given, Integral) and not isinstance(given, bool)
    return str(int(given)) if whole else given


def number(given: Any, what: str) -> Fraction:
    """An exact number; ``UsageError``, with what it is for, if it is none."""
    try:
        return fraction(printed(given))
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from error


def share(given: Any, what: str) -> float:
    """A share of something; ``UsageError``, with what it is of, unless it lies in [0, 1]."""
    found = number(given, what)
    if not 0 <= found <= 1:
        raise UsageError(f"{what} {given} lies outside [0, 1]")
    return float(found)


def whole(given: Any, what: str, least: int | None = 1, most: int | None = None) -> int:
    """A whole number; ``UsageError``, with what it is for, if it is none or lies outside the bounds."""
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise UsageError(f"{what}: {given!r} is no whole number")
    found = int(given)
    if least is not None and found < least:
        raise UsageError(f"{what} {found} must be at least {least}")
    if most is not None and found > most:
        raise UsageError(f"{what} {found} must be at most {most}")
    return found


def ends(given: str | Sequence[Any], what: str) -> tuple[float | None, float | None]:
    """The least and the most: "100:5000", "100:", ":5000", or a pair; ``UsageError``, with what it is for, for others.

    >>> ends("100:", "answers"), ends((None, 0.5), "answers")
    ((100.0, None), (None, 0.5))
    """
    parts = [part.strip() or None for part in given.split(":")] if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise UsageError(f"{what} {given!r}: give the least and the most, such as 100:5000, 100: or :5000")
    low, high = (None if end is None else float(number(end, what)) for end in parts)
    if low is not None and high is not None and low > high:
        raise UsageError(f"{what} {given!r}: the least is above the most")
    return low, high


def names(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Names, in a text with commas between them or several; ``UsageError``, with what they are of, for anything else.

    >>> names("age, sex", "columns"), names(["age"], "columns")
    (('age', 'sex'), ('age',))
    """
    found = given.split(",") if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    if not found or not all(isinstance(name, str) and name.strip() for name in found):
        raise UsageError(f"{what} {given!r}: give one name or several")
    return tuple(name.strip() for name in found)


def between(confidence: float) -> float:
    """A confidence; ``UsageError`` unless it lies in (0, 1)."""
    try:
        found = float(confidence)
    except (TypeError, ValueError) as error:
        raise UsageError(f"confidence {confidence!r} is no number") from error
    if not 0 < found < 1:
        raise UsageError(f"confidence {confidence} lies outside (0, 1)")
    return found


def known(given: Iterable[str], names: Iterable[str], verb: str | Callable[..., Any]) -> None:
    """``UsageError`` for a keyword that a verb does not have, with the one that is written most alike.

    ``verb``: its name; or itself, whose own parameters it has, too.
    """
    possible = set(names)
    for name in given:
        if name not in possible:
            raise _unknown(name, possible, verb)


def _unknown(name: str, names: set[str], verb: str | Callable[..., Any]) -> UsageError:
    from difflib import get_close_matches  # noqa: PLC0415 (only where something is wrong)
    from inspect import Parameter, signature  # noqa: PLC0415

    called = verb if isinstance(verb, str) else verb.__name__
    own = () if isinstance(verb, str) else signature(verb).parameters.values()
    possible = sorted(names | {one.name for one in own if one.kind is not Parameter.VAR_KEYWORD})
    near = get_close_matches(name, possible, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(possible)}"
    return UsageError(f"{called} has no keyword {name!r}; {hint}")
