"""What a mechanism is: one package of ``privsql.mechanisms``, one folder of ``sql/``, and these functions.

``privsql.mechanisms.registry`` lists the mechanisms; everything above it knows no more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from privsql.engine.roles import fold
from privsql.errors import UsageError
from privsql.model.manifest import MANIFEST

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.answers.channel import Channel
    from privsql.answers.question import CountQuery
    from privsql.engine.database import Domain, Relations
    from privsql.engine.roles import Roles
    from privsql.model.checks import Check
    from privsql.model.estimate import Estimate
    from privsql.model.manifest import Manifest
    from privsql.noise import Key

Json = dict[str, Any]
Columns = dict[str, list[tuple[str, str]]]  # tables of a release: name -> (column, DuckDB type)


Parameters = TypeVar("Parameters", bound=BaseModel)


class Answers(Protocol):
    """An open release that answers count queries."""

    certain: frozenset[str]
    """The estimators whose low and high bound the true count with certainty."""

    measures: frozenset[str]
    """Which of sum, avg, min and max of the sensitive column it tells, with certain bounds."""

    @property
    def channel(self) -> Channel:
        """The channel through which the release is seen (``privsql.answers.channel``)."""

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words; ``UsageError`` if unsupported."""

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""


class Mechanism(Protocol):
    """The functions of a mechanism; ``asked`` is its own validated parameters."""

    SQL: tuple[str, ...]
    """Prefixes of the SQL files that make and check a release."""
    RESERVED: dict[str, set[str]]
    """Column names that a release uses itself, by role."""
    TABLES: tuple[str, ...]
    """Names of the tables of a release."""

    def read(self, manifest: Manifest) -> Any:
        """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""

    def plan(self, db: Relations, source: Domain, asked: Any) -> Json:
        """The facts of a release that ``publish`` would make; raises ``InfeasibleError`` and ``UsageError``."""

    def propose(self, db: Relations, source: Domain) -> Json:
        """Parameters that are feasible for a source, for the table ``[mechanism]`` of a specification."""

    def publish(self, db: Relations, source: Domain, asked: Any, key: Key) -> Json:
        """Make the tables of a release in database ``release``; returns the facts for its manifest."""

    def tables(self, manifest: Manifest) -> Columns:
        """The tables that a release holds, besides its manifest."""

    def view(self, manifest: Manifest) -> exp.Query:
        """The release's own view: quasi-identifiers, sensitive columns and the weight of each pair."""

    def checks(self, db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
        """The checks that need the release alone; its tables are read from ``database``."""

    def long_checks(self, manifest: Manifest) -> list[Check]:
        """What ``verify`` checks beyond ``checks``: implied by the way of publishing, and longer."""

    def source_checks(self, db: Relations, manifest: Manifest, source: Domain, asked: Any) -> list[Check]:
        """The checks against the source, prepared as ``records``, after ``checks`` has named the release's tables."""

    def answers(self, db: Relations, manifest: Manifest) -> Answers:
        """The release, open in ``db``, as one that answers."""

    def promise(self, asked: Any) -> str:
        """The bound that a release guarantees, in a few words."""

    def figures(self, facts: Json) -> list[tuple[str, str]]:
        """What a person wants to see of the facts: (name, text)."""


def refuse_collisions(roles: Roles, name: str, mechanism: Mechanism) -> None:
    """``UsageError`` if a column or the release is called like something that a release holds."""
    for role, taken in mechanism.RESERVED.items():
        for field in getattr(roles, role):
            if fold(field.name) in taken:
                raise UsageError(
                    f"column {field.name!r} would collide with a column of the release; rename it in source.query"
                )
    if fold(name) in {*mechanism.TABLES, MANIFEST}:
        raise UsageError(f"release.name {name!r} is the name of a table of the release; choose another")


def stated(manifest: Manifest, facts: type[BaseModel], parameters: type[Parameters], what: str) -> Parameters:
    """The parameters that a manifest states; ``UsageError`` if these or its facts are not those of ``what``."""
    try:
        facts.model_validate(manifest.facts)
        return parameters.model_validate(manifest.parameters)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"its manifest states no valid {what}") from error
