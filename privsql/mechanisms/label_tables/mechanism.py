"""Noisy tables of sensitive values: publish, check, answer and attack them, and the mechanism."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers import answer
from privsql.answers.accuracy import by_questions
from privsql.answers.estimate import ConfidenceLevel, CountBounds, WeightedSums, count_groups, empty_estimates
from privsql.answers.learned_prior import code_column, comparable_columns
from privsql.answers.sql.question import (
    CountQuery,
    Side,
    group_terms,
    select_terms,
    side_holes,
)
from privsql.attacks.scene import Finding, ReleaseView
from privsql.attacks.suite import LEARNING, LEARNING_KNOWS, Adversary, AttackContext, JointAttack, ReleaseSeries
from privsql.dp_random import SUBSTITUTION, noise_for, opendp_version
from privsql.engine.sqlfiles import (
    DIALECT,
    Holes,
    alias_as,
    all_of,
    all_rows,
    canonical_value,
    column,
    fill,
    table,
    temp_table,
)
from privsql.errors import InfeasibleError, PrivsqlError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.base import WEIGHTED, BudgetComposition, ProfiledSource, Proposal, TableShape, Views
from privsql.mechanisms.dp import checks
from privsql.mechanisms.dp import mechanism as private
from privsql.mechanisms.dp.mechanism import PrivateMechanism, refuse_damaged, write_release_table
from privsql.mechanisms.dp.tables import (
    CLIQUES,
    MARGINALS,
    NOISY_TABLES,
    TABLE_ORDERS,
    read_noisy_tables,
    tables_structure,
    write_noisy_tables,
)
from privsql.mechanisms.dp.unlisted import SURE, ListedAnswers, UnlistedColumn, read_question
from privsql.mechanisms.label_tables.model import (
    CHOOSING,
    MeasuredCount,
    PublicCodes,
    TablesRule,
    combine_tables,
    measure_tables,
    refit_tables,
    rehearse,
    standard_errors,
)
from privsql.mechanisms.perturb.parameters import TYPICAL, Randomize, TablesFacts, TablesPlan, reach_of
from privsql.model.checks import VerifiedBound, in_order
from privsql.model.estimates import Estimate, same_nan
from privsql.model.explanations import LEARNT, ReleasePromises
from privsql.model.parameters import find_unlisted
from privsql.model.tables import QUASI, SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.attacks.scene import AttackView
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.keyed_random import Key
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.parameters import ListedValues
    from privsql.model.records import Records

    TablesRelease = CheckedRelease[Randomize, TablesFacts]

# Publish --------------------------------------------------------------------------------------------------------------
# Quasi-identifiers are published in their own order, which no value has a part in; values leave only with noise.

PEOPLE, WEIGHTS, VALUES = "people", "privsql_weights", "privsql_values"
TABLES = {
    PEOPLE: ReleaseTable((QUASI, "combination INTEGER")),
    VALUES: ReleaseTable(("code INTEGER", SENSITIVE)),
    **NOISY_TABLES,
    WEIGHTS: ReleaseTable(("combination INTEGER", "code INTEGER", "weight FLOAT")),
}


def query_values(roles: Roles, params: Randomize) -> tuple[pa.Table, exp.Query]:
    """Return ``privsql_values`` as texts, and the query that gives them their type; ``UsageError`` for two columns."""
    if len(roles.sensitive) != 1:
        raise UsageError("algorithm 'tables' publishes one sensitive column; name one")
    texts = params.listed.list_texts(roles.sensitive[0].type)
    data = pa.table({"code": pa.array(range(len(texts)), pa.int32()), "s0": pa.array(texts, pa.string())})
    code = alias_as(column("code", "g"), roles.by_sa.column_name("code"))
    rows = exp.select(code, *roles.sa_typed("g")).from_(exp.alias_(temp_table("given"), "g", table=True))
    return data, rows.order_by(exp.Literal.number(1))


def require_values(db: Relations, roles: Roles, params: Randomize) -> None:
    """Raise ``UsageError`` for listed values that are no values of the column's type, as SQL prints these."""
    data, _ = query_values(roles, params)
    kind = exp.DataType.build(roles.sensitive[0].type, dialect=DIALECT)
    db.register_arrow("given", data)
    printed = exp.cast(canonical_value(exp.cast(column("s0"), kind), roles.sensitive[0].type), "VARCHAR")
    try:
        rows = db.rows(exp.select(column("s0"), printed).from_(temp_table("given")).order_by("code"))
    except PrivsqlError as error:
        name = roles.sensitive[0].name
        raise UsageError(f"values: one is no value of column {name!r}, {roles.sensitive[0].type}: {error}") from error
    finally:
        db.drop("given")
    wrong = next((text for text, again in rows if text != again), None)
    if wrong is not None:
        raise UsageError(f"values: {wrong!r} is not how SQL prints a value of type {roles.sensitive[0].type}")


