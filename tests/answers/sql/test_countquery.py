"""privsql.answers.sql.compiler: a query is taken apart into sides, or refused by name; never read as something else."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from privsql.answers.sql.compiler import parse_query
from privsql.answers.sql.question import Statement
from privsql.engine.sqlfiles import Field, Roles
from privsql.errors import UsageError
from support.effort import share
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.sql.question import CountQuery

FEW = settings(max_examples=share(300), deadline=None, derandomize=True)
ROLES = Roles(
    (
        Field("age", "INTEGER"),
        Field("sex", "VARCHAR"),
        Field("Zip Code", "VARCHAR"),
        Field("größe", "DECIMAL(6,2)"),
        Field('a"b', "BOOLEAN"),
        Field("select", "DATE"),
    ),
    (Field("job", "VARCHAR"), Field("Pay Grade", "INTEGER")),
)


COUNT = "count"


def taken_apart(sql: str) -> Statement:
    """The query over the release ``survey``."""
    return parse_query(sql, ROLES, "survey")


def question(sql: str) -> CountQuery:
    """What its first aggregate function asks."""
    return taken_apart(sql).questions[0]


def where(condition: str) -> CountQuery:
    """A plain count under a condition."""
    return question(f"SELECT COUNT(*) FROM survey WHERE {condition}")


def shown(query: Statement) -> list[tuple[str | None, str]]:
    """The columns of the answer: the column that it is grouped by, or None for the count, and its name."""
    groups = {f"g_{i}": group.column for i, group in enumerate(query.scope.groups)}
    found = [(groups.get(output.expression.name), output) for output in query.outputs]
    return [(group, output.alias or (COUNT if group is None else output.written)) for group, output in found]


def texts(parts: list[exp.Expr]) -> list[str]:
    """SQL of each part."""
    return [part.sql(dialect="duckdb") for part in parts]


def refusal(sql: str) -> str:
    """The message with which a query is refused."""
    with pytest.raises(UsageError) as caught:
        taken_apart(sql)
    return str(caught.value)


# Plain counts ---------------------------------------------------------------------------------------------------------


@each(
    "sql",
    [
        "SELECT COUNT(*) FROM survey",
        "select count(*) from survey",
        "SELECT Count ( * ) FROM survey;",
        "SELECT COUNT(*) FROM SURVEY",
        'SELECT COUNT(*) FROM "survey"',
        "SELECT COUNT(*) FROM survey AS s",
        "SELECT COUNT(*) FROM survey s",
        "SELECT COUNT(*) -- all of them\nFROM survey /* here */",
        "FROM survey SELECT COUNT(*)",
    ],
)
def test_a_plain_count_has_no_parts_and_is_exact(sql: str) -> None:
    """Whatever case, alias, comment or order of clauses."""
    query, statement = question(sql), taken_apart(sql)
    assert query.groups == ()
    assert query.filters == {"qi": [], "sa": []}
    assert query.terms == {"qi": [], "sa": []}
    assert query.predicate is None
    assert statement.having is None
    assert statement.order == ()
    assert (statement.limit, statement.offset) == (None, None)
    assert shown(statement) == [(None, COUNT)]
    assert query.is_exact


def test_two_spellings_of_one_query_are_the_same_query() -> None:
    """Case, spaces and comments do not matter."""
    one = (
        "SELECT age, COUNT(*) FROM survey WHERE age > 3 AND job = 'x' OR NOT sex IS NULL GROUP BY 1 HAVING COUNT(*) > 2"
    )
    other = """select Age, count( * ) -- how many
        from SURVEY where AGE>3 and JOB='x' or not SEX is null group by 1 having count(*) > 2;"""
    assert question(one).predicate == question(other).predicate
    assert taken_apart(one).having == taken_apart(other).having
    assert [(g.side, g.column) for g in question(one).groups] == [(g.side, g.column) for g in question(other).groups]


def test_the_release_may_have_any_name() -> None:
    """Quoted names, keywords and letters beyond ASCII."""
    for name, written in (
        ("my release", '"my release"'),
        ("select", '"select"'),
        ("größe", "größe"),
        ('a"b', '"a""b"'),
    ):
        assert parse_query(f"SELECT COUNT(*) FROM {written} WHERE age > 3", ROLES, name).questions[0].is_exact


# Splitting ------------------------------------------------------------------------------------------------------------


@each(
    ("condition", "qi", "sa"),
    [
        ("age > 30", ['"age" > 30'], []),
        ("AGE > 30", ['"age" > 30'], []),
        ("survey.age > 30", ['"age" > 30'], []),
        ("Survey.Age > 30", ['"age" > 30'], []),
        ('"Age" > 30', ['"age" > 30'], []),
        ("job = 'x'", [], ["\"job\" = 'x'"]),
        ("age > 30 AND job = 'x'", ['"age" > 30'], ["\"job\" = 'x'"]),
        ("(age > 30 AND (job = 'x'))", ['"age" > 30'], ["\"job\" = 'x'"]),
        ("age > 30 AND job = 'x' AND sex = 'f'", ['"age" > 30', "\"sex\" = 'f'"], ["\"job\" = 'x'"]),
        ("age > 30 OR sex = 'f'", ['"age" > 30 OR "sex" = \'f\''], []),
        ("job = 'x' OR \"pay grade\" = 3", [], ['"job" = \'x\' OR "Pay Grade" = 3']),
        ("NOT age = 3 AND NOT job = 'x'", ['NOT "age" = 3'], ["NOT \"job\" = 'x'"]),
        ("NOT (age = 3 AND sex = 'f')", ['NOT ("age" = 3 AND "sex" = \'f\')'], []),
        ("age BETWEEN 3 AND 5 AND job IN ('x', 'y')", ['"age" BETWEEN 3 AND 5'], ["\"job\" IN ('x', 'y')"]),
        ("age IS NULL AND job IS NOT NULL", ['"age" IS NULL'], ['NOT "job" IS NULL']),
        (
            "sex = \"zip code\" AND job LIKE '%!_%' ESCAPE '!'",
            ['"sex" = "Zip Code"'],
            ["\"job\" LIKE '%!_%' ESCAPE '!'"],
        ),
        ('"select" > \'2020-01-01\' AND "a""b"', ["\"select\" > '2020-01-01'", '"a""b"'], []),
        ("größe IS NOT DISTINCT FROM 1.50", ['"größe" IS NOT DISTINCT FROM 1.50'], []),
    ],
)
def test_conjuncts_on_one_side_are_filters(condition: str, qi: list[str], sa: list[str]) -> None:
    """Each under its columns' true names; nothing is left for the predicate."""
    query = where(condition)
    assert texts(query.filters["qi"]) == qi
    assert texts(query.filters["sa"]) == sa
    assert query.predicate is None
    assert query.terms == {"qi": [], "sa": []}
    assert query.is_exact == (not sa)


