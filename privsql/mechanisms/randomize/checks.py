"""The checks of a randomized release. They share nothing with the search: only the published tables, the manifest's
claims, SQL, exact fractions, and tests of a stated significance. Only what a manifest says of the search itself is
compared with another run of it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import isclose, log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine.names import label
from privsql.engine.sqlfiles import Holes, column, fill, same, table, temp
from privsql.errors import UsageError
from privsql.exact import text
from privsql.mechanisms.contract import stated
from privsql.mechanisms.randomize import search
from privsql.mechanisms.randomize.agreement import SIGNIFICANCE, deviation, improbable, possible
from privsql.mechanisms.randomize.likelihood import Ratio, ratio
from privsql.mechanisms.randomize.parameters import Facts, Randomize
from privsql.mechanisms.randomize.public import Public, public
from privsql.mechanisms.randomize.tables import FRACTIONS
from privsql.model.checks import Check, Promised, as_asked, differ, in_order, tally

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

SQL: tuple[str, ...] = ("core/", "randomize/", "verify/")


def read(manifest: Manifest) -> Randomize:
    """The parameters of a release; ``UsageError`` if these or its facts are not what a randomized release states."""
    return stated(manifest, Facts, Randomize, "partition")


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles = manifest.roles
    _name_tables(db, manifest, database)
    perturbed, subtables, domains = temp("v_perturbed"), temp("v_subtables"), temp("v_domains")
    values, cells = temp("v_values"), temp("v_cells")
    stated: Holes = {"perturbed": perturbed, "subtables": subtables, "domains": domains, "values": values}
    outside: Holes = {
        "perturbed": perturbed,
        "cells": cells,
        "sa": roles.sa("p"),
        "same_value": same("p", "c", roles.sa_keys),
    }
    return [
        Check("every sub-table keeps posteriors within rho2", lambda: _posteriors(db, manifest)),
        Check("sub-tables hold the stated records and values", fill("verify/subtables_true", stated)),
        Check("perturbed values belong to their domains", fill("verify/outside_domain", outside)),
        Check(
            "domains hold the listed values, and all of them",
            fill("verify/domains_known", {"domains": domains, "values": values}),
        ),
        Check("values are numbered in canonical order", _ranked(values, "code", roles.sa())),
        Check("cells are numbered in canonical order", _ranked(domains, "cell", [column("sub_table"), column("code")])),
        Check("sub-tables are numbered in order", _ranked(subtables, "sub_table", [column("sub_table")])),
        Check("the values' rows lie in order", in_order(values, ["code"], strict=True)),
        Check("the domains' rows lie in order, once each", in_order(domains, ["sub_table", "code"], strict=True)),
        Check("the sub-tables' rows lie in order", in_order(subtables, ["sub_table"], strict=True)),
        Check(
            "perturbed rows lie in canonical order",
            in_order(perturbed, ["sub_table", *roles.qi_keys, *roles.sa_keys], strict=False),
        ),
        Check(
            f"published frequencies are possible under the stated matrices (significance {SIGNIFICANCE:g})",
            lambda: improbable(_public(db)),
        ),
        Check("bound, retention and records are as stated", lambda: _claims(db, manifest)),
    ]


def _name_tables(db: Relations, manifest: Manifest, database: str | None) -> None:
    """Give the release's tables internal names: v_perturbed, v_subtables, v_domains, v_values, with v_cells."""
    roles = manifest.roles
    own = exp.select(*roles.qi_in(), *roles.sa_in(), *roles.by_all.read("sub_table"))
    db.view("v_perturbed", own.from_(table("perturbed", database)))
    db.view("v_subtables", exp.select("*").from_(table("privsql_subtables", database)))
    db.view("v_domains", exp.select("*").from_(table("privsql_domains", database)))
    listed = exp.select(*roles.by_sa.read("code"), *roles.sa_in(), *roles.by_sa.read("protected"))
    db.view("v_values", listed.from_(table("privsql_values", database)))
    holes: Holes = {"domains": temp("v_domains"), "values": temp("v_values"), "sa": roles.sa("v")}
    db.view("v_cells", fill("randomize/cells_stated", holes))


