"""Fakes that associations exclude for nobody in the bucket (Wang et al., section 6).

Negative associations are learnt as an adversary would from the release without fakes: value x is excluded for z where
the reconstructed share of x among the records with z lies, with ``SURE`` standard errors to spare, below ``RARE`` times
the overall share of x. Who strikes such values off a person's list then strikes off no fakes.

Fakes that are excluded are exchanged between buckets, which leaves how often each value is listed and real as it is.
But nothing is hidden twice: a listed value that is excluded for somebody in its bucket can then only be real,
somebody else's, for who knows that fakes were chosen so; and the other listed values are fake the more often.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.layout.runs import Runs
    from privsql.mechanisms.bucketize.model import Ints
    from privsql.noise import Shuffler

SWEEPS, PATIENCE = 2000, 200  # exchanges between all buckets, two by two: at most, and in vain
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Avoided:
    """``codes`` (N,): the fakes after all exchanges, of the same buckets; ``weak`` of them are excluded all the same.
    ``certain``: listed values that are excluded and real.
    """

    codes: Ints
    weak: int
    certain: int


def avoided(real: Runs, bids: Ints, codes: Ints, excluded: Ints, noise: Shuffler) -> Avoided:
    """Fakes ``codes`` in buckets ``bids`` (N,), exchanged until none is among ``excluded`` (e, 2), or nothing helps.

    In every sweep one excluded fake of each bucket that has any is matched with a fake of another bucket, at random;
    the two are exchanged if neither bucket lists the other's, and fewer of them are excluded after than before, or as
    many.
    """
    order = np.argsort(bids, kind="stable")
    held, barred = _Pairs(real.values, *real.pairs), _Pairs(real.values, excluded[:, 0], excluded[:, 1])
    own = bids[order].reshape(int(bids.max(initial=-1)) + 1, -1)[:, 0]
    listed, vain = codes[order].reshape(len(own), -1), 0
    weak = barred.hold(own[:, None], listed)
    left = int(weak.sum())
    for _ in range(SWEEPS):
        if not left or vain == PATIENCE:
            break
        _exchange(own, listed, weak, held, barred, noise)
        before, left = left, int(weak.sum())
        vain = 0 if left < before else vain + 1
    made = np.empty_like(codes)
    made[order] = listed.ravel()
    return Avoided(made, left, int(barred.hold(*real.pairs).sum()))


def _exchange(own: Ints, listed: Ints, weak: Flags, held: _Pairs, barred: _Pairs, noise: Shuffler) -> None:
    """One sweep over the fakes ``listed`` (B, sigma) of buckets ``own`` (B,), ``weak`` the excluded ones; in place."""
    half = len(own) // 2
    order, some = noise.permutation(len(own)), np.asarray(weak.any(axis=1))
    one, two = order[:half], order[half : 2 * half]
    kept = some[one] | some[two]
    one, two = one[kept], two[kept]
    first, second = (_picked(weak[rows], noise) for rows in (one, two))
    mine, yours = listed[one, first], listed[two, second]
    free = ~(held.hold(own[one], yours) | (listed[one] == yours[:, None]).any(axis=1))
    free &= ~(held.hold(own[two], mine) | (listed[two] == mine[:, None]).any(axis=1))
    there, here = barred.hold(own[one], yours), barred.hold(own[two], mine)
    done = free & (there.astype(int) + here <= weak[one, first].astype(int) + weak[two, second])
    one, first, two, second = one[done], first[done], two[done], second[done]
    listed[one, first], listed[two, second] = yours[done], mine[done]
    weak[one, first], weak[two, second] = there[done], here[done]


def _picked(weak: Flags, noise: Shuffler) -> Ints:
    """A random column of each row, one that is marked if there is any."""
    order = noise.integers(0, 2**30, weak.size).reshape(weak.shape)
    return np.asarray((order + weak * 2**30).argmax(axis=1))


class _Pairs:
    """A set of buckets with values."""

    def __init__(self, values: int, bids: Ints, codes: Ints) -> None:
        self._values, self._keys = values, np.unique(bids * values + codes)

    def hold(self, bids: Ints, codes: Ints) -> Flags:
        """Which of the pairs are in the set."""
        wanted = bids * self._values + codes
        if not len(self._keys):
            return np.zeros(len(wanted), dtype=bool)
        return np.asarray(self._keys[np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)] == wanted)


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
        values, codes = _negative(db, (field.name, roles.by_qi.called("bid")), setting, through)
        if len(codes):
            db.put("negative", pa.table({"value": values, "code": codes}))
            holes: Holes = {
                "qit": table("qit", "release"),
                "negative": temp("negative"),
                "column": column(field.name, "q"),
                "bid": roles.by_qi.column("bid", "q"),
            }
            rows = db.arrow(fill("bucketize/excluded", holes))
            db.drop("negative")
            found.append(np.stack([rows[name].to_numpy().astype(np.int64) for name in ("bid", "code")], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _negative(
    db: Relations, names: tuple[str, str], setting: dict[str, int], through: Channel
) -> tuple[pa.Array, Ints]:
    """Values of a column and codes that hardly occur with them; ``names``: of the column, and of that of buckets."""
    name, bid = names
    composition = exp.select("bid", named(column("code"), "s0"), named(column("records"), "count"))
    holes: Holes = {
        "qit": table("qit", "release"),
        "bid": column(bid),
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
