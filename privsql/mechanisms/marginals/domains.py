"""Read the domains and taxonomies of a contingency table, and measure how good its answers are."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, takewhile
from math import ceil, floor, isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers import accuracy
from privsql.engine.database import report_steps
from privsql.engine.sqlfiles import alias_as, all_rows, column, fill, temp_table
from privsql.errors import UsageError
from privsql.exact import as_fraction, fraction_text
from privsql.mechanisms.diffpart.tree import context_free_parents, make_taxonomy
from privsql.mechanisms.marginals.parameters import WITHIN, Values, is_number, is_whole
from privsql.model.arrays import as_doubles
from privsql.model.universes import create_universe, find_unlisted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from privsql.answers.accuracy import EvaluationContext
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Field
    from privsql.mechanisms.diffpart.tree import Taxonomy
    from privsql.mechanisms.dp.noisy_tables import Ints
    from privsql.mechanisms.marginals.parameters import Contingency
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


# Taxonomies of all columns ---


@dataclass(frozen=True)
class TreeDomains:
    """All columns, and their taxonomies in one: of each the values are the first nodes, then come the inner ones."""

    columns: tuple[ContingencyColumn, ...]
    taxonomy: Taxonomy

    @property
    def first_nodes(self) -> Ints:
        """The node of the first value of every column, (d,)."""
        return np.array([self.taxonomy.values(number)[0] for number in range(len(self.columns))], dtype=np.int64)

    @property
    def names(self) -> list[str | None]:
        """The text of every node of the taxonomy, None where it has none."""
        sizes = np.bincount(self.taxonomy.column, minlength=len(self.columns)).tolist()
        return [
            name
            for one, size in zip(self.columns, sizes, strict=True)
            for name in (*one.labels, *(one.inner or (None,) * (size - len(one.labels))))
        ]


def read_tree_domains(db: Relations, source: Records, params: Contingency) -> TreeDomains:
    """The domains of a prepared source; ``UsageError`` for a taxonomy that is none."""
    columns = read_columns(db, source, params)
    column_parents = [
        context_free_parents(len(one), params.fan_out) if one.parents is None else one.parents for one in columns
    ]
    sizes = [len(parents) for parents in column_parents]
    first = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    parents = np.concatenate(column_parents)
    parents = np.where(parents < 0, -1, parents + first)
    return TreeDomains(columns, make_taxonomy(np.repeat(np.arange(len(columns)), sizes), parents, sets=False))


# Questions ------------------------------------------------------------------------------------------------------------
# How good a release of a contingency table is: what analysts ask of it, by class, whatever algorithm made it.
#
# ``eq1``, ``eq2``, ``eq3``: as many columns have the values of a random record. ``range``: one or two ordered columns
# lie between two values that hold 1 to 50 % of the records. ``groups``: one column has a random record's value, counted
# by another. And whole tables: the counts by any one, two, .. columns, with their total variation. Of columns in wide
# bins only ranges are asked. The release answers the SQL that the source is asked; what another estimator than the
# default one refuses is left out of its figures.

SPREAD = (0.01, 0.5)  # share of the records between the ends of a range
WIDEST = 3  # columns of an equality
ORDERED = ("INT", "FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIME")  # parts of the types that have a range


@dataclass(frozen=True)
class QuestionColumn:
    """A column of the source: its field, its values in order, and the records of each (n_i,)."""

    field: Field
    values: list[Any]
    records: np.ndarray[Any, np.dtype[np.int64]]

    def equals(self, value: object) -> exp.Expr:
        """Return the condition that the column has one value."""
        return accuracy.make_equality(column(self.field.name), value, self.field.type)

    @cached_property
    def is_ordered(self) -> bool:
        """Return whether it makes sense to ask for a range of it."""
        return len(self.values) > 2 and any(part in self.field.type for part in ORDERED)

    def draw_range(self, draw: np.random.Generator) -> exp.Expr:
        """Lying between two values, which hold a random share of its records; NULL comes last."""
        known = [value is not None for value in self.values]
        ends = np.cumsum(self.records[known])
        share = draw.uniform(*SPREAD)
        first = draw.uniform(0, 1 - share)
        places = [int(np.searchsorted(ends, part * ends[-1])) for part in (first, first + share)]
        low, high = (self.equals(self.values[place]).expression for place in places)
        return exp.Between(this=column(self.field.name), low=low, high=high)


def evaluate_answers(context: EvaluationContext) -> accuracy.Evaluated:
    """Questions by class and whole tables, or the queries of a file, or random sets of values."""
    workload = context.workload
    if workload.file is not None or workload.kind != "equality":
        return accuracy.by_questions(context)
    result = QuestionClasses(context)
    scores, extras = {}, {}
    counts, tables = result.score_classes(), result.compare_tables()
    for estimator in context.estimators:
        scores[estimator] = accuracy.join_scores(counts[estimator].values())
        by_class = accuracy.by_class(counts[estimator], context.records.records)
        extras[estimator] = by_class | {"tables": tables[estimator]}
    return accuracy.Evaluated(scores, {}, context.confidence, extras)


class QuestionClasses:
    """The questions of an evaluation, drawn by its seed, and both sides' answers."""

    def __init__(self, context: EvaluationContext) -> None:
        self._given, self._draw = context, context.workload.query_generator
        self._number = context.workload.per_class
        roles = context.records.roles
        self._columns = [self._question_column(*pair) for pair in zip(roles.sensitive, roles.sa_keys, strict=True)]
        names = [one.field.name for one in self._columns]
        self._valued = [i for i, name in enumerate(names) if name not in context.answers.in_bins]

    def _question_column(self, field: Field, key: str) -> QuestionColumn:
        rows = self._given.db.rows(fill("core/frequencies", {"domain": temp_table("domain"), "column": column(key)}))
        return QuestionColumn(field, [row[0] for row in rows], np.array([row[1] for row in rows], dtype=np.int64))

    # Counts ---

    def score_classes(self) -> dict[str, dict[str, accuracy.Score]]:
        """By estimator and class."""
        result = accuracy.score_classes(self._given, self._draw_conditions(), self._score_count)
        if len(self._valued) > 1:
            self._given.report.start_step("Asking for groups")
            for estimator, score in self._score_groups().items():
                result[estimator]["groups"] = score
        return result

    def _draw_conditions(self) -> dict[str, list[exp.Expr]]:
        """Predicates by class, as many of each as there are queries to be asked."""
        result: dict[str, list[exp.Expr]] = {}
        for width in range(1, min(WIDEST, len(self._valued)) + 1):
            result[f"eq{width}"] = [self._equality_condition(row, width) for row in self._sample_rows(self._number)]
        ordered = [one for one in self._columns if one.is_ordered]
        if ordered:
            result["range"] = [self._range_condition(ordered) for _ in range(self._number)]
        return result

    def _equality_condition(self, row: Sequence[Any], width: int) -> exp.Expr:
        chosen = sorted(self._draw.choice(self._valued, width, replace=False).tolist())
        return exp.and_(*(self._columns[i].equals(row[i]) for i in chosen))

    def _range_condition(self, ordered: Sequence[QuestionColumn]) -> exp.Expr:
        width = int(self._draw.integers(1, min(2, len(ordered)) + 1))
        chosen = sorted(self._draw.choice(len(ordered), width, replace=False).tolist())
        return exp.and_(*(ordered[i].draw_range(self._draw) for i in chosen))

    def _sample_rows(self, number: int) -> Iterator[Sequence[Any]]:
        records, db = self._given.records, self._given.db
        if not records.records:
            return
        rows = accuracy.sample_rows(db, records.roles.sa_columns("r"), records.records, number, self._draw)
        for _, row in zip(range(number), rows, strict=False):
            yield row

    def _score_count(self, condition: exp.Expr, name: str) -> dict[str, accuracy.Score]:
        """The number of records that meet a condition."""
        return {estimator: score for estimator, (score, _) in self._score_table([], condition, name).items()}

    def _score_groups(self) -> dict[str, accuracy.Score]:
        """Counts by one column among the records that have a value in another, until enough groups are known."""
        result = {name: accuracy.Score() for name in self._given.estimators}
        answered = 0
        for row in self._sample_rows(self._number):
            among, by = self._draw.choice(self._valued, 2, replace=False).tolist()
            for estimator, (score, _) in self._score_table([by], self._columns[among].equals(row[among])).items():
                result[estimator].extend(score)
            answered = len(result[next(iter(result))].truth)
            self._given.report.update(100 * min(1.0, answered / self._number))
            if answered >= self._number:
                break
        return result

    # Tables ---

    def compare_tables(self) -> dict[str, list[dict[str, Any]]]:
        """By estimator, for tables by one, two, .. columns: their total variation, and figures of their cells.

        Total variation: half of the sum of |estimate - truth| over all cells, as a share of the records.
        """
        result: dict[str, list[dict[str, Any]]] = {name: [] for name in self._given.estimators}
        for ways in range(1, min(self._given.workload.ways, len(self._valued)) + 1):
            self._given.report.start_step(f"Comparing tables by {ways} columns")
            every = list(combinations(self._valued, ways))
            chosen = self._choose_affordable(every)
            scored = [self._score_table(one, None) for one in report_steps(self._given.report, chosen, len(chosen))]
            for estimator, summaries in result.items():
                answered = [one[estimator] for one in scored if estimator in one]
                summaries.append({"ways": ways, "of": len(every), **self._summarize_tables(answered)})
        return result

    def _summarize_tables(self, answered: Sequence[tuple[accuracy.Score, float]]) -> dict[str, Any]:
        """Figures of some tables and of all their cells, from the score and the distance of each."""
        records = self._given.records.records
        distances = [distance / max(1, records) for _, distance in answered]
        figures = accuracy.join_scores(score for score, _ in answered).summarize_band(records)
        return {
            "tables": len(distances),
            "total_variation": float(np.mean(distances)) if distances else None,
            "largest": max(distances, default=None),
            "cells": figures.pop("queries"),
            **figures,
        }

    def _choose_affordable(self, every: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """Tables in random order up to as many cells as the queries are worth, one at least."""
        most, cells = self._given.workload.max_cells, 0
        chosen: list[Sequence[int]] = []
        for place in self._draw.permutation(len(every)).tolist():
            cells += prod(len(self._columns[i].values) for i in every[place])
            if chosen and cells > most:
                break
            chosen.append(every[place])
        return chosen

    def _score_table(
        self, columns: Sequence[int], condition: exp.Expr | None, name: str = "groups"
    ) -> dict[str, tuple[accuracy.Score, float]]:
        """By estimator that answers, the cells of a table and half of the sum of all their errors; of a cell that an
        answer leaves out it says 0, and no bounds. ``name``: of the class of questions.
        """
        context = self._given
        sql = accuracy.count_query(context.name, condition, [column(self._columns[i].field.name) for i in columns])
        truth, result = context.truth(sql), {}
        for estimator in context.estimators:
            try:
                known, score = context.answer(sql, estimator).by_group(), accuracy.Score()
            except UsageError:
                if estimator == context.answers.estimators[0]:
                    raise
                continue
            difference = 0.0
            for group in dict.fromkeys((*truth, *known)):
                true, figures = truth.get(group, 0.0), known.get(group, (0.0, None, None))
                difference += abs(float(figures[0] or 0.0) - true)
                if context.workload.is_wanted(true):
                    score.add(true, figures, accuracy.QuestionKey(sql, group, name))
            result[estimator] = (score, difference / 2)
        return result
