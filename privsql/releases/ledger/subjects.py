"""Find the releases that hold the same people, by ids, persons, or their published records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.remote import stream_positions
from privsql.engine.sqlfiles import (
    Holes,
    alias_as,
    all_rows,
    column,
    comparable_text,
    concat_texts,
    fill,
    normal_name,
    temp_table,
    union_all,
)
from privsql.model.packing import BATCH, SECRET, keyed_digest, query_hashes, secret_word
from privsql.releases.ledger.book import (
    MARKS,
    NAMES,
    SKETCHES,
    SUBJECTS,
    add_rows,
    get_secret,
    rows_of,
    select_releases,
)
from privsql.releases.ledger.evidence import (
    Agreement,
    CommonNames,
    CommonRecords,
    Evidence,
    RecordSketch,
    judge_evidence,
    pair_columns,
    propose_columns,
    take_histograms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from privsql.engine.database import EngineSession, Relations
    from privsql.model.records import Records
    from privsql.releases.ledger.book import LedgerEntry
    from privsql.releases.ledger.evidence import Verdict
    from privsql.releases.ledger.publication import PublicationRequest

# Names ----------------------------------------------------------------------------------------------------------------
# Ids and persons that a release and a source have in common, and how values agree along them.
#
# They are compared as ``normal_name`` spells them, by 63 bits of a keyed hash of every name: any common one means the
# same people. Records that are followed from release to release have names as the publisher spells them.
#
# Names with equal letters besides their digits could be mere numbering. For such a source the ledger stores marks: 16
# bits of every value beside the names with the smallest digests, so that tables share their samples.

TRACES = temp_table("traces")
HASHED_NAMES = "hashed_names"
HASHED = temp_table(HASHED_NAMES)
SAMPLE = 2**16  # names beside which values are marked
MARK = 2**16
RECORD = -1  # in place of a column's number: the whole record
DIGITS = "0123456789"
Kind = Literal["ids", "persons"]
NAMED_BY: dict[Kind, str] = {"ids": "id", "persons": "person"}  # the columns of traces


class ComparedNames(NamedTuple):
    """Names of a release and of the source that are compared; ``tells``: others are other people."""

    theirs: Kind
    ours: Kind
    tells: bool = True


def bring_relation(db: EngineSession, there: Relations, name: str, query: exp.Query) -> None:
    """Make a relation beside the ledger, wherever the source lies."""
    title = "Reading who the records are"
    if there is db:
        db.create_table(name, query, title=title)
        return
    with there.stream_batches(query, BATCH) as rows:
        db.register_arrow("brought", rows)
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
        self._db, self._source, self._request = db, source, request.stated
        self._key = get_secret(request.ledger_path)
        self._kinds = [kind for kind, key in NAMED_BY.items() if key in source.known_by]
        self._samples: dict[Kind, pa.Table] = {}
        self._marked: list[str] = []  # relations
        self._hash_names(TRACES)
        self.numbering = tuple(kind for kind in self._kinds if self._are_numbering(kind))

    def _hash_names(self, traces: exp.Table | exp.Subquery) -> None:
        """Make relation ``hashed_names`` of the ids and persons of ``traces``."""
        self._db.register_arrow(SECRET, secret_word(self._key))
        hashed = []
        for kind in self._kinds:
            holes: Holes = {"traces": traces, "kind": exp.Literal.string(kind), "name": _name_of(kind)}
            hashed.append(fill("ledger/hashed_names", holes | {"hash": self._hash_name()}))
        if hashed:
            self._db.create_table(HASHED_NAMES, union_all([one.subquery(copy=False) for one in hashed]))
        self._db.drop(SECRET)

    def _hash_name(self) -> exp.Expr:
        return keyed_digest(self._db, column("name"))

    def count_known(self, entries: Sequence[LedgerEntry]) -> int:
        """Return how many of the ids are in any of the releases."""
        holes: Holes = {"ours": HASHED, "names": NAMES, "among": select_releases(entries)}
        return int(self._db.rows(fill("ledger/overlap", holes))[0][0])

    def _are_numbering(self, kind: Kind) -> bool:
        """Return whether names could be mere numbering; if so, take a sample of them."""
        least, greatest = self._db.rows(fill("ledger/ends", {"traces": TRACES, "name": _name_of(kind)}))[0]
        if least is None or not is_numbering(least, greatest):
            return False
        holes: Holes = {"traces": TRACES, "name": _name_of(kind), "digest": self._db.digest([column("name")])}
        self._samples[kind] = self._db.arrow(fill("ledger/sample", holes | {"most": exp.Literal.number(SAMPLE)}))
        return {without_digits(one) for one in self._samples[kind]["name"].to_pylist()} == {without_digits(least)}

    def pair_names(self, entry: LedgerEntry) -> list[ComparedNames]:
        """Return which names of a release are compared with which of the source."""
        ours = self._request
        pairs = []
        if entry.subject and "ids" in self._kinds:
            tells = ours.promised_person is None and entry.promised_person is None
            pairs.append(ComparedNames("ids", "ids", tells))
        if entry.person_column and "persons" in self._kinds:
            pairs.append(ComparedNames("persons", "persons"))
        elif entry.person_column and ours.subject == entry.person_column:
            pairs.append(ComparedNames("persons", "ids"))
        elif ours.person_column and "persons" in self._kinds and entry.subject == ours.person_column:
            pairs.append(ComparedNames("ids", "persons"))
        return pairs

    def compare_entries(self, entries: Sequence[LedgerEntry]) -> dict[int, tuple[CommonNames, ...]]:
        """Return by release the names in common with the source."""
        common_names: dict[int, tuple[CommonNames, ...]] = dict.fromkeys((entry.number for entry in entries), ())
        pairs: dict[ComparedNames, list[LedgerEntry]] = {}
        for entry in entries:
            for pair in self.pair_names(entry):
                pairs.setdefault(pair, []).append(entry)
        for pair, alike in pairs.items():
            holes: Holes = {"names": NAMES, "ours": HASHED, "among": select_releases(alike)}
            holes |= {"their_kind": exp.Literal.string(pair.theirs), "our_kind": exp.Literal.string(pair.ours)}
            common = {int(number): int(known) for number, known in self._db.rows(fill("ledger/known", holes))}
            for entry in alike:
                common_names[entry.number] += (self._describe_common(entry, pair, common.get(entry.number, 0)),)
        return common_names

    def _describe_common(self, entry: LedgerEntry, pair: ComparedNames, common: int) -> CommonNames:
        """Return names in common, and how values agree along them; for releases of the same source names suffice."""
        names = CommonNames(
            "ids" if pair.theirs == pair.ours == "ids" else "persons",
            common,
            pair.tells,
            pair.ours in self.numbering and pair.theirs in entry.numbering,
            (self._request.find_space(pair.ours), entry.find_space(pair.theirs)),
        )
        is_decided = not names.numbering or names.differ_in_space or names.share_space
        if not common or is_decided or entry.is_of(self._request.source):
            return names
        return replace(names, columns=self._measure_agreement(entry, pair))

    # How values agree ---

    def _measure_agreement(self, entry: LedgerEntry, pair: ComparedNames) -> tuple[Agreement, ...]:
        """Return the columns of a release along common names: by their names, or if none is here by their places."""
        theirs = rows_of(entry, MARKS).where(column("kind").eq(pair.theirs))
        here = self._source.values_of(entry.column_names)
        columns = {i: here[name] for i, name in enumerate(entry.column_names) if name in here}
        if not columns and len(self._request.column_names) == len(entry.column_names):
            columns = dict(enumerate(self._source.values_of(self._request.column_names).values()))
        if not columns:
            return ()
        self._make_marks("our_marks", pair.ours, self._find_names(theirs, pair.ours), columns)
        holes: Holes = {"theirs": theirs.subquery(), "ours": temp_table("our_marks")}
        rows = self._db.rows(fill("ledger/agreement", holes))
        self._db.drop("our_marks")
        called = {RECORD: "the whole record", **dict(enumerate(entry.column_names))}
        is_alike = entry.columns == self._request.columns
        return tuple(
            Agreement(called[field], int(count), int(equal), float(products) / count)
            for field, count, equal, products in rows
            if field != RECORD or is_alike
        )

    def _find_names(self, theirs: exp.Query, kind: Kind) -> pa.Table:
        """Return our names, as they are compared, beside which a release has marks."""
        holes: Holes = {"traces": TRACES, "name": _name_of(kind), "hash": self._hash_name()}
        self._db.register_arrow(SECRET, secret_word(self._key))
        names = self._db.arrow(fill("ledger/recognized", holes | {"marks": theirs.subquery()}))
        self._db.drop(SECRET)
        return names

    def _make_marks(self, relation: str, kind: Kind, names: pa.Table, columns: dict[int, tuple[exp.Expr, str]]) -> None:
        """Make a relation of the marks of columns beside some names."""
        there = self._source.db
        there.register_arrow("sample", names)
        holes: Holes = {
            "source": temp_table("source"),
            "sample": temp_table("sample"),
            "name": normal_name(self._source.known_by[NAMED_BY[kind]]),
            "values": [alias_as(value, f"v{field}") for field, (value, _) in columns.items()],
            "columns": [column(f"v{field}") for field in columns],
            "keep": self._source.keep_predicate,
        }
        bring_relation(self._db, there, "sampled", fill("ledger/sampled", holes))
        there.drop("sample")
        texts = {field: comparable_text(column(f"v{field}"), kind) for field, (_, kind) in columns.items()}
        texts[RECORD] = concat_texts([text.copy() for text in texts.values()])
        self._db.register_arrow(SECRET, secret_word(self._key))
        self._db.create_table(relation, union_all([self._query_marks(kind, *one) for one in texts.items()]))
        self._db.drop(SECRET, "sampled")

    def _query_marks(self, kind: Kind, field: int, text: exp.Expr) -> exp.Query:
        mark = exp.cast(exp.Mod(this=keyed_digest(self._db, text), expression=exp.Literal.number(MARK)), "INTEGER")
        holes: Holes = {"sampled": temp_table("sampled"), "kind": exp.Literal.string(kind), "mark": mark}
        return fill("ledger/marks", holes | {"field": exp.Literal.number(field), "hash": self._hash_name()})

    # Writing ---

    def prepare_marks(self) -> None:
        """Make relations ``marks_of_ids`` and ``marks_of_persons`` of names that could be mere numbering."""
        columns = dict(enumerate(self._source.values_of(self._request.column_names).values()))
        for kind in self.numbering if columns else ():
            self._make_marks(f"marks_of_{kind}", kind, self._samples[kind], columns)
            self._marked.append(f"marks_of_{kind}")

    def write_names(self, number: int, released: exp.Subquery | None) -> None:
        """Add the names and these marks to the attached ledger; ``released``: traces without those held back."""
        if self._kinds:
            if released is not None:
                self._db.drop(HASHED_NAMES)
                self._hash_names(released)
            add_rows(self._db, NAMES, number, HASHED)
            self._db.drop(HASHED_NAMES)
        for name in self._marked:
            add_rows(self._db, MARKS, number, temp_table(name))
            self._db.drop(name)


def _name_of(kind: Kind) -> exp.Expr:
    """Return a name as it is compared."""
    return normal_name(column(NAMED_BY[kind], "t"))


# Subjects -------------------------------------------------------------------------------------------------------------
# Collect evidence whether releases hold the people of a source: by names, then records, then columns.
#
# Each kind of evidence is collected only if those before it did not decide (``privsql.releases.ledger.evidence``).

SKETCH = temp_table("sketch")


class Subjects:
    """The records of a source beside those of the attached ledger; in relation ``traces`` those that have names."""

    def __init__(self, db: EngineSession, source: Records, request: PublicationRequest, *, chains: bool) -> None:
        """Read who the records are; ``chains``: a guarantee may follow them from release to release."""
        self._db, self._source, self._request = db, source, request.stated
        self._columns = [fold_name(name) for name in request.stated.columns]
        self._key = get_secret(request.ledger_path)
        self.named = source.has_ids
        self.follows = self.named and (chains or request.spec.source.chooses_records)
        if source.known_by:
            bring_relation(db, source.db, "traces", source.query_names(follow=self.follows, values=chains))
        self._sketch = self._collect_sketch() or RecordSketch.collect([], 0)
        self.rows = self._sketch.summary
        self.names = SubjectNames(db, source, request)
        self.histograms = take_histograms(source, request.stated.column_names, self._key)

    def _collect_sketch(self, columns: Sequence[str] | None = None) -> RecordSketch | None:
        """Collect the hashes of the records, by other columns of the source if these are given; None without such."""
        source = self._source
        if source.db.keeps_order:
            hashed = source.hash_records(self._key, columns)
            return None if hashed is None else RecordSketch.collect(hashed, source.records)
        names = [one.name for one in source.roles.columns]
        values = list(source.values_of(names if columns is None else columns).values())
        if columns is not None and len(values) < len(columns):
            return None
        source.db.register_arrow(SECRET, secret_word(self._key))
        hashed_there = query_hashes(source.db, values, temp_table("source"), source.keep_predicate)
        sketch = RecordSketch.collect_there(source.db, hashed_there)
        source.db.drop(SECRET)
        return sketch

    def write_records(self, number: int, groups: NDArray[np.integer[Any]] | None) -> None:
        """Add the records to the attached ledger; ``groups``: of each, below 0 where it is held back."""
        self._db.register_arrow("sketch", self._sketch.as_table())
        add_rows(self._db, SKETCHES, number, SKETCH)
        self._db.drop("sketch")
        self.names.write_names(number, self._write_followed(number, groups) if self.follows else None)
        self._db.drop("traces")

    def _write_followed(self, number: int, groups: NDArray[np.integer[Any]] | None) -> exp.Subquery | None:
        """Add the records that are followed; return the traces of those that are not held back, if any may be."""
        holes: Holes = {"assigned": TRACES, "bid": exp.cast(exp.null(), "INTEGER")}
        if groups is not None:
            self._db.register_arrow("positions", stream_positions(groups))
            assigned = self._db.with_bid(TRACES, temp_table("positions"))
            holes = {"assigned": assigned.subquery(), "bid": column("bid", "a")}
        add_rows(self._db, SUBJECTS, number, fill("ledger/written", holes).subquery())
        self._db.drop("positions")
        if groups is None:
            return None
        holes = {"traces": TRACES, "subjects": SUBJECTS, "number": exp.Literal.number(number)}
        return fill("ledger/released", holes).subquery()

    @property
    def summary_fields(self) -> dict[str, Any]:
        """Return the entries of a release in the ledger that sum up its records."""
        return {"rows": self.rows, "numbering": self.names.numbering, "histograms": self.histograms}

    def count_fresh(self, entries: Sequence[LedgerEntry]) -> int:
        """Return how many of the records are in none of the releases."""
        return self.rows.records - (self.names.count_known(entries) if entries and self.named else 0)

    def list_changed(self, entry: LedgerEntry) -> list[tuple[str, str]]:
        """Return the ids of a release's records that are no longer as they were, each with deleted or changed."""
        holes: Holes = {"traces": TRACES, "known": rows_of(entry, SUBJECTS).subquery()}
        return [(str(name), str(fate)) for name, fate in self._db.rows(fill("ledger/changed", holes))]

    def judge_entries(self, entries: Sequence[LedgerEntry]) -> dict[int, Verdict]:
        """Return by release whether it holds people of this source, under whatever name."""
        names = self.names.compare_entries(entries)
        evidence = {
            entry.number: Evidence(
                entry.is_of(self._request.source),
                named=bool(self._source.known_by) and bool(entry.subject or entry.person_column),
                names=names[entry.number],
            )
            for entry in entries
        }
        undecided = self._list_undecided(entries, evidence)
        for columns in dict.fromkeys(entry.columns for entry in undecided):
            self._compare_records(columns, [entry for entry in undecided if entry.columns == columns], evidence)
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
        sketch = None if folded == self._columns or not columns else self._collect_sketch(columns)
        missing = sketch is None and folded != self._columns
        records: dict[int, CommonRecords] = {}
        if sketch is not None:
            records = self._count_equal_records(entries, sketch)
        elif len(folded) == len(self._columns):  # the same columns, or as many under other names
            records = self._count_equal_records(entries, self._sketch)
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
            sketch = self._collect_sketch(columns) if columns != list(entry.column_names) else None
            if sketch is not None:
                records += self._count_equal_records([entry], sketch).values()
        return replace(
            evidence, records=tuple(records), columns=pair_columns(ours, theirs), compared=len(ours) * len(theirs)
        )

    def _count_equal_records(self, entries: Sequence[LedgerEntry], sketch: RecordSketch) -> dict[int, CommonRecords]:
        """Return the records in common with releases, among those whose hashes both sketches hold."""
        among, ours = select_releases(entries), sketch.summary
        self._db.register_arrow("sketch", sketch.as_table())
        rows = self._db.rows(fill("ledger/met", {"sketches": SKETCHES, "sketch": SKETCH, "among": among}))
        self._db.drop("sketch")
        met = {number: tuple(map(int, counts)) for number, *counts in rows}
        larger = [entry for entry in entries if entry.rows.limit > ours.limit]
        holes: Holes = {"sketches": SKETCHES, "among": select_releases(larger), "limit": exp.Literal.number(ours.limit)}
        below = self._db.rows(fill("ledger/below", holes)) if larger else []
        theirs = {number: tuple(map(int, counts)) for number, *counts in below}
        common = {}
        for entry in entries:
            records, once, twice = theirs.get(entry.number, (0, 0, 0))
            restricted = replace(entry.rows, records=records, once=once, twice=twice, limit=ours.limit)
            rows_there = restricted if entry in larger else entry.rows
            here = sketch.summarize_below(entry.rows.limit)
            common[entry.number] = CommonRecords(here, rows_there, *met.get(entry.number, ()))
        return common
