"""Prepare a table with quasi-identifiers and sensitive columns: NULL, bins, persons, counts, and its key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.database import require_ordered
from privsql.engine.files import DELIMITERS, fold_name, unused_name
from privsql.engine.sqlfiles import (
    DIALECT,
    Field,
    Holes,
    Roles,
    alias_as,
    canonical_value,
    column,
    comparable_text,
    concat_texts,
    fill,
    injective_text,
    is_null,
    quoted_identifier,
    same_columns,
    temp_table,
)
from privsql.errors import GuaranteeError, UsageError, suggest_name
from privsql.exact import decimal_text
from privsql.model.bins import DIGITS, DOUBLE, fits_type, number_range
from privsql.model.hashing import derive_record_key, derive_stream_key, hash_columns, hash_records, source_changed_error
from privsql.model.packing import CountedSource, PackedRecords, RankedRecords, pack_records
from privsql.model.records import History, Persons
from privsql.model.universes import find_unlisted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from privsql.engine.database import FindTypes, Relations, Warehouse
    from privsql.keyed_random import Key
    from privsql.model.bins import Bins
    from privsql.model.parameters import Order
    from privsql.model.records import HashedRecords
    from privsql.model.universes import ListedValues
    from privsql.source.places import Source
    from privsql.source.spec import Columns

# Binning --------------------------------------------------------------------------------------------------------------
# Bins of numbers and dates, and groups of texts. A bin is published as its first value, in the column's type, exactly.

MORE = 2  # further digits that computing a bin needs


@dataclass(frozen=True)
class Coarse:
    """How a column is read whose values are put into bins or groups.

    Attributes:
        name: The column.
        value: The SQL expression of a record's bin or group.
        misfit: The SQL condition for values that have no bin or group; None if all values have one.
        why: Which values these are and what the publisher can do, for an error message.
    """

    name: str
    value: exp.Expr
    misfit: exp.Expr | None = None
    why: str = ""


def coarsen_column(field: Field, columns: Columns, value: exp.Expr) -> Coarse | None:
    """Return how a column is read in the bins or groups that the publisher states; None if none are stated for it.

    Args:
        field: The column.
        columns: The section ``[columns]`` of the specification.
        value: The SQL expression of the column's value.

    Raises:
        UsageError: The column's type can't have bins or groups.
    """
    bins, levels, other = columns.get_coarsening(field.name)
    if levels:
        return _group_values(field, value, levels, other)
    return None if bins is None else in_bins(field, value, bins)


def in_bins(field: Field, value: exp.Expr, bins: Bins) -> Coarse:
    """Return how a column is read in bins; a value that represents the bin replaces each value in it.

    Args:
        field: The column.
        value: The SQL expression of the column's value.
        bins: The bins.

    Raises:
        UsageError: The column's type can't have these bins.
    """
    if not fits_type(bins, field.type):
        raise UsageError(f"columns.bins: column {field.name!r} is {field.type}; {_suggest_remedy(field, bins)}")
    if bins.unit is not None:
        start = exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(bins.unit), value.copy()])
        return Coarse(field.name, exp.cast(start, field.type, dialect=DIALECT))
    if bins.prefix is not None:
        length = exp.Literal.number(bins.prefix)
        return Coarse(field.name, exp.Left(this=value.copy(), expression=length))
    if bins.edges:
        return _bin_by_edges(field, value, bins)
    if bins.rounds:
        value = _cut_ends(field, value, bins)
        if bins.round is None:
            return Coarse(field.name, value)
    return _bin_doubles(field, value, bins) if field.type == DOUBLE else _bin_by_width(field, value, bins)


def describe_coarsening(quasi_identifiers: Iterable[Field], columns: Columns) -> dict[str, Any]:
    """Return what a manifest states about columns in bins or groups.

    Returns:
        Under "bins" the bins by column, and under "groups" the columns whose values are put into groups.
    """
    coarse = {one.name: columns.get_coarsening(one.name) for one in quasi_identifiers}
    bins = {name: stated for name, (stated, *_) in coarse.items() if stated is not None}
    return {"bins": bins, "groups": [name for name, (_, levels, _) in coarse.items() if levels and name not in bins]}


def _suggest_remedy(field: Field, bins: Bins) -> str:
    kind, name = field.type, field.name
    if bins.unit is not None:
        typed = f', or for a file of texts state source.options = {{ types = {{ {name} = "DATE" }} }}'
        typed = typed if kind == "VARCHAR" else ""
        return f"{bins.unit}s are of DATE and TIMESTAMP; cast it in source.query{typed}"
    if kind == "FLOAT":
        return "cast it to DOUBLE in source.query"
    if bins.prefix is not None:
        return "a prefix needs text; give a width, edges, month, quarter or year"
    if kind == "VARCHAR":
        return (
            "give { prefix = N }, or the groups of its values in columns.levels; if these are numbers of a file of "
            f'texts, state source.options = {{ types = {{ {name} = "DOUBLE" }} }}'
        )
    return (
        f"bins are of whole numbers, of DOUBLE, and of DECIMAL up to {DIGITS} digits, and their numbers have to be "
        "values of the column; dates take 'month', 'quarter' or 'year'"
    )


def _cut_ends(field: Field, value: exp.Expr, bins: Bins) -> exp.Expr:
    """Return an SQL expression that replaces numbers beyond the range ``bottom`` to ``top`` of the bins by its ends."""
    case = exp.Case()
    if bins.top is not None:
        top = _number_literal(bins.top, field.type)
        case = case.when(exp.GT(this=value.copy(), expression=top), top.copy())
    if bins.bottom is not None:
        bottom = _number_literal(bins.bottom, field.type)
        case = case.when(exp.LT(this=value.copy(), expression=bottom), bottom.copy())
    return case.else_(value.copy()) if case.args.get("ifs") else value


def _bin_doubles(field: Field, value: exp.Expr, bins: Bins) -> Coarse:
    """Return how a column of doubles is read in bins of width w from origin o.

    A number x becomes floor((x - o) / w) w + o, or the next bin if x reaches it. Only -, +, *, / and floor are used,
    whose results IEEE 754 determines. A number at which a bin begins always belongs to that bin, however the division
    is rounded. Bins of rounded numbers begin half a width lower.
    """
    step = bins.width if bins.round is None else bins.round
    width, origin = (_number_literal(Fraction(one), "DOUBLE") for one in (step or 1, bins.origin))
    shift = _number_literal(bins.half, "DOUBLE")
    x = exp.cast(value.copy(), "DOUBLE")
    moved = exp.paren(exp.Add(this=exp.Sub(this=x, expression=origin.copy()), expression=shift))
    place = exp.Floor(this=exp.Div(this=moved.copy(), expression=width.copy(), typed=True, safe=False))
    lower = exp.Mul(this=place, expression=width.copy())
    above = exp.Mul(
        this=exp.paren(exp.Add(this=place.copy(), expression=exp.Literal.number(1))), expression=width.copy()
    )
    found = exp.Case().when(exp.LTE(this=above, expression=moved.copy()), above.copy()).else_(lower)
    return Coarse(field.name, exp.cast(exp.Add(this=exp.paren(found), expression=origin), field.type, dialect=DIALECT))


def _bin_by_width(field: Field, value: exp.Expr, bins: Bins) -> Coarse:
    """Return how a column of exact numbers is read in bins of one width.

    A number x becomes x - ((x - origin) mod width), where the remainder is never negative. For rounded numbers half a
    width is added. No intermediate result is larger than x or 2 width, so that none exceeds the type of the column.
    """
    least, most, scale = number_range(field.type)
    width, origin = Fraction(bins.round or bins.width or 1), Fraction(bins.origin) - bins.half
    further = bins.round is not None  # one more digit for half a width
    wide = f"DECIMAL({len(str(int(most * 10**scale))) + MORE + further},{scale + further})"
    x = exp.cast(value.copy(), wide, dialect=DIALECT)
    w, o = _number_literal(width, wide), _number_literal(origin % width, wide)

    def mod(left: exp.Expr) -> exp.Expr:
        return exp.paren(exp.Mod(this=exp.paren(left), expression=w.copy()))

    rest = mod(exp.Add(this=mod(exp.Sub(this=mod(x.copy()), expression=o)), expression=w.copy()))
    if further:
        middle = exp.Add(this=exp.Sub(this=x.copy(), expression=rest), expression=_number_literal(bins.half, wide))
        first, last = -(-least // width) * width - bins.half, most // width * width + bins.half
        below, above = (_number_literal(one, wide) for one in (first, last))
        return Coarse(
            field.name,
            exp.cast(exp.paren(middle), field.type, dialect=DIALECT),
            exp.or_(exp.LT(this=x.copy(), expression=below), exp.GTE(this=x.copy(), expression=above)),
            f"values that {field.type} can't hold once they are rounded; cast the column in source.query",
        )
    lowest = least + (origin - least) % width
    return Coarse(
        field.name,
        exp.cast(exp.paren(exp.Sub(this=x, expression=rest)), field.type, dialect=DIALECT),
        exp.LT(this=value.copy(), expression=_number_literal(lowest, field.type)),
        f"values below {lowest}, whose bin begins where {field.type} ends; cast the column in source.query",
    )


def _bin_by_edges(field: Field, value: exp.Expr, bins: Bins) -> Coarse:
    """Return how a column is read in bins between edges: the largest edge that is not above the value replaces it."""
    edges = [_number_literal(Fraction(edge), field.type) for edge in bins.edges]
    case = exp.Case().when(is_null(value.copy()), exp.cast(exp.null(), field.type, dialect=DIALECT))
    for begin, end in pairwise(edges):
        case = case.when(exp.LT(this=value.copy(), expression=end.copy()), begin.copy())
    return Coarse(
        field.name,
        case.else_(edges[-1].copy()),
        exp.LT(this=value.copy(), expression=edges[0].copy()),
        f"values below {bins.edges[0]:f}, the first edge; begin columns.bins lower",
    )


def _group_values(field: Field, value: exp.Expr, levels: dict[str, str], other: str | None) -> Coarse:
    """Return how a column is read in groups: the name of its group replaces each value.

    Args:
        field: The column.
        value: The SQL expression of the column's value.
        levels: The group of each value.
        other: The group of all values that are not in ``levels``; None if there is no such group.
    """
    if field.type != "VARCHAR":
        how = "'month', 'quarter' or 'year'" if field.type in ("DATE", "TIMESTAMP") else "{ round = N } or a width"
        raise UsageError(
            f"columns.levels: column {field.name!r} is {field.type}, and levels map texts; give it {how} in "
            "columns.bins, or cast it to VARCHAR in source.query"
        )
    case = exp.Case().when(is_null(value.copy()), exp.cast(exp.null(), field.type, dialect=DIALECT))
    members: dict[str, list[exp.Expr]] = {}
    for each_label, group in levels.items():
        members.setdefault(group, []).append(exp.Literal.string(each_label))
    for group, labels in members.items():
        case = case.when(value.copy().isin(*labels), exp.Literal.string(group))
    if other is not None:
        return Coarse(field.name, case.else_(exp.Literal.string(other)))
    known = value.copy().isin(*map(exp.Literal.string, levels))
    why = "values that columns.levels does not name; name them, or give columns.others a group for them"
    return Coarse(field.name, case, exp.not_(known), why)


def read_listed(field: Field, value: exp.Expr, listed: ListedValues) -> exp.Expr:
    """Return an SQL expression that replaces all values of a column that are not in a public list by a single value.

    So the values that a release can show do not depend on the records. The replacement is a value of the column's type
    that is not in the list, or NULL if the type has no such value. NULL itself stays if the list holds it.

    Args:
        field: The column.
        value: The SQL expression of the column's value.
        listed: The public list of values.
    """
    other = find_unlisted(field.type, listed.values)
    stands = exp.null() if other is None else exp.Literal.string(other)
    is_listed = exp.cast(value.copy(), "VARCHAR").isin(*map(exp.Literal.string, listed.values))
    kept = exp.or_(is_null(value.copy()), is_listed) if listed.holds_null else is_listed
    return exp.Case().when(kept, value.copy()).else_(exp.cast(stands, field.type, dialect=DIALECT))


def _number_literal(number: Fraction | Decimal, kind: str) -> exp.Expr:
    """Return a number as an SQL constant of a type; the type must hold it exactly (``fits_type``)."""
    exact, digits = Fraction(number), 0
    while (exact * 10**digits).denominator != 1:
        digits += 1
    return exp.cast(exp.Literal.string(decimal_text(exact, digits)), kind, dialect=DIALECT)


# Table ----------------------------------------------------------------------------------------------------------------
# The records of a table, counted: canonical order, codes of the sensitive values, digests of contents.

OTHERS = "^~: "  # separators that DuckDB does not try
AS_TEXT = ("ENUM", "JSON")  # an ENUM type would name values that are not published


def index_names(columns: Iterable[Field]) -> dict[str, Field]:
    """Return columns by their names in lower case (``fold_name``), since SQL ignores the case of names."""
    return {fold_name(one.name): one for one in columns}


def find_column(columns: Mapping[str, Field], name: str, where: str = "") -> Field:
    """Return the column with this name, ignoring the case of its letters.

    If there is only one column, the message asks whether it is several columns of a CSV file that were not separated.

    Args:
        columns: The columns by their names in lower case (``index_names``).
        name: The name that is looked for.
        where: The beginning of the error message.

    Raises:
        UsageError: There is no such column.

    >>> find_column(index_names([Field("sex;height", "VARCHAR")]), "age")
    Traceback (most recent call last):
    privsql.errors.UsageError: column 'age' is not in the source; it has sex;height, which may be several: \
