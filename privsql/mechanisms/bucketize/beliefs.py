"""Measure the highest beliefs that a bucketized release allows, and refuse releases that make values certain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.files import label_value
from privsql.engine.sqlfiles import Holes, Roles, alias_as, column, fill, same_columns, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize.bounds import GroupBound, stated_bounds
from privsql.mechanisms.bucketize.parameters import BeliefFacts, HighestBeliefFacts, SureFacts, SureFactsByColumn
from privsql.mechanisms.bucketize.tables import size_of_bucket

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.parameters import BucketFacts

# The highest belief in a value v of a sensitive column is the largest share of a bucket that has v:
#
#     max over buckets g of (sum of count(g, x) over the x with v in that column)/|g|,  in exact fractions.
#
# With several sensitive columns, thresholds bound the belief in the combination; a belief in one column can be higher.
# With fakes these are upper bounds, because at most |g| of the listed values are real, whichever they are.

SHOWN_VALUES = 5  # values that a message names


def state_beliefs(
    overall: Fraction,
    sure: SureFacts,
    highest: Mapping[str, Mapping[str, Fraction]],
    sure_by_column: Mapping[str, SureFacts],
    bounded: Mapping[str, Fraction],
) -> BeliefFacts:
    """Put measured beliefs into the form that plans and manifests state, with fractions as exact texts.

    Args:
        overall: The highest belief in a whole sensitive value.
        sure: How many records have a sensitive column whose value an attacker knows, or believes with more than 1/2.
        highest: The highest belief in each value of each sensitive column, by column and text of the value.
        sure_by_column: The same numbers as ``sure``, by sensitive column.
        bounded: The highest belief in each set of values that has a bound, by the name of the set.
    """
    return BeliefFacts(
        highest_belief=HighestBeliefFacts(
            overall=fraction_text(overall),
            components={name: {one: fraction_text(most) for one, most in of.items()} for name, of in highest.items()},
            bounded={name: fraction_text(most) for name, most in bounded.items()},
        ),
        certain=SureFactsByColumn(certain=sure.certain, above_half=sure.above_half, components=dict(sure_by_column)),
    )


@dataclass(frozen=True)
class SensitiveTable:
    """The sensitive table of an open release, from which beliefs are measured.

    Attributes:
        db: The engine in which the release is open.
        roles: The columns by role.
        facts: The facts, which state the bucket setting and the bounds on sets of values.
        st: ST as a relation (bid, s0.., count).
        values: All sensitive values as a relation (code, s0..).
    """

    db: Relations
    roles: Roles
    facts: BucketFacts
    st: exp.Table
    values: exp.Table

    def size_of(self, alias: str) -> exp.Expr:
        """Return SQL for the number of records of a bucket, given by column ``bid`` of relation ``alias``."""
        return size_of_bucket(self.facts.sizes, column("bid", alias))

    def list_held(self) -> dict[str, exp.Query]:
        """Return for each sensitive column s_k the query that counts its values in each bucket: (bid, s_k, held)."""
        if len(self.roles.sensitive) > 1:
            return {key: fill("bucketize/held", {"st": self.st, "sa": [column(key)]}) for key in self.roles.sa_keys}
        listed = exp.select("bid", *self.roles.sa_columns(), alias_as(column("count"), "held")).from_(self.st)
        return {self.roles.sa_keys[0]: listed}

    def measure_beliefs(self) -> BeliefFacts:
        """Measure the highest belief in each value of each sensitive column, and in each bounded set of values."""
        highest, sure_by_column, parts = {}, {}, []
        for (key, query), field in zip(self.list_held().items(), self.roles.sensitive, strict=True):
            held: exp.Expr = query.subquery()
            if len(self.roles.sensitive) > 1:  # the grouped rows are read more than once
                self.db.create_table(f"held_{key}", query)
                held = temp_table(f"held_{key}")
            peaks = self._read_peaks(held)
            sure = sure_by_column[field.name] = _count_sure(peaks)
            highest[field.name] = self.find_highest(held, column(key, "h"))
            parts.append(exp.select("bid", "held").from_(held))
        if len(parts) > 1:
            peaks = self._read_peaks(exp.select("bid", alias_as(column("count"), "held")).from_(self.st).subquery())
            sure = _count_sure(self._read_peaks(exp.union(*parts, distinct=False).subquery()))
        overall = max(_bucket_share(size, most) for size, most, _ in peaks)
        self.db.drop(*(f"held_{key}" for key in self.roles.sa_keys))
        bounded: dict[str, Fraction] = {}
        for one, most in self.measure_bounds():
            bounded[one.name] = max(bounded.get(one.name, most), most)  # NULL and the text 'NULL' have the same name
        return state_beliefs(overall, sure, highest, sure_by_column, bounded)

    def measure_bounds(self) -> list[tuple[GroupBound, Fraction]]:
        """Return (bound on a set of values, highest belief in the set) for every bounded set."""
        stated = stated_bounds(self.facts)
        if not stated:
            return []
        numbers = np.repeat(np.arange(len(stated)), [len(one.members) for one in stated])
        codes = np.array([code for one in stated for code in one.members], dtype=np.int64)
        self.db.register_arrow("sets", pa.table({"bound": numbers, "code": codes}))
        holes: Holes = {"st": self.st, "values": self.values, "members": temp_table("sets")}
        holes["same_value"] = same_columns("st", "v", self.roles.sa_keys)
        highest = self.find_highest(fill("bucketize/together", holes).subquery(), column("bound", "h"))
        self.db.drop("sets")
        return [(one, highest.get(str(bound), Fraction(0))) for bound, one in enumerate(stated)]

    def find_highest(self, held: exp.Expr, key: exp.Expr) -> dict[str, Fraction]:
        """Return the highest belief in each value, by its text: the largest share of a bucket that has it.

        Args:
            held: A relation with one row for each bucket and value, and column ``held``, how often the bucket lists it.
            key: The column of ``held`` with the values.
        """
        holes: Holes = {"held": held, "key": key, "label": exp.cast(key, "VARCHAR"), "size": self.size_of("h")}
        highest: dict[str, Fraction] = {}
        for value, size, most in sorted(self.db.rows(fill("bucketize/highest", holes)), key=str):
            text = "NULL" if value is None else str(value)
            highest[text] = max(highest.get(text, Fraction(0)), _bucket_share(size, most))
        return highest

    def _read_peaks(self, held: exp.Expr) -> list[tuple[int, int, int]]:
        """Count the buckets by size and by how often their most frequent value is listed.

        These numbers show in how many buckets one value is certain, or is believed with more than 1/2.

        Args:
            held: A relation with one row for each bucket and value, and column ``held``, how often the bucket lists it.

        Returns:
            A list of (bucket size, how often the most frequent value is listed, number of such buckets).
        """
        rows = self.db.rows(fill("bucketize/peaks", {"held": held, "size": self.size_of("h")}))
        peaks = [(int(size), int(most), int(buckets)) for size, most, buckets in rows]
        left = Counter(dict(self.facts.sizes))
        for size, _, buckets in peaks:
            left[size] -= buckets
        return [*peaks, *((size, 1, buckets) for size, buckets in left.items() if buckets > 0)]

    def count_certain(self, excused: Sequence[int]) -> dict[str, int]:
        """Find the values that are certain, and count the records for which they are.

        A value is certain for the records of a bucket if all of them may have it.

        Args:
            excused: The codes of values that may be certain, and are left out.

        Returns:
            The number of records by value; with several sensitive columns, by ``column: value``.
        """
        self.db.register_arrow("c_excused", pa.table({"code": np.array(excused, dtype=np.int32)}))
        holes: Holes = {"st": self.st, "values": self.values, "excused": temp_table("c_excused")}
        holes |= {"same_value": same_columns("st", "v", self.roles.sa_keys), "size": self.size_of("st")}
        self.db.create_table("c_filled", fill("bucketize/filled", holes))
        certain = {}
        for (key, held), field in zip(self.list_held().items(), self.roles.sensitive, strict=True):
            holes = {"held": held.subquery(), "filled": temp_table("c_filled"), "size": self.size_of("h")}
            holes |= {"key": column(key, "h"), "label": exp.cast(column(key, "h"), "VARCHAR")}
            prefix = "" if len(self.roles.sensitive) == 1 else f"{field.name}: "
            for value, records in sorted(self.db.rows(fill("bucketize/certain", holes)), key=str):
                certain[f"{prefix}{label_value([value])}"] = int(records)
        self.db.drop("c_excused", "c_filled")
        return certain


def _bucket_share(size: int, most: int) -> Fraction:
    return min(Fraction(1), Fraction(int(most), int(size)))


def _count_sure(peaks: Sequence[tuple[int, int, int]]) -> SureFacts:
    certain = sum(size * buckets for size, most, buckets in peaks if most >= size)
    above_half = sum(size * buckets for size, most, buckets in peaks if 2 * most > size)
    return SureFacts(certain=certain, above_half=above_half)


def refuse_certainty(certain: Mapping[str, int]) -> None:
    """Raise ``InfeasibleError`` if some bucket makes a value certain: all of its records may have it.

    Args:
        certain: For each value that is certain, the number of records for which it is; empty if there are none.
    """
    if not certain:
        return
    examples = [f"{name} ({number:,} records)" for name, number in list(certain.items())[:SHOWN_VALUES]]
    more = f" and {len(certain) - SHOWN_VALUES:,} more" if len(certain) > SHOWN_VALUES else ""
    raise InfeasibleError(
        f"some values would be certain: {', '.join(examples)}{more}; take a threshold below 1, larger buckets, or "
        "a bound for one of several columns ([mechanism.components]); to allow them, write their threshold as 1 or "
        "set mechanism.allow_certain = true",
        {"certain": dict(certain)},
    )