@each("condition", ["TRUE", "FALSE", "NULL", "1 = 1", "NULL IS NULL", "NOT TRUE", "'a' LIKE 'b'"])
def test_constants_count_as_quasi_identifiers(condition: str) -> None:
    """A condition about nothing does not make an answer inexact."""
    query = where(condition)
    assert len(query.filters["qi"]) == 1
    assert query.is_exact


@each(
    ("condition", "qi", "sa"),
    [
        ("age > 30 OR job = 'x'", ['"age" > 30'], ["\"job\" = 'x'"]),
        ("(age > 30 AND sex = 'f') OR job = 'x'", ['("age" > 30 AND "sex" = \'f\')'], ["\"job\" = 'x'"]),
        ("NOT (age > 30 AND job = 'x')", ['"age" > 30'], ["\"job\" = 'x'"]),
        ("age > 30 OR job = 'x' OR sex = 'f'", ['"age" > 30', "\"sex\" = 'f'"], ["\"job\" = 'x'"]),
        ("age > 30 OR (job = 'x' AND NOT (\"Pay Grade\" < 3))", ['"age" > 30'], None),
    ],
)
def test_a_mixed_conjunct_becomes_terms_and_a_predicate_over_them(condition: str, qi: list[str], sa: Any) -> None:
    """One term per largest one-sided part."""
    query = where(condition)
    assert query.filters == {"qi": [], "sa": []}
    assert [part.sql(dialect="duckdb") for _, part in query.terms["qi"]] == qi
    if sa is not None:
        assert [part.sql(dialect="duckdb") for _, part in query.terms["sa"]] == sa
    else:
        assert len(query.terms["sa"]) == 1
    assert query.predicate is not None
    names = {name for side in query.terms.values() for name, _ in side}
    assert {node.name for node in query.predicate.find_all(exp.Column)} == names
    assert not query.is_exact


def test_filters_and_a_mixed_part_stand_side_by_side() -> None:
    """Only the mixed conjunct goes to the predicate."""
    query = where("sex = 'f' AND (age > 30 OR job = 'x') AND \"Pay Grade\" = 1")
    assert texts(query.filters["qi"]) == ["\"sex\" = 'f'"]
    assert texts(query.filters["sa"]) == ['"Pay Grade" = 1']
    assert len(query.terms["qi"]) == len(query.terms["sa"]) == 1


def trees(atoms: list[str]) -> st.SearchStrategy[str]:
    """Boolean combinations of atoms, as SQL."""
    return st.recursive(
        st.sampled_from(atoms),
        lambda inner: st.one_of(
            inner.map("NOT {}".format),
            inner.map("({})".format),
            st.tuples(inner, inner).map(lambda pair: f"{pair[0]} AND {pair[1]}"),
            st.tuples(inner, inner).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        ),
        max_leaves=10,
    )


TRUTH = Roles(
    (Field("p", "BOOLEAN"), Field("q", "BOOLEAN")),
    (Field("x", "BOOLEAN"), Field("y", "BOOLEAN")),
)
ATOMS = ["p", "q", "x", "y", "p = q", "x IS DISTINCT FROM y", "p IS NULL", "NOT y", "x IS NOT TRUE", "TRUE", "NULL"]


@pytest.fixture(scope="module")
def truth() -> Iterator[duckdb.DuckDBPyConnection]:
    """All 81 assignments of three-valued truth to p, q, x, y."""
    every = "SELECT a.v AS p, b.v AS q, c.v AS x, d.v AS y FROM v AS a, v AS b, v AS c, v AS d"
    with duckdb.connect() as con:
        con.execute("CREATE TABLE v AS SELECT * FROM (VALUES (TRUE), (FALSE), (NULL)) AS t(v)")
        con.execute(f"CREATE TABLE t AS {every}")
        yield con


@FEW
@given(condition=trees(ATOMS))
def test_the_parts_together_say_what_the_condition_says(truth: duckdb.DuckDBPyConnection, condition: str) -> None:
    """Filters, and the predicate with its terms put back, select the same rows of the truth table as the condition."""
    query = parse_query(f"SELECT COUNT(*) FROM t WHERE {condition}", TRUTH, "t").questions[0]
    terms = dict([*query.terms["qi"], *query.terms["sa"]])

    def put_back(node: exp.Expr) -> exp.Expr:
        return exp.paren(terms[node.name].copy()) if isinstance(node, exp.Column) else node

    parts = [*query.filters["qi"], *query.filters["sa"]]
    if query.predicate is not None:
        parts.append(query.predicate.copy().transform(put_back))
    together = " AND ".join(f"({part.sql(dialect='duckdb')})" for part in parts)
    counted = truth.execute(
        f"SELECT count(*) FROM t WHERE coalesce({condition}, FALSE) <> coalesce({together}, FALSE)"
    ).fetchone()
    assert counted == (0,), (condition, together)


