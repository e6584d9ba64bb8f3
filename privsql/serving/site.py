"""Respond to the page's addresses: releases, forms, answers in words, pictures, CSV, and the SQL of a question."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import shlex
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from privsql.engine.sqlfiles import DIALECT, FLOATS, column, is_null, plain_sql, table
from privsql.errors import InfeasibleError, LateError, PrivsqlError, UsageError
from privsql.figures import format_estimate
from privsql.markup import distinct_labels, printable_text
from privsql.model.estimates import BASELINE, BEST
from privsql.pages.rendering import draw_svg, read_stylesheet, render_page, style_source
from privsql.plot import BLUE, INKS, load_altair, make_chart
from privsql.releases.statements import describe_manifest
from privsql.serving.form import CONFIDENCE, COUNT, FormQuestion, join_parameters, parse_parameters, read_question
from privsql.serving.guard import BusyError, QueryQueue, ReleasePool
from privsql.system import PICTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from starlette.requests import Request

    from privsql.answers.answer import Answer
    from privsql.serving.form import ColumnCondition, FormColumn, Pairs, ReleaseForm

# Pictures -------------------------------------------------------------------------------------------------------------
# An answer as a picture: estimates with their intervals, by one or two groups. The extra ``privsql[plot]``.

FEW, MANY = 40, 400  # the most rows of a chart with named groups, and with an axis
AXIS = 12  # the fewest numbers or dates that get an axis
SEVERAL = [INKS[name] for name in ("first", "second", "third", "still")]  # the colours of groups
WIDTH, HEIGHT, ROW = 320, 200, 22  # pixels
LABEL = 24  # the most characters of a label
NAME = "The answer as a picture"
DESCRIPTION = "Estimates as dots, their intervals as lines; the table has the numbers."
HEADER = '<svg xmlns="http://www.w3.org/2000/svg"'
INKED = re.compile(r"^\.fill-.*$", re.MULTILINE)  # lines of the stylesheet that set colours
# The fonts for which the chart is laid out.
LETTERS = 'text { font-family: "Liberation Sans", Arial, Helvetica, sans-serif; }'
Row = tuple[Any, ...]
Labels = dict[str | None, str]


def is_drawable(answer: Answer) -> bool:
    """Return whether a chart of an answer can be drawn; the package that draws it must be installed."""
    groups = answer.group_places
    if not PICTURES.is_installed or len(groups) not in (1, 2):
        return False
    if not 2 <= len(answer.rows) <= (MANY if _is_along_axis(answer, groups) else FEW):
        return False
    return len(groups) == 1 or len({row[groups[1]] for row in answer.rows}) <= len(SEVERAL)


def draw_answer(answer: Answer) -> str:
    """Return the chart of an answer as SVG, in the browser's light or dark colours."""
    svg = str(draw_svg(_make_chart(answer), "picture", NAME, DESCRIPTION))
    return svg.replace("<svg", HEADER, 1).replace("><title", f"><style>{_picture_styles()}</style><title", 1)


def content_policy() -> str:
    """Return the content security policy for a chart: its own style is allowed, and nothing else."""
    return f"default-src 'none'; style-src {style_source(_picture_styles())}; frame-ancestors 'none'"


def _picture_styles() -> str:
    """Return the CSS rules that a chart needs: light and dark colours, classes, and fonts."""
    roots, rest = read_stylesheet().split("* {", 1)
    return "\n".join([roots.strip(), *INKED.findall(rest), LETTERS])


def _is_along_axis(answer: Answer, groups: list[int]) -> bool:
    """Return whether a chart can show the first group of an answer along an axis, as a number or date.

    Args:
        answer: The answer.
        groups: The indices of its columns that are groups.
    """
    values = {row[groups[0]] for row in answer.rows} - {None}
    return len(values) > AXIS and all(isinstance(one, int | float | dt.date) for one in values)


def _make_chart(answer: Answer) -> Any:
    alt = load_altair()
    groups, figure = answer.group_places, answer.figures[0]
    along = _is_along_axis(answer, groups)
    called = [_group_labels(row[at] for row in answer.rows) for at in groups]
    base = make_chart([_chart_row(answer, row, groups, called, along=along) for row in answer.rows])
    colour: Any = alt.value(BLUE)
    if len(groups) == 2:
        named = alt.Color("other:N", title=_axis_title(answer, groups[1]), sort=None)
        colour = named.scale(range=SEVERAL).legend(orient="top", labelLimit=0, symbolOpacity=1)
    number, name = answer.columns[figure.at], _axis_title(answer, groups[0])
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


