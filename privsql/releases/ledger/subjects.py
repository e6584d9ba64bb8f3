"""Find the releases that hold the same people, by ids, persons, or their published records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.roles import comparable_text, normal_name
from privsql.engine.sqlfiles import Holes, alias_as, all_rows, column, fill, temp_table
from privsql.releases.ledger.book import LEDGER, MARKS, SUBJECTS, marks_of, select_releases, subjects_query
from privsql.releases.ledger.evidence import (
    Agreement,
    CommonNames,
    CommonRecords,
    EqualCounts,
    Evidence,
    RecordSummary,
    judge_evidence,
    pair_columns,
    propose_columns,
    take_histograms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from privsql.engine.database import EngineSession, Relations
    from privsql.model.records import Records
    from privsql.releases.ledger.book import LedgerEntry
    from privsql.releases.ledger.evidence import Verdict
    from privsql.releases.ledger.publication import PublicationRequest

# Names ----------------------------------------------------------------------------------------------------------------
# Ids and persons that a release and a source have in common, and how values agree along them.
#
# They are compared as ``normal_name`` spells them. Records that are followed from release to release have names as the
# publisher spells them.
#
# Names with equal letters besides their digits could be mere numbering. For such a source the ledger stores marks: 16
# bits of every value beside the names with the smallest digests, so that tables share their samples.

TRACES = temp_table("traces")
SAMPLE = 2**16  # names beside which values are marked
MARK = 2**16
DIGITS = "0123456789"
Kind = Literal["ids", "persons"]


class ComparedColumns(NamedTuple):
    """Columns that are compared: theirs of ``subjects``, ours of ``traces``; ``tells``: others are other people."""

    kind: Kind
    theirs: str
    ours: str
    tells: bool = True


def bring_relation(
    db: EngineSession, there: Relations, name: str, query: exp.Query, title: str = "Reading who the records are"
) -> None:
    """Make a relation beside the ledger, wherever the source lies."""
    if there is db:
        db.create_table(name, query, title=title)
        return
    db.register_arrow("brought", there.arrow(query))
    db.create_table(name, all_rows(temp_table("brought")), title=title)
    db.drop("brought")


def is_numbering(least: str, greatest: str) -> bool:
    """Return whether names between two of them could be mere numbering, if all hold the letters that these do.

    >>> is_numbering("p-0001", "p-0999"), is_numbering("1f3a", "9be0"), is_numbering("1f3a", "1f3a")
    (True, False, False)
    """
    letters, digits = without_digits(least), sum(one in DIGITS for one in least)
    return letters == without_digits(greatest) and digits > 0 and (least != greatest or not letters)


def without_digits(name: str) -> str:
    """Return the letters of a name.

    >>> without_digits("p-0001")
    'p-'
    """
    return name.translate(str.maketrans("", "", DIGITS))


class SubjectNames:
    """The names of a source, in relation ``traces``, beside those of the attached ledger."""

    def __init__(self, db: EngineSession, source: Records, request: PublicationRequest) -> None:
        self._db, self._source, self._request = db, source, request
        self._samples: dict[str, pa.Table] = {}
        kinds: dict[str, Kind] = {"id": "ids", "person": "persons"}
        self._kinds = {key: kinds[key] for key in source.known_by}
        self.numbering = tuple(kind for key, kind in self._kinds.items() if self._is_numbering_of(key))

    def _is_numbering_of(self, key: str) -> bool:
        name = normal_name(column(key, "t"))
        least, greatest = self._db.rows(fill("ledger/ends", {"traces": TRACES, "name": name}))[0]
        if least is None or not is_numbering(least, greatest):
            return False
        letters = without_digits(least)
        self._samples[key] = self._sample_names(key)
        return all(without_digits(one) == letters for one in self._samples[key]["name"].to_pylist())

    def _sample_names(self, key: str) -> pa.Table:
        holes: Holes = {
            "traces": TRACES,
            "name": normal_name(column(key, "t")),
            "digest": self._db.digest([column("name")]),
            "most": exp.Literal.number(SAMPLE),
        }
        return self._db.arrow(fill("ledger/sample", holes))

    def pair_columns_of(self, entry: LedgerEntry) -> list[ComparedColumns]:
        """Return which names of a release are compared with which of the source."""
        named, person = fold_name(self._request.spec.source.id or ""), fold_name(self._request.spec.source.person or "")
        pairs = []
        if entry.subject and "id" in self._kinds:
            tells = self._request.promised_person is None and entry.promised_person is None
            pairs.append(ComparedColumns("ids", "id", "id", tells))
        if entry.person_column and "person" in self._kinds:
            pairs.append(ComparedColumns("persons", "person", "person"))
        elif entry.person_column and named == entry.person_column:
            pairs.append(ComparedColumns("persons", "person", "id"))
        elif person and "person" in self._kinds and entry.subject == person:
            pairs.append(ComparedColumns("persons", "id", "person"))
        return pairs

    def compare_entries(
        self, entries: Sequence[LedgerEntry], source: Sequence[str]
    ) -> dict[int, tuple[CommonNames, ...]]:
        """Return by release the names in common with the source; for releases of ``source`` names suffice."""
        common_names: dict[int, list[CommonNames]] = {entry.number: [] for entry in entries}
        ways: dict[ComparedColumns, list[LedgerEntry]] = {}
        for entry in entries:
            for way in self.pair_columns_of(entry):
                ways.setdefault(way, []).append(entry)
        for way, alike in ways.items():
            common = self._count_common(way, alike)
            for entry in alike:
                names = self._describe_common(entry, way, common.get(entry.number, 0), source)
                common_names[entry.number].append(names)
        return {number: tuple(listed) for number, listed in common_names.items()}

    def _count_common(self, way: ComparedColumns, entries: Sequence[LedgerEntry]) -> dict[int, int]:
        holes: Holes = {
            "subjects": SUBJECTS,
            "traces": TRACES,
            "among": select_releases(entries),
            "theirs": normal_name(column(way.theirs, "s")),
            "ours": normal_name(column(way.ours, "t")),
        }
        return {int(number): int(known) for number, known in self._db.rows(fill("ledger/known", holes))}

    def _describe_common(
        self, entry: LedgerEntry, way: ComparedColumns, common: int, source: Sequence[str]
    ) -> CommonNames:
        names = CommonNames(
            way.kind,
            common,
            way.tells,
            self._kinds[way.ours] in self.numbering and _kind_of_names(way.theirs) in entry.numbering,
            (self._stated_space(way.ours), entry.id_space if way.theirs == "id" or not entry.subject else None),
        )
        if not common or not names.numbering or names.differ_in_space or names.share_space or entry.is_of(source):
            return names
        return replace(names, columns=self._measure_agreement(entry, way))

    def _stated_space(self, key: str) -> str | None:
        """Return what the names are stated to belong to: those of records, or of persons where records have none."""
        return self._request.spec.source.id_space if key == "id" or "id" not in self._kinds else None

    # How values agree ---

    def _measure_agreement(self, entry: LedgerEntry, way: ComparedColumns) -> tuple[Agreement, ...]:
        """Return the columns of a release along common names: by their names, or if none is here by their places."""
        theirs = marks_of(entry, _kind_of_names(way.theirs))
        names = self._db.arrow(exp.select(column("name")).distinct().from_(theirs.subquery("m")))
        here = self._source.values_of(entry.column_names)
        columns = {i: here[name] for i, name in enumerate(entry.column_names) if name in here}
        if not columns and len(self._request.column_names) == len(entry.column_names):
            columns = dict(enumerate(self._source.values_of(self._request.column_names).values()))
        if not columns:
            return ()
        self._make_marks("our_marks", way.ours, names, columns)
        ours: exp.Query = all_rows(temp_table("our_marks"))
        if way[1:3] == ("id", "id") and entry.columns == self._request.columns:
            name = normal_name(column("id", "t"))
            ours = exp.union(ours, fill("ledger/recorded", {"traces": TRACES, "name": name}), distinct=False)
            whole = fill("ledger/recorded", {"traces": subjects_query(entry).subquery(), "name": name})
            theirs = exp.union(theirs, whole, distinct=False)
        holes: Holes = {"theirs": theirs.subquery(), "ours": ours.subquery()}
        rows = self._db.rows(fill("ledger/agreement", holes))
        self._db.drop("our_marks")
        called = {-1: "the whole record", **dict(enumerate(entry.column_names))}
        return tuple(
            Agreement(called[field], int(count), int(equal), float(products) / count)
            for field, count, equal, products in rows
        )

    def _make_marks(self, relation: str, key: str, names: pa.Table, columns: dict[int, tuple[exp.Expr, str]]) -> None:
        """Make a relation of the marks of columns beside some names."""
        there = self._source.db
        there.register_arrow("sample", names)
        holes: Holes = {
            "source": temp_table("source"),
            "sample": temp_table("sample"),
            "name": normal_name(self._source.known_by[key]),
            "values": [alias_as(value, f"v{field}") for field, (value, _) in columns.items()],
            "columns": [column(f"v{field}") for field in columns],
            "keep": self._source.keep_predicate,
        }
        bring_relation(self._db, there, "sampled", fill("ledger/sampled", holes))
        there.drop("sample")
        parts = [self._marks_query(field, kind) for field, (_, kind) in columns.items()]
        whole = parts[0]
        for part in parts[1:]:
            whole = exp.union(whole, part, distinct=False, copy=False)
        self._db.create_table(relation, whole)
        self._db.drop("sampled")

    def _marks_query(self, field: int, kind: str) -> exp.Query:
        digest = self._db.digest([comparable_text(column(f"v{field}"), kind)])
        mark = exp.cast(exp.Mod(this=digest, expression=exp.Literal.number(MARK)), "INTEGER")
        number = exp.Literal.number(field)
        return fill("ledger/marks", {"sampled": temp_table("sampled"), "field": number, "mark": mark})

    # Writing ---

    def prepare_marks(self) -> None:
        """Make relations ``marks_of_ids`` and ``marks_of_persons`` of names that could be mere numbering."""
        columns = dict(enumerate(self._source.values_of(self._request.column_names).values()))
        for key, kind in self._kinds.items():
            if kind in self.numbering and columns:
                self._make_marks(f"marks_of_{kind}", key, self._samples[key], columns)

    def write_marks(self, number: int) -> None:
        """Add these marks to the attached ledger."""
        for kind in self.numbering:
            if self._source.values_of(self._request.column_names):
                what = (exp.Literal.number(number), exp.Literal.string(kind), *map(column, ("name", "field", "mark")))
                self._db.append_rows(MARKS.name, exp.select(*what).from_(temp_table(f"marks_of_{kind}")), into=LEDGER)
                self._db.drop(f"marks_of_{kind}")


def _kind_of_names(key: str) -> Kind:
    return "ids" if key == "id" else "persons"


# Subjects -------------------------------------------------------------------------------------------------------------
# Collect evidence whether releases hold the people of a source: by names, then records, then columns.
#
# Each kind of evidence is collected only if those before it did not decide (``privsql.releases.ledger.evidence``).

OTHERS = temp_table("other_traces")


class Subjects:
    """The records of a source, in relation ``traces``, beside those of the attached ledger."""

    def __init__(self, db: EngineSession, source: Records, request: PublicationRequest, *, values: bool) -> None:
        """Read who the records are; ``values``: with the sensitive value."""
        self._db, self._source, self._request = db, source, request
        self._columns = [fold_name(name) for name in request.columns]
        self.named = source.has_ids
        bring_relation(db, source.db, "traces", source.subject_traces(values=values), "Reading who the records are")
        summary = summary_query(TRACES, once=not self.named and not source.known_by)
        self.rows = RecordSummary.from_row(db.rows(summary)[0])
        self.names = SubjectNames(db, source, request)
        self.histograms = take_histograms(source, request.column_names)

    @property
    def summary_fields(self) -> dict[str, Any]:
        """Return the entries of a release in the ledger that sum up its records."""
        return {"rows": self.rows, "numbering": self.names.numbering, "histograms": self.histograms}

    def count_fresh(self, entries: Sequence[LedgerEntry]) -> int:
        """Return how many of the records are in none of the releases."""
        if not entries or not self.named:
            return self.rows.records
        known = fill("ledger/ids", {"subjects": SUBJECTS, "among": select_releases(entries)}).subquery()
        return self.rows.records - int(self._db.rows(fill("ledger/overlap", {"ids": TRACES, "known": known}))[0][0])

    def list_changed(self, entry: LedgerEntry) -> list[tuple[str, str]]:
        """Return the records of a release of the same columns that have changed: (id, fate)."""
        holes: Holes = {"traces": TRACES, "known": subjects_query(entry).subquery()}
        return [(str(name), str(fate)) for name, fate in self._db.rows(fill("ledger/changed", holes))]

    def judge_entries(self, entries: Sequence[LedgerEntry]) -> dict[int, Verdict]:
        """Return by release whether it holds people of this source, under whatever name."""
        names = self.names.compare_entries(entries, self._request.source_names)
        evidence = {
            entry.number: Evidence(
                entry.is_of(self._request.source_names),
                named=bool(self._source.known_by) and bool(entry.subject or entry.person_column),
                names=names[entry.number],
            )
            for entry in entries
        }
        for columns, alike in _group_by_columns(self._list_undecided(entries, evidence)).items():
            self._compare_records(columns, alike, evidence)
        for entry in self._list_undecided(entries, evidence):
            evidence[entry.number] = self._add_value_evidence(entry, evidence[entry.number])
        return {number: judge_evidence(one) for number, one in evidence.items()}

    def _list_undecided(self, entries: Sequence[LedgerEntry], evidence: dict[int, Evidence]) -> list[LedgerEntry]:
        return [entry for entry in entries if not judge_evidence(evidence[entry.number]).is_same]

    def _compare_records(
        self, columns: tuple[str, ...], entries: Sequence[LedgerEntry], evidence: dict[int, Evidence]
    ) -> None:
        """Add to the evidence the records in common with releases of some columns."""
        folded = [fold_name(name) for name in columns]
        traces = None if folded == self._columns else self._source.traces_by(columns) if columns else None
        missing = traces is None and folded != self._columns
        records: dict[int, CommonRecords] = {}
        if traces is not None:
            records = self._compare_traces(traces, entries)
        elif len(folded) == len(self._columns):  # the same columns, or as many under other names
            records = self._count_equal_records(entries, TRACES, self.rows)
        for entry in entries:
            common = (records[entry.number],) if entry.number in records else ()
            evidence[entry.number] = replace(evidence[entry.number], records=common, missing=missing)

    def _add_value_evidence(self, entry: LedgerEntry, evidence: Evidence) -> Evidence:
        """Return the evidence with columns that hold the same values, and records compared by these."""
        ours, theirs = self.histograms, entry.histograms
        if self.rows.records != entry.rows.records or not ours or not theirs:
            return evidence
        records = list(evidence.records)
        for columns in propose_columns(ours, theirs):
            traces = self._source.traces_by(columns)
            if traces is not None and columns != list(entry.column_names):
                records += self._compare_traces(traces, [entry]).values()
        return replace(
            evidence,
            records=tuple(records),
            columns=pair_columns(ours, theirs),
            compared=len(ours) * len(theirs),
        )

    def _compare_traces(self, traces: exp.Query, entries: Sequence[LedgerEntry]) -> dict[int, CommonRecords]:
        """Return the records in common by other columns of the source."""
        bring_relation(self._db, self._source.db, "other_traces", traces)
        try:
            rows = RecordSummary.from_row(self._db.rows(summary_query(OTHERS, once=True))[0])
            return self._count_equal_records(entries, OTHERS, rows)
        finally:
            self._db.drop("other_traces")

    def _count_equal_records(
        self, entries: Sequence[LedgerEntry], traces: exp.Table, rows: RecordSummary
    ) -> dict[int, CommonRecords]:
        holes: Holes = {"subjects": SUBJECTS, "traces": traces, "among": select_releases(entries)}
        met = {number: EqualCounts(*map(int, counts)) for number, *counts in self._db.rows(fill("ledger/met", holes))}
        return {
            entry.number: CommonRecords(rows, entry.rows, met.get(entry.number, EqualCounts(0, 0, 0)))
            for entry in entries
        }


def summary_query(traces: exp.Table | exp.Subquery, *, once: bool = False) -> exp.Query:
    """Return the query of ``RecordSummary`` over a relation of traces; ``once``: no trace stands twice."""
    counted = traces if once else fill("ledger/counted", {"traces": traces}).subquery("counted")
    return fill("ledger/summary", {"counted": counted})


def _group_by_columns(entries: Sequence[LedgerEntry]) -> dict[tuple[str, ...], list[LedgerEntry]]:
    grouped: dict[tuple[str, ...], list[LedgerEntry]] = {}
    for entry in entries:
        grouped.setdefault(entry.columns, []).append(entry)
    return grouped