def combine_records(db: Relations, source: Records) -> None:
    """Make relation ``combined``: the records with the numbers of their combinations; ``InfeasibleError`` for none."""
    if not source.records:
        raise InfeasibleError("the source has no records to publish")
    roles = source.roles
    order = [exp.Ordered(this=one, nulls_first=False) for one in roles.qi_columns("r")]
    coded = source.coded_records(ordered=False).subquery("r")
    holes: Holes = {"coded": coded, "keys": roles.qi_columns("r"), "order": order}
    db.create_table("combined", fill("randomize/combined", holes), title="Combining quasi-identifiers")


def people_query(roles: Roles) -> exp.Query:
    """Return the rows of ``people``."""
    holes: Holes = {"combined": temp_table("combined"), "columns": roles.qi_typed("r")}
    return fill("randomize/people", {**holes, **roles.by_qi.alias_holes("combination")})


def read_codes(db: Relations, roles: Roles, people: exp.Table | exp.Subquery) -> PublicCodes:
    """Return the combinations of ``people`` as codes; ``ValueError`` unless they are numbered 0, 1, .."""
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


def make_rule(params: Randomize, codes: PublicCodes) -> TablesRule:
    """Return the rule; ``UsageError`` where two tables would have one name."""
    if len(set(codes.table_names)) < len(codes.table_names):
        raise UsageError("two pairs of columns would have one name; rename a column in source.query")
    return TablesRule(params.spent_epsilon, len(params.listed), codes)


def plan_tables(db: Relations, source: Records, params: Randomize) -> TablesPlan:
    """Return what the specification and the quasi-identifiers tell; no value of a record is looked at."""
    require_values(db, source.roles, params)
    combine_records(db, source)
    rule = make_rule(params, read_codes(db, source.roles, people_query(source.roles).subquery("p")))
    db.drop("combined")
    first = [budget for _, budget, _ in rule.first_tables()]
    shares = params.declared_shares or {f"{float(f):.0%}": f for f in TYPICAL}
    return TablesPlan(
        epsilon=fraction_text(rule.epsilon),
        values=len(params.values),
        null_is_value=params.null_is_value,
        columns=rule.columns,
        cells=sum(rule.cell_counts[: rule.columns]),
        pairs=len(rule.codes.tables) - rule.columns,
        rounds=rule.rounds,
        scale=SUBSTITUTION.scale(first[0]),
        reached={name: (float(f), reach_of(f, rule.epsilon)) for name, f in shares.items()},
        threshold=None if params.threshold is None else str(params.threshold),
    )


def publish_tables(db: Relations, source: Records, params: Randomize, key: Key) -> TablesFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    roles, noise = source.roles, noise_for(key)
    require_values(db, roles, params)
    combine_records(db, source)
    db.create_table(PEOPLE, people_query(roles), into="release", title="Writing the quasi-identifiers")
    rule = make_rule(params, read_codes(db, roles, table(PEOPLE, "release")))
    tables, model = measure_tables(_read_entries(db, params), rule, noise)
    db.drop("combined")
    write_noisy_tables(db, tables, rule.codes.table_names)
    write_release_table(db, VALUES, *query_values(roles, params))
    write_release_table(db, WEIGHTS, model.stream_weights(), title="Writing the weights")
    return TablesFacts(
        **count_facts(rule, tables), coefficients=rehearse(model, tables), noise=noise.origin, opendp=opendp_version()
    )


