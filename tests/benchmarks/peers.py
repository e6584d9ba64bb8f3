"""Peers in an environment of their own, made when it is first needed: what they need is no dependency of privsql."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NEEDED = ("opendp[mbi]==0.15.1", "mbi==1.1.0", "pandas")  # AIM and MST of private-pgm, in OpenDP's dress
ALGORITHMS = ("AIM", "MST")
VARIABLE = "PRIVSQL_PEERS"  # a folder that keeps the environment
INSTALLING = 900  # seconds
SCRIPT = Path(__file__).with_name("peer.py")


class SkippedError(Exception):
    """A peer can't be installed, fails or does not end in time; the message says which."""


def python() -> Path:
    """The interpreter of the environment; ``SkippedError`` where it can't be made."""
    folder = Path(os.environ.get(VARIABLE, Path(tempfile.gettempdir()) / "privsql-peers"))
    found, done = folder / "bin" / "python", folder / f"installed {' '.join(NEEDED)}"
    if not done.exists():
        call([sys.executable, "-m", "venv", str(folder)], INSTALLING, "the environment can't be made")
        call([str(found), "-m", "pip", "install", "-q", *NEEDED], INSTALLING, f"{NEEDED[0]} can't be installed")
        done.touch()
    return found


def synthetic(
    algorithm: str,
    loss: tuple[str, float],
    table: Path,
    domains: Mapping[str, Sequence[int]],
    to: Path,
    seconds: float,
) -> dict[str, Any]:
    """Write synthetic rows; seconds and MB. ``SkippedError`` where that takes too long or fails.

    ``loss``: "epsilon" or "rho", and how much of it may be spent.
    """
    interpreter, keys = python(), to.with_suffix(".json")
    keys.write_text(json.dumps(domains), encoding="utf-8")
    apart = "-P"  # or modules beside the script would hide those of the library: numbers
    command = [str(interpreter), apart, str(SCRIPT), algorithm, *map(str, loss), str(table), str(keys), str(to)]
    return dict(json.loads(call(command, seconds, algorithm).splitlines()[-1]))


def call(command: Sequence[str], seconds: float, what: str) -> str:
    """What a command prints; ``SkippedError`` where it fails or does not end in time."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise SkippedError(f"{what}: not done in {seconds:.0f} s") from error
    if done.returncode:
        raise SkippedError(f"{what}: {_fault(done.stderr)}")
    return done.stdout


def _fault(text: str) -> str:
    """The line of a traceback that names the error, with the next one where it says nothing more."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["killed"]
    named = [at for at, line in enumerate(lines) if re.match(r"\w[\w.]*(Error|Exception)\b", line)]
    place = named[-1] if named else len(lines) - 1
    return " ".join(lines[place : place + 2] if lines[place].endswith(":") else lines[place : place + 1])[:160]
