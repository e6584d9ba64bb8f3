"""What ``init`` proposes for sixteen tables that differ: roles, promise, and the error that it states."""

from __future__ import annotations

import functools
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import csv

import privsql
from first.tables import MADE
from privsql.errors import UsageError
from support.loops import slow_but

if TYPE_CHECKING:
    from pathlib import Path

SLOW = ("wide_texts",)
TABLES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MADE]
PEOPLE = ["age", "sex", "region"]
# By table the quasi-identifiers, what is asked by question, and the promise.
PUBLISHED = {
    "panel": PEOPLE,
    "loans": ["term", "home_ownership", "purpose", "zip_code", "addr_state"],
    "flag_with_null": PEOPLE,
    "two_even": [*PEOPLE, "school"],
    "three_even": PEOPLE,
    "many_causes": PEOPLE,
    "crashes": [*PEOPLE, "seat_position", "ratwgt"],
    "two_weights": [*PEOPLE, "height_cm", "wtint2yr"],
    "without_names": [],
    "unique_income": PEOPLE,
    "double_ids": ["birth_date", *PEOPLE],
    "wide_texts": PEOPLE,
    "wages": [*PEOPLE, "occupation"],
    "visits": PEOPLE,
}
ASKED = {
    "loans": {"measurements", "sensitive", "unknown"},
    "two_weights": {"measurements"},
    "without_names": {"unknown"},
    "unique_income": {"sensitive"},
    "wide_texts": {"unknown"},
}
PROMISED = dict.fromkeys(PUBLISHED, "tables") | {
    "crashes": "bucketize",
    "two_weights": "bucketize",
    "wages": "permute",
}


@functools.cache
def propose_text(name: str, **more: Any) -> str:
    """The text that is proposed for a table."""
    made = MADE[name]()
    return privsql.init(made.data, sensitive=made.sensitive, **more)


def propose(name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """The text that is proposed for a table, and what it says."""
    text = propose_text(name, **more)
    return text, tomllib.loads(text)


def test_all_tables_are_listed() -> None:
    assert set(PUBLISHED) | {"hospital_tests", "adverse_events"} == set(MADE)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in TABLES if getattr(one, "values", (one,))[0] in PUBLISHED])
def test_roles_and_promise(name: str) -> None:
    text, spec = propose(name)
    assert spec["columns"]["quasi_identifiers"] == PUBLISHED[name]
    assert spec["columns"]["sensitive"] == MADE[name]().sensitive
    kind = spec["mechanism"]["kind"]
    assert (spec["mechanism"]["algorithm"] if kind == "randomize" else kind) == PROMISED[name]
    asked = spec.get("decide", {})
    assert set(asked) - {"values"} == ASKED.get(name, set())
    assert ("values" in asked) == (PROMISED[name] == "tables")
    assert len(text) < 4000


@pytest.mark.parametrize(("name", "person"), [("hospital_tests", "patient_id"), ("adverse_events", "USUBJID")])
def test_a_value_that_changes_within_persons_is_a_set_of_values(name: str, person: str) -> None:
    text, spec = propose(name)
    assert spec["columns"] == {"record": person, "item": MADE[name]().sensitive}
    assert spec["mechanism"]["kind"] == "setvalued"
    assert f"changes within {person}" in text


def test_persons_with_a_constant_value_have_one_record_each() -> None:
    _, spec = propose("panel")
    assert spec["source"] == {"person": "pidp", "persons": "first", "order": "wave"}


def test_a_value_to_protect_that_does_not_occur_is_named() -> None:
    with pytest.raises(UsageError, match="'guilt' is no value of the sensitive column, did you mean 'guilty'"):
        propose("three_even", promise="bucketize", protect="guilt")


