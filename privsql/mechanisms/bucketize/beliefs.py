"""Compute thresholds, bounds on groups, chances of fake values, and the beliefs that a bucketized release gives."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.engine.database import IntervalFunctions
from privsql.engine.files import fold_name, label_value
from privsql.engine.sqlfiles import Holes, Roles, alias_as, column, fill, same_columns, table, temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import as_fraction, fraction_text
from privsql.mechanisms.base import WEIGHTED, Views
from privsql.mechanisms.bucketize.parameters import (
    BeliefFacts,
    BucketizeFacts,
    GroupBoundFacts,
    HighestBeliefFacts,
    SureFacts,
    SureFactsByColumn,
)
from privsql.model.manifest import QUASI, SENSITIVE, Manifest, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.parameters import BucketFacts, Bucketize, Threshold
    from privsql.model.records import Records

    PartQuery = Callable[["SensitiveColumn", str], Sequence[Fraction]]

# Tables ---------------------------------------------------------------------------------------------------------------

TABLES = {
    "qit": ReleaseTable((QUASI, "bid INTEGER")),
    "st": ReleaseTable(("bid INTEGER", SENSITIVE, "count INTEGER")),
    "privsql_values": ReleaseTable(
        (
            "code INTEGER", SENSITIVE, "records BIGINT", "numerator DECIMAL(38,0)", "denominator DECIMAL(38,0)",
            "deviation DOUBLE",
        )
    ),
    "privsql_channel": ReleaseTable(("size INTEGER", "first INTEGER", "second INTEGER", "pairs BIGINT")),
    "privsql_estimator": ReleaseTable(("listed INTEGER", "value INTEGER", "weight DOUBLE")),
}  # fmt: skip


def make_views(manifest: Manifest) -> Views:
    """Return the views over QIT and ST: by the linear estimator, where the release holds one, and pair by pair."""
    roles, sa_names = manifest.roles, manifest.roles.by_sa
    facts = BucketizeFacts.model_validate(manifest.facts)
    size = size_of_bucket(facts.sizes, sa_names.as_column("bid", "st"))
    fakes = exp.Literal.number(facts.fake_values)
    holes: Holes = {
        "qit": table("qit"),
        "st": table("st"),
        "qi": [alias_as(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "size": exp.paren(exp.Add(this=size, expression=fakes)) if facts.fake_values else size,
        "count": sa_names.as_column("count", "st"),
        "qit_bid": roles.by_qi.as_column("bid", "qit"),
        "st_bid": sa_names.as_column("bid", "st"),
        **roles.by_all.alias_holes("weight"),
    }
    pairs = fill("bucketize/pairs", {**holes, "sa": [alias_as(column(f.name, "st"), f.name) for f in roles.sensitive]})
    if facts.weighting == "share":
        return {WEIGHTED: pairs, "pairs": pairs.copy()}
    holes |= {
        "values": table("privsql_values"),
        "estimator": table("privsql_estimator"),
        "sa": [alias_as(column(f.name, "named"), f.name) for f in roles.sensitive],
        "same_value": same_columns("st", "listed", [f.name for f in roles.sensitive]),
        "listed_code": sa_names.as_column("code", "listed"),
        "named_code": sa_names.as_column("code", "named"),
        "deviation": sa_names.as_column("deviation", "named"),
        **roles.by_all.alias_holes("variance"),
    }
    return {WEIGHTED: fill("bucketize/weighted", holes), "pairs": pairs}


def make_functions(manifest: Manifest) -> IntervalFunctions | None:
    """Return the functions that count rows of the weighted view; None where weights are shares, which are biased."""
    is_linear = BucketizeFacts.model_validate(manifest.facts).weighting == "linear"
    return IntervalFunctions(manifest.published_records) if is_linear else None


def size_of_bucket(sizes: Sequence[tuple[int, int]], bid: exp.Expr) -> exp.Expr:
    """Return |g| by the bucket's number: they are numbered by size, so a CASE over the sizes replaces a join.

    ``sizes``: the setting, size and number of buckets.
    """
    ends = np.cumsum([buckets for _, buckets in sizes]).tolist()
    case = exp.Case()
    for (size, _), end in zip(sizes[:-1], ends[:-1], strict=True):
        case = case.when(exp.LT(this=bid.copy(), expression=exp.Literal.number(end)), exp.Literal.number(size))
    last = exp.Literal.number(sizes[-1][0])
    # A bare number in GROUP BY would be read as a position in the select list.
    return case.else_(last) if len(sizes) > 1 else exp.cast(last, "INTEGER")


# Certain values -------------------------------------------------------------------------------------------------------
# Values that a release makes certain (belief 1), which its publisher must have allowed.
#
# A rule such as ``2*f + 0.02`` is 1 for a value of half of the records, and a threshold below 1 on a compound value
# lets one of its columns be the same in a whole bucket. Who writes a threshold as 1, as a constant, for a value or by a
# query, has said so; for all others there is ``allow_certain``. Fake values leave no listed value certain by itself.

SHOWN_VALUES = 5  # values that a message names


def allowed_values(params: Bucketize, labels: Sequence[str], thresholds: Sequence[Fraction]) -> list[int] | None:
    """Codes of the values whose threshold the publisher wrote as 1, value by value.

    None where nothing has to be allowed: it is, fakes hide values, or every threshold is written as 1.
    """
    threshold = params.threshold
    if params.allow_certain or params.fake_values or (threshold.is_constant and str(threshold.default) == "1"):
        return None
    ones = (code for code, value in enumerate(thresholds) if value == 1)
    return [code for code in ones if threshold.query is not None or threshold.values.get(labels[code]) == 1]


def refuse_certainty(certain: Mapping[str, int]) -> None:
    """``InfeasibleError`` if a value is certain: names it, and says of how many records."""
    if not certain:
        return
    examples = [f"{name} ({number:,} records)" for name, number in list(certain.items())[:SHOWN_VALUES]]
    more = f" and {len(certain) - SHOWN_VALUES:,} more" if len(certain) > SHOWN_VALUES else ""
    raise InfeasibleError(
        f"some values would be certain: {', '.join(examples)}{more}; take a threshold below 1, larger buckets, or "
        "a bound for one of several columns ([mechanism.components]); to allow them, write their threshold as 1 or "
        "give allow_certain=True",
        {"certain": dict(certain)},
    )


# Bounds on groups of values -------------------------------------------------------------------------------------------
# What is bounded besides single values: columns of a compound sensitive attribute, and named groups of values.
#
# Both are sets of sensitive values with a threshold each: in every bucket g the values of a set G together have at most
# floor(f'_G |g|) records. The set of ``disease = flu`` holds all combinations with that disease.


@dataclass(frozen=True)
class GroupBound:
    """A set of values, by their ranks in ascending order, that may have ``threshold`` of a bucket together."""

    name: str
    members: tuple[int, ...]
    threshold: Fraction

    def as_fact(self) -> GroupBoundFacts:
        """Return what the manifest states."""
        return GroupBoundFacts(name=self.name, codes=list(self.members), threshold=str(self.threshold))


def stated_bounds(facts: BucketFacts) -> list[GroupBound]:
    """Return the bounds that facts state."""
    return [GroupBound(one.name, tuple(one.codes), Fraction(one.threshold)) for one in facts.bounds]


@dataclass(frozen=True)
class SensitiveColumn:
    """One sensitive column, or all together: the rank of its part in every value (m,), its parts as text, by rank.

    ``title``: what it is called in messages.
    """

    name: str
    key: str
    title: str
    ranks: Sequence[int]
    labels: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """Return the text of its part in every value (m,)."""
        return [self.labels[rank] for rank in self.ranks]

    def bound_name(self, rank: int) -> str:
        """Return what the bound on one of the parts is called."""
        return f"{self.name} = {self.labels[rank]}"

    def find_members(self, ranks: set[int]) -> tuple[int, ...]:
        """The values with one of these parts."""
        return tuple(i for i, rank in enumerate(self.ranks) if rank in ranks)


@dataclass(frozen=True)
class SensitiveValues:
    """The sensitive values: each column, all columns together, and records (m,)."""

    columns: tuple[SensitiveColumn, ...]
    whole: SensitiveColumn
    counts: Sequence[int]

    def count_records(self, members: Sequence[int]) -> int:
        """How many records have one of them."""
        return sum(self.counts[i] for i in members)

    def find_column(self, name: str, where: str) -> SensitiveColumn:
        """Return a sensitive column by its name; ``UsageError`` if it is not sensitive."""
        sensitive = next((part for part in self.columns if fold_name(part.name) == fold_name(name)), None)
        if sensitive is None:
            known = ", ".join(part.name for part in self.columns)
            raise UsageError(f"{where}: {name!r} is not a sensitive column; these are {known}")
        return sensitive


def read_values(db: Relations, domain: exp.Table, roles: Roles, counts: Sequence[int]) -> SensitiveValues:
    """The values of ``domain``(code, s0..), codes 0, 1, .., with their records."""
    columns = []
    for sensitive_field, key in zip(roles.sensitive, roles.sa_keys, strict=True):
        rows = db.rows(fill("bucketize/parts", {"domain": domain, "key": column(key, "d")}))
        labels = dict(sorted((int(part), label_value([text])) for _, part, text, _ in rows))
        name, ranks = sensitive_field.name, [int(row[1]) for row in rows]
        columns.append(SensitiveColumn(name, key, f"column {name}", ranks, tuple(labels.values())))
    texts = tuple(map(label_value, zip(*(part.texts for part in columns), strict=True)))
    title = "the sensitive column"
    if len(columns) > 1:
        title += f"s together, such as {texts[0]!r}; for values of one name it as column"
    return SensitiveValues(tuple(columns), SensitiveColumn("", "", title, range(len(texts)), texts), counts)


def make_bounds(params: Bucketize, values: SensitiveValues, query: PartQuery) -> tuple[GroupBound, ...]:
    """All bounds on sets of values; ``UsageError`` names what is wrong with one.

    ``query``: the thresholds that a publisher's query gives for the parts of a column.
    """
    return (*_component_bounds(params, values, query), *_group_bounds(params, values))


def _component_bounds(params: Bucketize, values: SensitiveValues, query: PartQuery) -> Iterator[GroupBound]:
    """One set for every part of every column that is named."""
    for name, threshold in params.components.items():
        where = f"mechanism.components.{name}"
        part = values.find_column(name, where)
        if len(values.columns) == 1:
            raise UsageError(f"{where}: there is one sensitive column, and threshold bounds its values; leave this out")
        sets = [part.find_members({rank}) for rank in range(len(part.labels))]
        try:
            counts = [values.count_records(members) for members in sets]
            fractions = (
                query(part, threshold.query) if threshold.query else threshold.thresholds_for(part.labels, counts)
            )
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from error
        for rank, (members, value) in enumerate(zip(sets, fractions, strict=True)):
            yield GroupBound(part.bound_name(rank), members, value)


def _group_bounds(params: Bucketize, values: SensitiveValues) -> Iterator[GroupBound]:
    """One set for every named group, and for every list inside it."""
    total = sum(values.counts)
    for name, group in params.groups.items():
        where = f"mechanism.groups.{name}"
        part = values.find_column(group.column, where) if group.column is not None else values.whole
        for set_name, names in group.list_sets(name):
            unknown = sorted(set(names) - set(part.labels))
            if unknown:
                raise UsageError(f"{where}: {unknown[0]!r} is not a value of {part.title}")
            members = part.find_members({rank for rank, label in enumerate(part.labels) if label in set(names)})
            try:
                yield GroupBound(set_name, members, group.threshold_at(values.count_records(members), total))
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from error


# Beliefs --------------------------------------------------------------------------------------------------------------
# How far beliefs go: for each value of each single sensitive column, the largest share of a bucket that has it.
#
# For a value v of a column: max over buckets g of (sum of count(g, x) over the x with v in that column)/|g|, in exact
# fractions. Of several sensitive columns the combination is what thresholds bound; a single one of them can go further.
# Where listed values may be fake, these are upper bounds: whatever is fake, no more than |g| of the listed are real.

ColumnBeliefs = tuple[dict[str, Fraction], SureFacts]  # the highest belief in each value, as text; records


def state_beliefs(
    overall: Fraction, sure: SureFacts, columns: Mapping[str, ColumnBeliefs], bounded: Mapping[str, Fraction]
) -> BeliefFacts:
    """Return ``highest_belief`` and ``certain``; fractions as exact texts.

    ``overall``: the highest belief in a whole sensitive value; ``sure``: records, in any single column; ``columns``: of
    every single sensitive column; ``bounded``: the highest belief in each set of values that has a bound, by its name.
    """
    components = {name: {one: fraction_text(most) for one, most in of.items()} for name, (of, _) in columns.items()}
    texts = {name: fraction_text(most) for name, most in bounded.items()}
    highest = HighestBeliefFacts(overall=fraction_text(overall), components=components, bounded=texts)
    records = {name: one for name, (_, one) in columns.items()}
    certain = SureFactsByColumn(certain=sure.certain, above_half=sure.above_half, components=records)
    return BeliefFacts(highest_belief=highest, certain=certain)


@dataclass(frozen=True)
class SensitiveTable:
    """ST of a release (bid, s0.., count) and its ``values`` (code, s0..); ``facts`` state the setting and bounds."""

    db: Relations
    roles: Roles
    facts: BucketFacts
    st: exp.Table
    values: exp.Table

    def size_of(self, alias: str) -> exp.Expr:
        """Return |g| by the number of a bucket, ``bid`` of a relation."""
        return size_of_bucket(self.facts.sizes, column("bid", alias))

    def list_held(self) -> dict[str, exp.Query]:
        """Return (bid, s_k, held) by sensitive column: how many values of a bucket agree in it."""
        if len(self.roles.sensitive) > 1:
            return {key: fill("bucketize/held", {"st": self.st, "sa": [column(key)]}) for key in self.roles.sa_keys}
        listed = exp.select("bid", *self.roles.sa_columns(), alias_as(column("count"), "held")).from_(self.st)
        return {self.roles.sa_keys[0]: listed}

    def measure_beliefs(self) -> BeliefFacts:
        """Return how far beliefs go."""
        columns, parts = {}, []
        for (key, query), sensitive_field in zip(self.list_held().items(), self.roles.sensitive, strict=True):
            held: exp.Expr = query.subquery()
            if len(self.roles.sensitive) > 1:  # what is grouped is read more than once
                self.db.create_table(f"held_{key}", query)
                held = temp_table(f"held_{key}")
            peaks = self._read_peaks(held)
            sure = _count_sure(peaks)
            columns[sensitive_field.name] = self.find_highest(held, column(key, "h")), sure
            parts.append(exp.select("bid", "held").from_(held))
        if len(parts) > 1:
            peaks = self._read_peaks(exp.select("bid", alias_as(column("count"), "held")).from_(self.st).subquery())
            sure = _count_sure(self._read_peaks(exp.union(*parts, distinct=False).subquery()))
        overall = max(_bucket_share(size, most) for size, most, _ in peaks)
        self.db.drop(*(f"held_{key}" for key in self.roles.sa_keys))
        bounded: dict[str, Fraction] = {}
        for one, most in self.measure_bounds():
            bounded[one.name] = max(bounded.get(one.name, most), most)  # NULL and a text may be called the same
        return state_beliefs(overall, sure, columns, bounded)

    def measure_bounds(self) -> list[tuple[GroupBound, Fraction]]:
        """Return every set of values with a bound, and the highest belief in it."""
        stated = stated_bounds(self.facts)
        if not stated:
            return []
        numbers = np.repeat(np.arange(len(stated)), [len(one.members) for one in stated])
        codes = np.array([code for one in stated for code in one.members], dtype=np.int64)
        self.db.register_arrow("sets", pa.table({"bound": numbers, "code": codes}))
        holes: Holes = {"st": self.st, "values": self.values, "members": temp_table("sets")}
        holes["same_value"] = same_columns("st", "v", self.roles.sa_keys)
        highest = self.find_highest(fill("bucketize/together", holes).subquery(), column("bound", "h"))
        self.db.drop("sets")
        return [(one, highest.get(str(bound), Fraction(0))) for bound, one in enumerate(stated)]

    def find_highest(self, held: exp.Expr, key: exp.Expr) -> dict[str, Fraction]:
        """The highest belief in every value of a column of ``held``, by its text."""
        holes: Holes = {"held": held, "key": key, "label": exp.cast(key, "VARCHAR"), "size": self.size_of("h")}
        highest: dict[str, Fraction] = {}
        for value, size, most in sorted(self.db.rows(fill("bucketize/highest", holes)), key=str):
            text = "NULL" if value is None else str(value)
            highest[text] = max(highest.get(text, Fraction(0)), _bucket_share(size, most))
        return highest

    def _read_peaks(self, held: exp.Expr) -> list[tuple[int, int, int]]:
        """(size, most, buckets): read where a value stands several times; all other buckets hold every value once."""
        rows = self.db.rows(fill("bucketize/peaks", {"held": held, "size": self.size_of("h")}))
        peaks = [(int(size), int(most), int(buckets)) for size, most, buckets in rows]
        left = Counter(dict(self.facts.sizes))
        for size, _, buckets in peaks:
            left[size] -= buckets
        return [*peaks, *((size, 1, buckets) for size, buckets in left.items() if buckets > 0)]

    def count_certain(self, excused: Sequence[int]) -> dict[str, int]:
        """Return by value, of how many records it is certain; ``excused``: codes of values that may be.

        Values of several sensitive columns stand behind the column's name.
        """
        self.db.register_arrow("c_excused", pa.table({"code": np.array(excused, dtype=np.int32)}))
        holes: Holes = {"st": self.st, "values": self.values, "excused": temp_table("c_excused")}
        holes |= {"same_value": same_columns("st", "v", self.roles.sa_keys), "size": self.size_of("st")}
        self.db.create_table("c_filled", fill("bucketize/filled", holes))
        certain = {}
        for (key, held), each_field in zip(self.list_held().items(), self.roles.sensitive, strict=True):
            holes = {"held": held.subquery(), "filled": temp_table("c_filled"), "size": self.size_of("h")}
            holes |= {"key": column(key, "h"), "label": exp.cast(column(key, "h"), "VARCHAR")}
            prefix = "" if len(self.roles.sensitive) == 1 else f"{each_field.name}: "
            for value, records in sorted(self.db.rows(fill("bucketize/certain", holes)), key=str):
                certain[f"{prefix}{label_value([value])}"] = int(records)
        self.db.drop("c_excused", "c_filled")
        return certain


def _bucket_share(size: int, most: int) -> Fraction:
    return min(Fraction(1), Fraction(int(most), int(size)))


def _count_sure(peaks: Sequence[tuple[int, int, int]]) -> SureFacts:
    certain = sum(size * buckets for size, most, buckets in peaks if most >= size)
    above_half = sum(size * buckets for size, most, buckets in peaks if 2 * most > size)
    return SureFacts(certain=certain, above_half=above_half)


# Thresholds -----------------------------------------------------------------------------------------------------------

EXACT_TYPES = ("DECIMAL", "VARCHAR", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
MAX_BITS = 126  # counts times denominators are compared as HUGEINT


def compute_thresholds(db: Relations, domain: Records, spec: Threshold) -> tuple[Fraction, ...]:
    """f'_i (m,) in (0, 1]; ``UsageError`` names the value whose threshold is missing or wrong."""
    try:
        if spec.query:
            fractions = query_thresholds(db, spec.query, temp_table("domain"), domain.roles.sa_keys, domain.labels)
        else:
            fractions = spec.thresholds_for(domain.labels, domain.counts)
    except ValueError as error:
        raise UsageError(f"mechanism.threshold: {error}") from error
    largest = max(domain.counts)
    for each_label, value in zip(domain.labels, fractions, strict=True):
        refuse_long(value, largest, f"mechanism.threshold: too many digits for value {each_label}")
    return fractions


