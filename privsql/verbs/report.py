"""Write one page about a release: its promises, risks, the accuracy of its answers, and how to query it."""

from __future__ import annotations

import hashlib
import shlex
from typing import TYPE_CHECKING, Unpack

from sqlglot import exp

from privsql.answers.accuracy import Workload
from privsql.attacks.population import guess_from_others
from privsql.calls import as_optional_path
from privsql.engine.database import RunKeywords, options_from
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import alias_as, all_of, column, is_null, plain_sql, table, temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.base import ItemSetShape, TableShape
from privsql.model.estimates import BASELINE
from privsql.pages.columns import note_columns
from privsql.pages.report import (
    Report,
    TruthComparison,
    UsageSnippets,
    VerifiedFacts,
    require_page_target,
    write_page,
)
from privsql.releases.contents import ENDING, create_view, digest_release, locate_release, view_of_parquet
from privsql.releases.opened import Release, explain_failures, open_release
from privsql.releases.statements import ReleaseSummary, count_classes, describe_manifest
from privsql.source.keywords import spec_from_manifest
from privsql.source.table import ALL_RECORDS
from privsql.source.targets import MARK, Target, as_target
from privsql.verbs.alternatives import curve
from privsql.verbs.attack import (
    as_literal,
    ask_release,
    attack,
    build_count_query,
    estimate_accuracy,
    find_learning,
    find_quantiles,
    items_condition,
    list_errors,
)
from privsql.verbs.evaluate import evaluate
from privsql.verbs.sessions import open_release_with_source
from privsql.verbs.verify import verify as check_release

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.answers.accuracy import Score
    from privsql.calls import PathLike
    from privsql.engine.database import Options
    from privsql.mechanisms.base import Curve, Shape
    from privsql.model.manifest import Manifest
    from privsql.releases.contents import StoredRelease
    from privsql.source.keywords import SpecLike
    from privsql.verbs.verify import Verified


# Snippets to copy -----------------------------------------------------------------------------------------------------
# Lines to copy that query a release: in a shell, in Python, and in DuckDB without privsql.

FILE, FOLDER, SCHEMA = "release.duckdb", "release", "released"  # the names of releases in the example commands
SERVER = "postgresql://HOST/DATABASE"
LEGIBLE = 100  # most characters of a legible value
QUOTING = frozenset('"$`\\!')  # characters that a shell interprets in double quotes


def make_snippets(release: Release, location: StoredRelease) -> UsageSnippets:
    """Return the commands, for readers of the report, that ask an example question: in the shell, in Python and in SQL.

    Args:
        release: The open release.
        location: Where its files lie, which decides how the commands name it.
    """
    name, form = FILE, "file"
    if location.is_folder or (location.target.address is not None and not location.target.is_schema):
        name, form = FOLDER, "folder"
    elif location.target.schema is not None:
        place = FILE if location.target.address is None else SERVER
        name, form = f"{place}{MARK}{SCHEMA}", "schema"
    groups, condition = _example_question(release)
    query = plain_sql(build_count_query(release, groups, condition))
    quoted = shlex.quote(query) if QUOTING & set(query) else f'"{query}"'
    python = f"import privsql\n\nrelease = privsql.open({name!r})\nrelease.sql({query!r})"
    plain = _plain_sql(release, groups, condition, form)
    return UsageSnippets(form, name, f"privsql query {name} {quoted}", python, plain)


def _example_question(release: Release) -> tuple[list[exp.Expr], exp.Expr | None]:
    """Return an example question that the release can answer.

    It is about the most frequent value by a column, about numbers above their median, or about frequent items.

    Returns:
        The SQL expressions to group by, and the condition; None if there is no condition.
    """
    roles, shape = release.manifest.roles, release.mechanism.shape
    if isinstance(shape, ItemSetShape):
        frequent = release.answers.list_frequent(20, release.answers.estimators[0])
        chosen = next((items for items, _ in frequent if items and _is_legible(items)), None)
        return [], items_condition(roles.sensitive[0], chosen) if chosen else None
    fields = roles.sensitive if roles.quasi_identifiers else roles.sensitive[:1]
    others = roles.quasi_identifiers or roles.sensitive[1:]
    legible = [field.name for field in others if _is_legible([field.name])]
    few: list[exp.Expr] = [column(name) for name in legible[:1]]
    numeric = isinstance(shape, TableShape) and shape.numeric
    if numeric and (middle := find_quantiles(release, fields[0], [0.5])):
        return few, exp.GTE(this=column(fields[0].name), expression=as_literal(middle[0], fields[0]))
    rows = ask_release(release, build_count_query(release, [column(field.name) for field in fields]))
    legible_rows = (row for row in rows if _is_legible(row[: len(fields)]))
    most = max(legible_rows, key=lambda row: row[len(fields)] or 0, default=None)
    if most is None:
        return few, None
    pairs = [(column(field.name), value, field) for field, value in zip(fields, most, strict=False)]
    conditions = [is_null(one) if value is None else one.eq(as_literal(value, field)) for one, value, field in pairs]
    return few, all_of(conditions)


