"""CSV files: what would be lost or hidden is refused with the option that reads it, and ``init`` proposes it."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

import privsql
from support.commands import refused, run, succeeded
from support.loops import each

if TYPE_CHECKING:
    from pathlib import Path

LONG = 24_000  # more lines than DuckDB guesses types from
FLAGS = ("--sensitive", "ill", "--threshold", "0.6", "--set", "ledger.off=true")
DAYS = [f"{i % 12 + 1:02d}/{i * 5 % 12 + 1:02d}/2020" for i in range(300)]
DATES = [f"{i % 28 + 1:02d}.{i * 5 % 12 + 1:02d}.2020" for i in range(300)]


def write_csv(path: Path, values: list[str], head: str = "sex;x;ill") -> Path:
    """A file with these values, in columns that semicolons separate."""
    lines = [head, *(f"{'fm'[i % 2]};{value};d{i * i % 11 % 5}" for i, value in enumerate(values))]
    path.write_text("\n".join(lines) + "\n")
    return path


CASES = {  # the values of a column, what is said of it, and the settings that the message names
    "zeros": (
        [f"{10000 + i % 90:05d}" if i < LONG - 9 else f"{i % 90:05d}" for i in range(LONG)],
        "9 of its values begin with 0 or +",
        ["types.x=VARCHAR", "types.x=BIGINT"],
    ),
    "phones": (
        [f"491{i % 90}" if i < LONG - 9 else f"+491{i % 90}" for i in range(LONG)],
        "9 of its values begin with 0 or +",
        ["types.x=VARCHAR"],
    ),
    "days": (DAYS, "day and month can't be told apart", ["dateformat=%d/%m/%Y", "dateformat=%m/%d/%Y"]),
    "decimals": ([f"{i % 9},{i % 7}" for i in range(300)], "decimals behind ','", ['decimal_separator=","']),
    "thousands": ([f"{i % 9 + 1},{i % 7:03d}" for i in range(300)], "thousands behind ','", ['thousands=","']),
    "both": (
        [f"{i % 9 + 1}.{i % 7:03d},5" for i in range(300)],
        "decimals behind ',' and thousands behind '.'",
        ['decimal_separator=","', "thousands=.", "types.x=DOUBLE"],
    ),
    "spaces": ([f"{i % 9 + 1} {i % 7:03d}" for i in range(300)], "thousands behind ' '", ["thousands=' '"]),
    "excel": (["#N/A" if i % 9 == 1 else str(i % 30) for i in range(300)], "'#N/A' stands", ['nullstr=["", "#N/A"]']),
    "stata": (["." if i % 9 == 0 else str(i % 30) for i in range(300)], "'.' stands", ['nullstr=["", "."]']),
    "none": (["none" if i % 9 == 0 else str(i % 30) for i in range(300)], "'none' stands", ['nullstr=["", "none"]']),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_misread_is_refused_until_an_option_says_how(tmp_path: Path, name: str) -> None:
    values, said, remedies = CASES[name]
    table = write_csv(tmp_path / "a.csv", values)
    refused(run("plan", table, "--qi", "x,sex", *FLAGS), 2, "column 'x'", said, "source.options = ")
    together = remedies if name == "both" else remedies[:1]
    alone = [] if name == "both" else [[one] for one in remedies[1:]]
    for given in (together, *alone, ["types.x=VARCHAR"]):
        settings = [part for one in given for part in ("--set", f"source.options.{one}")]
        succeeded("plan", table, "--qi", "x,sex", *FLAGS, *settings)
    succeeded("plan", table, "--qi", "sex", *FLAGS)  # it has no role


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_init_reads_it_as_it_is_meant_or_asks(tmp_path: Path, name: str) -> None:
    """What has one meaning is proposed with a line about it; both readings of a date, or of a comma, are asked."""
    values, said, remedies = CASES[name]
    column = "height" if len(values) < LONG else "zip"
    table = write_csv(tmp_path / "a.csv", values, f"sex;{column};ill")
    remedies = [one.replace("types.x", f"types.{column}") for one in remedies]
    asked = name in ("days", "thousands")
    if asked:
        refused(run("init", table, "--sensitive", "ill"), 2, said, "init takes source.options, too")
    settings = ("--set", f"source.options.{remedies[0]}") if asked else ()
    text = succeeded("init", table, "--sensitive", "ill", "--accept", *settings).out
    line = "# read as NULL: '#N/A' in height\n" if name == "excel" else f"# {column} "
    assert asked or line in text
    (tmp_path / "spec.toml").write_text(text)
    key = remedies[0].split("=")[0].split(".")[0]
    assert key in tomllib.loads(text)["source"]["options"]
    succeeded("plan", tmp_path / "spec.toml", "--set", "ledger.off=true")


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        [f"{i % 90:05d}" for i in range(300)],  # codes, which are texts anyway
        [f"a{i % 9}" for i in range(300)],
        ["1,5", "x,y"] * 150,
        ["12 a", "13"] * 150,
        [str(i % 40) for i in range(LONG)],
        [f"2020-{i % 12 + 1:02d}-03" for i in range(300)],
        DATES,
    ],
)
def test_other_columns_are_read_as_before(tmp_path: Path, values: list[str]) -> None:
    succeeded("plan", write_csv(tmp_path / "a.csv", values), "--qi", "x,sex", *FLAGS)


def test_a_mark_that_is_a_value_elsewhere_is_cast_in_a_query(tmp_path: Path) -> None:
    """In the column of diagnoses 'none' is a value; nullstr would take it away."""
    lines = [f"{'none' if i % 9 == 0 else i % 30};{'none' if i % 3 else f'd{i % 4}'}" for i in range(300)]
    table = tmp_path / "a.csv"
    table.write_text("x;ill\n" + "\n".join(lines) + "\n")
    refused(
        run("plan", table, "--qi", "x", *FLAGS), 2, "as in 'ill'", 'SELECT * REPLACE (TRY_CAST("x" AS DOUBLE) AS "x")'
    )
    query = "source.query=SELECT * REPLACE (TRY_CAST(x AS DOUBLE) AS x) FROM source"
    allowed = ("--threshold", "1", "--set", "mechanism.allow_certain=true", "--set", "ledger.off=true")
    succeeded("plan", table, "--qi", "x", "--sensitive", "ill", *allowed, "--set", query)


@each("mark", ["#N/A", "--", "none", "."])
def test_a_mark_among_texts_is_missing_unless_it_may_be_a_value(tmp_path: Path, mark: str) -> None:
    table = tmp_path / "a.csv"
    table.write_text("work;ill\n" + "\n".join(f"{mark if i % 9 == 0 else f'w{i % 4}'};d{i % 5}" for i in range(300)))
    text = succeeded("init", table, "--sensitive", "ill", "--promise", "bucketize", "--accept").out
    assert (f"# read as NULL: {mark!r} in work\n" in text) == (mark in ("#N/A", "--"))


def test_a_private_release_has_the_dates_of_its_file(tmp_path: Path) -> None:
    """A private release casts texts by stated types, so the format of dates is stated, too: else all would be NULL."""
    table = write_csv(tmp_path / "a.csv", DATES, head="sex;day;ill")
    text = succeeded("init", table, "--sensitive", "ill", "--promise", "tables", "--accept").out
    assert tomllib.loads(text)["source"]["options"]["dateformat"] == "%d.%m.%Y"
    (tmp_path / "spec.toml").write_text(text)
    to = tmp_path / "r.duckdb"
    succeeded("publish", tmp_path / "spec.toml", "--set", "ledger.off=true", "--to", to, "--allow-useless")
    name = tomllib.loads(text)["columns"]["sensitive"]
    assert name == "ill"
    assert privsql.query(to, "SELECT COUNT(*) FROM a WHERE day IS NULL").rows[0][0] == 0


def test_a_header_of_numbers_over_numbers_is_asked_for(tmp_path: Path) -> None:
    """Without the question the header would be published as a record."""
    table = tmp_path / "a.csv"
    table.write_text("2019,2020\n" + "".join(f"{i % 7},{i * i % 11 % 5}\n" for i in range(300)))
    flags = ("--threshold", "0.6", "--set", "ledger.off=true", "--set", "columns.categorical=true")
    refused(run("plan", table, "--qi", "2019", "--sensitive", "2020", *flags), 4, "header = true", "header = false")
    settings = ("--set", "source.options.header=true")
    assert succeeded("plan", table, "--qi", "2019", "--sensitive", "2020", *flags, *settings, "--json").json[
        "records"
    ] == 300  # fmt: skip
    settings = ("--set", "source.options.header=false", "--set", 'source.options.names=["a", "b"]')
    assert succeeded("plan", table, "--qi", "a", "--sensitive", "b", *flags, *settings, "--json").json["records"] == 301


def test_lines_that_look_like_comments_are_not_lost(tmp_path: Path) -> None:
    """``#N/A`` in the first column took 34 of 300 lines away."""
    lines = [f"{'#N/A' if i % 9 == 0 else i % 30};{'fm'[i % 2]};d{i * i % 11 % 5}" for i in range(300)]
    table = tmp_path / "a.csv"
    table.write_text("x;sex;ill\n" + "\n".join(lines) + "\n")
    refused(run("plan", table, "--qi", "x,sex", *FLAGS), 4, "begin with '#'", 'comment = "#"', 'comment = ""')
    for settings, records in ((["comment=#"], 266), (["comment=", 'nullstr=["", "#N/A"]'], 300)):
        given = [part for one in settings for part in ("--set", f"source.options.{one}")]
        assert succeeded("plan", table, "--qi", "x,sex", *FLAGS, *given, "--json").json["records"] == records
