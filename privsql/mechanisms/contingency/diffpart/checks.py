"""The checks of a contingency table. They rest on the published tables alone: exact fractions, integers and SQL."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine.names import fold
from privsql.engine.sqlfiles import all_rows, column, fill, table, temp
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contingency.diffpart import domains
from privsql.mechanisms.contingency.diffpart.model import estimator
from privsql.mechanisms.contingency.diffpart.paths import violations
from privsql.mechanisms.contingency.diffpart.tables import read_taxonomy, read_tree, taxonomy_table
from privsql.mechanisms.contingency.diffpart.taxonomy import grouped
from privsql.mechanisms.contingency.diffpart.tree import positions
from privsql.mechanisms.contingency.domains import other_value
from privsql.mechanisms.contingency.parameters import Contingency, TreeFacts
from privsql.mechanisms.contract import stated
from privsql.mechanisms.noisytree import checks as noisytree
from privsql.model.checks import Check, Promised, differ, in_order, tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from privsql.engine.database import Relations
    from privsql.mechanisms.contingency.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.contingency.diffpart.tree import Tree
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    TreeCheck = Callable[[Tree, Taxonomy, Contingency], list[str]]

SQL: tuple[str, ...] = ("core/", "contingency/", "verify/")


def read(manifest: Manifest) -> Contingency:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    found = stated(manifest, TreeFacts, Contingency, "tree")
    names = {fold(field.name) for field in manifest.sensitive}
    if not names or manifest.roles.hold_sets or manifest.quasi_identifiers or names != set(map(fold, found.domains)):
        raise UsageError("its manifest states other columns than those of its domains")
    return found


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles, keys = manifest.roles, manifest.roles.sa_keys
    for view, name, own in (("counts", "cells", ["count"]), ("cells", "privsql_cells", ["part", "weight"])):
        rows = exp.select(*roles.sa_in(), *roles.by_sa.read(*own))
        db.view(f"v_{view}", rows.from_(table(name, database)))
    for name in ("tree", "taxonomy"):
        db.view(f"v_{name}", all_rows(table(f"privsql_{name}", database)))
    named: dict[str, TreeCheck] = {
        "choices and counts of every path spend at most epsilon": _paths,
        "sizes reach thresholds that depend on no data": partial(_thresholds, db),
        "scales are those of the budgets": partial(noisytree.wrong_scales, db),
        "taxonomies are stated, or group their values by fan-out": partial(_grouped, db, manifest),
        "facts are those of the tree": partial(_facts, manifest),
        "cells are leaves of the tree, or stand for what a part lost": partial(_cells, db, manifest),
        "weights are those of the fitted tree": partial(_weights, db, manifest),
    }
    cells, leaf = temp("v_cells"), roles.sa("c")
    db.view("v_leaf_cells", fill("contingency/leaf_cells", {"cells": cells, "tree": temp("v_tree"), "columns": leaf}))
    columns = [*roles.sa(), column("count")]
    counts = differ(columns, tally(temp("v_counts"), columns), tally(temp("v_leaf_cells"), columns))
    lie = [Check("cells lie in order", in_order(cells, ["part", *keys, "weight"], strict=False))]
    orders = {"tree": ["part"], "taxonomy": ["node"], "counts": list(keys)}
    return [
        *noisytree.of_tree(partial(_read, db, manifest), named),
        *noisytree.of_tables(manifest, counts, lie, orders),
    ]


def bounds(_db: Relations, manifest: Manifest) -> list[Promised]:
    """What a path of the tree spends."""
    return private.bounds(read(manifest).epsilon)


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: Contingency) -> list[Check]:
    """The checks against the source: of its records a private release tells nothing that could be checked."""
    return [
        Check("parameters are those of the specification", partial(private.as_asked, read(manifest), asked)),
        Check("taxonomies are the specification's", partial(_same_taxonomies, db, source, asked)),
    ]


def _read(db: Relations, manifest: Manifest) -> tuple[Tree, Taxonomy, Contingency]:
    taxonomy = read_taxonomy(db.arrow(all_rows(temp("v_taxonomy"))))
    if len(taxonomy.roots) != len(manifest.sensitive):
        raise ValueError("there is not one taxonomy for each column")
    return read_tree(db.arrow(all_rows(temp("v_tree"))), taxonomy), taxonomy, read(manifest)


def _paths(tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> list[str]:
    return [f"part {row} {what}" for row, what in violations(tree, taxonomy, asked)]


def _thresholds(db: Relations, tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> list[str]:
    """Rows whose threshold is not what parameters, budget and taxonomy make it, or whose size is below it."""

    def is_least(least: int, spent: Fraction, node: int, last: bool) -> bool:
        return noisytree.is_cutoff(least, int(taxonomy.degree[node]), asked.tau_cells if last else asked.tau, spent)

    return noisytree.wrong_thresholds(db, tree, is_least)


def _grouped(db: Relations, manifest: Manifest, _tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> list[str]:
    """Columns whose taxonomy has other groups or unnamed nodes; a stated one has a name for every node."""
    names, wrong = noisytree.published(db, "value", "v_taxonomy"), []
    for number, field in enumerate(manifest.sensitive):
        domain, nodes = asked.domain(field.name), np.flatnonzero(taxonomy.column == number)
        values = taxonomy.values(number)
        named = [names[node] is not None for node in nodes.tolist()]
        texts = [names[node] for node in values.tolist()]
        named[len(values) - 1] = texts[-1] == other_value(field.type, [text or "" for text in texts[:-1]])
        if domain is not None and domain.taxonomy is not None:
            right = all(named)
        else:
            expected = grouped(len(values), asked.fan_out)
            shifted = np.where(expected < 0, -1, expected + nodes[0])
            right = np.array_equal(shifted, taxonomy.parent[nodes]) and sum(named) == len(values)
        if not right or None in texts[:-1] or len(set(texts)) < len(texts):
            wrong.append(f"column {field.name}")
    return wrong


def _facts(manifest: Manifest, tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> list[str]:
    own = {
        "values": int((taxonomy.height == 0).sum()),
        "cells": int(tree.leaf.sum()),
        "not_covered": asked.not_covered(field.name for field in manifest.sensitive),
    }
    return noisytree.wrong_facts(manifest, tree, asked.algorithm, own)


def _nodes(db: Relations, manifest: Manifest, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """Part and value nodes of every row of ``privsql_cells``: (n,), (n, d); ``KeyError`` for a value without a node."""
    names = noisytree.published(db, "value", "v_taxonomy")
    texts = [exp.cast(own, "VARCHAR") for own in manifest.roles.sa()]
    rows = db.rows(exp.select(column("part"), *texts).from_(temp("v_cells")))
    known = [{names[node]: node for node in taxonomy.values(n).tolist()} for n in range(len(texts))]
    nodes = [[one[value] for one, value in zip(known, row[1:], strict=True)] for row in rows]
    part = np.array([-1 if row[0] is None else row[0] for row in rows], dtype=np.int64)
    return part, np.array(nodes, dtype=np.int64).reshape(-1, len(texts))


def _cells(db: Relations, manifest: Manifest, tree: Tree, taxonomy: Taxonomy, _asked: Contingency) -> list[str]:
    """Cells that are not their leaf's, or lie outside of the part for which they stand, or in one that it kept."""
    part, nodes = _nodes(db, manifest, taxonomy)
    at = positions(tree, taxonomy)
    if len(part) and not 0 <= part.min() <= part.max() < len(tree):
        return ["a cell belongs to no part of the tree"]
    inside = (taxonomy.path[nodes, taxonomy.depth[at[part]]] == at[part]).all(axis=1)
    kept = set(zip(tree.parent.tolist(), tree.node.tolist(), strict=True))
    expanded = np.maximum(tree.next[part], 0)
    own = nodes[np.arange(len(part)), taxonomy.column[expanded]]
    child = taxonomy.path[own, taxonomy.depth[expanded] + 1]
    again = np.array([pair in kept for pair in zip(part.tolist(), child.tolist(), strict=True)], dtype=bool)
    wrong = ~inside | (again & ~tree.leaf[part])
    number = np.bincount(part, minlength=len(tree))
    return [
        *(f"a cell of part {row}" for row in sorted(set(part[wrong].tolist()))),
        *(f"part {row}: {number[row]} cells" for row in np.flatnonzero(tree.leaf & (number != 1)).tolist()),
    ]


def _weights(db: Relations, manifest: Manifest, tree: Tree, taxonomy: Taxonomy, _asked: Contingency) -> list[str]:
    """Parts whose cells do not weigh what the fitted tree has there."""
    rows = db.rows(fill("contingency/numbers", {"cells": temp("v_cells")}))
    return noisytree.wrong_weights(manifest, tree, estimator(tree, taxonomy).fit.sizes, rows)


def _same_taxonomies(db: Relations, source: Records, asked: Contingency) -> list[str]:
    found = domains.read(db, source, asked)
    expected = taxonomy_table(found.taxonomy, found.names).to_pylist()
    stated = db.arrow(all_rows(temp("v_taxonomy"))).to_pylist()
    return [] if stated == expected else [f"stated {len(stated)} nodes, the specification has {len(expected)}"]
