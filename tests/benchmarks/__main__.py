"""Speed and memory, as ratios against a plain copy or a raw count in the same run. Nothing here asserts.

    python -m tests.benchmarks all [--rows N] [--land]                     one table, beside the last landing's figures
    python -m tests.benchmarks publish [--rows N] [--memory-limit 2GB]     publishing, as users do, against a plain copy
    python -m tests.benchmarks verbs [--rows N]                            other commands, and tables of other shapes
    python -m tests.benchmarks search                                      two sizes and the optimum
    python -m tests.benchmarks query [--rows N]                            answers against the raw query
    python -m tests.benchmarks accuracy [--keys N] [--only TEXT]           error and coverage, real and made tables
    python -m tests.benchmarks coverage [--keys N] [--only TEXT]           intervals by band of the truth, real tables
    python -m tests.benchmarks completed [--keys N] [--only TEXT]          any SQL by completed tables: intervals, time
    python -m tests.benchmarks expected [--conditions N]                   the error that plans expect, and answers
    python -m tests.benchmarks partition                                   searching partitions for randomization
    python -m tests.benchmarks randomize [--queries N]                     randomization beside Anatomy, real tables
    python -m tests.benchmarks model [--keys N] [--key K] [--only TEXT]    a release as one model: error, interval, cost
    python -m tests.benchmarks promises [--only TEXT] [--method TEXT]      noisy tables beside others, same promise
    python -m tests.benchmarks setvalued [--queries N]                     item sets: error, and time by size
    python -m tests.benchmarks dp [--data NAME] [--only TEXT] [--minutes N] private tables and sets beside their peers
    python -m tests.benchmarks grow [--rows N]                             (k,e)-anonymity of tables that grow
    python -m tests.benchmarks compare [--only TEXT] [--picture FILE]      the figures of docs/compare.md, as Markdown
    python -m tests.benchmarks numbers                                     groups and cells of numbers beside other ways
    python -m tests.benchmarks scale [--rows N] [--skewed] [--only TEXT]   the portable order, and Spark
    python -m tests.benchmarks serve [--requests N] [--at-once N]          the page of serve beside query, same load
    python -m tests.benchmarks sketches [--records N] [--runs N]           which overlaps the ledger finds without ids
    python -m tests.benchmarks start [--runs N]                            how long the command line takes to start

Real tables are taken from the folder PRIVSQL_DATA, or ../shared/data beside the repository, if they are there.
"""

from __future__ import annotations

import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import duckdb
import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

import privsql
from privsql.errors import InfeasibleError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import optimal
from privsql.mechanisms.bucketize.model import BucketProblem
from privsql.mechanisms.bucketize.search import best_two_size
from privsql.mechanisms.perturb import plan as merge
from privsql.mechanisms.perturb import plan as randomization
from privsql.mechanisms.perturb.parameters import Randomize
from privsql.mechanisms.perturb.plan import initial_groups
from privsql.verbs.evaluate import Workload
from tests.benchmarks import accuracy as measuring
from tests.benchmarks import compare as comparing
from tests.benchmarks import completed as completing
from tests.benchmarks import coverage as covering
from tests.benchmarks import expected as foreseen
from tests.benchmarks import growing, landing, modelling, publishing, serving
from tests.benchmarks import modelled_coverage as modelled
from tests.benchmarks import numbers as numeric
from tests.benchmarks import private as beside_peers
from tests.benchmarks import promises as promising
from tests.benchmarks import scale as scaling
from tests.benchmarks import sketches as sketching
from tests.benchmarks import start as starting

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.source.spec import Spec

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVSQL_DATA", ROOT.parent / "shared" / "data"))
QI = {"age": 76, "sex": 2, "education": 14, "marital": 5, "race": 9, "work_class": 9, "birthplace": 215}
REAL = {"acs_occ": "occupation", "acs_edu": "education"}
app = typer.Typer(help=__doc__, add_completion=False)
out = Console(width=160)


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Median processor time of all threads in a few runs after a warm one."""
    work()
    found = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def show(title: str, columns: list[str], rows: list[list[object]]) -> None:
    """Print a table."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    out.print(table)


