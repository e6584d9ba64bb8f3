"""The tables of a release of marginals, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.sqlfiles import DIALECT, Field, Holes, Roles, alias_as, column, fill, table, temp_table
from privsql.exact import fraction_text
from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.dp.noisy_tables import Ints, LeastSquares, NoisyTable, Reals, sum_cells
from privsql.mechanisms.dp.tables import (
    CLIQUES,
    MARGINALS,
    NOISY_TABLES,
    read_noisy_tables,
    tables_structure,
    write_release_table,
)
from privsql.mechanisms.marginals.domains import UNITS, ContingencyColumn
from privsql.mechanisms.marginals.parameters import Contingency
from privsql.mechanisms.marginals.plan import Rule
from privsql.model.explanations import Structure, make_structure
from privsql.model.tables import SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a release of marginals and its view: columns, and what the answers need of them.

DOMAINS, ROWS = "privsql_domains", "privsql_rows"


# Sums -----------------------------------------------------------------------------------------------------------------
# Tables of sums of measured columns, and back. A record adds what its value lies above the first edge of the bins, in
# ``UNITS`` of the distance to the last edge, to one cell of each table: at most ``UNITS``, which noise is scaled by.

SUMS = "privsql_sums"
TABLES = {
    **NOISY_TABLES,
    DOMAINS: ReleaseTable(("place INTEGER", "code INTEGER", "value VARCHAR", "share DOUBLE")),
    ROWS: ReleaseTable((SENSITIVE, "weight DOUBLE")),
    SUMS: ReleaseTable(
        (
            *("number INTEGER", "measure VARCHAR", "columns VARCHAR[]", "budget VARCHAR", "scale DOUBLE"),
            "sums BIGINT[]",
        )
    ),
}


def marginal_view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are about the estimates."""
    columns: list[exp.Expr] = [column(field.name) for field in manifest.sensitive]
    weight = manifest.roles.by_sa.as_column("weight")
    return fill("contingency/synthetic", {"rows": table(ROWS), "columns": columns, "weight": weight})


