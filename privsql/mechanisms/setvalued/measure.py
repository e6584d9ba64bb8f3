"""How good a release of item sets is: counting queries by length, and its frequent item sets (paper, section 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.mechanisms.setvalued.holdings import utility

if TYPE_CHECKING:
    from privsql.mechanisms.setvalued.holdings import Holdings
    from privsql.model.estimate import Estimate

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # classes of queries: lengths up to this share of the longest record
SANITY = 0.001  # share of the records below which a true answer counts as that
TOPS = (20, 50, 100)
Asked = tuple[int, ...]


def classes(longest: int, queries: int, items: int, draw: np.random.Generator) -> list[tuple[float, list[Asked]]]:
    """Queries by class: lengths uniform in 1 .. share * longest, items uniform without repetition."""
    found = []
    for share in SHARES:
        most = min(max(1, int(share * longest + 1e-9)), items)
        lengths = draw.integers(1, most + 1, queries).tolist()
        asked = [tuple(sorted(draw.choice(items, length, replace=False).tolist())) for length in lengths]
        found.append((share, asked))
    return found


def by_class(share: float, truth: list[float], answers: list[Estimate], records: float) -> dict[str, Any]:
    """Mean relative error |est - true|/max(true, SANITY * records) of a class, and how often the interval held."""
    true = np.array(truth)
    estimate, low, high = (np.array([getattr(one, name) for one in answers]) for name in ("estimate", "low", "high"))
    errors = np.abs(estimate - true) / np.maximum(true, SANITY * records)
    return {
        "length_share": share,
        "queries": len(truth),
        "mean_relative_error": float(errors.mean()),
        "coverage": float(((low <= true + 1e-9) & (true <= high + 1e-9)).mean()),
    }


def tops(source: Holdings, release: Holdings) -> dict[str, float]:
    """Utility of the release's frequent item sets, by how many are asked for."""
    true, found = source.top(max(TOPS)), release.top(max(TOPS))
    return {str(number): utility(true, found, number) for number in TOPS}
