"""Releases of views from the command line: publishing, queries beside the source, what is not known, damage."""

from __future__ import annotations

import itertools
import json
from math import exp
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from support.commands import manifest, refused, rows, run, specification, succeeded, warehouse, write
from support.loops import each, rest_slow
from support.tampering import asked_without_a_traceback, changed, not_verified, stating, with_facts

if TYPE_CHECKING:
    from pathlib import Path

ITEMS = 10
# 8,000 lists over 10 items: item k is in about every (k+2)nd, and three come together in a fifth of them
LISTS = (
    "SELECT list_filter(range({items}), lambda k: (i * (k + 7) + i // 3) % (k + 2) = 0 "
    "OR (i % 5 = 0 AND k BETWEEN 3 AND 5)) AS goods FROM range(8000) t(i)"
)
FEW = f'kind = "setvalued"\nepsilon = 1\nuniverse = {json.dumps([str(k) for k in range(ITEMS)])}'
MANY = 'kind = "setvalued"\nepsilon = 2\nuniverse = { query = "SELECT range FROM range(60)" }\nworkload = [["7", "30"]]'


def spec(folder: Path, *, mechanism: str = FEW, **parts: str) -> Path:
    """A specification of ``stall.duckdb``."""
    given = {"source": 'file = "stall.parquet"', "release": 'name = "stall"\nto = "stall.duckdb"'} | parts
    return specification(folder, columns='items = "goods"', mechanism=mechanism, **given)


def made(folder: Path, items: int, mechanism: str) -> Path:
    write(folder / "stall.parquet", LISTS.format(items=items))
    succeeded("publish", spec(folder, mechanism=mechanism), "--seed", 7)
    return folder


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of all patterns of ten items."""
    return made(tmp_path_factory.mktemp("few"), ITEMS, FEW)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of some of sixty items."""
    return made(tmp_path_factory.mktemp("many"), 60, MANY)


def truth(folder: Path, condition: str) -> int:
    with duckdb.connect() as db:
        query = f"SELECT count(*) FROM '{folder / 'stall.parquet'}' WHERE {condition}"
        return db.execute(query).fetchall()[0][0]


def estimated(folder: Path, condition: str, *flags: object) -> dict[str, Any]:
    query = f"SELECT COUNT(*) FROM stall WHERE {condition}"
    (row,) = succeeded("query", folder / "stall.duckdb", query, "--json", *flags).json["rows"]
    return row


# Publishing ---


