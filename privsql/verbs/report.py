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
from privsql.answers.answer import OURS, THEIRS
from privsql.calls import as_path, as_paths, whole
from privsql.engine.progress import Running, Silent, report_steps, running
from privsql.engine.sqlfiles import DIALECT, column, every, is_null, named, table
from privsql.errors import GuaranteeError, UsageError
from privsql.extras import SERVING
from privsql.mechanisms.contract import Categories, Sets, Table
from privsql.mechanisms.registry import of
from privsql.pages.rendering import Compared, Foreseen, Learnt, Report, Ways
from privsql.pages.report import ready, write
from privsql.releases.contents import stored
from privsql.releases.draft import digest
from privsql.releases.opened import Release, explained
from privsql.releases.statements import lines
from privsql.source.places import address
from privsql.verbs.attack import attack
from privsql.verbs.compare import evaluate
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from privsql.answers.accuracy import Score
    from privsql.calls import PathLike
    from privsql.engine.progress import Options, Reporter
    from privsql.engine.roles import Field
    from privsql.model.manifest import Manifest
    from privsql.releases.contents import Stored
    from privsql.source.keywords import Given
    from privsql.verbs.verify import Verified

__all__ = ["Report", "report"]

# Typical questions ----------------------------------------------------------------------------------------------------
# Questions about a release from what it says of itself, as trees: typical ones, and one to show how it is asked.

COLUMNS, LOOKED = 3, 20  # by which is grouped; of the release's columns, that are looked at for them
FEW = 60  # different values of such a column at most
MOST_ANSWER_ROWS = 3_000  # of an answer at most
SETS, RANKED = 40, 800  # that are asked for, out of the most frequent ones
QUARTERS = (0.25, 0.5, 0.75)
KEYWORDS = frozenset(DuckDB.Tokenizer.KEYWORDS)
Rows = list[tuple[Any, ...]]


def questions(release: Release) -> Iterator[exp.Select]:
    """Typical questions: how many records have each value, in the groups by one column, and by two.

    What the release can't be asked for is left out.
    """
    shape = of(release.manifest.mechanism).shape
    if isinstance(shape, Sets):
        yield from _of_sets(release)
        return
    roles, shown = release.manifest.roles, frozenset(release.answers.in_bins)
    if isinstance(shape, Categories):
        names = [field.name for field in roles.sensitive if field.name not in shown][:LOOKED]
        chosen = _few(release, names)
        values: list[exp.Expr] = []
    else:
        chosen = _few(release, [field.name for field in roles.quasi_identifiers][:LOOKED])
        values = _values(release, shape)
    for names_ in dict.fromkeys((*((name,) for name in chosen[:COLUMNS]), tuple(chosen[:2]))):
        yield counted(release, [*(column(name) for name in names_), *values])


def _values(release: Release, shape: Table | Categories[Any]) -> list[exp.Expr]:
    """By what of the sensitive columns is grouped: their values, or quarters of the records where these are numbers."""
    fields = release.manifest.roles.sensitive
    if not (isinstance(shape, Table) and shape.numeric):
        return [column(field.name) for field in fields]
    own = fields[0]
    ends = quantiles(release, own)
    case = exp.Case()
    for number, end in enumerate(dict.fromkeys(ends)):
        case = case.when(exp.LT(this=column(own.name), expression=literal(end, own)), exp.Literal.number(number))
    return [case.else_(exp.Literal.number(len(ends)))] if case.args.get("ifs") else [column(own.name)]


def quantiles(release: Release, own: Field, shares: Sequence[float] = QUARTERS) -> list[Any]:
    """Values of a column of numbers below which such shares of the records lie, about."""
    rows = [row for row in asked(release, counted(release, [column(own.name)])) if None not in row[:2]]
    rows.sort(key=lambda row: row[0])
    found: list[Any] = []
    total, running = sum(row[1] for row in rows), 0.0
    for value, records, *_ in rows:
        running += records
        if len(found) < len(shares) and running > shares[len(found)] * total:
            found.append(value)
    return found


def _few(release: Release, names: Sequence[str]) -> list[str]:
    """The columns that have at least two values, and few of them, those with fewest first."""
    found = []
    for name in names:
        with suppress(UsageError):
            number = len(asked(release, counted(release, [column(name)])))
            if 1 < number <= FEW:
                found.append((number, name))
    return [name for _, name in sorted(found, key=lambda one: one[0])]


def _of_sets(release: Release) -> Iterator[exp.Select]:
    """How many records hold sets of items: frequent ones and, ever further apart, less frequent ones."""
    own = release.manifest.roles.sensitive[0]
    found = release.answers.frequent(RANKED, "reconstructed")
    for rank in sorted({round(len(found) ** (k / SETS)) - 1 for k in range(SETS + 1)}) if found else []:
        items, _ = found[rank]
        yield counted(release, [], holding(own, items)) if items else counted(release, [])


