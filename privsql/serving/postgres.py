"""Releases over the Postgres protocol: each is a table, and every answer is that of ``privsql query``."""

from __future__ import annotations

import asyncio
import csv
import hmac
import io
import logging
import re
import signal
import ssl
import struct
import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.answers.names import parse_query_text
from privsql.calls import as_confidence
from privsql.engine.files import fold_name
from privsql.engine.open import open_locked
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import PrivsqlError, UsageError
from privsql.serving import wire
from privsql.serving.catalog import CATALOG, DATABASE, SETTINGS, USER, Catalog, name_columns
from privsql.serving.guard import QueryQueue, ReleasePool
from privsql.serving.wire import Column, Result, ScramSecret, SessionError, make_message, make_report, pack_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from privsql.engine.database import Options
    from privsql.serving.server import Listener

# Sessions -------------------------------------------------------------------------------------------------------------

LONGEST, STARTUP = 1_000_000, 10_000  # bytes of a message, and of the first one
CONNECTIONS, MOST_NAMED, MOST_OPEN = 128, 1_000, 32  # connections at once; statements, and results, of each
PATIENCE, STUCK = 10.0, 120.0  # seconds for the first messages, and for a client that does not read
PIECE = 1 << 16  # bytes that are sent in a row
CASED = {"datestyle": "DateStyle", "intervalstyle": "IntervalStyle", "timezone": "TimeZone"}
REPORTED = {one: CASED.get(one, one) for one in (
    "server_version", "server_encoding", "client_encoding", "datestyle", "intervalstyle", "timezone", "is_superuser",
    "in_hot_standby", "integer_datetimes", "standard_conforming_strings", "application_name", "session_authorization",
)}  # fmt: skip
FIXED_SETTINGS = {"client_encoding": ("utf8", "utf-8", "unicode"), "standard_conforming_strings": ("on", "true")}
SWITCHES = {"on": "on", "true": "on", "1": "on", "off": "off", "false": "off", "0": "off"}
NAME = r'\s*("(?:[^"]|"")+"|[\w.]+)'
FLAGS = re.IGNORECASE | re.DOTALL
COPY = re.compile(r"COPY\s*(\((?P<query>.*)\)|(?P<table>[\w.\"]+)\s*(\((?P<columns>[^()]*)\))?)\s*TO\s+STDOUT\s*"
                  r"(WITH)?\s*(\((?P<options>[^()]*)\)|(?P<old>BINARY|CSV(\s+HEADER)?)?)\s*", FLAGS)  # fmt: skip
CURSOR = re.compile(rf"DECLARE{NAME}\s+(?:BINARY\s+)?(?:(?:INSENSITIVE|ASENSITIVE|NO|SCROLL|WITH|WITHOUT|HOLD)\s+)*"
                    r"CURSOR\s+(?:(?:WITH|WITHOUT)\s+HOLD\s+)?FOR\s+(.*)", FLAGS)  # fmt: skip
FETCH = re.compile(
    rf"(?:FETCH|MOVE)\s+(?:FORWARD\s+)?(?:(ALL|NEXT|\d+)\s+)?(?:(?:FROM|IN)\s+)?{NAME}\s*", re.IGNORECASE
)
SET = re.compile(
    r"SET\s+(?:SESSION\s+|LOCAL\s+)?(TIME\s+ZONE|[\w.]+)\s*(?:=|\sTO\s|\s)\s*(.*)", re.IGNORECASE | re.DOTALL
)
WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "ALTER", "DROP", "TRUNCATE", "GRANT", "REVOKE", "COMMENT"}
IGNORED = {word: word for word in ("", "DEALLOCATE", "UNLISTEN", "RELEASE", "SAVEPOINT")} | {"DISCARD": "DISCARD ALL"}
ONLY_READ = "releases are only read; queries, COPY of one to STDOUT, cursors, SHOW and SET work"


@dataclass
class Prepared:
    """A statement, and the types of its parameters as far as the client states them."""

    sql: str
    oids: tuple[int, ...] = ()


@dataclass
class Portal:
    """A statement with its parameters, and its result once it is known."""

    sql: str
    formats: tuple[int, ...] = ()
    result: Result | None = None


