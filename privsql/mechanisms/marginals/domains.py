"""Read the domains and taxonomies of a contingency table, and the records of a source by these."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.sqlfiles import Field, alias_as, all_rows, column, fill, temp_table
from privsql.errors import UsageError
from privsql.exact import as_fraction, fraction_text
from privsql.mechanisms.marginals.parameters import WITHIN, Contingency, Values, is_number, is_whole
from privsql.model.arrays import as_doubles
from privsql.model.universes import create_universe, find_unlisted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import Ints
    from privsql.model.records import Records

ADDED = 2  # values of every column behind those of the specification: all others, and NULL

# Taxonomies -----------------------------------------------------------------------------------------------------------
# A publisher's taxonomy of a column: pairs (value, parent) that make one tree.


def parse_taxonomy(pairs: Sequence[tuple[str, str | None]], name: str) -> tuple[list[str], list[str], Ints]:
    """Values, inner nodes, and the parents of both, from pairs (value, parent); a root's parent is missing or NULL.

    Behind the values stand two more nodes below the root: for all that the taxonomy does not list, and for NULL.

    ``UsageError`` unless the pairs make one tree.
    """
    above = {value: parent for value, parent in pairs if parent is not None}
    if len(above) < sum(parent is not None for _, parent in pairs):
        raise UsageError(f"mechanism.domains.{name}: the taxonomy gives one value two parents")
    inner = list(dict.fromkeys(above.values()))
    roots = [node for node in inner if node not in above]
    strange = [value for value, parent in pairs if parent is None and value not in roots]
    if len(roots) != 1 or strange:
        examples = ", ".join(repr(root) for root in [*roots, *strange][:3]) or "none"
        raise UsageError(f"mechanism.domains.{name}: the taxonomy needs one root, above all others; it has {examples}")
    depth = {node: _node_depth(node, above, name) for node in [*above, *inner]}
    values = [value for value in above if value not in set(inner)]
    inner.sort(key=lambda node: -depth[node])
    position = {node: i for i, node in enumerate([*values, *inner])}
    position |= {node: position[node] + ADDED for node in inner}
    parents = [position[above[node]] if node in above else -1 for node in (*values, *inner)]
    parents[len(values) : len(values)] = [position[roots[0]]] * ADDED
    return values, inner, np.array(parents, dtype=np.int64)


def _node_depth(node: str, above: dict[str, str], name: str) -> int:
    steps = 0
    while node in above:
        node, steps = above[node], steps + 1
        if steps > len(above):
            raise UsageError(f"mechanism.domains.{name}: the taxonomy has a cycle at {node!r}")
    return steps


# Domains --------------------------------------------------------------------------------------------------------------
# The values of every column, as the specification has them, and the records of a source by these.
#
# The last two of every column are the cells of all that the specification does not list, and of NULL: they are there
# whatever the records are, so that no record changes what columns, cells and messages there are.


@dataclass(frozen=True)
class Point:
    """A value, as text, that stands for a ``share`` of the records of value or bin ``code``."""

    code: int
    value: str | None
    share: float


@dataclass(frozen=True)
class ContingencyColumn:
    """A column: its ``field``, the m ``values`` in its own type and their texts (``labels``), or the edges of m bins.

    Their last values are ``added_values``, which follow the bins too. ``inner``, ``parents``: the inner nodes of a
    stated taxonomy and the parent of every node; None where none is. ``measured``: sums of it are measured, and values
    outside of the bins are clamped to their ends; else they are others, as NaN always is. ``prefix``: how many first
    characters of a text are its value.
    """

    field: Field
    values: pa.Array | None
    labels: tuple[str | None, ...]
    edges: tuple[Fraction, ...] = ()
    inner: tuple[str, ...] = ()
    parents: Ints | None = None
    measured: bool = False
    prefix: int | None = None

    def __len__(self) -> int:
        """How many values or bins there are."""
        return len(self.edges) - 1 + ADDED if self.edges else len(self.labels)

    @property
    def points(self) -> list[Point]:
        """Its values, each for itself; of a bin the whole numbers in it, or some values evenly spread over it."""
        if not self.edges:
            return [Point(code, label, 1.0) for code, label in enumerate(self.labels)]
        result = []
        for code, (low, high) in enumerate(zip(self.edges[:-1], self.edges[1:], strict=True)):
            inside = (
                _whole_numbers(low, high)
                if is_whole(self.field.type)
                else [low + (high - low) * (2 * k + 1) / 32 for k in range(16)]
            )
            if not inside:
                raise UsageError(
                    f"mechanism.domains.{self.field.name}: no whole number lies in [{fraction_text(low)}, "
                    f"{fraction_text(high)})"
                )
            result += [Point(code, as_sql_number(value), 1 / len(inside)) for value in inside]
        added = enumerate(added_values(self.field.type), len(self.edges) - 1)
        return [*result, *(Point(code, value, 1.0) for code, value in added)]


def added_values(kind: str, known: Collection[str] = ()) -> tuple[str | None, ...]:
    """The texts of the cells of all values that are not ``known``, which only a text has, and of NULL.

    >>> added_values("VARCHAR", ["other", "x"]), added_values("INTEGER")
    (('other_', None), (None, None))
    """
    return find_unlisted(kind, known) if kind == "VARCHAR" else None, None


def as_sql_number(value: Fraction) -> str:
    """A number as SQL reads it: exactly, or the nearest double where it has no end."""
    exact = fraction_text(value)
    return repr(float(value)) if "/" in exact else exact


def _whole_numbers(low: Fraction, high: Fraction) -> list[Fraction]:
    """The whole numbers in [low, high), or some of them, evenly spread, the first and the last among them."""
    first, number = ceil(low), ceil(high) - ceil(low)
    some = min(number, WITHIN)
    return [Fraction(first + k * (number - 1) // max(some - 1, 1)) for k in range(some)]


def read_columns(db: Relations, source: Records, params: Contingency) -> tuple[ContingencyColumn, ...]:
    """The columns of a prepared source; ``UsageError`` for a taxonomy that is none, or bins of what is no number."""
    roles = source.roles
    return tuple(_read_column(db, *pair, params) for pair in zip(roles.sensitive, roles.sa_keys, strict=True))


def _read_column(db: Relations, field: Field, key: str, params: Contingency) -> ContingencyColumn:
    domain = params.domain(field.name) or Values(data=True)
    inner: list[str] = []
    parents: Ints | None = None
    if domain.bins is not None:
        if not is_number(field.type):
            raise UsageError(f"mechanism.domains.{field.name}: bins need numbers; the column is {field.type}")
        return ContingencyColumn(field, None, (), domain.bins, measured=params.is_measured(field.name))
    if domain.taxonomy is not None:
        values, inner, parents = parse_taxonomy(_read_taxonomy_pairs(db, domain.taxonomy, field.name), field.name)
        domain = Values(items=tuple(values))
    occurring = exp.select(alias_as(column(key), "item")).from_(temp_table("domain"))
    try:
        labels = create_universe(db, domain, field.type, occurring)
    except UsageError as error:
        raise UsageError(f"mechanism.domains.{field.name}: {error}") from error
    result = db.arrow(all_rows(temp_table("universe")).order_by("code"))["item"].combine_chunks()
    db.drop("universe")
    if domain.prefix is not None:
        if field.type != "VARCHAR":
            raise UsageError(f"mechanism.domains.{field.name}: a prefix needs text; the column is {field.type}")
        labels = domain.shorten(labels)
        result = pa.array(labels, result.type)
    added = added_values(field.type, labels)
    values = pa.concat_arrays([result, pa.array(added, result.type)])
    return ContingencyColumn(field, values, (*labels, *added), (), tuple(inner), parents, prefix=domain.prefix)


MANY, BINS = 20, 20  # values from which on coarser ones are proposed; about as many bins


def propose_coarser(one: ContingencyColumn, domain: Values | None) -> str:
    """Return a domain with fewer values, as a specification has it, by the domain alone; empty for one of few values.

    Numbers get bins of one width, which is 1, 2 or 5 times a power of 10; texts as many first characters as tell most
    apart of ``MANY`` to 100.
    """
    if len(one) <= MANY:
        return ""
    if is_number(one.field.type):
        numbers = [label for label in one.labels if label is not None and isfinite(float(label))]
        ends = list(one.edges) or [as_fraction(label) for label in numbers] or [Fraction(0)]
        low, high = min(ends), max(ends)
        if low == high:
            return ""
        bins = round_bins(low, high, BINS, one.field.type)[0].items()
        return f"{one.field.name} = {{ bins = {{ {', '.join(f'{key} = {text}' for key, text in bins)} }} }}"
    texts = [label for label in one.labels if label is not None]
    if one.field.type != "VARCHAR" or (domain is not None and domain.taxonomy is not None):
        return ""
    parts = ((k, len({text[:k] for text in texts})) for k in range(1, max(map(len, texts))))
    lengths = [k for k, number in takewhile(lambda one: one[1] <= MANY * 5, parts) if number > 1]
    query = domain.query if domain is not None else None
    source = (
        "data = true" if domain is None or domain.data else "items = [..]" if query is None else f"query = '{query}'"
    )
    return f"{one.field.name} = {{ {source}, prefix = {max(lengths)} }}" if lengths else ""


def round_bins(first: Fraction, last: Fraction, number: int, kind: str) -> tuple[dict[str, str], int]:
    """About ``number`` bins of a round width from the first to the last value of a type, and how many these are."""
    width = round_width((last - first) / number, least=1 if is_whole(kind) else 0)
    start, end = floor(first / width) * width, (floor(last / width) + 1) * width
    ends = zip(("from", "to", "by"), (start, end, width), strict=True)
    return {key: fraction_text(one) for key, one in ends}, int((end - start) / width)


def round_width(width: Fraction, *, least: int) -> Fraction:
    """The next of 1, 2, 5, 10, .. above a width, and of their tenths."""
    step = Fraction(1)
    while step > max(width, Fraction(least)):
        step /= 10
    while step < width:
        step *= 10
    return next((step / part for part in (5, 2) if step / part >= width and step / part >= least), step)


def _read_taxonomy_pairs(db: Relations, query: str, name: str) -> list[tuple[str, str | None]]:
    """The rows (value, parent) of a publisher's taxonomy, as text."""
    db.create_from_sql("given", query)
    fields = db.list_fields(temp_table("given"))
    if len(fields) != 2:
        raise UsageError(f"mechanism.domains.{name}: a taxonomy has two columns, value and parent, not {len(fields)}")
    texts = [exp.cast(column(field.name), "VARCHAR") for field in fields]
    rows = [(value, parent) for value, parent in db.rows(exp.select(*texts).from_(temp_table("given")))]
    db.drop("given")
    if any(value is None for value, _ in rows):
        raise UsageError(f"mechanism.domains.{name}: the taxonomy holds NULL as a value")
    return rows


