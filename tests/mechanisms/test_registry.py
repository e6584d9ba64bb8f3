"""The registry and the base class: every algorithm has its mechanism, and one more is a folder and a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import duckdb
import pytest

from privsql.engine import sqlfiles
from privsql.engine.sqlfiles import Field, Roles
from privsql.errors import UsageError
from privsql.mechanisms import registry
from privsql.mechanisms.base import BudgetComposition, CategoricalShape, ItemSetShape, Mechanism, TableShape
from privsql.mechanisms.dp.mechanism import PrivateMechanism
from privsql.mechanisms.registry import KINDS, get_default_mechanism, get_mechanism, get_parameters
from privsql.model.checks import CheckedRelease
from privsql.model.manifest import Manifest
from privsql.model.tables import QUASI, SENSITIVE, SETS, ReleaseTable
from support.commands import manifest, refused, run, succeeded, write
from support.loops import rest_slow
from support.shelf import altered

if TYPE_CHECKING:
    from pathlib import Path

# The registry ---------------------------------------------------------------------------------------------------------

SHAPES = (TableShape, ItemSetShape, CategoricalShape)
ALGORITHMS = [
    (kind, algorithm)
    for kind in KINDS
    for algorithm in get_args(get_parameters(kind).model_fields["algorithm"].annotation)
]


@pytest.mark.parametrize(("kind", "algorithm"), ALGORITHMS)
def test_every_algorithm_has_a_mechanism(kind: str, algorithm: str) -> None:
    mechanism = get_mechanism(kind, algorithm)
    assert mechanism.kind == kind
    assert algorithm in mechanism.algorithms
    assert mechanism.parameters is get_parameters(kind)
    assert mechanism.parameters.model_fields["kind"].default == kind
    stated = {name: getattr(mechanism, name) for name in Mechanism.__annotations__}
    assert all(stated[name] for name in ("algorithms", "layout", "advice"))
    assert [isinstance(mechanism.shape, one) for one in SHAPES] == [
        isinstance(get_default_mechanism(kind).shape, one) for one in SHAPES
    ]
    assert mechanism.states_counts == (
        not isinstance(mechanism.composition, BudgetComposition) or mechanism.composition.unit == "value"
    )
    assert mechanism.adversaries()


def test_no_mechanism_has_an_algorithm_that_nobody_can_ask_for() -> None:
    listed = [(kind, one) for kind, classes in KINDS.items() for many in classes.values() for one in many]
    assert sorted(listed) == sorted(ALGORITHMS)


def test_what_is_registered_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "other", KINDS["permute"])
    with pytest.raises(TypeError, match=r"registered as 'other' with nested, .* and calls itself 'permute'"):
        get_mechanism("other", "nested")
    for wrong in ("unheard", "nested"):
        with pytest.raises(UsageError, match=f"algorithm '{wrong}' is not one of pp, up"):
            get_mechanism("randomize", wrong)
    for look_up in (get_default_mechanism, get_parameters):
        with pytest.raises(UsageError, match="mechanism 'unheard' is not one of bucketize"):
            look_up("unheard")


@pytest.mark.parametrize("kind", rest_slow(KINDS))
def test_a_release_by_an_algorithm_that_nobody_has_is_none(shelf: Path, tmp_path: Path, kind: str) -> None:
    stated = """UPDATE privsql_manifest SET value = '"unheard"' WHERE key = 'algorithm'"""
    release = altered(shelf, tmp_path, stated, name=kind)
    refused(run("verify", release), 4, "is not a release of privsql: algorithm 'unheard' is not one of")


# The base class -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(Mechanism.__abstractmethods__))
def test_no_method_can_be_forgotten(name: str) -> None:
    """Checks and adversaries are never inherited, not even by private mechanisms."""
    body = {other: None for other in Mechanism.__abstractmethods__ - {name}}
    with pytest.raises(TypeError, match=f"abstract method {name}"):
        type("Forgetful", (Mechanism,), body)()


def test_checks_and_adversaries_are_never_inherited() -> None:
    assert {"checks", "long_checks", "source_checks", "adversaries"} <= PrivateMechanism.__abstractmethods__


def test_columns_of_a_table_give_way_to_those_of_the_publisher() -> None:
    roles = Roles((Field("bid", "DATE"),), (Field("Code", "VARCHAR"), Field("n", "INTEGER")))
    table = ReleaseTable(("code INTEGER", SENSITIVE, "bid BIGINT"))
    placed = [("code", "code_", "INTEGER"), ("s0", "Code", "VARCHAR"), ("s1", "n", "INTEGER"), ("bid", "bid", "BIGINT")]
    assert table.place_columns(roles) == placed
    assert table.list_reserved(roles) == [placed[0], placed[3]]
    assert ReleaseTable((QUASI, "bid DECIMAL(38,0)")).list_reserved(roles) == [("bid", "bid_", "DECIMAL(38,0)")]
    inside = 'SELECT "code_" AS "code", "Code" AS "s0", "n" AS "s1", "bid" AS "bid" FROM "st"'
    assert table.select_inside(roles, sqlfiles.table("st")).sql() == inside


def test_item_sets_have_the_types_of_their_column() -> None:
    roles = Roles((), (Field("goods", "VARCHAR[]"),))
    placed = [("items", "goods", "VARCHAR[]"), ("item", "item", "VARCHAR")]
    assert ReleaseTable((SETS, "item ITEM")).place_columns(roles) == placed
    named = Roles((), (Field("Count", "INTEGER[]"),))
    placed = [("items", "Count", "INTEGER[]"), ("count", "count_", "BIGINT")]
    assert ReleaseTable((SETS, "count BIGINT")).place_columns(named) == placed
    assert ReleaseTable((SETS, "count BIGINT")).list_reserved(named) == placed[1:]


def test_holes_of_a_check_are_filled_by_their_names() -> None:
    stated = Manifest.model_construct(quasi_identifiers=[Field("age", "INTEGER")], sensitive=[Field("ill", "VARCHAR")])
    nothing: Any = None
    release = CheckedRelease[Any, Any](nothing, stated, nothing, nothing, None, {})
    query = release.fill_query("verify/dealt_true", same_value="st v").sql()
    for part in ('"privsql_v_qit"', '"privsql_v_values" AS v', 'st."s0" IS NOT DISTINCT FROM v."s0"'):
        assert part in query
    outside = release.fill_query("verify/outside_domain", sa=release.roles.sa_columns("p"), same_value="p c").sql()
    assert 'p."s0"' in outside


# One more mechanism ---------------------------------------------------------------------------------------------------

PEOPLE = """
SELECT i AS id, CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END AS sex,
  ['flu', 'cold', 'ulcer', 'asthma', 'angina'][1 + i * 7 % 5] AS disease
