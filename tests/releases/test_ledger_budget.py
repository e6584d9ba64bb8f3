"""Budgets live in the ledger: nothing left out of a specification, raised in it or copied resets what was spent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from support.commands import composed, manifest, refused, run, specification, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

QUERY = (
    "SELECT CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END AS sex, ['a', 'b', 'c'][1 + i * i % 3] AS job, i * 7 % 3001 AS nr"
)
CELLS = (
    'kind = "contingency"\nepsilon = {}\nallow_empty = true\ndomains = {{ sex = ["f", "m"], job = ["a", "b", "c"] }}'
)
SETS = 'kind = "setvalued"\nepsilon = {}\nallow_empty = true\nuniverse = ["ale", "figs"]'
COLUMNS = {"people.parquet": 'categories = ["sex", "job"]', "goods.parquet": 'items = "goods"'}
EXACT = {"records", "published", "suppressed", "fresh", "held_back", "rows", "fingerprint", "once", "twice"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with two tables."""
    write(tmp_path / "people.parquet", f"{QUERY} FROM range(300) t(i)")
    write(
        tmp_path / "goods.parquet",
        "SELECT i AS nr, [['ale'], ['figs', 'ale'], []][1 + i % 3] AS goods FROM range(90) t(i)",
    )
    return tmp_path


def spec(
    folder: Path,
    epsilon: object = 1,
    ledger: str = "",
    source: str = 'file = "people.parquet"',
    columns: str = "",
    *,
    ids: bool = True,
) -> Path:
    """A request to publish the people's cells, or the sets of goods."""
    given = columns or COLUMNS["goods.parquet" if "goods" in source else "people.parquet"]
    mechanism = SETS if "goods" in given else CELLS
    return specification(
        folder,
        source=f'{source}\nid = "nr"' if ids else source,
        columns=given,
        release='name = "counts"\nto = "counts.duckdb"',
        mechanism=f"{mechanism.format(epsilon)}\n{ledger}",
    )


def publish(path: Path, *flags: object) -> dict[str, Any]:
    """One more release, over the last one."""
    return dict(succeeded("publish", path, "--replace", *flags, "--json").json)


CAP = "[ledger]\nepsilon = 2.5"


@pytest.mark.slow
@pytest.mark.parametrize("source", rest_slow(['file = "people.parquet"', 'file = "goods.parquet"']))
@pytest.mark.parametrize("ledger", rest_slow(["", "[ledger]\nepsilon = 100", "[ledger]", "[ledger]\nepsilon = 2.6"]))
def test_neither_leaving_the_ledger_out_nor_a_larger_number_resets_what_was_spent(
    source: str, ledger: str, place: Path
) -> None:
    for _ in range(2):
        publish(spec(place, ledger=CAP, source=source))
    again = spec(place, ledger=ledger, source=source)
    refused(run("publish", again, "--replace"), 3, "0.5 is left of the budget 2.5", "spent 2", "ledger cap")
    done = publish(spec(place, epsilon="0.5", ledger=ledger, source=source))
    assert (done["ledger"]["spent"], done["ledger"]["cap"]) == ("2.5", "2.5")


