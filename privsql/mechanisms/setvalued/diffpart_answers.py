"""Publish the tree of item sets as tables, and answer queries from it with a model of what was pruned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.dp_random import variance_of
from privsql.engine.sqlfiles import Holes, alias_as, all_of, column, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.dp import noisy_tree, noisy_tree_release
from privsql.mechanisms.dp.noisy_tree import Candidates, Estimator, distinct_rows, rows_by_depth
from privsql.mechanisms.dp.noisy_tree_release import FIRST, LAST, NOTHING, as_integers
from privsql.mechanisms.private import DAMAGED, refuse_damaged
from privsql.mechanisms.setvalued.diffpart_tree import (
    ItemSetTree,
    ItemTaxonomy,
    item_sets,
    least_noisy_size,
    rebuild_taxonomy,
)
from privsql.mechanisms.setvalued.questions import WeightedSets, parse_counted, weight_of
from privsql.model.manifest import ReleaseTable
from privsql.model.records import bounded_zeros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.aggregates import Statement
    from privsql.answers.names import Lookups
    from privsql.answers.question import CountQuery
    from privsql.mechanisms.dp.noisy_tree import Fit, Flags, Ints, Reals
    from privsql.mechanisms.setvalued.parameters import SetValued
    from privsql.model.manifest import Estimate, Manifest

# Model ----------------------------------------------------------------------------------------------------------------
# What was pruned (``privsql.mechanisms.dp.noisy_tree``): the masks that the model knows of, and what stands for it.
#
# Item sets drawn from the model stand for the records of pruned partitions. They are made from the published tree
# alone, so they spend no budget, and give every question about items, however it is put, an answer that includes the
# mass lost by pruning.


def fit_estimator(tree: ItemSetTree, taxonomy: ItemTaxonomy, *, pruning: bool = True) -> Estimator:
    """Sizes and model fitted to a tree; without ``pruning`` every set is in it, whatever its count was."""
    masks = find_candidates(tree, taxonomy)
    if not pruning:
        return Estimator(tree, noisy_tree.fit_all_candidates(tree, masks), taxonomy.node_count)
    return Estimator(
        tree, noisy_tree.fit_sizes(tree, masks, partial(_product_distribution, masks, taxonomy)), taxonomy.node_count
    )


def find_candidates(tree: ItemSetTree, taxonomy: ItemTaxonomy) -> Candidates:
    """The masks that some row kept, and all of one or two children."""
    wide = np.int64(32)
    rows = np.arange(1, len(tree))
    present = tree.next[tree.parent[rows]] << wide | tree.mask[rows]
    extra = [present]
    for degree in np.unique(taxonomy.degree).tolist():
        nodes = np.flatnonzero(taxonomy.degree == degree)
        ones = np.int64(1) << np.arange(degree, dtype=np.int64)
        few = np.unique(ones[:, None] | ones[None, :])
        extra.append((nodes[:, None] << wide | few[None, :]).reshape(-1))
    keys = np.unique(np.concatenate(extra))
    of_row = np.full(len(tree), -1, dtype=np.int64)
    of_row[rows] = np.searchsorted(keys, present)
    node = keys >> wide
    return Candidates(node, keys & 0xFFFFFFFF, np.searchsorted(node, np.arange(taxonomy.node_count + 1)), of_row)


def _product_distribution(masks: Candidates, taxonomy: ItemTaxonomy, frequency: Reals) -> Reals:
    """Distribution over each node's candidates if its children came independently of each other."""
    number = taxonomy.node_count
    total = np.bincount(masks.node, weights=frequency, minlength=number) + 2.0
    weight = np.ones(len(masks.sub))
    for place in range(int(taxonomy.degree.max())):
        has = masks.sub >> place & 1 == 1
        among = np.bincount(masks.node[has], weights=frequency[has], minlength=number)
        chance = ((among + 1.0) / total)[masks.node]
        weight *= np.where(has, chance, np.where(taxonomy.degree[masks.node] > place, 1 - chance, 1.0))
    result: Reals = weight / np.bincount(masks.node, weights=weight, minlength=number)[masks.node]
    return result


@dataclass(frozen=True)
class ImputedSets:
    """G sets: ``row`` (G,): the expanded row that each stands for, ascending; items as sorted (set, item) pairs.

    ``weight`` (G,): as of ``Lost``.
    """

    row: Ints
    weight: Reals
    which: Ints
    item: Ints


