"""Summarize the columns of a source for ``init``, and propose roles that fit the shape of the records."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.engine.database import Reporter, Warehouse, report_steps
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import Field, Holes, column, fill
from privsql.errors import UsageError
from privsql.mechanisms.base import ItemSetShape, Mechanism, TableShape
from privsql.mechanisms.registry import DEFAULT, KINDS, get_default_mechanism
from privsql.model.records import Profile
from privsql.source.table import is_publishable
from privsql.source.texts import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


OWNERS = (
    "case|client|customer|employee|member|p|participant|pat|patient|person|pupil|respondent|student|u|user|u?subj(ect)?"
)
IDENTIFYING = re.compile(
    rf"(^|_)((({OWNERS}|child)_?)?id|({OWNERS})_?(no|nr|num|number)|key|uuid|guid|(first|full|last|row|sur|user)?names?|"
    r"e_?mail|phone|ssn|mrn|iban|passport|address|row_?(nr|num|number))($|_)",
    re.IGNORECASE,
)
PERSON = re.compile(  # identifying names of persons, not of places or things
    rf"^(id|names?)$|(^|_)({OWNERS}|child)_?(id|no|nr|num|number)($|_)|(^|_)((first|full|last|sur|user)_?names?|e_?mail|"
    r"phone|ssn|mrn|nhs|iban|passport)($|_)",
    re.IGNORECASE,
)
PERSONS = re.compile(r"(^|_)(individual|participant|patient|person|respondent|subj(ect)?)$", re.IGNORECASE)
FEWEST = 10  # fewest values of a column of persons (a "subject" with fewer is a school subject)
FEW_RECORDS = 50  # up to this many records may have different values, as one bucket holds them
MOST_QI = 1000  # a column with more values becomes no quasi-identifier without the publisher


def profile_columns(db: Warehouse, source: exp.Table, fields: Sequence[Field], report: Reporter) -> list[Profile]:
    """Return a summary of each column's values, and report the progress."""
    report.start_step(f"Looking at {len(fields)} columns")
    profiles = []
    for field in report_steps(report, fields, len(fields)):
        holes: Holes = {"source": source, "column": column(field.name)}
        profiles.append(Profile(field.name, field.type, *map(int, db.rows(fill("core/profile", holes))[0])))
    return profiles


@dataclass(frozen=True)
class ChosenRoles:
    """The roles of the columns that ``init`` proposes, as section ``[columns]`` of a specification has them.

    Attributes:
        columns: The keys of ``[columns]``.
        profiles: The summaries of the columns.
        remarks: What the publisher should know.
        id: The column that identifies records; None if there is none.
        person: The column that identifies persons, if some have several records; None otherwise.
        kind: The kind of the mechanism.
    """

    columns: dict[str, Any]
    profiles: tuple[Profile, ...]
    remarks: tuple[str, ...] = ()
    id: str | None = None
    person: str | None = None
    kind: str = DEFAULT


def find_missing_markers(db: Warehouse, source: exp.Table) -> dict[str, tuple[str, ...]]:
    """Return the texts that stand for a missing value, such as "n/a", by text column; columns without one are left out.

    ``MISSING`` lists such texts; a space may stand before them. The publisher may want them to be read as NULL.
    """
    names = [field.name for field in db.list_fields(source) if field.type == "VARCHAR"]
    if not names:
        return {}
    marks = [before + text for before in ("", " ") for text in MISSING]
    marked = {name: column(name).isin(*map(exp.Literal.string, marks)) for name in names}
    one, none = exp.Literal.number(1), exp.Literal.number(0)
    cases: list[exp.Expr] = [exp.Max(this=exp.Case().when(each, one).else_(none)) for each in marked.values()]
    found = db.rows(fill("core/marked", {"source": source, "marked": cases}))[0]
    markers: dict[str, tuple[str, ...]] = {}
    for name in (name for name, has in zip(names, found, strict=True) if has):
        holes: Holes = {"source": source, "column": column(name), "marked": marked[name]}
        markers[name] = tuple(str(row[0]) for row in db.rows(fill("core/markers", holes)))
    return markers


def refuse_uncategorical(
    mechanism: Mechanism[Any, Any], different: Mapping[Field, int], values: int, records: int, *, categorical: bool
) -> None:
    """Refuse sensitive values that are no categories: very many numbers, or a different value for each record.

    Args:
        mechanism: The mechanism that would publish the values.
        different: How many values each sensitive column has.
        values: How many values the sensitive columns have together.
        records: How many records have them.
        categorical: Whether the publisher says that numbers are codes of categories.

    Raises:
        UsageError: The values are no categories.
    """
    shape = mechanism.shape
    if not isinstance(shape, TableShape) or shape.numeric:
        return
    names = ", ".join(repr(field.name) for field in different)
    if values == records > FEW_RECORDS:
        all_numbers = all(field.is_number for field in different)
        numbers = f"mechanism.kind = {find_numeric_kind()!r} publishes numbers, or " if all_numbers else ""
        raise UsageError(
            f"sensitive column {names}: each of the {records:,} records has a different value, so values are not "
            f"categories; {numbers}take another column, or make the values coarser in source.query"
        )
    if shape.most_numbers is None or categorical:
        return
    for field, number in different.items():
        if field.is_number and number > shape.most_numbers:
            raise UsageError(
                f"sensitive column {field.name!r} is {field.type} with {number:,} different values, and "
                f"{mechanism.kind} takes at most {shape.most_numbers} numbers for categories; take "
                f"mechanism.kind = {find_numeric_kind()!r}, make bins in source.query, or set columns.categorical = "
                "true if these numbers are codes"
            )


