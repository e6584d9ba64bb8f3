"""Assign buckets, groups or sub-tables to the records of a source, by their sorted positions or by keyed hashes."""

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
    """Return the query that gives each of n records its bucket (or group or sub-table) and a sensitive value.

    It can be called once, because it may use up the temporary tables of the source.

    Args:
        db: Where the source lies.
        source: The records.
        numbers: The bucket (or group or sub-table) of every record in sorted order (n,); records with a negative number
            may be left out.
        codes: The code (number in the list of sensitive values) that every record gets, in sorted order (n,).
        values: The sensitive values (s0..) by code, if the result is to have them; None if it is to have codes.

    Returns:
        The query of the records, as (q0.., bid, code) or (q0.., s0.., bid), and whether its rows are sorted by all of
        their columns, bid first.
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
# Records get ranks by keyed hashes of their contents, on any engine, and however a table is split.
#
# Every record has h, 60 bits of SHA-256 of a subkey and a text of all its columns (``Records.bound``; different records
# have different texts). It also has a copy number: 0, 1, .. among the records with the same h. Its place on a line is
#
#     u = first 60 bits of SHA-256(subkey | tag | h | copy)
#
# Its rank is the number of records of its part (its value, or its group) with a smaller place. Ties, of which there are
# n^2/2^61 on average, are broken by h. The pairs (h, copy) are different. So for a pseudo-random function the u are
# independent and uniform, also those of equal records: every order of a part's records is equally likely. The random
# stream of the key has the same distribution (``Pieces.draw_places``). So an adversary who knows the algorithm has the
# same posterior, and the proof of the bound carries over. A release does not reveal which of equal records has which
# copy number.
#
# Everything depends on contents alone: whichever task reads a record, and however often, it gets the same rank. No
# window function goes over a whole part. The line is cut into units of about ``UNIT`` records, which are sorted one by
# one, and the ``Segments`` of a layout are cut at the same borders.

UNIT = 1000  # about so many records in a unit, so that few pieces meet in one and no task is long
PURPOSE = "places"


@dataclass(frozen=True)
class Segments:
    """Which number (such as a bucket id) the records get, given their ranks.

    The records of a source are divided into parts, such as one for each sensitive value, and have ranks 0, 1, .. within
    their part. A segment is a range of ranks in one part. Each array has one entry for each of p segments, which are
    sorted and do not overlap. Records whose rank is in no segment are left out.

    Attributes:
        part: The part of the records in which the segment lies.
        lo: The first rank of the segment.
        hi: The rank after its last one.
        number: The number that the segment's first record gets.
        step: How much higher the number of each next record is.
    """

    part: Ints
    lo: Ints
    hi: Ints
    number: Ints
    step: int


@dataclass(frozen=True)
class RecordParts:
    """The k parts within which records are ranked, such as one part for each sensitive value.

    Attributes:
        records: The number of records of every part (k,).
        by: The column of the records that determines their part.
        of: Which part each value of that column means, as rows (part, ``by``); None if the value itself is the number
            of the part.
    """

    records: Ints
    by: str = "code"
    of: pa.Table | None = None


class RankAssignment:
    """The records of a source in random order within parts, such as the records of equal value.

    A record's rank in this order determines its number, such as its bucket id. The order is computed by keyed hashes,
    so that it is the same on every engine.
    """

    def __init__(
        self, db: Relations, source: Records, key: Key, parts: RecordParts, columns: Sequence[str] | None = None
    ) -> None:
        """Put the records of each part in random order, by keyed hashes.

        A record's place 0, 1, .. in this order is its rank.

        Args:
            db: The session with temporary table ``hashed``, which holds the records with a hash of their contents.
            source: The records.
            key: The key that determines the order of records.
            parts: The parts within which records are ranked, such as one part for each sensitive value.
            columns: The columns of the records that later queries need; None for the quasi-identifiers. If records have
                identifiers, the records' positions ``pos`` in sorted order are kept as well.

        Raises:
            GuaranteeError: The records have changed since they were counted.
        """
        self._db, self._source = db, source
        wanted = [*(columns or source.roles.qi_keys), *(["pos"] if source.has_ids else [])]
        db.register_arrow("secret", key.word(PURPOSE))
        db.create_table("twice", fill("portable/twice", {"hashed": temp_table("hashed")}))
        order = [column("code", "r"), *source.roles.qi_columns("r")]
        holes: Holes = {"hashed": temp_table("hashed"), "twice": temp_table("twice"), "order": order}
        copies = fill("portable/copies", holes)
        bits = np.ceil(np.log2(np.maximum(1, parts.records // UNIT))).astype(np.int64)
        widths = np.left_shift(np.int64(1), BITS - bits)  # the width of a unit of each part
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
        """Return an SQL expression for 60 random bits of a record, which the key, the record and ``tag`` determine.

        The bits for different tags are independent.
        """
        first = exp.Case().when(column("copy", "r").eq(exp.Literal.number(0)), exp.Literal.string(tag))
        texts = [exp.cast(column(name, "r"), "VARCHAR") for name in ("h", "copy")]
        return self._db.hashed([column("word", "k"), first.else_(exp.Literal.string(f"{tag} of a copy")), *texts])

    def query_assigned(self, segments: Segments, columns: Sequence[exp.Expr]) -> exp.Query:
        """Return the query that gives each record its number, such as a bucket id.

        The number follows from the record's part (such as its sensitive value) and its rank (its place in the part's
        random order). Records whose rank is in no segment are not in the result.

        Args:
            segments: Ranges of ranks in a part, with the numbers that the records of the range get.
            columns: SQL expressions that the result has besides ``number``: columns of the record, whose alias is
                ``r``, or hashes by ``make_hash``.
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
        """Keep for the ledger which number (such as a bucket id) each record got; -1 for records that are left out.

        Nothing is kept if records have no identifiers.

        Args:
            segments: Which number each record gets. A record is given by its part (such as its sensitive value) and its
                rank (its place in the part's random order).
        """
        if self._source.has_ids:
            numbered = self._db.arrow(self.query_assigned(segments, [column("pos", "r")]))
            every = np.full(self._source.records, -1, dtype=np.int64)
            every[numbered["pos"].to_numpy()] = numbered["number"].to_numpy()
            self._source.history.groups = every

    def drop_relations(self) -> None:
        """Drop the temporary tables that were made to rank the records."""
        self._db.drop("secret", "drawn", "pieces")


def cut_segments(segments: Segments, units: pa.Table) -> pa.Table:
    """Cut segments, which give numbers to ranges of ranks, into pieces that lie within one unit of records each.

    A part, such as the records of one sensitive value, can be too large to be sorted at once. So it is divided into
    units of about ``UNIT`` records, and an engine sorts each unit by itself.

    Args:
        segments: Ranges of ranks; the rank of a record is its place 0, 1, .. in the random order of its part.
        units: The units in order, as rows (part, bin, records): the part, the unit's number in it, and its size.

    Returns:
        The pieces as rows (part, bin, lo, hi, number, step). A piece holds the places lo to hi - 1, counted from the
        first record of the unit. Its first record gets ``number``, and each next record gets ``step`` more.
    """
    part, bin_, records = (units[name].to_numpy() for name in ("part", "bin", "records"))
    ends = np.cumsum(records)
    begins = ends - records
    of_parts = begins[np.searchsorted(part, segments.part)]  # positions on one line of all records, part by part
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
