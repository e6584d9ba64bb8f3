"""What must hold of an answer, beside the engine's own on the source, and of two questions that mean the same."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb

from privsql.errors import PrivsqlError
from support.claims import wrong_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fuzz.queries import Condition, Query, Writer
    from fuzz.worlds import World
    from privsql.answers.answer import Answer

EMPTY = 0.5  # estimates of groups with fewer records than this are of groups that may be empty
CLOSE = 1e-4  # of estimates in a world in which nothing is hidden


def values(answer: Answer) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names and values without errors and bounds."""
    hidden = {one.at + i for one in answer.figures for i in (1, 2, 3)}
    shown = [i for i in range(len(answer.columns)) if i not in hidden]
    return [answer.columns[i] for i in shown], [tuple(row[i] for i in shown) for row in answer.rows]


def alike(ours: Any, theirs: Any, close: float) -> bool:
    """Numbers nearly, anything else as it is, with its type; an estimate does not tell none from next to none."""
    if theirs is None and isinstance(ours, float):
        return close == CLOSE and abs(ours) < CLOSE * 10
    if isinstance(theirs, float) and math.isnan(theirs):
        return isinstance(ours, float) and math.isnan(ours)
    if isinstance(theirs, int | float | Decimal) and not isinstance(theirs, bool) and ours is not None:
        return math.isclose(float(ours), float(theirs), rel_tol=close, abs_tol=close * 10)
    return type(ours) is type(theirs) and bool(ours == theirs)


def rows_alike(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], close: float) -> bool:
    """Row by row."""
    same = len(ours) == len(theirs)
    return same and all(
        len(a) == len(b) and all(alike(x, y, close) for x, y in zip(a, b, strict=True))
        for a, b in zip(ours, theirs, strict=True)
    )


def answers_as_the_engine(world: World, query: Query) -> bool:
    """Whether a query is answered; fails where it is answered otherwise than it may be."""
    try:
        answer = world.release.query(str(query))
    except PrivsqlError as refusal:
        if len(str(refusal).splitlines()) != 1:
            raise AssertionError(f"refused in several lines: {refusal}") from refusal
        return False
    try:
        true = world.engine.execute(str(query)).fetchall()
    except duckdb.Error as error:
        raise AssertionError(f"answered, where the engine says {error}") from error
    names, rows = values(answer)
    assert names == [column[0] for column in world.engine.description or ()], names
    _well_formed(answer)
    _claims_hold(world, query, answer)
    held = query.is_exact and world.sums
    if not (held or world.true):
        return True
    if not held:
        at = names.index("n")
        rows = [row for row in rows if row[at] is not None and row[at] >= EMPTY]
        true = [row for row in true if row[at]]
        if not query.groups and not true:
            return True
    if query.grouping in ("ROLLUP", "CUBE") or not query.order:  # groups of NULL and totals are in no order
        rows, true = sorted(rows, key=_sortable), sorted(true, key=_sortable)
    assert rows_alike(rows, true, 1e-9 if held else CLOSE), f"{rows[:6]} where the engine says {true[:6]}"
    return True


def _sortable(row: tuple[Any, ...]) -> list[str]:
    return [f"{value:.3f}" if isinstance(value, int | float | Decimal) else str(value) for value in row]


def _well_formed(answer: Answer) -> None:
    """Figures in their order, what they rest on said of each, and nothing called exact that has an error."""
    assert {len(row) for row in answer.rows} <= {len(answer.columns)}
    told = {one["name"]: one for one in answer.as_json()["figures"]}
    for one in answer.figures:
        assert told[one.name]["rests_on"] == one.rests_on
        for row in answer.rows:
            estimate, error, low, high = one.read_row(row)
            if isinstance(estimate, int | float) and math.isfinite(estimate):
                assert error is None or error >= 0, row
                assert low is None or low <= estimate + CLOSE, row
                assert high is None or high >= estimate - CLOSE, row
                assert one.rests_on != "exact" or error == 0, row


def _claims_hold(world: World, query: Query, answer: Answer) -> None:
    """What is called exact or certain is true, in groups too, and by every estimator; what exists is decided by the
    question without HAVING and LIMIT.
    """
    width, whole = len(query.groups), replace(query, having="", order=(), limit=None)
    rows = world.engine.execute(str(whole)).fetchall()
    answers = [answer]
    with suppress(PrivsqlError):
        answers.append(world.release.query(str(query), estimator="baseline"))
    for one in answers:
        for figure, shown in zip(one.figures, query.figures, strict=True):
            place = width + query.figures.index(shown)
            true: dict[Any, list[Any]] = {}
            for row in rows:
                true.setdefault(row[:width], []).append(row[place])
            counts = shown.text.startswith("COUNT(")
            if query.grouping in ("ROLLUP", "CUBE"):  # a group of NULL looks like a total
                true = {key: [*held, 0 if counts else None] for key, held in true.items()}
            found = list(wrong_claims(one, figure, true, width, counts=counts))
            assert not found, (one.estimator, found[:3])


# Questions that mean the same ---


def figures(world: World, sql: str) -> tuple[float | None, ...]:
    """Estimate, error and bounds of a single count."""
    (row,) = world.release.query(sql).rows
    return row[-4:]