@dataclass
class Server:
    """Releases, catalogs and queues, which all sessions share; ``secret``: of the token; ``required``: TLS is."""

    pools: Mapping[str, ReleasePool]
    catalog: Catalog
    queue: QueryQueue
    side_queue: QueryQueue
    secret: ScramSecret | None = None
    tls: ssl.SSLContext | None = None
    required: bool = False
    sessions: dict[int, Session] = field(default_factory=dict)

    async def serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run a session to its end."""
        session = Session(self, reader, writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError, ssl.SSLError):
            try:
                await session.run()
            except wire.ProtocolError as error:
                session.write(make_report("E", str(error), "08P01", "FATAL"))
            except SessionError as error:
                session.write(make_report("E", str(error), error.sqlstate, "FATAL"))
            finally:
                self.sessions.pop(session.number, None)
                session.close()


class Session:
    """A connection: what it has prepared, its settings, and its transaction."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self.number, self.key = struct.unpack("!ii", wire.draw_bytes(8))
        self.cancelled = False
        self._settings, self._state = dict(SETTINGS), "I"
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._described: tuple[str, Result] | None = None

    # Connection ---

    def write(self, *messages: bytes) -> None:
        """Send messages, as soon as there is room."""
        self._writer.write(b"".join(messages))

    async def _drain(self) -> None:
        await asyncio.wait_for(self._writer.drain(), STUCK)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def run(self) -> None:
        """Let the client in and answer it until it ends."""
        if not await asyncio.wait_for(self._start(), PATIENCE):
            return
        skipping = False
        while True:
            kind, body = await self._read_message()
            if kind == "X":
                return
            if skipping and kind != "S":
                continue
            failed = await self._try_message(kind, wire.MessageReader(body))
            skipping = failed and kind in "PBDECH"
            if kind in "QS":
                self._described = None
                self.write(make_message("Z", self._state.encode()))
                await self._drain()

    async def _try_message(self, kind: str, reader: wire.MessageReader) -> bool:
        """Answer one message; return True if that fails, which the client is told."""
        try:
            await self._handle(kind, reader)
        except (PrivsqlError, wire.ProtocolError) as error:
            self._fail(str(error), wire.find_sqlstate(error))
        except (OSError, asyncio.IncompleteReadError, TimeoutError):  # the client is gone
            raise
        except Exception:  # a fault of ours ends a question, not the session
            logging.getLogger("privsql").exception("a question failed")
            self._fail("this failed, and should not have; the terminal says more", "XX000")
        else:
            return False
        return True

    def _fail(self, text: str, code: str) -> None:
        """Report an error; a transaction goes on after ROLLBACK."""
        text = "canceling statement due to user request" if self.cancelled and code == "57014" else text
        self._state = "E" if self._state == "T" else self._state
        self.write(make_report("E", text, code))

    async def _read_message(self) -> tuple[str, bytes]:
        kind, length = struct.unpack("!ci", await self._reader.readexactly(5))
        if kind not in b"QPBDECHSXdcfp" or not 4 <= length <= LONGEST:
            raise wire.ProtocolError(f"a message of {length:,} bytes; at most {LONGEST:,} are read")
        return kind.decode(), await self._reader.readexactly(length - 4)

    async def _start(self) -> bool:
        """Return True once the client may ask."""
        while True:
            (length,) = struct.unpack("!i", await self._reader.readexactly(4))
            if not 8 <= length <= STARTUP:
                raise wire.ProtocolError("this is not a Postgres client")
            reader = wire.MessageReader(await self._reader.readexactly(length - 4))
            (code,) = reader.take_numbers("i")
            if code == wire.CANCEL_REQUEST:
                number, key = reader.take_numbers("ii")
                session = self._server.sessions.get(number)
                if session is not None and hmac.compare_digest(str(session.key), str(key)):
                    session.cancelled = True
                return False
            if code == wire.TLS_REQUEST and self._server.tls is not None:
                await self._encrypt(self._server.tls)
            elif code in (wire.TLS_REQUEST, wire.GSS_REQUEST):
                self.write(b"N")
            else:
                break
        if code >> 16 != 3:
            raise SessionError("only protocol 3 is supported", "0A000")
        if self._server.required and self._writer.get_extra_info("ssl_object") is None:
            raise SessionError("this address needs TLS; connect with sslmode=require", "28000")
        await self._admit(reader, code & 0xFFFF)
        return True

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        """Go on encrypted. What was sent before is forgotten: somebody in between may have sent it."""
        self.write(b"S")
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport = await loop.start_tls(self._writer.transport, protocol, context, server_side=True)
        if transport is None:
            raise ConnectionResetError
        protocol.connection_made(transport)
        self._reader, self._writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _admit(self, reader: wire.MessageReader, minor: int) -> None:
        texts = iter(lambda: reader.take_text() if reader.has_more else "", "")
        stated = {name.lower(): value for name, value in zip(texts, texts, strict=False)}
        extra = [name for name in stated if name.startswith("_pq_.")]
        if minor or extra:  # nothing beyond 3.0
            names = b"".join(map(pack_text, extra))
            self.write(make_message("v", struct.pack("!ii", 0, len(extra)), names))
        if self._server.secret is not None:
            await self._authenticate(self._server.secret)
        if len(self._server.sessions) >= CONNECTIONS:
            raise SessionError(f"{CONNECTIONS} clients are connected already; try again later", "53300")
        for name in stated.keys() & (SETTINGS.keys() - {"server_version", "server_encoding"}):
            self._change_setting(name, stated[name])
        self._settings["session_authorization"] = stated.get("user", USER)
        self._server.sessions[self.number] = self
        self.write(make_message("R", struct.pack("!i", 0)), *map(self._report_setting, REPORTED),
                   make_message("K", struct.pack("!ii", self.number, self.key)), make_message("Z", b"I"))  # fmt: skip
        await self._drain()

    async def _authenticate(self, secret: ScramSecret) -> None:
        self.write(make_message("R", struct.pack("!i", 10), pack_text(wire.SCRAM), b"\0"))
        first = await self._read_password()
        reader = wire.MessageReader(first)
        if reader.take_text() != wire.SCRAM:
            raise SessionError("the password is checked by SCRAM-SHA-256", "28000")
        exchange = wire.ScramExchange(secret, reader.take_bytes(*reader.take_numbers("i")))
        self.write(make_message("R", struct.pack("!i", 11), exchange.challenge))
        final = exchange.verify(await self._read_password())
        self.write(make_message("R", struct.pack("!i", 12), final))

    async def _read_password(self) -> bytes:
        await self._drain()
        kind, body = await self._read_message()
        if kind != "p":
            raise wire.ProtocolError("a password is needed")
        return body

    def _report_setting(self, name: str) -> bytes:
        return make_message("S", pack_text(REPORTED[name]), pack_text(self._settings[name]))

    # Messages ---

    async def _handle(self, kind: str, reader: wire.MessageReader) -> None:
        """Answer one message."""
        if kind == "Q":
            await self._ask_simple(reader.take_text())
        elif kind == "P":
            name, sql = reader.take_text(), reader.take_text()
            (number,) = reader.take_numbers("h")
            if len(split_statements(sql)) > 1:
                raise SessionError("only one statement can be prepared at a time", "42601")
            self._keep(self._prepared, name, Prepared(sql, reader.take_numbers(f"{max(number, 0)}I")), MOST_NAMED)
            self.write(make_message("1"))
        elif kind == "B":
            self._bind(reader)
        elif kind == "D":
            await self._describe(reader.take_bytes(1), reader.take_text())
        elif kind == "E":
            await self._execute(self._find(self._portals, reader.take_text(), "portal"), *reader.take_numbers("i"))
        elif kind == "C":
            part, name = reader.take_bytes(1), reader.take_text()
            (self._prepared if part == b"S" else self._portals).pop(name, None)
            self.write(make_message("3"))
        elif kind == "H":
            await self._drain()
        elif kind == "S" and self._state == "I":
            self._portals.clear()

    @staticmethod
    def _keep(held: dict[str, Any], name: str, value: Any, most: int) -> None:
        if name not in held and len(held) >= most:
            raise SessionError(f"more than {most:,} statements are open; close some of them", "53400")
        held[name] = value

    @staticmethod
    def _find(held: Mapping[str, Any], name: str, what: str) -> Any:
        if name not in held:
            raise SessionError(f'{what} "{name}" does not exist', "26000" if what == "statement" else "34000")
        return held[name]

    async def _ask_simple(self, sql: str) -> None:
        statements = split_statements(sql)
        for statement in statements or [""]:
            result = await self._run(statement)
            if result.columns is not None and result.copied is None:
                self.write(result.describe(()))
            await self._send(result, ())

    def _bind(self, reader: wire.MessageReader) -> None:
        portal, name = reader.take_text(), reader.take_text()
        prepared: Prepared = self._find(self._prepared, name, "statement")
        forms = reader.take_formats()
        (number,) = reader.take_numbers("h")
        sizes = (reader.take_numbers("i")[0] for _ in range(number))
        values = [reader.take_bytes(size) if size >= 0 else None for size in sizes]
        oids = self._parameter_types(prepared)
        if len(values) != len(oids) or len(forms) not in (0, 1, len(values)):
            raise SessionError(f"{len(values)} parameters given, {len(oids)} needed", "08P01")
        constants = [wire.read_parameter(value, oid, wire.choose_format(forms, at))
                     for at, (value, oid) in enumerate(zip(values, oids, strict=True))]  # fmt: skip
        bound = Portal(fill_parameters(prepared.sql, constants), reader.take_formats())
        self._keep(self._portals, portal, bound, MOST_OPEN)
        self.write(make_message("2"))

    def _parameter_types(self, prepared: Prepared) -> tuple[int, ...]:
        """Return the types of parameters: what the client states, else that of the column beside it, else text."""
        number = max((int(one["place"][1:]) for one in PLACE.finditer(prepared.sql) if one["place"]), default=0)
        if number > MOST_NAMED:
            raise SessionError(f"at most {MOST_NAMED:,} parameters are possible", "54000")
        known = dict(enumerate((oid for oid in prepared.oids), start=1))
        columns = {fold_name(one.name): wire.find_type(one.type)[0].oid for pool in self._server.pools.values()
                   for one in pool.manifest.roles.columns}  # fmt: skip
        for place, name in find_compared(prepared.sql) if not all(known.get(k) for k in range(1, number + 1)) else ():
            if name in columns and not known.get(place):
                known[place] = columns[name]
        return tuple(known.get(at) or wire.TYPES["text"].oid for at in range(1, number + 1))

    async def _describe(self, part: bytes, name: str) -> None:
        if part == b"S":
            prepared: Prepared = self._find(self._prepared, name, "statement")
            oids = self._parameter_types(prepared)
            self.write(make_message("t", struct.pack(f"!h{len(oids)}I", len(oids), *oids)))
            result = await self._preview(fill_parameters(prepared.sql, ["NULL"] * len(oids)))
            self._described = (prepared.sql, result)
            self.write(result.describe(()))
        else:
            portal: Portal = self._find(self._portals, name, "portal")
            portal.result = portal.result or await self._preview(portal.sql)
            self.write(portal.result.describe(portal.formats))

    async def _preview(self, sql: str) -> Result:
        """Return the result of a statement that reads, and nothing of one that does something."""
        fetched = FETCH.fullmatch(sql.strip())
        if fetched is not None:
            return Result("", self._find(self._portals, fetched[2].strip('"'), "cursor").result.columns)
        return await self._run(sql) if first_word(sql) in READING else Result("")

    async def _execute(self, portal: Portal, most: int) -> None:
        if portal.result is None or not portal.result.word:
            done = self._described is not None and self._described[0] == portal.sql
            described = self._described[1] if done and self._described is not None else None
            portal.result = described if described is not None and described.word else await self._run(portal.sql)
            self._described = None
        await self._send(portal.result, portal.formats, most)

    async def _send(self, result: Result, formats: Sequence[int], most: int = 0) -> None:
        size = 0
        for message in result.send(formats, most):
            self.write(message)
            size += len(message)
            if size > PIECE:
                size = 0
                await self._drain()

    # Statements ---

    async def _run(self, sql: str) -> Result:
        """Return the result of a statement."""
        word = first_word(sql)
        if self._state == "E" and word not in ("ROLLBACK", "ABORT", "COMMIT", "END"):
            raise SessionError("the transaction is aborted; send ROLLBACK", "25P02")
        if word in QUERIES:
            return await self._ask(sql)
        if word in ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"):
            return self._run_transaction(word, sql)
        if word in ("SHOW", "SET", "RESET"):
            return self._run_show(sql) if word == "SHOW" else self._run_set(word, sql)
        if word == "COPY":
            return await self._run_copy(sql)
        if word in ("DECLARE", "FETCH", "MOVE", "CLOSE"):
            return await self._run_cursor(word, sql)
        if word == "DEALLOCATE":
            self._prepared = _without(self._prepared, sql)
        if word in IGNORED:
            return Result(IGNORED[word])
        code = "25006" if word in WRITES else "0A000"
        raise SessionError(f"{word[:30]} is not supported; {ONLY_READ}", code)

    def _run_transaction(self, word: str, sql: str) -> Result:
        if re.match(r"ROLLBACK\s+(WORK\s+|TRANSACTION\s+)?TO\b", sql.strip(), re.IGNORECASE):
            self._state = "T"
            return Result("ROLLBACK")
        failed, self._state = self._state == "E", "T" if word in ("BEGIN", "START") else "I"
        self._portals = {} if self._state == "I" else self._portals
        ends = {"BEGIN": "BEGIN", "START": "START TRANSACTION", "COMMIT": "COMMIT", "END": "COMMIT"}
        return Result("ROLLBACK" if failed else ends.get(word, "ROLLBACK"))

    def _run_show(self, sql: str) -> Result:
        name = re.sub(r"\s+", "_", sql.split(maxsplit=1)[-1].strip().strip('"')).lower()
        name = {"transaction_isolation_level": "transaction_isolation", "time_zone": "timezone"}.get(name, name)
        if name not in self._settings:
            raise SessionError(f'unrecognized configuration parameter "{name[:60]}"', "42704")
        return Result("SHOW", [Column(name, wire.TYPES["text"])], [[self._settings[name]]])

    def _run_set(self, word: str, sql: str) -> Result:
        if word == "RESET":
            name = sql.rsplit(maxsplit=1)[-1].lower()
            self._settings |= SETTINGS if name == "all" else {name: SETTINGS.get(name, "")}
            return Result(word)
        found = SET.fullmatch(sql.strip())
        if found is None:
            raise SessionError("SET: this form is not supported; write SET name = value", "42601")
        name = re.sub(r"\s+", "", found[1]).lower()
        if name not in ("transaction", "characteristics"):
            name = "client_encoding" if name == "names" else name
            self._change_setting(name, found[2].strip().strip("'\""))
            self.write(*([self._report_setting(name)] if name in REPORTED else ()))
        return Result(word)

    def _change_setting(self, name: str, value: str) -> None:
        value = value.strip("'")
        if name == "privsql.intervals" or value.lower() == "default":
            value = SETTINGS.get(name, "") if value.lower() == "default" else SWITCHES.get(value.lower(), "")
        if name == "privsql.confidence":
            try:
                as_confidence(float(value))
            except (ValueError, UsageError):
                value = ""
        known = value.lower() in FIXED_SETTINGS.get(name, (value.lower(),)) and len(value) < STARTUP
        strange = name.startswith("privsql.") and (name not in SETTINGS or not value)
        if not known or strange or len(self._settings) > MOST_NAMED:
            raise SessionError(f"{name[:60]} can't be set to {value[:60]!r}; SHOW prints its value", "22023")
        self._settings[name] = value

    async def _run_copy(self, sql: str) -> Result:
        found = COPY.fullmatch(sql.strip())
        if found is None:
            raise SessionError("COPY: only queries are copied, to STDOUT; write a query in parentheses and TO STDOUT")
        words = (found["old"] or "").lower().split()
        options = {"format": words[0] if words else "text", "header": "true" if "header" in words else "off"}
        for part in next(csv.reader(io.StringIO(found["options"] or ""), quotechar="'"), []):
            name, _, value = part.strip().partition(" ")
            options[name.lower()] = value.strip().strip("'\"").replace("\\t", "\t")
        options["format"] = options["format"].lower()
        marks = [options.get(one, ",") for one in ("delimiter", "quote")]
        if options["format"] not in ("binary", "csv", "text") or any(len(one) != 1 for one in marks):
            raise SessionError("COPY: FORMAT is text, csv or binary; DELIMITER and QUOTE are one character", "22023")
        columns = exp.select(*(found["columns"] or "*").split(","), dialect="postgres")
        result = await self._ask(found["query"] or columns.from_(found["table"], dialect="postgres").sql(DIALECT))
        return Result("COPY", result.columns, result.rows, result.notes, options)

    async def _run_cursor(self, word: str, sql: str) -> Result:
        declared, fetched = CURSOR.fullmatch(sql.strip()), FETCH.fullmatch(sql.strip())
        if declared is not None:
            result = await self._ask(declared[2])
            self._keep(self._portals, declared[1].strip('"'), Portal(declared[2], result=result), MOST_OPEN)
            return Result("DECLARE CURSOR")
        if word == "CLOSE":
            self._portals = _without(self._portals, sql)
            return Result("CLOSE CURSOR")
        if fetched is None:
            raise SessionError(f"this {word} is not possible; FETCH FORWARD n FROM name is")
        number = {"ALL": str(LONGEST), "NEXT": "1"}.get((fetched[1] or "NEXT").upper(), fetched[1])
        result = self._find(self._portals, fetched[2].strip('"'), "cursor").result
        first, result.at = result.at, min(result.at + int(number), len(result.rows))
        rows = result.rows[first : result.at]
        return Result(word, None if word == "MOVE" else result.columns, rows, result.notes[first:])

    async def _ask(self, sql: str) -> Result:
        """Return the answer to a query: of a release if it names one, else of the catalogs."""
        self.cancelled = False

        async def gone() -> bool:
            return self.cancelled or self._writer.is_closing() or self._reader.at_eof()

        pool, tree = find_release(sql, self._server)
        if pool is None:
            stop, server = threading.Event(), self._server
            settings = dict(self._settings)
            return await server.side_queue.run_in_thread(
                lambda: server.catalog.answer(tree, settings, server.queue, stop), stop, gone
            )
        answer = await self._server.queue.ask(pool, sql, float(self._settings["privsql.confidence"]), gone)
        notes = [one for one in answer.notes if one]
        wide = self._settings["privsql.intervals"] == "on"
        places = range(len(answer.columns)) if wide else answer.plain_columns
        names = list(answer.columns) if wide else name_columns(tree, [answer.columns[at] for at in places])
        columns = [Column(name, *wire.find_type(answer.types[at])) for name, at in zip(names, places, strict=True)]
        rows = answer.rows if wide else answer.plain_rows
        return Result("SELECT", columns, rows, notes)


