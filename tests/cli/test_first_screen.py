"""What a new user reads first: records are not persons, only protected values make headlines, missing records show."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import pytest

import privsql
from support.commands import refused, run, specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

VISITS = """
SELECT i % 250 AS patient, CAST(20 + (i % 250) % 30 AS INTEGER) AS age, CAST(i * 37 % 6 AS INTEGER) AS ward,
  CASE WHEN i % 8 = 0 THEN 'positive' ELSE 'negative' END AS test, 'd' || (i * i + i // 7) % 8 AS disease,
  CAST(100 + i * 61 % 900 AS DOUBLE) / 7 AS dose, i AS visit FROM range(800) t(i)
"""
OFF = "\n[ledger]\noff = true"
COUNTED = 'person = "patient"\npersons = "count"'
KINDS = {
    "bucketize": ('quasi_identifiers = ["age", "ward"]\nsensitive = "disease"', 'threshold = "0.25"', COUNTED),
    "randomize": (
        'quasi_identifiers = ["age", "ward"]\nsensitive = "disease"',
        'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/4"\nrho2 = "1/2"',
        COUNTED,
    ),
    "tables": (
        'quasi_identifiers = ["age"]\nsensitive = "disease"',
        'kind = "randomize"\nalgorithm = "tables"\nepsilon = 5\nvalues = ["d0", "d1", "d2", "d4"]',
        "",
    ),
    "permute": ('quasi_identifiers = ["age", "ward"]\nsensitive = "dose"', 'kind = "permute"\nk = 3\ne = 10', COUNTED),
    "contingency": (
        'categories = ["test", "disease"]',
        'kind = "contingency"\nepsilon = 5\ndomains = { test = ["positive", "negative"], disease = "data" }',
        "",
    ),
}
PERSON = re.compile(r"\b(person|persons|person's|people|people's|individuals?)\b", re.IGNORECASE)
# Sentences that are about persons, whatever is promised of a record.
ABOUT_PERSONS = (
    "several records may belong to one person, as no column names persons",
    "several records may belong to one person",
    "if several records belong to one person",
    "a person with several records has that many times epsilon",
    "several releases of the same people",
    "a release of the same people with exact frequencies",
    "which records belong to one person",
    "no person has several records that can be found",
    "records of one person",
    "whose source.person names persons",
)


def asked(folder: Path, kind: str, persons: str | None = None, source: str = VISITS) -> Path:
    """A specification of one of the ``KINDS``, with its table."""
    columns, mechanism, declared = KINDS[kind]
    write(folder / "visits.parquet", source)
    place = f'file = "visits.parquet"\n{declared if persons is None else persons}'
    return specification(folder, source=place, columns=columns, mechanism=mechanism + OFF)


def screen(*arguments: object) -> str:
    """What a command prints, in one line; it may end with any code."""
    done = run(*arguments)
    assert done.crash is None, repr(done.crash)
    return " ".join(f"{done.out} {done.err}".split())


def page(path: Path) -> str:
    """The text of a page, in one line."""
    text = re.sub(r"<(style|svg).*?</\1>", "", path.read_text("utf-8"), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def every_text(value: Any) -> list[str]:
    """All texts in an object of JSON."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in every_text(part)]


# Records are not persons ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("persons", "words"),
    [
        (COUNTED, "several records may belong to one person: 250 persons have several records, up to 4"),
        ("", "several records may belong to one person, as no column names persons"),
        ('person = "visit"', "one record is one person: declared"),
        ('person = "patient"\npersons = "one"', "one record is one person: declared, and a secret key chose one"),
    ],
)
def test_the_first_screen_says_what_a_record_is_to_a_person(tmp_path: Path, persons: str, words: str) -> None:
    spec, release = asked(tmp_path, "bucketize", persons), tmp_path / "ill.duckdb"
    for arguments in (["plan", spec], ["publish", spec, "--seed", 1], ["verify", release]):
        assert words in screen(*arguments), arguments
    assert "unique people" not in screen("verify", release)
    assert "unique records" in screen("verify", release)


