"""What would work instead: DuckDB's errors of files, encodings and extensions, in one line each."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.engine.files import PACKED

if TYPE_CHECKING:
    from collections.abc import Callable

CSV = re.compile(r"CSV Error on Line: (\d+)")
FILE = re.compile(r"^ *file = (.*)$", re.MULTILINE)
BEGINNING = 4096  # bytes by which text of two bytes a character is told
INSTALL = "python -c \"import duckdb; duckdb.execute('INSTALL {name}')\""


def remedy(text: str) -> str:
    """One line for an error whose remedy is known; empty for others."""
    found = ((match, say) for pattern, say in KNOWN if (match := pattern.search(text)))
    return next((say(match, text) for match, say in found), "")


def of_a_file(text: str) -> bool:
    """Whether an error is one of what a file holds, not of what is asked."""
    return CSV.search(text) is not None


def missing(name: str, what: str, instead: str) -> str:
    """What to say where an extension is not installed."""
    return (
        f"{what} needs DuckDB's extension {name}, and privsql installs none by itself: run {INSTALL.format(name=name)} "
        f"once, or {instead}"
    )


def _encoded(found: re.Match[str], text: str) -> str:  # noqa: ARG001 (as all are called)
    name = "utf-16" if _has_zeros(text) else "latin-1"
    return f'{_line_of(text)} is not UTF-8; say how the file is written: options = {{ encoding = "{name}" }}'


def _unknown_encoding(found: re.Match[str], text: str) -> str:  # noqa: ARG001
    return f"there is no encoding {found[1]!r}; write the file anew (iconv -f {found[1]} -t UTF-8)"


def _converted(found: re.Match[str], text: str) -> str:
    return (
        f"{_line_of(text)}: column {found[1]!r} is {found[2]} by the lines before, and this value is not; say "
        f'options = {{ types = {{ {found[1]} = "VARCHAR" }} }}, or which text means NULL (nullstr), or sample_size = -1'
    )


def _too_long(found: re.Match[str], text: str) -> str:
    return (
        f"{_line_of(text)} is {found[1]} bytes long; a quote may be missing, or say "
        f"options = {{ max_line_size = {found[1]} }}"
    )


def _columns(found: re.Match[str], text: str) -> str:
    return (
        f"{_line_of(text)} has {found[2]} columns, not {found[1]}; mend the line, or say how the file is written: "
        "options = { delimiter = .., quote = .. }"
    )


def _other_csv(found: re.Match[str], text: str) -> str:
    said = text[found.end() :].strip().split("\n")
    why = next((one for one in said if one and not one.startswith("Original Line")), "can't be read").rstrip(". ")
    return (
        f"{_line_of(text)}: {why}; say how the file is written: options = {{ delimiter = .., quote = .., skip = .. }}"
    )


def _no_table(found: re.Match[str], text: str) -> str:  # noqa: ARG001
    return "no table is found in it; say how it is written: options = { delimiter = .., quote = .., header = .. }"


def _no_parquet(found: re.Match[str], text: str) -> str:  # noqa: ARG001
    return "is no Parquet file, or no whole one; of CSV say reader = 'csv'"


def _not_packed(found: re.Match[str], text: str) -> str:  # noqa: ARG001
    return 'is not packed as its ending says; say options = { compression = "none" }, or rename it'


def _extension(found: re.Match[str], text: str) -> str:  # noqa: ARG001
    name = found[1] or found[2] or found[3]
    return missing(name, "this", "give the file or address as source.file, or copy the rows into a Parquet file")


def _no_database(found: re.Match[str], text: str) -> str:  # noqa: ARG001
    return "is neither a DuckDB nor a SQLite database"


def _other_database(found: re.Match[str], text: str) -> str:  # noqa: ARG001
    return (
        f"table {found[1]!r} lies in database or schema {found[2]!r}, which is not in this file; a view over it can't "
        "be read here: store what it yields (CREATE TABLE .. AS FROM ..)"
    )


def _line_of(text: str) -> str:
    line, file = CSV.search(text), FILE.search(text)
    return f"line {line[1] if line else '?'}{f' of {Path(file[1]).name}' if file else ''}"


def _has_zeros(text: str) -> bool:
    """Whether the file that an error names looks like UTF-16."""
    file = FILE.search(text)
    with suppress(OSError):
        if file and Path(file[1]).is_file() and Path(file[1]).suffix not in PACKED:
            with Path(file[1]).open("rb") as opened:
                begun = opened.read(BEGINNING)
            return begun[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in begun
    return False


KNOWN: list[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]]] = [
    (re.compile(r"Invalid unicode"), _encoded),
    (re.compile(r'does not support the encoding: "([^"]*)"'), _unknown_encoding),
    (re.compile(r'Error when converting column "([^"]*)".*? to \'([^\']*)\'', re.DOTALL), _converted),
    (re.compile(r"Expected Number of Columns: (\d+) Found: (\d+)"), _columns),
    (re.compile(r"Maximum line size of .*? bytes exceeded. Actual Size: ?(\d+)"), _too_long),
    (re.compile(r"No magic bytes found|too small to be a Parquet file"), _no_parquet),
    (CSV, _other_csv),
    (re.compile(r"Error when sniffing file|not possible to automatically detect the CSV"), _no_table),
    (re.compile(r"Input is not a GZIP stream|not a valid gzip|ZSTD Decompression failed|Unknown frame"), _not_packed),
    (
        re.compile(
            r"requires the extension (\w+) to be loaded|it exists in the (\w+) extension"
            r'|/(\w+?)(?:_scanner)?\.duckdb_extension" not found'
        ),
        _extension,
    ),
    (re.compile(r"not a valid DuckDB database file"), _no_database),
    (re.compile(r'Table with name "([^"]*)" does not exist because schema "([^"]*)" does not exist'), _other_database),
]
