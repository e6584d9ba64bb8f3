"""Draw, write and read the randomized values of sub-tables, as publishers, analysts and adversaries see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import Channel, Floats, Observation, reconstruct
from privsql.answers.estimate import within
from privsql.attacks.scene import CHUNK, Block, Scene
from privsql.engine.database import numbered
from privsql.engine.remote import positions
from privsql.engine.roles import BITS
from privsql.engine.sqlfiles import Holes, all_rows, column, fill, named, same, table, temp
from privsql.errors import EngineError, GuaranteeError
from privsql.mechanisms.private import Dealing, Parts, Segments
from privsql.model.records import zeros

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.contract import Columns
    from privsql.mechanisms.randomize.partition import SubTable
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# Draws ----------------------------------------------------------------------------------------------------------------
# What is drawn for every record: its sub-table, and by how many places its value moves in that domain.
#
# In a sub-table of m_j values a value keeps its place with probability gamma_j/(m_j - 1 + gamma_j) and moves by 1, ..,
# m_j - 1 places (cyclically) with 1/(m_j - 1 + gamma_j) each: that is uniform perturbation. With gamma_j = a/b the
# choice is one integer uniform on 0..(m_j - 1) b + a - 1, of which the first a stay; nothing is rounded.

Moves = np.ndarray[tuple[int], np.dtype[np.int32]]  # (n,) number of (sub-table, step), records in order of their values


def drawn(parts: Ints, subtables: Sequence[SubTable], noise: Shuffler) -> Moves:
    """Moves (n,) of the records, value by value: which records of a value go to which sub-table is random."""
    first = _first(subtables)
    moves = np.empty(int(parts.sum()), dtype=np.int32)
    begin = 0
    for each_column in parts.T:
        own = moves[begin : begin + int(each_column.sum())]
        start = 0
        for j in np.flatnonzero(each_column).tolist():
            end = start + int(each_column[j])
            own[start:end] = first[j] + steps(subtables[j], end - start, noise)
            start = end
        if np.count_nonzero(each_column) > 1:
            noise.shuffle(own)
        begin += len(own)
    return moves


def steps(subtable: SubTable, records: int, noise: Shuffler) -> Ints:
    """Places (records,) in 0..m_j-1 by which values move."""
    stay, other = subtable.gamma.numerator, subtable.gamma.denominator
    choice = noise.integers(0, subtable.weight, records)
    return np.where(choice < stay, 0, 1 + (choice - stay) // other)


def moves_table(subtables: Sequence[SubTable]) -> pa.Table:
    """(bid, sub_table, step, size): what the numbers of ``drawn`` mean, as 32-bit integers, which sort faster."""
    sizes = np.array([subtable.size for subtable in subtables])
    own: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), sizes)
    step = np.arange(len(own)) - _first(subtables)[own]
    columns = {"bid": np.arange(len(own)), "sub_table": own, "step": step, "size": sizes[own]}
    return pa.table({name: array.astype(np.int32) for name, array in columns.items()})


def segments(parts: Ints) -> Segments:
    """The sub-tables of the ranks of every value; ``parts`` (t, m)."""
    code, own = np.nonzero(parts.T)
    ends = np.cumsum(parts.T, axis=1)[code, own]
    return Segments(code, ends - parts[own, code], ends, own, step=0)


def steps_table(subtables: Sequence[SubTable]) -> pa.Table:
    """(sub_table, keep, other): of 2^60 equally likely integers how many stay, and how many move by each step.

    ``other`` is 2^60/(m_j - 1 + gamma_j), rounded up, and the rest stay: keep/other <= gamma_j.
    """
    line = 1 << BITS
    other = [-(-line * one.gamma.denominator // one.weight) for one in subtables]
    keep = [line - (one.size - 1) * width for one, width in zip(subtables, other, strict=True)]
    return pa.table({"sub_table": np.arange(len(subtables)), "keep": keep, "other": other})


def begins(moves: pa.Table, steps: pa.Table) -> pa.Table:
    """``moves_table`` with where, on the line of ``steps_table``, those that move so begin."""
    own, step = moves["sub_table"].to_numpy(), moves["step"].to_numpy()
    keep, other = (steps[name].to_numpy()[own] for name in ("keep", "other"))
    return moves.append_column("begin", pa.array(np.where(step == 0, 0, keep + (step - 1) * other)))


def _first(subtables: Sequence[SubTable]) -> Ints:
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
TABLES = (table("privsql_subtables"), table("privsql_domains"), table("privsql_values"))


@dataclass(frozen=True)
class Public:
    """``records`` |T_j|, ``gamma``, ``rho1`` (k,); ``own`` (cells,) sub-table and ``code`` (cells,) value of each cell;
    ``protected`` (m,); ``totals`` (cells,) published records of each cell.
    """

    records: Ints
    gamma: Floats
    rho1: Floats
    own: Ints
    code: Ints
    protected: NDArray[np.bool_]
    totals: Floats

    def seen(self, rows: pa.Table) -> Public:
        """With the totals of ``sql/randomize/observed.sql`` (place, pairs)."""
        totals = np.bincount(rows["place"].to_numpy(), rows["pairs"].to_numpy(), minlength=len(self.own))
        return replace(self, totals=totals.astype(np.float64))

    @cached_property
    def sizes(self) -> Ints:
        """m_j (k,)."""
        return np.bincount(self.own, minlength=len(self.records))

    @property
    def retention(self) -> Floats:
        """p_j (k,)."""
        return np.asarray((self.gamma - 1) / (self.sizes - 1 + self.gamma))

    @property
    def replacement(self) -> Floats:
        """q_j (k,)."""
        return np.asarray(1 / (self.sizes - 1 + self.gamma))

    @cached_property
    def most(self) -> Floats:
        """Records that each cell can have at most (cells,): rho1_j |T_j| if protected, else what the others leave."""
        ceiling = np.rint(self.rho1 * self.records)[self.own]
        others = (self.records - self.sizes + 1)[self.own]
        return np.asarray(np.where(self.protected[self.code], np.minimum(ceiling, others), others).astype(np.float64))

    @cached_property
    def least(self) -> Floats:
        """Records that each cell has at least (cells,): 1, or what the others can't hold."""
        held = np.bincount(self.own, self.most)[self.own] - self.most
        return np.maximum(self.records[self.own] - held, 1)

    def by_value(self, cells: Floats) -> Floats:
        """Sums over the sub-tables (m,)."""
        return np.asarray(np.bincount(self.code, cells, minlength=len(self.protected)))

    def perturbation(self, j: int) -> Floats:
        """P_j (m_j, m_j): q_j everywhere and p_j more on the diagonal."""
        size = int(self.sizes[j])
        return np.asarray(np.eye(size) * self.retention[j] + self.replacement[j])

    @cached_property
    def estimated(self) -> tuple[Floats, Floats]:
        """Estimates of c (cells,) and their standard errors, at most half of the range in which c must lie."""
        values, errors = np.zeros(len(self.own)), np.zeros(len(self.own))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.own == j)
            matrix, total = self.perturbation(j), np.array([float(self.records[j])])
            flat = np.full(len(cells), total[0] / len(cells))
            channel = Channel(matrix, np.diag(flat @ matrix), flat)
            seen = Observation(self.totals[cells][None], total, total, total, np.ones(1))
            found = reconstruct(channel, seen, np.eye(len(cells)))
            values[cells] = within(found.values, total, self.most[cells][None], flat)[0]
            errors[cells] = found.std_error[0]
        return np.maximum(values, self.least), np.minimum(errors, (self.most - self.least) / 2)

    @cached_property
    def channel(self) -> Channel:
        """M (m, cells), S and the estimated o (m,)."""
        counts = np.maximum(self.estimated[0], 1e-6)
        records = self.by_value(counts)
        mean = zeros(len(records), len(counts))
        for j in range(len(self.records)):
            cells = np.flatnonzero(self.own == j)
            share = counts[cells] / records[self.code[cells]]
            mean[np.ix_(self.code[cells], cells)] = share[:, None] * self.perturbation(j)
        return Channel(mean, np.diag(records @ mean), records)


