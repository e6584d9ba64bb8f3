"""privsql.query: answers are those of the release's own weighted view, and their bounds hold."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privsql as api
from privsql.errors import PrivsqlError, UsageError
from privsql.keyed_random import seed_key
from privsql.releases.opened import read_manifest
from privsql.source.spec import build
from support.effort import share
from support.loops import each, rest_slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.answers.answer import Answer

RELATIVE = 1e-9
COUNT_STAR = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)


def examples(n: int) -> settings:
    """So many examples, always the same."""
    return settings(max_examples=share(n), deadline=None, derandomize=True)


@dataclass(frozen=True)
class World:
    """A release that is kept open, and an engine of its own with the weighted view and the source as tables."""

    path: Path
    name: str
    oracle: duckdb.DuckDBPyConnection
    release: api.Release

    def close(self) -> None:
        """Close both."""
        self.oracle.close()
        self.release.close()

    def query(self, sql: str) -> Answer:
        """The answer of privsql."""
        return self.release.query(sql, estimator="baseline")

    def estimate(self, condition: str) -> tuple[float, float | None, float, float]:
        """The figures of a plain count under a condition."""
        answer = self.query(f"SELECT COUNT(*) FROM {self.name} WHERE {condition}")
        assert answer.columns == ("estimate", "std_error", "low", "high")
        assert len(answer.rows) == 1
        return answer.rows[0]

    def weighed(self, sql: str) -> list[tuple[Any, ...]]:
        """The same SQL by plain DuckDB on the view, the count as a sum of weights."""
        return self.oracle.execute(COUNT_STAR.sub("sum(weight)", sql)).fetchall()

    def weight(self, condition: str) -> float:
        """SELECT sum(weight) FROM view WHERE condition; 0 where that is NULL."""
        found = self.weighed(f"SELECT COUNT(*) FROM {self.name} WHERE {condition}")
        return float(found[0][0] or 0)

    def true(self, condition: str) -> int:
        """The count in the source table."""
        found = self.oracle.execute(f"SELECT count(*) FROM source AS {self.name} WHERE {condition}").fetchone()
        assert found is not None
        return int(found[0])

    def check(self, condition: str, *, exact: bool = False) -> None:
        """Estimate, bounds and standard error of one condition."""
        estimate, std_error, low, high = self.estimate(condition)
        true = self.true(condition)
        assert estimate == pytest.approx(self.weight(condition), rel=RELATIVE, abs=1e-9), condition
        assert low <= true <= high, condition
        assert low <= estimate <= high, condition
        assert std_error == (0.0 if low == high else None), condition
        if exact:
            assert (estimate, std_error, low, high) == (true, 0.0, true, true), condition


def released(folder: Path, source: Path, columns: dict[str, Any], name: str, **mechanism: Any) -> Path:
    """Publish with a seed."""
    asked = {
        "source": {"database": source.name, "table": "t"} if source.suffix == ".duckdb" else {"file": source.name},
        "columns": columns,
        "release": {"name": name, "to": f"{source.stem}_release.duckdb"},
        "mechanism": {"threshold": "1.5*f + 0.1", "max_bucket_size": 12} | mechanism,
    }
    release = api.publish(build(asked, base=folder), key=seed_key(11)).release
    assert release is not None
    return release


def world(path: Path, source: Path, name: str) -> World:
    """Copies of the view and of the source in memory, so that no file stays open."""
    oracle = duckdb.connect()
    oracle.execute(f"ATTACH '{path}' AS release (READ_ONLY)")
    view = f'"{name.strip(chr(34))}_pairs"'
    oracle.execute(f"CREATE TABLE {name} AS SELECT * FROM release.{view}")
    oracle.execute("DETACH release")
    if source.suffix == ".duckdb":
        oracle.execute(f"ATTACH '{source}' AS warehouse (READ_ONLY)")
        oracle.execute("CREATE TABLE source AS SELECT * FROM warehouse.t")
        oracle.execute("DETACH warehouse")
    else:
        oracle.execute(f"CREATE TABLE source AS SELECT * FROM '{source}'")
    return World(path, name, oracle, api.open(path))


# Releases -------------------------------------------------------------------------------------------------------------


def dice(seed: int) -> random.Random:
    """The same throws every time."""
    return random.Random(seed)  # noqa: S311


QI = ["age", "sex", "Zip Code", "größe", 'a"b', "select"]
ILLS = ["flu", "cold", "O'Brien", "100%", "a_b", "ÄRGER", "none", " HIV"]


@pytest.fixture(scope="module")
def survey_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``survey.parquet``: 700 records, NULL in most quasi-identifiers, one sensitive text column ``ill``."""
    folder, rng = tmp_path_factory.mktemp("survey"), dice(5)
    rows = [
        (
            rng.choice([None, *range(18, 30)]),
            rng.choice(["f", "m", None]),
            rng.choice(["0100", "0200", "1%0", "1_0", ""]),
            rng.choice([None, *(Decimal(cents) / 4 for cents in range(150, 170))]),
            rng.choice([True, False, None]),
            rng.choice([None, *(date(2020, 1, day) for day in range(1, 12))]),
            rng.choices(ILLS, [20, 18, 15, 13, 12, 10, 7, 5])[0],
        )
        for _ in range(700)
    ]
    types = [pa.int32(), pa.string(), pa.string(), pa.decimal128(6, 2), pa.bool_(), pa.date32(), pa.string()]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)]
    pq.write_table(pa.table(columns, names=[*QI, "ill"]), folder / "survey.parquet")
    return folder


@pytest.fixture(scope="module")
def survey(survey_folder: Path) -> Iterator[World]:
    """Its release, with buckets of several sizes."""
    source = survey_folder / "survey.parquet"
    path = released(survey_folder, source, {"quasi_identifiers": QI, "sensitive": "ill"}, "survey")
    assert len(read_manifest(path).facts["setting"]) > 1
    with closing(world(path, source, "survey")) as made:
        yield made


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A DuckDB table with a compound sensitive attribute, a part of which is NULL in some records."""
    folder = tmp_path_factory.mktemp("clinic")
    source, rng = folder / "clinic.duckdb", dice(6)
    illness = [("flu", 1), ("flu", 2), ("cold", 1), ("cold", None), (None, 1), ("2", 2), ("3", 2)]
    rows = [(rng.randint(1, 9), rng.choice("abc"), *rng.choices(illness, [6, 5, 5, 4, 3, 3, 3])[0]) for _ in range(500)]
    with duckdb.connect(str(source)) as con:
        con.execute('CREATE TABLE t (ward INTEGER, "group" VARCHAR, disease VARCHAR, "stage Nr" INTEGER)')
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    nulls = {"disease": "value", "stage Nr": "value"}
    columns = {"quasi_identifiers": ["ward", "group"], "sensitive": ["disease", "stage Nr"], "nulls": nulls}
    with closing(world(released(folder, source, columns, "clinic"), source, "clinic")) as made:
        yield made


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """NULL is a sensitive value of its own; the release has a name that must be quoted."""
    folder = tmp_path_factory.mktemp("hidden")
    source, rng = folder / "hidden.duckdb", dice(7)
    rows = [(rng.choice([None, 1, 2, 3]), rng.choice([None, None, "x", "y", "z", ""])) for _ in range(400)]
    with duckdb.connect(str(source)) as con:
        con.execute("CREATE TABLE t (q INTEGER, s VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?, ?)", rows)
    columns = {"quasi_identifiers": ["q"], "sensitive": "s", "nulls": {"s": "value"}}
    path = released(folder, source, columns, 'the "größe" of all')
    with closing(world_named(path, source)) as made:
        yield made


def world_named(path: Path, source: Path) -> World:
    """The world of a release whose name needs quotes."""
    return world(path, source, '"the ""größe"" of all"')


INSIDE = ["rank", "n", "size", "g_0", "g_1", "q_0", "count"]


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Columns whose names are those of privsql's own statements; no two of them hold the same."""
    folder = tmp_path_factory.mktemp("inside")
    source = folder / "inside.duckdb"
    with duckdb.connect(str(source)) as con:
        con.execute(
            """CREATE TABLE t AS SELECT
              i * 7 % 5 - 9 AS "rank", i % 3 + 10 AS n, i * 13 % 6 + 20 AS size, i * 17 % 3 + 30 AS g_0,
              i * 3 % 4 + 40 AS g_1, i % 2 + 50 AS q_0, i * 19 % 3 + 60 AS low, i * 7 % 4 + 70 AS estimate,
              i * 11 % 4 - 1000 AS "count", i * 5 % 7 AS c, i * 29 % 3 AS s_0
            FROM range(600) AS r(i)"""
        )
    columns = {"quasi_identifiers": INSIDE, "sensitive": ["c", "s_0"]}
    with closing(world(released(folder, source, columns, "inside"), source, "inside")) as made:
        yield made


