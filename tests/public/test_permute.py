"""(k,e)-anonymous releases: values and ranges of every group, alone and over all releases of a growing table."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from public.made import NAME, Case, Shelf, ask_release
from public.steps import (
    assert_edits_noticed,
    assert_exact,
    assert_planned,
    assert_promises_kept,
    assert_repeated,
    assert_reported,
    assert_verified,
    compare_answers,
    every,
)
from public.surface import PYTHON, Asker, Bound, Outcome, read_bounds, read_failed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

COLUMNS = {"quasi_identifiers": ["age", "sex", "district"], "sensitive": "pay"}
K, E = 4, 120
ALGORITHMS = ("nested", "exact", "reapply-last", "reapply-all")
CASES = tuple(
    Case(f"permute-{name}", "staff", COLUMNS, {"kind": "permute", "algorithm": name, "k": K, "e": E})
    for name in ALGORITHMS
)
NESTED = CASES[0]
CELLS = Case(
    "permute-cells",
    "staff",
    COLUMNS | {"quasi_identifiers": ["sex", "district"]},
    {"kind": "permute", "algorithm": "cells", "k": K, "e": E},
)
MIXED_CELLS = Case("permute-mixed-cells", "staff", COLUMNS, {"kind": "permute", "algorithm": "cells", "k": K, "e": E})


def fine(values: Iterable[int], k: int, e: int) -> bool:
    """Return whether there are at least k different values over a range of at least e."""
    different = set(values)
    return len(different) >= k and max(different) - min(different) >= e


# One release ----------------------------------------------------------------------------------------------------------


@every((*CASES, CELLS), NESTED.name)
def test_the_bounds_that_verify_prints_are_those_of_the_groups(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    verified = PYTHON.verify(made.release)
    assert verified.code == 0, verified.facts
    groups = made.rows("SELECT count(DISTINCT pay), max(pay) - min(pay) FROM st GROUP BY bid")
    values, widths = zip(*groups, strict=True)
    assert list(read_bounds(verified).values()) == [
        Bound(Fraction(K), Fraction(min(values)), least=True),
        Bound(Fraction(E), Fraction(min(widths)), least=True),
    ]
    assert min(values) >= K
    assert min(widths) >= E
    assert made.facts["groups"] == len(groups)
    assert made.facts["loss"] == sum(widths)


@every(CASES, NESTED.name)
def test_no_grouping_has_a_smaller_error(shelf: Shelf, case: Case) -> None:
    values = sorted(value for (value,) in shelf.get(case).true_counts("pay"))
    least = [0.0]  # of the first so many different values, in groups of neighbours
    for end in range(1, len(values) + 1):
        starts = (start for start in range(end) if fine(values[start:end], K, E))
        least.append(min((least[start] + values[end - 1] - values[start] for start in starts), default=float("inf")))
    assert shelf.get(case).facts["loss"] == least[-1]


@every((*CASES, CELLS), NESTED.name)
def test_the_tables_hold_every_record_and_every_value(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    assert made.counted("qit", case.quasi_identifiers) == made.true_counts(case.quasi_identifiers)
    assert dict(made.rows("SELECT pay, CAST(sum(count) AS BIGINT) FROM st GROUP BY pay")) == {
        value: count for (value,), count in made.true_counts("pay").items()
    }
    shuffled = made.rows("SELECT bid, pay, count(*) FROM qit JOIN privsql_values USING (code) GROUP BY ALL")
    assert Counter(shuffled) == Counter(made.rows("SELECT bid, pay, count FROM st"))
    assert made.rows(f"SELECT sum(weight) FROM {NAME}_weighted") == [(400,)]


def test_sums_have_the_lowest_and_highest_answers_that_the_groups_allow(shelf: Shelf) -> None:
    made = shelf.get(NESTED)
    values = defaultdict(list)
    for group, value, count in made.rows("SELECT bid, pay, count FROM st ORDER BY pay"):
        values[group] += [value] * count
    met = made.rows("SELECT bid, CAST(count(*) AS BIGINT) FROM qit WHERE district = 2 AND age < 40 GROUP BY bid")
    low = sum(sum(values[group][:count]) for group, count in met)
    high = sum(sum(values[group][-count:]) for group, count in met)
    condition = "WHERE district = 2 AND age < 40"
    (truth,) = made.truth(f"SELECT sum(pay), avg(pay), min(pay), max(pay) FROM {NAME} {condition}")
    with Asker(made.release) as asker:
        asked = "SUM(pay) AS total, AVG(pay) AS mean, MIN(pay) AS least, MAX(pay) AS most"
        answer = asker.ask(f"SELECT {asked} FROM {NAME} {condition}")
    (row,) = answer.rows
    assert answer.rests_on == "certain"
    figures = [answer.figure(row, name) for name in ("total", "mean", "least", "most")]
    assert (figures[0].low, figures[0].high) == (low, high)
    assert (figures[1].low, figures[1].high) == pytest.approx((low / 40, high / 40))
    assert all(figure.low <= value <= figure.high for figure, value in zip(figures, truth, strict=True))


@every(CASES, NESTED.name)
def test_counts_have_the_lowest_and_highest_answers_that_the_groups_allow(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    by_district = f"SELECT district, COUNT(*) AS n FROM {NAME} WHERE {{}} GROUP BY district"
    met = Counter(made.rows("SELECT district, bid FROM qit WHERE age < 45"))
    listed = {
        group: (size, inside)
        for group, size, inside in made.rows(
            "SELECT bid, CAST(sum(count) AS BIGINT), "
            "CAST(coalesce(sum(count) FILTER (pay BETWEEN 1505 AND 2203), 0) AS BIGINT) FROM st GROUP BY bid"
        )
    }
    expected: dict[int, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 3)
    for (district, group), records in met.items():
        size, inside = listed[group]
        ends = Fraction(records * inside, size), max(0, records + inside - size), min(records, inside)
        expected[district] = [total + end for total, end in zip(expected[district], ends, strict=True)]
    with Asker(made.release) as asker:
        answer = asker.ask(by_district.format("age < 45 AND pay BETWEEN 1505 AND 2203"))
        truth = dict(made.truth(by_district.format("age < 45 AND pay BETWEEN 1505 AND 2203")))
        assert_exact(compare_answers(asker, made, by_district.format("age < 35 AND sex = 'F'")))
        assert_exact(compare_answers(asker, made, f"SELECT COUNT(*) AS n FROM {NAME} WHERE pay < 1500"))
    assert answer.rests_on == "certain"
    figures = {row["district"]: answer.figure(row, "n") for row in answer.rows}
    assert {name: [one.estimate, one.low, one.high] for name, one in figures.items()} == {
        name: pytest.approx([float(end) for end in ends]) for name, ends in expected.items()
    }
    assert all(one.std_error is None and one.low <= truth[name] <= one.high for name, one in figures.items())


# Cells ----------------------------------------------------------------------------------------------------------------


def test_totals_of_cells_are_exact(shelf: Shelf) -> None:
    made = shelf.get(CELLS)
    cells = made.rows("SELECT sex, district, count(DISTINCT bid), min(bid) FROM qit GROUP BY ALL")
    assert all(number == 1 for _, _, number, _ in cells)
    sizes = dict(made.rows("SELECT bid, CAST(sum(count) AS BIGINT) FROM st GROUP BY bid"))
    assert min(sizes.values()) >= 4 * K
    alone = [(sex, district) for sex, district, _, cell in cells if [one[3] for one in cells].count(cell) == 1]
    assert len(alone) > 5
    by = f"SELECT sex, district, SUM(pay) AS total, AVG(pay) AS mean FROM {NAME} GROUP BY sex, district"
    truth = {(sex, district): figures for sex, district, *figures in made.truth(by)}
    with Asker(made.release) as asker:
        answer = asker.ask(by)
    for row in answer.rows:
        key = row["sex"], row["district"]
        figures = [answer.figure(row, name) for name in ("total", "mean")]
        assert all(one.low - 1e-9 <= value <= one.high + 1e-9 for one, value in zip(figures, truth[key], strict=True))
        if key in alone:
            assert [one.estimate for one in figures] == pytest.approx(truth[key])
            assert all(one.std_error == 0 for one in figures)


def test_cells_that_are_not_anonymous_are_refused_and_groups_of_values_work(tmp_path: Path) -> None:
    duckdb.execute(
        "COPY (SELECT CASE WHEN i < 40 THEN 7 ELSE i END AS pay, i < 40 AS old FROM range(200) t(i)) "
        f"TO '{tmp_path / 'staff.parquet'}'"
    )
    spec = {
        "source": {"file": str(tmp_path / "staff.parquet")},
        "columns": {"quasi_identifiers": ["old"], "sensitive": "pay"},
        "mechanism": {"kind": "permute", "algorithm": "cells", "k": 3, "e": 10},
        "release": {"name": NAME, "to": str(tmp_path / "staff.duckdb")},
        "ledger": {"off": True},
    }
    done = PYTHON.publish(spec, seed=1)
    assert refused(done) == 3
    assert "1 of 2 cells have fewer than 3 values or a range below 10" in str(done.error)
    portable = spec | {
        "mechanism": spec["mechanism"] | {"k": 1, "e": 0},
        "release": spec["release"] | {"order": "portable"},
    }
    assert "does not support release.order" in str(PYTHON.publish(portable, seed=1).error)
    assert PYTHON.publish(spec | {"mechanism": spec["mechanism"] | {"algorithm": "nested"}}, seed=1).code == 0


def test_cells_take_columns_of_every_type(tmp_path: Path) -> None:
    duckdb.execute(
        "COPY (SELECT i * 7 % 501 AS pay, i % 2 = 0 AS part_time, DATE '2020-01-01' + CAST(i % 5 AS INTEGER) AS since, "
        "nullif('t' || i % 3, 't1') AS team, CAST(i % 4 / 3 AS DECIMAL(8, 2)) AS share, i % 6 / 7 AS real "
        f"FROM range(400) t(i)) TO '{tmp_path / 'staff.parquet'}'"
    )
    spec = {
        "source": {"file": str(tmp_path / "staff.parquet")},
        "columns": {"quasi_identifiers": ["part_time", "since", "team", "share", "real"], "sensitive": "pay"},
        "mechanism": {"kind": "permute", "algorithm": "cells", "k": 3, "e": 10},
        "release": {"name": NAME, "to": str(tmp_path / "staff.duckdb")},
        "ledger": {"off": True},
    }
    done = PYTHON.publish(spec, seed=1)
    assert done.code == 0, done.error
    assert PYTHON.verify(tmp_path / "staff.duckdb", source=spec).code == 0
    cells = ask_release(tmp_path / "staff.duckdb", "SELECT CAST(count(*) AS BIGINT) FROM qit GROUP BY bid")
    assert len(cells) > 10
    assert min(size for (size,) in cells) >= 12


def test_cells_of_a_table_that_was_released_are_refused(tmp_path: Path) -> None:
    grown = grow(tmp_path, "nested", 1)
    again = grown.spec | {
        "mechanism": {"kind": "permute", "algorithm": "cells", "k": GROWN_K, "e": GROWN_E},
        "release": {"name": NAME, "to": str(tmp_path / "cells.duckdb")},
    }
    assert refused(PYTHON.publish(again, seed=1)) == 1


# Growing tables -------------------------------------------------------------------------------------------------------

# The thesis' example: id, age, salary in thousands; three batches
BATCHES = (
    ((1, 21, 82), (2, 23, 84), (3, 52, 85), (4, 27, 88), (5, 53, 89), (6, 37, 90), (7, 49, 91)),
    ((8, 29, 81), (9, 30, 80), (10, 24, 83)),
    ((11, 40, 96), (12, 50, 95), (13, 32, 94)),
)
SALARY = {age: salary for batch in BATCHES for _, age, salary in batch}
GROWN_K, GROWN_E = 3, 2


@dataclass(frozen=True)
class Grown:
    """The releases of a growing table, and what ``publish`` printed of each."""

    spec: dict[str, Any]
    releases: list[Path]
    facts: list[dict[str, Any]]

    def groups(self, number: int) -> dict[int, set[int]]:
        """Return the ages of every group of a release, which tell records apart here."""
        found = defaultdict(set)
        for group, age in ask_release(self.releases[number], "SELECT bid, age FROM qit"):
            found[group].add(age)
        return found

    def breaches(self, earlier: int, later: int) -> list[set[int]]:
        """Return what two groups tell together that is neither empty nor (k,e)-anonymous (Definition 5)."""
        pairs = itertools.product(self.groups(earlier).values(), self.groups(later).values())
        told = [part for a, b in pairs for part in (a - b, b - a, a & b) if part]
        return [part for part in told if not fine((SALARY[age] for age in part), GROWN_K, GROWN_E)]

    def atoms(self) -> list[list[int]]:
        """Return the ages that no Boolean combination of groups of all releases tells apart."""
        found = defaultdict(list)
        places = [{age: group for group, ages in self.groups(number).items() for age in ages} for number in range(3)]
        for age in SALARY:
            found[tuple(groups.get(age) for groups in places)].append(age)
        return list(found.values())


def grow(folder: Path, algorithm: str, batches: int = 3) -> Grown:
    """Publish the table each time it has grown, in a ledger of its own."""
    rows: list[tuple[int, int, int]] = []
    releases, facts = [], []
    for number, batch in enumerate(BATCHES[:batches]):
        rows += batch
        release = folder / f"{number}.duckdb"
        duckdb.execute(
            f"COPY (FROM (VALUES {', '.join(map(str, rows))}) t(id, age, salary)) TO '{folder / 'grown.parquet'}'"
        )
        spec = {
            "source": {"file": str(folder / "grown.parquet"), "id": "id"},
            "columns": {"quasi_identifiers": ["age"], "sensitive": "salary"},
            "mechanism": {"kind": "permute", "algorithm": algorithm, "k": GROWN_K, "e": GROWN_E},
            "release": {"name": NAME, "to": str(release)},
            "ledger": {"database": str(folder / "ledger.duckdb")},
        }
        done = PYTHON.publish(spec, seed=number)
        assert done.code == 0, done.facts
        releases.append(release)
        facts.append(done.facts)
    return Grown(spec, releases, facts)


# The errors of the thesis, in thousands
ERRORS = {"nested": [6, 8, 10], "exact": [6, 8, 10], "reapply-all": [6, 8, 10], "reapply-last": [6, 8, 9]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=[] if name == "nested" else pytest.mark.slow) for name in ALGORITHMS]
)
def test_releases_of_a_growing_table_keep_what_they_promise_together(algorithm: str, tmp_path: Path) -> None:
    grown = grow(tmp_path, algorithm)
    assert [facts["loss"] for facts in grown.facts] == ERRORS[algorithm]
    assert PYTHON.ledger(grown.spec) == 3
    assert [grown.breaches(earlier, earlier + 1) for earlier in (0, 1)] == [[], []]
    together = PYTHON.verify(grown.releases[2], source=grown.spec, against=grown.releases[:2])
    if algorithm == "reapply-last":  # the literature's baseline, which is not safe beyond the last release
        assert grown.breaches(0, 2)
        assert together.code == 1
        assert read_failed(together)
        return
    assert not grown.breaches(0, 2)
    assert together.code == 0, read_failed(together)
    if algorithm == "nested":  # no combination of groups of all releases tells less than this many records apart
        assert all(fine((SALARY[age] for age in atom), GROWN_K, GROWN_E) for atom in grown.atoms())


@pytest.mark.slow
def test_new_records_that_are_not_anonymous_wait(tmp_path: Path) -> None:
    grown = grow(tmp_path, "nested")
    few = [row for batch in BATCHES for row in batch] + [(14, 60, 70), (15, 61, 70)]
    duckdb.execute(
        f"COPY (FROM (VALUES {', '.join(map(str, few))}) t(id, age, salary)) TO '{tmp_path / 'grown.parquet'}'"
    )
    spec = grown.spec | {"release": {"name": NAME, "to": str(tmp_path / "3.duckdb")}}
    done = PYTHON.publish(spec, seed=3)
    assert done.code == 0, done.facts
    assert done.facts["held_back"] == 2
    assert Counter(ask_release(tmp_path / "3.duckdb", "SELECT age FROM qit")) == Counter((age,) for age in SALARY)


@pytest.mark.slow
def test_a_second_release_of_another_kind_is_refused(tmp_path: Path) -> None:
    grown = grow(tmp_path, "nested")
    other = grown.spec | {
        "mechanism": {"kind": "bucketize", "threshold": "1/2"},
        "columns": grown.spec["columns"] | {"categorical": True},
        "release": {"name": NAME, "to": str(tmp_path / "other.duckdb")},
    }
    assert refused(PYTHON.publish(other, seed=1)) == 1
    assert not (tmp_path / "other.duckdb").exists()


def refused(done: Outcome) -> int:
    """Return the exit code of an outcome that is an error."""
    assert done.error
    return done.code


# Steps of the chain ---------------------------------------------------------------------------------------------------


@every((*CASES, CELLS), NESTED.name, CELLS.name)
def test_publish_does_what_plan_says(shelf: Shelf, case: Case) -> None:
    assert_planned(shelf.get(case), "loss", "groups", "records")


@pytest.mark.slow
@every((*CASES, CELLS, MIXED_CELLS))
def test_the_source_agrees(shelf: Shelf, case: Case) -> None:
    assert_verified(shelf.get(case))


@pytest.mark.slow
@every((*CASES, MIXED_CELLS))
def test_a_seed_repeats_a_release(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_repeated(shelf.get(case), tmp_path)


@every((NESTED,))
def test_an_edited_release_is_refused(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    one_value = "CASE WHEN rowid = 0 THEN pay - 10 ELSE pay END AS pay"
    assert_edits_noticed(
        shelf.get(case),
        tmp_path,
        "st",
        f"SELECT * REPLACE (CAST({one_value.removesuffix(' AS pay')} AS INTEGER) AS pay) FROM st ORDER BY rowid",
        "FROM st WHERE rowid <> 0 ORDER BY rowid",
    )


@every((*CASES, CELLS), NESTED.name, CELLS.name)
def test_promised_adversaries_learn_nothing_certain(shelf: Shelf, case: Case) -> None:
    assert_promises_kept(shelf.get(case), "groups with few or near values", "row order", "identifiers left in")


@pytest.mark.slow
@every((*CASES, CELLS))
def test_the_report_names_the_promise(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_reported(shelf.get(case), tmp_path / "page.html", str(K), str(E))
