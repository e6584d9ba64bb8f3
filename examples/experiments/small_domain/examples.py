"""Table 1 and the examples that the papers work out: balancing, rearranging and merging."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from experiments.common import Axes, Point, experiment
from experiments.small_domain.settings import planned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench

EXAMPLE = (12, 8, 6, 5, 4, 3, 1, 1, 1, 1)  # records of x1 .. x10, Figure 9 of the thesis


@experiment(
    name="small-domain-probabilities",
    table=False,
    paper_name="small_domain",
    places=("Table 1", "section 1.1"),
    title="retention and replacement over the whole domain",
    says="With gamma = 5 a value is retained with p = 4/(m + 4) and replaced by a given one with q = 1/(m + 4).",
    differs="The same, but for m = 5,390: the paper's 7.4e-4 is p alone.",
    parameters='gamma = 5: m values of equal frequency 1/m, rho1 = 1/m, rho2 = 5/(m + 4), `algorithm = "up"`',
    data=(),
    axes=Axes("number of values m", "probability", x_scale="log", y_scale="log"),
    over={"m": (77, 70, 50, 14, 9, 7, 6, 2, 5390, 15_000)},
    small={"m": (77, 2)},
    paper={
        ("", series, float(m)): value
        for series, values in {
            "p, retained": (0.05, 0.05, 0.07, 0.22, 0.31, 0.36, 0.40, 0.67),
            "q, replaced by a given value": (0.01, 0.01, 0.02, 0.06, 0.08, 0.09, 0.10, 0.17),
        }.items()
        for m, value in zip((77, 70, 50, 14, 9, 7, 6, 2), values, strict=True)
    }
    | {
        ("", "q, replaced by a given value", 5390.0): 1.9e-4,
        ("", "p + q, stays", 5390.0): 7.4e-4,
        ("", "q, replaced by a given value", 15_000.0): 6.7e-5,
        ("", "p + q, stays", 15_000.0): 3.3e-4,
    },
)
def probabilities(_: Bench, m: int) -> Iterator[Point]:
    """P, q and p + q of uniform perturbation, from a plan."""
    asked = {"kind": "randomize", "algorithm": "up", "rho1": f"1/{m}", "rho2": f"5/{m + 4}"}
    kept = planned([2] * m, asked)["retention"]
    yield Point("p, retained", m, kept)
    yield Point("q, replaced by a given value", m, (1 - kept) / m)
    yield Point("p + q, stays", m, kept + (1 - kept) / m)


WORKED = {
    "1/3": "Example 2: (1/3, 2/3), all values protected",
    "1/4": "thesis, Example 7: (1/4, 2/3), x1 is not protected",
}
GROUPS = {
    "1/3": ({1: 6, 2: 6, 3: 6}, {1: 4, 4: 4, 5: 4}, {1: 2, 2: 2, 6: 2}, {4: 1, 6: 1, 7: 1}, {8: 1, 9: 1, 10: 1}),
    "1/4": (
        {1: 6, 2: 5, 3: 5, 4: 5},
        {1: 3, 2: 3, 5: 3, 6: 3},
        {1: 1, 3: 1, 5: 1, 7: 1},
        {1: 2, 8: 1, 9: 1, 10: 1},
    ),
}


@experiment(
    name="small-domain-balancing",
    paper_name="small_domain",
    places=("Example 2", "Examples 6 and 7 of the thesis"),
    title="the balancing phase, worked",
    says="T = {12, 8, 6, 5, 4, 3, 1, 1, 1, 1}, θ = 3, balanced for (1/3, 2/3)- and (1/4, 2/3)-privacy.",
    differs="The same groups.",
    parameters="`plan`, `partition` of its facts",
    data=(),
    axes=Axes("sensitive value x", "records in a group", x_scale="names", mark="bar"),
    over={"rho1": ("1/3", "1/4")},
    paper={
        (WORKED[rho1], f"g{at}", float(value)): float(number)
        for rho1, groups in GROUPS.items()
        for at, group in enumerate(groups, 1)
        for value, number in group.items()
    },
    table=False,
)
def balancing(_: Bench, rho1: str) -> Iterator[Point]:
    """The records of every value in every initial group."""
    facts = planned(EXAMPLE, {"kind": "randomize", "algorithm": "pp", "rho1": rho1, "rho2": "2/3"})
    groups = [group for part in facts["partition"] for group in part["groups"]]
    made = sorted(groups, key=lambda group: (-min(group.values()), sorted(group)))  # in the order of balancing
    for at, group in enumerate(made, 1):
        for label, number in group.items():
            yield Point(f"g{at}", int(label.removeprefix("x")), number, WORKED[rho1])


@experiment(
    name="small-domain-merging",
    paper_name="small_domain",
    places=("Examples 1, 3 and 4",),
    title="rearranging and merging, worked",
    says="Merged as {g1 g3 g2}, {g4 g5}, a value stays with 4/9 and 2/3, in the whole table with 4/13.",
    differs="The same by `pp-paper` and `gamma_from = 'rho1'`. No other of all 52 unions has a smaller error "
    "bound than these, 2.0196. By default gamma is 5, and a value stays with 5/14.",
    parameters="(1/3, 2/3)-privacy, δ = 0.05",
    data=(),
    axes=Axes("sub-table", "parameter", x_scale="names", mark="bar"),
    over={"algorithm": ("up", "pp-paper")},
    paper={
        ("gamma", "gamma", 0.0): 4.0,
        ("gamma", "gamma", 1.0): 4.0,
        ("gamma", "gamma", 2.0): 10.0,
        ("p + q, stays", "p + q", 0.0): 4 / 13,
        ("p + q, stays", "p + q", 1.0): 4 / 9,
        ("p + q, stays", "p + q", 2.0): 2 / 3,
    },
    table=False,
)
def merging(_: Bench, algorithm: str) -> Iterator[Point]:
    """Parameters of the whole table and of the sub-tables."""
    asked = {"kind": "randomize", "algorithm": algorithm, "rho1": "1/3", "rho2": "2/3"}
    asked |= {"gamma_from": "rho1"} if algorithm == "up" else {}
    for at, part in enumerate(planned(EXAMPLE, asked)["partition"], algorithm != "up"):
        label = f"T{at}" if at else "T"
        yield Point("gamma", at, float(Fraction(part["gamma"])), "gamma", label)
        stays = part["retention"] + (1 - part["retention"]) / part["values"]
        yield Point("p + q", at, stays, "p + q, stays", label)
