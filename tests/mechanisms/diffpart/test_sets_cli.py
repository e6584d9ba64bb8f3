"""Set-valued releases from the command line: sources, refusals, queries over items, mining, evaluation, damage."""

from __future__ import annotations

import itertools
import json
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import privsql
from privsql.releases.ledger.book import default_path
from support.commands import manifest, refused, rows, run, specification, succeeded, warehouse, write
from support.loops import each, rest_slow
from support.shop import ASKED, LISTS, NAMES, UNIVERSE, VIEWS, spec
from support.tampering import asked_without_a_traceback, changed, not_verified, stating, with_facts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(shop: Path, tmp_path: Path) -> Path:
    """A copy of the folder."""
    return shutil.copytree(shop, tmp_path / "place")


def truth(folder: Path, condition: str) -> int:
    with duckdb.connect() as db:
        return db.execute(f"SELECT count(*) FROM '{folder / 'shop.parquet'}' WHERE {condition}").fetchall()[0][0]


def estimated(release: Path, condition: str, *flags: object) -> dict[str, Any]:
    query = f"SELECT COUNT(*) FROM shop{' WHERE ' + condition if condition else ''}"
    (row,) = succeeded("query", release, query, "--json", *flags).json["rows"]
    return row


# Publishing -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_release_holds_what_it_should_and_verifies(shop: Path) -> None:
    release = shop / "shop.duckdb"
    shown = succeeded("verify", release, "--source", shop / "spec.toml", "--json").json
    assert shown["ok"]
    assert any("seed" in note for note in shown["notes"])
    columns = rows(release, "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'itemsets'")
    assert columns == [("part", "INTEGER"), ("goods", "VARCHAR[]"), ("count", "BIGINT")]
    assert rows(release, "SELECT count(*) > 0 FROM itemsets") == [(True,)]
    assert rows(
        release, "SELECT count(*) FROM privsql_tree WHERE part > 0 AND (scale IS NULL OR size < threshold)"
    ) == [(0,)]
    assert abs(rows(release, "SELECT sum(weight) FROM shop_weighted")[0][0] - 6000) < 60
    with_ale = rows(release, "SELECT sum(weight) FROM shop_weighted WHERE list_contains(goods, 'ale')")[0][0]
    assert abs(with_ale - truth(shop, "list_contains(goods, 'ale')")) < 60


def test_no_exact_number_of_records_leaves(shop: Path) -> None:
    stated = manifest(shop / "shop.duckdb")
    assert (stated["records"], stated["published"], stated["suppressed"]) == (None, None, None)
    assert stated["facts"]["noise"] == "seed"
    assert abs(stated["facts"]["estimated_records"] - 6000) < 60
    assert stated["facts"]["universe_is_public"]
    assert "6000" not in json.dumps(stated)


@pytest.mark.soak(part="long")
def test_noise_is_opendps_unless_there_is_a_seed(place: Path) -> None:
    succeeded("publish", place / "spec.toml", "--replace")
    first = rows(place / "shop.duckdb", "SELECT size FROM privsql_tree")
    assert manifest(place / "shop.duckdb")["facts"]["noise"] == "opendp"
    assert succeeded("verify", place / "shop.duckdb", "--json").json == {"ok": True} | {
        key: value for key, value in succeeded("verify", place / "shop.duckdb", "--json").json.items() if key != "ok"
    }
    succeeded("publish", place / "spec.toml", "--replace")
    assert rows(place / "shop.duckdb", "SELECT size FROM privsql_tree") != first
    refused(run("publish", place / "spec.toml", "--replace", "--key-file", place / "key"), 2, "option key_file")


@pytest.mark.slow
def test_a_seed_repeats_a_release(place: Path) -> None:
    tables = ["itemsets", "privsql_tree", "privsql_taxonomy", "privsql_universe"]
    before = {name: rows(place / "shop.duckdb", f"FROM {name}") for name in tables}
    write(place / "again.parquet", f"SELECT id, list_reverse(goods) AS goods FROM ({LISTS}) ORDER BY id DESC")
    again = spec(
        place, source='file = "again.parquet"', name="again.toml", release='name = "shop"\nto = "again.duckdb"'
    )
    succeeded("publish", again, "--seed", 7)
    assert {name: rows(place / "again.duckdb", f"FROM {name}") for name in tables} == before


