"""Find the releases in a ledger that hold people of a source.

They are recognized by the name of the population, by ids of records or persons, or by equal published records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

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

    from privsql.engine.database import EngineSession
    from privsql.model.records import Records
    from privsql.releases.ledger.book import LedgerEntry
    from privsql.releases.ledger.evidence import Kind, RecordSummary, Verdict
    from privsql.releases.ledger.publication import PublicationRequest

# Evidence whether releases hold the people of a source: names (ids and persons) first, then records where names do not
# decide.
#
# Names are compared as ``normal_name`` spells them, by 63 bits of a keyed hash of every name. Records that are followed
# from release to release have names as the publisher spells them.

TRACES = temp_table("traces")
HASHED_NAMES = "hashed_names"
HASHED = temp_table(HASHED_NAMES)
SKETCH = temp_table("sketch")
DIGITS = "0123456789"
NAMED_BY: dict[Kind, str] = {"ids": "id", "persons": "person"}  # the columns of traces


def is_numbering(least: str, greatest: str) -> bool:
    """Return whether ids could be mere numbering, such as p-0001 to p-0999.

    Equal numbers in two tables do not show that their people are the same. A single id with letters is no numbering.
    The caller ensures that all ids have the same characters apart from digits.

    Args:
        least: The first id in the order of texts.
        greatest: The last one.

    >>> is_numbering("p-0001", "p-0999"), is_numbering("1f3a", "9be0"), is_numbering("1f3a", "1f3a")
    (True, False, False)
    """
    letters, digits = without_digits(least), sum(one in DIGITS for one in least)
    return letters == without_digits(greatest) and digits > 0 and (least != greatest or not letters)


def without_digits(name: str) -> str:
    """Return an id without its digits; the ids of a mere numbering differ in nothing else.

    >>> without_digits("p-0001")
    'p-'
    """
    return name.translate(str.maketrans("", "", DIGITS))


class Subjects:
    """The people of a source, compared with those in the releases of the attached ledger.

    Relation ``traces`` holds the id and the person of each record. ``counters`` is "ids", "persons", both or neither:
    those whose values could be mere numbering, such as 1, 2, .. or p-01, p-02, ..
    """

    def __init__(self, db: EngineSession, source: Records, request: PublicationRequest, *, chains: bool) -> None:
        """Read the ids, persons and hashes of the records.

        Args:
            db: The session that will attach the ledger.
            source: The records.
            request: The publication.
            chains: Whether a guarantee of the mechanism covers several releases together. The ledger then follows the
                records with ids from release to release.
        """
        self._db, self._request = db, request.stated
        self._key = get_secret(request.ledger_path)
        self.named = source.has_ids
        self.follows = self.named and (chains or request.spec.source.chooses_records)
        self._kinds = [kind for kind, key in NAMED_BY.items() if key in source.known_by]
        there = source.db
        if source.known_by:  # they are hashed beside the ledger, wherever the source lies
            names, title = source.query_names(follow=self.follows, values=chains), "Reading who the records are"
            if there is db:
                db.create_table("traces", names, title=title)
            else:
                with there.stream_batches(names, BATCH) as rows:
                    db.register_arrow("brought", rows)
                    db.create_table("traces", all_rows(temp_table("brought")), title=title)
                db.drop("brought")
        if there.keeps_order:
            self._sketch = RecordSketch.collect(source.hash_records(self._key))
        else:
            there.register_arrow(SECRET, secret_word(self._key))
            hashed = query_hashes(there, source.published_values, temp_table("source"), source.keep_predicate)
            self._sketch = RecordSketch.collect_there(there, hashed)
            there.drop(SECRET)
        self._hash_names(TRACES)
        letters = exp.Anonymous(this="translate", expressions=[column("name"), *map(exp.Literal.string, (DIGITS, ""))])
        self.counters: tuple[Kind, ...] = ()
        for kind in self._kinds:
            name = normal_name(column(NAMED_BY[kind], "t"))
            least, greatest, different = db.rows(
                fill("ledger/ends", {"traces": TRACES, "name": name, "letters": letters})
            )[0]
            self.counters += (kind,) if different == 1 and is_numbering(least, greatest) else ()

    @property
    def rows(self) -> RecordSummary:
        """Return the number of the records and a digest of them."""
        return self._sketch.summary

    def _hash_names(self, traces: exp.Table | exp.Subquery) -> None:
        """Create relation ``hashed_names`` with the hashes of ids and persons, which are compared with the ledger's.

        Args:
            traces: The records, with columns ``id`` and ``person``.
        """
        self._db.register_arrow(SECRET, secret_word(self._key))
        hashed = []
        for kind in self._kinds:
            holes: Holes = {"traces": traces, "kind": exp.Literal.string(kind)}
            holes |= {"name": normal_name(column(NAMED_BY[kind], "t")), "hash": keyed_digest(self._db, column("name"))}
            hashed.append(fill("ledger/hashed_names", holes))
        if hashed:
            self._db.create_table(HASHED_NAMES, union_all([one.subquery(copy=False) for one in hashed]))
        self._db.drop(SECRET)

    def write_records(self, number: int, groups: NDArray[np.integer[Any]] | None) -> None:
        """Record in the attached ledger whom a new release holds, so that later publications recognize these people.

        Args:
            number: The number of the new release.
            groups: The group in which each record is published (n,); below 0 for a record that waits for a later
                release. None if there are no groups.
        """
        self._db.register_arrow("sketch", self._sketch.as_table())
        add_rows(self._db, SKETCHES, number, SKETCH)
        self._db.drop("sketch")
        if self.follows:
            holes: Holes = {"assigned": TRACES, "bid": exp.cast(exp.null(), "INTEGER")}
            if groups is not None:
                self._db.register_arrow("positions", stream_positions(groups))
                assigned = self._db.with_bid(TRACES, temp_table("positions"))
                holes = {"assigned": assigned.subquery(), "bid": column("bid", "a")}
            add_rows(self._db, SUBJECTS, number, fill("ledger/written", holes).subquery())
            self._db.drop("positions")
        if self._kinds:
            if self.follows and groups is not None:  # the names of records that are held back are not written
                self._db.drop(HASHED_NAMES)
                kept: Holes = {"traces": TRACES, "subjects": SUBJECTS, "number": exp.Literal.number(number)}
                self._hash_names(fill("ledger/released", kept).subquery())
            add_rows(self._db, NAMES, number, HASHED)
            self._db.drop(HASHED_NAMES)
        self._db.drop("traces")

    def count_fresh(self, entries: Sequence[LedgerEntry]) -> int:
        """Return how many records of the source are in none of the releases ``entries``, as far as ids show it."""
        if not (entries and self.named):
            return self.rows.records
        holes: Holes = {"ours": HASHED, "names": NAMES, "among": select_releases(entries)}
        return self.rows.records - int(self._db.rows(fill("ledger/overlap", holes))[0][0])

    def list_changed(self, entry: LedgerEntry) -> list[tuple[str, str]]:
        """Return (id, fate) of each record that a release holds and that the source no longer holds as it was.

        The fate is "deleted" or "changed".
        """
        holes: Holes = {"traces": TRACES, "known": rows_of(entry, SUBJECTS).subquery()}
        return [(str(name), str(fate)) for name, fate in self._db.rows(fill("ledger/changed", holes))]

    def judge_entries(self, entries: Sequence[LedgerEntry]) -> dict[int, Verdict]:
        """Decide for each release whether it holds people of this source, even if it names another population.

        Returns:
            The number of the release -> the decision.
        """
        names, ours = self._compare_names(entries), self._request
        evidence = {
            entry.number: Evidence(
                entry.is_of(ours.population),
                named=bool(self._kinds) and bool(entry.subject or entry.person_column),
                spends=ours.unit is not None or entry.epsilon is not None,
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

    def _compare_names(self, entries: Sequence[LedgerEntry]) -> dict[int, tuple[CommonNames, ...]]:
        """Return for each release, by its number, which ids and persons it has in common with the source."""
        common_names: dict[int, tuple[CommonNames, ...]] = dict.fromkeys((entry.number for entry in entries), ())
        # Which names of a release are compared with which of the source, and whether another name is another person.
        # If the columns are called otherwise it is not: somebody may have another name in each.
        pairs: dict[tuple[Kind, Kind, bool], list[LedgerEntry]] = {}
        request, persons = self._request, "persons" in self._kinds
        for entry in entries:
            if entry.subject and "ids" in self._kinds:
                of_records = request.promised_person is None and entry.promised_person is None
                pairs.setdefault(("ids", "ids", of_records and entry.subject == request.subject), []).append(entry)
            if entry.person_column and persons:
                same = entry.person_column == request.person_column
                pairs.setdefault(("persons", "persons", same), []).append(entry)
            elif entry.person_column and request.subject == entry.person_column:
                pairs.setdefault(("persons", "ids", True), []).append(entry)
            elif request.person_column and persons and entry.subject == request.person_column:
                pairs.setdefault(("ids", "persons", True), []).append(entry)
        for (theirs, ours, tells), alike in pairs.items():
            holes: Holes = {"names": NAMES, "ours": HASHED, "among": select_releases(alike)}
            holes |= {"their_kind": exp.Literal.string(theirs), "our_kind": exp.Literal.string(ours)}
            counted = {number: (names, known) for number, names, known in self._db.rows(fill("ledger/known", holes))}
            count = exp.select(exp.Count(this=exp.Star())).from_(HASHED).where(column("kind").eq(ours))
            number_here = int(self._db.rows(count)[0][0])
            kind: Kind = "ids" if theirs == ours == "ids" else "persons"
            for entry in alike:
                names, known = map(int, counted.get(entry.number, (0, 0)))
                counters = ours in self.counters and theirs in entry.counters
                common = CommonNames(kind, known, min(names, number_here), tells, counters)
                common_names[entry.number] += (common,)
        return common_names

    def _compare_records(self, entries: Sequence[LedgerEntry]) -> dict[int, CommonRecords]:
        """Return for each release, by its number, a comparison of its records with the source's.

        The ledger keeps a sketch of each release: the smallest hashes of its records. Only records are compared whose
        hashes are small enough for both sketches.
        """
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
