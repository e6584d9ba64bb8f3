"""Bounds as a publisher writes them: thresholds of values, and groups of values with theirs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    StrictInt,
    WithJsonSchema,
    model_validator,
)

from privsql.exact import Linear, linear
from privsql.model.parameters import NUMBER, Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Rule = Annotated[
    Linear,
    BeforeValidator(lambda v: v if isinstance(v, Linear) else linear(v)),
    PlainSerializer(str),
    WithJsonSchema(NUMBER | {"description": "a constant, or linear in the frequency f: '8*f + 0.02'"}),
]


class Threshold(BaseModel):
    """f' for every sensitive value: a rule in the frequency f, exceptions by value, or a query.

    In TOML a plain number or string is the rule; a table has ``default`` and exceptions, or ``query``, a SELECT
    that yields the sensitive column(s) and a last column with the threshold (exact: decimal, integer or text).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    default: Rule | None = None
    values: dict[str, Share] = Field(default_factory=dict)
    query: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return {"default": given}
        if "values" in given and isinstance(given["values"], dict):
            return given
        return {
            **{key: given[key] for key in ("default", "query") if key in given},
            "values": {key: value for key, value in given.items() if key not in ("default", "query")},
        }

    @model_validator(mode="after")
    def _one_source(self) -> Threshold:
        if self.query is not None and (self.default is not None or self.values):
            raise ValueError("a threshold query stands alone, without default and exceptions")
        if self.default is not None and self.default.slope == 0 and not 0 < self.default.intercept <= 1:
            raise ValueError(f"threshold {self.default} lies outside (0, 1]")
        if self.query is None and self.default is None:
            raise ValueError("give a threshold, such as '8*f + 0.02', or a table with a default")
        return self

    @property
    def is_constant(self) -> bool:
        """Whether all values have the same threshold whatever their frequency."""
        return self.query is None and not self.values and self.default is not None and self.default.slope == 0

    def of(self, labels: Sequence[str], counts: Sequence[int]) -> tuple[Fraction, ...]:
        """f'_i for every value by its label and its number of records; ``ValueError`` if one is not in (0, 1]."""
        rule = self.default or Linear(Fraction(0), Fraction(1))
        unknown = sorted(set(self.values) - set(labels))
        if unknown:
            raise ValueError(f"threshold for {unknown[0]!r}, which is not a value of the sensitive column")
        n = sum(counts)
        found = []
        for label, count in zip(labels, counts, strict=True):
            value = self.values.get(label) or rule.at(Fraction(count, n))
            if value <= 0:
                raise ValueError(f"threshold {rule} is {float(value):g} for value {label}; it must be above 0")
            found.append(value)
        return tuple(found)


class Members(RootModel[tuple["Members | StrictInt | str", ...]]):
    """Values as text or whole numbers, and lists of such: a list inside a list is a group inside a group."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _kinds(cls, given: Any) -> Any:
        if not isinstance(given, (list, tuple, cls)):
            raise ValueError(f"the values are a list, not {given!r}")  # noqa: TRY004 (pydantic reads ValueErrors)
        for item in given if not isinstance(given, cls) else ():
            if isinstance(item, bool) or not isinstance(item, (str, int, list, tuple, cls)):
                raise ValueError(f"value {item}: write it as a text, as SQL prints it")  # noqa: TRY004
        return given

    def values(self) -> list[str]:
        """All values, as text."""
        return [v for item in self.root for v in (item.values() if isinstance(item, Members) else [str(item)])]

    def inner(self, name: str) -> Iterator[tuple[str, Members]]:
        """The lists inside, at any depth: the first of group ``g`` is called ``g.1``, the second in it ``g.1.2``."""
        lists = (item for item in self.root if isinstance(item, Members))
        for number, item in enumerate(lists, 1):
            yield f"{name}.{number}", item
            yield from item.inner(f"{name}.{number}")


class Group(BaseModel):
    """Sensitive values that are bounded together: in every bucket, their records are at most threshold * size.

    ``column``: of a compound sensitive attribute, the column that has these values; without it they are combinations,
    written ``[flu, mild]``. A list inside the list is a group of its own, with the same rule in its own frequency.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    threshold: Rule
    values: Members
    column: str | None = None

    @model_validator(mode="after")
    def _of_values(self) -> Group:
        for _, names in self.sets(""):
            if not names:
                raise ValueError("a group holds at least one value")
        name, times = Counter(self.values.values()).most_common(1)[0]
        if times > 1:
            raise ValueError(f"value {name!r} stands twice")
        if self.threshold.slope == 0 and not 0 < self.threshold.intercept <= 1:
            raise ValueError(f"threshold {self.threshold} lies outside (0, 1]")
        return self

    def sets(self, name: str) -> Iterator[tuple[str, list[str]]]:
        """The group of that name and all groups inside it, each with its values as text."""
        yield name, self.values.values()
        yield from ((own, members.values()) for own, members in self.values.inner(name))

    def at(self, records: int, total: int) -> Fraction:
        """The threshold of a set with so many of all records; ``ValueError`` if it is not above 0."""
        value = self.threshold.at(Fraction(records, total))
        if value <= 0:
            raise ValueError(f"threshold {self.threshold} is {float(value):g}; it must be above 0")
        return value
