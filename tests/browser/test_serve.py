"""The page of ``serve`` in a browser: choose, ask, read, download; by keyboard alone, and where scripts are off."""

from __future__ import annotations

import csv
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from privsql.figures import format_estimate
from support import browser
from support.commands import succeeded
from support.serving import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from support.browser import Seen

pytestmark = pytest.mark.slow
NAMES = ("bucketize", "randomize", "permute", "contingency", "setvalued")
ASKED = {
    "": "",
    "by-two": "bucketize?measure=count&by=2&by=1&c3=flu",
    "by-age": "bucketize?measure=count&by=0",
    "one": "permute?measure=avg.3&c0.from=30&confidence=0.8",
    "sets": "setvalued?measure=count&all=news&none=sport",
    "cells": "contingency?measure=count&by=0&by=1",
    "form": "randomize",
}


@pytest.fixture(scope="module")
def releases(shelf: Path) -> Path:
    return shelf


@pytest.fixture(scope="module")
def address(releases: Path) -> Iterator[str]:
    with served(*(releases / f"{name}.duckdb" for name in NAMES)) as found:
        yield found


@contextmanager
def at(made: Browser, where: str, **more: Any) -> Iterator[tuple[Page, Seen]]:
    """A page that says nothing to the console, and asks for nothing but itself."""
    with browser.opened(made, where, **more) as seen:
        yield seen.page, seen
        assert seen.strange_requests() == []


@pytest.mark.parametrize("what", ASKED)
def test_every_view_can_be_read(chromium: Browser, address: str, tmp_path: Path, what: str) -> None:
    """Both widths and schemes: nothing spills over, nothing is said to the console, no serious finding of axe."""
    assert not browser.looked_at(chromium, address + ASKED[what], tmp_path)


@pytest.mark.parametrize("scripts", [True, False])
def test_choose_ask_read_and_download(
    chromium: Browser, address: str, releases: Path, tmp_path: Path, scripts: bool
) -> None:
    """By mouse, from the list of releases to files that hold what ``privsql query`` says."""
    with at(chromium, address, java_script_enabled=scripts, accept_downloads=True) as (page, seen):
        browser.followed(page.get_by_role("link", name="people").first)
        page.get_by_role("checkbox", name="flu").check()
        page.get_by_text("age", exact=True).first.click()
        page.get_by_label("age from").fill("30")
        page.get_by_label("age to").fill("59")
        page.get_by_label("one line for each value of").select_option(label="sex")
        browser.followed(page.get_by_role("button", name="Ask", exact=True))
        assert page.url.endswith("#answer")
        assert "from=30" in page.url
        assert "null" not in page.url
        assert page.get_by_text(
            "How many records with age from 30 to 59; disease flu, for each value of sex."
        ).is_visible()
        sql = page.get_by_label("You can change the SQL").input_value()
        told = succeeded("query", releases / "bucketize.duckdb", sql, "--json").json
        rows = page.locator("#answer tbody tr")
        assert rows.count() >= len(told["rows"]) == 2
        assert f"{told['rows'][0]['estimate']:,.1f}" in rows.first.inner_text()
        assert page.get_by_role("checkbox", name="flu").is_checked()
        assert page.get_by_label("age to").input_value() == "59"
        for name in ("CSV", "JSON"):
            with page.expect_download() as coming:
                page.get_by_role("link", name=f"Download {name}").click()
            coming.value.save_as(tmp_path / name)
        assert json.loads((tmp_path / "JSON").read_text("utf-8")) == told
        with (tmp_path / "CSV").open(encoding="utf-8", newline="") as file:
            assert [row[0] for row in csv.reader(file)] == ["sex", "f", "m"]
        assert seen.messages == []


def test_the_estimator_is_chosen_and_stays(chromium: Browser, address: str, releases: Path) -> None:
    """By the literature's formula; in the words, in the lines to copy, and in the SQL that is asked next."""
    with at(chromium, address + "bucketize") as (page, _):
        page.get_by_role("checkbox", name="flu").check()
        page.get_by_label("one line for each value of").select_option(label="sex")
        page.get_by_label("Estimated by").select_option(label="literature's formula, certain bounds")
        browser.followed(page.get_by_role("button", name="Ask", exact=True))
        assert page.get_by_text("with disease flu, for each value of sex, by the literature's formula.").is_visible()
        assert page.get_by_text("low and high are certain").is_visible()
        assert "--estimator baseline" in page.get_by_label("in a shell").text_content()
        page.locator("#sql-title").click()
        page.get_by_label("You can change the SQL").fill(
            "SELECT sex, COUNT(*) FROM people WHERE disease = 'flu' GROUP BY 1"
        )
        browser.followed(page.get_by_role("button", name="Ask this SQL"))
        assert "estimator=baseline" in page.url
        sql = page.get_by_label("You can change the SQL").input_value()
        told = succeeded("query", releases / "bucketize.duckdb", sql, "--estimator", "baseline", "--json").json
        figures = (told["rows"][0][name] for name in ("estimate", "std_error", "low", "high"))
        shown = page.locator("#answer tbody tr").first.inner_text().split("\t")
        assert format_estimate(*figures)[3] in shown


