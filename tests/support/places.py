"""Where things stand."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REAL = Path(os.environ.get("PRIVSQL_DATA", ROOT.parent / "shared" / "data"))
