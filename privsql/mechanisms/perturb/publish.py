"""Draw, write and read the randomized values of sub-tables, as publishers, analysts and adversaries see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import Channel, Floats, Observation, reconstruct
from privsql.answers.estimate import project_within
from privsql.attacks.scene import CHUNK, AttackView, Block, count_levels
from privsql.engine.database import IntervalFunctions
from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import BITS, Holes, alias_as, all_rows, column, fill, same_columns, table, temp_table
from privsql.errors import EngineError, GuaranteeError
from privsql.mechanisms.assignment import RankAssignment, RecordParts, Segments, assign_records
from privsql.mechanisms.perturb.parameters import RandomizeFacts
from privsql.model.records import Records, bounded_zeros
from privsql.model.tables import QUASI, SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.perturb.plan import SubTable
    from privsql.model.manifest import Manifest

# Draws ----------------------------------------------------------------------------------------------------------------
# What is drawn for every record: its sub-table, and by how many places its value moves in that domain.
#
# In a sub-table of m_j values a value keeps its place with probability gamma_j/(m_j - 1 + gamma_j) and moves by 1, ..,
# m_j - 1 places (cyclically) with 1/(m_j - 1 + gamma_j) each: that is uniform perturbation. With gamma_j = a/b the
# choice is one integer uniform on 0..(m_j - 1) b + a - 1, of which the first a stay; nothing is rounded.

Moves = np.ndarray[tuple[int], np.dtype[np.int32]]  # (n,) number of (sub-table, step), records in order of their values


def draw_moves(parts: Ints, subtables: Sequence[SubTable], noise: Shuffler) -> Moves:
    """Moves (n,) of the records, value by value: which records of a value go to which sub-table is random."""
    first = _first_numbers(subtables)
    moves = np.empty(int(parts.sum()), dtype=np.int32)
    begin = 0
    for each_column in parts.T:
        value_moves = moves[begin : begin + int(each_column.sum())]
        start = 0
        for j in np.flatnonzero(each_column).tolist():
            end = start + int(each_column[j])
            value_moves[start:end] = first[j] + draw_steps(subtables[j], end - start, noise)
            start = end
        if np.count_nonzero(each_column) > 1:
            noise.shuffle(value_moves)
        begin += len(value_moves)
    return moves


def draw_steps(subtable: SubTable, records: int, noise: Shuffler) -> Ints:
    """Draw by how many places (0..m_j-1) the value of each record moves (records,)."""
    stay, other = subtable.gamma.numerator, subtable.gamma.denominator
    choice = noise.integers(0, subtable.weight, records)
    return np.where(choice < stay, 0, 1 + (choice - stay) // other)


def moves_table(subtables: Sequence[SubTable]) -> pa.Table:
    """(bid, sub_table, step, size): what the numbers of ``draw_moves`` mean, as 32-bit integers, which sort faster."""
    sizes = np.array([subtable.size for subtable in subtables])
    sub_table: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), sizes)
    step = np.arange(len(sub_table)) - _first_numbers(subtables)[sub_table]
    columns = {"bid": np.arange(len(sub_table)), "sub_table": sub_table, "step": step, "size": sizes[sub_table]}
    return pa.table({name: array.astype(np.int32) for name, array in columns.items()})


def make_segments(parts: Ints) -> Segments:
    """The sub-tables of the ranks of every value; ``parts`` (t, m)."""
    code, sub_table = np.nonzero(parts.T)
    ends = np.cumsum(parts.T, axis=1)[code, sub_table]
    return Segments(code, ends - parts[sub_table, code], ends, sub_table, step=0)


def steps_table(subtables: Sequence[SubTable]) -> pa.Table:
    """(sub_table, keep, other): of 2^60 equally likely integers how many stay, and how many move by each step.

    ``other`` is 2^60/(m_j - 1 + gamma_j), rounded up, and the rest stay: keep/other <= gamma_j.
    """
    line = 1 << BITS
    other = [-(-line * one.gamma.denominator // one.weight) for one in subtables]
    keep = [line - (one.size - 1) * width for one, width in zip(subtables, other, strict=True)]
    return pa.table({"sub_table": np.arange(len(subtables)), "keep": keep, "other": other})


def with_begins(moves: pa.Table, steps: pa.Table) -> pa.Table:
    """``moves_table`` with where, on the line of ``steps_table``, those that move so begin."""
    sub_table, step = moves["sub_table"].to_numpy(), moves["step"].to_numpy()
    keep, other = (steps[name].to_numpy()[sub_table] for name in ("keep", "other"))
    return moves.append_column("begin", pa.array(np.where(step == 0, 0, keep + (step - 1) * other)))


def _first_numbers(subtables: Sequence[SubTable]) -> Ints:
    """Number of step 0 of every sub-table."""
    sizes = np.array([subtable.size for subtable in subtables], dtype=np.int64)
    return np.cumsum(sizes) - sizes


# Public parameters ----------------------------------------------------------------------------------------------------
# The public parameters of a randomized release as arrays, and the channel that they make.
#
# Cell (j, x): value x of sub-table j. The published records with cell (j, y) are seen; unknown is who had which value.
# A record of value i goes to sub-table j with c_ij/o_i (which of them is random) and becomes y there with P_j(i, y), so
#
#     M[i, (j, y)] = c_ij/o_i P_j(i, y),
#
# the perturbation matrices stacked over the sub-tables. Each record adds one unit vector, so S = diag(M^T o). The
# counts c are not published: they are themselves estimated, per sub-table and from all its records, with a flat prior.

Ints = NDArray[np.int64]
WHOLE = 1e-6  # that rho1 |T_j| may lack of a whole number in doubles
PUBLIC = (table("privsql_subtables"), table("privsql_domains"), table("privsql_values"))


@dataclass(frozen=True)
class PublicParameters:
    """``records`` |T_j|, ``gamma``, ``rho1`` (k,); ``own`` (cells,) sub-table and ``code`` (cells,) value of each cell;
    ``protected`` (m,); ``totals`` (cells,) published records of each cell.
    """

    records: Ints
    gamma: Floats
    rho1: Floats
    sub_tables: Ints
    code: Ints
    protected: NDArray[np.bool_]
    totals: Floats

    def with_totals(self, rows: pa.Table) -> PublicParameters:
        """With the totals of ``sql/randomize/observed.sql`` (place, pairs)."""
        totals = np.bincount(rows["place"].to_numpy(), rows["pairs"].to_numpy(), minlength=len(self.sub_tables))
        return replace(self, totals=totals.astype(np.float64))

    @cached_property
    def domain_sizes(self) -> Ints:
        """m_j (k,)."""
        return np.bincount(self.sub_tables, minlength=len(self.records))

    @property
    def retention(self) -> Floats:
        """p_j (k,)."""
        return np.asarray((self.gamma - 1) / (self.domain_sizes - 1 + self.gamma))

    @property
    def replacement(self) -> Floats:
        """q_j (k,)."""
        return np.asarray(1 / (self.domain_sizes - 1 + self.gamma))

    @cached_property
    def most_records(self) -> Floats:
        """Records that each cell can have at most (cells,): rho1_j |T_j| if protected, else what the others leave."""
        ceiling = np.floor(self.rho1 * self.records + WHOLE)[self.sub_tables]
        others = (self.records - self.domain_sizes + 1)[self.sub_tables]
        return np.asarray(np.where(self.protected[self.code], np.minimum(ceiling, others), others).astype(np.float64))

    @cached_property
    def least_records(self) -> Floats:
        """Records that each cell has at least (cells,): 1, or what the others can't hold."""
        held = np.bincount(self.sub_tables, self.most_records)[self.sub_tables] - self.most_records
        return np.maximum(self.records[self.sub_tables] - held, 1)

    def by_value(self, cells: Floats) -> Floats:
        """Sums over the sub-tables (m,)."""
        return np.asarray(np.bincount(self.code, cells, minlength=len(self.protected)))

    def perturbation_matrix(self, j: int) -> Floats:
        """P_j (m_j, m_j): q_j everywhere and p_j more on the diagonal."""
        size = int(self.domain_sizes[j])
        return np.asarray(np.eye(size) * self.retention[j] + self.replacement[j])

    @cached_property
    def estimated(self) -> tuple[Floats, Floats]:
        """Estimates of c (cells,) and their standard errors, at most half of the range in which c must lie."""
        values, errors = np.zeros(len(self.sub_tables)), np.zeros(len(self.sub_tables))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.sub_tables == j)
            matrix, total = self.perturbation_matrix(j), np.array([float(self.records[j])])
            flat = np.full(len(cells), total[0] / len(cells))
            channel = Channel(matrix, np.diag(flat @ matrix), flat)
            observed = Observation(self.totals[cells][None], total, total, total, np.ones(1))
            result = reconstruct(channel, observed, np.eye(len(cells)))
            values[cells] = project_within(result.values, total, self.most_records[cells][None], flat)[0]
            errors[cells] = result.std_error[0]
        return np.maximum(values, self.least_records), np.minimum(errors, (self.most_records - self.least_records) / 2)

    @cached_property
    def channel(self) -> Channel:
        """M (m, cells), S and the estimated o (m,)."""
        counts = np.maximum(self.estimated[0], 1e-6)
        records = self.by_value(counts)
        mean = bounded_zeros(len(records), len(counts))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.sub_tables == j)
            share = counts[cells] / records[self.code[cells]]
            mean[np.ix_(self.code[cells], cells)] = share[:, None] * self.perturbation_matrix(j)
        return Channel(mean, np.diag(records @ mean), records)


