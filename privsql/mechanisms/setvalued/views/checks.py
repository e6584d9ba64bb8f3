"""The checks of a release of views: budgets in exact fractions, every cell, and what follows from them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from privsql.dpnoise import scale
from privsql.engine.sqlfiles import temp
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contract import stated
from privsql.mechanisms.noisytables import checks as noisytables
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE, SetValued, ViewFacts
from privsql.mechanisms.setvalued.source import source_checks as against
from privsql.mechanisms.setvalued.views import layout, model
from privsql.mechanisms.setvalued.views.choosing import Budgets, how_many
from privsql.mechanisms.setvalued.views.measuring import declared, named_first, on_places
from privsql.mechanisms.setvalued.views.release import Published
from privsql.mechanisms.setvalued.views.release import read as read_tables
from privsql.mechanisms.setvalued.views.tables import CHOSEN, SETS, UNIVERSE
from privsql.model.checks import Check, in_order

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from privsql.engine.database import Relations
    from privsql.mechanisms.setvalued.views.layout import Layout
    from privsql.model.checks import Promised
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

SQL: tuple[str, ...] = ("core/", "sets/", "setvalued/", "verify/", "duckdb/")
HALF = 0.5 + 1e-6  # a running total of whole numbers lies so near to that of the fitted table, which is of doubles


def read(manifest: Manifest) -> SetValued:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    found = stated(manifest, ViewFacts, SetValued, "release of views")
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")
    return found


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    asked = read(manifest)
    noisytables.views(db, database, UNIVERSE, CHOSEN, SETS)
    named: dict[str, Callable[[Published], list[str]]] = {
        "budgets of choices and tables add up to epsilon": partial(_spent, asked),
        "the measured items are as many as the rule says, declared ones first": partial(_chosen, asked),
        "tables and their budgets follow from the specification and the choice": partial(_laid_out, asked),
        "scales are those of the budgets": partial(_scales, db),
        "synthetic records are those of the fitted table": _fitted,
        "facts are those of the tables": partial(_facts, manifest, asked),
    }
    orders = {"universe": ["code"], "chosen": ["place"], "sets": ["items"]}
    return [
        *noisytables.of_tables(partial(read_tables, db, database), named),
        *(
            Check(f"rows of {name} lie in order, once each", in_order(temp(f"v_{name}"), keys, strict=True))
            for name, keys in orders.items()
        ),
        private.known_opendp(manifest),
    ]


def bounds(_db: Relations, manifest: Manifest) -> list[Promised]:
    """What choices and tables spend together."""
    return private.bounds(read(manifest).epsilon)


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: SetValued) -> list[Check]:
    """The checks against the source."""
    return against(db, read(manifest), source, asked)


def _spent(asked: SetValued, given: Published) -> list[str]:
    total = given.choice.spent + noisytables.spent(given.measured)
    return [] if total == asked.epsilon else [f"spent {total}, not {asked.epsilon}"]


def _chosen(asked: SetValued, given: Published) -> list[str]:
    """Items that were measured in another number or order than the rule has it, or at other budgets."""
    codes, wanted = given.choice.codes.tolist(), named_first(declared(asked, given.labels))
    due: tuple[Fraction | None, ...]
    if given.universe <= TINY_UNIVERSE:
        first, number, due = list(range(given.universe)), given.universe, (None,) * given.universe
    else:
        first, total = wanted, int(given.measured[0].counts.reshape(-1)[0])
        number = how_many(asked.epsilon, given.universe, total, len(first))
        own = number - len(first)
        each = Budgets.of(asked.epsilon, choosing=own > 0).choice / max(own, 1)
        due = (*(None,) * len(first), *(each,) * own)
    if len(set(codes)) != number or len(codes) != number:
        return [f"{len(codes)} items are measured, the rule has {number}"]
    wrong = [] if codes[: len(first)] == first else ["declared items do not come first, in their order"]
    return wrong if given.choice.budgets == due else [*wrong, "budgets of the choice are not the rule's"]


def _laid_out(asked: SetValued, given: Published) -> list[str]:
    """Tables that are not those of the rule, in its order."""
    return noisytables.as_due(given.measured, [(*one, None) for one in _due(asked, given)])


def _due(asked: SetValued, given: Published) -> Layout:
    choice = given.choice
    wanted = on_places(declared(asked, given.labels), choice.codes)
    if given.universe <= TINY_UNIVERSE:
        return layout.of_all(given.universe, asked.epsilon, wanted)
    budgets = Budgets.of(asked.epsilon, choosing=choice.spent > 0)
    return [((), budgets.total), *layout.of_chosen(len(choice.codes), budgets.tables, wanted)]


def _scales(db: Relations, given: Published) -> list[str]:
    """Scales that are not the least doubles which spend no more than the stated budgets."""
    pairs = zip(given.rows["chosen"]["scale"].to_pylist(), given.choice.budgets, strict=True)
    due = [(width, None if budget is None else scale(budget)) for width, budget in pairs]
    wrong = [f"choice: scale {width}, due {right}" for width, right in due if width != right]
    return noisytables.wrong_scales(db, given.measured) + wrong


def _fitted(given: Published) -> list[str]:
    """Sets whose running totals are not those of the table that fits the published counts."""
    weight = given.patterns[1]
    wrong = [] if (weight > 0).all() else ["a set has no records"]
    apart = np.abs(np.cumsum(given.population) - np.cumsum(model.table(given.squares)))
    slack = HALF + 1e-9 * max(given.squares.total, 0.0)
    return wrong if (apart <= slack).all() else [*wrong, f"a running total is off by {apart.max():.1f}"]


def _facts(manifest: Manifest, asked: SetValued, given: Published) -> list[str]:
    found = {
        "items": given.universe,
        "measured": len(given.choice.codes),
        "tables": len(given.measured),
        "cells": sum(one.counts.size for one in given.measured),
        "sets": given.rows["sets"].num_rows,
        "universe_is_public": not asked.universe.data,
    }
    wrong = private.wrong_facts(manifest, found)
    if abs(manifest.facts["estimated_records"] - given.squares.total) > 0.1:
        wrong.append(
            f"estimated records: stated {manifest.facts['estimated_records']}, found {given.squares.total:.1f}"
        )
    return wrong if manifest.algorithm == asked.algorithm == "views" else [*wrong, f"algorithm {manifest.algorithm}"]
