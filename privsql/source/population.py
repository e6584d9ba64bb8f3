"""Name the population of a table. To the ledger, tables of the same population are about the same people."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from privsql.engine import files
from privsql.engine.files import fold_name
from privsql.errors import EngineError, UsageError
from privsql.source.targets import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.source.places import Source

# Dates as parts of names, with a time or without: 2024, 2024-05, 20240501T1200, 2024Q1, 2024-W05, 01.05.2024.
DATE = re.compile(
    r"(?<!\d)(?:"
    r"(?:0[1-9]|[12]\d|3[01])[-_.](?:0[1-9]|1[0-2])[-_.](?:19|20)\d\d"
    r"|(?:19|20)\d\d(?:[-_.]?q[1-4]|[-_.]?w\d\d|[-_.]?(?:0[1-9]|1[0-2])(?:[-_.]?(?:0[1-9]|[12]\d|3[01]))?)?"
    r"(?:(?![t_ -]?(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2]))[t_ -]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?z?)?"  # no second date
    r")(?!\d)",
    re.IGNORECASE,
)
BLANKS = " _.=-"  # between the words of a name
ENDINGS = {*files.FILE_KINDS, *files.PACKED, *files.DATABASES}
PART = re.compile(r"part[-_.]?\d", re.IGNORECASE)  # one of several files of a table
SAYS_NOTHING = {
    "data", "dataset", "dump", "export", "exports", "extract", "file", "files", "input", "output", "query", "result",
    "results", "sheet", "source", "stdin", "table", "temp", "tmp", "untitled",
}  # fmt: skip


def name_population(source: Source) -> tuple[str, ...]:
    """Return the names of a source's population; empty if nothing says who is in the table.

    If the publisher names the population, this name is the only one. Otherwise each file gives a name: its folder and
    file name without dates and endings. Each table that a query reads also gives a name: catalog.schema.table. Two
    sources that share a name have the same population.
    """
    if source.population is not None:
        return (source.population,)
    if source.frame is not None:
        return ()
    named = map(_name_file, _list_places(source.files)) if source.files else _name_tables(source)
    return tuple(sorted({name for name in named if name}))


def require_population(source: Source) -> tuple[str, ...]:
    """Return the names of a source's population: the people whom its records are about.

    The publisher states the name in ``source.population``; otherwise the names of files or tables are taken.

    Raises:
        UsageError: Nothing says who is in the table.
    """
    names = name_population(source)
    if not names:
        read, file = source.origin.query or source.relation, str(source.files[0] if source.files else source.path)
        place = files.redact_secrets(read) if read else os.path.basename(files.redact_secrets(file))
        what = "a table in Python" if source.frame is not None else repr(place)
        raise UsageError(
            f"source.population is missing: {what} does not say whom the table is about; name these people, as "
            "source.population = 'clinic', and in the same way in every release of them"
        )
    return names


def is_same_population(names: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether two populations are the same: their lists of names have a name in common, ignoring case.

    >>> is_same_population(["clinic"], ["Clinic", "office.staff"]), is_same_population([], [])
    (True, False)
    """
    return not {fold_name(one) for one in names}.isdisjoint(fold_name(one) for one in others)


def strip_dates(name: str) -> str:
    """Return a name without its dates.

    >>> strip_dates("visits_2024-05-01"), strip_dates("20240501T1200-ward-2024Q1-north"), strip_dates("2024")
    ('visits', 'ward-north', '')
    """
    return re.sub(rf"([{BLANKS}])[{BLANKS}]+", r"\1", DATE.sub("", name)).strip(BLANKS)


def _says_whom(name: str) -> bool:
    """Return whether a name may describe people. Names such as ``data_2``, ``export`` and ``part-0001`` do not."""
    words = re.findall(r"[^\W\d_]+", fold_name(name))
    return not PART.match(name) and not SAYS_NOTHING.issuperset(words)


# Files ----------------------------------------------------------------------------------------------------------------


def _name_file(path: str) -> str | None:
    """Return the folder and name of a file, without dates and endings; None if they describe no people.

    >>> _name_file("/srv/Ward 3/visits_2024-05.csv.gz"), _name_file("/srv/visits/2024/5.csv"), _name_file("/data.csv")
    ('Ward 3/visits', 'srv/visits', None)
    """
    *folders, last = path.replace("\\", "/").split("/")
    while Path(last).suffix.lower() in ENDINGS:
        last = Path(last).stem
    names = [one for one in map(strip_dates, [*folders, last]) if any(map(str.isalpha, one))]
    return "/".join(names[-2:]) if names and _says_whom(names[-1]) else None


def _list_places(names: Iterable[str]) -> set[str]:
    """Return where the files of a source lie: absolute paths on this machine, and addresses without secrets.

    Args:
        names: Names, patterns, folders or addresses. A folder is returned together with the files in it.
    """
    places: set[str] = set()
    for name in names:
        if files.url_scheme(name):
            parts = urlsplit(files.redact_secrets(name))
            places.add(f"{parts.netloc}{parts.path}")
            continue
        try:
            met = [str(one) for one in files.find_files([name])]
        except EngineError:  # the error is raised when the source is read
            met = []
        places.update(map(os.path.realpath, met if met and not Path(name).is_dir() else [name, *met]))
    return places


# Tables ---------------------------------------------------------------------------------------------------------------


def _name_tables(source: Source) -> list[str]:
    """Return the database tables that a source reads, as catalog.schema.table without default schemas.

    The catalog is the name of the database file. For a server it is only the server's kind, because the address may
    hold secrets.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    traits, catalog = source.traits, source.kind
    if source.database is not None:
        in_memory = source.opened is not None and source.opened.file is None
        catalog = MEMORY if in_memory else strip_dates(Path(os.path.realpath(source.database)).stem)
    try:
        if source.relation is not None:
            tables = [exp.to_table(source.relation, dialect=traits.dialect)]
        else:
            query = sqlglot.parse_one(source.origin.query or "", dialect=traits.dialect)
            ctes = {fold_name(one.alias) for one in query.find_all(exp.CTE)}
            tables = [one for one in query.find_all(exp.Table) if one.db or fold_name(one.name) not in ctes]
    except SqlglotError:
        return []
    names = []
    for one in (one for one in tables if _says_whom(strip_dates(one.name))):
        schema = "" if fold_name(one.db) in (traits.own_schema, fold_name(catalog)) else one.db
        parts = (strip_dates(one.catalog) or catalog, schema, strip_dates(one.name))
        names.append(".".join(fold_name(part) for part in parts if part))
    return names
