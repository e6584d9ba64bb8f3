"""Answers as people see them: headlines, tables with bars, CSV, the same elsewhere, and pictures."""

from __future__ import annotations

import ast
import datetime as dt
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from privsql import system
from privsql.answers.answer import Answer, Figure
from privsql.serving import site
from support.loops import each
from support.markup import EVIL

if TYPE_CHECKING:
    from privsql.model.estimates import RestsOn

NAMES = ("estimate", "std_error", "low", "high")


def answer(rows: list[tuple[Any, ...]], *groups: str, rests: RestsOn = "interval", confidence: float = 0.95) -> Answer:
    figure = Figure("estimate", len(groups), rests, 0)
    return Answer((*groups, *NAMES), rows, (figure,), confidence, "reconstructed", ())


class Served:
    path = Path("a b.duckdb")


@each(
    ("figures", "rests", "said"),
    [
        ((1234.56, 20.0, 1200.0, 1270.0), "interval", ("about 1,235", "95 % sure: between 1,200 and 1,270")),
        ((12.34, 2.0, 9.0, 15.25), "interval", ("about 12.3", "95 % sure: between 9.0 and 15.2")),
        ((400, 0.0, 400, 400), "exact", ("400", "exactly")),
        ((10.0, 1.0, 8.0, 12.0), "certain", ("about 10.0", "certainly between 8.0 and 12.0")),
        ((10.0, None, None, None), "point", ("about 10", "an estimate without an interval")),
        ((None, None, None, None), "interval", ("No answer", None)),
    ],
    few=6,
)
def test_one_figure_is_a_headline(figures: tuple[Any, ...], rests: RestsOn, said: tuple[str, str | None]) -> None:
    found = site.make_headline(answer([figures], rests=rests))
    assert found is not None
    assert found[0] == said[0]
    assert said[1] in (None, found[1])


def test_other_answers_have_no_headline() -> None:
    assert site.make_headline(answer([(1.0, 1.0, 0.0, 2.0)] * 2)) is None
    assert site.make_headline(answer([])) is None
    assert "99.9 % sure" in (site.make_headline(answer([(9.0, 1.0, 0.0, 12.0)], confidence=0.999)) or ("", ""))[1]


def test_a_table_has_a_bar_beside_every_interval() -> None:
    rows = [("NULL", 50.0, 5.0, 25.0, 100.0), (None, 10.0, None, None, None), ("=1", 0.0, 0.0, 0.0, 0.0)]
    table = answer(rows, "sex").as_table()
    assert re.findall(r"<th scope=.col.[^>]*>([^<]*)<", table) == ["sex", *NAMES, "interval"]
    assert re.findall(r"<th scope=.row.>(.*?)</th>", table) == ["NULL", "<i>NULL</i>", "=1"]
    assert re.findall(r'"mark" x="([^"]*)"', table) == ["49.25", "9.25", "0.00"]
    assert re.findall(r'"reach" x="([^"]*)" y="4" width="([^"]*)"', table) == [("25.00", "75.00"), ("0.00", "0.50")]
    assert "10, without an interval" in table


def test_long_tables_end_and_say_so() -> None:
    table = answer([(k, 1.0, 1.0, 0.0, 2.0) for k in range(5)], "age").as_table(2)
    assert table.count('class="bar"') == 2
    assert "and 3 more rows" in table


@each("value", ["=1+1", "+1", "-x", "@a", "\tx", "\rx", "\nx", "\uff1d1+1", "\uff20a"], few=9)
def test_no_cell_is_a_formula(value: str) -> None:
    lines = site.as_csv(answer([(value, -1.5, 0.0, -2, -1.0)], "=name"))
    assert lines.startswith("'=name,")
    assert f"'{value}" in lines
    assert ",-1.5,0.0,-2,-1.0" in lines


