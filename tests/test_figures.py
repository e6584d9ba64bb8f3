"""Numbers as people read them, in the terminal, a notebook, the web page and a report: digits follow the error."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsql.answers.answer import Answer, Figure
from privsql.cli import printing
from privsql.figures import format_estimate, format_exact, format_figure, format_key
from privsql.pages import report
from privsql.serving import site

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("estimate", "std_error", "low", "high")


@pytest.mark.parametrize(
    ("figures", "shown"),
    [
        ((0.079, 0.0081, 0.063, 0.095), ["0.0790", "0.0081", "0.0630", "0.0950"]),
        ((0.412, 0.0044, 0.403, 0.421), ["0.4120", "0.0044", "0.4030", "0.4210"]),
        ((-0.0031, 0.042, -0.085, 0.08), ["-0.003", "0.042", "-0.085", "0.080"]),
        ((-0.0031, 0.42, -0.85, 0.8), ["0.00", "0.42", "-0.85", "0.80"]),
        ((1.0, 0.0996, 0.8, 1.2), ["1.00", "0.10", "0.80", "1.20"]),
        ((123456.7, 1630.2, 120261, 126653), ["123,500", "1,600", "120,300", "126,700"]),
        ((2**70, 0.0, 2**70, 2**70), ["1,180,591,620,717,411,303,424", "0", *["1,180,591,620,717,411,303,424"] * 2]),
        ((Decimal("12.50"), 0.0, Decimal("12.50"), Decimal("12.50")), ["12.50", "0", "12.50", "12.50"]),
        ((0.1 + 0.2, 0.0, 0.1 + 0.2, 0.1 + 0.2), ["0.3", "0", "0.3", "0.3"]),
        ((320.4, None, 307, 371), ["320", None, "307", "371"]),
        ((25801542.8, None, 25723389, 25818115), ["25,801,543", None, "25,723,389", "25,818,115"]),
        ((0.5919, None, 0.57558, 0.60116), ["0.5919", None, "0.5755", "0.6012"]),
        ((1234.567, None, None, None), ["1,235", None, None, None]),
        ((None, None, None, None), [None] * 4),
        ((math.inf, None, None, None), ["inf", None, None, None]),
        (("2020-01-05", 0.0, "2020-01-05", "2020-01-05"), ["2020-01-05", "0", "2020-01-05", "2020-01-05"]),
        ((True, 0.0, True, True), [True, "0", True, True]),
    ],
)
def test_digits_follow_the_error(figures: tuple[Any, ...], shown: Sequence[object]) -> None:
    """Two significant digits of it; bounds that are certain outwards; exact figures in full."""
    assert format_estimate(*figures) == shown


def as_number(text: object) -> float:
    return float(str(text).replace(",", ""))


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e8), st.floats(0, 3), st.floats(0, 3))
def test_nothing_is_rounded_by_more_than_a_twentieth_of_the_error(
    estimate: float, error: float, below: float, above: float
) -> None:
    """Estimate, low and high lie within 1/20 of the error of what they are, and the error has two digits."""
    figures = estimate, error, estimate - below * error, estimate + above * error
    shown = format_estimate(*figures)
    for value, text in zip(figures, shown, strict=True):
        assert abs(as_number(text) - value) <= error / 19 + 1e-15 * abs(value)
    assert len(str(shown[1]).replace(",", "").replace(".", "").strip("0")) <= 2


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e8), st.floats(0, 1))
def test_certain_bounds_stay_certain(low: float, width: float, place: float) -> None:
    """What is shown holds all that lies between the bounds."""
    high = low + width
    _, error, *ends = format_estimate(low + place * width, None, low, high)
    assert error is None
    assert as_number(ends[0]) <= low or math.isclose(as_number(ends[0]), low)
    assert as_number(ends[1]) >= high or math.isclose(as_number(ends[1]), high)


def test_single_numbers_and_keys() -> None:
    """A zero has no sign, a year no separator, and two bins that differ are two."""
    assert [format_figure(one) for one in (-0.0, -0.4, -0.001, 1e20)] == ["0", "-0.4", "-0.001", "1e+20"]
    assert [format_key(one) for one in (2023, 21.55, 21.58, None, True)] == ["2023", "21.55", "21.58", None, "True"]
    assert [format_exact(one) for one in (-0.0, 12345, "x", None)] == ["0", "12,345", "x", None]


ROWS = [(2023, 21.55, 0.0793, 0.0061, 0.0671, 0.0915), (2024, 21.58, 0.0621, 0.0058, 0.0505, 0.0737)]
SHOWN = [
    "2023",
    "21.55",
    "0.0793",
    "0.0061",
    "0.0671",
    "0.0915",
    "2024",
    "21.58",
    "0.0621",
    "0.0058",
    "0.0505",
    "0.0737",
]


def test_terminal_notebook_and_page_show_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Rates of .079 and .062 were both 0.1, and the bins 21.55 and 21.58 both 21.6."""
    answer = Answer(("year", "bmi", *NAMES), ROWS, (Figure("estimate", 2, "interval", 0),), 0.95, "linear", ())
    printing.get_console.cache_clear()
    printing.print_parts(answer.show())
    printing.get_console.cache_clear()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [cell for line in lines if line and line[0] in ("2023", "2024") for cell in line] == SHOWN
    table = re.sub("<svg.*?</svg>", "", answer.as_table())
    assert re.findall(r'<t[dh] (?:class=n|scope="row")>([^<]+)<', table) == SHOWN
    assert 'aria-label="0.0793, from 0.0671 to 0.0915"' in answer.as_table()
    one = Answer(NAMES, [ROWS[0][2:]], (Figure("estimate", 0, "interval", 0),), 0.95, "linear", ())
    assert site.make_headline(one) == ("about 0.0793", "95 % sure: between 0.0671 and 0.0915")


