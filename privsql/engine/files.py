"""Find files by names and patterns, make private folders, compare names as SQL does, and examine Parquet files."""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import shutil
import stat
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from privsql import system
from privsql.errors import EngineError, suggest_file
from privsql.system import OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# Files ----------------------------------------------------------------------------------------------------------------
# Files by the names that a publisher gives: a file, a pattern, a folder, or an address.
#
# Patterns and folders are expanded once, when the source is mounted. Files that are added later are not read.

DATABASES = (".db", ".duckdb", ".ddb", ".sqlite", ".sqlite3")  # endings of database files
# By the ending; a file with another ending is a database.
FILE_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv"}
DELIMITERS = ",;\t|"  # the delimiters of CSV files that DuckDB tries
PACKED = (".gz", ".zst")  # endings of compressed CSV files, such as .csv.gz
REMOTE = {  # the DuckDB extension that reads an address, by its scheme
    **dict.fromkeys(("s3", "s3a", "s3n", "gs", "gcs", "r2", "http", "https", "hf"), "httpfs"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), "azure"),
}
ADDRESS = re.compile(r"([a-zA-Z][\w+.-]+)://")
MAGIC = {  # the first bytes of each kind of file, and the message if it is read as another kind
    "duckdb": (rb".{8}DUCK", "is a DuckDB database; give database = .., with a table"),
    "sqlite": (rb"SQLite format 3\x00", "is a SQLite database; give database = .., with a table"),
    "parquet": (rb"PAR1", "is a Parquet file; say source.reader = 'parquet'"),
    "zip": (rb"PK\x03\x04", "is a zip archive, as spreadsheets are; write its table as CSV"),
    "gzip": (rb"\x1f\x8b", "is packed by gzip; say source.options = { compression = 'gzip' }, or rename it to .csv.gz"),
    "zstd": (
        rb"\x28\xb5\x2f\xfd",
        "is packed by zstd; say source.options = { compression = 'zstd' }, or rename it to .csv.zst",
    ),
}
USER = re.compile(r"(?<=://)[^/\s'\"?#]*@")  # user and password in an address
QUERY_PART = re.compile(r"(://[^\s'\"?#]*)[?#][^\s'\"]*")  # the query part of an address
WILD = re.compile(r"[*?[]")
LEVEL = re.compile(r"([^/\\=]+)=([^/\\=]*)")  # a folder such as year=2020


def url_scheme(name: str) -> str:
    """Return the scheme of an address in lower case, such as "s3"; empty for a path."""
    match = ADDRESS.match(name)
    return match[1].lower() if match else ""


def redact_secrets(text: str) -> str:
    """Return a text in which addresses are shown without user, password and query part.

    >>> redact_secrets("no answer from 'https://me:secret@host/a.csv?token=1'")
    "no answer from 'https://host/a.csv'"
    """
    return QUERY_PART.sub(r"\1", USER.sub("", text))


def kind_of(name: str) -> str | None:
    """Return the kind of file that the ending of a name shows: "parquet" or "csv", or None for any other ending.

    A name without an ending is taken for a folder of Parquet files.

    >>> kind_of("a.csv.gz"), kind_of("s3://b/c/*.parquet"), kind_of("people/"), kind_of("a.xlsx")
    ('csv', 'parquet', 'parquet', None)
    """
    endings = _file_endings(name)
    if not endings:
        return "parquet"
    if endings[-1] in PACKED:
        return "csv" if FILE_KINDS.get("".join(endings[-2:-1])) == "csv" else None
    return FILE_KINDS.get(endings[-1])


def is_files(name: str) -> bool:
    """Return True if a name stands for data files or a folder of them; False if it stands for a database."""
    if url_scheme(name) or (WILD.search(name) and not Path(name).is_file()):
        return True
    return (bool(_file_endings(name)) or Path(name).is_dir()) and kind_of(name) is not None