def read_public(db: Relations, named: Sequence[exp.Table] = PUBLIC) -> PublicParameters:
    """The parameters of an open release, its totals still 0; ``named``: where its tables are.

    ``EngineError`` unless these are parameters: nothing is computed from others.
    """
    subtables, listed, coded = (db.rows(all_rows(relation).order_by(exp.Literal.number(1))) for relation in named)
    _require_valid(all(None not in row for rows in (subtables, listed) for row in rows), "an entry is NULL")
    for what, rows in (("sub-tables", subtables), ("cells", listed), ("values", coded)):
        _require_valid([row[0] for row in rows] == list(range(len(rows))), f"{what} are not numbered 0, 1, ..")
    _require_valid(all(0 <= sub_table < len(subtables) for _, sub_table, _ in listed), "a cell is in no sub-table")
    _require_valid({sub_table for _, sub_table, _ in listed} == set(range(len(subtables))), "a sub-table has no cells")
    _require_valid(all(0 <= code < len(coded) for _, _, code in listed), "a cell has no value")
    _require_valid(len({row[1:] for row in listed}) == len(listed), "a sub-table has a value twice")
    _require_valid(all(row[-1] is not None for row in coded), "a value is neither protected nor not")
    _require_valid(all(row[1] > 0 and row[4] > 0 and row[6] > 0 for row in subtables), "a number is not positive")
    gamma = [float(Fraction(int(row[5]), int(row[6]))) for row in subtables]
    rho1 = [float(Fraction(int(row[3]), int(row[4]))) for row in subtables]
    _require_valid(all(value > 1 for value in gamma), "a gamma is not above 1")
    _require_valid(all(0 < value < 1 for value in rho1), "a rho1 is not between 0 and 1")
    cells = np.array(listed, dtype=np.int64)
    return PublicParameters(
        np.array([row[1] for row in subtables], dtype=np.int64),
        np.array(gamma),
        np.array(rho1),
        cells[:, 1],
        cells[:, 2],
        np.array([bool(row[-1]) for row in coded]),
        np.zeros(len(cells)),
    )


