"""Who may read and write a file."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    """The rights of a file or folder, as chmod takes them."""
    return stat.S_IMODE(path.stat().st_mode)
