"""Publish and answer from a noisy tree: its tables, facts, answers, explanation and membership adversary."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.estimate import count_interval
from privsql.attacks.suite import Adversary
from privsql.dp_random import deviation_of, noise_scale
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, table
from privsql.exact import fraction_text
from privsql.mechanisms import private
from privsql.mechanisms.private import KNOWS, MEMBERSHIP, make_membership_finding
from privsql.model.manifest import Estimate, Structure
from privsql.model.manifest import make_structure as part
from privsql.model.parameters import LARGEST_EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.question import CountQuery
    from privsql.attacks.scene import AttackView, Finding, ReleaseView
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tree import Estimator, Ints, NoisyTree, Reals
    from privsql.model.manifest import Manifest

# Answers --------------------------------------------------------------------------------------------------------------
# An open release of a noisy tree, whatever its partitions are, as one that answers count queries.

NOTHING = (0.0, 0.0)


class NoisyTreeAnswers(private.PrivateAnswers):
    """Answers are the paper's sum of counts, or come from the fitted tree with what was pruned."""

    @property
    @abstractmethod
    def fitted_estimator(self) -> Estimator:
        """The tree with consistent sizes."""

    @abstractmethod
    def _matching_query(self, query: CountQuery) -> exp.Query:
        """How much of each part meets the condition."""

    def _read_table(self, name: str, by: str) -> pa.Table:
        return self._db.arrow(all_rows(table(f"privsql_{name}", self._database)).order_by(column(by)))

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.require_estimator(estimator)
        return self._matching_query(query), self.formulas[estimator]

    def _make_estimate(
        self,
        group: tuple[Any, ...],
        shares: Reals,
        estimator: str,
        confidence: float,
        outside: tuple[float, float] = NOTHING,
        *,
        everything: bool = False,
    ) -> Estimate:
        """The estimate for a condition that a share of each part meets (T,); ``everything``: all records meet it.

        ``outside``: estimate and standard error of what lies outside of the tree and meets it, too. There is no
        interval where no count that was published is about what is asked for, or where so much was pruned that the
        counts tell less than the model does; nor for the baseline, whose error is that of the noise alone and says
        nothing of what was pruned.
        """
        result, error = (
            self.fitted_estimator.estimate_baseline(shares)
            if estimator == "baseline"
            else self.fitted_estimator.estimate_shares(shares)
        )
        result, error = result + outside[0], float(np.hypot(error, outside[1]))
        met = bool((self.fitted_estimator.tree.leaf & (shares > 0)).any()) and not self.fitted_estimator.is_mostly_lost
        counted = everything or outside != NOTHING or met
        if estimator == "baseline" or not counted or not error:  # whatever was counted has noise
            return Estimate(group, result, None, None, None)
        low, high = count_interval(result, error, confidence)
        return Estimate(group, result, error, low, max(high, 0.0))


# Membership -----------------------------------------------------------------------------------------------------------
# Membership: whether a person's record is in a differentially private release at all.
#
# The adversary knows every other record, so it knows each true count but for this one record, and gives presence even
# odds. A noisy size y of scale s is e^(+1/s) or e^(-1/s) times as likely with the record as without it, and the record
# counts once on every part of one path of the tree. Where the way of dividing a part was chosen with budget c, the
# choice is at most e^c times as likely. The belief is therefore at most 1/(1 + exp(-sum 1/s - sum c)) along the path,
# whatever the noise was; differential privacy promises that this is at most e^epsilon/(1 + e^epsilon).


@dataclass(frozen=True)
class Leaves:
    """The leaves of a tree: ``unit``, in words; ``is_leaf``: a row of ``privsql_tree`` is one.

    ``choice``: the column with the budget of choosing how a row is divided, None where nothing is chosen.
    """

    unit: str
    is_leaf: exp.Expr
    choice: exp.Expr | None = None


def attack_leaves(view: ReleaseView, leaves_: Leaves) -> list[Finding]:
    """The belief about a record of each published leaf, for the most telling noise."""
    unit = leaves_.unit
    holes: Holes = {
        "tree": table("privsql_tree", view.database),
        "leaf": leaves_.is_leaf,
        "choice": leaves_.choice or exp.null(),
    }
    rows = view.db.rows(fill("attack/paths", holes))
    number = 1 + max((int(row[0]) for row in rows), default=0)
    exponents, chosen, leaves = np.zeros(number), np.zeros(number), []
    for each_part, parent, width, choice, leaf in rows:  # parents come before their parts
        above = exponents[int(parent)] + chosen[int(parent)] if parent is not None else 0.0
        exponents[int(each_part)] = above + (1 / float(width) if width else 0.0)
        chosen[int(each_part)] = float(Fraction(choice)) if choice else 0.0
        if leaf:
            leaves.append(int(each_part))
    beliefs = (1 / (1 + np.exp(-exponents[leaves]))).tolist()
    return [make_membership_finding(Fraction(view.manifest.parameters["epsilon"]), beliefs, unit)]


