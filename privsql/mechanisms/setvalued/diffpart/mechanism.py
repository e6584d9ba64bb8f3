"""Differentially private item sets as a mechanism (``contract``): DiffPart over arrays, in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.attacks.suite import Suite
from privsql.dpnoise import noise_for
from privsql.engine.sqlfiles import all_rows, column, fill, is_null, temp
from privsql.exact import text
from privsql.mechanisms.contract import Budget, Mechanism, Proposal, Sets
from privsql.mechanisms.noisytree import kept, membership
from privsql.mechanisms.noisytree.said import structure
from privsql.mechanisms.private import NOT_PLANNED, RECORD, figure, made_with, promise, words, write
from privsql.mechanisms.setvalued.diffpart.answers import Answers
from privsql.mechanisms.setvalued.diffpart.basic import count_all, flat
from privsql.mechanisms.setvalued.diffpart.budget import portion, threshold
from privsql.mechanisms.setvalued.diffpart.checks import SQL, bounds, checks, read, source_checks
from privsql.mechanisms.setvalued.diffpart.model import estimator, impute
from privsql.mechanisms.setvalued.diffpart.records import Baskets
from privsql.mechanisms.setvalued.diffpart.tables import WITHOUT, lists, tables, taxonomy_table, tree_table, view
from privsql.mechanisms.setvalued.diffpart.taxonomy import grow
from privsql.mechanisms.setvalued.diffpart.tree import item_sets, partition
from privsql.mechanisms.setvalued.parameters import SetValued
from privsql.mechanisms.setvalued.questions import evaluate
from privsql.model.checks import nothing_longer

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Profiled
    from privsql.mechanisms.setvalued.diffpart.model import Imputed
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.diffpart.tree import Tree
    from privsql.model.records import Records
    from privsql.noise import Key, Shuffler


LEAVES = membership.Leaves("item sets", is_null(column("node")))


def plan(db: Relations, source: Records, asked: SetValued) -> dict[str, Any]:  # noqa: ARG001 (all mechanisms take it)
    """What is known without looking at the records: taxonomy, budgets and thresholds at the root."""
    taxonomy = _taxonomy(len(source.labels), asked, None)
    first = portion(asked.epsilon, asked.epsilon / 2, int(taxonomy.inner[0]))
    last = taxonomy.nodes == 1
    degree, height = int(taxonomy.degree[0]), int(taxonomy.height[0])
    least = threshold(asked, first, degree=degree, height=height, last=last, nodes=taxonomy.nodes)
    return {
        "epsilon": text(asked.epsilon),
        "items": taxonomy.items,
        "inner_nodes": taxonomy.nodes,
        "height": height,
        "first_budget": text(first),
        "first_threshold": 0 if asked.algorithm == "basic" else least,
    }


def propose(db: Relations, source: Profiled) -> Proposal:  # noqa: ARG001 (all mechanisms take it)
    """An epsilon of 1, the items that occur as the universe."""
    return Proposal(
        {"kind": "setvalued", "epsilon": "1", "universe": "data"},
        (RECORD, "Better than 'data' is a public list, or { query = ... }: the items that occur are not protected."),
    )


def publish(db: Relations, source: Records, asked: SetValued, key: Key) -> dict[str, Any]:
    """Make the tables of a release in database ``release``; returns the facts."""
    draw = key.stream("setvalued", len(source.labels), text(asked.epsilon))
    noise = noise_for(key)
    taxonomy = _taxonomy(len(source.labels), asked, draw)
    source.sort()
    baskets = _baskets(db)
    source.done()
    if asked.algorithm == "basic":
        tree = count_all(baskets, taxonomy, asked, noise)
    else:
        tree = partition(baskets, taxonomy, asked, noise, draw)
    fitted = estimator(tree, taxonomy, pruning=asked.algorithm != "basic")
    stated = kept.enough(fitted, asked, "item set", "fewer items")
    imputed = impute(tree, taxonomy, fitted.fit, draw)
    _write(db, tree, taxonomy, asked, (fitted.fit.sizes.size, imputed))
    return {
        "items": taxonomy.items,
        "inner_nodes": taxonomy.nodes,
        "partitions": len(tree) - 1,
        "item_sets": int(tree.leaf.sum()),
        "imputed": len(imputed.row),
        "without_items": tree.empty,
        "estimated_records": round(float(fitted.fit.sizes.size[0]) + (tree.empty or 0), 1),
        **stated,
        "universe_is_public": not asked.universe.data,
        **made_with(noise),
    }


def _taxonomy(items: int, asked: SetValued, noise: Shuffler | None) -> Taxonomy:
    return flat(items, noise) if asked.algorithm == "basic" else grow(items, asked.fan_out, noise)


def _baskets(db: Relations) -> Baskets:
    """The source's sets as arrays; relations ``contents`` and ``baskets`` are those of ``privsql.source.sets``."""
    contents = db.arrow(all_rows(temp("contents")))
    weights = db.arrow(fill("setvalued/weights", {"baskets": temp("baskets")}))["records"].to_numpy()
    length = np.bincount(contents["basket"].to_numpy(), minlength=len(weights))
    starts = np.concatenate(([0], np.cumsum(length[length > 0])))
    codes = contents["code"].to_numpy().astype(np.int64)
    return Baskets(starts, codes, weights[length > 0].astype(np.int64), int(weights[length == 0].sum()))


