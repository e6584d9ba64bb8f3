"""The contract of a mechanism: a sixth one is a package and a line, and nothing of it can be forgotten."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from privsql.attacks.suite import Suite
from privsql.engine import sqlfiles
from privsql.engine.sqlfiles import Field, Roles
from privsql.errors import UsageError
from privsql.mechanisms import registry
from privsql.mechanisms.contract import NEVER_EMPTY, BudgetComposition, GroupComposition, Mechanism, NoComposition
from privsql.mechanisms.registry import PACKAGES, get_mechanism, get_parameters
from privsql.model.manifest import QUASI, SENSITIVE, SETS, CheckedRelease, Manifest, ReleaseTable
from support.commands import manifest, refused, run, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = """
SELECT i AS id, 20 + i % 40 AS age, CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END AS sex,
  ['flu', 'cold', 'ulcer', 'asthma', 'angina'][1 + i * 7 % 5] AS disease
FROM range(600) t(i)
"""
TABLE = 'quasi_identifiers = ["age", "sex"]\nsensitive = "disease"'
CELLS = 'categories = ["sex", "disease"]'
DOMAINS = 'domains = { sex = ["f", "m"], disease = ["flu", "cold", "ulcer", "asthma", "angina"] }'
EXACT = {"records", "published", "suppressed", "fresh", "held_back"}


@pytest.fixture
def sixth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mechanisms more: one package and one line each."""
    monkeypatch.setitem(registry.PACKAGES, "slices", "support.slices")
    monkeypatch.setitem(registry.PACKAGES, "grid", "support.grid")


def specified(folder: Path, columns: str, mechanism: str, name: str = "sixth", ledger: str = "") -> Path:
    write(folder / "people.parquet", PEOPLE)
    release = f'[release]\nname = "people"\nto = "{name}.duckdb"'
    source = '[source]\nfile = "people.parquet"\nid = "id"'
    text = f"{source}\n[columns]\n{columns}\n{release}\n{ledger}\n[mechanism]\n{mechanism}\n"
    (folder / f"{name}.toml").write_text(text)
    return folder / f"{name}.toml"


def counts_stated(shown: Any) -> list[str]:
    """Exact numbers of records anywhere in an object."""
    if isinstance(shown, dict):
        own = [key for key, value in shown.items() if key in EXACT and value is not None]
        return own + [key for value in shown.values() for key in counts_stated(value)]
    return [key for value in shown for key in counts_stated(value)] if isinstance(shown, list) else []


@pytest.mark.slow
@pytest.mark.usefixtures("sixth")
def test_a_sixth_mechanism_for_tables_is_known_to_every_verb(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE)
    proposed = succeeded("init", tmp_path / "people.parquet", "--kind", "slices").out
    assert 'kind = "slices"' in proposed
    spec = specified(tmp_path, TABLE, 'kind = "slices"\nthreshold = "1/4"')
    release = tmp_path / "sixth.duckdb"
    assert succeeded("plan", spec, "--json").json["mechanism"] == "slices"
    shown = succeeded("publish", spec, "--json").json
    assert (shown["mechanism"], shown["records"]) == ("slices", 600)
    assert succeeded("verify", release, "--source", spec, "--json").json["ok"]
    rows = succeeded("query", release, "SELECT COUNT(*) FROM people WHERE disease = 'flu'", "--json").json["rows"]
    assert rows[0]["estimate"] == pytest.approx(120, abs=1)
    assert succeeded("evaluate", release, "--source", spec, "--queries", 12, "--json").json["linear"]["queries"]
    attacked = succeeded("attack", release, "--json").json
    assert attacked["ok"]
    assert attacked["measured"] > 3
    assert "slices" in succeeded("inspect", release).out
    assert '"Slices"' in succeeded("schema").out


