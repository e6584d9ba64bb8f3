"""The files of ``sql/``, their reader, how they are shipped, and which module may import which."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from privsql.engine import sqlfiles
from privsql.engine.sqlfiles import column, every, fill, named, render, same, some, table, temp
from support import sqllogic
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SQL = ROOT / "sql"
PACKAGE = ROOT / "privsql"
FILES = sorted(str(path.relative_to(SQL).with_suffix("")) for path in SQL.rglob("*.sql"))
MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOMS = ("cli", "verbs", "releases", "source", "mechanisms", "attacks", "answers", "model", "engine")
GROUND = ("dpnoise", "noise", "errors", "exact", "_version")
LAYERS = ("__main__", "cli", "__init__", *ROOMS[1:], *GROUND)  # imports point down this list
NASTY = (
    'x"; DROP TABLE t; --', "it's", 'a""b', "select", "__sa__", "__source__", "__keep__", "$1", "?", "{x}", "a.b",
    "a/*b*/", "%s", "two\nlines", "\\", "ä ö", "*", "s0", "records", " ",
)  # fmt: skip


def text_is(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setattr(sqlfiles, "text", lambda _: sql)


# The files ------------------------------------------------------------------------------------------------------------


def test_the_reader_finds_every_file() -> None:
    assert sqlfiles.names() == FILES
    assert FILES


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_run_by_its_test(name: str) -> None:
    records = sqllogic.read(ROOT / "tests" / "sql" / f"{name}{sqllogic.ENDING}")
    assert [record for record in records if record.words[0] == "relation" and record.words[2] == name]
    assert [record for record in records if record.words[0] == "query"]


def test_every_test_has_a_file() -> None:
    folder = ROOT / "tests" / "sql"
    assert sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.*")) == FILES


@pytest.mark.parametrize("name", FILES)
def test_every_file_parses_as_it_stands_as_one_select(name: str) -> None:
    assert isinstance(sqlfiles.parse(name), exp.Select)


@pytest.mark.parametrize("name", FILES)
def test_duckdb_parses_every_file_as_it_stands(name: str) -> None:
    (statement,) = duckdb.extract_statements(sqlfiles.text(name))
    assert statement.type == duckdb.StatementType.SELECT


@pytest.mark.parametrize("name", FILES)
def test_every_file_begins_with_what_it_makes_reads_and_needs(name: str) -> None:
    lines = sqlfiles.text(name).splitlines()
    header = [line for line in lines if line.startswith("--")]
    assert lines[: len(header)] == header
    assert re.match(r"-- .+: .+", header[0])
    for part in ("columns", "reads"):
        assert any(line.startswith(f"--   {part} ") for line in header), part
    holes = re.compile(r"__\w+?__")
    assert set(holes.findall("\n".join(lines[len(header) :]))) == set(holes.findall("\n".join(header)))


@pytest.mark.parametrize("name", FILES)
def test_no_file_draws_or_hashes(name: str) -> None:
    drawing = re.compile(r"random\s*\(|setseed|gen_random_uuid|uuid\s*\(|hash\s*\(|tablesample|using sample")
    assert drawing.findall(sqlfiles.text(name).lower()) == []


def test_digests_are_those_of_the_files_asked_for() -> None:
    found = sqlfiles.digests(["core/", "verify/tally"])
    assert list(found) == [name for name in FILES if name.startswith(("core/", "verify/tally"))]
    for name, digest in found.items():
        assert digest == hashlib.sha256((SQL / f"{name}.sql").read_bytes()).hexdigest()


# The portable subset --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    ],
)
def test_a_file_with_a_foreign_node_is_rejected(sql: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, sql)
    with pytest.raises(ValueError, match=rf"sql/core/domain\.sql is outside the portable subset: (.+, )?{kind}"):
        fill("core/domain", {})
    if kind != "Insert":
        assert isinstance(sqlfiles.parse("duckdb/objects"), exp.Select)


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
        sqlfiles.parse("core/domain")


@pytest.mark.parametrize(
    "sql",
    ["", "-- nothing", "SELECT 1; SELECT 2", "INSERT INTO t SELECT 1", "CREATE TABLE t AS SELECT 1", "DROP TABLE t"],
)
def test_a_file_that_is_not_one_select_is_rejected(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text_is(monkeypatch, sql)
    for name in ("core/domain", "duckdb/objects"):
        with pytest.raises(ValueError, match="is not one SELECT"):
            sqlfiles.parse(name)


# Holes ----------------------------------------------------------------------------------------------------------------


def test_a_hole_that_is_not_filled_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"sql/core/domain_labels\.sql: hole __domain__ is not filled"):
        fill("core/domain_labels", {"labels": []})
    with pytest.raises(ValueError, match=r"hole __labels__ is not filled"):
        fill("core/domain_labels", {"domain": table("t")})


def test_a_hole_that_the_file_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"sql/core/domain_labels\.sql has no holes \['kept', 'sa'\]"):
        fill("core/domain_labels", {"domain": table("t"), "labels": [], "sa": [], "kept": exp.true()})


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_holes_is_not_filled_with_none(name: str) -> None:
    with pytest.raises(ValueError, match="is not filled"):
        fill(name, {})


def test_a_filling_is_not_looked_into_for_holes_and_not_changed() -> None:
    holes: sqlfiles.Holes = {"domain": table("__labels__"), "labels": [column("__domain__"), column("__labels__")]}
    for _ in range(2):
        found = fill("core/domain_labels", holes).sql("duckdb", comments=False)
        assert found == 'SELECT "__domain__", "__labels__", records FROM "__labels__" ORDER BY code'


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    found = fill("core/domain", {"x": temp("t"), "y": query}).sql(dialect="duckdb")
    assert (
        found == 'SELECT r.a FROM "temp"."privsql_t" AS r JOIN (SELECT a FROM u) AS s ON r.a = s.a, "temp"."privsql_t"'
    )


@pytest.mark.parametrize("name", NASTY)
def test_names_are_quoted_wherever_they_come_in(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    holes: sqlfiles.Holes = {
        "source": table(name),
        "sa": [named(column(name), "s0")],
        "qi": [named(column(f"{name}2"), "q0")],
        "keep": every([exp.not_(exp.Is(this=column(name), expression=exp.null()))]),
        "sa_order": [column("s0")],
        "qi_order": [column("q0")],
    }
    with duckdb.connect() as connection:
        connection.execute(f'CREATE TABLE {quoted} ({quoted} INTEGER, {quoted[:-1]}2" INTEGER)')
        connection.execute(f"INSERT INTO {quoted} VALUES (2, 1), (1, 4), (NULL, 3), (1, 2)")
        made = render(fill("core/records", holes))
        assert len(duckdb.extract_statements(made)) == 1
        assert connection.execute(made).fetchall() == [(1, 2), (1, 4), (2, 1)]
        published = fill("bucketize/qit", {
            "assigned": sqlglot.parse_one("(SELECT 7 AS q0, 0 AS bid)", dialect="duckdb"),
            "qi": [named(column("q0", "r"), name)],
            "qi_order": [column("q0", "r")],
        })  # fmt: skip
        connection.execute(f"CREATE TABLE made AS {render(published)}")
        assert [row[0] for row in connection.execute("DESCRIBE made").fetchall()] == [name, "bid"]
        assert connection.execute(f"SELECT count(*) FROM {quoted}").fetchall() == [(4,)]


@pytest.mark.parametrize("name", NASTY)
def test_texts_are_quoted(name: str) -> None:
    with duckdb.connect() as connection:
        found = render(fill("duckdb/objects", {"database": exp.Literal.string(name)}))
        assert connection.execute(found).fetchall() == []
        assert connection.execute(render(exp.select(exp.Literal.string(name)))).fetchall() == [(name,)]


def test_builders() -> None:
    assert render(table("t", "d", "s")) == '"d"."s"."t"'
    assert temp('a"b').sql("duckdb") == '"temp"."privsql_a""b"'
    assert sqlfiles.all_rows(temp("t")).sql("duckdb") == 'SELECT * FROM "temp"."privsql_t"'
    assert every([]).sql("duckdb") == "TRUE"
    assert some([]).sql("duckdb") == "FALSE"
    both = [sqlglot.parse_one("a OR b"), sqlglot.parse_one("c")]
    assert every(both).sql("duckdb") == "(a OR b) AND c"
    assert some(both).sql("duckdb") == "(a OR b) OR c"
    assert same("a", "b", []).sql("duckdb") == "TRUE"
    assert same("a", "b", ["x", "y"]).sql("duckdb") == (
        'a."x" IS NOT DISTINCT FROM b."x" AND a."y" IS NOT DISTINCT FROM b."y"'
    )


# The runner of the tests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    ],
)
def test_the_runner_tells_what_fails(records: str, failing: list[int], tmp_path: Path) -> None:
    path = tmp_path / "one.test"
    path.write_text(records, encoding="utf-8")
    assert [line for line, _ in sqllogic.run(sqllogic.read(path))] == failing


@pytest.mark.parametrize(
    "records", ["", "# nothing", "statement maybe\nSELECT 1", "query X\nSELECT 1\n----", "query I\nSELECT 1", "halt"]
)
def test_the_runner_reads_nothing_that_it_does_not_know(records: str, tmp_path: Path) -> None:
    path = tmp_path / "one.test"
    path.write_text(records, encoding="utf-8")
    with pytest.raises(ValueError, match=r"one\.test"):
        sqllogic.read(path)


# Shipping -------------------------------------------------------------------------------------------------------------


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
    code = "from privsql.engine import sqlfiles; print(sqlfiles.folder(), *sqlfiles.names(), sep='\\n')"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path / "installed"
    ).stdout.splitlines()
    assert found == [str(tmp_path / "installed" / "privsql" / "sql"), *FILES]


# Who imports whom -----------------------------------------------------------------------------------------------------


def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(module: str) -> set[str]:
    """Dotted names of what a module imports, under TYPE_CHECKING too; for ``from a import b`` a.b."""
    found: set[str] = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def inner(module: str) -> set[str]:
    """The modules of the package that a module imports."""
    return {_module(name) for name in imports(module) if name.split(".")[0] == "privsql"}


def _module(name: str) -> str:
    parts = name.split(".")[1:]
    for end in range(len(parts), 0, -1):
        for candidate in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if candidate in MODULES:
                return candidate
    return "__init__"


def outer(module: str) -> set[str]:
    """The packages that a module imports."""
    return {name.split(".")[0] for name in imports(module)}


def layer(module: str) -> int:
    return LAYERS.index(module.split(".", maxsplit=1)[0])


def test_every_module_has_a_layer() -> None:
    assert {module.split(".")[0] for module in MODULES} == set(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    upwards = {name for name in inner(module) if layer(name) < layer(module)}
    assert upwards == set()


def test_no_imports_in_circles() -> None:
    order = list(TopologicalSorter({module: inner(module) - {module} for module in MODULES}).static_order())
    assert set(order) == set(MODULES)


@pytest.mark.parametrize("module", [module for module in MODULES if module.startswith("mechanisms.")])
def test_mechanisms_know_no_engine_no_data_frames_and_not_each_other(module: str) -> None:
    assert not outer(module) & {"pandas", "duckdb"}
    assert not {name for name in inner(module) if name.startswith("engine")}
    own = ".".join(module.split(".")[:2])
    assert not {name for name in inner(module) if name.startswith("mechanisms.") and not name.startswith(f"{own}.")}


def test_the_checks_of_a_release_share_nothing_with_the_search() -> None:
    assert {name for name in inner("mechanisms.bucketize.checks") if name.startswith("mechanisms.")} == {
        "mechanisms.bucketize.parameters",
        "mechanisms.bucketize.thresholds",
    }


def test_only_the_engine_imports_duckdb() -> None:
    assert [module for module in MODULES if "duckdb" in outer(module)] == ["engine.duck"]


def test_a_count_query_needs_no_arrays() -> None:
    assert not outer("answers.parse") & {"numpy", "pandas", "pyarrow", "scipy"}


@pytest.mark.parametrize("module", [module for module in MODULES if module not in ("noise", "dpnoise")])
def test_only_noise_draws(module: str) -> None:
    assert not outer(module) & {"random", "secrets", "randomgen", "uuid"}
    assert not {name for name in imports(module) if name.startswith("numpy.random")}
    tree = parsed(module)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            shown = ast.unparse(node)
            assert node.attr not in {"urandom", "getrandom", "default_rng", "RandomState"}, shown
            of_numpy = re.match(r"(np|numpy)\.random\.(\w+)$", shown)
            assert not of_numpy or (of_numpy[2] in {"Generator", "BitGenerator"} and id(node) not in called), shown


def test_keys_and_noise_load_no_more_than_they_need() -> None:
    code = (
        "import sys; import privsql.noise; heavy = {'numpy', 'opendp', 'pandas', 'randomgen', 'scipy'}; "
        "print(*sorted(heavy & set(sys.modules))); import privsql.dpnoise; "
        "privsql.dpnoise.noise_for(privsql.noise.system_key()); "
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["", "numpy"]


# SQL stands in sql/ ---------------------------------------------------------------------------------------------------


def written(module: str) -> Iterator[str]:
    """The strings of a module, without docstrings and the command line's help."""
    tree = parsed(module)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.keyword) and node.arg in {"help", "epilog", "metavar"}:
            skipped.update(id(part) for part in ast.walk(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


@pytest.mark.parametrize("module", MODULES)
def test_no_sql_in_python(module: str) -> None:
    queries = re.compile(r"\s*\(?\s*(SELECT|WITH|INSERT|UPDATE|DELETE|MERGE|VALUES|FROM)\s")
    changes = re.compile(r"\s*(CREATE|ALTER|DROP|ATTACH|DETACH|COPY|SET|USE|CHECKPOINT|DESCRIBE|PRAGMA|INSTALL|LOAD)\s")
    anywhere = re.compile(r"\bSELECT\b.+\bFROM\b", re.DOTALL)
    wrong: list[Callable[[str], object]] = [queries.match]
    if module != "engine.duck":
        wrong += [changes.match, anywhere.search]
    assert [text for text in written(module) if any(found(text) for found in wrong)] == []
