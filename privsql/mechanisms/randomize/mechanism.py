"""Randomization as a mechanism (``mechanisms.contract``): partition over counts, perturb and publish through SQL."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.answers.accuracy import by_questions
from privsql.attacks import absence, identifiers, learning, linkage, negative, order
from privsql.attacks.suite import Suite
from privsql.engine.sqlfiles import Holes, fill, temp
from privsql.exact import text
from privsql.mechanisms import alternatives
from privsql.mechanisms.contract import Alone, Mechanism, Proposal, Table
from privsql.mechanisms.randomize import said, search
from privsql.mechanisms.randomize.answers import Answers
from privsql.mechanisms.randomize.checks import SQL, bounds, checks, read, source_checks
from privsql.mechanisms.randomize.parameters import Randomize
from privsql.mechanisms.randomize.scene import Perturbed
from privsql.mechanisms.randomize.tables import tables, view
from privsql.mechanisms.randomize.writing import write_ranked, write_records
from privsql.model.checks import nothing_longer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Profiled
    from privsql.mechanisms.randomize.model import Ints, Partition, Problem, SubTable
    from privsql.model.records import Records
    from privsql.noise import Key


def plan(db: Relations, source: Records, asked: Randomize) -> dict[str, Any]:  # noqa: ARG001 (all mechanisms take it)
    """The facts of the partition, and for the publisher alone the partition itself."""
    problem = search.problem(source.counts, source.labels, asked)
    found = search.find(problem, asked.algorithm, asked.objective)
    subtables = search.checked(problem, found)
    return _facts(problem, found, subtables) | {"partition": _partition(found, subtables, source.labels)}


def _partition(found: Partition, subtables: Sequence[SubTable], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Every sub-table: public parameters, and the records of each value in the initial groups that it unites."""
    groups = found.united or found.parts[:, None]

    def held(group: Ints) -> dict[str, int]:
        return {labels[code]: int(group[code]) for code in np.flatnonzero(group).tolist()}

    return [
        {
            "records": one.records,
            "values": one.size,
            "rho1": text(one.rho1),
            "gamma": text(one.gamma),
            "retention": float(one.retention),
            "groups": [held(group) for group in united],
        }
        for one, united in zip(subtables, groups, strict=True)
    ]


