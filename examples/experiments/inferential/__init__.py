"""Wang, Wang, Fu, Wong: Inferential or Differential: Privacy Laws Dictate; sections 2 and 7."""

from __future__ import annotations

from experiments.inferential import buckets, counts, durations, ratios  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "buckets", "counts", "durations", "ratios"]

OPENING = """\
The paper measures on two tables that were drawn from a census of the United States, OCC and EDU, of up to 500,000
records; neither is to be had. Two tables of the American Community Survey of 2015 (California) stand beside them: the
same columns, with more birthplaces, occupation in 50 classes and education in 14; EDU has no occupation. Their
frequencies are less skewed, so two generated tables whose frequencies have the paper's range, 0.18 % to 7.5 % and
0.44 % to 27.3 %, stand beside them: every record of those is invented, and nothing is learnt of people from them.

Errors of counts are those of the paper's formula (`--estimator baseline`), of the *linear* estimator, by which privsql
answers at first, and of the *model*, by which it answers after `privsql fit`. They are sums over the weights of each
estimator. privsql answers two queries of each kind in SQL as well, and the run stops if these differ."""
NOT_HERE = {
    "Table 1": "an example of four records, that a conditional probability is disclosed; Theorem 2 is measured instead",
    "Table 2": "its two buckets",
    "Table 4": "the parameters of all figures, which are those of Figures 4 to 7 here",
    "Table 5": "the columns of the paper's table and their numbers of values; the survey's differ in birthplace (215)",
    "Figure 1": "a drawing of records dealt in turns (Example 4.20), which a test has; its captions change places",
}
