"""A source in Postgres gives what DuckDB does, or says in a line why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlglot import exp

from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import Field, all_rows, injective_texts, temp_table
from privsql.errors import EngineError, PrivsqlError, UsageError
from support import engines
from support.engines import tree
from support.postgres import ServerTables

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

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
def db() -> Iterator[ServerTables]:
    made = ServerTables()
    yield made
    made.close()


def test_what_is_put_is_what_a_source_gives(db: ServerTables) -> None:
    """In the types of its columns, decimals as text; another SELECT reads the same session."""
    from privsql.engine.postgres import PostgresSource

    with open_scratch() as duck:
        given = duck.arrow(tree(MIXED))
    db.register_arrow("given", given)
    assert sorted(db.rows(all_rows(temp_table("given"))), key=str) == sorted(map(tuple, rows_of(given)), key=str)
    source = PostgresSource(db.server, "SELECT * FROM given")
    known = [Field(*pair) for pair in zip(given.column_names, KINDS, strict=True)]
    assert source.list_fields(all_rows(temp_table("source"))) == known
    with source.stream_batches(tree('SELECT i, d FROM temp."privsql_source" ORDER BY i'), 1) as rows:
        assert [batch.to_pylist() for batch in rows] == [[{"i": -7, "d": "1.500"}], [{"i": None, "d": None}]]
    with source.with_source("SELECT 1 AS a").stream_batches(all_rows(temp_table("source")), 1) as rows:
        assert rows.read_all().to_pylist() == [{"a": 1}]
    with pytest.raises(UsageError, match="must be one SELECT"):
        source.with_source("SELECT 1; SELECT 2")
    with pytest.raises(EngineError, match="portable subset: Anonymous"):
        source.list_fields(exp.select(open_scratch().hashed([exp.Literal.string("a")])))  # a key stays here


def rows_of(data: pa.Table) -> list[list[Any]]:
    return [list(row.values()) for row in data.to_pylist()]


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("value", ["infinity", "-infinity", "294276-12-31"])
def test_times_that_arrow_can_not_hold_are_refused(db: ServerTables, kind: str, value: str) -> None:
    """The driver gives another time for them."""
    rows = f"SELECT '{value}'::{kind} AS until UNION ALL SELECT NULL UNION ALL SELECT '4713-01-01 BC'"
    if (kind, value) == ("date", "294276-12-31"):
        assert db.server.arrow(rows).num_rows == 3
        return
    with pytest.raises(UsageError, match=r"column 'until' holds infinity, .* NULLIF\(until, 'infinity'\)"):
        db.server.arrow(rows)


def test_texts_of_records_are_those_of_duckdb(db: ServerTables) -> None:
    """So that records are compared alike on both."""
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
def test_what_goes_wrong_is_one_line(db: ServerTables, sql: str, error: type[PrivsqlError], said: str) -> None:
    assert "SELECT" not in engines.one_line(db, sql, error, said)
    assert db.rows(tree("SELECT 1")) == [(1,)]
