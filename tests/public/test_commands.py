"""The command line: one case of every family from ``init`` to ``report``, exit codes, and the keys of answers."""

from __future__ import annotations

import shutil
import tomllib
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from public import test_bucketize as bucketize
from public import test_contingency as contingency
from public import test_permute as permute
from public import test_randomize as randomize
from public import test_setvalued as setvalued
from public.made import NAME, Case, Shelf, read_tables, write_source
from public.steps import assert_page, every
from public.surface import (
    COMMANDS,
    PROCESSES,
    PYTHON,
    Answer,
    Commands,
    Python,
    read_adversaries,
    read_failed,
    read_promise,
)

if TYPE_CHECKING:
    from pathlib import Path

CHAINS = {
    bucketize.TWO_SIZE: "disease = 'flu'",
    randomize.PP: "disease = 'd0'",
    permute.NESTED: "pay < 2000",
    setvalued.VIEWS: "list_contains(goods, 'ale')",
    contingency.MARGINALS: "sex = 'F'",
}
WAYS = pytest.mark.parametrize(
    "way", [pytest.param(COMMANDS, id="commands"), pytest.param(PYTHON, id="python", marks=pytest.mark.slow)]
)
TIMES = ("seconds", "search_seconds")


@pytest.mark.slow
@every([*CHAINS])
def test_the_command_line_does_what_the_package_does(shelf: Shelf, case: Case, tmp_path: Path) -> None:
    made, spec = shelf.get(case), case.spec(tmp_path)
    release = tmp_path / f"{case.name}.duckdb"
    planned = COMMANDS.plan(spec)
    assert planned.code == 0
    assert not release.exists()
    published = COMMANDS.publish(spec, seed=case.seed)
    assert published.code == 0
    assert without(published.facts) == without(made.facts)
    assert read_tables(release) == read_tables(made.release)
    verified = COMMANDS.verify(release, source=spec)
    assert (verified.code, read_failed(verified)) == (0, set())
    question = f"SELECT COUNT(*) FROM {NAME} WHERE {CHAINS[case]}"
    assert COMMANDS.query(release, question).facts == PYTHON.query(made.release, question).facts
    attacked = COMMANDS.attack(release, source=spec)
    assert attacked.code == 0
    assert not any(one.broken for one in read_adversaries(attacked).values())
    reported = COMMANDS.report(release, to=tmp_path / "page.html")
    assert reported.code == 0
    assert_page(reported, read_promise(published.facts))


