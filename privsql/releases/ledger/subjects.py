"""Whose records these are: which releases hold the same people, by their ids or by what is published of them.

Ids are compared as text. Under another name a source is known again by its records: by ids that stand beside the same
values, or by more equal records than two samples of one population would have.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.engine.names import fold
from privsql.engine.sqlfiles import Holes, all_rows, fill, temp
from privsql.releases.ledger.book import Rows
from privsql.releases.ledger.storage import SUBJECTS, among, subjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from privsql.engine.database import Workshop
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Entry

DEVIATIONS = 5  # more than by chance: beyond so many standard deviations, one in three million
TRACES, OTHERS = temp("traces"), temp("other_traces")


@dataclass(frozen=True)
class Met:
    """What a release and a source have in common, as ``sql/ledger/met.sql`` counts it."""

    theirs: int
    ours: int
    common: int


@dataclass(frozen=True)
class Known:
    """How many ids of a release are here, and how many of these beside the same values."""

    known: int = 0
    same: int = 0


class Subjects:
    """The records of a source, in relation ``traces``, beside those of the attached ledger."""

    def __init__(self, db: Workshop, source: Records, columns: Sequence[str], *, values: bool) -> None:
        """``columns`` are those that are published; ``values``: the sensitive one is kept as well."""
        self._db, self._source, self._columns = db, source, [fold(name) for name in columns]
        self.named = source.names is not None
        self._read("traces", source.traces(values=values))
        self.rows = Rows.of(db.rows(summary(TRACES, once=not self.named))[0])

    def _read(self, name: str, traces: exp.Query) -> None:
        """Make a relation beside the ledger, wherever the source lies."""
        there = self._source.db
        if there is self._db:
            self._db.make(name, traces, title="Reading who the records are")
            return
        self._db.put("brought", there.arrow(traces))
        self._db.make(name, all_rows(temp("brought")), title="Reading who the records are")
        self._db.drop("brought")

    def ids(self, entries: Sequence[Entry]) -> dict[int, Known]:
        """By the number of each release with ids how many of them are here."""
        if not entries or not self.named:
            return {}
        holes: Holes = {"subjects": SUBJECTS, "traces": TRACES, "among": among(entries)}
        return {
            number: Known(int(known), int(same)) for number, known, same in self._db.rows(fill("ledger/known", holes))
        }

    def fresh(self, entries: Sequence[Entry]) -> int:
        """How many of the records are in none of the releases."""
        if not entries or not self.named:
            return self.rows.records
        known = fill("ledger/ids", {"subjects": SUBJECTS, "among": among(entries)}).subquery()
        return self.rows.records - int(self._db.rows(fill("ledger/overlap", {"ids": TRACES, "known": known}))[0][0])

    def changed(self, entry: Entry) -> list[tuple[str, str]]:
        """Records of a release of the same columns that are not what they were: (id, fate)."""
        holes: Holes = {"traces": TRACES, "known": subjects(entry).subquery()}
        return [(str(name), str(fate)) for name, fate in self._db.rows(fill("ledger/changed", holes))]

    def noticed(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of the releases that hold records of this source, whatever it was called there."""
        found = {number for number, known in self.ids(entries).items() if self._by_id(entries, number, known)}
        for columns, alike in _by_columns(entries).items():
            found |= self._alike(columns, alike)
        return [entry for entry in entries if entry.number in found]

    def _by_id(self, entries: Sequence[Entry], number: int, known: Known) -> bool:
        """Whether more than half of the smaller of both have their id beside the same values."""
        rows = next(entry.rows for entry in entries if entry.number == number)
        return rows is not None and 2 * known.same > min(rows.records, self.rows.records)

    def _alike(self, columns: tuple[str, ...], entries: Sequence[Entry]) -> set[int]:
        """The numbers of releases of some columns that hold records as they are here."""
        own = [fold(name) for name in columns]
        seen = None if own == self._columns else self._source.seen_as(columns) if columns else None
        if seen is None and len(own) != len(self._columns):
            return set()
        if seen is None:  # the same columns, or as many under other names
            return self._coinciding(entries, TRACES, self.rows)
        self._read("other_traces", seen)
        try:
            return self._coinciding(entries, OTHERS, Rows.of(self._db.rows(summary(OTHERS, once=True))[0]))
        finally:
            self._db.drop("other_traces")

    def _coinciding(self, entries: Sequence[Entry], traces: exp.Table, rows: Rows) -> set[int]:
        holes: Holes = {"subjects": SUBJECTS, "traces": traces, "among": among(entries)}
        met = {number: Met(*map(int, counts)) for number, *counts in self._db.rows(fill("ledger/met", holes))}
        theirs = {entry.number: entry.rows for entry in entries}
        return {number for number, one in met.items() if (known := theirs[number]) and coincide(rows, known, one)}


def coincide(ours: Rows, theirs: Rows, met: Met) -> bool:
    """Whether two tables have more equal records than two samples of one population would have.

    By Good and Turing a further record of the population of the larger table, n records, is unlike all of them with
    probability N1 / n, where N1 of them are unlike all others; N2 pairs are alike. So of the m records of the smaller
    one about m (1 - N1 / n) have an equal one by chance, with variance m p (1 - p) + (m / n)^2 (N1 + 2 N2). All of them
    are a copy at once where chance would not do that: if most records of the larger table are unlike all others.
    """
    if (ours.records, ours.fingerprint) == (theirs.records, theirs.fingerprint):
        return True
    small, large, equal = (ours, theirs, met.ours) if ours.records <= theirs.records else (theirs, ours, met.theirs)
    if met.common == small.records and 2 * large.once >= large.records:
        return True
    chance, share = 1 - Fraction(large.once, large.records), Fraction(small.records, large.records)
    beyond = equal - small.records * chance
    variance = small.records * chance * (1 - chance) + share**2 * (large.once + 2 * large.twice)
    return beyond > 0 and beyond**2 > DEVIATIONS**2 * variance


def summary(traces: exp.Table | exp.Subquery, *, once: bool = False) -> exp.Query:
    """``Rows`` of a relation of traces; ``once``: each of them is there once only."""
    counted = traces if once else fill("ledger/counted", {"traces": traces}).subquery("counted")
    return fill("ledger/summary", {"counted": counted})


def _by_columns(entries: Sequence[Entry]) -> dict[tuple[str, ...], list[Entry]]:
    found: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.columns, []).append(entry)
    return found
