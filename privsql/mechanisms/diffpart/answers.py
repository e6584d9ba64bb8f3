"""Answer questions from the noisy counts of a partition tree's leaves.

A partition tree divides the records again and again, and drops (prunes) parts with small noisy counts. The parts that
are left undivided are its leaves: item sets, or cells of a table.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from privsql.answers.answer import ESTIMATORS
from privsql.answers.estimate import count_interval
from privsql.answers.sql.question import CountQuery, select_terms
from privsql.dp_random import variance_of
from privsql.engine.sqlfiles import Holes, alias_as, all_of, column, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.diffpart.plan import Usefulness, bound_noise, items_taxonomy
from privsql.mechanisms.diffpart.tables import SET_TABLES, TAXONOMY, TREE, as_integers, read_taxonomy, read_tree
from privsql.mechanisms.diffpart.tree import Ints, PartitionTree, Taxonomy, leaf_values, make_sets_rule
from privsql.mechanisms.dp.answers import DAMAGED, PrivateAnswers, refuse_damaged
from privsql.mechanisms.dp.unlisted import ListedAnswers, UnlistedColumn, read_question
from privsql.mechanisms.marginals.domains import ADDED
from privsql.mechanisms.marginals.questions import refuse_joins
from privsql.mechanisms.views.answers import ItemAnswers
from privsql.mechanisms.views.item_sets import WeightedSets, repeat_sets
from privsql.mechanisms.views.parameters import SetValued
from privsql.mechanisms.views.tables import UNIVERSE
from privsql.model.estimates import Estimate, same_nan
from privsql.model.universes import find_unlisted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

# Answers --------------------------------------------------------------------------------------------------------------
# Answers are sums of published counts, as in the paper.

FORMULA = (
    "estimate = sum of the counts of the published {leaves} that meet the condition (Chen et al. 2011); the interval "
    "is that of their noise, and its upper end allows for all records whose part was pruned"
)


class TreeAnswers(PrivateAnswers):
    """An open release of a partition tree, which estimates counts by sums of noisy leaf counts (Chen et al. 2011).

    The tree divides the records again and again, and drops (prunes) parts with small noisy counts. Its leaves are
    published.
    """

    formulas: ClassVar[Mapping[str, str]]

    @cached_property
    def release_taxonomy(self) -> tuple[Taxonomy, list[str | None]]:
        """Return the release's taxonomy, and the name of each of its nodes (None for a node without one).

        The taxonomy groups the items, or the values of each column, into a tree, by which records were divided.
        """
        nodes = self._read_table(TAXONOMY, "node")
        with refuse_damaged():
            return read_taxonomy(nodes, sets=self._roles.hold_sets), nodes["value"].to_pylist()

    @cached_property
    def release_tree(self) -> PartitionTree:
        """Return the release's tree of partitions of the records; raise ``UsageError`` if it is damaged."""
        with refuse_damaged():
            return read_tree(self._read_table(TREE, "part"), self.release_taxonomy[0])

    @cached_property
    def _count_variances(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the variance of the noise in each of T partitions' counts (T,); the entry of the root is unused."""
        tree = self.release_tree
        return np.array([variance_of(one) for one in tree.budgets] or [0.0])[tree.spent]

    @abstractmethod
    def _matching_query(self, query: CountQuery) -> exp.Query:
        """Return the query for the published leaves that meet a question's condition.

        A row has the groups of GROUP BY, the leaf's partition (its row in the tree) and its noisy count.
        """

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """Return the SQL that finds the published leaves for a question, and the formula of the estimate in words."""
        return self._matching_query(query), self.formulas[estimator]

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Estimate a question; a group of GROUP BY has a row if some published leaf belongs to it."""
        groups: dict[tuple[Any, ...], list[tuple[int, int]]] = {} if query.groups else {(): []}
        for *group, part, count in self._db.rows(self._matching_query(query)):
            key = tuple(same_nan(value) for value in group)
            groups.setdefault(key, []).append((-1 if part is None else part, count or 0))
        pairs = {group: np.array(rows, dtype=np.int64).reshape(-1, 2) for group, rows in groups.items()}
        return [self.make_estimate(group, one[:, 0], one[:, 1], confidence) for group, one in pairs.items()]

    @cached_property
    def _pruned_records(self) -> tuple[float, float]:
        """Return the estimated number of records in dropped partitions (at least 0), and the variance of this estimate.

        It is the difference of all counted records and those in leaves.
        """
        tree = self.release_tree
        counted = (tree.parent == 0) | tree.leaf
        pruned = max(tree.counted_records - tree.published_records, 0)
        return float(pruned), float(self._count_variances[counted].sum())

    def make_estimate(self, group: tuple[Any, ...], parts: Ints, counts: Ints, confidence: float) -> Estimate:
        """Estimate the records of one group from the n leaves that meet a question.

        The upper end of the interval allows that all records of dropped partitions are in the group. If no leaf meets
        the question, there is no interval.

        Args:
            group: The group of the answer.
            parts: The leaves' partitions, as rows of the tree (n,).
            counts: Their noisy counts (n,).
            confidence: The confidence of the interval.

        Raises:
            UsageError: A leaf belongs to no partition of the tree.
        """
        if not len(parts):
            return Estimate(group, 0.0, None, None, None)
        if not 0 < parts.min() <= parts.max() < len(self.release_tree):
            raise UsageError(f"{DAMAGED}: a count belongs to no part of the tree")
        result, error = float(counts.sum()), float(np.sqrt(self._count_variances[parts].sum()))
        pruned, more = self._pruned_records
        low, _ = count_interval(result, error, confidence)
        _, high = count_interval(result + pruned, float(np.hypot(error, np.sqrt(more))), confidence)
        return Estimate(group, result, error, min(low, result), max(high, result, 0.0))


class ItemSetTreeAnswers(ItemAnswers, TreeAnswers):
    """An open release of a tree of item sets, which answers count queries over items."""

    records = values = "itemsets"
    formulas: ClassVar[Mapping[str, str]] = dict.fromkeys(ESTIMATORS, FORMULA.format(leaves="item sets"))

    @cached_property
    def _published_parts(self) -> tuple[Ints, WeightedSets]:
        """Return the partition (row of the tree) of each published item set, and the sets with their noisy counts."""
        rows, items = self._db.arrow(self._sets_inside), self._read_table(UNIVERSE, "code")["item"]
        with refuse_damaged():
            sets = WeightedSets.from_lists(rows["items"], rows["count"], items.combine_chunks())
        return as_integers(rows["part"], -1), sets

    def bound_errors(
        self, true: WeightedSets, questions: Mapping[str, Sequence[tuple[int, ...]]], doubt: float
    ) -> dict[str, int]:
        """Bound the errors of counts of item sets by this release, for each class of questions of an evaluation.

        All bounds of a class hold together, except with probability ``doubt``.

        Args:
            true: The item sets of the source.
            questions: By name of the class, the questions in it. A question asks for the records that contain some
                items, and is given by their codes.
            doubt: The probability with which a bound may fail.
        """
        return bound_errors(true, self._published_parts[1], self.usefulness, questions, doubt)

    @cached_property
    def usefulness(self) -> Usefulness:
        """Return bounds on the noise of this release that hold for any records (Chen et al. 2011, Theorem 4.2)."""
        params = SetValued.model_validate(self._manifest.parameters)
        taxonomy = items_taxonomy(len(self.item_labels), params)
        return bound_noise(make_sets_rule(params, taxonomy), taxonomy)

    def make_synthetic(self) -> pa.Table:
        """Return synthetic records: each published item set as often as it was counted, as ordered rows (record, item).

        A record without items has no row.
        """
        rows = self._db.arrow(self._sets_inside)
        return repeat_sets(rows["items"], rows["count"])

    def top_sets(self, number: int, estimator: str) -> list[tuple[tuple[int, ...], float]]:
        """Return the item sets that the most published records contain, each with the number of these records.

        Args:
            number: How many item sets to return.
            estimator: The estimator.

        Returns:
            Pairs (the ascending codes of the set's items, the estimated number of records that contain all of them).
        """
        self.require_estimator(estimator)
        return self._published_parts[1].top_sets(number)

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """Estimate the number of records that contain all of the given items."""
        self.require_estimator(estimator)
        part, sets = self._published_parts
        met = sets.sets_with_all(codes)
        return self.make_estimate((), part[met], sets.weights[met].astype(np.int64), confidence)

    def _matching_query(self, query: CountQuery) -> exp.Query:
        condition = all_of([*query.filters["qi"], *query.filters["sa"]])
        return fill("duckdb/met", {"sets": self._sets_inside.subquery("sets"), "condition": condition})

    @property
    def _sets_inside(self) -> exp.Select:
        """Return the query for the published item sets, their partitions and counts.

        Its columns have fixed names, whatever names the publisher chose.
        """
        rows = SET_TABLES["itemsets"].select_inside(self._roles, table("itemsets", self._database))
        return rows.order_by(self._roles.by_sa.as_column("part"))


def bound_errors(
    true: WeightedSets,
    kept: WeightedSets,
    useful: Usefulness,
    questions: Mapping[str, Sequence[tuple[int, ...]]],
    doubt: float,
) -> dict[str, int]:
    """Bound the errors of counts of item sets by a release, for each class of questions.

    All bounds of a class hold together, except with probability ``doubt``. A question is answered by the sets that
    contain its items, in the source and in the release. Sets that no record has can be in the release by noise. So half
    of the doubt is for the source's sets, and half for those.

    Args:
        true: The item sets of the source.
        kept: The item sets of the release.
        useful: The least budget and the largest threshold of the release, which bound its noise.
        questions: By name of the class, the questions in it. A question asks for the records that contain some items,
            and is given by their codes.
        doubt: The probability that a bound of a class may fail, in (0, 1).

    Returns:
        The bound of each class, in records.
    """
    known = set(true.list_sets())
    strange = np.array([one not in known for one in kept.list_sets()], dtype=bool)
    sets = 2 * max(len(true.weights), int(strange.sum()))

    def count_covered(one: tuple[int, ...]) -> int:
        return int(true.sets_with_all(one).sum() + (kept.sets_with_all(one) & strange).sum())

    covered = {name: max(map(count_covered, dict.fromkeys(asked)), default=0) for name, asked in questions.items()}
    return {name: useful.bound_error(number, sets, doubt) for name, number in covered.items()}


class CellTreeAnswers(ListedAnswers, TreeAnswers):
    """An open release of a tree over the columns of a table, which answers count queries.

    The leaves of the tree are cells: each has one value of every column.
    """

    records = values = "cells"
    formulas: ClassVar[Mapping[str, str]] = dict.fromkeys(ESTIMATORS, FORMULA.format(leaves="cells"))
    answer_reading = TreeAnswers.answer

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """Return the SQL that finds the published cells for a question, and the formula of the estimate in words."""
        return super().make_statement(read_question(query, self.unlisted).query, estimator)

    @cached_property
    def _unlisted_parts(self) -> list[tuple[UnlistedColumn, list[int]]]:
        """Return each column that may have values outside the publisher's list, and the leaves that hold such values.

        Leaves are published parts of the records, given by their rows in the tree.
        """
        (taxonomy, names), tree, found = self.release_taxonomy, self.release_tree, []
        which, nodes = leaf_values(tree, taxonomy)
        for place, field in enumerate(self._manifest.sensitive):
            values = taxonomy.values(place)
            *labels, _, _ = (names[node] for node in values.tolist())
            parts = tree.leaves[which[nodes == values[-ADDED]]].tolist()
            stand_in = find_unlisted(field.type, labels)
            if stand_in is not None:
                found.append((UnlistedColumn(field, labels, stand_in, bool(parts)), parts))
        return found

    @property
    def unlisted(self) -> list[UnlistedColumn]:
        """Return the columns that may have values outside the publisher's lists.

        The release counts such values together. They are taken to occur if a leaf that holds some was published.
        """
        return [one for one, _ in self._unlisted_parts]

    def _matching_query(self, query: CountQuery) -> exp.Query:
        refuse_joins(query)
        own = self._roles.by_sa
        held: dict[str, exp.Expr] = {field.name: column(field.name) for field in self._manifest.sensitive}
        for one, parts in self._unlisted_parts:
            if parts:  # show the stand-in of unlisted values
                is_unlisted = own.as_column("part").isin(*map(exp.Literal.number, parts))
                held[one.field.name] = one.name_value(held[one.field.name], is_unlisted)
        named = [
            own.as_column("part"),
            own.as_column("count"),
            *(alias_as(value, name) for name, value in held.items()),
        ]
        holes: Holes = {
            "cells": exp.select(*named).from_(table("cells", self._database)).subquery("cells"),
            "terms": select_terms(query, "sa"),
            "condition": all_of([*query.filters["qi"], *query.filters["sa"]]),
            "part": own.as_column("part"),
            "count": own.as_column("count"),
        }
        return fill("contingency/met", holes)
