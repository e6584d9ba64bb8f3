"""Ledgers for tests, thrown away with what they publish: none ever writes to that of whoever runs the tests."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "PRIVSQL_LEDGER"
FOLDER = tempfile.TemporaryDirectory(prefix="privsql-tests-")
NUMBERS = itertools.count()


@contextmanager
def own() -> Iterator[None]:
    """A ledger that nobody has used, for subprocesses too. Its folder is made by whoever writes to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(Path(FOLDER.name) / str(next(NUMBERS)) / "ledger.duckdb"))
        yield


class Ledgers:
    """A plugin: every test has a ledger of its own, and so has every fixture that several tests share.

    It is registered by hand, for pytest asks the conftest of a folder about no fixture of the whole session.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """For what a test publishes."""
        with own():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """For what a fixture of several tests publishes."""
        if fixturedef.scope == "function":
            return (yield)
        with own():
            return (yield)
