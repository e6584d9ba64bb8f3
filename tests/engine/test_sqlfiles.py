"""The files of ``sql/``, their reader, and how they are shipped."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from privsql.answers.sql.grammar import PERMITTED
from privsql.engine import sqlfiles
from privsql.engine.sqlfiles import (
    alias_as,
    all_of,
    any_of,
    column,
    fill,
    list_nodes,
    render_sql,
    same_columns,
    table,
    temp_table,
    unfit_nodes,
)
from support import sqllogic
from support.loops import each
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SQL = ROOT / "sql"
FILES = sorted(str(path.relative_to(SQL).with_suffix("")) for path in SQL.rglob("*.sql"))
NASTY = (
    'x"; DROP TABLE t; --', "it's", 'a""b', "select", "__sa__", "__source__", "__keep__", "$1", "?", "{x}", "a.b",
    "a/*b*/", "%s", "two\nlines", "\\", "ä ö", "*", "s0", "records", " ",
)  # fmt: skip


def text_is(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setattr(sqlfiles, "text", lambda _: sql)


# The files ------------------------------------------------------------------------------------------------------------


def test_the_nodes_of_a_tree_are_those_that_a_walk_meets() -> None:
    for name in FILES:
        tree = sqlfiles.parse_file(name)
        assert [*map(id, list_nodes(tree))] == [*map(id, tree.walk())]


@each("name", FILES)
def test_every_file_is_run_by_its_test(name: str) -> None:
    records = sqllogic.read(ROOT / "tests" / "sql" / f"{name}{sqllogic.ENDING}")
    assert [record for record in records if record.words[0] == "relation" and record.words[2] == name]
    assert [record for record in records if record.words[0] == "query"]


def test_every_test_has_a_file() -> None:
    folder = ROOT / "tests" / "sql"
    assert sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.*")) == FILES


@each("name", FILES)
def test_every_file_parses_as_it_stands_as_one_select(name: str) -> None:
    assert isinstance(sqlfiles.parse_file(name), exp.Query)


@each("name", FILES)
def test_duckdb_parses_every_file_as_it_stands(name: str) -> None:
    (statement,) = duckdb.extract_statements(sqlfiles.text(name))
    assert statement.type == duckdb.StatementType.SELECT


@each("name", FILES)
def test_every_file_begins_with_what_it_makes_reads_and_needs(name: str) -> None:
    lines = sqlfiles.text(name).splitlines()
    header = [line for line in lines if line.startswith("--")]
    assert lines[: len(header)] == header
    assert re.match(r"-- .+: .+", header[0])
    for part in ("columns", "reads"):
        assert any(line.startswith(f"--   {part} ") for line in header), part
    holes = re.compile(r"__\w+?__")
    assert set(holes.findall("\n".join(lines[len(header) :]))) == set(holes.findall("\n".join(header)))


LOOKED_AT = {"duckdb/persons", "duckdb/sampled"}  # a part of a source that proposals rest on; no release holds it


@each("name", [name for name in FILES if name not in LOOKED_AT])
def test_no_file_draws_or_hashes(name: str) -> None:
    drawing = re.compile(r"random\s*\(|setseed|gen_random_uuid|uuid\s*\(|hash\s*\(|tablesample|using sample")
    assert not drawing.findall(sqlfiles.text(name).lower())


# Checks: rows are violations, so a comparison that is NULL must be one ------------------------------------------------

CHECKS = [name for name in FILES if sqlfiles.text(name).startswith("-- check:")]
EITHER_WAY = {
    "verify/numbered": "a table without rows has no numbers, and none that is wrong",
    "verify/cells_whole": "a count is never NULL",
    "verify/weights_sum": "a count is never NULL",
}


def told(condition: exp.Expr, *, unknown: bool = True) -> bool:
    """Whether a condition is TRUE or FALSE for every row, and where a comparison is NULL what ``unknown`` says."""
    match condition:
        case exp.Paren():
            return told(condition.this, unknown=unknown)
        case exp.Not():
            return told(condition.this, unknown=not unknown)
        case exp.And() | exp.Or():
            return told(condition.left, unknown=unknown) and told(condition.right, unknown=unknown)
        case exp.Coalesce():
            (otherwise,) = condition.expressions
            return isinstance(otherwise, exp.Boolean) and bool(otherwise.this) is unknown
        case exp.Is():
            return isinstance(condition.expression, exp.Null)
    return isinstance(condition, exp.NullSafeEQ | exp.NullSafeNEQ)


def untold(query: exp.Query) -> list[str]:
    """What the SELECTs that make a query's rows leave out where they compare with NULL."""
    if isinstance(query, exp.SetOperation):
        return untold(query.left) + untold(query.right)
    clauses = [query.args[name].this for name in ("where", "having") if query.args.get(name)]
    return [clause.sql(sqlfiles.DIALECT) for clause in clauses if not told(clause)] if clauses else ["no condition"]


