"""Read a publisher's files in DuckDB: CSV, Parquet and SQLite files, and formats that need extensions."""

from __future__ import annotations

import codecs
import csv
import re
import sqlite3
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.duck.connection import EXTENSION, Connection, name_file_in_errors
from privsql.engine.duck.container import call_with_options, file_pattern, quote_text, reader_call
from privsql.engine.files import (
    DELIMITERS,
    PACKED,
    REMOTE,
    WILD,
    explain_disguise,
    find_files,
    find_text_partitions,
    fold_name,
    is_unicode_path,
    partition_values,
    redact_secrets,
    url_scheme,
)
from privsql.engine.sqlfiles import DIALECT, alias_as, all_rows, column, infer_type, render_sql, table
from privsql.engine.values import decode_text, fit_rows
from privsql.errors import HIDDEN, EngineError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from privsql.engine.database import Relations, Scan

# Extensions -----------------------------------------------------------------------------------------------------------
# Sources that DuckDB reads by an extension. Installed extensions are loaded; privsql installs none.

ATTACHED = ("mysql", "ducklake")  # kinds of origin that are attached like a database
TABLES = {"delta": "delta_scan", "iceberg": "iceberg_scan"}  # table formats that list their own files


def load_extension(
    connection: Connection, name: str, what: str, instead: str = "copy the rows into a Parquet file"
) -> None:
    """Load an extension of DuckDB that is installed already.

    Args:
        connection: The connection that needs it.
        name: The name of the extension.
        what: What needs the extension, for the error message.
        instead: What the publisher can do without the extension, for the error message.

    Raises:
        EngineError: The extension is not installed; the message says how to install it.
    """
    try:
        connection.run(f"LOAD {name}")
    except PrivsqlError as error:
        if "needs DuckDB's extension" not in str(error):
            raise EngineError(f"DuckDB's extension {name} can't be loaded: {error}") from error
        raise EngineError(EXTENSION.format(name=name, what=what, instead=instead)) from None


def load_for_address(connection: Connection, name: str) -> None:
    """Load the DuckDB extension that reads an address, such as one for https or S3; a path needs none."""
    start = url_scheme(name)
    if start:
        load_extension(connection, REMOTE[start], redact_secrets(name), "copy the file to this machine")


def attach_server(connection: Connection, kind: str, address: str, name: str) -> None:
    """Attach a database server or a DuckLake catalogue as ``name``, for reading only.

    Error messages do not show its address, which may hold secrets.
    """
    load_extension(connection, kind, f"source.{kind}")
    target = f"ducklake:{address.removeprefix('ducklake:')}" if kind == "ducklake" else address
    options = "READ_ONLY" if kind == "ducklake" else f"TYPE {kind}, READ_ONLY"
    try:
        connection.run(f"ATTACH {quote_text(target)} AS {name} ({options})")
    except PrivsqlError as error:
        message = str(error).replace(target, "..").replace(address, "..")
        words = [word for word in re.split(r"[@:=\s]+", address) if len(word) > 2]  # these words may be secret
        tells = any(word in message for word in words)
        raise EngineError(f"{kind}: {f'nothing answers at source.{kind}.uri' if tells else message}") from None


# Files ----------------------------------------------------------------------------------------------------------------
# Several files as one table: columns are matched by name, have the same types, and may come from names of folders.
#
# DuckDB takes the columns of the first file for those of all. It rounds 2.5 if the first file has integers, and drops
# columns that the first file lacks. So the columns of all files are compared first.

# Schemes at which DuckDB can expand patterns.
LISTED = ("s3", "s3a", "s3n", "gs", "gcs", "r2", "hf", "az", "azure", "abfs", "abfss")
MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}  # the first bytes of compressed files
CHUNK = 2**20  # bytes that are unpacked at a time
ENCODINGS = ("utf-8", "utf-16", "latin-1")  # encodings that DuckDB reads without an extension
Columns = dict[str, tuple[str, str]]  # name and type of each column, by folded name