def without(facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts without what another run of the same may change: the path, and how long it took."""
    return {name: value for name, value in facts.items() if name not in (*TIMES, "release")}


@every([*CHAINS], setvalued.VIEWS.name)
def test_what_init_proposes_can_be_published_and_holds(case: Case, tmp_path: Path) -> None:
    source = write_source(case.table, tmp_path)
    sensitive = case.columns.get("sensitive")
    proposed = COMMANDS.init(source, kind=case.mechanism["kind"], sensitive=sensitive)
    assert proposed.code == 0, proposed.facts
    assert proposed.text == PYTHON.init(source, kind=case.mechanism["kind"], sensitive=sensitive).text
    spec = tomllib.loads(proposed.text)
    assert spec["mechanism"]["kind"] == case.mechanism["kind"]
    given = {"release": {"name": NAME, "to": str(tmp_path / "proposed.duckdb")}, "ledger": {"off": True}}
    assert (done := PYTHON.publish(spec | given, seed=1)).code == 0, done.facts
    assert PYTHON.verify(tmp_path / "proposed.duckdb", source=spec | given).code == 0


# Exit codes -----------------------------------------------------------------------------------------------------------


@WAYS
def test_exit_codes(shelf: Shelf, way: Python | Commands, tmp_path: Path) -> None:
    made = shelf.get(bucketize.TWO_SIZE)
    edited = tmp_path / "edited.duckdb"
    shutil.copy(made.release, edited)
    with duckdb.connect(str(edited)) as db:
        db.execute("UPDATE st SET count = count + 1 WHERE bid = 0")
    count = f"SELECT COUNT(*) FROM {NAME}"
    spec = bucketize.TWO_SIZE.spec(tmp_path)
    too_low = spec | {"mechanism": {"kind": "bucketize", "threshold": "1/100"}}
    unknown = spec | {"columns": spec["columns"] | {"sensitive": "diseas"}}
    gone = spec | {"source": {"file": str(tmp_path / "gone.parquet")}}
    ends = [
        (way.query(made.release, count), 0, ""),
        (way.verify(edited), 1, ""),
        (way.query(made.release, f"SELECT MEDIAN(age) FROM {NAME} WHERE disease = 'flu'"), 2, "MEDIAN"),
        (way.plan(unknown), 2, "did you mean 'disease'?"),
        (way.publish(spec | {"release": {"name": NAME, "to": str(made.release)}}, seed=1), 2, "replace"),
        (way.plan(too_low), 3, "what works"),
        (way.query(tmp_path / "no.duckdb", count), 4, "no.duckdb"),
        (way.plan(gone), 4, "gone.parquet"),
    ]
    assert [(done.code, words in done.facts.get("error", "")) for done, _, words in ends] == [
        (code, True) for _, code, _ in ends
    ]


@pytest.mark.slow
def test_a_process_ends_with_the_same_codes(shelf: Shelf, tmp_path: Path) -> None:
    made = shelf.get(bucketize.TWO_SIZE)
    assert PROCESSES.verify(made.release).code == 0
    assert PROCESSES.query(tmp_path / "no.duckdb", "SELECT 1").code == 4


def test_a_process_answers_as_the_package_does(shelf: Shelf) -> None:
    made = shelf.get(bucketize.TWO_SIZE)
    question = f"SELECT COUNT(*) FROM {NAME} WHERE disease = 'flu' AND sex = 'F'"
    assert PROCESSES.query(made.release, question) == PYTHON.query(made.release, question)


# Answers --------------------------------------------------------------------------------------------------------------


@WAYS
def test_the_keys_of_an_answer(shelf: Shelf, way: Python | Commands) -> None:
    made = shelf.get(bucketize.TWO_SIZE)
    one = Answer(way.query(made.release, f"SELECT COUNT(*) FROM {NAME} WHERE disease = 'flu' AND age < 40").facts)
    assert [list(row) for row in one.rows] == [["estimate", "std_error", "low", "high"]]
    assert (one.rests_on, one.estimator, one.not_in_release) == ("interval", "linear", 0)
    figure = one.figure(one.rows[0])
    assert figure.low <= figure.estimate <= figure.high
    several = f"SELECT sex, COUNT(*) AS n, AVG(age) AS mean FROM {NAME} WHERE disease = 'flu' GROUP BY sex"
    rows = Answer(way.query(made.release, several).facts).rows
    names = [f"{name}{end}" for name in ("n", "mean") for end in ("", "_std_error", "_low", "_high")]
    assert [list(row) for row in rows] == [["sex", *names]] * 2
    exact = Answer(way.query(made.release, f"SELECT COUNT(*) FROM {NAME} WHERE age < 40").facts)
    assert (exact.rests_on, exact.rows) == ("exact", [{"estimate": 300, "std_error": 0, "low": 300, "high": 300}])


@pytest.mark.slow
@WAYS
def test_a_higher_confidence_gives_wider_intervals(shelf: Shelf, way: Python | Commands) -> None:
    release = shelf.get(bucketize.TWO_SIZE).release
    question = f"SELECT COUNT(*) FROM {NAME} WHERE disease = 'flu' AND age < 40"
    widths = []
    for confidence in (0.5, 0.95, 0.999):
        answer = Answer(way.query(release, question, confidence=confidence).facts)
        figure = answer.figure(answer.rows[0])
        widths.append(figure.high - figure.low)
    assert widths == sorted(set(widths))


def test_a_certain_answer_says_so(shelf: Shelf) -> None:
    answer = Answer(
        PYTHON.query(shelf.get(permute.NESTED).release, f"SELECT SUM(pay) FROM {NAME} WHERE age < 40").facts
    )
    assert (answer.rests_on, answer.not_in_release) == ("certain", 0)
