"""Trees of ``sql/`` as Spark's SQL, and Spark's types by privsql's names.

A tree is looked at once its holes are filled: what Spark might read otherwise than DuckDB is refused, not rendered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as spark
from sqlglot import exp

from privsql.engine.arrows import widened
from privsql.engine.rendering import Engine, call, temporary
from privsql.engine.texts import DIGITS, beside_each_other, first
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

SPARK = "spark"
RELEASE = "release"  # the database whose tables become files
INSIDE = "release_"  # before the names of these tables in a session
OWN = frozenset({"concat", "concat_ws", "conv", "md5", "sha2", "shiftrightunsigned", "substring"})  # of hashes
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
MISSING = (exp.DType.UUID, exp.DType.TIME, exp.DType.UTINYINT, exp.DType.USMALLINT, exp.DType.UINT, exp.DType.UBIGINT)


def render(tree: exp.Expr, place: Callable[[str], str], released: Collection[str] = ()) -> str:
    """Spark's SQL of a filled tree; ``place``: under which name a temporary relation stands.

    ``released``: tables of a release that are meant where no database is named.

    Raises ``EngineError`` for what is outside the portable subset, and for types that Spark lacks.
    """

    def placed(table: exp.Table) -> str | None:
        inside = table.catalog == RELEASE or (not table.db and table.name in released)
        name = INSIDE + table.name if inside else temporary(table)
        return None if name is None else place(name)

    return ENGINE.render(tree, placed)


def _said(node: exp.Expr) -> exp.Expr:
    """What Spark says otherwise."""
    match node:
        case exp.DataType(this=kind) if kind in MISSING:
            raise EngineError(f"Spark has no type {node.sql(dialect='duckdb')}; cast the column in the source's query")
        case exp.Anonymous() if node.name.lower() == "regexp_replace":
            *given, kept = node.expressions
            node.set("expressions", [*given, exp.Literal.string(kept.name.replace("\\1", "$1"))])
    return node


def _digest(texts: Sequence[exp.Expr]) -> exp.Expr:
    """63 bits of the MD5 of texts, as DuckDB has them: the upper half of a number whose first byte is the lowest."""
    shown = call("md5", beside_each_other(texts))
    numbers = [exp.Literal.number(place) for place in range(31, 16, -2)]
    turned = call("concat", *(call("substring", shown.copy(), n, exp.Literal.number(2)) for n in numbers))
    signed = call("conv", turned, exp.Literal.number(16), exp.Neg(this=exp.Literal.number(10)))
    return call("shiftrightunsigned", exp.cast(signed, "BIGINT"), exp.Literal.number(1))


def _hashed(texts: Sequence[exp.Expr]) -> exp.Expr:
    """The first 60 bits of SHA-256 of texts."""
    shown = first(call("sha2", beside_each_other(texts), exp.Literal.number(256)), DIGITS)
    return exp.cast(call("conv", shown, exp.Literal.number(16), exp.Literal.number(10)), "BIGINT")


ENGINE = Engine("Spark", SPARK, OWN, _said, exp.var("UTF8_BINARY"), _digest, _hashed)


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
    """An Arrow table in types that Spark has; ``EngineError`` names a column of which there is none."""
    for field in data.schema:
        if pa.types.is_time(field.type):
            raise EngineError(f"Spark has no type for column {field.name!r}: {field.type}")
    return widened(data)
