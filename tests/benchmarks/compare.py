"""privsql beside other ways on the same tables and the same questions: the figures and the picture of docs/compare.md.

Every way runs in a process of its own, one after the other, so that processor time and memory are its own. The process
prints JSON. Time and memory are of the release and of the first answer, with whatever is fitted for it.

    python -m tests.benchmarks.compare values WAY SEED PEOPLE.parquet        a sensitive column of categories
    python -m tests.benchmarks.compare sets WAY SEED SETS.parquet ITEMS      item sets
    python -m tests.benchmarks.compare numbers WAY                           cost of groups and cells of numbers
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy

import privsql
from privsql.keyed_random import seed_key
from privsql.mechanisms.permute.cells import cut_cells
from privsql.plot import ERROR, WHOLE, chart_errors, save_picture
from tests.benchmarks import accuracy, made, numbers, peers, private, promises

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Answer = Callable[[dict[str, int], NDArray[np.bool_]], Floats]  # of a condition: an estimate for every value

DIVERSITY = 4
RULE = f"1/{DIVERSITY}"
RECORDS = 30_162  # of the sample: as many as the well-known Adult table has
SEEDS = (1, 2, 3)
CONDITIONS = 80  # for each seed; every value is counted
BANDS = ((50, 200), (200, 1_000), (1_000, math.inf))
LEAST = 1e-9  # an error below it comes of adding doubles
LIMIT = 600  # seconds of a way
NAMES = [name for name in private.TABLE if name != "occupation"]
SAME_BELIEF = {  # ways by their names on the page
    "Anatomy": "anatomy",
    "Mondrian with l-diversity": "mondrian",
    "privsql, buckets": "linear",
    "privsql, buckets with the model": "model",
    "privsql, noisy tables": "tables",
}
SAME_EPSILON = {
    "privsql, up": "up",
    "up with the literature's formula": "formula",
    "unary encoding": "unary",
    "subset selection": "subset",
}
ZIPF = (50_000, 2_000)  # records and items of the made sets
EPSILON = 1
ITEMS, PAIRS = 400, 200  # that are asked for at most

# One sensitive column of categories -----------------------------------------------------------------------------------


def write_people(data: Path, to: Path) -> None:
    """Write a sample of the census table, whole numbers, by the hash of persons."""
    columns = ", ".join(f"{name}::BIGINT AS {name}" for name in NAMES)
    order = f"ORDER BY hash(person_id), person_id LIMIT {RECORDS}"
    duckdb.sql(f"COPY (SELECT {columns}, occupation::BIGINT AS sensitive FROM '{data}' {order}) TO '{to}'")


def measure_values(way: str, seed: int, file: Path) -> dict[str, Any]:
    """Return the errors of counts by band, and the costs, of one way to publish the sensitive column."""
    columns = {name: column.astype(np.int64) for name, column in duckdb.sql(f"FROM '{file}'").fetchnumpy().items()}
    epsilon, mechanisms = promises.ways(RULE, columns)
    sensitive, names = columns.pop("sensitive"), list(columns)
    values, codes = np.unique(sensitive, return_inverse=True)
    draw = np.random.default_rng(seed)
    asked = [accuracy.draw_condition(columns, draw, names) for _ in range(CONDITIONS)]
    begin, first = time.process_time(), asked[0]
    with tempfile.TemporaryDirectory() as place:
        if way == "mondrian":
            answer = answer_by_boxes(columns, codes, len(values))
        elif way in ("unary", "subset"):
            answer = answer_by_reports(way, codes, len(values), float(epsilon), np.random.default_rng([seed, 1]))
        else:
            mechanism = {
                "anatomy": {"threshold": RULE, "algorithm": "anatomy", "excess": "suppress", "absence": "unobservable"},
                "linear": mechanisms["bucketize, linear"],
                "model": mechanisms["bucketize, model"],
                "tables": mechanisms["tables"],
                "up": mechanisms["up"],
                "formula": mechanisms["up"],
            }[way]
            spec = accuracy.specification(Path(place), file, names, mechanism)
            privsql.publish(spec, key=seed_key(seed), allow_useless=True)
            if way == "model":
                privsql.fit(spec.target)
            known = {"anatomy": "baseline", "formula": "baseline", "linear": "linear", "model": "model"}
            estimator = known.get(way, "best")
            answer = answer_by_release(privsql.open(spec.target), estimator, values)
        answer(*first)
        costs = read_costs(begin)
        truth = np.concatenate([np.bincount(codes[members], minlength=len(values)) for _, members in asked])
        found = np.concatenate([answer(*one) for one in asked])
    return {"epsilon": float(epsilon), "errors": sum_bands(truth, found), **costs}


def answer_by_release(release: privsql.Release, estimator: str, values: Ints) -> Answer:
    """Answer by SQL on a release."""

    def answer(chosen: dict[str, int], _members: NDArray[np.bool_]) -> Floats:
        where = accuracy.write_condition(chosen)
        sql = f"SELECT sensitive, COUNT(*) FROM r WHERE {where} GROUP BY sensitive"
        found = {row[0]: float(row[1]) for row in release.query(sql, estimator=estimator).rows}
        return np.array([found.get(int(value), 0.0) for value in values])

    return answer


def answer_by_boxes(columns: dict[str, Ints], codes: Ints, values: int) -> Answer:
    """Answer by the boxes of Mondrian with l-diversity, as if the records of a box lay evenly in it."""
    ranks = {name: np.unique(column, return_inverse=True) for name, column in columns.items()}
    own = np.stack([rank for _, rank in ranks.values()], axis=1)
    cells = cut_diverse(own, codes, DIVERSITY)
    boxes = numbers.find_boxes(own, cells)
    counts = np.zeros((int(cells.max()) + 1, values))
    np.add.at(counts, (cells, codes), 1)
    place = {name: at for at, name in enumerate(ranks)}

    def answer(chosen: dict[str, int], _members: NDArray[np.bool_]) -> Floats:
        conditions = tuple((place[name], int(np.searchsorted(ranks[name][0], one))) for name, one in chosen.items())
        return np.asarray(numbers.find_shares(boxes, conditions) @ counts)

    return answer


def cut_diverse(ranks: Ints, codes: Ints, l: int) -> Ints:  # noqa: E741
    """Return the box of every record (n,): Mondrian (LeFevre et al. 2006) with l-diversity.

    A box is halved at the median of the column that it spans most of, or of the next one, as long as no value has more
    than 1/l of the records of either half.
    """
    boxes, span = np.zeros(len(ranks), dtype=np.int64), ranks.max(axis=0) + 1
    pending, number = [np.arange(len(ranks))], 0
    while pending:
        members = pending.pop()
        own = ranks[members]
        widths = (own.max(axis=0) - own.min(axis=0)) / span
        for column in np.argsort(-widths, kind="stable")[: np.count_nonzero(widths)].tolist():
            below = own[:, column] <= find_median(own[:, column])
            halves = members[below], members[~below]
            if all(len(half) and np.bincount(codes[half]).max() * l <= len(half) for half in halves):
                pending += halves
                break
        else:
            boxes[members] = number
            number += 1
    return boxes


def find_median(ranks: Ints) -> int:
    """Return the rank below the border that halves some records best; not all of them have the same rank."""
    kinds, counts = np.unique(ranks, return_counts=True)
    below = np.cumsum(counts)[:-1]
    return int(kinds[np.argmin(np.abs(2 * below - len(ranks)))])


def answer_by_reports(way: str, codes: Ints, values: int, epsilon: float, draw: np.random.Generator) -> Answer:
    """Answer by reports of sets of values that hold the true one with p and another with q; below 0 counts as 0."""
    odds = math.exp(epsilon)
    if way == "unary":  # optimized unary encoding: Wang et al. 2017, section 4.3
        p, q = 1 / 2, 1 / (odds + 1)
        reports = draw.random((len(codes), values)) < q
        reports[np.arange(len(codes)), codes] = draw.random(len(codes)) < p
    else:  # subset selection: Ye and Barg 2018, section III
        size = max(1, round(values / (odds + 1)))
        p = size * odds / (size * odds + values - size)
        q = p * (size - 1) / (values - 1) + (1 - p) * size / (values - 1)
        keep = draw.random(len(codes)) < p
        keys = draw.random((len(codes), values))
        keys[np.arange(len(codes)), codes] = np.where(keep, -1.0, 2.0)
        reports = np.zeros((len(codes), values), dtype=bool)
        np.put_along_axis(reports, np.argpartition(keys, size - 1, axis=1)[:, :size], True, axis=1)

    def answer(_chosen: dict[str, int], members: NDArray[np.bool_]) -> Floats:
        return np.maximum((reports[members].sum(axis=0) - members.sum() * q) / (p - q), 0.0)

    return answer


# Item sets ------------------------------------------------------------------------------------------------------------


def write_pages(data: Path, to: Path) -> None:
    """Write the visits, items from 0 on."""
    pages = "list_transform(pages, lambda page: (page - 1)::INTEGER)"
    duckdb.sql(f"COPY (SELECT {pages} AS items FROM '{data}') TO '{to}' (FORMAT parquet)")


def write_zipf(to: Path) -> None:
    """Write made sets, most of whose items follow Zipf's law, and the rest themes."""
    pq.write_table(made.sets(ZIPF, mean=8, staple=0.8, themes=100), to)