def reached(page: Page, wanted: str, most: int = 80) -> None:
    """Press Tab until an element has the focus, which can be seen."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({wanted!r})"):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
            return
    pytest.fail(f"{wanted} can't be reached")


@pytest.mark.parametrize("width", [390, 1200])
def test_ask_is_in_sight_and_the_only_button(chromium: Browser, address: str, width: int) -> None:
    """On a screen of 900 pixels, before anything is scrolled; and what was chosen stays in the headings."""
    with at(chromium, address + "bucketize", width=width) as (page, _):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator("button:visible").all_inner_texts() == ["Ask"]
        box = page.get_by_role("button", name="Ask", exact=True).bounding_box()
        assert box is not None
        assert 0 <= box["y"] <= 900 - box["height"]
        page.get_by_role("checkbox", name="flu").check()
        browser.followed(page.get_by_role("button", name="Ask", exact=True))
        assert "flu" in page.locator("legend .chosen").inner_text()


def test_the_keyboard_is_enough(chromium: Browser, address: str) -> None:
    with at(chromium, address + "bucketize") as (page, seen):
        reached(page, "input[value=flu]")
        page.keyboard.press("Space")
        reached(page, "summary")
        page.keyboard.press("Enter")
        reached(page, "[name='c0.from']")
        page.keyboard.type("30")
        reached(page, "select[name=by]")
        page.keyboard.type("sex")
        reached(page, "button")
        page.keyboard.press("Enter")
        page.wait_for_url("**#answer")
        assert page.get_by_text("How many records with age from 30; disease flu, for each value of sex.").is_visible()
        reached(page, "a[href*='answer.csv']")
        reached(page, "#sql-title")
        page.keyboard.press("Enter")
        reached(page, "textarea")
        page.keyboard.press("Control+A")
        page.keyboard.type("SELECT COUNT(*) FROM people WHERE age < 30")
        reached(page, "button")
        page.keyboard.press("Enter")
        page.wait_for_url("**sql=SELECT**")
        assert page.locator(".headline").inner_text().endswith("exactly")
        assert seen.messages == []


def test_what_is_refused_says_why_and_keeps_the_question(chromium: Browser, address: str) -> None:
    with at(chromium, address + "bucketize") as (page, _):
        page.locator("#sql-title").click()
        page.get_by_label("You can change the SQL").fill("SELECT disease FROM people WHERE sex = '<b>'")
        browser.followed(page.get_by_role("button", name="Ask this SQL"))
        assert page.get_by_text("records can't be listed").is_visible()
        assert (
            page.get_by_label("You can change the SQL").input_value() == "SELECT disease FROM people WHERE sex = '<b>'"
        )
        page.get_by_text("age", exact=True).first.click()
        page.get_by_label("age from").fill("old")
        browser.followed(page.get_by_role("button", name="Ask", exact=True))
        assert page.get_by_text("age: 'old' is not a number").is_visible()
        assert page.get_by_label("age from").input_value() == "old"


def test_a_bookmark_and_the_way_back(chromium: Browser, address: str) -> None:
    with at(chromium, address + ASKED["sets"]) as (page, _):
        kept, said = page.url, page.locator(".headline").inner_text()
        browser.followed(page.get_by_role("link", name="Start again"))
        assert page.locator(".headline").count() == 0
        page.go_back()
        assert page.locator(".headline").inner_text() == said
        page.goto(kept)
        assert page.locator(".headline").inner_text() == said


def test_a_token_stays_out_of_the_address(chromium: Browser, releases: Path) -> None:
    with served(releases / "setvalued.duckdb", token=True) as place:
        bare = place.split("?")[0]
        with browser.opened(chromium, place) as seen:
            page = seen.page
            assert page.url == f"{bare}setvalued"
            browser.followed(page.get_by_role("button", name="Ask", exact=True))
            assert page.locator(".headline").is_visible()
            assert page.evaluate("document.cookie") == ""
        with browser.opened(chromium, bare) as seen:
            assert "with its token" in seen.page.inner_text("body")


@contextmanager
def stranger(body: str) -> Iterator[str]:
    """A page of somebody else's on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = body.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_no_other_page_reaches_it(chromium: Browser, address: str) -> None:
    """Neither by a link, a frame or a picture, nor by a script."""
    theirs = (
        f"<a href='{address}setvalued'>go</a><iframe src='{address}setvalued'></iframe>"
        f"<img src='{address}bucketize/picture.svg?measure=count&by=1'>"
        f"<script>fetch('{address}setvalued/answer.json?all=news').then(r => r.text()).then("
        "t => document.title = t, e => document.title = 'refused')</script>"
    )
    with stranger(theirs) as place, browser.opened(chromium, place) as seen:
        page = seen.page
        page.wait_for_function("document.title != ''")
        assert page.title() == "refused"
        assert page.evaluate("document.images[0].naturalWidth") == 0
        browser.followed(page.get_by_role("link", name="go"))
        assert "another page sent this request" in page.inner_text("body")