def scan_call(connection: Connection, kind: str, scan: Scan) -> str:
    """Return the SQL call that reads the publisher's files as one table.

    Raises:
        EngineError: A file does not exist, can't be read, or has other columns than the first file.
    """
    if kind in TABLES:
        load_for_address(connection, scan.files[0])
        load_extension(connection, kind, f"{redact_secrets(scan.files[0])}, a table of {kind},")
        return f"{TABLES[kind]}({quote_text(scan.files[0])})"
    files, options = _looked_up(connection, scan), dict(scan.options)
    known: list[Columns] = []
    for file in files:
        _require_kind(file, kind, options)
        with name_file_in_errors(redact_secrets(file), whole=True):
            if kind == "csv":
                _require_whole_csv(connection, file, options)
            rows = connection.rows(f"DESCRIBE {_select_all(reader_call(kind, file, **options))}")
        known.append({fold_name(row[0]): (row[0], row[1]) for row in rows})
    if len(files) > 1:
        if not scan.by_name:
            _require_alike(connection, kind, files, known, options)
        options["union_by_name"] = True
    if scan.partitioned:
        _require_partition_columns(files, known)
        as_text = find_text_partitions(files)
        options |= {"hive_types": dict.fromkeys(as_text, "VARCHAR")} if as_text else {}
    return reader_call(kind, *files, hive_partitioning=scan.partitioned, **options)


def _looked_up(connection: Connection, scan: Scan) -> list[str]:
    names, encoding = scan.files, scan.options.get("encoding", ENCODINGS[0])
    if encoding not in ENCODINGS:
        anew = f"write the file anew (iconv -f {encoding} -t UTF-8)"
        load_extension(connection, "encodings", f"encoding {encoding!r}", anew)
    files = list(map(str, find_files([name for name in names if not url_scheme(name)])))
    for file in files:
        if not is_unicode_path(file):
            raise EngineError(f"{file}: its path is not UTF-8, and the engine reads no other; rename it")
    for name in (one for one in names if url_scheme(one)):
        load_for_address(connection, name)
        if url_scheme(name) in LISTED and WILD.search(name):
            met = [row[0] for row in connection.rows(_select_all(f"glob({quote_text(name)})"))]
            if not met:
                raise EngineError(f"{redact_secrets(name)}: no file matches this pattern")
            files += sorted(met)
        else:
            files.append(name)
    return files


def _require_kind(file: str, kind: str, options: dict[str, Any]) -> None:
    """Check that a file on this machine is of the given kind, and is not damaged if it is compressed.

    Without this check DuckDB would silently read the first part of a compressed file that is cut off.

    Raises:
        EngineError: The check fails.
    """
    if url_scheme(file):
        return
    if wrong := explain_disguise(Path(file), kind, options.get("compression")):
        raise EngineError(f"{file}: {wrong}")
    endings = {".gz": "gzip", ".zst": "zstd"}
    packing = options.get("compression") or endings.get(Path(file).suffix.lower(), "none")
    if kind != "csv" or packing == "none":
        return
    try:
        with pa.input_stream(file, compression=packing) as stream:
            while stream.read(CHUNK):
                pass
    except OSError as error:
        why = f"is damaged or cut off ({str(error).splitlines()[0]}); get it anew"
        with suppress(OSError), pa.input_stream(file, compression=None) as stream:
            if not stream.read(len(MAGIC[packing])).startswith(MAGIC[packing]):
                why = f'is not packed by {packing}; say source.options = {{ compression = "none" }}, or rename it'
        raise EngineError(f"{file}: {why}") from error


