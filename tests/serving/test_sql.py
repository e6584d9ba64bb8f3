"""What is chosen becomes SQL that means it: by what it says, and by what it finds in a table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from privsql.answers.sql.grammar import parse_select
from privsql.engine.sqlfiles import plain_sql
from privsql.errors import UsageError
from privsql.serving.form import (
    COUNT,
    ColumnCondition,
    FormColumn,
    FormMeasure,
    FormQuestion,
    ReleaseForm,
    read_question,
)
from privsql.serving.site import build_statement, describe_question
from support.commands import fetched
from support.loops import each

if TYPE_CHECKING:
    from privsql.serving.form import Kind

MEASURES = (
    FormMeasure(COUNT, "How many records"),
    FormMeasure("avg.0", "Average of age"),
    FormMeasure("sum.0", "Sum of age"),
)
KINDS: list[tuple[str, str, Kind]] = [
    ("age", "INTEGER", "number"), ("sex", "VARCHAR", "text"), ("day", "DATE", "moment"), ("paid", "DOUBLE", "number"),
    ("ill", "BOOLEAN", "truth"), ("id", "UUID", "other"), ("seen", "TIMESTAMP", "moment"),
]  # fmt: skip
PEOPLE = ReleaseForm("people", tuple(FormColumn(k, *one, ()) for k, one in enumerate(KINDS)), MEASURES)
VISITS = ReleaseForm("visits", (FormColumn(0, "pages", "VARCHAR", "text", ()),), MEASURES[:1], ("a", "b", "it's"))
NULL = "\0"
SEEN = "SELECT COUNT(*) FROM people WHERE seen"


def made(pairs: list[tuple[str, str]], form: ReleaseForm = PEOPLE) -> str:
    return plain_sql(build_statement(read_question(pairs, form), form))


@each(
    ("pairs", "sql"),
    [
        ([], "SELECT COUNT(*) FROM people"),
        ([("measure", "avg.0")], "SELECT AVG(age) FROM people"),
        ([("by", "1"), ("by", "0")], "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age ORDER BY sex, age"),
        ([("by", "1"), ("by", "1")], "SELECT sex, COUNT(*) FROM people GROUP BY sex ORDER BY sex"),
        ([("c1", "it's")], "SELECT COUNT(*) FROM people WHERE sex = 'it''s'"),
        ([("c1", "a"), ("c1", "b"), ("c1", "a")], "SELECT COUNT(*) FROM people WHERE sex IN ('a', 'b')"),
        ([("c0.from", "-3"), ("c0.to", "4.5")], "SELECT COUNT(*) FROM people WHERE age BETWEEN -3 AND 4.5"),
        ([("c0.from", "3"), ("c0.to", "3")], "SELECT COUNT(*) FROM people WHERE age = 3"),
        ([("c0.from", "3"), ("c2.to", "2020-02-01")],
         "SELECT COUNT(*) FROM people WHERE age >= 3 AND day <= CAST('2020-02-01' AS DATE)"),
        ([("c3", "nan")], "SELECT COUNT(*) FROM people WHERE paid = CAST('nan' AS DOUBLE)"),
        ([("c3", "1e-07")], "SELECT COUNT(*) FROM people WHERE paid = 1e-07"),
        ([("c4", "TRUE")], "SELECT COUNT(*) FROM people WHERE ill = TRUE"),
        ([("c5", "x")], "SELECT COUNT(*) FROM people WHERE id = CAST('x' AS UUID)"),
        ([("c6.from", "2020-02-01T10:00")],
         "SELECT COUNT(*) FROM people WHERE seen >= CAST('2020-02-01T10:00' AS TIMESTAMP)"),
        ([("c6.from", "2020-02-01"), ("c6.to", "2020-02-28")],
         f"{SEEN} >= CAST('2020-02-01' AS TIMESTAMP) AND seen < CAST('2020-02-29' AS TIMESTAMP)"),
        ([("c6.from", "2020-02-01T10:00"), ("c6.to", "2020-02-01")],
         f"{SEEN} >= CAST('2020-02-01T10:00' AS TIMESTAMP) AND seen < CAST('2020-02-02' AS TIMESTAMP)"),
        ([("c6.to", "2020-02-01T10:00")],
         "SELECT COUNT(*) FROM people WHERE seen <= CAST('2020-02-01T10:00' AS TIMESTAMP)"),
        ([("c6.to", "9999-12-31")], "SELECT COUNT(*) FROM people WHERE seen <= CAST('9999-12-31' AS TIMESTAMP)"),
        ([("c1.null", "only")], "SELECT COUNT(*) FROM people WHERE sex IS NULL"),
        ([("c1.null", "not")], "SELECT COUNT(*) FROM people WHERE NOT sex IS NULL"),
        ([("c1.null", "too")], "SELECT COUNT(*) FROM people"),
        ([("c1.null", "too"), ("c1", "a"), ("c0", "1")],
         "SELECT COUNT(*) FROM people WHERE age = 1 AND (sex = 'a' OR sex IS NULL)"),
    ],
    few=24,
)  # fmt: skip
def test_what_is_chosen_is_said(pairs: list[tuple[str, str]], sql: str) -> None:
    assert made(pairs) == sql
    assert parse_select(sql)


@each(
    ("pairs", "sql"),
    [
        ([("all", "a")], "SELECT COUNT(*) FROM visits WHERE LIST_CONTAINS(pages, 'a')"),
        ([("all", "a"), ("all", "it's")], "SELECT COUNT(*) FROM visits WHERE LIST_HAS_ALL(pages, ['a', 'it''s'])"),
        ([("any", "a"), ("any", "b"), ("none", "it's")],
         "SELECT COUNT(*) FROM visits WHERE LIST_HAS_ANY(pages, ['a', 'b']) AND NOT LIST_CONTAINS(pages, 'it''s')"),
        ([("len.from", "2")], "SELECT COUNT(*) FROM visits WHERE LEN(pages) >= 2"),
    ],
)  # fmt: skip
def test_items_are_asked_for(pairs: list[tuple[str, str]], sql: str) -> None:
    assert made(pairs, VISITS) == sql


@each(
    ("pairs", "line"),
    [
        ([("c0", "old")], "age: 'old' is not a number"),
        ([("c0.from", "1; DROP TABLE x")], "is not a number"),
        ([("c0.from", "1e99999")], "is not a number"),
        ([("c2.from", "yesterday")], "day: 'yesterday' is not a date or time"),
        ([("c4", "maybe")], "ill: 'maybe' is not a truth value"),
        ([("c1", "a"), ("c1.from", "b")], "sex: give values or a range, not both"),
        ([("c1", "a"), ("c1.null", "only")], "sex: give values or NULL only, not both"),
        ([("c1.null", "maybe")], "NULL takes too, only, not"),
        ([("c7", "a")], "there is no column '7'"),
        ([("c99999", "a")], "there is no column '99999'"),
        ([("by", "-1")], "there is no column '-1'"),
        ([("by", "0"), ("by", "1"), ("by", "2")], "by at most 2 columns"),
        ([("measure", "max.0")], "there is no measure 'max.0'"),
        ([("measure", "count"), ("measure", "count")], "names 'measure' twice"),
        ([("c0.from", "1"), ("c0.from", "2")], "names 'c0.from' twice"),
        ([("confidence", "much")], "confidence 'much' is not a number"),
        ([("confidence", "nan")], "lies outside (0, 1)"),
        ([("confidence", "1")], "lies outside (0, 1)"),
        ([("file", "/etc/passwd")], "names 'file', which is not a field of this page"),
        ([("all", "a")], "names 'all'"),
        ([("sql", "SELECT 1"), ("c0", "1")], "names 'c0'"),
        ([("c0.from", "70"), ("c0.to", "9.5")], "age: the range 70 to 9.5 is empty; swap its ends"),
        ([("c2.from", "2020-03-01"), ("c2.to", "2020-02-01")], "swap its ends"),
        ([("c6.from", "2020-03-02T00:00:01"), ("c6.to", "2020-03-01")], "swap its ends"),
    ],
    few=33,
)  # fmt: skip
def test_what_is_not_understood_is_refused(pairs: list[tuple[str, str]], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        made(pairs)
    assert line in str(refused.value)


def test_unknown_items_are_refused() -> None:
    for pairs, line in (
        ([("all", "c")], "there is no item 'c'"),
        ([("len.to", "many")], "'many' is not a whole number"),
        ([("by", "0")], "can't be split"),
        ([("c0", "a")], "names 'c0'"),
    ):
        with pytest.raises(UsageError, match=line):
            made(pairs, VISITS)


# By what it finds -----------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
SAID = st.builds(
    ColumnCondition,
    st.lists(TEXTS, max_size=3, unique=True).map(tuple),
    nulls=st.sampled_from(["", "too", "not"]),
) | st.just(ColumnCondition(nulls="only"))  # fmt: skip


def meets(value: str | None, said: ColumnCondition) -> bool:
    """What a condition of texts means."""
    if value is None:
        return said.nulls in ("too", "only")
    return said.nulls != "only" and (not said.values or value in said.values)


@settings(max_examples=8)
@given(name=TEXTS, table=TEXTS, said=SAID, data=st.data())
def test_any_name_and_any_text_mean_themselves(
    name: str, table: str, said: ColumnCondition, data: st.DataObject
) -> None:
    if not said.values and said.nulls in ("", "too"):
        return
    pool = st.none() | TEXTS | st.sampled_from(said.values or ("x",))
    column = data.draw(st.lists(pool, min_size=1, max_size=6))
    form = ReleaseForm(table, (FormColumn(0, name, "VARCHAR", "text", ()),), MEASURES[:1])
    query = plain_sql(build_statement(FormQuestion(conditions={0: said}, groups=(0,)), form))
    assert parse_select(query).find(exp.Table).name == table
    with duckdb.connect() as db:
        own, place = (f'"{one.replace(chr(34), chr(34) * 2)}"' for one in (name, table))
        db.execute(f"CREATE TABLE {place} ({own} VARCHAR)")
        db.executemany(f"INSERT INTO {place} VALUES (?)", [[value] for value in column])
        found = dict(db.execute(query).fetchall())
    met = [value for value in column if meets(value, said)]
    assert found == {value: met.count(value) for value in met}


@pytest.mark.parametrize("part", [pytest.param(0, id="some"), pytest.param(1, marks=pytest.mark.slow, id="others")])
def test_every_keyword_may_be_a_name(part: int) -> None:
    """Of a column and of a release, quoted or not."""
    every = [word for (word,) in fetched("SELECT keyword_name FROM duckdb_keywords() ORDER BY 1")]
    assert len(every) > 300
    words = [word for k, word in enumerate(every) if (k % 8 == 0 or word in ("if", "at", "by")) == (part == 0)]
    with duckdb.connect() as db:
        for word in words:
            form = ReleaseForm(
                word, (FormColumn(0, word, "INTEGER", "number", ()),), (*MEASURES[:1], FormMeasure("sum.0", "Sum"))
            )
            query = plain_sql(build_statement(FormQuestion("sum.0", {0: ColumnCondition(low="1")}, (0,)), form))
            tree = parse_select(query)
            assert {one.name for one in tree.find_all(exp.Column)} == {word}, query
            assert tree.find(exp.Table).name == word
            db.execute(f'CREATE OR REPLACE TABLE "{word}" ("{word}" INTEGER)')
            db.execute(query)


def test_a_question_is_said_in_words() -> None:
    """Every part of it is named."""
    pairs = [("c0.from", "3"), ("c1", "f"), ("c1", "m"), ("c1.null", "too"), ("c2.null", "not"), ("by", "3")]
    said = describe_question(read_question(pairs, PEOPLE), PEOPLE)
    assert said == "How many records with age from 3; sex f or m or no value (NULL); day known, for each value of paid."
    assert describe_question(read_question([], PEOPLE), PEOPLE) == "How many records in all."
    items = [("all", "a"), ("any", "a"), ("any", "b"), ("none", "it's"), ("len.to", "4")]
    assert (
        describe_question(read_question(items, VISITS), VISITS)
        == "How many records with a; at least one of a and b; not it's; up to 4 items."
    )
    assert describe_question(FormQuestion(sql="SELECT 1"), PEOPLE) == ""


def test_many_values_are_not_all_named() -> None:
    pairs = [("c0", str(k)) for k in range(100)]
    assert (
        describe_question(read_question(pairs, PEOPLE), PEOPLE) == "How many records with age 0, 1, 2, 3, 4 or 95 more."
    )
    assert len(list(itertools.chain.from_iterable(parse_select(made(pairs)).find_all(exp.In)))) >= 1