def warehouse(folder: Path, rows: int, *, texts: bool = False) -> Path:
    """A table of 8 columns, a chunk at a time: seven quasi-identifiers and 50 occupations, 0.44 % to 3.6 %.

    ``texts``: quasi-identifiers as texts.
    """
    columns = ", ".join([*(f"'{name} ' || {name} AS {name}" for name in QI), "occupation"]) if texts else "*"
    path = folder / "warehouse.duckdb"
    rng = np.random.default_rng(1)
    shares = np.linspace(1, 8, 50) / np.linspace(1, 8, 50).sum()
    with duckdb.connect(str(path)) as db:
        for begin in range(0, rows, 5_000_000):
            size = min(5_000_000, rows - begin)
            chunk = {name: rng.integers(0, domain, size).astype(np.uint8) for name, domain in QI.items()}
            chunk["occupation"] = rng.choice(50, size, p=shares).astype(np.uint8)
            db.register("chunk", pa.table(chunk))
            db.execute(f"{'INSERT INTO t' if begin else 'CREATE TABLE t AS'} SELECT {columns} FROM chunk")
    return path


def request(folder: Path, source: dict[str, str], sensitive: str, rule: str, **mechanism: object) -> Spec:
    """A specification for bucketization."""
    return specification(folder, source, sensitive, {"algorithm": "two-size", "threshold": rule, **mechanism})


def specification(folder: Path, source: dict[str, str], sensitive: str, mechanism: dict[str, object]) -> Spec:
    """A specification."""
    quasi = [name for name in QI if name != sensitive]
    return privsql.build(
        {
            "source": source,
            "columns": {"quasi_identifiers": quasi, "sensitive": sensitive},
            "release": {"name": "r", "to": folder / "r.duckdb"},
            "mechanism": mechanism,
            "ledger": {"database": folder / "ledger.duckdb"},
        }
    )


@app.command("all")
def measure_all(rows: Annotated[list[int] | None, typer.Option()] = None, runs: int = 3, land: bool = False) -> None:
    """One table of what a change is judged by; ``land`` writes its figures as those of the last landing."""
    landed, found, table = landing.read_landed(), dict[str, float](), list[list[object]]()
    with tempfile.TemporaryDirectory() as place:
        sizes = rows or (1_000_000, 3_000_000, 10_000_000)
        for name, figure, unit in landing.measure(warehouse, list(QI), Path(place), sizes, runs):
            found[name] = figure
            table.append([name, f"{figure:.2f}", f"{landed[name]:.2f}" if name in landed else "-", unit])
    show("processor time", ["figure", "now", "last landing", "unit"], table)
    if land:
        landing.write_landed(found)


@app.command()
def publish(
    rows: Annotated[list[int] | None, typer.Option()] = None,
    memory_limit: str | None = None,
    runs: int = 3,
    texts: bool = False,
) -> None:
    """Publishing by the command line against a plain copy, by every mechanism; by default at .1, 1 and 10 million."""
    columns = ["mechanism", "way", "copy s", "CPU s", "wall s", "CPU in copies", "wall in copies", "GiB"]
    for size in rows or (100_000, 1_000_000, 10_000_000):
        with tempfile.TemporaryDirectory() as place:
            source = warehouse(Path(place), size, texts=texts)
            table = publishing.ratios(source, list(QI), Path(place), memory_limit, runs)
            show(f"publish {size:,} rows, memory limit {memory_limit}", columns, list(table))


@app.command()
def verbs(rows: int = 1_000_000, runs: int = 1) -> None:
    """What else is done with a table and its release, by the command line; and tables of other shapes."""
    with tempfile.TemporaryDirectory() as place:
        table = publishing.verbs(warehouse(Path(place), rows), list(QI), Path(place), runs)
        show(f"verbs on {rows:,} rows", ["verb", "copy s", "CPU s", "wall s", "CPU in copies", "GiB"], list(table))
        columns = ["table", "publish CPU s", "wall s", "one count CPU s", "wall s"]
        show("other shapes", columns, list(publishing.shapes(Path(place))))


