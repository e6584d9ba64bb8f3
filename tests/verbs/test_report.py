"""The page on a release: from the release alone, whoever makes it; with its source, told from that at a glance."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pytest

import privsql
from privsql import plot, system
from privsql.markup import SPACE
from privsql.model.checks import CheckResult, VerifiedBound
from privsql.model.explanations import Structure
from privsql.pages import rendering
from privsql.pages import report as page
from privsql.pages.report import _choose_drawn, list_tables
from privsql.releases.contents import locate_release
from privsql.releases.statements import ReleaseSummary
from privsql.source.targets import Target
from privsql.verbs.report import make_snippets
from support import shelf as shelves
from support.commands import refused, run, succeeded
from support.loops import rest_slow
from support.markup import EVIL, Seen

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.pages.report import UsageSnippets

MOST = 700_000  # bytes of a page
LONG = "\u202e" + "x" * 10_000
TAGS = {
    "details", "summary",
    "html", "head", "meta", "title", "style", "body", "a", "div", "strong", "code", "header", "h1", "h2", "h3", "p",
    "nav", "ol", "ul", "li", "main", "section", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "br",
    "span", "bdi", "pre", "figure", "figcaption", "footer", "svg", "desc", "g", "path", "line", "rect", "circle",
    "text", "defs", "clippath",
}  # fmt: skip


def made(release: Path, *flags: object) -> str:
    """The page of a release, made by the command line."""
    to = release.parent / "page.html"
    succeeded("report", release, "--to", to, *flags)
    return to.read_text(encoding="utf-8")


def harmless(text: str) -> Seen:
    """A page that holds what pages hold and nothing else; asks nobody for anything, and runs nothing."""
    seen = Seen(text)
    assert seen.tags <= TAGS, seen.tags - TAGS
    for tag, name, value in seen.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("style", "src", "srcset", "action", "background"), (tag, name)
        assert "://" not in value, (tag, name, value)
        assert not (name in ("href", "xlink:href") and not value.startswith("#")), value
    assert len(text.encode()) <= MOST
    assert "default-src &#x27;none&#x27;" in text or "default-src &#39;none&#39;" in text
    return seen


def pictures(text: str) -> list[str]:
    return re.findall(r"<svg (?![^>]*class)[^>]*>.*?</svg>", text, re.DOTALL)


@pytest.fixture(scope="module")
def ill(ward: Path) -> privsql.Report:
    """The report on one release alone, made once."""
    return privsql.report(ward / "ill.duckdb")


# From the release alone ---


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow([*shelves.MECHANISMS, "folder"]))
def test_it_is_the_same_whoever_makes_it_and_what_it_says_runs(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Beside its source, and elsewhere under another name: the same bytes, without a path or a day."""
    beside = shelves.release_of(shelf, name)
    text = page.render_report(privsql.report(beside))
    away = tmp_path / ("release" if beside.is_dir() else "release.duckdb")
    (shutil.copytree if beside.is_dir() else shutil.copy)(beside, away)
    found = privsql.report(away)
    assert page.render_report(found) == text
    harmless(text)
    assert str(shelf) not in text
    assert str(tmp_path) not in text
    assert not re.search(r"\b20[2-9]\d-\d\d-\d\d\b", text)
    assert "May be handed out with the release" in text
    assert "nternal" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    for one in pictures(text):
        assert re.match(
            r'<svg [^>]*role="img" aria-labelledby="(\S+)-t" aria-describedby="\1-d"><title id="\1-t">', one
        )
        assert not re.search(r"#[0-9a-f]{3}", one), "a colour that does not follow the page's"
    monkeypatch.chdir(tmp_path)
    assert found.learnt is not None
    runs_in_three_ways(found.learnt.ways)


def runs_in_three_ways(ways: UsageSnippets) -> None:
    """In a shell, in Python and in DuckDB alone, in the folder of a release of the name that the lines say."""
    program, *arguments = shlex.split(ways.shell)
    assert program == "privsql"
    said = succeeded(*arguments, "--json").json["rows"]
    *lines, last = ways.python.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # noqa: S102 (our own page)
    rows = eval(last, names)  # noqa: S307
    names["release"].close()
    assert len(rows) == len(said) > 0
    file = ":memory:" if ways.form == "folder" else ways.file.partition("::")[0]
    with duckdb.connect(file, read_only=ways.form != "folder") as db:
        found = [row[-1] for row in db.execute(ways.sql).fetchall()]
    assert found
    assert all(one is None or float(one) == one for one in found)


