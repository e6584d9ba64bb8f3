"""Who may ask: the right address, from no other page, with the token where one is needed. Nothing else gets in.

A page that somebody else made must not read a release through the browser of whoever has both open: its requests say
where they come from (``Origin``, ``Sec-Fetch-Site``), and a name that it turned towards this machine (DNS rebinding)
stands in ``Host``.
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from privsql.errors import UsageError
from privsql.pages.rendering import style_source
from privsql.serving.asked import address, parameters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Message = dict[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Message, Receive, Send], Awaitable[None]]

COOKIE, TOKEN = "privsql_token", "token"
METHODS = ("GET", "HEAD")
LONGEST = 32_768  # bytes of an address
OWN = {"same-origin", "none"}  # where a browser may say that a request comes from
NOT_HERE = "this page is not called so; use the address that the terminal shows, or start it with --allow-host"
CROSS = "another page asked for this; open the address by itself"
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


def policy() -> str:
    """The content security policy of every page: its own style, its own pictures, forms that lead here. No script."""
    own = f"default-src 'none'; style-src {style_source()}; img-src 'self'; form-action 'self'"
    return f"{own}; base-uri 'none'; frame-ancestors 'none'"


class Guard:
    """Stands before the page. ``hosts``: what it may be called, in small letters; ``token``: None where none is needed.

    ``any_address``: whether it may be called by any number, since it listens on all of the machine's; ``cookie``: what
    keeps the token, for each page of a machine another one, as browsers don't tell ports apart.
    """

    def __init__(
        self, app: App, hosts: frozenset[str], token: str | None, *, any_address: bool = False, cookie: str = COOKIE
    ) -> None:
        self._app, self._hosts, self._token, self._any_address, self._cookie = app, hosts, token, any_address, cookie

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer, or refuse in one line; of a web socket nothing is heard."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", policy())
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        request = Request(scope)
        await (self._refused(request) or self._known(request) or self._app)(scope, receive, dressed)

    def _refused(self, request: Request) -> Response | None:
        """What is wrong with a request, whoever sent it."""
        if request.method not in METHODS:
            return _line(405, f"{' and '.join(METHODS)} alone are answered", Allow=", ".join(METHODS))
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            return _line(413, "a question stands in the address; nothing is read of a body", Connection="close")
        if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > LONGEST:
            return _line(414, f"the address is longer than {LONGEST:,} characters; ask with privsql query")
        if not self._is_called(request.headers.getlist("host")):
            return _line(403, NOT_HERE)
        return None if _is_own(request) else _line(403, CROSS)

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
        return name.rstrip(".") in self._hosts or (self._any_address and _is_address(name))

    def _known(self, request: Request) -> Response | None:
        """What is said to somebody without the token, and to somebody who has just shown it; None to all others."""
        if self._token is None:
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if (kind.lower() == "bearer" and self._is_token(given.strip())) or self._is_token(
            request.cookies.get(self._cookie, "")
        ):
            return self._without(request) if self._shown(request) else None
        if self._is_token(self._shown(request)):
            answer = self._without(request)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        return _line(401, UNKNOWN, **{"WWW-Authenticate": "Bearer"})

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self._token or "").encode())

    @staticmethod
    def _shown(request: Request) -> str:
        """The token that stands in the address, if one does."""
        try:
            return next((value for name, value in parameters(request.scope["query_string"]) if name == TOKEN), "")
        except UsageError:
            return ""

    @staticmethod
    def _without(request: Request) -> Response:
        """The same address without the token: it stays in no bookmark and no history."""
        pairs = [pair for pair in parameters(request.scope["query_string"]) if pair[0] != TOKEN]
        path = "/" + request.scope["raw_path"].decode("ascii").lstrip("/")  # never another machine's
        return RedirectResponse(path + (f"?{address(pairs)}" if pairs else ""), status_code=303)


def _is_own(request: Request) -> bool:
    """Whether it comes from this page, or from no page at all."""
    if request.headers.get("sec-fetch-site", "none") not in OWN:
        return False
    origin = request.headers.get("origin")
    return origin is None or origin in {f"{kind}://{request.headers['host']}" for kind in ("http", "https")}


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _line(status: int, text: str, **headers: str) -> Response:
    return PlainTextResponse(f"privsql: {text}\n", status_code=status, headers=headers)
