"""The only door to an engine: whoever needs a database asks here, and gets what ``privsql.engine.database`` promises.

A further engine is one file beside ``duck/`` that provides ``Warehouse`` (and so ``Relations``), ``sql/ENGINE/`` for
what is not portable, and its line here. Releases are DuckDB files whatever the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.duck.connection import Connection
from privsql.engine.duck.opened import opened
from privsql.engine.duck.warehouse import DuckWorkshop

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.engine.database import Opened, Workshop
    from privsql.engine.duck.connection import Settings
    from privsql.engine.progress import Options


def workshop(spill: Path, options: Options) -> Workshop:
    """An empty session that spills to ``spill``."""
    settings: Settings = {"temp_directory": str(spill)}
    if options.memory_limit:
        settings["memory_limit"] = options.memory_limit
    if options.threads:
        settings["threads"] = str(options.threads)
    return DuckWorkshop(Connection(settings, options.report))


def scratch() -> Workshop:
    """An empty session for small things."""
    return DuckWorkshop(Connection())


def unlocked(path: Path) -> Opened:
    """A release opened read-only: a file, or a folder of Parquet files. ``EngineError`` if it can't be read.

    Call ``lock`` before anything of an analyst's runs.
    """
    return opened(path, None)