def default_release_name(name: str) -> str:
    """Return the default name of a release: the name of the source's file or, for several files, of their folder.

    >>> default_release_name("data/people.csv.gz"), default_release_name("data/ward/year=*/*.parquet"), default_release_name("s3://b/stays_*.parquet?x=1")
    ('people', 'ward', 'stays')
    """
    for part in reversed(_address_path(name).replace("\\", "/").split("/")):
        plain = WILD.split(part)[0]
        if "=" in part or not plain.strip("_-. "):
            continue
        known = _file_endings(plain)
        while known and (known[-1] in FILE_KINDS or known[-1] in PACKED):
            plain, known = plain[: -len(known[-1])], known[:-1]
        return plain.rstrip("_-. ") if WILD.search(part) else plain
    return "release"


def _address_path(name: str) -> str:
    """Return the path part of an address; a path is returned as it is."""
    return redact_secrets(name).partition("://")[2] if url_scheme(name) else name


def _file_endings(name: str) -> list[str]:
    """Return the endings of the last part of a path in lower case, such as [".csv", ".gz"]."""
    last = re.split(r"[/\\]", _address_path(name))[-1]
    return [] if WILD.match(last) and "." not in last else [one.lower() for one in Path(last).suffixes]


def explain_disguise(file: Path, kind: str, compression: str | None) -> str:
    """Return why a file can't be read as ``kind``: an error of the system, or the kind that its contents have.

    Args:
        file: The file.
        kind: "parquet" or "csv".
        compression: The compression that the file should have; None if its ending tells it.

    Returns:
        The clause of a message; empty if the file may be of this kind.
    """
    try:
        file.open("rb").close()
    except OSError as error:
        return f"{error.strerror}"
    packed = file.suffix.lower() in PACKED if compression is None else compression != "none"
    found = sniff_kind(file)
    if kind == "parquet" and not found and file.is_file():
        return "is no Parquet file; if it is CSV, say source.reader = 'csv'"
    return "" if found in ({"", kind, "gzip", "zstd"} if packed else {"", kind}) else MAGIC[found][1]


def sniff_kind(file: Path) -> str:
    """Return the kind of a file that its first bytes show, such as a ZIP archive.

    The result is empty if no kind is recognized or the file can't be read.
    """
    try:
        with file.open("rb") as opened:
            begun = opened.read(16)
    except OSError:
        return ""
    return next((kind for kind, (start, _) in MAGIC.items() if re.match(start, begun, re.DOTALL)), "")


# Looked up ---


def find_files(names: Sequence[str]) -> list[Path]:
    """Return the files on this machine that names and patterns stand for.

    A name with special characters is not a pattern if a file has exactly this name.

    Raises:
        EngineError: A name stands for no file, or two names stand for the same file.
    """
    files = [file for name in names for file in _files_of(name)]
    places: dict[str, Path] = {}
    for file in files:
        other = places.setdefault(os.path.realpath(file), file)
        if other is not file:
            raise EngineError(f"{other} and {file} are the same file; its records would be counted twice")
    return files