def public(db: Relations, named: Sequence[exp.Table] = TABLES) -> Public:
    """The parameters of an open release, its totals still 0; ``named``: where its tables are.

    ``EngineError`` unless these are parameters: nothing is computed from others.
    """
    subtables, listed, coded = (db.rows(_ordered(relation)) for relation in named)
    _must(all(None not in row for rows in (subtables, listed) for row in rows), "an entry is NULL")
    _must([row[0] for row in subtables] == list(range(len(subtables))), "sub-tables are not numbered 0, 1, ..")
    _must([row[0] for row in listed] == list(range(len(listed))), "cells are not numbered 0, 1, ..")
    _must([row[0] for row in coded] == list(range(len(coded))), "values are not numbered 0, 1, ..")
    _must(all(0 <= own < len(subtables) for _, own, _ in listed), "a cell is in no sub-table")
    _must({own for _, own, _ in listed} == set(range(len(subtables))), "a sub-table has no cells")
    _must(all(0 <= code < len(coded) for _, _, code in listed), "a cell has no value")
    _must(len({(own, code) for _, own, code in listed}) == len(listed), "a sub-table has a value twice")
    _must(all(row[-1] is not None for row in coded), "a value is neither protected nor not")
    _must(all(row[1] > 0 and row[4] > 0 and row[6] > 0 for row in subtables), "a number is not positive")
    gamma = [float(Fraction(int(row[5]), int(row[6]))) for row in subtables]
    rho1 = [float(Fraction(int(row[3]), int(row[4]))) for row in subtables]
    _must(all(value > 1 for value in gamma), "a gamma is not above 1")
    _must(all(0 < value < 1 for value in rho1), "a rho1 is not between 0 and 1")
    cells = np.array(listed, dtype=np.int64)
    return Public(
        np.array([row[1] for row in subtables], dtype=np.int64),
        np.array(gamma),
        np.array(rho1),
        cells[:, 1],
        cells[:, 2],
        np.array([bool(row[-1]) for row in coded]),
        np.zeros(len(cells)),
    )