KINDS = {
    "tiny": "(i % 3)::UTINYINT",
    "long": "(18446744073709551615 - i % 3)::UBIGINT",
    "real": "(i % 3 / 10)::FLOAT",
    "number": "(i % 4 - 1.5)::DOUBLE",
    "odd": "CASE i % 5 WHEN 0 THEN 'nan' WHEN 1 THEN '-inf' WHEN 2 THEN 'inf' WHEN 3 THEN '-0.0' ELSE '1' END::DOUBLE",
    "money": "CASE i % 2 WHEN 0 THEN '12345678901234567890123456789012345.678' ELSE '1.5' END::DECIMAL(38, 3)",
    "text": "chr(0) || i % 3",
    "uuid": "('00000000-0000-0000-0000-00000000000' || i % 3)::UUID",
    "day": "DATE '2020-01-01' + (i % 4)::INTEGER",
    "forever": "CASE i % 4 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' WHEN 2 THEN '9999-12-31' ELSE '0001-01-01' "
    "END::DATE",
    "ancient": "CASE i % 3 WHEN 0 THEN '0044-03-15 (BC)' WHEN 1 THEN '2020-01-01' ELSE '290000-01-01' END::DATE",
    "clock": "CASE i % 3 WHEN 0 THEN '24:00:00' WHEN 1 THEN '12:00:00.000001' ELSE '00:00:00' END::TIME",
    "moment": "TIMESTAMP '2020-01-01 01:02:03.456789' + to_hours((i % 4)::INTEGER)",
    "endless": "CASE i % 3 WHEN 0 THEN 'infinity' WHEN 1 THEN '2020-01-01' ELSE '0044-01-01 (BC)' END::TIMESTAMP",
    "fine": "make_timestamp_ns(1577836800000000000 + i % 3)",
    "zoned": "make_timestamptz(1577836800000000 + i % 3)",
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One quasi-identifier of every type, with its extreme values, in buckets of two sizes."""
    folder = tmp_path_factory.mktemp("kinds")
    source = folder / "kinds.duckdb"
    with duckdb.connect(str(source)) as con:
        listed = ", ".join(f"{sql} AS {name}" for name, sql in KINDS.items())
        con.execute(f"CREATE TABLE t AS SELECT {listed}, 'v' || i * 5 % 7 AS s FROM range(633) AS r(i)")
    columns = {"quasi_identifiers": list(KINDS), "sensitive": "s"}
    path = released(folder, source, columns, "kinds", algorithm="multi-size", threshold="1.2*f + 0.05")
    assert len(read_manifest(path).facts["setting"]) > 1
    with closing(world(path, source, "kinds")) as made:
        yield made


# Conditions -----------------------------------------------------------------------------------------------------------

ON_QI = [
    "age = 20",
    "AGE = 20",
    "20 <> age",
    "age != 20",
    "age == 20",
    "age > 22.5",
    "age >= 22 AND age < 25",
    "survey.age <= 21",
    "Survey.Age <= 21",
    '"age" IN (20, 21, 22)',
    "age IN (20, NULL)",
    "age NOT IN (20, 21)",
    "age NOT IN (20, NULL)",
    "NOT age IN (20, 21)",
    "age IN ('20', '21')",
    "age BETWEEN 20 AND 22",
    "age NOT BETWEEN 20 AND 22",
    "NOT age BETWEEN 22 AND 20",
    "age IS NULL",
    "age IS NOT NULL",
    "NOT age IS NULL",
    "age ISNULL",
    "age NOTNULL",
    "age IS DISTINCT FROM 20",
    "age IS NOT DISTINCT FROM 20",
    "age IS NOT DISTINCT FROM NULL",
    "age = NULL",
    "NOT (age = NULL)",
    "(age = 20) IS NULL",
    "NOT age = 20 IS NULL",
    "age + 1 > 22",
    "-age < -22",
    "age * 2 - 1 BETWEEN 41 AND 45",
    "age = - - 20",
    "age",
    "age IS TRUE",
    "sex = 'f' OR sex IS NULL",
    "sex = 'f' AND NOT age > 20",
    "NOT (sex = 'f' OR age > 20)",
    "sex <> 'f'",
    'sex = "Zip Code"',
    'sex < "zip code"',
    "sex IS DISTINCT FROM sex",
    "\"Zip Code\" LIKE '1%'",
    "\"Zip Code\" NOT LIKE '1%'",
    "\"Zip Code\" LIKE '_!%_' ESCAPE '!'",
    "\"Zip Code\" NOT LIKE '_!_0' ESCAPE '!'",
    "\"Zip Code\" = ''",
    "größe > 40",
    "größe = 40.25",
    "größe <= 39.999",
    "größe * 4 = 155",
    "größe IN (38.5, 39.00, 40)",
    '"a""b"',
    'NOT "a""b"',
    '"a""b" IS TRUE',
    '"a""b" IS NOT TRUE',
    '"a""b" IS FALSE OR age = 20',
    '"a""b" = TRUE',
    '"a""b" = (age > 22)',
    "\"select\" = '2020-01-03'",
    "\"select\" > DATE '2020-01-03'",
    "\"select\" BETWEEN CAST('2020-01-03' AS DATE) AND '2020-01-05'::DATE",
    "\"select\" + 2 > DATE '2020-01-09'",
    "\"select\" - DATE '2020-01-01' < 4",
    "TRUE",
    "FALSE",
    "NULL",
    "1 = 1",
    "'a' = 'b' OR age > 20",
]
ON_SA = [
    "ill = 'flu'",
    "ILL = 'flu'",
    "ill <> 'flu'",
    "ill = 'FLU'",
    "ill = 'O''Brien'",
    "ill > 'c'",
    "ill IN ('flu', 'cold', 'nothing')",
    "ill NOT IN ('flu', 'cold')",
    "ill NOT IN ('flu', NULL)",
    "ill BETWEEN 'a' AND 'd'",
    "ill IS NULL",
    "ill IS NOT NULL",
    "ill IS DISTINCT FROM 'flu'",
    "ill IS NOT DISTINCT FROM 'flu'",
    "ill LIKE '%l%'",
    "ill LIKE 'a_b'",
    "ill LIKE 'a!_b' ESCAPE '!'",
    "ill LIKE '%!%' ESCAPE '!'",
    "ill ILIKE 'är%'",
    "ill NOT ILIKE '%HIV'",
    "ill ~~ 'f%'",
    "NOT (ill = 'flu' OR ill = 'cold')",
    "(ill = 'flu') IS NOT TRUE",
    "ill = ' HIV'",
    "ill = ill",
    "ill LIKE ill",
]
MIXED = [
    "age = 20 AND ill = 'flu'",
    "age = 20 OR ill = 'flu'",
    "NOT (age = 20 AND ill = 'flu')",
    "NOT (age = 20 OR ill = 'flu')",
    "age IS NULL AND ill IS NOT NULL",
    "(age > 22 AND ill = 'flu') OR (age <= 22 AND ill = 'cold')",
    "(age > 22 OR ill = 'flu') AND (age <= 22 OR ill = 'cold')",
    "(age > 22 AND ill = 'flu') OR (age > 22 AND ill <> 'flu')",
    "age > 22 OR age <= 22 OR ill = 'flu'",
    "sex = 'f' AND (\"a\"\"b\" OR ill IN ('flu', 'cold')) AND ill <> 'flu'",
    "NOT (sex = 'f' AND NOT (ill = 'flu' OR \"select\" > '2020-01-05'))",
    "ill = 'flu' OR NULL",
    "ill = 'flu' AND NULL",
    "ill = 'flu' OR TRUE",
    "ill = 'flu' OR 1",
    "ill = 'flu' OR 5",
    "ill = 'flu' OR 'true'",
    "NOT ill = 'flu' OR age = NULL",
    "ill = 'flu' AND age",
    "ill = 'flu' OR age - 20",
    "NOT age = 20 IS NULL OR ill = 'flu'",
    "größe > 40 AND \"select\" IS NOT NULL AND ill ILIKE '%o%'",
    "age = 99 AND ill = 'flu'",
    "age = 99 OR ill = 'nothing'",
    "age = 20 AND ill = 'nothing'",
]


@pytest.mark.slow
@each("condition", ON_QI, few=35)
def test_a_condition_on_quasi_identifiers_is_answered_exactly(survey: World, condition: str) -> None:
    """QIT holds the truth."""
    survey.check(condition, exact=True)


@pytest.mark.slow
@each("condition", ON_SA)
def test_a_condition_on_the_sensitive_column_is_answered_exactly(survey: World, condition: str) -> None:
    """ST holds the truth; the bounds meet by themselves."""
    survey.check(condition, exact=True)


@each("condition", MIXED)
def test_a_condition_on_both_sides_is_answered_as_the_view_does(survey: World, condition: str) -> None:
    """With bounds that hold."""
    survey.check(condition)


@pytest.mark.slow
def test_the_view_in_the_file_gives_the_same(survey: World, tmp_path: Path) -> None:
    """Not only its copy in memory."""
    copy = shutil.copy(survey.path, tmp_path / "copy.duckdb")
    with duckdb.connect(str(copy), read_only=True) as con:
        for condition in MIXED:
            found = con.execute(f"SELECT sum(weight) FROM survey_pairs WHERE {condition}").fetchone()
            assert found is not None
            assert survey.estimate(condition)[0] == pytest.approx(found[0] or 0, rel=RELATIVE, abs=1e-9)


def test_the_explained_statement_gives_the_estimate(survey: World, tmp_path: Path) -> None:
    """``--explain`` shows SQL that runs in any tool on the release alone."""
    copy = shutil.copy(survey.path, tmp_path / "copy.duckdb")
    with duckdb.connect(str(copy), read_only=True) as con:
        for condition in ("age > 22 AND ill = 'flu'", "NOT (age > 22 AND ill = 'flu')", "age > 22"):
            answer = survey.query(f"SELECT COUNT(*) FROM survey WHERE {condition}")
            rows = con.execute(answer.sql).fetchall()
            names = [column[0] for column in con.description or ()]
            if "pairs" in names:
                found = sum(row[names.index("pairs")] / row[names.index("size")] for row in rows)
            else:
                found = sum(row[-1] for row in rows)
            assert answer.rows[0][0] == pytest.approx(float(found), rel=RELATIVE)


def test_an_answer_says_what_it_is(survey: World) -> None:
    """The estimator, and whether it is exact."""
    inexact, exact = (
        survey.query(f"SELECT COUNT(*) FROM survey WHERE {c}") for c in ("age = 20 AND ill = 'flu'", "age = 20")
    )
    assert inexact.estimator == exact.estimator == "baseline"
    assert "certain" in inexact.interval
    assert exact.interval.startswith("exact")


# Conditions of a small grammar

COMPARE = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])


def on_column(column: str, literals: list[str], patterns: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    """Comparisons of one column with literals, NULL among them."""
    literal = st.sampled_from([*literals, "NULL"])
    negated = st.sampled_from(["", "NOT "])
    forms = [
        st.builds(lambda op, value: f"{column} {op} {value}", COMPARE, literal),
        st.builds(lambda op, value: f"{value} {op} {column}", COMPARE, literal),
        st.builds(
            lambda no, values: f"{column} {no}IN ({', '.join(values)})",
            negated,
            st.lists(literal, min_size=1, max_size=4),
        ),
        st.builds(lambda no, low, high: f"{column} {no}BETWEEN {low} AND {high}", negated, literal, literal),
        st.builds(lambda no: f"{column} IS {no}NULL", negated),
    ]
    if patterns:
        like = st.sampled_from(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"])
        forms.append(
            st.builds(
                lambda op, pattern, escape: f"{column} {op} '{pattern}'{escape}",
                like,
                st.sampled_from(patterns),
                st.sampled_from(["", " ESCAPE '!'"]),
            )
        )
    return st.one_of(forms)


QI_ATOMS = st.one_of(
    on_column("age", ["18", "20", "22", "23.5", "'25'", "29", "-1", "20 + 2", "2 * 11"]),
    on_column("survey.age + 1", ["20", "24"]),
    on_column("sex", ["'f'", "'m'", "''", '"Zip Code"', "sex"], ("f", "_", "%", "M", "!%")),
    on_column('"Zip Code"', ["'0100'", "'1%0'", "'1_0'", "''"], ("1%0", "1!%0", "1!_0", "_!__", "%0", "")),
    on_column("größe", ["38.5", "40", "41.75", "40.001", "1e1", "'39.25'"]),
    on_column('"select"', ["'2020-01-03'", "DATE '2020-01-07'", "CAST('2020-01-09' AS DATE)", "DATE '2020-01-01' + 4"]),
    st.sampled_from(
        ['"a""b"', '"a""b" = TRUE', '"a""b" IS NOT TRUE', '"a""b" IS FALSE', "TRUE", "FALSE", "NULL", "1 = 2"]
    ),
)
SA_ATOMS = st.one_of(
    on_column(
        "ill", ["'flu'", "'cold'", "'O''Brien'", "'a_b'", "'none'", "ill"], ("f%", "A_b", "a!_b", "%!%", "%r%", " hiv")
    )
)


def connected(atoms: st.SearchStrategy[str], leaves: int = 6) -> st.SearchStrategy[str]:
    """Boolean combinations, with more and with fewer brackets than needed."""
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            inner.map("NOT {}".format),
            inner.map("NOT ({})".format),
            inner.map("({})".format),
            inner.map("({}) IS NULL".format),
            st.builds("{} AND {}".format, inner, inner),
            st.builds("({}) AND ({})".format, inner, inner),
            st.builds("{} OR {}".format, inner, inner),
            st.builds("({}) OR ({})".format, inner, inner),
        ),
        max_leaves=leaves,
    )


def on_both_sides(leaves: int = 8) -> st.SearchStrategy[str]:
    """Boolean combinations of parts that are each about one side."""
    return st.recursive(
        st.one_of(QI_ATOMS, SA_ATOMS, connected(QI_ATOMS, 3).map("({}) IS NOT NULL".format)),
        lambda inner: st.one_of(
            inner.map("NOT ({})".format),
            inner.map("({})".format),
            st.builds("{} AND {}".format, inner, inner),
            st.builds("{} OR {}".format, inner, inner),
            st.builds("({}) AND ({})".format, inner, inner),
            st.builds("({}) OR ({})".format, inner, inner),
        ),
        max_leaves=leaves,
    )


@examples(80)
@given(condition=connected(QI_ATOMS))
def test_any_condition_on_quasi_identifiers_is_exact(survey: World, condition: str) -> None:
    """Three-valued logic and all."""
    survey.check(condition, exact=True)


@examples(60)
@given(condition=connected(SA_ATOMS))
def test_any_condition_on_the_sensitive_column_is_exact(survey: World, condition: str) -> None:
    """The same from ST."""
    survey.check(condition, exact=True)


@examples(250)
@given(condition=on_both_sides())
def test_any_condition_is_answered_as_the_view_does(survey: World, condition: str) -> None:
    """Estimate of the view, bounds around the truth."""
    survey.check(condition)


# Groups ---------------------------------------------------------------------------------------------------------------


def check_groups(there: World, columns: list[str], condition: str, sql: str) -> Answer:
    """An ungarnished grouped query: every group of the view with positive weight, once, with its figures."""
    listed = ", ".join(columns)
    weights = {
        row[:-1]: row[-1]
        for row in there.oracle.execute(
            f"SELECT {listed}, sum(weight) AS w FROM {there.name} WHERE {condition} GROUP BY {listed} HAVING w > 0"
        ).fetchall()
    }
    true = {
        row[:-1]: row[-1]
        for row in there.oracle.execute(
            f"SELECT {listed}, count(*) FROM source AS {there.name} WHERE {condition} GROUP BY {listed}"
        ).fetchall()
    }
    answer = there.query(sql)
    found = {row[:-4]: row[-4:] for row in answer.rows}
    assert len(found) == len(answer.rows)
    assert found.keys() == weights.keys()
    assert true.keys() <= found.keys()
    for group, (estimate, std_error, low, high) in found.items():
        assert estimate == pytest.approx(weights[group], rel=RELATIVE), group
        assert low <= true.get(group, 0) <= high, group
        assert low <= estimate <= high, group
        assert std_error == (0.0 if low == high else None), group
    return answer


@each(
    ("sql", "columns", "condition"),
    [
        ("SELECT age, COUNT(*) FROM survey GROUP BY age", ["age"], "TRUE"),
        ("SELECT age AS a, COUNT(*) AS n FROM survey GROUP BY a", ["age"], "TRUE"),
        ("SELECT ill, COUNT(*) FROM survey GROUP BY 1", ["ill"], "TRUE"),
        ("SELECT s.sex, s.ILL, COUNT(*) FROM survey AS s GROUP BY s.sex, s.ill", ["sex", "ill"], "TRUE"),
        ("SELECT ill AS i, sex, COUNT(*) FROM survey GROUP BY 2, i", ["ill", "sex"], "TRUE"),
        ("SELECT ill, COUNT(*) FROM survey WHERE age > 22 GROUP BY ill", ["ill"], "age > 22"),
        ("SELECT age, COUNT(*) FROM survey WHERE ill = 'flu' GROUP BY age", ["age"], "ill = 'flu'"),
        ("SELECT ill, COUNT(*) FROM survey WHERE ill <> 'flu' GROUP BY ill", ["ill"], "ill <> 'flu'"),
        (
            'SELECT "a""b", COUNT(*) FROM survey WHERE age = 20 OR ill = \'flu\' GROUP BY "a""b"',
            ['"a""b"'],
            "age = 20 OR ill = 'flu'",
        ),
        (
            'SELECT "select" AS d, größe, ill, COUNT(*) FROM survey WHERE "Zip Code" LIKE \'1%\' GROUP BY 1, 2, 3',
            ['"select"', "größe", "ill"],
            "\"Zip Code\" LIKE '1%'",
        ),
        ("SELECT age, COUNT(*) FROM survey WHERE age > 99 GROUP BY age", ["age"], "age > 99"),
        ("SELECT ill, COUNT(*) FROM survey WHERE age > 99 GROUP BY ill", ["ill"], "age > 99"),
    ],
)
def test_groups_are_those_of_the_view(survey: World, sql: str, columns: list[str], condition: str) -> None:
    """By name, alias and position, on either side."""
    check_groups(survey, columns, condition, sql)


@pytest.mark.slow
@examples(100)
@given(
    columns=st.lists(
        st.sampled_from([*(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in QI), "ill"]),
        min_size=1,
        max_size=3,
        unique=True,
    ),
    condition=st.one_of(st.just("TRUE"), on_both_sides(5)),
    by=st.sampled_from(["name", "position", "alias"]),
)
def test_any_groups_are_those_of_the_view(survey: World, columns: list[str], condition: str, by: str) -> None:
    """And none is empty."""
    aliased = [f"{column} AS x{i}" if by == "alias" else column for i, column in enumerate(columns)]
    keys = {
        "name": columns,
        "position": [str(i + 1) for i in range(len(columns))],
        "alias": [f"x{i}" for i in range(len(columns))],
    }[by]
    sql = f"SELECT {', '.join(aliased)}, COUNT(*) FROM survey WHERE {condition} GROUP BY {', '.join(keys)}"
    answer = check_groups(survey, columns, condition, sql)
    if by == "alias":
        assert answer.columns[:-4] == tuple(f"x{i}" for i in range(len(columns)))


def test_groups_that_are_not_shown_make_rows(survey: World) -> None:
    """As in SQL."""
    hidden_rows = survey.query("SELECT COUNT(*) FROM survey WHERE ill = 'flu' GROUP BY age, sex ORDER BY age, sex").rows
    shown = survey.query("SELECT age, sex, COUNT(*) FROM survey WHERE ill = 'flu' GROUP BY 1, 2 ORDER BY 1, 2").rows
    assert hidden_rows == [row[2:] for row in shown]


def test_a_column_shown_under_the_name_of_another_group_keeps_its_values(survey: World) -> None:
    """``sex`` is shown as ``age``, and the rows are also grouped by ``age``."""
    rows = survey.query("SELECT sex AS age, COUNT(*) FROM survey GROUP BY sex, age").rows
    expected = survey.oracle.execute("SELECT sex AS age, count(*) FROM source GROUP BY sex, age").fetchall()
    assert sorted((str(row[0]), row[1]) for row in rows) == sorted((str(row[0]), row[1]) for row in expected)


def test_two_columns_may_swap_their_names(survey: World) -> None:
    """GROUP BY and WHERE mean the columns, ORDER BY the names that are shown."""
    sql = "SELECT sex AS age, age AS sex, COUNT(*) FROM survey WHERE age > 27 GROUP BY sex, age ORDER BY age DESC, sex"
    same_rows(survey.query(sql).rows, survey.weighed(sql), 2)


def test_columns_of_an_answer_have_different_names(inside: World) -> None:
    """The object of ``--json`` has one key for each."""
    for name in ("low", "estimate"):
        try:
            answer = inside.query(f"SELECT {name}, COUNT(*) AS k FROM inside GROUP BY {name}")
        except UsageError:
            continue
        assert len(set(answer.columns)) == len(answer.columns)
        assert all(len(row) == len(answer.columns) for row in answer.as_json()["rows"])


# HAVING, ORDER BY, LIMIT

SELECTED = """SELECT age AS a, ill, COUNT(*) AS n FROM survey
    WHERE sex IS NOT NULL AND (age > 24 OR age IS NULL) GROUP BY a, ill"""


def same_rows(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]], shown: int) -> None:
    """The same groups in the same order, with estimates that are equal to nine digits."""
    assert [row[:shown] for row in found] == [row[:shown] for row in expected]
    assert [row[shown] for row in found] == pytest.approx([row[shown] for row in expected], rel=RELATIVE)


@each(
    "ending",
    [
        "ORDER BY a, ill",
        "ORDER BY age, 2",
        "ORDER BY ill DESC, a DESC",
        "ORDER BY a NULLS FIRST, ill",
        "ORDER BY a DESC NULLS FIRST, ill",
        "ORDER BY a ASC NULLS LAST, ill",
        "ORDER BY a DESC NULLS LAST, ill",
        "ORDER BY 1 DESC, survey.ill",
        "ORDER BY 2, 1",
        "ORDER BY a, ill LIMIT 5",
        "ORDER BY a, ill LIMIT 5 OFFSET 3",
        "ORDER BY a, ill OFFSET 40",
        "ORDER BY a, ill OFFSET 4000",
        "ORDER BY a, ill LIMIT 0",
        "HAVING COUNT(*) > 3.123 ORDER BY a, ill",
        "HAVING n > 3.123 ORDER BY a, ill",
        "HAVING n BETWEEN 3.123 AND 5.123 ORDER BY a, ill",
        "HAVING NOT (COUNT(*) < 3.123 OR n > 5.123) ORDER BY a, ill DESC",
        "HAVING 3.123 >= count ( * ) ORDER BY a, ill LIMIT 3",
        "HAVING COUNT(*) > 3.123 ORDER BY a, ill LIMIT 3 OFFSET 2",
        "HAVING COUNT(*) > 1e6 ORDER BY a, ill",
    ],
)
def test_rows_come_as_duckdb_orders_the_view(survey: World, ending: str) -> None:
    """Every row in its place."""
    sql = f"{SELECTED} {ending}"
    same_rows(survey.query(sql).rows, survey.weighed(sql), 2)


@each("key", ["COUNT(*)", "n", "N", "3", "count( * ) ASC NULLS FIRST"])
@each("direction", ["", " DESC"])
def test_rows_come_by_their_count(survey: World, key: str, direction: str) -> None:
    """Equal counts by the groups."""
    if "ASC" in key and direction:
        key = "COUNT(*)"
    sql = f"{SELECTED} ORDER BY {key}{direction}"
    rows = survey.query(sql).rows
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=bool(direction))
    expected = survey.weighed(SELECTED)
    assert sorted(map(repr, (row[:2] for row in rows))) == sorted(map(repr, (row[:2] for row in expected)))
    top = survey.query(f"{sql} LIMIT 4").rows
    assert top == rows[:4]


@examples(50)
@given(data=st.data())
def test_any_ending_gives_the_rows_of_the_view(survey: World, data: st.DataObject) -> None:
    """HAVING, a full ORDER BY, LIMIT and OFFSET at random."""
    having = data.draw(
        st.sampled_from(["", "HAVING n > 2.345", "HAVING NOT COUNT(*) >= 4.321", "HAVING COUNT(*) <> 3.457"])
    )
    keys = data.draw(st.permutations([["a", "age", "1"], ["ill", "survey.ill", "2"]]))
    nulls = st.sampled_from(["", " NULLS FIRST", " NULLS LAST"])
    order = ", ".join(
        data.draw(st.sampled_from(names)) + data.draw(st.sampled_from(["", " ASC", " DESC"])) + data.draw(nulls)
        for names in keys
    )
    limit = data.draw(st.sampled_from(["", "LIMIT 0", "LIMIT 7", "LIMIT 500"]))
    offset = data.draw(st.sampled_from(["", "OFFSET 0", "OFFSET 5", "OFFSET 500"]))
    sql = f"{SELECTED} {having} ORDER BY {order} {limit} {offset}"
    same_rows(survey.query(sql).rows, survey.weighed(sql), 2)


def test_an_ungrouped_answer_obeys_having_and_limit(survey: World) -> None:
    """One row or none."""
    for ending, rows in (
        ("HAVING COUNT(*) > 5", 1),
        ("HAVING COUNT(*) > 5000", 0),
        ("LIMIT 0", 0),
        ("OFFSET 1", 0),
        ("LIMIT 9", 1),
    ):
        assert len(survey.query(f"SELECT COUNT(*) FROM survey {ending}").rows) == rows


def test_rows_without_order_come_in_the_order_of_the_groups(survey: World) -> None:
    """So that an answer is the same every time; NULL is last."""
    rows = survey.query("SELECT ill, age, COUNT(*) FROM survey GROUP BY age, ill").rows
    assert [row[:2] for row in rows] == [
        row[:2] for row in survey.weighed("SELECT ill, age, COUNT(*) FROM survey GROUP BY age, ill ORDER BY age, ill")
    ]


# Compound and NULL sensitive values -----------------------------------------------------------------------------------


@pytest.mark.slow
@each(
    "condition",
    [
        "disease = 'flu'",
        '"stage Nr" = 2',
        "disease = 'flu' AND \"stage Nr\" = 2",
        "disease = 'flu' OR \"stage Nr\" = 2",
        "disease IS NULL",
        '"Stage nr" IS NOT NULL AND disease IS NOT NULL',
        "NOT (disease = 'flu' OR \"stage Nr\" = 2)",
        "disease IS DISTINCT FROM 'flu'",
        "\"stage Nr\" + 1 BETWEEN 2 AND 2 OR disease LIKE 'c%'",
        "(disease = 'flu') IS DISTINCT FROM (\"stage Nr\" = 2)",
    ],
    few=4,
)
def test_conditions_on_a_compound_sensitive_attribute(clinic: World, condition: str) -> None:
    """On any of its columns, also on both together; with and without quasi-identifiers."""
    clinic.check(condition, exact=True)
    clinic.check(f"ward > 4 AND ({condition})")
    clinic.check(f"ward > 4 OR NOT ({condition})")
    clinic.check(f"\"group\" = 'a' AND (ward > 4 OR ({condition}))")


@pytest.mark.slow
@each(
    "columns",
    [
        ["disease"],
        ['"stage Nr"'],
        ["disease", '"stage Nr"'],
        ['"group"', "disease"],
        ['"stage Nr"', '"group"', "ward"],
    ],
)
def test_groups_over_a_compound_sensitive_attribute(clinic: World, columns: list[str]) -> None:
    """Any of its columns, NULL a group of its own."""
    listed = ", ".join(columns)
    for condition in ("TRUE", "ward > 4", "ward > 4 OR disease = 'flu'"):
        check_groups(
            clinic, columns, condition, f"SELECT {listed}, COUNT(*) FROM clinic WHERE {condition} GROUP BY {listed}"
        )


@pytest.mark.slow
@each(
    "condition",
    [
        "s IS NULL",
        "s IS NOT NULL",
        "s = 'x'",
        "NOT s = 'x'",
        "s <> 'x'",
        "s IS DISTINCT FROM 'x'",
        "s IS NOT DISTINCT FROM NULL",
        "s NOT IN ('x', 'y')",
        "(s = 'x') IS NULL",
        "s = '' OR s IS NULL",
        "(s = 'x') IS NOT TRUE",
        "s LIKE '%'",
        "s = s",
    ],
    few=5,
)
def test_conditions_where_null_is_a_sensitive_value(hidden: World, condition: str) -> None:
    """NULL meets no comparison and is counted by IS NULL."""
    hidden.check(condition, exact=True)
    hidden.check(f"q = 2 AND {condition}")
    hidden.check(f"NOT (q = 2 AND {condition})")
    hidden.check(f"q IS NULL OR {condition}")


def test_null_is_a_group_of_its_own(hidden: World) -> None:
    """First or last as asked."""
    check_groups(hidden, ["s"], "TRUE", f"SELECT s, COUNT(*) FROM {hidden.name} GROUP BY s")
    check_groups(hidden, ["q", "s"], "TRUE", f"SELECT q, s, COUNT(*) FROM {hidden.name} GROUP BY q, s")
    for order, place in (("s", -1), ("s DESC", -1), ("s NULLS FIRST", 0), ("s DESC NULLS FIRST", 0)):
        rows = hidden.query(f"SELECT s, COUNT(*) FROM {hidden.name} GROUP BY s ORDER BY {order}").rows
        assert [row[0] for row in rows].index(None) == place % len(rows)


@pytest.mark.slow
def test_suppressed_records_are_in_the_bounds(tmp_path: Path) -> None:
    """Bounds are around the count of the source, wherever a record that was left out could meet the condition."""
    with duckdb.connect(str(tmp_path / "part.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT i % 5 AS q, nullif('v' || i * 3 % 7, 'v0') AS s FROM range(350) AS r(i)")
    columns = {"quasi_identifiers": ["q"], "sensitive": "s", "nulls": {"s": "suppress"}}
    path = released(tmp_path, tmp_path / "part.duckdb", columns, "part")
    with closing(world(path, tmp_path / "part.duckdb", "part")) as there:
        for condition in ("TRUE", "q = 2", "NOT (q = 2 AND s = 'v1')", "s IS NULL"):
            _, _, low, high = there.estimate(condition)
            assert low <= there.true(condition) <= high, condition
            assert high - low >= 50, condition
        there.oracle.execute("DELETE FROM source WHERE s IS NULL")
        there.check("q = 2 AND s = 'v1'")
        assert there.estimate("TRUE") == (300, None, 300, 350)
        assert there.estimate("s IS NULL") == (0, None, 0, 50)
        assert there.estimate("q = 2 AND s IS NOT NULL") == (60, 0, 60, 60)


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each("name", INSIDE, few=2)
def test_no_column_is_mistaken_for_one_of_privsqls_own(inside: World, name: str) -> None:
    """In conditions, groups, order and HAVING."""
    middle = inside.oracle.execute(f'SELECT median("{name}") FROM source').fetchone()
    assert middle is not None
    inside.check(f'"{name}" > {middle[0]}', exact=True)
    inside.check(f'"{name}" > {middle[0]} AND c = 1')
    inside.check(f'"{name}" > {middle[0]} OR (c = 1 AND s_0 = 2)')
    for ending in (
        "ORDER BY 1",
        f'ORDER BY "{name}" DESC LIMIT 2 OFFSET 1',
        "HAVING k > 3.1 ORDER BY 1",
        "HAVING k < 0",
    ):
        for condition in ("TRUE", "n = 11 OR s_0 = 1"):
            sql = f'SELECT "{name}" AS x, COUNT(*) AS k FROM inside WHERE {condition} GROUP BY "{name}" {ending}'
            expected = inside.weighed(sql)
            same_rows(inside.query(sql).rows, expected, 1)
            same_rows(inside.query(sql.replace(" AS x,", ",")).rows, expected, 1)


@pytest.mark.slow
@each("alias", [*INSIDE, "c", "q", "s", "found", "qit", "st", "weight", "bid", "g_2", "COUNT", "Rank"], few=6)
def test_no_alias_is_mistaken_for_a_column_of_privsqls_own(inside: World, alias: str) -> None:
    """Whatever name an analyst gives a column of the answer."""
    for ending in ("ORDER BY 1 LIMIT 2", "HAVING k > 3.1 ORDER BY 1 DESC", f'ORDER BY "{alias}", k'):
        sql = f'SELECT size AS "{alias}", COUNT(*) AS k FROM inside WHERE c = 1 GROUP BY size {ending}'
        same_rows(inside.query(sql).rows, inside.weighed(sql), 1)
    sql = f'SELECT size, COUNT(*) AS "{alias}" FROM inside WHERE c = 1 GROUP BY size ORDER BY "{alias}" DESC, size'
    if alias.lower() != "size":
        rows = inside.query(sql).rows
        assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)


@pytest.mark.slow
def test_groups_with_names_of_privsqls_own_together(inside: World) -> None:
    """Several at once, on both sides."""
    for columns in (["g_1", "g_0"], ["g_0", "g_1", "q_0"], ["c", "g_0"], ["s_0", "n", "c"], ["size", "s_0"]):
        listed = ", ".join(columns)
        for condition in ("TRUE", "c = 1", "q_0 = 51 OR s_0 = 1"):
            check_groups(
                inside, columns, condition, f"SELECT {listed}, COUNT(*) FROM inside WHERE {condition} GROUP BY {listed}"
            )


@pytest.mark.slow
def test_columns_whose_names_differ_only_beyond_ascii_are_not_confused(tmp_path: Path) -> None:
    """DuckDB folds the case of ASCII letters alone: "Ä" and "ä" are two columns, and the other one stays private."""
    with duckdb.connect(str(tmp_path / "two.duckdb")) as con:
        con.execute(
            """CREATE TABLE t AS SELECT i % 3 AS "Ä", 100 + i % 5 AS "ä", 'v' || i % 4 AS s FROM range(120) AS r(i)"""
        )
    for name, other, low in (("Ä", "ä", 0), ("ä", "Ä", 100)):
        path = tmp_path / f"{low}.duckdb"
        asked = {
            "source": {"database": "two.duckdb", "table": "t"},
            "columns": {"quasi_identifiers": [name], "sensitive": "s"},
            "release": {"name": "r", "to": path.name},
            "mechanism": {"threshold": "1.5*f + 0.1"},
            "ledger": {"off": True},
        }
        api.publish(build(asked, base=tmp_path), key=seed_key(1))
        assert [field.name for field in read_manifest(path).quasi_identifiers] == [name]
        rows = api.query(path, f'SELECT "{name}", COUNT(*) FROM r GROUP BY 1', estimator="baseline").rows
        assert rows[0][0] == low
        with pytest.raises(UsageError):
            api.query(path, f'SELECT COUNT(*) FROM r WHERE "{other}" = 1', estimator="baseline")


# Types ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each("condition", ["TRUE", "s <> 'v1'"], few=12)
@each("name", KINDS)
def test_every_type_can_be_grouped(kinds: World, name: str, condition: str) -> None:
    """As many groups as DuckDB finds, with the same weights in the same order; infinity and NaN are values too."""
    sql = f"SELECT {name}, COUNT(*) FROM kinds WHERE {condition} GROUP BY {name} ORDER BY {name}"
    answer = kinds.query(sql)
    expected = kinds.oracle.execute(
        f"SELECT {name}::VARCHAR, sum(weight) FROM kinds WHERE {condition} GROUP BY kinds.{name} ORDER BY kinds.{name}"
    ).fetchall()
    assert [row[1] for row in answer.rows] == pytest.approx([row[1] for row in expected], rel=RELATIVE)
    written = json.dumps(answer.as_json(), allow_nan=False)
    shown = [row[name] for row in json.loads(written)["rows"]]
    assert len({json.dumps(value) for value in shown}) == len(expected), "two groups look the same"


@pytest.mark.slow
@each("name", KINDS, few=5)
def test_every_type_can_be_compared(kinds: World, name: str) -> None:
    """With a literal, as text or cast."""
    kind, value = kinds.oracle.execute(
        f"SELECT typeof({name}), max({name})::VARCHAR FROM source GROUP BY 1"
    ).fetchall()[0]
    text = value.replace("\0", "")
    for literal in (f"'{text}'", f"CAST('{text}' AS {kind})", f"'{text}'::{kind}"):
        kinds.check(f"{name} < {literal}", exact=True)
        kinds.check(f"{name} = {literal} AND s = 'v2'")


# What is wrong in a condition -----------------------------------------------------------------------------------------


@each(
    "condition",
    [
        "age = 'abc'",
        "age > 'x'",
        "age IN (20, 'x')",
        "age BETWEEN 20 AND 'x'",
        "age = DATE '2020-01-01'",
        "age LIKE '2%'",
        "age + 'x' > 3",
        "age + sex > 3",
        "-sex = 'f'",
        "sex > 5",
        "sex + 1 > 5",
        "sex",
        "NOT sex",
        "größe = 'thin'",
        "\"select\" > '2020-99-99'",
        "\"select\" > 'soon'",
        '"select" > 5',
        '"select" = TRUE',
        '"select" * 2 > 3',
        '"a""b" = \'perhaps\'',
        "CAST('abc' AS INTEGER) = age",
        "'2020-02-30'::DATE = \"select\"",
        "CAST('x' AS nothing) = sex",
        "ill = 5",
        "ill > DATE '2020-01-01'",
        "ill",
        "ill * 2 = 3",
        "age = 20 AND ill + 1 = 2",
        "age = 'abc' OR ill = 'flu'",
        "ill = 'flu' OR NOT ill",
        "age * 9223372036854775807 > 3",
        "9223372036854775807 * 9223372036854775807 > age",
        "ill LIKE 'a!_b' ESCAPE '!!'",
        "ill LIKE 'a!' ESCAPE '!'",
        "age = 20 AND ill LIKE 'x' ESCAPE 'ab'",
    ],
)
def test_a_mistake_in_a_condition_is_told_in_one_line(survey: World, condition: str) -> None:
    """A wrong type, value or pattern is the query's fault: a UsageError, not trouble with the engine."""
    with pytest.raises(UsageError) as caught:
        survey.estimate(condition)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value)


