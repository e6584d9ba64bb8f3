"""Pack every record into one 64-bit integer: the ranks of its values in all columns, side by side in its bits.

Integers are sorted twenty times as fast as rows of columns, and in the same order. But ranks are not values: a table in
which every age is one year higher has the same ranks. So whatever has to depend on the values, such as a hash, is
computed from their texts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import (
    Holes,
    alias_as,
    column,
    comparable_text,
    fill,
    injective_text,
    temp_table,
)
from privsql.errors import EngineError, GuaranteeError
from privsql.model.hashing import BATCH, BITS, hash_texts, key_word, place_hashes, scatter_bits, source_changed_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.keyed_random import Key

    Ints = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

MOST_VALUES = 2**17  # most different values of a column
SHORT = {"BOOLEAN", "TINYINT", "UTINYINT", "SMALLINT", "USMALLINT"}  # types that can't have more values
UNPACKED = ("UUID",)  # types whose values are usually all different, and which Arrow can't look up
JOINT = 2**16  # most entries of a table that gives the hashes of several columns at once
PACKED = 24  # bytes for each record while integers are made and sorted
NUMBER = 31  # bits of a number beside quasi-identifiers
ABSENT = np.uint64(2**64 - 1)  # marks a number that is not a value of the column


@dataclass(frozen=True)
class PackedColumn:
    """The k different values of a column, sorted, with NULL last.

    A record is stored as one integer, in which the rank of a value (its position in this order) stands for the value.
    All sensitive columns together are one column here, whose values are combinations.

    Attributes:
        values: The values (k,).
        texts: The values as texts, which are hashed. There is one tuple of k texts for each of the publisher's columns:
            one for a quasi-identifier, several for several sensitive columns. A value has the same text in every type
            that holds it.
        exact_texts: The same, but different values of one type always have different texts.
        records: How many records have each value (k,).
        shift: The number of bits to the right of the rank in a record's integer.
    """

    values: pa.Array
    texts: tuple[tuple[str, ...], ...]
    exact_texts: tuple[tuple[str, ...], ...]
    records: Ints
    shift: int = 0

    @property
    def bits(self) -> int:
        """Return how many bits of a record's integer hold the rank of its value in this column."""
        return _count_bits(len(self.values))

    def place_values(self, values: pa.Array) -> Hashes:
        """Return the ranks of some values of the column, each shifted to its position in a record's integer.

        The integer of a record is put together from these numbers.

        Raises:
            GuaranteeError: A value does not occur in the column, so the source has changed.
        """
        if self._placed is None or values.null_count:
            import pyarrow.compute as pc

            ranks = pc.index_in(values, value_set=self.values)
            if ranks.null_count:
                raise source_changed_error()
            return np.asarray(ranks.to_numpy(), dtype=np.uint64) << np.uint64(self.shift)
        numbers, (least, table) = values.to_numpy(), self._placed
        above = (numbers - numbers.dtype.type(least)).view(f"u{numbers.itemsize}")  # a negative one becomes large
        if above.max(initial=0) >= len(table):
            raise source_changed_error()
        placed: Hashes = table.take(above.astype(np.intp, copy=False))
        if (placed == ABSENT).any():
            raise source_changed_error()
        return placed

    @cached_property
    def _placed(self) -> tuple[int, Hashes] | None:
        """Return a table in which ``place_values`` quickly looks up the rank of a value, if the values are integers.

        Returns:
            The smallest value v, and an array. Entry i is the rank of value v + i, shifted to its position in a
            record's integer. None if the values are not integers, or lie too far apart.
        """
        if not pa.types.is_integer(self.values.type):
            return None
        numbers = [one for one in self.values.to_pylist() if one is not None]
        least, most = min(numbers, default=0), max(numbers, default=0)
        if most - least >= MOST_VALUES:
            return None
        table = np.full(most - least + 1, ABSENT)
        table[[one - least for one in numbers]] = np.arange(len(numbers), dtype=np.uint64) << np.uint64(self.shift)
        return least, table


