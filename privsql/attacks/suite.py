"""Say what an adversary is and what it learns from a release; learning from the release alone is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from privsql.answers.channel import Observation, reconstruct
from privsql.answers.estimate import project_within
from privsql.attacks.scene import AttackView, Block, Finding, Floats, Ints, ReleaseView, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

# Association ----------------------------------------------------------------------------------------------------------
# What a release teaches about quasi-identifiers and sensitive values: the knowledge of the learning adversaries.
#
# For every value v of a quasi-identifier, the counts n(v, x) of its records per sensitive value are reconstructed
# through the release's channel, as for an honest question. p(x | v)/f_x is the likelihood of x that one column gives; a
# naive Bayes model multiplies the columns.

# A value v of a quasi-identifier and x are negatively associated if n(v, x) + SURE standard errors < RARE n_v f_x.
RARE = 0.1
SURE = 2.0
PSEUDO = 5.0  # records with the overall frequencies that are added to those of every value of a quasi-identifier
SEPARATE = 64  # columns whose associations are reconstructed one by one; of more so many at a time


@dataclass(frozen=True)
class Association:
    """How the sensitive value goes with one quasi-identifier of V levels, as learnt from the release.

    Attributes:
        level: The level of every record (n,).
        counts: n(v, x), the estimated records with level v and sensitive value x (V, m).
        errors: The standard errors of the counts (V, m).
        totals: The number of records with each level (V,).
    """

    level: Ints
    counts: Floats
    errors: Floats
    totals: Floats


def learn_association(scene: AttackView, *, errors: bool = True) -> list[Association]:
    """Return the association of every quasi-identifier with the sensitive values.

    If there are more than ``SEPARATE`` columns, the levels of that many columns at a time are reconstructed together.

    Args:
        scene: The release as arrays.
        errors: Whether standard errors are wanted.
    """
    observed = [scene.observe_levels(level) for level in scene.levels]
    step = 1 if len(observed) <= SEPARATE else SEPARATE
    found: list[Association] = []
    for begin in range(0, len(observed), step):
        part, levels = observed[begin : begin + step], scene.levels[begin : begin + step]
        counts, deviations = _reconstruct_levels(scene, np.concatenate(part), errors=errors)
        ends = np.cumsum([len(one) for one in part])[:-1]
        split = (np.split(counts, ends), np.split(deviations, ends), [one.sum(axis=1) for one in part])
        found += [Association(*one) for one in zip(levels, *split, strict=True)]
    return found


def _reconstruct_levels(scene: AttackView, observed: Floats, *, errors: bool) -> tuple[Floats, Floats]:
    """Return the estimated counts (V, m) from the observation of each level (V, k), and their standard errors."""
    channel, totals = scene.channel, observed.sum(axis=1)
    share, m = totals / channel.records.sum(), len(channel.records)
    weight = share if scene.independent else share * (1 - share)
    functionals = np.eye(m) if errors else np.zeros((m, 1))
    posterior = reconstruct(channel, Observation(observed, totals, totals, totals, weight.clip(0)), functionals)
    caps = np.minimum(channel.records, totals[:, None])
    return project_within(posterior.values, totals, caps, channel.prior_shape + channel.shares), posterior.std_error


def log_ratios(columns: list[Association], shares: Floats) -> list[Floats]:
    """Return log p(x | v)/f_x for every column, each (V, m).

    ``PSEUDO`` records with the overall frequencies are added to every level, so that no ratio is 0.
    """
    floor = np.maximum(shares, 1e-12)
    return [np.log((c.counts + PSEUDO * floor) / ((c.totals[:, None] + PSEUDO) * floor)) for c in columns]


def multiply_ratios(columns: list[Association], logs: list[Floats], block: Block) -> Floats:
    """Return naive Bayes likelihoods for every record and slot (b, r, t), scaled so that a record's largest one is 1.

    Each is the product of p(x | v)/f_x over the columns, for the record's level v and the slot's value x.

    Args:
        columns: The associations of the columns.
        logs: The logarithms of the ratios, as of ``log_ratios``.
        block: The records and slots.
    """
    total = np.zeros(block.shape)
    for one, ratio in zip(columns, logs, strict=True):
        total += ratio[one.level[block.rows][:, :, None], block.codes[:, None, :]]
    return np.asarray(np.exp(total - total.max(axis=2, keepdims=True)))


# Adversaries ----------------------------------------------------------------------------------------------------------
# An adversary's attack is a function of ``attacks/adversaries.py``, or of its mechanism's folder. The method
# ``adversaries`` of the mechanism names it. What several adversaries learn from a release is learnt once.

Seen = TypeVar("Seen", bound=AttackView, covariant=True)
Needed = TypeVar("Needed", bound=AttackView, contravariant=True)


@dataclass(frozen=True)
class AttackContext(Generic[Seen]):
    """A release under attack. What several adversaries learn from it is computed once.

    Attributes:
        view: The release.
        set_up: The class that turns its tables into arrays; None where no adversary needs these.
    """

    view: ReleaseView
    set_up: type[Seen] | None

    @cached_property
    def scene(self) -> Seen:
        """Return the release as arrays."""
        if self.set_up is None:
            raise TypeError(f"a release made by {self.view.manifest.mechanism} is no scene")
        return self.set_up(self.view)

    @cached_property
    def associations(self) -> list[Association]:
        """Return the associations of the quasi-identifiers with the sensitive values."""
        return learn_association(self.scene)


@dataclass(frozen=True)
class Adversary(Generic[Needed]):
    """An attacker: what it knows, and how it attacks.

    Attributes:
        name: The name in reports.
        knows: What it knows, in plain words.
        promised: Whether the mechanisms that list it promise to resist it.
        attack: The function that carries out the attack.
    """

    name: str
    knows: str
    promised: bool
    attack: Callable[[AttackContext[Needed]], list[Finding]]

    def find(self, learnt: AttackContext[Needed]) -> list[Finding]:
        """Run the attack and return its findings, under the adversary's name."""
        return [
            replace(one, adversary=one.adversary or self.name, knows=one.knows or self.knows, promised=self.promised)
            for one in self.attack(learnt)
        ]