@FEW
@given(condition=trees(ATOMS))
def test_every_part_is_about_one_side(condition: str) -> None:
    """No filter and no term sees the other side; terms have names of their own, each used in the predicate."""
    query = parse_query(f"SELECT COUNT(*) FROM t WHERE {condition}", TRUTH, "t").questions[0]
    own = {"qi": {"p", "q"}, "sa": {"x", "y"}}
    for side in ("qi", "sa"):
        for part in [*query.filters[side], *(part for _, part in query.terms[side])]:
            assert {node.name for node in part.find_all(exp.Column)} <= own[side]
    names = [name for side in query.terms.values() for name, _ in side]
    used = {node.name for node in query.predicate.find_all(exp.Column)} if query.predicate is not None else set()
    assert len(names) == len(set(names))
    assert set(names) == used
    involved = set(re.findall(r"\b[xy]\b", condition))
    assert query.is_exact == (not involved)


# Groups and the answer's columns --------------------------------------------------------------------------------------

AGE, JOB = ("qi", "age", "age"), ("sa", "job", "job")


@each(
    ("sql", "groups"),
    [
        ("SELECT age, COUNT(*) FROM survey GROUP BY age", (AGE,)),
        ("SELECT age, COUNT(*) FROM survey GROUP BY 1", (AGE,)),
        ("SELECT AGE, COUNT(*) FROM survey GROUP BY Age", (("qi", "age", "AGE"),)),
        ("SELECT COUNT(*), job FROM survey GROUP BY 2", (JOB,)),
        ("SELECT age AS a, COUNT(*) FROM survey GROUP BY a", (("qi", "age", "a"),)),
        ("SELECT age a, COUNT(*) FROM survey GROUP BY 1", (("qi", "age", "a"),)),
        ("SELECT age AS a, COUNT(*) FROM survey GROUP BY age", (("qi", "age", "a"),)),
        ("SELECT survey.age, COUNT(*) FROM survey GROUP BY survey.age", (AGE,)),
        ("SELECT s.age, COUNT(*) FROM survey AS s GROUP BY s.age", (AGE,)),
        ("SELECT age, job, COUNT(*) FROM survey GROUP BY 1, 2", (AGE, JOB)),
        ("SELECT age, job, COUNT(*) FROM survey GROUP BY job, age", (JOB, AGE)),
        ("SELECT COUNT(*) FROM survey GROUP BY age, job", (AGE, JOB)),
        ('SELECT "Zip Code", COUNT(*) FROM survey GROUP BY "zip code"', (("qi", "Zip Code", "Zip Code"),)),
        ('SELECT "select" AS d, COUNT(*) FROM survey GROUP BY d', (("qi", "select", "d"),)),
        ('SELECT "a""b", COUNT(*) FROM survey GROUP BY 1', (("qi", 'a"b', 'a"b'),)),
        ('SELECT "pay grade" AS "b""c", COUNT(*) FROM survey GROUP BY 1', (("sa", "Pay Grade", 'b"c'),)),
    ],
)
def test_groups_by_name_alias_and_position(sql: str, groups: tuple[tuple[str, str, str], ...]) -> None:
    """In the order of GROUP BY, by side and true name; shown under the name that the query gives."""
    query = taken_apart(sql)
    assert [(group.side, group.column) for group in query.scope.groups] == [
        (side, column) for side, column, _ in groups
    ]
    names = {column: name for _, column, name in groups}
    for group, name in shown(query):
        assert name.lower().split(".")[-1].strip('"').replace('""', '"') == (
            COUNT if group is None else names[group].lower()
        )


def test_columns_are_shown_in_the_order_of_the_select_list() -> None:
    """Under their aliases, the count where it stands."""
    query = taken_apart("SELECT job AS j, COUNT(*) AS n, age FROM survey GROUP BY age, j")
    assert shown(query) == [
        ("job", "j"),
        (None, "n"),
        ("age", "age"),
    ]


def test_one_column_may_be_shown_twice() -> None:
    """Under two names."""
    query = taken_apart("SELECT age, age AS again, COUNT(*) FROM survey GROUP BY age")
    assert shown(query) == [
        ("age", "age"),
        ("age", "again"),
        (None, COUNT),
    ]


def test_a_column_goes_before_an_alias_in_group_by() -> None:
    """As in DuckDB: ``age`` is the column, also where another column is shown under that name."""
    message = refusal("SELECT sex AS age, COUNT(*) FROM survey GROUP BY age")
    assert "'sex'" in message
    assert "GROUP BY" in message


def test_a_group_may_be_shown_under_the_name_of_another() -> None:
    """``sex`` is shown as ``age``; the group ``age``, which is not shown, must not take its place."""
    query = taken_apart("SELECT sex AS age, COUNT(*) FROM survey GROUP BY sex, age")
    assert [group.column for group in query.scope.groups] == ["sex", "age"]
    assert shown(query) == [("sex", "age"), (None, COUNT)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT age, sex AS age, COUNT(*) FROM survey GROUP BY age, sex",
        "SELECT age, sex AS AGE, COUNT(*) FROM survey GROUP BY age, sex",
        "SELECT age AS n, COUNT(*) AS n FROM survey GROUP BY age",
        "SELECT age AS n, sex AS N, COUNT(*) FROM survey GROUP BY age, sex",
    ],
)
def test_two_columns_of_one_name_need_an_alias(sql: str) -> None:
    """The message says so."""
    assert "alias" in refusal(sql)


@each(
    ("sql", "exact"),
    [
        ("SELECT age, COUNT(*) FROM survey GROUP BY age", True),
        ("SELECT job, COUNT(*) FROM survey GROUP BY job", False),
        ("SELECT COUNT(*) FROM survey GROUP BY age, job", False),
        ("SELECT COUNT(*) FROM survey WHERE job IS NULL OR TRUE", False),
        ("SELECT COUNT(*) FROM survey WHERE age = 3 OR job = 'x'", False),
        ("SELECT age, COUNT(*) FROM survey WHERE job = 'x' GROUP BY age", False),
    ],
)
def test_exact_is_what_has_no_sensitive_column(sql: str, exact: bool) -> None:
    """In the condition or in the groups."""
    assert question(sql).is_exact == exact


# After the count ------------------------------------------------------------------------------------------------------


