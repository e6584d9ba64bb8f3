"""Recompute what a manifest states, run all checks of a release, and summarize it for people."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.database import SILENT
from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import (
    Field,
    Holes,
    alias_as,
    any_of,
    column,
    fill,
    is_null,
    same_columns,
    table,
    temp_table,
)
from privsql.errors import InfeasibleError, UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.base import BudgetComposition
from privsql.mechanisms.registry import get_mechanism
from privsql.model.arrays import largest_transport
from privsql.model.checks import BROKEN, Check, CheckResult, VerifiedBound, differ_from_spec, run_checks
from privsql.model.precision import ASKED, Precision
from privsql.model.records import Records, describe_persons
from privsql.outcomes import Cell, JsonObject, Outcome, Part, pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from privsql.attacks.scene import Finding, Ints
    from privsql.engine.database import Relations, Reporter
    from privsql.engine.sqlfiles import Roles
    from privsql.mechanisms.base import Mechanism
    from privsql.model.manifest import Manifest
    from privsql.model.parameters import Facts, Parameters
    from privsql.model.records import Persons
    from privsql.releases.contents import AttachedRelease
    from privsql.source.spec import Spec

# Lines ----------------------------------------------------------------------------------------------------------------
# The manifest of a release line by line, for people.

SCHEMA_NOTE = (
    "a schema of a database; nothing else in the database was checked or is promised, and its file was not searched "
    "for leftovers"
)


def describe_manifest(manifest: Manifest) -> list[tuple[str, object]]:
    """Return a manifest as lines (name, value) for people."""
    params = {key: one for key, one in manifest.parameters.items() if one and key not in ("kind", "algorithm")}
    rows: list[tuple[str, object]] = [("name", manifest.name)]
    rows.append(("mechanism", f"{manifest.mechanism}, {manifest.algorithm}"))
    rows.append(("parameters", ", ".join(f"{key} = {_format_parameter(one)}" for key, one in params.items())))
    if manifest.quasi_identifiers:
        rows.append(("quasi-identifiers", _join_fields(manifest.quasi_identifiers)))
    rows += [("in bins", f"{name}: {bins}; a value is the first of its bin") for name, bins in manifest.bins.items()]
    rows += [("in groups", f"{name}: {', '.join(groups)}") for name, groups in manifest.groups.items()]
    others = "items" if manifest.roles.hold_sets else "sensitive" if manifest.quasi_identifiers else "columns"
    rows.append((others, _join_fields(manifest.sensitive)))
    rows += [("a record", f"all rows of the source with the same {manifest.record}")] if manifest.record else []
    reserved = [
        f"{table}.{to} is its {name}" for table, names in manifest.own_columns.items() for name, to in names.items()
    ]
    rows += [("own columns", f"{', '.join(reserved)}: the other name is the publisher's")] if reserved else []
    rows += [(name.replace("_", " "), text) for name, text in manifest.wording.items()]
    rate = manifest.sampling_rate
    rows += [] if rate is None else [("sampling rate", f"{rate:.3%} of its population, as the publisher says")]
    rows.append(("persons", describe_persons(manifest.persons)))
    rows += [("place", SCHEMA_NOTE)] if manifest.place is not None else []
    if manifest.records is not None:
        counts = f"{manifest.published:,} published, {manifest.suppressed:,} suppressed"
        rows.append(("records", f"{manifest.records:,}; {counts}"))
    rows += get_mechanism(manifest.mechanism, manifest.algorithm).read_facts(manifest).describe()
    rows.append(("randomness", manifest.randomness))
    rows.append(("made by", f"privsql {manifest.privsql}, DuckDB {manifest.duckdb}"))
    return [*rows, *(("together", statement) for statement in manifest.together)]


def _format_parameter(value: object) -> str:
    """Return a parameter of a mechanism as text.

    Empty entries of a table are left out. A table whose only entry is ``default`` is shown as that entry.
    """
    if not isinstance(value, dict):
        return str(value)
    entries = {key: _format_parameter(one) for key, one in value.items() if one not in (None, {}, [])}
    if list(entries) == ["default"]:
        return entries["default"]
    return ", ".join(f"{key}: {one}" for key, one in entries.items())


def _join_fields(fields: Iterable[Field]) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in fields)


# Statements -----------------------------------------------------------------------------------------------------------
# Recompute what a manifest states: from the release's tables where that is possible, else from its source.
#
# For the rest readers rely on the publisher (``SECURITY.md`` lists it): which versions made the release, where its
# randomness is from, what else was published, and how near to the optimum the search came.

WHOLE = "columns in bins hold where bins begin, and columns of groups these"
NEAR = 0.001  # a larger difference between shares of records is not due to another machine's arithmetic


@dataclass(frozen=True)
class MeasuredFacts(JsonObject):
    """What was measured on the tables of a release.

    Attributes:
        facts: The facts, in the form in which a manifest states them.
        bounds: How sure an attacker can be of each sensitive value at most.
        summary: A summary of both for people.
    """

    json_keys = ("facts*", "bounds", "summary")

    facts: Facts
    bounds: list[VerifiedBound]
    summary: ReleaseSummary

    def list_differences(self, manifest: Manifest) -> list[str]:
        """Return a line for each fact that a manifest states differently."""
        stated, measured = manifest.facts, self.facts.as_json().items()
        return [f"{key}: stated {stated.get(key)}" for key, value in measured if not _is_same(stated.get(key), value)]


def refuse_learning(release: AttachedRelease, report: Reporter) -> Finding | None:
    """Measure what an attacker learns who trains a model on a release, and refuse the release if it is too much.

    The limit is the parameter ``max_learning``: the highest allowed mean belief in the attacker's guesses.

    Returns:
        What was measured; None if the publisher sets no such limit.

    Raises:
        InfeasibleError: The attacker exceeds the limit, or privsql can't measure it for this mechanism.
    """
    from privsql.attacks.scene import ReleaseView

    limit = release.checked.params.learning_limit
    if limit is None:
        return None
    report.start_step("Measuring what can be learnt from the release")
    view = ReleaseView(release.db, release.manifest, seed_key(1).random_generator("risk"), release.database)
    finding = release.mechanism.measure_learning(view)
    if finding is None or finding.mean is None:
        raise InfeasibleError("max_learning: privsql can't measure learning for such a release; publish without it")
    if finding.mean > limit:
        advice = "; or ".join(release.mechanism.advice)
        raise InfeasibleError(
            f"max_learning: an attacker who learns from this release guesses values with a mean belief of "
            f"{finding.mean:.1%}, above {limit:.1%}. To lower it: {advice}"
        )
    return finding


def measure_facts(release: AttachedRelease) -> MeasuredFacts:
    """Compute again from the tables of a release what its manifest states: facts, and bounds on attackers' beliefs.

    All checks of the release must have been found to hold.
    """
    mechanism, checked = release.mechanism, release.checked
    bounds, facts = mechanism.bounds(checked), mechanism.measured(checked)
    summary = ReleaseSummary.make(release, bounds)
    return MeasuredFacts(facts, bounds, summary)


def statement_checks(release: AttachedRelease) -> list[Check]:
    """Return the checks of a manifest that apply to every mechanism and need no source.

    They check that the manifest is complete, and that the tables hold only bins, groups and NULLs that it allows.
    """
    from privsql.source.table import in_bins

    manifest = release.manifest
    published = {}  # by table the columns that are the publisher's
    for name, columns in release.tables.items():
        reserved = {called for _, called, _ in release.reserved_columns[name]}
        published[name] = [one for one, _ in columns if one not in reserved]

    def find_outside_bins() -> list[str]:
        groups = release.list_groups(manifest.groups)
        wrong = [f"groups: {name}" for name, labels in manifest.groups.items() if labels != groups[name]]
        fields = {field.name: field for field in manifest.quasi_identifiers}
        for name, one in [
            (name, one) for name, columns in published.items() for one in columns if one in manifest.bins
        ]:
            value = column(one)
            outside = exp.not_(value.eq(in_bins(fields[one], value, manifest.bins[one]).value))
            holes: Holes = {"table": table(name, release.database)}
            holes |= {"filter": exp.and_(exp.not_(is_null(value)), outside)}
            if release.db.rows(fill("core/matching", holes))[0][0]:
                wrong.append(f"{one} of {name} holds a value that is no bin")
        return wrong

    def find_omissions() -> list[str]:
        columns = {field.name for field in manifest.roles.columns}
        wrong = [f"nulls: {name}" for name in sorted(columns ^ manifest.nulls.keys())]
        params = release.checked.params.as_stated()
        if manifest.algorithm != params["algorithm"]:
            wrong.append(f"algorithm {manifest.algorithm}, asked for {params['algorithm']}")
        names = sorted(params.keys() | manifest.parameters.keys())
        return wrong + [f"parameters: {name}" for name in names if params.get(name) != manifest.parameters.get(name)]

    def find_nulls() -> list[str]:
        without, wrong = {name for name, policy in manifest.nulls.items() if policy != "value"}, []
        for name, columns in published.items():
            empty: list[exp.Expr] = [column(one).is_(exp.null()) for one in columns if one in without]
            if empty:
                holes: Holes = {"table": table(name, release.database), "empty": any_of(empty)}
                wrong += [f"{name} holds a NULL"] if release.db.rows(fill("verify/holds_nulls", holes)) else []
        return wrong

    return [
        *([Check(WHOLE, find_outside_bins)] if manifest.bins or manifest.groups else []),
        Check("the manifest is complete, for every column", find_omissions),
        Check("NULL appears only where the stated policies allow it", find_nulls),
    ]


def compare_with_source(manifest: Manifest, source: Records, spec: Spec) -> list[Check]:
    """Return the checks of a manifest against the source and its specification that apply to every mechanism.

    They compare the numbers of records, the treatment of NULL, bins and groups, persons, and the order of text values.
    """
    from privsql.source.table import describe_coarsening

    left_out, orders = manifest.facts.get("left_out", 0), source.roles.orders
    stated = {"records": manifest.records, "published": manifest.published, "suppressed": manifest.suppressed}
    counted = (source.source_records, source.records - left_out, source.suppressed + left_out)
    coarse = describe_coarsening(manifest.quasi_identifiers, spec.columns)
    # who has another key has checked something else
    persons, others = (one and one.model_copy(update={"choice": None}) for one in (manifest.persons, source.persons))
    wrong = {
        "suppressed records are as stated": [
            f"{name}: stated {number}, the source has {found}"
            for (name, number), found in zip(stated.items(), counted, strict=True)
            if number not in (found, None)
        ],
        "policies for NULL are those of the specification": [
            f"{name}: stated {policy}"
            for name, policy in manifest.nulls.items()
            if policy != spec.columns.null_policy(name)
        ],
        "bins and groups are those of the specification": [
            f"{key} are stated otherwise"
            for key, entries in (("bins", manifest.bins), ("groups", [*manifest.groups]))
            if entries != coarse[key]
        ],
        "persons are as stated": []
        if persons == others
        else [f"stated: {describe_persons(manifest.persons)}; the source: {describe_persons(source.persons)}"],
        "labels are in the order of the source": [
            f"orders: {name}"
            for name, labels in manifest.orders.items()
            if labels != [label for label in orders.get(name, ()) if label in set(labels)]
        ],
    }
    return [Check(name, partial(list, lines)) for name, lines in wrong.items()]


def _is_same(stated: object, other: object) -> bool:
    """Return whether two facts are equal; floats count as equal if they differ by at most 0.001 (``NEAR``)."""
    if isinstance(stated, dict) and isinstance(other, dict):
        return stated.keys() == other.keys() and all(_is_same(stated[key], other[key]) for key in other)
    if isinstance(stated, float) and isinstance(other, float):
        return abs(stated - other) <= NEAR
    return stated == other


# Summary --------------------------------------------------------------------------------------------------------------
# The lines with which the screens of all verbs and pages begin, for those who decide on a release.

PROMISED, BEYOND, MEASURED, LEFT_OUT = "promised", "beyond the promise", "measured", "left out"
USELESS = "useless"
UNKNOWN_ERROR = "no formula tells it before it is measured; 'privsql evaluate' measures it"
MANY_LEFT_OUT = 0.05  # share of the source's records; if more are left out, a line says so
NAMED = 3  # unprotected values that a line names
MOST_KINDS = 2**20  # records that are compared with each other
HASHES = 2**64  # the number of possible hashes
# Of records with the same quasi-identifiers, as reports have them.
CLASS_SIZES = ((1, 1), (2, 4), (5, 10), (11, math.inf))


@dataclass(frozen=True)
class SummaryLine(JsonObject):
    """One line of a summary for people.

    Attributes:
        title: What the line is about.
        text: The sentence.
        standing: What kind of statement it is. ``PROMISED``: the release guarantees it. ``BEYOND``: a risk that no
            promise covers. ``MEASURED``: a figure. ``LEFT_OUT``: records that are missing. ``USELESS``: a warning that
            counts are too imprecise.
        figures: The numbers in the sentence by name; None for an unknown one.
    """

    json_keys = ("text", "standing", "figures*")

    title: str
    text: str
    standing: str = MEASURED
    figures: Mapping[str, float | int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ReleaseSummary(Outcome):
    """The summary of a release for people: its lines, by name.

    Lines state the promise, whether a person may have several records, what the strongest attacker learns beyond the
    promise, errors of counts, unique records, and other releases. If many records are left out, a line says so. A plan
    has only the lines that are known before publishing.
    """

    json_keys = ("lines*",)

    lines: Mapping[str, SummaryLine]

    @staticmethod
    def foresee(
        mechanism: Mechanism[Any, Any],
        params: Parameters,
        roles: Roles,
        bounds: Sequence[VerifiedBound],
        persons: Persons | None,
        counts: tuple[int | None, int | None],
    ) -> ReleaseSummary:
        """Return the lines that are known before publishing; they are the summary of a plan.

        Args:
            mechanism: The mechanism of the release.
            params: Its parameters.
            roles: The roles of its columns.
            bounds: The highest belief in each sensitive value that the release allows.
            persons: How the specification treats persons; None if it does not mention them.
            counts: The number of records of the source, and how many are left out; None for a number that is not
                stated.
        """
        several = {} if persons is None else {"several": persons.several, "most": persons.most}
        standing = BEYOND if persons is None or persons.several else MEASURED
        lines = {
            "promise": _summarize_promise(mechanism, params, roles.sensitive, bounds, _protected_unit(persons)),
            "persons": SummaryLine("persons", describe_persons(persons), standing, several),
        }
        records, left_out = counts
        if records and left_out and left_out > MANY_LEFT_OUT * records:
            share = left_out / records
            text = f"{share:.1%} of the source's records ({left_out:,} of {records:,}) are not in the release"
            lines["left_out"] = SummaryLine("left out", text, LEFT_OUT, {"records": left_out, "share": share})
        lines["error"] = _foresee_error(mechanism.foresee_precision(params, bounds, len(roles.quasi_identifiers)))
        return ReleaseSummary(lines)

    def tell_precision(self, text: str) -> ReleaseSummary:
        """Return the summary with ``text`` as the line on precision; an empty text changes nothing."""
        return ReleaseSummary({**self.lines, "error": SummaryLine("precision", text)}) if text else self

    @staticmethod
    def make(
        release: AttachedRelease,
        bounds: Sequence[VerifiedBound],
        learning: Finding | None = None,
        errors: Sequence[tuple[float, float, bool]] = (),
        *,
        measured: bool = False,
    ) -> ReleaseSummary:
        """Summarize a release whose checks hold.

        Args:
            release: The release.
            bounds: The highest belief in each sensitive value that the release allows.
            learning: How well an attacker guesses who trains a model on the release; None if it is not known.
            errors: For typical counts (estimate, error, is_bound). ``is_bound`` is true if the error is the largest
                possible one, false if it is the expected one.
            measured: Whether the caller tried to measure the attacker and the errors. If not, the summary names the
                command that does so.
        """
        manifest, hint = release.manifest, "" if measured else "; 'privsql attack' measures it"
        together = manifest.together
        text = "; ".join(together) or "the publisher's ledger knew of none when this one was made"
        first = ReleaseSummary.foresee(
            release.mechanism,
            release.checked.params,
            manifest.roles,
            bounds,
            manifest.persons,
            (manifest.records, manifest.suppressed),
        )
        error = _summarize_error(errors) or first.lines["error"]
        lines = {
            **{name: line for name, line in first.lines.items() if name != "error"},
            "attacker": _summarize_attacker(learning, release, hint),
            "error": error,
            "unique": _summarize_unique(release),
            "others": SummaryLine("other releases", text, MEASURED, {"statements": len(together)}),
        }
        return ReleaseSummary(lines)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield the lines to print, each marked as promised, beyond the promise, measured, left out or useless."""
        yield pairs((one.title, Cell(one.text, one.standing)) for one in self.lines.values())


