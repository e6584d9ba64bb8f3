"""Evidence on whose records these are: what releases and a source have in common, by names, records and columns.

Each kind of evidence is taken only where those before it did not decide (``privsql.releases.ledger.evidence``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from privsql.engine.names import fold
from privsql.engine.sqlfiles import Holes, fill, temp
from privsql.releases.ledger.evidence import CommonRecords, Evidence, Met, Rows, judge
from privsql.releases.ledger.histograms import pair_columns, propose_columns, take_histograms
from privsql.releases.ledger.names import TRACES, Names, bring
from privsql.releases.ledger.storage import SUBJECTS, among, subjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from privsql.engine.database import Workshop
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Entry
    from privsql.releases.ledger.evidence import Verdict
    from privsql.releases.ledger.wish import Wish

OTHERS = temp("other_traces")


class Subjects:
    """The records of a source, in relation ``traces``, beside those of the attached ledger."""

    def __init__(self, db: Workshop, source: Records, wish: Wish, *, values: bool) -> None:
        """``values``: the sensitive one is kept as well."""
        self._db, self._source, self._wish = db, source, wish
        self._columns = [fold(name) for name in wish.columns]
        self.named = source.has_ids
        bring(db, source.db, "traces", source.traces(values=values), "Reading who the records are")
        self.rows = Rows.of(db.rows(summary(TRACES, once=self.named is False and not source.known_by))[0])
        self.names = Names(db, source, wish)
        self.histograms = take_histograms(source, wish.bare)

    @property
    def summed(self) -> dict[str, Any]:
        """The entries of a release in the ledger that sum up its records."""
        return {"rows": self.rows, "numbering": self.names.numbering, "histograms": self.histograms}

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

    def judged(self, entries: Sequence[Entry]) -> dict[int, Verdict]:
        """By the number of each release whether it holds people of this source, whatever it was called there."""
        names = self.names.compare(entries, self._wish.source)
        found = {
            entry.number: Evidence(
                entry.is_of(self._wish.source),
                named=bool(self._source.known_by) and bool(entry.subject or entry.persons),
                names=names[entry.number],
            )
            for entry in entries
        }
        for columns, alike in _by_columns(self._undecided(entries, found)).items():
            self._compare_records(columns, alike, found)
        for entry in self._undecided(entries, found):
            found[entry.number] = self._by_values(entry, found[entry.number])
        return {number: judge(one) for number, one in found.items()}

    def _undecided(self, entries: Sequence[Entry], found: dict[int, Evidence]) -> list[Entry]:
        return [entry for entry in entries if not judge(found[entry.number]).same]

    def _compare_records(self, columns: tuple[str, ...], entries: Sequence[Entry], found: dict[int, Evidence]) -> None:
        """Add to the evidence the records in common with releases of some columns."""
        own = [fold(name) for name in columns]
        seen = None if own == self._columns else self._source.seen_as(columns) if columns else None
        missing = seen is None and own != self._columns
        records: dict[int, CommonRecords] = {}
        if seen is not None:
            records = self._seen(seen, entries)
        elif len(own) == len(self._columns):  # the same columns, or as many under other names
            records = self._meet(entries, TRACES, self.rows)
        for entry in entries:
            common = (records[entry.number],) if entry.number in records else ()
            found[entry.number] = replace(found[entry.number], records=common, missing=missing)

    def _by_values(self, entry: Entry, evidence: Evidence) -> Evidence:
        """The evidence with columns that hold the same values, and records compared by these."""
        ours, theirs = self.histograms, entry.histograms
        if self.rows.records != entry.rows.records or not ours or not theirs:
            return evidence
        records = list(evidence.records)
        for columns in propose_columns(ours, theirs):
            seen = self._source.seen_as(columns)
            if seen is not None and columns != list(entry.bare):
                records += self._seen(seen, [entry]).values()
        return replace(
            evidence,
            records=tuple(records),
            columns=pair_columns(ours, theirs),
            compared=len(ours) * len(theirs),
        )

    def _seen(self, traces: exp.Query, entries: Sequence[Entry]) -> dict[int, CommonRecords]:
        """Records in common by other columns of the source."""
        bring(self._db, self._source.db, "other_traces", traces)
        try:
            rows = Rows.of(self._db.rows(summary(OTHERS, once=True))[0])
            return self._meet(entries, OTHERS, rows)
        finally:
            self._db.drop("other_traces")

    def _meet(self, entries: Sequence[Entry], traces: exp.Table, rows: Rows) -> dict[int, CommonRecords]:
        holes: Holes = {"subjects": SUBJECTS, "traces": traces, "among": among(entries)}
        met = {number: Met(*map(int, counts)) for number, *counts in self._db.rows(fill("ledger/met", holes))}
        return {entry.number: CommonRecords(rows, entry.rows, met.get(entry.number, Met(0, 0, 0))) for entry in entries}


def summary(traces: exp.Table | exp.Subquery, *, once: bool = False) -> exp.Query:
    """``Rows`` of a relation of traces; ``once``: each of them is there once only."""
    counted = traces if once else fill("ledger/counted", {"traces": traces}).subquery("counted")
    return fill("ledger/summary", {"counted": counted})


def _by_columns(entries: Sequence[Entry]) -> dict[tuple[str, ...], list[Entry]]:
    found: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.columns, []).append(entry)
    return found
