"""Intersection of releases: what two releases of the same people tell together of who is alone with their
quasi-identifiers in both.

Given that a record has value x, its group in one release says nothing about its group in the other, so with c1, c2 the
counts of x in its two groups and o_x the records with x,

    Pr(x | both groups) is proportional to c1(x) c2(x)/o_x.

Each release keeps its own bound; no bound holds for the product, except where a guarantee covers both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.attacks.finding import Finding
from privsql.engine.sqlfiles import Holes, column, fill, same, table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

NAME = "intersection of releases"
KNOWS = "another release of the same people, and the quasi-identifiers of someone who is alone with them in both"
KINDS = ("bucketize", "permute")  # releases that list the values of groups


def attack(db: Relations, manifests: tuple[Manifest, Manifest], databases: tuple[str, str]) -> list[Finding]:
    """The belief in the best guess for everyone whose quasi-identifiers are unique in both releases."""
    first, second = manifests
    for manifest in manifests:
        if manifest.mechanism not in KINDS:
            raise UsageError(f"--against: a release made by {manifest.mechanism} lists no groups to intersect")
    if first.roles != second.roles:
        raise UsageError("--against: the releases have other columns")
    roles = first.roles
    quasi, sensitive = ([field.name for field in fields] for fields in (roles.quasi_identifiers, roles.sensitive))
    holes: Holes = {
        "first": table("qit", databases[0]),
        "second": table("qit", databases[1]),
        "first_st": table("st", databases[0]),
        "second_st": table("st", databases[1]),
        "qi": [column(name) for name in quasi],
        "sa": [column(name) for name in sensitive],
        "same_qi": same("a", "b", quasi),
        "same_value": same("s", "t", sensitive),
        "same_total": same("s", "o", sensitive),
    }
    rows = db.arrow(fill("attack/intersected", holes))
    people, total, most = (rows[name].to_numpy().astype(np.float64) for name in ("people", "total", "most"))
    attacked = int(people.sum())
    if not attacked:
        return [Finding(NAME, KNOWS, promised=False, attacked=0)]
    beliefs = most / total
    alone = int(people[beliefs > 1 - 1e-12].sum())
    return [
        Finding(
            NAME,
            KNOWS,
            promised=False,
            attacked=attacked,
            mean=float((beliefs * people).sum() / attacked),
            highest=float(beliefs.max()),
            notes=(f"{alone:,} of them have a single value left",),
        )
    ]