def measure_sets(way: str, seed: int, file: Path, items: int) -> dict[str, Any]:
    """Return the errors of counts of items by band, of pairs of a record's items, and the costs."""
    lists = pq.read_table(file)["items"].combine_chunks()
    starts, codes = lists.offsets.to_numpy().astype(np.int64), lists.flatten().to_numpy().astype(np.int64)
    truth, lengths = np.bincount(codes, minlength=items), np.diff(starts)
    draw = np.random.default_rng(seed)
    asked = draw.choice(np.flatnonzero(truth >= BANDS[0][0]), min(ITEMS, int((truth >= BANDS[0][0]).sum())), False)
    begin = time.process_time()
    if way == "views":
        with tempfile.TemporaryDirectory() as place:
            spec = specify_sets(Path(place), file, items)
            privsql.publish(spec)
            with privsql.open(spec.target) as release:
                answers: Any = release.answers
                ask = lambda chosen: answers.containing(chosen, "reconstructed", 0.95).estimate  # noqa: E731
                ask((0,))
                costs = read_costs(begin)
                found = np.array([ask((int(item),)) for item in asked])
                pairs = draw_pairs(starts, codes, items, draw)
                both = np.array([ask(pair) for pair, _ in pairs])
        true = np.array([records for _, records in pairs])
        enough = true >= BANDS[0][0]
        pair_error = float((np.abs(both - true) / true)[enough].mean()) if enough.any() else None
        return {"errors": sum_bands(truth[asked], found), "pairs": pair_error, **costs}
    cap = int({"mean": np.ceil(lengths.mean()), "95": np.quantile(lengths, 0.95), "all": lengths.max()}[way])
    counts = count_capped(starts, codes, items, cap, np.random.default_rng([seed, 1]))
    costs = read_costs(begin)
    return {"errors": sum_bands(truth[asked], counts[asked]), "pairs": None, "cap": cap, **costs}