@app.command()
def scale(rows: int = 1_000_000, skewed: bool = False, only: str = "", memory_limit: str | None = None) -> None:
    """The same release in DuckDB's own order, in the portable one, and by Spark."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        source, copy = scaling.copied(warehouse(folder, rows), folder, rows, skewed)
        found: list[list[object]] = []
        times: dict[str, float] = {}
        for way in [way for way in scaling.WAYS if only in way]:
            made = scaling.run(source, way, list(QI), skewed=skewed, memory_limit=memory_limit)
            times[way] = made["seconds"]
            against = [times[way] / times[other] if other in times else "-" for other in ("stream", "portable")]
            found.append([way, f"{rows:,}", copy, made["start"], times[way], *against, made["memory"]])
            out.print(made.get("error", ""))
    columns = ["way", "rows", "copy s", "start s", "publish s", "of stream", "of portable", "memory GiB"]
    show(f"scale{', one value with 60 %' if skewed else ''}, memory limit {memory_limit}", columns, found)


def counts_of(name: str, sensitive: str) -> np.ndarray:
    """Records of each sensitive value of a real table."""
    query = f"SELECT count(*) FROM '{DATA / name}.parquet' GROUP BY {sensitive} ORDER BY {sensitive}"
    return np.array([row[0] for row in duckdb.sql(query).fetchall()], dtype=np.int64)


def scaled(counts: np.ndarray, records: int) -> np.ndarray:
    """The same shape with another number of records."""
    found = np.array([int(c) * records // int(counts.sum()) for c in counts], dtype=np.int64)
    found[0] += records - found.sum()
    return found


def shapes() -> dict[str, np.ndarray]:
    """Counts to search on: the real tables and these scaled to 500 million, and 3,200 values."""
    found = {
        name: counts_of(name, sensitive) for name, sensitive in REAL.items() if (DATA / f"{name}.parquet").is_file()
    }
    found |= {f"{name} x 500M": scaled(counts, 500_000_000) for name, counts in found.items()}
    power_law = np.random.default_rng(0).zipf(1.3, 3200).clip(1, 3000) + 20
    return found | {
        "50 values": scaled(np.arange(50, 400, 7), 10_000_000),
        "3,200 values": scaled(power_law, 10_000_019),
    }


@app.command()
def search() -> None:
    """Two sizes in closed form, and the optimum with its certified gap."""
    rows: list[list[object]] = []
    for name, counts in shapes().items():
        n = int(counts.sum())
        for theta in (2, 4, 8, 16, 32):
            rule = tuple(min(Fraction(1), theta * Fraction(int(o), n) + Fraction(1, 50)) for o in counts)
            two = seconds(lambda c=counts, r=rule: best_two_size(BucketProblem(c, r)))
            begin = time.perf_counter()
            problem = BucketProblem(counts, rule)
            best = optimal.search_optimum(problem, best_two_size(problem))
            lasted = time.perf_counter() - begin
            gap = (best.setting.loss - best.lower_bound) / best.lower_bound if best else float("nan")
            rows.append([name, len(counts), theta, two * 1000, lasted, gap])
    show("search", ["counts", "m", "theta", "two-size ms", "optimal s", "certified gap"], rows)


@app.command()
def query(rows: Annotated[list[int] | None, typer.Option()] = None) -> None:
    """Answers against the raw query, processor time of both; by default at .1, 1 and 10 million."""
    condition = "age BETWEEN {0} AND {0} + 3 AND sex = 1 AND marital < 3 AND occupation = {0}"
    grouped = "SELECT age, education, COUNT(*) FROM {1} WHERE {2}occupation = {0} GROUP BY age, education"
    texts = {
        "one answer": f"SELECT COUNT(*) FROM {{1}} WHERE {condition}",
        "1,064 groups, 10 % of the records": grouped.replace("{2}", "sex = 1 AND marital = 1 AND "),
        "1,064 groups, all records": grouped.replace("{2}", ""),
    }
    number = itertools.count(1)  # every text is another one: no cache answers
    for size in rows or (100_000, 1_000_000, 10_000_000):
        found: list[list[object]] = []
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            source = warehouse(folder, size)
            spec = request(folder, {"database": str(source), "table": "t"}, "occupation", "8*f + 0.02")
            privsql.publish(spec, key=seed_key(1))
            opening = seconds(lambda to=spec.target: privsql.open(to).close(), 3)
            with duckdb.connect(str(source), read_only=True) as raw, privsql.open(spec.target) as release:
                for name, sql in texts.items():
                    plain = seconds(lambda s=sql, db=raw: db.execute(s.format(next(number) % 50, "t")).fetchall(), 9)
                    for estimator in ("baseline", "linear"):
                        took = seconds(
                            lambda s=sql, e=estimator, r=release: r.query(
                                s.format(next(number) % 50, "r"), estimator=e
                            ),
                            3,
                        )
                        found.append([name, estimator, plain * 1000, took * 1000, took / plain])
        title = f"queries on {size:,} rows, opened in {opening * 1000:.0f} ms of processor time"
        show(title, ["query", "estimator", "raw ms", "ms", "times the raw query"], found)


@app.command()
def accuracy(keys: int = 5, conditions: int = 150, tables: int = 8, only: str = "") -> None:
    """Error and coverage on the real tables, and of made ones the error beside the papers' formula."""
    constant = [{"threshold": rule} for rule in ("1/4", "1/8", "1/12")]
    linear = [{"threshold": "8*f + 0.02", "algorithm": name} for name in ("two-size", "informative")]
    asked = [("acs_occ", made) for made in (*constant, *linear)]
    asked += [("acs_edu", made) for made in (*constant[:1], *linear)]
    figures = ["error", "the formula's", "coverage", "conditions", "p of 93-99 %"]
    for name, mechanism in asked:
        data, label = DATA / f"{name}.parquet", " ".join([name, *mechanism.values()])
        if not data.is_file() or only not in label:
            continue
        with tempfile.TemporaryDirectory() as place:
            names = [column for column in QI if column != REAL[name]]
            found = measuring.real((data, names, REAL[name]), mechanism, Path(place), keys, conditions)
        rows = [[workload, *band] for workload, scores in found.items() for band in scores.bands()]
        show(f"{label}, {keys} keys", ["workload", "from", "to", "answers", *figures], rows)
    rows = []
    for seed in range(tables if only in "made" else 0):
        for rule in measuring.RULES:
            with tempfile.TemporaryDirectory() as place:
                found = measuring.small(seed, rule, {}, Path(place))
            shown = [[kind, one.against_formula, one.coverage] for kind, one in found.items()]
            rows += [[seed, rule, *row] for row in shown]
    if rows:
        show("made tables", ["table", "threshold", "columns", "error / the formula's", "coverage"], rows)


