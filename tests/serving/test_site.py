"""The page of every mechanism: its answers are those of ``privsql query``, and what is refused is one line."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

import privsql
from support.commands import run, specification, succeeded, write
from support.loops import each
from support.markup import EVIL, Seen
from support.serving import page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.serving import Client

PEOPLE = ("bucketize", "randomize", "permute", "contingency")
QUESTIONS = [
    ("bucketize", "measure=count"),
    ("bucketize", "measure=count&c0.from=30&c0.to=49&by=1"),
    ("bucketize", "measure=count&c3=gastritis&c3=flu&by=2&by=1&confidence=0.8"),
    ("bucketize", "measure=avg.0&c3=flu&c2.null=not"),
    ("bucketize", "measure=count&c3=flu&by=1&estimator=baseline"),
    (
        "bucketize",
        "sql=SELECT+disease%2C+100.0+%2A+COUNT%28%2A%29+AS+n+FROM+people+GROUP+BY+1+HAVING+COUNT%28%2A%29+%3E+3",
    ),
    ("randomize", "measure=count&c3=flu&by=1"),
    ("randomize", "measure=sum.0&c1=f"),
    ("permute", "measure=avg.3&by=1"),
    ("permute", "measure=count&c3.from=2000&c0.from=30&confidence=0.9"),
    ("contingency", "measure=count&c2=flu&c0=f&by=1"),
    ("setvalued", "measure=count&all=news&none=sport"),
    ("setvalued", "measure=count&any=mail&any=maps&len.from=2"),
    ("setvalued", "sql=SELECT+COUNT%28%2A%29+FILTER+%28WHERE+list_contains%28page%2C+%27news%27%29%29+FROM+visits"),
]


@pytest.fixture(scope="module")
def releases(shelf: Path) -> Path:
    return shelf


@pytest.fixture(scope="module")
def client(releases: Path) -> Iterator[Client]:
    with page(*(releases / f"{name}.duckdb" for name in (*PEOPLE, "setvalued"))) as made:
        yield made


@pytest.mark.slow
@each(("name", "query"), QUESTIONS, few=4)
def test_every_answer_is_that_of_query(client: Client, releases: Path, name: str, query: str) -> None:
    """The SQL that the page shows, given to the command line, has the same object; CSV and page have its rows."""
    answer = client.get(f"/{name}/answer.json?{query}")
    assert answer.status_code == 200, answer.text
    shown = client.get(f"/{name}?{query}")
    assert shown.status_code == 200
    sql = shown.text.split('maxlength="20000">\n')[1].split("</textarea>")[0]
    told = answer.json()
    flags = ["--confidence", "0.8"] if "=0.8" in query else ["--confidence", "0.9"] if "=0.9" in query else []
    flags += ["--estimator", "baseline"] if "=baseline" in query else []
    plain = sql.replace("&gt;", ">").replace("&lt;", "<").replace("&#x27;", "'").replace("&quot;", '"')
    assert succeeded("query", releases / f"{name}.duckdb", plain, "--json", *flags).json == told
    rows = list(csv.reader(io.StringIO(client.get(f"/{name}/answer.csv?{query}").text)))
    assert rows[0] == list(told["rows"][0])
    assert len(rows) == len(told["rows"]) + 1 == shown.text.count("<svg class=") + 1
    assert Seen(shown.text).tags.isdisjoint({"script", "link", "iframe"})


def test_every_release_has_a_page(client: Client) -> None:
    home = client.get("/")
    assert home.status_code == 200
    for name in (*PEOPLE, "setvalued"):
        assert f'href="/{name}"' in home.text
        shown = client.get(f"/{name}")
        assert shown.status_code == 200
        seen = Seen(shown.text)
        assert {"form", "fieldset", "textarea"} <= seen.tags
        assert ("form", "method", "get") in seen.attributes
        assert not [one for one in seen.attributes if one[1].startswith("on") or one[1] == "style"]


def test_one_release_is_shown_at_once(releases: Path) -> None:
    with page(releases / "setvalued.duckdb") as client:
        moved = client.get("/")
        assert (moved.status_code, moved.headers["location"]) == (303, "/setvalued")


@pytest.mark.slow
def test_releases_of_one_name_are_told_apart(releases: Path, tmp_path: Path) -> None:
    """By where they are served: folders of this machine are nobody's business."""
    files = [releases / "setvalued.duckdb", tmp_path / "setvalued.duckdb"]
    shutil.copy(*files)
    with page(*files) as client:
        home = Seen(client.get("/").text).text
        assert "(at /setvalued)" in home
        assert "(at /setvalued-2)" in home
        assert str(tmp_path) not in home
        assert "/ setvalued-2" in Seen(client.get("/setvalued-2").text).text


