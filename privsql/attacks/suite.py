"""Who is run against a release: a mechanism's adversaries, and what they learn of the release, learnt once.

An adversary is a module here or in its mechanism's package, named in the mechanism's ``Suite``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from privsql.attacks import choice
from privsql.attacks.association import Column, learned
from privsql.attacks.scene import ReleaseView, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.attacks.finding import Finding
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

S = TypeVar("S", bound=Scene)
Seen = TypeVar("Seen", bound=Scene, covariant=True)  # noqa: PLC0105
Needed = TypeVar("Needed", bound=Scene, contravariant=True)  # noqa: PLC0105


@dataclass(frozen=True)
class Learnt(Generic[Seen]):
    """A release, the scene that its tables make, and what several adversaries learn from it, learnt once."""

    view: ReleaseView
    set_up: Callable[[ReleaseView], Seen]

    @cached_property
    def scene(self) -> Seen:
        """The release as arrays."""
        return self.set_up(self.view)

    @cached_property
    def columns(self) -> list[Column]:
        """Associations of the quasi-identifiers with the sensitive values."""
        return learned(self.scene)


@dataclass(frozen=True)
class Adversary(Generic[Needed]):
    """``promised``: whether the mechanisms that name it promise to resist it."""

    name: str
    knows: str
    promised: bool
    attack: Callable[[Learnt[Needed]], list[Finding]]


@dataclass(frozen=True)
class Several:
    """Releases of the same people, attached to ``db`` under ``databases``; ``names`` of their files, for messages."""

    db: Relations
    manifests: Sequence[Manifest]
    databases: Sequence[str]
    names: Sequence[str]


@dataclass(frozen=True)
class Suite(Generic[S]):
    """A mechanism's adversaries, in the order of the table.

    ``scene``: what its tables are to an adversary who learns from quasi-identifiers, None where there are none to learn
    from. ``combining``: those who need a second release. ``quick``: the scene on which publishing estimates what can be
    learnt beyond the bounds, None where no belief is bounded.
    """

    scene: Callable[[ReleaseView], S] | None
    adversaries: tuple[Adversary[S], ...]
    combining: tuple[Callable[[Several], list[Finding]], ...]
    quick: Callable[[ReleaseView], Scene] | None

    def run(self, view: ReleaseView) -> list[Finding]:
        """Every adversary against one release."""
        learnt = Learnt(view, self.scene or self._nothing)
        found = [found for one in self.adversaries for found in one.attack(learnt)]
        reduced = view.manifest.persons is not None and view.manifest.persons.rule == "one"
        return found + (choice.attack(learnt.scene) if view.source and reduced and self.scene is not None else [])

    def _nothing(self, view: ReleaseView) -> S:
        raise TypeError(f"a release made by {view.manifest.mechanism} is no scene")
