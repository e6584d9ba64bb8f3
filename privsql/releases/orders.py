"""The order of labels whose type has one (ENUM): which of them a release may name, and whether it names just these.

A label that no published record has is nobody's business, so an order lists those that the release shows anyway.
Columns of one type share one list, so that they compare as in the source. Releases whose budget is all that is promised
name none: which labels occur is what they hide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.sqlfiles import column, fill, table
from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

MOST = 1000  # labels of an order


def kept(db: Relations, manifest: Manifest, orders: Mapping[str, Sequence[str]], database: str) -> dict[str, list[str]]:
    """By column the labels that the release's tables show, in the order of the source's type."""
    if not of(manifest.mechanism).states_counts:
        return {}
    found = {}
    for name, labels in orders.items():
        alike = [other for other, own in orders.items() if own == labels]
        shown = _shown(db, manifest, alike, database)
        listed = [label for label in labels if label in shown]
        if listed and len(listed) <= MOST:
            found[name] = listed
    return found


def wrong(db: Relations, manifest: Manifest, database: str) -> list[str]:
    """Labels that an order names and the release does not show, or that it should name."""
    found = []
    for name, labels in manifest.orders.items():
        alike = [other for other, own in manifest.orders.items() if own == labels]
        shown = _shown(db, manifest, alike, database)
        found += [f"orders: {name}: {label!r} is not in the release" for label in labels if label not in shown]
        found += [f"orders: {name}: {label!r} is missing" for label in sorted(shown - set(labels))]
    return found


def otherwise(manifest: Manifest, orders: Mapping[str, Sequence[str]]) -> list[str]:
    """Orders that are not those of the source."""
    return [
        f"orders: {name}"
        for name, labels in manifest.orders.items()
        if labels != [label for label in orders.get(name, ()) if label in set(labels)]
    ]


def _shown(db: Relations, manifest: Manifest, columns: Sequence[str], database: str) -> set[str]:
    """The labels that stand in some columns of the release's tables."""
    found: set[str] = set()
    for name, listed in of(manifest.mechanism).tables(manifest).items():
        for own in [one for one, _ in listed if one in columns]:
            rows = db.rows(fill("verify/different", {"table": table(name, database), "column": column(own)}))
            found |= {row[0] for row in rows}
    return found
