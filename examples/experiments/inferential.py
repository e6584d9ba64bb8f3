"""Wang, Wang, Fu, Wong: Inferential or Differential: Privacy Laws Dictate; sections 2 and 7."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.common import Axes, Point, experiment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench
    from experiments.data import Table

OPENING = """\
The paper measures on two tables that were drawn from a census of the United States, OCC and EDU, of up to 500,000
records; neither is to be had. Two tables of the American Community Survey of 2015 (California) stand beside them: the
same columns, with more birthplaces, occupation in 50 classes and education in 14; EDU has no occupation. Their
frequencies are less skewed, so two generated tables whose frequencies have the paper's range, 0.18 % to 7.5 % and
0.44 % to 27.3 %, stand beside them: every record of those is invented, and nothing is learnt of people from them."""
NOT_HERE = {
    "Table 1": "an example of four records, that a conditional probability is disclosed; Theorem 2 is measured instead",
    "Table 2": "its two buckets",
    "Figure 1": "a drawing of records dealt in turns (Example 4.20), which a test has; its captions change places",
}
TABLES = ("acs_occ", "acs_edu", "like_occ", "like_edu")
SENSITIVE = {name: "occupation" if name.endswith("occ") else "education" for name in TABLES}
PANELS = {
    "acs_occ": "OCC",
    "acs_edu": "EDU",
    "like_occ": "OCC, generated in the paper's range",
    "like_edu": "EDU, generated in the paper's range",
}
QUASI = ("age", "sex", "education", "marital", "race", "work_class", "birthplace")
THETAS = (2, 4, 8, 16, 32)
PLUS = Fraction(1, 50)
NEEDED = "needed by F'-privacy"


def frequencies(table: Table, column: str) -> list[tuple[object, int]]:
    """The values of a column with their numbers of records, most frequent first."""
    counted = pc.value_counts(pq.read_table(table.path, columns=[column])[column].combine_chunks())
    pairs = [(one["values"], int(one["counts"])) for one in counted.to_pylist()]
    return sorted(pairs, key=lambda pair: (-pair[1], str(pair[0])))


@experiment(
    name="inferential-frequencies",
    paper_name="inferential",
    places=("Figure 2",),
    title="frequency distribution of the sensitive attribute",
    says="Of 300,000 records, occupation ranges from 0.18 % to 7.5 %, education from 0.44 % to 27.3 % (section 7.1).",
    differs="The ends of the paper's ranges are marked at the first and the last rank. The survey's columns are "
    "regrouped from finer codes, and their rarest classes are larger (0.92 % and 1.28 %); the generated tables fall "
    "geometrically between the paper's ends.",
    parameters="All records",
    data=TABLES,
    axes=Axes("value, by rank", "share of the records", mark="bar", percent=True),
    over={"table": TABLES},
    paper={
        (PANELS[f"{kind}_{table}"], "frequency", rank): share
        for kind in ("acs", "like")
        for table, rank, share in (
            ("occ", 1.0, 0.075),
            ("occ", 50.0, 0.0018),
            ("edu", 1.0, 0.273),
            ("edu", 14.0, 0.0044),
        )
    },
    table=False,
)
def distribution(bench: Bench, table: str) -> Iterator[Point]:
    """f_i by rank."""
    found = bench.table(table)
    for rank, (value, number) in enumerate(frequencies(found, SENSITIVE[table]), 1):
        yield Point("frequency", rank, number / found.records, PANELS[table], label=None, note=str(value))


@experiment(
    name="inferential-l",
    paper_name="inferential",
    places=("Figure 3",),
    title="the l of l-diversity that F'-privacy takes",
    says="F'-privacy is f'_i = min(1, θ f_i + 0.02); l-diversity that implies it has l = ceil(1 / min f'_i), which is "
    "large but for θ = 32. A solution has at most l = 1 / max f_i: none from l = 14 (OCC) and l = 4 (EDU) on.",
    differs="The paper's text gives no l; the marked values are its formula at its own minima, 0.18 % and 0.44 %. "
    "Those of the generated tables are about the same. The survey's rarest values are more frequent: l falls faster, "
    "and l-diversity exists from θ = 8 (OCC) and θ = 32 (EDU) on.",
    parameters="θ = 2, 4, 8, 16, 32",
    data=TABLES,
    axes=Axes("privacy coefficient θ", "l", x_scale="log2"),
    over={"table": TABLES, "theta": THETAS},
    small={"theta": (2, 32)},
    paper={
        (PANELS[f"{kind}_{table}"], NEEDED, float(theta)): float(ceil(1 / (theta * least + PLUS)))
        for kind in ("acs", "like")
        for table, least in (("occ", Fraction("0.0018")), ("edu", Fraction("0.0044")))
        for theta in THETAS
    },
)
def diversity(bench: Bench, table: str, theta: int) -> Iterator[Point]:
    """L against theta, beside the largest l that the table allows."""
    found = bench.table(table)
    counts = [Fraction(number, found.records) for _, number in frequencies(found, SENSITIVE[table])]
    panel = PANELS[table]
    yield Point(NEEDED, theta, ceil(1 / min(Fraction(1), theta * counts[-1] + PLUS)), panel)
    yield Point("largest that there is", theta, counts[0].denominator // counts[0].numerator, panel)
