"""What needs a browser is collected where ``tests/browser.sh`` made its environment, and is no part of other runs."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

THERE = find_spec("playwright") is not None and find_spec("axe_playwright_python") is not None
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
collect_ignore_glob = [] if THERE and CHROMIUM else ["test_*.py"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a process."""
    from support import browser

    with browser.browser() as made:
        yield made
