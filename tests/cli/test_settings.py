"""Named options and ``--set``: what they say of a specification is what its file would say."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

import privsql
from privsql import load
from privsql.cli.app import KEYS, app
from privsql.errors import UsageError
from privsql.source.keywords import NAMED, SETTINGS, as_spec, spec_from_options
from privsql.source.spec import Ledger, list_keys
from support.commands import PEOPLE, ROLES, refused, run, specification, succeeded, write
from support.places import ROOT

TABLE = 'quasi_identifiers = ["age", "sex", "zip"]\nsensitive = "disease"'
SAME = {  # columns and mechanism in TOML, and as options
    "bucketize": (
        f"{TABLE}\nnulls = {{ zip = 'suppress', age = 'refuse' }}\nbins = {{ age = 10, zip = {{ edges = [0, 50] }} }}",
        'algorithm = "two-size"\nthreshold = "8*f + 0.02"\nmin_bucket_size = 3',
        [*ROLES, "--set", "columns.nulls.zip=suppress", "--set", "columns.nulls.age=refuse", "--algorithm", "two-size",
         "--threshold", "8*f + 0.02", "--set", "mechanism.min_bucket_size=3", "--bins", "age=10",
         "--bins", "zip={ edges = [0, 50] }"],
    ),
    "exceptions": (
        TABLE,
        'threshold = { default = 0.3, HIV = "1/20" }',
        [*ROLES, "--threshold", "0.2", "--set", "mechanism.threshold.default=0.3",
         "--set", "mechanism.threshold.HIV=1/20"],
    ),
    "switches": (
        TABLE,
        "threshold = 0.25\nfake_values = 2\nexclude_negative = true",
        [*ROLES, "--threshold", "0.25", "--set", "mechanism.fake_values=2", "--set", "mechanism.exclude_negative=true"],
    ),
    "randomize": (
        TABLE,
        'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/13"\nrho2 = 0.2',
        [*ROLES, "--algorithm", "up", "--set", "mechanism.rho1=1/13", "--set", "mechanism.rho2=0.2"],
    ),
    "permute": (
        'quasi_identifiers = ["age"]\nsensitive = "zip"',
        'kind = "permute"\nk = 5\ne = "30 days"',
        ["--qi", " age,", "--sensitive", "zip", "--mechanism", "permute", "--k", "5", "--e", "30 days"],
    ),
    "setvalued": (
        'items = "goods"',
        'kind = "setvalued"\nepsilon = 0.5\nuniverse = ["ale", "figs"]\nalgorithm = "diffpart"\ntau = 3'
        "\n[ledger]\nepsilon = 2.5",
        ["--set", "columns.items=goods", "--mechanism", "setvalued", "--epsilon", "0.5", "--set",
         'mechanism.universe=["ale", "figs"]', "--algorithm", "diffpart", "--set", "mechanism.tau=3",
         "--set", "ledger.epsilon=2.5"],
    ),
    "contingency": (
        'categories = ["sex", "disease"]',
        'kind = "contingency"\nepsilon = 1\ndelta = 1e-9\ndomains = { sex = ["F", "M"], disease = "data" }',
        ["--set", 'columns.categories=["sex", "disease"]', "--mechanism", "contingency", "--epsilon", "1",
         "--delta", "1e-9", "--set", 'mechanism.domains.sex=["F", "M"]', "--set", "mechanism.domains.disease=data"],
    ),
}  # fmt: skip


def given(command: str, *arguments: str) -> dict[str, Any]:
    """What a command line says of the keys of a specification."""
    group: Any = typer.main.get_command(app)
    with group.make_context("privsql", [command, *arguments]) as outer:
        verb = group.get_command(outer, command)
        with verb.make_context(command, list(arguments), parent=outer) as context:
            return {name: context.params[name] for name in SETTINGS}


def changed(source: Path, *arguments: str) -> privsql.Spec:
    return spec_from_options(str(source), given("publish", "x", *arguments))


# What can be said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SAME)
def test_options_say_what_a_file_says(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, mechanism, arguments = SAME[case]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.parquet", "SELECT 1 AS age")
    file = specification(tmp_path, columns=columns, mechanism=mechanism, release='name = "ill"\nto = "ill.duckdb"')
    found = changed(Path("people.parquet"), *arguments, "--set", "release.name=ill", "--to", "ill.duckdb")
    wanted = load(file.name)
    assert found == wanted
    assert found.target == wanted.target


def test_every_key_has_its_place_in_set_and_keys_of_a_source_are_dotted_as_in_the_file(tmp_path: Path) -> None:
    file = specification(tmp_path, source='file = ["a.csv"]\n[source.options]\nskip = 2')
    texts = ["source.options.delimiter=;", "source.options.nullstr=['', 'NA']", "source.options.decimal_separator=,",
             "source.options.types.'zip code'=VARCHAR", "source.union_by_name=true", 'source.id="no"']  # fmt: skip
    spec = changed(file, *(word for text in texts for word in ("--set", text)))
    assert spec.source.options is not None
    assert spec.source.options.model_dump(exclude_none=True) == {
        "delimiter": ";", "nullstr": ("", "NA"), "decimal_separator": ",", "types": {"zip code": "VARCHAR"}, "skip": 2,
    }  # fmt: skip
    assert (spec.source.union_by_name, spec.source.id) == (True, "no")
    server = specification(tmp_path, source='postgres = { uri = "postgresql://me:secret@host/db", table = "a" }')
    relation = changed(server, "--set", "source.postgres.table=b").source.external_relation
    assert relation == load(server).source.external_relation.model_copy(update={"table": "b"})  # type: ignore[union-attr]
    known = list_keys()
    assert {section for section in known if "." not in section} == {name for name, _ in map(str.split, PLACES)}
    assert all(key in known[section] for section, key in NAMED.values())
    assert set(SETTINGS) == set(KEYS)


PLACES = ("source 1", "columns 2", "release 3", "mechanism 4", "ledger 5")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("release.contact=you", "you"),
        ("release.contact='5'", "5"),
        ("release.contact= a = b ", "a = b"),
        ("release.contact=nan", "nan"),
        ("release.contact=", ""),
        ("release.contact=x\nrelease.name='y'", "x\nrelease.name='y'"),
    ],
)
def test_a_value_is_toml_or_a_text(tmp_path: Path, text: str, value: str) -> None:
    assert changed(specification(tmp_path), "--set", text).release.contact == value


# Beside a file --------------------------------------------------------------------------------------------------------


def test_what_is_set_beside_a_file_changes_its_keys(tmp_path: Path) -> None:
    file = specification(tmp_path, columns=f"{TABLE}\nnulls = {{ zip = 'suppress' }}\nbins = {{ zip = 5 }}")
    stated = load(file)
    spec = changed(file, "--threshold", "1/8", "--set", "release.name=other", "--set", "columns.nulls.age=suppress",
                   "--bins", "age=10", "--set", "source.population=clinic")  # fmt: skip
    assert spec.mechanism.model_dump(mode="json")["threshold"]["default"] == "0.125"
    assert spec.mechanism.algorithm == stated.mechanism.algorithm == "two-size"
    assert (spec.name, spec.source.population, spec.source.files) == ("other", "clinic", stated.source.files)
    assert spec.columns.nulls == {"zip": "suppress", "age": "suppress"}
    assert set(spec.columns.bins) == {"zip", "age"}
    assert changed(file) == stated
    python = as_spec(file, {"threshold": "1/8", "bins": {"age": 10}, "set": {"columns": {"nulls": {"age": "refuse"}}}})
    assert (python.mechanism, set(python.columns.bins)) == (spec.mechanism, {"zip", "age"})
    assert python.columns.nulls == {"age": "refuse"}  # a table replaces that of the file
    assert as_spec(stated, {"threshold": "1/8"}).mechanism == spec.mechanism


def test_another_mechanism_starts_without_parameters(tmp_path: Path) -> None:
    file = specification(tmp_path, columns='quasi_identifiers = ["age"]\nsensitive = "zip"')
    for start in (file, load(file)):
        spec = as_spec(start, {"mechanism": "permute", "k": 3, "e": 5})
        assert spec.mechanism.model_dump(exclude_unset=True, mode="json") == {"kind": "permute", "k": 3, "e": "5"}


def test_where_a_release_and_its_ledger_lie(tmp_path: Path) -> None:
    file = specification(tmp_path, release="")
    assert changed(file).target.path == tmp_path / "people_release.duckdb"
    assert changed(file, "--set", "release.name=other").target.path == tmp_path / "other_release.duckdb"
    assert changed(file, "--format", "parquet").target.path == tmp_path / "people_release"
    file = specification(tmp_path, release='to = "out.db"')
    for start in (file, load(file)):
        assert as_spec(start, {"format": "parquet"}).target.path == tmp_path / "out"
        assert as_spec(start, {"format": "duckdb"}).target.path == tmp_path / "out.db"
        assert as_spec(start, {"to": "r.duckdb"}).target.path == Path("r.duckdb")
        assert as_spec(start, {"ledger": "own.db"}).ledger == Ledger(database=Path("own.db"))
    file.write_text(file.read_text(encoding="utf-8") + "[ledger]\ndatabase = 'a.db'\n", encoding="utf-8")
    assert load(file).ledger == Ledger(database=tmp_path / "a.db")
    assert changed(file, "--set", "ledger.off=true").ledger == Ledger(off=True)
    file.write_text(file.read_text(encoding="utf-8").replace("database = 'a.db'", "off = true"), encoding="utf-8")
    with pytest.raises(UsageError, match="ledger: off can't be combined with other keys"):
        changed(file, "--ledger", "own.db")


def test_paths_that_are_set_are_those_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "groups.csv").write_text("value,group\nF,a\nM,b\n", encoding="utf-8")
    (tmp_path / "here.csv").write_text("value,group\nF,one\nM,one\n", encoding="utf-8")
    file = specification(folder, columns=f'{TABLE}\nlevels = {{ sex = "groups.csv" }}')
    monkeypatch.chdir(tmp_path)
    assert load(file).columns.levels == {"sex": {"F": "a", "M": "b"}}
    assert changed(file, "--set", "columns.levels.sex=here.csv").columns.levels == {"sex": {"F": "one", "M": "one"}}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert changed(file, "--to", "~/r.duckdb").target.path == tmp_path / "r.duckdb"
    assert changed(file, "--set", "source.file=b.parquet").source.files == ("b.parquet",)
    assert changed(file).source.files == (str(folder / "people.parquet"),)


def test_a_specification_with_a_table_keeps_it(tmp_path: Path) -> None:
    people = pd.DataFrame({"age": [1, 2, 3, 4], "ill": ["a", "b", "c", "d"]})
    spec = as_spec(people, {"sensitive": "ill", "qi": "age", "threshold": 0.5, "set": {"ledger": {"off": True}}})
    other = as_spec(spec, {"threshold": "1/4", "id": "age", "to": tmp_path / "r.duckdb"})
    assert other.source.frame == spec.source.frame is not None
    assert (other.source.id, other.target.path) == ("age", tmp_path / "r.duckdb")


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mechanism", "permute", *ROLES, "--e", "3"], "so mechanism.k is needed"),
        (["--algorithm", "nested", *ROLES, "--e", "3"], "so mechanism.k is needed"),
        (["--algorithm", "diffpart", "--epsilon", "1"], "mechanism.kind: diffpart is an algorithm of setvalued and"),
        (["--mechanism", "randomize", *ROLES, "--set", "mechanism.rho1=0.1"], "rho2 is missing; give both"),
        (["--mechanism", "setvalued", "--epsilon", "1"], "so columns.items is needed"),
        (["--mechanism", "contingency", "--epsilon", "1"], "so columns.categories is needed"),
        (["--mechanism", "setvalued", "--set", "columns.record=r", "--set", "columns.item=i", "--epsilon", "1"],
         "so mechanism.universe is needed"),
        (["--mechanism", "permute", "--set", "columns.categories=sex", "--k", "3", "--e", "3"], "do not fit"),
        ([*ROLES, "--threshold", "0.5", "--k", "5"], "mechanism.k: this mechanism has no such key; it is one of"),
        ([*ROLES, "--threshold", "0.5", "--mechanism", "noise"], "mechanism.kind: 'noise' is not one of"),
        ([*ROLES, "--threshold", ""], "so mechanism.threshold is needed"),
        (["--qi", ",", "--sensitive", "disease", "--threshold", "0.5"], "so columns.quasi_identifiers is needed"),
        ([*ROLES, "--threshold", "0.5\n[release]\nname = 'x'"], "mechanism.threshold"),
        ([*ROLES, "--threshold", "[" * 20_000], "mechanism.threshold"),
        ([*ROLES, "--threshold", "0.5", "--set", "mechanism.fake_values=many"],
         "mechanism.fake_values: must be a whole number"),
        ([*ROLES, "--threshold", "0.5", "--set", "mechanism.fake_value=1"], "did you mean 'fake_values'?"),
        ([*ROLES, "--threshold", "0.5", "--set", "mechanisms.fake_values=1"], "did you mean 'mechanism'?"),
        ([*ROLES, "--threshold", "0.5", "--set", "release.items=x"], "did you mean columns.items?"),
        ([*ROLES, "--threshold", "0.5", "--set", "fake_values=1"], "did you mean mechanism.fake_values?"),
        ([*ROLES, "--threshold", "0.5", "--set", "source.options.delim=;"], "did you mean 'delimiter'?"),
        ([*ROLES, "--threshold", "0.5", "--set", "release.zzz=1"], "there is no such key; 'privsql init"),
        ([*ROLES, "--threshold", "0.5", "--set", "release.name=5"], "release.name: must be a text"),
        ([*ROLES, "--threshold", "0.5", "--set", "release=5"], "release: must be a table of keys and values"),
        ([*ROLES, "--threshold", "0.5", "--set", "mechanism.threshold=1"], "mechanism.threshold is given twice"),
        ([*ROLES, "--threshold", "0.5", "--set", "release.name"], "is not a setting; write section.key=value"),
        ([*ROLES, "--threshold", "0.5", "--fake-values", "1"],
         "no such option: --fake-values; set this key with --set mechanism.fake_values=.. (see privsql plan --help)"),
        ([*ROLES, "--treshold", "0.5"], "No such option: --treshold"),
    ],
)  # fmt: skip
def test_what_options_can_not_say_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    people = write(tmp_path / "people.parquet", PEOPLE.format(n=40))
    refused(run("plan", people, *arguments), 2, words)


def test_a_missing_file_is_named_before_missing_keys(tmp_path: Path) -> None:
    for verb in ("publish", "plan", "init"):
        refused(run(verb, tmp_path / "nofile.parquet"), 4, "nofile.parquet: no such file")
        refused(run(verb, tmp_path / "no" / "*.parquet"), 4, "*.parquet: no file matches this pattern")
    with pytest.raises(privsql.EngineError, match="no such file"):
        privsql.plan(tmp_path / "nofile.parquet")


def test_init_takes_the_keys_that_say_how_to_read_a_source(tmp_path: Path) -> None:
    people = write(tmp_path / "people.parquet", PEOPLE.format(n=40))
    refused(run("init", people, "--set", "source.tabel=x"), 2, "init takes source.table, ", "'source.table'?")
    refused(run("init", people, "--set", "source.table=x", "--set", "source.table=y"), 2, "is given twice")
    asked = succeeded("init", people, "--set", "source.query=SELECT sex, disease FROM source", "--sensitive", "disease")
    assert asked.out == privsql.init(
        people, sensitive="disease", set={"source": {"query": "SELECT sex, disease FROM source"}}
    )


# What help and messages say -------------------------------------------------------------------------------------------

COMMANDS: dict[str, Any] = {
    name: command for name, command in typer.main.get_command(app).commands.items() if not hasattr(command, "commands")
}


@pytest.mark.parametrize("verb", ["publish", "plan"])
def test_help_fits_one_screen(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    lines = succeeded(verb, "--help").out.splitlines()
    assert len(lines) <= 50, "\n".join(lines)
    assert "--help-all" not in " ".join(lines)


def test_options_of_the_same_name_are_the_same_option() -> None:
    """In the commands on a source and on a release; --seed and --epsilon are of a release there, and of others here."""
    seen: dict[str, Any] = {}
    for verb in ("plan", "publish", "init", "attack", "evaluate", "verify"):
        for param in COMMANDS[verb].params:
            if param.param_type_name == "option" and param.name not in ("seed", "epsilon", "key_file"):
                said = (param.opts, param.metavar, param.multiple, param.help)
                assert seen.setdefault(param.name, said) == said, param.name


def raised_texts() -> list[tuple[str, str]]:
    """The texts of every error that is raised outside the command line, with the names of their files."""
    return [
        (path.name, text.value)
        for path in (ROOT / "privsql").rglob("*.py")
        if path.parent.name != "cli"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise)
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]


def test_messages_name_keys_and_options_that_exist_in_no_dialect() -> None:
    """Keys with their section, as --set, a file and set=.. have them; other options by their name alone."""
    texts = raised_texts()
    assert [one for one in texts if re.search(r"(?<!\S)--[a-z]|\b\w+=(True\b|\.\.)", one[1])] == []
    options = {param.name for command in COMMANDS.values() for param in command.params} | {"key", "database"}
    named = {name for _, text in texts for name in re.findall(r"\boption ([a-z_]+)\b", text)}
    assert {"replace", "allow_composition", "nobody_has_it"} <= named <= options
    known = list_keys()
    places = {
        (one[1], one[2])
        for _, text in texts
        for one in re.finditer(r"(?<!df\.)\b(columns|mechanism|release|ledger)\.([a-z]\w*)", text)
    }
    assert len(places) > 10
    assert {one for one in places if one[1] not in known[one[0]] | {"duckdb", "off"}} == set()


def test_an_option_may_be_written_as_messages_have_it(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=40))
    file = specification(tmp_path)
    refused(run("publish", file, "--nobody_has_it"), 2, "option nobody_has_it", "give option replace, too")


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