def membership_adversary(leaves: Leaves) -> Adversary[AttackView]:
    """The adversary of a kind of trees."""
    return Adversary(MEMBERSHIP, KNOWS, promised=True, attack=lambda learnt: attack_leaves(learnt.view, leaves))


# Tables ---------------------------------------------------------------------------------------------------------------
# The table in which a noisy tree is published, and back; how a release's tables are made from arrays.

SMALLEST_BUDGET = Fraction(1, 10**15)
FIRST = ("part INTEGER", "parent INTEGER")  # columns before a kind's own, and after them
LAST = ("size BIGINT", "budget VARCHAR", "scale DOUBLE", "threshold BIGINT")


def tree_table(tree: NoisyTree, extra_columns: dict[str, pa.Array], thresholds: Sequence[int | None]) -> pa.Table:
    """``privsql_tree``: every partition with its noisy size, budget, scale and threshold, and a kind's
    ``extra_columns`` columns.

    ``thresholds`` are those of the rows but the root, which was not counted.
    """
    root = np.arange(len(tree)) == 0
    return pa.table(
        {
            "part": pa.array(np.arange(len(tree)), pa.int32()),
            "parent": pa.array(tree.parent, pa.int32(), mask=root),
            **extra_columns,
            "size": pa.array(tree.size, pa.int64(), mask=root),
            "budget": budget_texts(tree.spent, tree.budgets),
            "scale": _by_code(tree.spent, [noise_scale(one) for one in tree.budgets], pa.float64()),
            "threshold": pa.array([None, *thresholds], pa.int64()),
        }
    )


def budget_texts(codes: Ints, budgets: Sequence[Fraction]) -> pa.Array:
    """Budgets as fractions; NULL for code -1."""
    return _by_code(codes, [fraction_text(one) for one in budgets], pa.string())


def _by_code(codes: Ints, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The value of each code; NULL for -1."""
    return pa.array(values, kind).take(pa.array(codes, mask=codes < 0))


def common_columns(rows: pa.Table, expanded: str) -> dict[str, Any]:
    """Read a ``NoisyTree`` without its budgets from ``privsql_tree``; ``expanded``: the column behind ``next``."""
    return {
        "parent": as_integers(rows["parent"], -1),
        "next": as_integers(rows[expanded], -1),
        "size": as_integers(rows["size"], 0),
        "leaf": rows[expanded].is_null().to_numpy(zero_copy_only=False),
    }


def read_budgets(rows: pa.Table, *names: str) -> tuple[list[Ints], tuple[Fraction, ...]]:
    """Codes (-1 for NULL) of some columns, and the different budgets in them.

    ``ValueError`` for one that is no positive number in range.
    """
    stated = [rows[name].to_pylist() for name in names]
    codes = {
        one: code for code, one in enumerate(dict.fromkeys(one for part in stated for one in part if one is not None))
    }
    result = tuple(Fraction(one) for one in codes)
    if any(not SMALLEST_BUDGET <= budget <= LARGEST_EPSILON for budget in result):
        raise ValueError("a budget is no positive number")
    return [np.array([codes.get(one, -1) for one in part], dtype=np.int64) for part in stated], result


def demand_tree(tree: NoisyTree, rows: pa.Table, nodes: int) -> None:
    """``ValueError`` unless every part is numbered, and a child of one that was expanded, at one of ``nodes``."""
    parent = tree.parent[1:]
    if not len(tree) or not np.array_equal(as_integers(rows["part"], -1), np.arange(len(tree))):
        raise ValueError("its parts are not numbered 0, 1, ..")
    if tree.leaf[0] or tree.parent[0] != -1 or (tree.spent[1:] < 0).any():
        raise ValueError("it has no root, or a part without a budget")
    if (np.diff(tree.parent) < 0).any() or (parent < 0).any() or (parent >= np.arange(1, len(tree))).any():
        raise ValueError("a part lies before its parent")
    if tree.leaf[parent].any() or (tree.next >= nodes).any() or (tree.next[~tree.leaf] < 0).any():
        raise ValueError("a part lies below a leaf, or is expanded at no node")


def as_integers(column: pa.ChunkedArray, missing: int) -> Ints:
    """A column of integers, ``missing`` where it is NULL."""
    result: Ints = column.fill_null(missing).to_numpy().astype(np.int64)
    return result


# Explanations ---------------------------------------------------------------------------------------------------------
# A noisy tree for people: how many partitions were kept at every level, and how much noise their counts have.


def tree_structure(db: Relations, _: Manifest) -> list[Structure]:
    """Partitions by level of the tree; the root is counted nowhere."""
    rows = db.arrow(all_rows(table("privsql_tree")).order_by(column("part")))
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
        "Where the noisy count of one is small, it is not divided further, and most often dropped."
    )
    head = ("level of the tree", "partitions kept", "not divided further", "standard deviation of the noise")
    return [part("The noisy tree", sentence, head, result, 1)]


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