@dataclass(frozen=True)
class ReleaseSeries:
    """Releases of the same people, which are attacked together.

    They are attached to ``db`` under the names ``databases``; messages call them by the ``names`` of their files.
    """

    db: Relations
    manifests: Sequence[Manifest]
    databases: Sequence[str]
    names: Sequence[str]


JointAttack = Callable[[ReleaseSeries], list[Finding]]


# Learning -------------------------------------------------------------------------------------------------------------
# Learning from the release alone: the deFinetti attack (Kifer 2009; Cormode 2011 for the naive Bayes form).
#
# The adversary reconstructs how every quasi-identifier goes with the sensitive values (``privsql.attacks.suite``),
# multiplies the columns as if they were independent given the value (naive Bayes), and weighs what each bucket or
# perturbed value allows for a record by that. In a bucket every listed value belongs to one record only.
#
# Columns that say the same thing twice would make it too sure of itself. It notices: its beliefs about single records,
# added up, must give the counts that it reconstructed. So it takes the product to the power (0, 1] at which they come
# nearest to them.
#
# What is measured without the source are beliefs. With the source, ``right`` says how often the best guess is true, and
# ``true_above`` for how many records the true value is held for more certain than was promised.

LEARNING = "learning"
LEARNING_KNOWS = "all records' quasi-identifiers; learns from the release alone which kind of record has which value"
STRENGTHS = (0.55, 0.7, 0.85, 1.0)


def attack_by_learning(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the posterior of every record by naive Bayes, from associations that the release itself teaches.

    Likelihoods are raised to the power at which beliefs add up to the reconstructed counts most nearly.
    """
    scene, columns = learnt.scene, learnt.associations
    tally = scene.make_tally()  # the power at which beliefs add up to the reconstructed counts most nearly
    strength = min(STRENGTHS, key=lambda one: _moved_share(columns, learn_beliefs(scene, columns, one)))
    learn_beliefs(scene, columns, strength, tally)
    notes = (f"likelihoods of all columns, multiplied and raised to the power {strength:g}",)
    return [Finding(baseline=scene.baseline, notes=notes, **tally.finding_fields())]


def learn_beliefs(
    scene: AttackView, columns: list[Association], strength: float = 1.0, tally: Tally | None = None
) -> list[Association]:
    """Compute the posterior of every record from the associations, once through all blocks.

    Args:
        scene: The release as arrays.
        columns: The associations to start from.
        strength: The power to which likelihoods are raised.
        tally: Where the posteriors are counted; None if they are only summed up.

    Returns:
        Without a tally, associations whose counts are the sums of the posteriors. With one, ``columns`` unchanged.
    """
    logs = [strength * ratio for ratio in log_ratios(columns, scene.shares)]
    counts = [np.zeros(one.counts.size) for one in columns]
    for block in scene.blocks():
        slots = block.update_beliefs(multiply_ratios(columns, logs, block))
        if tally is not None:
            tally.add_block(block, slots)
            continue
        for i, one in enumerate(columns):  # the posteriors by level and value
            cell = one.level[block.rows][:, :, None] * one.counts.shape[1] + block.codes[:, None, :]
            counts[i] += np.bincount(cell.ravel(), slots.ravel(), minlength=one.counts.size)
    if tally is not None:
        return columns
    shaped = (total.reshape(one.counts.shape) for one, total in zip(columns, counts, strict=True))
    return [replace(one, counts=total) for one, total in zip(columns, shaped, strict=True)]


def _moved_share(before: list[Association], after: list[Association]) -> float:
    """Return the mean, over the columns, of the share of records whose counts moved."""
    changes = [np.abs(a.counts - b.counts).sum() / 2 / b.counts.sum() for a, b in zip(after, before, strict=True)]
    return float(np.mean(changes))


LEARNING_ADVERSARY: Adversary[AttackView] = Adversary(
    LEARNING,
    LEARNING_KNOWS,
    promised=False,
    attack=attack_by_learning,
)
