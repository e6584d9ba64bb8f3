"""Python's verbs and the command line's: the same names, flags and defaults; and what callers may hand over."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import typer.main

import privsql
from privsql import UsageError, Workload
from privsql.answers.answer import Answer
from privsql.calls import as_exact_data, as_path, as_printed
from privsql.cli.app import app
from privsql.engine.database import RunKeywords
from privsql.model.checks import CheckResult
from privsql.releases.opened import read_manifest
from privsql.source.keywords import SETTINGS
from privsql.verbs.evaluate import EvaluationKeywords
from privsql.verbs.publish import PUBLISH_KEYWORDS
from privsql.verbs.verify import Verified
from support.commands import PEOPLE, fetched
from support.loops import each
from support.places import ROOT
from support.typed import FILE, write_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COMMAND: Any = typer.main.get_command(app)
TYPED = {one.__name__: set(one.__annotations__) for one in (RunKeywords, EvaluationKeywords)} | {
    one.name: {
        part.target.id for part in one.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    for one in ast.parse(FILE.read_text(encoding="utf-8")).body
    if isinstance(one, ast.ClassDef)
}
TYPED["Publishing"] |= TYPED["Planning"]
ELSEWHERE = {  # flags without a keyword, and what stands for them; for --json results have as_json()
    "help": "help(privsql.publish)",
    "version": "privsql.__version__",
    "query --explain": "Answer.sql and Answer.formula",
    "query --as_csv": "Answer.frame().to_csv()",
    "plan --algorithms": "privsql.algorithms",
    "plan --curve": "privsql.curve",
    "plan --verbose": "Published.lines",
    "publish --verbose": "Published.lines",
    "verify --verbose": "Verified.checks, Verified.recomputed",
    "plan --plot": "Curve.plot()",
    "plan --changed": "Published.changes",
    "evaluate --plot": "Evaluated.plot()",
    "evaluate --points": "Evaluated.points()",
    "attack --plot": "Attacked.plot()",
    "init --output": "pathlib.Path(..).write_text(privsql.init(.., base=folder))",
}


def commands(group: Any = COMMAND) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command)
        else:
            yield ("ledger" if name in ("list", "show") else name), command


def keywords(verb: Callable[..., Any]) -> dict[str, Any]:
    """The keywords of a verb with their defaults; those that are typed elsewhere have none."""
    found: dict[str, Any] = {}
    for name, one in inspect.signature(verb).parameters.items():
        if one.kind is one.VAR_KEYWORD:
            found |= dict.fromkeys(TYPED[one.annotation.removeprefix("Unpack[").removesuffix("]")], one.empty)
        else:
            found[name] = one.default
    return found


@pytest.mark.parametrize("name", dict(commands()))
def test_every_flag_has_a_keyword_with_the_same_default(name: str) -> None:
    command, found = dict(commands())[name], keywords(getattr(privsql, name))
    drawn = {one.name: one.default for one in fields(Workload)} | {"workload": None}
    for param in command.get_params(command.make_context(name, ["--help"], resilient_parsing=True)):
        if param.param_type_name != "option" or "--json" in param.opts or param.name in ELSEWHERE:
            continue
        if f"{name} --{param.name}" in ELSEWHERE:
            assert param.name not in found
            continue
        assert param.name in found, f"{name} has no keyword {param.name}"
        given = found[param.name]
        if given is inspect.Parameter.empty:
            given = drawn.get(param.name) if name == "evaluate" else None
        if param.default not in (None, False, "equality") and not param.required:
            assert given == param.default, param.name


def test_the_typed_keywords_are_those_of_the_models(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("regenerate"):
        FILE.write_text(write_types(), encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == write_types()
    assert TYPED["Planning"] == {*SETTINGS} | TYPED["RunKeywords"]
    assert TYPED["Publishing"] == TYPED["Planning"] | set(PUBLISH_KEYWORDS)
    workload = {one.name for one in fields(Workload)} - {"kind", "file"}
    assert TYPED["EvaluationKeywords"] == workload | TYPED["RunKeywords"]


def test_every_verb_is_public_and_says_what_it_raises() -> None:
    for name in privsql.__all__:
        assert inspect.getdoc(getattr(privsql, name)), name
    assert set(dict(commands())) <= set(privsql.__all__)
    errors = [one for one in privsql.__all__ if one.endswith("Error")]
    assert len(errors) == 5
    assert all(issubclass(getattr(privsql, one), privsql.PrivsqlError) for one in errors)


@pytest.mark.slow
def test_keywords_and_tables_are_typed(tmp_path: Path) -> None:
    """By a strict mypy: what is meant passes, a keyword that is written wrong does not."""
    program = tmp_path / "program.py"
    program.write_text(TYPED_PROGRAM, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        str(program),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(wrong) == 2, done.stdout + done.stderr
    assert 'Unexpected keyword argument "treshold" for "plan"' in wrong[0]
    assert 'Extra key "pears" for TypedDict "MechanismKeys"' in wrong[1]


TYPED_PROGRAM = """
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pyarrow as pa

