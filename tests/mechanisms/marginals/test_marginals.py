"""Marginals: the public rule, the private part by enumeration, and releases from the command line."""

from __future__ import annotations

import itertools
import math
import shutil
import tomllib
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from mechanisms.diffpart.test_columns import Choosing
from privsql.dp_random import table_noise_for
from privsql.keyed_random import seed_key
from privsql.mechanisms.dp import noisy_tables
from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.dp.noisy_tables import NoisyTable, budget_weight, sum_cells
from privsql.mechanisms.marginals import plan, publish
from privsql.mechanisms.marginals.parameters import Contingency
from privsql.mechanisms.marginals.plan import Rounds, Rule
from privsql.mechanisms.marginals.publish import measure_marginals, synthesize_rows
from privsql.mechanisms.marginals.tables import mean_total_variation
from support.census import ASKED, PEOPLE, spec
from support.commands import fetched, manifest, refused, run, succeeded, write
from support.enumeration import fit_models_once, worst_ratio
from support.loops import each, rest_slow
from support.tampering import asked_without_a_traceback, changed, not_verified, stating, with_facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = ("sex", "job", "region")


def rule(sizes: Sequence[int], names: Sequence[str] = NAMES, **asked: Any) -> Rule:
    names = tuple(names[: len(sizes)])
    request = Contingency.model_validate({"epsilon": "1", "domains": dict.fromkeys(names, "data")} | asked)
    return Rule(request, names, tuple(sizes))


def measured_first(of: Rule, records: int) -> list[NoisyTable]:
    """What is measured first, of so many records that all have the first value."""
    found = []
    for clique, budget, _ in [*of.first_table(), *of.fixed_tables(Fraction(records))]:
        counts = np.zeros([of.sizes[i] for i in clique], dtype=np.int64)
        counts[(0,) * len(clique)] = records
        found.append(NoisyTable(clique, budget, counts))
    return found


# The rule -------------------------------------------------------------------------------------------------------------


def test_an_eighth_for_the_columns_and_the_rest_by_square_roots() -> None:
    of = rule((2, 4, 2))
    assert of.first_table() == [((), Fraction(1, 100), None)]
    due = [((i,), Fraction(root, 8 * 4828), None) for i, root in enumerate((1414, 2000, 1414))]
    assert of.fixed_tables(Fraction(10_000)) == due
    rest = of.remaining_tables(measured_first(of, 10_000))
    roots = {(0, 1): 2828, (0, 2): 2000, (1, 2): 2828}
    assert roots == {clique: budget_weight(of.count_cells(clique)) for clique in of.candidate_pairs}
    assert rest == [(clique, Fraction(173, 200) * root / 7656, None) for clique, root in roots.items()]


@pytest.mark.parametrize(("records", "share"), [(10**6, "1/8"), (2000, "0.1896"), (1000, "0.2682"), (-5, "2/3")])
def test_columns_take_more_where_they_are_noise(records: int, share: str) -> None:
    """Three columns of 8 values in all: their noise with the whole budget is 8 records; 3 sqrt(8 / records)."""
    spent = [budget for _, budget, _ in rule((2, 4, 2)).fixed_tables(Fraction(records))]
    assert sum(spent) == Fraction(share)


def test_a_workload_takes_seven_tenths_of_the_rest() -> None:
    of = rule((2, 4, 3), workload=[["region", "sex", "job"], ["job", "Sex"]])
    assert of.workload_cliques == [(0, 1), (0, 1, 2)]
    fixed = of.fixed_tables(Fraction(10**6))
    assert sum(budget for clique, budget, _ in fixed if len(clique) > 1) == Fraction(173, 200) * Fraction(7, 10)
    rest = of.remaining_tables(measured_first(of, 10**6))
    assert isinstance(rest, list)
    assert [clique for clique, _, _ in rest] == [(0, 2), (1, 2)]
    assert sum(budget for _, budget, _ in [*of.first_table(), *fixed, *rest]) == 1


def test_one_column_gets_everything() -> None:
    of = rule((7,))
    assert (of.first_table(), of.fixed_tables(Fraction(9))) == ([], [((0,), Fraction(1), None)])
    assert of.remaining_tables(measured_first(of, 10)) == []


