"""Check and convert the arguments of the public Python functions: paths, numbers, names and keywords.

Each error is one line. A number may be a float: it means the decimal that it prints, exactly (0.1 is 1/10). The module
also pauses Python's garbage collection while a query is answered.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from privsql.errors import UsageError, suggest_name
from privsql.exact import as_fraction

PathLike = str | os.PathLike[str]


def as_path(path: PathLike, what: str = "path") -> Path:
    """Return a path that is given as a text or as a path object.

    ``~`` stands for the home folder, as in a specification.

    Args:
        path: The path.
        what: What the error message calls the argument.

    Raises:
        UsageError: The value is not a path.
    """
    try:
        return at_home(Path(path))
    except TypeError as error:
        raise UsageError(f"{what}: {type(path).__name__} is not a path; give a text or a pathlib.Path") from error


def as_optional_path(path: PathLike | None, what: str) -> Path | None:
    """Return a path that is given as a text or as a path object, with ``~`` as the home folder; None for None."""
    return None if path is None else as_path(path, what)


def at_home(path: Path) -> Path:
    """Return a path with ``~`` replaced by the home folder; the path stays as it is if there is no home folder."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def as_paths(paths: Iterable[PathLike] | PathLike | None, what: str = "path") -> list[Path]:
    """Return a list of paths; a single path becomes a list of one, and None an empty list.

    Raises:
        UsageError: A value is not a path, for example a table.
    """
    if paths is None:
        return []
    table = isinstance(paths, Mapping) or hasattr(paths, "__arrow_c_stream__")
    if table or not isinstance(paths, Iterable | str | os.PathLike):
        raise UsageError(
            f"{what}: {type(paths).__name__} is not a path; give a text or a pathlib.Path, or several in a list"
        )
    return [as_path(one, what) for one in ((paths,) if isinstance(paths, str | os.PathLike) else paths)]


def as_printed(value: Any) -> Any:
    """Return a float as the decimal that it prints, so that 0.1 means 1/10, and a whole number of numpy as an int.

    Any other value is returned as it is.

    >>> as_printed(0.1), as_printed(3)
    (Decimal('0.1'), 3)
    """
    if isinstance(value, int | Fraction | Decimal):
        return value
    if isinstance(value, Integral):
        return int(value)
    return Decimal(str(value)) if isinstance(value, Real) else value


