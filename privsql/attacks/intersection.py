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
from sqlglot import exp

from privsql.attacks.finding import Finding
from privsql.engine.sqlfiles import Holes, fill, same, table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.attacks.suite import Several

NAME = "intersection of releases"
KNOWS = "another release of the same people, and the quasi-identifiers of someone who is alone with them in both"


def attack(given: Several) -> list[Finding]:
    """The belief in the best guess for everyone whose quasi-identifiers are unique in both releases.

    Each of them lists the values of its groups in ``st``.
    """
    first, second = given.manifests
    if first.roles != second.roles:
        raise UsageError("--against: the releases have other columns")
    db, databases = given.db, given.databases
    roles = first.roles
    quasi = exp.select(*roles.qi_in(), *roles.by_qi.read("bid"))
    listed = exp.select(*roles.sa_in(), *roles.by_sa.read("bid", "count"))
    tables = {"first": ("qit", quasi, 0), "second": ("qit", quasi, 1)}
    tables |= {"first_st": ("st", listed, 0), "second_st": ("st", listed, 1)}
    holes: Holes = {
        **{key: rows.from_(table(name, databases[i])).subquery() for key, (name, rows, i) in tables.items()},
        "qi": roles.qi(),
        "sa": roles.sa(),
        "same_qi": same("a", "b", roles.qi_keys),
        "same_value": same("s", "t", roles.sa_keys),
        "same_total": same("s", "o", roles.sa_keys),
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
