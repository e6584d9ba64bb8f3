"""The addresses: a list of releases, and of each a page to ask at, its answers as CSV and JSON, and a picture."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from privsql.errors import InfeasibleError, LateError, PrivsqlError, UsageError
from privsql.pages.rendering import page
from privsql.serving import picture, shown
from privsql.serving.asked import address, parameters, read
from privsql.serving.desk import BusyError
from privsql.serving.view import View, at, refused, sql_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from privsql.answers.answer import Answer
    from privsql.serving.asked import Asked
    from privsql.serving.desk import Desk
    from privsql.serving.shelf import Served

RETRY = {"Retry-After": "2"}
NO_SUCH = "there is no such page here"
BROKEN = "this failed, and should not have; the terminal says more"


def site(served: Mapping[str, Served], desk: Desk, *, verified: bool) -> Starlette:
    """The page over some releases; ``verified``: whether these were checked when it began."""
    room = Site(served, desk, verified=verified)
    routes = [
        Route("/", room.home),
        Route("/favicon.ico", _nothing),
        Route("/{slug}", room.asked),
        Route("/{slug}/answer.csv", room.csv),
        Route("/{slug}/answer.json", room.json),
        Route("/{slug}/picture.svg", room.picture),
    ]
    handlers: Any = {PrivsqlError: _refused, HTTPException: _missing, 500: _broken}
    made = Starlette(routes=routes, exception_handlers=handlers)
    made.router.redirect_slashes = False
    return made


class Site:
    """What the addresses answer."""

    def __init__(self, served: Mapping[str, Served], desk: Desk, *, verified: bool) -> None:
        self._served, self._desk, self._verified = served, desk, verified

    async def home(self, request: Request) -> Response:  # noqa: ARG002 (every address is given it)
        """The releases; of one alone its page."""
        if len(self._served) == 1:
            return RedirectResponse(f"/{next(iter(self._served))}", status_code=303)
        return HTMLResponse(page("serve/home.html", title="Releases", found=list(self._served.values())))

    async def asked(self, request: Request) -> Response:
        """The form, filled in as the address says, and the answer if it asks."""
        served = self._of(request)
        query = request.scope["query_string"]
        try:
            pairs = parameters(query)
            asked = read(pairs, served.form)
            if address(pairs).encode() != query:
                return RedirectResponse(at(served, "", pairs), status_code=303)
            answer = await self._answer(request, served, asked) if pairs else None
        except PrivsqlError as error:
            return self._page(served, refused(query, served, error), _status(error))
        return self._page(served, View(asked, pairs, answer))

    async def csv(self, request: Request) -> Response:
        """The answer as CSV."""
        served, answer = await self._told(request)
        return PlainTextResponse(shown.as_csv(answer), media_type="text/csv", headers=_file(served, "csv"))

    async def json(self, request: Request) -> Response:
        """The answer as the object of ``privsql query --json``; an error as well."""
        try:
            served, answer = await self._told(request)
        except PrivsqlError as error:
            return _json({"error": str(error), "exit_code": error.exit_code}, _status(error), _retry(error))
        return _json(answer.as_json(), headers=_file(served, "json"))

    async def picture(self, request: Request) -> Response:
        """The answer as a picture."""
        _, answer = await self._told(request)
        if not picture.drawable(answer):
            raise UsageError("there is no picture of this answer")
        drawn = await self._desk.work(lambda: picture.drawn(answer), threading.Event(), request.is_disconnected)
        headers = {"Content-Security-Policy": picture.policy()}
        return Response(drawn, media_type="image/svg+xml", headers=headers)

    def _of(self, request: Request) -> Served:
        found = self._served.get(request.path_params["slug"])
        if found is None:
            raise HTTPException(404, NO_SUCH)
        return found

    async def _told(self, request: Request) -> tuple[Served, Answer]:
        served = self._of(request)
        return served, await self._answer(request, served, read(parameters(request.scope["query_string"]), served.form))

    async def _answer(self, request: Request, served: Served, asked: Asked) -> Answer:
        sql, gone = sql_of(asked, served), request.is_disconnected
        return await self._desk.ask(served, sql, asked.confidence, gone, asked.estimator)

    def _page(self, served: Served, view: View, status: int = 200) -> Response:
        made = view.html(served, several=len(self._served) > 1, verified=self._verified)
        return HTMLResponse(made, status_code=status, headers=RETRY if status == 503 else {})


def _file(served: Served, ending: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{served.slug}-answer.{ending}"'}


def _json(found: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    content = json.dumps(found, ensure_ascii=False) + "\n"
    return Response(content, status, headers, media_type="application/json")


# What is refused ---


def _status(error: PrivsqlError) -> int:
    """What HTTP calls an error."""
    if isinstance(error, UsageError | InfeasibleError):
        return 400
    return 504 if isinstance(error, LateError) else 503


def _retry(error: PrivsqlError) -> dict[str, str]:
    return RETRY if isinstance(error, BusyError) else {}


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, PrivsqlError)  # noqa: S101 (it is registered for these alone)
    return PlainTextResponse(f"privsql: {error}\n", _status(error), _retry(error))


async def _missing(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return PlainTextResponse(f"privsql: {NO_SUCH}\n", status)


async def _broken(_: Request, __: Exception) -> Response:
    return PlainTextResponse(f"privsql: {BROKEN}\n", 500)


async def _nothing(_: Request) -> Response:
    return Response(status_code=204)
