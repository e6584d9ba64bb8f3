"""A cap is a pair of epsilon and delta: what is spent never falls, and no order of releases gets more than the cap."""

from __future__ import annotations

import math
import re
import shlex
from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.dp_random import concentrated_rho
from privsql.errors import InfeasibleError
from privsql.releases.ledger.budget import Budget, Cap, Spending, choose_delta
from support.commands import Outcome, composed, refused, run, specification, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

EPSILONS = [Fraction(1, 20), Fraction(1, 3), Fraction(1)]
DELTAS = [Fraction(0), Fraction(1, 10**12), Fraction(1, 10**5)]


def spend(epsilon: Fraction, delta: Fraction) -> Spending:
    """What a release with an epsilon and a delta spends."""
    return Spending(epsilon, delta, concentrated_rho(epsilon, delta) if delta else None)


RELEASES = [spend(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]
CAPS = [Cap("people", epsilon, delta) for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2)) for delta in DELTAS]


def accept(wanted: Iterable[Spending], caps: tuple[Cap, ...]) -> list[Spending]:
    """The releases of a sequence that fit under the caps, each beside those that were published before it."""
    made: list[Spending] = []
    for one in wanted:
        try:
            Budget(tuple(made), caps, one).require_fitting(lambda *words: " ".join(words))
        except InfeasibleError:
            continue
        made.append(one)
    return made


def least_log_delta(parts: Sequence[Spending], epsilon: Fraction) -> float:
    """The ln delta for which pure and concentrated releases together are (epsilon, delta)-private, in doubles."""
    rho = float(sum((one.rho or Fraction(0) for one in parts), Fraction(0)))
    rest = float(epsilon - sum((one.epsilon for one in parts if one.rho is None), Fraction(0)))
    if not rho:
        return -math.inf if rest >= 0 else 0.0
    steps = (math.exp(t / 50) for t in range(-500, 1500))
    return min(a * ((1 + a) * rho - rest) + (1 + a) * math.log(a / (1 + a)) - math.log(a) for a in steps)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(RELEASES), max_size=6), st.lists(st.sampled_from(CAPS), max_size=2))
def test_what_is_spent_never_falls(wanted: list[Spending], caps: list[Cap]) -> None:
    """Also without a cap, where a smaller delta may raise it and a larger one changes nothing."""
    made = accept(wanted, tuple(caps))
    for cap in [*([None] if not caps else []), *caps]:
        within = () if cap is None else (cap,)
        spent = [Budget(tuple(made[:count]), within).spent for count in range(len(made) + 1)]
        assert spent == sorted(spent)


@settings(max_examples=40)
@given(st.lists(st.sampled_from(RELEASES), min_size=2, max_size=4), st.sampled_from(CAPS))
def test_no_order_of_releases_gets_more_than_the_cap(wanted: list[Spending], cap: Cap) -> None:
    for order in permutations(wanted):
        made = accept(order, (cap,))
        assert all(one.delta <= cap.delta for one in made)
        assert Budget(tuple(made), (cap,)).spent <= cap.epsilon
        if made:
            assert least_log_delta(made, cap.epsilon) <= (math.log(cap.delta) + 1e-2 if cap.delta else -math.inf)


@settings(max_examples=30)
@given(st.lists(st.sampled_from(RELEASES), max_size=4))
def test_what_a_release_spends_alone_is_what_it_states(made: list[Spending]) -> None:
    for one in made:
        assert Budget((), (), one).total == one.epsilon
    assert Budget(tuple(made)).spent >= max((one.convert(choose_delta(made)) for one in made), default=0)


# By the commands ------------------------------------------------------------------------------------------------------

CELLS = 'kind = "contingency"\nepsilon = {}\nallow_empty = true\ndomains = {{ sex = ["f", "m"], job = ["a", "b"] }}'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a table."""
    query = "SELECT ['f', 'm'][1 + i % 2] AS sex, ['a', 'b'][1 + i % 3 % 2] AS job, i AS nr FROM range(200) t(i)"
    write(tmp_path / "people.parquet", query)
    return tmp_path


def spec(folder: Path, epsilon: str, delta: str = "", ledger: str = "", name: str = "spec.toml") -> Path:
    """A request to publish the people's cells."""
    more = f'\ndelta = "{delta}"\nnoise = "gaussian"' if delta else ""
    return specification(
        folder,
        source='file = "people.parquet"\nid = "nr"',
        columns='categories = ["sex", "job"]',
        release='name = "counts"\nto = "counts.duckdb"',
        mechanism=f"{CELLS.format(epsilon)}{more}\n{ledger}",
        name=name,
    )


CAP = "[ledger]\nepsilon = 1"


def remedy(done: Outcome) -> list[str]:
    """The arguments of the command that a refusal names."""
    (command,) = re.findall(r'"privsql (ledger[^"]*)"', done.err)
    return shlex.split(command)


