"""One test over many cases: an item of its own for each would cost more than the case."""

from __future__ import annotations

import functools
import inspect
import itertools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support import ledgers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Test = Callable[..., None]

FEW = 2  # cases of a test that every run tries, where it does not say how many
REST = "cases"  # the part of tests/soak that tries the others


def each(
    names: str | tuple[str, ...], cases: Iterable[Any], *, few: int = FEW, soak: str = REST
) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize``, in one item: all cases run, and each that fails is named and shown.

    Each case has a ``tmp_path``, with it a ledger, and a ``monkeypatch`` of its own; what other fixtures give is
    shared, and must be read only. Several of these decorators make all combinations, the lowest changing slowest. One
    item runs so many cases as ``few`` of the highest of them says, spread over all of them, and another, which is
    in a part of ``tests.soak``, the others.

    >>> @each("a", [1, 2])
    ... @each(("b", "c"), [(3, 4), (5, 6)])
    ... def test(a, b, c): ...
    >>> [tuple(case.values()) for case in test.cases]
    [(3, 4, 1), (3, 4, 2), (5, 6, 1), (5, 6, 2)]
    """
    keys = (names,) if isinstance(names, str) else names
    given = [dict(zip(keys, (case,) if isinstance(names, str) else case, strict=True)) for case in cases]
    assert given, f"no cases of {names}"

    def decorate(test: Test) -> Test:
        one = getattr(test, "one", test)
        made = [below | above for below, above in itertools.product(getattr(test, "cases", [{}]), given)]
        looped = _loop(one, made)
        vars(looped).update(one=one, cases=made)
        return pytest.mark.parametrize("part", _parts(len(made), few, soak))(looped)

    return decorate


def slow_but(names: Iterable[str], *few: str) -> list[Any]:
    """Cases of ``pytest.mark.parametrize``, or params of a fixture, by name; all but a few of them are slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in few)) for name in names]


def rest_slow(cases: Iterable[Any], few: int = 1, soak: str = REST) -> list[Any]:
    """Cases of ``pytest.mark.parametrize``; all but the first few are in a part of ``tests.soak``.

    A case of several values is a tuple.
    """
    each_as_tuple = (case if isinstance(case, tuple) else (case,) for case in cases)
    marks = itertools.chain([()] * few, itertools.repeat(pytest.mark.soak(part=soak)))
    return [pytest.param(*case, marks=mark) for case, mark in zip(each_as_tuple, marks, strict=False)]


def _loop(one: Test, cases: Sequence[dict[str, Any]]) -> Test:
    """A test that runs some of the cases."""

    @functools.wraps(one)
    def looped(subtests: pytest.Subtests, part: Iterable[int], **fixed: Any) -> None:
        for number in part:
            with subtests.test(**cases[number]), _own(fixed, number) as own:
                one(**own, **cases[number])

    fixtures = [p for p in inspect.signature(one).parameters.values() if p.name not in cases[0]]
    more = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("subtests", "part")]
    vars(looped)["__signature__"] = inspect.Signature([*more, *fixtures])
    return looped


def _parts(number: int, few: int, soak: str) -> list[Any]:
    """The cases of each item, by their numbers."""
    if few >= number:
        return [pytest.param(range(number), id="all")]
    chosen = {position * number // few for position in range(few)}
    rest = [case for case in range(number) if case not in chosen]
    return [pytest.param(sorted(chosen), id="some"), pytest.param(rest, id="others", marks=pytest.mark.soak(part=soak))]


@contextmanager
def _own(fixed: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The fixtures of one case."""
    own = dict(fixed)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    with ExitStack() as stack:
        if "tmp_path" in own:
            stack.enter_context(ledgers.own())
        if "monkeypatch" in own:
            own["monkeypatch"] = stack.enter_context(own["monkeypatch"].context())
        yield own
