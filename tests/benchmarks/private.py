"""Differentially private tables and item sets beside their peers: error by class, tables, coverage, time and memory.

Every method is a process of its own and has so many minutes; two run at once, so that both tables take about half an
hour on two cores. What can't be installed or does not end is named. All are for one record added or removed, of pure
epsilon or of (epsilon, delta), which the peers get as the rho that ours is converted to; the peers of OpenDP's extra
take a public domain, as ours do.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privsql.dp_random import concentrated_rho
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
WITH_DELTA = ("marginals", "views")  # ours
AT_ONCE = 2  # methods


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


TABLES = ("acs_occ", "people")


@dataclass(frozen=True)
class Run:
    """One ``file`` with a table at one epsilon and delta, written as numbers; ``folder``: of what methods write."""

    data: Data
    file: Path
    folder: Path
    epsilon: str
    delta: str
    queries: int
    seconds: float

    @property
    def is_approximate(self) -> bool:
        """Return whether there is a delta."""
        return float(self.delta) > 0

    @property
    def loss(self) -> tuple[str, float]:
        """What peers may spend: epsilon, or a rho."""
        if not self.is_approximate:
            return "epsilon", float(self.epsilon)
        return "rho", float(concentrated_rho(Fraction(self.epsilon), Fraction(self.delta)))

    def domains(self) -> dict[str, list[int]]:
        """The values of each column, which are taken to be public."""
        values = "SELECT DISTINCT {0} FROM '{1}' ORDER BY 1"
        return {
            one: [row[0] for row in duckdb.connect().sql(values.format(one, self.file)).fetchall()]
            for one in self.data.columns
        }

    def spec(self, algorithm: str) -> Path:
        """The request for one of our algorithms."""
        epsilon = f'epsilon = "{self.epsilon}"\nalgorithm = "{algorithm}"\nallow_empty = true\n'
        epsilon += f'delta = "{self.delta}"\n' if self.is_approximate else ""
        if self.data.columns:
            columns = f"categories = {json.dumps(self.data.columns)}"
            domains = "\n".join(f"{name} = {json.dumps(values)}" for name, values in self.domains().items())
            mechanism = f'kind = "contingency"\n{epsilon}[mechanism.domains]\n{domains}'
        else:
            columns = 'items = "items"'
            universe = f'{{ query = "SELECT range FROM range({self.data.items})" }}'
            mechanism = f'kind = "setvalued"\n{epsilon}universe = {universe}'
        path = Path(tempfile.mkdtemp(dir=self.folder)) / "spec.toml"
        path.write_text(
            f'[source]\nfile = "{self.file}"\n[columns]\n{columns}\n[release]\nname = "r"\nto = "r.duckdb"\n'
            f"[mechanism]\n{mechanism}\n[ledger]\noff = true\n",
            encoding="utf-8",
        )
        return path

    def methods(self) -> Iterator[tuple[str, Callable[[Run], dict[str, Any]]]]:
        """Ours, the peers, and noise alone where it is pure."""
        yield from ((one, lambda run, a=one: run.ours(a)) for one in self.algorithms)
        yield from ((f"{one} (OpenDP)", lambda run, a=one: run.peer(a)) for one in self.data.peers)
        if not self.is_approximate:
            yield from ((f"noise on {one}", lambda run, a=one: run.noise(a)) for one in self.data.noises)

    def ours(self, algorithm: str) -> dict[str, Any]:
        """One of our algorithms."""
        return self._measured("own", self.spec(algorithm))

    def noise(self, how: str) -> dict[str, Any]:
        """Noise on every count of a kind."""
        return self._measured("noise", self.spec(self.algorithms[0]), how)

    def peer(self, algorithm: str) -> dict[str, Any]:
        """A peer's synthetic rows."""
        spec, table, domains = self.spec(self.algorithms[0]), self.file, self.domains()
        to = spec.parent / "synthetic.parquet"
        if self.data.items:
            table, domains = spec.parent / "held.parquet", {f"i{code}": [0, 1] for code in range(self.data.items)}
            _as_columns(self.file, table, self.data.items)
        used = peers.synthetic(algorithm, self.loss, table, domains, to, self.seconds)
        return used | self._measured("rows", spec, str(to))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Ours for such a table; those that list every set are for tiny universes."""
        found = get_args(get_parameters(self.data.kind).model_fields["algorithm"].annotation)
        few = (one for one in found if one != "basic" or self.data.items <= PAGES)
        return tuple(one for one in few if not self.is_approximate or one in WITH_DELTA)

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
    source: Path,
    names: Sequence[str],
    only: str,
    losses: Sequence[tuple[str, str]],
    queries: int,
    minutes: float,
) -> Iterator[tuple[str, list[str], list[list[object]]]]:
    """Title, columns and rows of a table for each of the data and each (epsilon, delta); ``only``: part of a method."""
    for data in (one for one in DATA if one.name in names):
        with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(AT_ONCE) as pool:
            file = Path(place) / f"{data.name}.parquet"
            if not _made(data, source, file):
                continue
            found = []
            for epsilon, delta in losses:
                now = Run(data, file, Path(place), epsilon, delta, queries, minutes * 60)
                rows = [pool.submit(find_row, name, method, now) for name, method in now.methods() if only in name]
                found.append((f"{data.name}, epsilon {epsilon}, delta {delta}", rows))
            for title, rows in found:
                yield title, list_columns(data), [row.result() for row in rows]


def _made(data: Data, source: Path, to: Path) -> bool:
    """Whether the table could be made; real ones may not be there."""
    try:
        data.make(source, to)
    except duckdb.IOException:
        return False
    return True


def list_columns(data: Data) -> list[str]:
    last = ["coverage", "half-width", "s", "MB"]
    if data.columns:
        return ["method", *CLASSES, "tv1", "tv2", "tv3", *last]
    lengths = [f"{share:.0%}" for share in LENGTHS] if data.items <= PAGES else [f"top {number}" for number in TOPS]
    return ["method", *ITEMS, *lengths, *last]


def find_row(name: str, method: Callable[[Run], dict[str, Any]], run: Run) -> list[object]:
    """The figures of a method, or why there are none."""
    print(f"{run.data.name}, epsilon {run.epsilon}, delta {run.delta}: {name} ..", file=sys.stderr)
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
