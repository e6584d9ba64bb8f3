"""The tables of a release of views, and back."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, Roles, alias_as, column, fill, quoted_identifier, table
from privsql.exact import fraction_text
from privsql.mechanisms.dp.noisy_tables import Ints, LeastSquares, NoisyTable, Reals
from privsql.mechanisms.dp.tables import NOISY_TABLES, TABLE_ORDERS, read_noisy_tables
from privsql.mechanisms.views.item_sets import WeightedSets
from privsql.mechanisms.views.model import ViewModel
from privsql.model.arrays import round_copies
from privsql.model.tables import SETS as LISTS
from privsql.model.tables import ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from privsql.dp_random import NoiseLaw
    from privsql.engine.database import Relations
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.manifest import Manifest

# Item sets ------------------------------------------------------------------------------------------------------------
# What every release of item sets holds. Published sets have the publisher's name, and columns of privsql's give way.

UNIVERSE = "privsql_universe"


def read_labels(db: Relations, universe: exp.Table) -> tuple[str, ...]:
    """Return the texts of the items of a release, in the order of its universe."""
    holes: Holes = {"domain": universe, "labels": [exp.cast(column("item"), "VARCHAR")]}
    return tuple(str(row[0]) for row in db.rows(fill("core/labels", holes)))


def name_columns(roles: Roles, *others: str) -> Holes:
    """Return holes for the published names of a column of sets and of privsql's own columns."""
    return {"items": quoted_identifier(roles.sensitive[0].name), **roles.by_sa.alias_holes(*others)}


def weigh_sets(manifest: Manifest, name: str, count: str) -> exp.Query:
    """Return the release's own view: the sets of table ``name``, with its column ``count`` as weight."""
    roles = manifest.roles
    weight = alias_as(roles.by_sa.as_column(count, "sets"), roles.by_sa.column_name("weight"))
    holes: Holes = {"sets": table(name), "items": column(roles.sensitive[0].name, "sets"), "weight": weight}
    return fill("setvalued/weighted", holes)