def _require_valid(holds: bool, wrong: str) -> None:
    if not holds:
        raise EngineError(f"the release's parameters are damaged: {wrong}")


# The adversaries' view ------------------------------------------------------------------------------------------------


class PerturbedView(AttackView):
    """The perturbed table, and the public parameters of its sub-tables."""

    records, part, independent = "perturbed", "sub_table", True
    stated = ("protected",)
    relations = ("rows", "chosen")

    def _more_columns(self) -> list[str]:
        return list(self.roles.sa_keys)

    def excess_share(self) -> float:
        """Share of the records in sub-tables whose stated parameters allow a posterior above rho2."""
        rho2 = Fraction(self.given.manifest.parameters["rho2"])
        result = []
        for row in self.read_table("privsql_subtables").to_pylist():
            rho1 = Fraction(int(row["rho1_numerator"]), int(row["rho1_denominator"]))
            gamma = Fraction(int(row["gamma_numerator"]), int(row["gamma_denominator"]))
            if gamma * rho1 > rho2 * (gamma * rho1 + 1 - rho1):
                result.append(int(row["sub_table"]))
        return float(np.isin(self.record_parts, result).mean())

    def canonical_orders(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """The perturbed table."""
        return {self.records: (temp_table("a_records"), ["part", *self.roles.qi_keys, *self.roles.sa_keys])}

    def _attacked_filter(self) -> exp.Expr:
        """Every k-th record as stored, so that all sub-tables and quasi-identifiers have their share of a sample."""
        records, sample, name = self.given.manifest.published_records, self.given.sample, self.name_relation("chosen")
        if sample is None or sample >= records:
            return exp.true()
        self.db.register_arrow(name, pa.table({"pos": np.arange(0, records, -(-records // sample))}))
        return exp.In(this=column("pos"), query=exp.select("pos").from_(temp_table(name)).subquery())

    @cached_property
    def record_cells(self) -> Ints:
        """Sub-table and perturbed value of every record as one number (n,)."""
        domains = exp.select("*").from_(table("privsql_domains", self.given.database)).subquery()
        stated: Holes = {"domains": domains, "values": temp_table("a_values"), "sa": self.roles.sa_columns("v")}
        self.db.create_view("a_cells", fill("randomize/cells_stated", stated))
        holes: Holes = {
            "rows": self.rows,
            "cells": temp_table("a_cells"),
            "same_value": same_columns("r", "c", self.roles.sa_keys),
        }
        result = self.db.arrow(fill("attack/cells", holes))["cell"].to_numpy().astype(np.int64)
        if len(result) != len(self.record_parts):
            raise GuaranteeError("perturbed values do not belong to the stated domains; verify the release")
        return np.asarray(result)

    @cached_property
    def public_parameters(self) -> PublicParameters:
        """Parameters and counts of the cells."""
        named = [table(name, self.given.database) for name in ("privsql_subtables", "privsql_domains")]
        stated = read_public(self.db, (*named, temp_table("a_values")))
        totals = np.bincount(self.record_cells, minlength=len(stated.sub_tables)).astype(np.float64)
        whole = stated.records / np.maximum(np.bincount(stated.sub_tables, totals, minlength=len(stated.records)), 1)
        return replace(stated, totals=totals * whole[stated.sub_tables])  # of a sample: scaled up

    @cached_property
    def bounds(self) -> Floats:
        """Rho2 for protected values, 1 for the others (m,)."""
        return np.where(self.public_parameters.protected, float(Fraction(self.given.manifest.parameters["rho2"])), 1.0)

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,): estimates, as they are not published."""
        records = self.public_parameters.by_value(self.public_parameters.estimated[0])
        return np.asarray(records / records.sum())

    def blocks(self) -> Iterator[Block]:
        """Records of one sub-table; prior c_jx P_j(x, y) over its sum, c estimated. No value excludes another's."""
        order, public = np.argsort(self.record_cells, kind="stable"), self.public_parameters
        counts = np.bincount(public.sub_tables[self.record_cells], minlength=len(public.records))
        ends = np.cumsum(counts)
        for j, size in enumerate(public.domain_sizes.tolist()):
            mine = np.flatnonzero(public.sub_tables == j)
            share = public.estimated[0][mine] / public.records[j]
            moved = share[None, :] * public.perturbation_matrix(j).T  # (m_j perturbed, m_j true)
            moved /= moved.sum(axis=1, keepdims=True)
            members = order[ends[j] - counts[j] : ends[j]]
            step = max(1, CHUNK // size)
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                prior = moved[np.searchsorted(mine, self.record_cells[rows])]
                yield Block(rows[None, :], public.code[mine][None, :], prior[None])

    @property
    def channel(self) -> Channel:
        """The stacked perturbation matrices."""
        return self.public_parameters.channel

    def observe_levels(self, level: Ints) -> Floats:
        """Records of every cell with each level."""
        return count_levels(level, self.record_cells, len(self.public_parameters.sub_tables))


# Writing --------------------------------------------------------------------------------------------------------------

PERTURBING = "Perturbing the sensitive values"


def write_records(db: Relations, source: Records, parts: Ints, subtables: Sequence[SubTable], noise: Shuffler) -> None:
    """``perturbed``, from the records in canonical order and what is drawn for each."""
    known, moves, roles = moves_table(subtables), draw_moves(parts, subtables, noise), source.roles
    source.history.groups = of = known["sub_table"].to_numpy()[moves]
    values = db.arrow(all_rows(temp_table("domain")).order_by("code")).select(list(roles.sa_keys))
    assigned, is_sorted = assign_records(db, source, of, move_codes(parts, known, moves), values)
    holes: Holes = {"assigned": assigned.subquery(), "qi": roles.qi_typed("r"), "sa": roles.sa_typed("r")}
    holes |= {"qi_order": roles.qi_columns("r"), **roles.by_all.alias_holes("sub_table")}
    query = fill("randomize/moved", holes)
    if is_sorted:
        query.set("order", None)
    db.create_table("perturbed", query, into="release", title=PERTURBING)
    db.drop("positions")
    source.drop_relations()


def move_codes(parts: Ints, known: pa.Table, moves: Moves) -> NDArray[np.int32]:
    """The values (n,) of the records by their codes, each moved in the domain of its sub-table; ``parts`` (t, m)."""
    sub_table, code = np.nonzero(parts)
    first = np.searchsorted(sub_table, np.arange(len(parts)))
    cells = np.zeros(parts.shape, dtype=np.int32)
    cells[sub_table, code] = np.arange(len(code))
    of, step, size = (known[name].to_numpy() for name in ("sub_table", "step", "size"))
    codes = np.repeat(np.arange(parts.shape[1], dtype=np.int32), parts.sum(axis=0))
    for begin in range(0, len(codes), BATCH):
        part, drawn = codes[begin : begin + BATCH], moves[begin : begin + BATCH]
        begins = first[of[drawn]]
        places = (cells[of[drawn], part] - begins + step[drawn]) % size[drawn]
        part[:] = code[begins + places]
    return codes


def write_ranked(db: Relations, source: Records, parts: Ints, subtables: Sequence[SubTable], key: Key) -> None:
    """Write the table in portable order: a record's rank has its sub-table, a hash how far its value moves."""
    columns = [*source.roles.qi_columns("r"), column("code", "r")]
    remaining = [*source.roles.qi_keys, "code", "copy"]
    dealing = RankAssignment(db, source, key, RecordParts(np.array(source.counts, dtype=np.int64)), remaining)
    if source.has_ids:
        source.history.groups = dealing.read_numbers(dealing.query_assigned(make_segments(parts), [column("pos", "r")]))
    steps = steps_table(subtables)
    db.register_arrow("steps", steps)
    db.register_arrow("moves", with_begins(moves_table(subtables), steps))
    dealt = dealing.query_assigned(make_segments(parts), [*columns, alias_as(dealing.make_hash("step"), "v")])
    holes: Holes = {
        "dealt": dealt.subquery(),
        "steps": temp_table("steps"),
        "moves": temp_table("moves"),
        "columns": columns,
    }
    written: Holes = {
        "assigned": fill("randomize/stepped", holes).subquery(),
        "moves": temp_table("moves"),
        "cells": temp_table("cells"),
        "qi": source.roles.qi_out("r"),
        "sa": source.roles.sa_out("y"),
        "qi_order": source.roles.qi_columns("r"),
        "same_value": column("code", "x").eq(column("code", "r")),
        **source.roles.by_all.alias_holes("sub_table"),
    }
    db.create_table("perturbed", fill("randomize/perturbed", written), into="release", title=PERTURBING)
    db.drop("steps", "moves")
    dealing.drop_relations()


# Tables ---------------------------------------------------------------------------------------------------------------

FRACTIONS = ("rho1_numerator", "rho1_denominator", "gamma_numerator", "gamma_denominator")
TABLES = {
    "perturbed": ReleaseTable((QUASI, SENSITIVE, "sub_table INTEGER")),
    "privsql_subtables": ReleaseTable(
        ("sub_table INTEGER", "records BIGINT", "size INTEGER", *(f"{name} DECIMAL(38,0)" for name in FRACTIONS))
    ),
    "privsql_domains": ReleaseTable(("cell INTEGER", "sub_table INTEGER", "code INTEGER")),
    "privsql_values": ReleaseTable(("code INTEGER", SENSITIVE, "protected BOOLEAN")),
}


def release_functions(manifest: Manifest) -> IntervalFunctions:
    """Return the functions that count rows of the view with intervals."""
    return IntervalFunctions(skew=RandomizeFacts.model_validate(manifest.facts).skew)


def release_view(manifest: Manifest) -> exp.Query:
    """Return the view whose sums of weights are the estimates of equation 7, with their variance."""
    roles = manifest.roles
    holes: Holes = {
        "perturbed": table("perturbed"),
        "subtables": table("privsql_subtables"),
        "domains": table("privsql_domains"),
        "values": table("privsql_values"),
        "qi": [alias_as(column(f.name, "perturbed"), f.name) for f in roles.quasi_identifiers],
        "sa": [alias_as(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "same_value": same_columns("perturbed", "listed", [f.name for f in roles.sensitive]),
        "perturbed_part": roles.by_all.as_column("sub_table", "perturbed"),
        "listed_code": roles.by_sa.as_column("code", "listed"),
        **roles.by_all.alias_holes("weight", "variance"),
    }
    return fill("randomize/weighted", holes)
