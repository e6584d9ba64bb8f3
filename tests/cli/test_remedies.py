"""Every remedy that a message names, carried out on the input that provoked it: it must work."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from privsql.errors import EngineError
from privsql.releases.ledger import publication
from support.commands import refused, run, succeeded, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBER = 300
HEAD = "age,sex,ill"
ROWS = [f"{i % 40},{'fm'[i % 2]},d{i * i % 11 % 5}" for i in range(NUMBER)]
FULL = "\n".join([HEAD, *ROWS]) + "\n"
PEOPLE = f"""
SELECT i AS id, i % 40 AS age, ['f', 'm'][i % 2 + 1] AS sex, 'd' || (i * i % 11 % 5) AS ill, i * 37 % 700 + 0.5 AS pay,
  [i] AS things, i // 2 AS pair, CASE WHEN i % 20 = 0 THEN NULL ELSE 'x' || (i % 3) END AS maybe
FROM range({NUMBER}) t(i)
"""


def insert(line: str, at: int = 100) -> str:
    """The file with one line more."""
    return "\n".join([HEAD, *ROWS[:at], line, *ROWS[at:]]) + "\n"


def joined(separator: str) -> str:
    """The file with another separator."""
    return FULL.replace(",", separator)


FILES: dict[str, str | bytes] = {
    "ok.csv": FULL,
    "trail.csv": FULL.replace(HEAD, f"{HEAD},", 1),
    "total.csv": FULL + "Total:,,300\n",
    "sum.csv": FULL + "Total: 300\n",
    "short.csv": insert("5,f"),
    "long.csv": insert("5,f,d1,x,y"),
    "cp1252.csv": FULL.replace("d1", "d\N{EURO SIGN}").encode("cp1252"),
    "latin.csv": FULL.replace("d1", "d\N{LATIN SMALL LETTER E WITH ACUTE}").encode("latin-1"),
    "utf16.csv": FULL.encode("utf-16"),
    "people.txt": FULL,
    "people.data": FULL,
    "spaces.csv": joined(" "),
    "carets.csv": joined("^"),
    "report.csv": "Report of 2020\n\n" + FULL,
    "twice.csv": FULL.replace(HEAD, "age,age,ill", 1),
    "late.csv": "\n".join([HEAD, *(ROWS * 80), "old,f,d1"]) + "\n",
    "plain.csv.gz": FULL,
    "parquet.csv": b"",  # is written below
    "hash.csv": FULL.replace("\n7,", "\n#7,"),
    "hive/year=2019/a.csv": FULL,
    "hive/year=2020/a.csv": FULL,
    "more/a.csv": FULL,
    "more/b.csv": FULL.replace("\n", ",z\n").replace("ill,z", "ill,more", 1),
    "kinds/a.csv": FULL,
    "kinds/b.csv": re.sub(r"\n(?=\d)", "\nx", FULL),
    "groups.csv": "value,group\nf,woman\n",
    "all.csv": "value,group\nf,woman\nm,man\n",
    "days.csv": "\n".join(["day,sex,ill", *(f"2020-{i % 12 + 1:02d}-03,f,d{i * i % 11 % 5}" for i in range(NUMBER))]),
    "names.toml": "",
    "numbers.csv": "2019,2020\n" + "".join(f"{i % 7},{i * i % 11 % 5}\n" for i in range(NUMBER)),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all of these files, in which the commands run."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(FULL.encode())[:-20])
    write(tmp_path / "ok.parquet", PEOPLE)
    (tmp_path / "parquet.csv").write_bytes((tmp_path / "ok.parquet").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASK = "--qi age,sex --sensitive ill --threshold 0.6 --set ledger.off=true"
OUT = f"{ASK} --to r.duckdb"
Mend = "str | Callable[[Path], object]"


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Return what changes a file by hand."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def leave_out(line: bytes) -> Callable[[bytes], bytes]:
    """Return what deletes a line."""
    return lambda text: text.replace(line + b"\n", b"")


# Each: a command, the words of its message, and every remedy that these name: options to add, another command that
# begins with "privsql", or what changes the file, after which the command itself must work.
REMEDIES: list[tuple[str, str, list[Any]]] = [
    (
        f"plan trail.csv {ASK}",
        'names = ["age", "sex", "ill"], skip = 1',
        [
            """--set 'source.options={ names = ["age", "sex", "ill"], skip = 1 }'""",
            rewrite("trail.csv", lambda text: text.replace(b"ill,", b"ill")),
        ],
    ),
    (
        f"plan total.csv {ASK}",
        "one line has 'Total:' among its numbers",
        [
            """--set 'source.query=SELECT * REPLACE (TRY_CAST("age" AS DOUBLE) AS "age") FROM source WHERE """
            """NOT TRY_CAST("age" AS DOUBLE) IS NULL'""",
            """--set 'source.options={ types = { age = "VARCHAR" } }' --set columns.nulls.ill=value""",
        ],
    ),
    (f"plan sum.csv {ASK}", "line 302 has 1 column, not 3", [rewrite("sum.csv", leave_out(b"Total: 300"))]),
    (
        f"plan short.csv {ASK}",
        "null_padding = true",
        [
            """--set 'source.options={ delimiter = ",", null_padding = true }' --set columns.nulls.ill=suppress""",
            rewrite("short.csv", leave_out(b"5,f")),
        ],
    ),
    (f"plan long.csv {ASK}", "line 102 has 5 columns, not 3", [rewrite("long.csv", leave_out(b"5,f,d1,x,y"))]),
    (
        f"plan cp1252.csv {ASK}",
        "iconv -f CP1252 -t UTF-8",
        [rewrite("cp1252.csv", lambda text: text.decode("cp1252").encode())],
    ),
    (
        f"plan cp1252.csv {ASK} --set source.options.encoding=latin-1",
        "iconv -f CP1252 -t UTF-8",
        [lambda folder: rewrite("cp1252.csv", lambda text: text.decode("cp1252").encode("latin-1", "replace"))(folder)],
    ),
    (f"plan latin.csv {ASK}", 'encoding = "latin-1"', ["--set source.options.encoding=latin-1"]),
    (f"plan utf16.csv {ASK}", 'encoding = "utf-16"', ["--set source.options.encoding=utf-16"]),
    (f"plan people.txt {ASK}", "source.reader = 'csv'", ["--set source.reader=csv"]),
    (f"plan people.data {ASK}", "source.reader = 'csv'", ["--set source.reader=csv"]),
    ("init people.data --sensitive ill", "source.reader = 'csv'", ["--set source.reader=csv"]),
    (f"plan spaces.csv {ASK}", "delimiter = ' '", ["""--set 'source.options={ delimiter = " " }'"""]),
    (f"plan carets.csv {ASK}", "delimiter = '^'", ["--set source.options.delimiter=^"]),
    ("init carets.csv --sensitive ill", "delimiter = '^'", ["--set source.options.delimiter=^"]),
    (f"plan report.csv {ASK}", "skip = 2", ["--set source.options.skip=2"]),
    (
        f"plan twice.csv {ASK}",
        "names = [..], skip = 1",
        ["""--set 'source.options={ names = ["age", "sex", "ill"], skip = 1 }'"""],
    ),
    (
        f"plan late.csv {ASK}",
        'types = { age = "VARCHAR" }',
        ["--set source.options.types.age=VARCHAR", """--set 'source.options.nullstr=["", "old"]'"""],
    ),
    (
        f"plan late.csv {ASK} --set source.options.sample_size=-1",
        "one line has 'old' among its numbers",
        ["--set source.options.types.age=VARCHAR"],
    ),
    (f"plan plain.csv.gz {ASK}", 'compression = "none"', ["--set source.options.compression=none"]),
    (
        f"plan cut.csv.gz {ASK}",
        "get it anew",
        [rewrite("cut.csv.gz", lambda _: gzip.compress(FULL.encode()))],
    ),
    (f"plan parquet.csv {ASK}", "source.reader = 'parquet'", ["--set source.reader=parquet"]),
    (
        f"plan hash.csv {ASK}",
        'comment = "#"',
        ["--set source.options.comment=#", "--set source.options.comment= --set source.options.types.age=VARCHAR"],
    ),
    (f"plan hive {ASK}", "hive/**/*.csv", [f"privsql plan 'hive/**/*.csv' {ASK}"]),
    (
        "plan 'hive/*/*.csv' --qi year,sex --sensitive ill --threshold 0.6 --set ledger.off=true",
        "source.hive_partitioning = true",
        ["--set source.hive_partitioning=true"],
    ),
    (f"plan 'more/*.csv' {ASK}", "source.union_by_name = true", ["--set source.union_by_name=true"]),
    (
        f"plan 'kinds/*.csv' {ASK}",
        'types = { age = "VARCHAR" }',
        ["--set source.options.types.age=VARCHAR", "--set source.union_by_name=true"],
    ),
    (
        "plan ok.parquet --qi age,pair --sensitive ill --threshold 0.6 --set ledger.off=true --bins age=10,pair=20",
        "--bins age=10 --bins pair=20",
        ["privsql plan ok.parquet --qi age,pair --sensitive ill --threshold 0.6 --set ledger.off=true --bins age=10 "
         "--bins pair=20"],
    ),
    (
        f"plan ok.csv {ASK} --bins age=5,10",
        "edges such as { edges = [0, 18, 65] }",
        [f"privsql plan ok.csv {ASK} --bins 'age={{ edges = [0, 18, 65] }}'"],
    ),
    (
        f"plan ok.csv {ASK} --bins sex=2",
        "give { prefix = N }",
        [f"privsql plan ok.csv {ASK} --bins 'sex={{ prefix = 1 }}'",
         f"""privsql plan ok.csv {ASK} --set 'columns.levels.sex={{ f = "a", m = "b" }}'"""],
    ),
    (
        "plan days.csv --qi day --sensitive ill --threshold 0.6 --set ledger.off=true --bins day=5",
        "dates take 'month', 'quarter' or 'year'",
        ["privsql plan days.csv --qi day --sensitive ill --threshold 0.6 --set ledger.off=true --bins day=quarter"],
    ),
    (
        f"plan ok.csv {ASK} --set columns.levels.sex=groups.csv",
        "150 records (such as 'm') hold values that columns.levels does not name",
        ["--set columns.others.sex=rest", f"privsql plan ok.csv {ASK} --set columns.levels.sex=all.csv"],
    ),
    (
        f"plan ok.csv {ASK} --set columns.levels.age=groups.csv",
        "{ round = N } or a width in columns.bins, or cast it to VARCHAR in source.query",
        [
            f"privsql plan ok.csv {ASK} --bins age=10",
            f"privsql plan ok.csv {ASK} --bins 'age={{ round = 10 }}'",
            """--set columns.others.age=rest --set 'source.query=SELECT * REPLACE (age::VARCHAR AS age) FROM source'""",
        ],
    ),
    (
        "plan ok.parquet --qi age,things --sensitive ill --threshold 0.6 --set ledger.off=true",
        "CAST(things AS VARCHAR) AS things",
        ["--set 'source.query=SELECT * REPLACE (CAST(things AS VARCHAR) AS things) FROM source'"],
    ),
    (
        "plan ok.parquet --qi age --sensitive id --threshold 0.6 --set ledger.off=true",
        "mechanism.kind = 'permute'",
        ["privsql plan ok.parquet --qi age --sensitive id --set ledger.off=true --mechanism permute "
         "--set mechanism.k=5 --set mechanism.e=9"],
    ),
    (
        f"plan ok.parquet {ASK} --set source.person=pair",
        "'one' (one record of each person), 'first' (the first one by source.order) or 'count'",
        [
            "--set source.persons=one",
            "--set source.persons=first --set source.order=id",
            "--set source.persons=count",
        ],
    ),
    (
        "plan ok.parquet --qi age --sensitive maybe --threshold 0.6 --set ledger.off=true",
        "'suppress' (leave them out) or 'value'",
        ["--set columns.nulls.maybe=suppress", "--set columns.nulls.maybe=value"],
    ),
    (
        "plan numbers.csv --qi 2019 --sensitive 2020 --threshold 0.6 --set ledger.off=true "
        "--set columns.categorical=true",
        "header = true",
        ["--set source.options.header=true"],
    ),
    (
        f"publish ok.parquet {ASK} --to nowhere/r.duckdb",
        "create the folder, or choose another",
        [lambda folder: (folder / "nowhere").mkdir(), f"privsql publish ok.parquet {OUT}"],
    ),
    (
        f"publish ok.parquet {ASK} --to {'m' * 240}.duckdb",
        "choose a shorter name",
        [f"privsql publish ok.parquet {ASK} --to {'m' * 200}.duckdb"],
    ),
    (
        "init ok.csv --sensitive disease",
        "it has age, sex, ill",
        ["privsql init ok.csv --sensitive ill"],
    ),
    ("init ok.csv", "option sensitive names it, likely ones: ill", ["--sensitive ill"]),
    (
        f"plan ok.csv {ASK} --set 'source.query=SELECT age, ill FROM source'",
        "it has age, ill",
        [f"privsql plan ok.csv {ASK} --qi age --set 'source.query=SELECT age, ill FROM source'"],
    ),
]  # fmt: skip


