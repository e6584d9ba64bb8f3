"""Read the parts of a Parquet file that are no values of its columns from the file's bytes.

A reader skips what it does not know: a further entry of the footer, bytes between two row groups, a page that no row
needs. Every structure of the file is compared with the parts that DuckDB, Spark and Arrow write, and every byte before
the footer must belong to a page or to an index. The encoding of a page's values is not looked into.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAGIC = b"PAR1"
TAIL = 8  # bytes behind the footer: its length and the magic number
HEADER = 2**16  # bytes in which the header of a page has room; its statistics are longer only where somebody hides text
DEEP = 16  # structures within each other
MANY = 64  # entries of a list of numbers, such as the encodings of a column
LONG = 64  # bytes of a bound in an index of pages, which Spark cuts there

# Thrift's compact protocol ---

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
Tree = dict[int, Any]  # a structure: values by the numbers of their fields


class DamagedError(ValueError):
    """Bytes that are no Parquet."""


class ThriftReader:
    """Structures of Thrift's compact protocol, one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def take_bytes(self, count: int) -> bytes:
        """Return the next bytes."""
        self.place += count
        if count < 0 or self.place > len(self.content):
            raise DamagedError("ends too early")
        return self.content[self.place - count : self.place]

    def read_number(self) -> int:
        """Return an unsigned number of variable length."""
        number = 0
        for shift in range(0, 70, 7):
            (byte,) = self.take_bytes(1)
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise DamagedError("holds a number that is too long")

    def read_signed(self) -> int:
        """Return a signed number of variable length."""
        number = self.read_number()
        return (number >> 1) ^ -(number & 1)

    def read_struct(self, depth: int = 0) -> Tree:
        """Return a structure; ``DamagedError`` for one that names a field twice."""
        if depth > DEEP:
            raise DamagedError("nests too deep")
        tree: Tree = {}
        field = 0
        while True:
            (head,) = self.take_bytes(1)
            if not head:
                return tree
            step, kind = head >> 4, head & 15
            field = field + step if step else self.read_signed()
            if field in tree:
                raise DamagedError(f"states field {field} twice")
            tree[field] = kind == TRUE if kind in (TRUE, FALSE) else self._read_value(kind, depth)

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return self.read_signed()
        if kind == BINARY:
            return self.take_bytes(self.read_number())
        if kind == STRUCT:
            return self.read_struct(depth + 1)
        if kind in (LIST, SET):
            return self._read_list(depth + 1)
        widths = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
        if kind not in widths:
            raise DamagedError(f"holds a value of kind {kind}")
        return int.from_bytes(self.take_bytes(widths[kind]), "little")

    def _read_list(self, depth: int) -> list[Any]:
        (head,) = self.take_bytes(1)
        length, kind = head >> 4, head & 15
        if length == 15:
            length = self.read_number()
        if depth > DEEP or length > len(self.content):
            raise DamagedError("holds a list that is too long")
        return [self._read_value(kind, depth) for _ in range(length)]


# The structures that writers make: by number of field a shape, of which every part is optional ---

NUMBER, TEXT = "number", "text"
UNIT: Tree = {1: {}, 2: {}, 3: {}}
LOGICAL: Tree = {
    **{kind: {} for kind in (1, 2, 3, 4, 6, 11, 12, 13, 14, 15)},
    5: {1: NUMBER, 2: NUMBER},
    7: {1: NUMBER, 2: UNIT},
    8: {1: NUMBER, 2: UNIT},
    10: {1: NUMBER, 2: NUMBER},
}
ELEMENT = {**dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9), NUMBER), 4: TEXT, 10: LOGICAL}
STATISTICS = {**dict.fromkeys((1, 2, 5, 6), TEXT), **dict.fromkeys((3, 4, 7, 8, 9), NUMBER)}
SIZES = {1: NUMBER, 2: [NUMBER], 3: [NUMBER]}
CHUNK = {
    **dict.fromkeys((1, 4, 5, 6, 7, 9, 11), NUMBER),
    2: [NUMBER],
    3: [TEXT],
    12: STATISTICS,
    13: [{1: NUMBER, 2: NUMBER, 3: NUMBER}],
    16: SIZES,
}  # no entries of its own (8) and no Bloom filter (14, 15), whose bits nobody can check
COLUMN = {**dict.fromkeys((2, 4, 5, 6, 7), NUMBER), 3: CHUNK}
GROUP = {1: [COLUMN], **dict.fromkeys((2, 3, 5, 6, 7), NUMBER)}
FOOTER = {1: NUMBER, 2: [ELEMENT], 3: NUMBER, 4: [GROUP], 5: [{1: TEXT, 2: TEXT}], 6: TEXT, 7: [{1: {}}]}
DATA = {**dict.fromkeys((1, 2, 3, 4), NUMBER), 5: STATISTICS}
DATA_V2 = {**dict.fromkeys(range(1, 8), NUMBER), 8: STATISTICS}
PAGE = {**dict.fromkeys((1, 2, 3, 4), NUMBER), 5: DATA, 7: dict.fromkeys((1, 2, 3), NUMBER), 8: DATA_V2}
PLACES = {1: [dict.fromkeys((1, 2, 3), NUMBER)], 2: [NUMBER]}
BOUNDS = {1: [NUMBER], 2: [TEXT], 3: [TEXT], 4: NUMBER, **{field: [NUMBER] for field in (5, 6, 7, 8)}}
NAMES = {
    (5,): "an encrypted part", (4, 1, 3, 8): "metadata of a column", (4, 1, 3, 14): "a Bloom filter",
    (4, 1, 1): "a column in another file",
}  # fmt: skip

