"""A release of item sets against its source, whatever algorithm made it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import column, fill, temp
from privsql.mechanisms.private import as_asked
from privsql.model.checks import Check

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.setvalued.parameters import SetValued
    from privsql.model.records import Records


def source_checks(db: Relations, stated: SetValued, source: Records, asked: SetValued) -> list[Check]:
    """The checks against the source: of its records a private release tells nothing that could be checked.

    ``stated``: the release's parameters; its universe lies in relation ``v_universe``.
    """
    return [
        Check("parameters are those of the specification", partial(as_asked, stated, asked)),
        Check("the universe is the specification's", partial(_same_universe, db, source)),
    ]


def _same_universe(db: Relations, source: Records) -> list[str]:
    labels = [exp.cast(column("item"), "VARCHAR")]
    rows = db.rows(fill("core/labels", {"domain": temp("v_universe"), "labels": labels}))
    stated = [row[0] for row in rows]
    return [] if stated == list(source.labels) else [f"stated {len(stated)} items, the source has {len(source.labels)}"]
