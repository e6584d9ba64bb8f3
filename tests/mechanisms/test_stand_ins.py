"""What a noisy tree says where no count of it is about the question: an estimate, and no interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from privsql.mechanisms.registry import of
from support import town as people
from support.commands import manifest, rows, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

TOLD = "whatever is asked of less than all records rests on stand-ins alone and has no interval"
FAINT = people.ASKED.format(epsilon=0.01)


def asked(release: Path, sql: str, *flags: str) -> dict[str, Any]:
    """An answer as JSON."""
    return succeeded("query", release, sql, *flags, "--json").json


@pytest.fixture(scope="module")
def faint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A contingency table without a single kept cell, and what its publication warned of."""
    folder = tmp_path_factory.mktemp("faint")
    write(folder / "people.parquet", people.PEOPLE)
    done = succeeded("publish", people.spec(folder, mechanism=FAINT), "--seed", 7, "--json")
    return folder / "people.duckdb", done.json["warnings"]


@pytest.mark.slow
@pytest.mark.slow
def test_nothing_kept_is_warned_of(faint: tuple[Path, list[str]], town: Path) -> None:
    """At publication, in words and in JSON; a release with cells says nothing of the kind."""
    release, warnings = faint
    assert manifest(release)["facts"]["cells"] == 0
    assert ["no cell was kept" in warning for warning in warnings] == [True]
    kept = succeeded("publish", people.spec(town), "--seed", 7, "--to", release.with_name("kept.duckdb"), "--json").json
    assert kept["warnings"] == []


@pytest.mark.slow
def test_where_nothing_was_kept_only_the_total_has_an_interval(faint: tuple[Path, list[str]]) -> None:
    """The number of all records was counted; everything else rests on stand-ins."""
    release, _ = faint
    whole = asked(release, "SELECT COUNT(*) FROM people")
    assert whole["rests_on"] == "interval"
    assert whole["rows"][0]["low"] <= whole["rows"][0]["estimate"] < whole["rows"][0]["high"]
    for sql in (
        "SELECT COUNT(*) FROM people WHERE sex = 'F'",
        "SELECT COUNT(*) FROM people WHERE job = 3 AND region = 'west'",
        "SELECT sex, COUNT(*) FROM people GROUP BY sex",
    ):
        found = asked(release, sql)
        assert found["rests_on"] == "point", sql
        assert all(row["std_error"] is row["low"] is row["high"] is None for row in found["rows"]), sql


@pytest.mark.slow
def test_a_count_of_no_cell_is_not_exactly_nothing(town: Path) -> None:
    """Of the combinations that no kept cell has many occur: "exact 0" was said of some, intervals of others."""
    listed = {row[:3] for row in rows(town / "people.duckdb", "SELECT sex, region, job FROM cells")}
    lost = [(s, r, j) for s in "FM" for r in ("north", "south", "east", "west") for j in range(11)]
    lost = [cell for cell in lost if cell not in listed]
    assert lost
    for sex, region, job in [*lost[:6], ("X", "west", 3)]:
        condition = f"sex = '{sex}' AND region = '{region}' AND job = {job}"
        found = asked(town / "people.duckdb", f"SELECT COUNT(*) FROM people WHERE {condition}")
        (row,) = found["rows"]
        assert (found["rests_on"], row["std_error"], row["low"], row["high"]) == ("point", None, None, None), condition
        said = succeeded("query", town / "people.duckdb", f"SELECT COUNT(*) FROM people WHERE {condition}").out
        assert "exact" not in said
        assert "an estimate without an interval" in said


@pytest.mark.parametrize("condition", ["TRUE", "list_contains(goods, 'ale')", "len(goods) > 2"])
def test_the_baseline_of_item_sets_has_no_interval(shop: Path, condition: str) -> None:
    """It adds up the counts that were kept, and does not know of what was pruned."""
    sql = f"SELECT COUNT(*) FROM shop WHERE {condition}"
    found = asked(shop / "shop.duckdb", sql, "--estimator", "baseline")
    (row,) = found["rows"]
    assert (found["rests_on"], row["std_error"], row["low"], row["high"]) == ("point", None, None, None)
    assert asked(shop / "shop.duckdb", sql)["rests_on"] == "interval"


def test_both_kinds_warn_in_their_own_words() -> None:
    """An item set is no cell."""
    assert [of("setvalued").warnings({"algorithm": "diffpart", "item_sets": number}) for number in (0, 1)] == [
        [f"no item set was kept: {TOLD}; a larger epsilon keeps more"],
        [],
    ]
