"""Chaytor, Wang: Small Domain Randomization: Same Privacy, More Utility; section 6 and the worked examples."""

from __future__ import annotations

from experiments.small_domain import examples, partitions, queries  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "examples", "partitions", "queries"]

OPENING = """\
This page is for readers of the paper and of the thesis. It repeats each of their figures, tables and examples.

The paper measures on OCC and EDU, tables of up to 500,000 records drawn from a census of the United States. They are
not available. We take two tables of the American Community Survey of 2015 (California) in their place: 216,691 records
with 50 occupations, and 304,720 with 14 classes of education. Smaller sizes are samples. Larger ones hold records more
than once, which leaves frequencies as they are. Where frequencies matter, we also measure on generated tables in the
paper's range.

*UP* is uniform perturbation of the whole table, *PP* perturbation partitioning, *Anatomy* the bucketization that the
paper compares with. *PP-paper* is the paper's own procedure, `algorithm = "pp-paper"`: one order by reverse
Cuthill-McKee and dynamic programming. *PP* is privsql's, which never has a larger error bound than that. *PP, bound*
takes the smallest bound that privsql finds; by default PP takes the smallest expected error within the paper's bound.

Series without an addition are answered by the papers' formulas (`--estimator baseline`), *reconstructed* ones by
inverting the channel. Bucketized releases have two more estimators: *linear*, whose weights plain SQL uses, too, and a
*model* (`privsql fit`). The figures by number of records are older: they have reconstruction in place of these two."""
NOT_HERE = {
    "Table 4": "notation",
    "Figure 1; Figures 9 and 10 of the thesis": "pseudo-code of balancing and its input; Example 2 has what comes out",
    "Figure 11 of the thesis": "the steps of its Example 7, whose groups before and after are above",
}