@pytest.mark.slow
def test_pages_begin_with_protected_values_and_with_what_a_record_is(tmp_path: Path) -> None:
    """And with how many records are left out; what a check compared stands far below."""
    spec, release = unprotected(tmp_path, "negative = 1"), tmp_path / "ill.duckdb"
    succeeded("publish", spec, "--seed", 1)
    succeeded("report", release, "--source", spec, "--to", tmp_path / "page.html")
    text = page(tmp_path / "page.html")
    first = text.index("Risks in the terms of reviewers")
    assert text.index("everal records may belong to one person, as no column names persons") < first
    assert text.index("1 value is not protected: negative") < first
    assert "negative none: not protected" in text
    spec, release = sparse(tmp_path, 8), tmp_path / "ill.duckdb"
    succeeded("publish", spec, "--replace", "--seed", 1)
    succeeded("report", release, "--to", tmp_path / "page.html")
    (line,) = re.findall(
        '<div class="bad"><dt>Left out</dt><dd>(.*?)</dd>', (tmp_path / "page.html").read_text("utf-8")
    )
    assert LEFT in html.unescape(line)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_promises_of_records_say_nothing_of_persons(tmp_path: Path, kind: str) -> None:
    """Neither in the lines of a release, nor in the sentences of its report, nor in what adversaries know."""
    spec, release = asked(tmp_path, kind), tmp_path / "ill.duckdb"
    shown = [succeeded(*one, "--json").json for one in (["plan", spec], ["publish", spec], ["verify", release])]
    shown += [succeeded("attack", release, "--source", spec, "--json").json]
    report = privsql.report(release).as_json()
    shown += [{key: report[key] for key in ("summary", "promise", "promised", "not_promised", "adversaries")}]
    for one in shown:
        one.pop("checks", None)  # which name tables
    wrong = []
    for text in (text for one in shown for text in every_text(one)):
        rest = re.sub(": [0-9,]+ persons have several records.*", "", text.lower())
        for known in ABOUT_PERSONS:
            rest = rest.replace(known, "")
        if PERSON.search(rest) and rest != "persons":  # the unit of one adversary
            wrong.append(text)
    assert wrong == []


# Only protected values make headlines ---------------------------------------------------------------------------------


def unprotected(folder: Path, values: str, sensitive: str = "test") -> Path:
    """A specification whose threshold is 1 for some values."""
    write(folder / "visits.parquet", VISITS)
    columns = f'quasi_identifiers = ["age", "ward"]\nsensitive = "{sensitive}"'
    threshold = f"threshold = {{ default = 0.25, values = {{ {values} }} }}"
    return specification(folder, source='file = "visits.parquet"', columns=columns, mechanism=threshold + OFF)


@pytest.mark.slow
def test_a_value_without_protection_is_no_headline(tmp_path: Path) -> None:
    spec, release = unprotected(tmp_path, "negative = 1"), tmp_path / "ill.duckdb"
    said = "can be at most 25.0% sure of its test (positive, whose bound is 25.0%); 1 value is not protected: negative"
    for arguments in (["plan", spec], ["publish", spec, "--seed", 1], ["verify", release], ["attack", release]):
        text = screen(*arguments)
        assert said in text, arguments
        assert "100.0% sure of" not in text
    curve = succeeded("plan", spec, "--curve", "--json").json["curve"]
    assert {one["highest_belief"] for one in curve if one["threshold"] == "0.25"} == {0.25}
    found = {one["adversary"]: one for one in succeeded("attack", release, "--json").json["adversaries"]}
    assert found["linkage"]["notes"] == ["at most 25.0% sure of a value that is protected"]
    assert (found["homogeneity"]["highest"], found["homogeneity"]["notes"]) == (0.25, [])


