"""A SELECT taken apart: the questions behind its aggregate functions, and what is made of their answers.

Inside, the groups are called g_0, g_1, .. and what the aggregate functions give a_0, a_1, ..; outputs, HAVING and ORDER
BY are expressions over these.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.conditions import split
from privsql.answers.question import CountQuery, Group, Lookup, Measure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.question import Side


@dataclass(frozen=True)
class Scope:
    """The records that a SELECT is about and their groups; ``sides`` of all columns, by name."""

    groups: tuple[Group, ...] = ()
    where: exp.Expr | None = None
    lookups: tuple[Lookup, ...] = ()
    sides: Mapping[str, Side] = field(default_factory=dict)

    def question(self, measure: Measure | None = None, among: exp.Expr | None = None) -> CountQuery:
        """What is asked of the records that also meet the condition ``among``; by default their number."""
        conditions = [part.copy() for part in (self.where, among) if part is not None]
        root = exp.and_(*conditions) if len(conditions) > 1 else conditions[0] if conditions else None
        asked = CountQuery(self.groups, *split(root, self.sides), measure or Measure(), self.lookups)
        return asked if asked.is_exact else asked.told_apart()

    def by(self, chosen: Sequence[int]) -> Scope:
        """The same records by some of the groups."""
        return replace(self, groups=tuple(self.groups[i] for i in chosen))


@dataclass(frozen=True)
class Asked:
    """An aggregate function, over the records that meet ``among`` too; ``written``: as the query has it."""

    measure: Measure
    among: exp.Expr | None
    written: str

    def of(self, scope: Scope) -> CountQuery:
        """The question that it puts."""
        return scope.question(self.measure, self.among)

    @property
    def function(self) -> exp.Expr:
        """As SQL has it."""
        if self.among is None:
            return self.measure.function
        return exp.Filter(this=self.measure.function, expression=exp.Where(this=self.among))


@dataclass(frozen=True)
class Output:
    """A column of the answer: its alias, empty for none, and its expression over groups and aggregates."""

    alias: str
    expression: exp.Expr
    written: str

    @cached_property
    def aggregates(self) -> tuple[int, ...]:
        """Numbers of the aggregate functions in it."""
        return used(self.expression)

    @cached_property
    def single(self) -> int | None:
        """The number of the aggregate function that it is, if it is one and nothing else."""
        plain = self.expression.unnest()
        return self.aggregates[0] if isinstance(plain, exp.Column) and self.aggregates else None


def used(expression: exp.Expr) -> tuple[int, ...]:
    """Numbers of the aggregates that an expression over an answer is about."""
    names = (item.name for item in expression.find_all(exp.Column))
    return tuple(dict.fromkeys(int(name[2:]) for name in names if name.startswith("a_")))


@dataclass(frozen=True)
class Statement:
    """A SELECT taken apart. ``sets``: the groups of each grouping set, by their numbers; one set of all without any."""

    scope: Scope
    sets: tuple[tuple[int, ...], ...]
    asked: tuple[Asked, ...]
    outputs: tuple[Output, ...]
    having: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    limit: int | None = None
    offset: int | None = None

    @property
    def questions(self) -> list[CountQuery]:
        """What each aggregate function asks, by all groups."""
        return [one.of(self.scope) for one in self.asked]

    def checked(self) -> Statement:
        """Itself; ``UsageError`` for a condition that can't be split."""
        conditions = [self.scope.where, *(one.among for one in self.asked)]
        for part in dict.fromkeys(part for part in conditions if part is not None):
            split(part.copy(), self.scope.sides)
        return self
