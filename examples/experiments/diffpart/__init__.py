"""Chen, Mohammed, Fung, Desai, Xiong: Publishing Set-Valued Data via Differential Privacy; section 5, C and E."""

from __future__ import annotations

from experiments.diffpart import data, errors, runs  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "data", "errors", "runs"]

OPENING = """\
The paper measures on MSNBC, the real set of 989,818 visits to 17 page categories that is used here, too, and on STM,
a week of 1,210,096 travel cards in Montreal over 1,012 stations, which is private. A generated table stands in for
that: as many cards and stations, 4.87 stations on average (4.82) and 64 at most, in which trips repeat: a card takes
one of 3,000 routes, popular ones far more often than others, rarely more than one, and now and then a station of its
own. Nobody knows how near that is to the real one, and figures of it compare methods with each other, not with the
paper's.

*The paper's sum* adds up the counts of the sets that hold a query's items; privsql answers by it, too, with an
interval. Queries are those of `privsql evaluate`, drawn once for all runs. Thresholds are privsql's own, which bound
the empty parts that pass; C1 = 2.75 and C2 = 6.75 are those of the authors' program. *Basic* adds noise to every one
of the 2^17 sets. *Views* is privsql's default algorithm, which is not in the paper; over 1,012 stations it is asked
200 queries of each class, in one run. Error is |estimate - truth| / max(truth, 0.1 % of the records)."""
NOT_HERE = {
    "Table 1, Figure 1": "the example's records and its taxonomy, which the budgets below are of",
    "Figure 2": "the partitions of the example, in the first experiment",
}
