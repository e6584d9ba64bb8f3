"""``ledger``: what the publisher's ledger holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.releases import ledger as ledgers

if TYPE_CHECKING:
    from privsql.source.spec import Spec


def ledger(spec: Spec) -> list[ledgers.Entry]:
    """What the ledger of a source holds, oldest release first; ``UsageError`` if there is none."""
    return ledgers.listed(spec)
