"""``init``: look at a source and propose a specification that can be published."""

from __future__ import annotations

import tempfile
from pathlib import Path

from privsql.engine.database import FILE_KINDS
from privsql.engine.open import unlocked
from privsql.engine.progress import Options
from privsql.errors import EngineError, UsageError
from privsql.mechanisms.registry import of
from privsql.mechanisms.setvalued.parameters import PROPOSED
from privsql.source.profile import feasible, propose, propose_cells, propose_sets
from privsql.verbs.room import workshop_in


def init(
    path: Path,
    *,
    table: str | None = None,
    sensitive: str | None = None,
    kind: str = "bucketize",
    options: Options | None = None,
) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and feasible parameters."""
    of(kind)
    options = options or Options()
    if table is None and path.suffix.lower() not in FILE_KINDS:
        table = _only_table(path)
    with tempfile.TemporaryDirectory(prefix="privsql-") as folder:
        with workshop_in(Path(folder), options) as db:
            if kind == "contingency":
                return propose_cells(db, path, table)
            if kind == PROPOSED["kind"]:
                return propose_sets(db, path, table, sensitive)
            proposed = propose(db, path, table, sensitive)
        with workshop_in(Path(folder), options) as db:
            return feasible(db, proposed, kind)


def _only_table(path: Path) -> str:
    if not path.is_file():
        raise EngineError(f"{path}: no such file")
    with unlocked(path) as db:
        names = [name for kind, name, _ in db.objects(None) if kind in ("table", "view")]
    if len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'no table'}; choose one with --table")
    return names[0]
