"""Releases that an earlier version wrote: each is read, verified for what it promised, and answers as it did or better.

``tests/fixtures/formatN`` holds releases of format N as they were written, their sources and specifications, and in
``answers.json`` the rows that each gave to some queries. These files are never written again.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from support.commands import succeeded
from support.loops import rest_slow
from support.shelf import FORMATS, release_of

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = [(form.name, spec.stem) for form in FORMATS for spec in sorted(form.glob("*.toml"))]
CLOSE = 1e-6  # relative; an answer may be added up in another order
FIGURES = ("estimate", "std_error", "low", "high")
WITHOUT_INTERVALS = ("contingency", "setvalued")  # whose baseline had one, which held nothing


def same(then: Any, now: Any) -> bool:
    """Equal; numbers up to ``CLOSE``."""
    numbers = isinstance(then, int | float) and isinstance(now, int | float)
    return math.isclose(then, now, rel_tol=CLOSE, abs_tol=CLOSE) if numbers else bool(then == now)


def differences(then: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    """Where rows differ from those of another time, to which columns may have been added."""
    if len(then) != len(now):
        return [f"{len(now)} rows, {len(then)} were stored"]
    pairs = enumerate(zip(then, now, strict=True))
    return [
        f"row {number}, {key}: {after.get(key, 'missing')}, {before[key]} was stored"
        for number, (before, after) in pairs
        for key in before
        if key not in after or not same(before[key], after[key])
    ]


def worse(then: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    """Where estimates have left the intervals of another time; they may be nearer to the truth."""
    if len(then) != len(now):
        return [f"{len(now)} rows, {len(then)} were stored"]
    wrong = []
    for number, (before, after) in enumerate(zip(then, now, strict=True)):
        groups = [key for key in before if key not in FIGURES and before[key] != after[key]]
        if groups or not before["low"] - 0.5 <= after["estimate"] <= before["high"] + 0.5:
            wrong.append(f"row {number}: {after}, {before} was stored")
        if not after["low"] <= after["estimate"] <= after["high"]:
            wrong.append(f"row {number}: {after}")
    return wrong


def test_there_is_one_of_each_mechanism() -> None:
    assert [form.name for form in FORMATS][:1] == ["format1"]
    kinds = {"bucketize", "contingency", "fakes", "folder", "permute", "randomize", "setvalued"}
    for form in FORMATS:
        assert {name for place, name in RELEASES if place == form.name} == kinds
        assert json.loads((form / "answers.json").read_text(encoding="utf-8")).keys() == kinds


@pytest.mark.slow
@pytest.mark.parametrize(("form", "name"), rest_slow(RELEASES))
def test_a_release_of_an_earlier_version_is_read_and_verified(shelf: Path, form: str, name: str) -> None:
    release = release_of(shelf / form, name)
    shown = succeeded("inspect", release, "--json").json
    assert f"format{shown['format']}" == form
    alone = succeeded("verify", release, "--json").json
    with_source = succeeded("verify", release, "--source", shelf / form / f"{name}.toml", "--json").json
    assert alone["ok"]
    assert with_source["ok"]
    assert len(with_source["checks"]) > len(alone["checks"])


@pytest.mark.slow
@pytest.mark.parametrize(("form", "name"), rest_slow(RELEASES))
def test_a_release_of_an_earlier_version_answers_as_it_did_or_better(shelf: Path, form: str, name: str) -> None:
    stored = json.loads((shelf / form / "answers.json").read_text(encoding="utf-8"))[name]
    assert stored
    wrong = []
    for asked in stored:
        options = ["--estimator", asked["estimator"]]
        found = succeeded("query", release_of(shelf / form, name), asked["sql"], *options, "--json").json["rows"]
        if asked["estimator"] == "baseline" and name in WITHOUT_INTERVALS:
            asked["rows"] = [row | dict.fromkeys(("std_error", "low", "high")) for row in asked["rows"]]
        estimated = any(row["std_error"] for row in asked["rows"])
        compare = worse if estimated and name not in WITHOUT_INTERVALS else differences
        wrong += [f"{asked['estimator']}, {asked['sql']}: {what}" for what in compare(asked["rows"], found)]
    assert not wrong, "\n".join(wrong)