@pytest.mark.slow
def test_few_values_without_protection_are_named_and_many_counted(tmp_path: Path) -> None:
    three = ", ".join(f"d{i} = 1" for i in (0, 1, 2))
    text = screen("plan", unprotected(tmp_path, three, "disease"))
    assert "3 values are not protected: d0, d1, d2" in text
    text = screen("plan", unprotected(tmp_path, f"{three}, d4 = 1", "disease"))
    assert re.search(r"4 values are not protected(?!:)", text)


def test_a_release_that_protects_nothing_says_so(tmp_path: Path) -> None:
    spec = unprotected(tmp_path, "negative = 1, positive = 1")
    shown = succeeded("publish", spec, "--seed", 1, "--json").json["summary"]["promise"]
    assert (shown["text"], shown["standing"]) == (
        "no value of test is protected: every bound is 100%",
        "beyond the promise",
    )


@pytest.mark.slow
def test_shares_of_powers_of_two_and_loss_are_no_headlines(tmp_path: Path) -> None:
    """Widths of doubles are exact fractions in JSON and decimals on every screen."""
    spec, release = asked(tmp_path, "permute", ""), tmp_path / "ill.duckdb"
    long = re.compile(r"\d{7,}/\d{7,}")
    texts = [screen(*one) for one in (["plan", spec], ["publish", spec, "--seed", 1], ["verify", release])]
    texts += [screen(*one, "--verbose") for one in (["plan", spec], ["verify", release])]
    succeeded("report", release, "--to", tmp_path / "page.html")
    for text in (*texts, screen("verify", release, "--verbose"), page(tmp_path / "page.html")):
        assert not long.search(text), long.search(text)
    assert any(long.search(one["found"]) for one in succeeded("verify", release, "--json").json["bounds"])
    assert (
        "every group has at least 3 different values, and the largest and the smallest of them are at least 10"
        in (texts[1])
    )


@pytest.mark.slow
def test_what_a_search_cost_and_what_a_check_compared_need_verbose(tmp_path: Path) -> None:
    spec, release = asked(tmp_path, "bucketize"), tmp_path / "ill.duckdb"
    brief, whole = screen("plan", spec), screen("plan", spec, "--verbose")
    for title in ("least loss", "mean squared error", "mean belief"):
        assert title not in brief
        assert title in whole
    succeeded("publish", spec, "--seed", 1)
    assert "checks hold" in screen("verify", release, "--source", spec)


# Records left out -----------------------------------------------------------------------------------------------------

LEFT = "12.5% of the source's records (100 of 800) are not in the release"
SPARSE = VISITS.replace("'d' || (", "CASE WHEN i % {n} > 0 THEN 'd' || (").replace("% 8 AS dis", "% 8 END AS dis")


def sparse(folder: Path, every: int) -> Path:
    """A specification that leaves out one record in so many."""
    spec = asked(folder, "bucketize", "", SPARSE.format(n=every))
    text = spec.read_text("utf-8").replace(
        'sensitive = "disease"', 'sensitive = "disease"\nnulls = { disease = "suppress" }'
    )
    spec.write_text(text, "utf-8")
    return spec


@pytest.mark.slow
def test_many_records_left_out_are_on_every_first_screen_and_in_every_answer(tmp_path: Path) -> None:
    spec, release = sparse(tmp_path, 8), tmp_path / "ill.duckdb"
    for arguments in (["plan", spec], ["publish", spec, "--seed", 1], ["verify", release]):
        assert LEFT in screen(*arguments), arguments
    with privsql.open(release) as opened:
        for sql in (
            "SELECT COUNT(*) FROM ill",
            "SELECT age, COUNT(*) FROM ill WHERE disease = 'd1' GROUP BY age",
            "SELECT COUNT(*) AS n, AVG(age) AS a FROM ill WHERE disease = 'd1'",
            "SELECT * FROM ill LIMIT 3",
            "SELECT COUNT(*) FROM ill WHERE age > 30 UNION ALL SELECT COUNT(*) FROM ill",
        ):
            (note,) = [one for one in opened.sql(sql).attrs["notes"] if "not in the release" in one]
            assert note.startswith("100 records of the source (12.5%) are not in the release"), sql
            assert f"note: {note}" in run("query", release, sql).out, sql


