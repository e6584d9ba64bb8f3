"""DiffPart where little was kept: refusals, warnings, and answers without an interval where nothing was counted."""

from __future__ import annotations

import itertools
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.errors import InfeasibleError
from privsql.mechanisms.diffpart.parameters import CellTreeFacts, ItemSetTreeFacts
from privsql.mechanisms.diffpart.publish import require_remaining
from privsql.mechanisms.views.item_sets import WeightedSets
from support import shop as shop_
from support import town as people
from support.commands import manifest, refused, rows, run, succeeded, write
from support.loops import each

if TYPE_CHECKING:
    from pathlib import Path

SMALL = '"1/35"'
FAINT = people.ASKED.format(epsilon=0.01)


def asked(release: Path, sql: str, *flags: str) -> dict[str, Any]:
    """An answer as JSON."""
    return succeeded("query", release, sql, *flags, "--json").json


@pytest.fixture(scope="module")
def faint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A contingency table without a single kept cell, and what its publication warned of."""
    folder = tmp_path_factory.mktemp("faint")
    write(folder / "people.parquet", people.PEOPLE)
    done = succeeded(
        "publish", people.spec(folder, mechanism=FAINT), "--set", "mechanism.allow_empty=true", "--seed", 7, "--json"
    )
    return folder / "people.duckdb", done.json["warnings"]


@pytest.mark.soak(part="long")
def test_nothing_kept_is_warned_of(faint: tuple[Path, list[str]], town: Path) -> None:
    """At publication, in words and in JSON; a release with cells says nothing of the kind."""
    release, warnings = faint
    assert manifest(release)["facts"]["cells"] == 0
    assert ["no cell was kept" in warning for warning in warnings] == [True]
    kept = succeeded("publish", people.spec(town), "--seed", 7, "--to", release.with_name("kept.duckdb"), "--json").json
    assert kept["warnings"] == []


@pytest.mark.slow
def test_where_nothing_was_kept_nothing_has_an_interval(faint: tuple[Path, list[str]]) -> None:
    """A sum of no counts is 0, and nobody knows how far it is off."""
    release, _ = faint
    for sql in ("SELECT COUNT(*) FROM people", "SELECT COUNT(*) FROM people WHERE job = 3 AND region = 'west'"):
        found = asked(release, sql)
        assert found["rests_on"] == "point", sql
        assert [tuple(row.values()) for row in found["rows"]] == [(0, None, None, None)], sql
    assert asked(release, "SELECT sex, COUNT(*) FROM people GROUP BY sex")["rows"] == []


@pytest.mark.soak(part="long")
def test_a_count_of_no_cell_is_not_exactly_nothing(town: Path) -> None:
    """Of the combinations that no kept cell has many occur: "exact 0" was said of some, intervals of others."""
    listed = set(rows(town / "people.duckdb", "SELECT sex, region, job FROM cells"))
    lost = [(s, r, j) for s in "FM" for r in ("north", "south", "east", "west") for j in range(11)]
    lost = [cell for cell in lost if cell not in listed]
    assert lost
    for sex, region, job in [*lost[:6], ("X", "west", 3)]:
        condition = f"sex = '{sex}' AND region = '{region}' AND job = {job}"
        found = asked(town / "people.duckdb", f"SELECT COUNT(*) FROM people WHERE {condition}")
        (row,) = found["rows"]
        assert (found["rests_on"], row["std_error"], row["low"], row["high"]) == ("point", None, None, None), condition
        shown = succeeded("query", town / "people.duckdb", f"SELECT COUNT(*) FROM people WHERE {condition}").out
        assert "an estimate without an interval" in shown


def test_both_kinds_warn_in_their_own_words() -> None:
    """An item set is no cell."""
    none = ItemSetTreeFacts.model_construct(item_sets=0, estimated_records=0, kept_records=0)
    assert none.list_warnings() == ["no item set was kept: every count is 0; a larger epsilon keeps more"]
    facts = CellTreeFacts.model_construct(cells=3, estimated_records=100, kept_records=49)
    assert facts.list_warnings() == [
        "more was pruned (about 51 records) than kept (49): sums of counts are too small; a larger epsilon keeps more"
    ]
    assert facts.model_copy(update={"kept_records": 50}).list_warnings() == []


# Where too little was kept ---


SCATTERED = "SELECT [(i * 7919 + j * 104729) % 900 for j in range(1 + i % 3)] AS goods FROM range({n}) t(i)"
ANY = (
    'kind = "setvalued"\nalgorithm = "diffpart"\nepsilon = "1/2"\n'
    'universe = {{ query = "SELECT i FROM range(900) t(i)" }}\n{more}'
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Baskets that have nothing in common, published though nothing was kept of them."""
    folder = tmp_path_factory.mktemp("empty")
    write(folder / "shop.parquet", SCATTERED.format(n=400))
    done = succeeded("publish", scattered(folder), "--set", "mechanism.allow_empty=true", "--seed", 7, "--json").json
    assert (done["item_sets"], done["kept_records"], len(done["warnings"])) == (0, 0, 1)
    return folder


