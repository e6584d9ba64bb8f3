"""Item sets as a ``Mechanism``: views and DiffPart, joined."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.attacks.suite import Suite
from privsql.dp_random import noise_for, opendp_version
from privsql.engine.sqlfiles import all_rows, column, fill, is_null, table, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.contract import ItemSetShape, Proposal, join_variants, weighted_only
from privsql.mechanisms.dp import noisy_tables_release, noisy_tree, noisy_tree_release
from privsql.mechanisms.dp.checks import noisy_tables_adversary
from privsql.mechanisms.dp.noisy_tables_release import tables_structure
from privsql.mechanisms.dp.noisy_tree_release import tree_structure
from privsql.mechanisms.private import (
    RECORD,
    PrivateMechanism,
    write_release_table,
)
from privsql.mechanisms.setvalued import diffpart_answers, views, views_model
from privsql.mechanisms.setvalued.checks import (
    SQL,
    demand_items,
    tree_checks,
    view_checks,
)
from privsql.mechanisms.setvalued.diffpart_answers import (
    WITHOUT,
    ItemSetTreeAnswers,
    as_lists,
    fit_estimator,
    impute_sets,
    taxonomy_table,
    tree_table,
    tree_view,
)
from privsql.mechanisms.setvalued.diffpart_tree import (
    Baskets,
    ItemSetTree,
    expansion_budget,
    generalize_baskets,
    grow_taxonomy,
    grow_tree,
    item_sets,
    least_noisy_size,
    without_items,
)
from privsql.mechanisms.setvalued.parameters import (
    TINY_UNIVERSE,
    ItemSetTreeFacts,
    ItemSetTreePlan,
    SetValued,
    ViewFacts,
    ViewPlan,
)
from privsql.mechanisms.setvalued.questions import evaluate_answers, set_source_checks
from privsql.mechanisms.setvalued.views import ViewBudgets
from privsql.mechanisms.setvalued.views_answers import ViewAnswers

if TYPE_CHECKING:
    from privsql.attacks.scene import ReleaseView
    from privsql.dp_random import CountNoise
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.contract import ProfiledSource
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.setvalued.diffpart_answers import ImputedSets
    from privsql.mechanisms.setvalued.diffpart_tree import ItemTaxonomy
    from privsql.mechanisms.setvalued.views import ItemChoice
    from privsql.mechanisms.setvalued.views_model import ParitySquares
    from privsql.model.records import Records

# The basic algorithm --------------------------------------------------------------------------------------------------
# The baseline: noise on the count of every one of the 2^I - 1 item sets (paper, section 4.1). Tiny universes only.


def flat_taxonomy(items: int, noise: Shuffler | None) -> ItemTaxonomy:
    """The taxonomy of one inner node; ``InfeasibleError`` if the universe is not tiny."""
    if items > TINY_UNIVERSE:
        raise InfeasibleError(
            f"algorithm 'basic' counts every set of items, 2^{items} of them; "
            f"it takes at most {TINY_UNIVERSE} items, 'diffpart' takes any number"
        )
    return grow_taxonomy(items, max(items, 2), noise)


def count_all(baskets: Baskets, taxonomy: ItemTaxonomy, params: SetValued, noise: CountNoise) -> ItemSetTree:
    """A tree of the root and all item sets with their noisy counts, whatever these are; epsilon for each."""
    number = 2**taxonomy.item_count
    masks = generalize_baskets(baskets, taxonomy).masks
    counts = np.bincount(masks, weights=baskets.weights, minlength=number)[1:].astype(np.int64)
    row = np.arange(number, dtype=np.int64)
    return ItemSetTree(
        parent=np.where(row > 0, 0, -1),
        mask=row,
        size=np.append(np.int64(0), noise.add_noise(counts, params.epsilon)),
        spent=np.where(row > 0, 0, -1),
        leaf=row > 0,
        next=np.where(row > 0, -1, 0),
        budgets=(params.epsilon,),
        empty=without_items(baskets.empty, params, noise),
    )


# DiffPart -------------------------------------------------------------------------------------------------------------
# Differentially private item sets as a mechanism (``contract``): DiffPart over arrays, in tables.

LEAVES = noisy_tree_release.Leaves("item sets", is_null(column("node")))


def plan_tree(_: Relations, source: Records, params: SetValued) -> ItemSetTreePlan:
    """Return what is known without looking at the records: taxonomy, budgets and thresholds at the root."""
    taxonomy = _make_taxonomy(len(source.labels), params, None)
    first = expansion_budget(params.epsilon, params.epsilon / 2, int(taxonomy.inner[0]))
    last = taxonomy.node_count == 1
    degree, height = int(taxonomy.degree[0]), int(taxonomy.height[0])
    least = least_noisy_size(params, first, degree=degree, height=height, last=last, nodes=taxonomy.node_count)
    return ItemSetTreePlan(
        epsilon=fraction_text(params.epsilon),
        items=taxonomy.item_count,
        inner_nodes=taxonomy.node_count,
        height=height,
        first_budget=fraction_text(first),
        first_threshold=0 if params.algorithm == "basic" else least,
    )


def propose_parameters(_db: Relations, _source: ProfiledSource) -> Proposal:
    """An epsilon of 1, the items that occur as the universe."""
    return Proposal(
        {"kind": "setvalued", "epsilon": "1", "universe": "data"},
        (RECORD, "Better than 'data' is a public list, or { query = ... }: the items that occur are not protected."),
    )


def publish_tree(db: Relations, source: Records, params: SetValued, key: Key) -> ItemSetTreeFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    draw = key.random_generator("setvalued", len(source.labels), fraction_text(params.epsilon))
    noise = noise_for(key)
    taxonomy = _make_taxonomy(len(source.labels), params, draw)
    source.sort_records()
    baskets = _read_baskets(db)
    source.drop_relations()
    if params.algorithm == "basic":
        tree = count_all(baskets, taxonomy, params, noise)
    else:
        tree = grow_tree(baskets, taxonomy, params, noise, draw)
    fitted = fit_estimator(tree, taxonomy, pruning=params.algorithm != "basic")
    remaining = noisy_tree.require_remaining(fitted, params, "item set", "fewer items")
    imputed = impute_sets(tree, taxonomy, fitted.fit, draw)
    _write_tree(db, tree, taxonomy, params, (fitted.fit.sizes.size, imputed))
    return ItemSetTreeFacts(
        items=taxonomy.item_count,
        inner_nodes=taxonomy.node_count,
        partitions=len(tree) - 1,
        item_sets=int(tree.leaf.sum()),
        imputed=len(imputed.row),
        without_items=tree.empty,
        estimated_records=round(float(fitted.fit.sizes.size[0]) + (tree.empty or 0), 1),
        kept_records=remaining,
        universe_is_public=not params.universe.data,
        noise=noise.origin,
        opendp=opendp_version(),
    )


def _make_taxonomy(items: int, params: SetValued, noise: Shuffler | None) -> ItemTaxonomy:
    return flat_taxonomy(items, noise) if params.algorithm == "basic" else grow_taxonomy(items, params.fan_out, noise)


def _read_baskets(db: Relations) -> Baskets:
    """The source's sets as arrays; relations ``contents`` and ``baskets`` are those of ``privsql.source.records``."""
    contents = db.arrow(all_rows(temp_table("contents")))
    weights = db.arrow(fill("setvalued/weights", {"baskets": temp_table("baskets")}))["records"].to_numpy()
    length = np.bincount(contents["basket"].to_numpy(), minlength=len(weights))
    starts = np.concatenate(([0], np.cumsum(length[length > 0])))
    codes = contents["code"].to_numpy().astype(np.int64)
    return Baskets(starts, codes, weights[length > 0].astype(np.int64), int(weights[length == 0].sum()))