@pytest.mark.slow
def test_pairs_of_record_and_item_are_the_same_table(place: Path) -> None:
    pairs = f"SELECT id, unnest(goods) AS good FROM ({LISTS}) ORDER BY good, id DESC"
    write(place / "pairs.parquet", pairs)
    other = spec(
        place,
        source='file = "pairs.parquet"',
        columns='record = "id"\nitem = "good"',
        release='name = "shop"\nto = "pairs.duckdb"',
        name="pairs.toml",
    )
    succeeded("publish", other, "--seed", 7)
    assert succeeded("verify", place / "pairs.duckdb", "--source", other, "--json").json["ok"]
    taken = "SELECT {0}, count FROM itemsets WHERE len({0}) > 0"
    assert rows(place / "pairs.duckdb", taken.format("good")) == rows(place / "shop.duckdb", taken.format("goods"))
    assert [field["name"] for field in manifest(place / "pairs.duckdb")["sensitive"]] == ["good"]


@pytest.mark.slow
def test_a_folder_of_parquet_files(place: Path) -> None:
    succeeded("publish", place / "spec.toml", "--format", "parquet", "--to", place / "folder", "--seed", 7)
    assert succeeded("verify", place / "folder", "--source", place / "spec.toml", "--json").json["ok"]
    condition = "list_has_all(goods, ['ale', 'bread'])"
    assert estimated(place / "folder", condition) == estimated(place / "shop.duckdb", condition)


@pytest.mark.slow
def test_the_basic_algorithm(place: Path) -> None:
    basic = f'{VIEWS}\nalgorithm = "basic"'
    succeeded("publish", spec(place, mechanism=basic), "--replace")
    assert succeeded("verify", place / "shop.duckdb", "--json").json["ok"]
    assert rows(place / "shop.duckdb", "SELECT columns, budget FROM privsql_cliques") == [(NAMES, "2")]
    assert rows(place / "shop.duckdb", "SELECT count(*) FROM privsql_marginals") == [(128,)]
    with_ale = estimated(place / "shop.duckdb", "list_contains(goods, 'ale')")
    assert abs(with_ale["estimate"] - truth(place, "list_contains(goods, 'ale')")) < 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("universe", "public"),
    rest_slow(
        [
            ('"data"', False),
            ("{ query = \"SELECT unnest(['ale','bread','cheese','dates','eggs','figs','ginger','honey'])\" }", True),
        ]
    ),
)
def test_universes(place: Path, universe: str, public: bool) -> None:
    asked = f'kind = "setvalued"\nepsilon = 2\nuniverse = {universe}'
    succeeded("publish", spec(place, mechanism=asked), "--replace")
    assert succeeded("verify", place / "shop.duckdb", "--source", place / "spec.toml", "--json").json["ok"]
    facts = manifest(place / "shop.duckdb")["facts"]
    assert (facts["universe_is_public"], facts["items"]) == (public, 8 if public else 7)


