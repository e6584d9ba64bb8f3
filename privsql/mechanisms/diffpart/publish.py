"""Publish a tree with its leaves: item sets, or cells of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.dp_random import noise_for, opendp_version
from privsql.engine.sqlfiles import Holes, Roles, all_rows, column, fill, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.diffpart.growth import PartitionedRecords, grow_tree
from privsql.mechanisms.diffpart.parameters import CellTreeFacts, ItemSetTreeFacts
from privsql.mechanisms.diffpart.plan import TreeDomains, items_taxonomy, read_tree_domains
from privsql.mechanisms.diffpart.tables import list_cell_facts, list_set_facts, write_tree
from privsql.mechanisms.diffpart.tree import PartitionTree, Taxonomy, leaf_values, make_columns_rule, make_sets_rule
from privsql.mechanisms.dp.tables import write_release_table
from privsql.mechanisms.marginals.domains import read_coded_cells
from privsql.mechanisms.views.item_sets import read_sets
from privsql.mechanisms.views.tables import UNIVERSE, name_columns

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.records import Records


def require_remaining(tree: PartitionTree, params: Any, what: str, helps: str) -> None:
    """Raise ``InfeasibleError`` if nothing was kept or more was pruned, unless the publisher said that it may be.

    Only the publisher learns of that, and what was drawn stays spent: who repeats until something passes tells more
    than epsilon. ``what``: was kept, ``helps``: what keeps more, in words.
    """
    total, remaining, number = tree.counted_records, tree.published_records, len(tree.leaves)
    if params.allow_empty or (number and 2 * remaining >= total):
        return
    found = f"the {number:,} {what}s that were kept hold less than half of the records"
    raise InfeasibleError(
        f"{found if number else f'no {what} was kept'}; a larger epsilon or {helps} would keep more, and "
        f"mechanism.allow_empty = true publishes it anyway; epsilon {fraction_text(params.epsilon)} was drawn and is "
        "spent",
        {"kept_records": remaining, "kept": number, "pruned_records": total - remaining},
    )


def publish_sets(db: Relations, source: Records, params: SetValued, key: Key) -> ItemSetTreeFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    choose = key.random_generator("setvalued", len(source.labels), fraction_text(params.epsilon))
    noise = noise_for(key)
    taxonomy = items_taxonomy(len(source.labels), params)
    rule = make_sets_rule(params, taxonomy)
    sets = read_sets(source)
    source.drop_relations()
    records = PartitionedRecords.generalize(sets.owners, sets.codes, sets.weights.astype(np.int64), taxonomy)
    tree = grow_tree(records, taxonomy, rule, noise, choose)
    require_remaining(tree, params, "item set", "fewer items")
    items = db.arrow(all_rows(temp_table("universe")).order_by("code"))["item"].combine_chunks()
    write_release_table(
        db,
        "itemsets",
        _leaf_sets(tree, taxonomy, items),
        fill(
            "setvalued/itemsets",
            {"given": temp_table("given"), **name_columns(source.roles, "part", "count")},
        ),
        title="Writing the sets",
    )
    write_tree(db, tree, taxonomy, [*source.labels, *[None] * int(taxonomy.inner[-1])])
    db.create_table(UNIVERSE, fill("setvalued/items", {"universe": temp_table("universe")}), into="release")
    return ItemSetTreeFacts(**list_set_facts(params, tree, taxonomy), noise=noise.origin, opendp=opendp_version())


def _leaf_sets(tree: PartitionTree, taxonomy: Taxonomy, items: pa.Array) -> pa.Table:
    """The item sets of the leaves: part, items, count."""
    which, codes = leaf_values(tree, taxonomy)
    offsets = np.searchsorted(which, np.arange(len(tree.leaves) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(codes)))
    parts, counts = pa.array(tree.leaves, pa.int32()), pa.array(tree.size[tree.leaves], pa.int64())
    return pa.table({"part": parts, "items": lists, "count": counts})


def publish_columns(db: Relations, source: Records, params: Contingency, key: Key) -> CellTreeFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    space, rule = read_tree_domains(db, source, params), make_columns_rule(params)
    codes, records, _ = read_coded_cells(db, source, space.columns)
    nodes = codes + space.first_nodes
    owners = np.repeat(np.arange(len(nodes)), nodes.shape[1])
    cells = PartitionedRecords.generalize(owners, nodes.reshape(-1), records, space.taxonomy)
    choose = key.random_generator("contingency", fraction_text(params.epsilon))
    tree = grow_tree(cells, space.taxonomy, rule, noise, choose)
    require_remaining(tree, params, "cell", "coarser domains")
    _write_cells(db, source.roles, space, tree)
    write_tree(db, tree, space.taxonomy, space.names)
    facts = list_cell_facts(params, source.roles.sensitive, tree, space.taxonomy)
    return CellTreeFacts(**facts, noise=noise.origin, opendp=opendp_version())


def _write_cells(db: Relations, roles: Roles, space: TreeDomains, tree: PartitionTree) -> None:
    """The table ``cells``; a column's values are the first nodes of its taxonomy."""
    nodes = leaf_values(tree, space.taxonomy)[1].reshape(-1, len(space.columns))
    codes = nodes - space.first_nodes
    values = {
        name: pc.take(one.values, pa.array(codes[:, number]))
        for number, (name, one) in enumerate(zip(roles.sa_keys, space.columns, strict=True))
    }
    parts, counts = pa.array(tree.leaves, pa.int32()), pa.array(tree.size[tree.leaves], pa.int64())
    holes: Holes = {
        "given": temp_table("given"),
        "columns": roles.sa_out("g"),
        "order": [*roles.sa_columns("g"), column("part", "g")],
    }
    query = fill("contingency/cells", {**holes, **roles.by_sa.alias_holes("part", "count")})
    write_release_table(
        db, "cells", pa.table({"part": parts, **values, "count": counts}), query, title="Writing the cells"
    )