@each(
    ("clause", "order"),
    [
        ("age", [("group", False)]),
        ("a", [("group", False)]),
        ("survey.age", [("group", False)]),
        ("1", [("group", False)]),
        ("3", [("count", False)]),
        ("n", [("count", False)]),
        ("N DESC", [("count", True)]),
        ("COUNT(*)", [("count", False)]),
        ("count(*) DESC, job", [("count", True), ("group", False)]),
        ("2 DESC, 1 ASC", [("group", True), ("group", False)]),
    ],
)
def test_order_by_name_alias_position_and_count(clause: str, order: list[tuple[str, bool]]) -> None:
    """Each key is a group or the count, with its direction."""
    query = taken_apart(f"SELECT age AS a, job, COUNT(*) AS n FROM survey GROUP BY a, job ORDER BY {clause}")
    found = [
        ("count" if item.this.unnest().name == "a_0" else "group", bool(item.args.get("desc"))) for item in query.order
    ]
    assert found == order
    assert len({item.this.unnest().name for item in query.order}) == len(order)


@each(
    ("clause", "first"),
    [
        ("age", False),
        ("age DESC", False),
        ("age NULLS FIRST", True),
        ("age DESC NULLS FIRST", True),
        ("age NULLS LAST", False),
        ("age DESC NULLS LAST", False),
    ],
)
def test_nulls_go_where_duckdb_puts_them(clause: str, first: bool) -> None:
    """Last, unless it says FIRST."""
    query = taken_apart(f"SELECT age, COUNT(*) FROM survey GROUP BY age ORDER BY {clause}")
    assert bool(query.order[0].args.get("nulls_first")) == first


def test_order_by_a_group_that_is_not_shown() -> None:
    """As DuckDB allows."""
    query = taken_apart("SELECT COUNT(*) FROM survey GROUP BY age ORDER BY age DESC")
    assert [bool(item.args.get("desc")) for item in query.order] == [True]
    assert query.order[0].this.name == "g_0"


@each(
    ("clause", "limit", "offset"),
    [
        ("LIMIT 5", 5, None),
        ("LIMIT 0", 0, None),
        ("OFFSET 3", None, 3),
        ("LIMIT 5 OFFSET 3", 5, 3),
        ("OFFSET 3 LIMIT 5", 5, 3),
    ],
)
def test_limit_and_offset_are_whole_numbers(clause: str, limit: int | None, offset: int | None) -> None:
    """Either or both."""
    query = taken_apart(f"SELECT COUNT(*) FROM survey {clause}")
    assert (query.limit, query.offset) == (limit, offset)


@each(
    "clause",
    [
        "COUNT(*) > 5",
        "n > 5",
        "N > 5 AND count(*) <= 10",
        "NOT (n BETWEEN 1 AND 5) OR COUNT(*) = 3",
        "5 < COUNT(*)",
        "COUNT(*) IS DISTINCT FROM 4.5",
    ],
)
def test_having_is_over_the_count(clause: str) -> None:
    """By COUNT(*) or by its alias."""
    query = taken_apart(f"SELECT age, COUNT(*) AS n FROM survey GROUP BY age HAVING {clause}")
    assert query.having is not None
    assert {node.name for node in query.having.find_all(exp.Column)} == {"a_0"}
    assert not list(query.having.find_all(exp.Count))


# Refusals -------------------------------------------------------------------------------------------------------------

