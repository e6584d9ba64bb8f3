"""Records as they are written: each in its sub-table, its value moved by what was drawn for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from privsql.engine.database import numbered
from privsql.engine.positions import positions
from privsql.engine.sqlfiles import Holes, column, fill, named, same, temp
from privsql.mechanisms.dealing import Dealing, Parts
from privsql.mechanisms.randomize.draw import begins, drawn, moves_table, segments, steps_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from privsql.engine.database import Relations
    from privsql.mechanisms.randomize.model import Ints, SubTable
    from privsql.model.records import Records
    from privsql.noise import Key, Shuffler


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
