"""The mechanisms by the name that a specification's ``kind`` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.errors import UsageError
from privsql.mechanisms.bucketize import mechanism as bucketize
from privsql.mechanisms.contingency import mechanism as contingency
from privsql.mechanisms.permute import mechanism as permute
from privsql.mechanisms.randomize import mechanism as randomize
from privsql.mechanisms.setvalued import mechanism as setvalued

if TYPE_CHECKING:
    from privsql.mechanisms.contract import Mechanism

MECHANISMS: dict[str, Mechanism] = {
    "bucketize": bucketize,
    "randomize": randomize,
    "permute": permute,
    "setvalued": setvalued,
    "contingency": contingency,
}
RESERVED = {name for made in MECHANISMS.values() for names in made.RESERVED.values() for name in names}


def of(kind: str) -> Mechanism:
    """The mechanism; ``UsageError`` for a kind that this version of privsql does not know."""
    if kind not in MECHANISMS:
        raise UsageError(f"mechanism {kind!r} is not one of {', '.join(MECHANISMS)}")
    return MECHANISMS[kind]