def holding(own: Field, items: Sequence[str]) -> exp.Expr:
    """The condition that a list holds some items, given as texts."""
    listed = exp.Array(expressions=[literal(item, own, own.type.removesuffix("[]")) for item in items])
    return exp.Anonymous(this="list_has_all", expressions=[column(own.name), listed])


def counted(release: Release, groups: Sequence[exp.Expr], condition: exp.Expr | None = None) -> exp.Select:
    """COUNT(*) AS n of the release, by groups; these come first."""
    number = named(exp.Count(this=exp.Star()), "n")
    query = exp.select(*(one.copy() for one in groups), number).from_(table(release.manifest.name))
    query = query if condition is None else query.where(condition)
    return query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query


def asked(release: Release, query: exp.Select, estimator: str = "reconstructed") -> Rows:
    """The rows of an answer: groups, estimate, standard error, low, high."""
    return release.query(written(query, plainly=False), estimator=estimator).rows


def literal(value: object, field: Field, kind: str | None = None) -> exp.Expr:
    """A value as a constant of a column."""
    own = kind or field.type
    if own == "VARCHAR":
        return exp.Literal.string(str(value))
    text = str(value)
    if text.removeprefix("-").isdecimal() and text.isascii():
        number = exp.Literal.number(text.removeprefix("-"))
        return exp.Neg(this=number) if text.startswith("-") else number
    return exp.cast(exp.Literal.string(text), exp.DataType.build(own, dialect=DIALECT))


def written(query: exp.Expr, *, plainly: bool = True) -> str:
    """The SQL of a query; ``plainly``: names that need no quotes have none."""
    if plainly:
        query = query.copy()
        for one in query.find_all(exp.Identifier):
            own = str(one.this)
            if own.isascii() and own.isidentifier() and own == own.lower() and own.upper() not in KEYWORDS:
                one.set("quoted", False)  # noqa: FBT003 (sqlglot's own)
    return query.sql(dialect=DIALECT)


# Expected accuracy ----------------------------------------------------------------------------------------------------
# How good a release's answers are, as far as the release itself tells: by the size of the answer.

MEAN = math.sqrt(2 / math.pi)  # E|x| of a normal x with deviation 1


def foreseen(release: Release, report: Reporter) -> tuple[Foreseen, ...]:
    """Typical questions put to the release alone, by the size of the answer.

    The expected error of an estimate with standard error s is sqrt(2/pi) s. Answers that the release holds exactly,
    and those without an interval, tell nothing here and are left out.
    """
    report.step("Asking typical questions")
    found: list[tuple[float, float, float, float | None]] = []
    for query in report_steps(report, asking := list(questions(release)), len(asking)):
        with suppress(UsageError):  # what the release can't be asked
            found += _answers(release, query)
    return tuple(_band(found, low, high) for low, high in pairwise(BANDS) if any(low <= one[0] < high for one in found))


def _answers(release: Release, query: Any) -> list[tuple[float, float, float, float | None]]:
    """(estimate, standard error, half of the interval, half of the literature's bounds) of every group."""
    ours = asked(release, query)
    if len(ours) > MOST_ANSWER_ROWS:
        return []
    theirs = {row[:-4]: _half(row) for row in asked(release, query, THEIRS)}
    return [
        (max(0.0, float(row[-4])), float(row[-3]), half, theirs.get(row[:-4]))
        for row in ours
        if row[-4] is not None and row[-3] and (half := _half(row)) is not None
    ]


def _half(row: Sequence[Any]) -> float | None:
    low, high = row[-2:]
    return None if low is None or high is None else (float(high) - float(low)) / 2


def _band(found: Sequence[tuple[float, float, float, float | None]], low: float, high: float) -> Foreseen:
    own = [one for one in found if low <= one[0] < high]
    bounds = [one[3] for one in own if one[3] is not None]
    return Foreseen(
        low,
        None if math.isinf(high) else high,
        len(own),
        MEAN * median(one[1] for one in own),
        median(one[2] for one in own),
        median(bounds) if bounds else None,
        median(one[0] for one in own),
    )


# Snippets to copy -----------------------------------------------------------------------------------------------------
# How a release is asked, in lines to copy: in a shell, in Python, and in DuckDB without privsql.

FILE, FOLDER, SCHEMA = "release.duckdb", "release", "released"  # how the release is called in the lines
LEGIBLE = 100  # characters of a value
QUOTING = frozenset('"$`\\!')  # what a double-quoted text of a shell changes