def _ordered(relation: exp.Table) -> exp.Query:
    return all_rows(relation).order_by(exp.Literal.number(1))


def _must(holds: bool, wrong: str) -> None:
    if not holds:
        raise EngineError(f"the release's parameters are damaged: {wrong}")


# The adversaries' view ------------------------------------------------------------------------------------------------
# A randomized release as an adversary sees it: perturbed records in sub-tables with known matrices.


class Perturbed(Scene):
    """The perturbed table, and the public parameters of its sub-tables."""

    records, part, independent = "perturbed", "sub_table", True
    stated = ("protected",)
    made = ("a_rows", "a_chosen")

    def _more(self) -> list[str]:
        return list(self.roles.sa_keys)

    def excess(self) -> float:
        """Share of the records in sub-tables whose stated parameters allow a posterior above rho2."""
        rho2 = Fraction(self.given.manifest.parameters["rho2"])
        found = []
        for row in self.all("privsql_subtables").to_pylist():
            rho1 = Fraction(int(row["rho1_numerator"]), int(row["rho1_denominator"]))
            gamma = Fraction(int(row["gamma_numerator"]), int(row["gamma_denominator"]))
            if gamma * rho1 > rho2 * (gamma * rho1 + 1 - rho1):
                found.append(int(row["sub_table"]))
        return float(np.isin(self.parts, found).mean())

    def ordered(self) -> dict[str, tuple[exp.Table, list[str]]]:
        """The perturbed table."""
        return {self.records: (temp("a_records"), ["part", *self.roles.qi_keys, *self.roles.sa_keys])}

    @property
    def numbered(self) -> list[Ints]:
        """None: a sub-table's number says which values are in it."""
        return []

    @property
    def paired(self) -> bool:
        """Every record stands beside its own perturbed value."""
        return False

    def _filter(self) -> exp.Expr:
        """Every k-th record as stored, so that all sub-tables and quasi-identifiers have their share of a sample."""
        given = self.given
        if given.sample is None or given.sample >= given.manifest.published_records:
            return exp.true()
        step = -(-given.manifest.published_records // given.sample)
        self.db.put("a_chosen", pa.table({"pos": np.arange(0, given.manifest.published_records, step)}))
        return exp.In(this=column("pos"), query=exp.select("pos").from_(temp("a_chosen")).subquery())

    @cached_property
    def cells(self) -> Ints:
        """Sub-table and perturbed value of every record as one number (n,)."""
        domains = exp.select("*").from_(table("privsql_domains", self.given.database)).subquery()
        stated: Holes = {"domains": domains, "values": temp("a_values"), "sa": self.roles.sa("v")}
        self.db.view("a_cells", fill("randomize/cells_stated", stated))
        holes: Holes = {
            "rows": temp("a_rows"),
            "cells": temp("a_cells"),
            "same_value": same("r", "c", self.roles.sa_keys),
        }
        found = self.db.arrow(fill("attack/cells", holes))["cell"].to_numpy().astype(np.int64)
        if len(found) != len(self.parts):
            raise GuaranteeError("perturbed values do not belong to the stated domains; verify the release")
        return np.asarray(found)

    @cached_property
    def public(self) -> Public:
        """Parameters and counts of the cells."""
        named = [table(name, self.given.database) for name in ("privsql_subtables", "privsql_domains")]
        stated = public(self.db, (*named, temp("a_values")))
        totals = np.bincount(self.cells, minlength=len(stated.own)).astype(np.float64)
        whole = stated.records / np.maximum(np.bincount(stated.own, totals, minlength=len(stated.records)), 1)
        return replace(stated, totals=totals * whole[stated.own])  # of a sample: scaled up

    @cached_property
    def bounds(self) -> Floats:
        """Rho2 for protected values, 1 for the others (m,)."""
        return np.where(self.public.protected, float(Fraction(self.given.manifest.parameters["rho2"])), 1.0)

    @cached_property
    def shares(self) -> Floats:
        """Frequencies (m,): estimates, as they are not published."""
        records = self.public.by_value(self.public.estimated[0])
        return np.asarray(records / records.sum())

    def blocks(self) -> Iterator[Block]:
        """Records of one sub-table; prior c_jx P_j(x, y) over its sum, c estimated. No value excludes another's."""
        order = np.argsort(self.cells, kind="stable")
        counts = np.bincount(self.public.own[self.cells], minlength=len(self.public.records))
        ends = np.cumsum(counts)
        for j, size in enumerate(self.public.sizes.tolist()):
            mine = np.flatnonzero(self.public.own == j)
            share = self.public.estimated[0][mine] / self.public.records[j]
            moved = share[None, :] * self.public.perturbation(j).T  # (m_j perturbed, m_j true)
            moved /= moved.sum(axis=1, keepdims=True)
            members = order[ends[j] - counts[j] : ends[j]]
            step = max(1, CHUNK // size)
            for start in range(0, len(members), step):
                rows = members[start : start + step]
                prior = moved[np.searchsorted(mine, self.cells[rows])]
                yield Block(rows[None, :], self.public.code[mine][None, :], prior[None])

    @property
    def channel(self) -> Channel:
        """The stacked perturbation matrices."""
        return self.public.channel

    def seen(self, level: Ints) -> Floats:
        """Records of every cell with each level."""
        number, levels = len(self.public.own), int(level.max()) + 1
        counted = np.bincount(level * number + self.cells, minlength=levels * number)
        return counted.reshape(levels, number).astype(np.float64)


# Writing --------------------------------------------------------------------------------------------------------------
# Records as they are written: each in its sub-table, its value moved by what was drawn for it.


def write_records(db: Relations, source: Records, parts: Ints, subtables: Sequence[SubTable], noise: Shuffler) -> None:
    """``perturbed``, from the records in canonical order and what is drawn for each."""
    with ThreadPoolExecutor(1) as beside:  # numpy and the engine use different cores
        moves = beside.submit(drawn, parts, subtables, noise)
        source.sort()
        db.put("positions", positions(moves.result()))
    known = moves_table(subtables)
    source.history.groups = known["sub_table"].to_numpy()[moves.result()]
    db.put("moves", known)
    assigned = numbered(db).matched(temp("records"), temp("positions"))
    _write(db, source, assigned, same("x", "r", source.roles.sa_keys))
    db.drop("positions")
    source.done()


def write_ranked(db: Relations, source: Records, parts: Ints, subtables: Sequence[SubTable], key: Key) -> None:
    """The same in the portable order: a record's rank has its sub-table, a hash of its own how far its value moves."""
    columns = [*source.roles.qi("r"), column("code", "r")]
    kept = [*source.roles.qi_keys, "code", "copy"]
    dealing = Dealing(db, source, key, Parts(np.array(source.counts, dtype=np.int64)), kept)
    if source.has_ids:
        source.history.groups = dealing.numbers(dealing.dealt(segments(parts), [column("pos", "r")]))
    steps = steps_table(subtables)
    db.put("steps", steps)
    db.put("moves", begins(moves_table(subtables), steps))
    dealt = dealing.dealt(segments(parts), [*columns, named(dealing.hash("step"), "v")])
    holes: Holes = {"dealt": dealt.subquery(), "steps": temp("steps"), "moves": temp("moves"), "columns": columns}
    _write(db, source, fill("randomize/stepped", holes), column("code", "x").eq(column("code", "r")))
    db.drop("steps")
    dealing.done()


def _write(db: Relations, source: Records, assigned: exp.Query, same_value: exp.Expr) -> None:
    roles = source.roles
    holes: Holes = {
        "assigned": assigned.subquery(),
        "moves": temp("moves"),
        "cells": temp("cells"),
        "qi": roles.qi_out("r"),
        "sa": roles.sa_out("y"),
        "qi_order": roles.qi("r"),
        "same_value": same_value,
        **roles.by_all.names("sub_table"),
    }
    db.make("perturbed", fill("randomize/perturbed", holes), into="release", title="Perturbing the sensitive values")
    db.drop("moves")


# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a randomized release: their columns, and its weighted view.

FRACTIONS = ("rho1_numerator", "rho1_denominator", "gamma_numerator", "gamma_denominator")


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    roles, own = manifest.roles, manifest.roles.by_sa
    sensitive = [(f.name, f.type) for f in roles.sensitive]
    quasi = [(f.name, f.type) for f in roles.quasi_identifiers]
    return {
        "perturbed": [*quasi, *sensitive, *roles.by_all.typed(("sub_table", "INTEGER"))],
        "privsql_subtables": [
            ("sub_table", "INTEGER"),
            ("records", "BIGINT"),
            ("size", "INTEGER"),
            *((name, "DECIMAL(38,0)") for name in FRACTIONS),
        ],
        "privsql_domains": [("cell", "INTEGER"), ("sub_table", "INTEGER"), ("code", "INTEGER")],
        "privsql_values": [*own.typed(("code", "INTEGER")), *sensitive, *own.typed(("protected", "BOOLEAN"))],
    }


def view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the estimates of equation 7."""
    roles = manifest.roles
    holes: Holes = {
        "perturbed": table("perturbed"),
        "subtables": table("privsql_subtables"),
        "domains": table("privsql_domains"),
        "values": table("privsql_values"),
        "qi": [named(column(f.name, "perturbed"), f.name) for f in roles.quasi_identifiers],
        "sa": [named(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "same_value": same("perturbed", "listed", [f.name for f in roles.sensitive]),
        "perturbed_part": roles.by_all.column("sub_table", "perturbed"),
        "listed_code": roles.by_sa.column("code", "listed"),
        **roles.by_all.names("weight"),
    }
    return fill("randomize/weighted", holes)
