"""Postgres' relations give what DuckDB's do, or say in a line why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlglot import exp

from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import Field, all_rows, injective_texts, temp_table
from privsql.errors import PrivsqlError, UsageError
from support import engines
from support.engines import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.engine.postgres import PostgresRelations

pytestmark = pytest.mark.slow  # a server starts
MIXED = """
    SELECT -7 AS i, TIMESTAMP '2020-02-29 12:34:56.789' AS t, TIMESTAMPTZ '2020-02-29 12:34:56+02' AS z,
      1.50::DECIMAL(10, 3) AS d, [1, 2] AS l, 'it''s \\ "ä"' AS s, DATE '0999-12-31' AS y, TRUE AS b, 0.1::DOUBLE AS f,
      12345678901234567890123456789::HUGEINT AS h, TIME '01:02:03' AS c
    UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""
KINDS = [
    "INTEGER", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DECIMAL(10,3)", "INTEGER[]", "VARCHAR", "DATE", "BOOLEAN",
    "DOUBLE", "DECIMAL(38,0)", "TIME",
]  # fmt: skip


@pytest.fixture
def db() -> Iterator[PostgresRelations]:
    with engines.postgres() as made:
        yield made


def test_what_is_put_or_made_is_what_comes_back(db: PostgresRelations) -> None:
    with open_scratch() as duck:
        given = duck.arrow(tree(MIXED))
    db.register_arrow("given", given)
    db.create_table("made", all_rows(temp_table("given")))
    db.create_view("seen", all_rows(temp_table("made")))
    assert db.list_fields(temp_table("seen")) == [Field(*pair) for pair in zip(given.column_names, KINDS, strict=True)]
    expected = [tuple(row.values()) for row in given.to_pylist()]
    for name in ("given", "made", "seen"):
        assert sorted(db.rows(all_rows(temp_table(name))), key=str) == sorted(expected, key=str)
    with db.stream_batches(tree('SELECT i, d FROM temp."privsql_seen" ORDER BY i'), 1) as rows:
        assert [batch.to_pylist() for batch in rows] == [[{"i": -7, "d": "1.500"}], [{"i": None, "d": None}]]
    with db.open_sibling() as other, pytest.raises(UsageError, match="does not exist"):
        other.rows(all_rows(temp_table("made")))
    db.drop("seen", "made", "never")
    with pytest.raises(UsageError, match="does not exist"):
        db.rows(all_rows(temp_table("made")))


@pytest.mark.parametrize("kind", ["digest", "hashed"])
def test_hashes_are_those_of_duckdb(db: PostgresRelations, kind: str) -> None:
    texts = [["", ""], ["a", "b"], ["ab", ""], ["ä\\' \n", "\x1f"], ["1.5", "2020-01-01"]]
    constants = [[exp.Literal.string(part) for part in text] for text in texts]
    with open_scratch() as duck:
        expected = duck.rows(exp.select(*map(getattr(duck, kind), constants)))
    made = [exp.alias_(one, f"d{i}") for i, one in enumerate(map(getattr(db, kind), constants))]
    assert db.rows(exp.select(*made)) == expected


def test_texts_of_records_are_those_of_duckdb(db: PostgresRelations) -> None:
    """So that one key hashes a record alike on both."""
    with open_scratch() as duck:
        duck.register_arrow("given", duck.arrow(tree(MIXED)).drop_columns(["l", "f"]))
        fields = {field.name: field for field in duck.list_fields(temp_table("given"))}
        named = [exp.alias_(one, f"t{i}") for i, one in enumerate(injective_texts(fields, "g"))]
        query = exp.select(*named).from_(temp_table("given").as_("g"))
        expected = duck.rows(query)
        db.register_arrow("given", duck.arrow(all_rows(temp_table("given"))))
    assert sorted(db.rows(query)) == sorted(expected)


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        *engines.REFUSED,
        ("SELECT CAST('x' AS INTEGER)", UsageError, "invalid input"),
        ("SELECT CAST(2147483647 AS INTEGER) + CAST(1 AS INTEGER)", UsageError, "out of range"),
    ],
)
def test_what_goes_wrong_is_one_line(db: PostgresRelations, sql: str, error: type[PrivsqlError], said: str) -> None:
    assert "SELECT" not in engines.one_line(db, sql, error, said)
    assert db.rows(tree("SELECT 1")) == [(1,)]
