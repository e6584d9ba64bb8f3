"""What notebooks show: nothing but what is meant, escaped, small, and read on any ground."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import privsql
from privsql import markup
from privsql.answers.answer import Answer, Figure
from support.markup import EVIL, Seen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TAGS = {"div", "style", "p", "b", "br", "table", "thead", "tbody", "tr", "th", "td", "i", "svg", "rect"}
PLACES = {"x", "y", "width", "height"}
ATTRIBUTES = PLACES | {"class", "scope", "viewbox", "preserveaspectratio", "role", "fill", "aria-label"}
MOST = 50_000


def harmless(shown: str) -> Seen:
    seen = Seen(shown)
    assert seen.tags <= TAGS
    assert {name for _, name, _ in seen.attributes} <= ATTRIBUTES
    placed = [value for _, name, value in seen.attributes if name in PLACES]
    assert all(re.fullmatch(r"[\d.]+", value) for value in placed)
    assert len(shown) < MOST
    return seen


def answer(
    rows: list[tuple[Any, ...]], columns: tuple[str, ...] = ("value", "n", "n_std", "n_low", "n_high")
) -> Answer:
    return Answer(columns, rows, (Figure("n", 1, "interval", 0),), 0.95, "reconstructed", ())


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> tuple[privsql.Published, pd.DataFrame]:
    """A release whose names and values are scripts."""
    people = pd.DataFrame(
        {f"q{EVIL}": [f"{EVIL}{i % 3}" for i in range(60)], EVIL: [f"{EVIL}{i % 5}" for i in range(60)]}
    )
    folder = tmp_path_factory.mktemp("evil") / "<b>x"
    folder.mkdir()
    done = privsql.publish(
        people,
        qi=f"q{EVIL}",
        sensitive=EVIL,
        threshold=0.5,
        seed=1,
        to=folder / "a.duckdb",
        set={"release": {"name": EVIL}, "ledger": {"off": True}},
    )
    return done, people


@pytest.mark.slow
def test_names_and_values_are_escaped(evil: tuple[privsql.Published, pd.DataFrame]) -> None:
    done, _ = evil
    name, asked = (EVIL.replace('"', '""') for _ in range(2))
    with privsql.open(done) as release:
        answered = release.query(f'SELECT "q{asked}", COUNT(*) FROM "{name}" GROUP BY "q{asked}"')
        things = [answered, release, done, privsql.plan(done.spec), privsql.verify(done), privsql.attack(done)]
    pages = [harmless(thing._repr_html_()) for thing in things]
    assert "<script>alert" in pages[0].text  # as text
    assert "<script>alert" in pages[1].text
    assert "<b>x" in pages[2].text


@pytest.mark.slow
def test_an_evaluation_is_escaped(evil: tuple[privsql.Published, pd.DataFrame]) -> None:
    done, people = evil
    found = privsql.evaluate(done, people, queries=3)
    assert "true answer" in harmless(found._repr_html_()).text


def test_many_rows_and_columns_are_cut_with_a_word() -> None:
    rows = [(EVIL * 20, 5.0, 1.0, 2.0, 7.0)] * 10_000
    shown = harmless(answer(rows)._repr_html_())
    assert "9,970 more rows" in shown.text
    wide = tuple(f"{EVIL * 9}{i}" for i in range(300))
    assert "280 more columns" in harmless(markup.html_page("wide", markup.html_table(wide, [wide] * 100))).text


def test_a_table_that_is_whole_says_nothing_more() -> None:
    assert "more" not in harmless(markup.html_table(("a", "b"), [(1, 2)])).text
    assert "1,234" in markup.html_table(("a",), [(1234,)])
    assert markup.html_table(("a",), []) == ""


def test_columns_of_numbers_lie_to_the_right_and_a_name_heads_its_row() -> None:
    table = markup.html_table(("name", "n", "mixed"), [("a", 1, 1), ("b", None, "x")])
    assert '<th scope="row">a</th><td class=n>1</td><td>1</td>' in table
    assert '<th scope="col" class=n>n</th><th scope="col">mixed</th>' in table
    assert "<td class=n>1</td><td class=n>2</td>" in markup.html_table(("a", "b"), [("1", "2")], (0, 1))


def test_bars_lie_where_the_figures_do() -> None:
    shown = answer([("a", 50.0, 5.0, 25.0, 100.0), ("b", 0.0, 0.0, 0.0, 0.0)])._repr_html_()
    harmless(shown)
    assert '"reach" x="25.00" y="4" width="75.00" height="2"/><rect class="mark" x="49.25"' in shown
    assert '"reach" x="0.00" y="4" width="0.50" height="2"/><rect class="mark" x="0.00"' in shown
    assert 'aria-label="50.0, from 25.0 to 100.0"' in shown


@pytest.mark.parametrize("figure", [(None, None, None), (math.nan, math.inf, 3), (0, "x", 1), (-5, 1e308, 1e309)])
def test_figures_that_are_none_have_no_bar(figure: tuple[Any, Any, Any]) -> None:
    harmless(markup.html_bar(figure, markup.range_of_figures(figure)))
    harmless(answer([("a", figure[1], None, figure[0], figure[2])])._repr_html_())


def test_control_characters_do_not_get_through() -> None:
    assert "\u202e" not in markup.html_cell("a\u202eb\x00")
    assert markup.html_cell(None) == "-"


def test_no_colour_is_fixed() -> None:
    """What is drawn takes the colour of the text."""
    assert not re.search(r"#[0-9a-f]{3}|rgb|black|white|(?<!-)color:", markup.STYLE)


PICTURES: dict[str, Callable[[Path], Any]] = {
    "attacked": lambda ward: privsql.attack(ward / "ill.duckdb"),
    "evaluated": lambda ward: privsql.evaluate(ward / "ill.duckdb", ward / "spec.toml", queries=5),
    "compared": lambda ward: privsql.evaluate([ward / "spec.toml"], queries=5),
    "inferred": lambda ward: privsql.attack(source=ward / "spec.toml", differential=("sex = 'F'", "disease = 'flu'")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_what_is_measured_draws_itself(ward: Path, tmp_path: Path, name: str) -> None:
    PICTURES[name](ward).plot().save(str(tmp_path / "a.svg"))
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf-8")
