"""``plan --algorithms``: the algorithms of a mechanism beside each other, for one specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.progress import running
from privsql.mechanisms.registry import of
from privsql.releases.ledger.choosing import chosen_for
from privsql.releases.ledger.place import path_of
from privsql.releases.ledger.wish import Wish
from privsql.source.given import apart, specified
from privsql.source.records import prepared
from privsql.verbs.room import workroom

if TYPE_CHECKING:
    from typing import Unpack

    from privsql.mechanisms.alternatives import Alternatives
    from privsql.source.given import Given
    from privsql.source.keywords import Planning


def algorithms(spec: Given, **how: Unpack[Planning]) -> Alternatives:
    """What each algorithm of the mechanism would cost and tell; nothing is written, and no ledger is asked.

    ``spec`` and keywords: as of ``publish``. Raises ``UsageError`` where a mechanism's algorithms are not to be
    compared.
    """
    asked, rest = apart(how)
    whole = specified(spec, asked, verb="algorithms")
    with running(rest, "algorithms") as options, workroom(options) as db:
        choice = chosen_for(db, Wish(whole, path_of(whole)), publishing=False)
        return of(whole.mechanism.kind).algorithms(db, prepared(db, whole, choice=choice), whole.mechanism)