def compute_bounds(db: Relations, domain: Records, params: Bucketize) -> tuple[GroupBound, ...]:
    """The bounds on components and groups; ``UsageError`` names what is wrong with one."""
    if not params.is_bounding:
        return ()

    def query_column(part: SensitiveColumn, sql: str) -> tuple[Fraction, ...]:
        holes: Holes = {"domain": temp_table("domain"), "key": column(part.key, "d")}
        parts = fill("bucketize/parts", holes).subquery("parts")
        part_domain = exp.select(alias_as(column("part"), "code"), "s0").distinct().from_(parts).subquery()
        return query_thresholds(db, sql, part_domain, ("s0",), part.labels)

    computed = make_bounds(params, read_values(db, temp_table("domain"), domain.roles, domain.counts), query_column)
    for one in computed:
        refuse_long(one.threshold, sum(domain.counts), f"mechanism: too many digits for the bound of {one.name}")
    return computed


def refuse_long(value: Fraction, records: int, what: str) -> None:
    """``UsageError`` for a fraction that can't be compared in SQL with so many records."""
    if value.denominator.bit_length() + records.bit_length() > MAX_BITS:
        raise UsageError(f"{what}; round the rule's numbers")


def query_thresholds(
    db: Relations, query: str, domain: exp.Expr, keys: Sequence[str], labels: Sequence[str]
) -> tuple[Fraction, ...]:
    """The thresholds that the publisher's query yields, matched in SQL to ``domain``(code, s0..); or ``ValueError``."""
    db.create_from_sql("given_thresholds", query)
    fields = db.list_fields(temp_table("given_thresholds"))
    if len(fields) != len(keys) + 1:
        raise ValueError(
            f"the query yields {len(fields)} columns; it must yield {len(keys)} for the value and one more"
        )
    if fields[-1].type.split("(")[0] not in EXACT_TYPES:
        raise ValueError(f"the query's column {fields[-1].name!r} is {fields[-1].type}; cast it to DECIMAL or VARCHAR")
    renamed = [alias_as(column(field.name), key) for field, key in zip(fields, (*keys, "threshold"), strict=True)]
    db.create_table("threshold_rows", exp.select(*renamed).from_(temp_table("given_thresholds")))
    holes: Holes = {"domain": domain, "given": temp_table("threshold_rows"), "same_value": same_columns("d", "t", keys)}
    rows = db.rows(fill("bucketize/queried_thresholds", holes))
    db.drop("given_thresholds", "threshold_rows")
    return tuple(_require_threshold(label, row) for label, row in zip(labels, rows, strict=True))