@app.command()
def model(keys: int = 3, key: int = 1, conditions: int = 200, only: str = "") -> None:
    """The model of a release: error by estimator, intervals by kind of question, time and memory."""
    for name, mechanism in modelling.RELEASES:
        data, label = DATA / f"{name}.parquet", " ".join([name, *mechanism.values()])
        if not data.is_file() or only not in label:
            continue
        costs, errors, intervals, learnt = [], [], [], []
        for seed in range(key, key + keys):
            with tempfile.TemporaryDirectory() as place:
                names = [column for column in QI if column != REAL[name]]
                world = modelling.open_world((data, names, REAL[name]), mechanism, Path(place), seed)
            fitted, beliefs, cost = modelling.cost(world.arrays)
            costs.append([seed, *cost])
            errors += [[seed, *row] for row in modelling.errors(world, fitted, conditions, seed)]
            found = list(modelling.intervals(world, beliefs, conditions, seed))
            intervals += [[seed, *row] for row in modelling.show_intervals(found)]
            learnt += [[seed, *row] for row in modelling.learning(world, fitted, seed)]
        former = zip(modelling.BANDS[1:4], modelling.FORMER.get(label, ()), strict=False)
        errors += [["", "question by question (before)", low, high, "", error] for (low, high), error in former]
        show(f"{label}: cost", ["key", "CPU s", "MB", "attacker's belief"], costs)
        show(f"{label}: relative error", ["key", "estimator", "from", "to", "answers", "error"], errors)
        show(f"{label}: intervals", ["key", "kind", "from", "to", "answers", "error", "coverage"], intervals)
        show(f"{label}: a classifier of rows", ["key", "labels", "accuracy", "AUC"], learnt)