def test_several_figures_have_their_digits_each(capsys: pytest.CaptureFixture[str]) -> None:
    """A count and a share in one row, each with its interval in one column."""
    row = ("f", 180.73, 16.3, 149.0, 214.0, 0.0793, 0.0061, 0.0671, 0.0915)
    figures = (Figure("n", 1, "interval", 0), Figure("rate", 5, "interval", 0))
    names = ("sex", *(f"{name}{part}" for name in ("n", "rate") for part in ("", "_std_error", "_low", "_high")))
    printing.get_console.cache_clear()
    printing.print_parts(Answer(names, [row], figures, 0.95, "linear", ()).show())
    printing.get_console.cache_clear()
    line = next(line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["f"])
    assert " ".join(line.split()) == "f 181 149 to 214 0.0793 0.0671 to 0.0915"


ALIKE = [f"estimate_of_patients_with_{name}" for name in ("flu", "hiv", "asthma")]


@pytest.mark.parametrize("width", [None, 80, 60])
def test_headings_tell_their_columns_apart(
    width: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three columns were all called estimate_..: in a pipe nothing is cut, and in a terminal the ends stay."""
    names = ("sex", *(f"{name}{part}" for name in ALIKE for part in ("", "_std_error", "_low", "_high")))
    figures = tuple(Figure(name, 1 + 4 * k, "interval", 0) for k, name in enumerate(ALIKE))
    answer = Answer(names, [("f", *(180.73, 16.3, 149.0, 214.0) * 3)], figures, 0.95, "linear", ())
    if width is None:
        printing.get_console.cache_clear()
    else:
        console = printing._make_console(force_terminal=True, width=width, no_color=True)
        monkeypatch.setattr(printing, "get_console", lambda: console)
    printing.print_parts(answer.show())
    if width is None:
        printing.get_console.cache_clear()
    shown = re.sub("\x1b[^m]*m", "", capsys.readouterr().out)
    if width is None:
        assert all(name in shown for name in ALIKE)
        return
    assert max(map(len, shown.splitlines())) <= width
    head = shown[: shown.index("─")]
    assert "\N{HORIZONTAL ELLIPSIS}" not in head
    words = head.split()
    starts = [word for word in words if word.startswith("est")]
    assert len(starts) == 3
    assert {"flu", "hiv"} <= {word[-3:] for word in words}


def test_a_report_shows_true_figures_in_full_and_others_by_their_interval() -> None:
    """One row of the answers that stand beside the true ones."""
    assert report._pair_row(1234, 1201.37, 1150.0, 1260.0) == ["1,234", "1,201", "1,150", "1,260"]
    assert report._pair_row(0.5, 0.41234, None, None) == ["0.5", "0.4123", "\u2013", "\u2013"]
