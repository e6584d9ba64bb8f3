"""Reports in a browser: every mechanism, both kinds, a stranger's names, and paper."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import pytest

import privsql
from support import browser
from support import shelf as shelves
from support.commands import run
from support.markup import EVIL

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [*shelves.MECHANISMS, "folder"])
def test_a_page_to_hand_out_fits_every_view(chromium: Browser, shelf: Path, tmp_path: Path, name: str) -> None:
    page = tmp_path / "page.html"
    privsql.report(shelves.release_of(shelf, name), to=page)
    assert not browser.looked_at(chromium, page.as_uri(), tmp_path)


@pytest.mark.parametrize("name", ["bucketize", "setvalued"])
def test_an_internal_page_fits_every_view_and_says_so_on_paper(
    chromium: Browser, shelf: Path, tmp_path: Path, name: str
) -> None:
    folder, page = shelf, tmp_path / "page.html"
    privsql.report(shelves.release_of(folder, name), folder / f"{name}.toml", to=page)
    assert not browser.looked_at(chromium, page.as_uri(), tmp_path)
    with browser.opened(chromium, page.as_uri()) as seen:
        hidden = "getComputedStyle(document.querySelector('.every-page')).display"
        assert seen.page.evaluate(hidden) == "none"
        seen.page.emulate_media(media="print")
        assert seen.page.evaluate(hidden) == "block"
        assert seen.page.evaluate("getComputedStyle(document.querySelector('.every-page')).position") == "fixed"
        assert "INTERNAL" in seen.page.inner_text(".every-page")


def test_pictures_follow_the_scheme(chromium: Browser, shelf: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    privsql.report(shelves.release_of(shelf, "bucketize"), to=page)
    fills = []
    for scheme in browser.SCHEMES:
        with browser.opened(chromium, page.as_uri(), 1200, scheme) as seen:
            text = "getComputedStyle(document.querySelector('figure svg text')).fill"
            fills.append((seen.page.evaluate(text), seen.page.evaluate("getComputedStyle(document.body).color")))
    assert fills[0] != fills[1]
    assert fills[0][0] != fills[1][0]


def test_a_stranger_s_page_is_quiet(chromium: Browser, tmp_path: Path) -> None:
    """Names and values of scripts, marks of direction and great length: nothing runs, asks or spills over."""
    long = "\u202e\u05d0" + "x" * 10_000
    names = {f"q{EVIL}": 3, EVIL: 5, long: 2}
    people = pd.DataFrame({name: [f"{name[:200]}{long}{i % m}" for i in range(60)] for name, m in names.items()})
    quasi, sensitive, other = names
    page = tmp_path / "page.html"
    done = privsql.publish(
        people,
        qi=[quasi, other],
        sensitive=sensitive,
        threshold=0.5,
        seed=1,
        to=tmp_path / "a.duckdb",
        set={"release": {"name": EVIL}, "ledger": {"off": True}},
    )
    privsql.report(done, people, to=page)
    assert not browser.looked_at(chromium, page.as_uri(), tmp_path)


def test_a_release_that_was_changed_says_so_in_every_view(chromium: Browser, ward: Path, tmp_path: Path) -> None:
    release, page = tmp_path / "ill.duckdb", tmp_path / "page.html"
    shutil.copy(ward / "ill.duckdb", release)
    with duckdb.connect(str(release)) as db:
        db.execute("UPDATE st SET disease = '<script>alert(1)</script>' WHERE disease = 'HIV'")
    assert run("report", release, "--to", page).code == 1
    assert not browser.looked_at(chromium, page.as_uri(), tmp_path)
