"""The portable order: records take ranks by keyed hashes of what they hold, on any engine, however a table is split.

Every record has h, 60 bits of SHA-256 of a subkey and an injective text of all its columns (``Records.bound``), and a
copy number: 0, 1, .. among the records of one h, equal ones or not. Its place on a line is

    u = first 60 bits of SHA-256(subkey | tag | h | copy)

and its rank is the number of records of its part (of its value, or its group) that stand before it; ties, of which
there are n^2/2^61 on average, fall to h. The pairs (h, copy) are different, so for a pseudo-random function the u are
independent and uniform, those of equal records too: every order of a part's records is equally likely. That is what
the stream of the key gives (``layout.pieces``), so the posterior of an adversary who knows the algorithm is the same,
and the proof of the bound carries over. Which of equal records has which copy number is nothing that a release tells.

All of it depends on contents alone: whichever task reads a record, and however often, it gets the same rank. No window
goes over a whole part: the line is cut into stretches of about ``UNIT`` records, in which they are ordered, and what a
layout says of ranks (``Segments``) is cut along with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.engine.texts import BITS
from privsql.model.records import changed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.model.records import Records
    from privsql.noise import Key

    Ints = NDArray[np.integer[Any]]

UNIT = 1000  # records in a stretch, more or less: few pieces meet in one, and no task is long
PURPOSE = "places"


@dataclass(frozen=True)
class Segments:
    """Ranks ``lo`` .. ``hi`` - 1 of a ``part`` are given ``number``, ``number`` + ``step``, ..; arrays (p,).

    By part and ``lo``, without overlaps. Ranks in none of them are left out.
    """

    part: Ints
    lo: Ints
    hi: Ints
    number: Ints
    step: int

    @property
    def singles(self) -> bool:
        """Whether each is for one record."""
        return bool((self.hi - self.lo == 1).all())


@dataclass(frozen=True)
class Parts:
    """Records (k,) of every part; ``of``: (part, and a column ``by`` of the records), None where that is the part."""

    records: Ints
    by: str = "code"
    of: pa.Table | None = None

    def table(self) -> pa.Table:
        """(part, ``by``, width): the width of a stretch."""
        stretches = np.maximum(1, self.records // UNIT)
        bits = np.ceil(np.log2(stretches)).astype(np.int64)
        widths = np.left_shift(np.int64(1), BITS - bits)
        own = self.of or pa.table({"part": np.arange(len(widths)), self.by: np.arange(len(widths))})
        return own.append_column("width", pa.array(widths[own["part"].to_numpy()]))


class Dealing:
    """The records of ``source``, ranked; what segments say of their ranks."""

    def __init__(
        self, db: Relations, source: Records, key: Key, parts: Parts, columns: Sequence[str] | None = None
    ) -> None:
        """``key``: bound to the records, which lie in relation ``hashed``; ``columns``: what is wanted of them.

        By default the quasi-identifiers, and the number ``pos`` where there is one. Raises ``GuaranteeError`` if they
        are not the records that were counted.
        """
        self._db, self._source = db, source
        wanted = [*(columns or source.roles.qi_keys), *(["pos"] if source.has_ids else [])]
        db.put("secret", key.word(PURPOSE))
        db.make("twice", fill("portable/twice", {"hashed": temp("hashed")}))
        order = [column("code", "r"), *source.roles.qi("r")]
        holes: Holes = {"hashed": temp("hashed"), "twice": temp("twice"), "order": order}
        copies = fill("portable/copies", holes)
        db.put("parts", parts.table())
        holes = {
            "copies": copies.subquery(),
            "parts": temp("parts"),
            "secret": temp("secret"),
            "columns": [column(name, "r") for name in wanted],
            "hash": self.hash("place"),
            "same_part": column(parts.by, "r").eq(column(parts.by, "s")),
        }
        db.make("drawn", fill("portable/drawn", holes), title="Ordering the records")
        db.drop("hashed", "twice", "parts")
        self._units = db.arrow(fill("portable/units", {"drawn": temp("drawn")}))
        found = np.bincount(self._units["part"].to_numpy(), self._units["records"].to_numpy(), len(parts.records))
        if len(found) != len(parts.records) or (found != parts.records).any():
            raise changed()

    def hash(self, tag: str) -> exp.Expr:
        """60 bits for record r, independent of those under other tags; first copies have a tag of their own."""
        first = exp.Case().when(column("copy", "r").eq(exp.Literal.number(0)), exp.Literal.string(tag))
        texts = [exp.cast(column(name, "r"), "VARCHAR") for name in ("h", "copy")]
        return self._db.hashed([column("word", "k"), first.else_(exp.Literal.string(f"{tag} of a copy")), *texts])

    def dealt(self, segments: Segments, columns: Sequence[exp.Expr]) -> exp.Query:
        """``columns`` (of r, or a ``hash``) of every record whose rank is in a segment, and its ``number``."""
        self._db.put("pieces", cut(segments, self._units))
        rank, lo, hi = column("rank", "r"), column("lo", "p"), column("hi", "p")
        within = rank.eq(lo) if segments.singles else exp.and_(exp.GTE(this=rank, expression=lo), rank.copy() < hi)
        holes: Holes = {"drawn": temp("drawn"), "pieces": temp("pieces"), "columns": columns, "meets": within}
        holes["secret"] = temp("secret")
        return fill("portable/dealt", holes)

    def numbers(self, dealt: exp.Query) -> NDArray[np.int64]:
        """The number of every record in canonical order (n,), -1 where it is left out; of records with names."""
        found = self._db.arrow(dealt)
        every = np.full(self._source.records, -1, dtype=np.int64)
        every[found["pos"].to_numpy()] = found["number"].to_numpy()
        return every

    def done(self) -> None:
        """Forget the relations."""
        self._db.drop("secret", "drawn", "pieces")


def cut(segments: Segments, units: pa.Table) -> pa.Table:
    """(part, bin, lo, hi, number, step): the segments cut at the borders of units (part, bin, records).

    Ranks count from the first of a part in ``segments``, from the first of a unit in what is returned.
    """
    own: Mapping[str, Ints] = {name: units[name].to_numpy() for name in units.column_names}
    ends = np.cumsum(own["records"])
    begins = ends - own["records"]
    of_parts = begins[np.searchsorted(own["part"], segments.part)]  # a line of all records, part by part
    lo, hi = segments.lo + of_parts, segments.hi + of_parts
    borders = np.union1d(lo, begins)
    segment = np.searchsorted(lo, borders, side="right") - 1
    kept = (segment >= 0) & (borders < hi[segment])
    borders, segment = borders[kept], segment[kept]
    unit = np.searchsorted(begins, borders, side="right") - 1
    until = np.minimum(hi[segment], ends[unit])
    number = segments.number[segment] + segments.step * (borders - lo[segment])
    return pa.table(
        {
            "part": own["part"][unit],
            "bin": own["bin"][unit],
            "lo": borders - begins[unit],
            "hi": until - begins[unit],
            "number": number,
            "step": np.full(len(borders), segments.step),
        }
    )
