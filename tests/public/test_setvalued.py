"""Item sets: budgets add up to epsilon, noise follows its law, and no exact number of records leaves."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from public.made import NAME, Case, Made, Shelf, read_tables
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

GOODS = ["ale", "bread", "cheese", "dates", "figs", "gin"]


def case(name: str, *, universe: list[str] = GOODS, epsilon: str = "1", **mechanism: Any) -> Case:
    """Return a case of item sets."""
    asked = {"kind": "setvalued", "universe": universe, "epsilon": epsilon, **mechanism}
    return Case(f"setvalued-{name}", "baskets", {"items": "goods"}, asked)


VIEWS = case("views", algorithm="views")
BASIC = case("basic", algorithm="basic")
DIFFPART = case("diffpart", algorithm="diffpart", fan_out=3)
GAUSSIAN = case("gaussian", algorithm="views", delta="1e-6")
WORKLOAD = case(
    "workload", universe=[*GOODS, *(f"rare{n}" for n in range(4))], algorithm="views", workload=[["ale", "figs", "gin"]]
)
CHOSEN = case("chosen", universe=[*GOODS, *(f"rare{n}" for n in range(18))], epsilon="4", algorithm="views")

NOISY = (VIEWS, BASIC, GAUSSIAN, WORKLOAD, CHOSEN)
CASES = (*NOISY, DIFFPART)
QUICK = (VIEWS.name, DIFFPART.name)


@every(CASES, *QUICK)
def test_verify_prints_the_budget_that_the_tables_spend(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    verified = PYTHON.verify(made.release)
    assert verified.code == 0, verified.facts
    epsilon = Fraction(case.mechanism["epsilon"])
    bounds = list(read_bounds(verified).values())
    assert bounds[0] == Bound(epsilon, epsilon)
    if case is DIFFPART:
        assert_tree_spends(made, epsilon)
        return
    budgets = read_budgets(made, "privsql_cliques")
    facts = made.facts
    spent = sum(one.spent for one in budgets) + Fraction(facts["items_budget"])
    assert facts["items_scale"] == pytest.approx(facts["cap"] / float(Fraction(facts["items_budget"]) or 1))
    assert (facts["cap"] > 0) == (case is CHOSEN)
    if case is GAUSSIAN:
        assert [one.found for one in bounds] == [epsilon, Fraction(1, 10**6), spent]
        assert 1 - 1e-6 < least_epsilon(spent, 1e-6) < 1 + 1e-9
        assert all(one.scale == pytest.approx(1 / math.sqrt(2 * one.counting)) for one in budgets)
    else:
        assert spent == epsilon
        assert all(one.scale == pytest.approx(float(1 / one.counting)) for one in budgets)


@every(NOISY, VIEWS.name)
def test_every_cell_of_every_table_is_published_with_noise_of_its_scale(shelf: Shelf, case: Case) -> None:
    assert_cells(shelf.get(case))


def test_noise_without_a_seed_is_fresh_and_follows_the_same_law(shelf: Shelf, tmp_path: Path) -> None:
    spec = VIEWS.spec(tmp_path)
    done = PYTHON.publish(spec)
    assert done.code == 0, done.facts
    drawn = Made(VIEWS, spec, tmp_path / f"{VIEWS.name}.duckdb", done.facts)
    assert_cells(drawn)
    counts = "SELECT count FROM privsql_marginals ORDER BY clique, cell"
    assert drawn.rows(counts) != shelf.get(VIEWS).rows(counts)  # the same by chance once in 10^17


def assert_cells(made: Made) -> None:
    """Check that every pattern of the items of every table has a count, with noise of the stated scale."""
    cells: dict[int, dict[int, int]] = {}
    for clique, cell, count in made.rows("SELECT clique, cell, count FROM privsql_marginals"):
        cells.setdefault(clique, {})[cell] = count
    baskets = [frozenset(goods) for (goods,) in made.truth(f"SELECT goods FROM {NAME}")]
    for number, budget in enumerate(read_budgets(made, "privsql_cliques")):
        if budget.columns == ("length of the record",):
            lengths = Counter(map(len, baskets))  # of all but the longest classes
            noise = [cells[number][size] - lengths[size] for size in range(17)]
            assert_laplace(noise, budget.scale)
            continue
        true = Counter(tuple(item in basket for item in budget.columns) for basket in baskets)
        patterns = itertools.product((False, True), repeat=len(budget.columns))
        expected = {sum(held << place for place, held in enumerate(reversed(held))): true[held] for held in patterns}
        assert cells[number].keys() == expected.keys()
        noise = [cells[number][cell] - count for cell, count in expected.items()]
        if made.case is GAUSSIAN:  # farther off than 6 standard deviations is a false alarm below 1e-6 for all cells
            assert max(map(abs, noise)) <= 6 * budget.scale + 1
            assert any(noise)
        else:
            assert_laplace(noise, budget.scale)


def test_every_item_of_a_large_universe_is_counted_with_noise_of_its_scale(shelf: Shelf) -> None:
    made = shelf.get(CHOSEN)
    facts = made.facts
    baskets = [frozenset(goods) for (goods,) in made.truth(f"SELECT goods FROM {NAME}")]
    short = Counter(item for basket in baskets if len(basket) <= facts["cap"] for item in basket)
    long = Counter(item for basket in baskets if len(basket) > facts["cap"] for item in basket)
    found = made.rows("SELECT item, whole, cut FROM privsql_items JOIN privsql_universe USING (code)")
    assert len(found) == facts["items"]
    assert_laplace([whole - short[item] for item, whole, _ in found], facts["items_scale"])
    noise = 40 * facts["items_scale"]
    assert all(-noise <= cut <= long[item] + noise for item, _, cut in found)


def test_parts_of_diffpart_are_counted_with_noise_of_their_scale(shelf: Shelf) -> None:
    made = shelf.get(DIFFPART)
    true = Counter(frozenset(goods) for (goods,) in made.truth(f"SELECT goods FROM {NAME}"))
    leaves = {
        frozenset(goods): (count, scale)
        for goods, count, scale in made.rows("SELECT goods, count, scale FROM itemsets JOIN privsql_tree USING (part)")
    }
    frequent = [items for items, count in true.items() if count > 60]  # far above what any threshold prunes
    for scale in {leaves[items][1] for items in frequent}:
        assert_laplace([leaves[items][0] - true[items] for items in frequent if leaves[items][1] == scale], scale)
    assert frozenset() in leaves


@every(CASES, *QUICK)
def test_counts_are_near(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    with Asker(made.release) as asker:
        for condition in (
            "list_contains(goods, 'ale')",
            "list_has_all(goods, ['ale', 'bread'])",
            "list_has_any(goods, ['cheese', 'dates']) AND NOT list_contains(goods, 'ale')",
        ):
            assert_near(compare_answers(asker, made, f"SELECT COUNT(*) AS n FROM {NAME} WHERE {condition}"))


@every(CASES, *QUICK)
def test_the_number_of_records_is_not_published(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    assert [made.facts[name] for name in ("records", "published", "suppressed")] == [None, None, None]
    assert made.facts["estimated_records"] == pytest.approx(2000, abs=200)


def test_an_item_outside_the_universe_and_an_empty_basket_are_no_reason_to_refuse(shelf: Shelf, tmp_path: Path) -> None:
    spec = VIEWS.spec(tmp_path)
    spec["mechanism"] = spec["mechanism"] | {"universe": ["ale", "bread"]}
    done = PYTHON.publish(spec, seed=1)
    assert done.code == 0, done.facts
    assert [row for row in read_tables(tmp_path / f"{VIEWS.name}.duckdb")["privsql_universe"]] == [
        "(0, 'ale')",
        "(1, 'bread')",
    ]


# Steps of the chain ---------------------------------------------------------------------------------------------------


@every(CASES, VIEWS.name)
def test_plan_reads_no_count(shelf: Shelf, case: Case) -> None:
    assert_planned(shelf.get(case), "records", "published", "items")


@pytest.mark.slow
@every(CASES)
def test_the_source_agrees(shelf: Shelf, case: Case) -> None:
    assert_verified(shelf.get(case))


@pytest.mark.slow
@every(CASES)
def test_a_seed_repeats_a_release(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_repeated(shelf.get(case), tmp_path)


@pytest.mark.slow
@every((VIEWS, BASIC, DIFFPART))
def test_an_edited_release_is_refused(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    table = "itemsets" if case is DIFFPART else "privsql_marginals"
    more = f"SELECT * REPLACE (CASE WHEN rowid = 0 THEN count + 50 ELSE count END AS count) FROM {table} ORDER BY rowid"
    assert_edits_noticed(shelf.get(case), tmp_path, table, more, f"FROM {table} WHERE rowid <> 0 ORDER BY rowid")


@every(CASES, DIFFPART.name)
def test_membership_stays_at_epsilon(shelf: Shelf, case: Case) -> None:
    odds = math.exp(float(case.mechanism["epsilon"]))
    attacked = assert_promises_kept(shelf.get(case), "membership", bound=odds / (1 + odds))
    if case is not GAUSSIAN:
        assert read_adversaries(attacked)["membership"].highest == pytest.approx(odds / (1 + odds))


@pytest.mark.slow
@every(CASES)
def test_the_report_names_the_promise(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_reported(shelf.get(case), tmp_path / "page.html", f"epsilon {case.mechanism['epsilon']}")