def _write_tree(
    db: Relations,
    tree: ItemSetTree,
    taxonomy: ItemTaxonomy,
    params: SetValued,
    estimates: tuple[np.ndarray[Any, Any], ImputedSets],
) -> None:
    """The tables of a release."""
    items = db.arrow(all_rows(temp_table("universe")).order_by("code"))["item"].combine_chunks()
    leaves = np.flatnonzero(tree.leaf)
    sets = as_lists(*item_sets(tree, leaves, taxonomy), len(leaves), items)
    none = as_lists(leaves[:0], leaves[:0], int(tree.empty is not None), items)
    without = [tree.empty] if tree.empty is not None else []
    size, imputed = estimates
    stand_ins = as_lists(imputed.which, imputed.item, len(imputed.row), items)
    counts = pa.array([*without, *tree.size[leaves].tolist()], pa.int64())
    parts = np.concatenate(([WITHOUT] * len(without), leaves, imputed.row))
    weights = np.concatenate((np.array(without, dtype=np.float64), size[leaves], imputed.weight))
    published = {"items": pa.chunked_array([none, sets]), "count": counts}
    weighted = {
        "part": pa.array(parts, pa.int32()),
        "items": pa.chunked_array([none, sets, stand_ins]),
        "weight": pa.array(weights, pa.float64()),
    }
    for name, file, given in (("itemsets", "itemsets", published), ("privsql_sets", "sets", weighted)):
        write_release_table(
            db,
            name,
            pa.table(given),
            fill(f"setvalued/{file}", {"given": temp_table("given")}),
            title="Writing the sets",
        )
    write_release_table(db, "privsql_tree", tree_table(tree, taxonomy, params))
    write_release_table(db, "privsql_taxonomy", taxonomy_table(taxonomy))
    placed = {"node": taxonomy.item_parent, "place": taxonomy.item_bit, "code": np.arange(taxonomy.item_count)}
    columns = pa.table({name: pa.array(values, pa.int32()) for name, values in placed.items()})
    holes = {"universe": temp_table("universe"), "placed": temp_table("given")}
    write_release_table(db, "privsql_universe", columns, fill("setvalued/universe", holes))


