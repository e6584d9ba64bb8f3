"""Messages of the Postgres protocol, its types as text and in binary, and SCRAM-SHA-256. Nothing here reads a socket.

The sides agree on few messages, and a package for them would have to be trusted with the token, so they are written
here. Source: PostgreSQL 15, chapter 55 (protocol version 3.0), and RFC 5802 and 7677.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import re
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from privsql.errors import PrivsqlError
from privsql.keyed_random import random_token

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Messages -------------------------------------------------------------------------------------------------------------

TLS_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80_877_103, 80_877_104, 80_877_102
TEXT, BINARY = 0, 1
COPY_HEADER, COPY_TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


class ProtocolError(Exception):
    """A message that the protocol does not know: the connection ends."""


class SessionError(PrivsqlError):
    """An error of the session, with its SQLSTATE."""

    def __init__(self, message: str, code: str = "0A000") -> None:
        super().__init__(message)
        self.sqlstate = code


def make_message(kind: str, *parts: bytes) -> bytes:
    """Return a message: its letter, its length, and its contents."""
    body = b"".join(parts)
    return kind.encode() + struct.pack("!i", len(body) + 4) + body


def pack_text(text: str) -> bytes:
    """Return a text as messages hold it: with a zero behind it, and none within."""
    return text.replace("\0", "").encode("utf-8", "replace") + b"\0"


def make_report(kind: str, error: str, code: str, severity: str = "ERROR") -> bytes:
    """Return an error (E) or a notice (N). What follows the first semicolon of a message is the hint."""
    message, _, hint = error.partition("; ")
    fields = {"S": severity, "V": severity, "C": code, "M": message} | ({"H": hint} if hint else {})
    return make_message(kind, *(name.encode() + pack_text(text) for name, text in fields.items()), b"\0")


class MessageReader:
    """Takes the parts of a message one by one; ``ProtocolError`` where it ends too early."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take_numbers(self, form: str) -> tuple[int, ...]:
        """Return numbers in the form of ``struct``."""
        size = struct.calcsize(f"!{form}")
        return struct.unpack(f"!{form}", self.take_bytes(size))

    def take_bytes(self, size: int) -> bytes:
        """Return so many bytes."""
        if size < 0 or self._at + size > len(self._body):
            raise ProtocolError("a message ends too early")
        self._at += size
        return self._body[self._at - size : self._at]

    def take_text(self) -> str:
        """Return the text up to the next zero; ``SessionError`` for what is no UTF-8."""
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a string has no end")
        text = self.take_bytes(end - self._at)
        self._at += 1
        return decode_text(text)

    def take_formats(self) -> tuple[int, ...]:
        """Return a list of formats; ``SessionError`` for an unknown one."""
        (number,) = self.take_numbers("h")
        formats = self.take_numbers(f"{max(number, 0)}h")
        if any(one not in (TEXT, BINARY) for one in formats):
            raise SessionError("unknown format of a value; 0 is text and 1 binary", "08P01")
        return formats

    @property
    def has_more(self) -> bool:
        """Return True if something is left."""
        return self._at < len(self._body)


def decode_text(text: bytes) -> str:
    """Return a text; ``SessionError`` for what is no UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise SessionError("a string is not valid UTF-8", "22021") from error


def choose_format(formats: Sequence[int], at: int) -> int:
    """Return the format of the value at a place: none means text, and one is that of all."""
    return TEXT if not formats else formats[0] if len(formats) == 1 else formats[at]


# Types ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WireType:
    """A type: its number and that of its lists, bytes (-1 for any number), category and name in SQL."""

    name: str
    oid: int
    array: int
    size: int
    category: str
    label: str


_TYPES = """
    bool 16 1000 1 B boolean; bytea 17 1001 -1 U bytea; char 18 1002 1 Z "char"; name 19 1003 64 S name;
    int8 20 1016 8 N bigint; int2 21 1005 2 N smallint; int4 23 1007 4 N integer; regproc 24 1008 4 N regproc;
    text 25 1009 -1 S text; oid 26 1028 4 N oid; json 114 199 -1 U json; float4 700 1021 4 N real;
    float8 701 1022 8 N double precision; unknown 705 0 -2 X unknown; bpchar 1042 1014 -1 S character;
    varchar 1043 1015 -1 S character varying; date 1082 1182 4 D date; time 1083 1183 8 D time without time zone;
    timestamp 1114 1115 8 D timestamp without time zone; timestamptz 1184 1185 8 D timestamp with time zone;
    interval 1186 1187 16 T interval; numeric 1700 1231 -1 N numeric; uuid 2950 2951 16 U uuid;
    regclass 2205 2210 4 N regclass; regtype 2206 2211 4 N regtype
