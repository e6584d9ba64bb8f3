"""Collects ``tests/sql/**/*.test``, each file one test; makes a release of every mechanism once, read only.

Every test and every shared fixture has a ledger of its own, which is thrown away, as are models of releases.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import support.census
import support.commands
import support.firm
import support.hospital
import support.office
import support.shop
import support.town
from privsql.releases import fitted
from support import effort, engines, ledgers, sqllogic
from support.shelf import make_once, publish_shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.office import Office

SQL_TESTS = Path(__file__).parent / "sql"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/sql --engine spark``."""
    parser.addoption(
        "--engine", choices=engines.ENGINES, default="duckdb", help="what makes the relations of tests/sql"
    )
    parser.addoption("--regenerate", action="store_true", help="store what test_golden.py and test_python.py find")


def pytest_configure(config: pytest.Config) -> None:
    """Say how much is wanted before the test files are imported; one Java, or server, does for all of them."""
    if config.getoption("engine") != "duckdb":
        config.option.dist, config.option.tx = "no", []
    effort.configure(config)
    config.pluginmanager.register(ledgers.Ledgers())
    os.environ[fitted.VARIABLE] = str(Path(ledgers.FOLDER.name) / "cache")
    os.environ[fitted.FITTING] = fitted.OFF  # tests that fit say so
    settings.register_profile("untimed", deadline=None)  # an example may take longer where the machine is busy
    settings.load_profile("untimed")
    # Rewriting the asserts and compiling privsql takes longer than importing it, in every worker and every subprocess.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """What was collected stays, and is no longer walked through for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


def pytest_unconfigure() -> None:
    """What was collected goes before Python ends, as libraries expect that count what they leave behind."""
    gc.unfreeze()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> sqllogic.File | None:
    """Collect the ``.test`` files."""
    others = parent.config.getoption("engine") != "duckdb" and file_path.is_relative_to(SQL_TESTS / "duckdb")
    if file_path.suffix == sqllogic.ENDING and file_path.is_relative_to(SQL_TESTS) and not others:
        return sqllogic.File.from_parent(parent, path=file_path)
    return None


@pytest.fixture(scope="session")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bucketized: a folder with a source, its specification and its release; read only."""
    return make_once(tmp_path_factory, "ward", support.commands.ward)


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Randomized: a folder with a source, its specification and its release; read only."""
    return make_once(tmp_path_factory, "hospital", support.hospital.made)


@pytest.fixture(scope="session")
def firm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Permuted: a folder with a source, its specification and its release; read only."""
    return make_once(tmp_path_factory, "firm", support.firm.made)


@pytest.fixture(scope="session")
def census(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a table whose numbers lie in bins, and a release of its marginals."""
    return make_once(tmp_path_factory, "census", support.census.made)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Item sets: a folder with a source, its specification and its release; read only."""
    return make_once(tmp_path_factory, "shop", support.shop.made)


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Contingency tables: a folder with a source, its specification and its release; read only."""
    return make_once(tmp_path_factory, "town", support.town.made)


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Office]:
    """Three releases of a growing table by an algorithm, made once; read only."""
    return functools.cache(lambda algorithm: support.office.grown(tmp_path_factory.mktemp("office"), algorithm))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The releases of ``tests/fixtures/shelf`` beside their sources and specifications; read only."""
    return make_once(tmp_path_factory, "shelf", publish_shelf)


@pytest.fixture
def lax() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    assert os.umask(before) == 0
