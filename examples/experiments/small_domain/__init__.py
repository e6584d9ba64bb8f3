"""Chaytor, Wang: Small Domain Randomization: Same Privacy, More Utility; section 6 and the worked examples."""

from __future__ import annotations

from experiments.small_domain import examples, partitions, queries  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "examples", "partitions", "queries"]

OPENING = """\
[The survey's and generated tables](inferential.md) stand in for the paper's, which are not available.

*UP* perturbs the whole table, *PP* partitions first: *PP-paper* by the paper's procedure, *PP* (privsql's default) for
the smallest expected error within the paper's bound, *PP, bound* for the smallest bound. Answers are by the papers'
formulas, *reconstructed* by inverting the channel; *linear* and *model* are of buckets.

Queries are 200 random conditions on one to three columns with every sensitive value; those count that find at least
a share s of the records. Errors are means of |estimate - truth| / truth."""
NOT_HERE = {
    "Table 4": "notation",
    "Figure 1; Figures 9 and 10 of the thesis": "pseudo-code",
    "Figure 11 of the thesis": "steps of its Example 7",
}
