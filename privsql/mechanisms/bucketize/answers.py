"""Which way a question to a bucketized release is answered: exactly, by the papers' formula, or through the channel."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from privsql.answers import posterior
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement
from privsql.engine.sqlfiles import table
from privsql.errors import UsageError
from privsql.mechanisms.bucketize import baseline, reconstruct
from privsql.mechanisms.bucketize.unmask import channel

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.answers.channel import Channel
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.unmask import Listed
    from privsql.model.estimate import Estimate

ESTIMATORS = ("reconstructed", "baseline")


class Answers:
    """An open release that answers count queries; its channel is read once."""

    certain: frozenset[str] = frozenset({"baseline"})
    measures: frozenset[str] = frozenset()

    def __init__(self, db: Relations, roles: Roles, facts: dict[str, Any]) -> None:
        self._db, self._roles, self._facts = db, roles, facts

    @cached_property
    def channel(self) -> Channel:
        """The release's channel."""
        return channel(self._classes)

    @cached_property
    def _classes(self) -> list[Listed]:
        return reconstruct.read(self._db, self._facts)

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        if estimator not in ESTIMATORS:
            raise UsageError(f"estimator {estimator!r} is not one of {', '.join(ESTIMATORS)}")
        if query.is_exact:
            return exact_statement(query, table("qit")), EXACT
        if estimator == "baseline":
            return baseline.statement(query, self._facts), baseline.FORMULA
        return reconstruct.statement(query, self._roles, self._facts), reconstruct.FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            return exact_answer(self._db, query, table("qit"))
        if estimator == "baseline" and not self._facts.get("fake_values"):
            return baseline.estimate(self._db, query, self._facts)
        asked = reconstruct.asked_of(self._db, query, self._classes, self.channel)
        seen = reconstruct.observe(asked, self._roles, self._facts, self._classes)
        if estimator == "baseline":
            return baseline.corrected(asked, seen, self._facts)
        return posterior.estimate(asked, seen, confidence)
