"""Measure noisy tables of sensitive values, and write the tables of a release."""

from __future__ import annotations

from math import floor, pi
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.dp_random import SUBSTITUTION, noise_for, opendp_version
from privsql.engine.sqlfiles import alias_as, column, table, temp_table
from privsql.mechanisms.dp.noisy_tables import measure_table
from privsql.mechanisms.dp.tables import write_noisy_tables, write_release_table
from privsql.mechanisms.label_tables.model import fit_tables
from privsql.mechanisms.label_tables.parameters import TablesFacts
from privsql.mechanisms.label_tables.plan import combine_records, require_values
from privsql.mechanisms.label_tables.rule import make_rule
from privsql.mechanisms.label_tables.tables import (
    EFFECTS,
    PEOPLE,
    VALUES,
    WEIGHTS,
    count_facts,
    people_query,
    read_codes,
    tabulate_values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.channel import Floats
    from privsql.dp_random import SelectionNoise
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.label_tables.model import TablesModel
    from privsql.mechanisms.label_tables.rule import Due, Ints, TablesRule
    from privsql.mechanisms.perturb.parameters import Randomize
    from privsql.model.records import Records

WORTH = 0.25  # a pair is worth measuring if it differs by this share of its noise, as the model averages noise out

# Measuring ------------------------------------------------------------------------------------------------------------


def measure_tables(
    combination: Ints, value: Ints, rule: TablesRule, noise: SelectionNoise
) -> tuple[list[NoisyTable], TablesModel]:
    """Measure the noisy tables that the rule requires, and fit the model to them.

    This is epsilon-differentially private if the value of one record is substituted.

    Args:
        combination: The combination of quasi-identifiers of every record (n,).
        value: The sensitive value of every record (n,). It is used only for exact counts, to which noise is added.
        rule: The public rule, which decides which tables are measured, and with which budget.
        noise: The source of noise and of private choices, which pick pairs of columns by noisy scores.

    Returns:
        (the noisy tables, the fitted model).
    """

    def count_exactly(k: int) -> Ints:
        flat = rule.codes.tables[k].cells[combination] * rule.values + value
        return np.bincount(flat, minlength=rule.cell_counts[k])

    def measure(due: Sequence[Due]) -> list[NoisyTable]:
        return [measure_table(k, count_exactly(*k), spent, noise, choice, SUBSTITUTION) for k, spent, choice in due]

    tables = measure(rule.first_tables())
    model = fit_tables(tables, rule, rounds=0, draws=0)
    pairs = {k: count_exactly(k) for k in range(rule.columns, len(rule.codes.tables))}
    tables += measure(rule.later_tables(choose_pairs(pairs, rule, model, noise)))
    return tables, fit_tables(tables, rule)


def choose_pairs(pairs: Mapping[int, Ints], rule: TablesRule, model: TablesModel, noise: SelectionNoise) -> list[int]:
    """Choose the pairs of columns whose tables are worth their noise, by one private choice in each round.

    A private choice picks the best pair with noise, and spends part of epsilon. A round may also choose no pair.

    Args:
        pairs: The true counts of each pair's table, by the number of the table.
        rule: The public rule, which says how many rounds there are and what each spends.
        model: The model that is fitted to the tables of single columns.
        noise: The source of private choices.

    Returns:
        The numbers of the chosen tables.
    """
    if not rule.rounds:
        return []
    cell_noise = float(SUBSTITUTION.mean_noise(rule.remaining_budget / rule.rounds))
    scores = {k: score_pair(counts, model.expect_table(k), cell_noise) for k, counts in pairs.items()}
    left, chosen = [-1, *scores], []
    for _ in range(rule.rounds):
        each = np.array([scores.get(k, 0) for k in left], dtype=np.int64)
        place = noise.choose_best(each, rule.choice_budget / SUBSTITUTION.moved, monotonic=False)
        if left[place] >= 0:
            chosen.append(left.pop(place))
    return chosen


def score_pair(counts: Ints, expected: Floats, cell_noise: float) -> int:
    """Score how much the table of a pair of columns would add to the tables of single columns.

    The score is the distance of true counts from expected counts, less what sampling and noise would cause. If one
    record's value is substituted, it changes by at most 2.

    Args:
        counts: The true counts.
        expected: The counts that the tables of single columns predict.
        cell_noise: The mean absolute noise of a count, if the table were measured.
    """
    cost = floor(float(np.minimum(np.sqrt(2 / pi * expected) + WORTH * cell_noise, 2 * expected + cell_noise).sum()))
    return int(np.abs(counts - np.rint(expected).astype(np.int64)).sum()) - cost


def publish_tables(db: Relations, source: Records, params: Randomize, key: Key) -> TablesFacts:
    """Measure noisy tables, write all tables of a release into database ``release``, and return the facts."""
    roles, noise = source.roles, noise_for(key)
    require_values(db, roles, params)
    combine_records(db, source)
    db.create_table(PEOPLE, people_query(roles), into="release", title="Writing the quasi-identifiers")
    rule = make_rule(params, read_codes(db, roles, table(PEOPLE, "release")))
    text = exp.cast(column("s0"), "VARCHAR")
    known = db.rows(exp.select(text).from_(temp_table("domain")).order_by("code"))
    place = np.array([params.listed.find_code(value) for (value,) in known], dtype=np.int64)
    # One entry for each record, so that neither time nor memory depends on sensitive values.
    rows = db.arrow(exp.select(column("combination"), column("code")).from_(temp_table("combined")))
    combination, code = (rows[name].to_numpy().astype(np.int64) for name in rows.column_names)
    tables, model = measure_tables(combination, place[code], rule, noise)
    db.drop("combined")
    write_noisy_tables(db, tables, rule.codes.table_names)
    listed = exp.select(alias_as(column("code", "g"), roles.by_sa.column_name("code")), *roles.sa_typed("g"))
    listed = listed.from_(exp.alias_(temp_table("given"), "g", table=True)).order_by(exp.Literal.number(1))
    write_release_table(db, VALUES, tabulate_values(roles, params), listed)
    write_release_table(db, WEIGHTS, model.stream_weights(), title="Writing the weights")
    write_release_table(db, EFFECTS, model.list_effects())
    return TablesFacts(**count_facts(rule, tables), noise=noise.origin, opendp=opendp_version())
