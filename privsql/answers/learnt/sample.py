"""A release's records as arrays, or those of some of its buckets, to put questions to without the database."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray
from sqlglot import exp

from privsql.engine.sqlfiles import column, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from privsql.answers.channel import Floats
    from privsql.engine.roles import Roles

Codes = NDArray[np.int32]
PLAIN = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "VARCHAR", "BOOLEAN", "FLOAT", "DOUBLE", "DATE")
MOST = 500_000  # records that are looked at


@dataclass(frozen=True)
class Sample:
    """``places`` (n,): the bucket, group or cell in which each record is seen, a row of ``shown``; ``shown`` (p, k):
    what a record that is seen there adds to e; ``columns``: what tells the records apart, one code per value (n,);
    ``independent``: whether they were drawn independently, or took their places without replacement.
    """

    places: Codes
    shown: scipy.sparse.csr_array
    columns: dict[str, Codes]
    independent: bool = False

    @property
    def records(self) -> int:
        """Their number n."""
        return len(self.places)

    def seen(self, members: Sequence[NDArray[np.intp]]) -> tuple[Floats, Floats]:
        """E (R, k) and the number of records (R,) of some sets of records."""
        number = self.shown.shape[0]
        rows = [np.bincount(self.places[chosen], minlength=number) for chosen in members]
        placed = np.array(rows, dtype=np.float64).reshape(-1, number)
        return np.asarray(placed @ self.shown), placed.sum(axis=1)

    def by_value(self, column: str, values: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """The same for the records that have each of some ``values`` of a column."""
        codes = self.columns[column]
        rank = np.full(int(codes.max(initial=-1)) + 1, -1)
        rank[values] = np.arange(len(values))
        groups = rank[codes]
        order = np.argsort(groups, kind="stable")[np.count_nonzero(groups < 0) :]
        records = np.bincount(groups[order], minlength=len(values))
        ends = np.concatenate(([0], np.cumsum(records)))
        shape = (len(values), self.shown.shape[0])
        placed = scipy.sparse.csr_array((np.ones(len(order)), self.places[order], ends), shape=shape)
        return (placed @ self.shown).toarray(), records.astype(np.float64)

    @property
    def digest(self) -> str:
        """What stands for all of it: the same codes and places, the same digest."""
        told = hashlib.blake2b(digest_size=32, person=b"privsql-sample")
        parts = [self.places, self.shown.indptr, self.shown.indices, self.shown.data, *self.columns.values()]
        for part in parts:
            array = np.ascontiguousarray(part)
            told.update(f"{array.dtype.str} {array.shape} ".encode())
            told.update(array.data)
        told.update("\0".join([*self.columns, str(self.independent)]).encode())
        return told.hexdigest()


def encoded(column: pa.ChunkedArray) -> Codes:
    """The values of a column as 0, 1, .. in order of appearance; NULL is one of them."""
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int32)


def comparable(roles: Roles) -> list[exp.Expr]:
    """The quasi-identifiers under internal names as Arrow can tell their values apart: rare types as text."""
    fields = zip(roles.qi_keys, roles.quasi_identifiers, strict=True)
    return [
        named(own if field.type.removeprefix("U") in PLAIN else exp.cast(own, "VARCHAR"), key)
        for key, field in fields
        for own in [column(field.name)]
    ]
