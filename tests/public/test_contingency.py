"""Contingency tables: budgets of tables, sums and choices add up to epsilon, and noise follows its law."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from public.made import NAME, Case, Made, Shelf
from public.steps import (
    assert_edits_noticed,
    assert_laplace,
    assert_near,
    assert_planned,
    assert_promises_kept,
    assert_repeated,
    assert_reported,
    assert_tree_spends,
    assert_verified,
    compare_answers,
    every,
    least_epsilon,
    read_budgets,
)
from public.surface import PYTHON, Asker, Bound, read_adversaries, read_bounds

if TYPE_CHECKING:
    from pathlib import Path

DOMAINS = {"sex": ["F", "M"], "region": ["north", "south", "east", "west"], "job": [0, 1, 2, 3, 4]}
EDGES = [0, 300, 600, 900, 1500]


def case(name: str, columns: list[str] | None = None, *, persons: bool = False, **mechanism: Any) -> Case:
    """Return a case of contingency tables of epsilon 1."""
    asked = {"kind": "contingency", "epsilon": "1", "domains": DOMAINS, **mechanism}
    source = {"person": "person", "persons": "some"} if persons else {}
    return Case(f"contingency-{name}", "survey", {"categories": columns or [*DOMAINS]}, asked, source)


MARGINALS = case("marginals")
WORKLOAD = case("workload", workload=[[*DOMAINS]])
DIFFPART = case("diffpart", algorithm="diffpart", fan_out=3)
GAUSSIAN = case("gaussian", delta="1e-6", noise="gaussian")
PERSONS = case("persons", max_records=2, persons=True)
MEASURES = case(
    "measures", ["sex", "income"], measures=["income"], workload=[["sex", "income"]],
    domains={"sex": ["F", "M"], "income": {"bins": EDGES}},
)  # fmt: skip
SQUARE = case("chosen", pairs="chosen")

TABLES = (MARGINALS, MEASURES, WORKLOAD, GAUSSIAN, PERSONS, SQUARE)
CASES = (*TABLES, DIFFPART)
QUICK = (MARGINALS.name, MEASURES.name, DIFFPART.name)


# Budgets and noise ----------------------------------------------------------------------------------------------------


@every(CASES, MARGINALS.name)
def test_verify_prints_the_budget_that_the_tables_spend(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    verified = PYTHON.verify(made.release)
    assert verified.code == 0, verified.facts
    bounds = list(read_bounds(verified).values())
    assert bounds[0] == Bound(Fraction(1), Fraction(1))
    if case is DIFFPART:
        assert_tree_spends(made, Fraction(1))
        return
    counts = read_budgets(made, "privsql_cliques")
    sums = [Fraction(budget) for (budget,) in made.rows("SELECT budget FROM privsql_sums")]
    spent = sum(one.spent for one in counts) + sum(sums)
    if case is GAUSSIAN:
        assert [one.found for one in bounds] == [1, Fraction(1, 10**6), spent]
        assert 1 - 1e-6 < least_epsilon(spent, 1e-6) < 1 + 1e-9
        assert all(one.scale == pytest.approx(1 / math.sqrt(2 * one.counting)) for one in counts)
        return
    assert spent == (Fraction(1, 2) if case is PERSONS else 1)  # each of a person's two records spends a half
    assert all(one.scale == pytest.approx(float(1 / one.counting)) for one in counts)
    if case is MEASURES:
        assert sum(sums) == Fraction(1, 5)


@every(TABLES, MARGINALS.name)
def test_tables_of_single_columns_have_every_cell_with_noise_of_its_scale(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    cells: dict[int, list[int]] = {}
    for clique, count in made.rows("SELECT clique, count FROM privsql_marginals ORDER BY clique, cell"):
        cells.setdefault(clique, []).append(count)
    noise: dict[float, list[float]] = {}
    domains = case.mechanism["domains"].items()
    sizes = {name: 2 + (len(EDGES) - 1 if isinstance(one, dict) else len(one)) for name, one in domains}
    for number, one in enumerate(read_budgets(made, "privsql_cliques")):
        assert len(cells[number]) == math.prod(sizes[column] for column in one.columns)
        if len(one.columns) < 2:
            noise.setdefault(one.scale, []).extend(
                found - true for found, true in zip(cells[number], true_cells(made, *one.columns), strict=True)
            )
    for scale, drawn in noise.items():
        if case is GAUSSIAN:
            assert max(map(abs, drawn)) <= 6 * scale
        elif case is not PERSONS:  # at most two records of a person: these all have two
            assert_laplace(drawn, scale)
    assert any(any(drawn) for drawn in noise.values())


def true_cells(made: Made, column: str | None = None) -> list[int]:
    """Return the true counts of a column's values in the order of its domain, then of all others, and of NULL."""
    if column is None:
        return [made.true_counts("sex").total()]
    domain = made.case.mechanism["domains"][column]
    if isinstance(domain, list):
        counts = {value: count for (value,), count in made.true_counts(column).items()}
        return [*(counts.pop(value, 0) for value in domain), sum(counts.values()), 0]
    lower = [sum(edge <= value for edge in EDGES[1:-1]) for (value,) in made.truth(f"SELECT {column} FROM {NAME}")]
    return [*(Counter(lower)[place] for place in range(len(EDGES) - 1)), 0, 0]


