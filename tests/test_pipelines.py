"""The snippets of docs/pipelines.md: cron's line and the Makefile run, the others are read by their own languages."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.commands import PEOPLE, write
from support.places import ROOT

PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(cron|make|yaml)\n(.*?)```", PAGE, flags=re.DOTALL))
SPEC = """
[source]
file = "{folder}/people.parquet"
[columns]
quasi_identifiers = ["age", "sex"]
sensitive = "disease"
[mechanism]
algorithm = "two-size"
threshold = "{threshold}"
[release]
name = "clinic"
to = "{folder}/clinic.duckdb"
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    (tmp_path / "spec.toml").write_text(SPEC.format(folder=tmp_path, threshold="1/2"))
    return tmp_path


def shell(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", command], cwd=place, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_line_of_cron_hands_out_what_was_verified(clinic: Path) -> None:
    """And keeps the last one where the next can't be made."""
    command = BLOCKS["cron"].split(maxsplit=5)[5].replace("/srv/clinic", str(clinic))
    done = shell(command, clinic)
    assert (done.returncode, done.stderr) == (0, "")
    public = (clinic / "public.duckdb").read_bytes()
    (clinic / "spec.toml").write_text(SPEC.format(folder=clinic, threshold="1/50"))
    done = shell(command, clinic)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert (clinic / "public.duckdb").read_bytes() == public


@pytest.mark.slow
def test_make_publishes_once_and_verifies(clinic: Path) -> None:
    (clinic / "Makefile").write_text(BLOCKS["make"])
    assert shell("make verified", clinic).returncode == 0
    assert "up to date" in shell("make verified", clinic).stdout
    (clinic / "spec.toml").write_text(SPEC.format(folder=clinic, threshold="1/50"))
    os.utime(clinic / "spec.toml", (2**31, 2**31))
    assert "Error 3" in shell("make verified", clinic).stderr


def test_other_snippets_can_be_read() -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        ast.parse(code)
    steps = yaml.safe_load(BLOCKS["yaml"])["jobs"]["verify"]["steps"]
    assert steps[-1]["run"] == "privsql verify clinic.duckdb --json"
