"""Chen, Mohammed, Fung, Desai, Xiong: Publishing Set-Valued Data via Differential Privacy; section 5, C and E."""

from __future__ import annotations

from experiments.diffpart import data, errors, runs  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "data", "errors", "runs"]

OPENING = """\
This page is for readers of the paper. It repeats each of its figures and tables.

The paper measures on two tables. MSNBC has 989,818 visits to 17 page categories; we use the same one. STM has 1,210,096
travel cards of a week in Montreal over 1,012 stations; it is private. We generate a table in its place: as many cards
and stations, 4.87 stations a card on average (4.82 in STM) and 64 at most. Trips repeat: a card takes one of 3,000
routes, rarely more, and now and then a station of its own. Popular routes are far more frequent than others. Nobody
knows how near this table is to the real one. So its figures compare methods with each other, not with the paper's.

*The paper's sum* adds up the counts of the sets that hold a query's items. privsql answers by it, too, and adds an
interval. Queries are those of `privsql evaluate`, drawn once for all runs. Thresholds are privsql's own, which bound
the empty parts that pass; C1 = 2.75 and C2 = 6.75 are those of the authors' program. *Basic* adds noise to every one
of the 2^17 sets. *Views* is privsql's default algorithm, which is not in the paper. Over 1,012 stations it answers 200
queries of each class, in one run. The error is |estimate - truth| / max(truth, 0.1 % of the records)."""
NOT_HERE = {
    "Table 1, Figure 1": "the example's records and its taxonomy, which the budgets below are of",
    "Figure 2": "the partitions of the example, in the first experiment",
}