def _read_entries(db: Relations, params: Randomize) -> tuple[Any, Any]:
    """Return combination and value of every record, as many as there are records: no time or size shows a value."""
    text = exp.cast(column("s0"), "VARCHAR")
    known, listed = db.rows(exp.select(text).from_(temp_table("domain")).order_by("code")), params.listed
    place = np.array([listed.find_code(value) for (value,) in known], dtype=np.int64)
    rows = db.arrow(exp.select(column("combination"), column("code")).from_(temp_table("combined")))
    combination, code = (rows[name].to_numpy().astype(np.int64) for name in rows.column_names)
    return combination, place[code]


def count_facts(rule: TablesRule, tables: Sequence[NoisyTable]) -> dict[str, Any]:
    """Return what the manifest states of the tables."""
    return {
        "epsilon": fraction_text(rule.epsilon),
        "combinations": len(rule.codes.sizes),
        "tables": len(tables),
        "chosen": sum(one.choice is not None for one in tables),
        "cells": sum(one.counts.size for one in tables),
    }


def weighted_view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are about the estimates."""
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


# Checks ---------------------------------------------------------------------------------------------------------------
# The checks of noisy tables: exact fractions and integers; verify fits the weights anew.

NEAR, CLOSE = 0.02, 1e-4  # mean distance of refitted weights from published ones; of sums of weights from 1


def read_published(db: Relations, manifest: Manifest, database: str | None) -> tuple[TablesRule, list[NoisyTable]]:
    """Return the rule of a release and its tables; an error of ``BROKEN`` where they are damaged."""
    codes = read_codes(db, manifest.roles, table(PEOPLE, database))
    rule = make_rule(Randomize.model_validate(manifest.parameters), codes)
    cliques = db.arrow(all_rows(table(CLIQUES, database)).order_by("clique"))
    cells = db.arrow(all_rows(table(MARGINALS, database)).order_by("clique", "cell"))
    return rule, read_noisy_tables(cliques, cells, codes.table_names, rule.cell_counts, SUBSTITUTION)


def read_weights(db: Relations, rule: TablesRule, database: str | None) -> Any:
    """Return the weights of every combination (rows, K)."""
    order = [column("combination"), column("code")]
    weights = db.arrow(exp.select(column("weight")).from_(table(WEIGHTS, database)).order_by(*order))["weight"]
    return weights.to_numpy().reshape(len(rule.codes.sizes), rule.values)


def check_tables(release: TablesRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, Callable[..., list[str] | exp.Query]] = {
        "tables and choices spend epsilon together": _wrong_budget,
        "tables are those of the public rule": (
            lambda _, rule, found: checks.differ_from_due(found, rule.due_tables(found))
        ),
        "scales are those of the budgets, for two counts of a table": (
            lambda one, _, found: checks.wrong_table_scales(one, found)
        ),
        "values are those of the specification": _wrong_values,
        "facts are those of the tables": lambda one, rule, found: private.wrong_facts(one, count_facts(rule, found)),
        "numbers of records are those of the quasi-identifiers": (
            lambda one, rule, _: one.compare_records(int(rule.codes.sizes.sum()))
        ),
        "weights of every combination add up to 1": _wrong_weights,
    }
    people_order = in_order(release.view(PEOPLE), [*release.roles.qi_keys, "combination"], strict=False)
    return [
        *_check_published(release, named),
        *release.check_orders(TABLE_ORDERS | {"weights": ["combination", "code"], "values": ["code"]}),
        *release.list_checks({"rows of people lie in order": people_order}),
        *release.list_checks({private.OPENDP_CHECK: private.unknown_opendp}),
    ]


def _check_published(release: TablesRelease, named: Mapping[str, Callable[..., list[str] | exp.Query]]) -> list[Check]:
    return checks.check_published(
        release, "tables", lambda one: read_published(one.db, one.manifest, one.database), named
    )


def refit_checks(release: TablesRelease) -> list[Check]:
    """Return the check that takes as long as publishing: the weights follow from the tables."""
    return _check_published(release, {"weights are fitted to the tables": _wrong_fit})


def _wrong_budget(release: TablesRelease, rule: TablesRule, tables: Sequence[NoisyTable]) -> list[str]:
    spent, due = rule.sum_budgets(tables), release.params.spent_epsilon
    return [] if spent == due else [f"spent {spent}, not {due}"]


def _wrong_values(release: TablesRelease, *_: object) -> list[str]:
    """Return values that are not the public list."""
    listed = exp.select(column("code"), exp.cast(column("s0"), "VARCHAR")).from_(release.view("values"))
    due = release.params.listed.list_texts(release.roles.sensitive[0].type)
    right = release.db.rows(listed.order_by("code")) == [*enumerate(due)]
    return [] if right else ["the listed values are others"]


def _wrong_weights(release: TablesRelease, rule: TablesRule, _: object) -> exp.Query:
    numbers = {"combinations": len(rule.codes.sizes), "listed": rule.values, "close": CLOSE}
    return release.fill_query("verify/weights_sum", **{name: exp.Literal.number(n) for name, n in numbers.items()})


def _wrong_fit(release: TablesRelease, rule: TablesRule, tables: Sequence[NoisyTable]) -> list[str]:
    stated = read_weights(release.db, rule, release.database)
    far = np.abs(refit_tables(tables, rule).weights - stated).sum(axis=1)
    mean = float(far @ rule.codes.sizes / rule.codes.sizes.sum())
    return [] if mean <= NEAR else [f"weights lie {mean:.3f} from those that the tables give"]


# Answers --------------------------------------------------------------------------------------------------------------
# An answer is a sum of weights. The coefficients of a rehearsal, which the release states, give its standard error.

FORMULA = (
    "estimate = sum over the matching records and values of w, the weight of a value for a record's combination of "
    "quasi-identifiers (privsql_weights, fitted to the noisy tables)"
)


class TablesAnswers(ListedAnswers):
    """An open release that answers questions as a bucketized one does; those of quasi-identifiers alone exactly."""

    records, formulas = PEOPLE, {"reconstructed": FORMULA}
    estimators: ClassVar[tuple[str, ...]] = ("reconstructed",)

    parse_sql = answer.Answers.parse_sql

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        return self._sums_query(read_question(query, self.unlisted).query), FORMULA

    @cached_property
    def unlisted(self) -> list[UnlistedColumn]:
        """Return what stands for the values that are not listed."""
        rule, tables = self._published
        params, (field,) = Randomize.model_validate(self._manifest.parameters), self._roles.sensitive
        stand_in, other = find_unlisted(field.type, params.values), len(params.values)
        if stand_in is None:
            return []
        measured = [one for k, one in combine_tables(tables, rule.values).items() if k < rule.columns]
        occurs = any(counts[:, other].sum() > SURE * (len(counts) * variance) ** 0.5 for counts, variance in measured)
        return [UnlistedColumn(field, params.values, stand_in, occurs, not params.null_is_value)]

    @property
    def _values(self) -> exp.Expr:
        """Return ``privsql_values`` with what stands for the values that are not listed."""
        if not self.unlisted or self.unlisted[0].is_text:
            return table(VALUES)
        (one,), code = self.unlisted, self._roles.by_sa.column_name("code")
        held = one.name_value(column(one.field.name), column(code).eq(exp.Literal.number(len(one.labels))))
        return exp.select(column(code), alias_as(held, one.field.name)).from_(table(VALUES)).subquery("listed")

    def answer_reading(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Return the rows of an estimate, one for each group."""
        rows = self._db.arrow(self._sums_query(query))
        names = [f"g_{i}" for i in range(len(query.groups))]
        keys = rows.select(names).to_pylist() if names else [{}] * len(rows)
        groups = [tuple(same_nan(key[name]) for name in names) for key in keys]
        sums = WeightedSums.read(rows)
        if not groups or not sums.known.any():
            return empty_estimates(query)
        return self._estimate_groups(query, groups, sums, confidence)

    def _estimate_groups(
        self, query: CountQuery, groups: list[tuple[Any, ...]], sums: WeightedSums, confidence: float
    ) -> list[Estimate]:
        records = self._manifest.published_records
        facts = TablesFacts.model_validate(self._manifest.facts)
        measured = self._measured_counts(query) if query.measure.amount is None else {}
        known = np.array([group in measured for group in groups])
        error = standard_errors(facts.coefficients, known, sums.known, sums.n, sums.nn, records)
        level = ConfidenceLevel(confidence)
        counts = CountBounds(sums.n[:, None], error[:, None] ** 2, np.zeros((len(groups), 1)), sums.known[:, None])
        if query.measure.amount is None:
            rows = count_groups(groups, counts, level)
            return [measured[one.group].set_interval(one, confidence) if one.group in measured else one for one in rows]
        widening = (error**2 / np.maximum(sums.nn, 1e-9)).clip(1)
        value, _, variance = sums.measure_amounts(query.measure.kind)
        figures = sums.bound_amounts(query, value, variance * widening, counts, level)
        return [Estimate(group, *row) for group, row in zip(groups, figures, strict=True)]

    @cached_property
    def _published(self) -> tuple[TablesRule, list[NoisyTable]]:
        with refuse_damaged():
            return read_published(self._db, self._manifest, self._database)

    def _measured_counts(self, query: CountQuery) -> dict[tuple[Any, ...], MeasuredCount]:
        """Return by group of an answer the least noisy sum of measured cells that it is, if it is one."""
        if query.predicate is not None or query.lookups:
            return {}
        rule, tables = self._published
        roles, sides = self._roles, [group.side for group in query.groups]
        people, members = self._read_side(query, "qi", table(PEOPLE), roles.by_qi.as_column("combination"))
        listed, codes = self._read_side(query, "sa", self._values, roles.by_sa.as_column("code"))
        wanted, found = np.zeros((len(listed), rule.values)), dict[tuple[Any, ...], MeasuredCount]()
        wanted[codes] = 1
        more = 2 * wanted.sum(axis=1, keepdims=True) > rule.values  # then all others are counted, and taken off
        few = np.where(more, 1 - wanted, wanted)
        for k, (counts, variance) in combine_tables(tables, rule.values).items():
            budgets = tuple(one.budget for one in tables if one.columns == (k,))
            whole = np.bincount(rule.codes.tables[k].cells, rule.codes.sizes)
            for at, cells in rule.codes.tables[k].find_unions(rule.codes.sizes, *members).items():
                records, sums = float(whole[cells].sum()), few @ counts[cells].sum(axis=0)
                noisy = np.where(more[:, 0], records - sums, sums).tolist()
                for key, count, number in zip(listed, noisy, few.sum(axis=1).tolist(), strict=True):
                    left, right = iter(people[at]), iter(key)
                    group = tuple(next(left) if side == "qi" else next(right) for side in sides)
                    one = MeasuredCount(count, records, int(number) * len(cells), variance, budgets)
                    if group not in found or one.deviation < found[group].deviation:
                        found[group] = one
        return found

    def _read_side(
        self, query: CountQuery, side: Side, relation: exp.Expr, code: exp.Expr
    ) -> tuple[list[tuple[Any, ...]], tuple[Any, Any]]:
        """Return the groups of one side, and of every pair of group and code that the question meets both."""
        names = [name for name, _ in group_terms(query, side)]
        chosen = exp.select(*select_terms(query, side), alias_as(code, "code")).distinct().from_(relation)
        rows = self._db.arrow(chosen.where(all_of(query.filters[side])))
        keys = [tuple(same_nan(row[name]) for name in names) for row in rows.select(names).to_pylist()]
        places: dict[tuple[Any, ...], int] = {}
        at = np.array([places.setdefault(key, len(places)) for key in keys or [()] * len(rows)], dtype=np.int64)
        return list(places), (at, rows["code"].to_numpy().astype(np.int64))

    def _sums_query(self, query: CountQuery) -> exp.Query:
        amount, roles = query.measure.amount, self._roles
        holes: Holes = {
            "people": query.join_lookups(table(PEOPLE)),
            "weights": table(WEIGHTS),
            "values": self._values,
            "combination": roles.by_qi.as_column("combination"),
            "code": roles.by_sa.as_column("code"),
            "names": [column(name) for name, _ in group_terms(query, "qi")],
            "groups": [column(f"g_{i}") for i in range(len(query.groups))],
            "predicate": query.predicate or exp.true(),
            "amount": exp.cast(amount, "DOUBLE") if amount is not None else exp.cast(exp.Literal.number(1), "DOUBLE"),
        }
        return fill("randomize/believed", holes | side_holes(query))