def _is_legible(values: Iterable[object]) -> bool:
    """Return whether all values are short and printable, so that a reader can copy them from the page."""
    return all(str(one).isprintable() and len(str(one)) <= LEGIBLE for one in values)


def _plain_sql(release: Release, groups: list[exp.Expr], condition: exp.Expr | None, form: str) -> str:
    """Return SQL that asks the example question in DuckDB without privsql.

    Each release has a view whose rows carry weights, the sums of which estimate numbers of records. For a release in a
    folder, the SQL creates that view first.

    Args:
        release: The release.
        groups: The SQL expressions to group by.
        condition: The condition; None if there is none.
        form: What the release is: "file", "folder" or "schema".
    """
    manifest = release.manifest
    weight = exp.Sum(this=column(manifest.roles.by_all.column_name("weight")))
    query = exp.select(*(one.copy() for one in groups), alias_as(weight, "n"))
    view = release.mechanism.define_views(manifest)[0]
    query = query.from_(table(view.name, schema=SCHEMA if form == "schema" else None))
    query = query if condition is None else query.where(condition.copy())
    query = query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query
    if form != "folder":
        return plain_sql(query) + ";"
    read = sorted({one.name for one in view.query.find_all(exp.Table)})
    views = [view_of_parquet(one, f"{FOLDER}/{one}{ENDING}") for one in read]
    return "\n".join(plain_sql(one) + ";" for one in (*views, create_view(view.name, view.query), query))


# Report ---------------------------------------------------------------------------------------------------------------
# ``report``: one page on a release: its promises, its risks, the accuracy of its answers, and how to query it.

QUERIES, RANGES, OF_EACH = 120, 80, 40  # numbers of questions that are compared with the source
FEW = 11  # a cell with fewer records is small, as rules for tables often say
PAIRS = 40  # answers that are shown as points


def report(
    release: PathLike,
    source: SpecLike | None = None,
    *,
    to: PathLike | None = None,
    key_file: PathLike | None = None,
    **how: Unpack[RunKeywords],
) -> Report:
    """Return the report on a release, and write it as an HTML page if ``to`` is given.

    Without ``source`` the report follows from the release alone, is the same on every machine, and may be handed out
    with the release. With it the report is internal, because it shows true counts. If checks fail, the report says
    which, and nothing else.

    Args:
        release: The release.
        source: The specification of the source; or the source itself, as a table or its file.
        to: The path of the page, which ends in .html.
        key_file: The file with the key of the release. With it and the source, the checks also make the
            release again, to see whether its tables are the same. None for the ledger's key.
        **how: How the engine runs (``RunKeywords``).

    Raises:
        UsageError: The path does not end in .html, or the source has other columns.
        EngineError: A file can't be read or written, or the extra for pages is not installed.
    """
    connection = how.get("connection")
    target, page = as_target(release, connection), as_optional_path(to, "to")
    if page is not None:
        require_page_target(page)
    with options_from(how, report) as options:
        verified = check_release(target, source, key_file=key_file, options=options, connection=connection)
        if source is not None and connection is not None:
            source = spec_from_manifest(source, verified.manifest, connection)
        learnt = _gather_facts(target, source, key_file, verified, options) if verified.ok else None
        checks, notes = tuple(verified.checks), tuple(verified.notes)
        outcome = Report(verified.manifest, checks, notes, _file_digests(target), source is not None, learnt, page)
        if page is not None:
            options.report.start_step("Drawing the page")
            write_page(outcome, page)
    return outcome


def _gather_facts(
    target: Target, source: SpecLike | None, key_file: PathLike | None, verified: Verified, options: Options
) -> VerifiedFacts:
    """Return all facts for the report on a release whose checks hold.

    Args:
        target: The place of the release.
        source: The specification of the source, or the source itself, as a table or its file; None for none.
        key_file: The file with the key of the release; None for none.
        verified: The outcome of the checks.
        options: How the engine runs.
    """
    manifest, reported = verified.manifest, options.report
    with Release(target) as opened, explain_failures(target):
        mechanism, parts = opened.mechanism, tuple(opened.structure())
        expected = estimate_accuracy(opened, reported)
        how_to_ask, certain = make_snippets(opened, locate_release(target)), BASELINE in opened.answers.certain
    params, removed, population, in_small_cells = mechanism.read(manifest), list[str](), None, None
    if source is not None:
        removed, population, in_small_cells = _read_source(target, source, key_file, manifest, mechanism.shape, options)
    attacked, bounds = attack(target, source, key_file=key_file, options=options), verified.bounds
    with open_release(target) as (_, attached), explain_failures(target):
        learning = find_learning(attacked.findings)
        summary = ReleaseSummary.make(attached, bounds, learning, list_errors(expected), measured=True)
    return VerifiedFacts(
        summary,
        mechanism.promise(params),
        mechanism.words(params),
        tuple(bounds),
        parts,
        tuple(attacked.findings),
        attacked.verdict,
        mechanism.advice,
        # Parameters have a table of their own.
        tuple(one for one in describe_manifest(manifest) if one[0] != "parameters"),
        expected,
        certain,
        how_to_ask,
        tuple(note_columns(manifest, removed)),
        _compare_answers(target, source, key_file, mechanism.shape, options) if source is not None else None,
        population,
        in_small_cells,
        _predict_curve(source, options) if source is not None else None,
    )


