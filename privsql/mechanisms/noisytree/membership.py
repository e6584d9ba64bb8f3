"""Membership: whether a person's record is in a differentially private release at all.

The adversary knows every other record, so it knows each true count but for this one record, and gives presence even
odds. A noisy size y of scale s is e^(+1/s) or e^(-1/s) times as likely with the record as without it, and the record
counts once on every part of one path of the tree. The belief is therefore at most 1/(1 + exp(-sum 1/s)) along the path,
whatever the noise was; differential privacy promises that this is at most e^epsilon/(1 + e^epsilon).
"""

from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.finding import Finding
from privsql.engine.sqlfiles import fill, table

if TYPE_CHECKING:
    from privsql.attacks.scene import Given

NAME = "membership"
KNOWS = "every record but one, and asks whether that one is in the table; the belief if all noise points the same way"


def attack(given: Given) -> list[Finding]:
    """The belief about a record of each published item set, for the most telling noise."""
    rows = given.db.rows(fill("attack/paths", {"tree": table("privsql_tree", given.database)}))
    told = np.zeros(1 + max((int(row[0]) for row in rows), default=0))
    leaves = []
    for part, parent, width, leaf in rows:  # parents come before their parts
        told[int(part)] = (told[int(parent)] if parent is not None else 0.0) + (1 / float(width) if width else 0.0)
        if leaf:
            leaves.append(int(part))
    if not leaves:
        return [Finding(NAME, KNOWS, promised=True, attacked=0, unit="item sets")]
    beliefs = 1 / (1 + np.exp(-told[leaves]))
    epsilon = float(Fraction(given.manifest.parameters["epsilon"]))
    most = 1 / (1 + exp(-epsilon))
    return [
        Finding(
            NAME,
            KNOWS,
            promised=True,
            attacked=len(leaves),
            unit="item sets",
            mean=float(beliefs.mean()),
            highest=float(beliefs.max()),
            above=float((beliefs > most * (1 + 1e-12)).mean()),
            baseline=0.5,
            notes=(f"epsilon {epsilon:g} promises at most {most:.1%}",),
        )
    ]
