"""What Postgres says otherwise, hashes as it makes them, and its types by privsql's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.rendering import Engine, call
from privsql.engine.roles import Field
from privsql.engine.texts import DIGITS, beside_each_other, first

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

POSTGRES = "postgres"
OWN = frozenset({"Collate", "concat", "concat_ws", "convert_to", "md5", "sha256"})  # of hashes
TYPES = {
    "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE", "bool": "BOOLEAN",
    "text": "VARCHAR", "varchar": "VARCHAR", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE", "uuid": "UUID",
}  # fmt: skip
HEADER = 4  # added to precision and scale of a numeric type, as the server keeps them


def _digest(texts: Sequence[exp.Expr]) -> exp.Expr:
    """63 bits of the MD5 of texts, as DuckDB has them: the upper half of a number whose first byte is the lowest."""
    shown = call("md5", beside_each_other(texts))
    numbers = [exp.Literal.number(place) for place in range(31, 16, -2)]
    pieces = [exp.Substring(this=shown.copy(), start=n, length=exp.Literal.number(2)) for n in numbers]
    return _bits(call("concat", *pieces), 64, 63)


def _hashed(texts: Sequence[exp.Expr]) -> exp.Expr:
    """The first 60 bits of SHA-256 of texts."""
    octets = call("sha256", call("convert_to", beside_each_other(texts), exp.Literal.string("UTF8")))
    return _bits(first(call("encode", octets, exp.Literal.string("hex")), DIGITS), 4 * DIGITS, 4 * DIGITS)


def _bits(hexadecimal: exp.Expr, given: int, kept: int) -> exp.Expr:
    """The first ``kept`` bits of ``given`` in hexadecimal, as an integer."""
    marked = exp.DPipe(this=exp.Literal.string("x"), expression=hexadecimal)
    text = first(exp.cast(exp.cast(marked, f"BIT({given})", dialect=POSTGRES), "TEXT"), kept)
    padded = exp.DPipe(this=exp.Literal.string("0" * (64 - kept)), expression=text)
    return exp.cast(exp.cast(padded, "BIT(64)", dialect=POSTGRES), "BIGINT")


ENGINE = Engine("Postgres", POSTGRES, OWN, lambda node: node, exp.to_identifier("C", quoted=True), _digest, _hashed)


def fields(schema: pa.Schema) -> list[Field]:
    """Columns, with types by privsql's names; as the server says them where there is none."""
    return [Field(field.name, _type(field)) for field in schema]


def _type(field: pa.Field) -> str:
    told = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind: str = told.get("POSTGRESQL:type", str(field.type))
    modifier = int(told.get("POSTGRESQL:typmod", -1))
    if kind == "numeric" and modifier >= HEADER:
        precision, scale = divmod(modifier - HEADER, 2**16)
        return f"DECIMAL({precision},{scale})" if precision <= 38 and scale <= precision else kind
    if kind.startswith("_") and kind[1:] in TYPES:
        return f"{TYPES[kind[1:]]}[]"
    return TYPES.get(kind, kind)