@pytest.mark.slow
def test_a_schema_is_reported_without_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What else the database holds, and the schema's own name, is nothing that the page knows."""
    people = pd.DataFrame({"age": [i % 7 for i in range(60)], "ill": [f"v{i % 5}" for i in range(60)]})
    privsql.publish(
        people,
        qi="age",
        sensitive="ill",
        threshold=0.5,
        seed=1,
        to=tmp_path / "release.duckdb",
        set={"release": {"name": "people", "schema": "released"}, "source": {"population": "people"}},
    )
    address = tmp_path / "release.duckdb::released"
    before = page.render_report(privsql.report(address))
    with duckdb.connect(str(tmp_path / "release.duckdb")) as db:
        db.execute("CREATE TABLE secret AS SELECT 42 AS other")
    found = privsql.report(address)
    assert page.render_report(found) == before
    assert str(tmp_path) not in before
    monkeypatch.chdir(tmp_path)
    assert found.learnt is not None
    runs_in_three_ways(found.learnt.ways)


@pytest.mark.slow
def test_a_stranger_s_names_and_values_stay_text(tmp_path: Path) -> None:
    names = {f"q{EVIL}": 3, EVIL: 5, f"r{LONG}": 2}
    people = pd.DataFrame({name: [f"{name[:200]}{LONG}{i % m}" for i in range(60)] for name, m in names.items()})
    quasi, sensitive, other = names
    release = tmp_path / "a.duckdb"
    privsql.publish(
        people,
        qi=[quasi, other],
        sensitive=sensitive,
        threshold=0.5,
        seed=1,
        to=release,
        set={"release": {"name": EVIL}, "ledger": {"off": True}},
    )
    seen = harmless(made(release))
    assert EVIL in seen.text
    shown = re.sub(r"(?s)How to query.*Where it comes from", "", seen.text)
    assert "x" * 500 not in shown
    assert "\u202e" not in seen.text
    assert "<script" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_release_that_was_changed_is_said_not_to_be_verified(ward: Path, tmp_path: Path) -> None:
    release = tmp_path / "ill.duckdb"
    shutil.copy(ward / "ill.duckdb", release)
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE st SET disease = '<script>alert(1)</script>' WHERE disease = 'HIV'")
    done = run("report", release, "--to", tmp_path / "page.html", "--json")
    assert done.code == 1
    assert not done.json["ok"]
    assert "bounds" not in done.json
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    seen = harmless(text)
    assert "NOT VERIFIED" in re.findall(r"<title>(.*?)</title>", text)[0]
    assert "Do not rely on this release" in seen.text
    assert "handed out" not in seen.text
    assert "How to query" not in seen.text
    assert "NOT VERIFIED" in re.findall(r'class="every-page"[^>]*>(.*?)<', text)[0]


def test_what_can_t_be_reported_is_one_line_and_writes_nothing(ward: Path, tmp_path: Path) -> None:
    (tmp_path / "no.duckdb").write_text("nothing")
    to = tmp_path / "page.html"
    for name in ("missing.duckdb", "no.duckdb"):
        code = run("verify", tmp_path / name).code
        refused(run("report", tmp_path / name, "--to", to), code, name)
    refused(run("report", ward / "ill.duckdb", "--to", tmp_path / "page.duckdb"), 2, "ends in .html")
    refused(
        run("report", ward / "ill.duckdb", "--to", tmp_path / "page.html", "--source", ward / "no.toml"), 4, "no.toml"
    )
    assert not to.exists()


