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

from privsql.answers.estimate import interval
from privsql.attacks.suite import Adversary
from privsql.dp_random import deviation_of, scale
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, table
from privsql.exact import text
from privsql.mechanisms import private
from privsql.mechanisms.private import KNOWS, MEMBERSHIP, membership
from privsql.model.manifest import Estimate, Structure
from privsql.model.manifest import structure as part
from privsql.model.parameters import LARGEST_EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.question import CountQuery
    from privsql.attacks.scene import Finding, ReleaseView, Scene
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tree import Estimator, Ints, Reals, Tree
    from privsql.model.manifest import Manifest

# Answers --------------------------------------------------------------------------------------------------------------
# An open release of a noisy tree, whatever its partitions are, as one that answers count queries.

NOTHING = (0.0, 0.0)


class NoisyTreeAnswers(private.Answers):
    """Answers are the paper's sum of counts, or come from the fitted tree with what was pruned."""

    @property
    @abstractmethod
    def fitted(self) -> Estimator:
        """The tree with consistent sizes."""

    @abstractmethod
    def _met(self, query: CountQuery) -> exp.Query:
        """How much of each part meets the condition."""

    def _rows(self, name: str, by: str) -> pa.Table:
        return self._db.arrow(all_rows(table(f"privsql_{name}", self._database)).order_by(column(by)))

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        return self._met(query), self.formulas[estimator]

    def _estimate(
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
        found, error = self.fitted.baseline(shares) if estimator == "baseline" else self.fitted.answer(shares)
        found, error = found + outside[0], float(np.hypot(error, outside[1]))
        met = bool((self.fitted.tree.leaf & (shares > 0)).any()) and not self.fitted.is_mostly_lost
        counted = everything or outside != NOTHING or met
        if estimator == "baseline" or not counted or not error:  # whatever was counted has noise
            return Estimate(group, found, None, None, None)
        low, high = interval(found, error, confidence)
        return Estimate(group, found, error, low, max(high, 0.0))


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
    """What the leaves of a tree are: ``unit``, in words; ``is_leaf``: a row of ``privsql_tree`` is one.

    ``choice``: the column with the budget of choosing how a row is divided, None where nothing is chosen.
    """

    unit: str
    is_leaf: exp.Expr
    choice: exp.Expr | None = None


def attack(given: ReleaseView, leaves_: Leaves) -> list[Finding]:
    """The belief about a record of each published leaf, for the most telling noise."""
    unit = leaves_.unit
    holes: Holes = {
        "tree": table("privsql_tree", given.database),
        "leaf": leaves_.is_leaf,
        "choice": leaves_.choice or exp.null(),
    }
    rows = given.db.rows(fill("attack/paths", holes))
    number = 1 + max((int(row[0]) for row in rows), default=0)
    told, chosen, leaves = np.zeros(number), np.zeros(number), []
    for each_part, parent, width, choice, leaf in rows:  # parents come before their parts
        above = told[int(parent)] + chosen[int(parent)] if parent is not None else 0.0
        told[int(each_part)] = above + (1 / float(width) if width else 0.0)
        chosen[int(each_part)] = float(Fraction(choice)) if choice else 0.0
        if leaf:
            leaves.append(int(each_part))
    beliefs = (1 / (1 + np.exp(-told[leaves]))).tolist()
    return [membership(Fraction(given.manifest.parameters["epsilon"]), beliefs, unit)]


def membership_adversary(leaves: Leaves) -> Adversary[Scene]:
    """The adversary of a kind of trees."""
    return Adversary(MEMBERSHIP, KNOWS, promised=True, attack=lambda learnt: attack(learnt.view, leaves))


# Tables ---------------------------------------------------------------------------------------------------------------
# The table in which a noisy tree is published, and back; how a release's tables are made from arrays.

SMALLEST_BUDGET = Fraction(1, 10**15)
FIRST = [("part", "INTEGER"), ("parent", "INTEGER")]  # columns before a kind's own, and after them
LAST = [("size", "BIGINT"), ("budget", "VARCHAR"), ("scale", "DOUBLE"), ("threshold", "BIGINT")]


def tree_table(tree: Tree, own: dict[str, pa.Array], thresholds: Sequence[int | None]) -> pa.Table:
    """``privsql_tree``: every partition with its noisy size, budget, scale and threshold, and a kind's ``own`` columns.

    ``thresholds`` are those of the rows but the root, which was not counted.
    """
    root = np.arange(len(tree)) == 0
    return pa.table(
        {
            "part": pa.array(np.arange(len(tree)), pa.int32()),
            "parent": pa.array(tree.parent, pa.int32(), mask=root),
            **own,
            "size": pa.array(tree.size, pa.int64(), mask=root),
            "budget": budget_texts(tree.spent, tree.budgets),
            "scale": _by_code(tree.spent, [scale(one) for one in tree.budgets], pa.float64()),
            "threshold": pa.array([None, *thresholds], pa.int64()),
        }
    )


def budget_texts(codes: Ints, budgets: Sequence[Fraction]) -> pa.Array:
    """Budgets as fractions; NULL for code -1."""
    return _by_code(codes, [text(one) for one in budgets], pa.string())


def _by_code(codes: Ints, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The value of each code; NULL for -1."""
    return pa.array(values, kind).take(pa.array(codes, mask=codes < 0))


def common_columns(rows: pa.Table, expanded: str) -> dict[str, Any]:
    """The columns of any ``Tree`` but its budgets from ``privsql_tree``; ``expanded``: the column behind ``next``."""
    return {
        "parent": ints(rows["parent"], -1),
        "next": ints(rows[expanded], -1),
        "size": ints(rows["size"], 0),
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
    found = tuple(Fraction(one) for one in codes)
    if any(not SMALLEST_BUDGET <= budget <= LARGEST_EPSILON for budget in found):
        raise ValueError("a budget is no positive number")
    return [np.array([codes.get(one, -1) for one in part], dtype=np.int64) for part in stated], found


def demand_tree(tree: Tree, rows: pa.Table, nodes: int) -> None:
    """``ValueError`` unless every part is numbered, and a child of one that was expanded, at one of ``nodes``."""
    parent = tree.parent[1:]
    if not len(tree) or not np.array_equal(ints(rows["part"], -1), np.arange(len(tree))):
        raise ValueError("its parts are not numbered 0, 1, ..")
    if tree.leaf[0] or tree.parent[0] != -1 or (tree.spent[1:] < 0).any():
        raise ValueError("it has no root, or a part without a budget")
    if (np.diff(tree.parent) < 0).any() or (parent < 0).any() or (parent >= np.arange(1, len(tree))).any():
        raise ValueError("a part lies before its parent")
    if tree.leaf[parent].any() or (tree.next >= nodes).any() or (tree.next[~tree.leaf] < 0).any():
        raise ValueError("a part lies below a leaf, or is expanded at no node")


def ints(column: pa.ChunkedArray, missing: int) -> Ints:
    """A column of integers, ``missing`` where it is NULL."""
    found: Ints = column.fill_null(missing).to_numpy().astype(np.int64)
    return found


# Explanations ---------------------------------------------------------------------------------------------------------
# A noisy tree for people: how many partitions were kept at every level, and how much noise their counts have.


def tree_structure(db: Relations, _: Manifest) -> list[Structure]:
    """Partitions by level of the tree; the root is counted nowhere."""
    rows = db.arrow(all_rows(table("privsql_tree")).order_by(column("part")))
    parent, scale = ints(rows["parent"], -1), pc.fill_null(rows["scale"], 0.0).to_numpy()
    level = depths(parent)
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True
    found = []
    for depth in range(1, int(level.max(initial=0)) + 1):
        own = level == depth
        noise = deviation_of(scale[own])
        found.append((f"level {depth}", int(own.sum()), int((own & ~inner).sum()), _between(noise)))
    said = (
        f"All records are one partition, which is divided again and again; {len(parent) - 1:,} partitions were kept. "
        "Where the noisy count of one is small, it is not divided further, and most often dropped."
    )
    head = ("level of the tree", "partitions kept", "not divided further", "standard deviation of the noise")
    return [part("The noisy tree", said, head, found, 1)]


def depths(parent: Ints) -> Ints:
    """How far every partition lies below the root, whose row comes first; parents ascend.

    >>> depths(np.array([-1, 0, 0, 1, 3])).tolist()
    [0, 1, 1, 2, 3]
    """
    found = np.zeros(len(parent), dtype=np.int64)
    for row in range(1, len(parent)):
        found[row] = found[parent[row]] + 1
    return found


def _between(noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    least, most = float(noise.min()), float(noise.max())
    return f"{least:.3g}" if most - least < 0.005 * most else f"{least:.3g} to {most:.3g}"
