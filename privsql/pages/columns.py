"""Name the kind of identifier that each column of a release belongs to, and how it was coarsened.

HIPAA's safe harbor (45 CFR 164.514(b)(2)) lists 18 kinds of identifiers. A column's kind is read from its name and type
alone, which a reviewer has to confirm: a column called ``code`` may hold names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privsql.outcomes import JsonObject
from privsql.source.roles import AGE, HARMFUL, NAMES_RECORD, POSTAL, split_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.engine.sqlfiles import Field
    from privsql.model.bins import Bins
    from privsql.model.manifest import Manifest

AGES, PLACES, DATES, OTHER = "age over 89 (3)", "place below a state (2)", "date (3)", "any other unique code (18)"
OLDEST = 90  # HIPAA's safe harbor joins all ages from this one on
PREFIX = 3  # most characters of a ZIP code that the safe harbor allows


def _words(text: str) -> re.Pattern[str]:
    return re.compile(rf"(^|_)({text})s?($|_)", re.IGNORECASE)


KINDS: tuple[
    tuple[str, re.Pattern[str]], ...
] = (  # in the order of HIPAA's list; a column's kind is the first that fits
    ("internet address (15)", _words("ip|ip_?(v[46]_?)?addr(ess)?")),
    ("web address (14)", _words("url|website|web_?page|home_?page")),
    ("e-mail address (6)", _words("e_?mail(_?addr(ess)?)?")),
    ("telephone number (4)", _words("phone|telephone|mobile|cell_?phone|(phone|mobile)_?(no|nr|num|number)")),
    ("fax number (5)", _words("fax(_?(no|nr|num|number))?")),
    ("social security number (7)", _words("ssn|social_?security(_?(no|nr|num|number))?")),
    ("medical record number (8)", _words("mrn|nhs|medical_?record(_?(id|no|nr|num|number))?")),
    ("health plan number (9)", _words("(health_?plan|beneficiary|insurance|policy)_?(id|no|nr|num|number)")),
    ("account number (10)", _words("iban|(account|acct)(_?(id|no|nr|num|number))?")),
    ("vehicle identifier (12)", _words("vin|(licen[cs]e_?)?plate")),
    ("certificate or license number (11)", _words("passport|(licen[cs]e|certificate|driver)_?(id|no|nr|num|number)")),
    ("device identifier (13)", _words("imei|mac_?addr(ess)?|(device|serial)_?(id|no|nr|num|number)")),
    ("biometric identifier (16)", _words("biometric|finger_?print|voice_?print|iris_?scan|retina")),
    ("photograph (17)", _words("photo|photograph|portrait|face_?image")),
    ("name (1)", _words("((first|full|last|family|given|middle|sur|user|nick|maiden|patient|customer)_?)?name")),
    (AGES, AGE),
    (PLACES, POSTAL),
    (
        PLACES,
        _words(
            "address|street|city|cities|town|village|district|borough|municipality|county|counties|precinct|parish|"
            "location|lat|latitude|lon|lng|longitude|geo_?code|census_?tract|residence"
        ),
    ),
    (DATES, _words("date|birth_?date|date_?of_?birth|dob|birth_?day|admi(ssion|tted)|discharged?|death_?date")),
    (OTHER, NAMES_RECORD),
)
KIND_NAMES = tuple(dict.fromkeys(kind for kind, _ in KINDS))


@dataclass(frozen=True)
class ColumnNote(JsonObject):
    """What reviewers should know of one column of a release.

    Attributes:
        name: The name of the column.
        role: Whether it is published in clear, protected, or removed.
        kind: The kind of identifier in HIPAA's list, judged by name and type; empty for none.
        published: How it was coarsened, and what a reviewer must check.
        sensitive: Whether it is published in clear although its name suggests that it is sensitive.
    """

    name: str
    role: str
    kind: str
    published: str
    sensitive: bool = False


def find_kind(name: str, kind: str = "") -> str:
    """Return the kind in HIPAA's list to which a column belongs by its name and SQL type; empty for none.

    >>> find_kind("ZIP Code"), find_kind("PatientId"), find_kind("admitted", "DATE"), find_kind("sex")
    ('place below a state (2)', 'any other unique code (18)', 'date (3)', '')
    """
    words = split_name(name)
    found = next((one for one, pattern in KINDS if pattern.search(words)), "")
    return DATES if not found and kind.startswith(("DATE", "TIMESTAMP")) else found


def note_columns(manifest: Manifest, removed: Iterable[str] = ()) -> list[ColumnNote]:
    """Return a note for reviewers on every column of a release, and on columns that were removed.

    Columns that are published in clear come first.
    """
    clear, notes = {one.name for one in manifest.quasi_identifiers}, []
    for field in manifest.roles.columns:
        kind = find_kind(field.name, field.type)
        if field.name in clear:
            harmful = bool(HARMFUL.search(split_name(field.name)))
            published = _describe_clear(field, kind, manifest)
            notes.append(ColumnNote(field.name, "in clear", kind, published, harmful))
        else:
            role = "sensitive" if clear else "covered by noise"
            notes.append(ColumnNote(field.name, role, kind, "protected as promised"))
    for name in removed:
        kind = find_kind(name)
        why = "an identifier" if kind else "the specification gives it no role"
        notes.append(ColumnNote(name, "removed", kind, f"not published: {why}"))
    return notes


def _describe_clear(field: Field, kind: str, manifest: Manifest) -> str:
    """Return how a column in clear was coarsened, and whether that is enough for HIPAA's safe harbor."""
    bins, groups = manifest.bins.get(field.name), manifest.groups.get(field.name)
    how = str(bins) if bins is not None else f"{len(groups):,} groups of values" if groups is not None else "as it is"
    note = ""
    if kind == AGES:
        last = None if bins is None else bins.top if bins.top is not None else max(bins.edges, default=None)
        joined = last is not None and last <= OLDEST
        note = "ages over 89 are joined" if joined else "check that nobody is over 89, or join these ages"
    elif kind == DATES:
        note = "as the safe harbor asks" if _holds_years(field, bins) else "the safe harbor keeps years alone"
    elif kind == PLACES:
        short = bins is not None and bins.prefix is not None and bins.prefix <= PREFIX
        short = short and POSTAL.search(split_name(field.name)) is not None
        area = "check that each area has more than 20,000 people"
        note = area if short else "the safe harbor allows no place below a state but ZIP codes cut to 3 digits"
    elif kind:
        note = "the safe harbor removes it"
    return f"{how}; {note}" if note else how


def _holds_years(field: Field, bins: Bins | None) -> bool:
    """Return whether a column shows dates as years and nothing finer, which HIPAA's safe harbor allows."""
    dated = field.type.startswith(("DATE", "TIMESTAMP"))
    return bins is not None and bins.unit == "year" if dated else False
