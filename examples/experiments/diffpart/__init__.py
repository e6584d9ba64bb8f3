"""Chen, Mohammed, Fung, Desai, Xiong: Publishing Set-Valued Data via Differential Privacy; section 5, C and E."""

from __future__ import annotations

from experiments.diffpart import data, errors, runs  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "data", "errors", "runs"]

OPENING = """\
MSNBC is the paper's own table. STM, travel cards in Montreal, is private: a generated table stands in, whose figures
compare methods with each other, not with the paper's.

*The paper's sum* adds up the counts of the sets that hold a query's items. *Basic* adds noise to each of the 2^17
sets. *Views* is privsql's default, which is not in the paper. The error is
|estimate - truth| / max(truth, 0.1 % of the records)."""
NOT_HERE = {
    "Table 1, Figure 1": "the example",
    "Figure 2": "its partitions",
}