def test_there_are_forty() -> None:
    assert len(REMEDIES) >= 40
    assert len({command for command, *_ in REMEDIES}) == len(REMEDIES)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "words", "remedies"), REMEDIES)
def test_every_remedy_of_a_message_works(folder: Path, command: str, words: str, remedies: list[Any]) -> None:
    done = run(*shlex.split(command))
    refused(done, done.code or 2, words)
    for remedy in remedies:
        if callable(remedy):
            remedy(folder)
            succeeded(*shlex.split(command))
        elif remedy.startswith("privsql "):
            succeeded(*shlex.split(remedy)[1:])
        else:
            succeeded(*shlex.split(command), *shlex.split(remedy))


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are Unicode there")
def test_a_path_that_is_not_utf8_is_renamed(folder: Path) -> None:
    strange = os.fsdecode(os.fsencode(folder) + b"/bad\xff.csv")
    Path(strange).write_text(FULL)
    refused(run("plan", strange, *shlex.split(ASK)), 4, "its path is not UTF-8", "rename it")
    Path(strange).rename(folder / "good.csv")
    succeeded("plan", folder / "good.csv", *shlex.split(ASK))


def test_a_release_is_not_joined_with_itself(folder: Path) -> None:
    succeeded(*shlex.split(f"publish ok.parquet {OUT}"))
    pairs = "SELECT COUNT(*) FROM ok a JOIN ok b ON a.age = b.age"
    refused(run("query", "r.duckdb", "--no-fit", pairs), 2, "COUNT(*) * (COUNT(*) - 1) / 2")
    counted = "SELECT age, COUNT(*) * (COUNT(*) - 1) / 2 AS pairs FROM ok GROUP BY age"
    rows = succeeded("query", "r.duckdb", "--no-fit", counted, "--json").json["rows"]
    assert sum(row["pairs"] for row in rows) == sum(n * (n - 1) / 2 for n in [8] * 20 + [7] * 20)