def count_capped(starts: Ints, codes: Ints, items: int, cap: int, draw: np.random.Generator) -> Floats:
    """Return a histogram with geometric noise, of at most ``cap`` items of a record; below 0 counts as 0."""
    record = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((draw.random(len(record)), record))
    kept = codes[order[np.arange(len(record)) - starts[record] < cap]]
    stop = 1 - math.exp(-EPSILON / cap)
    noise = draw.geometric(stop, items) - draw.geometric(stop, items)
    return np.maximum(np.bincount(kept, minlength=items) + noise, 0.0)


def draw_pairs(starts: Ints, codes: Ints, items: int, draw: np.random.Generator) -> list[tuple[tuple[int, int], int]]:
    """Return pairs of items of random records, with the number of records that hold both."""
    held = scipy.sparse.csr_array((np.ones(len(codes), dtype=np.int64), codes, starts), shape=(len(starts) - 1, items))
    both, found = (held.T @ held).toarray(), []
    for row in draw.choice(np.flatnonzero(np.diff(starts) > 1), PAIRS).tolist():
        one, other = sorted(draw.choice(codes[starts[row] : starts[row + 1]], 2, replace=False).tolist())
        found.append(((one, other), int(both[one, other])))
    return found


def specify_sets(folder: Path, file: Path, items: int) -> privsql.Spec:
    """Return the request for views."""
    return privsql.build(
        {
            "source": {"file": str(file)},
            "columns": {"items": "items"},
            "release": {"name": "r", "to": str(folder / "r.duckdb")},
            "mechanism": {"kind": "setvalued", "epsilon": EPSILON, "universe": list(range(items))},
            "ledger": {"off": True},
        }
    )