def ways(release: Release, found: Stored) -> Ways:
    """The lines for one question, which the release can be asked."""
    name, form = FILE, "file"
    if found.is_folder:
        name, form = FOLDER, "folder"
    elif found.schema is not None:
        name, form = str(address(Path(FILE), SCHEMA)), "schema"
    groups, condition = _question(release)
    query = written(counted(release, groups, condition))
    quoted = shlex.quote(query) if QUOTING & set(query) else f'"{query}"'
    python = f"import privsql\n\nrelease = privsql.open({name!r})\nrelease.sql({query!r})"
    return Ways(form, name, f"privsql query {name} {quoted}", python, _plain(release, groups, condition, form))


def _question(release: Release) -> tuple[list[exp.Expr], exp.Expr | None]:
    """How many records have the most frequent value, or the larger half of numbers, by a column; or frequent items."""
    roles, mechanism = release.manifest.roles, of(release.manifest.mechanism)
    if isinstance(mechanism.shape, Sets):
        frequent = release.answers.frequent(20, "reconstructed")
        found = next((items for items, _ in frequent if items and _legible(items)), None)
        return [], holding(roles.sensitive[0], found) if found else None
    fields = roles.sensitive if roles.quasi_identifiers else roles.sensitive[:1]
    others = roles.quasi_identifiers or roles.sensitive[1:]
    legible = [field.name for field in others if _legible([field.name])]
    few: list[exp.Expr] = [column(name) for name in legible[:1]]
    if (
        isinstance(mechanism.shape, Table)
        and mechanism.shape.numeric
        and (middle := quantiles(release, fields[0], [0.5]))
    ):
        return few, exp.GTE(this=column(fields[0].name), expression=literal(middle[0], fields[0]))
    rows = asked(release, counted(release, [column(field.name) for field in fields]))
    shown = (row for row in rows if _legible(row[: len(fields)]))
    most = max(shown, key=lambda row: row[len(fields)] or 0, default=None)
    if most is None:
        return few, None
    own = [_equals(column(field.name), value, field) for field, value in zip(fields, most, strict=False)]
    return few, every(own)


def _legible(values: Iterable[object]) -> bool:
    """Whether values can be copied from a page, on which what can't be printed is replaced."""
    return all(str(one).isprintable() and len(str(one)) <= LEGIBLE for one in values)


def _equals(left: exp.Expr, value: object, field: Field) -> exp.Expr:
    return is_null(left) if value is None else exp.EQ(this=left, expression=literal(value, field))


def _plain(release: Release, groups: list[exp.Expr], condition: exp.Expr | None, form: str) -> str:
    """The same for DuckDB itself: the release's view has a weight; files of a folder are put together to it first."""
    manifest = release.manifest
    mechanism = of(manifest.mechanism)
    weight = exp.Sum(this=column(manifest.roles.by_all.called("weight")))
    query = exp.select(*(one.copy() for one in groups), named(weight, "n"))
    query = query.from_(table(manifest.name, schema=SCHEMA if form == "schema" else None))
    query = query if condition is None else query.where(condition.copy())
    query = query.group_by(*(exp.Literal.number(at + 1) for at in range(len(groups)))) if groups else query
    if form != "folder":
        return written(query) + ";"
    view = mechanism.view(manifest)
    read = sorted({one.name for one in view.find_all(exp.Table)})
    made = [_view(one, exp.select("*").from_(_file(one))) for one in read]
    return "\n".join(written(one) + ";" for one in (*made, _view(manifest.name, view), query))


def _file(name: str) -> exp.Expr:
    return exp.Anonymous(this="read_parquet", expressions=[exp.Literal.string(f"{FOLDER}/{name}.parquet")])


def _view(name: str, query: exp.Query) -> exp.Create:
    return exp.Create(this=table(name), kind="VIEW", expression=query)


# Report ---------------------------------------------------------------------------------------------------------------
# ``report``: one page on a release: what it promises, who could learn what, how good its answers are, how to ask.

QUERIES, RANGES, OF_EACH = 120, 80, 40  # that the source is asked, too: with four answers each, one, by class
PAIRS = 40  # answers that are shown singly


def report(
    release: PathLike,
    source: Given | None = None,
    *,
    to: PathLike | None = None,
    key_file: PathLike | None = None,
    **how: Unpack[Running],
) -> Report:
    """All that can be said of a release to whoever gets it, and with ``to`` a page of HTML that says it.

    Without ``source`` it follows from the release alone, is the same whoever makes it, and may be handed out with it.
    With the source (``source`` and ``key_file`` as of ``verify``) it is internal: it shows true counts. Checks that do
    not hold are part of what it returns, and nothing else is said of such a release. Raises ``UsageError`` for a page
    that does not end in .html and for a source of other columns, ``EngineError`` for files that can't be read or
    written, and where what makes pages
    pages is not installed.
    """
    path, target = as_path(release, "release"), as_path(to, "to") if to is not None else None
    if target is not None:
        ready(target)
    with running(how, report) as options:
        verified = verify(path, source, key_file=key_file, options=options)
        learnt = _learnt(path, source, key_file, verified, options) if verified.ok else None
        checks, notes = tuple(verified.checks), tuple(verified.notes)
        found = Report(verified.manifest, checks, notes, _digests(path), source is not None, learnt)
        if target is not None:
            (options.report or Silent()).step("Drawing the page")
            write(found, target)
    return found