def _read_source(
    target: Target, source: SpecLike, key_file: PathLike | None, manifest: Manifest, shape: Shape, options: Options
) -> tuple[list[str], float | None, int | None]:
    """Return figures about the source, for the report.

    Returns:
        The columns of the source that have no role; the share of records whose sensitive value is guessed right by who
        knows all other records; and the number of records in small cells. A cell is all records with equal
        quasi-identifiers and sensitive value, and is small below 11 records (``FEW``). The last two are None if the
        sensitive values are not categories.
    """
    spec, path = spec_from_manifest(source, manifest, None), as_optional_path(key_file, "key_file")
    with open_release_with_source(target, spec, manifest, options, key_file=path) as (beside, records):
        whole = ALL_RECORDS if spec.source.chooses_records else "source"
        used = {fold_name(name) for name in spec.columns.names}
        columns = [one.name for one in beside.db.list_fields(temp_table(whole))]
        removed = [name for name in columns if fold_name(name) not in used]
        if not isinstance(shape, TableShape) or shape.numeric:
            return removed, None, None
        records.sort_records()
        roles = records.roles
        keys = [column(key) for key in (*roles.qi_keys, *roles.sa_keys)]
        cells, _ = count_classes(beside.db, temp_table("records"), keys)
        small = sum(number * size for size, number in cells.items() if size < FEW)
        return removed, guess_from_others(beside.db, roles), small if roles.qi_keys else None


def _predict_curve(source: SpecLike, options: Options) -> Curve | None:
    """Predict what smaller and larger thresholds would give: an attacker's belief, and the error of counts.

    The result is None if the mechanism has no threshold, or if nothing can be predicted.
    """
    try:
        return curve(source, options=options)
    except (InfeasibleError, UsageError):
        return None


def _compare_answers(
    target: Target, source: SpecLike, key_file: PathLike | None, shape: Shape, options: Options
) -> TruthComparison:
    """Compare the release's answers to typical questions with the true answers of its source.

    If the sensitive column holds numbers, the conditions of the questions name a range of it. Otherwise they name
    values that columns equal, or items.

    Args:
        target: The place of the release.
        source: The specification of the source, or the source itself, as a table or its file.
        key_file: The file with the key of the release; None for the ledger's key.
        shape: The shape of the records, such as a table with a sensitive column, or item sets.
        options: How the engine runs.
    """
    numeric = isinstance(shape, TableShape) and shape.numeric
    number = RANGES if numeric else QUERIES if isinstance(shape, TableShape) else OF_EACH
    workload = Workload("ranges" if numeric else "equality", number, ways=1)
    evaluated = evaluate(target, source, workload, key_file=key_file, options=options)
    summaries = {name: score.summary() for name, score in evaluated.scores.items()}
    return TruthComparison(summaries, _sample_pairs(evaluated.scores[evaluated.best]), evaluated.confidence)


def _sample_pairs(score: Score) -> tuple[tuple[float, float, float | None, float | None], ...]:
    """Return about 40 answers (``PAIRS``) as (true answer, estimate, low, high), to show as points in a chart.

    They are evenly spaced in the order of the true answers, so that every size of answer occurs.
    """
    rows = [(true, of["estimate"] or 0.0, of["low"], of["high"]) for _, true, of in score.pair_answers()]
    rows.sort(key=lambda row: row[:2])
    step = max(1, -(-len(rows) // PAIRS))
    return tuple(rows[step // 2 :: step])


def _file_digests(target: Target) -> dict[str, str]:
    """Return SHA-256 digests of the release: of its file, of each file in its folder, or of each table in its schema.

    They are given by the name of the file or table.
    """
    location = locate_release(target)
    if target.schema is not None:
        return {"the tables of the schema": digest_release(target)}
    files = {file.relative_to(location.place).as_posix(): file for file in location.readable_files}
    digests = {}
    for name, file in (files or {"the file": location.place}).items():
        with file.open("rb") as read:
            digests[name] = hashlib.file_digest(read, "sha256").hexdigest()
    return digests