@each("name", CHECKS)
def test_a_comparison_that_is_null_is_a_violation(name: str) -> None:
    assert bool(untold(sqlfiles.parse_file(name))) is (name in EITHER_WAY)


@each(
    ("condition", "expected"),
    [
        ("a > 1", False),
        ("coalesce(a > 1, TRUE)", True),
        ("coalesce(a > 1, FALSE)", False),
        ("NOT coalesce(a <= 1, FALSE)", True),
        ("NOT coalesce(a <= 1, TRUE)", False),
        ("a IS NULL OR a > 1", False),
        ("a IS NULL OR coalesce(a > b, TRUE)", True),
        ("NOT (a IS NULL AND NOT coalesce(a > b, TRUE))", True),
        ("a IS DISTINCT FROM b", True),
        ("coalesce(a, 0) > b", False),
        ("__hole__", False),
    ],
)
def test_conditions_that_tell(condition: str, expected: bool) -> None:
    assert told(sqlglot.parse_one(condition, dialect="duckdb")) is expected


# The portable subset --------------------------------------------------------------------------------------------------


@each(
    ("sql", "kind"),
    [
        ("SELECT hash(a) FROM t", "Anonymous"),
        ("SELECT my_macro(a) FROM t", "Anonymous"),
        ("SELECT setseed(0.5)", "Anonymous"),
        ("SELECT random() FROM t", "Rand"),
        ("SELECT gen_random_uuid() FROM t", "Uuid"),
        ("SELECT list(a ORDER BY b) FROM t", "ArrayAgg"),
        ("SELECT * FROM t QUALIFY row_number() OVER (ORDER BY a) = 1", "Qualify"),
        ("SELECT a FROM range(3) AS r(a)", "GenerateSeries"),
        ("SELECT a FROM t USING SAMPLE 3", "TableSample"),
        ("SELECT a FROM read_csv('x.csv')", "ReadCSV"),
        ("SELECT a // 2 FROM t", "IntDiv"),
        ("WITH x AS (INSERT INTO t SELECT 1) SELECT a FROM x", "Insert"),
        ("SELECT row_number() OVER () FROM t", "RowNumber without ORDER BY"),
        ("SELECT lag(a) OVER (PARTITION BY b) FROM t", "Lag without ORDER BY"),
    ],
)
def test_a_file_with_a_foreign_node_is_rejected(sql: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, sql)
    with pytest.raises(ValueError, match=rf"sql/core/domain\.sql is outside the portable subset: (.+, )?{kind}"):
        fill("core/domain", {})
    if kind != "Insert":
        assert isinstance(sqlfiles.parse_file("duckdb/objects"), exp.Select)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t POSITIONAL JOIN u",
        "SELECT t.a FROM t ASOF JOIN u ON t.a >= u.a",
        "SELECT a, count(*) FROM t GROUP BY ALL",
    ],
)
def test_what_a_known_node_hides_is_rejected(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, sql)
    with pytest.raises(ValueError, match="outside the portable subset"):
        sqlfiles.parse_file("core/domain")


@each(
    ("filling", "kind"),
    [
        ("(SELECT * FROM t POSITIONAL JOIN u)", "POSITIONAL JOIN"),
        ("(SELECT * FROM range(3))", "GenerateSeries"),
        ("(SELECT * FROM read_csv('x.csv'))", "ReadCSV"),
        ("(SELECT random() AS code)", "Rand"),
        ("(SELECT unnest(a) AS code FROM t)", "(Explode|Unnest)"),
        ("(SELECT a FROM t USING SAMPLE 3)", "TableSample"),
        ("(SELECT DISTINCT ON (a) b FROM t)", "DISTINCT ON"),
    ],
)
def test_what_fills_a_hole_is_looked_at_as_well(filling: str, kind: str) -> None:
    source = sqlglot.parse_one(f"SELECT * FROM {filling}", dialect="duckdb").args["from_"].this
    with pytest.raises(ValueError, match=rf"hole domain is filled with .*portable subset: (.+, )?{kind}"):
        fill("core/domain_labels", {"domain": source, "labels": [column("s0")]})
    assert fill("duckdb/records", {"baskets": source})


