"""Attack a published partition tree as an adversary who knows every record but one."""

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
# The adversary knows every other record, so it knows each true count but for the last record, and gives even odds to
# its presence. A noisy size with noise of scale s is at most e^(1/s) times as likely with the record as without it. The
# record is counted once in every partition of one path. If the way of dividing a partition was chosen with budget c,
# the choice is at most e^c times as likely. So the belief is at most 1/(1 + exp(-sum 1/s - sum c)) along the path,
# whatever the noise was. Differential privacy promises at most e^epsilon/(1 + e^epsilon).


def attack_leaves(view: ReleaseView, unit: str) -> list[Finding]:
    """Find how sure an attacker who knows all other records becomes that a record is in the source, for each leaf.

    A leaf is a published part of the partition tree. The noise in the counts from the root of the tree to the leaf is
    taken to be the most revealing one, by which the attacker becomes surest.

    Args:
        view: The release.
        unit: What was attacked, in words, such as ``records``.
    """
    rows = view.db.rows(fill("attack/paths", {"tree": table(TREE, view.database)}))
    params, leaves = view.manifest.parameters, []
    below = {None: 0.0}  # by part, the log odds revealed on the way to its own parts, choices included
    for part, parent, scale, choice, leaf in rows:  # parents come before their parts
        exponent = below[parent] + (1 / float(scale) if scale else 0.0)
        below[part] = exponent + (float(Fraction(choice)) if choice else 0.0)
        leaves += [params.get("max_records", 1) * exponent] if leaf else []
    return [make_membership_finding(params, leaves, unit)]
