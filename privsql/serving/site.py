"""The pages of the server by address: the list of releases, forms, answers in words, and pictures."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from privsql.answers.answer import THEIRS
from privsql.errors import InfeasibleError, LateError, PrivsqlError, UsageError
from privsql.extras import PICTURES
from privsql.markup import distinct, plain
from privsql.pages.rendering import page, style
from privsql.plot import BLUE, INKS, chart
from privsql.releases.statements import lines
from privsql.serving import results
from privsql.serving.form import Asked, address, parameters, read
from privsql.serving.guard import BusyError
from privsql.serving.results import statement, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request

    from privsql.answers.answer import Answer
    from privsql.serving.form import Column, Condition, Form, Pairs
    from privsql.serving.guard import Desk, Served

# Pictures -------------------------------------------------------------------------------------------------------------
# An answer as a picture: estimates with their intervals, by one or two groups. The extra ``privsql[plot]``.

FEW, MANY = 40, 400  # rows: of groups that have names, and of numbers or dates along an axis
AXIS = 12  # numbers or dates from which on they lie along an axis
SEVERAL = [INKS[name] for name in ("first", "second", "third", "still")]  # groups that colours tell apart
WIDTH, HEIGHT, ROW = 320, 200, 22  # pixels
LABEL = 24  # characters of a label
NAME = "The answer as a picture"
SAID = "Estimates as dots, their intervals as lines; the table has the numbers."
HEADER = '<svg xmlns="http://www.w3.org/2000/svg"'
INKED = re.compile(r"^\.fill-.*$", re.MULTILINE)  # lines of the stylesheet
LETTERS = 'text { font-family: "Liberation Sans", Arial, Helvetica, sans-serif; }'  # by which it is laid out
Row = tuple[Any, ...]
Labels = dict[str | None, str]


def drawable(answer: Answer) -> bool:
    """Whether a picture can be drawn of an answer, and what draws it is installed."""
    groups = _groups(answer)
    if not PICTURES.there or len(groups) not in (1, 2):
        return False
    if not 2 <= len(answer.rows) <= (MANY if _along(answer, groups) else FEW):
        return False
    return len(groups) == 1 or len({row[groups[1]] for row in answer.rows}) <= len(SEVERAL)


def draw_answer(answer: Answer) -> str:
    """The picture as SVG, a document of its own, that follows the scheme of whoever looks at it."""
    from privsql.pages import rendering  # noqa: PLC0415 (what it is drawn by takes long to import, and is seldom needed)

    made = str(rendering.draw_svg(_chart(answer), "picture", NAME, SAID))
    return made.replace("<svg", HEADER, 1).replace("><title", f"><style>{_colours()}</style><title", 1)


def content_policy() -> str:
    """The content security policy of a picture: its own style and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_colours().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"


def _colours() -> str:
    """What the stylesheet says of pictures: colours, light and dark, the classes that take them, and letters."""
    roots, rest = style().split("* {", 1)
    return "\n".join([roots.strip(), *INKED.findall(rest), LETTERS])


def _groups(answer: Answer) -> list[int]:
    """The places of the columns that are no figures."""
    inside = {one.at + k for one in answer.figures for k in range(4)}
    return [at for at in range(len(answer.columns)) if at not in inside]


def _along(answer: Answer, groups: list[int]) -> bool:
    """Whether the first group is of numbers or dates, enough of them for an axis."""
    found = {row[groups[0]] for row in answer.rows} - {None}
    return len(found) > AXIS and all(isinstance(one, int | float | dt.date) for one in found)