@each("kind", sorted(PERMITTED - {exp.WindowSpec, exp.WithinGroup}, key=lambda kind: kind.__name__))
def test_what_an_analyst_may_write_may_fill_a_hole(kind: type[exp.Expr]) -> None:
    assert unfit_nodes(kind()) == set()


@each(
    "sql",
    ["", "-- nothing", "SELECT 1; SELECT 2", "INSERT INTO t SELECT 1", "CREATE TABLE t AS SELECT 1", "DROP TABLE t"],
)
def test_a_file_that_is_not_one_select_is_rejected(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, sql)
    for name in ("core/domain", "duckdb/objects"):
        with pytest.raises(ValueError, match="is not one SELECT"):
            sqlfiles.parse_file(name)


# Holes ----------------------------------------------------------------------------------------------------------------


def test_a_hole_that_is_not_filled_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"sql/core/domain_labels\.sql: hole __domain__ is not filled"):
        fill("core/domain_labels", {"labels": []})
    with pytest.raises(ValueError, match=r"hole __labels__ is not filled"):
        fill("core/domain_labels", {"domain": table("t")})


def test_a_hole_that_the_file_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"sql/core/domain_labels\.sql has no holes \['kept', 'sa'\]"):
        fill("core/domain_labels", {"domain": table("t"), "labels": [], "sa": [], "kept": exp.true()})


@each("name", [name for name in FILES if "__" in sqlfiles.text(name)])
def test_a_file_with_holes_is_not_filled_with_none(name: str) -> None:
    with pytest.raises(ValueError, match="is not filled"):
        fill(name, {})


def test_a_filling_is_not_looked_into_for_holes_and_not_changed() -> None:
    holes: sqlfiles.Holes = {"domain": table("__labels__"), "labels": [column("__domain__"), column("__labels__")]}
    for _ in range(2):
        found = fill("core/domain_labels", holes).sql("duckdb", comments=False)
        assert found == 'SELECT "__domain__", "__labels__", records FROM "__labels__" ORDER BY code'


@each(
    ("sql", "filling", "expected"),
    [
        ("SELECT a FROM t WHERE __x__ AND b", "c OR d", "SELECT a FROM t WHERE (c OR d) AND b"),
        ("SELECT a FROM t WHERE NOT __x__", "c AND d", "SELECT a FROM t WHERE NOT (c AND d)"),
        ("SELECT a FROM t WHERE __x__ = b", "NOT c", "SELECT a FROM t WHERE (NOT c) = b"),
        ("SELECT a / __x__ FROM t", "b + 1", "SELECT a / (b + 1) FROM t"),
        ("SELECT -__x__ FROM t", "a - b", "SELECT -(a - b) FROM t"),
        ("SELECT sum(__x__) FROM t", "a + b", "SELECT SUM(a + b) FROM t"),
        ("SELECT a FROM t WHERE __x__", "c OR d", "SELECT a FROM t WHERE c OR d"),
        ("SELECT a FROM t WHERE (__x__) AND b", "c OR d", "SELECT a FROM t WHERE (c OR d) AND b"),
    ],
)
def test_a_filling_keeps_its_meaning(sql: str, filling: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, sql)
    found = fill("core/domain", {"x": sqlglot.parse_one(filling, dialect="duckdb")})
    assert found.sql(dialect="duckdb") == expected


@each(
    ("sql", "none", "two"),
    [
        ("SELECT __x__, a FROM t", "SELECT a FROM t", "SELECT b, c, a FROM t"),
        ("SELECT a, __x__ FROM t", "SELECT a FROM t", "SELECT a, b, c FROM t"),
        ("SELECT max(a) FROM t GROUP BY __x__", "SELECT MAX(a) FROM t", "SELECT MAX(a) FROM t GROUP BY b, c"),
        ("SELECT a FROM t GROUP BY a, __x__", "SELECT a FROM t GROUP BY a", "SELECT a FROM t GROUP BY a, b, c"),
        ("SELECT a FROM t ORDER BY __x__", "SELECT a FROM t", "SELECT a FROM t ORDER BY b, c"),
        (
            "SELECT a FROM t ORDER BY a, __x__ DESC NULLS FIRST",
            "SELECT a FROM t ORDER BY a",
            "SELECT a FROM t ORDER BY a, b DESC NULLS FIRST, c DESC NULLS FIRST",
        ),
        (
            "SELECT row_number() OVER (ORDER BY __x__) FROM t",
            "SELECT ROW_NUMBER() OVER () FROM t",
            "SELECT ROW_NUMBER() OVER (ORDER BY b, c) FROM t",
        ),
    ],
)
def test_a_list_may_be_empty_or_long(sql: str, none: str, two: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, sql)
    assert fill("core/domain", {"x": []}).sql(dialect="duckdb") == none
    assert fill("core/domain", {"x": [exp.column("b"), exp.column("c")]}).sql(dialect="duckdb") == two


