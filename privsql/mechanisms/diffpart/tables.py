"""Publish a DiffPart tree as tables, answer from its leaves, describe it, and attack it."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.answers.estimate import count_interval
from privsql.attacks.suite import Adversary, AttackContext
from privsql.dp_random import deviation_of, noise_scale, variance_of
from privsql.engine.sqlfiles import all_rows, column, fill, table
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.base import F, P
from privsql.mechanisms.diffpart.tree import PartitionTree, Taxonomy, make_taxonomy
from privsql.mechanisms.dp import mechanism as private
from privsql.mechanisms.dp.mechanism import DAMAGED, KNOWS, MEMBERSHIP, make_membership_finding, refuse_damaged
from privsql.model.estimates import Estimate, same_nan
from privsql.model.explanations import Structure, make_structure
from privsql.model.parameters import LARGEST_EPSILON
from privsql.model.tables import ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from privsql.answers.sql.question import CountQuery
    from privsql.attacks.scene import AttackView, Finding, ReleaseView
    from privsql.engine.database import Relations
    from privsql.mechanisms.diffpart.tree import Ints
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.manifest import Manifest

# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a tree and of its taxonomy, and back. A kind's table of leaves has their ``part`` and ``count``.

SMALLEST_BUDGET = Fraction(1, 10**15)
TREE, TAXONOMY = "privsql_tree", "privsql_taxonomy"
TREE_TABLES = {
    TREE: ReleaseTable(
        (
            *("part INTEGER", "parent INTEGER", "branch BIGINT", "node INTEGER", "choice VARCHAR", "size BIGINT"),
            *("budget VARCHAR", "scale DOUBLE", "threshold BIGINT"),
        )
    ),
    TAXONOMY: ReleaseTable(("node INTEGER", "attribute INTEGER", "parent INTEGER", "value VARCHAR")),
}
TREE_ORDERS = {"tree": ["part"], "taxonomy": ["node"]}


def tree_table(tree: PartitionTree) -> pa.Table:
    """``privsql_tree``: every partition with its noisy size, budget, scale and threshold.

    ``branch``: which sub-partition of its parent it is; ``node``: the taxonomy node at which it is divided (NULL for a
    leaf); ``choice``: the budget of choosing that.
    """
    root = np.arange(len(tree)) == 0
    return pa.table(
        {
            "part": pa.array(np.arange(len(tree)), pa.int32()),
            "parent": pa.array(tree.parent, pa.int32(), mask=root),
            "branch": pa.array(tree.branch, pa.int64(), mask=root),
            "node": pa.array(tree.next, pa.int32(), mask=tree.leaf),
            "choice": _by_code(tree.choice, [fraction_text(one) for one in tree.budgets], pa.string()),
            "size": pa.array(tree.size, pa.int64(), mask=root),
            "budget": _by_code(tree.spent, [fraction_text(one) for one in tree.budgets], pa.string()),
            "scale": _by_code(tree.spent, [noise_scale(one) for one in tree.budgets], pa.float64()),
            "threshold": pa.array(tree.threshold, pa.int64(), mask=root),
        }
    )


def write_tree(db: Relations, tree: PartitionTree, taxonomy: Taxonomy, names: Sequence[str | None]) -> None:
    """Write both tables; ``names``: of the taxonomy's nodes."""
    private.write_release_table(db, TREE, tree_table(tree))
    private.write_release_table(db, TAXONOMY, taxonomy_table(taxonomy, names))


