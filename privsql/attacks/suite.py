"""The adversaries, what each applies to, and the suite that runs them all on one release.

A further adversary is one module and one row of ``ADVERSARIES``. Those that need more than one release are run by
``privsql.verbs.attack``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from privsql.attacks import identifiers, learning, linkage, negative, order
from privsql.attacks.association import Column, learned
from privsql.attacks.finding import Finding
from privsql.mechanisms.bucketize import corruption, homogeneity
from privsql.mechanisms.bucketize.scene import Buckets
from privsql.mechanisms.noisytree import membership
from privsql.mechanisms.randomize.scene import Perturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.attacks.scene import Given, Scene

SCENES: dict[str, type[Buckets | Perturbed]] = {"bucketize": Buckets, "randomize": Perturbed}


class Stage:
    """A release with what several adversaries learn from it, learnt once."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @cached_property
    def columns(self) -> list[Column]:
        """Associations of the quasi-identifiers with the sensitive values."""
        return learned(self.scene)

    @property
    def buckets(self) -> Buckets:
        """The scene of a bucketized release."""
        if not isinstance(self.scene, Buckets):
            raise TypeError("not bucketized")
        return self.scene


@dataclass(frozen=True)
class Adversary:
    """``kinds``: the mechanisms whose releases it can attack; ``promised``: whether these promise to resist it."""

    name: str
    knows: str
    promised: bool
    kinds: frozenset[str]
    attack: Callable[[Stage], list[Finding]]


BOTH = frozenset({"bucketize", "randomize"})
BUCKETS = frozenset({"bucketize"})
CORRUPTS = "the sensitive values of some records in the person's bucket, from elsewhere"
ADVERSARIES: tuple[Adversary, ...] = (
    Adversary(linkage.NAME, linkage.KNOWS, promised=True, kinds=BOTH, attack=lambda s: linkage.attack(s.scene)),
    Adversary(
        homogeneity.NAME,
        homogeneity.KNOWS,
        promised=True,
        kinds=BUCKETS,
        attack=lambda s: homogeneity.attack(s.buckets),
    ),
    Adversary(order.NAME, order.KNOWS, promised=True, kinds=BOTH, attack=lambda s: order.attack(s.scene)),
    Adversary(
        identifiers.NAMES,
        identifiers.NAMES_KNOWS,
        promised=True,
        kinds=BOTH,
        attack=lambda s: identifiers.naming(s.scene),
    ),
    Adversary(corruption.NAME, CORRUPTS, promised=False, kinds=BUCKETS, attack=lambda s: corruption.attack(s.buckets)),
    Adversary(
        negative.NAME, negative.KNOWS, promised=False, kinds=BOTH, attack=lambda s: negative.attack(s.scene, s.columns)
    ),
    Adversary(
        learning.NAME, learning.KNOWS, promised=False, kinds=BOTH, attack=lambda s: learning.attack(s.scene, s.columns)
    ),
    Adversary(
        learning.ITERATED,
        learning.ITERATED_KNOWS,
        promised=False,
        kinds=BUCKETS,
        attack=lambda s: learning.iterated(s.scene, s.columns),
    ),
    Adversary(
        identifiers.GIVES,
        identifiers.GIVES_KNOWS,
        promised=False,
        kinds=BOTH,
        attack=lambda s: identifiers.giving(s.scene, s.columns),
    ),
)


def run(given: Given) -> list[Finding]:
    """Every adversary against one release; those that have nothing to attack in it say so."""
    kind = given.manifest.mechanism
    stage = Stage(SCENES[kind](given)) if kind in SCENES else None
    found: list[Finding] = []
    for one in ADVERSARIES:
        if stage is not None and kind in one.kinds:
            found += one.attack(stage)
        else:
            found.append(Finding(one.name, one.knows, one.promised, applies=False))
    if kind == "setvalued":
        return found + membership.attack(given)
    return [*found, Finding(membership.NAME, membership.KNOWS, promised=True, applies=False)]