@pytest.mark.parametrize(
    "name", slow_but(("panel", "visits", "loans", "flag_with_null", "wages"), "visits", "flag_with_null")
)
def test_a_file_of_text_is_planned_as_proposed(tmp_path: Path, name: str) -> None:
    made = MADE[name]()
    csv.write_csv(made.data, tmp_path / "made.csv")
    text = privsql.init(tmp_path / "made.csv", sensitive=made.sensitive, accept=True)
    (tmp_path / "spec.toml").write_text(text)
    assert privsql.plan(tmp_path / "spec.toml") is not None


def test_a_packed_file_is_planned_as_proposed(tmp_path: Path) -> None:
    made = MADE["visits"]()
    with pa.CompressedOutputStream(tmp_path / "made.csv.gz", "gzip") as packed:
        csv.write_csv(made.data, packed)
    text = privsql.init(tmp_path / "made.csv.gz", sensitive=made.sensitive, accept=True)
    (tmp_path / "spec.toml").write_text(text)
    assert privsql.plan(tmp_path / "spec.toml") is not None


def test_what_may_harm_is_never_published_by_itself() -> None:
    for name in ("loans", "unique_income"):
        _, spec = propose(name)
        assert not {"grade", "income", "annual_inc"} & set(spec["columns"]["quasi_identifiers"])


def test_an_income_that_each_has_for_itself_is_no_id() -> None:
    _, spec = propose("unique_income")
    assert "source" not in spec
    assert spec["decide"]["sensitive"] == ["income"]


def test_a_double_is_no_id() -> None:
    text, spec = propose("double_ids")
    assert "source" not in spec
    assert "left out: id: " in text


def test_the_harmless_majority_is_free_and_the_others_are_bounded_together() -> None:
    text, spec = propose("many_causes", promise="bucketize")
    threshold = spec["mechanism"]["threshold"]
    assert threshold == {"default": "0.25", "none": "1"}
    assert spec["mechanism"]["groups"]["protected"]["threshold"] == "1/3"
    assert "Not protected: 'none' (72%)" in text


def test_named_values_are_protected_and_no_others() -> None:
    _, spec = propose("three_even", promise="bucketize", protect="guilty")
    assert spec["mechanism"]["threshold"] == {"default": "0.5", "dropped": "1", "settled": "1"}


def test_a_promise_that_no_bucket_keeps_is_refused_by_name() -> None:
    with pytest.raises(privsql.InfeasibleError, match="which 54% of the records have"):
        propose("two_even", promise="bucketize")


@pytest.mark.parametrize("name", ["without_names", "visits", "loans"])
def test_nothing_is_published_until_everything_is_decided(name: str) -> None:
    _, spec = propose(name)
    with pytest.raises(UsageError, match=r"\[decide\] asks about values"):
        privsql.build(spec, source=MADE[name]().data)


def test_the_cautious_answer_can_be_published() -> None:
    _, spec = propose("visits", accept=True)
    assert "decide" not in spec
    assert "0" in spec["mechanism"]["values"]
    privsql.plan(privsql.build(spec, source=MADE["visits"]().data))


def test_without_a_sensitive_column_the_likeliest_are_named() -> None:
    with pytest.raises(
        UsageError, match=r"columns.sensitive is missing; option sensitive names it, likely ones: income, offence"
    ):
        privsql.init(MADE["unique_income"]().data)


def test_a_column_of_lists_is_a_set_of_items() -> None:
    table = pa.table({"visitor": range(40), "pages": [[one % 5, one % 7] for one in range(40)]})
    spec = tomllib.loads(privsql.init(table))
    assert (spec["columns"], spec["mechanism"]["kind"]) == ({"items": "pages"}, "setvalued")


