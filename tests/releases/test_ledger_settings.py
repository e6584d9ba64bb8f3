"""The same request gives the same release: by any solver, and in a job that runs twice."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from golden import releases
from privsql.errors import GuaranteeError
from privsql.mechanisms.bucketize import plan, search
from privsql.mechanisms.bucketize.bounds import GroupBound
from privsql.mechanisms.bucketize.model import BucketProblem, Setting, StoredPlan
from privsql.mechanisms.bucketize.optimal import Optimum
from privsql.mechanisms.bucketize.plan import find_plan, restore_plan
from privsql.mechanisms.perturb import plan as partition
from support.commands import PEOPLE, refused, run, specification, succeeded, tables, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    "optimal": 'threshold = "1/3"',
    "informative": 'threshold = "2*f + 0.1"',
    "fakes": 'threshold = "1/3"\nfake_values = 1\nuneven_fakes = "state"',
    "randomize": 'kind = "randomize"\nrho1 = "1/3"\nrho2 = "2/3"',
}


def publish(folder: Path, kind: str, to: str, *flags: object, ledger: str = 'database = "l.duckdb"') -> Any:
    """The tables of a release by a key that is kept."""
    write(folder / "people.parquet", releases.PEOPLE.format(n=252) if kind == "randomize" else PEOPLE.format(n=401))
    mechanism = f"{KINDS[kind]}\n[ledger]\n{ledger}"
    spec = specification(folder, release=f'name = "r"\nto = "{to}.duckdb"', mechanism=mechanism, name=f"{to}.toml")
    succeeded("publish", spec, "--seed", 7, *flags)
    return tables(folder / f"{to}.duckdb")


def take_another_solver(patch: pytest.MonkeyPatch) -> None:
    """From here on every search finds something else, which is as valid."""
    candidates = search._list_candidates
    patch.setattr(plan, "search_optimum", lambda *_, **__: Optimum(Setting(((3, 132), (5, 1))), 0))
    patch.setattr(search, "_list_candidates", lambda problem: candidates(problem)[:0:-1])
    patch.setattr(partition, "merge_groups", lambda _, groups, __: (np.zeros(len(groups), dtype=np.int64), False))


def damage(folder: Path, path: list[str | int], value: object) -> None:
    """Another value at a place of the setting that the ledger holds."""
    with duckdb.connect(str(folder / "l.duckdb")) as db:
        ((text,),) = db.execute("SELECT content FROM events WHERE kind = 'release'").fetchall()
        fields = json.loads(text)
        place = fields["setting"]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        db.execute("UPDATE events SET content = ? WHERE kind = 'release'", [json.dumps(fields)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_repeat_takes_the_setting_that_another_solver_found(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(tmp_path, kind, "first")
    take_another_solver(monkeypatch)
    assert publish(tmp_path, kind, "other", ledger="off = true") != first
    assert publish(tmp_path, kind, "again") == first
    assert publish(tmp_path, kind, "again", "--replace") == first


@pytest.mark.slow
def test_a_plan_states_the_setting_of_the_release_that_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=401))
    spec = specification(tmp_path, mechanism=f'{KINDS["optimal"]}\n[ledger]\ndatabase = "l.duckdb"')
    published = succeeded("publish", spec, "--json").json
    take_another_solver(monkeypatch)
    names = ("setting", "lower_bound")
    assert [succeeded("plan", spec, "--json").json[name] for name in names] == [published[name] for name in names]


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    rest_slow(
        [
            ("optimal", ["buckets"], [[4, 100]]),  # a record is left
            ("optimal", ["buckets"], [[1, 401]]),  # every value would be certain
            ("optimal", ["buckets"], "4x100"),
            ("optimal", ["buckets", 0, 1], -1),
            ("optimal", ["lower_bound"], 10**9),
            ("optimal", ["allocation"], [[401]]),
            ("optimal", ["allocation"], [[1], [1, 2]]),
            ("randomize", ["labels"], []),
            ("randomize", ["labels", 0], 7),
            ("randomize", ["labels", 0], None),
        ]
    ),
)
def test_a_setting_that_does_not_fit_is_refused(
    tmp_path: Path, kind: str, path: list[str | int], value: object
) -> None:
    publish(tmp_path, kind, "first")
    damage(tmp_path, path, value)
    spec = tmp_path / "first.toml"
    done = run("publish", spec, "--seed", 7, "--to", tmp_path / "again.duckdb")
    remedy = f'"privsql ledger withdraw 1 --ledger {tmp_path / "l.duckdb"}"'
    refused(done, 1, "fails its check" if value == [[401]] else f"if nobody has received that release, run {remedy}")
    assert not (tmp_path / "again.duckdb").exists()
    succeeded("ledger", "withdraw", 1, "--ledger", tmp_path / "l.duckdb")
    succeeded("publish", spec, "--seed", 7, "--to", tmp_path / "again.duckdb")


def test_records_are_divided_as_they_were_where_a_solver_did_it() -> None:
    """Bounds on sets are kept by a flow, which is not the only one."""
    counts = np.array([30, 30, 30, 30], dtype=np.int64)
    bound = GroupBound("both", (0, 1), Fraction(3, 5))
    problem = BucketProblem(counts, (Fraction(1, 2),) * 4, 2, 5, bounds=(bound,), labels=("a", "b", "c", "d"))
    plan = find_plan(problem, "setting", stated=Setting(((4, 15), (5, 12))))
    stored = StoredPlan.from_plan(plan, problem).model_dump(mode="json")
    swap = np.array([[1, -1], [-1, 1], [0, 0], [0, 0]])
    moved = plan.allocation + swap
    assert restore_plan(problem, "setting", stored).allocation.tolist() == plan.allocation.tolist()
    again = restore_plan(problem, "setting", stored | {"allocation": moved.tolist()})
    assert again.allocation.tolist() == moved.tolist() != plan.allocation.tolist()
    with pytest.raises(GuaranteeError, match="not all placed"):
        restore_plan(problem, "setting", stored | {"allocation": (moved + 1).tolist()})


# Repeats --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_that_runs_twice_gives_the_same_release_or_stops(tmp_path: Path) -> None:
    """Changed people, a changed request or a release that the ledger does not know stop it; what is there stays."""
    first = publish(tmp_path, "optimal", "r", "--repeat")
    assert publish(tmp_path, "optimal", "r", "--repeat") == first
    spec, release = tmp_path / "r.toml", tmp_path / "r.duckdb"
    entries = succeeded("ledger", spec, "--json").json["releases"]
    assert [entry["withdrawn"] for entry in entries] == [True, False]
    for flags in (("--seed", 8), ("--seed", 7, "--threshold", "1/2")):
        refused(run("publish", spec, "--repeat", *flags), 1, "release 2", "no guarantee covers both")
    write(tmp_path / "people.parquet", PEOPLE.format(n=402))
    refused(run("publish", spec, "--repeat", "--seed", 7), 1, "release 2", "no guarantee covers both")
    elsewhere = run("publish", spec, "--repeat", "--seed", 7, "--ledger", tmp_path / "other.duckdb")
    refused(elsewhere, 2, "are recorded in")
    assert tables(release) == first
    refused(run("publish", spec, "--replace", "--seed", 7), 1, "release 2", "option nobody_has_it withdraws it")
    succeeded("publish", spec, "--replace", "--nobody-has-it", "--seed", 7)


def test_a_repeat_needs_a_ledger_and_no_fresh_noise(tmp_path: Path) -> None:
    publish(tmp_path, "optimal", "r", ledger="off = true")
    refused(run("publish", tmp_path / "r.toml", "--repeat", "--seed", 7), 1, "another release", "option replace does")
    refused(run("publish", tmp_path / "r.toml", "--repeat", "--replace"), 2, "give only one")
    private = specification(
        tmp_path,
        columns='categories = ["sex"]',
        mechanism='kind = "contingency"\nepsilon = 1\ndomains = { sex = "data" }',
    )
    refused(run("publish", private, "--repeat"), 2, "drawn afresh")
