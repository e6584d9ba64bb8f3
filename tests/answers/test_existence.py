"""Figures that are called exact or certain beside the source, by brute force over small random tables."""

from __future__ import annotations

import random
import re
from contextlib import closing
from typing import TYPE_CHECKING

import duckdb
import pytest

import privsql as api
from support.claims import is_within, wrong_claims
from support.commands import specification, succeeded, write
from support.loops import slow_but

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.answer import Answer

DOMAINS = """
[mechanism.domains]
age = { query = "SELECT i FROM range(2, 7) t(i)" }
sex = ["f", "m"]
job = ["a", "b", "c", "d"]"""
MECHANISMS = {
    "bucketize": 'threshold = "1/2"\nmin_bucket_size = 2',
    "fakes": 'threshold = "2/3"\nmin_bucket_size = 2\nfake_values = 1',
    "up": 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/5"\nrho2 = "3/5"',
    "permute": 'kind = "permute"\nk = 2\ne = 1',
    "marginals": 'kind = "contingency"\nalgorithm = "marginals"\nepsilon = 20\nallow_empty = true' + DOMAINS,
    "diffpart": 'kind = "contingency"\nalgorithm = "diffpart"\nepsilon = 20\nallow_empty = true' + DOMAINS,
}
FIGURES = [
    "COUNT(*)", "SUM(age)", "AVG(age)", "SUM(age - 4)", "AVG(pay)", "SUM(pay)", "AVG(age) * 2 + 1",
    "SUM(age) / COUNT(*)", "COUNT(pay)", "AVG(CASE WHEN {sensitive} THEN 1 ELSE 0 END)",
    "SUM(CASE WHEN {sensitive} THEN 2 ELSE 0 END)", "AVG(7)", "SUM(2)", "SUM(0)", "AVG(1)", "SUM(2 * 3)", "SUM(-1)",
    "COUNT(7)", "COUNT(NULL)", "SUM(NULL)", "AVG(NULL)", "SUM(1.5)", "AVG(age * 0 + 7)", "MIN(3)",
    "COALESCE(AVG(age), 0)", "COUNT(*) FILTER (WHERE {sensitive})", "MIN(sex)", "MAX(sex)",
]  # fmt: skip
OF_AMOUNTS = ["MIN(job)", "MAX(job)", "SUM(job)", "AVG(job)", "SUM(job) - 3"]
CONDITIONS = [
    "TRUE",
    "age = 4",
    "age = 9",
    "age < 4",
    "{sensitive}",
    "age = 4 AND {sensitive}",
    "sex = 'f' AND {sensitive}",
]
GROUPS = ["", "age", "sex", "age, sex", "job", "sex, job"]


def source(seed: int, *, numbers: bool) -> str:
    """A table of 24 records as SQL."""
    dice = random.Random(seed)  # noqa: S311
    rows = []
    for _ in range(24):
        job = dice.choice([1, 2, 3, 5, 8]) if numbers else f"'{dice.choice('abcd')}'"
        pay = dice.choice(["NULL", "12.50", "0.10", "7.05"])
        rows.append(f"({dice.randrange(2, 7)}, '{dice.choice('fm')}', CAST({pay} AS DECIMAL(6, 2)), {job})")
    return f"FROM (VALUES {', '.join(rows)}) AS t(age, sex, pay, job)"