@pytest.mark.slow
def test_a_page_is_written_whole_or_not_at_all(
    ill: privsql.Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "page.html"
    to.write_text("before")
    monkeypatch.setattr(page, "render_report", lambda _: "whole")
    with pytest.raises(privsql.EngineError, match="can't be written"):
        page.write_page(ill, tmp_path / "nowhere" / "page.html")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(privsql.EngineError, match="No space left"):
        page.write_page(ill, to)
    monkeypatch.undo()
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert to.read_text() == "before"


def test_the_facts_are_one_object(ill: privsql.Report) -> None:
    found = json.loads(json.dumps(ill.as_json()))
    assert (found["kind"], found["ok"], found["mechanism"]) == ("release", True, "bucketize")
    assert sum(one["records"] for one in found["bounds"]) == 400
    assert {one["adversary"] for one in found["adversaries"]} >= {"linkage", "learning"}
    assert sum(row["records"] for row in found["structure"][0]["rows"]) == 400
    assert found["digests"].keys() == {"the file"}
    assert "measured" not in found


def test_a_notebook_shows_it_in_short(ill: privsql.Report) -> None:
    """Which kind it is, whether it is verified, what is promised, who learns what; of what failed the checks alone."""
    seen = Seen(ill._repr_html_())
    assert "report: ill, verified" in seen.text
    assert "every promise holds" in seen.text
    assert "linkage" in seen.text
    broken = dataclasses.replace(
        ill, internal=True, learnt=None, checks=(CheckResult("sums agree", 1, (f"{EVIL} is 3",)),)
    )
    text = broken._repr_html_()
    assert "INTERNAL, shows true counts: ill, NOT verified, 1 of 1 checks do not hold" in Seen(text).text
    assert "sums agree" in text
    assert "<script" not in text


def test_what_is_not_certain_is_not_said_to_be(ill: privsql.Report) -> None:
    """Bounds of a bucket are certain; an interval of the literature's is not, and has no column where there is none."""
    assert ill.learnt is not None
    assert ill.learnt.certain
    first = ill.learnt.foreseen[:1]
    plain = dataclasses.replace(ill.learnt, bounds=(), structure=(), findings=(), foreseen=first)  # without pictures
    other = dataclasses.replace(plain, certain=False)
    none = dataclasses.replace(other, foreseen=(dataclasses.replace(first[0], bounds=None),))
    texts = [Seen(page.render_report(dataclasses.replace(ill, learnt=one))).text for one in (plain, other, none)]
    assert ["are certain, and wide" in text for text in texts] == [True, False, False]
    assert [re.findall("half of the literature's ([a-z]+)", text) for text in texts] == [["bounds"], ["interval"], []]
    for text in texts:
        assert "for that you rely on the publisher" in text


def test_whose_the_bounds_are_stands_with_the_promise(ill: privsql.Report) -> None:
    """A bound of a record is none of a person who has several."""
    assert ill.learnt is not None
    plain = dataclasses.replace(ill.learnt, bounds=(), structure=(), findings=(), foreseen=())  # without pictures
    lines = dict(plain.summary.lines)
    lines["persons"] = dataclasses.replace(lines["persons"], text="7 persons have several records, up to <2>")
    plain = dataclasses.replace(plain, summary=ReleaseSummary(lines))
    text = Seen(page.render_report(dataclasses.replace(ill, learnt=plain))).text
    words = "7 persons have several records, up to <2>."
    first, last = text.index(words), text.rindex(words)
    assert first < text.index("Risks in the terms")
    assert (
        text.index("every order within the bucket is equally likely")
        < last
        < text.index("An attacker who knows sensitive values")
    )


def test_what_is_empty_has_no_table(ill: privsql.Report) -> None:
    assert ill.learnt is not None
    nothing = Structure("The noisy tree", "0 partitions were kept.", ("level", "kept"), ())
    plain = dataclasses.replace(ill.learnt, bounds=(), structure=(nothing,), findings=(), foreseen=())
    text = page.render_report(dataclasses.replace(ill, learnt=plain))
    assert "0 partitions were kept." in text
    assert 'aria-label="The noisy tree"' not in text


def test_a_broken_promise_stands_first(ill: privsql.Report, tmp_path: Path, monkeypatch: Any) -> None:
    """Checks may hold of a release in which a column names nearly everybody."""
    assert ill.learnt is not None
    assert ill.ok
    leak = dataclasses.replace(
        ill.learnt.findings[0], adversary="names", promised=True, leaks=True, mean=None, notes=("all",)
    )
    learnt = dataclasses.replace(ill.learnt, bounds=(), structure=(), foreseen=(), findings=(leak,))  # without pictures
    found = dataclasses.replace(ill, learnt=learnt)
    assert found.verified
    assert (found.as_json()["ok"], found.as_json()["verified"]) == (False, True)
    text = Seen(page.render_report(found)).text
    assert text.index("A promise is broken") < text.index("checks hold: all that")
    assert "names: all." in re.sub(r"\s+", " ", text)
    assert "states and promises" not in text
    monkeypatch.setattr(privsql, "report", lambda *_, **__: found)
    done = run("report", tmp_path / "ill.duckdb", "--to", tmp_path / "page.html")
    assert done.code == 1
    assert "A PROMISE IS BROKEN: names: all" in done.out


# With the source ---


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(one for one in shelves.MECHANISMS if one != "fakes"))
def test_an_internal_page_can_t_be_mistaken(shelf: Path, tmp_path: Path, name: str) -> None:
    release, spec = shelves.release_of(shelf, name), shelf / f"{name}.toml"
    to = tmp_path / "internal.html"
    done = run("report", release, "--source", spec, "--to", to, "--json")
    assert done.code == 0, done.err
    text = to.read_text(encoding="utf-8")
    seen = harmless(text)
    title = re.findall(r"<title>(.*?)</title>", text)[0]
    assert title.startswith("INTERNAL, shows true counts")
    assert "Internal: shows true counts." in seen.text
    assert re.search(r'class="every-page"[^>]*>INTERNAL', text)
    assert "May be handed out" not in seen.text
    assert ("body", "class", "internal") in seen.attributes
    assert (to.stat().st_mode & 0o077) == 0
    pairs = done.json["measured"]["pairs"]
    assert len(pairs) >= 5
    assert "Beside the true answers" in seen.text


