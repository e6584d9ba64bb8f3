"""Pages: whatever is filled in is escaped, cleaned and cut; nothing is asked of anybody; the policy fits the style."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from importlib import util
from pathlib import Path

import jinja2
import pytest

from privsql import system
from privsql.errors import EngineError
from privsql.pages import rendering
from support.markup import EVIL, Seen

BASE = rendering.render_page("base.html", title=EVIL)


def test_titles_are_escaped_and_nothing_runs() -> None:
    seen = Seen(BASE)
    assert "script" not in seen.tags
    assert EVIL in seen.text
    assert "alert" not in re.sub(r"&lt;script&gt;alert", "", BASE)


def test_the_policy_lets_in_the_one_style_and_nothing_else() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", BASE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', BASE)
    rules = dict(one.split(" ", 1) for one in unescape(policy).split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "style-src", "img-src", "base-uri", "form-action"}


def test_the_style_asks_for_nothing() -> None:
    assert not re.search(r"url\(|@import|</|expression|\r", rendering.read_stylesheet())


def test_every_value_is_cleaned_and_cut() -> None:
    long = rendering.render_page("base.html", title="x" * 50_000)
    assert len(long) < len(BASE) + 3 * rendering.LONGEST
    turned = rendering.render_page("base.html", title="a\u202eb\x00c")
    assert "\u202e" not in turned
    assert "\x00" not in turned
    assert "a\ufffdb\ufffdc" in turned
    assert rendering.shorten_text("<b>" * 50).startswith("<bdi>&lt;b&gt;")
    assert len(Seen(rendering.shorten_text("y" * 10_000)).text) == rendering.SHORT


def test_lines_to_copy_stay_whole() -> None:
    text = f"-- {EVIL}\n" + "z" * 10_000
    assert Seen(str(rendering.as_code(text))).text == text
    assert rendering.as_code("SELECT\n\t1\b") == "SELECT\n\t1\ufffd"


def test_what_a_template_names_must_be_given() -> None:
    with pytest.raises(jinja2.UndefinedError, match="title"):
        rendering.render_page("base.html")


@pytest.mark.parametrize(
    "name", ["../rendering.py", "/etc/passwd", "..%2frendering.py", "style.css/../../rendering.py"]
)
def test_templates_come_from_the_package_alone(name: str) -> None:
    with pytest.raises(jinja2.TemplateNotFound):
        rendering.render_page(name, title="")


def test_every_template_parses_and_holds_no_script() -> None:
    folder = Path(rendering.__file__).parent / "templates"
    for path in folder.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        rendering._make_environment().get_template(path.name)
        assert not re.search(r"<script|javascript:|\son\w+=|style=|\|\s*safe|https?://(?!www\.w3\.org/)", text), path


def test_without_jinja_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    there = util.find_spec
    monkeypatch.setattr(system, "find_spec", lambda name: None if name == "jinja2" else there(name))
    with pytest.raises(EngineError, match=r"pip install 'privsql\[plot\]'"):
        rendering.render_page("base.html", title="")