# Attacks --------------------------------------------------------------------------------------------------------------
# Who knows everything else is held to epsilon; who learns from the release has what is true of the population.

INFORMED, TOGETHER = "informed", "two releases"
INFORMED_KNOWS = "the quasi-identifiers of all records, and the values of all others; even odds before"
TOGETHER_KNOWS = "the same, and both releases"
WITHOUT, WITHOUT_KNOWS = "learning from others", "as above, but from tables without the record's own value"
HELD_OUT = 0.1  # share of the records that are predicted from all others


def spent_exponent(db: Relations, manifest: Manifest, database: str | None) -> float:
    """Return by how much the log-odds of a value can move: 2/scale for each table, and what choices spent."""
    rows = db.rows(fill("attack/tables", {"cliques": table(CLIQUES, database)}))
    params = Randomize.model_validate(manifest.parameters)
    measured = sum((SUBSTITUTION.moved / Fraction(width) for width, _ in rows), start=Fraction(0))
    pairs = len(manifest.quasi_identifiers) > 1  # then all choices are made, whatever they choose
    return float(measured + (CHOOSING * params.spent_epsilon if pairs else 0))


def attack_informed(learnt: AttackContext[Any]) -> list[Finding]:
    """Return the belief in a value that was as likely as not, if all noise points the same way; it is promised."""
    view = learnt.view
    exponent = spent_exponent(view.db, view.manifest, view.database)
    epsilon = float(Randomize.model_validate(view.manifest.parameters).spent_epsilon)
    reached = reach_of(0.5, exponent)
    above = float(exponent > epsilon * (1 + 1e-12))
    notes = (f"epsilon {epsilon:g} promises at most {reach_of(0.5, epsilon):.1%} for any value and any set of values",)
    return [
        Finding(
            INFORMED, INFORMED_KNOWS, promised=True, attacked=view.manifest.published_records,
            mean=reached, highest=reached, above=above, baseline=0.5, notes=notes,
        )
    ]  # fmt: skip