def list_bounds(release: AttachedRelease, *, examined: bool = False) -> list[VerifiedBound]:
    """Compute from the tables of a release how sure an attacker can be of each sensitive value at most.

    Args:
        release: The release.
        examined: Whether ``examine_release`` has just run. The temporary tables that this needs then exist already.
    """
    if not examined:
        release.checked.name_tables()
        release.mechanism.checks(release.checked)
    return release.mechanism.bounds(release.checked)


def _protected_unit(persons: Persons | None) -> str:
    """Return what a budget protects: "person", or "record" if a person may have several records."""
    return "person" if persons is not None and persons.rule != "count" else "record"


def _summarize_promise(
    mechanism: Mechanism[Any, Any],
    params: Parameters,
    sensitive: Sequence[Field],
    bounds: Sequence[VerifiedBound],
    unit: str,
) -> SummaryLine:
    """Return the line on how sure an attacker who finds a record can be at most.

    Args:
        mechanism: The mechanism of the release.
        params: Its parameters.
        sensitive: The sensitive columns.
        bounds: The bounds of their values; values that the publisher does not protect are not named in the line.
        unit: What a budget protects, "person" or "record".
    """
    title, composition = "promised", mechanism.composition
    if isinstance(composition, BudgetComposition) and composition.unit == "presence":
        epsilon = float(composition.epsilon(params))
        most = 1 / (1 + math.exp(-epsilon))
        text = f"an attacker who gives even odds that a {unit} is in the table becomes at most {most:.1%} sure"
        return SummaryLine(title, f"{text} (epsilon {epsilon:g})", PROMISED, {"reached": most})
    together = [one for one in bounds if one.group]
    beliefs = [one for one in bounds if one.belief and not one.group]
    if not beliefs:
        stated = " ".join(mechanism.words(params).promised[1:]).removesuffix(".")
        return SummaryLine(title, stated[:1].lower() + stated[1:], PROMISED)
    names = [one.name for one in sensitive]
    open_values = [one.value for one in beliefs if not one.protects]
    if len(open_values) == len(beliefs):
        return SummaryLine(title, f"no value of {' and '.join(names)} is protected: every bound is 100%", BEYOND)
    worst = max((one for one in beliefs if one.protects), key=lambda one: Fraction(one.found))
    reached, bound = float(Fraction(worst.found)), float(Fraction(worst.bound))
    what = f"its {names[0]}"
    if len(names) > 1:
        what = f"{' and '.join(names)} together, and surer of one of them alone,"
    text = (
        f"an attacker who finds a record by its quasi-identifiers can be at most {reached:.1%} sure of {what} "
        f"({worst.value}, whose bound is {bound:.1%})"
    )
    for one in together if len(together) <= NAMED else ():
        text += f"; at most {float(Fraction(one.found)):.1%} sure that it has one of the values of group {one.value}"
    if len(together) > NAMED:
        most = float(max(Fraction(one.found) for one in together))
        text += f"; at most {most:.1%} sure that it has one of the values of any of {len(together):,} groups"
    if open_values:
        listed = f": {', '.join(open_values)}" if len(open_values) <= NAMED else ""
        number = "1 value is" if len(open_values) == 1 else f"{len(open_values):,} values are"
        text += f"; {number} not protected{listed}"
    return SummaryLine(title, text, PROMISED, {"reached": reached, "bound": bound, "unprotected": len(open_values)})


