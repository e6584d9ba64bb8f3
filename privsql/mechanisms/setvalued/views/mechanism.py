"""Differentially private item sets by views as a mechanism (``contract``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.attacks.suite import Suite
from privsql.dpnoise import noise_for
from privsql.engine.sqlfiles import all_rows, fill, table, temp
from privsql.errors import InfeasibleError
from privsql.exact import text
from privsql.mechanisms.contract import Budget, Mechanism, Sets
from privsql.mechanisms.noisytables import tables as noisytables
from privsql.mechanisms.noisytables.checks import adversary
from privsql.mechanisms.noisytables.said import structure
from privsql.mechanisms.private import NOT_PLANNED, figure, made_with, promise, words, write
from privsql.mechanisms.setvalued.diffpart.mechanism import propose
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE, SetValued
from privsql.mechanisms.setvalued.questions import evaluate
from privsql.mechanisms.setvalued.views import layout, measuring, model, squares, tables
from privsql.mechanisms.setvalued.views.answers import Answers
from privsql.mechanisms.setvalued.views.checks import SQL, bounds, checks, read, source_checks
from privsql.mechanisms.setvalued.views.choosing import Budgets
from privsql.model.checks import nothing_longer

if TYPE_CHECKING:
    from privsql.attacks.scene import ReleaseView
    from privsql.engine.database import Relations
    from privsql.mechanisms.noisytables.measured import Measured
    from privsql.mechanisms.setvalued.views.squares import Squares
    from privsql.mechanisms.setvalued.views.tables import Choice
    from privsql.model.records import Records
    from privsql.noise import Key


def plan(db: Relations, source: Records, asked: SetValued) -> dict[str, Any]:  # noqa: ARG001 (all mechanisms take it)
    """What is known without looking at the records: what is measured, at most, and with which budgets."""
    items = len(source.labels)
    wanted = measuring.declared(asked, source.labels)
    facts = {"epsilon": text(asked.epsilon), "items": items, "measured_at_most": min(items, TINY_UNIVERSE)}
    if items > TINY_UNIVERSE:
        budgets = Budgets.of(asked.epsilon, choosing=len(measuring.named_first(wanted)) < TINY_UNIVERSE)
        parts = {"records_budget": budgets.total, "choice_budget": budgets.choice, "tables_budget": budgets.tables}
        return facts | {name: text(value) for name, value in parts.items()}
    due = layout.of_all(items, asked.epsilon, wanted)
    cells = sum(1 << len(places) for places, _ in due)
    return facts | {"tables": len(due), "cells": cells, "tables_budget": text(asked.epsilon)}


def publish(db: Relations, source: Records, asked: SetValued, key: Key) -> dict[str, Any]:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    wanted = measuring.declared(asked, source.labels)
    counts = source.counts
    source.sort()
    contents = db.arrow(all_rows(temp("contents")))
    records = db.arrow(fill("setvalued/weights", {"baskets": temp("baskets")}))["records"].to_numpy()
    source.done()
    owners, codes = (contents[name].to_numpy().astype("int64") for name in ("basket", "code"))
    sets = measuring.Sets(owners, codes, records.astype("int64"), counts)
    choice, measured = measuring.measure(sets, asked.epsilon, wanted, noise)
    fitted = squares.fitted(measured, len(choice.codes))
    _tell_something(fitted, asked)
    written = _write(db, source, choice, measured, model.table(fitted))
    return {
        "items": len(source.labels),
        "measured": len(choice.codes),
        "tables": len(measured),
        "cells": sum(one.counts.size for one in measured),
        "sets": written,
        "estimated_records": round(fitted.total, 1),
        "universe_is_public": not asked.universe.data,
        **made_with(noise),
    }


def _tell_something(fitted: Squares, asked: SetValued) -> None:
    """``InfeasibleError`` where numbers of records with an item are noise, unless that is wanted."""
    alone = np.array([fitted.error([place], np.array([0.0, 1.0])).deviation for place in range(fitted.items)])
    total = max(fitted.total, 0.0)
    if alone.mean() > total and not asked.allow_empty:
        raise InfeasibleError(
            f"the counts would be noise: that of the records with an item has a standard error of {alone.mean():,.0f} "
            f"on average, where there are about {total:,.0f} records; a larger epsilon or fewer items would help, and "
            f"--allow-empty (allow_empty = true) publishes it all the same; epsilon {text(asked.epsilon)} was drawn "
            "and is spent"
        )


def _write(db: Relations, source: Records, choice: Choice, measured: list[Measured], population: Any) -> int:
    """The tables of a release; how many sets its synthetic records have."""
    universe = temp("universe")
    items = db.arrow(all_rows(universe).order_by("code"))["item"].combine_chunks()
    sets = tables.sets_table(population, choice, items)
    labels = [source.labels[code] for code in choice.codes.tolist()]
    write(db, tables.SETS, sets, fill("setvalued/fitted", {"given": temp("given")}), title="Writing the sets")
    chosen = fill("setvalued/measured", {"given": temp("given"), "universe": universe})
    write(db, tables.CHOSEN, tables.choice_table(choice), chosen)
    noisytables.publish(db, measured, labels)
    db.make(tables.UNIVERSE, fill("setvalued/items", {"universe": universe}), into="release")
    return int(sets.num_rows)


def choosing(given: ReleaseView) -> float:
    """What a record may shift all choices of items by: the sum of 1/s over their scales s."""
    widths = given.db.arrow(all_rows(table(tables.CHOSEN, given.database)))["scale"].to_pylist()
    return sum(1 / float(width) for width in widths if width)


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What a plan or a release says of itself."""
    if "measured" not in facts:
        shown = [("items", f"{facts['items']:,}, at most {facts['measured_at_most']} of them measured")]
        if "choice_budget" in facts:
            return [*shown, ("budgets", f"choice {facts['choice_budget']}, tables {facts['tables_budget']}")]
        return [*shown, ("tables", f"{facts['tables']:,} with {facts['cells']:,} counts")]
    leak = "public" if facts["universe_is_public"] else "the items that occur (not covered by the guarantee)"
    return [
        ("items", f"{facts['measured']:,} of {facts['items']:,} measured, in {facts['tables']:,} tables"),
        ("counts", f"{facts['cells']:,}; about {facts['estimated_records']:,.0f} records"),
        ("synthetic", f"{facts['sets']:,} different sets"),
        ("universe", leak),
        figure(facts),
    ]


def warnings(facts: dict[str, Any]) -> list[str]:
    """What is not known of items that were not measured."""
    left = facts["items"] - facts["measured"]
    told = "of them a release tells a bound; declare what matters as workload, or name fewer items as the universe"
    return [f"{left:,} of {facts['items']:,} items were not measured: {told}"] if left else []


VIEWS = Mechanism(
    parameters=SetValued,
    shape=Sets(lambda asked: asked.universe),
    composition=Budget(lambda asked: asked.epsilon),
    sql=SQL,
    relations=tables.NAMES,
    read=read,
    plan=plan,
    algorithms=NOT_PLANNED,
    publish=publish,
    tables=tables.tables,
    view=tables.view,
    checks=checks,
    long_checks=nothing_longer,
    measured=lambda _db, _manifest: {},
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=evaluate,
    adversaries=Suite(scene=None, adversaries=(adversary(choosing),), combining=(), quick=None),
    promise=promise,
    words=words,
    structure=structure,
    advice=("a smaller epsilon", "a public universe of items: those that occur tell of records that hold a rare one"),
    propose=propose,
    warnings=warnings,
    figures=figures,
)
