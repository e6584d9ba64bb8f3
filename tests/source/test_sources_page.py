"""The page on sources: its specifications are valid, its commands run, and its table leaves out no kind of source."""

from __future__ import annotations

import gzip
import re
import shlex
import tomllib
from typing import TYPE_CHECKING

import pytest

from privsql.engine.files import REMOTE
from privsql.source.places import Csv, Source
from privsql.source.spec import build
from support.commands import PEOPLE, succeeded, warehouse, write
from support.lite import copied
from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
SMALL = PEOPLE.format(n=200)


def test_every_specification_is_valid() -> None:
    given = [tomllib.loads(text) for kind, text in BLOCKS if kind == "toml"]
    assert len(given) >= 5
    for one in given:
        roles = {"columns": {"quasi_identifiers": ["age"], "sensitive": "disease"}, "mechanism": {"threshold": "0.5"}}
        assert build(one | roles).source


def test_every_key_and_option_is_named() -> None:
    keys = {*Source.model_fields} - {"id", "name", "query", "table", "frame"}  # frame: docs/python.md
    assert [key for key in (*keys, *Csv.model_fields) if f"`{key}" not in PAGE and f"{key} = " not in PAGE] == []
    assert set(REMOTE.values()) == {"httpfs", "azure"}


@pytest.mark.slow
def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _tables(tmp_path)
    commands = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    assert len(commands) >= 7
    for command in commands:
        assert command.startswith("privsql ")
        succeeded(*shlex.split(command)[1:])


def _tables(folder: Path) -> None:
    """The tables that the commands speak of."""
    for name in ("specs", "stays/year=2020", "stays/year=2021"):
        (folder / name).mkdir(parents=True)
    write(folder / "people.csv", SMALL)
    (folder / "people.csv.gz").write_bytes(gzip.compress((folder / "people.csv").read_bytes()))
    (folder / "people.csv").rename(folder / "people.txt")
    for year in (2020, 2021):
        write(folder / "stays" / f"year={year}" / "x.parquet", SMALL)
    lines = [f"{60 + n % 9},5;{'Fußpilz' if n % 2 else 'flu'}" for n in range(100)]
    (folder / "german.csv").write_text("\n".join(["height;disease", *lines, ""]), encoding="latin-1")
    warehouse(folder / "w.duckdb", "CREATE SCHEMA analytics", f"CREATE TABLE analytics.people AS {SMALL}")
    copied(folder / "w.sqlite", "people", SMALL)
