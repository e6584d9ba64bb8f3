"""Run the server: where it listens, which hosts it accepts, how long it waits for slow clients, how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from privsql import keyed_random
from privsql.errors import EngineError, UsageError
from privsql.serving.guard import COOKIE, TOKEN, Guard, QueryQueue, ReleasePool, is_ip_address
from privsql.serving.site import make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType


CONNECTIONS = 128  # at once
HEAD = 1_200_000  # bytes of a request that are read before it is refused unread
PATIENCE = 10.0  # seconds in which a request has to be there as a whole
STUCK = 120.0  # seconds after which a connection is closed whatever it does
ENDING = 5  # seconds for what is being answered when the server ends
NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Listener:
    """Hold the open socket of the server.

    Attributes:
        hosts: Further names of the machine.
        token: The token that requests need; None if none is needed.
    """

    host: str
    socket: socket.socket
    token: str | None
    hosts: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Return the address to open in a browser, including the token."""
        bound, port = self.socket.getsockname()[:2]
        name = _machine_name() if self.is_everywhere else bound if self.host != "localhost" else self.host
        quoted = f"[{name}]" if ":" in name else name
        return f"http://{quoted}:{port}/" + (f"?{TOKEN}={self.token}" if self.token else "")

    @property
    def is_everywhere(self) -> bool:
        """Return whether the server listens on all addresses of the machine."""
        return ip_address(self.socket.getsockname()[0]).is_unspecified

    @property
    def host_names(self) -> frozenset[str]:
        """Return the host names that requests may use."""
        bound = self.socket.getsockname()[0]
        machine = (_machine_name(), socket.gethostname()) if self.is_everywhere else ()
        called = (self.host, bound, *self.hosts, *machine)
        local = LOCAL if self.is_everywhere or ip_address(bound).is_loopback else ()
        return frozenset(name.lower() for name in (*called, *local))


def open_listener(host: str, port: int, *, token: bool = False, hosts: Sequence[str] = ()) -> Listener:
    """Open the server's socket. A token is made if other machines can connect, or if ``token`` is set.

    Args:
        host: The address to listen on.
        port: The port; 0 for any free one.
        token: Whether to make a token even if only this machine can connect.
        hosts: Further names of this machine, without a port.

    Raises:
        UsageError: A host name is not valid.
        EngineError: The port is taken.
    """
    names = tuple(_parse_host_name(name) for name in hosts)
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"host {host}: this machine has no such address") from error
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)  # the former on Windows alone
        listening.setsockopt(socket.SOL_SOCKET, option, 1)
        listening.bind(place)
        listening.listen(128)
    except OSError as error:
        listening.close()
        taken = f"port {port} of {host} is in use; give another one, or 0 for any free one"
        failed = f"can't listen at port {port} of {host}: {error.strerror}"
        raise EngineError(taken if error.errno == errno.EADDRINUSE else failed) from error
    others = not ip_address(listening.getsockname()[0]).is_loopback
    return Listener(host, listening, keyed_random.random_token() if token or others else None, names)


def _parse_host_name(name: str) -> str:
    """Return a host name in the form of the ``Host`` header.

    Raises:
        UsageError: The header can't hold this name.
    """
    host = name.strip().removesuffix(".").lower()
    if not (is_ip_address(host) or NAME.fullmatch(host)):
        raise UsageError(f"{name!r} is no name of a host; give a bare host name, such as stats.example.org")
    return host


def _machine_name() -> str:
    return socket.getfqdn().lower()


def make_app(served: Mapping[str, ReleasePool], listener: Listener, queue: QueryQueue, *, verified: bool) -> Guard:
    """Return the web application: the page behind its guard."""
    page, cookie = make_site(served, queue, verified=verified), f"{COOKIE}_{listener.socket.getsockname()[1]}"
    return Guard(page, listener.host_names, listener.token, any_address=listener.is_everywhere, cookie=cookie)


def run_server(
    served: Mapping[str, ReleasePool],
    listener: Listener,
    queue: QueryQueue,
    ready: Callable[[str], None],
    *,
    verified: bool,
) -> None:
    """Serve until a signal ends it. ``ready`` is called with the address once the server can be reached."""
    app = make_app(served, listener, queue, verified=verified)
    server = QueryServer(app, queue, lambda: ready(listener.address))

    async def run() -> None:
        with closing(queue):
            await server.serve(sockets=[listener.socket])

    asyncio.run(run())


class QueryServer(uvicorn.Server):  # type: ignore[misc]
    """Run a server that stops all questions and ends cleanly on Ctrl-C. It logs only its own failures."""

    def __init__(self, app: Any, queue: QueryQueue, ready: Callable[[], None]) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        config = uvicorn.Config(
            app,
            http=TimeoutProtocol,
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
        self._queue, self._ready = queue, ready
        self.should_exit = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server and report that it is ready."""
        await super().startup(sockets=sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server once its queries have stopped. A second signal ends it at once."""
        self._queue.stop_running()
        self.force_exit = self.should_exit
        self.should_exit = True


class TimeoutProtocol(H11Protocol):  # type: ignore[misc]
    """Close a connection if a request does not arrive in time, or its answer is not read."""

    def connection_made(self, transport: Any) -> None:
        """Start the timer."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look = self.loop.call_later(PATIENCE, self._check_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._look.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _check_timeout(self) -> None:
        """Close a connection that has waited long enough, or check again later."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if self.loop.time() - self._since >= (STUCK if busy else PATIENCE):
            self.transport.abort()
        else:
            self._look = self.loop.call_later(PATIENCE / 2, self._check_timeout)