@app.command()
def promises(conditions: int = 200, key: int = 1, only: str = "", method: str = "") -> None:
    """Noisy tables of values beside bucketize, up, pp and marginals, at the same promise."""
    figures = [f"{low:,}-{high:,}" for low, high in promising.BANDS]
    for name, rule in promising.PROMISES:
        if not (DATA / f"{name}.parquet").is_file() or only not in f"{name} {rule}":
            continue
        data = DATA / f"{name}.parquet", [column for column in QI if column != REAL[name]], REAL[name]
        chosen = [one for one in promising.METHODS if method in one]
        with tempfile.TemporaryDirectory() as place:
            rows = list(promising.compare(data, rule, Path(place), conditions, key, chosen))
        show(f"{name} {rule}", ["method", "epsilon", *figures, "TV 2-way", "TV 3-way", "CPU s to publish"], rows)


@app.command()
def coverage(questions: int = 2000, key: int = 1, keys: int = 1, only: str = "") -> None:
    """Coverage and root mean square of z by kind of question and band of the true answer, of releases by keys."""
    figures = ["answers", "coverage", "rms of z", "width / truth"]
    for name, sensitive, mechanism in covering.RELEASES:
        data, label = DATA / f"{name}.parquet", " ".join([name, sensitive, *map(str, mechanism.values())])
        if not data.is_file() or only not in label:
            continue
        with tempfile.TemporaryDirectory() as place:
            found = covering.trial(data, sensitive, mechanism, Path(place), key).measured(
                questions, range(key, key + keys)
            )
        show(f"{label}, {questions} questions", ["kind", "from", "to", *figures], list(found.bands()))
    real = {
        name: (DATA / f"{name}.parquet", [one for one in QI if one != sensitive], sensitive)
        for name, sensitive in REAL.items()
        if (DATA / f"{name}.parquet").is_file()
    }
    pooled, rows = [], []
    for label, whole, rule, write in modelled.list_tables(real):
        if only in f"model {label}":
            try:
                answers = modelled.measure(write, rule, range(key, key + (1 if whole else keys)))
            except InfeasibleError as error:
                out.print(f"{label}: {error}")
                continue
            pooled += answers
            rows.append([label, *modelled.show_bands(answers)])
    if rows:
        bands = [f"{low:,}-" for low in modelled.BANDS[:-1]]
        rows.append(["pooled", *modelled.show_bands(pooled)])
        show("a model: error and coverage", ["release", *bands, "sums, means"], rows)