# Statements' texts ----------------------------------------------------------------------------------------------------

QUERIES = ("SELECT", "WITH", "FROM", "(", "VALUES", "TABLE")
READING = (*QUERIES, "SHOW", "COPY")
PLACE = re.compile(
    r"(?P<place>\$\d{1,5})|\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\2\$|;",
    re.DOTALL,
)


def _without(held: dict[str, Any], sql: str) -> dict[str, Any]:
    """Return what a statement leaves that ends with a name, or ALL."""
    name = sql.rsplit(maxsplit=1)[-1].strip('"')
    return {k: v for k, v in held.items() if k != name and name.upper() != "ALL"}


def split_statements(sql: str) -> list[str]:
    """Return the statements of a text, without those that are empty."""
    ends = [found.start() for found in PLACE.finditer(sql) if found[0] == ";"]
    parts = [sql[first:last] for first, last in zip([0, *(one + 1 for one in ends)], [*ends, len(sql)], strict=True)]
    return [part for part in parts if first_word(part)]


def first_word(sql: str) -> str:
    """Return the first word of a statement, in capitals; nothing for an empty one."""
    plain = re.sub(r"^(\s|--[^\n]*(\n|$)|/\*.*?\*/)+", "", sql, flags=re.DOTALL)
    found = re.match(r"[A-Za-z_]+|\S", plain)
    return found[0].upper() if found else ""


