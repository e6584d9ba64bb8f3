"""The mechanisms for item sets: DiffPart and noisy views."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from privsql.answers.answer import ESTIMATORS
from privsql.attacks.suite import Adversary, AttackContext
from privsql.dp_random import noise_for, opendp_version, table_noise_for
from privsql.engine.sqlfiles import all_of, all_rows, fill, table, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.base import WEIGHTED, ItemSetShape, Proposal, Views
from privsql.mechanisms.diffpart import tables as diffpart_release
from privsql.mechanisms.diffpart import tree as diffpart
from privsql.mechanisms.diffpart.tables import DiffPart
from privsql.mechanisms.dp import tables as noisy_tables_release
from privsql.mechanisms.dp.checks import attack_noisy_tables
from privsql.mechanisms.dp.mechanism import (
    KNOWS,
    MEMBERSHIP,
    RECORD,
    PrivateMechanism,
    find_law,
    refuse_damaged,
    total_budget,
    write_release_table,
)
from privsql.mechanisms.dp.noisy_tables import LeastSquares
from privsql.mechanisms.views import checks
from privsql.mechanisms.views import evaluation as questions
from privsql.mechanisms.views import model as views_model
from privsql.mechanisms.views import plan as views
from privsql.mechanisms.views.answers import ViewAnswers
from privsql.mechanisms.views.parameters import (
    TINY_UNIVERSE,
    ItemSetTreeFacts,
    ItemSetTreePlan,
    SetValued,
    ViewFacts,
    ViewPlan,
)
from privsql.model.tables import SETS, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.sql.question import CountQuery
    from privsql.attacks.scene import AttackView, Finding
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import ProfiledSource
    from privsql.mechanisms.diffpart.tree import Ints, PartitionTree, Taxonomy, TreeRule
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.views.plan import ItemChoice
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.estimates import Estimate
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.model.universes import Universe

# Item sets ------------------------------------------------------------------------------------------------------------


class ItemUniverse(ItemSetShape[SetValued]):
    """Item sets over the universe that the parameters state."""

    def universe(self, params: SetValued) -> Universe:
        """Return where the items are listed."""
        return params.universe


ITEMS = ItemUniverse()
ADVICE = ("a smaller epsilon", "a public universe of items: those that occur tell of records that hold a rare one")


def propose_items() -> Proposal:
    """Propose an epsilon of 1, and the items that occur as the universe."""
    return Proposal(
        {"kind": "setvalued", "epsilon": "1", "universe": "data"},
        (RECORD, "Better than 'data' is a public list, or { query = ... }: the items that occur are not protected."),
    )


# DiffPart -------------------------------------------------------------------------------------------------------------

TABLES = {
    "itemsets": ReleaseTable(("part INTEGER", SETS, "count BIGINT")),
    questions.UNIVERSE: views.TABLES[questions.UNIVERSE],
    **diffpart_release.TREE_TABLES,
}


def items_taxonomy(items: int, params: SetValued) -> Taxonomy:
    """The context-free taxonomy of so many items, which are its first nodes."""
    parents = diffpart.context_free_parents(items, params.fan_out)
    return diffpart.make_taxonomy(np.zeros_like(parents), parents, sets=True)


def plan_tree(source: Records, params: SetValued) -> ItemSetTreePlan:
    """Return what is known without looking at the records: taxonomy, budgets and thresholds at the root."""
    taxonomy = items_taxonomy(len(source.labels), params)
    rule, root = checks.make_rule(params, taxonomy), int(taxonomy.roots[0])
    first = diffpart.first_expansion(rule, taxonomy)
    last = taxonomy.inner[root] == 1
    spent, branches = first.leaf if last else first.inner, int(taxonomy.branches[root])
    return ItemSetTreePlan(
        epsilon=fraction_text(params.epsilon),
        items=len(source.labels),
        inner_nodes=int(taxonomy.inner[root]),
        height=int(taxonomy.height[root]),
        first_budget=fraction_text(spent),
        first_threshold=rule.least_size(spent, branches, int(taxonomy.height[root]), leaf=bool(last)),
    )


def bound_noise(rule: TreeRule, taxonomy: Taxonomy) -> questions.Usefulness:
    """The least budget of a count and the largest threshold of any part, whatever the data.

    More specific parts spend more (appendix F.2), so the root's first expansion spends least: B/2 over the number of
    inner nodes (Theorem 4.1).
    """
    first = diffpart.first_expansion(rule, taxonomy)
    inner, different = taxonomy.inner[-1] > 1, diffpart.distinct_rows(taxonomy.branches, taxonomy.height)[0]
    kinds = [(branches, height) for branches, height in different if height]
    leaves = [rule.least_size(rule.epsilon / 2, *kind, leaf=True) for kind in kinds]
    parts = [rule.least_size(first.inner, *kind, leaf=False) for kind in kinds] if inner else []
    return questions.Usefulness(first.inner if inner else first.leaf, max([*leaves, *parts]))


def publish_tree(db: Relations, source: Records, params: SetValued, key: Key) -> ItemSetTreeFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    choose = key.random_generator("setvalued", len(source.labels), fraction_text(params.epsilon))
    noise = noise_for(key)
    taxonomy = items_taxonomy(len(source.labels), params)
    rule = checks.make_rule(params, taxonomy)
    sets = questions.read_sets(source)
    source.drop_relations()
    records = diffpart.PartitionedRecords.generalize(sets.owners, sets.codes, sets.weights.astype(np.int64), taxonomy)
    tree = diffpart.grow_tree(records, taxonomy, rule, noise, choose)
    diffpart.require_remaining(tree, params, "item set", "fewer items")
    items = db.arrow(all_rows(temp_table("universe")).order_by("code"))["item"].combine_chunks()
    write_release_table(
        db,
        "itemsets",
        _leaf_sets(tree, taxonomy, items),
        fill(
            "setvalued/itemsets",
            {"given": temp_table("given"), **questions.name_columns(source.roles, "part", "count")},
        ),
        title="Writing the sets",
    )
    diffpart_release.write_tree(db, tree, taxonomy, [*source.labels, *[None] * int(taxonomy.inner[-1])])
    db.create_table(questions.UNIVERSE, fill("setvalued/items", {"universe": temp_table("universe")}), into="release")
    return ItemSetTreeFacts(**checks.tree_facts(params, tree, taxonomy), noise=noise.origin, opendp=opendp_version())


def _leaf_sets(tree: PartitionTree, taxonomy: Taxonomy, items: pa.Array) -> pa.Table:
    """The item sets of the leaves: part, items, count."""
    which, codes = diffpart.leaf_values(tree, taxonomy)
    offsets = np.searchsorted(which, np.arange(len(tree.leaves) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(codes)))
    parts, counts = pa.array(tree.leaves, pa.int32()), pa.array(tree.size[tree.leaves], pa.int64())
    return pa.table({"part": parts, "items": lists, "count": counts})


class ItemSetTreeAnswers(questions.ItemAnswers, diffpart_release.TreeAnswers):
    """An open release that answers count queries over items."""

    records = values = "itemsets"
    formulas: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ESTIMATORS, diffpart_release.FORMULA.format(leaves="item sets")
    )

    @property
    def published_sets(self) -> questions.WeightedSets:
        """All published sets with their counts."""
        return self._published_parts[1]

    @cached_property
    def usefulness(self) -> questions.Usefulness:
        """Return what bounds its errors."""
        params = SetValued.model_validate(self._manifest.parameters)
        taxonomy = items_taxonomy(len(self.item_labels), params)
        return bound_noise(checks.make_rule(params, taxonomy), taxonomy)

    @cached_property
    def _published_parts(self) -> tuple[Ints, questions.WeightedSets]:
        """All published sets with their counts, and the part of each."""
        rows, items = self._db.arrow(self._sets_inside), self._read_table(questions.UNIVERSE, "code")["item"]
        with refuse_damaged():
            sets = questions.WeightedSets.from_lists(rows["items"], rows["count"], items.combine_chunks())
        return diffpart_release.as_integers(rows["part"], -1), sets

    def make_synthetic(self) -> pa.Table:
        """The published sets as records, (record, item) in order; the empty have none."""
        rows = self._db.arrow(self._sets_inside)
        return questions.repeat_sets(rows["items"], rows["count"])

    def top_sets(self, number: int, estimator: str) -> list[tuple[tuple[int, ...], float]]:
        """The item sets with most published records: their codes, ascending, and how many these are."""
        self.require_estimator(estimator)
        return self.published_sets.top_sets(number)

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """The number of records that contain all of some items."""
        self.require_estimator(estimator)
        part, sets = self._published_parts
        met = sets.sets_with_all(codes)
        return self.make_estimate((), part[met], sets.weights[met].astype(np.int64), confidence)

    def _matching_query(self, query: CountQuery) -> exp.Query:
        condition = all_of([*query.filters["qi"], *query.filters["sa"]])
        return fill("duckdb/met", {"sets": self._sets_inside.subquery("sets"), "condition": condition})

    @property
    def _sets_inside(self) -> exp.Select:
        """The published sets by part, with columns under their names inside."""
        rows = TABLES["itemsets"].select_inside(self._roles, table("itemsets", self._database))
        return rows.order_by(self._roles.by_sa.as_column("part"))


class ItemDiffPart(DiffPart[SetValued, ItemSetTreeFacts]):
    """DiffPart for item sets: the cuts of a context-free taxonomy of the items partition the records."""

    kind = "setvalued"
    algorithms = ("diffpart",)
    parameters = SetValued
    facts = ItemSetTreeFacts
    shape = ITEMS
    layout = TABLES
    advice = ADVICE
    leaves = "item sets"

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1, and the items that occur as the universe."""
        return propose_items()

    def plan(self, db: Relations, source: Records, params: SetValued) -> ItemSetTreePlan:
        """Return the taxonomy of the items, and budget and threshold of the first counts; no record is looked at."""
        return plan_tree(source, params)

    def publish(self, db: Relations, source: Records, params: SetValued, key: Key) -> ItemSetTreeFacts:
        """Grow the tree, and publish it with the item sets of its leaves and their noisy counts."""
        return publish_tree(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: SetValued) -> None:
        """Raise ``UsageError`` unless a release has one column of items, and no other."""
        checks.require_items(manifest)

    def views(self, manifest: Manifest) -> Views:
        """Return the published sets with their counts as weights."""
        return {WEIGHTED: questions.weighted_sets(manifest, "itemsets", "count")}

    def checks(self, release: CheckedRelease[SetValued, ItemSetTreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets of every path, thresholds, scales, leaves and facts."""
        return checks.tree_checks(release)

    def source_checks(
        self, release: CheckedRelease[SetValued, ItemSetTreeFacts], source: Records, params: SetValued
    ) -> list[Check]:
        """Return the check that the universe is the specification's; a private release tells no more of its source."""
        return questions.set_source_checks(release, source)

    def answers(self, db: Relations, manifest: Manifest) -> ItemSetTreeAnswers:
        """Return the release as one that adds up the counts of its leaves."""
        return ItemSetTreeAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of the most frequent items and item sets."""
        return questions.evaluate_answers(context)


# Views ----------------------------------------------------------------------------------------------------------------


def plan_views(source: Records, params: SetValued) -> ViewPlan:
    """Return what is known without looking at the records: what is measured, at most, and with which budgets."""
    items = len(source.labels)
    wanted = views.declared_sets(params, source.labels)
    make_plan = partial(
        ViewPlan, epsilon=fraction_text(params.epsilon), items=items, measured_at_most=min(items, TINY_UNIVERSE)
    )
    if items > TINY_UNIVERSE:
        records, choice = views.TOTAL * total_budget(params), views.CHOICE * total_budget(params)
        choice *= len(views.named_first(wanted)) < TINY_UNIVERSE
        return make_plan(
            records_budget=fraction_text(records),
            choice_budget=fraction_text(choice),
            tables_budget=fraction_text(total_budget(params) - records - choice),
        )
    due = views.lay_out_all(items, params, wanted)
    cells = sum(1 << len(places) for places, _ in due)
    return make_plan(tables=len(due), cells=cells, tables_budget=fraction_text(total_budget(params)))


def publish_views(db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = table_noise_for(key, find_law(params))
    wanted = views.declared_sets(params, source.labels)
    sets = questions.read_sets(source)
    source.drop_relations()
    choice, measured = views.measure_views(sets, params, wanted, noise)
    fitted = LeastSquares(measured, [2] * len(choice.codes))
    _require_information(fitted, params)
    written = _write_views(db, source, choice, measured, views_model.fit_population(fitted))
    facts = checks.view_facts(params, fitted, len(source.labels), written)
    return ViewFacts(**facts, noise=noise.origin, opendp=opendp_version())


def _require_information(fitted: LeastSquares, params: SetValued) -> None:
    """``InfeasibleError`` where numbers of records with an item are noise, unless that is wanted."""
    items, having = range(len(fitted.sizes)), np.array([0.0, 1.0])
    alone = np.sqrt([fitted.sum_variance((place,), having) for place in items])
    total = max(fitted.total, 0.0)
    if alone.mean() > total and not params.allow_empty:
        raise InfeasibleError(
            f"the counts would be noise: that of the records with an item has a standard error of {alone.mean():,.0f} "
            "on average, too large for the records that there are; a larger epsilon or fewer items would help, and "
            f"mechanism.allow_empty = true publishes it anyway; epsilon {fraction_text(params.epsilon)} was drawn and "
            "is spent"
        )


def _write_views(
    db: Relations, source: Records, choice: ItemChoice, measured: list[NoisyTable], population: Any
) -> int:
    """The tables of a release; how many sets its synthetic records have."""
    universe = temp_table("universe")
    items = db.arrow(all_rows(universe).order_by("code"))["item"].combine_chunks()
    sets = views.sets_table(population, choice, items)
    labels = [source.labels[code] for code in choice.codes.tolist()]
    fitted = fill("setvalued/fitted", {"given": temp_table("given"), **questions.name_columns(source.roles, "weight")})
    write_release_table(db, views.SETS, sets, fitted, title="Writing the sets")
    chosen = fill("setvalued/measured", {"given": temp_table("given"), "universe": universe})
    write_release_table(db, views.CHOSEN, views.choice_table(choice, measured[0].law), chosen)
    noisy_tables_release.write_noisy_tables(db, measured, labels)
    db.create_table(questions.UNIVERSE, fill("setvalued/items", {"universe": universe}), into="release")
    return int(sets.num_rows)


def attack_views(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the belief that a record is in the tables, by their counts and by what all choices of items spend."""
    view = learnt.view
    budgets = view.db.arrow(all_rows(table(views.CHOSEN, view.database)))["budget"].to_pylist()
    choices = sum((Fraction(one) for one in budgets if one is not None), start=Fraction(0))
    return attack_noisy_tables(view, float(choices))


class ItemViews(PrivateMechanism[SetValued, ViewFacts]):
    """Noisy views of item sets: tables over few items each, and sets that fit all of them."""

    kind = "setvalued"
    algorithms = ("views", "basic")
    parameters = SetValued
    facts = ViewFacts
    shape = ITEMS
    layout = views.TABLES
    advice = ADVICE

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1, and the items that occur as the universe."""
        return propose_items()

    def plan(self, db: Relations, source: Records, params: SetValued) -> ViewPlan:
        """Return what is measured, at most, and with which budgets; no record is looked at."""
        return plan_views(source, params)

    def publish(self, db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
        """Measure the views, and publish them with the sets of a population that fits them."""
        return publish_views(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: SetValued) -> None:
        """Raise ``UsageError`` unless a release has one column of items, and no other."""
        checks.require_items(manifest)

    def views(self, manifest: Manifest) -> Views:
        """Return the published sets with their weights."""
        return {WEIGHTED: questions.weighted_sets(manifest, views.SETS, "weight")}

    def checks(self, release: CheckedRelease[SetValued, ViewFacts]) -> list[Check]:
        """Return the checks of the views: their budgets, rule and scales, and the sets that fit them."""
        return checks.view_checks(release)

    def long_checks(self, release: CheckedRelease[SetValued, ViewFacts]) -> list[Check]:
        """Return no further checks: ``checks`` fits the population again."""
        return []

    def source_checks(
        self, release: CheckedRelease[SetValued, ViewFacts], source: Records, params: SetValued
    ) -> list[Check]:
        """Return the check that the universe is the specification's; a private release tells no more of its source."""
        return questions.set_source_checks(release, source)

    def answers(self, db: Relations, manifest: Manifest) -> ViewAnswers:
        """Return the release as one that answers from the tables and the population that fits them."""
        return ViewAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of the most frequent items and item sets."""
        return questions.evaluate_answers(context)

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows every other record and asks whether the last one is in the table."""
        return (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=attack_views),)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the noisy tables: by which items, how many counts, and their noise."""
        return noisy_tables_release.tables_structure(db, manifest)