@app.command()
def completed(keys: int = 1, only: str = "", *, speed: bool = True) -> None:
    """Coverage of 95 % intervals of any SQL by kind of figure, and time beside 20 raw queries."""
    real = {
        name: (DATA / f"{name}.parquet", [one for one in QI if one != sensitive], sensitive)
        for name, sensitive in REAL.items()
        if (DATA / f"{name}.parquet").is_file()
    }
    kinds = [*completing.PER_GROUP, "counts, medians", "moments"]
    pooled, rows = [], []
    for label, whole, rule, write in modelled.list_tables(real):
        if only not in label or whole:
            continue
        try:
            found = completing.judge(write, rule, range(1, 1 + keys))
        except InfeasibleError:  # a value is more frequent than its threshold
            continue
        pooled += found
        rows.append([label, *completing.show_coverage(found)])
        show(label, ["release", *kinds], rows[-1:])
    show("completed tables: coverage", ["release", *kinds], [*rows, ["pooled", *completing.show_coverage(pooled)]])
    for label, whole, rule, write in modelled.list_tables(real) if speed else ():
        if not whole and only in label:
            columns = ["statement", "raw ms", "answer ms", "20 raw + 10 or 60 ms"]
            show(f"time, {label}", columns, list(completing.measure_speed(write, rule)))
            break


@app.command()
def expected(conditions: int = 60) -> None:
    """The error that plan --algorithms expects, beside that of answers to questions that select 1 % and 5 %."""
    rows: list[list[object]] = []
    for name, sensitive in REAL.items():
        for algorithm in ("two-size", "informative"):
            table = DATA / f"{name}.parquet", [column for column in QI if column != sensitive], sensitive
            mechanism = {"threshold": "8*f + 0.02", "algorithm": algorithm}
            if table[0].is_file():
                with tempfile.TemporaryDirectory() as place:
                    found = foreseen.beside(table, mechanism, Path(place), conditions)
                    rows += [[f"{name}, {algorithm}", *row] for row in found]
    show("expected and measured error", ["release", "count", "share", "expected", "measured", "answers"], rows)


@app.command()
def partition() -> None:
    """Partitions for randomization: groups, sub-tables, bounds against the paper's procedure, and seconds."""
    rows: list[list[object]] = []
    for name, counts in shapes().items():
        n = int(counts.sum())
        for rho1 in (Fraction(int(counts.max()), n), Fraction(int(np.median(counts)), n)):
            for objective in ("bound", "error"):
                rho2 = min(3 * rho1, (1 + rho1) / 2)
                asked = randomization.state_problem(
                    counts.tolist(), [""] * len(counts), Randomize(rho1=rho1, rho2=rho2)
                )
                took = seconds(lambda a=asked, o=objective: randomization.find_partition(a, "pp", o))
                found = randomization.find_partition(asked, "pp", objective)
                groups = initial_groups(asked.counts, asked.protected)
                paper = merge.partition_bound(asked, groups, merge.best_runs(asked, groups, merge.paper_order(groups)))
                whole = randomization.find_partition(asked, "up").bound
                variance, most = (asked.costs_of(parts)[:, 1].sum() for parts in (found.parts, counts[None]))
                error = float(np.sqrt(variance / most))
                shape = [name, len(counts), float(rho1), objective, found.groups, len(found.parts)]
                rows.append([*shape, found.bound / paper, found.bound / whole, error, took * 1000])
    columns = ["counts", "m", "rho1", "objective", "groups", "sub-tables", "bound / paper's", "bound / UP's"]
    show("partitions", [*columns, "rms error / UP's", "ms"], rows)


