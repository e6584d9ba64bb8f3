"""``init`` proposes a specification; ``itemsets`` and ``ledger`` list what a release and the ledger hold."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from pydantic import ValidationError

from privsql.calls import as_path, number, whole
from privsql.engine.files import is_files, scheme, temporary
from privsql.engine.open import scratch, tables
from privsql.engine.progress import Silent, running
from privsql.engine.sqlfiles import temp
from privsql.errors import UsageError
from privsql.exact import text
from privsql.mechanisms.contract import Budget, Profiled
from privsql.mechanisms.registry import DEFAULT, of
from privsql.releases.draft import digest, exists
from privsql.releases.ledger.book import open_for_reading, open_for_writing, spent, write_events
from privsql.releases.ledger.composition import require_names
from privsql.releases.ledger.keeping import needed
from privsql.releases.opened import Release, explained
from privsql.source.keywords import specified
from privsql.source.places import Source, as_frame, is_table, resolved
from privsql.source.profile import choose
from privsql.source.records import known_as
from privsql.source.spec import Columns
from privsql.source.table import mount_persons, prepare
from privsql.verbs.session import workshop_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from decimal import Decimal
    from fractions import Fraction
    from typing import Unpack

    from tomlkit.items import Table

    from privsql.calls import PathLike
    from privsql.engine.progress import Options, Running
    from privsql.mechanisms.contract import Mechanism, Proposal
    from privsql.releases.ledger.book import Book, Entry
    from privsql.source.keywords import ArrowStream, Given
    from privsql.source.profile import Chosen
    from privsql.source.spec import Spec

# Init -----------------------------------------------------------------------------------------------------------------
# ``init``: look at a source and propose a specification that can be published.


def init(
    source: PathLike | ArrowStream,
    *,
    table: str | None = None,
    sensitive: str | None = None,
    categorical: bool = False,
    kind: str = DEFAULT,
    base: PathLike | None = None,
    **how: Unpack[Running],
) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and feasible parameters.

    ``source``: a file, or a table in Python, which the text can't name: ``privsql.load(path, source=table)`` reads it
    once it is saved. ``categorical``: sensitive numbers are codes of categories. ``base``: the folder where the
    specification will lie, from which its paths are taken; else they are absolute. Raises ``UsageError`` if no columns
    can have the roles that the mechanism needs, or the sensitive values are no categories, ``EngineError`` for files
    that can't be read, ``InfeasibleError`` where nothing can be published.
    """
    wanted = of(kind), sensitive, categorical
    with running(how, init) as options:
        if is_table(source):
            return _proposed("the table", Source(frame=as_frame(source)), {}, wanted, options)
        if not isinstance(source, str | os.PathLike):
            raise UsageError(f"{type(source).__name__} is neither a path nor a table")
        name = os.fspath(source)
        files = table is None and is_files(name)
        if not files and table is None:
            table = _only_table(Path(name))
        place = _written(name, as_path(base, "base") if base is not None else None)
        given = {("file" if files else "database"): place, **({} if files else {"table": table})}
        found = _source({"file": name} if files else {"database": name, "table": table})
        return _proposed(name, found, given, wanted, options)


def _proposed(
    called: str,
    source: Source,
    given: dict[str, Any],
    wanted: tuple[Mechanism[Any], str | None, bool],
    options: Options,
) -> str:
    mechanism, sensitive, categorical = wanted
    with temporary() as folder:
        with workshop_in(folder, options) as db:
            mount_persons(db, source)
            try:
                chosen = choose(db, temp("source"), mechanism, (sensitive, categorical), options.report or Silent())
            except UsageError as error:
                raise UsageError(f"{called}: {error}") from error
        with workshop_in(folder, options) as db:
            columns = Columns.model_validate(chosen.columns)
            proposed = mechanism.propose(db, Profiled(chosen.profiles, lambda: prepare(db, source, columns)))
    return _document(given, chosen, proposed, reduced=isinstance(mechanism.composition, Budget))


