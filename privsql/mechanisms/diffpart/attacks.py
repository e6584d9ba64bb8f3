"""Attack a tree: the adversary who knows every record but one."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import fill, table
from privsql.mechanisms.diffpart.tables import TREE
from privsql.mechanisms.dp.attacks import make_membership_finding

if TYPE_CHECKING:
    from privsql.attacks.scene import Finding, ReleaseView

# Membership -----------------------------------------------------------------------------------------------------------
# Membership: whether a person's record is in a differentially private release at all.
#
# The adversary knows every other record, so it knows each true count but for this one record, and gives presence even
# odds. A noisy size y of scale s is e^(+1/s) or e^(-1/s) times as likely with the record as without it, and the record
# counts once on every part of one path of the tree. Where the way of dividing a part was chosen with budget c, the
# choice is at most e^c times as likely. The belief is therefore at most 1/(1 + exp(-sum 1/s - sum c)) along the path,
# whatever the noise was; differential privacy promises that this is at most e^epsilon/(1 + e^epsilon).


def attack_leaves(view: ReleaseView, unit: str) -> list[Finding]:
    """Find the attacker's belief in a record of each published leaf, for the most telling noise on the leaf's path."""
    rows = view.db.rows(fill("attack/paths", {"tree": table(TREE, view.database)}))
    params, leaves = view.manifest.parameters, []
    below = {None: 0.0}  # what the way to a part's own parts says, with the choice of how it is divided
    for part, parent, scale, choice, leaf in rows:  # parents come before their parts
        exponent = below[parent] + (1 / float(scale) if scale else 0.0)
        below[part] = exponent + (float(Fraction(choice)) if choice else 0.0)
        leaves += [params.get("max_records", 1) * exponent] if leaf else []
    return [make_membership_finding(params, leaves, unit)]