def test_a_ledger_that_is_full_says_that_the_release_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release is in the ledger before it comes into place; what comes after can't undo it."""
    write_out = publication.write_events

    @contextmanager
    def fill_disk() -> Iterator[None]:
        def write_nothing(db: Any, book: Any, *events: Any) -> None:
            if any(name == "out" for name, _ in events):
                raise EngineError("ledger.duckdb: No space left on device")
            write_out(db, book, *events)

        with monkeypatch.context() as patched:
            patched.setattr(publication, "write_events", write_nothing)
            yield

    asked = shlex.split(ASK.replace("--set ledger.off=true", "--ledger ledger.duckdb"))
    ask = ["publish", "ok.parquet", *asked, "--set", "source.population=town"]
    with fill_disk():
        done = run(*ask, "--to", "r.duckdb")
    refused(done, 4, "r.duckdb is written", "release 1", "No space left", "do not publish again")
    succeeded("verify", "r.duckdb")
    assert "r.duckdb" in succeeded("ledger", "--ledger", "ledger.duckdb", "--json").out


def uncommented(text: str) -> str:
    """The text of a proposal with its comments as keys, one after the other until the other mechanism begins."""
    kept = text.split("# Or, in place of the mechanism above:")[0]
    return re.sub(r"(?m)^# (?=[\w.]+ = )", "", kept)