FROM_CLAUSES = [
    ("SELECT COUNT(*) FROM survey JOIN qit ON TRUE", "JOIN"),
    ("SELECT COUNT(*) FROM survey NATURAL JOIN qit", "JOIN"),
    ("SELECT COUNT(*) FROM survey LEFT JOIN survey AS b USING (age)", "JOIN"),
    ("SELECT COUNT(*) FROM survey POSITIONAL JOIN st", "JOIN"),
    ("SELECT COUNT(*) FROM survey ASOF JOIN st ON TRUE", "JOIN"),
    ("SELECT COUNT(*) FROM survey CROSS JOIN st", "JOIN"),
    ("SELECT COUNT(*) FROM survey, survey AS b", "JOIN"),
    ("SELECT COUNT(*) FROM (VALUES (1)) AS survey(age)", "FROM survey"),
    ("SELECT COUNT(*) FROM (survey)", "FROM survey"),
    ("WITH RECURSIVE t AS (SELECT 1) SELECT COUNT(*) FROM survey", "WITH"),
    ("SELECT COUNT(*) FROM survey USING SAMPLE 10%", "SAMPLE"),
    ("SELECT COUNT(*) FROM survey USING SAMPLE 5 ROWS", "SAMPLE"),
    ("SELECT COUNT(*) FROM survey TABLESAMPLE 10%", "SAMPLE"),
    ("SELECT COUNT(*) FROM survey TABLESAMPLE reservoir(10)", "SAMPLE"),
    ("SELECT COUNT(*) FROM qit", "'qit'"),
    ("SELECT COUNT(*) FROM st", "'st'"),
    ("SELECT COUNT(*) FROM privsql_manifest", "'privsql_manifest'"),
    ("SELECT COUNT(*) FROM nowhere", "'nowhere'"),
    ("SELECT COUNT(*) FROM duckdb_tables", "'duckdb_tables'"),
    ("SELECT COUNT(*) FROM duckdb_tables()", "FROM survey"),
    ("SELECT COUNT(*) FROM range(5)", "FROM survey"),
    ("SELECT COUNT(*) FROM 'x.parquet'", "'x.parquet'"),
    ('SELECT COUNT(*) FROM "x.parquet"', "'x.parquet'"),
    ("SELECT COUNT(*) FROM '/etc/passwd'", "'/etc/passwd'"),
    ("SELECT COUNT(*) FROM read_csv('x.csv')", "FROM survey"),
    ("SELECT COUNT(*) FROM read_parquet('x.parquet')", "FROM survey"),
    ("SELECT COUNT(*) FROM read_text('/etc/passwd')", "FROM survey"),
    ("SELECT COUNT(*) FROM query('SELECT 1')", "FROM survey"),
    ("SELECT COUNT(*) FROM query_table('survey')", "FROM survey"),
    ("SELECT COUNT(*) FROM unnest([1])", "FROM survey"),
    ("SELECT COUNT(*) FROM other.survey", "other.survey"),
    ("SELECT COUNT(*) FROM release.survey", ""),
    ("SELECT COUNT(*) FROM information_schema.tables", ""),
    ("SELECT COUNT(*) FROM $1", "FROM survey"),
    ("SELECT COUNT(*) FROM ?", ""),
    ("SELECT COUNT(*) FROM survey PIVOT (COUNT(*) FOR sex IN ('f'))", "PIVOT"),
    ("SELECT COUNT(*) FROM survey UNPIVOT (v FOR n IN (age))", "PIVOT"),
    ("SELECT COUNT(*) FROM survey AT (VERSION => 1)", ""),
    ("SELECT COUNT(*) FROM survey WITH ORDINALITY", "ORDINALITY"),
    ("SELECT COUNT(*) FROM LATERAL survey", "FROM survey"),
    ("SELECT COUNT(*)", "FROM survey"),
    ("SELECT 1", "FROM survey"),
]
SELECT_LISTS = [
    ("SELECT * FROM survey", "*"),
    ("SELECT *, COUNT(*) FROM survey", "'age'"),
    ("SELECT survey.*, COUNT(*) FROM survey", "'age'"),
    ("SELECT * EXCLUDE (age) FROM survey", "*"),
    ("SELECT COLUMNS(*), COUNT(*) FROM survey", "COLUMNS"),
    ("SELECT age FROM survey", "COUNT(*)"),
    ("SELECT DISTINCT ON (age) age, COUNT(*) FROM survey GROUP BY age", "DISTINCT"),
    ("SELECT COUNT(DISTINCT job) FROM survey", "COUNT(DISTINCT job)"),
    ("SELECT COUNT(survey.*) FROM survey", "*"),
    ("SELECT SUM(job) FROM survey", "SUM(job)"),
    ('SELECT SUM("Pay Grade") FROM survey', 'SUM("Pay Grade")'),
    ("SELECT AVG(sex), COUNT(*) FROM survey", "AVG(sex)"),
    ('SELECT AVG("select") FROM survey', 'AVG("select")'),
    ("SELECT SUM(DISTINCT age) FROM survey", "SUM(DISTINCT age)"),
    ("SELECT MAX(job), COUNT(*) FROM survey", "MAX(job)"),
    ("SELECT string_agg(job), COUNT(*) FROM survey", "job"),
    ("SELECT list(job), COUNT(*) FROM survey", "job"),
    ("SELECT first(job), COUNT(*) FROM survey", "job"),
    ("SELECT (SELECT 1), COUNT(*) FROM survey", "SELECT 1"),
    ("SELECT COUNT(*) OVER () FROM survey", "OVER"),
    ("SELECT COUNT(*), row_number() OVER (ORDER BY age) FROM survey", "'age'"),
    ("SELECT age, COUNT(*) FROM survey", "'age'"),
    ("SELECT age, sex, COUNT(*) FROM survey GROUP BY age", "'sex'"),
    ("SELECT nothing, COUNT(*) FROM survey GROUP BY nothing", "'nothing'"),
    ("SELECT bid, COUNT(*) FROM survey GROUP BY bid", "'bid'"),
    ("SELECT weight, COUNT(*) FROM survey GROUP BY weight", "'weight'"),
    ("SELECT rowid, COUNT(*) FROM survey GROUP BY rowid", "'rowid'"),
    ("SELECT other.age, COUNT(*) FROM survey GROUP BY other.age", "other.age"),
    ("SELECT survey.age, COUNT(*) FROM survey AS s GROUP BY s.age", "survey.age"),
    ("SELECT COUNT(*) INTO copied FROM survey", "INTO"),
    ("SELECT FROM survey", "COUNT(*)"),
]
CONDITIONS = [
    ("age IN (SELECT 1)", "SELECT 1"),
    ("age IN (20, (SELECT 1))", "SELECT 1"),
    ("age = (SELECT 1)", "SELECT 1"),
    ("age > ALL (SELECT 1)", "SELECT 1"),
    ("age = ANY (SELECT 1)", "SELECT 1"),
    ("EXISTS (SELECT 1)", "SELECT 1"),
    ("NOT EXISTS (SELECT 1 FROM survey)", "SELECT 1"),
    ("EXISTS (FROM 'x.parquet')", "x.parquet"),
    ("age = (FROM read_csv('x.csv'))", "x.csv"),
    ("age = random()", "RAND"),
    ("age = getenv('HOME')", "getenv"),
    ("sex = current_user", ""),
    ('"select" > now()', ""),
    ("error('x')", ""),
    ("hash(age) = 3", ""),
    ("SUM(age) > 3", "SUM"),
    ("COUNT(*) > 3", "COUNT"),
    ("row_number() OVER () = 1", "OVER"),
    ("age & 1 = 1", "age & 1"),
    ("age | 1 = 1", "age | 1"),
    ("age << 1 = 4", ""),
    ("~age = 1", "~age"),
    ("sex COLLATE NOCASE = 'F'", "COLLATE"),
    ("sex LIKE ANY ('f', 'm')", "ANY"),
    ("(age, sex) = (3, 'f')", "(age, sex)"),
    ("(age, sex) IN ((3, 'f'))", "(age, sex)"),
    ("age = [3]", "[3]"),
    ("age = {'a': 3}", "{'a': 3}"),
    ("MAP {'a': 1} = age", "MAP"),
    ("age[1] = 3", "age[1]"),
    ("age.field = 3", "age.field"),
    ("sex[1:2] = 'f'", ""),
    ("list_filter([1], lambda x: x > 0) = [1]", "LIST_FILTER"),
    ("list_filter([1], x -> x > 0) = [1]", "LIST_FILTER"),
    ("age = ?", "?"),
    ("age = $1", "$1"),
    ("age = $named", "$named"),
    ("age = :named", "named"),
    ("age = E'\\x33'", ""),
    ("nothing = 3", "'nothing'"),
    ("bid = 3", "'bid'"),
    ("weight > 0", "'weight'"),
    ("rowid = 3", "'rowid'"),
    ("survey = 3", "'survey'"),
    ("other.age = 3", "other.age"),
    ("qit.bid = 3", "qit.bid"),
    ("other.survey.age = 3", "other.survey.age"),
    ('sex = "f"', "'f'"),
    ("*", "*"),
    ("COLUMNS(*) > 3", "COLUMNS"),
    ("survey.*", "*"),
    ("age = DEFAULT", ""),
]
ACROSS = [
    "age > job",
    "job = sex",
    "sex IS DISTINCT FROM job",
    "sex IS NOT DISTINCT FROM job",
    "job IN ('x', sex)",
    "sex NOT IN (job)",
    'age BETWEEN 3 AND "Pay Grade"',
    '"Pay Grade" BETWEEN age AND 5',
    "job LIKE sex",
    "sex NOT ILIKE job",
    'age + "Pay Grade" > 3',
    '-"Pay Grade" = age',
    "(age > 3) = (job = 'x')",
    "(age > 3) IS DISTINCT FROM (job = 'x')",
    "(age > 3 AND job = 'x') IS TRUE",
    "(age > 3 OR job = 'x') IS NULL",
    "(age > 3 OR job = 'x') IN (TRUE)",
    "TRUE BETWEEN (age > 3) AND (job = 'x')",
]
GROUPINGS = [
    ("SELECT age, COUNT(*) FROM survey GROUP BY *", ""),
    ("SELECT age, COUNT(*) FROM survey GROUP BY age WITH ROLLUP", "ROLLUP"),
    ("SELECT COUNT(*) FROM survey GROUP BY 'age'", "'age'"),
    ("SELECT COUNT(*) FROM survey GROUP BY -1", "-1"),
    ("SELECT age, COUNT(*) FROM survey GROUP BY 0", "0"),
    ("SELECT age, COUNT(*) FROM survey GROUP BY 3", "3"),
    ("SELECT age, COUNT(*) FROM survey GROUP BY 1.5", "1.5"),
    ("SELECT age, COUNT(*) FROM survey GROUP BY 2", "2"),
    ("SELECT age, COUNT(*) AS n FROM survey GROUP BY n", "n"),
    ("SELECT age, COUNT(*) FROM survey GROUP BY COUNT(*)", "COUNT(*)"),
    ("SELECT age, COUNT(*) FROM survey GROUP BY ?", "?"),
    ("SELECT sex AS s, COUNT(*) FROM survey GROUP BY survey.s", "'s'"),
    ("SELECT age, COUNT(*) FROM survey GROUP BY nothing", "'nothing'"),
]
AFTER = [
    ("HAVING sex > 3", "sex"),
    ("HAVING job = 'x'", "job"),
    ("HAVING survey.n > 3", "'n' is not in the release"),
    ("HAVING nothing > 3", "nothing"),
    ("HAVING COUNT(*) > (SELECT 1)", "SELECT 1"),
    ("HAVING COUNT(*) > ?", "?"),
    ("HAVING *", "*"),
    ("QUALIFY row_number() OVER (ORDER BY sex) = 1", "QUALIFY"),
    ("WINDOW w AS (ORDER BY age)", "WINDOW"),
    ("ORDER BY random()", "RAND"),
    ("ORDER BY (SELECT 1)", "SELECT 1"),
    ("ORDER BY age COLLATE NOCASE", "COLLATE"),
    ("ORDER BY sex", "sex"),
    ("ORDER BY job", "job"),
    ("ORDER BY nothing", "nothing"),
    ("ORDER BY other.age", "other.age"),
    ("ORDER BY 'age'", "'age'"),
    ("ORDER BY 0", "0"),
    ("ORDER BY 3", "3"),
    ("ORDER BY -1", "-1"),
    ("ORDER BY ?", "?"),
    ("LIMIT 10%", "LIMIT"),
    ("LIMIT 10 PERCENT", "LIMIT"),
    ("LIMIT -1", "LIMIT"),
    ("LIMIT 1.5", "LIMIT"),
    ("LIMIT 1e1", "LIMIT"),
    ("LIMIT '1'", "LIMIT"),
    ("LIMIT 1 + 1", "LIMIT"),
    ("LIMIT age", "LIMIT"),
    ("LIMIT NULL", "LIMIT"),
    ("LIMIT ?", "LIMIT"),
    ("LIMIT $n", "LIMIT"),
    ("LIMIT (SELECT 1)", "LIMIT"),
    ("LIMIT ²", "LIMIT"),
    ("OFFSET -1", "OFFSET"),
    ("OFFSET 1.5", "OFFSET"),
    ("OFFSET (SELECT 1)", "OFFSET"),
    ("LIMIT 1 OFFSET ?", "OFFSET"),
    ("FOR UPDATE", ""),
    ("UNION ALL SELECT 1, 2", "UNION"),
    ("UNION SELECT age, COUNT(*) FROM survey GROUP BY age", "UNION"),
    ("INTERSECT SELECT 1, 2", "INTERSECT"),
    ("EXCEPT SELECT 1, 2", "EXCEPT"),
]
STATEMENTS = [
    ("", "nothing"),
    ("   \n", "nothing"),
    (";", "nothing"),
    ("-- only a comment", "nothing"),
    ("SELECT COUNT(*) FROM survey; SELECT COUNT(*) FROM survey", "several"),
    ("SELECT COUNT(*) FROM survey; DROP TABLE survey", "several"),
    ("SELECT COUNT(*) FROM survey;; ATTACH 'x.duckdb'", "several"),
    ("(SELECT COUNT(*) FROM survey)", ""),
    ("FROM survey", "*"),
    ("TABLE survey", ""),
    ("VALUES (1)", ""),
    ("CREATE TABLE t AS SELECT COUNT(*) FROM survey", "CREATE"),
    ("CREATE VIEW t AS SELECT COUNT(*) FROM survey", "CREATE"),
    ("CREATE MACRO f(x) AS x + 1", "CREATE"),
    ("CREATE OR REPLACE TEMP VIEW survey AS SELECT 1", "CREATE"),
    ("DROP TABLE qit", "DROP"),
    ("ALTER TABLE qit RENAME TO q", "ALTER"),
    ("TRUNCATE qit", "TRUNCATE"),
    ("INSERT INTO qit VALUES (1)", "INSERT"),
    ("UPDATE qit SET age = 3", "UPDATE"),
    ("DELETE FROM qit", "DELETE"),
    ("MERGE INTO qit USING st ON TRUE WHEN MATCHED THEN DELETE", "MERGE"),
    ("COPY survey TO 'x.csv'", "COPY"),
    ("COPY (SELECT COUNT(*) FROM survey) TO 'x.csv'", "COPY"),
    ("COPY qit FROM 'x.csv'", "COPY"),
    ("EXPORT DATABASE 'folder'", ""),
    ("IMPORT DATABASE 'folder'", ""),
    ("ATTACH 'x.duckdb' AS x", "ATTACH"),
    ("DETACH x", "DETACH"),
    ("USE x", "USE"),
    ("PRAGMA database_list", "PRAGMA"),
    ("PRAGMA disable_verification", "PRAGMA"),
    ("SET threads = 1", "SET"),
    ("SET VARIABLE x = 1", ""),
    ("RESET threads", ""),
    ("INSTALL httpfs", ""),
    ("LOAD httpfs", ""),
    ("CALL pragma_version()", ""),
    ("CHECKPOINT", ""),
    ("VACUUM", ""),
    ("ANALYZE", ""),
    ("BEGIN", ""),
    ("COMMIT", ""),
    ("PREPARE p AS SELECT COUNT(*) FROM survey", ""),
    ("EXECUTE p", ""),
    ("EXPLAIN SELECT COUNT(*) FROM survey", ""),
    ("EXPLAIN ANALYZE SELECT COUNT(*) FROM survey", ""),
    ("DESCRIBE survey", "DESCRIBE"),
    ("SUMMARIZE survey", "SUMMARIZE"),
    ("SHOW TABLES", "SHOW"),
    ("PIVOT survey ON age", "PIVOT"),
    ("UNPIVOT survey ON age INTO NAME n VALUE v", ""),
    ("SELECT", "FROM survey"),
    ("SELECT COUNT(*) FROM", ""),
    ("SELECT COUNT(*) FROM survey WHERE", "parsed"),
    ("SELECT COUNT(*) FROM survey WHERE age >", "parsed"),
    ("SELECT COUNT(*) FROM survey WHERE (age > 3", "parsed"),
    ("SELECT COUNT(*) FROM survey WHERE age > 3)", "parsed"),
    ("SELECT COUNT(*) FROM survey WHERE sex = 'f", "parsed"),
    ("SELECT COUNT(*) FROM survey WHERE age > 3 sex = 'f'", "parsed"),
    ("SELECT COUNT(* FROM survey", "parsed"),
    ("SELECT COUNT(*) FROM survey HAVING", "parsed"),
    ("SELECT COUNT(*) FROM survey ORDER BY", "parsed"),
    ("SELECT COUNT(*) FROM survey LIMIT", "parsed"),
    ("/* open", "parsed"),
    ("Wie viele sind älter als 30?", ""),
]


