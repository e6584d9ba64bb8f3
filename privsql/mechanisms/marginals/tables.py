"""Write the tables of a release of marginals, and read them back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Field, Holes, Roles, alias_as, column, fill, table, temp_table
from privsql.exact import fraction_text
from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.dp.noisy_tables import Ints, LeastSquares, Nested, NoisyTable, Reals, sum_cells
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.dp.tables import (
    CLIQUES,
    MARGINALS,
    NOISY_TABLES,
    describe_noisy_tables,
    read_noisy_tables,
    write_release_table,
)
from privsql.mechanisms.marginals.domains import ADDED, UNITS, ContingencyColumn
from privsql.mechanisms.marginals.parameters import Contingency
from privsql.mechanisms.marginals.plan import Rule
from privsql.model.explanations import Structure, make_structure
from privsql.model.tables import SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

# Tables ---------------------------------------------------------------------------------------------------------------
# ``privsql_domains`` lists the published values of every column (``place``) by ``code``; a bin has several values with
# the same code. If the column determines another column, ``parent`` is the code of the determined value.
#
# ``privsql_sums`` has a row for each table of sums: its ``number``, the ``measure`` that is added up, the ``columns``
# of the table, its budget and noise, and its ``sums``, cell by cell in row-major order.

DOMAINS, ROWS, SUMS = "privsql_domains", "privsql_rows", "privsql_sums"
SUM_COLUMNS = (
    "number INTEGER",
    "measure VARCHAR",
    "columns VARCHAR[]",
    "budget VARCHAR",
    "scale DOUBLE",
    "sums BIGINT[]",
)
TABLES = {
    **NOISY_TABLES,
    DOMAINS: ReleaseTable(("place INTEGER", "code INTEGER", "value VARCHAR", "share DOUBLE", "parent INTEGER")),
    ROWS: ReleaseTable((SENSITIVE, "weight DOUBLE")),
    SUMS: ReleaseTable(SUM_COLUMNS),
}


def weigh_rows(manifest: Manifest, rows: str, count: str) -> exp.Query:
    """Return the query of the release's view of weighted rows.

    Args:
        manifest: The manifest, which names the columns.
        rows: The table with the rows.
        count: The column of this table that becomes the weight.
    """
    own = manifest.roles.by_sa
    weight: exp.Expr = own.as_column(count)
    if count != "weight":
        weight = alias_as(weight, own.column_name("weight"))
    columns: list[exp.Expr] = [column(field.name) for field in manifest.sensitive]
    return fill("contingency/synthetic", {"rows": table(rows), "columns": columns, "weight": weight})


def list_points(columns: Sequence[ContingencyColumn]) -> pa.Table:
    """Return the rows of table ``privsql_domains``: the published values of every column, with their codes.

    A bin has one code and several values. Each value has the share of the code's records that it stands for.
    """
    points = [(place, one) for place, own in enumerate(columns) for one in own.points]
    return pa.table(
        {
            "place": pa.array([place for place, _ in points], pa.int32()),
            "code": pa.array([one.code for _, one in points], pa.int32()),
            "value": pa.array([one.value for _, one in points], pa.string()),
            "share": pa.array([one.share for _, one in points], pa.float64()),
            "parent": pa.array([one.parent for _, one in points], pa.int32()),
        }
    )


def write_rows(
    db: Relations, fields: Sequence[Field], columns: Sequence[ContingencyColumn], codes: Ints, weights: Reals
) -> None:
    """Write the weighted rows into the release, each value in the type of its column.

    A bin is written as a value in its middle.

    Args:
        db: Where the release is made.
        fields: The names and types of the d columns.
        columns: The values of these columns.
        codes: The codes of the R rows (R, d).
        weights: The weights of the rows (R,).
    """
    rows = {}
    for place, one in enumerate(columns):
        inside = [[point.value for point in one.points if point.code == code] for code in range(len(one))]
        middle = pa.array([values[len(values) // 2] for values in inside], pa.string())
        rows[f"s{place}"] = middle.take(pa.array(codes[:, place]))
    roles = Roles((), tuple(fields))
    order: list[exp.Expr] = [one.this for one in roles.sa_typed("g")]
    holes: Holes = {"given": temp_table("given"), "columns": roles.sa_typed("g"), "order": order}
    query = fill("contingency/rows", {**holes, **roles.by_sa.alias_holes("weight")})
    data = pa.table({**rows, "weight": pa.array(weights, pa.float64())})
    write_release_table(db, ROWS, data, query, title="Writing the rows")


def read_domains(rows: pa.Table, number: int) -> tuple[int, ...]:
    """Return the number of values or bins of every column, from the rows of ``privsql_domains``.

    Args:
        rows: The rows of the table: the published values of every column, of which a bin has several.
        number: The number of columns.

    Raises:
        ValueError: The values of a column are not numbered 0, 1, .., or the shares of a bin's records that its values
            stand for do not add up to 1.
    """
    place, code = (rows[name].to_numpy() for name in ("place", "code"))
    if rows["share"].null_count or not len(rows):
        raise ValueError("a value is missing")
    sizes = [int(code[place == k].max(initial=-1)) + 1 for k in range(number)]
    different = set(zip(place.tolist(), code.tolist(), strict=True))
    if min(sizes) < 1 or different != {(k, c) for k in range(number) for c in range(sizes[k])}:
        raise ValueError("the values of a column are not numbered 0, 1, ..")
    if not np.allclose(np.bincount(place, weights=rows["share"].to_numpy()), sizes):
        raise ValueError("the shares of a value do not add up")
    return tuple(sizes)


def read_nested(rows: pa.Table, params: Contingency, names: Sequence[str], sizes: Sequence[int]) -> tuple[Nested, ...]:
    """Return the columns whose values determine those of another column, from the rows of ``privsql_domains``.

    Args:
        rows: The rows of the table.
        params: The parameters, which name the parents of columns.
        names: The names of all columns, by position.
        sizes: The number of values of every column.

    Raises:
        ValueError: Other columns determine one another than the parameters say, or a listed value determines an
            unlisted one.
    """
    result, places = [], {fold_name(name): place for place, name in enumerate(names)}
    for place, name in enumerate(names):
        domain, own = params.domain(name), rows.filter(pc.field("place") == place)["parent"].to_pylist()
        listed = sizes[place] - ADDED if domain is not None and domain.parent is not None else 0
        if any(one is None for one in own[:listed]) or any(one is not None for one in own[listed:]):
            raise ValueError(f"values of {name} determine others than the parameters say")
        if domain is not None and domain.parent is not None:
            parent = places[fold_name(domain.parent)]
            if not all(0 <= one < sizes[parent] - ADDED for one in own[:listed]):
                raise ValueError(f"values of {name} determine none that is listed")
            result.append(Nested(parent, place, np.array(own[:listed], dtype=np.int64)))
    return tuple(result)


@dataclass(frozen=True)
class SummedTable:
    """Noisy sums of one measured column, in the cells of a table over other columns.

    Each value is clamped to the range of the column's bins. Sums are of the distance of values from the lowest edge, in
    small units, of which ``UNITS`` make the whole range. So one record changes one cell by at most ``UNITS``, and the
    noise is scaled to that.

    Attributes:
        measure: The position of the measured column.
        table: The noisy sums, with the columns of the table.
    """

    measure: int
    table: NoisyTable


def write_sums(db: Relations, sums: Sequence[SummedTable], names: Sequence[str]) -> None:
    """Write the noisy sums into table ``privsql_sums``.

    Args:
        db: Where the release is made.
        sums: The tables of sums, in the order of ``Rule.due_sums``.
        names: The names of all columns, by position.
    """
    tables = [one.table for one in sums]
    arrays = {
        "number": pa.array(range(len(sums)), pa.int32()),
        "measure": pa.array([names[one.measure] for one in sums], pa.string()),
        "columns": pa.array([[names[i] for i in one.columns] for one in tables], pa.list_(pa.string())),
        "budget": pa.array([fraction_text(one.budget) for one in tables], pa.string()),
        "scale": pa.array([one.law.scale(one.budget) for one in tables], pa.float64()),
        "sums": pa.array([one.counts.reshape(-1).tolist() for one in tables], pa.list_(pa.int64())),
    }
    write_release_table(db, SUMS, pa.table(arrays))


def read_sums(rows: pa.Table, rule: Rule) -> list[SummedTable]:
    """Return the tables of noisy sums, from the rows of ``privsql_sums``.

    Raises:
        ValueError: Tables, budgets or scales of noise are not those that the rule requires, or a cell is missing.
    """
    due, law, listed = rule.due_sums(), replace(rule.law, moved=UNITS), rows.to_pylist()
    stated = [(row["number"], row["measure"], row["columns"], row["budget"], row["scale"]) for row in listed]
    expected = [
        (number, rule.names[place], [rule.names[i] for i in clique], fraction_text(spent), law.scale(spent))
        for number, (place, clique, spent) in enumerate(due)
    ]
    if stated != expected:
        raise ValueError("the tables of sums are not those that are due")
    result = []
    for row, (place, clique, spent) in zip(listed, due, strict=True):
        if len(row["sums"]) != rule.count_cells(clique) or None in row["sums"]:
            raise ValueError("sums of cells are missing")
        cells = np.array(row["sums"], dtype=np.int64).reshape([rule.sizes[i] for i in clique])
        result.append(SummedTable(place, NoisyTable(clique, spent, cells, None, law)))
    return result


@dataclass(frozen=True)
class PublishedMarginals:
    """The tables of a release of marginals after they were read.

    Attributes:
        ORDERS: By table, the columns by which its rows have to be sorted for ``read``.
        rule: The rule that decides which tables the release must have.
        domains: The rows of ``privsql_domains``.
        tables: The noisy tables of counts.
        sums: The noisy sums of measured columns.
    """

    ORDERS: ClassVar = {
        DOMAINS: ("place", "code"), CLIQUES: ("clique",), MARGINALS: ("clique", "cell"), SUMS: ("number",)
    }  # fmt: skip
    rule: Rule
    domains: pa.Table
    tables: list[NoisyTable]
    sums: list[SummedTable]

    @staticmethod
    def read(params: Contingency, fields: Sequence[Field], rows: Mapping[str, pa.Table]) -> PublishedMarginals:
        """Read the rows of a release's tables and check their shape.

        Args:
            params: The parameters of the release.
            fields: The names and types of the columns.
            rows: By table, its rows, sorted by the columns that ``ORDERS`` names for it.

        Raises:
            ValueError: A release with these parameters can't have these tables.
        """
        names = tuple(field.name for field in fields)
        domains = rows[DOMAINS]
        sizes = read_domains(domains, len(names))
        rule = Rule(params, names, sizes, nested=read_nested(domains, params, names, sizes))
        tables = read_noisy_tables(rows[CLIQUES], rows[MARGINALS], names, rule.sizes, rule.law)
        return PublishedMarginals(rule, rows[DOMAINS], tables, read_sums(rows[SUMS], rule))

    @cached_property
    def model(self) -> Model:
        """Return one model of all columns, fitted to the noisy tables."""
        return Model(self.tables, self.rule.sizes, self.rule.nested)

    @cached_property
    def amounts(self) -> dict[str, LeastSquares]:
        """Return by measured column the least-squares estimates of its sums, from all its tables of noisy sums."""
        tables: dict[str, list[NoisyTable]] = {}
        for one in self.sums:
            tables.setdefault(self.rule.names[one.measure], []).append(one.table)
        return {name: LeastSquares(own, self.rule.sizes) for name, own in tables.items()}


def read_codes(db: Relations, manifest: Manifest, rows: exp.Table, domains: exp.Table) -> Ints:
    """Return the codes of the values in a relation of R rows, with columns s0, s1, .. (R, columns).

    A value that its column's domain does not list has the code -1.

    Args:
        db: Where the relations are.
        manifest: The manifest, which has the names and types of the columns.
        rows: The relation of rows.
        domains: The relation of table ``privsql_domains``.
    """

    def canonical_text(name: str, kind: str) -> exp.Expr:
        value = exp.cast(column(name), exp.DataType.build(kind, dialect=DIALECT))
        return alias_as(exp.cast(value, "VARCHAR"), name)

    columns = list(zip(manifest.roles.sa_keys, manifest.sensitive, strict=True))
    texts = db.arrow(exp.select(*(canonical_text(key, field.type) for key, field in columns)).from_(rows))
    result = np.full((len(texts), len(columns)), -1, dtype=np.int64)
    for place, (key, field) in enumerate(columns):
        listed = [column("code"), canonical_text("value", field.type)]
        holes: Holes = {"domains": domains, "columns": listed, "place": exp.Literal.number(place)}
        points = db.arrow(fill("contingency/points", holes))
        points = points.take(pa.array(np.arange(len(points))[::-1]))  # if two values are NULL, match the last one
        at = pc.index_in(texts[key].combine_chunks(), value_set=points["value"].combine_chunks())
        known = np.asarray(pc.is_valid(at))
        result[known, place] = points["code"].to_numpy()[np.asarray(at.fill_null(0))[known]]
    return result


def mean_total_variation(model: Model, codes: Ints, weights: Reals) -> float:
    """Return how far weighted synthetic rows lie from the model that they are made from, from 0 to about 1.

    It is the mean total variation distance of their tables. The mean is taken over all measured tables with two or more
    columns; if there are none, over the single columns.

    Args:
        model: The model.
        codes: The codes of the R rows in all columns (R, columns).
        weights: The weights of the rows (R,).
    """
    far = []
    for clique in [*model.known_tables] or [(i,) for i in range(len(model.sizes))]:
        difference = sum_cells(codes, weights, clique, model.sizes) - model.fitted_table(clique)
        far.append(float(np.abs(difference).sum()) / 2 / max(model.total, 1.0))
    return sum(far) / len(far)


def list_facts(rule: Rule, tables: Sequence[NoisyTable], model: Model) -> dict[str, Any]:
    """Return the facts of the manifest that follow from the noisy tables and the model fitted to them, by name."""
    return {
        "values": sum(rule.sizes),
        "cliques": len(tables),
        "chosen": sum(one.choice is not None for one in tables),
        "cells": sum(one.counts.size for one in tables),
        "estimated_records": round(model.total, 1),
        "not_covered": rule.params.not_covered(rule.names),
    }


def describe_tables(db: Relations, manifest: Manifest) -> list[Structure]:
    """Return tables for the report that list the noisy tables of counts, and the noisy sums if there are any."""
    params = Contingency.model_validate(manifest.parameters)
    concentrated = find_law(params).concentrated
    result = describe_noisy_tables(db, concentrated=concentrated)
    if not params.measures:
        return result
    ends = {name: [float(edge) for edge in params.bin_edges(name)] for name in params.measures}
    lines = []
    for measure, columns, budget, scale in db.rows(
        exp.select("measure", "columns", "budget", "scale").from_(table(SUMS)).order_by("number")
    ):
        edges = params.bin_edges(measure)
        noise = float(scale) / UNITS * (1 if concentrated else 2**0.5) * float(edges[-1] - edges[0])
        lines.append((measure, " \u00d7 ".join(columns) or "all records", budget, float(f"{noise:.4g}")))
    clamped = "; ".join(f"{name} to [{edges[0]:g}, {edges[-1]:g}]" for name, edges in ends.items())
    sentence = f"Values were clamped, {clamped}, and added up; noise was added to every sum."
    head = ("sum of", "by", "rho" if concentrated else "epsilon", "standard deviation of the noise")
    return [*result, make_structure("The noisy sums", sentence, head, lines)]