@each(
    ("part", "text", "code", "words"),
    [
        ("mechanism", ASKED.replace("epsilon = 2", "epsilon = 0"), 2, ["epsilon", "0"]),
        ("mechanism", ASKED.replace("epsilon = 2", "epsilon = -1"), 2, ["epsilon"]),
        ("mechanism", ASKED.replace("epsilon = 2\n", ""), 2, ["epsilon", "missing"]),
        ("mechanism", 'kind = "setvalued"\nepsilon = 1', 2, ["universe", "missing"]),
        ("mechanism", 'kind = "setvalued"\nepsilon = 1\nuniverse = []', 2, ["universe", "empty"]),
        ("mechanism", 'kind = "setvalued"\nepsilon = 1\nuniverse = ["ale", "ale"]', 2, ["twice"]),
        ("mechanism", ASKED.replace("fan_out = 4", "fan_out = 31"), 2, ["fan_out"]),
        ("mechanism", ASKED + "\nc1 = 2", 2, ["c1 and c2"]),
        ("mechanism", 'threshold = "0.5"', 2, ["bucketize", "setvalued"]),
        ("columns", 'quasi_identifiers = ["id"]\nsensitive = "goods"', 2, ["setvalued", "items"]),
        ("columns", 'items = "goods"\nsensitive = "id"', 2, ["no quasi_identifiers"]),
        ("columns", 'items = "goods"\nitem = "id"\nrecord = "id"', 2, ["record and item"]),
        ("columns", 'record = "id"', 2, ["record and item"]),
        ("columns", 'items = "id"', 2, ["'id'", "not a list"]),
        ("columns", 'items = "wares"', 2, ["'wares'", "goods"]),
        ("columns", 'items = "goods"\nnulls = { goods = "refuse" }', 2, ["NULL", "suppress"]),
        ("source", 'file = "shop.parquet"\nquery = "SELECT [goods] AS goods FROM source"', 2, ["can't be published"]),
    ],
)
def test_a_wrong_specification_is_refused_in_one_line(
    place: Path, part: str, text: str, code: int, words: list[str]
) -> None:
    before = (place / "shop.duckdb").read_bytes()
    refused(run("publish", spec(place, **{part: text}), "--replace"), code, *words)
    assert (place / "shop.duckdb").read_bytes() == before


@pytest.mark.slow
def test_lists_that_hold_an_item_twice(place: Path) -> None:
    """A set counts it once: len(goods) = 3 was answered with 0 where 300 lists are so long."""
    twice = "CASE WHEN i % 20 = 0 THEN ['ale', 'figs', 'ale'] ELSE ['ale', 'bread'] END"
    write(place / "shop.parquet", f"SELECT {twice} AS goods FROM range(6000) t(i)")
    succeeded("publish", spec(place), "--seed", 1, "--replace")
    assert abs(estimated(place / "shop.duckdb", "len(goods) = 2")["estimate"] - 6000) < 100
    write(place / "shop.parquet", f"SELECT i AS id, unnest({twice}) AS good FROM range(6000) t(i)")
    succeeded("publish", spec(place, columns='record = "id"\nitem = "good"'), "--seed", 1, "--replace")


@pytest.mark.slow
@pytest.mark.parametrize("bad", rest_slow(["NULL", "['ale', NULL]"]))
def test_null_lists(place: Path, bad: str) -> None:
    write(place / "shop.parquet", f"{LISTS} UNION ALL SELECT 9000, {bad}")
    succeeded("publish", place / "spec.toml", "--replace")
    without = spec(place, columns='items = "goods"\nnulls = { goods = "suppress" }')
    shown = succeeded("publish", without, "--replace", "--json").json
    assert (shown["records"], shown["published"], shown["suppressed"]) == (None, None, None)  # no exact number
    assert succeeded("verify", place / "shop.duckdb", "--source", without, "--json").json["ok"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "items"),
    rest_slow(
        [
            ("INTEGER", "[1, 2, 3]"),
            ("DATE", "[DATE '2020-01-01', DATE '1999-12-31']"),
            ("DOUBLE", "[1.5, 'inf'::DOUBLE]"),
        ]
    ),
)
def test_items_of_other_types(tmp_path: Path, kind: str, items: str) -> None:
    warehouse(
        tmp_path / "shop.duckdb",
        f'CREATE TABLE t AS SELECT CAST({items} AS {kind}[])[:1 + i % 2] AS "the goods" FROM range(900) r(i)',
    )
    asked = 'kind = "setvalued"\nepsilon = 1\nuniverse = "data"'
    given = spec(
        tmp_path,
        source='database = "shop.duckdb"\ntable = "t"',
        columns='items = "the goods"',
        mechanism=asked,
        release='name = "shop"\nto = "out.duckdb"',
    )
    succeeded("publish", given)
    assert succeeded("verify", tmp_path / "out.duckdb", "--source", given, "--json").json["ok"]
    assert manifest(tmp_path / "out.duckdb")["sensitive"] == [{"name": "the goods", "type": f"{kind}[]"}]
    assert abs(estimated(tmp_path / "out.duckdb", 'len("the goods") = 2')["estimate"] - 450) < 40


