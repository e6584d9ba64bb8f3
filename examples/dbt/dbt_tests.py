"""A plugin of dbt-duckdb: `privsql verify` and `privsql test` as functions that tests of dbt call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbt.adapters.duckdb.plugins import BasePlugin

import privsql

if TYPE_CHECKING:
    import duckdb


class Plugin(BasePlugin):
    """Each function returns a list with one line for each failure; a test of dbt fails where there is one."""

    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        """Make the functions known to the connection from which dbt's come."""

        def verify(release: str, spec: str) -> list[str]:
            found = privsql.verify(release, spec, connection=conn.cursor())
            return [check.name for check in found.checks if not check.ok]

        def test(release: str, file: str) -> list[str]:
            found = privsql.test(release, file, connection=conn.cursor())
            return [] if found else [str(found)]

        for function in (verify, test):
            name = f"privsql_{function.__name__}"
            conn.create_function(name, function, ["VARCHAR", "VARCHAR"], "VARCHAR[]", side_effects=True)
