"""Randomized releases: gamma, retention and beliefs follow from each sub-table; noisy tables spend exactly epsilon."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from public.made import NAME, Case, Made, Shelf
from public.steps import (
    assert_edits_noticed,
    assert_exact,
    assert_near,
    assert_planned,
    assert_promises_kept,
    assert_repeated,
    assert_reported,
    assert_verified,
    compare_answers,
    every,
    read_budgets,
)
from public.surface import PYTHON, Asker, Bound, read_adversaries, read_bounds

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"quasi_identifiers": ["age", "ward", "sex"], "sensitive": "disease"}
VALUES = ["d0", "d1", "d2", "d3"]
RHO2 = Fraction(2, 3)


def case(name: str, *, rho1: str = "1/3", **mechanism: str) -> Case:
    """Return a case of perturbation of the paper's example, ten times as large."""
    pure = {"kind": "randomize", "rho1": rho1, "rho2": str(RHO2), **mechanism}
    return Case(f"randomize-{name}", "ills", COLUMNS, pure)


UP = case("up", algorithm="up")
DECLARED = case("declared", algorithm="up", gamma_from="rho1")
PP = case("pp", algorithm="pp")
PAPER = case("pp-paper", algorithm="pp-paper")
SOME = case("some-protected", rho1="1/5", algorithm="pp")
TABLES = Case(
    "randomize-tables", "ills", COLUMNS,
    {"kind": "randomize", "algorithm": "tables", "epsilon": "2", "values": VALUES},
)  # fmt: skip
PERTURBED = (UP, PP, PAPER, DECLARED, SOME)
CASES = (*PERTURBED, TABLES)


@dataclass(frozen=True)
class SubTable:
    """A sub-table as the release states it, and what its records really have; the latter by quasi-identifiers alone."""

    records: int
    domain: frozenset[str]
    rho1: Fraction
    gamma: Fraction
    true: Counter[str]
    kept: int  # records whose published value is their true one

    @property
    def chance(self) -> Fraction:
        """Return the probability that a record keeps its value, whether by luck or not."""
        return self.gamma / (len(self.domain) - 1 + self.gamma)

    def believe(self, value: str) -> Fraction:
        """Return the highest belief in a value after any published value, by Bayes over the whole matrix."""
        prior = {one: Fraction(count, self.records) for one, count in self.true.items()}
        likelihood = {True: self.gamma, False: Fraction(1)}
        return max(
            prior.get(value, Fraction(0)) * likelihood[value == seen]
            / sum(share * likelihood[one == seen] for one, share in prior.items())
            for seen in self.domain
        )  # fmt: skip


def read_subtables(made: Made) -> list[SubTable]:
    """Return the sub-tables of a release, matched with the source by quasi-identifiers, which are unique here."""
    true = {
        tuple(row[:-1]): row[-1] for row in made.truth(f"SELECT {made.case.quasi_identifiers}, disease FROM {NAME}")
    }
    found, kept = defaultdict(Counter), Counter()
    for *person, value, number in made.rows(f"SELECT {made.case.quasi_identifiers}, disease, sub_table FROM perturbed"):
        found[number][true[tuple(person)]] += 1
        kept[number] += value == true[tuple(person)]
    domains = defaultdict(set)
    for number, value in made.rows("SELECT sub_table, disease FROM privsql_domains JOIN privsql_values USING (code)"):
        domains[number].add(value)
    stated = made.rows(
        "SELECT sub_table, records, rho1_numerator, rho1_denominator, gamma_numerator, gamma_denominator "
        "FROM privsql_subtables"
    )
    assert {row[0]: row[1] for row in stated} == {number: values.total() for number, values in found.items()}
    return [
        SubTable(
            records, frozenset(domains[one]), Fraction(int(a), int(b)), Fraction(int(c), int(d)), found[one], kept[one]
        )
        for one, records, a, b, c, d in stated
    ]  # fmt: skip


def protected(made: Made) -> set[str]:
    """Return the values that are at most as frequent in the source as rho1."""
    records = made.true_counts("disease")
    limit = Fraction(made.case.mechanism["rho1"])
    return {value for (value,), count in records.items() if Fraction(count, records.total()) <= limit}


# Perturbation ---------------------------------------------------------------------------------------------------------


