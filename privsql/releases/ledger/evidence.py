"""Decide whether two releases hold the same people, from what they have in common."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, temp_table
from privsql.model.hashing import BATCH, RecordSum, sum_hashes, upper_bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.model.packing import Hashes, Ints
    from privsql.model.records import HashedRecords

# The rule -------------------------------------------------------------------------------------------------------------
# Releases of the same population hold the same people, unless ids or persons show that they differ.
#
# In other populations, equal ids, persons or records show that people are the same. This guards a careful publisher
# against mistakes. It does not find a table under another name whose values were rewritten and whose records have no
# ids.

Kind = Literal["ids", "persons"]
FEW, FEW_SHARE = 2, Fraction(1, 1000)  # names in common with another population that may be chance
TERMS = (2, 4)  # numbers of terms of the series in ``_has_few_new`` that are tried
SURE = 31  # -2 ln(1e-6 / 4): by Bernstein's inequality one of four tests is beyond it once in a million


@dataclass(frozen=True)
class CommonNames:
    """The names (ids of records, or names of persons) that two releases have in common.

    Attributes:
        kind: Whether these are ids or persons.
        common: The number of names that are in both releases.
        names: The number of names in the smaller release.
        tells: Whether different names always mean different people. False if the names come from columns with different
            titles, or are ids where a release has one record of each person: a person may have another name in each.
        are_counters: Whether the names could be mere numbering, such as 1, 2, 3, in both releases.
    """

    kind: Kind
    common: int
    names: int
    tells: bool = True
    are_counters: bool = False

    @property
    def are_few(self) -> bool:
        """Return whether so few names are in common that they may belong to different people.

        Two hospitals that number their patients alike have such names in common.
        """
        return self.common <= FEW or self.common <= FEW_SHARE * self.names


@dataclass(frozen=True)
class TableSample:
    """Counts of a sample of a table's records: those whose hashes lie below a limit.

    The counts show whether two tables share more records than by chance (``CommonRecords``).

    Attributes:
        records: The number of records in the sample.
        different: The number of different records among them.
        often: How many of the different ones occur once, twice, three times and four times.
    """

    records: int
    different: int
    often: tuple[int, ...]


@dataclass(frozen=True)
class CommonRecords:
    """A comparison of the records of two tables with the same column names.

    The ledger keeps only the smallest hashes of each table's records. So the comparison uses a sample: the records
    whose hashes are so small that the ledger keeps them for both tables.

    Attributes:
        ours: Counts of the sampled records of the new table.
        theirs: Counts of the sampled records of the earlier table.
        common: The number of different sampled records that are in both.
        are_equal: Whether both tables consist of the same records.
    """

    ours: TableSample
    theirs: TableSample
    common: int = 0
    are_equal: bool = False

    @property
    def exceed_chance(self) -> bool:
        """Return whether the tables share more records than two independent random samples of one population would.

        If so, the tables are taken to hold the same people.
        """
        if not (self.ours.records and self.theirs.records):
            return False
        sides = (self.ours, self.theirs), (self.theirs, self.ours)
        return self.are_equal or any(self._has_few_new(*side, terms) for side in sides for terms in TERMS)

    def _has_few_new(self, new: TableSample, known: TableSample, terms: int) -> bool:
        """Return whether fewer records of ``new`` are missing from ``known`` than chance would give.

        If so, the tables hold the same people rather than two independent samples of one population. The number of
        missing records is compared with its expectation u, which is estimated from ``known``.

        Args:
            new: Counts of one of the two tables.
            known: Counts of the other table.
            terms: How many terms of the series below are used; an even number.

        Let a sample of n records have N1, N2, .. different records that occur once, twice, .. A second sample of t n
        records from the same population is expected to have u different records that the first sample lacks:

            u = t N1 - t^2 N2 + t^3 N3 - ..      (Good and Toulmin, Biometrika 1956, who extend Turing's estimate)

        With an even number of terms the sum is at most u, since x - x^2/2 + .. - x^2k/(2k)! <= 1 - e^-x. Let d be the
        number of different records of ``new``. The number of its records that ``known`` lacks has variance u (1 - u /
        d), and the estimate of u has a variance of at most t^2 N1 + t^4 N2 + .. By Bernstein's inequality, the number
        lies x or more below its expectation with a probability of at most exp(-x^2 / 2 (variance + x / 3)). The caller
        tests both directions, because records that somebody has doubled look frequent in one of the two tables only.
        """
        ratio = Fraction(new.records, known.records)
        powers = [(ratio**times, number) for times, number in enumerate(known.often[:terms], 1)]
        expected = sum((power * number * (-1) ** i for i, (power, number) in enumerate(powers)), Fraction(0))
        expected = min(expected, Fraction(new.different))
        too_few = expected - (new.different - self.common)
        variance = expected * (1 - expected / new.different) + sum(power**2 * number for power, number in powers)
        return too_few > 0 and too_few**2 > SURE * (variance + too_few / 3)


@dataclass(frozen=True)
class Evidence:
    """Observations that show whether a release and a source hold the same people.

    Attributes:
        same_population: Whether their populations have a name in common.
        named: Whether both have ids, or both have persons.
        spends: Whether one of them spends a budget, which is a promise to every single person.
        names: The ids and persons in common.
        records: The records in common; None if they were not compared.
    """

    same_population: bool = False
    named: bool = False
    spends: bool = False
    names: tuple[CommonNames, ...] = ()
    records: CommonRecords | None = None


@dataclass(frozen=True)
class Verdict:
    """The conclusion whether two releases hold the same people, and why.

    Releases quote these words, so the words contain no numbers of records.

    Attributes:
        why: Why they hold the same people, for messages; empty if they hold different people.
        kind: Whether ids or persons show it; None if neither does.
        assumed: Whether it is only assumed, because nothing shows that the people are different.
        few: Names in common that are so few that they may be chance.
    """

    why: str = ""
    kind: Kind | None = None
    assumed: bool = False
    few: tuple[CommonNames, ...] = ()

    @property
    def is_same(self) -> bool:
        """Return whether the two releases hold the same people."""
        return bool(self.why)


def judge_evidence(evidence: Evidence) -> Verdict:
    """Decide whether a release and a source hold the same people."""
    met = [one for one in evidence.names if one.common and (evidence.same_population or not one.are_counters)]
    few = [one for one in met if one.are_few and not (evidence.same_population or evidence.spends)]
    same = next((one for one in met if one not in few), None)
    if same is not None:
        return Verdict(f"some of its {same.kind} are here", same.kind)
    if evidence.same_population:
        if any(one.tells for one in evidence.names):
            return Verdict()
        unsure = (
            "source.id names records, not persons, or was another column: " if evidence.named else "without source.id "
        )
        return Verdict(f"{unsure}its people may be here again", assumed=True)
    if evidence.records is not None and evidence.records.exceed_chance:
        return Verdict("more records are equal than by chance")
    return Verdict(few=tuple(few))


# Sketches -------------------------------------------------------------------------------------------------------------

WHOLE = 2**63  # the limit of a sketch that holds the hashes of all records
MOST = 2**20  # different records in a sketch


@dataclass(frozen=True)
class RecordSummary:
    """A summary of the records of a source.

    Attributes:
        records: The number of records.
        fingerprint: A digest of all records, which does not depend on their order.
        limit: The ledger keeps only the smallest hashes of the records (``RecordSketch``): those below this number.
    """

    records: int
    fingerprint: str
    limit: int = WHOLE


@dataclass(frozen=True)
class RecordSketch:
    """The smallest hashes of the records of a table, by which tables are compared without their records.

    Attributes:
        hashes: k different hashes in ascending order (k,).
        records: The number of records with each hash (k,), divided by the greatest common divisor of these numbers. So
            a table in which every record occurs twice has the same sketch as the table itself.
        summary: The number of all records, and their fingerprint.
    """

    hashes: NDArray[np.int64]
    records: NDArray[np.int64]
    summary: RecordSummary

    @staticmethod
    def collect(hashed: Iterable[HashedRecords]) -> RecordSketch:
        """Make the sketch of a table: keep the ``MOST`` smallest different hashes of its records.

        Args:
            hashed: The hashes of all records in batches, in any order; 63 of their 64 bits are kept.
        """
        kept: list[HashedRecords] = [_NO_HASHES]
        held, limit, total = 0, WHOLE, RecordSum()
        for found, times in hashed:
            total.add_hashes(found, times)
            smaller = found >> np.uint64(1)
            is_small = smaller < np.uint64(limit)
            kept.append((smaller[is_small], None if times is None else times[is_small]))
            held += len(kept[-1][0])
            if held > 2 * MOST:  # rarely, since it sorts
                smallest, counts, limit = _keep_smallest(kept, limit)
                kept, held = [(smallest, counts)], len(smallest)
        hashes, counts, limit = _keep_smallest(kept, limit)
        return RecordSketch._summarize(total, hashes.astype(np.int64), counts, limit)

    @staticmethod
    def collect_there(db: Relations, hashed: exp.Query) -> RecordSketch:
        """Make the sketch inside the engine that holds the hashes, and fetch only the sketch.

        Args:
            db: The engine.
            hashed: A query for the hashes, as two halves (high, low).
        """
        db.create_table("record_hashes", hashed, title="Hashing the records")
        hashes = temp_table("record_hashes")
        total = sum_hashes(db, hashes)
        limit = WHOLE if total.records <= MOST else 2 * WHOLE * MOST // total.records
        while True:
            holes: Holes = {"hashes": hashes, "lower": upper_bits(column("low", "r"))}
            holes |= {"limit": exp.Literal.number(min(limit, WHOLE) - 1), "most": exp.Literal.number(MOST + 1)}
            with db.stream_batches(fill("ledger/smallest", holes), BATCH) as rows:
                found = rows.read_all()
            if found.num_rows > MOST or limit >= WHOLE:
                break
            limit *= 16  # few of the records are different
        db.drop("record_hashes")
        smallest, counts = (found[name].to_numpy() for name in ("hash", "records"))
        limit = int(smallest[MOST]) if len(smallest) > MOST else WHOLE
        return RecordSketch._summarize(total, smallest[:MOST], counts[:MOST], limit)

    @staticmethod
    def _summarize(total: RecordSum, hashes: Ints, counts: Ints, limit: int) -> RecordSketch:
        divided = counts // np.gcd.reduce(counts) if len(counts) else counts
        return RecordSketch(hashes, divided, RecordSummary(total.records, total.fingerprint, limit))

    def as_table(self) -> pa.Table:
        """Return the smallest hashes of the records as an Arrow table (hash, number of records that have it)."""
        return pa.table({"hash": self.hashes, "records": self.records})

    def sample_below(self, limit: int) -> TableSample:
        """Return counts of the records whose hashes lie below a limit.

        Two tables are compared by these counts, with a limit below which both sketches are complete.
        """
        counts = self.records[: np.searchsorted(self.hashes, min(limit, WHOLE - 1))]
        often = (int((counts == times).sum()) for times in range(1, 5))
        return TableSample(int(counts.sum()), len(counts), tuple(often))


_NO_HASHES: HashedRecords = np.zeros(0, np.uint64), None


def _keep_smallest(parts: Sequence[HashedRecords], limit: int) -> tuple[Hashes, Ints, int]:
    """Return the ``MOST`` smallest different hashes, which a ledger keeps to recognize the records of a table.

    Args:
        parts: Arrays of hashes, each with the number of records per hash; None stands for one record each.
        limit: The limit so far: all hashes below it are in ``parts``.

    Returns:
        The hashes, ascending; the number of records of each; and the new limit, below which no hash was dropped.
    """
    hashes = np.concatenate([one for one, _ in parts])
    order = None
    if all(times is None for _, times in parts):
        hashes.sort()  # twice as fast as their order
    else:
        order = np.argsort(hashes)
        hashes = hashes[order]
    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    if order is None:
        sums = np.diff(begins, append=len(hashes))
    else:
        counts = [np.ones(len(one), np.int64) if times is None else times for one, times in parts]
        sums = np.add.reduceat(np.concatenate(counts)[order], begins)
    different = hashes[begins]
    return different[:MOST], sums[:MOST], int(different[MOST]) if len(different) > MOST else limit
