"""Wang, Wang, Fu, Wong: Inferential or Differential: Privacy Laws Dictate; sections 2 and 7."""

from __future__ import annotations

from experiments.inferential import buckets, counts, durations, ratios  # in the order of the page

__all__ = ["NOT_HERE", "OPENING", "buckets", "counts", "durations", "ratios"]

OPENING = """\
The paper's tables OCC and EDU, of a US census, are not available. In their place stand the occupations (216,691
records) and the education (304,720) of the American Community Survey of 2015 (California), and generated tables of
300,000 records in the paper's range of frequencies. Other sizes are samples, or hold records more than once.

Estimators: the paper's formula (`--estimator baseline`), *linear*, and the *model* of `privsql fit`."""
NOT_HERE = {
    "Table 1": "an example; Theorem 2 is measured instead",
    "Table 2": "its two buckets",
    "Table 4": "parameters",
    "Table 5": "columns; the survey's differ in birthplace (215)",
    "Figure 1": "a drawing (Example 4.20), which a test has",
}
