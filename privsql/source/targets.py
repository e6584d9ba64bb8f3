"""Name the places where releases lie: files, folders, or schemas of databases."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import AfterValidator

from privsql.calls import PathLike, as_path, as_paths
from privsql.engine import files
from privsql.engine.files import fold_name
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from privsql.engine.database import CountingDatabase, ReleaseDatabase, Sink
    from privsql.source.places import Source

# Targets --------------------------------------------------------------------------------------------------------------
# A file, a folder, or a schema of a database that may hold other tables as well.

MARK = "::"  # stands between a database file and a schema
MEMORY = "memory"  # the name of a database in memory
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # one slash is enough, since ``Path`` drops the second
TABLE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
PLACES = (
    "a release is a file (NAME.duckdb), a folder (release.format = 'parquet'; of Spark also at file:, hdfs: or s3a:), "
    "or a schema of a DuckDB file (FILE::SCHEMA), of a Postgres database (postgresql://HOST/DATABASE::SCHEMA) or of a "
    "Spark session"
)
SERVER = re.compile(r"postgres(ql)?:/+")
FOLDER = re.compile(r"(file|hdfs|s3a):/", re.IGNORECASE)
COLLAPSED = re.compile(r"(postgres(?:ql)?):/(?!/)")  # an address that lost a slash as a ``Path``
PUBLIC_PARTS = ("dbname", "host", "port", "user")  # parameters of an address that are no secrets
TAKEN = ("main", "temp", "pg_catalog", "information_schema")  # schemas that every database has


def _require_schema_name(name: str) -> str:
    if fold_name(name) in TAKEN:
        raise ValueError(f"{name!r} exists in every database; choose another schema")
    if not name.strip() or not name.isprintable() or any(part in name for part in (MARK, "/", "\\", "?")):
        raise ValueError(f"{name!r} can't be a schema; use letters and digits")
    return name


SchemaName = Annotated[str, AfterValidator(_require_schema_name)]


@dataclass(frozen=True)
class Address:
    """The address of a Postgres database, or of a folder in a file system that Spark reaches.

    ``label`` names the place in messages; only ``secret`` holds the password.
    """

    label: str
    secret: str = field(repr=False)
    is_folder: bool = False

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """Return the address that a text states; None if the text is a path.

        Raises:
            UsageError: The address is incomplete or malformed.

        >>> str(Address.parse("postgres://me:word@host/db?sslmode=require")), Address.parse("people.duckdb")
        ('postgresql://me@host/db', None)
        """
        if FOLDER.match(text):
            scheme, _, rest = text.partition(":")
            label = f"{scheme.lower()}:{'//' if scheme.lower() == 'file' else '/'}/{rest.strip('/')}"
            return cls(label, label, is_folder=True)
        if not SERVER.match(text):
            return None
        secret = COLLAPSED.sub(r"\1://", text)
        try:
            parts = urlsplit(secret)
        except ValueError as error:
            raise UsageError("the address of a Postgres database is no URL; quote its parts") from error
        login, at, host = parts.netloc.rpartition("@")
        query = urlencode([one for one in parse_qsl(parts.query) if one[0] in PUBLIC_PARTS], safe="/:")
        return cls(f"postgresql://{login.partition(':')[0]}{at}{host}{parts.path}{query and '?'}{query}", secret)

    def __str__(self) -> str:
        return self.label

    def make_target(self, schema: str | None, session: object | None) -> Target:
        """Return the place of a release at this address, without connecting: a schema of the database, or the folder.

        Args:
            schema: The schema; ignored for a folder.
            session: A session of Spark that reaches the folder; None starts one on this machine when it is needed.
        """
        from privsql.engine.open import find_folder, find_server_database

        place: ReleaseDatabase = (
            find_folder(self.label, session) if self.is_folder else find_server_database(self.secret, self.label)
        )
        return Target(Path(self.label), self.label if self.is_folder else schema, place, self)


@dataclass(frozen=True)
class Target:
    """The place of a release: a file, a folder, or a schema of a database."""

    file: Path
    schema: str | None = None
    # A server's database, or one that the caller has open.
    opened: ReleaseDatabase | None = field(default=None, compare=False, repr=False)
    address: Address | None = None  # ``file`` then only serves as a name

    @classmethod
    def parse(cls, path: Path) -> Target:
        """Return the place that a path names. ``FILE::SCHEMA`` is a schema of a file, unless a file has that whole
        name.

        >>> Target.parse(Path("warehouse.duckdb::released")).schema
        'released'
        """
        name, mark, schema = path.name.rpartition(MARK)
        if not (mark and name and schema) or os.path.lexists(path):
            return cls(path)
        return cls(path.with_name(name), schema)

    @property
    def path(self) -> Path:
        """Return the place as one path, such as out.duckdb or, for a schema of a file, out.duckdb::released."""
        if not self.is_schema:
            return self.file
        return self.file.with_name(f"{self.file.name}{MARK}{self.schema}")

    def resolve(self) -> Target:
        """Return the same place with an absolute path, in which links are followed."""
        return self if self.has_no_file else replace(self, file=self.file.resolve())

    @property
    def has_no_file(self) -> bool:
        """Return whether the place is a schema on a server, or in a database in memory."""
        return self.opened is not None and self.opened.file is None

    @property
    def sink(self) -> Sink:
        """Return the database to which the schema is written: the one that the caller has open, or the file."""
        from privsql.engine.open import FileSink

        return self.opened or FileSink(self.file)

    @property
    def is_schema(self) -> bool:
        """Return whether the place is a schema of a database; a folder at an address is not one."""
        return self.schema is not None and not (self.address is not None and self.address.is_folder)

    @property
    def catalog(self) -> CountingDatabase | None:
        """Return the open database that holds the release, if its engine can query the release without a copy of it.

        It is None for any other release, such as one in files.
        """
        return cast("CountingDatabase", self.opened) if self.opened is not None and self.opened.counts else None

    def __str__(self) -> str:
        if self.address is not None and self.is_schema:
            return f"{self.address}{MARK}{self.schema}"
        return str(self.address or self.path)

    __fspath__ = __str__


def as_target(release: PathLike, connection: object | None = None) -> Target:
    """Return the place of a release that a caller names.

    Args:
        release: A path, an open release, or ``ADDRESS::SCHEMA`` for a schema of a server.
        connection: An open connection, or a session of Spark. The release is then a schema of its database or catalog,
            given by its name or as ``FILE::SCHEMA``. None for no connection.

    Raises:
        UsageError: The value does not name a release.
    """
    if isinstance(release, Target):
        return release
    target = getattr(release, "target", None)
    if isinstance(target, Target):
        # An open database is read again, as it is now.
        return target if target.opened is None else replace(target, opened=target.opened.renew())
    text = _text_of(release)
    place, mark, schema = text.rpartition(MARK) if SERVER.match(text) else (text, "", "")
    address = Address.parse(place or text)
    if address is not None:
        # These characters belong to an address, not to a schema.
        if not address.is_folder and (not mark or set("/@]") & set(schema)):
            raise UsageError("release: write the schema behind the address: postgresql://HOST/DATABASE::SCHEMA")
        return address.make_target(schema, connection)
    if connection is None:
        refuse_address(release, "release")
    parsed = Target.parse(as_path(release, "release"))
    if connection is None:
        return parsed
    opened = open_database(connection, parsed.file if parsed.schema is not None else None)
    if opened is None:
        raise UsageError(f"{parsed}: the connection does not have this file open; leave out connection")
    return target_in(opened, parsed.schema or os.fspath(release))


def _text_of(place: object) -> str:
    """Return the text of a path; empty for any other value."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else ""
    return text if isinstance(text, str) else ""


