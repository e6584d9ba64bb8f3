"""Define adversaries, and the one who learns from a release alone which values go together (naive Bayes)."""

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
# A release teaches which sensitive values go with which quasi-identifiers. Learning adversaries use that.
#
# For every value v of a quasi-identifier, the counts n(v, x) of sensitive values x are estimated from the release, as
# for an analyst's query. p(x | v)/f_x is the likelihood ratio of x by one column. A naive Bayes model multiplies those
# of all columns.

# A value v of a quasi-identifier and x are negatively associated if n(v, x) + SURE standard errors < RARE n_v f_x.
RARE = 0.1
SURE = 2.0
PSEUDO = 5.0  # records with the overall shares that are added to every value of a quasi-identifier
SEPARATE = 64  # counts of more columns are estimated for so many columns in one step, else for each column by itself


@dataclass(frozen=True)
class Association:
    """How often each of m sensitive values occurs with each of V values of one quasi-identifier, learnt from a release.

    Attributes:
        level: For every record, which of the V values it has (n,).
        counts: n(v, x), the estimated records with value v and sensitive value x (V, m).
        errors: The standard errors of the counts (V, m).
        totals: The number of records with each value v (V,).
    """

    level: Ints
    counts: Floats
    errors: Floats
    totals: Floats


def learn_association(scene: AttackView, *, errors: bool = True) -> list[Association]:
    """Estimate from a release how often sensitive values occur with the values of each quasi-identifier.

    The counts are estimated by the linear estimator that also answers analysts' queries. If there are more than 64
    columns (``SEPARATE``), 64 are estimated in one step, otherwise one.

    Args:
        scene: The release as arrays.
        errors: Whether standard errors are wanted.

    Returns:
        The counts for each quasi-identifier, in order.
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
    """Estimate how many records with each of V values of a column have each of m sensitive values (V, m).

    The standard errors are returned as well, in the same shape; without ``errors`` they are placeholders.

    Args:
        scene: The release as arrays.
        observed: How many records with each of the V values the release shows with each of k values (V, k). These are
            the values that buckets list, perturbed values, or groups, depending on the mechanism.
        errors: Whether standard errors are wanted.
    """
    channel, totals = scene.channel, observed.sum(axis=1)
    share, m = totals / channel.records.sum(), len(channel.records)
    weight = share if scene.independent else share * (1 - share)
    functionals = np.eye(m) if errors else np.zeros((m, 1))
    posterior = reconstruct(channel, Observation(observed, totals, totals, totals, weight.clip(0)), functionals)
    caps = np.minimum(channel.records, totals[:, None])
    return project_within(posterior.values, totals, caps, channel.prior_shape + channel.shares), posterior.std_error


def log_ratios(columns: list[Association], shares: Floats) -> list[Floats]:
    """Return for every column how much each of its V values speaks for each of m sensitive values (V, m).

    For values v and x it is log p(x | v)/f_x: p(x | v) is the share of sensitive value x among the records with value
    v, and f_x its overall share. Five records (``PSEUDO``) with the overall shares are added to every v, so that no
    logarithm is infinite.

    Args:
        columns: How often sensitive values occur with the values of each column.
        shares: The share of all records with each sensitive value (m,).
    """
    floor = np.maximum(shares, 1e-12)
    return [np.log((c.counts + PSEUDO * floor) / ((c.totals[:, None] + PSEUDO) * floor)) for c in columns]


def multiply_ratios(columns: list[Association], logs: list[Floats], block: Block) -> Floats:
    """Return the naive Bayes likelihood of each of t slots' values for r records in each of b groups (b, r, t).

    A slot is a place for a sensitive value, such as one that a bucket lists. The likelihood of value x for a record is
    the product of p(x | v)/f_x over the columns, where v is the record's value there, and f_x the overall share of x.
    It is scaled so that the largest likelihood of a record is 1.

    Args:
        columns: How often sensitive values occur with the values of each column.
        logs: The logarithms of the ratios p(x | v)/f_x for each column, as ``log_ratios`` returns them.
        block: The groups of records and slots.
    """
    total = np.zeros(block.shape)
    for one, ratio in zip(columns, logs, strict=True):
        total += ratio[one.level[block.rows][:, :, None], block.codes[:, None, :]]
    return np.asarray(np.exp(total - total.max(axis=2, keepdims=True)))


# Adversaries ----------------------------------------------------------------------------------------------------------
# An adversary's attack is a function in ``attacks/adversaries.py``, or in the folder of its mechanism, whose method
# ``adversaries`` names it. What several adversaries learn from a release is computed once.

Seen = TypeVar("Seen", bound=AttackView, covariant=True)
Needed = TypeVar("Needed", bound=AttackView, contravariant=True)


@dataclass(frozen=True)
class AttackContext(Generic[Seen]):
    """A release under attack, with what several adversaries learn from it, computed once.

    Attributes:
        view: The release.
        set_up: The class that reads the release's tables as arrays (a subclass of ``AttackView``); None if no adversary
            needs arrays.
    """

    view: ReleaseView
    set_up: type[Seen] | None

    @cached_property
    def scene(self) -> Seen:
        """Return the release's tables as arrays, from which adversaries compute their beliefs."""
        if self.set_up is None:
            raise TypeError(f"a release made by {self.view.manifest.mechanism} is no scene")
        return self.set_up(self.view)

    @cached_property
    def associations(self) -> list[Association]:
        """Return for each quasi-identifier how often its values occur with the sensitive values."""
        return learn_association(self.scene)


