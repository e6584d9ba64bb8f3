"""Admit requests to the web page, let queries wait for their turn, and keep the served releases open."""

from __future__ import annotations

import asyncio
import hmac
import re
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from privsql.answers.present import QuestionLimits
from privsql.errors import EngineError, LateError, UsageError
from privsql.model.estimates import BEST
from privsql.pages.rendering import style_source
from privsql.releases.opened import Release, open_release
from privsql.releases.statements import ReleaseSummary, list_bounds
from privsql.serving.form import join_parameters, make_form, parse_parameters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from privsql.answers.answer import Answer
    from privsql.engine.database import Options
    from privsql.source.targets import Target

    Message = dict[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Message, Receive, Send], Awaitable[None]]
    Found = TypeVar("Found")

# Admission ------------------------------------------------------------------------------------------------------------
# A request needs a known host name and, where there is one, the token, and must not come from another site's page.
#
# Another site could otherwise read a release through a browser that has both pages open. Browsers state the site that a
# request comes from (``Origin``, ``Sec-Fetch-Site``). A site that resolves its own name to this machine (DNS rebinding)
# is recognized by that name in ``Host``.

COOKIE, TOKEN = "privsql_token", "token"
METHODS = ("GET", "HEAD")
LONGEST_ADDRESS = 32_768  # the most bytes of an address
OWN_SITES = {"same-origin", "none"}  # values of Sec-Fetch-Site that are allowed
NOT_HERE = "this page has another address; use the one that the terminal shows, or start it with --allow-host"
CROSS = "another page sent this request; open the address directly"
UNKNOWN = "open the address that the terminal shows, with its token"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