def attack_by_weights(learnt: AttackContext[Any]) -> list[Finding]:
    """Return what the published weights say of records; with the source, how often that is right, and of others."""
    view = learnt.view
    with refuse_damaged():
        rule, tables = read_published(view.db, view.manifest, view.database)
        weights = read_weights(view.db, rule, view.database)
    sizes, epsilon = rule.codes.sizes, float(rule.epsilon)
    best, records = weights.max(axis=1), sizes.sum()
    without = best * np.exp(-epsilon) / (1 - best + best * np.exp(-epsilon))
    notes = (f"of the mean, others' values alone account for {float(without @ sizes / records):.1%} or more",)
    finding = Finding(
        LEARNING, LEARNING_KNOWS, promised=False, attacked=int(records), mean=float(best @ sizes / records),
        highest=float(best.max()), baseline=float((sizes @ weights).max() / records), notes=notes,
    )  # fmt: skip
    if not view.source:
        return [finding]
    combination, truth = read_truth(view)
    held = view.noise.random(len(truth)) < HELD_OUT
    found = replace(finding, **_compare_beliefs(weights, combination, truth))
    if held.all() or not held.any():
        few = ("too few records to leave some out",)
        return [found, Finding(WITHOUT, WITHOUT_KNOWS, promised=False, applies=False, notes=few)]
    without_them = learn_from_others(rule, tables, combination[held], truth[held])
    best = without_them[combination[held]].max(axis=1)
    others = replace(
        finding, adversary=WITHOUT, knows=WITHOUT_KNOWS, attacked=int(held.sum()), mean=float(best.mean()),
        highest=float(best.max()), notes=(), **_compare_beliefs(without_them, combination[held], truth[held]),
    )  # fmt: skip
    return [found, others]


