"""Differentially private tables and item sets beside their peers: error by class, tables, coverage, time and memory.

Every method is a process of its own and has so many minutes; what can't be installed or does not end is said. All are
of pure epsilon for one record added or removed; the peers of OpenDP's extra take a public domain, as ours do.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privsql.mechanisms.registry import get_parameters
from tests.benchmarks import made, peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TABLE = ("age", "sex", "education", "marital", "race", "work_class", "birthplace", "occupation")
PAGES = 17
CLASSES = ("eq1", "eq2", "eq3", "range", "groups")
ITEMS = ("item", "pair", "rec1", "rec2", "rec3", "rec4")
LENGTHS = (0.2, 0.6, 1.0)
TOPS = ("20", "50", "100")


@dataclass(frozen=True)
class Data:
    """A table: how its file is made in a folder from the real tables; ``columns`` of a table, or ``items`` of sets."""

    name: str
    make: Callable[[Path, Path], None]
    columns: tuple[str, ...] = ()
    items: int = 0

    @property
    def kind(self) -> str:
        """The mechanism that publishes such."""
        return "contingency" if self.columns else "setvalued"

    @property
    def noises(self) -> tuple[str, ...]:
        """What noise alone can be put on."""
        few = ("every set", "all small sets") if self.items <= 20 else ()
        return ("every cell", "all marginals") if self.columns else few

    @property
    def peers(self) -> tuple[str, ...]:
        """Algorithms of peers that take such a table; sets become a column for each item."""
        return peers.ALGORITHMS if self.items <= 20 else ()


def _table(source: Path, to: Path) -> None:
    columns = ", ".join(f"{name}::INTEGER AS {name}" for name in TABLE)
    duckdb.sql(f"COPY (SELECT {columns} FROM '{source / 'acs_occ.parquet'}') TO '{to}' (FORMAT parquet)")


def _sets(source: Path, to: Path) -> None:
    pages = "list_transform(pages, lambda page: (page - 1)::INTEGER)"
    duckdb.sql(f"COPY (SELECT {pages} AS items FROM '{source / 'msnbc.parquet'}') TO '{to}' (FORMAT parquet)")


DATA = (
    Data("acs_occ", _table, TABLE),
    Data("people", lambda source, to: made.people(source / "acs_occ.parquet", to), made.COLUMNS),
    Data("msnbc", _sets, items=PAGES),
    Data("baskets", lambda _, to: made.baskets(to), items=made.BASKETS[1]),
    Data("sessions", lambda _, to: made.sessions(to), items=made.SESSIONS[1]),
)


@dataclass(frozen=True)
class Run:
    """One table in a folder at one epsilon."""

    data: Data
    folder: Path
    epsilon: float
    queries: int
    seconds: float

    @property
    def file(self) -> Path:
        """The table."""
        return self.folder / f"{self.data.name}.parquet"

    def domains(self) -> dict[str, list[int]]:
        """The values of each column, which are taken to be public."""
        values = "SELECT DISTINCT {0} FROM '{1}' ORDER BY 1"
        return {
            one: [row[0] for row in duckdb.sql(values.format(one, self.file)).fetchall()] for one in self.data.columns
        }

    def spec(self, algorithm: str) -> Path:
        """The request for one of our algorithms."""
        epsilon = f'epsilon = "{self.epsilon:g}"\nalgorithm = "{algorithm}"\nallow_empty = true\n'
        if self.data.columns:
            columns = f"categories = {json.dumps(self.data.columns)}"
            domains = "\n".join(f"{name} = {json.dumps(values)}" for name, values in self.domains().items())
            mechanism = f'kind = "contingency"\n{epsilon}[mechanism.domains]\n{domains}'
        else:
            columns = 'items = "items"'
            universe = f'{{ query = "SELECT range FROM range({self.data.items})" }}'
            mechanism = f'kind = "setvalued"\n{epsilon}universe = {universe}'
        path = self.folder / "spec.toml"
        path.write_text(
            f'[source]\nfile = "{self.file}"\n[columns]\n{columns}\n[release]\nname = "r"\nto = "r.duckdb"\n'
            f"[mechanism]\n{mechanism}\n[ledger]\noff = true\n",
            encoding="utf-8",
        )
        return path

    def ours(self, algorithm: str) -> dict[str, Any]:
        """One of our algorithms."""
        return self._measured("own", self.spec(algorithm))

    def noise(self, how: str) -> dict[str, Any]:
        """Noise on every count of a kind."""
        return self._measured("noise", self.spec(self.algorithms[0]), how)

    def peer(self, algorithm: str) -> dict[str, Any]:
        """A peer's synthetic rows."""
        to, table, domains = self.folder / "synthetic.parquet", self.file, self.domains()
        if self.data.items:
            table, domains = self.folder / "held.parquet", {f"i{code}": [0, 1] for code in range(self.data.items)}
            _as_columns(self.file, table, self.data.items)
        used = peers.synthetic(algorithm, self.epsilon, table, domains, to, self.seconds)
        return used | self._measured("rows", self.spec(self.algorithms[0]), str(to))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Ours for such a table; those that list every set are for tiny universes."""
        found = get_args(get_parameters(self.data.kind).model_fields["algorithm"].annotation)
        return tuple(one for one in found if one != "basic" or self.data.items <= PAGES)

    def _measured(self, kind: str, spec: Path, *more: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.benchmarks.answering", kind, str(spec), str(self.queries), *more]
        return dict(json.loads(peers.call(command, self.seconds, " ".join((kind, *more[:1]))).splitlines()[-1]))


def _as_columns(file: Path, to: Path, items: int) -> None:
    """Item sets as a table with a column of 0 and 1 for each item."""
    lists = pq.read_table(file)["items"].combine_chunks()
    held = np.zeros((len(lists), items), dtype=np.int64)
    held[lists.value_parent_indices().to_numpy(), lists.flatten().to_numpy()] = 1
    pq.write_table(pa.table({f"i{code}": held[:, code] for code in range(items)}), to)


def runs(
    source: Path, only: str, epsilons: Sequence[float], queries: int, minutes: float
) -> Iterator[tuple[str, list[str], list[list[object]]]]:
    """Title, columns and rows of a table for each of the data and each epsilon; ``only``: a part of a name."""
    for data in DATA:
        with tempfile.TemporaryDirectory() as place:
            run = Run(data, Path(place), 1, queries, minutes * 60)
            methods: list[tuple[str, Callable[[Run], dict[str, Any]]]] = [
                *((one, lambda r, a=one: r.ours(a)) for one in run.algorithms),
                *((f"{one} (OpenDP)", lambda r, a=one: r.peer(a)) for one in data.peers),
                *((f"noise on {one}", lambda r, a=one: r.noise(a)) for one in data.noises),
            ]
            chosen = [one for one in methods if only in f"{data.name} {one[0]}"]
            if not chosen or not _made(data, source, run.file):
                continue
            for epsilon in epsilons:
                now = Run(data, Path(place), epsilon, queries, minutes * 60)
                rows = [_row(name, method, now) for name, method in chosen]
                yield f"{data.name}, epsilon {epsilon:g}", _columns(data), rows


def _made(data: Data, source: Path, to: Path) -> bool:
    """Whether the table could be made; real ones may not be there."""
    try:
        data.make(source, to)
    except duckdb.IOException:
        return False
    return True


def _columns(data: Data) -> list[str]:
    last = ["coverage", "half-width", "s", "MB"]
    if data.columns:
        return ["method", *CLASSES, "tv1", "tv2", "tv3", *last]
    lengths = [f"{share:.0%}" for share in LENGTHS] if data.items <= PAGES else [f"top {number}" for number in TOPS]
    return ["method", *ITEMS, *lengths, *last]


def _row(name: str, method: Callable[[Run], dict[str, Any]], run: Run) -> list[object]:
    """The figures of a method, or why there are none."""
    print(f"{run.data.name}, epsilon {run.epsilon:g}: {name} ..", file=sys.stderr)
    try:
        found = method(run)
    except peers.SkippedError as error:
        return [f"{name}: {error}"]
    by = {one["class"]: one for one in found["questions"]}
    if run.data.columns:
        shown = [by.get(one, {}).get("mean_error") for one in CLASSES]
        shown += [*(one["total_variation"] for one in found["tables"]), found.get("tv3")]
    else:
        shown = [by.get(one, {}).get("mean_error") for one in ITEMS]
        by_length = {one["length_share"]: one["mean_relative_error"] for one in found["classes"]}
        few = run.data.items <= PAGES
        shown += [by_length[one] for one in LENGTHS] if few else [found["top_items"][k]["precision"] for k in TOPS]
    bounded = [one for one in by.values() if one["coverage"] is not None]
    held = [one["coverage"] for one in bounded]
    coverage = f"{min(held):.0%}-{max(held):.0%}" if held else "-"
    width = float(np.mean([one["half_width"] for one in bounded])) if bounded else None
    used = [width, found.get("seconds"), found.get("megabytes")]
    return [name, *map(_shown, shown), coverage, *map(_rounded, used)]


def _shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.3f}"


def _rounded(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:,.3g}" if figure < 100 else f"{figure:,.0f}"
