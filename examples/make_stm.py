"""Make a table of travel cards: the set of stations that each card was used at within a week.

    python examples/make_stm.py stm.parquet [cards] [stations]

Like the transit data of the set-valued literature (1,210,096 cards, 1,012 stations, 4.82 on average, 64 at most), which
are not public: people repeat their trips, so a card is a union of few routes, popular ones far more often than others,
plus now and then a station of its own. Columns: ``card`` (BIGINT), ``stations`` (VARCHAR[]).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CARDS, STATIONS, ROUTES, LONGEST = 1_210_096, 1_012, 3_000, 64


def cards(number: int = CARDS, stations: int = STATIONS, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (number + 1,) and station numbers, ascending within a card, each once."""
    draw = np.random.default_rng(seed)
    card, station = _rides(draw, number, *_routes(draw, stations))
    strays = np.flatnonzero(draw.random(number) < 0.07)
    extra = draw.geometric(0.25, len(strays))
    extra[::400] = draw.integers(10, 2 * LONGEST, len(extra[::400]))  # a few go everywhere
    card = np.concatenate((card, np.repeat(strays, extra)))
    station = np.concatenate((station, draw.integers(0, stations, extra.sum())))
    key = np.unique(card * stations + station)
    card, station = key // stations, key % stations
    starts = np.searchsorted(card, np.arange(number + 1))
    place = np.arange(len(card)) - starts[card]
    return np.searchsorted(card[place < LONGEST], np.arange(number + 1)), station[place < LONGEST]


def _routes(draw: np.random.Generator, stations: int) -> tuple[np.ndarray, np.ndarray]:
    """Stations of every route, as offsets and numbers: two to six, near ones or hubs."""
    lengths = np.minimum(2 + draw.poisson(1.4, ROUTES), 6)
    route = np.repeat(np.arange(ROUTES), lengths)
    start = draw.integers(0, stations, ROUTES)
    near = start[route] + draw.integers(0, 12, len(route))
    hubs = draw.integers(0, stations, 40)
    place = np.where(draw.random(len(route)) < 0.4, hubs[draw.integers(0, len(hubs), len(route))], near)
    return np.concatenate(([0], np.cumsum(lengths))), place % stations


def _rides(draw: np.random.Generator, number: int, starts: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stations of the routes that each card takes: one route mostly, rarely more; popularity by rank."""
    chance = 1 / np.arange(1, ROUTES + 1) ** 0.9
    taken = np.minimum(draw.geometric(0.72, number), 12)
    card = np.repeat(np.arange(number), taken)
    route = draw.choice(ROUTES, len(card), p=chance / chance.sum())
    lengths = np.diff(starts)[route]
    first = np.repeat(starts[route] - (np.cumsum(lengths) - lengths), lengths)
    return np.repeat(card, lengths), of[first + np.arange(lengths.sum())]


def main(target: Path, number: int, stations: int) -> None:
    """Write the table as Parquet."""
    starts, station = cards(number, stations)
    names = pa.array([f"S{k:04d}" for k in range(stations)])
    lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), names.take(pa.array(station)))
    pq.write_table(pa.table({"card": pa.array(np.arange(number)), "stations": lists}), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(a) for a in (sys.argv[2:] + [str(CARDS), str(STATIONS)][len(sys.argv) - 2 :])))
