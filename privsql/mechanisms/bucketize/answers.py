"""Which way a question to a bucketized release is answered: exactly, by the papers' formula, or through the channel."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from privsql.answers import base, posterior
from privsql.answers.learnt.prior import can_teach, taught
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement
from privsql.engine.sqlfiles import table
from privsql.mechanisms.bucketize import baseline, reconstruct
from privsql.mechanisms.bucketize.sample import sample

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

    from privsql.answers.channel import Channel
    from privsql.answers.learnt.prior import Taught
    from privsql.mechanisms.bucketize.through import Through
    from privsql.model.estimate import Estimate


class Answers(base.Answers):
    """An open release that answers count queries; its channel is read once."""

    certain = frozenset({"baseline"})
    records = "qit"
    measures = frozenset()

    @cached_property
    def channel(self) -> Channel:
        """The release's channel."""
        return self._through.channel

    @cached_property
    def _through(self) -> Through:
        return reconstruct.read(self._db, self._facts)

    @cached_property
    def _expected(self) -> pa.Table:
        return baseline.expected_records(self._db, self._roles, self._facts, self._through)

    @cached_property
    def _taught(self) -> Taught | None:
        """The prior that the release teaches, if any; of fakes that are taken off what is seen, none is learnt."""
        if any(self._through.less.values()) or not can_teach(self.channel, self._manifest.published_records):
            return None
        return taught(self.channel, sample(self._db, self._roles, self._facts["setting"], self._through))

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        if query.is_exact:
            return exact_statement(query, table("qit")), EXACT
        if estimator == "baseline":
            return baseline.statement(query, self._roles, self._facts), baseline.FORMULA
        return reconstruct.statement(query, self._roles, self._facts), reconstruct.FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            return exact_answer(self._db, query, table("qit"))
        if estimator == "baseline":
            if self._facts.get("fake_values"):
                self._db.put("expected", self._expected)
            return baseline.estimate(self._db, query, self._roles, self._facts)
        asked = replace(reconstruct.asked_of(self._db, query, self._roles, self._through), taught=self._taught)
        seen = reconstruct.observe(asked, self._roles, self._facts, self._through)
        return posterior.estimate(asked, seen, confidence)
