"""What holds of a release of every mechanism: the steps of a chain that the tests of all families take."""

from __future__ import annotations

import html
import math
import re
import shutil
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import duckdb
import pytest
import scipy.optimize
import scipy.stats

from public.made import NAME, Case, Made, read_tables
from public.surface import PYTHON, Asker, Figure, Outcome, read_adversaries, read_failed, read_promise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# A figure farther than this from the truth is a false alarm with a probability below 1e-8 where errors are normal, and
# below 3e-4 where an error is a single Laplace noise, the worst case. Seeds are fixed, so an alarm repeats.
STANDARD_ERRORS = 6


def every(cases: Sequence[Case], *by_default: str) -> pytest.MarkDecorator:
    """Parametrize a test by ``case``; all but the named ones are slow. Without names, none is."""
    names = by_default or [case.name for case in cases]
    assert {*names} <= {case.name for case in cases}
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=case.name, marks=[] if case.name in names else slow) for case in cases]
    )


def assert_verified(made: Made, *, key_file: Path | None = None) -> Outcome:
    """``verify`` holds from the file alone and beside the source, with exit code 0; return the latter."""
    alone = PYTHON.verify(made.release)
    assert (alone.code, read_failed(alone)) == (0, set())
    beside = PYTHON.verify(made.release, source=made.spec)
    assert (beside.code, read_failed(beside)) == (0, set())
    assert len(beside.facts["checks"]) > len(alone.facts["checks"])
    assert beside.facts["bounds"] == alone.facts["bounds"]
    return beside


def assert_planned(made: Made, *facts: str) -> None:
    """``plan`` states the same facts as ``publish`` did, and writes nothing."""
    to = made.release.with_name(f"planned-{made.release.name}")
    planned = PYTHON.plan(made.spec | {"release": made.spec["release"] | {"to": str(to)}})
    assert planned.code == 0, planned.facts
    assert {name: planned.facts[name] for name in facts} == {name: made.facts[name] for name in facts}
    assert planned.facts["release"] is None
    assert not to.exists()


def assert_repeated(made: Made, tmp_path: Path) -> None:
    """The same seed gives the same tables again, row by row; another seed gives other ones."""
    tables = read_tables(made.release)
    for seed, same in ((made.case.seed, True), (made.case.seed + 1000, False)):
        done = PYTHON.publish(made.case.spec(made.release.parent) | to(tmp_path / f"{seed}.duckdb"), seed=seed)
        assert done.code == 0, done.facts
        assert (read_tables(tmp_path / f"{seed}.duckdb") == tables) is same


def to(path: Path) -> dict[str, dict[str, str]]:
    """Return the section of a specification that names another file."""
    return {"release": {"name": NAME, "to": str(path)}}


def assert_edits_noticed(made: Made, tmp_path: Path, table: str, *edits: str) -> None:
    """``verify`` ends with 1 where a table holds the rows of an edit, each a query on the table.

    A table that is written again leaves free blocks in the file, which ``verify`` refuses, too. So the same rows,
    written again, show which checks fail for that alone; an edit must fail others.
    """
    traces = _verify_edited(made, tmp_path / "traces.duckdb", table, f"FROM {table}")
    for number, edit in enumerate(edits):
        done = _verify_edited(made, tmp_path / f"edited{number}.duckdb", table, edit)
        assert done.code == 1, edit
        assert read_failed(done) - read_failed(traces), edit


def _verify_edited(made: Made, copy: Path, table: str, query: str) -> Outcome:
    shutil.copy(made.release, copy)
    with duckdb.connect(str(copy)) as db:
        before = db.execute(f"FROM {table}").fetchall()
        db.execute(f"CREATE OR REPLACE TABLE {table} AS {query}")
        assert (db.execute(f"FROM {table}").fetchall() == before) is (query == f"FROM {table}"), query
    return PYTHON.verify(copy)


def assert_promises_kept(made: Made, *promised: str, bound: float = 1) -> Outcome:
    """The adversaries that the mechanism promises to resist are these, and stay at or below the bound."""
    done = PYTHON.attack(made.release, source=made.spec)
    assert done.code == 0, done.facts
    found = {name: one for name, one in read_adversaries(done).items() if one.promised}
    assert set(found) == set(promised)
    assert not any(one.broken for one in found.values())
    assert all(one.highest is None or one.highest <= bound + 1e-9 for one in found.values())
    return done


def assert_reported(made: Made, to: Path, *words: str) -> None:
    """``report`` writes one HTML file, which names the promise and these words."""
    done = PYTHON.report(made.release, to=to)
    assert done.code == 0, done.facts
    assert_page(done, NAME, *words)
    assert [path.name for path in to.parent.iterdir() if path.name.startswith(to.stem)] == [to.name]