@each(("sql", "named"), [*FROM_CLAUSES, *SELECT_LISTS, *GROUPINGS, *STATEMENTS])
def test_a_query_that_is_not_a_count_is_refused_by_name(sql: str, named: str) -> None:
    """The message names what is not supported."""
    message = refusal(sql)
    assert named.lower() in message.lower()
    assert message


@each(("condition", "named"), CONDITIONS)
def test_a_condition_that_is_not_understood_is_refused_by_name(condition: str, named: str) -> None:
    """Also deep inside one that is."""
    for sql in (condition, f"age > 3 AND (job = 'x' OR NOT ({condition}))"):
        message = refusal(f"SELECT COUNT(*) FROM survey WHERE {sql}")
        assert named.lower() in message.lower()


@each("condition", ACROSS)
def test_quasi_identifiers_are_not_compared_with_sensitive_columns(condition: str) -> None:
    """The release cannot tell; the message says which comparison."""
    for sql in (condition, f"sex = 'f' AND NOT ({condition})", f"job = 'x' OR {condition}"):
        message = refusal(f"SELECT COUNT(*) FROM survey WHERE {sql}")
        assert "quasi-identifier" in message
        assert "sensitive" in message


@each(("clause", "named"), AFTER)
def test_what_follows_the_groups_is_refused_by_name(clause: str, named: str) -> None:
    """HAVING, ORDER BY, LIMIT and set operations."""
    message = refusal(f"SELECT age, COUNT(*) AS n FROM survey GROUP BY age {clause}")
    assert named.lower() in message.lower()


