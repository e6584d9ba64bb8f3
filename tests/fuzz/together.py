"""Many counts in one SELECT, each with a condition of its own: questions like any other, at a fraction of the price.

Each is asked as COUNT(*) FILTER (WHERE condition) of all records, and is another question to the release. What is
wrong with one of them is asked again alone, and shrunk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fuzz import checks
from fuzz.queries import Condition, Query, Shown
from privsql.errors import PrivsqlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuzz.queries import Writer
    from fuzz.worlds import World

MOST = 50  # counts of one SELECT
Four = tuple[Any, Any, Any, Any]


def select(world: World, conditions: Sequence[Condition | str]) -> str:
    """The SELECT, its counts in the order of their conditions."""
    counts = ", ".join(f"COUNT(*) FILTER (WHERE {one}) AS c{i}" for i, one in enumerate(conditions))
    return f"SELECT {counts} FROM {world.table}"


def figures(world: World, conditions: Sequence[Condition | str], estimator: str) -> list[tuple[Four, str]]:
    """Estimate, error and bounds of each count, and what they rest on."""
    answer = world.release.query(select(world, conditions), estimator=estimator)
    assert len(answer.rows) == 1
    return [(one.read_row(answer.rows[0]), one.rests_on) for one in answer.figures]


def wrong(world: World, figure: tuple[Four, str], true: int, estimator: str) -> bool:
    """Whether the figures of a count can't be those of the true one."""
    (estimate, error, low, high), rests = figure
    if rests == "exact":
        return not (estimate == low == high == true and error == 0)
    held = low is None or high is None or low - checks.CLOSE <= estimate <= high + checks.CLOSE
    possible = estimate >= -checks.CLOSE or estimator == "baseline"  # the papers' formulas can be negative
    near = not world.true or estimator == "baseline" or checks.alike(estimate, true, checks.CLOSE)
    bounded = rests != "certain" or low <= true <= high
    return not (held and possible and near and bounded)


def asked(world: World, writer: Writer, number: int, estimator: str = "best") -> None:
    """So many counts; fails with the simplest of those that are wrong."""
    for conditions in _parts([writer.condition(writer.columns) for _ in range(number)]):
        try:
            found = figures(world, conditions, estimator)
        except PrivsqlError:
            raise
        except Exception as error:
            raise AssertionError(_simplest(world, conditions, estimator)) from error
        (true,) = world.engine.execute(select(world, conditions)).fetchall()
        for condition, one, count in zip(conditions, found, true, strict=True):
            if wrong(world, one, count, estimator):
                raise AssertionError(_simplest(world, [condition], estimator) or f"{condition}: {one}, not {count}")


def _simplest(world: World, conditions: Sequence[Condition], estimator: str) -> str:
    """The simplest of the conditions whose count is wrong by itself."""

    def check(query: Query) -> None:
        ((figure),) = figures(world, [query.where or "TRUE"], estimator)
        ((true,),) = world.engine.execute(str(query)).fetchall()
        assert not wrong(world, figure, true, estimator), f"{figure}, not {true}"

    bare = Query(world.table, (), (Shown("COUNT(*)", "n"),))
    queries = (replace(bare, where=one) for one in conditions)
    failing = next((query for query in queries if checks.failure(check, query)), None)
    return f"{world.name}: {checks.shrunk(check, failing)}" if failing else ""


def related(world: World, writer: Writer, number: int) -> None:
    """So many pairs of conditions that mean the same; fails where their counts differ."""
    for pairs in _parts(list(_pairs(writer, number))):
        found = figures(world, [one for pair in pairs for one in pair], "best")
        for (one, other), (first, _), (second, _) in zip(pairs, found[::2], found[1::2], strict=True):
            assert all(map(checks.near, first, second)), f"{one}: {first}; {other}: {second}"


def _pairs(writer: Writer, number: int) -> Iterator[tuple[str, str]]:
    for _ in range(number):
        _, one, other = writer.dice.choice(list(checks.same_conditions(writer)))
        yield one, other


def _parts(items: list[Any]) -> Iterator[list[Any]]:
    return (items[start : start + MOST // 2] for start in range(0, len(items), MOST // 2))