def publish(db: Relations, source: Records, asked: Randomize, key: Key) -> dict[str, Any]:
    """Make ``perturbed`` and the tables of public parameters in database ``release``; returns the facts."""
    problem = search.problem(source.counts, source.labels, asked)
    found = search.find(problem, asked.algorithm, asked.objective)
    subtables = search.checked(problem, found)
    gammas = [str(subtable.gamma) for subtable in subtables]
    roles = source.roles
    db.put("listed", _cells(found))
    listed: Holes = {"listed": temp("listed"), "domain": temp("domain"), "sa": roles.sa("d")}
    db.make("cells", fill("randomize/cells", listed))
    if source.order == "portable":
        write_ranked(db, source, found.parts, subtables, key)
    else:
        noise = key.stream("randomize", found.parts.tolist(), gammas, tuple(source.labels))
        write_records(db, source, found.parts, subtables, noise)
    db.make("privsql_domains", fill("randomize/domains", {"cells": temp("cells")}), into="release")
    db.put("flags", pa.table({"code": np.arange(len(problem.counts)), "protected": problem.protected}))
    holes: Holes = {"flags": temp("flags"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.names("code", "protected")
    db.make("privsql_values", fill("randomize/values", holes), into="release")
    db.put("given", _parameters(subtables))
    db.make("privsql_subtables", fill("randomize/subtables", {"given": temp("given")}), into="release")
    db.drop("listed", "cells", "flags", "given")
    return _facts(problem, found, subtables)


def _cells(found: Partition) -> pa.Table:
    """(cell, sub_table, code, place) of every value of every sub-table."""
    own, code = np.nonzero(found.parts)
    sizes = (found.parts > 0).sum(axis=1)
    place = np.arange(len(own)) - (np.cumsum(sizes) - sizes)[own]
    columns = {"cell": np.arange(len(own)), "sub_table": own, "code": code, "place": place}
    return pa.table({name: array.astype(np.int32) for name, array in columns.items()})


def _parameters(subtables: Sequence[SubTable]) -> pa.Table:
    return pa.table(
        {
            "sub_table": np.arange(len(subtables)),
            "records": [t.records for t in subtables],
            "size": [t.size for t in subtables],
            "rho1_numerator": [str(t.rho1.numerator) for t in subtables],
            "rho1_denominator": [str(t.rho1.denominator) for t in subtables],
            "gamma_numerator": [str(t.gamma.numerator) for t in subtables],
            "gamma_denominator": [str(t.gamma.denominator) for t in subtables],
        }
    )


def _facts(problem: Problem, found: Partition, subtables: Sequence[SubTable]) -> dict[str, Any]:
    """What manifest and output state of a partition."""
    whole, n = search.checked(problem, search.find(problem, "up")), problem.records
    return {
        "subtables": len(subtables),
        "groups": found.groups,
        "bound": sum(subtable.error(n, problem.delta) for subtable in subtables),
        "bound_up": sum(subtable.error(n, problem.delta) for subtable in whole),
        "retention": retention(subtables),
        "retention_up": retention(whole),
        "optimal": found.optimal,
    }


def retention(subtables: Sequence[SubTable]) -> float:
    """Average probability that a value is retained, sum_j (|T_j|/n) p_j."""
    kept = sum((t.retention * t.records for t in subtables), Fraction(0))
    return float(kept / sum(t.records for t in subtables))


def propose(db: Relations, source: Profiled) -> Proposal:  # noqa: ARG001 (all mechanisms take it)
    """Protect every value that is not more frequent than all others together, up to three times its prior."""
    counts = source.records().counts
    n = sum(counts)
    shares = [Fraction(count, n) for count in counts]
    rho1 = max((share for share in shares if share <= Fraction(1, 3)), default=min(shares))
    rounded = Fraction(-(-rho1.numerator * 1000 // rho1.denominator), 1000)
    rho2 = min(3 * rounded, (1 + rounded) / 2)
    return Proposal({"kind": "randomize", "algorithm": "pp", "rho1": str(rounded), "rho2": str(rho2)})


def promise(asked: Randomize) -> str:
    """Restricted (rho1, rho2)-privacy."""
    return f"<= {asked.rho2} if f <= {asked.rho1}"


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Sub-tables, retention and bound beside those of the whole table."""
    made = f"{facts['subtables']} of {facts['groups']} groups{', the best possible' if facts['optimal'] else ''}"
    return [
        ("sub-tables", made),
        ("retention", f"{facts['retention']:.1%}  (whole table {facts['retention_up']:.1%})"),
        ("error bound", f"{facts['bound']:.4g}  (whole table {facts['bound_up']:.4g})"),
    ]


MECHANISM = Mechanism(
    parameters=Randomize,
    shape=Table(numeric=False, most_numbers=None),
    composition=Alone(),
    sql=SQL,
    relations=("perturbed", "privsql_subtables", "privsql_domains", "privsql_values"),
    read=read,
    plan=plan,
    algorithms=alternatives.none(
        "'up' and 'pp' keep different shares of the values as they are; compare with privsql compare"
    ),
    publish=publish,
    tables=tables,
    view=view,
    checks=checks,
    long_checks=nothing_longer,
    measured=lambda _db, _manifest: {},
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=by_questions,
    adversaries=Suite(
        scene=Perturbed,
        adversaries=(
            linkage.ADVERSARY,
            order.ADVERSARY,
            identifiers.ADVERSARY,
            absence.adversary(lambda _: None),
            negative.ADVERSARY,
            learning.ADVERSARY,
            identifiers.GIVING,
        ),
        combining=(),
        quick=Perturbed,
    ),
    promise=promise,
    words=said.words,
    structure=said.structure,
    advice=(
        "a lower rho2: less of every value is kept",
        "algorithm = 'up': sub-tables with few values leave few to choose among",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    propose=propose,
    warnings=lambda _: [],
    figures=figures,
)
