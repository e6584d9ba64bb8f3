"""Membership: whether a person's record is in a differentially private release at all.

The adversary knows every other record, so it knows each true count but for this one record, and gives presence even
odds. A noisy size y of scale s is e^(+1/s) or e^(-1/s) times as likely with the record as without it, and the record
counts once on every part of one path of the tree. Where the way of dividing a part was chosen with budget c, the choice
is at most e^c times as likely. The belief is therefore at most 1/(1 + exp(-sum 1/s - sum c)) along the path, whatever
the noise was; differential privacy promises that this is at most e^epsilon/(1 + e^epsilon).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.attacks.suite import Adversary
from privsql.engine.sqlfiles import Holes, fill, table
from privsql.mechanisms.private import KNOWS, MEMBERSHIP, membership

if TYPE_CHECKING:
    from privsql.attacks.finding import Finding
    from privsql.attacks.scene import ReleaseView, Scene


@dataclass(frozen=True)
class Leaves:
    """What the leaves of a tree are: ``unit``, in words; ``is_leaf``: a row of ``privsql_tree`` is one.

    ``choice``: the column with the budget of choosing how a row is divided, None where nothing is chosen.
    """

    unit: str
    is_leaf: exp.Expr
    choice: exp.Expr | None = None


def attack(given: ReleaseView, leaves_: Leaves) -> list[Finding]:
    """The belief about a record of each published leaf, for the most telling noise."""
    unit = leaves_.unit
    holes: Holes = {
        "tree": table("privsql_tree", given.database),
        "leaf": leaves_.is_leaf,
        "choice": leaves_.choice or exp.null(),
    }
    rows = given.db.rows(fill("attack/paths", holes))
    number = 1 + max((int(row[0]) for row in rows), default=0)
    told, chosen, leaves = np.zeros(number), np.zeros(number), []
    for part, parent, width, choice, leaf in rows:  # parents come before their parts
        above = told[int(parent)] + chosen[int(parent)] if parent is not None else 0.0
        told[int(part)] = above + (1 / float(width) if width else 0.0)
        chosen[int(part)] = float(Fraction(choice)) if choice else 0.0
        if leaf:
            leaves.append(int(part))
    beliefs = (1 / (1 + np.exp(-told[leaves]))).tolist()
    return [membership(Fraction(given.manifest.parameters["epsilon"]), beliefs, unit)]


def adversary(leaves: Leaves) -> Adversary[Scene]:
    """The adversary of a kind of trees."""
    return Adversary(MEMBERSHIP, KNOWS, promised=True, attack=lambda learnt: attack(learnt.view, leaves))