@dataclass(frozen=True)
class RankedRecords:
    """Records whose columns have so few different values that the hash of each value is computed only once.

    They are used to hash all records quickly if the records do not fit into integers (``PackedRecords``). A value is
    looked up by its rank: its position among the sorted different values of its column.

    Attributes:
        db: The engine that holds the records.
        columns: The quasi-identifiers q0.., and last the sensitive values.
        coded: The query for the records: q0.. and the rank of the sensitive value.
    """

    db: Relations
    columns: tuple[PackedColumn, ...]
    coded: exp.Query

    def hash_records(self, key: Key, places: Sequence[int] | None = None, *, exact: bool = False) -> Iterator[Hashes]:
        """Yield a keyed hash of 64 bits for each record, in batches and in any order.

        A ledger recognizes records by these hashes without storing them. They equal those of ``hash_columns``, which
        takes longer.

        Args:
            key: The key.
            places: The position that each column gets in the hashed record, so that the hash does not depend on the
                order of columns; None for their own order.
            exact: How values are written as the texts that are hashed. If True, different values of one type always
                have different texts. If False, a value has the same text in every type that holds it.
        """
        tables = list(_hash_ranks(self.columns, key_word(key), places, exact=exact))
        with self.db.stream_batches(self.coded, BATCH) as batches:
            for batch in batches:
                hashes = np.zeros(batch.num_rows, dtype=np.uint64)
                for one, by_rank, values in zip(self.columns, tables, batch.columns, strict=True):
                    hashes ^= by_rank.take(one.place_values(values).view(np.int64))
                yield scatter_bits(hashes)


def _hash_ranks(
    columns: Iterable[PackedColumn], word: str, places: Sequence[int] | None, *, exact: bool
) -> Iterator[Hashes]:
    """Yield for each column an array with the hash of each of its values, in the order of the values.

    Its length is 2^b, where b is the number of bits for a value's rank; entries beyond the last value are 0.

    Args:
        columns: The columns.
        word: The secret word of the key.
        places: The position of each of the publisher's columns in the hashed record; None for their own order.
        exact: Whether ``exact_texts`` of the columns are hashed instead of ``texts``.
    """
    following = iter(count() if places is None else places)
    for one in columns:
        by_rank = np.zeros(2**one.bits, dtype=np.uint64)
        for texts in one.exact_texts if exact else one.texts:
            by_rank[: len(texts)] ^= place_hashes(hash_texts(texts, word), next(following))
        yield by_rank


