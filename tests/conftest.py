"""Collects ``tests/sql/**/*.test``; each file is one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import shelf as shelves
from support import sqllogic

SQL_TESTS = Path(__file__).parent / "sql"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> sqllogic.File | None:
    """Collect the ``.test`` files."""
    if file_path.suffix == sqllogic.ENDING and file_path.is_relative_to(SQL_TESTS):
        return sqllogic.File.from_parent(parent, path=file_path)
    return None


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The releases of every format, unpacked beside their sources and specifications; read only."""
    return shelves.unpack(tmp_path_factory.mktemp("shelf"))