@pytest.mark.parametrize(
    "ending", ["HAVING COUNT(*) > 'many'", "HAVING n = DATE '2020-01-01'", "LIMIT 99999999999999999999"]
)
def test_a_mistake_after_the_groups_is_told_in_one_line(survey: World, ending: str) -> None:
    """The same there."""
    with pytest.raises(UsageError) as caught:
        survey.query(f"SELECT age, COUNT(*) AS n FROM survey GROUP BY age {ending}")
    assert len(str(caught.value).splitlines()) == 1


@each(
    "sql",
    [
        "SELECT COUNT(*) FROM survey JOIN qit ON TRUE",
        "SELECT COUNT(*) FROM qit",
        "SELECT COUNT(*) FROM st",
        "SELECT COUNT(*) FROM privsql_manifest",
        "SELECT COUNT(*) FROM survey WHERE age IN (SELECT bid FROM qit)",
        "SELECT COUNT(*) FROM survey WHERE EXISTS (SELECT 1)",
        "WITH survey AS (SELECT 1 AS age) SELECT COUNT(*) FROM survey",
        "SELECT COUNT(*) FROM survey UNION ALL SELECT 1",
        "SELECT COUNT(DISTINCT ill) FROM survey",
        "SELECT COUNT(DISTINCT ill) FROM survey",
        "SELECT MIN(ill) FROM survey",
        "SELECT SUM(ill) FROM survey",
        "SELECT * FROM survey",
        "SELECT COUNT(*) OVER () FROM survey",
        "SELECT COUNT(*) OVER (PARTITION BY ill) FROM survey",
        "SELECT COUNT(*) FROM survey WHERE sex = ill",
        "SELECT COUNT(*) FROM survey WHERE weight > 0.1",
        "SELECT COUNT(*) FROM survey WHERE bid = 1",
        "SELECT COUNT(*) FROM survey USING SAMPLE 10%",
        "SELECT COUNT(*) FROM other.survey",
        "SELECT age, COUNT(*) FROM survey GROUP BY repeat(sex, 9)",
        "SELECT COUNT(*) FROM survey; SELECT COUNT(*) FROM survey",
        "SELECT COUNT(*) FROM survey WHERE age = $1",
        "SELECT COUNT(*) FROM survey AS survey(sex, age) WHERE sex = 20",
    ],
)
def test_what_is_not_supported_is_never_answered(survey: World, sql: str) -> None:
    """Whatever the engine would make of it."""
    with pytest.raises(UsageError):
        survey.query(sql)


