"""A release that becomes a schema of a database, which may hold anything else: in one transaction, or not at all.

It is made, and passes its checks, in a file of its own in a draft's folder. What is copied is compared with it before
the transaction ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.folders import private
from privsql.engine.open import scratch
from privsql.errors import EngineError, UsageError
from privsql.releases.copies import MADE, copy_tables, list_relations
from privsql.releases.draft import Draft
from privsql.releases.identity import MAIN, exists, schema_of
from privsql.releases.opened import inspect
from privsql.source.address import parted

if TYPE_CHECKING:
    from pathlib import Path
HOUSE = "house"


class Housed(Draft):
    """A draft of a release that goes into a schema, of a database that is settled."""

    def commit(self, made: Path) -> None:
        """Copy the release in database file ``made`` into its schema; a failure leaves what was there.

        Raises ``UsageError`` if something else lies there by now, ``EngineError`` on trouble, ``GuaranteeError`` if
        what was copied is not what was checked.
        """
        file, asked = parted(self.target)
        schema = asked or MAIN
        manifest = inspect(made)
        former = list_relations(inspect(self.target)) if self._replace and exists(self.target) else []
        new = not file.exists()
        with scratch() as db:
            db.attach(made, MADE, read_only=True)
            db.attach(file, HOUSE, read_only=False)
            place = (HOUSE, schema_of(db, HOUSE, schema) or schema)
            try:
                copy_tables(db, manifest, place, former)
            except UsageError as error:
                raise UsageError(f"{self.target}: {error}; nothing written") from error
            db.detach(HOUSE)
        if new:
            file.chmod(private.spare(0o644))


def settle(target: Path) -> None:
    """Let a killed process's last transaction, if it was whole, be part of the publisher's database.

    ``EngineError`` for one that is open elsewhere, or no database.
    """
    file, schema = parted(target)
    if schema is None or not file.exists():
        return
    try:
        with scratch() as db:
            db.attach(file, HOUSE, read_only=False)
            db.detach(HOUSE)
    except UsageError as error:
        raise EngineError(f"{file}: {error}") from error
