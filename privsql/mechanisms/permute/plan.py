"""Plan (k,e)-anonymous groups: put values on an axis, form the groups of the next release, and state facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.engine.sqlfiles import Holes, column, fill, temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.base import Alternative, AlternativeMeasure, Alternatives, Proposal
from privsql.mechanisms.permute.cells import group_cells, mean_error, read_codes
from privsql.mechanisms.permute.grouping import find_ends, make_axis, static_optimum
from privsql.mechanisms.permute.incremental import GroupingHistory, arrange_records, group_release, label_records
from privsql.mechanisms.permute.parameters import MOST_GROUPS, GroupFacts, PermuteFacts, PlannedGroup, parse_extent
from privsql.mechanisms.permute.scale import DAY, STEPS, find_scale, on_axis

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from privsql.answers.channel import Floats
    from privsql.engine.database import Relations
    from privsql.mechanisms.base import ProfiledSource
    from privsql.mechanisms.permute.grouping import Axis, Ints
    from privsql.mechanisms.permute.parameters import Extent, Permute
    from privsql.mechanisms.permute.scale import Scale
    from privsql.model.records import Records

    Numbers = NDArray[np.float64] | NDArray[np.int64]

# Groups ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuredAxis:
    """The sensitive values of a source as integers on an axis.

    Attributes:
        axis: The axis, with k and e.
        scale: The type of the sensitive column.
        unit: What a step of 1 on the axis is, in the column's unit (seconds for points in time).
    """

    axis: Axis
    scale: Scale
    unit: Fraction

    def list_values(self) -> Floats:
        """Return the distinct values in the column's unit, as doubles (m,)."""
        return np.array(self.axis.units, dtype=np.float64) * float(self.unit)

    def format_width(self, width: int) -> str:
        """Return a width, given in steps of the axis, as text in the column's unit."""
        return self.scale.format_width(width * self.unit)


def measure_axis(db: Relations, source: Records, k: int, e: Extent) -> MeasuredAxis:
    """Return the distinct sensitive values of a source as exact integers, with the condition (k,e) of groups.

    Raises:
        UsageError: A value is NULL, NaN or infinite, or ``e`` does not suit the column's type.
    """
    scale = find_scale(source.roles.sensitive, e)
    holes: Holes = {"domain": temp_table("domain"), "value": column(source.roles.sa_keys[0])}
    values = db.arrow(fill("permute/axis", holes))["value"].combine_chunks()
    name = scale.field.name
    if values.null_count:
        raise UsageError(
            f"column {name!r}: NULL is not a number; set columns.nulls.{name} to 'suppress' (leave the records out)"
        )
    units, least, unit = on_axis(values, scale, e)
    return MeasuredAxis(make_axis(units, k, least), scale, unit)


def find_optimum(measured: MeasuredAxis, source: Records, params: Permute) -> list[int]:
    """Return the ranks of the values at which groups of a first release begin: those with the least sum of (max - min).

    Raises:
        InfeasibleError: All records together have fewer than k values, or a range below e.
    """
    starts = static_optimum(measured.axis)
    if starts:
        return starts
    units, name = measured.axis.units, source.roles.sensitive[0].name
    widest = measured.format_width(units[-1] - units[0]) if units else "0"
    raise InfeasibleError(
        f"column {name!r} has {len(units)} distinct values over a range of {widest}; one group with k = {params.k} and "
        f"e = {params.e} needs as many: lower mechanism.k to {min(params.k, len(units))} or mechanism.e to {widest}",
        {"distinct": len(units), "range": widest},
    )


def group_records(db: Relations, measured: MeasuredAxis, source: Records, params: Permute) -> tuple[Ints, Ints]:
    """Return (the rank of every record's value, rising (n,); the group of every record (n,)).

    The group is -1 for a record that is held back.
    """
    if params.algorithm == "cells":
        return group_cells(db, source, measured.axis, params)
    codes = np.repeat(np.arange(len(source.counts), dtype=np.int64), source.counts)
    releases = source.history.releases
    needed = releases if params.algorithm in ("exact", "reapply-all") else min(1, releases)
    earlier = source.history.earlier_groups(needed, source.records)
    if params.algorithm == "nested":  # the order of records does not matter
        return codes, group_release(GroupingHistory(measured.axis, codes, earlier), params.algorithm)
    order = arrange_records(codes, earlier)
    groups = np.empty(len(codes), dtype=np.int64)
    groups[order] = group_release(GroupingHistory(measured.axis, codes[order], earlier[:, order]), params.algorithm)
    return codes, groups


# Facts ----------------------------------------------------------------------------------------------------------------