def scattered(folder: Path, more: str = "") -> Path:
    return shop_.spec(folder, mechanism=ANY.format(more=more))


@pytest.mark.slow
def test_a_plan_predicts_that_nothing_will_be_kept(empty: Path) -> None:
    """By thresholds and the number of records; nothing is drawn, and what the message names works."""
    refused(run("plan", scattered(empty)), 3, "hardly any item set", "900 items", "algorithm = 'views'", "Nothing was")
    assert succeeded("plan", scattered(empty), "--set", "mechanism.algorithm=views", "--json").json["items"] == 900
    needed = succeeded("plan", scattered(empty), "--set", "mechanism.epsilon=100", "--json").json["least_records"]
    assert needed <= 400


@pytest.mark.slow
def test_a_release_of_which_nothing_was_kept_is_refused(empty: Path) -> None:
    """Nothing is written; the publisher learns why, and what helps; the ledger counts what was drawn."""
    path = shop_.spec(empty, mechanism=ANY.format(more=""), release='name = "shop"\nto = "none.duckdb"')
    done = run("publish", path, "--seed", 8)
    refused(
        done,
        3,
        "no item set was kept",
        "larger epsilon",
        "fewer items",
        "mechanism.allow_empty = true",
        "is spent",
    )
    assert not (empty / "none.duckdb").exists()
    listed = succeeded("ledger", path, "--json").json
    assert (listed["spent"], [one["withdrawn"] for one in listed["releases"]]) == ("0.5", [True])


@pytest.mark.slow
def test_a_release_of_nothing_verifies_and_invents_nothing(empty: Path) -> None:
    """Its tree is a root without a budget: "index -1 is out of bounds" was said of it."""
    release = empty / "shop.duckdb"
    assert succeeded("verify", release, "--source", empty / "spec.toml", "--json").json["ok"]
    assert succeeded("query", release, "--itemsets", 20, "--json").json["itemsets"] == []
    assert asked(release, "SELECT COUNT(*) FROM shop WHERE list_contains(goods, 7)")["rests_on"] == "point"
    assert run("attack", release).code == 3  # there is no leaf whose records could be told


@each(
    ("kept", "total", "leaves", "right"), [(50, 100, 3, True), (49, 100, 3, False), (0, -9, 0, False), (9, 6, 1, True)]
)
def test_what_was_pruned_may_not_outweigh_what_was_kept(kept: int, total: int, leaves: int, right: bool) -> None:
    made: Any = SimpleNamespace(published_records=kept, counted_records=total, leaves=np.arange(leaves))
    asks = SimpleNamespace(allow_empty=False, epsilon=Fraction(1, 3))
    if right:
        require_remaining(made, asks, "cell", "coarser domains")
    else:
        with pytest.raises(InfeasibleError, match="coarser domains") as refusal:
            require_remaining(made, asks, "cell", "coarser domains")
        assert refusal.value.details["kept"] == leaves
    asks.allow_empty = True
    require_remaining(made, asks, "cell", "coarser domains")


@pytest.mark.slow
def test_a_table_that_lost_more_than_it_kept_is_refused_and_warned_of(tmp_path: Path) -> None:
    """Few of the cells are frequent enough to be kept at this epsilon; ranges of the others would be the model's."""
    write(tmp_path / "people.parquet", people.PEOPLE)
    spec = people.spec(tmp_path, mechanism=people.ASKED.format(epsilon=SMALL))
    refused(run("publish", spec, "--seed", 7), 3, "that were kept hold less than half", "coarser domains")
    done = succeeded("publish", spec, "--seed", 7, "--set", "mechanism.allow_empty=true", "--json").json
    assert 0 < done["kept_records"] < done["estimated_records"] / 2
    assert [warning.split(" (")[0] for warning in done["warnings"]] == ["more was pruned"]
    release = tmp_path / "people.duckdb"
    assert succeeded("verify", release, "--source", spec, "--json").json["ok"]  # the flag is no part of the request


records = st.lists(st.sets(st.integers(0, 4), max_size=4), min_size=1, max_size=12)


@given(records)
@settings(max_examples=60)
def test_frequent_item_sets_are_those_of_the_sets(sets: list[set[int]]) -> None:
    """Beside all item sets of all records by brute force, each record weighing 5."""
    lists = [sorted(one) for one in sets]
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    codes = np.array([code for one in lists for code in one], dtype=np.int64)
    found = dict(WeightedSets(starts, codes, np.full(len(lists), 5.0), 5).top_sets(100))
    expected = {}
    for size in range(1, 5):
        for chosen in itertools.combinations(range(5), size):
            held = sum(set(chosen) <= one for one in sets)
            if held:
                expected[chosen] = 5 * held
    assert found == expected
