"""Attack noisy tables: as someone who knows all other values, and as someone who learns from the weights."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.attacks.scene import Finding
from privsql.attacks.suite import LEARNING, LEARNING_KNOWS, Adversary
from privsql.dp_random import SUBSTITUTION
from privsql.engine.sqlfiles import fill, table, temp_table
from privsql.mechanisms.dp.answers import refuse_damaged
from privsql.mechanisms.dp.tables import CLIQUES
from privsql.mechanisms.label_tables.model import fit_tables
from privsql.mechanisms.label_tables.parameters import reach_of
from privsql.mechanisms.label_tables.rule import CHOOSING
from privsql.mechanisms.label_tables.tables import read_published, read_weights
from privsql.mechanisms.perturb.parameters import Randomize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.scene import AttackView, ReleaseView
    from privsql.attacks.suite import AttackContext, ReleaseSeries
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.label_tables.rule import TablesRule
    from privsql.model.manifest import Manifest

INFORMED, TOGETHER, WITHOUT = "informed", "two releases", "learning from others"
INFORMED_KNOWS = "the quasi-identifiers of all records, and the values of all others; even odds before"
TOGETHER_KNOWS = "the same, and both releases"
WITHOUT_KNOWS = "as above, but from tables without the record's own value"
HELD_OUT = 0.1  # share of the records whose values are predicted from the other records


def spent_exponent(db: Relations, manifest: Manifest, database: str | None) -> float:
    """Return the most by which a release can change the log-odds of a record's sensitive value.

    A changed value moves two counts of each table by 1. So each table adds 2/scale, where scale is that of its noise.
    The private choices of which pairs of columns to measure add their epsilon.
    """
    rows = db.rows(fill("attack/tables", {"cliques": table(CLIQUES, database)}))
    params = Randomize.model_validate(manifest.parameters)
    measured = sum((SUBSTITUTION.moved / Fraction(width) for width, _ in rows), start=Fraction(0))
    pairs = len(manifest.quasi_identifiers) > 1  # with pairs, every release spends the budget of all choices
    return float(measured + (CHOOSING * params.spent_epsilon if pairs else 0))


def attack_informed(learnt: AttackContext[Any]) -> list[Finding]:
    """Compute the belief that an attacker who knows all other values can reach from even odds, in the worst case.

    The promise bounds it by e^epsilon/(1 + e^epsilon).
    """
    view = learnt.view
    exponent = spent_exponent(view.db, view.manifest, view.database)
    epsilon = float(Randomize.model_validate(view.manifest.parameters).spent_epsilon)
    reached = reach_of(0.5, exponent)
    above = float(exponent > epsilon * (1 + 1e-12))
    notes = (f"epsilon {epsilon:g} promises at most {reach_of(0.5, epsilon):.1%} for any value and any set of values",)
    return [
        Finding(
            INFORMED, INFORMED_KNOWS, promised=True, attacked=view.manifest.published_records,
            mean=reached, highest=reached, above=above, baseline=0.5, notes=notes,
        )
    ]  # fmt: skip


def attack_by_weights(learnt: AttackContext[Any]) -> list[Finding]:
    """Measure how sure the fitted weights (probabilities of values by combination) are of each record's value.

    With the source, it is also measured how often the likeliest value is right. For a random part of the records, this
    is repeated with weights that are fitted to the other records, which shows how much others reveal.
    """
    view = learnt.view
    with refuse_damaged():
        rule, tables = read_published(view.db, view.manifest, view.database)
        weights = read_weights(view.db, rule, view.database)
    sizes, epsilon = rule.codes.sizes, float(rule.epsilon)
    best, records = weights.max(axis=1), sizes.sum()
    without = best * np.exp(-epsilon) / (1 - best + best * np.exp(-epsilon))
    notes = (f"of the mean, others' values alone account for {float(without @ sizes / records):.1%} or more",)
    finding = Finding(
        LEARNING, LEARNING_KNOWS, promised=False, attacked=int(records), mean=float(best @ sizes / records),
        highest=float(best.max()), baseline=float((sizes @ weights).max() / records), notes=notes,
    )  # fmt: skip
    if not view.source:
        return [finding]
    combination, truth = read_truth(view)
    held = view.noise.random(len(truth)) < HELD_OUT
    found = replace(finding, **_compare_beliefs(weights, combination, truth))
    if held.all() or not held.any():
        few = ("too few records to leave some out",)
        return [found, Finding(WITHOUT, WITHOUT_KNOWS, promised=False, applies=False, notes=few)]
    without_them = learn_from_others(rule, tables, combination[held], truth[held])
    best = without_them[combination[held]].max(axis=1)
    others = replace(
        finding, adversary=WITHOUT, knows=WITHOUT_KNOWS, attacked=int(held.sum()), mean=float(best.mean()),
        highest=float(best.max()), notes=(), **_compare_beliefs(without_them, combination[held], truth[held]),
    )  # fmt: skip
    return [found, others]


def learn_from_others(rule: TablesRule, tables: Sequence[NoisyTable], combination: Any, truth: Any) -> Any:
    """Fit the model to noisy tables without the values of some records, to see what other records reveal of them.

    The records are removed from the counts; the noise stays.

    Args:
        rule: The public rule, which says which tables the release has.
        tables: The noisy tables.
        combination: The number of each removed record's combination of quasi-identifiers.
        truth: The code of each removed record's value.

    Returns:
        The probability of each of K values in each combination of quasi-identifiers (rows, K).
    """
    left = rule.codes.sizes - np.bincount(combination, minlength=len(rule.codes.sizes))
    others = []
    for one in tables:
        flat = rule.codes.tables[one.columns[0]].cells[combination] * rule.values + truth
        others.append(replace(one, counts=one.counts - np.bincount(flat, minlength=one.counts.size)))
    return fit_tables(others, replace(rule, codes=replace(rule.codes, sizes=left)), draws=0).weights


def _compare_beliefs(weights: Any, combination: Any, truth: Any) -> dict[str, Any]:
    """Compare fitted probabilities of values with the true values of records.

    Args:
        weights: The probability of each of K values in each combination of quasi-identifiers (rows, K).
        combination: The combination of each of n records (n,).
        truth: The code of each record's true value (n,).

    Returns:
        How often the likeliest value is the true one (``right``), and the mean probability of the true one
        (``true_mean``).
    """
    right = float((weights.argmax(axis=1)[combination] == truth).mean())
    return {"right": right, "true_mean": float(weights[combination, truth].mean())}


def read_truth(view: ReleaseView) -> tuple[Any, Any]:
    """Return (the combination of quasi-identifiers (n,), the code of the value (n,)) of every record of the source."""
    keys = [exp.Ordered(this=one, nulls_first=False) for one in view.roles.qi_columns("r")]
    rows = view.db.arrow(fill("attack/valued", {"records": temp_table("records").as_("r"), "order": keys}))
    listed = Randomize.model_validate(view.manifest.parameters).listed
    truth = np.array([listed.find_code(value) for value in rows["value"].to_pylist()], dtype=np.int64)
    return rows["combination"].to_numpy(), truth


def attack_together(series: ReleaseSeries) -> list[Finding]:
    """Compute the belief in a record's value that an attacker can reach from several releases of the same people.

    The attacker knows the sensitive values of all other records, and gives the value even odds before. The changes of
    log-odds by the single releases add up.
    """
    pairs = zip(series.manifests, series.databases, strict=True)
    reached = reach_of(0.5, sum(spent_exponent(series.db, manifest, place) for manifest, place in pairs))
    records = min(one.published_records for one in series.manifests)
    return [
        Finding(TOGETHER, TOGETHER_KNOWS, promised=False, attacked=records, mean=reached, highest=reached, baseline=0.5)
    ]


ADVERSARIES: tuple[Adversary[AttackView], ...] = (
    Adversary(INFORMED, INFORMED_KNOWS, promised=True, attack=attack_informed),
    Adversary(LEARNING, LEARNING_KNOWS, promised=False, attack=attack_by_weights),
)
