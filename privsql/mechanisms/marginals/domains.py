"""Read the domains and taxonomies of a contingency table, and the records of a source by these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, takewhile
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import Field, alias_as, all_rows, column, fill, temp_table
from privsql.errors import UsageError
from privsql.exact import as_fraction, fraction_text
from privsql.mechanisms.dp.noisy_tables import Nested
from privsql.mechanisms.marginals.parameters import WITHIN, Contingency, Values
from privsql.model.arrays import as_doubles
from privsql.model.bins import is_number_type, is_whole_type
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
    """Return the values, the inner nodes, and the parents of both, from pairs (value, parent).

    Behind the values stand two more nodes below the root: for all that the taxonomy does not list, and for NULL.

    Args:
        pairs: The parent of a root is missing or None.
        name: The column, for messages.

    Raises:
        UsageError: The pairs do not make one tree.
    """
    where, above = f"mechanism.domains.{name}: the taxonomy", {value: up for value, up in pairs if up is not None}
    if len(above) < sum(parent is not None for _, parent in pairs):
        raise UsageError(f"{where} gives one value two parents")
    inner = list(dict.fromkeys(above.values()))
    roots = [node for node in inner if node not in above]
    strange = [value for value, parent in pairs if parent is None and value not in roots]
    if len(roots) != 1 or strange:
        examples = ", ".join(repr(root) for root in [*roots, *strange][:3]) or "none"
        raise UsageError(f"{where} needs one root, above all others; it has {examples}")
    depth = {}
    for start in (*above, *inner):
        node, steps = start, 0
        while node in above:
            node, steps = above[node], steps + 1
            if steps > len(above):
                raise UsageError(f"{where} has a cycle at {node!r}")
        depth[start] = steps
    values = [value for value in above if value not in set(inner)]
    inner.sort(key=lambda node: -depth[node])
    position = {value: place for place, value in enumerate(values)}
    position |= {node: place for place, node in enumerate(inner, len(values) + ADDED)}
    parents = [position[above[node]] if node in above else -1 for node in (*values, *inner)]
    parents[len(values) : len(values)] = [position[roots[0]]] * ADDED
    return values, inner, np.array(parents, dtype=np.int64)


# Domains --------------------------------------------------------------------------------------------------------------
# The values of every column, as the specification has them, and the records of a source by these.
#
# The last two of every column are the cells of all that the specification does not list, and of NULL: they are there
# whatever the records are, so that no record changes what columns, cells and messages there are.


@dataclass(frozen=True)
class Point:
    """A value that stands for a ``share`` of the records of value or bin ``code``.

    Attributes:
        code: The code of the value or bin.
        value: The value as text.
        share: The share of the records with this code, 1 for a single value.
        parent: The code of the parent column's value that it determines; None if it determines none.
    """

    code: int
    value: str | None
    share: float
    parent: int | None = None


@dataclass(frozen=True)
class ContingencyColumn:
    """A column, with the values that it may hold or the edges of bins.

    Attributes:
        field: Its name and type.
        values: The m values in its own type, the last two of them ``added_values``; None where it has bins.
        labels: Their texts.
        edges: Those of bins, which the added values follow.
        inner: The inner nodes of a stated taxonomy.
        parents: The parent of every node of a stated taxonomy; None where none is stated.
        measured: Whether sums of it are measured. Then values outside of the bins are clamped to their ends; else they
            are others, as NaN always is.
        prefix: How many first characters of a text are its value.
        parent: The place of the column that its values determine, if they do.
        above: The code of that column's value, by listed value.
    """

    field: Field
    values: pa.Array | None
    labels: tuple[str | None, ...]
    edges: tuple[Fraction, ...] = ()
    inner: tuple[str, ...] = ()
    parents: Ints | None = None
    measured: bool = False
    prefix: int | None = None
    parent: int | None = None
    above: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Return how many values or bins there are."""
        return len(self.edges) - 1 + ADDED if self.edges else len(self.labels)

    @property
    def points(self) -> list[Point]:
        """Return the points that stand for the column's values.

        A bin is represented by some whole numbers in it, or by some values that are spread evenly over it.
        """
        if not self.edges:
            above = [*self.above, *[None] * (len(self.labels) - len(self.above))]
            return [Point(code, label, 1.0, above[code]) for code, label in enumerate(self.labels)]
        result = []
        for code, (low, high) in enumerate(pairwise(self.edges)):
            if is_whole_type(self.field.type):  # the first and the last among them
                first, number = ceil(low), ceil(high) - ceil(low)
                some = min(number, WITHIN)
                inside = [Fraction(first + k * (number - 1) // max(some - 1, 1)) for k in range(some)]
            else:
                inside = [low + (high - low) * (2 * k + 1) / 32 for k in range(16)]
            if not inside:
                raise UsageError(
                    f"mechanism.domains.{self.field.name}: no whole number lies in [{fraction_text(low)}, "
                    f"{fraction_text(high)})"
                )
            result += [Point(code, as_sql_number(value), 1 / len(inside)) for value in inside]
        added = enumerate(added_values(self.field.type), len(self.edges) - 1)
        return [*result, *(Point(code, value, 1.0) for code, value in added)]


def added_values(kind: str, known: Collection[str] = ()) -> tuple[str | None, ...]:
    """Return the texts for all values that are not ``known``, and for NULL, which follow the listed values.

    Only a text column has a text for unlisted values. Everything else is None.

    >>> added_values("VARCHAR", ["other", "x"]), added_values("INTEGER")
    (('other_', None), (None, None))
    """
    return find_unlisted(kind, known) if kind == "VARCHAR" else None, None


def as_sql_number(value: Fraction) -> str:
    """Return a number as SQL text: the exact decimal, or the nearest double if its decimal expansion does not end."""
    exact = fraction_text(value)
    return repr(float(value)) if "/" in exact else exact


def read_columns(db: Relations, source: Records, params: Contingency) -> tuple[ContingencyColumn, ...]:
    """Return the columns of a prepared source.

    Raises:
        UsageError: A taxonomy is none, or bins or a prefix do not fit the type of a column.
    """
    result, above = [], dict[int, list[str | None]]()
    for place, (field, key) in enumerate(zip(source.roles.sensitive, source.roles.sa_keys, strict=True)):
        domain, where = params.domain(field.name) or Values(data=True), f"mechanism.domains.{field.name}"
        inner, parents = list[str](), None
        if domain.bins is not None:
            if not is_number_type(field.type):
                raise UsageError(f"{where}: bins need numbers; the column is {field.type}")
            measured = params.is_measured(field.name)
            result.append(ContingencyColumn(field, None, (), domain.bins, measured=measured))
            continue
        if domain.taxonomy is not None:
            pairs = _read_pairs(db, domain.taxonomy, where)
            if domain.parent is None:
                listed, inner, parents = parse_taxonomy(pairs, field.name)
            else:
                listed, above[place] = [value for value, _ in pairs], [parent for _, parent in pairs]
            domain = Values(items=tuple(listed))
        occurring = exp.select(alias_as(column(key), "item")).from_(temp_table("domain"))
        try:
            labels = create_universe(db, domain, field.type, occurring)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        values = db.arrow(all_rows(temp_table("universe")).order_by("code"))["item"].combine_chunks()
        db.drop("universe")
        if domain.prefix is not None:
            if field.type != "VARCHAR":
                raise UsageError(f"{where}: a prefix needs text; the column is {field.type}")
            labels = domain.shorten(labels)
            values = pa.array(labels, values.type)
        added = added_values(field.type, labels)
        values = pa.concat_arrays([values, pa.array(added, values.type)])
        one = ContingencyColumn(field, values, (*labels, *added), (), tuple(inner), parents, prefix=domain.prefix)
        result.append(one)
    return tuple(_link_parent(one, above.get(place), result, params) for place, one in enumerate(result))


def _link_parent(
    one: ContingencyColumn, above: list[str | None] | None, columns: Sequence[ContingencyColumn], params: Contingency
) -> ContingencyColumn:
    """Add to a column the codes of the parent column's values that its own values determine.

    Args:
        one: The column.
        above: The text of the parent's value for each listed value; None if the column has no parent.
        columns: All columns.
        params: The parameters, which name the parent.

    Raises:
        UsageError: A text in ``above`` is no value of the parent column.
    """
    domain = params.domain(one.field.name)
    if above is None or domain is None or domain.parent is None:
        return one
    (place,) = (k for k, other in enumerate(columns) if fold_name(other.field.name) == fold_name(domain.parent))
    codes = {label: code for code, label in enumerate(columns[place].labels[:-ADDED])}
    if strange := [text for text in above if text not in codes]:
        raise UsageError(
            f"mechanism.domains.{one.field.name}: the taxonomy has {strange[0]!r} above a value, which is no value of "
            f"{domain.parent}"
        )
    return replace(one, parent=place, above=tuple(codes[text] for text in above))


def nest_columns(columns: Sequence[ContingencyColumn]) -> tuple[Nested, ...]:
    """Return a ``Nested`` for every column whose values determine those of another column."""
    return tuple(
        Nested(one.parent, place, np.array(one.above, dtype=np.int64))
        for place, one in enumerate(columns)
        if one.parent is not None
    )


def _read_pairs(db: Relations, query: str, where: str) -> list[tuple[str, str | None]]:
    """Run a publisher's query for a taxonomy, and return its rows (value, parent) as text.

    Raises:
        UsageError: The query does not yield two columns, or a value is NULL.
    """
    db.create_from_sql("given", query)
    fields = db.list_fields(temp_table("given"))
    if len(fields) != 2:
        raise UsageError(f"{where}: a taxonomy has two columns, value and parent, not {len(fields)}")
    texts = [exp.cast(column(field.name), "VARCHAR") for field in fields]
    rows = [(value, parent) for value, parent in db.rows(exp.select(*texts).from_(temp_table("given")))]
    db.drop("given")
    if any(value is None for value, _ in rows):
        raise UsageError(f"{where}: the taxonomy holds NULL as a value")
    return rows


MANY, BINS = 20, 20  # values from which on coarser ones are proposed; about as many bins


def propose_coarser(one: ContingencyColumn, domain: Values | None) -> str:
    """Propose a domain with fewer values, in the words of a specification; nothing is read but the present domain.

    Numbers get bins of one width, which is 1, 2 or 5 times a power of 10. Texts are cut to their first characters, as
    many as distinguish at most 100 values. The result is empty if the column has few values or no proposal fits.
    """
    if len(one) <= MANY:
        return ""
    if is_number_type(one.field.type):
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
    if domain is None or domain.data:
        source = "data = true"
    else:
        source = "items = [..]" if domain.query is None else f"query = '{domain.query}'"
    return f"{one.field.name} = {{ {source}, prefix = {max(lengths)} }}" if lengths else ""


def round_bins(first: Fraction, last: Fraction, number: int, kind: str) -> tuple[dict[str, str], int]:
    """Return about ``number`` bins of a round width from the first to the last value, and their exact number."""
    width = round_width((last - first) / number, least=1 if is_whole_type(kind) else 0)
    start, end = floor(first / width) * width, (floor(last / width) + 1) * width
    ends = {"from": start, "to": end, "by": width}
    return {key: fraction_text(one) for key, one in ends.items()}, int((end - start) / width)


def round_width(width: Fraction, *, least: int) -> Fraction:
    """Return the least of .., 0.1, 0.2, 0.5, 1, 2, 5, 10, .. that is not below ``width`` and ``least``."""
    step = Fraction(1)
    while step > max(width, Fraction(least)):
        step /= 10
    while step < width:
        step *= 10
    return next((step / part for part in (5, 2) if step / part >= width and step / part >= least), step)


# Cells ---

UNITS = 10**6  # of a measured value: parts of the distance between the ends of its bins


def read_coded_cells(db: Relations, source: Records, columns: Sequence[ContingencyColumn]) -> tuple[Ints, Ints, Ints]:
    """Return the different cells of the source (combinations of coded values), with their records and measured values.

    Every record lies in some cell: a value that is not listed, or that contradicts its parent's, has the code of
    ``other``.

    Args:
        db: Where the relations of the source are.
        source: The records.
        columns: The d columns of the contingency table.

    Returns:
        The codes of the n different cells (n, d), the number of records in each (n,), and the measured values in parts
        of ``UNITS``, with a column for each measured column of the table.
    """
    keys = source.roles.sa_keys
    texts = [alias_as(exp.cast(column(key), "VARCHAR"), key) for key in keys]
    rows = db.arrow(fill("core/domain_labels", {"domain": temp_table("domain"), "labels": texts}))
    codes, units = [], [np.zeros((len(rows), 0), np.int64)]
    for key, one in zip(keys, columns, strict=True):
        values = rows[key].combine_chunks()
        codes.append(encode_values(values, one))
        if one.measured:
            units.append(clamp_to_units(values, one)[:, None])
    for nested in nest_columns(columns):
        child, listed = codes[nested.child], len(nested.above)
        wrong = (child < listed) & (nested.above[np.minimum(child, listed - 1)] != codes[nested.parent])
        codes[nested.child] = np.where(wrong, listed, child)
    return np.stack(codes, axis=1), rows["records"].to_numpy().astype(np.int64), np.hstack(units)


def encode_values(texts: pa.Array, one: ContingencyColumn) -> Ints:
    """Return the code of every value.

    NULL has the last code. A value that no listed value and no bin matches has the last code but one.
    """
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


def clamp_to_units(texts: pa.Array, one: ContingencyColumn) -> Ints:
    """Return how far values lie above the first edge, in units of 1/``UNITS`` of the range, clamped to 0 .. ``UNITS``.

    NULL and NaN count as 0.
    """
    low, high = float(one.edges[0]), float(one.edges[-1])
    share = np.nan_to_num((np.clip(as_doubles(texts), low, high) - low) / (high - low))
    return np.asarray(np.rint(share * UNITS).clip(0, UNITS), dtype=np.int64)