def test_the_form_remembers(client: Client) -> None:
    shown = client.get("/bucketize?measure=avg.0&c0.from=30&c3=flu&by=1&confidence=0.8").text
    seen = Seen(shown)
    assert ("input", "value", "30") in seen.attributes
    assert 'value="flu" checked' in shown
    assert 'value="avg.0" selected' in shown
    assert 'value="1" selected' in shown
    assert ("input", "value", "0.8") in seen.attributes
    assert "Average of age with age from 30; disease flu, for each value of sex." in seen.text


def test_what_is_empty_leaves_the_address(client: Client) -> None:
    moved = client.get("/bucketize?measure=count&c0.from=&c0=&by=1&by=&confidence=0.95")
    assert moved.status_code == 303
    assert moved.headers["location"] == "/bucketize?measure=count&by=1&confidence=0.95"
    assert client.get(moved.headers["location"]).status_code == 200


def test_downloads_have_names_and_types(client: Client) -> None:
    for ending, kind in (("csv", "text/csv; charset=utf-8"), ("json", "application/json")):
        answer = client.get(f"/permute/answer.{ending}?measure=count")
        assert answer.headers["content-disposition"] == f'attachment; filename="permute-answer.{ending}"'
        assert answer.headers["content-type"] == kind


def test_head_is_answered_as_get(client: Client) -> None:
    assert client.request("HEAD", "/permute").status_code == 200


# What is refused ------------------------------------------------------------------------------------------------------

REFUSED = [  # what is no count query, or reaches for anything but the release
    "SELECT * FROM people",
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')",
    "SELECT COUNT(*) FROM '/etc/passwd'",
    "SELECT COUNT(*) FROM people WHERE sex = (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT COUNT(*) FROM people WHERE sex = getenv('HOME')",
    "ATTACH '/tmp/x.duckdb' AS x",
    "COPY people TO '/tmp/x.csv'",
    "INSTALL httpfs",
    "SET memory_limit = '100GB'",
    "PRAGMA database_list",
    "SELECT COUNT(*) FROM people; SELECT 1",
    "SELECT COUNT(*) FROM duckdb_settings()",
    "SELECT COUNT(*) FROM release.main.st",
    "SELECT COUNT(*) FROM qit",
    "SELECT COUNT(*) FROM people WHERE repeat('x', 1000000000) = sex",
    "SELECT COUNT(*) FROM people CROSS JOIN people AS b",
    "WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT 1 FROM t) SELECT COUNT(*) FROM t",
    "SELECT COUNT(*) FROM people WHERE nosuch = 1",
    "SELECT COUNT(*",
    "SELECT COUNT(*) FROM people WHERE " + "(" * 400 + "1=1" + ")" * 400,
    "SELECT COUNT(*) FROM people WHERE age IN (" + ",".join(map(str, range(3_000))) + ", 'x')",
]


@each("sql", REFUSED, few=2)
def test_what_query_refuses_is_refused_alike(client: Client, releases: Path, sql: str) -> None:
    """By the same line, with status 400, and never a traceback."""
    said = run("query", releases / "bucketize.duckdb", sql, "--json")
    assert said.code == 2
    query = urlencode({"sql": sql})
    answer = client.get(f"/bucketize/answer.json?{query}")
    assert (answer.status_code, answer.json()) == (400, said.json)
    plain = client.get(f"/bucketize/answer.csv?{query}")
    assert (plain.status_code, plain.text) == (400, f"privsql: {said.json['error']}\n")
    shown = client.get(f"/bucketize?{query}")
    assert shown.status_code == 400
    assert "Traceback" not in shown.text
    assert said.json["error"].split("'")[0][:60] in Seen(shown.text).text