"""
TYPES = {
    one[0]: WireType(one[0], int(one[1]), int(one[2]), int(one[3]), one[4], one[5])
    for one in (part.split(maxsplit=5) for part in _TYPES.split(";"))
}
BY_OID = {one.oid: one for one in TYPES.values()}
LISTS = {one.array: one for one in TYPES.values() if one.array}
ENGINE = {  # the types of the engine; all others are text
    "BOOLEAN": "bool", "TINYINT": "int2", "SMALLINT": "int2", "INTEGER": "int4", "BIGINT": "int8", "UTINYINT": "int2",
    "USMALLINT": "int4", "UINTEGER": "int8", "UBIGINT": "numeric", "HUGEINT": "numeric", "UHUGEINT": "numeric",
    "FLOAT": "float4", "DOUBLE": "float8", "DECIMAL": "numeric", "DATE": "date", "TIME": "time",
    "TIMESTAMP": "timestamp", "TIMESTAMP WITH TIME ZONE": "timestamptz", "BLOB": "bytea", "UUID": "uuid",
}  # fmt: skip
NUMBER = re.compile(r"\s*[+-]?(\d{1,60}(\.\d{0,60})?|\.\d{1,60})(e[+-]?\d{1,3})?\s*", re.IGNORECASE)


def find_type(kind: str) -> tuple[WireType, bool]:
    """Return the type of the engine's, and whether it is a list of such."""
    element = kind.removesuffix("[]")
    return TYPES[ENGINE.get(element.split("(")[0], "text")], element != kind


# Values -> client ---

EPOCH = dt.datetime(2000, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)
CLOCKS: dict[str, Any] = {"date": dt.date, "time": dt.time, "timestamp": dt.datetime, "timestamptz": dt.datetime}
NUMBERS = {  # the forms of types that are numbers in binary, as of ``struct``
    "int2": "h", "int4": "i", "int8": "q", "oid": "I", "float4": "f", "float8": "d", "date": "i", "time": "q",
    "timestamp": "q", "timestamptz": "q",
}  # fmt: skip


def encode_value(value: Any, kind: WireType, form: int, *, is_list: bool = False) -> bytes | None:
    """Return a value in a format; ``SessionError`` for one that has no such form."""
    if value is None:
        return None
    try:
        if form == TEXT:
            return (_list_text(value) if isinstance(value, list | tuple) else _as_text(value, kind)).encode()
        return _list_binary(value, kind) if is_list else _write_binary(value, kind)
    except (ValueError, TypeError, AttributeError, ArithmeticError, struct.error) as error:
        raise SessionError(
            f"{str(value)[:60]!r} is not a valid {kind.label} in binary; use the text format", "22P03"
        ) from error


def _as_text(value: Any, kind: WireType) -> str:
    if isinstance(value, bool) and kind.category != "N":
        return "t" if value else "f"
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value).removesuffix(".0"))
    if isinstance(value, bool | int):
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dt.datetime):
        zoned = value.tzinfo is not None
        return str((value.astimezone(dt.UTC) if zoned else value).replace(tzinfo=None)) + ("+00" if zoned else "")
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return str(value)


def _list_text(values: Sequence[Any]) -> str:
    texts = [None if one is None else _as_text(one, TYPES["bool" if isinstance(one, bool) else "text"])
             for one in values]  # fmt: skip
    quoted = ['"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"' if one is not None else "NULL" for one in texts]
    return "{" + ",".join(quoted) + "}"


def _list_binary(values: Sequence[Any], kind: WireType) -> bytes:
    items = [encode_value(one, kind, BINARY) for one in values]
    head = struct.pack("!iii", 1 if items else 0, int(None in items), kind.oid)
    head += struct.pack("!ii", len(items), 1) if items else b""
    return head + b"".join(pack_value(one) for one in items)


def pack_value(value: bytes | None) -> bytes:
    """Return a value with its length before it; -1 stands for NULL."""
    return b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value


def _write_binary(value: Any, kind: WireType) -> bytes:
    if kind.name in NUMBERS:
        return struct.pack(f"!{NUMBERS[kind.name]}", _as_number(value, kind.name))
    if kind.name == "numeric":
        return _numeric_bytes(value)
    if kind.name == "uuid":
        return bytes.fromhex(str(value).replace("-", ""))
    if kind.name in ("bool", "bytea"):
        return bytes([bool(value)]) if kind.name == "bool" else bytes(value)
    return _as_text(value, TYPES["text"]).encode()