def _require_whole_csv(connection: Connection, file: str, options: dict[str, Any]) -> None:
    """Check that DuckDB reads a CSV file completely and with the column names of its header.

    DuckDB might leave out the first lines or comments, take the header for a record, or rename columns that have equal
    names.

    Raises:
        EngineError: The check fails.
    """
    try:
        sniffed = connection.rows(_select_all(call_with_options("sniff_csv", quote_text(file_pattern(file)), options)))
    except PrivsqlError as error:
        if ragged := _find_ragged(connection, file, options):
            raise EngineError(ragged) from error
        raise
    delimiter, quote, escape, _, comment, skipped, header, columns, *_ = sniffed[0]
    if len(columns) == 1 and "delimiter" not in options and (ragged := _find_ragged(connection, file, options)):
        raise EngineError(ragged)
    if comment != "(empty)" and "comment" not in options:
        raise EngineError(
            f"lines that begin with {comment!r} would be left out as comments; say source.options = "
            f'{{ comment = "{comment}" }} if they are, else {{ comment = "" }}'
        )
    if skipped and "skip" not in options:
        raise EngineError(
            f"its first {skipped} lines do not fit the others; if they are not part of the table, set "
            f"source.options = {{ skip = {skipped} }}, else correct them"
        )
    if not header and _is_empty(connection, file, options):
        raise EngineError("it is empty: it has neither a header nor a line")
    if not header and "header" not in options and "names" not in options:
        raise EngineError(
            "its first line looks like a record; say source.options = { header = true } if it names the columns, or "
            "{ header = false, names = [..] }"
        )
    names = {fold_name(one["name"]) for one in columns}
    again = any(fold_name(re.sub(r"_\d+$", "", name)) in names - {fold_name(name)} for name in names)
    if not (header and again and "names" not in options):
        return
    quote, escape = ("" if shown_as == "(empty)" else shown_as for shown_as in (quote, escape))
    dialect = {"delimiter": delimiter, "quote": quote, "escape": escape, "skip": skipped}
    raw = {**options, **dialect, "header": False, "all_varchar": True}
    raw.pop("types", None)
    first = next(iter(connection.rows(_select_all(reader_call("csv", file, **raw), 1))), ())
    _refuse_repeated(list(map(str, first)))


def _find_ragged(connection: Connection, file: str, options: dict[str, Any]) -> str:
    """Return what is wrong with a CSV file in which some line has more or fewer fields than the header.

    Only the beginning of the file is examined, from which DuckDB guesses the format. The text is empty if nothing is
    wrong there, or if the file can't be examined.
    """
    encoding, packing, quote = options.get("encoding", ENCODINGS[0]), options.get("compression"), options.get("quote")
    if url_scheme(file) or encoding not in ENCODINGS:
        return ""
    try:
        header = _read_first_line(connection, file, options)
    except EngineError:
        return ""
    quote = '"' if quote is None else quote
    delimiter = options.get("delimiter") or max(DELIMITERS, key=header.count)
    if delimiter not in header or len(delimiter) > 1:
        return ""
    names = split_header(header, delimiter, quote)
    with pa.input_stream(file, compression=None if packing == "none" else packing or "detect") as stream:
        text = stream.read(4 * CHUNK).decode(encoding, errors="replace")
    lines = re.split("\r\n|\n|\r", text)
    if {"\0", "\ufffd"} & set(text) or max(map(len, lines)) > csv.field_size_limit():
        return ""  # other messages say that the format differs or a quote is missing
    first = lines.index(header) if header in lines else options.get("skip", 0)
    how = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    reader = csv.reader(lines[first + 1 : -1] if len(text) >= CHUNK else lines[first + 1 :], delimiter=delimiter, **how)
    widths = [(reader.line_num, len(row)) for row in reader if row]
    wrong = [(number + first + 1, width) for number, width in widths if width != len(names)]
    if not wrong:
        return ""
    if not names[-1] and all(width == len(names) - 1 for _, width in widths):
        known = ", ".join(f'"{name}"' for name in names[:-1])
        return (
            f"its header ends in {delimiter!r} and names a column more than the lines have; delete that, or say "
            f"source.options = {{ names = [{known}], skip = {first + 1} }}"
        )
    number, width = wrong[0]
    padded = f'source.options = {{ delimiter = "{delimiter}", null_padding = true }}'
    padded = f", or say {padded}, which reads NULL where a column is missing" if 1 < width < len(names) else ""
    return (
        f"line {number} has {width} column{'s' * (width != 1)}, not {len(names)}; mend the line, or delete it if it is "
        f"no record{padded}"
    )


def _refuse_repeated(names: Sequence[str]) -> None:
    """Raise ``EngineError`` if two columns of a CSV file have the same name."""
    folded = list(map(fold_name, names))
    twice = next((name for name in names if folded.count(fold_name(name)) > 1), None)
    if twice is not None:
        raise EngineError(
            f"two columns are called {twice!r}; rename one, or set source.options = {{ names = [..], skip = 1 }}"
        )