def _by_code(codes: Ints, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The value of each code; NULL for -1."""
    return pa.array(values, kind).take(pa.array(codes, mask=codes < 0))


def read_tree(rows: pa.Table, taxonomy: Taxonomy) -> PartitionTree:
    """A tree from ``privsql_tree``, by part; ``ValueError`` if it is not one over this taxonomy."""
    parent, branch, node = (as_integers(rows[name], -1) for name in ("parent", "branch", "node"))
    (spent, choice), budgets = _read_budgets(rows, "budget", "choice")
    tree = PartitionTree(
        parent=parent, branch=branch, next=node, size=as_integers(rows["size"], 0),
        threshold=as_integers(rows["threshold"], -1), spent=spent, choice=choice, budgets=budgets,
    )  # fmt: skip
    if not len(tree) or not np.array_equal(as_integers(rows["part"], -1), np.arange(len(tree))):
        raise ValueError("its parts are not numbered 0, 1, ..")
    if tree.leaf[0] or parent[0] != -1 or (spent[1:] < 0).any() or spent[0] >= 0:
        raise ValueError("it has no root, or a part without a budget")
    above, inner = parent[1:], node[~tree.leaf]
    if (np.diff(parent) < 0).any() or (above < 0).any() or (above >= np.arange(1, len(tree))).any():
        raise ValueError("a part lies before its parent")
    if (node < -1).any() or (inner >= len(taxonomy)).any() or (taxonomy.height[inner] == 0).any():
        raise ValueError("a part is divided at no node, or at a value")
    if tree.leaf[above].any() or ((np.diff(above) == 0) & (np.diff(branch[1:]) <= 0)).any():
        raise ValueError("a part lies below a leaf, stands twice, or is out of order")
    least = np.where(above == 0, 0, 1) if taxonomy.holds_sets else 1
    if (branch[1:] < least).any() or (branch[1:] > taxonomy.branches[node[above]]).any():
        raise ValueError("a branch names no children of its node")
    return tree


def _read_budgets(rows: pa.Table, *names: str) -> tuple[list[Ints], tuple[Fraction, ...]]:
    """Codes (-1 for NULL) of some columns, and the different budgets in them.

    ``ValueError`` for one that is no positive number in range.
    """
    stated = [rows[name].to_pylist() for name in names]
    texts = dict.fromkeys(one for part in stated for one in part if one is not None)
    codes = {one: code for code, one in enumerate(texts)}
    result = tuple(Fraction(one) for one in codes)
    if any(not SMALLEST_BUDGET <= budget <= LARGEST_EPSILON for budget in result):
        raise ValueError("a budget is no positive number")
    return [np.array([codes.get(one, -1) for one in part], dtype=np.int64) for part in stated], result


def taxonomy_table(taxonomy: Taxonomy, names: Sequence[str | None]) -> pa.Table:
    """``privsql_taxonomy``: nodes by column, children before parents; ``attribute`` is the column's number."""
    return pa.table(
        {
            "node": pa.array(np.arange(len(taxonomy)), pa.int32()),
            "attribute": pa.array(taxonomy.column, pa.int32()),
            "parent": pa.array(taxonomy.parent, pa.int32(), mask=taxonomy.parent < 0),
            "value": pa.array(names, pa.string()),
        }
    )


def read_taxonomy(rows: pa.Table, *, sets: bool) -> Taxonomy:
    """A taxonomy from ``privsql_taxonomy``, by node; ``ValueError`` if it is none."""
    if not np.array_equal(as_integers(rows["node"], -1), np.arange(len(rows))):
        raise ValueError("nodes are not numbered 0, 1, ..")
    result = make_taxonomy(as_integers(rows["attribute"], -1), as_integers(rows["parent"], -1), sets=sets)
    if taxonomy_table(result, rows["value"].to_pylist()).to_pydict() != rows.to_pydict():
        raise ValueError("nodes are written down otherwise")
    return result


def as_integers(column: pa.ChunkedArray, missing: int) -> Ints:
    """Return a column as integers, ``missing`` where it is NULL."""
    result: Ints = column.fill_null(missing).to_numpy().astype(np.int64)
    return result


# Answers --------------------------------------------------------------------------------------------------------------
# The paper's answers: sums of the published counts.

FORMULA = (
    "estimate = sum of the counts of the published {leaves} that meet the condition (Chen et al. 2011); the interval "
    "is that of their noise, and its upper end allows for all records whose part was pruned"
)


class TreeAnswers(private.PrivateAnswers):
    """An open release of a tree; both estimators are the paper's sum, whose error is that of the noise."""

    formulas: ClassVar[Mapping[str, str]]

    @cached_property
    def release_taxonomy(self) -> tuple[Taxonomy, list[str | None]]:
        """The release's taxonomy, and the names of its nodes."""
        nodes = self._read_table(TAXONOMY, "node")
        with refuse_damaged():
            return read_taxonomy(nodes, sets=self._roles.hold_sets), nodes["value"].to_pylist()

    @cached_property
    def release_tree(self) -> PartitionTree:
        """The release's tree."""
        with refuse_damaged():
            return read_tree(self._read_table(TREE, "part"), self.release_taxonomy[0])

    @cached_property
    def _count_variances(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Variance of the noise of each part's count, (T,); of no meaning for the root."""
        tree = self.release_tree
        return np.array([variance_of(one) for one in tree.budgets] or [0.0])[tree.spent]

    @abstractmethod
    def _matching_query(self, query: CountQuery) -> exp.Query:
        """The groups, part and count of every published leaf that meets the condition."""

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        return self._matching_query(query), self.formulas[estimator]

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that a published leaf has."""
        groups: dict[tuple[Any, ...], list[tuple[int, int]]] = {} if query.groups else {(): []}
        for *group, part, count in self._db.rows(self._matching_query(query)):
            key = tuple(same_nan(value) for value in group)
            groups.setdefault(key, []).append((-1 if part is None else part, count or 0))
        pairs = {group: np.array(rows, dtype=np.int64).reshape(-1, 2) for group, rows in groups.items()}
        return [self.make_estimate(group, one[:, 0], one[:, 1], confidence) for group, one in pairs.items()]

    @cached_property
    def _pruned_records(self) -> tuple[float, float]:
        """The records that are in no leaf, at least 0, and the variance of their number."""
        tree = self.release_tree
        counted = (tree.parent == 0) | tree.leaf
        pruned = max(tree.counted_records - tree.published_records, 0)
        return float(pruned), float(self._count_variances[counted].sum())

    def make_estimate(self, group: tuple[Any, ...], parts: Ints, counts: Ints, confidence: float) -> Estimate:
        """The estimate of a group from the leaves that meet it; without an interval where there are none."""
        if not len(parts):
            return Estimate(group, 0.0, None, None, None)
        if not 0 < parts.min() <= parts.max() < len(self.release_tree):
            raise UsageError(f"{DAMAGED}: a count belongs to no part of the tree")
        result, error = float(counts.sum()), float(np.sqrt(self._count_variances[parts].sum()))
        pruned, more = self._pruned_records
        low, _ = count_interval(result, error, confidence)
        _, high = count_interval(result + pruned, float(np.hypot(error, np.sqrt(more))), confidence)
        return Estimate(group, result, error, min(low, result), max(high, result, 0.0))


# Membership -----------------------------------------------------------------------------------------------------------
# Membership: whether a person's record is in a differentially private release at all.
#
# The adversary knows every other record, so it knows each true count but for this one record, and gives presence even
# odds. A noisy size y of scale s is e^(+1/s) or e^(-1/s) times as likely with the record as without it, and the record
# counts once on every part of one path of the tree. Where the way of dividing a part was chosen with budget c, the
# choice is at most e^c times as likely. The belief is therefore at most 1/(1 + exp(-sum 1/s - sum c)) along the path,
# whatever the noise was; differential privacy promises that this is at most e^epsilon/(1 + e^epsilon).


def attack_leaves(view: ReleaseView, unit: str) -> list[Finding]:
    """The belief about a record of each published leaf, for the most telling noise."""
    rows = view.db.rows(fill("attack/paths", {"tree": table(TREE, view.database)}))
    params, leaves = view.manifest.parameters, []
    below = {None: 0.0}  # what the way to a part's own parts says, with the choice of how it is divided
    for each_part, parent, width, choice, leaf in rows:  # parents come before their parts
        exponent = below[parent] + (1 / float(width) if width else 0.0)
        below[each_part] = exponent + (float(Fraction(choice)) if choice else 0.0)
        leaves += [params.get("max_records", 1) * exponent] if leaf else []
    return [make_membership_finding(params, leaves, unit)]


# Explanations ---------------------------------------------------------------------------------------------------------
# A tree for people: how many partitions were kept at every level, and how much noise their counts have.


def tree_structure(db: Relations, _: Manifest) -> list[Structure]:
    """Partitions by level of the tree; the root is counted nowhere."""
    rows = db.arrow(all_rows(table(TREE)).order_by(column("part")))
    parent, scale = as_integers(rows["parent"], -1), pc.fill_null(rows["scale"], 0.0).to_numpy()
    level = partition_depths(parent)
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True
    result = []
    for depth in range(1, int(level.max(initial=0)) + 1):
        at_depth = level == depth
        noise = deviation_of(scale[at_depth])
        result.append((f"level {depth}", int(at_depth.sum()), int((at_depth & ~inner).sum()), _noise_range(noise)))
    sentence = (
        f"All records are one partition, which is divided again and again; {len(parent) - 1:,} partitions were kept. "
        "Where the noisy count of one is small, it is dropped."
    )
    head = ("level of the tree", "partitions kept", "not divided further", "standard deviation of the noise")
    return [make_structure("The noisy tree", sentence, head, result, 1)]


def partition_depths(parent: Ints) -> Ints:
    """How far every partition lies below the root, whose row comes first; parents ascend.

    >>> partition_depths(np.array([-1, 0, 0, 1, 3])).tolist()
    [0, 1, 1, 2, 3]
    """
    result = np.zeros(len(parent), dtype=np.int64)
    for row in range(1, len(parent)):
        result[row] = result[parent[row]] + 1
    return result


def _noise_range(noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    least, most = float(noise.min()), float(noise.max())
    return f"{least:.3g}" if most - least < 0.005 * most else f"{least:.3g} to {most:.3g}"


# The mechanism --------------------------------------------------------------------------------------------------------


class DiffPart(private.PrivateMechanism[P, F]):
    """DiffPart: records are partitioned again and again, and parts with small noisy counts are dropped.

    Chen et al. 2011. The parts make a tree. Subclasses partition item sets, or the records of a table.
    """

    leaves: ClassVar[str]
    """What the parts that are divided no further are called, in the plural."""

    def long_checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return no further checks: ``checks`` goes through every part of the tree."""
        return []

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows every other record and asks whether the last one is in the table."""
        return (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=self.attack_membership),)

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Find the belief in a record of each published leaf, by the counts and choices on its path of the tree."""
        return attack_leaves(learnt.view, self.leaves)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the levels of the tree: the parts kept, those not divided further, and the noise of their counts."""
        return tree_structure(db, manifest)