def test_an_unknown_column_is_told_what_there_is() -> None:
    """All columns of the release, under their true names."""
    message = refusal("SELECT COUNT(*) FROM survey WHERE height > 3")
    for field in (*ROLES.quasi_identifiers, *ROLES.sensitive):
        assert field.name in message


def test_an_unknown_table_is_told_the_release() -> None:
    """Its name stands in the message."""
    assert "survey" in refusal("SELECT COUNT(*) FROM people")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM survey AS s(sex, age) WHERE age = 'f'",
        "SELECT COUNT(*) FROM survey AS s(a) WHERE age = 3",
        "SELECT COUNT(*) FROM survey s(a, b)",
    ],
)
def test_columns_that_are_renamed_in_from_are_refused(sql: str) -> None:
    """``AS s(sex, age)`` gives the columns other names: ``age`` is no longer the release's ``age``."""
    refusal(sql)


@pytest.mark.parametrize("star", ["* EXCLUDE (age)", "* EXCLUDE age", "* REPLACE (1 AS age)", "* RENAME (age AS a)"])
def test_a_star_with_something_is_not_count_star(star: str) -> None:
    """It is not all columns; DuckDB refuses it too."""
    refusal(f"SELECT COUNT({star}) FROM survey")


# Whatever comes -------------------------------------------------------------------------------------------------------


