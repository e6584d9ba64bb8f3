"""Fake sensitive values against adversaries who can exclude some (Wang et al., section 6).

Each bucket's ST lists |g| + sigma distinct values, sigma of them fake: drawn uniformly from the values that are not in
the bucket, or, with negative associations, from those that this knowledge excludes for no record of the bucket. After
q records of a bucket are known, |g| - q + sigma values remain, sigma of them fake.

Negative associations are learnt as an adversary would from the release without fakes: value x is excluded for z where
the reconstructed share of x among the records with z lies, with ``SURE`` standard errors to spare, below ``RARE`` times
the overall share of x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import Channel, counting
from privsql.answers.reconstruct import LARGE, reconstruct
from privsql.attacks.association import RARE, SURE
from privsql.engine.sqlfiles import Holes, column, fill, named, same, table, temp
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.bucketize.tables import size_of_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.arrays import Composition
    from privsql.mechanisms.bucketize.model import Ints, Setting
    from privsql.noise import Shuffler

Mask = NDArray[np.bool_]
CELLS = 2**24  # buckets times values that are looked at together


def drawn(real: Composition, setting: Setting, sigma: int, excluded: Ints, noise: Shuffler) -> tuple[Composition, int]:
    """The composition with sigma fakes in each bucket, and how many of them the given knowledge excludes.

    ``excluded`` (e, 2): buckets and the codes that are no fakes there, unless there are too few others.
    """
    order = np.lexsort((excluded[:, 1], excluded[:, 0]))
    excluded, chosen, weak = excluded[order], [], 0
    for first, codes in _chunks(real, setting):
        present = np.zeros((len(codes), real.values), dtype=bool)
        np.put_along_axis(present, codes, values=True, axis=1)
        free = ~present
        rows = slice(*np.searchsorted(excluded[:, 0], (first, first + len(codes))))
        free[excluded[rows, 0] - first, excluded[rows, 1]] = False
        short = free.sum(axis=1) < sigma
        weak += int((sigma - free[short].sum(axis=1)).sum())
        added = _admissible_first(free, present, short, sigma, noise)
        chosen.append((np.repeat(np.arange(first, first + len(codes)), sigma), added.ravel()))
    bids, codes = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
    return real.beside(bids, codes), weak


def _chunks(real: Composition, setting: Setting) -> Iterator[tuple[int, Ints]]:
    """(first bucket, codes of its and the next buckets (B, size)), a chunk at a time."""
    step = max(1, CELLS // real.values)
    bid = 0
    for _, keys in real.classes(setting):
        for begin in range(0, len(keys), step):
            yield bid + begin, real.codes(keys[begin : begin + step])
        bid += len(keys)


def _admissible_first(free: Mask, present: Mask, short: Mask, sigma: int, noise: Shuffler) -> Ints:
    """Fakes (B, sigma): from the free values; where these are too few, all of them and others that are not present."""
    added = np.empty((len(free), sigma), dtype=np.int64)
    for t in range(sigma):
        left = free.sum(axis=1)
        if short.any():
            empty = left == 0
            free[empty] = ~present[empty]
            left = free.sum(axis=1)
        place = noise.integers(0, left, len(free))
        added[:, t] = (np.cumsum(free, axis=1, dtype=np.int32) > place[:, None]).argmax(axis=1)
        free[np.arange(len(free)), added[:, t]] = False
        present[np.arange(len(free)), added[:, t]] = True
    return added


def refuse_weak(weak: int, policy: str) -> None:
    """``InfeasibleError`` if fakes that can be excluded are not wanted."""
    if weak and policy == "refuse":
        raise InfeasibleError(
            f"{weak} fake values would be excluded by negative associations: their buckets have too few others; "
            "set no_admissible_fake = 'weaker' to publish them all the same, or fewer fake_values",
            {"weak_fakes": weak},
        )


def excluded(db: Relations, roles: Roles, setting: dict[str, int], through: Channel) -> Ints:
    """Buckets and codes (e, 2) that negative associations exclude for a record of the bucket.

    Reads ``qit`` of database ``release`` and relation ``composition``, the buckets without fakes.
    """
    if len(through.records) > LARGE:
        raise UsageError(f"exclude_negative looks at every value of every column; it takes at most {LARGE} values")
    found = [np.empty((0, 2), dtype=np.int64)]
    for field in roles.quasi_identifiers:
        values, codes = _negative(db, field.name, setting, through)
        if len(codes):
            db.put("negative", pa.table({"value": values, "code": codes}))
            holes: Holes = {
                "qit": table("qit", "release"),
                "negative": temp("negative"),
                "column": column(field.name, "q"),
            }
            rows = db.arrow(fill("bucketize/excluded", holes))
            db.drop("negative")
            found.append(np.stack([rows[name].to_numpy().astype(np.int64) for name in ("bid", "code")], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _negative(db: Relations, name: str, setting: dict[str, int], through: Channel) -> tuple[pa.Array, Ints]:
    """Values of a column and codes that hardly occur with them."""
    composition = exp.select("bid", named(column("code"), "s0"), named(column("records"), "count"))
    holes: Holes = {
        "qit": table("qit", "release"),
        "st": composition.from_(temp("composition")).subquery(),
        "values": exp.select("code", named(column("code"), "s0")).from_(temp("domain")).subquery(),
        "terms": [named(column(name), "g_0")],
        "keys": [column(name)],
        "filter": exp.true(),
        "totals": [],
        "amounts": [],
        "amount": [],
        "groups": [column("g_0")],
        "sa": [column("s0", "s")],
        "size": size_of_bucket(setting, column("bid", "s")),
        "same_value": same("sums", "v", ["s0"]),
    }
    rows = db.arrow(fill("query/observed", holes))
    ranks = rows["set"].to_numpy()
    observed = np.zeros((int(ranks.max()) + 1, len(through.records)))
    pairs = rows["pairs"].to_numpy().astype(np.float64)
    np.add.at(observed, (ranks, rows["place"].to_numpy()), pairs / rows["size"].to_numpy())
    totals = observed.sum(axis=1)
    seen = reconstruct(through, counting(observed, totals, float(through.records.sum())), np.eye(observed.shape[1]))
    negative = seen.values + SURE * seen.std_error < RARE * totals[:, None] * through.shares
    sets, codes = np.nonzero(negative)
    first = np.unique(ranks, return_index=True)[1]
    return rows["g_0"].combine_chunks().take(pa.array(first[sets])), codes