UNITS = 10**6  # of a measured value: parts of the distance between the ends of its bins


def read_coded_cells(db: Relations, source: Records, columns: Sequence[ContingencyColumn]) -> tuple[Ints, Ints, Ints]:
    """The source's n different cells, (n, d), the records of each, and its measured values, (n, ..), in ``UNITS``.

    No record is outside of all cells.
    """
    roles = source.roles
    texts = [alias_as(exp.cast(column(key), "VARCHAR"), key) for key in roles.sa_keys]
    rows = db.arrow(fill("core/domain_labels", {"domain": temp_table("domain"), "labels": texts}))
    codes = [_encode_values(rows[key].combine_chunks(), one) for key, one in zip(roles.sa_keys, columns, strict=True)]
    pairs = zip(roles.sa_keys, columns, strict=True)
    units = [_clamp_to_units(rows[key].combine_chunks(), one) for key, one in pairs if one.measured]
    records = rows["records"].to_numpy().astype(np.int64)
    return np.stack(codes, axis=1), records, np.stack(units, axis=1) if units else np.zeros((len(rows), 0), np.int64)


def _encode_values(texts: pa.Array, one: ContingencyColumn) -> Ints:
    """The code of every value; NULL has the last one, whatever else no value and no bin holds the one before."""
    other, is_null = len(one) - ADDED, np.asarray(texts.is_null())
    if one.edges:
        numbers = as_doubles(texts)
        result = np.searchsorted([float(edge) for edge in one.edges], numbers, side="right") - 1
        if one.measured:
            result = np.where(np.isnan(numbers), other, result.clip(0, other - 1))
        result = np.where((result >= 0) & (result < other), result, other)
    else:
        if one.prefix is not None:
            texts = pc.utf8_slice_codeunits(texts, 0, one.prefix)
        places = pc.index_in(texts, value_set=pa.array(one.labels[:other], pa.string()))
        result = np.asarray(places.fill_null(other))
    return np.where(is_null, other + 1, result).astype(np.int64)


def _clamp_to_units(texts: pa.Array, one: ContingencyColumn) -> Ints:
    """How far every value lies above the first edge, in ``UNITS`` of the distance to the last; 0 for NULL and NaN."""
    low, high = float(one.edges[0]), float(one.edges[-1])
    numbers = as_doubles(texts)
    share = np.nan_to_num((np.clip(numbers, low, high) - low) / (high - low))
    return np.asarray(np.rint(share * UNITS).clip(0, UNITS), dtype=np.int64)