def _chart(answer: Answer) -> Any:
    import altair as alt  # noqa: PLC0415

    groups, figure = _groups(answer), answer.figures[0]
    along = _along(answer, groups)
    called = [_called(row[at] for row in answer.rows) for at in groups]
    base = chart([_row(answer, row, groups, called, along=along) for row in answer.rows])
    colour: Any = alt.value(BLUE)
    if len(groups) == 2:
        named = alt.Color("other:N", title=_named(answer, groups[1]), sort=None)
        colour = named.scale(range=SEVERAL).legend(orient="top", labelLimit=0, symbolOpacity=1)
    number, name = answer.columns[figure.at], _named(answer, groups[0])
    if along:
        moments = any(isinstance(row[groups[0]], dt.date) for row in answer.rows)
        place = alt.X("group:T" if moments else "group:Q", title=name).scale(zero=False, nice=False, padding=6)
        ends = {"y": alt.Y("low:Q", title=number).axis(format=",~r", tickCount=5), "y2": alt.Y2("high:Q")}
        middle, size = {"y": alt.Y("estimate:Q")}, {"width": WIDTH, "height": HEIGHT}
    else:
        place = alt.Y("group:N", sort=None, title=name).axis(labelLimit=0)
        ends = {"x": alt.X("low:Q", title=number).axis(format=",~r", tickCount=5), "x2": alt.X2("high:Q")}
        middle, size = {"x": alt.X("estimate:Q")}, {"width": WIDTH, "height": alt.Step(ROW)}
    offset = {"yOffset": alt.YOffset("other:N", sort=None)} if len(groups) == 2 and not along else {}
    lines = base.mark_rule(strokeWidth=2, opacity=0.55).encode(place, color=colour, **ends, **offset)
    dots = base.mark_circle(size=26, opacity=1).encode(place, color=colour, **middle, **offset)
    return (lines + dots).properties(**size)


def _row(answer: Answer, row: Row, groups: list[int], called: list[Labels], *, along: bool) -> dict[str, Any]:
    estimate, _, low, high = (None if one is None else float(one) for one in answer.figures[0].of(row))
    first = row[groups[0]]
    place = (first.isoformat() if isinstance(first, dt.date) else first) if along else called[0][_text(first)]
    found = {"group": place, "estimate": estimate, "low": low, "high": high}
    return found | ({"other": called[1][_text(row[groups[1]])]} if len(groups) == 2 else {})


def _named(answer: Answer, at: int) -> str:
    return plain(answer.columns[at], LABEL)


def _called(values: Iterable[Any]) -> Labels:
    """A label for each value of a group by its text, no two alike."""
    found = list(dict.fromkeys(_text(one) for one in values))
    return dict(zip(found, distinct(["NULL" if one is None else one for one in found], LABEL), strict=True))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


# Questions in words ---------------------------------------------------------------------------------------------------
# A question that was chosen, in words: what whoever asked can hold against what was meant.

MOST = 5  # values that are named
ITEMS = {"all": ("", "and"), "any": ("at least one of ", "and"), "none": ("neither ", "nor")}


def words(asked: Asked, form: Form) -> str:
    """One sentence; of SQL that somebody wrote none."""
    if asked.sql:
        return ""
    measure = next(one.label for one in form.measures if one.key == asked.measure)
    parts = [_of(form.columns[number], said) for number, said in sorted(asked.conditions.items())]
    parts += [_of_items(name, chosen) for name, chosen in asked.items.items() if chosen]
    parts += [f"{_range(asked.length)} items"] if asked.length.low or asked.length.high else []
    groups = " and of ".join(form.columns[number].name for number in asked.groups)
    among = f" with {'; '.join(parts)}" if parts else "" if groups else " in all"
    by = ", by the literature's formula" if asked.estimator == THEIRS else ""
    return f"{measure}{among}{f', for each value of {groups}' if groups else ''}{by}."


def summary(said: Condition) -> str:
    """What is said of a column, in a few words."""
    parts = [_listed(said.values, "or")] if said.values else []
    parts += [_range(said)] if said.low or said.high else []
    parts += ["no value (NULL)"] if said.nulls in ("too", "only") else []
    return " or ".join(parts) + ((", known" if parts else "known") if said.nulls == "not" else "")


