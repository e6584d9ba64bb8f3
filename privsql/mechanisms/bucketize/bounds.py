"""Compute the bounds that parameters ask for: thresholds of values, and bounds on sets of values."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.files import fold_name, label_value
from privsql.engine.sqlfiles import Holes, Roles, alias_as, column, fill, same_columns, temp_table
from privsql.errors import UsageError
from privsql.exact import as_fraction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.parameters import BucketFacts, Bucketize, Threshold
    from privsql.model.records import Records

    PartQuery = Callable[["SensitiveColumn", str], Sequence[Fraction]]

# Thresholds -----------------------------------------------------------------------------------------------------------

EXACT_TYPES = ("DECIMAL", "VARCHAR", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
MAX_BITS = 126  # counts times denominators are compared as HUGEINT


def compute_thresholds(db: Relations, domain: Records, spec: Threshold) -> tuple[Fraction, ...]:
    """Return the threshold of every sensitive value as an exact fraction in (0, 1] (m,).

    Raises:
        UsageError: A threshold is missing or wrong; the message names its value.
    """
    try:
        if spec.query:
            fractions = query_thresholds(db, spec.query, temp_table("domain"), domain.roles.sa_keys, domain.labels)
        else:
            fractions = spec.thresholds_for(domain.labels, domain.counts)
    except ValueError as error:
        raise UsageError(f"mechanism.threshold: {error}") from error
    most = max(domain.counts, default=0)
    for label, value in zip(domain.labels, fractions, strict=True):
        refuse_long(value, most, f"mechanism.threshold: too many digits for value {label}")
    return fractions


def refuse_long(value: Fraction, records: int, what: str) -> None:
    """Raise ``UsageError`` if a threshold has too many digits to be compared exactly in SQL.

    Args:
        value: The threshold.
        records: The largest number of records that it is multiplied with.
        what: What the threshold is for, as the first words of the message.

    Raises:
        UsageError: The product may not fit into 128 bits.
    """
    if value.denominator.bit_length() + records.bit_length() > MAX_BITS:
        raise UsageError(f"{what}; round the rule's numbers")


def query_thresholds(
    db: Relations, query: str, domain: exp.Expr, keys: Sequence[str], labels: Sequence[str]
) -> tuple[Fraction, ...]:
    """Run a publisher's query for thresholds, and return the threshold of each value of a relation.

    Args:
        db: The engine that runs the query.
        query: A SELECT that yields the columns of a value, and its threshold last.
        domain: The relation of values: a column ``code``, then one for each of ``keys``.
        keys: The names of the columns of ``domain`` that hold the value.
        labels: The values as text, by code, for messages.

    Raises:
        ValueError: The query yields other columns, or not one threshold in (0, 1] for each value.
    """
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
    thresholds = []
    for label, (_, times, stated) in zip(labels, rows, strict=True):
        if times != 1 or stated is None:
            raise ValueError(f"the query yields {times} thresholds for value {label}; it must yield one")
        thresholds.append(as_fraction(stated))
        if not 0 < thresholds[-1] <= 1:
            raise ValueError(f"threshold {stated} of value {label} lies outside (0, 1]")
    return tuple(thresholds)


def allowed_values(params: Bucketize, labels: Sequence[str], thresholds: Sequence[Fraction]) -> list[int] | None:
    """Return the codes of the values that may be certain: all records of some bucket may have them.

    These are the values whose threshold the publisher wrote as 1, for the value or by a query. A belief can reach 1
    without that: the rule ``2*f + 0.02`` is 1 for a value that half of the records have. Such values are not allowed.

    Returns:
        The codes; None if every value may be certain, or if fake values leave none certain.
    """
    threshold = params.threshold
    if params.allow_certain or params.fake_values or (threshold.is_constant and str(threshold.default) == "1"):
        return None
    ones = (code for code, value in enumerate(thresholds) if value == 1)
    return [code for code in ones if threshold.query is not None or threshold.values.get(labels[code]) == 1]


# Bounds on sets of values ---------------------------------------------------------------------------------------------
# Besides single values, the values of one column of a compound sensitive attribute can have bounds, and named groups of
# values. Both are sets G of sensitive values with a threshold f'_G: in every bucket g, at most floor(f'_G |g|) records
# have a value in G. The set ``disease = flu`` holds all combinations with that disease.


@dataclass(frozen=True)
class GroupBound:
    """A set of sensitive values that together may have at most the share ``threshold`` of a bucket.

    Attributes:
        name: The name of the set in messages.
        members: The codes of its values, rising.
        threshold: The largest share.
    """

    name: str
    members: tuple[int, ...]
    threshold: Fraction


def stated_bounds(facts: BucketFacts) -> list[GroupBound]:
    """Return the bounds on sets of values that the facts of a plan or release state."""
    return [GroupBound(one.name, tuple(one.codes), Fraction(one.threshold)) for one in facts.bounds]


@dataclass(frozen=True)
class SensitiveColumn:
    """One column of a sensitive attribute that has several columns; its values are called parts of the sensitive value.

    An object can also stand for all columns together; then a part is a whole sensitive value.

    Attributes:
        name: The name of the column; empty for all together.
        key: The column's name in relations, such as s0.
        title: How messages call it.
        ranks: For each of the m sensitive values, the position in ``labels`` of its text in this column (m,).
        labels: The distinct texts of this column.
    """

    name: str
    key: str
    title: str
    ranks: Sequence[int]
    labels: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """Return for each sensitive value the text that it has in this column (m,)."""
        return [self.labels[rank] for rank in self.ranks]

    def bound_part(self, rank: int, threshold: Fraction) -> GroupBound:
        """Return a bound on the set of all sensitive values that have one part (a value in this column).

        Args:
            rank: The position of the part in ``labels``.
            threshold: The largest share of a bucket that may have it.
        """
        return GroupBound(f"{self.name} = {self.labels[rank]}", self.find_members({rank}), threshold)

    def find_members(self, ranks: set[int]) -> tuple[int, ...]:
        """Return the codes of the sensitive values that have one of some parts (values in this column).

        Args:
            ranks: The positions of the parts in ``labels``.
        """
        return tuple(i for i, rank in enumerate(self.ranks) if rank in ranks)


def read_columns(db: Relations, domain: exp.Table, roles: Roles) -> list[SensitiveColumn]:
    """Return the sensitive columns, from relation ``domain`` of all sensitive values (code, s0..), codes 0, 1, .."""
    columns = []
    for field, key in zip(roles.sensitive, roles.sa_keys, strict=True):
        rows = db.rows(fill("bucketize/parts", {"domain": domain, "key": column(key, "d")}))
        labels = dict(sorted((int(part), label_value([text])) for _, part, text, _ in rows))
        ranks = [int(row[1]) for row in rows]
        columns.append(SensitiveColumn(field.name, key, f"column {field.name}", ranks, tuple(labels.values())))
    return columns


def compute_bounds(db: Relations, domain: Records, params: Bucketize) -> tuple[GroupBound, ...]:
    """Return the bounds on sets of values that the parameters ask for, with thresholds computed from the source.

    Raises:
        UsageError: A bound is wrong; the message says which.
    """
    if not params.is_bounding:
        return ()

    def query_column(part: SensitiveColumn, sql: str) -> tuple[Fraction, ...]:
        holes: Holes = {"domain": temp_table("domain"), "key": column(part.key, "d")}
        parts = fill("bucketize/parts", holes).subquery("parts")
        part_domain = exp.select(alias_as(column("part"), "code"), "s0").distinct().from_(parts).subquery()
        return query_thresholds(db, sql, part_domain, ("s0",), part.labels)

    columns = read_columns(db, temp_table("domain"), domain.roles)
    bounds = tuple(make_bounds(params, columns, domain.counts, query_column))
    records = sum(domain.counts)
    for one in bounds:
        refuse_long(one.threshold, records, f"mechanism: too many digits for the bound of {one.name}")
    return bounds


def make_bounds(
    params: Bucketize, columns: Sequence[SensitiveColumn], counts: Sequence[int], query: PartQuery
) -> Iterator[GroupBound]:
    """Yield the bounds on sets of sensitive values that parameters ask for.

    There is one for every value of each column in ``components``, for each group in ``groups``, and for each list
    inside a group.

    Args:
        params: The parameters that ask for bounds.
        columns: The sensitive columns.
        counts: The records of each value (m,).
        query: Takes a column and a publisher's query, and returns the thresholds of the column's parts.

    Raises:
        UsageError: A bound names a column or value that does not exist, or its threshold is not in (0, 1].
    """

    def find_column(name: str) -> SensitiveColumn:
        found = next((part for part in columns if fold_name(part.name) == fold_name(name)), None)
        if found is None:
            known = ", ".join(part.name for part in columns)
            raise UsageError(f"{where}: {name!r} is not a sensitive column; these are {known}")
        return found

    for name, threshold in params.components.items():
        where = f"mechanism.components.{name}"
        part = find_column(name)
        if len(columns) == 1:
            raise UsageError(f"{where}: there is one sensitive column, and threshold bounds its values; leave this out")
        try:
            if threshold.query:
                fractions = query(part, threshold.query)
            else:
                records = [sum(counts[i] for i in part.find_members({rank})) for rank in range(len(part.labels))]
                fractions = threshold.thresholds_for(part.labels, records)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from error
        yield from (part.bound_part(rank, value) for rank, value in enumerate(fractions))
    texts = tuple(map(label_value, zip(*(part.texts for part in columns), strict=True)))
    title = "the sensitive column"
    if len(columns) > 1:
        title += f"s together, such as {texts[0]!r}; for values of one name it as column"
    whole = SensitiveColumn("", "", title, range(len(texts)), texts)
    for name, group in params.groups.items():
        where = f"mechanism.groups.{name}"
        part = find_column(group.column) if group.column is not None else whole
        for set_name, names in group.list_sets(name):
            unknown = sorted(set(names) - set(part.labels))
            if unknown:
                raise UsageError(f"{where}: {unknown[0]!r} is not a value of {part.title}")
            members = part.find_members({rank for rank, label in enumerate(part.labels) if label in set(names)})
            try:
                threshold_of_set = group.threshold_at(sum(counts[i] for i in members), sum(counts))
            except ValueError as error:
                raise UsageError(f"{where}: {error}") from error
            yield GroupBound(set_name, members, threshold_of_set)
