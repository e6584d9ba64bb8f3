"""Attack noisy views: the adversary who knows every record but one."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.mechanisms.dp.attacks import attack_noisy_tables

if TYPE_CHECKING:
    from privsql.attacks.scene import Finding, ReleaseView


def attack_views(view: ReleaseView) -> list[Finding]:
    """Find the belief that a record is in the tables, by their counts and by those of all items.

    A record changes at most ``cap`` counts of items by one each. These make the release at most e^(cap/s) times as
    likely, or spend rho = cap / (2 s^2).
    """
    cap, scale = view.manifest.facts["cap"], view.manifest.facts["items_scale"]
    if not cap:
        return attack_noisy_tables(view, 0.0)
    concentrated = Fraction(view.manifest.parameters.get("delta", "0")) > 0
    return attack_noisy_tables(view, cap / (2 * scale**2) if concentrated else cap / scale)
