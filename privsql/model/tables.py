"""The layout of a release's tables, as data."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from privsql.engine.sqlfiles import (
    ReservedColumns,
    Roles,
    alias_as,
    column,
)

QUASI, SENSITIVE, SETS = "quasi-identifiers", "sensitive columns", "items LIST"  # stand for the publisher's columns


@dataclass(frozen=True)
class ReleaseTable:
    """The layout of one table of a release.

    Attributes:
        columns: The columns in order. A column that privsql adds is written ``name TYPE``; the types LIST and ITEM
            stand for the types of an item set and of an item. ``QUASI``, ``SENSITIVE`` or ``SETS`` stands for all of
            the publisher's columns with that role.
        view: The name under which checks read the table; None for the table's own name.
    """

    columns: tuple[str, ...]
    view: str | None = None

    def place_columns(self, roles: Roles) -> list[tuple[str, str, str]]:
        """Return (name in privsql's code, such as q0; name in the release; type) of every column, in order."""
        groups = {
            QUASI: zip(roles.qi_keys, roles.quasi_identifiers, strict=True),
            SENSITIVE: zip(roles.sa_keys, roles.sensitive, strict=True),
            SETS: [("items", one) for one in roles.sensitive[:1]],
        }
        publishers = {text: list(groups[text]) for text in self.columns if text in groups}
        reserved = ReservedColumns(tuple(one for pairs in publishers.values() for _, one in pairs))
        kind = roles.sensitive[0].type if roles.sensitive else ""
        placed = []
        for text in self.columns:
            if text in publishers:
                placed += [(key, one.name, one.type) for key, one in publishers[text]]
            else:
                name, own = text.split(" ", 1)
                placed.append((name, reserved.column_name(name), kind[:-2] if own == "ITEM" else own))
        return placed

    def list_reserved(self, roles: Roles) -> list[tuple[str, str, str]]:
        """Return (name in privsql's code, name in the release, type) of the columns that privsql adds to the table."""
        keys = {*roles.qi_keys, *roles.sa_keys, "items"}
        return [one for one in self.place_columns(roles) if one[0] not in keys]

    def select_inside(self, roles: Roles, rows: exp.Table) -> exp.Select:
        """Return a query for the rows of a published table, with columns named as in privsql's code, such as q0."""
        return exp.select(*(alias_as(column(name), inside) for inside, name, _ in self.place_columns(roles))).from_(
            rows
        )


Tables = dict[str, ReleaseTable]