def _require_threshold(label: str, row: tuple[object, ...]) -> Fraction:
    _, times, stated = row
    if times != 1 or stated is None:
        raise ValueError(f"the query yields {times} thresholds for value {label}; it must yield one")
    value = as_fraction(stated)
    if not 0 < value <= 1:
        raise ValueError(f"threshold {stated} of value {label} lies outside (0, 1]")
    return value


# Chances --------------------------------------------------------------------------------------------------------------
# The chance of every listed value to be fake, given all lists: what a release with fakes is drawn by and checked by.
#
# It is near what the law of the fakes says of its value and its bucket's size, and sums to what is certain: the fakes
# of every bucket, and how often each value is fake. Odds are multiplied by one factor for each bucket and one for each
# value until both are right (iterative proportional fitting), so of all chances with these sums it is the nearest in
# entropy.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
ROUNDS, NEAR = 500, 1e-7  # of the scaling of chances to their sums; how near is near enough
LEAST, TINY = 1e-3, 1e-30  # no chance starts at 0 or 1; no division by 0


@dataclass(frozen=True)
class Entries:
    """``rows`` (E,): the row of each entry, rising; ``kinds`` (E,): its kind; no kind stands twice in a row. ``shape``:
    numbers of rows and of kinds.
    """

    rows: Ints
    kinds: Ints
    shape: tuple[int, int]

    def sum_amounts(self, amounts: NDArray[Any]) -> tuple[Floats, Floats]:
        """Sums of ``amounts`` (E,) over rows and over kinds, in doubles: integers below 2^53 stay exact."""
        rows, kinds = self.shape
        of_rows, of_kinds = np.bincount(self.rows, amounts, rows), np.bincount(self.kinds, amounts, kinds)
        return of_rows.astype(float), of_kinds.astype(float)

    @property
    def lengths(self) -> tuple[Ints, Ints]:
        """Entries of every row, and of every kind."""
        rows, kinds = self.shape
        return np.bincount(self.rows, minlength=rows).astype(int), np.bincount(self.kinds, minlength=kinds).astype(int)

    def select_entries(self, chosen: Ints) -> Entries:
        """Some of the entries."""
        return Entries(self.rows[chosen], self.kinds[chosen], self.shape)