def learn_from_others(rule: TablesRule, tables: Sequence[NoisyTable], combination: Any, truth: Any) -> Any:
    """Return the weights by noisy tables without some records, with the release's noise."""
    left = rule.codes.sizes - np.bincount(combination, minlength=len(rule.codes.sizes))
    others = []
    for one in tables:
        flat = rule.codes.tables[one.columns[0]].cells[combination] * rule.values + truth
        others.append(replace(one, counts=one.counts - np.bincount(flat, minlength=one.counts.size)))
    return refit_tables(others, replace(rule, codes=replace(rule.codes, sizes=left))).weights


def _compare_beliefs(weights: Any, combination: Any, truth: Any) -> dict[str, Any]:
    """Return how often the likeliest value is right, and the mean belief in the true one."""
    right = float((weights.argmax(axis=1)[combination] == truth).mean())
    return {"right": right, "true_mean": float(weights[combination, truth].mean())}


def read_truth(view: ReleaseView) -> tuple[Any, Any]:
    """Return combination and value of every record of the source."""
    keys = [exp.Ordered(this=one, nulls_first=False) for one in view.roles.qi_columns("r")]
    rows = view.db.arrow(fill("attack/valued", {"records": temp_table("records").as_("r"), "order": keys}))
    listed = Randomize.model_validate(view.manifest.parameters).listed
    truth = np.array([listed.find_code(value) for value in rows["value"].to_pylist()], dtype=np.int64)
    return rows["combination"].to_numpy(), truth


