"""Chaytor, Wang: Small Domain Randomization: Same Privacy, More Utility; section 6 and the worked examples."""

from __future__ import annotations

from experiments.small_domain import examples, partitions, queries  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "examples", "partitions", "queries"]

OPENING = """\
The paper measures on OCC and EDU, tables of up to 500,000 records drawn from a census of the United States, which are
not to be had. Two tables of the American Community Survey of 2015 (California) stand beside them, of 216,691 records
with 50 occupations and 304,720 with 14 classes of education: smaller sizes are samples, larger ones hold records more
than once, which leaves frequencies as they are. Where frequencies matter, generated tables in the paper's range stand
there, too.

*UP* is uniform perturbation of the whole table, *PP* perturbation partitioning, *Anatomy* the bucketization that the
paper compares with. *PP-paper* is the paper's own procedure, `algorithm = "pp-paper"`: one order by reverse
Cuthill-McKee and dynamic programming. PP is that of privsql, which never has a larger error bound: "PP, bound" takes
the smallest bound that is found, and the default within that limit the smallest expected error. Plain series are
answered by the paper's formulas (`--estimator baseline`), *reconstructed* ones through the channel. Bucketized releases
have a *linear* estimator, whose weights plain SQL uses, too, and a *model* (`privsql fit`). Sections that name neither
were measured before those, by reconstruction."""
NOT_HERE = {
    "Table 4": "notation",
    "Figure 1; Figures 9 and 10 of the thesis": "pseudo-code of balancing and its input; Example 2 has what comes out",
    "Figure 11 of the thesis": "the steps of its Example 7, whose groups before and after are above",
}