def domains_table(columns: Sequence[ContingencyColumn]) -> pa.Table:
    """``privsql_domains``: the values of every column (by its ``place``), or what stands for its bins, by ``code``."""
    points = [(place, *(one.code, one.value, one.share)) for place, own in enumerate(columns) for one in own.points]
    names, types = ("place", "code", "value", "share"), (pa.int32(), pa.int32(), pa.string(), pa.float64())
    arrays = [pa.array([row[k] for row in points], kind) for k, kind in enumerate(types)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def write_rows(
    db: Relations, fields: Sequence[Field], columns: Sequence[ContingencyColumn], weighted_codes: tuple[Ints, Reals]
) -> None:
    """``privsql_rows``: rows of codes with weights, in the columns' own types; of a bin a value in its middle."""
    codes, weights = weighted_codes
    texts = {}
    for place, each_column in enumerate(columns):
        points = each_column.points
        middle = [[one.value for one in points if one.code == code] for code in range(len(each_column))]
        texts[f"s{place}"] = pa.array([each[len(each) // 2] for each in middle], pa.string()).take(
            pa.array(codes[:, place])
        )
    weighted_rows = pa.table({**texts, "weight": pa.array(weights, pa.float64())})
    roles = Roles((), tuple(fields))
    order: list[exp.Expr] = [one.this for one in roles.sa_typed("g")]
    holes: Holes = {"given": temp_table("given"), "columns": roles.sa_typed("g"), "order": order}
    query = fill("contingency/rows", {**holes, **roles.by_sa.alias_holes("weight")})
    write_release_table(db, ROWS, weighted_rows, query, title="Writing the rows")


def read_domains(rows: pa.Table, number: int) -> tuple[int, ...]:
    """How many values each column has; ``ValueError`` unless the table counts them up for ``number`` columns."""
    place, code = (rows[name].to_numpy() for name in ("place", "code"))
    if rows["share"].null_count or not len(rows):
        raise ValueError("a value is missing")
    sizes = [int(code[place == k].max(initial=-1)) + 1 for k in range(number)]
    different = {(int(p), int(c)) for p, c in zip(place, code, strict=True)}
    if min(sizes) < 1 or different != {(k, c) for k in range(number) for c in range(sizes[k])}:
        raise ValueError("the values of a column are not numbered 0, 1, ..")
    total = np.bincount(place, weights=rows["share"].to_numpy())
    if not np.allclose(total, sizes):
        raise ValueError("the shares of a value do not add up")
    return tuple(sizes)


@dataclass(frozen=True)
class SummedTable:
    """The noisy sums of a measured column, at place ``measure``, by other columns: in ``UNITS``, not in records."""

    measure: int
    table: NoisyTable


def write_sums(db: Relations, sums: Sequence[SummedTable], names: Sequence[str]) -> None:
    """``privsql_sums``: by ``number`` the ``measure`` and the ``columns`` of a table, what it spent, its noise,
    and its ``sums``, row by row over the columns.
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
    """The tables of sums; ``ValueError`` unless these are due, with every cell and the scale of the budget."""
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
    """A release read from its tables: its rule, domains, noisy tables and sums."""

    ORDERS: ClassVar = {
        DOMAINS: ("place", "code"), CLIQUES: ("clique",), MARGINALS: ("clique", "cell"), SUMS: ("number",)
    }  # fmt: skip
    rule: Rule
    domains: pa.Table
    tables: list[NoisyTable]
    sums: list[SummedTable]

    @staticmethod
    def read(params: Contingency, fields: Sequence[Field], rows: Mapping[str, pa.Table]) -> PublishedMarginals:
        """A release from the rows of its tables by name, each in its order; ``ValueError`` for other tables."""
        names = tuple(field.name for field in fields)
        rule = Rule(params, names, read_domains(rows[DOMAINS], len(names)))
        tables = read_noisy_tables(rows[CLIQUES], rows[MARGINALS], names, rule.sizes, rule.law)
        return PublishedMarginals(rule, rows[DOMAINS], tables, read_sums(rows[SUMS], rule))

    @cached_property
    def model(self) -> Model:
        """Fitted to the tables."""
        return Model(self.tables, self.rule.sizes)

    @cached_property
    def amounts(self) -> dict[str, LeastSquares]:
        """The least-squares estimates of all sums of each measured column, by its name."""
        by_place = {one.measure: [each.table for each in self.sums if each.measure == one.measure] for one in self.sums}
        return {self.rule.names[place]: LeastSquares(tables, self.rule.sizes) for place, tables in by_place.items()}


def codes_of(db: Relations, manifest: Manifest, rows: exp.Table, domains: exp.Table) -> Ints:
    """The codes of all ``rows``(s0..), (R, d); -1 for a value that is in no domain."""
    columns = list(zip(manifest.roles.sa_keys, manifest.sensitive, strict=True))
    texts = db.arrow(exp.select(*(_canonical_text(column(key), one.type, key) for key, one in columns)).from_(rows))
    result = np.full((len(texts), len(manifest.sensitive)), -1, dtype=np.int64)
    for place, (key, field) in enumerate(columns):
        listed = [column("code"), _canonical_text(column("value"), field.type, "value")]
        points = db.arrow(
            fill("contingency/points", {"domains": domains, "columns": listed, "place": exp.Literal.number(place)})
        )
        points = points.take(pa.array(np.arange(len(points))[::-1]))  # of two that are NULL the last one is meant
        at = pc.index_in(texts[key].combine_chunks(), value_set=points["value"].combine_chunks())
        known = np.asarray(pc.is_valid(at))
        result[known, place] = points["code"].to_numpy()[np.asarray(at.fill_null(0))[known]]
    return result


def _canonical_text(value: exp.Expr, kind: str, name: str) -> exp.Expr:
    """A value of a type as its text, whichever of its texts it was given as."""
    return alias_as(exp.cast(exp.cast(value, exp.DataType.build(kind, dialect=DIALECT)), "VARCHAR"), name)


def mean_total_variation(model: Model, codes: Ints, weights: Reals) -> float:
    """Mean total variation between the rows' tables of measured columns, or else of single ones, and the model's."""
    far = []
    for clique in [*model.known_tables] or [(i,) for i in range(len(model.sizes))]:
        difference = sum_cells(codes, weights, clique, model.sizes) - model.fitted_table(clique)
        far.append(float(np.abs(difference).sum()) / 2 / max(model.total, 1.0))
    return sum(far) / len(far)


def list_marginal_facts(rule: Rule, tables: Sequence[NoisyTable], model: Model) -> dict[str, Any]:
    """Return what the manifest states of the tables, and of the model that fits them."""
    return {
        "values": sum(rule.sizes),
        "cliques": len(tables),
        "chosen": sum(one.choice is not None for one in tables),
        "cells": sum(one.counts.size for one in tables),
        "estimated_records": round(model.total, 1),
        "not_covered": rule.params.not_covered(rule.names),
    }


def describe_tables(db: Relations, manifest: Manifest) -> list[Structure]:
    """Every table of counts, and what was added up."""
    result = tables_structure(db, manifest)
    params = Contingency.model_validate(manifest.parameters)
    ends = {name: params.bin_edges(name) for name in params.measures}
    rows = db.rows(exp.select("measure", "columns", "budget", "scale").from_(table(SUMS)).order_by("number"))
    lines = [
        (measure, " \u00d7 ".join(columns) or "all records", budget, float(f"{noise:.4g}"))
        for measure, columns, budget, scale in rows
        for edges in [params.bin_edges(measure)]
        for noise in [float(scale) / UNITS * (1 if params.delta else 2**0.5) * float(edges[-1] - edges[0])]
    ]
    clamped = "; ".join(f"{name} to [{float(edges[0]):g}, {float(edges[-1]):g}]" for name, edges in ends.items())
    sentence = f"Values were clamped, {clamped}, and added up; noise was added to every sum."
    head = ("sum of", "by", "rho" if params.delta else "epsilon", "standard deviation of the noise")
    return [*result, make_structure("The noisy sums", sentence, head, lines)] if lines else result