def attack_together(series: ReleaseSeries) -> list[Finding]:
    """Return the same belief from several releases of the people: their epsilons add up."""
    pairs = zip(series.manifests, series.databases, strict=True)
    reached = reach_of(0.5, sum(spent_exponent(series.db, manifest, place) for manifest, place in pairs))
    records = min(one.published_records for one in series.manifests)
    return [
        Finding(TOGETHER, TOGETHER_KNOWS, promised=False, attacked=records, mean=reached, highest=reached, baseline=0.5)
    ]


# The mechanism --------------------------------------------------------------------------------------------------------

MADE = (
    "Quasi-identifiers are published as they are. Sensitive values are counted by one or two quasi-identifiers, with "
    "random noise on every count. All else that is published of values follows from these counts."
)
NOT = (
    LEARNT,
    "The release shows who is in the table, with which quasi-identifiers.",
    "An attacker whose knowledge ties records together, such as that two of them have the same value, learns more.",
    "A person with several records has that many times epsilon. The epsilons of several releases add up.",
    "Nothing is promised beside a release of the same people with exact frequencies, or with values in groups.",
)


def explain_tables(params: Randomize) -> ReleasePromises:
    """Return what noisy tables promise, in sentences."""
    epsilon = params.spent_epsilon
    priors = [*params.declared_shares.values()] or TYPICAL
    ends = dict.fromkeys((min(priors), max(priors)))
    moves = ", ".join(f"from {float(f):.3g} to at most {reach_of(f, epsilon):.3g}" for f in ends)
    bound = (
        "An attacker who knows the quasi-identifiers of all records and the values of all others, or takes records to "
        "be independent, can move the odds of a record's value, or set of values, by a factor of at most "
        f"e^{fraction_text(epsilon)}. Belief moves {moves}."
    )
    return ReleasePromises((MADE, bound), NOT)