@dataclass(frozen=True)
class Adversary(Generic[Needed]):
    """An attacker: what it knows, and how it attacks.

    Attributes:
        name: The name in reports.
        knows: What it knows, in plain words.
        promised: Whether the mechanisms that list this adversary promise to resist it.
        attack: The function that carries out the attack.
    """

    name: str
    knows: str
    promised: bool
    attack: Callable[[AttackContext[Needed]], list[Finding]]

    def find(self, learnt: AttackContext[Needed]) -> list[Finding]:
        """Attack a release and return the findings, with the adversary's name, knowledge and promise filled in."""
        return [
            replace(one, adversary=one.adversary or self.name, knows=one.knows or self.knows, promised=self.promised)
            for one in self.attack(learnt)
        ]


@dataclass(frozen=True)
class ReleaseSeries:
    """Several releases of the same people, which are attacked together.

    Attributes:
        db: The session in which the databases with the releases are attached.
        manifests: Their manifests.
        databases: The names of their databases in ``db``.
        names: The names of their files, for messages.
    """

    db: Relations
    manifests: Sequence[Manifest]
    databases: Sequence[str]
    names: Sequence[str]


JointAttack = Callable[[ReleaseSeries], list[Finding]]


# Learning -------------------------------------------------------------------------------------------------------------
# Learning from the release alone is the deFinetti attack (Kifer 2009; Cormode 2011 for the naive Bayes form).
#
# The adversary estimates how often sensitive values occur with each quasi-identifier, and multiplies the likelihoods of
# the columns as if they were independent given the value (naive Bayes). They weigh the values that a bucket, or a
# perturbed value, leaves open for a record. In a bucket every listed value belongs to one record only.
#
# Columns that say the same thing would make the adversary too sure. It can notice that: its beliefs about single
# records must add up to the counts that it estimated. So it raises the product to the power in (0, 1] for which they
# come closest.
#
# Without the source, beliefs are measured. With the source, ``right`` says how often the best guess is true, and
# ``true_above`` for how many records the belief in the true value exceeds its bound.

LEARNING = "learning"
LEARNING_KNOWS = "all records' quasi-identifiers; learns from the release alone which kind of record has which value"
STRENGTHS = (0.55, 0.7, 0.85, 1.0)


def attack_by_learning(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Attack each record by what the release teaches about which values go together (naive Bayes).

    A belief is the probability that the adversary gives to a value of a record. The beliefs in a value must add up to
    the count that the release lets one estimate. So likelihoods are raised to the power for which they come closest.
    """
    scene, columns = learnt.scene, learnt.associations
    tally = scene.make_tally()  # choose the power for which beliefs add up most nearly to the counts
    strength = min(STRENGTHS, key=lambda one: _moved_share(columns, learn_beliefs(scene, columns, one)))
    learn_beliefs(scene, columns, strength, tally)
    notes = (f"likelihoods of all columns, multiplied and raised to the power {strength:g}",)
    return [Finding(baseline=scene.baseline, notes=notes, **tally.finding_fields())]


def learn_beliefs(
    scene: AttackView, columns: list[Association], strength: float = 1.0, tally: Tally | None = None
) -> list[Association]:
    """Compute by naive Bayes how strongly an adversary believes in each sensitive value of every record.

    A belief is the probability that the adversary gives to the value. It follows from the likelihoods of the record's
    quasi-identifiers. A power below 1 makes the likelihoods weaker, because columns that say the same would count
    twice.

    Args:
        scene: The release as arrays.
        columns: How often sensitive values occur with the values of each quasi-identifier.
        strength: The power to which likelihoods are raised.
        tally: Sums up the beliefs for a finding; None to get them summed up by quasi-identifier instead.

    Returns:
        Without a tally, a copy of ``columns`` whose counts are sums of the beliefs; a consistent adversary has about
        the counts of ``columns`` again. With a tally, ``columns`` unchanged.
    """
    logs = [strength * ratio for ratio in log_ratios(columns, scene.shares)]
    counts = [np.zeros(one.counts.size) for one in columns]
    for block in scene.blocks():
        slots = block.update_beliefs(multiply_ratios(columns, logs, block))
        if tally is not None:
            tally.add_block(block, slots)
            continue
        for i, one in enumerate(columns):  # sum up the beliefs by level and sensitive value
            cell = one.level[block.rows][:, :, None] * one.counts.shape[1] + block.codes[:, None, :]
            counts[i] += np.bincount(cell.ravel(), slots.ravel(), minlength=one.counts.size)
    if tally is not None:
        return columns
    shaped = (total.reshape(one.counts.shape) for one, total in zip(columns, counts, strict=True))
    return [replace(one, counts=total) for one, total in zip(columns, shaped, strict=True)]


def _moved_share(before: list[Association], after: list[Association]) -> float:
    """Return by what share of the records the sums of an adversary's beliefs differ from the estimated counts.

    Beliefs about single records are consistent if they add up to the counts that the release lets one estimate. The
    result is the mean over the quasi-identifiers.

    Args:
        before: The estimated counts by quasi-identifier.
        after: The sums of beliefs by quasi-identifier.
    """
    changes = [np.abs(a.counts - b.counts).sum() / 2 / b.counts.sum() for a, b in zip(after, before, strict=True)]
    return float(np.mean(changes))


LEARNING_ADVERSARY: Adversary[AttackView] = Adversary(
    LEARNING,
    LEARNING_KNOWS,
    promised=False,
    attack=attack_by_learning,
)
