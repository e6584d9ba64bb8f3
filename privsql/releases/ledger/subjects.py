"""Find the releases that hold the same people, by ids, persons, or their published records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlglot import exp

from privsql.engine.files import fold
from privsql.engine.roles import comparable
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, temp
from privsql.releases.ledger.book import LEDGER, MARKS, SUBJECTS, among, marks_of, subjects_query
from privsql.releases.ledger.evidence import (
    Agreement,
    CommonNames,
    CommonRecords,
    Evidence,
    Met,
    Rows,
    judge,
    pair_columns,
    propose_columns,
    take_histograms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from privsql.engine.database import Relations, Workshop
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Entry
    from privsql.releases.ledger.evidence import Verdict
    from privsql.releases.ledger.publication import Wish

# Names ----------------------------------------------------------------------------------------------------------------
# Ids and persons that a release and a source have in common, and how values agree along them.
#
# Names that hold the same letters beside their digits could be mere numbering. Of such a source the ledger keeps marks:
# 16 bits of every value beside some of its names, those with the smallest digests, so that tables share their samples.

TRACES = temp("traces")
SAMPLE = 2**16  # names beside which values are marked
MARK = 2**16
DIGITS = "0123456789"
Kind = Literal["ids", "persons"]


class Compared(NamedTuple):
    """Columns that are compared: theirs of ``subjects``, ours of ``traces``; ``tells``: others are other people."""

    kind: Kind
    theirs: str
    ours: str
    tells: bool = True


def bring(
    db: Workshop, there: Relations, name: str, query: exp.Query, title: str = "Reading who the records are"
) -> None:
    """Make a relation beside the ledger, wherever the source lies."""
    if there is db:
        db.make(name, query, title=title)
        return
    db.put("brought", there.arrow(query))
    db.make(name, all_rows(temp("brought")), title=title)
    db.drop("brought")


def is_numbering(least: str, greatest: str) -> bool:
    """Whether names between two of them could be mere numbering, if all hold the letters that these do.

    >>> is_numbering("p-0001", "p-0999"), is_numbering("1f3a", "9be0"), is_numbering("1f3a", "1f3a")
    (True, False, False)
    """
    letters, digits = without_digits(least), sum(one in DIGITS for one in least)
    return letters == without_digits(greatest) and digits > 0 and (least != greatest or not letters)


def without_digits(name: str) -> str:
    """The letters of a name.

    >>> without_digits("p-0001")
    'p-'
    """
    return name.translate(str.maketrans("", "", DIGITS))


class Names:
    """The names of a source, in relation ``traces``, beside those of the attached ledger."""

    def __init__(self, db: Workshop, source: Records, wish: Wish) -> None:
        self._db, self._source, self._wish = db, source, wish
        self._samples: dict[str, pa.Table] = {}
        kinds: dict[str, Kind] = {"id": "ids", "person": "persons"}
        self._kinds = {key: kinds[key] for key in source.known_by}
        self.numbering = tuple(kind for key, kind in self._kinds.items() if self._could_number(key))

    def _could_number(self, key: str) -> bool:
        name = column(key, "t")
        least, greatest = self._db.rows(fill("ledger/ends", {"traces": TRACES, "name": name}))[0]
        if least is None or not is_numbering(least, greatest):
            return False
        letters = without_digits(least)
        self._samples[key] = self._sample(key)
        return all(without_digits(one) == letters for one in self._samples[key]["name"].to_pylist())

    def _sample(self, key: str) -> pa.Table:
        holes: Holes = {
            "traces": TRACES,
            "name": column(key, "t"),
            "digest": self._db.digest([column("name")]),
            "most": exp.Literal.number(SAMPLE),
        }
        return self._db.arrow(fill("ledger/sample", holes))

    def compared(self, entry: Entry) -> list[Compared]:
        """Which names of a release are compared with which of the source."""
        named, person = fold(self._wish.spec.source.id or ""), fold(self._wish.spec.source.person or "")
        found = []
        if entry.subject and "id" in self._kinds:
            found.append(Compared("ids", "id", "id", self._wish.person is None and entry.person is None))
        if entry.persons and "person" in self._kinds:
            found.append(Compared("persons", "person", "person"))
        elif entry.persons and named == entry.persons:
            found.append(Compared("persons", "person", "id"))
        elif person and "person" in self._kinds and entry.subject == person:
            found.append(Compared("persons", "id", "person"))
        return found

    def compare(self, entries: Sequence[Entry], source: Sequence[str]) -> dict[int, tuple[CommonNames, ...]]:
        """By the number of each release what names it and the source have in common; of ``source`` names suffice."""
        found: dict[int, list[CommonNames]] = {entry.number: [] for entry in entries}
        ways: dict[Compared, list[Entry]] = {}
        for entry in entries:
            for way in self.compared(entry):
                ways.setdefault(way, []).append(entry)
        for way, alike in ways.items():
            common = self._count_common(way, alike)
            for entry in alike:
                found[entry.number].append(self._common(entry, way, common.get(entry.number, 0), source))
        return {number: tuple(names) for number, names in found.items()}

    def _count_common(self, way: Compared, entries: Sequence[Entry]) -> dict[int, int]:
        holes: Holes = {
            "subjects": SUBJECTS,
            "traces": TRACES,
            "among": among(entries),
            "theirs": column(way.theirs, "s"),
            "ours": column(way.ours, "t"),
        }
        return {int(number): int(known) for number, known in self._db.rows(fill("ledger/known", holes))}

    def _common(self, entry: Entry, way: Compared, common: int, source: Sequence[str]) -> CommonNames:
        names = CommonNames(
            way.kind,
            common,
            way.tells,
            self._kinds[way.ours] in self.numbering and _kind(way.theirs) in entry.numbering,
            (self._space(way.ours), entry.id_space if way.theirs == "id" or not entry.subject else None),
        )
        if not common or not names.numbering or names.are_apart or names.share_space or entry.is_of(source):
            return names
        return replace(names, columns=self._agreement(entry, way))

    def _space(self, key: str) -> str | None:
        """What the names are stated to belong to: those of records, or of persons where records have none."""
        return self._wish.spec.source.id_space if key == "id" or "id" not in self._kinds else None

    # How values agree ---

    def _agreement(self, entry: Entry, way: Compared) -> tuple[Agreement, ...]:
        """The columns of a release along common names: by their names, or if none is here by their places."""
        theirs = marks_of(entry, _kind(way.theirs))
        names = self._db.arrow(exp.select(column("name")).distinct().from_(theirs.subquery("m")))
        here = self._source.values_of(entry.bare)
        columns = {i: here[name] for i, name in enumerate(entry.bare) if name in here}
        if not columns and len(self._wish.bare) == len(entry.bare):
            columns = dict(enumerate(self._source.values_of(self._wish.bare).values()))
        if not columns:
            return ()
        self._mark("our_marks", way.ours, names, columns)
        ours: exp.Query = all_rows(temp("our_marks"))
        if way[1:3] == ("id", "id") and entry.columns == self._wish.columns:
            ours = exp.union(ours, fill("ledger/recorded", {"traces": TRACES}), distinct=False)
            whole = fill("ledger/recorded", {"traces": subjects_query(entry).subquery()})
            theirs = exp.union(theirs, whole, distinct=False)
        holes: Holes = {"theirs": theirs.subquery(), "ours": ours.subquery()}
        rows = self._db.rows(fill("ledger/agreement", holes))
        self._db.drop("our_marks")
        called = {-1: "the whole record", **dict(enumerate(entry.bare))}
        return tuple(
            Agreement(called[field], int(count), int(equal), float(products) / count)
            for field, count, equal, products in rows
        )

    def _mark(self, relation: str, key: str, names: pa.Table, columns: dict[int, tuple[exp.Expr, str]]) -> None:
        """Make a relation of the marks of columns beside some names."""
        there = self._source.db
        there.put("sample", names)
        holes: Holes = {
            "source": temp("source"),
            "sample": temp("sample"),
            "name": self._source.known_by[key],
            "values": [named(value, f"v{field}") for field, (value, _) in columns.items()],
            "columns": [column(f"v{field}") for field in columns],
            "keep": self._source.keep,
        }
        bring(self._db, there, "sampled", fill("ledger/sampled", holes))
        there.drop("sample")
        parts = [self._marks(field, kind) for field, (_, kind) in columns.items()]
        whole = parts[0]
        for part in parts[1:]:
            whole = exp.union(whole, part, distinct=False, copy=False)
        self._db.make(relation, whole)
        self._db.drop("sampled")

    def _marks(self, field: int, kind: str) -> exp.Query:
        digest = self._db.digest([comparable(column(f"v{field}"), kind)])
        mark = exp.cast(exp.Mod(this=digest, expression=exp.Literal.number(MARK)), "INTEGER")
        return fill("ledger/marks", {"sampled": temp("sampled"), "field": exp.Literal.number(field), "mark": mark})

    # Writing ---

    def prepare_marks(self) -> None:
        """Make relations ``marks_of_ids`` and ``marks_of_persons`` of names that could be mere numbering."""
        columns = dict(enumerate(self._source.values_of(self._wish.bare).values()))
        for key, kind in self._kinds.items():
            if kind in self.numbering and columns:
                self._mark(f"marks_of_{kind}", key, self._samples[key], columns)

    def write_marks(self, number: int) -> None:
        """Add these marks to the attached ledger."""
        for kind in self.numbering:
            if self._source.values_of(self._wish.bare):
                what = (exp.Literal.number(number), exp.Literal.string(kind), *map(column, ("name", "field", "mark")))
                self._db.append(MARKS.name, exp.select(*what).from_(temp(f"marks_of_{kind}")), into=LEDGER)
                self._db.drop(f"marks_of_{kind}")


def _kind(key: str) -> Kind:
    return "ids" if key == "id" else "persons"


# Subjects -------------------------------------------------------------------------------------------------------------
# Evidence on whose records these are: what releases and a source have in common, by names, records and columns.
#
# Each kind of evidence is taken only where those before it did not decide (``privsql.releases.ledger.evidence``).

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
        holes: Holes = {"traces": TRACES, "known": subjects_query(entry).subquery()}
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