@app.command()
def randomize(queries: int = 800) -> None:
    """UP and PP beside Anatomy, as in Small Domain's section 6: retention and mean relative error."""
    settings = [("acs_occ", Fraction(1, 13), (6, 5, 4, 3)), ("acs_edu", Fraction(1, 30), (10, 8, 6, 4))]
    rows: list[list[object]] = []
    for table, rho1, bounds in settings:
        if not (DATA / f"{table}.parquet").is_file():
            continue
        for bound in bounds:
            randomized = {"kind": "randomize", "rho1": str(rho1), "rho2": f"1/{bound}"}
            anatomy = {
                "algorithm": "anatomy",
                "threshold": f"1/{bound}",
                "excess": "suppress",
                "absence": "unobservable",
            }
            mechanisms = {"pp": randomized, "up": {**randomized, "algorithm": "up"}, "anatomy": anatomy}
            with tempfile.TemporaryDirectory() as place:
                source = {"file": str(DATA / f"{table}.parquet")}
                given = [(n, specification(Path(place), source, REAL[table], made)) for n, made in mechanisms.items()]
                for one in privsql.evaluate(given, workload=Workload(queries=queries), seed=1):
                    facts = one.published.facts
                    kept = f"{facts['retention']:.1%}" if "retention" in facts else "-"
                    shared = [table, bound, one.name, f"{facts['published'] / facts['records']:.1%}", kept]
                    for estimator, score in one.evaluated.scores.items():
                        bands = {band["low"]: band for band in score.summary()["bands"]}
                        cells = [bands.get(low, {}).get("mean_relative_error") for low in (50, 200, 1000, 5000)]
                        shown = ["-" if cell is None else float(cell) for cell in cells]
                        rows.append([*shared, estimator, *shown, score.summary()["coverage"]])
    columns = [
        "table",
        "L",
        "release",
        "published",
        "retention",
        "estimator",
        "50+",
        "200+",
        "1,000+",
        "5,000+",
        "covered",
    ]
    show("mean relative error by size of the true answer", columns, rows)


MSNBC = 'items = "pages"', "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]"
CARDS = "{{ query = \"SELECT 'S' || lpad(range::VARCHAR, 4, '0') FROM range({stations})\" }}"


def item_sets(folder: Path, file: Path, items: str, universe: str, algorithm: str) -> Spec:
    """A specification of a set-valued release at epsilon 1."""
    text = (
        f'[source]\nfile = "{file}"\n[columns]\n{items}\n[release]\nname = "r"\nto = "r.duckdb"\n'
        f'[mechanism]\nkind = "setvalued"\nalgorithm = "{algorithm}"\nepsilon = 1\nuniverse = {universe}\n'
        '[ledger]\ndatabase = "ledger.duckdb"\n'
    )
    path = folder / "spec.toml"
    path.write_text(text, encoding="utf-8")
    return privsql.load(path)


@app.command()
def setvalued(queries: int = 1_000) -> None:
    """Error by length of the query on MSNBC; time and memory by records and by items on generated trips."""
    columns = ["algorithm", "estimator", "length up to", "queries", "mean relative error", "coverage", "publish s"]
    rows: list[list[object]] = []
    for algorithm in ("views", "diffpart", "basic") if (DATA / "msnbc.parquet").is_file() else ():
        with tempfile.TemporaryDirectory() as place:
            spec = item_sets(Path(place), DATA / "msnbc.parquet", *MSNBC, algorithm)
            took = seconds(lambda s=spec: privsql.publish(s, replace=True, nobody_has_it=True), 1)
            found = privsql.evaluate(spec.target, spec, Workload(queries=queries))
            for name, extra in found.extras.items():
                for one in extra["classes"]:
                    said = [one["queries"], one["mean_relative_error"], one["coverage"], took]
                    rows.append([algorithm, name, f"{one['length_share']:.0%}", *said])
    show("MSNBC, epsilon 1", columns, rows)
    sizes = [(records, 1012) for records in (300_000, 600_000, 900_000, 1_210_096)]
    sizes += [(800_000, items) for items in (250, 500, 750, 1012)]
    rows = []
    for (records, items), algorithm in itertools.product(sizes, ("views", "diffpart")):
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "stm.parquet"
            subprocess.run(
                [sys.executable, ROOT / "examples" / "make_stm.py", file, str(records), str(items)], check=True
            )
            spec = item_sets(Path(place), file, 'items = "stations"', CARDS.format(stations=items), algorithm)
            took = seconds(lambda s=spec: privsql.publish(s, replace=True, nobody_has_it=True), 1)
            listed = len(privsql.query(spec.target, itemsets=1_000))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            rows.append([algorithm, f"{records:,}", items, took, listed, memory])
    columns = ["algorithm", "records", "items", "seconds", "sets listed, at most 1,000", "peak memory GiB"]
    show("trips, epsilon 1", columns, rows)


