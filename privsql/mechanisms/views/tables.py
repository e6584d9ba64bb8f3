"""Write the tables of a release of views, and read them back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, Roles, alias_as, column, fill, quoted_identifier, table
from privsql.exact import fraction_text
from privsql.mechanisms.dp.noisy_tables import Ints, LeastSquares, NoisyTable, Reals
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.dp.tables import NOISY_TABLES, TABLE_ORDERS, read_noisy_tables
from privsql.mechanisms.views.item_counts import ItemCounts, length_classes
from privsql.mechanisms.views.item_sets import WeightedSets
from privsql.mechanisms.views.model import ViewModel
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued
from privsql.mechanisms.views.plan import find_rule
from privsql.model.arrays import round_copies
from privsql.model.tables import SETS as LISTS
from privsql.model.tables import ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

# Item sets ------------------------------------------------------------------------------------------------------------
# What every release of item sets holds. The publisher's column of item sets keeps its name; added columns are renamed.

UNIVERSE = "privsql_universe"


def read_labels(db: Relations, universe: exp.Table) -> tuple[str, ...]:
    """Return the texts of the items of a release, in the order of its universe."""
    holes: Holes = {"domain": universe, "labels": [exp.cast(column("item"), "VARCHAR")]}
    return tuple(str(row[0]) for row in db.rows(fill("core/labels", holes)))


def name_columns(roles: Roles, *others: str) -> Holes:
    """Return the published names of the column of item sets and of columns that privsql adds, for SQL.

    Args:
        roles: The columns of the release.
        others: The names of the added columns inside privsql, such as ``weight``. A column is published under another
            name if the publisher's column has this one.

    Returns:
        The published name as SQL, by placeholder: ``items`` for the item sets, and each of ``others``.
    """
    return {"items": quoted_identifier(roles.sensitive[0].name), **roles.by_sa.alias_holes(*others)}


def weigh_sets(manifest: Manifest, name: str, count: str) -> exp.Query:
    """Return the query of the view ``NAME_weighted``: the item sets of a table with their weights.

    Args:
        manifest: The manifest, which names the columns.
        name: The table.
        count: The column of the table that becomes the weight.
    """
    roles = manifest.roles
    weight = alias_as(roles.by_sa.as_column(count, "sets"), roles.by_sa.column_name("weight"))
    holes: Holes = {"sets": table(name), "items": column(roles.sensitive[0].name, "sets"), "weight": weight}
    return fill("setvalued/weighted", holes)


def join_lists(owners: Ints, values: pa.Array, number: int) -> pa.ListArray:
    """Gather values into lists.

    Args:
        owners: The list to which each value belongs, ascending.
        values: The values.
        number: The number of lists; some may be empty.
    """
    offsets = np.searchsorted(owners, np.arange(number + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


# Tables ---------------------------------------------------------------------------------------------------------------
# ``privsql_items`` has the two noisy counts of every item of a large universe. The lengths of records have a noisy
# table of their own, over one column that follows those of the items.

CHOSEN, SETS, COUNTED = "privsql_chosen", "privsql_sets", "privsql_items"
TABLES = {
    UNIVERSE: ReleaseTable(("code INTEGER", "item ITEM")),
    COUNTED: ReleaseTable(("code INTEGER", "whole BIGINT", "cut BIGINT")),
    CHOSEN: ReleaseTable(("place INTEGER", "item ITEM")),
    **NOISY_TABLES,
    SETS: ReleaseTable((LISTS, "weight BIGINT")),
}


def list_chosen(codes: Ints) -> pa.Table:
    """Return the rows of ``privsql_chosen``: the codes of the items of the noisy tables."""
    return pa.table({"place": pa.array(np.arange(len(codes)), pa.int32()), "code": pa.array(codes, pa.int32())})


def list_counts(counts: ItemCounts | None) -> pa.Table:
    """Return the rows of ``privsql_items``: the noisy counts of all items; none for a small universe."""
    whole, cut = (np.zeros(0, dtype=np.int64),) * 2 if counts is None else (counts.whole, counts.cut)
    return pa.table({"code": pa.array(np.arange(len(whole)), pa.int32()), "whole": whole, "cut": cut})


def name_lengths(names: Sequence[str]) -> str:
    """Return a name for the column of record lengths that is not the name of an item.

    >>> name_lengths(["ale", "length"])
    'length of the record'
    """
    result = "length of the record"
    while result in names:
        result += "'"
    return result


def column_sizes(measured: int, tables: Sequence[NoisyTable]) -> list[int]:
    """Return the number of values of each column of the noisy tables: 2 for an item, the classes for record lengths."""
    return [2] * measured + [one.counts.size for one in tables if one.columns == (measured,)][:1]


def list_synthetic_sets(population: Reals, codes: Ints, items: pa.Array) -> pa.Table:
    """Return the rows of ``privsql_sets``: the item sets of a synthetic population, with their numbers of records.

    Args:
        population: The estimated number of records with each pattern of the items of noisy tables.
        codes: The codes of these items.
        items: All items of the universe, by code.
    """
    records = round_copies(population.reshape(-1))
    occurring = np.flatnonzero(records)
    order = np.argsort(codes)  # list the items of a set in the order of the universe
    lists = list_patterns(occurring, items.take(pa.array(codes[order])), len(codes) - 1 - order)
    return pa.table({"items": lists, "weight": pa.array(records[occurring], pa.int64())})


def list_patterns(patterns: Ints, items: pa.Array, bits: Ints) -> pa.ListArray:
    """Return for each pattern the list of the items that it has.

    Args:
        patterns: The patterns, as whole numbers with a bit for each item.
        items: The items.
        bits: For each item, which bit of a pattern belongs to it.
    """
    which, place = np.nonzero(patterns[:, None] >> bits & 1)
    return join_lists(which, items.take(pa.array(place)), len(patterns))


# Open releases --------------------------------------------------------------------------------------------------------
# An open release of views as arrays, read from its tables.

ORDERS = {**TABLE_ORDERS, "universe": ["code"], "items": ["code"], "chosen": ["place"], "sets": ["items"]}


@dataclass(frozen=True)
class PublishedViews:
    """The tables of a release of noisy views (tables of which of a few items records have).

    Methods raise ``ValueError`` or ``KeyError`` if the tables can't belong to a valid release.

    Attributes:
        rows: The rows of each table, by its name.
        labels: The texts of all items, by code.
        params: The parameters of the release.
    """

    rows: Mapping[str, pa.Table]
    labels: tuple[str, ...]
    params: SetValued

    @property
    def items(self) -> pa.Array:
        """Return the items of the universe in their own type, by code."""
        return self.rows["universe"]["item"].combine_chunks()

    @cached_property
    def codes(self) -> Ints:
        """Return the codes of the items of the noisy tables, in the order of their columns there."""
        chosen = self.rows["chosen"]
        codes = pc.index_in(chosen["item"].combine_chunks(), value_set=self.items)
        if codes.null_count or not np.array_equal(chosen["place"].to_numpy(), np.arange(len(codes))):
            raise ValueError("the measured items are not of the universe, or not numbered 0, 1, ..")
        return np.asarray(codes.to_numpy(), dtype=np.int64)

    @cached_property
    def noisy_tables(self) -> list[NoisyTable]:
        """Return the noisy tables of the release."""
        marginals, labels = self.rows["marginals"], [self.labels[code] for code in self.codes.tolist()]
        if any(one.null_count for one in marginals.columns):
            raise ValueError("a cell has no number, or no count")
        names, sizes = [*labels, name_lengths(labels)], [2] * len(labels) + [len(length_classes(len(self.labels)))]
        return read_noisy_tables(self.rows["cliques"], marginals, names, sizes, find_law(self.params))

    @cached_property
    def counts(self) -> ItemCounts | None:
        """Return the noisy counts of all items of a large universe; None for a small one."""
        rows, universe = self.rows["items"], len(self.labels)
        due = universe if universe > TINY_UNIVERSE else 0
        codes, whole, cut = (rows[name].to_numpy() for name in ("code", "whole", "cut"))
        if any(one.null_count for one in rows.columns) or not np.array_equal(codes, np.arange(due)):
            raise ValueError("an item of the universe has no count, or there is one too many")
        if not due:
            return None
        lengths = tuple(one for one in self.noisy_tables if one.columns == (len(self.codes),))
        if not 1 <= len(lengths) <= 2:
            raise ValueError("there is no table of lengths, or more than two")
        rule = find_rule(lengths, self.params, universe)
        return ItemCounts(lengths, rule, whole.astype(np.int64), cut.astype(np.int64), find_law(self.params))

    @cached_property
    def synthetic_sets(self) -> WeightedSets:
        """Return the published synthetic sets; an item's code is the position of its column in the noisy tables."""
        rows = self.rows["sets"]
        return WeightedSets.from_lists(rows["items"], rows["weight"], self.items.take(self.codes))

    @cached_property
    def model(self) -> ViewModel:
        """Return the model that estimates answers from the noisy tables and the synthetic sets."""
        number = len(self.codes)
        population = self.synthetic_sets.count_patterns(np.arange(number)).astype(np.float64)
        return ViewModel(LeastSquares(self.noisy_tables, column_sizes(number, self.noisy_tables)), population)


