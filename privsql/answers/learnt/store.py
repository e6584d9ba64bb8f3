"""What releases taught, kept in the user's cache, so that it is learnt once: ``PRIVSQL_CACHE``, or the system's place.

A file is named after what was learnt from, and is only ever an acceleration: where none can be read, or what it holds
is not what learning could have found, the release is asked again; where none can be written, it is asked every time.
It holds a digest and the numbers that it is of; nothing in it is executed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privsql import system
from privsql.answers.learnt.strengths import STRENGTHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.channel import Floats

VARIABLE = "PRIVSQL_CACHE"
OFF = "off"
CACHE = {"darwin": "Library/Caches", "win32": "AppData/Local"}  # elsewhere that of the XDG standard
ENDING = ".learnt"
DIGEST = 32  # bytes
LARGEST = 2**26  # bytes of a file
MOST = 200  # files; the oldest ones go
ABSURD = 1e6  # shares deviate by less than one
ROUNDING = 1e-9  # of the largest number

Weights = dict[str, tuple["Floats", "Floats"]]


def place() -> Path | None:
    """The folder; None where it is switched off, or there is no place for one."""
    given = os.environ.get(VARIABLE)
    if given == OFF:
        return None
    if given:
        return Path(given).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))  # a relative one is to be ignored
    try:
        folder = cache if cache.is_absolute() else Path.home() / CACHE.get(sys.platform, ".cache")
    except RuntimeError:
        return None
    return folder / "privsql"


def kept(name: str, values: int, columns: Sequence[str]) -> tuple[Floats, Weights] | None:
    """K (m, m) and the weights by column; None unless a file holds exactly what learning could have found."""
    folder, names = place(), ["", *columns]
    content = _content(folder / f"{name}{ENDING}") if folder is not None else None
    if content is None or len(content) != DIGEST + 8 * (values**2 + 2 * len(STRENGTHS) * len(names)):
        return None
    if hashlib.blake2b(content[DIGEST:], digest_size=DIGEST).digest() != content[:DIGEST]:
        return None
    numbers = np.frombuffer(content[DIGEST:], dtype="<f8").astype(np.float64)
    covariance = numbers[: values**2].reshape(values, values)
    weights = numbers[values**2 :].reshape(len(names), 2, len(STRENGTHS))
    if not (_is_covariance(covariance) and _are_weights(weights)):
        return None
    return covariance, {name: (one[0], one[1]) for name, one in zip(names, weights, strict=True)}


def keep(name: str, covariance: Floats, weights: Weights) -> None:
    """Write them down if that is possible; the weights of all columns, those for all of them first."""
    folder = place()
    if folder is None:
        return
    numbers = np.concatenate([covariance.ravel(), *(part for pair in weights.values() for part in pair)])
    content = numbers.astype("<f8").tobytes()
    content = hashlib.blake2b(content, digest_size=DIGEST).digest() + content
    if len(content) > LARGEST:
        return
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(prefix=f".{name}.", dir=folder)  # of mode 0600
        draft = Path(path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            draft.replace(folder / f"{name}{ENDING}")
        finally:
            draft.unlink(missing_ok=True)
        _sweep(folder)


def _content(path: Path) -> bytes | None:
    """A file of this user's own; no link, and nothing that waits."""
    try:
        descriptor = system.opened(path, os.O_RDONLY | system.AT_ONCE)
    except OSError:
        return None
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or not system.is_own(seen) or seen.st_size > LARGEST:
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(LARGEST)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_covariance(matrix: Floats) -> bool:
    if not (np.abs(matrix) <= ABSURD).all():
        return False
    least = -ROUNDING * float(np.abs(matrix).max(initial=0.0)) * len(matrix)
    return bool(np.array_equal(matrix, matrix.T) and np.linalg.eigvalsh(matrix).min(initial=0.0) >= least)


def _are_weights(weights: Floats) -> bool:
    return bool((weights >= 0).all() and np.allclose(weights.sum(axis=-1), 1, rtol=0, atol=ROUNDING))


def _sweep(folder: Path) -> None:
    files = sorted(folder.glob(f"*{ENDING}"), key=lambda file: file.stat().st_mtime)
    for file in files[:-MOST]:
        file.unlink(missing_ok=True)