def _chart_row(answer: Answer, row: Row, groups: list[int], called: list[Labels], *, along: bool) -> dict[str, Any]:
    estimate, _, low, high = (None if one is None else float(one) for one in answer.figures[0].read_row(row))
    first = row[groups[0]]
    place = (first.isoformat() if isinstance(first, dt.date) else first) if along else called[0][_as_text(first)]
    point = {"group": place, "estimate": estimate, "low": low, "high": high}
    return point | ({"other": called[1][_as_text(row[groups[1]])]} if len(groups) == 2 else {})


def _axis_title(answer: Answer, at: int) -> str:
    return printable_text(answer.columns[at], LABEL)


def _group_labels(values: Iterable[Any]) -> Labels:
    """Return a label of a chart for each value of a grouping column; no two labels are equal."""
    texts = list(dict.fromkeys(_as_text(one) for one in values))
    return dict(zip(texts, distinct_labels(["NULL" if one is None else one for one in texts], LABEL), strict=True))


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


# Questions in words ---------------------------------------------------------------------------------------------------

MOST = 5  # the most values that a sentence names
ITEMS = {"all": ("", "and"), "any": ("at least one of ", "and"), "none": ("neither ", "nor")}


def describe_question(question: FormQuestion, form: ReleaseForm) -> str:
    """Return a question of the form as a sentence; empty for SQL that the reader wrote."""
    if question.sql:
        return ""
    measure = next(one.label for one in form.measures if one.key == question.measure)
    conditions = sorted(question.conditions.items())
    parts = [f"{form.columns[number].name} {describe_condition(condition)}" for number, condition in conditions]
    for name, chosen in ((name, chosen) for name, chosen in question.items.items() if chosen):
        before, last = ITEMS[name] if len(chosen) > 1 else ("not " if name == "none" else "", "")
        parts.append(f"{before}{_join_values(chosen, last)}")
    parts += [f"{_describe_range(question.length)} items"] if question.length.low or question.length.high else []
    groups = " and of ".join(form.columns[number].name for number in question.groups)
    among = f" with {'; '.join(parts)}" if parts else "" if groups else " in all"
    by = ", by the literature's formula" if question.estimator == BASELINE else ""
    return f"{measure}{among}{f', for each value of {groups}' if groups else ''}{by}."


def describe_condition(condition: ColumnCondition) -> str:
    """Return the condition on a column in words."""
    parts = [_join_values(condition.values, "or")] if condition.values else []
    parts += [_describe_range(condition)] if condition.low or condition.high else []
    parts += ["no value (NULL)"] if condition.nulls in ("too", "only") else []
    return " or ".join(parts) + ((", known" if parts else "known") if condition.nulls == "not" else "")


def _describe_range(condition: ColumnCondition) -> str:
    if condition.low and condition.high:
        return f"from {condition.low} to {condition.high}"
    return f"from {condition.low}" if condition.low else f"up to {condition.high}"


def _join_values(values: tuple[str, ...], last: str) -> str:
    named = [*values[:MOST], *([f"{len(values) - MOST} more"] if len(values) > MOST else [])]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} {last} {named[-1]}"