def bounds(db: Relations, manifest: Manifest) -> list[Promised]:
    """Of every protected value what belief in it may reach, and what it does with the largest stated prior."""
    rho2, stated = read(manifest).rho2, _public(db)
    highest = {j: gamma * rho1 / (gamma * rho1 + 1 - rho1) for j, _, _, rho1, gamma in _stated(db)}
    labels = [exp.cast(item, "VARCHAR") for item in manifest.roles.sa()]
    rows = db.rows(exp.select(*labels, column("protected")).from_(temp("v_values")).order_by("code"))
    found = []
    for code, (*shown, protected) in enumerate(rows):
        reached = max(highest[int(j)] for j in stated.own[stated.code == code])
        known = (text(rho2), text(reached)) if protected else ("none: not protected", "-")
        found.append(Promised(label(shown), *known))
    return found


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: Randomize) -> list[Check]:
    """The checks against the source, prepared as ``records``, after ``checks`` has named the release's tables."""
    roles = manifest.roles
    quasi = differ(roles.qi(), tally(temp("records"), roles.qi()), tally(temp("v_perturbed"), roles.qi()))
    return [
        Check("parameters are those of the specification", lambda: as_asked(read(manifest), asked)),
        Check("the partition is the specification's", lambda: _partition(manifest, source, asked)),
        Check("bound and retention of the whole table are as stated", lambda: _whole(manifest, source, asked)),
        Check("sensitive values and who is protected are the source's", lambda: _values(db, source, asked)),
        Check("quasi-identifiers are the source's", quasi),
        Check("the source's values fit the stated sub-tables", lambda: _spread(db, source)),
        Check(
            f"perturbed frequencies agree with the stated matrices (chi-square, significance {SIGNIFICANCE:g})",
            lambda: _agreement(db, manifest),
        ),
        _likelihood(db, manifest),
    ]


def _likelihood(db: Relations, manifest: Manifest) -> Check:
    """That published values go with the source's, by the stated matrices."""
    keys = manifest.roles
    holes: Holes = {
        "records": temp("records"),
        "perturbed": temp("v_perturbed"),
        "values": temp("v_values"),
        "qi": keys.qi("r"),
        "same_value": same("r", "v", keys.sa_keys),
        "same_qi": same("p", "k", keys.qi_keys),
        "same_seen": same("p", "y", keys.sa_keys),
    }

    @cache
    def found() -> Ratio:
        columns = db.arrow(fill("verify/pinned", holes)).columns
        return ratio(_public(db), *(one.to_numpy().astype(np.int64) for one in columns))

    name = "values go with quasi-identifiers as in the source, by the stated matrices"
    strange = "records of the source are in sub-tables that do not have their value"
    return Check(
        f"{name} (likelihood ratio, significance {SIGNIFICANCE:g})",
        lambda: [] if found().holds else [str(found()), *([strange] if found().strangers else [])],
        lambda: str(found()) if found().holds else "",
    )


def _ranked(relation: exp.Table, number: str, order: list[exp.Expr]) -> exp.Query:
    return fill("verify/ranks_true", {"table": relation, "number": column(number), "order": order})


Row = tuple[int, int, int, Fraction, Fraction]  # sub_table, |T_j|, m_j, rho1_j, gamma_j


def _stated(db: Relations) -> list[Row]:
    """The public parameters as exact numbers; ``UsageError`` if one is missing or no fraction."""
    listed = exp.select("sub_table", "records", "size", *FRACTIONS).from_(temp("v_subtables")).order_by("sub_table")
    rows = db.rows(listed)
    if any(part is None for row in rows for part in row) or any(row[4] <= 0 or row[6] <= 0 for row in rows):
        raise UsageError("a parameter of a sub-table is missing or no fraction")
    return [
        (int(j), int(n), int(m), Fraction(int(a), int(b)), Fraction(int(c), int(d))) for j, n, m, a, b, c, d in rows
    ]


