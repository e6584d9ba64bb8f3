"""What one question may take: rows before they are estimated, and time; and the values that a release shows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import privsql
from privsql.answers.present import QuestionLimits
from privsql.errors import LateError, UsageError
from support.commands import rows
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql import Release

SQL = "SELECT sex, disease, COUNT(*) FROM ill GROUP BY sex, disease"


@pytest.fixture(scope="module")
def ill(ward: Path) -> Iterator[Release]:
    with privsql.open(ward / "ill.duckdb") as release:
        yield release


@pytest.mark.slow
@each(
    ("sql", "most"),
    [
        (SQL, 12),
        ("SELECT COUNT(*) FROM ill", 1),
        ("SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY ROLLUP (sex)", 3),
        ("SELECT age > 30, disease = 'flu', COUNT(*) FROM ill GROUP BY ALL", 4),
        ("SELECT age, sex, zip, COUNT(*) FROM ill GROUP BY ALL", None),
    ],
    few=5,
)
def test_an_answer_has_at_most_the_rows_that_are_foreseen(ill: Release, sql: str, most: int | None) -> None:
    answer = ill.query(sql)
    number = len(answer.rows)
    assert most in (None, number)
    assert ill.query(sql, limits=QuestionLimits(60, number)).as_json() == answer.as_json()
    with pytest.raises(UsageError, match=f"could have {number:,} rows, more than {number - 1:,}"):
        ill.query(sql, limits=QuestionLimits(60, number - 1))


def test_every_figure_of_a_row_counts(ill: Release) -> None:
    sql = (
        "SELECT sex, COUNT(*) AS n, AVG(age) AS mean, COUNT(*) / 2 AS half FROM ill WHERE disease = 'flu' GROUP BY sex"
    )
    assert len(ill.query(sql, limits=QuestionLimits(60, 4)).rows) == 2
    with pytest.raises(UsageError, match="2 rows of 2 figures, more than 3"):
        ill.query(sql, limits=QuestionLimits(60, 3))


def fresh(over: int) -> str:
    """A question that nobody has asked before: what is remembered takes no time."""
    return SQL.replace("GROUP BY", f"WHERE age > {over} GROUP BY")


def test_what_nobody_waits_for_ends(ill: Release) -> None:
    stop = threading.Event()
    assert ill.query(SQL, limits=QuestionLimits(60, 99, stop)).rows
    stop.set()
    with pytest.raises(LateError, match="was stopped"):
        ill.query(fresh(31), limits=QuestionLimits(60, 99, stop))
    assert ill.query(SQL).rows


def test_a_question_without_time_is_late(ill: Release) -> None:
    with pytest.raises(LateError, match="takes longer than 0 s"):
        ill.query(fresh(32), limits=QuestionLimits(0, 99))
    assert ill.query(SQL, limits=QuestionLimits(60, 99)).rows


def test_a_release_shows_its_values_in_order(ill: Release, ward: Path) -> None:
    for name, table in (("age", "qit"), ("sex", "qit"), ("zip", "qit"), ("disease", "st")):
        own = sorted(value for (value,) in rows(ward / "ill.duckdb", f"SELECT DISTINCT {name} FROM {table}"))
        assert ill.list_values(name) == [str(value) for value in own]
        assert ill.list_values(name, 1) == [str(own[0])]
    assert ill.answers.item_labels == ()


@pytest.mark.slow
def test_domains_are_shown_whole(census: Path, town: Path, shop: Path) -> None:
    """Of counts by budget: whatever a column can have, whether or not a row was made of it."""
    with privsql.open(town / "people.duckdb") as release:  # a tree lists what its cells have
        assert release.list_values("sex") == ["F", "M"]
    with privsql.open(next(census.glob("*.duckdb"))) as release:
        name = release.manifest.name
        for field in release.manifest.sensitive:
            shown = release.list_values(field.name)
            if field.name in release.answers.in_bins:
                assert shown == []
                continue
            asked = release.query(f"SELECT {field.name}, COUNT(*) FROM {name} GROUP BY 1 ORDER BY 1")
            assert sorted(map(str, shown)) == sorted(str(row[0]) for row in asked.rows)
    with privsql.open(shop / "shop.duckdb") as release:
        assert release.answers.item_labels == ("ale", "bread", "cheese", "dates", "eggs", "figs", "ginger")
