"""Sixteen made tables of other kinds, each as a frame of Arrow with the column that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator


@dataclass(frozen=True)
class Made:
    """A table, and the column whose values are sensitive."""

    data: pa.Table
    sensitive: str


def made(sensitive: str) -> Callable[[Callable[[Generator], dict[str, Any]]], Callable[[], Made]]:
    """Make a table of the columns that a function returns; the same ones each time."""

    def decorate(columns: Callable[[Generator], dict[str, Any]]) -> Callable[[], Made]:
        def make() -> Made:
            return Made(pa.table(columns(np.random.default_rng(7))), sensitive)

        MADE[columns.__name__] = make
        return make

    return decorate


MADE: dict[str, Callable[[], Made]] = {}


def _pick(rng: Generator, values: list[Any], shares: list[float] | None, number: int) -> list[Any]:
    return [values[i] for i in rng.choice(len(values), number, p=shares)]


def _people(rng: Generator, number: int) -> dict[str, Any]:
    return {
        "age": rng.integers(18, 95, number),
        "sex": _pick(rng, ["female", "male"], [0.52, 0.48], number),
        "region": _pick(rng, [f"region {i}" for i in range(12)], None, number),
    }


@made("result")
def hospital_tests(rng: Generator) -> dict[str, Any]:
    """Tests of 3,000 patients, one to six of each; the result differs from test to test."""
    people = _people(rng, 3000)
    several = rng.integers(1, 7, 3000)
    at = np.repeat(np.arange(3000), several)
    days = rng.integers(0, 700, len(at))
    order = rng.permutation(len(at))
    return {
        "test_id": np.arange(len(at)),
        "patient_id": [f"P{number:06d}" for number in at[order]],
        **{name: np.asarray(values)[at][order] for name, values in people.items()},
        "tested_on": pa.array([date(2023, 1, 1) + timedelta(int(day)) for day in days[order]]),
        "result": _pick(rng, ["negative", "positive", "unclear"], [0.9, 0.08, 0.02], len(at)),
    }


@made("diagnosis")
def panel(rng: Generator) -> dict[str, Any]:
    """A panel: 2,500 persons in four waves each, whose diagnosis never changes."""
    people = _people(rng, 2500)
    diagnosis = np.array(
        _pick(rng, ["none", "asthma", "diabetes", "cancer", "other"], [0.5, 0.2, 0.15, 0.05, 0.1], 2500)
    )
    at = np.repeat(np.arange(2500), 4)
    return {
        "pidp": at * 13 + 5,
        "wave": np.tile(np.arange(1, 5), 2500),
        **{name: np.asarray(values)[at] for name, values in people.items()},
        "diagnosis": diagnosis[at],
    }


@made("event")
def adverse_events(rng: Generator) -> dict[str, Any]:
    """Adverse events: 900 subjects with several events each, and 90 measurements of laboratory."""
    at = np.repeat(np.arange(900), rng.integers(1, 12, 900))
    people = _people(rng, 900)
    return {
        "USUBJID": np.array([f"ST-{i:05d}" for i in range(900)])[at],
        **{name.upper(): np.asarray(values)[at] for name, values in people.items()},
        "ARM": np.array(_pick(rng, ["placebo", "low", "high"], None, 900))[at],
        "event": _pick(rng, [f"event {i}" for i in range(40)], None, len(at)),
        **{f"lab_{i:02d}": rng.normal(50, 10, len(at)).round(3) for i in range(90)},
    }


@made("loan_status")
def loans(rng: Generator) -> dict[str, Any]:
    """Loans with 55 columns, most of them amounts."""
    number = 12_000
    grade = rng.integers(0, 7, number)
    status = np.where(rng.random(number) < 0.05 + 0.03 * grade, "Charged Off", "Fully Paid")
    return {
        "id": rng.permutation(number) + 54_000_000,
        "member_id": rng.permutation(number) + 90_000_000,
        "loan_amnt": rng.integers(1000, 40_000, number),
        "term": _pick(rng, ["36 months", "60 months"], [0.7, 0.3], number),
        "grade": np.array(list("ABCDEFG"))[grade],
        "emp_title": [f"job {i}" for i in rng.integers(0, 9000, number)],
        "emp_length": _pick(rng, [f"{i} years" for i in range(11)], None, number),
        "home_ownership": _pick(rng, ["RENT", "OWN", "MORTGAGE"], [0.4, 0.1, 0.5], number),
        "annual_inc": rng.lognormal(11, 0.5, number).round(2),
        "purpose": _pick(rng, [f"purpose {i}" for i in range(13)], None, number),
        "zip_code": [f"{i:05d}" for i in rng.integers(10_000, 99_999, number)],
        "addr_state": _pick(rng, [f"S{i}" for i in range(50)], None, number),
        "loan_status": status,
        **{f"amount_{i:02d}": rng.lognormal(6, 1, number).round(2) for i in range(42)},
    }


@made("smoker")
def flag_with_null(rng: Generator) -> dict[str, Any]:
    """A flag that is true, or not filled in."""
    number = 9000
    return {
        **_people(rng, number),
        "smoker": pa.array(np.where(rng.random(number) < 0.17, True, None).tolist(), pa.bool_()),
    }


@made("choice")
def two_even(rng: Generator) -> dict[str, Any]:
    """Two values, .55 and .45, neither of which is harmless."""
    number = 8000
    return {**_people(rng, number), "school": _pick(rng, [f"school {i}" for i in range(30)], None, number),
            "choice": _pick(rng, ["party x", "party y"], [0.55, 0.45], number)}  # fmt: skip


@made("verdict")
def three_even(rng: Generator) -> dict[str, Any]:
    """Three values, .3, .3 and .4."""
    number = 8000
    return {**_people(rng, number), "verdict": _pick(rng, ["guilty", "settled", "dropped"], [0.3, 0.3, 0.4], number)}


@made("cause")
def many_causes(rng: Generator) -> dict[str, Any]:
    """A harmless value with 72 %, and eight causes that have 28 % together."""
    number = 20_000
    shares = [0.72, *([0.035] * 8)]
    return {**_people(rng, number), "cause": _pick(rng, ["none", *(f"cause {i}" for i in range(8))], shares, number)}


@made("injury")
def crashes(rng: Generator) -> dict[str, Any]:
    """Crash records with a survey weight."""
    number = 15_000
    return {
        "case_no": np.arange(number) + 1,
        **_people(rng, number),
        "seat_position": _pick(rng, [f"seat {i}" for i in range(6)], None, number),
        "ratwgt": rng.lognormal(4, 1.2, number).round(3),
        "injury": _pick(rng, ["none", "minor", "serious", "fatal"], [0.6, 0.25, 0.12, 0.03], number),
    }


@made("diabetes")
def two_weights(rng: Generator) -> dict[str, Any]:
    """A body weight beside a survey weight, and the height."""
    number = 9800
    return {
        **_people(rng, number),
        "weight": rng.normal(78, 15, number).round(1),
        "height_cm": rng.integers(150, 200, number),
        "wtint2yr": rng.lognormal(10, 0.8, number).round(2),
        "diabetes": _pick(rng, ["no", "yes", "borderline"], [0.86, 0.12, 0.02], number),
    }


@made("y")
def without_names(rng: Generator) -> dict[str, Any]:
    """Columns without a telling name."""
    number = 6000
    return {f"x{i}": rng.integers(0, 3 + i, number) for i in range(1, 6)} | {
        "y": _pick(rng, ["a", "b", "c", "d", "e", "f"], [0.3, 0.2, 0.2, 0.1, 0.1, 0.1], number)
    }


@made("offence")
def unique_income(rng: Generator) -> dict[str, Any]:
    """An income that each record has for itself."""
    number = 5000
    income = rng.choice(np.arange(10_000, 5_000_000), number, replace=False)
    return {**_people(rng, number), "income": income,
            "offence": _pick(rng, [f"offence {i}" for i in range(20)], None, number)}  # fmt: skip


@made("disease")
def double_ids(rng: Generator) -> dict[str, Any]:
    """Ids that are doubles, and a date of birth."""
    number = 4000
    born = [date(1930, 1, 1) + timedelta(int(day)) for day in rng.integers(0, 25_000, number)]
    return {"id": np.arange(number).astype(float), "birth_date": born, **_people(rng, number),
            "disease": _pick(rng, [f"disease {i}" for i in range(9)], None, number)}  # fmt: skip


@made("outcome")
def wide_texts(rng: Generator) -> dict[str, Any]:
    """Eight hundred columns of text, 1,500 records."""
    number = 1500
    return {**_people(rng, number), **{f"t{i:03d}": _pick(rng, list("abcdefghij"), None, number) for i in range(796)},
            "outcome": _pick(rng, ["good", "poor", "died"], [0.6, 0.3, 0.1], number)}  # fmt: skip


@made("wage")
def wages(rng: Generator) -> dict[str, Any]:
    """Wages of 7,000 people, doubles."""
    number = 7000
    return {**_people(rng, number), "occupation": _pick(rng, [f"job {i}" for i in range(40)], None, number),
            "wage": rng.lognormal(7.6, 0.5, number).round(2)}  # fmt: skip


@made("visits")
def visits(rng: Generator) -> dict[str, Any]:
    """Numbers of visits from 0 to 40."""
    number = 8000
    return {**_people(rng, number), "visits": np.minimum(40, rng.geometric(0.3, number) - 1)}