@each(
    "sql",
    [
        "SELECT COUNT(*) FROM 'survey.parquet'",
        'SELECT COUNT(*) FROM "survey.parquet"',
        "SELECT COUNT(*) FROM read_parquet('survey.parquet')",
        "SELECT COUNT(*) FROM read_csv('secret.csv')",
        "SELECT COUNT(*) FROM read_text('secret.csv')",
        "SELECT COUNT(*) FROM glob('*')",
        "SELECT COUNT(*) FROM survey WHERE age IN (FROM 'survey.parquet')",
        "SELECT COUNT(*) FROM survey WHERE ill = (SELECT content FROM read_text('secret.csv'))",
        "COPY (SELECT COUNT(*) FROM survey) TO 'out.csv'",
        "COPY survey TO 'out.csv'",
        "EXPORT DATABASE 'out'",
        "ATTACH 'out.duckdb' AS out",
        "CREATE TABLE out AS SELECT COUNT(*) FROM survey",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "PRAGMA database_list",
        "INSTALL httpfs",
    ],
)
def test_no_query_reads_or_writes_a_file(
    survey: World, survey_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    """Though the files are there."""
    shutil.copy(survey_folder / "survey.parquet", tmp_path / "survey.parquet")
    (tmp_path / "secret.csv").write_text("content\nflu\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        survey.query(sql)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "survey.parquet"]


NO_SQL = [
    "SELECT COUNT(*) FROM survey WHERE age BETWEEN 20 30 OR sex = 'f'",
    "SELECT COUNT(*) FROM survey WHERE age BETWEEN 2 0 AND 30",
    "SELECT COUNT(*) FROM survey WHERE age BETWEEN 20 FALSE AND 30",
    "SELECT COUNT(*) FROM survey WHERE age BETWEEN SYMMETRIC 30 AND 20",
    "SELECT COUNT(*) FROM survey WHERE age IN--(20, 30)",
    "SELECT COUNT(*) FROM survey WHERE age IN (20,, 30)",
    "SELECT COUNT(*) FROM survey WHERE age IN (, 20)",
    "SELECT COUNT(*) FROM survey WHERE age < CAST('27' AS INTEGER AND sex = 'f'",
    "SELECT COUNT(*) FROM survey WHERE sex NOT IS NULL",
    "SELECT COUNT(*) FROM survey WHERE !(age = 20)",
    "SELECT COUNT(*) FROM survey WHERE age <=> 20",
    "SELECT COUNT(*) FROM survey WHERE age = 20 GROUP BY",
    "SELECT COUNT( + *) FROM survey",
    "SELECT COUNT(, *) FROM survey",
    "SELECT COUNT(* EXCLUDE (age)) FROM survey",
    "SELECT , COUNT(*) FROM survey",
    "SELECT age,, COUNT(*) FROM survey GROUP BY age",
    "SELECT age, COUNT(*) FROM survey GROUP BY , age",
    "SELECT age, COUNT(*) FROM survey GROUP BY DISTINCT age",
    "SELECT COUNT(*) FROM survey LIMIT 2, 5",
    "SELECT COUNT(*) FROM survey*",
    "SELECT COUNT(*) FROM .survey",
    "SELECT COUNT(*) FROM survey 'x' WHERE age > 20",
    "SELECT COUNT(*) FROM survey `WHERE age > 20",
    "SELECT COUNT(*) FROM survey {# WHERE age > 20 #}",
    "SELECT COUNT(*) $1 FROM survey",
    "SELECT COUNT(*) TRUE FROM survey",
    "SELECT COUNT(*) FROM survey WHERE GRÖßE > 40",
]


@each("sql", NO_SQL)
def test_what_duckdb_would_not_run_is_not_answered(survey: World, sql: str) -> None:
    """It has no meaning that could be answered; the parser is more lenient than the engine."""
    with pytest.raises(duckdb.Error):
        survey.oracle.execute(sql)
    with pytest.raises(UsageError):
        survey.query(sql)


# The release itself ---------------------------------------------------------------------------------------------------


def digest(path: Path) -> dict[str, str]:
    """SHA-256 of a file, or of every file in a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()
    }


ASKED = [
    "SELECT COUNT(*) FROM survey",
    "SELECT COUNT(*) FROM survey WHERE age > 22 AND ill = 'flu'",
    "SELECT ill, COUNT(*) AS n FROM survey WHERE age > 22 GROUP BY ill HAVING n > 3 ORDER BY n DESC LIMIT 3",
]


@pytest.mark.soak(part="long")
def test_a_query_changes_nothing(survey: World, tmp_path: Path) -> None:
    """Neither an answer nor a refusal nor a mistake touches the file or leaves one beside it."""
    path = tmp_path / "release.duckdb"
    shutil.copy(survey.path, path)
    path.chmod(0o444)
    before = digest(path)
    for sql in [*ASKED, "SELECT * FROM survey", "SELECT COUNT(*) FROM survey WHERE age = 'abc'", "DROP TABLE qit"]:
        try:
            api.query(path, sql, estimator="baseline")
        except UsageError:
            continue
    assert digest(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["release.duckdb"]


@pytest.mark.slow
@each(
    "name",
    [
        "other.duckdb",
        "no_ending",
        'with space\'s "and" größe.db',
        "main.duckdb",
        "qit.duckdb",
        "temp.duckdb",
        "survey.x",
    ],
    few=2,
)
def test_a_renamed_release_answers_the_same(survey: World, tmp_path: Path, name: str) -> None:
    """The file's name is nobody's business."""
    path = tmp_path / name
    shutil.copy(survey.path, path)
    for sql in ASKED:
        assert api.query(path, sql, estimator="baseline").rows == survey.query(sql).rows


@pytest.fixture(scope="module")
def folder_release(survey_folder: Path) -> Path:
    """The same release as a folder of Parquet files."""
    asked = {
        "source": {"file": "survey.parquet"},
        "columns": {"quasi_identifiers": QI, "sensitive": "ill"},
        "release": {"name": "survey", "to": "folder", "format": "parquet"},
        "mechanism": {"threshold": "1.5*f + 0.1", "max_bucket_size": 12},
    }
    release = api.publish(build(asked, base=survey_folder), key=seed_key(11)).release
    assert release is not None
    assert release.is_dir()
    return release


@pytest.mark.soak(part="long")
def test_a_folder_of_parquet_files_answers_the_same(survey: World, folder_release: Path, tmp_path: Path) -> None:
    """Also under another name; it is not changed."""
    moved = tmp_path / 'a folder\'s "name"'
    shutil.copytree(folder_release, moved)
    before = digest(moved)
    for sql in ASKED:
        assert api.query(folder_release, sql, estimator="baseline").rows == survey.query(sql).rows
        assert api.query(moved, sql, estimator="baseline").rows == survey.query(sql).rows
    for condition in MIXED:
        sql = f"SELECT COUNT(*) FROM survey WHERE {condition}"
        assert api.query(moved, sql, estimator="baseline").rows == survey.query(sql).rows
    assert digest(moved) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql", rest_slow(["SELECT COUNT(*) FROM 'qit.parquet'", "SELECT COUNT(*) FROM read_parquet('qit.parquet')"])
)
def test_a_folder_reads_no_other_file(folder_release: Path, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    """Its own files least of all."""
    monkeypatch.chdir(folder_release)
    with pytest.raises(UsageError):
        api.query(folder_release, sql, estimator="baseline")


@pytest.mark.slow
@each("confidence", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_confidence_lies_between_0_and_1(survey: World, confidence: float) -> None:
    """Both excluded."""
    with pytest.raises(UsageError, match="confidence"):
        api.query(survey.path, "SELECT COUNT(*) FROM survey", confidence=confidence, estimator="baseline")


# Whatever comes -------------------------------------------------------------------------------------------------------


@each(
    "sql",
    [
        "SELECT COUNT(*) FROM survey WHERE sex = '\ud800'",
        "SELECT COUNT(*) FROM survey WHERE ill = '\udcff' AND age = 20",
        'SELECT age AS "\ud800", COUNT(*) FROM survey GROUP BY age',
        "SELECT COUNT(*) FROM survey WHERE sex = '\0'",
        'SELECT age AS "\0", COUNT(*) FROM survey GROUP BY age',
        'SELECT age AS "", COUNT(*) FROM survey GROUP BY age',
        'SELECT age AS "a\nb", COUNT(*) FROM survey GROUP BY age',
        "SELECT COUNT(*) FROM survey WHERE age IN (" + ", ".join(["20"] * 5000) + ")",
        "SELECT COUNT(*) FROM survey WHERE ill = 'flu' AND age = 1" + " + 1" * 1500,
        "SELECT COUNT(*) FROM survey WHERE ill = 'flu' AND " + " AND ".join(["age <> 20"] * 1500),
        "SELECT COUNT(*) FROM survey WHERE ill = 'flu' AND (" + " OR ".join(["age = 20"] * 1500) + ")",
        "SELECT COUNT(*) FROM survey WHERE sex = '" + "x" * 100_000 + "'",
        "SELECT COUNT(*) FROM survey HAVING " + " AND ".join(["COUNT(*) > 1"] * 1500),
        "SELECT age, COUNT(*) FROM survey GROUP BY " + ", ".join(["age"] * 300),
    ],
    few=5,
)
def test_strange_queries_are_answered_or_refused(survey: World, sql: str) -> None:
    """No other exception than privsql's own."""
    rows, message = answered(survey, sql)
    assert rows or len(message.splitlines()) == 1


def answered(there: World, sql: str) -> tuple[list[tuple[Any, ...]] | None, str]:
    """The rows, or None and why not."""
    try:
        return there.query(sql).rows, ""
    except PrivsqlError as refused:
        return None, str(refused)


SEEDS = [
    "SELECT COUNT(*) FROM survey",
    """SELECT age, sex AS s, COUNT(*) AS n FROM survey AS t WHERE t.age > 22 AND NOT (ill = 'flu' OR sex IS NULL)
    GROUP BY age, 2 HAVING COUNT(*) > 3 ORDER BY n DESC NULLS LAST, 1 LIMIT 5 OFFSET 2""",
    """SELECT ill, COUNT(*) FROM survey
    WHERE ill LIKE 'a!_%' ESCAPE '!' OR "Zip Code" NOT ILIKE '1%' GROUP BY ill""",
    """SELECT COUNT(*) FROM survey
    WHERE age BETWEEN 20 AND 30 OR "select" >= DATE '2020-01-03' AND ill IN ('flu', NULL)""",
    """SELECT größe, COUNT(*) FROM survey
    WHERE "a""b" IS NOT TRUE AND ill IS DISTINCT FROM 'none' GROUP BY größe""",
    "SELECT COUNT(*) FROM survey WHERE -age + 3 * 2 < CAST('7' AS INTEGER) AND ill IS NOT NULL",
]
TOKEN = re.compile(r"""\s+|\w+|'(?:[^']|'')*'|"(?:[^"]|"")*"|.""", re.DOTALL)
VOCABULARY = """
    SELECT COUNT ( ) * FROM survey WHERE AND OR NOT GROUP BY ORDER HAVING LIMIT OFFSET age sex ill größe 'flu' 30 1 2 0
    , . ; = < > <> <= + - / % || IS NULL TRUE FALSE IN BETWEEN LIKE ESCAPE AS DISTINCT ALL UNION JOIN CASE WHEN THEN END
    :: DATE ROLLUP QUALIFY OVER FILTER SAMPLE VALUES WITH LATERAL INTERVAL NULLS FIRST LAST DESC -> EXCLUDE COLUMNS
    COLLATE SUM lower random [ ] { } : ? $1 # & | ^ ~ \\ " ' -- /* */ 1e5
"""


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A good query with one to four accidents."""
    tokens = TOKEN.findall(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(tokens) - 1)))
        accident = draw(st.sampled_from(["drop", "replace", "insert", "swap", "cut"]))
        if accident == "drop":
            tokens[place : place + 1] = []
        elif accident == "replace":
            tokens[place : place + 1] = [draw(st.sampled_from(VOCABULARY.split()))]
        elif accident == "insert":
            tokens[place:place] = [" ", draw(st.sampled_from(VOCABULARY.split())), " "]
        elif accident == "swap" and tokens:
            other = draw(st.integers(0, len(tokens) - 1))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        else:
            tokens[place : place + draw(st.integers(1, 6))] = []
    return "".join(tokens)


@examples(250)
@given(sql=mutated())
def test_a_broken_query_is_refused_or_answered_as_duckdb_would(survey: World, sql: str) -> None:
    """Nothing but an answer or an error of privsql's; where the engine runs the text too, it finds the same."""
    rows, message = answered(survey, sql)
    if rows is None:
        assert len(message.splitlines()) == 1
        return
    if re.search(r"having|limit|offset|group", sql, re.IGNORECASE):
        return
    try:
        expected = survey.weighed(sql)
    except duckdb.Error:
        return
    assert rows[0][-4] == pytest.approx(expected[0][0] or 0, rel=RELATIVE, abs=1e-9)
