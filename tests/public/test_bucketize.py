"""Bucketized releases: every bound that ``verify`` prints follows from QIT and ST, in exact fractions."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from public.made import NAME, Case, Made, Shelf, read_tables
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
)
from public.surface import PYTHON, Asker, Bound, read_adversaries, read_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

COLUMNS = {"quasi_identifiers": ["age", "sex", "district"], "sensitive": "disease"}
BOTH = COLUMNS | {"sensitive": ["disease", "stage"]}
PROMISED = ("linkage", "homogeneity", "row order", "identifiers left in")


def case(name: str, table: str = "patients", columns: dict[str, Any] = COLUMNS, **mechanism: Any) -> Case:
    """Return a case of bucketization."""
    source = {key: mechanism.pop(key) for key in ("person", "persons") if key in mechanism}
    return Case(f"bucketize-{name}", table, columns, {"kind": "bucketize", **mechanism}, source)


LINEAR = "1.5*f + 0.1"
ANATOMY = case("anatomy", algorithm="anatomy", threshold="1/3")
ONE_SIZE = case("one-size", algorithm="one-size", threshold=LINEAR)
TWO_SIZE = case("two-size", algorithm="two-size", threshold=LINEAR)
MULTI_SIZE = case("multi-size", algorithm="multi-size", threshold=LINEAR)
OPTIMAL = case("optimal", algorithm="optimal", threshold=LINEAR)
INFORMATIVE = case("informative", algorithm="informative", threshold=LINEAR)
FIFTY = {"quasi_identifiers": ["age", "district"], "sensitive": "disease"}
SETTING = case("setting", "fifty", FIFTY, threshold="2*f + 0.05", setting="9x4, 1x14")
RARE = {"values": ["HIV", "lupus"], "threshold": "1/3"}
LUNGS = {"values": ["asthma", "cold"], "threshold": "1/2"}
GROUPS = case("groups", algorithm="two-size", threshold="1/3", groups={"rare": RARE, "lungs": LUNGS})
COMPONENTS = {"disease": "2/5", "stage": "2/3"}
COMPOUND = case("compound", columns=BOTH, algorithm="two-size", threshold="1/6", components=COMPONENTS)
FAKES = case("fakes", algorithm="two-size", threshold="1/3", fake_values=1, uneven_fakes="state")
SUPPRESSED = case("suppressed", algorithm="optimal", threshold="1/5", excess="suppress", absence="unobservable")
ALL = case("all-of-a-person", "visits", threshold="1/3", person="person", persons="count")
ONE = case("one-of-a-person", "visits", threshold="1/3", person="person", persons="one")

WHOLE = (ANATOMY, ONE_SIZE, TWO_SIZE, MULTI_SIZE, OPTIMAL, INFORMATIVE, SETTING, GROUPS, COMPOUND, ALL)  # all records
CASES = (*WHOLE, FAKES, SUPPRESSED, ONE)
QUICK = (ANATOMY.name, TWO_SIZE.name, OPTIMAL.name, INFORMATIVE.name, SETTING.name)

# The threshold of a value by its frequency, of a case
RULES: Mapping[str, Callable[[Fraction], Fraction]] = {
    LINEAR: lambda f: f * 3 / 2 + Fraction(1, 10),
    "2*f + 0.05": lambda f: f * 2 + Fraction(1, 20),
    "1/3": lambda _: Fraction(1, 3),
    "1/5": lambda _: Fraction(1, 5),
    "1/6": lambda _: Fraction(1, 6),
}


@dataclass(frozen=True)
class Buckets:
    """The buckets of a release by plain SQL: their sizes, and how many records of each have which value."""

    sizes: dict[int, int]
    counts: dict[int, dict[tuple[Any, ...], int]]

    def highest(self, chosen: Callable[[tuple[Any, ...]], bool]) -> Fraction:
        """Return the highest belief of any bucket in the chosen values together."""
        return max(
            Fraction(sum(count for value, count in counts.items() if chosen(value)), self.sizes[bucket])
            for bucket, counts in self.counts.items()
        )


def read_buckets(made: Made) -> Buckets:
    """Return the buckets of a release."""
    counts: dict[int, dict[tuple[Any, ...], int]] = defaultdict(dict)
    for bucket, count, *value in made.rows(f"SELECT bid, count, {', '.join(made.case.sensitive)} FROM st"):
        assert tuple(value) not in counts[bucket]
        counts[bucket][tuple(value)] = count
    return Buckets(dict(made.rows("SELECT bid, count(*) FROM qit GROUP BY bid")), counts)


def spelled(value: tuple[Any, ...]) -> str:
    """Return a value as ``verify`` prints it."""
    return str(value[0]) if len(value) == 1 else f"[{', '.join(map(str, value))}]"


def expected_bounds(made: Made) -> dict[str, Bound]:
    """Return every bound that ``verify`` has to print, from the tables of the release and the records of the source."""
    buckets, mechanism = read_buckets(made), made.case.mechanism
    records = made.true_counts(", ".join(made.case.sensitive))
    rule = RULES[mechanism["threshold"]]
    bounds = {
        spelled(value): Bound(rule(Fraction(count, records.total())), buckets.highest(lambda one, x=value: one == x))
        for value, count in records.items()
    }
    for name, group in mechanism.get("groups", {}).items():
        highest = buckets.highest(lambda one, group=group: one[0] in group["values"])
        bounds[name] = Bound(Fraction(group["threshold"]), highest)
    for place, column in enumerate(made.case.sensitive if "components" in mechanism else ()):
        for value in {one[place] for one in records}:
            highest = buckets.highest(lambda one, place=place, value=value: one[place] == value)
            bounds[f"{column} = {value}"] = Bound(Fraction(mechanism["components"][column]), highest)
    return bounds


# Tables and bounds ----------------------------------------------------------------------------------------------------


@every(WHOLE, TWO_SIZE.name, COMPOUND.name)
def test_the_bounds_that_verify_prints_are_those_of_the_tables(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    verified = PYTHON.verify(made.release)
    assert verified.code == 0, verified.facts
    bounds = read_bounds(verified)
    assert bounds == expected_bounds(made)
    assert all(one.found <= one.bound for one in bounds.values())
    assert Fraction(made.facts["highest_belief"]["overall"]) == max(
        bounds[spelled(value)].found for value in made.true_counts(", ".join(case.sensitive))
    )


@every(WHOLE, *QUICK, COMPOUND.name)
def test_the_tables_hold_every_record_and_every_value(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    buckets, values = read_buckets(made), ", ".join(case.sensitive)
    assert {bucket: sum(counts.values()) for bucket, counts in buckets.counts.items()} == buckets.sizes
    assert min(buckets.sizes.values()) >= 2
    assert made.counted("qit", case.quasi_identifiers) == made.true_counts(case.quasi_identifiers)
    totals = made.rows(f"SELECT {values}, CAST(sum(count) AS BIGINT) FROM st GROUP BY {values}")
    assert {tuple(row[:-1]): row[-1] for row in totals} == dict(made.true_counts(values))
    assert made.facts["published"] == made.facts["records"] == made.true_counts(values).total()
    assert made.facts["loss"] == sum((size - 1) ** 2 for size in buckets.sizes.values())
    stated = {int(size): number for size, number in made.facts["setting"].items()}
    assert stated == Counter(buckets.sizes.values())


def test_weights_of_a_record_add_up_to_one_and_those_of_a_value_to_its_records(shelf: Shelf) -> None:
    made = shelf.get(TWO_SIZE)
    records = made.rows(f"SELECT sum(weight) FROM {NAME}_weighted GROUP BY age, sex, district")
    assert [row[0] for row in records] == pytest.approx([1] * 600)
    values = dict(made.rows(f"SELECT disease, sum(weight) FROM {NAME}_weighted GROUP BY disease"))
    assert values == pytest.approx({value: count for (value,), count in made.true_counts("disease").items()})


def test_known_settings_and_losses(shelf: Shelf) -> None:
    losses = {}
    for one in (ANATOMY, TWO_SIZE, OPTIMAL, SETTING):
        losses[one] = shelf.get(one).facts["loss"]
    assert losses[ANATOMY] == 200 * 2**2  # 600 records, 3 different values in every bucket
    assert shelf.get(SETTING).facts["setting"] == {"4": 9, "14": 1}  # Example 4.20 of the inferential paper
    assert losses[SETTING] == 9 * 3**2 + 13**2
    assert shelf.get(OPTIMAL).facts["lower_bound"] <= losses[OPTIMAL] <= losses[TWO_SIZE]
    assert len(shelf.get(TWO_SIZE).facts["setting"]) <= 2


@pytest.mark.slow
def test_more_freedom_never_costs_loss(shelf: Shelf) -> None:
    losses = [shelf.get(one).facts["loss"] for one in (OPTIMAL, TWO_SIZE, ONE_SIZE)]
    assert losses == sorted(losses)
    assert shelf.get(OPTIMAL).facts["loss"] <= shelf.get(MULTI_SIZE).facts["loss"]
    assert len(shelf.get(ONE_SIZE).facts["setting"]) == 1


# Fake values, left-out records, persons -------------------------------------------------------------------------------


def test_every_bucket_lists_one_fake_value_and_each_certainty_is_as_stated(shelf: Shelf) -> None:
    made = shelf.get(FAKES)
    verified = PYTHON.verify(made.release)
    assert verified.code == 0, verified.facts
    buckets = read_buckets(made)
    assert all(set(counts.values()) == {1} for counts in buckets.counts.values())
    assert {bucket: len(counts) - 1 for bucket, counts in buckets.counts.items()} == buckets.sizes
    assert made.counted("qit", FAKES.quasi_identifiers) == made.true_counts(FAKES.quasi_identifiers)
    listed = Counter(value for counts in buckets.counts.values() for value in counts)
    certainty = {value: Fraction(real, listed[value]) for value, real in made.true_counts("disease").items()}
    stated = made.facts["certainty"]
    assert (min(certainty.values()), max(certainty.values())) == (
        Fraction(stated["lowest"]),
        Fraction(stated["highest"]),
    )
    assert Fraction(stated["mean"]) == Fraction(600, listed.total())
    assert all(one.found <= one.bound == Fraction(1, 3) for one in read_bounds(verified).values())


@pytest.mark.slow
def test_as_few_records_as_possible_are_left_out(shelf: Shelf) -> None:
    made = shelf.get(SUPPRESSED)
    left_out = min(r for r in range(600) if 5 * (153 - r) <= 600 - r)  # of 153 records with flu, at most a fifth stay
    assert (made.facts["suppressed"], made.facts["published"]) == (left_out, 600 - left_out)
    assert made.counted("qit", SUPPRESSED.quasi_identifiers) <= made.true_counts(SUPPRESSED.quasi_identifiers)
    verified = assert_verified(made)
    buckets = read_buckets(made)
    assert {name: one.found for name, one in read_bounds(verified).items()} == {
        value: buckets.highest(lambda one, x=value: one == (x,)) for (value,) in made.true_counts("disease")
    }
    assert any(str(left_out) in warning for warning in made.facts["warnings"])
    with Asker(made.release) as asker:
        assert (
            asker.ask(f"SELECT COUNT(*) AS n FROM {NAME} WHERE disease = 'flu' AND age < 40").not_in_release == left_out
        )


def test_one_record_of_each_person_is_published(shelf: Shelf) -> None:
    made = shelf.get(ONE)
    persons = Counter(made.truth(f"SELECT age, sex, district FROM {NAME} GROUP BY person, age, sex, district"))
    assert made.counted("qit", ONE.quasi_identifiers) == persons
    assert made.facts["published"] == persons.total() == 240
    most = dict(made.truth(f"SELECT disease, count(DISTINCT person) FROM {NAME} GROUP BY disease"))
    assert all(
        count <= most[value] for value, count in made.rows("SELECT disease, sum(count) FROM st GROUP BY disease")
    )
    buckets = read_buckets(made)
    bounds = read_bounds(PYTHON.verify(made.release))
    assert bounds == {x: Bound(Fraction(1, 3), buckets.highest(lambda one, x=x: one == (x,))) for x in bounds}


@pytest.mark.slow
def test_a_key_file_chooses_the_same_records_again(shelf: Shelf, tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    for number in (1, 2):
        spec = ONE.spec(tmp_path, f"{number}.duckdb")
        done = PYTHON.publish(spec, key_file=key)
        assert done.code == 0, done.facts
    assert read_tables(tmp_path / "1.duckdb") == read_tables(tmp_path / "2.duckdb")
    assert PYTHON.verify(tmp_path / "1.duckdb", source=spec, key_file=key).code == 0
    attacked = PYTHON.attack(tmp_path / "1.duckdb", source=spec, key_file=key)
    assert attacked.code == 0
    assert {name for name, one in read_adversaries(attacked).items() if one.promised} == {
        *PROMISED,
        "choice of records",
    }


def test_a_table_in_which_persons_have_several_records_is_refused_until_one_says_what_to_do(tmp_path: Path) -> None:
    spec = ONE.spec(tmp_path)
    refused = PYTHON.publish(spec | {"source": {**spec["source"], "persons": "refuse"}}, seed=1)
    assert refused.code == 2
    assert "160 of 240 persons" in refused.error
    assert not list(tmp_path.glob("*.duckdb"))


# Steps of the chain ---------------------------------------------------------------------------------------------------


@every(CASES, TWO_SIZE.name)
def test_publish_does_what_plan_says(shelf: Shelf, case: Case) -> None:
    assert_planned(shelf.get(case), "loss", "setting", "lower_bound", "records", "published", "suppressed")


@pytest.mark.slow
@every(CASES)
def test_the_source_agrees(shelf: Shelf, case: Case) -> None:
    assert_verified(shelf.get(case))


@every(CASES, TWO_SIZE.name)
def test_a_seed_repeats_a_release(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_repeated(shelf.get(case), tmp_path)


@every((TWO_SIZE, INFORMATIVE, COMPOUND, FAKES), TWO_SIZE.name)
def test_an_edited_release_is_refused(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    one_value = "CASE WHEN rowid = 0 THEN (SELECT max(disease) FROM st) ELSE disease END AS disease"
    assert_edits_noticed(
        shelf.get(case),
        tmp_path,
        "st",
        f"SELECT * REPLACE ({one_value}) FROM st ORDER BY rowid",
        "FROM st WHERE rowid <> 0 ORDER BY rowid",
    )


@pytest.mark.slow
@every(CASES)
def test_promised_adversaries_stay_at_or_below_the_bound(shelf: Shelf, case: Case) -> None:
    made = shelf.get(case)
    if case is ONE:  # without its key, the source does not say which records were chosen
        attacked = PYTHON.attack(made.release)
        assert attacked.code == 0
    else:
        highest = float(Fraction(made.facts["highest_belief"]["overall"]))
        attacked = assert_promises_kept(made, *PROMISED, bound=highest)
    buckets = read_buckets(made)
    highest = max(
        buckets.highest(lambda one, x=value: one == x) for counts in buckets.counts.values() for value in counts
    )
    linkage = read_adversaries(attacked)["linkage"].highest
    assert linkage is not None
    if (
        case is FAKES
    ):  # a listed value is real with at most the stated certainty, and then any of three records may have it
        assert 1 / 4 <= linkage <= float(Fraction(str(made.facts["certainty"]["anywhere"]))) / 3
    else:
        assert linkage == pytest.approx(float(highest))


@pytest.mark.slow
@every(CASES)
def test_the_report_names_the_promise(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    assert_reported(shelf.get(case), tmp_path / "page.html")


@every(WHOLE, *QUICK)
def test_answers_are_exact_or_near(shelf: Shelf, case: Case) -> None:
    made, value = shelf.get(case), "x13" if case is SETTING else "flu"
    by_district = f"SELECT district, COUNT(*) AS n FROM {NAME} WHERE {{}} GROUP BY district"
    with Asker(made.release) as asker:
        assert_exact(compare_answers(asker, made, by_district.format("age < 35")))
        assert_exact(compare_answers(asker, made, f"SELECT disease, COUNT(*) AS n FROM {NAME} GROUP BY disease"))
        assert_near(compare_answers(asker, made, by_district.format(f"disease = '{value}'")))


@pytest.mark.slow
def test_an_impossible_threshold_names_what_would_work(tmp_path: Path) -> None:
    spec = TWO_SIZE.spec(tmp_path)
    refused = PYTHON.publish(spec | {"mechanism": {"kind": "bucketize", "threshold": "1/4"}}, seed=1)
    assert refused.code == 3
    assert "flu" in refused.error
    done = PYTHON.plan(spec | {"mechanism": {"kind": "bucketize", "threshold": "0.26"}})
    assert done.code == 0
