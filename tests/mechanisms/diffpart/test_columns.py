"""Contingency tables: budgets along paths, exact likelihood ratios, taxonomies, and releases from the command line."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privsql.dp_random import OpenDPNoise, SeededNoise
from privsql.errors import InfeasibleError, UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.diffpart import growth
from privsql.mechanisms.diffpart.checks import find_violations
from privsql.mechanisms.diffpart.growth import PartitionedRecords, grow_tree, score_divisions
from privsql.mechanisms.diffpart.plan import expansion_shares
from privsql.mechanisms.diffpart.tree import (
    PartitionTree,
    Taxonomy,
    context_free_parents,
    make_columns_rule,
    make_taxonomy,
)
from privsql.mechanisms.marginals.domains import parse_taxonomy
from privsql.mechanisms.marginals.parameters import Contingency
from support.commands import manifest, refused, rows, run, succeeded, write
from support.enumeration import Enumeration, chi_square, worst_over
from support.loops import each
from support.tampering import asked_without_a_traceback, changed, not_verified, stating, with_facts
from support.town import ASKED, COLUMNS, PEOPLE, spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

Record = tuple[int, ...]


def asked(epsilon: object = 1, **options: Any) -> Contingency:
    return Contingency(algorithm="diffpart", epsilon=epsilon, domains={}, **options)


def joined(*parents: Sequence[int]) -> Taxonomy:
    """Taxonomies of several columns, each from the parents of its nodes."""
    sizes = [len(one) for one in parents]
    first = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    above = np.concatenate([np.asarray(one) for one in parents])
    return make_taxonomy(np.repeat(np.arange(len(sizes)), sizes), np.where(above < 0, -1, above + first), sets=False)


def table(records: Iterable[Record], taxonomy: Taxonomy) -> PartitionedRecords:
    """Records as numbers of values, counted."""
    found: dict[Record, int] = defaultdict(int)
    for record in records:
        found[record] += 1
    values = [taxonomy.values(column) for column in range(len(taxonomy.roots))]
    pairs = [(owner, int(values[c][v])) for owner, record in enumerate(found) for c, v in enumerate(record)]
    owners, nodes = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return PartitionedRecords.generalize(owners, nodes, np.array(list(found.values()), dtype=np.int64), taxonomy)


def violations(tree: PartitionTree, taxonomy: Taxonomy, request: Contingency) -> list[tuple[int, str]]:
    return list(find_violations(tree, taxonomy, make_columns_rule(request)))


UNEVEN = [3, 3, 4, 4, -1]  # values a, b below one group; c and the group below the root
PAIR = [2, 2, -1]
TINY = joined(UNEVEN, PAIR)


# Taxonomies and parameters --------------------------------------------------------------------------------------------


def test_an_uneven_taxonomy() -> None:
    assert TINY.height.tolist() == [0, 0, 0, 1, 2, 0, 0, 1]
    assert TINY.roots.tolist() == [4, 7]
    assert TINY.inner.tolist() == [0, 0, 0, 1, 2, 0, 0, 1]
    assert [TINY.children[a:b].tolist() for a, b in itertools.pairwise(TINY.starts)][4] == [2, 3]
    assert TINY.values(1).tolist() == [5, 6]


@given(st.integers(1, 200), st.integers(2, 9))
def test_a_context_free_taxonomy_groups_by_fan_out(values: int, fan_out: int) -> None:
    found = joined(context_free_parents(values, fan_out))
    assert found.values(0).tolist() == list(range(values))
    assert found.degree.max() <= fan_out
    assert found.height[found.roots[0]] == max(1, math.ceil(round(math.log(values, fan_out), 9)))


@each("parents", [[-1], [1, -1, -1], [1, 0], [2, 2, 1], [9, -1], []])
def test_what_is_no_taxonomy_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match=r"root|parent"):
        make_taxonomy(np.zeros(len(parents), dtype=np.int64), np.array(parents, dtype=np.int64), sets=False)


def test_a_stated_taxonomy() -> None:
    pairs = [("all", None), ("x", "all"), ("a", "x"), ("b", "x"), ("c", "all")]
    values, inner, parents = parse_taxonomy(pairs, "race")
    assert (values, inner) == (["a", "b", "c"], ["x", "all"])
    assert parents.tolist() == [5, 5, 6, 6, 6, 6, -1]  # the fourth is for all other values, the fifth for NULL


@each(
    ("pairs", "words"),
    [
        ([("a", "x"), ("b", "y")], "one root, above all others; it has 'x', 'y'"),
        ([("a", "b"), ("b", "a")], "one root"),
        ([("a", "b"), ("b", "a"), ("c", "d")], "cycle"),
        ([("a", "x"), ("a", "y"), ("x", "y")], "two parents"),
        ([], "it has none"),
        ([("a", None)], "one root"),
    ],
)
def test_pairs_that_make_no_tree_are_refused(pairs: list[tuple[str, str | None]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_taxonomy(pairs, "race")


@each("options", [{"choice": 1}, {"choice": 0}, {"fan_out": 1}, {"tau": 0}, {"c1": 1}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        asked(**options)


# Budgets --------------------------------------------------------------------------------------------------------------


def test_the_shares_of_an_expansion() -> None:
    request = make_columns_rule(asked(1, choice="1/4"))
    first = expansion_shares(request, Fraction(1, 2), 3, several=True)
    assert (first.choice, first.inner, first.rest) == (Fraction(1, 24), Fraction(1, 8), Fraction(1, 3))
    assert first.choice + first.leaf == 1
    last = expansion_shares(request, Fraction(1, 6), 1, several=False)
    assert (last.choice, last.leaf) == (0, Fraction(2, 3))


def totals(tree: PartitionTree) -> dict[int, Fraction]:
    """What choices and counts above and at every row have spent."""
    found = {0: Fraction(0)}
    for row in range(1, len(tree)):
        parent = int(tree.parent[row])
        choice = tree.budgets[tree.choice[parent]] if tree.choice[parent] >= 0 else 0
        found[row] = found[parent] + choice + tree.budgets[tree.spent[row]]
    return found


def random_tree(seed: int, request: Contingency, number: int = 400) -> tuple[PartitionTree, Taxonomy]:
    rng = seed_key(seed).random_generator("test")
    taxonomy = joined(UNEVEN, context_free_parents(7, 3), PAIR)
    records = zip(rng.binomial(2, 0.3, number), rng.binomial(6, 0.4, number), rng.integers(0, 2, number), strict=True)
    cells = table([tuple(map(int, record)) for record in records], taxonomy)
    return grow_tree(cells, taxonomy, make_columns_rule(request), SeededNoise(rng), rng), taxonomy


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 300), st.sampled_from(["0.7", "1/3", "2"]))
def test_every_path_spends_epsilon_on_choices_and_counts(seed: int, number: int, epsilon: str) -> None:
    request = asked(epsilon, tau=1, tau_cells=1)
    tree, taxonomy = random_tree(seed, request, number)
    assert violations(tree, taxonomy, request) == []
    spent = totals(tree)
    assert all(spent[row] == request.epsilon for row in np.flatnonzero(tree.leaf).tolist())
    assert all(spent[row] < request.epsilon for row in np.flatnonzero(~tree.leaf).tolist())


def test_a_budget_that_was_tampered_with_is_found() -> None:
    request = asked(1)
    tree, taxonomy = random_tree(1, request)
    assert violations(tree, taxonomy, request) == []
    more = replace(tree, budgets=tuple(budget * 2 for budget in tree.budgets))
    assert any("more than 1" in what for _, what in violations(more, taxonomy, request))
    free = replace(tree, choice=np.full(len(tree), -1))
    assert any("chose a column for 0" in what for _, what in violations(free, taxonomy, request))
    assert violations(tree, taxonomy, asked(1, choice="1/3"))
    elsewhere = replace(tree, next=np.where(tree.leaf, -1, 0))
    assert violations(elsewhere, taxonomy, request)


def test_too_many_partitions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LARGEST_TREE", 10)
    with pytest.raises(InfeasibleError, match="more than 10 partitions"):
        random_tree(1, asked(2))
    monkeypatch.setattr(growth, "LARGEST_ROUND", 1)
    with pytest.raises(InfeasibleError, match="would have to be counted"):
        random_tree(1, asked(2))


# Choices, and exact likelihood ratios ---------------------------------------------------------------------------------


def flipped(scores: Sequence[int], epsilon: float) -> list[float]:
    """Permute-and-flip: the probability of each place."""
    found, orders = [0.0] * len(scores), list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1 / len(orders)
        for place in order:
            taken = math.exp(epsilon * (scores[place] - max(scores)))
            found[place] += left * taken
            left *= 1 - taken
    return found


@pytest.mark.slow
@each("source", [OpenDPNoise, lambda: SeededNoise(np.random.default_rng(4))])
@each("scores", [[3, 5, 4], [0, 0, 0], [7, 7]])
def test_the_choice_is_permute_and_flip(source: Callable[[], Any], scores: list[int]) -> None:
    # false alarm 1e-6 each (chi_square)
    noise, epsilon = source(), Fraction(1, 2)
    drawn = [noise.choose_best(np.array(scores, dtype=np.int64), epsilon, monotonic=True) for _ in range(4_000)]
    chi_square(np.bincount(drawn, minlength=len(scores)).tolist(), np.array(flipped(scores, 0.5)))


def scored(score: str, counts: Sequence[int], children: int | None = None) -> int:
    """The score of one partition."""
    (found,) = score_divisions(
        score, np.array(counts), np.zeros(len(counts), dtype=np.int64), np.array([children or len(counts)])
    )
    return int(found)


def test_scores_of_a_division_are_those_of_their_formulas() -> None:
    counts = np.array([6, 2, 700, 100, 100])
    of, degree = np.array([0, 0, 1, 1, 1]), np.array([2, 4, 3])  # one child of the second is empty, the third has none
    assert score_divisions("max", counts, of, degree).tolist() == [6, 700, 0]
    assert score_divisions("gini", counts, of, degree).tolist() == [5, 566, 0]  # 40/8, 510,000/900
    entropy = -sum(share * math.log2(share) for share in (7 / 9, 1 / 9, 1 / 9))
    assert score_divisions("gain", counts, of, degree).tolist() == [0, math.floor((1800 - 900 * entropy) / 32), 0]
    assert scored("gini", [2**40, 2**40]) == 2**29  # of a partition 2^30 records are counted


@each("score", ["max", "gini", "gain"])
def test_a_record_changes_a_score_by_one_at_most(score: str) -> None:
    small = [list(one) for width in (1, 2, 3) for one in itertools.product(range(7), repeat=width)]
    draw = np.random.default_rng(3)
    large = [(2 ** draw.uniform(0, 31, draw.integers(1, 9))).astype(np.int64).tolist() for _ in range(500)]
    large += [[2**29, 0], [2**30, 0, 2**30], [0] * 4 + [2**27], [10**6] * 60 + [0]]
    changes = {
        scored(score, [*counts[:at], counts[at] + 1, *counts[at + 1 :]]) - scored(score, counts)
        for counts in (*small, *large)
        for at in range(len(counts))
    }
    assert changes == ({0, 1} if score == "max" else {-1, 0, 1})


class Choosing(Enumeration):
    """The enumeration, with choices; ``careless`` makes these spend many times their budget."""

    careless = 1

    def choose_best(self, scores: Any, epsilon: Fraction, *, monotonic: bool) -> int:
        return self._draw(flipped(scores.tolist(), float(epsilon) * self.careless / (1 if monotonic else 2)))


class Careless(Choosing):
    careless = 100


def law_of(records: Sequence[Record], most: int, noise: type[Choosing], score: str) -> dict[Any, float]:
    """Exact distribution of the published tree."""
    request = asked("1.5", choice="1/2", score=score, tau=1000, tau_cells=1000)  # all thresholds are 1
    cells, found, made = table(records, TINY), defaultdict(float), noise(most)

    def program() -> Any:
        tree = grow_tree(cells, TINY, make_columns_rule(request), made, made)
        return tuple(zip(*(getattr(tree, n).tolist() for n in ("parent", "branch", "next", "size")), strict=True))

    for result, chance in made.runs(program):
        found[result] += chance
    assert math.isclose(sum(found.values()), 1)
    return found


RECORDS = list(itertools.product(range(3), range(2)))


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param([()], marks=pytest.mark.slow),
        pytest.param(
            [(), *((record,) for record in RECORDS), (RECORDS[0], RECORDS[3])], marks=pytest.mark.soak(part="outputs")
        ),
    ],
)
@pytest.mark.parametrize(
    "score", ["max", *(pytest.param(one, marks=pytest.mark.soak(part="outputs")) for one in ("gini", "gain"))]
)
def test_no_output_is_more_likely_than_e_to_the_epsilon(tables: list[tuple[Record, ...]], score: str) -> None:
    worst = worst_over(tables, RECORDS, lambda records: law_of(records, 1, Choosing, score))
    assert math.exp(0.75) < worst <= math.exp(1.5) * (1 + 1e-9)


@pytest.mark.soak(part="outputs")
def test_the_enumeration_would_find_choices_that_spend_too_much() -> None:
    tables = [(RECORDS[0],), (RECORDS[0], RECORDS[3])]
    worst = worst_over(tables, RECORDS, lambda records: law_of(records, 1, Careless, "max"))
    assert worst > math.exp(1.5) * 1.5


# From the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def place(town: Path, tmp_path: Path) -> Path:
    """A copy of the folder."""
    return shutil.copytree(town, tmp_path / "place")


def truth(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as db:
        return db.execute(sql.replace("people", f"'{folder / 'people.parquet'}'")).fetchall()


@pytest.mark.slow
def test_a_release_holds_what_it_should_and_verifies(town: Path) -> None:
    release = town / "people.duckdb"
    assert succeeded("verify", release, "--source", town / "spec.toml", "--json").json["ok"]
    columns = rows(release, "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'cells'")
    assert columns == [
        ("part", "INTEGER"), ("sex", "VARCHAR"), ("region", "VARCHAR"), ("job", "INTEGER"), ("count", "BIGINT"),
    ]  # fmt: skip
    stated = manifest(release)
    assert (stated["records"], stated["published"], stated["suppressed"]) == (None, None, None)
    assert "9000" not in json.dumps(stated)
    assert abs(stated["facts"]["estimated_records"] - 9000) < 100
    assert abs(rows(release, "SELECT sum(weight) FROM people_weighted WHERE sex = 'F'")[0][0] - 3000) < 100
    shown = succeeded("verify", release, "--verbose").out
    assert "NOT private" in shown
    assert "columns" in shown


@pytest.mark.soak(part="long")
def test_noise_is_opendps_unless_there_is_a_seed(place: Path) -> None:
    succeeded("publish", place / "spec.toml", "--replace")
    assert manifest(place / "people.duckdb")["facts"]["noise"] == "opendp"
    assert succeeded("verify", place / "people.duckdb", "--source", place / "spec.toml", "--json").json["ok"]
    refused(run("publish", place / "spec.toml", "--replace", "--key-file", place / "key"), 2, "option key_file")


@pytest.mark.slow
def test_a_seed_repeats_a_release_and_parquet_holds_the_same(place: Path) -> None:
    other = spec(place, name="again.toml", release='name = "people"\nto = "again"\nformat = "parquet"')
    succeeded("publish", other, "--seed", 7)
    for name in ("cells", "privsql_tree", "privsql_taxonomy"):
        with duckdb.connect() as db:
            found = db.execute(f"FROM '{place / 'again' / name}.parquet'").fetchall()
        assert found == rows(place / "people.duckdb", f"FROM {name}")
    assert succeeded("verify", place / "again", "--json").json["ok"]
    assert succeeded("query", place / "again", "SELECT COUNT(*) FROM people", "--json").json["rows"]


@pytest.mark.slow
@each(
    "condition",
    ["TRUE", "sex = 'F'", "region IN ('north', 'east') AND NOT job < 4", "job = 4 OR (sex = 'M' AND job = 1)"],
)
def test_conditions_on_columns(town: Path, condition: str) -> None:
    query = f"SELECT COUNT(*) FROM people WHERE {condition}"
    shown = succeeded("query", town / "people.duckdb", query, "--json").json
    assert shown["confidence"] == 0.95
    (row,) = shown["rows"]
    exact = truth(town, query)[0][0]
    assert abs(row["estimate"] - exact) <= 0.05 * exact + 60
    assert row["low"] <= row["estimate"] <= row["high"]
    assert row["std_error"] > 0


def test_groups_with_order_and_limit(town: Path) -> None:
    query = "SELECT region, sex, COUNT(*) AS n FROM people WHERE job < 9 GROUP BY region, sex ORDER BY n DESC LIMIT 4"
    found = succeeded("query", town / "people.duckdb", query, "--json").json["rows"]
    exact = {row[:2]: row[2] for row in truth(town, query.replace("LIMIT 4", ""))}
    assert len(found) == 4
    assert all(abs(row["n"] - exact[row["region"], row["sex"]]) < 80 for row in found)
    assert [row["n"] for row in found] == sorted((row["n"] for row in found), reverse=True)


@pytest.mark.slow
def test_the_interval_is_that_of_the_noise(town: Path) -> None:
    release, condition = town / "people.duckdb", "sex = 'F' AND job < 4"
    (row,) = succeeded("query", release, f"SELECT COUNT(*) FROM people WHERE {condition}", "--json").json["rows"]
    scales = rows(release, f"SELECT c.count, t.scale FROM cells c JOIN privsql_tree t USING (part) WHERE {condition}")
    assert row["estimate"] == sum(count for count, _ in scales)
    variance = sum(1 / (2 * math.sinh(1 / scale / 2) ** 2) for _, scale in scales)
    assert row["std_error"] == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT SUM(job) FROM people", ["SUM and AVG are for quasi-identifiers"]),
        ("SELECT COUNT(*) FROM people WHERE age = 1", ["age", "it has sex, region, job"]),
        ("SELECT COUNT(*) FROM people WHERE md5(sex) = '1'", ["not supported"]),
        ("SELECT COUNT(*) FROM people JOIN other ON other.sex = people.sex", ["other"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(town: Path, query: str, words: list[str]) -> None:
    refused(run("query", town / "people.duckdb", query), 2, *words)


@pytest.mark.slow
def test_evaluation(town: Path) -> None:
    release, path = town / "people.duckdb", town / "spec.toml"
    flags = ("--workload", "random", "--queries", 40, "--seed", 1, "--json")
    found = succeeded("evaluate", release, "--source", path, *flags).json["reconstructed"]
    assert found["queries"] == 40
    assert found["median_relative_error"] < 0.2


@pytest.mark.slow
def test_plan_init_and_data_domains(place: Path) -> None:
    leaky = spec(
        place,
        mechanism='kind = "contingency"\nalgorithm = "diffpart"\nepsilon = 1\ndomains = { sex = "data" }',
        columns='categories = ["sex"]',
    )
    shown = succeeded("plan", leaky, "--json").json
    assert (shown["values"], shown["not_covered"], shown["first_choice"]) == (4, ["sex"], "0")
    toml = succeeded("init", place / "people.parquet", "--mechanism", "contingency").out
    (place / "proposed.toml").write_text(toml, encoding="utf-8")
    succeeded("publish", place / "proposed.toml", "--to", place / "proposed.duckdb")
    assert succeeded("verify", place / "proposed.duckdb", "--source", place / "proposed.toml", "--json").json["ok"]
    succeeded("publish", leaky, "--replace")
    assert manifest(place / "people.duckdb")["facts"]["not_covered"] == ["sex"]
    shown = succeeded("verify", place / "people.duckdb", "--verbose").out
    assert "not covered by the guarantee" in " ".join(shown.split())


@pytest.mark.slow
def test_a_ledger_adds_up_epsilons_and_caps_them(place: Path) -> None:
    path = place / "spec.toml"
    named = '[source]\nquery = "SELECT *, row_number() OVER () AS nr FROM source"\nid = "nr"\n'
    asked = path.read_text(encoding="utf-8").replace("[source]\n", named)
    path.write_text(f"{asked}\n[ledger]\nepsilon = 1.5\n", encoding="utf-8")
    succeeded("publish", path, "--replace")
    refused(run("publish", path, "--replace"), 3, "epsilon 1", "0.5 is left", "1.5")


DOMAINS = 'kind = "contingency"\nalgorithm = "diffpart"\nepsilon = 1\n[mechanism.domains]\n'


@pytest.mark.slow
@each(
    ("columns", "mechanism", "words"),
    [
        (COLUMNS, DOMAINS + 'sex = "data"\nregion = "data"', ["domains.job is missing"]),
        (COLUMNS, DOMAINS + 'sex = "data"\nregion = "data"\njob = "data"\nage = "data"', ["domains.age", "categories"]),
        ('categories = ["sex"]', DOMAINS + 'sex = ["F", "F"]', ["appears twice"]),
        ('categories = ["sex"]', DOMAINS + 'sex = { taxonomy = "SELECT 1 AS a" }', ["two columns"]),
        ('categories = ["sex"]', DOMAINS + 'sex = { taxonomy = "SELECT 1", data = true }', ["data"]),
        ('categories = ["sex"]', 'kind = "contingency"\nepsilon = 0\ndomains = { sex = "data" }', ["epsilon 0"]),
        ('categories = ["age"]', DOMAINS + 'age = "data"', ["'age' is not in the source"]),
        (
            'categories = ["sex"]\nquasi_identifiers = ["job"]',
            DOMAINS + 'sex = "data"',
            ["categories can't be combined"],
        ),
        ('categories = ["sex"]\nnulls = { sex = "refuse" }', DOMAINS + 'sex = "data"', ["suppress"]),
        ('categories = ["sex"]', 'threshold = "1/4"', ["kind = 'contingency'"]),
        ('quasi_identifiers = ["sex"]\nsensitive = "job"', DOMAINS + 'sex = "data"', ["columns.categories"]),
    ],
)
def test_a_wrong_specification_is_refused_in_one_line(
    place: Path, columns: str, mechanism: str, words: list[str]
) -> None:
    refused(run("publish", spec(place, columns=columns, mechanism=mechanism), "--replace"), 2, *words)


@pytest.mark.slow
def test_null_is_a_value_of_its_own_or_left_out(place: Path) -> None:
    write(
        place / "people.parquet", f"SELECT CASE WHEN job = 4 THEN NULL ELSE sex END AS sex, region, job FROM ({PEOPLE})"
    )
    succeeded("publish", spec(place), "--replace")
    assert succeeded("verify", place / "people.duckdb", "--source", place / "spec.toml", "--json").json["ok"]
    query = "SELECT COUNT(*) FROM people WHERE sex IS NULL"
    (row,) = succeeded("query", place / "people.duckdb", query, "--confidence", 0.9999, "--json").json["rows"]
    assert 0 < row["low"] <= truth(place, query)[0][0] <= row["high"]
    succeeded("publish", spec(place, columns=COLUMNS + '\nnulls = { sex = "suppress" }'), "--replace")
    assert manifest(place / "people.duckdb")["suppressed"] is None


LEAF = "(SELECT max(part) FROM privsql_tree WHERE node IS NULL)"
DAMAGE: dict[str, tuple[str, Any]] = {
    "a larger epsilon was spent": ("every path", stating("parameters", lambda asked: asked | {"epsilon": "1.5"})),
    "another share of choices": ("every path", stating("parameters", lambda asked: asked | {"choice": "1/3"})),
    "a budget": ("every path", "UPDATE privsql_tree SET budget = '5' WHERE part = 1"),
    "a choice": ("every path", "UPDATE privsql_tree SET choice = '1/7' WHERE part = 0"),
    "a choice denied": ("every path", "UPDATE privsql_tree SET choice = NULL WHERE part = 0"),
    "a scale": ("scales", "UPDATE privsql_tree SET scale = scale / 2 WHERE part = 2"),
    "a threshold": ("thresholds", "UPDATE privsql_tree SET threshold = threshold - 1 WHERE part = 1"),
    "a size below the threshold": ("thresholds", "UPDATE privsql_tree SET size = threshold - 1 WHERE part = 1"),
    "an expansion": ("", "UPDATE privsql_tree SET node = 0 WHERE part = 0"),
    "a branch": ("", "UPDATE privsql_tree SET branch = 99 WHERE part = 1"),
    "a parent that is not there": ("", "UPDATE privsql_tree SET parent = 99999 WHERE part = 2"),
    "a lost leaf": ("", f"DELETE FROM privsql_tree WHERE part = {LEAF}"),
    "a value renamed": ("", "UPDATE privsql_taxonomy SET value = 'X' WHERE value = 'F'"),
    "a taxonomy of another shape": ("", "UPDATE privsql_taxonomy SET parent = 0 WHERE node = 1"),
    "an unnamed group": ("taxonomies", "UPDATE privsql_taxonomy SET value = NULL WHERE value = 'side'"),
    "a count": ("counts", "UPDATE cells SET count = count + 1 WHERE job = 4 AND sex = 'F' AND region = 'north'"),
    "a cell's value": ("", f"UPDATE cells SET job = 10 - job WHERE part = {LEAF}"),
    "a cell of no part": ("", "INSERT INTO cells VALUES (99999, 'F', 'north', 1, 1)"),
    "rows in another order": ("lie in order", "CREATE OR REPLACE TABLE cells AS FROM cells ORDER BY job, sex"),
    "another noise": ("facts", with_facts(noise="opendp")),
    "a leak denied": ("facts", stating("parameters", lambda a: a | {"domains": a["domains"] | {"sex": "data"}})),
    "a number of records": ("facts", with_facts(estimated_records=5000)),
    "a version of OpenDP": ("OpenDP", with_facts(opendp="99.1")),
    "a fact of another kind": ("valid tree", with_facts(cells="many")),
    "a table more": ("stated tables", "CREATE TABLE raw AS SELECT 1 AS sex"),
    "no rows in the tree": ("", "DELETE FROM privsql_tree"),
    "a cell whose part is NULL": ("", f"UPDATE cells SET part = NULL WHERE part = {LEAF}"),
    "no count": ("counts", f"UPDATE cells SET count = NULL WHERE part = {LEAF}"),
    "no taxonomy": ("", "DELETE FROM privsql_taxonomy"),
    "NULL everywhere": ("", "UPDATE privsql_tree SET parent = NULL, branch = NULL, size = NULL, budget = NULL"),
    "a budget that is not a number": ("", "UPDATE privsql_tree SET budget = 'plenty' WHERE part = 1"),
}


@pytest.mark.slow
@each("what", DAMAGE, few=4, soak="damage")
def test_damage_is_found(town: Path, tmp_path: Path, what: str) -> None:
    words, change = DAMAGE[what]
    release = changed(town / "people.duckdb", tmp_path, change)
    done = not_verified(release)
    assert words.split()[0:1] == [] or words.split()[0] in " ".join((done.out + done.err).split())
    asked_without_a_traceback(release, ("query", "SELECT COUNT(*) FROM people"))


@pytest.mark.slow
def test_another_specification(place: Path) -> None:
    other = spec(place, mechanism=ASKED.format(epsilon=2), name="other.toml")
    assert run("verify", place / "people.duckdb", "--source", other).code == 1
