"""A randomized release for people: what it promises in sentences, and its sub-tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.mechanisms.randomize.public import public
from privsql.model.told import LEARNT, SEVERAL, Structure, Words
from privsql.model.told import structure as part

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.randomize.parameters import Randomize
    from privsql.model.manifest import Manifest

MADE = (
    "Records are put into sub-tables. Every record keeps its sensitive value with a known probability, and otherwise "
    "shows one drawn at random from its sub-table: whatever a record shows can be denied."
)
NOT = (
    "Of values that are too frequent to be protected.",
    "Against people who know the sensitive values of nearly all others of a sub-table, or how many have each.",
    LEARNT,
    "For beliefs in one of several values together.",
    SEVERAL,
    "That somebody is in the table at all, and in which sub-table, is not hidden.",
)


def words(asked: Randomize) -> Words:
    """Restricted (rho1, rho2)-privacy, in sentences."""
    bound = (
        f"Of a value that at most {float(asked.rho1):.3g} of the records have: whoever believed in it, of a person, "
        "no more than its frequency in the sub-table says, believes in it with a probability of at most "
        f"{float(asked.rho2):.3g} once the published record is seen."
    )
    return Words((MADE, bound), NOT)


def structure(db: Relations, _: Manifest) -> list[Structure]:
    """Sub-tables: records, values, and how many of the values are kept."""
    given = public(db)
    rows = [
        (f"sub-table {j}", int(records), int(size), round(float(kept), 4))
        for j, (records, size, kept) in enumerate(zip(given.records, given.sizes, given.retention, strict=True))
    ]
    kept = float(given.retention @ given.records / given.records.sum())
    said = f"On average {kept:.1%} of the values are kept; the others are drawn at random from those of the sub-table."
    return [part("Sub-tables", said, ("sub-table", "records", "different values", "share kept"), rows, 1)]