World = tuple[str, api.Release, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module", params=slow_but(MECHANISMS, "bucketize", "permute"))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A release beside an engine that holds its source."""
    folder, kind = tmp_path_factory.mktemp("existence"), request.param
    write(folder / "people.parquet", source(7, numbers=kind == "permute"))
    roles = 'quasi_identifiers = ["age", "sex", "pay"]\nsensitive = "job"'
    if kind in ("marginals", "diffpart"):
        roles = 'categories = ["age", "sex", "job"]'
    asked = {"columns": roles, "mechanism": MECHANISMS[kind], "release": 'name = "t"\nto = "t.duckdb"'}
    succeeded("publish", specification(folder, **asked), "--seed", 1, "--set", "ledger.off=true")
    with closing(duckdb.connect()) as engine, api.open(folder / "t.duckdb") as release:
        engine.execute(f"CREATE VIEW t AS FROM '{folder / 'people.parquet'}'")
        yield kind, release, engine


def questions(dice: random.Random, kind: str, number: int) -> Iterator[tuple[str, list[str]]]:
    """SELECTs at random, and the figures that each asks for."""
    texts = ["job = 'a'", "job IN ('b', 'c')", "job <> 'a'", "job = 'none'"]
    sensitive = ["job = 3", "job > 2", "job IN (1, 8)"] if kind == "permute" else texts
    known = [*FIGURES, *(OF_AMOUNTS if kind == "permute" else [])]
    known = [one for one in known if kind not in ("marginals", "diffpart") or not re.search("age|pay", one)]
    for _ in range(number):
        by, where = dice.choice(GROUPS), dice.choice(CONDITIONS).format(sensitive=dice.choice(sensitive))
        figures = [one.format(sensitive=dice.choice(sensitive)) for one in dice.sample(known, 6)]
        shown = [by, *(f"{one} AS f{i}" for i, one in enumerate(figures))]
        sql = f"SELECT {', '.join(filter(None, shown))} FROM t WHERE {where}"
        yield f"{sql} GROUP BY {by}" if by else sql, figures


@pytest.mark.parametrize("number", [4, pytest.param(80, marks=pytest.mark.soak(part="cases"))])
def test_what_is_called_exact_or_certain_is_true(world: World, number: int) -> None:
    """Of many questions, by every estimator that takes them."""
    kind, release, engine = world
    dice, answered = random.Random(number), 0  # noqa: S311
    for sql, figures in questions(dice, kind, number):
        rows, width = engine.execute(sql).fetchall(), len(figures)
        true = [{row[:-width]: [row[i - width]] for row in rows} for i in range(width)]
        for estimator in ("best", "baseline"):
            try:
                answer = release.query(sql, estimator=estimator)
            except api.UsageError:
                continue
            for one, figure, truth in zip(answer.figures, figures, true, strict=True):
                at = answer.figures[0].at
                found = list(wrong_claims(answer, one, truth, at, counts=figure.startswith("COUNT")))
                assert not found, (kind, estimator, sql, figure, found)
                answered += 1
    assert answered > number


@pytest.mark.parametrize("figure", ["COUNT(NULL)", "COUNT(*) FILTER (WHERE FALSE)"])
def test_nothing_is_sure_of_a_group_that_only_an_interval_shows(world: World, figure: str) -> None:
    """0 is its count for certain, if it is there."""
    answer = world[1].query(f"SELECT job, COUNT(*) AS n, {figure} AS f FROM t GROUP BY job")
    count, nothing = answer.figures
    assert count.rests_on in ("exact", "certain") or nothing.rests_on not in ("exact", "certain")


@pytest.mark.parametrize(
    "condition",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("TRUE", "age < 5", "job = {one}")),
        "age = 4 AND job <> {one}",
    ],
)
def test_groups_of_the_baseline_add_up(world: World, condition: str) -> None:
    """To the answer without them, whatever they are; the columns come in the order of the question."""
    kind, release, _ = world
    where = condition.format(one="3" if kind == "permute" else "'a'")

    def ask(sql: str) -> Answer:
        return release.query(sql, estimator="baseline")

    (whole,) = ask(f"SELECT COUNT(*) FROM t WHERE {where}").rows
    for by in GROUPS[1:]:
        answer = ask(f"SELECT COUNT(*), {by} FROM t WHERE {where} GROUP BY {by}")
        assert answer.columns == ("estimate", "std_error", "low", "high", *by.split(", "))
        assert sum(row[0] for row in answer.rows) == pytest.approx(whole[0], abs=1e-6), by
        assert all(None in row[2:4] or is_within(row[0], row[2], row[3]) for row in answer.rows), by