@dataclass(frozen=True)
class PackedRecords:
    """All n records, each as one integer of 64 bits, sorted. Sorting integers is much faster than sorting rows.

    The integer holds side by side the ranks of the record's values: their positions among the sorted different values
    of the columns. The rank of the sensitive value has the highest bits, then those of q0, q1, ..

    Attributes:
        columns: The quasi-identifiers q0.., and last the sensitive values.
        words: The integers, rising (n,).
    """

    columns: tuple[PackedColumn, ...]
    words: NDArray[np.uint64]

    def hash_records(self, key: Key, places: Sequence[int] | None = None, *, exact: bool = False) -> Iterator[Hashes]:
        """Yield a keyed hash for each record; arguments and hashes are those of ``RankedRecords.hash_records``."""
        hashed = zip(self.columns, _hash_ranks(self.columns, key_word(key), places, exact=exact), strict=True)
        by_shift = sorted(((one.shift, by_rank) for one, by_rank in hashed), key=lambda one: one[0])
        tables = list(_join_tables(iter(by_shift)))
        for begin in range(0, len(self.words), BATCH):
            part = self.words[begin : begin + BATCH]
            hashes = np.zeros(len(part), dtype=np.uint64)
            for shift, by_rank in tables:
                hashes ^= by_rank.take(extract_bits(part, shift, len(by_rank)))
            yield scatter_bits(hashes)

    def has_same_people(self, db: Relations, rows: exp.Query) -> bool:
        """Return whether a table holds the quasi-identifiers of exactly these records, each combination equally often.

        A check of a release compares its records with the source in this way.

        Args:
            db: The engine that holds the table.
            rows: The query for the quasi-identifiers q0.. in the table.
        """
        parts = [np.zeros(0, dtype=np.uint64)]
        with db.stream_batches(rows, BATCH) as batches:
            for batch in batches:
                part = np.zeros(len(batch), dtype=np.uint64)
                try:
                    for one, values in zip(self.columns, batch.columns, strict=False):
                        part |= one.place_values(values)
                except GuaranteeError:  # a value of ``rows`` that no record has
                    return False
                parts.append(part)
        people = np.concatenate(parts)
        if len(people) != len(self.words):
            return False
        people.sort()
        mine = self.words & np.uint64(2 ** self.columns[-1].shift - 1)
        mine.sort()
        return np.array_equal(people, mine)

    def sample_rows(self, most: int) -> pa.Table:
        """Return a sample of at most ``most`` records, spread evenly over their order; it is always the same.

        It has the columns q0.. (quasi-identifiers) and ``code`` (the rank of the sensitive value).
        """
        words = self.words[:: max(1, -(-len(self.words) // most))]
        *quasi, sensitive = self.columns
        ranks = [extract_bits(words, one.shift, 2**one.bits) for one in quasi]
        named = {f"q{i}": one.values.take(pa.array(at)) for i, (one, at) in enumerate(zip(quasi, ranks, strict=True))}
        return pa.table(named | {"code": words >> np.uint64(sensitive.shift)})

    def stream_groups(
        self, groups: NDArray[np.int32], codes: NDArray[np.int32] | None = None, values: pa.Table | None = None
    ) -> pa.RecordBatchReader | None:
        """Return a stream of the records with their groups, from which the table of a release is written.

        Its columns are q0.., bid (the group, such as a bucket) and code. It is sorted by bid, then q0.., then code.

        Records in groups below 0 are left out. The integers are sorted in place, so the object can't be used
        afterwards.

        Args:
            groups: The group of each record (n,).
            codes: The number that column ``code`` gives to each record, such as that of a sensitive value (n,); None
                for 0.
            values: The sensitive values by code, as columns s0.., to stream instead of ``code``; None to stream
                ``code``.

        Returns:
            The stream. None if group, quasi-identifiers and code need more than 64 bits; then nothing is changed.
        """
        low = 0 if codes is None else int(codes.max(initial=0)).bit_length()
        high = self.columns[-1].shift
        if int(groups.max(initial=0)).bit_length() + high + low > BITS:
            return None
        words = self.words
        for begin in range(0, len(words), BATCH):
            part = words[begin : begin + BATCH]
            part &= np.uint64(2**high - 1)
            part |= groups[begin : begin + BATCH].astype(np.uint64) << np.uint64(high)
            if codes is not None:
                part <<= np.uint64(low)
                part |= np.maximum(codes[begin : begin + BATCH], 0).astype(np.uint64)
        if int(groups.min(initial=0)) < 0:
            words = words[groups >= 0]
        words.sort()
        named = {f"q{i}": (one.shift + low, one.bits, one.values) for i, one in enumerate(self.columns[:-1])}
        named["bid"] = (high + low, BITS - high - low, None)
        last = {"code": None} if values is None else {one: values[one].combine_chunks() for one in values.column_names}
        return _stream_words(words, named | {name: (0, low, one) for name, one in last.items()})


def _stream_words(
    words: NDArray[np.uint64], columns: Mapping[str, tuple[int, int, pa.Array | None]]
) -> pa.RecordBatchReader:
    """Return a stream of records as columns, decoded from integers that each hold one record.

    Args:
        words: The integers (n,).
        columns: For each column, by name, a triple: how many bits lie to the right of its number in the integer, how
            many bits the number has, and the values among which it is a position. If the values are None, the numbers
            themselves are the column.
    """
    numbers = {name: _as_numbers(values) for name, (*_, values) in columns.items()}
    kinds = [
        pa.int32() if one is None else one.type if numbers[name] is not None else pa.dictionary(pa.int32(), one.type)
        for name, (*_, one) in columns.items()
    ]
    schema = pa.schema(list(zip(columns, kinds, strict=True)))

    def decode(part: NDArray[np.uint64], name: str) -> pa.Array:
        (shift, bits, values), table = columns[name], numbers[name]
        ranks = extract_bits(part, shift, 2**bits)
        if table is not None:
            return pa.array(table.take(ranks))
        codes = ranks.astype(np.int32)
        return pa.array(codes) if values is None else pa.DictionaryArray.from_arrays(codes, values)

    def make_batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(words), BATCH):
            part = words[begin : begin + BATCH]
            yield pa.RecordBatch.from_arrays([decode(part, name) for name in columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, make_batches())


def _as_numbers(values: pa.Array | None) -> NDArray[Any] | None:
    """Return integers or doubles without NULL as a NumPy array, in which values are looked up fast; None for others."""
    if values is None or values.null_count:
        return None
    is_number = pa.types.is_integer(values.type) or pa.types.is_float64(values.type)
    return np.asarray(values.to_numpy()) if is_number else None


def _join_tables(tables: Iterator[tuple[int, Hashes]]) -> Iterator[tuple[int, Hashes]]:
    """Join the tables of hashes of neighbouring columns, so that one look-up gives the hash of several values.

    A record's integer holds for each column the position of the value in the column's table. Neighbouring bits are
    one position in a joint table, which has at most ``JOINT`` entries.

    Args:
        tables: For each column, from the lowest bits on, a pair: how many bits lie to the right of its position in the
            integer, and its table of hashes.

    Yields:
        The joint tables, in the same form.
    """
    shift, joint = next(tables)
    for begin, table in tables:
        if len(joint) * len(table) <= JOINT:
            joint = (table[:, None] ^ joint[None, :]).reshape(-1)
        else:
            yield shift, joint
            shift, joint = begin, table
    yield shift, joint


def extract_bits(words: NDArray[np.uint64], shift: int, numbers: int) -> NDArray[np.int64]:
    """Return for each integer the number that some neighbouring bits of it hold.

    Args:
        words: The integers (n,).
        shift: How many bits lie to the right of these.
        numbers: 2^b, where b is the number of these bits.
    """
    ranks = words >> np.uint64(shift)
    ranks &= np.uint64(numbers - 1)
    return ranks.view(np.int64)


def _count_bits(values: int) -> int:
    return max(values - 1, 0).bit_length()


@dataclass(frozen=True)
class CountedSource:
    """A relation whose records are to be packed: each is stored as one integer of 64 bits.

    Attributes:
        db: The engine that holds the relation.
        records: The relation.
        keep: The condition for the records to be packed.
        counts: The number of records with each of the m sensitive values.
    """

    db: Relations
    records: exp.Table
    keep: exp.Expr
    counts: Sequence[int]

    def estimate_distinct(self, values: Sequence[exp.Expr]) -> list[int]:
        """Estimate the number of different values of each column, up to a factor of 2, from some of the records.

        A column with too many values is not read as a whole.

        Args:
            values: SQL for each column, with its name.
        """
        counts = [alias_as(exp.ApproxDistinct(this=column(one.alias)), one.alias) for one in values]
        holes: Holes = {"source": self.records, "values": values, "counts": counts, "keep": self.keep}
        holes["most"] = exp.Literal.number(4 * MOST_VALUES)
        return [int(one) for one in self.db.rows(fill("duckdb/distinct", holes))[0]] if values else []

    def read_column(self, value: exp.Expr, kind: str) -> PackedColumn:
        """Return the different values of a quasi-identifier, which the engine counts.

        Args:
            value: SQL for the column.
            kind: Its type.
        """
        text, exact = (write(column("value"), kind) for write in (comparable_text, injective_text))
        holes: Holes = {"source": self.records, "value": value, "text": text, "exact": exact, "keep": self.keep}
        rows = self.db.arrow(fill("core/counted_values", holes)).combine_chunks()
        values = rows["value"].chunk(0) if rows.num_rows else pa.array([], rows["value"].type)
        texts, exact_texts = ((tuple(rows[name].to_pylist()),) for name in ("text", "exact"))
        return PackedColumn(values, texts, exact_texts, rows["records"].to_numpy())

    def rank_sensitive(self, roles: Roles) -> PackedColumn:
        """Return all sensitive columns together as one column.

        Its values are numbers: the positions of the combinations of sensitive values in their sorted list. Its texts
        are those of the combined values, separately for each sensitive column.

        Args:
            roles: The columns by role.
        """
        pairs = list(zip(roles.sa_keys, roles.sensitive, strict=True))
        labels = [write(column(key), one.type) for write in (comparable_text, injective_text) for key, one in pairs]
        named = [alias_as(label, f"t{i}") for i, label in enumerate(labels)]
        rows = self.db.rows(fill("core/domain_labels", {"domain": temp_table("domain"), "labels": named}))
        texts = tuple(zip(*rows, strict=True)) or ((),) * len(labels)
        ranks, counts = pa.array(range(len(rows)), pa.int32()), np.array(self.counts, dtype=np.int64)
        return PackedColumn(ranks, texts[: len(pairs)], texts[len(pairs) : len(labels)], counts)


def fits_word(distinct: Sequence[int]) -> bool:
    """Return whether one integer of 64 bits can hold a record.

    Args:
        distinct: The number of different values of each column; a value needs the bits for its position among them.
    """
    return sum(map(_count_bits, distinct)) <= BITS


def pack_records(
    source: CountedSource, roles: Roles, values: Sequence[exp.Expr], coded: exp.Query
) -> PackedRecords | RankedRecords | None:
    """Store each record as one integer, and sort these, because integers are sorted much faster than rows.

    Args:
        source: The records.
        roles: Their columns.
        values: SQL for each quasi-identifier over the source.
        coded: The query for the records: q0.. and the rank of the sensitive value.

    Returns:
        The packed records. ``RankedRecords``, which can still be hashed fast, if a record does not fit into an integer
        or all records do not fit into memory. None if a column has too many values, or a type that can't be ranked.
    """
    kinds, records = [one.type for one in roles.quasi_identifiers], sum(source.counts)
    if len(kinds) > BITS or any(kind in UNPACKED for kind in kinds):
        return None
    many = [one for one, kind in zip(values, kinds, strict=True) if kind not in SHORT]
    if records > MOST_VALUES and any(one // 2 > MOST_VALUES for one in source.estimate_distinct(many)):
        return None
    columns = [source.read_column(one.this, kind) for one, kind in zip(values, kinds, strict=True)]
    columns.append(source.rank_sensitive(roles))
    if any(len(one.records) > MOST_VALUES for one in columns):
        return None
    ranked = RankedRecords(source.db, tuple(columns), coded)
    if not fits_word([len(one.records) for one in columns]):
        return ranked
    try:
        source.db.reserve_memory(PACKED * records, "a table of integers")
    except EngineError:
        return ranked
    return _fill_words(source.db, columns, coded, records)


def _fill_words(db: Relations, columns: Sequence[PackedColumn], coded: exp.Query, records: int) -> PackedRecords:
    ends = list(accumulate((one.bits for one in columns[-2::-1]), initial=0))  # q0 has higher bits than q1
    shifts = [*ends[-2::-1], ends[-1]]
    placed = tuple(replace(one, shift=shift) for one, shift in zip(columns, shifts, strict=True))
    words, begin = np.zeros(records, dtype=np.uint64), 0
    with db.stream_batches(coded, BATCH) as batches:
        for batch in batches:
            if begin + batch.num_rows > records:
                raise source_changed_error()
            part = words[begin : begin + batch.num_rows]
            for one, values in zip(placed, batch.columns, strict=True):
                part |= one.place_values(values)
            begin += batch.num_rows
    if begin < records:
        raise source_changed_error()
    words.sort()
    return PackedRecords(placed, words)
