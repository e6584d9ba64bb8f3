"""Releases behind the Postgres protocol, a client that speaks it by hand, and a proxy that notes what clients send."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import re
import socket
import struct
import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql.engine.database import Options
from privsql.serving import postgres, server
from privsql.serving.guard import QueryQueue, open_pools
from privsql.serving.wire import ScramSecret
from privsql.source.targets import as_targets

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

Message = tuple[str, bytes]
Row = list[str | None]


@contextmanager
def served(*paths: Path, token: str | None = None, tls: ssl.SSLContext | None = None, required: bool = False,
           attach: tuple[Path, ...] = (), **limits: Any) -> Iterator[int]:  # fmt: skip
    """A server in a thread of its own; its port."""
    queue = QueryQueue(**({"at_once": 2, "seconds": 30.0, "rows": 20_000} | limits))
    listener = server.open_listener("127.0.0.1", 0)
    ready, running = threading.Event(), {}

    async def run(one: postgres.Server) -> None:
        running["loop"], running["stop"] = asyncio.get_running_loop(), asyncio.Event()
        await postgres.run_server(one, listener, ready.set, running["stop"])

    with (
        open_pools(as_targets(paths, "releases"), attach, Options()) as pools,
        postgres.open_server(pools, queue, Options()) as one,
    ):
        one.secret, one.tls, one.required = ScramSecret(token) if token else None, tls, required
        thread = threading.Thread(target=lambda: asyncio.run(run(one)))
        thread.start()
        try:
            assert ready.wait(30)
            yield listener.socket.getsockname()[1]
        finally:
            running["loop"].call_soon_threadsafe(running["stop"].set)
            thread.join(30)
            queue.close()
            assert not thread.is_alive()


@dataclass
class Reply:
    """What a server says to a statement: columns, rows as text, errors and notices by the letters of their fields."""

    messages: list[Message]

    def bodies(self, kind: str) -> list[bytes]:
        """The contents of the messages of a kind."""
        return [body for one, body in self.messages if one == kind]

    @property
    def kinds(self) -> str:
        """Kinds of the messages, each with how many there are in a row."""
        groups = ((kind, len(list(run))) for kind, run in itertools.groupby(kind for kind, _ in self.messages))
        return " ".join(f"{kind}{number if number > 1 else ''}" for kind, number in groups)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [
            name.decode() for body in self.bodies("T") for name in re.findall(rb"([^\0]*)\0.{18}", body[2:], re.DOTALL)
        ]

    @property
    def rows(self) -> list[Row]:
        """Rows of text."""
        return [[None if one is None else one.decode() for one in cells(body)] for body in self.bodies("D")]

    @property
    def errors(self) -> list[dict[str, str]]:
        """Errors by the letters of their fields."""
        return [fields(body) for body in self.bodies("E")]

    @property
    def notices(self) -> list[str]:
        """Texts of notices."""
        return ["; ".join(found[one] for one in "MH" if one in found) for found in map(fields, self.bodies("N"))]


def fields(body: bytes) -> dict[str, str]:
    """The fields of an error."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def cells(body: bytes) -> list[bytes | None]:
    """The values of a row."""
    found: list[bytes | None] = []
    at = 2
    for _ in range(struct.unpack("!h", body[:2])[0]):
        (size,) = struct.unpack("!i", body[at : at + 4])
        found.append(None if size < 0 else body[at + 4 : at + 4 + size])
        at += 4 + max(size, 0)
    return found


def packed(text: str) -> bytes:
    """A text with its end."""
    return text.encode() + b"\0"


