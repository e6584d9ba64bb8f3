"""``report`` writes one page on a release; ``serve`` runs the local page to query releases."""

from __future__ import annotations

import hashlib
import math
import shlex
import sys
import webbrowser
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Unpack

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from privsql.answers.accuracy import BANDS, Workload
from privsql.answers.answer import BASELINE, BEST
from privsql.calls import as_optional_path, as_paths, as_whole_number
from privsql.engine.progress import RunKeywords, SilentReporter, options_from, report_steps
from privsql.engine.sqlfiles import DIALECT, alias_as, all_of, column, is_null, table
from privsql.errors import GuaranteeError, UsageError
from privsql.extras import SERVING
from privsql.mechanisms.contract import CategoricalShape, ItemSetShape, TableShape
from privsql.pages.rendering import ExpectedAccuracy, Report, TruthComparison, UsageSnippets, VerifiedFacts
from privsql.pages.report import require_page_target, write_page
from privsql.releases.contents import ENDING, create_view, locate_release, view_of_parquet
from privsql.releases.draft import digest_release
from privsql.releases.opened import Release, explain_failures
from privsql.releases.statements import describe_manifest
from privsql.source.places import Target, as_target
from privsql.verbs.attack import attack
from privsql.verbs.compare import evaluate
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from privsql.answers.accuracy import Score
    from privsql.calls import PathLike
    from privsql.engine.progress import Options, Reporter
    from privsql.engine.roles import Field
    from privsql.mechanisms.contract import Shape
    from privsql.releases.contents import StoredRelease
    from privsql.source.keywords import SpecLike
    from privsql.verbs.verify import Verified

__all__ = ["Report", "report"]

# Typical questions ----------------------------------------------------------------------------------------------------
# Typical questions about a release, as syntax trees, and an example that shows how to query it.

COLUMNS, LOOKED = 3, 20  # by which is grouped; of the release's columns, that are looked at for them
FEW = 60  # different values of such a column at most
MOST_ANSWER_ROWS = 3_000  # of an answer at most
SETS, RANKED = 40, 800  # that are asked for, out of the most frequent ones
QUARTERS = (0.25, 0.5, 0.75)
KEYWORDS = frozenset(DuckDB.Tokenizer.KEYWORDS)
Rows = list[tuple[Any, ...]]


def list_questions(release: Release) -> Iterator[exp.Select]:
    """Typical questions: how many records have each value, in the groups by one column, and by two.

    What the release can't be asked for is left out.
    """
    shape = release.mechanism.shape
    if isinstance(shape, ItemSetShape):
        yield from _list_set_questions(release)
        return
    roles, binned = release.manifest.roles, frozenset(release.answers.in_bins)
    if isinstance(shape, CategoricalShape):
        names = [field.name for field in roles.sensitive if field.name not in binned][:LOOKED]
        chosen = _list_few_valued(release, names)
        values: list[exp.Expr] = []
    else:
        chosen = _list_few_valued(release, [field.name for field in roles.quasi_identifiers][:LOOKED])
        values = _group_values(release, shape)
    for names_ in dict.fromkeys((*((name,) for name in chosen[:COLUMNS]), tuple(chosen[:2]))):
        yield build_count_query(release, [*(column(name) for name in names_), *values])


def _group_values(release: Release, shape: TableShape | CategoricalShape[Any]) -> list[exp.Expr]:
    """Return the groups by sensitive columns: their values, or quarters of the records for numbers."""
    fields = release.manifest.roles.sensitive
    if not (isinstance(shape, TableShape) and shape.numeric):
        return [column(field.name) for field in fields]
    sensitive = fields[0]
    ends = find_quantiles(release, sensitive)
    case = exp.Case()
    for number, end in enumerate(dict.fromkeys(ends)):
        below = exp.LT(this=column(sensitive.name), expression=as_literal(end, sensitive))
        case = case.when(below, exp.Literal.number(number))
    return [case.else_(exp.Literal.number(len(ends)))] if case.args.get("ifs") else [column(sensitive.name)]