class ListedShape(TableShape):
    """A table whose sensitive values are a public list, which the parameters state."""

    def listed(self, params: Randomize) -> ListedValues:
        """Return the list, with what stands for all other values."""
        return params.listed


class ValueBudget(BudgetComposition[Randomize]):
    """The budget of one value of a record, with pure noise; who is in the table is published."""

    unit = "value"

    def epsilon(self, params: Randomize) -> Fraction:
        """Return the epsilon that a release spends."""
        return params.spent_epsilon

    def delta(self, params: Randomize) -> Fraction:
        """Return 0: the noise is pure."""
        return Fraction(0)

    def rho(self, params: Randomize) -> None:
        """Return None: the noise is pure."""


class LabelTables(PrivateMechanism[Randomize, TablesFacts]):
    """Noisy tables of sensitive values by one or two quasi-identifiers, which are published as they are."""

    kind = "randomize"
    algorithms = ("tables",)
    parameters = Randomize
    facts = TablesFacts
    shape = ListedShape(numeric=False, most_numbers=None)
    composition = ValueBudget()
    layout = TABLES
    advice = ("a smaller epsilon", "fewer or coarser quasi-identifiers")

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Raise ``UsageError``: the list of values is public knowledge, and never read from the records."""
        raise UsageError("algorithm 'tables' needs a public list of values, which init does not read from the records")

    def plan(self, db: Relations, source: Records, params: Randomize) -> TablesPlan:
        """Return tables, cells and noise, which the quasi-identifiers tell; no value of a record is looked at."""
        return plan_tables(db, source, params)

    def publish(self, db: Relations, source: Records, params: Randomize, key: Key) -> TablesFacts:
        """Publish the quasi-identifiers, the noisy tables, and weights of values that fit these."""
        return publish_tables(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Randomize) -> None:
        """Accept the columns: their types decide nothing, and ``checks`` compares the values with the list."""

    def views(self, manifest: Manifest) -> Views:
        """Return the view of every record beside every value, by the weights."""
        return {WEIGHTED: weighted_view(manifest)}

    def checks(self, release: TablesRelease) -> list[Check]:
        """Return the checks of the tables: their budgets, rule and scales, values, weights and facts."""
        return check_tables(release)

    def long_checks(self, release: TablesRelease) -> list[Check]:
        """Return the check that the weights are those that a fit to the tables gives."""
        return refit_checks(release)

    def source_checks(self, release: TablesRelease, source: Records, params: Randomize) -> list[Check]:
        """Return the check that quasi-identifiers are those of the source; of its values nothing can be checked."""
        return release.list_checks(
            {"quasi-identifiers are those of the source": release.compare_people(source, PEOPLE)}
        )

    def bounds(self, release: TablesRelease) -> list[VerifiedBound]:
        """Return epsilon for one value that is substituted: all of the budget is spent."""
        epsilon = fraction_text(release.params.spent_epsilon)
        return [VerifiedBound("one value, substituted: epsilon", epsilon, epsilon, belief=False)]

    def answers(self, db: Relations, manifest: Manifest) -> TablesAnswers:
        """Return the release as one that answers by the weights."""
        return TablesAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors of a workload of questions."""
        return by_questions(context)

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows everything but one value, and the attacker who learns from the weights."""
        return (
            Adversary(INFORMED, INFORMED_KNOWS, promised=True, attack=attack_informed),
            Adversary(LEARNING, LEARNING_KNOWS, promised=False, attack=attack_by_weights),
        )

    def joint_attacks(self) -> tuple[JointAttack, ...]:
        """Return the attack by two releases of who knows everything but one value: their epsilons add up."""
        return (attack_together,)

    def promise(self, params: Randomize) -> str:
        """Return by how much the odds of a value can move."""
        return f"odds of a value times at most e^{fraction_text(params.spent_epsilon)}"

    def words(self, params: Randomize) -> ReleasePromises:
        """Return what epsilon promises of a value, from the declared priors, and what it does not."""
        return explain_tables(params)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the noisy tables: by which columns, how many counts, and their noise."""
        return tables_structure(db, manifest)