def same_conditions(writer: Writer) -> Iterator[tuple[str, str, str]]:
    """Relations by name, each with two conditions that it makes equal."""
    condition = writer.condition(writer.columns)
    one, other = (writer.leaf(writer.columns) for _ in range(2))
    yield "reordered", f"({one}) AND ({condition})", f"({condition}) AND ({one})"
    yield "reordered", f"({one}) OR ({condition})", f"({condition}) OR ({one})"
    yield "De Morgan", f"NOT (({one}) OR ({other}))", f"NOT ({one}) AND NOT ({other})"
    yield "De Morgan", f"NOT (({one}) AND ({other}))", f"(NOT ({one})) OR (NOT ({other}))"
    yield "twice not", f"NOT (NOT ({condition}))", f"{condition}"
    if not any(column.kind == "set" for column in writer.columns):
        own = writer.dice.choice(writer.columns)
        low, high = (writer.dice.choice(own.values) for _ in range(2))
        yield "IN and OR", f"{own.name} IN ({low}, {high})", f"{own.name} = {low} OR {own.name} = {high}"
        yield "BETWEEN", f"{own.name} BETWEEN {low} AND {high}", f"{own.name} >= {low} AND {own.name} <= {high}"


def same_meaning(writer: Writer) -> Iterator[tuple[str, str, str]]:
    """Relations by name, each with two queries that it makes equal."""
    count, condition = f"SELECT COUNT(*) FROM {writer.table} WHERE", writer.condition(writer.columns)
    for name, one, other in same_conditions(writer):
        yield name, f"{count} {one}", f"{count} {other}"
    yield "alias", f"{count} {condition}", f"SELECT COUNT(*) AS x FROM {writer.table} AS y WHERE {condition}"
    if not any(column.kind == "set" for column in writer.columns):
        yield from _same_of_columns(writer, count, condition)


def _same_of_columns(writer: Writer, count: str, condition: Condition) -> Iterator[tuple[str, str, str]]:
    filtered = f"SELECT COUNT(*) FILTER (WHERE {condition}) AS x FROM {writer.table}"
    yield "FILTER and WHERE", f"{count} {condition}", filtered
    if any(column.name == "age" for column in writer.columns):
        band, ages = writer.dice.randrange(9), f"{writer.table}.age"
        joined = (
            f"SELECT COUNT(*) FROM {writer.table} JOIN bands ON {ages} = years WHERE band = {band} AND ({condition})"
        )
        yield "JOIN", f"{count} age // 7 = {band} AND age < 60 AND ({condition})", joined
        left = f"SELECT COUNT(*) FROM {writer.table} LEFT JOIN bands ON {ages} = years WHERE ({condition})"
        yield "LEFT JOIN", f"{count} age >= 60 AND ({condition})", f"{left} AND band IS NULL"
    nested = f"WITH c AS (SELECT COUNT(*) AS x FROM {writer.table} WHERE {condition}) SELECT x FROM c"
    yield "nested", f"{count} {condition}", nested


def add_up(world: World, writer: Writer) -> str:
    """Counts of those with each sensitive value, and of those who meet a condition on it or not, are all counts."""
    own, values = writer.own or writer.columns, [column for column in writer.columns if column.sensitive]
    where = f"FROM {writer.table} WHERE {writer.condition(own)}"
    condition = writer.condition(values, 1)
    counts = [f"COUNT(*) FILTER (WHERE {one})" for one in (condition, f"({condition}) IS NOT TRUE")]
    parts = f"SELECT {counts[0]} AS a, {counts[1]} AS b, COUNT(*) AS n {where}"
    answer = world.release.query(parts)
    estimates = dict(zip(answer.columns, answer.rows[0], strict=True))
    assert math.isclose(estimates["a"] + estimates["b"], estimates["n"], rel_tol=1e-6, abs_tol=1e-6), parts
    grouped = f"SELECT {values[0].name}, COUNT(*) {where} GROUP BY 1"
    total = sum(row[1] for row in world.release.query(grouped).rows)
    assert math.isclose(total, estimates["n"], rel_tol=1e-6, abs_tol=1e-6), grouped
    return grouped


# Failures ---


def failure(check: Callable[[Query], object], query: Query) -> str | None:
    """What goes wrong with a query; None where nothing does."""
    try:
        check(query)
    except PrivsqlError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrunk(check: Callable[[Query], object], query: Query) -> str:
    """The simplest query that fails, too, and how."""
    found, said = query, failure(check, query)
    smaller: Query | None = query
    while smaller is not None:
        shorter = (one for one in found.simpler() if len(str(one)) < len(str(found)))
        smaller = next((one for one in shorter if failure(check, one)), None)
        if smaller is not None:
            found, said = smaller, failure(check, smaller)
    return f"{found}\n{said}"


def asked(world: World, writer: Writer, number: int) -> Counter[str]:
    """So many queries; fails with the simplest of those that fail."""
    counted: Counter[str] = Counter()

    def check(query: Query) -> None:
        counted["answered" if answers_as_the_engine(world, query) else "refused"] += 1

    for _ in range(number):
        query = writer.query()
        if failure(check, query):
            raise AssertionError(f"{world.name}: {shrunk(check, query)}")
    return counted


def related(world: World, writer: Writer, number: int) -> None:
    """So many relations between two queries; fails where these differ in what they answer."""
    for _ in range(number):
        name, sql, other = writer.dice.choice(list(same_meaning(writer)))
        first, second = figures(world, sql), figures(world, other)
        assert all(map(near, first, second)), f"{name}: {sql}: {first}; {other}: {second}"


def near(one: float | None, other: float | None) -> bool:
    """Two figures of questions that mean the same."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)
