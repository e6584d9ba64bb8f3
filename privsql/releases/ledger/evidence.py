"""Decide from what two releases have in common whether they are of the same people."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product
from math import inf, lgamma, log
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, comparable_text, fill, temp_table
from privsql.model.packing import (
    BATCH,
    SECRET,
    RecordSum,
    hash_texts,
    key_word,
    keyed_digest,
    secret_word,
    sum_hashes,
    upper_bits,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.model.packing import Hashes, PackedColumn
    from privsql.model.records import HashedRecords, Ints, Records

# Evidence -------------------------------------------------------------------------------------------------------------
# Decide whether two releases hold the same people, from what they have in common.
#
# Names decide where they can: ids or persons in both releases are the same people, whatever their values. Names that
# could be mere numbering (1, 2, ..) decide if the values beside them agree. Otherwise equal records decide, and if
# columns are missing, columns that hold the same values equally often. Evidence that could be chance counts only if
# chance explains fewer than one pair of releases in a million (``CHANCE``); the bounds hold for tables of any size.

CHANCE = log(1e-6)
WHOLE = 2**63  # the limit of a sketch that holds all records
EXACT = 2**20  # records of which a sketch holds all
SAMPLE = 2**16  # different records in the sketch of more than these
DEVIATIONS = 5  # of equal records: beyond so many standard deviations, one in three million
SPACE = "ids of something else have a source.id_space of their own"


@dataclass(frozen=True)
class RecordSummary:
    """Records of a source: how many, and a fingerprint of all; how many hashes of a sketch stand once and twice.

    ``limit``: the sketch holds the hashes below it.
    """

    records: int
    once: int
    twice: int
    fingerprint: str
    limit: int = WHOLE


@dataclass(frozen=True)
class RecordSketch:
    """The smallest hashes of records, (k,) ascending, and how many records have each (k,)."""

    hashes: NDArray[np.int64]
    records: NDArray[np.int64]
    summary: RecordSummary

    @staticmethod
    def collect(hashed: Iterable[HashedRecords], records: int) -> RecordSketch:
        """Collect hashes of 63 bits, in any order: all of at most ``EXACT`` records, else the ``SAMPLE`` smallest."""
        most = records if records <= EXACT else SAMPLE
        hashes, counts, limit = np.zeros(0, np.uint64), np.zeros(0, np.int64), WHOLE
        total = RecordSum()
        for found, times in hashed:
            total.add_hashes(found, times)
            weights = np.ones(len(found), np.int64) if times is None else times
            small = found >> np.uint64(1) < np.uint64(limit)
            hashes, counts = np.append(hashes, found[small] >> np.uint64(1)), np.append(counts, weights[small])
            if len(hashes) > 2 * most:  # seldom, since this sorts
                hashes, counts, limit = _keep_smallest(hashes, counts, most, limit)
        hashes, counts, limit = _keep_smallest(hashes, counts, most, limit)
        return RecordSketch._summarize(total, hashes.astype(np.int64), counts, limit)

    @staticmethod
    def collect_there(db: Relations, hashed: exp.Query) -> RecordSketch:
        """Collect hashes (high, low) where they are: what comes here is no longer than a sketch."""
        db.create_table("record_hashes", hashed, title="Hashing the records")
        hashes = temp_table("record_hashes")
        total = sum_hashes(db, hashes)
        most = total.records if total.records <= EXACT else SAMPLE
        limit = WHOLE if most == total.records else min(WHOLE, 2 * WHOLE * most // total.records)
        while True:
            holes: Holes = {"hashes": hashes, "lower": upper_bits(column("low", "r"))}
            holes |= {"limit": exp.Literal.number(limit - 1), "most": exp.Literal.number(most + 1)}
            with db.stream_batches(fill("ledger/smallest", holes), BATCH) as rows:
                found = rows.read_all()
            if found.num_rows > most or limit == WHOLE:
                break
            limit = min(WHOLE, 16 * limit)  # few of the records are different
        db.drop("record_hashes")
        smallest, counts = (found[name].to_numpy() for name in ("hash", "records"))
        limit = int(smallest[most]) if len(smallest) > most else WHOLE
        return RecordSketch._summarize(total, smallest[:most], counts[:most], limit)

    @staticmethod
    def _summarize(total: RecordSum, hashes: Ints, counts: Ints, limit: int) -> RecordSketch:
        once, twice = _count_times(counts)
        return RecordSketch(hashes, counts, RecordSummary(total.records, once, twice, total.fingerprint, limit))

    def as_table(self) -> pa.Table:
        """Return (hash, records)."""
        return pa.table({"hash": self.hashes, "records": self.records})

    def summarize_below(self, limit: int) -> RecordSummary:
        """Return the summary of the records whose hashes lie below a limit."""
        if limit >= self.summary.limit and self.summary.limit == WHOLE:
            return self.summary
        counts = self.records[: np.searchsorted(self.hashes, min(limit, WHOLE - 1))]
        once, twice = _count_times(counts)
        summary, limit = self.summary, min(limit, self.summary.limit)
        return RecordSummary(int(counts.sum()), once, twice, summary.fingerprint, limit)


def _count_times(counts: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many hashes stand once and twice."""
    return int((counts == 1).sum()), int((counts == 2).sum())


