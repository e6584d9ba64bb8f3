"""Where the ledger lies, who can read it, what a killed process leaves of it, and who waits for whom."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import duckdb
import pytest

import privsql
from privsql.engine.open import log_of
from privsql.errors import EngineError, GuaranteeError, InfeasibleError
from privsql.releases.contents import digest_release
from privsql.releases.ledger import book
from privsql.source.targets import Target
from support.commands import manifest, refused, run, specification, succeeded, write
from support.ledgers import FOLDER
from support.loops import each, rest_slow
from support.office import COLUMNS, SALARIES, Office
from support.rights import mode

ALONE = "no earlier release of these people"
BUCKETIZE = 'kind = "bucketize"\nthreshold = 0.5'
CELLS = 'kind = "contingency"\nepsilon = 1\nallow_empty = true\ndomains = { age = "data" }'


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """An office with the thesis' D0."""
    (tmp_path / "office").mkdir()
    made = Office(tmp_path / "office")
    made.hire(SALARIES[0])
    return made


# Where ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_ledger_lies_in_the_state_folder(office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIVSQL_LEDGER")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    office.publish()
    assert (tmp_path / "state" / "privsql" / "ledger.duckdb").exists()
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the standard says that such a one is to be ignored
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for system, folder in (("linux", ".local/state"), ("darwin", "Library/Application Support")):
        monkeypatch.setattr("sys.platform", system)
        assert book.default_path() == tmp_path / "home" / folder / "privsql" / "ledger.duckdb"
    monkeypatch.setenv("PRIVSQL_LEDGER", str(tmp_path))
    assert book.default_path() == tmp_path / "ledger.duckdb"
    monkeypatch.setenv("PRIVSQL_LEDGER", "here.db")
    assert book.default_path() == Path.cwd() / "here.db"