def _summarize_attacker(finding: Finding | None, release: AttachedRelease, hint: str) -> SummaryLine:
    """Return the line on how often the strongest attacker is right, compared with guessing the most frequent value.

    Args:
        finding: What was measured of the attacker; None if nothing was.
        release: The release.
        hint: The command that measures it, as a text; empty if it was tried already.
    """
    title = "not promised"
    composition = release.mechanism.composition
    if isinstance(composition, BudgetComposition) and composition.unit == "presence":
        unit = _protected_unit(release.manifest.persons)
        return SummaryLine(title, f"no attacker is known who learns more of a single {unit} than is promised")
    by_source = finding is not None and finding.right is not None
    reached = None if finding is None else finding.right if by_source else finding.mean if finding.calibrated else None
    if finding is None or reached is None:
        far = "'privsql attack' measures how far" if hint else "how far is not known"
        return SummaryLine(title, f"an attacker who trains on the release may do better; {far}", BEYOND)
    how = "is right about" if by_source else "can expect to be right about"
    text = f"the strongest known attacker who trains on the release {how} {reached:.1%} of the records"
    guess, above = finding.baseline, finding.above or 0.0
    text += f" (guessing the most frequent value: {guess:.1%})" if guess is not None else ""
    text += f"; its belief exceeds the bound of a value for {above:.0%} of them" if above else ""
    return SummaryLine(title, text, BEYOND, {"reached": reached, "guessing": guess, "above": above})