def find_quantiles(release: Release, field: Field, shares: Sequence[float] = QUARTERS) -> list[Any]:
    """Values of a column of numbers below which such shares of the records lie, about."""
    every = ask_release(release, build_count_query(release, [column(field.name)]))
    rows = sorted((row for row in every if None not in row[:2]), key=lambda row: row[0])
    ends: list[Any] = []
    total, running = sum(row[1] for row in rows), 0.0
    for value, records, *_ in rows:
        running += records
        if len(ends) < len(shares) and running > shares[len(ends)] * total:
            ends.append(value)
    return ends


def _list_few_valued(release: Release, names: Sequence[str]) -> list[str]:
    """Return the columns that have at least two values, and few of them, those with fewest first."""
    counts = []
    for name in names:
        with suppress(UsageError):
            number = len(ask_release(release, build_count_query(release, [column(name)])))
            if 1 < number <= FEW:
                counts.append((number, name))
    return [name for _, name in sorted(counts, key=lambda one: one[0])]


def _list_set_questions(release: Release) -> Iterator[exp.Select]:
    """Yield how many records hold sets of items: frequent ones and, ever further apart, less frequent ones."""
    field = release.manifest.roles.sensitive[0]
    frequent = release.answers.list_frequent(RANKED, release.answers.estimators[0])
    for rank in sorted({round(len(frequent) ** (k / SETS)) - 1 for k in range(SETS + 1)}) if frequent else []:
        items, _ = frequent[rank]
        yield build_count_query(release, [], items_condition(field, items)) if items else build_count_query(release, [])


def items_condition(field: Field, items: Sequence[str]) -> exp.Expr:
    """Return the condition that a list holds some items, given as texts."""
    listed = exp.Array(expressions=[as_literal(item, field, field.type.removesuffix("[]")) for item in items])
    return exp.Anonymous(this="list_has_all", expressions=[column(field.name), listed])


def build_count_query(release: Release, groups: Sequence[exp.Expr], condition: exp.Expr | None = None) -> exp.Select:
    """COUNT(*) AS n of the release, by groups; these come first."""
    number = alias_as(exp.Count(this=exp.Star()), "n")
    query = exp.select(*(one.copy() for one in groups), number).from_(table(release.manifest.name))
    query = query if condition is None else query.where(condition)
    return query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query


def ask_release(release: Release, query: exp.Select, estimator: str = BEST) -> Rows:
    """Return the rows of an answer: groups, estimate, standard error, low, high."""
    return release.query(as_sql(query, plainly=False), estimator=estimator).rows


def as_literal(value: object, field: Field, kind: str | None = None) -> exp.Expr:
    """Return a value as a constant of a column."""
    sql_type = kind or field.type
    if sql_type == "VARCHAR":
        return exp.Literal.string(str(value))
    text = str(value)
    if text.removeprefix("-").isdecimal() and text.isascii():
        number = exp.Literal.number(text.removeprefix("-"))
        return exp.Neg(this=number) if text.startswith("-") else number
    return exp.cast(exp.Literal.string(text), exp.DataType.build(sql_type, dialect=DIALECT))


def as_sql(query: exp.Expr, *, plainly: bool = True) -> str:
    """Return the SQL of a query; ``plainly``: names that need no quotes have none."""
    if plainly:
        query = query.copy()
        for one in query.find_all(exp.Identifier):
            name = str(one.this)
            if name.isascii() and name.isidentifier() and name == name.lower() and name.upper() not in KEYWORDS:
                one.set("quoted", False)  # noqa: FBT003 (sqlglot's own)
    return query.sql(dialect=DIALECT)


# Expected accuracy ----------------------------------------------------------------------------------------------------
# The expected accuracy of a release's answers by their size, from the release alone.

MEAN = math.sqrt(2 / math.pi)  # E|x| of a normal x with deviation 1


