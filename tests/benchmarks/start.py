"""How long the command line takes to start, and how much memory: against the bare ``import typer, rich``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BARE = ["-c", "import typer, rich"]
STARTS = {  # arguments and the seconds that they may take
    "--version": 0.25,
    "--help": 0.25,
    "verify --help": 0.3,
    "query --help": 0.3,
    "attack --help": 0.3,
    "publish --help": 0.3,
    "init --schema": 0.7,
}


def once(arguments: Sequence[str]) -> tuple[float, float, float]:
    """Seconds, seconds of CPU and MB of one process of Python."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def starts(runs: int) -> list[list[object]]:
    """Medians, by turns so that a busy machine slows down all of them: arguments, s, limit, CPU s, ratio, MB."""
    commands = {"import typer, rich": BARE} | {f"privsql {line}": ["-m", "privsql", *line.split()] for line in STARTS}
    measured = {name: [once(arguments)] for name, arguments in commands.items()}  # the first fills caches
    for _ in range(runs):
        for name, arguments in commands.items():
            measured[name].append(once(arguments))
    medians = {
        name: [statistics.median(part) for part in zip(*found[1:], strict=True)] for name, found in measured.items()
    }
    bare = medians["import typer, rich"][0]
    limits = [None, *STARTS.values()]
    return [
        [name, took, limit, cpu, took / bare, megabytes]
        for (name, (took, cpu, megabytes)), limit in zip(medians.items(), limits, strict=True)
    ]