def _source(given: dict[str, Any]) -> Source:
    try:
        return Source.model_validate(given)
    except ValidationError as error:
        raise UsageError(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from error


def _written(name: str, base: Path | None) -> str:
    """A path as a specification in folder ``base`` has it."""
    if scheme(name):
        return name
    place = Path(name).absolute()
    return (place if base is None else Path(os.path.relpath(place, base))).as_posix()


def _document(source: dict[str, Any], chosen: Chosen, proposed: Proposal, *, reduced: bool) -> str:
    """The text; ``reduced``: of persons with several records only one can be published, so there is no choice."""
    document = tomlkit.document()
    first = "Proposed by privsql init. Check the roles: what could be known of a person is a quasi-identifier."
    head = (first, "", *chosen.remarks) if chosen.remarks else ("Proposed by privsql init.",)
    for line in (*head, *proposed.remarks):
        document.add(tomlkit.comment(line))
    if place := _describe_source(source, chosen, reduced=reduced):
        document["source"] = place
    document["columns"] = _without(chosen.columns, proposed.left_out)
    document["mechanism"] = proposed.parameters
    return tomlkit.dumps(document)


def _describe_source(source: dict[str, Any], chosen: Chosen, *, reduced: bool) -> Table:
    """Return the table ``[source]``; what becomes of persons with several records is left open, or the only choice."""
    found = tomlkit.table()
    found.update({**source, **({"id": chosen.id} if chosen.id else {})})
    if chosen.person is not None:
        found["person"] = chosen.person
        if reduced:
            found["persons"] = "one"
        else:
            found.add(tomlkit.comment("Some persons have several records. Choose one of each, or all with 'count':"))
            found.add(tomlkit.comment('persons = "one"'))
    return found


def _without(columns: dict[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """The roles of columns, without some of them: wherever they are named, and what would then hold nothing."""
    if not left_out:
        return columns
    kept: dict[str, Any] = {}
    for role, named in columns.items():
        if isinstance(named, dict):
            kept[role] = {name: how for name, how in named.items() if name not in left_out}
        else:
            kept[role] = [name for name in named if name not in left_out] if isinstance(named, list) else named
    return {role: named for role, named in kept.items() if named}


def _only_table(path: Path) -> str:
    names = tables(path)
    if len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'no table'}; choose one with --table")
    return names[0]


# Itemsets -------------------------------------------------------------------------------------------------------------
# ``itemsets``: the most frequent item sets of a release, and synthetic records.


def itemsets(release: PathLike, *, top: int = 20, estimator: str = "reconstructed") -> list[tuple[list[str], float]]:
    """The ``top`` most frequent item sets of a release, each with its estimated number of records.

    Raises ``UsageError`` for a release of another kind.
    """
    top = whole(top, "--top")
    path = as_path(release, "release")
    with Release(path) as found, explained(path):
        return found.answers.frequent(top, estimator)


def synthesize(release: PathLike, to: PathLike) -> int:
    """Write synthetic records that give about a release's estimates, as Parquet; how many rows.

    Of item sets a row is (record, item), of a table it has the table's columns.

    They are made from the release alone. Raises ``UsageError`` for a release of another kind, or if ``to`` exists.
    """
    path, file = as_path(release, "release"), as_path(to, "to")
    if file.suffix != ".parquet" or file.exists():
        raise UsageError(f"{file}: synthetic records need a new file that ends in .parquet")
    with Release(path) as found, explained(path), scratch() as db:
        made = found.answers.synthetic()
        db.put("synthetic", made)
        db.export(temp("synthetic"), file)
        return int(made.num_rows)


# Ledger ---------------------------------------------------------------------------------------------------------------
# ``ledger``: what the publisher's ledger holds, which releases never left the house, and what a source may spend.


@dataclass(frozen=True)
class Listed:
    """A ledger, or what it holds of one source: its releases, oldest first.

    ``spent``: by all differentially private ones together, and ``cap``, the most that they may (None: nothing says);
    both are None where all sources are listed.
    """

    database: Path
    releases: tuple[Entry, ...]
    source: tuple[str, ...] = ()
    spent: Fraction | None = None
    cap: Fraction | None = None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def __getitem__(self, number: int) -> Entry:
        return self.releases[number]

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        return {
            "releases": [entry.as_json() for entry in self.releases],
            "database": str(self.database),
            "source": list(self.source),
            "spent": None if self.spent is None else text(self.spent),
            "cap": None if self.cap is None else text(self.cap),
        }


def ledger(spec: Given | None = None, *, database: PathLike | None = None) -> Listed:
    """What the ledger holds of the source of a specification; without one, of all sources.

    ``database``: the ledger, by default that of the specification, or the user's own. Raises ``UsageError`` if there
    is none.
    """
    asked = specified(spec) if spec is not None else None
    path = needed(asked, _place(database))
    with scratch() as db, open_for_reading(db, path) as book:
        return _listed(path, book, asked)


def _place(database: PathLike | None) -> Path | None:
    return as_path(database, "database") if database is not None else None


def _listed(path: Path, book: Book, spec: Spec | None) -> Listed:
    if spec is None:
        return Listed(path, book.entries)
    source = known_as(spec.source)
    entries = book.of_source(source)
    return Listed(path, tuple(entries), source, spent(entries), book.cap(source))


def withdraw(release: PathLike | int, *, database: PathLike | None = None) -> Entry:
    """Record that a release, named by its file or its number, never left the house: it frees all but a budget.

    Raises ``UsageError`` if the ledger does not hold it, or has it as withdrawn already.
    """
    path, named = needed(None, _place(database)), str(release if isinstance(release, int) else as_path(release))
    with scratch() as db, open_for_writing(db, path) as book:
        found = _found(book, named)
        with db.together():
            write_events(db, book, ("withdrawn", {"number": found.number, "why": "never left the house"}))
    return found


def _found(book: Book, release: str) -> Entry:
    """The release that is out, by its number, its file, or where it went: the last one there."""
    path = Path(release)
    if exists(path):
        own = digest(path)
        alike = [entry for entry in book.live if entry.digest == own]
        alike = [entry for entry in alike if entry.target == str(resolved(path))] or alike
    elif release.isdecimal():
        alike = [entry for entry in book.live if entry.number == int(release)]
    else:
        alike = [entry for entry in book.live if entry.target == str(resolved(path))]
    if not alike:
        raise UsageError(f"{release} is no release in the ledger that is out; 'privsql ledger' lists them")
    return alike[-1]


def cap(spec: Given, epsilon: Fraction | Decimal | str | float, *, database: PathLike | None = None) -> Listed:
    """Set the most that all differentially private releases of a source may spend together, and record it.

    The only way to raise it: a specification that still asks for less lowers it again. ``database``: as of
    ``ledger``. Raises ``UsageError`` unless it is a positive number, and the source names its records or persons.
    """
    asked, most = specified(spec), number(epsilon, "cap")
    if most <= 0:
        raise UsageError(f"cap: {text(most)} is not above 0")
    require_names(asked)
    path = needed(asked, _place(database), exists=False)
    source = known_as(asked.source)
    with scratch() as db:
        with open_for_writing(db, path) as book, db.together():
            told = {"source": list(source), "epsilon": text(most), "by": "publisher"}
            write_events(db, book, ("cap", told))
        with open_for_reading(db, path) as book:
            return _listed(path, book, asked)