def _foresee_error(precision: Precision | None) -> SummaryLine:
    """Return the line on the expected errors of counts, as a formula predicts them before publishing.

    Args:
        precision: The prediction; None if there is no formula.

    Returns:
        The line. Its standing is ``USELESS`` if counts of 500 records are off by more than a fifth.
    """
    if precision is None:
        return SummaryLine("precision", UNKNOWN_ERROR)
    errors = {"error": precision.error, "few": precision.few, "share": precision.share}
    figures = {name: one if one is not None and math.isfinite(one) else None for name, one in errors.items()}
    text, standing = (precision.warning, USELESS) if precision.is_useless else (precision.text, MEASURED)
    return SummaryLine("precision", text.removesuffix("."), standing, figures)


def _summarize_error(errors: Sequence[tuple[float, float, bool]]) -> SummaryLine | None:
    """Return the line on the median error of counts near 500 (``ASKED``), the size of a typical question.

    The counts from 250 to 1,000 are used. If there are none, the counts within a factor of 2 of the one nearest to 500
    are used.

    Args:
        errors: For typical counts (estimate, error, is_bound); ``is_bound`` says that the error is the largest possible
            one. Without any, the result is None.

    >>> _summarize_error([(240.0, 12.0, False), (400.0, 15.0, False), (90.0, 5.0, False), (0.0, 3.0, False)]).text
    'a count of 500 is typically off by 15 (3%)'
    >>> _summarize_error([(240.0, 12.0, True), (130.0, 8.0, True), (90.0, 5.0, True), (0.0, 3.0, True)]).text
    'a count of 240 is typically off by at most 10 (4%)'
    """
    measured = [one for one in errors if one[0] >= 1]
    if not measured:
        return None
    nearest = min((estimate for estimate, *_ in measured), key=lambda estimate: abs(math.log(estimate / ASKED)))
    count = ASKED if ASKED / 2 <= nearest <= ASKED * 2 else round(nearest)
    chosen = [(error, largest) for estimate, error, largest in measured if count / 2 <= estimate <= count * 2]
    error, most = median(error for error, _ in chosen), "at most " * any(largest for _, largest in chosen)
    text = f"a count of {count:,} is typically off by {most}{error:,.0f} ({error / count:.0%})"
    return SummaryLine("precision", text, MEASURED, {"count": count, "error": error})