def _posteriors(db: Relations, manifest: Manifest) -> list[str]:
    """Sub-tables in which a protected value with the stated largest prior would get a posterior above rho2.

    Posterior of x after Y = x: gamma f/(gamma f + 1 - f), increasing in f, so f = rho1_j is the worst prior; any other
    y gives less. The amplification bound gamma_j <= rho2 (1 - rho1_j)/(rho1_j (1 - rho2)) says the same.
    """
    rho2, wrong = read(manifest).rho2, []
    for j, records, _, rho1, gamma in _stated(db):
        held = rho1 * records
        if not (0 < rho1 < rho2 and gamma > 1 and held.denominator == 1):
            wrong.append(f"sub-table {j}: rho1 {rho1}, gamma {gamma} are no parameters for rho2 {rho2}")
        elif gamma * rho1 / (gamma * rho1 + 1 - rho1) > rho2:
            wrong.append(f"sub-table {j}: gamma {gamma} lets a prior of {rho1} exceed {rho2}")
    return wrong


def _public(db: Relations, condition: exp.Expr | None = None) -> Public:
    """The parameters, with the published records of every cell that meet a condition."""
    stated = public(db, (temp("v_subtables"), temp("v_domains"), temp("v_values")))
    return stated.seen(db.arrow(_seen(db, condition)))


def _claims(db: Relations, manifest: Manifest) -> list[str]:
    """Arithmetic of the manifest: records, number of sub-tables, bound and retention."""
    facts, asked, rows = manifest.facts, read(manifest), _stated(db)
    _public(db)  # what follows divides by these numbers
    n = sum(records for _, records, _, _, _ in rows)
    scale = 2 * sqrt(log(2 / float(asked.delta)))
    bound = sum(sqrt(t) / n * scale * (m / (float(gamma) - 1) + 1) for _, t, m, _, gamma in rows)
    retention = sum(t * (gamma - 1) / (m - 1 + gamma) for _, t, m, _, gamma in rows) / n
    up = manifest.algorithm == "up"
    claims = {
        f"published {manifest.published}, but the sub-tables hold {n}": manifest.published == n,
        f"records {manifest.records} = published + suppressed": manifest.records == n + (manifest.suppressed or 0),
        f"{facts['subtables']} sub-tables, but {len(rows)} are listed": facts["subtables"] == len(rows),
        f"{facts['groups']} groups make {len(rows)} sub-tables": facts["groups"] >= len(rows),
        f"bound {facts['bound']}": isclose(facts["bound"], bound, rel_tol=1e-9),
        f"bound {facts['bound']} exceeds that of the whole table": facts["bound"] <= facts["bound_up"] * (1 + 1e-12),
        f"retention {facts['retention']}": isclose(facts["retention"], float(retention), rel_tol=1e-9),
        "algorithm up has one sub-table, and its bound is that of the whole table": not up
        or (len(rows), facts["bound"], facts["retention"]) == (1, facts["bound_up"], facts["retention_up"]),
        f"algorithm {manifest.algorithm}": manifest.algorithm == asked.algorithm,
    }
    return [wrong for wrong, holds in claims.items() if not holds]


def _partition(manifest: Manifest, source: Records, asked: Randomize) -> list[str]:
    """Groups of the partition, and whether it is the optimum: what another run of the search says of the source."""
    found = search.find(search.problem(source.counts, source.labels, asked), asked.algorithm, asked.objective)
    pairs = {"groups": found.groups, "optimal": found.optimal, "subtables": len(found.parts)}
    return [
        f"{name}: stated {manifest.facts[name]}, found {value}"
        for name, value in pairs.items()
        if manifest.facts[name] != value
    ]