@pytest.mark.slow
def test_a_ledger_that_can_not_be_written_stops_a_release(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    (office.folder / "file").write_text("")
    monkeypatch.setenv("PRIVSQL_LEDGER", str(office.folder / "file" / "ledger.duckdb"))
    refused(run(*office.arguments()), 4, "ledger", "PRIVSQL_LEDGER")
    assert not office.made[0].exists()
    assert succeeded("plan", office.spec(), "--json").json["groups"] == 2
    own = {"mechanism": 'kind = "permute"\nk = 3\ne = 2\n[ledger]\ndatabase = "own.db"'}
    office.publish(**own)
    assert (office.folder / "own.db").exists()


@pytest.mark.slow
def test_read_only_sources_have_a_ledger(office: Office, tmp_path: Path) -> None:
    source = office.folder / "office.duckdb"
    source.chmod(0o400)
    office.folder.chmod(0o500)
    try:
        given = {"source": f'database = "{source}"\ntable = "people"', "columns": COLUMNS, "release": 'name = "pay"'}
        succeeded("publish", specification(tmp_path, mechanism=BUCKETIZE, **given))
    finally:
        office.folder.chmod(0o700)
    assert not list(office.folder.glob("*ledger*"))
    assert len(succeeded("ledger", "--json").json["releases"]) == 1


# Who can read it ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("lax")
def test_nobody_else_can_read_it(office: Office) -> None:
    office.publish()
    ledger = Path(os.environ["PRIVSQL_LEDGER"])
    assert mode(ledger.parent) == 0o700
    assert {path.name: mode(path) for path in ledger.parent.iterdir()} == {
        "ledger.duckdb": 0o600,
        "ledger.duckdb.lock": 0o600,
        "ledger.key": 0o600,
    }
    assert mode(office.made[0]) == 0o644  # a release is for others to read


KILLED = """
import os, signal, sys
from pathlib import Path
os.umask(0)
from privsql.engine.duck.container import DuckContainer
detach = DuckContainer.detach
def killed(self, name):
    if name == "ledger" and Path(os.environ["PRIVSQL_LEDGER"] + ".wal").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    detach(self, name)
DuckContainer.detach = killed
import privsql
privsql.publish(privsql.load(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_what_a_killed_process_leaves_is_private_and_is_kept(office: Office) -> None:
    """Its write-ahead file holds ids and values; what was committed in it counts."""
    path = office.spec(release='name = "pay"\nto = "pay0.duckdb"')
    done = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert done.returncode == -signal.SIGKILL
    ledger = Path(os.environ["PRIVSQL_LEDGER"])
    left = {file.name: mode(file) for file in ledger.parent.iterdir()}
    assert "ledger.duckdb.wal" in left
    assert {name for name, bits in left.items() if bits & 0o077} == set()
    assert mode(ledger.parent) == 0o700
    succeeded("publish", path)
    assert not log_of(ledger).exists()


@pytest.mark.slow
def test_a_file_in_which_nothing_stands_yet_is_a_new_ledger(office: Office) -> None:
    """Whoever made it was killed before its tables came."""
    ledger = Path(os.environ["PRIVSQL_LEDGER"])
    ledger.parent.mkdir(parents=True, exist_ok=True)
    duckdb.connect(str(ledger)).close()
    succeeded("plan", office.spec())
    succeeded("ledger", "--json")
    office.publish()
    assert len(office.entries()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("lax")
def test_rights_that_others_have_are_taken_away(office: Office) -> None:
    office.publish()
    ledger = Path(os.environ["PRIVSQL_LEDGER"])
    ledger.chmod(0o644)
    succeeded("ledger", office.spec())
    assert mode(ledger) == 0o600


# Several at once ------------------------------------------------------------------------------------------------------


def cells(folder: Path, number: int, ledger: str = "") -> privsql.Spec:
    """One of several requests for a table of three hundred."""
    if not (folder / "people.parquet").exists():
        write(folder / "people.parquet", "SELECT i AS id, i % 9 AS age FROM range(300) t(i)")
    given = {
        "source": 'file = "people.parquet"\nid = "id"',
        "columns": 'categories = ["age"]',
        "mechanism": f"{CELLS}\n{ledger}",
    }
    release = f'name = "ages"\nto = "{number}.duckdb"'
    return privsql.load(specification(folder, release=release, name=f"{number}.toml", **given))


def attempted(spec: privsql.Spec) -> str:
    """What becomes of a publication."""
    try:
        privsql.publish(spec)
    except (GuaranteeError, InfeasibleError) as error:
        return type(error).__name__
    return "published"


@pytest.mark.slow
def test_six_at_once_stay_under_one_cap(tmp_path: Path) -> None:
    specs = [cells(tmp_path, number, "[ledger]\nepsilon = 3") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = sorted(pool.map(attempted, specs))
    assert found == ["InfeasibleError"] * 3 + ["published"] * 3
    assert str(privsql.ledger(specs[0]).spent) == "3"
    assert len(list(tmp_path.glob("*.duckdb"))) == 3


@pytest.mark.soak(part="kills")
def test_six_processes_at_once_stay_under_one_cap(tmp_path: Path) -> None:
    for number in range(6):
        cells(tmp_path, number, "[ledger]\nepsilon = 3")
    command = [sys.executable, "-m", "privsql", "publish"]
    running = [
        subprocess.Popen([*command, tmp_path / f"{number}.toml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for number in range(6)
    ]
    assert sorted(process.wait(600) for process in running) == [0, 0, 0, 3, 3, 3]


@pytest.mark.slow
def test_two_at_once_of_the_same_people_are_not_both_published(tmp_path: Path) -> None:
    """Whoever comes second is refused, at the latest when it writes down what it has made."""
    write(tmp_path / "people.parquet", "SELECT i AS id, i % 40 AS age, i % 3 AS sex, i % 5 AS zip FROM range(300) t(i)")
    specs = []
    for number, threshold in enumerate((0.25, 0.5, 0.75)):
        columns = 'quasi_identifiers = ["age", "sex"]\nsensitive = "zip"'
        release = f'name = "ages"\nto = "{number}.duckdb"'
        mechanism = f'kind = "bucketize"\nthreshold = {threshold}\nalgorithm = "two-size"'
        path = specification(tmp_path, columns=columns, release=release, mechanism=mechanism, name=f"{number}.toml")
        specs.append(privsql.load(path))
    with ThreadPoolExecutor(3) as pool:
        found = sorted(pool.map(attempted, specs))
    assert found == ["GuaranteeError", "GuaranteeError", "published"]
    assert [entry.withdrawn for entry in privsql.ledger(specs[0])] == [False]
    assert len(list(tmp_path.glob("*.duckdb"))) == 1


@pytest.mark.slow
def test_one_waits_for_another_and_not_for_ever(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "PATIENCE", 0.2)
    office.publish()
    lock = Path(os.environ["PRIVSQL_LEDGER"] + ".lock")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused(run("ledger", office.spec()), 4, "another process uses it")
        refused(run(*office.arguments()), 4, "another process uses it")
        fcntl.flock(file, fcntl.LOCK_UN)
        assert len(office.entries()) == 1


# Damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    rest_slow(
        [
            "UPDATE events SET content = '{' WHERE kind = 'release'",
            "UPDATE events SET content = '{}' WHERE kind = 'release'",
            "UPDATE events SET kind = 'unheard' WHERE kind = 'release'",
            "DROP TABLE events",
        ]
    ),
)
def test_a_damaged_ledger_stops_whoever_needs_it(statement: str, office: Office) -> None:
    office.publish()
    with duckdb.connect(os.environ["PRIVSQL_LEDGER"]) as db:
        db.execute(statement)
    message = "is no ledger" if "DROP" in statement else "ledger is damaged"
    refused(run("ledger", office.spec()), 4, message)
    refused(run(*office.arguments()), 4, message)
    assert not office.made[1].exists()


@pytest.mark.slow
def test_a_ledger_of_another_format_is_refused(office: Office) -> None:
    office.publish()
    with duckdb.connect(os.environ["PRIVSQL_LEDGER"]) as db:
        db.execute(
            "UPDATE events SET content = replace(content, '\"format\": 1', '\"format\": 2') WHERE kind = 'ledger'"
        )
    refused(run("ledger", office.spec()), 4, "is of format 2", "publish anew")
    refused(run(*office.arguments()), 4, "is of format 2", "publish anew")


@pytest.mark.slow
def test_a_ledger_that_has_lost_its_key_is_refused(office: Office) -> None:
    office.publish()
    book.key_of(Path(os.environ["PRIVSQL_LEDGER"])).unlink()
    refused(run(*office.arguments()), 4, "its key", "is missing")


def test_an_entry_without_a_field_is_damaged() -> None:
    names = [one.name for one in fields(book.LedgerEntry)]
    whole = dict.fromkeys(names, 1) | {"population": [], "counters": []}
    whole["rows"] = {"records": 1, "fingerprint": "1"}
    assert len(book.Book.from_rows([("release", json.dumps(whole))]).entries) == 1
    for name in names:
        with pytest.raises(EngineError, match="damaged"):
            book.Book.from_rows([("release", json.dumps({key: whole[key] for key in names if key != name}))])


@pytest.mark.slow
def test_what_is_no_database_is_no_ledger(office: Office) -> None:
    office.publish()
    Path(os.environ["PRIVSQL_LEDGER"]).write_bytes(b"nothing")
    refused(run("ledger", office.spec()), 4, "ledger.duckdb")
    refused(run(*office.arguments()), 4, "ledger.duckdb")


# What is kept of it ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow([BUCKETIZE, 'kind = "permute"\nk = 3\ne = 2']))
def test_trying_several_settings_over_one_release_stays_easy(mechanism: str, tmp_path: Path) -> None:
    office = Office(tmp_path, mechanism)
    office.hire(SALARIES[0])
    office.publish()
    another = mechanism.replace("0.5", "0.75").replace("e = 2", "e = 1")
    path = office.spec(mechanism=another)
    refused(run("publish", path, "--to", tmp_path / "other.duckdb"), 1, "no guarantee covers both")
    over = ["publish", path, "--to", office.made[0], "--replace"]
    refused(
        run(*over), 1, "no guarantee covers both", "if nobody has received that one, option nobody_has_it withdraws it"
    )
    done = succeeded(*over, "--nobody-has-it")
    assert "release 1, which it replaces, is withdrawn" in " ".join(done.out.split())
    assert [(entry["withdrawn"], entry["composes"]) for entry in office.entries()] == [
        (True, ALONE),
        (False, ALONE),
    ]
    assert manifest(office.made[0])["composition"] == []
    assert "withdrawn" in succeeded("ledger", office.spec()).out


@pytest.mark.slow
def test_a_release_that_never_left_the_house_is_withdrawn(office: Office) -> None:
    office.publish()
    refused(run("ledger", "withdraw", office.folder / "unknown.duckdb"), 2, "unknown.duckdb", "not a current release")
    refused(run("ledger", "withdraw", "7"), 2, "not a current release of the ledger")
    assert succeeded("ledger", "withdraw", office.made[0], "--json").json["withdrawn"] == 1
    refused(run("ledger", "withdraw", office.made[0]), 2, "not a current release of the ledger")
    office.publish(mechanism=BUCKETIZE)
    office.made[1].unlink()
    assert "release 2" in succeeded("ledger", "withdraw", office.made[1]).out
    office.publish(mechanism=BUCKETIZE.replace("5", "75"))
    succeeded("ledger", "withdraw", "3")
    assert [entry["withdrawn"] for entry in office.entries()] == [True, True, True]


@pytest.mark.slow
def test_what_fails_to_come_into_place_is_withdrawn(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    from privsql.errors import EngineError
    from privsql.releases.draft import Draft

    def full(self: Draft, made: Path) -> None:
        raise EngineError(f"{made}: no space")

    with monkeypatch.context() as patched:
        patched.setattr(Draft, "commit", full)
        refused(run(*office.arguments()), 4, "no space")
    assert [entry["withdrawn"] for entry in office.entries()] == [True]
    office.publish()
    assert [entry["composes"] for entry in office.entries()] == [ALONE] * 2


@pytest.mark.slow
def test_trials_are_in_no_ledger(office: Office) -> None:
    path, other = office.spec(mechanism=BUCKETIZE), office.spec(mechanism=BUCKETIZE.replace("5", "75"), name="b.toml")
    succeeded("evaluate", path, other, "--queries", 4)
    succeeded("plan", path)
    assert not Path(os.environ["PRIVSQL_LEDGER"]).exists()
    assert not list(Path(os.environ["PRIVSQL_LEDGER"]).parent.glob("*.key"))


@pytest.mark.slow
@pytest.mark.slow
def test_another_ledger_is_named_on_the_command_line_for_every_verb_that_asks_one(office: Office) -> None:
    own = office.folder / "own.db"
    for people in SALARIES[1:]:
        succeeded(*office.arguments("--ledger", own))
        office.hire(people)
    first, second = office.made
    assert succeeded("plan", office.spec(), "--ledger", own, "--json").json["ledger"]["database"] == str(own)
    both = ["verify", second, "--against", first, "--source"]
    office.sql("DELETE FROM people WHERE id > 10")
    assert "records of releases 1, 2" in succeeded(*both, office.spec(), "--ledger", own, "--verbose").out
    refused(run(*both[:2], "--ledger", own), 2, "give option source as well")
    assert len(succeeded("ledger", "--ledger", own, "--json").json["releases"]) == 2
    assert succeeded("ledger", "cap", office.spec(), 3, "--ledger", own, "--json").json["database"] == str(own)


@pytest.mark.slow
def test_all_sources_are_listed_where_none_is_named(office: Office, tmp_path: Path) -> None:
    office.publish()
    privsql.publish(cells(tmp_path, 1))
    listed = succeeded("ledger", "--json").json
    assert [entry["mechanism"] for entry in listed["releases"]] == ["permute", "contingency"]
    assert [entry["mechanism"] for entry in succeeded("ledger", tmp_path / "1.toml", "--json").json["releases"]] == [
        "contingency"
    ]
    assert succeeded("ledger", "--ledger", os.environ["PRIVSQL_LEDGER"], "--json").json == listed
    one = succeeded("ledger", tmp_path / "1.toml", "--ledger", os.environ["PRIVSQL_LEDGER"], "--json").json
    assert [entry["number"] for entry in one["releases"]] == [2]
    refused(run("ledger", tmp_path / "1.toml", "--ledger", tmp_path / "none.db"), 2, "no ledger yet", "none.db")


WHILE = """
import os, signal, sys
from pathlib import Path
from privsql.releases.draft import Draft
from privsql.releases.ledger.publication import Publication
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
{}
import privsql
privsql.publish(privsql.load(Path(sys.argv[1])), replace=True, nobody_has_it=True)
"""
MOMENTS = {
    "Draft.commit = killed": [1],
    "Publication._append_events = killed": [2],
}  # and what has left the house afterwards


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "live"), rest_slow(MOMENTS.items()))
def test_whether_a_killed_process_has_published_is_seen_by_what_lies_there(
    office: Office, moment: str, live: list[int]
) -> None:
    """Between what is written down and what comes into place: the next release need not be told of it."""
    asked = {"release": 'name = "pay"\nto = "pay.duckdb"', "mechanism": BUCKETIZE}
    succeeded("publish", office.spec(**asked))
    done = subprocess.run([sys.executable, "-c", WHILE.format(moment), office.spec(**asked | {
        "mechanism": BUCKETIZE.replace("5", "6")})], check=False)  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert digest_release(Target(office.folder / "pay.duckdb")) == privsql.ledger()[live[0] - 1].digest
    last = office.spec(**asked | {"mechanism": BUCKETIZE.replace("5", "7")})
    refused(run("publish", last, "--to", office.folder / "other.duckdb"), 1, f"release {live[0]} (pay, bucketize)")
    again = succeeded("publish", last, "--replace", "--nobody-has-it", "--json").json
    assert again["ledger"]["withdrawn"] == live[0]
    listed = succeeded("ledger", last, "--json").json["releases"]
    assert [entry["withdrawn"] for entry in listed] == [True, True, False]


# Tests ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared() -> Path:
    """The ledger of a fixture of several tests."""
    return book.default_path()


@each("number", [1, 2])
def test_tests_use_ledgers_that_are_thrown_away(shared: Path, tmp_path: Path, number: int) -> None:
    own = book.default_path()
    assert {path.parents[1] for path in (own, shared)} == {Path(FOLDER.name).resolve()}
    assert own != shared
    assert not own.parent.exists(), "a case has the ledger of another one"
    own.parent.mkdir()
    assert list(tmp_path.iterdir()) == [], number
