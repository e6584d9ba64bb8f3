"""The README and the pages of ``docs/``: every command runs, what they name is there, and the site is built.

Pages on sources, on columns, on Python and on pipelines have tests of their own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import pytest

import privsql
from privsql.cli.app import PERSONS
from privsql.source.spec import list_keys
from support.commands import refused, run, succeeded, write
from support.places import ROOT

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETUP = ["sh examples/quickstart.sh", "sh tests/run.sh"]
WALK = [
    "publish",
    "databases",
    "several",
    "randomize",
    "numbers",
    "itemsets",
    "tables",
    "query",
    "attack",
    "report",
]  # in one folder, in order
ALONE = {
    "tutorial",
    "persons",
    "sources",
    "pipelines",
    "columns",
    "python",
    "serve",
    "clients",
}  # whose commands run elsewhere


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page, with their languages."""
    return re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL)


BLOCKS = [block for name in WALK for block in blocks(page(name))]


def commands(text: str) -> list[str]:
    """The shell commands of a page, one per line, without comments."""
    lines = [line for kind, block in blocks(text) if kind == "sh" for line in block.splitlines()]
    return [" ".join(shlex.split(line, comments=True, posix=False)) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table that the commands speak of; no column follows from another one."""
    folder = tmp_path_factory.mktemp("readme")
    query = (
        "SELECT 20 + (hash(i || 'age') % 60)::INTEGER AS age, 1 + (hash(i || 'sex') % 2)::INTEGER AS sex, "
        "100 + (hash(i || 'zip') % 17)::INTEGER AS zip, (hash(i || 'income') % 900)::INTEGER * 50 AS income, "
        "['flu', 'cold', 'HIV', 'asthma', 'angina', 'none'][1 + (hash(i || 'disease') % 6)::INTEGER] AS disease, "
        "i AS person_id FROM range(6000) t(i)"
    )
    write(folder / "people.parquet", query)
    goods = "list_filter(['ale', 'bread', 'figs'], lambda good, k: (i + k) % (k + 1) = 0)"
    write(folder / "baskets.parquet", f"SELECT {goods} AS goods FROM range(6000) t(i)")
    return folder


def test_the_first_commands_are_the_two_that_set_up_everything() -> None:
    assert commands(README)[:2] == SETUP
    assert "sh tests/run.sh" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "sh examples/quickstart.sh" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_readme_says_nothing_that_does_not_run() -> None:
    run = {command for name in WALK for command in commands(page(name))}
    assert [command for command in commands(README)[2:] if command not in run] == []
    code = next(text for kind, text in blocks(README) if kind == "python")
    assert code in [text for kind, text in BLOCKS if kind == "python"]


def test_no_page_has_commands_that_no_test_runs() -> None:
    with_commands = {path.stem for path in DOCS.rglob("*.md") if commands(path.read_text(encoding="utf-8"))}
    assert with_commands <= {*WALK, *ALONE}


def test_links_lead_to_pages_and_the_site_lists_all_of_them() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    generated = {"index.md", "security.md", "changelog.md"}
    generated |= {f"reference/{name}.md" for name in ("cli", "python", "specification")}
    for path in pages:
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists() or link in generated, f"{path.name}: {link}"
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | generated


def test_the_page_on_the_papers_names_what_there_is() -> None:
    """Verbs and flags of its commands, files, keys of specifications."""
    text = page("papers")
    told = re.findall(r"`privsql (\w+)([^`]*)`", text)
    assert len(told) >= 30
    help_of = {verb: succeeded(verb, "--help").out for verb in {verb for verb, _ in told}}
    for verb, rest in told:
        for flag in re.findall(r"--[\w-]+", rest):
            assert flag in help_of[verb], f"{verb} {flag}"
    for path in re.findall(r"`(privsql/[\w/]+\.py)`", text):
        assert (ROOT / path).exists(), path
    schema = (ROOT / "privsql" / "spec.schema.json").read_text(encoding="utf-8")
    for value in re.findall(r'"([a-z][\w-]+)"', text):
        assert f'"{value}"' in schema, value


def test_settings_on_the_pages_are_keys_of_a_specification() -> None:
    known = list_keys()
    told = {
        one for path in DOCS.rglob("*.md") for one in re.findall(r"--set ['\"]?(\w+)\.(\w+)", path.read_text("utf-8"))
    }
    assert len(told) >= 15
    assert [one for one in told if one != ("section", "key") and one[1] not in known[one[0]]] == []


PEOPLE = """[source]
file = "people.parquet"
id = "person_id"
[columns]
quasi_identifiers = ["age", "sex"]
sensitive = ["{}"]
[release]
name = "people"
[ledger]
off = true
[mechanism]
"""
BUCKETIZE = PEOPLE.format("disease") + 'kind = "bucketize"\nthreshold = 0.6\n'
RANDOMIZE = PEOPLE.format("disease") + 'kind = "randomize"\nrho1 = 0.3\nrho2 = 0.6\n'
SETVALUED = """[source]
file = "baskets.parquet"
[columns]
items = "goods"
[release]
name = "baskets"
[ledger]
off = true
[mechanism]
kind = "setvalued"
epsilon = 2
universe = ["ale", "bread", "figs"]
"""
CATEGORIES = """[source]
file = "people.parquet"
[columns]
categories = ["sex", "disease"]
[release]
name = "categories"
[ledger]
off = true
[mechanism]
kind = "contingency"
epsilon = 2
domains = { sex = ["1", "2"], disease = ["flu", "cold", "HIV", "asthma", "angina", "none"] }
"""
SECTIONS = [  # of the page on the papers: the specifications that its commands speak of, P first
    {"P": BUCKETIZE, "Q": BUCKETIZE + 'algorithm = "anatomy"\n'},
    {"P": RANDOMIZE, "UP": RANDOMIZE + 'algorithm = "up"\n', "PP": RANDOMIZE, "ANATOMY": BUCKETIZE},
    {"P": PEOPLE.format("income") + 'kind = "permute"\nk = 5\ne = 1000\n'},
    {"P": SETVALUED, "C": CATEGORIES},
]
PAPERS = [
    (number, command.replace("\\|", "|"))
    for number, section in enumerate(page("papers").split("\n## ")[1:])
    for command in re.findall(r"`privsql ([^`]*)`", section)
]


OTHERS = re.findall(r"`((?:python|pytest) [^`]*)`", page("papers"))  # commands of the page that are not privsql's


FEW = ["--queries", "20"]  # of verbs that else answer a thousand queries by each algorithm


@pytest.fixture(scope="module")
def sections(place: Path) -> list[Path]:
    """A folder for each section of the page on the papers: its specifications, and what they publish."""
    folders = []
    for number, specs in enumerate(SECTIONS):
        folder = place / f"section{number}"
        folder.mkdir()
        for name in ("people", "baskets"):
            write(folder / f"{name}.parquet", f"SELECT * FROM '{place / f'{name}.parquet'}' LIMIT 1200")
        for name, text in specs.items():
            (folder / f"{name}.toml").write_text(text, encoding="utf-8")
        privsql.publish(folder / "P.toml", to=folder / "RELEASE.duckdb")
        folders.append(folder)
    _publish_twice(folders[2])
    return folders


def _publish_twice(folder: Path) -> None:
    """Two releases of a table that grows, as a ledger follows it."""
    text = (folder / "P.toml").read_text(encoding="utf-8").replace("off = true", 'database = "ledger.duckdb"')
    (folder / "growing.toml").write_text(text.replace("people.parquet", "growing.parquet"), encoding="utf-8")
    for name, rows in (("FIRST", 600), ("SECOND", 1200)):
        write(folder / "growing.parquet", f"SELECT * FROM '{folder / 'people.parquet'}' WHERE person_id < {rows}")
        privsql.publish(folder / "growing.toml", to=folder / f"{name}.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "command"), [pytest.param(*one, id=" ".join(one[1].split())[:60]) for one in PAPERS]
)
def test_the_commands_on_the_papers_run(
    number: int, command: str, sections: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sections[number]
    monkeypatch.chdir(folder)
    words = []
    for word in shlex.split(command):
        name = "growing" if "SECOND" in command and word == "P" else word
        file = next((f"{name}{end}" for end in (".toml", ".duckdb") if (folder / f"{name}{end}").exists()), word)
        words.append(file)
    more = {"publish": ["--to", "made.duckdb", "--replace"], "evaluate": FEW}
    succeeded(*words, *(more.get(words[0], []) if "--queries" not in words else []))


def test_the_page_on_the_papers_has_no_other_commands() -> None:
    text = page("papers")
    assert len(PAPERS) + len(OTHERS) >= 45
    assert set(re.findall(r"`((?:sh|python|pytest|privsql) [^`]*)`", text)) == {
        *OTHERS,
        *(f"privsql {command}" for command in re.findall(r"`privsql ([^`]*)`", text)),
    }


@pytest.mark.soak(part="experiments")
@pytest.mark.parametrize("command", [one for one in OTHERS if "experiments" not in one])
def test_the_other_commands_on_the_papers_start(command: str) -> None:
    """Benchmarks as far as their help, tests as far as their list: both take minutes."""
    words = shlex.split(command)
    words = [sys.executable, "-m", *(words if words[0] == "pytest" else words[2:])]
    more = ["--collect-only", "-n", "0"] if "pytest" in words else ["--help"]
    done = subprocess.run([*words, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak(part="experiments")
@pytest.mark.parametrize("command", [one for one in OTHERS if "experiments" in one])
def test_the_experiments_on_the_papers_run(command: str, tmp_path: Path) -> None:
    """A trial of each, as the command names it."""
    words = [sys.executable, *shlex.split(command)[1:], "--small", "--to", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*.svg"))


def test_the_page_on_commands_names_those_that_there_are() -> None:
    """Every new spelling is a command with these flags; what is called old is none."""
    text = page("commands")
    for verb, rest in re.findall(r"`privsql ([a-z]+)([^`]*)`", text):
        shown = succeeded(verb, "--help").out
        assert [flag for flag in re.findall(r"--[\w-]+", rest) if flag not in shown] == []
    for name in re.findall(r"^\| `([a-z]+)[^`]*` \| `privsql", text, flags=re.MULTILINE):
        refused(run(name, "--help"), 2, name)
        assert name not in privsql.__all__
    people = {
        name
        for line in re.findall(r"^\| [a-z]+ \|(.*)\|$", text, re.MULTILINE)
        for name in re.findall("`(\\w+)`", line)
    }
    assert {name for names in PERSONS.values() for name in names} <= people


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Every public name and every verb has its place in the reference."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    python, verbs = ((tmp_path / "reference" / name / "index.html").read_text("utf-8") for name in ("python", "cli"))
    for name in {*privsql.__all__} - {"__version__"}:
        assert re.search(rf"\b{name}\b", python), name
    styles = "".join(path.read_text("utf-8") for path in (tmp_path / "assets" / "stylesheets").glob("main.*.css"))
    assert "76.25em" not in styles
    assert "(min-width:70em)" in styles  # the navigation stands beside the text on a laptop
    for verb in ("publish", "query", "ledger"):
        assert f"Usage: privsql {verb}" in verbs


def plain(text: str) -> str:
    """A text without figures and widths."""
    return " ".join(re.sub(r"\d[\d.,]*", "0", text).split())


def run_line(command: str) -> str:
    """Run a command of a page in the current folder, a plain one of privsql in this process; return what it prints."""
    plain_command = re.fullmatch(r"privsql ([^|&;]+?)(?: > ([\w.]+))?", command)
    if plain_command is not None:
        printed = succeeded(*shlex.split(plain_command[1])).out
        if plain_command[2] is not None:
            Path(plain_command[2]).write_text(printed, encoding="utf-8")
        return printed
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.soak(part="long")
def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the installation; what it shows is what is printed, but for numbers, which follow from a secret."""
    for name in ("make_census.py", "make_visits.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    said = [run_line(command) for command in commands(page("tutorial"))[1:]]
    said += [(tmp_path / name).read_text(encoding="utf-8") for name in ("spec.toml", "visits.toml")]
    everything = plain("".join(said))
    shown = [line for kind, text in blocks(page("tutorial")) if kind == "text" for line in text.splitlines()]
    assert len(shown) >= 12
    assert [line for line in shown if plain(line) not in everything] == []
    assert (tmp_path / "attacks.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_page_on_persons_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shows of specifications is what they say."""
    shutil.copy(ROOT / "examples" / "make_visits.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVSQL_LEDGER", str(tmp_path / "ledger.duckdb"))
    for command in commands(page("persons")):
        run_line(command)
    everything = "".join(
        (tmp_path / f"{name}.toml").read_text(encoding="utf-8") for name in ("panel", "tests", "events")
    )
    shown = [line for kind, text in blocks(page("persons")) if kind == "text" for line in text.splitlines()]
    assert len(shown) >= 5
    assert [line for line in shown if line not in everything] == []


@pytest.mark.slow
def test_every_command_and_the_python_example_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    ran = 0
    for title, command in ((name, command) for name in WALK for command in commands(page(name))):
        if title == "tables":  # whose reader has published nothing exact of the same people
            monkeypatch.setenv("PRIVSQL_LEDGER", str(place / "tables.ledger.duckdb"))
        run_line(re.sub(r"--queries \d+", "--queries 20", command))
        if command.startswith("privsql init"):
            spec = place / "spec.toml"
            spec.write_text(spec.read_text(encoding="utf-8").replace('name = "disease"', 'name = "people"'))
        ran += 1
    assert ran >= 6
    assert (place / "error.png").stat().st_size > 10_000
    _python_runs(place)
    _plain_sql_runs(place)


def test_the_specification_is_valid() -> None:
    text = next(text for kind, text in BLOCKS if kind == "toml")
    spec = privsql.build(tomllib.loads(text, parse_float=str))
    assert spec.mechanism.algorithm == "optimal"


@pytest.mark.slow
def test_the_columns_and_groups_make_a_release(tmp_path: Path) -> None:
    """The keys as they stand, over a table with such diseases."""
    query = (
        "SELECT 20 + i % 60 AS age, 1 + (i // 21) % 3 AS stage, ['flu', 'cold', 'HIV', 'asthma', 'angina', 'leukemia', "
        "'gout', 'lymphoma', 'flu', 'cold', 'lung', 'asthma', 'angina', 'skin', 'gout', 'ulcer', 'ulcer', 'mumps', "
        "'mumps', 'none', 'none'][1 + i % 21] AS disease FROM range(6300) t(i)"
    )
    write(tmp_path / "people.parquet", query)
    block = next(text for kind, text in BLOCKS if kind == "toml" and "[mechanism.groups" in text)
    asked = tomllib.loads(block, parse_float=str)
    asked["columns"]["quasi_identifiers"] = ["age"]
    to = {"name": "groups", "to": tmp_path / "groups.duckdb"}
    spec = privsql.build(asked | {"source": {"file": tmp_path / "people.parquet"}, "release": to})
    done = privsql.publish(spec)
    assert {"cancer", "cancer.1", "disease = HIV"} <= {one["name"] for one in done.facts["bounds"]}
    assert privsql.verify(tmp_path / "groups.duckdb", spec).ok


def _python_runs(place: Path) -> None:
    """The example in Python, in the folder where the commands have run."""
    text = next(text for kind, text in BLOCKS if kind == "python")
    done = subprocess.run([sys.executable, "-c", text], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _plain_sql_runs(place: Path) -> None:
    """The statements for any SQL tool, over the release of the walk: counts that are near those of privsql."""
    statements = [text for kind, text in (*blocks(README), *blocks(page("publish"))) if kind == "sql"]
    assert len(statements) == 3
    with duckdb.connect(str(place / "release.duckdb"), read_only=True) as db:
        by_sex, by_disease, intervals = (db.execute(one).fetchall() for one in statements)
    assert len(by_sex) == 2
    assert all(low < number < high for _, number, low, high in (*by_sex, *intervals))
    assert len(by_disease) == 6
    assert {disease: number for disease, number, *_ in intervals} == pytest.approx(dict(by_disease))
    ((number, low, high),) = (row[1:] for row in intervals if row[0] == "flu")
    error = (high - low) / 3.92
    sql = "SELECT COUNT(*) FROM people WHERE age > 60 AND disease = 'flu'"
    ((estimate, *_),) = privsql.query(place / "release.duckdb", sql).rows
    assert 0 < error < number
    assert abs(number - estimate) < 3 * error


@pytest.mark.soak(part="long")
def test_the_quickstart_prints_an_answer(tmp_path: Path) -> None:
    """The steps of the quickstart after its set-up, here with the environment that runs the tests."""
    script = (ROOT / "examples" / "quickstart.sh").read_text(encoding="utf-8")
    steps = script[script.index("set -x") :].replace('"$PWD', "")
    copied = tmp_path / "examples"
    copied.mkdir()
    for name in ("make_census.py", "census.toml"):
        (copied / name).write_text((ROOT / "examples" / name).read_text(encoding="utf-8"), encoding="utf-8")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-eu", "-c", steps], cwd=copied, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "95% interval" in done.stdout
    assert "verified" in done.stdout


@pytest.mark.soak(part="long")
def test_the_walk_through_prints_a_table_and_draws_a_picture(tmp_path: Path) -> None:
    """Five releases of a smaller table than the one that the page speaks of."""
    for name in ("make_census.py", "five_ways.py"):
        (tmp_path / name).write_text((ROOT / "examples" / name).read_text(encoding="utf-8"), encoding="utf-8")
    subprocess.run([sys.executable, "make_census.py", "--rows", "3000"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([sys.executable, "five_ways.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for way in ("anatomy", "optimal", "with fakes", "randomized", "(k,e) on income"):
        assert way in done.stdout
    assert (tmp_path / "five_ways.png").stat().st_size > 10_000
