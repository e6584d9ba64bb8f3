"""Check noisy tables: budgets in exact fractions, scales, and stated facts."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from privsql import dp_random
from privsql.mechanisms.dp.parameters import max_records, total_budget
from privsql.model.checks import BROKEN, Check, CheckedRelease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from sqlglot import exp

    from privsql.mechanisms.dp.noisy_tables import NoisyTable

OPENDP_CHECK = "made with a known version of OpenDP"


def unknown_opendp(release: CheckedRelease[Any, Any]) -> list[str]:
    """Return the version of OpenDP if it is newer than this version of privsql knows."""
    stated, here = (str(v).split(".") for v in (release.facts.opendp, dp_random.NEWEST))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    newest = known and [*map(int, stated[:2])] <= [*map(int, here[:2])]
    return [] if newest else [f"OpenDP {release.facts.opendp}"]


def wrong_facts(release: CheckedRelease[Any, Any], recomputed: Mapping[str, Any]) -> list[str]:
    """Return facts that differ from ``recomputed`` ones, or name another origin of the noise than the manifest."""
    manifest = release.manifest
    wrong = release.compare_facts({**recomputed, "noise": "seed" if manifest.randomness == "seed" else "opendp"})
    wrong += [] if manifest.algorithm == release.params.algorithm else [f"algorithm {manifest.algorithm}"]
    stated = manifest.persons.taken if manifest.persons is not None else None
    most = max_records(release.params)
    return wrong if stated == most or (stated is None and most == 1) else [*wrong, f"persons: {manifest.persons}"]


def check_published(
    release: CheckedRelease[Any, Any],
    what: str,
    read: Callable[[], Any],
    named: Mapping[str, Callable[[Any], list[str] | exp.Query]],
) -> list[Check]:
    """Return checks of what was published, which ``read`` reads once; where it can't be read, all have failed.

    Args:
        release: The release.
        what: What is read, in a word, for the message of a release that can't be read.
        read: Reads the published tables; it raises one of ``BROKEN`` for tables that no release has.
        named: By name, functions that list what is wrong in what was read, or query it.
    """
    once = cache(read)

    def run_check(check: Callable[[Any], list[str] | exp.Query], _: CheckedRelease[Any, Any]) -> list[str] | exp.Query:
        try:
            return check(once())
        except BROKEN as error:
            return [f"the {what} can't be read: {error}"]

    return release.list_checks({name: partial(run_check, check) for name, check in named.items()})


def wrong_total_budget(
    release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable], choices: Fraction = Fraction(0)
) -> list[str]:
    """Return what tables and choices of them, and other ``choices``, spend together, if that is not the budget."""
    total = sum((one.budget + (one.choice or 0) for one in tables), start=choices)
    due = total_budget(release.params)
    return [] if total == due else [f"spent {total}, not {due}"]


def wrong_table_scales(release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable]) -> list[str]:
    """Return tables whose noise has another scale than the least double that spends no more than the stated budget."""
    pairs = zip(tables, release.read_view("cliques")["scale"].to_pylist(), strict=True)
    return [f"clique {k}: scale {at}" for k, (one, at) in enumerate(pairs) if at != one.law.scale(one.budget)]


def differ_from_due(
    tables: Sequence[NoisyTable], due: Sequence[tuple[tuple[int, ...], Fraction, Fraction | None]]
) -> list[str]:
    """Return tables that are not those that are due: (columns, epsilon, what choosing them spent)."""
    if len(tables) != len(due):
        return [f"{len(tables)} cliques, {len(due)} are due"]
    return [
        f"clique {k}: {one.budget} on {one.columns}, due {spent} on {columns}"
        for k, (one, (columns, spent, choice)) in enumerate(zip(tables, due, strict=True))
        if (one.columns, one.budget, one.choice) != (columns, spent, choice)
    ]


def differ_from_specification(stated: pa.Table, due: pa.Table) -> list[str]:
    """Return that a table has other rows than the specification, if it has."""
    if stated.to_pylist() == due.to_pylist():
        return []
    return [f"stated {len(stated)} rows, the specification has {len(due)}"]
