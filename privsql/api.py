"""The verbs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from privsql import ledger as ledgers
from privsql.database import FILE_KINDS
from privsql.engine.duck import scratch, unlocked
from privsql.errors import EngineError, UsageError
from privsql.evaluating import Evaluated, Workload, evaluate
from privsql.mechanisms.setvalued.parameters import PROPOSED
from privsql.propose import feasible, propose, propose_cells, propose_sets
from privsql.publishing import Published, plan, publish
from privsql.reader import Release, inspect, query
from privsql.registry import of
from privsql.sqlfiles import temp
from privsql.verifying import Verified, verify
from privsql.workroom import Options, beside, workroom, workshop_in

if TYPE_CHECKING:
    from privsql.spec import Spec

__all__ = [
    "Evaluated", "Options", "Published", "Release", "Verified", "Workload", "beside", "evaluate", "init", "inspect",
    "itemsets", "ledger", "plan", "publish", "query", "synthesize", "verify", "workroom",
]  # fmt: skip


def itemsets(path: Path, *, top: int = 20, estimator: str = "reconstructed") -> list[tuple[list[str], float]]:
    """The ``top`` most frequent item sets of a release, each with its estimated number of records.

    Raises ``UsageError`` for a release of another kind.
    """
    if top < 1:
        raise UsageError(f"--top {top} must be at least 1")
    with Release(path) as release:
        sets = release.item_sets
        if estimator not in ("reconstructed", "baseline"):
            raise UsageError(f"estimator {estimator!r} is not one of reconstructed, baseline")
        holdings = sets.counted if estimator == "baseline" else sets.holdings
        return [([sets.labels[code] for code in chosen], support) for chosen, support in holdings.top(top)]


def synthesize(path: Path, to: Path) -> int:
    """Write (record, item) rows of synthetic records that give about a release's estimates, as Parquet; how many rows.

    They are made from the release alone. Raises ``UsageError`` for a release of another kind, or if ``to`` exists.
    """
    if to.suffix != ".parquet" or to.exists():
        raise UsageError(f"--synthetic {to}: must be a new file that ends in .parquet")
    with Release(path) as release, scratch() as db:
        made = release.item_sets.synthetic()
        db.put("synthetic", made)
        db.export(temp("synthetic"), to)
        return int(made.num_rows)


def ledger(spec: Spec) -> list[ledgers.Entry]:
    """What the ledger of a source holds, oldest release first; ``UsageError`` if there is none."""
    return ledgers.listed(spec)


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
