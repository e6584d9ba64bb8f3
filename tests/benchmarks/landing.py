"""The figures that a change is judged by, beside those of the last landing: processor time, as ratios.

Each figure is the median of some runs in fresh processes, divided by what is stated beside it in the same run. The
last landing's figures lie in ``landing.json``, which ``python -m tests.benchmarks all --land`` writes.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import publishing
from tests.benchmarks.publishing import PRIVSQL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LANDED = Path(__file__).with_name("landing.json")
FEW = 200  # records of a table that takes no time
IMPORTS = "import duckdb, pyarrow, numpy, pydantic, sqlglot"
CONDITION = "age BETWEEN {0} AND {0} + 3 AND sex = 1 AND marital < 3 AND occupation = {0}"
QUESTIONS = {
    "one count": f"SELECT COUNT(*) FROM {{1}} WHERE {CONDITION}",
    "1,064 groups": "SELECT age, education, COUNT(*) FROM {1} WHERE occupation = {0} GROUP BY age, education",
}
ASKING = """
import json, sys, time, privsql
release, texts = json.loads(sys.argv[1])
with privsql.open(release) as opened:
    opened.query(texts[0])
    begin = time.process_time()
    for text in texts[1:]:
        opened.query(text)
    print((time.process_time() - begin) / len(texts[1:]))
"""
COUNTING = """
import json, sys, time, duckdb
file, texts = json.loads(sys.argv[1])
with duckdb.connect(file, read_only=True) as db:
    db.execute(texts[0]).fetchall()
    begin = time.process_time()
    for text in texts[1:]:
        db.execute(text).fetchall()
    print((time.process_time() - begin) / len(texts[1:]))
"""
ASKED = 8  # times, with another value each: no cache answers


def measure(
    make: Callable[[Path, int], Path], columns: Sequence[str], folder: Path, sizes: Sequence[int], runs: int
) -> Iterator[tuple[str, float, str]]:
    """Yield name, figure and unit of all that is measured.

    Args:
        make: Makes a table of so many records in a folder.
        columns: Its quasi-identifiers.
        folder: For what is made.
        sizes: The records of tables that are published.
        runs: How often each figure is measured.
    """
    yield from _measure_starts(make, columns, folder / "few", runs)
    for size in sizes:
        place = folder / f"{size}"
        place.mkdir()
        source = make(place, size)
        plain = publishing.copy(source, place, None).processor
        (place / "spec.toml").write_text(publishing.SPEC.format(source=source, columns=list(columns)), encoding="utf-8")
        for way in ("default", "no ledger"):
            times = [publishing.publish(source, columns, place, "bucketize", way, None) for _ in range(runs)]
            yield f"publish {size:,} records, {way}", _median(times) / plain, "copies"
        publishing.publish(source, columns, place, "bucketize", "default", None)
        for name in ("verify", "verify --source"):
            times = [publishing.run([*PRIVSQL, *publishing.VERBS[name]], place) for _ in range(runs)]
            yield f"{name} {size:,} records", _median(times) / plain, "copies"
        for name, text in QUESTIONS.items():
            raw = _ask(COUNTING, source, text, "t")
            yield f"{name} of {size:,} records", _ask(ASKING, place / "r.duckdb", text, "r") / raw, "raw counts"
        source.unlink()


def _measure_starts(
    make: Callable[[Path, int], Path], columns: Sequence[str], folder: Path, runs: int
) -> Iterator[tuple[str, float, str]]:
    """Yield how long commands take that have next to nothing to do."""
    folder.mkdir()
    source = make(folder, FEW)
    bare = _median([publishing.run([sys.executable, "-c", IMPORTS], folder) for _ in range(runs + 1)][1:])
    yield "importing duckdb, pyarrow, numpy, pydantic, sqlglot", bare, "s"
    times = [publishing.publish(source, columns, folder, "bucketize", "default", None) for _ in range(runs)]
    yield f"publish {FEW} records", _median(times) / bare, "imports"
    question = "SELECT COUNT(*) FROM r WHERE occupation = 3"
    for name, words in {"verify": ("verify", "r.duckdb"), "first query": ("query", "r.duckdb", question)}.items():
        times = [publishing.run([*PRIVSQL, *words], folder) for _ in range(runs)]
        yield f"{name}, {FEW} records", _median(times) / bare, "imports"


def _median(times: Sequence[publishing.Used]) -> float:
    return statistics.median(one.processor for one in times)


def _ask(program: str, file: Path, text: str, table: str) -> float:
    """Return the seconds of processor time that a question takes in a process of its own, once that is warm."""
    texts = [text.format(value, table) for value in range(ASKED + 1)]
    done = publishing.printed([sys.executable, "-c", program, json.dumps([str(file), texts])])
    return float(done.splitlines()[-1])


def read_landed() -> dict[str, float]:
    """Return the figures of the last landing by name."""
    landed: dict[str, float] = json.loads(LANDED.read_text(encoding="utf-8")) if LANDED.exists() else {}
    return landed


def write_landed(figures: dict[str, float]) -> None:
    """Make figures those of the last landing; figures of other sizes stay."""
    known = read_landed() | {name: round(figure, 3) for name, figure in figures.items()}
    LANDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
