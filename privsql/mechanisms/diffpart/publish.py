"""Publish the leaves of a partition tree with their noisy counts: item sets, or cells of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.dp_random import noise_for, opendp_version
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.diffpart.growth import PartitionedRecords, grow_tree
from privsql.mechanisms.diffpart.parameters import CellTreeFacts, ItemSetTreeFacts
from privsql.mechanisms.diffpart.plan import items_taxonomy, read_tree_domains
from privsql.mechanisms.diffpart.tables import list_cell_facts, list_set_facts, write_tree
from privsql.mechanisms.diffpart.tree import PartitionTree, leaf_values, make_columns_rule, make_sets_rule
from privsql.mechanisms.dp.tables import write_release_table
from privsql.mechanisms.marginals.domains import read_coded_cells
from privsql.mechanisms.views.item_sets import read_sets
from privsql.mechanisms.views.tables import UNIVERSE, join_lists, name_columns

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.records import Records


def require_remaining(tree: PartitionTree, params: Any, what: str, helps: str) -> None:
    """Refuse a release if its leaves hold no record, or less than half of the records, unless ``allow_empty`` is set.

    Only the publisher sees this refusal. The budget stays spent, because repeating until a release passes would reveal
    more than epsilon.

    Args:
        tree: The tree.
        params: The parameters.
        what: A word for a leaf, used in the message.
        helps: The advice of the message: what would keep more leaves.

    Raises:
        InfeasibleError: The release is refused.
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
    """Publish a noisy tree of item sets into database ``release``, and return its facts for the manifest."""
    choose, noise = key.random_generator("setvalued", len(source.labels), fraction_text(params.epsilon)), noise_for(key)
    taxonomy, sets = items_taxonomy(len(source.labels), params), read_sets(source)
    source.drop_relations()
    records = PartitionedRecords.generalize(sets.owners, sets.codes, sets.weights.astype(np.int64), taxonomy)
    tree = grow_tree(records, taxonomy, make_sets_rule(params, taxonomy), noise, choose)
    require_remaining(tree, params, "item set", "fewer items")
    items = db.arrow(all_rows(temp_table("universe")).order_by("code"))["item"].combine_chunks()
    which, codes = leaf_values(tree, taxonomy)
    lists = join_lists(which, items.take(pa.array(codes)), len(tree.leaves))
    holes: Holes = {"given": temp_table("given"), **name_columns(source.roles, "part", "count")}
    leaves = list_leaves(tree, {"items": lists})
    write_release_table(db, "itemsets", leaves, fill("setvalued/itemsets", holes), title="Writing the sets")
    write_tree(db, tree, taxonomy, [*source.labels, *[None] * int(taxonomy.inner[-1])])
    db.create_table(UNIVERSE, fill("setvalued/items", {"universe": temp_table("universe")}), into="release")
    return ItemSetTreeFacts(**list_set_facts(params, tree, taxonomy), noise=noise.origin, opendp=opendp_version())


def publish_columns(db: Relations, source: Records, params: Contingency, key: Key) -> CellTreeFacts:
    """Publish a noisy tree over a table's columns into database ``release``, and return its facts for the manifest."""
    noise, roles = noise_for(key), source.roles
    space = read_tree_domains(db, source, params)
    codes, records, _ = read_coded_cells(db, source, space.columns)
    nodes = codes + space.first_nodes
    owners = np.repeat(np.arange(len(nodes)), nodes.shape[1])
    cells = PartitionedRecords.generalize(owners, nodes.reshape(-1), records, space.taxonomy)
    choose = key.random_generator("contingency", fraction_text(params.epsilon))
    tree = grow_tree(cells, space.taxonomy, make_columns_rule(params), noise, choose)
    require_remaining(tree, params, "cell", "coarser domains")
    published = leaf_values(tree, space.taxonomy)[1].reshape(-1, len(space.columns)) - space.first_nodes
    values = {
        name: pc.take(one.values, pa.array(own))
        for name, one, own in zip(roles.sa_keys, space.columns, published.T, strict=True)
    }
    holes: Holes = {
        "given": temp_table("given"),
        "columns": roles.sa_out("g"),
        "order": [*roles.sa_columns("g"), column("part", "g")],
        **roles.by_sa.alias_holes("part", "count"),
    }
    leaves = list_leaves(tree, values)
    write_release_table(db, "cells", leaves, fill("contingency/cells", holes), title="Writing the cells")
    write_tree(db, tree, space.taxonomy, space.names)
    facts = list_cell_facts(params, roles.sensitive, tree, space.taxonomy)
    return CellTreeFacts(**facts, noise=noise.origin, opendp=opendp_version())


def list_leaves(tree: PartitionTree, values: dict[str, pa.Array]) -> pa.Table:
    """Return the rows of the leaves table: the partition, the values and the noisy count of each leaf."""
    parts, counts = pa.array(tree.leaves, pa.int32()), pa.array(tree.size[tree.leaves], pa.int64())
    return pa.table({"part": parts, **values, "count": counts})