def estimate_accuracy(release: Release, report: Reporter) -> tuple[ExpectedAccuracy, ...]:
    """Typical questions put to the release alone, by the size of the answer.

    The expected error of an estimate with standard error s is sqrt(2/pi) s. Answers that the release holds exactly,
    and those without an interval, tell nothing here and are left out.
    """
    report.start_step("Asking typical questions")
    answers: list[tuple[float, float, float, float | None]] = []
    for query in report_steps(report, asking := list(list_questions(release)), len(asking)):
        with suppress(UsageError):  # what the release can't be asked
            answers += _answer_groups(release, query)
    return tuple(
        _summarize_band(answers, low, high)
        for low, high in pairwise(BANDS)
        if any(low <= one[0] < high for one in answers)
    )


def _answer_groups(release: Release, query: Any) -> list[tuple[float, float, float, float | None]]:
    """Return (estimate, standard error, half interval, half of the literature's bounds) of every group."""
    ours = ask_release(release, query)
    if len(ours) > MOST_ANSWER_ROWS:
        return []
    theirs = {row[:-4]: _half_width(row) for row in ask_release(release, query, BASELINE)}
    return [
        (max(0.0, float(row[-4])), float(row[-3]), half, theirs.get(row[:-4]))
        for row in ours
        if row[-4] is not None and row[-3] and (half := _half_width(row)) is not None
    ]


def _half_width(row: Sequence[Any]) -> float | None:
    low, high = row[-2:]
    return None if low is None or high is None else (float(high) - float(low)) / 2


def _summarize_band(
    answers: Sequence[tuple[float, float, float, float | None]], low: float, high: float
) -> ExpectedAccuracy:
    inside = [one for one in answers if low <= one[0] < high]
    bounds = [one[3] for one in inside if one[3] is not None]
    return ExpectedAccuracy(
        low,
        None if math.isinf(high) else high,
        len(inside),
        MEAN * median(one[1] for one in inside),
        median(one[2] for one in inside),
        median(bounds) if bounds else None,
        median(one[0] for one in inside),
    )


# Snippets to copy -----------------------------------------------------------------------------------------------------
# Lines to copy that query a release: in a shell, in Python, and in DuckDB without privsql.

FILE, FOLDER, SCHEMA = "release.duckdb", "release", "released"  # how the release is called in the lines
LEGIBLE = 100  # characters of a value
QUOTING = frozenset('"$`\\!')  # what a double-quoted text of a shell changes


def make_snippets(release: Release, location: StoredRelease) -> UsageSnippets:
    """Return the lines for one question that the release can answer."""
    name, form = FILE, "file"
    if location.is_folder:
        name, form = FOLDER, "folder"
    elif location.target.schema is not None:
        name, form = str(Target(Path(FILE), SCHEMA)), "schema"
    groups, condition = _example_question(release)
    query = as_sql(build_count_query(release, groups, condition))
    quoted = shlex.quote(query) if QUOTING & set(query) else f'"{query}"'
    python = f"import privsql\n\nrelease = privsql.open({name!r})\nrelease.sql({query!r})"
    plain = _plain_sql(release, groups, condition, form)
    return UsageSnippets(form, name, f"privsql query {name} {quoted}", python, plain)


def _example_question(release: Release) -> tuple[list[exp.Expr], exp.Expr | None]:
    """Return a question on the most frequent value by a column, the larger half of numbers, or frequent items."""
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
    conditions = [_equals_value(column(field.name), value, field) for field, value in zip(fields, most, strict=False)]
    return few, all_of(conditions)


def _is_legible(values: Iterable[object]) -> bool:
    """Return whether values can be copied from a page, on which what can't be printed is replaced."""
    return all(str(one).isprintable() and len(str(one)) <= LEGIBLE for one in values)


def _equals_value(left: exp.Expr, value: object, field: Field) -> exp.Expr:
    return is_null(left) if value is None else exp.EQ(this=left, expression=as_literal(value, field))