@each(
    "sql",
    [
        "SELECT COUNT(*) FROM survey WHERE md5('a\nb') = 'x'",
        "SELECT md5('a\nb'), COUNT(*) FROM survey",
        "SELECT COUNT(*) FROM survey WHERE sex = job + 'a\nb'",
        "SELECT COUNT(*) FROM survey HAVING COUNT(*) > md5('\n')",
        "SELECT COUNT(*) FROM survey ORDER BY '\n'",
        "SELECT COUNT(*) FROM survey GROUP BY '\r\n'",
        'SELECT COUNT(*) FROM survey WHERE "a\nb" = 3',
        'SELECT COUNT(*) FROM survey WHERE "a\nb".age = 3',
        'SELECT COUNT(*) FROM "a\nb"',
        "SELECT COUNT(*) FROM survey WHERE age = (1,\n2",
        "SELECT 'unterminated\n",
    ],
)
def test_a_refusal_is_one_line(sql: str) -> None:
    """Also where the query has line breaks in its text and names."""
    assert len(refusal(sql).splitlines()) == 1


@each("sql", ["EXPLAIN SELECT 1", "LOAD httpfs", "CALL f()", "VACUUM", "EXECUTE p", "ANALYZE"])
def test_a_refusal_logs_nothing(caplog: pytest.LogCaptureFixture, sql: str) -> None:
    """The parser's own warnings would stand beside the one line of the message."""
    with caplog.at_level(logging.DEBUG):
        refusal(sql)
    assert not [record.getMessage() for record in caplog.records]


@pytest.mark.slow
@each(
    "sql",
    [
        "SELECT COUNT(*) FROM survey WHERE " + "(" * 3000 + "age = 3" + ")" * 3000,
        "SELECT COUNT(*) FROM survey WHERE " + "NOT " * 3000 + "age = 3",
        "SELECT COUNT(*) FROM survey WHERE age = " + "- " * 3000 + "3",
        "SELECT COUNT(*) FROM survey WHERE age = 1" + " + 1" * 3000,
        "SELECT COUNT(*) FROM survey WHERE job = 'x' AND " + " AND ".join(["age <> 3"] * 3000),
        "SELECT COUNT(*) FROM survey WHERE " + " OR ".join(["age = 3"] * 3000),
        "SELECT COUNT(*) FROM survey HAVING " + " AND ".join(["COUNT(*) > 3"] * 3000),
        "SELECT COUNT(*) FROM survey WHERE age IN (" + ", ".join(["3"] * 3000) + ")",
        "SELECT COUNT(*) FROM survey LIMIT " + "9" * 5000,
        "SELECT COUNT(*) FROM survey OFFSET " + "9" * 5000,
        "SELECT age, COUNT(*) FROM survey GROUP BY " + "9" * 5000,
        "SELECT COUNT(*) FROM survey WHERE sex = '\ud800'",
        "SELECT COUNT(*) FROM survey WHERE \ud800 = 3",
        "SELECT COUNT(*) FROM survey WHERE sex = '\0'",
        "SELECT COUNT(*) FROM sur\0vey",
    ],
    few=5,
)
def test_long_and_strange_queries_are_read_or_refused(sql: str) -> None:
    """No other exception, however deep a condition is."""
    read_or_refused(sql)


def read_or_refused(sql: str) -> None:
    """No exception but a UsageError of one line."""
    try:
        found: object = taken_apart(sql)
    except UsageError as refused:
        found = str(refused).splitlines()
    assert isinstance(found, Statement) or len(found) == 1


def alternatives(n: int) -> str:
    """A mixed condition of n + 1 alternatives."""
    return "SELECT COUNT(*) FROM survey WHERE job = 'x' OR " + " OR ".join(f"age = {i}" for i in range(n))


def test_many_alternatives_over_both_sides_are_read_or_refused() -> None:
    """Where Python's stack ends; it is made short here, so that few alternatives are many."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 300)
    try:
        read_or_refused(alternatives(320))
    finally:
        sys.setrecursionlimit(limit)


VOCABULARY = """
    SELECT COUNT(*) COUNT ( ) * FROM survey WHERE AND OR NOT GROUP BY ORDER HAVING LIMIT OFFSET age sex job s n 'x' 30 1
    2 0 , . ; = < <> >= + - / % || IS NULL TRUE IN BETWEEN LIKE ILIKE ESCAPE AS DISTINCT ALL ANY EXISTS UNION JOIN ON
    CASE WHEN THEN END CAST :: DATE INTEGER ROLLUP CUBE QUALIFY OVER FILTER VALUES WITH LATERAL UNNEST PIVOT INTERVAL
    NULLS FIRST DESC lambda -> EXCLUDE COLUMNS COLLATE [ ] { } : ? $1 @ # & | ^ ~ \\ " ' ` -- /* */ E'' 1e5 .5
"""


@pytest.mark.slow
@settings(max_examples=share(500), deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.sampled_from(VOCABULARY.split()), st.text(max_size=3)), max_size=25).map(" ".join))
def test_any_text_is_read_or_refused(garbage: str) -> None:
    """Nothing but a Statement or a UsageError."""
    try:
        query = taken_apart(garbage)
    except UsageError:
        return
    assert isinstance(query, Statement)


@settings(max_examples=share(500), deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(VOCABULARY.split()), max_size=12).map(" ".join))
def test_any_ending_of_a_count_is_read_or_refused(ending: str) -> None:
    """The beginning is right, so that more of the reader is reached."""
    for beginning in ("SELECT COUNT(*) FROM survey", "SELECT age, COUNT(*) AS n FROM survey AS s WHERE age ="):
        try:
            query = taken_apart(f"{beginning} {ending}")
        except UsageError:
            continue
        assert isinstance(query, Statement)
        assert query.outputs
