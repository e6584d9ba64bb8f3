"""The long parts of the tests: each has tests and is in the list, and no run but its own includes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from soak.__main__ import PARTS, SELECTED, SHARED, main
from soak.changes import CHANGES, HARMLESS, find_tests
from support.loops import REST
from support.places import ROOT

if TYPE_CHECKING:
    import pytest

MARKED = re.compile(r'\b(?:mark\.soak\(part|soak)="(\w+)"')


def test_every_part_has_tests_and_is_in_the_list() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    marked = {part for text in texts for part in MARKED.findall(text)} | {REST}
    assert marked | set(SELECTED) | {"changes"} == set(PARTS)


def test_the_list_names_every_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["soak", "--list"])
    assert main() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PARTS)


def test_other_runs_leave_the_parts_out(request: pytest.FixtureRequest) -> None:
    assert "not soak" in request.config.getini("addopts")[-1]
    for name in (".ci/run", "tests/engines.sh", "tests/browser.sh"):
        assert "slow or not slow" not in (ROOT / name).read_text(encoding="utf-8")


def test_properties_are_where_examples_are_shared() -> None:
    """Files whose number of examples depends on the run."""
    found = [path for path in (ROOT / "tests").rglob("test_*.py") if "support.effort" in path.read_text("utf-8")]
    assert {path.relative_to(ROOT).as_posix() for path in found} - {"tests/test_soak.py"} == set(SHARED)


def test_every_change_of_a_formula_can_be_made_and_has_tests() -> None:
    for one in CHANGES:
        assert (ROOT / one.file).read_text(encoding="utf-8").count(one.old) == 1, one
        assert find_tests(ROOT, one.file), one
    assert {one.breaks for one in CHANGES} >= set(HARMLESS)