@app.command()
def dp(
    data: Annotated[list[str] | None, typer.Option()] = None,
    only: str = "",
    epsilon: Annotated[list[str] | None, typer.Option()] = None,
    delta: Annotated[list[str] | None, typer.Option()] = None,
    minutes: float = 2,
    queries: int = 300,
) -> None:
    """Error by class, total variation of tables, coverage, time and memory.

    Of acs_occ and people at epsilon .1, 1 and 10, pure and with a delta of 1e-9, unless others are given; one record
    added or removed. Every method has so many minutes. Peers are installed into an environment of their own at first.
    """
    losses = list(itertools.product(epsilon or ("0.1", "1", "10"), delta or ("0", "1e-9")))
    for title, columns, rows in beside_peers.runs(DATA, data or beside_peers.TABLES, only, losses, queries, minutes):
        said = [row[0] for row in rows if len(row) == 1]
        show(title, columns, [row for row in rows if len(row) > 1])
        for one in said:
            out.print(f"skipped: {one}")


@app.command()
def grow(rows: int = 1_000_000) -> None:
    """Growing slices of a real table by each algorithm; the searches; whole releases against a copy."""
    table = DATA / "acs_occ.parquet"
    if table.is_file():
        with tempfile.TemporaryDirectory() as place:
            columns = ["slice", "algorithm", "records", "groups", "error", "width", "held back", "s", "exposed"]
            show("income in growing slices, k = 5, e = 5,000", columns, growing.slices(table, Path(place)))
    columns = ["values", "different", "records", "releases", "algorithm", "groups", "s"]
    show("search beside earlier releases", columns, growing.searches(rows))
    with tempfile.TemporaryDirectory() as place:
        columns = ["release", "records", "groups", "copy s", "publish s", "ratio"]
        show("publishing with a ledger", columns, growing.against_copy(Path(place), rows))


@app.command()
def sketches(records: int = 10_000_000, runs: int = 30) -> None:
    """Share of pairs of tables without ids that the ledger finds to hold the same people, by their overlap."""
    columns = ["records", "unlike", "pairs", *(f"{overlap:.0%}" for overlap in sketching.OVERLAPS)]
    show("overlaps found", columns, list(sketching.power(records, runs)))


@app.command()
def start(runs: int = 10) -> None:
    """Medians over processes of their own, beside the bare import of what draws the help."""
    columns = ["command", "s", "limit", "CPU s", "ratio", "MB"]
    show("start", columns, starting.starts(runs))


@app.command()
def numbers() -> None:
    """Errors of means and of counts in ranges: made wages and prices, and incomes of the survey."""
    data = DATA / "acs_occ.parquet"
    columns = ["table", "way", "groups", "mean: median", "rms", "count: median", "rms", "half-width"]
    show("numbers", columns, list(numeric.measured(data if data.is_file() else None)))


@app.command()
def compare(only: str = "", picture: Path | None = None) -> None:
    """privsql beside other ways: parts belief, epsilon, tables, sets and numbers; the picture shows the first."""
    for table in comparing.compare_all(DATA, only, picture):
        print(table.write())


@app.command()
def serve(requests: int = 1_000, at_once: int = 16, rows: int = 200_000, release: Path | None = None) -> None:
    """A made table, or a release that is given: time and memory of pages, and of the same questions in one process."""
    columns = ["asked", "questions", "median s", "p95 s", "a second", "failed", "MB", "p95 over query's"]
    with tempfile.TemporaryDirectory() as folder:
        if release is None:
            release = Path(folder) / "made.duckdb"
            source = {"database": str(warehouse(Path(folder), rows)), "table": "t"}
            privsql.publish(request(Path(folder), source, "occupation", "8*f + 0.02"), to=release)
        show("serve", columns, serving.measured(release, requests, at_once))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as thrown_away:
        os.environ["PRIVSQL_LEDGER"] = thrown_away
        app()