FROM range(600) t(i)
"""
EXACT = {"records", "published", "suppressed", "fresh", "held_back"}


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the mechanisms of the folder ``support.totals``, in a line."""
    classes = {"support.totals.mechanism.ExactTotals": ("exact",), "support.totals.mechanism.NoisyTotals": ("noisy",)}
    monkeypatch.setitem(registry.KINDS, "totals", classes)


def specified(folder: Path, mechanism: str, name: str = "totals", ledger: str = "") -> Path:
    write(folder / "people.parquet", PEOPLE)
    source = '[source]\nfile = "people.parquet"\nid = "id"\n[columns]\ncategories = ["sex", "disease"]'
    release = f'[release]\nname = "people"\nto = "{name}.duckdb"\n{ledger}'
    domains = '[mechanism.domains]\nsex = "data"\ndisease = "data"'
    (folder / f"{name}.toml").write_text(f'{source}\n{release}\n[mechanism]\nkind = "totals"\n{mechanism}\n{domains}\n')
    return folder / f"{name}.toml"


def counts_stated(shown: Any) -> list[str]:
    """Exact numbers of records anywhere in an object."""
    if isinstance(shown, dict):
        own = [key for key, value in shown.items() if key in EXACT and value is not None]
        return own + [key for value in shown.values() for key in counts_stated(value)]
    return [key for value in shown for key in counts_stated(value)] if isinstance(shown, list) else []