# Figures and pictures ---


def test_pictures_have_the_page_s_inks() -> None:
    """The colours of a light page are those of all pictures; the dark ones have the same names."""
    light, dark = re.findall(r":root \{(.*?)\}", rendering.read_stylesheet(), re.DOTALL)[:2]
    named = [dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in (light, dark)]
    assert {name: named[0][name] for name in plot.INKS} == plot.INKS
    assert named[1].keys() == named[0].keys()
    for way in ("fill", "stroke"):
        rules = dict(re.findall(rf"\.{way}-(\w+) {{ {way}: var\(--(\w+)\); }}", rendering.read_stylesheet()))
        assert rules == {name: name for name in plot.INKS}


def test_which_bounds_are_drawn_is_said() -> None:
    """Of 80 combinations of values and 15 single ones 30 combinations were drawn, as if they were all."""
    values = [(f"v{k}", 0.125, 0.125, 0.03) for k in range(80)]
    groups = [(f"disease = d{k}", 0.25, 0.125, None) for k in range(15)]
    assert _choose_drawn([*groups, *values]) == (groups, "; of columns and groups of values, not of single values")
    assert _choose_drawn(values) == (values, "")
    assert _choose_drawn(groups[:9] + values[:3]) == (groups[:9] + values[:3], "")
    found, which = _choose_drawn([groups[0], *values])
    assert found == values[:30]
    assert which == "; the 30 that are nearest to their bounds"
    assert _choose_drawn(groups) == (groups, "")


@pytest.mark.slow
def test_fifty_bounds_have_a_bar_each_with_its_name() -> None:
    """The highest first, whatever order the values have."""
    rows = [(f"value {k:02}", 0.5, 0.01 + (k * 37 % 50) / 100, 0.02) for k in range(50)]
    drawing = page._draw_bounds([VerifiedBound(v, f"{b:g}", f"{h:.2f}", 2) for v, b, h, _ in rows], 100)
    names = re.findall(r">(value \d\d)<", drawing)
    assert names == [row[0] for row in sorted(rows, key=lambda row: row[2], reverse=True)]
    assert len(names) == 50


def test_an_error_larger_than_its_answer_is_said_in_words() -> None:
    assert page._format_error(19.099) == "more than the answer"
    assert page._format_error(0.5) == "50\N{NO-BREAK SPACE}%"
    assert page._format_error(None) == "\N{EN DASH}"


# For who approves a release ---


@pytest.mark.slow
def test_the_publisher_s_words_and_the_terms_of_reviewers(tmp_path: Path) -> None:
    """Purpose, recipient and contact are no markup; the three risks have the measured figures; nobody has signed."""
    people = pd.DataFrame({"age": [i % 7 for i in range(60)], "ill": [f"v{i % 5}" for i in range(60)]})
    words = {"purpose": "Study of <b>wards</b>", "recipient": "University clinic", "contact": "office@example.org"}
    settings = {"release": {"name": "people", **words}, "ledger": {"off": True}}
    privsql.publish(
        people,
        qi="age",
        sensitive="ill",
        threshold=0.5,
        seed=1,
        to=tmp_path / "worded.duckdb",
        set=settings,
    )
    found = privsql.report(tmp_path / "worded.duckdb")
    assert found.manifest.wording == words
    assert found.learnt is not None
    text = page.render_report(found)
    seen = harmless(text)
    for one in words.values():
        assert one in seen.text
    risks = seen.text[seen.text.index("European guidance") : seen.text.index("What risk remains")]
    terms = ["singling out", "linkability", "inference", "replicability", "distinguishability", "risk to assess"]
    assert [one for one in terms if one not in risks] == []
    assert "0 of 60 (0.0%)" in risks
    for line in ("promise", "attacker"):
        assert risks.count(found.learnt.summary.lines[line].text[1:]) == 2
    assert "not a legal opinion" in seen.text
    places = [seen.text.index(one) for one in ("Risks in the terms of", "The person who approves", "How to check it")]
    assert places == sorted(places)
    assert text.count("<dd></dd>") == 3
    assert text.count("<dd>to be filled in</dd>") == 5
    assert "First fill in 5 of the 8 fields below." in seen.text
    assert "data-label=" in text
    shown = succeeded("verify", tmp_path / "worded.duckdb", "--verbose").out
    assert "University clinic" in shown


