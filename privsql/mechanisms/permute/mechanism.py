"""Permutation: plans, releases, answers, explanations, proposals, and the mechanism."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers import answer
from privsql.answers.accuracy import by_questions
from privsql.answers.channel import Channel, Floats
from privsql.answers.estimate import (
    CountBounds,
    ReleaseQuestion,
    choose_functionals,
    empty_estimates,
    locate_cells,
    read_sets,
)
from privsql.answers.sql.question import CountQuery, group_terms, observation_holes, select_terms
from privsql.attacks import adversaries
from privsql.engine.sqlfiles import Holes, alias_as, column, fill, table, temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.assignment import RankAssignment, RecordParts, Segments, assign_records
from privsql.mechanisms.base import NO_CURVE, WEIGHTED, GroupComposition, Mechanism, Proposal, TableShape
from privsql.mechanisms.permute import answers, checks
from privsql.mechanisms.permute.answers import ChosenValues, Contents, MatchingRecords, read_contents
from privsql.mechanisms.permute.checks import PermutedView
from privsql.mechanisms.permute.grouping import (
    DAY,
    STEPS,
    MeasuredAxis,
    find_scale,
    make_axis,
    measure_axis,
    static_optimum,
)
from privsql.mechanisms.permute.incremental import GroupingHistory, arrange_records, group_release, label_records
from privsql.mechanisms.permute.parameters import (
    MOST_GROUPS,
    GroupFacts,
    Permute,
    PermuteFacts,
    PlannedGroup,
    parse_extent,
)
from privsql.model.estimates import Estimate
from privsql.model.explanations import LEARNT, LINKED, ReleasePromises, Structure, by_range
from privsql.model.explanations import make_structure as part
from privsql.model.manifest import Manifest
from privsql.model.parameters import Facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.estimate import AnswerCells, RecordSets
    from privsql.attacks.scene import Finding, ReleaseView
    from privsql.attacks.suite import Adversary, JointAttack, LearningRisk
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key, Shuffler
    from privsql.mechanisms.base import Alternatives, Curve, LedgerRelease, ProfiledSource, Views
    from privsql.mechanisms.permute.grouping import Axis, Ints
    from privsql.model.checks import Check, CheckedRelease, VerifiedBound
    from privsql.model.records import Records

# Answers --------------------------------------------------------------------------------------------------------------
# COUNT by the papers' formula, and amounts (``answers``), with bounds that hold with certainty.
#
# est = sum_g n_g c_g / |g|: n_g records of the group meet the condition on quasi-identifiers, c_g that on the sensitive
# column. At least n_g + c_g - |g| and at most min(n_g, c_g) meet both. Where the range that is asked for holds a
# group's values all or none, nothing is uncertain about the group.

COUNTED = "estimate = sum over groups g of n_g * c_g / |g|; low and high are certain"
SPREAD = (
    "estimate = the mean over all choices of n_g records in every group g, n_g those that meet the condition on "
    "quasi-identifiers (MIN, MAX, quantiles: the middle of these), or of c_g records that have a value that is asked "
    "for; low and high are the extreme choices, so they are certain"
)
AMOUNTS = {
    "sum": answers.estimate_sum,
    "avg": answers.estimate_mean,
    "min": answers.estimate_minimum,
    "max": answers.estimate_maximum,
}


def count_chosen(held: Contents, functionals: Floats) -> Iterator[Floats]:
    """Yield for every set how many records of each group have the values that each functional names, (B, F)."""
    if functionals.ndim == 2:
        return itertools.repeat(np.asarray(held.sparse_table @ functionals))
    return (np.asarray(held.sparse_table @ own) for own in functionals)


def bound_counts(held: Contents, met: Floats, functionals: Floats) -> CountBounds:
    """Return estimates and certain bounds per set and functional (G, F); ``met`` (G, B): records of sets by group."""
    sizes = held.group_sizes.astype(np.float64)
    mean, least, most = (np.zeros((len(met), functionals.shape[-1])) for _ in range(3))
    for i, (own, chosen) in enumerate(zip(met, count_chosen(held, functionals), strict=False)):
        at = np.flatnonzero(own)
        n, c, size = own[at, None], chosen[at], sizes[at, None]
        mean[i] = (n * c / size).sum(axis=0)
        least[i] = np.maximum(n + c - size, 0).sum(axis=0)
        most[i] = np.minimum(n, c).sum(axis=0)
    return CountBounds(mean, np.zeros_like(least), least, most)


def merge_sets(query: CountQuery, sets: RecordSets, functionals: Floats) -> tuple[RecordSets, Floats]:
    """Make one set of those of a group of the answer that mean the same values: bounds of parts add up to wider."""
    if functionals.ndim == 2:
        return sets, functionals
    number = [group.side for group in query.groups].count("qi")
    rank: dict[tuple[object, bytes], int] = {}
    pairs = zip(sets.keys, functionals, strict=True)
    of = np.array([rank.setdefault((key[:number], own.tobytes()), len(rank)) for key, own in pairs], dtype=np.intp)
    _, first = np.unique(of, return_index=True)
    observed, amounts = np.zeros((len(rank), sets.observed.shape[1])), np.zeros((len(rank), sets.amounts.shape[1]))
    np.add.at(observed, of, sets.observed)
    np.add.at(amounts, of, sets.amounts)
    merged = replace(sets, keys=[sets.keys[i] for i in first.tolist()], observed=observed, amounts=amounts)
    return merged, functionals[first]


class PermuteAnswers(answer.Answers):
    """An open release that answers count queries; what its groups hold is read once."""

    certain = frozenset({answer.BASELINE})
    estimators = (answer.BASELINE,)
    records = "qit"
    measures = frozenset((*AMOUNTS, "median"))
    channel = None

    @cached_property
    def group_contents(self) -> Contents:
        """Return what every group holds."""
        return read_contents(self._db, self._roles, None)

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        if query.measure.side == "sa":
            _refuse_mixtures(query)
        return self._observation_query(query), COUNTED if query.measure.kind == "count" else SPREAD

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        held, nothing = self.group_contents, np.zeros(0)
        groups = Channel(np.zeros((0, held.groups)), nothing, nothing)
        question = ReleaseQuestion(self._db, query, table("qit"), groups, code=self._roles.by_sa.column_name("code"))
        rows = self._db.arrow(self._observation_query(query))
        sets = read_sets(question, rows, np.ones(len(rows)))
        outputs, functionals = choose_functionals(question, sets, held.values)
        if not sets.keys or not outputs:
            return empty_estimates(query)
        if query.measure.kind == "count":
            sets, functionals = merge_sets(query, sets, functionals)
        counts = bound_counts(held, sets.observed, functionals)
        cells = locate_cells(query, sets, outputs, counts.most)
        if query.measure.kind == "count":
            parts = (cells.sum_by_group(part).tolist() for part in (counts.mean, counts.least, counts.most))
            result = [
                Estimate(group, mean, 0.0 if low == high else None, low, high)
                for group, mean, low, high in zip(cells.groups, *parts, strict=True)
            ]
        elif query.measure.side == "sa":
            result = _estimate_amounts(query, cells, *self._choose_values(sets, cells, functionals))
        else:
            result = _estimate_amounts(query, cells, *self._choose_amounts(query, rows, sets, cells, functionals))
        return result or empty_estimates(query)

    def _observation_query(self, query: CountQuery) -> exp.Query:
        """Return the statement: records of every group that meet the condition, by the amount if one is measured."""
        holes: Holes = {"qit": query.join_lookups(table("qit")), "bid": self._roles.by_qi.as_column("bid")}
        holes |= observation_holes(query)
        if query.measure.amount is not None:
            amount = exp.cast(query.measure.amount, "DOUBLE")
            holes["terms"] = [*select_terms(query, "qi"), alias_as(amount, "amounts")]
            holes["keys"] = [*(one for _, one in group_terms(query, "qi")), amount]
            holes["totals"] = []
        return fill("permute/observed", holes)

    def _choose_values(
        self, sets: RecordSets, cells: AnswerCells, functionals: Floats
    ) -> tuple[ChosenValues, MatchingRecords]:
        """Return the sensitive values that are asked for, and the records of each group that meet the condition."""
        held = self.group_contents
        chosen = functionals[held.code, 0] > 0
        entries = (held.group[chosen], held.code[chosen], held.records[chosen])
        wanted = ChosenValues(*entries, self._sensitive_values, held.group_sizes)
        observed = sets.observed[cells.at[0]].astype(np.int64)
        at, group = np.nonzero(observed)
        return wanted, MatchingRecords(len(cells.groups), cells.member[at], group, observed[at, group])

    def _choose_amounts(
        self, query: CountQuery, rows: pa.Table, sets: RecordSets, cells: AnswerCells, functionals: Floats
    ) -> tuple[ChosenValues, MatchingRecords]:
        """Return the amounts of the records that meet the condition, and the values of each group that are asked for.

        Each pair of a set and a group is a group of its own here: it has amounts of its own.
        """
        held, known = self.group_contents, rows.filter(pc.is_valid(rows["amounts"]))
        ranks, places, records = (known[name].to_numpy().astype(np.int64) for name in ("set", "place", "pairs"))
        amounts, rank = np.unique(known["amounts"].to_numpy(), return_inverse=True)
        if not np.isfinite(amounts).all():
            raise UsageError(f"{query.measure.column} is not finite everywhere; see WHERE")
        pairs, pair = np.unique(ranks * held.groups + places, return_inverse=True)
        order = np.lexsort((rank, pair))
        place = pairs % held.groups
        wanted = ChosenValues(pair[order], rank[order], records[order], amounts, held.group_sizes[place])
        member = np.full((len(sets.keys), functionals.shape[-1]), -1)
        member[cells.at] = cells.member
        number = np.zeros((len(pairs), functionals.shape[-1]), dtype=np.int64)
        ends = np.searchsorted(pairs, np.arange(len(sets.keys) + 1) * held.groups)
        for (first, last), chosen in zip(
            itertools.pairwise(ends.tolist()), count_chosen(held, functionals), strict=False
        ):
            number[first:last] = chosen[place[first:last]]
        belongs = member[pairs // held.groups]
        at, functional = np.nonzero((number > 0) & (belongs >= 0))
        return wanted, MatchingRecords(len(cells.groups), belongs[at, functional], at, number[at, functional])

    @cached_property
    def _sensitive_values(self) -> Floats:
        """The sensitive values as doubles, rising (m,)."""
        value = exp.cast(column(self._roles.sensitive[0].name), "DOUBLE")
        by = self._roles.by_sa.as_column("code")
        listed = exp.select(value.as_("value")).from_(table("privsql_values")).order_by(by)
        return np.asarray(self._db.arrow(listed)["value"].to_numpy(), dtype=np.float64)


def _estimate_amounts(
    query: CountQuery, cells: AnswerCells, wanted: ChosenValues, met: MatchingRecords
) -> list[Estimate]:
    """Return SUM, AVG, MIN, MAX or a quantile by group; NULL where no record has an amount."""
    if query.measure.kind == "median":
        figures = answers.estimate_quantile(wanted, met, query.measure.share)
    else:
        figures = AMOUNTS[query.measure.kind](wanted, met)
    some = answers.possible_records(wanted, met) > 0
    settled = answers.are_settled(wanted, met) & np.isin(query.measure.kind, ("sum", "avg"))
    fewest = met.sum_groups(answers.fewest_records(wanted, met))
    parts = zip(cells.groups, some, settled, *(part.tolist() for part in (*figures, fewest)), strict=True)
    return [
        Estimate(group, middle, 0.0 if known else None, low, high, least)
        if any_
        else Estimate(group, *query.measure.empty_figures)
        for group, any_, known, middle, low, high, least in parts
    ]


def _refuse_mixtures(query: CountQuery) -> None:
    kind, name = query.measure.kind.upper(), query.measure.column
    if query.predicate is not None:
        raise UsageError(f"{kind}({name}) with a condition that mixes {name} and quasi-identifiers is not supported")
    if any(group.side == "sa" for group in query.groups):
        raise UsageError(f"{kind}({name}) grouped by {name} is not supported; group by quasi-identifiers")


# Explanations ---------------------------------------------------------------------------------------------------------

MADE = (
    "Records are put into groups by their sensitive value, and values are shuffled within a group. The release shows "
    "which records and which values a group has, not which record has which value."
)
SEVERAL = (
    "An attacker can combine several releases of the same people, unless each was made with the earlier ones of a "
    "growing table in view: privsql verify --against compares these."
)
NOT = (
    "The belief in one value has no bound: what most records of a group have is likely for each of them.",
    "An attacker who knows the values of other records in the group can exclude these.",
    LINKED,
    LEARNT,
    SEVERAL,
    "The release shows who is in the table and in which group. The group shows roughly which value a record has.",
)


def explain_guarantee(params: Permute) -> ReleasePromises:
    """(k,e)-anonymity, in sentences."""
    bound = (
        f"Every group has at least {params.k} different values, and the largest and the smallest of them are at least "
        f"{params.e} apart."
    )
    return ReleasePromises((MADE, bound), NOT)


def describe_structure(db: Relations, manifest: Manifest) -> list[Structure]:
    """Groups by their number of different values, and by their records."""
    held = read_contents(db, manifest.roles, None)
    values = np.bincount(held.group, minlength=held.groups).tolist()
    result = []
    for title, numbers in (("different values", values), ("records", held.group_sizes.tolist())):
        rows: list[tuple[object, ...]] = [(name, number) for name, number in by_range(numbers)]
        sentence = f"The {held.groups:,} groups have {min(numbers):,} to {max(numbers):,} {title}."
        result.append(part(f"Groups by {title}", sentence, (title, "groups"), rows, 1))
    return result


# Assignment -----------------------------------------------------------------------------------------------------------

TABLE = 2**26  # numbers beyond which groups x values are not counted in one table


def write_records(db: Relations, source: Records, groups: Ints, ranks: Ints, noise: Shuffler) -> None:
    """QIT, from the groups (n,) of all records in canonical order, below 0: held back, and the values of the others."""
    codes = np.full(len(groups), -1, dtype=np.int32)
    is_published = groups >= 0
    codes[is_published] = shuffle_within_groups(groups[is_published], ranks, noise)
    assigned, is_sorted = assign_records(db, source, groups.astype(np.int32), codes)
    _write_qit(db, source, assigned, is_sorted=is_sorted)
    db.drop("positions")
    source.drop_relations()


def write_ranked(db: Relations, source: Records, groups: Ints, ranks: Ints, key: Key) -> None:
    """Write QIT in the portable order: by rank, the records of a group take its values one after the other.

    The group follows from the value in a first release, from the record in later ones, whose records have names.
    """
    published = np.flatnonzero(groups >= 0)
    sizes = np.bincount(groups[published])
    if source.history.releases:
        of, by = pa.table({"part": groups[published], "pos": published}), "pos"
    else:
        ends = np.cumsum(source.counts)
        of, by = pa.table({"part": groups[ends - 1], "code": np.arange(len(ends))}), "code"
    dealing = RankAssignment(db, source, key, RecordParts(sizes, by, of))
    contents = tabulate_contents(groups[published], ranks)
    part, code, records = (contents[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
    ends = np.cumsum(records)
    first = ends[np.searchsorted(part, part)] - records[np.searchsorted(part, part)]  # of all records, of its group
    segments = Segments(part, ends - records - first, ends - first, code, step=0)
    dealt = dealing.query_assigned(segments, [*source.roles.qi_columns("r"), column("part", "r")])
    renamed = [alias_as(exp.cast(column("part"), "INTEGER"), "bid"), alias_as(column("number"), "code")]
    _write_qit(db, source, exp.select(*source.roles.qi_columns(), *renamed).from_(dealt.subquery("dealt")))
    dealing.drop_relations()


def _write_qit(db: Relations, source: Records, dealt: exp.Query, *, is_sorted: bool = False) -> None:
    roles = source.roles
    holes: Holes = {"dealt": dealt.subquery(), "qi": roles.qi_out("r"), "qi_order": roles.qi_columns("r")}
    holes |= roles.by_qi.alias_holes("bid", "code")
    query = fill("permute/qit", holes)
    if is_sorted:
        query.set("order", None)
    db.create_table("qit", query, into="release", title="Shuffling within groups")


def tabulate_contents(groups: Ints, codes: Ints) -> pa.Table:
    """(bid, code, records) by group and code, from the group and the value of every record (n,)."""
    values = int(codes.max(initial=-1)) + 1
    cells = groups * values + codes
    if (int(groups.max(initial=-1)) + 1) * values <= TABLE:
        counted = np.bincount(cells)
        result = np.flatnonzero(counted)
        records = counted[result]
    else:
        result, records = np.unique(cells, return_counts=True)
    columns = {"bid": result // values, "code": result % values, "records": records}
    return pa.table({name: column.astype(np.int32) for name, column in columns.items()})


def shuffle_within_groups(groups: Ints, codes: Ints, noise: Shuffler) -> NDArray[np.int32]:
    """The values (n,) in uniformly random order within every group (thesis, Definition 4)."""
    rising = bool((groups[1:] >= groups[:-1]).all())
    order = slice(None) if rising else np.argsort(groups, kind="stable")
    dealt = codes.astype(np.int32)
    run, begin = dealt[order], 0
    for end in np.cumsum(np.bincount(groups)).tolist():
        noise.shuffle(run[begin:end])
        begin = end
    dealt[order] = run
    return dealt


# Tables ---------------------------------------------------------------------------------------------------------------


def release_view(manifest: Manifest) -> exp.Query:
    """Every record's quasi-identifiers beside the sensitive value that the shuffle deals to it."""
    roles = manifest.roles
    holes: Holes = {
        "qit": table("qit"),
        "values": table("privsql_values"),
        "qi": [alias_as(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "sa": [alias_as(column(f.name, "listed"), f.name) for f in roles.sensitive],
        "qit_code": roles.by_qi.as_column("code", "qit"),
        "listed_code": roles.by_sa.as_column("code", "listed"),
        **roles.by_all.alias_holes("weight"),
    }
    return fill("permute/shuffled", holes)


# The mechanism --------------------------------------------------------------------------------------------------------
# (k,e)-anonymity: group over distinct values, shuffle, publish through SQL.
#
# US patent 8,112,422 B2 (granted 2012) speaks of (k,e)-anonymization for aggregate queries; users may look into it.

NESTED, LAST = "nested", "reapply-last"
K, PARTS = 5, (10, 5, 4, 3, 2, 1)  # proposed: k, and the first e of these parts of the middle half's range that will do


def plan_release(db: Relations, source: Records, params: Permute) -> GroupFacts:
    """The facts of the next release: of the static optimum, if it is the first one."""
    measured_axis = measure_axis(db, source, params.k, params.e)
    starts = _require_static_optimum(measured_axis, source, params)
    if source.history.releases:
        source.sort_records()
        codes, groups = _assign_groups(measured_axis, source, params, starts)
        return _state_release(measured_axis, groups, codes, source.labels)
    codes = np.arange(len(source.counts), dtype=np.int64)
    return _state_facts(measured_axis, label_records(starts, len(codes)), codes, source.counts, source.labels)


def _require_static_optimum(measured_axis: MeasuredAxis, source: Records, params: Permute) -> list[int]:
    starts = static_optimum(measured_axis.axis)
    if starts:
        return starts
    units, name = measured_axis.axis.units, source.roles.sensitive[0].name
    widest = measured_axis.format_width(units[-1] - units[0]) if units else "0"
    raise InfeasibleError(
        f"column {name!r} has {len(units)} distinct values over a range of {widest}; one group with k = {params.k} and "
        f"e = {params.e} needs as many: lower mechanism.k to {min(params.k, len(units))} or mechanism.e to {widest}",
        {"distinct": len(units), "range": widest},
    )


def publish_release(db: Relations, source: Records, params: Permute, key: Key) -> PermuteFacts:
    """Make ``qit``, ``st`` and ``privsql_values`` in database ``release``; returns the facts."""
    measured_axis = measure_axis(db, source, params.k, params.e)
    starts = _require_static_optimum(measured_axis, source, params)
    codes, groups = _assign_groups(measured_axis, source, params, starts)
    roles = source.roles
    published = np.flatnonzero(groups >= 0)  # the others are held back
    values, ranks, records = _published_values(codes[published], source.counts)
    if source.order == "portable":
        write_ranked(db, source, groups, ranks, key)
    else:
        noise = key.random_generator("permute", int(groups.max()) + 1, tuple(source.counts), tuple(source.labels))
        write_records(db, source, groups, ranks, noise)
    source.history.groups = groups
    db.register_arrow("composition", tabulate_contents(groups[published], codes[published]))
    holes: Holes = {"composition": temp_table("composition"), "domain": temp_table("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.alias_holes("bid", "count")
    db.create_table("st", fill("core/st", holes), into="release", title="Writing the sensitive table")
    db.register_arrow("published", pa.table({"code": values, "rank": np.arange(len(values)), "records": records}))
    listed: Holes = {"published": temp_table("published"), "domain": temp_table("domain"), "sa": roles.sa_out("d")}
    listed |= roles.by_sa.alias_holes("code", "records")
    db.create_table("privsql_values", fill("permute/values", listed), into="release")
    db.drop("composition", "published")
    return _state_release(measured_axis, groups, codes)


def _assign_groups(
    measured_axis: MeasuredAxis, source: Records, params: Permute, starts: list[int]
) -> tuple[Ints, Ints]:
    """Value and group of every record (n,); ``starts`` of the static optimum, which the first release takes."""
    codes = np.repeat(np.arange(len(source.counts), dtype=np.int64), source.counts)
    if not source.history.releases:
        return codes, np.asarray(label_records(starts, len(measured_axis.axis.units))[codes])
    needed = source.history.releases if params.algorithm in ("exact", "reapply-all") else 1
    return codes, group_records(measured_axis, codes, source.history.earlier_groups(needed, source.records), params)


def _published_values(codes: Ints, counts: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """The values that are published, the rank of every record's value among them, and their records."""
    if len(codes) == sum(counts):
        return np.arange(len(counts)), codes, np.array(counts, dtype=np.int64)
    return np.unique(codes, return_inverse=True, return_counts=True)


def group_records(measured_axis: MeasuredAxis, codes: Ints, earlier: Ints, params: Permute) -> Ints:
    """Group of every record (n,), records by rising value, given their groups in earlier releases (m, n)."""
    if params.algorithm == "nested":  # works on values and groups; the order of records is nothing to it
        return group_release(GroupingHistory(measured_axis.axis, codes, earlier), params.algorithm)
    order = arrange_records(codes, earlier)
    history = GroupingHistory(measured_axis.axis, codes[order], earlier[:, order])
    groups = np.empty(len(codes), dtype=np.int64)
    groups[order] = group_release(history, params.algorithm)
    return groups


def _state_release(measured_axis: MeasuredAxis, groups: Ints, codes: Ints, labels: Sequence[str] = ()) -> PermuteFacts:
    """Return the facts of a release from value and group of every record, -1 where it waits."""
    published = groups >= 0
    held = int((~published).sum())
    facts = _state_facts(measured_axis, groups[published], codes[published], None, labels)
    return PermuteFacts.join_parts(facts, held_back=held, left_out=held)


def _state_facts(
    measured_axis: MeasuredAxis, groups: Ints, codes: Ints, weights: Any, labels: Sequence[str] = ()
) -> GroupFacts:
    """Return groups and widths; ``weights``: how many records each entry stands for; ``labels``: of a plan's values."""
    number = int(groups.max()) + 1
    low, high = np.full(number, len(measured_axis.axis.units)), np.full(number, -1)
    np.minimum.at(low, groups, codes)
    np.maximum.at(high, groups, codes)
    sizes = np.bincount(groups, weights=weights, minlength=number)
    widths = [measured_axis.axis.width(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    listed = np.argsort(low, kind="stable")[: MOST_GROUPS if labels else 0].tolist()
    ends = ((g, labels[int(low[g])], labels[int(high[g])]) for g in listed)
    by_group = [
        PlannedGroup(records=int(sizes[g]), low=first, high=last, error=measured_axis.format_width(widths[g]))
        for g, first, last in ends
    ]
    spread = sum(width * int(size) for width, size in zip(widths, sizes.tolist(), strict=True))
    return GroupFacts(
        loss=float(sum(widths) * measured_axis.unit),
        error=measured_axis.format_width(sum(widths)),
        groups=number,
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        mean_width=float(spread * measured_axis.unit / int(sizes.sum())),
        by_group=by_group,
    )


def propose_parameters(db: Relations, source: ProfiledSource) -> Proposal:
    """K values over e, e from the spread of the values: the least part of the middle half's range that will do.

    That is, with which the best exact guess (the commonest value of the group) is right for at most half of the
    records; where a value is so common that no range of ``PARTS`` does, the widest, with a remark.
    """
    records = source.records()
    k = min(K, len(records.counts))
    is_time = records.roles.sensitive[0].type in STEPS
    measured_axis = measure_axis(db, records, k, parse_extent("0 days") if is_time else parse_extent(0))
    units, ends = measured_axis.axis.units, np.cumsum(records.counts)
    low, high = (units[int(np.searchsorted(ends, int(ends[-1]) * share // 4, side="right"))] for share in (1, 3))
    middle = (high - low) or (units[-1] - units[0])
    widths = [middle // part for part in PARTS] or [0]
    guesses = [_share_guessed(make_axis(units, k, width), records.counts) for width in widths]
    chosen = next((number for number, guess in enumerate(guesses) if guess <= Fraction(1, 2)), len(widths) - 1)
    width = float(widths[chosen] * measured_axis.unit)
    days, number = f"{max(1, width // DAY):.0f} days", f"{width:.0f}" if width >= 100 else f"{width:.3g}"
    remarks = [f"e is a part of the range of the middle half of the values, {measured_axis.format_width(middle)}."]
    if guesses[chosen] > Fraction(1, 2):
        right = f"{float(guesses[chosen]):.0%} of the records"
        remarks.append(f"Note: an attacker who guesses the most common value of a group is right for {right}.")
    params = {"kind": "permute", "algorithm": "nested", "k": k, "e": days if is_time else number}
    return Proposal(params, tuple(remarks))


def _share_guessed(line: Axis, counts: Sequence[int]) -> Fraction:
    """Share of the records that the commonest value of their group is right for, in the static optimum."""
    starts = static_optimum(line)
    if not starts:
        return Fraction(1)
    most = np.maximum.reduceat(np.array(counts, dtype=np.int64), starts)
    return Fraction(int(most.sum()), sum(counts))


class PermutationChain(GroupComposition[Permute]):
    """Releases of a growing table: each was made with earlier ones in view, so that their groups breach nothing."""

    def terms(self, params: Permute) -> tuple[int, str]:
        """Return k and e."""
        return params.k, str(params.e)

    def covered(self, algorithms: Sequence[str]) -> str | None:
        """Return what releases of the same subjects guarantee together; the first one has nothing to breach.

        ``exact`` and ``reapply-all`` look at every earlier release. ``nested`` unites groups of the last one, so that
        what it leaves and shares with a group of any earlier release is a union of what the last one did.
        ``reapply-last`` sees the last release alone, which is all that there is for a second one.
        """
        later = list(algorithms[1:])
        if set(later) == {LAST}:
            return "groups are checked against those of the last release only; older ones may breach"
        if LAST in later[1:]:
            return None
        if set(later) <= {NESTED}:
            return "every Boolean combination of groups of all releases is (k,e)-anonymous or empty"
        return "no two groups of two releases breach (k,e)-anonymity (Definition 5); three may"

    def comparable(self, names: Sequence[str], manifests: Sequence[Manifest]) -> None:
        """Raise ``UsageError`` unless all releases are (k,e)-anonymous over the same columns."""
        checks.require_comparable(names, manifests)

    def published(self, db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
        """Return the checks of every pair, in which groups are matched by what was published of them."""
        return checks.check_pairs(db, names, manifests)

    def by_record(
        self, db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest
    ) -> list[Check]:
        """Return the checks of every pair and of all releases, by the records that the ledger knows."""
        return checks.check_records(db, releases, known, manifest)


class Permutation(Mechanism[Permute, PermuteFacts]):
    """Permutation: records are grouped over k values and a range of e, and values are shuffled within groups."""

    kind = "permute"
    algorithms = ("nested", "exact", "reapply-last", "reapply-all")
    parameters = Permute
    facts = PermuteFacts
    shape = TableShape(numeric=True, most_numbers=None)
    composition = PermutationChain()
    layout = checks.TABLES
    scene = PermutedView
    advice = (
        "a larger k or e: more and more different values in every group",
        "fewer or coarser quasi-identifiers, such as age in bands, or regions for places",
    )

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose k values over e, where e is a part of the range of the middle half of the values."""
        return propose_parameters(db, source)

    def plan(self, db: Relations, source: Records, params: Permute) -> GroupFacts:
        """Return groups and widths of the next release; those of the static optimum if it is the first one."""
        return plan_release(db, source, params)

    def compare_algorithms(self, db: Relations, source: Records, params: Permute) -> Alternatives:
        """Raise ``UsageError``: the algorithms make the same first release."""
        raise UsageError(
            "algorithms: its algorithms differ in what they do with rows that are added later, not in what they tell "
            "of a table"
        )

    def predict_curve(self, db: Relations, source: Records, params: Permute) -> Curve:
        """Raise ``UsageError``: there is no threshold of beliefs."""
        raise UsageError(NO_CURVE)

    def publish(self, db: Relations, source: Records, params: Permute, key: Key) -> PermuteFacts:
        """Shuffle the values within the groups, and publish records and values by group."""
        return publish_release(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Permute) -> None:
        """Raise ``UsageError`` unless the sensitive column has a range like e."""
        find_scale(manifest.sensitive, params.e)

    def views(self, manifest: Manifest) -> Views:
        """Return the view of every record beside the value that the shuffle deals to it."""
        return {WEIGHTED: release_view(manifest)}

    def checks(self, release: CheckedRelease[Permute, PermuteFacts]) -> list[Check]:
        """Return the checks of the groups: k values over e, and tables that agree on what a group holds."""
        return checks.release_checks(release)

    def long_checks(self, release: CheckedRelease[Permute, PermuteFacts]) -> list[Check]:
        """Return no further checks: all of them are quick."""
        return []

    def source_checks(
        self, release: CheckedRelease[Permute, PermuteFacts], source: Records, params: Permute
    ) -> list[Check]:
        """Return the checks that values, quasi-identifiers and groups are those of the source's records."""
        return checks.source_checks(release, source)

    def measured(self, release: CheckedRelease[Permute, PermuteFacts]) -> Facts:
        """Return no facts: ``checks`` compares all that the tables tell."""
        return Facts()

    def bounds(self, release: CheckedRelease[Permute, PermuteFacts]) -> list[VerifiedBound]:
        """Return the different values and the range of the groups that have least of them."""
        return checks.measured_bounds(release)

    def answers(self, db: Relations, manifest: Manifest) -> PermuteAnswers:
        """Return the release as one that shares out the records of each group over its values."""
        return PermuteAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors of a workload of questions, and the quality of the channel."""
        return by_questions(context)

    def adversaries(self) -> tuple[Adversary[PermutedView], ...]:
        """Return attackers who look for groups that break the promise, and attackers who guess values within groups."""
        return checks.ADVERSARIES

    def joint_attacks(self) -> tuple[JointAttack, ...]:
        """Return the attacks that intersect and subtract groups of two releases."""
        return adversaries.attack_by_intersection, checks.attack_together

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return None: no model says how often a learning attacker is right about permuted values."""
        return None

    def estimate_risk(self, view: ReleaseView) -> LearningRisk | None:
        """Return None: no belief in a value has a bound that learning could exceed."""
        return None

    def promise(self, params: Permute) -> str:
        """Return how many values each group has, and over which range."""
        return f"{params.k} values over {params.e}"

    def words(self, params: Permute) -> ReleasePromises:
        """Return (k,e)-anonymity, in sentences."""
        return explain_guarantee(params)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the groups by their number of different values, and by their records."""
        return describe_structure(db, manifest)