def join_lists(owners: Ints, values: pa.Array, number: int) -> pa.ListArray:
    """Return ``number`` lists of values, each of which has an owner; owners ascend."""
    offsets = np.searchsorted(owners, np.arange(number + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a release of views: their columns, what was chosen and synthetic records as tables.

CHOSEN, SETS = "privsql_chosen", "privsql_sets"
TABLES = {
    UNIVERSE: ReleaseTable(("code INTEGER", "item ITEM")),
    CHOSEN: ReleaseTable(("place INTEGER", "item ITEM", "budget VARCHAR", "scale DOUBLE")),
    **NOISY_TABLES,
    SETS: ReleaseTable((LISTS, "weight BIGINT")),
}


@dataclass(frozen=True)
class ItemChoice:
    """The measured items: their codes in order (m,), and the budget of each one's choice; None where it was public."""

    codes: Ints
    budgets: tuple[Fraction | None, ...]

    @property
    def total_budget(self) -> Fraction:
        """Return what all choices spend together."""
        return sum((one for one in self.budgets if one is not None), Fraction(0))


def list_choices(choice: ItemChoice, law: NoiseLaw) -> pa.Table:
    """Return the rows of ``privsql_chosen``, with codes in place of items."""
    budgets = [None if one is None else fraction_text(one) for one in choice.budgets]
    scales = [None if one is None else choice_scale(one, law) for one in choice.budgets]
    return pa.table(
        {
            "place": pa.array(np.arange(len(choice.codes)), pa.int32()),
            "code": pa.array(choice.codes, pa.int32()),
            "budget": pa.array(budgets, pa.string()),
            "scale": pa.array(scales, pa.float64()),
        }
    )


def choice_scale(budget: Fraction, law: NoiseLaw) -> float:
    """Return the scale of the noise of a choice among numbers of records: 1/epsilon."""
    return law.scale(4 * budget) if law.concentrated else law.scale(budget)


def list_synthetic_sets(population: Reals, choice: ItemChoice, items: pa.Array) -> pa.Table:
    """Return the rows of ``privsql_sets``; ``items``: the universe's, by code."""
    records = round_copies(population.reshape(-1))
    occurring = np.flatnonzero(records)
    order = np.argsort(choice.codes)  # a set lists its items in the order of the universe
    lists = list_patterns(occurring, items.take(pa.array(choice.codes[order])), len(choice.codes) - 1 - order)
    return pa.table({"items": lists, "weight": pa.array(records[occurring], pa.int64())})


def list_patterns(patterns: Ints, items: pa.Array, bits: Ints) -> pa.ListArray:
    """Return the items of each pattern as a list; ``bits``: which bit of a pattern says that it has each item."""
    which, place = np.nonzero(patterns[:, None] >> bits & 1)
    return join_lists(which, items.take(pa.array(place)), len(patterns))


# Open releases --------------------------------------------------------------------------------------------------------
# An open release of views as arrays, read from its tables.

ORDERS = {**TABLE_ORDERS, "universe": ["code"], "chosen": ["place"], "sets": ["items"]}


@dataclass(frozen=True)
class PublishedViews:
    """The tables of a release; ``ValueError``, ``KeyError`` where they can't be what was published."""

    rows: Mapping[str, pa.Table]
    labels: tuple[str, ...]
    """The texts of the items, in the order of the universe."""
    law: NoiseLaw

    @property
    def items(self) -> pa.Array:
        """Return the items of the universe, by code."""
        return self.rows["universe"]["item"].combine_chunks()

    @cached_property
    def choice(self) -> ItemChoice:
        """Return the measured items."""
        chosen = self.rows["chosen"]
        codes = pc.index_in(chosen["item"].combine_chunks(), value_set=self.items)
        if codes.null_count or not np.array_equal(chosen["place"].to_numpy(), np.arange(len(codes))):
            raise ValueError("the measured items are not of the universe, or not numbered 0, 1, ..")
        budgets = tuple(None if one is None else Fraction(one) for one in chosen["budget"].to_pylist())
        return ItemChoice(codes.to_numpy().astype(np.int64), budgets)

    @cached_property
    def noisy_tables(self) -> list[NoisyTable]:
        """Return the tables with noise."""
        marginals, labels = self.rows["marginals"], [self.labels[code] for code in self.choice.codes.tolist()]
        if any(one.null_count for one in marginals.columns):
            raise ValueError("a cell has no number, or no count")
        return read_noisy_tables(self.rows["cliques"], marginals, labels, [2] * len(labels), self.law)

    @cached_property
    def synthetic_sets(self) -> WeightedSets:
        """Return the published sets, of the measured items by their places."""
        rows = self.rows["sets"]
        return WeightedSets.from_lists(rows["items"], rows["weight"], self.items.take(self.choice.codes))

    @cached_property
    def model(self) -> ViewModel:
        """Return the model of the tables and the synthetic records."""
        number = len(self.choice.codes)
        population = self.synthetic_sets.count_patterns(np.arange(number)).astype(np.float64)
        return ViewModel(LeastSquares(self.noisy_tables, [2] * number), population)


def read_views(db: Relations, database: str | None, law: NoiseLaw, roles: Roles) -> PublishedViews:
    """Return the tables of a release that lies in ``database``, with columns under their names inside."""
    rows = {}
    for name, keys in ORDERS.items():
        inside = TABLES[f"privsql_{name}"].select_inside(roles, table(f"privsql_{name}", database)).subquery("rows")
        rows[name] = db.arrow(exp.select(exp.Star()).from_(inside).order_by(*map(column, keys)))
    return PublishedViews(rows, read_labels(db, table(UNIVERSE, database)), law)


def list_facts(params: SetValued, fitted: LeastSquares, items: int, sets: int) -> dict[str, Any]:
    """Return what the manifest states of views that a table was ``fitted`` to."""
    return {
        "items": items,
        "measured": len(fitted.sizes),
        "tables": len(fitted.tables),
        "cells": sum(one.counts.size for one in fitted.tables),
        "sets": sets,
        "estimated_records": round(fitted.total, 1),
        "universe_is_public": not params.universe.data,
    }
