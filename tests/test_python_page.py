"""Every snippet of docs/python.md runs, in order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import privsql
from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_speaks_of_every_public_name() -> None:
    others = {"__version__", "algorithms", "differential", "Workload", "Release"}
    shown = {"Answer", "Attacked", "Evaluated", "Published", "Report", "Verified"}  # what verbs give back
    assert [name for name in privsql.__all__ if name not in others | shown and name not in PAGE] == []


@pytest.mark.slow
def test_every_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/python.md", "exec"), names)  # noqa: S102 (our own page)
    assert len(SNIPPETS) >= 7
    assert not privsql.verify(names["release"], names["people"].assign(age=3)).ok
