"""The papers' experiments: none is missing, all run, their rows are tidy, and the pages show what they say."""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

import privsql
from experiments import PAPERS, common, itemsets, pages, run
from experiments.bench import Bench
from experiments.incremental import Known
from experiments.slim import slim
from support.loops import rest_slow
from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EVERY = common.everything()
DOCS = ROOT / "docs"
SHOWN = DOCS / "experiments"
NUMBER = r"\d+(?:\.\d+)?"
NAMED = re.compile(rf"\b(Figure|Table)s? ({NUMBER}(?:(?:, | and | to ){NUMBER})*)")


def places(text: str) -> set[str]:
    """The figures and tables that a text names: "Figures 2 to 4 and 6" are four."""
    found: set[str] = set()
    for kind, numbers in NAMED.findall(text):
        parts = re.split(r"(, | and | to )", numbers)
        found |= {f"{kind} {number}" for number in parts[::2]}
        for (first, link), last in zip(itertools.pairwise(parts), parts[2:], strict=False):
            if link == " to ":
                head, low = first.rpartition(".")[::2]
                between = range(int(low), int(last.rpartition(".")[2]))
                found |= {f"{kind} {head}.{number}" if head else f"{kind} {number}" for number in between}
    return found


def test_ranges_of_figures_are_read() -> None:
    assert places("Figures 2 to 4 and 6; Table 1") == {"Figure 2", "Figure 3", "Figure 4", "Figure 6", "Table 1"}
    assert places("Figures 3.5 to 3.7, Tables 2 and 3") == {
        "Figure 3.5",
        "Figure 3.6",
        "Figure 3.7",
        "Table 2",
        "Table 3",
    }