def _summarize_unique(release: AttachedRelease) -> SummaryLine:
    """Return the line on how many records have quasi-identifiers that no other record has."""
    title, roles = "unique records", release.manifest.roles
    if not roles.quasi_identifiers:
        return SummaryLine(title, "no records are published, so none can be singled out")
    rows = exp.select(*roles.qi_in()).from_(table(find_qi_table(release), release.database)).subquery("rows")
    classes, records = count_classes(release.db, rows, [column(key) for key in roles.qi_keys])
    unique, rate = classes[1], release.manifest.sampling_rate
    about = "about " if records > MOST_KINDS else ""
    alone = f"{about}{unique:,} of {records:,} ({unique / max(1, records):.1%})"
    text = f"{alone} are the only ones with their quasi-identifiers"
    figures: dict[str, float | int | None] = {"unique": unique, "records": records, "classes": sum(classes.values())}
    for least, most in CLASS_SIZES:
        figures[f"in_classes_from_{least}"] = sum(n * size for size, n in classes.items() if least <= size <= most)
    if rate is not None and unique:
        figures["matched"] = matched = estimate_matches(unique, classes[2], rate)
        text += (
            f"; the table is said to be {rate:.2%} of its population, so whoever finds one person there who matches "
        )
        text += f"such a record has the right one with a probability of about {matched:.1%}"
    return SummaryLine(title, text, MEASURED, figures)