def parse_table(call: str) -> exp.Table:
    """Parse an SQL call that yields rows, such as ``read_csv('a.csv')``, as a table of a query."""
    return sqlglot.parse_one(call, into=exp.Table, dialect=DIALECT)


def _select_all(call: str, rows: int | None = None) -> str:
    """Return the SELECT for all rows that an SQL call yields, or for the first ``rows`` of them."""
    query = all_rows(parse_table(call))
    return render_sql(query if rows is None else query.limit(rows))


def _require_alike(
    connection: Connection, kind: str, files: Sequence[str], known: Sequence[Columns], options: dict[str, Any]
) -> None:
    """Check that all files have the columns of the first file, with the same types.

    The types in a CSV file without records do not count.

    Args:
        connection: The connection that reads the files.
        kind: "parquet" or "csv".
        files: The files.
        known: The columns of each file.
        options: Options of DuckDB's reader.

    Raises:
        EngineError: Two files differ; the message names them.
    """
    first = 0
    for number, columns in enumerate(known):
        wrong = _find_difference(known[first], columns)
        if wrong and kind == "csv" and known[first].keys() == columns.keys():
            if _is_empty(connection, files[number], options):
                continue
            if _is_empty(connection, files[first], options):
                first = number
                continue
            name = next(one for one in columns if columns[one][1] != known[first][one][1])
            wrong += f', or source.options = {{ types = {{ {columns[name][0]} = "VARCHAR" }} }}'
        if wrong:
            raise EngineError(
                f"{redact_secrets(files[first])} and {redact_secrets(files[number])} differ: {wrong}, or "
                "source.union_by_name = true"
            )


def _find_difference(one: Columns, other: Columns) -> str:
    for name in [*one, *other]:
        if (name in one) != (name in other):
            where = "first" if name in one else "second"
            return f"column {(one if name in one else other)[name][0]!r} is only in the {where}; write them alike"
    for name, (shown_as, kind) in one.items():
        if other[name][1] != kind:
            return f"column {shown_as!r} is {kind} in the first and {other[name][1]} in the second; write them alike"
    return ""


def _is_empty(connection: Connection, file: str, options: dict[str, Any]) -> bool:
    return not connection.rows(_select_all(reader_call("csv", file, **options), 1))


def _require_partition_columns(files: Sequence[str], known: Sequence[Columns]) -> None:
    """Check the columns that folders such as ``year=2020`` add to their files.

    Raises:
        EngineError: Such a column is also in a file, or the files' folders add different columns.
    """
    keys = [list(partition_values(file)) for file in files]
    for file, columns, here in zip(files, known, keys, strict=True):
        both = next((key for key in here if fold_name(key) in columns), None)
        if both is not None:
            raise EngineError(
                f"{redact_secrets(file)}: column {both!r} is both in the file and in its path; leave out "
                "hive_partitioning to take the file's"
            )
        if set(here) != set(keys[0]):
            raise EngineError(
                f"{redact_secrets(files[0])} and {redact_secrets(file)} differ: their folders name other columns "
                f"({', '.join(keys[0]) or 'none'}; {', '.join(here) or 'none'})"
            )


# Texts ----------------------------------------------------------------------------------------------------------------
# CSV files that are read without any record deciding how: the header names the columns, the specification the types.
#
# Every value is read as text and cast by itself. Missing fields of a line are NULL, fields after the last column are
# left out, and bytes that are no text become U+FFFD. So an irregular record is not lost and affects no other record.

OF_BYTES = ("encoding", "compression")  # options that a file in UTF-8 does not need
OF_LINES = (*OF_BYTES, "skip", "comment")  # options that matter for reading the header
OF_TYPES = ("types", "all_varchar", "sample_size", "decimal_separator", "thousands", "dateformat", "timestampformat")
TOLERANT: dict[str, Any] = {
    "auto_detect": False,
    "null_padding": True,
    "strict_mode": False,
    "parallel": False,
    "ignore_errors": True,
    "max_line_size": 2**40,
}
NUMBERS = ("BIGINT", "DOUBLE")
LINE = TOLERANT | {"delimiter": "\x01", "quote": "", "escape": "", "header": False, "columns": {"line": "VARCHAR"}}
WHOLE_NUMBER = r"\s*[+-]?[0-9]+(\.0*)?\s*"