def _of_items(name: str, chosen: tuple[str, ...]) -> str:
    before, last = ITEMS[name]
    if len(chosen) == 1:
        return f"{'not ' if name == 'none' else ''}{chosen[0]}"
    return f"{before}{_listed(chosen, last)}"


def _of(column: Column, said: Condition) -> str:
    return f"{column.name} {summary(said)}"


def _range(said: Condition) -> str:
    if said.low and said.high:
        return f"from {said.low} to {said.high}"
    return f"from {said.low}" if said.low else f"up to {said.high}"


def _listed(values: tuple[str, ...], last: str) -> str:
    shown = [*values[:MOST], *([f"{len(values) - MOST} more"] if len(values) > MOST else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"


# The page of a release ------------------------------------------------------------------------------------------------
# The page of one release: what its template is filled with.


@dataclass(frozen=True)
class View:
    """What stands on the page: a question and its answer, or the line by which it was ``refused``."""

    asked: Asked
    pairs: Pairs = field(default_factory=list)
    answer: Answer | None = None
    refused: str = ""
    again: bool = False
    """Whether the same may be answered another time."""

    def html(self, served: Served, *, several: bool, verified: bool) -> str:
        """The page."""
        told = [(name, value) for name, value in lines(served.manifest) if value not in (None, "")]
        facts = {"served": served, "form": served.form, "asked": self.asked, "sql": _written(self.asked, served)}
        facts |= {"answer": self.answer, "refused": self.refused, "again": self.again, "told": told}
        facts |= {"words": words(self.asked, served.form), "summary": summary}
        facts |= {"several": several, "verified": verified} | (
            self._answered(served, self.answer) if self.answer else {}
        )
        return page("serve/release.html", title=served.manifest.name, **facts)

    def _answered(self, served: Served, answer: Answer) -> dict[str, Any]:
        sql = self.asked.sql or text(statement(self.asked, served.form), lines=False)
        return {
            "table": results.render_answer(answer),
            "headline": results.headline(answer),
            "csv": at(served, "/answer.csv", self.pairs),
            "json": at(served, "/answer.json", self.pairs),
            "picture": at(served, "/picture.svg", self.pairs) if drawable(answer) else "",
            "shell": results.shell_snippet(served, sql, self.asked.confidence, self.asked.estimator),
            "python": results.python_snippet(served, sql, self.asked.confidence, self.asked.estimator),
        }


def refused(query: bytes, served: Served, error: PrivsqlError) -> View:
    """The page of an address that is refused, with as much of what it asked as can be shown again."""
    try:
        asked = read(parameters(query), served.form)
    except PrivsqlError:
        asked = Asked()
    return View(asked, refused=str(error), again=not isinstance(error, UsageError))


def sql_of(asked: Asked, served: Served) -> str:
    """The SQL that is asked; ``UsageError`` for a value that its column can't have."""
    return asked.sql or text(statement(asked, served.form))


def at(served: Served, path: str, pairs: Pairs) -> str:
    """An address below a release's own."""
    return f"/{served.slug}{path}" + (f"?{address(pairs)}" if pairs else "")


def _written(asked: Asked, served: Served) -> str:
    """The SQL that is shown to be changed."""
    try:
        return sql_of(asked, served)
    except PrivsqlError:
        return sql_of(Asked(), served)


# Site -----------------------------------------------------------------------------------------------------------------
# The addresses: a list of releases, and of each a page to ask at, its answers as CSV and JSON, and a picture.

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
        return PlainTextResponse(results.as_csv(answer), media_type="text/csv", headers=_file(served, "csv"))

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
        if not drawable(answer):
            raise UsageError("there is no picture of this answer")
        drawn = await self._desk.work(lambda: draw_answer(answer), threading.Event(), request.is_disconnected)
        headers = {"Content-Security-Policy": content_policy()}
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
