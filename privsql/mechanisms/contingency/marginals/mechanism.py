"""Differentially private marginals of a table as a mechanism (``contract``)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from privsql.attacks.suite import Suite
from privsql.dpnoise import noise_for
from privsql.errors import InfeasibleError
from privsql.exact import text
from privsql.mechanisms.contingency.domains import coded, read
from privsql.mechanisms.contingency.marginals.answers import Answers
from privsql.mechanisms.contingency.marginals.checks import (
    SQL,
    bounds,
    checks,
    estimated,
    facts,
    source_checks,
)
from privsql.mechanisms.contingency.marginals.checks import read as read_manifest
from privsql.mechanisms.contingency.marginals.cliques import NOISE, Due, Rule
from privsql.mechanisms.contingency.marginals.measuring import measure
from privsql.mechanisms.contingency.marginals.proposal import propose
from privsql.mechanisms.contingency.marginals.rows import distance, rows
from privsql.mechanisms.contingency.marginals.tables import (
    DOMAINS,
    ROWS,
    domains_table,
    tables,
    view,
    write_rows,
)
from privsql.mechanisms.contingency.parameters import Contingency
from privsql.mechanisms.contingency.questions import evaluate
from privsql.mechanisms.contract import Budget, Categories, Mechanism
from privsql.mechanisms.noisytables.checks import adversary
from privsql.mechanisms.noisytables.model import Model
from privsql.mechanisms.noisytables.said import structure
from privsql.mechanisms.noisytables.tables import CLIQUES, MARGINALS
from privsql.mechanisms.noisytables.tables import publish as publish_tables
from privsql.mechanisms.private import NOT_PLANNED, figure, made_with, promise, words, write
from privsql.model.checks import nothing_longer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.contingency.domains import Column
    from privsql.mechanisms.noisytables.measured import Measured
    from privsql.model.records import Records
    from privsql.noise import Key


def plan(db: Relations, source: Records, asked: Contingency) -> dict[str, Any]:
    """What is known without looking at the records: tables, cells and budgets."""
    columns = read(db, source, asked)
    rule = _rule(columns, asked)
    fixed = rule.fixed()
    return {
        "epsilon": text(asked.epsilon),
        "values": sum(rule.sizes),
        "columns": len(rule.sizes),
        "workload": len(rule.workload),
        "pairs": len(rule.pairs),
        "cells": sum(map(rule.cells, [*(clique for clique, _, _ in fixed), *rule.pairs])),
        "columns_budget": text(_spent(fixed, 1)),
        "workload_budget": text(_spent(fixed, 2)),
        "noise_of_columns": float(rule.alone),
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
    }


def publish(db: Relations, source: Records, asked: Contingency, key: Key) -> dict[str, Any]:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    columns = read(db, source, asked)
    rule = _rule(columns, asked)
    measured = measure(*coded(db, source, columns), rule, noise)
    _tell_something(rule, measured)
    model = Model(measured, rule.sizes)
    made = rows(model, key.stream("marginals", text(asked.epsilon)))
    publish_tables(db, measured, rule.names)
    write(db, DOMAINS, domains_table(columns))
    write_rows(db, source.roles.sensitive, columns, made)
    return {
        **facts(rule, measured),
        "synthetic": len(made[1]),
        "distance": round(distance(model, *made), 6),
        "estimated_records": estimated(model),
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
        **made_with(noise),
    }


def _tell_something(rule: Rule, tables: Sequence[Measured]) -> None:
    """``InfeasibleError`` where the columns' own tables hold more noise than records, unless that is wanted."""
    noise = rule.noise(tables)
    if noise > 1 and not rule.asked.allow_empty:
        raise InfeasibleError(
            f"the tables would be noise: on average {float(noise):.3g} times as much as there are records (about "
            f"{float(rule.total(tables)):,.0f}); a larger epsilon, fewer values or wider bins would help, and "
            f"--allow-empty (allow_empty = true) publishes it all the same; epsilon {text(rule.asked.epsilon)} was "
            "drawn and is spent"
        )


def _spent(fixed: Sequence[Due], columns: int) -> Fraction:
    """What tables of one column, or of more, spend together."""
    return sum((spent for clique, spent, _ in fixed if min(len(clique), 2) == columns), start=Fraction(0))


def _rule(columns: Sequence[Column], asked: Contingency) -> Rule:
    return Rule(asked, tuple(one.field.name for one in columns), tuple(map(len, columns)))


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What a plan or a release says of itself."""
    leak = ", ".join(facts["not_covered"])
    covered = f"those that occur (not covered by the guarantee) in {leak}" if leak else "public"
    shown = [("values", f"{facts['values']:,}, {covered}")]
    if "cliques" not in facts:
        asked = f"{facts['columns']} columns for {facts['columns_budget']}, {facts['pairs']} pairs of them"
        more = f", {facts['workload']} declared for {facts['workload_budget']}" if facts["workload"] else ""
        rule = f"pairs are chosen where their noise is above {text(NOISE)} of the records"
        noise = f"about {facts['noise_of_columns']:,.0f} records in a column's own table; refused where there are fewer"
        return [*shown, ("tables", f"{asked}{more}; {facts['cells']:,} cells"), ("rule", rule), ("noise", noise)]
    chosen = f", {facts['chosen']} of them chosen" if facts["chosen"] else ""
    made = f"{facts['cliques']:,} of {facts['cells']:,} cells{chosen}"
    synthetic = f"{facts['synthetic']:,} synthetic ones, {facts['distance']:.2%} from the tables of two columns"
    return [*shown, ("tables", made), ("rows", synthetic), figure(facts)]


MECHANISM = Mechanism(
    parameters=Contingency,
    shape=Categories(lambda asked: asked.domains),
    composition=Budget(lambda asked: asked.epsilon),
    sql=SQL,
    relations=(CLIQUES, MARGINALS, DOMAINS, ROWS),
    read=read_manifest,
    plan=plan,
    algorithms=NOT_PLANNED,
    publish=publish,
    tables=tables,
    view=view,
    checks=checks,
    long_checks=nothing_longer,
    measured=lambda _db, _manifest: {},
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=evaluate,
    adversaries=Suite(scene=None, adversaries=(adversary(),), combining=(), quick=None),
    promise=promise,
    words=words,
    structure=structure,
    advice=("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one"),
    propose=propose,
    warnings=lambda _facts: [],
    figures=figures,
)