@every(PERTURBED, PP.name)
def test_no_belief_in_a_protected_value_exceeds_the_bounds_that_verify_prints(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    verified = PYTHON.verify(made.release)
    assert verified.code == 0, verified.facts
    bounds, subtables, values = read_bounds(verified), read_subtables(made), protected(made)
    assert set(bounds) == values
    for value in values:
        highest = max(one.believe(value) for one in subtables)
        assert highest <= bounds[value].found <= bounds[value].bound == RHO2


@every(PERTURBED, UP.name, PP.name)
def test_gamma_and_retention_follow_from_the_sub_tables(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    subtables, values = read_subtables(made), protected(made)
    for one in subtables:
        assert set(one.true) <= one.domain
        most = max(Fraction(one.true[value], one.records) for value in values)
        assert one.rho1 == (Fraction(1, 3) if case is DECLARED else most)
        assert one.gamma == RHO2 * (1 - one.rho1) / (one.rho1 * (1 - RHO2))
    stays = sum(one.records * (one.gamma - 1) / (len(one.domain) - 1 + one.gamma) for one in subtables) / 420
    assert made.facts["retention"] == pytest.approx(float(stays))
    # Values stay as often as the matrices say. Farther off than 5 standard deviations is a false alarm below 1e-6.
    expected = sum(one.records * one.chance for one in subtables)
    deviation = math.sqrt(sum(one.records * one.chance * (1 - one.chance) for one in subtables))
    assert abs(sum(one.kept for one in subtables) - expected) <= 5 * deviation


@every(PERTURBED, UP.name, PP.name)
def test_quasi_identifiers_are_the_sources(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    assert made.counted("perturbed", case.quasi_identifiers) == made.true_counts(case.quasi_identifiers)
    with Asker(made.release) as asker:
        by_sex = f"SELECT sex, COUNT(*) AS n FROM {NAME} WHERE {{}} GROUP BY sex"
        assert_exact(compare_answers(asker, made, by_sex.format("age < 30")))
        assert_near(compare_answers(asker, made, by_sex.format("disease = 'd0'")))
        assert_near(compare_answers(asker, made, by_sex.format("disease <> 'd1'")))


def test_known_answers_of_the_small_domain_paper(shelf: Shelf) -> None:
    # Examples 1 to 4, ten times as large: the bound shrinks by the root of 10.
    up, pp = (shelf.get(one).facts for one in (UP, PP))
    assert up["bound"] * math.sqrt(10) == pytest.approx(2.07453, abs=1e-4)
    assert pp["bound"] * math.sqrt(10) < 2.01965 + 1e-5
    assert pp["retention"] > up["retention"] == pytest.approx(4 / 14)  # gamma is 5 for 2/7, with ten values


@pytest.mark.slow
def test_the_papers_partition_has_the_papers_bound(shelf: Shelf) -> None:
    paper = shelf.get(PAPER).facts["bound"]
    assert paper * math.sqrt(10) == pytest.approx(2.01965, abs=1e-5)
    assert shelf.get(PP).facts["bound"] <= paper


@pytest.mark.slow
def test_gamma_of_the_whole_table_may_follow_from_rho1(shelf: Shelf) -> None:
    made = shelf.get(DECLARED)
    (whole,) = read_subtables(made)
    assert whole.gamma == 4
    assert made.facts["retention"] == pytest.approx(3 / 13)  # the diagonal of Example 1 is 4/13, 1/13 of it by luck


# Noisy tables ---------------------------------------------------------------------------------------------------------


def test_tables_spend_no_more_than_epsilon(shelf: Shelf) -> None:
    made = shelf.get(TABLES)
    verified = PYTHON.verify(made.release)
    assert verified.code == 0, verified.facts
    assert list(read_bounds(verified).values()) == [Bound(Fraction(2), Fraction(2))]
    budgets = read_budgets(made, "privsql_cliques")
    assert sum(one.counting for one in budgets) == Fraction(19, 20) * 2  # a twentieth pays for choosing pairs,
    assert sum(one.choosing for one in budgets) <= Fraction(1, 20) * 2  # of which rounds are not listed that chose none
    assert all(one.scale == pytest.approx(float(2 / one.counting)) for one in budgets)  # one value moves two counts


def test_tables_publish_quasi_identifiers_and_weights_that_add_up(shelf: Shelf) -> None:
    made = shelf.get(TABLES)
    assert made.counted("qit", TABLES.quasi_identifiers) == made.true_counts(TABLES.quasi_identifiers)
    sums = made.rows(f"SELECT sum(weight) FROM {NAME}_weighted GROUP BY {TABLES.quasi_identifiers}")
    assert [row[0] for row in sums] == pytest.approx([1] * 420, abs=1e-5)
    listed = {row[0] for row in made.rows(f"SELECT DISTINCT disease FROM {NAME}_weighted")}
    assert listed == {*VALUES, "other", None}
    with Asker(made.release) as asker:
        by_sex = f"SELECT sex, COUNT(*) AS n FROM {NAME} WHERE {{}} GROUP BY sex"
        assert_exact(compare_answers(asker, made, by_sex.format("age < 30")))
        assert_near(compare_answers(asker, made, by_sex.format("disease = 'd0'")))


@pytest.mark.slow
def test_a_value_that_is_not_listed_is_other(shelf: Shelf) -> None:
    made = shelf.get(TABLES)
    ((rest,),) = made.truth(f"SELECT count(*) FROM {NAME} WHERE disease NOT IN ('d0', 'd1', 'd2', 'd3')")
    with Asker(made.release) as asker:
        (row,) = (answer := asker.ask(f"SELECT COUNT(*) AS n FROM {NAME} WHERE disease = 'other'")).rows
        assert_near([(answer.figure(row, "n"), rest)])


# Steps of the chain ---------------------------------------------------------------------------------------------------


@every(PERTURBED, PP.name)
def test_publish_does_what_plan_says(shelf: Shelf, case: Case) -> None:
    assert_planned(shelf.get(case), "bound", "bound_up", "retention", "subtables", "records")


@pytest.mark.slow
@every(CASES)
def test_the_source_agrees(shelf: Shelf, case: Case) -> None:
    assert_verified(shelf.get(case))


@pytest.mark.slow
@every(CASES)
def test_a_seed_repeats_a_release(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_repeated(shelf.get(case), tmp_path)


@pytest.mark.slow
@every((UP, PP))
def test_an_edited_release_is_refused(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_edits_noticed(
        shelf.get(case),
        tmp_path,
        "perturbed",
        "SELECT * REPLACE (CASE WHEN rowid = 0 THEN 'd10' ELSE disease END AS disease) FROM perturbed ORDER BY rowid",
        "FROM perturbed WHERE rowid <> 0 ORDER BY rowid",
    )


@pytest.mark.slow
def test_an_edited_sub_table_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    more = "SELECT * REPLACE (gamma_numerator + 1 AS gamma_numerator) FROM privsql_subtables ORDER BY rowid"
    assert_edits_noticed(shelf.get(PP), tmp_path, "privsql_subtables", more)


@pytest.mark.slow
def test_edited_tables_are_refused(shelf: Shelf, tmp_path: Path) -> None:
    made = shelf.get(TABLES)
    assert_edits_noticed(made, tmp_path, "qit", "FROM qit WHERE rowid <> 0 ORDER BY rowid")
    more = "CASE WHEN clique = 2 AND cell = 0 THEN count + 50 ELSE count END AS count"
    edited = f"SELECT * REPLACE ({more}) FROM privsql_marginals ORDER BY rowid"
    assert_edits_noticed(made, tmp_path, "privsql_marginals", edited)


@every(PERTURBED, PP.name)
def test_promised_adversaries_stay_at_or_below_the_bound(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    bound = 1 if case is SOME else 2 / 3  # the highest belief may be in the value that is not protected
    assert_promises_kept(made, "linkage", "row order", "identifiers left in", bound=bound)


def test_an_informed_adversary_of_tables_gains_at_most_epsilon(shelf: Shelf) -> None:
    odds = math.exp(2)
    attacked = assert_promises_kept(shelf.get(TABLES), "informed", bound=odds / (1 + odds))
    assert read_adversaries(attacked)["informed"].highest == pytest.approx(odds / (1 + odds))


@pytest.mark.slow
@every(CASES)
def test_the_report_names_the_promise(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_reported(shelf.get(case), tmp_path / "page.html")