def _plain_sql(release: Release, groups: list[exp.Expr], condition: exp.Expr | None, form: str) -> str:
    """Return SQL for DuckDB alone, which sums the weight of the release's view; of a folder it makes the view."""
    manifest = release.manifest
    weight = exp.Sum(this=column(manifest.roles.by_all.column_name("weight")))
    query = exp.select(*(one.copy() for one in groups), alias_as(weight, "n"))
    view = release.mechanism.define_views(manifest)[0]
    query = query.from_(table(view.name, schema=SCHEMA if form == "schema" else None))
    query = query if condition is None else query.where(condition.copy())
    query = query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query
    if form != "folder":
        return as_sql(query) + ";"
    read = sorted({one.name for one in view.query.find_all(exp.Table)})
    views = [view_of_parquet(one, f"{FOLDER}/{one}{ENDING}") for one in read]
    return "\n".join(as_sql(one) + ";" for one in (*views, create_view(view.name, view.query), query))


# Report ---------------------------------------------------------------------------------------------------------------
# ``report``: one page on a release: its promises, its risks, the accuracy of its answers, and how to query it.

QUERIES, RANGES, OF_EACH = 120, 80, 40  # that the source is asked, too: with four answers each, one, by class
PAIRS = 40  # answers that are shown singly


def report(
    release: PathLike,
    source: SpecLike | None = None,
    *,
    to: PathLike | None = None,
    key_file: PathLike | None = None,
    **how: Unpack[RunKeywords],
) -> Report:
    """Return the report on a release, and with ``to`` write it as a page of HTML.

    Without ``source`` it follows from the release alone, is the same whoever makes it, and may be handed out with it.
    With the source (``source`` and ``key_file`` as of ``verify``) it is internal: it shows true counts. Checks that do
    not hold are part of what it returns, and nothing else is said of such a release. Raises ``UsageError`` for a page
    that does not end in .html and for a source of other columns, ``EngineError`` for files that can't be read or
    written, and where the extra for pages is not installed.
    """
    target, page = as_target(release), as_optional_path(to, "to")
    if page is not None:
        require_page_target(page)
    with options_from(how, report) as options:
        verified = verify(target, source, key_file=key_file, options=options)
        learnt = _gather_facts(target, source, key_file, verified, options) if verified.ok else None
        checks, notes = tuple(verified.checks), tuple(verified.notes)
        outcome = Report(verified.manifest, checks, notes, _file_digests(target), source is not None, learnt)
        if page is not None:
            (options.report or SilentReporter()).start_step("Drawing the page")
            write_page(outcome, page)
    return outcome


def _gather_facts(
    target: Target, source: SpecLike | None, key_file: PathLike | None, verified: Verified, options: Options
) -> VerifiedFacts:
    """Return what is known of a release whose checks hold."""
    manifest, reported = verified.manifest, options.report or SilentReporter()
    with Release(target) as opened, explain_failures(target):
        mechanism, parts = opened.mechanism, tuple(opened.structure())
        expected = estimate_accuracy(opened, reported)
        how_to_ask, certain = make_snippets(opened, locate_release(target)), BASELINE in opened.answers.certain
    params = mechanism.read(manifest)
    reported.start_step("Attacking the release")
    attacked = attack(target, source, key_file=key_file, options=options)
    return VerifiedFacts(
        mechanism.promise(params),
        mechanism.words(params),
        tuple(verified.recomputed.bounds) if verified.recomputed is not None else (),
        parts,
        tuple(attacked.findings),
        attacked.verdict,
        mechanism.advice,
        tuple(describe_manifest(manifest)),
        expected,
        certain,
        how_to_ask,
        _compare_answers(target, source, key_file, mechanism.shape, options) if source is not None else None,
    )


def _compare_answers(
    target: Target, source: SpecLike, key_file: PathLike | None, shape: Shape, options: Options
) -> TruthComparison:
    """Compare the release's answers with those of its source; questions on numbers are about ranges."""
    numeric = isinstance(shape, TableShape) and shape.numeric
    number = RANGES if numeric else QUERIES if isinstance(shape, TableShape) else OF_EACH
    workload = Workload("ranges" if numeric else "equality", number, ways=1)
    evaluated = evaluate(target, source, workload, key_file=key_file, options=options)
    summaries = {name: score.summary() for name, score in evaluated.scores.items()}
    return TruthComparison(summaries, _sample_pairs(evaluated.scores[evaluated.best]), evaluated.confidence)


