"""What the experiments of small domain randomization share: tables, sizes, and what publishes a table in which way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import privsql

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

OCC = ("acs_occ", "like_occ")
PANELS = {
    "acs_occ": "OCC",
    "acs_edu": "EDU",
    "like_occ": "OCC, generated in the paper's range",
    "like_edu": "EDU, generated in the paper's range",
}
SIZES = (100_000, 200_000, 300_000, 400_000, 500_000)


def mechanism(way: str, rho1: Fraction, level: int) -> dict[str, Any]:
    """What publishes a table in some way, such that nobody's belief in a protected value rises above 1/level."""
    if way == "Anatomy":
        limits = {"excess": "suppress", "absence": "unobservable"}
        return {"kind": "bucketize", "algorithm": "anatomy", "threshold": f"1/{level}", **limits}
    name, _, objective = way.lower().partition(", ")
    asked = {"kind": "randomize", "algorithm": name, "rho1": str(rho1), "rho2": f"1/{level}"}
    return asked | ({"objective": objective} if objective else {})


def planned(counts: Sequence[int], asked: dict[str, Any]) -> dict[str, Any]:
    """The facts of a plan over a table of which only the counts of the sensitive values matter."""
    labels = [f"x{number:05d}" for number in range(1, len(counts) + 1)]
    table = pa.table({"qi": np.ones(sum(counts), dtype=np.int8), "sa": np.repeat(labels, counts)})
    return privsql.plan(table, sensitive="sa", qi="qi", set={"mechanism": asked, "ledger": {"off": True}}).facts