@pytest.mark.parametrize(("records", "units"), [(10**6, None), (16_000, 20), (4000, 8), (1000, 3), (10, 1)])
def test_pairs_are_chosen_where_their_noise_is_too_much(records: int, units: int | None) -> None:
    names = tuple("abcdefgh")
    of = rule((16, 2, 14, 5, 9, 9, 50, 11), names)
    rest = of.remaining_tables(measured_first(of, records))
    assert (rest.left / rest.unit if isinstance(rest, Rounds) else None) == units
    forced = rule(of.sizes, names, pairs="all").remaining_tables(measured_first(of, records))
    assert isinstance(forced, list)


@each("columns", [4, 7, 12, 40])
def test_all_pairs_are_measured_where_rounds_would_measure_nearly_all(columns: int) -> None:
    """Rounds measure up to four fifths of the pairs, however many there are; beyond, all are measured at once."""
    names, last = tuple(f"c{k}" for k in range(columns)), 0.0
    of = rule((4,) * columns, names)
    for records in np.geomspace(10, 1e9, 60):
        rest = of.remaining_tables(measured_first(of, int(records)))
        if not isinstance(rest, Rounds):
            break
        part = rest.left / rest.unit / len(of.candidate_pairs)
        assert last <= part < Fraction(4, 5)
        last = part
    assert not isinstance(rest, Rounds)
    assert last > 0.5


