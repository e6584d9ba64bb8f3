"""One record more, whatever it holds, changes no exit code, no message and no schema of a private release."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privsql
from privsql.engine.open import open_engine
from privsql.engine.progress import Options
from privsql.engine.sqlfiles import all_rows, table
from privsql.errors import PrivsqlError, UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.registry import get_mechanism
from privsql.source.records import prepare_records
from privsql.source.spec import build
from support.effort import share

if TYPE_CHECKING:
    from pathlib import Path

CELLS = pa.schema(
    [("person", pa.string()), ("sex", pa.string()), ("job", pa.int32()), ("pay", pa.float64()), ("day", pa.date32())]
)
LISTS = pa.schema([("person", pa.string()), ("goods", pa.list_(pa.string()))])
ITEMS = pa.schema([("id", pa.int64()), ("good", pa.string())])
CELL = st.fixed_dictionaries(
    {
        "person": st.sampled_from(["ann", "bob", None]),
        "sex": st.sampled_from(["F", "M", "other", "other_", "x", "", None]),
        "job": st.sampled_from([1, 2, 99, -(2**31), None]),
        "pay": st.sampled_from([0.0, 7.5, 20.0, -1.0, 1e300, float("nan"), float("inf"), float("-inf"), None]),
        "day": st.sampled_from([date(2020, 1, 1), date(1, 1, 1), date(9999, 12, 31), None]),
    }
)
GOODS = st.one_of(st.none(), st.lists(st.sampled_from(["ale", "figs", "arsenic", "", None]), max_size=4))
LIST = st.fixed_dictionaries({"person": st.sampled_from(["ann", "bob", None]), "goods": GOODS})
ITEM = st.fixed_dictionaries(
    {"id": st.sampled_from([1, 2, 3, None]), "good": st.sampled_from(["ale", "figs", "arsenic", None])}
)
DOMAINS = {"sex": ["F", "M", "other"], "job": ["1", "2"], "pay": {"bins": ["0", "10", "20"]}, "day": ["2020-01-01"]}
PLAIN = {name: values for name, values in DOMAINS.items() if name != "pay"}
CELLS_OF: dict[str, Any] = {"kind": "contingency", "algorithm": "diffpart"}
VIEWS: dict[str, Any] = {"kind": "setvalued", "universe": ["ale", "figs"]}
CASES: dict[str, tuple[pa.Schema, Any, dict[str, Any], dict[str, Any]]] = {
    "marginals": (CELLS, CELL, {"categories": [*DOMAINS]}, {"kind": "contingency", "domains": DOMAINS}),
    "cells": (CELLS, CELL, {"categories": [*PLAIN]}, CELLS_OF | {"domains": PLAIN}),
    "views": (LISTS, LIST, {"items": "goods"}, VIEWS),
    "sets": (LISTS, LIST, {"items": "goods"}, VIEWS | {"algorithm": "diffpart"}),
    "basic": (LISTS, LIST, {"items": "goods"}, VIEWS | {"algorithm": "basic"}),
    "items": (ITEMS, ITEM, {"record": "id", "item": "good"}, VIEWS),
}  # fmt: skip
PUBLIC = {
    "marginals": ["privsql_domains"],
    "cells": ["privsql_taxonomy"],
    "views": ["privsql_universe"],
    "items": ["privsql_universe"],
}  # tables without noise


def asked(case: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """A request to publish some records, with a column of persons where there is one."""
    schema, _, columns, mechanism = CASES[case]
    source: dict[str, Any] = {"frame": pa.Table.from_pylist(records, schema=schema)}
    if "person" in schema.names:
        source |= {"person": "person", "persons": "one"}
    more = {"epsilon": 1, "allow_empty": True}
    return {"source": source, "columns": columns, "release": {"name": "r"}, "mechanism": mechanism | more}


def observed(case: str, records: list[dict[str, Any]], folder: Path) -> Any:
    """Everything about a plan and a release that no noise is in; or what it is refused with."""
    with open_engine(folder, Options()) as db:
        try:
            spec = build(asked(case, records))
            source, mechanism = prepare_records(db, spec), get_mechanism(spec.mechanism.kind)
            plan = mechanism.plan(db, source, spec.mechanism).as_json()
            db.create_database("release")
            facts = mechanism.publish(db, source, spec.mechanism, seed_key(1)).as_json()
        except PrivsqlError as error:
            return type(error), str(error)
        made = db.run_select("SELECT table_name FROM duckdb_tables() WHERE database_name = 'release' ORDER BY 1")
        held = [row[0] for row in made]
        fields = {name: db.list_fields(table(name, "release")) for name in held}
        public = [name for name in held if name in PUBLIC.get(case, ())]
        rows = {name: db.rows(all_rows(table(name, "release"))) for name in public}
        return plan, sorted(facts), fields, rows, source.roles, source.labels if "universe" in plan else None


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=share(60) // 4, deadline=None, database=None)
@given(data=st.data())
def test_a_record_more_changes_nothing_but_noise(
    case: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = CASES[case][1]
    records = data.draw(st.lists(record, max_size=3))
    folder = tmp_path_factory.mktemp("spill")
    before, after = (observed(case, some, folder) for some in (records, [*records, data.draw(record)]))
    assert before == after
    assert len(before) > 2, before


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=5, deadline=None, database=None)
@given(data=st.data())
def test_manifest_and_exit_stay(case: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    record = CASES[case][1]
    records = data.draw(st.lists(record, max_size=3))
    folder = tmp_path_factory.mktemp("release")
    stated = []
    for number, some in enumerate((records, [*records, data.draw(record)])):
        spec = asked(case, some) | {
            "ledger": {"off": True},
            "release": {"name": "r", "to": str(folder / f"{number}.duckdb")},
        }
        made = privsql.publish(spec, seed=1)
        with privsql.open(made) as opened:
            manifest = opened.manifest.model_dump(mode="json")
        stated.append((sorted(manifest.pop("facts")), manifest, sorted(made.facts)))
    assert stated[0] == stated[1]


def test_what_refuses_by_one_record_is_refused_beforehand() -> None:
    for more, words in (({"persons": "refuse"}, "persons = 'one'"), ({"persons": None}, "persons = 'one'")):
        request = asked("marginals", [])
        request["source"] |= more
        with pytest.raises(UsageError, match=words):
            build(request)
    request = asked("views", [])
    with pytest.raises(UsageError, match="NULL tells of one record"):
        build(request | {"columns": {"items": "goods", "nulls": {"goods": "refuse"}}})