def scale_chances(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Floats:
    """Scale the odds of ``chances`` (E,) by a factor for each row and each kind, until sums are as given.

    They lie near that already. One kind after the other, then one row after the other, is brought to its mean odds,
    until all sums are within ``NEAR``, or after ``ROUNDS``.
    """
    odds = chances.clip(LEAST, 1 - LEAST)
    odds /= 1 - odds
    of_row, of_kind = entries.lengths
    sides = [(entries.kinds, of_kinds, of_kind), (entries.rows, of_rows, of_row)]
    for _ in range(ROUNDS):
        furthest = 0.0
        for index, wanted, lengths in sides:
            sums = np.bincount(index, odds / (1 + odds), minlength=len(wanted))
            furthest = max(furthest, float(np.abs(sums - wanted).max()))
            factor = (wanted + TINY) / (sums + TINY) * (lengths - sums + TINY) / (lengths - wanted + TINY)
            odds *= factor[index]
        if furthest <= NEAR:
            break
    return np.asarray(odds / (1 + odds))


# Lists ----------------------------------------------------------------------------------------------------------------
# How often each value is listed where buckets list values that nobody there has.
#
# A bucket of S records lists S + sigma different values, sigma of them fake. If a listed value is to be real with
# probability S/(S + sigma) whichever value it is, value x with o_x records is listed
#
#     L_x = o_x (S + sigma)/S times in b buckets of size S,   at most b times, so  f_x <= 1/(S + sigma).
#
# With several sizes S_j of b_j buckets: sum_j L_xj S_j/(S_j + sigma) = o_x with L_xj <= b_j and sum_x L_xj = (S_j +
# sigma) b_j. Where that can't be (``find_too_frequent``), a value is in every bucket and real more often: o_x of all.
#
# L_x are integers, so what is real of a value, o_x/L_x, is not quite S/(S + sigma). Divisors are rounded up (Adams):
# among all integers with the right sum these have the least largest o_x/L_x. With one size, p = S/(S + sigma) and m
# values in n records it is at most p/(1 - p m/n), and o_x > p (L_x - 1).


def times_listed(counts: Ints, sizes: Sequence[tuple[int, int]], sigma: int) -> Ints:
    """L (m, k): how often each value is listed in buckets of each of ``sizes`` (size, buckets), rising.

    The largest buckets first, in proportion to the records that are not yet covered, an entry in a bucket of size S
    covering S/(S + sigma) of a record; so what is rounded for one size is made good by the next.
    """
    listed = [size + sigma for size, _ in sizes]
    unit = lcm(*listed)
    left = [int(count) * unit for count in counts]
    by_size = np.zeros((len(left), len(listed)), dtype=np.int64)
    for j in reversed(range(len(listed))):
        size, buckets = sizes[j]
        times = _apportion_uncovered(left, [int(count) for count in counts], listed[j] * buckets, buckets)
        by_size[:, j] = times
        left = [have - number * (size * unit // listed[j]) for have, number in zip(left, times, strict=True)]
    return by_size


def _apportion_uncovered(left: list[int], counts: list[int], total: int, most: int) -> list[int]:
    """Return integers that sum to ``total``: by what is left to cover, then by counts; each at most ``most``."""
    times = apportion_times([max(0, have) for have in left], total, most)
    missing = total - sum(times)
    if missing:
        rest = [0 if have > 0 else count for have, count in zip(left, counts, strict=True)]
        times = [a + b for a, b in zip(times, apportion_times(rest, missing, most), strict=True)]
    return times


def apportion_times(weights: list[int], total: int, most: int) -> list[int]:
    """Integers L_x <= ``most`` of the sum ``total``, with the least largest w_x/L_x (Adams' divisor method).

    Less than ``total`` if every positive weight has ``most`` already.
    """
    times, open_ = [0] * len(weights), {x for x, weight in enumerate(weights) if weight > 0}
    while open_:
        weight, free = sum(weights[x] for x in open_), total - most * sum(number == most for number in times)
        start = free - len(open_)  # rounding up adds less than one each
        rounded = {x: -(-weights[x] * start // weight) if start > 0 else 0 for x in open_}
        full = {x for x, number in rounded.items() if number >= most}
        for x in full:
            times[x] = most
        open_ -= full
        if not full:
            for x, number in rounded.items():
                times[x] = number
            break
    _raise_worst(weights, times, open_, total, most)
    return times


def _raise_worst(weights: list[int], times: list[int], open_: set[int], total: int, most: int) -> None:
    """One more for the value with the largest w_x/L_x, until the sum is ``total``; those without any before."""

    def heap_entry(x: int) -> tuple[bool, Fraction, int]:
        return times[x] > 0, -Fraction(weights[x], max(1, times[x])), x

    heap = [heap_entry(x) for x in open_]
    heapq.heapify(heap)
    for _ in range(total - sum(times)):
        if not heap:
            return
        x = heapq.heappop(heap)[2]
        times[x] += 1
        if times[x] < most:
            heapq.heappush(heap, heap_entry(x))