def estimate_matches(alone: int, pairs: int, rate: float) -> float:
    """Estimate the probability that a match with a unique record of a random sample is the right person.

    A record is unique if no other record of the sample has its quasi-identifiers. The estimate is theta of Skinner and
    Elliot (2002), "A measure of disclosure risk for microdata": the number of unique records, divided by the number of
    people in the population who match them. It assumes no distribution.

    Args:
        alone: The number of unique records.
        pairs: The number of classes of exactly two equal records.
        rate: The share of the population that is in the sample.

    >>> estimate_matches(300, 100, 0.5), estimate_matches(300, 100, 1.0)
    (0.6, 1.0)
    """
    return rate * alone / (rate * alone + 2 * (1 - rate) * pairs)


def count_classes(
    db: Relations, rows: exp.Expr, columns: Sequence[exp.Expr], most: int = MOST_KINDS
) -> tuple[Counter[int], int]:
    """Count how many classes of equal rows there are of each size, for example how many rows are unique.

    Rows count as equal if their 64-bit hashes are equal; for ``most`` records the probability of any collision is about
    1e-5. Of more records only a random part of the classes is read, with about ``most`` records, and the result is
    scaled up.

    Args:
        db: The engine.
        rows: The rows.
        columns: The columns in which equal rows agree.
        most: The number of records that is read at most.

    Returns:
        Size of a class -> number of classes; and the number of rows.
    """
    records = int(db.rows(exp.select(exp.Count(this=exp.Star())).from_(rows))[0][0])
    if not db.keeps_order:  # an engine that groups rows of any number
        number = exp.Count(this=exp.Star())
        grouped = exp.select(alias_as(number, "size")).from_(rows).group_by(*columns).subquery("sizes")
        counted = db.rows(exp.select("size", number.copy()).from_(grouped).group_by("size"))
        return Counter({int(size): int(classes) for size, classes in counted}), records
    last = HASHES * min(most, records) // max(1, records)
    kind = exp.Anonymous(this="hash", expressions=list(columns))
    holes: Holes = {"rows": rows, "hash": kind, "last": exp.Literal.number(max(0, last - 1))}
    with db.stream_batches(fill("duckdb/kinds_of_rows", holes), BATCH) as batches:
        hashes = batches.read_all().column(0).to_numpy()
    sizes, classes = np.unique(np.unique(hashes, return_counts=True)[1], return_counts=True)
    pairs_of = zip(sizes.tolist(), classes.tolist(), strict=True)
    return Counter({size: round(number * HASHES / last) for size, number in pairs_of}), records


