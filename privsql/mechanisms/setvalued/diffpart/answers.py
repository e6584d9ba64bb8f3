"""Answers from a release of item sets: by the paper's sum of counts, or from the tree with what was pruned."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers import parse_sets
from privsql.dpnoise import variance_of
from privsql.engine.sqlfiles import column, every, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.noisytree import answers as noisytree
from privsql.mechanisms.noisytree.answers import NOTHING
from privsql.mechanisms.private import DAMAGED, whole
from privsql.mechanisms.setvalued.diffpart.model import estimator
from privsql.mechanisms.setvalued.diffpart.tables import WITHOUT, read_taxonomy, read_tree
from privsql.mechanisms.setvalued.holdings import Holdings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.asked import Statement
    from privsql.answers.question import CountQuery
    from privsql.answers.sources import Lookups
    from privsql.mechanisms.noisytree.estimate import Estimator
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.diffpart.tree import Tree
    from privsql.model.estimate import Estimate

BASELINE = (
    "estimate = sum of the counts of the published item sets that meet the condition (Chen et al. 2011); it does not "
    "know of what was pruned, so it has no interval"
)
FORMULA = (
    "estimate = sum of the sizes of the item sets that meet the condition, made consistent with all noisy sizes of the "
    "tree by least squares, and of the records of pruned partitions, as far as the sets that stand for them meet it"
)


class Answers(noisytree.Answers):
    """An open release that answers count queries over items; its tree is fitted once."""

    records = values = "privsql_sets"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    def read(self, sql: str, lookups: Lookups) -> Statement:  # noqa: ARG002 (items join nothing)
        """A count query over items."""
        return parse_sets.read(sql, self._roles, self._manifest.name)

    @cached_property
    def taxonomy(self) -> Taxonomy:
        """The release's taxonomy."""
        nodes, items = (self._rows(name, by) for name, by in (("taxonomy", "node"), ("universe", "code")))
        with whole():
            return read_taxonomy(nodes, items)

    @cached_property
    def tree(self) -> Tree:
        """The release's tree."""
        rows, taxonomy = self._rows("tree", "part"), self.taxonomy
        with whole():
            return read_tree(rows, taxonomy, self._manifest.facts["without_items"])

    @cached_property
    def fitted(self) -> Estimator:
        """The tree with consistent sizes."""
        return estimator(self.tree, self.taxonomy, pruning=self.algorithm != "basic")

    @cached_property
    def _sets(self) -> tuple[Ints, Holdings]:
        """All sets of the release with their weights, and each one's part."""
        rows = self._rows("sets", "part")
        items = self._rows("universe", "code")["item"]
        lists = rows["items"].combine_chunks()
        found = pc.index_in(lists.flatten(), value_set=items.combine_chunks())
        if found.null_count:
            raise UsageError(f"{DAMAGED}: a set holds an item that is not in the universe")
        codes = found.to_numpy().astype(np.int64)
        lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
        starts = np.concatenate(([0], np.cumsum(lengths)))
        self._known(rows["part"].to_numpy())
        return rows["part"].to_numpy().astype(np.int64), Holdings(starts, codes, rows["weight"].to_numpy(), len(items))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Text of the items, in the order of the universe."""
        labels: list[exp.Expr] = [exp.cast(column("item"), "VARCHAR")]
        universe = table("privsql_universe", self._database)
        return tuple(str(row[0]) for row in self._db.rows(fill("core/labels", {"domain": universe, "labels": labels})))

    @property
    def holdings(self) -> Holdings:
        """The release's sets with the weights of its view."""
        return self._sets[1]

    @property
    def counted(self) -> Holdings:
        """The published item sets with their noisy counts, the paper's release; other sets weigh nothing."""
        part, sets = self._sets
        leaf = (part >= 0) & self.tree.leaf[np.maximum(part, 0)]
        return replace(sets, weights=np.where(leaf, self.tree.size[np.maximum(part, 0)], 0).astype(np.float64))

    def synthetic(self) -> pa.Table:
        """Records that give about the release's estimates, (record, item) in order; the empty have none."""
        sets = self.holdings
        copied = np.repeat(np.arange(len(sets.weights)), sets.copies())
        length = np.diff(sets.starts)[copied]
        first = np.repeat(sets.starts[copied] - (np.cumsum(length) - length), length)
        codes = sets.codes[first + np.arange(int(length.sum()))]
        items = self._rows("universe", "code")["item"].combine_chunks()
        return pa.table({"record": np.repeat(np.arange(len(copied)), length), "item": items.take(pa.array(codes))})

    def frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets, each with its estimated number of records, at least half of which was counted:
        sets that merely stand for what was pruned make none frequent.
        """
        self.known(estimator)
        part, sets = self._sets
        measured = np.where((part >= 0) & self.tree.leaf[np.maximum(part, 0)], sets.weights, 0.0)
        found = self.counted.top(top) if estimator == "baseline" else sets.top(top, measured)
        return [([self.labels[code] for code in chosen], support) for chosen, support in found]

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """The number of records that contain all of some items."""
        part, sets = self._sets
        inside = part[sets.holding(codes)]
        met = np.bincount(inside, minlength=len(self.tree))
        return self._estimate((), met / self._number, estimator, confidence)

    @cached_property
    def _number(self) -> Ints:
        """Sets of each part, at least 1."""
        part = self._sets[0]
        return np.maximum(np.bincount(part[part >= 0], minlength=len(self.tree)), 1)

    def _known(self, part: Ints) -> None:
        """``UsageError`` if sets belong to parts that the tree does not have."""
        if len(part) and not (part.min() >= WITHOUT and part.max() < len(self.tree)):
            raise UsageError(f"{DAMAGED}: a set belongs to no part of the tree")

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer: one row."""
        rows = self._db.arrow(self._met(query))
        part, met = rows["part"].to_numpy(), rows["met"].to_numpy().astype(np.float64)
        shares = np.zeros(len(self.tree))
        inside = part != WITHOUT
        self._known(part)
        shares[part[inside]] = met[inside] / rows["sets"].to_numpy()[inside]
        error = float(np.sqrt(variance_of(Fraction(self._manifest.parameters["epsilon"]))))
        outside = (float(self.tree.empty or 0), error) if met[~inside].sum() else NOTHING
        return [self._estimate((), shares, estimator, confidence, outside, everything=query.is_total)]

    def _met(self, query: CountQuery) -> exp.Query:
        sets = table("privsql_sets", self._database)
        return fill(
            "duckdb/met",
            {
                "sets": sets,
                "items": [column("items")],
                "condition": every([*query.filters["qi"], *query.filters["sa"]]),
            },
        )