def _whole(manifest: Manifest, source: Records, asked: Randomize) -> list[str]:
    """What uniform perturbation of the whole table would have, from the source's counts."""
    facts, n, m = manifest.facts, sum(source.counts), len(source.counts)
    rho1 = max((Fraction(o, n) for o in source.counts if Fraction(o, n) <= asked.rho1), default=Fraction(0))
    if not 0 < rho1 < asked.rho2:
        return ["the source has no protected value"]
    gamma = asked.rho2 * (1 - rho1) / (rho1 * (1 - asked.rho2))
    bound = 2 * sqrt(log(2 / float(asked.delta)) / n) * float(m / (gamma - 1) + 1)
    found = {"bound_up": bound, "retention_up": float((gamma - 1) / (m - 1 + gamma))}
    return [
        f"{name} {facts[name]}, from the source {value}"
        for name, value in found.items()
        if not isclose(facts[name], value, rel_tol=1e-5)  # an amplification may be rounded
    ]


def _values(db: Relations, source: Records, asked: Randomize) -> list[str]:
    """Compare the listed values and their protection with the source's frequencies."""
    labels = [exp.cast(item, "VARCHAR") for item in source.roles.sa()]
    rows = db.rows(exp.select(*labels, column("protected")).from_(temp("v_values")).order_by("code"))
    stated = [(label(row[:-1]), bool(row[-1])) for row in rows]
    n = sum(source.counts)
    found = [(name, Fraction(o, n) <= asked.rho1) for name, o in zip(source.labels, source.counts, strict=True)]
    return [f"value {name}: protected is {flag}" for name, flag in sorted(set(stated) ^ set(found))]


def _spread(db: Relations, source: Records) -> list[str]:
    fits = possible(_public(db), np.array(source.counts, dtype=np.int64))
    return [] if fits else ["no spread of the source's records over the sub-tables meets their sizes and rho1"]


def _agreement(db: Relations, manifest: Manifest) -> list[str]:
    """All records, and for every quasi-identifier those with its most frequent value, against the source."""
    stated, sets = _public(db), _sets(manifest)
    wrong = []
    for name, condition in sets.items():
        truth = np.zeros(len(stated.protected))
        holes: Holes = {
            "records": temp("records"),
            "values": temp("v_values"),
            "filter": condition or exp.true(),
            "same_value": same("r", "v", manifest.roles.sa_keys),
        }
        for code, records in db.rows(fill("verify/source_values", holes)):
            truth[int(code)] = records
        found = deviation(stated, _public(db, condition).totals, truth)
        if found is not None and found < SIGNIFICANCE / len(sets):
            wrong.append(f"{name}: p-value {found:.2g}")
    return wrong


def _sets(manifest: Manifest) -> dict[str, exp.Expr | None]:
    """Conditions on quasi-identifiers under internal names."""
    sets: dict[str, exp.Expr | None] = {"all records": None}
    for key, field in zip(manifest.roles.qi_keys, manifest.roles.quasi_identifiers, strict=True):
        most = fill("verify/most_frequent", {"table": temp("records"), "column": column(key)})
        sets[f"most frequent {field.name}"] = exp.NullSafeEQ(this=column(key), expression=most.subquery())
    return sets


def _seen(db: Relations, condition: exp.Expr | None) -> exp.Query:
    """Published records of every cell, of those that meet a condition."""
    keys = [field.name for field in db.fields(temp("v_cells"))][2:]
    holes: Holes = {
        "perturbed": temp("v_perturbed"),
        "cells": temp("v_cells"),
        "part": column("sub_table"),
        "terms": [],
        "keys": [],
        "filter": condition or exp.true(),
        "sa": [column(key) for key in keys],
        "sa_keys": [column(key) for key in keys],
        "totals": [],
        "amounts": [],
        "groups": [],
        "same_value": same("q", "c", keys),
    }
    return fill("randomize/observed", holes)
