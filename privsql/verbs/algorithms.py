"""``plan --algorithms``: the algorithms of a mechanism beside each other, for one specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.mechanisms.registry import of
from privsql.source.records import prepared
from privsql.verbs.room import workroom

if TYPE_CHECKING:
    from privsql.engine.progress import Options
    from privsql.mechanisms.alternatives import Alternatives
    from privsql.source.spec import Spec


def algorithms(spec: Spec, *, options: Options | None = None) -> Alternatives:
    """What each algorithm of the mechanism would cost and tell; nothing is written, and no ledger is asked.

    Raises ``UsageError`` where a mechanism's algorithms are not to be compared.
    """
    with workroom(options) as db:
        return of(spec.mechanism.kind).algorithms(db, prepared(db, spec), spec.mechanism)
