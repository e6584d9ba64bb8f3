"""What pages are made of, and what notebooks show, in a browser: every width, every scheme, on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import privsql
from privsql.markup import html_bar
from privsql.outcomes import Table
from privsql.pages import rendering
from support import browser
from support.markup import EVIL
from test_markup import PICTURES

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
ALL = """{% extends "base.html" %}{% import "parts.html" as parts %}
{% block main %}
<section><h2>Words</h2>
<p>{{ evil }} {{ evil | short }} and <a href="#main">a link</a>, <code>code</code>,
<span class="quiet">quiet</span>.</p>
{% for kind in ["good", "bad", "warn", "quiet"] %}
{% call parts.notice(kind, "A " ~ kind ~ " notice") %}<p>What it says, and <a href="#main">where</a>.</p>{% endcall %}
{% endfor %}
{{ parts.facts([("records", "217,180"), (evil | short, evil), ("long", long)]) }}
{{ table(wide) }}
{{ parts.code("how to ask", "privsql query a.duckdb 'SELECT count(*) FROM t WHERE " ~ "a = 1 AND " * 9 ~ "b = 2'") }}
<p>{{ bars[0] }}{{ bars[1] }}</p>
<details><summary>More</summary><p>More of it.</p></details>
</section>
<form><fieldset><legend>Ask</legend><label for="a">Name</label> <input id="a"> <label for="b">Kind</label>
<select id="b"><option>one</option></select> <label><input type="checkbox"> tick</label>
<button>Ask</button> <button class="second">Not</button></fieldset></form>
{% endblock %}"""
HEAD = ["name", *(f"column {i}" for i in range(12))]
ROWS = [[f"row {i} of a table", *(i * j * 1000 for j in range(12))] for i in range(6)]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with one of everything."""
    made = rendering._make_environment().from_string(ALL)
    page = tmp_path_factory.mktemp("parts") / "parts.html"
    bars = [html_bar(one, (0, 100)) for one in ((10, 40, 70), (None, 100, None))]
    wide = Table(HEAD, ROWS, (1, 2, 3), "wide")
    text = made.render(title="One of everything", evil=EVIL, long="x" * 10_000, wide=wide, bars=bars)
    page.write_text(text, encoding="utf-8")
    return page


def test_parts_fit_every_view(chromium: Browser, parts: Path) -> None:
    assert not browser.looked_at(chromium, parts.as_uri(), parts.parent)


def test_the_stylesheet_is_let_in(chromium: Browser, parts: Path) -> None:
    with browser.opened(chromium, parts.as_uri()) as seen:
        assert seen.page.evaluate("getComputedStyle(document.querySelector('.facts')).display") == "grid"


def test_a_policy_stops_what_would_ask_or_run(chromium: Browser, parts: Path, tmp_path: Path) -> None:
    """What came through escaping, if anything did: no request leaves, no script runs, no style of its own counts."""
    poison = (
        "<img src='http://example.invalid/a.png'><script>document.title='run'</script><p id=p style='color:red'>p</p>"
    )
    page = tmp_path / "poisoned.html"
    page.write_text(parts.read_text(encoding="utf-8").replace("<h2>Words", poison + "<h2>Words"), encoding="utf-8")
    with browser.opened(chromium, page.as_uri()) as seen:
        assert seen.page.title() == "One of everything"
        assert len([one for one in seen.messages if "Content Security Policy" in one]) >= 3
        assert seen.page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"


def test_the_keyboard_reaches_what_scrolls(chromium: Browser, parts: Path) -> None:
    with browser.opened(chromium, parts.as_uri(), 390) as seen:
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.className") == "skip"
        for _ in range(20):
            seen.page.keyboard.press("Tab")
            if seen.page.evaluate("document.activeElement.className") == "scroll":
                break
        width = seen.page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "3px"


@pytest.fixture(scope="module")
def shown(ward: Path) -> list[str]:
    """What notebooks show of a release, an answer, verification and the like."""
    release = ward / "ill.duckdb"
    with privsql.open(release) as opened:
        sizes = opened.query("SELECT disease, COUNT(*) AS n FROM ill GROUP BY disease")
        found: list[Any] = [opened, sizes, privsql.verify(release)]
        found += [make(ward) for make in PICTURES.values()]
        return [thing._repr_html_() for thing in found if hasattr(thing, "_repr_html_")]


def test_notebooks_show_it_on_any_ground(chromium: Browser, shown: list[str], tmp_path: Path) -> None:
    """A notebook's page has a ground and a text colour of its own, which what is shown takes."""
    page = tmp_path / "notebook.html"
    ground = ":root{color-scheme:light dark}body{font:13px sans-serif}.cell{overflow-x:auto}"
    cells = "".join(f'<div class="cell" tabindex="0">{one}</div>' for one in shown)
    page.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Cells</title><style>{ground}</style>'
        f"<main><h1>Cells</h1>{cells}</main></html>",
        encoding="utf-8",
    )
    assert not browser.looked_at(chromium, page.as_uri(), tmp_path)
