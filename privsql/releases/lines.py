"""What a person is told of a release that is not open: its manifest, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.engine.roles import Field
    from privsql.model.manifest import Manifest


APART = (
    "a schema of a database; what else that holds is no part of the release, nothing is promised of it, and its "
    "file is not searched for leftovers"
)


def lines(manifest: Manifest) -> list[tuple[str, object]]:
    """Names, and what they stand for."""
    asked = manifest.parameters.items()
    rows: list[tuple[str, object]] = [
        ("name", manifest.name),
        ("mechanism", f"{manifest.mechanism}, {manifest.algorithm}"),
        ("asked for", ", ".join(f"{key} = {value}" for key, value in asked if key not in ("kind", "algorithm"))),
    ]
    if manifest.quasi_identifiers:
        rows.append(("quasi-identifiers", _fields(manifest.quasi_identifiers)))
    rows += [("in bins", f"{name}: {bins}; a value is the first of its bin") for name, bins in manifest.bins.items()]
    rows += [("in groups", f"{name}: {', '.join(groups)}") for name, groups in manifest.groups.items()]
    others = "items" if manifest.roles.hold_sets else "sensitive" if manifest.quasi_identifiers else "columns"
    rows.append((others, _fields(manifest.sensitive)))
    own = ", ".join(
        f"{table}.{called} is its {name}"
        for table, names in manifest.own_columns.items()
        for name, called in names.items()
    )
    rows += [("own columns", f"{own}: the other name is the publisher's")] if own else []
    rows += [("persons", manifest.persons)] if manifest.persons is not None else []
    rows += [("place", APART)] if manifest.place is not None else []
    if manifest.records is not None:
        counts = f"{manifest.published:,} published, {manifest.suppressed:,} suppressed"
        rows.append(("records", f"{manifest.records:,}; {counts}"))
    rows += of(manifest.mechanism).figures(manifest.described())
    rows.append(("randomness", manifest.randomness))
    rows.append(("made by", f"privsql {manifest.privsql}, DuckDB {manifest.duckdb}"))
    return [*rows, *(("together", said) for said in manifest.composition)]


def _fields(fields: Iterable[Field]) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in fields)
