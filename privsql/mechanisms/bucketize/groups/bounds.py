"""What is bounded besides single values: columns of a compound sensitive attribute, and named groups of values.

Both are sets of sensitive values with a threshold each: in every bucket g the values of a set G together have at most
floor(f'_G |g|) records. The set of ``disease = flu`` holds all combinations with that disease.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.engine.names import fold, label
from privsql.engine.sqlfiles import column, fill
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlglot import exp

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.parameters import Bucketize


@dataclass(frozen=True)
class Bound:
    """A set of values, by their ranks in ascending order, that may have ``threshold`` of a bucket together."""

    name: str
    members: tuple[int, ...]
    threshold: Fraction

    def as_fact(self) -> dict[str, Any]:
        """What the manifest states."""
        return {"name": self.name, "codes": list(self.members), "threshold": str(self.threshold)}


def stated_bounds(facts: dict[str, Any]) -> list[Bound]:
    """The bounds that a manifest's facts state."""
    return [Bound(one["name"], tuple(one["codes"]), Fraction(one["threshold"])) for one in facts.get("bounds", [])]


@dataclass(frozen=True)
class Part:
    """One sensitive column: the rank of its part in every value (m,), and its parts as text, by rank."""

    name: str
    key: str
    ranks: tuple[int, ...]
    labels: tuple[str, ...]

    def bound(self, rank: int) -> str:
        """What the bound on one of the parts is called."""
        return f"{self.name} = {self.labels[rank]}"

    def members(self, ranks: set[int]) -> tuple[int, ...]:
        """The values with one of these parts."""
        return tuple(i for i, own in enumerate(self.ranks) if own in ranks)


@dataclass(frozen=True)
class Values:
    """The sensitive values: relation ``domain``(code, s0..), each column, texts (m,) and records (m,)."""

    domain: exp.Table
    columns: tuple[Part, ...]
    labels: tuple[str, ...]
    counts: tuple[int, ...]

    def records(self, members: Sequence[int]) -> int:
        """How many records have one of them."""
        return sum(self.counts[i] for i in members)

    def column(self, name: str, where: str) -> Part:
        """A column by its name; ``UsageError`` if it is not sensitive."""
        found = next((part for part in self.columns if fold(part.name) == fold(name)), None)
        if found is None:
            known = ", ".join(part.name for part in self.columns)
            raise UsageError(f"{where}: {name!r} is not a sensitive column; these are {known}")
        return found


def put_members(db: Relations, name: str, bounds: Sequence[Bound]) -> None:
    """Relation ``name``(bound, code): which bound holds which values."""
    numbers = np.repeat(np.arange(len(bounds)), [len(one.members) for one in bounds])
    codes = np.array([code for one in bounds for code in one.members], dtype=np.int64)
    db.put(name, pa.table({"bound": numbers, "code": codes}))


def values_of(db: Relations, domain: exp.Table, roles: Roles, counts: Sequence[int]) -> Values:
    """The values of ``domain``(code, s0..), codes 0, 1, .., with their records."""
    columns = []
    for own, key in zip(roles.sensitive, roles.sa_keys, strict=True):
        rows = db.rows(fill("bucketize/parts", {"domain": domain, "key": column(key, "d")}))
        shown = {int(part): label([text]) for _, part, text, _ in rows}
        columns.append(Part(own.name, key, tuple(int(row[1]) for row in rows), tuple(shown[k] for k in sorted(shown))))
    whole = zip(*([part.labels[rank] for rank in part.ranks] for part in columns), strict=True)
    return Values(domain, tuple(columns), tuple(label(parts) for parts in whole), tuple(counts))


def bounds(asked: Bucketize, values: Values, query: Callable[[Part, str], Sequence[Fraction]]) -> tuple[Bound, ...]:
    """All bounds on sets of values; ``UsageError`` names what is wrong with one.

    ``query``: the thresholds that a publisher's query gives for the parts of a column.
    """
    return (*_of_components(asked, values, query), *_of_groups(asked, values))


def _of_components(
    asked: Bucketize, values: Values, query: Callable[[Part, str], Sequence[Fraction]]
) -> Iterator[Bound]:
    """One set for every part of every column that is named."""
    for name, threshold in asked.components.items():
        where = f"mechanism.components.{name}"
        part = values.column(name, where)
        if len(values.columns) == 1:
            raise UsageError(f"{where}: there is one sensitive column, and threshold bounds its values; leave this out")
        sets = [part.members({rank}) for rank in range(len(part.labels))]
        try:
            counts = [values.records(members) for members in sets]
            found = query(part, threshold.query) if threshold.query else threshold.of(part.labels, counts)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from error
        for rank, (members, value) in enumerate(zip(sets, found, strict=True)):
            yield Bound(part.bound(rank), members, value)


def _of_groups(asked: Bucketize, values: Values) -> Iterator[Bound]:
    """One set for every named group, and for every list inside it."""
    total = sum(values.counts)
    for name, group in asked.groups.items():
        where = f"mechanism.groups.{name}"
        part = values.column(group.column, where) if group.column is not None else None
        labels, ranks = (part.labels, part.ranks) if part else (values.labels, range(len(values.labels)))
        for own, names in group.sets(name):
            unknown = sorted(set(names) - set(labels))
            if unknown:
                raise UsageError(f"{where}: {unknown[0]!r} is not a value of {_of_what(part, values)}")
            members = tuple(i for i, rank in enumerate(ranks) if labels[rank] in set(names))
            try:
                yield Bound(own, members, group.at(values.records(members), total))
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from error


def _of_what(part: Part | None, values: Values) -> str:
    if part is not None:
        return f"column {part.name}"
    if len(values.columns) == 1:
        return "the sensitive column"
    return f"the sensitive columns together, such as {values.labels[0]!r}; for values of one name it as column"
