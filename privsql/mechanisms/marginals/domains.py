"""Read the possible values (domains) and taxonomies of a contingency table's columns, and encode records by them."""

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

ADDED = 2  # values that follow the listed ones of every column: one for unlisted values, and NULL

# Taxonomies -----------------------------------------------------------------------------------------------------------
# A publisher's taxonomy of a column: pairs (value, parent) that make one tree.


def parse_taxonomy(pairs: Sequence[tuple[str, str | None]], name: str) -> tuple[list[str], list[str], Ints]:
    """Read a taxonomy (a tree of values) from pairs (value, parent).

    Two more leaves below the root follow the values: one for all unlisted values, and one for NULL.

    Args:
        pairs: Each value or inner node with its parent. The root has the parent None, or is no value of a pair.
        name: The column, for messages.

    Returns:
        The values (leaves), the inner nodes, and the parents of all nodes. Nodes are numbered: values, unlisted, NULL,
        inner nodes. The root's parent is -1.

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
# Every column has two more values behind the listed ones: one for all unlisted values, and one for NULL. They exist
# whatever the records are. So no record changes which columns, cells and messages there are.


@dataclass(frozen=True)
class Point:
    """A value that stands for some of the records with one code; a bin is represented by several points.

    Attributes:
        code: The code of the value or bin.
        value: The value as text; None for NULL.
        share: The share of the code's records that this value stands for; 1 for a single value.
        parent: If the column's values determine another column (its parent), the code that this value determines there;
            else None.
    """

    code: int
    value: str | None
    share: float
    parent: int | None = None


@dataclass(frozen=True)
class ContingencyColumn:
    """A column of a contingency table, with its possible values or bins; they have the codes 0, 1, ..

    The last two codes are those of all unlisted values and of NULL.

    Attributes:
        field: The name and type of the column.
        values: The possible values in the column's type, in the order of their codes; None if it has bins.
        labels: The texts of the values.
        edges: The ascending edges of the bins; empty if it has none.
        inner: The inner nodes of the column's taxonomy.
        parents: The parent of each node of the taxonomy, as ``parse_taxonomy`` gives it; None if there is no taxonomy.
        measured: Whether sums of the column are published. If so, values outside of the bins are clamped to the nearest
            bin; otherwise they count as unlisted. NaN always does.
        prefix: The number of first characters that are published of a text; None for all.
        parent: The position of the column whose value follows from this one; None if there is none.
        above: For each listed value, the code of the parent column's value.
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
        """Return the number of values or bins, including the codes of unlisted values and of NULL."""
        return len(self.edges) - 1 + ADDED if self.edges else len(self.labels)

    @property
    def points(self) -> list[Point]:
        """Return the values that are published for the column, each with its share of the records of its code.

        A single value has one point. A bin is represented by several: up to ``WITHIN`` of its whole numbers, or 16
        numbers spread over it if the column may have decimals.
        """
        if not self.edges:
            above = [*self.above, *[None] * (len(self.labels) - len(self.above))]
            return [Point(code, label, 1.0, above[code]) for code, label in enumerate(self.labels)]
        result = []
        for code, (low, high) in enumerate(pairwise(self.edges)):
            if is_whole_type(self.field.type):  # include the first and the last one
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
    """Return the texts that represent all unlisted values and NULL.

    In a text column it is a text that is not in ``known``. In other columns both are None.

    >>> added_values("VARCHAR", ["other", "x"]), added_values("INTEGER")
    (('other_', None), (None, None))
    """
    return find_unlisted(kind, known) if kind == "VARCHAR" else None, None


def as_sql_number(value: Fraction) -> str:
    """Return a number as SQL text: its exact decimal, or the nearest double if it has no finite decimal."""
    exact = fraction_text(value)
    return repr(float(value)) if "/" in exact else exact


