"""What ``init`` learns of a source's columns, and the roles that it gives them, by the shape of the records."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privsql.engine.roles import fold
from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.errors import UsageError
from privsql.mechanisms.contract import Categories, Sets, Table
from privsql.model.records import Profile
from privsql.source.table import publishable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from privsql.engine.database import Warehouse
    from privsql.engine.roles import Field
    from privsql.mechanisms.contract import Mechanism

SENSITIVE = re.compile(
    r"disease|diagnos|illness|condition|medic|drug|salary|income|wage|occupation|job|profession|religion|politic|party|crime|"
    r"offen[cs]e|orientation|ethnic|disab|pregnan|score|grade|debt|sensitive",
    re.IGNORECASE,
)
IDENTIFYING = re.compile(
    r"(^|_)(id|key|uuid|guid|name|email|e_mail|phone|ssn|iban|passport|address)($|_)", re.IGNORECASE
)
MOST_VALUES = 3200  # values of a sensitive column beyond which it is no category
CLEAR = 0.9  # share of records from which a column gives the sensitive value away
MOST_QI = 1000  # values of a quasi-identifier beyond which it is left for the publisher to decide


@dataclass(frozen=True)
class Chosen:
    """The roles of the columns, as the table ``[columns]`` of a specification.

    ``id``: the column that names records, if there is one; ``name``: of the release, if not that of the source.
    """

    columns: dict[str, Any]
    profiles: tuple[Profile, ...]
    remarks: tuple[str, ...] = ()
    id: str | None = None
    name: str | None = None


def choose(db: Warehouse, mechanism: Mechanism[Any], asked: str | None) -> Chosen:
    """Roles for the columns of ``source``, of the shape that a mechanism is given; ``asked``: the sensitive column.

    Raises ``UsageError`` if no columns can have these roles, or ``asked`` is not in the source.
    """
    fields = db.fields(temp("source"))
    if isinstance(mechanism.shape, Sets):
        return _lists(fields, asked)
    taken = {name for names in mechanism.reserved.values() for name in names}
    publishables = [field for field in fields if publishable(field) and fold(field.name) not in taken]
    profiles = [_profile(db, field.name, field.type) for field in publishables]
    choices = {Table: _table, Categories: _categories}
    return choices[type(mechanism.shape)](db, profiles, asked)


def _table(db: Warehouse, profiles: list[Profile], asked: str | None) -> Chosen:
    """A sensitive column, and what could be known of a person as quasi-identifiers."""
    sensitive = _sensitive(profiles, asked)
    profiles = [_with_clear(db, profile, sensitive) for profile in profiles]
    keys = [p for p in profiles if p.name != sensitive.name and _identifies(p)]
    others = [p for p in profiles if p.name != sensitive.name and p not in keys]
    quasi = [p for p in others if 1 < p.different <= MOST_QI and p.clear < CLEAR]
    if not quasi:
        raise UsageError(f"no column has 2 to {MOST_QI} values, as a quasi-identifier should")
    nulls = {"nulls": {sensitive.name: "suppress"}} if sensitive.filled < sensitive.records else {}
    columns = {"quasi_identifiers": [p.name for p in quasi], "sensitive": sensitive.name, **nulls}
    unique = next((p.name for p in keys if p.different == p.records), None)
    remarks = tuple(_remarks(profiles, sensitive, quasi, keys))
    return Chosen(columns, tuple(profiles), remarks, unique, sensitive.name)


def _lists(fields: Iterable[Field], asked: str | None) -> Chosen:
    """The list column that was asked for, or the only one."""
    lists = [field.name for field in fields if field.is_list]
    chosen = [name for name in lists if asked is None or fold(name) == fold(asked)]
    if len(chosen) != 1:
        known = (
            f"it has {', '.join(lists)}; choose with --sensitive" if lists else "name record and item columns yourself"
        )
        raise UsageError(f"{'no' if not chosen else 'more than one'} list column to publish; {known}")
    return Chosen({"items": chosen[0]}, ())


def _categories(_db: Warehouse, profiles: list[Profile], _asked: str | None) -> Chosen:
    """All columns with few values."""
    chosen = [p for p in profiles if 1 < p.different <= MOST_QI and not _identifies(p)]
    if not chosen:
        raise UsageError(f"no column has 2 to {MOST_QI} values")
    nulls = {p.name: "suppress" for p in chosen if p.filled < p.records}
    columns = {"categories": [p.name for p in chosen], **({"nulls": nulls} if nulls else {})}
    return Chosen(columns, tuple(chosen))


def _profile(db: Warehouse, name: str, kind: str) -> Profile:
    records, filled, different, most = db.rows(
        fill("core/profile", {"source": temp("source"), "column": column(name)})
    )[0]
    return Profile(name, kind, int(records), int(filled), int(different), int(most))


def _with_clear(db: Warehouse, profile: Profile, sensitive: Profile) -> Profile:
    """The profile with the share of records whose sensitive value follows from the column."""
    if profile.name == sensitive.name or profile.different > MOST_VALUES:
        return profile
    holes: Holes = {"source": temp("source"), "column": column(profile.name), "sensitive": column(sensitive.name)}
    determined = db.rows(fill("core/determined", holes))[0][0]
    return replace(profile, clear=int(determined) / max(1, profile.records))


def _identifies(profile: Profile) -> bool:
    unique = profile.filled > 1 and profile.different == profile.filled
    return unique or bool(IDENTIFYING.search(profile.name))


def _sensitive(profiles: list[Profile], asked: str | None) -> Profile:
    if asked is not None:
        found = next((p for p in profiles if fold(p.name) == fold(asked)), None)
        if found is None:
            raise UsageError(f"column {asked!r} is not in the source; it has {', '.join(p.name for p in profiles)}")
        return found
    candidates = [p for p in profiles if 2 <= p.different <= MOST_VALUES and not _identifies(p)]
    named = [p for p in candidates if SENSITIVE.search(p.name)]
    if not named:
        names = ", ".join(p.name for p in candidates) or "none has 2 or more values"
        raise UsageError(f"no column's name tells that it is sensitive; choose with --sensitive: {names}")
    return min(named, key=lambda p: (p.different > 200, len(p.name), -p.different))


def _remarks(profiles: list[Profile], chosen: Profile, quasi: list[Profile], keys: list[Profile]) -> Iterator[str]:
    for profile in profiles:
        yield profile.remark
    for profile in profiles:
        if profile.clear >= CLEAR:
            yield f"left out: {profile.name} gives {chosen.name} away ({profile.clear:.0%} of the records)"
        elif profile is not chosen and profile not in quasi and profile not in keys:
            yield f"left out: {profile.name} has {profile.different} values"