def test_a_table_keeps_the_alias_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, "SELECT r.a FROM __x__ AS r JOIN __y__ AS s ON r.a = s.a, __x__")
    query = exp.select("a").from_("u").subquery()
    found = fill("core/domain", {"x": temp_table("t"), "y": query}).sql(dialect="duckdb")
    assert (
        found == 'SELECT r.a FROM "temp"."privsql_t" AS r JOIN (SELECT a FROM u) AS s ON r.a = s.a, "temp"."privsql_t"'
    )


@each("name", NASTY)
def test_names_are_quoted_wherever_they_come_in(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    holes: sqlfiles.Holes = {
        "source": table(name),
        "sa": [alias_as(column(name), "s0")],
        "qi": [alias_as(column(f"{name}2"), "q0")],
        "keep": all_of([exp.not_(exp.Is(this=column(name), expression=exp.null()))]),
        "sa_order": [column("s0")],
        "qi_order": [column("q0")],
    }
    with duckdb.connect() as connection:
        connection.execute(f'CREATE TABLE {quoted} ({quoted} INTEGER, {quoted[:-1]}2" INTEGER)')
        connection.execute(f"INSERT INTO {quoted} VALUES (2, 1), (1, 4), (NULL, 3), (1, 2)")
        made = render_sql(fill("core/records", holes))
        assert len(duckdb.extract_statements(made)) == 1
        assert connection.execute(made).fetchall() == [(1, 2), (1, 4), (2, 1)]
        published = fill("bucketize/qit", {
            "assigned": sqlglot.parse_one("(SELECT 7 AS q0, 0 AS bid)", dialect="duckdb"),
            "qi": [alias_as(column("q0", "r"), name)],
            "qi_order": [column("q0", "r")],
            "bid": sqlfiles.quoted_identifier(f"{name}3"),
        })  # fmt: skip
        connection.execute(f"CREATE TABLE made AS {render_sql(published)}")
        assert [row[0] for row in connection.execute("DESCRIBE made").fetchall()] == [name, f"{name}3"]
        assert connection.execute(f"SELECT count(*) FROM {quoted}").fetchall() == [(4,)]


@each("name", NASTY)
def test_texts_are_quoted(name: str) -> None:
    with duckdb.connect() as connection:
        found = render_sql(fill("duckdb/objects", {"database": exp.Literal.string(name)}))
        assert connection.execute(found).fetchall() == []
        assert connection.execute(render_sql(exp.select(exp.Literal.string(name)))).fetchall() == [(name,)]


@pytest.mark.slow
@each("join", (all_of, any_of))
def test_conditions_of_a_thousand_columns_are_no_deeper_than_the_engine_goes(
    join: Callable[[Sequence[exp.Expr]], exp.Expr],
) -> None:
    conditions = [column(f"c{i}").eq(exp.Literal.number(1)) for i in range(1_200)]
    row = exp.select(*(exp.alias_(exp.Literal.number(i % 2), f"c{i}") for i in range(1_200)))
    with duckdb.connect() as connection:
        found = connection.execute(render_sql(exp.select(join(conditions)).from_(row.subquery("r")))).fetchall()
    assert found == [(join is any_of,)]


def test_builders() -> None:
    assert render_sql(table("t", "d", "s")) == '"d"."s"."t"'
    assert temp_table('a"b').sql("duckdb") == '"temp"."privsql_a""b"'
    assert sqlfiles.all_rows(temp_table("t")).sql("duckdb") == 'SELECT * FROM "temp"."privsql_t"'
    assert all_of([]).sql("duckdb") == "TRUE"
    assert any_of([]).sql("duckdb") == "FALSE"
    both = [sqlglot.parse_one("a OR b"), sqlglot.parse_one("c")]
    assert all_of(both).sql("duckdb") == "(a OR b) AND c"
    assert any_of(both).sql("duckdb") == "(a OR b) OR c"
    assert same_columns("a", "b", []).sql("duckdb") == "TRUE"
    assert same_columns("a", "b", ["x", "y"]).sql("duckdb") == (
        'a."x" IS NOT DISTINCT FROM b."x" AND a."y" IS NOT DISTINCT FROM b."y"'
    )


# The runner of the tests ----------------------------------------------------------------------------------------------


@each(
    ("records", "failing"),
    [
        ("statement ok\nSELECT 1", []),
        ("statement ok\nSELECT nothing", [1]),
        ("statement error\nSELECT nothing", []),
        ("statement error not found\nSELECT nothing", []),
        ("statement error syntax\nSELECT nothing", [1]),
        ("statement error\nSELECT 1", [1]),
        ("query I\nSELECT 1\n----\n1", []),
        ("# of the same\n# value\n\nquery I\nSELECT 1\n----\n2\n\nquery I\nSELECT 1\n----", [4, 9]),
        ("query I\nSELECT 1\n----\n1\n1", [1]),
        ("query II\nSELECT 1\n----\n1", [1]),
        ("query I\nSELECT 1, 2\n----\n1 2", [1]),
        ("query I\nSELECT 1.5\n----\n1.5", []),
        ("query I\nSELECT 'a'\n----\na", [1]),
        ("query I\nSELECT TRUE\n----\n1", [1]),
        ("query R\nSELECT 1::DOUBLE / 3\n----\n0.3333333333", []),
        ("query R\nSELECT 1::DOUBLE / 3\n----\n0.33333333", [1]),
        ("query R\nSELECT '1'\n----\n1", [1]),
        ("query TTT\nSELECT NULL, '', 'a b'\n----\nNULL\t(empty)\ta b", []),
        ("query T\nSELECT ''\n----\nNULL", [1]),
        ("query R\nSELECT NULL\n----\n0", [1]),
        ("query I\nSELECT 0\n----\nNULL", [1]),
        ("query T\nSELECT TRUE\n----\ntrue", []),
        ("query I nosort\nSELECT * FROM (VALUES (2), (1))\n----\n1\n2", [1]),
        ("query I rowsort sorted\nSELECT * FROM (VALUES (2), (1))\n----\n2\n1", []),
        (
            "relation f core/size\ntable = (SELECT 0 AS bid,\n  2 AS n)\n\nquery I\nFROM f\n----\n1",
            [],
        ),
        ("relation found verify/bucket_sizes\nfakes = 0\nst = nowhere", [1]),
        ("relation found verify/bucket_sizes error nowhere\nfakes = 0\nst = nowhere", []),
        ("relation found verify/bucket_sizes", [1]),
        ("relation found verify/bucket_sizes\nfakes = 0\nst = t\nx = 1", [1]),
        ("relation found verify/nothing\nst = t", [1]),
        ("gap spark some reason\n\nquery I\nSELECT 1\n----\n1", []),
    ],
)
def test_the_runner_tells_what_fails(records: str, failing: list[int], tmp_path: Path) -> None:
    path = tmp_path / "one.test"
    path.write_text(records, encoding="utf-8")
    assert [line for line, _ in sqllogic.run(sqllogic.read(path))] == failing


@each("records", ["", "# nothing", "statement maybe\nSELECT 1", "query X\nSELECT 1\n----", "query I\nSELECT 1", "halt"])
def test_the_runner_reads_nothing_that_it_does_not_know(records: str, tmp_path: Path) -> None:
    path = tmp_path / "one.test"
    path.write_text(records, encoding="utf-8")
    with pytest.raises(ValueError, match=r"one\.test"):
        sqllogic.read(path)


# Shipping -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_wheel_holds_the_files_and_finds_them(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    skipped = shutil.ignore_patterns("__pycache__")
    for part in ("privsql", "sql"):
        shutil.copytree(ROOT / part, tree / part, ignore=skipped)
    for part in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / part, tree / part)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    subprocess.run([*build, str(tree)], check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = [name for name in archive.namelist() if ".dist-info/" not in name]
        archive.extractall(tmp_path / "installed")
    assert sorted(name for name in shipped if name.endswith(".sql")) == [f"privsql/sql/{name}.sql" for name in FILES]
    assert {name.split("/")[0] for name in shipped} == {"privsql"}
    code = f"from privsql.engine import sqlfiles; print(sqlfiles.sql_folder(), *map(sqlfiles.text, {FILES}), sep='\\0')"
    found = (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path / "installed"
        )
        .stdout.removesuffix("\n")
        .split("\0")
    )
    assert found == [str(tmp_path / "installed" / "privsql" / "sql"), *map(sqlfiles.text, FILES)]