@pytest.mark.soak(part="long")
@pytest.mark.usefixtures("sixth")
def test_a_sixth_private_mechanism_states_no_count_and_spends_a_budget(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE)
    assert 'kind = "grid"' in succeeded("init", tmp_path / "people.parquet", "--kind", "grid").out
    ledger = '[ledger]\ndatabase = "grid.ledger.duckdb"\nepsilon = "1.5"'
    asked = f'kind = "grid"\nepsilon = "1"\n{DOMAINS}'
    spec, more = (specified(tmp_path, CELLS, asked, name, ledger) for name in ("first", "second"))
    assert counts_stated(succeeded("plan", spec, "--json").json) == []
    assert counts_stated(succeeded("publish", spec, "--json").json) == []
    release = tmp_path / "first.duckdb"
    stated = manifest(release)
    assert counts_stated(stated) == []
    assert succeeded("verify", release, "--source", spec, "--json").json["ok"]
    succeeded("query", release, "SELECT COUNT(*) FROM people WHERE sex = 'f'", "--json")
    random = ("--workload", "random", "--queries", 4, "--attributes", 1)
    assert succeeded("evaluate", release, "--source", spec, *random, "--json").json["reconstructed"]["queries"] == 4
    assert succeeded("attack", release, "--json").json["measured"] == 1
    refused(run("publish", more), 3, "0.5 is left", "1.5")
    listed = succeeded("ledger", spec, "--json").json
    assert len(listed["releases"]) == 1
    assert counts_stated(listed) == []
    assert '"Grid"' in succeeded("schema").out


@pytest.mark.usefixtures("sixth")
def test_columns_of_another_shape_name_the_mechanisms_that_fit(tmp_path: Path) -> None:
    spec = specified(tmp_path, CELLS, 'threshold = "1/4"')
    refused(run("publish", spec), 2, "do not fit", "kind = 'contingency' or 'grid'")


def members(kind: str) -> dict[str, Any]:
    whole = get_mechanism(kind)
    return {member.name: getattr(whole, member.name) for member in fields(whole)}


@pytest.mark.parametrize("kind", PACKAGES)
def test_no_member_can_be_forgotten(kind: str) -> None:
    given = members(kind)
    assert type(get_mechanism(kind))(**given) == get_mechanism(kind)
    for name in given:
        with pytest.raises(TypeError, match=name):
            Mechanism(**{other: value for other, value in given.items() if other != name})
        if name != "parameters":
            with pytest.raises(TypeError, match=name):
                replace(get_mechanism(kind), **{name: None})


@pytest.mark.parametrize("name", NEVER_EMPTY)
def test_a_member_that_must_not_be_empty_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"'randomize' lacks {name}$"):
        replace(get_mechanism("randomize"), **{name: ()})


def test_a_suite_without_an_adversary_is_refused() -> None:
    with pytest.raises(TypeError, match="'setvalued' lacks adversaries"):
        replace(get_mechanism("setvalued"), adversaries=Suite(adversaries=()))


@pytest.mark.parametrize("kind", PACKAGES)
def test_checks_bounds_and_adversaries_have_no_default(kind: str) -> None:
    given = members(kind)
    for name in ("checks", "source_checks", "adversaries", "structure", "advice"):
        with pytest.raises(TypeError, match=name):
            type(get_mechanism(kind))(**{other: value for other, value in given.items() if other != name})


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


@pytest.mark.soak(part="long")
@pytest.mark.usefixtures("sixth")
def test_a_sixth_mechanism_is_reported_as_any_other(tmp_path: Path) -> None:
    table = specified(tmp_path, TABLE, 'kind = "slices"\nthreshold = "1/4"', "table")
    cells = specified(tmp_path, CELLS, f'kind = "grid"\nepsilon = "1"\n{DOMAINS}', "cells")
    for spec in (table, cells):
        succeeded("publish", spec, "--allow-composition")  # exact counts beside private ones of the same people
        shown = succeeded("report", spec.with_suffix(".duckdb"), "--to", tmp_path / "page.html", "--json").json
        assert shown["ok"]
        assert shown["structure"][0]["rows"]
        assert shown["promised"]
        assert counts_stated(shown) == [] or spec is table


def test_what_is_registered_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.PACKAGES, "other", PACKAGES["permute"])
    with pytest.raises(TypeError, match="registered as 'other' and calls itself 'permute'"):
        get_mechanism("other")
    with pytest.raises(UsageError, match="unheard"):
        get_mechanism("unheard")
    with pytest.raises(UsageError, match="unheard"):
        get_parameters("unheard")


def test_what_composes_by_budget_states_no_count() -> None:
    for kind in PACKAGES:
        mechanism = get_mechanism(kind)
        assert isinstance(mechanism.composition, NoComposition | GroupComposition | BudgetComposition)
        assert mechanism.states_counts == (not isinstance(mechanism.composition, BudgetComposition))
        assert isinstance(mechanism.adversaries, Suite)
        assert mechanism.advice