def read_views(db: Relations, database: str | None, params: SetValued, roles: Roles) -> PublishedViews:
    """Return the tables of an open release.

    Args:
        db: Where the release is attached.
        database: The database of the release; None for the current one.
        params: The parameters of the release.
        roles: The columns of the release. The rows that are read name columns as in privsql's code, not as published.
    """
    rows = {}
    for name, keys in ORDERS.items():
        inside = TABLES[f"privsql_{name}"].select_inside(roles, table(f"privsql_{name}", database)).subquery("rows")
        rows[name] = db.arrow(exp.select(exp.Star()).from_(inside).order_by(*map(column, keys)))
    return PublishedViews(rows, read_labels(db, table(UNIVERSE, database)), params)


def list_facts(
    params: SetValued, fitted: LeastSquares, counts: ItemCounts | None, items: int, measured: int, sets: int
) -> dict[str, Any]:
    """Return those facts of the manifest that follow from the tables.

    Args:
        params: The parameters.
        fitted: The least-squares estimates from the noisy tables.
        counts: The noisy counts of all items; None for a small universe.
        items: The number of items of the universe.
        measured: The number of items of the noisy tables.
        sets: The number of different synthetic sets.
    """
    return {
        "items": items,
        "measured": measured,
        "tables": len(fitted.tables),
        "cells": sum(one.counts.size for one in fitted.tables),
        "sets": sets,
        "cap": counts.rule.cap if counts else 0,
        "items_budget": fraction_text(counts.rule.budget) if counts else "0",
        "items_scale": counts.scale if counts else 0.0,
        "estimated_records": round(fitted.total, 1),
        "universe_is_public": not params.universe.data,
    }
