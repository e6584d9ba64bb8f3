"""Publish perturbed records: draw a new value for each record, and write the tables of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.engine.remote import BATCH
from privsql.engine.sqlfiles import BITS, Holes, alias_as, all_rows, column, fill, temp_table
from privsql.mechanisms.assignment import RankAssignment, RecordParts, Segments, assign_records
from privsql.mechanisms.perturb.plan import check_partition, find_partition, state_facts, state_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.perturb.parameters import Randomize, RandomizeFacts
    from privsql.mechanisms.perturb.plan import SubTable
    from privsql.model.records import Records

# Draws ----------------------------------------------------------------------------------------------------------------
# Two things are drawn for every record: its sub-table, and by how many places its value moves in that domain.
#
# In a sub-table of m_j values, a value stays with probability gamma_j/(m_j - 1 + gamma_j), and moves by each of 1, ..,
# m_j - 1 places (cyclically) with probability 1/(m_j - 1 + gamma_j). This is uniform perturbation. For gamma_j = a/b,
# an integer is drawn uniformly from 0..(m_j - 1) b + a - 1. The first a of them leave the value as it is. Nothing is
# rounded.

Ints = NDArray[np.int64]
Moves = np.ndarray[tuple[int], np.dtype[np.int32]]  # (n,) a number for sub-table and step, value by value


def draw_moves(parts: Ints, subtables: Sequence[SubTable], noise: Shuffler) -> Moves:
    """Draw the sub-table of each record, and by how many places its value moves among the values of that sub-table.

    The values of a sub-table form a ring in a fixed order. A record's published value lies the drawn number of places
    after its true value, so 0 places leave it as it is.

    Args:
        parts: The number of records of every value in every sub-table (k, m).
        subtables: The public parameters of the k sub-tables.
        noise: The random numbers.

    Returns:
        A number for each record, value by value (n,), which encodes the sub-table and the places (see ``moves_table``).
    """
    first = _first_numbers(subtables)
    moves = np.empty(int(parts.sum()), dtype=np.int32)
    begin = 0
    for counts in parts.T:
        value_moves = moves[begin : begin + int(counts.sum())]
        start = 0
        for j in np.flatnonzero(counts).tolist():
            end = start + int(counts[j])
            value_moves[start:end] = first[j] + draw_steps(subtables[j], end - start, noise)
            start = end
        if np.count_nonzero(counts) > 1:
            noise.shuffle(value_moves)
        begin += len(value_moves)
    return moves


def draw_steps(subtable: SubTable, records: int, noise: Shuffler) -> Ints:
    """Draw for each record by how many places its value moves in the ring of its sub-table's values (records,).

    The result is 0 if the value stays as it is, and else 1 to size - 1.
    """
    stay, other = subtable.gamma.numerator, subtable.gamma.denominator
    choice = noise.integers(0, subtable.weight, records)
    return np.where(choice < stay, 0, 1 + (choice - stay) // other)


def moves_table(subtables: Sequence[SubTable]) -> pa.Table:
    """Return what each number of ``draw_moves`` stands for, as a table (bid, sub_table, step, size).

    Number ``bid`` says that a record is in ``sub_table``, and that its value moves by ``step`` places in the ring of
    the ``size`` values of this sub-table.
    """
    sizes = np.array([subtable.size for subtable in subtables])
    sub_table: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), sizes)
    step = np.arange(len(sub_table)) - _first_numbers(subtables)[sub_table]
    columns = {"bid": np.arange(len(sub_table)), "sub_table": sub_table, "step": step, "size": sizes[sub_table]}
    return pa.table({name: array.astype(np.int32) for name, array in columns.items()})


def _first_numbers(subtables: Sequence[SubTable]) -> Ints:
    """Return for each sub-table the number in ``moves_table`` for a record of it that keeps its value (k,)."""
    sizes = np.array([subtable.size for subtable in subtables], dtype=np.int64)
    return np.cumsum(sizes) - sizes


# Writing --------------------------------------------------------------------------------------------------------------

PERTURBING = "Perturbing the sensitive values"


def publish_release(db: Relations, source: Records, params: Randomize, key: Key) -> RandomizeFacts:
    """Write table ``perturbed`` and the tables of public parameters into database ``release``, and return the facts."""
    problem = state_problem(source.counts, source.labels, params)
    found = find_partition(problem, params.algorithm, params.objective, source.history.setting)
    source.history.setting = {"labels": found.labels, "optimal": found.optimal}
    subtables, roles = check_partition(problem, found), source.roles
    sub_table, code = np.nonzero(found.parts)
    sizes = (found.parts > 0).sum(axis=1)
    place = np.arange(len(sub_table)) - (np.cumsum(sizes) - sizes)[sub_table]
    columns = {"cell": np.arange(len(sub_table)), "sub_table": sub_table, "code": code, "place": place}
    db.register_arrow("listed", pa.table({name: array.astype(np.int32) for name, array in columns.items()}))
    listed: Holes = {"listed": temp_table("listed"), "domain": temp_table("domain"), "sa": roles.sa_columns("d")}
    db.create_table("cells", fill("randomize/cells", listed))
    if source.order == "portable":
        write_ranked(db, source, found.parts, subtables, key)
    else:
        gammas = [str(subtable.gamma) for subtable in subtables]
        noise = key.random_generator("randomize", found.parts.tolist(), gammas, tuple(source.labels))
        write_records(db, source, found.parts, subtables, noise)
    db.create_table("privsql_domains", fill("randomize/domains", {"cells": temp_table("cells")}), into="release")
    db.register_arrow("flags", pa.table({"code": np.arange(len(problem.counts)), "protected": problem.protected}))
    holes: Holes = {"flags": temp_table("flags"), "domain": temp_table("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.alias_holes("code", "protected")
    db.create_table("privsql_values", fill("randomize/values", holes), into="release")
    stated = {
        "sub_table": np.arange(len(subtables)),
        "records": [one.records for one in subtables],
        "size": [one.size for one in subtables],
        "rho1_numerator": [str(one.rho1.numerator) for one in subtables],
        "rho1_denominator": [str(one.rho1.denominator) for one in subtables],
        "gamma_numerator": [str(one.gamma.numerator) for one in subtables],
        "gamma_denominator": [str(one.gamma.denominator) for one in subtables],
    }
    db.register_arrow("given", pa.table(stated))
    db.create_table("privsql_subtables", fill("randomize/subtables", {"given": temp_table("given")}), into="release")
    db.drop("listed", "cells", "flags", "given")
    return state_facts(problem, found, subtables)


def write_records(db: Relations, source: Records, parts: Ints, subtables: Sequence[SubTable], noise: Shuffler) -> None:
    """Write table ``perturbed``: draw a new value for each record. Rows are sorted by their published contents.

    Args:
        db: The engine that holds the source and the release.
        source: The records.
        parts: The number of records of every value in every sub-table (k, m).
        subtables: The public parameters of the k sub-tables.
        noise: The random numbers.
    """
    known, moves, roles = moves_table(subtables), draw_moves(parts, subtables, noise), source.roles
    of, step, size = (known[name].to_numpy() for name in ("sub_table", "step", "size"))
    # Move each value among the values of its sub-table.
    sub_table, code = np.nonzero(parts)
    first = np.searchsorted(sub_table, np.arange(len(parts)))
    cells = np.zeros(parts.shape, dtype=np.int32)
    cells[sub_table, code] = np.arange(len(code))
    codes = np.repeat(np.arange(parts.shape[1], dtype=np.int32), parts.sum(axis=0))
    for begin in range(0, len(codes), BATCH):
        part, drawn = codes[begin : begin + BATCH], moves[begin : begin + BATCH]
        begins = first[of[drawn]]
        part[:] = code[begins + (cells[of[drawn], part] - begins + step[drawn]) % size[drawn]]
    source.history.groups = groups = of[moves]
    values = db.arrow(all_rows(temp_table("domain")).order_by("code")).select(list(roles.sa_keys))
    assigned, is_sorted = assign_records(db, source, groups, codes, values)
    holes: Holes = {"assigned": assigned.subquery(), "qi": roles.qi_typed("r"), "sa": roles.sa_typed("r")}
    holes |= {"qi_order": roles.qi_columns("r"), **roles.by_all.alias_holes("sub_table")}
    query = fill("randomize/moved", holes)
    if is_sorted:
        query.set("order", None)
    db.create_table("perturbed", query, into="release", title=PERTURBING)
    db.drop("positions")
    source.drop_relations()


def write_ranked(db: Relations, source: Records, parts: Ints, subtables: Sequence[SubTable], key: Key) -> None:
    """Write table ``perturbed`` so that it is the same on every engine: keyed hashes take the place of random numbers.

    Records of one value are ranked by a hash, and the rank decides the sub-table. Another hash decides by how many
    places the value moves in the ring of its sub-table's values. This hash is one of 2^60 equally likely integers. In a
    sub-table of m values, each step from 1 to m - 1 gets ``other`` of them, which is 2^60/(m - 1 + gamma), rounded up.
    Step 0, with which the value stays, gets the rest, ``keep``. So keep/other <= gamma, the amplification.
    """
    roles, line = source.roles, 1 << BITS
    columns = [*roles.qi_columns("r"), column("code", "r")]
    remaining = [*roles.qi_keys, "code", "copy"]
    dealing = RankAssignment(db, source, key, RecordParts(np.array(source.counts, dtype=np.int64)), remaining)
    code, sub_table = np.nonzero(parts.T)
    ends = np.cumsum(parts.T, axis=1)[code, sub_table]
    segments = Segments(code, ends - parts[sub_table, code], ends, sub_table, step=0)
    dealing.store_numbers(segments)
    other = np.array([-(-line * one.gamma.denominator // one.weight) for one in subtables])
    keep = line - (np.array([one.size for one in subtables]) - 1) * other
    db.register_arrow("steps", pa.table({"sub_table": np.arange(len(subtables)), "keep": keep, "other": other}))
    moves = moves_table(subtables)
    of, step = moves["sub_table"].to_numpy(), moves["step"].to_numpy()
    begins = np.where(step == 0, 0, keep[of] + (step - 1) * other[of])
    db.register_arrow("moves", moves.append_column("begin", pa.array(begins)))
    dealt = dealing.query_assigned(segments, [*columns, alias_as(dealing.make_hash("step"), "v")])
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
        "qi": roles.qi_out("r"),
        "sa": roles.sa_out("y"),
        "qi_order": roles.qi_columns("r"),
        "same_value": column("code", "x").eq(column("code", "r")),
        **roles.by_all.alias_holes("sub_table"),
    }
    db.create_table("perturbed", fill("randomize/perturbed", written), into="release", title=PERTURBING)
    db.drop("steps", "moves")
    dealing.drop_relations()
