"""Flags follow from the models of a specification: all of them are there, and say what a file would say."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path
from typing import Any, Literal

import pytest
import typer
from pydantic import Field

from privsql import load
from privsql.cli import commands
from privsql.cli.app import app
from privsql.cli.printing import spell_keywords
from privsql.errors import UsageError
from privsql.mechanisms import registry
from privsql.model.parameters import Parameters
from privsql.source import keywords
from privsql.source.places import Source
from privsql.source.spec import Columns, Ledger, ReleaseSection
from support.commands import PEOPLE, ROLES, refused, run, specification, succeeded, write
from support.places import ROOT

CONTRACT = {  # the flags that there were before they followed from the models
    "publish": "sensitive qi table query name algorithm threshold nulls min-bucket-size max-bucket-size format to "
    "key-file seed replace allow-composition memory-limit threads json",
    "plan": "sensitive qi table query algorithm threshold nulls min-bucket-size max-bucket-size memory-limit threads "
    "json",
}
BASKETS = "SELECT list_filter(['ale', 'figs'], lambda good, k: (i + k) % (k + 1) = 0) AS goods FROM range(40) t(i)"
TABLE = 'quasi_identifiers = ["age", "sex", "zip"]\nsensitive = "disease"'
SAME = {  # columns and mechanism in TOML, and as flags
    "bucketize": (
        f"{TABLE}\nnulls = {{ zip = 'suppress', age = 'refuse' }}",
        'algorithm = "two-size"\nthreshold = "8*f + 0.02"\nmin_bucket_size = 3',
        [*ROLES, "--nulls", "zip=suppress", "--nulls", "age=refuse", "--algorithm", "two-size",
         "--threshold", "8*f + 0.02", "--min-bucket-size", "3"],
    ),
    "exceptions": (
        TABLE,
        'threshold = { default = 0.3, HIV = "1/20" }',
        [*ROLES, "--threshold", "{ default = 0.3, HIV = '1/20' }"],
    ),
    "fakes": (
        TABLE,
        "threshold = 0.25\nfake_values = 2\nexclude_negative = true",
        [*ROLES, "--threshold", "0.25", "--fake-values", "2", "--exclude-negative"],
    ),
    "randomize": (
        TABLE,
        'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/13"\nrho2 = 0.2',
        [*ROLES, "--kind", "randomize", "--algorithm", "up", "--rho1", "1/13", "--rho2", "0.2"],
    ),
    "permute": (
        'quasi_identifiers = ["age"]\nsensitive = "zip"',
        'kind = "permute"\nk = 5\ne = "30 days"',
        ["--qi", " age,", "--sensitive", "zip", "--kind", "permute", "--k", "5", "--e", "30 days"],
    ),
    "setvalued": (
        'items = "goods"',
        (
            'kind = "setvalued"\nepsilon = 0.5\nuniverse = ["ale", "figs"]\nalgorithm = "diffpart"'
            "\ntau = 3\n[ledger]\nepsilon = 2.5"
        ),
        ["--items", "goods", "--kind", "setvalued", "--epsilon", "0.5", "--universe", '["ale", "figs"]',
         "--algorithm", "diffpart", "--tau", "3", "--ledger-epsilon", "2.5"],
    ),
    "views": (
        'items = "goods"',
        'kind = "setvalued"\nepsilon = 1\nuniverse = ["ale", "figs"]\nworkload = [["ale", "figs"], ["ale"]]',
        ["--items", "goods", "--kind", "setvalued", "--epsilon", "1", "--universe", '["ale", "figs"]',
         "--workload", '[["ale", "figs"], ["ale"]]'],
    ),
    "contingency": (
        'categories = ["sex", "disease"]',
        'kind = "contingency"\nepsilon = 1\ndomains = { sex = ["F", "M"], disease = "data" }\nmax_cells = 3000',
        ["--categories", "sex,disease", "--kind", "contingency", "--epsilon", "1", "--domains", 'sex=["F", "M"]',
         "--domains", "disease=data", "--max-cells", "3000"],
    ),
}  # fmt: skip


def given(command: str, *arguments: str) -> dict[str, Any]:
    """What a command line says of the flags of the models."""
    group: Any = typer.main.get_command(app)
    with group.make_context("privsql", [command, *arguments]) as outer:
        verb = group.get_command(outer, command)
        with verb.make_context(command, list(arguments), parent=outer) as context:
            return {name: context.params[name] for name in keywords.list_flags() if name in context.params}


def spelled(command: str) -> set[str]:
    """Every option that the whole help of a command lists."""
    words = succeeded(command, "--help-all").out.replace(",", " ").split()
    return {word for word in words if word.startswith("--")}


@pytest.mark.parametrize("command", CONTRACT)
def test_every_key_is_a_flag_beside_those_that_there_were(command: str) -> None:
    keys = {*(Source.model_fields | Columns.model_fields)} - {
        "database",
        "file",
        "postgres",
        "mysql",
        "ducklake",
        "frame",  # a table in Python has no place on a command line
        "quasi_identifiers",
        "name",
    }
    keys |= {f"ledger_{key}" for key in Ledger.model_fields}
    keys |= {key for kind in registry.KINDS for key in registry.get_parameters(kind).model_fields}
    if command == "publish":
        keys |= {field.alias or key for key, field in ReleaseSection.model_fields.items()}
    missing = {"--" + key.replace("_", "-") for key in keys} | {f"--{name}" for name in CONTRACT[command].split()}
    assert missing - spelled(command) == set()


def test_no_two_options_of_a_command_share_a_name() -> None:
    own = set(inspect.signature(commands.publish).parameters) - {"ctx", "as_json"} | {"json", "help"}
    assert own == set(keywords.TAKEN)
    assert own & keywords.list_flags().keys() == set()
    names = [flag.spelling for flag in keywords.list_flags().values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", SAME)
def test_flags_say_what_a_file_says(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, mechanism, arguments = SAME[case]
    monkeypatch.chdir(tmp_path)
    file = specification(tmp_path, columns=columns, mechanism=mechanism, release='name = "ill"\nto = "ill.duckdb"')
    found = keywords.spec_from_flags(tmp_path / "people.parquet", given("publish", "x", *arguments, "--name", "ill"))
    wanted = load(file)
    assert found.model_copy(update={"release": wanted.release}) == wanted
    assert found.release.name == "ill"


@pytest.mark.slow
def test_other_mechanisms_publish_from_flags(tmp_path: Path) -> None:
    people, baskets = write(tmp_path / "p.parquet", PEOPLE.format(n=200)), write(tmp_path / "b.parquet", BASKETS)
    flagged = ["--qi", "age,sex", "--sensitive", "zip", "--kind", "permute", "--k", "3", "--e", "10"]
    done = succeeded("publish", people, *flagged, "--to", tmp_path / "zip.duckdb", "--json").json
    assert (done["mechanism"], done["published"]) == ("permute", 200)
    sets = ["--items", "goods", "--kind", "setvalued", "--epsilon", "1", "--universe", "data"]
    assert (
        succeeded("publish", baskets, *sets, "--to", tmp_path / "b.duckdb", "--json").json["mechanism"] == "setvalued"
    )


def test_an_algorithm_of_one_mechanism_implies_it(tmp_path: Path) -> None:
    people = write(tmp_path / "people.parquet", PEOPLE.format(n=40))
    flags = [*ROLES, "--algorithm", "up", "--rho1", "1/3", "--rho2", "2/3", "--ledger-off"]
    assert succeeded("plan", people, *flags, "--json").json["mechanism"] == "randomize"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "permute", *ROLES, "--e", "3"], ["--k is needed"]),
        (["--algorithm", "nested", *ROLES, "--e", "3"], ["--k is needed"]),
        (["--algorithm", "diffpart", "--epsilon", "1"], ["setvalued and contingency; choose one with --kind"]),
        (["--kind", "randomize", *ROLES, "--rho1", "0.1"], ["rho2 is missing; give both"]),
        (["--kind", "setvalued", "--epsilon", "1", "--universe", "data"], ["--items is needed"]),
        (["--kind", "contingency", "--epsilon", "1"], ["--categories is needed"]),
        (["--kind", "setvalued", "--record", "r", "--item", "i", "--epsilon", "1"], ["--universe is needed"]),
        (["--kind", "permute", "--categories", "sex", "--k", "3", "--e", "3"], ["do not fit"]),
        ([*ROLES, "--threshold", "0.5", "--k", "5"], ["--k ", "bucketize", "permute"]),
        ([*ROLES, "--threshold", "0.5", "--epsilon", "1"], ["--epsilon", "randomize, setvalued or contingency"]),
        ([*ROLES, "--threshold", "0.5", "--kind", "noise"], ["--kind", "'noise'", "permute"]),
        ([*ROLES, "--threshold", ""], ["--threshold is needed"]),
        (["--qi", ",", "--sensitive", "disease", "--threshold", "0.5"], ["--qi is needed"]),
        ([*ROLES, "--threshold", "0.5\n[release]\nname = 'x'"], ["threshold"]),
        ([*ROLES, "--threshold", "[" * 20_000], ["threshold"]),
        ([*ROLES, "--threshold", "0.5", "--fake-values", "many"], ["--fake-values", "must be a whole number"]),
    ],
)
def test_what_flags_can_not_say_is_refused(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    people = write(tmp_path / "people.parquet", PEOPLE.format(n=40))
    refused(run("plan", people, *arguments), 2, *words)


def test_no_flag_of_the_source_goes_with_a_file(tmp_path: Path) -> None:
    file = specification(tmp_path)
    values: dict[str, Any] = {"switch": False, "names": "x", "pairs": ["x=1"], "one": "1"}
    for flag in keywords.list_flags().values():
        if flag.section != "source":
            continue
        with pytest.raises(UsageError) as error:
            keywords.spec_from_flags(file, {flag.name: values[flag.form]})
        text = keywords.spell_as_flags(spell_keywords(str(error.value)))
        assert text.startswith(f"{flag.spelling} can't be combined with"), flag.name
    moved = keywords.spec_from_flags(
        file, {"to": str(tmp_path / "r"), "format": "parquet", "name": None, "domains": ()}
    )
    assert (moved.target.path, moved.format) == (tmp_path / "r", "parquet")
    kept = keywords.spec_from_flags(file, {"ledger_database": "own.db"})
    assert kept.ledger == Ledger(database=Path("own.db"))
    file.write_text(file.read_text(encoding="utf-8") + "[ledger]\noff = true\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"^ledger_database=\.\.: the specification says ledger\.off"):
        keywords.spec_from_flags(file, {"ledger_database": "own.db"})


class Odd(Parameters):
    """A mechanism whose parameters are called like flags that there are."""

    kind: Literal["odd"] = "odd"
    algorithm: Literal["only"] = "only"
    query: str
    seed: int = Field(default=7, description="Where to begin.")


def test_a_parameter_may_be_called_like_another_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "odd", {"nowhere.Odd": ("only",)})
    known = registry.get_parameters
    monkeypatch.setattr(keywords, "get_parameters", lambda kind: Odd if kind == "odd" else known(kind))
    found = keywords.list_flags()
    assert found["mechanism_query"].spelling == "--mechanism-query"
    assert found["mechanism_seed"].fields.keys() == {"odd"}
    assert found["query"].section == "source"
    assert found["mechanism_seed"].help == "Where to begin. [default: 7]"
    assert "odd: only. [default: only]" in found["algorithm"].help


@pytest.mark.slow
def test_a_source_may_be_its_file_alone(ward: Path) -> None:
    """As in Python; what is neither a table nor a specification is a line."""
    release = ward / "ill.duckdb"
    assert succeeded("verify", release, "--source", ward / "people.parquet", "--json").json["ok"]
    refused(run("verify", release, "--source", release), 4, "is no text in UTF-8, as the TOML of a specification is")


@pytest.mark.soak(part="long")
def test_a_source_may_be_its_file_alone_for_every_verb_that_compares(ward: Path, tmp_path: Path) -> None:
    release, page = ward / "ill.duckdb", ["--to", tmp_path / "ill.html"]
    for verb, *more in (["evaluate", "--queries", 4], ["attack"], ["report", *page]):
        found = [
            succeeded(verb, release, *more, "--source", ward / file).out for file in ("people.parquet", "spec.toml")
        ]
        assert found[0] == found[1]


def test_the_flags_that_the_page_on_papers_gives_beside_a_file_are_read(shelf: Path) -> None:
    """Every ``publish`` and ``plan`` of that page, over a specification of the section's mechanism."""
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    sections = dict(zip(("bucketize", "randomize", "permute", "setvalued"), page.split("\n## ")[1:], strict=False))
    read = 0
    for name, section in sections.items():
        for verb, words in re.findall(r"`privsql (publish|plan) P([^`]*)`", section):
            of_a_table = "--kind" in words  # where the specification of the section is of item sets
            keywords.spec_from_flags(
                shelf / f"{'contingency' if of_a_table else name}.toml", given(verb, "P", *shlex.split(words))
            )
            read += 1
    assert read >= 15


def test_errors_name_keywords_and_the_command_line_spells_them() -> None:
    """Python's errors name no flag; each keyword that they mark is one that the command line turns into a flag."""
    raised = [
        (path, text.value)
        for path in (ROOT / "privsql").rglob("*.py")
        if path.parent.name != "cli"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise)
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    assert [(path.name, text) for path, text in raised if re.search(r"(?<!\S)--[a-z]", text)] == []
    marked = {name for _, text in raised for name in re.findall(r"\b(\w+)=(?:True\b|\.\.)", text)}
    verbs = [one for one in typer.main.get_command(app).commands.values() if not hasattr(one, "commands")]
    helped = [(verb, verb.make_context("x", ["--help"], resilient_parsing=True)) for verb in verbs]
    flags = {one.name for verb, context in helped for one in verb.get_params(context)}
    assert {"replace", "allow_composition"} <= marked <= flags | {"database"}  # of ``ledger``'s commands
    assert spell_keywords("give replace=True, to=.. or max=3") == "give --replace, --to or max=3"