def _as_number(value: Any, name: str) -> int | float:
    """Return a number, of a moment the days or microseconds since ``EPOCH``."""
    if name not in CLOCKS:
        return float(value) if name.startswith("float") else int(value)
    moment = CLOCKS[name].fromisoformat(value) if isinstance(value, str) else value
    if name == "date":
        return int(moment.toordinal()) - EPOCH.toordinal()
    moment = dt.datetime.combine(EPOCH, moment) if name == "time" else moment
    return int(((moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment) - EPOCH) // MICROSECOND)


def _numeric_bytes(value: Any) -> bytes:
    """Return a number as groups of four decimal digits, the weight of the first, its sign and its scale."""
    number = value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else str(value))
    if not number.is_finite():
        return struct.pack("!hhHH", 0, 0, 0xC000 if number.is_nan() else 0xD000 if number > 0 else 0xF000, 0)
    whole, _, fraction = f"{abs(number):f}".partition(".")
    scale = len(fraction)
    whole, fraction = "0" * (-len(whole) % 4) + whole, fraction + "0" * (-scale % 4)
    groups = [int((whole + fraction)[at : at + 4]) for at in range(0, len(whole + fraction), 4)]
    weight = len(whole) // 4 - 1
    while groups and not groups[0]:
        groups, weight = groups[1:], weight - 1
    sign = 0x4000 if number < 0 else 0
    return struct.pack(f"!hhHH{len(groups)}h", len(groups), weight if groups else 0, sign, scale, *groups)


# Values <- client ---

CASTS = {"date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ", "uuid": "UUID"}
TRUTHS = {"t": "TRUE", "true": "TRUE", "1": "TRUE", "on": "TRUE", "yes": "TRUE"}
TRUTHS |= {"f": "FALSE", "false": "FALSE", "0": "FALSE", "off": "FALSE", "no": "FALSE"}
ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"\\]+)', re.DOTALL)


def read_parameter(value: bytes | None, oid: int, form: int) -> str:
    """Return a parameter as a constant of SQL; ``SessionError`` for one that its type does not have."""
    if value is None:
        return "NULL"
    kind = BY_OID.get(oid) or LISTS.get(oid) or TYPES["text"]
    try:
        if oid in LISTS:
            items = _read_list(value, kind) if form == BINARY else split_list(decode_text(value))
            return f"[{', '.join(_as_constant(one, kind) if one is not None else 'NULL' for one in items)}]"
        return _as_constant(_read_binary(value, kind) if form == BINARY else decode_text(value), kind)
    except (struct.error, ValueError, KeyError, OverflowError) as error:
        raise SessionError(f"a parameter is not a valid {kind.label}", "22P02" if form == TEXT else "22P03") from error


def _as_constant(text: str, kind: WireType) -> str:
    if kind.name == "bool":
        return TRUTHS[text.strip().lower()]
    if kind.category == "N" and not kind.name.startswith("reg"):
        if NUMBER.fullmatch(text):
            return f"({text.strip()})" if text.strip()[0] in "+-" else text.strip()
        if kind.name not in ("float4", "float8", "numeric") or not text.strip().lower().lstrip("+-").startswith(
            ("nan", "inf")
        ):
            raise ValueError(text)
        return f"CAST({quote_text(text)} AS DOUBLE)"
    return f"CAST({quote_text(text)} AS {CASTS[kind.name]})" if kind.name in CASTS else quote_text(text)


def quote_text(text: str) -> str:
    """Return a text as a constant of SQL."""
    if "\0" in text:
        raise ValueError("a zero within a text")
    return "'" + text.replace("'", "''") + "'"


def split_list(text: str) -> list[str | None]:
    """Return the items of a list in Postgres's form, ``{a,b}``."""
    found = [(re.sub(r"\\(.)", r"\1", one[1]) if one[1] is not None else one[2].strip(), one[1] is not None)
             for one in ITEM.finditer(text)]  # fmt: skip
    return [None if one.upper() == "NULL" and not quoted else one for one, quoted in found]


def _read_list(value: bytes, kind: WireType) -> list[str | None]:
    reader = MessageReader(value)
    try:
        dimensions, _, _ = reader.take_numbers("iii")
        if dimensions not in (0, 1):
            raise ValueError(dimensions)
        (length, _) = reader.take_numbers("ii") if dimensions else (0, 0)
        sizes = (reader.take_numbers("i")[0] for _ in range(length))
        return [_read_binary(reader.take_bytes(size), kind) if size >= 0 else None for size in sizes]
    except ProtocolError as error:
        raise ValueError(str(error)) from error