def test_the_line_on_records_left_out_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privsql.cli import printing

    spec, console = sparse(tmp_path, 8), printing._make_console(force_terminal=True, width=200, color_system="standard")
    monkeypatch.setattr(printing, "get_console", lambda: console)
    done = privsql.plan(spec)
    with console.capture() as captured:
        printing.print_parts(done.show())
    (line,) = [one for one in captured.get().splitlines() if LEFT in one]
    assert re.search(r"\x1b\[[0-9;]*31m[^\x1b]*12\.5%", line)


@pytest.mark.slow
def test_few_records_left_out_are_no_headline(tmp_path: Path) -> None:
    spec = sparse(tmp_path, 32)
    assert "left out" not in screen("plan", spec)
    assert "left_out" not in succeeded("publish", spec, "--json").json["summary"]


def test_sets_of_the_items_of_persons_promise_for_persons(tmp_path: Path) -> None:
    """Where columns.record is source.person, one record is one person; nothing else may be both."""
    write(tmp_path / "visits.parquet", VISITS)
    keys = 'kind = "setvalued"\nepsilon = 1\nuniverse = ["positive", "negative"]' + OFF
    columns = 'record = "patient"\nitem = "test"'
    spec = specification(
        tmp_path, source='file = "visits.parquet"\nperson = "patient"', columns=columns, mechanism=keys
    )
    done = " ".join(succeeded("publish", spec).out.split())
    assert "one record is one person: declared" in done
    assert "that a person is in the table" in done
    wrong = specification(tmp_path, source='file = "visits.parquet"\nperson = "visit"', columns=columns, mechanism=keys)
    refused(run("plan", wrong), 2, "source.person", "columns.record")


def test_a_headline_names_single_values_and_groups(tmp_path: Path) -> None:
    write(tmp_path / "visits.parquet", VISITS)
    mechanism = (
        'threshold = { default = "1/4", d0 = 1 }\ngroups = { ills = { threshold = "3/4", values = ["d1", "d2"] } }'
    )
    columns = 'quasi_identifiers = ["age"]\nsensitive = "disease"'
    source = 'file = "visits.parquet"\nperson = "patient"\npersons = "count"'
    done = succeeded("plan", specification(tmp_path, source=source, columns=columns, mechanism=mechanism + OFF))
    text = " ".join(done.out.split())
    assert "can be at most 25.0% sure of its disease" in text
    assert "sure that it has one of the values of group ills" in text
    assert "1 value is not protected: d0" in text


def test_questions_on_items_are_asked_of_rows(tmp_path: Path) -> None:
    write(tmp_path / "visits.parquet", VISITS)
    keys = 'kind = "setvalued"\nepsilon = 1\nuniverse = ["positive", "negative"]' + OFF
    columns = 'record = "patient"\nitem = "test"'
    spec = specification(
        tmp_path,
        source='file = "visits.parquet"',
        columns=columns,
        mechanism=keys,
        release='name = "t"\nto = "t.duckdb"',
    )
    succeeded("publish", spec)
    query, conditions = "SELECT COUNT(*) FROM t WHERE", ("test = 'positive'", "list_contains(test, 'positive')")
    found = [succeeded("query", tmp_path / "t.duckdb", f"{query} {one}", "--json").json["rows"] for one in conditions]
    assert found[0] == found[1]
    refused(run("query", tmp_path / "t.duckdb", f"{query} test <> 'positive'"), 2, "what works is test = 'a'")
    refused(run("query", tmp_path / "t.duckdb", f"{query} age > 50"), 2, "no column 'age'")
    succeeded("query", tmp_path / "t.duckdb", "SELECT test, COUNT(*) FROM t GROUP BY test")
