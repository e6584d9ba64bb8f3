"""The tables of a release of noisy tables, and functions that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers.answer import DRAWS
from privsql.answers.learned_prior import code_column, comparable_columns
from privsql.dp_random import SUBSTITUTION
from privsql.engine.sqlfiles import Holes, alias_as, all_rows, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.tables import CLIQUES, MARGINALS, NOISY_TABLES, read_noisy_tables
from privsql.mechanisms.label_tables.rule import PublicCodes, make_rule
from privsql.mechanisms.perturb.parameters import Randomize
from privsql.model.tables import QUASI, SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.label_tables.model import MeasuredDesign
    from privsql.mechanisms.label_tables.rule import TablesRule
    from privsql.model.manifest import Manifest

PEOPLE, WEIGHTS, EFFECTS, VALUES = "qit", "privsql_weights", "privsql_effects", "privsql_values"
MOST_EFFECT = 1e4

TABLES = {
    PEOPLE: ReleaseTable((QUASI, "combination INTEGER")),
    VALUES: ReleaseTable(("code INTEGER", SENSITIVE)),
    **NOISY_TABLES,
    WEIGHTS: ReleaseTable(("combination INTEGER", "code INTEGER", "weight FLOAT")),
    EFFECTS: ReleaseTable(("draw INTEGER", "feature INTEGER", "code INTEGER", "effect FLOAT")),
}


def weighted_view(manifest: Manifest) -> exp.Query:
    """Return the view with a row for each record and value, and the probability (weight) that the record has the value.

    Sums of weights are near the estimates of counts.
    """
    roles = manifest.roles
    holes: Holes = {
        "people": table(PEOPLE),
        "weights": table(WEIGHTS),
        "values": table(VALUES),
        "qi": [alias_as(column(one.name, "people"), one.name) for one in roles.quasi_identifiers],
        "sa": [alias_as(column(one.name, "listed"), one.name) for one in roles.sensitive],
        "combination": roles.by_qi.as_column("combination", "people"),
        "code": roles.by_sa.as_column("code", "listed"),
        **roles.by_all.alias_holes("weight"),
    }
    return fill("randomize/estimated", holes)


def tabulate_values(roles: Roles, params: Randomize) -> pa.Table:
    """Return the public list of values as a table (code, s0), in which s0 is the text of a value.

    Raises:
        UsageError: There is not exactly one sensitive column.
    """
    if len(roles.sensitive) != 1:
        raise UsageError("algorithm 'tables' publishes one sensitive column; name one")
    texts = params.listed.list_texts(roles.sensitive[0].type)
    return pa.table({"code": pa.array(range(len(texts)), pa.int32()), "s0": pa.array(texts, pa.string())})


def people_query(roles: Roles) -> exp.Query:
    """Return the query for the rows of table ``qit``: quasi-identifiers, and the number of their combination."""
    holes: Holes = {"combined": temp_table("combined"), "columns": roles.qi_typed("r")}
    return fill("randomize/people", {**holes, **roles.by_qi.alias_holes("combination")})


def count_facts(rule: TablesRule, tables: Sequence[NoisyTable]) -> dict[str, Any]:
    """Return the facts that follow from the rule and the noisy tables, by name."""
    return {
        "epsilon": fraction_text(rule.epsilon),
        "combinations": len(rule.codes.sizes),
        "tables": len(tables),
        "chosen": sum(one.choice is not None for one in tables),
        "cells": sum(one.counts.size for one in tables),
    }


def read_codes(db: Relations, roles: Roles, people: exp.Table | exp.Subquery) -> PublicCodes:
    """Read the combinations of quasi-identifiers from a relation of all records.

    Raises:
        ValueError: The combinations are not numbered 0, 1, ..
    """
    holes: Holes = {
        "people": people,
        "columns": comparable_columns(roles),
        "keys": roles.qi_columns(),
        "combination": roles.by_qi.as_column("combination"),
    }
    rows = db.arrow(fill("randomize/combinations", holes))
    if not np.array_equal(rows["combination"].to_numpy(), np.arange(len(rows))) or not len(rows):
        raise ValueError("combinations are not numbered 0, 1, ..")
    named = zip(roles.quasi_identifiers, roles.qi_keys, strict=True)
    sizes = rows["records"].to_numpy().astype(np.int64)
    return PublicCodes.from_columns({field.name: code_column(rows[key], field) for field, key in named}, sizes)


def read_published(db: Relations, manifest: Manifest, database: str | None) -> tuple[TablesRule, list[NoisyTable]]:
    """Read (the public rule, the noisy tables) of a release; the rule says which tables it has, with which budgets.

    Damaged tables raise one of the errors in ``model.checks.BROKEN``.

    Args:
        db: The engine.
        manifest: The manifest of the release.
        database: The database that holds the release; None for the current one.
    """
    codes = read_codes(db, manifest.roles, table(PEOPLE, database))
    rule = make_rule(Randomize.model_validate(manifest.parameters), codes)
    cliques = db.arrow(all_rows(table(CLIQUES, database)).order_by("clique"))
    cells = db.arrow(all_rows(table(MARGINALS, database)).order_by("clique", "cell"))
    return rule, read_noisy_tables(cliques, cells, codes.table_names, rule.cell_counts, SUBSTITUTION)


def read_weights(db: Relations, rule: TablesRule, database: str | None) -> Any:
    """Read the fitted probability of each of K values in every combination of quasi-identifiers (rows, K)."""
    order = [column("combination"), column("code")]
    weights = db.arrow(exp.select(column("weight")).from_(table(WEIGHTS, database)).order_by(*order))["weight"]
    return weights.to_numpy().reshape(len(rule.codes.sizes), rule.values)


def read_effects(db: Relations, measured: MeasuredDesign, database: str | None) -> NDArray[np.float32]:
    """Read D draws of the model's parameters: the effects of J features of quasi-identifiers on K values (D, J, K).

    Raises:
        ValueError: Their number is wrong, or one of them is NaN or too large.
    """
    order = [column("draw"), column("feature"), column("code")]
    rows = db.arrow(exp.select(column("effect")).from_(table(EFFECTS, database)).order_by(*order))
    shape = DRAWS, measured.design.features.shape[1], len(measured.offset)
    effects = rows["effect"].to_numpy().reshape(shape).astype(np.float32)
    if not (np.abs(effects) <= MOST_EFFECT).all():
        raise ValueError("an effect is no number, or too large")
    return np.asarray(effects)
