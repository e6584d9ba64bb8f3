"""Typical mistakes: each is one line that says what to do next, in words of the interface that was used."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import duckdb
import pytest

import privsql
from support.commands import refused, run, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PEOPLE = """
SELECT i AS id, i % 40 AS age, i % 2 AS sex, 'z' || i % 5 AS zip, 'd' || i * i % 9 AS disease,
  i * 37 % 700 + 0.5 AS pay, CASE WHEN i % 20 = 0 THEN NULL ELSE 'x' || i % 4 END AS maybe, [i] AS things
FROM range(800) t(i)
"""
SPEC = """
[source]
file = "people.parquet"
[columns]
quasi_identifiers = ["age", "sex", "zip"]
{sensitive} = "disease"
[release]
name = "people"
to = "r.duckdb"
[mechanism]
{threshold} = "0.5"
[ledger]
off = true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a new user has it: files, specifications with mistakes, and one release."""
    place = tmp_path_factory.mktemp("mistakes")
    write(place / "people.parquet", PEOPLE)
    with duckdb.connect(str(place / "w.duckdb")) as db:
        for name in ("a", "b"):
            db.execute(f"CREATE TABLE {name} AS FROM '{place / 'people.parquet'}'")
        db.execute(f"COPY (SELECT * EXCLUDE (things) FROM a) TO '{place / 'people.csv'}'")
    (place / "semi.csv").write_text("age;disease\n" + "".join(f"{i};d{i % 3}\n" for i in range(30)))
    for name, text in (("empty.csv", ""), ("broken.toml", "[source\n"), ("notes.txt", "hi")):
        (place / name).write_text(text)
    for name, words in (("good", {}), ("typo", {"threshold": "threshhold"}), ("other", {"sensitive": "sensitiv"})):
        text = SPEC.format(**{"sensitive": "sensitive", "threshold": "threshold"} | words)
        (place / f"{name}.toml").write_text(text)
    succeeded("publish", place / "good.toml", "--seed", 1)
    return place


TABLE = "people.parquet --qi age --sensitive disease"
ASKED = f"{TABLE} --threshold 0.5 --to x.duckdb --set ledger.off=true"
MISTAKES = [  # a command, its exit code, and what its line must hold: what is wrong, and what to do
    ("publish", 2, "SPEC.toml|SOURCE", "privsql publish --help"),
    ("publsh good.toml", 2, "Did you mean 'publish'?"),
    ("publish god.toml", 4, "no such file", "did you mean 'good.toml'?"),
    ("publish mine.toml", 4, "'privsql init SOURCE --output mine.toml' writes one"),
    ("publish peple.parquet --qi age --sensitive disease --threshold 0.5", 4, "did you mean 'people.parquet'?"),
    ("publish nowhere/people.parquet --qi age --sensitive disease --threshold 0.5", 4, "there is no folder nowhere"),
    ("publish notes.txt --qi age --sensitive disease --threshold 0.5", 4, "a file that ends in .parquet or .csv"),
    ("publish broken.toml", 2, "Expected ']'", "line 1"),
    ("publish typo.toml", 2, "mechanism.threshhold: there is no such key", "did you mean 'threshold'?"),
    ("publish other.toml", 2, "columns.sensitiv: there is no such key", "did you mean 'sensitive'?"),
    ("publish good.toml", 2, "r.duckdb exists", "option replace publishes over it"),
    (
        "publish people.parquet",
        2,
        "columns.sensitive is needed",
        "'privsql init people.parquet' proposes a specification",
    ),
    ("publish people.parquet --sensitive disease", 2, "columns.quasi_identifiers is needed", "privsql init"),
    (f"publish {TABLE}", 2, "mechanism.threshold is needed", "privsql init"),
    ("publish people.parquet --qi age --sensitive desease --threshold 0.5", 2, "did you mean 'disease'?"),
    ("publish people.parquet --qi aeg --sensitive disease --threshold 0.5", 2, "did you mean 'age'?"),
    ("publish people.parquet --qi age,AGE --sensitive disease --threshold 0.5", 2, "'AGE' has two roles", "once"),
    ("publish people.parquet --qi age,disease --sensitive disease --threshold 0.5", 2, "two roles; list it once"),
    (f"publish {TABLE} --threshold 5", 2, "mechanism.threshold: ", "give a probability, 0.25, or '2*f + 0.02'"),
    (f"publish {TABLE} --threshold 50%", 2, "mechanism.threshold", "such as '8*f + 0.02'"),
    (f"publish {TABLE} --threshold 2*g", 2, "mechanism.threshold", "numbers, f, + - * /"),
    (f"publish {TABLE} --threshold 0.01", 3, "what works: raise thresholds by 0.33"),
    (
        "publish people.parquet --qi age --sensitive maybe --threshold 0.5",
        2,
        "40 records",
        "set columns.nulls.maybe to 'suppress'",
    ),
    ("publish people.parquet --qi age --sensitive id --threshold 0.5", 2, "mechanism.kind = 'permute'", "source.query"),
    (
        "publish people.parquet --qi age --sensitive pay --threshold 0.5",
        2,
        "mechanism.kind = 'permute'",
        "columns.categorical = true",
    ),
    ("publish people.parquet --qi things --sensitive disease --threshold 0.5", 2, "CAST(things AS VARCHAR) AS things"),
    (
        f"publish {TABLE} --threshold 0.5 --to nowhere/x.duckdb --set ledger.off=true",
        4,
        "create the folder, or choose another",
    ),
    (
        f"publish {TABLE} --threshold 0.5 --mechanism bucketise",
        2,
        "mechanism.kind: 'bucketise' is not one of 'bucketize'",
    ),
    (f"publish {TABLE} --threshold 0.5 --algorithm fast", 2, "mechanism.algorithm: 'fast' is not one of", "'optimal'"),
    (f"publish {TABLE} --thresold 0.5", 2, "--threshold"),
    ("publish people.parquet --qi age --sensitive pay --mechanism permute", 2, "mechanism.k is needed"),
    (f"publish {TABLE} --mechanism randomize", 2, "rho1 is missing; give both"),
    ("publish w.duckdb --qi age --sensitive disease --threshold 0.5", 2, "holds a, b", "source.table"),
    (
        "publish w.duckdb --set source.table=c --qi age --sensitive disease --threshold 0.5",
        2,
        "no table 'c'",
        "privsql init",
    ),
    (
        "publish semi.csv --set source.options.quote=xy --qi a --sensitive disease --threshold 0.5",
        2,
        "source.options.quote",
    ),
    ("publish empty.csv --qi age --sensitive disease --threshold 0.5", 4, "it has neither a header nor a line"),
    (
        f"publish {ASKED} --bins zip=5",
        2,
        "columns: bins: column 'zip' is not a quasi-identifier; add it to columns.quasi_identifiers",
    ),
    (f"publish {ASKED} --bins age=five", 2, "columns.bins.age: 'five' is not a width", "month, quarter, year"),
    (
        f"publish {ASKED} --bins age='{{ prefix = 3 }}'",
        2,
        "columns.bins: column 'age' is BIGINT",
        "a prefix needs text",
    ),
    (
        f"publish {ASKED} --qi age,zip --set columns.levels.zip='{{ z0 = \"a\" }}'",
        2,
        "columns.levels does not name",
        "give columns.others a",
    ),
    (
        f"publish {ASKED} --qi age,zip --set columns.levels.zip=groups.csv",
        4,
        "groups.csv",
        "a CSV file of value and group",
    ),
    (f"publish {ASKED} --person zip", 2, "source.persons = 'one' (one record of each person"),
    (f"publish {ASKED} --persons one", 2, "persons needs person, the column that names them"),
    (f"publish {TABLE} --threshold 0.5 --to x.duckdb --id zip", 2, "source.id: column 'zip'", "a unique id for every"),
    (f"publish {ASKED} --seed 1 --key-file key", 2, "give only one of the options key_file and seed"),
    ("publish good.toml --format csv", 2, "release.format: 'csv' is not one of 'duckdb' or 'parquet'"),
    ("init people.csvv", 4, "did you mean 'people."),
    ("init people.parquet --sensitive ill", 2, "it has id, age, sex, zip, disease, pay, maybe"),
    ("init w.duckdb", 2, "choose one or several to join as source.table, or give a source.query"),
    ("init people.parquet --mechanism foo", 2, "is not one of bucketize, randomize"),
    ("plan good.toml --plot x.svg", 2, "add --curve"),
    ("plan good.toml --curve --plot x.pdf", 2, "the ending must be .png or .svg"),
    ("verify rr.duckdb", 4, "no such release", "did you mean 'r.duckdb'?"),
    ("verify people.parquet", 4, "a release is a .duckdb file or a folder"),
    ("verify w.duckdb", 2, "is not a release of privsql", "'privsql publish' makes releases"),
    ("query r.duckdb", 2, "query takes SQL"),
    ("query r.duckdb 'SELECT COUNT(*) FROM persons'", 2, "count with COUNT(*) FROM people"),
    ("query r.duckdb 'SELECT COUNT(*) FROM people WHERE agee = 3'", 2, "did you mean 'age'?"),
    ("query r.duckdb 'SELECT * FROM people'", 2, "COUNT(*) .. GROUP BY", "LIMIT 100"),
    ("query r.duckdb 'SELECT COUNT(* FROM people'", 2, "Expecting ), after 'SELECT COUNT(* FROM'", "column 19"),
    ("query r.duckdb 'SELECT COUNT(*) FROM people WHERE zip LIKE'", 2, "something is missing, after", "LIKE'"),
    ("query r.duckdb 'DELETE FROM people'", 2, "only one SELECT can be answered"),
    ("query r.duckdb 'SELECT MAX(disease) FROM people WHERE age > 3'", 2, "GROUP BY the sensitive column and COUNT(*)"),
    ("query r.duckdb 'SELECT COUNT(*) FROM people' --estimator magic", 2, "is not one of best, linear, baseline"),
    ("query r.duckdb 'SELECT COUNT(*) FROM people JOIN towns USING (zip)'", 2, "attach the file that has it"),
    ("evaluate r.duckdb", 2, "give option source"),
    ("evaluate r.duckdb --source good.toml --workload foo", 2, "a workload is equality, random, ranges, or a file"),
    ("report r.duckdb --to page.pdf", 2, "the name of a page ends in .html"),
    ("serve r.duckdb --port 99999", 2, "--port", "65535"),
    ("ledger", 2, "give option ledger or set PRIVSQL_LEDGER"),
    ("ledger cap good.toml 0", 2, "give the largest epsilon"),
    ("query r.duckdb --itemsets 3", 2, "count with 'privsql query'"),
    ("fit r.duckdb --to r.duckdb", 2, "choose another path"),
]


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 60
    assert len({command for command, *_ in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize(("command", "code", "words"), [(one[0], one[1], one[2:]) for one in MISTAKES])
def test_the_next_step_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: int, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    done = run(*shlex.split(command))
    refused(done, code, *words)
    assert ".toml" in command or "specification: " not in done.err


def test_a_specification_keeps_its_own_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file keys are keys, and in Python nothing is a flag."""
    monkeypatch.chdir(folder)
    text = SPEC.format(sensitive="sensitive", threshold="threshold").replace('"0.5"', '"50%"')
    (folder / "percent.toml").write_text(text)
    refused(run("plan", "percent.toml"), 2, "percent.toml: mechanism.threshold")
    with pytest.raises(privsql.UsageError, match=r"mechanism\.threshold") as error:
        privsql.plan("people.parquet", qi="age", sensitive="disease", threshold="50%")
    assert "--" not in str(error.value)