def plan_release(db: Relations, source: Records, params: Permute) -> GroupFacts:
    """Return the facts that the next release of a table would state on its groups; nothing is published."""
    measured = measure_axis(db, source, params.k, params.e)
    starts = find_optimum(measured, source, params)
    if source.history.releases or params.algorithm == "cells":
        source.sort_records()
        codes, groups = group_records(db, measured, source, params)
        return state_release(measured, codes, groups, source.labels)
    codes = np.arange(len(source.counts), dtype=np.int64)
    return _state_groups(measured, codes, label_records(starts, len(codes)), source.counts, source.labels)


def state_release(measured: MeasuredAxis, codes: Ints, groups: Ints, labels: Sequence[str] = ()) -> PermuteFacts:
    """Return the facts of a release.

    Args:
        measured: The distinct sensitive values as integers on an axis.
        codes: The rank of every record's value (n,).
        groups: The group of every record (n,); -1 if it is held back.
        labels: The values as text; if they are given, the facts list the groups, as those of a plan do.
    """
    published = groups >= 0
    held = int((~published).sum())
    facts = _state_groups(measured, codes[published], groups[published], None, labels)
    return PermuteFacts.join_parts(facts, held_back=held, left_out=held)


def _state_groups(
    measured: MeasuredAxis, codes: Ints, groups: Ints, counts: Sequence[int] | None, labels: Sequence[str]
) -> GroupFacts:
    """Return the facts of groups, given by entries: records, or distinct values with their numbers of records.

    Args:
        measured: The distinct sensitive values as integers on an axis.
        codes: The rank of each entry's value.
        groups: The group of each entry.
        counts: The number of records that each entry stands for; None for one record each.
        labels: The values as text; if they are given, the facts list the groups.
    """
    number = int(groups.max()) + 1
    low, high = find_ends(groups, codes, number)
    sizes = np.bincount(groups, weights=counts, minlength=number)
    widths = [measured.axis.width(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    by_group = [
        PlannedGroup(
            records=int(sizes[g]),
            low=labels[int(low[g])],
            high=labels[int(high[g])],
            error=measured.format_width(widths[g]),
        )
        for g in np.argsort(low, kind="stable")[: MOST_GROUPS if labels else 0].tolist()
    ]
    spread = sum(width * int(size) for width, size in zip(widths, sizes.tolist(), strict=True))
    known = ""
    if measured.scale.field.type not in STEPS:
        values, records = measured.list_values(), np.bincount(codes, counts, len(measured.axis.units))
        known = _describe_levels(values, records, values[low], values[high], sizes)
    return GroupFacts(
        known=known,
        loss=float(sum(widths) * measured.unit),
        error=measured.format_width(sum(widths)),
        groups=number,
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        mean_width=float(spread * measured.unit / int(sizes.sum())),
        by_group=by_group,
    )


# Alternatives ---------------------------------------------------------------------------------------------------------

MEASURES = (
    AlternativeMeasure("groups", "groups", ",.0f", lowest=False),
    AlternativeMeasure("mean_width", "max - min of a record's group", ",.6g"),
    AlternativeMeasure("error", "error of means by quasi-identifiers, in standard deviations", ".2g"),
)


def compare_algorithms(db: Relations, source: Records, params: Permute) -> Alternatives:
    """Compare two ways to group: by near sensitive values (``nested``), or by near quasi-identifiers (``cells``).

    They are compared by the errors of means on the source.
    """
    measured = measure_axis(db, source, params.k, params.e)
    starts = find_optimum(measured, source, params)
    quasi, codes = read_codes(db, source)
    values, rows = measured.list_values()[codes], []
    near = label_records(starts, len(source.counts))[codes]
    for name in ("nested", "cells"):
        try:
            groups = near if name == "nested" else group_cells(db, source, measured.axis, params)[1]
        except (InfeasibleError, UsageError) as refusal:
            rows.append(Alternative(name, {}, str(refusal)))
            continue
        facts = _state_groups(measured, codes, groups, None, ())
        figures = {"groups": facts.groups, "mean_width": facts.mean_width, "error": mean_error(quasi, values, groups)}
        rows.append(Alternative(name, figures))
    errors = {row.algorithm: error for row in rows if (error := row.figures.get("error")) is not None}
    best = min(errors, key=lambda name: errors[name]) if errors else "nested"
    return Alternatives(MEASURES, rows, f"least error of means by quasi-identifiers: {best}")


# Proposal -------------------------------------------------------------------------------------------------------------

K = 5
LOST, SLACK = 0.1, 1.05  # groups may hide this share of the variance of values, or 1.05 times what k alone hides
NEAR, TOP = 0.1, 0.9  # a value is nearly known if its group spans at most a tenth of it; where the top tenth begins


def propose_parameters(db: Relations, source: ProfiledSource) -> Proposal:
    """Propose k and e: every group gets at least k different values, over a range of at least e.

    k is ``K``, or the number of all different values if that is less. e is half of the median of the sensitive values,
    so that groups hide how large a value is. If the median is not positive, or for dates, e is the range of the middle
    half of the records. If values lie close together, wide groups would hide how values differ between people. So e is
    halved until at most a tenth of the variance of the values lies within groups: differences of means are then at most
    a tenth too small.
    """
    records = source.records()
    k = min(K, len(records.counts))
    is_time = records.roles.sensitive[0].type in STEPS
    measured = measure_axis(db, records, k, parse_extent("0 days") if is_time else parse_extent(0))
    units, ends = measured.axis.units, np.cumsum(records.counts)
    first, middle, third = (int(np.searchsorted(ends, int(ends[-1]) * part // 4, side="right")) for part in (1, 2, 3))
    median = 0.0 if is_time else float(records.labels[middle])
    width = (units[third] - units[first]) or (units[-1] - units[0])
    if median > 0:
        width = int(median / 2 / float(measured.unit))
    values, counts = measured.list_values(), np.array(records.counts, dtype=np.int64)
    fewest, divisor = static_optimum(make_axis(units, k, 0)), 2 if median > 0 else 1
    most = max(LOST, SLACK * _hidden_variance(values, counts, fewest))
    starts = static_optimum(make_axis(units, k, width))
    while width and _hidden_variance(values, counts, starts) > most:
        width, divisor = width // 2, 2 * divisor
        starts = static_optimum(make_axis(units, k, width))
    e = float(width * measured.unit)
    params = {"kind": "permute", "algorithm": "nested", "k": k}
    params["e"] = f"{max(1, e // DAY):.0f} days" if is_time else (f"{e:.0f}" if e >= 100 else f"{e:.3g}")
    part = {1: "", 2: "half of "}.get(divisor, f"1/{divisor} of ")
    of = part + ("the median" if median > 0 else "the range of the middle half")
    guessed = float((np.maximum.reduceat(counts, starts).sum() if starts else ends[-1]) / ends[-1])
    promise = [f"No value is known to less than a range of {params['e']}, {of}, and {k} values."]
    if starts and not is_time:
        sizes = np.add.reduceat(counts, starts)
        last = [*(start - 1 for start in starts[1:]), len(values) - 1]
        levels = _describe_levels(values, counts, values[starts], values[last], sizes)
        promise.append(f"{levels[0].upper()}{levels[1:]}.")
    hidden = _hidden_variance(values, counts, starts)
    remarks = [f"Groups hide {hidden:.1%} of the variance of the values: so much too little do means by them differ."]
    if median > 0:
        remarks.append("Where the level may harm, make bands of it in source.query and ask for --promise tables.")
    if guessed > 1 / 2:
        right = f"{guessed:.0%} of the records"
        remarks.append(f"Note: an attacker who guesses the most common value of a group is right for {right}.")
    return Proposal(params, promise=tuple(promise), remarks=tuple(remarks))


def _hidden_variance(values: Floats, counts: Ints, starts: Sequence[int] | None) -> float:
    """Return the share of the variance of the sensitive values that lies within groups; 1 if there are no groups.

    Args:
        values: The distinct values, rising (m,).
        counts: The records of each value (m,).
        starts: The ranks at which groups begin; None for no groups.
    """
    centred = values - np.average(values, weights=counts)
    whole = float(counts @ centred**2)
    if not starts or not whole:
        return float(not starts)
    sums, records = (np.add.reduceat(part, starts) for part in (counts * centred, counts))
    return 1 - float((sums**2 / records).sum()) / whole


def _describe_levels(values: Floats, counts: Numbers, low: Floats, high: Floats, sizes: Numbers) -> str:
    """Say in words how much the ranges of groups tell a reader of the release about how large values are.

    The text has two figures. The first is the share of records whose value is known to within 10 % from their group.
    The second is the share of the largest tenth of the records that certainly lie in it, as their group lies in it.

    Args:
        values: The distinct values, rising (m,).
        counts: The records of each value (m,).
        low: The least value of each group (g,).
        high: The largest value of each group (g,).
        sizes: The records of each group (g,).
    """
    known = float(sizes[high - low <= NEAR * np.maximum(low, 0)].sum() / sizes.sum())
    border = values[int(np.searchsorted(np.cumsum(counts), TOP * sizes.sum()))]
    certain, top = float(sizes[low >= border].sum()), float(counts[values >= border].sum())
    return (
        f"the values of {known:.0%} of the records are known to within 10 %; of those in the top tenth, "
        f"{certain / top:.0%} are known to be there"
    )