@pytest.mark.slow
@pytest.mark.parametrize("folder", rest_slow(["few", "many"]))
def test_a_release_verifies_and_states_no_number(folder: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(folder)
    shown = succeeded("verify", place / "stall.duckdb", "--source", place / "spec.toml", "--json").json
    assert shown["ok"]
    stated = manifest(place / "stall.duckdb")
    assert (stated["algorithm"], stated["records"], stated["facts"]["noise"]) == ("views", None, "seed")
    assert abs(stated["facts"]["estimated_records"] - 8000) < 120
    facts = stated["facts"]
    assert (facts["items"], facts["measured"]) == ((10, 10) if folder == "few" else (60, 20))
    shown = succeeded("attack", place / "stall.duckdb", "--json").json
    (found,) = [one for one in shown["adversaries"] if one["adversary"] == "membership"]
    most = 1 / (1 + exp(-1 if folder == "few" else -2))
    assert (found["promised"], found["above"]) == (True, 0)
    assert found["highest"] == pytest.approx(most)


@each("condition", ["list_contains(goods, 3)", "list_has_all(goods, [3, 4])", "TRUE"])
def test_the_view_gives_about_the_estimates(few: Path, condition: str) -> None:
    ((weight,),) = rows(few / "stall.duckdb", f"SELECT sum(weight) FROM stall_weighted WHERE {condition}")
    assert weight == pytest.approx(truth(few, condition), abs=150)


@pytest.mark.slow
def test_a_folder_of_parquet_files(few: Path, tmp_path: Path) -> None:
    succeeded("publish", few / "spec.toml", "--format", "parquet", "--to", tmp_path / "stall.duckdb", "--seed", 7)
    assert succeeded("verify", tmp_path / "stall.duckdb", "--source", few / "spec.toml", "--json").json["ok"]
    assert estimated(tmp_path, "len(goods) = 3") == estimated(few, "len(goods) = 3")


def test_a_plan_says_what_is_spent(few: Path) -> None:
    shown = succeeded("plan", few / "spec.toml", "--json").json
    assert (shown["tables"], shown["cells"]) == (4, 3 * 256 + 1024)


@pytest.mark.slow
def test_a_plan_of_many_items(many: Path) -> None:
    shown = succeeded("plan", many / "spec.toml", "--json").json
    assert shown["lengths_budgets"] == ["0.04", "0.04", "0.04", "0.24"]
    assert shown["items_budgets"] == ["0.12", "0.24", "0.48", "1.48"]
    assert shown["tables_budgets"] == ["1.84", "1.72", "1.48", "0.28"]


@pytest.mark.soak(part="long")
@each(
    ("items", "universe", "runs"),
    [
        ("[]::INTEGER[]", 3, ((0, "1"), (700, "100"))),
        ("[0]", 1, ((1, "100"), (700, "0.000001"))),
        ("[0, 2]", 20, ((700, "100"),)),
        ("[0, 2]", 21, ((700, "100"),)),
        ("[]::INTEGER[]", 40, ((0, "0.000001"),)),
    ],
)
def test_tables_of_few_or_equal_records(
    tmp_path: Path, items: str, universe: int, runs: tuple[tuple[int, str], ...]
) -> None:
    for number, epsilon in runs:
        write(tmp_path / "stall.parquet", f"SELECT {items} AS goods FROM range({number}) t(i)")
        universe_of = f'{{ query = "SELECT range FROM range({universe})" }}'
        asked = f'kind = "setvalued"\nallow_empty = true\nepsilon = "{epsilon}"\nuniverse = {universe_of}'
        succeeded("publish", spec(tmp_path, mechanism=asked), "--replace", "--seed", number + universe)
        assert succeeded("verify", tmp_path / "stall.duckdb", "--source", tmp_path / "spec.toml", "--json").json["ok"]
        listed = "[0, 2]" if universe > 2 else "[0]"  # what is not in a public universe is refused
        for condition in ("TRUE", "list_contains(goods, 0)", f"NOT list_has_any(goods, {listed})"):
            row = estimated(tmp_path, condition)
            assert row["low"] <= row["estimate"] <= row["high"]
            if epsilon == "100" and universe <= 20:
                assert row["low"] - 1 <= truth(tmp_path, condition) <= row["high"] + 1
        succeeded("query", tmp_path / "stall.duckdb", "--itemsets", 20)
        succeeded("attack", tmp_path / "stall.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "items", "named"),
    rest_slow(
        [
            ("DATE", "[DATE '2020-01-01', DATE '1999-12-31']", "DATE '1999-12-31'"),
            ("VARCHAR", "['it''s', '\"ü\"', '', '∅;--']", "'it''s'"),
            ("DOUBLE", "[1.5, 'inf'::DOUBLE]", "1.5"),
        ]
    ),
)
def test_items_of_other_types(tmp_path: Path, kind: str, items: str, named: str) -> None:
    list_of = f"CAST({items} AS {kind}[])[:1 + i % 2]"
    warehouse(tmp_path / "shop.duckdb", f"CREATE TABLE t AS SELECT {list_of} AS goods FROM range(900) r(i)")
    given = spec(
        tmp_path,
        source='database = "shop.duckdb"\ntable = "t"',
        mechanism='kind = "setvalued"\nepsilon = 2\nuniverse = "data"',
    )
    succeeded("publish", given)
    assert succeeded("verify", tmp_path / "stall.duckdb", "--source", given, "--json").json["ok"]
    first = rows(tmp_path / "shop.duckdb", f"SELECT count(*) FROM t WHERE list_contains(goods, {named})")[0][0]
    assert estimated(tmp_path, f"list_contains(goods, {named})")["estimate"] == pytest.approx(first, abs=60)
    assert estimated(tmp_path, "len(goods) = 2")["estimate"] == pytest.approx(450, abs=60)


# Queries ---


CONDITIONS = [
    "list_contains(goods, 3)",
    "list_has_all(goods, [3, 4, 5])",
    "array_has_all(goods, [0, 9])",
    "list_has_any(goods, [8, 9])",
    "NOT list_has_any(goods, [0, 1, 2])",
    "len(goods) = 3",
    "len(goods) BETWEEN 2 AND 4 AND list_contains(goods, 1) OR list_contains(goods, 6)",
    "list_has_all(goods, [0, 9])",
    "list_has_all(goods, [])",
    "NOT list_has_any(goods, [])",
    "list_contains(goods, 9) OR len(goods) > 8",
    "list_contains(goods, NULL)",
    "NOT list_contains(goods, NULL) OR list_contains(goods, 2)",
]


@pytest.mark.slow
@each("condition", CONDITIONS, few=4)
def test_any_condition_is_answered_as_sql_has_it(few: Path, condition: str) -> None:
    """With a seed: every true answer within five standard errors, and between low and high for most."""
    row = estimated(few, condition)
    true = truth(few, condition)
    assert abs(row["estimate"] - true) <= 5 * row["std_error"] + 1e-6, row
    assert row["low"] <= row["estimate"] <= row["high"]


@pytest.mark.slow
def test_estimates_add_up(few: Path) -> None:
    """What items have together, and what each has without the other, and what has neither."""

    def one(condition: str) -> float:
        return float(estimated(few, condition, "--estimator", "baseline")["estimate"])

    parts = [f"{'NOT ' * (not a)}list_contains(goods, 3) AND {'NOT ' * (not b)}list_contains(goods, 4)"
             for a, b in itertools.product((True, False), repeat=2)]  # fmt: skip
    assert sum(map(one, parts)) == pytest.approx(one("TRUE"))
    assert one(parts[0]) + one(parts[1]) == pytest.approx(one("list_contains(goods, 3)"))
    assert one("len(goods) > 2") + one("len(goods) <= 2") == pytest.approx(one("TRUE"))
    query = "SELECT COUNT(*) - COUNT(*) FILTER (WHERE list_contains(goods, 3)) AS a FROM stall"
    (row,) = succeeded("query", few / "stall.duckdb", query, "--json").json["rows"]
    other = estimated(few, "NOT list_contains(goods, 3)")
    assert row["a"] == pytest.approx(other["estimate"])
    assert row["a_std_error"] == pytest.approx(other["std_error"], rel=1e-6)


def test_what_an_answer_reads_and_how_is_explained(few: Path) -> None:
    query = "SELECT COUNT(*) FROM stall WHERE list_contains(goods, 3)"
    shown = succeeded("query", few / "stall.duckdb", query, "--explain", "--json").json
    assert "least squares" in shown["formula"]
    assert len(rows(few / "stall.duckdb", shown["sql"])) == 3 * 256 + 1024
    refused(run("query", few / "stall.duckdb", query, "--estimator", "bets"), 2, "bets")


def chosen(folder: Path) -> list[int]:
    return [row[0] for row in rows(folder / "stall.duckdb", "SELECT item FROM privsql_chosen ORDER BY place")]


@pytest.mark.slow
def test_every_item_has_a_count(many: Path) -> None:
    measured = chosen(many)
    assert measured[:2] == [7, 30]  # declared
    query = "SELECT unnest(goods) AS item, COUNT(*) AS n FROM stall GROUP BY item"
    listed = {row["item"]: row for row in succeeded("query", many / "stall.duckdb", query, "--json").json["rows"]}
    assert sorted(listed) == list(range(60))
    held = {item: truth(many, f"list_contains(goods, {item})") for item in listed}
    assert sum(row["n_low"] <= held[item] <= row["n_high"] for item, row in listed.items()) >= 54
    assert sum(abs(row["n"] - held[item]) for item, row in listed.items()) / 60 < 60
    other = next(item for item in range(60) if item not in measured)
    alone = estimated(many, f"list_contains(goods, {other})")
    without = estimated(many, f"NOT list_contains(goods, {other})")
    assert alone["std_error"] > 0
    assert without["low"] <= 8000 - held[other] <= without["high"]
    assert alone["estimate"] + without["estimate"] == pytest.approx(estimated(many, "TRUE")["estimate"])
    both = estimated(many, f"list_has_all(goods, [{measured[3]}, {other}])")
    assert both["low"] <= truth(many, f"list_has_all(goods, [{measured[3]}, {other}])") <= both["high"]
    assert (both["std_error"], both["high"] <= 1.2 * alone["high"]) == (None, True)
    any_of = f"list_has_any(goods, [{measured[3]}, {other}])"
    either = estimated(many, any_of)
    assert held[other] - 200 < either["low"] <= truth(many, any_of) <= either["high"] < 8200
    longer = ", ".join(map(str, range(21)))
    refused(
        run("query", many / "stall.duckdb", f"SELECT COUNT(*) FROM stall WHERE list_has_any(goods, [{longer}])"),
        2,
        "20",
    )


@pytest.mark.slow
def test_lengths_of_records_are_answered_for_any_universe(many: Path) -> None:
    """Exactly where classes end, by bounds inside of a class and beside items."""
    item = chosen(many)[2]
    for condition in ("len(goods) > 6", "len(goods) BETWEEN 3 AND 8", "len(goods) = 5 OR len(goods) < 2"):
        row = estimated(many, condition)
        assert abs(row["estimate"] - truth(many, condition)) <= 5 * row["std_error"]
    for condition in (
        "len(goods) > 18", f"len(goods) > 8 OR list_contains(goods, {item})",
        f"len(goods) < 5 AND NOT list_contains(goods, {item})",
    ):  # fmt: skip
        row = estimated(many, condition)
        assert row["std_error"] is None
        assert row["low"] <= truth(many, condition) <= row["high"]
    assert estimated(many, "len(goods) > 60")["high"] == 0
    everything = sum(estimated(many, f"len(goods) {part}")["estimate"] for part in ("<= 4", "> 4"))
    assert everything == pytest.approx(estimated(many, "TRUE")["estimate"])
    assert estimated(many, f"len(goods) < 1 AND list_contains(goods, {item})")["high"] < 150  # nobody


@pytest.mark.slow
def test_sets_that_no_view_holds_have_intervals_within_bounds(many: Path) -> None:
    measured = chosen(many)
    held = [set(row[0]) for row in rows(many / "stall.duckdb", "SELECT columns FROM privsql_cliques")]
    apart = next(
        one for one in itertools.combinations(measured, 3) if not any({str(k) for k in one} <= view for view in held)
    )
    condition = f"list_has_all(goods, {list(apart)})"
    row = estimated(many, condition)
    bounds = estimated(many, condition, "--estimator", "baseline")
    assert bounds["std_error"] is None
    assert bounds["low"] <= truth(many, condition) <= bounds["high"]
    assert row["std_error"] > 0
    assert row["high"] <= 1.02 * bounds["high"]
    assert row["low"] <= truth(many, condition) <= row["high"]


# Frequent item sets and evaluation ---


@pytest.mark.slow
@pytest.mark.parametrize("folder", rest_slow(["few", "many"]))
def test_item_sets_that_are_listed_were_measured(folder: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(folder)
    for estimator in ("reconstructed", "baseline"):
        flags = ["--itemsets", 15, "--estimator", estimator, "--json"]
        shown = succeeded("query", place / "stall.duckdb", *flags).json["itemsets"]
        assert len(shown) == 15
        assert [one["records"] for one in shown] == sorted((one["records"] for one in shown), reverse=True)
        assert all(set(map(int, one["items"])) <= set(chosen(place)) for one in shown)
        for one in shown:
            assert one["records"] == pytest.approx(
                truth(place, f"list_has_all(goods, [{', '.join(one['items'])}])"), abs=400
            )


@pytest.mark.slow
def test_questions_of_very_many_items_are_bounded_or_refused(many: Path) -> None:
    """The patterns of sixty items are too many to be listed: a question for all of them ran out of memory."""
    measured = chosen(many)
    others = [item for item in range(60) if item not in measured]
    assert len(others) > 25
    with privsql.open(many / "stall.duckdb") as release:
        answers: Any = release.answers
        found = answers.containing([measured[0], *others], "reconstructed", 0.95)
        ends = [answers.containing([item], "reconstructed", 0.999).high for item in others]
    assert found.estimate < min(ends)
    assert found.high < 1.2 * min(ends)
    sql = f"SELECT COUNT(*) FROM stall WHERE list_has_all(goods, {others[:25]})"
    refused(run("query", many / "stall.duckdb", sql), 2, "more than 20 items")


@pytest.mark.slow
def test_nothing_is_invented(tmp_path: Path) -> None:
    """100 records with items of their own each, hardly any budget: nothing is above 0 for sure."""
    write(tmp_path / "stall.parquet", "SELECT [i] AS goods FROM range(100) t(i)")
    asked = 'kind = "setvalued"\nepsilon = 0.0001\nuniverse = { query = "SELECT range FROM range(100)" }'
    refused(
        run("publish", spec(tmp_path, mechanism=asked), "--seed", 3),
        3,
        "would be noise",
        "mechanism.allow_empty = true",
    )
    succeeded("publish", spec(tmp_path, mechanism=f"{asked}\nallow_empty = true"), "--seed", 3)
    shown = succeeded("query", tmp_path / "stall.duckdb", "--itemsets", 20, "--json").json["itemsets"]
    assert len(shown) <= 1


@pytest.mark.slow
def test_synthetic_records_and_evaluation(few: Path, tmp_path: Path) -> None:
    succeeded("export", few / "stall.duckdb", "--synthetic", tmp_path / "rows.parquet")
    ((number,),) = rows(few / "stall.duckdb", f"SELECT count(*) FROM '{tmp_path / 'rows.parquet'}' WHERE item = 3")
    assert number == pytest.approx(truth(few, "list_contains(goods, 3)"), abs=150)
    shown = succeeded("evaluate", few / "stall.duckdb", "--source", few / "spec.toml", "--queries", 50, "--json").json
    assert shown["reconstructed"]["coverage"] > 0.85
    assert {one["class"] for one in shown["reconstructed"]["questions"]} >= {"item", "pair", "rec1", "rec2"}
    assert shown["reconstructed"]["top"]["20"] > 0.8


@pytest.mark.slow
def test_a_frame_from_the_library(few: Path) -> None:
    with privsql.open(few / "stall.duckdb") as release:
        frame = release.sql("SELECT COUNT(*) FROM stall WHERE len(goods) > 2")
        assert list(frame.columns) == ["estimate", "std_error", "low", "high"]


# Damage ---


EXCHANGED = (
    "UPDATE privsql_cliques AS c SET budget = (SELECT o.budget FROM privsql_cliques AS o "
    "WHERE o.clique = 4 - c.clique) WHERE clique IN (1, 3)"
)
BACKWARDS = "CREATE OR REPLACE TABLE privsql_sets AS FROM privsql_sets ORDER BY goods DESC"
DAMAGE: dict[str, tuple[str, Any]] = {
    "a larger epsilon": ("budgets", stating("parameters", lambda asked: asked | {"epsilon": "1.5"})),
    "a budget": ("budgets", "UPDATE privsql_cliques SET budget = '1/7' WHERE clique = 1"),
    "budgets exchanged": ("tables and their budgets", EXCHANGED),
    "a scale": ("scales", "UPDATE privsql_cliques SET scale = scale / 2 WHERE clique = 2"),
    "another view": ("tables and", "UPDATE privsql_cliques SET columns = list_reverse(columns) WHERE clique = 1"),
    "a choice that was not made": ("budgets", "UPDATE privsql_cliques SET choice = '1/10' WHERE clique = 1"),
    "a cell less": ("tables", "DELETE FROM privsql_marginals WHERE clique = 1 AND cell = 3"),
    "a cell twice": ("tables", "INSERT INTO privsql_marginals VALUES (1, 3, 5)"),
    "a count": ("synthetic", "UPDATE privsql_marginals SET count = count + 900 WHERE clique = 3 AND cell < 90"),
    "no count": ("tables", "UPDATE privsql_marginals SET count = NULL WHERE clique = 1 AND cell = 0"),
    "a set's weight": ("synthetic", "UPDATE privsql_sets SET weight = weight + 7 WHERE len(goods) > 4"),
    "a set more": ("synthetic", "INSERT INTO privsql_sets VALUES ([9, 9], 4)"),
    "a set of other items": ("synthetic", "INSERT INTO privsql_sets VALUES ([777], 4)"),
    "an item renamed": ("", "UPDATE privsql_universe SET item = 77 WHERE code = 0"),
    "the items exchanged": ("", "UPDATE privsql_chosen SET item = CASE item WHEN 0 THEN 1 WHEN 1 THEN 0 ELSE item END"),
    "an item less": ("measured", "DELETE FROM privsql_chosen WHERE place = 9"),
    "counts of items": ("tables", "INSERT INTO privsql_items VALUES (0, 1, 1)"),
    "rows in another order": ("lie in order", BACKWARDS),
    "a fact": ("facts", with_facts(cells=7)),
    "an estimate": ("facts", with_facts(estimated_records=9000.0)),
    "a leak denied": ("facts", with_facts(universe_is_public=False)),
    "another noise": ("facts", with_facts(noise="opendp")),
    "a version of OpenDP": ("OpenDP", with_facts(opendp="99.1")),
    "a fact too many": ("valid release", with_facts(best_seller="ale")),
    "a missing table": ("stated tables", "DROP TABLE privsql_chosen"),
    "a table more": ("stated tables", "CREATE TABLE raw AS SELECT 1 AS goods"),
    "another algorithm": ("", stating("parameters", lambda asked: asked | {"algorithm": "diffpart"})),
    "a workload": ("tables and", stating("parameters", lambda asked: asked | {"workload": [["1", "2", "3"]]})),
    "a strange workload": ("", stating("parameters", lambda asked: asked | {"workload": [["ale"]]})),
    "no rows": ("", "DELETE FROM privsql_cliques"),
}  # fmt: skip


@pytest.mark.slow
@each("what", DAMAGE, few=2, soak="damage")
def test_damage_is_found(few: Path, tmp_path: Path, what: str) -> None:
    words, change = DAMAGE[what]
    release = changed(few / "stall.duckdb", tmp_path, change)
    done = not_verified(release)
    assert words in " ".join((done.out + done.err).split()), done.out
    asked_without_a_traceback(release, ("query", "--itemsets", "20"), ("query", "SELECT COUNT(*) FROM stall"))


CHOICES = {
    "the order of choice": "UPDATE privsql_chosen SET place = CASE place WHEN 0 THEN 1 WHEN 1 THEN 0 ELSE place END",
    "an item that was not chosen": "UPDATE privsql_chosen SET item = (SELECT min(item) FROM privsql_universe "
    "WHERE item NOT IN (SELECT item FROM privsql_chosen)) WHERE place = 5",
    "an item without a count": "DELETE FROM privsql_items WHERE code = 59",
    "an item with two counts": "INSERT INTO privsql_items VALUES (59, 0, 0)",
    "a count that is missing": "UPDATE privsql_items SET cut = NULL WHERE code = 3",
    "a count that would have been chosen": "UPDATE privsql_items SET whole = 7999 WHERE code = 59",
    "lengths that imply another cap": "UPDATE privsql_marginals SET count = 90000 WHERE clique = 0 AND cell = 2",
    "lengths counted twice": "INSERT INTO privsql_cliques SELECT 99, columns, budget, scale, choice "
    "FROM privsql_cliques WHERE clique = 0",
    "a cap": with_facts(cap=2),
    "what items spend": with_facts(items_budget="1/7"),
    "the noise of items": with_facts(items_scale=1.5),
}


@pytest.mark.slow
@each("what", CHOICES)
def test_damage_of_counts_is_found(many: Path, tmp_path: Path, what: str) -> None:
    not_verified(changed(many / "stall.duckdb", tmp_path, CHOICES[what]))
