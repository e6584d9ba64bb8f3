"""Answers from a noisy contingency table: by the sum of its counts, or from the tree with what was pruned."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers import base
from privsql.answers.interval import interval
from privsql.answers.question import group_terms, select_terms
from privsql.engine.sqlfiles import all_rows, column, every, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.contingency.model import estimator
from privsql.mechanisms.contingency.tables import read_taxonomy, read_tree
from privsql.model.estimate import Estimate, same_nan

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sqlglot import exp

    from privsql.answers.question import CountQuery
    from privsql.mechanisms.noisytree.estimate import Estimator

DAMAGED = "the release is damaged (privsql verify tells more)"
BASELINE = (
    "estimate = sum of the counts of the published cells that meet the condition; the interval is that of the noise "
    "alone and does not know of what was pruned"
)
FORMULA = (
    "estimate = sum of the sizes of the cells that meet the condition, made consistent with all noisy sizes of the "
    "tree by least squares, and of the records of pruned partitions, as far as the cells that stand for them meet it"
)


class Answers(base.Answers):
    """An open release that answers count queries over its columns; its tree is fitted once."""

    certain = frozenset()
    measures = frozenset()

    @property
    def channel(self) -> None:
        """There are no buckets and no perturbation."""

    @cached_property
    def fitted(self) -> Estimator:
        """The tree with consistent sizes."""
        tree, nodes = (
            self._db.arrow(all_rows(table(f"privsql_{name}")).order_by(column(by)))
            for name, by in (("tree", "part"), ("taxonomy", "node"))
        )
        try:
            taxonomy = read_taxonomy(nodes)
            return estimator(read_tree(tree, taxonomy), taxonomy)
        except (ValueError, IndexError, ZeroDivisionError) as error:
            raise UsageError(f"{DAMAGED}: {error}") from error

    @cached_property
    def _number(self) -> NDArray[np.float64]:
        """Cells of each part, at least 1."""
        rows = self._db.rows(fill("contingency/numbers", {"cells": table("privsql_cells")}))
        found = np.ones(len(self.fitted.tree))
        for part, cells, _ in rows:
            if part is None or not 0 <= part < len(found):
                raise UsageError(f"{DAMAGED}: a cell belongs to no part of the tree")
            found[part] = cells
        return found

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        if query.lookups:
            raise UsageError("JOIN is not supported for a contingency table; name the values in WHERE")
        return self._met(query), BASELINE if estimator == "baseline" else FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that a published cell, or one that stands for others, has."""
        number = self._number
        shares: dict[tuple[Any, ...], NDArray[np.float64]] = {} if query.groups else {(): np.zeros(len(number))}
        for *group, part, met in self._db.rows(self._met(query)):
            key = tuple(same_nan(value) for value in group)
            shares.setdefault(key, np.zeros(len(number)))[part] += met / number[part]
        return [self._estimate(group, share, estimator, confidence) for group, share in shares.items()]

    def _estimate(
        self, group: tuple[Any, ...], shares: NDArray[np.float64], estimator: str, confidence: float
    ) -> Estimate:
        found, error = self.fitted.baseline(shares) if estimator == "baseline" else self.fitted.answer(shares)
        low, high = interval(found, error, confidence)
        return Estimate(group, found, error, low, max(high, 0.0))

    def _met(self, query: CountQuery) -> exp.Query:
        return fill(
            "contingency/met",
            {
                "cells": table("privsql_cells"),
                "terms": select_terms(query, "sa"),
                "keys": [expression for _, expression in group_terms(query, "sa")],
                "condition": every([*query.filters["qi"], *query.filters["sa"]]),
            },
        )