def read_columns(db: Relations, source: Records, params: Contingency) -> tuple[ContingencyColumn, ...]:
    """Return the columns of a prepared source with their possible values.

    Raises:
        UsageError: A taxonomy is not a tree, or bins or a prefix do not fit the type of a column.
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
    """Link a column to the column that its values determine (its parent), as cities determine states.

    The result is the same column, with the position of its parent and the parent's code for each listed value.

    Args:
        one: The column.
        above: The text of the parent's value for each listed value; None if the column has no parent.
        columns: All columns.
        params: The parameters, which name the parent.

    Raises:
        UsageError: The parent column does not list a text of ``above``.
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
    """Return each column whose values determine another one, as cities determine states, with that other column."""
    return tuple(
        Nested(one.parent, place, np.array(one.above, dtype=np.int64))
        for place, one in enumerate(columns)
        if one.parent is not None
    )


def _read_pairs(db: Relations, query: str, where: str) -> list[tuple[str, str | None]]:
    """Run the publisher's query for a taxonomy, and return its rows (value, parent) as text.

    Raises:
        UsageError: The query does not return two columns, or a value is NULL.
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


MANY, BINS = 20, 20  # coarser values are proposed for so many values or more; about so many bins


def propose_coarser(one: ContingencyColumn, domain: Values | None) -> str:
    """Propose fewer values or wider bins for a column with too many, as text for a specification.

    It reads only the domain that the specification states now, and no record. Numbers get bins of one width, which is
    1, 2 or 5 times a power of 10. Texts are cut to a prefix with at most 100 different texts. The result is empty if
    the column has few values, or if neither fits.
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
    """Return bins of a round width between two values, and how many they are.

    Args:
        first: The lowest value.
        last: The highest value.
        number: About how many bins are wanted.
        kind: The type of the column.

    Returns:
        The bins as { from, to, by } of a specification, and their number.
    """
    width = round_width((last - first) / number, least=1 if is_whole_type(kind) else 0)
    start, end = floor(first / width) * width, (floor(last / width) + 1) * width
    ends = {"from": start, "to": end, "by": width}
    return {key: fraction_text(one) for key, one in ends.items()}, int((end - start) / width)


def round_width(width: Fraction, *, least: int) -> Fraction:
    """Return the smallest of .., 0.1, 0.2, 0.5, 1, 2, 5, 10, .. that is at least ``width`` and at least ``least``."""
    step = Fraction(1)
    while step > max(width, Fraction(least)):
        step /= 10
    while step < width:
        step *= 10
    return next((step / part for part in (5, 2) if step / part >= width and step / part >= least), step)


# Cells ---

UNITS = 10**6  # measured values are counted in so many parts of the whole range of their bins


def read_coded_cells(db: Relations, source: Records, columns: Sequence[ContingencyColumn]) -> tuple[Ints, Ints, Ints]:
    """Count the records of a source by the combinations of their values, as codes.

    A value that is not listed, or that contradicts the value of its parent column, has the code of unlisted values.

    Args:
        db: Where the relations of the source are.
        source: The records.
        columns: The d columns of the contingency table.

    Returns:
        Three arrays with a row for each of n different combinations of values: the codes (n, d), the number of records
        (n,), and the amounts in the measured columns, as ``clamp_to_units`` gives them (n, measured).
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
    """Return the code of every value of a column.

    NULL has the last code. A value that is in no list and no bin has the last code but one.

    Args:
        texts: The values as text.
        one: The column with its possible values.
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
    """Clamp values to a column's bins, and return how far they lie above the lowest edge, as whole numbers.

    The result is 0 at the lowest edge and ``UNITS`` at the highest one. NULL and NaN give 0.

    Args:
        texts: The values as text.
        one: The column, which has bins.
    """
    low, high = float(one.edges[0]), float(one.edges[-1])
    share = np.nan_to_num((np.clip(as_doubles(texts), low, high) - low) / (high - low))
    return np.asarray(np.rint(share * UNITS).clip(0, UNITS), dtype=np.int64)