def fill_parameters(sql: str, constants: Sequence[str]) -> str:
    """Return a text with constants in place of its parameters."""
    return PLACE.sub(lambda found: constants[int(found["place"][1:]) - 1] if found["place"] else found[0], sql)


def find_compared(sql: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each parameter that stands beside a column, and that column."""
    with suppress(SqlglotError, RecursionError):
        for one in sqlglot.parse_one(sql, dialect="postgres").find_all(exp.Parameter):
            columns = list(one.parent.find_all(exp.Column)) if one.parent is not None else []
            if columns and one.name.isdigit():
                yield int(one.name), fold_name(columns[0].name)


def find_release(sql: str, server: Server) -> tuple[ReleasePool | None, exp.Query]:
    """Return a query and the release that it names, None if it is about catalogs; ``UsageError`` for no query."""
    trees: list[exp.Query] = []
    refusals: list[UsageError] = []
    for dialect in (DIALECT, "postgres"):
        try:
            trees.append(_parse_query(sql, dialect))
        except UsageError as error:
            refusals.append(error)
            continue
        named = {fold_name(one.name) for one in trees[-1].find_all(exp.Table)}
        pool = next((one for one in server.pools.values() if fold_name(one.manifest.name) in named), None)
        if pool is not None:
            return pool, trees[-1]
    if not trees:
        raise refusals[0]
    return None, trees[-1]


def _parse_query(sql: str, dialect: str) -> exp.Query:
    try:
        tree = parse_query_text(sql) if dialect == DIALECT else sqlglot.parse_one(sql, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise UsageError("the query can't be parsed") from error
    if not isinstance(tree, exp.Query):
        raise UsageError("only one SELECT can be answered")
    return tree


# Running --------------------------------------------------------------------------------------------------------------


def load_certificate(path: Path) -> ssl.SSLContext:
    """Return what encrypts with a certificate and its key in one PEM file; ``UsageError`` where it is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a PEM file with a certificate and its key") from error
    return context


@contextmanager
def open_server(pools: Mapping[str, ReleasePool], queue: QueryQueue, options: Options) -> Iterator[Server]:
    """Yield a server of releases; ``UsageError`` for two that are tables of one name."""
    names = [fold_name(one.manifest.name) for one in pools.values()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two releases are called {twice!r}; serve each on its own port")
    with (
        open_locked({CATALOG: None}, home=CATALOG, options=options) as db,
        closing(QueryQueue(1, queue.seconds, queue.rows)) as side,
    ):
        yield Server(pools, Catalog(db, pools), queue, side)


async def run_server(server: Server, listener: Listener, ready: Callable[[], None], stop: asyncio.Event) -> None:
    """Serve until ``stop`` or a signal; ``ready`` is called once clients can connect."""
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # another thread's, or Windows
            loop.add_signal_handler(one, stop.set)
    listening = await asyncio.start_server(server.serve_client, sock=listener.socket)
    ready()
    await stop.wait()
    listening.close()
    server.queue.stop_running()
    for session in list(server.sessions.values()):
        session.write(make_report("E", "the server is server is stopping", "57P01", "FATAL"))
        session.close()


def serve_clients(
    pools: Mapping[str, ReleasePool],
    listener: Listener,
    queue: QueryQueue,
    ready: Callable[[str], None],
    options: Options,
    certificate: Path | None,
) -> None:
    """Serve clients of Postgres until a signal ends it; ``ready`` is called with the address that they use.

    ``UsageError`` for an address of other machines without a certificate.
    """
    others = not ip_address(listener.socket.getsockname()[0]).is_loopback
    if others and certificate is None:
        raise UsageError(f"host {listener.host}: clients on other machines need TLS; give certificate=..")
    with open_server(pools, queue, options) as server:
        server.secret = ScramSecret(listener.token) if listener.token else None
        server.tls, server.required = load_certificate(certificate) if certificate else None, others
        password = f":{listener.token}" if listener.token else ""
        mode = "?sslmode=require" if others else ""
        address = f"postgresql://{USER}{password}@{listener.place}/{DATABASE}{mode}"
        with closing(queue):
            asyncio.run(run_server(server, listener, lambda: ready(address), asyncio.Event()))
