"""What ``init`` learns of a source's columns, and the roles that it gives them, by the shape of the records."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privsql.engine.names import fold
from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.errors import UsageError
from privsql.mechanisms.contract import Sets, Table
from privsql.model.records import Profile
from privsql.source.table import publishable

if TYPE_CHECKING:
    from collections.abc import Iterable

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
CLEAR = 0.9  # share of records whose value who knows a column guesses right, from which on it gives the value away,
LIFTS = 0.5  # if that takes away this part of the errors of who does not know it (Goodman and Kruskal's lambda)
NUMBER = re.compile(r"U?(TINY|SMALL|BIG)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL|DATE$|TIMESTAMP")
MOST_QI = 1000  # values of a quasi-identifier beyond which it is left for the publisher to decide


@dataclass(frozen=True)
class Chosen:
    """The roles of the columns, as the table ``[columns]`` of a specification.

    ``id``: the column that names records, if there is one.
    """

    columns: dict[str, Any]
    profiles: tuple[Profile, ...]
    remarks: tuple[str, ...] = ()
    id: str | None = None


def choose(db: Warehouse, mechanism: Mechanism[Any], asked: str | None) -> Chosen:
    """Roles for the columns of ``source``, of the shape that a mechanism is given; ``asked``: the sensitive column.

    Raises ``UsageError`` if no columns can have these roles, or ``asked`` is not in the source.
    """
    fields, shape = db.fields(temp("source")), mechanism.shape
    if isinstance(shape, Sets):
        return _lists(fields, asked)
    remarks = [f"left out: {f.name} is {f.type}, which can't be published" for f in fields if not publishable(f)]
    usable = [field for field in fields if publishable(field)]
    profiles = [_profile(db, field.name, field.type) for field in usable]
    if not any(profile.records for profile in profiles):
        raise UsageError(
            "the source has no records" if profiles else f"no column can be published: {'; '.join(remarks)}"
        )
    if isinstance(shape, Table):
        return _table(db, profiles, asked, remarks, numeric=shape.numeric)
    return _categories(profiles)


def _table(db: Warehouse, profiles: list[Profile], asked: str | None, remarks: list[str], *, numeric: bool) -> Chosen:
    """A sensitive column, and what could be known of a person as quasi-identifiers."""
    sensitive = _sensitive(profiles, asked, numeric=numeric)
    others = [_with_clear(db, profile, sensitive) for profile in profiles if profile.name != sensitive.name]
    why = {profile.name: _left_out(profile, sensitive) for profile in others}
    quasi = [profile.name for profile in others if not why[profile.name]]
    reasons = [f"left out: {name} {reason}" for name, reason in why.items() if reason]
    if not quasi:
        raise UsageError(
            f"no column can be a quasi-identifier: {'; '.join([*reasons, *remarks]).replace('left out: ', '')}"
        )
    nulls = {"nulls": {sensitive.name: "suppress"}} if sensitive.filled < sensitive.records else {}
    columns = {"quasi_identifiers": quasi, "sensitive": sensitive.name, **nulls}
    unique = next((p.name for p in others if p.is_unique and p.different == p.records), None)
    remarks = [*(profile.remark for profile in profiles), *reasons, *remarks]
    return Chosen(columns, tuple(profiles), tuple(remarks), unique)


def _left_out(profile: Profile, sensitive: Profile) -> str:
    """Why a column is no quasi-identifier; empty if it is one."""
    if profile.is_unique:
        return "names records: everyone has a value of their own"
    if IDENTIFYING.search(profile.name):
        return "names people, by its own name"
    if profile.different < 2:
        return f"has {'one value' if profile.different else 'no value'}"
    if profile.different > MOST_QI:
        return f"has {profile.different} values; put them into bands in source.query"
    if profile.clear >= CLEAR and profile.lifts(sensitive) >= LIFTS:
        base = f"{sensitive.most / sensitive.records:.0%} without it"
        return f"gives {sensitive.name} away: who knows it guesses right for {profile.clear:.0%} of the records, {base}"
    return ""


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


def _categories(profiles: list[Profile]) -> Chosen:
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
    return profile.is_unique or bool(IDENTIFYING.search(profile.name))


def _sensitive(profiles: list[Profile], asked: str | None, *, numeric: bool) -> Profile:
    """The column that was asked for, or the one whose name tells most; ``numeric``: a number or a point in time."""
    if asked is not None:
        found = next((p for p in profiles if fold(p.name) == fold(asked)), None)
        if found is None:
            raise UsageError(f"column {asked!r} is not in the source; it has {', '.join(p.name for p in profiles)}")
        return found
    if numeric:
        candidates = [
            p for p in profiles if NUMBER.match(p.type) and p.different > 1 and not IDENTIFYING.search(p.name)
        ]
    else:
        candidates = [p for p in profiles if 2 <= p.different <= MOST_VALUES and not _identifies(p)]
    named = [p for p in candidates if SENSITIVE.search(p.name)]
    if not named:
        what = "is a number or a point in time" if numeric else f"has 2 to {MOST_VALUES} values"
        names = ", ".join(p.name for p in candidates) or f"none {what}"
        raise UsageError(f"no column's name tells that it is sensitive; choose with --sensitive: {names}")
    return min(named, key=lambda p: (p.different > 200 and not numeric, len(p.name), -p.different))
