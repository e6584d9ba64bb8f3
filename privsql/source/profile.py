"""Profile a source's columns for ``init`` and propose their roles, by the shape of the records."""

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
from privsql.model.bins import Bins
from privsql.model.records import Profile
from privsql.source.table import find_column, index_names, is_publishable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


SENSITIVE = re.compile(
    r"disease|diagnos|illness|condition|medic|drug|salary|income|wage|occupation|job|profession|religion|politic|party|crime|"
    r"offen[cs]e|orientation|ethnic|disab|pregnan|score|grade|debt|sensitive",
    re.IGNORECASE,
)
BETWEEN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")  # the words of a name: patient.id, PatientId, 'Patient ID'
OWNERS = (
    "case|client|customer|employee|member|p|participant|pat|patient|person|pupil|respondent|student|u|user|u?subj(ect)?"
)
IDENTIFYING = re.compile(
    rf"(^|_)((({OWNERS}|child)_?)?id|({OWNERS})_?(no|nr|num|number)|key|uuid|guid|(first|full|last|row|sur|user)?names?|"
    r"e_?mail|phone|ssn|mrn|iban|passport|address|row_?(nr|num|number))($|_)",
    re.IGNORECASE,
)
PERSON = re.compile(  # of the identifying names those that name a person, and neither a place nor a thing
    rf"^(id|names?)$|(^|_)({OWNERS}|child)_?(id|no|nr|num|number)($|_)|(^|_)((first|full|last|sur|user)_?names?|e_?mail|"
    r"phone|ssn|mrn|nhs|iban|passport)($|_)",
    re.IGNORECASE,
)
PERSONS = re.compile(r"(^|_)(individual|participant|patient|person|respondent|subj(ect)?)$", re.IGNORECASE)
POSTAL = re.compile(r"(^|_)(zip|postal|postcode|post_code|plz)", re.IGNORECASE)
POSTAL_WIDTH = 100  # of codes of five digits
FEWEST = 10  # values of a column that names persons; a subject with fewer is one that is taught
MOST_VALUES = 3200  # values of a sensitive column beyond which it is no category
CLEAR = 0.9  # share of records whose value who knows a column guesses right, from which on it gives the value away,
LIFTS = 0.5  # if that takes away this part of the errors of who does not know it (Goodman and Kruskal's lambda)
REASONS, OFFERED = 6, 40  # of as many columns a message tells one by one
FEW_RECORDS = 50  # up to so many may each have a value of its own: they can all lie in one bucket
MISSING = tuple(
    before + text for before in ("", " ") for text in ("?", "-", "", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan")
)  # texts that stand for a value that is missing
FEW_EACH = 4  # records of a text at most on average, if the texts may be names
MOST_QI = 1000  # values of a quasi-identifier beyond which it is left for the publisher to decide


@dataclass(frozen=True)
class _ColumnProfiler:
    """Profile the columns of a source one after the other, and report progress."""

    db: Warehouse
    source: exp.Table
    report: Reporter

    def profile_columns(self, fields: Sequence[Field]) -> list[Profile]:
        """Return the profile of each column."""
        self.report.start_step(f"Looking at {len(fields)} columns")
        profiles = []
        for field in report_steps(self.report, fields, len(fields)):
            holes: Holes = {"source": self.source, "column": column(field.name)}
            profiles.append(Profile(field.name, field.type, *map(int, self.db.rows(fill("core/profile", holes))[0])))
        return profiles

    def add_clear_shares(self, profiles: Sequence[Profile], sensitive: Profile) -> list[Profile]:
        """Return the profiles with the share of records whose sensitive value follows from the column."""
        self.report.start_step(f"{sensitive.records:,} records: {sensitive.name} beside {len(profiles)} columns")
        return [
            one if one.different > MOST_VALUES else self._with_clear_share(one, column(one.name), sensitive)
            for one in report_steps(self.report, profiles, len(profiles))
        ]

    def find_prefix(self, profile: Profile, sensitive: Profile) -> int | None:
        """Return how many first characters of codes, such as ZIP codes, give few values; None of any other column."""
        if profile.type != "VARCHAR":
            return None
        codes: Holes = {"source": self.source, "column": column(profile.name)}
        others, *different = (int(one) for one in self.db.rows(fill("duckdb/prefixes", codes))[0])
        most = min(MOST_QI, (profile.filled - 1) // FEW_EACH)
        fitting = [k for k, number in enumerate(different, 1) if 1 < number <= most]
        if others or not fitting:
            return None
        first = exp.Left(this=column(profile.name), expression=exp.Literal.number(fitting[-1]))
        return None if self.gives_away(profile, first, sensitive) else fitting[-1]

    def gives_away(self, profile: Profile, value: exp.Expr, sensitive: Profile) -> bool:
        """Return whether the sensitive value follows from a coarser value of a column."""
        coarser = self._with_clear_share(profile, value, sensitive)
        return coarser.clear >= CLEAR and coarser.lift_over(sensitive) >= LIFTS

    def _with_clear_share(self, profile: Profile, value: exp.Expr, sensitive: Profile) -> Profile:
        holes: Holes = {"source": self.source, "column": value, "sensitive": column(sensitive.name)}
        determined = int(self.db.rows(fill("core/determined", holes))[0][0])
        return replace(profile, clear=determined / max(1, profile.records))


@dataclass(frozen=True)
class ChosenRoles:
    """The roles of the columns, as the table ``[columns]`` of a specification.

    ``id``: the column that names records, if there is one; ``person``: the one that names persons, if any of them has
    several records.
    """

    columns: dict[str, Any]
    profiles: tuple[Profile, ...]
    remarks: tuple[str, ...] = ()
    id: str | None = None
    person: str | None = None
    kind: str = DEFAULT


def find_missing_markers(db: Warehouse, source: exp.Table) -> dict[str, tuple[str, ...]]:
    """Return the texts that stand for a missing value (``MISSING``), of each text column that has any."""
    names = [field.name for field in db.list_fields(source) if field.type == "VARCHAR"]
    if not names:
        return {}
    marked = {name: column(name).isin(*map(exp.Literal.string, MISSING)) for name in names}
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
    """Raise ``UsageError`` for sensitive values that are no categories: very many numbers, or all unique.

    Args:
        mechanism: The mechanism that would publish the values.
        different: How many values each sensitive column has.
        values: How many values the sensitive columns have together.
        records: How many records have them.
        categorical: Whether the publisher says that numbers are codes of categories.
    """
    shape = mechanism.shape
    if not isinstance(shape, TableShape) or shape.numeric:
        return
    names = ", ".join(repr(field.name) for field in different)
    if values == records > FEW_RECORDS:
        all_numbers = all(field.is_number for field in different)
        numbers = f"mechanism.kind = {_find_numeric_kind()!r} publishes numbers, or " if all_numbers else ""
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
                f"mechanism.kind = {_find_numeric_kind()!r}, make bins in source.query, or set columns.categorical = "
                "true if these numbers are codes"
            )


def _find_numeric_kind() -> str:
    """Return the kind of the first mechanism whose sensitive column is a number."""
    shapes = {kind: get_default_mechanism(kind).shape for kind in KINDS}
    return next(kind for kind, shape in shapes.items() if isinstance(shape, TableShape) and shape.numeric)


def choose_roles(
    db: Warehouse, source: exp.Table, kind: str | None, wanted: tuple[str | None, bool], report: Reporter
) -> ChosenRoles:
    """Choose roles for the columns of a source, in the shape that a mechanism takes.

    Args:
        db: The engine that has mounted the source.
        source: The source's relation.
        kind: The mechanism. None is the default one, or the one that publishes numbers if the sensitive column has very
            many numbers.
        wanted: The sensitive column (None: the one with the most telling name), and whether its numbers are codes.
        report: Receives progress.

    Raises:
        UsageError: No columns can have these roles, or the sensitive column is not in the source.
    """
    mechanism = get_default_mechanism(kind or DEFAULT)
    fields, shape, (name, categorical) = db.list_fields(source), mechanism.shape, wanted
    look = _ColumnProfiler(db, source, report)
    if isinstance(shape, ItemSetShape):
        person = _find_person(look.profile_columns([f for f in fields if is_publishable(f) and _names_person(f.name)]))
        return replace(_choose_list(fields, name), person=person, kind=mechanism.kind)
    remarks = [f"left out: {f.name} is {f.type}, which can't be published" for f in fields if not is_publishable(f)]
    profiles = look.profile_columns([field for field in fields if is_publishable(field)])
    if not any(profile.records for profile in profiles):
        raise UsageError(
            "the source has no records" if profiles else f"no column can be published: {'; '.join(remarks)}"
        )
    if isinstance(shape, TableShape):
        sensitive = _choose_sensitive(profiles, name, numeric=shape.numeric)
        number = Field(sensitive.name, sensitive.type).is_number and not sensitive.is_unique
        many = shape.most_numbers is not None and sensitive.different > shape.most_numbers
        if kind is None and number and many and not categorical:
            mechanism = get_default_mechanism(_find_numeric_kind())
            remarks.append(
                f"{sensitive.name} has {sensitive.different:,} different numbers: {mechanism.kind} publishes them as "
                "they are; for categories make bins in source.query; if they are codes, tell init so (categorical)"
            )
        different = {Field(sensitive.name, sensitive.type): sensitive.different}
        refuse_uncategorical(mechanism, different, sensitive.different, sensitive.filled, categorical=categorical)
        chosen = _choose_table_roles(look, profiles, sensitive, remarks)
        coded = {"categorical": True} if categorical else {}
        return replace(chosen, columns=chosen.columns | coded, kind=mechanism.kind)
    return replace(_choose_categories(profiles), person=_find_person(profiles), kind=mechanism.kind)


def _choose_table_roles(
    look: _ColumnProfiler, profiles: list[Profile], sensitive: Profile, remarks: list[str]
) -> ChosenRoles:
    """Return a sensitive column, and as quasi-identifiers the columns that an attacker may know."""
    others = look.add_clear_shares([profile for profile in profiles if profile.name != sensitive.name], sensitive)
    why = {profile.name: _explain_left_out(profile, sensitive) for profile in others}
    bins = {one.name: how for one in others if why[one.name] and (how := _propose_bins(look, one, sensitive))}
    reasons = [
        f"in bins: {one.name} has {one.different:,} values, so {Bins.model_validate(bins[one.name])} are proposed"
        for one in others
        if one.name in bins
    ]
    why |= dict.fromkeys(bins, "")
    quasi = [profile.name for profile in others if not why[profile.name]]
    reasons += [f"left out: {name} {reason}" for name, reason in why.items() if reason]
    if not quasi:
        every = [reason.removeprefix("left out: ") for reason in (*reasons, *remarks)]
        raise UsageError(f"no column can be a quasi-identifier: {_join_first(every, '; ', REASONS)}")
    nulls = {"nulls": {sensitive.name: "suppress"}} if sensitive.filled < sensitive.records else {}
    columns = {"quasi_identifiers": quasi, "sensitive": sensitive.name, **({"bins": bins} if bins else {}), **nulls}
    unique = next((p.name for p in others if p.is_unique and p.different == p.records), None)
    person = _find_person(others)
    several = [
        f"Note: if {one.name} names persons, some have up to {one.most} records, and promises hold per record; "
        f"person = '{one.name}', persons = 'one' in [source] takes one record of each"
        for one in others
        if one.different >= FEWEST and one.most > 1 and one.filled == one.records
        if _has_identifying_name(one) and one.name != person
    ]
    remarks = [*(profile.remark for profile in profiles), *reasons, *remarks, *several]
    return ChosenRoles(columns, tuple(profiles), tuple(remarks), unique, person)


def _propose_bins(look: _ColumnProfiler, profile: Profile, sensitive: Profile) -> dict[str, int] | int | str | None:
    """Return bins for a column that has too many values as it is: years of dates, first digits of codes."""
    if _is_identifying(profile) or profile.different <= MOST_QI:
        return None
    if profile.type in ("DATE", "TIMESTAMP"):
        return "year"
    if profile.type in ("INTEGER", "BIGINT") and POSTAL.search(BETWEEN.sub("_", profile.name)):
        hundred = exp.Literal.number(POSTAL_WIDTH)
        tens = exp.paren(exp.Div(this=column(profile.name), expression=hundred))
        coarse = exp.Cast(this=exp.Floor(this=tens), to=exp.DataType.build("BIGINT"))
        return None if look.gives_away(profile, coarse, sensitive) else POSTAL_WIDTH
    prefix = look.find_prefix(profile, sensitive)
    return {"prefix": prefix} if prefix else None


def _explain_left_out(profile: Profile, sensitive: Profile) -> str:
    """Why a column is no quasi-identifier; empty if it is one."""
    if profile.is_unique:
        return "names records: everyone has a value of their own"
    many_texts = profile.type == "VARCHAR" and profile.records > FEW_RECORDS
    if _has_identifying_name(profile):
        return "names people, by its own name"
    if profile.different < 2:
        return f"has {'one value' if profile.different else 'no value'}"
    if profile.different > MOST_QI or (many_texts and profile.different * FEW_EACH >= profile.filled):
        persons = "; if it names persons, it is source.person" if many_texts else ""
        return f"has {profile.different} values; give it columns.bins or columns.levels{persons}"
    if profile.clear >= CLEAR and profile.lift_over(sensitive) >= LIFTS:
        base = f"{sensitive.most / sensitive.records:.0%} without it"
        guessed = f"an attacker who knows it guesses right for {profile.clear:.0%} of the records, {base}"
        return f"gives {sensitive.name} away: {guessed}"
    return ""


def _choose_list(fields: Iterable[Field], wanted: str | None) -> ChosenRoles:
    """Return the wanted list column, or the only one."""
    lists = [field.name for field in fields if field.is_list]
    chosen = [name for name in lists if wanted is None or fold_name(name) == fold_name(wanted)]
    if len(chosen) != 1:
        known = "name record and item columns yourself"
        if lists:
            known = f"it has {', '.join(lists)}; choose one as columns.sensitive"
        raise UsageError(f"{'no' if not chosen else 'more than one'} list column to publish; {known}")
    return ChosenRoles({"items": chosen[0]}, ())


def _choose_categories(profiles: list[Profile]) -> ChosenRoles:
    """Return all columns with few values."""
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


def _join_first(lines: Sequence[str], between: str, number: int) -> str:
    """Return the first of some lines, in one."""
    more = f"{between}and {len(lines) - number} more" if len(lines) > number else ""
    return between.join(lines[:number]) + more


def _is_identifying(profile: Profile) -> bool:
    return profile.is_unique or _has_identifying_name(profile)


def _has_identifying_name(profile: Profile) -> bool:
    """Return whether a column names people or records, by its own name."""
    few = profile.different < FEWEST
    return is_identifying_name(profile.name) and (not few or bool(IDENTIFYING.search(BETWEEN.sub("_", profile.name))))


def is_identifying_name(name: str) -> bool:
    """Return whether a name says that a column names people or records."""
    words = BETWEEN.sub("_", name)
    return bool(IDENTIFYING.search(words) or PERSONS.search(words))


def _names_person(name: str) -> bool:
    words = BETWEEN.sub("_", name)
    return bool(PERSON.search(words) or PERSONS.search(words))


def _find_person(profiles: Iterable[Profile]) -> str | None:
    """Return the column that names persons of whom some have several records, the one with the most persons."""
    several = [p for p in profiles if p.different >= FEWEST and p.most > 1 and _names_person(p.name)]
    return max(several, key=lambda p: p.different).name if several else None


def _choose_sensitive(profiles: list[Profile], wanted: str | None, *, numeric: bool) -> Profile:
    """Return the wanted column, or the one with the most telling name; ``numeric``: a number or point in time."""
    if wanted is not None:
        return find_column(index_names(profiles), wanted)
    if numeric:
        what = "is a number or a point in time, of two values or more,"
        numbers = [p for p in profiles if Field(p.name, p.type).is_number and p.different > 1]
        candidates = [p for p in numbers if not _has_identifying_name(p)]
    else:
        what = f"has 2 to {MOST_VALUES} values"
        candidates = [p for p in profiles if 2 <= p.different <= MOST_VALUES and not _is_identifying(p)]
    named = [p for p in candidates if SENSITIVE.search(p.name)]
    if not named:
        if not candidates:
            raise UsageError(f"no column can be sensitive: none {what} and names neither records nor people")
        names = [p.name for p in candidates]
        listed = _join_first(names, ", ", OFFERED)
        raise UsageError(f"no column looks sensitive by its name; choose one as columns.sensitive, of {listed}")
    return min(named, key=lambda p: (p.different > 200 and not numeric, len(p.name), -p.different))