source.options = { delimiter = ';' } tells them apart
    """
    if fold_name(name) in columns:
        return columns[fold_name(name)]
    names = [one.name for one in columns.values()]
    between = next((one for one in (*DELIMITERS, *OTHERS) if len(names) == 1 and one in names[0]), None)
    hint = f", which may be several: source.options = {{ delimiter = {between!r} }} tells them apart" if between else ""
    near = suggest_name(name, names) or ";"
    raise UsageError(f"{where}column {name!r} is not in the source{near} it has {', '.join(names)}{hint}")


def read_as(kind: str) -> str:
    """Return the type in which a column of type ``kind`` is read and published; an ENUM becomes a text.

    >>> read_as("ENUM('a', 'b')"), read_as("DATE")
    ('VARCHAR', 'DATE')
    """
    return "VARCHAR" if kind.split("(", maxsplit=1)[0] in AS_TEXT else kind


def labels_of(kind: str) -> tuple[str, ...]:
    """Return the labels of an ENUM type in their order; empty for any other type.

    >>> labels_of("ENUM('low', 'it''s high')")
    ('low', "it's high")
    """
    return tuple(one.name for one in exp.DataType.build(kind, dialect=DIALECT).expressions)


def is_publishable(field: Field) -> bool:
    """Return whether privsql can publish a column of this type.

    Its values must have the same texts and the same order in every engine, or be read as text.
    """
    return field.is_scalar or (field.type.split("(")[0] in AS_TEXT and not field.type.endswith("]"))


@dataclass(frozen=True)
class TableRecords:
    """The records of a table with quasi-identifiers and sensitive columns, readable in a session and counted.

    The temporary table ``source`` of the session holds the records, and ``domain`` lists the m sensitive values.
    Canonical order is that of the values, with NULL last; it does not depend on the order of the source.

    Attributes:
        db: The session.
        roles: The columns by role.
        labels: The text of each sensitive value (m,), in canonical order.
        counts: How many published records have each sensitive value (m,).
        source_records: The number of records in the source.
        suppressed: The number of records that are left out because of NULL.
        reading: How the columns are read from the source.
        known_by: SQL expressions of a record's "id" and "person", for a ledger.
        has_ids: Whether the records have ids.
        persons: The figures about persons that the release states; None if no column names persons.
        order: How records are assigned to buckets: by random numbers from the key, for the sorted records in turn
            ("stream"); or by a keyed hash of each record, which any engine can compute ("portable").
        history: What the ledger knows about earlier releases of the same people.
    """

    db: Warehouse
    roles: Roles
    labels: tuple[str, ...]  # (m,)
    counts: tuple[int, ...]  # (m,)
    source_records: int
    suppressed: int
    reading: Reading
    known_by: Mapping[str, exp.Expr] = field(default_factory=dict)
    has_ids: bool = False
    persons: Persons | None = None
    order: Order = "stream"
    history: History = field(default_factory=History)
    _built_relations: set[str] = field(default_factory=set)

    @property
    def records(self) -> int:
        """Return the number of records that are published."""
        return sum(self.counts)

    def sort_records(self) -> None:
        """Create the temporary table ``records``: all records, sorted by sensitive value, then by quasi-identifiers.

        Raises:
            GuaranteeError: The source has changed since its values were counted. Records are assigned to buckets by
                their position, so they must be the ones that were counted.
        """
        if "records" in self._built_relations:
            return
        roles, names = self.roles, self.known_by if self.has_ids else {}
        holes: Holes = {
            "source": temp_table("source"),
            "sa": self.reading.sa,
            "qi": [*self.reading.qi, *(alias_as(text, key) for key, text in names.items())],
            "keep": self.reading.keep,
            "sa_order": roles.sa_columns(),
            "qi_order": roles.qi_columns(),
        }
        self.db.create_table("records", fill("core/records", holes), title="Sorting the source")
        position = require_ordered(self.db).row_number("r")
        holes = {"records": temp_table("records"), "sa": roles.sa_columns(), "position": position}
        blocks = self.db.rows(fill("core/blocks", holes))
        ends = np.cumsum(self.counts).tolist()
        expected = [(o, end - o, end - 1) for o, end in zip(self.counts, ends, strict=True)]
        if [tuple(map(int, block)) for block in blocks] != expected:
            raise source_changed_error()
        self._built_relations.add("records")

    def coded_records(self, *, ordered: bool) -> exp.Query:
        """Return the query for the quasi-identifiers of each record, and its sensitive value as a whole number.

        This number is the position of the value, from 0, among all sensitive values in ascending order, with NULL last.

        Args:
            ordered: Whether the query sorts the records, by sensitive value and then by quasi-identifiers.
        """
        coded = self._coded_query(self.roles.qi_columns("r"))
        if not ordered:
            return coded
        order = [exp.Ordered(this=item, nulls_first=False) for item in (column("code"), *self.roles.qi_columns())]
        return exp.select("*").from_(coded.subquery("coded")).order_by(*order)

    def _coded_query(self, columns: list[exp.Expr]) -> exp.Query:
        """Return the query for some columns of every record, and for its sensitive value as a whole number, ``code``.

        The number is the position of the value, from 0, among all sensitive values in ascending order, with NULL last.
        The query reads the temporary table ``records`` if that exists, and the source otherwise.
        """
        roles, sorted_ = self.roles, "records" in self._built_relations
        position = [alias_as(require_ordered(self.db).row_number(temp_table("records").name), "pos")] if sorted_ else []
        holes: Holes = {
            "source": temp_table("records" if sorted_ else "source"),
            "domain": temp_table("domain"),
            "sa": roles.sa_columns() if sorted_ else self.reading.sa,
            "qi": [*roles.qi_columns(), *position] if sorted_ else self.reading.qi,
            "keep": exp.true() if sorted_ else self.reading.keep,
            "columns": columns,
            "same_value": same_columns("r", "d", roles.sa_keys),
        }
        return fill("core/coded", holes)

    def bind_key(self, key: Key) -> Key:
        """Return a key for these records alone, derived from the publisher's key and from hashes of all records.

        A publisher may then use one key for several tables: their random choices are independent.
        """
        roles, columns = self.roles, self.roles.qi_columns("r")
        if self.order != "portable":
            if self._ranked is not None:
                return derive_stream_key(self._ranked.hash_records(key, exact=True), key)
            read = zip((*self.reading.qi, *self.reading.sa), roles.columns, strict=True)
            values = [(one.this, each_field.type) for one, each_field in read]
            hashed = hash_columns(self.db, values, temp_table("source"), self.keep_predicate, key, exact=True)
            return derive_stream_key(hashed, key)
        if self.has_ids:
            self.sort_records()
            columns.append(column("pos", "r"))
        coded, columns = self._coded_query([*columns, *roles.sa_columns("r")]), [*columns, column("code", "r")]
        named = dict(zip((*roles.qi_keys, *roles.sa_keys), roles.columns, strict=True))
        self.db.create_table("hashed", hash_records(self.db, coded, columns, named, key), title="Hashing the records")
        return derive_record_key(self.db, temp_table("hashed"), key)

    @property
    def keep_predicate(self) -> exp.Expr:
        """Return the SQL condition for records that are published: those that are not left out because of NULL."""
        return self.reading.keep

    def query_names(self, *, follow: bool, values: bool) -> exp.Query:
        """Return the query for what a ledger stores about each published record: its id and its person.

        Args:
            follow: Whether to add a digest of the record's published values. By it the ledger sees whether a record has
                changed since an earlier release.
            values: Whether to add the sensitive value; only with ``follow``.
        """
        roles = self.roles
        fields = dict(zip((*roles.qi_keys, *roles.sa_keys), roles.columns, strict=True))
        if not follow:
            return query_source_names(self.known_by, self.keep_predicate)
        self.sort_records()
        texts = [comparable_text(column(key, "r"), one.type) for key, one in fields.items()]
        value = exp.cast(roles.sa_columns("r")[0] if values else exp.null(), "VARCHAR")
        person = column("person", "r") if "person" in self.known_by else exp.cast(exp.null(), "VARCHAR")
        holes: Holes = {"records": temp_table("records"), "trace": self.db.digest(texts)}
        return fill("ledger/traces", holes | {"value": value, "person": person})

    def hash_records(self, key: Key) -> Iterator[HashedRecords]:
        """Yield keyed hashes of all records in batches, by which a ledger finds releases of the same records.

        They do not depend on the order of the published columns.
        """
        read = [self._values[one.name] for one in self.roles.columns]
        is_plain = [value for value, _ in read] == [one.this for one in (*self.reading.qi, *self.reading.sa)]
        if is_plain and self._ranked is not None:  # these ranks are not those of bins and groups
            order = sorted(self._values, key=fold_name)
            hashed = self._ranked.hash_records(key, [order.index(one.name) for one in self.roles.columns])
        else:
            hashed = hash_columns(self.db, self.published_values, temp_table("source"), self.keep_predicate, key)
        return ((hashes, None) for hashes in hashed)

    @property
    def packed(self) -> PackedRecords | None:
        """Return the records as sorted integers; None if they do not fit into integers of 64 bits, or into memory.

        One integer stands for one record: it joins a number for each value of the record. This number is the position
        of the value among the sorted values of its column. So sorting and grouping records are fast.
        """
        return self._ranked if isinstance(self._ranked, PackedRecords) else None

    @cached_property
    def _ranked(self) -> PackedRecords | RankedRecords | None:
        """Return the records with a whole number in place of each value, so that hashing and sorting them are fast.

        The number is the position of the value among the sorted values of its column. The result is None if a column
        has too many values, if the engine keeps no order of rows, or if ``order`` is "portable". In that order the
        engine itself assigns records to buckets, by keyed hashes, and needs no such numbers.
        """
        if self.order != "stream" or not self.db.keeps_order:
            return None
        source = CountedSource(self.db, temp_table("source"), self.keep_predicate, self.counts)
        return pack_records(source, self.roles, self.reading.qi, self.coded_records(ordered=False))

    @property
    def published_values(self) -> list[tuple[exp.Expr, str]]:
        """Return the published columns, sorted by name, as (SQL expression over the source, type).

        The ledger's hashes of records are made from them.
        """
        return [self._values[name] for name in sorted(self._values, key=fold_name)]

    @cached_property
    def _values(self) -> dict[str, tuple[exp.Expr, str]]:
        fields = index_names(self.db.list_fields(temp_table("source")))
        kinds = {one.name: read_as(fields[fold_name(one.name)].type) for one in self.roles.columns}
        return {name: (canonical_value(column(name), kind), kind) for name, kind in kinds.items()}

    def drop_relations(self) -> None:
        """Free memory: drop the sorted copies of the records, in the session and in ``packed``.

        They are made again when they are needed.
        """
        vars(self).pop("_ranked", None)
        self.db.drop("records")
        self._built_relations.discard("records")

    def expose_as(self, name: str) -> None:
        """Create a view ``name`` of the sorted records, with the publisher's column names.

        The true answers to queries are computed on it.
        """
        self.db.publish_as(name, exp.select(*self.roles.qi_out(), *self.roles.sa_out()).from_(temp_table("records")))


@dataclass(frozen=True)
class Reading:
    """How the columns are read from the source, and which of its records are published.

    Attributes:
        qi: The SQL expressions of the quasi-identifiers, named q0, q1, ..
        sa: The SQL expressions of the sensitive columns, named s0, s1, ..
        keep: The SQL condition for records that are published.
    """

    qi: list[exp.Expr]
    sa: list[exp.Expr]
    keep: exp.Expr


# Persons --------------------------------------------------------------------------------------------------------------
# Persons with several records: refused, reduced to some of their records, or published as they are (as it states).

ALL_RECORDS = "all_records"  # the table of all records, if only some of each person are published
CHOICE_PURPOSE = "persons"
NOBODY = pa.schema([("id", pa.string()), ("trace", pa.int64())])
Published = tuple[exp.Expr, str]  # the SQL expression of a published column, and its type


@dataclass(frozen=True)
class PersonChoice:
    """How some records are chosen for publication from those of each person.

    The choice depends on a key of its own, which follows neither from a record nor from anything published. If an
    attacker could compute the choice, the published record would tell something about the person's other records.

    Attributes:
        key: The key by which records are chosen.
        called: The name of the release.
        earlier: The records of earlier releases, as (id, digest of the published values); they are chosen again if
            possible. None if there are none.
        limit: How many records of each person are published at most.
    """

    key: Key
    called: str
    earlier: pa.Table | None = None
    limit: int = 1

    @classmethod
    def from_key(cls, key: Key, called: str, earlier: pa.Table | None = None) -> PersonChoice:
        """Return how a publisher's key chooses the published records of each person.

        Args:
            key: The publisher's key. The key of the choice is derived from it, so both publishing and verifying can
                make the same choice.
            called: The name of the release.
            earlier: The records of earlier releases, as (id, digest of the published values), to be chosen again if
                possible; None if there are none.
        """
        return cls(key.derive_key(CHOICE_PURPOSE), called, earlier)

    @property
    def reference(self) -> str:
        """Return a one-way digest of the key that chooses records, which the manifest of the release states.

        Who has the publisher's key can tell by it whether that key chose the records. Releases of different names have
        different digests.
        """
        return self.key.derive_key("reference", self.called).reference


def mount_persons(db: Warehouse, source: Source, types: FindTypes | None = None) -> exp.Table:
    """Make the source readable in the session, and return the temporary table with all of its records.

    Later steps read the records to publish from table ``source``. This is the returned table, unless only some records
    of each person are published. In that case it has another name, and ``reduce_persons`` makes ``source`` from it.

    Args:
        db: The session that reads the source.
        source: The source.
        types: A function that returns the column types that the specification determines. A release that spends a
            privacy budget needs it. None infers all types from the records.

    Raises:
        UsageError: Records of persons are to be chosen, and the engine can't do so.
    """
    if source.chooses_records and source.traits.counts:
        raise UsageError(f"source.persons = '{source.persons}' needs DuckDB, and the source lies in {source.kind}")
    db.mount(name := ALL_RECORDS if source.chooses_records else "source", replace(source.origin, types=types))
    return temp_table(name)


def query_source_names(known_by: Mapping[str, exp.Expr], keep: exp.Expr) -> exp.Query:
    """Return the query for the ids of the published records and their persons; NULL where the source has none.

    Args:
        known_by: SQL expressions of "id" and "person", as ``name_records`` returns them.
        keep: The SQL condition for records that are published.
    """
    names = {key: known_by.get(key, exp.cast(exp.null(), "VARCHAR")) for key in ("id", "person")}
    return fill("ledger/names", {"source": temp_table("source"), "keep": keep, **names})


def name_records(db: Relations, source: Source, records: exp.Table) -> dict[str, exp.Expr]:
    """Return SQL expressions for the texts by which a ledger knows a record ("id") and its person ("person").

    NULL stays NULL. A key is missing if the source names no such column.

    Raises:
        UsageError: The source does not have the column that it names.
    """
    fields = index_names(db.list_fields(records))
    texts: dict[str, exp.Expr] = {}
    for key, name in (("id", source.id), ("person", source.person)):
        if name is not None:
            found = find_column(fields, name, f"source.{key}: ")
            kind = read_as(found.type)
            text = comparable_text(canonical_value(column(found.name), kind), kind)
            texts[key] = exp.Case().when(exp.not_(is_null(column(found.name))), text)
    return texts


def count_persons(
    db: Warehouse, source: Source, records: exp.Table, keep: exp.Expr, choice: PersonChoice | None = None
) -> Persons | None:
    """Return what a release states about persons with several records; None if no column names persons.

    That is the rule by which their records are published. If only some are, a digest of the key that chooses them is
    added. If all are, the number of such persons and the most records of one person are added.

    Args:
        db: The session that holds the records.
        source: The section ``[source]``, which names the column of persons.
        records: The table of all records.
        keep: The SQL condition for records that are published.
        choice: How records of each person are chosen; None if they are not.

    Raises:
        UsageError: A record names no person, or a person has several records and the source refuses that.
    """
    if source.person is None:
        return None
    person = name_records(db, source, records)["person"]
    rule = source.persons or "refuse"
    holes: Holes = {"source": records, "person": person, "keep": keep if rule == "count" else exp.true()}
    persons, several, most, nulls = map(int, db.rows(fill("core/several", holes))[0])
    if nulls:
        why = f"source.person is NULL in {nulls:,} records, so these belong to nobody"
        raise UsageError(f"{why}; leave them out in source.query")
    if rule == "refuse" and several:
        raise UsageError(
            f"{several:,} of {persons:,} persons have several records, up to {most:,}, and a release protects "
            "single records; choose source.persons = 'one' (one record of each person), 'first' (the first one by "
            "source.order) or 'count' (all, and says so)"
        )
    if rule in ("one", "first"):
        return Persons(rule=rule, order=source.order, choice=choice.reference if choice is not None else None)
    return Persons(rule=rule, several=several, most=most) if rule == "count" else Persons(rule=rule)


def reduce_persons(
    db: Warehouse,
    source: Source,
    records: exp.Table,
    published: Sequence[Published],
    keep: exp.Expr,
    choice: PersonChoice,
) -> None:
    """Make the table ``source`` from the records that are chosen of each person.

    Records that an earlier release holds are preferred, then those with the smallest hashes under the key of the
    choice. If ``source.order`` names a column, its smallest values are preferred instead, and the hash decides between
    equal ones. A record that does not meet ``keep`` is chosen only if the person has too few others; it is not
    published. The key is stored in a table, never in the text of a statement.

    Args:
        db: The session that holds the records.
        source: The section ``[source]``.
        records: The table of all records.
        published: The columns on which the choice may depend, as (SQL expression, type). With ``source.order`` the
            caller gives only quasi-identifiers here and in ``keep``, so that no sensitive value decides.
        keep: The SQL condition for records that are not left out because of NULL.
        choice: How records are chosen.

    Raises:
        GuaranteeError: A person still has more records than the choice allows.
    """
    names, fields = name_records(db, source, records), db.list_fields(records)
    person, name = names["person"], names.get("id")
    texts = [injective_text(value.copy(), kind) for value, kind in published]
    places = {name: unused_name(name, (field.name for field in fields)) for name in ("copy", "place")}
    db.register_arrow("secret", choice.key.word(CHOICE_PURPOSE, bits=256))
    db.register_arrow("chosen", choice.earlier if choice.earlier is not None else NOBODY.empty_table())
    copy = exp.cast(column(places["copy"]), "VARCHAR")
    earlier: exp.Expr = exp.Literal.number(0)
    if source.order is not None:
        found = find_column(index_names(fields), source.order, "source.order: ")
        earlier = exp.Ordered(this=column(found.name), nulls_first=False)
        texts.append(injective_text(column(found.name), read_as(found.type)))
        texts += [name.copy()] if name is not None else []
    elif name is not None:
        earlier = _rank_earlier(db, name, published)
    word = exp.select(column("word", "k")).from_(exp.alias_(temp_table("secret"), "k", table=True)).subquery()
    holes: Holes = {
        "source": records,
        "columns": [column(field.name) for field in fields],
        "person": person,
        "record": concat_texts(texts),
        "id": name or person,
        "left_out": exp.Case().when(keep.copy(), exp.Literal.number(0)).else_(exp.Literal.number(1)),
        "earlier": earlier,
        "hash": db.hashed([word, injective_text(person.copy(), "VARCHAR"), *texts, copy]),
        **{name: quoted_identifier(place) for name, place in places.items()},
        "first": column(places["place"]) <= exp.Literal.number(choice.limit),
    }
    db.create_table("source", fill("core/reduced", holes), title="Choosing records of each person")
    db.drop("secret", "chosen")
    holes = {"source": temp_table("source"), "person": person.copy(), "keep": exp.true()}
    if max(map(int, db.rows(fill("core/several", holes))[0][2:])) > choice.limit:
        raise GuaranteeError(f"a person has more than {choice.limit} records after the choice")


def name_people(db: Warehouse, source: Source, reading: Reading, relations: Mapping[str, exp.Table]) -> None:
    """Make a view of each table of records that shows each record's person beside its published columns.

    Checks and attacks read these views to know which records belong to one person (``sql/core/people.sql``).

    Args:
        db: The session that holds the records.
        source: The section ``[source]``, which names the column of persons.
        reading: How the columns are read.
        relations: The tables of records, by the name of the view.
    """
    for name, records in relations.items():
        holes: Holes = {
            "source": records,
            "person": name_records(db, source, records)["person"],
            "columns": [one.copy() for one in (*reading.qi, *reading.sa)],
            "keep": reading.keep.copy(),
        }
        db.create_view(name, fill("core/people", holes))


def _rank_earlier(db: Warehouse, name: exp.Expr, published: Sequence[Published]) -> exp.Expr:
    """Return an SQL expression that ranks a record by whether an earlier release holds it; low ranks are chosen first.

    The rank is 0 for a record that an earlier release holds unchanged, 1 for another record with the same id, and 2 for
    all others. If the ids are those of persons, all records of a person share one id. Only the published values then
    show which of these records the earlier release holds.

    Args:
        db: The session. Its temporary table ``chosen`` holds the records of earlier releases, as (id, digest of the
            published values).
        name: The SQL expression of a record's id.
        published: The published columns as (SQL expression, type).
    """
    trace = db.digest([comparable_text(value.copy(), kind) for value, kind in published])
    chosen = exp.alias_(temp_table("chosen"), "e", table=True)
    names, both = column("id", "e"), [column("id", "e"), column("trace", "e")]
    pair = exp.Tuple(expressions=[name.copy(), trace])
    as_it_is = exp.In(this=pair, query=exp.select(*both).from_(chosen).subquery())
    there = exp.In(this=name.copy(), query=exp.select(names).from_(chosen.copy()).subquery())
    stays = exp.Case().when(as_it_is, exp.Literal.number(0)).when(there, exp.Literal.number(1))
    return stays.else_(exp.Literal.number(2))