def find_numeric_kind() -> str:
    """Return the kind of mechanism that ``init`` proposes for a sensitive column of numbers."""
    shapes = {kind: get_default_mechanism(kind).shape for kind in KINDS}
    return next(kind for kind, shape in shapes.items() if isinstance(shape, TableShape) and shape.numeric)


def choose_noisy_roles(
    db: Warehouse, source: exp.Table, kind: str, wanted: str | None, report: Reporter
) -> ChosenRoles:
    """Return roles for a table without a sensitive column: item sets or categories, whichever the mechanism publishes.

    Args:
        db: The session that reads the source.
        source: The table with the records.
        kind: The kind of the mechanism.
        wanted: The column that the publisher named; None for none.
        report: Receives the progress.

    Raises:
        UsageError: No columns can have these roles.
    """
    fields, shape = db.list_fields(source), get_default_mechanism(kind).shape
    if isinstance(shape, ItemSetShape):
        person = _find_person(
            profile_columns(db, source, [f for f in fields if is_publishable(f) and _names_person(f.name)], report)
        )
        return replace(_choose_list(fields, wanted), person=person, kind=kind)
    profiles = profile_columns(db, source, [field for field in fields if is_publishable(field)], report)
    if not any(profile.records for profile in profiles):
        raise UsageError("the source has no records" if profiles else "no column can be published")
    return replace(_choose_categories(profiles), person=_find_person(profiles), kind=kind)


def _choose_list(fields: Iterable[Field], wanted: str | None) -> ChosenRoles:
    """Return the roles for item sets in a list column: the wanted one, or the only one if ``wanted`` is None."""
    lists = [field.name for field in fields if field.is_list]
    chosen = [name for name in lists if wanted is None or fold_name(name) == fold_name(wanted)]
    if len(chosen) != 1:
        known = "name record and item columns yourself"
        if lists:
            known = f"it has {', '.join(lists)}; choose one as columns.sensitive"
        raise UsageError(f"{'no' if not chosen else 'more than one'} list column to publish; {known}")
    return ChosenRoles({"items": chosen[0]}, ())


def _choose_categories(profiles: list[Profile]) -> ChosenRoles:
    """Return the roles for a table of categories: all columns with few values are categories."""
    chosen = [p for p in profiles if 1 < p.different <= MOST_QI and not _is_identifying(p)]
    if not chosen:
        raise UsageError(f"no column has 2 to {MOST_QI} values")
    nulls = {p.name: "suppress" for p in chosen if p.filled < p.records}
    columns = {"categories": [p.name for p in chosen], **({"nulls": nulls} if nulls else {})}
    many = [p for p in profiles if p.different > MOST_QI and not _is_identifying(p)]
    remarks = []
    for one in many:
        bins = "bins = { from = .., to = .., by = .. }" if Field(one.name, one.type).is_number else ""
        how = bins or ("data = true, prefix = 2" if one.type == "VARCHAR" else "")
        more = f"; add it to categories, with {one.name} = {{ {how} }} in [mechanism.domains]" if how else ""
        remarks.append(f"left out: {one.name} has {one.different:,} values{more}")
    return ChosenRoles(columns, tuple(chosen), tuple(remarks))


def _is_identifying(profile: Profile) -> bool:
    return profile.is_unique or _has_identifying_name(profile)


def _has_identifying_name(profile: Profile) -> bool:
    """Return whether the name of the column suggests that its values identify people or records."""
    from privsql.source.roles import split_name

    few = profile.different < FEWEST
    return is_identifying_name(profile.name) and (not few or bool(IDENTIFYING.search(split_name(profile.name))))


def is_identifying_name(name: str) -> bool:
    """Return whether a column's name suggests that its values identify people or records."""
    from privsql.source.roles import split_name

    words = split_name(name)
    return bool(IDENTIFYING.search(words) or PERSONS.search(words))


def _names_person(name: str) -> bool:
    from privsql.source.roles import split_name

    words = split_name(name)
    return bool(PERSON.search(words) or PERSONS.search(words))


def _find_person(profiles: Iterable[Profile]) -> str | None:
    """Return the column that identifies persons, if some of them have several records; None if there is none.

    If several columns qualify, it is the one with the most different values.
    """
    several = [p for p in profiles if p.different >= FEWEST and p.most > 1 and _names_person(p.name)]
    return max(several, key=lambda p: p.different).name if several else None