def as_targets(
    releases: Iterable[PathLike] | PathLike | None, what: str, connection: object | None = None
) -> list[Target]:
    """Return the places of the releases that a caller names.

    Args:
        releases: The releases, or a single one; None for no release. Each is a path, an open release, or
            ``ADDRESS::SCHEMA`` for a schema of a server.
        what: The name of the argument, for messages.
        connection: An open connection, or a session of Spark. The releases are then schemas of its database or catalog.
            None for no connection.
    """
    as_paths(releases, what)
    several = (releases,) if isinstance(releases, str | os.PathLike) else releases or ()
    return [as_target(one, connection) for one in several]


def open_database(connection: object, file: Path | None = None) -> ReleaseDatabase | None:
    """Return a database that a connection has open.

    Args:
        connection: The connection.
        file: The file of the database; None for the connection's current database.

    Returns:
        The database; None if the connection does not have ``file`` open.
    """
    from privsql.engine.open import find_open_database

    return find_open_database(connection, file)


def target_in(opened: ReleaseDatabase, schema: str) -> Target:
    """Return the place of a release that is a schema of a database that the caller has open."""
    return Target(opened.file or Path(opened.label), schema, opened)


def refuse_address(place: object, what: str) -> None:
    """Refuse an address where only a path is possible; taken for a file name, its password would become visible.

    Args:
        place: What the caller gives.
        what: The name of the argument, for the message.

    Raises:
        UsageError: ``place`` is an address.
    """
    text = _text_of(place)
    if ADDRESS.match(text):
        raise UsageError(f"{what}: privsql can't keep a release at {text.partition(':')[0]}://; {PLACES}")


def require_file_name(place: Any) -> Any:
    """Return the place to write a release to: a path, or an ``Address`` if it is one.

    Raises:
        UsageError: The place is an address of another kind, or looks like the dotted name of a table.
    """
    text = _text_of(place)
    address = Address.parse(text)
    if address is not None:
        return address
    refuse_address(place, "release.to")
    named = TABLE_NAME.fullmatch(text) and Path(text).suffix.lower() not in (*files.DATABASES, ".parquet")
    if named and not os.path.lexists(text):
        raise UsageError(
            f"release.to: {text!r} is written as a table; {PLACES}. For a file of this name give its whole path"
        )
    return place


# Overlaps -------------------------------------------------------------------------------------------------------------
# Test whether a release would overwrite its source.


def overlaps_source(source: Source, target: Target) -> bool:
    """Return whether a release would lie among the files of its source, or replace one of them."""
    if source.external_relation is not None or source.frame is not None or target.schema is not None:
        return False  # a schema replaces nothing else in its file
    place = os.path.realpath(target.file)
    if source.database is not None:
        return os.path.realpath(source.database) == place
    return any(
        one == place or _is_within(one, place) or (_is_within(place, one) and not target.file.suffix)
        for one in _list_places(source.files)
    )


def _is_within(place: str, folder: str) -> bool:
    return place.startswith(folder + os.sep)


def _list_places(names: Sequence[str]) -> set[str]:
    """Return the absolute paths of a source's files on this machine, to see whether a release would replace one.

    Args:
        names: Names, patterns, folders or addresses. Addresses are ignored. A folder stands for all files in it, so its
            own path is the only one that is returned.
    """
    places: set[str] = set()
    for name in names:
        if not files.url_scheme(name):
            try:
                met = [Path(name)] if Path(name).is_dir() else files.find_files([name])
            except EngineError:  # the error is raised when the source is read
                met = [Path(name)]
            places.update(map(os.path.realpath, met))
    return places