def test_every_paper_of_the_map_has_a_module() -> None:
    headings = re.findall(r"^## (.+)$", (DOCS / "papers.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(PAPERS.values()) == sorted(headings)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_figure_and_table_of_the_map_has_an_experiment_or_a_reason(paper: str) -> None:
    parts = re.split(r"^## (.+)$", (DOCS / "papers.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    section = dict(zip(parts[1::2], parts[2::2], strict=True))[PAPERS[paper]]
    shown = [", ".join(one.places) for one in EVERY.values() if one.paper_name == paper]
    reasons = common.module(paper).NOT_HERE
    assert places(section) <= places("; ".join([*shown, *reasons]))
    assert all(reasons.values())


@pytest.mark.parametrize("paper", PAPERS)
def test_the_page_of_a_paper_says_what_its_experiments_say(paper: str) -> None:
    page = (SHOWN / f"{paper}.md").read_text(encoding="utf-8")
    assert pages.opening(paper) in page
    for one in EVERY.values():
        if one.paper_name == paper:
            assert pages.heading(one) in page
            assert one.says in page
            assert one.differs in page
            assert f"]({one.name}.svg)" in page
    assert all(part in page for part in pages.closing(paper))


def test_pictures_are_those_of_the_pages_and_small() -> None:
    pictures = {path.stem: path.stat().st_size for path in SHOWN.glob("*.svg")}
    assert set(pictures) == set(EVERY)
    assert sum(pictures.values()) < 1_000_000


def test_what_the_paper_says_is_seen_on_a_bar() -> None:
    """A mark in the colour of its bar was seen where it stood above it alone."""
    picture = (SHOWN / "small-domain-merging.svg").read_text(encoding="utf-8")
    assert picture.count('fill="white"') > 1  # the ground's own


def test_a_picture_is_made_smaller_by_what_draws_nothing() -> None:
    """Common attributes are said by their group, empty groups and paths go, and what differs stays where it is."""
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" class="marks" width="9"><rect fill="white"/>'
        '<g role="graphics-object" aria-label="a"><g transform="translate(0,0)"><path class="b" d="M0,0h0v0h0Z"/>'
        '<g fill="none"><line x2="1.2345" stroke="#ddd" opacity="1"/><line x2="2.04" stroke="#ddd" opacity="0.5"/></g>'
        '<path d="M1,2" display="none"/><g class="empty"/><text fill="#000">1.99</text></g></g></svg>'
    )
    assert slim(svg, "what it shows") == (
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" role="img" aria-label="what it shows"><rect fill="white" />'
        '<g fill="none" stroke="#ddd"><line x2="1.2" /><line x2="2" opacity="0.5" /></g>'
        '<text fill="#000">1.99</text></svg>'
    )


def test_pieces_and_atoms_are_those_of_the_worked_figures() -> None:
    """Release 2 by reapply-last beside release 0: 82, {84, 85}, {80, 81}, {84, 85}, 82 and 83 (Figure 3.11)."""
    first = [{82, 84, 85}, {88, 89, 90, 91}]
    joined = [{80, 81, 82, 83, 84, 85}, {88, 89, 90, 91}]
    last = [{80, 81, 82}, {83, 84, 85}, {88, 89, 90, 91}, {94, 95, 96}]
    with duckdb.connect() as db:
        known, exposed = Known(db, 3, 2), []
        for number, groups in enumerate((first, joined, last)):
            rows = ", ".join(f"('p{one}', {one}, {bid})" for bid, group in enumerate(groups) for one in group)
            db.execute(f"CREATE TABLE release{number} AS FROM (VALUES {rows}) t(who, salary, bid)")
            exposed.append(known.exposed(number))
        assert [known.pieces(*pair) for pair in ((0, 1), (1, 2), (0, 2))] == [0, 0, 6]
    assert exposed == [0, 0, 6]


@pytest.mark.parametrize("seed", range(5))
def test_frequent_item_sets_are_those_of_brute_force(seed: int) -> None:
    draw = np.random.default_rng(seed)
    records = [sorted({*draw.choice(6, draw.integers(1, 6), p=[0.4, 0.2, 0.2, 0.1, 0.05, 0.05])}) for _ in range(60)]
    items = sorted({one for record in records for one in record})
    starts = np.cumsum([0, *map(len, records)])
    codes = np.array([items.index(one) for record in records for one in record])
    every = [frozenset(s) for size in range(1, len(items) + 1) for s in itertools.combinations(items, size)]
    support = {chosen: sum(chosen <= {*record} for record in records) for chosen in every}
    for number in (1, 5, 20):
        found = itemsets.frequent(itemsets.Sets(starts, codes, items), number)
        assert sorted(found.values()) == sorted(sorted(support.values(), reverse=True)[:number])
        assert all(support[chosen] == count for chosen, count in found.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "estimator"), [("DiffPart", "baseline"), ("Basic", "baseline"), ("views", "reconstructed")]
)
def test_all_queries_at_once_have_the_errors_of_evaluate(way: str, estimator: str, tmp_path: Path) -> None:
    bench = Bench(None, tmp_path, tmp_path, small=True)
    for name in ("msnbc", "stm") if way == "DiffPart" else ("msnbc",):
        table = bench.table(name)
        items = itemsets.read(table.path, itemsets.COLUMNS[name]).items
        made = itemsets.published(bench, table, name, {"epsilon": 1, **itemsets.WAYS[way]})
        drawn = itemsets.pools(table.path, itemsets.COLUMNS[name], 50, 1)
        answers = itemsets.estimates(made, way, items, [one.asked for one in drawn])
        found = privsql.evaluate(made, made.spec, queries=50, seed=1, estimators=estimator).extras[estimator]["classes"]
        for one, answer, known in zip(drawn, answers, found, strict=True):
            assert one.error(answer) == pytest.approx(known["mean_relative_error"], rel=1e-9), (name, one.share)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize("name", rest_slow(EVERY, few=0, soak="experiments"))
def test_an_experiment_runs_on_what_stands_in(name: str, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial: tidy rows, each with its data; both pictures; and a second run finds everything done."""
    run.main([name, "--small", "--to", str(results)])
    table = pq.read_table(results / f"{name}.parquet")
    assert table.schema.equals(common.SCHEMA)
    rows = [row for row in table.to_pylist() if row["step"] != common.PAPER]
    assert {row["step"] for row in rows} == {common.said(one) for one in EVERY[name].steps(small=True)}
    assert any(row["y"] is not None for row in rows)
    assert all(row["y"] is not None or row["note"] or row["paper"] is not None for row in rows)
    assert all(row["stand_in"] and "generated" in row["data"] for row in rows if EVERY[name].data)
    at = [(row["panel"], row["series"], row["x"], row["label"]) for row in rows]
    assert EVERY[name].axes.mark == "points" or len(set(at)) == len(at)
    for ending in ("svg", "png"):
        assert (results / f"{name}.{ending}").stat().st_size > 1000
    capsys.readouterr()
    run.main([name, "--small", "--to", str(results)])
    assert f"{name} 1/" not in capsys.readouterr().err
    assert pq.read_table(results / f"{name}.parquet") == table


@pytest.mark.soak(part="papers")
@pytest.mark.parametrize("name", EVERY)
def test_an_experiment_has_its_paper_s_size(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All queries and runs; what an earlier run of this version has left is not measured again."""
    to = ROOT / "build" / "experiments"
    data = os.environ.get("PRIVSQL_DATA")
    with capsys.disabled():  # progress: a line for each step
        run.main([name, "--to", str(to), *(["--data", data] if data else [])])
    rows = [row for row in pq.read_table(to / f"{name}.parquet").to_pylist() if row["step"] != common.PAPER]
    assert {row["step"] for row in rows} == {common.said(one) for one in EVERY[name].steps(small=False)}
    assert all(row["y"] is not None or row["note"] for row in rows)


def test_a_run_takes_the_paper_s_numbers_or_fewer(tmp_path: Path) -> None:
    whole, few = Bench(None, tmp_path, tmp_path), Bench(None, tmp_path, tmp_path, most_queries=200, most_runs=1)
    assert (whole.queries(5000, 10), len(whole.seeds(10))) == (5000, 10)
    assert (few.queries(5000, 10), few.queries(100, 10), len(few.seeds(10))) == (200, 100, 1)
    assert whole.settings([]) != few.settings([])


def test_a_page_keeps_the_sections_of_what_has_not_run(tmp_path: Path) -> None:
    page = tmp_path / "incremental.md"
    page.write_text((SHOWN / "incremental.md").read_text(encoding="utf-8"), encoding="utf-8")
    pages.write("incremental", tmp_path, tmp_path)
    assert page.read_text(encoding="utf-8") == (SHOWN / "incremental.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="must have run"):
        pages.write("diffpart", tmp_path, tmp_path)