def assert_page(reported: Outcome, *words: str) -> None:
    """A page is one HTML document that loads nothing and has no script, and shows its promise and these words."""
    page = reported.text
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert len(re.findall(r"<html[ >]", page)) == 1
    assert not re.findall(r"<script|<link|<iframe|\bsrc=[\"']?(?!data:)|url\((?![\"']?(?:#|data:))", page)
    shown = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())
    assert [word for word in (read_promise(reported.facts), *words) if word not in shown] == []


def compare_answers(asker: Asker, made: Made, sql: str) -> list[tuple[Figure, float]]:
    """Ask a release and its source the same question; return each figure ``n`` with its true answer.

    What stands before ``COUNT(*) AS n`` names the group of a row. A group that the source does not have counts 0; one
    that the answer does not have is an estimate of 0 without an error.
    """
    answer = asker.ask(sql)
    truth = {row[:-1]: row[-1] for row in made.truth(sql)}
    figures = []
    for row in answer.rows:
        group = tuple(row.values())[: list(row).index("n")]
        figures.append((answer.figure(row, "n"), float(truth.pop(group, 0))))
    return figures + [(Figure(0.0, None, 0.0, 0.0), float(value)) for value in truth.values()]


def assert_near(figures: list[tuple[Figure, float]]) -> None:
    """Estimates lie within so many standard errors of the truth, and within their own intervals."""
    assert figures
    for figure, truth in figures:
        assert figure.low <= figure.estimate <= figure.high
        assert figure.std_error is not None
        assert abs(figure.estimate - truth) <= STANDARD_ERRORS * figure.std_error + 1e-6, (figure, truth)


def assert_exact(figures: list[tuple[Figure, float]]) -> None:
    """Answers are the true ones, with no error."""
    assert figures
    assert [(one.estimate, one.std_error, one.low, one.high) for one, _ in figures] == [
        (truth, 0, truth, truth) for _, truth in figures
    ]


@dataclass(frozen=True)
class Budget:
    """What a noisy table spends: on its counts, on the private choice of the table, and the scale of its noise."""

    columns: tuple[str, ...]
    counting: Fraction
    choosing: Fraction
    scale: float

    @property
    def spent(self) -> Fraction:
        """Return both together."""
        return self.counting + self.choosing


def read_budgets(made: Made, table: str) -> list[Budget]:
    """Return the budgets of a release's noisy tables, in exact fractions."""
    rows = made.rows(f"SELECT columns, budget, choice, scale FROM {table}")
    return [
        Budget(tuple(columns), Fraction(counting), Fraction(choice or 0), scale)
        for columns, counting, choice, scale in rows
    ]


def assert_laplace(noise: Sequence[float], scale: float) -> None:
    """Noise is that of a discrete Laplace law: neither too far from 0 nor too near. A false alarm is below 3e-5."""
    ratio = math.exp(-1 / scale)
    far = math.ceil(scale * math.log(2 * len(noise) / 1e-5))
    assert max(map(abs, noise)) <= far
    reached = max(1, math.ceil(scale * math.log(2)))  # by about half of the draws
    number = sum(abs(one) >= reached for one in noise)
    law = scipy.stats.binom(len(noise), 2 * ratio**reached / (1 + ratio))
    assert law.cdf(number) > 1e-5
    assert law.sf(number - 1) > 1e-5


def assert_tree_spends(made: Made, epsilon: Fraction) -> None:
    """Counts and choices on every path from the root of a tree spend at most epsilon, and exactly that to a leaf.

    Every part but the root was counted, with noise that fits its budget, and reached its threshold.
    """
    parts = {
        part: (parent, node, Fraction(choice or 0) + Fraction(budget or 0))
        for part, parent, node, choice, budget in made.rows(
            "SELECT part, parent, node, choice, budget FROM privsql_tree"
        )
    }
    for part, (_, node, _) in parts.items():
        spent, above = Fraction(0), part
        while above is not None:
            above, _, budget = parts[above]
            spent += budget
        assert spent <= epsilon if node is not None else spent == epsilon, part
    counted = made.rows("SELECT size, threshold, scale, budget FROM privsql_tree WHERE parent IS NOT NULL")
    assert all(size >= threshold for size, threshold, _, _ in counted)
    assert [row[2] for row in counted] == pytest.approx([float(1 / Fraction(row[3])) for row in counted])


def least_epsilon(rho: Fraction, delta: float) -> float:
    """Return the epsilon that rho-zero-concentrated privacy has at delta (Canonne, Kamath, Steinke 2020, Prop. 12)."""

    def epsilon_at(exponent: float) -> float:
        order = 1 + math.exp(exponent)
        return float(rho) * order + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    return float(
        scipy.optimize.minimize_scalar(epsilon_at, bounds=(-5, 10), method="bounded", options={"xatol": 1e-9}).fun
    )
