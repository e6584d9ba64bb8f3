"""Files of queries and what they expect of a release: what differs is shown, and can be recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import privsql
from privsql.errors import EngineError, UsageError
from support.commands import run

if TYPE_CHECKING:
    from pathlib import Path

FLU = "SELECT sex, COUNT(*) AS n FROM ill WHERE disease = 'flu' AND age > 30 GROUP BY sex ORDER BY sex"
ALL = "SELECT COUNT(*) FROM ill"


@pytest.fixture(scope="module")
def opened(ward: Path) -> privsql.Release:
    return privsql.open(ward / "ill.duckdb")


def put(opened: privsql.Release, folder: Path, *records: tuple[str, str, str], record: bool = False) -> list[bool]:
    """Write (header, SQL, expected) records to a file; return which of them are as expected."""
    file = folder / "counts.test"
    blocks = ["\n".join([header, sql, *(["----", expected] if expected else [])]) for header, sql, expected in records]
    file.write_text("# counts\n\n" + "\n\n".join(blocks), encoding="utf-8")
    return [one.ok for one in privsql.test(opened, file, record=record).results]


def test_answers_are_compared_as_the_header_says(opened: privsql.Release, tmp_path: Path) -> None:
    answer = opened.query(FLU)
    (sex, n, _, low, high), (other, m, *_) = answer.rows
    exact = f"{sex}\t{n:.6g}\n{other}\t{m:.6g}"
    near = f"{sex}\t{n * 1.02}\n{other}\t{m * 0.98}"
    inside, outside = f"{sex}\t{high}\n{other}\t{m}", f"{sex}\t{high + 1}\n{other}\t{m}"
    found = put(
        opened, tmp_path,
        ("query estimate", FLU, exact), ("query estimate", FLU, near), ("query estimate", FLU, f"{sex}\t{n:.6g}"),
        ("query estimate", FLU, exact.replace(str(sex), "x", 1)), ("query within 3%", FLU, near),
        ("query within 1%", FLU, near), ("query covers", FLU, inside), ("query covers", FLU, outside),
        ("query covers 99.9%", FLU, outside), ("query estimate", "SELECT nothing FROM ill", "1"),
        ("statement error", "SELECT nothing FROM ill", "'nothing' is not in the release"),
        ("statement error", "SELECT nothing FROM ill", "another reason"), ("statement error", ALL, ""),
        ("query estimate", f"{ALL} WHERE age > 900", "0"),
    )  # fmt: skip
    assert low < high
    assert found == [True, False, False, False, True, False, True, False, True, False, True, False, False, True]


def test_what_differs_is_recorded_and_what_does_not_stays(opened: privsql.Release, tmp_path: Path) -> None:
    total = opened.query(ALL).rows[0][0]
    covered = ("query covers", ALL, str(total)), ("statement error", "SELECT nothing FROM ill", "nothing")
    refused = ("query estimate", "SELECT other FROM ill", "3")
    assert put(opened, tmp_path, ("query estimate", FLU, ""), *covered, refused, record=True) == [
        True,
        True,
        True,
        False,
    ]
    text = (tmp_path / "counts.test").read_text(encoding="utf-8")
    assert text.startswith("# counts\n\nquery estimate\n")
    assert text.count("----") == 4
    assert text.rstrip().endswith("\n3")
    assert not privsql.test(opened, tmp_path / "counts.test")


@pytest.mark.parametrize(
    "text", ["query\nSELECT 1", "query within\nSELECT 1", "query estimate", "# nothing", "SELECT 1"]
)
def test_another_form_is_refused_with_its_place(opened: privsql.Release, tmp_path: Path, text: str) -> None:
    file = tmp_path / "counts.test"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="no query" if text.startswith("#") else r"counts\.test:1: "):
        privsql.test(opened, file)


def test_the_exit_code_says_whether_all_is_as_expected(ward: Path, tmp_path: Path) -> None:
    file = tmp_path / "counts.test"
    file.write_text(f"query estimate\n{ALL}\n----\n-1\n", encoding="utf-8")
    failed = run("test", ward / "ill.duckdb", file)
    assert failed.code == 1
    assert "- -1" in failed.out
    assert run("test", ward / "ill.duckdb", file, "--record").code == 0
    assert run("test", ward / "ill.duckdb", file, "--json").json["ok"] is True
    assert run("test", ward / "ill.duckdb", tmp_path / "missing.test").code == EngineError.exit_code