@pytest.mark.slow
def test_a_larger_delta_does_not_lower_what_was_spent(place: Path) -> None:
    """Under a cap of 1 a release at (1, 1e-12) was worth .567 once one at (.3, 1e-5) went in, and more followed."""
    first = spec(place, "1", "1e-12", CAP)
    done = succeeded("publish", first, "--json").json["ledger"]
    assert (done["spent"], done["cap"], done["delta"]) == ("1", "1", "0.000000000001")
    second = spec(place, "0.3", "1e-5", CAP, "second.toml")
    larger = run("publish", second, "--replace")
    refused(larger, 3, "delta 0.00001 can't be spent", "at delta 0.000000000001", "people 1 --delta 0.00001")
    refused(run("publish", spec(place, "0.1", "1e-12"), "--replace"), 3, "0 is left of the budget 1")
    assert succeeded("ledger", first, "--json").json["spent"] == "1"
    raised = succeeded(*remedy(larger), "--json").json  # the publisher's decision
    assert (raised["spent"], raised["delta"]) == ("0.567211", "0.00001")
    total = succeeded("publish", second, "--replace", "--json").json["ledger"]["spent"]
    assert Fraction("0.567211") < Fraction(total) < 1
    assert f"together spend epsilon {total} at delta 1e-05, of at most 1" in composed(place / "counts.duckdb")[0]


@pytest.mark.slow
def test_a_cap_takes_the_delta_of_the_first_release_under_it(place: Path) -> None:
    succeeded("publish", spec(place, "0.2", ledger=CAP))
    delta = spec(place, "0.2", "1e-6")
    refusal = run("publish", delta, "--replace")
    refused(refusal, 3, "at delta 0,", "people 1 --delta 0.000001")
    for wrong, why in (("1", "no chance"), ("-0.1", "no chance"), ("many", "not an exact number")):
        refused(run("ledger", "cap", delta, "1", "--delta", wrong), 2, why)
    succeeded(*remedy(refusal))
    assert succeeded("publish", delta, "--replace", "--json").json["ledger"]["spent"] == "0.4"
    refused(run("ledger", "cap", delta, "1", "--delta", "0"), 2, "releases of this population have a delta")
    assert succeeded("ledger", "cap", delta, "2", "--json").json["delta"] == "0.000001"


@pytest.mark.slow
def test_the_command_that_a_refusal_names_makes_the_cap_large_enough(place: Path) -> None:
    succeeded("publish", spec(place, "1", ledger=CAP))
    again = spec(place, "0.5", ledger=CAP)
    done = run("publish", again, "--replace")
    refused(done, 3, "0 is left of the budget 1", 'people 1.5" with ledger.epsilon = 1.5 allows that')
    succeeded(*remedy(done))
    again = spec(place, "0.5", ledger=CAP.replace("1", "1.5"))
    assert succeeded("publish", again, "--replace", "--json").json["ledger"]["spent"] == "1.5"


@pytest.mark.slow
def test_without_a_cap_the_total_is_at_the_smallest_delta(place: Path) -> None:
    totals = []
    for epsilon, delta in (("1", "1e-12"), ("0.3", "1e-5"), ("0.1", ""), ("0.1", "1e-15")):
        done = succeeded("publish", spec(place, epsilon, delta), "--replace", "--json").json["ledger"]
        totals.append(Fraction(done["spent"]))
    assert totals == sorted(totals)
    assert totals[0] == 1


@pytest.mark.slow
def test_a_delta_of_any_earlier_release_refuses_a_budget_of_values(place: Path) -> None:
    """One without a delta that was published first hid the one with a delta."""
    succeeded("publish", spec(place, "0.5"))
    succeeded("publish", spec(place, "0.5", "1e-6"), "--replace")
    values = 'kind = "randomize"\nalgorithm = "tables"\nepsilon = 1\nvalues = ["a", "b"]'
    source, columns = 'file = "people.parquet"\nid = "nr"', 'quasi_identifiers = ["sex"]\nsensitive = "job"'
    release = 'name = "jobs"\nto = "jobs.duckdb"'
    jobs = specification(place, source=source, columns=columns, release=release, mechanism=values, name="jobs.toml")
    refused(run("publish", jobs, "--allow-composition"), 1, "release 2 (counts, contingency)", "leave out delta")


# In a ledger that is not the user's own ------------------------------------------------------------------------------