# Numbers --------------------------------------------------------------------------------------------------------------


def measure_numbers(way: str) -> dict[str, Any]:
    """Return the costs of one way to publish the first of the made tables."""
    _, codes, values = next(numbers.tables(None))
    with tempfile.TemporaryDirectory() as place:
        names = [f"c{at}" for at in range(codes.shape[1])]
        file = Path(place) / "made.parquet"
        pq.write_table(pa.table({**dict(zip(names, codes.T, strict=True)), "sensitive": values}), file)
        begin = time.process_time()
        if way == "mondrian":
            cut_cells(codes, numbers.K)
            return read_costs(begin)
        mechanism = {"kind": "permute", "k": numbers.K, "e": int(np.median(values) / 2)}
        more = {"algorithm": "cells"} if way == "cells" else {}
        spec = accuracy.specification(Path(place), file, names, mechanism | more)
        privsql.publish(spec, allow_useless=True)
        privsql.query(spec.target, "SELECT AVG(sensitive) FROM r WHERE c0 = 3")
        return read_costs(begin)


# Figures --------------------------------------------------------------------------------------------------------------


def sum_bands(truth: Ints, found: Floats) -> list[tuple[float, int]]:
    """Return the sum of relative errors and the number of answers, by band of the truth."""
    inside = [(truth >= low) & (truth < high) for low, high in BANDS]
    error = np.abs(found - truth) / np.maximum(truth, 1)
    return [(float(error[one].sum()), int(one.sum())) for one in inside]


def read_costs(begin: float) -> dict[str, float]:
    """Return seconds of processor time, and the most memory of this process (not of its parent) in MB."""
    memory = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return {"seconds": time.process_time() - begin, "megabytes": int(memory[1]) / 1024 if memory else math.nan}


@dataclass(frozen=True)
class Table:
    """A table of the page."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def write(self) -> str:
        """Return it as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


SIZES = ["50-199", "200-1,000", "above 1,000"]
COSTS = ["processor s", "MB"]
TABLE_FIGURES = {  # of the benchmark of private tables, by their names on the page
    "method": "way",
    **{f"eq{number}": f"equality, {number}" for number in (1, 2, 3)},
    "range": "range",
    "groups": "GROUP BY",
    **{f"tv{number}": f"distance, {number}" for number in (1, 2, 3)},
    "s": COSTS[0],
    "MB": COSTS[1],
}


def compare_all(data: Path, only: str, picture: Path | None) -> Iterator[Table]:
    """Yield the tables of the parts whose names contain ``only``; write the picture of the first."""
    with tempfile.TemporaryDirectory() as place:
        people, pages, zipf = (Path(place) / f"{name}.parquet" for name in ("people", "msnbc", "zipf"))
        write_people(data / "acs_occ.parquet", people)
        if only in "belief":
            yield compare_values(f"Belief {RULE}", SAME_BELIEF, people, picture)
        if only in "epsilon":
            yield compare_values("The same epsilon", SAME_EPSILON, people, None)
        if only in "tables":
            yield compare_tables(people, Path(place))
        if only in "sets":
            write_pages(data / "msnbc.parquet", pages)
            write_zipf(zipf)
            yield compare_sets("MSNBC, 17 items", pages, private.PAGES)
            yield compare_sets(f"Zipf, {ZIPF[1]:,} items", zipf, ZIPF[1])
        if only in "numbers":
            yield compare_numbers()


def compare_values(title: str, ways: dict[str, str], people: Path, picture: Path | None) -> Table:
    """Return errors by band of all ways, over all seeds."""
    rows, drawn, epsilon, answers = [], [], 0.0, [0] * len(BANDS)
    for name, way in ways.items():
        found = [run_alone("values", way, seed, people) for seed in SEEDS]
        errors, answers = join_bands(found)
        epsilon = found[0]["epsilon"]
        rows.append([name, *map(show_error, errors), *show_costs(found)])
        drawn += [{"low": low, "name": name, "error": error} for (low, _), error in zip(BANDS, errors, strict=True)]
    save_picture(lambda points: chart_errors(points, ERROR, WHOLE), drawn, picture)
    counted = ", ".join(f"{number:,}" for number in answers)
    return Table(f"{title} (epsilon {epsilon:.2f}; {counted} answers)", ["way", *SIZES, *COSTS], rows)


