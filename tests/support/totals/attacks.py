"""Adversaries of totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.attacks.scene import Finding
from privsql.attacks.suite import Adversary
from privsql.engine.sqlfiles import all_rows, table
from privsql.mechanisms.dp.attacks import KNOWS, MEMBERSHIP, make_membership_finding
from support.totals.parameters import Totals

if TYPE_CHECKING:
    from privsql.attacks.scene import AttackView, ReleaseView
    from privsql.attacks.suite import AttackContext


def read_totals(view: ReleaseView) -> list[int]:
    """Return the totals of a release."""
    names = view.roles.by_sa
    return [int(one) for one in view.db.arrow(all_rows(table("totals", view.database)))[names.column_name("records")]]


def attack_small_totals(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the share of totals that are smaller than promised."""
    totals, params = read_totals(learnt.view), Totals.model_validate(learnt.view.manifest.parameters)
    small = sum(one < params.least for one in totals)
    return [Finding(attacked=len(totals), unit="totals", above=small / len(totals))]


def attack_by_guess(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find how often a guess of the most frequent value is right."""
    totals = read_totals(learnt.view)
    share = max(totals) / sum(totals)
    return [Finding(attacked=sum(totals), mean=share, highest=share, baseline=share)]


def attack_membership(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the belief that a record is in the table: its presence changes one total, by one."""
    params = learnt.view.manifest.parameters
    return [make_membership_finding(params, [float(Totals.model_validate(params).epsilon)], "records")]


EXACT: tuple[Adversary[AttackView], ...] = (
    Adversary("small totals", "all totals; looks for few records", promised=True, attack=attack_small_totals),
    Adversary("guess", "all totals; guesses the most frequent value", promised=False, attack=attack_by_guess),
)
NOISY: tuple[Adversary[AttackView], ...] = (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=attack_membership),)