@pytest.mark.slow
def test_an_enumeration_is_published_as_text(tmp_path: Path) -> None:
    warehouse(
        tmp_path / "shop.duckdb",
        "CREATE TYPE good AS ENUM ('zest', 'ale', 'SECRETLY')",
        "CREATE TABLE t AS SELECT ['zest', 'ale']::good[] AS goods FROM range(500)",
    )
    given = spec(
        tmp_path,
        source='database = "shop.duckdb"\ntable = "t"',
        mechanism='kind = "setvalued"\nepsilon = 1\nuniverse = "data"',
        release='name = "shop"\nto = "out.duckdb"',
    )
    succeeded("publish", given)
    assert b"SECRETLY" not in (tmp_path / "out.duckdb").read_bytes()
    assert rows(tmp_path / "out.duckdb", "SELECT item FROM privsql_universe") == [("ale",), ("zest",)]


@pytest.mark.soak(part="long")
def test_a_ledger_adds_up_epsilons_and_caps_them(place: Path) -> None:
    path = place / "spec.toml"
    named = '[source]\nquery = "SELECT *, row_number() OVER () AS nr FROM source"\nid = "nr"\n'
    asked = path.read_text(encoding="utf-8").replace("[source]\n", named)
    path.write_text(f"{asked}[ledger]\nepsilon = 5.5\n", encoding="utf-8")
    for _ in range(2):
        succeeded("publish", path, "--replace")
    before = (place / "shop.duckdb").read_bytes()
    done = run("publish", path, "--replace", "--json")
    assert (done.code, done.json["left"], done.json["spent"]) == (3, "1.5", "4")
    refused(run("publish", path, "--replace"), 3, "epsilon 2", "1.5 is left", "5.5")
    assert (place / "shop.duckdb").read_bytes() == before
    cheaper = path.read_text(encoding="utf-8").replace("epsilon = 2", "epsilon = 1.5")
    path.write_text(cheaper, encoding="utf-8")
    succeeded("publish", path, "--replace")
    releases = succeeded("ledger", path, "--json").json["releases"]
    assert [one["composes"] for one in releases] == [
        "epsilon 2; all together 2", "epsilon 2; all together 4", "epsilon 1.5; all together 5.5",
    ]  # fmt: skip
    assert "all together 5.5" in " ".join(succeeded("ledger", path).out.split())
    assert default_path().stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_plan_and_init(place: Path) -> None:
    shown = succeeded("plan", place / "spec.toml", "--json").json
    assert (shown["items"], shown["inner_nodes"], shown["first_budget"]) == (7, 3, "1/3")
    toml = succeeded("init", place / "shop.parquet", "--mechanism", "setvalued").out
    (place / "proposed.toml").write_text(toml, encoding="utf-8")
    succeeded("publish", place / "proposed.toml", "--to", place / "proposed.duckdb")
    assert succeeded("verify", place / "proposed.duckdb", "--json").json["ok"]
    write(place / "flat.parquet", "SELECT 1 AS a")
    refused(run("init", place / "flat.parquet", "--mechanism", "setvalued"), 2, "list column")


# Queries --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each(
    "condition",
    [
        "",
        "list_contains(goods, 'cheese')",
        "NOT list_contains(goods, 'cheese')",
        "list_has_all(goods, ['ale', 'bread'])",
        "goods @> ['ale', 'bread']",
        "list_has_any(goods, ['figs', 'ginger'])",
        "len(goods) >= 3",
        "len(goods) BETWEEN 1 AND 2 AND NOT list_has_any(goods, ['bread', 'cheese'])",
        "list_contains(goods, 'ale') AND (list_contains(shop.goods, 'bread') OR len(goods) = 4)",
        "len(goods) = 0",
    ],
    few=10,
)
def test_conditions_on_items(shop: Path, condition: str) -> None:
    found = estimated(shop / "shop.duckdb", condition, "--confidence", "0.999")
    true = truth(shop, condition.replace("shop.", "") or "TRUE")
    assert abs(found["estimate"] - true) < 90
    assert found["low"] < found["estimate"] < found["high"]
    assert estimated(shop / "shop.duckdb", condition, "--confidence", "0.999", "--estimator", "baseline") == found