def test_the_same_elsewhere_survives_quotes() -> None:
    sql = "SELECT COUNT(*) FROM t WHERE a = 'it''s \"x\" $HOME `id`'\nAND b"
    served: Any = Served()
    assert shlex.split(site.shell_snippet(served, sql, 0.95)) == ["privsql", "query", "a b.duckdb", sql]
    assert shlex.split(site.shell_snippet(served, sql, 0.9))[-2:] == ["--confidence", "0.9"]
    assert shlex.split(site.shell_snippet(served, sql, 0.9999999))[-1] == "0.9999999"
    assert shlex.split(site.shell_snippet(served, sql, 0.95, "baseline"))[-2:] == ["--estimator", "baseline"]
    assert shlex.split(site.shell_snippet(served, "-- all\nSELECT 1", 0.9))[2:5] == ["--confidence", "0.9", "--"]
    assert "estimator='baseline').frame()" in site.python_snippet(served, sql, 0.95, "baseline")
    call: Any = ast.parse(site.python_snippet(served, sql, 0.9)).body[-1]
    given = call.value.func.value
    assert [one.value for one in given.args] == ["a b.duckdb", sql]
    assert given.keywords[0].value.value == 0.9


# Pictures -------------------------------------------------------------------------------------------------------------


def figures(number: int) -> list[tuple[float, ...]]:
    return [(k + 1.0, 0.5, float(k), k + 2.0) for k in range(number)]


def grouped(number: int, *values: Any) -> Answer:
    rows = [(*(one(k) for one in values), *four) for k, four in enumerate(figures(number))]
    return answer(rows, *(f"group {k}" for k in range(len(values))))


@each(
    ("found", "there"),
    [
        (grouped(2, str), True),
        (grouped(1, str), False),
        (grouped(41, str), False),
        (grouped(400, lambda k: k), True),
        (grouped(401, lambda k: k), False),
        (grouped(20, lambda k: k // 4, lambda k: k % 4), True),
        (grouped(20, lambda k: k // 5, lambda k: k % 5), False),
        (grouped(4, str, str, str), False),
        (answer(figures(3)), False),
    ],
    few=9,
)
def test_what_a_picture_can_show(found: Answer, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert site.is_drawable(found) is there
    monkeypatch.setattr(system, "find_spec", lambda _: None)
    assert not site.is_drawable(found)


def test_values_that_begin_alike_have_a_row_each() -> None:
    """Cut to the same label they were one row of the picture, their dots on top of each other."""
    long = [f"{'disease of the circulatory system'} {k}" for k in range(3)]
    called = site._group_labels([*long, None, "NULL", long[0]])
    assert len(set(called.values())) == len(called) == 5
    assert max(len(one) for one in called.values()) <= site.LABEL
    found = grouped(5, lambda k: [*long, None, "NULL"][k])
    shown = [site._chart_row(found, row, [0], [called], along=False)["group"] for row in found.rows]
    assert len(set(shown)) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "found",
    [
        grouped(3, lambda k: [EVIL, None, "x" * 500][k]),
        grouped(20, lambda k: k),
        grouped(20, lambda k: dt.date(2020, 1, 1) + dt.timedelta(k)),
        grouped(8, lambda k: k // 2, lambda k: ["</style>", None][k % 2]),
        answer([("a", 1.0, None, None, None), ("b", None, None, None, None)], EVIL),
    ],
)
def test_a_picture_is_shapes_and_text_in_both_schemes(found: Answer) -> None:
    drawn = site.draw_answer(found)
    root = ET.fromstring(drawn)  # noqa: S314 (made here)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    tags = {one.tag.split("}")[1] for one in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "g", "path", "line", "rect", "circle", "text", "defs", "clipPath"}
    assert "prefers-color-scheme: dark" in drawn
    style = next(root.iter("{http://www.w3.org/2000/svg}style")).text or ""
    inked = {name for one in root.iter() for name in one.get("class", "").split()}
    assert {"fill-first", "fill-text", "stroke-still"} <= inked
    assert [name for name in inked if f".{name} {{ " not in style] == []
    assert {one.get(ink) for one in root.iter() for ink in ("fill", "stroke")} <= {None, "none", "transparent"}
    assert "sha256-" in site.content_policy()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) >= 2
