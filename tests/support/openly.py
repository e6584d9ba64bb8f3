"""An analyst's SQL answered over a plain table, as if a release held all of its columns exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from privsql.answers.evaluate_select import SelectEvaluation
from privsql.answers.present import AnswerBuilder

if TYPE_CHECKING:
    from privsql.answers.answer import Answers
    from privsql.answers.sql.question import Statement
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Field
    from privsql.model.manifest import Manifest


@dataclass
class Open:
    """Answers that hold everything, in a table."""

    records: str

    @property
    def values(self) -> str:
        """The same table."""
        return self.records

    def holds_exactly(self, *_: object) -> bool:
        """All of it."""
        return True

    def rests_on(self, *_: object) -> str:
        """What is held is exact."""
        return "exact"


@dataclass
class Whole:
    """A manifest without anything left out."""

    suppressed: int = 0
    facts: dict[str, int] = None  # type: ignore[assignment]
    nulls: dict[str, str] = None  # type: ignore[assignment]
    bins: dict[str, Any] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """No facts, and no bins."""
        self.facts, self.nulls, self.bins = {}, {}, {}


def answered(
    db: Relations, asked: Statement, table: str, fields: list[Field]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names and values of the answer, without errors and bounds."""
    scope = asked.scope
    plain = replace(
        scope,
        groups=tuple(replace(group, side="qi") for group in scope.groups),
        sides=dict.fromkeys(scope.sides, "qi"),
    )
    every = tuple(replace(one, measure=replace(one.measure, side="qi")) for one in asked.calls)
    statement = replace(asked, scope=plain, calls=every)
    asking = SelectEvaluation(db, cast("Answers", Open(table)), cast("Manifest", Whole()), statement, "best", 0.95)
    shown = AnswerBuilder(asking, fields)
    names, figures = shown.name_columns()
    found = [name for i, name in enumerate(names) if not any(one.at < i < one.at + 4 for one in figures)]
    rows = [
        tuple(value for i, value in enumerate(row) if not any(one.at < i < one.at + 4 for one in figures))
        for row in shown.build_rows()
    ]
    return found, rows
