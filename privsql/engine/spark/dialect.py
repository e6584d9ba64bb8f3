"""Trees of ``sql/`` as Spark's SQL, and Spark's types by privsql's names.

A tree is looked at once its holes are filled: what Spark might read otherwise than DuckDB is refused, not rendered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from privsql.engine.portable import alien, unordered
from privsql.engine.sqlfiles import PREFIX
from privsql.engine.texts import DIGITS, beside_each_other, first
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPARK = "spark"
RELEASE = "release"  # the database whose tables become files
INSIDE = "release_"  # before the names of these tables in a session
TRANSLATED = frozenset({"encode", "decode", "regexp_replace"})  # how trees spell what an engine has its own words for
OWN = frozenset({"concat", "concat_ws", "conv", "md5", "sha2", "shiftrightunsigned", "substring"})  # of hashes
ALIKE = frozenset({"Avg", "DPipe", "Length", "Substring"})  # outside the subset, and the same or made the same here
TYPES: dict[type[spark.DataType], str] = {
    spark.ByteType: "TINYINT",
    spark.ShortType: "SMALLINT",
    spark.IntegerType: "INTEGER",
    spark.LongType: "BIGINT",
    spark.FloatType: "FLOAT",
    spark.DoubleType: "DOUBLE",
    spark.BooleanType: "BOOLEAN",
    spark.StringType: "VARCHAR",
    spark.DateType: "DATE",
    spark.TimestampNTZType: "TIMESTAMP",
    spark.TimestampType: "TIMESTAMP WITH TIME ZONE",
}
WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}
MISSING = (exp.DType.UUID, exp.DType.TIME, exp.DType.UTINYINT, exp.DType.USMALLINT, exp.DType.UINT, exp.DType.UBIGINT)


def render(tree: exp.Expr, place: Callable[[str], str]) -> str:
    """Spark's SQL of a filled tree; ``place``: under which name a temporary relation stands.

    Raises ``EngineError`` for what is outside the portable subset, and for types that Spark lacks.
    """
    foreign = alien(tree, TRANSLATED | OWN | ALIKE) | unordered(tree)
    if foreign:
        raise EngineError(f"Spark can't run what is outside the portable subset: {', '.join(sorted(foreign))}")
    own = tree.copy()
    for table in list(own.find_all(exp.Table)):
        if "temp" in (table.catalog, table.db) or table.catalog == RELEASE:
            name = INSIDE + table.name if table.catalog == RELEASE else table.name.removeprefix(PREFIX)
            table.set("catalog", None)
            table.set("db", None)
            table.set("this", exp.to_identifier(place(name), quoted=True))
    for node in reversed(list(own.walk())):  # what is inside first
        node.replace(_translated(node))
    try:
        return own.sql(dialect=SPARK, comments=False, unsupported_level=ErrorLevel.RAISE, copy=False)
    except UnsupportedError as error:
        raise EngineError(f"Spark: {error}") from error


def _translated(node: exp.Expr) -> exp.Expr:
    """What Spark says otherwise."""
    match node:
        case exp.DataType(this=exp.DType.INT128):
            return exp.DataType.build("DECIMAL(38, 0)")
        case exp.DataType(this=kind) if kind in MISSING:
            raise EngineError(f"Spark has no type {node.sql(dialect='duckdb')}; cast the column in the source's query")
        case exp.Window(this=exp.DenseRank()) if not node.args.get("order"):
            node.set("order", exp.Order(expressions=[exp.Ordered(this=exp.Literal.number(1))]))
        case exp.Avg():  # of decimals it would be one
            node.set("this", exp.cast(node.this, "DOUBLE"))
        case exp.Anonymous() if node.name.lower() == "decode":
            return _bare(node)
        case exp.Anonymous() if node.name.lower() == "regexp_replace":
            *given, kept = node.expressions
            node.set("expressions", [*given, exp.Literal.string(kept.name.replace("\\1", "$1"))])
    return node


def _bare(decoded: exp.Expr) -> exp.Expr:
    """Text as it compares by its bytes, whatever the source says: decode(encode(text))."""
    encoded = decoded.expressions[0]
    if not (isinstance(encoded, exp.Anonymous) and encoded.name.lower() == "encode"):
        raise EngineError("Spark: decode is known of encoded text only")
    return exp.Collate(this=encoded.expressions[0], expression=exp.var("UTF8_BINARY"))


def digest(texts: Sequence[exp.Expr]) -> exp.Expr:
    """63 bits of the MD5 of texts, as DuckDB has them: the upper half of a number whose first byte is the lowest."""
    shown = _call("md5", beside_each_other(texts))
    numbers = [exp.Literal.number(place) for place in range(31, 16, -2)]
    turned = _call("concat", *(_call("substring", shown.copy(), n, exp.Literal.number(2)) for n in numbers))
    signed = _call("conv", turned, exp.Literal.number(16), exp.Neg(this=exp.Literal.number(10)))
    return _call("shiftrightunsigned", exp.cast(signed, "BIGINT"), exp.Literal.number(1))


def hashed(texts: Sequence[exp.Expr]) -> exp.Expr:
    """The first 60 bits of SHA-256 of texts."""
    shown = first(_call("sha2", beside_each_other(texts), exp.Literal.number(256)), DIGITS)
    return exp.cast(_call("conv", shown, exp.Literal.number(16), exp.Literal.number(10)), "BIGINT")


def _call(name: str, *given: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(given))


def type_name(kind: spark.DataType) -> str:
    """A type by the name that ``privsql.engine.roles`` has for it; as Spark says it if there is none.

    >>> type_name(spark.DecimalType(10, 2)), type_name(spark.ArrayType(spark.IntegerType()))
    ('DECIMAL(10,2)', 'INTEGER[]')
    """
    if isinstance(kind, spark.DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, spark.ArrayType):
        return f"{type_name(kind.elementType)}[]"
    return TYPES.get(type(kind), str(kind.simpleString()))


def readable(data: pa.Table) -> pa.Table:
    """An Arrow table in types that Spark has: whole numbers without a sign in wider ones, points in time in us."""
    fields = [field.with_type(_readable(field)) for field in data.schema]
    return data.cast(pa.schema(fields))


def _readable(field: pa.Field) -> pa.DataType:
    kind = field.type
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_time(kind):
        raise EngineError(f"Spark has no type for column {field.name!r}: {kind}")
    return WIDER.get(kind, kind)
