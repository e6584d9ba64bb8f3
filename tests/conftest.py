"""Collects ``tests/sql/**/*.test``; each file is one test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support import sqllogic

if TYPE_CHECKING:
    import pytest

SQL_TESTS = Path(__file__).parent / "sql"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> sqllogic.File | None:
    """Collect the ``.test`` files."""
    if file_path.suffix == sqllogic.ENDING and file_path.is_relative_to(SQL_TESTS):
        return sqllogic.File.from_parent(parent, path=file_path)
    return None
