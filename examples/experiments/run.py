"""Repeat the experiments of the papers: one command per figure or table.

    python examples/experiments/run.py --list
    python examples/experiments/run.py inferential-mse --data FOLDER --to results
    python examples/experiments/run.py inferential --data FOLDER --page docs/experiments
    python examples/experiments/run.py inferential --data FOLDER --queries 200 --runs 1

A name, or a paper's for all of its, or ``all``. Each leaves NAME.parquet, a row for every point, and NAME.svg and
NAME.png. What an earlier run has left is not measured again. Each takes as many queries and runs as its paper has,
which is hours for some: --queries and --runs bound them, and results say so. Without --data, or where that folder
lacks a table, generated ones stand in, and results say so.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from experiments import common, pages, pictures
from experiments.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", metavar="NAME", help="experiments, papers, or all")
    made.add_argument("--list", action="store_true", help="say which there are")
    made.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the real tables, as Parquet")
    made.add_argument("--to", type=Path, metavar="FOLDER", default=Path("build/experiments"), help="for results")
    made.add_argument("--small", action="store_true", help="few records and few points: a trial of a few seconds")
    made.add_argument("--queries", type=int, metavar="N", help="most queries of a point; by default the paper's number")
    made.add_argument("--runs", type=int, metavar="N", help="most runs of a point; by default the paper's number")
    made.add_argument("--fresh", action="store_true", help="measure again what an earlier run has left")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--page", type=Path, metavar="FOLDER", help="write the papers' pages and pictures, too")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Run what is asked for."""
    asked = parser().parse_args(arguments)
    if asked.list:
        for one in common.everything().values():
            print(f"{one.name:32} {', '.join(one.places):18} {one.title}")
        return
    found = common.chosen(asked.names)
    if not found:
        raise SystemExit("say which: a name of --list, a paper, or all")
    (asked.to / "data").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, models_in(Path(folder) / "models"):
        limits = {"most_queries": asked.queries, "most_runs": asked.runs}
        bench = Bench(asked.data, asked.to / "data", Path(folder), asked.small, asked.seed, **limits)
        for one in found:
            clock = time.monotonic()
            rows = common.run(one, bench, asked.to, fresh=asked.fresh, say=say)
            pictures.write(one, rows, asked.to)
            say(f"{one.name}: {rows.num_rows} rows, {time.monotonic() - clock:.1f} s")
    if asked.page is not None:
        for paper in dict.fromkeys(one.paper_name for one in found):
            pages.write(paper, asked.to, asked.page)


@contextmanager
def models_in(folder: Path) -> Iterator[None]:
    """Keep models apart from the user's."""
    before = os.environ.get("PRIVSQL_CACHE")
    os.environ["PRIVSQL_CACHE"] = str(folder)
    try:
        yield
    finally:
        del os.environ["PRIVSQL_CACHE"]
        if before is not None:
            os.environ["PRIVSQL_CACHE"] = before


def say(line: str) -> None:
    """Progress, apart from what is asked for."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
