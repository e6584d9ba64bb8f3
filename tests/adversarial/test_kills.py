"""Publications of every mechanism and format that are killed at random moments: ten of each in ``tests.soak``.

After each, what stands in the target's place is what stood there before or a whole new release, which verifies; the
ledger can be read; and in the end a publication goes through and nothing is left over.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from support.commands import left_over, succeeded
from support.statements import command, counted

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 10  # of each mechanism and format
SECONDS = 0.1  # after a statement has begun, at most
SEED = 4
SPECS = {"ward": "spec.toml", "hospital": "pp.toml", "firm": "spec.toml", "shop": "spec.toml", "town": "spec.toml"}


def content(target: Path) -> dict[str, bytes]:
    """What lies in the target's place."""
    files = sorted(target.rglob("*")) if target.is_dir() else [target]
    return {file.name: file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize(
    ("made", "form", "kills"),
    [
        pytest.param("ward", "duckdb", 4, marks=pytest.mark.slow),
        *(
            pytest.param(made, form, KILLS, marks=pytest.mark.soak(part="kills"))
            for made in SPECS
            for form in ("duckdb", "parquet")
        ),
    ],
)
def test_killed_at_any_moment(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, form: str, kills: int
) -> None:
    """Another key each time, so that what is new can be told from what was there."""
    for file in request.getfixturevalue(made).iterdir():
        if file.suffix in {".parquet", ".toml"} and file.is_file():
            shutil.copy(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    target = tmp_path / ("new" if form == "parquet" else "new.duckdb")
    asked = ["publish", SPECS[made], "--to", target, "--format", form, "--replace", "--nobody-has-it", "--seed"]
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        counted(patch, seen.append)
        succeeded(*asked, 0)
    draw, known, changed = random.Random(f"{SEED} {made} {form}"), content(target), 0  # noqa: S311 (no secret)
    for i in range(1, kills + 1):
        given: dict[str, Any] = command("kill", draw.randint(1, len(seen)), draw.uniform(0, SECONDS), *asked, i)
        done = subprocess.run(**given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        assert done.returncode in {-signal.SIGKILL, 0}
        if content(target) != known:
            assert succeeded("verify", target, "--json").json["ok"]
            known, changed = content(target), changed + 1
        assert succeeded("ledger", "--json").json
    assert changed < kills, "some are killed before they are done"
    succeeded(*asked, kills + 1)
    assert left_over(tmp_path) == []