@dataclass
class _Drawing:
    """Sets in the making: inner nodes that are still to be replaced, (G, K), and the items so far."""

    pending: Flags
    which: list[Ints]
    item: list[Ints]

    def replace_node(self, at: Ints, node: Ints, mask: Ints, taxonomy: ItemTaxonomy) -> None:
        """Replace a node of each set in ``at`` by children."""
        self.pending[at, node] = False
        place, item = taxonomy.expand_masks(node, mask, low=True)
        self.which.append(at[place])
        self.item.append(item)
        place, inner = taxonomy.expand_masks(node, mask, low=False)
        self.pending[at[place], inner] = True


def impute_sets(tree: ItemSetTree, taxonomy: ItemTaxonomy, fit: Fit, draw: np.random.Generator) -> ImputedSets:
    """At least one set for every expanded row that may have lost records, more for those that lost more."""
    lost = noisy_tree.draw_lost(tree, fit, draw)
    rows, owner = np.unique(lost.row, return_inverse=True)
    sets = _Drawing(_pending_nodes(tree, taxonomy)[lost.row], *_repeat_sets(*item_sets(tree, rows, taxonomy), owner))
    sets.replace_node(np.arange(len(owner)), tree.next[lost.row], fit.candidates.sub[lost.candidate], taxonomy)
    for node in range(taxonomy.node_count):
        at = np.flatnonzero(sets.pending[:, node])
        chosen = noisy_tree.draw_candidates(fit, node, draw.random(len(at)))
        sets.replace_node(at, np.full(len(at), node), fit.candidates.sub[chosen], taxonomy)
    which, item = np.concatenate(sets.which), np.concatenate(sets.item)
    order = np.lexsort((item, which))
    return ImputedSets(lost.row, lost.weight, which[order], item[order])


def _pending_nodes(tree: ItemSetTree, taxonomy: ItemTaxonomy) -> Flags:
    """Inner nodes of every row's hierarchy cut, (T, K)."""
    result = bounded_zeros(len(tree), taxonomy.node_count, dtype=bool)
    result[0, 0] = True
    for depth in rows_by_depth(tree)[1:]:
        rows = depth[~tree.leaf[depth]]
        above = tree.parent[rows]
        result[rows] = result[above]
        result[rows, tree.next[above]] = False
        place, inner = taxonomy.expand_masks(tree.next[above], tree.mask[rows], low=False)
        result[rows[place], inner] = True
    return result


def _repeat_sets(which: Ints, item: Ints, owner: Ints) -> tuple[list[Ints], list[Ints]]:
    """The items of sets ``owner``, as pairs with the position in ``owner``; ``which`` is sorted."""
    first, end = np.searchsorted(which, owner), np.searchsorted(which, owner + 1)
    length = end - first
    start = np.repeat(first - (np.cumsum(length) - length), length)
    return [np.repeat(np.arange(len(owner)), length)], [item[start + np.arange(int(length.sum()))]]


# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a release of item sets and its view: their columns, and a tree and its taxonomy as tables, and back.

WITHOUT = -1  # the part of the records without items, which lie outside the tree


TABLES = {
    "itemsets": ReleaseTable(("items LIST", "count BIGINT")),
    "privsql_tree": ReleaseTable((*FIRST, "mask BIGINT", "node INTEGER", *LAST)),
    "privsql_taxonomy": ReleaseTable(("node INTEGER", "parent INTEGER", "place INTEGER", "height INTEGER")),
    "privsql_universe": ReleaseTable(("code INTEGER", "item ITEM", "node INTEGER", "place INTEGER")),
    "privsql_sets": ReleaseTable(("part INTEGER", "items LIST", "weight DOUBLE")),
}