def is_unicode_path(path: str) -> bool:
    """Return whether a path is valid text. In Python, bytes that are not UTF-8 appear as surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _files_of(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        files = sorted(_walk_parquet(path))
        if not files:
            pattern = f"{name}/{_find_pattern(path)}"
            raise EngineError(f"{name}: this folder holds no Parquet file; for other files give a pattern, {pattern}")
        return files
    if path.exists() or not WILD.search(name):
        if not path.is_file():
            what = "no file that can be read more than once" if path.exists() else f"no such file{suggest_file(path)}"
            raise EngineError(f"{name}: {what}")
        return [path]
    folder = Path(path.anchor)
    parts = list(path.relative_to(folder).parts)
    while parts[1:] and (folder / parts[0]).is_dir():  # an existing folder's name is not a pattern
        folder /= parts.pop(0)
    met = sorted(folder / one for one in glob.glob(os.path.join(*parts), root_dir=folder, recursive=True))
    matched = [one for one in met if one.is_file() or (one.is_dir() and one.suffix.lower() in FILE_KINDS)]
    if not matched:
        raise EngineError(f"{name}: no file matches this pattern")
    return [file for one in matched for file in ([one] if one.is_file() else sorted(_walk_parquet(one)))]


def _find_pattern(folder: Path) -> str:
    """Return a pattern for the CSV files in a folder or below it, which a message can recommend."""
    for pattern in ("*", "**/*"):
        names = [one.name for one in sorted(folder.glob(pattern)) if one.is_file() and kind_of(one.name) == "csv"]
        if names:
            return pattern + "".join(_file_endings(names[0]))
    return "*.csv"


def _walk_parquet(folder: Path) -> Iterator[Path]:
    """Yield the Parquet files below a folder, without following links.

    Names that begin with a dot or ``_`` are left out.

    Raises:
        EngineError: A folder can't be read, or holds a table of Delta or Iceberg.
    """

    def refused(error: OSError) -> None:
        raise EngineError(f"{error.filename}: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=refused):
        for other, form, inside in (("_delta_log", "delta", ""), ("metadata", "iceberg", "*.metadata.json")):
            if other in folders and (not inside or any(Path(place, other).glob(inside))):
                raise EngineError(
                    f"{place}: is a table of {form.capitalize()}, whose files also hold deleted rows;  "
                    f"say source.reader = {form!r}"
                )
        folders[:] = [one for one in folders if not one.startswith((".", "_")) or "=" in one]
        for file in files:
            if FILE_KINDS.get(Path(file).suffix.lower()) == "parquet" and not file.startswith((".", "_")):
                yield Path(place, file)


def partition_values(file: str) -> dict[str, str]:
    """Return the columns and values that the folders of a path state, such as ``year=2020``.

    >>> partition_values("data/year=2020/city=S%C3%A3o/a=b.parquet")
    {'year': '2020', 'city': 'São'}
    """
    parts = re.split(r"[/\\]", file)[:-1]
    return {unquote(one[1]): unquote(one[2]) for part in parts if (one := LEVEL.fullmatch(part))}


def find_text_partitions(files: Iterable[str]) -> list[str]:
    """Return the columns from names of folders, such as ``month=01``, whose values must stay texts.

    As a number, the value ``01`` would lose a character.

    Args:
        files: The files in such folders.
    """
    pairs = {pair for file in files for pair in partition_values(file).items()}
    return sorted({key for key, value in pairs if re.fullmatch(r"[+-]?\d+", value) and str(int(value)) != value})


# Folders --------------------------------------------------------------------------------------------------------------
# Folders for unfinished work. Only their owner can read them, and other processes remove them once theirs has ended.
#
# A folder is locked as long as its process lives. A stricter umask gives new files mode 0600 from the first byte, also
# those of DuckDB. While a user's own files are made, the umask stays, and the folder's mode protects its files.

LOCK = "lock"
ROOM = "privsql-room-"  # the first letters of temporary folders
TRIES = 100  # another process may remove a folder before it is locked


class _Mask:
    """A context manager in which new files of the process are private: it tightens the process's umask.

    Threads may enter and leave it in any order; the umask is restored when no thread is inside.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = os.umask(OTHERS)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                os.umask(self._before)

    def spare_rights(self, rights: int) -> int:
        """Return the permissions to give a finished file: those of ``rights`` that the user's own umask allows.

        New files are private, so a finished file that others may read needs its permissions set.
        """
        with self._lock:
            if self._inside:
                return rights & ~self._before
            before = os.umask(OTHERS)
            os.umask(before)
            return rights & ~before


private = _Mask()  # inside, only the owner can read new files, also DuckDB's


