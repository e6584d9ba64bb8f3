"""Differentially private contingency tables as a mechanism (``contract``): DiffPart's relational extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.attacks.suite import Suite
from privsql.dpnoise import noise_for
from privsql.engine.sqlfiles import Holes, column, fill, is_null, temp
from privsql.exact import text
from privsql.mechanisms.contingency.diffpart.answers import Answers
from privsql.mechanisms.contingency.diffpart.checks import SQL, bounds, checks, read, source_checks
from privsql.mechanisms.contingency.diffpart.domains import cells
from privsql.mechanisms.contingency.diffpart.domains import read as read_domains
from privsql.mechanisms.contingency.diffpart.model import estimator, imputed
from privsql.mechanisms.contingency.diffpart.tables import tables, taxonomy_table, tree_table, view
from privsql.mechanisms.contingency.diffpart.tree import partition, positions, shares
from privsql.mechanisms.contingency.parameters import Contingency
from privsql.mechanisms.contingency.questions import evaluate
from privsql.mechanisms.contract import Budget, Categories, Mechanism, Proposal
from privsql.mechanisms.noisytree import kept, membership
from privsql.mechanisms.noisytree.said import structure
from privsql.mechanisms.private import NOT_PLANNED, RECORD, figure, made_with, promise, words, write
from privsql.model.checks import nothing_longer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.contingency.diffpart.domains import Domains
    from privsql.mechanisms.contingency.diffpart.model import StandIns
    from privsql.mechanisms.contingency.diffpart.tree import Tree
    from privsql.mechanisms.contract import Profiled
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.model.records import Records
    from privsql.noise import Key


LEAVES = membership.Leaves("cells", is_null(column("expanded")), column("choice"))


def plan(db: Relations, source: Records, asked: Contingency) -> dict[str, Any]:
    """What is known without looking at the records: values, expansions and the budget of the first one."""
    domains = read_domains(db, source, asked)
    height = domains.taxonomy.height[domains.taxonomy.roots]
    first = shares(asked, asked.epsilon / 2, int(height.sum()), several=len(height) > 1)
    return {
        "epsilon": text(asked.epsilon),
        "values": sum(len(one.labels) for one in domains.columns),
        "expansions": int(height.sum()),
        "first_choice": text(first.choice),
        "first_budget": text(first.inner),
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
    }


def propose(db: Relations, source: Profiled) -> Proposal:  # noqa: ARG001 (all mechanisms take it)
    """An epsilon of 1, the values that occur as the domains."""
    return Proposal(
        {
            "kind": "contingency",
            "algorithm": "diffpart",
            "epsilon": "1",
            "domains": {one.name: "data" for one in source.columns},
        },
        (RECORD, "Better than 'data' are public lists of values: those that occur are not protected."),
    )


def publish(db: Relations, source: Records, asked: Contingency, key: Key) -> dict[str, Any]:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    domains = read_domains(db, source, asked)
    tree = partition(cells(db, source, domains), domains.taxonomy, asked, noise)
    fitted = estimator(tree, domains.taxonomy)
    stated = kept.enough(fitted, asked, "cell", "coarser domains")
    stand_ins = imputed(tree, domains.taxonomy, fitted.fit, key.stream("contingency", text(asked.epsilon)))
    _write_cells(db, source.roles, domains, (tree, fitted.fit.sizes.size, stand_ins))
    write(db, "privsql_tree", tree_table(tree, domains.taxonomy, asked))
    write(db, "privsql_taxonomy", taxonomy_table(domains.taxonomy, domains.names))
    return {
        "values": sum(len(one.labels) for one in domains.columns),
        "partitions": len(tree) - 1,
        "cells": int(tree.leaf.sum()),
        "imputed": len(stand_ins.row),
        "estimated_records": round(float(fitted.fit.sizes.size[0]), 1),
        **stated,
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
        **made_with(noise),
    }


def _write_cells(
    db: Relations, roles: Roles, domains: Domains, made: tuple[Tree, NDArray[np.float64], StandIns]
) -> None:
    """The tables ``cells`` and ``privsql_cells``; ``made``: tree, fitted sizes, what stands for the pruned."""
    tree, size, stand_ins = made
    leaves = np.flatnonzero(tree.leaf)
    nodes = positions(tree, domains.taxonomy)[leaves]
    keys = list(roles.sa_keys)
    holes: Holes = {"given": temp("given"), "columns": roles.sa_out("g"), "order": roles.sa("g")}
    counted = _typed(domains, keys, nodes) | {"count": pa.array(tree.size[leaves], pa.int64())}
    weights = np.concatenate((size[leaves], stand_ins.weight))
    parts = {"part": pa.array(np.concatenate((leaves, stand_ins.row)), pa.int32())}
    weighted = parts | _typed(domains, keys, np.concatenate((nodes, stand_ins.nodes))) | {"weight": pa.array(weights)}
    made_so = (("cells", "cells", counted, ["count"]), ("privsql_cells", "stand_ins", weighted, ["part", "weight"]))
    for name, file, given, own in made_so:
        query = fill(f"contingency/{file}", {**holes, **roles.by_sa.names(*own)})
        write(db, name, pa.table(given), query, title="Writing the cells")


def _typed(domains: Domains, keys: list[str], nodes: Ints) -> dict[str, pa.Array]:
    """The values of nodes (n, d) in the columns' own types; a column's values are its first nodes."""
    taxonomy = domains.taxonomy
    first = [int(taxonomy.values(number)[0]) for number in range(len(keys))]
    return {
        name: pc.take(one.values, pa.array(nodes[:, number] - first[number]))
        for number, (name, one) in enumerate(zip(keys, domains.columns, strict=True))
    }


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What a plan or a release says of itself."""
    leak = ", ".join(facts["not_covered"])
    covered = f"those that occur (not covered by the guarantee) in {leak}" if leak else "public"
    shown = [("values", f"{facts['values']:,}, {covered}")]
    if "partitions" not in facts:
        first = f"choice {facts['first_choice']}, counts {facts['first_budget']} of at most {facts['expansions']}"
        return [*shown, ("first expansion", first)]
    made = f"{facts['cells']:,} in {facts['partitions']:,} partitions; {facts['imputed']:,} stand for pruned ones"
    return [*shown, ("cells", made), figure(facts)]


DIFFPART = Mechanism(
    parameters=Contingency,
    shape=Categories(lambda asked: asked.domains),
    composition=Budget(lambda asked: asked.epsilon),
    sql=SQL,
    relations=("cells", "privsql_cells", "privsql_tree", "privsql_taxonomy"),
    read=read,
    plan=plan,
    algorithms=NOT_PLANNED,
    publish=publish,
    tables=tables,
    view=view,
    checks=checks,
    long_checks=nothing_longer,
    measured=lambda _db, _manifest: {},
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=evaluate,
    adversaries=Suite(scene=None, adversaries=(membership.adversary(LEAVES),), combining=(), quick=None),
    promise=promise,
    words=words,
    structure=structure,
    advice=("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one"),
    propose=propose,
    warnings=lambda facts: kept.warned(facts, facts["cells"], "cell"),
    figures=figures,
)