import privsql

df = pd.DataFrame({"a": [1]})
done = privsql.publish(df, sensitive="a", qi=["b"], threshold=0.1, to="x.duckdb", threads=2)
privsql.publish(pa.table({"a": [1]}), sensitive="a", threshold=Fraction(1, 3), seed=1, replace=True)
privsql.plan(Path("x.csv"), sensitive=["a"], mechanism="permute", set={"source": {"options": {"encoding": "latin-1"}}})
privsql.verify("x.duckdb", source=df)
privsql.verify(done, done.spec)
privsql.evaluate(done, df, workload="random", queries=3)
privsql.attack(done, against="y.duckdb", progress=True)
both: int = len(privsql.evaluate({"a": "a.toml", "b": {"source": df}}).refused)
ratio: float = privsql.attack(source="s.toml", differential=("a", "b"), epsilon="1/10").epsilon
sets: list[tuple[list[str], float]] = privsql.query("x.duckdb", itemsets=20).rows
frame: pd.DataFrame = privsql.open("x").sql(privsql.init(df))
privsql.plan(df, treshold=3)
privsql.plan(df, set={"mechanism": {"tau": "1/4", "pears": "all"}})
"""


# Numbers --------------------------------------------------------------------------------------------------------------


@each(
    ("given", "expected"),
    [
        (0.1, Decimal("0.1")),
        (np.float64(0.1), Decimal("0.1")),
        (np.float32(0.1), Decimal("0.1")),
        (np.int64(3), 3),
        (1e-7, Decimal("1E-7")),
        (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.10"), Decimal("0.10")),
        ("8*f + 0.02", "8*f + 0.02"),
        (True, True),
        (None, None),
    ],
    few=10,
)
def test_a_float_is_the_decimal_that_it_prints(given: Any, expected: Any) -> None:
    assert as_printed(given) == expected
    assert as_exact_data({"a": [given]}) == {"a": [expected]}


def test_arrays_become_lists() -> None:
    assert as_exact_data({"a": np.array([0.5, 0.1]), "b": pd.Index(["x"])}) == {
        "a": [Decimal("0.5"), Decimal("0.1")],
        "b": ["x"],
    }
    assert as_exact_data({"a": {"sex", "age", "zip"}}) == {"a": ["age", "sex", "zip"]}


def test_whole_numbers_that_are_keys_are_texts() -> None:
    assert as_exact_data({"threshold": {"default": 0.5, 3: 0.25}}) == {
        "threshold": {"default": Decimal("0.5"), "3": Decimal("0.25")}
    }


@each("given", [float("nan"), float("inf"), -np.inf, Decimal("nan")])
def test_no_number_is_refused_by_its_key(given: Any) -> None:
    with pytest.raises(UsageError, match=r"threshold: .* is not a number"):
        as_exact_data({"mechanism": {"threshold": given}})


# What may be handed over ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    return pd.DataFrame(fetched(PEOPLE.format(n=400)), columns=["age", "sex", "zip", "disease"])


BOTH = {"source": "x.csv", "columns": {"quasi_identifiers": ["a"], "sensitive": "b"}, "mechanism": {"threshold": "2/5"}}
COLUMNS = {"quasi_identifiers": ["age", "sex"], "sensitive": "disease"}
GIVEN: dict[str, Any] = {"qi": ["age", "sex"], "sensitive": "disease"}


@each("threshold", [0.4, "0.4", "2/5", Decimal("0.4"), Fraction(2, 5), {"default": 0.4}, np.float32(0.4)], few=7)
def test_one_threshold_in_any_writing_is_one_specification(people: pd.DataFrame, threshold: Any) -> None:
    spec = privsql.build({"source": people, "columns": COLUMNS, "mechanism": {"threshold": threshold}})
    assert spec.mechanism == privsql.build(BOTH).mechanism


@pytest.mark.slow
def test_a_specification_is_a_path_data_a_spec_or_keywords(people: pd.DataFrame, tmp_path: Path) -> None:
    people.to_parquet(tmp_path / "people.parquet")
    (tmp_path / "s.toml").write_text(
        '[source]\nfile = "people.parquet"\n[columns]\nquasi_identifiers = ["age", "sex"]\nsensitive = "disease"\n'
        "[mechanism]\nthreshold = 0.4\n",
        encoding="utf-8",
    )
    file, toml = tmp_path / "people.parquet", tmp_path / "s.toml"
    data = {"columns": COLUMNS, "mechanism": {"threshold": 0.4}}
    plans = [
        privsql.plan(toml),
        privsql.plan(str(toml)),
        privsql.plan(privsql.load(toml)),
        privsql.plan(file, threshold=0.4, **GIVEN),
        privsql.plan(str(file), set={"mechanism": {"threshold": 0.4}}, **GIVEN),
        privsql.plan({"source": {"file": file}, **data}),
        privsql.plan({"source": file, **data}),
        privsql.plan({"source": people, **data}),
        privsql.plan(people, threshold=0.4, algorithm="optimal", **GIVEN),
    ]
    assert len({repr(one.facts) for one in plans}) == 1


@each(
    ("wrong", "words"),
    [
        ({"treshold": 0.4}, "plan has no keyword 'treshold'; did you mean 'threshold'?"),
        ({"threshold": 0.4, "zzz": 1}, "plan has no keyword 'zzz'; it has "),
        ({"threshold": 0.4, "seed": 1}, "plan has no keyword 'seed', because it writes nothing; use publish"),
        ({}, "so mechanism.threshold is needed"),
        ({"threshold": 1.4}, "mechanism.threshold: threshold 1.4 lies outside"),
        ({"threshold": [0.1]}, "is not an exact number"),
        ({"threshold": 0.4, "k": 3}, "mechanism.k: this mechanism has no such key; it is one of permute"),
        ({"threshold": 0.4, "mechanism": 3}, "mechanism.kind: '3' is not one of 'bucketize'"),
        ({"threshold": 0.4, "set": 3}, "set: int is not a table of sections"),
        ({"threshold": 0.4, "set": {"mechanism": {"threshold": 0.4}}}, "mechanism.threshold is given twice"),
        ({"threshold": 0.4, "set": {"mechanism": {"layuot": "lumps"}}}, "mechanism.layuot: there is no such key, did"),
        ({"threshold": 0.4, "set": {"mechanism": {"items": "a"}}}, "did you mean columns.items?"),
        ({"threshold": 0.4, "set": {"rho1": "1/3"}}, "rho1: there is no such key, did you mean mechanism.rho1?"),
        ({"threshold": 0.4, "set": {"mechanism": "up"}}, "mechanism: must be a table"),
        ({"threshold": 0.4, "threads": 0}, "threads 0 must be at least 1"),
        ({"threshold": 0.4, "threads": "4"}, "threads: '4' is not a whole number"),
        ({"threshold": 0.4, "options": 3}, "options: int is not a privsql.Options"),
        (
            {"threshold": 0.4, "set": {"mechanism": {"min_bucket_size": 2.5}}},
            "mechanism.min_bucket_size: must be a whole",
        ),
        ({"threshold": 0.4, "to": 7}, "release.to"),
    ],
)
def test_wrong_keywords_are_one_line(people: pd.DataFrame, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        privsql.plan(people, **GIVEN, **wrong)
    assert words in str(caught.value)
    assert "pydantic" not in str(caught.value)


@each(
    "call",
    [
        lambda spec, release: privsql.publish(spec, threshold=0.5),
        lambda spec, release: privsql.publish(spec, seed=1, key_file="k"),
        lambda spec, release: privsql.publish(spec, seed=1.5),
        lambda spec, release: privsql.attack(release, seed="1"),
        lambda spec, release: privsql.publish(spec, key="secret"),
        lambda spec, release: privsql.verify(release, sauce=spec),
        lambda spec, release: privsql.verify(7),
        lambda spec, release: privsql.attack(release, against=[7]),
        lambda spec, release: privsql.attack(release, against=7),
        lambda spec, release: privsql.open(release, attach=pd.DataFrame({"age": [1]})),
        lambda spec, release: privsql.open(release, attach={"age": "ages.csv"}),
        lambda spec, release: privsql.evaluate(release, spec, "random", selectivity=7),
        lambda spec, release: privsql.evaluate(release, spec, query=3),
        lambda spec, release: privsql.evaluate(release, spec, queries="three"),
        lambda spec, release: privsql.query(release, itemsets="x"),
        lambda spec, release: privsql.query(release, "SELECT COUNT(*) FROM ill", confidence="much"),
        lambda spec, release: privsql.attack(source=spec, differential=("age > 1", "disease = 'flu'"), epsilon=0),
        lambda spec, release: privsql.attack(source=spec, differential=("age > 1", "disease = 'flu'"), epsilon="x"),
        lambda spec, release: privsql.query(release),
        lambda spec, release: privsql.export(release),
        lambda spec, release: privsql.evaluate(release),
        lambda spec, release: privsql.evaluate([spec], "random"),
        lambda spec, release: privsql.attack(),
        lambda spec, release: privsql.build([1]),
        lambda spec, release: privsql.Spec(source=1),
        lambda spec, release: privsql.plan(None),
        lambda spec, release: privsql.cap(spec, float("nan")),
        lambda spec, release: privsql.evaluate([spec], queries="many", zzz=1),
        lambda spec, release: privsql.evaluate(str(spec)),
        lambda spec, release: privsql.evaluate(privsql.load(spec)),
        lambda spec, release: privsql.evaluate(None),
        lambda spec, release: privsql.evaluate(pd.DataFrame({"age": [1]})),
        lambda spec, release: privsql.evaluate({"source": "x.csv", "mechanism": {"threshold": 0.5}}),
    ],
    few=28,
)
def test_every_mistake_is_one_of_privsql(ward: Path, call: Callable[[Any, Any], object]) -> None:
    with pytest.raises(UsageError) as caught:
        call(ward / "spec.toml", ward / "ill.duckdb")
    assert "\n" not in str(caught.value)


@each(
    ("call", "near"),
    [
        (lambda release: privsql.verify(release, sorce="x"), "verify has no keyword 'sorce'; did you mean 'source'?"),
        (lambda release: privsql.attack(release, sead=1), "did you mean 'seed'?"),
        (lambda release: privsql.evaluate(release, release, confidenc=1), "did you mean 'confidence'?"),
        (lambda release: privsql.evaluate([release], gird=1), "did you mean 'grid'?"),
        (lambda release: privsql.publish(release, replac=True), "did you mean 'replace'?"),
    ],
    few=5,
)
def test_the_nearest_keyword_may_be_one_of_the_verb_s_own(ward: Path, call: Any, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        call(ward / "ill.duckdb")
    assert near in str(caught.value)


def test_an_outcome_is_true_where_every_check_holds() -> None:
    holds, fails = (Verified([CheckResult("one", number, (), "")], [], None) for number in (0, 1))  # type: ignore[arg-type]
    assert (bool(holds), bool(fails)) == (True, False)


def test_a_wave_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else what was published to ~/people.duckdb can't be opened there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path("~/people.duckdb") == tmp_path / "people.duckdb"
    asked = {"columns": COLUMNS, "mechanism": {"threshold": 0.4}}
    assert privsql.build(asked, source="~/people.csv").source.file == str(tmp_path / "people.csv")
    assert str(as_path("~nobody-is-called-so/x")) == "~nobody-is-called-so/x"
    with pytest.raises(privsql.EngineError, match=str(tmp_path)):
        privsql.open("~/people.duckdb")


@pytest.mark.slow
def test_paths_may_be_texts_everywhere(ward: Path) -> None:
    release, spec = str(ward / "ill.duckdb"), str(ward / "spec.toml")
    assert read_manifest(release).name == "ill"
    assert privsql.verify(release, spec).ok
    assert privsql.query(release, "SELECT COUNT(*) FROM ill").rows[0][0] == 400


@pytest.mark.slow
def test_paths_may_be_texts_in_what_takes_longer(ward: Path) -> None:
    release, spec = str(ward / "ill.duckdb"), str(ward / "spec.toml")
    assert privsql.attack(release).findings
    assert privsql.evaluate(release, spec, "random", queries=3, seed=2).scores
    found = privsql.evaluate({"a": spec, "b": privsql.load(spec)}, queries=3)
    assert [one.name for one in found] == ["a", "b"]
    assert found[0].evaluated.as_json() == found[1].evaluated.as_json()
    asked = ("sex = 'F'", "disease = 'flu'")
    assert privsql.attack(source=spec, differential=asked, epsilon=Fraction(1, 10)).epsilon == 0.1


# A release ------------------------------------------------------------------------------------------------------------

SQL = "SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY sex ORDER BY sex"


@pytest.mark.slow
def test_answers_are_tables_of_every_library(ward: Path) -> None:
    with privsql.open(str(ward / "ill.duckdb")) as release:
        answer, frame = release.query(SQL), release.sql(SQL)
    assert isinstance(frame, pd.DataFrame)
    assert answer.arrow().to_pylist() == frame.to_dict("records")
    assert [tuple(row) for row in frame.itertuples(index=False)] == answer.rows
    polars = pytest.importorskip("polars")
    assert answer.polars().rows() == polars.DataFrame(answer).rows() == answer.rows


def test_an_open_release_stands_for_its_path_and_a_closed_one_answers_nothing(ward: Path) -> None:
    with privsql.open(ward / "ill.duckdb") as release:
        assert read_manifest(release) == release.manifest
    release.close()
    for ask in (lambda: release.sql(SQL), lambda: release.list_values("sex"), release.structure):
        with pytest.raises(UsageError, match="was closed; open it again"):
            ask()


@each(
    ("values", "kind"),
    [
        ((2**64 - 1, None), "uint64"),
        ((2**63, -1), "string"),
        ((2**70,), "string"),
        ((1, "a"), "string"),
        ((1,), "int64"),
    ],
    few=5,
)
def test_a_column_of_an_answer_has_the_type_of_all_its_values(values: tuple[Any, ...], kind: str) -> None:
    answer = Answer(("a",), [(value,) for value in values], (), 0.95, "baseline", ())
    assert str(answer.arrow().schema.field("a").type) == kind
    assert list(map(str, answer.arrow()["a"].to_pylist())) == list(map(str, values))


def test_without_polars_there_is_a_line(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(privsql.EngineError, match="polars is not installed"):
        privsql.query(ward / "ill.duckdb", SQL).polars()


@pytest.mark.slow
def test_eight_threads_share_one_release(ward: Path) -> None:
    asked = [SQL.replace("'flu'", f"'{name}'") for name in ("flu", "cold", "HIV", "asthma")] * 8
    with privsql.open(ward / "ill.duckdb") as release:
        alone = [release.query(sql).rows for sql in asked[:4]] * 8
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda sql: release.query(sql).rows, asked))
    assert found == alone


def test_a_plan_is_no_release(people: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match="this is a plan"):
        privsql.open(privsql.plan(people, threshold=0.4, **GIVEN))