@dataclass
class Client:
    """A connection that sends what it is told to."""

    connection: socket.socket
    key: bytes = b""
    settings: dict[str, str] = field(default_factory=dict)

    @classmethod
    def connected(cls, port: int, password: str = "", **stated: str) -> Client:
        """Let in, by SCRAM where a password is asked for."""
        client = cls(socket.create_connection(("127.0.0.1", port), timeout=60))
        client.start(password, **stated)
        return client

    def start(self, password: str = "", **stated: str) -> None:
        """Send the first message, and prove the password."""
        pairs = {"user": "reader", "database": "privsql"} | stated
        body = struct.pack("!i", 196_608) + b"".join(packed(part) for pair in pairs.items() for part in pair) + b"\0"
        self.connection.sendall(struct.pack("!i", len(body) + 4) + body)
        kind, body = self.read()
        if kind == "R" and body[:4] == struct.pack("!i", 10):
            self._prove(password)
        elif kind == "E":
            raise ConnectionRefusedError(fields(body)["C"])
        for kind, body in self.until_ready():
            if kind == "K":
                self.key = body
            elif kind == "S":
                name, value, _ = body.split(b"\0")
                self.settings[name.decode()] = value.decode()

    def _prove(self, password: str) -> None:
        first = "n=,r=abc"
        hello = f"n,,{first}".encode()
        self.send("p", packed("SCRAM-SHA-256") + struct.pack("!i", len(hello)) + hello)
        challenge = self._expect("R")[4:].decode()
        nonce, salt, rounds = re.fullmatch(r"r=(abc.+),s=(.+),i=(\d+)", challenge).groups()  # type: ignore[union-attr]
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(rounds))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={nonce}"
        signed = f"{first},{challenge},{last}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        self.send("p", f"{last},p={proof}".encode())
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        assert base64.b64decode(self._expect("R")[6:]) == hmac.digest(server_key, signed, "sha256")

    def _expect(self, kind: str) -> bytes:
        got, body = self.read()
        if got != kind:
            raise ConnectionRefusedError(fields(body)["C"])
        return body

    def send(self, kind: str, body: bytes = b"") -> None:
        """Send one message."""
        self.connection.sendall(kind.encode() + struct.pack("!i", len(body) + 4) + body)

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            more = self.connection.recv(size - len(taken))
            if not more:
                raise ConnectionResetError
            taken += more
        return taken

    def read(self) -> Message:
        """One message."""
        kind, length = struct.unpack("!ci", self._take(5))
        return kind.decode(), self._take(length - 4)

    def until_ready(self) -> list[Message]:
        """All messages up to the one that says that the next may come."""
        found = [self.read()]
        while found[-1][0] != "Z":
            found.append(self.read())
        return found

    def query(self, sql: str) -> Reply:
        """A simple query."""
        self.send("Q", packed(sql))
        return Reply(self.until_ready())

    def prepared(self, sql: str, *values: bytes | None, oids: tuple[int, ...] = (), form: int = 0,
                 results: int = 0, most: int = 0, describe: bytes = b"") -> Reply:  # fmt: skip
        """A query by the extended protocol, with parameters in a format."""
        self.send("P", b"\0" + packed(sql) + struct.pack(f"!h{len(oids)}I", len(oids), *oids))
        if describe:
            self.send("D", describe + b"\0")
        given = b"".join(struct.pack("!i", -1) if one is None else struct.pack("!i", len(one)) + one for one in values)
        self.send("B", b"\0\0" + struct.pack("!hhh", 1, form, len(values)) + given + struct.pack("!hh", 1, results))
        self.send("E", b"\0" + struct.pack("!i", most))
        self.send("S")
        return Reply(self.until_ready())

    def close(self) -> None:
        """End."""
        self.connection.close()


# Recording ------------------------------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """A proxy to a server: ``sent`` holds what each connection says, without the first messages."""

    port: int
    own: int = 0
    sent: list[list[Message]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[Recorder]:
        """Listen at a port of its own while the block runs."""
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:
            self.own = listening.getsockname()[1]
            threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
            yield self

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                there = socket.create_connection(("127.0.0.1", self.port))
                noted = bytearray()
                self.sent.append([])
                copy = (client, there, noted, self.sent[-1])
                threading.Thread(target=self._pass_on, args=copy, daemon=True).start()
                threading.Thread(target=self._pass_on, args=(there, client, None, []), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, noted: bytearray | None, sent: list[Message]) -> None:
        with suppress(OSError):
            while piece := one.recv(65_536):
                other.sendall(piece)
                if noted is not None:
                    noted += piece
                    take_messages(noted, sent)
            other.shutdown(socket.SHUT_WR)


def take_messages(noted: bytearray, sent: list[Message]) -> None:
    """Move whole messages from bytes to a list; first messages, which have no letter, are dropped."""
    while len(noted) >= 5:
        bare = noted[:1] == b"\0"
        (length,) = struct.unpack("!i", noted[:4] if bare else noted[1:5])
        end = length + (0 if bare else 1)
        if len(noted) < end:
            return
        if not bare:
            sent.append((chr(noted[0]), bytes(noted[5:end])))
        del noted[:end]