VISITS = """
SELECT i AS {name}, i % 37 AS age, i * 37 % 9001 / 3.0 AS height, i % 5 AS code, 'v' || i % 5 AS ill
FROM range(400) t(i)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["patient", "id", "i"])
@pytest.mark.parametrize("promise", ["tables", "bucketize"])
def test_comments_of_a_proposal_load_once_they_are_keys(folder: Path, name: str, promise: str) -> None:
    """``person`` stood below ``[source.options]``, and bins in ``[decide]``."""
    write(folder / "v.parquet", VISITS.format(name=name))
    import duckdb

    with duckdb.connect() as db:
        db.execute("COPY (FROM 'v.parquet') TO 'v.csv'")
    text = succeeded(
        "init", "v.csv", "--sensitive", "ill", "--promise", promise, "--set", 'source.options.nullstr=["", "-"]'
    )
    spec = tomllib.loads(uncommented(text.out))
    decide = spec.pop("decide", {})
    assert "height" in decide.get("measurements", ["height"])
    before = tomllib.loads(text.out)
    commented = {key for key in spec["source"] if key not in before["source"]}
    assert not commented - {"person", "persons", "population"}
    assert "height" in spec["columns"].get("bins", {"height": 0})
    kept = re.sub(r"(?ms)^\[decide\].*?(?=^\[)", "", uncommented(text.out))
    kept = kept.replace('quasi_identifiers = ["age"', 'quasi_identifiers = ["height", "age"')
    (folder / "spec.toml").write_text(kept)
    values = ["--set", f"mechanism.values={decide['values']}"] if "values" in decide else []
    succeeded("plan", "spec.toml", "--set", "ledger.off=true", *values)
