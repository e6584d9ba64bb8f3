"""Answers from a noisy contingency table: by the sum of its counts, or from the tree with what was pruned."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from privsql.answers.question import group_terms, select_terms
from privsql.engine.sqlfiles import every, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.contingency.diffpart.model import estimator
from privsql.mechanisms.contingency.diffpart.tables import read_taxonomy, read_tree
from privsql.mechanisms.noisytree import answers as noisytree
from privsql.mechanisms.private import DAMAGED, whole
from privsql.model.estimate import same_nan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from privsql.answers.question import CountQuery
    from privsql.mechanisms.noisytree.estimate import Estimator
    from privsql.model.estimate import Estimate

BASELINE = (
    "estimate = sum of the counts of the published cells that meet the condition; it does not know of what was pruned, "
    "so it has no interval"
)
FORMULA = (
    "estimate = sum of the sizes of the cells that meet the condition, made consistent with all noisy sizes of the "
    "tree by least squares, and of the records of pruned partitions, as far as the cells that stand for them meet it"
)


class Answers(noisytree.Answers):
    """An open release that answers count queries over its columns; its tree is fitted once."""

    records = values = "privsql_cells"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    @cached_property
    def fitted(self) -> Estimator:
        """The tree with consistent sizes."""
        tree, nodes = self._rows("tree", "part"), self._rows("taxonomy", "node")
        with whole():
            taxonomy = read_taxonomy(nodes)
            return estimator(read_tree(tree, taxonomy), taxonomy)

    @cached_property
    def _number(self) -> NDArray[np.float64]:
        """Cells of each part, at least 1."""
        own = exp.select(*self._roles.by_sa.read("part", "weight"))
        cells = own.from_(table("privsql_cells", self._database)).subquery("cells")
        rows = self._db.rows(fill("contingency/numbers", {"cells": cells}))
        found = np.ones(len(self.fitted.tree))
        for part, cells, _ in rows:
            if part is None or not 0 <= part < len(found):
                raise UsageError(f"{DAMAGED}: a cell belongs to no part of the tree")
            found[part] = cells
        return found

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        if query.lookups:
            raise UsageError("JOIN is not supported for a contingency table; name the values in WHERE")
        return super().statement(query, estimator)

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that a published cell, or one that stands for others, has."""
        number = self._number
        shares: dict[tuple[Any, ...], NDArray[np.float64]] = {} if query.groups else {(): np.zeros(len(number))}
        for *group, part, met in self._db.rows(self._met(query)):
            key = tuple(same_nan(value) for value in group)
            shares.setdefault(key, np.zeros(len(number)))[part] += met / number[part]
        return [
            self._estimate(group, share, estimator, confidence, everything=query.is_total)
            for group, share in shares.items()
        ]

    def _met(self, query: CountQuery) -> exp.Query:
        return fill(
            "contingency/met",
            {
                "cells": table("privsql_cells", self._database),
                "part": self._roles.by_sa.column("part"),
                "terms": select_terms(query, "sa"),
                "keys": [expression for _, expression in group_terms(query, "sa")],
                "condition": every([*query.filters["qi"], *query.filters["sa"]]),
            },
        )