def tree_view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the consistent estimates, pruned records included."""
    items = alias_as(column("items", "sets"), manifest.sensitive[0].name)
    holes: Holes = {"sets": table("privsql_sets"), "items": [items], "weight": weight_of(manifest)}
    return fill("setvalued/weighted", holes)


def tree_table(tree: ItemSetTree, taxonomy: ItemTaxonomy, params: SetValued) -> pa.Table:
    """``privsql_tree``: ``node`` is where a part is expanded (NULL for an item set), ``mask`` which children of its
    parent's node it has.
    """
    extra = {"mask": pa.array(tree.mask, pa.int64()), "node": pa.array(tree.next, pa.int32(), mask=tree.leaf)}
    return noisy_tree_release.tree_table(tree, extra, list_thresholds(tree, taxonomy, params))


def list_thresholds(tree: ItemSetTree, taxonomy: ItemTaxonomy, params: SetValued) -> list[int | None]:
    """The threshold of every row but the root; None where every count is published."""
    if params.algorithm == "basic":
        return [None] * (len(tree) - 1)
    node = tree.next[tree.parent[1:]]
    different, kind = distinct_rows(tree.spent[1:], taxonomy.degree[node], taxonomy.height[node], tree.leaf[1:])
    result = [
        least_noisy_size(params, tree.budgets[s], degree=d, height=h, last=bool(leaf), nodes=taxonomy.node_count)
        for s, d, h, leaf in different
    ]
    return [result[one] for one in kind.tolist()]


def read_tree(rows: pa.Table, taxonomy: ItemTaxonomy, empty: int | None) -> ItemSetTree:
    """A tree from ``privsql_tree``, by part; ``ValueError`` if it is not one over this taxonomy."""
    (spent,), budgets = noisy_tree_release.read_budgets(rows, "budget")
    common = noisy_tree_release.common_columns(rows, expanded="node")
    tree = ItemSetTree(**common, mask=as_integers(rows["mask"], 0), spent=spent, budgets=budgets, empty=empty)
    noisy_tree_release.demand_tree(tree, rows, taxonomy.node_count)
    if tree.next[0] != 0:
        raise ValueError("its root is not that of the taxonomy")
    if (tree.mask[1:] < 1).any() or (tree.mask[1:] >> taxonomy.degree[tree.next[tree.parent[1:]]] > 0).any():
        raise ValueError("a mask names no children of its node")
    return tree


def taxonomy_table(taxonomy: ItemTaxonomy) -> pa.Table:
    """``privsql_taxonomy``: the inner nodes in the order of expansion."""
    is_root = np.arange(taxonomy.node_count) == 0
    return pa.table(
        {
            "node": pa.array(np.arange(taxonomy.node_count), pa.int32()),
            "parent": pa.array(taxonomy.parent, pa.int32(), mask=is_root),
            "place": pa.array(taxonomy.bit, pa.int32(), mask=is_root),
            "height": pa.array(taxonomy.height, pa.int32()),
        }
    )


def read_taxonomy(nodes: pa.Table, items: pa.Table) -> ItemTaxonomy:
    """A taxonomy from ``privsql_taxonomy`` and ``privsql_universe``; ``ValueError`` if it is not one."""
    result = rebuild_taxonomy(
        (as_integers(items["node"], -1), as_integers(items["place"], -1)),
        (as_integers(nodes["parent"], -1), as_integers(nodes["place"], -1)),
        as_integers(nodes["height"], 0),
    )
    if taxonomy_table(result).to_pydict() != nodes.to_pydict():
        raise ValueError("nodes are written down otherwise")
    return result


def as_lists(which: Ints, codes: Ints, number: int, items: pa.Array) -> pa.ListArray:
    """Sets as lists of items: pairs (set, code), sorted, of ``number`` sets."""
    offsets = np.searchsorted(which, np.arange(number + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(codes)))


# Answers --------------------------------------------------------------------------------------------------------------
# Answers from a release of item sets: by the paper's sum of counts, or from the tree with what was pruned.

BASELINE = (
    "estimate = sum of the counts of the published item sets that meet the condition (Chen et al. 2011); it does not "
    "know of what was pruned, so it has no interval"
)
FORMULA = (
    "estimate = sum of the sizes of the item sets that meet the condition, made consistent with all noisy sizes of the "
    "tree by least squares, and of the records of pruned partitions, as far as the sets that stand for them meet it"
)


class ItemSetTreeAnswers(noisy_tree_release.NoisyTreeAnswers):
    """An open release that answers count queries over items; its tree is fitted once."""

    records = values = "privsql_sets"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:  # noqa: ARG002 (items join nothing)
        """Return a count query over items, which a public universe has to hold."""
        return parse_counted(sql, self._roles, self._manifest, lambda: self.item_labels)

    @cached_property
    def release_taxonomy(self) -> ItemTaxonomy:
        """The release's taxonomy."""
        nodes, items = (self._read_table(name, by) for name, by in (("taxonomy", "node"), ("universe", "code")))
        with refuse_damaged():
            return read_taxonomy(nodes, items)

    @cached_property
    def release_tree(self) -> ItemSetTree:
        """The release's tree."""
        rows, taxonomy = self._read_table("tree", "part"), self.release_taxonomy
        with refuse_damaged():
            return read_tree(rows, taxonomy, self._manifest.facts["without_items"])

    @cached_property
    def fitted_estimator(self) -> Estimator:
        """The tree with consistent sizes."""
        return fit_estimator(self.release_tree, self.release_taxonomy, pruning=self.algorithm != "basic")

    @cached_property
    def _weighted_sets(self) -> tuple[Ints, WeightedSets]:
        """All sets of the release with their weights, and each one's part."""
        rows = self._read_table("sets", "part")
        items = self._read_table("universe", "code")["item"]
        lists = rows["items"].combine_chunks()
        result = pc.index_in(lists.flatten(), value_set=items.combine_chunks())
        if result.null_count:
            raise UsageError(f"{DAMAGED}: a set holds an item that is not in the universe")
        codes = result.to_numpy().astype(np.int64)
        lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
        starts = np.concatenate(([0], np.cumsum(lengths)))
        self._require_parts(rows["part"].to_numpy())
        return rows["part"].to_numpy().astype(np.int64), WeightedSets(
            starts, codes, rows["weight"].to_numpy(), len(items)
        )

    @cached_property
    def item_labels(self) -> tuple[str, ...]:
        """Text of the items, in the order of the universe."""
        labels: list[exp.Expr] = [exp.cast(column("item"), "VARCHAR")]
        universe = table("privsql_universe", self._database)
        return tuple(str(row[0]) for row in self._db.rows(fill("core/labels", {"domain": universe, "labels": labels})))

    @property
    def holdings(self) -> WeightedSets:
        """The release's sets with the weights of its view."""
        return self._weighted_sets[1]

    @property
    def noisy_sets(self) -> WeightedSets:
        """The published item sets with their noisy counts, the paper's release; other sets weigh nothing."""
        part, sets = self._weighted_sets
        leaf = (part >= 0) & self.release_tree.leaf[np.maximum(part, 0)]
        return replace(sets, weights=np.where(leaf, self.release_tree.size[np.maximum(part, 0)], 0).astype(np.float64))

    def make_synthetic(self) -> pa.Table:
        """Records that give about the release's estimates, (record, item) in order; the empty have none."""
        sets = self.holdings
        copied = np.repeat(np.arange(len(sets.weights)), sets.count_copies())
        length = np.diff(sets.starts)[copied]
        first = np.repeat(sets.starts[copied] - (np.cumsum(length) - length), length)
        codes = sets.codes[first + np.arange(int(length.sum()))]
        items = self._read_table("universe", "code")["item"].combine_chunks()
        return pa.table({"record": np.repeat(np.arange(len(copied)), length), "item": items.take(pa.array(codes))})

    def list_frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets, each with its estimated number of records, at least half of which was counted:
        sets that merely stand for what was pruned make none frequent.
        """
        self.require_estimator(estimator)
        part, sets = self._weighted_sets
        measured = np.where((part >= 0) & self.release_tree.leaf[np.maximum(part, 0)], sets.weights, 0.0)
        result = self.noisy_sets.top_sets(top) if estimator == "baseline" else sets.top_sets(top, measured)
        return [([self.item_labels[code] for code in chosen], support) for chosen, support in result]

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """The number of records that contain all of some items."""
        part, sets = self._weighted_sets
        inside = part[sets.sets_with_all(codes)]
        met = np.bincount(inside, minlength=len(self.release_tree))
        return self._make_estimate((), met / self._sets_by_part, estimator, confidence)

    @cached_property
    def _sets_by_part(self) -> Ints:
        """Sets of each part, at least 1."""
        part = self._weighted_sets[0]
        return np.maximum(np.bincount(part[part >= 0], minlength=len(self.release_tree)), 1)

    def _require_parts(self, part: Ints) -> None:
        """``UsageError`` if sets belong to parts that the tree does not have."""
        if len(part) and not (part.min() >= WITHOUT and part.max() < len(self.release_tree)):
            raise UsageError(f"{DAMAGED}: a set belongs to no part of the tree")

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer: one row."""
        rows = self._db.arrow(self._matching_query(query))
        part, met = rows["part"].to_numpy(), rows["met"].to_numpy().astype(np.float64)
        shares = np.zeros(len(self.release_tree))
        inside = part != WITHOUT
        self._require_parts(part)
        shares[part[inside]] = met[inside] / rows["sets"].to_numpy()[inside]
        error = float(np.sqrt(variance_of(Fraction(self._manifest.parameters["epsilon"]))))
        outside = (float(self.release_tree.empty or 0), error) if met[~inside].sum() else NOTHING
        return [self._make_estimate((), shares, estimator, confidence, outside, everything=query.is_total)]

    def _matching_query(self, query: CountQuery) -> exp.Query:
        sets = table("privsql_sets", self._database)
        return fill(
            "duckdb/met",
            {
                "sets": sets,
                "items": [column("items")],
                "condition": all_of([*query.filters["qi"], *query.filters["sa"]]),
            },
        )