@pytest.mark.slow
@pytest.mark.parametrize("file", rest_slow(["people.parquet", "goods.parquet"]))
@pytest.mark.parametrize("cap", rest_slow(["", CAP]))
def test_a_copy_under_another_name_shares_the_budget(file: str, cap: str, place: Path) -> None:
    """By its ids, or without ids by its records; only one id is enough."""
    write(place / "ids.parquet", f"SELECT * REPLACE (md5(nr::VARCHAR) AS nr) FROM '{place / file}'")
    publish(spec(place, 2, ledger=cap, source='file = "ids.parquet"', columns=COLUMNS[file]))
    write(place / "one.parquet", f"SELECT * FROM '{place / 'ids.parquet'}' LIMIT 1")
    write(place / "copy.parquet", f"SELECT *, upper(nr) AS id FROM '{place / 'ids.parquet'}'")
    for other in ("copy.parquet", "one.parquet"):
        beyond = spec(place, 1, source=f'file = "{other}"', columns=COLUMNS[file])
        if cap:
            refused(
                run("publish", beyond, "--replace"),
                3,
                "0.5 is left of the budget 2.5",
                f"ledger cap {place.name}/ids 3",
            )
    done = publish(spec(place, 0.25, source='file = "copy.parquet"', columns=COLUMNS[file]))
    assert done["ledger"]["spent"] == "2.25"
    assert "together spend epsilon 2.25" in composed(place / "counts.duckdb")[0]
    if not cap:
        for other, spent in (("one", "0.25"), ("copy", "2.5")):
            source = f'file = "{other}.parquet"\npopulation = "{other} again"'
            done = publish(spec(place, 0.25, source=source, columns=COLUMNS[file], ids=False))
            assert done["ledger"]["spent"] == spent


@pytest.mark.slow
def test_queries_of_one_table_share_its_budget(place: Path) -> None:
    with duckdb.connect(str(place / "house.duckdb")) as db:
        db.execute(f"CREATE TABLE people AS {QUERY} FROM range(300) t(i)")
        db.execute("CREATE TABLE cars AS SELECT 'f' AS sex, 'a' AS job, i AS nr FROM range(9) t(i)")
    table = 'database = "house.duckdb"\ntable = "people"'
    publish(spec(place, ledger=CAP, source=table))
    for query in ("SELECT * FROM People WHERE nr <> 14", 'SELECT p.* FROM main."people" p JOIN cars ON true'):
        asked = spec(place, 2, source=f"database = \"house.duckdb\"\nquery = '{query}'")
        refused(run("publish", asked, "--replace"), 3, "1.5 is left")
    cars = spec(place, 2, source='database = "house.duckdb"\ntable = "cars"')
    assert publish(cars)["ledger"]["spent"] == "2"


@pytest.mark.slow
def test_a_cap_is_raised_by_a_verb_that_is_recorded(place: Path) -> None:
    path = spec(place, 2, ledger=CAP)
    publish(path)
    refused(run("ledger", "cap", path, "many"), 2, "'many' is not an exact number")
    refused(run("ledger", "cap", path, "0"), 2, "0 is not above 0")
    raised = run("ledger", "cap", path, "4.5", "--json")
    assert (raised.code, raised.json["spent"], raised.json["cap"]) == (0, "2", "4.5")
    assert "ledger.epsilon" in raised.err  # which says 2.5 still
    path = spec(place, 2)
    assert publish(path)["ledger"]["cap"] == "4.5"
    refused(run("publish", path, "--replace"), 3, "0.5 is left of the budget 4.5")
    with duckdb.connect(os.environ["PRIVSQL_LEDGER"], read_only=True) as db:
        told = db.execute("SELECT content FROM events WHERE kind = 'cap' ORDER BY event").fetchall()
    assert ['"by": "specification"' in told[0][0], '"by": "publisher"' in told[1][0]] == [True, True]
    assert "4 spent, of at most 4.5" in succeeded("ledger", path).out
    succeeded("ledger", "cap", path, "3")  # less than is spent: nothing more
    refused(run("publish", spec(place, "0.01"), "--replace"), 3, "0 is left of the budget 3")


def test_a_cap_that_was_never_set_can_be_set_before_the_first_release(place: Path) -> None:
    path = spec(place, 1)
    assert succeeded("ledger", "cap", path, "1/2", "--json").json["cap"] == "0.5"
    refused(run("publish", path), 3, "0.5 is left")


@pytest.mark.slow
def test_a_cap_needs_names(place: Path) -> None:
    """A source that is known by its name alone, and by a copy with a row less, has a budget under each of them."""
    for path in (
        spec(place, ledger=CAP, ids=False),
        spec(place, source='file = "goods.parquet"', ledger=CAP, ids=False),
    ):
        refused(run("publish", path), 2, "a budget needs source.id or source.person")
    refused(run("ledger", "cap", spec(place, ids=False), 2), 2, "a budget needs source.id or source.person")
    succeeded("ledger", "cap", spec(place), 2)
    refused(run("publish", spec(place, ids=False)), 2, "a budget needs source.id or source.person")
    assert not (place / "counts.duckdb").exists()