def _read_binary(value: bytes, kind: WireType) -> str:
    if kind.name in NUMBERS:
        number = struct.unpack(f"!{NUMBERS[kind.name]}", value)[0]
        if kind.name not in CLOCKS:
            return repr(number)
        if kind.name == "date":
            return str(EPOCH.date() + dt.timedelta(days=number))
        moment = EPOCH + number * MICROSECOND
        return str(moment.time()) if kind.name == "time" else f"{moment}{'+00' * (kind.name == 'timestamptz')}"
    if kind.name == "bool":
        return str(value[:1] != b"\0").lower()
    if kind.name in ("bytea", "interval"):
        raise ValueError(kind.name)
    return (
        _read_numeric(value) if kind.name == "numeric" else value.hex() if kind.name == "uuid" else decode_text(value)
    )


def _read_numeric(value: bytes) -> str:
    length, weight, sign, scale = struct.unpack("!hhHH", value[:8])
    if sign not in (0, 0x4000):
        return "NaN" if sign == 0xC000 else "Infinity" if sign == 0xD000 else "-Infinity"
    groups = struct.unpack(f"!{length}h", value[8:])
    number = sum((Decimal(one).scaleb(4 * (weight - at)) for at, one in enumerate(groups)), Decimal(0))
    return f"{-number if sign else number:.{scale}f}"


# Results --------------------------------------------------------------------------------------------------------------


@dataclass
class Column:
    """A column of a result."""

    name: str
    kind: WireType
    is_list: bool = False

    def describe(self, form: int) -> bytes:
        """Return its entry in a description of rows."""
        oid, size = (self.kind.array, -1) if self.is_list else (self.kind.oid, self.kind.size)
        return pack_text(self.name) + struct.pack("!ihihih", 0, 0, oid, size, -1, form)


@dataclass
class Result:
    """Columns and rows that a statement gives, and notes; ``copied``: the format of COPY, and its options."""

    word: str
    columns: list[Column] | None = None
    rows: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = ()
    copied: dict[str, str] | None = None
    at: int = 0

    def describe(self, formats: Sequence[int]) -> bytes:
        """Return the message that describes its rows."""
        if self.columns is None or self.copied is not None:
            return make_message("n")
        if len(formats) not in (0, 1, len(self.columns)):
            raise SessionError(f"{len(formats)} formats given for {len(self.columns)} columns", "08P01")
        entries = [one.describe(choose_format(formats, at)) for at, one in enumerate(self.columns)]
        return make_message("T", struct.pack("!h", len(entries)), *entries)

    def send(self, formats: Sequence[int], most: int = 0) -> Iterator[bytes]:
        """Yield the messages of its rows, at most so many if that is not 0, and of its end."""
        for note in self.notes if not self.at else ():
            yield make_report("N", note, "00000", "NOTICE")
        if self.copied is not None:
            yield from self._send_copy(self.copied)
        elif self.columns is None:
            yield self._make_end(len(self.rows)) if self.word else make_message("I")
            return
        end = min(self.at + most, len(self.rows)) if most and self.copied is None else len(self.rows)
        forms = [choose_format(formats, at) for at in range(len(self.columns or ()))]
        first, self.at = self.at, end
        for row in self.rows[first:end] if self.copied is None else ():
            yield make_message("D", self._pack_row(row, forms))
        yield self._make_end(end - first) if end == len(self.rows) else make_message("s")

    def _make_end(self, number: int) -> bytes:
        counted = self.word in ("SELECT", "COPY", "FETCH", "MOVE")
        return make_message("C", pack_text(f"{self.word} {number}" if counted else self.word))

    def _pack_row(self, row: Sequence[Any], forms: Sequence[int]) -> bytes:
        cells = [encode_value(value, one.kind, form, is_list=one.is_list)
                 for value, one, form in zip(row, self.columns or (), forms, strict=True)]  # fmt: skip
        return struct.pack("!h", len(cells)) + b"".join(map(pack_value, cells))

    def _send_copy(self, options: Mapping[str, str]) -> Iterator[bytes]:
        columns, form = self.columns or [], options["format"]
        forms = [BINARY if form == "binary" else TEXT] * len(columns)
        yield make_message("H", struct.pack(f"!bh{len(columns)}h", forms[0] if forms else 0, len(columns), *forms))
        if form == "binary":
            lines = [*(self._pack_row(row, forms) for row in self.rows), COPY_TRAILER]
            yield from (make_message("d", b"" if at else COPY_HEADER, line) for at, line in enumerate(lines))
        else:
            header = [[one.name for one in columns]] if options["header"] in ("", "true", "on", "1", "match") else []
            for row in (*header, *self.rows):
                kinds = [one.kind for one in columns] if row not in header else [TYPES["text"]] * len(columns)
                cells = [encode_value(one, kind, TEXT) for one, kind in zip(row, kinds, strict=True)]
                texts = [None if one is None else one.decode() for one in cells]
                yield make_message("d", (_csv_line if form == "csv" else _text_line)(texts, options).encode())
        yield make_message("c")