# The page of a release ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReleasePage:
    """What the page of a release shows: a question with its answer, or the reason why it was refused.

    Attributes:
        question: The question.
        pairs: The parameters (name, value) of the address that asks it.
        answer: The answer; None if nothing was asked, or if the question was refused.
        refused: The error message; empty without an error.
        again: Whether the same question may be answered later, for example because the server was busy.
    """

    question: FormQuestion
    pairs: Pairs = field(default_factory=list)
    answer: Answer | None = None
    refused: str = ""
    again: bool = False

    def as_html(self, served: ReleasePool, *, several: bool, verified: bool) -> str:
        """Return the page as HTML.

        Args:
            served: The release.
            several: Whether the server has other releases, too.
            verified: Whether the release was checked at the start, as the page then says.
        """
        asked, answer, form = self.question, self.answer, served.form
        facts: dict[str, Any] = {}
        if answer is not None:
            sql = asked.sql or plain_sql(build_statement(asked, form))
            facts = {
                "rows": answer.as_table(ROWS),
                "headline": make_headline(answer),
                "csv": release_address(served, "/answer.csv", self.pairs),
                "json": release_address(served, "/answer.json", self.pairs),
                "picture": release_address(served, "/picture.svg", self.pairs) if is_drawable(answer) else "",
                "shell": shell_snippet(served, sql, asked.confidence, asked.estimator),
                "python": python_snippet(served, sql, asked.confidence, asked.estimator),
            }
        try:
            editable = write_sql(asked, served)
        except PrivsqlError:
            editable = write_sql(FormQuestion(), served)
        facts |= {"title": served.manifest.name, "served": served, "form": form, "view": self, "sql": editable}
        facts |= {"words": describe_question(asked, form), "summary": describe_condition, "several": several}
        facts["lines"] = [
            (name, value) for name, value in describe_manifest(served.manifest) if value not in (None, "")
        ]
        return render_page("serve/release.html", asked=asked, verified=verified, **facts)


def write_sql(question: FormQuestion, served: ReleasePool) -> str:
    """Return the SQL of a question on the form.

    Raises:
        UsageError: A value does not fit the type of its column.
    """
    return question.sql or plain_sql(build_statement(question, served.form), pretty=True)


def release_address(served: ReleasePool, path: str, pairs: Pairs) -> str:
    """Return an address of a release's page, with parameters.

    Args:
        served: The release.
        path: The part of the address behind the release's name.
        pairs: The parameters.
    """
    return f"/{served.slug}{path}" + (f"?{join_parameters(pairs)}" if pairs else "")


# Site -----------------------------------------------------------------------------------------------------------------

RETRY = {"Retry-After": "2"}
NO_SUCH = "there is no such page here"
BROKEN = "this failed, and should not have; the terminal says more"


def make_site(served: Mapping[str, ReleasePool], queue: QueryQueue, *, verified: bool) -> Starlette:
    """Return the web application for some releases.

    Args:
        served: The releases by their names in addresses.
        queue: The queue of questions.
        verified: Whether the releases were checked at the start, as the pages then say.
    """
    pages = Site(served, queue, verified=verified)
    routes = [
        Route("/", pages.show_releases),
        Route("/favicon.ico", _respond_nothing),
        Route("/{slug}", pages.show_release),
        Route("/{slug}/answer.csv", pages.send_csv),
        Route("/{slug}/answer.json", pages.send_json),
        Route("/{slug}/picture.svg", pages.send_picture),
    ]
    handlers: Any = {PrivsqlError: _respond_refused, HTTPException: _respond_missing, 500: _respond_broken}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