CHANGED = {
    "older by a year": "SELECT * REPLACE (nr, upper(sex) AS sex, upper(job) AS job) FROM one",
    "a row less": "SELECT * FROM one LIMIT 299",
    "one of them among others": "SELECT * FROM one LIMIT 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", rest_slow(list(CHANGED)))
@pytest.mark.parametrize("named", rest_slow(['id = "uid"', 'person = "uid"\npersons = "one"']))
def test_the_same_people_in_another_file_share_the_budget(case: str, named: str, place: Path) -> None:
    """With a cap of 1, .6 was spent twice on the same ids beside other values."""
    write(place / "one.parquet", f"SELECT *, md5(nr::VARCHAR) AS uid FROM '{place / 'people.parquet'}'")
    publish(spec(place, "0.6", "[ledger]\nepsilon = 1", f'file = "one.parquet"\n{named}', ids=False))
    query = (
        CHANGED[case].replace("* REPLACE (nr, ", "* REPLACE (").replace("FROM one", f"FROM '{place / 'one.parquet'}'")
    )
    write(place / "two.parquet", query)
    two = spec(place, "0.6", "", f'file = "two.parquet"\n{named}', ids=False)
    two.write_text(two.read_text().replace('["f", "m"]', '["f", "m", "F", "M"]').replace('"c"]', '"c", "A", "B", "C"]'))
    for flags in ([], ["--allow-composition"]):
        refused(run("publish", two, "--replace", *flags), 3, "0.4 is left of the budget 1")
    two.write_text(two.read_text().replace("epsilon = 0.6", "epsilon = 0.3"))
    assert publish(two)["ledger"]["spent"] == "0.9"


@pytest.mark.slow
@pytest.mark.parametrize("named", ['id = "nr"', 'person = "nr"\npersons = "one"'])
def test_other_people_have_a_budget_of_their_own(named: str, place: Path) -> None:
    """Numbers from 1 on of another sample; equal kinds of records that all such tables hold."""
    cap = "[ledger]\nepsilon = 1"
    for name in ("one", "two"):
        column = f"['a', 'b', 'c'][1 + (md5_number('{name}' || nr) % 3)::INTEGER] AS job"
        sex = f"['f', 'm'][1 + (md5_number('{name}s' || nr) % 2)::INTEGER] AS sex"
        write(place / f"{name}.parquet", f"SELECT {column}, {sex}, nr FROM '{place / 'people.parquet'}'")
        done = publish(spec(place, "0.6", cap, f'file = "{name}.parquet"\n{named}', ids=False))
        assert done["ledger"]["spent"] == "0.6"


@pytest.mark.slow
def test_without_a_cap_the_total_is_shown(place: Path) -> None:
    path = spec(place, "'1/3'")
    publish(path)
    shown = " ".join(succeeded("publish", path, "--replace").out.split())
    assert "epsilon 2/3 spent with this one, no cap is set" in shown
    spent = "all releases of these people together spend epsilon 0.666667, no cap is set"
    assert composed(place / "counts.duckdb") == [spent]
    assert spent in " ".join(succeeded("verify", place / "counts.duckdb").out.split())
    assert "epsilon: 2/3 spent, no cap is set" in succeeded("ledger", path).out
    listed = succeeded("ledger", path, "--json").json
    assert (listed["spent"], listed["cap"]) == ("2/3", None)
    assert succeeded("plan", path, "--json").json["ledger"]["spent"] == "2/3"


@pytest.mark.slow
def test_neither_withdrawing_nor_replacing_gives_a_budget_back(place: Path) -> None:
    path = spec(place, 1)
    publish(path)
    assert publish(path)["ledger"]["replaced"] == 1
    assert publish(path, "--nobody-has-it")["ledger"]["withdrawn"] == 2
    succeeded("ledger", "withdraw", place / "counts.duckdb")
    listed = succeeded("ledger", path, "--json").json
    assert [entry["withdrawn"] for entry in listed["releases"]] == [False, True, True]
    assert listed["spent"] == "3"


