"""``init``: look at a source and propose a specification that can be published."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tomlkit

from privsql.engine.roles import fold
from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.errors import UsageError
from privsql.mechanisms.registry import RESERVED, of
from privsql.mechanisms.setvalued.parameters import PROPOSED
from privsql.source.spec import build
from privsql.source.table import mount, prepare, publishable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.database import Warehouse

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
class Profile:
    """What is known of a column.

    Records, those not NULL, different values, records of the most frequent value, and the share of records whose
    sensitive value is clear from this column already.
    """

    name: str
    type: str
    records: int
    filled: int
    different: int
    most: int
    clear: float = 0.0

    @property
    def remark(self) -> str:
        """For a comment in the specification."""
        nulls = f", {self.records - self.filled} NULL" if self.filled < self.records else ""
        share = self.most / max(1, self.records)
        return f"{self.name}: {self.type}, {self.different} values{nulls}, most frequent {share:.2%}"


def propose(db: Warehouse, path: Path, table: str | None, sensitive: str | None) -> str:
    """TOML of a proposed specification, with what was seen in comments.

    Raises ``UsageError`` if no column can be sensitive, or ``sensitive`` is not in the source.
    """
    source = {"database": str(path), "table": table} if table else {"file": str(path)}
    probe = build(
        {
            "source": source,
            "columns": {"quasi_identifiers": ["?"], "sensitive": "??"},
            "mechanism": {"threshold": "1"},
        }
    )
    mount(db, probe)
    fields = [field for field in db.fields(temp("source")) if publishable(field) and fold(field.name) not in RESERVED]
    profiles = [_profile(db, field.name, field.type) for field in fields]
    chosen = _sensitive(profiles, sensitive)
    profiles = [_with_clear(db, profile, chosen) for profile in profiles]
    keys = [p for p in profiles if p is not chosen and _identifies(p)]
    quasi = [
        p for p in profiles if p is not chosen and p not in keys and 1 < p.different <= MOST_QI and p.clear < CLEAR
    ]
    if not quasi:
        raise UsageError(f"{path}: no column has 2 to {MOST_QI} values, as a quasi-identifier should")
    return _document(source, profiles, chosen, quasi, keys)


def propose_sets(db: Warehouse, path: Path, table: str | None, items: str | None) -> str:
    """TOML of a proposed specification for item sets: of the list column ``items``, or of the only one.

    Raises ``UsageError`` if the source has no such column.
    """
    source = {"database": str(path), "table": table} if table else {"file": str(path)}
    probe = build({"source": source, "columns": {"items": "?"}, "mechanism": PROPOSED})
    mount(db, probe)
    lists = [field.name for field in db.fields(temp("source")) if field.is_list]
    chosen = [name for name in lists if items is None or fold(name) == fold(items)]
    if len(chosen) != 1:
        known = (
            f"it has {', '.join(lists)}; choose with --sensitive" if lists else "name record and item columns yourself"
        )
        raise UsageError(f"{path}: {'no' if not chosen else 'more than one'} list column to publish; {known}")
    document = tomlkit.document()
    document.add(tomlkit.comment("Proposed by privsql init. Privacy is for one record, added or removed."))
    document["source"] = source
    document["columns"] = {"items": chosen[0]}
    mechanism = tomlkit.table()
    mechanism.update(PROPOSED)
    mechanism["universe"].comment("better a public list, or { query = ... }: the items that occur are not protected")
    document["mechanism"] = mechanism
    return tomlkit.dumps(document)


def propose_cells(db: Warehouse, path: Path, table: str | None) -> str:
    """TOML of a proposed specification for a contingency table of all columns with few values.

    Raises ``UsageError`` if the source has no such column.
    """
    source = {"database": str(path), "table": table} if table else {"file": str(path)}
    mechanism: dict[str, Any] = {"kind": "contingency", "epsilon": "1", "domains": {"?": "data"}}
    mount(db, build({"source": source, "columns": {"categories": ["?"]}, "mechanism": mechanism}))
    fields = [field for field in db.fields(temp("source")) if publishable(field) and fold(field.name) not in RESERVED]
    profiles = [_profile(db, field.name, field.type) for field in fields]
    chosen = [p for p in profiles if 1 < p.different <= MOST_QI and not _identifies(p)]
    if not chosen:
        raise UsageError(f"{path}: no column has 2 to {MOST_QI} values")
    document = tomlkit.document()
    document.add(tomlkit.comment("Proposed by privsql init. Privacy is for one record, added or removed. Better than"))
    document.add(tomlkit.comment("'data' are public lists of values: those that occur are not protected."))
    nulls = {p.name: "suppress" for p in chosen if p.filled < p.records}
    document["source"] = source
    document["columns"] = {"categories": [p.name for p in chosen], **({"nulls": nulls} if nulls else {})}
    document["mechanism"] = mechanism | {"domains": {p.name: "data" for p in chosen}}
    return tomlkit.dumps(document)


def feasible(db: Warehouse, toml: str, kind: str = "bucketize") -> str:
    """The proposal with parameters of a mechanism that are feasible."""
    document = tomlkit.parse(toml)
    source = prepare(db, build(document.unwrap() | {"mechanism": {"threshold": "1"}}))
    document["mechanism"] = of(kind).propose(db, source)
    return tomlkit.dumps(document)


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


def _document(
    source: dict[str, str], profiles: list[Profile], chosen: Profile, quasi: list[Profile], keys: list[Profile]
) -> str:
    document = tomlkit.document()
    for line in _remarks(profiles, chosen, quasi, keys):
        document.add(tomlkit.comment(line))
    unique = [p.name for p in keys if p.different == p.records]
    nulls = {"nulls": {chosen.name: "suppress"}} if chosen.filled < chosen.records else {}
    parts: dict[str, dict[str, Any]] = {
        "source": {**source, **({"id": unique[0]} if unique else {})},
        "columns": {"quasi_identifiers": [p.name for p in quasi], "sensitive": chosen.name, **nulls},
        "release": {"name": chosen.name},
        "mechanism": {},
    }
    for name, part in parts.items():
        document[name] = part
    return tomlkit.dumps(document)


def _remarks(profiles: list[Profile], chosen: Profile, quasi: list[Profile], keys: list[Profile]) -> Iterator[str]:
    yield "Proposed by privsql init. Check the roles: what could be known of a person is a quasi-identifier."
    yield ""
    for profile in profiles:
        yield profile.remark
    for profile in profiles:
        if profile.clear >= CLEAR:
            yield f"left out: {profile.name} gives {chosen.name} away ({profile.clear:.0%} of the records)"
        elif profile is not chosen and profile not in quasi and profile not in keys:
            yield f"left out: {profile.name} has {profile.different} values"