class Site:
    """The functions that respond to requests for the page's addresses."""

    def __init__(self, served: Mapping[str, ReleasePool], queue: QueryQueue, *, verified: bool) -> None:
        self._served, self._queue, self._verified = served, queue, verified

    async def show_releases(self, request: Request) -> Response:
        """Respond with the list of releases; if there is only one, redirect to its page."""
        if len(self._served) == 1:
            return RedirectResponse(f"/{next(iter(self._served))}", status_code=303)
        return HTMLResponse(render_page("serve/home.html", title="Releases", found=list(self._served.values())))

    async def show_release(self, request: Request) -> Response:
        """Respond with the form, filled in as the address says, and with the answer if the address asks a question."""
        served, question, status = self._find_pool(request), FormQuestion(), 200
        query = request.scope["query_string"]
        try:
            pairs = parse_parameters(query)
            question = read_question(pairs, served.form)
            if join_parameters(pairs).encode() != query:
                return RedirectResponse(release_address(served, "", pairs), status_code=303)
            answer = await self._answer_question(request, served, question) if pairs else None
            page = ReleasePage(question, pairs, answer)
        except PrivsqlError as error:
            page = ReleasePage(question, refused=str(error), again=not isinstance(error, UsageError))
            status = _http_status(error)
        html = page.as_html(served, several=len(self._served) > 1, verified=self._verified)
        return HTMLResponse(html, status_code=status, headers=RETRY if status == 503 else {})

    async def send_csv(self, request: Request) -> Response:
        """Respond with the answer as CSV."""
        served, answer = await self._answer_request(request)
        return PlainTextResponse(as_csv(answer), media_type="text/csv", headers=_download_headers(served, "csv"))

    async def send_json(self, request: Request) -> Response:
        """Respond with the answer, or the error, as the object that ``privsql query --json`` prints."""
        try:
            served, answer = await self._answer_request(request)
        except PrivsqlError as error:
            facts = {"error": str(error), "exit_code": error.exit_code}
            return _json_response(facts, _http_status(error), _retry_headers(error))
        return _json_response(answer.as_json(), headers=_download_headers(served, "json"))

    async def send_picture(self, request: Request) -> Response:
        """Respond with the chart of the answer as SVG."""
        _, answer = await self._answer_request(request)
        if not is_drawable(answer):
            raise UsageError("this answer has no chart")
        drawn = await self._queue.run_in_thread(lambda: draw_answer(answer), threading.Event(), request.is_disconnected)
        headers = {"Content-Security-Policy": content_policy()}
        return Response(drawn, media_type="image/svg+xml", headers=headers)

    def _find_pool(self, request: Request) -> ReleasePool:
        pool = self._served.get(request.path_params["slug"])
        if pool is None:
            raise HTTPException(404, NO_SUCH)
        return pool

    async def _answer_request(self, request: Request) -> tuple[ReleasePool, Answer]:
        served = self._find_pool(request)
        question = read_question(parse_parameters(request.scope["query_string"]), served.form)
        return served, await self._answer_question(request, served, question)

    async def _answer_question(self, request: Request, served: ReleasePool, question: FormQuestion) -> Answer:
        sql, gone = write_sql(question, served), request.is_disconnected
        return await self._queue.ask(served, sql, question.confidence, gone, question.estimator)


