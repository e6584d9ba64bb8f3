"""The columns of privsql's own in the tables and the view of a release, and how they are called there.

Where a column of the publisher's in the same table has its name (ASCII letters in either case are the same), privsql's
gives way: an underscore is appended, as often as needed. Nothing chooses a name, so a manifest can't choose one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.roles import Field
from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from privsql.model.manifest import Manifest

Table = list[tuple[str, str, str]]  # (name inside, name in the table, type) of each column


def own_columns(manifest: Manifest) -> dict[str, Table]:
    """Privsql's own columns of every table."""
    apart, mechanism = _apart(manifest), of(manifest.mechanism)
    others = {field.name for field in (*apart.quasi_identifiers, *apart.sensitive)}
    inside = mechanism.tables(apart)
    return {
        table: [
            (own, called, kind)
            for (own, _), (called, kind) in zip(inside[table], columns, strict=True)
            if own not in others
        ]
        for table, columns in mechanism.tables(manifest).items()
    }


def gave_way(manifest: Manifest) -> dict[str, dict[str, str]]:
    """By table or view, the own columns that are called otherwise: name inside -> name there."""
    found = {
        table: {own: called for own, called, _ in columns if own != called}
        for table, columns in own_columns(manifest).items()
    }
    view = of(manifest.mechanism).view
    names = zip(view(_apart(manifest)).named_selects, view(manifest).named_selects, strict=True)
    others = {field.name for field in (*_apart(manifest).quasi_identifiers, *_apart(manifest).sensitive)}
    found[manifest.name] = {own: called for own, called in names if own not in others and own != called}
    return {table: names for table, names in found.items() if names}


def _apart(manifest: Manifest) -> Manifest:
    """The same with columns of the publisher's under names that are nobody's."""
    numbers = iter(range(len(manifest.quasi_identifiers) + len(manifest.sensitive)))
    roles = ("quasi_identifiers", "sensitive")
    return manifest.model_copy(
        update={role: [Field(f"column {next(numbers)}", one.type) for one in getattr(manifest, role)] for role in roles}
    )