def find_qi_table(release: AttachedRelease) -> str:
    """Return the name of the table that holds the quasi-identifiers of every published record."""
    wanted = {field.name for field in release.manifest.roles.quasi_identifiers}
    return next(name for name, columns in release.tables.items() if wanted <= {one for one, _ in columns})


# Matching -------------------------------------------------------------------------------------------------------------
# Check a release of one record of each person without the key that chose the records.
#
# A maximum flow matches persons to published rows that one of their records could be, and must fill every row as often
# as it is published. Quasi-identifiers and sensitive values are matched separately, which a true release always passes.

LISTED = "st"  # the table of sensitive values, by mechanisms that publish these as they are


def has_same_choice(manifest: Manifest, source: Records) -> bool:
    """Return whether the same key chose the published records of each person in a release and in its source.

    A secret key may choose some records of each person for publication. If it was another key when the source was read
    now, the records of the two can't be compared one by one. The function compares the digests of both keys. It is true
    if one side states nothing about persons.
    """
    stated, counted = manifest.persons, source.persons
    return stated is None or counted is None or stated.choice == counted.choice


def matching_checks(release: AttachedRelease) -> list[Check]:
    """Return checks of a release with one record of each person, if it is not known which record was chosen.

    The key that chose is not known, so the exact records can't be compared. The checks show at least that each
    published row can belong to a different person of the source. Relation ``people`` must hold all records of all
    persons in the source.
    """
    db, database, roles = release.db, release.database, release.manifest.roles
    if not roles.quasi_identifiers or not roles.sensitive:
        return []

    def make_check(what: str, published: exp.Query, keys: Sequence[str], count: exp.Expr) -> Check:
        def find_unmatched() -> list[str]:
            columns, matched = [column(key) for key in keys], temp_table("matched_rows")
            counted: Holes = {"published": published.subquery("published"), "columns": columns, "count": count}
            db.create_table("matched_rows", fill("verify/rows", counted))
            holes: Holes = {"people": temp_table("people"), "rows": matched, "same_row": same_columns("p", "r", keys)}
            pairs = db.arrow(fill("verify/options", holes))
            listed = db.arrow(exp.select("row", "records").from_(matched).order_by("row"))
            db.drop("matched_rows")
            parts = (pairs["person"], pairs["row"].fill_null(-1), listed["records"])
            missing = count_unfilled(*(part.to_numpy().astype(np.int64) for part in parts))
            return [f"{missing:,} published records that no person's can be, one of each"] if missing else []

        return Check(f"every person can have one of the published {what}", find_unmatched)

    rows = exp.select(*roles.qi_in()).from_(table(find_qi_table(release), database))
    checks = [make_check("quasi-identifiers", rows, roles.qi_keys, exp.Literal.number(1))]
    if LISTED in release.tables:
        listed = exp.select(*roles.sa_in(), *roles.by_sa.select_columns("count")).from_(table(LISTED, database))
        total = int(db.rows(exp.select(exp.Sum(this=column("count"))).from_(listed.subquery("listed")))[0][0])
        if total == int(db.rows(exp.select(exp.Count(this=exp.Star())).from_(rows.subquery("published")))[0][0]):
            checks.append(make_check("sensitive values", listed, roles.sa_keys, column("count")))
    return checks