DIFFPART = PrivateMechanism(
    parameters=SetValued,
    facts=ItemSetTreeFacts,
    shape=ItemSetShape(lambda params: params.universe),
    sql=SQL,
    demand=demand_items,
    plan=plan_tree,
    publish=publish_tree,
    layout=diffpart_answers.TABLES,
    views=weighted_only(tree_view),
    checks=tree_checks,
    source_checks=set_source_checks,
    answers=ItemSetTreeAnswers,
    evaluate=evaluate_answers,
    adversaries=Suite(adversaries=(noisy_tree_release.membership_adversary(LEAVES),)),
    structure=tree_structure,
    advice=("a smaller epsilon", "a public universe of items: those that occur tell of records that hold a rare one"),
    propose=propose_parameters,
)


# Views ----------------------------------------------------------------------------------------------------------------
# Differentially private item sets by views as a mechanism (``contract``).


def plan_views(_: Relations, source: Records, params: SetValued) -> ViewPlan:
    """Return what is known without looking at the records: what is measured, at most, and with which budgets."""
    items = len(source.labels)
    wanted = views.declared_sets(params, source.labels)
    make_plan = partial(
        ViewPlan, epsilon=fraction_text(params.epsilon), items=items, measured_at_most=min(items, TINY_UNIVERSE)
    )
    if items > TINY_UNIVERSE:
        budgets = ViewBudgets.from_epsilon(params.epsilon, choosing=len(views.named_first(wanted)) < TINY_UNIVERSE)
        return make_plan(
            records_budget=fraction_text(budgets.total),
            choice_budget=fraction_text(budgets.choice),
            tables_budget=fraction_text(budgets.tables),
        )
    due = views.lay_out_all(items, params.epsilon, wanted)
    cells = sum(1 << len(places) for places, _ in due)
    return make_plan(tables=len(due), cells=cells, tables_budget=fraction_text(params.epsilon))