@pytest.mark.slow
@each(
    ("query", "words"),
    [
        ("SELECT goods, COUNT(*) FROM shop GROUP BY goods", ["GROUP"]),
        ("SELECT COUNT(*), COUNT(*) FROM shop", ["two columns", "alias"]),
        ("SELECT SUM(1) FROM shop", ["COUNT(*)"]),
        ("SELECT FROM shop", ["records can't be listed"]),
        ("SELECT COUNT(*) FROM shop WHERE len(s.goods) > 1", ["'s.goods'"]),
        ("SELECT COUNT(*) FROM shop WHERE len(goods) > " + "- " * 400 + "1", ["nested too deeply"]),
        ("SELECT COUNT(*) FROM shop WHERE goods = ['ale']", ["list_contains(goods, 'ale')"]),
        ("SELECT COUNT(*) FROM shop WHERE goods[1] = 'ale'", ["not supported"]),
        ("SELECT COUNT(*) FROM shop WHERE list_contains(goods, goods[1])", ["not a constant"]),
        ("SELECT COUNT(*) FROM shop WHERE list_contains(wares, 'ale')", ["'wares'", "goods"]),
        ("SELECT COUNT(*) FROM shop WHERE list_contains(['ale'], 'ale')", ["goods"]),
        ("SELECT COUNT(*) FROM shop WHERE list_has_all(goods, goods)", ["list the items"]),
        ("SELECT COUNT(*) FROM shop WHERE len(goods) > len(goods)", ["len(goods)"]),
        ("SELECT COUNT(*) FROM shop WHERE len(goods) > (SELECT 1)", ["a subquery is not supported"]),
        ("SELECT COUNT(*) FROM shop WHERE random() < 0.5", ["not supported"]),
        ("SELECT COUNT(*) FROM shop WHERE weight > 1", ["not supported"]),
        ("SELECT COUNT(*) FROM shop, shop AS s", ["the release itself"]),
        ("SELECT COUNT(goods) FROM shop", ["COUNT(goods)", "FILTER"]),
        ("SELECT COUNT(*) // 2 FROM shop", ["no interval"]),
        ("SELECT COUNT(*) + len(goods) FROM shop", ["goods", "arithmetic of counts"]),
        ("SELECT COUNT(*) FROM elsewhere", ["elsewhere"]),
        ("SELECT COUNT(*) FROM shop WHERE list_contains(goods, 'a", ["parsed"]),
        ("SELECT COUNT(*) FROM shop WHERE len(goods) > 'many'", ["many"]),
        ("DROP TABLE itemsets", ["SELECT"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(shop: Path, query: str, words: list[str]) -> None:
    refused(run("query", shop / "shop.duckdb", query), 2, *words)


def test_explain_prints_sql_that_runs(shop: Path) -> None:
    query = "SELECT COUNT(*) AS n FROM shop WHERE list_contains(goods, 'ale')"
    shown = succeeded("query", shop / "shop.duckdb", query, "--explain", "--json").json
    assert "Chen et al. 2011" in shown["formula"]
    assert rows(shop / "shop.duckdb", shown["sql"])


@pytest.mark.slow
def test_several_counts_and_shares_of_them(shop: Path) -> None:
    """Counts that make up another one vary together: what is left has the error of those who are left."""
    ale = "COUNT(*) FILTER (WHERE list_contains(goods, 'ale'))"
    rest = "COUNT(*) FILTER (WHERE NOT list_contains(goods, 'ale'))"
    query = f"SELECT 100 * {ale} / COUNT(*) AS share, COUNT(*) - {ale} AS a, {rest} AS b FROM shop WHERE len(goods) > 1"
    (row,) = succeeded("query", shop / "shop.duckdb", query, "--json").json["rows"]
    assert row["share_low"] < row["share"] < row["share_high"]
    assert row["a"] == pytest.approx(row["b"], abs=1)
    assert row["a_std_error"] > 0


def test_a_frame_from_the_library(shop: Path) -> None:
    with privsql.open(shop / "shop.duckdb") as release:
        frame = release.sql("SELECT COUNT(*) FROM shop WHERE len(goods) > 2")
        assert list(frame.columns) == ["estimate", "std_error", "low", "high"]
        with pytest.raises(privsql.errors.UsageError):
            release.sql("SELECT COUNT(*) FROM shop", estimator="other")


# Frequent item sets and evaluation ------------------------------------------------------------------------------------


def supports(folder: Path) -> dict[tuple[str, ...], int]:
    """True support of every item set that occurs."""
    with duckdb.connect() as db:
        sets = db.execute(f"SELECT list_sort(goods), count(*) FROM '{folder / 'shop.parquet'}' GROUP BY ALL").fetchall()
    found: dict[tuple[str, ...], int] = {}
    for items, records in sets:
        for size in range(1, len(items) + 1):
            for chosen in itertools.combinations(items, size):
                found[chosen] = found.get(chosen, 0) + records
    return found


@pytest.mark.slow
@pytest.mark.parametrize("estimator", rest_slow(["reconstructed", "baseline"]))
def test_frequent_item_sets(shop: Path, estimator: str) -> None:
    shown = succeeded("query", shop / "shop.duckdb", "--itemsets", 12, "--estimator", estimator, "--json").json
    found = {tuple(sorted(one["items"])): one["records"] for one in shown["itemsets"]}
    true = supports(shop)
    assert len(found) == 12
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(abs(records - true[items]) < 90 for items, records in found.items())
    top = sorted(true, key=true.__getitem__, reverse=True)[:12]
    assert len(set(top) & set(found)) >= 10
    assert "ale" in succeeded("query", shop / "shop.duckdb", "--itemsets", 1).out


@pytest.mark.slow
def test_synthetic_rows_give_the_estimates(shop: Path, tmp_path: Path) -> None:
    made = tmp_path / "rows.parquet"
    succeeded("export", shop / "shop.duckdb", "--synthetic", made)
    release = shop / "shop.duckdb"
    assert rows(release, f"SELECT typeof(record), typeof(item) FROM '{made}' LIMIT 1") == [("BIGINT", "VARCHAR")]
    for name in NAMES[:4]:
        query = f"SELECT count(*), count(DISTINCT record) FROM '{made}' WHERE item = '{name}'"
        ((number, records),) = rows(release, query)
        assert number == records
        assert abs(number - truth(shop, f"list_contains(goods, '{name}')")) < 90
    refused(run("export", release, "--synthetic", made), 2, "new file")


@pytest.mark.slow
def test_item_sets_need_a_release_of_item_sets(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", "SELECT i % 5 AS age, 'd' || i % 4 AS disease FROM range(200) t(i)")
    flags = ["--qi", "age", "--sensitive", "disease", "--threshold", "0.5", "--to", tmp_path / "r.duckdb"]
    succeeded("publish", tmp_path / "people.parquet", *flags)
    refused(run("query", tmp_path / "r.duckdb", "--itemsets", 20), 2, "no item sets", "bucketize")


@pytest.mark.soak(part="long")
def test_evaluation_by_length_and_top(shop: Path) -> None:
    flags = ["--source", shop / "spec.toml", "--queries", 40]
    shown = succeeded("evaluate", shop / "shop.duckdb", *flags, "--json").json
    for name in ("baseline", "reconstructed"):
        assert [one["length_share"] for one in shown[name]["classes"]] == [0.2, 0.4, 0.6, 0.8, 1.0]
        assert all(one["mean_relative_error"] < 1 for one in shown[name]["classes"])
        assert set(shown[name]["top"]) == {"20", "50", "100"}
        assert [one["class"] for one in shown[name]["questions"]] == ["item", "pair", "rec1", "rec2", "rec3", "rec4"]
        assert shown[name]["top_items"] == {}  # seven items are no more than the twenty best
    assert shown["reconstructed"]["coverage"] > 0.8
    assert shown["reconstructed"]["top"]["20"] > 0.8
    assert "of the longest" in succeeded("evaluate", shop / "shop.duckdb", *flags).out
    points = succeeded("evaluate", shop / "shop.duckdb", *flags, "--json", "--points").json["points"]
    assert len(points) == shown["baseline"]["queries"]
    for point in (points[0], points[-1]):
        (row,) = succeeded("query", shop / "shop.duckdb", point["question"], "--json").json["rows"]
        assert row["estimate"] == pytest.approx(point["reconstructed"]["estimate"])
    refused(run("evaluate", shop / "shop.duckdb", *flags, "--workload", "random"), 2, "random")


@pytest.mark.slow
def test_evaluation_with_queries_of_a_file(place: Path) -> None:
    queries = ["len(goods) > 1", "list_has_all(goods, ['ale', 'dates'])", "list_contains(goods, 'figs')"]
    (place / "queries.sql").write_text(
        ";\n".join(f"SELECT COUNT(*) FROM shop WHERE {one}" for one in queries), encoding="utf-8"
    )
    flags = ["--source", place / "spec.toml", "--workload", place / "queries.sql", "--json"]
    shown = succeeded("evaluate", place / "shop.duckdb", *flags).json
    assert shown["reconstructed"]["queries"] == 3
    assert shown["reconstructed"]["mean_relative_error"] < 0.2


# Damage ---------------------------------------------------------------------------------------------------------------


LEAF = "(SELECT max(part) FROM privsql_tree WHERE node IS NULL)"
DAMAGE: dict[str, tuple[str, Any]] = {
    "a larger epsilon was spent": ("every path", stating("parameters", lambda asked: asked | {"epsilon": "1.5"})),
    "a budget": ("every path", "UPDATE privsql_tree SET budget = '5' WHERE part = 1"),
    "a budget of one leaf": ("every path", f"UPDATE privsql_tree SET budget = '1/7' WHERE part = {LEAF}"),
    "a scale": ("scales", "UPDATE privsql_tree SET scale = scale / 2 WHERE part = 2"),
    "a threshold": ("thresholds", "UPDATE privsql_tree SET threshold = threshold - 1 WHERE part = 1"),
    "a size below the threshold": ("thresholds", "UPDATE privsql_tree SET size = threshold - 1 WHERE part = 1"),
    "a branch": ("", f"UPDATE privsql_tree SET branch = 0 WHERE part = {LEAF}"),
    "an expansion": ("", "UPDATE privsql_tree SET node = 15 - node WHERE node < 9"),
    "a parent that is not there": ("", "UPDATE privsql_tree SET parent = 99999 WHERE part = 2"),
    "a circle": ("", "UPDATE privsql_tree SET parent = 2 WHERE part = 2"),
    "a lost leaf": ("", f"DELETE FROM privsql_tree WHERE part = {LEAF}"),
    "an item renamed": ("", "UPDATE privsql_universe SET item = 'arsenic' WHERE code = 0"),
    "a taxonomy of another shape": ("", "UPDATE privsql_taxonomy SET parent = 8 WHERE node = 0"),
    "a count": ("counts", "UPDATE itemsets SET count = count + 1 WHERE goods = (SELECT max(goods) FROM itemsets)"),
    "an item set more": ("numbers", "INSERT INTO itemsets VALUES (99999, ['zest'], 5)"),
    "an item set's items": ("", f"UPDATE itemsets SET goods = ['ale', 'figs', 'eggs'] WHERE part = {LEAF}"),
    "an item twice": ("item sets", "UPDATE itemsets SET goods = list_concat(goods, goods) WHERE len(goods) > 0"),
    "rows in another order": ("lie in order", "CREATE OR REPLACE TABLE itemsets AS FROM itemsets ORDER BY goods DESC"),
    "more records kept": ("facts", with_facts(kept_records=1)),
    "another noise": ("facts", with_facts(noise="opendp")),
    "a number of records": ("facts", with_facts(estimated_records=5000)),
    "a number of item sets": ("facts", with_facts(item_sets=3)),
    "a version of OpenDP": ("OpenDP", with_facts(opendp="99.1")),
    "no version of OpenDP": ("valid tree", with_facts(opendp="newest")),
    "a leak denied": ("facts", with_facts(universe_is_public=False)),
    "a fact of another kind": ("valid tree", with_facts(items="many")),
    "a missing table": ("stated tables", "DROP TABLE privsql_taxonomy"),
    "a table more": ("stated tables", "CREATE TABLE raw AS SELECT 1 AS goods"),
    "another view": (
        "stated tables",
        "CREATE OR REPLACE VIEW shop AS SELECT goods, 1 AS weight FROM itemsets",
    ),
    "no rows in the tree": ("", "DELETE FROM privsql_tree"),
    "a set whose part is NULL": ("counts", f"UPDATE itemsets SET part = NULL WHERE part = {LEAF}"),
    "no count": ("counts", f"UPDATE itemsets SET count = NULL WHERE part = {LEAF}"),
    "NULL everywhere": ("", "UPDATE privsql_tree SET parent = NULL, branch = NULL, size = NULL, budget = NULL"),
    "a budget that is not a number": ("", "UPDATE privsql_tree SET budget = 'plenty' WHERE part = 1"),
    "a budget of nothing": ("", "UPDATE privsql_tree SET budget = '0' WHERE part = 1"),
}


@pytest.mark.slow
@each("what", DAMAGE, few=4, soak="damage")
def test_damage_is_found(shop: Path, tmp_path: Path, what: str) -> None:
    words, change = DAMAGE[what]
    release = changed(shop / "shop.duckdb", tmp_path, change)
    done = not_verified(release)
    assert words.split()[0:1] == [] or words.split()[0] in " ".join((done.out + done.err).split())
    asked_without_a_traceback(release, ("query", "--itemsets", "20"), ("query", "SELECT COUNT(*) FROM shop"))


@pytest.mark.slow
def test_another_source_or_specification(place: Path) -> None:
    release = place / "shop.duckdb"
    other = spec(place, mechanism=ASKED.replace("epsilon = 2", "epsilon = 3"), name="other.toml")
    shown = run("verify", release, "--source", other)
    assert shown.code == 1
    assert "epsilon" in shown.out
    reordered = json.dumps(NAMES[::-1])
    other = spec(place, mechanism=ASKED.replace(UNIVERSE, reordered), name="other.toml")
    assert run("verify", release, "--source", other).code == 1
    write(place / "people.parquet", "SELECT i % 5 AS age, 'd' || i % 4 AS disease FROM range(200) t(i)")
    people = 'quasi_identifiers = ["age"]\nsensitive = "disease"'
    other = specification(place, columns=people, mechanism='threshold = "0.5"', name="people.toml")
    refused(run("verify", release, "--source", other), 2, "columns")


def test_a_node_of_many_children_has_branches_beyond_the_rows(tmp_path: Path) -> None:
    """A branch is a bit mask over the children of a node, and no number of a row."""
    items = [f"i{number:02}" for number in range(12)]
    table = pa.table(
        {
            "goods": [
                [items[i % 12], items[(i * i + 5) % 12]] if i % 12 != (i * i + 5) % 12 else [items[0]]
                for i in range(300)
            ]
        }
    )
    asked = {"kind": "setvalued", "algorithm": "diffpart", "epsilon": 3, "fan_out": 12, "universe": items}
    done = privsql.publish(
        table,
        to=tmp_path / "t.duckdb",
        seed=1,
        set={"mechanism": asked, "columns": {"items": "goods"}, "ledger": {"off": True}},
    )
    ((branches, parts),) = rows(tmp_path / "t.duckdb", "SELECT max(branch), count(*) FROM privsql_tree")
    assert branches > parts
    assert privsql.verify(done).ok