CLINIC = {
    "columns": {
        "quasi_identifiers": ["age", "zip", "born", "smoker"],
        "sensitive": "ill",
        "nulls": {"ill": "suppress"},
        "bins": {"age": {"top": 90}, "zip": {"prefix": 3}, "born": "year"},
    },
    "release": {"name": "clinic", "expert": "Dr. A", "qualification": "statistician", "sampling_rate": 0.1},
    "source": {"population": "clinic", "person": "patient_id"},
    "mechanism": {"kind": "bucketize", "threshold": 0.5},
    "ledger": {"off": True},
}


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    """A table whose columns belong to kinds of HIPAA's list, and its release, which leaves 20 of 240 records out."""
    release = tmp_path_factory.mktemp("clinic") / "clinic.duckdb"
    people = pd.DataFrame(
        {
            "patient_id": range(240),
            "e_mail": [f"secret{i}@example.org" for i in range(240)],
            "age": [30 + i * 7 % 65 for i in range(240)],
            "zip": [f"{10000 + i % 3 * 1000}" for i in range(240)],
            "born": pd.to_datetime([f"{1930 + i % 2}-05-17" for i in range(240)]).date,
            "smoker": [i % 2 == 0 for i in range(240)],
            "ill": [None if i % 12 == 0 else f"v{i * i % 5}" for i in range(240)],
        }
    )
    privsql.publish(privsql.build(CLINIC, source=people), seed=1, to=release)
    return people, release


def shown_text(report: privsql.Report) -> str:
    """The words of a page with plain spaces."""
    return re.sub(r"\s+", " ", harmless(page.render_report(report)).text.replace(SPACE, " "))


@pytest.mark.slow
def test_a_reviewer_finds_what_is_signed_for(clinic: tuple[pd.DataFrame, Path]) -> None:
    """Kinds of columns, ages, dates and ZIP codes, what is sensitive in clear, small classes, and who is left out."""
    found = privsql.report(clinic[1])
    assert found.learnt is not None
    text = shown_text(found)
    rows = {one.name: (one.role, one.kind, one.published) for one in found.learnt.columns}
    assert rows["age"] == ("in clear", "age over 89 (3)", "numbers cut at 90; ages over 89 are joined")
    assert rows["born"] == ("in clear", "date (3)", "years; as the safe harbor asks")
    assert rows["zip"][1:] == (
        "place below a state (2)",
        "bins by the first 3 characters; check that each area has more than 20,000 people",
    )
    assert rows["ill"] == ("sensitive", "", "protected as promised")
    assert "Published in clear though sensitive by name: smoker." in text
    assert "20 of 240 (8.3 %)" in text
    assert "8.3 % of the source's records are left out" in text
    assert "one record each" in text
    assert "Who signs accepts this: at most 50 % sure of any record" in text
    assert "First fill in 6 of the 8 fields below." in text
    assert "How far a count of each size is off" in text
    figures = found.learnt.summary.lines["unique"].figures
    small = sum(figures[f"in_classes_from_{least}"] or 0 for least in (1, 2, 5))
    assert small + (figures["in_classes_from_11"] or 0) == 220
    assert f"is not met by quasi-identifiers: {small} records are in smaller classes" in text
    assert "the table is said to be 10.00% of its population" in text
    assert text.index("The best known attacker") < text.index("What each known attacker reaches") < text.index("Risks")


