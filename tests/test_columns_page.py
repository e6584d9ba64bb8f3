"""Every command and statement of docs/columns.md runs, in order, in one folder."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from support.commands import refused, rows, run, succeeded, write
from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "columns.md").read_text(encoding="utf-8"), flags=re.DOTALL)
PEOPLE = (
    "SELECT 18 + i % 60 AS age, ['A01', 'B20', 'J45', 'K70', 'Z00'][1 + (i * i + i // 7) % 5] AS code, "
    "50 + i % 31 AS weight, i % 4 AS bid, DATE '2019-06-01' + CAST(i % 700 AS INTEGER) AS since, "
    "['Paris', 'Lyon', 'Bonn'][1 + i % 3] AS city, i % 2500 AS patient FROM range(3000) t(i)"
)


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.parquet", PEOPLE)
    ran, specs = [], list[str]()
    for kind, text in BLOCKS:
        for line in text.splitlines() if kind == "sh" else [text]:
            if kind == "sh":
                ran.append(succeeded(*shlex.split(line)[1:]).out)
            elif kind == "sql":
                assert rows(tmp_path / "ill.duckdb", text)
            else:
                source = "" if "[source]" in text else '[source]\nfile = "people.parquet"\n'
                specs.append(f'{source}{text}\n[mechanism]\nthreshold = "0.5"\n')
    assert "qit.bid_ is its bid" in ran[1].replace("\n", "")
    first = f'{specs.pop()}[columns]\nquasi_identifiers = ["age"]\nsensitive = "code"\n'
    (tmp_path / "first.toml").write_text(first, encoding="utf-8")
    assert succeeded("plan", "first.toml", "--json").json["records"] == 2500
    for release, text in zip(("coarse", "one"), specs, strict=True):
        (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
        succeeded("verify", f"{release}.duckdb", "--source", "spec.toml")
    refused(run("query", "coarse.duckdb", "SELECT COUNT(*) FROM people WHERE age BETWEEN 30 AND 42"), 2, "in bins of 5")