def _learnt(path: Path, source: Given | None, own: PathLike | None, verified: Verified, options: Options) -> Learnt:
    """What is known of a release whose checks hold."""
    manifest, reported = verified.manifest, options.report or Silent()
    mechanism = of(manifest.mechanism)
    asked = mechanism.read(manifest)
    with Release(path) as opened, explained(path):
        parts = tuple(opened.structure())
        expected = foreseen(opened, reported)
        how_to_ask, certain = ways(opened, stored(path)), THEIRS in opened.answers.certain
    reported.step("Attacking the release")
    attacked = attack(path, source, key_file=own, options=options)
    return Learnt(
        mechanism.promise(asked),
        mechanism.words(asked),
        tuple(verified.told.bounds) if verified.told is not None else (),
        parts,
        tuple(attacked.findings),
        attacked.verdict,
        mechanism.advice,
        tuple(lines(manifest)),
        expected,
        certain,
        how_to_ask,
        _compared(path, source, own, manifest, options) if source is not None else None,
    )


def _compared(path: Path, source: Given, own: PathLike | None, manifest: Manifest, options: Options) -> Compared:
    """The release's answers beside those of its source; numbers are asked for in ranges."""
    shape = of(manifest.mechanism).shape
    numeric = isinstance(shape, Table) and shape.numeric
    number = RANGES if numeric else QUERIES if isinstance(shape, Table) else OF_EACH
    asked = Workload("ranges" if numeric else "equality", number, ways=1)
    found = evaluate(path, source, asked, key_file=own, options=options)
    summaries = {name: score.summary() for name, score in found.scores.items()}
    return Compared(summaries, _pairs(found.scores[OURS]), found.confidence)


def _pairs(score: Score) -> tuple[tuple[float, float, float | None, float | None], ...]:
    """Some answers singly, of every size: true ones in order, every k-th."""
    rows = [(true, of["estimate"] or 0.0, of["low"], of["high"]) for _, true, of in score.points()]
    rows.sort(key=lambda row: row[:2])
    step = max(1, -(-len(rows) // PAIRS))
    return tuple(rows[step // 2 :: step])


def _digests(path: Path) -> dict[str, str]:
    """SHA-256 of the release's file, of the files of its folder by name, or of the tables of its schema."""
    found = stored(path)
    if found.schema is not None:
        return {"the tables of the schema": digest(path)}
    files = {file.relative_to(found.place).as_posix(): file for file in found.readable}
    digests = {}
    for name, file in (files or {"the file": found.place}).items():
        with file.open("rb") as read:
            digests[name] = hashlib.file_digest(read, "sha256").hexdigest()
    return digests


# Serve ----------------------------------------------------------------------------------------------------------------
# A page to ask releases at: for people who write no SQL.

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
    **how: Unpack[Running],
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
    SERVING.need()
    from privsql.serving import server  # noqa: PLC0415 (an extra)
    from privsql.serving.guard import opened  # noqa: PLC0415 (takes long to import)

    paths, files = as_paths(releases, "release"), as_paths(attach, "attach")
    manners = server.Manners(
        whole(at_once, "at_once", most=MOST_AT_ONCE),
        whole(timeout, "timeout", most=LONGEST),
        whole(rows, "rows", most=MOST_ROWS),
    )
    hosts = (allow_host,) if isinstance(allow_host, str) else tuple(allow_host)

    def begun(address: str) -> None:
        (started or _said)(address)
        if open:
            webbrowser.open(address)

    with running(how, serve) as options:
        if verify:
            _verified(paths, options)
        with opened(paths, files, options) as served:
            place = server.door(host, whole(port, "port", least=0, most=65_535), token=token, hosts=hosts)
            with place.socket:
                if open and place.token is not None:
                    raise UsageError(
                        "--open would show the token to whoever lists processes; open the address yourself"
                    )
                server.run(served, place, manners, begun, verified=verify)


def _said(address: str) -> None:
    sys.stdout.write(f"serving at {address} (Ctrl-C ends it)\n")
    sys.stdout.flush()


def _verified(paths: Sequence[Path], options: Options) -> None:
    for path in paths:
        if not verify(path, options=options).ok:
            raise GuaranteeError(f"{path}: does not hold what it promises; privsql verify tells more")