def _write(
    db: Relations, tree: Tree, taxonomy: Taxonomy, asked: SetValued, estimates: tuple[np.ndarray[Any, Any], Imputed]
) -> None:
    """The tables of a release."""
    items = db.arrow(all_rows(temp("universe")).order_by("code"))["item"].combine_chunks()
    leaves = np.flatnonzero(tree.leaf)
    sets = lists(*item_sets(tree, leaves, taxonomy), len(leaves), items)
    none = lists(leaves[:0], leaves[:0], int(tree.empty is not None), items)
    without = [tree.empty] if tree.empty is not None else []
    size, imputed = estimates
    stand_ins = lists(imputed.which, imputed.item, len(imputed.row), items)
    counts = pa.array([*without, *tree.size[leaves].tolist()], pa.int64())
    parts = np.concatenate(([WITHOUT] * len(without), leaves, imputed.row))
    weights = np.concatenate((np.array(without, dtype=np.float64), size[leaves], imputed.weight))
    published = {"items": pa.chunked_array([none, sets]), "count": counts}
    weighted = {
        "part": pa.array(parts, pa.int32()),
        "items": pa.chunked_array([none, sets, stand_ins]),
        "weight": pa.array(weights, pa.float64()),
    }
    for name, file, given in (("itemsets", "itemsets", published), ("privsql_sets", "sets", weighted)):
        write(db, name, pa.table(given), fill(f"setvalued/{file}", {"given": temp("given")}), title="Writing the sets")
    write(db, "privsql_tree", tree_table(tree, taxonomy, asked))
    write(db, "privsql_taxonomy", taxonomy_table(taxonomy))
    placed = {"node": taxonomy.item_parent, "place": taxonomy.item_bit, "code": np.arange(taxonomy.items)}
    columns = pa.table({name: pa.array(values, pa.int32()) for name, values in placed.items()})
    holes = {"universe": temp("universe"), "placed": temp("given")}
    write(db, "privsql_universe", columns, fill("setvalued/universe", holes))


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What a plan or a release says of itself."""
    shown = [("taxonomy", f"{facts['items']:,} items, {facts['inner_nodes']:,} inner nodes")]
    if "partitions" not in facts:
        return [*shown, ("first expansion", f"budget {facts['first_budget']}, threshold {facts['first_threshold']:,}")]
    made = f"{facts['item_sets']:,} in {facts['partitions']:,} partitions; {facts['imputed']:,} stand for pruned ones"
    leak = "public" if facts["universe_is_public"] else "the items that occur (not covered by the guarantee)"
    return [*shown, ("item sets", made), ("universe", leak), figure(facts)]


DIFFPART = Mechanism(
    parameters=SetValued,
    shape=Sets(lambda asked: asked.universe),
    composition=Budget(lambda asked: asked.epsilon),
    sql=SQL,
    relations=("itemsets", "privsql_tree", "privsql_taxonomy", "privsql_universe", "privsql_sets"),
    read=read,
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
    adversaries=Suite(scene=None, adversaries=(membership.adversary(LEAVES),), combining=(), quick=None),
    promise=promise,
    words=words,
    structure=structure,
    advice=("a smaller epsilon", "a public universe of items: those that occur tell of records that hold a rare one"),
    propose=propose,
    warnings=lambda facts: kept.warned(facts, facts["item_sets"], "item set"),
    figures=figures,
)
