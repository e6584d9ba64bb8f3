"""Run the web server: its socket, the host names that it accepts, its patience with slow clients, and its end."""

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


CONNECTIONS = 128  # the most connections at the same time
HEAD = 1_200_000  # the most bytes of a request's header
PATIENCE = 10.0  # seconds within which a request must arrive completely
STUCK = 120.0  # seconds after which any connection is closed
ENDING = 5  # seconds for running requests when the server ends
NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Listener:
    """The open socket of the server, and who may connect to it.

    Attributes:
        hosts: Host names of the machine, besides ``host`` and its own name, by which browsers may call the server.
        token: The token that requests need; None if they need none.
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
        """Return the host names by which requests may call the server."""
        bound = self.socket.getsockname()[0]
        machine = (_machine_name(), socket.gethostname()) if self.is_everywhere else ()
        called = (self.host, bound, *self.hosts, *machine)
        local = LOCAL if self.is_everywhere or ip_address(bound).is_loopback else ()
        return frozenset(name.lower() for name in (*called, *local))


def open_listener(host: str, port: int, *, token: bool = False, hosts: Sequence[str] = ()) -> Listener:
    """Open the server's socket. A token is made if other machines can connect, or if ``token`` is true.

    Args:
        host: The address to listen on.
        port: The port; 0 for any free one.
        token: Whether to make a token even if only this machine can connect.
        hosts: Other host names of this machine by which browsers may call the server, without a port.

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
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)  # only Windows has the former
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
    """Return a host name as browsers write it into the header ``Host``.

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
    """Return the web application: the page inside the guard that refuses requests.

    Args:
        served: The releases by their names in addresses.
        listener: The server's socket.
        queue: The queue of questions.
        verified: Whether the releases were checked at the start, as the page then says.
    """
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
    """Serve the page until a signal such as Ctrl-C ends the server.

    Args:
        served: The releases by their names in addresses.
        listener: The server's socket.
        queue: The queue of questions.
        ready: Called with the page's address once the server can be reached.
        verified: Whether the releases were checked at the start, as the page then says.
    """
    app = make_app(served, listener, queue, verified=verified)
    server = QueryServer(app, queue, lambda: ready(listener.address))

    async def run() -> None:
        with closing(queue):
            await server.serve(sockets=[listener.socket])

    asyncio.run(run())


class QueryServer(uvicorn.Server):  # type: ignore[misc]
    """A server that stops all questions and ends cleanly on Ctrl-C. It logs only its own failures."""

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
        """Start the server, and tell the caller that it can be reached."""
        await super().startup(sockets=sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop all queries, then end the server. A second signal ends it at once."""
        self._queue.stop_running()
        self.force_exit = self.should_exit
        self.should_exit = True


class TimeoutProtocol(H11Protocol):  # type: ignore[misc]
    """A connection that closes itself if a request does not arrive in time, or if its answer is not read."""

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, and start the timer that closes it if the client is too slow."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look = self.loop.call_later(PATIENCE, self._check_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a connection that has ended."""
        self._look.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Restart the timer for the next request, after a response was sent."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _check_timeout(self) -> None:
        """Close the connection if its client has taken too long; otherwise check again later."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if self.loop.time() - self._since >= (STUCK if busy else PATIENCE):
            self.transport.abort()
        else:
            self._look = self.loop.call_later(PATIENCE / 2, self._check_timeout)
