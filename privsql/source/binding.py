"""A key and the records that it is used for: what it draws for one table says nothing of what it draws for another.

Two tables whose values have the same counts would else be laid out alike, and records that are in both would lie in one
order: who holds two releases by one key could tell from a record's buckets more than either release promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.engine.texts import injective

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from privsql.engine.database import Relations
    from privsql.engine.roles import Field
    from privsql.noise import Key

PURPOSE = "records"


def hashed(
    db: Relations,
    records: exp.Query,
    columns: Sequence[exp.Expr],
    fields: Mapping[str, Field],
    key: Key,
    *,
    everywhere: bool,
) -> exp.Query:
    """``columns`` (of r) of the records, and ``h``: 60 bits of SHA-256 of a subkey and the texts of ``fields``.

    The subkey stands in relation ``secret``, which is never part of a statement's text. ``everywhere``: the same on
    every engine; ``UsageError`` for columns of which no text is.
    """
    db.put("secret", key.word(PURPOSE))
    texts = [column("word", "k"), *injective(fields, "r", everywhere=everywhere)]
    holes: Holes = {
        "records": records.subquery(),
        "secret": temp("secret"),
        "columns": columns,
        "hash": db.hashed(texts),
    }
    return fill("portable/hashed", holes)


def fingerprinted(db: Relations, records: exp.Expr, key: Key) -> Key:
    """The key for records (a relation of ``hashed``) alone: from their number and the sum of their hashes."""
    number, total = db.rows(fill("portable/fingerprint", {"hashed": records}))[0]
    db.drop("secret")
    return key.derived("records", int(number), int(total))