def test_explain_names_every_column() -> None:
    short, _ = propose("loans")
    text, spec = propose("loans", explain=True)
    assert len(spec["decide"]["measurements"]) > 40
    assert "--explain" in short
    assert "--explain" not in text


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("three_even", "bucketize"),
        pytest.param("many_causes", "bucketize", marks=pytest.mark.slow),
        pytest.param("loans", "bucketize", marks=pytest.mark.slow),
    ],
)
def test_a_count_errs_as_is_said(tmp_path: Path, name: str, promise: str) -> None:
    """The errors of counts without a fit, over several keys, in units of what the closed form says."""
    made = MADE[name]()
    text, spec = propose(name, promise=promise, accept=True)
    worst, percent = re.findall(r"of '([^']+)' a count of 500 is off by about (\d+)%", text)[0]
    stated = int(percent) / 100
    column = spec["columns"]["quasi_identifiers"][-1]
    sql = f"SELECT {column}, COUNT(*) FROM t WHERE {made.sensitive} = '{worst}' GROUP BY {column}"
    truth = made.data.group_by([column, made.sensitive]).aggregate([([], "count_all")]).to_pylist()
    true = {row[column]: row["count_all"] for row in truth if row[made.sensitive] == worst}
    squares = []
    for seed in range(4):
        spec |= {"ledger": {"off": True}, "release": {"name": "t", "to": str(tmp_path / f"{seed}.duckdb")}}
        privsql.publish(privsql.build(spec, source=made.data), seed=seed, allow_useless=True)
        for key, estimate, *_ in privsql.query(tmp_path / f"{seed}.duckdb", sql, estimator="linear").rows:
            if true.get(key, 0) >= 20:
                squares.append(((estimate - true[key]) / true[key]) ** 2 * true[key] / 500)
    error = (sum(squares) / len(squares)) ** 0.5
    assert error <= 1.42 * stated
    if name != "many_causes":  # its causes go with nothing, so that one takes the other's place for free
        assert error >= 0.56 * stated


def test_baskets_of_items_are_sets() -> None:
    table = pa.table({"basket": [one // 3 for one in range(900)], "item": [f"item {one % 7}" for one in range(900)]})
    spec = tomllib.loads(privsql.init(table, sensitive="item"))
    assert spec["columns"] == {"record": "basket", "item": "item"}
    assert "source" not in spec  # a basket may be anybody's


def test_a_promise_is_not_ignored_where_a_value_changes_within_persons() -> None:
    text, spec = propose("hospital_tests", promise="tables")
    assert spec["source"]["persons"] == "first"
    assert spec["mechanism"]["algorithm"] == "tables"
    assert "result changes within patient_id, and one record of each is published" in text


def test_the_column_of_persons_can_be_named() -> None:
    made = MADE["hospital_tests"]()
    named = made.data.rename_columns(["q1" if name == "patient_id" else name for name in made.data.column_names])
    spec = tomllib.loads(privsql.init(named, sensitive="result", set={"source": {"person": "Q1"}}))
    assert spec["source"]["person"] == "q1"
    with pytest.raises(UsageError, match=r"source\.person: column 'q2' is not in the source"):
        privsql.init(named, sensitive="result", set={"source": {"person": "q2"}})


def test_unique_numbers_of_patients_give_a_hint() -> None:
    table = MADE["visits"]().data.append_column("patient_id", pa.array(range(len(MADE["visits"]().data))))
    text = privsql.init(table, sensitive=MADE["visits"]().sensitive)
    assert '# person = "patient_id"  # if it names persons' in text
    named = privsql.init(table, sensitive=MADE["visits"]().sensitive, set={"source": {"person": "patient_id"}})
    assert tomllib.loads(named)["source"]["person"] == "patient_id"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["double_ids", "two_weights", "visits"])
def test_the_share_of_records_alone_is_that_of_the_release(tmp_path: Path, name: str) -> None:
    made = MADE[name]()
    text, spec = propose(name, accept=True)
    (share,) = re.findall(r"quasi-identifiers (\d+)% of the records are alone", text)
    spec |= {"ledger": {"off": True}, "release": {"name": "t", "to": str(tmp_path / "t.duckdb")}}
    done = privsql.publish(privsql.build(spec, source=made.data), seed=1, allow_useless=True)
    assert done.summary is not None
    figures = done.summary.lines["unique"].figures
    assert (figures["unique"] or 0) / (figures["records"] or 1) == pytest.approx(int(share) / 100, abs=0.006)
