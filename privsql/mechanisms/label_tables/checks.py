"""Check noisy tables of sensitive values in exact numbers, and by fitting the weights again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine.sqlfiles import column
from privsql.mechanisms.dp import checks
from privsql.mechanisms.dp.checks import OPENDP_CHECK, unknown_opendp, wrong_facts
from privsql.mechanisms.dp.tables import TABLE_ORDERS
from privsql.mechanisms.label_tables.model import MeasuredDesign, fit_tables
from privsql.mechanisms.label_tables.tables import PEOPLE, count_facts, read_effects, read_published, read_weights
from privsql.model.checks import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.label_tables.parameters import TablesFacts
    from privsql.mechanisms.label_tables.rule import TablesRule
    from privsql.mechanisms.perturb.parameters import Randomize
    from privsql.model.checks import Check, CheckedRelease

    TablesRelease = CheckedRelease[Randomize, TablesFacts]

ORDERS = {"weights": ["combination", "code"], "effects": ["draw", "feature", "code"], "values": ["code"]}
NEAR = 0.02  # largest mean distance of refitted weights from published ones
CLOSE = 1e-4  # largest distance of a sum of weights from 1


def check_tables(release: TablesRelease) -> list[Check]:
    """Return the checks that need the release alone, except for the slow one of ``refit_checks``."""
    named: dict[str, Callable[..., list[str] | exp.Query]] = {
        "tables and choices spend epsilon together": _wrong_budget,
        "tables are those of the public rule": (
            lambda _, rule, found: checks.differ_from_due(found, rule.due_tables(found))
        ),
        "scales are those of the budgets, for two counts of a table": (
            lambda one, _, found: checks.wrong_table_scales(one, found)
        ),
        "values are those of the specification": _wrong_values,
        "facts are those of the tables": lambda one, rule, found: wrong_facts(one, count_facts(rule, found)),
        "numbers of records are those of the quasi-identifiers": (
            lambda one, rule, _: one.compare_records(int(rule.codes.sizes.sum()))
        ),
        "weights of every combination add up to 1": _wrong_weights,
    }
    people_order = in_order(release.view(PEOPLE), [*release.roles.qi_keys, "combination"], strict=False)
    return [
        *_check_published(release, named),
        *release.check_orders(TABLE_ORDERS | ORDERS),
        *release.list_checks({"rows of people lie in order": people_order}),
        *release.list_checks({OPENDP_CHECK: unknown_opendp}),
    ]


def refit_checks(release: TablesRelease) -> list[Check]:
    """Return the check that fits the model to the noisy tables again, and compares the published weights and draws.

    Weights are the probabilities of values in combinations of quasi-identifiers; draws are random parameters of the
    model. The check takes as long as publishing.
    """
    return _check_published(release, {"weights and draws are fitted to the tables": _wrong_fit})


def _check_published(release: TablesRelease, named: Mapping[str, Callable[..., list[str] | exp.Query]]) -> list[Check]:
    read = partial(read_published, release.db, release.manifest, release.database)
    of_both = {name: lambda found, check=check: check(release, *found) for name, check in named.items()}
    return checks.check_published(release, "tables", read, of_both)


def _wrong_budget(release: TablesRelease, rule: TablesRule, tables: Sequence[NoisyTable]) -> list[str]:
    spent, due = rule.sum_budgets(tables), release.params.spent_epsilon
    return [] if spent == due else [f"spent {spent}, not {due}"]


def _wrong_values(release: TablesRelease, *_: object) -> list[str]:
    """Return a line if the listed values are not the public list of the specification; else an empty list."""
    listed = exp.select(column("code"), exp.cast(column("s0"), "VARCHAR")).from_(release.view("values"))
    due = release.params.listed.list_texts(release.roles.sensitive[0].type)
    right = release.db.rows(listed.order_by("code")) == [*enumerate(due)]
    return [] if right else ["the listed values are others"]


def _wrong_weights(release: TablesRelease, rule: TablesRule, _: object) -> exp.Query:
    numbers = {"combinations": len(rule.codes.sizes), "listed": rule.values, "close": CLOSE}
    return release.fill_query("verify/weights_sum", **{name: exp.Literal.number(n) for name, n in numbers.items()})


def _wrong_fit(release: TablesRelease, rule: TablesRule, tables: Sequence[NoisyTable]) -> list[str]:
    measured, fitted = MeasuredDesign.from_tables(tables, rule), fit_tables(tables, rule)
    drawn = measured.list_weights(read_effects(release.db, measured, release.database))
    again = measured.list_weights(fitted.effects)
    stated = read_weights(release.db, rule, release.database)
    pairs = {"weights": (fitted.weights, stated)} | {
        f"draw {number}": pair for number, pair in enumerate(zip(again, drawn, strict=True))
    }
    shares = rule.codes.sizes / rule.codes.sizes.sum()
    far = {name: float(np.abs(one - other).sum(axis=1) @ shares) for name, (one, other) in pairs.items()}
    return [f"{name}: {mean:.3f} from what the tables give" for name, mean in far.items() if not mean <= NEAR]
