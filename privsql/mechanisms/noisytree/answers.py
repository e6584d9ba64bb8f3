"""An open release of a noisy tree, whatever its partitions are, as one that answers count queries."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.interval import interval
from privsql.engine.sqlfiles import all_rows, column, table
from privsql.mechanisms import private
from privsql.model.estimate import Estimate

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

    from privsql.answers.question import CountQuery
    from privsql.mechanisms.noisytree.estimate import Estimator
    from privsql.mechanisms.noisytree.tree import Reals

NOTHING = (0.0, 0.0)


class Answers(private.Answers):
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