WRITERS = re.compile(
    r"DuckDB version v[\w.+-]{1,24} \(build [0-9a-f]{7,40}\)"
    r"|parquet-mr version [\w.+-]{1,24} \(build [0-9a-f]{7,40}\)"
    r"|parquet-cpp-arrow version [\w.+-]{1,24}",
    re.ASCII,
)
VERSION, ROWS = "org.apache.spark.version", "org.apache.spark.sql.parquet.row.metadata"
SPARK_VERSION = re.compile(r"[\w.+-]{1,40}", re.ASCII)
SPARK_TYPE = re.compile(r"[a-z_]{1,24}(\(\d+(,\d+)?\))?", re.ASCII)
SPARK_KEYS = {"type", "fields", "name", "nullable", "metadata", "elementType", "containsNull"}


@dataclass(frozen=True)
class ParquetLayout:
    """The parts of a file that are no values. ``wrong``: a line for each part that no writer makes.

    ``texts``: by column the values that its statistics name; ``entries``: by column those of its longest dictionary.
    """

    wrong: list[str]
    texts: dict[str, set[bytes]]
    entries: dict[str, int]


def read_layout(path: Path) -> ParquetLayout:
    """Return what a Parquet file holds beside values; ``EngineError`` for one that can't be read."""
    try:
        with path.open("rb") as file:
            return _ParquetFile(file).read_layout()
    except (DamagedError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = str(error) if isinstance(error, DamagedError) else "its footer is damaged"
        raise EngineError(f"{path.name}: can't be read: {why}") from error
    except OSError as error:
        raise EngineError(f"{path.name}: {error.strerror}") from error


class _ParquetFile:
    """One open file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size = file, file.seek(0, 2)
        tail = self._read_bytes(max(0, self.size - TAIL), self.size)
        if self._read_bytes(0, 4) != MAGIC or tail[4:] != MAGIC:
            raise DamagedError("does not begin and end as a Parquet file")
        self.end = self.size - TAIL - int.from_bytes(tail[:4], "little")  # of the pages
        if self.end < len(MAGIC):
            raise DamagedError("its footer is longer than the file")
        self.footer = self._read_whole(self.end, self.size - TAIL)
        self.wrong: list[str] = []
        self.texts: dict[str, set[bytes]] = {}
        self.entries: dict[str, int] = {}

    def read_layout(self) -> ParquetLayout:
        """Return what the file holds."""
        self.wrong += [NAMES.get(at, f"an unknown entry {at}") for at in _unknown_fields(self.footer, FOOTER)]
        self.wrong += _check_metadata(self.footer)
        groups = self.footer.get(4, [])
        if not self.wrong:
            covered = [part for group in groups for part in self._group_extents(group)]
            self.wrong += _find_gaps(covered, self.end)
        return ParquetLayout(list(dict.fromkeys(self.wrong)), self.texts, self.entries)

    def _group_extents(self, group: Tree) -> Iterator[tuple[int, int]]:
        """Yield the bytes (from, to) of the pages and indexes of a row group."""
        if group[3] <= 0:
            self.wrong.append("a row group without rows")
        for column in group[1]:
            chunk = column[3]
            name = b".".join(chunk[3]).decode(errors="replace")
            start = min(chunk[field] for field in (9, 11) if field in chunk)
            yield start, start + chunk[7]
            self._note_statistics(name, chunk.get(12, {}))
            pages = self._count_pages(name, chunk, start)
            for offset, length, shape in (
                (column.get(4), column.get(5), PLACES),
                (column.get(6), column.get(7), BOUNDS),
            ):
                if offset is not None:
                    yield offset, offset + (length or 0)
                    self._check_index(name, self._read_whole(offset, offset + (length or 0)), shape, pages)

    def _note_statistics(self, name: str, stated: Tree) -> None:
        self.texts.setdefault(name, set()).update(stated[field] for field in (1, 2, 5, 6) if field in stated)

    def _count_pages(self, name: str, chunk: Tree, start: int) -> int:
        """Check the pages of a column in a row group; return how many hold values."""
        place, end, pages, values = start, start + chunk[7], 0, 0
        if end > self.end:
            raise DamagedError("its pages run into the footer")
        while place < end:
            reader = ThriftReader(self._read_bytes(place, min(end, place + HEADER)))
            head = reader.read_struct()
            if _unknown_fields(head, PAGE):
                self.wrong.append(f"an unknown entry in a page of {name}")
                return pages
            place += reader.place + head[3]
            held = head.get(5) or head.get(8) or {}
            if 7 in head and place <= end and not pages and not values:
                self.entries[name] = max(self.entries.get(name, 0), head[7][1])
                values = -1  # a second one would not be the first page
            else:
                self._note_statistics(name, held.get(5 if 5 in head else 8, {}))
                values, pages = max(values, 0) + held.get(1, 0), pages + 1
                if held.get(1, 0) <= 0:
                    self.wrong.append(f"a page of {name} without values")
        if place != end or max(values, 0) != chunk[5]:
            self.wrong.append(f"pages of {name} that hold other than its values")
        return pages

    def _check_index(self, name: str, index: Tree, shape: Tree, pages: int) -> None:
        lists = [entries for entries in index.values() if isinstance(entries, list)]
        texts = [one for entries in lists for one in entries if isinstance(one, bytes)]
        levels = {6, 7} if shape is BOUNDS else set()  # histograms: some numbers for each page
        long = any(len(one) > (MANY * pages if field in levels else pages)
                   for field, one in index.items() if isinstance(one, list))  # fmt: skip
        if _unknown_fields(index, shape, pages * MANY) or long or any(len(text) > LONG for text in texts):
            self.wrong.append(f"an index of {name} that holds more than its pages have")

    def _read_whole(self, start: int, end: int) -> Tree:
        """Return the structure that fills some bytes."""
        reader = ThriftReader(self._read_bytes(start, end))
        tree = reader.read_struct()
        if reader.place != end - start:
            raise DamagedError(f"{end - start - reader.place:,} bytes lie behind its footer or an index")
        return tree

    def _read_bytes(self, start: int, end: int) -> bytes:
        if not 0 <= start <= end <= self.size:
            raise DamagedError("states bytes that lie outside of it")
        self.file.seek(start)
        return self.file.read(end - start)


def _unknown_fields(value: Any, shape: Any, most: int = MANY, at: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Return the fields, each by its path, that are of no part of a shape, or of another kind."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [at]
        return [
            path
            for field, one in value.items()
            for path in (_unknown_fields(one, shape[field], most, (*at, field)) if field in shape else [(*at, field)])
        ]
    if isinstance(shape, list):
        if not isinstance(value, list) or (shape[0] == NUMBER and len(value) > most):
            return [at]
        return [path for one in value for path in _unknown_fields(one, shape[0], most, at)]
    return [] if isinstance(value, bytes if shape == TEXT else int) else [at]


def _find_gaps(covered: list[tuple[int, int]], end: int) -> list[str]:
    """Return a line for all bytes between the magic number and the footer that belong to no column."""
    place, lost = len(MAGIC), 0
    for start, stop in sorted(covered):
        if start < place:
            return ["parts that overlap"]
        lost, place = lost + start - place, stop
    lost += end - place
    return [f"{lost:,} bytes of no column"] if lost else []


def _check_metadata(footer: Tree) -> list[str]:
    """Return what neither privsql nor the engine wrote among the texts of a footer."""
    wrong = [] if WRITERS.fullmatch(footer.get(6, b"").decode(errors="replace")) else ["a writer that is none known"]
    entries = [(one.get(1, b"").decode(errors="replace"), one.get(2, b"")) for one in footer.get(5, [])]
    names = {element[4].decode(errors="replace") for element in footer[2]}
    fine: dict[str, Callable[[bytes], bool]] = {VERSION: _is_version, ROWS: lambda text: _is_row_type(text, names)}
    for number, (key, text) in enumerate(entries):
        twice = key in [earlier for earlier, _ in entries[:number]]
        if twice or key not in fine or not fine[key](text):
            wrong.append(f"metadata {key[:40]!r}")
    return wrong


def _is_version(text: bytes) -> bool:
    return SPARK_VERSION.fullmatch(text.decode(errors="replace")) is not None


def _is_row_type(text: bytes, names: set[str]) -> bool:
    """Return True for Spark's description of columns of these names, and nothing else."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return False
    plain = json.dumps(read, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    return plain == text and _is_spark_type(read, names)


def _is_spark_type(read: Any, names: set[str]) -> bool:
    if isinstance(read, str):
        return SPARK_TYPE.fullmatch(read) is not None
    if not isinstance(read, dict) or not read.keys() <= SPARK_KEYS or read.get("metadata", {}) != {}:
        return False
    parts = [read[key] for key in ("type", "elementType") if key in read] + list(read.get("fields", []))
    flags = [read[key] for key in ("nullable", "containsNull") if key in read]
    named = read.get("name") is None or read["name"] in names
    return named and all(isinstance(flag, bool) for flag in flags) and all(_is_spark_type(one, names) for one in parts)
