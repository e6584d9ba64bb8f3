"""Find the releases that hold the same people, by population, ids, persons, or their published records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.remote import stream_positions
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, normal_name, temp_table, union_all
from privsql.model.hashing import BATCH, SECRET, keyed_digest, query_hashes, secret_word
from privsql.releases.ledger.book import NAMES, SKETCHES, SUBJECTS, add_rows, get_secret, rows_of, select_releases
from privsql.releases.ledger.evidence import (
    WHOLE,
    CommonNames,
    CommonRecords,
    Evidence,
    RecordSketch,
    TableSample,
    judge_evidence,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from privsql.engine.database import EngineSession, Relations
    from privsql.model.records import Records
    from privsql.releases.ledger.book import LedgerEntry
    from privsql.releases.ledger.evidence import Kind, RecordSummary, Verdict
    from privsql.releases.ledger.publication import PublicationRequest

# Names ----------------------------------------------------------------------------------------------------------------
# Ids and persons that a release and a source have in common.
#
# They are compared as ``normal_name`` spells them, by 63 bits of a keyed hash of every name. Records that are followed
# from release to release have names as the publisher spells them.

TRACES = temp_table("traces")
HASHED_NAMES = "hashed_names"
HASHED = temp_table(HASHED_NAMES)
DIGITS = "0123456789"
NAMED_BY: dict[Kind, str] = {"ids": "id", "persons": "person"}  # the columns of traces


class ComparedNames(NamedTuple):
    """Which names of a release are compared with which of the source; ``tells``: another name is another person."""

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
    """The names of a source, in relation ``traces``, beside those of the attached ledger.

    ``counters``: of ids and persons those that could be mere numbering, such as 1, 2, .. or p-01, p-02, ..
    """

    def __init__(self, db: EngineSession, source: Records, request: PublicationRequest) -> None:
        self._db, self._request = db, request.stated
        self._key = get_secret(request.ledger_path)
        self._kinds = [kind for kind, key in NAMED_BY.items() if key in source.known_by]
        self._hash_names(TRACES)
        letters = exp.Anonymous(this="translate", expressions=[column("name"), *map(exp.Literal.string, (DIGITS, ""))])
        self.counters: tuple[Kind, ...] = ()
        for kind in self._kinds:
            holes: Holes = {"traces": TRACES, "name": _name_of(kind), "letters": letters}
            least, greatest, different = db.rows(fill("ledger/ends", holes))[0]
            self.counters += (kind,) if different == 1 and is_numbering(least, greatest) else ()

    def _hash_names(self, traces: exp.Table | exp.Subquery) -> None:
        """Make relation ``hashed_names`` of the ids and persons of ``traces``."""
        self._db.register_arrow(SECRET, secret_word(self._key))
        hashed = []
        for kind in self._kinds:
            holes: Holes = {"traces": traces, "kind": exp.Literal.string(kind), "name": _name_of(kind)}
            hashed.append(fill("ledger/hashed_names", holes | {"hash": keyed_digest(self._db, column("name"))}))
        if hashed:
            self._db.create_table(HASHED_NAMES, union_all([one.subquery(copy=False) for one in hashed]))
        self._db.drop(SECRET)

    def count_known(self, entries: Sequence[LedgerEntry]) -> int:
        """Return how many of the ids are in any of the releases."""
        holes: Holes = {"ours": HASHED, "names": NAMES, "among": select_releases(entries)}
        return int(self._db.rows(fill("ledger/overlap", holes))[0][0])

    def _pair_names(self, entry: LedgerEntry) -> list[ComparedNames]:
        """Return which names of a release are compared with which of the source.

        Names of columns that are called otherwise do not tell: somebody may have another name in each.
        """
        ours = self._request
        pairs = []
        if entry.subject and "ids" in self._kinds:
            tells = ours.promised_person is None and entry.promised_person is None and entry.subject == ours.subject
            pairs.append(ComparedNames("ids", "ids", tells))
        if entry.person_column and "persons" in self._kinds:
            pairs.append(ComparedNames("persons", "persons", entry.person_column == ours.person_column))
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
            for pair in self._pair_names(entry):
                pairs.setdefault(pair, []).append(entry)
        for pair, alike in pairs.items():
            holes: Holes = {"names": NAMES, "ours": HASHED, "among": select_releases(alike)}
            holes |= {"their_kind": exp.Literal.string(pair.theirs), "our_kind": exp.Literal.string(pair.ours)}
            counted = {number: (names, known) for number, names, known in self._db.rows(fill("ledger/known", holes))}
            count = exp.select(exp.Count(this=exp.Star())).from_(HASHED).where(column("kind").eq(pair.ours))
            ours = int(self._db.rows(count)[0][0])
            kind: Kind = "ids" if pair.theirs == pair.ours == "ids" else "persons"
            for entry in alike:
                names, known = map(int, counted.get(entry.number, (0, 0)))
                counters = pair.ours in self.counters and pair.theirs in entry.counters
                common = CommonNames(kind, known, min(names, ours), pair.tells, counters)
                common_names[entry.number] += (common,)
        return common_names

    def write_names(self, number: int, released: exp.Subquery | None) -> None:
        """Add the names to the attached ledger; ``released``: traces without those held back."""
        if self._kinds:
            if released is not None:
                self._db.drop(HASHED_NAMES)
                self._hash_names(released)
            add_rows(self._db, NAMES, number, HASHED)
            self._db.drop(HASHED_NAMES)


def _name_of(kind: Kind) -> exp.Expr:
    """Return a name as it is compared."""
    return normal_name(column(NAMED_BY[kind], "t"))


# Subjects -------------------------------------------------------------------------------------------------------------
# Collect evidence whether releases hold the people of a source: names first, then records where these do not decide.

SKETCH = temp_table("sketch")


class Subjects:
    """The records of a source beside those of the attached ledger; in relation ``traces`` those that have names."""

    def __init__(self, db: EngineSession, source: Records, request: PublicationRequest, *, chains: bool) -> None:
        """Read who the records are; ``chains``: a guarantee may follow them from release to release."""
        self._db, self._source, self._request = db, source, request.stated
        self._key = get_secret(request.ledger_path)
        self.named = source.has_ids
        self.follows = self.named and (chains or request.spec.source.chooses_records)
        if source.known_by:
            bring_relation(db, source.db, "traces", source.query_names(follow=self.follows, values=chains))
        if source.db.keeps_order:
            self._sketch = RecordSketch.collect(source.hash_records(self._key))
        else:
            source.db.register_arrow(SECRET, secret_word(self._key))
            hashed = query_hashes(source.db, source.published_values, temp_table("source"), source.keep_predicate)
            self._sketch = RecordSketch.collect_there(source.db, hashed)
            source.db.drop(SECRET)
        self.names = SubjectNames(db, source, request)

    @property
    def rows(self) -> RecordSummary:
        """Return how many records there are, with their fingerprint."""
        return self._sketch.summary

    def write_records(self, number: int, groups: NDArray[np.integer[Any]] | None) -> None:
        """Add the records to the attached ledger; ``groups``: of each, below 0 where it is held back."""
        self._db.register_arrow("sketch", self._sketch.as_table())
        add_rows(self._db, SKETCHES, number, SKETCH)
        self._db.drop("sketch")
        released = None  # the traces without the records that are held back, if any may be
        if self.follows:
            holes: Holes = {"assigned": TRACES, "bid": exp.cast(exp.null(), "INTEGER")}
            if groups is not None:
                self._db.register_arrow("positions", stream_positions(groups))
                assigned = self._db.with_bid(TRACES, temp_table("positions"))
                holes = {"assigned": assigned.subquery(), "bid": column("bid", "a")}
                kept: Holes = {"traces": TRACES, "subjects": SUBJECTS, "number": exp.Literal.number(number)}
                released = fill("ledger/released", kept).subquery()
            add_rows(self._db, SUBJECTS, number, fill("ledger/written", holes).subquery())
            self._db.drop("positions")
        self.names.write_names(number, released)
        self._db.drop("traces")

    def count_fresh(self, entries: Sequence[LedgerEntry]) -> int:
        """Return how many of the records are in none of the releases."""
        return self.rows.records - (self.names.count_known(entries) if entries and self.named else 0)

    def list_changed(self, entry: LedgerEntry) -> list[tuple[str, str]]:
        """Return the ids of a release's records that are no longer as they were, each with deleted or changed."""
        holes: Holes = {"traces": TRACES, "known": rows_of(entry, SUBJECTS).subquery()}
        return [(str(name), str(fate)) for name, fate in self._db.rows(fill("ledger/changed", holes))]

    def judge_entries(self, entries: Sequence[LedgerEntry]) -> dict[int, Verdict]:
        """Return by release whether it holds people of this source, under whatever name."""
        names, ours = self.names.compare_entries(entries), self._request
        evidence = {
            entry.number: Evidence(
                entry.is_of(ours.population),
                named=bool(self._source.known_by) and bool(entry.subject or entry.person_column),
                spends=ours.unit is not None or entry.unit is not None,
                names=names[entry.number],
            )
            for entry in entries
        }
        columns = set(map(fold_name, ours.column_names))
        undecided = [
            entry
            for entry in entries
            if not evidence[entry.number].same_population
            and not judge_evidence(evidence[entry.number]).is_same
            and set(map(fold_name, entry.column_names)) == columns
        ]
        for number, records in self._compare_records(undecided).items():
            evidence[number] = replace(evidence[number], records=records)
        return {number: judge_evidence(one) for number, one in evidence.items()}

    def _compare_records(self, entries: Sequence[LedgerEntry]) -> dict[int, CommonRecords]:
        """Return the records in common with releases, among those whose hashes both sketches hold."""
        if not entries:
            return {}
        self._db.register_arrow("sketch", self._sketch.as_table())
        holes: Holes = {"sketches": SKETCHES, "sketch": SKETCH, "among": select_releases(entries)}
        limit = exp.Literal.number(min(self.rows.limit, WHOLE - 1))
        met = {number: counts for number, *counts in self._db.rows(fill("ledger/met", {**holes, "limit": limit}))}
        self._db.drop("sketch")
        common = {}
        for entry in entries:
            records, different, *often, equal = map(int, met.get(entry.number, (0,) * 7))
            here, there = self._sketch.sample_below(entry.rows.limit), TableSample(records, different, tuple(often))
            common[entry.number] = CommonRecords(here, there, equal, are_equal=entry.rows == self.rows)
        return common
