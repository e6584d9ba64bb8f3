"""The lock files hold what the package asks for, pinned and with hashes."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise

import pytest
from packaging.requirements import Requirement

from support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
TESTS = [*PROJECT["dependencies"], *EXTRAS["dp"], *EXTRAS["plot"], *EXTRAS["test"]]
LOCKS = {
    "requirements.lock": PROJECT["dependencies"],
    "tests/requirements.lock": TESTS,
    "tests/engines.lock": [*TESTS, *EXTRAS["spark"], *EXTRAS["postgres"]],
}


def pinned(name: str) -> dict[str, set[str]]:
    """Versions by package; fails where one has no hash."""
    found: dict[str, set[str]] = {}
    text = re.sub(r"\\\n", " ", (ROOT / name).read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            exact = re.match(r"([\w.-]+)==(\S+)", line)
            assert exact, f"{name}: {line[:80]} is not pinned"
            assert "--hash=sha256:" in line, f"{name}: {exact[1]} has no hash"
            found.setdefault(exact[1].lower().replace("_", "-"), set()).add(exact[2])
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_locks_fit_the_project(name: str) -> None:
    held = pinned(name)
    asked = [Requirement(text) for text in LOCKS[name]]
    wrong = [
        f"{one.name}: {held.get(one.name.lower(), 'missing')}"
        for one in asked
        if not held.get(one.name.lower()) or not all(one.specifier.contains(v) for v in held[one.name.lower()])
    ]
    assert not wrong, wrong
    assert "hatchling" in held  # what builds the package, without an isolated environment of its own


def test_each_lock_agrees_with_the_next() -> None:
    for first, second in pairwise(map(pinned, LOCKS)):
        assert {name: second.get(name) for name in first} == first
