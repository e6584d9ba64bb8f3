"""Run the server: where it listens, which hosts it accepts, how long it waits for slow clients, how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from privsql import keyed_random
from privsql.errors import EngineError, UsageError
from privsql.serving.guard import COOKIE, TOKEN, Desk, Guard
from privsql.serving.site import site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from privsql.serving.guard import Served

CONNECTIONS = 128  # at once
HEAD = 1_200_000  # bytes of a request that are read before it is refused unread
PATIENCE = 10.0  # seconds in which a request has to be there as a whole
STUCK = 120.0  # seconds after which a connection is closed whatever it does
ENDING = 5  # seconds for what is being answered when the server ends
NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Manners:
    """How questions are answered: ``at_once`` of them, each within ``seconds`` and with at most ``rows``."""

    at_once: int
    seconds: float
    rows: int


@dataclass(frozen=True)
class Door:
    """Where the server listens. ``hosts``: what it may be called besides; ``token``: None where none is needed."""

    host: str
    socket: socket.socket
    token: str | None
    hosts: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """What a browser is given: the token stands in it once."""
        bound, port = self.socket.getsockname()[:2]
        name = _own_name() if self.everywhere else bound if self.host != "localhost" else self.host
        shown = f"[{name}]" if ":" in name else name
        return f"http://{shown}:{port}/" + (f"?{TOKEN}={self.token}" if self.token else "")

    @property
    def everywhere(self) -> bool:
        """Whether it listens on all addresses of the machine."""
        return ip_address(self.socket.getsockname()[0]).is_unspecified

    @property
    def names(self) -> frozenset[str]:
        """What it may be called."""
        bound = self.socket.getsockname()[0]
        own = (self.host, bound, *self.hosts, *((_own_name(), socket.gethostname()) if self.everywhere else ()))
        local = LOCAL if self.everywhere or ip_address(bound).is_loopback else ()
        return frozenset(name.lower() for name in (*own, *local))


def door(host: str, port: int, *, token: bool = False, hosts: Sequence[str] = ()) -> Door:
    """Listen; a token is made where others could come, or ``token`` asks for one.

    ``hosts``: names alone, without a port. ``UsageError`` for a host that is none, ``EngineError`` for a port that is
    taken.
    """
    names = tuple(_named(name) for name in hosts)
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host}: no such address of this machine") from error
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)
    except OSError as error:
        made.close()
        raise EngineError(_why(error, host, port)) from error
    others = not ip_address(made.getsockname()[0]).is_loopback
    return Door(host, made, keyed_random.token() if token or others else None, names)


def _named(name: str) -> str:
    """A name as ``Host`` has it; ``UsageError`` for what no ``Host`` can say, and so would let nobody in."""
    own = name.strip().removesuffix(".").lower()
    try:
        ip_address(own)
    except ValueError:
        if not NAME.fullmatch(own):
            raise UsageError(f"--allow-host {name}: give a name alone, such as stats.example.org") from None
    return own


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; give another one, or --port 0 for a free one"
    return f"can't listen at port {port} of {host}: {error.strerror}"


def _own_name() -> str:
    return socket.getfqdn().lower()


def app(served: Mapping[str, Served], door: Door, desk: Desk, *, verified: bool) -> Guard:
    """The page behind its guard."""
    page, cookie = site(served, desk, verified=verified), f"{COOKIE}_{door.socket.getsockname()[1]}"
    return Guard(page, door.names, door.token, any_address=door.everywhere, cookie=cookie)


def run(
    served: Mapping[str, Served], door: Door, manners: Manners, ready: Callable[[str], None], *, verified: bool
) -> None:
    """Serve until a signal ends it; ``ready`` is called with the address once it can be asked."""
    asyncio.run(_run(served, door, manners, ready, verified=verified))


async def _run(
    served: Mapping[str, Served], door: Door, manners: Manners, ready: Callable[[str], None], *, verified: bool
) -> None:
    desk = Desk(manners.at_once, manners.seconds, manners.rows)
    server = Server(app(served, door, desk, verified=verified), desk, lambda: ready(door.address))
    try:
        await server.serve(sockets=[door.socket])
    finally:
        desk.close()


class Server(uvicorn.Server):  # type: ignore[misc]
    """A server that ends cleanly on Ctrl-C, and what is being answered with it. Nothing is logged but its failures."""

    def __init__(self, app: Any, desk: Desk, ready: Callable[[], None]) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config = uvicorn.Config(
            app,
            http=Patient,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=ENDING,
            h11_max_incomplete_event_size=HEAD,
        )
        super().__init__(config)
        self._desk, self._ready = desk, ready
        self.should_exit = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and say so."""
        await super().startup(sockets=sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal's handler)
        """End; a second signal waits for nobody."""
        self._desk.end()
        self.force_exit = self.should_exit
        self.should_exit = True


class Patient(H11Protocol):  # type: ignore[misc]
    """A connection whose patience ends: with a request that never comes whole, and an answer that is never read."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look = self.loop.call_later(PATIENCE, self._looked)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._look.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _looked(self) -> None:
        """Close what has waited long enough, or look again later."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if self.loop.time() - self._since >= (STUCK if busy else PATIENCE):
            self.transport.abort()
        else:
            self._look = self.loop.call_later(PATIENCE / 2, self._looked)
