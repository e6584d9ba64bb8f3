"""Wang, Wang, Fu, Wong: Inferential or Differential: Privacy Laws Dictate; sections 2 and 7."""

from __future__ import annotations

from experiments.inferential import buckets, counts, durations, ratios  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "buckets", "counts", "durations", "ratios"]

OPENING = """\
This page is for readers of the paper. It repeats each of its figures.

The paper measures on two tables drawn from a census of the United States, OCC and EDU, of up to 500,000 records. They
are not available. We take two tables of the American Community Survey of 2015 (California) in their place. They have
the same columns, with more birthplaces, 50 classes of occupation and 14 of education; EDU has no occupation. Their
frequencies are less skewed than the paper's. So we also generate two tables whose frequencies have the paper's range,
0.18 % to 7.5 % and 0.44 % to 27.3 %. Every record of these is invented.

Errors of counts are those of three estimators: the paper's formula (`--estimator baseline`), the *linear* estimator,
privsql's default, and the *model* that `privsql fit` makes. Answers are sums over the weights of an estimator. For two
queries of each kind the run compares them with privsql's answers in SQL, and stops if they differ."""
NOT_HERE = {
    "Table 1": "an example of four records, that a conditional probability is disclosed; Theorem 2 is measured instead",
    "Table 2": "its two buckets",
    "Table 4": "the parameters of all figures, which are those of Figures 4 to 7 here",
    "Table 5": "the columns of the paper's table and their numbers of values; the survey's differ in birthplace (215)",
    "Figure 1": "a drawing of records dealt in turns (Example 4.20), which a test has; its captions change places",
}