@pytest.mark.slow
@pytest.mark.usefixtures("totals")
def test_one_more_mechanism_is_published_verified_queried_and_attacked(tmp_path: Path) -> None:
    spec, release = specified(tmp_path, "least = 40"), tmp_path / "totals.duckdb"
    assert succeeded("plan", spec, "--json").json["smallest"] == 40
    shown = succeeded("publish", spec, "--json").json
    assert (shown["mechanism"], shown["records"], shown["totals"]) == ("totals", 600, 10)
    assert succeeded("verify", release, "--source", spec, "--json").json["ok"]
    found = succeeded("query", release, "SELECT sex, COUNT(*) FROM people GROUP BY sex", "--json").json
    assert found["rests_on"] == "exact"
    assert [(one["sex"], one["low"], one["estimate"], one["high"]) for one in found["rows"]] == [
        ("f", 200, 200, 200),
        ("m", 400, 400, 400),
    ]
    attacked = succeeded("attack", release, "--json").json
    assert attacked["verdict"].startswith("every promise holds (1 promised, 1 measured, 1 kept)")
    assert attacked["adversaries"][1]["mean"] == pytest.approx(80 / 600)
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE totals SET records = 3 WHERE disease = 'flu' AND sex = 'f'")
    assert run("verify", release).code == 1
    assert run("attack", release, "--json").json["verdict"].startswith("A PROMISE IS BROKEN")


@pytest.mark.slow
@pytest.mark.usefixtures("totals")
def test_one_more_mechanism_is_known_to_every_other_verb(tmp_path: Path) -> None:
    spec, release = specified(tmp_path, "least = 40"), tmp_path / "totals.duckdb"
    assert 'kind = "totals"' in succeeded("init", tmp_path / "people.parquet", "--mechanism", "totals").out
    assert '"Totals"' in succeeded("init", "--schema").out
    refused(
        run("plan", specified(tmp_path, "least = 41", "large")), 3, "a total has 40 records", "lower mechanism.least"
    )
    succeeded("publish", spec)
    assert "totals, exact" in succeeded("verify", release, "--verbose").out
    random = ("--workload", "random", "--queries", 4, "--attributes", 1)
    assert succeeded("evaluate", release, "--source", spec, *random, "--json").json["reconstructed"]["queries"] == 4
    shown = succeeded("report", release, "--to", tmp_path / "page.html", "--json").json
    assert shown["ok"]
    assert shown["structure"][0]["rows"]
    assert shown["promised"]
    other = tmp_path / "tables.toml"
    other.write_text(spec.read_text().split("[mechanism]")[0] + '[mechanism]\nthreshold = "1/4"\n')
    refused(run("publish", other), 2, "do not fit", "kind = 'contingency' or 'totals'")


@pytest.mark.slow
@pytest.mark.usefixtures("totals")
def test_one_more_private_mechanism_states_no_count_and_spends_a_budget(tmp_path: Path) -> None:
    ledger = '[ledger]\ndatabase = "totals.ledger.duckdb"\nepsilon = "1.5"'
    asked = 'algorithm = "noisy"\nepsilon = "1"'
    spec, more = (specified(tmp_path, asked, name, ledger) for name in ("first", "second"))
    assert counts_stated(succeeded("plan", spec, "--json").json) == []
    assert counts_stated(succeeded("publish", spec, "--json").json) == []
    release = tmp_path / "first.duckdb"
    assert counts_stated(manifest(release)) == []
    assert succeeded("verify", release, "--source", spec, "--json").json["ok"]
    (row,) = succeeded("query", release, "SELECT COUNT(*) FROM people WHERE sex = 'f'", "--json").json["rows"]
    assert row["low"] < row["estimate"] < row["high"]
    assert succeeded("attack", release, "--json").json["measured"] == 1
    refused(run("publish", more), 3, "0.5 is left", "1.5")
    listed = succeeded("ledger", spec, "--json").json
    assert len(listed["releases"]) == 1
    assert counts_stated(listed) == []