def _download_headers(served: ReleasePool, ending: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{served.slug}-answer.{ending}"'}


def _json_response(result: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    content = json.dumps(result, ensure_ascii=False) + "\n"
    return Response(content, status, headers, media_type="application/json")


# What is refused ---


def _http_status(error: PrivsqlError) -> int:
    """Return the HTTP status code of the response to an error."""
    if isinstance(error, UsageError | InfeasibleError):
        return 400
    return 504 if isinstance(error, LateError) else 503


def _retry_headers(error: PrivsqlError) -> dict[str, str]:
    return RETRY if isinstance(error, BusyError) else {}


async def _respond_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, PrivsqlError)  # noqa: S101 (it is registered for these alone)
    return PlainTextResponse(f"privsql: {error}\n", _http_status(error), _retry_headers(error))


async def _respond_missing(_: Request, error: Exception) -> Response:
    return PlainTextResponse(f"privsql: {NO_SUCH}\n", getattr(error, "status_code", 404))


async def _respond_broken(_: Request, __: Exception) -> Response:
    return PlainTextResponse(f"privsql: {BROKEN}\n", 500)


async def _respond_nothing(_: Request) -> Response:
    return Response(status_code=204)


# Answers on a page ----------------------------------------------------------------------------------------------------

ROWS = 500  # the most rows on a page; downloads have all
FORMULA = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")  # first characters of formulas in spreadsheets, also wide ones


def make_headline(answer: Answer) -> tuple[str, str] | None:
    """Return an answer of a single figure as two texts, such as "about 120" and its interval; None for others."""
    if len(answer.rows) != 1 or len(answer.figures) != 1:
        return None
    estimate, error, low, high = answer.figures[0].read_row(answer.rows[0])
    if estimate is None:
        return "No answer", "no record meets the conditions, or the release says nothing of those that do"
    number, _, *ends = map(str, format_estimate(estimate, error, low, high))
    if error == 0 and low == high:
        return number, "exactly"
    if any(answer.may_be_empty) and low == high:
        return number, "if any record meets the question, which is not certain"
    if low is None or high is None:
        return f"about {number}", "an estimate without an interval"
    sure = "certainly" if answer.certain else f"{100 * answer.confidence:.10g} % sure:"
    return f"about {number}", f"{sure} between {ends[0]} and {ends[1]}"


# The same elsewhere ---


def shell_snippet(served: ReleasePool, sql: str, confidence: float, estimator: str = BEST) -> str:
    """Return the shell command that gives the same answer to a query, in the folder of the release's file."""
    how = [] if confidence == CONFIDENCE else ["--confidence", f"{confidence!r}"]
    how += [] if estimator == BEST else ["--estimator", estimator]
    arguments = [served.path.name, sql]
    if any(one.startswith("-") for one in arguments):  # such as an SQL comment, which would be taken for an option
        return shlex.join(["privsql", "query", *how, "--", *arguments])
    return shlex.join(["privsql", "query", *arguments, *how])


def python_snippet(served: ReleasePool, sql: str, confidence: float, estimator: str = BEST) -> str:
    """Return the Python code that gives the same answer to a query."""
    how = "" if confidence == CONFIDENCE else f", confidence={confidence!r}"
    how += "" if estimator == BEST else f", estimator={estimator!r}"
    return f"import privsql\n\nprivsql.query({served.path.name!r}, {sql!r}{how}).frame()"


def as_csv(answer: Answer) -> str:
    """Return the rows of an answer as CSV.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(_escape_formulas(answer.columns))
    writer.writerows(_escape_formulas(row) for row in answer.rows)
    return file.getvalue()


def _escape_formulas(cells: Sequence[object]) -> list[object]:
    return [f"'{one}" if isinstance(one, str) and one.startswith(FORMULA) else one for one in cells]


# SQL ------------------------------------------------------------------------------------------------------------------
# The SQL of a question; ``privsql query`` answers the same SQL.

NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
ENDLESS = {"nan", "inf", "-inf"}
AGGREGATES: dict[str, type[exp.AggFunc]] = {"avg": exp.Avg, "sum": exp.Sum}
MOMENTS: dict[str, Callable[[str], object]] = {"DATE": date.fromisoformat, "TIME": time.fromisoformat}
TRUTHS = {"true": exp.true, "false": exp.false}


def build_statement(question: FormQuestion, form: ReleaseForm) -> exp.Select:
    """Return the query for a question of the form, as a syntax tree.

    Raises:
        UsageError: A value does not fit the type of its column.
    """
    groups = [column(form.columns[number].name) for number in question.groups]
    measure: exp.Expr = exp.Count(this=exp.Star())
    if question.measure != COUNT:
        kind, _, number = question.measure.partition(".")
        measure = AGGREGATES[kind](this=column(form.find_column(number).name))
    query = exp.select(*groups, measure).from_(table(form.name))
    if form.items is not None:
        conditions = _item_conditions(question, form)
    else:
        conditions = [_condition_on(form.columns[number], one) for number, one in sorted(question.conditions.items())]
    if conditions:
        query = query.where(*conditions)
    for group in groups:
        query = query.group_by(group.copy()).order_by(group.copy())
    return query


# Conditions ---


def _condition_on(form_column: FormColumn, condition: ColumnCondition) -> exp.Expr:
    name = column(form_column.name)
    values = [_value_literal(one, form_column) for one in condition.values]
    if values:
        met: exp.Expr | None = name.copy().eq(values[0]) if len(values) == 1 else name.copy().isin(*values)
    else:
        met = _within_range(name, form_column, condition)
    null = is_null(name.copy())
    if met is None:
        return null if condition.nulls == "only" else exp.not_(null)
    if condition.nulls == "too":
        return exp.paren(exp.or_(met, null))
    return exp.and_(met, exp.not_(null)) if condition.nulls == "not" else met


def _within_range(name: exp.Expr, form_column: FormColumn, condition: ColumnCondition) -> exp.Expr | None:
    """Return the SQL condition for a range that includes both ends; None if the question states no end.

    If the column holds times and an end is a day, all hours of that day are included.

    Args:
        name: The column in the query.
        form_column: The column on the form.
        condition: The condition with the range.

    Raises:
        UsageError: The range ends before it begins, or an end does not fit the type of the column.
    """
    low, high = (_value_literal(end, form_column) if end else None for end in (condition.low, condition.high))
    after = None
    if form_column.type.startswith("TIMESTAMP"):
        with suppress(ValueError, OverflowError):  # fails for a time, and for the last possible day
            after = (date.fromisoformat(condition.high) + timedelta(days=1)).isoformat()
    if low is not None and high is not None and _is_turned(condition.low, after or condition.high, form_column):
        raise UsageError(f"{form_column.name}: the range {condition.low} to {condition.high} is empty; swap its ends")
    if after is None:
        return _between_ends(name, low, high)
    before = exp.LT(this=name.copy(), expression=_value_literal(after, form_column))
    return before if low is None else exp.and_(exp.GTE(this=name, expression=low), before)


def _is_turned(low: str, high: str, form_column: FormColumn) -> bool:
    """Return whether a range ends before it begins. Its count would be exactly 0, which misleads the reader."""
    value: Callable[[str], Any] = (
        Decimal if form_column.kind == "number" else MOMENTS.get(form_column.type, datetime.fromisoformat)
    )
    try:
        return bool(value(low) > value(high))
    except (ValueError, ArithmeticError, TypeError):  # only the engine can read this value
        return False


def _between_ends(name: exp.Expr, low: exp.Expr | None, high: exp.Expr | None) -> exp.Expr | None:
    if low is not None and high is not None:
        return exp.EQ(this=name, expression=low) if low == high else exp.Between(this=name, low=low, high=high)
    if low is not None:
        return exp.GTE(this=name, expression=low)
    return exp.LTE(this=name, expression=high) if high is not None else None


def _item_conditions(question: FormQuestion, form: ReleaseForm) -> list[exp.Expr]:
    name = column(form.columns[0].name)

    def has(function: str, chosen: tuple[str, ...]) -> exp.Expr:
        if len(chosen) == 1:
            return exp.Anonymous(this="list_contains", expressions=[name.copy(), _item_literal(chosen[0], form)])
        listed = exp.Array(expressions=[_item_literal(one, form) for one in chosen])
        return exp.Anonymous(this=function, expressions=[name.copy(), listed])

    functions = {"all": "list_has_all", "any": "list_has_any", "none": "list_has_any"}
    held = {key: has(functions[key], chosen) for key, chosen in question.items.items() if chosen}
    conditions = [exp.not_(one) if key == "none" else one for key, one in held.items()]
    ends = question.length.low, question.length.high
    for end in filter(None, ends):
        if not (end.isascii() and end.isdigit() and len(end) < 10):
            raise UsageError(f"the number of items: {end!r} is not a whole number")
    low, high = (exp.Literal.number(end) if end else None for end in ends)
    length = _between_ends(exp.Anonymous(this="len", expressions=[name.copy()]), low, high)
    return conditions + ([length] if length is not None else [])


def _item_literal(value: str, form: ReleaseForm) -> exp.Expr:
    if value not in (form.items or ()):
        raise UsageError(f"{form.columns[0].name}: there is no item {value!r}")
    return _value_literal(value, form.columns[0])


# Values ---


def _value_literal(value: str, form_column: FormColumn) -> exp.Expr:
    """Return a value of the form as an SQL constant.

    Raises:
        UsageError: The value does not fit the type of its column.
    """
    if form_column.type == "VARCHAR":
        return exp.Literal.string(value)
    value = value.strip()
    if form_column.kind == "truth" and value.lower() in TRUTHS:
        return TRUTHS[value.lower()]()
    if form_column.kind == "number" and NUMBER.fullmatch(value):
        return exp.Neg(this=exp.Literal.number(value[1:])) if value[0] == "-" else exp.Literal.number(value.lstrip("+"))
    of_type = exp.cast(exp.Literal.string(value), form_column.type, dialect=DIALECT)
    if form_column.kind == "number" and form_column.type in FLOATS and value in ENDLESS:
        return of_type
    if form_column.kind == "other" or (form_column.kind == "moment" and _is_moment(value, form_column)):
        return of_type  # the engine checks values of other types
    kind = {"number": "number", "moment": "date or time", "truth": "truth value"}[form_column.kind]
    raise UsageError(f"{form_column.name}: {value!r} is not a {kind}")


def _is_moment(value: str, form_column: FormColumn) -> bool:
    try:
        MOMENTS.get(form_column.type, datetime.fromisoformat)(value)
    except ValueError:
        return value in form_column.values
    return True
