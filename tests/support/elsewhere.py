"""Relations of the SQL tests made by another engine, of tables that DuckDB holds and gives over as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import BY_PLACE, PREFIX, all_rows, fill, render_sql, table, temp_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb

    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Hole
    from support.postgres import ServerTables

PLACE = "rowid"  # the number of a row, where a test looks at the order in which rows lie


class Elsewhere:
    """One engine, for all tests of a run."""

    def __init__(self, db: Relations | ServerTables) -> None:
        self._db = db

    def make(self, duck: duckdb.DuckDBPyConnection, name: str, file: str, holes: Mapping[str, Hole]) -> None:
        """Fill a file, run it there, and put what it yields into DuckDB's temporary table ``name``."""
        duck.execute(f"DROP TABLE IF EXISTS temp.{name}")
        tree = fill(file, {key: _stored(duck, key, hole) for key, hole in holes.items()})
        for window in tree.find_all(exp.Window):
            if isinstance(window.this, BY_PLACE) and not window.args.get("order"):
                window.set("order", exp.Order(expressions=[exp.Ordered(this=exp.column(PLACE))]))
        numbered = any(column.name == PLACE for column in tree.find_all(exp.Column))
        moved = list(self._moved(duck, tree, numbered=numbered))
        try:
            made = self._db.arrow(tree)
        finally:
            self._db.drop(*moved)
        duck.register("made_elsewhere", made)
        duck.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM made_elsewhere")
        duck.unregister("made_elsewhere")

    def _moved(self, duck: duckdb.DuckDBPyConnection, tree: exp.Expr, *, numbered: bool) -> Iterator[str]:
        """The names of the tables that a tree reads, each moved over once; the tree reads them there."""
        own = {one.alias for one in tree.find_all(exp.CTE)}
        done = set()
        for one in list(tree.find_all(exp.Table)):
            if one.name in own:
                continue
            bare = exp.Table(this=one.this.copy())
            if one.name not in done:
                data = duck.sql(render_sql(all_rows(bare))).to_arrow_table()
                if numbered:
                    data = data.append_column(PLACE, pa.array(range(data.num_rows), pa.int64()))
                self._db.register_arrow(one.name, data)
                done.add(one.name)
                yield one.name
            there = temp_table(one.name)
            for part in ("this", "catalog"):
                one.set(part, there.args[part])


def _stored(duck: duckdb.DuckDBPyConnection, key: str, hole: Hole) -> Hole:
    """What a test writes for a table, as a table: it is DuckDB's SQL."""
    if not isinstance(hole, exp.Table | exp.Subquery):
        return hole
    duck.execute(f"CREATE OR REPLACE TEMP TABLE {PREFIX}{key} AS {render_sql(exp.select('*').from_(hole))}")
    stored = table(PREFIX + key)
    stored.set("alias", exp.TableAlias(this=exp.to_identifier(hole.alias_or_name)) if hole.alias_or_name else None)
    return stored