def test_sums_are_near(shelf: Shelf) -> None:
    made = shelf.get(MEASURES)
    with Asker(made.release) as asker:
        for asked in ("SUM(income)", "AVG(income)"):
            sql = f"SELECT sex, {asked} AS n FROM {NAME} WHERE sex IN ('F', 'M') GROUP BY sex"
            assert_near(compare_answers(asker, made, sql))


@every(CASES, *QUICK)
def test_counts_are_near(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    with Asker(made.release) as asker:
        assert_near(compare_answers(asker, made, f"SELECT COUNT(*) AS n FROM {NAME} WHERE sex = 'F'"))
        if case is MEASURES:
            assert_near(compare_answers(asker, made, f"SELECT COUNT(*) AS n FROM {NAME} WHERE income < 600"))
            return
        by_job = f"SELECT job, COUNT(*) AS n FROM {NAME} WHERE {{}} AND job IS NOT NULL GROUP BY job"
        assert_near(compare_answers(asker, made, by_job.format("sex = 'M'")))
        assert_near(compare_answers(asker, made, by_job.format("region IN ('north', 'west')")))


@every(CASES, *QUICK)
def test_the_number_of_records_is_not_published(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    assert [made.facts[name] for name in ("records", "published", "suppressed")] == [None, None, None]
    assert made.facts["estimated_records"] == pytest.approx(3000, abs=150)


def test_cells_of_diffpart_are_the_parts_of_its_tree_that_remain(shelf: Shelf) -> None:
    made = shelf.get(DIFFPART)
    columns = ", ".join(DOMAINS)
    true = made.true_counts(columns)
    cells = {
        tuple(row[:-2]): row[-2:]
        for row in made.rows(f"SELECT {columns}, count, scale FROM cells JOIN privsql_tree USING (part)")
    }
    frequent = [cell for cell, count in true.items() if count > 60]  # far above what any threshold prunes
    for scale in {cells[cell][1] for cell in frequent}:
        assert_laplace([cells[cell][0] - true[cell] for cell in frequent if cells[cell][1] == scale], scale)


def test_a_release_of_noise_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    spec = MARGINALS.spec(tmp_path)
    noisy = spec["mechanism"] | {"epsilon": "0.0005"}
    refused = PYTHON.publish(spec | {"mechanism": noisy}, seed=1)
    assert refused.code == 3
    assert "3000" not in refused.error.replace(",", "")
    assert not list(tmp_path.glob("*.duckdb"))


# Steps of the chain ---------------------------------------------------------------------------------------------------


@every(CASES, MARGINALS.name)
def test_plan_reads_no_count(shelf: Shelf, case: Case) -> None:
    assert_planned(shelf.get(case), "records", "published", "values")


@pytest.mark.slow
@every(CASES)
def test_the_source_agrees(shelf: Shelf, case: Case) -> None:
    assert_verified(shelf.get(case))


@pytest.mark.slow
@every(CASES)
def test_a_seed_repeats_a_release(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_repeated(shelf.get(case), tmp_path)


@pytest.mark.slow
@every((MARGINALS, DIFFPART))
def test_an_edited_release_is_refused(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    table = "cells" if case is DIFFPART else "privsql_marginals"
    more = (
        f"SELECT * REPLACE (CASE WHEN rowid = 0 THEN count + 500 ELSE count END AS count) FROM {table} ORDER BY rowid"
    )
    assert_edits_noticed(shelf.get(case), tmp_path, table, more, f"FROM {table} WHERE rowid <> 0 ORDER BY rowid")


@every(CASES, MARGINALS.name)
def test_membership_stays_at_epsilon(shelf: Shelf, case: Case) -> None:
    bound = math.e / (1 + math.e)
    if case is PERSONS:  # without its key, the source does not say which records were chosen
        attacked = PYTHON.attack(shelf.get(case).release)
        assert attacked.code == 0
    else:
        attacked = assert_promises_kept(shelf.get(case), "membership", bound=bound)
    assert case is GAUSSIAN or read_adversaries(attacked)["membership"].highest == pytest.approx(bound)


@pytest.mark.slow
@every(CASES)
def test_the_report_names_the_promise(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_reported(shelf.get(case), tmp_path / "page.html", "epsilon 1")