def made_tables() -> dict[str, Any]:
    """Codes of three tables that differ: few columns of many values, a chain of columns, and rare flags."""
    draw = np.random.default_rng(5)
    first = draw.integers(0, 20, 8000)
    second = (first // 4 + draw.integers(0, 3, 8000)) % 7
    chain = [draw.integers(0, 12, 20_000)]
    for size in (5, 9, 3, 8, 2, 6):
        chain.append((chain[-1] * 7 // 3 + draw.integers(0, max(2, size // 3), 20_000)) % size)
    flags = draw.normal(size=(9000, 3)) @ draw.normal(size=(3, 9)) + draw.normal(size=(9000, 9))
    few = [first, second, (first + second + draw.integers(0, 10, 8000)) % 30, draw.random(8000) < 0.05 + 0.01 * first]
    return {
        "few": np.stack(few, axis=1),
        "chain": np.stack(chain, axis=1),
        "flags": flags > np.quantile(flags, 0.9, axis=0),
    }


@pytest.mark.slow
@each("name", ["few", "chain", "flags"])
def test_the_error_of_pairs_falls_with_every_doubling_of_epsilon(name: str) -> None:
    codes, records = np.unique(made_tables()[name].astype(np.int64), axis=0, return_counts=True)
    sizes = (codes.max(axis=0) + 1).tolist()
    names, errors = tuple(f"c{k}" for k in range(len(sizes))), []
    pairs = {pair: sum_cells(codes, records, pair, sizes) for pair in itertools.combinations(range(len(sizes)), 2)}
    for epsilon in ("1/8", "1/4", "1/2", "1", "2"):
        of, found = rule(sizes, names, epsilon=epsilon), []
        for seed in range(10):
            tables = measure_marginals(codes, records, of, table_noise_for(seed_key(seed), of.law))
            model = Model(tables, sizes, mixed=False)
            found.append(sum(np.abs(model.fitted_table(one) - exact).sum() for one, exact in pairs.items()))
        errors.append(float(np.mean(found)))
    assert all(later < 0.9 * earlier for earlier, later in itertools.pairwise(errors))


@pytest.mark.parametrize("seed", range(5))
def test_rounds_spend_what_is_left(seed: int) -> None:
    """Any tables that are chosen while some can be paid for: all of the budget goes, and no other list is due."""
    draw = np.random.default_rng(seed)
    cliques = [*itertools.combinations(range(6), 2), *itertools.combinations(range(6), 3)]
    cells = {one: int(draw.integers(2, 400)) for one in cliques}
    rounds, chosen = Rounds(cells, 2000, Fraction(4, 5), Fraction(4, 5) / 7, Fraction(1, 20)), []
    while affordable := rounds.affordable_tables(chosen):
        chosen.append(affordable[int(draw.integers(len(affordable)))])
    due = rounds.due_tables(chosen)
    assert sum(spent + (choice or 0) for _, spent, choice in due) == Fraction(4, 5)
    assert {choice for _, _, choice in due} == {rounds.unit / 20}
    assert sum(cells[one] for one in chosen) <= 2000
    units = [(spent + rounds.unit / 20) / rounds.unit for _, spent, _ in due]
    assert all(Fraction(1, 2) <= one <= Fraction(15, 8) for one in units[:-1])
    assert [spent for _, spent, _ in rounds.due_tables(chosen[:-1])] == [spent for _, spent, _ in due[:-1]]
    for wrong in ([*chosen, chosen[0]], [*chosen, (0, 6)], [chosen[0], *chosen]):
        with pytest.raises(ValueError, match="a table is unknown, was chosen twice"):
            rounds.due_tables(wrong)


def test_a_table_that_is_not_of_the_rule_is_named() -> None:
    of = rule((16, 2, 14, 5, 9, 9, 50, 11), tuple("abcdefgh"))
    first = measured_first(of, 1000)
    with pytest.raises(ValueError, match="a table is unknown, was chosen twice"):
        of.due_tables([*first, NoisyTable((0, 2, 6), Fraction(1, 100), np.zeros((16, 14, 50), dtype=np.int64))])


def test_a_table_costs_the_root_of_its_cells_within_bounds_and_a_triple_half_as_much_again() -> None:
    cells = {(0, 1): 100, (0, 2): 144, (1, 2): 36, (0, 3): 10**6, (1, 3): 1, (0, 1, 2): 144, (1, 2, 3): 4}
    rounds = Rounds(cells, 10**9, Fraction(1), Fraction(1, 5), Fraction(1, 8))
    assert [price * 100 for price in rounds.prices.values()] == [20, 24, 12, 25, 10, 36, 15]


def test_the_smallest_triples_are_as_many_as_the_pairs_and_no_larger() -> None:
    """All triples without the column of 50 values have at most the 50 x 16 cells of the largest pair, but one."""
    of = rule((2, 3, 4, 50, 16), tuple("abcde"), workload=[list("abc")])
    assert of.candidate_triples == [(0, 1, 4), (0, 2, 4), (1, 2, 4), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
    assert rule((2, 3, 2, 2), tuple("abcd")).candidate_triples == []
    many = rule([2] * 20 + [300], [f"c{i}" for i in range(21)])
    assert many.candidate_triples == list(itertools.combinations(range(20), 3))[: len(many.candidate_pairs)]


def test_forty_columns_are_measured_as_far_as_the_cells_allow() -> None:
    names = [f"c{i}" for i in range(40)]
    of = rule([30] * 40, names, max_cells=100_000)
    rest = of.remaining_tables(measured_first(of, 10**9))
    assert isinstance(rest, Rounds)
    chosen: list[tuple[int, ...]] = []
    while affordable := rest.affordable_tables(chosen):
        chosen.append(affordable[0])
    assert len(chosen) > 50
    assert len(chosen) * 900 <= 100_000
    with pytest.raises(Exception, match="max_cells"):
        rule([30] * 40, names, max_cells=1000).fixed_tables(Fraction(1))
    with pytest.raises(Exception, match="max_cells"):
        rule([30] * 40, names, max_cells=1300).remaining_tables(measured_first(of, 10**9))


# The private part -----------------------------------------------------------------------------------------------------

SIZES = (2, 2, 1)
RECORDS = list(itertools.product(*map(range, SIZES)))


class Halved(Choosing):
    """Choices between scores that may go either way: half the exponent."""

    half = 2

    def choose_best(self, scores: Any, epsilon: Fraction, *, monotonic: bool) -> int:
        return super().choose_best(scores, epsilon if monotonic else epsilon / self.half, monotonic=True)


class Careless(Halved):
    careless = 1000


def law_of(records: Sequence[tuple[int, ...]], noise: type[Halved], **asked: Any) -> dict[Any, float]:
    """Exact distribution of all that is published."""
    of, made, found = rule(SIZES, **asked), noise(1), defaultdict(float)
    codes = np.array(records, dtype=np.int64).reshape(-1, 3)

    def program() -> Any:
        tables = measure_marginals(codes, np.ones(len(codes), dtype=np.int64), of, made)
        return tuple((one.columns, tuple(one.counts.reshape(-1).tolist())) for one in tables)

    for result, chance in made.runs(program):
        found[result] += chance
    assert math.isclose(sum(found.values()), 1)
    return found


@pytest.fixture
def two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair or two are chosen, by every record; models, which are post-processing, are fitted in a hurry."""
    monkeypatch.setattr(plan, "count_rounds", lambda *_: 2)
    monkeypatch.setattr(publish, "WORTH", 0)  # so few records would all lie within the noise, and no pair differ
    monkeypatch.setattr(noisy_tables, "FALLING", (0,))
    fit_models_once(monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("two_units")
@pytest.mark.parametrize("number", rest_slow([0, 1], soak="outputs"))
def test_no_output_is_more_likely_than_e_to_the_epsilon(number: int) -> None:
    worst = 0.0
    for one in ((), (RECORDS[0], RECORDS[3])):
        law = law_of(one, Halved, epsilon="2", pairs="chosen")
        worst = max(worst, worst_ratio(law, law_of((*one, RECORDS[number]), Halved, epsilon="2", pairs="chosen")))
    assert math.exp(1) < worst <= math.exp(2) * (1 + 1e-9)


@pytest.mark.soak(part="outputs")
@pytest.mark.usefixtures("two_units")
@each("person", ["00", "03"])
def test_persons_of_two_records_share_epsilon(person: str) -> None:
    """Neighbours differ by a person, of one record or of two, in one cell or in two."""
    some: dict[str, Any] = {"epsilon": "2", "pairs": "chosen", "max_records": 2}
    others = (RECORDS[1],)
    law, records = law_of(others, Halved, **some), [RECORDS[int(number)] for number in person]
    assert math.exp(0.5) < worst_ratio(law, law_of((*others, records[0]), Halved, **some)) <= math.exp(1) * (1 + 1e-9)
    assert math.exp(1) < worst_ratio(law, law_of((*others, *records), Halved, **some)) <= math.exp(2) * (1 + 1e-9)


@pytest.mark.soak(part="outputs")
@pytest.mark.usefixtures("two_units")
def test_the_enumeration_would_find_choices_that_spend_too_much() -> None:
    law, other = (law_of(records, Careless, epsilon="2", pairs="chosen") for records in ((), (RECORDS[0],)))
    assert worst_ratio(law, other) > math.exp(2)


def test_what_chooses_looks_at_tables_alone() -> None:
    """The pair that depends most is chosen first."""
    draw = np.random.default_rng(1)
    first, third = draw.integers(0, 4, 9000), draw.integers(0, 4, 9000)
    codes = np.stack([first, (first + (draw.random(9000) < 0.1)) % 4, third], axis=1)

    class Best:
        origin = "seed"

        def add_noise(self, counts: Any, _: Fraction) -> Any:
            return counts

        def choose_best(self, scores: Any, _: Fraction, *, monotonic: bool) -> int:
            assert not monotonic
            return int(np.argmax(scores))

    noise: Any = Best()
    tables = measure_marginals(codes, np.ones(9000, dtype=np.int64), rule((4, 4, 4), pairs="chosen"), noise)
    assert tables[4].columns == (0, 1)
    code = draw.integers(0, 300, 9000)  # ten codes of each value: a pair of 9,000 cells, all but 300 of them empty
    wide = np.stack([first, np.where(draw.random(9000) < 0.1, first, third), code, code // 10], axis=1)
    of = rule((4, 4, 300, 30), pairs="chosen")
    assert measure_marginals(wide, np.ones(9000, dtype=np.int64), of, noise)[5].columns == (2, 3)


# Rows -----------------------------------------------------------------------------------------------------------------


def test_rows_fit_the_tables() -> None:
    draw = np.random.default_rng(2)
    first = draw.integers(0, 4, 20_000)
    codes = np.stack([first, (first + draw.integers(0, 2, 20_000)) % 4, draw.integers(0, 3, 20_000)], axis=1)
    of = rule((4, 4, 3))
    noise: Any = Exactly()
    model = Model(measure_marginals(codes, np.ones(20_000, dtype=np.int64), of, noise), of.sizes)
    made, weights = synthesize_rows(model, draw)
    assert weights.sum() == pytest.approx(20_000)
    assert mean_total_variation(model, made, weights) < 0.01
    assert mean_total_variation(model, made[:5], weights[:5]) > 0.3
    assert np.array_equal(np.unique(made, axis=0), made)


class Exactly:
    origin = "seed"

    def add_noise(self, counts: Any, _: Fraction) -> Any:
        return counts


# From the command line ------------------------------------------------------------------------------------------------


def asked(folder: Path, sql: str, *flags: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = succeeded("query", folder / "people.duckdb", sql, "--json", *flags).json["rows"]
    return found


def true(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(sql.replace("FROM people", f"FROM '{folder}/people.parquet'")).fetchall()


@pytest.mark.parametrize(
    "condition",
    rest_slow([
        "TRUE", "sex = 'F'", "sex = 'F' AND job = 4", "age BETWEEN 30 AND 39",
        "age >= 30 AND age < 45 AND job IN (1, 4, 5)", "sex = 'F' OR job = 4",
        "age < 30 AND sex = 'M' AND job < 6", "income < 20000", "income >= 10000 AND sex = 'M'",
        "NOT (sex = 'F' AND job = 4)", "age // 10 = 4",
        "job % 2 = 0 AND income < 10000 AND age < 40 AND sex = 'M'",
    ]),
)  # fmt: skip
def test_counts_are_near_the_truth(census: Path, condition: str) -> None:
    """One release of a fixed seed: every answer within six standard errors, and these a small part of the records."""
    sql = f"SELECT COUNT(*) FROM people WHERE {condition}"
    ((expected,),) = true(census, sql)
    (row,) = asked(census, sql)
    assert abs(row["estimate"] - expected) <= 6 * row["std_error"]
    assert 0 < row["std_error"] < 400
    assert row["low"] <= row["estimate"] <= row["high"]


@pytest.mark.slow
def test_groups_add_up_and_are_all_there(census: Path) -> None:
    sql = "SELECT job, sex, COUNT(*) FROM people WHERE age < 45 GROUP BY job, sex"
    rows_ = asked(census, sql)
    assert len(rows_) == 12 * 4  # with NULL of each, and all other values: those of a number are NULL, too
    (whole,) = asked(census, "SELECT COUNT(*) FROM people WHERE age < 45")
    assert sum(row["estimate"] for row in rows_) == pytest.approx(whole["estimate"], rel=0.01)
    (single,) = asked(census, "SELECT COUNT(*) FROM people WHERE age < 45 AND job = 4 AND sex = 'F'")
    (of_group,) = [row["estimate"] for row in rows_ if (row["job"], row["sex"]) == (4, "F")]
    assert single["estimate"] == pytest.approx(of_group)
    bands = asked(census, "SELECT age // 5 * 5 AS band, COUNT(*) FROM people GROUP BY 1 ORDER BY 1")
    assert [row["band"] for row in bands] == [*range(15, 75, 5), None]


@pytest.mark.slow
def test_what_cuts_a_bin_is_bounded_by_all_that_lies_in_it(census: Path) -> None:
    (row,) = asked(census, "SELECT COUNT(*) FROM people WHERE age < 32")
    (below,), (above,) = (asked(census, f"SELECT COUNT(*) FROM people WHERE age < {end}") for end in (30, 35))
    assert row["std_error"] is None
    # the three releases sum in another order, so the last digits may differ
    assert (row["low"], row["high"]) == pytest.approx((below["low"], above["high"]), rel=1e-9)
    assert below["estimate"] < row["estimate"] < above["estimate"]
    ((expected,),) = true(census, "SELECT COUNT(*) FROM people WHERE income < 15000")
    (row,) = asked(census, "SELECT COUNT(*) FROM people WHERE income < 15000")
    assert row["low"] <= expected <= row["high"]


def test_least_squares_alone_are_the_baseline(census: Path) -> None:
    (row,) = asked(census, "SELECT COUNT(*) FROM people WHERE sex = 'F' AND job = 4", "--estimator", "baseline")
    assert row["std_error"] > 0
    (row,) = asked(census, "SELECT COUNT(*) FROM people WHERE income < 20000 AND sex = 'F' AND job = 4 AND age < 30",
                   "--estimator", "baseline")  # fmt: skip
    assert (row["std_error"], row["low"]) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT COUNT(*) FROM people WHERE income = 3000", ["income", "bins", "range"]),
        ("SELECT income, COUNT(*) FROM people GROUP BY income", ["income", "bins"]),
        ("SELECT COUNT(*) FROM people WHERE income IN (1, 2)", ["income", "bins"]),
        ("SELECT COUNT(*) FROM people WHERE shoe = 44", ["shoe"]),
        ("SELECT SUM(age) FROM people", ["quasi-identifiers"]),
    ],
)
def test_what_is_not_told_is_refused_by_name(census: Path, query: str, words: list[str]) -> None:
    refused(run("query", census / "people.duckdb", query), 2, *words)


@pytest.mark.slow
def test_it_verifies_with_and_without_its_source(census: Path) -> None:
    release, path = census / "people.duckdb", census / "spec.toml"
    assert succeeded("verify", release, "--json").json["ok"]
    assert succeeded("verify", release, "--source", path, "--json").json["ok"]
    stated = manifest(release)
    assert (stated["algorithm"], stated["records"], stated["facts"]["not_covered"]) == ("marginals", None, [])
    assert succeeded("attack", release, "--json").json["measured"] == 1
    assert "synthetic" in succeeded("verify", release, "--verbose").out


def test_the_view_weighs_what_the_release_answers(census: Path) -> None:
    with duckdb.connect(str(census / "people.duckdb"), read_only=True) as db:
        ((weight,),) = db.sql("SELECT sum(weight) FROM people_weighted WHERE sex = 'F' AND job = 4").fetchall()
    (row,) = asked(census, "SELECT COUNT(*) FROM people WHERE sex = 'F' AND job = 4")
    assert weight == pytest.approx(row["estimate"], rel=0.05)


def test_synthetic_rows_give_about_the_estimates(census: Path, tmp_path: Path) -> None:
    made = tmp_path / "rows.parquet"
    shown = succeeded("export", census / "people.duckdb", "--synthetic", made, "--json").json
    counts = f"SELECT count(*), count(*) FILTER (sex = 'F' AND job = 4) FROM '{made}'"
    ((number, those),) = duckdb.sql(counts).fetchall()
    assert shown["rows"] == number
    (row,) = asked(census, "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE sex = 'F' AND job = 4) AS those FROM people")
    assert (number, those) == (pytest.approx(row["n"], abs=1), pytest.approx(row["those"], rel=0.05))
    refused(run("export", census / "people.duckdb", "--synthetic", made), 2, "new file")


@pytest.mark.slow
def test_a_release_with_bins_is_evaluated(census: Path) -> None:
    """Single values of a wide bin are not asked for, ranges are."""
    release, path = census / "people.duckdb", census / "spec.toml"
    found = succeeded("evaluate", release, "--source", path, "--queries", 6, "--json").json["reconstructed"]
    assert {one["class"] for one in found["questions"]} == {"eq1", "eq2", "eq3", "range", "groups"}
    assert found["tables"][0]["of"] == 3


OTHERS = "CAST(0.05 + 0.025 * clique AS DECIMAL(9, 3))"  # with the same sum
DAMAGE: dict[str, tuple[str, Any]] = {
    "a larger epsilon was spent": ("spend", stating("parameters", lambda given: given | {"epsilon": "3"})),
    "a budget": ("spend epsilon", "UPDATE privsql_cliques SET budget = '1' WHERE clique = 1"),
    "two budgets": ("public rule", f"UPDATE privsql_cliques SET budget = {OTHERS} WHERE clique < 2"),
    "a choice that was none": ("", "UPDATE privsql_cliques SET choice = '0.1' WHERE clique = 5"),
    "a scale": ("scales", "UPDATE privsql_cliques SET scale = scale / 2 WHERE clique = 2"),
    "a count": ("", "UPDATE privsql_marginals SET count = count + 500 WHERE clique = 0 AND cell = 0"),
    "a lost cell": ("", "DELETE FROM privsql_marginals WHERE clique = 4 AND cell = 3"),
    "a cell more": ("", "INSERT INTO privsql_marginals VALUES (9, 99999, 1)"),
    "a count that is NULL": ("", "UPDATE privsql_marginals SET count = NULL WHERE cell = 1"),
    "a value of no domain": ("domains", "UPDATE privsql_domains SET value = 'X' WHERE value = 'F'"),
    "another bin": ("domains", "UPDATE privsql_domains SET value = '16.5' WHERE value = '16'"),
    "a weight": ("rows fit", "UPDATE privsql_rows SET weight = weight + 100 WHERE job = 4"),
    "a row's value": ("rows fit", "UPDATE privsql_rows SET sex = CASE sex WHEN 'F' THEN 'M' ELSE 'F' END"),
    "a row of no domain": ("rows fit", "UPDATE privsql_rows SET job = 99 WHERE job > 4"),
    "rows in another order": ("lie in order", "CREATE OR REPLACE TABLE privsql_rows AS FROM privsql_rows ORDER BY job"),
    "another noise": ("facts", with_facts(noise="opendp")),
    "a number of records": ("facts", with_facts(estimated_records=5000.0)),
    "a distance": ("rows fit", with_facts(distance=0.5)),
    "a scale of errors": ("facts", with_facts(errors={"1": [[0.0] * 5] * 3})),
    "a scale of errors that is none": ("valid marginals", with_facts(errors={"1": [[0.0] * 5] * 2})),
    "a version of OpenDP": ("OpenDP", with_facts(opendp="99.1")),
    "a fact of another kind": ("valid marginals", with_facts(cells="many")),
    "another algorithm": ("", stating("algorithm", lambda _: "diffpart")),
    "an algorithm that is none": ("", stating("algorithm", lambda _: "magic")),
    "no cliques": ("", "DELETE FROM privsql_cliques"),
    "a budget that is not a number": ("", "UPDATE privsql_cliques SET budget = 'plenty' WHERE clique = 1"),
}  # fmt: skip


@pytest.mark.slow
@each("what", DAMAGE, few=4, soak="damage")
def test_damage_is_found(census: Path, tmp_path: Path, what: str) -> None:
    words, change = DAMAGE[what]
    release = changed(census / "people.duckdb", tmp_path, change)
    done = not_verified(release, "--json")
    failed = [check for check in done.json["checks"] if not check["ok"]] if done.code == 1 else [done.err]
    assert failed
    assert words in str(failed)
    asked_without_a_traceback(release, ("query", "SELECT COUNT(*) FROM people"))


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        (ASKED.replace("by = 5", "by = 0"), ["bins", "0"]),
        (ASKED.replace("[0, 10000, 20000, 50000]", "[0, 20000, 10000]"), ["bins", "above the one before"]),
        (ASKED.replace('["F", "M"]', "{ bins = [0, 1] }"), ["sex", "numbers", "VARCHAR"]),
        (ASKED.replace('["sex", "age", "job"]', '["sex", "height"]'), ["workload", "height"]),
        (ASKED.replace('["sex", "age", "job"]', '["sex", "Sex"]'), ["workload", "different"]),
        (ASKED.replace("epsilon = 2", "epsilon = 2\nfan_out = 3"), ["fan_out", "marginals"]),
        (ASKED.replace("epsilon = 2", "epsilon = 2\nmax_cells = 9"), ["max_cells", "cells"]),
        (ASKED.replace("workload", 'algorithm = "diffpart"\nworkload'), ["workload", "diffpart"]),
        (ASKED.replace('workload = [["sex", "age", "job"]]', 'algorithm = "diffpart"'), ["bins", "diffpart"]),
    ],
)
def test_a_wrong_specification_is_refused_in_one_line(
    census: Path, tmp_path: Path, mechanism: str, words: list[str]
) -> None:
    shutil.copy(census / "people.parquet", tmp_path)
    refused(run("plan", spec(tmp_path, mechanism)), 2, *words)


@pytest.mark.slow
def test_init_marks_bins_that_are_the_datas(census: Path, tmp_path: Path) -> None:
    write(tmp_path / "wages.parquet", "SELECT i % 3 AS shift, 20000 + 137 * (i % 500) AS wage FROM range(4000) t(i)")
    toml = succeeded("init", tmp_path / "wages.parquet", "--mechanism", "contingency").out
    assert "data = true" in toml
    assert "not protected" in toml
    (tmp_path / "wages.toml").write_text(toml, encoding="utf-8")
    shown = succeeded("publish", tmp_path / "wages.toml", "--to", tmp_path / "wages.duckdb", "--json").json
    assert set(shown["not_covered"]) == {"shift", "wage"}
    assert succeeded("verify", tmp_path / "wages.duckdb", "--source", tmp_path / "wages.toml", "--json").json["ok"]


@pytest.mark.slow
@each("condition", ["rain <= 0", "rain BETWEEN 3.71 AND 3.72", "rain < 0.01 AND shift < 2"])
def test_what_lies_between_the_values_that_stand_for_a_bin_is_not_said_to_be_none(
    tmp_path: Path, condition: str
) -> None:
    """Half of the records have one value, the end of a bin: a range of it alone was answered with 0, exactly."""
    write(tmp_path / "r.parquet", "SELECT i % 3 AS shift, i % 2 * (i % 50) * 1.37 AS rain FROM range(900) t(i)")
    (tmp_path / "r.toml").write_text(
        '[source]\nfile = "r.parquet"\n[columns]\ncategories = ["shift", "rain"]\n[mechanism]\nkind = "contingency"\n'
        "epsilon = 8\ndomains = { shift = [0, 1, 2], rain = { bins = { from = 0, to = 70, by = 10 } } }\n"
    )
    succeeded("publish", tmp_path / "r.toml", "--to", tmp_path / "r.duckdb", "--seed", 1)
    done = succeeded("query", tmp_path / "r.duckdb", f"SELECT COUNT(*) FROM r WHERE {condition}", "--json").json
    ((row,), truth) = done["rows"], fetched(f"SELECT COUNT(*) FROM '{tmp_path}/r.parquet' WHERE {condition}")[0][0]
    assert row["low"] <= truth <= row["high"]
    assert row["high"] > 0
    assert done["rests_on"] != "exact"


FEW = "SELECT i % 2 AS sex, i % 45 AS age, (i % 90) / 7.0 AS rate, 'v' || (i % 40) AS town FROM range({n}) t(i)"


@pytest.mark.slow
@each(("n", "left_out"), [(20_000, set()), (200, {"town"}), (1_500, set()), (100, {"town"})], few=2)
def test_what_init_proposes_is_no_noise(tmp_path: Path, n: int, left_out: set[str]) -> None:
    """Bins as fine as the records allow; else columns are left out."""
    source = write(tmp_path / "few.parquet", FEW.format(n=n))
    toml = succeeded("init", source, "--mechanism", "contingency").out
    (tmp_path / "few.toml").write_text(toml, encoding="utf-8")
    asked = tomllib.loads(toml)
    assert set(asked["columns"]["categories"]) == set(asked["mechanism"]["domains"])
    assert {"sex", "age", "rate", "town"} - set(asked["columns"]["categories"]) == left_out
    assert ("Note: for so few records" in toml) == (n < 1_500)
    noise = succeeded("plan", tmp_path / "few.toml", "--json").json["noise_of_columns"]
    assert noise <= n / 2
    succeeded("publish", tmp_path / "few.toml", "--to", tmp_path / "few.duckdb", "--seed", 1)


@pytest.mark.slow
def test_an_empty_table_and_one_record_are_published(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path / "people.parquet", f"{PEOPLE} LIMIT {number}")
        done = run("publish", spec(tmp_path), "--replace", "--seed", 1)
        refused(done, 3, "noise", "mechanism.allow_empty = true", "errs by about")
        succeeded("publish", spec(tmp_path), "--replace", "--seed", 1, "--set", "mechanism.allow_empty=true")
        assert succeeded("verify", tmp_path / "people.duckdb", "--json").json["ok"]
        assert succeeded("verify", tmp_path / "people.duckdb", "--source", tmp_path / "spec.toml", "--json").json["ok"]
        assert asked(tmp_path, "SELECT COUNT(*) FROM people WHERE sex = 'F' AND job = 4")[0]["low"] == 0