def compare_tables(people: Path, folder: Path) -> Table:
    """Return errors of marginals, of noise alone and of AIM, by class of questions."""
    here = private.Data("people", lambda _source, _to: None, (*NAMES, "sensitive"))
    now = private.Run(here, people, folder, str(EPSILON), "0", 100, LIMIT)
    wanted = ("marginals", "AIM (OpenDP)", "noise on every cell", "noise on all marginals")
    kept = [private.list_columns(here).index(name) for name in TABLE_FIGURES]
    rows = []
    for name, method in now.methods():
        if name in wanted:
            print("tables", name, file=sys.stderr)
            row = private.find_row(name, method, now)
            shown = [str(row[at]) for at in kept] if len(row) > 1 else [str(row[0]), *["-"] * (len(kept) - 1)]
            rows.append([f"privsql, {name}" if name == "marginals" else shown[0], *shown[1:]])
    return Table(f"Tables, epsilon {EPSILON}", list(TABLE_FIGURES.values()), rows)


def compare_sets(title: str, file: Path, items: int) -> Table:
    """Return errors of items by band, and of pairs, of views and of capped histograms."""
    rows = []
    for way in ("views", "mean", "95", "all"):
        found = [run_alone("sets", way, seed, file, items) for seed in SEEDS]
        errors, _ = join_bands(found)
        pairs = [one["pairs"] for one in found if one["pairs"] is not None]
        name = "privsql, views" if way == "views" else f"histogram, at most {found[0]['cap']} items of a record"
        rows.append([name, *map(show_error, [*errors, *([float(np.mean(pairs))] if pairs else [None])])])
        rows[-1] += show_costs(found)
    return Table(f"{title}, epsilon {EPSILON}", ["way", *SIZES, "pairs", *COSTS], rows)


def compare_numbers() -> Table:
    """Return errors of means and counts on made tables; costs on the first of them."""
    costs = {way: show_costs([run_alone("numbers", way)]) for way in ("near", "cells", "mondrian")}
    rows, first = [], next(numbers.tables(None))[0]
    for table, name, _, *errors in numbers.measured(None):
        label, _, failed = str(name).partition(": ")
        way = "mondrian" if label == "k-anonymity" else label.partition(",")[0]
        shown = [show_error(one) for one in errors[:3]] if not failed else [f"refused: {failed}", "-", "-"]  # type: ignore[arg-type]
        rows.append([str(table), label, *shown, *(costs.pop(way, ["-", "-"]) if table == first else ["-", "-"])])
    figures = ["mean: median", "mean: rms", "count: median"]
    return Table(f"Numbers, k = {numbers.K}", ["table", "way", *figures, *COSTS], rows)


def run_alone(part: str, *words: object) -> dict[str, Any]:
    """Measure a way in a process of its own."""
    print(part, *words, file=sys.stderr)
    command = [sys.executable, "-m", "tests.benchmarks.compare", part, *map(str, words)]
    return dict(json.loads(peers.call(command, LIMIT, f"{part} {words[0]}").splitlines()[-1]))


def join_bands(found: Sequence[dict[str, Any]]) -> tuple[list[float | None], list[int]]:
    """Return the mean relative error of every band, and the answers."""
    sums = np.array([one["errors"] for one in found]).sum(axis=0)
    return [float(total / number) if number else None for total, number in sums], [int(number) for _, number in sums]


def show_error(error: float | None) -> str:
    """Return an error with two significant digits."""
    if error is None:
        return "-"
    return f"{error:.{max(0, 1 - math.floor(math.log10(error)))}f}" if error > LEAST else "0"


def show_costs(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the median seconds and the most memory of some runs."""
    seconds = float(np.median([one["seconds"] for one in found]))
    return [f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}", f"{max(one['megabytes'] for one in found):.0f}"]


def main(part: str, way: str, *words: str) -> None:
    """Print what one way gives, as JSON."""
    if part == "numbers":
        print(json.dumps(measure_numbers(way)))
    elif part == "sets":
        print(json.dumps(measure_sets(way, int(words[0]), Path(words[1]), int(words[2]))))
    else:
        print(json.dumps(measure_values(way, int(words[0]), Path(words[1]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
