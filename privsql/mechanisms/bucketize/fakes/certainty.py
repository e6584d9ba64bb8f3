"""How certain it is that a listed value is real, as a release with fakes states it: exactly, value by value.

``real`` = o_x: with how often ST lists the value, L_x, its certainty o_x/L_x, whatever is fake. ``certainty``: the
``mean`` over all that is listed, which is S/(S + sigma) where there is one size, the ``lowest`` and the ``highest`` of
a value and, published, ``anywhere``: the highest of a value in a single bucket (``fakes``), rounded up. ``uneven``: the
certainty of the values that are too frequent for fakes to hide them as well as others.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.errors import InfeasibleError
from privsql.exact import text
from privsql.mechanisms.bucketize.fakes.even import crowded
from privsql.mechanisms.bucketize.fakes.law import LAW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.bucketize.model import Ints, Setting

DIGITS = 10**4  # to which a probability is rounded up


def stated(counts: Ints, listed: Ints, labels: Sequence[str], setting: Setting, sigma: int) -> dict[str, Any]:
    """The facts of a plan: ``counts`` o (m,), ``listed`` L (m,)."""
    each = {x: Fraction(int(counts[x]), int(listed[x])) for x in np.flatnonzero(listed).tolist()}
    of_values = [each[x] for x in each if counts[x]]
    uneven = {labels[x]: text(each[x]) for x in crowded(counts, setting, sigma)}
    return {
        "fake_values": sigma,
        "fake_law": LAW,
        "real": [int(count) for count in counts],
        "certainty": {
            "mean": text(Fraction(int(counts.sum()), int(listed.sum()))),
            "lowest": text(min(of_values)),
            "highest": text(max(of_values)),
        },
        **({"uneven": uneven} if uneven else {}),
    }


def rounded_up(probability: float) -> float:
    """To four digits, never below; 1 only for what is certain."""
    return ceil(probability * DIGITS) / DIGITS


def refuse_certain(counts: Ints, listed: Ints, labels: Sequence[str]) -> None:
    """``InfeasibleError`` if a value is listed only where it is real: fakes hide nothing of it."""
    certain = [labels[x] for x in np.flatnonzero((counts > 0) & (listed <= counts)).tolist()]
    if certain:
        raise InfeasibleError(
            f"value {certain[0]} would be listed only where it is real: there are too few records for fake values to "
            "hide all values evenly; uneven_fakes = 'state' publishes how certain each is",
            {"certain": certain},
        )


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """For a person: the fakes, and what they leave certain."""
    if not facts.get("fake_values"):
        return []
    found = [("fake values", f"{facts['fake_values']} in every bucket")]
    if facts.get("certainty"):
        told = {name: float(Fraction(value)) for name, value in facts["certainty"].items() if value is not None}
        anywhere = f"; in one bucket at most {told['anywhere']:.4f}" if "anywhere" in told else ""
        spans = f"{told['mean']:.4f} of what is listed, {told['lowest']:.4f} to {told['highest']:.4f} by value"
        found.append(("real", spans + anywhere))
    if facts.get("uneven"):
        of = (f"{float(Fraction(value)):.4f} of what is listed of {label}" for label, value in facts["uneven"].items())
        found.append(("too frequent", f"real: {', '.join(of)}"))
    if facts.get("excluded_real") is not None:
        number = facts["excluded_real"]
        found.append(("real for sure", f"{number:,} listed values that associations exclude for somebody there"))
    return found