def count_unfilled(persons: Ints, rows: Ints, records: Ints) -> int:
    """Return how many published records can't be assigned to persons, with at most one record for each person.

    The number is 0 if the release was made from the records of these persons. It is computed by a maximum flow from
    persons to published rows, in which persons with the same possible rows are one node.

    Args:
        persons: The person of each possible assignment (p,): one of the person's records matches the published row.
        rows: The row of each possible assignment (p,); -1 for a person who matches no row.
        records: How many published records each row stands for (r,).
    """
    order = np.lexsort((rows, persons))
    persons, rows = persons[order][rows[order] >= 0], rows[order][rows[order] >= 0]
    starts = np.flatnonzero(np.diff(persons, prepend=-1))
    kinds = Counter(options.tobytes() for options in np.split(rows, starts[1:])) if len(rows) else Counter[bytes]()
    groups, sizes = [np.frombuffer(one, np.int64) for one in kinds], np.array([*kinds.values()], np.int64)
    tails = np.repeat(np.arange(len(groups)), np.array([len(group) for group in groups], np.int64))
    heads = np.concatenate([np.zeros(0, np.int64), *groups])
    return int(records.sum()) - largest_transport(sizes, records, (tails, heads), sizes[tails])


# Examine --------------------------------------------------------------------------------------------------------------
# All checks of a release: from the published file, and against the source if that is given.

PARAMETERS_CHECK = "parameters are those of the specification"
READABLE = "its tables can be checked"


def examine_release(
    release: AttachedRelease,
    *,
    source: Records | None = None,
    spec: Spec | None = None,
    whole: bool = True,
    report: Reporter = SILENT,
) -> list[CheckResult]:
    """Run all checks of a release that holds what its manifest states.

    Args:
        release: The release.
        source: The records of its source; None to leave out the checks against the source.
        spec: The specification of the source; None without a source.
        whole: Whether to run the slow checks, too. A release always passes them right after ``publish`` has made it,
            but a release by somebody else may not.
        report: Shows how many checks are done.
    """
    report.start_step("Checking the release")
    try:
        mechanism, manifest, checked = release.mechanism, release.manifest, release.checked
        checked.name_tables()
        checks = [*mechanism.checks(checked), *statement_checks(release)]
        if whole:
            checks += mechanism.long_checks(checked)
        if source is not None and spec is not None:
            checks.append(Check(PARAMETERS_CHECK, partial(differ_from_spec, checked.params, spec.mechanism)))
            same = has_same_choice(manifest, source)
            checks += mechanism.source_checks(checked, source, spec.mechanism) if same else matching_checks(release)
            checks += compare_with_source(manifest, source, spec)
        return run_checks(release.db, checks, report)
    except (UsageError, *BROKEN) as error:
        wrong = str(error) if isinstance(error, UsageError) else f"{type(error).__name__} on what the release holds"
    return [CheckResult(READABLE, 1, (wrong,))]
