"""The columns of a table by role, their internal names, and texts of values that are equal on every engine."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.files import unused_name
from privsql.engine.sqlfiles import DIALECT, alias_as, column, quoted_identifier
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Roles ----------------------------------------------------------------------------------------------------------------
# The columns of a table by role, and the internal names under which SQL sees them.
#
# Inside, quasi-identifiers are q0, q1, .. and sensitive columns s0, s1, ..: no name of the publisher's can collide with
# ``bid`` or ``count``, need quoting, or meet a keyword. Own names return only in what is published.

FLOATS = ("FLOAT", "DOUBLE")
SCALAR = re.compile(
    r"U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|BOOLEAN|VARCHAR|DATE|TIME|"
    r"TIMESTAMP(_S|_MS|_NS| WITH TIME ZONE)?|UUID"
)
CASTS = {  # a type that is published in place of one that is not, where text would lose its meaning
    "TIME_NS": "TIME", "TIMESTAMPTZ_NS": "TIMESTAMPTZ", "HUGEINT": "DECIMAL(38,0)", "UHUGEINT": "DECIMAL(38,0)",
    "numeric": "DECIMAL(18,2)",
}  # fmt: skip
NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL|DATE$|TIMESTAMP")
WHOLE_TEXT = re.compile(r"0|-?[1-9][0-9]{0,17}")
NUMBER_TEXT = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,15})?")


def infer_type(texts: Iterable[str]) -> str:
    """The narrowest type that holds all of these texts, as each of them is written: a zero in front is a text's.

    >>> infer_type(["1", "2.5"]), infer_type(["01", "02"]), infer_type(["2020-01-31"]), infer_type([])
    ('DOUBLE', 'VARCHAR', 'DATE', 'VARCHAR')
    """
    known = set(texts)
    if not known:
        return "VARCHAR"
    for kind, pattern in (("BIGINT", WHOLE_TEXT), ("DOUBLE", NUMBER_TEXT)):
        if all(map(pattern.fullmatch, known)):
            return kind
    if known <= {"true", "false"}:
        return "BOOLEAN"
    for kind, parse, length in (("DATE", date.fromisoformat, 10), ("TIMESTAMP", datetime.fromisoformat, 19)):
        with suppress(ValueError):
            if all(len(text) == length and parse(text) and text[4] == "-" for text in known):
                return kind
    return "VARCHAR"


@dataclass(frozen=True)
class Field:
    """A column: its own name, and its type by privsql's own name for it.

    What can be published is ``SCALAR`` or a list of such: names of standard SQL in DuckDB's spelling, which stand in
    every manifest. A further engine translates its own types to these names; what has none stays as the engine says it
    and can't be published.
    """

    name: str
    type: str

    @property
    def is_scalar(self) -> bool:
        """Return True for a type that is published, and nothing but a type."""
        return SCALAR.fullmatch(self.type) is not None

    @property
    def is_number(self) -> bool:
        """Return True for numbers and points in time."""
        return NUMBER.match(self.type) is not None and not self.type.endswith("]")

    @property
    def is_list(self) -> bool:
        """Return True for a list of such a type."""
        return self.type.endswith("[]") and SCALAR.fullmatch(self.type[:-2]) is not None

    def suggest_cast(self) -> str:
        """Return what to do about a type that is not published."""
        name = exp.to_identifier(self.name).sql(dialect=DIALECT)
        return f"cast it in source.query: CAST({name} AS {CASTS.get(self.type, 'VARCHAR')}) AS {name}"

    @property
    def is_published(self) -> bool:
        """Return True if a release may have such a column."""
        return self.is_scalar or self.is_list


@dataclass(frozen=True)
class ReservedColumns:
    """The columns of privsql's own in a published table, beside ``fields`` of the publisher's, to which they give way.

    ``unused_name`` says how they are called there; inside they keep their names.
    """

    fields: tuple[Field, ...]

    def column_name(self, name: str) -> str:
        """How a column lies in the table."""
        return unused_name(name, (field.name for field in self.fields))

    def as_column(self, name: str, table: str | None = None) -> exp.Column:
        """Return a column as it lies in the table."""
        return column(self.column_name(name), table)

    def select_columns(self, *names: str) -> list[exp.Expr]:
        """Return columns under their names inside: "bid_" AS "bid", .."""
        return [alias_as(self.as_column(name), name) for name in names]

    def alias_holes(self, *names: str) -> dict[str, exp.Identifier]:
        """Return holes behind AS: the published name of each column by its name inside."""
        return {name: quoted_identifier(self.column_name(name)) for name in names}


@dataclass(frozen=True)
class Roles:
    """Quasi-identifiers and sensitive columns, in the order of the specification.

    ``orders``: by column the labels of a type that has an order of its own, in that order.
    """

    quasi_identifiers: tuple[Field, ...]
    sensitive: tuple[Field, ...]
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, hash=False)

    def explain_difference(self, other: Roles) -> str:
        """Describe the first difference from the columns of another table; empty if there is none.

        >>> Roles((Field("age", "INTEGER"),), ()).explain_difference(Roles((Field("age", "BIGINT"),), ()))
        "column 'age' is INTEGER, not BIGINT"
        """
        columns, known = ((*roles.quasi_identifiers, *roles.sensitive) for roles in (self, other))
        types = {one.name: one.type for one in known}
        for one in columns:
            if one.name not in types:
                return f"column {one.name!r} is not among the other's"
            if one.type != types[one.name]:
                return f"column {one.name!r} is {one.type}, not {types[one.name]}"
        lost = next((name for name in types if name not in {one.name for one in columns}), None)
        if lost is not None:
            return f"column {lost!r} is missing"
        return "" if self == other else "columns have other roles, or stand in another order"

    @property
    def hold_sets(self) -> bool:
        """Return True if the table has one column of item sets in place of quasi-identifiers and sensitive columns."""
        return any(field.is_list for field in self.sensitive)

    @property
    def by_qi(self) -> ReservedColumns:
        """Return the reserved columns of a table that holds the quasi-identifiers."""
        return ReservedColumns(self.quasi_identifiers)

    @property
    def by_sa(self) -> ReservedColumns:
        """Return those of a table that holds the sensitive columns."""
        return ReservedColumns(self.sensitive)

    @property
    def by_all(self) -> ReservedColumns:
        """Return those of a table that holds both."""
        return ReservedColumns((*self.quasi_identifiers, *self.sensitive))

    @property
    def qi_keys(self) -> tuple[str, ...]:
        """q0, q1, .."""
        return tuple(f"q{i}" for i in range(len(self.quasi_identifiers)))

    @property
    def sa_keys(self) -> tuple[str, ...]:
        """s0, s1, .."""
        return tuple(f"s{i}" for i in range(len(self.sensitive)))

    def qi_columns(self, table: str | None = None) -> list[exp.Expr]:
        """q0, q1, .."""
        return [column(key, table) for key in self.qi_keys]

    def sa_columns(self, table: str | None = None) -> list[exp.Expr]:
        """s0, s1, .."""
        return [column(key, table) for key in self.sa_keys]

    def qi_out(self, table: str | None = None) -> list[exp.Expr]:
        """Return q0 AS "age", .."""
        return [alias_as(column(k, table), f.name) for k, f in zip(self.qi_keys, self.quasi_identifiers, strict=True)]

    def sa_out(self, table: str | None = None) -> list[exp.Expr]:
        """Return s0 AS "occupation", .."""
        return [alias_as(column(k, table), f.name) for k, f in zip(self.sa_keys, self.sensitive, strict=True)]

    def qi_typed(self, table: str | None = None) -> list[exp.Expr]:
        """Return CAST(q0 AS UUID) AS "id", .."""
        return [_cast_column(column(k, table), f) for k, f in zip(self.qi_keys, self.quasi_identifiers, strict=True)]

    def sa_typed(self, table: str | None = None) -> list[exp.Expr]:
        """Return CAST(s0 AS DATE) AS "since", .."""
        return [_cast_column(column(k, table), f) for k, f in zip(self.sa_keys, self.sensitive, strict=True)]

    def qi_in(self, table: str | None = None) -> list[exp.Expr]:
        """Return quasi-identifiers under internal names: "age" AS q0, .."""
        return [alias_as(column(f.name, table), k) for k, f in zip(self.qi_keys, self.quasi_identifiers, strict=True)]

    def sa_in(self, table: str | None = None) -> list[exp.Expr]:
        """Return sensitive columns under internal names: "occupation" AS s0, .."""
        return [alias_as(column(f.name, table), k) for k, f in zip(self.sa_keys, self.sensitive, strict=True)]


def _cast_column(value: exp.Expr, field: Field) -> exp.Expr:
    return alias_as(exp.cast(value, exp.DataType.build(field.type, dialect=DIALECT)), field.name)


def read_listed(field: Field, value: exp.Expr, listed: tuple[tuple[str, ...], str]) -> exp.Expr:
    """Return how a column of listed values is read: any other, NULL included, as one that stands for them."""
    kind = exp.DataType.build(field.type, dialect=DIALECT)
    case = exp.Case().when(exp.cast(value.copy(), "VARCHAR").isin(*map(exp.Literal.string, listed[0])), value.copy())
    return case.else_(exp.Literal.string(listed[1]) if field.type == "VARCHAR" else exp.cast(exp.null(), kind))


def canonical_value(value: exp.Expr, kind: str) -> exp.Expr:
    """Return the value as it is published: what compares equal is the same.

    Equal values that are stored differently would keep the order that they had before, in which a record's sensitive
    value stands, and would tell it. Text goes there and back: a collation of the source would merge values, and keep an
    order of its own. Doubles have two zeros and many NaN.
    """
    if kind == "VARCHAR":
        encoded = exp.Anonymous(this="encode", expressions=[exp.cast(value, "VARCHAR")])
        return exp.Anonymous(this="decode", expressions=[encoded])
    if kind not in FLOATS:
        return value
    zero, nan = (exp.cast(exp.Literal.string(text), kind) for text in ("0", "nan"))
    return exp.Case().when(value.eq(zero), zero.copy()).when(value.eq(nan), nan.copy()).else_(value.copy())


def comparable_text(value: exp.Expr, kind: str) -> exp.Expr:
    """Return a text that is equal for values that are equal in other types: 1, 1.0 and '1', a date and its midnight.

    Records that were published from another file, or another table, are known again by it. NULL is the empty text.
    """
    text: exp.Expr = exp.cast(value, "VARCHAR")
    if kind == "VARCHAR":
        text = canonical_value(value, kind)
    elif kind in FLOATS or kind.startswith("DECIMAL"):
        text = _replace_pattern(_replace_pattern(text, "([.][0-9]*[1-9])0+$", "\\1"), "[.]0+$", "")
    elif kind.startswith("TIMESTAMP"):
        text = _replace_pattern(text, " 00:00:00([+]00)?$", "")
    return exp.Coalesce(this=text, expressions=[exp.Literal.string("")])


UUID_TEXT = "-?".join(f"([0-9a-f]{{{digits}}})" for digits in (8, 4, 4, 4, 12))
NAME_FORMS = {f"^[{{]?{UUID_TEXT}[}}]?$": "\\1\\2\\3\\4\\5", "^[+]?0*([0-9]+)([.]0*)?$": "\\1"}


def normal_name(name: exp.Expr) -> exp.Expr:
    """The form in which names are compared: 1, 001 and 1.0 are one, as are A-1 and a-1, and a UUID in any spelling."""
    text: exp.Expr = exp.Lower(this=exp.Trim(this=name))
    for pattern, replacement in NAME_FORMS.items():
        text = _replace_pattern(text, pattern, replacement)
    return text


def _replace_pattern(text: exp.Expr, pattern: str, replacement: str) -> exp.Expr:
    arguments = [text, exp.Literal.string(pattern), exp.Literal.string(replacement)]
    return exp.Anonymous(this="regexp_replace", expressions=arguments)


# Texts ----------------------------------------------------------------------------------------------------------------
# Texts of values that are the same on every engine, so that a hash of them is.

BETWEEN = "\x1f"  # between texts that stand side by side
DIGITS, BITS = 15, 60  # of a hash, in hexadecimal and in bits: what fits into an integer of 64 bits
NULL = "-"  # which is the text of no number, date or truth value; a text is preceded by its length
ZONED = "TIMESTAMP WITH TIME ZONE"


def injective_texts(fields: Mapping[str, Field], table: str) -> list[exp.Expr]:
    """Texts of the columns of ``table``, by their names inside; records that differ have different lists of them.

    They are the same on every engine; ``UsageError`` for doubles, whose texts engines do not share.
    """
    for each_field in fields.values():
        if each_field.type in FLOATS:
            raise UsageError(
                f"column {each_field.name!r} is {each_field.type}, whose text is not the same on every engine; order = "
                "'portable' needs it cast to DECIMAL in source.query"
            )
    return [injective_text(column(name, table), each_field.type) for name, each_field in fields.items()]


def concat_texts(texts: Sequence[exp.Expr]) -> exp.Expr:
    """Return one text of several, none of which is NULL."""
    return exp.Anonymous(this="concat_ws", expressions=[exp.Literal.string(BETWEEN), *texts])


def first_characters(text: exp.Expr, characters: int) -> exp.Expr:
    """Return the beginning of a text."""
    return exp.Substring(this=text, start=exp.Literal.number(1), length=exp.Literal.number(characters))


def injective_text(value: exp.Expr, kind: str) -> exp.Expr:
    """Return text of a value of a type; values that differ have different ones, NULL and an empty text among them."""
    written: exp.Expr = exp.cast(value, "VARCHAR")
    if kind == ZONED:  # sessions are in UTC
        written = exp.cast(exp.cast(value, "TIMESTAMP"), "VARCHAR")
    if kind == "VARCHAR":
        length = exp.cast(exp.Length(this=value.copy()), "VARCHAR")
        written = exp.DPipe(this=exp.DPipe(this=length, expression=exp.Literal.string(":")), expression=value.copy())
    return exp.Coalesce(this=written, expressions=[exp.Literal.string(NULL)])