# The content security policy of pages: their own style and pictures, forms that lead here, no script.
POLICY = (
    "default-src 'none'; style-src {style}; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Guard:
    """A web application around the page, which refuses requests that are not allowed.

    Attributes:
        hosts: The allowed host names, in lower case.
        token: The token that a request needs; None if it needs none.
        any_address: Whether any IP address is an allowed host, because the server listens on all addresses of the
            machine.
        cookie: The name of the token's cookie. Each server on a machine uses another name, because browsers ignore
            ports.
    """

    def __init__(
        self, app: App, hosts: frozenset[str], token: str | None, *, any_address: bool = False, cookie: str = COOKIE
    ) -> None:
        self._app, self._hosts, self._token, self._any_address, self._cookie = app, hosts, token, any_address, cookie

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on to the page, or answer it with a refusal of one line. Web sockets are ignored."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY.format(style=style_source()))
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        request = Request(scope)
        await (self._request_refusal(request) or self._token_response(request) or self._app)(scope, receive, dressed)

    def _request_refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request; None if the request is allowed."""
        if request.method not in METHODS:
            return _plain_response(405, f"{' and '.join(METHODS)} alone are answered", Allow=", ".join(METHODS))
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            return _plain_response(413, "the address holds the query; a request must have no body", Connection="close")
        if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > LONGEST_ADDRESS:
            return _plain_response(
                414, f"the address is longer than {LONGEST_ADDRESS:,} characters; ask with privsql query"
            )
        if not self._is_called(request.headers.getlist("host")):
            return _plain_response(403, NOT_HERE)
        origin = request.headers.get("origin")  # it must be this page, or missing
        own = (None, *(f"{kind}://{request.headers['host']}" for kind in ("http", "https")))
        if request.headers.get("sec-fetch-site", "none") not in OWN_SITES or origin not in own:
            return _plain_response(403, CROSS)
        return None

    def _is_called(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        try:
            parts = urlsplit(f"//{hosts[0]}")
            name, _ = parts.hostname or "", parts.port
        except ValueError:
            return False
        if parts.netloc != hosts[0] or parts.username is not None:
            return False
        return name.rstrip(".") in self._hosts or (self._any_address and is_ip_address(name))

    def _token_response(self, request: Request) -> Response | None:
        """Check the token of a request.

        Returns:
            A refusal if the token is missing or wrong; a redirect if it is in the address and moves into a cookie; None
            if the request may go on.
        """
        if self._token is None:
            return None
        kind, _, credentials = request.headers.get("authorization", "").partition(" ")
        known = kind.lower() == "bearer" and self._is_token(credentials.strip())
        known = known or self._is_token(request.cookies.get(self._cookie, ""))
        if known:
            return self._redirect_without_token(request) if self._token_in_address(request) else None
        if self._is_token(self._token_in_address(request)):
            answer = self._redirect_without_token(request)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        return _plain_response(401, UNKNOWN, **{"WWW-Authenticate": "Bearer"})

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), (self._token or "").encode())

    @staticmethod
    def _token_in_address(request: Request) -> str:
        """Return the token in the address of a request; empty if there is none."""
        try:
            return next((value for name, value in parse_parameters(request.scope["query_string"]) if name == TOKEN), "")
        except UsageError:
            return ""

    @staticmethod
    def _redirect_without_token(request: Request) -> Response:
        """Return a redirect to the same address without the token, so that no bookmark and no history holds it."""
        pairs = [pair for pair in parse_parameters(request.scope["query_string"]) if pair[0] != TOKEN]
        # One slash, so that it never leads to another host.
        path = "/" + request.scope["raw_path"].decode("ascii").lstrip("/")
        return RedirectResponse(path + (f"?{join_parameters(pairs)}" if pairs else ""), status_code=303)


def is_ip_address(name: str) -> bool:
    """Return whether a host name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _plain_response(status: int, text: str, **headers: str) -> Response:
    return PlainTextResponse(f"privsql: {text}\n", status_code=status, headers=headers)


# Served releases ------------------------------------------------------------------------------------------------------

LONGEST_NAME = 40  # the most characters of a release's name in addresses


class ReleasePool:
    """A served release, with sessions in which questions to it are answered.

    ``slug`` is its name in addresses. Each question uses an idle session; if there is none, another one is opened.
    """

    def __init__(
        self, target: Target, slug: str, attach: Sequence[Path], options: Options, *, fit: bool = False
    ) -> None:
        self.target, self.path, self.slug = target, target.path, slug
        self._attach, self._options = tuple(attach), options
        self._turn, self._closed = threading.Lock(), False
        first = self._open_release()
        if fit:
            first.fit_once()
        self._idle = [first]
        self.manifest, self.form = first.manifest, make_form(first)

    @cached_property
    def summary(self) -> ReleaseSummary:
        """Return the summary of the release, without the attacker and the errors, which take long to measure."""
        with open_release(self.target) as (_, attached):
            return ReleaseSummary.make(attached, list_bounds(attached))

    def _open_release(self) -> Release:
        return Release(self.target, self._attach, self._options)

    def ask(self, sql: str, confidence: float, limits: QuestionLimits, estimator: str) -> Answer:
        """Answer a query in an idle session of the release; a new one is opened if all are busy.

        Args:
            sql: The query.
            confidence: The confidence of the intervals.
            limits: How long the query may take, and how many rows it may return.
            estimator: The name of the estimator.
        """
        with self._turn:
            release = self._idle.pop() if self._idle else None
        if release is None:
            release = self._open_release()
            if release.manifest != self.manifest:
                release.close()
                raise UsageError(f"{self.path.name} has changed since the server started; start it again")
        try:
            return release.query(sql, confidence=confidence, estimator=estimator, limits=limits)
        finally:
            with self._turn:
                if not self._closed:
                    self._idle.append(release)
            if self._closed:
                release.close()

    def close(self) -> None:
        """Close all idle sessions. The others are closed when their questions end."""
        with self._turn:
            self._closed = True
            idle, self._idle = self._idle, []
        for release in idle:
            release.close()


@contextmanager
def open_pools(
    targets: Sequence[Target], attach: Sequence[Path], options: Options, *, fit: bool = False
) -> Iterator[dict[str, ReleasePool]]:
    """Open several releases, and yield them by their names in addresses.

    Args:
        targets: The places of the releases.
        attach: Files whose tables questions may join.
        options: How the engine runs.
        fit: Whether to fit a model first to a release without one, if that is quick.

    Raises:
        UsageError: There is no release to serve.
    """
    if not targets:
        raise UsageError("name at least one release to serve")
    with ExitStack() as stack:
        pools: dict[str, ReleasePool] = {}
        for target in targets:
            name = re.sub(r"[^a-z0-9]+", "-", target.path.name.lower().replace(".duckdb", "")).strip("-")
            base = name[:LONGEST_NAME] or "release"
            numbered = (base if k == 1 else f"{base}-{k}" for k in range(1, len(pools) + 2))
            slug = next(one for one in numbered if one not in pools)
            pools[slug] = ReleasePool(target, slug, attach, options, fit=fit)
            stack.callback(pools[slug].close)
        yield pools


# The queue of queries -------------------------------------------------------------------------------------------------

WAITING = 64  # the most questions that may wait
GRACE = 2.0  # seconds beyond the time limit, for work outside the engine
MOST_CACHED, ROWS = 16, 2_000  # the most answers that are kept, and the most rows of one
LOOK = 0.5  # seconds between two checks whether the client is still there


class BusyError(EngineError):
    """Too many questions are waiting. The same question may succeed later."""


class QueryQueue:
    """A queue of questions, of which a few are answered at the same time in threads.

    It must be used within a single event loop.
    """

    def __init__(self, at_once: int, seconds: float, rows: int) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="privsql")
        self._places = asyncio.Semaphore(at_once)
        self._seconds, self._rows = seconds, rows
        self._waiting = 0
        self._running: set[threading.Event] = set()
        self._cached: OrderedDict[tuple[str, str, float, str], Answer] = OrderedDict()

    async def ask(
        self,
        served: ReleasePool,
        sql: str,
        confidence: float,
        gone: Callable[[], Awaitable[bool]],
        estimator: str = BEST,
    ) -> Answer:
        """Return the answer of a release to a query, once it is the query's turn.

        Args:
            served: The release.
            sql: The query.
            confidence: The confidence of the intervals.
            gone: Tells whether the client has left.
            estimator: The name of the estimator.

        Raises:
            BusyError: Too many questions are waiting.
            LateError: The answer takes too long, or the client has left.
            PrivsqlError: The release can't answer the query.
        """
        key = (served.slug, sql, confidence, estimator)
        if key in self._cached:
            self._cached.move_to_end(key)
            return self._cached[key]
        stop = threading.Event()
        limits = QuestionLimits(self._seconds, self._rows, stop)
        answer = await self.run_in_thread(lambda: served.ask(sql, confidence, limits, estimator), stop, gone)
        if len(answer.rows) <= ROWS:
            self._cached[key] = answer
        while len(self._cached) > MOST_CACHED:
            self._cached.popitem(last=False)
        return answer

    async def run_in_thread(
        self, do: Callable[[], Found], stop: threading.Event, gone: Callable[[], Awaitable[bool]]
    ) -> Found:
        """Run a function in a thread once it is its turn, and return its result.

        Args:
            do: The function.
            stop: Is set to stop the function if the client leaves or the time is over.
            gone: Tells whether the client has left.

        Raises:
            BusyError: Too many questions are waiting.
            LateError: The function takes too long, or the client has left.
        """
        if not self._places.locked():
            await self._places.acquire()
        elif self._waiting >= WAITING:
            raise BusyError(f"{WAITING} queries are waiting already; try again in a moment")
        else:
            self._waiting += 1
            try:
                await asyncio.wait_for(self._places.acquire(), self._seconds)
            except TimeoutError as error:
                late = f"the query was not started within {self._seconds:g} s; try again in a moment"
                raise BusyError(late) from error
            finally:
                self._waiting -= 1
        loop = asyncio.get_running_loop()
        self._running.add(stop)
        try:
            doing = loop.run_in_executor(self._pool, do)
        except RuntimeError as error:  # the pool is closed
            self._places.release()
            raise BusyError("the server is stopping") from error

        def free_place(_: object) -> None:
            self._running.discard(stop)
            self._places.release()

        doing.add_done_callback(free_place)
        end = loop.time() + self._seconds + GRACE
        try:
            while not doing.done():
                await asyncio.wait({doing}, timeout=LOOK)
                if not doing.done() and (loop.time() > end or await gone()):
                    raise LateError(f"the query takes longer than {self._seconds:g} s")
            return doing.result()
        finally:
            if not doing.done():
                stop.set()
                # Reads the error, which Python would report otherwise.
                doing.add_done_callback(lambda one: one.cancelled() or one.exception())

    def stop_running(self) -> None:
        """Stop all running queries. A signal handler may call this."""
        for stop in list(self._running):
            stop.set()

    def close(self) -> None:
        """Stop all queries and wait until they have ended."""
        self.stop_running()
        self._pool.shutdown(wait=True, cancel_futures=True)