def _keep_smallest(hashes: Hashes, counts: Ints, most: int, limit: int) -> tuple[Hashes, Ints, int]:
    """Return the ``most`` smallest different hashes, the sum of the counts of each, and below which limit they lie."""
    order = np.argsort(hashes)
    hashes = hashes[order]
    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    different, sums = hashes[begins], np.add.reduceat(counts[order], begins) if len(hashes) else counts
    return different[:most], sums[:most], int(different[most]) if len(different) > most else limit


@dataclass(frozen=True)
class Histogram:
    """The histogram of a column: its digest, and what ``log_chance`` is of it."""

    column: str
    digest: str
    log_chance: float


@dataclass(frozen=True)
class Agreement:
    """A column along ``names`` common names: values that are ``equal``, and ``expected`` ones if names are shuffled."""

    column: str
    names: int
    equal: int
    expected: float

    @property
    def log_chance(self) -> float:
        """Bound on the logarithm of the chance that a random pairing has as many equal values.

        With mean m of the matches X: P(X >= k) <= E[C(X, k)] <= m^k / k!, and by Chatterjee (2007), theorem 1.5,
        P(X >= m + t) <= exp(-t^2 / (4 m + 2 t)), for mismatches n - X exp(-t^2 / (4 (n - m))).
        """
        mean, beyond = self.expected, self.equal - self.expected
        if beyond <= 0:
            return 0.0
        few = self.equal * log(mean) - lgamma(self.equal + 1) if mean > 0 else -inf
        many = -(beyond**2) / (4 * mean + 2 * beyond)
        nearly_all = -(beyond**2) / (4 * (self.names - mean)) if self.names > mean else 0.0
        return min(0.0, few, many, nearly_all)


@dataclass(frozen=True)
class CommonNames:
    """Ids, or persons, that both releases hold.

    ``tells``: other names are other people, too; ``numbering``: they could be mere numbers in both; ``spaces``: what
    each publisher states that they belong to; ``columns``: how values agree along them.
    """

    kind: Literal["ids", "persons"]
    common: int
    tells: bool = True
    numbering: bool = False
    spaces: tuple[str | None, str | None] = (None, None)
    columns: tuple[Agreement, ...] = ()

    @property
    def differ_in_space(self) -> bool:
        """Return whether they are stated to belong to different things."""
        ours, theirs = self.spaces
        return ours is not None and theirs is not None and ours != theirs

    @property
    def share_space(self) -> bool:
        """Return whether they are stated to belong to the same thing."""
        ours, theirs = self.spaces
        return ours is not None and ours == theirs


