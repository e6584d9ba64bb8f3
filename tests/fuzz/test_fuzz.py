"""Queries at random to every mechanism: no traceback, the engine's answers where nothing is hidden, bounds that hold.

Failures are shrunk to the simplest query that fails. Of every mechanism the default run asks 20 queries in each of
two worlds, the slow one 120, and ``tests.soak`` 3,000, or as many as PRIVSQL_FUZZ says. Most are counts, many of which
stand in one SELECT; one of 27 is of any kind.
"""

from __future__ import annotations

import os
import random
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from fuzz import checks, together, worlds
from fuzz.queries import Column, Condition, Query, Shown, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuzz.worlds import World

MANY = [
    20,
    pytest.param(120, marks=pytest.mark.slow),
    pytest.param(int(os.environ.get("PRIVSQL_FUZZ", "3000")), marks=pytest.mark.soak(part="fuzz")),
]
TABLES = ["bucketize", "randomize", "permute", "contingency", "setvalued"]


@pytest.fixture(scope="session")
def true_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], World]]:
    """Worlds in which nothing is hidden, each made once."""
    made: dict[str, World] = {}

    def of(name: str) -> World:
        if name not in made:
            made[name] = worlds.TRUE[name](tmp_path_factory.mktemp(f"true_{name}"))
        return made[name]

    yield of
    for world in made.values():
        world.close()


@pytest.fixture
def real_world(request: pytest.FixtureRequest) -> Callable[[str], World]:
    """Releases as they would be published."""

    def of(name: str) -> World:
        fixture, table, columns, release = worlds.REAL[name]
        return worlds.opened(name, table, columns, request.getfixturevalue(fixture) / release, true=False)

    return of


def writer(world: World, seed: str) -> Writer:
    """The same queries for a seed."""
    return Writer(random.Random(f"{seed} {world.name}"), world.table, world.columns, sums=world.sums)  # noqa: S311


@pytest.mark.slow
@pytest.mark.parametrize("number", MANY)
@pytest.mark.parametrize("name", worlds.TRUE)
def test_the_engines_answers_where_nothing_is_hidden(
    true_world: Callable[[str], World], name: str, number: int
) -> None:
    """Rows, names, types and order; nearly all queries are understood. Half of the queries."""
    world, any_kind = true_world(name), max(number // 40, 1)
    own = writer(world, f"true {number}")
    counted = checks.asked(world, own, any_kind)
    assert counted["answered"] > 0.8 * any_kind, counted
    together.asked(world, own, number // 2 - any_kind)


@pytest.mark.parametrize("number", MANY)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "randomize")) for name in TABLES]
)
def test_real_noise(real_world: Callable[[str], World], name: str, number: int) -> None:
    """What a release holds is exact; bounds that are called certain hold; equal questions have equal answers."""
    with closing(real_world(name)) as world:
        own, any_kind = writer(world, f"real {number}"), number // 80
        counted = checks.asked(world, own, any_kind)
        assert counted["answered"] >= 0.6 * any_kind, counted
        checks.related(world, own, any_kind)
        together.asked(world, own, number // 5, "baseline")
        together.related(world, own, (number // 2 - 3 * any_kind - number // 5) // 2)
        if name != "setvalued":
            for _ in range(number // 200):
                checks.add_up(world, own)


LEFT = "COUNT(*) - COUNT_IF({})"  # of nobody COUNT_IF is NULL, and next to nobody is nobody
FAILED = {
    "bucketize": Query(
        "t",
        (Shown("hours", "g0"),),
        (
            Shown("COUNT(*)", "n"),
            Shown(
                LEFT.format("ill BETWEEN 'cold' AND 'flu' AND hours + 1 > 3 AND hours NOT IN (7, 3)"),
                "f0",
                sensitive=True,
            ),
        ),
        Condition("", text="coalesce(day, DATE '2020-01-20') = DATE '2020-02-03' AND age + 1 > 44"),
    ),
    "randomize": Query(
        "t",
        (Shown("age", "g0"), Shown("left(ill, 1)", "g1", sensitive=True)),
        (Shown("COUNT(*)", "n"), Shown(LEFT.format("age IS NOT NULL AND sex IS NULL AND hours + 1 > 7"), "f0")),
    ),
}


@pytest.mark.parametrize("name", sorted(FAILED))
def test_what_has_failed_before(true_world: Callable[[str], World], name: str) -> None:
    """Queries that more of them than any run asks have found."""
    assert checks.answers_as_the_engine(true_world(name), FAILED[name])


def test_failures_are_shrunk() -> None:
    """To the one thing that is wrong."""
    condition = Condition("AND", (Condition("", text="a = 1"), Condition("NOT", (Condition("", text="b = 2"),))))
    query = Query(
        "t", (Shown("a", "g0"),), (Shown("COUNT(*)", "n"), Shown("SUM(a)", "f0")), condition, "ROLLUP", "n > 3"
    )

    def check(one: Query) -> None:
        if "b = 2" in str(one):
            raise ValueError("b")

    assert checks.shrunk(check, query) == "SELECT COUNT(*) AS n FROM t WHERE b = 2\nValueError: b"


def test_queries_are_of_every_kind() -> None:
    """Over 300 of them."""
    own = Writer(random.Random(1), "t", [Column("a", "int", ("1",)), Column("s", "text", ("'x'",), sensitive=True)])  # noqa: S311
    written = " ".join(str(own.query()) for _ in range(300))
    for word in (
        "FILTER",
        "ROLLUP",
        "CUBE",
        "GROUP BY ALL",
        "HAVING",
        "LIMIT",
        "NOT",
        "CASE",
        "AVG",
        "MEDIAN",
        "inside",
    ):
        assert word in written