@pytest.mark.slow
def test_what_is_refused_spends_nothing_and_what_fails_after_drawing_does(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privsql.errors import EngineError
    from privsql.releases.draft import Draft

    wrong = spec(place)
    wrong.write_text(wrong.read_text().replace('["f", "m"]', '["f", "f"]'))
    refused(run("publish", wrong), 2, "sex")
    assert not os.path.exists(os.environ["PRIVSQL_LEDGER"])

    def full(self: Draft, made: Path) -> None:
        raise EngineError(f"{made}: no space")

    monkeypatch.setattr(Draft, "commit", full)
    refused(run("publish", spec(place)), 4, "no space")
    listed = succeeded("ledger", spec(place), "--json").json
    assert (listed["spent"], [entry["withdrawn"] for entry in listed["releases"]]) == ("1", [True])


@pytest.mark.slow
def test_what_was_drawn_is_spent_though_the_process_is_killed(place: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from privsql.releases.draft import Draft\n"
        "Draft.commit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "import privsql\n"
        "privsql.publish(privsql.load(__import__('pathlib').Path(sys.argv[1])))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, spec(place, ledger="[ledger]\nepsilon = 1")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (place / "counts.duckdb").exists()
    refused(run("publish", spec(place)), 3, "0 is left of the budget 1")


@pytest.mark.slow
def test_no_exact_count_leaves(place: Path) -> None:
    path = spec(place)
    said = [publish(path), succeeded("plan", path, "--json").json, succeeded("ledger", path, "--json").json]
    for shown in [*said, manifest(place / "counts.duckdb")]:
        assert not list(_counts(shown)), shown
    for text in (succeeded("publish", path, "--replace").out, succeeded("ledger", path).out):
        assert "300" not in text


def _counts(shown: Any) -> list[str]:
    if isinstance(shown, dict):
        own = [key for key, value in shown.items() if key in EXACT and value is not None]
        return own + [key for value in shown.values() for key in _counts(value)]
    return [key for value in shown for key in _counts(value)] if isinstance(shown, list) else []


@pytest.mark.slow
def test_leaving_out_where_the_ledger_lies_is_noticed(place: Path) -> None:
    publish(spec(place, ledger=f'{CAP}\ndatabase = "own.db"'))
    for ledger in ("", '[ledger]\ndatabase = "third.db"'):
        refused(
            run("publish", spec(place, ledger=ledger), "--replace"), 2, "own.db", "ledger.database or PRIVSQL_LEDGER"
        )
        succeeded("plan", spec(place, ledger=ledger))
    refused(run("publish", spec(place, 2, ledger='[ledger]\ndatabase = "own.db"'), "--replace"), 3, "1.5 is left")
    goods = 'file = "goods.parquet"'
    publish(spec(place, source=goods))
    elsewhere = spec(place, source=goods, ledger='[ledger]\ndatabase = "own.db"')
    refused(run("publish", elsewhere, "--replace"), 2, "ledger.duckdb", "ledger.database")


@pytest.mark.slow
def test_without_a_ledger_the_release_says_so(place: Path) -> None:
    path = spec(place, ledger="[ledger]\noff = true")
    done = publish(path)
    assert done["ledger"] == {"off": True}
    assert "without a ledger" in composed(place / "counts.duckdb")[0]
    for verbose in ([], ["--verbose"]):
        assert "without a ledger" in " ".join(succeeded("verify", *verbose, place / "counts.duckdb").out.split())
    assert not os.path.exists(os.environ["PRIVSQL_LEDGER"])
    refused(run("ledger", path), 2, "ledger.off")
    refused(
        run("publish", spec(place, ledger="[ledger]\noff = true\nepsilon = 1")),
        2,
        "off can't be combined with other keys",
    )