def _csv_line(texts: Sequence[str | None], options: Mapping[str, str]) -> str:
    mark, null, delimiter = options.get("quote", '"'), options.get("null", ""), options.get("delimiter", ",")
    special = {mark, delimiter, "\n", "\r"}
    quoted = [null if one is None else f"{mark}{one.replace(mark, mark * 2)}{mark}"
              if one == null or special & set(one) else one for one in texts]  # fmt: skip
    return delimiter.join(quoted) + "\n"


def _text_line(texts: Sequence[str | None], options: Mapping[str, str]) -> str:
    delimiter, null = options.get("delimiter", "\t"), options.get("null", "\\N")
    marks = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", delimiter: f"\\{delimiter}"}
                          | ({"\t": "\\t"} if delimiter == "\t" else {}))  # fmt: skip
    return delimiter.join(null if one is None else one.translate(marks) for one in texts) + "\n"


# SCRAM ----------------------------------------------------------------------------------------------------------------
# SCRAM-SHA-256: each side proves that it knows the password, and neither sends it.


def draw_bytes(size: int) -> bytes:
    """Return so many bytes that nobody can guess, at most 32."""
    return hashlib.sha256(random_token().encode()).digest()[:size]


ROUNDS = 4_096
SCRAM = "SCRAM-SHA-256"


class ScramSecret:
    """Keys by which a server checks a password, with a salt."""

    def __init__(self, password: str) -> None:
        self.salt = draw_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), self.salt, ROUNDS)
        self.stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
        self.server = hmac.digest(salted, b"Server Key", "sha256")


class ScramExchange:
    """One exchange: the answer to the client's first message, then to its last one."""

    def __init__(self, secret: ScramSecret, first: bytes) -> None:
        header, _, self._bare = first.partition(b",,")
        nonce = re.search(rb"(?:^|,)r=([!-+\--~]+)", self._bare)
        if header not in (b"n", b"y") or nonce is None:
            raise SessionError("this is not a SCRAM-SHA-256 message without channel binding", "28000")
        self._secret = secret
        self._binding = base64.b64encode(header + b",,")
        self._nonce = nonce[1] + random_token().encode()
        self.challenge = b"r=%b,s=%b,i=%d" % (self._nonce, base64.b64encode(secret.salt), ROUNDS)

    def verify(self, last: bytes) -> bytes:
        """Return the server's last message; ``SessionError`` for a wrong password."""
        unproven, _, text = last.partition(b",p=")
        signed = b",".join((self._bare, self.challenge, unproven))
        signature = hmac.digest(self._secret.stored, signed, "sha256")
        proof = base64.b64decode(text) if re.fullmatch(rb"[A-Za-z0-9+/]{43}=", text) else b""
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        is_known = hmac.compare_digest(hashlib.sha256(key).digest(), self._secret.stored)
        if not is_known or unproven != b"c=%b,r=%b" % (self._binding, self._nonce):
            raise SessionError("password authentication failed; the password is the token", "28P01")
        return b"v=" + base64.b64encode(hmac.digest(self._secret.server, signed, "sha256"))


# Errors ---------------------------------------------------------------------------------------------------------------

STATES = {
    "LateError": "57014", "BusyError": "53300", "GuaranteeError": "XX001", "InfeasibleError": "22023",
    "ProtocolError": "08P01", "EngineError": "58000", "UsageError": "0A000",
}  # fmt: skip
REFUSALS = {
    r"the query can't be parsed|only one SELECT": "42601", r"column '.*' is not in the release": "42703",
    r"(JOIN: )?there is no (lookup )?table": "42P01", r".*more than [\d,]+( figures)?;": "54000",
}  # fmt: skip


def find_sqlstate(error: Exception) -> str:
    """Return the code of an error: 0A000 (not supported) for what ``query`` refuses for no other reason."""
    if isinstance(error, SessionError):
        return error.sqlstate
    refusal = (code for pattern, code in REFUSALS.items() if re.match(pattern, str(error)))
    return next(refusal, "") or STATES.get(type(error).__name__, "58000")