def scan_texts(connection: Connection, scan: Scan, room: Path) -> str:
    """Return the SELECT that reads all columns of CSV files as text.

    Args:
        connection: The connection that reads the files.
        scan: The files.
        room: A folder for copies of files that are not in UTF-8. It must exist until the SELECT has run.

    Raises:
        EngineError: A file does not exist or can't be read, or the files have different columns.
    """
    files, options = _looked_up(connection, scan), dict(scan.options)
    headers = [_read_header(connection, file, options) for file in files]
    columns = [{fold_name(name): (name, "VARCHAR") for name in names} for names, _ in headers]
    if not scan.by_name:
        _require_alike(connection, "csv", files, columns, options)
    if scan.partitioned:
        _require_partition_columns(files, columns)
    alike: dict[tuple[tuple[tuple[str, ...], str], bool], list[str]] = {}
    for number, (file, header) in enumerate(zip(files, headers, strict=True)):
        read = _write_unicode(file, options, room / str(number))
        alike.setdefault((header, read != file), []).append(read)
    known = {key: value for key, value in options.items() if key not in (*OF_TYPES, "names")}
    known = {"quote": '"', "escape": '"', "header": "names" not in options, **known, **TOLERANT}
    known["hive_partitioning"] = scan.partitioned
    if scan.partitioned:
        known["hive_types_autocast"] = False
    calls = []
    for ((names, delimiter), anew), some in alike.items():
        how = {key: value for key, value in known.items() if not (anew and key in OF_BYTES)}
        columns_as_text = dict.fromkeys(names, "VARCHAR")
        calls.append(reader_call("csv", *some, **how | {"delimiter": delimiter, "columns": columns_as_text}))
    return " UNION ALL BY NAME ".join(map(_select_all, calls))


def _write_unicode(file: str, options: dict[str, Any], room: Path) -> str:
    """Return a CSV file in UTF-8: the file itself, or a converted copy in folder ``room``.

    In the copy, U+FFFD replaces bytes that are no text, and the rows are not compressed, since DuckDB would need memory
    for the longest line of a compressed file. A file at an address, or in an encoding that needs an extension, is not
    copied.
    """
    encoding, packing = options.get("encoding", ENCODINGS[0]), options.get("compression", "detect")
    if url_scheme(file) or encoding not in ENCODINGS:
        return file

    def decode_file(errors: str) -> Iterator[str]:
        with pa.input_stream(file, compression=None if packing == "none" else packing) as stream:
            yield from codecs.iterdecode(iter(lambda: stream.read(CHUNK), b""), encoding, errors)

    is_packed = packing != "none" and (packing != "detect" or Path(file).suffix.lower() in PACKED)
    if encoding == ENCODINGS[0] and not is_packed:
        with suppress(UnicodeDecodeError):
            for _ in decode_file("strict"):
                pass
            return file
    folder = room.joinpath(*(part for part in Path(file).parent.parts if "=" in part))  # these folders are columns
    folder.mkdir(parents=True)
    with (folder / "text.csv").open("w", encoding=ENCODINGS[0], newline="") as written:
        written.writelines(decode_file("replace"))
    return str(folder / "text.csv")


