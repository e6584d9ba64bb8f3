"""A release of 1,600 people whose jobs follow age and sex, with its model: a file, a folder, and a cache."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from support.commands import specification, succeeded, write
from support.shelf import make_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PEOPLE = """
SELECT CAST(i % 20 + 20 AS INTEGER) AS age, CASE WHEN i // 20 % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
  CASE WHEN i % 7 = 0 THEN NULL ELSE CAST(i % 50 AS INTEGER) END AS points,
  CAST(CASE WHEN i // 40 % 3 > 0 THEN i % 20 // 4 + 2 * (i // 20 % 2) ELSE (i * 7919 // 80) % 8 END AS INTEGER) AS job
FROM range(1600) t(i)
"""


def publish_and_fit(place: Path) -> None:
    """Write ``people.parquet``, publish it as ``t.duckdb`` and ``folder``, and fit a model into ``cache``."""
    write(place / "people.parquet", PEOPLE)
    columns = 'quasi_identifiers = ["age", "sex", "points"]\nsensitive = "job"'
    spec = specification(place, columns=columns, release='name = "t"\nto = "t.duckdb"', mechanism='threshold = "1/3"')
    succeeded("publish", spec, "--seed", 1, "--set", "ledger.off=true")
    succeeded("publish", spec, "--seed", 1, "--set", "ledger.off=true", "--format", "parquet", "--to", place / "folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVSQL_CACHE", str(place / "cache"))
        succeeded("fit", place / "t.duckdb", "--to", place / "t.json")


@contextmanager
def copy_fitted(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a copy of the worker's own of what ``publish_and_fit`` writes, whose cache is in use."""
    place = shutil.copytree(make_once(factory, "fitted", publish_and_fit), factory.mktemp("fitted") / "copy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVSQL_CACHE", str(place / "cache"))
        yield place