TABLES = 'kind = "randomize"\nalgorithm = "tables"\nepsilon = 1\nvalues = {}'
JOBS, SEXES = TABLES.format('["a", "b"]'), TABLES.format('["f", "m"]')
JOB, SEX = ('quasi_identifiers = ["{}"]\nsensitive = ["{}"]'.format(*one) for one in (("sex", "job"), ("job", "sex")))
BUCKETS = 'kind = "bucketize"\nthreshold = "0.9"'
BOTH = 'categories = ["sex", "job"]'
AGAIN = {  # two releases of which nothing covers both, and what the refusal of the second one says
    "a value's budget beside none": ((JOBS, JOB), (BUCKETS, SEX), "no epsilon bounds what is learnt of a value"),
    "what is protected": ((JOBS, JOB), (SEXES, SEX), "as it is, the other one protects its values"),
    "a delta": ((JOBS, JOB), (f'{CELLS.format(1)}\ndelta = "1e-9"', BOTH), "leave out delta"),
    "groups": ((BUCKETS, JOB), (BUCKETS, SEX), "no guarantee covers both"),
}


def elsewhere(folder: Path, mechanism: str, columns: str, name: str, population: str = "staff") -> Path:
    """A request to publish the people in another ledger than the user's own."""
    return specification(
        folder,
        source=f'file = "people.parquet"\nid = "nr"\npopulation = "{population}"',
        columns=columns,
        release=f'name = "{name}"\nto = "{name}.duckdb"',
        mechanism=f'{mechanism}\n[ledger]\ndatabase = "the other.duckdb"',
        name=f"{name}.toml",
    )


@pytest.fixture
def crowded(place: Path) -> Path:
    """The folder, where the user's own ledger has release 1 of other people."""
    write(
        place / "clients.parquet", "SELECT ['f', 'm'][1 + i % 2] AS sex, 'a' AS job, 1000 + i AS nr FROM range(9) t(i)"
    )
    theirs = spec(place, "1", name="theirs.toml")
    theirs.write_text(theirs.read_text().replace("people", "clients").replace("counts.duckdb", "theirs.duckdb"))
    succeeded("publish", theirs)
    return place


def own_ledger() -> list[dict[str, object]]:
    """What the user's own ledger has."""
    listed = succeeded("ledger", "--json").json
    return [{**one, "database": listed["database"]} for one in listed["releases"]]


@pytest.mark.slow
@pytest.mark.parametrize("case", rest_slow([*AGAIN]))
def test_a_refusal_names_the_command_that_withdraws_from_that_ledger(case: str, crowded: Path) -> None:
    before, (one, two, why) = own_ledger(), AGAIN[case]
    succeeded("publish", elsewhere(crowded, *one, "one"))
    done = run("publish", second := elsewhere(crowded, *two, "two"))
    if why not in done.err:  # what else is refused can be allowed
        done = run("publish", second, "--allow-composition")
    refused(done, 1, why, "ledger withdraw 1 --ledger")
    assert succeeded(*remedy(done), "--json").json["name"] == "one"
    succeeded("publish", second, "--allow-composition")
    assert own_ledger() == before


@pytest.mark.slow
def test_a_refusal_names_the_command_that_caps_in_that_ledger(crowded: Path) -> None:
    path = elsewhere(crowded, CELLS.format(1), BOTH, "one")
    succeeded("publish", path)
    succeeded("ledger", "cap", path, 1)
    refused(done := run("publish", path, "--replace"), 3, "0 is left of the budget 1")
    raised = succeeded(*remedy(done), "--json").json
    assert (raised["cap"], raised["database"]) == ("2", str(crowded / "the other.duckdb"))
    assert succeeded("publish", path, "--replace", "--json").json["ledger"]["spent"] == "2"


@pytest.mark.slow
@pytest.mark.parametrize("missed", [("show", 7), ("withdraw", 7)])
def test_a_release_that_is_missed_is_looked_for_in_that_ledger(missed: tuple[str, int], crowded: Path) -> None:
    succeeded("publish", elsewhere(crowded, CELLS.format(1), BOTH, "one"))
    refused(done := run("ledger", *missed, "--ledger", crowded / "the other.duckdb"), 2, "lists them")
    assert [one["name"] for one in succeeded(*remedy(done), "--json").json["releases"]] == ["one"]


@pytest.mark.slow
def test_a_name_is_capped_where_its_releases_are_recorded(crowded: Path) -> None:
    other = crowded / "the other.duckdb"
    succeeded("publish", path := elsewhere(crowded, CELLS.format(1), BOTH, "one"))
    assert succeeded("ledger", "cap", "Staff", 1, "--json").json["database"] == str(other)
    refused(run("publish", path, "--replace"), 3, "0 is left of the budget 1")
    misspelled = succeeded("ledger", "cap", "stafff", 1, "--ledger", other).err
    assert re.search(r"the other.duckdb holds no release of 'stafff'.*most like it: 'staff'", misspelled)
    other.unlink()
    gone = succeeded("ledger", "cap", "staff", 1).err
    assert re.search(r"holds no release of 'staff'.*recorded in .*the other.duckdb", gone)