def _read_header(connection: Connection, file: str, options: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the column names of a CSV file, and the separator between its fields.

    Both come from the options or, if these do not say it, from the file's first line.
    """
    _require_kind(file, "csv", options)
    names = tuple(options.get("names") or ())
    if not options.get("header", not names):
        if not names:
            raise EngineError(
                f"{redact_secrets(file)} has no header; name its columns: source.options = {{ names = [..] }}"
            )
        return names, options.get("delimiter", DELIMITERS[0])
    with name_file_in_errors(redact_secrets(file), whole=True):
        line, quote = _read_first_line(connection, file, options), options.get("quote", '"')
        unquoted = re.sub(rf"{re.escape(quote)}.*?{re.escape(quote)}", "", line) if quote else line
        delimiter = options.get("delimiter") or max(DELIMITERS, key=unquoted.count)
        fields = [*names, *split_header(line, delimiter, quote)[len(names) :]]
        columns = [name or f"column{number}" for number, name in enumerate(fields)]
        _refuse_repeated(columns)
        return tuple(columns), delimiter


def _read_first_line(connection: Connection, file: str, options: dict[str, Any]) -> str:
    """Return the first line of a CSV file after those that the options skip, and after comments."""
    if url_scheme(file):
        line_options = {key: options[key] for key in OF_LINES if key in options}
        first = connection.rows(_select_all(reader_call("csv", file, **LINE, **line_options), 1))
        lines = [str(first[0][0] or "")] if first else []
    else:
        packing, encoding = options.get("compression", "detect"), options.get("encoding", ENCODINGS[0])
        with pa.input_stream(file, compression=None if packing == "none" else packing) as stream:
            begun = stream.read(CHUNK)
        if encoding == ENCODINGS[0] and begun[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise EngineError('it is not UTF-8; say how it is written: source.options = { encoding = "utf-16" }')
        text = begun.decode(encoding, errors="replace").removeprefix("\ufeff")
        lines = re.split("\r\n|\n|\r", text)[options.get("skip", 0) :]
    line = next((one for one in lines if not (comment := options.get("comment")) or not one.startswith(comment)), "")
    if "\ufffd" in line:
        wrong = "its first line is not UTF-8; say how the file is written"
        raise EngineError(f'{wrong}: source.options = {{ encoding = "latin-1" }}')
    if not line:
        raise EngineError(
            "its first line is empty; it should name the columns; or source.options = { skip = .. } leaves it out"
        )
    return line


def split_header(line: str, delimiter: str, quote: str) -> list[str]:
    """Split the first line of a CSV file into its fields.

    >>> split_header('a,"b,c"', ",", '"')
    ['a', 'b,c']
    """
    if len(delimiter) > 1:
        return [name.strip(quote) if quote else name for name in line.split(delimiter)]
    return next(csv.reader([line], delimiter=delimiter, quotechar=quote)) if quote else line.split(delimiter)


def type_columns(
    db: Relations,
    rows: exp.Table,
    types: Mapping[str, str | None],
    options: Mapping[str, Any],
    texts: Container[str] | None = None,
) -> exp.Select:
    """Return the query that casts the text columns of a table to the types that the specification determines.

    A column's type comes from the options, or else from ``types``; a column without a type stays text. A text that does
    not fit its type becomes NULL.

    Args:
        db: The session that has the table.
        rows: The table.
        types: The type of each column, by its name in one case (``fold_name``). None for a column whose values decide
            its type.
        options: The options of a CSV file.
        texts: The names of the columns that hold texts, in one case; None if all do. The other columns are only cast
            between numeric types, since pandas holds whole numbers as floats where one is missing.
    """
    stated = {fold_name(name): kind for name, kind in (options.get("types") or {}).items()}
    wanted = {} if options.get("all_varchar") else types
    columns = []
    for field in db.list_fields(rows):
        kind = stated.get(fold_name(field.name)) or wanted.get(fold_name(field.name), "VARCHAR")
        value: exp.Expr = column(field.name)
        is_text = texts is None or fold_name(field.name) in texts
        if kind is None and is_text:
            values = db.rows(exp.select(value).distinct().from_(rows))
            kind = infer_type(str(text) for (text,) in values if text is not None)
        if is_text or (kind in NUMBERS and field.type in NUMBERS):
            value = cast_text(exp.cast(value, "VARCHAR"), kind or "VARCHAR", options)
        columns.append(alias_as(value, field.name))
    return exp.select(*columns).from_(rows)


def cast_text(value: exp.Expr, kind: str, options: Mapping[str, Any]) -> exp.Expr:
    """Return an SQL expression that casts a text to a type; it is NULL for a text that does not fit the type.

    Args:
        value: The text.
        kind: The type.
        options: The options of a CSV file, which state formats such as that of dates.
    """
    wanted = exp.DataType.build(kind, dialect=DIALECT)
    if wanted.this in exp.DataType.TEXT_TYPES:
        return value
    written = {"DATE": "dateformat", "TIMESTAMP": "timestampformat"}.get(wanted.sql(dialect=DIALECT), "")
    if written in options:
        value = exp.Anonymous(this="try_strptime", expressions=[value, exp.Literal.string(options[written])])
    if wanted.this in exp.DataType.NUMERIC_TYPES:
        for mark, instead in ((options.get("thousands"), ""), (options.get("decimal_separator"), ".")):
            if mark and mark != instead:
                parts = [value, exp.Literal.string(mark), exp.Literal.string(instead)]
                value = exp.Anonymous(this="replace", expressions=parts)
    fitting = exp.TryCast(this=value, to=wanted)
    if wanted.this not in exp.DataType.INTEGER_TYPES:
        return fitting
    is_whole = exp.Anonymous(this="regexp_full_match", expressions=[value.copy(), exp.Literal.string(WHOLE_NUMBER)])
    return exp.Case().when(is_whole, fitting)


# Parquet --------------------------------------------------------------------------------------------------------------
# Files that a single value makes unreadable, such as a text that is not UTF-8, or a time that is out of range.


def fit_parquet(connection: Connection, scan: Scan, call: str, room: Path) -> str:
    """Return an SQL call that reads Parquet files, or copies of them without the values that DuckDB can't read.

    Args:
        connection: The connection that reads the files.
        scan: The files.
        call: The SQL call that reads the files themselves. It is returned if DuckDB can read all values.
        room: A folder for the copies. These replace values that DuckDB can't read, such as a text that is not UTF-8,
            and keep the columns' types. Files at an address are not copied.
    """
    columns = [(row[0], row[1]) for row in connection.rows(f"DESCRIBE {_select_all(call)}")]
    if any(map(url_scheme, scan.files)) or _reads_values(connection, call, columns):
        return call
    files = []
    for number, file in enumerate(_looked_up(connection, scan)):
        folder = room.joinpath(str(number), *(part for part in Path(file).parent.parts if "=" in part))
        folder.mkdir(parents=True)
        files.append(str(folder / "rows.parquet"))
        with name_file_in_errors(file, whole=True):
            _write_fitting(Path(file), Path(files[-1]))
    fitting = parse_table(scan_call(connection, "parquet", replace(scan, files=tuple(files))))
    kinds = [(name, exp.DataType.build(kind, dialect=DIALECT)) for name, kind in columns]
    casts = [alias_as(exp.TryCast(this=column(name), to=kind), name) for name, kind in kinds]
    return f"({render_sql(exp.select(*casts).from_(fitting))})"


def _reads_values(connection: Connection, call: str, columns: Sequence[tuple[str, str]]) -> bool:
    """Return whether DuckDB can read every value in the columns of texts and of points in time.

    The test hashes all values; a simpler function might be answered from the file's statistics alone.
    """
    names = [name for name, kind in columns if "VARCHAR" in kind or "TIME" in kind]
    read: list[exp.Expr] = [exp.Max(this=exp.func("hash", column(name))) for name in names]
    first, last = (exp.cast(exp.Literal.string(text), "TIME") for text in ("00:00:00", "24:00:00"))
    hours = [exp.Between(this=column(name), low=first, high=last) for name, kind in columns if kind == "TIME"]
    if not read:
        return True
    items = [*read, *(exp.CountIf(this=exp.not_(one)) for one in hours)]
    query = exp.select(*(alias_as(one, f"c{k}") for k, one in enumerate(items)))
    try:
        rows = connection.rows(render_sql(query.from_(parse_table(call))))
    except PrivsqlError:
        return False
    return not any(rows[0][len(read) :])


def _write_fitting(file: Path, written: Path) -> None:
    """Write a copy of a Parquet file without values that an engine can't read, such as times too far in the future.

    They become NULL, or U+FFFD inside a text.
    """
    import pyarrow.parquet as pq

    try:
        categories = [field.name for field in pq.read_schema(file) if pa.types.is_dictionary(field.type)]
        # Otherwise Arrow decodes these values, and fails.
        with pq.ParquetFile(file, read_dictionary=categories) as rows:
            schema = fit_rows(pa.Table.from_batches([], rows.schema_arrow)).schema
            with pq.ParquetWriter(written, schema) as writer:
                for batch in rows.iter_batches():
                    writer.write_table(fit_rows(pa.Table.from_batches([batch])).cast(schema))
    except (pa.ArrowException, OSError) as error:  # the error's text may show a value
        raise EngineError(HIDDEN) from error


# SQLite ---------------------------------------------------------------------------------------------------------------
# A publisher's SQLite file, read by Python's ``sqlite3``: rows as Arrow, in the types of their values.
#
# In SQLite each value has a type, and its column has none. So the types of all values are looked up first, and a column
# of numbers that also holds texts is refused. (A driver that guesses types by the first rows fails if these are NULL.)

SQLITE = "sqlite"  # sqlglot's name for SQLite's dialect
ROWS = 2**16  # rows that are read at a time
TYPES = {
    frozenset[str](): pa.string(),
    frozenset({"integer"}): pa.int64(),
    frozenset({"real"}): pa.float64(),
    frozenset({"integer", "real"}): pa.float64(),
    frozenset({"text"}): pa.string(),
}


class SQLiteFile:
    """A SQLite file that is open for reading; all reads see its contents of one moment."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            EngineError: The file can't be opened.
        """
        with _translate_sqlite_errors():
            place = f"{path.resolve().as_uri()}?mode=ro"
            self._file = sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)
            self._file.execute("BEGIN")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def list_tables(self) -> list[str]:
        """Return the names of the file's tables and views."""
        listed = exp.select("name").from_("sqlite_master").where(exp.column("type").isin("table", "view"))
        with _translate_sqlite_errors():
            names = [str(name) for (name,) in self._file.execute(listed.order_by("name").sql(SQLITE)).fetchall()]
        return [name for name in names if not name.startswith("sqlite_")]

    def table_query(self, name: str) -> str:
        """Return the SELECT for all rows of a table or view.

        Args:
            name: The name, with the schema before a dot if it has one.
        """
        try:
            parsed = exp.to_table(name, dialect=SQLITE)
        except SqlglotError as error:
            raise UsageError(f"table {name!r} is not a name; quote its parts") from error
        return all_rows(table(parsed.name, schema=parsed.db)).sql(SQLITE)

    def stream_rows(self, query: str, *, as_text: bool = False) -> pa.RecordBatchReader:
        """Run a SELECT and return a stream of its rows.

        Args:
            query: The SELECT.
            as_text: Whether every value becomes a text.

        Raises:
            UsageError: A column holds values of several types, or bytes.
        """
        if as_text:
            self._file.text_factory = decode_text
        with _translate_sqlite_errors():
            cursor = self._file.execute(query)
            names = [described[0] for described in cursor.description]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UsageError(f"two columns are called {twice!r}; rename one in source.query")
            kinds = dict.fromkeys(names, pa.string())
            if not as_text:
                typed = [exp.func("typeof", column(name)) for name in names]
                within = cast("exp.Query", sqlglot.parse_one(query, dialect=SQLITE)).subquery("q")
                met = self._file.execute(exp.select(*typed).distinct().from_(within).sql(SQLITE)).fetchall()
                for at, name in enumerate(names):
                    found = frozenset(row[at] for row in met) - {"null"}
                    if found not in TYPES:
                        raise UsageError(
                            f"column {name!r} holds values of type {' and '.join(sorted(found))}, which can't be "
                            "published as one; cast it in source.query"
                        )
                    kinds[name] = TYPES[found]
            schema = pa.schema(kinds)

        def batches() -> Iterator[pa.RecordBatch]:
            while True:
                with _translate_sqlite_errors():
                    rows = cursor.fetchmany(ROWS)
                if not rows:
                    return
                columns = zip(*(map(_as_text, row) for row in rows) if as_text else rows, strict=True)
                yield pa.RecordBatch.from_arrays(list(map(_as_array, columns, schema)), schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


def _as_text(value: Any) -> str | None:
    """Return a value of SQLite as text; None for NULL and for bytes."""
    return None if value is None or isinstance(value, bytes) else str(value)


def _as_array(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise EngineError(f"column {field.name!r}: a value is not a {field.type}: {error}") from error


@contextmanager
def _translate_sqlite_errors() -> Iterator[None]:
    """Turn SQLite's errors in the block into privsql's errors with a message of one line."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = EngineError if "open" in str(error) or "lock" in str(error) or "decode" in str(error) else UsageError
        raise kind(f"SQLite: {error}") from error
    except sqlite3.Error as error:
        raise EngineError(f"SQLite: {error}") from error