def as_exact_data(data: Any, where: str = "specification") -> Any:
    """Return a specification that is given as Python data, with every float replaced by the decimal that it prints.

    So 0.1 means exactly 1/10, as in a TOML file.

    Arrays, indexes and sets become lists; a set is sorted by the texts of its items. Keys that are whole numbers become
    texts.

    Args:
        data: The data: dictionaries, lists, numbers, texts and the like.
        where: What an error message calls this part of the data.

    Raises:
        UsageError: A float is NaN or infinite; the message names its key.
    """
    if isinstance(data, Mapping):
        return {_as_key(key): as_exact_data(value, str(key)) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(as_exact_data(value, where) for value in data) if type(data) in (list, tuple) else data
    if isinstance(data, set | frozenset):
        return as_exact_data(
            sorted(data, key=str), where
        )  # sorted, because another process would have another order, and make another release
    number = as_printed(data)
    if isinstance(number, Decimal) and not number.is_finite():
        raise UsageError(f"{where}: {number} is not a number; write a decimal or a fraction such as 1/50")
    if number is data and hasattr(data, "tolist") and not hasattr(data, "__arrow_c_stream__"):
        return as_exact_data(data.tolist(), where)
    return number


def _as_key(key: Any) -> Any:
    """Return a key of a dictionary; a whole number becomes a text, as TOML, too, has only texts as keys."""
    whole = isinstance(key, Integral) and not isinstance(key, bool)
    return str(int(key)) if whole else key


def as_exact_number(value: Any, what: str) -> Fraction:
    """Return a number as an exact fraction.

    Args:
        value: The number.
        what: What the error message calls it.

    Raises:
        UsageError: The value is not a number.
    """
    try:
        return as_fraction(as_printed(value))
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from error


def as_share(value: Any, what: str) -> float:
    """Return a share between 0 and 1 as a double.

    Args:
        value: The share.
        what: What the error message calls it.

    Raises:
        UsageError: The value is not a number in [0, 1].
    """
    exact = as_exact_number(value, what)
    if not 0 <= exact <= 1:
        raise UsageError(f"{what} {value} lies outside [0, 1]")
    return float(exact)


def as_whole_number(value: Any, what: str, least: int | None = 1, most: int | None = None) -> int:
    """Return a whole number between two bounds.

    Args:
        value: The number.
        what: What the error message calls it.
        least: The lower bound; None for no bound.
        most: The upper bound; None for no bound.

    Raises:
        UsageError: The value is not a whole number, or lies outside the bounds.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{what}: {value!r} is not a whole number")
    number = int(value)
    if least is not None and number < least:
        raise UsageError(f"{what} {number} must be at least {least}")
    if most is not None and number > most:
        raise UsageError(f"{what} {number} must be at most {most}")
    return number


def as_range(value: str | Sequence[Any], what: str) -> tuple[float | None, float | None]:
    """Return the two ends of a range that is written "100:5000", "100:" or ":5000", or given as a pair.

    An end that is not given is None.

    Raises:
        UsageError: The value is not such a range.

    >>> as_range("100:", "answers"), as_range((None, 0.5), "answers")
    ((100.0, None), (None, 0.5))
    """
    parts = [part.strip() or None for part in value.split(":")] if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise UsageError(f"{what} {value!r}: give a range, such as 100:5000, 100: or :5000")
    low, high = (None if end is None else float(as_exact_number(end, what)) for end in parts)
    if low is not None and high is not None and low > high:
        raise UsageError(f"{what} {value!r}: the lower end is above the upper end")
    return low, high


def as_names(value: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Return names that are given as one text with commas between them, or as several texts.

    Raises:
        UsageError: The value is neither.

    >>> as_names("age, sex", "columns"), as_names(["age"], "columns")
    (('age', 'sex'), ('age',))
    """
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else []
    if not parts or not all(isinstance(name, str) and name.strip() for name in parts):
        raise UsageError(f"{what} {value!r}: give one name or several")
    return tuple(name.strip() for name in parts)


def as_confidence(confidence: float) -> float:
    """Return a confidence level, such as 0.95, as a double.

    Raises:
        UsageError: The level does not lie strictly between 0 and 1.
    """
    try:
        number = float(confidence)
    except (TypeError, ValueError) as error:
        raise UsageError(f"confidence {confidence!r} is not a number") from error
    if not 0 < number < 1:
        raise UsageError(f"confidence {confidence} lies outside (0, 1); 0.95 is 95 %")
    return number


def refuse_unknown_keywords(keywords: Iterable[str], names: Iterable[str], verb: str | Callable[..., Any]) -> None:
    """Raise ``UsageError`` for a keyword that a public function does not have.

    The message suggests the known keyword with the most similar spelling.

    Args:
        keywords: The keywords that were given.
        names: The keywords that are allowed.
        verb: The name of the public function, or the function itself, whose own parameters are then suggested too.
    """
    possible = set(names)
    for name in keywords:
        if name not in possible:
            raise _unknown_keyword(name, possible, verb)


def _unknown_keyword(name: str, names: set[str], verb: str | Callable[..., Any]) -> UsageError:
    from inspect import Parameter, signature

    called = verb if isinstance(verb, str) else verb.__name__
    parameters = () if isinstance(verb, str) else signature(verb).parameters.values()
    possible = sorted(names | {one.name for one in parameters if one.kind is not Parameter.VAR_KEYWORD})
    hint = suggest_name(name, possible).removeprefix(", ") or f"it has {', '.join(possible)}"
    return UsageError(f"{called} has no keyword {name!r}; {hint}")


@contextmanager
def pause_collection() -> Iterator[None]:
    """Switch off Python's garbage collection inside the block, which makes answering a query faster.

    A collection would find little to remove, because most objects live until the query is answered.
    """
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
