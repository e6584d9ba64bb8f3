"""Attack noisy views as an adversary who knows every record but one."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.mechanisms.dp.attacks import attack_noisy_tables

if TYPE_CHECKING:
    from privsql.attacks.scene import Finding, ReleaseView


def attack_views(view: ReleaseView) -> list[Finding]:
    """Find how sure an adversary who knows all other records can become that the last one is in the counts.

    At most ``cap`` items of a record are counted, so it changes at most so many counts of items by one each. Under
    Laplace noise of scale s, the counts are at most e^(cap/s) times as likely with the record. Gaussian noise spends
    cap / (2 s^2) as rho, the budget of zero-concentrated differential privacy.
    """
    cap, scale = view.manifest.facts["cap"], view.manifest.facts["items_scale"]
    if not cap:
        return attack_noisy_tables(view, 0.0)
    concentrated = Fraction(view.manifest.parameters.get("delta", "0")) > 0
    return attack_noisy_tables(view, cap / (2 * scale**2) if concentrated else cap / scale)