class Folder:
    """A new folder that this process holds locked, so that no other process removes it.

    As a context manager it yields its ``path``, and removes the folder at the end.
    """

    def __init__(self, prefix: str, parent: Path, *, masked: bool = True) -> None:
        """Create the folder and lock it.

        Args:
            prefix: The first letters of its name.
            parent: The folder in which it is created.
            masked: Whether all new files of the process are private while the folder exists.

        Raises:
            OSError: The folder can't be created or locked.
        """
        self._held = ExitStack()
        for _ in range(TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            descriptor = _taken(self.path, os.O_CREAT)
            if descriptor is not None:
                break
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        self._held.callback(os.close, descriptor)
        if masked:
            self._held.enter_context(private)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def let_go(self) -> None:
        """Release the lock, so that other processes may remove the folder."""
        self._held.close()

    def remove(self) -> None:
        """Remove the folder with its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()
        if self.path.exists():  # some systems do not remove open files, such as the lock
            shutil.rmtree(self.path, ignore_errors=True)


def sweep_folders(prefix: str, parent: Path, first: Callable[[Path], object] = bool) -> None:
    """Remove this user's folders in ``parent`` that processes left behind when they ended.

    Folders of other users, and links to folders, are not opened.

    Args:
        prefix: The first letters of the folders' names.
        parent: The folder to look in.
        first: A function that is called with each folder before its removal. If it fails, the folder stays.
    """
    folders = []
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    if system.is_users_file(entry.stat(follow_symlinks=False)):
                        folders.append(Path(entry.path))
    for path in folders:
        descriptor = _taken(path)
        if descriptor is None:
            with suppress(OSError):
                path.rmdir()  # its process ended before locking it, so it is empty
            continue
        try:
            with suppress(OSError):
                first(path)
                shutil.rmtree(path)
        finally:
            os.close(descriptor)


@contextmanager
def temporary_folder(*, masked: bool = True) -> Iterator[Path]:
    """Yield a new folder among the system's temporary files, and remove it at the end.

    If ``masked`` is true, all new files of the process are private while the folder exists.

    Raises:
        EngineError: The folder can't be made.
    """
    parent = Path(tempfile.gettempdir())
    sweep_folders(ROOM, parent)
    try:
        folder = Folder(ROOM, parent, masked=masked)
    except OSError as error:
        raise EngineError(f"{parent}: no temporary folder can be made: {error.strerror}") from error
    with folder as path:
        yield path


def _taken(folder: Path, flags: int = 0) -> int | None:
    """Lock a folder and return the descriptor of the lock file.

    Args:
        folder: The folder.
        flags: Further flags for opening the lock file, such as ``os.O_CREAT`` for a new folder.

    Returns:
        The descriptor; None if another process holds the lock or has removed the folder.
    """
    lock = folder / LOCK
    try:
        descriptor = system.open_descriptor(lock, os.O_RDWR | flags)
    except OSError:
        return None
    with suppress(OSError):
        if system.locked(descriptor, alone=True):
            held, there = os.fstat(descriptor), lock.stat(follow_symlinks=False)
            if stat.S_ISREG(held.st_mode) and os.path.samestat(held, there):
                return descriptor
    os.close(descriptor)
    return None


# Names ----------------------------------------------------------------------------------------------------------------
# Names of columns and texts of values, as people and SQL engines compare and read them.

UPPER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def label_value(parts: Sequence[object]) -> str:
    """Return a sensitive value as SQL prints it; values of several columns are listed in brackets."""
    texts = ["NULL" if part is None else str(part) for part in parts]
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def unused_name(name: str, others: Iterable[str]) -> str:
    """Return a name for a column that privsql adds to others: ``name``, with underscores until no other column has it.

    >>> unused_name("code", ["age"]), unused_name("code", ["Code", "code_"])
    ('code', 'code__')
    """
    taken = {fold_name(other) for other in others}
    while fold_name(name) in taken:
        name += "_"
    return name


def fold_name(name: str) -> str:
    """Return a name with ASCII letters in one case; SQL engines take names for equal if these forms are equal."""
    return name.translate(UPPER)


# Parquet --------------------------------------------------------------------------------------------------------------
# The parts of a Parquet file that are not among the columns that its footer names, and which of them programs show.

HEAD, TAIL = 4, 8  # bytes before the first page of a Parquet file, and after its footer
WRITERS = re.compile(
    r"DuckDB version v[\w.+-]{1,24} \(build [0-9a-f]{7,40}\)"
    r"|(?P<indexed>parquet-mr version [\w.+-]{1,24} \(build [0-9a-f]{7,40}\))"
    r"|parquet-cpp-arrow version [\w.+-]{1,24}",
    re.ASCII,
)
SPARK_VERSION, SPARK_ROWS = b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"
VERSION_TEXT = re.compile(rb"[\w.+-]{1,40}")
SPARK_TYPE = re.compile(r"[a-z_]{1,24}(\(\d+(,\d+)?\))?", re.ASCII)
# For each page, Spark's indexes hold two bounds of at most 64 bytes and some numbers. Spark begins a new page after
# 20,000 values or 2**20 bytes.
INDEX, PAGE_VALUES, PAGE_BYTES = 200, 20_000, 2**19


def find_hidden_parts(path: Path) -> list[str]:
    """Return a line for each part of a Parquet file that programs which read it do not show.

    The footer does not name such a part, or it is of no known kind. It could hold values that nobody meant to publish.

    Raises:
        EngineError: The file can't be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
        names = footer.schema.to_arrow_schema().names
    except (pa.ArrowException, OSError) as error:
        raise EngineError(f"{path.name}: can't be read: {error}") from error
    chunks = [footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns)]
    wrong, place = [], HEAD
    for start, length in sorted(
        (min(filter(None, (one.dictionary_page_offset, one.data_page_offset))), one.total_compressed_size)
        for one in chunks
    ):
        wrong += [] if start == place else ["columns that overlap, or lie apart"]
        place = start + length
    known = pa.BufferOutputStream()
    footer.write_metadata_file(known)
    if footer.serialized_size != known.tell() - HEAD - TAIL:
        wrong.append("entries of a footer that no reader knows")
    writer = WRITERS.fullmatch(footer.created_by)
    by_spark = writer is not None and writer["indexed"] is not None
    pages = (2 + one.num_values // PAGE_VALUES + one.total_uncompressed_size // PAGE_BYTES for one in chunks)
    spare = path.stat().st_size - place - footer.serialized_size - TAIL
    if not 0 <= spare <= (INDEX * sum(pages) if by_spark else 0):
        wrong.append(f"{spare:,} bytes of no column")
    wrong += [] if writer is not None else ["a writer that is none known"]
    wrong += ["a column in another file"] if any(one.file_path for one in chunks) else []
    for key, text in (footer.metadata or {}).items():
        fine = (key == SPARK_VERSION and VERSION_TEXT.fullmatch(text)) or (
            key == SPARK_ROWS and _describes_columns(text, names)
        )
        wrong += [] if by_spark and fine else [f"metadata {key[:40].decode(errors='replace')!r}"]
    return wrong


def _describes_columns(text: bytes, names: Sequence[str]) -> bool:
    """Return whether a text in a Parquet footer is what Spark writes for columns with these names, in this order.

    Any other text could hold values that nobody meant to publish.
    """
    try:
        fields = json.loads(text)["fields"]
        types = [one["type"] for one in fields]
        plain = [one["elementType"] if isinstance(one, dict) else one for one in types]
        flags = [bool(one["nullable"]) for one in fields]
        inner = [bool(one["containsNull"]) if isinstance(one, dict) else None for one in types]
    except (ValueError, RecursionError, LookupError, TypeError):
        return False
    made = [
        {
            "name": name,
            "type": kind if holds is None else {"type": "array", "elementType": kind, "containsNull": holds},
            "nullable": flag,
            "metadata": {},
        }
        for name, kind, holds, flag in zip(names, plain, inner, flags, strict=False)
    ]
    due = json.dumps({"type": "struct", "fields": made}, separators=(",", ":"), ensure_ascii=False)
    return text == due.encode() and all(SPARK_TYPE.fullmatch(one) for one in plain)