def _sample_pairs(score: Score) -> tuple[tuple[float, float, float | None, float | None], ...]:
    """Return some answers singly, of every size: true ones in order, every k-th."""
    rows = [(true, of["estimate"] or 0.0, of["low"], of["high"]) for _, true, of in score.pair_answers()]
    rows.sort(key=lambda row: row[:2])
    step = max(1, -(-len(rows) // PAIRS))
    return tuple(rows[step // 2 :: step])


def _file_digests(target: Target) -> dict[str, str]:
    """Return SHA-256 of the release's file, of the files of its folder by name, or of the tables of its schema."""
    location = locate_release(target)
    if target.schema is not None:
        return {"the tables of the schema": digest_release(target)}
    files = {file.relative_to(location.place).as_posix(): file for file in location.readable_files}
    digests = {}
    for name, file in (files or {"the file": location.place}).items():
        with file.open("rb") as read:
            digests[name] = hashlib.file_digest(read, "sha256").hexdigest()
    return digests


# Serve ----------------------------------------------------------------------------------------------------------------
# ``serve``: a local page on which to query releases without SQL.

LONGEST, MOST_ROWS, MOST_AT_ONCE = 3_600, 1_000_000, 64
PORT, SECONDS, PAGE_ROWS, AT_ONCE = 8317, 30, 20_000, 2


def serve(  # noqa: PLR0913 (a keyword for every flag)
    releases: Sequence[PathLike] | PathLike,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: bool = False,
    allow_host: Sequence[str] | str = (),
    attach: Sequence[PathLike] | PathLike = (),
    timeout: int = SECONDS,
    rows: int = PAGE_ROWS,
    at_once: int = AT_ONCE,
    verify: bool = False,
    open: bool = False,  # noqa: A002 (as the flag is called)
    started: Callable[[str], None] | None = None,
    **how: Unpack[RunKeywords],
) -> None:
    """Serve a page to ask one or several releases at, until Ctrl-C.

    ``host``: this machine alone by default; at another address whoever asks needs a token, which stands in the address
    that ``started`` is called with (by default it is printed) once the page is there. ``token``: one is needed here,
    too; ``port`` 0: a free one; ``allow_host``: names under which browsers know the machine; ``attach``: files whose
    tables may be joined; ``timeout``: seconds of the engine's for a question; ``rows``: that an answer may have;
    ``at_once``: questions; ``verify``: check every release before, ``GuaranteeError`` for one that does not hold;
    ``open``: show it in a browser, which goes without a token alone. ``EngineError`` where the extra
    ``privsql[serve]`` is missing or the port is taken.
    """
    SERVING.require_installed()
    from privsql.serving import server  # noqa: PLC0415 (an extra)
    from privsql.serving.guard import QueryQueue, open_pools  # noqa: PLC0415 (takes long to import)

    paths, files = as_paths(releases, "release"), as_paths(attach, "attach")
    queue = QueryQueue(
        as_whole_number(at_once, "at_once", most=MOST_AT_ONCE),
        as_whole_number(timeout, "timeout", most=LONGEST),
        as_whole_number(rows, "rows", most=MOST_ROWS),
    )
    hosts = (allow_host,) if isinstance(allow_host, str) else tuple(allow_host)

    def begun(address: str) -> None:
        (started or _print_address)(address)
        if open:
            webbrowser.open(address)

    with options_from(how, serve) as options:
        if verify:
            _require_verified(paths, options)
        with open_pools(paths, files, options) as served:
            listener = server.open_listener(
                host, as_whole_number(port, "port", least=0, most=65_535), token=token, hosts=hosts
            )
            with listener.socket:
                if open and listener.token is not None:
                    raise UsageError(
                        "--open would show the token to whoever lists processes; open the address yourself"
                    )
                server.run_server(served, listener, queue, begun, verified=verify)


def _print_address(address: str) -> None:
    sys.stdout.write(f"serving at {address} (Ctrl-C ends it)\n")
    sys.stdout.flush()


def _require_verified(paths: Sequence[Path], options: Options) -> None:
    for path in paths:
        if not verify(path, options=options).ok:
            raise GuaranteeError(f"{path}: does not hold what it promises; privsql verify tells more")