@each("query", ["c0=old", "c77=1", "nonsense=1", "c0=%FF", "sql=a%00b", "confidence=2", "by=0&by=1&by=2"], few=7)
def test_addresses_that_mean_nothing_are_400(client: Client, query: str) -> None:
    for path in ("/bucketize", "/bucketize/answer.csv", "/bucketize/answer.json", "/bucketize/picture.svg"):
        answer = client.get(f"{path}?{query}")
        assert answer.status_code == 400, path
        assert "Traceback" not in answer.text


@each(
    "path", ["/nosuch", "/bucketize/", "/bucketize.duckdb", "/../etc/passwd", "/%2e%2e/x", "/bucketize/x", "//x"], few=7
)
def test_there_is_nothing_else(client: Client, path: str) -> None:
    """No folder is served, and no path leads to a file."""
    answer = client.get(path)
    assert (answer.status_code, answer.text) == (404, "privsql: there is no such page here\n")


def test_answers_have_bounds(releases: Path) -> None:
    with page(releases / "bucketize.duckdb", rows=10) as client:
        answer = client.get("/bucketize/answer.json?by=0")
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("the answer could have 50 rows, more than 10;")
        assert client.get("/bucketize/answer.json?by=1").status_code == 200


def test_what_takes_too_long_is_504(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privsql.serving.guard.GRACE", 60.0)
    with page(releases / "bucketize.duckdb", seconds=0.001) as client:
        assert any(client.get(f"/bucketize?c0.from={k}&c3=flu&by=1").status_code == 504 for k in range(50))


# What strangers put into a release ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A release whose names and values are HTML, formulas and the like."""
    folder = tmp_path_factory.mktemp("evil")
    odd = EVIL.replace("'", "''")
    values = ["=1+1", "@SUM(A1)", odd, 'a\\"b', "\u202etxt.exe", "-2", "<b>bold</b>", "x" * 400]
    listed = ", ".join(f"'{value}'" for value in values)
    quoted = EVIL.replace('"', '""')
    write(folder / "people.parquet", f'SELECT i % 7 AS age, [{listed}][1 + i % 8] AS "{quoted}" FROM range(400) t(i)')
    own = json.dumps(EVIL)
    columns = f'quasi_identifiers = ["age"]\nsensitive = {own}'
    spec = specification(folder, columns=columns, release=f'name = {own}\nto = "evil.duckdb"')
    succeeded("publish", spec, "--seed", 1)
    copy = folder / "<b>odd & name'.duckdb"
    shutil.copy(folder / "evil.duckdb", copy)
    with page(copy) as client:
        yield client


@pytest.mark.slow
def test_hostile_names_and_values_stay_text(evil: Client) -> None:
    home = evil.get("/").headers["location"]
    for address in (home, f"{home}?by=1", f"{home}?{urlencode({'c1': '=1+1'})}", f"{home}?{urlencode({'c1': EVIL})}"):
        shown = evil.get(address)
        assert shown.status_code == 200, address
        seen = Seen(shown.text)
        assert seen.tags.isdisjoint({"script", "b"}) or "b" not in shown.text.split("<b>")[0][-1:]
        assert "<script" not in shown.text
        assert "<b>bold" not in shown.text
    shown = evil.get(f"{home}?by=1&c1=%3Cb%3Ebold%3C%2Fb%3E")
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown.text


@pytest.mark.slow
def test_a_spreadsheet_gets_no_formula(evil: Client) -> None:
    """Texts that begin as one have an apostrophe; JSON has them as they are, and numbers stay numbers."""
    home = evil.get("/").headers["location"]
    rows = list(csv.reader(io.StringIO(evil.get(f"{home}/answer.csv?by=1").text)))
    first = {row[0] for row in rows[1:]}
    assert {"'=1+1", "'@SUM(A1)", "'-2"} <= first
    assert "=1+1" not in first
    told: list[dict[str, Any]] = evil.get(f"{home}/answer.json?by=1").json()["rows"]
    assert {"=1+1", "-2"} <= {row[EVIL] for row in told}


def test_hostile_questions_stay_text(client: Client) -> None:
    for query in (
        {"sql": EVIL},
        {"sql": f"SELECT COUNT(*) FROM people WHERE sex = '{EVIL}"},
        {"c1": EVIL},
        {EVIL: "1"},
    ):
        shown = client.get(f"/bucketize?{urlencode(query)}")
        assert "<script" not in shown.text
        assert Seen(shown.text)


# While it is served ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_that_goes_is_answered_from_or_one_line(releases: Path, tmp_path: Path) -> None:
    copy, folder = tmp_path / "copy.duckdb", tmp_path / "folder"
    shutil.copy(releases / "bucketize.duckdb", copy)
    shutil.copytree(releases / "folder", folder)
    with page(copy, folder) as client, ExitStack() as stack:
        assert client.get("/copy?by=1").status_code == 200
        stack.callback(copy.rename(tmp_path / "away.duckdb").exists)
        folder.rename(tmp_path / "away")
        assert client.get("/copy?by=2").status_code == 200
        gone = client.get("/folder/answer.csv?by=1")
        assert gone.status_code == 503
        assert gone.text.startswith("privsql: ")
        assert gone.text.count("\n") == 1


# Columns of every type ------------------------------------------------------------------------------------------------

TYPED = """
SELECT CAST('2020-01-01' AS DATE) + CAST(i % 400 AS INTEGER) AS born, i % 3 = 0 AS smoker,
  CAST(i % 50 AS DOUBLE) / 4 AS height, TIMESTAMP '2021-03-01 10:00:00' + INTERVAL (i % 9) HOUR AS seen,
  20 + i % 60 AS age, CASE WHEN i % 11 > 0 THEN 'town ' || (i % 90) END AS town,
  ['flu', 'cold', 'it''s', 'HIV', 'angina', 'ulcer'][1 + (i * 7 + i // 6) % 6] AS "the disease" FROM range(4000) t(i)
"""
ASKED = [  # and the number of rows, or what is said of a value that can't be asked for
    ("c0=2020-03-01&by=1", 2),
    ("c1=true&by=6", 6),
    ("c2.from=2.5&c2.to=5&c2=", 1),
    ("c2=2.50", 1),
    ("c3.from=2021-03-01T11%3A00&by=4", 6),
    ("c3=2021-03-01+12%3A00%3A00", 1),
    ("c4=30&c4=40&by=4", 2),
    ("c5=town+3&c5=town+4&c5.null=too&by=5", 3),
    ("c5.null=only&by=5", 1),
    ("c5.null=not&c6=it%27s", 1),
    ("measure=avg.2&c6=flu", 1),
    ("c0=2020-03-05", "is in months"),
    ("c4=35", "is in bins of 10"),
]


@pytest.mark.slow
def test_columns_of_every_type_can_be_asked_for(tmp_path: Path) -> None:
    """Dates, truths, doubles, timestamps, numbers and dates in bins, NULL, and names that have to be quoted."""
    write(tmp_path / "people.parquet", TYPED)
    columns = (
        'quasi_identifiers = ["born", "smoker", "height", "seen", "age", "town"]\nsensitive = "the disease"\n'
        '[columns.bins]\nage = 10\nborn = "month"'
    )
    release = 'name = "select"\nto = "typed.duckdb"'
    succeeded("publish", specification(tmp_path, columns=columns, release=release), "--seed", 1)
    with page(tmp_path / "typed.duckdb") as client:
        form = client.get("/typed").text
        assert 'name="c0" value="2020-01-01"' in form
        assert "in bins of 10" in form
        assert 'name="c5.null"' in form
        assert 'name="c4.null"' not in form
        for query, expected in ASKED:
            answer = client.get(f"/typed/answer.json?{query}")
            if isinstance(expected, str):
                assert answer.status_code == 400
                assert expected in answer.json()["error"]
            else:
                assert len(answer.json()["rows"]) == expected, query


@pytest.mark.slow
def test_no_line_for_each_value_is_offered_of_a_column_in_wide_bins(census: Path) -> None:
    """It would be refused: what a person can choose has an answer."""
    (made,) = census.glob("*.duckdb")
    with privsql.open(made) as release:
        binned = release.answers.in_bins
        names = [field.name for field in (*release.manifest.quasi_identifiers, *release.manifest.sensitive)]
    with page(made) as one:
        place = one.get("/").headers["location"]
        offered = re.findall(r'<option value="([0-9]+)"', one.get(place).text.split('name="by"')[1])
        assert [names[int(number)] for number in offered] == [name for name in names if name not in binned]
        assert binned
        assert all(one.get(f"{place}?measure=count&by={number}").status_code == 200 for number in offered)