@dataclass(frozen=True)
class CommonRecords:
    """Two tables, compared by the same columns or by such as hold the same values, below the limits of both sketches.

    ``their_equal``, ``our_equal``: records with an equal one in the other; ``pairs``: of equal ones, each in one pair.
    """

    ours: RecordSummary
    theirs: RecordSummary
    their_equal: int = 0
    our_equal: int = 0
    pairs: int = 0

    @property
    def exceeds_chance(self) -> bool:
        """Return whether two tables have more equal records than two samples of one population would have.

        By Good and Turing a further record of the population of the larger table, n records, is unlike all of them with
        probability N1 / n, where N1 of them are unlike all others; N2 pairs are alike. So of the m records of the
        smaller one about m (1 - N1 / n) have an equal one by chance, with variance m p (1 - p) + (m / n)^2 (N1 + 2 N2).
        All of them are a copy at once where chance would not do that: if most records of the larger table are unlike
        all others.
        """
        ours, theirs = self.ours, self.theirs
        if not (ours.records and theirs.records):
            return False
        if (ours.records, ours.fingerprint) == (theirs.records, theirs.fingerprint):
            return True
        small, large, equal = ours, theirs, self.our_equal
        if ours.records > theirs.records:
            small, large, equal = theirs, ours, self.their_equal
        if self.pairs == small.records and 2 * large.once >= large.records and _is_beyond_chance(small, large):
            return True
        chance, share = 1 - Fraction(large.once, large.records), Fraction(small.records, large.records)
        beyond = equal - small.records * chance
        variance = small.records * chance * (1 - chance) + share**2 * (large.once + 2 * large.twice)
        return beyond > 0 and beyond**2 > DEVIATIONS**2 * variance


@dataclass(frozen=True)
class EqualColumns:
    """A column of each that hold the same values equally often; ``log_chance`` bounds how likely other people do so."""

    ours: str
    theirs: str
    log_chance: float


@dataclass(frozen=True)
class Evidence:
    """Evidence on a release and a source.

    ``same_source``: the release is of this source, by its name; ``named``: ids or persons stand in both; ``missing``:
    columns of the release that the source has not; ``compared``: pairs of columns that were looked at.
    """

    same_source: bool = False
    named: bool = False
    names: tuple[CommonNames, ...] = ()
    records: tuple[CommonRecords, ...] = ()
    missing: bool = False
    columns: tuple[EqualColumns, ...] = ()
    compared: int = 1


@dataclass(frozen=True)
class Verdict:
    """Why both hold the same people, empty where they do not; ``assumed``: because nothing tells that they are others.

    The words stand in releases, so they hold no numbers of records.
    """

    why: str = ""
    assumed: bool = False

    @property
    def is_same(self) -> bool:
        """Return whether both hold the same people: whatever makes them so has a reason."""
        return bool(self.why)


def judge_evidence(evidence: Evidence) -> Verdict:
    """Decide whether a release and a source hold the same people."""
    relevant = [names for names in evidence.names if not names.differ_in_space]
    for names in relevant:
        why = _explain_by_names(names, same_source=evidence.same_source)
        if why:
            return Verdict(why)
    if evidence.same_source and not any(names.tells for names in relevant):
        names_records = "source.id names records, not persons: " if evidence.named else "without source.id "
        return Verdict(f"{names_records}its people may be here again", assumed=True)
    if any(one.exceeds_chance for one in evidence.records):
        return Verdict("more records are equal than by chance")
    least = min(evidence.columns, key=lambda one: one.log_chance, default=None)
    if evidence.missing and least is not None and least.log_chance + log(evidence.compared) < CHANCE:
        return Verdict(f"column {least.ours!r} holds the values of its column {least.theirs!r} equally often")
    return Verdict()


def _explain_by_names(names: CommonNames, *, same_source: bool) -> str:
    """Why common names are the same people; empty where they need not be."""
    if not names.common:
        return ""
    if same_source or names.share_space or not names.numbering:
        return f"some of its {names.kind} are here"
    for one in names.columns:
        if one.log_chance + log(len(names.columns)) < CHANCE:
            return f"{one.column} agrees along its {names.kind} more than by chance; {SPACE}"
    return ""