def publish_views(db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    wanted = views.declared_sets(params, source.labels)
    counts = source.counts
    source.sort_records()
    contents = db.arrow(all_rows(temp_table("contents")))
    records = db.arrow(fill("setvalued/weights", {"baskets": temp_table("baskets")}))["records"].to_numpy()
    source.drop_relations()
    owners, codes = (contents[name].to_numpy().astype("int64") for name in ("basket", "code"))
    sets = views.SourceSets(owners, codes, records.astype("int64"), counts)
    choice, measured = views.measure_views(sets, params.epsilon, wanted, noise)
    fitted = views_model.fit_squares(measured, len(choice.codes))
    _require_information(fitted, params)
    written = _write_views(db, source, choice, measured, views_model.fit_population(fitted))
    return ViewFacts(
        items=len(source.labels),
        measured=len(choice.codes),
        tables=len(measured),
        cells=sum(one.counts.size for one in measured),
        sets=written,
        estimated_records=round(fitted.total, 1),
        universe_is_public=not params.universe.data,
        noise=noise.origin,
        opendp=opendp_version(),
    )


def _require_information(fitted: ParitySquares, params: SetValued) -> None:
    """``InfeasibleError`` where numbers of records with an item are noise, unless that is wanted."""
    alone = np.array([fitted.answer_error([place], np.array([0.0, 1.0])).deviation for place in range(fitted.items)])
    total = max(fitted.total, 0.0)
    if alone.mean() > total and not params.allow_empty:
        raise InfeasibleError(
            f"the counts would be noise: that of the records with an item has a standard error of {alone.mean():,.0f} "
            f"on average, where there are about {total:,.0f} records; a larger epsilon or fewer items would help, and "
            "--allow-empty (allow_empty = true) publishes it all the same; epsilon "
            f"{fraction_text(params.epsilon)} was drawn "
            "and is spent"
        )


def _write_views(
    db: Relations, source: Records, choice: ItemChoice, measured: list[NoisyTable], population: Any
) -> int:
    """The tables of a release; how many sets its synthetic records have."""
    universe = temp_table("universe")
    items = db.arrow(all_rows(universe).order_by("code"))["item"].combine_chunks()
    sets = views.sets_table(population, choice, items)
    labels = [source.labels[code] for code in choice.codes.tolist()]
    write_release_table(
        db, views.SETS, sets, fill("setvalued/fitted", {"given": temp_table("given")}), title="Writing the sets"
    )
    chosen = fill("setvalued/measured", {"given": temp_table("given"), "universe": universe})
    write_release_table(db, views.CHOSEN, views.choice_table(choice), chosen)
    noisy_tables_release.write_noisy_tables(db, measured, labels)
    db.create_table(views.UNIVERSE, fill("setvalued/items", {"universe": universe}), into="release")
    return int(sets.num_rows)


def choice_shift(view: ReleaseView) -> float:
    """Return what a record may shift all choices of items by: the sum of 1/s over their scales s."""
    widths = view.db.arrow(all_rows(table(views.CHOSEN, view.database)))["scale"].to_pylist()
    return sum(1 / float(width) for width in widths if width)


VIEWS = PrivateMechanism(
    parameters=SetValued,
    facts=ViewFacts,
    shape=ItemSetShape(lambda params: params.universe),
    sql=SQL,
    demand=demand_items,
    plan=plan_views,
    publish=publish_views,
    layout=views.TABLES,
    views=weighted_only(views.view_query),
    checks=view_checks,
    source_checks=set_source_checks,
    answers=ViewAnswers,
    evaluate=evaluate_answers,
    adversaries=Suite(adversaries=(noisy_tables_adversary(choice_shift),)),
    structure=tables_structure,
    advice=("a smaller epsilon", "a public universe of items: those that occur tell of records that hold a rare one"),
    propose=propose_parameters,
)


# The mechanism --------------------------------------------------------------------------------------------------------
# Differentially private item sets as a mechanism (``contract``): its algorithms, joined.

MECHANISM = join_variants({"views": VIEWS, "diffpart": DIFFPART, "basic": DIFFPART})
