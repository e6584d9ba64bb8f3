"""Who guesses values from a (k,e)-anonymous release: against brute force, on made groups, and on damaged releases."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsql.mechanisms.permute.attacks import farthest_within, fullest_windows
from privsql.mechanisms.permute.tables import Contents
from support.commands import refused, run, specification, succeeded, write
from support.tampering import rewrite

if TYPE_CHECKING:
    from pathlib import Path

PAY = "SELECT 20 + i % 30 AS age, 1000 + (i * 37 % 100) * 10 AS pay FROM range(300) t(i)"
MECHANISM = 'kind = "permute"\nk = 4\ne = 150'


@given(st.lists(st.integers(-50, 50), min_size=1, unique=True), st.integers(0, 60))
def test_reached_is_what_it_says(values: list[int], width: int) -> None:
    units = sorted(values)
    expected = [max(j for j, high in enumerate(units) if high - low <= width) for low in units]
    assert farthest_within(units, width) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1, max_size=40), st.integers(0, 5))
def test_the_best_window_of_every_group(records: list[tuple[int, int]], width: int) -> None:
    """Values are 0..6; group g's best window of values holds as many records as any."""
    counted = sorted(Counter(records).items())
    group, code, number = (
        np.array(column, dtype=np.int64) for column in zip(*((g, x, count) for (g, x), count in counted), strict=True)
    )
    held = Contents(group, code, number, int(group.max()) + 1, 7)
    found = fullest_windows(held, farthest_within(list(range(7)), width))
    for g in range(held.groups):
        inside = [max((sum(low <= x <= low + width for h, x in records if h == g) for low in range(7)), default=0)]
        assert found[g] == inside[0]


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paid")
    write(folder / "pay.parquet", PAY)
    columns = 'quasi_identifiers = ["age"]\nsensitive = "pay"'
    made = specification(folder, source='file = "pay.parquet"', columns=columns, mechanism=MECHANISM)
    succeeded("publish", made)
    return folder


def found(release: Path, *more: object) -> dict[str, dict[str, object]]:
    done = run("attack", release, "--json", *more)
    return {one["adversary"]: one for one in done.json["adversaries"]}


def release_in(folder: Path) -> Path:
    return next(folder.glob("*.duckdb"))


@pytest.mark.slow
def test_guesses_are_those_of_the_tables(paid: Path) -> None:
    release = release_in(paid)
    with duckdb.connect(str(release), read_only=True) as db:
        listed = db.execute("SELECT bid, pay, count FROM st").fetchall()
    groups: dict[int, Counter[int]] = {}
    for bid, pay, count in listed:
        groups.setdefault(bid, Counter())[pay] += count
    sizes = {bid: sum(held.values()) for bid, held in groups.items()}
    exact = Fraction(sum(max(held.values()) for held in groups.values()), 300)
    attacked = found(release)
    assert attacked["best exact guess"]["mean"] == pytest.approx(float(exact))
    assert attacked["best exact guess"]["attacked"] == 300
    for distance in (150, 20, 0):
        near = {
            bid: max(sum(n for x, n in held.items() if abs(2 * x - low - high) <= 2 * distance)
                     for low in held for high in held)
            for bid, held in groups.items()
        }  # fmt: skip
        measured = found(release, "--within", distance)[f"guess within a distance of {distance}"]
        assert measured["mean"] == pytest.approx(sum(near.values()) / 300)
        assert measured["highest"] == pytest.approx(max(near[bid] / sizes[bid] for bid in groups))
    assert attacked["guess within a distance of 150"]["promised"] is False


@pytest.mark.slow
def test_the_promise_is_measured_and_found_broken(paid: Path, tmp_path: Path) -> None:
    release = tmp_path / "broken.duckdb"
    release.write_bytes(release_in(paid).read_bytes())
    whole = run("attack", release)
    assert (whole.code, "every promise holds (3 promised, 3 measured, 3 kept)" in whole.out) == (0, True)
    with duckdb.connect(str(release)) as db:
        ((groups,),) = db.execute("SELECT count(DISTINCT bid) FROM st").fetchall()
        db.execute(
            "UPDATE privsql_manifest SET value = replace(value, '\"k\": 4', '\"k\": 99') WHERE key = 'parameters'"
        )
    rewrite(release)
    broken = run("attack", release)
    assert broken.code == 1
    assert "A PROMISE IS BROKEN (3 promised, 3 measured, 2 kept)" in broken.out
    notes = found(release)["groups with few or near values"]["notes"]
    assert notes == [f"{groups} groups are not (k,e)-anonymous"]


@pytest.mark.slow
def test_tables_that_do_not_agree_are_not_attacked(paid: Path, tmp_path: Path) -> None:
    release = tmp_path / "damaged.duckdb"
    release.write_bytes(release_in(paid).read_bytes())
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE st SET pay = (SELECT min(pay) FROM st WHERE bid = 0) WHERE bid = 0")
    refused(run("attack", release), 1, "do not agree", "verify")


@pytest.mark.slow
def test_a_distance_that_is_none_is_refused(paid: Path) -> None:
    refused(run("attack", release_in(paid), "--within", "far"), 2, "within", "'far'")
    refused(run("attack", release_in(paid), "--within", "3 days"), 2, "days")


@pytest.mark.slow
def test_with_the_source_guesses_are_compared_with_the_truth(paid: Path) -> None:
    attacked = found(release_in(paid), "--source", next(paid.glob("*.toml")))
    assert attacked["best exact guess"]["right"] == pytest.approx(attacked["best exact guess"]["mean"], abs=0.1)
