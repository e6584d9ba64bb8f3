"""Assign numbers to the records of a source: by their positions in canonical order, or by ranks in the portable one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.engine.database import Relations, require_ordered
from privsql.engine.remote import stream_positions
from privsql.engine.sqlfiles import BITS, Holes, all_rows, column, fill, temp_table
from privsql.model.hashing import source_changed_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.keyed_random import Key
    from privsql.model.records import Records

Ints = NDArray[np.integer[Any]]

# Canonical order ------------------------------------------------------------------------------------------------------


def assign_records(
    db: Relations, source: Records, numbers: NDArray[np.int32], codes: NDArray[np.int32], values: pa.Table | None = None
) -> tuple[exp.Query, bool]:
    """Give records their numbers and codes. The relations that are made of the source are used up.

    Args:
        db: Where the source lies.
        source: The records.
        numbers: The number of every record in canonical order (n,); records with one below 0 may be left out.
        codes: The code of every record in canonical order (n,).
        values: The sensitive values (s0..) by code, if rows are to have them.

    Returns:
        The query of the records, as (q0.., bid, code) or (q0.., s0.., bid), and whether rows are sorted by all of their
        columns, bid first.
    """
    grouped = None if source.packed is None else source.packed.stream_groups(numbers, codes, values)
    if grouped is not None:
        db.register_arrow("positions", grouped)
        return all_rows(temp_table("positions")), True
    source.sort_records()
    db.register_arrow("positions", stream_positions(numbers, codes))
    numbered = require_ordered(db).with_bid_and_code(temp_table("records"), temp_table("positions"))
    if values is None:
        return numbered, False
    columns = [*source.roles.qi_columns("r"), *source.roles.sa_columns("d"), column("bid", "r"), column("code", "r")]
    same = column("code", "r").eq(column("code", "d"))
    return exp.select(*columns).from_(numbered.subquery("r")).join(temp_table("domain").as_("d"), on=same), False


# The portable order ---------------------------------------------------------------------------------------------------
# Records take ranks by keyed hashes of what they hold, on any engine, however a table is split.
#
# Every record has h, 60 bits of SHA-256 of a subkey and an injective text of all its columns (``Records.bound``), and a
# copy number: 0, 1, .. among the records of one h, equal ones or not. Its place on a line is
#
#     u = first 60 bits of SHA-256(subkey | tag | h | copy)
#
# and its rank is the number of records of its part (of its value, or its group) that stand before it; ties, of which
# there are n^2/2^61 on average, fall to h. The pairs (h, copy) are different, so for a pseudo-random function the u are
# independent and uniform, those of equal records too: every order of a part's records is equally likely. That is what
# the stream of the key gives (``Pieces.draw_places``), so the posterior of an adversary who knows the algorithm is the
# same, and the proof of the bound carries over. Which of equal records has which copy number is nothing that a release
# tells.
#
# All of it depends on contents alone: whichever task reads a record, and however often, it gets the same rank. No
# window goes over a whole part: the line is cut into stretches of about ``UNIT`` records, in which they are ordered,
# and what a layout says of ranks (``Segments``) is cut along with them.

UNIT = 1000  # records in a stretch, more or less: few pieces meet in one, and no task is long
PURPOSE = "places"


@dataclass(frozen=True)
class Segments:
    """Ranks ``lo`` .. ``hi`` - 1 of a ``part`` are given ``number``, ``number`` + ``step``, ..; arrays (p,).

    They are sorted by part and ``lo``, and do not overlap. Ranks in none of them are left out.
    """

    part: Ints
    lo: Ints
    hi: Ints
    number: Ints
    step: int


@dataclass(frozen=True)
class RecordParts:
    """The parts in which records are ranked.

    Attributes:
        records: The number of records of every part (k,).
        by: The column of the records that tells their part.
        of: The parts by the values of that column (part, ``by``); None where the value is the part.
    """

    records: Ints
    by: str = "code"
    of: pa.Table | None = None


class RankAssignment:
    """The records of a source, ranked, and what segments say of their ranks."""

    def __init__(
        self, db: Relations, source: Records, key: Key, parts: RecordParts, columns: Sequence[str] | None = None
    ) -> None:
        """Rank the records.

        Args:
            db: Where the records lie, in relation ``hashed``.
            source: The records.
            key: The key that is bound to them.
            parts: The parts in which they are ranked.
            columns: The columns that are wanted of them, by default the quasi-identifiers; ``pos`` where there is one.

        Raises:
            GuaranteeError: They are not the records that were counted.
        """
        self._db, self._source = db, source
        wanted = [*(columns or source.roles.qi_keys), *(["pos"] if source.has_ids else [])]
        db.register_arrow("secret", key.word(PURPOSE))
        db.create_table("twice", fill("portable/twice", {"hashed": temp_table("hashed")}))
        order = [column("code", "r"), *source.roles.qi_columns("r")]
        holes: Holes = {"hashed": temp_table("hashed"), "twice": temp_table("twice"), "order": order}
        copies = fill("portable/copies", holes)
        bits = np.ceil(np.log2(np.maximum(1, parts.records // UNIT))).astype(np.int64)
        widths = np.left_shift(np.int64(1), BITS - bits)  # of a stretch of each part
        numbers = np.arange(len(widths))
        table = parts.of or pa.table({"part": numbers, parts.by: numbers})
        db.register_arrow("parts", table.append_column("width", pa.array(widths[table["part"].to_numpy()])))
        holes = {
            "copies": copies.subquery(),
            "parts": temp_table("parts"),
            "secret": temp_table("secret"),
            "columns": [column(name, "r") for name in wanted],
            "hash": self.make_hash("place"),
            "same_part": column(parts.by, "r").eq(column(parts.by, "s")),
        }
        db.create_table("drawn", fill("portable/drawn", holes), title="Ordering the records")
        db.drop("hashed", "twice", "parts")
        self._units = db.arrow(fill("portable/units", {"drawn": temp_table("drawn")}))
        counted = np.bincount(self._units["part"].to_numpy(), self._units["records"].to_numpy(), len(parts.records))
        if not np.array_equal(counted, parts.records):
            raise source_changed_error()

    def make_hash(self, tag: str) -> exp.Expr:
        """Return 60 bits of record r that are independent of those under other tags.

        First copies have a tag of their own.
        """
        first = exp.Case().when(column("copy", "r").eq(exp.Literal.number(0)), exp.Literal.string(tag))
        texts = [exp.cast(column(name, "r"), "VARCHAR") for name in ("h", "copy")]
        return self._db.hashed([column("word", "k"), first.else_(exp.Literal.string(f"{tag} of a copy")), *texts])

    def query_assigned(self, segments: Segments, columns: Sequence[exp.Expr]) -> exp.Query:
        """Return the query for the records whose rank is in a segment: ``columns`` and ``number``.

        The columns are those of r, or a ``make_hash``.
        """
        self._db.register_arrow("pieces", cut_segments(segments, self._units))
        rank, lo, hi = column("rank", "r"), column("lo", "p"), column("hi", "p")
        only_singles = (segments.hi - segments.lo == 1).all()
        holes: Holes = {
            "drawn": temp_table("drawn"),
            "pieces": temp_table("pieces"),
            "columns": columns,
            "meets": rank.eq(lo) if only_singles else exp.and_(exp.GTE(this=rank, expression=lo), rank.copy() < hi),
            "secret": temp_table("secret"),
        }
        return fill("portable/dealt", holes)

    def store_numbers(self, segments: Segments) -> None:
        """Keep the numbers of named records in canonical order (n,), for the ledger; -1 for those that are left out."""
        if self._source.has_ids:
            numbered = self._db.arrow(self.query_assigned(segments, [column("pos", "r")]))
            every = np.full(self._source.records, -1, dtype=np.int64)
            every[numbered["pos"].to_numpy()] = numbered["number"].to_numpy()
            self._source.history.groups = every

    def drop_relations(self) -> None:
        """Drop the relations."""
        self._db.drop("secret", "drawn", "pieces")


def cut_segments(segments: Segments, units: pa.Table) -> pa.Table:
    """Cut segments at the borders of units (part, bin, records).

    Returns:
        The table (part, bin, lo, hi, number, step). Its ranks count from the first of a unit; those of the segments
        count from the first of a part.
    """
    part, bin_, records = (units[name].to_numpy() for name in ("part", "bin", "records"))
    ends = np.cumsum(records)
    begins = ends - records
    of_parts = begins[np.searchsorted(part, segments.part)]  # a line of all records, part by part
    lo, hi = segments.lo + of_parts, segments.hi + of_parts
    borders = np.union1d(lo, begins)
    segment = np.searchsorted(lo, borders, side="right") - 1
    inside = (segment >= 0) & (borders < hi[segment])
    borders, segment = borders[inside], segment[inside]
    unit = np.searchsorted(begins, borders, side="right") - 1
    return pa.table(
        {
            "part": part[unit],
            "bin": bin_[unit],
            "lo": borders - begins[unit],
            "hi": np.minimum(hi[segment], ends[unit]) - begins[unit],
            "number": segments.number[segment] + segments.step * (borders - lo[segment]),
            "step": np.full(len(borders), segments.step),
        }
    )
