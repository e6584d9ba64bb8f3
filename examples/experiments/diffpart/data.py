"""The tables, and the budgets of the worked example: Table 2, Figure 2."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

import privsql
from experiments.common import Axes, Point, experiment
from experiments.diffpart.settings import TABLES
from experiments.itemsets import COLUMNS, NAMES, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench

EXAMPLE = ("1234", "24", "2", "12", "2", "1", "1234", "234")  # Table 1: the items of each record


@experiment(
    name="diffpart-data",
    paper_name="diffpart",
    places=("Table 2",),
    title="the two tables",
    says="MSNBC: 989,818 records over 17 items, at most 17 and 1.72 on average; STM: 1,210,096 over "
    "1,012, at most 64 and 4.82.",
    differs="MSNBC is the same; STM is generated to these figures (4.87 on average).",
    parameters="All records",
    data=TABLES,
    axes=Axes("statistic", "number", x_scale="names", y_scale="log", mark="bar"),
    over={"table": TABLES},
    paper={
        (NAMES[table], NAMES[table], float(at)): value
        for table, values in {"msnbc": (989_818, 17, 17, 1.72), "stm": (1_210_096, 1012, 64, 4.82)}.items()
        for at, value in enumerate(values)
    },
    table=False,
)
def sizes(bench: Bench, table: str) -> Iterator[Point]:
    """Records, items, longest and mean record."""
    found = read(bench.table(table).path, COLUMNS[table])
    named = {
        "|D|": len(found.lengths),
        "|I|": len(found.items),
        "max |t|": found.lengths.max(),
        "avg |t|": found.lengths.mean(),
    }
    for at, (label, value) in enumerate(named.items()):
        yield Point(NAMES[table], at, float(value), NAMES[table], label)


@experiment(
    name="diffpart-budgets",
    paper_name="diffpart",
    places=("Figure 2", "Examples 4.2 and C.1"),
    title="budgets of the worked example",
    says="Fan-out 2 over four items: {I{1,2}, I{3,4}} and {I{1,2}, I3, I4} get B/6 each, {I1, I2} "
    "5B/6 and {I1, I2, I3, I4} 2B/3.",
    differs="The same, as `privsql_tree` states them.",
    parameters="B = 96, so that noise is next to none and every partition of the example is kept",
    data=(),
    axes=Axes("partition", "share of the budget", x_scale="names", mark="bar"),
    paper={("", "budget / B", float(at)): float(share) for at, share in enumerate((1 / 6, 1 / 6, 5 / 6, 2 / 3))},
    table=False,
)
def budgets(bench: Bench) -> Iterator[Point]:
    """What the counts of the example's partitions were drawn with, over B."""
    table = pa.table({"items": [[f"I{one}" for one in items] for items in EXAMPLE]})
    asked = {"kind": "setvalued", "algorithm": "diffpart", "epsilon": 96, "fan_out": 2, "c1": 1, "c2": 1}
    asked["universe"] = ["I1", "I2", "I3", "I4"]
    to = bench.releases / "example.duckdb"
    privsql.publish(
        table,
        to=to,
        seed=1,
        set={"mechanism": asked, "columns": {"items": "items"}, "release": {"name": "visits"}, "ledger": {"off": True}},
    )
    with duckdb.connect(str(to), read_only=True) as db:
        parts = db.execute("SELECT part, parent, node, budget FROM privsql_tree").fetchall()
        leaves = {part: sorted(items) for part, items in db.execute("SELECT part, items FROM itemsets").fetchall()}
    share = {part: Fraction(budget) / 96 for part, _, _, budget in parts if budget is not None}
    inner = [(part, parent) for part, parent, node, _ in parts if node is not None and parent is not None]
    named = {
        "{I{1,2}, I{3,4}}": next(part for part, parent in inner if parent == 0),
        "{I{1,2}, I3, I4}": next(part for part, parent in inner if parent),
        "{I1, I2}": next(part for part, items in leaves.items() if items == ["I1", "I2"]),
        "{I1, I2, I3, I4}": next(part for part, items in leaves.items() if len(items) == 4),
    }
    for at, (label, part) in enumerate(named.items()):
        yield Point("budget / B", at, float(share[part]), label=label)