@pytest.mark.slow
def test_only_the_internal_page_tells_what_needs_the_source(clinic: tuple[pd.DataFrame, Path]) -> None:
    """Names of removed columns, what all others tell without the release, and how often attackers are right."""
    people, release = clinic
    internal, public = privsql.report(release, privsql.build(CLINIC, source=people)), privsql.report(release)
    texts = [shown_text(one) for one in (internal, public)]
    for words in ("e_mail", "patient_id", "knows all others, no release", "of people; a guess without"):
        assert [words in text for text in texts] == [True, False], words
    assert "how many best guesses are right" in texts[0]
    assert "how sure of the best guess" in texts[1]
    for key in ("population", "in_small_cells"):
        assert key in internal.as_json()
        assert key not in public.as_json()
    taken = people[people.ill.notna()].assign(age=people.age.clip(upper=90), zip=people.zip.str[:3])
    taken["born"] = [one.year for one in taken.born]
    sizes = taken.groupby(["age", "zip", "born", "smoker", "ill"]).size()
    assert internal.as_json()["in_small_cells"] == int(sizes[sizes < 11].sum())
    assert not re.search(r"secret\d", texts[0] + texts[1])


@pytest.mark.slow
def test_bounds_that_are_all_alike_need_no_picture() -> None:
    from privsql.pages.report import _bound_row, _describe_equal_bounds, _draw_bounds

    alike = [VerifiedBound(f"v{i}", "1/8", "0.125", 10) for i in range(30)]
    assert _draw_bounds(alike, 300) == ""
    assert _describe_equal_bounds(alike).replace(SPACE, " ") == "All 30 have the same bound, 12.5 %; 12.5 % is reached."
    assert _describe_equal_bounds(alike[:1]) == ""
    assert (
        _draw_bounds(
            [VerifiedBound("epsilon", "1", "1", belief=False), VerifiedBound("epsilon", "1/2", "1/4", belief=False)],
            None,
        )
        == ""
    )
    differ = [VerifiedBound(f"v{i}", "1/8", f"{i}/400", 10) for i in range(30)]
    assert _draw_bounds(differ, 300)
    assert _describe_equal_bounds(differ) == ""
    assert [str(one) for one in _bound_row(VerifiedBound("epsilon", ">= 1", "1", belief=False), None)][1:] == [
        "<bdi>\u2265 1</bdi>",
        "<bdi>1</bdi>",
    ]
    shown = [str(one).replace(SPACE, " ") for one in _bound_row(differ[3], 300)]
    assert shown == ["<bdi>v3</bdi>", "12.5 % (1/8)", "0.75 % (3/400)", "3.3 %"]


@pytest.mark.slow
def test_what_is_to_be_copied_can_be_printed(tmp_path: Path) -> None:
    """The commonest value has a tab, for which the page shows a mark: the line would have asked for another value."""
    names = ["a\tb", "a\tb", "\u202ec", "x" * 200, "d", "e", "f"]
    people = pd.DataFrame({"a\nb": [i % 3 for i in range(56)], "age": [i % 4 for i in range(56)], "ill": names * 8})
    privsql.publish(
        people,
        qi=["a\nb", "age"],
        sensitive="ill",
        threshold=0.5,
        seed=1,
        to=tmp_path / "p.duckdb",
        set={"release": {"name": "p"}, "ledger": {"off": True}},
    )
    with privsql.open(tmp_path / "p.duckdb") as release:
        found = make_snippets(release, locate_release(Target(tmp_path / "p.duckdb")))
    assert re.fullmatch(r"SELECT age, SUM\(weight\) AS n FROM p_weighted WHERE ill = '[def]' GROUP BY 1;", found.sql)


def test_numbers_are_asked_for_by_half(shelf: Path) -> None:
    """The commonest single value of hundreds says nothing of a release of numbers."""
    path = shelves.release_of(shelf, "permute")
    with privsql.open(path) as release:
        found = make_snippets(release, locate_release(Target.parse(path)))
        (own,) = release.manifest.sensitive
        shown = release.sql(shlex.split(found.shell)[-1])
    assert f"WHERE {own.name} >= " in found.sql
    assert 0.3 < shown["n"].sum() / release.manifest.published < 0.7


@pytest.mark.slow
def test_answers_of_a_size_are_off_by_what_their_errors_say(ill: privsql.Report) -> None:
    """Answers that are exact are left out; sizes rise, and each has its own answers."""
    learnt = ill.learnt
    assert learnt is not None
    assert learnt.foreseen
    for one in learnt.foreseen:
        assert one.low <= one.estimate < (one.high or float("inf"))
        assert one.answers > 0
        assert 0 < (one.error or 0) < (one.half_width or 0) * 2
    assert list_tables(learnt, 400)["sizes"].rows


def test_report_says_what_is_missing_before_it_begins(ward: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(system, "find_spec", lambda _: None)
    refused(run("report", tmp_path / "none.duckdb", "--to", tmp_path / "a.html"), 4, "pip install 'privsql[plot]'")
