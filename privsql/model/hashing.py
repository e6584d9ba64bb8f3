"""Compute keyed hashes of records from the texts of their values, and derive keys that serve for these records only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine.sqlfiles import (
    BETWEEN,
    Holes,
    alias_as,
    column,
    comparable_text,
    fill,
    injective_text,
    injective_texts,
    temp_table,
)
from privsql.errors import GuaranteeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Field
    from privsql.keyed_random import Key

    Ints = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

BATCH = 122_880  # records that are read and written at a time: a row group of DuckDB, which fits into a cache


def source_changed_error() -> GuaranteeError:
    """Return the error for a source that changed between two readings of it."""
    return GuaranteeError("the source changed while it was read; nothing written")


# Hashing --------------------------------------------------------------------------------------------------------------
# Every record has a keyed hash of 64 bits, of the texts of its values and their positions:
#
# h = s(xor over columns i of s(H(text_i) + (i + 1) c)). Here H is 63 bits of the MD5 digest of a secret word and the
# text, and s is the finalizer of MurmurHash3, a bijection. H is computed once for each different value, in Python or by
# the engine. The outer s is not linear. Without it, the sum over all records would not depend on which values are in
# one record.

GOLDEN = 0x9E3779B97F4A7C15  # c: 2^64 divided by the golden ratio, odd
BITS = 64
ROUNDS = ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53))
SECRET = "word"  # noqa: S105 (the relation with the secret word, which is never part of a statement's text)
PURPOSE = "values"


def scatter_bits(numbers: Hashes) -> Hashes:
    """Mix the bits of each 64-bit number by a bijection, so that each bit of the result depends on all bits.

    It is fmix64 of MurmurHash3 (Appleby).
    """
    mixed = numbers.copy()
    for shift, factor in ROUNDS:
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(33))


def place_hashes(values: Hashes, place: int) -> Hashes:
    """Combine hashes of values with the position of their column, so that equal values in two columns differ.

    Args:
        values: The hashes of the values.
        place: The position of the column, counted from 0.
    """
    return scatter_bits(values + np.uint64((place + 1) * GOLDEN % 2**BITS))


def hash_texts(texts: Iterable[str], word: str) -> Hashes:
    """Return for each text 63 bits of the MD5 digest of a secret word and the text.

    Without the secret, nobody can test by its hash what a text is. ``keyed_digest`` computes the same bits in SQL.
    """
    digests = (hashlib.md5(f"{word}{BETWEEN}{text}".encode(), usedforsecurity=False).digest() for text in texts)
    return np.array([int.from_bytes(one, "little") >> 65 for one in digests], dtype=np.uint64)


@dataclass
class RecordSum:
    """A fingerprint by which a set of records is recognized, in whatever order they come.

    Attributes:
        records: The number of records.
        sums: The sum of the hashes of all records, and the sum of these hashes with mixed bits, modulo 2^64.
    """

    records: int = 0
    sums: tuple[int, int] = (0, 0)

    def add_hashes(self, hashes: Hashes, times: Ints | None = None) -> None:
        """Add the hashes of some records to both sums.

        Args:
            hashes: The hashes.
            times: How many records have each hash; None for one each.
        """
        weights = np.ones(1, np.uint64) if times is None else times.astype(np.uint64)
        self.records += len(hashes) if times is None else int(times.sum())
        first, second = (int((part * weights).sum()) for part in (hashes, scatter_bits(hashes)))
        self.sums = (self.sums[0] + first) % 2**BITS, (self.sums[1] + second) % 2**BITS

    @property
    def fingerprint(self) -> str:
        """Return both sums as 32 hexadecimal digits; equal sets of records have equal fingerprints."""
        return "".join(f"{one:016x}" for one in self.sums)


def keyed_digest(db: Relations, text: exp.Expr) -> exp.Expr:
    """Return SQL for the keyed hash of a text: bits of the MD5 digest of a secret word and the text.

    Without the secret, nobody can test by its hash what a text is. The SQL reads it from relation ``word``, so it is
    never part of a statement. ``hash_texts`` computes the same in Python.
    """
    word = exp.select(column("word", "k")).from_(exp.alias_(temp_table(SECRET), "k", table=True))
    return db.digest([word.subquery(copy=False), text])


def secret_word(key: Key) -> pa.Table:
    """Return a table with the secret word of a key, which SQL that hashes values reads as relation ``word``."""
    return key.word(PURPOSE)


def key_word(key: Key) -> str:
    """Return the secret word of a key as text, which is put before every value that is hashed."""
    return str(secret_word(key)["word"][0])


def hash_columns(
    db: Relations,
    values: Sequence[tuple[exp.Expr, str]],
    source: exp.Table,
    keep: exp.Expr,
    key: Key,
    *,
    exact: bool = False,
) -> Iterator[Hashes]:
    """Yield a keyed hash of 64 bits for each record of a relation, in batches and in any order.

    A ledger recognizes records by these hashes without storing them, and keys that serve for some records only are
    derived from them.

    Args:
        db: The engine that holds the relation.
        values: For each column to hash, the SQL expression and its type.
        source: The relation.
        keep: The condition for the records that are hashed.
        key: The key.
        exact: How values are written as the texts that are hashed. If True, different values of one type always have
            different texts. If False, a value has the same text in every type that holds it.
    """
    db.register_arrow(SECRET, secret_word(key))
    texts = _query_texts(db, values, source, keep, injective_text if exact else comparable_text)
    with db.stream_batches(texts, BATCH) as batches:
        for batch in batches:
            hashes = np.zeros(batch.num_rows, dtype=np.uint64)
            for place, one in enumerate(batch.columns):
                hashes ^= place_hashes(one.to_numpy(zero_copy_only=False).astype(np.uint64), place)
            yield scatter_bits(hashes)
    db.drop(SECRET)


def _query_texts(
    db: Relations,
    values: Sequence[tuple[exp.Expr, str]],
    source: exp.Table,
    keep: exp.Expr,
    write: Callable[[exp.Expr, str], exp.Expr],
) -> exp.Query:
    """Return the query for the keyed hashes of each record's values, in columns h0, h1, ..

    Relation ``word`` must hold the secret word when the query runs.

    Args:
        db: The engine that holds the relation.
        values: For each column to hash, the SQL expression and its type.
        source: The relation.
        keep: The condition for the records that are hashed.
        write: Returns the SQL for the text of a value, from its expression and type.
    """
    named = [(alias_as(value.copy(), f"v{i}"), kind) for i, (value, kind) in enumerate(values)]
    texts = [write(column(f"v{i}"), kind) for i, (_, kind) in enumerate(named)]
    holes: Holes = {
        "source": source,
        "values": [value for value, _ in named],
        "hashes": [alias_as(db.digest([column("word", "k"), text]), f"h{i}") for i, text in enumerate(texts)],
        "secret": temp_table(SECRET),
        "keep": keep,
    }
    return fill("ledger/hashes", holes)


# The same hashes in SQL, for engines with too many rows to be read into Python. No engine multiplies modulo 2^64. So a
# number is two columns of 32 bits, and a product is computed from parts of 16 bits; no intermediate result exceeds
# 2^51.

Halves = tuple["exp.Expr", "exp.Expr"]
LOW, LOWEST, HALF = 2**32 - 1, 2**16 - 1, 2**16


def query_hashes(db: Relations, values: Sequence[tuple[exp.Expr, str]], source: exp.Table, keep: exp.Expr) -> exp.Query:
    """Return the query that computes a keyed hash of 64 bits for each record, as two halves of 32 bits (high, low).

    It is for engines with too many rows to be read into Python; ``hash_columns`` computes the same hashes there.
    Relation ``word`` must hold the secret word when the query runs.

    Args:
        db: The engine that holds the relation.
        values: For each column to hash, the SQL expression and its type.
        source: The relation.
        keep: The condition for the records that are hashed.
    """
    names, placed = [f"h{i}" for i in range(len(values))], []
    for place, name in enumerate(names):
        high, low = divmod((place + 1) * GOLDEN % 2**BITS, 2**32)
        sum_low = _mask(column(name), LOW) + low
        sum_high = _mask(_shift_right(column(name), 32) + high + _shift_right(sum_low, 32), LOW)
        placed += [alias_as(sum_high, f"{name}_high"), alias_as(_mask(sum_low, LOW), f"{name}_low")]
    texts = _query_texts(db, values, source, keep, comparable_text)
    scattered = scatter_in_sql(exp.select(*placed).from_(texts.subquery("r")), names)
    halves: list[list[exp.Expr]] = [[column(f"{name}_{half}") for name in names] for half in ("high", "low")]
    joint = [reduce(_xor, every) for every in halves]
    whole = exp.select(*(alias_as(one, f"h_{half}") for one, half in zip(joint, ("high", "low"), strict=True)))
    scattered = scatter_in_sql(whole.from_(scattered.subquery("r")), ["h"])
    return exp.select(alias_as(column("h_high"), "high"), alias_as(column("h_low"), "low")).from_(
        scattered.subquery("r")
    )


def sum_hashes(db: Relations, hashes: exp.Table) -> RecordSum:
    """Return the fingerprint of a set of records, whose hashes lie in a relation as two halves (high, low)."""
    named = [alias_as(column(half), f"{name}_{half}") for name in "hs" for half in ("high", "low")]
    scattered = scatter_in_sql(exp.select(*named).from_(hashes), ["s"], ["h_high", "h_low"])
    halves = [column(f"{name}_{half}", "r") for name in "hs" for half in ("high", "low")]
    parts = [part for half in halves for part in (_shift_right(half, 16), _mask(half, LOWEST))]
    sums: list[exp.Expr] = [exp.Coalesce(this=exp.Sum(this=one), expressions=[exp.Literal.number(0)]) for one in parts]
    records, *totals = db.rows(fill("ledger/totals", {"hashes": scattered.subquery(), "sums": sums}))[0]
    powers = [2**shift for shift in (48, 32, 16, 0)]
    joined = [sum(int(one) * by for one, by in zip(totals[at : at + 4], powers, strict=True)) for at in (0, 4)]
    return RecordSum(int(records), (joined[0] % 2**BITS, joined[1] % 2**BITS))


def scatter_in_sql(rows: exp.Query, names: Sequence[str], carried: Sequence[str] = ()) -> exp.Query:
    """Return the query that mixes the bits of 64-bit numbers in SQL, as ``scatter_bits`` does in Python.

    Args:
        rows: The query for the numbers, each as two columns NAME_high and NAME_low.
        names: The names of the numbers.
        carried: Further columns, which are kept unchanged.
    """
    for _, factor in (*ROUNDS, (33, None)):
        halves = {name: (column(f"{name}_high"), column(f"{name}_low")) for name in names}
        shifted = {name: (high, _xor(low, _shift_right(high, 1))) for name, (high, low) in halves.items()}
        made = {name: pair if factor is None else _multiply(pair, factor) for name, pair in shifted.items()}
        named = [
            alias_as(one, f"{name}_{half}")
            for name, pair in made.items()
            for one, half in zip(pair, ("high", "low"), strict=True)
        ]
        rows = exp.select(*map(column, carried), *named).from_(rows.subquery("r"))
    return rows


def _multiply(number: Halves, factor: int) -> Halves:
    """Return SQL for (the high half, the low half) of a 64-bit number times a constant, modulo 2^64.

    SQL engines have no such multiplication, so it is made of smaller products.
    """
    (high, low), (f_high, f_low) = number, divmod(factor, 2**32)
    first = low * (f_low & LOWEST)
    second = low * (f_low >> 16) + _shift_right(first, 16)
    product = _mask(second, LOWEST) * HALF + _mask(first, LOWEST)
    crossed = [
        part
        for one, by in ((low, f_high), (high, f_low))
        for part in (one * (by & LOWEST), _mask(one, LOWEST) * (by >> 16) * HALF)
    ]
    return _mask(sum(crossed, _shift_right(second, 16)), LOW), product


def _mask(number: exp.Expr, bits: int) -> exp.Expr:
    return exp.paren(exp.BitwiseAnd(this=exp.paren(number.copy()), expression=exp.Literal.number(bits)))


def _shift_right(number: exp.Expr, bits: int) -> exp.Expr:
    return exp.paren(exp.BitwiseRightShift(this=exp.paren(number.copy()), expression=exp.Literal.number(bits)))


def _xor(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.paren(exp.BitwiseXor(this=one.copy(), expression=other.copy()))


def upper_bits(low: exp.Expr) -> exp.Expr:
    """Return SQL for the low half of a 64-bit hash without its last bit.

    A ledger stores only the upper 63 bits of hashes, which fit into signed integers.
    """
    return _shift_right(low, 1)


# Binding --------------------------------------------------------------------------------------------------------------
# A key is derived for the records that it is used for, so that its random choices for two tables are independent.
# Otherwise two tables with equal counts would be laid out alike, and two releases with one key would tell more
# together.

BOUND = "records"


def hash_records(
    db: Relations,
    records: exp.Query,
    columns: Sequence[exp.Expr],
    fields: Mapping[str, Field],
    key: Key,
) -> exp.Query:
    """Return the query for records with a keyed hash ``h``: 60 bits of SHA-256, the same on every engine.

    Random choices about a record follow from its hash if a release has the order ``portable``. The secret word lies in
    relation ``secret``, so it is never part of a statement's text.

    Args:
        db: The engine that holds the records.
        records: The query for the records, whose alias is r.
        columns: The columns of r to return.
        fields: The columns that are hashed, by their names in privsql's code, such as q0.
        key: The key.

    Raises:
        UsageError: A column has a type whose values are not written alike by every engine.
    """
    db.register_arrow("secret", key.word(BOUND))
    texts = [column("word", "k"), *injective_texts(fields, "r")]
    holes: Holes = {
        "records": records.subquery(),
        "secret": temp_table("secret"),
        "columns": columns,
        "hash": db.hashed(texts),
    }
    return fill("portable/hashed", holes)


def derive_stream_key(hashed: Iterable[Hashes], key: Key) -> Key:
    """Derive a key that serves for these records only, from their number and the sums of their hashes.

    It is for order ``stream``, in which a mechanism places records by random numbers that the key generates.

    Args:
        hashed: The hashes of all records, in batches.
        key: The key from which the new one is derived.
    """
    total = RecordSum()
    for hashes in hashed:
        total.add_hashes(hashes)
    return key.derive_key("records", total.records, total.fingerprint)


def derive_record_key(db: Relations, records: exp.Expr, key: Key) -> Key:
    """Derive a key that serves for these records only, from their number and the sum of their hashes.

    It is for order ``portable``, in which a mechanism places each record by a keyed hash, the same on every engine.

    Args:
        db: The engine that holds the records.
        records: The relation of the records with their hashes (see ``hash_records``).
        key: The key from which the new one is derived.
    """
    number, total = db.rows(fill("portable/fingerprint", {"hashed": records}))[0]
    db.drop("secret")
    return key.derive_key("records", int(number), int(total))