def _is_beyond_chance(small: RecordSummary, large: RecordSummary) -> bool:
    """Return whether chance would not find all records of the smaller table in the larger one, if both are samples.

    Whole tables are compared as they are: one that holds a few records, all of them another's, is a part of that.
    """
    unlike = large.once / large.records
    return small.limit == WHOLE or unlike == 1 or small.records * log(1 - unlike) < CHANCE


def log_chance(histogram: Mapping[int, int]) -> float:
    """Bound on the logarithm of the chance that another sample has exactly this histogram.

    ``histogram``: how many values occur so many times. Whatever the population is, a sample of n records has the
    frequencies h_i with probability n! / prod h_i! prod p_i^h_i, which is largest where p_i = h_i / n.

    >>> round(log_chance({1: 1, 5: 1}), 2), log_chance({7: 1})
    (-0.91, 0.0)
    """
    records = sum(times * values for times, values in histogram.items())
    if not records:
        return 0.0
    logarithm = lgamma(records + 1) - records * log(records)
    logarithm -= sum(values * (lgamma(times + 1) - times * log(times)) for times, values in histogram.items())
    return min(0.0, logarithm)


# Histograms -----------------------------------------------------------------------------------------------------------
# Identify columns by the frequencies of their values, in any order and under any name.
#
# The ledger stores a digest of a column's histogram, and the probability that other people have the same one.

MOST = 64  # columns of a release whose histograms are taken
TRIED = 6  # ways to tell which column is which, where several have one histogram


def take_histograms(source: Records, columns: Sequence[str], key: Key) -> tuple[Histogram, ...]:
    """Count how often the values of published columns stand in the source."""
    histograms = []
    source.db.register_arrow(SECRET, secret_word(key))
    for name, (value, kind) in source.values_of(columns[:MOST]).items():
        packed = source.find_packed(value)
        rows = _count_packed(packed, key) if packed is not None else _count_in_sql(source, value, kind)
        likely = log_chance({int(times): int(kinds) for times, kinds, _ in rows})
        histograms.append(Histogram(name, str(sum(int(part) for _, _, part in rows)), likely))
    source.db.drop(SECRET)
    return tuple(histograms)


def _count_in_sql(source: Records, value: exp.Expr, kind: str) -> list[tuple[int, int, int]]:
    """Count how often the values of a column stand in a source, as of ``sql/ledger/histogram.sql``."""
    digest = keyed_digest(source.db, comparable_text(column("value"), kind))
    holes: Holes = {"source": temp_table("source"), "value": value, "digest": digest, "keep": source.keep_predicate}
    return [(times, kinds, part) for times, kinds, part in source.db.rows(fill("ledger/histogram", holes))]


def _count_packed(packed: PackedColumn, key: Key) -> list[tuple[int, int, int]]:
    """Count how often the values of a packed column stand in a source, with the same digest in all."""
    hashes = hash_texts(packed.texts[0], key_word(key)).tolist()
    times, kinds = np.unique(packed.records, return_counts=True)
    digest = sum(one * records for one, records in zip(hashes, packed.records.tolist(), strict=True))
    return [(one, many, digest if i == 0 else 0) for i, (one, many) in enumerate(zip(times, kinds, strict=True))]


def pair_columns(ours: Sequence[Histogram], theirs: Sequence[Histogram]) -> tuple[EqualColumns, ...]:
    """List the pairs of columns with equal histograms."""
    return tuple(
        EqualColumns(one.column, other.column, one.log_chance)
        for one, other in product(ours, theirs)
        if one.digest == other.digest
    )


def propose_columns(ours: Sequence[Histogram], theirs: Sequence[Histogram]) -> Iterator[list[str]]:
    """Yield our columns in the order of theirs, by equal histograms; a few times where several have the same one."""
    fitting = [[one.column for one in ours if one.digest == other.digest] for other in theirs]
    chosen = (list(names) for names in product(*fitting) if len(set(names)) == len(names))
    return islice(chosen, TRIED)
